"""Which timesteps a chain of K steps visits: a choice of every sampler and of the likelihood.

`diffusion/chains.py` has a function for each kind, and docs/mathematics.md the formulas.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ocm_core.schema.block import Count, Params, Positive


class EvenChain(Params):
    kind: Literal["even"] = "even"


class QuadraticChain(Params):
    kind: Literal["quadratic"] = "quadratic"


class StridedChain(Params):
    kind: Literal["strided"] = "strided"


class DitChain(Params):
    kind: Literal["dit"] = "dit"


class LogSnrChain(Params):
    kind: Literal["log_snr"] = "log_snr"


class PowerChain(Params):
    """Powers of an even grid up to T, the denser near the data the larger the exponent."""

    kind: Literal["power"] = "power"
    exponent: Positive
    # timestep, or as a share of T; null: the grid is even from 0 on, which is left out
    first: Count | Annotated[float, Field(gt=0, lt=1)] | None = None


class ListChain(Params):
    """Timesteps in full: for each K one list, which is as long."""

    kind: Literal["list"] = "list"
    timesteps: Annotated[list[Annotated[list[Count], Field(min_length=1)]], Field(min_length=1)]


class OptimalChain(Params):
    """The chain of least bound on training images, as the stage `chains` has found it."""

    kind: Literal["optimal"] = "optimal"
    of: str | None = None  # the method whose bound is least; null: the one that walks the chain


FixedChainParams = Annotated[
    EvenChain | QuadraticChain | StridedChain | DitChain | LogSnrChain | PowerChain | ListChain,
    Field(discriminator="kind"),
]
ChainParams = Annotated[
    EvenChain
    | QuadraticChain
    | StridedChain
    | DitChain
    | LogSnrChain
    | PowerChain
    | ListChain
    | OptimalChain,
    Field(discriminator="kind"),
]
