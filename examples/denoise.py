"""Digits with noise: what they were, and how far off that may be, pixel by pixel.

    python examples/denoise.py                  half a minute; a small UNet, trained here
    python examples/denoise.py --sigma 0.2

One pass of the network gives mean and deviation. It prints how large errors are where the deviation
is smallest, middling and largest, how large they are expected to be, and how often the truth lies
in the intervals of 90 % that follow. Noisy digits, means and deviations (white is the largest) are
written as PNG. docs/your_model.md goes on from here.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from own_model import digits, stand_in

from ocm_core import api

THIRDS = ("smallest", "middling", "largest")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sigma", type=float, default=0.5, help="of the noise; pixels are in ±1")
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=Path("samples/denoise"))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    train, test = digits()[:-300], digits()[-300:]
    denoiser = stand_in(train, given.iterations)
    denoiser = api.fit_head(denoiser, train, "npr", draws=20 * given.iterations)

    noise = torch.randn(test.shape, generator=torch.Generator().manual_seed(0))
    noisy = test + given.sigma * noise
    for sigma in (given.sigma, None):  # None: estimated, image by image
        found = api.denoise(denoiser, noisy, "npr", sigma)
        gap, std = (found.mean - test).flatten(), found.std.flatten()
        inside = (gap.abs() < 1.645 * std).float().mean()
        print(f"sigma {found.sigma.mean():.2f}: {inside:.0%} within 90 % intervals")
        for name, pixels in zip(THIRDS, std.argsort().chunk(3), strict=True):
            error, expected = (x[pixels].square().mean().sqrt() for x in (gap, std))
            print(f"  {name:>8} deviations: error {error:.3f}, expected {expected:.3f}")
        if sigma is not None:
            shown = {"noisy": noisy, "mean": found.mean, "std": 2 * found.std / std.max() - 1}
            for name, images in shown.items():
                api.save_grid(images[:64], given.folder / f"{name}.png", zoom=4)


if __name__ == "__main__":
    main()
