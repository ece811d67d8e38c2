"""Sample i draws the same noise whatever batch, block or process it is drawn in."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from ocm_core import covariance
from ocm_core.diffusion import schedule
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.networks.mlp import MlpScore
from ocm_core.rng.noise import SampleNoise
from tests.core.doubles import ddpm


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


def samples(indices):
    torch.manual_seed(0)
    network = MlpScore(schedule.linear(100), 1.0, 16, 2, "gaussian").eval()
    torch.nn.init.normal_(network.net.layers[-1].weight, std=0.1)
    model, method = Denoiser(network, schedule.linear(100)), covariance.build("exact_diag")
    return ddpm(model, method, rules.even(100, 10), SampleNoise(3, indices, (2,))).x


@pytest.mark.parametrize("size", [1, 7, 64])
def test_samples_do_not_depend_on_the_batch(size):
    batches = [samples(range(i, min(i + size, 64))) for i in range(0, 64, size)]
    torch.testing.assert_close(torch.cat(batches), samples(range(64)), rtol=1e-5, atol=1e-5)


HALF = """
import sys, numpy as np, torch
torch.set_num_threads(1)
from tests.core.test_noise import samples
first, last, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
np.save(path, samples(range(first, last)).numpy())
"""


def test_two_processes_draw_what_one_draws(tmp_path):
    jobs = [
        subprocess.Popen([sys.executable, "-c", HALF, str(a), str(b), str(tmp_path / f"{a}.npy")])
        for a, b in ((0, 32), (32, 64))
    ]
    assert [job.wait() for job in jobs] == [0, 0]
    halves = np.concatenate([np.load(tmp_path / f"{a}.npy") for a in (0, 32)])
    torch.testing.assert_close(torch.from_numpy(halves), samples(range(64)), rtol=1e-5, atol=1e-5)
