"""Figures of samples: sheets of images, points of a plane, maps of posterior deviations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ocm_core.report import pictures
from ocm_core.report.document import (
    BOX,
    ColourBar,
    Control,
    DataTable,
    Figure,
    Panel,
    Picture,
    PictureMatrix,
    Value,
)
from ocm_core.report.folder import (
    POSTERIOR_STD,
    SAMPLES,
    TEST,
    PictureRow,
    PlanePoints,
    ReportFolder,
)
from ocm_core.report.pictures import Pixels
from ocm_core.results.study import SampleKey, Study

_SHEET_POINTS = 300
_FIRST_ROWS = ("exact_diag", "beta_tilde")  # beside OCM's head on the first sheet of a plane


def sheet(study: Study, folder: ReportFolder) -> Figure | None:
    """Return the first thing to see: samples from the same noise, nfe in columns."""
    if folder.points:
        return _plane_sheet(study, *folder.points)
    rows = [row for row in folder.pictures if row.figure == SAMPLES]
    if not rows:
        return None
    note = f" Guidance {study.guidance:g}." if study.is_guided and study.guidance else ""
    shown = [(row.name, tuple(_pictures(row))) for row in rows]
    means = [
        (row.name, column, *_levels(cell))
        for row in rows
        for column, cell in zip(row.columns, row.cells, strict=True)
        if cell is not None
    ]
    table = DataTable("sheet", ("way", "nfe", "mean level", "deviation of levels"), tuple(means))
    caption = f"The first samples of the first seed; the same place, the same noise.{note}"
    return _sheet(caption, rows[0].columns, shown, table)


def _sheet(
    caption: str,
    columns: tuple[str, ...],
    rows: Sequence[tuple[str, tuple[Picture | Panel | None, ...]]],
    table: DataTable,
) -> Figure:
    return Figure(
        id="sheet",
        label=f"Samples, ways to sample in rows ({', '.join(name for name, _ in rows)}) and "
        f"{', '.join(columns)} in columns.",
        caption=caption,
        panes=(PictureMatrix("samples by way and nfe", columns, tuple(rows)),),
        arrangement="alone",
        table=table,
    )


def _pictures(row: PictureRow) -> list[Picture | None]:
    return [
        None if cell is None else _picture(f"{row.name}, {column}", cell)
        for column, cell in zip(row.columns, row.cells, strict=True)
    ]


def _picture(alt: str, pixels: Pixels) -> Picture:
    return Picture("", alt, pictures.uri(pixels), pixels.shape[1], pixels.shape[0])


def _levels(pixels: Pixels) -> tuple[float, float]:
    visible = pixels[pixels[..., 3] > 0][:, :3]
    return float(f"{visible.mean():.4g}"), float(f"{visible.std():.4g}")


def _plane_sheet(
    study: Study, test: PlanePoints, samples: Mapping[SampleKey, PlanePoints]
) -> Figure | None:
    """Show one sampler: OCM's head, the exact diagonal and the usual variance."""
    if not samples or study.quality is None:
        return None
    sampler = next(iter(samples))[0]
    wanted = (study.family_of(study.quality.key)["ocm"], *_FIRST_ROWS)
    few = {key: x[:_SHEET_POINTS] for key, x in samples.items() if key[1] in wanted}
    matrix, rows = _plane_matrix(study, sampler, few, test[:_SHEET_POINTS], frame(test))
    caption = f"{sampler.upper()}: the first {_SHEET_POINTS} points of the first seed, same noise."
    return _sheet(caption, matrix.columns, matrix.rows, DataTable("sheet", _MOMENTS, tuple(rows)))


def plane_panels(
    study: Study, test: PlanePoints, samples: Mapping[SampleKey, PlanePoints]
) -> Figure:
    """Show samples of all methods beside the test set, a sampler at a time."""
    samplers = [*dict.fromkeys(sampler for sampler, *_ in samples)]
    found = [_plane_matrix(study, s, samples, test, frame(test)) for s in samplers]
    return Figure(
        id="samples",
        label="Scatter plots of samples beside the test set.",
        caption=f"Samples with the {study.score} score beside as many test points. With a sampler "
        "and an nfe, every method starts from the same noise.",
        panes=tuple(matrix for matrix, _ in found),
        controls=(Control("sampler", "Sampler", tuple(samplers)),),
        arrangement="alone",
        table=DataTable("samples", _MOMENTS, tuple(row for _, rows in found for row in rows)),
    )


_MOMENTS = (
    *("sampler", "method", "nfe", "mean x", "mean y", "deviation x", "deviation y"),
    "outside the frame",
)


def _plane_matrix(
    study: Study,
    sampler: str,
    samples: Mapping[SampleKey, PlanePoints],
    test: PlanePoints,
    reach: float,
) -> tuple[PictureMatrix, list[tuple[Value, ...]]]:
    """Return scatter plots, methods in rows and nfe in columns, and their moments."""
    here = {(m, nfe): x for (s, m, nfe), x in samples.items() if s == sampler}
    nfes = sorted({nfe for _, nfe in here})
    methods = [m for m in study.methods if any(key[0] == m for key in here)]
    shown: list[tuple[str, tuple[Picture | Panel | None, ...]]] = [
        (
            m,
            tuple(
                panel(f"nfe {nfe}", here[m, nfe], reach, study.methods[m].known.profile.hue)
                if (m, nfe) in here
                else None
                for nfe in nfes
            ),
        )
        for m in methods
    ]
    shown.append((TEST, (panel(TEST, test, reach, "ink"),)))
    columns = tuple(f"nfe {nfe}" for nfe in nfes)
    rows: list[tuple[Value, ...]] = [
        (sampler, m, nfe, *_moments(x, reach)) for (m, nfe), x in here.items()
    ]
    return PictureMatrix(sampler.upper(), columns, tuple(shown), {"sampler": sampler}), rows


def frame(test: PlanePoints) -> float:
    """Return half the width of the frame around the data."""
    return float(np.abs(test).max()) * 1.15


def _moments(points: PlanePoints, reach: float) -> tuple[float | int, ...]:
    finite = points[np.isfinite(points).all(1)].astype(np.float64)
    return (*map(float, finite.mean(0)), *map(float, finite.std(0)), _outside(points, reach))


def _outside(points: PlanePoints, reach: float) -> int:
    """Count points that the frame does not show, those that are no numbers among them."""
    return int((~(np.abs(points) <= reach).all(1)).sum())


def panel(title: str, points: PlanePoints, reach: float, hue: str) -> Panel:
    """Draw points as strokes of no length: a tenth of the bytes of circles."""
    outside = _outside(points, reach)
    inside = points[(np.abs(points) <= reach).all(1)].astype(np.float64)
    places = np.rint((inside * [1, -1] / reach + 1) * (BOX / 2)).astype(int)
    path = "".join(f"M{x} {y}h0" for x, y in places.tolist())
    return Panel(title, f"{outside} outside" if outside else "", path, hue)


def posterior_std(folder: ReportFolder) -> Figure | None:
    """Show predicted deviations of pixels across t beside estimates from random probes."""
    rows = [row for row in folder.pictures if row.figure == POSTERIOR_STD]
    if not rows:
        return None
    numbers = folder.picture_tables.get(POSTERIOR_STD)
    shown = tuple((row.name, tuple(_pictures(row))) for row in rows)
    names = ", ".join(row.name for row in rows)
    return Figure(
        id="posterior-std",
        label=f"Pictures of the deviation of each pixel given a noisy image, across t: {names}.",
        caption="The standard deviation of each pixel of x₀ given xₜ: as heads predict it in one "
        "evaluation, and as M random probes of the score's Jacobian estimate it (negative "
        "variances as zero). Dark is zero; each t has a scale of its own, which ends where the "
        f"estimate with {rows[-1].name} does.",
        panes=(PictureMatrix("posterior deviations", rows[0].columns, shown),),
        arrangement="alone",
        colour_bar=ColourBar(pictures.SCALE, "0", "the number above each column, and more"),
        table=DataTable(
            "posterior_std",
            numbers.columns if numbers else ("row",),
            numbers.rows if numbers else tuple((row.name,) for row in rows),
        ),
    )


def nearest_head(figure: Figure) -> str:
    """Say which head's deviations are nearest to those of the most probes, over all t."""
    gaps: dict[str, list[float]] = {}
    for row in figure.table.rows:
        if len(row) == 4 and not str(row[1]).startswith("M = "):
            gaps.setdefault(str(row[1]), []).append(float(row[3] or 0.0))
    if not gaps:
        return ""
    means = {name: float(np.mean(values)) for name, values in gaps.items()}
    best = min(means, key=means.__getitem__)
    return (
        f"Of the heads, {best} is nearest to the estimate with the most probes: a root mean square "
        f"difference of {means[best]:.2g}, the mean over t."
    )
