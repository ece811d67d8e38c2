"""Estimate what tasks cost: operations, the time of a run, time and memory of a cluster's job.

PyTorch counts a network's operations on the meta device, and a short timing gives the pace; both
are kept in `.ocm/pace.json`, so that a second call does not import torch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from math import ceil, log10
from pathlib import Path
from platform import node
from typing import TYPE_CHECKING, Any, NamedTuple

from ocm_core.doctor.machine import host_memory
from ocm_core.io.atomic import alone_in, write_text
from ocm_core.launch import seen
from ocm_core.pipeline.artifacts import text_digest
from ocm_core.pipeline.graph import Graph
from ocm_core.pipeline.job import available_device
from ocm_core.pipeline.stage import Task, stages
from ocm_core.schema.block import require
from ocm_core.schema.experiment import Experiment, ImageNetworkParams, PrecisionName
from ocm_core.text import plural

if TYPE_CHECKING:
    from torch import nn

FILE = Path(".ocm/pace.json")
A100_PEAK, EFFICIENCY = 156e12, 0.35  # TF32 operations per second, and the share assumed of them
ASSUMED = {"cuda": EFFICIENCY * A100_PEAK, "mps": 1e12, "cpu": 3e10}  # where nothing was measured
SECONDS = 1.0  # that a measurement takes, at least one pass
BATCH_OPERATIONS = {"cpu": 5e9, "mps": 2e11, "cuda": 2e12}  # of one timed pass
# Inception of `features/inception.py` is a file that has to be fetched: counted on torchvision's
# network, whose layers have the same shapes.
INCEPTION_OPERATIONS, INCEPTION_WEIGHTS = 11_422_336_192, 87_000_000
START = 4.0  # seconds of a process that imports torch, where it was not measured
JOB_START = 30  # minutes of a job on a cluster: to start, to load and to copy
MARGIN = 3.0  # a job asks for so many times the time that it is expected to take
LOADING = 2  # a job of a cluster asks for its weights twice
PROCESS, ROOM = 1_000, 1.5  # MB of a process with torch; its weights, heads and activations
SCORES = {"dummy_score", "fetch_score", "score"}  # stages that make a score network

Todo = Sequence[tuple[Graph, Task]]  # inputs first


class NetworkSize(NamedTuple):
    """The cost of one item in a network; all but operations in bytes."""

    operations: float = 0.0
    weights: int = 0
    activations: int = 0  # outputs of all layers for one item


class Pace(NamedTuple):
    """Operations per second on a device."""

    device: str
    rate: float
    measured: bool

    def __str__(self) -> str:
        how = "measured on its score network" if self.measured else "assumed, not measured"
        return f"{metric(self.rate)}FLOP/s on {self.device}, {how}"


def metric(value: float) -> str:
    """Return a number with a metric prefix, `1.2 G`."""
    thousands = min(7, int(log10(max(1, value)) / 3))
    return f"{value / 1000**thousands:.3g} {('', *'kMGTPEZ')[thousands]}"


def this_device() -> str:
    """Return the device that jobs compute on here; torch is asked only where there may be a GPU."""
    requested: Any = os.environ.get("OCM_DEVICE", "auto")
    if requested == "auto" and sys.platform != "darwin" and not seen(os.environ):
        return "cpu"
    return available_device(requested)


def network_size(experiment: Experiment, network: str) -> NetworkSize:
    """Count one pass of a network of `Work`, or read the count."""
    return NetworkSize(*_kept(experiment, network, lambda: list(measure(experiment, network))))


def pace_of(
    experiment: Experiment,
    device: str | None = None,
    network: str = "score",
    precision: PrecisionName = "float32",
) -> Pace:
    """Measure operations per second, or read the measurement; assume them for an absent GPU."""
    here = this_device()
    device = device or here
    place = f"cpu of {node()}" if device == "cpu" else device

    def measured() -> float | None:
        fits = 2 * network_size(experiment, "score").weights < host_memory()
        timeable = fits and device in ("cpu", here)
        return _timed(experiment, device, network, precision) if timeable else None

    compares = network in ("spaces", "decoded") and bool(_timeable(experiment))
    if network != "score" and not compares:
        return pace_of(experiment, device)
    what = ["features"] * compares + ["bfloat16"] * (precision == "bfloat16")
    rate = _kept(experiment, ", ".join([*what, place]), measured)
    return Pace(device, rate or ASSUMED[device], measured=rate is not None)


def start_of(experiment: Experiment) -> float:
    """Return the seconds that a job of the experiment takes to import what it needs, once timed."""
    return _kept(experiment, f"start on {node()}", lambda: _started(experiment)) or START


def work_of(experiment: Experiment, task: Task) -> tuple[float, NetworkSize]:
    """Return the passes that a task makes, and the size of the network that they go through."""
    passes, network, _ = stages()[task.stage].work(experiment, task.part)
    return passes, network_size(experiment, network) if passes else NetworkSize()


def seconds(experiment: Experiment, task: Task, device: str) -> float:
    """Return how long a task takes; `device` is that of the tasks that compute on a GPU."""
    return start_of(experiment) + working_seconds(experiment, task, device)


def working_seconds(experiment: Experiment, task: Task, device: str) -> float:
    """Return the same without the start of a process."""
    stage = stages()[task.stage]
    passes, network, precision = stage.work(experiment, task.part)
    if not passes:
        return 0.0
    place = device if stage.computes_on_gpu(experiment) else "cpu"
    pace = pace_of(experiment, place, network, precision)
    return passes * network_size(experiment, network).operations / pace.rate


def expected_time(todo: Todo, cores: int) -> str:
    """Say how long these tasks take on so many cores, or on the GPUs of this machine."""
    device = this_device()
    workers = len(seen(os.environ)) if device == "cuda" else cores
    taken = {(graph, task): seconds(graph.experiment, task, device) for graph, task in todo}
    paces = {str(pace_of(graph.experiment, device)) for graph, _ in todo}
    pace = f" ({paces.pop()})" if len(paces) == 1 else ""
    return f"{plural(len(todo), 'job')}, about {duration(wall_seconds(todo, taken, workers))}{pace}"


def wall_seconds(todo: Todo, taken: Mapping[tuple[Graph, Task], float], workers: int) -> float:
    """Return the longest path through the graph, or the sum over all workers if that is more."""
    ends: dict[tuple[Graph, Task], float] = {}
    for graph, task in todo:
        before = [ends.get((graph, node), 0.0) for node in graph.inputs[task]]
        ends[graph, task] = max(before, default=0.0) + taken[graph, task]
    return max(max(ends.values(), default=0.0), sum(taken.values()) / max(1, workers))


def duration(seconds: float) -> str:
    """Return `40 s`, `12 min` or `3.5 h`, and never 0."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 100 else f"{hours:,.0f} h"


def job_minutes(
    experiment: Experiment, task: Task, attempt: int = 1, gpus: int = 1, longest: int = 0
) -> int:
    """Return the minutes that a job asks of a cluster: more in every attempt, at most `longest`."""
    expected = working_seconds(experiment, task, "cuda") / max(1, gpus)
    minutes = ceil(attempt * (JOB_START + MARGIN * expected / 60))
    return min(minutes, longest or minutes)


def memory(graph: Graph, task: Task, attempt: int = 1, *, here: bool) -> int:
    """Return the MB that a job takes on this machine, where it holds what it reads or makes.

    Or else those that a cluster is asked for on each node, more in every attempt.
    """
    weights = work_of(graph.experiment, task)[1].weights
    if not here:
        return ceil(attempt * (graph.stage(task).memory + LOADING * weights / 1e6))
    if SCORES & {task.stage, *(node.stage for node in graph.inputs[task])}:
        weights = max(weights, network_size(graph.experiment, "score").weights)
    return ceil(PROCESS + ROOM * weights / 1e6)


def _kept(experiment: Experiment, key: str, compute: Callable[[], Any]) -> Any:
    """Return the value of an earlier call, or compute it and keep it unless it is None."""
    blocks = (experiment.network, experiment.encode.latent)
    trees = [block and block.model_dump(mode="json") for block in blocks]
    sizes = (experiment.spaces, experiment.shape, experiment.data.shape)
    digest = text_digest([*trees, *sizes])[:16]  # of the experiment's networks
    if key in (values := _read().get(digest, {})):
        return values[key]
    if (value := compute()) is not None:
        FILE.parent.mkdir(parents=True, exist_ok=True)
        with alone_in(FILE.parent):
            content = _read()
            content.setdefault(digest, {})[key] = value
            write_text(FILE, json.dumps(content, indent=1, sort_keys=True))
    return value


def _read() -> Any:
    try:
        return json.loads(FILE.read_text())
    except (FileNotFoundError, ValueError):  # nothing was measured here, or a kill has cut it
        return {}


def _timed(experiment: Experiment, device: str, network: str, precision: PrecisionName) -> float:
    """Time passes of a network for a second, on one thread as jobs have it."""
    import torch
    from torch.utils.benchmark import Timer

    if network == "score":
        (_, predict), most = _score(experiment, device), experiment.sample.batch_size
        operations = network_size(experiment, network).operations
    else:
        (name, *_), most = _timeable(experiment), require(experiment.features).batch_size
        _, predict = _feature_space(experiment, name, device)
        operations = _feature_size(experiment, name).operations
    batch = max(1, min(most, int(BATCH_OPERATIONS[device] / operations)))
    clock: Any = {"timer": time.process_time} if device == "cpu" else {}  # of this process alone
    timer = Timer("predict().sum().item()", globals={"predict": partial(predict, batch)}, **clock)
    with torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16"):
        return batch * operations / timer.blocked_autorange(min_run_time=SECONDS).median


def _timeable(experiment: Experiment) -> list[str]:
    """Return the feature spaces whose networks can be made here, which Inception's cannot."""
    return (
        [name for name in experiment.spaces if name != "inception"] if experiment.features else []
    )


def _started(experiment: Experiment) -> float:
    """Return the processor time of a process that imports what a job that samples needs."""
    graph = Graph(experiment)
    (sampling, *_) = (task for task in graph.tasks if task.stage == "sample")
    modules = ", ".join(["ocm_core.pipeline.job", *graph.modules(sampling)])
    before = os.times()
    subprocess.run([sys.executable, "-c", f"import {modules}"], check=True)
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])  # user and system, of children


def measure(experiment: Experiment, network: str) -> NetworkSize:
    """Count one pass of a network of `Work`."""
    import torch

    if network == "score":
        points = not isinstance(experiment.network, ImageNetworkParams)
        score, predict = _score(experiment, "cpu" if points else "meta")
        return _counted(score, lambda: predict(1))
    spaces = experiment.spaces if experiment.features and network in ("spaces", "decoded") else []
    sizes = [NetworkSize(), *(_feature_size(experiment, name) for name in spaces)]
    if (latent := experiment.encode.latent) and network != "spaces":
        from ocm_core.latents.vae import new_autoencoder

        with torch.device("meta"):
            model = new_autoencoder(latent.vae.config, f"encode.latent of {experiment.name}")
            image, code = torch.empty(1, *experiment.data.shape), torch.empty(1, *experiment.shape)
        if network != "decoded":
            sizes.append(_counted(model, lambda: model.encode(image)))
        if network != "encoder":
            sizes.append(_counted(model, lambda: model.decode(code)))
    return NetworkSize(*map(sum, zip(*sizes, strict=True)))


def _score(experiment: Experiment, device: str) -> tuple[nn.Module, Callable[[int], Any]]:
    """Return an untrained score network, and a function that predicts for a batch of zeros."""
    import torch

    from ocm_core.networks.of_experiment import new_trial

    with torch.device(device):
        network: Any = new_trial(experiment, experiment.network.scores[-1])
    network.eval().requires_grad_(False)

    def predict(batch: int) -> Any:
        with torch.device(device):
            x, t = torch.zeros(batch, *experiment.shape), torch.ones(batch)
            label = torch.zeros(batch, dtype=torch.int64) if network.conditional else None
        return network.readout(network.features(x, t, label))

    return network, predict


def _feature_space(
    experiment: Experiment, space: str, device: str
) -> tuple[nn.Module, Callable[[int], Any]]:
    """Return an untrained network of features, and a function of the size of a batch of zeros."""
    import torch

    module, shape = import_module(f"ocm_core.features.{space}"), experiment.data.shape
    with torch.device(device):
        if space == "classifier":
            model = module.ClassifierNetwork(*shape[:2], max(1, experiment.data.classes))
        else:
            from efficientnet_lite_pytorch import EfficientNet

            model, shape = EfficientNet.from_name("efficientnet-lite0"), (3, *2 * [module.SIDE])
    model.eval().requires_grad_(False)
    features = model.features if space == "classifier" else model.extract_features
    return model, lambda batch: features(torch.zeros(batch, *shape, device=device))


def _feature_size(experiment: Experiment, space: str) -> NetworkSize:
    if space == "inception":
        return NetworkSize(INCEPTION_OPERATIONS, INCEPTION_WEIGHTS)
    model, predict = _feature_space(experiment, space, "meta")
    return _counted(model, lambda: predict(1))


def _counted(network: nn.Module, call: Callable[[], Any]) -> NetworkSize:
    """Run a network once on one item; the outputs of its layers are what training keeps."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    outputs: list[Any] = []
    for layer in network.modules():
        if not list(layer.children()):
            layer.register_forward_hook(lambda *call: outputs.append(call[-1]))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        call()
    weights = sum(parameter.nbytes for parameter in network.parameters())
    kept = sum(output.nbytes for output in outputs if isinstance(output, torch.Tensor))
    return NetworkSize(max(counter.get_total_flops(), weights / 2, 1.0), weights, kept)
