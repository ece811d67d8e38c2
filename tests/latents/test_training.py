"""Training a small autoencoder: the loss as written, exact resume, and a scale of one."""

from pathlib import Path

import torch
from torch import Tensor

from ocm_core.latents.training import VaeFitting, measured_scaling
from ocm_core.latents.vae import Vae, save_folder
from ocm_core.rng.batches import BatchRng
from ocm_core.schema.experiment import OptimiserParams
from ocm_core.training.batches import InMemory
from ocm_core.training.loop import fit

from .tiny import tiny


def shapes(count: int) -> Tensor:
    """Bright squares at varying places, on black."""
    x = torch.full((count, 1, 16, 16), -1.0)
    for n in range(count):
        top, left = 2 * (n % 5), 2 * (n // 5 % 5)
        x[n, :, top : top + 6, left : left + 6] = 1.0
    return x


SETTINGS = OptimiserParams(
    iterations=40, batch_size=8, learning_rate=3e-3, ema=0.9, seed=0, checkpoint_every=15
)


def fitting(kl_weight: float = 1e-3) -> VaeFitting:
    model = tiny(in_channels=1, out_channels=1, block_out_channels=[4, 8]).train()
    return VaeFitting(model, InMemory(shapes(25)), kl_weight)


@torch.no_grad()
def test_the_loss_is_reconstruction_and_weighted_divergence() -> None:
    rng, objective = BatchRng(0, 3, 8), fitting(kl_weight=0.5)
    x = objective.items.batch(rng)[0]
    posterior = objective.model.encode(x).latent_dist
    m, s = posterior.mean, posterior.std
    decoded = objective.model.decode(m + s * rng.normals(tuple(m.shape[1:]))).sample
    kl = 0.5 * (m**2 + s**2 - 1 - 2 * s.log()).sum((1, 2, 3))
    expected = ((x - decoded) ** 2).sum((1, 2, 3)) + 0.5 * kl
    found = objective.losses(rng)["vae"]
    torch.testing.assert_close(found, expected)
    some = objective.losses(BatchRng(0, 3, 8, rows=range(2, 5)))["vae"]
    torch.testing.assert_close(some, expected[2:5])


def test_training_reconstructs_and_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    def trained(folder: Path, stop: int | None) -> dict[str, Tensor]:
        torch.manual_seed(1)
        if stop:
            fit(fitting(), SETTINGS, folder, progress=lambda r: (i for i in r if i < stop))
        objective = fitting()
        fit(objective, SETTINGS, folder).use_average()
        return {key: value.clone() for key, value in objective.model.state_dict().items()}

    whole = trained(tmp_path / "whole", None)
    resumed = trained(tmp_path / "resumed", 20)
    assert all(torch.equal(whole[key], resumed[key]) for key in whole)
    before, after = fitting(), fitting()
    after.model.load_state_dict(whole)
    rng = BatchRng(0, 99, 25)
    with torch.no_grad():
        first, last = (o.losses(rng)["vae"].mean() for o in (before, after))
    assert last < 0.5 * first


@torch.no_grad()
def test_scaled_latents_have_unit_variance(tmp_path: Path) -> None:
    model = tiny(in_channels=1, out_channels=1)
    x = shapes(25) + 0.3 * torch.randn(25, 1, 16, 16, generator=torch.manual_seed(0))
    scaling = measured_scaling(model, x, batch_size=7)
    save_folder(model, tmp_path, scaling)
    mean, std = Vae.load(tmp_path).encode(x)
    noise = torch.randn(200, *mean.shape, generator=torch.manual_seed(1))
    assert abs(float((mean + std * noise).var()) - 1) < 0.01
