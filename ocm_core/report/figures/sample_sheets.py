"""Sheets of sampled images, all from the same starting noise: a slider for K, boxes for methods."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt

from ocm_core.report.page import pictures
from ocm_core.report.page.document import Control, ControlValues, DataTable, Figure, Picture
from ocm_core.report.page.pictures import Pixels
from ocm_core.text import plural

ImageSamples = Mapping[tuple[str, str, int], Pixels]  # (sampler, method, steps) -> images

DATA = "test set"
BUDGET = 1_500_000  # bytes of pixels in all: a page of photographs can still be kept in Git
_FEWEST, _MOST = 4, 25  # images on a sheet


def sample_sheets(samples: ImageSamples, test: Pixels | None, note: str = "") -> Figure:
    """`note` says what the keys do not, such as the guidance scale."""
    available, *one = next(iter(samples.values())).shape
    room, reduction = pictures.fit((min(_MOST, available), *one), len(samples) + 1, BUDGET, _FEWEST)
    count = isqrt(room) ** 2

    def sheet(title: str, images: Pixels, at: ControlValues, place: str = "") -> Picture:
        pixels = pictures.sheet(pictures.shrink(images[:count], reduction))
        height, width, _ = pixels.shape
        alt = f"{plural(min(count, len(images)), 'image')}: {title}{place}."
        return Picture(title, alt, pictures.uri(pixels), width, height, at)

    panes = [] if test is None else [sheet(DATA, test, {})]
    for (sampler, method, steps), images in samples.items():
        at = {"sampler": sampler.upper(), "steps": str(steps), "method": method}
        panes.append(sheet(method, images, at, f", {sampler.upper()}, K = {steps}"))
    samplers, methods, _ = (tuple(dict.fromkeys(names)) for names in zip(*samples, strict=True))
    smaller = f" Their sides are shown {reduction} times smaller." if reduction > 1 else ""
    beside = "" if test is None else ", beside as many images of the test set"
    return Figure(
        id="samples",
        label=f"Sheets of samples beside the test set, for {', '.join(methods)}.",
        caption=f"The first {count} samples of the first seed{beside}. Whatever the method, the "
        "sampler and K, the image at one place starts from the same noise."
        f"{f' {note}' if note else ''}{smaller}",
        panes=tuple(panes),
        controls=(
            Control("sampler", "Sampler", tuple(s.upper() for s in samplers), "one"),
            Control("steps", "K", tuple(map(str, sorted({k for _, _, k in samples}))), "scale"),
            Control("method", "Only", methods, "several"),
        ),
        arrangement="pictures",
        table=DataTable("samples", _COLUMNS, tuple(_row(*key, x) for key, x in samples.items())),
    )


_COLUMNS = ("sampler", "method", "steps", "mean grey level", "standard deviation of grey levels")


def _row(sampler: str, method: str, steps: int, x: Pixels) -> tuple[str, str, int, float, float]:
    return sampler, method, steps, float(x.mean()), float(x.std())
