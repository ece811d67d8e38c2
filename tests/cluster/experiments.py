"""A pixel and a latent smoke experiment with fewer jobs: on a cluster each costs some seconds.

No selection of heads, optimal timesteps, standard deviations or counts; one job for all samples.
"""

from __future__ import annotations

from typing import Any

import yaml

from tests.pipeline.conftest import Project

PIXELS, LATENTS = "cifar10_ls_few", "imagenet256_few"
ITERATIONS = 60  # of the heads, whose state is kept every ten
FEW: dict[str, Any] = {
    "train.heads.iterations": ITERATIONS,
    "train.selection": {"kind": "last"},
    "sample.split": [],
    "evaluate.posterior_std": None,
    "evaluate.operations": None,
    "evaluate.likelihood.timesteps": {"even": {"kind": "even"}},
}


def shrink(project: Project) -> None:
    """Add the preset `few`, which is `smoke` with less in it."""
    folder = project.root / "params/preset"
    smoke = yaml.safe_load((folder / "smoke.yaml").read_text())
    (folder / "few.yaml").write_text(yaml.safe_dump(smoke | FEW, sort_keys=False))
