"""Counts against closed forms, and on the meta device against those of real tensors."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from ocm_core.artifacts.heads import new_head
from ocm_core.artifacts.score import new_denoiser, new_score
from ocm_core.artifacts.trained import frozen
from ocm_core.checkpoints.registry import CHECKPOINTS
from ocm_core.covariance import build_all
from ocm_core.networks._layers import Attention
from ocm_core.params.resolved import load
from ocm_core.planning.network_counts import count_networks
from ocm_core.planning.operation_counts import (
    NOTHING,
    OperationCount,
    count_batch,
    count_operations,
)
from ocm_core.rng.batches import BatchRng
from ocm_core.schema.experiment import MethodParams
from ocm_core.training.batches import InMemory, Unlabelled
from ocm_core.training.head_fitting import HeadFitting


def on_meta(module: nn.Module) -> nn.Module:
    return module.to("meta").requires_grad_(False)


def empty(*shape: int, **options) -> torch.Tensor:
    return torch.empty(*shape, device="meta", **options)


def test_a_convolution():
    layer = on_meta(nn.Conv2d(3, 8, 3, padding=1))
    found = count_batch(lambda n: partial(layer, empty(n, 3, 16, 16)))
    weights, read, written = 4 * (3 * 8 * 9 + 8), 4 * 3 * 16**2, 4 * 8 * 16**2
    moved = read + written
    assert found.each == OperationCount(2 * 9 * 3 * 8 * 16**2, 0, moved, moved, written)
    assert found.shared == OperationCount(0, 0, weights, weights, 0)
    assert found.of(5).operations == 5 * found.each.operations
    assert found.per_item(4).bytes == found.each.bytes + weights / 4
    assert found.fitting(10.5 * written) == 10


def test_a_linear_layer_forward_and_backward():
    forward, trained = 2 * 5 * 32 * 64, 2
    layer, x = on_meta(nn.Linear(32, 64)), empty(5, 32, requires_grad=True)
    work = count_operations(lambda: torch.autograd.grad(layer(x).sum(), x))
    assert (work.products, work.convolutions) == (2 * forward, 0)
    layer.requires_grad_(True)
    work = count_operations(lambda: layer(x).sum().backward())
    assert work.products == (1 + trained) * forward


@pytest.mark.parametrize("fused", [False, True])
def test_attention(fused):
    attention = Attention()
    attention.fused = fused
    heads, tokens, width = 4, 64, 32
    found = count_operations(lambda: attention(*(empty(2, heads, tokens, width) for _ in range(3))))
    assert found.products == 2 * heads * (2 * 2 * tokens**2 * width)


def test_what_moves_bytes_and_what_does_not():
    x = empty(8, 16)
    assert count_operations(lambda: x.view(16, 8).t()[2:].unsqueeze(0)).bytes == 0
    assert count_operations(lambda: torch.empty_like(x)).bytes == 0
    assert count_operations(lambda: F.silu(x)).bytes == 2 * 4 * 8 * 16
    assert count_operations(lambda: empty(16).expand(8, 16) + x).bytes == 4 * (16 + 2 * 8 * 16)
    assert count_operations(lambda: F.silu(x)).least_bytes == 0


def test_memory_is_what_exists_at_a_time():
    x, size = empty(8, 16), 4 * 8 * 16

    def chain(kept: list) -> None:
        hidden = x
        for _ in range(5):
            hidden = hidden + 1
            kept.append(hidden)

    assert count_operations(lambda: chain([])).memory == 5 * size
    assert count_operations(lambda: x.exp().log().exp().log()).memory == 2 * size


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_what_a_head_adds_to_a_sampling_step(name):
    checkpoint, shape = CHECKPOINTS[name], load(name).shape
    with torch.device("meta"), torch.no_grad():
        network, x = checkpoint.network().eval(), torch.empty(1, *shape)
        head, time = network.make_head(checkpoint.head), torch.empty(1)
        label = torch.zeros(1, dtype=torch.int64) if network.conditional else None
        trunk = count_operations(partial(network, x, time, label)).operations
        with_head = (
            trunk + count_operations(partial(head, network.features(x, time, label))).operations
        )
    if checkpoint.head in ("simple", "adaln"):
        assert with_head <= 1.01 * trunk
    elif shape[-1] == 64:
        assert with_head <= 1.06 * trunk
    if name == "imagenet256":  # DiT-XL/2: 118.64 Gflops in its paper, which counts multiply-adds
        assert trunk / 2e9 == pytest.approx(118.64, rel=1e-3)


def test_real_tensors_give_the_same_operations():
    """As the stages run: the real denoiser, several heads, and all of their probes."""
    experiment = load("cifar10_cs_smoke")
    more = MethodParams(kind="ocm", needs="head", probes=3)
    methods = experiment.methods | {"ocm": more, "again": more}
    experiment = experiment.model_copy(update={"methods": methods})
    network = frozen(new_score(experiment, "published"), "cpu")
    learned = {k: m for k, m in build_all(experiment.methods).items() if m.needs == "head"}
    heads = {label: new_head(experiment, label, network, None) for label in learned}
    denoiser = replace(new_denoiser(experiment, network), heads=heads)
    found, x = count_networks(experiment), torch.zeros(3, *experiment.shape)
    predict = torch.no_grad()(partial(denoiser.predict, x, 1))
    assert count_operations(predict).operations == found.evaluation.of(3).operations
    items = Unlabelled(InMemory(torch.zeros(3, *experiment.shape)))
    fitting = HeadFitting(denoiser, learned, items, None)

    def step() -> None:
        losses = fitting.losses(BatchRng(0, 0, 3))
        torch.stack([loss.sum() for loss in losses.values()]).sum().backward()

    assert found.probes == 3
    assert count_operations(step).operations == found.training.of(3).operations


def test_networks_are_counted_where_no_method_has_a_head():
    experiment = load("cifar10_cs_smoke")
    every = count_networks(experiment)
    methods = {"exact_diag": MethodParams(kind="exact_diag", needs="nothing")}
    found = count_networks(experiment.model_copy(update={"methods": methods}))
    assert (found.evaluation, found.product) == (every.evaluation, every.product)
    assert (found.head.of(7), found.head_parameters, found.probes) == (NOTHING, 0, 0)
    both = every.evaluation.of(7).operations + every.product.of(7).operations
    assert found.training.of(7).operations == both
