"""The table of stages: which tasks an experiment has, and what each of them depends on."""

from __future__ import annotations

from typing import Any

import pytest

from ocm_core.cells import cells, cells_of, parts
from ocm_core.errors import OcmError
from ocm_core.params.resolved import load
from ocm_core.pipeline import sources, table
from ocm_core.pipeline.table import Task
from ocm_core.schema.experiment import Experiment


def variant(**changes: Any) -> Experiment:
    """The shipped experiment with some keys (a__b for a.b) replaced."""
    tree = load("toy_mog9").model_dump()
    for key, value in changes.items():
        *path, last = key.split("__")
        node = tree
        for name in path:
            node = node[name]
        node[last] = value
    return Experiment.model_validate(tree)


def only(*labels: str) -> dict[str, Any]:
    methods = load("toy_mog9").model_dump()["methods"]
    sampler = load("toy_mog9").model_dump()["sample"]["samplers"]["ddpm"]
    return {
        "methods": {label: methods[label] for label in labels},
        "sample__samplers": {"ddpm": {**sampler, "methods": list(labels)}},
        "sample__split": [],
        "evaluate__chains": None,
        "evaluate__likelihood": None,
    }


def test_stages_that_nobody_needs_are_not_in_the_graph() -> None:
    bare = variant(**only("beta"), network__scores=["true"], evaluate__covariance_error=None)
    assert [str(task) for task in table.tasks(bare)] == [
        "encode/all",
        "sample/all",
        "evaluate_points/all",
        "report/all",
    ]


@pytest.mark.parametrize(
    ("baseline", "present"), [("moments", True), ("gaussian", False), ("target", False)]
)
def test_a_head_on_a_table_of_moments_needs_the_moments(baseline: str, present: bool) -> None:
    experiment = variant(**only("ocm_relative"), methods__ocm_relative__head__baseline=baseline)
    assert (Task("moments", "true") in table.tasks(experiment)) == present
    waits = table.inputs(experiment, Task("heads", "true"))
    assert (Task("moments", "true") in waits) == present


def test_inputs_come_before_their_readers() -> None:
    experiment = variant(sample__split=["score", "sampler", "seed"])
    order = table.tasks(experiment)
    for position, task in enumerate(order):
        assert set(table.inputs(experiment, task)) <= set(order[:position])


def test_every_cell_is_in_exactly_one_part() -> None:
    experiment = variant(sample__split=["score", "method", "steps", "seed"])
    groups = parts(experiment)
    assert "true-ocm_relative-K10-seed0" in groups
    together = [cell for group in groups.values() for cell in group]
    assert sorted(map(repr, together)) == sorted(map(repr, cells(experiment)))
    assert len(set(together)) == len(together)


def test_a_part_depends_on_its_own_methods_only() -> None:
    experiment = variant(sample__split=["score", "method"])
    task = Task("sample", "true-beta")
    assert table.inputs(experiment, task) == []
    assert "methods.beta" in table.reads(experiment, task)
    assert "methods.ocm_relative" not in table.reads(experiment, task)
    assert table.modules(experiment, task) == [
        "ocm_core.stages.sample",
        "ocm_core.covariance.beta",
        "ocm_core.networks.mixture",
    ]


def test_a_part_depends_on_solvers_and_presets_where_it_has_them() -> None:
    grids = [{"steps": [5], "guidance": [1.0]}]
    samplers = {
        **load("toy_mog9").model_dump()["sample"]["samplers"],
        "unipc": {"kind": "diffusers", "scheduler": "UniPCMultistepScheduler", "grids": grids},
        "quality": {"kind": "preset", "name": "quality", "methods": ["delta"], "grids": grids},
        "likely": {"kind": "preset", "name": "likelihood", "methods": ["beta"], "grids": grids},
    }
    none = {"kind": "none", "needs": "nothing"}
    methods = load("toy_mog9").model_dump()["methods"] | {"none": none}
    experiment = variant(sample__samplers=samplers, methods=methods, sample__split=["sampler"])
    chosen = {
        label: [
            module.removeprefix("ocm_core.samplers.")
            for module in table.modules(experiment, Task("sample", label))
            if module.startswith("ocm_core.samplers.")
        ]
        for label in samplers
    }
    assert chosen == {
        "ddpm": [],
        "ddim": [],
        "unipc": ["diffusers_solver"],
        "quality": ["presets"],
        "likely": ["presets"],
    }
    optimal = [str(task) for task in table.inputs(experiment, Task("sample", "likely"))]
    assert "chains/learned" in optimal
    assert not [t for t in table.inputs(experiment, Task("sample", "quality")) if t[0] == "chains"]
    closure = sources.closure(table.modules(experiment, Task("sample", "ddpm")))
    assert "ocm_core.samplers.cell_sampler" in closure
    assert closure.isdisjoint({"ocm_core.samplers.presets", "ocm_core.samplers.diffusers_solver"})


def test_unknown_names_are_answered_with_the_nearest() -> None:
    experiment = load("toy_mog9")
    with pytest.raises(OcmError, match="did you mean 'heads'"):
        table.find(experiment, "head", "true")
    with pytest.raises(OcmError, match="did you mean 'learned'"):
        table.find(experiment, "heads", "learnt")
    with pytest.raises(OcmError, match=r"sample/nowhere: .* sample\.split gives"):
        cells_of(experiment, "nowhere")
