"""Four particles in double wells: the energy, its integral, the chains, and their network."""

from math import log, pi

import numpy as np
import pytest
import torch

from ocm_core.datasets import double_wells
from ocm_core.datasets.double_wells import DIFFERENCES, DoubleWellsData, Q
from ocm_core.diffusion.schedule import linear
from ocm_core.networks.pairs import PairScore

DATA = DoubleWellsData(kind="double_wells")
POINTS = torch.from_numpy(DATA.density.draw(2000, np.random.default_rng(0)))
ORDER = [2, 0, 3, 1]


def moved(z: torch.Tensor) -> torch.Tensor:
    """Exchange the particles, and turn and reflect the plane."""
    basis, angle = torch.from_numpy(Q), torch.tensor(0.7).double()
    c, s = angle.cos(), angle.sin()
    turned = (basis @ z.double().unflatten(1, (3, 2)))[:, ORDER] @ torch.tensor([[c, s], [s, -c]])
    return (basis.mT @ turned).flatten(1)


def test_the_energy_is_that_of_distances() -> None:
    np.testing.assert_allclose(Q.T @ Q, np.eye(3), atol=1e-12)
    assert double_wells.pair_energy(np.array([4.0, 3.0, 6.0])).tolist() == pytest.approx(
        [0, -3.1, -1.6]
    )
    particles = DATA.scale * torch.from_numpy(Q) @ POINTS[:50].unflatten(1, (3, 2))
    distances = torch.stack([torch.pdist(p) for p in particles])
    expected = -double_wells.pair_energy(distances).sum(1)
    found = DATA.density.log_density(POINTS[:50])
    torch.testing.assert_close(found - found[0], expected - expected[0])
    torch.testing.assert_close(DATA.density.log_density(moved(POINTS)[:50]), found)


def test_the_integral_of_springs_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Σ_{i<j} d_ij² is 4 |z|²."""
    monkeypatch.setattr(double_wells, "pair_energy", lambda d: d**2 / 8)
    assert double_wells.log_z.__wrapped__() == pytest.approx(3 * log(2 * pi), abs=1e-3)


def test_chains_have_the_distances_of_the_density(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of Σ d_ij, which says how many pairs are in which well, is a derivative of log Z."""
    distances = np.linalg.norm(DIFFERENCES @ POINTS.numpy().reshape(-1, 3, 2), axis=-1).sum(1)
    energy, logs = double_wells.pair_energy, []
    for force in (-1e-3, 1e-3):
        monkeypatch.setattr(double_wells, "pair_energy", lambda d, f=force: energy(d) + f * d)
        logs.append(double_wells.log_z.__wrapped__())
    expected, found = (logs[0] - logs[1]) / 2e-3, DATA.scale * distances
    assert abs(found.mean() - expected) < 3 * found.std() / len(found) ** 0.5


def test_chains_are_in_balance_with_the_gradient() -> None:
    """E[z · ∇ log q] = -6, in each of the six coordinates -1."""
    z = POINTS.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(DATA.density.log_density(z).sum(), z)
    products = (z * slope).detach()
    assert bool(((products.mean(0) + 1).abs() < 4 * products.std(0) / len(z) ** 0.5).all())
    step = torch.eye(6).double() * 1e-5
    ends = [DATA.density.log_density(POINTS[:1] + sign * step) for sign in (1, -1)]
    torch.testing.assert_close(slope[0], (ends[0] - ends[1]) / 2e-5, rtol=1e-4, atol=1e-3)


def test_the_network_turns_with_the_particles() -> None:
    torch.manual_seed(0)
    network = PairScore(linear(1000), 1.0, 16, 2, 6).double()
    torch.nn.init.normal_(network.net.net.layers[-1].weight)
    times = torch.full((50,), 100)
    turned = moved(network(POINTS[:50], times))
    torch.testing.assert_close(network(moved(POINTS[:50]), times), turned, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(turned, network(POINTS[:50], times), atol=0.1)
