"""Parameters of the rules for timesteps; `diffusion/timesteps.py` has a function for each kind."""

from typing import Annotated, Literal

from pydantic import Field

from ocm_core.schema.block import Count, Params, Positive

DecoderVariance = Literal["fixed", "method"]  # β̃_{1:2}, or the method's own
GITS = "gits"  # the timesteps along which DDIM leaves fine trajectories least


class NamedTimesteps(Params):
    """Even ones from 1 to T as in the covariance papers, DDIM's squares, or DiT's respacing."""

    kind: Literal["even", "quadratic", "dit"] = "even"


class PowerTimesteps(Params):
    """Powers of an even grid up to T; a larger exponent is denser near the data."""

    kind: Literal["power"] = "power"
    exponent: Positive
    # a timestep, or a share of T; null: the grid is even from 0, and 0 is left out
    first: Count | Annotated[float, Field(gt=0, lt=1)] | None = None


class ListedTimesteps(Params):
    """Explicit timesteps: one ascending list for each number of steps."""

    kind: Literal["listed"] = "listed"
    values: Annotated[list[Annotated[list[Count], Field(min_length=1)]], Field(min_length=1)]


class OptimalTimesteps(Params):
    """The timesteps of least bound on training images, which the stage `timesteps` computes."""

    kind: Literal["optimal"] = "optimal"
    # the method whose bound is minimised, or gits; null: the one that is sampled with
    of: str | None = None
    decoder_variance: DecoderVariance | None = None  # of that bound; null: as the stages have it

    def source(self, method: str) -> str:
        """Return the name of the costs that the timesteps of a method follow from."""
        label = self.of or method
        return f"{label}/{self.decoder_variance}" if self.decoder_variance else label


_Fixed = NamedTimesteps | PowerTimesteps | ListedTimesteps
FixedTimesteps = Annotated[_Fixed, Field(discriminator="kind")]
TimestepsParams = Annotated[_Fixed | OptimalTimesteps, Field(discriminator="kind")]
