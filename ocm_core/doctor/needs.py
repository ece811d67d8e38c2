"""Find what an experiment reads from outside and how much it writes, as long as it is not done."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from ocm_core.cells import cells_of
from ocm_core.errors import OcmError
from ocm_core.io.archives import Archive
from ocm_core.io.fetch import PublishedFile
from ocm_core.io.reading import unlike_its_name
from ocm_core.pipeline.graph import Graph
from ocm_core.pipeline.stage import Task
from ocm_core.pipeline.state import UP_TO_DATE
from ocm_core.schema.experiment import Experiment
from ocm_core.stages.fetch_data import ARCHIVES

IN_PLACE, DOWNLOAD = "in place", "to be downloaded by the run"
FLOAT32, INT64 = 4, 8  # bytes


@dataclass(frozen=True)
class NeededFile:
    """A file that is read, as published and as it is on disk."""

    path: str
    bytes: int | None  # as published; None: not stated
    state: str
    remedy: str


def needed_files(graph: Graph, states: Mapping[Task, str]) -> list[NeededFile]:
    """Return the files that tasks read which are not up to date; encoding reads archives, too."""
    waiting = [task for task in graph.tasks if states[task] != UP_TO_DATE]
    taken = [task for reader in waiting for task in graph.inputs[reader]]
    reading = {*waiting, *(task for task in taken if task.stage == "fetch_data")}
    stages = dict.fromkeys(task.stage for task in graph.tasks if task in reading)
    return [file for stage in stages for file in _files(graph.experiment, stage)]


def _files(experiment: Experiment, stage: str) -> Iterator[NeededFile]:
    """Yield the files that a stage of the phase `fetch` reads."""
    from ocm_core.checkpoints.registry import FOLDER, checkpoint_named

    choice, latent = experiment.network.checkpoint, experiment.encode.latent
    if stage == "fetch_score" and choice and choice.origin == "published":
        entry = checkpoint_named(choice.name)
        valid = [entry.source(choice.file)] if choice.file else entry.sources
        files = [_file(source, FOLDER / entry.name, choice.url) for source in valid]
        yield next((file for file in files if Path(file.path).exists()), files[0])
    elif stage == "fetch_vae" and latent and latent.vae.origin == "published" and latent.vae.name:
        from ocm_core.latents.fetching import vae_named

        for source in vae_named(latent.vae.name).files:
            yield _file(source, FOLDER / latent.vae.name, latent.vae.url)
    elif stage == "fetch_features":
        from ocm_core.features import inception

        yield _file(inception.SOURCE, inception.FOLDER)
    archives: list[Archive] = []
    if stage == "fetch_reference" and experiment.features and experiment.features.reference:
        from ocm_core.features.published_reference import reference_named

        archives = [reference_named(experiment.features.reference)]
    elif stage == "fetch_data":
        archives = [*experiment.data.needed_archives().values()]
        for key, path in experiment.data.user_files().items():
            remedy = f"put it there, or correct data.{key}"
            yield NeededFile(str(path), None, IN_PLACE if path.exists() else "missing", remedy)
    for archive in (published.at_hand(ARCHIVES) for published in archives):
        yield _file(archive, ARCHIVES / archive.kind)


def _file(source: PublishedFile | Archive, folder: Path, url: str | None = None) -> NeededFile:
    path, state = folder / source.file, DOWNLOAD if url or source.url else "missing"
    if path.exists():
        size, state = path.stat().st_size, unlike_its_name(path) or IN_PLACE
        if source.bytes not in (None, size):
            state = f"{size} bytes instead of {source.bytes}"
    return NeededFile(str(path), source.bytes, state, source.remedy(path))


def to_write(experiment: Experiment, states: Mapping[Task, str]) -> dict[str, int | None]:
    """Return the bytes that are still to be written, by stage; None where nothing says how many."""
    waiting = [task for task, state in states.items() if state != UP_TO_DATE]
    stages = {task.stage for task in waiting}
    space = {"encode": encode_bytes(experiment)} if "encode" in stages else {}
    if parts := [task.part for task in waiting if task.stage == "sample"]:
        items = experiment.sample.count * sum(len(cells_of(experiment, part)) for part in parts)
        space["sample"] = items * prod(experiment.shape) * FLOAT32
    return space


def encode_bytes(experiment: Experiment) -> int | None:
    """Return the bytes of the encoded data set; None if its size is not declared."""
    latent = experiment.encode.latent
    try:
        sizes = experiment.data.count_items()
    except (NotImplementedError, OcmError):  # it does not declare them, or has no files yet
        return None
    flipped = sizes.get("train", 0) if experiment.encode.flips else 0
    width = FLOAT32 if experiment.levels is None else 1
    kept = 2 if latent and latent.posterior == "keep" else 1  # mean and deviation
    label = INT64 if experiment.data.classes else 0
    item = kept * prod(experiment.shape) * width + label + INT64  # and the index
    text = latent.text if latent else None
    prompts = (experiment.data.classes + 1) * text.tokens * text.width * FLOAT32 if text else 0
    return (sum(sizes.values()) + flipped) * item + prompts
