"""A foreigner's images and model, as small as they get."""

import json
from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import torch
from diffusers import (
    AutoencoderDC,
    AutoencoderKL,
    DDIMScheduler,
    DDPMPipeline,
    DDPMScheduler,
    DiTPipeline,
    DiTTransformer2DModel,
    DPMSolverMultistepScheduler,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    FluxTransformer2DModel,
    PixArtSigmaPipeline,
    PixArtTransformer2DModel,
    SanaPipeline,
    SanaTransformer2DModel,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
    StableDiffusionPipeline,
    UNet2DConditionModel,
    UNet2DModel,
)
from tokenizers.processors import TemplateProcessing
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    Gemma2Config,
    Gemma2Model,
    GemmaTokenizerFast,
    T5Config,
    T5EncoderModel,
    T5TokenizerFast,
)

from ..datasets import files

T5_WIDTH = 20
ATTENDING = {"num_attention_heads": 2, "attention_head_dim": 4, "in_channels": 4, "sample_size": 8}
SMALL = {"block_out_channels": (8, 8), "norm_num_groups": 4, "layers_per_block": 1}


def write_images(folder: Path, count: int = 24, side: int = 16) -> Path:
    folder.mkdir(parents=True)
    for number in range(count):
        image = files.pixels(number, side, side)
        (folder / f"{number:03}.png").write_bytes(files.encoded(image, "PNG"))
    return folder


def write_model(
    folder: Path,
    side: int = 16,
    classes: int | None = None,
    learns_variance: bool = False,
    dtype: torch.dtype = torch.float32,
    **scheduler: Any,
) -> Path:
    torch.manual_seed(0)
    blocks = {"down_block_types": ("DownBlock2D",) * 2, "up_block_types": ("UpBlock2D",) * 2}
    sizes = {"sample_size": side, "out_channels": 6 if learns_variance else 3}
    model = UNet2DModel(num_class_embeds=classes, **sizes, **blocks, **SMALL)
    DDPMPipeline(model.to(dtype), DDPMScheduler(**scheduler)).save_pretrained(folder)
    return folder


def write_dit(folder: Path, classes: int = 5) -> Path:
    """A model of latents, with its autoencoder: images of twice its side."""
    torch.manual_seed(0)
    heads = {"num_attention_heads": 2, "attention_head_dim": 4, "num_layers": 1}
    sizes = {"in_channels": 4, "out_channels": 8, "sample_size": 8, "patch_size": 2}
    model = DiTTransformer2DModel(num_embeds_ada_norm=classes, **heads, **sizes)
    DiTPipeline(model, autoencoder(), DDIMScheduler(clip_sample=False)).save_pretrained(folder)
    return folder


def autoencoder(**more: Any) -> AutoencoderKL:
    down, up = ("DownEncoderBlock2D",) * 2, ("UpDecoderBlock2D",) * 2
    sizes = {"latent_channels": 4, **SMALL, **more}
    return AutoencoderKL(down_block_types=down, up_block_types=up, **sizes)


def write_stable_diffusion(folder: Path, prediction: str = "epsilon") -> Path:
    """A model of latents that takes text, with autoencoder, text encoder and tokenizer."""
    torch.manual_seed(0)
    down, up = ("CrossAttnDownBlock2D", "DownBlock2D"), ("UpBlock2D", "CrossAttnUpBlock2D")
    blocks = {"down_block_types": down, "up_block_types": up, **SMALL}
    attention = {"cross_attention_dim": 8, "attention_head_dim": 4}
    model = UNet2DConditionModel(sample_size=8, **blocks, **attention)
    tokenizer = write_tokenizer(folder / "tokenizer")
    config = clip_config(tokenizer)
    betas = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}
    more = {"steps_offset": 1, "clip_sample": False, "prediction_type": prediction}
    parts = (autoencoder(), CLIPTextModel(config).eval(), tokenizer, model)
    unsafe = {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
    pipeline = StableDiffusionPipeline(*parts, DDIMScheduler(**betas, **more), **unsafe)
    pipeline.save_pretrained(folder)
    return folder


def clip_config(tokenizer: CLIPTokenizer) -> CLIPTextConfig:
    return CLIPTextConfig(
        vocab_size=len(tokenizer),
        **dict.fromkeys(("hidden_size", "intermediate_size"), 8),
        **dict.fromkeys(("num_hidden_layers", "num_attention_heads"), 2),
        projection_dim=6,
        max_position_embeddings=tokenizer.model_max_length,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        initializer_range=1.0,
    )


def write_sd3(folder: Path) -> Path:
    """Three text encoders, and an autoencoder whose latents are shifted."""
    torch.manual_seed(0)
    words = [write_tokenizer(folder / name) for name in ("tokenizer", "tokenizer_2")]
    clip = [CLIPTextModelWithProjection(clip_config(tokenizer)).eval() for tokenizer in words]
    texts = {"joint_attention_dim": T5_WIDTH, "pooled_projection_dim": 12}
    widths = {"caption_projection_dim": 8, "pos_embed_max_size": 8, "qk_norm": "rms_norm"}
    blocks = {"num_layers": 2, "dual_attention_layers": (0,), "patch_size": 2}
    model = SD3Transformer2DModel(out_channels=4, **ATTENDING, **texts, **widths, **blocks)
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    vae = autoencoder(shift_factor=0.06, scaling_factor=1.5, use_quant_conv=False)
    texts = (*(part for pair in zip(clip, words, strict=True) for part in pair), *t5())
    StableDiffusion3Pipeline(model, scheduler, vae, *texts).save_pretrained(folder)
    return folder


def write_pixart(folder: Path) -> Path:
    """One text encoder, whose tokens have a mask, and a variance that the model learned."""
    torch.manual_seed(0)
    widths = {"cross_attention_dim": 8, "caption_channels": T5_WIDTH, "norm_num_groups": 1}
    model = PixArtTransformer2DModel(out_channels=8, num_layers=2, **ATTENDING, **widths)
    text, words = t5()
    scheduler = DPMSolverMultistepScheduler()
    PixArtSigmaPipeline(words, text, autoencoder(), model, scheduler).save_pretrained(folder)
    return folder


def write_sana(folder: Path) -> Path:
    """A language model as text encoder, and an autoencoder without a posterior."""
    torch.manual_seed(0)
    words = ["<pad>", "<eos>", "<bos>", "<unk>", "▁", *ascii_lowercase]
    tokenizer = GemmaTokenizerFast({word: n for n, word in enumerate(words)}, [])
    single = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 2)])
    tokenizer.backend_tokenizer.post_processor = single
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "head_dim": 4}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": len(tokenizer)}
    text = Gemma2Model(Gemma2Config(**sizes, **heads)).eval()
    cross = {"num_cross_attention_heads": 2, "cross_attention_head_dim": 4}
    widths = {"cross_attention_dim": 8, "caption_channels": 8, "timestep_scale": 0.5}
    model = SanaTransformer2DModel(out_channels=4, num_layers=2, **ATTENDING, **cross, **widths)
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    SanaPipeline(tokenizer, text, deep_autoencoder(), model, scheduler).save_pretrained(folder)
    return folder


def deep_autoencoder() -> AutoencoderDC:
    levels = {f"{part}_block_out_channels": (8, 8) for part in ("encoder", "decoder")}
    kinds = {f"{part}_block_types": "ResBlock" for part in ("encoder", "decoder")}
    depths = {f"{part}_layers_per_block": (1, 1) for part in ("encoder", "decoder")}
    scales = {f"{part}_qkv_multiscales": ((), ()) for part in ("encoder", "decoder")}
    shortcut = {"upsample_block_type": "interpolate", "scaling_factor": 0.4}
    return AutoencoderDC(latent_channels=4, **levels, **kinds, **depths, **scales, **shortcut)


def write_flux(folder: Path) -> Path:
    """Two text encoders, and latents that are packed, of any size."""
    torch.manual_seed(0)
    tokenizer = write_tokenizer(folder / "tokenizer")
    clip = CLIPTextModel(clip_config(tokenizer)).eval()
    text, words = t5()
    texts = {"joint_attention_dim": T5_WIDTH, "pooled_projection_dim": 8}
    blocks = {"num_layers": 1, "num_single_layers": 1, "axes_dims_rope": (4, 4, 8)}
    heads = {"num_attention_heads": 2, "attention_head_dim": 16}
    model = FluxTransformer2DModel(in_channels=16, **heads, **blocks, **texts)
    scheduler = FlowMatchEulerDiscreteScheduler()
    vae = autoencoder(shift_factor=0.1, scaling_factor=0.4)
    parts = (scheduler, vae, clip, tokenizer, text, words, model)
    FluxPipeline(*parts).save_pretrained(folder)
    return folder


def t5() -> tuple[T5EncoderModel, T5TokenizerFast]:
    """Of letters."""
    scores = [*((word, 0.0) for word in ("<pad>", "</s>", "<unk>")), ("▁", -1.0)]
    words = T5TokenizerFast([*scores, *((letter, -2.0) for letter in ascii_lowercase)], extra_ids=0)
    sizes = {"d_model": T5_WIDTH, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    return T5EncoderModel(T5Config(vocab_size=len(words), **sizes)).eval(), words


def write_tokenizer(folder: Path, length: int = 10) -> CLIPTokenizer:
    """Of letters, without merges."""
    folder.mkdir(parents=True)
    words = [*ascii_lowercase, *(f"{letter}</w>" for letter in ascii_lowercase)]
    words += ["<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({word: n for n, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    files = (str(folder / "vocab.json"), str(folder / "merges.txt"))
    return CLIPTokenizer(*files, model_max_length=length)


def write_captions(file: Path, images: Path, captions: Sequence[str] = ("a cat", "a dog")) -> Path:
    """They take turns."""
    names = sorted(path.name for path in images.glob("*.png"))
    lines = [f"{name},{captions[n % len(captions)]}" for n, name in enumerate(names)]
    file.write_text("\n".join(["file,caption", *lines]) + "\n")
    return file
