"""What the documents say is what the repository holds."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_figures_of_the_readme_are_those_of_the_committed_metrics() -> None:
    """Of HEAD: a run on another machine may round its own numbers otherwise."""
    shown = ["git", "show", "HEAD:reports/toy_mog9.metrics.json"]
    text = subprocess.run(shown, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    metrics = json.loads(text)
    by_method = metrics["mmd_learned_score"]["ddpm"]
    header = re.search(r"\| MMD, DDPM, learned score \|(.*)\|", README)
    assert header is not None
    steps = [f"K{k}" for k in re.findall(r"K = (\d+)", header[1])]
    rows = re.findall(r"^\| `(\w+)` \| ([\d. |]+) \|$", README, re.MULTILINE)
    assert len(rows) >= 8
    for method, cells in rows:
        assert cells.split(" | ") == [f"{by_method[method][k]:.3f}" for k in steps]


def test_every_folder_that_the_readme_names_exists() -> None:
    table = re.findall(r"^\| (`.*?`) \|", README, re.MULTILINE)
    named = [name for cell in table for name in re.findall(r"`([\w./]+)`", cell)]
    folders = [name for name in named if "/" in name]
    assert "ocm_core/covariance" in folders
    assert [name for name in folders if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", README))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()


def test_no_load_can_run_code() -> None:
    """Checkpoints are opened by safetensors, or by torch.load with weights_only=True."""
    tracked = subprocess.run(
        ["git", "ls-files", "*.py", "*.smk", "Snakefile"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    sources = {name: (ROOT / name).read_text() for name in tracked if not name.startswith("tests/")}
    assert len(sources) > 80
    for name, text in sources.items():
        for call in re.findall(r"torch\.load\(.*?\)", text, re.DOTALL):
            assert "weights_only=True" in call, name
        assert not re.search(r"\bpickle\.loads?\(|allow_pickle=True|(?<![.\w])eval\(", text), name
