"""What each stage of an experiment does on GPU, host and disk, from its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ocm_core.cells import Cell, cells
from ocm_core.diffusion import chains
from ocm_core.errors import OcmError
from ocm_core.pipeline.table import tasks
from ocm_core.planning.disk_space import (
    FLOAT32,
    encode_bytes,
    sample_bytes,
    splits,
    stored_items,
)
from ocm_core.planning.network_counts import NetworkCounts, autoencoder, counts_of, inception
from ocm_core.planning.operation_counts import NOTHING, OperationCount
from ocm_core.planning.roofline import Gpu, GpuPrecision, Utilisation, roofline_time
from ocm_core.schema.block import require
from ocm_core.schema.experiment import Experiment, MethodParams

_FEATURES = 2048  # dimensions of Inception's features
_FREE = ("beta", "beta_tilde", "delta", "iddpm", "analytic")  # these run no further network


@dataclass(frozen=True)
class StageWork:
    """All tasks of one stage together."""

    stage: str
    gpu: OperationCount = NOTHING
    drawn: float = 0.0  # random values that the host generates for the GPU
    host: float = 0.0  # float64 operations on the host
    disk: float = 0.0  # bytes read from stores or written to them


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
            self.moments(),
            self.heads(),
            self.sample(),
            self.reference(),
            self.evaluate_images(),
            self.evaluate_likelihood(),
            self.evaluate_deviation(),
        )
        return [found for found in work if found.stage in present]

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

    def sample(self) -> StageWork:
        count, gpu, drawn = self.experiment.sample.count, NOTHING, 0.0
        for cell in cells(self.experiment):
            gpu += self.one_sample(cell) * count
            probes = probes_of(self.experiment.methods[cell.method])
            drawn += count * self.values * (cell.steps + (cell.steps - 1) * probes)
        parts = [task for task in tasks(self.experiment) if task.stage == "sample"]
        disk = sum(sample_bytes(self.experiment, task) for task in parts)
        return StageWork("sample", gpu, drawn, disk=disk)

    def one_sample(self, cell: Cell) -> OperationCount:
        """The last step of a chain returns the mean and needs no covariance."""
        sample = self.experiment.sample
        guided = cell.guidance != 1.0
        batch = min(sample.batch_size, sample.count)
        branches = 2 if guided and sample.guidance.covariance == "guided" else 1
        rows = 2 if guided else 1
        evaluation = self.counts.evaluation.per_item(rows * batch) * (rows * cell.steps)
        variance = self.step_covariance(self.experiment.methods[cell.method], batch)
        if guided and probes_of(self.experiment.methods[cell.method]):
            variance += self.counts.evaluation.per_item(batch)  # once more per branch, with a graph
        return evaluation + variance * (branches * (cell.steps - 1))

    def step_covariance(self, method: MethodParams, batch: int) -> OperationCount:
        """Of one item, beyond the noise prediction."""
        if method.needs == "head":
            return self.counts.head.per_item(batch)
        if probes := probes_of(method):
            return self.counts.product.per_item(batch) * probes
        if method.kind not in _FREE:
            raise OcmError(f"the cost of a covariance of kind {method.kind!r} is not counted")
        return NOTHING

    def reference(self) -> StageWork:
        settings = require(self.experiment.evaluate.features)
        images = splits(self.experiment)["train"].items
        points = min(images, settings.manifold_images or images)
        network = inception().per_item(settings.batch_size) * images
        return StageWork("reference", network, host=_FEATURES * points * (points + 1))

    def evaluate_images(self) -> StageWork:
        """Features; distances within each set of samples (each pair once) and to the reference."""
        settings, sample = require(self.experiment.evaluate.features), self.experiment.sample
        latent, networks = self.experiment.encode.latent, autoencoder(self.experiment.name)
        image = inception().per_item(settings.batch_size)
        if latent and networks:
            image += networks[1].per_item(latent.batch_size)
        images = splits(self.experiment)["train"].items
        points = min(images, settings.manifold_images or images)
        own = min(sample.count, settings.manifold_images or sample.count)
        count = len(cells(self.experiment))
        return StageWork(
            "evaluate_images",
            image * (count * sample.count),
            host=count * _FEATURES * (own * (own + 1) + 2 * own * points),
            disk=count * sample.count * self.values * FLOAT32,
        )

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
        settings, steps = (
            require(self.experiment.evaluate.likelihood),
            self.experiment.schedule.steps,
        )
        found, evaluations = NOTHING, 0
        for lengths, labels in settings.groups().items():
            visited = {t for k in lengths for t in chains.build(settings.chain, steps, k)}
            step = self.counts.evaluation.per_item(settings.batch_size)
            for label in labels:
                step += self.step_covariance(self.experiment.methods[label], settings.batch_size)
            found += step * len(visited)
            evaluations += len(visited)
        return found, evaluations

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
        return encode_bytes(self.experiment) / sum(stored_items(self.experiment).values())


def probes_of(method: MethodParams) -> int:
    """Vector-Jacobian products that the method takes in each sampling step."""
    return int(method.options["probes"]) if method.kind == "rademacher" else 0
