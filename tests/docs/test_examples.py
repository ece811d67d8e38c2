"""Every script of examples/ runs as a user runs it, at its smallest, and says what it should."""

import re
from collections.abc import Callable
from pathlib import Path
from runpy import run_path

import pytest
from PIL import Image
from safetensors.torch import load_file

from ocm_core import api
from tests.results.test_compare import root

__all__ = ["api", "root"]  # the interface keeps the stderr that there is when it is imported

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a script as `python examples/NAME` does, but where all is imported; what it prints."""
    monkeypatch.syspath_prepend(ROOT / "examples")

    def run(name: str, *arguments: object) -> str:
        monkeypatch.setattr("sys.argv", [name, *map(str, arguments)])
        run_path(str(ROOT / "examples" / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_a_model_of_one_s_own(run: Run, tmp_path: Path) -> None:
    said = run("own_model.py", "--iterations", "2", "--folder", tmp_path)
    found = re.findall(r"(\w+): ([\d.]+) bits per dimension in 10 steps", said)
    assert [method for method, _ in found] == ["beta_tilde", "ocm"]
    grids = [Image.open(tmp_path / f"{method}.png").tobytes() for method, _ in found]
    assert grids[0] != grids[1]
    assert load_file(tmp_path / "heads.safetensors")


def test_error_bars(run: Run, tmp_path: Path) -> None:
    said = run("denoise.py", "--iterations", "60", "--folder", tmp_path)
    found = re.findall(r"deviations: error ([\d.]+), expected ([\d.]+)", said)
    errors, expected = ([float(pair[i]) for pair in found[:3]] for i in (0, 1))
    assert expected == sorted(expected) and errors == pytest.approx(expected, rel=0.5)
    assert re.findall(r"sigma ([\d.]+): \d+% within", said)[0] == "0.50" and len(found) == 6
    grids = {Image.open(tmp_path / f"{name}.png").tobytes() for name in ("noisy", "mean", "std")}
    assert len(grids) == 3


def test_restoration_and_the_covariance_in_deepinv(run: Run, tmp_path: Path) -> None:
    few = ("--iterations", "60", "--steps", "3", "--folder", tmp_path)
    said = run("restore.py", *few)
    found = re.findall(r"(\w+): CRPS ([\d.]+), inside (\d+)%, data ([\d.]+), (\d+) passes", said)
    assert [name for name, *_ in found] == ["kalman", "mmps", "dps", "pigdm", "covariance"]
    assert [int(row[-1]) for row in found] == [3, 21, 9, 9, 6]
    scores = {name: float(score) for name, score, *_ in found}
    assert scores["covariance"] == pytest.approx(scores["kalman"], rel=0.2)
    assert len([*tmp_path.glob("*.png")]) == 6


def test_from_diffusers_and_back(run: Run, tmp_path: Path) -> None:
    said = run("back_into_diffusers.py", "--iterations", "2", "--folder", tmp_path)
    assert [line.split()[0] for line in said.splitlines()] == ["beta_tilde", "ocm"]
    assert Image.open(tmp_path / "ten_steps.png").size == (128, 128)


def test_a_method_of_one_s_own(run: Run) -> None:
    said = run("own_method.py", "--share", "0", "--count", "200")
    found = {name: float(value) for name, value in re.findall(r"(\w+): ([\d.]+)", said)}
    assert [*found] == ["beta", "beta_tilde", "exact_diag", "share"]
    assert found["exact_diag"] < found["beta"]
    assert found["share"] == pytest.approx(found["beta_tilde"], abs=2e-3)  # c = 0 is β̃


def test_importance_weights(run: Run) -> None:
    said = run("importance_weights.py", "--count", "500", "--steps", "5")
    shares = {
        name: float(value) for name, value in re.findall(r"(\w+): effective.* ([\d.]+)%", said)
    }
    assert [*shares] == ["beta_tilde", "beta", "exact_diag", "exact_full"]
    assert shares["beta_tilde"] < 5 < shares["exact_full"]
    assert "in truth: log Z 0.2" in said


def test_images_as_a_file(run: Run, tmp_path: Path) -> None:
    few = ("--iterations", "2", "--count", "20", "--steps", "2")
    said = run("compress.py", *few, "--folder", tmp_path)
    assert "the same pixels: yes" in said and "all in one webp: " in said
    found = re.search(r"digits.ocm: ([\d.]+) bits per pixel", said)
    size = (tmp_path / "digits.ocm").stat().st_size
    assert found and float(found[1]) == pytest.approx(8 * size / (20 * 64), abs=0.006)


def test_two_commits(run: Run, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    said = run("compare_commits.py")
    assert "1 parameter, 1 beyond noise" in said
    assert "train.rate: 0.1 → 0.2" in said
    assert "frechet, trained, ddpm, ocm, nfe 5: -1" in said and "nfe 10" not in said
    assert run("compare_commits.py", "HEAD", "HEAD") == "HEAD → HEAD\n"


def test_the_readme_names_each_of_them() -> None:
    files = {file.name for file in (ROOT / "examples").glob("*.py")}
    assert files == set(re.findall(r"`python examples/(\w+\.py)`", README))
