"""Find the files that an experiment reads from outside, and say how to get those that are missing.

A file is needed as long as a task that reads it is not up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ocm_core.io.archives import Archive
from ocm_core.io.fetch import PublishedFile, redacted
from ocm_core.io.reading import unlike_its_name
from ocm_core.pipeline.graph import Graph
from ocm_core.pipeline.stage import Task
from ocm_core.pipeline.state import UP_TO_DATE
from ocm_core.schema.experiment import Experiment

ARCHIVES = Path("datasets")
IN_PLACE, DOWNLOAD = "in place", "to be downloaded by the run"


@dataclass(frozen=True)
class NeededFile:
    """A file that is read, as published and as it is on disk."""

    path: Path
    bytes: int | None  # as published; None: not stated
    on_disk: int | None  # bytes; None: it is not there
    address: str | None  # None: only by hand
    remedy: str
    unlike: str | None = None  # what speaks against it, by its first bytes

    @property
    def state(self) -> str:
        if self.on_disk is None:
            return DOWNLOAD if self.address else "missing"
        if self.bytes not in (None, self.on_disk):
            return f"{self.on_disk} bytes instead of {self.bytes}"
        return self.unlike or IN_PLACE

    @property
    def blocks(self) -> bool:
        """Whether the run will stop at it; a download may still fail."""
        return self.state not in (IN_PLACE, DOWNLOAD)


def needed_files(graph: Graph, states: Mapping[Task, str]) -> list[NeededFile]:
    """Return the files that tasks read which are not up to date."""
    return [
        file
        for stage, find in FINDERS.items()
        if any(states[task] != UP_TO_DATE for task in _readers(graph, stage))
        for file in find(graph.experiment)
    ]


def _readers(graph: Graph, stage: str) -> list[Task]:
    """Return the tasks of the stage; archives are also read by the tasks that follow it."""
    own = [task for task in graph.tasks if task.stage == stage]
    if stage != "fetch_data":
        return own
    return own + [task for task in graph.tasks if {*own} & {*graph.inputs[task]}]


def _checkpoint(experiment: Experiment) -> Iterator[NeededFile]:
    choice = experiment.network.checkpoint
    if choice is None or choice.origin != "published":
        return
    from ocm_core.checkpoints.registry import FOLDER, checkpoint_named

    entry = checkpoint_named(choice.name)
    folder = FOLDER / entry.name
    valid = [entry.source(choice.file)] if choice.file else entry.sources
    source = next((source for source in valid if (folder / source.file).exists()), valid[0])
    yield _file(source, folder, choice.url or source.url)


def _autoencoder(experiment: Experiment) -> Iterator[NeededFile]:
    latent = experiment.encode.latent
    if latent is None or latent.vae.origin != "published" or latent.vae.name is None:
        return
    from ocm_core.checkpoints.registry import FOLDER
    from ocm_core.latents.fetching import vae_named

    for source in vae_named(latent.vae.name).files:
        yield _file(source, FOLDER / latent.vae.name, latent.vae.url or source.url)


def _inception(experiment: Experiment) -> Iterator[NeededFile]:
    from ocm_core.features import inception

    yield _file(inception.SOURCE, inception.FOLDER, inception.SOURCE.url)


def _reference(experiment: Experiment) -> Iterator[NeededFile]:
    if experiment.features and experiment.features.reference:
        from ocm_core.features.published_reference import reference_named

        yield _archive(reference_named(experiment.features.reference))


def _data(experiment: Experiment) -> Iterator[NeededFile]:
    yield from map(_archive, experiment.data.needed_archives().values())
    for key, path in experiment.data.user_files().items():
        on_disk = 0 if path.exists() else None
        yield NeededFile(path, None, on_disk, None, f"put it there, or correct data.{key}")


def _archive(published: Archive) -> NeededFile:
    archive = published.at_hand(ARCHIVES)
    return _file(archive, ARCHIVES / archive.kind, archive.url)


def _file(source: PublishedFile | Archive, folder: Path, url: str | None) -> NeededFile:
    path = folder / source.file
    on_disk = path.stat().st_size if path.exists() else None
    unlike = None if on_disk is None else unlike_its_name(path)
    address = url and redacted(url)
    return NeededFile(path, source.bytes, on_disk, address, source.remedy(path), unlike)


FINDERS: Mapping[str, Callable[[Experiment], Iterator[NeededFile]]] = {
    "fetch_score": _checkpoint,
    "fetch_vae": _autoencoder,
    "fetch_features": _inception,
    "fetch_reference": _reference,
    "fetch_data": _data,
}
