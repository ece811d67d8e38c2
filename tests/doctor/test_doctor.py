"""The doctor names what is missing, and its figures are those of the stages themselves."""

from __future__ import annotations

import json
import random
import re
from math import prod
from pathlib import Path

import pytest
import torch

from ocm_core.cells import cells, cells_of, parts
from ocm_core.cli import main
from ocm_core.datasets.base import DataParams
from ocm_core.doctor import diagnosis, machine, needs
from ocm_core.doctor.cost import network_size
from ocm_core.errors import OcmError
from ocm_core.io.reading import unlike_its_name
from ocm_core.params.compose import compose
from ocm_core.pipeline.graph import Graph
from ocm_core.pipeline.stage import Task
from ocm_core.pipeline.state import UP_TO_DATE

STALE = "stale: made with other parameters"


@pytest.fixture
def nothing_here(tmp_path: Path, monkeypatch, fake_stages: None, timings: list[str]) -> Path:
    """No artifacts, weights or archives, whatever this checkout has; nothing is timed."""
    monkeypatch.setattr("ocm_core.checkpoints.registry.FOLDER", tmp_path / "checkpoints")
    monkeypatch.setattr("ocm_core.features.inception.FOLDER", tmp_path / "checkpoints/inception")
    monkeypatch.setattr(needs, "ARCHIVES", tmp_path / "datasets")
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
    assert needs.encode_bytes(experiment) == items * each


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
    each = experiment.sample.count * prod(experiment.shape) * 4
    assert needs.to_write(experiment, waiting) == {"sample": len(cells(experiment)) * each}
    rest = len(cells(experiment)) - len(cells_of(experiment, tasks[0].part))
    done = needs.to_write(experiment, waiting | {tasks[0]: UP_TO_DATE})
    assert done == {"sample": rest * each}
    assert needs.to_write(experiment, dict.fromkeys(tasks, UP_TO_DATE)) == {}


def test_only_what_is_still_read_is_needed(nothing_here: Path) -> None:
    graph = Graph(compose("cifar10_ls"))
    current, archive = all_are(graph, UP_TO_DATE), "cifar-10-binary.tar.gz"

    def names(states: dict[Task, str]) -> list[str]:
        return [Path(file.path).name for file in needs.needed_files(graph, states)]

    assert names(current) == names(current | {Task("train"): STALE}) == []
    assert names(current | {Task("encode"): STALE}) == [archive]
    everything = ["cifar10_ls.pth", "inception-2015-12-05.pt", archive]
    assert names(all_are(graph, "missing")) == everything


def test_a_file_of_another_source_or_of_a_wrong_size(nothing_here: Path) -> None:
    graph = Graph(compose("cifar10_ls"))
    by_hand = nothing_here / "checkpoints/cifar10_ls/400000.ckpt.pth"
    archive = nothing_here / "datasets/cifar10/cifar-10-binary.tar.gz"
    for file in (by_hand, archive):
        file.parent.mkdir(parents=True)
        file.write_bytes(b"12345")

    def state(path: Path) -> str:
        needed = needs.needed_files(graph, all_are(graph, "missing"))
        return next(file.state for file in needed if file.path == str(path))

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


def test_random_bytes_and_folders_are_not_in_place(tmp_path: Path) -> None:
    for suffix in ("pth", "tar.gz", "zip", "npz", "tar", "json"):
        file = tmp_path / f"x.{suffix}"
        file.write_bytes(random.Random(0).randbytes(1000))
        assert str(unlike_its_name(file)).endswith("found something else")
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
    operations = network_size(compose("digits"), "score").operations
    assert by_stage["train"]["operations"] == 3e6 * operations
    assert by_stage["train"]["seconds"] == pytest.approx(4 + 3e6 * operations / 1e9)
    text = doctor(capsys, "digits")[1]
    assert re.search(r"\n  evaluate +blur +missing +1 +2 M +", text)
    assert re.search(r"\n  train +train +missing +1 +3 M +23\.1 TFLOP +[\d.]+ h +1 s\n", text)
    assert re.search(r"\n  all +6 +5 M +", text)
    assert "computed at 35% of its TF32 peak" in text and "measured on its score network" in text
    assert not re.search(r"\b0(\.0)? (s|min|h)\b", text)


def test_a_disk_that_is_too_small(nothing_here, capsys, monkeypatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10})())
    code, text = doctor(capsys, "digits")
    assert code == 1 and " still to be written, 10 B free" in text


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


def test_versions_are_compared_with_their_pins(tmp_path: Path, monkeypatch, capsys) -> None:
    pins = tmp_path / "requirements.txt"
    pins.write_text(
        f"# a note\n-r other.txt\ntorch=={torch.__version__.partition('+')[0]}\nnumpy==1.0 \\\n"
        f"    --hash=sha256:{'0' * 64}\nno-such-thing==2 --hash=sha256:{'1' * 64}\n"
    )
    numpy, unknown = machine.differing_packages(pins)
    assert re.fullmatch(r"numpy 2\.\S+, pinned 1\.0", numpy)
    assert unknown == "no-such-thing is missing, pinned 2"
    monkeypatch.setattr(diagnosis, "differing_packages", lambda: [numpy, unknown])
    code, text = doctor(capsys)
    assert code == 1 and f"problem:\n  {unknown}; run `make env`" in text
    assert machine.differing_packages(tmp_path / "none.txt") == []


@pytest.mark.parametrize("stage", ["likelihood", "score_loss"])
def test_an_evaluation_without_test_images_is_refused(stage: str) -> None:
    with pytest.raises(OcmError, match=rf"evaluate\.{stage}: measured on test images"):
        compose("imagenet64", ["data.splits=[train]", "++evaluate.score_loss={batch_size: 8}"])


def test_solvers_that_diffusers_does_not_have_are_refused(nothing_here, monkeypatch) -> None:
    """As docs/solvers.md says."""
    solver = "+sample.samplers.no={kind: diffusers, scheduler: NoScheduler, grids: [{nfe: [3]}]}"
    with pytest.raises(OcmError, match=r"sample\.samplers\.no\.scheduler: .*NoScheduler"):
        diagnosis.diagnose(Graph(compose("digits", ["++methods.none={}", solver])))
