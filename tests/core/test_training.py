"""The training loop: published updates, exact resume, accumulation, processes, divergence."""

import os
import socket
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from ocm_core import covariance
from ocm_core.covariance.learned import CovarianceHead, TrainingBatch
from ocm_core.diffusion import schedule
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.schedule import Schedule, q_sample
from ocm_core.distributed import Rank
from ocm_core.errors import OcmError
from ocm_core.networks import build, save_networks
from ocm_core.networks.keys import published_keys
from ocm_core.networks.mixture import MixtureScore
from ocm_core.networks.mlp import MlpScore
from ocm_core.rng.batches import BatchRng
from ocm_core.schema.experiment import MomentsParams as MomentSettings
from ocm_core.schema.experiment import OptimiserParams
from ocm_core.training import loop
from ocm_core.training.baselines import gaussian_baseline, or_gaussian, target_means, timesteps
from ocm_core.training.batches import InMemory, noisy_draws
from ocm_core.training.head_fitting import HeadFitting
from ocm_core.training.loop import fit, learning_rate
from ocm_core.training.moments import estimate, estimate_at, grid, tables
from ocm_core.training.score_matching import ScoreMatching
from ocm_core.training.state import TrainingState
from tests.core.doubles import (
    PAIR,
    SETTINGS,
    LabelledNetwork,
    QuadraticNetwork,
    changed,
    exact,
    killed,
    spectra,
)
from tests.core.test_published_runs import case_denoiser, training_batch
from tests.goldens_io import arrays, facts

LEARNED = [k for k in covariance.available() if covariance.build(k).needs == "head"]


def head_fitting(labels=LEARNED, score=None, width=16, probes=None):
    levels = schedule.linear(100)
    network = score or MixtureScore(PAIR, levels)
    baseline = gaussian_baseline(levels, PAIR.variance)
    heads = {}
    for label in labels:
        torch.manual_seed(len(label))
        net = network.make_head("mlp", width=width, depth=2)
        heads[label] = CovarianceHead(net, baseline, "positive")
    x0 = torch.from_numpy(PAIR.draw(100, np.random.default_rng(0))).float()
    more = {label: {"probes": count} for label, count in (probes or {}).items()}
    methods = {n: covariance.build(n.partition("_")[0], n, **more.get(n, {})) for n in labels}
    frozen = network.eval().requires_grad_(False)
    denoiser = Denoiser(frozen, levels, heads=heads, spectra=spectra(levels, 2))
    return HeadFitting(denoiser, methods, InMemory(x0), Decoder(None))


def weights(state: TrainingState) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in state._tensors().items()}


def assert_same_bytes(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


@pytest.mark.parametrize("case", ["ocm", "sn", "npr"])
def test_updates_and_average_equal_the_published_ones(case, tmp_path):
    meta, golden = facts("training")["cases"][case], arrays("training")
    model = case_denoiser(meta)
    method = covariance.build(meta["method"])
    head = model.heads[case]
    before = {k: v.clone() for k, v in head.state_dict().items()}

    class Recorded:
        networks: ClassVar[dict] = {case: head}

        def draw(self, rng):
            return rng.iteration

        def losses_on(self, iteration):
            batch = training_batch(model, "training", case, [method], step=iteration)
            return {case: method.loss(batch)}

    ours = {"iterations": "steps", "batch_size": "batch", "learning_rate": "lr", "ema": "ema_rate"}
    published = {name: meta[key] for name, key in ours.items()}
    settings = changed(**published, decay="constant", weight_decay=0.0)
    try:
        state = fit(Recorded(), settings, tmp_path)
        names = published_keys(head.net)
        # Adam turns the rounding noise of a zero gradient into full steps: nothing to compare
        idle = facts(f"networks/{meta['network']}")["parameters_without_influence"]
        influential = {k: v for k, v in head.net.state_dict().items() if names[k] not in idle}
        assert len(influential) > 2
        moved: dict[str, list[torch.Tensor]] = {"final": [], "ema": []}
        for key, value in influential.items():
            first = before[f"net.{key}"].double()
            for kind, ours in (("final", value), ("ema", state.average[f"{case}.net.{key}"])):
                expected = torch.from_numpy(golden[f"{case}/{kind}/{names[key]}"]).double()
                np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=2e-7)
                moved[kind] += [torch.stack([ours.double() - first, expected - first]).flatten(1)]
        for kind, ways in moved.items():  # an average hardly moves: compare the way that it went
            went, published = torch.cat(ways, 1)
            assert (went - published).abs().median() < 0.1 * published.abs().median(), kind
    finally:
        head.load_state_dict(before)


@pytest.mark.parametrize("killed_at", range(1, 12))
def test_resume_gives_the_same_bytes_as_no_interruption(killed_at, tmp_path):
    whole = fit(head_fitting(), SETTINGS, tmp_path / "unused")
    saved = killed_at - killed_at % SETTINGS.checkpoint_every
    with pytest.raises(KeyboardInterrupt, match=f"^resumes at iteration {saved} of 12$"):
        fit(head_fitting(), SETTINGS, tmp_path, progress=killed(killed_at))
    resumed = fit(head_fitting(), SETTINGS, tmp_path)
    assert_same_bytes(weights(whole), weights(resumed))
    assert resumed.curve == whole.curve and resumed.lowest == whole.lowest
    assert resumed.curve[-1]["iteration"] == 12


@pytest.mark.parametrize("killed_at", [None, 7])
def test_kept_heads_are_the_averages_of_their_iterations(killed_at, tmp_path):
    averages = {}

    def keep(state):
        averages[state.iteration] = {k: v.clone() for k, v in state.average.items()}
        save_networks(tmp_path / f"{state.iteration}.safetensors", state.networks, state.average)

    if killed_at is not None:
        with pytest.raises(KeyboardInterrupt):
            fit(head_fitting(), SETTINGS, tmp_path, progress=killed(killed_at), after_each=keep)
    state = fit(head_fitting(), SETTINGS, tmp_path, after_each=keep)
    state.use_average()
    save_networks(tmp_path / "last.safetensors", state.networks)
    for iteration, average in averages.items():
        kept = load_file(tmp_path / f"{iteration}.safetensors")
        assert_same_bytes(average, {k: v for k, v in kept.items() if k in average})
    assert set(averages) == set(range(1, 13))
    kept, left = (load_file(tmp_path / f"{name}.safetensors") for name in (12, "last"))
    assert_same_bytes(kept, left)


def test_heads_trained_together_equal_heads_trained_alone(tmp_path):
    settings, probes = changed(checkpoint_every=100), {"ocm_3": 3, "ocm_2": 2}
    labels = ("ocm_3", *LEARNED, "ocm_2")
    together = weights(fit(head_fitting(labels, probes=probes), settings, tmp_path))
    for label in labels:
        alone = weights(fit(head_fitting([label], probes=probes), settings, tmp_path))
        assert_same_bytes(alone, {k: v for k, v in together.items() if f"/{label}." in k})


def test_accumulation_equals_one_large_batch(tmp_path):
    whole, parts = (
        fit(head_fitting(), changed(checkpoint_every=100, accumulate=n), tmp_path) for n in (1, 4)
    )
    torch.testing.assert_close(weights(parts), weights(whole), rtol=2e-4, atol=2e-6)
    assert parts.curve[-1] == pytest.approx(whole.curve[-1], rel=1e-4)


DISTRIBUTED = """
import os, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from safetensors.torch import save_file
from ocm_core.distributed import joined
from tests.core.test_training import changed, fit, head_fitting, weights
with joined(int(os.environ["LOCAL_RANK"])):
    found = weights(fit(head_fitting(), changed(checkpoint_every=100), Path(sys.argv[1])))
    save_file(found, f"{sys.argv[1]}/rank{torch.distributed.get_rank()}.safetensors")
"""
LEAVING = """
import os
from ocm_core.distributed import current_rank, joined
with joined(int(os.environ["LOCAL_RANK"])):
    assert current_rank().agreed(lambda: 3) == 3
"""


def run_in_processes(number: int, source: str, folder: Path) -> None:
    script = folder / "run.py"
    script.write_text(source)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={number}"]
    command = [*launcher, "--master-addr", "127.0.0.1", "--master-port", port, script, folder]
    environment = {"PYTHONPATH": str(Path.cwd()), "OMP_NUM_THREADS": "1"}
    environment |= {"GLOO_SOCKET_IFNAME": "lo"}
    subprocess.run(command, check=True, timeout=300, env=os.environ | environment)


def test_two_processes_train_what_one_trains(tmp_path):
    run_in_processes(2, DISTRIBUTED, tmp_path)
    one = weights(fit(head_fitting(), changed(checkpoint_every=100), tmp_path))
    ranks = [load_file(tmp_path / f"rank{rank}.safetensors") for rank in (0, 1)]
    assert_same_bytes(*ranks)
    torch.testing.assert_close(ranks[0], one, rtol=2e-4, atol=2e-6)


def test_processes_that_have_little_to_do_leave_in_order(tmp_path):
    """Each that ends while its threads listen aborts: one in three did."""
    run_in_processes(6, LEAVING, tmp_path)


def test_mixed_precision_trains_close_to_full(tmp_path):
    score = MlpScore(schedule.linear(100), 1.0, 16, 2)
    full = fit(head_fitting(["ocm"], score), SETTINGS, tmp_path / "a")
    lower = head_fitting(["ocm"], score)
    lower = replace(lower, denoiser=replace(lower.denoiser, precision=torch.bfloat16))
    half = fit(lower, SETTINGS, tmp_path / "b")
    assert half.smoothed["ocm"] == pytest.approx(full.smoothed["ocm"], rel=0.05)


class PlainScore(MlpScore):
    """Without the part that knows the data's variance, so that learning begins at zero."""

    def readout(self, features):
        return self.net(*features)


def test_score_matching_learns(tmp_path):
    torch.manual_seed(0)
    levels = schedule.linear(100)
    score = PlainScore(levels, PAIR.variance, 32, 2)
    x0 = torch.from_numpy(PAIR.draw(500, np.random.default_rng(0))).float()
    objective = ScoreMatching(Denoiser(score, levels), InMemory(x0), Decoder(None))
    state = fit(objective, changed(iterations=300, batch_size=64, learning_rate=5e-3), tmp_path)
    assert state.curve[0]["score"] == pytest.approx(2.0, abs=0.3)  # E‖ε‖² in the plane
    assert state.curve[-1]["score"] < 1.0


class Scripted:
    """An objective whose loss follows a script."""

    def __init__(self, values):
        self.networks, self.values = {"ocm": nn.Module()}, values
        self.networks["ocm"].weight = nn.Parameter(torch.ones(()))

    def draw(self, rng):
        return torch.full((len(rng.rows),), self.values[rng.iteration])

    def losses_on(self, values):
        return {"ocm": self.networks["ocm"].weight * values}


def test_a_loss_that_is_no_number_stops_with_the_last_good_checkpoint(tmp_path):
    losses = [1.0] * 8 + [float("nan")] * 4
    kept = rf"{tmp_path}/training.safetensors \(iteration 5\)"
    with pytest.raises(OcmError, match=f"training of 'ocm' diverged at iteration 8.*nan.*{kept}"):
        fit(Scripted(losses), SETTINGS, tmp_path)


@pytest.mark.parametrize(
    ("losses", "stops"),
    [([1.0] * 11 + [4.5e4], False), ([1.0] * 11 + [5.5e4], True), ([1e-6] * 6 + [1.0] * 6, False)],
)
def test_a_loss_explodes_from_a_thousandfold_on(losses, stops, tmp_path):
    """Smoothed: a fiftieth of 50,000. A tiny one may grow to a small one."""
    message = r"diverged at iteration 11.*grew 1000-fold"
    with pytest.raises(OcmError, match=message) if stops else nullcontext():
        fit(Scripted(losses), changed(learning_rate=1e-9), tmp_path)


def test_the_curve_is_of_smoothed_losses(tmp_path):
    state = fit(Scripted([1.0] * 11 + [51.0]), changed(learning_rate=1e-9), tmp_path)
    assert state.curve[-1]["ocm"] == pytest.approx(0.98 * 1.0 + 0.02 * 51.0, rel=1e-3)


@pytest.mark.parametrize(("label", "width"), [("sn", 16), ("ocm", 8)])
def test_a_checkpoint_of_other_networks_is_refused(label, width, tmp_path):
    fit(head_fitting(["ocm"]), SETTINGS, tmp_path)
    with pytest.raises(OcmError, match="holds other networks"):
        fit(head_fitting([label], width=width), SETTINGS, tmp_path)


def test_every_item_is_visited_once_per_epoch_in_batches_that_divide():
    with pytest.raises(OcmError, match="batch_size = 10 does not divide into 3 processes"):
        Rank(0, 3).rows(10, 1)
    items = np.concatenate([BatchRng(3, i, 10).items(25) for i in range(5)])
    assert sorted(items[:25]) == list(range(25)) and sorted(items[25:]) == list(range(25))
    assert not np.array_equal(items[:25], items[25:])


def test_a_process_draws_its_own_rows_and_they_are_those_of_the_whole_batch():
    def drawn(rows):
        rng = BatchRng(3, 4, 10, rows=rows)
        signs, items = [rng.signs((5,)) for _ in range(2)], torch.from_numpy(rng.items(25))
        return [items, rng.times(9), rng.uniforms(), rng.normals((2, 3)), *signs]

    whole = drawn(None)
    for rows in (range(0, 5), range(5, 10), range(7, 8)):
        for part, values in zip(drawn(rows), whole, strict=True):
            assert torch.equal(part, values[rows.start : rows.stop])
    assert len(torch.unique(whole[3])) == whole[3].numel()


def test_cosine_decay_goes_from_the_full_rate_to_nothing():
    rates = [learning_rate(SETTINGS, i) for i in range(12)]
    assert rates[0] == SETTINGS.learning_rate and rates == sorted(rates, reverse=True)
    assert rates[6] == pytest.approx(SETTINGS.learning_rate / 2)
    assert rates[4] == pytest.approx(SETTINGS.learning_rate * 3 / 4)
    assert learning_rate(changed(decay="constant"), 11) == SETTINGS.learning_rate


@pytest.mark.parametrize(("steps", "weight"), [(250, 0.25), (1000, 1.0), (4000, 4.0)])
def test_the_bound_of_a_learned_variance_has_the_weight_of_its_number_of_terms(steps, weight):
    """OpenAI's hybrid loss: T / 1000 times the bound's term, in bits."""
    torch.manual_seed(0)
    sizes = {"image_size": 4, "in_channels": 1, "patch_size": 2, "width": 8, "depth": 1}
    sizes |= {"attention_heads": 2, "num_classes": 2, "learns_variance": True}
    network = build("dit", sizes)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model = Denoiser(network.eval(), schedule.linear(steps))
    items = InMemory(torch.randn(6, 1, 4, 4), torch.zeros(6, dtype=torch.int64))
    found = ScoreMatching(model, items, Decoder(None)).losses(BatchRng(0, 0, 6))
    drawn = noisy_draws(items, model.schedule, BatchRng(0, 0, 6))
    seen = model.predict(drawn.noisy(model.schedule), drawn.t, drawn.label)
    batch = TrainingBatch(seen, drawn.x0, drawn.eps, Decoder(None))
    term = covariance.build("iddpm", source="network").loss(batch) / np.log(2)
    squares = ((drawn.eps - seen.eps) ** 2).flatten(1).sum(1)
    torch.testing.assert_close(found["score"], squares + weight * term)


@pytest.mark.parametrize("size", [1, 4, 7, 100])
def test_moments_do_not_depend_on_how_many_images_are_looked_at_together(size: int) -> None:
    denoiser = Denoiser(LabelledNetwork(0), Schedule(np.linspace(0.0, 0.3, 6)))
    x0, eps = torch.randn(2, 7, 4, 2, 2, dtype=torch.float64)
    label = torch.arange(7) % 4
    expected = estimate_at(denoiser, 3, x0, eps, label)
    found = estimate_at(denoiser, 3, x0, eps, label, batch_size=size)
    assert found.tolist() == pytest.approx(expected.tolist(), rel=1e-12)


@pytest.mark.parametrize("steps", [1, 20, 30, 31, 1000, 1003])
def test_the_grid_of_means_is_dense_at_small_t_and_ends_at_the_last(steps: int) -> None:
    times = timesteps(steps)
    assert times[:30] == list(range(1, min(30, steps) + 1))
    assert times[-1] == steps and max(np.diff(times), default=1) <= 10


def test_means_of_targets_are_those_of_the_exact_covariance() -> None:
    fitting = head_fitting(LEARNED)
    means = target_means(fitting, seed=0)
    assert set(means) == {*LEARNED} - {"iddpm"}
    levels, draw = fitting.denoiser.schedule, np.random.default_rng(1)
    for t in (3, 30, 60, 100):
        x0 = torch.from_numpy(PAIR.draw(2000, draw)).float()
        eps = torch.from_numpy(draw.standard_normal((2000, 2))).float()
        seen = fitting.denoiser.predict(q_sample(x0, eps, *levels.marginal(t)), t)
        c = covariance.build("exact_diag").c(seen).detach().double().mean()
        batch = fitting.predict(fitting.draw(BatchRng(5, t, 1000), torch.full((1000,), t)))
        for label, table in means.items():
            spread = fitting.methods[label].target(batch).detach().std() / (2 * 32) ** 0.5
            assert abs(float(table[t]) - float(c)) < 5 * float(spread) + 1e-3


@pytest.mark.parametrize("size", [1, 5, 100])
def test_means_do_not_depend_on_how_many_items_are_looked_at_together(size: int) -> None:
    assert target_means(head_fitting(("iddpm",)), seed=0) == {}
    fitting = head_fitting(("ocm",))
    found, expected = (target_means(fitting, 0, n)["ocm"] for n in (size, 32))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    assert float(found[0]) == 0.0 and len(found) == 101
    assert float(found[35]) == pytest.approx(float(found[30:41:10].mean()))


def test_a_mean_that_is_not_positive_is_that_of_a_gaussian() -> None:
    estimate, gaussian = torch.tensor([0.0, -0.1, 0.2, 1.5]), torch.tensor([0.1, 0.3, 0.5, 0.7])
    assert or_gaussian(estimate, gaussian).tolist() == pytest.approx([0.1, 0.3, 0.2, 1.5])


def test_the_noise_s_own_square_is_taken_off_in_one_minus_gamma() -> None:
    levels = schedule.linear(1000)
    x0 = torch.from_numpy(PAIR.draw(50, np.random.default_rng(0)))
    eps = torch.from_numpy(np.random.default_rng(1).standard_normal((50, 2)))
    model = exact(PAIR, levels)
    predicted = model.predict(q_sample(x0, eps, *levels.marginal(1000)), 1000).eps
    gamma, gamma_error, rest, error = estimate_at(model, 1000, x0, eps).tolist()
    assert gamma == pytest.approx(float((predicted**2).mean()))
    assert rest == pytest.approx(float((eps**2 - predicted**2).mean()))
    assert error < 0.05 * gamma_error


@pytest.mark.parametrize("points", [1, 2, 6, 250, 900])
def test_moments_on_a_grid_are_those_of_its_timesteps_and_linear_between(points: int) -> None:
    denoiser = Denoiser(QuadraticNetwork(4, 0), Schedule(np.linspace(0.0, 0.01, 251)))
    items = InMemory(torch.randn(9, 4, dtype=torch.float64))
    few = MomentSettings(draws=3, points=points, batch_size=3, seed=0)
    every, visited = few.model_copy(update={"points": None}), grid(few, 250)
    assert visited[0] == 1 and len(visited) == len({*visited}) == min(points, 250)
    table, whole = (
        tables(250, times, estimate(denoiser, items, few, times))["one_minus_gamma"]
        for times in (visited, grid(every, 250))
    )
    np.testing.assert_array_equal(table[visited], whole[visited])
    between = np.interp(range(251), [0, *visited], table[[0, *visited]])
    np.testing.assert_array_equal(table, between)


def test_dropout_in_the_frozen_trunk_is_seeded_by_the_batch() -> None:
    config = {"in_channels": 1, "base_channels": 32, "channel_multipliers": [1], "dropout": 0.5}
    config |= {"blocks_per_level": 1, "attention_levels": []}
    torch.manual_seed(0)
    network = build("ddpm_unet", config).requires_grad_(False)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    head = CovarianceHead(network.make_head("simple"))
    denoiser = Denoiser(network, schedule.linear(100), heads={"npr": head})
    items = InMemory(torch.randn(8, 1, 4, 4))
    fitting = HeadFitting(denoiser, {"npr": covariance.build("npr")}, items, Decoder(None))

    def losses(train: bool, iteration: int) -> torch.Tensor:
        network.train(train)
        rng = BatchRng(0, iteration, 8)
        rng.seed_torch()
        return fitting.losses(rng)["npr"].detach()

    assert torch.equal(losses(True, 3), losses(True, 3))
    assert not torch.equal(losses(True, 3), losses(False, 3))


def plainly_trained(fitting: HeadFitting, settings: OptimiserParams) -> dict[str, torch.Tensor]:
    """The weights and their average after training, as a few lines in one thread have it."""
    named = dict(nn.ModuleDict(fitting.networks).named_parameters())
    average = {name: p.detach().clone() for name, p in named.items()}
    adam = torch.optim.AdamW(named.values(), weight_decay=settings.weight_decay)
    for iteration in range(settings.iterations):
        adam.zero_grad()
        for rows in (range(0, 8), range(8, 16)):
            rng = BatchRng(settings.seed, iteration, 16, rows=rows)
            losses = fitting.losses(rng).values()
            (torch.stack([loss.sum() for loss in losses]).sum() / 16).backward()
        adam.param_groups[0]["lr"] = learning_rate(settings, iteration)
        adam.step()
        for name, parameter in named.items():
            average[name].lerp_(parameter.detach(), 1.0 - settings.ema)
    weights = {f"weights/{name}": p.detach() for name, p in named.items()}
    return weights | {f"average/{name}": value for name, value in average.items()}


@pytest.mark.parametrize("rate", [0.0, 0.5, 0.9])
def test_weights_and_average_are_the_bytes_of_a_plain_loop(rate, tmp_path):
    settings = changed(iterations=20, accumulate=2, ema=rate)
    found = weights(fit(head_fitting(), settings, tmp_path))
    expected = plainly_trained(head_fitting(), settings)
    assert_same_bytes({k: v for k, v in found.items() if k in expected}, expected)


def test_nothing_is_read_of_a_loss_between_two_looks(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "_CURVE_POINTS", 1)
    losses = [1.0] * 40 + [float("inf"), float("nan")] * 80
    with pytest.raises(OcmError, match=r"diverged at iteration 40: loss inf is not a finite"):
        fit(Scripted(losses), changed(iterations=200, checkpoint_every=1000), tmp_path)
