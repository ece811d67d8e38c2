"""The typed schema of an experiment: the single source of truth for every parameter.

`params/` holds values, this file says which values exist; `combinations.py` which go together.
Only pydantic is imported here, so that building the graph never waits for torch.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ocm_core.errors import unknown
from ocm_core.schema.block import (
    MOST_CHOICES,
    MOST_STEPS,
    BatchSize,
    Count,
    Depth,
    Jobs,
    Label,
    Params,
    Positive,
    Seed,
    SetSize,
    Width,
)
from ocm_core.schema.chains import ChainParams, FixedChainParams
from ocm_core.schema.combinations import impossible
from ocm_core.schema.datasets import Data

Score = Literal["true", "learned", "published"]
Space = Literal["classifier", "efficientnet_lite0", "inception"]
_Choice = TypeVar("_Choice")
Choices = Annotated[list[_Choice], Field(min_length=1, max_length=MOST_CHOICES)]
PresetName = Literal["quality", "diverse", "likelihood"]


class FormulaSchedule(Params):
    """A schedule of the papers."""

    kind: Literal["linear", "cosine"]
    steps: Annotated[int, Field(ge=1, le=MOST_STEPS)]


class SchedulerSchedule(Params):
    """The betas that a scheduler of diffusers makes from these keys of its configuration.

    `schedule: {kind: model}` becomes this one when an experiment is composed. Rescaled to a
    terminal SNR of zero, the last timestep holds no data, and `steps` is one less than the model's:
    that timestep is outside every chain.
    """

    kind: Literal["scheduler"]
    steps: Annotated[int, Field(ge=1, le=MOST_STEPS)]
    beta_schedule: str
    beta_start: Positive
    beta_end: Positive
    trained_betas: list[Positive] | None
    rescale_betas_zero_snr: bool


ScheduleParams = Annotated[FormulaSchedule | SchedulerSchedule, Field(discriminator="kind")]


class MlpNetworkParams(Params):
    """A small fully connected score network for points in the plane."""

    family: Literal["mlp"]
    scores: Annotated[list[Literal["true", "learned"]], Field(min_length=1)]
    width: Width
    depth: Depth
    precondition: Literal["none", "gaussian"]

    @property
    def conditional(self) -> bool:
        return False

    @property
    def checkpoint(self) -> None:
        return None

    @property
    def range(self) -> float:
        return 1.0


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


class ImageNetworkParams(Params):
    """A network whose family checks `config`, and the conventions that it was trained with."""

    config: dict[str, Any]
    time: TimeParams
    prediction: Literal["epsilon", "v_prediction", "sample"] = "epsilon"
    range: Positive = 1.0  # r: it was trained on data in [-r, r]


class TrunkNetworkParams(ImageNetworkParams):
    """A network of a published family; the registry can fill in what a checkpoint has."""

    family: Literal["ddpm_unet", "iddpm_unet", "dit"]
    scores: Annotated[list[Literal["learned", "published"]], Field(min_length=1)]
    checkpoint: CheckpointParams | None

    @property
    def conditional(self) -> bool:
        return self.config.get("num_classes") is not None


DIFFUSERS_ADAPTERS = {  # class of diffusers -> file of ocm_core/networks/
    "UNet2DModel": "diffusers_unet",
    "DiTTransformer2DModel": "diffusers_dit",
    "UNet2DConditionModel": "diffusers_text_unet",
}


class DiffusersNetworkParams(ImageNetworkParams):
    """A model in a folder that `save_pretrained` wrote: `path`, from which the rest is read.

    `config` is that of the model, `classes` and `null_class` are its labels (of a model that takes
    text, the captions of the data), `digest` is that of its files: a changed folder is another
    network.
    """

    family: Literal["diffusers"]
    path: str
    scores: Annotated[list[Literal["published"]], Field(min_length=1, max_length=1)]
    classes: Count | None
    null_class: Annotated[int, Field(ge=0)] | None
    digest: str

    @property
    def conditional(self) -> bool:
        return self.classes is not None

    @field_validator("config")
    @classmethod
    def _is_of_a_known_class(cls, config: dict[str, Any]) -> dict[str, Any]:
        if (kind := config.get("_class_name")) not in DIFFUSERS_ADAPTERS:
            raise ValueError(f"network.config._class_name: {unknown(kind, DIFFUSERS_ADAPTERS)}")
        return config

    @property
    def takes_text(self) -> bool:
        return bool(self.config["_class_name"] == "UNet2DConditionModel")

    @property
    def checkpoint(self) -> None:
        return None

    @property
    def adapter(self) -> str:
        return DIFFUSERS_ADAPTERS[self.config["_class_name"]]

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Of what it was trained on: channels, rows, columns; None where the model leaves it."""
        size = self.config.get("sample_size")
        if size is None:
            return None
        sides = (size, size) if isinstance(size, int) else tuple(size)
        return (int(self.config["in_channels"]), *sides)


Network = Annotated[
    MlpNetworkParams | TrunkNetworkParams | DiffusersNetworkParams, Field(discriminator="family")
]


class _LatentSizes(BaseModel):
    latent_channels: Width
    block_out_channels: Annotated[list[Width], Field(min_length=1, max_length=12)]


class VaeParams(Params):
    """The autoencoder: published, written like one, in a folder of one's own, or trained here."""

    origin: Literal["published", "generated", "folder", "trained"]
    name: str | None  # of the published one
    url: str | None
    config: dict[str, Any]  # of diffusers' AutoencoderKL
    kl_weight: Positive | None  # where it is trained
    path: str | None = None  # of `folder`: one that diffusers wrote, with the autoencoder in vae/
    digest: str | None = None  # of its files

    @field_validator("config")
    @classmethod
    def _has_the_shape_of_latents(cls, config: dict[str, Any]) -> dict[str, Any]:
        """What decides the shape of latents; diffusers checks the rest."""
        _LatentSizes.model_validate(config)
        return config

    @property
    def downsampling(self) -> int:
        return int(2 ** (len(self.config["block_out_channels"]) - 1))


class TextParams(Params):
    """The text encoder of a Stable-Diffusion pipeline; all of it is read from the model's folder.

    The embedding of a caption has the shape (tokens, width).
    """

    path: str
    digest: str  # of its files, and the tokenizer's
    tokens: Count
    width: Annotated[int, Field(ge=1, le=2**13)]


class LatentParams(Params):
    """Diffusion on latents instead of pixels, and what of their posterior the store keeps."""

    vae: VaeParams
    text: TextParams | None = None  # of a model that takes text
    posterior: Literal["mean", "sample", "keep"]
    batch_size: BatchSize
    seed: Seed


class EncodeParams(Params):
    """How the data set is written, and by how many jobs side by side."""

    jobs: Jobs
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

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    kind: Label
    needs: Literal["head", "moments", "nothing"]
    head: HeadForm | None = None  # null: the experiment's
    init: Label | None = None  # the label whose first weights its head has; null: its own

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class HeadParams(HeadForm):
    """The network that predicts a covariance; a method may have a form of its own."""

    kind: Literal["mlp", "simple", "complex", "adaln"]
    sizes: dict[Literal["width", "depth"], Width]  # those that the kind leaves open

    def form(self, method: MethodParams) -> HeadForm:
        return method.head or self


class OptimiserParams(Params):
    iterations: Count
    batch_size: BatchSize
    accumulate: BatchSize
    learning_rate: Positive
    decay: Literal["constant", "cosine"]
    weight_decay: Annotated[float, Field(ge=0, le=1e9)]
    ema: Annotated[float, Field(ge=0, lt=1)]
    precision: Literal["float32", "tf32", "bfloat16"]  # as `ExecutionParams` has it
    seed: Seed
    checkpoint_every: Count


class MomentsParams(Params):
    """Monte-Carlo estimate of E|eps|^2 / d: how many noisy points per timestep."""

    draws: Count
    batch_size: BatchSize
    seed: Seed


class HeadTrainingParams(OptimiserParams):
    recompute: bool  # less memory for one more forward pass
    trunk_dropout: bool  # as the published trainer has it: dropout stays on in the frozen trunk
    cdf: Literal["exact", "tanh"]  # Φ of the bins at t = 1, where `iddpm` has the decoder's term
    keep_every: Count | None  # iterations between heads that `selection` chooses from; null: none


class LastHeads(Params):
    """The average at the end of training."""

    kind: Literal["last"]


class BestFidHeads(Params):
    """Of the heads that training has kept, each method's with the least FID of a few samples."""

    kind: Literal["best_fid"]
    samples: Count
    steps: Count | None  # of a DDPM chain; null: all, as in the paper
    guidance: Annotated[float, Field(ge=0)]
    last_sigma: Positive | None
    batch_size: BatchSize
    seed: Seed


Selection = Annotated[LastHeads | BestFidHeads, Field(discriminator="kind")]


class TrainParams(Params):
    score: OptimiserParams | None
    moments: MomentsParams
    heads: HeadTrainingParams
    selection: Selection  # which heads are used
    vae: OptimiserParams | None
    classifier: OptimiserParams | None


class GridParams(Params):
    """Every number of steps with every guidance scale; 1.0 is no guidance."""

    steps: Choices[Count]
    guidance: Choices[Annotated[float, Field(ge=0, le=1e6)]]


class WalkParams(Params):
    """How a chain of ours is walked: its timesteps, the mean of a step, and its covariance."""

    kind: Literal["ddpm", "ddim"]
    eta: Annotated[float, Field(ge=0, le=1)]
    rederive_eps: bool  # of ddim: ε̂ anew from the clamped x̂_0, as OpenAI and DiT have it
    chain: ChainParams
    last_sigma: Positive | None  # at the step into τ_1, in grey levels
    order: Literal[1, 2, 3] = 1  # of the mean: from one prediction or several (`samplers/order.py`)
    covariance_scale: Annotated[float, Field(ge=0, le=1e6)] = 1.0  # on the covariance of a step


class SamplerParams(WalkParams):
    """One way to walk, with which methods and how many steps."""

    grids: Choices[GridParams]
    methods: Choices[str]

    @property
    def steps(self) -> list[int]:
        return _all_steps(self.grids)


class PresetParams(Params):
    """The way to walk that `samplers/presets.py` names for each number of steps."""

    kind: Literal["preset"]
    name: PresetName
    grids: Choices[GridParams]
    methods: Choices[str]

    @property
    def steps(self) -> list[int]:
        return _all_steps(self.grids)


class SolverParams(Params):
    """A scheduler of diffusers (`samplers/diffusers_solver.py`): steps are network evaluations.

    It has no covariance of ours, so its method is `none`. `options` are what the class is made
    with; betas, prediction type and the limit on x̂_0 come from the experiment.
    """

    kind: Literal["diffusers"]
    scheduler: str  # the name of its class
    options: Annotated[dict[str, Any], Field(default={})]
    grids: Choices[GridParams]
    methods: Annotated[list[Literal["none"]], Field(default=["none"], min_length=1)]

    @property
    def steps(self) -> list[int]:
        return _all_steps(self.grids)


Sampler = Annotated[SamplerParams | PresetParams | SolverParams, Field(discriminator="kind")]


def _all_steps(grids: list[GridParams]) -> list[int]:
    return sorted({steps for grid in grids for steps in grid.steps})


class ClipParams(Params):
    """Limits of the published results; `null` switches one off."""

    x0: Positive | None
    covariance: Positive | None


class GuidanceParams(Params):
    channels: Literal["all", "first_three"]
    covariance: Literal["guided", "conditional"]

    @property
    def guided_channels(self) -> int | None:
        """How many of the first ones; None: all."""
        return 3 if self.channels == "first_three" else None


class ExecutionParams(Params):
    """How the network is run; `make bench` measures what each choice brings."""

    precision: Literal["float32", "tf32", "bfloat16"]  # tf32: float32, but on GPUs
    channels_last: bool
    compiled: bool


class SampleParams(Params):
    samplers: Annotated[dict[Label, Sampler], Field(min_length=1, max_length=MOST_CHOICES)]
    count: Count
    batch_size: BatchSize
    seeds: Choices[Seed]
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

    times: Choices[Count]
    points: SetSize
    seed: Seed


class MmdParams(Params):
    bandwidths: Choices[Positive]


class ChainCostParams(Params):
    """Terms of the bound on training images, for every step between timesteps of a grid.

    The stage `chains` computes them, and optimal chains of up to `points` steps follow from them.
    """

    methods: Choices[str]  # those that are defined for DDPM
    grid: FixedChainParams  # and timesteps 1 and T
    points: Count  # of the grid; those that fall together are one
    images: Count  # of the training set
    batch_size: BatchSize
    seed: Seed
    cdf: Literal["exact", "tanh"]
    decoder_variance: Literal["fixed", "method"]


class LikelihoodParams(Params):
    """The bound on the test set, in bits per dimension: all methods, chains and K in one pass.

    A method has optimal chains if `evaluate.chains` names it, and those are as long as its grid.
    """

    methods: Choices[str]  # those that are defined for DDPM
    chains: Annotated[dict[Label, ChainParams], Field(min_length=1)]  # the first is the page's
    steps: Choices[Count]
    images: Count | None  # null: the whole test set
    batch_size: BatchSize
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
    """Distances in the features of a named space, and of others: FID, KID, precision, recall."""

    space: Space  # the page's
    beside: Annotated[
        list[Space], Field(max_length=2)
    ]  # measured as well, under names of their own
    reference: Literal["imagenet256"] | None  # a published file; null: from the training set
    reference_images: Count | None  # the first of the training set; null: all
    batch_size: BatchSize
    neighbours: Count
    manifold_images: Count | None  # of the training set, for recall; null: all
    seed: Seed

    @property
    def spaces(self) -> list[Space]:
        return [self.space, *self.beside]


class JackknifeParams(Params):
    """Errors of what is measured of samples where there is one seed, by leaving out a block."""

    blocks: Annotated[int, Field(ge=2, le=1000)]  # of equal numbers of samples


class LossParams(Params):
    """The loss of the score network on test images, each at a timestep of its own."""

    images: Annotated[int, Field(ge=2, le=10**9)] | None  # null: the whole test set
    batch_size: BatchSize
    seed: Seed


class DeviationParams(Params):
    """Predicted standard deviations as pictures, beside estimates from M probes."""

    times: Choices[Count]
    images: Count
    probes: Choices[Count]
    seed: Seed


class CostParams(Params):
    """Time of one evaluation of the network, alone and with each method."""

    batch_size: BatchSize
    repeats: Count


class EvaluateParams(Params):
    covariance_error: CovarianceErrorParams | None
    mmd: MmdParams | None
    chains: ChainCostParams | None
    likelihood: LikelihoodParams | None
    features: FeaturesParams | None
    jackknife: JackknifeParams | None
    loss: LossParams | None
    deviation: DeviationParams | None
    cost: CostParams | None


class ReportParams(Params):
    title: str
    summary: str
    paper: Label | None  # whose likelihoods stand beside ours: one of the paper's, on these data


class Experiment(Params):
    """Everything that decides the numbers of one experiment."""

    name: Label
    data: Data
    encode: EncodeParams
    schedule: ScheduleParams
    network: Network
    methods: Annotated[dict[Label, MethodParams], Field(min_length=1, max_length=MOST_CHOICES)]
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
