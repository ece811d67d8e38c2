"""What a run leaves for people: small pictures, exact numbers, nothing of a run before."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ocm_core.report.folder import TEST, ReportFolder
from ocm_core.report.write import LIMIT, MOST_POINTS, colours, shrink, write_report
from ocm_core.results.measures import measures
from ocm_core.results.table import Results
from tests.report.made_up import PROVENANCE, image_folder, images, plane_folder
from tests.results.synthetic import PARAMS, image_rows


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "digits")
    assert folder.results == Results(image_rows())
    assert folder.params == PARAMS
    assert folder.provenance == PROVENANCE
    assert folder.timesteps == {"ocm": {2: (1, 900)}}  # longer ones are not shown
    assert len(folder.curves["by denoising", "score"]) == 100
    metrics = json.loads((folder.path / "metrics.json").read_text())
    assert metrics["frechet"]["ddpm"]["ocm"]["K5"] == 27
    rows = {row.name: row for row in folder.pictures if row.figure == "samples"}
    assert next(iter(rows)) == "quality, delta" and [*rows][-1] == TEST
    assert rows["ddpm, ocm"].columns == ("nfe 5", "nfe 10")
    first = rows["ddpm, ocm"].cells[0]
    assert first is not None
    np.testing.assert_array_equal(first[:8, :8, 0], images(36, 8)[0])
    deviations = [row.name for row in folder.pictures if row.figure == "posterior_std"]
    assert deviations == ["xₜ", "ocm", "M = 1", "M = 10"]


def test_points_are_few_and_small(tmp_path: Path) -> None:
    folder = plane_folder(tmp_path / "toy")
    assert folder.points is not None
    test, samples = folder.points
    assert len(test) == MOST_POINTS
    assert {len(points) for points in samples.values()} == {MOST_POINTS}
    assert (folder.path / "points.npz").stat().st_size < 100_000
    assert folder.pictures == ()


@pytest.mark.parametrize("side", [8, 32, 256])
def test_pictures_are_reduced_until_they_fit(tmp_path: Path, side: int) -> None:
    """Pure noise, which early samples are, is as large as its pixels."""
    keys = [("quality", "delta", 5), ("ddpm", "ocm", 5), ("ddpm", "ocm", 10), ("unipc", "none", 5)]
    write_report(
        tmp_path / "photos",
        Results(image_rows()),
        PARAMS,
        PROVENANCE,
        measures(),
        samples={key: images(12, side, 3) for key in keys},
        test=images(12, side, 3),
    )
    folder = ReportFolder(tmp_path / "photos")
    files = [*(folder.path / "pictures").iterdir()]
    assert 1000 < sum(file.stat().st_size for file in files) <= LIMIT
    [row] = [row for row in folder.pictures if row.name == "unipc"]
    assert row.cells[0] is not None and row.cells[1] is None


def test_what_was_before_is_gone(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "digits")
    (folder.path / "old.txt").write_text("")
    again = image_folder(tmp_path / "digits", [])
    assert not (again.path / "old.txt").exists()
    assert not [row for row in again.pictures if row.name == "ddpm, ocm"]


def test_shrinking_takes_means_and_leaves_an_odd_rim() -> None:
    small = shrink(np.arange(25.0).reshape(1, 5, 5), 2)
    np.testing.assert_array_equal(small, [[[3, 5], [13, 15]]])
    assert shrink(np.ones((1, 3, 3), np.uint8), 8).shape == (1, 1, 1)


def test_colours_go_from_dark_to_light_and_end_at_the_top() -> None:
    shown = colours(np.array([[0.0, 0.5, 1.0, 9.0]]), 1.0).astype(int)
    brightness = shown.sum(-1)[0]
    assert brightness[0] < brightness[1] < brightness[2] == brightness[3]
