"""What `ocm cost` prints, and docs/cost.md, which has all tables and says how they are computed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ocm_core.checkpoints.registry import CHECKPOINTS
from ocm_core.errors import OcmError, unknown
from ocm_core.io.atomic import write_text
from ocm_core.params.resolved import experiment_names, load
from ocm_core.planning import cost_tables as tables
from ocm_core.planning.roofline import A100, GPUS, PRECISIONS, Utilisation, roofline_time
from ocm_core.planning.workload import DIMENSIONS, Workload
from ocm_core.schema.experiment import Experiment

FILE = Path("docs/cost.md")

_HEAD = """\
# What the paper's experiments take on a GPU
Written by `ocm cost --write`; `ocm cost --check` says whether it is up to date, and
`ocm cost cifar10_ls --utilisation 0.5` computes with another assumption. **Everything here is
computed, nothing was measured**: operations and bytes are counted on the networks and the code of
this repository, and turned into hours by the GPUs' data sheets and two assumptions: arithmetic
reaches {peak:.0%} of its peak, memory {bandwidth:.0%} of its bandwidth.
"""

_BOTTLENECK = """
- Sampling takes {sample} of the hours, choosing among kept heads {selection}, training them
  {heads}.
- Full float32 in matrix products, PyTorch's default, costs `{name}` {ratio:.1f} times the hours of
  TF32 on an A100.
- Batches that are too large for one GPU of 80 GB (see Memory): {large}.

Where the hours go, on an A100 80 GB in TF32:
"""

_NETWORKS = """
## The networks
One noise prediction for one image (reading the weights, once per batch, is not counted), what a
head adds to its operations, and a training step of all heads of the experiment as a multiple of it:
"""

_MEMORY = """
## Memory
In float32. The batch sizes are those of the experiment, of the largest that fit into 80 GB:
"""

_HOST = """
## The host
Random values to generate and bytes to read or write per second, so that one GPU never waits:
"""

_HOW = """
## How it is computed
- **Operations** are counted while the code of the stages (networks, heads, `HeadFitting`,
  vector-Jacobian products) runs on PyTorch's meta device, by its formulas for convolutions and
  matrix products; a multiplication and an addition are two. Other operations are not counted as
  arithmetic, but their bytes are.
- **Bytes** are read and written by every kernel in float32, each operation being a kernel of its
  own: an upper bound. "Fused" counts convolutions and matrix products only, as if all else were
  fused into them. bfloat16 is assumed to halve both.
- **Time** is a roofline, max(operations / (peak · utilisation), bytes / (bandwidth · utilisation)),
  for each stage as a whole. The limit is the larger of the two; "memory, unless fused" means that
  it would be arithmetic with the fused bytes.
- **Work** follows from `params/resolved/<name>.yaml`. Training: iterations × batch × (a prediction
  with a graph, a vector-Jacobian product per probe, losses and gradients of the heads). A sample:
  K predictions, twice as many with guidance, and K - 1 covariances. The likelihood bound of an
  image: a prediction and all covariances at each timestep of any chain. Moments: T × draws
  predictions. Selection: 2,048 samples of T steps for each kept head of each method.
- **GPUs**, peaks in TFLOP/s: {gpus}.
- `float32` is PyTorch's default: TF32 in convolutions, full float32 in matrix products. `tf32` is
  `torch.set_float32_matmul_precision("high")`.

## What it leaves out
- The utilisations are assumptions. Small maps and small batches reach less than large matrix
  products, and full float32 usually reaches more of its low peak.
- The GPU is assumed never to wait. The host generates all random values, from seed and index; the
  table of the host says how many, and a stage that does not generate them while the GPU computes
  takes the sum of both times. How many a core generates: `python -m timeit -s "import numpy as
  np; g = np.random.default_rng()" "g.standard_normal(10**6, dtype=np.float32)"`.
- Distances between features, in float64: {host} for all cells of an experiment. `--jobs` adds them,
  at the GPU's peak of float64 and the same utilisation.
- Optimiser, moving average, noise, clipping and posterior means: a few passes over an image or a
  head, beside hundreds over the feature maps of a network. Reading and resizing images on the
  host. The stage `evaluate_cost`, which takes seconds.
- Inception's operations are counted on torchvision's network, whose layers have the same shapes as
  clean-fid's.
- Memory is the peak of what a computation allocates, in addition to the weights, without the
  overhead of the allocator and of cuDNN.
"""


def workloads(names: Sequence[str]) -> list[Workload]:
    """Of the named experiments, or of the paper's."""
    found = [load(name) for name in names or CHECKPOINTS]
    for experiment in found:
        if not is_counted(experiment):
            counted = [name for name in experiment_names() if is_counted(load(name))]
            known = unknown(experiment.name, counted)
            raise OcmError(f"experiment with a published network and feature space: {known}")
    return [Workload.of(experiment) for experiment in found]


def is_counted(experiment: Experiment) -> bool:
    """Networks of images, and features of a published network, can be counted."""
    features, checkpoint = experiment.evaluate.features, experiment.network.checkpoint
    written_here = checkpoint is not None and checkpoint.origin == "generated"
    return features is not None and features.space in DIMENSIONS and not written_here


def as_text(found: Sequence[Workload], use: Utilisation) -> str:
    parts = [
        "computed, not measured: "
        f"{use.peak:.0%} of the peak and {use.bandwidth:.0%} of the bandwidth are assumptions",
        tables.totals(found, use).terminal(),
        tables.memory(found).terminal(),
    ]
    for workload in found:
        parts += [
            workload.experiment.name,
            tables.single(workload, use).terminal(),
            tables.stages(workload, use).terminal(),
        ]
    return "\n\n".join(parts)


def as_json(found: Sequence[Workload], use: Utilisation) -> str:
    experiments = {w.experiment.name: _experiment(w, use) for w in found}
    return json.dumps({"utilisation": asdict(use), "experiments": experiments}, indent=2)


def _experiment(workload: Workload, use: Utilisation) -> dict[str, Any]:
    return {
        "network": asdict(workload.counts),
        "stages": [
            {
                **asdict(work),
                "operations": work.gpu.operations,
                "hours": {
                    gpu.name: {p: roofline_time(work.gpu, gpu, p, use).hours for p in PRECISIONS}
                    for gpu in GPUS
                },
            }
            for work in workload.stages()
        ],
    }


def document() -> str:
    found, use = workloads([]), Utilisation()
    gpus = "; ".join(
        f"{gpu.name}: {gpu.float32 / 1e12:g} float32, {gpu.tf32 / 1e12:g} TF32, "
        f"{gpu.bfloat16 / 1e12:g} bfloat16, {gpu.bandwidth / 1e12:g} TB/s"
        for gpu in GPUS
    )
    operations = [w.evaluate_images().float64 for w in found]
    host = f"{min(operations) / 1e15:.1f} to {max(operations) / 1e15:.1f} PFLOP"
    parts = [
        _HEAD.format(**vars(use)),
        tables.totals(found, use).markdown(),
        _bottleneck(found, use),
        tables.shares(found, use).markdown(),
        _NETWORKS,
        tables.networks(found).markdown(),
        _MEMORY,
        tables.memory(found).markdown(),
        _HOST,
        tables.host(found, use).markdown(),
        *(f"\n{section(workload, use)}" for workload in found),
        _HOW.format(gpus=gpus, host=host),
    ]
    return "\n".join(parts)


def _bottleneck(found: Sequence[Workload], use: Utilisation) -> str:
    tf32 = {w.experiment.name: w.hours(A100, "tf32", use) for w in found}
    shares = {}
    for stage in ("sample", "selection", "heads"):
        of = [w.hours(A100, "tf32", use, [stage]) / tf32[w.experiment.name] for w in found]
        shares[stage] = f"{min(of):.0%} to {max(of):.0%}"
    ratios = {
        w.experiment.name: w.hours(A100, "float32", use) / tf32[w.experiment.name] for w in found
    }
    name = max(ratios, key=lambda name: ratios[name])
    too_large = [row[0] for row in tables.memory(found).rows if tables.TOO_LARGE in " ".join(row)]
    large = ", ".join(f"`{name}`" for name in too_large) or "none"
    return _BOTTLENECK.format(name=name, ratio=ratios[name], large=large, **shares)


def section(workload: Workload, use: Utilisation) -> str:
    """Of one experiment."""
    experiment = workload.experiment
    return "\n".join(
        [
            f"## {experiment.name}",
            f"{experiment.report.summary}\n",
            tables.single(workload, use).markdown(),
            "",
            tables.stages(workload, use).markdown(),
        ]
    )


def outdated() -> bool:
    return not FILE.exists() or FILE.read_text(encoding="utf-8") != document()


def write() -> None:
    write_text(FILE, document())
