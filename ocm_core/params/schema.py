"""The typed schema of an experiment: the single source of truth for every parameter.

`params/` holds values, this file says which values exist; `combinations.py` which go together.
Only pydantic is imported here, so that building the graph never waits for torch.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ocm_core.params.block import Block, Count, Label, Positive
from ocm_core.params.combinations import impossible
from ocm_core.params.data_blocks import Data

Score = Literal["true", "learned", "published"]


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

    @property
    def conditional(self) -> bool:
        return False

    @property
    def checkpoint(self) -> None:
        return None


class Time(Block):
    """How the index t = 1 … T becomes the number that the network was trained with."""

    shift: Literal[0, 1]
    scale: Positive


class Checkpoint(Block):
    """A published file: an entry of `ocm_core/checkpoints/registry.py`, or one written like it."""

    name: Label
    origin: Literal["published", "generated"]
    file: str | None  # null: the one at hand, else the first of the entry
    url: str | None  # null: the entry's


class TrunkNetwork(Block):
    """A network of a published family. The family checks `config`; the registry can fill it in."""

    family: Literal["ddpm_unet", "iddpm_unet", "dit"]
    scores: Annotated[list[Literal["learned", "published"]], Field(min_length=1)]
    config: dict[str, Any]
    time: Time
    checkpoint: Checkpoint | None

    @property
    def conditional(self) -> bool:
        return self.family == "dit"


Network = Annotated[MlpNetwork | TrunkNetwork, Field(discriminator="family")]


class Vae(Block):
    """The autoencoder: published, written like a published one, or trained by a rule."""

    origin: Literal["published", "generated", "trained"]
    name: str | None  # of the published one
    url: str | None
    config: dict[str, Any]  # of diffusers' AutoencoderKL
    kl_weight: Positive | None  # where it is trained

    @property
    def downsampling(self) -> int:
        return int(2 ** (len(self.config["block_out_channels"]) - 1))


class Latent(Block):
    """What is diffused instead of pixels, and what of the posterior is kept in the store."""

    vae: Vae
    posterior: Literal["mean", "sample", "keep"]
    batch_size: Count
    seed: int


class Encode(Block):
    """How the data set is written, and by how many jobs side by side."""

    jobs: Count
    chunk: Count  # items that are read together
    shard: Count  # items that are written, resumed and hashed together
    flips: bool  # the training set once more, mirrored
    latent: Latent | None


class HeadForm(Block):
    """What a head's raw output stands for, and in which unit its errors are measured."""

    baseline: Literal["none", "gaussian", "moments", "target"]
    link: Literal["identity", "positive", "tapered"]
    unit: Literal["own", "root", "one"]


class Method(BaseModel):
    """A labelled covariance method. `kind` names a file of `ocm_core/covariance/`.

    The other keys are that method's own options; the file declares and checks them, and says what
    the method `needs` before it can be sampled: a trained head, a table of moments, or nothing.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    kind: str
    needs: Literal["head", "moments", "nothing"]
    head: HeadForm | None = None  # null: the experiment's

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Head(HeadForm):
    """The network that predicts a covariance; a method may have a form of its own."""

    kind: Literal["mlp", "simple", "complex", "adaln"]
    sizes: dict[Literal["width", "depth"], Count]  # those that the kind leaves open

    def form(self, method: Method) -> HeadForm:
        return method.head or self


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
    batch_size: Count
    seed: int


class HeadTraining(Optimiser):
    recompute: bool  # less memory for one more forward pass
    trunk_dropout: bool  # as the published trainer has it: dropout stays on in the frozen trunk


class Train(Block):
    score: Optimiser | None
    moments: Moments
    heads: HeadTraining
    vae: Optimiser | None
    classifier: Optimiser | None


class Grid(Block):
    """Every number of steps with every guidance scale; 1.0 is no guidance."""

    steps: Annotated[list[Count], Field(min_length=1)]
    guidance: Annotated[list[Annotated[float, Field(ge=0)]], Field(min_length=1)]


class Sampler(Block):
    """One family of chains: which methods, how many steps, which spacing."""

    kind: Literal["ddpm", "ddim"]
    eta: Annotated[float, Field(ge=0, le=1)]
    chain: Literal["even", "quadratic", "dit"]
    grids: Annotated[list[Grid], Field(min_length=1)]
    methods: Annotated[list[str], Field(min_length=1)]
    last_sigma: Positive | None  # at the step into τ_1, in grey levels

    @property
    def steps(self) -> list[int]:
        return sorted({steps for grid in self.grids for steps in grid.steps})


class Clip(Block):
    """Limits of the published results; `null` switches one off."""

    x0: Positive | None
    covariance: Positive | None


class Guidance(Block):
    channels: Literal["all", "first_three"]
    covariance: Literal["guided", "conditional"]


class Execution(Block):
    """How the network is run; `ocm bench` measures what each choice brings."""

    precision: Literal["float32", "tf32", "bfloat16"]  # tf32: matrix products, on GPUs that can
    channels_last: bool
    compiled: bool


class Sample(Block):
    samplers: Annotated[dict[Label, Sampler], Field(min_length=1)]
    count: Count
    batch_size: Count
    seeds: Annotated[list[int], Field(min_length=1)]
    clip: Clip
    guidance: Guidance
    execution: Execution
    split: list[Literal["score", "sampler", "method", "steps", "guidance", "seed"]]

    @property
    def guided(self) -> bool:
        grids = (grid for sampler in self.samplers.values() for grid in sampler.grids)
        return any(scale != 1.0 for grid in grids for scale in grid.guidance)


class CovarianceError(Block):
    """Squared error of the diagonal of the reverse covariance, at adjacent steps."""

    times: Annotated[list[Count], Field(min_length=1)]
    points: Count
    seed: int


class Mmd(Block):
    bandwidths: Annotated[list[Positive], Field(min_length=1)]


class Likelihood(Block):
    """The bound on the test set, in bits per dimension: all methods and all K in one pass."""

    methods: Annotated[list[str], Field(min_length=1)]  # those that are defined for DDPM
    chain: Literal["even", "quadratic", "dit"]
    steps: Annotated[list[Count], Field(min_length=1)]
    images: Count | None  # null: the whole test set
    batch_size: Count
    seed: int
    cdf: Literal["exact", "tanh"]
    decoder_variance: Literal["fixed", "method"]
    fewer: dict[str, list[Count]]  # methods that are too dear for all steps, and those they get

    def groups(self) -> dict[tuple[int, ...], list[str]]:
        """The methods that share a pass, by the numbers of steps that it serves."""
        found: dict[tuple[int, ...], list[str]] = {}
        for label in self.methods:
            found.setdefault(tuple(self.fewer.get(label, self.steps)), []).append(label)
        return {steps: labels for steps, labels in found.items() if steps}


class Features(Block):
    """Distances in the features of a named space: FID, KID, precision, recall."""

    space: Literal["classifier", "efficientnet_lite0", "inception"]
    reference: Literal["imagenet256"] | None  # a published file; null: from the training set
    batch_size: Count
    neighbours: Count
    manifold_images: Count | None  # of the training set, for recall; null: all
    seed: int


class Deviation(Block):
    """Predicted standard deviations as pictures, beside estimates from M probes."""

    times: Annotated[list[Count], Field(min_length=1)]
    images: Count
    probes: Annotated[list[Count], Field(min_length=1)]
    seed: int


class CostSettings(Block):
    """Time of one evaluation of the network, alone and with each method."""

    batch_size: Count
    repeats: Count


class Evaluate(Block):
    covariance_error: CovarianceError | None
    mmd: Mmd | None
    likelihood: Likelihood | None
    features: Features | None
    deviation: Deviation | None
    cost: CostSettings | None


class Report(Block):
    title: str
    summary: str


class Experiment(Block):
    """Everything that decides the numbers of one experiment."""

    name: Label
    data: Data
    encode: Encode
    schedule: Schedule
    network: Network
    methods: Annotated[dict[Label, Method], Field(min_length=1)]
    head: Head
    train: Train
    sample: Sample
    evaluate: Evaluate
    report: Report

    @model_validator(mode="after")
    def _combinations_make_sense(self) -> Experiment:
        if problems := list(impossible(self)):
            raise ValueError("\n".join(problems))
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what is diffused: a point, an image, or a latent."""
        latent = self.encode.latent
        if latent is None:
            return self.data.shape
        _, *sides = self.data.shape
        channels = latent.vae.config["latent_channels"]
        return (channels, *(side // latent.vae.downsampling for side in sides))

    @property
    def levels(self) -> int | None:
        """Of what is diffused: grey levels, or None where it is continuous."""
        return self.data.levels if self.encode.latent is None else None
