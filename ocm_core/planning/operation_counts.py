"""Operations and bytes of a computation, counted while it runs on the meta device.

PyTorch's own formulas give the operations; bytes are what every operation reads and writes when
each is a kernel of its own. Counts are linear in the batch size, so two runs tell what a batch
shares (the weights) from what each item adds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

_CONVOLUTIONS = {
    torch.ops.aten.convolution,
    torch.ops.aten._convolution,
    torch.ops.aten.convolution_backward,
}
_ALLOCATIONS = {
    torch.ops.aten.empty,
    torch.ops.aten.empty_like,
    torch.ops.aten.empty_strided,
    torch.ops.aten.new_empty,
    torch.ops.aten.new_empty_strided,
}


@dataclass(frozen=True)
class OperationCount:
    """A multiplication and an addition are two operations; bytes are for float32."""

    convolutions: float = 0.0  # operations in convolutions
    products: float = 0.0  # operations in matrix products
    bytes: float = 0.0  # read and written if each operation is a kernel of its own
    least_bytes: float = 0.0  # the same if all else is fused into convolutions and products
    memory: float = 0.0  # peak of the bytes that the computation allocates

    @property
    def operations(self) -> float:
        return self.convolutions + self.products

    def __add__(self, other: OperationCount) -> OperationCount:
        """Both, one after the other."""
        sums = {
            f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(OperationCount)
        }
        return OperationCount(**sums | {"memory": max(self.memory, other.memory)})

    def __mul__(self, times: float) -> OperationCount:
        """Repeated, one after the other."""
        scaled = {f.name: times * getattr(self, f.name) for f in fields(OperationCount)}
        return OperationCount(**scaled | {"memory": self.memory})


NOTHING = OperationCount()


@dataclass(frozen=True)
class BatchCount:
    """Counts of a batch: `shared` once, `each` for every item."""

    shared: OperationCount
    each: OperationCount

    def then(self, other: BatchCount, times: int) -> BatchCount:
        """This, followed by the other so many times."""
        return BatchCount(self.shared + other.shared * times, self.each + other.each * times)

    def of(self, batch: int) -> OperationCount:
        return _by_field(lambda shared, each: shared + batch * each, self.shared, self.each)

    def per_item(self, batch: int) -> OperationCount:
        """The share of one item in a batch; memory stays that of the whole batch."""
        whole = self.of(batch)
        return whole * (1 / batch)

    def fitting(self, room: float) -> int:
        """The largest batch size that needs no more memory than `room`."""
        return max(0, int((room - self.shared.memory) // self.each.memory))


def count_operations(work: Callable[[], object]) -> OperationCount:
    """What `work` does when it is called."""
    with _Counter() as counter:
        work()
    totals: OperationCount = counter.totals
    return totals


def count_batch(prepare: Callable[[int], Callable[[], object]]) -> BatchCount:
    """`prepare(n)` returns the work on a batch of n items; what `prepare` does is not counted."""
    one, two = count_operations(prepare(1)), count_operations(prepare(2))
    each = _by_field(lambda first, second: second - first, one, two)
    return BatchCount(_by_field(lambda first, more: first - more, one, each), each)


def _by_field(
    function: Callable[[float, float], float], one: OperationCount, other: OperationCount
) -> OperationCount:
    names = [f.name for f in fields(OperationCount)]
    return OperationCount(
        **{name: function(getattr(one, name), getattr(other, name)) for name in names}
    )


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """torch's FlopCounterMode without its tracking of modules, which `autograd.grad` breaks."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.totals = NOTHING
        self._alive: dict[StorageWeakRef, int] = {}
        self._memory = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        inputs, outputs = _tensors((args, kwargs)), _tensors(out)
        known = {tensor.untyped_storage()._cdata for tensor in inputs}
        made = [tensor for tensor in outputs if tensor.untyped_storage()._cdata not in known]
        self._note(made)
        kind = func._overloadpacket
        if kind in _ALLOCATIONS or not (made or func._schema.is_mutable):  # or it is a view
            return out
        moved = sum(_bytes(tensor) for tensor in (*inputs, *outputs))
        found = OperationCount(bytes=moved)
        if kind in flop_registry:
            operations = flop_registry[kind](*args, **(kwargs or {}), out_val=out)
            kinds = "convolutions" if kind in _CONVOLUTIONS else "products"
            found = OperationCount(bytes=moved, least_bytes=moved, **{kinds: operations})
        self.totals = self.totals + found
        return out

    def _note(self, made: list[Tensor]) -> None:
        for tensor in made:
            size = tensor.untyped_storage().nbytes()
            storage = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
            self._alive[storage] = size
            self._memory += size
        if self._memory > self.totals.memory:  # an upper bound: subtract what was freed since
            gone = [s for s in self._alive if s.expired()]  # type: ignore[no-untyped-call]
            for storage in gone:
                del self._alive[storage]
            self._memory = sum(self._alive.values())
            self.totals = self.totals + OperationCount(memory=self._memory)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _bytes(tensor: Tensor) -> int:
    """An expanded tensor is read from memory once, and then from the cache."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
