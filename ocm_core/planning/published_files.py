"""The published files that an experiment needs, whether they are there, and how to get them.

A file is needed as long as a task that reads it is not current. Modules that know the files are
imported only for experiments that have them: some import diffusers or clean-fid, which takes time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from ocm_core.io.archives import Archive
from ocm_core.io.formats import unlike_its_name
from ocm_core.io.urls import redacted
from ocm_core.pipeline.table import Task, inputs
from ocm_core.schema.datasets import FolderData, Imagenet64Data, Imagenet256Data, LsunBedroomData
from ocm_core.schema.experiment import Experiment

ARCHIVES = Path("datasets")
IN_PLACE, DOWNLOAD = "in place", "to be downloaded by the run"


@dataclass(frozen=True)
class NeededFile:
    path: Path
    bytes: int | None  # as published; None: not stated
    found: int | None  # bytes; None: it is not there
    address: str | None  # None: only by hand
    remedy: str
    unlike: str | None  # what speaks against the one that is there, by its first bytes

    @property
    def state(self) -> str:
        if self.found is None:
            return DOWNLOAD if self.address else "missing"
        if self.bytes not in (None, self.found):
            return f"{self.found} bytes instead of {self.bytes}"
        return self.unlike or IN_PLACE

    @property
    def hinders(self) -> bool:
        """Whether the run will stop at it; a download may still fail."""
        return self.state not in (IN_PLACE, DOWNLOAD)


def needed_files(experiment: Experiment, states: Mapping[Task, str]) -> list[NeededFile]:
    """Those that are read by tasks which are not current."""
    finders = {
        "fetch_score": _checkpoint,
        "fetch_vae": _autoencoder,
        "fetch_features": _inception,
        "fetch_reference": _reference,
        "fetch_data": _data,
    }
    return [
        file
        for stage, find in finders.items()
        if any(states[task] != "current" for task in _readers(experiment, states, stage))
        for file in find(experiment)
    ]


def archives_of(experiment: Experiment) -> list[Archive]:
    """Those that `open_data` of the data set reads."""
    data = experiment.data
    known: Mapping[str, Archive] = import_module(f"ocm_core.datasets.{data.kind}").ARCHIVES
    match data:
        case Imagenet64Data():
            asked = tuple(f"{data.release}/{split}" for split in data.splits)
            return [archive for name, archive in known.items() if name.startswith(asked)]
        case Imagenet256Data():
            names = [*data.splits, *["devkit"] * ("test" in data.splits)]
            return [known[name] for name in names]
        case LsunBedroomData():
            return [known[split] for split in data.splits]
    return list(known.values())


def _readers(experiment: Experiment, states: Mapping[Task, str], stage: str) -> list[Task]:
    """The tasks of the stage; archives are also read by the tasks that come after it."""
    own = [task for task in states if task.stage == stage]
    if stage != "fetch_data" or not own:
        return own
    return own + [task for task in states if own[0] in inputs(experiment, task)]


def _checkpoint(experiment: Experiment) -> Iterator[NeededFile]:
    choice = experiment.network.checkpoint
    if choice is None or choice.origin != "published":
        return
    from ocm_core.checkpoints.registry import FOLDER, checkpoint_named

    entry = checkpoint_named(choice.name)
    folder = FOLDER / entry.name
    valid = [entry.source(choice.file)] if choice.file else entry.sources
    source = next((source for source in valid if (folder / source.file).exists()), valid[0])
    path = folder / source.file
    yield _file(path, source.bytes, choice.url or source.url, source.remedy(path))


def _autoencoder(experiment: Experiment) -> Iterator[NeededFile]:
    latent = experiment.encode.latent
    if latent is None or latent.vae.origin != "published" or latent.vae.name is None:
        return
    from ocm_core.checkpoints.registry import FOLDER
    from ocm_core.latents.fetching import vae_named

    entry = vae_named(latent.vae.name)
    for name in entry.sha256:
        path = FOLDER / entry.name / name
        address = f"{latent.vae.url or entry.address}/{name}"
        yield _file(path, None, address, entry.remedy(path))


def _inception(experiment: Experiment) -> Iterator[NeededFile]:
    from ocm_core.features import inception

    path = inception.FOLDER / inception.FILE
    yield _file(path, None, inception.URL, inception.remedy(path))


def _reference(experiment: Experiment) -> Iterator[NeededFile]:
    features = experiment.evaluate.features
    if features is None or features.reference is None:
        return
    from ocm_core.features.published_reference import reference_named

    yield _archive(reference_named(features.reference))


def _data(experiment: Experiment) -> Iterator[NeededFile]:
    if isinstance(experiment.data, FolderData):
        yield from _own_images(experiment.data)
    else:
        yield from map(_archive, archives_of(experiment))


def _own_images(data: FolderData) -> Iterator[NeededFile]:
    for key in ("path", "labels_csv", "captions_csv"):
        if name := getattr(data, key):
            path = Path(name).expanduser()
            found = 0 if path.exists() else None
            remedy = f"put it there, or correct data.{key}"
            yield NeededFile(path, None, found, None, remedy, None)


def _archive(published: Archive) -> NeededFile:
    archive = published.at_hand(ARCHIVES)
    path = ARCHIVES / archive.kind / archive.file
    return _file(path, archive.bytes, archive.url, archive.remedy(path))


def _file(path: Path, published: int | None, address: str | None, remedy: str) -> NeededFile:
    found = path.stat().st_size if path.exists() else None
    unlike = None if found is None else unlike_its_name(path)
    return NeededFile(path, published, found, address and redacted(address), remedy, unlike)
