"""The registry of measures: what each is called, which way is better, what its replicates are.

What a stage declares besides (`measures=(Measure(...),)`) appears in metrics, pages, the index and
`ocm compare`. A key as `frechet.classifier` is a measure in another feature space.
"""

from collections.abc import Iterable
from functools import partial
from typing import Literal, NamedTuple

SPACES = {
    "inception": "Inception v3",
    "efficientnet_lite0": "EfficientNet-Lite0",
    "efficientnet_lite0_small": "EfficientNet-Lite0 at 64×64",
    "classifier": "a classifier trained on these data",
}
USES = "What is a covariance for?"  # the topic of error bars and files


class Measure(NamedTuple):
    """Something that is measured of samples, of a likelihood, or of a covariance method."""

    key: str
    name: str  # with its unit, as axes and tables print it
    better: Literal["lower", "higher"] | None = None
    log: bool = False  # drawn on a logarithmic axis
    about: str = ""  # a sentence for captions
    replicate: Literal["seed", "image", "point"] | None = "seed"
    shown: bool = True  # has a section of its own, unless a figure of the page covers it
    topic: str = ""  # the title of a section that it shares with others

    @property
    def higher(self) -> bool:
        return self.better == "higher"

    @property
    def ranks_samples(self) -> bool:
        """Tell whether samples are better or worse by it."""
        return self.replicate == "seed" and self.better is not None

    @property
    def arrow(self) -> str:
        """Return ↓, ↑ or nothing: the better direction, for tables."""
        return {"lower": " ↓", "higher": " ↑", None: ""}[self.better]

    @property
    def space(self) -> str:
        """Return the extra feature space that the key names, or nothing."""
        return self.key.partition(".")[2]


of_use = partial(Measure, replicate="image", topic=USES)
_lower_log = partial(Measure, better="lower", log=True)
_part = partial(Measure, replicate="image", shown=False)
_BOTH = "between the features of samples and of data."
MEASURES = (
    _lower_log("fid", "FID", about="Distance between Inception features."),
    _lower_log("frechet", "Fréchet distance", about=f"Fréchet distance {_BOTH}"),
    _lower_log("mmd", "MMD", about="Maximum mean discrepancy to the test set."),
    _lower_log("kid", "KID", about="Kernel distance of Inception features."),
    _lower_log("kernel_distance", "kernel distance", about=f"Polynomial kernel distance {_BOTH}"),
    Measure("precision", "precision", "higher", about="Share of samples that look like data."),
    Measure("recall", "recall", "higher", about="Share of the data that samples cover."),
    _lower_log(
        *("bits_per_dim", "NLL, bits/dim"),
        about="Upper bound on the negative log-likelihood of test data.",
        replicate="image",
    ),
    _part(
        *("bits_per_dim_difference", "NLL less that of the first timesteps, bits/dim", "lower"),
        about="Paired over test images.",
    ),
    *(
        _part(f"bits_per_dim_{key}", f"{name}, bits/dim", about=f"Part of the bound: {about}.")
        for key, name, about in (
            ("decoder", "decoder term", "the discrete decoder at the last timestep"),
            ("steps", "terms of the steps", "the transitions between timesteps"),
            ("prior", "prior term", "the first timestep against the prior"),
        )
    ),
    _lower_log(
        *("covariance_error", "covariance error"),
        about="Mean squared distance to the exact posterior covariance at each timestep.",
        replicate="point",
    ),
    _part(
        *("loss", "score loss", "lower"),
        about="Mean of (ε - ε̂)² over values and timesteps of test images.",
    ),
    Measure("clamped", "share of clamped variances", shown=False),
    Measure("mmd_floor", "MMD of fresh data", log=True, shown=False),
    Measure("operations", "operations per step, relative", replicate=None, shown=False),
)


class Registry(dict[str, Measure]):
    """Measures by key, in the order in which pages show them."""

    def __missing__(self, key: str) -> Measure:
        """Derive a measure in another feature space; one nobody declared is called by its key."""
        base, _, space = key.partition(".")
        if not space or base not in self:
            return Measure(key, key.replace("_", " "))
        name = f"{self[base].name}, features of {SPACES.get(space, space)}"
        return self[base]._replace(key=key, name=name)

    def ordered(self, keys: Iterable[str]) -> list[Measure]:
        """Return the measures of a table: declared ones first, extra spaces and unknown last."""
        places = {key: i for i, key in enumerate(self)}
        return [self[key] for key in sorted(keys, key=lambda k: (places.get(k, len(self)), k))]


def measures(extra: Iterable[Measure] = ()) -> Registry:
    """Return the registry, with what stages declare besides."""
    return Registry({measure.key: measure for measure in (*MEASURES, *extra)})
