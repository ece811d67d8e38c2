"""Messages are for people: never longer than a page, whatever they quote."""

from __future__ import annotations

from ocm_core.errors import LONGEST_MESSAGE, OcmError, shortened, unknown


def test_a_long_message_keeps_its_ends() -> None:
    message = str(OcmError(f"x.yaml: found {'a' * 20_000}; do this"))
    assert len(message) <= LONGEST_MESSAGE
    assert message.startswith("x.yaml: found aaa") and message.endswith("aaa; do this")
    for size in range(120):
        said = shortened("x" * size, 50)
        assert said == "x" * size if size <= 50 else len(said) <= 50


def test_a_wrong_name_of_any_length_or_type() -> None:
    assert len(unknown("x" * 100_000, ["ocm"])) < 300
    assert unknown(3, ["a", 2]) == "3 is unknown; valid: 2, a"
