"""The doctor names what is missing; its figures are counted, or those of the stages themselves."""

import json
import random
import re
import time
from math import prod
from pathlib import Path

import pytest
import torch

from ocm_core.cells import cells, cells_of, parts
from ocm_core.cli import main
from ocm_core.datasets.base import DataParams
from ocm_core.doctor import cost, diagnosis, machine
from ocm_core.doctor.cost import ASSUMED, START, duration, job_minutes, measure, memory, pace_of
from ocm_core.doctor.cost import network_size as size_of
from ocm_core.errors import OcmError
from ocm_core.io.reading import unlike_its_name
from ocm_core.params.compose import compose
from ocm_core.pipeline.graph import Graph, graph_of
from ocm_core.pipeline.stage import Stage, Task, Work
from ocm_core.pipeline.state import UP_TO_DATE
from ocm_core.schema.block import Params

STALE = "stale: made with other parameters"
DIGITS = compose("digits")
DATA, ENCODE, TRAIN, BLUR = map(Task, ("fetch_data", "encode", "train", "blur"))
GIGA = {"cifar10_ls": 16.766, "celeba64": 48.101, "imagenet64": 79.473, "imagenet256": 237.243}


@pytest.fixture(autouse=True)
def kept_in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep counts and measurements in a folder of the test, on a machine without a GPU."""
    monkeypatch.setattr(cost, "FILE", tmp_path / "pace.json")
    monkeypatch.setattr(cost, "this_device", lambda: "cpu")
    return tmp_path / "pace.json"


@pytest.fixture
def fake_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the stages of the package."""
    once = {"parts": lambda experiment: ["all"]}
    after = {name: (lambda e, p, name=name: [Task(name)]) for name in ("fetch_data", "encode")}
    heavy = {"gpu": True, "work": lambda e, p: Work(3e6)}
    fetched = ("fetch_score", "fetch_features", "fetch_data")
    declared: list[Stage[Params]] = [
        *(Stage(f"x.{name}", "fetch", **once) for name in fetched),
        Stage("x.encode", "encode", **once, takes=after["fetch_data"]),
        Stage("x.train", "train", **once, takes=after["encode"], **heavy),
        Stage("x.blur", "evaluate", **once, work=lambda e, p: Work(2e6, "spaces"), gpu=True),
    ]
    stages = {stage.name: stage for stage in declared}
    for module in ("pipeline.graph", "doctor.cost"):
        monkeypatch.setattr(f"ocm_core.{module}.stages", lambda: stages)


@pytest.fixture
def timings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Pretend that every network does 1 GFLOP/s, and list the devices that were timed."""
    timed: list[str] = []
    monkeypatch.setattr(cost, "_timed", lambda _, device, *what: timed.append(device) or 1e9)
    monkeypatch.setattr(cost, "_started", lambda experiment: START)
    return timed


@pytest.fixture
def nothing_here(tmp_path: Path, monkeypatch, fake_stages: None, timings: list[str]) -> Path:
    """No artifacts, weights or archives, whatever this checkout has; nothing is timed."""
    monkeypatch.setattr(diagnosis, "FOLDER", tmp_path / "checkpoints")
    monkeypatch.setattr("ocm_core.features.inception.FOLDER", tmp_path / "checkpoints/inception")
    monkeypatch.setattr(diagnosis, "ARCHIVES", tmp_path / "datasets")
    monkeypatch.setattr(diagnosis, "states", lambda graph: all_are(graph, "missing"))
    monkeypatch.setattr("ocm_core.pipeline.graph.graph_of", lambda name: Graph(compose(name)))
    return tmp_path


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["doctor", *arguments])
    return code, capsys.readouterr().out


def all_are(graph: Graph, state: str) -> dict[Task, str]:
    return dict.fromkeys(graph.tasks, state)


@pytest.mark.parametrize("name", GIGA)
def test_a_pass_of_the_published_networks(name: str) -> None:
    """As many as torch's formulas give for the published code."""
    size = measure(compose(name), "score")
    assert size.operations == pytest.approx(1e9 * GIGA[name], rel=1e-4)
    assert size.activations > 0


@pytest.mark.parametrize("name", ["cifar10_ls", "imagenet256"])
def test_the_table_of_published_work_is_that_of_the_stages(name: str) -> None:
    lines = Path("docs/published.md").read_text("utf-8").splitlines()
    (row,) = (line for line in lines if line.startswith(f"| `{name}` |") and " E, " in line)
    work = dict.fromkeys(("heads", "solved", "selection", "sample", "evaluate"), (0.0, 0.0))
    for graph, solved in ((Graph(compose(name)), False), (Graph(compose(f"{name}_solved")), True)):
        for task in graph.tasks:
            key = task.stage if task.stage in work else graph.stage(task).phase
            key = "solved" if solved and key == "heads" else key
            if key in work and (key == "solved") == solved:
                passes, network = cost.work_of(graph.experiment, task)
                known, operations = work[key]
                work[key] = known + passes, operations + passes * network.operations
    cells = [
        f"{cost.metric(n).strip()}, {cost.metric(count)}, {duration(count / ASSUMED['cuda'])}"
        for n, count in work.values()
    ]
    assert [cell.strip() for cell in row.split("|")[2:-1]] == cells


def test_operations_of_linear_networks_decoders_and_features() -> None:
    points, latents, pixels = map(compose, ("toy_mog9", "imagenet256", "celeba64"))
    size = measure(points, "score")
    assert 0.5 <= size.operations / (2 * size.weights / 4) <= 1.01  # biases are added, not counted
    encoding, both = (measure(latents, part).operations for part in ("encoder", "autoencoder"))
    assert encoding == pytest.approx(2 * 135.6e9, rel=0.01) and both > 3 * encoding
    inception = cost.INCEPTION_OPERATIONS
    assert measure(latents, "decoded").operations == both - encoding + inception
    assert measure(latents, "spaces").operations == inception
    assert measure(pixels, "spaces").operations == measure(pixels, "decoded").operations
    assert measure(pixels, "autoencoder").operations == measure(points, "decoded").operations == 0
    large, small = (cost._feature_size(DIGITS, f"efficientnet_lite0{s}") for s in ("", "_small"))
    assert large.operations == pytest.approx((224 / 64) ** 2 * small.operations, rel=0.02)
    for name in ("digits", "cifar10_small"):  # spaces without a download
        assert measure(compose(name), "spaces").operations > 1e5


def test_a_pace_is_measured_once_and_kept(timings: list[str], kept_in_folder: Path) -> None:
    assert [pace_of(DIGITS).rate for _ in range(3)] == [1e9] * 3
    assert pace_of(compose("digits", ["sample.count=7"])).measured  # the same network
    assert timings == ["cpu"]
    kept_in_folder.write_text('{"cut off')
    assert pace_of(DIGITS).measured and timings == ["cpu", "cpu"]
    pace_of(compose("digits", ["network.config.base_channels=32"]))  # another network
    assert len(timings) == 3


def test_each_precision_has_its_own_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    paces = {"float32": 1e9, "bfloat16": 4e9}
    monkeypatch.setattr(cost, "_timed", lambda *of: paces[of[-1]])
    by_precision = [compose("digits", [f"sample.execution.precision={name}"]) for name in paces]
    single, half = (cost.working_seconds(e, Task("sample", "ddpm"), "cpu") for e in by_precision)
    assert single == pytest.approx(4 * half)


def test_what_is_not_here_or_too_large_is_assumed(timings: list[str], monkeypatch) -> None:
    found = pace_of(DIGITS, "cuda")
    assert (found.rate, found.measured) == (ASSUMED["cuda"], False)
    assert str(found) == "54.6 TFLOP/s on cuda, assumed, not measured"
    monkeypatch.setattr(cost, "host_memory", lambda: 1_000_000)
    assert not pace_of(DIGITS).measured and timings == []


def test_networks_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "SECONDS", 0.05)
    for name in ("digits", "toy_mog9"):
        assert 1e6 < pace_of(compose(name)).rate < 1e13
    features = pace_of(compose("digits"), network="spaces")  # of a classifier
    assert features.measured and features.rate != pace_of(compose("digits")).rate
    celeba = compose("celeba64")  # Inception has to be fetched first
    assert pace_of(celeba, "cuda", "spaces") == pace_of(celeba, "cuda")


def test_the_start_of_a_job_is_timed_once(kept_in_folder: Path) -> None:
    first = cost.start_of(DIGITS)
    assert 0.3 < first < 300 and cost.start_of(DIGITS) == first


def test_other_work_on_the_machine_does_not_count(tmp_path: Path, monkeypatch) -> None:
    """What waits takes no time of the processor: here it sleeps."""
    network, predict = cost._score(DIGITS, "cpu")
    waiting = lambda batch: time.sleep(0.2) or predict(batch)  # noqa: E731
    monkeypatch.setattr(cost, "_score", lambda experiment, device: (network, waiting))
    monkeypatch.setattr(cost, "SECONDS", 0.001)
    each = size_of(DIGITS, "score").operations
    batch = min(DIGITS.sample.batch_size, int(cost.BATCH_OPERATIONS["cpu"] / each))
    assert pace_of(DIGITS).rate > batch * each / 0.2
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nsleep 0.5\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    assert cost._started(DIGITS) < 0.3


def test_a_run_takes_its_longest_path_or_the_sum_over_the_workers(
    fake_stages: None, timings: list[str]
) -> None:
    graph = Graph(DIGITS)
    todo = [(graph, task) for task in (DATA, ENCODE, TRAIN, BLUR)]
    taken = dict(zip(todo, (1.0, 2.0, 60.0, 40.0), strict=True))
    assert cost.wall_seconds(todo, taken, workers=8) == 63
    assert cost.wall_seconds(todo, taken, workers=1) == 103
    work = 3e6 * size_of(DIGITS, "score").operations / 1e9
    text = cost.expected_time([(graph, DATA), (graph, TRAIN)], cores=2)
    pace = "1 GFLOP/s on cpu, measured on its score network"
    assert text == f"2 jobs, about {duration(2 * START + work)} ({pace})"


def test_a_job_asks_for_more_in_every_attempt(fake_stages: None, timings: list[str]) -> None:
    first, second = (job_minutes(DIGITS, TRAIN, attempt) for attempt in (1, 2))
    assert cost.JOB_START < first < second
    experiment = compose("imagenet256")
    alone, shared = (job_minutes(experiment, TRAIN, gpus=gpus) for gpus in (1, 8))
    expected = 3e6 * size_of(experiment, "score").operations / ASSUMED["cuda"] / 60
    assert alone == pytest.approx(cost.JOB_START + cost.MARGIN * expected, abs=1)
    assert cost.JOB_START < shared < alone
    assert job_minutes(experiment, TRAIN, attempt=3, longest=100) == 100
    each = 16_000 + 2 * size_of(experiment, "score").weights / 1e6  # room for its weights
    graph = Graph(experiment)
    for attempt in (1, 2):
        assert memory(graph, TRAIN, attempt, here=False) == pytest.approx(attempt * each, abs=1)
    assert memory(graph, DATA, here=False) == 4_000


def test_local_jobs_take_what_fits(timings: list[str]) -> None:
    """A job that trains on DiT-XL/2 (2.7 GB) was measured below 6 GB; see docs/published.md."""
    small, large = graph_of("digits"), graph_of("imagenet256")
    assert 500 < memory(small, Task("heads", "trained"), here=True) < 1_100
    for task in (Task("heads", "pretrained"), Task("fetch_score"), Task("operations")):
        assert 5_000 < memory(large, task, here=True) < 6_000
    assert memory(large, Task("fetch_data"), here=True) < 1_100


def test_numbers_for_people() -> None:
    durations = {0.0: "1 s", 0.2: "1 s", 99: "99 s", 600: "10 min", 9000: "2.5 h", 1e8: "27,778 h"}
    assert {seconds: duration(seconds) for seconds in durations} == durations
    prefixed = {0: "0 ", 5.0: "5 ", 1000: "1 k", 1234.0: "1.23 k", 3.1e10: "31 G", 2e22: "20 Z"}
    assert {value: cost.metric(value) for value in prefixed} == prefixed


SIZES = {  # items, and bytes of one: values, label, index
    "digits": (1797, 64 + 8 + 8),
    "toy_mog9": (24_000, 2 * 4 + 8),
    "dw4": (24_000, 6 * 4 + 8),
    "cifar10_ls": (60_000, 3 * 32 * 32 + 8 + 8),
    "imagenet256": (1_281_167, 2 * 4 * 4 * 32 * 32 + 8 + 8),  # mean and deviation
    "lsun_bedroom": (3_033_042, 3 * 256 * 256 + 8),
}


@pytest.mark.parametrize("name", SIZES)
def test_the_data_set_takes_its_size(name: str) -> None:
    items, each = SIZES[name]
    experiment = compose(name)
    assert not experiment.encode.flips
    assert diagnosis.encode_bytes(experiment) == items * each


def test_a_data_set_of_unknown_size_is_no_error(nothing_here, monkeypatch, capsys) -> None:
    """A new one that declares neither its size nor its archives."""
    compose("cifar10_ls_fast")  # before its data are changed
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
    assert diagnosis.to_write(experiment, waiting) == {"sample": len(cells(experiment)) * each}
    rest = len(cells(experiment)) - len(cells_of(experiment, tasks[0].part))
    done = diagnosis.to_write(experiment, waiting | {tasks[0]: UP_TO_DATE})
    assert done == {"sample": rest * each}
    assert diagnosis.to_write(experiment, dict.fromkeys(tasks, UP_TO_DATE)) == {}


def test_what_is_still_read_is_needed_from_the_right_source(nothing_here: Path) -> None:
    graph = Graph(compose("cifar10_ls"))
    current, nothing = all_are(graph, UP_TO_DATE), all_are(graph, "missing")

    def found(states: dict[Task, str]) -> dict[str, str]:
        files = diagnosis.needed_files(graph, states)
        return {Path(file.path).name: file.state for file in files}

    archive, weights = "cifar-10-binary.tar.gz", "400000.ckpt.pth"
    assert found(current) == found(current | {Task("train"): STALE}) == {}
    assert [*found(current | {Task("encode"): STALE})] == [archive]
    assert [*found(nothing)] == ["cifar10_ls.pth", "inception-2015-12-05.pt", archive]
    by_hand = nothing_here / "checkpoints/cifar10_ls" / weights
    for file in (by_hand, nothing_here / "datasets/cifar10" / archive):
        file.parent.mkdir(parents=True)
        file.write_bytes(b"12345")
    assert found(nothing)[weights] == "expected a PyTorch file, found something else"
    assert found(nothing)[archive] == "5 bytes instead of 170052171"
    torch.save({}, by_hand)
    assert found(nothing)[weights] == "in place"


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
    operations = size_of(compose("digits"), "score").operations
    assert by_stage["train"]["operations"] == 3e6 * operations
    assert by_stage["train"]["seconds"] == pytest.approx(4 + 3e6 * operations / 1e9)
    text = doctor(capsys, "digits")[1]
    assert re.search(r"\n  evaluate +blur +missing +1 +2 M +", text)
    assert re.search(r"\n  train +train +missing +1 +3 M +23\.1 TFLOP +[\d.]+ h +1 s\n", text)
    assert re.search(r"\n  all +6 +5 M +", text)
    assert "computed at 35% of its TF32 peak" in text and "measured on its score network" in text
    assert not re.search(r"\b0(\.0)? (s|min|h)\b", text)


def test_what_takes_weeks_here_has_the_time_of_a_gpu(nothing_here, capsys) -> None:
    operations = 3e6 * size_of(compose("imagenet256"), "score").operations
    operations += 2e6 * size_of(compose("imagenet256"), "spaces").operations
    there = duration(operations / ASSUMED["cuda"])
    for name, first in (
        ("imagenet256", f"{there} for imagenet256_fast, a first look; {there} for imagenet256;"),
        ("imagenet256_fast", f"{there} for imagenet256_fast;"),
    ):
        headline = re.search(r"to do: .*", doctor(capsys, name)[1])
        assert headline and headline[0].startswith(f"to do: about {first} on one A100, computed;")
        assert "too long at 1 G" in headline[0]
    assert "one by one, at 1 GFLOP/s" in doctor(capsys, "digits")[1]


def test_a_disk_that_is_too_small(nothing_here, capsys, monkeypatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10})())
    code, text = doctor(capsys, "digits")
    assert code == 1 and " still to be written, 10 B free" in text


def test_without_an_experiment_it_describes_the_machine(capsys) -> None:
    code, text = doctor(capsys, "--json")
    found = json.loads(text)
    assert code == bool(found["problems"])
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


def test_an_evaluation_without_test_images_is_refused() -> None:
    with pytest.raises(OcmError, match=r"evaluate\.score_loss: measured on test images"):
        compose("imagenet64", ["data.splits=[train]", "++evaluate.score_loss={batch_size: 8}"])


def test_solvers_that_diffusers_does_not_have_are_refused(nothing_here) -> None:
    """As docs/solvers.md says."""
    solver = "+sample.samplers.no={kind: diffusers, scheduler: NoScheduler, grids: [{nfe: [3]}]}"
    with pytest.raises(OcmError, match=r"sample\.samplers\.no\.scheduler: .*NoScheduler"):
        diagnosis.diagnose(Graph(compose("digits", ["++methods.none={}", solver])))
