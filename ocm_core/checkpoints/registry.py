"""The six published networks of the paper's experiments, as data, and the layouts of their files.

Addresses and digests are copied from the pages named beside them; what no page states is None. Of
several sources the first is downloaded, unless another's file is in `checkpoints/<name>/` already.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from ocm_core.diffusion.denoiser import TimeConvention
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError, unknown
from ocm_core.io.fetch import PublishedFile, google_drive
from ocm_core.networks import build
from ocm_core.networks.keys import count_values

FOLDER = Path("checkpoints")
ANALYTIC = "https://github.com/baofff/Analytic-DPM"
_FROM_ZERO = TimeConvention(shift=1)  # the network's first timestep is 0

# Where a file has the weights: keys of dicts; -1 is the end of a list, after the model in training.
LAYOUTS: Mapping[str, tuple[str | int, ...]] = {
    "flat": (),
    "ema_models_states": ("ema_models_states", "eps_model"),
    "list_with_ema_last": (-1,),
}


@dataclass(frozen=True, kw_only=True)
class CheckpointSource(PublishedFile):
    """One published file of a network."""

    layout: str = "flat"
    licence: str | None = None  # of the weights or of the page; None: none was found
    ema: bool | None = None  # None: not stated


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A published network: its architecture, how it was trained, and where its files are."""

    name: str
    family: str
    config: Mapping[str, Any]
    head: str
    schedule: Literal["linear", "cosine"]
    steps: int = 1000
    time: TimeConvention = _FROM_ZERO
    paper_millions: tuple[float, float]  # of parameters, without and with the head
    sources: tuple[CheckpointSource, ...]

    def network(self) -> ScoreNetwork:
        """Build the network with new weights."""
        return build(self.family, self.config)

    def source(self, file: str | None = None) -> CheckpointSource:
        """Return the source of that file, or the first one."""
        by_file = {source.file: source for source in self.sources}
        if file is not None and file not in by_file:
            raise OcmError(f"file of checkpoint {self.name!r}: {unknown(file, by_file)}")
        return by_file[file] if file else self.sources[0]


def _extended(name: str, file_id: str) -> CheckpointSource:
    """Return Extended-Analytic-DPM's conversion, to which the paper's own README links as well."""
    page = "https://github.com/baofff/Extended-Analytic-DPM"
    return CheckpointSource(file=f"{name}.pth", page=page, url=google_drive(file_id))


def _unet(multipliers: list[int], blocks: int, attention: list[int], dropout: float) -> Any:
    levels = {"channel_multipliers": multipliers, "attention_levels": attention}
    sizes = {"in_channels": 3, "base_channels": 128, "blocks_per_level": blocks}
    return {**sizes, **levels, "dropout": dropout}


def _cifar10(schedule: Literal["linear", "cosine"], file_id: str, analytic: str) -> Checkpoint:
    name = f"cifar10_{schedule[0]}s"
    by_hand = CheckpointSource(
        file=analytic,
        layout="ema_models_states",
        page=ANALYTIC,
        ema=True,
        note="its README has one link for both schedules, Google Drive"
        " 1WyoUFDQeJUJblAT85Tc1ntbqklvqMP3J, and does not say what is behind it",
    )
    return Checkpoint(
        name=name,
        family="iddpm_unet",
        config=_unet([1, 2, 2, 2], blocks=3, attention=[1, 2], dropout=0.3),
        head="simple",
        schedule=schedule,
        time=TimeConvention(),
        paper_millions=(52.54, 52.55),
        sources=(_extended(name, file_id), by_hand),
    )


_ALL = (
    _cifar10("linear", "1rhZBWUDK3_q37Iac3sXq6WnxR_OHhPyI", "400000.ckpt.pth"),
    _cifar10("cosine", "1ONNLpqPDLr4NesC0TfVZ3dCyaVBu7Xw0", "160000.ckpt.pth"),
    Checkpoint(
        name="celeba64",
        family="ddpm_unet",
        config=_unet([1, 2, 2, 2, 4], blocks=2, attention=[2], dropout=0.1),
        head="simple",
        schedule="linear",
        paper_millions=(78.70, 78.71),  # as printed; by count it is 78.7045
        sources=(
            _extended("celeba64", "1bGQGTsFOnqQ2z3FN5rdkj1FPN1_5nYF4"),
            CheckpointSource(
                file="ema_celeba.pth",
                page=ANALYTIC,
                licence="MIT",  # DDIM's, where the weights come from
                ema=True,
                url=google_drive("1R_H-fJYXSH79wfSKs9D-fuKQVan5L-GR"),
            ),
            CheckpointSource(
                file="ddim_celeba64.pth",
                layout="list_with_ema_last",
                page="https://github.com/ermongroup/ddim",
                licence="MIT",
                ema=True,
                note="its README links the Google Drive folder 1si6Gn3U2ZrggnfYXOESWVFIwcNbyfh5o",
            ),
        ),
    ),
    Checkpoint(
        name="imagenet64",
        family="iddpm_unet",
        config=_unet([1, 2, 3, 4], blocks=3, attention=[2, 3], dropout=0.0)
        | {"learns_variance": True},
        head="complex",
        schedule="cosine",
        steps=4000,
        time=TimeConvention(shift=1, scale=0.25),
        paper_millions=(121.06, 121.49),
        sources=(
            CheckpointSource(
                file="imagenet64_uncond_100M_1500K.pt",
                page="https://github.com/openai/improved-diffusion",
                url="https://openaipublic.blob.core.windows.net/diffusion/march-2021/"
                "imagenet64_uncond_100M_1500K.pt",
            ),
            _extended("imagenet64", "1evlXbMOg55y2BIjiALcD6Smbm07k7XGW"),
        ),
    ),
    Checkpoint(
        name="lsun_bedroom",
        family="ddpm_unet",
        config=_unet([1, 1, 2, 2, 4, 4], blocks=2, attention=[4], dropout=0.0),
        head="complex",
        schedule="linear",
        paper_millions=(113.67, 114.04),
        sources=(
            CheckpointSource(
                file="model-2388000.ckpt",
                page="https://github.com/pesser/pytorch_diffusion",
                licence="MIT",
                ema=True,
                url="https://heibox.uni-heidelberg.de/f/b95206528f384185889b/?dl=1",
                md5="1921fa46b66a3665e450e42f36c2720f",
                note="the one in ema_diffusion_lsun_bedroom_model",
            ),
            _extended("lsun_bedroom", "1fVxn3C5uaXdZM4cc8WnQ6GXexS5-274k"),
        ),
    ),
    Checkpoint(
        name="imagenet256",
        family="dit",
        config={
            "image_size": 32,
            "patch_size": 2,
            "in_channels": 4,
            "width": 1152,
            "depth": 28,
            "attention_heads": 16,
            "num_classes": 1000,
            "learns_variance": True,
        },
        head="adaln",
        schedule="linear",
        paper_millions=(675.13, 677.80),
        sources=(
            CheckpointSource(
                file="DiT-XL-2-256x256.pt",
                page="https://github.com/facebookresearch/DiT",
                licence="CC-BY-NC",
                url="https://dl.fbaipublicfiles.com/DiT/models/DiT-XL-2-256x256.pt",
            ),
        ),
    ),
)

CHECKPOINTS: Mapping[str, Checkpoint] = {entry.name: entry for entry in _ALL}


def checkpoint_named(name: str) -> Checkpoint:
    """Return the published network of that name."""
    if name not in CHECKPOINTS:
        raise OcmError(f"checkpoint: {unknown(name, CHECKPOINTS)}")
    return CHECKPOINTS[name]


def nested(layout: str, state: Mapping[str, Any]) -> object:
    """Nest a state dict as a published file of that layout does."""
    content: object = state
    for key in reversed(LAYOUTS[layout]):
        content = [{}, content] if isinstance(key, int) else {key: content}
    return content


def counts(checkpoint: Checkpoint) -> dict[str, Any]:
    """Count the parameters without and with the head, beside the millions that the paper states."""
    with torch.device("meta"):
        network = checkpoint.network()
        head = network.make_head(checkpoint.head)
    without = count_values(network)
    total = without + count_values(head)
    return {
        "name": checkpoint.name,
        "family": checkpoint.family,
        "head": checkpoint.head,
        "parameters": without,
        "parameters_with_head": total,
        "millions": round(without / 1e6, 2),
        "millions_with_head": round(total / 1e6, 2),
        "paper_millions": checkpoint.paper_millions[0],
        "paper_millions_with_head": checkpoint.paper_millions[1],
    }


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Format the counts as text."""
    line = (
        "{name:<14}{family:<12}{head:<9}{millions:>8.2f}{paper_millions:>8.2f}"
        "{millions_with_head:>9.2f}{paper_millions_with_head:>8.2f}"
    )
    head = f"{'':<14}{'family':<12}{'head':<9}{'M':>8}{'paper':>8}{'+ head':>9}{'paper':>8}"
    return "\n".join([head, *(line.format(**row) for row in rows)])
