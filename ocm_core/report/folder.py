"""The folder `reports/NAME/`: everything that a run leaves for people, and all that a page needs.

results.csv      the table of results
metrics.json     nested means, for `dvc metrics diff`
params.yaml      the composed experiment
provenance.json  the commit, digests, versions and notes of the run
curves.csv       training losses
timesteps.json   optimal timesteps by method and nfe
points.npz       samples and test points: two of their coordinates
pictures/        strips of samples, of posterior deviations and of restored images (WebP), listed in
                 pictures.json
"""

import csv
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from jaxtyping import Float, Shaped, UInt8
from numpy import ndarray
from PIL import Image

from ocm_core.errors import OcmError
from ocm_core.io.atomic import write_bytes, write_text
from ocm_core.io.reading import read_json_object, reading
from ocm_core.report.charts import SCALE
from ocm_core.results.replicates import nested
from ocm_core.results.study import SampleKey, Study
from ocm_core.results.table import REMEDY, Results, Value, csv_text

REPORTS = Path("reports")
RESULTS, PARAMS, PROVENANCE = "results.csv", "params.yaml", "provenance.json"
METRICS, CURVES, TIMESTEPS = "metrics.json", "curves.csv", "timesteps.json"
POINTS, PICTURES = "points.npz", "pictures/pictures.json"
# figures that pictures belong to
SAMPLES, POSTERIOR_STD, RESTORATION = "samples", "posterior_std", "restoration"
TEST = "test set"
_TYPES = {"versions": dict, "digests": dict, "notes": dict, "choices": list, "machines": list}
_MOST_PIXELS = 1 << 24
LIMIT = 300_000  # bytes of all pictures together
MOST_POINTS = 400  # of each sample of a mixture
MOST_NFE = 25  # of optimal timesteps
MOST_LOSSES = 100  # of each training curve, with six digits: it is looked at only
_COLUMNS = 6  # images side by side in a cell
_TOP = 0.995  # the quantile of deviations that ends their colour scale
# How pictures are made smaller until they fit: images in a cell, reduction of sides, lossless.
_SIZES = (
    *((12, 1, True), (6, 1, True), (6, 1, False), (4, 1, False), (6, 2, False)),
    *((4, 2, False), (4, 4, False), (2, 4, False), (2, 8, False), (1, 8, False), (1, 16, False)),
)

LossCurve = Sequence[tuple[int, float]]  # (iteration, loss)
Curves = Mapping[tuple[str, str], LossCurve]  # by training and network
OptimalByMethod = Mapping[str, Mapping[int, tuple[int, ...]]]  # by method and nfe
PlanePoints = Float[ndarray, "n 2"]
Pixels = UInt8[ndarray, "h w c"]
PictureBatch = UInt8[ndarray, "n h w"] | UInt8[ndarray, "n h w 3"]


RestoredPictures = Mapping[str, ndarray]  # by `task/row`: levels, or deviations that are floats


class PictureRow(NamedTuple):
    """A row of pictures of equal size, or of batches of images; None where there is none."""

    figure: str
    name: str
    columns: tuple[str, ...]  # what stands above each picture
    cells: Sequence[ndarray | None]


@dataclass(frozen=True)
class ReportFolder:
    """One folder, read when it is asked for its parts."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @cached_property
    def results(self) -> Results:
        """Return the table of results."""
        return Results.read(self.path / RESULTS)

    @cached_property
    def params(self) -> dict[str, Any]:
        """Return the composed experiment as plain data."""
        file = self.path / PARAMS
        with reading(file, "parameters in YAML", REMEDY):
            return {**yaml.safe_load(file.read_text("utf-8"))}

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Return what the run was made with."""
        file = self.path / PROVENANCE
        made = read_json_object(file, REMEDY)
        for key, kind in _TYPES.items():
            if not isinstance(made.get(key, kind()), kind):
                raise OcmError(f"{file}: {key}: not a {kind.__name__}; {REMEDY}")
        return made

    @property
    def notes(self) -> dict[str, Any]:
        """Return what the stages noted: counts of images, parameters of heads."""
        return dict(self.provenance.get("notes", {}))

    @cached_property
    def curves(self) -> dict[tuple[str, str], list[tuple[int, float]]]:
        """Return the training losses; none where nothing was trained."""
        file, found = self.path / CURVES, dict[tuple[str, str], list[tuple[int, float]]]()
        if file.exists():
            with reading(file, "training,network,iteration,loss", REMEDY), file.open() as lines:
                for row in csv.DictReader(lines):
                    point = int(row["iteration"]), float(row["loss"])
                    found.setdefault((row["training"], row["network"]), []).append(point)
        return found

    @cached_property
    def timesteps(self) -> dict[str, dict[int, tuple[int, ...]]]:
        """Return the optimal timesteps; none where they were not searched."""
        tree = self._json(TIMESTEPS)
        with reading(self.path / TIMESTEPS, "timesteps by method and nfe", REMEDY):
            return {
                method: {int(nfe): tuple(map(int, steps)) for nfe, steps in by_nfe.items()}
                for method, by_nfe in tree.items()
            }

    @cached_property
    def points(self) -> tuple[PlanePoints, dict[SampleKey, PlanePoints]] | None:
        """Return test points and samples; None where the data are no points in a plane."""
        file = self.path / POINTS
        if not file.exists():
            return None
        with reading(file, "points of a plane", REMEDY), np.load(file) as arrays:
            test = arrays[TEST].astype(float)
            keys = [key.split("/") for key in arrays.files if key != TEST]
            return test, {(s, m, int(k)): arrays["/".join((s, m, k))] for s, m, k in keys}

    def rows_of(self, figure: str) -> list[PictureRow]:
        """Return the rows of pictures of one figure, cut out of their strips."""
        listing, found = self.path / PICTURES, []
        for entry in self._json(PICTURES).get("rows", []):
            with reading(listing, "rows of pictures", REMEDY):
                name, columns, present = entry["name"], tuple(entry["columns"]), entry["present"]
                file = listing.parent / Path(entry["file"]).name
                if entry["figure"] != figure:
                    continue
            with reading(file, "a strip of pictures", REMEDY):
                with Image.open(file, formats=["WEBP"]) as image:
                    if image.width * image.height > _MOST_PIXELS:
                        raise ValueError(f"{image.width} × {image.height} pixels")
                    strip = np.asarray(image.convert("RGBA"))
                width = strip.shape[1] // len(columns)
                starts = zip(range(0, width * len(columns), width), present, strict=True)
                cells = [strip[:, x : x + width] if shown else None for x, shown in starts]
            found.append(PictureRow(figure, name, columns, cells))
        return found

    def picture_table(self, figure: str) -> tuple[tuple[str, ...], tuple[tuple[Value, ...], ...]]:
        """Return the columns and rows of the numbers that belong to a figure of pictures."""
        with reading(self.path / PICTURES, "tables", REMEDY):
            table = self._json(PICTURES)["tables"][figure]
            return tuple(table["columns"]), tuple(map(tuple, table["rows"]))

    def _json(self, name: str) -> dict[str, Any]:
        file = self.path / name
        return read_json_object(file, REMEDY) if file.exists() else {}


def report_names(root: Path = Path()) -> list[str]:
    """List the experiments whose results the repository has."""
    return sorted(file.parent.name for file in (root / REPORTS).glob(f"*/{PARAMS}"))


def read_folder(name: str, root: Path = Path()) -> ReportFolder:
    """Return the folder of an experiment; a missing one is an error that lists those present."""
    path = root / REPORTS / name
    if not (path / RESULTS).is_file():
        known = ", ".join(report_names(root)) or "none"
        remedy = f"`snakemake --cores 2 {REPORTS}/{name}.html` makes it (present: {known})"
        raise OcmError(f"{path}: has no {RESULTS}; {remedy}")
    return ReportFolder(path)


def webp(pixels: Pixels, *, lossless: bool = True) -> bytes:
    """Encode a picture; the same bytes for the same pixels."""
    file = BytesIO()
    Image.fromarray(pixels).save(file, "WEBP", lossless=lossless, quality=85, method=4)
    return file.getvalue()


class PosteriorStd(NamedTuple):
    """Deviations of x₀ given x_t by methods and, as `probes_<M>`, by M random probes."""

    timesteps: tuple[int, ...]
    noisy: Float[ndarray, "t c h w"]  # x_t itself, in [-1, 1]
    deviations: Mapping[str, Float[ndarray, "t c h w"]]


def write_report(
    folder: Path,
    study: Study,
    provenance: Mapping[str, Any],
    samples: Mapping[SampleKey, ndarray],
    test: ndarray,
    curves: Curves,
    timesteps: OptimalByMethod,
    posterior_std: PosteriorStd | None,
    restored: RestoredPictures | None = None,
) -> None:
    """Write everything anew; what a folder held before is removed.

    `samples` are `study.shown_samples`, and `test` is data to stand beside them: images as uint8
    (n, h, w) or (n, h, w, 3), or points (n, d), of which two coordinates are kept.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    study.raw.write(folder / RESULTS)
    write_text(folder / METRICS, json.dumps(nested(study.raw), indent=1) + "\n")
    experiment = yaml.safe_dump({**study.params}, sort_keys=False, allow_unicode=True)
    write_text(folder / PARAMS, experiment)
    write_text(folder / PROVENANCE, _json(provenance))
    if curves:
        lines: list[tuple[Value, ...]] = [("training", "network", "iteration", "loss")]
        for names, curve in curves.items():
            few = np.unique(np.linspace(0, len(curve) - 1, MOST_LOSSES).round().astype(int))
            lines += [(*names, curve[i][0], f"{curve[i][1]:.6g}") for i in few]
        write_text(folder / CURVES, csv_text(lines))
    if timesteps:
        tree = {
            method: {str(nfe): [*steps] for nfe, steps in by_nfe.items() if nfe <= MOST_NFE}
            for method, by_nfe in timesteps.items()
        }
        write_text(folder / TIMESTEPS, json.dumps(tree) + "\n")
    rows: list[PictureRow] = []
    tables: dict[str, Any] = {}
    if test.ndim == 2:
        arrays = {f"{s}/{m}/{nfe}": x for (s, m, nfe), x in samples.items()} | {TEST: test}
        # half precision: a frame has a few hundred pixels
        small = {key: x[:MOST_POINTS, :2].astype(np.float16) for key, x in arrays.items()}
        content = BytesIO()
        np.savez_compressed(content, **small)  # type: ignore[arg-type]  # keys are names of arrays
        write_bytes(folder / POINTS, content.getvalue())
    else:
        rows += _sample_rows(study, samples, test)
    if posterior_std:
        deviations, tables[POSTERIOR_STD] = _deviations(posterior_std)
        rows += deviations
    if restored:
        pictures, tables[RESTORATION] = _restored(restored)
        rows += pictures
    if rows:
        _write_pictures(folder / PICTURES, rows, tables)


def _json(tree: Mapping[str, Any]) -> str:
    """Write JSON with keys in a fixed order."""
    return json.dumps(tree, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _sample_rows(
    study: Study, samples: Mapping[SampleKey, PictureBatch], test: PictureBatch
) -> Iterator[PictureRow]:
    """Yield ways to sample in rows, nfe in columns, and a row of data."""
    nfes = sorted({nfe for *_, nfe in samples})
    columns = tuple(f"nfe {nfe}" for nfe in nfes)
    by_route: dict[str, dict[int, PictureBatch]] = {}
    for (sampler, method, nfe), images in samples.items():
        by_route.setdefault(study.route(sampler, method), {})[nfe] = images
    for label, by_nfe in by_route.items():
        yield PictureRow(SAMPLES, label, columns, [by_nfe.get(nfe) for nfe in nfes])
    if nfes:
        most = len(test) // len(nfes)
        parts = [test[i * most : (i + 1) * most] for i in range(len(nfes))]
        yield PictureRow(SAMPLES, TEST, columns, parts)


def _deviations(found: PosteriorStd) -> tuple[list[PictureRow], dict[str, Any]]:
    """Return the noisy image where it can be seen, and a row for each source, with their numbers.

    Deviations are root mean squares over channels; the estimate with the most probes comes last,
    and the table has the differences from it.
    """
    probes = sorted(int(k[len("probes_") :]) for k in found.deviations if k.startswith("probes_"))
    names = {k: k for k in found.deviations if not k.startswith("probes_")}
    names |= {f"probes_{count}": f"M = {count}" for count in probes}
    planes = {m: np.sqrt((found.deviations[k] ** 2).mean(1)) for k, m in names.items()}
    most = [*planes.values()][-1]
    tops = [float(np.quantile(plane, _TOP)) or 1.0 for plane in most]
    scaled = zip(found.timesteps, tops, strict=True)
    columns = tuple(f"t = {t}, 0 to {top:.2g}" for t, top in scaled)
    shown: dict[str, list[ndarray]] = {}
    if found.noisy.shape[1] in (1, 3):
        levels = np.rint(np.clip(127.5 * (found.noisy + 1), 0, 255)).astype(np.uint8)
        images = np.broadcast_to(levels.transpose(0, 2, 3, 1), (*levels[:, 0].shape, 3))
        shown["xₜ"] = [image[None] for image in images]
    for name, values in planes.items():
        shown[name] = [colours(x, top)[None] for x, top in zip(values, tops, strict=True)]
    numbers = []
    for i, t in enumerate(found.timesteps):
        for name, values in planes.items():
            both = values[i].mean(), np.sqrt(((values[i] - most[i]) ** 2).mean())
            numbers.append([t, name, *(float(f"{x:.4g}") for x in both)])
    heads = ["t", "by", "mean deviation", "root mean square difference from the last"]
    rows = [PictureRow(POSTERIOR_STD, name, columns, cells) for name, cells in shown.items()]
    return rows, {"columns": heads, "rows": numbers}


def _restored(found: RestoredPictures) -> tuple[list[PictureRow], dict[str, Any]]:
    """Return a row of what there was, of what was seen and of each result, a task in a column."""
    names = [key.split("/", 1) for key in found]
    tasks, rows = (list(dict.fromkeys(part)) for part in zip(*names, strict=True))
    tops, shown, numbers = dict[str, float](), list[PictureRow](), list[list[Value]]()
    for task in tasks:
        own = [x for key, x in found.items() if key.startswith(f"{task}/") and x.dtype.kind == "f"]
        tops[task] = float(np.quantile(np.stack(own).astype(float), _TOP)) or 1.0 if own else 1.0
    for row in rows:
        cells = [found.get(f"{task}/{row}") for task in tasks]
        numbers += [
            [task, row, float(f"{x.astype(float).mean():.4g}")]
            for task, x in zip(tasks, cells, strict=True)
            if x is not None
        ]
        coloured = [
            x if x is None or x.dtype == np.uint8 else colours(x.astype(float), tops[task])
            for task, x in zip(tasks, cells, strict=True)
        ]
        columns = tuple(f"{task}, deviations 0 to {tops[task]:.2g}" for task in tasks)
        shown.append(PictureRow(RESTORATION, row, columns, coloured))
    return shown, {"columns": ["task", "pictures", "mean level or deviation"], "rows": numbers}


def _write_pictures(listing: Path, rows: Sequence[PictureRow], tables: Mapping[str, Any]) -> None:
    for count, reduction, lossless in _SIZES:
        strips = [webp(_strip(row, count, reduction), lossless=lossless) for row in rows]
        if sum(map(len, strips)) <= LIMIT - 20_000:  # what the listing takes
            break
    else:
        raise OcmError(f"{listing.parent}: pictures need more than {LIMIT} bytes at any size")
    entries = []
    for i, (figure, name, columns, cells) in enumerate(rows):
        entry = {"figure": figure, "name": name, "columns": columns, "file": f"{figure}-{i}.webp"}
        entries.append({**entry, "present": [cell is not None for cell in cells]})
        write_bytes(listing.parent / f"{figure}-{i}.webp", strips[i])
    write_text(listing, _json({"rows": entries, "tables": tables}))


def _strip(row: PictureRow, count: int, reduction: int) -> Pixels:
    """Put the cells of a row side by side, each a sheet of its first images."""
    count = min([count, *(len(cell) for cell in row.cells if cell is not None)])
    count = count // _COLUMNS * _COLUMNS or count
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


def colours(values: Float[ndarray, "*n h w"], top: float) -> UInt8[ndarray, "*n h w 3"]:
    """Colour values from zero to `top` and above, from dark to light."""
    anchors = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in SCALE], dtype=float)
    places = np.clip(values / top, 0, 1) * (len(anchors) - 1)
    channels = [np.interp(places, range(len(anchors)), anchors[:, c]) for c in range(3)]
    return np.asarray(np.rint(np.stack(channels, -1)), np.uint8)
