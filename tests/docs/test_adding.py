"""docs/adding.md is followed to the letter in a copy of the repository, down to the report."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml
from PIL import Image

from tests.docs.page import blocks, commands, edited, follow
from tests.pipeline.conftest import ROOT, Project, copy_repository

PAGE = (ROOT / "docs/adding.md").read_text()
CONTRACTS = (
    "tests/core/test_methods.py",
    "tests/networks/test_conv.py",
    "tests/datasets/test_contract.py",
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Everything on the page has been written and edited."""
    made = Project(tmp_path_factory.mktemp("adding") / "project")
    copy_repository(made.root)
    shutil.copytree(
        ROOT / "tests", made.root / "tests", ignore=shutil.ignore_patterns("__pycache__")
    )
    written = follow(PAGE, made.root)
    assert len(written) == 13
    code = [str(file) for file in written if file.suffix == ".py"]
    made.run("ruff", "check", "--no-cache", *code)
    made.run("ruff", "format", "--no-cache", "--check", *code)
    return made


def test_what_is_new_keeps_the_contracts_of_its_kind(project: Project) -> None:
    said = project.run(
        *("pytest", "-q", "-p", "no:cacheprovider", *CONTRACTS),
        *("-k", "Isotropic or Halfway or TestConv or patches"),
    )
    passed = int(said.rpartition(" passed")[0].split()[-1])
    assert passed >= 2 * 7 + 12 + 5, said


def test_the_commands_of_the_page_end_in_a_report_and_samples(project: Project) -> None:
    typed = commands(PAGE)
    assert [words[:2] for words in typed] == [
        ["ocm", "params"],
        ["ocm", "doctor"],
        ["snakemake", "--cores"],
        ["ocm", "sample"],
    ]
    for words in typed:
        project.run(*words)
    metrics = json.loads((project.root / "reports/patches.metrics.json").read_text())
    assert set(metrics["fid"]["ddpm"]) == {"beta", "ocm", "ocm_two", "halfway", "isotropic"}
    assert metrics["fid"]["ddim"]["halfway"]["K5"] > 0
    assert "isotropic" in (project.root / "reports/patches.html").read_text()
    mine = yaml.safe_load((project.root / "params/resolved/mine.yaml").read_text())
    described = {"kind": "halfway", "needs": "nothing", "head": None, "init": None, "share": 0.25}
    assert mine["methods"]["halfway"] == described
    assert all("halfway" in s["methods"] for s in mine["sample"]["samplers"].values())
    (grid,) = (project.root / "samples").glob("patches-learned-ddpm-isotropic-K10-seed0.png")
    assert Image.open(grid).size == (8 * 17 * 4,) * 2


def test_every_named_file_and_command_is_in_a_block_that_is_followed() -> None:
    """A block that the test would pass over is a block that nobody has tried."""
    found = list(blocks(PAGE))
    assert PAGE.count("\n```") == 2 * len(found)
    assert {block.language for block in found if block.file is None} == {"sh"}


def test_a_diff_that_does_not_fit_is_refused() -> None:
    assert edited("a\nb\nc\n", " a\n-b\n+B\n", "x") == "a\nB\nc\n"
    for diff in (" a\n-c\n", " z\n+y\n"):
        with pytest.raises(AssertionError, match="expected once"):
            edited("a\nb\nc\n", diff, "x")
