"""The doctor names what is missing, and its figures are those of the stages themselves."""

from __future__ import annotations

import json
import random
import re
from importlib import import_module
from math import prod
from pathlib import Path

import pytest
import torch

from ocm_core.cells import cells
from ocm_core.cli import main
from ocm_core.diffusion.chains import even
from ocm_core.errors import OcmError
from ocm_core.io.archives import Archive, Located
from ocm_core.io.formats import unlike_its_name
from ocm_core.params.resolved import load
from ocm_core.pipeline.table import Task, tasks
from ocm_core.planning import cpu_times, diagnosis, disk_space, published_files
from ocm_core.planning.cpu_times import ImageTimes
from ocm_core.planning.machine import packages
from ocm_core.planning.workload import chain_grid
from ocm_core.schema.experiment import Experiment

ROOT = Path(__file__).parents[2]
ARCHIVED = ("cifar10_ls", "celeba64", "imagenet64", "lsun_bedroom", "imagenet256")


@pytest.fixture
def nothing_here(tmp_path, monkeypatch) -> Path:
    """No artifacts, logs, weights or archives, whatever this checkout has."""
    monkeypatch.setattr("ocm_core.pipeline.manifests.ROOT", tmp_path / "artifacts")
    monkeypatch.setattr("ocm_core.checkpoints.registry.FOLDER", tmp_path / "checkpoints")
    monkeypatch.setattr("ocm_core.features.inception.FOLDER", tmp_path / "checkpoints/inception")
    monkeypatch.setattr(published_files, "ARCHIVES", tmp_path / "datasets")
    monkeypatch.setattr(diagnosis, "LOGS", tmp_path / "logs")
    return tmp_path


def doctor(capsys, *arguments: str) -> tuple[int, str]:
    code = main(["doctor", *arguments])
    return code, capsys.readouterr().out


def all_of(experiment: Experiment, state: str) -> dict[Task, str]:
    return dict.fromkeys(tasks(experiment), state)


def experiments_with_archives() -> list[Experiment]:
    found = [load(name) for name in ARCHIVED]
    variants = [
        ("imagenet64", {"release": "npz", "splits": ["train", "test"]}),
        ("imagenet64", {"release": "png", "splits": ["test"]}),
        ("imagenet256", {"splits": ["train", "test"]}),
        ("lsun_bedroom", {"splits": ["test", "train"]}),
    ]
    for name, changes in variants:
        experiment = load(name)
        data = experiment.data.model_copy(update=changes)
        found.append(experiment.model_copy(update={"data": data}))
    return found


@pytest.mark.parametrize("experiment", experiments_with_archives(), ids=lambda e: e.name)
def test_the_archives_are_those_that_the_reader_asks_for(experiment, monkeypatch, tmp_path):
    module = import_module(f"ocm_core.datasets.{experiment.data.kind}")
    asked: list[Archive] = []

    def locate(archive: Archive, folder: Path) -> Located:
        asked.append(archive)
        return Located(tmp_path / "empty", "0")

    monkeypatch.setattr(module, "locate", locate)
    with pytest.raises(Exception):  # noqa: B017 - it then opens a file that is not there
        module.open_data(experiment.data, tmp_path)
    ours = published_files.archives_of(experiment)
    assert {archive.file for archive in ours} == {archive.file for archive in asked}


def test_the_latents_of_imagenet_are_planned_without_touching_it(nothing_here, capsys):
    experiment = load("imagenet256")
    assert experiment.encode.latent.posterior == "keep" and not experiment.encode.flips
    item = 2 * 4 * 4 * 32 * 32 + 8 + 8  # mean and deviation, the label, the index
    size, shards = disk_space.encode_bytes(experiment), disk_space.encode_shards(experiment)
    assert 1_281_167 * item <= size < 1.001 * 1_281_167 * item
    assert -(-1_281_167 // 4096) <= shards < -(-1_281_167 // 4096) + experiment.encode.jobs
    assert f"encode, {shards} shards" in doctor(capsys, "imagenet256")[1]


@pytest.mark.parametrize("name", ["digits", "toy_mog9", "cifar10_ls"])
def test_pixels_and_points_take_their_size(name):
    experiment = load(name)
    items = {"digits": 1797, "toy_mog9": 24_000, "cifar10_ls": 60_000}[name]
    assert not experiment.encode.flips
    labels = 8 if experiment.data.classes else 0
    item = prod(experiment.shape) * (1 if experiment.levels else 4) + labels + 8  # and its index
    partly_filled = 2 * experiment.encode.chunk  # the last chunk of each split
    assert items * item <= disk_space.encode_bytes(experiment) < (items + partly_filled) * item


def test_samples_take_four_bytes_a_value():
    experiment = load("digits")
    waiting = all_of(experiment, "missing")
    whole = disk_space.to_write(experiment, waiting)["sample"]
    assert whole == len(cells(experiment)) * experiment.sample.count * 64 * 4
    parts = [task for task in waiting if task.stage == "sample"]
    rest = disk_space.to_write(experiment, waiting | {parts[0]: "current"})["sample"]
    assert rest == whole - disk_space.sample_bytes(experiment, parts[0])
    assert disk_space.to_write(experiment, all_of(experiment, "current")) == {}


def test_only_what_is_still_read_is_needed(nothing_here):
    experiment = load("cifar10_ls")
    current = all_of(experiment, "current")
    assert published_files.needed_files(experiment, current) == []
    stale = current | {Task("encode", "all"): "stale: made with other parameters"}
    assert [file.path.name for file in published_files.needed_files(experiment, stale)] == [
        "cifar-10-binary.tar.gz"
    ]
    missing = published_files.needed_files(experiment, all_of(experiment, "missing"))
    assert [file.path.name for file in missing] == [
        "cifar10_ls.pth",
        "inception-2015-12-05.pt",
        "cifar-10-binary.tar.gz",
    ]


def test_a_file_of_another_source_or_of_a_wrong_size(nothing_here):
    experiment = load("cifar10_ls")
    by_hand = nothing_here / "checkpoints/cifar10_ls/400000.ckpt.pth"
    archive = nothing_here / "datasets/cifar10/cifar-10-binary.tar.gz"
    for file in (by_hand, archive):
        file.parent.mkdir(parents=True)
        file.write_bytes(b"12345")
    found = published_files.needed_files(experiment, all_of(experiment, "missing"))
    states = {file.path: file.state for file in found}
    assert states[by_hand] == "expected a PyTorch file, found something else"
    torch.save({}, by_hand)
    again = published_files.needed_files(experiment, all_of(experiment, "missing"))
    assert {file.path: file.state for file in again}[by_hand] == "in place"
    assert states[archive] == "5 bytes instead of 170052171"


def test_what_is_missing_is_named_with_its_page(nothing_here, capsys):
    code, said = doctor(capsys, "imagenet256")
    assert code == 1
    _, *problems = said[re.search(r"\d+ problems?:", said).start() :].splitlines()
    (problem,) = (line for line in problems if "still to be written" not in line)  # of this disk
    assert "ILSVRC2012_img_train.tar: missing; " in problem and "image-net.org" in problem
    for file in ("DiT-XL-2-256x256.pt", "config.json", "inception-2015-12-05.pt"):
        assert re.search(rf"{re.escape(file)} .*to be downloaded by the run", said)


@pytest.mark.parametrize("name", ["x.pth", "x.tar.gz", "x.zip", "x.npz", "x.tar", "x.json"])
def test_random_bytes_are_not_in_place(name, tmp_path):
    file = tmp_path / name
    file.write_bytes(random.Random(0).randbytes(1000))
    assert unlike_its_name(file).endswith("found something else")


def test_folders_and_files_without_a_form(tmp_path):
    (tmp_path / "folder.pth").mkdir()
    assert unlike_its_name(tmp_path / "folder.pth") == "expected a file, found a folder"
    (tmp_path / "list.txt").write_text("a.jpg 0")
    assert unlike_its_name(tmp_path / "list.txt") is None


def test_an_experiment_that_needs_no_file(nothing_here, capsys):
    code, said = doctor(capsys, "digits", "--json")
    found = json.loads(said)
    assert code == 0 and found["problems"] == []
    assert set(found["prospect"]["states"].values()) == {"missing"}
    assert set(found["prospect"]["seconds"].values()) == {None}
    assert found["machine"]["free_disk"] > 0


def test_a_disk_that_is_too_small(nothing_here, capsys, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10})())
    code, said = doctor(capsys, "digits")
    assert code == 1 and "are still to be written, 0.0 kB are free" in said


def test_times_are_those_of_earlier_runs(nothing_here, capsys):
    file = nothing_here / "logs/digits/score/learned.benchmark.tsv"
    file.parent.mkdir(parents=True)
    file.write_text("s\th:m:s\n150.0\t0:02:30\n")
    assert diagnosis.earlier_seconds("digits", Task("score", "learned")) == 150.0
    said = doctor(capsys, "digits")[1]
    others = len(tasks(load("digits"))) - 1
    assert f"2.5 min for 1 task one by one; {others} tasks unknown here" in said


def test_times_of_a_small_network_are_told_beforehand(nothing_here, capsys, monkeypatch):
    times = ImageTimes(
        score_step=1.0, heads_step=2.0, evaluation=3.0, sampling=5.0, product=7.0, features=11.0
    )
    monkeypatch.setattr(cpu_times, "MEASURED", {"cifar10_small": times})
    experiment = load("cifar10_small")
    train, sample = experiment.train, experiment.sample
    likelihood, deviation = experiment.evaluate.likelihood, experiment.evaluate.deviation
    assert (likelihood.steps[-1], likelihood.fewer) == (1000, {"rademacher_1": [10, 25, 50]})
    grid = chain_grid(experiment)
    probed = {t for length in (10, 25, 50) for t in even(1000, length)} | {*grid}
    cells_milliseconds = 5 * (5 + 10 + 25 + 50) * sample.count
    milliseconds = {
        "score/learned": train.score.iterations * train.score.batch_size,
        "heads/learned": 2 * train.heads.iterations * train.heads.batch_size,
        "moments/learned": 3 * train.moments.draws * 1000,
        "chains/learned": 3 * experiment.evaluate.chains.images * len(grid),
        "sample/ddpm-ocm": cells_milliseconds,
        "reference/efficientnet_lite0": 11 * 10_000,
        "evaluate_images/ddpm-ocm": 11 * 4 * sample.count,
        "evaluate_jackknife/ddpm-ocm": 11 * 4 * sample.count,
        "evaluate_loss/all": 3 * experiment.evaluate.loss.images,
        "evaluate_likelihood/all": likelihood.images * (3 * 1000 + (2 * 3 + 7) * len(probed)),
        "evaluate_deviation/all": 7 * deviation.images * len(deviation.times) * 1111,
        "encode/all": None,
    }
    expected = json.loads(doctor(capsys, "cifar10_small", "--json")[1])["prospect"]["expected"]
    for task, found in milliseconds.items():
        assert expected[task] == (None if found is None else pytest.approx(found / 1e3)), task
    known = [seconds for seconds in expected.values() if seconds]
    said = f"measured per image: {sum(known) / 3600:.1f} h for {len(known)} tasks"
    assert said in doctor(capsys, "cifar10_small")[1]


def test_versions_are_compared_with_their_pins(tmp_path):
    pins = tmp_path / "requirements.txt"
    pins.write_text(
        f"# a note\ntorch=={torch.__version__.partition('+')[0]}\nnumpy==1.0 \\\n"
        f"    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{'1' * 64}\nno-such-thing==2\n"
    )
    found = {package.name: package for package in packages(pins)}
    assert not found["torch"].differs
    assert found["numpy"].differs and found["numpy"].installed is not None
    assert found["no-such-thing"].installed is None and found["no-such-thing"].differs
    pins.write_text("numpy>=2\n")
    with pytest.raises(OcmError, match="numpy>=2"):
        packages(pins)


def test_every_pin_but_those_with_builds_has_hashes():
    """The committed file, as `make pins` writes it."""
    entries = re.split(r"\n(?=[a-z])", (ROOT / "requirements.txt").read_text())[1:]
    unhashed = [entry.partition("==")[0] for entry in entries if "--hash=sha256:" not in entry]
    assert unhashed == ["torch", "torchvision"] and len(entries) > 100


def test_an_unknown_experiment_is_named(capsys):
    assert main(["doctor", "digit"]) == 1
    assert "did you mean 'digits'" in capsys.readouterr().err
