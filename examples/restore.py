"""Digits of which 70 % is missing, and what is there has noise: draws of what they may have been.

    python examples/restore.py                  a minute; a small UNet, trained here
    python examples/restore.py --sigma 0.3 --steps 25

First by `api.restore`, in four ways; then the other way round: the same covariance as a data
fidelity of deepinv's own sampler, `PosteriorDiffusion`. Printed are the CRPS of a pixel, the share
of pixels between the lowest and the highest of 19 draws (90 % where these are right), ‖y - A x‖²/σ²
per pixel that is seen (1), and the passes of the network that a draw took, backward ones counted
twice. What there was, what was seen, means and draws are written as PNG. docs/uses.md goes on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from own_model import digits, stand_in
from torch import Tensor

from ocm_core import api
from ocm_core.covariance import build
from ocm_core.covariance.interface import Clip
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.timesteps import even
from ocm_core.metrics.crps import crps, inside
from ocm_core.rng.noise import SampleNoise
from ocm_core.uses.denoise import Posterior, matched_timesteps, posteriors
from ocm_core.uses.linear import Measured
from ocm_core.uses.operators import import_deepinv

DRAWS, IMAGES, METHOD = 19, 16, "analytic+klt"
LIMITS = Clip(x0=1.0, c_max=1.0)  # as api.restore has them for images
WAYS: tuple[tuple[Any, str | None], ...] = (
    *(("kalman", METHOD), ("mmps", None), ("dps", None), ("pigdm", None)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sigma", type=float, default=0.1, help="of the noise; pixels are in ±1")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=Path("samples/restore"))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    train, test = digits()[:-IMAGES], digits()[-IMAGES:]
    denoiser = api.fit_head(stand_in(train, given.iterations), train, METHOD)

    deepinv, random = import_deepinv(), torch.Generator().manual_seed(0)
    mask = (torch.rand(1, 8, 8, generator=random) > 0.7).float()
    physics = deepinv.physics.Inpainting(
        (1, 8, 8), mask, noise_model=deepinv.physics.GaussianNoise(given.sigma, rng=random)
    )
    y = physics(test)
    api.save_grid(torch.cat([test, y]), given.folder / "truth_and_y.png", zoom=4)

    def tell(name: str, draws: Tensor, passes: int) -> None:
        """Compare draws (image, draw, …) with the truth."""
        left = (y.unsqueeze(1) - mask * draws).square().mean() / mask.mean() / given.sigma**2
        score, share = crps(draws, test).mean(), inside(draws, test).mean()
        said = f"CRPS {score:.3f}, inside {share:.0%}, data {left:.2f}, {passes} passes"
        print(f"{name:>26}: {said}")
        api.save_grid(torch.cat([draws.mean(1), *draws[:, :2].unbind(1)]), _file(name), zoom=4)

    def _file(name: str) -> Path:
        return given.folder / f"{name.replace(' ', '_')}.png"

    for algorithm, method in WAYS:
        found = api.restore(
            *(denoiser, y, physics, method, algorithm), count=DRAWS, steps=given.steps
        )
        tell(algorithm, found.draws, found.passes)

    draws = by_deepinv(deepinv, denoiser, y.repeat_interleave(DRAWS, 0), physics, given.steps)
    tell("deepinv, our covariance", draws.view(IMAGES, DRAWS, 1, 8, 8), 2 * given.steps)


def by_deepinv(deepinv: Any, denoiser: Denoiser, y: Tensor, physics: Any, steps: int) -> Tensor:
    """Draw with deepinv's ancestral solver; the covariance says what y has to do with x_t."""
    schedule = denoiser.schedule
    sigma = torch.tensor(
        [(schedule.b[t] / schedule.alpha_bar[t]) ** 0.5 for t in even(1000, steps)]
    )

    def posterior(x: Tensor, level: Tensor) -> Posterior:
        """Return x̂_0 and C for x = x_0 + σ ω, as deepinv writes it."""
        t = int(matched_timesteps(schedule, level.double().view(1)))
        noise, method = SampleNoise(0, range(len(x)), (1, 8, 8)), {METHOD: build(METHOD)}
        scaled = schedule.alpha_bar[t] ** 0.5 * x.float()
        return posteriors(denoiser, method, scaled, t, noise, clip=LIMITS)[METHOD]

    class Mean(deepinv.models.Denoiser):  # type: ignore[misc]
        def forward(self, x: Tensor, sigma: Tensor, **_: Any) -> Tensor:
            return posterior(x, sigma).mean

    class Fidelity(deepinv.sampling.NoisyDataFidelity):  # type: ignore[misc]
        def grad(self, x: Tensor, y: Tensor, physics: Any, sigma: Tensor, **_: Any) -> Tensor:
            """-∇ log p(y | x) = -C Aᵀ (σ_y² + A C Aᵀ)⁻¹ (y - A x̂_0) / σ²."""
            found = posterior(x, sigma)
            seen = Measured(y, physics, float(physics.noise_model.sigma))
            return -seen.gain(found.covariance.times, seen.residual(found.mean), 1e-4) / sigma**2

    low, high = float(sigma[0]), float(sigma[-1])
    times = (sigma / low).log() / (sigma[-1] / low).log()  # of its own schedule: low (high / low)^t
    random = torch.Generator().manual_seed(0)
    solver = deepinv.sampling.DDPMSolver(timesteps=times.flip(0), rng=random)
    given = {"sigma_min": low, "sigma_max": high, "alpha": 1.0}
    sde = deepinv.sampling.VarianceExplodingDiffusion(**given, denoiser=Mean(), solver=solver)
    sampler = deepinv.sampling.PosteriorDiffusion(
        Fidelity(), sde=sde, denoiser=Mean(), minus_one_one=False
    )
    with torch.no_grad():
        drawn: Tensor = sampler(y, physics, x_init=tuple(y.shape))
    return drawn.float()


if __name__ == "__main__":
    main()
