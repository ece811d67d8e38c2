"""Every random generator of this package, by purpose. No other module makes one (a test looks).

A stream is Philox, a counter-based generator, at a place of its own: seed, timestep and index are
the key, purpose and part are the upper words of the counter, and drawing moves the lowest word. Two
streams that differ in any of the five never meet; tests/core/test_streams.py tries.
"""

from enum import Enum, unique
from zlib import crc32

import numpy as np
import torch

from ocm_core.errors import OcmError

_SEED_BITS, _TIME_BITS = 20, 12  # of the seed, then the timestep; the seed's other bits follow
LARGEST_SEED = 2**32 - 1
LARGEST_TIME = 2**_TIME_BITS - 1


@unique
class Stream(Enum):
    """The purpose of numbers: two words of the counter, and whether a timestep is in the key."""

    # of sample `index`
    SAMPLE_NORMAL = (0, 0, False)
    SAMPLE_SIGN = (0, 1, False)
    SAMPLE_LABEL = (0, 2, False)
    # of sample `index` by which heads are chosen
    SELECTION_NORMAL = (9, 0, False)
    SELECTION_SIGN = (9, 1, False)
    # of test image `index` at a timestep
    LIKELIHOOD_NORMAL = (0, 0, True)
    LIKELIHOOD_SIGN = (0, 1, True)
    DEVIATION_NORMAL = (3, 0, True)
    DEVIATION_SIGN = (3, 1, True)
    COVARIANCE_ERROR_NORMAL = (4, 0, True)
    COVARIANCE_ERROR_SIGN = (4, 1, True)
    # of training image `index`, the same at every t, where timesteps are chosen; which images
    TIMESTEPS_NORMAL = (8, 0, False)
    TIMESTEPS_SIGN = (8, 1, False)
    TIMESTEPS_ITEMS = (8, 2, False)
    # of training batch `index`, the row being the part of normal draws and signs; of epoch `index`,
    # part by part, where items are shuffled
    BATCH_ITEMS = (1, 0, False)
    BATCH_TIMES = (1, 1, False)
    BATCH_NORMAL = (1, 2, False)
    BATCH_SIGN = (1, 3, False)
    BATCH_UNIFORM = (1, 4, False)
    BATCH_TORCH = (1, 5, False)
    # of batch `index` at a timestep: means of training targets, to which heads may be relative
    BASELINE_NORMAL = (1, 2, True)
    BASELINE_SIGN = (1, 3, True)
    BASELINE_UNIFORM = (1, 4, True)
    BASELINE_TORCH = (1, 5, True)
    # of the store: chunks of epoch `index`; posterior noise of batch `index`, the row being the
    # part, and of item `index`
    STORE_CHUNKS = (2, 0, False)
    STORE_ROW = (2, 1, False)
    STORE_ITEM = (2, 2, False)
    # subset `index` of either side of a kernel distance; the points whose manifold is measured
    KERNEL_REAL = (5, 0, False)
    KERNEL_GENERATED = (5, 1, False)
    MANIFOLD = (5, 2, False)
    # generated image `index`, the split being the part; points of a density, split by split
    GENERATED_IMAGE = (6, 0, False)
    MIXTURE_POINTS = (6, 1, False)
    MIXTURE_FRESH = (6, 2, False)  # for the distance that a perfect sampler would have
    # trajectories of the model, and of the forward process from points of the data, all at once
    PATH_NORMAL = (10, 0, False)
    PATH_SIGN = (10, 1, False)
    FORWARD_NORMAL = (10, 2, False)
    FORWARD_SIGN = (10, 3, False)
    FORWARD_POINTS = (10, 4, False)
    # of a draw that restores, `index` being that of the image and, in the upper words, of the draw:
    # its own, and the noise of the measurement that it sees; the noise of test image `index`; masks
    RESTORE_NORMAL = (12, 0, False)
    RESTORE_SIGN = (12, 1, False)
    MEASUREMENT_NORMAL = (12, 2, False)
    MEASUREMENT_SIGN = (12, 3, False)
    OBSERVED_NORMAL = (12, 4, False)
    OBSERVED_SIGN = (12, 5, False)
    MASK = (12, 6, False)
    # the pattern over the bits that images are coded with
    STACK = (11, 0, False)
    # without consequence for any number
    TIMING_NORMAL = (7, 0, False)
    TIMING_SIGN = (7, 1, False)


def stream(
    purpose: Stream, seed: int, index: int = 0, *, time: int = 0, part: int = 0
) -> np.random.Generator:
    """Return the generator of a stream for a seed, an index, a timestep and a part."""
    family, draw, timed = purpose.value
    if (time > 0) != timed:
        raise ValueError(f"{purpose.name} {'needs a' if timed else 'has no'} timestep; got {time}")
    # one word for seed and timestep, equal to the seed for seeds below 2²⁰ without a timestep
    high, low = divmod(_checked("seed", seed, LARGEST_SEED), 1 << _SEED_BITS)
    middle = _checked("timestep", time, LARGEST_TIME)
    word = low + (middle << _SEED_BITS) + (high << (_SEED_BITS + _TIME_BITS))
    key = [word, _checked("index", index, 2**64 - 1)]
    counter = [0, _checked("part", part, 2**64 - 1), family, draw]
    # as words: NumPy takes a list with a number above 2⁶³ for floats
    given = {"key": np.array(key, np.uint64), "counter": np.array(counter, np.uint64)}
    return np.random.Generator(np.random.Philox(**given))


def dataset_stream(seed: int, split: int = 0) -> np.random.Generator:
    """Return a data set's generator; NumPy hashes the seed, as the first data sets were divided."""
    counter = np.array([0, 0, 0, _checked("split", split, 2**64 - 1)], np.uint64)
    bits = np.random.Philox(_checked("seed", seed, LARGEST_SEED), counter=counter)
    return np.random.Generator(bits)


def held_out_stream(seed: int) -> np.random.Generator:
    """Return the generator of the images that a classifier is not trained on, of another kind."""
    return np.random.default_rng(_checked("seed", seed, LARGEST_SEED))


def seed_torch(seed: int, network: str = "") -> None:
    """Seed torch's own generator for the first weights of a network, each by its own name.

    What networks draw later, such as dropout, is seeded for each batch (`BatchRng.seed_torch`).
    """
    _checked("seed", seed, LARGEST_SEED)
    torch.manual_seed(seed * 2**32 + crc32(network.encode()) if network else seed)


def _checked(what: str, value: int, largest: int) -> int:
    if not 0 <= value <= largest:
        raise OcmError(f"{what} = {value}: expected 0 ≤ {what} ≤ {largest}")
    return value
