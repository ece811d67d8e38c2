"""Everything in the repository that is generated from parameters, and whether it is up to date."""

from __future__ import annotations

from pathlib import Path

from ocm_core.errors import OcmError, unknown
from ocm_core.params.compose import compose, experiment_names
from ocm_core.params.resolved import (
    ACTIVE,
    RESOLVED,
    active_names,
    resolved_file,
    resolved_text,
)
from ocm_core.pipeline.dvc_yaml import DVC_FILE, dvc_text


def generated() -> dict[Path, str]:
    """The text of each generated file, by its path."""
    experiments = {name: compose(name) for name in experiment_names()}
    active = active_names()
    for name in active:
        if name not in experiments:
            raise OcmError(f"{ACTIVE}: experiment {unknown(name, experiments)}")
    others = [name for name in experiments if name not in active]
    return {
        **{resolved_file(name): resolved_text(value) for name, value in experiments.items()},
        DVC_FILE: dvc_text([experiments[name] for name in active], others),
    }


def orphans(expected: dict[Path, str]) -> list[Path]:
    """Resolved files of experiments that are no more."""
    return sorted(set(RESOLVED.glob("*.yaml")) - expected.keys())


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
