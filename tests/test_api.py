"""A user's own model, from the files that diffusers writes to a trained head and samples."""

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import (
    DDIMScheduler,
    DDPMPipeline,
    DDPMScheduler,
    LCMScheduler,
    ScoreSdeVeScheduler,
)
from PIL import Image
from safetensors.torch import load_file, save_file

from ocm_core import api, covariance
from ocm_core.covariance.interface import Clip
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import pixel_sigma_limit
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.errors import OcmError
from ocm_core.rng.noise import SampleNoise
from ocm_core.sampling.start import DataGaussian
from ocm_core.schema.timesteps import PowerTimesteps
from ocm_core.uses import operators
from ocm_core.uses.linear import Measured
from ocm_core.uses.operators import BlurOperator
from ocm_core.uses.restore import restore
from tests.core.doubles import ancestral, killed
from tests.init.folders import write_dit
from tests.networks.diffusers_cases import CLASSES, CONFIGS, PLAIN, model

ROOT = Path(__file__).parents[1]
SHAPE = (3, 8, 8)
GREY = {"in_channels": 1, "out_channels": 1}
FEW: Any = {"fit": "train", "iterations": 3, "batch_size": 4}
SOLVED: Any = {"draws": 320, "batch_size": 8}  # in 40 batches, as few as there may be
CONFIG, WEIGHTS = "unet/config.json", "unet/diffusion_pytorch_model.safetensors"


def wrapped(name: str = "plain", **scheduler: Any) -> Denoiser:
    return api.wrap(model(CONFIGS[name]), DDPMScheduler(**scheduler))


def short() -> Denoiser:
    return wrapped(num_train_timesteps=40)


def flat(head: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.flatten() for p in head.parameters()])


def plain(denoiser: Denoiser, method: Any, steps: int, shape: Any, **options: Any) -> torch.Tensor:
    """Two samples by even DDPM steps, with the limits of images unless others are given."""
    even, noise = rules.even(denoiser.schedule.steps, steps), SampleNoise(0, range(2), shape)
    options = {"clip": Clip(x0=1.0, c_max=1.0), **options}
    return ancestral(denoiser, method, even, noise, kernel=Ddpm(), **options).x


def images(count: int = 8, channels: int = 3) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.rand(count, channels, 8, 8, generator=draw) * 2 - 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    DDPMPipeline(model(PLAIN), DDPMScheduler()).save_pretrained(tmp_path / "my-model")
    return tmp_path / "my-model"


def test_the_program_of_the_document_runs(folder: Path, monkeypatch, capsys) -> None:
    pictures = folder.parent / "my-images"
    pictures.mkdir()
    for i, pixels in enumerate(np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), np.uint8)):
        Image.fromarray(pixels).save(pictures / f"{i}.png")
    page = (ROOT / "docs/your_model.md").read_text()
    monkeypatch.chdir(folder.parent)
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), {})
    said = capsys.readouterr().out
    assert re.fullmatch(r"\((\d+, ){4}\d+\) \d+\.\d{3} bits per dimension\n", said)
    names = ("beta_tilde", "ocm", "optimal", "quality", "diverse", "likelihood", "own")
    grids = [Image.open(f"{name}.png") for name in names]
    assert {(grid.size, grid.mode) for grid in grids} == {((32, 32), "RGB")}
    assert len({grid.tobytes() for grid in grids}) == len(names)  # each is another way to sample
    weights = load_file("heads.safetensors")
    assert weights["ocm.net.conv.weight"].shape == (3, 8, 3, 3)
    assert weights["ocm.net.conv.weight"].abs().max() > 1e-3


@pytest.mark.usefixtures("few_residuals")
def test_the_lines_of_the_readme(tmp_path: Path, monkeypatch, capsys) -> None:
    """They run, and print what the README says they do, but for the numbers."""
    DDPMPipeline(model(PLAIN | GREY), DDPMScheduler()).save_pretrained(tmp_path / "my-model")
    section = (ROOT / "README.md").read_text().split("\n## Your model\n")[1].split("\n## ")[0]
    lines, printed = re.findall(r"```(?:python|text)\n(.*?)```", section, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(lines.replace('"ocm+klt")', '"ocm+klt", draws=40)').replace("-300", "-4"), {})
    said, number = capsys.readouterr().out, re.compile(r"\d[\d.]*")
    assert re.sub(number, "N", said) == re.sub(number, "N", printed)
    assert Image.open("samples.png").size == (32, 32)


def test_both_layouts_of_a_folder_give_the_model(folder: Path, tmp_path: Path) -> None:
    flat = tmp_path / "flat"
    model(PLAIN).save_pretrained(flat)
    DDIMScheduler(beta_schedule="squaredcos_cap_v2").save_pretrained(flat)
    one, other = api.load(folder), api.load(flat)
    assert not any(p.requires_grad for p in one.network.parameters())
    assert not one.network.training
    assert torch.equal(one.predict(images(), 5).eps, other.predict(images(), 5).eps)
    assert one.schedule.alpha_bar[-1] < other.schedule.alpha_bar[500]


@pytest.mark.parametrize(
    "kind", ["linear", "scaled_linear", "squaredcos_cap_v2", "sigmoid", "laplace"]
)
def test_noise_and_time_are_those_of_diffusers(kind: str) -> None:
    scheduler = DDPMScheduler(beta_schedule=kind)
    denoiser, ours = wrapped(beta_schedule=kind), model(PLAIN)
    np.testing.assert_array_equal(denoiser.schedule.betas[1:], scheduler.betas.double())
    np.testing.assert_allclose(
        denoiser.schedule.alpha_bar[1:], scheduler.alphas_cumprod, rtol=1e-4, atol=1e-9
    )
    x, t = images(3), torch.tensor([1, 400, 1000])
    with torch.no_grad():
        assert torch.equal(denoiser.predict(x, t).eps, ours(x, t - 1).sample)


def test_a_trained_head_knows_the_jacobian() -> None:
    """A model that repeats x_t, which at large t is nearly the best; c is 1 - √b_t diag J."""
    network = model(PLAIN).train()
    optimiser, draw = torch.optim.Adam(network.parameters(), 1e-2), torch.Generator().manual_seed(0)
    for _ in range(40):
        x, t = torch.randn(16, *SHAPE, generator=draw), torch.randint(1000, (16,), generator=draw)
        optimiser.zero_grad()
        (network(x, t).sample - x).square().mean().backward()
        optimiser.step()
    denoiser, errors = api.wrap(network, DDPMScheduler()), []
    for count in (1, 40):
        given = {"fit": "train", "iterations": count, "batch_size": 16, "learning_rate": 1e-2}
        trained = api.fit_head(denoiser, images(), **given)
        prediction = trained.predict(images(4), torch.tensor([100, 300, 600, 1000]))
        exact, head = (covariance.build(name).c(prediction) for name in ("exact_diag", "ocm"))
        errors.append(float((head - exact).square().mean().sqrt().detach()))
    assert errors[1] < 0.65 * errors[0]


def test_training_is_a_function_of_its_seed_and_disturbs_nothing() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    heads = [api.fit_head(wrapped(), images(), seed=s, **FEW).heads["ocm"] for s in (0, 0, 1)]
    assert torch.equal(torch.rand(3), expected)
    first, again, other = map(flat, heads)
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert not heads[0].training and not any(p.requires_grad for p in heads[0].parameters())


def test_a_killed_run_resumes(tmp_path: Path) -> None:
    seen: list[range] = []

    def trained(**more: Any) -> torch.Tensor:
        given = {"fit": "train", "iterations": 60, "batch_size": 1, **more}
        return flat(api.fit_head(wrapped(), images(), "npr", **given).heads["npr"])

    with pytest.raises(KeyboardInterrupt):
        trained(folder=tmp_path, progress=killed(35))
    resumed = trained(folder=tmp_path, progress=lambda steps: seen.append(steps) or steps)
    assert seen == [range(33, 60)] and not list(tmp_path.iterdir())
    assert torch.equal(resumed, trained())


def test_only_an_estimated_variance_is_limited_at_the_end() -> None:
    for method, limited in {"beta": False, "beta_tilde": False, "rademacher": True}.items():
        free = plain(wrapped(), covariance.build(method), 3, SHAPE)
        found = api.sample(wrapped(), SHAPE, method, steps=3, count=2)
        assert torch.equal(found, free) != limited, method


def test_samples_depend_on_seed_sampler_and_label_and_not_on_the_batch() -> None:
    labels = torch.arange(8) % CLASSES
    denoiser = api.fit_head(wrapped("classes"), images(), labels=labels, **FEW)
    given: Any = {"steps": 4, "count": 5, "labels": labels[:5]}
    whole = api.sample(denoiser, SHAPE, **given)
    parts = api.sample(denoiser, SHAPE, **given, batch_size=2)
    torch.testing.assert_close(parts, whole, atol=1e-4, rtol=0)
    later = api.sample(denoiser, SHAPE, steps=4, first=2, count=2, labels=labels[2:4])
    assert torch.equal(later, parts[2:4])
    assert whole.shape == (5, *SHAPE) and whole.abs().max() <= 1
    for other in ({"seed": 1}, {"sampler": "ddim"}, {"labels": labels[1:6]}):
        assert not torch.equal(whole, api.sample(denoiser, SHAPE, **given | other))


def test_a_variance_that_the_network_learned_needs_no_head() -> None:
    denoiser, own = wrapped("learned_variance", num_train_timesteps=40), (1, 8, 8)
    drawn = api.sample(denoiser, own, "iddpm", steps=4, count=2)
    learned = covariance.build("iddpm", source="network", lower_end="timesteps")
    limit = pixel_sigma_limit(1.0)
    assert torch.equal(drawn, plain(denoiser, learned, 4, own, final_sigma=limit))
    assert api.bits_per_dim(denoiser, images(2, 1), "iddpm", (3, 20, 40)).isfinite().all()
    trained = api.fit_head(denoiser, images(channels=1), "iddpm", **FEW)
    by_head = api.sample(trained, own, "iddpm", steps=4, count=2)
    assert by_head.isfinite().all() and not torch.equal(drawn, by_head)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("ocm", r"method 'ocm' has no head yet; fit it with api\.fit_head"),
        ("iddpm", r"method 'iddpm' has no head yet; fit it with api\.fit_head"),
        ("analytic", "method 'analytic' needs a table of moments, .*`ocm init`"),
    ],
)
def test_what_a_method_lacks_is_said_in_the_words_of_the_api(method: str, message: str) -> None:
    for ask in (
        lambda: api.sample(short(), SHAPE, method, steps=3, count=2),
        lambda: api.bits_per_dim(short(), images(), method, (1, 20, 40)),
        lambda: api.optimal_timesteps(short(), images(), method, 3),
    ):
        with pytest.raises(OcmError, match=message):
            ask()


def test_a_relative_head_is_positive_and_begins_at_the_means_of_its_target() -> None:
    begun, trained = (
        api.fit_head(short(), images(), relative=True, **FEW | {"learning_rate": rate})
        for rate in (1e-9, 1e-1)
    )
    method, t = covariance.build("ocm"), 35
    x = torch.randn(4, *SHAPE, generator=torch.Generator().manual_seed(1))
    first, later = (method.c(denoiser.predict(x, t)) for denoiser in (begun, trained))
    baseline = begun.heads["ocm"].baseline
    assert baseline.shape == (41,) and (baseline[1:] > 0).all()
    assert first.allclose(baseline[t].float().expand_as(first), rtol=1e-4)
    assert (later > 0).all() and not later.allclose(first, rtol=1e-2)


def test_a_head_is_solved_for_by_default_and_a_killed_run_resumes(tmp_path: Path) -> None:
    solved = api.fit_head(short(), images(), **SOLVED)
    with pytest.raises(KeyboardInterrupt):
        api.fit_head(short(), images(), **SOLVED, folder=tmp_path, progress=killed(25))
    resumed = api.fit_head(short(), images(), **SOLVED, folder=tmp_path)
    assert torch.equal(flat(solved.heads["ocm"]), flat(resumed.heads["ocm"]))
    assert not list(tmp_path.iterdir())
    c = covariance.build("ocm").c(solved.predict(images(4), 35))
    assert (c > 0).all() and c.std() > 0


@pytest.mark.parametrize(
    ("fit", "changed"),
    [("solve", {"images": images() / 2}), ("solve", {"method": "npr"}), ("train", {"seed": 5})],
)
def test_what_was_killed_is_resumed_by_the_same_alone(
    fit: str, changed: dict[str, Any], tmp_path: Path
) -> None:
    first: Any = {"images": images(), "method": "ocm", "fit": fit, "iterations": 40, **SOLVED}
    other = first | changed
    with pytest.raises(KeyboardInterrupt):
        api.fit_head(short(), **first, folder=tmp_path, progress=killed(25))
    found, fresh = (api.fit_head(short(), **other, **k) for k in ({"folder": tmp_path}, {}))
    assert torch.equal(*(flat(each.heads[other["method"]]) for each in (found, fresh)))


@pytest.mark.usefixtures("few_residuals")
@pytest.mark.parametrize("method", ["ocm+dct", "kdct"])
def test_a_correlated_method_is_fitted_saved_and_sampled(method: str, tmp_path: Path) -> None:
    denoiser = api.fit_head(short(), images(), method, **SOLVED)
    api.save_heads(denoiser, tmp_path / "heads.safetensors")
    again = api.load_heads(short(), tmp_path / "heads.safetensors")
    timesteps = api.optimal_timesteps(denoiser, images(), method, 3, points=8)
    diagonal = "ocm" if method == "ocm+dct" else "beta_tilde"
    plain = api.sample(denoiser, SHAPE, diagonal, steps=3, count=2)
    for chosen in (method, "beta_tilde+dct"):
        drawn, same = (api.sample(d, SHAPE, chosen, steps=3, count=2) for d in (denoiser, again))
        assert torch.equal(drawn, same) and not torch.equal(drawn, plain)
    bits = api.bits_per_dim(again, images(), method, timesteps)
    assert torch.equal(bits, api.bits_per_dim(denoiser, images(), method, timesteps))
    with pytest.raises(
        OcmError, match=rf"'{re.escape(method)}' has no spectrum yet; api\.fit_head"
    ):
        api.sample(replace(denoiser, spectra={}), SHAPE, method, steps=3)


@pytest.mark.usefixtures("few_residuals")
def test_a_diagonal_in_a_basis_is_trained_and_positive() -> None:
    given: Any = FEW | {"learning_rate": 0.1, "iterations": 5}
    denoiser = api.fit_head(short(), images(), "kdct", **given)
    assert (covariance.build("kdct").c(denoiser.predict(images(4), 35)) > 0).all()
    with pytest.raises(OcmError, match="'kdct' is relative to its spectrum; leave `relative` out"):
        api.fit_head(short(), images(), "kdct", relative=True, **FEW)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("kind", ["simple", "complex"])
def test_heads_come_back_from_their_file(kind: str, relative: bool, tmp_path: Path) -> None:
    denoiser, begun, file = short(), str(tmp_path / "begun"), str(tmp_path / "heads.safetensors")
    given: Any = {"kind": kind, "relative": relative, "folder": begun, **FEW}
    for method in ("ocm", "sn"):
        denoiser = api.fit_head(denoiser, images(), method, **given)
        assert not list(Path(begun).iterdir())
    api.save_heads(denoiser, file)
    again = api.load_heads(short(), file)
    for method in ("ocm", "sn"):
        drawn = [api.sample(d, SHAPE, method, steps=3, count=2) for d in (denoiser, again)]
        assert torch.equal(*drawn)


def test_files_of_other_heads_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "heads.safetensors"
    with pytest.raises(OcmError, match="no heads to save"):
        api.save_heads(wrapped(), file)
    with pytest.raises(OcmError, match=r"heads\.safetensors: expected a file of heads"):
        api.load_heads(wrapped(), file)
    save_file({"weight": torch.zeros(1)}, file)
    with pytest.raises(OcmError, match="write it again with `save_heads`"):
        api.load_heads(wrapped(), file)
    api.save_heads(api.fit_head(wrapped(), images(), **FEW), file)
    with pytest.raises(OcmError, match="written for another network"):
        api.load_heads(wrapped("learned_variance"), file)


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB")])
def test_a_grid_shows_every_image_in_its_place(channels: int, mode: str, tmp_path: Path) -> None:
    values = torch.linspace(-1, 1, 5).view(-1, 1, 1, 1).expand(-1, channels, 2, 3)
    api.save_grid(values, str(tmp_path / "grid.png"))
    grid = Image.open(tmp_path / "grid.png")
    assert grid.mode == mode and grid.size == (9, 4)
    corners = np.asarray(grid).reshape(4, 9, -1)[::2, ::3, 0]
    assert corners.tolist() == [[0, 64, 128], [191, 255, 0]]


def weights(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        change(tensors)
        save_file(tensors, folder / WEIGHTS)

    return damage


def config(part: str = "unet", **changes: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (file,) = (folder / part).glob("*config.json")
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (weights(lambda w: w.pop("conv_in.bias")), r"missing_keys: \['conv_in\.bias'\]"),
        (weights(lambda w: w.update(more=torch.zeros(1))), r"unexpected_keys: \['more'\]"),
        (
            weights(lambda w: w.update({"conv_in.bias": torch.zeros(1)})),
            r"(?s)my-model/unet: .*size mismatch for conv_in\.bias",
        ),
        (lambda f: os.truncate(f / WEIGHTS, 1000), r"my-model/unet/diffusion_.*: expected a whole"),
        (lambda f: (f / WEIGHTS).rename(f / "unet/model.bin"), r"no file named \*\.safetensors"),
        (config(norm_num_groups=3), "must be divisible by num_groups"),
        (config(_class_name="UNet3DConditionModel"), "describes a UNet3DConditionModel"),
        (lambda f: (f / CONFIG).write_text("{"), "expected a JSON object"),
        (lambda f: (f / CONFIG).unlink(), r"my-model: no config\.json in unet/, in trans"),
        (config(layers_per_block=100_000), "my-model/unet.*layers_per_block: .* equal to 16"),
        (config(block_out_channels=[8] * 10_000), "my-model/unet.*at most 12 items"),
        (config(block_out_channels=[8192] * 2), "my-model/unet.*the configuration asks for"),
        (config("scheduler", num_train_timesteps=10**9), "my-model/scheduler.*from 1 to 4095"),
        (config("scheduler", prediction_type="flow"), "'flow'; expected one of epsilon"),
        (
            lambda f: ScoreSdeVeScheduler().save_pretrained(f / "scheduler"),
            "ScoreSdeVeScheduler has no beta_schedule",
        ),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused_at_once(
    folder: Path, damage: Callable[[Path], object], message: str
) -> None:
    damage(folder)
    begun = process_time()
    with pytest.raises(OcmError, match=message):
        api.load(folder)
    assert process_time() - begun < 2.0  # nothing large is built first


def test_a_denoiser_is_shown_in_a_line() -> None:
    shown = repr(wrapped())
    assert re.fullmatch(r"Denoiser\(0\.\d+ M parameters, 1000 timesteps, heads: none\)", shown)


def test_what_is_no_model_is_refused(folder: Path) -> None:
    with pytest.raises(OcmError, match="null_class = 4: the model takes no classes; leave it out"):
        api.load(folder, null_class=4)
    with pytest.raises(OcmError, match=r"download it first: `hf download google/ddpm-cat --local"):
        api.load("google/ddpm-cat")
    with pytest.raises(OcmError, match="LCMScheduler: a distilled model, which is no posterior"):
        api.wrap(model(PLAIN), LCMScheduler())
    for dtype in (torch.float16, torch.bfloat16):
        with pytest.raises(OcmError, match=f"weights in {dtype}; load it with torch_dtype"):
            api.wrap(model(PLAIN).to(dtype), DDPMScheduler())


def test_images_of_eight_bits_are_those_in_minus_one_to_one() -> None:
    levels = torch.randint(0, 256, (8, *SHAPE), dtype=torch.uint8)
    both = (levels, levels.float() / 127.5 - 1)
    heads = [flat(api.fit_head(wrapped(), given, **FEW).heads["ocm"]) for given in both]
    assert torch.equal(*heads)


def test_latents_have_no_range_and_no_levels(tmp_path: Path) -> None:
    denoiser, shape = api.load(write_dit(tmp_path / "dit")), (4, 8, 8)
    latents = 3 * torch.randn(8, *shape, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(8) % CLASSES
    trained = api.fit_head(denoiser, latents, kind="adaln", labels=labels, **FEW)
    given: dict[str, Any] = {"count": 2, "labels": labels[:2]}
    drawn = api.sample(trained, shape, "ocm", steps=3, **given)
    free = plain(trained, covariance.build("ocm"), 3, shape, clip=Clip(), label=labels[:2])
    assert torch.equal(drawn, free) and drawn.abs().max() > 1.5
    timesteps = api.optimal_timesteps(trained, latents, "ocm", 3, labels=labels, points=5)
    bits = api.bits_per_dim(trained, latents, "ocm", timesteps, labels=labels)
    assert bits.shape == (8,) and bits.isfinite().all()
    bars = api.denoise(trained, latents, "ocm", 2.0, labels=labels)
    assert bars.mean.shape == latents.shape and bars.std.min() > 0
    with pytest.raises(OcmError, match=r"latents: torch\.uint8 .*; expected floating-point"):
        api.fit_head(trained, latents.to(torch.uint8), labels=labels, **FEW)
    with pytest.raises(OcmError, match=r"evaluate: .* are latents; .*`ocm init`"):
        api.evaluate(trained, latents, "ocm", labels=labels)


@pytest.mark.parametrize("name", ["plain", "learned_variance"])  # in colour, in grey
def test_noisy_images_come_back_with_error_bars(name: str) -> None:
    clean = images(6, CONFIGS[name]["in_channels"])
    denoiser = api.fit_head(wrapped(name), clean, "npr", **FEW)
    noisy = clean + 0.5 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(1))
    found = api.denoise(denoiser, noisy, "npr", sigma=0.5)
    alpha_bar, b = denoiser.schedule.marginal(t := int(found.timestep[0]))
    assert (b / alpha_bar) ** 0.5 == pytest.approx(0.5, rel=0.005)
    seen = denoiser.predict(alpha_bar**0.5 * noisy, t)
    x0 = noisy - (b / alpha_bar) ** 0.5 * seen.eps
    torch.testing.assert_close(found.mean, x0.clamp(-1, 1), rtol=0, atol=1e-5)
    variance = b / alpha_bar * covariance.build("npr").c(seen)
    floored = variance.where(variance > 0, denoiser.schedule.beta_tilde(1, 2)).sqrt()
    torch.testing.assert_close(found.std, floored, rtol=0.005, atol=0)
    each = torch.tensor([0.5, 0.1, 0.5, 1.0, 0.1, 0.5])
    mixed = api.denoise(denoiser, noisy, "npr", sigma=each, batch_size=2)
    torch.testing.assert_close(mixed.std[each == 0.5], found.std[each == 0.5], rtol=1e-4, atol=0)
    eight = ((clean + 1) * 127.5).round().to(torch.uint8)
    levels = api.denoise(denoiser, eight, "npr", 0.1).mean
    assert torch.equal(levels, api.denoise(denoiser, eight.float() / 127.5 - 1, "npr", 0.1).mean)


def physics() -> Any:
    """A blur of deepinv, with noise of its own."""
    operator = operators.build(BlurOperator(kind="blur"), SHAPE)
    operator.noise_model = operators.import_deepinv().physics.GaussianNoise(0.2)
    return operator


@pytest.mark.usefixtures("few_residuals")
def test_images_are_restored_by_a_recipe_of_ddpm() -> None:
    denoiser = api.fit_head(wrapped(), images(), "analytic+dct")
    operator, given = physics(), {"count": 3, "steps": 4, "seed": 5}
    y = operator(images())
    found = api.restore(denoiser, y, operator, "analytic+dct", **given)
    assert found.draws.shape == (8, 3, *SHAPE) and found.passes == 4
    torch.testing.assert_close(found.mean, found.draws.mean(1))
    torch.testing.assert_close(found.std, found.draws.std(1))
    whole = api.recipe(denoiser, "analytic+dct", steps=4)
    measured = Measured(y, operator, operators.noise_of(operator, None))
    direct = restore(denoiser, measured, whole, count=3, seed=5)
    assert torch.equal(found.draws, direct.draws)
    twice = api.restore(denoiser, y, operator, "analytic+dct", sigma=0.4, **given)
    assert not torch.equal(found.draws, twice.draws)
    for algorithm, passes in {"mmps": 5, "dps": 3, "pigdm": 3}.items():
        other = api.restore(denoiser, y, operator, algorithm=algorithm, iterations=2, **given)
        assert other.passes == 4 * passes and bool(other.draws.isfinite().all())
    labels = torch.tensor([0, 1, 2, 3] * 2)
    classes = wrapped("classes")
    drawn = [
        api.restore(classes, y, operator, algorithm="mmps", labels=chosen, **given).draws
        for chosen in (labels, labels.flip(0))
    ]
    assert not torch.equal(*drawn)


GIVEN: dict[str, Callable[[], dict[str, Any]]] = {
    "denoise": lambda: {"images": images(), "method": "rademacher", "sigma": 0.5},
    "restore": lambda: {"y": images(), "physics": physics(), "method": "exact_diag", "steps": 2},
    "fit_head": lambda: {"images": images(), **FEW},
    "sample": lambda: {"shape": SHAPE, "method": "beta", "steps": 4, "count": 2},
}
REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "denoise": [
        ({"images": images() / 2 + 0.5}, r"in \[0, 1\], give 2 \* images - 1"),
        ({"images": images(channels=1)}, "takes 3 channels"),
        ({"method": "ocm"}, "method 'ocm' has no head yet"),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, "3 labels for 8 images"),
    ],
    "restore": [
        ({"method": None}, "method: kalman takes a covariance; name one, such as analytic"),
        ({"method": "ocm"}, "method 'ocm' has no head yet"),
        ({"method": "analytic+dct"}, "has no spectrum yet; api.fit_head estimates it"),
        ({"sampler": "ddim"}, "steps are those of DDPM, of order 1"),
        ({"y": torch.zeros(2, 3, 8, 9)}, r"images of shape \(3, 8, 9\): this UNet2DModel takes"),
        ({"y": torch.zeros(2, 1, 8, 8)}, r"images of shape \(1, 8, 8\): this UNet2DModel takes"),
    ],
    "fit_head": [
        ({"images": images() * 255}, "expected uint8 .* float32 between -1 and 1"),
        ({"images": images().to(torch.int64)}, "images: torch.int64"),
        ({"images": images() / 2 + 0.5}, r"in \[0, 1\], give 2 \* images - 1"),
        ({"images": images()[0]}, r"of shape \(3, 8, 8\)"),
        ({"images": images(channels=1)}, "takes 3 channels"),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, "3 labels for 8 images"),
        ({"method": "beta"}, "'beta' has no head to fit"),
        ({"method": "ocn"}, "did you mean 'ocm'"),
        ({"kind": "simpel"}, "'simpel' is unknown"),
        ({"iterations": 0}, "fit_head: iterations: .*greater than or equal to 1"),
        ({"method": "iddpm", "relative": True}, "'iddpm': a relative head predicts c"),
        ({"relative": True, "fit": "solve"}, "a relative head .* takes fit='train'"),
        ({"method": "iddpm", "fit": "solve"}, "'iddpm' is no least-squares fit; give fit='train'"),
        ({"fit": "solve", "draws": 10, "batch_size": 32}, "fit_head: draws: .*than or equal to 40"),
    ],
    "sample": [
        ({"sampler": "euler"}, "sampler: 'euler' is unknown"),
        ({"steps": 41}, "K = 41 steps: expected 1 ≤ K ≤ T = 40"),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, "3 labels for count = 2"),
        ({"sampler": "ddim"}, "'beta' is not defined for ddim"),
        ({"preset": "qualty"}, "preset: 'qualty' is unknown; did you mean 'quality'"),
        ({"preset": "likelihood"}, "api.optimal_timesteps"),
        ({"timesteps": (1, 41)}, "end at 41: expected at most T = 40"),
        ({"timesteps": (5, 5)}, "visit one twice"),
        ({"guidance": 2.0}, "guidance 2.0 needs a network with a null class"),
    ],
}


@pytest.mark.parametrize(
    ("call", "wrong", "said"), [(call, *case) for call in REFUSED for case in REFUSED[call]]
)
def test_what_cannot_be_is_refused(call: str, wrong: dict[str, Any], said: str) -> None:
    denoiser = short() if call == "sample" else wrapped()
    with pytest.raises(OcmError, match=said):
        getattr(api, call)(denoiser, **GIVEN[call]() | wrong)


def test_optimal_timesteps_have_the_least_bound_on_their_images() -> None:
    denoiser, seen, even = short(), images(), rules.even(40, 3)
    best, again = (
        api.optimal_timesteps(denoiser, seen, "beta", 3, batch_size=size) for size in (64, 3)
    )
    assert best == again == tuple(sorted({*best})) and len(best) == 3
    with_even = api.bits_per_dim(denoiser, seen, "beta", even)
    assert api.bits_per_dim(denoiser, seen, "beta", best).mean() < with_even.mean()
    apart = api.bits_per_dim(denoiser, seen, "beta", even, batch_size=3)  # of each image alone
    assert apart.shape == (len(seen),) and apart.dtype == torch.float64
    torch.testing.assert_close(with_even, apart, rtol=1e-5, atol=0)
    with pytest.raises(OcmError, match=r"steps = 9: expected 1 to [45]; more `points`"):
        api.optimal_timesteps(denoiser, images(2), "beta", 9, points=4)


def test_timesteps_are_chosen_for_the_decoder_of_the_bound() -> None:
    denoiser, seen, chosen = short(), images(), {}
    for variance in ("fixed", "method"):
        chosen[variance] = api.optimal_timesteps(
            denoiser, seen, "beta", 3, decoder_variance=variance
        )
    assert chosen["fixed"] == api.optimal_timesteps(denoiser, seen, "beta", 3)
    assert chosen["method"] != chosen["fixed"]

    def bits(timesteps: rules.Timesteps, variance: Any) -> float:
        found = api.bits_per_dim(denoiser, seen, "beta", timesteps, decoder_variance=variance)
        return float(found.mean())

    for variance, other in (("fixed", "method"), ("method", "fixed")):
        assert bits(chosen[variance], variance) < bits(chosen[other], variance)
    with pytest.raises(OcmError, match="timesteps of 'gits' have no decoder"):
        api.optimal_timesteps(denoiser, seen, "gits", 3, decoder_variance="fixed")


def test_timesteps_of_gits_follow_from_trajectories_alone() -> None:
    denoiser, seen = short(), images()
    found = api.optimal_timesteps(denoiser, seen, "gits", 3)
    assert found == api.optimal_timesteps(denoiser, -seen, "gits", 3) and found[-1] == 40
    assert found == api.optimal_timesteps(denoiser, seen, "gits", 3, batch_size=3)
    drawn = api.sample(denoiser, SHAPE, "delta", sampler="ddim", order="ipndm", timesteps=found)
    assert torch.isfinite(drawn).all()


def test_few_timesteps_that_end_below_t_are_warned_of_and_can_begin_with_the_data(caplog) -> None:
    denoiser = wrapped(num_train_timesteps=40, beta_end=0.5)
    early, late = (1, 2, 6), (1, 20, 40)
    given: dict[str, Any] = {"method": "beta", "count": 4}
    api.sample(denoiser, SHAPE, timesteps=late, **given)
    api.sample(denoiser, SHAPE, timesteps=early, start=images(), **given)
    assert not caplog.messages
    noisy = api.sample(denoiser, SHAPE, timesteps=early, **given)
    assert "timesteps end at 6 of 40, where" in caplog.text and "start=images" in caplog.text
    caplog.clear()
    best = api.optimal_timesteps(denoiser, images(), "beta_tilde", 2)
    assert best[-1] < 20 and f"timesteps end at {best[-1]} of 40" in caplog.text
    dark = images() * 0.1 - 0.8
    drawn = api.sample(denoiser, SHAPE, timesteps=early, start=dark, **given)
    assert abs(drawn.mean() + 0.8) < 0.4 < abs(noisy.mean() + 0.8)


@pytest.mark.parametrize("start", [None, images()])
def test_samples_come_with_log_densities_of_their_trajectories(start: torch.Tensor | None) -> None:
    denoiser, given = short(), {"steps": 3, "count": 5, "start": start}
    drawn, again = (
        api.sample(denoiser, SHAPE, "beta", log_prob=True, batch_size=size, **given)
        for size in (64, 2)
    )
    assert drawn.log_p.shape == drawn.log_q.shape == (5,) and drawn.log_p.dtype == torch.float64
    for whole, joined in zip(vars(drawn).values(), vars(again).values(), strict=True):
        torch.testing.assert_close(whole, joined, rtol=1e-4, atol=1e-4)
    last = drawn.x - api.sample(denoiser, SHAPE, "beta", **given)  # which shows the mean
    assert float(last.var()) == pytest.approx(denoiser.schedule.b[1], rel=0.2)
    found = drawn.importance(lambda x: -x.square().flatten(1).sum(1))
    assert float(found.weights.sum()) == pytest.approx(1) and 0.2 <= found.ess <= 1
    with pytest.raises(OcmError, match="'lanczos' has no density, and so no log-probability"):
        api.sample(denoiser, SHAPE, "lanczos", log_prob=True, **given)


def test_the_gaussian_of_the_data_is_that_of_their_marginal() -> None:
    from scipy.fft import idctn

    draw, spread = torch.Generator().manual_seed(0), torch.tensor([[3.0, 1.0], [0.5, 0.1]])
    axes: Any = {"axes": (1, 2, 3), "norm": "ortho"}
    x0 = torch.from_numpy(idctn(spread * torch.randn(20_000, 1, 2, 2, generator=draw), **axes)) + 1
    gaussian = DataGaussian.of(x0)
    noise = torch.randn(20_000, 1, 2, 2, generator=draw)
    torch.testing.assert_close(gaussian.at(noise, 0.0, 1.0), noise)
    drawn = gaussian.at(noise, 0.8, 0.2).flatten(1)
    torch.testing.assert_close(drawn.mean(0), torch.full((4,), 0.8**0.5), atol=0.1, rtol=0)
    expected = 0.8 * x0.flatten(1).T.cov() + 0.2 * torch.eye(4)
    torch.testing.assert_close(drawn.T.cov(), expected.float(), atol=0.15, rtol=0.05)


def test_a_preset_and_a_number_of_steps_are_what_they_stand_for() -> None:
    even = api.sample(short(), SHAPE, "beta", steps=3, count=2)
    same = api.sample(short(), SHAPE, "beta", timesteps=rules.even(40, 3), count=2)
    assert torch.equal(even, same)
    squares = PowerTimesteps(exponent=2.0, first=0.07)
    preset = api.sample(short(), SHAPE, preset="quality", steps=4, count=2)
    parts = {"sampler": "ddim", "order": 3, "timesteps": squares}
    spelt = api.sample(short(), SHAPE, "delta", steps=4, count=2, **parts)
    assert torch.isfinite(preset).all()
    torch.testing.assert_close(preset, spelt)  # but for the limit on σ, and there is no noise
    first = api.sample(short(), SHAPE, preset="quality", order=1, steps=4, count=2)
    assert not torch.allclose(first, preset)


def test_the_average_of_a_head_is_over_the_last_tenth() -> None:
    settings = api._settings(1000, 4, 1e-3, 0)
    assert 1 / (1 - settings.ema) == pytest.approx(101)
