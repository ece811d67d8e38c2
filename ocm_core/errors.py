"""The one exception that the command line turns into a message, and words that messages share."""

from collections.abc import Iterable
from difflib import get_close_matches


class OcmError(Exception):
    """Bad input or a missing artifact: says what was found, what was expected and what to do."""


def unknown(name: object, valid: Iterable[str]) -> str:
    """`'ocn' is unknown; did you mean 'ocm'? valid: ...`, for any message about a wrong name."""
    names = sorted(valid)
    nearest = get_close_matches(str(name), names, n=1)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return f"{name!r} is unknown; {hint}valid: {', '.join(names) or 'none'}"
