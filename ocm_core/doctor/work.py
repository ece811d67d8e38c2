"""Count the operations of a task: passes through a network times the operations of one pass.

Operations are counted by PyTorch while the network runs on the meta device, which computes nothing.
A multiplication and an addition are two operations.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ocm_core.pipeline.stage import Task, Work, stages
from ocm_core.schema.experiment import Experiment, ImageNetworkParams

if TYPE_CHECKING:
    from torch import Tensor, nn

NetworkName = Literal["score", "vae", "features"]
# Inception of `features/inception.py` is a file that has to be fetched: counted on torchvision's
# network, whose layers have the same shapes.
INCEPTION_OPERATIONS, INCEPTION_WEIGHTS = 11_422_336_192, 87_000_000


class NetworkSize(NamedTuple):
    """The cost of one item in a network; all but operations in bytes."""

    operations: float
    weights: int = 0
    activations: int = 0  # outputs of all layers for one item


def work_of(experiment: Experiment, task: Task) -> Work:
    """Return the passes that a stage declares for one of its parts."""
    return stages()[task.stage].work(experiment, task.part)


def measure(experiment: Experiment, network: NetworkName) -> NetworkSize:
    """Count one pass of a network of the experiment."""
    if network == "score":
        score, predict = score_call(experiment, blank_device(experiment))
        return _counted(score, lambda: predict(1))
    return _autoencoder(experiment) if network == "vae" else _features(experiment)


def blank_device(experiment: Experiment) -> str:
    """Return where networks are built without values; small ones for points are built as usual."""
    return "meta" if isinstance(experiment.network, ImageNetworkParams) else "cpu"


def score_call(experiment: Experiment, device: str) -> tuple[nn.Module, Callable[[int], Any]]:
    """Return an untrained score network, and a function that predicts for a batch of zeros."""
    import torch

    from ocm_core.stages._networks import new_trial

    with torch.device(blank_device(experiment)):
        network: Any = new_trial(experiment, experiment.network.scores[-1])
    network = network.eval().requires_grad_(False)
    if device != blank_device(experiment):
        network = network.to_empty(device=device)
        for tensor in (*network.parameters(), *network.buffers()):
            tensor.data.fill_(0.01 if tensor.is_floating_point() else 0)

    @torch.no_grad()
    def predict(batch: int) -> Tensor:
        with torch.device(device):
            x, t = torch.zeros(batch, *experiment.shape), torch.ones(batch)
            label = torch.zeros(batch, dtype=torch.int64) if network.conditional else None
        output: Tensor = network.readout(network.features(x, t, label))
        return output

    return network, predict


def _autoencoder(experiment: Experiment) -> NetworkSize:
    """Count decoding, which takes more than encoding; nothing where there are no latents."""
    latent = experiment.encode.latent
    if latent is None:
        return NetworkSize(0.0)
    import torch

    from ocm_core.latents.vae import new_autoencoder

    with torch.device("meta"):
        model = new_autoencoder(latent.vae.config, f"encode.latent of {experiment.name}")
        code = torch.empty(1, *experiment.shape)
    return _counted(model, lambda: model.decode(code))


def _features(experiment: Experiment) -> NetworkSize:
    """Count all feature spaces of one image, and decoding it where the diffusion is on latents."""
    if experiment.features is None:
        return NetworkSize(0.0)
    spaces = experiment.features.spaces
    sizes = [_autoencoder(experiment), *(_feature_space(experiment, space) for space in spaces)]
    operations, weights, activations = (sum(column) for column in zip(*sizes, strict=True))
    return NetworkSize(operations, int(weights), int(activations))


def _feature_space(experiment: Experiment, space: str) -> NetworkSize:
    if space == "inception":
        return NetworkSize(INCEPTION_OPERATIONS, INCEPTION_WEIGHTS)
    import torch

    module = import_module(f"ocm_core.features.{space}")
    with torch.device("meta"):
        if space == "classifier":
            channels, side, _ = experiment.data.shape
            model = module.ClassifierNetwork(channels, side, max(1, experiment.data.classes))
            call, image = model.features, torch.empty(1, *experiment.data.shape)
        else:
            model = module.EfficientNet.from_name("efficientnet-lite0")
            call, image = model.extract_features, torch.empty(1, 3, module.SIDE, module.SIDE)
    return _counted(model, lambda: call(image))


def _counted(network: nn.Module, call: Callable[[], Any]) -> NetworkSize:
    """Run a network once on one item; the outputs of its layers are what training keeps."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    activations = 0

    def add(layer: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal activations
        activations += output.nbytes if isinstance(output, torch.Tensor) else 0

    layers = [layer for layer in network.modules() if not list(layer.children())]
    hooks = [layer.register_forward_hook(add) for layer in layers]
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        call()
    for hook in hooks:
        hook.remove()
    weights = sum(parameter.nbytes for parameter in network.parameters())
    return NetworkSize(max(counter.get_total_flops(), weights / 2, 1.0), weights, activations)
