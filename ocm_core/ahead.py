"""Work of the host beside the device's: one thread that draws, reads and writes, and copies that
nobody waits for.

What goes to a GPU is put into pinned memory by that thread and copied from there while the GPU
computes. Without a GPU the thread's work is the same, and the main thread's gets shorter by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import ParamSpec, Self, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as trees

Given = ParamSpec("Given")
Item = TypeVar("Item")
Made = TypeVar("Made")
AnyDevice = torch.device | str


def beside(work: Callable[Given, Made], *given: Given.args, **named: Given.kwargs) -> Future[Made]:
    """Do it in the other thread, after what it was given before; that work must not wait for it."""
    return _thread().submit(work, *given, **named)


def ahead(make: Callable[[Item], Made], items: Iterable[Item]) -> Generator[Made]:
    """`make(item)` of each in order; while one is used, the next is being made."""
    coming: deque[Future[Made]] = deque()
    try:
        for item in items:
            coming.append(beside(make, item))
            if len(coming) > 1:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
    finally:
        for future in coming:
            future.cancel()


class WriteBehind:
    """One write at a time, beside what the main thread does; at the end all is written.

    What a write raises is raised by the next one, or at the end.
    """

    def __init__(self) -> None:
        self._last: Future[None] | None = None

    def write(self, work: Callable[Given, None], *given: Given.args, **named: Given.kwargs) -> None:
        self._finish()
        self._last = beside(work, *given, **named)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._finish()
        elif self._last is not None:
            wait([self._last])  # what was handed over is written, whatever stopped the rest

    def _finish(self) -> None:
        if self._last is not None:
            last, self._last = self._last, None
            last.result()


def pinned(made: Made, device: AnyDevice) -> Made:
    """With its tensors of the host in pinned memory, where they go to a GPU."""
    if torch.device(device).type != "cuda":
        return made
    return _each_tensor(made, lambda tensor: tensor if tensor.is_cuda else tensor.pin_memory())


def moved(made: Made, device: AnyDevice) -> Made:
    """With its tensors on the device; from pinned memory nobody waits for the copy."""
    return _each_tensor(made, lambda tensor: tensor.to(device, non_blocking=True))


def new_host_tensor(shape: tuple[int, ...], device: AnyDevice) -> Tensor:
    """Uninitialised float32, pinned where it goes to a GPU."""
    return torch.empty(shape, pin_memory=torch.device(device).type == "cuda")


def to_host(values: Tensor) -> Callable[[], Tensor]:
    """Begin the copy to the host; the answer waits for it, and for nothing that came after."""
    if not values.is_cuda:
        return values.cpu
    landed = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    landed.copy_(values, non_blocking=True)
    arrival = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrival.record()

    def when_landed() -> Tensor:
        arrival.synchronize()
        return landed

    return when_landed


def _each_tensor(made: Made, change: Callable[[Tensor], Tensor]) -> Made:
    changed: Made = trees.tree_map_only(Tensor, change, made)
    return changed


@cache
def _thread() -> ThreadPoolExecutor:
    """On the GPU of the process: a new thread would see the first one."""
    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    gpu = torch.cuda.current_device() if used else None
    return ThreadPoolExecutor(1, "ocm-beside", *(() if gpu is None else (_use_gpu, (gpu,))))


def _use_gpu(gpu: int) -> None:
    torch.cuda.set_device(gpu)
