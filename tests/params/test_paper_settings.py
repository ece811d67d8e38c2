"""Experiments named after the paper's have its settings; what differs is named, with a reason."""

import csv
import re
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml

from ocm_core.cells import cells
from ocm_core.checkpoints.registry import CHECKPOINTS
from ocm_core.params.compose import compose

PAPER = Path("reports/paper")
PUBLISHED = Path("docs/published.md")


def rows(name: str) -> list[dict[str, str]]:
    with (PAPER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def ours(experiment: str, key: str) -> Any:
    return reduce(lambda node, name: node[name], key.split("."), compose(experiment).model_dump())


def test_every_setting_is_the_paper_s_or_a_named_difference() -> None:
    table = rows("settings.csv")
    settings = {(row["experiment"], row["key"]): yaml.safe_load(row["value"]) for row in table}
    differing = {key for (name, key), value in settings.items() if ours(name, key) != value}
    section = PUBLISHED.read_text("utf-8").split("\n## Where we differ\n")[1].split("\n## ")[0]
    named = re.findall(r"^\| `([\w.]+)` \| .* \| .+ \|$", section, re.MULTILINE)  # with a reason
    assert differing == {key for _, key in settings} & {*named}
    assert {name for name, _ in settings} == {*CHECKPOINTS, "toy_mog9_paper", "toy_mog40_paper"}


def test_short_training_of_heads_on_mixtures_is_a_named_difference() -> None:
    (row,) = (line for line in PUBLISHED.read_text("utf-8").splitlines() if "`toy_mog9`, `" in line)
    for name in ("toy_mog9", "toy_mog40"):
        ours, paper = (compose(f"{name}{ending}").train.heads for ending in ("", "_paper"))
        for heads in (ours, paper):
            assert f"{heads.iterations:,} iterations" in row and heads.decay in row
            assert f"rate {heads.learning_rate:.0e}".replace("e-0", "e-") in row


def published_cells() -> Iterator[tuple[str, str, str, int, float]]:
    labels = {"rademacher": "rademacher_100"}
    for row in rows("results.csv"):
        if row["steps"] and row["metric"] in ("fid", "recall_percent"):
            method = labels.get(row["method"], row["method"])
            if row["table"] == "probes" and row["probes"] != "1":
                method = f"ocm_{row['probes']}"
            guidance = float(row["cfg"] or 1.0)
            yield row["experiment"], row["sampler"], method, int(row["steps"]), guidance


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_every_cell_of_the_tables_is_sampled(name: str) -> None:
    experiment = compose(name)
    kinds = {label: sampler.kind for label, sampler in experiment.sample.samplers.items()}
    drawn = {(name, kinds[c.sampler], c.method, c.nfe, c.guidance) for c in cells(experiment)}
    assert {cell for cell in published_cells() if cell[0] == name} <= drawn


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_every_likelihood_of_the_tables_is_computed(name: str) -> None:
    asked = [r for r in rows("results.csv") if (r["experiment"], r["metric"]) == (name, "nll_bpd")]
    settings = compose(name).evaluate.get("likelihood")
    assert bool(asked) == (settings is not None)
    if settings is not None:
        assert {int(row["steps"]) for row in asked} <= set(settings.model_dump()["nfe"])


def test_the_least_steps_on_lsun_are_among_those_drawn() -> None:
    table = [r for r in rows("results.csv") if r["table"] == "min_steps" and r["value"]]
    least = {int(row["value"]) for row in table if row["experiment"] == "lsun_bedroom"}
    assert least == set(compose("lsun_bedroom").sample.samplers["ddpm"].nfe)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_fast_preset_differs_by_cost_alone(name: str) -> None:
    whole, fast = compose(name).model_dump(), compose(f"{name}_fast").model_dump()
    for tree in (whole, fast):
        assert tree["train"]["heads"]["precision"] == "tf32"
        assert tree["sample"]["execution"]["precision"] == "tf32"
    for key in ("data", "encode", "schedule", "network", "methods", "head"):
        assert whole[key] == fast[key]
    assert whole["sample"]["clip"] == fast["sample"]["clip"]
    assert fast["train"]["heads"]["iterations"] < whole["train"]["heads"]["iterations"]
    assert fast["train"]["selection"] == {"kind": "last"}
    for label, sampler in fast["sample"]["samplers"].items():
        assert sampler | {"grids": []} == whole["sample"]["samplers"][label] | {"grids": []}
