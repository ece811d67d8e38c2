"""A model that diffusers wrote, as anyone's would be: to the page, and back into diffusers.

Those of latents, with classes or prompts, go the same way in `tests/starting/test_project.py`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits

from ocm_core.compat import make_torchvision_importable
from tests.export.test_pipeline import ALONE
from tests.pipeline.conftest import Project

make_torchvision_importable()

from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel  # noqa: E402

Finished = Callable[..., Project]
CHOSEN = [
    *({f"override /{group}": "smoke"} for group in ("train", "sample", "evaluate")),
    *({"override /schedule": "model"}, {"override /network": "diffusers"}),
    *({"override /methods": "paper"}, {"override /data": "digits"}, {"override /head": "complex"}),
]


def trained_unet(folder: Path, iterations: int = 30) -> Path:
    """With diffusers' own classes, on the digits: a prediction of v, classes, half precision."""
    torch.manual_seed(0)
    model = UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        norm_num_groups=8,
        add_attention=False,
        num_class_embeds=10,
    )
    scheduler = DDPMScheduler(beta_schedule="squaredcos_cap_v2", prediction_type="v_prediction")
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 8 - 1
    labels = torch.tensor(digits.target)
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(iterations):
        rows = torch.randint(len(images), (32,))
        x0, noise, t = images[rows], torch.randn(32, 1, 8, 8), torch.randint(1000, (32,))
        said = model(scheduler.add_noise(x0, noise, t), t, labels[rows]).sample
        loss = (said - scheduler.get_velocity(x0, noise, t)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    DDPMPipeline(model.half(), scheduler).save_pretrained(folder)
    return folder


def unet_overlay(folder: Path) -> dict[str, Any]:
    """Without what the models of `tests/starting/test_project.py` are measured by, too."""
    few = {"features": {"reference_images": 24, "manifold_images": 24}}
    return {
        "defaults": CHOSEN,
        "network": {"path": str(folder)},
        "evaluate": few | {"deviation": None, "cost": None},
    }


def metrics(project: Project, name: str) -> Any:
    return json.loads((project.root / f"reports/{name}.metrics.json").read_text())


def test_a_unet_goes_to_the_page_and_back(finished: Finished, shelf: Path, tmp_path: Path) -> None:
    folder = shelf / "unet_model"
    if not folder.exists():
        trained_unet(folder)
    project = finished("own_unet", unet_overlay(folder))
    found = metrics(project, "own_unet")
    assert found["nll_bpd"]["ddpm"]["ocm"]["K5"] > 0
    assert found["fid"]["ddim"]["ocm"]["K5"] > 0
    assert (
        load_file(project.root / "artifacts/own_unet/fetch_score/all/score.safetensors")[
            "output.conv.weight"
        ].dtype
        == torch.float32
    )
    said = project.run("ocm", "export", "own_unet", str(tmp_path / "pipeline"))
    assert "DiffusionPipeline.from_pretrained" in said
    card = (tmp_path / "pipeline/README.md").read_text()
    assert "| fid.ddpm.ocm.K5 |" in card
    code = ALONE.replace("pipe(2,", "pipe(class_labels=[3, 7],")
    assert "2 (8, 8) 10" in project.run("python", "-c", code, str(tmp_path / "pipeline"))


def test_another_model_in_the_folder_is_seen(
    finished: Finished, shelf: Path, tmp_path: Path
) -> None:
    """Before anything is computed with it, and by the stage that reads it."""
    folder = shelf / "unet_model"
    if not folder.exists():
        trained_unet(folder)
    project = finished("own_unet", unet_overlay(folder)).copy(tmp_path / "project")
    own = tmp_path / "model"
    overlay = project.root / "params/experiment/own_unet.yaml"
    overlay.write_text(overlay.read_text().replace(str(folder), str(own)))
    shutil.copytree(folder, own)
    project.run("ocm", "params", "--write")
    file = own / "unet/diffusion_pytorch_model.safetensors"
    save_file({key: value + 0.01 for key, value in load_file(file).items()}, file)
    said = project.run("ocm", "run", "fetch_score", "own_unet", fails=True)
    assert f"{file}: edited since" in said
