"""One step of each hot loop, on full-size networks of the paper, on the meta device."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn

from benchmarks.synchronisations import META, MetaNoise, Synchronisations
from ocm_core import covariance
from ocm_core.covariance.interface import Clip, ClipCounter, CovarianceMethod
from ocm_core.covariance.learned import LearnedMethod
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.guidance import Guidance
from ocm_core.diffusion.kernels.ddim import Ddim
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.transition import transition
from ocm_core.distributed import Rank
from ocm_core.likelihood.bound import Likelihood
from ocm_core.networks.of_experiment import new_denoiser, new_score
from ocm_core.params.compose import compose
from ocm_core.rng.batches import BatchRng
from ocm_core.sampling.recipe import Recipe
from ocm_core.schema.experiment import Experiment, OptimiserParams
from ocm_core.stages.heads import new_head
from ocm_core.training.batches import DroppedLabels, InMemory, Items
from ocm_core.training.head_fitting import HeadFitting
from ocm_core.training.loop import DivergenceMonitor, Objective, _step
from ocm_core.training.moments import estimate_at
from ocm_core.training.score_matching import ScoreMatching
from ocm_core.training.state import TrainingState

NAMES = ("cifar10_ls", "celeba64", "imagenet64", "imagenet256")  # of each family
BATCH = 2
CLIP = Clip(x0=1.0, c_max=1.0)
SIZES = {"iterations": 3, "batch_size": BATCH, "learning_rate": 1e-3, "weight_decay": 0.01}
SETTINGS = OptimiserParams(**SIZES, ema=0.9, precision="tf32", seed=7, checkpoint_every=5)


@dataclass(frozen=True)
class Case:
    experiment: Experiment
    denoiser: Denoiser
    methods: dict[str, CovarianceMethod]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.experiment.shape

    @property
    def noise(self) -> MetaNoise:
        return MetaNoise(BATCH, self.shape)

    @property
    def label(self) -> torch.Tensor | None:
        if not self.denoiser.network.conditional:
            return None
        return torch.zeros(BATCH, dtype=torch.int64, device=META)

    @property
    def items(self) -> Items:
        """On the host, as a training set is."""
        x0, label = torch.zeros(3, *self.shape), torch.zeros(3, dtype=torch.int64)
        network = self.denoiser.network
        if not network.conditional:
            return InMemory(x0)
        return DroppedLabels(InMemory(x0, label), network)

    @property
    def learned(self) -> dict[str, LearnedMethod]:
        return {
            label: cast(LearnedMethod, method)
            for label, method in self.methods.items()
            if method.needs == "head"
        }


@pytest.fixture(params=NAMES, scope="module")
def published(request: pytest.FixtureRequest) -> Case:
    """With a head for each method that has one; one probe, as further ones wait for nothing."""
    experiment = compose(request.param)
    kinds = {label: (m.kind, m.options) for label, m in experiment.methods.items()}
    kinds["probes"] = ("rademacher", {})
    methods = {
        label: covariance.build(kind, label, **{k: 1 if k == "probes" else v for k, v in o.items()})
        for label, (kind, o) in kinds.items()
    }
    with torch.device(META):
        network = new_score(experiment, "published").eval()
        heads = {
            label: new_head(experiment, label, network, None)
            for label, method in methods.items()
            if method.needs == "head"
        }
    known = new_denoiser(experiment, network)
    moments = torch.empty(known.schedule.steps + 1, dtype=torch.float64, device=META)
    denoiser = Denoiser(network, known.schedule, known.time, heads, moments)
    time, x = torch.ones(1, dtype=torch.int64, device=META), torch.empty(1, 1, device=META)
    denoiser.schedule.marginal_at(time, x)  # tables go to the device at their first use
    return Case(experiment, denoiser, methods)


def test_sampling(published: Case) -> None:
    method = published.methods[next(iter(published.learned))]
    has_null_class = published.denoiser.network.null_label is not None
    guidance = Guidance(1.5 if has_null_class else 1.0, channels=3)
    with Synchronisations() as waits:
        for kernel, order, timesteps in (
            (Ddpm(), 1, (10, 900)),
            (Ddim(eta=0.5), 2, (10, 500, 900)),
        ):
            if method.defined_for(kernel.name):
                given: Any = {"clip": CLIP, "final_sigma": 0.1, "guidance": guidance}
                recipe = Recipe(timesteps, method, kernel, order, **given)
                drawn = recipe.draw(published.denoiser, published.noise, published.label)
    assert drawn.x.device == META and waits.found == []


def test_the_bound_of_all_methods(published: Case) -> None:
    methods = {k: m for k, m in published.methods.items() if m.defined_for("ddpm")}
    bound = Likelihood(published.denoiser, methods, Decoder(256), CLIP)
    counters = {name: ClipCounter() for name in methods}
    x0, schedule = published.noise.normal(), published.denoiser.schedule
    with Synchronisations() as waits:
        seen = bound.evaluate(x0, 500, published.noise, published.label, counters)
        terms = [seen(transition(schedule, s, 500), methods, None) for s in (0, 250)]
    assert len(terms[1]) == len(methods) > 3 and waits.found == []


def test_moments(published: Case) -> None:
    x0, eps = published.noise.normal(), published.noise.normal()
    with Synchronisations() as waits:
        entries = estimate_at(published.denoiser, 500, x0, eps, published.label)
    assert entries.shape == (4,) and waits.found == []


def test_training_of_the_score_network_and_of_all_heads(published: Case, tmp_path: Path) -> None:
    published.denoiser.network.requires_grad_(True)
    _train(ScoreMatching(published.denoiser, published.items, Decoder(256)), tmp_path)
    published.denoiser.network.requires_grad_(False)
    fitting = HeadFitting(published.denoiser, published.learned, published.items, Decoder(256))
    _train(fitting, tmp_path)


def _train(objective: Objective, folder: Path) -> None:
    """What `fit` does in an iteration; at the second, the optimiser and all tables are there."""
    state = TrainingState.start(objective.networks, SETTINGS)
    watch = DivergenceMonitor(state, folder, "meta")
    parts = Rank().rows(SETTINGS.batch_size, SETTINGS.accumulate)
    batches = [BatchRng(7, i, SETTINGS.batch_size, rows=rows) for i in range(2) for rows in parts]
    draws = iter([(rng, objective.draw(rng)) for rng in batches])
    for iteration in range(2):
        with Synchronisations() as waits:
            watch.see(iteration, _step(objective, SETTINGS, state, draws, Rank(), "meta"))
            state.update_average(SETTINGS.ema)
    assert watch.smoothed is not None and watch.smoothed.device == META
    assert waits.found == []


def test_a_value_that_is_read_does_raise_or_count() -> None:
    x = torch.empty(2, device=META)
    for read in (float, bool, int, torch.Tensor.item, torch.Tensor.tolist):
        with pytest.raises((RuntimeError, NotImplementedError)):
            read(x[0])
    with pytest.raises(RuntimeError):
        x + torch.ones(2)
    with Synchronisations(on_host=True) as waits:
        torch.ones(2).to(META)
        x.copy_(torch.ones(2))
        float(torch.ones(()))
        torch.ones(2).to(META, non_blocking=True)
        nn.Linear(2, 2).to(torch.float64)
    assert len(waits.found) == 3
