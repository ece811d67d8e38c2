"""The registry agrees with the recorded facts of the published code."""

import json
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch
from torch import nn

from ocm_core.checkpoints.registry import CHECKPOINTS, LAYOUTS, Checkpoint, checkpoint_named
from ocm_core.cli import main
from ocm_core.errors import OcmError
from ocm_core.networks import configuration
from ocm_core.networks.keys import count_values, export_published
from tests.networks.golden import ROOT, our_config

HEADS = {"simple": "simple", "complex": "complex", "final_layer_4_channels": "adaln"}
MILLIONS = {  # score network, and with the head that the paper used
    "cifar10_ls": (52.54, 52.55),
    "cifar10_cs": (52.54, 52.55),
    "celeba64": (78.70, 78.70),
    "imagenet64": (121.06, 121.49),
    "lsun_bedroom": (113.67, 114.04),
    "imagenet256": (675.13, 677.80),
}


@pytest.fixture(params=CHECKPOINTS)
def entry(request: pytest.FixtureRequest) -> Checkpoint:
    return CHECKPOINTS[request.param]


@pytest.fixture
def facts(entry: Checkpoint) -> Any:
    return json.loads((ROOT / "checkpoints" / f"{entry.name}.json").read_text())


def shapes(module: nn.Module) -> dict[str, list[int]]:
    return {key: list(tensor.shape) for key, tensor in export_published(module).items()}


def test_keys_shapes_and_counts_are_the_published_ones(entry: Checkpoint, facts: Any) -> None:
    with torch.device("meta"):
        network = entry.network()
        modes = [mode for mode, kind in HEADS.items() if kind in network.head_kinds]
        heads = {mode: network.make_head(HEADS[mode]) for mode in modes}
    assert shapes(network) == facts["state_dict"]
    assert count_values(network) == facts["parameters"]
    assert {tensor.dtype for tensor in network.state_dict().values()} == {torch.float32}
    for mode, head in heads.items():
        added = facts["heads"][mode]
        bare = added.get("added_shapes_without_prefix", {})
        prefixed = {f"final_layer2.{key}": shape for key, shape in bare.items()}
        assert shapes(head) == added.get("added_state_dict", prefixed)
        assert count_values(head) == added["parameters_added"]


def test_configuration_time_and_head_are_the_published_ones(entry: Checkpoint, facts: Any) -> None:
    assert facts["family"] == entry.family
    published = configuration(entry.family, our_config(facts["config"]))
    assert configuration(entry.family, entry.config) == published
    paper, times = facts["paper"], facts["timesteps"]
    assert paper.get("head_mode_used", "adaln") == entry.head
    stated = (paper["score_network_millions"], paper["with_head_millions"])
    assert stated == entry.paper_millions
    assert times["schedule"].startswith(entry.schedule) and times["N"] == entry.steps
    assert entry.time.shift == (0 if times["shift1"] is False else 1)
    scale = 1000 / entry.steps if times["rescale_timesteps"] else 1.0
    at_the_end = float(entry.time(torch.tensor([entry.steps])))
    assert at_the_end == (entry.steps - entry.time.shift) * scale


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
    monkeypatch.chdir(ROOT.parents[1])
    assert main(["networks", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["name"]: (row["millions"], row["millions_with_head"]) for row in rows} == MILLIONS
    assert {file.stem for file in (ROOT / "checkpoints").glob("*.json")} == set(CHECKPOINTS)
    assert main(["networks"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    for line, (without, total) in zip(lines, MILLIONS.values(), strict=True):
        assert f"{without:.2f}" in line and f"{total:.2f}" in line


def test_unknown_names_are_refused() -> None:
    with pytest.raises(OcmError, match=r"'celeba' is unknown; did you mean 'celeba64'\?"):
        checkpoint_named("celeba")
    with pytest.raises(OcmError, match=r"file of checkpoint 'imagenet256': 'x' is unknown"):
        checkpoint_named("imagenet256").source("x")
