"""Operations of an experiment's networks for one item, counted on the code that the stages run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import cast

import torch
from torch import Tensor

from ocm_core import covariance
from ocm_core.artifacts.heads import new_head
from ocm_core.artifacts.score import new_denoiser, new_trial
from ocm_core.artifacts.trained import frozen
from ocm_core.compat import make_torchvision_importable
from ocm_core.covariance.learned import LearnedMethod
from ocm_core.diffusion.denoiser import Denoiser, Prediction
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.score_network import TrunkFeatures
from ocm_core.latents.autoencoder import new_autoencoder
from ocm_core.networks.keys import count_values
from ocm_core.params.resolved import load
from ocm_core.planning.operation_counts import NOTHING, BatchCount, count_batch
from ocm_core.rng.batches import BatchRng
from ocm_core.schema.experiment import Experiment
from ocm_core.shapes import Batch, Labels, Times
from ocm_core.training.batches import DroppedLabels, InMemory, Items, Unlabelled
from ocm_core.training.head_fitting import HeadFitting

META = "meta"
_INCEPTION_SIDE = 299  # pixels


class MetaDenoiser(Denoiser):
    """On the meta device, where there are no values to check and no autocast."""

    def evaluate(
        self, x: Batch, t: Times, label: Labels
    ) -> tuple[TrunkFeatures, Batch, Batch | None]:
        features = self.network.features(x, self.time(t), label)
        output = self.network.readout(features)
        if not self.network.learns_variance:
            return features, output, None
        eps, learned = output.chunk(2, dim=1)
        return features, eps, learned

    def _times(self, x: Batch, t: float | Times) -> Times:
        return t if isinstance(t, Tensor) else torch.full((len(x),), t, device=META)


@dataclass(frozen=True)
class NetworkCounts:
    """What the score network and its heads do for a batch."""

    parameters: int  # of the score network
    head_parameters: int  # of one head
    evaluation: BatchCount  # noise prediction
    head: BatchCount  # covariance from the features of the trunk
    product: BatchCount  # vector-Jacobian product, after a prediction with a graph
    training: BatchCount  # a step of all heads: prediction with a graph, products, gradients;
    # without heads, a prediction with a graph and one product
    probes: int  # vector-Jacobian products in `training`


@cache
def counts_of(name: str) -> NetworkCounts:
    """Of the experiment of that name."""
    return count_networks(load(name))


def count_networks(experiment: Experiment) -> NetworkCounts:
    methods = {
        label: cast(LearnedMethod, covariance.build(method.kind, label, **method.options))
        for label, method in experiment.methods.items()
        if method.needs == "head"
    }
    with torch.device(META):
        network = frozen(new_trial(experiment, experiment.network.scores[-1]), META)
        heads = {label: new_head(experiment, label, network, None) for label in methods}
    known = new_denoiser(experiment, network)
    denoiser = MetaDenoiser(network, known.schedule, known.time, heads)
    predict = partial(_predict, denoiser, experiment)
    evaluation = count_batch(lambda n: torch.no_grad()(partial(predict, n)))
    product = count_batch(lambda n: partial(_product, predict(n, graph=True)))
    if not methods:
        none = BatchCount(NOTHING, NOTHING)
        graph = count_batch(lambda n: lambda: _product(predict(n, graph=True)))
        return NetworkCounts(count_values(network), 0, evaluation, none, product, graph, 0)
    label = next(iter(methods))
    head = count_batch(lambda n: torch.no_grad()(partial(predict(n).head, label)))
    # further probes are further products, which all heads share: there is no need to run them
    single = {name: _with_one_probe(method) for name, method in methods.items()}
    traced = count_batch(lambda n: partial(_train, _fitting(denoiser, single, experiment), n))
    probes = max(method.training_probes for method in methods.values())
    return NetworkCounts(
        parameters=count_values(network),
        head_parameters=count_values(heads[label]),
        evaluation=evaluation,
        head=head,
        product=product,
        training=traced.then(product, max(probes - 1, 0)),
        probes=probes,
    )


def _with_one_probe(method: LearnedMethod) -> LearnedMethod:
    return method.model_copy(update={"probes": 1}) if method.trains_on_jacobian else method


def _predict(
    denoiser: Denoiser, experiment: Experiment, batch: int, *, graph: bool = False
) -> Prediction:
    x = torch.empty(batch, *experiment.shape, device=META, requires_grad=graph)
    label = torch.zeros(batch, dtype=torch.int64, device=META)
    return denoiser.predict(x, 1, label if denoiser.network.conditional else None)


def _product(prediction: Prediction) -> Tensor:
    return prediction.vjp(torch.empty_like(prediction.x))


def _fitting(
    denoiser: Denoiser, methods: dict[str, LearnedMethod], experiment: Experiment
) -> HeadFitting:
    """As in the stage `heads`, on two items."""
    x0, labels = torch.zeros(2, *experiment.shape), torch.zeros(2, dtype=torch.int64)
    items: Items = Unlabelled(InMemory(x0))
    if denoiser.network.conditional:
        items = DroppedLabels.for_network(InMemory(x0, labels), denoiser.network)
    denoiser.network.train(experiment.train.heads.trunk_dropout)
    return HeadFitting(denoiser, methods, items, Decoder(experiment.levels))


def _train(fitting: HeadFitting, batch: int) -> None:
    """The losses of a micro-batch and their gradients, as in `ocm_core/training/loop.py`."""
    losses = fitting.losses(BatchRng(0, 0, batch, META))
    torch.autograd.backward(torch.stack([loss.sum() for loss in losses.values()]).sum())
    for head in fitting.networks.values():
        head.zero_grad(set_to_none=True)


@cache
def autoencoder_parameters(name: str) -> int:
    """Of the experiment of that name; 0 where it has none."""
    latent = load(name).encode.latent
    if latent is None:
        return 0
    with torch.device(META):
        return count_values(new_autoencoder(latent.vae.config, f"encode.latent of {name}"))


@cache
def autoencoder(name: str) -> tuple[BatchCount, BatchCount] | None:
    """Encoding and decoding, if the experiment of that name has an autoencoder."""
    experiment = load(name)
    latent = experiment.encode.latent
    if latent is None:
        return None
    with torch.device(META):
        model = frozen(new_autoencoder(latent.vae.config, f"encode.latent of {name}"), META)
    pixels, code = experiment.data.shape, experiment.shape
    return (
        count_batch(lambda n: partial(model.encode, torch.empty(n, *pixels, device=META))),
        count_batch(lambda n: partial(model.decode, torch.empty(n, *code, device=META))),
    )


@cache
def feature_network(space: str) -> BatchCount:
    """Of a published feature space, for images as it takes them."""
    with torch.device(META):
        work, side = _efficientnet() if space == "efficientnet_lite0" else _inception()
    return count_batch(lambda n: partial(work, torch.empty(n, 3, side, side, device=META)))


def _inception() -> tuple[Callable[[Tensor], Tensor], int]:
    """torchvision's network, whose layers have the shapes of those in clean-fid's file."""
    make_torchvision_importable()
    module = import_module("torchvision.models.inception")
    model = frozen(module.Inception3(aux_logits=False, init_weights=False), META)
    model.fc = torch.nn.Identity()
    return model, _INCEPTION_SIDE


def _efficientnet() -> tuple[Callable[[Tensor], Tensor], int]:
    module = import_module("ocm_core.features.efficientnet_lite0")
    model = frozen(module.EfficientNet.from_name("efficientnet-lite0"), META)
    return model.extract_features, module.SIDE
