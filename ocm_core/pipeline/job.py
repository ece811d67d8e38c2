"""What a stage gets to work with.

`ocm_core/stages/<stage>.py` has one function, `run(job: Job) -> None`, which reads `job.inputs` and
`job.experiment` and writes into `job.folder`; what it would resume from after an interruption is in
`job.state`. Everything else (locks, manifests, logs) is `run`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, overload

from ocm_core.progress import Item, track
from ocm_core.schema.experiment import Experiment

Device = Literal["auto", "cpu", "cuda", "mps"]


def found_device(requested: Device) -> str:
    """The device to compute on; torch is imported only if it has to be asked."""
    if requested != "auto":
        return requested
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


@dataclass(frozen=True)
class Job:
    """One stage of one experiment, with the parameters that the stage declares and no others."""

    experiment: Experiment
    stage: str
    part: str
    inputs: Mapping[str, Path]  # "heads/true" -> the folder of that artifact
    folder: Path  # of what it makes; may hold sealed pieces of an interrupted run of the same job
    state: Path  # the same run's state, which is no part of the artifact
    outputs: Mapping[str, Path] = field(default_factory=dict)  # only the report's
    requested_device: Device = "auto"
    threads: int = 1
    notes: dict[str, Any] = field(default_factory=dict)
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("ocm"))

    @cached_property
    def device(self) -> str:
        return found_device(self.requested_device)

    def note(self, **values: Any) -> None:
        """Add JSON values to the manifest: shapes, counts, provenance, never times or hosts."""
        self.notes.update(values)

    @overload
    def progress(self, items: int, description: str) -> Iterator[int]: ...
    @overload
    def progress(self, items: Collection[Item], description: str) -> Iterator[Item]: ...
    def progress(self, items: Any, description: str) -> Iterator[Any]:
        """Iterate over `items` (or `range(items)`) with a bar, or with sparse lines in the log."""
        return track(range(items) if isinstance(items, int) else items, description, self.log)
