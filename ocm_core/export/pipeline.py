"""A model of diffusers with covariance heads, called like any other pipeline, and its folder."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from diffusers.image_processor import VaeImageProcessor
from diffusers.pipelines.pipeline_utils import DiffusionPipeline, ImagePipelineOutput
from torch import Tensor, nn

from ocm_core.checkpoints.diffusers_folder import FORMS
from ocm_core.checkpoints.diffusers_models import TextEncoder, trained_with
from ocm_core.checkpoints.head_file import weights_digest
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.errors import OcmError
from ocm_core.export.heads import AttachedHead, CovarianceHeads, HookedModel
from ocm_core.export.scheduler import CovarianceScheduler, GeneratorNoise, Generators
from ocm_core.io.atomic import room_for
from ocm_core.networks.converted import Converted
from ocm_core.networks.diffusers import Prompts
from ocm_core.sampling.recipe import Changer
from ocm_core.shapes import Batch, Labels

CODE = '''"""Opened by DiffusionPipeline.from_pretrained(FOLDER, custom_pipeline=FOLDER)."""

from ocm_core.export import pipeline


class Pipeline(pipeline.CovariancePipeline):
    """Sampling with the covariance heads beside the model."""
'''


CARD = """---
license: {licence}
library_name: diffusers
tags: [diffusion, covariance]
---
# {title}

The model `{base}` as it was, and covariance heads (`{method}`) trained on it with {trained_on}.
Licence of the base model: {licence}.

```python
from diffusers import DiffusionPipeline

folder = "."  # this folder; the package ocm-core must be installed
pipe = DiffusionPipeline.from_pretrained(
    folder, custom_pipeline=folder, trust_remote_code=True
)
images = pipe({call}, num_inference_steps={steps}).images
```
{numbers}"""

TEXT_PARTS = [f"{kind}{n}" for n in ("", "_2", "_3") for kind in ("text_encoder", "tokenizer")]
OFFLOADED = "text_encoder->text_encoder_2->text_encoder_3->model->heads->vae"
ClassLabels = Sequence[int] | Tensor | None
Prompt = str | Sequence[str] | None
StepEnd = Callable[[DiffusionPipeline, int, int, dict[str, Any]], dict[str, Any]]


class CovariancePipeline(DiffusionPipeline):
    """`model` and `scheduler` as in other pipelines; `heads` were trained on `model`."""

    model_cpu_offload_seq = OFFLOADED  # type: ignore[assignment]
    _optional_components = ["vae", "heads", *TEXT_PARTS]
    _callback_tensor_inputs = ["latents"]

    def __init__(
        self,
        model: Any,
        scheduler: CovarianceScheduler,
        heads: CovarianceHeads | None = None,
        vae: Any = None,
        text_encoder: Any = None,
        tokenizer: Any = None,
        text_encoder_2: Any = None,
        tokenizer_2: Any = None,
        text_encoder_3: Any = None,
        tokenizer_3: Any = None,
        prompted_as: str = "StableDiffusionPipeline",  # the one that encodes prompts
    ) -> None:
        super().__init__()
        texts = text_encoder, tokenizer, text_encoder_2, tokenizer_2, text_encoder_3, tokenizer_3
        parts = dict(zip(TEXT_PARTS, texts, strict=True))
        parts |= {"model": model, "scheduler": scheduler, "heads": heads, "vae": vae}
        self.register_modules(**parts)  # type: ignore[no-untyped-call]
        self.register_to_config(prompted_as=prompted_as)  # type: ignore[no-untyped-call]
        self.network = HookedModel(model, getattr(scheduler.config, "null_class", None))
        if heads is None:
            return
        expected, found = heads.config["model"], weights_digest(self.network.adapter)
        if expected != found:
            weights = f"the weights {expected[:16]}…, and model/ has {found[:16]}…"
            raise OcmError(f"heads: they were trained on {weights}; open the folder as exported")

    @torch.no_grad()
    def __call__(
        self,
        batch_size: int = 1,
        num_inference_steps: int = 10,
        generator: Generators = None,
        guidance_scale: float = 1.0,
        class_labels: ClassLabels = None,
        prompt: Prompt = None,
        latents: Tensor | None = None,
        output_type: str = "pil",
        return_dict: bool = True,
        callback_on_step_end: StepEnd | None = None,
        callback_on_step_end_tensor_inputs: Sequence[str] = ("latents",),
    ) -> ImagePipelineOutput | tuple[Any]:
        """Return images, as many as there are `class_labels` or prompts, or else `batch_size`."""
        if set(callback_on_step_end_tensor_inputs) - set(self._callback_tensor_inputs):
            raise OcmError("callback_on_step_end_tensor_inputs: there is 'latents' only")
        device = self._execution_device
        label = self._labels(class_labels, prompt, batch_size)
        count = batch_size if label is None else len(label)
        self.scheduler.set_timesteps(num_inference_steps, device)
        noise = GeneratorNoise(self._shape(count, latents), generator, device, latents)
        with self.progress_bar(total=num_inference_steps) as bar:

            def step_end(number: int, _: object, x: Batch) -> Batch:
                bar.update()
                if callback_on_step_end is None:
                    return x
                t = self.scheduler.timesteps[number].item()
                changed = callback_on_step_end(self, number, t, {"latents": x})
                return cast(Tensor, changed.pop("latents", x))

            if isinstance(self.scheduler, CovarianceScheduler):
                x = self.draw(noise, num_inference_steps, guidance_scale, label, step_end)
            else:
                x = self.draw_without_heads(noise, guidance_scale, label, step_end)
        images: Any = x if output_type == "latent" else self._images(x, output_type)
        self.maybe_free_model_hooks()  # type: ignore[no-untyped-call]
        return ImagePipelineOutput(images=images) if return_dict else (images,)

    def _shape(self, count: int, latents: Tensor | None) -> tuple[int, ...]:
        if latents is not None:
            return (count, *latents.shape[1:])
        if (size := self.model.config.get("sample_size")) is None:
            found = f"a {type(self.model).__name__} takes any size"
            raise OcmError(f"latents: {found}; give some, of the shape (images, channels, h, w)")
        sides = (size, size) if isinstance(size, int) else size
        return (count, self.network.adapter.in_channels, *sides)

    def _labels(self, class_labels: ClassLabels, prompt: Prompt, count: int) -> Tensor | None:
        takes_text = self.network.takes_text
        if takes_text and class_labels is None:
            one = prompt is None or isinstance(prompt, str)
            return self.prompt_labels([str(prompt or "")] * count if one else list(prompt or ()))
        if takes_text or prompt is not None:
            given = "class_labels" if takes_text else "prompt"
            raise OcmError(f"{given}: not for a {type(self.model).__name__}; leave it out")
        device = self._execution_device
        return None if class_labels is None else torch.as_tensor(class_labels, device=device)

    def prompt_labels(self, prompts: Sequence[str]) -> Tensor:
        """Return the labels of prompts, which the network reads from here on."""
        different = list(dict.fromkeys(prompts))
        parts = {name: getattr(self, name) for name in TEXT_PARTS}
        known = {name: part for name, part in parts.items() if part is not None}
        encoder = TextEncoder.of(FORMS[self.config["prompted_as"]], self.model.config, known)
        self.network.adapter.prompts = Prompts(encoder([*different, ""]))
        self.network.adapter.null_label = self.network.null_label = len(different)
        numbers = [different.index(text) for text in prompts]
        return torch.tensor(numbers, device=self._execution_device)

    def draw(
        self, noise: Any, steps: int, scale: float = 1.0, label: Labels = None, change: Any = None
    ) -> Batch:
        """Draw samples as the model has them, from any source of noise, at a guidance scale."""
        scheduler: CovarianceScheduler = self.scheduler
        recipe, bare = scheduler.recipe(steps, scale), trained_with(self.network, scheduler.config)
        if isinstance(bare.network, Converted):  # the model is where offloading has it
            bare.network.conversion.to(self._execution_device)
        labels = [] if self.heads is None else self.heads.by_label
        heads = {label: cast(nn.Module, AttachedHead(self.heads, label)) for label in labels}
        spectra = {} if self.heads is None else self.heads.spectra(self._execution_device)
        return recipe.draw(
            replace(bare, heads=heads, spectra=spectra), noise, label, change=change
        ).x

    def draw_without_heads(
        self, noise: GeneratorNoise, scale: float, label: Labels, change: Changer
    ) -> Batch:
        """Draw samples by another scheduler of diffusers, whose timesteps are set."""
        scheduler, given = self.scheduler, dict[str, Any]()
        if scheduler.config.get("sigma_data") and not hasattr(scheduler, "precondition_inputs"):
            found = f"{type(scheduler).__name__} does not know EDM's preconditioning"
            expected = "EDMEulerScheduler or EDMDPMSolverMultistepScheduler"
            raise OcmError(f"scheduler: {found}; expected {expected}")
        if "generator" in signature(scheduler.step).parameters:
            given = {"generator": noise.generator}
        x = noise.normal() * getattr(scheduler, "init_noise_sigma", 1.0)
        for number, t in enumerate(scheduler.timesteps):
            scales = hasattr(scheduler, "scale_model_input")  # one of a flow does not
            entering = scheduler.scale_model_input(x, t) if scales else x
            time = t.to(x.device).expand(len(x))
            output = self.network.evaluate(entering, time, label)[1]
            if scale != 1.0:
                blank = self.network.evaluate(entering, time, None)[1]
                output = blank + scale * (output - blank)
            predicted = output[:, : x.shape[1]]  # without a learned variance
            x = change(number, number, scheduler.step(predicted, t, x, **given).prev_sample)
        return x

    def _images(self, x: Batch, output_type: str) -> Any:
        if self.vae is not None:
            scale, shift = (self.vae.config.get(f"{key}_factor") for key in ("scaling", "shift"))
            scaled = x / scale + (shift or 0)
            x = self.vae.decode(scaled.to(self.vae.dtype), return_dict=False)[0].float()
        return VaeImageProcessor(vae_scale_factor=1).postprocess(x, output_type)


@dataclass(frozen=True)
class Card:
    """The contents of a model card."""

    title: str
    base: str
    licence: str | None
    trained_on: str
    method: str
    steps: int = 10
    choice: str = ""  # how the way to sample was chosen
    numbers: Mapping[str, float] = field(default_factory=dict)

    def text(self, call: str) -> str:
        """Return the card as Markdown with its header; `call` is what its example asks for."""
        rows = [f"| {name} | {value:.4g} |\n" for name, value in self.numbers.items()]
        table = ["\n| measure | value |\n| --- | --- |\n", *rows] if rows else []
        numbers = "".join([f"\n{self.choice}\n" if self.choice else "", *table])
        given = {"licence": self.licence or "unknown", "numbers": numbers, "call": call}
        return CARD.format(**(vars(self) | given))


def save_pipeline(
    folder: str | Path,
    model: Any,
    scheduler: CovarianceScheduler,
    denoiser: Denoiser,
    card: Card,
    vae: Any = None,
    text: TextEncoder | None = None,
) -> Path:
    """Write a new folder with the heads and spectra of a denoiser; it appears when complete."""
    target = Path(folder)
    if target.exists() and any(target.iterdir() if target.is_dir() else [target]):
        raise OcmError(f"{target}: there already; name a new folder, or remove it first")
    fitted = denoiser.heads or denoiser.spectra
    component = CovarianceHeads.of(model, denoiser) if fitted else None
    words = {} if text is None else {**text.parts, "prompted_as": text.form.pipeline}
    pipeline = CovariancePipeline(model, scheduler, component, vae, **words)
    target.parent.mkdir(parents=True, exist_ok=True)
    needed = sum(tensor.nbytes for tensor in model.state_dict().values())
    with room_for(target, needed), TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / "pipeline"
        pipeline.save_pretrained(made, safe_serialization=True)
        (made / "pipeline.py").write_text(CODE)
        (made / "README.md").write_text(card.text('prompt="…"' if text else "batch_size=4"))
        for file in made.rglob("*.safetensors"):  # which only their owner can read otherwise
            file.chmod((made / "README.md").stat().st_mode)
        if target.exists():
            target.rmdir()
        shutil.move(made, target)
    return target
