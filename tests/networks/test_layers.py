from math import prod
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from ocm_core.networks import _layers as layers

sizes = st.tuples(*(st.integers(1, 5) for _ in range(4)))


class SoftmaxDtypes(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._softmax.default:
            self.seen.add(output.dtype)
        return output


@settings(deadline=None, max_examples=25)
@given(shape=sizes, seed=st.integers(0, 2**31))
def test_attention_is_that_of_torch(shape: tuple[int, ...], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randn(3, *shape, generator=generator, dtype=torch.float64)
    expected = F.scaled_dot_product_attention(*tokens)
    assert_close(layers.attend(*tokens), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("dtype", "softmax"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64,) * 2],
)
def test_softmax_is_never_below_single_precision(dtype: torch.dtype, softmax: torch.dtype) -> None:
    query = torch.ones(1, 1, 2, 4, dtype=dtype)
    with SoftmaxDtypes() as dtypes:
        assert layers.attend(query, query, query).dtype == dtype
    assert dtypes.seen == {softmax}


@given(shape=sizes, heads=st.integers(1, 3))
def test_tokens_and_map_are_inverse(shape: tuple[int, ...], heads: int) -> None:
    batch, width, height, columns = shape
    shape = (batch, heads * width, height, columns)
    pixels = torch.arange(prod(shape)).reshape(shape)
    tokens = layers.map_to_tokens(pixels, heads)
    assert tokens.shape == (batch, heads, height * columns, width)
    assert torch.equal(layers.tokens_to_map(tokens, pixels.shape), pixels)


def test_angles_span_the_stated_frequencies() -> None:
    angles = layers.time_angles(torch.tensor([1000]), half=5, steps=4)
    assert_close(angles, torch.tensor([[1000.0, 100.0, 10.0, 1.0, 0.1]]))


@given(time=st.integers(0, 4000))
def test_encoding_is_the_same_for_integer_and_float_times(time: int) -> None:
    integer, floating = torch.tensor([time]), torch.tensor([float(time)])
    encoding = layers.cosine_first(integer, 8)
    assert torch.equal(encoding, layers.cosine_first(floating, 8))
    assert_close(encoding.square().sum(), torch.tensor(4.0))
