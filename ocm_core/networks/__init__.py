"""Network families, each one file with `Config` and `NETWORK`, imported when it is asked for."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, TypeVar, cast

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.distributed import current_rank
from ocm_core.errors import OcmError, unknown
from ocm_core.io.atomic import write_tensors
from ocm_core.io.reading import reading
from ocm_core.networks.config import Small, read_config

Network = TypeVar("Network", bound=nn.Module)


def build(family: str, config: Mapping[str, Any]) -> ScoreNetwork:
    """Build a network of the family with random weights."""
    module = _module(family)
    checked = read_config(module.Config, config, family) if hasattr(module, "Config") else config
    return cast(ScoreNetwork, module.NETWORK(checked))


def load(make: Callable[[], Network], file: Path, device: torch.device | str = "cpu") -> Network:
    """Make a network without initial values and load its weights from a safetensors file.

    No weight is drawn, and none is in memory twice. Each is copied from the mapped file, on a CPU
    too: results may depend on the alignment of weights in their last digits.
    """
    with empty_parameters():
        network = make()
    with reading(file, f"weights of {type(network).__name__}", "run the job that writes it again"):
        with safe_open(file, "pt") as weights:
            state = {
                name: weights.get_tensor(name).to(device, tensor.dtype, copy=True)
                for name, tensor in network.state_dict().items()
            }
            if surplus := set(weights.keys()) - state.keys():
                raise ValueError(f"unexpected {', '.join(sorted(surplus))}")
        network.load_state_dict(state, assign=True)
    return network.to(device)


def save_networks(
    path: Path, named: Mapping[str, nn.Module], average: Mapping[str, Tensor] | None = None
) -> None:
    """Save networks in one file, their tensors under their names, or a moving average of them."""
    tensors = {
        f"{label}.{name}".lstrip("."): tensor
        for label, network in named.items()
        for name, tensor in network.state_dict().items()
    }
    if current_rank().is_first:  # copies, because networks may share tables that a file cannot
        saved = (tensors | dict(average or {})).items()
        write_tensors(path, {name: tensor.detach().cpu().clone() for name, tensor in saved})


@contextmanager
def empty_parameters() -> Iterator[None]:
    """Put the parameters of new modules on the meta device; buffers keep their values."""
    register = nn.Module.register_parameter

    def register_empty(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None:
            grad = parameter.requires_grad
            parameter = nn.Parameter(parameter.to("meta"), requires_grad=grad)
        register(module, name, parameter)

    nn.Module.register_parameter = register_empty  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


def enable_gradient_checkpointing(network: nn.Module) -> None:
    """Recompute blocks from now on when a gradient passes, instead of keeping activations."""
    checkpointed = list(blocks(network))
    if not checkpointed:
        raise OcmError(
            f"{type(network).__name__} has no blocks (members of a ModuleList) to compute again;"
            " its activations are kept: switch recomputing off"
        )
    for block in checkpointed:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def blocks(network: nn.Module) -> Iterator[nn.Module]:
    """Yield the members of the innermost module lists: those that contain no list themselves."""
    for module in network.modules():
        for member in module if isinstance(module, nn.ModuleList) else ():
            if not any(isinstance(part, nn.ModuleList) for part in member.modules()):
                yield member


def configuration(family: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration, checked by the family, with its defaults, as plain values."""
    checked = asdict(read_config(_module(family).Config, config, family))
    return {key: list(v) if isinstance(v, tuple) else v for key, v in checked.items()}


def small(family: str) -> Small:
    """Return the small configuration that a family declares."""
    return cast(Small, _module(family).SMALL)


def families() -> list[str]:
    """Return the families; all files of this folder are imported to find out."""
    names = [file.name for file in iter_modules(__path__)]
    return [name for name in names if hasattr(import_module(f"{__name__}.{name}"), "NETWORK")]


def _module(family: str) -> ModuleType:
    name = f"{__name__}.{family}"
    module = import_module(name) if find_spec(name) else None
    if module is None or not hasattr(module, "NETWORK"):
        raise OcmError(f"network family: {unknown(family, families())}")
    return module
