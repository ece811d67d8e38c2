"""The page of a toy experiment: which figures, in which order, with which words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import xarray as xr

from ocm_core.diffusion import schedule as schedules
from ocm_core.report.claims.toy_claims import claims
from ocm_core.report.claims.toy_summary import sentences
from ocm_core.report.figures import toy_curves
from ocm_core.report.figures.densities import Density, PlanePoints, noisy_marginals
from ocm_core.report.figures.method_styles import method_styles
from ocm_core.report.figures.sample_panels import PlaneSamples, sample_panels
from ocm_core.report.figures.training_curves import LossCurve
from ocm_core.report.page.document import Facts, Page, PageBlock, Section
from ocm_core.report.page.style import LineStyle
from ocm_core.report.shared_sections import baselines, claim_section, training
from ocm_core.report.statistics.estimates import NOISE
from ocm_core.report.statistics.head_families import HeadFamilies, head_families, in_families
from ocm_core.report.statistics.selections import unguided
from ocm_core.report.tables.methods import method_table
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
    provenance: Mapping[str, str]
    replaced_baselines: Mapping[str, int] = field(default_factory=dict)  # timesteps, by score

    @cached_property
    def families(self) -> HeadFamilies:
        return head_families(self.experiment)

    @cached_property
    def styles(self) -> dict[str, LineStyle]:
        return method_styles(self.experiment)

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
        Section("data", "Data", tuple(_data(inputs))),
        Section("methods", "Methods and what they cost", tuple(_methods(inputs))),
        Section("covariance", "How good are the covariances?", tuple(_covariance(inputs))),
        Section("quality", "How good are the samples?", tuple(_quality(inputs))),
        claim_section(checked, _NOISE_RULE, inputs.families),
        training(
            inputs.curves,
            inputs.styles,
            inputs.dataset,
            baselines(inputs.replaced_baselines, inputs.experiment.schedule.steps),
        ),
        Section("provenance", "Provenance", (Facts(inputs.provenance),)),
    ]
    return Page(
        title=report.title,
        subtitle=report.summary,
        summary=sentences(inputs.dataset, inputs.families, checked),
        sections=tuple(section for section in sections if section.blocks),
    )


def _data(inputs: ToyPageInputs) -> Iterator[PageBlock]:
    data, schedule = inputs.experiment.data, inputs.experiment.schedule
    assert isinstance(data, MixtureData)
    yield (
        f"{data.train_size} points to train on and {len(inputs.test)} to test against. "
        f"The forward process has T = {schedule.steps} steps and a {schedule.kind} schedule; at "
        "every t the density, the score and the posterior covariance are known in closed form."
    )
    built = schedules.build(schedule.kind, schedule.steps)
    yield noisy_marginals(inputs.truth, built, inputs.test, inputs.reach)


def _methods(inputs: ToyPageInputs) -> Iterator[PageBlock]:
    yield (
        "A reverse step draws from a Gaussian whose mean comes from the score. The methods differ "
        "in its covariance only."
    )
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
    if inputs.samples:
        score = inputs.experiment.network.scores[-1]
        yield sample_panels(inputs.samples, inputs.test, inputs.reach, inputs.styles, score)
