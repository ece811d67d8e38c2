"""Costs by trajectories: closed forms for Gaussian data, and timesteps that follow from them."""

import re
from itertools import combinations, pairwise
from math import sqrt
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ocm_core.covariance.interface import Clip
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.mixture import Mixture
from ocm_core.diffusion.timesteps import StepCosts
from ocm_core.errors import OcmError
from ocm_core.networks.of_experiment import new_denoiser, new_score
from ocm_core.params.compose import compose
from ocm_core.pipeline.stage import Task
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.sampling.trajectories import Trajectories
from ocm_core.schema.timesteps import OptimalTimesteps
from ocm_core.stages import timesteps as stage
from tests.core.doubles import LabelledNetwork, Replay, WaveNetwork, exact
from tests.stages.jobs import experiment_with, job_of

T, STD = 60, 0.4
LEVELS = schedules.linear(T)
GRID = [1, 4, 9, 20, 33, 47, T]
TIMES = (0, *GRID)
GAUSSIAN = exact(Mixture(torch.zeros(1, 2, dtype=torch.float64), STD), LEVELS)
Z = torch.randn(50, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def of(model: Denoiser, x: torch.Tensor, grid: list[int] = GRID, **how) -> StepCosts:
    return Trajectories(model, **how).step_costs(grid, x, lambda t: Replay([x]))["gits"]


def factor(s: int, t: int) -> float:
    """DDIM's x_s / x_t: the score of Gaussian data is linear."""
    (alpha_s, b_s), (alpha_t, b_t) = LEVELS.marginal(s), LEVELS.marginal(t)
    return (sqrt(alpha_s * alpha_t) * STD**2 + sqrt(b_s * b_t)) / (alpha_t * STD**2 + b_t)


def test_costs_are_those_of_a_gaussian() -> None:
    found = of(GAUSSIAN, Z).steps
    path = {T: 1.0}  # the fine trajectory, relative to x_T
    for s, t in rules.downward(tuple(GRID)):
        path[s] = path[t] * factor(s, t)
    for (i, s), (j, t) in combinations(enumerate(TIMES), 2):
        expected = (path[t] * factor(s, t) - path[s]) ** 2 * float((Z**2).mean())
        assert found[i, j] == pytest.approx(expected, rel=1e-6, abs=1e-12)
    assert all(found[i, i + 1] == 0 for i in range(len(GRID)))
    assert np.isinf(found[np.tril_indices(len(TIMES))]).all()


def test_timesteps_begin_at_the_end_and_cost_least() -> None:
    costs = of(GAUSSIAN, Z)
    found = costs.optimal()
    assert {*found} == {*range(1, len(TIMES))} and found[len(GRID)] == tuple(GRID)
    for nfe, best in found.items():
        chains = [(*chosen, T) for chosen in combinations(GRID[:-1], nfe - 1)]
        assert best in chains
        assert costs.cost(best) == pytest.approx(min(costs.cost(chain) for chain in chains))


def test_the_network_is_evaluated_once_for_each_timestep_and_x0_is_limited() -> None:
    asked: list[float] = []

    class Counting(Denoiser):
        def predict(self, x, t, label=None):
            asked.append(t)
            return super().predict(x, t, label)

    model, x = Counting(WaveNetwork(), LEVELS), 3 * Z.float().view(25, 1, 2, 2)
    free, limited = (of(model, x, clip=Clip(x0=limit)).steps for limit in (None, 0.2))
    assert asked == 2 * GRID[::-1]
    assert not np.allclose(free[0, 2:], limited[0, 2:])
    # into 0 the limited x̂_0 itself is shown: two of them differ by 0.4 at most
    assert (limited[0, 1:] <= 0.4**2 + 1e-6).all() and free[0, -1] > 0.4**2


def test_labels_reach_the_network() -> None:
    model = Denoiser(LabelledNetwork(0), LEVELS)
    x = torch.randn(3, 4, 2, 2, dtype=torch.float64)
    costs = [
        Trajectories(model).step_costs(GRID, x, lambda t: Replay([x]), torch.tensor(labels))["gits"]
        for labels in ([0, 0, 0], [1, 1, 1])
    ]
    assert not np.allclose(costs[0].steps[0, 3:], costs[1].steps[0, 3:])


def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **changes: int):
    overrides = ["network.scores=[exact]", "train.timesteps.points=9", "train.timesteps.images=20"]
    overrides += [f"train.timesteps.{key}={value}" for key, value in changes.items()]
    experiment = experiment_with("toy_mog9", overrides, ["beta", "exact_diag"])
    model = new_denoiser(experiment, new_score(experiment, "exact"))
    data = 0.5 * torch.randn(30, 2, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(stage, "open_split", lambda *_: data)
    monkeypatch.setattr(stage, "read_rows", lambda job, split, rows, _: (data[rows], None))
    monkeypatch.setattr(stage, "load_denoiser", lambda *_: model)
    made = job_of(experiment, Task("timesteps", "exact"), tmp_path)
    stage.run(made)
    return made, model


def found_by(made) -> dict[str, dict[int, rules.Timesteps]]:
    taken = SimpleNamespace(find=lambda kind, score: stage.StepCostTable(made.folder))
    return stage.optimal_timesteps(taken, "exact")


def test_the_stage_adds_them_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, _ = job(tmp_path / "plain", monkeypatch)
    made, model = job(tmp_path / "more", monkeypatch, trajectories=12, batch_size=5)
    bounds = [f"{m}{v}" for m in ("beta", "exact_diag") for v in ("", "/fixed", "/method")]
    assert [*found_by(plain)] == bounds
    found = found_by(made)
    assert [*found] == [*bounds, "gits"]
    drawn = stage.stream(stage.Stream.TIMESTEPS_ITEMS, 5).permutation(30)[:12]
    noise = SampleNoise(5, sorted(drawn.tolist()), (2,), use=NoiseFor.TIMESTEPS).normal()
    last = len(found["gits"])
    costs = of(model, noise, [*found["gits"][last]], clip=Clip())
    assert found["gits"] == costs.optimal()
    chosen = rules.build(OptimalTimesteps(of="gits"), model.schedule, 3, "beta", found)
    assert chosen == found["gits"][3] and chosen[-1] == model.schedule.steps


def test_the_bounds_beside_them_are_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [
        job(tmp_path / str(count), monkeypatch, **changes)[0].folder / stage.BOUNDS
        for count, changes in enumerate(({}, {"trajectories": 4}))
    ]
    assert files[0].read_bytes() == files[1].read_bytes()


OF_GITS = "++sample.samplers.ddim.timesteps={kind: optimal, of: gits}"


def test_a_sampler_of_an_experiment_uses_them() -> None:
    compose("digits", [OF_GITS, "train.timesteps.trajectories=8"])
    with pytest.raises(OcmError, match=re.escape("'gits' needs train.timesteps.trajectories")):
        compose("digits", [OF_GITS, "train.timesteps.trajectories=null"])
    with pytest.raises(OcmError, match="decoder_variance: timesteps of 'gits' have no decoder"):
        compose("digits", [OF_GITS[:-1] + ", decoder_variance: method}"])
    named = ["+methods.gits={kind: beta}", "train.timesteps.methods=[ocm_relative, gits]"]
    with pytest.raises(OcmError, match="'gits' names timesteps; give the method another label"):
        compose("digits", named)


def test_they_use_the_steps_where_they_are_needed() -> None:
    """Five of them end nearer to the fine trajectory's end than five even steps, on a mixture."""
    modes = Mixture(torch.tensor([[-1.0, 0.5], [1.0, -0.5]], dtype=torch.float64), 0.2)
    model = exact(modes, LEVELS)
    costs = of(model, Z, [*range(1, T + 1)])
    best, even = costs.optimal()[5], rules.even(T, 5)
    assert costs.cost(best) < 0.5 * costs.cost(even)
    assert all(later > earlier for earlier, later in pairwise(best))
