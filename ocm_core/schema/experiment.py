"""The typed schema of an experiment: the single source of truth for every parameter.

`params/` holds values, this file says which values exist; `combinations.py` which go together.
Only pydantic is imported here, so that building the graph never waits for torch.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ocm_core.schema.block import Count, Label, Params, Positive, Seed
from ocm_core.schema.combinations import impossible
from ocm_core.schema.datasets import Data

Score = Literal["true", "learned", "published"]
ChainKind = Literal["even", "quadratic", "strided", "dit"]  # functions of `diffusion/chains.py`


class ScheduleParams(Params):
    kind: Literal["linear", "cosine"]
    steps: Annotated[int, Field(ge=1, le=4095)]  # T; what random streams can tell apart


class MlpNetworkParams(Params):
    """A small fully connected score network for points in the plane."""

    family: Literal["mlp"]
    scores: Annotated[list[Literal["true", "learned"]], Field(min_length=1)]
    width: Count
    depth: Count
    precondition: Literal["none", "gaussian"]

    @property
    def conditional(self) -> bool:
        return False

    @property
    def checkpoint(self) -> None:
        return None


class TimeParams(Params):
    """How the index t = 1 … T becomes the number that the network was trained with."""

    shift: Literal[0, 1]
    scale: Positive


class CheckpointParams(Params):
    """A published file: an entry of `ocm_core/checkpoints/registry.py`, or one written like it."""

    name: Label
    origin: Literal["published", "generated"]
    file: str | None  # null: the one at hand, else the first of the entry
    url: str | None  # null: the entry's


class TrunkNetworkParams(Params):
    """A network of a published family. The family checks `config`; the registry can fill it in."""

    family: Literal["ddpm_unet", "iddpm_unet", "dit"]
    scores: Annotated[list[Literal["learned", "published"]], Field(min_length=1)]
    config: dict[str, Any]
    time: TimeParams
    checkpoint: CheckpointParams | None

    @property
    def conditional(self) -> bool:
        return self.family == "dit"


Network = Annotated[MlpNetworkParams | TrunkNetworkParams, Field(discriminator="family")]


class VaeParams(Params):
    """The autoencoder: published, written like a published one, or trained by a rule."""

    origin: Literal["published", "generated", "trained"]
    name: str | None  # of the published one
    url: str | None
    config: dict[str, Any]  # of diffusers' AutoencoderKL
    kl_weight: Positive | None  # where it is trained

    @property
    def downsampling(self) -> int:
        return int(2 ** (len(self.config["block_out_channels"]) - 1))


class LatentParams(Params):
    """Diffusion on latents instead of pixels, and what of their posterior the store keeps."""

    vae: VaeParams
    posterior: Literal["mean", "sample", "keep"]
    batch_size: Count
    seed: Seed


class EncodeParams(Params):
    """How the data set is written, and by how many jobs side by side."""

    jobs: Count
    chunk: Count  # items that are read together
    shard: Count  # items that are written, resumed and hashed together
    flips: bool  # the training set once more, mirrored
    latent: LatentParams | None


class HeadForm(Params):
    """What a head's raw output stands for, and in which unit its errors are measured."""

    baseline: Literal["none", "gaussian", "moments", "target"]
    link: Literal["identity", "positive", "tapered"]
    unit: Literal["own", "root", "one"]

    @property
    def published(self) -> bool:
        """Whether the raw output is what the papers' heads predict."""
        return self.baseline == "none"


class MethodParams(BaseModel):
    """A labelled covariance method. `kind` names a file of `ocm_core/covariance/`.

    The other keys are that method's own options; the file declares and checks them, and says what
    the method `needs` before it can be sampled: a trained head, a table of moments, or nothing.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    kind: str
    needs: Literal["head", "moments", "nothing"]
    head: HeadForm | None = None  # null: the experiment's
    init: Label | None = None  # the label whose first weights its head has; null: its own

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class HeadParams(HeadForm):
    """The network that predicts a covariance; a method may have a form of its own."""

    kind: Literal["mlp", "simple", "complex", "adaln"]
    sizes: dict[Literal["width", "depth"], Count]  # those that the kind leaves open

    def form(self, method: MethodParams) -> HeadForm:
        return method.head or self


class OptimiserParams(Params):
    iterations: Count
    batch_size: Count
    accumulate: Count
    learning_rate: Positive
    decay: Literal["constant", "cosine"]
    weight_decay: Annotated[float, Field(ge=0)]
    ema: Annotated[float, Field(ge=0, lt=1)]
    precision: Literal["float32", "bfloat16"]
    seed: Seed
    checkpoint_every: Count


class MomentsParams(Params):
    """Monte-Carlo estimate of E|eps|^2 / d: how many noisy points per timestep."""

    draws: Count
    batch_size: Count
    seed: Seed


class HeadTrainingParams(OptimiserParams):
    recompute: bool  # less memory for one more forward pass
    trunk_dropout: bool  # as the published trainer has it: dropout stays on in the frozen trunk


class TrainParams(Params):
    score: OptimiserParams | None
    moments: MomentsParams
    heads: HeadTrainingParams
    vae: OptimiserParams | None
    classifier: OptimiserParams | None


class GridParams(Params):
    """Every number of steps with every guidance scale; 1.0 is no guidance."""

    steps: Annotated[list[Count], Field(min_length=1)]
    guidance: Annotated[list[Annotated[float, Field(ge=0)]], Field(min_length=1)]


class SamplerParams(Params):
    """One family of chains: which methods, how many steps, which spacing."""

    kind: Literal["ddpm", "ddim"]
    eta: Annotated[float, Field(ge=0, le=1)]
    rederive_eps: bool  # of ddim: ε̂ anew from the clamped x̂_0, as OpenAI and DiT have it
    chain: ChainKind
    grids: Annotated[list[GridParams], Field(min_length=1)]
    methods: Annotated[list[str], Field(min_length=1)]
    last_sigma: Positive | None  # at the step into τ_1, in grey levels

    @property
    def steps(self) -> list[int]:
        return sorted({steps for grid in self.grids for steps in grid.steps})


class ClipParams(Params):
    """Limits of the published results; `null` switches one off."""

    x0: Positive | None
    covariance: Positive | None


class GuidanceParams(Params):
    channels: Literal["all", "first_three"]
    covariance: Literal["guided", "conditional"]


class ExecutionParams(Params):
    """How the network is run; `make bench` measures what each choice brings."""

    precision: Literal["float32", "tf32", "bfloat16"]  # tf32: matrix products, on GPUs that can
    channels_last: bool
    compiled: bool


class SampleParams(Params):
    samplers: Annotated[dict[Label, SamplerParams], Field(min_length=1)]
    count: Count
    batch_size: Count
    seeds: Annotated[list[Seed], Field(min_length=1)]
    clip: ClipParams
    guidance: GuidanceParams
    execution: ExecutionParams
    split: list[Literal["score", "sampler", "method", "steps", "guidance", "seed"]]

    @property
    def guided(self) -> bool:
        grids = (grid for sampler in self.samplers.values() for grid in sampler.grids)
        return any(scale != 1.0 for grid in grids for scale in grid.guidance)


class CovarianceErrorParams(Params):
    """Squared error of the diagonal of the reverse covariance, at adjacent steps."""

    times: Annotated[list[Count], Field(min_length=1)]
    points: Count
    seed: Seed


class MmdParams(Params):
    bandwidths: Annotated[list[Positive], Field(min_length=1)]


class LikelihoodParams(Params):
    """The bound on the test set, in bits per dimension: all methods and all K in one pass."""

    methods: Annotated[list[str], Field(min_length=1)]  # those that are defined for DDPM
    chain: ChainKind
    steps: Annotated[list[Count], Field(min_length=1)]
    images: Count | None  # null: the whole test set
    batch_size: Count
    seed: Seed
    cdf: Literal["exact", "tanh"]
    decoder_variance: Literal["fixed", "method"]
    fewer: dict[str, list[Count]]  # methods that are too dear for all steps, and those they get

    def groups(self) -> dict[tuple[int, ...], list[str]]:
        """The methods that share a pass, by the numbers of steps that it serves."""
        found: dict[tuple[int, ...], list[str]] = {}
        for label in self.methods:
            found.setdefault(tuple(self.fewer.get(label, self.steps)), []).append(label)
        return {steps: labels for steps, labels in found.items() if steps}


class FeaturesParams(Params):
    """Distances in the features of a named space: FID, KID, precision, recall."""

    space: Literal["classifier", "efficientnet_lite0", "inception"]
    reference: Literal["imagenet256"] | None  # a published file; null: from the training set
    batch_size: Count
    neighbours: Count
    manifold_images: Count | None  # of the training set, for recall; null: all
    seed: Seed


class DeviationParams(Params):
    """Predicted standard deviations as pictures, beside estimates from M probes."""

    times: Annotated[list[Count], Field(min_length=1)]
    images: Count
    probes: Annotated[list[Count], Field(min_length=1)]
    seed: Seed


class CostParams(Params):
    """Time of one evaluation of the network, alone and with each method."""

    batch_size: Count
    repeats: Count


class EvaluateParams(Params):
    covariance_error: CovarianceErrorParams | None
    mmd: MmdParams | None
    likelihood: LikelihoodParams | None
    features: FeaturesParams | None
    deviation: DeviationParams | None
    cost: CostParams | None


class ReportParams(Params):
    title: str
    summary: str


class Experiment(Params):
    """Everything that decides the numbers of one experiment."""

    name: Label
    data: Data
    encode: EncodeParams
    schedule: ScheduleParams
    network: Network
    methods: Annotated[dict[Label, MethodParams], Field(min_length=1)]
    head: HeadParams
    train: TrainParams
    sample: SampleParams
    evaluate: EvaluateParams
    report: ReportParams

    @model_validator(mode="after")
    def _combinations_make_sense(self) -> Experiment:
        if problems := list(impossible(self)):
            raise ValueError("\n".join(problems))
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of x_0: a point, an image, or a latent."""
        latent = self.encode.latent
        if latent is None:
            return self.data.shape
        _, *sides = self.data.shape
        channels = latent.vae.config["latent_channels"]
        return (channels, *(side // latent.vae.downsampling for side in sides))

    @property
    def levels(self) -> int | None:
        """The grey levels of x_0, or None where it is continuous (points, latents)."""
        return self.data.levels if self.encode.latent is None else None
