"""Embeddings of captions in the store: a row each, resumed, and looked up by label."""

from collections.abc import Callable
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
from ocm_core.latents import prompts
from ocm_core.latents.prompts import prompt_table, write_prompts
from ocm_core.schema.block import require
from ocm_core.schema.experiment import TextParams
from ocm_core.store.reader import open_split
from tests.init.folders import write_sd3, write_stable_diffusion

CAPTIONS = {"train": ["a dog", "a cat", "a dog", "x"], "test": ["a cat", "an ox"]}
ROWS = ["a cat", "a dog", "an ox", "x", ""]


@pytest.fixture(scope="module", params=[write_stable_diffusion, write_sd3])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With one array a prompt, and with two."""
    write: Callable[[Path], Path] = request.param
    return write(tmp_path_factory.mktemp("made") / "model")


@pytest.fixture
def data() -> DataSet:
    splits = {
        name: array_split(np.zeros((len(captions), 3, 4, 4), np.uint8), captions=captions)
        for name, captions in CAPTIONS.items()
    }
    return DataSet(splits, 256, {"archives": {}})


@pytest.fixture
def latent(folder: Path) -> Any:
    found = require(describe(folder).text)
    arrays = {name: list(shape) for name, shape in found.arrays.items()}
    text = TextParams(path=str(folder), digest=found.digest, arrays=arrays)
    return SimpleNamespace(text=text, batch_size=2)


def test_rows_are_written_by_several_jobs_and_found_by_label(
    folder: Path, data: DataSet, latent: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts, "SHARD", 2)
    places = {part: tmp_path / part for part in ("1of2", "2of2")}
    written = (write_prompts(at, part, data, latent, "cpu", iter) for part, at in places.items())
    assert sum(written) == len(ROWS)
    label, expected = torch.tensor([4, 1, 1, 0]), TextEncoder.load(folder)(ROWS)
    for held in (2**30, 0):  # on the device, or from the disk
        monkeypatch.setattr(prompts, "HELD", held)
        table = prompt_table(open_split([*places.values()], "prompts"))
        wanted = {name: array[label] for name, array in expected.items()}
        torch.testing.assert_close(table(label), wanted, atol=1e-5, rtol=0)


def test_a_killed_job_encodes_only_what_is_missing(
    data: DataSet, latent: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts, "SHARD", 2)
    encode, seen = TextEncoder.__call__, []

    def dying(encoder: TextEncoder, texts: list[str]) -> torch.Tensor:
        seen.append(texts)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return encode(encoder, texts)

    monkeypatch.setattr(TextEncoder, "__call__", dying)
    with pytest.raises(KeyboardInterrupt):
        write_prompts(tmp_path, "all", data, latent, "cpu", iter)
    assert write_prompts(tmp_path, "all", data, latent, "cpu", iter) == len(ROWS)
    assert seen == [ROWS[:2], ROWS[2:4], ROWS[2:4], ROWS[4:]]


def test_another_text_encoder_is_seen(data: DataSet, latent: Any, tmp_path: Path) -> None:
    latent.text = latent.text.model_copy(update={"digest": "0" * 64})
    with pytest.raises(OcmError, match="the text encoder has changed since the run was planned"):
        write_prompts(tmp_path, "all", data, latent, "cpu", iter)
