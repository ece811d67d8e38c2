"""The registry agrees with the recorded facts of the published code."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import torch

from ocm_core.checkpoints.layouts import LAYOUTS
from ocm_core.checkpoints.registry import CHECKPOINTS, Checkpoint, checkpoint_named
from ocm_core.cli import main
from ocm_core.errors import OcmError
from ocm_core.networks.keys import export_published

GOLDENS = Path(__file__).parents[1] / "goldens" / "checkpoints"
MILLIONS = {
    "cifar10_ls": (52.54, 52.55),
    "cifar10_cs": (52.54, 52.55),
    "celeba64": (78.70, 78.70),
    "imagenet64": (121.06, 121.49),
    "lsun_bedroom": (113.67, 114.04),
    "imagenet256": (675.13, 677.80),
}

every_checkpoint = pytest.mark.parametrize("entry", CHECKPOINTS.values(), ids=list(CHECKPOINTS))


def golden(entry: Checkpoint) -> dict:
    return json.loads((GOLDENS / f"{entry.name}.json").read_text())


def test_the_six_are_there() -> None:
    assert {file.stem for file in GOLDENS.glob("*.json")} == set(CHECKPOINTS)


@every_checkpoint
def test_keys_and_shapes_are_the_published_ones(entry: Checkpoint) -> None:
    with torch.device("meta"):
        exported = export_published(entry.network())
    shapes = {key: list(tensor.shape) for key, tensor in exported.items()}
    assert shapes == golden(entry)["state_dict"]
    assert {tensor.dtype for tensor in exported.values()} == {torch.float32}


@every_checkpoint
def test_arguments_are_the_published_ones(entry: Checkpoint) -> None:
    published = golden(entry)["config"]
    assert {name: published[name] for name in entry.arguments} == dict(entry.arguments)
    assert golden(entry)["family"] == entry.family


@every_checkpoint
def test_schedule_and_network_time_are_the_published_ones(entry: Checkpoint) -> None:
    facts = golden(entry)["timesteps"]
    assert facts["schedule"].startswith(entry.schedule)
    assert facts["N"] == entry.steps
    assert entry.time.shift == (0 if facts["shift1"] is False else 1)
    scale = 1000 / entry.steps if facts["rescale_timesteps"] else 1.0
    at_the_end = float(entry.time(torch.tensor([entry.steps])))
    assert at_the_end == (entry.steps - entry.time.shift) * scale


@every_checkpoint
def test_the_head_is_the_one_of_the_paper(entry: Checkpoint) -> None:
    paper = golden(entry)["paper"]
    assert paper.get("head_mode_used", "adaln") == entry.head
    assert paper["score_network_millions"] == entry.paper_millions
    assert paper["with_head_millions"] == entry.paper_millions_with_head


@every_checkpoint
def test_sources_are_usable(entry: Checkpoint) -> None:
    files = [source.file for source in entry.sources]
    assert len(set(files)) == len(files)
    assert entry.source().url, "the first source is the one that is downloaded"
    for source in entry.sources:
        assert source.layout in LAYOUTS
        assert source.url is None or urlsplit(source.url).scheme == "https"
        assert source.url or source.note, "without an address, a word on where to look"


def test_networks_prints_the_counts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(GOLDENS.parents[2])
    assert main(["networks", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["name"]: (row["millions"], row["millions_with_head"]) for row in rows} == MILLIONS
    assert main(["networks"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    for line, (without, total) in zip(lines, MILLIONS.values(), strict=True):
        assert f"{without:.2f}" in line and f"{total:.2f}" in line


def test_unknown_names_are_refused() -> None:
    with pytest.raises(OcmError, match=r"'celeba' is unknown; did you mean 'celeba64'\?"):
        checkpoint_named("celeba")
    with pytest.raises(OcmError, match=r"file of checkpoint 'imagenet256': 'x' is unknown"):
        checkpoint_named("imagenet256").source("x")
