"""A place to run stages in, with tiny experiments that have every stage between them."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from ocm_core.features import inception
from ocm_core.features.published_reference import REFERENCES
from ocm_core.params.compose import compose
from ocm_core.params.resolved import load, resolved_text
from ocm_core.pipeline.table import Task, tasks
from ocm_core.schema.experiment import Experiment, MethodParams
from tests.datasets import files as archive_files
from tests.metrics.test_published_reference import arrays
from tests.metrics.tiny_inception import TinyInception

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = Path("datasets/references", REFERENCES["imagenet256"].file)
FEW = "{iterations: 12, batch_size: 4, checkpoint_every: 3}"
GRID = "grids=[{steps: [2], guidance: [1.0]}]"
SAMPLES = ["sample.count=6", "sample.batch_size=4", "sample.seeds=[0]", "sample.split=[]"]
CHAINS = ["evaluate.chains.points=5", "evaluate.chains.images=4", "evaluate.chains.batch_size=4"]
SELECTED = [  # heads are kept between the checkpoints
    *("train.heads.keep_every=4", "train.selection.kind=best_fid", "+train.selection.samples=6"),
    *("+train.selection.steps=2", "+train.selection.guidance=1.0", "+train.selection.seed=0"),
    *("+train.selection.last_sigma=1.0", "+train.selection.batch_size=4"),
]
TINY = {
    "digits": [
        *("schedule.steps=120", "network.config.base_channels=8", "encode.chunk=128"),
        *("encode.shard=256", f"train.score={FEW}", f"train.heads={FEW}", *SELECTED),
        *(f"train.classifier={FEW}", "train.moments.draws=2", "sample=smoke"),
        *(f"sample.samplers.ddpm.{GRID}", f"sample.samplers.ddim.{GRID}", *SAMPLES),
        "sample.samplers.ddpm.methods=[beta, ocm]",
        "sample.samplers.ddim.methods=[delta]",
        *("evaluate.chains.methods=[beta, ocm]", *CHAINS),
        "evaluate.likelihood.steps=[2]",
        "evaluate.likelihood.methods=[beta, ocm]",
        "~evaluate.likelihood.fewer.rademacher_100",
        "evaluate.likelihood.images=6",
        "evaluate.likelihood.batch_size=2",
        *("evaluate.features.neighbours=2", "evaluate.jackknife={blocks: 2}"),
        "evaluate.loss={images: 4, batch_size: 2, seed: 0}",
        *("evaluate.deviation.images=1", "evaluate.deviation.times=[1, 60]"),
        *("evaluate.deviation.probes=[1]", "evaluate.cost.repeats=1", "evaluate.cost.batch_size=2"),
    ],
    "toy_mog9": [
        *("schedule.steps=120", "data.train_size=64", "data.test_size=64"),
        *("network.scores=[learned]", "network.width=8", "network.depth=1"),
        *(f"train.score={FEW}", f"train.heads={FEW}", "train.moments.draws=2"),
        *(f"sample.samplers.ddpm.{GRID}", f"sample.samplers.ddim.{GRID}", *SAMPLES),
        "sample.samplers.ddpm.methods=[beta, ocm_relative]",
        "sample.samplers.ddim.methods=[delta, ocm_relative]",
        *("evaluate.chains.methods=[beta, ocm_relative]", *CHAINS),
        "evaluate.likelihood.methods=[beta, ocm_relative]",
        *("evaluate.likelihood.steps=[2]", "evaluate.likelihood.images=6"),
        "evaluate.covariance_error.times=[1, 60]",
        "evaluate.covariance_error.points=4",
    ],
    "imagenet256_smoke": [
        *(f"train.heads={FEW}", "train.heads.keep_every=4"),
        *("sample.samplers.ddpm.methods=[beta, ocm]", *SAMPLES),
        "sample.samplers.ddim.methods=[delta]",
        *(f"sample.samplers.ddpm.{GRID}", f"sample.samplers.ddim.{GRID}"),
        *("evaluate.features.space=inception", "evaluate.features.reference=imagenet256"),
    ],
    "mnist_latent": [
        *(f"train.vae={FEW}", "data.test_share=0.95"),
        "encode.latent.vae.config.block_out_channels=[8, 8, 8]",
    ],
    "celeba64": ["data=folder", "++data.path=images", "++data.side=64"],
}
# Of some experiments only what the others do not have.
ONLY = {
    "imagenet256_smoke": (
        *("publish_score", "publish_vae", "fetch_score", "fetch_vae"),
        *("fetch_features", "fetch_reference", "encode"),
    ),
    "mnist_latent": ("vae",),
    "celeba64": ("fetch_data",),
}


class Job(NamedTuple):
    """One task of one tiny experiment."""

    name: str
    task: Task

    @property
    def folder(self) -> Path:
        return Path("artifacts", self.name, *self.task)

    @property
    def working(self) -> Path:
        return self.folder.with_name(f".{self.folder.name}.working")

    def __str__(self) -> str:
        return f"{self.name} {self.task}"


def make_checkout(place: Path, names: list[str]) -> list[Job]:
    """Resolve the experiments there; to be called, and their jobs run, in that folder."""
    (place / "params/resolved").mkdir(parents=True)
    (place / "reports").mkdir()
    (place / "ocm_core").symlink_to(ROOT / "ocm_core")
    (place / "reports/paper").symlink_to(ROOT / "reports/paper")
    write_by_hand(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        for name in names:
            whole = compose(name, TINY[name])
            tiny = whole.model_copy(update={"name": f"tiny_{name}", "methods": _few(whole)})
            (place / f"params/resolved/{tiny.name}.yaml").write_text(resolved_text(tiny, {}))
        patch.chdir(place)
        load.cache_clear()  # another test's experiments may have had these names
        return [
            Job(f"tiny_{name}", task)
            for name in names
            for task in tasks(load(f"tiny_{name}"))
            if task.stage in ONLY.get(name, (task.stage,))
        ]


def write_by_hand(place: Path) -> None:
    """What no server of our own has: Inception, a reference set, and images of one's own."""
    for file in (place / inception.FOLDER / inception.FILE, place / REFERENCE):
        file.parent.mkdir(parents=True)
    torch.jit.script(TinyInception()).save(place / inception.FOLDER / inception.FILE)
    np.savez_compressed(place / REFERENCE, **arrays())
    (place / "images").mkdir()
    for number in range(6):
        image = archive_files.encoded(archive_files.pixels(number, 64, 64), "PNG")
        (place / f"images/{number}.png").write_bytes(image)


def _few(experiment: Experiment) -> dict[str, MethodParams]:
    """The methods that are sampled, and those without a head."""
    sampled = {m for sampler in experiment.sample.samplers.values() for m in sampler.methods}
    return {k: m for k, m in experiment.methods.items() if k in sampled or m.needs != "head"}


class Ended(NamedTuple):
    """How a job ended: 0, 1 for an error, or minus the signal that killed it."""

    code: int
    events: int  # how often it changed something on the disk
    seconds: float
    said: str


class Server:
    """A process that has imported everything, and forks a job at once."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout and process.stdout.readline() == "ready\n"

    def start(self, job: Job, *, die_before: int | None = None, after: float | None = None) -> None:
        """Begin a job, which dies before its change of that number, or after so many seconds."""
        assert self._process.stdin
        order = [job.name, *job.task, die_before, after]
        print(json.dumps(order), file=self._process.stdin, flush=True)

    def end(self) -> Ended:
        assert self._process.stdout
        return Ended(*json.loads(self._process.stdout.readline()))

    def run(self, job: Job, *, die_before: int | None = None, after: float | None = None) -> Ended:
        self.start(job, die_before=die_before, after=after)
        return self.end()


@contextmanager
def server(place: Path) -> Iterator[Server]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=place,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
    ) as process:
        yield Server(process)
        assert process.stdin
        process.stdin.close()


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }
