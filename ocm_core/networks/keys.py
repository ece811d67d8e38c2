"""Translate between this library's parameter names and those of published files.

`published_names` of a module maps paths below it (a child, a parameter, or a dotted path) to
published paths; other names stay as they are.
"""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from ocm_core.errors import OcmError
from ocm_core.text import some

SHOWN = 3
TOGETHER = "check that the file and the network configuration belong together"


def published_keys(module: nn.Module) -> dict[str, str]:
    """Map state-dict keys to published ones, for a network or for a head."""
    return {key: _published(module, key) for key in module.state_dict()}


def export_published(module: nn.Module) -> dict[str, Tensor]:
    """Return the weights under their published names."""
    return {_published(module, key): tensor for key, tensor in module.state_dict().items()}


def load_published(
    module: nn.Module,
    found: Mapping[str, Tensor],
    where: object = "given weights",
    assign: bool = False,
) -> None:
    """Load exactly the module's tensors; with `assign` it takes them as they are, not copies."""
    module.load_state_dict(import_published(module, found, where), assign=assign)


def import_published(
    module: nn.Module, found: Mapping[str, Tensor], where: object, remedy: str = TOGETHER
) -> dict[str, Tensor]:
    """Return published weights under this library's names; refuse any that do not fit exactly."""
    expected = export_published(module)
    kinds = {
        "missing": expected.keys() - found.keys(),
        "unexpected": found.keys() - expected.keys(),
        "misshapen": {
            f"{key} {tuple(found[key].shape)} instead of {tuple(expected[key].shape)}"
            for key in expected.keys() & found.keys()
            if found[key].shape != expected[key].shape
        },
    }
    if misfits := {kind: some(sorted(keys), SHOWN) for kind, keys in kinds.items() if keys}:
        problems = "; ".join(f"{kind}: {keys}" for kind, keys in misfits.items())
        name = type(module).__name__
        raise OcmError(f"{where}: published weights do not fit {name}: {problems}; {remedy}")
    return {key: found[name] for key, name in published_keys(module).items()}


def count_values(module: nn.Module) -> int:
    """Count values as the papers do: everything in the file, fixed tables included."""
    return sum(tensor.numel() for tensor in module.state_dict().values())


def refuse_larger(empty: nn.Module, folder: Path) -> None:
    """Refuse a network with more values than the files have bytes, before memory is taken."""
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    if (values := count_values(empty)) > size:
        raise OcmError(
            f"{folder}: weights of {size} bytes, and the configuration asks for {values} values;"
            f" {TOGETHER}"
        )


def refuse_not_finite(
    tensors: Mapping[str, Tensor], where: object, remedy: str = "get it again"
) -> None:
    """Refuse weights with NaN or infinite values, by the name of the first such tensor."""
    for key, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise OcmError(
                f"{where}: {key} has values that are not finite (NaN or infinite): the file is"
                f" damaged, or the training that wrote it diverged; {remedy}"
            )


def _published(module: nn.Module, key: str) -> str:
    names: Mapping[str, str] = getattr(module, "published_names", {})
    parts = key.split(".")
    prefixes = (n for n in range(1, len(parts) + 1) if ".".join(parts[:n]) in names)
    cut = next(prefixes, 1)
    ours, rest = ".".join(parts[:cut]), ".".join(parts[cut:])
    theirs = names.get(ours, ours)
    return f"{theirs}.{_published(module.get_submodule(ours), rest)}" if rest else theirs
