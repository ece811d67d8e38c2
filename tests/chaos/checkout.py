"""A place to run stages in, with tiny experiments that have every stage between them."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from ocm_core.features import inception
from ocm_core.features.published_reference import REFERENCES
from ocm_core.params.compose import compose
from ocm_core.pipeline.graph import graph_of
from tests.chaos.jobs import Job
from tests.init.folders import write_images
from tests.metrics.test_published_reference import arrays
from tests.metrics.tiny_inception import TinyInception

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = Path("datasets/references", REFERENCES["imagenet256"].file)
FEW = "{iterations: 12, batch_size: 4, checkpoint_every: 3, learning_rate: 1e-3, ema: 0.9}"
GRID = "grids=[{nfe: [2], guidance: [1.0]}]"
SAMPLERS = (
    "ddpm: {kind: ddpm, grids: [{nfe: [2]}], methods: [beta, ocm]}",
    "ddim: {kind: ddim, grids: [{nfe: [2]}], methods: [delta]}",
)
SAMPLES = ["sample.count=6", "sample.batch_size=4", "sample.seeds=[0]", "sample.split=[]"]
TIMESTEPS = ["train.timesteps.points=5", "train.timesteps.images=4", "train.timesteps.batch_size=4"]
LIKELIHOOD = ["evaluate.likelihood.nfe=[2]", "evaluate.likelihood.images=6"]
SELECTED = [  # heads are kept between the checkpoints
    "train.heads.keep_every=4",
    "train.selection={kind: best_frechet, samples: 6, nfe: 2, batch_size: 4}",
]
TINY = {
    "digits": [
        *("schedule.steps=120", "network.config.base_channels=8", "encode.chunk=128"),
        *("encode.shard=256", f"train.score={FEW}", f"train.heads={FEW}", *SELECTED),
        *(f"train.classifier={FEW}", "train.moments={draws: 2, batch_size: 2}"),
        "train.heads.solve={draws: 40, batch_size: 1}",
        *("train.spectrum={images: 4, points: 3, batch_size: 2}", "train.timesteps.trajectories=2"),
        *("~sample.samplers", f"+sample.samplers={{{', '.join(SAMPLERS)}}}", *SAMPLES),
        *("train.timesteps.methods=[beta, ocm]", *TIMESTEPS, *LIKELIHOOD),
        *("evaluate.likelihood.methods=[beta, ocm]", "evaluate.likelihood.nfe_by_method={}"),
        "evaluate.likelihood.batch_size=2",
        *("features.neighbours=2", "evaluate.distances.blocks=2"),
        "evaluate.denoising={methods: [ocm], sigmas: [0.1, 1.0], images: 4, batch_size: 2}",
        "++evaluate.score_loss={images: 4, batch_size: 2, seed: 0}",
        "++evaluate.jacobian={images: 2}",
        "evaluate.restoration={tasks: {inpainting: {operator: {kind: inpainting}, sigma: 0.2}},"
        " methods: [ocm], algorithms: [mmps], nfe: [2], images: 2, iterations: 1}",
        "evaluate.codec={methods: [beta, ocm], nfe: [2], images: 16}",
        *("evaluate.posterior_std.images=1", "evaluate.posterior_std.times=[1, 60]"),
        "evaluate.posterior_std.probes=[1]",
    ],
    "toy_mog9": [
        *("schedule.steps=120", "data.train_size=64", "data.test_size=64"),
        *("network.scores=[trained]", "network.width=8", "network.depth=1"),
        *(f"train.score={FEW}", f"train.heads={FEW}", "train.moments={draws: 2, batch_size: 2}"),
        *(f"sample.samplers.ddpm.{GRID}", f"sample.samplers.ddim.{GRID}", *SAMPLES),
        "sample.samplers.ddpm.methods=[beta, ocm_relative]",
        "sample.samplers.ddim.methods=[delta, ocm_relative]",
        *("train.timesteps.methods=[beta, ocm_relative]", *TIMESTEPS),
        *("evaluate.likelihood.methods=[beta, ocm_relative]", *LIKELIHOOD),
        *("evaluate.covariance_error.times=[1, 60]", "evaluate.covariance_error.points=4"),
        *("evaluate.path_weights.methods=[beta, ocm_relative]", "evaluate.path_weights.nfe=[5]"),
        "evaluate.path_weights.points=4",
    ],
    "imagenet256_smoke": ["features.space=inception", "features.reference=imagenet256"],
    "mnist_latent": [
        *(f"train.vae={FEW}", "data.test_share=0.95"),
        "encode.latent.vae.config.block_out_channels=[8, 8, 8]",
    ],
    "celeba64": ["data={kind: folder, path: IMAGES, side: 64}"],
}
# Of some experiments only what the others do not have.
LATENTS = "dummy_score dummy_vae fetch_score fetch_vae fetch_features fetch_reference encode"
ONLY = {"imagenet256_smoke": LATENTS, "mnist_latent": "vae", "celeba64": "fetch_data"}


def make_checkout(place: Path, names: list[str]) -> list[Job]:
    """Write the experiments there; to be called, and their jobs run, in that folder."""
    (place / "params/experiment").mkdir(parents=True)
    (place / "reports").mkdir()
    for name in ("ocm_core", "reports/paper", "params/preset"):
        (place / name).symlink_to(ROOT / name)
    _write_by_hand(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        tiny = {name: _tiny(name, place) for name in names}
        patch.chdir(place)
        graph_of.cache_clear()  # another test's experiments may have had these names
        for name, text in tiny.items():
            Path(f"params/experiment/tiny_{name}.yaml").write_text(text)
        return [
            Job(f"tiny_{name}", task)
            for name in names
            for task in graph_of(f"tiny_{name}").tasks
            if task.stage in ONLY.get(name, task.stage).split()
        ]


def _tiny(name: str, place: Path) -> str:
    """Return an overlay that says everything, with few methods, which no override can remove.

    Those are kept that are sampled, and those without a head.
    """
    whole = compose(name, [text.replace("IMAGES", str(place / "images")) for text in TINY[name]])
    sampled = {m for sampler in whole.sample.samplers.values() for m in sampler.methods}
    few = {k: m for k, m in whole.methods.items() if k in sampled or m.needs != "head"}
    tree = whole.model_copy(update={"methods": few}).model_dump(mode="json")
    tree.pop("name")
    for label, block in tree["methods"].items():
        if "+" in label:  # such a label says everything
            tree["methods"][label] = None
        else:
            block.pop("needs")  # which a method's own file says
    return f"# @package _global_\n{yaml.safe_dump(tree)}"


def _write_by_hand(place: Path) -> None:
    """What no server of our own has: Inception, a reference set, and images of one's own."""
    weights = place / inception.FOLDER / inception.FILE
    for file in (weights, place / REFERENCE):
        file.parent.mkdir(parents=True)
    torch.jit.script(TinyInception()).save(weights)
    np.savez_compressed(place / REFERENCE, **arrays())
    write_images(place / "images", count=6, side=64)


def digests(folder: Path) -> dict[Path, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {f.relative_to(folder): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
