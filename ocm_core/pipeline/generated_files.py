"""Everything in the repository that is generated from parameters, and whether it is up to date."""

from __future__ import annotations

import json
from pathlib import Path

from ocm_core.errors import OcmError, unknown
from ocm_core.params.compose import compose, experiment_names
from ocm_core.params.resolved import (
    ACTIVE,
    RESOLVED,
    active_names,
    by_name_names,
    resolved_file,
    resolved_text,
)
from ocm_core.pipeline.dvc_yaml import dvc_texts, own_file
from ocm_core.schema.experiment import Experiment

SCHEMA = Path("workflow/schemas/experiment.schema.json")


def generated() -> dict[Path, str]:
    """The text of each generated file, by its path."""
    experiments = {name: compose(name) for name in experiment_names()}
    active, by_name = active_names(), by_name_names()
    for name in [*active, *by_name]:
        if name not in experiments:
            raise OcmError(f"{ACTIVE}: experiment {unknown(name, experiments)}")
    return {
        **{resolved_file(name): resolved_text(value) for name, value in experiments.items()},
        **dvc_texts(
            [experiments[name] for name in active], [experiments[name] for name in by_name]
        ),
        SCHEMA: json.dumps(Experiment.model_json_schema(), indent=1) + "\n",
    }


def orphans(expected: dict[Path, str]) -> list[Path]:
    """Generated files of experiments that are no longer listed."""
    present = [*RESOLVED.glob("*.yaml"), *own_file("any").parents[1].glob("*/dvc.yaml")]
    return sorted(set(present) - expected.keys())


def write() -> list[Path]:
    """Bring every generated file up to date; returns those that changed."""
    expected = generated()
    changed = outdated(expected)
    for file in changed:
        if file in expected:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(expected[file])
        else:
            file.unlink()
    return changed


def outdated(expected: dict[Path, str]) -> list[Path]:
    differing = [f for f, text in expected.items() if not f.exists() or f.read_text() != text]
    return [*differing, *orphans(expected)]
