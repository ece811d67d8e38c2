"""Folders of made-up experiments, and tables that stand on a page."""

from pathlib import Path
from typing import Any

import numpy as np

from ocm_core.report.document import DataTable, Figure, Headline, Page, ResultTable
from ocm_core.report.folder import PosteriorStd, ReportFolder, write_report
from ocm_core.results.measures import measures
from ocm_core.results.study import Study
from ocm_core.results.table import Results, Row
from tests.results.synthetic import PARAMS, PLANE, image_rows, near, seeds

ROOT = Path(__file__).resolve().parents[2]
PROVENANCE: dict[str, Any] = {
    **{"commit": "0123456789abcdef", "choices": ["data: digits"], "machines": ["x86-64"]},
    **{"versions": {"torch": "2"}, "digests": {"parameters": "ab" * 20}},
    "notes": {
        **{"images": {"likelihood": 36}, "head_parameters": {"ocm": 100}},
        **{"replaced_baselines": {"trained": 2}, "shape": [1, 8, 8]},
    },
}
NOTHING: dict[str, Any] = {"timesteps": {}, "posterior_std": None}
CURVES = {("by denoising", "score"): [(i, 10.0 / i) for i in range(1, 300)]}


def images(count: int, side: int, colours: int | None = None) -> np.ndarray:
    shape = (count, side, side) if colours is None else (count, side, side, colours)
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def image_folder(path: Path, rows: list[Row] | None = None, **params: Any) -> ReportFolder:
    """Of images, with everything that a page can show."""
    rng = np.random.default_rng(1)
    noisy = rng.uniform(-1, 1, (2, 1, 8, 8))
    std = {name: rng.uniform(0, 1, (2, 1, 8, 8)) for name in ("ocm", "probes_10", "probes_1")}
    return folder(
        path,
        image_rows() if rows is None else rows,
        PARAMS | params,
        images(36, 8),
        posterior_std=PosteriorStd((1, 100), noisy, std),
        timesteps={"ocm": {2: (1, 900), 50: tuple(range(50))}, "ocm/method": {2: (50, 900)}},
    )


def plane_folder(path: Path) -> ReportFolder:
    """Of points in a plane."""
    values = {
        (sampler, method, nfe): near(level / nfe)
        for sampler in ("ddpm", "ddim")
        for method, level in {"ocm": 1.0, "exact_diag": 1.01, "beta_tilde": 3.0}.items()
        for nfe in (2, 5, 10)
    }
    scores = ("exact", "trained")
    rows = [row for score in scores for row in seeds("mmd", values, score)]
    rows += [Row("mmd_floor", 0.01, replicate=f"seed{i}") for i in range(3)]
    rows += [
        Row("covariance_error", 0.1 * (i + 1), 0.01, score, method=method, timesteps=str(t))
        for score in scores
        for i, method in enumerate(("ocm", "npr"))
        for t in (1, 100)
    ]
    return folder(path, rows, PLANE, np.random.default_rng(2).normal(size=(1000, 2)))


def folder(
    path: Path, rows: list[Row], params: dict[str, Any], data: np.ndarray, **further: Any
) -> ReportFolder:
    study, further = Study(Results(rows), params, measures()), {**NOTHING, **further}
    samples = dict.fromkeys(study.shown_samples, data)
    write_report(path, study, PROVENANCE, samples, data, CURVES, **further)
    return ReportFolder(path)


def figures(page: Page) -> dict[str, Figure]:
    return {block.id: block for block in page.blocks if isinstance(block, Figure)}


def tables(page: Page) -> dict[str, ResultTable | DataTable]:
    found = [block.table if isinstance(block, Headline) else block for block in page.blocks]
    return {t.name: t for t in found if isinstance(t, ResultTable | DataTable)}
