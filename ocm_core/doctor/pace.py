"""Measure how many operations per second this machine does, on the experiment's own network.

A short timing of the score network, kept in `.ocm/pace.json` beside the counts of its networks: a
second call reads the file and does not import torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from platform import node
from statistics import median
from typing import Any, NamedTuple

from ocm_core.doctor.work import NetworkName, NetworkSize, measure, score_call
from ocm_core.io.atomic import alone_in, write_text
from ocm_core.pipeline.job import Device, available_device
from ocm_core.schema.experiment import Experiment

FILE = Path(".ocm/pace.json")
A100_PEAK, EFFICIENCY = 156e12, 0.35  # TF32 operations per second, and the share assumed of them
ASSUMED = {"cuda": EFFICIENCY * A100_PEAK, "mps": 1e12, "cpu": 3e10}  # where nothing was measured
SECONDS = 1.0  # that a measurement takes, at least one pass
BATCH_OPERATIONS = {"cpu": 5e8, "mps": 2e11, "cuda": 2e12}  # of one timed pass


class Pace(NamedTuple):
    """Operations per second on a device."""

    device: str
    rate: float
    measured: bool

    def __str__(self) -> str:
        how = "measured on its score network" if self.measured else "assumed, not measured"
        return f"{metric(self.rate)}FLOP/s on {self.device}, {how}"


def this_device() -> str:
    """Return the device that jobs compute on here; torch is asked only where there may be a GPU."""
    from ocm_core.pipeline.launch import seen

    requested: Any = os.environ.get("OCM_DEVICE", "auto")
    if requested == "auto" and sys.platform != "darwin" and not seen(os.environ):
        return "cpu"
    chosen: Device = requested
    return available_device(chosen)


def network_size(experiment: Experiment, network: NetworkName) -> NetworkSize:
    """Count one pass of a network, or read the count."""
    return NetworkSize(*_kept(experiment, network, lambda: list(measure(experiment, network))))


def pace_of(experiment: Experiment, device: str | None = None) -> Pace:
    """Measure operations per second, or read the measurement; assume them for an absent GPU."""
    here = this_device()
    device = device or here
    key = f"cpu of {node()}" if device == "cpu" else device
    kept = _read().get(_digest(experiment), {}).get(key)
    if kept is None and (device not in ("cpu", here) or not _fits(experiment)):
        return Pace(device, ASSUMED[device], measured=False)
    return Pace(device, _kept(experiment, key, lambda: _timed(experiment, device)), measured=True)


def metric(value: float) -> str:
    """Return a number with a metric prefix, `1.2 G`."""
    scales = (("Z", 1e21), ("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6))
    prefix, scale = next(((p, s) for p, s in (*scales, ("k", 1e3)) if value >= s), ("", 1.0))
    return f"{value / scale:.3g} {prefix}"


def _fits(experiment: Experiment) -> bool:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 2 * network_size(experiment, "score").weights < memory


def _timed(experiment: Experiment, device: str) -> float:
    """Time passes of the score network for a second, on one thread as jobs have it."""
    import torch

    _, predict = score_call(experiment, device)
    operations = network_size(experiment, "score").operations
    fitting = int(BATCH_OPERATIONS[device] / operations)
    batch = max(1, min(experiment.sample.batch_size, fitting))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return batch * operations / _median_seconds(lambda: predict(batch).sum().item())
    finally:
        torch.set_num_threads(threads)


def _median_seconds(work: Callable[[], object]) -> float:
    work()
    times: list[float] = []
    while sum(times) < SECONDS:
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return median(times)


def _digest(experiment: Experiment) -> str:
    """Identify the networks of an experiment by their parameters."""
    blocks = (experiment.network, experiment.features, experiment.encode.latent)
    trees = [block and block.model_dump(mode="json") for block in blocks]
    text = json.dumps([*trees, experiment.shape, experiment.data.shape], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read() -> dict[str, dict[str, Any]]:
    try:
        content: dict[str, dict[str, Any]] = json.loads(FILE.read_text())
    except (FileNotFoundError, ValueError):  # nothing was measured here, or a kill has cut it
        return {}
    return content


def _kept(experiment: Experiment, key: str, compute: Callable[[], Any]) -> Any:
    """Return the value of an earlier call, or compute and keep it."""
    digest = _digest(experiment)
    values = _read().get(digest, {})
    if key not in values:
        values[key] = compute()
        FILE.parent.mkdir(parents=True, exist_ok=True)
        with alone_in(FILE.parent):
            content = _read()
            content.setdefault(digest, {})[key] = values[key]
            write_text(FILE, json.dumps(content, indent=1, sort_keys=True))
    return values[key]
