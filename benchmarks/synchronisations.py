"""What makes the host wait for the device, counted without a GPU.

On the meta device no tensor has a value: `.item()`, `int()`, `float()` and `bool()` raise, and so
does an operation on tensors of two devices. What is left to count there are copies to the device
that the host waits for. On a CPU the readings of values are counted themselves.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

META = torch.device("meta")
_READS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default)
_COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class Synchronisations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counted inside a `with` block, by the name of the operation.

    What is read of tensors of the host counts where the host stands for the device (`on_host`).
    """

    def __init__(self, on_host: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.on_host, self.found = on_host, list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if (self.on_host and func in _READS) or (
            func in _COPIES and _waits(func, args, kwargs or {})
        ):
            self.found.append(str(func))
        return result


def _waits(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a copy crosses from one device to another, and the host waits for it."""
    if func is torch.ops.aten.copy_.default:
        target, source, *rest = args
        blocking = not (rest[0] if rest else kwargs.get("non_blocking", False))
        return bool(target.device != source.device and blocking)
    to = kwargs.get("device")
    blocking = not kwargs.get("non_blocking", False)
    return to is not None and torch.device(to) != args[0].device and blocking


class MetaNoise:
    """Noise that is nothing but its shape."""

    def __init__(self, batch: int, shape: tuple[int, ...]) -> None:
        self.shape = (batch, *shape)

    def normal(self) -> Tensor:
        return torch.empty(self.shape, device=META)

    signs = normal
