"""Denoising score matching: how a score network is trained where there is no published one.

A network with a learned variance is trained by the hybrid loss of improved DDPM, as DiT has it:
the variational bound's term in bits, which moves the variance and leaves the mean alone, is added.
The bound has T such terms, and one at a random t stands for all; OpenAI weighs it by T / 1000.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log

import torch
from torch import nn

from ocm_core.covariance.iddpm import Method as LearnedVariance
from ocm_core.covariance.learned import TrainingBatch
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder, sum_dims
from ocm_core.diffusion.schedule import q_sample
from ocm_core.rng.batches import BatchRng
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.shapes import Batch, Labels, PerSample
from ocm_core.training.batches import Items, NoisyDraws, noisy_draws
from ocm_core.training.loop import Objective

_TERMS = 1000  # of the bound, at which a random one has weight 1


@dataclass(frozen=True)
class ScoreMatching(Objective[NoisyDraws]):
    """E‖ε - ε̂(x_t, t)‖², and the bound's term where the network learns its variance.

    Of flow matching and EDM the error of the output, E‖v - v̂‖² and E‖F - F̂‖²; t is uniform.
    """

    denoiser: Denoiser
    items: Items
    decoder: Decoder

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        return {"score": self.denoiser.network}

    def draw(self, rng: BatchRng) -> NoisyDraws:
        return noisy_draws(self.items, self.denoiser.schedule, rng)

    def losses_on(self, drawn: NoisyDraws) -> dict[str, PerSample]:
        x = drawn.noisy(self.denoiser.schedule)
        prediction = self.denoiser.predict(x, drawn.t, drawn.label)
        unit = self.denoiser.network.loss_unit(drawn.t, x)
        loss = sum_dims(((drawn.eps - prediction.eps) / unit) ** 2)
        if prediction.learned_variance is not None:
            batch = TrainingBatch(prediction, drawn.x0, drawn.eps, self.decoder)
            term = LearnedVariance(label="score", source="network").loss(batch) / log(2.0)
            loss = loss + self.denoiser.schedule.steps / _TERMS * term
        return {"score": loss}


@torch.no_grad()
def losses_at_own_times(
    denoiser: Denoiser, x0: Batch, label: Labels, rows: range, count: int, seed: int
) -> PerSample:
    """(ε - ε̂)² of images `rows` of `count`, each at one timestep; ε as in the bound there."""
    schedule, shape = denoiser.schedule, tuple(x0.shape[1:])
    times = [1 + (2 * row + 1) * schedule.steps // (2 * count) for row in rows]
    noise = [
        SampleNoise(seed, [row], shape, x0.device, NoiseFor.LIKELIHOOD, t).normal()
        for row, t in zip(rows, times, strict=True)
    ]
    eps, t = torch.cat(noise), torch.tensor(times, device=x0.device)
    x = q_sample(x0, eps, *schedule.marginal_at(t, x0))
    return (eps - denoiser.predict(x, t, label).eps).square().flatten(1).mean(1).cpu()
