"""The registry of measures: what each is called, which way is better, what its replicates are.

A stage that measures something new declares it (`measures=(Measure(...),)`), and it appears in the
metrics, on the page, in the index and in `ocm compare` without further edits. A key with a suffix,
as `frechet.classifier`, is the measure before the point in another feature space.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

SPACES = {
    "inception": "Inception v3",
    "efficientnet_lite0": "EfficientNet-Lite0",
    "classifier": "a classifier trained on these data",
}


@dataclass(frozen=True)
class Measure:
    """Something that is measured of samples, of a likelihood, or of a covariance method."""

    key: str
    name: str  # with its unit, as axes and tables print it
    better: Literal["lower", "higher"] | None = None
    log: bool = False  # drawn on a logarithmic axis
    about: str = ""  # a sentence for captions
    replicate: Literal["seed", "image", "point"] | None = "seed"
    shown: bool = True  # has a section of its own, unless a figure of the page covers it
    format: str = ".3g"

    @property
    def higher(self) -> bool:
        """Tell whether larger values are better."""
        return self.better == "higher"

    @property
    def arrow(self) -> str:
        """Return ↓, ↑ or nothing: the better direction, for tables."""
        return {"lower": " ↓", "higher": " ↑", None: ""}[self.better]

    @property
    def space(self) -> str:
        """Return the extra feature space that the key names, or nothing."""
        return self.key.partition(".")[2]


_BITS = "bits/dim"
MEASURES = (
    Measure("fid", "FID", "lower", log=True, about="Distance between Inception features."),
    Measure(
        "frechet",
        "Fréchet distance",
        "lower",
        log=True,
        about="Fréchet distance between the features of samples and of data.",
    ),
    Measure("mmd", "MMD", "lower", log=True, about="Maximum mean discrepancy to the test set."),
    Measure("kid", "KID", "lower", log=True, about="Kernel distance of Inception features."),
    Measure(
        "kernel_distance",
        "kernel distance",
        "lower",
        log=True,
        about="Polynomial kernel distance between the features of samples and of data.",
    ),
    Measure("precision", "precision", "higher", about="Share of samples that look like data."),
    Measure("recall", "recall", "higher", about="Share of the data that samples cover."),
    Measure(
        "bits_per_dim",
        f"NLL, {_BITS}",
        "lower",
        log=True,
        about="Upper bound on the negative log-likelihood of test data.",
        replicate="image",
        format=".4g",
    ),
    Measure(
        "bits_per_dim_difference",
        f"NLL less that of the first timesteps, {_BITS}",
        "lower",
        about="Paired over test images.",
        replicate="image",
        shown=False,
    ),
    Measure(
        "bits_per_dim_decoder",
        f"decoder term, {_BITS}",
        about="Part of the bound: the discrete decoder at the last timestep.",
        replicate="image",
        shown=False,
    ),
    Measure(
        "bits_per_dim_steps",
        f"terms of the steps, {_BITS}",
        about="Part of the bound: the transitions between timesteps.",
        replicate="image",
        shown=False,
    ),
    Measure(
        "bits_per_dim_prior",
        f"prior term, {_BITS}",
        about="Part of the bound: the first timestep against the prior.",
        replicate="image",
        shown=False,
    ),
    Measure(
        "covariance_error",
        "covariance error",
        "lower",
        log=True,
        about="Mean squared distance to the exact posterior covariance at each timestep.",
        replicate="point",
    ),
    Measure(
        "loss",
        "score loss",
        "lower",
        about="Mean of (ε - ε̂)² over values and timesteps of test images.",
        replicate="image",
        shown=False,
        format=".4g",
    ),
    Measure(
        "clamped",
        "share of clamped variances",
        about="Share of variance estimates that were out of range.",
        shown=False,
    ),
    Measure("mmd_floor", "MMD of fresh data", log=True, shown=False),
    Measure("operations", "operations per step, relative", replicate=None, shown=False),
)


class Registry:
    """Measures by key, in the order in which pages show them."""

    def __init__(self, measures: Iterable[Measure]) -> None:
        self._known = {measure.key: measure for measure in measures}

    def __iter__(self) -> Iterator[Measure]:
        return iter(self._known.values())

    def __getitem__(self, key: str) -> Measure:
        """Return a measure; one that nobody declared is called by its key."""
        if key in self._known:
            return self._known[key]
        base, _, space = key.partition(".")
        if space and base in self._known:
            known = self._known[base]
            name = f"{known.name}, features of {SPACES.get(space, space)}"
            return replace(known, key=key, name=name)
        return Measure(key, key.replace("_", " "))

    def ordered(self, keys: Iterable[str]) -> list[Measure]:
        """Return the measures of a table: declared ones first, extra spaces and unknown last."""
        given = list(keys)
        order = list(self._known)
        places = {key: order.index(key) if key in order else len(order) for key in given}
        return [self[key] for key in sorted(given, key=lambda key: (places[key], key))]


def measures(extra: Iterable[Measure] = ()) -> Registry:
    """Return the registry, with what stages declare besides."""
    return Registry((*MEASURES, *extra))
