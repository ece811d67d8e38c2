"""Each baseline of the benchmarks gives the numbers of the fast path that it is compared with."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks import covariance_error, few_steps, frechet, latents, likelihood_table, recall
from benchmarks.all_heads import LABELS, HeadTraining
from benchmarks.measuring import peak_bytes
from benchmarks.networks import DIT_S2, drawn, small_denoiser
from benchmarks.sampling_head import operations
from benchmarks.sampling_loop import SamplingLoop
from benchmarks.structured import flops, published
from benchmarks.training_step import TrainingStep
from ocm_core.covariance.learned import CovarianceHead
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.metrics.frechet import Statistics, frechet_distance
from ocm_core.networks import build, enable_gradient_checkpointing
from tests.core.doubles import Replay


def unet() -> tuple[Denoiser, nn.Module, tuple[int, ...]]:
    denoiser = small_denoiser()
    return denoiser, drawn(denoiser.network.make_head("simple")), (1, 8, 8)


def dit() -> tuple[Denoiser, nn.Module, tuple[int, ...]]:
    sizes = {"image_size": 8, "width": 48, "depth": 2, "num_classes": 3}
    network = drawn(build("dit", DIT_S2 | sizes))
    denoiser = Denoiser(network, schedules.linear(1000))
    return denoiser, drawn(network.make_head("adaln")), (4, 8, 8)


def gradients(head: nn.Module) -> list[torch.Tensor]:
    found = [p.grad.clone() for p in head.parameters() if p.grad is not None]
    head.zero_grad(set_to_none=True)
    return found


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("build_network", [unet, dit])
def test_training_step(build_network) -> None:
    steps = TrainingStep.on(build_network, batch=3)
    ours, our_gradients = steps.ours(), gradients(steps.head)
    assert all(p.grad is None for p in steps.denoiser.network.parameters())
    kept = peak_bytes(steps.ours)
    gradients(steps.head)
    enable_gradient_checkpointing(steps.denoiser.network)
    again, again_gradients = steps.ours(), gradients(steps.head)
    assert torch.equal(ours, again) and all(map(torch.equal, our_gradients, again_gradients))
    assert peak_bytes(steps.ours) < kept
    gradients(steps.head)
    theirs, their_gradients = steps.published(), gradients(steps.head)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert len(our_gradients) == len(their_gradients) > 0
    torch.testing.assert_close(our_gradients, their_gradients, rtol=1e-3, atol=1e-4)
    assert any(p.grad is not None for p in steps.denoiser.network.parameters())


def test_heads_together_one_by_one_and_as_published() -> None:
    denoiser, _, shape = unet()
    heads = HeadTraining.on(denoiser, "simple", torch.randn(4, *shape))
    together, alone, published = heads.together(), heads.one_by_one(), heads.published()
    for label in LABELS:
        assert torch.equal(together[label], alone[label])
        torch.testing.assert_close(together[label], published[label], rtol=1e-4, atol=1e-4)


def test_likelihood_table_and_its_cells() -> None:
    denoiser = Denoiser(small_denoiser().network, schedules.linear(100))
    table = likelihood_table.LikelihoodTable.on(denoiser, images=2, steps=(3, 10))
    together, each = table.together(), table.each_cell()
    assert together.keys() == each.keys() and len(together) == 12
    for cell, bound in together.items():
        torch.testing.assert_close(bound.terms, each[cell].terms, equal_nan=True)
    found = table.optimal_timesteps(5)
    assert {*found} == {*likelihood_table.METHODS}
    assert [len(timesteps) for timesteps in found["beta"].values()] == [1, 2, 3, 4, 5]
    counted = likelihood_table._evaluations().details
    assert (counted["evaluations"], counted["baseline_evaluations"]) == (1000, 8310)


def test_plain_loop_of_sampling() -> None:
    denoiser, net, shape = unet()
    able = replace(denoiser, heads={"ocm": CovarianceHead(net)})
    cell = SamplingLoop(able, shape, 2, rules.even(1000, 5))
    normals = [torch.randn(2, *shape) for _ in range(5)]
    drawn_before = iter(normals)
    ours = cell.stage(Replay(normals))
    plain = cell.plain(lambda: next(drawn_before))
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)


def test_recall_by_blocks_and_frechet_of_clean_fid() -> None:
    real, generated = recall.points(1, 300, 8), recall.points(2, 250, 8) * 0.8
    assert recall.by_blocks(real, generated, 2**12) == recall.at_once(real, generated)
    real, generated = (frechet.features(seed, 300, 16) for seed in (1, 2))
    statistics = Statistics.of(real)
    theirs = frechet.theirs(statistics, generated)
    assert frechet_distance(real=statistics, generated=generated) == pytest.approx(theirs, abs=1e-8)


def test_latents_of_the_store_are_those_of_the_map(monkeypatch) -> None:
    monkeypatch.setattr(latents, "BATCH", 64)
    with latents.written(count=256) as both:
        whole = torch.cat(
            [both.streamed.batch(latents.BatchRng(0, i, 64))[0] for i in range(4)]
        ).flatten(1)
        mapped = torch.from_numpy(both.mapped[:].copy()).flatten(1)
        assert both.from_store().shape == both.from_map().shape == (64, *latents.SHAPE)
    assert torch.equal(whole[whole[:, 0].argsort()], mapped[mapped[:, 0].argsort()])


@pytest.mark.parametrize("kind", ["simple", "complex"])
def test_covariance_error_is_the_distance_to_exact_diagonals(kind: str, monkeypatch) -> None:
    monkeypatch.setattr(covariance_error, "TIMES", (5, 400))
    monkeypatch.setattr(covariance_error, "POINTS", 2)
    trial = covariance_error.HeadTrial(
        covariance_error.score(0, 2), *covariance_error.images(), kind
    )
    exact = torch.stack([c for _, c in trial.points])
    assert exact.shape == (len(covariance_error.TIMES), *trial.held_out.shape)
    expected = float((1 - exact).square().mean())
    assert trial.error(trial.plain(0)) == pytest.approx(expected, rel=1e-5)
    table = torch.full((1001,), 0.25)
    expected = float((0.25 - exact).square().mean())
    assert trial.error(trial.relative(0, table)) == pytest.approx(expected, rel=1e-4)


def test_a_scheduler_in_its_own_loop() -> None:
    denoiser, _, shape = unet()
    few = few_steps.FewSteps(denoiser, shape)
    torch.testing.assert_close(few.solver(), few.their_loop(), atol=1e-5, rtol=0)
    assert not torch.allclose(few.recipe(), replace(few, order=2).recipe())


def test_a_solve_is_compared_with_one_forward_and_one_backward_pass() -> None:
    solve, (network, _) = published("imagenet256"), operations("imagenet256")
    assert flops(solve.passes) == pytest.approx(2 * network, rel=0.03)
    inputs, outputs = 1152 + 1, 2 * 2 * 4  # width and bias; a patch of four channels
    assert solve.bytes == 2 * 8 * inputs * (inputs + outputs)
    assert flops(solve.sums) - flops(solve.passes) > 2 * 256 * inputs**2
