"""Covariance heads as a component of a diffusers pipeline, and the features that they read."""

from collections.abc import Mapping
from inspect import signature
from typing import Any, Self, cast

import torch
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.models.modeling_utils import ModelMixin
from torch import Tensor, nn

from ocm_core.checkpoints.head_file import kind_of, weights_digest
from ocm_core.covariance.learned import LINKS, CovarianceHead
from ocm_core.diffusion.basis import Spectrum
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.errors import OcmError, unknown
from ocm_core.networks.diffusers import DiffusersNetwork, build, wrapped
from ocm_core.networks.keys import refuse_not_finite
from ocm_core.shapes import Images, Labels, NetworkTimes, Times

Shapes = dict[str, list[int]]  # of tensors, by name

AGAIN = "export it again"


class CovarianceHeads(ModelMixin, ConfigMixin):  # type: ignore[misc]
    """`heads` says of each label the kind, its sizes, the link and the shapes of tables over t.

    `base` is the configuration of the model whose features they read, `model` the digest of its
    weights; `spectra` says of each basis the shapes of its tensors.
    """

    @register_to_config  # type: ignore[untyped-decorator]
    def __init__(
        self,
        base: dict[str, Any],
        heads: dict[str, dict[str, Any]],
        model: str,
        spectra: dict[str, Shapes] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        with torch.device("meta"):
            network = build(base)
        self.by_label = nn.ModuleDict()
        for label, form in heads.items():
            if form["link"] not in LINKS:
                raise OcmError(f"heads.{label}.link: {unknown(form['link'], LINKS)}")
            net = network.make_head(form["kind"], **form.get("sizes", {}))
            tables: Any = {name: torch.ones(shape) for name, shape in form["tables"].items()}
            self.by_label[label] = CovarianceHead(net, link=form["link"], **tables)
        self.tables = nn.ModuleDict()
        for basis, shapes in (spectra or {}).items():
            self.tables[basis] = nn.Module()
            for name, shape in shapes.items():
                self.tables[basis].register_buffer(name, torch.ones(shape, dtype=torch.float64))

    @classmethod
    def from_pretrained(cls, *given: Any, output_loading_info: bool = False, **options: Any) -> Any:
        """Open heads as exported; diffusers alone would draw the weights that are missing."""
        opened: Any = super().from_pretrained(*given, output_loading_info=True, **options)
        made, info = opened
        for problem in ("missing", "unexpected", "mismatched"):
            if keys := sorted(map(str, info[f"{problem}_keys"])):
                raise OcmError(f"heads: {', '.join(keys)} {problem}; {AGAIN}")
        refuse_not_finite(made.state_dict(), "heads", AGAIN)
        return (made, info) if output_loading_info else made

    @classmethod
    def of(cls, model: Any, denoiser: Denoiser) -> Self:
        """Copy heads and spectra that were made for a model of diffusers."""
        network, links = wrapped(model), {link: name for name, link in LINKS.items()}
        heads = cast(Mapping[str, CovarianceHead], denoiser.heads)
        spectra = {basis: spectrum.tensors() for basis, spectrum in denoiser.spectra.items()}
        forms = {}
        for label, head in heads.items():
            tables = {k: list(v.shape) for k, v in head.state_dict().items() if k in head.tables}
            kind, sizes = kind_of(network, head.net.state_dict())
            forms[label] = {"kind": kind, "link": links[head.link], "tables": tables}
            forms[label] |= {"sizes": sizes} if sizes else {}
        shapes = {b: {k: list(v.shape) for k, v in held.items()} for b, held in spectra.items()}
        own = {key: value for key, value in model.config.items() if not key.startswith("_")}
        base = {"_class_name": type(model).__name__, **own}
        digest = weights_digest(network)
        made: Self = cls(base=base, heads=forms, model=digest, spectra=shapes)
        for label, head in heads.items():
            made.by_label[label].load_state_dict(head.state_dict())
        for basis, held in spectra.items():
            made.tables[basis].load_state_dict(held)
        made.eval().requires_grad_(False)
        return made

    def spectra(self, device: Any) -> dict[str, Spectrum]:
        """Return the spectra by the name of their basis."""
        tables = self.tables.items()
        return {basis: Spectrum.of_tensors(held.state_dict(), device) for basis, held in tables}

    def forward(self, features: TrunkFeatures, t: Times, label: str) -> Tensor:
        dtype = next(self.parameters()).dtype
        parts = TrunkFeatures(*(part.to(dtype) for part in features))
        output: Tensor = self.by_label[label](parts, t)
        return output


class AttachedHead:
    """One head of a component as a denoiser has it, called by way of the component's hooks."""

    def __init__(self, heads: CovarianceHeads, label: str) -> None:
        self._heads, self._label = heads, label

    def __call__(self, features: TrunkFeatures, t: Times) -> Tensor:
        output: Tensor = self._heads(features, t, self._label)
        return output

    def __getattr__(self, name: str) -> Any:  # baseline and link
        return getattr(self._heads.by_label[self._label], name)


class FeatureTap:
    """Keeps what heads read of a model's last evaluation, from inside its own forward pass."""

    def __init__(self, model: Any, adapter: ScoreNetwork | None = None) -> None:
        self.adapter: Any = wrapped(model) if adapter is None else adapter
        self._forward = signature(model.forward)
        self._call: dict[str, Any] = {}
        self._last: tuple[Tensor, ...] = ()
        last_norm = getattr(model, "conv_norm_out", None) or model.norm_out
        model.register_forward_pre_hook(self._keep_call, with_kwargs=True)
        last_norm.register_forward_pre_hook(self._keep_last)

    def _keep_call(self, model: nn.Module, args: Any, kwargs: Any) -> None:
        self._call = self._forward.bind(*args, **kwargs).arguments

    def _keep_last(self, norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._last = inputs

    def take(self, count: int) -> TrunkFeatures:
        """Return the features of the last evaluation, which was of `count` images."""
        last, self._last = self._last, ()
        if not last or len(last[0]) != count:
            evaluated = len(last[0]) if last else "none"
            found = f"features of {count} images, and the model has just evaluated {evaluated}"
            remedy = "evaluate it once a step (CovariancePipeline has guidance)"
            raise OcmError(f"a covariance head reads the {found}; {remedy}")
        time = torch.as_tensor(self._call["timestep"], device=last[0].device).expand(count)
        features: TrunkFeatures = self.adapter.features_of(last, {**self._call, "timestep": time})
        return features


class HookedModel(ScoreNetwork):
    """A model as a score network, run by its own forward pass with the hooks of others."""

    def __init__(self, model: Any, null_class: int | None) -> None:
        super().__init__()
        self.model, self.adapter = model, cast(DiffusersNetwork, wrapped(model, null_class))
        self.takes_text: bool = self.adapter.takes_text
        self.head_kinds = self.adapter.head_kinds  # type: ignore[misc]
        self.out_channels_per_input = self.adapter.out_channels_per_input
        self.conditional, self.null_label = self.adapter.conditional, self.adapter.null_label
        self.tap = FeatureTap(model, self.adapter)

    def features(self, x: Images, time: NetworkTimes, label: Labels = None) -> TrunkFeatures:
        return self.evaluate(x, time, label)[0]

    def readout(self, features: TrunkFeatures) -> Images:
        return self.adapter.readout(features)

    def evaluate(
        self, x: Images, time: NetworkTimes, label: Labels = None
    ) -> tuple[TrunkFeatures, Images]:
        """Return the features and the output of one evaluation of the model."""
        given = self.adapter.arguments(x.to(self.model.dtype), time, label)
        (output,) = self.model(**given, return_dict=False)
        return self.tap.take(len(x)), self.adapter.unpacked(output).to(x.dtype)

    def _build_head(self, kind: str, **sizes: int) -> nn.Module:
        return self.adapter.make_head(kind, **sizes)
