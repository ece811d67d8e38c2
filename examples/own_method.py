"""A covariance method of your own, against others where everything is known in closed form.

    python examples/own_method.py --share 0.9

Nine Gaussians in the plane, their true score, and ten steps of DDPM: the distance of the samples to
the data (MMD, lower is better). With a file of its own in ocm_core/covariance/ the method can be
named in every experiment; docs/adding.md goes on from here.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from ocm_core import covariance
from ocm_core.covariance.interface import CovarianceMethod, PosteriorMethod
from ocm_core.datasets.mixture import open_data
from ocm_core.diffusion.chains import even
from ocm_core.diffusion.denoiser import Denoiser, Prediction
from ocm_core.diffusion.schedule import linear
from ocm_core.metrics.mmd import MmdTo
from ocm_core.networks.mixture import true_score
from ocm_core.params.resolved import load
from ocm_core.rng.noise import SampleNoise
from ocm_core.samplers.ancestral import ddpm


class Share(PosteriorMethod):
    """Of the data given x_t, a share of the variance that a white x_0 would have."""

    share: float = 0.5

    def c(self, prediction: Prediction) -> Tensor:
        return self.share * prediction.marginal[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--count", type=int, default=1000, help="of samples")
    given = parser.parse_args()
    experiment = load("toy_mog9")
    test = open_data(experiment.data, Path()).splits["test"].read(range(given.count))
    distance = MmdTo.set(torch.from_numpy(test), experiment.evaluate.mmd.bandwidths)
    schedule = linear(1000)
    model = Denoiser(true_score(experiment.data, schedule), schedule)
    methods: list[CovarianceMethod] = [
        *(covariance.build(name) for name in ("beta", "beta_tilde", "exact_diag")),
        Share(label="share", share=given.share),
    ]
    for method in methods:  # from the same noise
        noise = SampleNoise(0, range(given.count), (2,))
        samples = ddpm(model, method, even(schedule.steps, 10), noise).x
        print(f"{method.label:>10}: {distance(samples):.3f}")


if __name__ == "__main__":
    main()
