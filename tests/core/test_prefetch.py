"""Work beside the main thread: in order, one ahead, its errors raised, nothing left behind."""

import threading
from contextlib import closing
from threading import Event, get_ident
from typing import NamedTuple

import pytest
import torch

from ocm_core.prefetch import in_background, moved, pinned, prefetch, to_host


def test_items_come_in_order_and_the_next_is_made_while_one_is_used() -> None:
    made = {n: Event() for n in range(4)}

    def make(n: int) -> tuple[int, int]:
        made[n].set()
        return n, get_ident()

    seen = []
    for n, thread in prefetch(make, range(4)):
        assert thread != get_ident()
        assert n == 3 or made[n + 1].wait(10)
        assert n + 2 > 3 or not made[n + 2].is_set()
        seen.append(n)
    assert seen == [0, 1, 2, 3]


def test_what_goes_wrong_is_raised_where_the_item_is_used() -> None:
    made = prefetch(lambda n: 1 / (2 - n), range(5))
    assert [next(made), next(made)] == [0.5, 1.0]
    with pytest.raises(ZeroDivisionError):
        next(made)


def test_a_loop_that_stops_leaves_nothing_to_be_made() -> None:
    made: list[int] = []
    started, go_on = Event(), Event()

    def make(n: int) -> int:
        if n == 1:
            started.set()
            go_on.wait(10)
        made.append(n)
        return n

    with closing(prefetch(make, range(100))) as items:
        next(items)
        started.wait(10)
    go_on.set()
    in_background(int).result()  # the thread has come to the end of its work
    assert made == [0, 1]
    assert sum(t.name.startswith("ocm-background") for t in threading.enumerate()) == 1


class Some(NamedTuple):
    x: torch.Tensor
    other: tuple[torch.Tensor | None, int]


def test_tensors_are_moved_wherever_they_are() -> None:
    given = Some(torch.ones(2), (torch.ones(3), 5))
    there = moved(pinned(given, "meta"), "meta")
    assert there.x.is_meta and there.other[0].is_meta and there.other[1] == 5
    assert moved(given, "cpu").x is given.x
    assert moved(Some(given.x, (None, 1)), "meta").other == (None, 1)
    assert torch.equal(to_host(given.x)(), given.x)
