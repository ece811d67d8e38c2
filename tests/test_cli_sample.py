"""`ocm sample`: the pipeline's own samples again, on request, and everything that it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray
from PIL import Image

from ocm_core import api
from ocm_core.cli import main
from ocm_core.image_grid import save_grid
from ocm_core.io.checksums import sha256_of
from ocm_core.latents.vae import Vae
from ocm_core.params.compose import compose
from ocm_core.pipeline.artifacts import folder_of
from ocm_core.pipeline.graph import graph_of
from ocm_core.pipeline.run import run_task
from ocm_core.pipeline.stage import Task
from ocm_core.sampling import from_experiment
from ocm_core.sampling.presets import PRESETS
from ocm_core.sampling.request import SampleRequest
from ocm_core.schema.experiment import Experiment
from ocm_core.store.reader import open_split
from tests.init.folders import write_dit
from tests.networks.diffusers_cases import CONFIGS, PLAIN, model
from tests.pipeline.writer import WaitingWriter

from diffusers import DDPMPipeline, DDPMScheduler  # isort: skip  # after the library

ROOT = Path(__file__).parents[1]
FEW = ("iterations=3", "batch_size=4", "checkpoint_every=3")
ONE = "grids=[{nfe: [3], guidance: [1.0]}]"
EVEN, GRIDS = "timesteps: {kind: even}", "grids: [{nfe: [3], guidance: [1.0]}]"
NONE = "++methods.none={}"
UNIPC = (
    "+sample.samplers.unipc={kind: diffusers, scheduler: UniPCMultistepScheduler,"
    " grids: [{nfe: [3], guidance: [1.0]}]}"
)
TINY = {
    "digits": [
        "schedule.steps=100",
        "network.config.base_channels=8",
        *(f"train.score.{few}" for few in FEW),
        *(f"train.heads.{few}" for few in FEW),
        "train.moments.draws=2",
        "sample.samplers={"
        f"ddpm: {{kind: ddpm, {EVEN}, clip_final_sigma: 1.0, {GRIDS}, methods: [beta, ocm]}}, "
        f"ddim: {{kind: ddim, {EVEN}, clip_final_sigma: 1.0, {GRIDS}, methods: [delta]}}, "
        f"quality: {{kind: preset, name: quality, {GRIDS}, methods: [delta]}}}}",
        NONE,
        UNIPC,
        "sample.count=5",
        "sample.batch_size=5",
        "sample.seeds=[0, 1]",
        "sample.split=[]",
        "train.timesteps.methods=[beta, ocm]",
        "train.timesteps.points=6",
        "train.timesteps.images=4",
        "train.timesteps.batch_size=3",
    ],
    "imagenet256_smoke": [
        *(f"train.heads.{few}" for few in FEW),
        "train.heads.keep_every=null",
        "~train.selection",
        "+train.selection={kind: last}",
        "sample.samplers.ddpm.grids=[{nfe: [3], guidance: [1.0, 1.5]}]",
        NONE,
        UNIPC.replace("[1.0]", "[1.0, 1.5]"),
        f"sample.samplers.ddim.{ONE}",
        "sample.count=3",
        "sample.batch_size=3",
        "sample.seeds=[0, 1]",
        "sample.split=[]",
    ],
    "toy_mog9": [
        "schedule.steps=100",
        "network.scores=[exact]",
        *(f"train.heads.{few}" for few in FEW),
        "train.moments.draws=2",
        f"sample.samplers.ddpm.{ONE}",
        f"sample.samplers.ddim.{ONE}",
        "sample.samplers.ddpm.methods=[ocm_relative]",
        "sample.samplers.ddim.methods=[ocm_relative]",
        NONE,
        UNIPC,
        "train.timesteps=null",
        "evaluate.likelihood=null",
        "sample.count=5",
        "sample.seeds=[0]",
        "sample.split=[]",
    ],
}
NEEDED = {"dummy_score", "dummy_vae", "fetch_score", "fetch_vae", "encode", "score", "moments"}
NEEDED |= {"heads", "timesteps", "sample"}
EXPERIMENTS: dict[str, Experiment] = {}  # that `params/` would have


def add(experiment: Experiment, name: str) -> str:
    """As if `params/` had it under this name."""
    EXPERIMENTS[name] = experiment.model_copy(update={"name": name})
    graph_of.cache_clear()
    return name


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A place to run stages in, with the code of this one and with tiny experiments."""
    place = tmp_path_factory.mktemp("checkout")
    (place / "ocm_core").symlink_to(ROOT / "ocm_core")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ocm_core.pipeline.graph.compose", EXPERIMENTS.__getitem__)
        yield place
    graph_of.cache_clear()


@pytest.fixture(scope="module")
def made(checkout: Path) -> Callable[[str], str]:
    """Makes a tiny experiment up to its samples, once, in this process."""

    def make(name: str) -> str:
        tiny = f"tiny_{name}"
        if tiny not in EXPERIMENTS:
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(ROOT)
                add(compose(name, TINY[name]), tiny)
                patch.chdir(checkout)
                for task in graph_of(tiny).tasks:
                    if task.stage in NEEDED:
                        run_task(tiny, *task, "cpu", 1)
        return tiny

    return make


@pytest.fixture
def here(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(checkout)
    monkeypatch.setattr("ocm_core.cli._use_code_of_checkout", lambda arguments: None)
    return checkout


def sample(capsys, *arguments: str) -> dict:
    code = main(["sample", *arguments, "--json", "--device", "cpu"])
    said = capsys.readouterr()
    assert code == 0, said.err
    return json.loads(said.out)


def refused(capsys, *arguments: str) -> str:
    assert main(["sample", *arguments, "--device", "cpu"]) == 1
    return capsys.readouterr().err


def read(file: str) -> np.ndarray:
    return open_split([Path(file).parent], Path(file).stem).all()


@pytest.mark.parametrize(
    ("name", "cell", "arguments"),
    [
        ("digits", "trained-ddpm-ocm-nfe3", "--method ocm"),
        ("digits", "trained-ddim-delta-nfe3", "--method delta"),
        ("imagenet256_smoke", "pretrained-ddpm-ocm-nfe3", "--method ocm"),
        ("imagenet256_smoke", "pretrained-ddpm-ocm-nfe3-cfg1.5", "--method ocm --guidance 1.5"),
        ("toy_mog9", "exact-ddpm-ocm_relative-nfe3", "--method ocm_relative"),
        ("digits", "trained-unipc-none-nfe3", "--sampler unipc"),
        (
            "imagenet256_smoke",
            "pretrained-unipc-none-nfe3-cfg1.5",
            "--sampler unipc --guidance 1.5",
        ),
        ("toy_mog9", "exact-unipc-none-nfe3", "--method none"),
        ("digits", "trained-quality-delta-nfe3", "--preset quality"),
        (
            "digits",
            "trained-quality-delta-nfe3",
            "--method delta --order 3 --timesteps power,exponent=2,first=0.07",
        ),
    ],
)
def test_samples_are_those_of_the_pipeline(here, made, capsys, name, cell, arguments):
    """To the last bit, in the same batches; seed 0 stands first in the pipeline's store."""
    tiny = made(name)
    count = EXPERIMENTS[tiny].sample.count
    own = open_split([Path(f"artifacts/{tiny}/sample/sample/all/{cell}")], "samples").read(
        range(count)
    )
    asked = [tiny, *arguments.split(), "--steps", "3", "--count", str(count), "--out", "same"]
    files = sample(capsys, *asked)
    assert files["count"] == count
    np.testing.assert_array_equal(read(files["samples"]), own)


@pytest.mark.parametrize(("document", "others"), [("docs/running.md", 0), ("README.md", 1)])
def test_the_commands_of_the_documents(here, made, capsys, document, others):
    """As they stand, but for a tiny experiment and its shorter optimal timesteps."""
    lines = (ROOT / document).read_text().splitlines()
    commands = [line.partition("ocm sample digits ")[2].partition("#")[0] for line in lines]
    asked = [command.split() for command in commands if command]
    presets = {words[words.index("--preset") + 1] for words in asked if "--preset" in words}
    assert presets == {*PRESETS} and len(asked) == len(PRESETS) + others
    drawn = set()
    for words in asked:
        fewer = ["5" if word == "10" else word for word in words]
        place = f"{Path(document).stem}-{len(drawn)}"
        files = sample(capsys, made("digits"), *fewer, "--count", "4", "--out", place)
        drawn.add(read(files["samples"]).tobytes())
    assert len(drawn) == len(asked)


def test_the_store_says_where_its_samples_come_from(here, made, capsys):
    tiny = made("digits")
    files = sample(capsys, tiny, "--method", "ocm", "--steps", "4", "--seed", "7", "--out", "said")
    with xarray.open_zarr(files["samples"], consolidated=False) as found:
        assert found["x"].shape == (64, 1, 8, 8)
        assert list(found["index"].values) == list(range(64))
        said = found.attrs
    assert (said["experiment"], said["method"], said["nfe"], said["seed"]) == (tiny, "ocm", 4, 7)
    assert (said["sampler"]["kind"], said["score"], said["guidance"]) == ("ddpm", "trained", 1.0)
    for name in ("score/trained/score.safetensors", "heads/trained/heads/ocm.safetensors"):
        assert said["digests"][name] == sha256_of(Path("artifacts", tiny, "train", name))
    with Image.open(files["grid"]) as grid:  # 8×8 images with a seam, eight times as large
        assert (grid.size, grid.mode) == ((8 * 9 * 8,) * 2, "L")
        first = np.asarray(grid)[: 8 * 8 : 8, : 8 * 8 : 8]
    levels = np.round((read(files["samples"])[0, 0].clip(-1, 1) + 1) * 8)
    np.testing.assert_array_equal(first, np.round(levels * 255 / 16))


def test_optimal_timesteps_are_read_from_their_stage(here, made, capsys):
    tiny = made("digits")
    asked = (tiny, "--method", "beta", "--timesteps", "optimal", "--count", "4", "--out", "optimal")
    files = sample(capsys, *asked, "--steps", "3")
    with xarray.open_zarr(files["samples"], consolidated=False) as found:
        said = found.attrs
    assert said["sampler"]["timesteps"] == {"kind": "optimal", "of": None}
    assert "timesteps/trained/step_costs.npz" in said["digests"]
    even = sample(capsys, *asked[:3], "--steps", "3", "--count", "4", "--out", "even")
    assert np.any(read(files["samples"]) != read(even["samples"]))
    assert "optimal timesteps of 'beta': none with 9 steps" in refused(
        capsys, *asked, "--steps", "9"
    )


def test_latents_are_decoded_and_kept_with_their_classes(here, made, capsys):
    tiny = made("imagenet256_smoke")
    asked = (tiny, "--method", "ocm", "--steps", "2", "--count", "4", "--out", "latents")
    one, mixed = sample(capsys, *asked, "--label", "2"), sample(capsys, *asked)
    stores = [xarray.open_zarr(files["samples"], consolidated=False) for files in (one, mixed)]
    assert stores[0]["x"].shape == (4, *EXPERIMENTS[tiny].shape)
    assert set(stores[0]["label"].values) == {2}
    assert len(set(stores[1]["label"].values)) > 1
    images = xarray.open_zarr(one["decoded"], consolidated=False)["x"]
    assert images.shape == (4, *EXPERIMENTS[tiny].data.shape) and images.dtype == np.uint8
    with Image.open(one["grid"]) as grid:
        side = EXPERIMENTS[tiny].data.shape[-1]
        np.testing.assert_array_equal(
            np.asarray(grid)[:side, :side], images[0].transpose("axis1", "axis2", "axis0")
        )


def test_a_bar_counts_the_steps_on_a_terminal(here, made, capsys, monkeypatch):
    asked = (made("toy_mog9"), "--method", "beta", "--steps", "3", "--count", "4", "--out", "bar")
    sample(capsys, *asked)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(["sample", *asked, "--force", "--device", "cpu"]) == 0
    said = capsys.readouterr()
    assert "sampling:   0%" in said.err and "0/3" in said.err
    assert said.out == "4 samples: bar/tiny_toy_mog9-exact-ddpm-beta-nfe3-seed0.zarr\n"


def test_points_have_no_picture(here, made, capsys):
    asked = (made("toy_mog9"), "--method", "exact_diag", "--steps", "2", "--out", "points")
    files = sample(capsys, *asked)
    assert files["grid"] is None and files["decoded"] is None
    assert read(files["samples"]).shape == (64, 2)


def test_nothing_is_overwritten_unless_forced_and_a_killed_run_goes_on(here, made, capsys):
    asked = (made("digits"), "--method", "beta", "--steps", "2", "--count", "9", "--out", "again")
    files = sample(capsys, *asked)
    before = read(files["samples"])
    assert "is there already; --force" in refused(capsys, *asked)
    Path(files["grid"]).unlink()  # the last of them, and a shard that was not finished
    Path(files["samples"], "index/c/1").unlink()
    assert sample(capsys, *asked) == files
    np.testing.assert_array_equal(read(files["samples"]), before)
    more = (*asked[:-3], "12", "--out", "again")
    Path(files["grid"]).unlink()
    assert "holds something else than planned" in refused(capsys, *more)
    sample(capsys, *more, "--force")
    np.testing.assert_array_equal(read(files["samples"])[:5], before[:5])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--method ocn", "--method of tiny_digits: 'ocn' is unknown; did you mean 'ocm'?"),
        ("--method ocm --sampler ddpn", "--sampler of tiny_digits: 'ddpn' is unknown"),
        ("--method ocm --score exact", "--score of tiny_digits: 'exact' is unknown"),
        ("--method beta --sampler ddim", "'beta' is defined for ddpm only; for ddim use"),
        ("--method ocm --steps 101", "101 is more than schedule.steps = 100"),
        ("--method ocm --guidance 2", "guidance needs a network with class labels"),
        ("--method ocm --timesteps power", "--timesteps power: power.exponent field required"),
        ("--method rademacher_100 --timesteps optimal", "'rademacher_100' is unknown"),
        ("--method ocm --label 1", "--label 1: the network takes no classes"),
        ("--method ocm --head x", "--head goes with --model"),
        ("", "either --method or --preset is required"),
        ("--preset qualty", "preset: 'qualty' is unknown; did you mean 'quality'"),
        ("--preset quality --sampler ddim", "--sampler and --preset each say how to sample"),
        ("--preset diverse --method beta", "'beta' is defined for ddpm only"),
        ("--sampler unipc --order 2", "--order and --timesteps: unipc is a solver of diffusers"),
        ("--sampler unipc --method ocm", "'ocm' is unknown; valid: none"),
        ("--method ocm --order 4", "order = 4: expected 1, 2 or 3"),
        ("--method ocm --timesteps evne", "--timesteps evne"),
        ("--method ocm --timesteps 1,2", "none of the lists has 3 timesteps"),
    ],
)
def test_what_cannot_be_is_refused_by_name(here, made, capsys, arguments, said):
    assert said in refused(capsys, made("digits"), "--steps", "3", *arguments.split())


def test_a_class_that_is_not_there_is_refused(here, made, capsys):
    asked = (made("imagenet256_smoke"), "--method", "ocm", "--steps", "2", "--label", "3")
    assert "--label 3: expected 0 to 2" in refused(capsys, *asked)


def test_what_is_missing_or_stale_comes_with_the_command_that_makes_it(here, made, capsys):
    name = made("digits")
    bare = EXPERIMENTS[name]
    add(bare, "bare")
    told = refused(capsys, "bare", "--method", "ocm_relative", "--steps", "3")
    assert "artifacts/bare/train/score/trained: missing" in told
    manifests = [
        f"artifacts/bare/train/{stage}/trained/manifest.json" for stage in ("moments", "heads")
    ]
    assert "`snakemake --cores all artifacts/bare/train/score/" in told
    assert " ".join(manifests) in told
    told = refused(capsys, "bare", "--method", "beta", "--steps", "3")
    assert "score/trained" in told and "heads" not in told
    Path("artifacts/bare").symlink_to(name)
    add(bare.model_copy(update={"data": bare.data.model_copy(update={"seed": 1})}), "bare")
    told = refused(capsys, "bare", "--method", "beta", "--steps", "3")
    assert "artifacts/bare/train/score/trained: stale: made with other parameters" in told
    assert (
        "`snakemake --cores all --force artifacts/bare/train/score/trained/manifest.json`" in told
    )


@pytest.mark.parametrize("task", [Task("encode", "all"), Task("heads", "exact")], ids=str)
def test_what_is_read_is_not_exchanged_meanwhile(here, made, monkeypatch, task):
    """Nor is what it rests on, which says whether it is up to date."""
    name = made("toy_mog9")
    writer = WaitingWriter(folder_of(name, task))
    writer.comes_at(monkeypatch, from_experiment, "load_denoiser")
    from_experiment.from_experiment(name, SampleRequest("ocm_relative", 3, sampler="ddpm"))
    assert writer.ends() == ["load_denoiser", "exchanged"]


@pytest.fixture
def folder(here: Path, tmp_path: Path) -> Path:
    DDPMPipeline(model(PLAIN), DDPMScheduler()).save_pretrained(tmp_path / "my-model")
    return tmp_path / "my-model"


def test_a_folder_of_diffusers_gives_the_samples_of_the_library(folder, tmp_path, capsys):
    denoiser = api.load(folder)
    head = denoiser.network.make_head("simple")
    torch.nn.init.normal_(head.conv.weight, std=0.1)
    denoiser.heads["ocm"] = api.CovarianceHead(head)
    api.save_heads(denoiser, tmp_path / "heads.safetensors")
    asked = ["--model", str(folder), "--method", "ocm", "--steps", "3", "--count", "5"]
    out = ["--out", str(tmp_path / "out")]
    told = refused(capsys, *asked, *out)
    assert "method 'ocm' has no head yet" in told and "`ocm sample --head` takes its file" in told
    files = sample(capsys, *asked, *out, "--head", str(tmp_path / "heads.safetensors"))
    expected = api.sample(denoiser, (3, 8, 8), "ocm", steps=3, count=5)
    np.testing.assert_array_equal(read(files["samples"]), expected)
    with xarray.open_zarr(files["samples"], consolidated=False) as found:
        assert found.attrs["digests"] == {
            "unet/diffusion_pytorch_model.safetensors": sha256_of(
                folder / "unet/diffusion_pytorch_model.safetensors"
            ),
            "heads": sha256_of(tmp_path / "heads.safetensors"),
        }
    assert Image.open(files["grid"]).size == (3 * 9 * 8, 2 * 9 * 8)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--method analytic", "'analytic' needs a table of moments"),
        ("--method beta --sampler ddim", "'beta' is not defined for ddim"),
        ("--method beta --sampler dpm", "sampler: 'dpm' is unknown"),
        ("--preset likelihood", "optimal ones are found on images"),
        ("--method beta --guidance 2", "--guidance belong to experiments"),
        ("--method beta --label 1", "--label 1: the network takes no classes"),
        ("--method betta", "'betta' is unknown; did you mean 'beta'"),
    ],
)
def test_what_a_folder_cannot_give_is_refused(folder, capsys, arguments, said):
    asked = ["--model", str(folder), "--steps", "3", *arguments.split()]
    assert said in refused(capsys, *asked)


def test_classes_of_a_folder_are_drawn_or_chosen(here, tmp_path, capsys):
    DDPMPipeline(model(CONFIGS["classes"]), DDPMScheduler()).save_pretrained(tmp_path / "classes")
    asked = ["--model", str(tmp_path / "classes"), "--method", "beta", "--steps", "2"]
    asked += ["--count", "8", "--out", str(tmp_path / "out")]
    drawn, chosen = sample(capsys, *asked), sample(capsys, *asked, "--label", "4")
    labels = [
        open_split([Path(files["samples"]).parent], Path(files["samples"]).stem).labels
        for files in (drawn, chosen)
    ]
    assert len(set(labels[0])) > 2 and set(labels[1]) == {4}
    assert "--label 5: expected 0 to 4" in refused(capsys, *asked, "--label", "5")


def test_a_variance_that_the_model_learned_needs_no_head(here, tmp_path, capsys):
    own = model(CONFIGS["learned_variance"])
    DDPMPipeline(own, DDPMScheduler()).save_pretrained(tmp_path / "learned")
    asked = ["--model", str(tmp_path / "learned"), "--method", "iddpm", "--steps", "2"]
    files = sample(capsys, *asked, "--count", "2", "--out", str(tmp_path / "out"))
    expected = api.sample(api.load(tmp_path / "learned"), (1, 8, 8), "iddpm", steps=2, count=2)
    np.testing.assert_array_equal(read(files["samples"]), expected)


def test_latents_of_a_folder_are_decoded(here, tmp_path, capsys):
    folder = write_dit(tmp_path / "dit")
    asked = ["--model", str(folder), "--method", "beta_tilde", "--steps", "2", "--count", "4"]
    files = sample(capsys, *asked, "--out", str(tmp_path / "out"))
    latents = torch.from_numpy(read(files["samples"]))
    assert latents.shape == (4, 4, 8, 8) and latents.abs().max() > 1
    images = xarray.open_zarr(files["decoded"], consolidated=False)["x"]
    expected = Vae.load(folder / "vae").decode(latents).clamp(-1, 1)
    assert images.shape == (4, 3, 16, 16) and images.dtype == np.uint8
    np.testing.assert_array_equal(images, ((expected.double() + 1) * 127.5).round())
    with Image.open(files["grid"]) as grid:  # with a seam, four times as large
        assert (grid.size, grid.mode) == ((2 * 17 * 4,) * 2, "RGB")


def test_samples_may_begin_anywhere(folder):
    denoiser = api.load(folder)
    whole = api.sample(denoiser, (3, 8, 8), "beta", steps=2, count=4, batch_size=2)
    part = api.sample(denoiser, (3, 8, 8), "beta", steps=2, first=2, count=2)
    assert torch.equal(part, whole[2:])


def test_a_pixel_may_be_shown_larger(tmp_path):
    images = torch.linspace(-1, 1, 3 * 2 * 2).view(3, 1, 2, 2)
    save_grid(images, tmp_path / "plain.png")
    save_grid(images, tmp_path / "large.png", zoom=3)
    plain, large = (np.asarray(Image.open(tmp_path / f"{n}.png")) for n in ("plain", "large"))
    np.testing.assert_array_equal(large[1::3, 1::3], plain)
    np.testing.assert_array_equal(large[::3, 2::3], plain)
