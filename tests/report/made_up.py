"""Folders of made-up experiments, and tables that stand on a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ocm_core.report.document import DataTable, Figure, Headline, Page, ResultTable
from ocm_core.report.folder import ReportFolder
from ocm_core.report.write import PosteriorStd, write_report
from ocm_core.results.measures import measures
from ocm_core.results.study import Study
from ocm_core.results.table import Results, Row
from tests.results.synthetic import PARAMS, PLANE, image_rows, near, seeds

ROOT = Path(__file__).resolve().parents[2]
PROVENANCE: dict[str, Any] = {
    "commit": "0123456789abcdef",
    "choices": ["data: digits"],
    "machines": ["x86-64"],
    "versions": {"torch": "2"},
    "digests": {"parameters": "ab" * 20},
    "notes": {
        "images": {"likelihood": 36},
        "head_parameters": {"ocm": 100},
        "replaced_baselines": {"trained": 2},
        "shape": [1, 8, 8],
    },
}
CURVES = {("by denoising", "score"): [(i, 10.0 / i) for i in range(1, 300)]}


def images(count: int, side: int, colours: int | None = None) -> np.ndarray:
    shape = (count, side, side) if colours is None else (count, side, side, colours)
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def image_folder(
    path: Path, rows: list[Row] | None = None, side: int = 8, **params: Any
) -> ReportFolder:
    """Of images, with everything that a page can show."""
    given, results = PARAMS | params, Results(image_rows() if rows is None else rows)
    known = measures()
    rng = np.random.default_rng(1)
    std = PosteriorStd(
        (1, 100),
        rng.uniform(-1, 1, (2, 1, side, side)),
        {name: rng.uniform(0, 1, (2, 1, side, side)) for name in ("ocm", "probes_10", "probes_1")},
    )
    write_report(
        path,
        results,
        given,
        PROVENANCE,
        known,
        samples={key: images(36, side) for key in Study(results, given, known).shown_samples},
        test=images(36, side),
        posterior_std=std,
        curves=CURVES,
        timesteps={"ocm": {2: (1, 900), 50: tuple(range(50))}},
    )
    return ReportFolder(path)


def plane_rows() -> list[Row]:
    values = {
        (sampler, method, nfe): near(level / nfe)
        for sampler in ("ddpm", "ddim")
        for method, level in {"ocm": 1.0, "exact_diag": 1.01, "beta_tilde": 3.0}.items()
        for nfe in (2, 5, 10)
    }
    errors = [
        Row("covariance_error", 0.1 * (i + 1), 0.01, score, method=method, timesteps=str(t))
        for score in ("exact", "trained")
        for i, method in enumerate(("ocm", "npr"))
        for t in (1, 100)
    ]
    scored = [row for score in ("exact", "trained") for row in seeds("mmd", values, score)]
    floor = [Row("mmd_floor", 0.01, replicate=f"seed{i}") for i in range(3)]
    return [*scored, *floor, *errors]


def plane_folder(path: Path) -> ReportFolder:
    """Of points in a plane."""
    results, known = Results(plane_rows()), measures()
    points = np.random.default_rng(2).normal(size=(1000, 2))
    keys = Study(results, PLANE, known).shown_samples
    write_report(
        path,
        results,
        PLANE,
        PROVENANCE,
        known,
        samples={key: points for key in keys},
        test=points,
        curves=CURVES,
    )
    return ReportFolder(path)


def figures(page: Page) -> dict[str, Figure]:
    return {block.id: block for block in page.blocks if isinstance(block, Figure)}


def tables(page: Page) -> dict[str, ResultTable | DataTable]:
    found = [block.table if isinstance(block, Headline) else block for block in page.blocks]
    return {t.name: t for t in found if isinstance(t, ResultTable | DataTable)}


def sections(page: Page) -> list[str]:
    return [section.id for section in page.sections]
