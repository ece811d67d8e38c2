"""What is trained is trained in the precision that its settings name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ocm_core.artifacts.training_set import TrainingSet
from ocm_core.errors import OcmError
from ocm_core.params.document import validate
from ocm_core.params.resolved import load
from ocm_core.pipeline.job import Job
from ocm_core.pipeline.sources import closure
from ocm_core.pipeline.table import BY_NAME, modules, tasks
from ocm_core.precision import Precision, set_precision
from ocm_core.stages import score
from ocm_core.training.batches import InMemory
from ocm_core.training.score_matching import ScoreMatching

FILE = Path("some.yaml")
SOME = InMemory(torch.zeros(1, 1, 8, 8))


class Stopped(Exception):  # noqa: N818
    """Nothing has to be trained to see what would be."""


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_score_network(precision: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """bfloat16 was accepted here and had no effect."""
    tree = load("digits").model_dump(mode="json")
    tree["train"]["score"]["precision"] = precision
    found = []

    def fit(objective: ScoreMatching, *_: object, **__: object) -> None:
        found.append(objective.denoiser.precision)
        raise Stopped

    monkeypatch.setattr(score, "open_training_set", lambda job, size: TrainingSet(SOME, 1.0))
    monkeypatch.setattr(score, "fit", fit)
    with pytest.raises(Stopped):
        score.run(Job(validate(tree, FILE), "score", "learned", {}, tmp_path, {}, "cpu"))
    assert found == [getattr(torch, precision)]


@pytest.mark.parametrize("name", ["vae", "classifier"])
def test_what_is_trained_in_single_precision_only_says_so(name: str) -> None:
    tree = load("mnist_latent").model_dump(mode="json")
    tree["train"][name]["precision"] = "bfloat16"
    with pytest.raises(OcmError, match=rf"train\.{name}\.precision: 'bfloat16'.*use 'tf32'"):
        validate(tree, FILE)


@pytest.mark.parametrize(
    "name", ["imagenet256", "cifar10_ls", "digits", "mnist_latent", "toy_mog9"]
)
def test_every_stage_on_a_gpu_asks_for_its_precision(name: str) -> None:
    """TF32 was asked for by sampling alone, and convolutions had it whatever was asked for."""
    experiment = load(name)
    computing = [t for t in tasks(experiment) if BY_NAME[t.stage].resources.gpu(experiment)]
    silent = [
        str(task)
        for task in computing
        if "ocm_core.precision" not in closure(modules(experiment, task))
    ]
    assert len(computing) > 3 and silent == []


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_float32_is_meant_for_convolutions_too(precision: Precision) -> None:
    lower = torch.bfloat16 if precision == "bfloat16" else torch.float32
    assert set_precision(precision) is lower
    allowed = precision != "float32"
    assert torch.backends.cuda.matmul.allow_tf32 is torch.backends.cudnn.allow_tf32 is allowed
