"""Write the folder `reports/NAME/` of an experiment; see `folder` for what it holds.

The stage `report` calls `write_report` with what the other stages left.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from jaxtyping import Float, Shaped, UInt8
from numpy import ndarray

from ocm_core.errors import OcmError
from ocm_core.io.atomic import write_bytes, write_text
from ocm_core.report import folder as files
from ocm_core.report.folder import Curves, OptimalByMethod, PictureRow, Pixels
from ocm_core.report.style import SCALE
from ocm_core.results.measures import Registry
from ocm_core.results.replicates import nested
from ocm_core.results.study import SampleKey, Study
from ocm_core.results.table import Results, Value, csv_text

PictureBatch = UInt8[ndarray, "n h w"] | UInt8[ndarray, "n h w 3"]
Planes = Mapping[str, Float[ndarray, "t h w"]]  # of posterior deviations, by source

LIMIT = 300_000  # bytes of all pictures together
MOST_POINTS = 400  # of each sample of a mixture
MOST_NFE = 25  # of optimal timesteps
MOST_LOSSES = 100  # of each training curve
_COLUMNS = 6  # images side by side in a cell
_TOP = 0.995  # the quantile of deviations that ends their colour scale
# How pictures are made smaller until they fit: images in a cell, reduction of sides, lossless.
_SIZES = (
    *((12, 1, True), (6, 1, True), (6, 1, False), (4, 1, False), (6, 2, False)),
    *((4, 2, False), (4, 4, False), (2, 4, False), (2, 8, False), (1, 8, False), (1, 16, False)),
)


class PosteriorStd(NamedTuple):
    """Deviations of x₀ given x_t for one noisy image, from each source, at some timesteps.

    Sources are methods that predict it, and `probes_<M>` for estimates with M random probes.
    """

    timesteps: tuple[int, ...]
    noisy: Float[ndarray, "t c h w"]  # x_t itself, in [-1, 1]
    deviations: Mapping[str, Float[ndarray, "t c h w"]]


def write_report(
    folder: Path,
    results: Results,
    params: Mapping[str, Any],
    provenance: Mapping[str, Any],
    registry: Registry,
    *,
    samples: Mapping[SampleKey, ndarray] | None = None,
    test: ndarray | None = None,
    posterior_std: PosteriorStd | None = None,
    curves: Curves | None = None,
    timesteps: OptimalByMethod | None = None,
) -> None:
    """Write everything anew; what a folder held before is removed.

    `params` is the composed experiment as plain data. `samples` are `Study.shown_samples`, and
    `test` is data to stand beside them: images as uint8 (n, h, w) or (n, h, w, 3), or points of a
    plane (n, 2).
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    results.write(folder / files.RESULTS)
    write_text(folder / files.METRICS, json.dumps(nested(results), indent=1) + "\n")
    write_text(
        folder / files.PARAMS, yaml.safe_dump({**params}, sort_keys=False, allow_unicode=True)
    )
    write_text(folder / files.PROVENANCE, _json(provenance))
    if curves:
        write_text(folder / files.CURVES, _curves(curves))
    if timesteps:
        tree = {
            method: {str(nfe): [*steps] for nfe, steps in by_nfe.items() if nfe <= MOST_NFE}
            for method, by_nfe in timesteps.items()
        }
        write_text(folder / files.TIMESTEPS, json.dumps(tree) + "\n")
    rows: list[PictureRow] = []
    tables: dict[str, Any] = {}
    if test is not None and test.ndim == 2:
        _write_points(folder / files.POINTS, samples or {}, test)
    else:
        rows += _sample_rows(Study(results, params, registry), samples or {}, test)
    if posterior_std:
        planes = _planes(posterior_std)
        rows += _std_rows(posterior_std, planes)
        tables[files.POSTERIOR_STD] = _std_table(posterior_std.timesteps, planes)
    if rows:
        _write_pictures(folder / files.PICTURES, rows, tables)


def _json(tree: Mapping[str, Any]) -> str:
    """Write JSON with keys in a fixed order."""
    return json.dumps(tree, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _curves(curves: Curves) -> str:
    """Write six digits: a curve is looked at, and never computed with."""
    lines: list[tuple[Value, ...]] = [("training", "network", "iteration", "loss")]
    for names, curve in curves.items():
        few = np.unique(np.linspace(0, len(curve) - 1, MOST_LOSSES).round().astype(int))
        lines += [(*names, curve[i][0], f"{curve[i][1]:.6g}") for i in few]
    return csv_text(lines)


def _write_points(file: Path, samples: Mapping[SampleKey, ndarray], test: ndarray) -> None:
    """Write half precision: a frame has a few hundred pixels."""
    arrays = {f"{sampler}/{method}/{nfe}": x for (sampler, method, nfe), x in samples.items()}
    arrays[files.TEST] = test
    content = io.BytesIO()
    small = {key: x[:MOST_POINTS].astype(np.float16) for key, x in arrays.items()}
    np.savez_compressed(content, **small)  # type: ignore[arg-type]  # keys are names of arrays
    write_bytes(file, content.getvalue())


def _sample_rows(
    study: Study, samples: Mapping[SampleKey, PictureBatch], test: PictureBatch | None
) -> Iterator[PictureRow]:
    """Yield ways to sample in rows, nfe in columns, and a row of data."""
    nfes = sorted({nfe for *_, nfe in samples})
    columns = tuple(f"nfe {nfe}" for nfe in nfes)
    by_route: dict[str, dict[int, PictureBatch]] = {}
    for (sampler, method, nfe), images in samples.items():
        by_route.setdefault(study.route(sampler, method), {})[nfe] = images
    for label, by_nfe in by_route.items():
        yield PictureRow(files.SAMPLES, label, columns, [by_nfe.get(nfe) for nfe in nfes])
    if test is not None and nfes:
        most = len(test) // len(nfes)
        parts = [test[i * most : (i + 1) * most] for i in range(len(nfes))]
        yield PictureRow(files.SAMPLES, files.TEST, columns, parts)


def _std_rows(found: PosteriorStd, planes: Planes) -> Iterator[PictureRow]:
    """Yield the noisy image where it can be seen, and a row for each source."""
    tops = [float(np.quantile(plane, _TOP)) or 1.0 for plane in [*planes.values()][-1]]
    scaled = zip(found.timesteps, tops, strict=True)
    columns = tuple(f"t = {t}, 0 to {top:.2g}" for t, top in scaled)
    if found.noisy.shape[1] in (1, 3):
        levels = np.rint(np.clip(127.5 * (found.noisy + 1), 0, 255)).astype(np.uint8)
        images = np.broadcast_to(levels.transpose(0, 2, 3, 1), (*levels[:, 0].shape, 3))
        yield PictureRow(files.POSTERIOR_STD, "xₜ", columns, [image[None] for image in images])
    for name, values in planes.items():
        shown = [colours(x, top)[None] for x, top in zip(values, tops, strict=True)]
        yield PictureRow(files.POSTERIOR_STD, name, columns, shown)


def _planes(found: PosteriorStd) -> Planes:
    """Return root mean squares over channels; the estimate with the most probes comes last."""
    known = found.deviations
    probes = sorted(int(k.removeprefix("probes_")) for k in known if k.startswith("probes_"))
    names = {k: k for k in known if not k.startswith("probes_")}
    names |= {f"probes_{count}": f"M = {count}" for count in probes}
    return {label: np.sqrt((known[key] ** 2).mean(1)) for key, label in names.items()}


def _std_table(timesteps: Sequence[int], planes: Planes) -> dict[str, Any]:
    """List means, and differences from the estimate with the most probes."""
    most, rows = [*planes.values()][-1], []
    for i, t in enumerate(timesteps):
        for name, values in planes.items():
            numbers = values[i].mean(), np.sqrt(((values[i] - most[i]) ** 2).mean())
            rows.append([t, name, *(float(f"{x:.4g}") for x in numbers)])
    columns = ["t", "by", "mean deviation", "root mean square difference from the last"]
    return {"columns": columns, "rows": rows}


def _write_pictures(listing: Path, rows: Sequence[PictureRow], tables: Mapping[str, Any]) -> None:
    for count, reduction, lossless in _SIZES:
        strips = [files.webp(_strip(row, count, reduction), lossless=lossless) for row in rows]
        if sum(map(len, strips)) <= LIMIT - 20_000:  # what the listing takes
            break
    else:
        raise OcmError(f"{listing.parent}: pictures need more than {LIMIT} bytes at any size")
    entries = []
    for i, (figure, name, columns, cells) in enumerate(rows):
        file, present = f"{figure}-{i}.webp", [cell is not None for cell in cells]
        write_bytes(listing.parent / file, strips[i])
        known = {"figure": figure, "name": name, "columns": columns}
        entries.append({**known, "file": file, "present": present})
    write_text(listing, _json({"rows": entries, "tables": tables}))


def _strip(row: PictureRow, count: int, reduction: int) -> Pixels:
    """Put the cells of a row side by side, each a sheet of its first images."""
    count = min([count, *(len(cell) for cell in row.cells if cell is not None)])
    count = max(1, count // _COLUMNS) * _COLUMNS if count >= _COLUMNS else count
    known = [None if x is None else _sheet(shrink(x[:count], reduction)) for x in row.cells]
    blank = np.zeros_like(next(sheet for sheet in known if sheet is not None))
    return np.concatenate([blank if sheet is None else sheet for sheet in known], axis=1)


def shrink(images: Shaped[ndarray, "n h w *c"], reduction: int) -> Shaped[ndarray, "n H W *c"]:
    """Average blocks of `reduction` by `reduction` pixels; an odd rim is left out."""
    count, height, width, *channels = images.shape
    rows, columns = max(1, height // reduction), max(1, width // reduction)
    down, across = min(reduction, height), min(reduction, width)
    whole = images[:, : rows * down, : columns * across]
    means: ndarray = whole.reshape(count, rows, down, columns, across, *channels).mean((2, 4))
    return np.rint(means).astype(np.uint8) if images.dtype == np.uint8 else means


def _sheet(images: PictureBatch) -> Pixels:
    """Arrange images in a few columns, with one transparent pixel after each."""
    count, height, width = images.shape[:3]
    columns = min(_COLUMNS, count)
    canvas = np.zeros((-(-count // columns) * (height + 1), columns * (width + 1), 4), np.uint8)
    for i, image in enumerate(images[..., None] if images.ndim == 3 else images):
        top, left = (i // columns) * (height + 1), (i % columns) * (width + 1)
        canvas[top : top + height, left : left + width, :3] = image
        canvas[top : top + height, left : left + width, 3] = 255
    return canvas


def colours(values: Float[ndarray, "h w"], top: float) -> UInt8[ndarray, "h w 3"]:
    """Colour values from zero to `top` and above, from dark to light."""
    anchors = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in SCALE], dtype=float)
    places = np.clip(values / top, 0, 1) * (len(anchors) - 1)
    channels = [np.interp(places, range(len(anchors)), anchors[:, c]) for c in range(3)]
    return np.asarray(np.rint(np.stack(channels, -1)), np.uint8)
