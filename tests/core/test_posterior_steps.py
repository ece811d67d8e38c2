"""Every posterior step of the published code: mean and variance, all methods, clipped and not."""

import numpy as np
import pytest
import torch
from torch import nn

from ocm_core import covariance
from ocm_core.covariance.interface import UNCLIPPED, Clip, ReverseStep
from ocm_core.covariance.learned import CovarianceHead
from ocm_core.diffusion import schedule
from ocm_core.diffusion.denoiser import Denoiser, Prediction
from ocm_core.diffusion.kernels.ddim import Ddim
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.score_network import TrunkFeatures
from ocm_core.diffusion.transition import transition
from tests.core.doubles import Replay
from tests.goldens_io import arrays, assert_close, facts

KERNELS = {"ddpm": Ddpm(), "ddim0": Ddim(eta=0.0), "ddim0.5": Ddim(eta=0.5)}
CLIPS = {"clip0": UNCLIPPED, "clip1": Clip(x0=1.0, c_min=0.0, c_max=1.0)}
TOLERANCE = {"f64": 1e-10, "f32": 2e-5}
NAMES = {"small": "beta_tilde", "big": "beta"}
HEADS = ("sn", "npr", "ocm", "iddpm")


class Constant(nn.Module):
    """A head that says what the golden file says."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, features):
        return self.value


def prediction(tag, row, t, dtype):
    golden = arrays("posterior_steps")
    x, eps = (torch.tensor(golden[f"{tag}/{k}"][row]).to(dtype) for k in ("x", "eps"))
    heads = {
        name: CovarianceHead(Constant(torch.tensor(golden[f"{tag}/second_{name}"][row]).to(dtype)))
        for name in HEADS
    }
    case = facts("posterior_steps")["cases"][tag]
    moments = torch.tensor(1 - golden[f"{tag}/ms_eps"]).double()
    denoiser = Denoiser(
        None, schedule.build(case["schedule"], case["N"]), heads=heads, moments=moments
    )
    times = torch.full((len(x),), t)
    return Prediction(x, times, eps, None, denoiser, None, TrunkFeatures(x, x))


def cases():
    for key in arrays("posterior_steps").files:
        parts = key.split("/")
        if parts[-1] == "sigma2":
            yield tuple(parts[:-1])


@pytest.mark.parametrize("tag, precision, method, forward, clip", list(cases()))
def test_variance_of_every_step(tag, precision, method, forward, clip):
    golden = arrays("posterior_steps")
    name = "delta" if method == "small" and forward != "ddpm" else NAMES.get(method, method)
    dtype = torch.float64 if precision == "f64" else torch.float32
    for row, (s, t) in enumerate(golden[f"{tag}/pairs"].tolist()):
        seen = prediction(tag, row, t, dtype)
        step = ReverseStep(transition(seen.denoiser.schedule, s, t), KERNELS[forward], CLIPS[clip])
        ours = covariance.build(name).step_covariance(seen, Replay([]))(step)
        expected = golden[f"{tag}/{precision}/{method}/{forward}/{clip}/sigma2"][row]
        # the reference forms 1 - Γ in float32, hence the looser floor for `analytic`
        tolerance = max(TOLERANCE[precision], 1e-7 if method == "analytic" else 0.0)
        assert_close(ours.diagonal(seen.x), np.broadcast_to(expected, seen.x.shape), tolerance)


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("forward", KERNELS)
@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("tag", facts("posterior_steps")["cases"])
def test_mean_of_every_step(tag, precision, forward, clip):
    golden = arrays("posterior_steps")
    dtype = torch.float64 if precision == "f64" else torch.float32
    for row, (s, t) in enumerate(golden[f"{tag}/pairs"].tolist()):
        seen = prediction(tag, row, t, dtype)
        step = ReverseStep(transition(seen.denoiser.schedule, s, t), KERNELS[forward], CLIPS[clip])
        expected = golden[f"{tag}/{precision}/mean/{forward}/{clip}"][row]
        assert_close(step.mean(seen), expected, TOLERANCE[precision])
