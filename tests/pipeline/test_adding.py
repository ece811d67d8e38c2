"""README.md says how a covariance method is added; here it is done, word for word."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.pipeline.conftest import ROOT, Project


def readme_block(language: str, containing: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return next(block for block in blocks if containing in block)


def test_a_method_of_ones_own_goes_all_the_way_to_the_report(
    empty: Project, tmp_path: Path
) -> None:
    project = empty.copy(tmp_path / "project")
    method, overlay = readme_block("python", "class Method"), readme_block("yaml", "halfway")
    (project.root / "ocm_core/covariance/halfway.py").write_text(method)
    (project.root / "params/experiment/mine.yaml").write_text(overlay)
    project.run("ocm", "params", "--write")
    project.run("snakemake", "--cores", "2", "reports/mine.html")
    metrics = json.loads((project.root / "reports/mine.metrics.json").read_text())
    assert set(metrics["mmd_learned_score"]["ddpm"]) == {"beta", "ocm", "halfway"}
    assert metrics["mmd_learned_score"]["ddim"]["halfway"]["K3"] > 0
    assert "halfway" in (project.root / "reports/mine.html").read_text()
