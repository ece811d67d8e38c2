"""Figures of samples: sheets of images, points of a plane, maps of posterior deviations."""

from base64 import b64encode
from collections.abc import Mapping, Sequence

import numpy as np

from ocm_core.report import folder as files
from ocm_core.report.document import BOX, DataTable, Figure, Panel, Picture, PictureMatrix
from ocm_core.report.folder import PictureRow, Pixels, PlanePoints, ReportFolder, webp
from ocm_core.results.study import SampleKey, Study
from ocm_core.results.table import Value

_SCALED = {  # name, title, label and caption
    files.POSTERIOR_STD: (
        *("posterior_std", "posterior deviations"),
        "the deviation of each pixel given a noisy image, across t",
        "The standard deviation of each pixel of x₀ given xₜ: as heads predict it in one "
        "evaluation, and as M random probes of the score's Jacobian estimate it (negative "
        "variances as zero). Dark is zero; each t has a scale of its own, which ends where the "
        "estimate with {last} does.",
    ),
    files.RESTORATION: (
        *("restored", "restored images"),
        "test images, of what was seen of them, and restored",
        "The first test images; y, what was seen of them, enlarged where it is smaller; and of "
        "draws given y, by the first method and the first algorithm beside it, the mean, two "
        "draws, and the deviation of each pixel. Dark is zero; each task has a scale of its own.",
    ),
}
PlaneSamples = Mapping[SampleKey, PlanePoints]
_SHEET_POINTS = 300
_FIRST_ROWS = ("exact_diag", "beta_tilde")  # beside OCM's head on the first sheet of a plane
_LEVELS = ("way", "nfe", "mean level", "deviation of levels")
_MOMENTS = (
    *("sampler", "method", "nfe", "mean x", "mean y", "deviation x", "deviation y"),
    "outside the frame",
)


def uri(pixels: Pixels) -> str:
    """Return a picture as an address inside a page."""
    return f"data:image/webp;base64,{b64encode(webp(pixels)).decode()}"


def sheet(study: Study, folder: ReportFolder) -> Figure | None:
    """Return the first thing to see: samples from the same noise, nfe in columns."""
    name = "samples by way and nfe"
    rows = folder.rows_of(files.SAMPLES)
    if folder.points and folder.points[1] and study.quality:
        test, samples = folder.points
        sampler = next(iter(samples))[0]
        wanted = (study.family_of(study.quality.key)["ocm"], *_FIRST_ROWS)
        few = {key: x[:_SHEET_POINTS] for key, x in samples.items() if key[1] in wanted}
        pane, numbers = _plane(study, sampler, few, test[:_SHEET_POINTS], frame(test))
        matrix = pane._replace(title=name, at={})
        table = DataTable("sheet", _MOMENTS, tuple(numbers))
        said = f"{sampler.upper()}: the first {_SHEET_POINTS} points of the first seed, same noise."
    elif rows:
        matrix = _matrix(name, rows)
        levels: list[tuple[Value, ...]] = [
            (row.name, column, *(float(f"{x:.4g}") for x in (visible.mean(), visible.std())))
            for row in rows
            for column, cell in zip(row.columns, row.cells, strict=True)
            if cell is not None
            for visible in [cell[cell[..., 3] > 0][:, :3]]
        ]
        table = DataTable("sheet", _LEVELS, tuple(levels))
        said = "The first samples of the first seed; the same place, the same noise."
        if study.is_guided and study.guidance:
            said += f" Guidance {study.guidance:g}."
    else:
        return None
    ways, across = ", ".join(name for name, _ in matrix.rows), ", ".join(matrix.columns)
    label = f"Samples, ways to sample in rows ({ways}) and {across} in columns."
    return Figure("sheet", said, label, (matrix,), table, arrangement="alone")


def _matrix(title: str, rows: Sequence[PictureRow]) -> PictureMatrix:
    """Put rows of pictures under the same columns."""
    shown = []
    for row in rows:
        named = ((f"{row.name}, {c}", x) for c, x in zip(row.columns, row.cells, strict=True))
        sized = (None if x is None else Picture(m, uri(x), *x.shape[1::-1]) for m, x in named)
        shown.append((row.name, tuple(sized)))
    return PictureMatrix(title, rows[0].columns, tuple(shown))


def plane_panels(study: Study, test: PlanePoints, samples: PlaneSamples) -> Figure:
    """Show samples of all methods beside the test set, a sampler at a time."""
    samplers = [*dict.fromkeys(sampler for sampler, *_ in samples)]
    found = [_plane(study, s, samples, test, frame(test)) for s in samplers]
    caption = (
        f"Samples with the {study.score} score beside as many test points. With a sampler "
        "and an nfe, every method starts from the same noise."
    )
    label, panes = "Scatter plots of samples beside the test set.", tuple(m for m, _ in found)
    table = DataTable("samples", _MOMENTS, tuple(row for _, rows in found for row in rows))
    return Figure("samples", caption, label, panes, table, control="sampler", arrangement="alone")


def _plane(
    study: Study, sampler: str, samples: PlaneSamples, test: PlanePoints, reach: float
) -> tuple[PictureMatrix, list[tuple[Value, ...]]]:
    """Return scatter plots, methods in rows and nfe in columns, and their moments."""
    here = {(m, nfe): x for (s, m, nfe), x in samples.items() if s == sampler}
    nfes = sorted({nfe for _, nfe in here})
    shown = []
    for m, method in study.methods.items():
        hue, given = method.known.profile.line.hue, [(nfe, here.get((m, nfe))) for nfe in nfes]
        panels = [None if x is None else panel(f"nfe {k}", x, reach, hue) for k, x in given]
        if any(panels):
            shown.append((m, tuple(panels)))
    shown.append((files.TEST, (panel(files.TEST, test, reach, "ink"),)))
    columns = tuple(f"nfe {nfe}" for nfe in nfes)
    rows: list[tuple[Value, ...]] = []
    for (m, nfe), x in here.items():
        finite = x[np.isfinite(x).all(1)].astype(np.float64)
        moments = (*map(float, finite.mean(0)), *map(float, finite.std(0)))
        outside = int((~(np.abs(x) <= reach).all(1)).sum())  # or no numbers
        rows.append((sampler, m, nfe, *moments, outside))
    return PictureMatrix(sampler.upper(), columns, tuple(shown), {"sampler": sampler}), rows


def frame(test: PlanePoints) -> float:
    """Return half the width of the frame around the data."""
    return float(np.abs(test).max()) * 1.15


def panel(title: str, points: PlanePoints, reach: float, hue: str) -> Panel:
    """Draw points as strokes of no length: a tenth of the bytes of circles."""
    inside = points[(np.abs(points) <= reach).all(1)].astype(np.float64)
    outside = len(points) - len(inside)
    places = np.rint((inside * [1, -1] / reach + 1) * (BOX / 2)).astype(int)
    path = "".join(f"M{x} {y}h0" for x, y in places.tolist())
    return Panel(title, f"{outside} outside" if outside else "", path, hue)


def scaled_pictures(folder: ReportFolder, figure: str) -> Figure | None:
    """Show a figure of `_SCALED`, where each column has a scale of deviations."""
    if not (rows := folder.rows_of(figure)):
        return None
    name, title, label, caption = _SCALED[figure]
    return Figure(
        id=name.replace("_", "-"),
        label=f"Pictures of {label}: {', '.join(row.name for row in rows)}.",
        caption=caption.format(last=rows[-1].name),
        panes=(_matrix(title, rows),),
        arrangement="alone",
        colour_bar="the number above each column, and more",
        table=DataTable(name, *folder.picture_table(figure)),
    )


def nearest_head(figure: Figure) -> str:
    """Say which head's deviations are nearest to those of the most probes, over all t."""
    gaps: dict[str, list[float]] = {}
    for row in figure.table.rows:
        if len(row) == 4 and not str(row[1]).startswith("M = "):
            gaps.setdefault(str(row[1]), []).append(float(row[3] or 0.0))
    means = {name: float(np.mean(values)) for name, values in gaps.items()}
    if not means:
        return ""
    best = min(means, key=means.__getitem__)
    how = f"a root mean square difference of {means[best]:.2g}, the mean over t"
    return f"Of the heads, {best} is nearest to the estimate with the most probes: {how}."
