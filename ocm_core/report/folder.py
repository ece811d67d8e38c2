"""The folder `reports/NAME/`: everything that a run leaves for people, and all that a page needs.

results.csv      the table of results
metrics.json     nested means, for `dvc metrics diff`
params.yaml      the composed experiment
provenance.json  the commit, digests, versions and notes of the run
curves.csv       training losses
timesteps.json   optimal timesteps by method and nfe
points.npz       samples and test points of 2-D mixtures
pictures/        strips of samples and of posterior deviations (WebP), listed in pictures.json
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from jaxtyping import Float
from numpy import ndarray
from PIL import Image

from ocm_core.errors import OcmError
from ocm_core.io.reading import read_json_object, reading
from ocm_core.report.pictures import Pixels
from ocm_core.results.study import SampleKey
from ocm_core.results.table import Results

REPORTS = Path("reports")
RESULTS, PARAMS, PROVENANCE = "results.csv", "params.yaml", "provenance.json"
_PROVENANCE_TYPES = {
    "versions": dict,
    "digests": dict,
    "notes": dict,
    "choices": list,
    "machines": list,
}
METRICS, CURVES, TIMESTEPS = "metrics.json", "curves.csv", "timesteps.json"
POINTS, PICTURES = "points.npz", "pictures/pictures.json"
SAMPLES, POSTERIOR_STD = "samples", "posterior_std"  # figures that pictures belong to
TEST = "test set"
REMEDY = "restore the file with git or make the report again"
_MOST_PIXELS = 1 << 24

LossCurve = Sequence[tuple[int, float]]  # (iteration, loss)
Curves = Mapping[tuple[str, str], LossCurve]  # by training and network
OptimalByMethod = Mapping[str, Mapping[int, tuple[int, ...]]]  # by method and nfe
PlanePoints = Float[ndarray, "n 2"]


@dataclass(frozen=True)
class PictureRow:
    """A row of pictures of equal size; None where there is none."""

    figure: str
    name: str
    columns: tuple[str, ...]  # what stands above each picture
    cells: tuple[Pixels | None, ...]


@dataclass(frozen=True)
class PictureTable:
    """Numbers that belong to a figure of pictures."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class ReportFolder:
    """One folder, read when it is asked for its parts."""

    path: Path

    @property
    def name(self) -> str:
        """Return the name of the experiment."""
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
            return parse_params(file.read_text("utf-8"))

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Return what the run was made with."""
        file = self.path / PROVENANCE
        made = read_json_object(file, REMEDY)
        with reading(file, "what the run was made with", REMEDY):
            for key, kind in _PROVENANCE_TYPES.items():
                if not isinstance(made.get(key, kind()), kind):
                    raise ValueError(f"{key}: not a {kind.__name__}")
        return made

    @property
    def notes(self) -> dict[str, Any]:
        """Return what the stages noted: counts of images, parameters of heads."""
        return dict(self.provenance.get("notes", {}))

    @cached_property
    def curves(self) -> dict[tuple[str, str], list[tuple[int, float]]]:
        """Return the training losses; none where nothing was trained."""
        file = self.path / CURVES
        found: dict[tuple[str, str], list[tuple[int, float]]] = {}
        if file.exists():
            with reading(file, "training,network,iteration,loss", REMEDY), file.open() as lines:
                for row in csv.DictReader(lines):
                    point = int(row["iteration"]), float(row["loss"])
                    found.setdefault((row["training"], row["network"]), []).append(point)
        return found

    @cached_property
    def timesteps(self) -> dict[str, dict[int, tuple[int, ...]]]:
        """Return the optimal timesteps; none where they were not searched."""
        file = self.path / TIMESTEPS
        tree = read_json_object(file, REMEDY) if file.exists() else {}
        with reading(file, "timesteps by method and nfe", REMEDY):
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

    @cached_property
    def pictures(self) -> tuple[PictureRow, ...]:
        """Return the rows of pictures of all figures."""
        return tuple(self._pictures())

    @cached_property
    def picture_tables(self) -> dict[str, PictureTable]:
        """Return the numbers of figures of pictures, by figure."""
        with reading(self.path / PICTURES, "tables", REMEDY):
            return {
                name: PictureTable(tuple(table["columns"]), tuple(map(tuple, table["rows"])))
                for name, table in self._listed().get("tables", {}).items()
            }

    def _listed(self) -> dict[str, Any]:
        file = self.path / PICTURES
        return read_json_object(file, REMEDY) if file.exists() else {}

    def _pictures(self) -> Iterator[PictureRow]:
        listing = self.path / PICTURES
        for entry in self._listed().get("rows", []):
            with reading(listing, "rows of pictures", REMEDY):
                figure, name, columns = entry["figure"], entry["name"], tuple(entry["columns"])
                file, present = listing.parent / Path(entry["file"]).name, entry["present"]
            with reading(file, "a strip of pictures", REMEDY):
                cells = _cut(_read(file), len(columns))
            shown = zip(cells, present, strict=True)
            yield PictureRow(figure, name, columns, tuple(c if p else None for c, p in shown))


def parse_params(text: str) -> dict[str, Any]:
    """Read parameters as plain data."""
    tree = yaml.safe_load(text)
    if not isinstance(tree, dict):
        raise ValueError(f"a {type(tree).__name__}")
    return tree


def report_names(root: Path = Path()) -> list[str]:
    """List the experiments whose results the repository has."""
    return sorted(file.parent.name for file in (root / REPORTS).glob(f"*/{PARAMS}"))


def read_folder(name: str, root: Path = Path()) -> ReportFolder:
    """Return the folder of an experiment; a missing one is an error that lists those present."""
    path = root / REPORTS / name
    if not (path / RESULTS).is_file():
        known = ", ".join(report_names(root)) or "none"
        raise OcmError(
            f"{path}: has no {RESULTS}; `snakemake --cores 2 {REPORTS}/{name}.html` makes it "
            f"(present: {known})"
        )
    return ReportFolder(path)


def _read(file: Path) -> Pixels:
    with Image.open(file, formats=["WEBP"]) as image:
        if image.width * image.height > _MOST_PIXELS:
            raise ValueError(f"{image.width} × {image.height} pixels")
        return np.asarray(image.convert("RGBA"))


def _cut(strip: Pixels, count: int) -> list[Pixels]:
    width = strip.shape[1] // count
    return [strip[:, i * width : (i + 1) * width] for i in range(count)]


def as_json(tree: Mapping[str, Any]) -> str:
    """Write JSON with keys in a fixed order."""
    return json.dumps(tree, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
