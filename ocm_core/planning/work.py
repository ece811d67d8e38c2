"""What the stages of an experiment do, by its parameters: on the GPU, on the host, on the disk."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ocm_core.cells import Cell, cells
from ocm_core.diffusion import chains
from ocm_core.errors import OcmError
from ocm_core.pipeline.table import tasks
from ocm_core.planning.counting import NOTHING, Count
from ocm_core.planning.disk import encode_bytes, sample_bytes, splits
from ocm_core.planning.images import autoencoder, inception
from ocm_core.planning.units import Units, units
from ocm_core.schema.block import require
from ocm_core.schema.experiment import Experiment, MethodParams

_FLOAT32 = 4
_FEATURES = 2048  # values of Inception's features
_FREE = ("beta", "beta_tilde", "delta", "iddpm", "analytic")  # covariances that run no network


@dataclass(frozen=True)
class Work:
    """Of one stage, all its tasks together."""

    stage: str
    gpu: Count = NOTHING
    drawn: float = 0.0  # random values that the host draws and hands over
    host: float = 0.0  # float64 operations on the host
    disk: float = 0.0  # bytes read from stores or written to them


@dataclass(frozen=True)
class Workload:
    """An experiment with its units: each method of it yields one stage's work."""

    experiment: Experiment
    units: Units

    @classmethod
    def of(cls, experiment: Experiment) -> Workload:
        return cls(experiment, units(experiment.name))

    def stages(self) -> list[Work]:
        """Those that compute, in the order of the graph."""
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

    @property
    def values(self) -> int:
        """Of what is diffused."""
        return prod(self.experiment.shape)

    def encode(self) -> Work:
        found, latent = NOTHING, self.experiment.encode.latent
        networks = autoencoder(self.experiment.name)
        if latent and networks:
            flips = 2 if self.experiment.encode.flips else 1
            counts = {name: split.items for name, split in splits(self.experiment).items()}
            images = sum(n * (flips if name == "train" else 1) for name, n in counts.items())
            found = networks[0].per_item(latent.batch_size) * images
        return Work("encode", found, disk=encode_bytes(self.experiment))

    def moments(self) -> Work:
        settings, steps = self.experiment.train.moments, self.experiment.schedule.steps
        drawn = steps * settings.draws * self.values
        found = self.units.evaluation.per_item(settings.batch_size) * (settings.draws * steps)
        return Work("moments", found, drawn)

    def heads(self) -> Work:
        settings = self.experiment.train.heads
        drawn = settings.batch_size * self.values * (1 + self.units.probes)
        read = settings.batch_size * self.item_bytes
        passes = settings.iterations * settings.accumulate  # each draws the whole batch
        step = self.training_step() * settings.iterations
        return Work("heads", step, drawn * passes, disk=read * passes)

    def training_step(self) -> Count:
        settings = self.experiment.train.heads
        batch = -(-settings.batch_size // settings.accumulate)
        return self.units.training.of(batch) * settings.accumulate

    def sample(self) -> Work:
        count, gpu, drawn = self.experiment.sample.count, NOTHING, 0.0
        for cell in cells(self.experiment):
            gpu += self.drawing(cell) * count
            probes = probes_of(self.experiment.methods[cell.method])
            drawn += count * self.values * (cell.steps + (cell.steps - 1) * probes)
        parts = [task for task in tasks(self.experiment) if task.stage == "sample"]
        disk = sum(sample_bytes(self.experiment, task) for task in parts)
        return Work("sample", gpu, drawn, disk=disk)

    def drawing(self, cell: Cell) -> Count:
        """One sample; the last step shows the mean and asks for no covariance."""
        sample = self.experiment.sample
        guided = cell.guidance != 1.0
        batch = min(sample.batch_size, sample.count)
        branches = 2 if guided and sample.guidance.covariance == "guided" else 1
        rows = 2 if guided else 1
        evaluation = self.units.evaluation.per_item(rows * batch) * (rows * cell.steps)
        look = self.step_covariance(self.experiment.methods[cell.method], batch)
        if guided and probes_of(self.experiment.methods[cell.method]):
            look += self.units.evaluation.per_item(batch)  # each branch once more, with its graph
        return evaluation + look * (branches * (cell.steps - 1))

    def step_covariance(self, method: MethodParams, batch: int) -> Count:
        """What a covariance takes beyond the noise prediction, for one item."""
        if method.needs == "head":
            return self.units.head.per_item(batch)
        if probes := probes_of(method):
            return self.units.product.per_item(batch) * probes
        if method.kind not in _FREE:
            raise OcmError(f"the cost of a covariance of kind {method.kind!r} is not counted")
        return NOTHING

    def reference(self) -> Work:
        settings = require(self.experiment.evaluate.features)
        images = splits(self.experiment)["train"].items
        points = min(images, settings.manifold_images or images)
        network = inception().per_item(settings.batch_size) * images
        return Work("reference", network, host=_FEATURES * points * (points + 1))

    def evaluate_images(self) -> Work:
        """Distances within each set of samples, a half of them, and to the reference."""
        settings, sample = require(self.experiment.evaluate.features), self.experiment.sample
        latent, networks = self.experiment.encode.latent, autoencoder(self.experiment.name)
        image = inception().per_item(settings.batch_size)
        if latent and networks:
            image += networks[1].per_item(latent.batch_size)
        images = splits(self.experiment)["train"].items
        points = min(images, settings.manifold_images or images)
        own = min(sample.count, settings.manifold_images or sample.count)
        count = len(cells(self.experiment))
        return Work(
            "evaluate_images",
            image * (count * sample.count),
            host=count * _FEATURES * (own * (own + 1) + 2 * own * points),
            disk=count * sample.count * self.values * _FLOAT32,
        )

    def evaluate_likelihood(self) -> Work:
        settings = self.experiment.evaluate.likelihood
        if settings is None:
            return Work("evaluate_likelihood")
        test = splits(self.experiment)["test"].items
        images = min(settings.images or test, test)
        image, evaluations = self.likelihood_image()
        drawn = images * evaluations * self.values
        return Work("evaluate_likelihood", image * images, drawn, disk=images * self.item_bytes)

    def likelihood_image(self) -> tuple[Count, int]:
        """One image, and its evaluations: one per timestep that any chain visits, and group."""
        settings, steps = (
            require(self.experiment.evaluate.likelihood),
            self.experiment.schedule.steps,
        )
        found, evaluations = NOTHING, 0
        for lengths, labels in settings.groups().items():
            visited = {t for k in lengths for t in chains.build(settings.chain, steps, k)}
            look = self.units.evaluation.per_item(settings.batch_size)
            for label in labels:
                look += self.step_covariance(self.experiment.methods[label], settings.batch_size)
            found += look * len(visited)
            evaluations += len(visited)
        return found, evaluations

    def evaluate_deviation(self) -> Work:
        settings = self.experiment.evaluate.deviation
        if settings is None:
            return Work("evaluate_deviation")
        batch, methods = settings.images, self.experiment.methods.values()
        heads = sum(method.needs == "head" for method in methods)
        probes = sum(min(count, self.values) for count in settings.probes)
        image = (
            self.units.evaluation.per_item(batch) * 2  # without and with a graph
            + self.units.head.per_item(batch) * heads
            + self.units.product.per_item(batch) * probes
        )
        images = len(settings.times) * settings.images
        drawn = images * self.values * (1 + sum(settings.probes))
        return Work("evaluate_deviation", image * images, drawn)

    @property
    def item_bytes(self) -> float:
        """Of an item in its store."""
        items = splits(self.experiment)
        flips = 2 if self.experiment.encode.flips else 1
        count = sum(s.items * (flips if name == "train" else 1) for name, s in items.items())
        return encode_bytes(self.experiment) / count


def probes_of(method: MethodParams) -> int:
    """At sampling time."""
    return int(method.options["probes"]) if method.kind == "rademacher" else 0
