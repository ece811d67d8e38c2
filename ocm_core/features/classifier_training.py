"""Train the classifier; a module of its own, so that evaluating images imports no training."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ocm_core.features import UInt8Images
from ocm_core.features.classifier import ClassifierNetwork
from ocm_core.progress import Progress
from ocm_core.rng.batches import BatchRng
from ocm_core.rng.streams import held_out_stream, seed_torch
from ocm_core.schema.experiment import OptimiserParams
from ocm_core.shapes import PerSample
from ocm_core.training.loop import Objective, fit
from ocm_core.training.state import TrainingState

LabelledImages = tuple[UInt8Images, Int[Tensor, " n"]]


@dataclass(frozen=True)
class Classification(Objective[LabelledImages]):
    """Cross entropy of the label given the image."""

    network: ClassifierNetwork
    images: UInt8Images
    labels: Int[Tensor, " n"]

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        return {"classifier": self.network}

    def draw(self, rng: BatchRng) -> LabelledImages:
        items = torch.from_numpy(rng.items(len(self.images)))
        return self.images[items].to(rng.device), self.labels[items].to(rng.device)

    def losses_on(self, drawn: LabelledImages) -> dict[str, PerSample]:
        images, labels = drawn
        return {"classifier": cross_entropy(self.network(images), labels, reduction="none")}


def train_classifier(
    images: UInt8Images,
    labels: Int[Tensor, " n"],
    settings: OptimiserParams,
    folder: Path,
    *,
    device: str = "cpu",
    progress: Progress[int] = iter,
) -> tuple[ClassifierNetwork, float, TrainingState]:
    """Train on four fifths, and return the accuracy on the rest; a later call resumes."""
    order = held_out_stream(settings.seed).permutation(len(images))
    held_out, fitted = np.split(order, [round(0.2 * len(order))])
    seed_torch(settings.seed)
    _, channels, side, _ = images.shape
    network = ClassifierNetwork(channels, side, int(labels.max()) + 1).to(device)
    objective = Classification(network, images[fitted], labels[fitted])
    state = fit(objective, settings, folder, device=device, progress=progress)
    state.use_average()
    network.eval().requires_grad_(False)
    with torch.no_grad():
        batches = torch.split(images[held_out], 500)
        predicted = torch.cat([network(batch.to(device)).argmax(1).cpu() for batch in batches])
    accuracy = float((predicted == labels[held_out]).double().mean())
    return network, accuracy, state
