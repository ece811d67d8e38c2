"""An exported model with its heads, and our scheduler in diffusers' loops, give our samples."""

from collections.abc import Callable
from math import log, pi
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.hooks import CpuOffload
from diffusers import (
    DDPMPipeline,
    DDPMScheduler,
    DiffusionPipeline,
    EDMEulerScheduler,
    FlowMatchEulerDiscreteScheduler,
    UniPCMultistepScheduler,
)
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from ocm_core import api
from ocm_core.checkpoints.diffusers_folder import describe
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import full
from ocm_core.errors import OcmError
from ocm_core.export.scheduler import CovarianceScheduler
from ocm_core.networks.diffusers_flux import packed, unpacked
from ocm_core.rng.noise import SampleNoise
from ocm_core.sampling.recipe import StepGaussian
from tests.init.folders import (
    autoencoder,
    write_dit,
    write_flux,
    write_pixart,
    write_sana,
    write_sd3,
    write_stable_diffusion,
)
from tests.networks.diffusers_cases import CONFIGS, model, tiny_dit
from tests.test_api import SHAPE, SOLVED, images

SHORT = {"num_train_timesteps": 40, "beta_end": 0.3}
HEADS = {"fit": "train", "iterations": 3, "batch_size": 4, "learning_rate": 0.1}
ALONE = """
import sys, torch
from diffusers import DiffusionPipeline
folder = sys.argv[1]
pipe = DiffusionPipeline.from_pretrained(folder, custom_pipeline=folder, trust_remote_code=True)
seen = []
def watch(pipe, step, timestep, tensors):
    seen.append((step, int(timestep)))
    return tensors
images = pipe(2, num_inference_steps=10, generator=torch.Generator().manual_seed(0),
              callback_on_step_end=watch).images
print(len(images), images[0].size, len(seen), seen[0], seen[-1])
"""


def exported(folder: Path, name: str = "plain", **scheduler: Any) -> tuple[Denoiser, Path]:
    own, trained, denoiser = wrapped(name, **scheduler)
    labels = torch.arange(8) % 5 if name == "classes" else None
    given: Any = {**HEADS, "relative": name == "attention", "labels": labels}
    denoiser = api.fit_head(denoiser, images(), **given)
    given = {"scheduler": trained, "licence": "mit"}
    return denoiser, api.save_pipeline(denoiser, own, folder / "pipeline", **given)


def opened(folder: Path, **options: Any) -> Any:
    pipe = DiffusionPipeline.from_pretrained(
        folder, custom_pipeline=str(folder), trust_remote_code=True, **options
    )
    pipe.set_progress_bar_config(disable=True)
    return pipe


@pytest.mark.parametrize(
    ("name", "scheduler"),
    [
        ("attention", {"prediction_type": "v_prediction", "rescale_betas_zero_snr": True}),
        ("classes", {"kind": FlowMatchEulerDiscreteScheduler, "shift": 2.0}),
        ("plain", {"kind": EDMEulerScheduler, "sigma_max": 20.0, "num_train_timesteps": 40}),
    ],
)
def test_samples_are_ours_for_the_same_noise(
    name: str, scheduler: dict[str, Any], tmp_path: Path
) -> None:
    denoiser, folder = exported(tmp_path, name, **scheduler)
    label = torch.tensor([1, 4]) if name == "classes" else None
    pipe = opened(folder)
    theirs = pipe.draw(SampleNoise(3, range(2), SHAPE), 5, label=label)
    ours = api.sample(denoiser, SHAPE, "ocm", steps=5, count=2, seed=3, labels=label)
    torch.testing.assert_close(theirs, ours, atol=1e-6, rtol=0)
    other = api.sample(denoiser, SHAPE, "beta_tilde", steps=5, count=2, seed=3, labels=label)
    assert not torch.allclose(theirs, other, atol=1e-3)  # the head has its say


@pytest.mark.usefixtures("few_residuals")
@pytest.mark.parametrize("method", ["ocm+dct", "kdct"])
def test_a_correlated_covariance_goes_along(method: str, tmp_path: Path) -> None:
    own, base, denoiser = wrapped()
    denoiser = api.fit_head(denoiser, images(), method, **SOLVED)
    given: Any = {"method": method, "scheduler": base}
    pipe = opened(api.save_pipeline(denoiser, own, tmp_path / "pipeline", **given))
    theirs = pipe.draw(SampleNoise(3, range(2), SHAPE), 5)
    ours = api.sample(denoiser, SHAPE, method, steps=5, count=2, seed=3)
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=0)
    alone = loop(own, api.scheduler(denoiser, base, method, model=own), SHAPE, 5)
    torch.testing.assert_close(alone, ours, atol=1e-5, rtol=0)


def test_diffusers_samples_in_ten_steps(tmp_path: Path, monkeypatch, capsys) -> None:
    """In a process that has nothing else it is tests/init/test_project.py that does."""
    _, folder = exported(tmp_path)
    monkeypatch.setattr("sys.argv", ["", str(folder)])
    exec(ALONE, {})
    assert capsys.readouterr().out.strip() == "2 (8, 8) 10 (0, 39) (9, 0)"
    card = (folder / "README.md").read_text()
    assert "license: mit" in card and "trust_remote_code=True" in card
    assert describe(folder).licence == "mit"
    modes = {file.stat().st_mode & 0o777 for file in folder.rglob("*") if file.is_file()}
    assert len(modes) == 1  # the weights are for whoever may read the card


def test_a_call_is_that_of_any_pipeline(tmp_path: Path) -> None:
    _, folder = exported(tmp_path, "classes")
    pipe = opened(folder)
    draw = {"num_inference_steps": 3, "class_labels": [1, 2], "output_type": "pt"}
    once, again = (
        pipe(generator=torch.Generator().manual_seed(7), **draw).images for _ in range(2)
    )
    assert torch.equal(once, again) and once.shape == (2, *SHAPE)
    given = pipe(latents=torch.zeros(2, *SHAPE), return_dict=False, **draw)[0]
    assert not torch.equal(given, once)
    blank = pipe(callback_on_step_end=lambda *_: {"latents": torch.ones(2, *SHAPE)}, **draw).images
    assert torch.equal(blank, torch.ones(2, *SHAPE))
    assert pipe.scheduler.timesteps.tolist() == [39, 19, 0]
    with pytest.raises(OcmError, match="prompt: not for a UNet2DModel"):
        pipe(prompt="a cat", **draw)


def test_a_pipeline_in_bfloat16_is_close(tmp_path: Path) -> None:
    _, folder = exported(tmp_path)
    plain, lower = opened(folder), opened(folder, torch_dtype=torch.bfloat16)
    assert lower.model.dtype == lower.heads.dtype == torch.bfloat16
    samples = [pipe.draw(SampleNoise(0, range(4), SHAPE), 4) for pipe in (plain, lower)]
    assert samples[1].dtype == torch.float32
    assert 0 < (samples[0] - samples[1]).square().mean().sqrt() < 0.1


def test_parts_are_offloaded_in_the_order_of_their_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a CPU, where there is no accelerator: the hooks are the same, their moves are not."""
    denoiser, folder = exported(tmp_path)
    pipe, order = opened(folder), []
    own = CpuOffload.pre_forward

    def noted(hook: CpuOffload, module: torch.nn.Module, *inputs: Any, **options: Any) -> Any:
        order.append(type(module).__name__)
        return own(hook, module, *inputs, **options)

    monkeypatch.setattr(CpuOffload, "pre_forward", noted)
    pipe.enable_model_cpu_offload(device="cpu")
    assert pipe.model_cpu_offload_seq.endswith("text_encoder_3->model->heads->vae")
    theirs = pipe.draw(SampleNoise(3, range(2), SHAPE), 3)
    assert order == ["UNet2DModel", "CovarianceHeads"] * 2 + ["UNet2DModel"]  # without noise
    ours = api.sample(denoiser, SHAPE, "ocm", steps=3, count=2, seed=3)
    torch.testing.assert_close(theirs, ours, atol=1e-6, rtol=0)


def test_heads_of_another_model_are_refused_by_name(tmp_path: Path) -> None:
    denoiser, folder = exported(tmp_path)
    api.save_heads(denoiser, tmp_path / "heads.safetensors")
    other = api.wrap(model(CONFIGS["plain"], seed=1), DDPMScheduler())
    with pytest.raises(OcmError, match=r"heads\.safetensors: its heads were trained on"):
        api.load_heads(other, tmp_path / "heads.safetensors")
    file = folder / "model/diffusion_pytorch_model.safetensors"
    save_file({key: value + 0.1 for key, value in load_file(file).items()}, file)
    with pytest.raises(OcmError, match="heads: they were trained on the weights"):
        opened(folder)


def test_damaged_heads_are_refused_where_they_are_opened(tmp_path: Path) -> None:
    denoiser, folder = exported(tmp_path)
    (file,) = (folder / "heads").glob("*.safetensors")
    weights, config = load_file(file), folder / "heads/config.json"
    name = next(key for key in weights if key.endswith("weight"))
    whole = config.read_text()

    def refused(expected: str) -> None:
        with pytest.raises(OcmError, match=expected):
            opened(folder)

    save_file({key: weight for key, weight in weights.items() if key != name}, file)
    refused(f"heads: .*{name}.* missing; export it again")
    save_file(weights | {"by_label.ocm.net.stray": torch.ones(1)}, file)
    refused("heads: by_label.ocm.net.stray unexpected; export it again")
    save_file(weights | {name: weights[name] * torch.nan}, file)
    refused(f"heads: {name} has values that are not finite")
    save_file(weights, file)
    config.write_text(whole.replace('"link": "', '"link": "un'))
    refused("heads.ocm.link: 'un.*' is unknown")
    config.write_text(whole)
    opened(folder)
    saved = tmp_path / "heads.safetensors"
    api.save_heads(denoiser, saved)
    key = next(iter(load_file(saved)))
    with safe_open(saved, "pt") as held:
        metadata = held.metadata()
    save_file(load_file(saved) | {key: load_file(saved)[key] * torch.inf}, saved, metadata)
    with pytest.raises(OcmError, match=f"heads.safetensors: {key} has values that are not finite"):
        api.load_heads(denoiser, saved)


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    (tmp_path / "full/mine").mkdir(parents=True)
    own, trained, new = model(CONFIGS["plain"]), DDPMScheduler(), tmp_path / "new"
    for folder, method, given, message in (
        (tmp_path / "full", "beta", {"scheduler": trained}, "full: there already"),
        (new, "ocm", {"scheduler": trained}, "'ocm' has no head yet"),
        (new, "beta", {}, "needs its `scheduler`"),
    ):
        with pytest.raises(OcmError, match=message):
            api.save_pipeline(api.wrap(own, trained), own, folder, method, **given)
    assert not new.exists()


@pytest.mark.parametrize(("method", "scale"), [("beta_tilde", 2.0), ("iddpm", 1.0)])
def test_guidance_and_a_learned_variance(method: str, scale: float, tmp_path: Path) -> None:
    own, trained = tiny_dit(), DDPMScheduler(**SHORT)
    denoiser, shape, label = api.wrap(own, trained), (4, 8, 8), torch.tensor([0, 3])
    folder = api.save_pipeline(denoiser, own, tmp_path / "dit", method, scheduler=trained)
    draw: Any = {"steps": 4, "count": 2, "seed": 3, "guidance": scale, "labels": label}
    ours = api.sample(denoiser, shape, method, **draw)
    theirs = opened(folder).draw(SampleNoise(3, range(2), shape), 4, scale, label)
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=0)
    if scale == 1.0:  # the scheduler alone, without a head
        theirs = loop(own, api.scheduler(denoiser, trained, method), shape, 4, class_labels=label)
        torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["class_labels", "prompt"])
def test_a_model_of_latents_keeps_its_autoencoder(kind: str, tmp_path: Path) -> None:
    """And its latents, which have no range, are not limited to that of images."""
    shape = (4, 8, 8)
    if kind == "prompt":
        base, asked = write_stable_diffusion(tmp_path / "base"), ["a dog", "a cat"]
        denoiser = api.load(base, prompts=["a cat", "a dog"])
    else:
        base, asked = write_dit(tmp_path / "base"), [1, 0]
        denoiser = api.load(base)
    pipe = opened(api.save_pipeline(denoiser, base, tmp_path / "pipeline", "beta_tilde"))
    assert "`base` as it was" in (tmp_path / "pipeline/README.md").read_text()
    limits = ("clip_x0", "clip_covariance", "levels")
    assert [pipe.scheduler.config[key] for key in limits] == [None, None, None]
    label = pipe.prompt_labels(asked) if kind == "prompt" else torch.tensor(asked)
    theirs = pipe.draw(SampleNoise(0, range(2), shape), 4, label=label)
    given = torch.tensor([1, 0])
    ours = api.sample(denoiser, shape, "beta_tilde", steps=4, count=2, labels=given)
    torch.testing.assert_close(theirs, ours, atol=1e-4, rtol=1e-4)
    assert ours.abs().max() > 1.5
    images = pipe(**{kind: asked}, num_inference_steps=2).images
    assert [(image.size, image.mode) for image in images] == [((16, 16), "RGB")] * 2


def test_latents_of_a_model_in_memory_need_the_autoencoder(tmp_path: Path) -> None:
    own, trained = tiny_dit(), DDPMScheduler()
    denoiser = api.wrap(own, trained, latent=True)
    given: dict[str, Any] = {"method": "beta_tilde", "scheduler": trained}
    with pytest.raises(OcmError, match="a model of latents needs its `vae`"):
        api.save_pipeline(denoiser, own, tmp_path / "dit", **given)
    pipe = opened(api.save_pipeline(denoiser, own, tmp_path / "dit", vae=autoencoder(), **given))
    assert pipe(2, num_inference_steps=2).images[0].size == (16, 16)


def test_a_prompt_gives_our_samples(tmp_path: Path) -> None:
    """With its text encoder and tokenizer in the folder, and a head that was trained with text."""
    base = write_stable_diffusion(tmp_path / "sd")
    denoiser = api.load(base, prompts=["a cat", "a dog"])
    shape, label = (4, 8, 8), torch.tensor([1, 0])
    latents = torch.randn(8, *shape, generator=torch.Generator().manual_seed(0))
    denoiser = api.fit_head(denoiser, latents, labels=torch.arange(8) % 2, **HEADS)
    pipe = opened(api.save_pipeline(denoiser, base, tmp_path / "pipeline"))
    assert 'pipe(prompt="…"' in (tmp_path / "pipeline/README.md").read_text()
    for scale in (1.0, 3.0):
        ours = api.sample(denoiser, shape, "ocm", steps=4, count=2, guidance=scale, labels=label)
        asked = pipe.prompt_labels(["a dog", "a cat"])
        theirs = pipe.draw(SampleNoise(0, range(2), shape), 4, scale, asked)
        torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=0)
    few = {"num_inference_steps": 2, "output_type": "latent"}
    drawn = [
        pipe(prompt=text, generator=torch.Generator().manual_seed(0), **few).images
        for text in ("a cat", "a dog", None)
    ]
    assert not torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    with pytest.raises(OcmError, match="class_labels: not for a UNet2DConditionModel"):
        pipe(class_labels=[1], **few)


@pytest.mark.parametrize("write", [write_sd3, write_pixart, write_sana, write_flux])
def test_transformers_are_told_what_their_own_pipelines_tell_them(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    """By the same scheduler: text, time, guidance with the empty prompt, and packed latents."""
    denoiser = api.load(base := write(tmp_path / "base"), prompts=["a dog", "a cat"])
    pipe = opened(api.save_pipeline(denoiser, base, tmp_path / "pipeline", "beta_tilde"))
    shape, given = (4, 8, 8), torch.tensor([1, 0])
    ours = api.sample(denoiser, shape, "beta_tilde", steps=4, count=2, guidance=2.0, labels=given)
    label = pipe.prompt_labels(["a cat", "a dog"])
    theirs = pipe.draw(SampleNoise(0, range(2), shape), 4, 2.0, label)
    torch.testing.assert_close(theirs, ours, atol=1e-4, rtol=1e-4)
    own = DiffusionPipeline.from_pretrained(base)
    own.set_progress_bar_config(disable=True)
    pipe.scheduler = own.scheduler
    latents = torch.randn(1, *shape, generator=torch.Generator().manual_seed(0))
    few: dict[str, Any] = {"num_inference_steps": 3, "output_type": "latent", "guidance_scale": 2.0}
    found, other = (pipe(prompt=text, latents=latents, **few).images for text in ("a cat", "a dog"))
    assert not torch.allclose(found, other)
    side = 32 if write is write_sana else 16  # it refuses less, and reads no size beside latents
    few |= {"prompt": "a cat", "height": side, "width": side}
    if write is write_flux:
        few |= {"negative_prompt": "", "true_cfg_scale": 2.0, "latents": packed(latents)}
        few |= {"sigmas": pipe.scheduler.sigmas[:-1].tolist()}  # else it takes others
        expected = unpacked(own(**few).images, 4)
    else:
        few |= {} if write is write_sd3 else {"use_resolution_binning": False}
        expected = own(**few, latents=latents).images
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    if write is write_flux:
        with pytest.raises(OcmError, match="latents: a FluxTransformer2DModel takes any size"):
            pipe(prompt="a cat")


def test_an_evaluation_has_the_bound_and_the_distances() -> None:
    denoiser = api.wrap(model(CONFIGS["plain"]), DDPMScheduler(num_train_timesteps=50))
    found = api.evaluate(denoiser, images(6), "beta_tilde", steps=3)
    assert found.bits_per_dim is not None and found.bits_per_dim > 0
    assert found.frechet_distance > 0
    assert 0 <= found.precision <= 1 and 0 <= found.recall <= 1
    assert api.evaluate(denoiser, images(6), "delta", steps=3, sampler="ddim").bits_per_dim is None


def loop(network: Any, scheduler: Any, shape: tuple[int, ...], steps: int, **given: Any) -> Tensor:
    """The loop of diffusers' documentation, with the noise of our streams."""
    noise = SampleNoise(3, range(2), shape)
    scheduler.set_timesteps(steps)
    x = noise.normal() * scheduler.init_noise_sigma
    for t in scheduler.timesteps:
        with torch.no_grad():
            output = network(scheduler.scale_model_input(x, t), t.expand(2), **given).sample
        last = t == scheduler.timesteps[-1]
        drawn = None if last else noise.normal()
        x = scheduler.step(output, t, x, variance_noise=drawn).prev_sample
    return x


def wrapped(name: str = "plain", **changes: Any) -> tuple[Any, Any, Denoiser]:
    own, kind = model(CONFIGS[name]), changes.pop("kind", None)
    base = kind(**changes) if kind else DDPMScheduler(**{**SHORT, **changes})
    return own, base, api.wrap(own, base)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize(("sampler", "method"), [("ddpm", "beta_tilde"), ("ddim", "delta")])
def test_samples_of_fixed_variances(sampler: str, method: str, order: Any) -> None:
    own, base, denoiser = wrapped()
    how: Any = {"sampler": sampler, "order": order}
    theirs = loop(own, api.scheduler(denoiser, base, method, **how), SHAPE, 5)
    ours = api.sample(denoiser, SHAPE, method, steps=5, count=2, seed=3, **how)
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("name", "changes", "how"),
    [
        ("plain", {}, {"sampler": "ddim", "order": 2}),
        ("plain", {}, {"timesteps": (3, 10, 30, 40)}),
        ("attention", {"prediction_type": "v_prediction", "rescale_betas_zero_snr": True}, {}),
        ("classes", {"prediction_type": "sample"}, {"preset": "diverse"}),
        ("plain", {"kind": FlowMatchEulerDiscreteScheduler, "shift": 3.0}, {}),
        ("plain", {"kind": EDMEulerScheduler, "sigma_max": 20.0}, {}),
    ],
)
def test_samples_with_a_head(name: str, changes: dict[str, Any], how: Any) -> None:
    """It reads the features of the model's own forward pass."""
    own, base, denoiser = wrapped(name, **changes)
    labels = torch.arange(8) % 5 if name == "classes" else None
    denoiser = api.fit_head(denoiser, images(), labels=labels, **HEADS)
    label = torch.tensor([1, 4]) if name == "classes" else None
    given = {} if label is None else {"class_labels": label}
    scheduler = api.scheduler(denoiser, base, "ocm", model=own, steps=4, **how)
    theirs = loop(own, scheduler, SHAPE, 4, **given)
    draw: Any = {"count": 2, "seed": 3, "labels": label, "steps": 4, **how}
    ours = api.sample(denoiser, SHAPE, "ocm", **draw)
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=0)
    if how.get("sampler") == "ddim":  # the head has its say
        assert not torch.allclose(theirs, api.sample(denoiser, SHAPE, "delta", **draw), atol=1e-3)


def test_a_pipeline_of_diffusers_takes_it() -> None:
    own, base, denoiser = wrapped()
    pipe = DDPMPipeline(own, base)
    pipe.set_progress_bar_config(disable=True)
    denoiser = api.fit_head(denoiser, images(), **HEADS)
    pipe.scheduler = api.scheduler(denoiser, base, "ocm", model=pipe.unet)
    draw: Any = {"num_inference_steps": 5, "output_type": "np"}
    once, again, other = (
        pipe(2, torch.Generator().manual_seed(seed), **draw).images for seed in (7, 7, 8)
    )
    assert once.shape == (2, 8, 8, 3)
    assert (once == again).all() and not (once == other).all()


def test_a_scheduler_survives_its_configuration(tmp_path: Any) -> None:
    own, base, denoiser = wrapped()
    scheduler = api.scheduler(denoiser, base, "delta", sampler="ddim", order=2)
    scheduler.save_pretrained(tmp_path)
    opened = CovarianceScheduler.from_pretrained(tmp_path)
    assert torch.equal(loop(own, opened, SHAPE, 5), loop(own, scheduler, SHAPE, 5))
    assert len(opened) == SHORT["num_train_timesteps"]
    noise = torch.randn(2, *SHAPE)
    x0, at = torch.zeros(2, *SHAPE), torch.tensor([0, 39])
    torch.testing.assert_close(opened.add_noise(x0, noise, at), base.add_noise(x0, noise, at))


def test_what_a_step_cannot_do_is_refused() -> None:
    own, base, denoiser = wrapped()
    x, t = torch.zeros(2, *SHAPE), torch.tensor(39)
    with pytest.raises(OcmError, match="call set_timesteps first"):
        api.scheduler(denoiser, base, "beta").step(x, t, x)
    with pytest.raises(OcmError, match="'ocm' has no head yet"):
        api.scheduler(denoiser, base, "ocm")
    scheduler = api.scheduler(denoiser, base, "rademacher")
    scheduler.set_timesteps(4)
    with pytest.raises(OcmError, match="evaluates the network itself"):
        scheduler.step(x, t, x)
    headed = api.fit_head(denoiser, images(), **HEADS)
    with pytest.raises(OcmError, match="needs the pipeline's `model`"):
        api.scheduler(headed, base, "ocm")
    scheduler = api.scheduler(headed, base, "ocm", model=own)
    scheduler.set_timesteps(4)
    own(torch.cat([x, x]), t)  # as guidance has it
    with pytest.raises(OcmError, match="features of 2 images, and the model has just evaluated 4"):
        scheduler.step(x, t, x)
    scheduler = api.scheduler(denoiser, base, "beta", timesteps=(3, 10, 40))
    with pytest.raises(OcmError, match="num_inference_steps = 4: this scheduler has"):
        scheduler.set_timesteps(4)


PATHS: dict[str, Any] = {
    "betas": {"num_train_timesteps": 1000, "beta_end": 0.02},
    "flow": {"kind": FlowMatchEulerDiscreteScheduler, "shift": 3.0},
    "edm": {"kind": EDMEulerScheduler, "sigma_max": 20.0},
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["beta_tilde", "exact_full"])
def test_the_log_probability_is_that_of_the_gaussian_that_was_drawn(path: str, method: str) -> None:
    """From its noise: x = μ + √Σ z, on the path α x_0 + σ ε, so that log p needs z and det Σ."""
    own, base, _ = wrapped(**PATHS[path])
    denoiser = api.wrap(own, base, latent=True)  # where x̂_0 is clamped there is no gradient
    scheduler, noise = api.scheduler(denoiser, base, "beta_tilde"), SampleNoise(3, range(2), SHAPE)
    scheduler.set_timesteps(4)
    x, z = noise.normal(), noise.normal()
    t, s = (int(t) for t in scheduler.recipe(4).timesteps[:1:-1])
    at = scheduler.timesteps[0]
    with torch.no_grad():
        output = own(scheduler.scale_model_input(x, at), at.expand(2)).sample
    if method == "exact_full":  # a structured covariance, in the place of the method's
        normal = torch.randn(192, 192, generator=torch.Generator().manual_seed(0))
        root = 0.3 * torch.eye(192) + 0.01 * normal
        covariance = full((root @ root.T).expand(2, 192, 192))
        scheduler._stepper.gaussian = lambda *_: StepGaussian(x, covariance, s)
        log_det, mean = float(torch.logdet(root.double() @ root.double().T)), x
        moved = covariance.scale(z)
    else:
        schedule = scheduler.schedule
        log_det, moved = 192 * log(schedule.beta_tilde(s, t)), None
    drawn = scheduler.step(output, at, x, variance_noise=z, return_log_prob=True)
    scale = 1.0
    if path == "flow":
        noise_share = 3 * (s / 1000) / (1 + 2 * (s / 1000))
        scale = ((1 - noise_share) ** 2 + noise_share**2) ** 0.5
    if moved is not None:
        torch.testing.assert_close(drawn.prev_sample / scale, mean + moved)
    expected = -0.5 * (z.square().flatten(1).sum(1) + log_det + 192 * log(2 * pi))
    expected = expected - 192 * log(scale)
    torch.testing.assert_close(drawn.log_prob, expected, atol=0.02, rtol=1e-4)
    if moved is None:  # weighed again, with a gradient, as reinforcement learning has it
        output.requires_grad_(True)
        again = scheduler.step(output, at, x, return_log_prob=True, prev_sample=drawn.prev_sample)
        torch.testing.assert_close(again.log_prob, drawn.log_prob, atol=0.02, rtol=1e-4)
        (slope,) = torch.autograd.grad(again.log_prob.sum(), output)
        assert slope.isfinite().all() and slope.abs().max() > 0


@pytest.mark.parametrize("path", ["flow", "edm"])
def test_without_a_covariance_a_step_is_diffusers_own(path: str) -> None:
    own, base, _ = wrapped(**PATHS[path], num_train_timesteps=9 + (path == "flow"))
    denoiser = api.wrap(own, base, latent=True)  # not clamped
    scheduler = api.scheduler(denoiser, base, "delta", sampler="ddim", timesteps=(1, 3, 5, 7, 9))
    scheduler.set_timesteps(5)
    if path == "flow":
        base.set_timesteps(sigmas=[0.9, 0.7, 0.5, 0.3, 0.1])
    else:
        base.set_timesteps(5)
    torch.testing.assert_close(scheduler.timesteps, base.timesteps)
    x = torch.randn(2, *SHAPE)
    for number, t in enumerate(base.timesteps):
        output = torch.randn(2, *SHAPE)
        theirs = base.step(output, t, x).prev_sample
        here, there = (
            (1.0, 1.0)
            if path == "flow"
            else ((float(base.sigmas[k]) ** 2 + 1) ** 0.5 for k in (number, number + 1))
        )
        ours = scheduler.step(output, t, x / here, return_log_prob=True)
        assert ours.log_prob is None  # no Gaussian
        torch.testing.assert_close(ours.prev_sample * there, theirs, atol=1e-4, rtol=1e-4)
        x = theirs


@pytest.mark.parametrize("path", PATHS)
def test_another_scheduler_can_be_put_back(path: str, tmp_path: Path) -> None:
    """In a loop of one's own, the same model and noise: and it survives saving, too."""
    _, folder = exported(tmp_path, **PATHS[path])
    pipe, config = opened(folder), CONFIGS["plain"]
    kind: Any = EDMEulerScheduler if path == "edm" else UniPCMultistepScheduler
    ours = pipe(2, generator=torch.Generator().manual_seed(0), output_type="latent").images
    pipe.scheduler = kind.from_config(pipe.scheduler.config)
    draw: Any = {"num_inference_steps": 5, "output_type": "latent"}
    drawn = pipe(2, generator=torch.Generator().manual_seed(0), **draw).images
    scheduler = kind.from_config(pipe.scheduler.config)
    scheduler.set_timesteps(5)
    x, own = torch.randn(2, *SHAPE, generator=torch.Generator().manual_seed(0)), model(config)
    x = x * scheduler.init_noise_sigma
    with torch.no_grad():
        for t in scheduler.timesteps:
            said = own(scheduler.scale_model_input(x, t), t.expand(2)).sample
            x = scheduler.step(said, t, x).prev_sample
    torch.testing.assert_close(drawn, x)
    pipe.save_pretrained(tmp_path / "again")
    (tmp_path / "again/pipeline.py").write_text((folder / "pipeline.py").read_text())
    again = opened(tmp_path / "again")
    assert type(again.scheduler) is kind and not torch.equal(ours, drawn)
    torch.testing.assert_close(again(2, latents=x, **draw).images.shape, x.shape)
    if path == "edm":  # whose solvers know the preconditioning
        pipe.scheduler = UniPCMultistepScheduler.from_config(pipe.scheduler.config)
        with pytest.raises(OcmError, match=r"UniPC.* EDM's preconditioning; expected EDMEulerSch"):
            pipe(2, **draw)
