"""The first hour of a newcomer: from a wheel, in a new environment, outside of any checkout."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..export.test_pipeline import ALONE
from ..pipeline.conftest import ROOT
from .folders import write_images, write_model

pytestmark = pytest.mark.slow

MINE = "init mine --images my-images"
TOO_SHORT = f"{MINE} --model my-model --budget 2s"
REFUSED = {  # the others are in test_init.py
    TOO_SHORT: "--budget: 2 s; the least here is",
    "init mine --images bitmaps": "at least 10, found none, and 12 other pictures",
    "run heads gone": "'gone' is unknown",
}


class Newcomer:
    """A folder, and an environment with the wheel and what it needs."""

    def __init__(self, place: Path) -> None:
        self.home, self.bin = place / "home", place / "env/bin"
        self.home.mkdir()
        paths = f"{self.bin}:{os.environ['PATH']}"
        self.env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        self.env |= {"PATH": paths, "OMP_NUM_THREADS": "1"}

    def types(self, words: str, code: int = 0) -> str:
        command = ["sh", "-c", words]
        done = subprocess.run(
            command, cwd=self.home, env=self.env, text=True, capture_output=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    place = tmp_path_factory.mktemp("new")
    files = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    for file in files:
        (copy := place / "checkout" / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, copy)
    pip = [sys.executable, "-m", "pip"]
    build = [*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", "wheels", "."]
    subprocess.run(build, cwd=place / "checkout", check=True)
    (wheel,) = (place / "checkout/wheels").glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", place / "env"], check=True)
    asked = subprocess.run(
        [*pip, "config", "get", "global.find-links"], capture_output=True, text=True, check=False
    )
    links = [word for link in asked.stdout.split() for word in ("--find-links", link)]
    python = ["--python", place / "env/bin/python", "--no-deps", *links]
    uv = [Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", *python]
    subprocess.run([*uv, "-r", ROOT / "requirements.txt"], check=True)
    subprocess.run([*uv, wheel], check=True)
    return Newcomer(place)


def test_the_walk(newcomer: Newcomer) -> None:
    home, types = newcomer.home, newcomer.types
    write_images(home / "my-images")
    write_model(home / "my-model")
    (home / "my-images/skipped.bmp").write_bytes(b"BM")
    (home / "bitmaps").mkdir()
    for number in range(12):
        (home / f"bitmaps/{number}.tiff").write_bytes(b"II*")
    types("python -c 'from diffusers import UNet2DModel'")  # of the user's own scripts
    assert types("ocm --version").startswith("ocm ")
    refused = {words: types(f"ocm {words}", code=1) for words in REFUSED}
    assert {words: said for words, said in refused.items() if REFUSED[words] not in said} == {}
    shown = types(f"ocm {MINE} --model my-model")
    assert "my-images: 24 images, 16×16, colour; 1 other picture skipped" in shown
    assert "ocm run all mine_smoke" in shown
    number, unit = re.findall(r"least here is (\d+) (\w)", refused[TOO_SHORT])[0]
    budget = f"--budget {1.5 * int(number)}{unit}"
    shown = types(f"ocm init quick --images my-images --model my-model {budget}")
    assert "`ocm run all quick` takes about" in shown and "to fit, instead of" in shown
    assert "done; open reports/quick.html" in types("ocm run all quick")
    assert "<title>quick" in (home / "reports/quick.html").read_text()
    types("git init --quiet && dvc init --quiet && git add --all")
    committed = types("git ls-files").splitlines()
    assert "params/experiment/mine.yaml" in committed
    assert not [file for file in committed if file.startswith(("my-images/", "my-model/"))]
    assert "done; open reports/mine_smoke.html" in types("ocm run all mine_smoke")
    page = (home / "reports/mine_smoke.html").read_text()
    assert "<title>mine (smoke)" in page and 'id="claims"' not in page
    assert "Nothing to be done" in types("snakemake -n reports/mine_smoke.html --quiet host")
    assert "DiffusionPipeline.from_pretrained" in types("ocm export mine_smoke pipeline")
    (home / "alone.py").write_text(ALONE)
    assert "2 (16, 16) 10" in types("python alone.py pipeline")
