"""Work that is done in pieces: an interrupted run resumes with those that it has finished."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from ocm_core.distributed import current_rank
from ocm_core.errors import OcmError
from ocm_core.io.checksums import is_intact, record_checksum
from ocm_core.io.state_file import State, load_state, save_state
from ocm_core.pipeline.job import Job, MadeOf
from ocm_core.progress import Item

PIECES = "pieces"
PartialResult = tuple[Mapping[str, torch.Tensor], Any]  # tensors and JSON facts


def computed(
    job: Job,
    items: Mapping[str, Item],
    compute: Callable[[Item], PartialResult],
    description: str,
    made_of: Callable[[Item], MadeOf] | None = None,
) -> list[State]:
    """Compute a piece for each named item, but for those that an interrupted run has finished.

    With `made_of` the pieces are part of the artifact, and those that depend on nothing new are
    taken over. Processes share the items; the first one returns all pieces in order.
    """
    rank, folder = current_rank(), job.folder / PIECES if made_of else job.state
    missing = rank.agreed(lambda: unfinished(job, folder, items, made_of))
    for name in job.progress(rank.mine(missing), description):
        save_piece(folder / f"{name}.safetensors", *compute(items[name]))
    rank.wait()
    return load_pieces(folder, items) if rank.is_first else []


def unfinished(
    job: Job,
    folder: Path,
    items: Mapping[str, Item],
    made_of: Callable[[Item], MadeOf] | None = None,
) -> list[str]:
    """Take over what can be, and return the names of the pieces that are still to be computed."""

    def is_there(name: str, item: Item) -> bool:
        piece, file = f"{PIECES}/{name}.safetensors", folder / f"{name}.safetensors"
        reused = made_of is not None and job.reuse(piece, [piece], made_of(item))
        return reused or (is_intact(file) and load_state(file) is not None)

    return [name for name, item in items.items() if not is_there(name, item)]


def save_piece(file: Path, tensors: Mapping[str, torch.Tensor], facts: Any) -> None:
    """Save a piece, and record that it is finished."""
    save_state(file, tensors, facts)
    record_checksum(file)


def load_pieces(folder: Path, names: Iterable[str]) -> list[State]:
    """Load finished pieces in order."""
    found = {file: load_state(file) for file in (folder / f"{n}.safetensors" for n in names)}
    if lost := [file for file, state in found.items() if state is None]:
        raise OcmError(f"{lost[0]}: lost while others were computed; run it again")
    return [state for state in found.values() if state is not None]
