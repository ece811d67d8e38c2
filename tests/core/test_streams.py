"""No two places share random numbers; sample i draws its own noise in any batch or block."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from ocm_core.errors import OcmError
from ocm_core.rng import noise, streams
from ocm_core.rng.noise import SampleNoise
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


FIRST = (Stream.SAMPLE_NORMAL, 0, 0, 0)


@given(places(), places())
@example((*FIRST, 0), (*FIRST, 2**64 - 1024))  # which NumPy would read as floats
def test_streams_at_two_places_never_meet(one: Any, other: Any) -> None:
    assert (at(one) == at(other)) == (one == other)


@given(SEEDS, SEEDS, st.integers(0, 3), places())
def test_what_data_sets_draw_meets_nothing(seed: int, other: int, split: int, place: Any) -> None:
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


def test_what_has_no_place_is_refused_and_a_wrong_timestep_a_mistake_of_the_caller() -> None:
    normal, bound = Stream.SAMPLE_NORMAL, Stream.LIKELIHOOD_NORMAL
    for error, message, purpose, seed, place in (
        (OcmError, "seed = -1: expected 0 ≤ seed", normal, -1, {}),
        (OcmError, "seed = ", normal, 2**40, {}),
        (OcmError, "timestep = 4096: expected", bound, 0, {"time": 4096}),
        (OcmError, "index = -2: expected", normal, 0, {"index": -2}),
        (ValueError, "LIKELIHOOD_NORMAL needs a timestep", bound, 0, {}),
        (ValueError, "SAMPLE_NORMAL has no timestep", normal, 0, {"time": 3}),
    ):
        with pytest.raises(error, match=message):
            stream(purpose, seed, **place)


def test_no_other_module_makes_a_generator() -> None:
    allowed = {"rng/streams.py", "rng/batches.py"}  # the latter seeds torch for dropout
    makers = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if MAKES_A_GENERATOR.search(re.sub("#.*", "", file.read_text()))
    }
    assert makers == allowed


def in_batches(size, count=64, draws=70, shape=(3,), seed=5):
    batches = [range(i, min(i + size, count)) for i in range(0, count, size)]
    streams = [SampleNoise(seed, indices, shape) for indices in batches]
    normals = [torch.cat([s.normal() for s in streams]) for _ in range(draws)]
    signs = [torch.cat([s.signs() for s in streams]) for _ in range(draws)]
    return torch.stack(normals), torch.stack(signs)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_noise_is_bit_identical_over_batch_sizes(size):
    for ours, reference in zip(in_batches(size), in_batches(16), strict=True):
        assert torch.equal(ours, reference)


def test_streams_look_random_and_differ():
    normals, signs = in_batches(64, draws=200)
    assert abs(float(normals.mean())) < 0.02 and abs(float(normals.std()) - 1) < 0.02
    assert set(signs.unique().tolist()) == {-1.0, 1.0} and abs(float(signs.mean())) < 0.02
    correlations = torch.corrcoef(normals.permute(1, 0, 2).flatten(1)).fill_diagonal_(0.0)
    assert float(correlations.abs().max()) < 0.2


@pytest.mark.parametrize("draws", [0, 1, 5, 9])
@pytest.mark.parametrize("block", [1, 64 * 2**20])
def test_noise_drawn_ahead_is_the_same(
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
