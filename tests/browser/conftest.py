"""Pages of real runs in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.conftest import NAME, Project, empty, finished, made_by_snakemake, shelf

__all__ = ["empty", "finished", "made_by_snakemake", "shelf"]  # fixtures

SHORT = {"iterations": 40, "checkpoint_every": 40}
FEW_COSTS = {"points": 6, "images": 8, "batch_size": 8}
GRID = [{"steps": [2, 5], "guidance": [1.0]}]
ANCESTRAL = {
    **{"kind": "ddpm", "eta": 1.0, "rederive_eps": False},
    **{"chain": {"kind": "even"}, "last_sigma": 1.0},
}
OVERLAYS = {
    "tiny_digits": {
        "defaults": ["digits", {"override /sample": "smoke"}],
        "train": {"score": SHORT, "heads": SHORT, "classifier": SHORT, "moments": {"draws": 4}},
        "sample": {
            "count": 32,
            "seeds": [0, 1],
            "split": [],
            "samplers": {
                "ddpm": {"grids": GRID},
                "probes": {**ANCESTRAL, "grids": GRID[:1], "methods": ["rademacher_1"]},
                "ddim": {"grids": GRID},
                "quality": {
                    **{"kind": "preset", "name": "quality"},
                    **{"grids": GRID, "methods": ["delta"]},
                },
                "unipc": {
                    **{"kind": "diffusers", "scheduler": "UniPCMultistepScheduler"},
                    **{"grids": GRID},
                },
            },
        },
        "evaluate": {
            "chains": FEW_COSTS,
            "likelihood": {
                "steps": [2, 5],
                "images": 16,
                "batch_size": 16,
                "fewer": {"rademacher_100": [2]},
            },
            "deviation": {"times": [1, 800], "images": 2, "probes": [1, 10]},
            "cost": {"batch_size": 8, "repeats": 2},
        },
    },
}


@pytest.fixture(scope="session")
def page_of(made_by_snakemake: Project, finished: Callable[..., Project]) -> Callable[[str], Path]:
    """The page of an experiment, which is run if no test has run it yet."""

    def find(name: str) -> Path:
        toy = name == NAME
        project = made_by_snakemake if toy else finished(name, OVERLAYS.get(name))
        return project.root / f"reports/{name}.html"

    return find
