"""The one exception that the command line turns into a message, and words that messages share."""

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST_MESSAGE, LONGEST_NAME = 2000, 200  # characters: what a person reads


class OcmError(Exception):
    """Bad input or a missing artifact: says what was found, what was expected and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(shortened(message, LONGEST_MESSAGE))


def shortened(text: str, longest: int) -> str:
    """Keep the beginning, which says what is wrong, and the end, which says what to do."""
    if len(text) <= longest:
        return text
    half = (longest - 7) // 2
    return f"{text[:half]} [...] {text[-half:]}"


def unknown(name: object, valid: Iterable[object]) -> str:
    """Return `'ocn' is unknown; did you mean 'ocm'? valid: ...`, for messages."""
    names = sorted(map(str, valid))
    nearest = get_close_matches(str(name)[:LONGEST_NAME], names, n=1)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    said = shortened(repr(name), LONGEST_NAME)
    return f"{said} is unknown; {hint}valid: {', '.join(names) or 'none'}"
