"""Rows of the results table as the artifact of an evaluation, and work that is done in pieces."""

import platform
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from ocm_core.distributed import current_rank
from ocm_core.errors import OcmError
from ocm_core.io.state_file import State, load_state, save_state
from ocm_core.progress import Item
from ocm_core.results.table import Results
from ocm_core.stages import Artifact, Experiment, Job

RESULTS_FILE = "results.csv"
PartialResult = tuple[Mapping[str, torch.Tensor], Any]  # tensors and JSON facts


class ResultsTable(Artifact):
    """The rows that one evaluation adds to the experiment's table of results."""

    def save(self, rows: Results) -> None:
        rows.write(self.folder / RESULTS_FILE)

    def load(self) -> Results:
        return Results.read(self.folder / RESULTS_FILE)


def machine_class(job: Job) -> str:
    """Return the kind of machine that numbers may depend on: `x86_64, CPU`, or a GPU's name."""
    device = torch.cuda.get_device_name() if job.device == "cuda" else job.device.upper()
    return f"{platform.machine()}, {device}"


def check_test_split(experiment: Experiment, where: str) -> Iterator[str]:
    """Yield a problem if the data of an evaluation on test images have none."""
    if "test" not in experiment.data.count_items():
        yield f"{where}: measured on test images, and the data have none; use null"


def batches(count: int, size: int) -> list[range]:
    """Cut `count` items into batches; the last one may be smaller."""
    return [range(first, min(first + size, count)) for first in range(0, count, size)]


def computed(
    job: Job, items: Mapping[str, Item], compute: Callable[[Item], PartialResult], description: str
) -> list[State]:
    """Compute a piece for each named item, but for those that an interrupted run has finished.

    Processes share the items; the first one returns all pieces in order, the others none.
    """
    files = {name: job.state / f"{name}.safetensors" for name in items}
    rank = current_rank()
    missing = rank.agreed(lambda: [name for name in items if load_state(files[name]) is None])
    for name in job.progress(rank.mine(missing), description):
        save_state(files[name], *compute(items[name]))
    rank.wait()
    found = [(file, load_state(file)) for file in files.values() if rank.is_first]
    if lost := [file for file, state in found if state is None]:
        raise OcmError(f"{lost[0]}: lost while others were computed; run it again")
    return [state for _, state in found if state is not None]
