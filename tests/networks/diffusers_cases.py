"""Small diffusers models of many kinds, with random weights, and what they themselves compute."""

from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ocm_core.checkpoints.diffusers_folder import TEXTS
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.networks.diffusers import Prompts, wrapped
from ocm_core.networks.keys import load_published

from .golden import Golden

from diffusers import (  # isort: skip
    DiTTransformer2DModel,
    FluxPipeline,
    FluxTransformer2DModel,
    PixArtTransformer2DModel,
    SanaTransformer2DModel,
    SD3Transformer2DModel,
    UNet2DConditionModel,
    UNet2DModel,
)

Model = TypeVar("Model", bound=nn.Module)
CLASSES = 5
PLAIN = {
    **{"sample_size": 8, "in_channels": 3, "out_channels": 3, "add_attention": False},
    **{"block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4},
    "down_block_types": ("DownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "UpBlock2D"),
}
ATTENDING = PLAIN | {
    **{"attention_head_dim": 4, "add_attention": True},
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
}
CONFIGS: dict[str, dict[str, Any]] = {
    "plain": PLAIN,
    "attention": ATTENDING,
    "scale_shift": ATTENDING | {"resnet_time_scale_shift": "scale_shift", "attention_head_dim": 8},
    "learned_variance": ATTENDING | {"in_channels": 1, "out_channels": 2, "norm_num_groups": 2},
    "classes": ATTENDING | {"num_class_embeds": CLASSES, "time_embedding_dim": 20},
    "learned_time": PLAIN | {"time_embedding_type": "learned", "num_train_timesteps": 1000},
    "no_middle": PLAIN | {"mid_block_type": None, "layers_per_block": 2},
    # as google/ddpm-cifar10-32 has it, and an input that is not centred
    "first_published": ATTENDING
    | {"center_input_sample": True, "flip_sin_to_cos": False, "freq_shift": 1}
    | {"downsample_padding": 0, "norm_eps": 1e-6, "mid_block_scale_factor": 2.0},
    "resnet_resampling": PLAIN
    | {"downsample_type": "resnet", "upsample_type": "resnet", "act_fn": "gelu", "dropout": 0.2},
}
LATENTS = {"in_channels": 4, "sample_size": 8}
ATTENTION = {"num_attention_heads": 2, "attention_head_dim": 4, "num_layers": 2}
DIT = ATTENTION | LATENTS | {"out_channels": 8, "patch_size": 2, "num_embeds_ada_norm": CLASSES}
TEXT = {
    **{"sample_size": 8, "block_out_channels": (8, 8), "layers_per_block": 1},
    **{"norm_num_groups": 4, "cross_attention_dim": 8, "attention_head_dim": 4},
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
}
SD3 = ATTENTION | LATENTS
SD3 |= {"out_channels": 4, "patch_size": 2, "pos_embed_max_size": 8, "joint_attention_dim": 8}
SD3 |= {"caption_projection_dim": 8, "pooled_projection_dim": 8, "qk_norm": "rms_norm"}
SD3 |= {"dual_attention_layers": (0,)}
CROSS = {"cross_attention_dim": 8, "caption_channels": 8}
PIXART = ATTENTION | LATENTS | CROSS | {"out_channels": 8, "norm_num_groups": 1}
SIZED = {"attention_head_dim": 6, "cross_attention_dim": 12, "use_additional_conditions": True}
SANA = ATTENTION | LATENTS | CROSS | {"out_channels": 4, "timestep_scale": 0.5}
SANA |= {"num_cross_attention_heads": 2, "cross_attention_head_dim": 4}
FLUX = ATTENTION | {"in_channels": 16, "attention_head_dim": 16, "num_single_layers": 1}
FLUX |= {"joint_attention_dim": 8, "pooled_projection_dim": 8, "axes_dims_rope": (4, 4, 8)}
CASES = {name: (UNet2DModel, config) for name, config in CONFIGS.items()} | {
    "dit": (DiTTransformer2DModel, DIT),
    "dit_fixed_variance": (DiTTransformer2DModel, DIT | {"out_channels": 4}),
    "text": (UNet2DConditionModel, TEXT),
    "sd3": (SD3Transformer2DModel, SD3),
    "pixart": (PixArtTransformer2DModel, PIXART),
    "pixart_1024": (PixArtTransformer2DModel, PIXART | SIZED),
    "sana": (SanaTransformer2DModel, SANA),
    "flux": (FluxTransformer2DModel, FLUX),
}
TRANSFORMERS = ("sd3", "pixart", "pixart_1024", "sana", "flux")
DRAW = torch.Generator().manual_seed(4)
PROMPTS = {
    "encoder_hidden_states": torch.randn(CLASSES + 1, 3, 8, generator=DRAW),
    "pooled_projections": torch.randn(CLASSES + 1, 8, generator=DRAW),
    "encoder_attention_mask": (torch.arange(3) < torch.tensor([[1, 2, 3] * 2]).T).float(),
}


def prompts_of(model: nn.Module) -> dict[str, Tensor]:
    """The arrays that the model's own pipeline would have."""
    (form, *_) = TEXTS[type(model).__name__]
    return {name: PROMPTS[name] for name in ("encoder_hidden_states", form.second) if name}


def drawn(kind: type[Model], config: dict[str, Any], seed: int = 0) -> Model:
    """Every parameter drawn anew: norms that are not the identity tell one layer from another."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = kind(**config)
        with torch.no_grad():
            for parameter in made.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
    return made.eval()


def model(config: dict[str, Any], seed: int = 0) -> UNet2DModel:
    return drawn(UNet2DModel, config, seed)


def tiny_dit(seed: int = 0, **changes: int) -> DiTTransformer2DModel:
    return drawn(DiTTransformer2DModel, DIT | changes, seed)


def adapted(model: nn.Module) -> ScoreNetwork:
    network = wrapped(model)
    if type(model).__name__ in TEXTS:
        network.prompts, network.null_label = Prompts(prompts_of(model)), CLASSES
    return network.eval()


def output_of(model: nn.Module, x: Tensor, time: Tensor, label: Tensor | None) -> Tensor:
    """The model's own forward pass."""
    if isinstance(model, DiTTransformer2DModel):
        return model(x, timestep=time, class_labels=label).sample
    if type(model).__name__ in TEXTS:
        texts = {name: array[label].to(x.dtype) for name, array in prompts_of(model).items()}
        return transformed(model, x, time, texts)
    learned = model.config["time_embedding_type"] == "learned"
    return model(x, time.long() if learned else time, label).sample


def transformed(model: nn.Module, x: Tensor, time: Tensor, texts: dict[str, Tensor]) -> Tensor:
    """As the loops of diffusers' pipelines do."""
    if isinstance(model, FluxTransformer2DModel):
        (count, channels, *sides), packs = x.shape, FluxPipeline._pack_latents
        where = FluxPipeline._prepare_latent_image_ids(
            count, *(n // 2 for n in sides), "cpu", x.dtype
        )
        texts |= {"img_ids": where, "txt_ids": torch.zeros(3, 3)}
        output = model(packs(x, count, channels, *sides), timestep=time / 1000, **texts).sample
        return FluxPipeline._unpack_latents(output, *(8 * n for n in sides), 8)
    if isinstance(model, SanaTransformer2DModel):
        time = time * model.config["timestep_scale"]
    if isinstance(model, PixArtTransformer2DModel):
        sizes: dict[str, Any] = {"resolution": None, "aspect_ratio": None}
        if model.config["use_additional_conditions"]:
            resolution = torch.tensor([64.0, 64.0]).repeat(len(x), 1)
            sizes = {"resolution": resolution, "aspect_ratio": torch.ones(len(x), 1)}
        texts |= {"added_cond_kwargs": sizes}
    return model(x, timestep=time, **texts).sample


@dataclass(frozen=True)
class OwnModel(Golden):
    def fresh(self) -> ScoreNetwork:
        return adapted(drawn(*self.meta["case"], seed=1))

    def load(self) -> tuple[ScoreNetwork, nn.Module | None]:
        network = self.fresh()
        load_published(network, self.group("weights/"))
        return network, None


@cache
def own_model(name: str) -> OwnModel:
    kind, config = CASES[name]
    reference = drawn(kind, config)
    channels = 4 if kind is FluxTransformer2DModel else config.get("in_channels", 4)
    shape = (3, channels, 8, 12) if kind is UNet2DModel else (3, channels, 8, 8)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    arrays = {"x": x, "t": torch.tensor([0.0, 17.0, 899.0])}
    if kind is not UNet2DModel or "num_class_embeds" in config:
        arrays["y"] = torch.tensor([4, 0, 2])
    with torch.no_grad():
        output = output_of(reference, x, arrays["t"], arrays.get("y"))
    parts = zip(("eps", "learned_variance"), output.split(channels, 1), strict=False)
    weights = {f"weights/{key}": value for key, value in reference.state_dict().items()}
    rounds = 4.0 if kind is FluxTransformer2DModel else 1.0  # it is told t in its own precision
    return OwnModel({"case": (kind, config), "bfloat16": rounds}, arrays | dict(parts) | weights)
