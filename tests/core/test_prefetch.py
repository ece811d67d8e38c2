"""Work beside the main thread: in order, one ahead, its errors raised, nothing left behind."""

from __future__ import annotations

import threading
from contextlib import closing
from threading import Event, get_ident
from typing import NamedTuple

import numpy as np
import pytest
import torch

from ocm_core.prefetch import in_background, moved, pinned, prefetch, to_host
from ocm_core.rng import noise
from ocm_core.rng.noise import SampleNoise


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


@pytest.mark.parametrize("draws", [0, 1, 5, 9])
@pytest.mark.parametrize("block", [1, 64 * 2**20])
def test_noise_is_the_same_drawn_ahead_or_not(
    draws: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn(of: SampleNoise) -> torch.Tensor:
        return torch.stack([of.normal() for _ in range(7)] + [of.signs() for _ in range(3)])

    expected = drawn(SampleNoise(3, range(4), (5,)))
    monkeypatch.setattr(noise, "_BLOCK_BYTES", block)
    assert torch.equal(drawn(SampleNoise(3, range(4), (5,), draws=draws)), expected)


def test_no_more_noise_is_drawn_than_was_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    plain = noise._normals

    def counted(source: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        steps.append(shape[0])
        return plain(source, shape)

    monkeypatch.setattr(noise, "_normals", counted)
    announced = SampleNoise(3, range(1), (5,), draws=10)
    for _ in range(10):
        announced.normal()
    assert sum(steps) == 10
