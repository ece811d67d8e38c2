"""Translate between this library's parameter names and those of published files.

A module whose published counterpart is named differently says so in `published_names`: a mapping
from a path below it (a child, a parameter, or a dotted path) to the published path. Other names
stay as they are.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor, nn

from ocm_core.errors import OcmError

SHOWN = 3


def published_keys(module: nn.Module) -> dict[str, str]:
    """Map state-dict keys to published ones, for a network or for a head."""
    return {key: _published(module, key) for key in module.state_dict()}


def export_published(module: nn.Module, head: nn.Module | None = None) -> dict[str, Tensor]:
    """Return the weights under their published names."""
    exported: dict[str, Tensor] = {}
    for part in _parts(module, head):
        names = published_keys(part)
        exported |= {names[key]: tensor for key, tensor in part.state_dict().items()}
    return exported


def load_published(
    module: nn.Module,
    state_dict: Mapping[str, Tensor],
    head: nn.Module | None = None,
    *,
    assign: bool = False,
) -> None:
    """Load exactly the module's tensors, and the head's if one is passed.

    With `assign` the module takes the tensors themselves, so that it may be on the meta device.
    """
    problems = _differences(export_published(module, head), state_dict)
    if problems:
        raise OcmError(
            f"published weights do not fit {type(module).__name__}: {'; '.join(problems)};"
            " check that the file and the network configuration belong together"
        )
    for part in _parts(module, head):
        names = published_keys(part)
        part.load_state_dict({key: state_dict[name] for key, name in names.items()}, assign=assign)


def count_values(module: nn.Module) -> int:
    """Count values as the papers do: everything in the file, fixed tables included."""
    return sum(tensor.numel() for tensor in module.state_dict().values())


def refuse_larger(empty: nn.Module, folder: Path) -> None:
    """Refuse a network with more values than the files have bytes, before memory is taken."""
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    if (values := count_values(empty)) > size:
        raise OcmError(
            f"{folder}: weights of {size} bytes, and the configuration asks for {values} values;"
            " check that they belong together"
        )


def refuse_not_finite(tensors: Mapping[str, Tensor]) -> None:
    """Refuse weights with NaN or infinite values, by the name of the first such tensor."""
    for key, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise OcmError(
                f"{key} has values that are not finite (NaN or infinite); the file is damaged, or"
                " the training that wrote it diverged"
            )


def _parts(module: nn.Module, head: nn.Module | None) -> list[nn.Module]:
    return [module] if head is None else [module, head]


def _published(module: nn.Module, key: str) -> str:
    names: Mapping[str, str] = getattr(module, "published_names", {})
    parts = key.split(".")
    prefixes = (n for n in range(1, len(parts) + 1) if ".".join(parts[:n]) in names)
    cut = next(prefixes, 1)
    ours, rest = ".".join(parts[:cut]), ".".join(parts[cut:])
    theirs = names.get(ours, ours)
    return f"{theirs}.{_published(module.get_submodule(ours), rest)}" if rest else theirs


def _differences(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> list[str]:
    misshapen = [
        f"{key} {tuple(found[key].shape)} instead of {tuple(expected[key].shape)}"
        for key in expected.keys() & found.keys()
        if found[key].shape != expected[key].shape
    ]
    kinds = {
        "missing": expected.keys() - found.keys(),
        "unexpected": found.keys() - expected.keys(),
        "misshapen": misshapen,
    }
    return [f"{kind}: {_first_few(keys)}" for kind, keys in kinds.items() if keys]


def _first_few(keys: Iterable[str]) -> str:
    ordered = sorted(keys)
    more = f" and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else ""
    return ", ".join(ordered[:SHOWN]) + more
