"""Embeddings of captions in the store: a row each, resumed, and looked up by label."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ocm_core.checkpoints.diffusers_folder import describe
from ocm_core.checkpoints.diffusers_models import TextEncoder
from ocm_core.datasets.base import DataSet, array_split
from ocm_core.errors import OcmError
from ocm_core.pipeline.stage import Task
from ocm_core.schema.experiment import TextParams
from ocm_core.stages import _prompts as prompts
from tests.init.folders import write_stable_diffusion
from tests.stages.jobs import job_of

CAPTIONS = {"train": ["a dog", "a cat", "a dog", "x"], "test": ["a cat", "an ox"]}
ROWS = ["a cat", "a dog", "an ox", "x", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stable_diffusion(tmp_path_factory.mktemp("sd") / "model")


@pytest.fixture
def data() -> DataSet:
    splits = {
        name: array_split(np.zeros((len(captions), 3, 4, 4), np.uint8), captions=captions)
        for name, captions in CAPTIONS.items()
    }
    return DataSet(splits, 256, {"archives": {}})


def prompts_job(folder: Path, place: Path, part: str) -> Any:
    found = describe(folder).text
    assert found is not None
    text = TextParams(path=str(folder), digest=found.digest, tokens=found.tokens, width=found.width)
    latent = SimpleNamespace(text=text, batch_size=2)
    experiment = SimpleNamespace(encode=SimpleNamespace(latent=latent))
    folders = {Task("encode", f"{n}of2"): place / f"{n}of2/artifact" for n in (1, 2)}
    return job_of(experiment, Task("encode", part), place / part, folders)


def test_rows_are_written_by_several_jobs_and_found_by_label(
    folder: Path, data: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts, "SHARD", 2)
    jobs = [prompts_job(folder, tmp_path, part) for part in ("1of2", "2of2")]
    assert sum(prompts.write(job, data) for job in jobs) == len(ROWS)
    expected, label = TextEncoder.load(folder)(ROWS), torch.tensor([4, 1, 1, 0])
    for held in (2**30, 0):  # on the device, or from the disk
        monkeypatch.setattr(prompts, "HELD", held)
        network = torch.nn.Module()
        prompts.attach(jobs[0], network)  # type: ignore[arg-type]
        torch.testing.assert_close(network.prompts(label), expected[label], atol=1e-6, rtol=0)


def test_a_killed_job_encodes_only_what_is_missing(
    folder: Path, data: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts, "SHARD", 2)
    job, encode, seen = prompts_job(folder, tmp_path, "all"), TextEncoder.__call__, []

    def dying(encoder: TextEncoder, texts: list[str]) -> torch.Tensor:
        seen.append(texts)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return encode(encoder, texts)

    monkeypatch.setattr(TextEncoder, "__call__", dying)
    with pytest.raises(KeyboardInterrupt):
        prompts.write(job, data)
    assert prompts.write(job, data) == len(ROWS)
    assert seen == [ROWS[:2], ROWS[2:4], ROWS[2:4], ROWS[4:]]


def test_another_text_encoder_is_seen(folder: Path, data: DataSet, tmp_path: Path) -> None:
    job = prompts_job(folder, tmp_path, "all")
    changed = job.experiment.encode.latent.text.model_copy(update={"digest": "0" * 64})
    job.experiment.encode.latent.text = changed
    with pytest.raises(OcmError, match="the text encoder has changed since the run was planned"):
        prompts.write(job, data)
