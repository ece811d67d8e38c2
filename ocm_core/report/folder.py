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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from jaxtyping import Float, UInt8
from numpy import ndarray
from PIL import Image

from ocm_core.errors import OcmError
from ocm_core.io.reading import read_json_object, reading
from ocm_core.results.study import SampleKey
from ocm_core.results.table import Results, Value

REPORTS = Path("reports")
RESULTS, PARAMS, PROVENANCE = "results.csv", "params.yaml", "provenance.json"
METRICS, CURVES, TIMESTEPS = "metrics.json", "curves.csv", "timesteps.json"
POINTS, PICTURES = "points.npz", "pictures/pictures.json"
SAMPLES, POSTERIOR_STD = "samples", "posterior_std"  # figures that pictures belong to
TEST = "test set"
REMEDY = "restore the file with git or make the report again"
_PROVENANCE_TYPES = {
    **dict.fromkeys(("versions", "digests", "notes"), dict),
    **dict.fromkeys(("choices", "machines"), list),
}
_MOST_PIXELS = 1 << 24

LossCurve = Sequence[tuple[int, float]]  # (iteration, loss)
Curves = Mapping[tuple[str, str], LossCurve]  # by training and network
OptimalByMethod = Mapping[str, Mapping[int, tuple[int, ...]]]  # by method and nfe
PlanePoints = Float[ndarray, "n 2"]
Pixels = UInt8[ndarray, "h w c"]


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

    @cached_property
    def pictures(self) -> list[PictureRow]:
        """Return the rows of pictures of all figures, cut out of their strips."""
        listing, found = self.path / PICTURES, []
        for entry in self._json(PICTURES).get("rows", []):
            with reading(listing, "rows of pictures", REMEDY):
                figure, name, columns = entry["figure"], entry["name"], tuple(entry["columns"])
                file, present = listing.parent / Path(entry["file"]).name, entry["present"]
            with reading(file, "a strip of pictures", REMEDY):
                strip = _read(file)
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
        raise OcmError(
            f"{path}: has no {RESULTS}; `snakemake --cores 2 {REPORTS}/{name}.html` makes it "
            f"(present: {known})"
        )
    return ReportFolder(path)


def webp(pixels: Pixels, *, lossless: bool = True) -> bytes:
    """Encode a picture; the same bytes for the same pixels."""
    file = BytesIO()
    Image.fromarray(pixels).save(file, "WEBP", lossless=lossless, quality=85, method=4)
    return file.getvalue()


def _read(file: Path) -> Pixels:
    with Image.open(file, formats=["WEBP"]) as image:
        if image.width * image.height > _MOST_PIXELS:
            raise ValueError(f"{image.width} × {image.height} pixels")
        return np.asarray(image.convert("RGBA"))
