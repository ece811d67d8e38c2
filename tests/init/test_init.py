"""What `ocm init` finds, writes and refuses."""

import errno
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from ocm_core.cli import main
from ocm_core.doctor import cost
from ocm_core.doctor.diagnosis import encode_bytes
from ocm_core.errors import OcmError
from ocm_core.init import begin
from ocm_core.init.budget import phase_times
from ocm_core.init.overlay import Start, look, text
from ocm_core.io.atomic import write_text
from ocm_core.params.compose import compose
from ocm_core.pipeline.graph import Graph
from ocm_core.pipeline.stage import Task
from ocm_core.schema.experiment import Experiment

from ..datasets import files
from ..pipeline.conftest import ROOT
from .folders import (
    write_captions,
    write_dit,
    write_flux,
    write_images,
    write_model,
    write_stable_diffusion,
)

MINE = ["mine", "--images", "my-images"]
WITH_MODEL = [*MINE, "--model", "my-model"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is no checkout, with images in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cost, "_timed", lambda *_: 1e9)
    monkeypatch.setattr(cost, "_started", lambda experiment: 1.0)
    write_images(tmp_path / "my-images")
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["init", *arguments]) == code
    found = capsys.readouterr()
    return found.err if code else found.out


def test_a_first_experiment_composes_and_nothing_is_overwritten(place: Path, capsys) -> None:
    shown = said(capsys, *MINE)
    assert "my-images: 24 images, 16×16, colour\n" in shown
    experiment = has_all_that_the_pages_show(shown, likelihood=True)
    assert experiment.data.path == "my-images" and experiment.shape == (3, 16, 16)
    assert experiment.train.heads.batch_size <= 21  # a tenth is kept for testing
    assert yaml.safe_load(Path("params/active.yaml").read_text()) == {"active": []}
    for name in ("Snakefile", ".gitignore", "profiles/default/config.yaml", "dvc.yaml"):
        assert Path(name).is_file(), name
    ignored = {*Path(".gitignore").read_text().split()}
    assert {"/.ocm/", "/artifacts/", "/samples/", "/my-images"} <= ignored
    assert "exists already" in said(capsys, *MINE, code=1)
    Path("Snakefile").write_text("mine\n")
    said(capsys, "other", "--images", "my-images")
    assert Path("Snakefile").read_text() == "mine\n"


def has_all_that_the_pages_show(shown: str, likelihood: bool) -> Experiment:
    assert shown.endswith("run: snakemake --cores 2 reports/mine.html\n")
    experiment = compose("mine")
    assert {*experiment.sample.samplers} >= {"ddpm", "ddim", "quality", "diverse", "dpmpp_2m"}
    tiny = max(experiment.data.shape) <= 16
    space = f"efficientnet_lite0{'_small' if tiny else ''}"
    assert experiment.features.space == space and "posterior_std" in experiment.evaluate
    assert ("likelihood" in experiment.evaluate) == likelihood
    return experiment


def test_what_the_model_says_goes_into_the_experiment(place: Path, capsys) -> None:
    write_model(place / "my-model")
    shown = said(capsys, *WITH_MODEL)
    assert "UNet2DModel, 3×16×16, no classes, predicts epsilon, linear schedule of 1000" in shown
    experiment = has_all_that_the_pages_show(shown, likelihood=True)
    assert experiment.network.path == "my-model" and experiment.train.score is None
    assert (experiment.data.side, experiment.data.fit) == (16, "none")
    zero = {"rescale_betas_zero_snr": True, "prediction_type": "v_prediction"}
    small = ["cropped", *MINE[1:], "--model", str(write_model(Path("small"), side=8, **zero))]
    assert "no posterior mean of these images" in said(capsys, *small, code=1)  # untrained
    small += ["--unchecked"]
    told = said(capsys, *small, "--side", "32", code=1)
    assert "--side 32: the model in small takes 8×8" in told
    left_out = "the last of 1000 is pure noise, and never visited"
    assert f"linear schedule of 999 steps ({left_out})" in said(capsys, *small)
    assert (compose("cropped").data.side, compose("cropped").data.fit) == (8, "center_crop")


def test_latents_of_a_model_with_classes(place: Path, capsys) -> None:
    write_dit(place / "my-dit")
    for kind in ("cat", "dog"):
        write_images(place / "sorted" / kind, count=10)
    shown = said(capsys, "mine", "--images", "sorted", "--model", "my-dit")
    assert "classes, by sub-folder: 0: cat, 1: dog\n" in shown
    assert "5 classes" in shown and "with its autoencoder" in shown
    assert "my-dit: takes latents; the page says whether it is a posterior mean" in shown
    experiment = has_all_that_the_pages_show(shown, likelihood=False)
    assert experiment.data.shape == (3, 16, 16) and experiment.shape == (4, 8, 8)
    assert (experiment.data.labels, experiment.data.classes) == ("folders", 2)
    assert experiment.network.conditional
    assert experiment.sample.samplers["ddpm"].methods[-1] == "iddpm"  # it learned its variance
    assert experiment.sample.samplers["ddpm"].clip_final_sigma is None


def test_a_learned_variance_is_a_method(place: Path, capsys) -> None:
    """Beside the others, wherever those of DDPM are compared, and without a head."""
    learned = {"learns_variance": True, "variance_type": "learned_range"}
    write_model(place / "my-model")
    write_model(place / "learned", **learned)
    for name in ("my-model", "learned"):
        said(capsys, name[:2], "--images", "my-images", "--model", name)
    plain, found = compose("my"), compose("le")
    assert "iddpm" not in plain.methods
    method = found.methods["iddpm"]
    assert {**method.options, "source": "network", "lower_end": "timesteps"} == method.options
    assert method.needs == "nothing"
    for block in (
        lambda experiment: experiment.sample.samplers["ddpm"],
        lambda experiment: experiment.train.timesteps,
        lambda experiment: experiment.evaluate["likelihood"],
    ):
        assert block(found).methods == [*block(plain).methods, "iddpm"]
    assert found.sample.samplers["ddim"] == plain.sample.samplers["ddim"]


def test_a_model_that_takes_text_needs_a_caption_of_every_image(place: Path, capsys) -> None:
    write_stable_diffusion(place / "my-model")
    captions = write_captions(place / "captions.csv", place / "my-images", ["a cat", "a dog", "7"])
    before = sorted(place.rglob("*"))
    assert "takes text, so each image needs a caption" in said(capsys, *WITH_MODEL, code=1)
    lines = captions.read_text().splitlines()
    captions.write_text("\n".join(lines[:-2]))
    with_captions = [*WITH_MODEL, "--captions", "captions.csv"]
    refused = said(capsys, *with_captions, code=1)
    assert "no caption of 2 of 24 images in my-images: 022.png, 023.png" in refused
    assert sorted(place.rglob("*")) == before
    captions.write_text("\n".join(lines))
    shown = said(capsys, *with_captions)
    assert "captions.csv: 24 captions, 3 of them different" in shown
    assert "UNet2DConditionModel, 4×8×8, takes text of 10 tokens" in shown
    experiment = has_all_that_the_pages_show(shown, likelihood=False)
    assert (experiment.data.labels, experiment.data.classes) == ("captions", 3)
    assert (experiment.network.classes, experiment.network.null_class) == (3, 3)
    text = experiment.encode.latent.text
    assert (text.path, text.arrays) == ("my-model", {"encoder_hidden_states": [10, 8]})
    prompts = 4 * 10 * 8 * 4  # of three captions and the empty one
    images = 24 * (4 * 8 * 8 * 4 * 2 + 8 + 8)
    assert encode_bytes(experiment) in (images + prompts, images // 2 + prompts + 24 * 8)
    graph = Graph(experiment)
    sample = next(task for task in graph.tasks if task.stage == "sample")
    assert Task("encode") in graph.inputs[sample]  # where the embeddings are
    with pytest.raises(OcmError, match=r"data\.labels: the model in my-model takes text"):
        compose("mine", ["data.labels=none", "data.classes=0"])


def test_a_model_of_latents_of_any_size_is_told_the_side(place: Path, capsys) -> None:
    write_flux(place / "my-model")
    more = ["--captions", str(write_captions(place / "captions.csv", place / "my-images"))]
    refused = said(capsys, *WITH_MODEL, *more, code=1)
    assert "--side: the model in my-model takes latents of any size; give" in refused
    assert "FluxTransformer2DModel, any size" in said(capsys, *WITH_MODEL, *more, "--side", "16")
    experiment = compose("mine")
    assert (experiment.shape, experiment.head.kind) == ((4, 8, 8), "adaln")
    assert experiment.encode.latent.text.numbers == 512 * 20 + 8


def test_a_budget_shrinks_what_takes_its_time(place: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(cost, "_timed", lambda *_: 3e10)
    write_model(place / "my-model")
    whole, shrunken = compose_after(capsys, *WITH_MODEL), []
    for budget in ("2m", "40s"):
        shown = said(capsys, *WITH_MODEL, "--force", "--budget", budget)
        assert "to fit, instead of" in shown and ": train.moments.draws " in shown
        assert sum(phase_times("mine").values()) <= {"2m": 120, "40s": 40}[budget]
        shrunken.append(compose("mine"))
    for key in ("sample.count", "train.heads.iterations", "train.moments.draws"):
        counts = [attrgetter(key)(experiment) for experiment in (whole, *shrunken)]
        assert counts == sorted(counts, reverse=True) and len({*counts}) > 1
    assert shrunken[1].evaluate["likelihood"].nfe == [5, 10]  # of fewer cells
    assert shrunken[1].sample.samplers["ddpm"].grids[0].nfe == [5, 10]
    assert compose_after(capsys, *WITH_MODEL, "--force", "--budget", "9h") == whole
    before = Path("params/experiment/mine.yaml").read_text()
    refused = said(capsys, *WITH_MODEL, "--force", "--budget", "2s", code=1)
    assert "--budget: 2 s; the least here is" in refused
    assert Path("params/experiment/mine.yaml").read_text() == before
    with pytest.raises(SystemExit):
        main(["init", *WITH_MODEL, "--budget", "soon"])
    assert "'soon': expected a time such as 90s, 15m or 2h" in capsys.readouterr().err


def compose_after(capsys: pytest.CaptureFixture[str], *arguments: str) -> Experiment:
    said(capsys, *arguments)
    return compose("mine")


REFUSED = {
    "a name": (["No-Name", "--images", "my-images"], "expected a name of lower-case letters"),
    "no images": (["mine", "--images", "params"], "params: not there; expected a folder, a zip"),
    "no model": ([*MINE, "--model", "gone"], "gone: no such folder"),
    "a hub id": ([*MINE, "--model", "a/b"], "download it first"),
    "captions": ([*MINE, "--captions", "no.csv"], "no.csv: no such file"),
    "a shipped name": (["digits", "--images", "my-images"], "the name of an experiment of the"),
    "a preset": (["mine_smoke", "--images", "my-images"], "_smoke is a preset, which changes the"),
    "the index": (["index", "--images", "my-images"], "reports/index is taken"),
    "few images": (["mine", "--images", "few"], "at least 10, found 3"),
    "BMP": (["mine", "--images", "few"], "at least 10, found 3, and 9 other pictures"),
    "an empty file": (["mine", "--images", "damaged"], "damaged/000.png: an empty file"),
    "a side": ([*MINE, "--side", "64"], "--side 64: the network that is"),
    "distilled": ([*MINE, "--model", "lcm"], "LCMScheduler: a distilled model"),
    "classes": (WITH_MODEL, "takes labels of 7 classes, and the images lie in no sub-folders"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_leaves_nothing(what: str, place: Path, capsys) -> None:
    arguments, match = REFUSED[what]
    if what == "classes":
        write_model(place / "my-model", classes=7)
    elif what in ("few images", "BMP"):
        write_images(place / "few", count=3)
        for number in range(9 if what == "BMP" else 0):
            (place / f"few/{number}.bmp").write_bytes(b"BM")
    elif what == "an empty file":
        (write_images(place / "damaged") / "000.png").write_bytes(b"")
    elif what == "distilled":
        config = write_model(place / "lcm") / "scheduler/scheduler_config.json"
        config.write_text(config.read_text().replace("DDPMScheduler", "LCMScheduler"))
    before = sorted(place.rglob("*"))
    assert match in said(capsys, *arguments, code=1)
    assert sorted(place.rglob("*")) == before


def test_a_full_disk_is_named_and_the_old_experiment_stays(
    place: Path, capsys, monkeypatch
) -> None:
    said(capsys, *MINE)
    file = place / "params/experiment/mine.yaml"
    before, calls = file.read_text(), []

    def filling(path: Path, content: str) -> None:
        calls.append(path)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_text(path, content)

    monkeypatch.setattr(begin, "write_text", filling)
    shown = said(capsys, *MINE, "--side", "8", "--force", code=1)
    assert "params/experiment/mine.yaml: No space left on device; the disk of" in shown
    assert file.read_text() == before
    calls.clear()
    said(capsys, "other", "--images", "my-images", code=1)
    assert not (place / "params/experiment/other.yaml").exists()


def test_a_look_at_images(tmp_path: Path) -> None:
    images = [files.encoded(files.pixels(n, 20, 40)[..., 0], "PNG") for n in range(6)]
    packed = {f"{kind}/{n}.png": image for kind in "ba" for n, image in enumerate(images)}
    packed |= {"a/more.bmp": b"BM", "notes.txt": b"mine"}
    summary = look(files.zip_(tmp_path / "grey.zip", packed))
    assert str(summary) == "12 images, 40×20, grey, 2 sub-folders; 1 other picture skipped"
    assert summary.folders == ("a", "b") and summary.shorter_edge == 20
    start = Start("mine", summary)
    assert start.shape == (1, 16)  # the largest of a small network's that fits
    treated = "each becomes 16×16: the shorter edge is scaled, the centre cut out"
    assert [*start.treatment()] == [treated]
    colour: Any = SimpleNamespace(shape=(3, 16, 16), vae=None, classes=None)
    told = [treated, "grey becomes colour, as the model takes it"]
    assert [*Start("mine", summary, colour).treatment()] == told
    tree = yaml.safe_load(text(start))
    assert tree["data"]["fit"] == "center_crop" and tree["network"]["config"]["in_channels"] == 1
    assert tree["data"]["path"] == str(tmp_path / "grey.zip")


def test_a_wheel_has_what_is_copied() -> None:
    shipped = (ROOT / "setup.py").read_text().partition("SHIPPED")[2].partition("\n)\n")[0]
    for name in ("dvc.yaml", *begin.COPIED.values()):
        assert (ROOT / name).exists() and f'"{name.partition("/")[0]}"' in shipped


def test_images_and_model_stay_out_of_git(place: Path) -> None:
    Path(".gitignore").write_text("/mine")
    for _ in range(2):
        begin.keep_out_of_git([place / "my-images", Path("models/a"), Path("/elsewhere")])
    assert Path(".gitignore").read_text() == "/mine\n/my-images\n/models/a\n"
