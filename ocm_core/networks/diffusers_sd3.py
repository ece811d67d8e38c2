"""diffusers' `SD3Transformer2DModel`, as in Stable Diffusion 3 and 3.5."""

from diffusers.models.transformers.transformer_sd3 import SD3Transformer2DModel

from ocm_core.networks.diffusers_transformer import DiffusersTransformer


class DiffusersSD3(DiffusersTransformer):
    """Its prompts are the tokens of three text encoders, and a pooled vector."""

    model_kind = SD3Transformer2DModel


ADAPTER = DiffusersSD3
