"""The probe of a network's Jacobian, on a mixture's exact score and on perfect students."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.jacobian import JacobianProbe, probe
from ocm_core.diffusion.mixture import Mixture
from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.networks.mixture import MixtureScore
from ocm_core.rng.noise import SampleNoise
from tests.core.doubles import KnownNetwork

SCHEDULE = schedules.linear(1000)
MIXTURE = Mixture(torch.randn(10, 64, generator=torch.Generator().manual_seed(0)).double(), 0.2)


class Student(KnownNetwork):
    """Says in one evaluation where the teacher's noiseless DDIM ends, as distilled networks do."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.teacher, self.steps = MixtureScore(MIXTURE, SCHEDULE), steps

    def readout(self, features: TrunkFeatures) -> Tensor:
        x, t = features.hidden, int(features.embedding[0])
        visited, y = np.unique(np.linspace(0, t, self.steps + 1).round().astype(int)), x
        for high, low in pairwise(visited[::-1].tolist()):
            (alpha_bar, b), (target, left) = SCHEDULE.marginal(high), SCHEDULE.marginal(low)
            eps = self.teacher(y, y.new_full((len(y),), high))
            y = target**0.5 * (y - b**0.5 * eps) / alpha_bar**0.5 + left**0.5 * eps
        alpha_bar, b = SCHEDULE.marginal(t)
        return (x - alpha_bar**0.5 * y) / b**0.5


def probed(network: ScoreNetwork, count: int = 1000) -> JacobianProbe:
    x0 = torch.from_numpy(MIXTURE.draw(count, np.random.default_rng(0))).float()
    return probe(Denoiser(network, SCHEDULE), x0, None, SampleNoise(0, range(count), (64,)))


def test_a_posterior_mean_is_symmetric_positive_and_as_wrong_as_it_says() -> None:
    found = probed(MixtureScore(MIXTURE, SCHEDULE))
    assert found.asymmetry < 0.01 and found.negative == 0 and 0.8 < found.ratio < 1.25
    assert found.is_covariance
    one_step = probed(Student(1))  # which is the posterior mean itself
    assert one_step.ratio == pytest.approx(found.ratio, rel=0.01)


def test_a_student_is_told_by_its_error_not_by_its_symmetry() -> None:
    found = probed(Student(12), count=400)
    assert found.asymmetry < 0.1 and found.negative == 0
    assert not found.is_covariance and "error over trace" in str(found)


def test_what_is_not_symmetric_or_not_positive_is_no_covariance() -> None:
    assert JacobianProbe(0.3, 0.0, 1.5).is_covariance
    for doubtful in ((0.7, 0.0, 1.0), (0.0, 0.1, 1.0), (0.0, 0.0, 3.0), (0.0, 0.0, -1.0)):
        assert not JacobianProbe(*doubtful).is_covariance
