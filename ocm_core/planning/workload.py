"""What each stage of an experiment does on GPU, host and disk, from its parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from ocm_core import covariance
from ocm_core.cells import Cell, cells, cells_of
from ocm_core.covariance.interface import CovarianceMethod
from ocm_core.diffusion import chains
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.chains import Chain
from ocm_core.diffusion.schedule import Schedule
from ocm_core.pipeline.table import Task, tasks
from ocm_core.planning.disk_space import (
    FLOAT32,
    encode_bytes,
    split_bytes,
    splits,
    stored_items,
)
from ocm_core.planning.network_counts import NetworkCounts, autoencoder, counts_of, feature_network
from ocm_core.planning.operation_counts import NOTHING, OperationCount
from ocm_core.planning.roofline import Gpu, GpuPrecision, Utilisation, roofline_time
from ocm_core.schema.block import require
from ocm_core.schema.chains import OptimalChain
from ocm_core.schema.experiment import BestFidHeads, Experiment, MethodParams

DIMENSIONS = {"inception": 2048, "efficientnet_lite0": 1280}  # of features
SCORE_STEP = 3.0  # evaluations: forward, and the gradients of inputs and of weights


@dataclass(frozen=True)
class StageWork:
    """All tasks of one stage together."""

    stage: str
    gpu: OperationCount = NOTHING
    drawn: float = 0.0  # random values that the host generates for the GPU
    float64: float = 0.0  # operations of distances between features
    disk: float = 0.0  # bytes read from stores or written to them

    def __truediv__(self, tasks: int) -> StageWork:
        """The share of one of so many equal tasks."""
        rest = (self.drawn, self.float64, self.disk)
        return StageWork(self.stage, self.gpu * (1 / tasks), *(value / tasks for value in rest))


@dataclass(frozen=True)
class Workload:
    """An experiment and the counts of its networks; one method per stage."""

    experiment: Experiment
    counts: NetworkCounts

    @classmethod
    def of(cls, experiment: Experiment) -> Workload:
        return cls(experiment, counts_of(experiment.name))

    def stages(self) -> list[StageWork]:
        """Those that compute, in the order in which they run."""
        present = {task.stage for task in tasks(self.experiment)}
        work = (
            self.encode(),
            self.score(),
            self.moments(),
            self.heads(),
            self.reference(),
            self.selection(),
            self.chains(),
            self.sample(),
            self.evaluate_images(),
            self.evaluate_jackknife(),
            self.evaluate_likelihood(),
            self.evaluate_loss(),
            self.evaluate_deviation(),
        )
        return [found for found in work if found.stage in present]

    def task(self, task: Task) -> StageWork:
        """One task's share of its stage."""
        by_cells = {
            "sample": self.sample,
            "evaluate_images": self.evaluate_images,
            "evaluate_jackknife": self.evaluate_jackknife,
        }
        if task.stage in by_cells:
            return by_cells[task.stage](cells_of(self.experiment, task.part))
        work = next((w for w in self.stages() if w.stage == task.stage), StageWork(task.stage))
        return work / sum(other.stage == task.stage for other in tasks(self.experiment))

    def hours(
        self, gpu: Gpu, precision: GpuPrecision, use: Utilisation, stages: Sequence[str] = ()
    ) -> float:
        """Of the whole experiment, or of some of its stages."""
        chosen = [work for work in self.stages() if not stages or work.stage in stages]
        return sum(roofline_time(work.gpu, gpu, precision, use).hours for work in chosen)

    @property
    def values(self) -> int:
        """Of one point, image or latent of the diffusion process."""
        return prod(self.experiment.shape)

    def encode(self) -> StageWork:
        found, latent = NOTHING, self.experiment.encode.latent
        networks = autoencoder(self.experiment.name)
        if latent and networks:
            images = sum(stored_items(self.experiment).values())
            found = networks[0].per_item(latent.batch_size) * images
        return StageWork("encode", found, disk=encode_bytes(self.experiment))

    def score(self) -> StageWork:
        settings = self.experiment.train.score
        if settings is None:
            return StageWork("score")
        items = settings.iterations * settings.batch_size
        step = self.counts.evaluation.per_item(settings.batch_size) * SCORE_STEP
        return StageWork("score", step * items, items * self.values, disk=items * self.item_bytes)

    def moments(self) -> StageWork:
        settings, steps = self.experiment.train.moments, self.experiment.schedule.steps
        drawn = steps * settings.draws * self.values
        found = self.counts.evaluation.per_item(settings.batch_size) * (settings.draws * steps)
        return StageWork("moments", found, drawn)

    def heads(self) -> StageWork:
        settings = self.experiment.train.heads
        drawn = settings.batch_size * self.values * (1 + self.counts.probes)
        read = settings.batch_size * self.item_bytes
        passes = settings.iterations * settings.accumulate  # each micro-batch draws the whole batch
        step = self.training_step() * settings.iterations
        return StageWork("heads", step, drawn * passes, disk=read * passes)

    def training_step(self) -> OperationCount:
        settings = self.experiment.train.heads
        batch = -(-settings.batch_size // settings.accumulate)
        return self.counts.training.of(batch) * settings.accumulate

    def chains(self) -> StageWork:
        """A noise prediction and all covariances at each timestep of the grid."""
        settings = self.experiment.evaluate.chains
        if settings is None:
            return StageWork("chains")
        step = self.counts.evaluation.per_item(settings.batch_size)
        for label in settings.methods:
            step += self.step_covariance(self.experiment.methods[label], settings.batch_size)
        passes = settings.images * len(chain_grid(self.experiment))
        disk = settings.images * self.item_bytes
        return StageWork("chains", step * passes, passes * self.values, disk=disk)

    def sample(self, chosen: Sequence[Cell] = ()) -> StageWork:
        """Of some cells, or of all."""
        drawn_cells = chosen or cells(self.experiment)
        count, gpu, drawn = self.experiment.sample.count, NOTHING, 0.0
        for cell in drawn_cells:
            gpu += self.one_sample(cell) * count
            probes = built(self.experiment.methods[cell.method]).sampling_probes
            drawn += count * self.values * (cell.steps + (cell.steps - 1) * probes)
        disk = len(drawn_cells) * count * self.values * FLOAT32
        return StageWork("sample", gpu, drawn, disk=disk)

    def one_sample(self, cell: Cell) -> OperationCount:
        sample = self.experiment.sample
        batch = min(sample.batch_size, sample.count)
        return self.chain(self.experiment.methods[cell.method], cell.steps, cell.guidance, batch)

    def chain(
        self, method: MethodParams, steps: int, guidance: float, batch: int
    ) -> OperationCount:
        """Of one sample; the last step returns the mean and needs no covariance."""
        guided = guidance != 1.0
        both = guided and self.experiment.sample.guidance.covariance == "guided"
        rows = 2 if guided else 1
        evaluation = self.counts.evaluation.per_item(rows * batch) * (rows * steps)
        variance = self.step_covariance(method, batch)
        if guided and self.products(method):
            variance += self.counts.evaluation.per_item(batch)  # once more per branch, with a graph
        return evaluation + variance * ((2 if both else 1) * (steps - 1))

    def step_covariance(self, method: MethodParams, batch: int) -> OperationCount:
        """Of one item, beyond the noise prediction."""
        if method.needs == "head":
            return self.counts.head.per_item(batch)
        return self.counts.product.per_item(batch) * self.products(method)

    def products(self, method: MethodParams) -> int:
        """Vector-Jacobian products per evaluation, as the method's class says."""
        return built(method).jacobian_products(self.values)

    @property
    def dimensions(self) -> int:
        return DIMENSIONS[require(self.experiment.evaluate.features).space]

    @property
    def reference_images(self) -> int:
        settings = require(self.experiment.evaluate.features)
        images = splits(self.experiment)["train"].items
        return min(images, settings.reference_images or images)

    def reference(self) -> StageWork:
        settings = require(self.experiment.evaluate.features)
        images = self.reference_images
        points = min(images, settings.manifold_images or images)
        network = feature_network(settings.space).per_item(settings.batch_size) * images
        return StageWork("reference", network, float64=self.dimensions * points * (points + 1))

    def selection(self) -> StageWork:
        """Every kept head of every method: its samples, and their features."""
        train = self.experiment.train
        if not isinstance(train.selection, BestFidHeads):
            return StageWork("selection")
        settings, steps = train.selection, train.selection.steps or self.experiment.schedule.steps
        learned = [m for m in self.experiment.methods.values() if m.needs == "head"]
        count = settings.samples * (train.heads.iterations // require(train.heads.keep_every))
        gpu = self.image_features() * (count * len(learned))
        for method in learned:
            gpu += self.chain(method, steps, settings.guidance, settings.batch_size) * count
        return StageWork("selection", gpu, count * len(learned) * steps * self.values)

    def image_features(self) -> OperationCount:
        """Of one sample: decoded where it is a latent, then as the feature space has it."""
        settings = require(self.experiment.evaluate.features)
        latent, networks = self.experiment.encode.latent, autoencoder(self.experiment.name)
        image = feature_network(settings.space).per_item(settings.batch_size)
        if latent and networks:
            image += networks[1].per_item(latent.batch_size)
        return image

    def evaluate_images(self, chosen: Sequence[Cell] = ()) -> StageWork:
        """Features; distances within each set of samples (each pair once) and to the reference."""
        settings, sample = require(self.experiment.evaluate.features), self.experiment.sample
        points = min(self.reference_images, settings.manifold_images or self.reference_images)
        own = min(sample.count, settings.manifold_images or sample.count)
        count = len(chosen or cells(self.experiment))
        return StageWork(
            "evaluate_images",
            self.image_features() * (count * sample.count),
            float64=count * self.dimensions * (own * (own + 1) + 2 * own * points),
            disk=count * sample.count * self.values * FLOAT32,
        )

    def evaluate_jackknife(self, chosen: Sequence[Cell] = ()) -> StageWork:
        """Features and distances as `evaluate_images` has them; a Fréchet distance per block."""
        settings = self.experiment.evaluate.jackknife
        if settings is None:
            return StageWork("evaluate_jackknife")
        once = self.evaluate_images(chosen)
        d, count = self.dimensions, len(chosen or cells(self.experiment))
        frechet = d * d * self.experiment.sample.count + 2 * d**3
        float64 = once.float64 + count * settings.blocks * frechet
        return replace(once, stage="evaluate_jackknife", float64=float64)

    def evaluate_likelihood(self) -> StageWork:
        settings = self.experiment.evaluate.likelihood
        if settings is None:
            return StageWork("evaluate_likelihood")
        test = splits(self.experiment)["test"].items
        images = min(settings.images or test, test)
        image, evaluations = self.likelihood_image()
        drawn = images * evaluations * self.values
        return StageWork(
            "evaluate_likelihood", image * images, drawn, disk=images * self.item_bytes
        )

    def likelihood_image(self) -> tuple[OperationCount, int]:
        """Of one image, and its noise predictions: one per timestep of any chain, in each group."""
        settings = require(self.experiment.evaluate.likelihood)
        found, evaluations = NOTHING, 0
        for lengths, labels in settings.groups().items():
            visited = likelihood_timesteps(self.experiment, lengths)
            step = self.counts.evaluation.per_item(settings.batch_size)
            for label in labels:
                step += self.step_covariance(self.experiment.methods[label], settings.batch_size)
            found += step * len(visited)
            evaluations += len(visited)
        return found, evaluations

    def evaluate_loss(self) -> StageWork:
        settings = self.experiment.evaluate.loss
        if settings is None:
            return StageWork("evaluate_loss")
        test = splits(self.experiment)["test"].items
        images = min(settings.images or test, test)
        image = self.counts.evaluation.per_item(settings.batch_size)
        disk = images * self.item_bytes
        return StageWork("evaluate_loss", image * images, images * self.values, disk=disk)

    def evaluate_deviation(self) -> StageWork:
        settings = self.experiment.evaluate.deviation
        if settings is None:
            return StageWork("evaluate_deviation")
        batch, methods = settings.images, self.experiment.methods.values()
        heads = sum(method.needs == "head" for method in methods)
        probes = sum(min(count, self.values) for count in settings.probes)
        image = (
            self.counts.evaluation.per_item(batch) * 2  # without and with a graph
            + self.counts.head.per_item(batch) * heads
            + self.counts.product.per_item(batch) * probes
        )
        images = len(settings.times) * settings.images
        drawn = images * self.values * (1 + sum(settings.probes))
        return StageWork("evaluate_deviation", image * images, drawn)

    @property
    def item_bytes(self) -> float:
        """Of one item in the store of the data set."""
        return split_bytes(self.experiment) / sum(stored_items(self.experiment).values())


def built(method: MethodParams) -> CovarianceMethod:
    return covariance.build(method.kind, **method.options)


def likelihood_timesteps(experiment: Experiment, lengths: Iterable[int]) -> set[int]:
    """Of all chains of these lengths; of optimal ones, those that they are chosen from."""
    known, schedule = require(experiment.evaluate.likelihood).chains.values(), _schedule(experiment)
    fixed = [chain for chain in known if not isinstance(chain, OptimalChain)]
    found = {t for chain in fixed for k in lengths for t in chains.build(chain, schedule, k)}
    return found if len(fixed) == len(known) else {*found, *chain_grid(experiment)}


def chain_grid(experiment: Experiment) -> Chain:
    """The timesteps that optimal chains are chosen from."""
    settings = require(experiment.evaluate.chains)
    return chains.grid(settings.grid, _schedule(experiment), settings.points)


def _schedule(experiment: Experiment) -> Schedule:
    return schedules.of_experiment(experiment)
