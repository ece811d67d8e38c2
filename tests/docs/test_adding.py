"""docs/adding.md is followed to the letter in a copy of the repository, down to the report."""

import shutil

import pytest
import yaml
from PIL import Image

from tests.docs.page import blocks, commands, follow
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
    assert len(written) == 12
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
    assert passed >= 2 * 7 + 12 + 3, said


def test_the_commands_of_the_page_end_in_a_report_and_samples(project: Project) -> None:
    typed = commands(PAGE)
    expected = ["ocm doctor", "snakemake --cores", "ocm params", "ocm sample"]
    assert [" ".join(words[:2]) for words in typed] == expected
    doctor, _, params, _ = (project.run(*words) for words in typed)
    assert "brightness" in doctor
    assert yaml.safe_load(params)["sample"]["count"] == 4
    metrics = project.metrics("patches")
    assert set(metrics["frechet"]["ddpm"]) == {"beta", "ocm", "ocm_two", "halfway", "isotropic"}
    assert metrics["frechet"]["ddim"]["halfway"]["K5"] > 0
    assert metrics["brightness"]["fading"]["ocm"]["K5"] > 0
    page = (project.root / "reports/patches.html").read_text()
    assert "isotropic" in page and "error of the mean brightness" in page
    (grid,) = (project.root / "samples").glob("patches-trained-ddpm-isotropic-*10-seed0.png")
    assert Image.open(grid).size == (8 * 17 * 4,) * 2


def test_a_method_of_ten_lines_is_composed_into_an_experiment(project: Project) -> None:
    mine = yaml.safe_load(project.run("ocm", "params", "mine"))
    assert mine["methods"]["halfway"]["share"] == 0.25
    assert all("halfway" in s["methods"] for s in mine["sample"]["samplers"].values())


def test_every_named_file_and_command_is_in_a_block_that_is_followed() -> None:
    found = list(blocks(PAGE))
    assert PAGE.count("\n```") == 2 * len(found)
    assert {block.language for block in found if block.file is None} == {"sh"}
