"""Work by the parameters, hours by the roofline, and the document that says so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ocm_core import covariance
from ocm_core.cells import cells
from ocm_core.checkpoints.registry import CHECKPOINTS
from ocm_core.cli import main
from ocm_core.covariance.interface import CovarianceMethod
from ocm_core.params.resolved import load
from ocm_core.planning.cost_report import FILE, as_text, section, workloads
from ocm_core.planning.cost_tables import CostTable
from ocm_core.planning.diagnosis import gpu_hours
from ocm_core.planning.network_counts import NetworkCounts, count_networks
from ocm_core.planning.operation_counts import NOTHING, BatchCount, OperationCount
from ocm_core.planning.roofline import A100, GPUS, H100, Utilisation, roofline_time
from ocm_core.planning.workload import Workload
from ocm_core.schema.experiment import MethodParams

FULL = Utilisation(1.0, 1.0)
TRACED = ("celeba64", "imagenet256")  # pixels, and latents with guidance


def unit(size: float) -> BatchCount:
    return BatchCount(NOTHING, OperationCount(convolutions=size))


def workload(name: str) -> Workload:
    """Evaluations count as 1, heads as 1e-3, products as 1e-6, training as 1e3."""
    parts = {"evaluation": unit(1), "head": unit(1e-3), "product": unit(1e-6)}
    return Workload(load(name), NetworkCounts(1, 1, training=unit(1e3), probes=1, **parts))


def test_samples_are_counted_cell_by_cell():
    """imagenet256: ten times K = 10 and every other K with guidance; half the cells are `ocm`'s."""
    found = workload("imagenet256").sample()
    steps = 5 * 10 + 25 + 50 + 100 + 200 + 250
    fixed, learned = 2 * steps, 2 * (steps - 10)  # both branches; the last step has no covariance
    methods, with_head = 4 + 2, 2
    expected = 50_000 * (methods * fixed + 1e-3 * with_head * learned)
    assert found.gpu.operations == pytest.approx(expected)
    assert found.drawn == 50_000 * methods * steps * 4 * 32 * 32
    assert found.disk == 50_000 * methods * 10 * 4 * 32 * 32 * 4


def test_probes_at_sampling_time_are_products():
    experiment = load("cifar10_cs")
    look = workload("cifar10_cs").step_covariance(experiment.methods["rademacher_100"], 7)
    assert look.operations == pytest.approx(100e-6)


def test_an_experiment_without_heads_has_its_tables():
    known = load("cifar10_cs")
    sampler = known.sample.samplers["ddpm"]
    samplers = {"ddpm": sampler.model_copy(update={"methods": ["exact_diag"]})}
    changes = {
        "methods": {"exact_diag": MethodParams(kind="exact_diag", needs="nothing")},
        "sample": known.sample.model_copy(update={"samplers": samplers}),
        "evaluate": known.evaluate.model_copy(update={"likelihood": None, "chains": None}),
    }
    experiment = known.model_copy(update=changes)
    said = as_text([Workload(experiment, count_networks(experiment))], FULL)
    assert "sample by `exact_diag`, K = 10" in said and "training step" not in said


class Constant(CovarianceMethod):
    """A user's method, without a head."""

    def step_covariance(self, prediction, noise):
        return lambda step: step.fixed(1.0, prediction.x)


@pytest.mark.parametrize(
    ("kind", "products"),
    [("exact_diag", 3 * 32 * 32), ("exact_full", 3 * 32 * 32), ("beta", 0), ("constant", 0)],
)
def test_a_method_without_a_head_costs_what_its_class_says(kind, products, monkeypatch):
    known = covariance._class_of
    monkeypatch.setattr(
        covariance, "_class_of", lambda kind: Constant if kind == "constant" else known(kind)
    )
    method, counted = MethodParams(kind=kind, needs="nothing"), workload("cifar10_cs")
    look = counted.step_covariance(method, 7)
    assert look.operations == pytest.approx(1e-6 * products)
    methods = counted.experiment.methods | {"rademacher_100": method}
    experiment = counted.experiment.model_copy(update={"methods": methods})
    cell = next(c for c in cells(experiment) if c.method == "rademacher_100")
    found = replace(counted, experiment=experiment).sample([cell])
    count = experiment.sample.count
    expected = count * (cell.steps + (cell.steps - 1) * 1e-6 * products)
    assert found.gpu.operations == pytest.approx(expected)
    assert found.drawn == count * cell.steps * 3 * 32 * 32  # the exact ones draw no probes


def test_a_table_of_likelihoods_takes_an_evaluation_per_timestep():
    image, evaluations = workload("cifar10_ls").likelihood_image()
    assert evaluations == 1000
    assert image.operations == pytest.approx(1000 * (1 + 3 * 1e-3))
    whole = workload("cifar10_ls").evaluate_likelihood()
    assert whole.gpu.operations == pytest.approx(10_000 * image.operations)


def test_the_costs_of_steps_take_an_evaluation_per_timestep_of_the_grid():
    found = workload("cifar10_ls").chains()
    assert found.gpu.operations == pytest.approx(128 * 92 * (1 + 3 * 1e-3))
    assert found.drawn == 128 * 92 * 3 * 32 * 32
    assert "chains" not in {work.stage for work in workload("lsun_bedroom").stages()}


def test_training_and_moments():
    found = workload("lsun_bedroom")
    assert found.heads().gpu.operations == 500_000 * 64 * 1e3
    assert found.moments().gpu.operations == 1000 * 1000
    settings = found.experiment.train.heads.model_copy(update={"accumulate": 4})
    train = found.experiment.train.model_copy(update={"heads": settings})
    smaller = replace(found, experiment=found.experiment.model_copy(update={"train": train}))
    assert smaller.heads().gpu.operations == found.heads().gpu.operations


def test_selecting_draws_with_every_kept_head():
    """cifar10_ls: 3 methods, a head every 10,000 of 500,000 iterations, all 1000 timesteps."""
    found = workload("cifar10_ls")
    drawn = found.selection().gpu.operations - 3 * 50 * 2048 * found.image_features().operations
    assert drawn == pytest.approx(3 * 50 * 2048 * (1000 + 999e-3))
    assert "selection" not in [work.stage for work in workload("cifar10_ls_fast").stages()]


def test_the_roofline():
    work = OperationCount(convolutions=156e12, products=19.5e12, bytes=2.039e12, least_bytes=1e12)
    assert roofline_time(work, A100, "float32", FULL).arithmetic == pytest.approx(2.0)
    assert roofline_time(work, A100, "float32", FULL).bottleneck == "arithmetic"
    found = roofline_time(work, A100, "bfloat16", Utilisation(0.5, 0.25))
    assert found.arithmetic == pytest.approx(2 * (156 + 19.5) / 312)
    assert (found.traffic, found.seconds) == (pytest.approx(2.0), pytest.approx(2.0))
    assert found.bottleneck == "memory, unless fused"
    assert roofline_time(replace(work, least_bytes=2e12), H100, "tf32", FULL).bottleneck == "memory"
    assert all(g.float32 < g.tf32 < g.bfloat16 for g in GPUS)


@pytest.mark.parametrize("name", TRACED)
def test_the_document_is_up_to_date(name):
    """All of it: `ocm cost --check`."""
    (found,) = workloads([name])
    text = FILE.read_text(encoding="utf-8")
    assert section(found, Utilisation()) in text
    assert all(f"\n## {other}\n" in text for other in CHECKPOINTS)


def test_a_training_step_is_two_predictions():
    (found,) = workloads(["celeba64"])
    step, one = found.counts.training.each.operations, found.counts.evaluation.each.operations
    assert 2 * one < step < 2.1 * one


def test_the_doctor_can_say_hours():
    assert gpu_hours("digits") == {}
    found, (workload,) = gpu_hours("celeba64"), workloads(["celeba64"])
    assert found["H100"] == workload.hours(H100, "float32", Utilisation())
    assert found["A100 80 GB"] > found["H100"] > 0


def test_the_command(capsys):
    assert main(["cost", "celeba64", "--json", "--utilisation", "0.7"]) == 0
    found = json.loads(capsys.readouterr().out)["experiments"]["celeba64"]
    stages = {stage["stage"]: stage for stage in found["stages"]}
    (at_default,) = (w for w in workloads(["celeba64"])[0].stages() if w.stage == "sample")
    half = roofline_time(at_default.gpu, A100, "tf32", Utilisation()).arithmetic / 7200
    assert stages["sample"]["hours"]["A100 80 GB"]["tf32"] == pytest.approx(half)
    assert main(["cost", "celeba64"]) == 0
    said = capsys.readouterr().out
    assert "computed, not measured" in said
    assert max(map(len, said.splitlines())) <= 120


def test_columns_that_do_not_fit_follow_below():
    rows = [(name, *(f"{name} {k}" for k in range(9))) for name in ("a" * 20, "b" * 20)]
    table = CostTable(("of", *(f"h, GPU {k}, tf32" for k in range(9))), rows)
    lines = table.terminal().splitlines()
    assert max(map(len, lines)) <= 120
    assert lines[0].split() == ["h"] * 4 and lines[2].split() == ["of", *["tf32"] * 4]
    shown = " ".join(lines)
    assert all(cell in shown for row in rows for cell in row)
    assert sum(line.startswith("a" * 20) for line in lines) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["celeba"], "did you mean 'celeba64'"),
        (["digits"], "experiment with a published network"),
        (["celeba64", "--write"], "name none"),
    ],
)
def test_what_cannot_be_answered_is_named(arguments, said, capsys):
    before = Path(FILE).read_text(encoding="utf-8")
    assert main(["cost", *arguments]) == 1
    assert said in capsys.readouterr().err
    assert Path(FILE).read_text(encoding="utf-8") == before
