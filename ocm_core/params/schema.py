"""The typed schema of an experiment: the single source of truth for every parameter.

`params/` holds values, this file says which values exist and which combinations make sense.
Only pydantic is imported here, so that building the graph never waits for torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from ocm_core.errors import OcmError, unknown

Score = Literal["true", "learned", "published"]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Label = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


class Block(BaseModel):
    """A part of the tree: frozen, and closed to unknown keys and to silent conversions."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    _withheld: dict[str, str] = PrivateAttr(default_factory=dict)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A key that `restrict` has taken away says so, and who must declare it."""
            if name in type(self).model_fields and name in self._withheld:
                raise OcmError(self._withheld[name])
            return super().__getattr__(name)


class GridLayout(Block):
    """Modes on a square grid centred at the origin."""

    kind: Literal["grid"]
    per_axis: Count
    spacing: Positive


class UniformLayout(Block):
    """Modes drawn once, uniformly over a square, from a recorded seed."""

    kind: Literal["uniform"]
    modes: Count
    half_width: Positive
    seed: int


class MixtureData(Block):
    """An equal-weight mixture of isotropic Gaussians in the plane, in units of `scale`."""

    kind: Literal["mixture"]
    layout: Annotated[GridLayout | UniformLayout, Field(discriminator="kind")]
    std: Positive
    scale: Positive
    train_size: Count
    test_size: Count
    seed: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one item."""
        return (2,)

    @property
    def classes(self) -> int:
        return 0


class Schedule(Block):
    kind: Literal["linear", "cosine"]
    steps: Count


class MlpNetwork(Block):
    """A small fully connected score network for points in the plane."""

    family: Literal["mlp"]
    scores: Annotated[list[Score], Field(min_length=1)]
    width: Count
    depth: Count
    precondition: Literal["none", "gaussian"]


class Method(BaseModel):
    """A labelled covariance method. `kind` names a file of `ocm_core/covariance/`.

    The other keys are that method's own options; the file declares and checks them, and says what
    the method `needs` before it can be sampled: a trained head, a table of moments, or nothing.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    kind: str
    needs: Literal["head", "moments", "nothing"]

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Head(Block):
    """The network that predicts a covariance, and what its raw output stands for."""

    kind: Literal["mlp", "simple", "complex", "adaln"]
    sizes: dict[Literal["width", "depth"], Count]  # those that the kind leaves open
    baseline: Literal["none", "gaussian", "moments"]
    link: Literal["identity", "positive"]


class Optimiser(Block):
    iterations: Count
    batch_size: Count
    accumulate: Count
    learning_rate: Positive
    decay: Literal["constant", "cosine"]
    weight_decay: Annotated[float, Field(ge=0)]
    ema: Annotated[float, Field(ge=0, lt=1)]
    precision: Literal["float32", "bfloat16"]
    seed: int
    checkpoint_every: Count


class Moments(Block):
    """Monte-Carlo estimate of E|eps|^2 / d: how many noisy points per timestep."""

    draws: Count
    seed: int


class Train(Block):
    score: Optimiser
    moments: Moments
    heads: Optimiser


class Sampler(Block):
    """One family of chains: which methods, how many steps, which spacing."""

    kind: Literal["ddpm", "ddim"]
    eta: Annotated[float, Field(ge=0, le=1)]
    chain: Literal["even", "quadratic", "dit"]
    steps: Annotated[list[Count], Field(min_length=1)]
    methods: Annotated[list[str], Field(min_length=1)]


class Clip(Block):
    """Limits of the published results; `null` switches one off."""

    x0: Positive | None
    covariance: Positive | None
    last_sigma_pixels: Positive | None


class Guidance(Block):
    scales: list[Annotated[float, Field(ge=0)]]
    channels: Literal["all", "first_three"]
    covariance: Literal["guided", "conditional"]


class Sample(Block):
    samplers: Annotated[dict[Label, Sampler], Field(min_length=1)]
    count: Count
    batch_size: Count
    seeds: Annotated[list[int], Field(min_length=1)]
    clip: Clip
    guidance: Guidance
    split: list[Literal["score", "sampler", "method", "steps", "guidance", "seed"]]


class CovarianceError(Block):
    """Squared error of the diagonal of the reverse covariance, at adjacent steps."""

    times: Annotated[list[Count], Field(min_length=1)]
    points: Count
    seed: int


class Mmd(Block):
    bandwidths: Annotated[list[Positive], Field(min_length=1)]


class Evaluate(Block):
    covariance_error: CovarianceError | None
    mmd: Mmd | None


class Report(Block):
    title: str
    summary: str


class Experiment(Block):
    """Everything that decides the numbers of one experiment."""

    name: Label
    data: MixtureData
    schedule: Schedule
    network: MlpNetwork
    methods: Annotated[dict[Label, Method], Field(min_length=1)]
    head: Head
    train: Train
    sample: Sample
    evaluate: Evaluate
    report: Report

    @model_validator(mode="after")
    def _combinations_make_sense(self) -> Experiment:
        if problems := list(_impossible(self)):
            raise ValueError("\n".join(problems))
        return self


def _impossible(experiment: Experiment) -> Iterator[str]:
    """What no single key can tell: one line per problem, beginning with the key."""
    if experiment.sample.guidance.scales and not experiment.data.classes:
        yield (
            "sample.guidance.scales: guidance needs class labels, and "
            f"data.kind = {experiment.data.kind!r} has none; use []"
        )
    for label, sampler in experiment.sample.samplers.items():
        where = f"sample.samplers.{label}"
        for steps in sampler.steps:
            if steps > experiment.schedule.steps:
                yield (
                    f"{where}.steps: {steps} is more than schedule.steps = "
                    f"{experiment.schedule.steps}; a chain cannot have more steps than the schedule"
                )
        for method in sampler.methods:
            if method not in experiment.methods:
                yield f"{where}.methods: {unknown(method, experiment.methods)}"
