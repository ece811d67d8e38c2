"""Weights of trajectories as a stage: rows for every score, method and nfe."""

from pathlib import Path

import pytest

from ocm_core.params.compose import compose
from ocm_core.pipeline.stage import Task
from ocm_core.stages import path_weights
from tests.stages.jobs import job_of, visible

TASK = Task("path_weights")
CHOSEN = [
    *("network.scores=[exact]", "evaluate.path_weights.methods=[beta_tilde, exact_full]"),
    *("evaluate.path_weights.nfe=[10, 40]", "evaluate.path_weights.points=1000"),
]


@pytest.mark.parametrize("rule", ["kind: even", "kind: power, exponent: 1.0"])
def test_the_whole_covariance_is_nearer_to_the_data_and_more_steps_are_nearer(
    rule: str, tmp_path: Path
) -> None:
    experiment = compose("toy_mog40", [*CHOSEN, f"+evaluate.path_weights.timesteps={{{rule}}}"])
    job = job_of(visible(experiment, TASK), TASK, tmp_path)
    path_weights.run(job)
    rows = path_weights.PathWeights(job.folder).load()
    assert rows.distinct("timesteps") == [rule[6:].partition(",")[0]] and len(rows) == 8
    found = {(row.measure, row.method, row.nfe): row.value for row in rows}
    assert 1 >= found["ess", "exact_full", 40] > found["ess", "exact_full", 10] > 0.5
    assert found["ess", "beta_tilde", 40] < 0.1
    full, fixed = (found["path_kl", method, 40] for method in ("exact_full", "beta_tilde"))
    assert 0 <= full < 0.05 < found["path_kl", "exact_full", 10] + 0.05 < 1 < fixed
    assert all(row.error and row.score == "exact" for row in rows)
