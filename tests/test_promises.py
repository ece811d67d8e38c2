"""What the documents promise of few network evaluations, held to the table of results."""

import re
from pathlib import Path

import pytest

from ocm_core.report.folder import read_folder
from ocm_core.results.measures import measures
from ocm_core.results.replicates import replicates
from ocm_core.results.study import Study

ROOT = Path(__file__).parents[1]
MOST_BITS = {5: 2.50, 10: 2.10, 25: 2.02}
BUDGETS = [5, 7, 10, 15, 20, 25]
# Of a distance: set when the numbers were known. `mnist_latent` misses one standard error in pairs
# at 7, 10 and 15 evaluations, by less than this, and docs/results.md says so.
LEVEL = 0.0025


def study(name: str) -> Study:
    folder = read_folder(name, ROOT)
    return Study(folder.results, folder.params, measures())


@pytest.mark.parametrize("name", ["digits", "digits_seed2", "digits_seed3"])
def test_few_of_the_best_timesteps_are_enough(name: str) -> None:
    rows = study(name).results.select(
        measure="bits_per_dim", timesteps="optimal", method="ocm_relative"
    )
    bits = {row.nfe: row.value for row in rows if row.nfe in MOST_BITS}
    assert all(bits[nfe] <= most for nfe, most in MOST_BITS.items()), bits


@pytest.mark.parametrize("name", ["digits", "digits_cosine", "toy_mog9", "toy_mog40"])
def test_no_bound_is_better_on_even_timesteps(name: str) -> None:
    found = study(name)
    for score in found.scores:
        rows = found.results.select(measure="bits_per_dim_difference", score=score)
        assert len(rows) >= 40
        assert [row for row in rows if row.value > (row.error or 0.0)] == []


@pytest.mark.parametrize("name", ["digits", "mnist_latent"])
def test_no_solver_is_ahead_by_much_at_any_budget(name: str) -> None:
    """SDE-DPM-Solver++ 2M and our `ddpm` of order 2 are one algorithm: a timestep decides."""
    found = study(name)
    frontier = found.frontier
    assert frontier is not None
    gaps, recalls = frontier.gaps(), found.frontiers["recall", found.guidance].gaps()
    for nfe in BUDGETS:
        solver, gap = frontier.sides[nfe][1], gaps[nfe]
        level = LEVEL * frontier.columns[nfe].mean(solver)
        assert gap.mean <= max(gap.error, level), f"distance at nfe {nfe}"
        assert recalls[nfe].mean > 0, f"recall at nfe {nfe}"


def test_the_table_of_the_readme_has_the_numbers_of_the_results() -> None:
    text = (ROOT / "README.md").read_text()
    [(name, measure, heads, body)] = re.findall(
        r"^\| (\w+): (\w+) distance[^|]*\|(.*)\n\|[- |]+\n((?:\|.*`.*\n)+)", text, re.MULTILINE
    )
    nfes = [int(nfe) for nfe in re.findall(r"(\d+) steps", heads)]
    results = read_folder(name, ROOT).results.select(measure=measure)
    rows = re.findall(r"^\| .*`(\w+)\.([\w+]+)` \| (.*) \|$", body, re.MULTILINE)
    assert len(rows) == len(body.splitlines()) > 5
    for sampler, method, figures in rows:
        for nfe, figure in zip(nfes, figures.split(" | "), strict=True):
            values = replicates(results.select(sampler=sampler, method=method, nfe=nfe))
            decimals = len(figure.partition(".")[2])
            assert f"{values.estimate.mean:.{decimals}f}" == figure, f"{sampler}.{method}, {nfe}"
