"""Predicted standard deviations as pictures across t, beside estimates from random probes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import xarray as xr
from jaxtyping import Float, UInt8
from numpy import ndarray

from ocm_core.report.page import pictures
from ocm_core.report.page.document import (
    ColourBar,
    Control,
    DataTable,
    Figure,
    Picture,
    PictureMatrix,
    Value,
)

NOISY = "x_t"
PROBES = "probes_"
BUDGET = 500_000  # bytes of pixels in all
_MOST = 4  # images
_TOP = 0.995  # the quantile that is the end of the scale

DeviationPlanes = Mapping[str, Float[ndarray, "t image h w"]]


def predicted_deviations(found: xr.DataArray) -> Figure:
    """Of values over (t, source, image, channel, row, column).

    Sources are `x_t` itself, methods that predict the deviation, and `probes_<M>`.
    """
    planes = _planes(found)
    times = [int(t) for t in found["t"].values]
    _, available, *size = next(iter(planes.values())).shape
    pixels = (min(available, _MOST), *size, 3)
    shown, reduction = pictures.fit(pixels, len(times) * found.sizes["source"], BUDGET, fewest=1)
    most = [*planes][-1]
    return Figure(
        id="deviation",
        label="Pictures of the standard deviation of each pixel of the clean image given a noisy "
        f"one, across t, by {', '.join(planes)}.",
        caption="The standard deviation of each pixel of x₀ given xₜ, for noisy images of the "
        f"{_SETS[found.attrs['split']]} set: as heads predict it in one evaluation, and as M "
        "random probes of the score's Jacobian estimate it (negative variances as zero). Dark is "
        f"zero; each t has a scale of its own, which ends where the estimate with {most} does. Of "
        "several channels, the root mean square.",
        panes=tuple(_matrix(found, planes, image, reduction) for image in range(shown)),
        controls=(Control("image", "Image", tuple(str(i + 1) for i in range(shown)), "one"),),
        arrangement="alone",
        colour_bar=ColourBar(pictures.SCALE, "0", "the number above each column, and more"),
        table=DataTable("deviation", _COLUMNS, tuple(_rows(planes, times))),
    )


_SETS = {"test": "test", "train": "training"}
_COLUMNS = ("t", "by", "mean standard deviation", "root mean square difference from the last")


def nearest_head(figure: Figure) -> str:
    """Which head's pictures are nearest to those of the most probes, over all t."""
    gaps: dict[str, list[float]] = {}
    for _, name, _, gap in figure.table.rows:
        if not str(name).startswith("M = "):
            gaps.setdefault(str(name), []).append(float(gap or 0.0))
    if not gaps:
        return ""
    means = {name: float(np.mean(found)) for name, found in gaps.items()}
    best = min(means, key=means.__getitem__)
    return (
        f"Of the heads, {best} is nearest to the estimate with the most probes: a root mean square "
        f"difference of {means[best]:.2g}, the mean over t."
    )


def _planes(found: xr.DataArray) -> dict[str, Float[ndarray, "t image h w"]]:
    """By what a row of pictures is called; the estimate with the most probes comes last."""
    sources = [str(source) for source in found["source"].values]
    methods = [name for name in sources if name != NOISY and not name.startswith(PROBES)]
    probes = sorted(int(s.removeprefix(PROBES)) for s in sources if s.startswith(PROBES))
    rows = {name: name for name in methods} | {f"M = {m}": f"{PROBES}{m}" for m in probes}
    return {
        name: np.sqrt((found.sel(source=source).values ** 2).mean(-3))
        for name, source in rows.items()
    }


def _matrix(
    found: xr.DataArray, planes: DeviationPlanes, image: int, reduction: int
) -> PictureMatrix:
    times = [int(t) for t in found["t"].values]
    most = [*planes.values()][-1]
    tops = [float(np.quantile(most[i, image], _TOP)) or 1.0 for i in range(len(times))]
    noisy = _as_levels(found.sel(source=NOISY).isel(image=image).values)
    rows = []
    if noisy is not None:
        small = pictures.shrink(noisy, reduction)
        shown = [_picture(f"xₜ at t = {t}", x) for t, x in zip(times, small, strict=True)]
        rows.append(("xₜ", tuple(shown)))
    for name, values in planes.items():
        small = pictures.shrink(values[:, image], reduction)
        shown = [
            _picture(f"{name} at t = {t}", pictures.colours(x, top))
            for t, x, top in zip(times, small, tops, strict=True)
        ]
        rows.append((name, tuple(shown)))
    columns = tuple(f"t = {t}\n0 to {top:.2g}" for t, top in zip(times, tops, strict=True))
    place = str(image + 1)
    return PictureMatrix(f"image {place}", columns, tuple(rows), {"image": place})


def _as_levels(x: Float[ndarray, "t c h w"]) -> UInt8[ndarray, "t h w c"] | None:
    """Grey levels of what lies in [-1, 1]; none for latents, which are no pictures."""
    if x.shape[1] not in (1, 3):
        return None
    return np.asarray(np.rint(np.clip(127.5 * (x + 1), 0, 255)), np.uint8).transpose(0, 2, 3, 1)


def _picture(alt: str, pixels: UInt8[ndarray, "h w c"]) -> Picture:
    height, width, _ = pixels.shape
    return Picture("", alt, pictures.uri(pixels), width, height)


def _rows(planes: DeviationPlanes, times: list[int]) -> Iterator[tuple[Value, ...]]:
    """Over all images, shown or not."""
    most = [*planes.values()][-1]
    for i, t in enumerate(times):
        for name, values in planes.items():
            gap = np.sqrt(((values[i] - most[i]) ** 2).mean())
            yield t, name, float(values[i].mean()), float(gap)
