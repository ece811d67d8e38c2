"""Evaluations on test images: shared among processes, and of a score that is known."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod, sqrt
from pathlib import Path
from typing import Any

import pytest
import torch

from ocm_core.diffusion import schedule, timesteps
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.mixture import mixture
from ocm_core.distributed import Rank
from ocm_core.networks.mixture import MixtureScore
from ocm_core.params.compose import compose
from ocm_core.pipeline import pieces
from ocm_core.pipeline.job import Job
from ocm_core.pipeline.stage import Task
from ocm_core.stages import _evaluation, jacobian, likelihood, score_loss
from tests.stages.jobs import (
    LEVELS,
    SHAPE,
    experiment_with,
    finished,
    gaussian_images,
    job_of,
    visible,
)

# The likelihood: processes that share its batches leave what one leaves

IMAGES = 23
METHODS = ["beta", "exact_diag"]
CHOSEN = [
    "network.scores=[exact]",
    f"evaluate.likelihood.methods=[{','.join(METHODS)}]",
    "evaluate.likelihood.timesteps={even: {kind: even}}",
    "evaluate.likelihood.nfe=[2,5]",
    "evaluate.likelihood.batch_size=5",
    f"train.timesteps.methods=[{','.join(METHODS)}]",
]


@dataclass(frozen=True)
class InTurn(Rank):
    """One of several processes that run one after another, the first one last."""

    decided: Any = None  # in turn: the bounds that are missing, then their batches

    def agreed(self, decide: Callable[[], Any]) -> Any:
        decide()
        return next(self.decided)

    def wait(self) -> None:
        pass


@pytest.fixture
def run(stored: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    levels = schedule.of_experiment(compose("toy_mog9"))

    def run(place: Path, rank: Rank, more: Sequence[str] = (), earlier: Path | None = None) -> Job:
        chosen = [*CHOSEN, *more]
        asked = likelihood.STAGE.settings(compose("toy_mog9", chosen)).methods
        experiment = experiment_with("toy_mog9", chosen, asked)
        denoiser = Denoiser(MixtureScore(mixture(experiment.data), levels).eval(), levels)
        stored(likelihood, torch.linspace(-1, 1, 2 * IMAGES).view(IMAGES, 2), denoiser)
        for module in (likelihood, pieces):
            monkeypatch.setattr(module, "current_rank", lambda: rank)
        seen = visible(experiment, Task("likelihood"))
        job = replace(job_of(seen, Task("likelihood"), place), earlier=earlier)
        likelihood.run(job)
        return job

    return run


def names(folder: Path) -> list[str]:
    return sorted(file.stem for file in folder.glob("*.safetensors"))


@pytest.mark.parametrize("processes", [2, 3, 7])
def test_several_compute_what_one_computes(processes: int, run: Any, tmp_path: Path) -> None:
    alone = run(tmp_path / "alone", Rank())
    bounds, batches = names(alone.folder / "pieces"), names(alone.state)
    for index in reversed(range(processes)):
        decided = iter([[f"exact-even-{m}-{n}" for m in METHODS for n in (2, 5)], batches])
        shared = run(tmp_path / "shared", InTurn(index, processes, decided))
    one, several = (likelihood.Bounds(job.folder).load() for job in (alone, shared))
    assert [*one] == [*several]
    assert {row.measure for row in one} >= {"bits_per_dim", "bits_per_dim_prior"}
    assert all(row.value == row.value for row in one), "no NaN"
    assert names(shared.state) == batches and names(shared.folder / "pieces") == bounds


def test_what_is_lost_meanwhile_is_said(run: Any, tmp_path: Path) -> None:
    decided = iter([["exact-even-beta-2"], ["bits-of-another"]])
    with pytest.raises(KeyError, match="bits-of-another"):
        run(tmp_path / "one", InTurn(0, 2, decided))


QUADRATIC = "{even: {kind: even}, quadratic: {kind: quadratic}}"
ONE_MORE = {
    "nfe": (["evaluate.likelihood.nfe=[2,5,9]"], {"even-beta-9", "even-exact_diag-9"}),
    "a method less": (["evaluate.likelihood.methods=[beta]"], set()),
    "rule": (
        [f"evaluate.likelihood.timesteps={QUADRATIC}"],
        {f"quadratic-{m}-{n}" for m in METHODS for n in (2, 5)},
    ),
    "fewer of one method": (["evaluate.likelihood.nfe_by_method={beta: [2]}"], set()),
    "another seed": (
        ["evaluate.likelihood.seed=77"],
        {f"even-{m}-{n}" for m in METHODS for n in (2, 5)},
    ),
}


@pytest.mark.parametrize("edit", ONE_MORE)
def test_one_more_bound_reads_what_is_there(
    edit: str, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more, computed = ONE_MORE[edit]
    earlier = finished(run(tmp_path / "before", Rank()))
    found: list[str] = []
    compute = likelihood._compute

    def counted(model: Any, cells: Any, count: int) -> None:
        found.extend(name.removeprefix("exact-") for name in cells)
        compute(model, cells, count)

    monkeypatch.setattr(likelihood, "_compute", counted)
    grown = run(tmp_path / "grown", Rank(), more, earlier)
    assert set(found) == computed
    fresh = run(tmp_path / "fresh", Rank(), more)
    one, other = (likelihood.Bounds(job.folder).load() for job in (grown, fresh))
    assert [*one] == [*other]


def test_a_rule_with_a_decoder_differs_in_that_term_alone(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the same timesteps; and its bounds stand beside those that are there."""
    chosen = {f"{m}/fixed": {n: timesteps.even(1000, n) for n in (2, 5)} for m in METHODS}
    monkeypatch.setattr(_evaluation, "optimal_timesteps", lambda *_: chosen)
    rules = "{even: {kind: even}, other: {kind: optimal, decoder_variance: fixed}}"
    earlier = finished(run(tmp_path / "before", Rank()))
    job = run(tmp_path / "after", Rank(), [f"evaluate.likelihood.timesteps={rules}"], earlier)
    found = {
        (row.measure, row.timesteps, row.method, row.nfe): row.value
        for row in likelihood.Bounds(job.folder).load()
        if row.measure.startswith("bits_per_dim_")
    }
    for (measure, rule, *place), value in found.items():
        if rule == "other" and measure in ("bits_per_dim_steps", "bits_per_dim_prior"):
            assert value == found[measure, "even", *place]
        if rule == "other" and measure == "bits_per_dim_decoder":
            assert value != found[measure, "even", *place]


@pytest.mark.parametrize("stage", [likelihood, score_loss])
def test_the_work_is_that_of_test_images(stage: Any) -> None:
    """Those of the training set were once counted, too."""
    block = f"++evaluate.{stage.STAGE.name}"
    given = [f"{block}.images={count}" for count in ("null", 180)]
    loss = "++evaluate.score_loss={batch_size: 64}"
    whole, some = (compose("digits", [loss, one]) for one in given)
    ratio = stage.STAGE.work(whole, "all").passes / stage.STAGE.work(some, "all").passes
    assert ratio == pytest.approx(whole.data.count_items()["test"] / 180)


# The loss of a score that is known in closed form

VARIANCE, ITEMS = 0.25, 1000
DATA, SCORE = gaussian_images(VARIANCE, ITEMS)


@pytest.fixture
def loss(stored: Any, tmp_path: Path) -> Callable[..., tuple[float, float]]:
    """Return the loss on so many images, and its error."""
    stored(score_loss, DATA, SCORE)

    def measured(images: int | None, batch: int = 64) -> tuple[float, float]:
        count = "null" if images is None else images
        block = f"++evaluate.score_loss={{images: {count}, batch_size: {batch}, seed: 3}}"
        place = tmp_path / f"{images}-{batch}"
        job = job_of(compose("digits", [block]), Task("score_loss"), place)
        score_loss.run(job)
        (row,) = score_loss.ScoreLoss(job.folder).load()
        return row.value, float(row.error)

    return measured


@pytest.mark.parametrize("images", [None, 500])
def test_of_gaussian_data_it_is_known(images: int | None, loss: Any) -> None:
    """Its best prediction leaves ᾱ s² / (ᾱ s² + b) of ε²; at all timesteps or every other."""
    signal = VARIANCE * LEVELS.alpha_bar[1:]
    left = signal / (signal + LEVELS.b[1:])
    noise = sqrt(2 / prod(SHAPE) * float((left**2).mean()) / (images or ITEMS))
    value, error = loss(images)
    assert value == pytest.approx(float(left.mean()), abs=4 * noise)
    assert noise < error < 0.1 * value


def test_batches_do_not_matter(loss: Any) -> None:
    assert loss(300, 7) == pytest.approx(loss(300, 300), rel=1e-6)


def test_the_score_of_gaussian_data_is_a_posterior_mean(stored: Any, tmp_path: Path) -> None:
    stored(jacobian, DATA, SCORE)
    asked = compose("digits", ["++evaluate.jacobian={images: 64}"])
    jacobian.run(job := job_of(asked, Task("jacobian"), tmp_path))
    found = {row.measure: row.value for row in jacobian.JacobianTable(job.folder).load()}
    assert found.pop("jacobian_ratio") == pytest.approx(1.0, abs=0.1)
    assert found == pytest.approx({"jacobian_asymmetry": 0.0, "jacobian_negative": 0.0}, abs=1e-4)
