"""Write the folder `reports/NAME/` of an experiment; see `folder` for what it holds.

The stage `report` calls `write_report` with what the other stages left. `wanted_samples` says
before that which few samples the page shows.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from jaxtyping import Float
from numpy import ndarray

from ocm_core.errors import OcmError
from ocm_core.io.atomic import write_bytes, write_text
from ocm_core.report import folder as files
from ocm_core.report import pictures
from ocm_core.report.folder import Curves, OptimalByMethod, as_json
from ocm_core.report.pictures import PictureBatch, Pixels
from ocm_core.results.measures import Registry
from ocm_core.results.metrics import nested
from ocm_core.results.study import SampleKey, Study
from ocm_core.results.table import Results

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


@dataclass(frozen=True)
class PosteriorStd:
    """Deviations of x₀ given x_t for one noisy image, from each source, at some timesteps.

    Sources are methods that predict it, and `probes_<M>` for estimates with M random probes.
    """

    timesteps: tuple[int, ...]
    noisy: Float[ndarray, "t c h w"]  # x_t itself, in [-1, 1]
    deviations: Mapping[str, Float[ndarray, "t c h w"]]


@dataclass(frozen=True)
class _Row:
    """A row of pictures before it has a size."""

    figure: str
    name: str
    columns: tuple[str, ...]
    cells: tuple[PictureBatch | None, ...]


def wanted_samples(
    results: Results, params: Mapping[str, Any], registry: Registry
) -> list[SampleKey]:
    """Return the samples that the page shows: sampler, method and nfe, of the first seed."""
    return Study(results, params, registry).shown_samples


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

    `params` is the composed experiment as plain data. `samples` are those of `wanted_samples`, and
    `test` is data to stand beside them: images as uint8 (n, h, w) or (n, h, w, 3), or points of a
    plane (n, 2).
    """
    shutil.rmtree(folder, ignore_errors=True)
    results.write(_made(folder) / files.RESULTS)
    write_text(folder / files.METRICS, json.dumps(nested(results), indent=1) + "\n")
    write_text(
        folder / files.PARAMS, yaml.safe_dump({**params}, sort_keys=False, allow_unicode=True)
    )
    write_text(folder / files.PROVENANCE, as_json(provenance))
    if curves:
        write_text(folder / files.CURVES, _curves(curves))
    if timesteps:
        tree = {
            method: {str(nfe): [*steps] for nfe, steps in by_nfe.items() if nfe <= MOST_NFE}
            for method, by_nfe in timesteps.items()
        }
        write_text(folder / files.TIMESTEPS, json.dumps(tree) + "\n")
    shown = samples or {}
    if test is not None and test.ndim == 2:
        _write_points(folder / files.POINTS, shown, test)
        shown, test = {}, None
    study = Study(results, params, registry)
    rows = [*_sample_rows(study, shown, test), *_std_rows(posterior_std)]
    if rows:
        _write_pictures(folder / files.PICTURES, rows, posterior_std)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _curves(curves: Curves) -> str:
    """Six digits: a curve is looked at, and never computed with."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["training", "network", "iteration", "loss"])
    for (training, network), curve in curves.items():
        few = np.unique(np.linspace(0, len(curve) - 1, MOST_LOSSES).round().astype(int))
        writer.writerows([training, network, curve[i][0], f"{curve[i][1]:.6g}"] for i in few)
    return text.getvalue()


def _write_points(file: Path, samples: Mapping[SampleKey, ndarray], test: ndarray) -> None:
    """Half precision: a frame has a few hundred pixels."""
    arrays = {f"{sampler}/{method}/{nfe}": x for (sampler, method, nfe), x in samples.items()}
    arrays[files.TEST] = test
    content = io.BytesIO()
    small = {key: x[:MOST_POINTS].astype(np.float16) for key, x in arrays.items()}
    np.savez_compressed(content, **small)  # type: ignore[arg-type]  # keys are names of arrays
    write_bytes(file, content.getvalue())


def _sample_rows(
    study: Study, samples: Mapping[SampleKey, PictureBatch], test: PictureBatch | None
) -> Iterator[_Row]:
    """Ways to sample in rows, nfe in columns, and a row of data."""
    nfes = sorted({nfe for *_, nfe in samples})
    columns = tuple(f"nfe {nfe}" for nfe in nfes)
    names = study.recipe_names
    by_route: dict[str, dict[int, PictureBatch]] = {}
    for (sampler, method, nfe), images in samples.items():
        label = study.route(names.get(sampler, sampler), method).label
        by_route.setdefault(label, {})[nfe] = images
    for label, by_nfe in by_route.items():
        yield _Row(files.SAMPLES, label, columns, tuple(by_nfe.get(nfe) for nfe in nfes))
    if test is not None and nfes:
        most = len(test) // len(nfes)
        parts = [test[i * most : (i + 1) * most] for i in range(len(nfes))]
        yield _Row(files.SAMPLES, files.TEST, columns, tuple(parts))


def _std_rows(found: PosteriorStd | None) -> Iterator[_Row]:
    """The noisy image where it can be seen, and a row for each source."""
    if found is None:
        return
    planes = _planes(found)
    most = [*planes.values()][-1]
    tops = [float(np.quantile(plane, _TOP)) or 1.0 for plane in most]
    columns = tuple(
        f"t = {t}, 0 to {top:.2g}" for t, top in zip(found.timesteps, tops, strict=True)
    )
    if found.noisy.shape[1] in (1, 3):
        levels = np.rint(np.clip(127.5 * (found.noisy + 1), 0, 255)).astype(np.uint8)
        images = np.broadcast_to(levels.transpose(0, 2, 3, 1), (*levels[:, 0].shape, 3))
        yield _Row(files.POSTERIOR_STD, "xₜ", columns, tuple(image[None] for image in images))
    for name, values in planes.items():
        shown = [pictures.colours(x, top) for x, top in zip(values, tops, strict=True)]
        yield _Row(files.POSTERIOR_STD, name, columns, tuple(image[None] for image in shown))


def _planes(found: PosteriorStd) -> dict[str, Float[ndarray, "t h w"]]:
    """Root mean square over channels; the estimate with the most probes comes last."""
    probes = sorted(
        (name for name in found.deviations if name.startswith("probes_")),
        key=lambda name: int(name.removeprefix("probes_")),
    )
    methods = [name for name in found.deviations if name not in probes]
    names = {m: m for m in methods} | {p: f"M = {p.removeprefix('probes_')}" for p in probes}
    return {label: np.sqrt((found.deviations[key] ** 2).mean(1)) for key, label in names.items()}


def _std_table(found: PosteriorStd) -> dict[str, Any]:
    planes = _planes(found)
    most = [*planes.values()][-1]
    rows = [
        [t, name, float(f"{values[i].mean():.4g}"), float(f"{_rms(values[i] - most[i]):.4g}")]
        for i, t in enumerate(found.timesteps)
        for name, values in planes.items()
    ]
    columns = ["t", "by", "mean deviation", "root mean square difference from the last"]
    return {"columns": columns, "rows": rows}


def _rms(values: ndarray) -> float:
    return float(np.sqrt((values**2).mean()))


def _write_pictures(listing: Path, rows: Sequence[_Row], found: PosteriorStd | None) -> None:
    for count, reduction, lossless in _SIZES:
        strips = [pictures.webp(_strip(row, count, reduction), lossless=lossless) for row in rows]
        if sum(map(len, strips)) <= LIMIT - 20_000:  # what the listing takes
            break
    else:
        raise OcmError(f"{listing.parent}: pictures need more than {LIMIT} bytes at any size")
    entries = []
    for i, (row, strip) in enumerate(zip(rows, strips, strict=True)):
        file = f"{row.figure}-{i}.webp"
        write_bytes(listing.parent / file, strip)
        present = [cell is not None for cell in row.cells]
        entries.append(
            {"file": file, "figure": row.figure, "name": row.name}
            | {"columns": [*row.columns], "present": present}
        )
    tables = {files.POSTERIOR_STD: _std_table(found)} if found else {}
    write_text(listing, as_json({"rows": entries, "tables": tables}))


def _strip(row: _Row, count: int, reduction: int) -> Pixels:
    """The cells of a row side by side, each a sheet of its first images."""
    known = [cell for cell in row.cells if cell is not None]
    count = min([count, *map(len, known)])
    count = max(1, count // _COLUMNS) * _COLUMNS if count >= _COLUMNS else count
    sheets = [
        None if cell is None else pictures.sheet(pictures.shrink(cell[:count], reduction), _COLUMNS)
        for cell in row.cells
    ]
    blank = np.zeros_like(next(sheet for sheet in sheets if sheet is not None))
    return np.concatenate([blank if sheet is None else sheet for sheet in sheets], axis=1)
