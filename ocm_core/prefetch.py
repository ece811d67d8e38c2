"""Host work beside the device's: one background thread that draws, reads and writes.

Data for a GPU are put into pinned memory by that thread and copied from there while the GPU
computes. Without a GPU the thread shortens the main thread's work just the same.
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


def in_background(
    work: Callable[Given, Made], *given: Given.args, **named: Given.kwargs
) -> Future[Made]:
    """Run `work` in the background thread, after earlier work; it must not wait for later work."""
    return _thread().submit(work, *given, **named)


def prefetch(make: Callable[[Item], Made], items: Iterable[Item]) -> Generator[Made]:
    """Yield `make(item)` of each item in order; while one is used, the next is being made."""
    coming: deque[Future[Made]] = deque()
    try:
        for item in items:
            coming.append(in_background(make, item))
            if len(coming) > 1:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
    finally:
        for future in coming:
            future.cancel()


class WriteBehind:
    """One write at a time in the background; leaving the block waits for the last.

    An error of a write is raised by the next one, or at the end.
    """

    def __init__(self) -> None:
        self._last: Future[None] | None = None

    def write(self, work: Callable[Given, None], *given: Given.args, **named: Given.kwargs) -> None:
        """Begin a write once the one before it is finished."""
        self._finish()
        self._last = in_background(work, *given, **named)

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
    """Put the host tensors of any structure into pinned memory, if they go to a GPU."""
    if torch.device(device).type != "cuda":
        return made
    return _each_tensor(made, lambda tensor: tensor if tensor.is_cuda else tensor.pin_memory())


def moved(made: Made, device: AnyDevice) -> Made:
    """Move the tensors of any structure to the device; from pinned memory without waiting."""
    return _each_tensor(made, lambda tensor: tensor.to(device, non_blocking=True))


def new_host_tensor(shape: tuple[int, ...], device: AnyDevice) -> Tensor:
    """Allocate float32 without values, pinned if it goes to a GPU."""
    return torch.empty(shape, pin_memory=torch.device(device).type == "cuda")


def to_host(values: Tensor) -> Callable[[], Tensor]:
    """Begin a copy to the host; the returned function waits for it, and for nothing later."""
    if not values.is_cuda:
        return values.cpu
    copied = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    copied.copy_(values, non_blocking=True)
    arrival = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrival.record()

    def when_copied() -> Tensor:
        arrival.synchronize()
        return copied

    return when_copied


def _each_tensor(made: Made, change: Callable[[Tensor], Tensor]) -> Made:
    changed: Made = trees.tree_map_only(Tensor, change, made)
    return changed


@cache
def _thread() -> ThreadPoolExecutor:
    """Make the thread use the process's GPU: a new thread would see the first one."""
    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    gpu = torch.cuda.current_device() if used else None
    return ThreadPoolExecutor(1, "ocm-background", *(() if gpu is None else (_use_gpu, (gpu,))))


def _use_gpu(gpu: int) -> None:
    torch.cuda.set_device(gpu)
