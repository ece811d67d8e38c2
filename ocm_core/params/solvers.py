"""Whether the schedulers of diffusers that an experiment names can sample it: asked of diffusers.

Imported when an experiment is composed, never to build a graph; diffusers is imported only where an
experiment names one of its schedulers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ocm_core.errors import OcmError
from ocm_core.samplers.cell_sampler import solver_of
from ocm_core.schema.experiment import Experiment, SolverParams


def check_solvers(experiment: Experiment, file: Path) -> None:
    if problems := list(_problems(experiment)):
        raise OcmError("\n".join(f"{file}: {problem}" for problem in problems))


def _problems(experiment: Experiment) -> Iterator[str]:
    for label, sampler in experiment.sample.samplers.items():
        if isinstance(sampler, SolverParams):
            for problem in dict.fromkeys(_problems_of(experiment, sampler)):
                yield f"sample.samplers.{label}.{problem}"


def _problems_of(experiment: Experiment, sampler: SolverParams) -> Iterator[str]:
    solver = solver_of(sampler, experiment)
    for evaluations in sampler.steps:
        try:
            solver.check(evaluations, experiment.shape)
        except OcmError as error:
            yield str(error)
