"""No two purposes, seeds, indices, timesteps or parts share random numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ocm_core.errors import OcmError
from ocm_core.rng import streams
from ocm_core.rng.streams import LARGEST_SEED, LARGEST_TIME, Stream, stream

PACKAGE = Path(streams.__file__).parents[1]
MAKES_A_GENERATOR = re.compile(
    r"np\.random\.(?!Generator\b(?!\())|torch\.Generator|manual_seed|(?<!\.)\brandom\.(?!fork_rng)\w"
)
SEEDS = st.integers(0, LARGEST_SEED) | st.integers(0, 2**21)
INDICES = st.integers(0, 2**64 - 1) | st.integers(0, 5)


@st.composite
def places(draw: st.DrawFn) -> tuple[Stream, int, int, int, int]:
    purpose = draw(st.sampled_from(Stream))
    time = draw(st.integers(1, LARGEST_TIME)) if purpose.value[2] else 0
    return purpose, draw(SEEDS), draw(INDICES), time, draw(INDICES)


def state(source: np.random.Generator) -> tuple[Any, ...]:
    """Where a stream begins: the kind of generator, its key, and all but the counter's low word."""
    inner = source.bit_generator.state
    if inner["bit_generator"] != "Philox":
        return (inner["bit_generator"],)
    assert inner["state"]["counter"][0] == 0
    return (*inner["state"]["key"].tolist(), *inner["state"]["counter"][1:].tolist())


def at(place: tuple[Stream, int, int, int, int]) -> tuple[Any, ...]:
    purpose, seed, index, time, part = place
    return state(stream(purpose, seed, index, time=time, part=part))


@given(places(), places())
def test_streams_at_two_places_never_meet(one: Any, other: Any) -> None:
    assert (at(one) == at(other)) == (one == other)


@given(SEEDS, SEEDS, st.integers(0, 3), places())
def test_what_data_sets_and_classifiers_draw_meets_nothing(
    seed: int, other: int, split: int, place: Any
) -> None:
    dataset = state(streams.dataset_stream(seed, split))
    assert dataset != at(place)
    assert (dataset == state(streams.dataset_stream(other, split))) == (seed == other)
    assert dataset != state(streams.dataset_stream(seed, split + 1))
    assert state(streams.held_out_stream(seed)) == ("PCG64",)


def test_purposes_differ() -> None:
    """By `__members__`: iteration over an Enum leaves out names that are aliases."""
    members = Stream.__members__
    assert len({purpose.value for purpose in members.values()}) == len(members)


def test_first_weights_have_seeds_of_their_own() -> None:
    names = ["", "score", "vae", "ocm", "npr", "sn", "iddpm", "ocm_relative", "ocm_plain"]
    seeds = set()
    for seed in range(50):
        for name in names:
            streams.seed_torch(seed, name)
            seeds.add(torch.initial_seed())
    assert len(seeds) == 50 * len(names)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stream(Stream.SAMPLE_NORMAL, -1), "seed = -1: expected 0 ≤ seed"),
        (lambda: stream(Stream.SAMPLE_NORMAL, 2**40), "seed = "),
        (lambda: stream(Stream.LIKELIHOOD_NORMAL, 0, time=4096), "timestep = 4096: expected"),
        (lambda: stream(Stream.SAMPLE_NORMAL, 0, -2), "index = -2: expected"),
    ],
)
def test_what_has_no_place_is_refused(call: Any, message: str) -> None:
    with pytest.raises(OcmError, match=re.escape(message)):
        call()


def test_a_timestep_where_it_does_not_belong_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="LIKELIHOOD_NORMAL needs a timestep"):
        stream(Stream.LIKELIHOOD_NORMAL, 0)
    with pytest.raises(ValueError, match="SAMPLE_NORMAL has no timestep"):
        stream(Stream.SAMPLE_NORMAL, 0, time=3)


def test_no_other_module_makes_a_generator() -> None:
    allowed = {"rng/streams.py", "rng/batches.py"}  # the latter seeds torch for dropout
    makers = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if MAKES_A_GENERATOR.search(re.sub("#.*", "", file.read_text()))
    }
    assert makers == allowed
