"""Every change of the list can still be made, and the tests that are to notice it are there."""

import pytest

from tests.constants import CHANGES, Change
from tests.constants.__main__ import ROOT


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change.file}: {change.before}")
def test_what_is_changed_is_there_once(change: Change) -> None:
    assert (ROOT / "ocm_core" / change.file).read_text().count(change.before) == 1
    assert (ROOT / change.tests.split()[0]).is_file()
