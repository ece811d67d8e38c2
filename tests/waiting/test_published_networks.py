"""One step of each hot loop, on each network of the paper at full size: the host never waits.

On the meta device (`benchmarks/synchronisations.py`): it costs neither memory nor arithmetic.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks.synchronisations import META, Synchronisations
from ocm_core.covariance.interface import Clip, ClipCounter
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.guidance import Guidance
from ocm_core.diffusion.kernels.ddim import Ddim
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.transition import transition
from ocm_core.distributed import Rank
from ocm_core.likelihood.bound import Likelihood
from ocm_core.sampling.recipe import Recipe
from ocm_core.schema.experiment import OptimiserParams
from ocm_core.training.head_fitting import HeadFitting
from ocm_core.training.loop import DivergenceMonitor, Objective, _draws, _step
from ocm_core.training.moments import estimate_at
from ocm_core.training.score_matching import ScoreMatching
from ocm_core.training.state import TrainingState

from .published import BATCH, NAMES, Case, case

CLIP = Clip(x0=1.0, c_max=1.0)
SETTINGS = OptimiserParams(
    iterations=3,
    batch_size=BATCH,
    accumulate=1,
    learning_rate=1e-3,
    decay="cosine",
    weight_decay=0.01,
    ema=0.9,
    precision="tf32",
    seed=7,
    checkpoint_every=5,
)


@pytest.fixture(params=NAMES)
def published(request: pytest.FixtureRequest) -> Case:
    return case(request.param)


def test_sampling(published: Case) -> None:
    """DDPM with the head's covariance, of first order, then DDIM of second order."""
    method = published.methods[next(iter(published.learned))]
    with Synchronisations() as waits:
        for kernel, order, timesteps in (
            (Ddpm(), 1, (10, 900)),
            (Ddim(eta=0.5), 2, (10, 500, 900)),
        ):
            if method.defined_for(kernel.name):
                recipe = Recipe(
                    timesteps,
                    method,
                    kernel,
                    order,
                    clip=CLIP,
                    final_sigma=0.1,
                    guidance=_guidance(published),
                )
                drawn = recipe.draw(published.denoiser, published.noise, published.label)
    assert drawn.x.device == META and waits.found == []


def _guidance(published: Case) -> Guidance:
    """Guidance, where the network has a null class."""
    scale = 1.0 if published.denoiser.network.null_label is None else 1.5
    return Guidance(scale, channels=3)


def test_the_bound_of_all_methods(published: Case) -> None:
    methods = {k: m for k, m in published.methods.items() if m.defined_for("ddpm")}
    bound = Likelihood(published.denoiser, methods, Decoder(256), CLIP)
    counters = {name: ClipCounter() for name in methods}
    x0, schedule = published.noise.normal(), published.denoiser.schedule
    with Synchronisations() as waits:
        seen = bound.evaluate(x0, 500, published.noise, published.label, counters)
        terms = [seen(transition(schedule, s, 500), methods) for s in (0, 250)]
    assert len(terms[1]) == len(methods) > 3 and waits.found == []


def test_moments(published: Case) -> None:
    x0, eps = published.noise.normal(), published.noise.normal()
    with Synchronisations() as waits:
        entries = estimate_at(published.denoiser, 500, x0, eps, published.label)
    assert entries.shape == (4,) and waits.found == []


def test_training_of_all_heads(published: Case, tmp_path: Path) -> None:
    published.denoiser.network.requires_grad_(False)
    fitting = HeadFitting(published.denoiser, published.learned, published.items, Decoder(256))
    _train(fitting, tmp_path)


def test_training_of_the_score_network(published: Case, tmp_path: Path) -> None:
    published.denoiser.network.requires_grad_(True)
    _train(ScoreMatching(published.denoiser, published.items, Decoder(256)), tmp_path)


def _train(objective: Objective, folder: Path) -> None:
    """What `fit` does in an iteration; at the second, the optimiser and all tables are there."""
    state = TrainingState.start(objective.networks, SETTINGS)
    watch = DivergenceMonitor(state, folder, "meta")
    with closing(_draws(objective, SETTINGS, 0, Rank(), "meta")) as draws:
        for iteration in range(2):
            with Synchronisations() as waits:
                watch.see(iteration, _step(objective, SETTINGS, state, draws, Rank(), "meta"))
                state.update_average(SETTINGS.ema)
    assert watch.smoothed is not None and watch.smoothed.device == META
    assert waits.found == []


def test_a_value_that_is_read_does_raise_or_count() -> None:
    """The tests above can fail."""
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
