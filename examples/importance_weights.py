"""Importance weights: expectations under a density of your own, by samples of a model near it.

    python examples/importance_weights.py --steps 20

The model is the exact one of forty Gaussians in the plane. The density is another: the same with
an energy added, of which only the logarithm is known, and not its integral Z. Each covariance says
how many of its samples are left when they are weighed (the effective sample size), and what it
takes log Z to be. A model of your own comes from `api.load` or `api.wrap`, an energy is a function.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

from ocm_core import api
from ocm_core.datasets.mixture import MixtureData
from ocm_core.diffusion.mixture import mixture
from ocm_core.diffusion.schedule import linear
from ocm_core.networks.mixture import exact_score
from ocm_core.params.compose import compose
from ocm_core.rng.streams import dataset_stream


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10, help="network evaluations per sample")
    parser.add_argument("--count", type=int, default=4000, help="of samples")
    given = parser.parse_args()
    data, schedule = compose("toy_mog40").data, linear(1000)
    assert isinstance(data, MixtureData)
    truth, model = mixture(data), api.LatentDenoiser(exact_score(data, schedule), schedule)

    def log_density(x: Tensor) -> Tensor:
        return truth.log_density(x) - 0.5 * x[:, 0]

    for method in ("beta_tilde", "beta", "exact_diag", "exact_full"):
        drawn = api.sample(
            *(model, (2,), method),
            steps=given.steps,
            count=given.count,
            batch_size=given.count,
            log_prob=True,
        )
        found = drawn.importance(log_density)
        mean = float(found.weights @ drawn.x[:, 0].double())
        print(
            f"{method:>10}: effective sample size {found.ess:.1%},"
            f" log Z {found.log_z:.3f} ± {found.log_z_error:.3f}, mean of x {mean:.3f}"
        )
    fresh = torch.from_numpy(truth.draw(400_000, dataset_stream(1)))
    factor = torch.exp(-0.5 * fresh[:, 0])
    mean = float((factor * fresh[:, 0]).mean() / factor.mean())
    print(f"{'in truth':>10}: log Z {float(factor.mean().log()):.3f}, mean of x {mean:.3f}")


if __name__ == "__main__":
    main()
