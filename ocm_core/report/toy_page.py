"""The page of a toy experiment: which figures, in which order, with which words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import xarray as xr

from ocm_core.diffusion import schedule as schedules
from ocm_core.report.claims.image_summary import lowest_bound
from ocm_core.report.claims.toy_claims import claims
from ocm_core.report.claims.toy_summary import best_covariance, best_samples
from ocm_core.report.figures import likelihood, toy_curves
from ocm_core.report.figures.chosen_timesteps import OptimalTimesteps, chosen_timesteps
from ocm_core.report.figures.contrast_sheet import plane_sheet
from ocm_core.report.figures.densities import Density, PlanePoints, noisy_marginals
from ocm_core.report.figures.method_styles import method_styles
from ocm_core.report.figures.sample_panels import PlaneSamples, sample_panels
from ocm_core.report.figures.training_curves import LossCurve
from ocm_core.report.page.document import Headline, Page, PageBlock, Section
from ocm_core.report.page.provenance import Provenance
from ocm_core.report.page.style import LineStyle
from ocm_core.report.page.verdicts import Claim
from ocm_core.report.shared_sections import (
    baselines,
    claim_section,
    explained,
    made_from,
    training,
)
from ocm_core.report.statistics.estimates import NOISE
from ocm_core.report.statistics.head_families import (
    HeadFamilies,
    claimed_family,
    head_families,
    in_families,
)
from ocm_core.report.statistics.selections import ordered, unguided
from ocm_core.report.tables import toy_results
from ocm_core.report.tables.methods import method_table
from ocm_core.report.tables.results import bound_table
from ocm_core.schema.block import require
from ocm_core.schema.datasets import MixtureData
from ocm_core.schema.experiment import Experiment


@dataclass(frozen=True)
class ToyPageInputs:
    """Everything that the page shows."""

    experiment: Experiment
    dataset: xr.Dataset  # over score, sampler, method, steps, seed and t; see `results.py`
    truth: Density
    test: PlanePoints
    samples: PlaneSamples
    curves: Mapping[str, LossCurve]
    head_parameters: Mapping[str, int]
    provenance: Provenance
    replaced_baselines: Mapping[str, int] = field(default_factory=dict)  # timesteps, by score
    chains: OptimalTimesteps = field(default_factory=dict)  # of the last score

    @cached_property
    def families(self) -> HeadFamilies:
        return head_families(self.experiment)

    @cached_property
    def styles(self) -> dict[str, LineStyle]:
        return method_styles(self.experiment)

    @property
    def ocm(self) -> str:
        """The OCM head that the page is about."""
        return claimed_family(self.families, self.dataset["method"].values.tolist()).label("ocm")

    @property
    def bound_chains(self) -> dict[str, str]:
        """The kind of each chain that the bound is computed on."""
        settings = self.experiment.evaluate.likelihood
        return {name: chain.kind for name, chain in settings.chains.items()} if settings else {}

    @property
    def reach(self) -> float:
        """Half the width of the frame around the data."""
        return float(np.abs(self.test).max()) * 1.15


_NOISE_RULE = (
    f"A difference is noise if it is at most {NOISE:g} of its standard errors: over seeds, in "
    "pairs that share their starting noise, where one method is said to be better; of two "
    "independent runs, where two are said to be equally good."
)


def page(inputs: ToyPageInputs) -> Page:
    inputs = replace(inputs, dataset=in_families(unguided(inputs.dataset), inputs.families))
    report = inputs.experiment.report
    checked = claims(inputs.dataset, inputs.families)
    sections = [
        claim_section(checked, _NOISE_RULE, inputs.families),
        Section(
            "quality",
            "How good are the samples?",
            tuple(_quality(inputs)),
            best_samples(inputs.dataset, inputs.families) if "mmd" in inputs.dataset else "",
        ),
        Section(
            "covariance",
            "How good are the covariances?",
            tuple(_covariance(inputs)),
            best_covariance(inputs.dataset) if "covariance_error" in inputs.dataset else "",
        ),
        Section(
            "likelihood",
            "How likely are the data?",
            tuple(_likelihood(inputs)),
            _lowest_bound(inputs),
        ),
        Section("data", "Data", tuple(_data(inputs)), _data_words(inputs)),
        Section("methods", "What methods cost", tuple(_methods(inputs)), _METHODS),
        training(
            inputs.curves,
            inputs.styles,
            inputs.dataset,
            baselines(inputs.replaced_baselines, inputs.experiment.schedule.steps),
        ),
        explained(inputs.experiment, inputs.families),
        made_from(inputs.provenance),
    ]
    return Page(
        title=report.title,
        subtitle=report.summary,
        summary=(),
        sections=tuple(section for section in sections if section.blocks),
        glance=tuple(_glance(inputs, checked)),
    )


_METHODS = "Heads add parameters, probes and exact Jacobians add backward passes to every step."


def _glance(inputs: ToyPageInputs, checked: Sequence[Claim]) -> Iterator[PageBlock]:
    """What a visitor sees first: samples, the frontier, and a small table."""
    score = inputs.experiment.network.scores[-1]
    if inputs.samples:
        sampler = next(iter(inputs.samples))[0]
        steps = sorted({k for name, k in inputs.samples if name == sampler})
        labels = (inputs.ocm, "exact_diag", "beta_tilde")
        sheet = plane_sheet(
            inputs.samples, sampler, labels, steps, inputs.reach, inputs.styles, inputs.test
        )
        yield from [sheet] if sheet else []
    if "mmd" in inputs.dataset:
        yield toy_curves.frontier(inputs.dataset, inputs.styles, score, inputs.ocm)
    table = toy_results.headline(inputs.dataset, score, inputs.ocm, inputs.bound_chains)
    if table:
        yield Headline(table, tuple(checked))


def _data(inputs: ToyPageInputs) -> Iterator[PageBlock]:
    schedule = inputs.experiment.schedule
    yield (
        f"The forward process has T = {schedule.steps} steps and a {schedule.kind} schedule; at "
        "every t the density, the score and the posterior covariance are known in closed form."
    )
    built = schedules.of_experiment(inputs.experiment)
    yield noisy_marginals(inputs.truth, built, inputs.test, inputs.reach)


def _data_words(inputs: ToyPageInputs) -> str:
    data = inputs.experiment.data
    assert isinstance(data, MixtureData)
    return f"{data.train_size} points to train on and {len(inputs.test)} to test against."


def _methods(inputs: ToyPageInputs) -> Iterator[PageBlock]:
    yield method_table(inputs.experiment, inputs.head_parameters, inputs.families)


def _covariance(inputs: ToyPageInputs) -> Iterator[PageBlock]:
    settings = inputs.experiment.evaluate.covariance_error
    if settings is not None:
        yield toy_curves.covariance_error(inputs.dataset, inputs.styles, settings.points)


def _quality(inputs: ToyPageInputs) -> Iterator[PageBlock]:
    settings, sample = inputs.experiment.evaluate.mmd, inputs.experiment.sample
    if settings is not None:
        widths = ", ".join(f"{width:g}" for width in settings.bandwidths)
        yield (
            "MMD is the root of the V-statistic with the mean of Gaussian kernels of bandwidths "
            f"{widths}; lower is better."
        )
        for sampler in sample.samplers:
            yield toy_curves.mmd(inputs.dataset, inputs.styles, sampler, sample.count)
        yield toy_results.mmd_table(inputs.dataset)
    if inputs.samples:
        score = inputs.experiment.network.scores[-1]
        yield sample_panels(inputs.samples, inputs.test, inputs.reach, inputs.styles, score)


def _likelihood(inputs: ToyPageInputs) -> Iterator[PageBlock]:
    *others, score = inputs.experiment.network.scores
    evaluate = inputs.experiment.evaluate
    if "nll" in inputs.dataset:
        count = min(require(evaluate.likelihood).images or len(inputs.test), len(inputs.test))
        items = f"{count} test points, with the {score} score,"
        results = ordered(inputs.dataset).sel(score=score)
        yield likelihood.bound(results, inputs.styles, items, density=True)
        yield bound_table(results, inputs.bound_chains)
        for other in others:
            if said := likelihood.in_pairs(ordered(inputs.dataset).sel(score=other)):
                yield f"With the {other} score: {said}"
    if inputs.chains:
        points = f"{require(evaluate.chains).images} training points"
        yield chosen_timesteps(inputs.chains, inputs.styles, points)


def _lowest_bound(inputs: ToyPageInputs) -> str:
    score = inputs.experiment.network.scores[-1]
    if "nll" not in inputs.dataset:
        return ""
    bounds = ordered(inputs.dataset).sel(score=score).isel(chain=0)
    return lowest_bound(bounds["nll"], bounds["nll_se"])
