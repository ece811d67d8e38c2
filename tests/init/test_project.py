"""docs/your_images.md in a folder outside the checkout: from a foreigner's model to the page."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ..docs.page import commands
from ..export.test_pipeline import ALONE
from ..pipeline.conftest import ROOT, Project
from .folders import write_captions, write_dit, write_images, write_model, write_stable_diffusion

PAGE = (ROOT / "docs/your_images.md").read_text()
COMMANDS = [" ".join(command) for command in commands(PAGE)]
NAME = "mine_smoke"


class Folder(Project):
    """Where somebody works who has installed the package and has no checkout."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        del self.env["PYTHONPATH"]

    def shell(self, command: str) -> str:
        return self.run("sh", "-c", command)


Finished = tuple[Folder, list[str]]  # and what the page's commands said


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = Folder(tmp_path_factory.mktemp("elsewhere"))
    write_images(folder.root / "my-images")
    scheduler = {"beta_schedule": "squaredcos_cap_v2", "prediction_type": "v_prediction"}
    write_model(folder.root / "my-model", dtype=torch.float16, **scheduler)
    init, *others = COMMANDS  # random weights are no posterior mean
    return folder, [folder.shell(command) for command in (f"{init} --unchecked", *others)]


def test_the_page_is_made_and_the_printed_command_was_the_one(finished: Finished) -> None:
    folder, (init, made, sampled) = finished
    assert re.search(rf"try every stage in small, in about \d+ .*: {COMMANDS[1]}\n", init)
    assert f"open reports/{NAME}.html" in made
    # a bare call plans the active experiment, `mine`
    assert "Nothing to be done" not in folder.run("snakemake", "--dry-run")
    numbers = (folder.root / f"reports/{NAME}/results.csv").read_text()
    assert all(f",{measure}," in numbers for measure in ("bits_per_dim", "frechet", "recall"))
    assert sampled.startswith("4 samples: ")
    (weights,) = (folder.root / f"artifacts/{NAME}/fetch/fetch_score/all").glob("*.safetensors")
    assert {value.dtype for value in load_file(weights).values()} == {torch.float32}


def test_the_model_goes_back_into_diffusers(finished: Finished) -> None:
    folder, _ = finished
    assert "DiffusionPipeline.from_pretrained" in folder.shell(f"ocm export {NAME} pipeline")
    assert "frechet" in (folder.root / "pipeline/README.md").read_text()
    (folder.root / "alone.py").write_text(ALONE)
    assert "2 (16, 16) 10" in folder.shell("python alone.py pipeline")


def test_another_model_in_the_folder_is_seen(finished: Finished) -> None:
    """The stage that reads it is stale before anything is computed with it."""
    folder, _ = finished
    name = "my-model/unet/diffusion_pytorch_model.safetensors"
    content = (folder.root / name).read_bytes()
    edited = {key: value + 0.01 for key, value in load_file(folder.root / name).items()}
    save_file(edited, folder.root / name)
    try:
        states = folder.states(NAME)
        assert states["fetch_score/all"] == "stale: made with other parameters"
        assert states["fetch_data/all"] == "up to date"
    finally:
        (folder.root / name).write_bytes(content)


@pytest.mark.parametrize("kind", ["dit", pytest.param("text", marks=pytest.mark.slow)])
def test_models_of_latents_go_the_same_way(kind: str, tmp_path: Path) -> None:
    """With guidance in the end, and back into diffusers."""
    folder, more = Folder(tmp_path), ""
    if kind == "dit":
        write_dit(tmp_path / "my-model")
        for name in ("cat", "dog"):
            write_images(tmp_path / "my-images" / name, count=12)
    else:
        write_stable_diffusion(tmp_path / "my-model")
        write_captions(tmp_path / "captions.csv", write_images(tmp_path / "my-images"))
        more = " --captions captions.csv"
    init, make, sample = COMMANDS
    folder.shell(init + more)
    folder.shell(make)
    numbers = (tmp_path / f"reports/{NAME}/results.csv").read_text()
    assert ",frechet," in numbers and ",recall," in numbers
    chosen = "--label 1" if kind == "dit" else "--prompt 'a cat'"
    assert "4 samples: " in folder.shell(f"{sample} {chosen} --guidance 2")
    folder.shell(f"ocm export {NAME} pipeline --steps 2")
    call = "class_labels=[1, 0]" if kind == "dit" else "prompt=['a cat', 'a dog']"
    code = ALONE.replace("pipe(2,", f"pipe({call}, guidance_scale=2.0,")
    (tmp_path / "alone.py").write_text(code)
    assert "2 (16, 16) 10" in folder.shell("python alone.py pipeline")


def test_the_readme_has_the_same_commands_in_large() -> None:
    block = (ROOT / "README.md").read_text().split("\n## The pipeline in two commands\n")[1]
    large = [COMMANDS[0], "snakemake --cores 2 reports/mine.html"]
    assert [" ".join(c) for c in commands(block.split("\n## ")[0])] == large


def test_another_image_makes_all_that_follows_stale(finished: Finished) -> None:
    folder, _ = finished
    page = f"reports/{NAME}.html"
    assert set(folder.states(NAME).values()) == {"up to date"}
    report = folder.shell(f"ocm doctor {NAME}")
    assert "nothing to do" in report and "on one A100" in report
    assert "Nothing to be done" in folder.shell(f"snakemake -n {page} --quiet host")
    added = folder.root / "my-images/another.png"
    added.write_bytes((folder.root / "my-images/000.png").read_bytes())
    try:
        plan = folder.shell(f"snakemake -n {page} --quiet host")
        assert "fetch_data" in plan and "encode" in plan
        states = folder.states(NAME)
        assert states["fetch_data/all"] == "stale: made with other user files"
        assert states["fetch_score/all"] == "up to date"
    finally:
        added.unlink()


def test_dvc_records_it(finished: Finished) -> None:
    folder, _ = finished
    for command in (
        "git init --quiet && git config user.name Test && git config user.email t@example.org",
        f"printf 'active: [{NAME}]\\n' > params/active.yaml",  # by the user's word
        "dvc init --quiet && git add --all && git commit --quiet --message first",
        f"ocm sync {NAME}",
    ):
        folder.shell(command)
    committed = folder.shell("git ls-files").splitlines()
    assert not [file for file in committed if file.startswith(("my-images/", "my-model/"))]
    stale = json.loads(folder.shell("dvc status --json"))
    assert not [stage for stage in stale if NAME in stage]
