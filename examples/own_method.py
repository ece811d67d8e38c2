"""A covariance method of your own, against others where everything is known in closed form.

    python examples/own_method.py --share 0.9

The data are nine Gaussians in the plane, with their exact score. It prints the distance of samples
to the data after ten DDPM steps (MMD, lower is better). With a file of its own in
ocm_core/covariance/ the method can be named in every experiment; docs/adding.md continues here.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from ocm_core import covariance
from ocm_core.covariance.interface import CovarianceMethod, PosteriorMethod
from ocm_core.diffusion.denoiser import Denoiser, Prediction
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.schedule import linear
from ocm_core.diffusion.timesteps import even
from ocm_core.metrics.mmd import MmdTo
from ocm_core.networks.mixture import exact_score
from ocm_core.params.compose import compose
from ocm_core.rng.noise import SampleNoise
from ocm_core.sampling.recipe import Recipe
from ocm_core.stages import mmd


class Share(PosteriorMethod):
    """A share of the variance that a white x_0 would have, given x_t."""

    share: float = 0.5

    def c(self, prediction: Prediction) -> Tensor:
        return self.share * prediction.marginal[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--count", type=int, default=1000, help="of samples")
    given = parser.parse_args()
    experiment = compose("toy_mog9")
    test = experiment.data.open(Path()).splits["test"].read(range(given.count))
    distance = MmdTo(torch.from_numpy(test), mmd.STAGE.settings(experiment).bandwidths)
    schedule = linear(1000)
    model = Denoiser(exact_score(experiment.data, schedule), schedule)
    methods: list[CovarianceMethod] = [
        *(covariance.build(name) for name in ("beta", "beta_tilde", "exact_diag")),
        Share(label="share", share=given.share),
    ]
    for method in methods:  # from the same noise
        noise = SampleNoise(0, range(given.count), (2,))
        recipe = Recipe(even(schedule.steps, 10), method, Ddpm())
        samples = recipe.draw(model, noise).x
        print(f"{method.label:>10}: {distance(samples):.3f}")


if __name__ == "__main__":
    main()
