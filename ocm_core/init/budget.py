"""How long an experiment takes here, and one that fits into a given time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ocm_core.doctor.cost import duration, start_of, this_device, working_seconds
from ocm_core.errors import OcmError
from ocm_core.params.compose import compose
from ocm_core.params.edits import flat
from ocm_core.pipeline.graph import Graph

if TYPE_CHECKING:
    from ocm_core.schema.experiment import Experiment

STAGE = 1.0  # seconds of a stage beside its passes through networks: files, digests
SCALED = {  # with the time, down to a least value
    "train.score.iterations": 300,
    "train.moments.draws": 4,
    "train.heads.iterations": 100,
    "train.timesteps.images": 8,
    "sample.count": 64,
    "features.reference_images": 64,
    "evaluate.likelihood.images": 16,
}
FEWER = 0.5  # of the whole: below this share cells with many evaluations are left out, too
MOST_NFE = 10


def phase_times(name: str) -> dict[str, float]:
    """Return the seconds of each phase, and of two starts, in one process on one thread or GPU.

    The second start is that of Snakemake, which takes the result into its record.
    """
    graph, device = Graph(compose(name)), this_device()
    taken: dict[str, float] = defaultdict(float, start=2 * start_of(graph.experiment))
    for task in graph.tasks:
        work = working_seconds(graph.experiment, task, device)
        taken[graph.stage(task).phase] += STAGE + work
    return taken


def fitting(
    experiment: Experiment, budget: float, taken: Callable[[Mapping[str, Any]], float]
) -> dict[str, Any]:
    """Return changes by dotted key, as few as fit; `taken` says how long a run takes with some."""
    low, high = 0.0, 1.0
    if taken({}) <= budget:
        return {}
    if (least := taken(_scaled(experiment, low))) > budget:
        raise OcmError(f"--budget: {duration(budget)}; the least here is {duration(least)}")
    while high - low > 0.01:
        share = (low + high) / 2
        low, high = (share, high) if taken(_scaled(experiment, share)) <= budget else (low, share)
    return _scaled(experiment, low)


def _scaled(experiment: Experiment, share: float) -> dict[str, Any]:
    """Return the values that a share of the work leaves, where they are other ones."""
    full = dict(flat(experiment.model_dump(mode="json")))
    if "features.reference_images" in full:
        full["features.reference_images"] = experiment.data.count_items()["train"]
    given = {key: (full[key], least) for key, least in SCALED.items() if full.get(key)}
    changes: dict[str, Any] = {
        key: max(least, round(share * value)) for key, (value, least) in given.items()
    }
    if share < FEWER:
        changes["evaluate.likelihood.nfe"] = _few(full.get("evaluate.likelihood.nfe"))
        for label, sampler in experiment.sample.samplers.items():
            grids = [grid.model_dump(exclude_defaults=True) for grid in sampler.grids]
            few = [{**grid, "nfe": _few(grid["nfe"])} for grid in grids]
            full[key := f"sample.samplers.{label}.grids"], changes[key] = grids, few
    return {key: value for key, value in changes.items() if value != full.get(key)}


def _few(nfe: list[int] | None) -> list[int] | None:
    return nfe and [count for count in nfe if count <= MOST_NFE]
