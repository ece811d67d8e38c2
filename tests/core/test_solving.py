"""Solved heads: the optimum of the loss that training minimises, in any layout of the layer."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from ocm_core import covariance
from ocm_core.covariance.learned import CovarianceHead, TrainingBatch, last_layer
from ocm_core.diffusion import schedule
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.score_network import TrunkFeatures
from ocm_core.distributed import Rank
from ocm_core.networks import build
from ocm_core.schema.experiment import SolveParams
from ocm_core.training import solving
from ocm_core.training.batches import InMemory
from ocm_core.training.head_fitting import HeadFitting
from ocm_core.training.solving import HeadSolving, LastLayer, solve
from tests.core.doubles import spectra

UNET = {"in_channels": 2, "base_channels": 32, "channel_multipliers": [1], "blocks_per_level": 1}
DIT = {"image_size": 4, "patch_size": 2, "in_channels": 2, "width": 16, "depth": 1}
DIT_MORE = {"attention_heads": 2, "num_classes": 3}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "simple": ("ddpm_unet", {**UNET, "attention_levels": []}),
    "complex": ("ddpm_unet", {**UNET, "attention_levels": []}),
    "adaln": ("dit", {**DIT, **DIT_MORE}),
}


class Half(Rank):
    """One of two processes, and the other one does not run."""

    def agreed(self, decide: Any) -> Any:
        return decide()

    def wait(self) -> None:
        pass


LABELS = ("ocm", "npr", "sn", "kdct")
SETTINGS = SolveParams(draws=640, batch_size=16)


@dataclass(frozen=True)
class Kept(HeadFitting):
    """Keeps the batches that it predicts."""

    batches: list[TrainingBatch] = field(default_factory=list)

    def predict(self, drawn: Any) -> TrainingBatch:
        self.batches.append(super().predict(drawn))
        return self.batches[-1]


def fitting(kind: str, **head: Any) -> Kept:
    torch.manual_seed(1)
    family, config = CASES[kind]
    network = build(family, config).eval().requires_grad_(False)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    methods: Any = {label: covariance.build(label) for label in LABELS}
    sizes: Any = {label: {"outputs": 32} if m.pooled else {} for label, m in methods.items()}
    heads = {k: CovarianceHead(network.make_head(kind, **sizes[k]), **head) for k in LABELS}
    levels = schedule.linear(100)
    denoiser = Denoiser(network, levels, heads=heads, spectra=spectra(levels, 2, 4, 4))
    x0 = torch.randn(50, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    items = InMemory(x0, torch.arange(50) % 3 if kind == "adaln" else None)
    return Kept(denoiser, methods, items, Decoder(None))


def summed(system: HeadSolving) -> dict[str, torch.Tensor]:
    sums: dict[str, torch.Tensor] = {}
    for number in system.batches:
        system.add(sums, number)
    return sums


def means() -> dict[str, torch.Tensor]:
    return dict.fromkeys(LABELS, torch.full((101,), -1.0))  # a floor of 0 that nothing reaches


@pytest.mark.parametrize(
    ("kind", "unit"),
    [*((kind, "published") for kind in CASES), *(("simple", u) for u in ("own", "root", "one"))],
)
def test_the_gradient_of_the_loss_vanishes(
    kind: str, unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the solution, over all draws; each counts as the loss over uniform t counts it."""
    monkeypatch.setattr(solving, "RIDGES", (1e-12,))
    relative = {"baseline": torch.linspace(1.0, 0.2, 101), "unit": unit}
    case = fitting(kind, **({} if unit == "published" else relative))
    system = HeadSolving(case, SETTINGS)
    sums, heads = summed(system), case.denoiser.heads
    ends = torch.tensor(system.knots)

    def gradient(label: str) -> float:
        head = heads[label]
        head.register_buffer("floor", None)  # which has no gradient where it is reached
        _, layer = last_layer(head.net)
        total = torch.zeros(())
        for number, batch in enumerate(case.batches[: len(system.batches)]):
            place = number % (len(ends) - 1)
            loss = case.methods[label].loss(batch).sum()
            total = total + loss * (ends[place + 1] - ends[place])
        found = torch.autograd.grad(total, [layer.weight, layer.bias])
        return float(torch.cat([g.flatten() for g in found]).norm())

    # the spectrum of `kdct` has a unit of its own
    labels = LABELS if unit in ("published", "own") else LABELS[:-1]
    before = {label: gradient(label) for label in labels}
    system.finish(sums, means())
    for label in labels:
        assert gradient(label) < 2e-3 * before[label], label


@pytest.mark.parametrize("label", ["ocm", "kdct"])
@pytest.mark.parametrize("kind", CASES)
def test_outputs_are_in_the_layout_of_the_layer(kind: str, label: str) -> None:
    case = fitting(kind)
    case.predict(case.draw(solving.BatchRng(0, 0, 5)))
    parts = case.batches[0].prediction.features
    features = TrunkFeatures(*(part.detach() for part in parts))
    head = case.denoiser.heads[label]
    for parameter in head.net.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    layer = LastLayer(head.net)
    image, rows = head.net(features), layer.inputs(features)
    weights = torch.cat([layer.layer.weight.flatten(1).T, layer.layer.bias[None]])
    found = layer.arranged(features, image)
    torch.testing.assert_close(rows @ weights, found, atol=1e-4, rtol=1e-5)


def test_sums_do_not_depend_on_processes_or_kills(tmp_path: Any) -> None:
    def solved(folder: Any, *turns: tuple[Rank, Any]) -> torch.Tensor:
        case = fitting("simple")
        for rank, progress in turns:
            try:
                solve(HeadSolving(case, SETTINGS), folder, means(), progress=progress, rank=rank)
            except (KeyboardInterrupt, KeyError):
                continue  # a part of the sums is not enough to solve
        return torch.cat([p.detach().flatten() for p in case.denoiser.heads["ocm"].parameters()])

    def die(numbers: Any) -> Any:
        yield from list(numbers)[:7]
        raise KeyboardInterrupt

    whole = solved(tmp_path / "whole", (Rank(), iter))
    resumed = solved(tmp_path / "killed", (Rank(), die), (Rank(), iter))
    assert torch.equal(whole, resumed)
    assert whole.norm() > 0.1
    both = solved(tmp_path / "both", (Half(1, 2), iter), (Half(0, 2), die), (Rank(), iter))
    torch.testing.assert_close(both, whole, rtol=1e-4, atol=1e-5)


def test_ranges_are_joined_without_a_step() -> None:
    case = fitting("simple")
    system = HeadSolving(case, replace_range(SETTINGS))
    system.finish(summed(system), means())
    head = case.denoiser.heads["npr"]
    assert head.weight.shape[0] == len(system.knots) and head.knots is not None
    x = torch.randn(1, 2, 4, 4)
    features = case.denoiser.predict(x, 50).features
    knot, net = system.knots[10], case.denoiser.network.make_head("simple")
    first, *at = [head(features, torch.tensor([t])) for t in (1, knot - 1, knot, knot + 1)]
    assert (at[0] - at[2]).abs().max() < 0.5 * (first - at[1]).abs().max()
    again = CovarianceHead.of_state(net, head.state_dict(), "identity")
    assert torch.equal(again(features, torch.tensor([knot])), at[1])


def test_a_range_has_the_solution_of_its_draws_and_c_lies_between_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A draw counts for the knots on both of its sides, the more the nearer it is."""
    monkeypatch.setattr(solving, "RIDGES", (1e-12,))
    case = fitting("simple")
    system = HeadSolving(case, replace_range(SETTINGS))
    sums, knots = summed(system), torch.tensor(system.knots).double()
    head, method, batches = case.denoiser.heads["npr"], case.methods["npr"], list(case.batches)
    system.finish(sums, means())
    features = TrunkFeatures(*(part[:4] for part in batches[0].prediction.features))
    between = head(features, torch.full((4,), 62))
    tables = head.weight, head.bias
    head.knots = head.floor = None
    layer = last_layer(head.net)[1]

    def use(knot: int) -> None:
        layer.weight.data, layer.bias.data = (table[knot].clone() for table in tables)

    def gradient(knot: int, solution: int) -> float:
        use(solution)
        total = torch.zeros(())
        for number, batch in enumerate(batches):
            place = number % (len(knots) - 1)
            if place not in (knot - 1, knot):
                continue
            far = (batch.prediction.t - knots[knot]).abs() / (knots[place + 1] - knots[place])
            lengths = knots[place + 1] - knots[place]
            total = total + ((1 - far) * lengths * method.loss(batch)).sum()
        found = torch.autograd.grad(total, [layer.weight, layer.bias])
        return float(torch.cat([g.flatten() for g in found]).norm())

    assert gradient(15, 15) < 1e-3 * gradient(15, 14)
    above = int(torch.searchsorted(knots, 62))
    outputs = []
    for knot in (above - 1, above):
        use(knot)
        outputs.append(head(features))
    share = float((62 - knots[above - 1]) / (knots[above] - knots[above - 1]))
    torch.testing.assert_close(between, torch.lerp(*outputs, share), rtol=1e-4, atol=1e-5)
    assert 0.1 < share < 0.9 and not torch.allclose(*outputs, atol=1e-2)


def test_the_ridge_has_the_least_error_on_what_is_held_out() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = {"fit": 30, "held_out": 200}
    x = {k: torch.randn(n, 20, generator=generator).double() for k, n in sizes.items()}
    noise = {k: torch.randn(n, 2, generator=generator).double() for k, n in sizes.items()}
    y = {k: x[k][:, :2] + 2 * noise[k] for k in x}
    sums = {k: (x[k].T @ x[k], x[k].T @ y[k]) for k in x}

    def by(gram: torch.Tensor, cross: torch.Tensor, ridge: float) -> torch.Tensor:
        penalty = ridge * gram.trace() / 20 * torch.eye(20).double()
        return torch.linalg.solve(gram + penalty, cross)

    def error(ridge: float) -> float:
        return float((x["held_out"] @ by(*sums["fit"], ridge) - y["held_out"]).square().sum())

    ridges = (10.0, 1.0, 0.1, 1e-8)
    best = min(ridges, key=error)
    assert best not in (ridges[0], ridges[-1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solving, "RIDGES", ridges)
        found = solving.solution(sums["fit"], sums["held_out"])
    both = (one + other for one, other in zip(sums["fit"], sums["held_out"], strict=True))
    torch.testing.assert_close(found, by(*both, best))


def replace_range(settings: SolveParams) -> SolveParams:
    return settings.model_copy(update={"by_range": True, "draws": 640})


def test_a_solved_head_stays_above_its_floor() -> None:
    case = fitting("simple")
    system = HeadSolving(case, SETTINGS)
    system.finish(summed(system), dict.fromkeys(LABELS, torch.full((101,), 50.0)))
    c = covariance.build("ocm").c(case.denoiser.predict(torch.randn(3, 2, 4, 4), 50))
    assert torch.equal(c.detach(), torch.full_like(c, 5.0))
