"""The typed schema of an experiment: every parameter, its bounds and its default."""

from math import prod
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    Discriminator,
    Field,
    SerializeAsAny,
    Tag,
)

from ocm_core.datasets import Data
from ocm_core.schema.block import (
    MOST_CHOICES,
    MOST_STEPS,
    BatchSize,
    Choices,
    Count,
    Depth,
    Jobs,
    Label,
    MethodLabel,
    Params,
    Positive,
    Seed,
    Width,
)
from ocm_core.schema.timesteps import (
    DecoderVariance,
    FixedTimesteps,
    NamedTimesteps,
    PowerTimesteps,
    TimestepsParams,
)

SpaceName = Literal["classifier", "efficientnet_lite0", "efficientnet_lite0_small", "inception"]
PresetName = Literal["quality", "diverse", "likelihood", "photographs"]
PrecisionName = Literal["float32", "tf32", "bfloat16"]  # tf32: float32, but on GPUs
Order = Literal[1, 2, 3, "ipndm", "matched"]  # of a step's mean
KERNEL_OF_ORDER = {"ipndm": "ddim", "matched": "ddpm"}  # others are for any
Cdf = Literal["exact", "tanh"]  # Φ of the decoder's bins; tanh: the published approximation
Scale = Annotated[float, Field(ge=0, le=1e6)]
_Steps = Annotated[int, Field(ge=1, le=MOST_STEPS)]
_Length = Annotated[int, Field(ge=1, le=2**14)]


class FormulaSchedule(Params):
    """A schedule of the papers."""

    kind: Literal["linear", "cosine"] = "linear"
    steps: _Steps = 1000


class SchedulerSchedule(Params):
    """The betas of a scheduler of diffusers; what `schedule: {kind: model}` becomes."""

    kind: Literal["scheduler"]
    steps: _Steps  # without the last timestep of a terminal SNR of zero, which holds no data
    beta_schedule: str
    beta_start: Positive
    beta_end: Positive
    trained_betas: list[Positive] | None
    rescale_betas_zero_snr: bool


class FlowSchedule(Params):
    """Flow matching: x_t = (1 - s) x_0 + s ε with s = t / (T + 1), shifted towards noise."""

    kind: Literal["flow"]
    steps: _Steps = 999  # without s = 1, which holds no data
    shift: Positive = 1.0  # k: s becomes k s / (1 + (k - 1) s)


class EdmSchedule(Params):
    """EDM: x_t = x_0 + σ ε, with σ^(1/ρ) even over t; a null ρ: log σ."""

    kind: Literal["edm"]
    steps: Annotated[int, Field(ge=2, le=MOST_STEPS)] = 1000
    sigma_min: Positive = 0.002
    sigma_max: Positive = 80.0
    sigma_data: Positive = 0.5  # the deviation of the data that the network expects
    rho: Positive | None = 7.0


ScheduleParams = Annotated[
    FormulaSchedule | SchedulerSchedule | FlowSchedule | EdmSchedule, Field(discriminator="kind")
]
PredictionType = Literal["epsilon", "v_prediction", "sample", "flow_prediction", "edm"]


class TimeParams(Params):
    """How the index t = 1 … T becomes the number that the network was trained with."""

    shift: Literal[0, 1] = 0
    scale: Positive = 1.0


PointFamily = Literal["mlp", "pairs"]


class PointNetworkParams(Params):
    """A small score network for points, or for four particles in the plane (`pairs`)."""

    family: PointFamily
    scores: Choices[Literal["exact", "trained"]] = ["exact", "trained"]
    width: Width = 128
    depth: Depth = 3

    conditional: ClassVar[bool] = False
    checkpoint: ClassVar[None] = None
    range: ClassVar[float] = 1.0


class CheckpointParams(Params):
    """An entry of `ocm_core/checkpoints/registry.py`, or random weights in the same file format."""

    name: Label
    origin: Literal["published", "generated"] = "published"  # generated: nothing is downloaded
    size: Literal["published", "small"] = "published"  # small: as their families allow
    file: str | None = None  # null: the one that is present, else the first of the entry
    url: str | None = None  # null: the entry's


class ImageNetworkParams(Params):
    """A network whose family checks `config`, and the conventions that it was trained with."""

    config: dict[str, Any]
    time: TimeParams = TimeParams()
    prediction: PredictionType = "epsilon"
    range: Positive = 1.0  # r: it was trained on data in [-r, r]


class TrunkNetworkParams(ImageNetworkParams):
    """A network of a published family; of a published checkpoint the registry fills in the rest."""

    family: Literal["ddpm_unet", "iddpm_unet", "dit"]
    scores: Choices[Literal["trained", "pretrained"]] = ["trained"]
    checkpoint: CheckpointParams | None = None

    @property
    def conditional(self) -> bool:
        return self.config.get("num_classes") is not None


_Pretrained = Annotated[list[Literal["pretrained"]], Field(min_length=1, max_length=1)]
DIFFUSERS_ADAPTERS = {  # class of diffusers -> file of ocm_core/networks/
    "UNet2DModel": "diffusers_unet",
    "DiTTransformer2DModel": "diffusers_dit",
    "UNet2DConditionModel": "diffusers_unet",
    "SD3Transformer2DModel": "diffusers_transformer",
    "PixArtTransformer2DModel": "diffusers_pixart",
    "SanaTransformer2DModel": "diffusers_transformer",
    "FluxTransformer2DModel": "diffusers_flux",
}
WITHOUT_TEXT = ("UNet2DModel", "DiTTransformer2DModel")


class DiffusersNetworkParams(ImageNetworkParams):
    """A model in a folder that `save_pretrained` wrote: `path`, from which the rest is read."""

    family: Literal["diffusers"]
    path: str
    scores: _Pretrained = ["pretrained"]
    time: TimeParams = TimeParams(shift=1)
    classes: Count | None
    null_class: Annotated[int, Field(ge=0)] | None
    digest: str  # of its files

    checkpoint: ClassVar[None] = None

    @property
    def conditional(self) -> bool:
        return self.classes is not None

    @property
    def takes_text(self) -> bool:
        return self.config["_class_name"] not in WITHOUT_TEXT

    @property
    def adapter(self) -> str:
        return DIFFUSERS_ADAPTERS[self.config["_class_name"]]

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Channels, rows and columns that it was trained on; None where the model leaves it."""
        size = self.config.get("sample_size")
        if size is None:
            return None
        return (int(self.config["in_channels"]), *((size, size) if isinstance(size, int) else size))


Network = Annotated[
    PointNetworkParams | TrunkNetworkParams | DiffusersNetworkParams, Field(discriminator="family")
]


class _LatentSizes(BaseModel):
    latent_channels: Width
    block_out_channels: Annotated[
        list[Width],
        Field(
            min_length=1,
            max_length=12,
            validation_alias=AliasChoices("block_out_channels", "encoder_block_out_channels"),
        ),
    ]


def downsampling(autoencoder: dict[str, Any]) -> int:
    """Return the side of an image over that of its latents: all levels but one halve it."""
    return int(2 ** (len(_LatentSizes.model_validate(autoencoder).block_out_channels) - 1))


def _with_sizes(config: dict[str, Any]) -> dict[str, Any]:
    """Check what decides the shape of latents; diffusers checks the rest."""
    _LatentSizes.model_validate(config)
    return config


class VaeParams(Params):
    """The autoencoder: published, random weights like it, in a folder, or trained here."""

    origin: Literal["published", "generated", "folder", "trained"] = "published"
    name: str | None = None  # of the published one
    url: str | None = None
    config: Annotated[dict[str, Any], AfterValidator(_with_sizes)]  # of diffusers' class
    kl_weight: Positive | None = None  # where it is trained
    path: str | None = None  # of `folder`: one that diffusers wrote, with the autoencoder in vae/
    digest: str | None = None  # of its files

    @property
    def downsampling(self) -> int:
        return downsampling(self.config)


class TextParams(Params):
    """The text encoders of a pipeline of diffusers, and the arrays that each prompt becomes."""

    path: str
    digest: str  # of their files, and the tokenizers'
    arrays: dict[str, list[_Length]]  # shapes, by the argument of the model that takes them

    @property
    def numbers(self) -> int:
        """Return how many numbers a prompt takes."""
        return sum(prod(shape) for shape in self.arrays.values())


class LatentParams(Params):
    """Diffusion on latents instead of pixels, and what of their posterior the store keeps."""

    vae: VaeParams
    text: TextParams | None = None  # of a model that takes text
    posterior: Literal["mean", "sample", "keep"] = "sample"
    batch_size: BatchSize = 32
    seed: Seed = 5


class EncodeParams(Params):
    """How the data set is written, and by how many jobs side by side."""

    jobs: Jobs = 1
    chunk: Count = 1024  # items that are read together
    shard: Count = 16384  # items that are written, resumed and hashed together
    flips: bool = False  # the training set once more, mirrored
    latent: LatentParams | None = None

    @property
    def vae_origin(self) -> str | None:
        """Where the autoencoder comes from; None without latents."""
        return self.latent.vae.origin if self.latent else None


class OpenParams(Params, extra="allow"):
    """`kind` names a file, which declares and checks all further keys: its options."""

    kind: MethodLabel

    @property
    def options(self) -> dict[str, Any]:
        """The keys that the file declares."""
        return dict(self.model_extra or {})


class HeadForm(Params):
    """How a head is fitted, what its raw output means, by default as published, and its unit."""

    fit: Literal["train", "solve", "solve_train"] = "train"  # the last: train from the solution
    baseline: Literal["none", "gaussian", "moments", "target"] = "none"
    link: Literal["identity", "positive", "tapered"] = "identity"
    unit: Literal["own", "root", "one"] = "own"


class MethodParams(OpenParams):
    """A covariance method: a file of `ocm_core/covariance/`, which says what it `needs`.

    `METHOD+BASIS: null` is another method of the experiment with the correlation of a basis.
    """

    needs: Literal["head", "moments", "nothing"]
    head: HeadForm | None = None  # null: the experiment's
    init: Label | None = None  # the label whose first weights its head has; null: its own

    @property
    def basis(self) -> str:
        """Return the basis of its correlation; "" where it has none."""
        return self.kind.partition("+")[2]

    @property
    def spectrum(self) -> str:
        """Return the basis whose spectrum it reads: that of its correlation, or an option."""
        return self.basis or str(self.options.get("basis", ""))

    @property
    def products(self) -> float:
        """Products with the Jacobian that each of its covariances costs."""
        asked = self.options.get("probes", self.options.get("products", 0))
        return float(asked) if self.needs == "nothing" else 0.0


class HeadParams(HeadForm):
    """The network that predicts a covariance; a method may have a form of its own."""

    kind: Literal["mlp", "simple", "complex", "adaln"]
    sizes: dict[Literal["width", "depth"], Width] = {}  # those that the kind leaves open

    def form(self, method: MethodParams) -> HeadForm:
        """Return the form of a method's head."""
        return method.head or self


class OptimiserParams(Params):
    """AdamW with an exponential moving average of the weights."""

    iterations: Count
    batch_size: BatchSize
    accumulate: BatchSize = 1  # parts of a batch that are computed one after another
    learning_rate: Positive
    decay: Literal["constant", "cosine"] = "cosine"
    weight_decay: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    ema: Annotated[float, Field(ge=0, lt=1)]
    precision: PrecisionName = "float32"
    seed: Seed
    checkpoint_every: Count = 200  # iterations; a run that is interrupted loses at most those

    @property
    def passes(self) -> float:
        """Passes of one item through the network; a step of training costs three."""
        return 3.0 * self.iterations * self.batch_size


class ScoreTrainingParams(OptimiserParams):
    """Training of the score network, or a file of weights that were trained before."""

    seed: Seed = 1
    start: str | None = None  # a file of weights that training starts from; null: random ones
    weights: str | None = None  # taken as they are, in place of a training


class MomentsParams(Params):
    """Monte-Carlo estimate of E|eps|^2 / d: how many noisy points per timestep."""

    draws: Count
    points: Count | None = None  # timesteps, evenly spread and linear between them; null: all
    batch_size: BatchSize
    seed: Seed = 2


class SpectrumParams(Params):
    """The residual x_0 - x̂_0 of training images along the vectors of each basis."""

    images: Count = 600  # at each timestep; the relative error of a variance is √(2 / images)
    points: Count = 48  # timesteps, on a quadratic grid
    batch_size: BatchSize = 100
    seed: Seed = 11


class SolveParams(Params):
    """The linear system of a head's last layer, for heads with `fit: solve`."""

    draws: Annotated[int, Field(ge=40, le=10**9)] = 16_000  # noisy images
    batch_size: BatchSize = 100
    positions: Count = 256  # of an image that are looked at: pixels or tokens
    by_range: bool = False  # a solution for each of 21 ranges of t; false: one, as published
    seed: Seed = 12


class HeadTrainingParams(OptimiserParams):
    """Training of the covariance heads on the frozen score network."""

    seed: Seed = 3
    recompute: bool = False  # less memory for one more forward pass
    trunk_dropout: bool = False  # true: as published, dropout stays on in the frozen trunk
    cdf: Cdf = "exact"  # at t = 1, where `iddpm` has the decoder's term
    keep_every: Count | None = None  # iterations between heads that `selection` chooses from
    solve: SolveParams = SolveParams()


class ClassifierTrainingParams(OptimiserParams):
    """Training of the classifier whose features measure distances, in single precision."""

    precision: Literal["float32", "tf32"] = "float32"
    seed: Seed = 5


class VaeTrainingParams(ClassifierTrainingParams):
    """Training of the autoencoder, likewise."""

    seed: Seed = 6


class LastHeads(Params):
    """The average at the end of training."""

    kind: Literal["last"] = "last"


class BestFrechetHeads(Params):
    """Each method's kept head with the least distance of a few samples."""

    kind: Literal["best_frechet"]
    samples: Count
    nfe: Count | None = None  # DDPM steps; null: all, as in the paper
    guidance: Scale = 1.0
    clip_final_sigma: Positive | None = None
    batch_size: BatchSize
    seed: Seed = 8


class StepCostsParams(Params):
    """Terms of the bound on training images, from which optimal timesteps follow."""

    methods: Choices[str]  # those that are defined for DDPM
    grid: FixedTimesteps = PowerTimesteps(exponent=2.0, first=1)  # and timesteps 1 and T
    points: Count = 92  # of the grid; those that fall together are one
    images: Count = 128  # of the training set
    trajectories: Count | None = None  # for timesteps of gits; null: none
    batch_size: BatchSize
    seed: Seed = 8
    cdf: Cdf = "exact"
    decoder_variance: DecoderVariance = "fixed"  # where a rule does not say it


class TrainParams(Params):
    """Settings of everything that is trained or estimated on the training set."""

    score: ScoreTrainingParams | None = None
    moments: MomentsParams
    spectrum: SpectrumParams = SpectrumParams()
    heads: HeadTrainingParams
    selection: Annotated[LastHeads | BestFrechetHeads, Field(discriminator="kind")] = LastHeads()
    timesteps: StepCostsParams | None = None
    vae: VaeTrainingParams | None = None
    classifier: ClassifierTrainingParams | None = None


class GridParams(Params):
    """Every number of network evaluations with every guidance scale; 1.0 is no guidance."""

    nfe: Choices[Count]
    guidance: Choices[Scale] = [1.0]


class RecipeParams(OpenParams):
    """How to sample: a file of `ocm_core/diffusion/kernels/`, timesteps, mean and covariance."""

    timesteps: TimestepsParams = NamedTimesteps()
    clip_final_sigma: Positive | None = None  # at the step into τ_1, in grey levels
    order: Order = 1  # of the mean: from one prediction or several
    posterior_factor: Scale = 1.0  # on gain · C, the part of a step's variance that x_0 causes


class _Grids(Params):
    grids: Choices[GridParams]

    @property
    def nfe(self) -> list[int]:
        return sorted({nfe for grid in self.grids for nfe in grid.nfe})


class SamplerParams(_Grids, RecipeParams):
    """A recipe, and the methods and numbers of evaluations to sample with."""

    methods: Choices[str]


class PresetParams(_Grids):
    """The recipe that a named preset has for each number of evaluations."""

    kind: Literal["preset"]
    name: PresetName
    methods: Choices[str]


class SolverParams(_Grids):
    """A scheduler of diffusers; it has no covariance, so its method is `none`."""

    kind: Literal["diffusers"]
    scheduler: str  # the name of its class
    options: dict[str, Any] = {}  # of that class, but for what the experiment says: betas and such
    methods: Choices[Literal["none"]] = ["none"]


def _sampler_tag(sampler: Any) -> str:
    kind = sampler.get("kind") if isinstance(sampler, dict) else getattr(sampler, "kind", None)
    return kind if kind in ("preset", "diffusers") else "kernel"


Sampler = Annotated[
    Annotated[SamplerParams, Tag("kernel")]
    | Annotated[PresetParams, Tag("preset")]
    | Annotated[SolverParams, Tag("diffusers")],
    Discriminator(_sampler_tag),
]


class ClipParams(Params):
    """Limits of the published results; `null` switches one off."""

    x0: Positive | None = 1.0
    covariance: Positive | None = 1.0


class GuidanceParams(Params):
    """How classifier-free guidance is applied: to which channels, and to the covariance."""

    channels: Literal["all", "first_three"] = "all"
    covariance: Literal["guided", "conditional"] = "guided"

    @property
    def guided_channels(self) -> int | None:
        """How many of the first channels; None: all."""
        return 3 if self.channels == "first_three" else None


class ExecutionParams(Params):
    """How the network is run; `make bench` measures what each choice brings."""

    precision: PrecisionName = "float32"
    channels_last: bool = False
    compiled: bool = False


class SampleParams(Params):
    """Which samples are drawn: every sampler with its methods and grids, from every seed."""

    samplers: Annotated[dict[Label, Sampler], Field(min_length=1, max_length=MOST_CHOICES)]
    count: Count
    batch_size: BatchSize
    seeds: Choices[Seed] = [0]
    clip: ClipParams = ClipParams()
    guidance: GuidanceParams = GuidanceParams()
    execution: ExecutionParams = ExecutionParams()
    split: list[Literal["score", "sampler", "method", "nfe", "guidance", "seed"]] = ["sampler"]

    @property
    def guided(self) -> bool:
        grids = (grid for sampler in self.samplers.values() for grid in sampler.grids)
        return any(scale != 1.0 for grid in grids for scale in grid.guidance)


class FeaturesParams(Params):
    """The spaces in which samples are compared with the training set, and the set itself."""

    space: SpaceName  # the one of the page's headline
    extra_spaces: Annotated[list[SpaceName], Field(max_length=2)] = []  # measured as well
    reference: Literal["imagenet256"] | None = None  # a published file; null: the training set
    reference_images: Count | None = None  # the first of the training set; null: all
    batch_size: BatchSize
    neighbours: Count = 3  # of precision and recall
    manifold_images: Count | None = None  # of the training set, for recall; null: all
    seed: Seed = 6


class ReportParams(Params):
    """The title and summary of the page, and the paper's experiment beside it."""

    title: str
    summary: str
    paper: Label | None = None  # an experiment of the paper on these data, to compare with


class Experiment(Params):
    """Everything that decides the numbers of one experiment."""

    name: Label
    reseed: Annotated[int, Field(ge=0, le=10**6)] = 0  # a hundred times this is added to seeds
    data: Data
    encode: EncodeParams = EncodeParams()
    schedule: ScheduleParams = FormulaSchedule()
    network: Network
    methods: Annotated[
        dict[MethodLabel, MethodParams], Field(min_length=1, max_length=MOST_CHOICES)
    ]
    head: HeadParams
    train: TrainParams
    sample: SampleParams
    features: FeaturesParams | None = None
    evaluate: dict[Label, SerializeAsAny[Params]] = {}  # of types that the stages declare
    report: ReportParams

    @property
    def shape(self) -> tuple[int, ...]:
        if (latent := self.encode.latent) is None:
            return self.data.shape
        sides = (side // latent.vae.downsampling for side in self.data.shape[1:])
        return (latent.vae.config["latent_channels"], *sides)

    @property
    def spaces(self) -> list[SpaceName]:
        """The feature spaces that images are compared in, the headline's first."""
        return [self.features.space, *self.features.extra_spaces] if self.features else []

    @property
    def levels(self) -> int | None:
        """The grey levels of x_0, or None where it is continuous."""
        return self.data.levels if self.encode.latent is None else None
