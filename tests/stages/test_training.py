"""What the training stages hand to the training loop, and choose of what it leaves."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file, save_file

from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.errors import OcmError
from ocm_core.features import FeatureSpace
from ocm_core.io.checksums import remove_records
from ocm_core.metrics.frechet import Statistics
from ocm_core.metrics.precision_recall import Manifold
from ocm_core.networks.of_experiment import new_denoiser, new_score
from ocm_core.params.compose import compose
from ocm_core.pipeline.graph import graph_of
from ocm_core.pipeline.job import Job
from ocm_core.pipeline.sources import closure
from ocm_core.pipeline.stage import Task
from ocm_core.precision import Precision, set_precision
from ocm_core.stages import _networks, heads, score, selection
from ocm_core.stages.heads import Heads
from ocm_core.stages.reference import Reference
from ocm_core.stages.selection import SelectedHeads, _save, best, candidates
from ocm_core.training.batches import InMemory
from tests.stages.jobs import experiment_with, finished, job_of, visible

SOME = InMemory(torch.zeros(4, 1, 8, 8)), 1.0


class BegunError(Exception):
    """Nothing has to be trained to see what would be."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The objectives that the training loop is asked to minimise."""
    objectives: list[Any] = []

    def fit(objective: Any, *_: object, **__: object) -> None:
        objectives.append(objective)
        raise BegunError

    monkeypatch.setattr(_networks, "fit", fit)
    for module in (heads, _networks):
        monkeypatch.setattr(module, "open_training_set", lambda job, batch_size: SOME)
    return objectives


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_score_network_is_trained_in_its_precision(
    precision: str, asked: list[Any], tmp_path: Path
) -> None:
    """bfloat16 was once accepted here and had no effect."""
    experiment = compose("digits", [f"train.score.precision={precision}"])
    with pytest.raises(BegunError):
        score.run(job_of(experiment, Task("score", "trained"), tmp_path))
    assert asked[0].denoiser.precision == getattr(torch, precision)


@pytest.mark.parametrize("cdf", ["exact", "tanh"])
def test_the_bins_of_the_first_step_are_integrated_as_asked(
    cdf: str, asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = experiment_with("digits", [f"train.heads.cdf={cdf}"], ["iddpm"])
    denoiser = new_denoiser(experiment, new_score(experiment, "trained"))
    monkeypatch.setattr(heads, "load_score", lambda job, score: denoiser)
    with pytest.raises(BegunError):
        heads.run(job_of(experiment, Task("heads", "trained"), tmp_path))
    assert (asked[0].decoder.cdf, asked[0].decoder.levels) == (cdf, 17)


@pytest.mark.parametrize(
    "name", ["imagenet256", "cifar10_ls", "digits", "mnist_latent", "toy_mog9"]
)
def test_every_stage_on_a_gpu_asks_for_its_precision(name: str) -> None:
    """TF32 was once asked for by sampling alone, and convolutions had it whatever was asked for."""
    graph = graph_of(name)
    computing = [t for t in graph.tasks if graph.stage(t).computes_on_gpu(graph.experiment)]
    silent = [t for t in computing if "ocm_core.precision" not in closure(graph.modules(t))]
    assert len(computing) > 3 and silent == []


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_float32_is_meant_for_convolutions_too(precision: Precision) -> None:
    lower = torch.bfloat16 if precision == "bfloat16" else torch.float32
    assert set_precision(precision) is lower
    allowed = precision != "float32"
    assert torch.backends.cuda.matmul.allow_tf32 is torch.backends.cudnn.allow_tf32 is allowed


def test_fewer_images_than_a_batch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_networks, "open_split", lambda job, split: range(5))
    job = job_of(compose("digits"), Task("heads", "trained"), tmp_path)
    with pytest.raises(OcmError, match=r"train\.heads\.batch_size: 8, but there are 5 items"):
        _networks.open_training_set(job, 8)


# Heads that were fitted before


FEW = [
    *("network.width=8", "network.depth=1", "head.sizes={width: 8, depth: 1}"),
    *("train.heads.iterations=20", "train.heads.keep_every=10", "train.heads.batch_size=4"),
    *("train.heads.solve={draws: 2560, batch_size: 64}", "train.heads.checkpoint_every=10"),
]
OCM = "kind: ocm, head: {{baseline: gaussian, link: identity, fit: {}}}, init: ocm_relative"
FITS = {"ocm_relative": "train", "sn_relative": "train", "solved": "solve", "three": "solve_train"}
BOTH = ["ocm_relative", "sn_relative"]
ONE = BOTH[:1]
DEFINED = [
    f"++methods.solved={{{OCM.format('solve')}}}",
    f"++methods.three={{{OCM.format('solve_train')}, probes: 3}}",
]


@pytest.fixture
def fit_heads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Job]:
    """Fit the heads of these methods on the untrained network of a mixture."""
    items = InMemory(torch.randn(8, 2)), 1.0

    def fit_heads(name: str, labels: list[str], more: Any = (), before: Path | None = None) -> Job:
        task = Task("heads", "trained")
        experiment = experiment_with("toy_mog9", [*FEW, *DEFINED, *more], labels)
        torch.manual_seed(0)
        network = new_score(experiment, "trained").requires_grad_(False)
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.3)  # a new one's output is zero
        denoiser = new_denoiser(experiment, network)
        monkeypatch.setattr(heads, "load_score", lambda job, score: denoiser)
        monkeypatch.setattr(heads, "open_training_set", lambda job, batch_size: items)
        job = job_of(visible(experiment, task), task, tmp_path / name)
        job = replace(job, earlier=before)
        heads.run(job)
        return job

    return fit_heads


def left(job: Job) -> dict[str, bytes]:
    """Return the content of what a job leaves."""
    remove_records(job.folder)
    names = (file for file in job.folder.rglob("*") if file.is_file())
    return {str(file.relative_to(job.folder)): file.read_bytes() for file in names}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["ocm_relative"], ["ocm_relative", "sn_relative", "solved", "three"]),
        (["three", "sn_relative"], ["sn_relative", "ocm_relative", "three"]),
        (["ocm_relative", "sn_relative", "three", "solved"], ["sn_relative", "solved"]),
        (["solved"], ["ocm_relative", "solved"]),
    ],
)
def test_heads_of_the_same_methods_are_taken_over(
    before: list[str], after: list[str], fit_heads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh, earlier = fit_heads("fresh", after), fit_heads("earlier", before)
    was, place = left(earlier), finished(earlier)
    begun, fit = list[str](), _networks.fit

    def watched(objective: Any, *given: Any, **more: Any) -> Any:
        begun.extend(objective.methods)
        return fit(objective, *given, **more)

    monkeypatch.setattr(_networks, "fit", watched)
    grown = fit_heads("grown", after, (), place)
    new = {label for label in after if label not in before}
    assert {*begun} == {label for label in new if "train" in FITS[label]}
    assert left(grown) == left(fresh)
    assert (grown.notes, grown.pieces) == (fresh.notes, fresh.pieces)
    assert left(replace(earlier, folder=place)).items() >= was.items()


@pytest.mark.parametrize(
    "changed",
    [
        ["train.heads.learning_rate=0.125"],
        ["methods.ocm_relative.probes=2"],
        ["head.sizes.width=9"],
        ["schedule.steps=900"],
    ],
)
def test_heads_of_another_recipe_are_fitted_again(changed: list[str], fit_heads: Any) -> None:
    one, fresh = fit_heads("one", ONE), fit_heads("fresh", ONE, changed)
    before = left(one)
    other = fit_heads("other", ONE, changed, finished(one))
    assert left(other) == left(fresh) != before


def test_training_may_start_from_the_solution(fit_heads: Any) -> None:
    """A rate of nothing leaves it where it starts."""
    labels, still = ["solved", "three"], ["train.heads.learning_rate=1e-30"]
    job = fit_heads("both", labels, [*still, f"++methods.three={{{OCM.format('solve_train')}}}"])
    solved, trained = (load_file(Heads(job.folder).file(label)) for label in labels)
    torch.testing.assert_close(trained, solved)
    with pytest.raises(OcmError, match=r"three\.head\.fit: solutions by range are not trained"):
        fit_heads("ranges", labels, ["train.heads.solve.by_range=true"])


def test_a_head_that_is_damaged_is_fitted_again(fit_heads: Any) -> None:
    one = fit_heads("one", BOTH)
    whole, place = left(one), finished(one)
    file = Heads(place).file("ocm_relative", 10)
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    assert left(fit_heads("again", BOTH, (), place)) == whole


# Selection


def test_every_method_has_a_candidate_at_every_kept_iteration() -> None:
    found = candidates(compose("cifar10_ls_smoke"))
    assert [iteration for label, iteration in found if label == "ocm"] == [10, 20]


@pytest.mark.parametrize(
    ("distances", "chosen"),
    [
        ({("ocm", 10): 7, ("ocm", 20): 5, ("ocm", 30): 6, ("sn", 10): 4}, {"ocm": 20, "sn": 10}),
        ({("ocm", 20): 5, ("ocm", 10): 5, ("ocm", 30): 6}, {"ocm": 10}),  # of equals the earliest
    ],
)
def test_each_method_has_its_own_best_iteration(
    distances: dict[tuple[str, int], float], chosen: dict[str, int]
) -> None:
    assert best(distances) == chosen


def test_chosen_heads_are_of_their_iterations_and_lie_where_trained_ones_do(tmp_path: Path) -> None:
    trained = Heads(tmp_path / "heads")
    for iteration in (10, 20):
        for file in (trained.file(label, iteration) for label in ("ocm", "sn")):
            file.parent.mkdir(parents=True, exist_ok=True)
            save_file({"w": torch.tensor([float(iteration)])}, file)
    task = Task("selection", "trained")
    job = job_of(None, task, tmp_path / "made", {Heads.task("trained"): trained.folder})
    trained.file("npr").parent.mkdir(parents=True)
    save_file({"w": torch.tensor([30.0])}, trained.file("npr"))  # solved for: there is only one
    _save(job, {("ocm", 20): 5.0, ("sn", 10): 4.0}, ["npr"])
    selected = SelectedHeads(job.folder)
    weights = {k: load_file(selected.file(k))["w"].item() for k in ("ocm", "sn", "npr")}
    assert weights == {"ocm": 20.0, "sn": 10.0, "npr": 30.0}
    (tmp_path / "other").touch()
    modes = {file.stat().st_mode for file in job.folder.rglob("*") if file.is_file()}
    assert modes == {(tmp_path / "other").stat().st_mode}


KEPT = [
    *("train.heads.iterations=20", "train.heads.keep_every=10", "train.heads.batch_size=4"),
    "train.selection={kind: best_frechet, samples: 4, batch_size: 4, nfe: 2}",
]


@pytest.fixture
def select(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[Job, list[str]]]:
    """Choose among heads that stand for themselves, and return which ones drew samples."""
    space = FeatureSpace("pixels", None, "cpu", lambda images: images.flatten(1)[:, :2].float())
    real = torch.arange(8.0).reshape(4, 2) ** 2
    made = job_of(None, Task("reference"), tmp_path / "reference")
    Reference(made.folder).save(Statistics.over([real]), Manifold.of(real, neighbours=1))
    inputs = {Reference.task("classifier"): finished(made)}
    drawn: list[str] = []

    def draw(job: Job, denoiser: Denoiser, label: str) -> torch.Tensor:
        drawn.append(f"{label}-{denoiser.heads[label]:g}")
        return torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(len(label)))

    def load(heads: Heads, job: Job, net: Any, labels: list[str], after: int) -> dict[str, float]:
        return {k: load_file(heads.file(k, after))["w"].item() for k in labels}

    monkeypatch.setattr(selection, "load_space", lambda job, name: space)
    monkeypatch.setattr(selection, "load_denoiser", lambda job, score: Denoiser(Mock(), Mock()))
    monkeypatch.setattr(selection, "executed", lambda denoiser, **settings: denoiser)
    monkeypatch.setattr(selection, "_samples", draw)
    monkeypatch.setattr(Heads, "load", load)

    def select(
        name: str, methods: dict[str, float], more: Any = (), before: Path | None = None
    ) -> tuple[Job, list[str]]:
        drawn.clear()
        experiment = experiment_with("digits", [*KEPT, *more], [*methods])
        fitted = job_of(None, Heads.task("trained"), tmp_path / name / "heads")
        for label, after in product(methods, (10, 20)):
            file = Heads(fitted.folder).file(label, after)
            file.parent.mkdir(parents=True, exist_ok=True)
            save_file({"w": torch.tensor([methods[label] + after])}, file)
        task, folders = Task("selection", "trained"), inputs | {fitted.task: finished(fitted)}
        job = job_of(visible(experiment, task), task, tmp_path / name, folders)
        selection.run(replace(job, earlier=before))
        return job, [*drawn]

    return select


@pytest.mark.parametrize(
    ("methods", "more", "anew"),
    [
        ({"ocm": 0.0, "sn": 0.0, "npr": 0.0}, [], ["npr-10", "npr-20"]),
        ({"sn": 0.0}, [], []),
        ({"ocm": 1.0, "sn": 0.0}, [], ["ocm-11", "ocm-21"]),  # heads that were fitted again
        ({"sn": 0.0}, ["train.selection.nfe=3"], ["sn-10", "sn-20"]),
        ({"sn": 0.0}, ["sample.clip.x0=2.0"], ["sn-10", "sn-20"]),
    ],
)
def test_candidates_of_the_same_heads_are_not_drawn_again(
    methods: dict[str, float], more: list[str], anew: list[str], select: Any
) -> None:
    one, drawn = select("one", {"ocm": 0.0, "sn": 0.0})
    assert drawn == ["ocm-10", "ocm-20", "sn-10", "sn-20"]
    fresh, _ = select("fresh", methods, more)
    again, drawn = select("again", methods, more, finished(one))
    assert drawn == anew
    assert left(again) == left(fresh)
