"""`ocm sample`: the pipeline's own samples again, on request, and everything that it refuses.

And `ocm denoise` and `ocm restore`, by the same models.
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray
from PIL import Image

from ocm_core import api
from ocm_core.cli import main
from ocm_core.io.checksums import sha256_of
from ocm_core.latents.vae import Vae
from ocm_core.params.compose import compose
from ocm_core.pipeline.graph import graph_of
from ocm_core.pipeline.job import run_task
from ocm_core.sampling.presets import PRESETS
from ocm_core.schema.experiment import Experiment
from ocm_core.store.reader import open_split
from ocm_core.uses import operators
from tests.init.folders import write_dit
from tests.networks.diffusers_cases import CONFIGS, PLAIN, model

from diffusers import DDPMPipeline, DDPMScheduler  # isort: skip  # after the library

ROOT = Path(__file__).parents[1]
ONE = "grids=[{nfe: [3], guidance: [1.0]}]"
EVEN, GRIDS = "timesteps: {kind: even}", "grids: [{nfe: [3], guidance: [1.0]}]"
SOLVER, POWER = "--sampler unipc", "power,exponent=2,first=0.07"
UNIPC = f"+sample.samplers.unipc={{kind: diffusers, scheduler: UniPCMultistepScheduler, {GRIDS}}}"


def few(stage: str) -> list[str]:
    return [f"train.{stage}.{k}" for k in ("iterations=3", "batch_size=4", "checkpoint_every=3")]


ALL = [*few("heads"), "++methods.none={}", "sample.split=[]", "sample.seeds=[0, 1]"]
ALL += ["sample.count=5", "sample.batch_size=5"]
TINY = {
    "digits": [
        *("schedule.steps=100", "network.config.base_channels=8", "train.moments.draws=2"),
        *few("score"),
        "train.spectrum={images: 4, points: 3, batch_size: 4}",
        "sample.samplers={"
        f"ddpm: {{kind: ddpm, {EVEN}, clip_final_sigma: 1.0, {GRIDS}, methods: [beta, ocm]}}, "
        f"ddim: {{kind: ddim, {EVEN}, clip_final_sigma: 1.0, {GRIDS}, methods: [delta]}}, "
        f"quality: {{kind: preset, name: quality, {GRIDS}, methods: [delta]}}}}",
        *("train.timesteps.methods=[beta, ocm]", "train.timesteps.points=6"),
        *("train.timesteps.images=4", "train.timesteps.batch_size=3", "evaluate.codec=null", UNIPC),
    ],
    "imagenet256_smoke": [
        *("train.heads.keep_every=null", "~train.selection", "+train.selection={kind: last}"),
        "sample.samplers.ddpm.grids=[{nfe: [3], guidance: [1.0, 1.5]}]",
        *(UNIPC.replace("[1.0]", "[1.0, 1.5]"), f"sample.samplers.ddim.{ONE}"),
    ],
    "toy_mog9": [
        *("schedule.steps=100", "network.scores=[exact]", "train.moments.draws=2"),
        *(f"sample.samplers.{kind}.{ONE}" for kind in ("ddpm", "ddim")),
        *(f"sample.samplers.{kind}.methods=[ocm_relative]" for kind in ("ddpm", "ddim")),
        *(UNIPC, "train.timesteps=null", "evaluate.likelihood=null"),
    ],
}
NEEDED = {"dummy_score", "dummy_vae", "fetch_score", "fetch_vae", "encode", "score", "moments"}
NEEDED |= {"spectrum", "heads", "timesteps", "sample"}
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
                add(compose(name, [*ALL, *TINY[name]]), tiny)
                patch.chdir(checkout)
                for task in graph_of(tiny).tasks:
                    if task.stage in NEEDED:
                        run_task(tiny, *task, "cpu", 1)
        return tiny

    return make


@pytest.fixture
def here(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(checkout)
    monkeypatch.setattr("ocm_core.commands.split_name", str)  # they have no files
    monkeypatch.setattr("ocm_core.cli._use_code_of_checkout", lambda arguments: None)
    return checkout


@pytest.fixture
def typed(here: Path, capsys) -> Callable[..., Any]:
    """What a command made, or the message of its refusal."""

    def run(command: str, arguments: str, code: int = 0) -> Any:
        ended = main([command, *arguments.split(), "--json", "--device", "cpu"])
        said = capsys.readouterr()
        assert ended == code, said.err
        return said.err if code else json.loads(said.out)

    return run


@pytest.fixture
def sample(typed: Callable[..., Any]) -> Callable[..., Any]:
    return partial(typed, "sample")


@pytest.fixture
def denoised(typed: Callable[..., Any]) -> Callable[..., Any]:
    return partial(typed, "denoise")


@pytest.fixture
def restored(typed: Callable[..., Any]) -> Callable[..., Any]:
    return partial(typed, "restore")


@pytest.fixture
def refused(sample: Callable[..., Any]) -> Callable[[str], str]:
    return partial(sample, code=1)


def read(files: dict[str, Any]) -> np.ndarray:
    path = Path(files["samples"])
    return open_split([path.parent], path.stem).all()


def opened(files: dict[str, Any], kind: str = "samples") -> xarray.Dataset:
    return xarray.open_zarr(files[kind], consolidated=False)


@pytest.mark.parametrize(
    ("name", "cell", "arguments"),
    [
        ("digits", "trained-ddpm-ocm-nfe3", "--method ocm"),
        ("digits", "trained-ddim-delta-nfe3", "--method delta"),
        ("imagenet256_smoke", "pretrained-ddpm-ocm-nfe3", "--method ocm"),
        ("imagenet256_smoke", "pretrained-ddpm-ocm-nfe3-cfg1.5", "--method ocm --guidance 1.5"),
        ("toy_mog9", "exact-ddpm-ocm_relative-nfe3", "--method ocm_relative"),
        ("digits", "trained-unipc-none-nfe3", SOLVER),
        ("imagenet256_smoke", "pretrained-unipc-none-nfe3-cfg1.5", f"{SOLVER} --guidance 1.5"),
        ("toy_mog9", "exact-unipc-none-nfe3", "--method none"),
        ("digits", "trained-quality-delta-nfe3", "--preset quality"),
        ("digits", "trained-quality-delta-nfe3", f"--method delta --order 3 --timesteps {POWER}"),
    ],
)
def test_samples_are_those_of_the_pipeline(sample, made, name, cell, arguments):
    tiny = made(name)
    count = EXPERIMENTS[tiny].sample.count
    own = open_split([Path(f"artifacts/{tiny}/sample/sample/all/{cell}-seed0")], "samples")
    files = sample(f"{tiny} {arguments} --steps 3 --count {count} --out same")
    assert files["count"] == count
    np.testing.assert_array_equal(read(files), own.read(range(count)))


def test_the_commands_of_the_document(sample, made):
    text = (ROOT / "docs/running.md").read_text()
    asked = re.findall(r"ocm sample digits ([^#\n]+)", text)
    presets = {preset for words in asked for preset in re.findall(r"--preset (\S+)", words)}
    assert presets == {*PRESETS} and len(asked) == len(PRESETS)
    drawn = set()
    for words in asked:
        fewer, place = re.sub(r"\b10\b", "5", words), f"running-{len(drawn)}"
        files = sample(f"{made('digits')} {fewer} --count 4 --out {place}")
        drawn.add(read(files).tobytes())
    assert len(drawn) == len(asked)


def test_the_store_says_where_its_samples_come_from(sample, made):
    tiny = made("digits")
    files = sample(f"{tiny} --method ocm --steps 4 --seed 7 --out said")
    found = opened(files)
    assert found["x"].shape == (64, 1, 8, 8)
    assert list(found["index"].values) == list(range(64))
    said = found.attrs
    assert (said["experiment"], said["method"], said["nfe"], said["seed"]) == (tiny, "ocm", 4, 7)
    assert (said["sampler"]["kind"], said["score"], said["guidance"]) == ("ddpm", "trained", 1.0)
    for name in ("score/trained/score.safetensors", "heads/trained/heads/ocm.safetensors"):
        assert said["digests"][name] == sha256_of(Path("artifacts", tiny, "train", name))
    with Image.open(files["grid"]) as grid:  # 8×8 images with a seam, eight times as large
        assert (grid.size, grid.mode) == ((8 * 9 * 8,) * 2, "L")
        first = np.asarray(grid)[: 8 * 8, : 8 * 8]
    levels = np.round((read(files)[0, 0].clip(-1, 1) + 1) * 8)
    np.testing.assert_array_equal(first, np.round(levels * 255 / 16).repeat(8, 0).repeat(8, 1))


def test_optimal_timesteps_are_read_from_their_stage(sample, refused, made):
    asked = f"{made('digits')} --method beta --count 4 --timesteps"
    files = sample(f"{asked} optimal --steps 3 --out optimal")
    said = opened(files).attrs
    assert said["sampler"]["timesteps"]["kind"] == "optimal"
    assert "timesteps/trained/step_costs.npz" in said["digests"]
    assert np.any(read(files) != read(sample(f"{asked} even --steps 3 --out even")))
    begun = sample(f"{asked} optimal --steps 3 --out optimal --from-data")
    assert "from-data" in begun["samples"] and opened(begun).attrs["from_data"]
    assert np.any(read(files) != read(begun))
    told = refused(f"{asked} optimal --steps 9 --out optimal")
    assert "optimal timesteps of 'beta': none with 9 steps" in told


def test_latents_are_decoded_and_kept_with_their_classes(sample, refused, made):
    tiny = made("imagenet256_smoke")
    asked = f"{tiny} --method ocm --steps 2 --count 4 --out latents"
    one, mixed = sample(f"{asked} --label 2"), sample(asked)
    stores = [opened(files) for files in (one, mixed)]
    assert stores[0]["x"].shape == (4, *EXPERIMENTS[tiny].shape)
    assert set(stores[0]["label"].values) == {2} and len(set(stores[1]["label"].values)) > 1
    images = opened(one, "decoded")["x"]
    assert images.shape == (4, *EXPERIMENTS[tiny].data.shape) and images.dtype == np.uint8
    with Image.open(one["grid"]) as grid:
        side = EXPERIMENTS[tiny].data.shape[-1]
        first = images[0].transpose("axis1", "axis2", "axis0")
        np.testing.assert_array_equal(np.asarray(grid)[:side, :side], first)
    assert "--label 3: expected 0 to 2" in refused(f"{asked} --label 3")


def test_points_have_no_picture_and_a_bar_counts_the_steps(sample, made, capsys, monkeypatch):
    asked = f"{made('toy_mog9')} --method beta --steps 3 --count 4 --out bar"
    files = sample(asked)
    assert files["grid"] is None and files["decoded"] is None and read(files).shape == (4, 2)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(["sample", *asked.split(), "--force", "--device", "cpu"]) == 0
    said = capsys.readouterr()
    assert "sampling:   0%" in said.err and "0/3" in said.err
    assert said.out == "4 samples: bar/tiny_toy_mog9-exact-ddpm-beta-nfe3-seed0.zarr\n"


def test_nothing_is_overwritten_unless_forced_and_a_killed_run_goes_on(sample, refused, made):
    asked = f"{made('digits')} --method beta --steps 2 --out again --count"
    files = sample(f"{asked} 9")
    before = read(files)
    assert "is there already; --force" in refused(f"{asked} 9")
    Path(files["grid"]).unlink()  # the last of them, and a shard that was not finished
    Path(files["samples"], "index/c/1").unlink()
    assert sample(f"{asked} 9") == files
    np.testing.assert_array_equal(read(files), before)
    Path(files["grid"]).unlink()
    assert "holds something else than planned" in refused(f"{asked} 12")
    sample(f"{asked} 12 --force")
    np.testing.assert_array_equal(read(files)[:5], before[:5])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--method ocn", "--method of tiny_digits: 'ocn' is unknown; did you mean 'ocm'?"),
        ("--method ocm --sampler ddpn", "--sampler of tiny_digits: 'ddpn' is unknown"),
        ("--method ocm --score exact", "--score of tiny_digits: 'exact' is unknown"),
        ("--method beta --sampler ddim", "'beta' is defined for ddpm only; for ddim use"),
        ("--method ocm --steps 101", "101 is more than schedule.steps = 100"),
        ("--method ocm --guidance 2", "guidance needs a network with class labels"),
        ("--method ocm --timesteps power", "--timesteps power: timesteps.exponent: missing"),
        ("--method rademacher_100 --timesteps optimal", "'rademacher_100' is unknown"),
        ("--method ocm --label 1", "--label 1: the network takes no classes"),
        ("--method ocm --head x", "--head goes with --model"),
        ("", "either --method or --preset is required"),
        ("--preset quality --sampler ddim", "--sampler and --preset each say how to sample"),
        ("--sampler unipc --order 2", "--order and --timesteps: unipc is a solver of diffusers"),
        ("--sampler unipc --method ocm", "'ocm' is unknown; valid: none"),
        ("--method ocm --order 4", "order = 4: expected 1, 2, 3, ipndm or matched"),
        ("--method ocm --timesteps evne", "--timesteps evne"),
        ("--method ocm --timesteps 1,2", "none of the lists has 3 timesteps"),
    ],
)
def test_what_cannot_be_is_refused_by_name(refused, made, arguments, said):
    assert said in refused(f"{made('digits')} --steps 3 {arguments}")


def test_what_is_missing_or_stale_comes_with_the_command_that_makes_it(refused, made):
    name = made("digits")
    bare = EXPERIMENTS[name]
    add(bare, "bare")
    told = refused("bare --method ocm_relative --steps 3")
    place = "artifacts/bare/train"
    assert f"{place}/score/trained: missing" in told
    assert f"`snakemake --cores all {place}/score/" in told
    assert f"{place}/moments/trained/manifest.json {place}/heads/trained/manifest.json" in told
    told = refused("bare --method beta --steps 3")
    assert "score/trained" in told and "heads" not in told
    Path("artifacts/bare").symlink_to(name)
    add(bare.model_copy(update={"data": bare.data.model_copy(update={"seed": 1})}), "bare")
    told = refused("bare --method beta --steps 3")
    assert f"{place}/score/trained: stale: made with other parameters" in told
    assert f"`snakemake --cores all --force {place}/score/trained/manifest.json`" in told


def saved(config: dict[str, Any], folder: Path) -> Path:
    DDPMPipeline(model(config), DDPMScheduler()).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(here: Path, tmp_path: Path) -> Path:
    return saved(PLAIN, tmp_path / "my-model")


def test_a_folder_of_diffusers_gives_the_samples_of_the_library(folder, tmp_path, sample, refused):
    denoiser, heads = api.load(folder), tmp_path / "heads.safetensors"
    head = denoiser.network.make_head("simple")
    torch.nn.init.normal_(head.conv.weight, std=0.1)
    denoiser.heads["ocm"] = api.CovarianceHead(head)
    api.save_heads(denoiser, heads)
    asked = f"--model {folder} --method ocm --steps 3 --count 5 --out {tmp_path / 'out'}"
    told = refused(asked)
    assert "method 'ocm' has no head yet" in told and "`ocm sample --head` takes its file" in told
    files = sample(f"{asked} --head {heads}")
    expected = api.sample(denoiser, (3, 8, 8), "ocm", steps=3, count=5)
    np.testing.assert_array_equal(read(files), expected)
    weights = "unet/diffusion_pytorch_model.safetensors"
    digests = {weights: sha256_of(folder / weights), "heads": sha256_of(heads)}
    assert opened(files).attrs["digests"] == digests
    assert Image.open(files["grid"]).size == (3 * 9 * 8, 2 * 9 * 8)
    learned = saved(CONFIGS["learned_variance"], tmp_path / "learned")  # which needs no head
    files = sample(f"--model {learned} --method iddpm --steps 2 --count 2 --out {tmp_path / 'out'}")
    expected = api.sample(api.load(learned), (1, 8, 8), "iddpm", steps=2, count=2)
    np.testing.assert_array_equal(read(files), expected)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--method analytic", "'analytic' needs a table of moments"),
        ("--preset likelihood --method beta", "optimal ones are found on images"),
        ("--method beta --guidance 2", "--guidance belong to experiments"),
        ("--method beta --label 1", "--label 1: the network takes no classes"),
        ("--method beta --from-data", "--from-data: no images here"),
    ],
)
def test_what_a_folder_cannot_give_is_refused(folder, refused, arguments, said):
    assert said in refused(f"--model {folder} --steps 3 {arguments}")


def test_classes_of_a_folder_are_drawn_or_chosen(tmp_path, sample, refused):
    place = saved(CONFIGS["classes"], tmp_path / "classes")
    asked = f"--model {place} --method beta --steps 2 --count 8 --out {tmp_path / 'out'}"
    drawn, chosen = (opened(sample(asked + more))["label"].values for more in ("", " --label 4"))
    assert len(set(drawn)) > 2 and set(chosen) == {4}
    assert "--label 5: expected 0 to 4" in refused(f"{asked} --label 5")


def test_latents_of_a_folder_are_decoded(tmp_path, sample):
    folder = write_dit(tmp_path / "dit")
    asked = f"--model {folder} --method beta_tilde --steps 2 --count 4"
    files = sample(f"{asked} --out {tmp_path / 'out'}")
    latents = torch.from_numpy(read(files))
    assert latents.shape == (4, 4, 8, 8) and latents.abs().max() > 1
    images = opened(files, "decoded")["x"]
    expected = Vae.load(folder / "vae").decode(latents).clamp(-1, 1)
    assert images.shape == (4, 3, 16, 16) and images.dtype == np.uint8
    np.testing.assert_array_equal(images, ((expected.double() + 1) * 127.5).round())
    with Image.open(files["grid"]) as grid:  # with a seam, four times as large
        assert (grid.size, grid.mode) == ((2 * 17 * 4,) * 2, "RGB")


def write_noisy(folder: Path, *shape: int, count: int = 5) -> torch.Tensor:
    """Write files of noise, some of them in a folder, and return their pixels as the model does."""
    (folder / "inner").mkdir(parents=True)
    levels = np.random.default_rng(0).integers(0, 256, (count, *shape), np.uint8)
    for i, pixels in enumerate(levels):
        Image.fromarray(pixels).save(folder / ("inner" if i > 2 else "") / f"x{i}.png")
    order = [3, 4, 0, 1, 2]  # of the names: inner/x3.png, …
    channels = torch.from_numpy(levels)[order[:count]].view(count, *shape[:2], -1)
    return channels.permute(0, 3, 1, 2).float() / 127.5 - 1


@pytest.mark.parametrize("given", ["", " --sigma 0.6"])
def test_a_folder_is_denoised_as_by_the_library(folder, tmp_path, denoised, given):
    noisy, out = write_noisy(tmp_path / "noisy", 8, 8, 3), tmp_path / "out"
    asked = f"--model {folder} --method rademacher --images {tmp_path / 'noisy'} --out {out}{given}"
    said = denoised(asked)
    expected = api.denoise(api.load(folder), noisy, "rademacher", 0.6 if given else None)
    assert said["names"] == ["inner/x3.png", "inner/x4.png", "x0.png", "x1.png", "x2.png"]
    store = xarray.open_zarr(said["store"], consolidated=False)
    for name, values in expected._asdict().items():
        np.testing.assert_allclose(store[name], values, rtol=1e-6)
    assert store.attrs["files"] == said["names"] and store.attrs["method"] == "rademacher"
    assert set(store.attrs["digests"]) == {"unet/diffusion_pytorch_model.safetensors"}
    errors = expected.std.square().mean((1, 2, 3)).sqrt()
    np.testing.assert_allclose(said["expected_error"], errors, rtol=1e-5)
    white = 2 * expected.std / said["white"] - 1
    for kind, values in {"mean": expected.mean, "std": white}.items():
        shown = torch.from_numpy(np.asarray(Image.open(out / kind / "inner/x4.png")).copy())
        levels = ((values[1] + 1) * 127.5).clamp(0, 255).permute(1, 2, 0)
        assert (shown - levels).abs().max() <= 0.51
    assert "is there already; --force" in denoised(asked, 1)
    assert denoised(f"{asked} --force") == said and not list(out.glob("*.tmp"))


def test_an_experiment_denoises_with_its_own_heads(made, tmp_path, denoised, capsys):
    name, noisy = made("digits"), write_noisy(tmp_path / "noisy", 8, 8)
    assert noisy.shape == (5, 1, 8, 8)
    places = f"--images {tmp_path / 'noisy'} --out {tmp_path / 'out'}"
    asked = f"{name} {places} --sigma 0.5 --method ocm"
    said = denoised(asked)
    store = xarray.open_zarr(said["store"], consolidated=False)
    assert store["std"].shape == (5, 1, 8, 8) and float(store["std"].min()) > 0
    assert store.attrs["experiment"] == name and store.attrs["score"] == "trained"
    assert "heads/trained/heads/ocm.safetensors" in store.attrs["digests"]
    assert main(["denoise", *asked.split(), "--force", "--device", "cpu"]) == 0
    told = capsys.readouterr().out
    assert "5 images with noise of 0.5: expected errors" in told and "std/ (white is" in told
    worst = said["names"][int(np.argmax(said["expected_error"]))]
    assert f"largest of {worst} (" in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--method ocn", "--method of tiny_digits: 'ocn' is unknown; did you mean 'ocm'"),
        ("--method ocm --sigma 0", "sigma[0] = 0: the schedule's noise is from"),
        ("--method ocm --label 1", "--label 1: the network takes no classes"),
        ("--method ocm --images {0}/colour", "8×8 pixels in RGB; the model takes"),
        ("--method ocm --head x", "--head goes with --model"),
    ],
)
def test_what_cannot_be_denoised_is_refused(made, denoised, tmp_path, arguments, said):
    write_noisy(tmp_path / "grey", 8, 8)
    write_noisy(tmp_path / "colour", 8, 8, 3)
    given = arguments.format(tmp_path)
    where = "" if "--images" in given else f"--images {tmp_path / 'grey'}"
    assert said in denoised(f"{made('digits')} {given} {where} --out {tmp_path / 'out'}", 1)
    assert not (tmp_path / "out").exists()


def test_latents_points_and_missing_classes_are_refused_for_denoising(made, denoised, tmp_path):
    write_noisy(tmp_path / "noisy", 8, 8, 3)
    asked = f"--images {tmp_path / 'noisy'} --out {tmp_path / 'out'} --sigma 0.5"
    latents = f"{made('imagenet256_smoke')} {asked} --method ocm"
    assert "a model of latents; in Python, api.denoise takes latents" in denoised(latents, 1)
    points = f"{made('toy_mog9')} {asked} --method ocm_relative"
    assert "a model of points" in denoised(points, 1)
    classes = f"--model {saved(CONFIGS['classes'], tmp_path / 'classes')} {asked}"
    told = denoised(f"{classes} --method rademacher", 1)
    assert "--label: the network takes classes; give the one of these images" in told
    assert len(denoised(f"{classes} --method rademacher --label 2")["sigma"]) == 5


def test_a_folder_is_restored_as_by_the_library(folder, tmp_path, restored):
    seen, out = write_noisy(tmp_path / "seen", 8, 8, 3), tmp_path / "out"
    known = np.arange(64).reshape(8, 8) % 3 > 0
    Image.fromarray(known).save(tmp_path / "mask.png")
    asked = (
        f"--model {folder} --operator inpainting --mask {tmp_path / 'mask.png'} --sigma 0.2"
        f" --algorithm mmps --steps 3 --count 2 --seed 4 --images {tmp_path / 'seen'} --out {out}"
    )
    said, mask = restored(asked), torch.from_numpy(known).float().unsqueeze(0)
    physics = operators.build(operators.InpaintingOperator(kind="inpainting"), (3, 8, 8), mask)
    given = {"sigma": 0.2, "count": 2, "steps": 3, "seed": 4}
    expected = api.restore(api.load(folder), mask * seen, physics, algorithm="mmps", **given)
    assert (said["draws"], said["passes"]) == (2, expected.passes) == (2, 21)
    store = xarray.open_zarr(said["store"], consolidated=False)
    for name in ("mean", "std", "draws"):
        np.testing.assert_allclose(store[name], getattr(expected, name), atol=1e-5)
    assert store.attrs["operator"]["kind"] == "inpainting" and store.attrs["files"] == said["names"]
    left = (mask * (seen.unsqueeze(1) - expected.draws)).square().sum() / (10 * 3 * known.sum())
    assert said["chi2"] == pytest.approx(float(left) / 0.2**2, rel=1e-4)
    files = {file.relative_to(out).as_posix() for file in out.rglob("*.png")}
    assert files == {
        name
        for x in said["names"]
        for name in (f"mean/{x}", f"std/{x}", *(f"draws/{x[:-4]}.{j}.png" for j in (0, 1)))
    }
    assert "is there already; --force" in restored(asked, 1)
    assert restored(f"{asked} --force") == said


def test_an_experiment_restores_small_images(made, tmp_path, restored, capsys):
    name, seen = made("digits"), write_noisy(tmp_path / "seen", 4, 4)
    asked = (
        f"{name} --images {tmp_path / 'seen'} --operator super_resolution,factor=2 --sigma 0.3"
        f" --method ocm --steps 2 --count 2 --out {tmp_path / 'out'}"
    )
    store = xarray.open_zarr(restored(asked)["store"], consolidated=False)
    assert seen.shape == (5, 1, 4, 4) and store["draws"].shape == (5, 2, 1, 8, 8)
    assert store.attrs["experiment"] == name and store.attrs["method"] == "ocm"
    assert "heads/trained/heads/ocm.safetensors" in store.attrs["digests"]
    assert main(["restore", *asked.split(), "--force", "--device", "cpu"]) == 0
    assert "5 images, 2 draws of each with 2 passes of the network" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--operator denoising", "--method: kalman takes a covariance"),
        ("--operator denoising --method ocm --algorithm mmps", "--method ocm: mmps takes none"),
        ("--operator denoising --method ocm --timesteps optimal", "--timesteps optimal: name them"),
        ("--operator denoising --method ocm --images {0}/none", "none: not there; expected"),
        ("--operator denoising --method ocm --images {0}/large", "9×8 pixels in L; the model"),
        ("--operator inpainting --method ocm", "--mask: inpainting needs a PNG"),
        ("--operator inpainting --method ocm --mask {0}/no.png", "no.png: no such file"),
        ("--operator inpainting --method ocm --mask {0}/grey.png", "has other levels than black"),
        ("--operator inpainting --method ocm --mask {0}/mask.png", "mask: 8 × 9 pixels; expected"),
    ],
)
def test_what_cannot_be_restored_is_refused(made, restored, tmp_path, arguments, said):
    write_noisy(tmp_path / "fits", 8, 8)
    write_noisy(tmp_path / "large", 8, 9)
    Image.fromarray(np.ones((8, 9), bool)).save(tmp_path / "mask.png")
    Image.fromarray(np.full((8, 8), 99, np.uint8)).save(tmp_path / "grey.png")
    given = arguments.format(tmp_path)
    given += "" if "--images" in given else f" --images {tmp_path / 'fits'}"
    given += "" if "--sigma" in given else " --sigma 0.2"
    assert said in restored(f"{made('digits')} {given} --out {tmp_path / 'out'}", 1)
    assert not (tmp_path / "out").exists()


def test_operators_that_nobody_knows_are_refused(folder, restored, tmp_path):
    asked = f"--model {folder} --images {tmp_path} --sigma 0.1 --algorithm mmps --operator"
    assert "--operator haze:" in restored(f"{asked} haze", 1)
    assert "--operator blur,width=0: operator.width: " in restored(f"{asked} blur,width=0", 1)
    said = restored(f"{asked} blur,widht=1", 1)
    assert "operator.widht: 'widht' is unknown; did you mean 'width'? valid: kind, width" in said
