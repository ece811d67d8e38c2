"""`CovariancePipeline`: a model of diffusers with covariance heads, called like any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from diffusers.image_processor import VaeImageProcessor
from diffusers.pipelines.pipeline_utils import DiffusionPipeline, ImagePipelineOutput
from torch import Tensor, nn

from ocm_core.checkpoints.diffusers_models import TIME, TextEncoder
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.errors import OcmError
from ocm_core.export.heads import CovarianceHeads
from ocm_core.export.hooked import HookedModel
from ocm_core.export.scheduler import CovarianceScheduler, GeneratorNoise, Generators
from ocm_core.networks.converted import denoiser_of
from ocm_core.shapes import Batch

StepEnd = Callable[[DiffusionPipeline, int, int, dict[str, Any]], dict[str, Any]]


class CovariancePipeline(DiffusionPipeline):
    """`model` and `scheduler` as in other pipelines; `heads` were trained on `model`."""

    model_cpu_offload_seq = "text_encoder->model->heads->vae"  # type: ignore[assignment]
    _optional_components = ["vae", "heads", "text_encoder", "tokenizer"]
    _callback_tensor_inputs = ["latents"]

    def __init__(
        self,
        model: Any,
        scheduler: CovarianceScheduler,
        heads: CovarianceHeads | None = None,
        vae: Any = None,
        text_encoder: Any = None,
        tokenizer: Any = None,
    ) -> None:
        super().__init__()
        parts = {"model": model, "scheduler": scheduler, "heads": heads, "vae": vae}
        text = {"text_encoder": text_encoder, "tokenizer": tokenizer}
        self.register_modules(**parts, **text)  # type: ignore[no-untyped-call]
        self.network = HookedModel(model, scheduler.config["null_class"])
        if heads is not None:
            heads.check(self.network.adapter)

    @torch.no_grad()
    def __call__(
        self,
        batch_size: int = 1,
        num_inference_steps: int = 10,
        generator: Generators = None,
        guidance_scale: float = 1.0,
        class_labels: Sequence[int] | Tensor | None = None,
        prompt: str | Sequence[str] | None = None,
        latents: Tensor | None = None,
        output_type: str = "pil",
        return_dict: bool = True,
        callback_on_step_end: StepEnd | None = None,
        callback_on_step_end_tensor_inputs: Sequence[str] = ("latents",),
    ) -> ImagePipelineOutput | tuple[Any]:
        """Return images, as many as there are `class_labels` or prompts, or else `batch_size`.

        A guidance scale of 1 is no guidance.
        """
        if unknown := set(callback_on_step_end_tensor_inputs) - set(self._callback_tensor_inputs):
            raise OcmError(
                f"callback_on_step_end_tensor_inputs: {unknown}; there is 'latents' only"
            )
        device = self._execution_device
        label = self._labels(class_labels, prompt, batch_size)
        count = batch_size if label is None else len(label)
        self.scheduler.set_timesteps(num_inference_steps, device)
        noise = GeneratorNoise((count, *self._shape), generator, device, latents)
        with self.progress_bar(total=num_inference_steps) as bar:

            def step_end(number: int, t: int, x: Batch) -> Batch:
                bar.update()
                if callback_on_step_end is None:
                    return x
                changed = callback_on_step_end(self, number, t - 1, {"latents": x})
                return cast(Tensor, changed.pop("latents", x))

            x = self.draw(noise, num_inference_steps, guidance_scale, label, step_end)
        images = self._images(x, output_type)
        self.maybe_free_model_hooks()  # type: ignore[no-untyped-call]
        return ImagePipelineOutput(images=images) if return_dict else (images,)

    def _labels(
        self,
        class_labels: Sequence[int] | Tensor | None,
        prompt: str | Sequence[str] | None,
        count: int,
    ) -> Tensor | None:
        if self.network.takes_text and class_labels is None:
            return self.prompt_labels(_each(prompt, count))
        if self.network.takes_text or prompt is not None:
            given = "class_labels" if self.network.takes_text else "prompt"
            raise OcmError(f"{given}: not for a {self.network.kind}; leave it out")
        device = self._execution_device
        return None if class_labels is None else torch.as_tensor(class_labels, device=device)

    def prompt_labels(self, prompts: Sequence[str]) -> Tensor:
        """Return the labels of prompts, which the network reads from here on."""
        different = list(dict.fromkeys(prompts))
        encoder = TextEncoder(self.text_encoder, self.tokenizer)
        self.network.use_prompts(encoder([*different, ""]))
        numbers = [different.index(text) for text in prompts]
        return torch.tensor(numbers, device=self._execution_device)

    def draw(
        self,
        noise: Any,
        steps: int,
        guidance: float = 1.0,
        label: Tensor | None = None,
        change: Any = None,
    ) -> Batch:
        """Draw samples as the model has them, from any source of noise."""
        recipe = self.scheduler.recipe(steps, guidance)
        drawn: Batch = recipe.draw(self.denoiser, noise, label, change=change).x
        return drawn

    @property
    def denoiser(self) -> Denoiser:
        """Return the model with its heads as a denoiser."""
        scheduler: CovarianceScheduler = self.scheduler
        prediction = scheduler.config["prediction_type"]
        bare = denoiser_of(self.network, scheduler.schedule, TIME, prediction)
        for table in bare.network.buffers(recurse=False):  # the model is where offloading has it
            table.data = table.data.to(self._execution_device)
        heads = {} if self.heads is None else self.heads.attached()
        return Denoiser(bare.network, bare.schedule, bare.time, cast(dict[str, nn.Module], heads))

    @property
    def _shape(self) -> tuple[int, int, int]:
        config = self.model.config
        size = config["sample_size"]
        height, width = (size, size) if isinstance(size, int) else size
        return config["in_channels"], height, width

    def _images(self, x: Batch, output_type: str) -> Any:
        if output_type == "latent":
            return x
        if self.vae is not None:
            scaled = x / self.vae.config["scaling_factor"] + (self.vae.config["shift_factor"] or 0)
            x = self.vae.decode(scaled.to(self.vae.dtype), return_dict=False)[0].float()
        return VaeImageProcessor(vae_scale_factor=1).postprocess(x, output_type)


def _each(prompt: str | Sequence[str] | None, count: int) -> Sequence[str]:
    return [prompt or ""] * count if prompt is None or isinstance(prompt, str) else prompt
