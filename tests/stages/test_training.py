"""What the training stages hand to the training loop, and choose of what it leaves."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from ocm_core.errors import OcmError
from ocm_core.params.compose import compose
from ocm_core.pipeline.graph import graph_of
from ocm_core.pipeline.sources import closure
from ocm_core.pipeline.stage import Task
from ocm_core.precision import Precision, set_precision
from ocm_core.stages import _networks, heads, score
from ocm_core.stages._networks import new_denoiser, new_score
from ocm_core.stages.heads import Heads
from ocm_core.stages.selection import SelectedHeads, _save, best, candidates
from ocm_core.training.batches import InMemory
from tests.stages.jobs import experiment_with, job_of

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


@pytest.mark.parametrize("name", ["vae", "classifier"])
def test_what_is_trained_in_single_precision_only_says_so(name: str) -> None:
    with pytest.raises(
        OcmError, match=rf"train\.{name}\.precision: 'bfloat16'.*valid: float32, tf32"
    ):
        compose("mnist_latent", [f"train.{name}.precision=bfloat16"])


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
        values = {f"{label}.w": torch.tensor([float(iteration)]) for label in ("ocm", "sn")}
        trained.kept(iteration).parent.mkdir(parents=True, exist_ok=True)
        save_file(values, trained.kept(iteration))
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
