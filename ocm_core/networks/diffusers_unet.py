"""Any diffusers `UNet2DModel` with timesteps, and Stable Diffusion's `UNet2DConditionModel`.

The model's own forward pass is run, not written again: the output layers of the trunk pass
everything on, and those of the model are the readout. Labels of a model that takes text are rows of
`Prompts`, which enter by attention. Its attention processors are the user's choice.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from diffusers.models.resnet import ResnetBlock2D
from torch import Tensor, nn

from ocm_core.diffusion.score_network import TrunkFeatures
from ocm_core.errors import OcmError
from ocm_core.networks._layers import zeroed
from ocm_core.networks._unet import OutputLayer
from ocm_core.networks.diffusers import DiffusersNetwork
from ocm_core.shapes import Images, Labels, NetworkTimes
from ocm_core.text import plural

BESIDE_TEXT = (
    *("addition_embed_type", "encoder_hid_dim_type", "num_class_embeds"),
    *("time_embedding_act_fn", "timestep_post_act", "time_cond_proj_dim"),
)


class DiffusersUNet(DiffusersNetwork):
    """A UNet of diffusers, cut before its output layers."""

    head_kinds = ("simple", "complex")
    output: OutputLayer

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.classes: int | None = self.config["num_class_embeds"]
        self.conditional = self.takes_text or self.classes is not None
        last = ("conv_norm_out", "conv_act", "conv_out")
        self.trunk._modules = model._modules | {name: nn.Identity() for name in last}
        self.output = OutputLayer(model.conv_norm_out, model.conv_out)
        self.published_names |= {"output.norm": "conv_norm_out", "output.conv": "conv_out"}

    def features(self, x: Images, time: NetworkTimes, label: Labels = None) -> TrunkFeatures:
        factor = 2 ** (len(self.config["block_out_channels"]) - 1)
        if x.shape[1] != self.in_channels or x.shape[-2] % factor or x.shape[-1] % factor:
            raise OcmError(
                f"images of shape {tuple(x.shape[1:])}: this {self.kind} takes"
                f" {plural(self.in_channels, 'channel')} and sides that are multiples of {factor}"
            )
        given = self.arguments(x, time, label)
        (hidden,) = self.trunk(**given, return_dict=False)
        # heads read these detached, and on a CPU group norm's backward pass crashes the process
        # for an input in channels-last order that needs no gradient (seen in torch 2.13)
        return self.features_of((hidden.contiguous(),), given)

    def arguments(self, x: Images, time: NetworkTimes, label: Labels) -> dict[str, Any]:
        if self.config.get("time_embedding_type") == "learned":
            time = time.long()  # a table over the timesteps
        told = self.texts(x, label) if self.takes_text else {"class_labels": self._known(x, label)}
        return {"sample": x, "timestep": time, **told}

    def _known(self, x: Images, label: Labels) -> Labels:
        """Return the labels, checked on a CPU."""
        label, known = self.labels(x, label), self.classes
        if label is None or not known or not label.is_cpu:  # to look at a GPU is to wait for it
            return label
        if not 0 <= label.min() <= label.max() < known:
            raise OcmError(
                f"labels {label.tolist()!r:.100}: this UNet2DModel has the classes 0 to {known - 1}"
                " (num_class_embeds); pass a label of these for every image"
            )
        return label

    def features_of(self, last: tuple[Tensor, ...], given: Mapping[str, Any]) -> TrunkFeatures:
        embedding = self.embedding(given["timestep"], given.get("class_labels"))
        return TrunkFeatures(last[0], embedding)

    def embedding(self, time: NetworkTimes, label: Labels) -> Tensor:
        """Return the embedding that the trunk gives to its blocks and does not return."""
        encoded = self.trunk.time_proj(time).to(self.trunk.dtype)
        embedding: Tensor = self.trunk.time_embedding(encoded)
        return embedding if label is None else embedding + self.trunk.class_embedding(label)

    def head(self, kind: str) -> OutputLayer:
        norm = cast(nn.GroupNorm, self.output.norm)
        width, block = norm.num_channels, None
        if kind == "complex":  # one more block like those of the model, which passes its input on
            block = ResnetBlock2D(
                in_channels=width,
                temb_channels=self.trunk.time_embedding.linear_2.out_features,
                groups=norm.num_groups,
                eps=norm.eps,
                dropout=self.config["dropout"],
                non_linearity=self.config["act_fn"],
                time_embedding_norm=self.config["resnet_time_scale_shift"],
            )
            zeroed(block.conv2)
        conv = zeroed(nn.Conv2d(width, self.in_channels, 3, padding=1))
        return OutputLayer(nn.GroupNorm(norm.num_groups, width, norm.eps), conv, block)

    def obstacles(self, model: Any) -> Iterator[str]:
        yield from super().obstacles(model)
        config: Mapping[str, Any] = model.config
        if config["time_embedding_type"] == "fourier":
            yield "time_embedding_type='fourier': its time is a noise level; expected timesteps"
        if (kind := config["class_embed_type"]) is not None:
            yield f"class_embed_type={kind!r}; expected None (and num_class_embeds for classes)"
        if (shift := config["resnet_time_scale_shift"]) not in ("default", "scale_shift"):
            yield f"resnet_time_scale_shift={shift!r}; expected 'default' or 'scale_shift'"
        if any(hasattr(block, "skip_conv") for block in model.up_blocks):
            yield "up_block_types: skip blocks add to the image after the last layer"
        for key in BESIDE_TEXT if self.takes_text else ():
            if (value := config.get(key)) is not None:
                yield f"{key}={value!r}: a condition beside the text; expected None"
        if self.takes_text and (config["act_fn"] != "silu" or model.conv_norm_out is None):
            yield "act_fn and norm_num_groups: expected 'silu' and a norm before the last layer"


ADAPTER = DiffusersUNet
