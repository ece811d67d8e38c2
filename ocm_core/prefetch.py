"""Host work beside the device's: one background thread that draws, reads, pins and writes."""

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import ParamSpec, TypeVar

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
    coming: Future[Made] | None = None
    try:
        for item in items:
            ready, coming = coming, in_background(make, item)
            if ready is not None:
                yield ready.result()
        if coming is not None:
            yield coming.result()
    finally:
        if coming is not None:
            coming.cancel()


def pinned(made: Made, device: AnyDevice) -> Made:
    """Put the host tensors of any structure into pinned memory, if they go to a GPU."""
    if torch.device(device).type != "cuda":
        return made
    return trees.tree_map_only(Tensor, lambda x: x if x.is_cuda else x.pin_memory(), made)  # type: ignore[no-any-return]


def moved(made: Made, device: AnyDevice) -> Made:
    """Move the tensors of any structure to the device; from pinned memory without waiting."""
    return trees.tree_map_only(Tensor, lambda x: x.to(device, non_blocking=True), made)  # type: ignore[no-any-return]


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


@cache
def _thread() -> ThreadPoolExecutor:
    """Make the thread use the process's GPU: a new thread would see the first one."""
    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    start = (torch.cuda.set_device, (torch.cuda.current_device(),)) if used else ()
    return ThreadPoolExecutor(1, "ocm-background", *start)
