"""How a sampler steps is chosen by its parameters alone."""

from __future__ import annotations

from typing import cast, get_args

import pytest

from ocm_core.cells import cells
from ocm_core.diffusion import chains
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.transition import Ddim, Ddpm, Kernel
from ocm_core.params.compose import compose
from ocm_core.samplers.cell_sampler import CellSampler
from ocm_core.schema.experiment import ChainKind


@pytest.mark.parametrize("kind", get_args(ChainKind))
def test_every_chain_can_be_chosen(kind: str) -> None:
    overrides = [f"sample.samplers.ddim.chain={kind}", f"evaluate.likelihood.chain={kind}"]
    experiment = compose("digits", overrides)
    assert experiment.sample.samplers["ddim"].chain == kind
    assert experiment.evaluate.likelihood and experiment.evaluate.likelihood.chain == kind


def test_no_chain_is_left_out() -> None:
    assert set(get_args(ChainKind)) == set(chains.CHAINS)


@pytest.mark.parametrize(
    ("sampler", "overrides", "kernel"),
    [
        ("ddpm", [], Ddpm()),
        ("ddim", [], Ddim(0.0)),
        ("ddim", ["eta=0.5"], Ddim(0.5)),
        ("ddim", ["rederive_eps=true"], Ddim(0.0, rederive_eps=True)),
    ],
)
def test_the_kernel_of_a_cell(sampler: str, overrides: list[str], kernel: Kernel) -> None:
    asked = [f"sample.samplers.{sampler}.{override}" for override in overrides]
    experiment = compose("toy_mog9", asked)
    cell = next(cell for cell in cells(experiment) if cell.sampler == sampler)
    no_network = cast(Denoiser, None)  # the kernel does not ask it
    assert CellSampler(experiment, no_network, cell, "cpu").kernel == kernel
