"""The doctor names what is missing, and its figures are those of the stages themselves."""

from __future__ import annotations

import json
import random
import re
from math import prod
from pathlib import Path

import pytest
import torch

from ocm_core.cells import cells, parts
from ocm_core.cli import main
from ocm_core.datasets.base import DataParams
from ocm_core.doctor import diagnosis, disk, files, machine, pace
from ocm_core.errors import OcmError
from ocm_core.io.reading import unlike_its_name
from ocm_core.params.compose import compose
from ocm_core.pipeline.graph import Graph
from ocm_core.pipeline.stage import Task
from ocm_core.pipeline.state import UP_TO_DATE

from .stages import graph_on

STALE = "stale: made with other parameters"


@pytest.fixture
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_stages: None) -> Path:
    """No artifacts, weights or archives, whatever this checkout has; nothing is timed."""
    monkeypatch.setattr("ocm_core.checkpoints.registry.FOLDER", tmp_path / "checkpoints")
    monkeypatch.setattr("ocm_core.features.inception.FOLDER", tmp_path / "checkpoints/inception")
    monkeypatch.setattr(files, "ARCHIVES", tmp_path / "datasets")
    monkeypatch.setattr(pace, "_timed", lambda experiment, device: 1e9)
    monkeypatch.setattr(diagnosis, "this_device", lambda: "cpu")
    monkeypatch.setattr(diagnosis, "states", lambda graph: all_are(graph, "missing"))
    monkeypatch.setattr("ocm_core.pipeline.graph.graph_of", lambda name: Graph(compose(name)))
    return tmp_path


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["doctor", *arguments])
    return code, capsys.readouterr().out


def all_are(graph: Graph, state: str) -> dict[Task, str]:
    return dict.fromkeys(graph.tasks, state)


SIZES = {  # items, and bytes of one: values, label, index
    "digits": (1797, 64 + 8 + 8),
    "toy_mog9": (24_000, 2 * 4 + 8),
    "cifar10_ls": (60_000, 3 * 32 * 32 + 8 + 8),
    "imagenet256": (1_281_167, 2 * 4 * 4 * 32 * 32 + 8 + 8),  # mean and deviation
    "lsun_bedroom": (3_033_042, 3 * 256 * 256 + 8),
}


@pytest.mark.parametrize("name", SIZES)
def test_the_data_set_takes_its_size(name: str) -> None:
    items, each = SIZES[name]
    experiment = compose(name)
    assert not experiment.encode.flips
    assert disk.encode_bytes(experiment) == items * each


def test_a_data_set_of_unknown_size_is_no_error(nothing_here, monkeypatch, capsys) -> None:
    """A new one that declares neither its size nor its archives."""
    kind = type(compose("cifar10_ls").data)
    for fact in ("count_items", "needed_archives"):
        monkeypatch.setattr(kind, fact, getattr(DataParams, fact))
    code, text = doctor(capsys, "cifar10_ls")
    assert code == 0 and re.search(r"encode +unknown", text)


def test_samples_take_four_bytes_a_value() -> None:
    experiment = compose("digits")
    tasks = [Task("sample", part) for part in parts(experiment)]
    waiting = dict.fromkeys(tasks, "missing")
    size = disk.to_write(experiment, waiting)["sample"]
    assert size == len(cells(experiment)) * experiment.sample.count * prod(experiment.shape) * 4
    rest = disk.to_write(experiment, waiting | {tasks[0]: UP_TO_DATE})["sample"]
    assert rest == size - disk.sample_bytes(experiment, tasks[0])
    assert disk.to_write(experiment, dict.fromkeys(tasks, UP_TO_DATE)) == {}


def test_only_what_is_still_read_is_needed(nothing_here: Path) -> None:
    graph = graph_on(compose("cifar10_ls"))
    current = all_are(graph, UP_TO_DATE)
    assert files.needed_files(graph, current) == []
    encode = files.needed_files(graph, current | {Task("encode"): STALE})
    assert [file.path.name for file in encode] == ["cifar-10-binary.tar.gz"]
    missing = files.needed_files(graph, all_are(graph, "missing"))
    assert [file.path.name for file in missing] == [
        "cifar10_ls.pth",
        "inception-2015-12-05.pt",
        "cifar-10-binary.tar.gz",
    ]


def test_a_file_of_another_source_or_of_a_wrong_size(nothing_here: Path) -> None:
    graph = graph_on(compose("cifar10_ls"))
    by_hand = nothing_here / "checkpoints/cifar10_ls/400000.ckpt.pth"
    archive = nothing_here / "datasets/cifar10/cifar-10-binary.tar.gz"
    for file in (by_hand, archive):
        file.parent.mkdir(parents=True)
        file.write_bytes(b"12345")

    def state(path: Path) -> str:
        needed = files.needed_files(graph, all_are(graph, "missing"))
        return next(file.state for file in needed if file.path == path)

    assert state(by_hand) == "expected a PyTorch file, found something else"
    assert state(archive) == "5 bytes instead of 170052171"
    torch.save({}, by_hand)
    assert state(by_hand) == "in place"


def test_what_is_missing_is_named_with_its_page(nothing_here, capsys) -> None:
    code, text = doctor(capsys, "imagenet256")
    assert code == 1
    _, *problems = text[re.search(r"\d+ problems?:", text).start() :].splitlines()
    (problem,) = (line for line in problems if "still to be written" not in line)  # of this disk
    assert "ILSVRC2012_img_train.tar: missing; " in problem and "image-net.org" in problem
    for file in ("DiT-XL-2-256x256.pt", "inception-2015-12-05.pt"):
        assert re.search(rf"{re.escape(file)} .*to be downloaded by the run", text)


@pytest.mark.parametrize("name", ["x.pth", "x.tar.gz", "x.zip", "x.npz", "x.tar", "x.json"])
def test_random_bytes_are_not_in_place(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(random.Random(0).randbytes(1000))
    assert str(unlike_its_name(file)).endswith("found something else")


def test_folders_and_files_without_a_form(tmp_path: Path) -> None:
    (tmp_path / "folder.pth").mkdir()
    assert unlike_its_name(tmp_path / "folder.pth") == "expected a file, found a folder"
    (tmp_path / "list.txt").write_text("a.jpg 0")
    assert unlike_its_name(tmp_path / "list.txt") is None


def test_every_stage_is_listed_with_its_work(nothing_here, capsys) -> None:
    """`blur` stands in no file but that of the test."""
    code, text = doctor(capsys, "digits", "--json")
    found = json.loads(text)["experiment"]
    assert code == 0
    assert [task["stage"] for task in found["tasks"]][-2:] == ["train", "blur"]
    assert {task["state"] for task in found["tasks"]} == {"missing"}
    by_stage = {task["stage"]: task for task in found["tasks"]}
    operations = pace.network_size(compose("digits"), "score").operations
    assert by_stage["train"]["operations"] == 3e6 * operations
    assert by_stage["train"]["seconds"] == pytest.approx(4 + 3e6 * operations / 1e9)
    text = doctor(capsys, "digits")[1]
    assert re.search(r"blur +1 +missing +2 M +", text)
    assert re.search(r"\n  train +3 M +23\.1 TFLOP +1 s\n", text)
    assert "computed at 35% of its TF32 peak" in text and "measured on its score network" in text
    assert not re.search(r"\b0(\.0)? (s|min|h)\b", text)


def test_a_disk_that_is_too_small(nothing_here, capsys, monkeypatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10})())
    code, text = doctor(capsys, "digits")
    assert code == 1 and "are still to be written, 0.0 kB are free" in text


def test_without_an_experiment_it_describes_the_machine(capsys) -> None:
    code, text = doctor(capsys, "--json")
    found = json.loads(text)
    assert code == (1 if found["problems"] else 0)
    assert found["experiment"] is None and found["machine"]["free_disk"] > 0


def test_a_diffusers_that_cannot_be_imported_says_what_to_do(monkeypatch, capsys) -> None:
    def broken(name: str) -> None:
        raise RuntimeError("Failed to import\noperator torchvision::nms does not exist")

    monkeypatch.setattr(machine, "import_module", broken)
    code, text = doctor(capsys)
    assert code == 1
    assert "diffusers cannot be imported (operator torchvision::nms does not exist)" in text
    assert "pip uninstall torchvision" in text


def test_versions_are_compared_with_their_pins(tmp_path: Path) -> None:
    pins = tmp_path / "requirements.txt"
    pins.write_text(
        f"# a note\n-r other.txt\ntorch=={torch.__version__.partition('+')[0]}\nnumpy==1.0 \\\n"
        f"    --hash=sha256:{'0' * 64}\nno-such-thing==2 --hash=sha256:{'1' * 64}\n"
    )
    found = {package.name: package for package in machine.packages(pins)}
    assert not found["torch"].differs
    assert found["numpy"].differs and found["numpy"].installed is not None
    assert found["no-such-thing"].installed is None and found["no-such-thing"].differs
    pins.write_text("numpy>=2\n")
    with pytest.raises(OcmError, match="numpy>=2"):
        machine.packages(pins)


def test_an_unknown_experiment_is_named(capsys) -> None:
    assert main(["doctor", "digit"]) == 1
    assert "did you mean 'digits'" in capsys.readouterr().err
