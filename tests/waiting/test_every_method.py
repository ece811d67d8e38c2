"""Every method, kernel and order, every solver, autoencoder, features and distances: no waiting."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.synchronisations import META, MetaNoise, Synchronisations
from ocm_core import covariance
from ocm_core.covariance.interface import Clip
from ocm_core.covariance.learned import CovarianceHead
from ocm_core.diffusion import schedule
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.guidance import Guidance
from ocm_core.diffusion.kernels.ddim import Ddim
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.features.classifier import ClassifierNetwork
from ocm_core.latents.vae import LatentEncoding, Vae, new_autoencoder
from ocm_core.likelihood.bound import Likelihood
from ocm_core.metrics.frechet import Statistics
from ocm_core.metrics.kernel_distance import squared_discrepancy
from ocm_core.metrics.precision_recall import Manifold, _radii, precision_recall
from ocm_core.networks import build
from ocm_core.params.compose import compose
from ocm_core.prefetch import moved
from ocm_core.rng.batches import BatchRng
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.sampling.diffusers_solver import SCHEDULERS, DiffusersSolver
from ocm_core.sampling.recipe import Recipe
from ocm_core.sampling.trajectories import Trajectories
from ocm_core.training.batches import InMemory
from ocm_core.training.head_fitting import HeadFitting
from tests.core.doubles import spectra

SHAPE, TIMESTEPS = (1, 2, 2), (10, 40, 90)
LEVELS = schedule.linear(100)
CLIP = Clip(x0=1.0, c_max=1.0)
KERNELS = {"ddpm": Ddpm(), "ddim": Ddim(eta=0.5)}
RECIPES = [  # every method with every kernel that it is defined for; order, guidance
    (kind, kernel, order, scale)
    for kind in covariance.available()
    for kernel in filter(covariance.build(kind).defined_for, KERNELS)
    for order, scale in ((1, 1.0), (2, 1.5))
]
RECIPES += [("delta", "ddim", "ipndm", 1.5)]
RECIPES += [("ocm+dct", "ddpm", 1, 1.5), ("analytic+dct", "ddpm", "matched", 1.0)]
# puts numbers of its own on the device at every step: with it a GPU waits
WAITING = {"UniPCMultistepScheduler"}
EVALUATIONS = {"HeunDiscreteScheduler": 21, "KDPM2DiscreteScheduler": 19}  # others: 20
EVALUATIONS |= {"KDPM2AncestralDiscreteScheduler": 19}


def a_model(device: torch.device) -> Denoiser:
    """A small class-conditional network with a learned variance and a head of every method."""
    torch.manual_seed(0)
    sizes = {"image_size": 2, "in_channels": 1, "patch_size": 1, "width": 8, "depth": 1}
    config = {**sizes, "attention_heads": 2, "num_classes": 2, "learns_variance": True}
    network = build("dit", config).to(device).eval().requires_grad_(False)
    learned = [k for k in covariance.available() if covariance.build(k).needs == "head"]
    heads = {kind: CovarianceHead(network.make_head("adaln")).to(device) for kind in learned}
    moments = torch.ones(101, dtype=torch.float64, device=device)
    spectrum = spectra(LEVELS, *SHAPE, device=device)
    vars(spectrum["dct"])["is_flat"] = False  # looked at once, as tables are
    model = Denoiser(network, LEVELS, heads=heads, moments=moments, spectra=spectrum)
    LEVELS.marginal_at(torch.ones(1, dtype=torch.int64, device=device), moments)
    return model


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_sampling(device: str) -> None:
    model, label = a_model(torch.device(device)), torch.zeros(2, dtype=torch.int64, device=device)
    waiting = {}
    for kind, kernel, order, scale in RECIPES:
        noise = MetaNoise(2, SHAPE) if device == "meta" else SampleNoise(0, range(2), SHAPE)
        with Synchronisations(on_host=device == "cpu") as waits:
            given: Any = {"clip": CLIP, "final_sigma": 0.1, "guidance": Guidance(scale)}
            recipe = Recipe(TIMESTEPS, covariance.build(kind), KERNELS[kernel], order, **given)
            drawn = recipe.draw(model, noise, label)
        assert drawn.x.device.type == device
        if waits.found:
            waiting[kind, kernel, order, scale] = waits.found
    assert waiting == {}
    assert len(RECIPES) > 20


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_solvers_of_diffusers(scheduler: str) -> None:
    model, label = a_model(META), torch.zeros(2, dtype=torch.int64, device=META)
    solver = DiffusersSolver(scheduler, {}, LEVELS, EVALUATIONS.get(scheduler, 20))

    def draw() -> list[str]:
        with Synchronisations() as waits:
            solver.draw(model, MetaNoise(2, SHAPE), label)
        return waits.found

    if scheduler in WAITING:
        with pytest.raises((RuntimeError, NotImplementedError, AssertionError)):
            assert draw() == []
    else:
        assert draw() == []


def test_the_bound_and_the_costs_of_steps() -> None:
    kinds = ["ocm", "analytic", "iddpm", "rademacher", "beta"]
    methods = {kind: covariance.build(kind) for kind in kinds}
    bound = Likelihood(a_model(torch.device("cpu")), methods, Decoder(256), CLIP)
    x0, label = torch.zeros(2, *SHAPE), torch.zeros(2, dtype=torch.int64)

    def at(use: NoiseFor):
        return lambda t: SampleNoise(
            0, range(2), SHAPE, "cpu", use, 0 if use is NoiseFor.TIMESTEPS else t, draws=1
        )

    for timesteps in ((5, 50), (5, 20, 40, 60, 80, 90)):
        with Synchronisations(on_host=True) as waits:
            bound.bounds({"K": timesteps}, x0, at(NoiseFor.LIKELIHOOD), label)
        counted = 2 * 3  # below and above, of the three methods that estimate c
        assert len(waits.found) == counted
    with Synchronisations(on_host=True) as waits:
        for source in (bound, Trajectories(bound.model, CLIP)):
            source.step_costs([5, 20, 50, 90], x0, at(NoiseFor.TIMESTEPS), label)
    assert waits.found == []


def test_training_on_a_cpu_reads_no_value() -> None:
    model = a_model(torch.device("cpu"))
    methods = {k: covariance.build(k) for k in model.heads}
    items = InMemory(torch.zeros(4, *SHAPE), torch.zeros(4, dtype=torch.int64))
    fitting = HeadFitting(model, methods, items, Decoder(256))
    drawn = fitting.draw(BatchRng(0, 0, 4))
    with Synchronisations(on_host=True) as waits:
        losses = fitting.losses_on(drawn)
        torch.autograd.backward(torch.stack([loss.sum() for loss in losses.values()]).sum())
    assert waits.found == []


def test_encoding_and_decoding_at_full_size() -> None:
    experiment = compose("imagenet256")
    with torch.device(META):
        model = new_autoencoder(experiment.encode.latent.vae.config, "the test")
    vae = Vae(model.eval().requires_grad_(False))
    encoding = LatentEncoding(vae, 256, "sample", 0, 2, {})
    images = np.zeros((4, *experiment.data.shape), dtype=np.uint8)
    with Synchronisations() as waits:
        latents = [mean for mean, _ in encoding._batches(images)]
        decoded = vae.decode(latents[0])
    assert len(latents) == 2 and decoded.shape == (2, 3, 256, 256)
    assert waits.found == []


def test_features() -> None:
    with torch.device(META):
        network = ClassifierNetwork(3, 32, 10)
    with Synchronisations() as waits:
        images = moved(torch.zeros(5, 3, 32, 32, dtype=torch.uint8), META)
        assert network.features(images).shape == (5, 64)
    assert waits.found == []


def test_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ocm_core.metrics.frechet.check_points", lambda *given: None)
    monkeypatch.setattr("ocm_core.metrics.precision_recall.share", lambda inside: inside)
    points = torch.empty(50, 8, device=META)
    with Synchronisations() as waits:
        statistics = Statistics.over(points.split(20))
        squared_discrepancy(points[:20], points[20:])
        bare = Manifold.known(points, torch.empty(50, dtype=torch.float64, device=META))
        manifold = replace(bare, radii=_radii(bare, 3))
        inside = precision_recall(real=manifold, generated=manifold)
    assert statistics.covariance.shape == (8, 8) and inside[0].shape == (50,)
    assert waits.found == []


def test_noise_is_copied_without_waiting() -> None:
    noise = SampleNoise(0, range(2), SHAPE, "meta", draws=3)
    with Synchronisations() as waits:
        drawn = [noise.normal() for _ in range(4)] + [noise.signs()]
    assert {x.device for x in drawn} == {META} and waits.found == []
