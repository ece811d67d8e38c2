"""Results on the disk come back the same, whatever order a file system lists them in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr

from ocm_core.artifacts.results import load, save


def test_variables_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    """A store lists its variables as its folder does; the metrics file is in their order."""
    names = [f"{measure}{space}" for measure in ("recall", "kid", "fid") for space in ("", "_a")]
    written = xr.Dataset({name: ("seed", np.arange(2.0)) for name in names})
    save(tmp_path, written)
    found = load(tmp_path)
    assert [*found] == sorted(names)
    xr.testing.assert_identical(found, written[sorted(names)])
