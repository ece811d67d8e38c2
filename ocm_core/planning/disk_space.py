"""The disk space of an experiment's stores of data and samples, from its parameters.

Stores are not compressed, so sizes are exact but for metadata. Networks, heads and features are not
counted, nor is DVC's cache, which holds a second copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from math import ceil, prod
from pathlib import Path
from typing import NamedTuple

from ocm_core.cells import cells_of
from ocm_core.io.image_files import images_among, open_image_files
from ocm_core.pipeline.table import Task
from ocm_core.planning.published_files import ARCHIVES
from ocm_core.schema.datasets import FolderData, Imagenet64Data
from ocm_core.schema.experiment import Experiment
from ocm_core.store.layout import StoreLayout, ranges

FLOAT32 = 4  # bytes

_ITEMS = {  # as tensorflow/datasets (ImageNet) and other public readers of the archives count them
    "cifar10": {"train": 50_000, "test": 10_000},
    "mnist": {"train": 60_000, "test": 10_000},
    "celeba64": {"train": 162_770, "test": 19_962},
    "imagenet64/png": {"train": 1_281_149, "test": 49_999},
    "imagenet64/npz": {"train": 1_281_167, "test": 50_000},
    "imagenet256": {"train": 1_281_167, "test": 50_000},
    "lsun_bedroom": {"train": 3_033_042, "test": 300},
}


class SplitSize(NamedTuple):
    """Of one split of a data set."""

    items: int
    labelled: bool


def to_write(experiment: Experiment, states: Mapping[Task, str]) -> dict[str, int]:
    """Bytes by stage, for the tasks that are not current."""
    open_tasks = [task for task, state in states.items() if state != "current"]
    stages = {task.stage for task in open_tasks}
    drawn = sum(sample_bytes(experiment, task) for task in open_tasks if task.stage == "sample")
    found = {"encode": encode_bytes(experiment) if "encode" in stages else 0, "sample": drawn}
    return {stage: size for stage, size in found.items() if size}


def sample_bytes(experiment: Experiment, task: Task) -> int:
    cells = len(cells_of(experiment, task.part))
    return cells * experiment.sample.count * prod(experiment.shape) * FLOAT32


def encode_bytes(experiment: Experiment) -> int:
    return _bytes([*split_plans(experiment), *prompt_plans(experiment)])


def split_bytes(experiment: Experiment) -> int:
    return _bytes(split_plans(experiment))


def _bytes(plans: Iterable[StoreLayout]) -> int:
    return sum(plan.bytes_of(plan.shards) for plan in plans)


def encode_shards(experiment: Experiment) -> int:
    plans = [*split_plans(experiment), *prompt_plans(experiment)]
    return sum(len(plan.shards) for plan in plans)


def prompt_plans(experiment: Experiment) -> list[StoreLayout]:
    """Of the embeddings of captions and of the empty prompt, where the network takes text."""
    latent = experiment.encode.latent
    if latent is None or latent.text is None:
        return []
    module = import_module("ocm_core.artifacts.prompts")
    rows = ranges(experiment.data.classes + 1, experiment.encode.jobs, module.SHARD)
    return [module.layout(latent.text, items) for items in rows]


def split_plans(experiment: Experiment) -> Iterator[StoreLayout]:
    """Of the stores that the jobs of `encode` write, of all splits."""
    settings, latent, levels = experiment.encode, experiment.encode.latent, experiment.levels
    known = splits(experiment)
    for name, count in stored_items(experiment).items():
        for items in ranges(count, settings.jobs, settings.shard):
            yield StoreLayout(
                items=items,
                shape=experiment.shape,
                dtype="float32" if levels is None else "uint8",
                levels=levels,
                labelled=known[name].labelled,
                spread=latent is not None and latent.posterior == "keep",
                chunk=settings.chunk,
                shard=settings.shard,
            )


def stored_items(experiment: Experiment) -> dict[str, int]:
    """By split; training images may be stored a second time, flipped."""
    flips = 2 if experiment.encode.flips else 1
    return {
        name: split.items * (flips if name == "train" else 1)
        for name, split in splits(experiment).items()
    }


def splits(experiment: Experiment) -> dict[str, SplitSize]:
    """By the data set itself; by the known counts where it is published, by names in a folder."""
    data = experiment.data
    if not data.archived:
        opened = import_module(f"ocm_core.datasets.{data.kind}").open_data(data, ARCHIVES)
        return {n: SplitSize(len(s), s.labels is not None) for n, s in opened.splits.items()}
    if isinstance(data, FolderData):
        return _folder_splits(data)
    key = f"{data.kind}/{data.release}" if isinstance(data, Imagenet64Data) else data.kind
    wanted = getattr(data, "splits", _ITEMS[key])
    return {name: SplitSize(_ITEMS[key][name], data.classes > 0) for name in wanted}


def _folder_splits(data: FolderData) -> dict[str, SplitSize]:
    """As if every file could be read: none is opened."""
    images, _ = images_among(open_image_files(Path(data.path).expanduser()).entries)
    test = ceil(data.test_share * len(images))
    sizes = {"train": len(images) - test, "test": test}
    return {name: SplitSize(count, data.classes > 0) for name, count in sizes.items()}
