"""What each step costs by how far it leaves the sampler's own path (GITS: Chen et al., 2024).

A fine trajectory of DDIM visits every timestep of a grid. From each of these one DDIM step, which
is Euler's in x / √ᾱ, goes to each later one; its cost is the mean square of the distance from the
trajectory there. Published costs are norms in x / √ᾱ. At t = T of our schedules √(b/ᾱ) is 157, and
errors that the flow to the data forgets would take all of the steps. In x_t itself an error counts
with what is left of it at t = 0 if the data are Gaussian with unit variance.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ocm_core.covariance.interface import NON_NEGATIVE, Clip, ReverseStep
from ocm_core.diffusion.denoiser import Model
from ocm_core.diffusion.kernels.ddim import Ddim
from ocm_core.diffusion.timesteps import StepCosts
from ocm_core.diffusion.transition import transition
from ocm_core.progress import Progress
from ocm_core.rng.noise import Noise
from ocm_core.schema.timesteps import GITS
from ocm_core.shapes import Batch, Labels

EULER = Ddim()


@dataclass(frozen=True)
class Trajectories:
    """A source of costs in the place of a bound (`likelihood/bound.py`)."""

    model: Model
    clip: Clip = NON_NEGATIVE

    @torch.no_grad()
    def step_costs(
        self,
        grid: Sequence[int],
        x0: Batch,
        noise_at: Callable[[int], Noise],
        label: Labels = None,
        progress: Progress[int] = iter,
    ) -> dict[str, StepCosts]:
        """F[s, t] by the label `gits`; of `x0` the number counts, one trajectory for each image."""
        schedule, times = self.model.schedule, (0, *sorted(set(grid)))
        costs = x0.new_full((len(times), len(times)), torch.inf, dtype=torch.float64)
        seen: dict[int, tuple[Batch, Batch, Batch]] = {}
        x = noise_at(times[-1]).normal()
        for i in progress(range(len(times) - 1, -1, -1)):
            for j, state in seen.items():
                end = EULER.mean(transition(schedule, times[i], times[j]), *state)
                costs[i, j] = ((end - x) ** 2).mean()
            if i > 0:
                step = ReverseStep(transition(schedule, times[i - 1], times[i]), EULER, self.clip)
                prediction = self.model.predict(x, times[i], label)
                seen[i] = x, step.x0(prediction), prediction.eps
                x = EULER.mean(step.transition, *seen[i])
        ends = np.append(np.full(len(times) - 1, np.inf), 0.0)  # no trajectory begins below T
        return {GITS: StepCosts(times, costs.cpu().numpy(), ends)}
