"""A pixel and a latent smoke experiment with fewer jobs: on a cluster each costs some seconds.

No selection of heads, optimal chains, deviation or cost; one job for all samples.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.pipeline.conftest import Project

PIXELS, LATENTS = "cifar10_ls_smoke", "imagenet256_smoke"
ITERATIONS = 60  # of the heads, whose state is kept every ten


def shrink(project: Project) -> None:
    params = project.root / "params"
    training, evaluation = (
        _read(params / f"{group}/smoke.yaml") for group in ("train", "evaluate")
    )
    training["heads"]["iterations"] = ITERATIONS
    training["selection"] = {"kind": "last"}
    evaluation |= {"chains": None, "deviation": None, "cost": None}
    del evaluation["likelihood"]["chains"]["ddpm_optimal"]
    _write(params / "train/few.yaml", training)
    _write(params / "evaluate/few.yaml", evaluation)
    for name in (PIXELS, LATENTS):
        file = params / f"experiment/{name}.yaml"
        _write(file, _with_few(_read(file)), "# @package _global_\n")
    project.run("ocm", "params", "--write")


def _with_few(overlay: dict[str, Any]) -> dict[str, Any]:
    few = {"override /train": "few", "override /evaluate": "few"}
    overlay["defaults"] = [{k: few.get(k, v) for k, v in e.items()} for e in overlay["defaults"]]
    if "sample" in overlay:
        del overlay["sample"]["samplers"]["ddpm_optimal"]
        overlay["sample"]["split"] = []
        overlay["evaluate"] = {"likelihood": None}
    return overlay


def _read(file: Path) -> dict[str, Any]:
    tree: dict[str, Any] = yaml.safe_load(file.read_text())
    return tree


def _write(file: Path, tree: dict[str, Any], head: str = "") -> None:
    file.write_text(head + yaml.safe_dump(tree, sort_keys=False))
