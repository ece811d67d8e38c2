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
from ocm_core.report.figures import toy_curves as lines
from ocm_core.report.figures.densities import Density, noisy_marginals
from ocm_core.report.figures.sample_panels import Points, Samples, sample_panels
from ocm_core.report.figures.training_curves import Curve
from ocm_core.report.page.document import Block, Facts, Page, Section
from ocm_core.report.page.style import LineStyle, line_styles
from ocm_core.report.shared_sections import baselines, training, verdicts
from ocm_core.report.statistics.estimates import NOISE
from ocm_core.report.statistics.selections import unguided
from ocm_core.report.tables import methods as tables
from ocm_core.schema.datasets import MixtureData
from ocm_core.schema.experiment import Experiment


@dataclass(frozen=True)
class Toy:
    """Everything that the page shows."""

    experiment: Experiment
    results: xr.Dataset
    truth: Density
    test: Points
    samples: Samples
    curves: Mapping[str, Curve]
    head_parameters: Mapping[str, int]
    provenance: Mapping[str, str]
    replaced_baselines: Mapping[str, int] = field(default_factory=dict)  # timesteps, by score

    @cached_property
    def styles(self) -> dict[str, LineStyle]:
        return line_styles({label: m.kind for label, m in self.experiment.methods.items()})

    @property
    def reach(self) -> float:
        """Half the width of the frame around the data."""
        return float(np.abs(self.test).max()) * 1.15


_NOISE_RULE = (
    f"A difference is noise if it is at most {NOISE:g} of its standard errors: over seeds, in "
    "pairs that share their starting noise, where one method is said to be better; of two "
    "independent runs, where two are said to be equally good."
)


def page(toy: Toy) -> Page:
    toy = replace(toy, results=unguided(toy.results))
    report = toy.experiment.report
    checked = claims(toy.results)
    sections = [
        Section("data", "Data", tuple(_data(toy))),
        Section("methods", "Methods and what they cost", tuple(_methods(toy))),
        Section("covariance", "How good are the covariances?", tuple(_covariance(toy))),
        Section("quality", "How good are the samples?", tuple(_quality(toy))),
        verdicts(checked, _NOISE_RULE),
        training(
            toy.curves,
            toy.styles,
            toy.results,
            baselines(toy.replaced_baselines, toy.experiment.schedule.steps),
        ),
        Section("provenance", "Provenance", (Facts(toy.provenance),)),
    ]
    return Page(
        title=report.title,
        subtitle=report.summary,
        summary=sentences(toy.results, checked),
        sections=tuple(section for section in sections if section.blocks),
    )


def _data(toy: Toy) -> Iterator[Block]:
    data, schedule = toy.experiment.data, toy.experiment.schedule
    assert isinstance(data, MixtureData)
    yield (
        f"{data.train_size} points to train on and {len(toy.test)} to test against. "
        f"The forward process has T = {schedule.steps} steps and a {schedule.kind} schedule; at "
        "every t the density, the score and the posterior covariance are known in closed form."
    )
    built = schedules.build(schedule.kind, schedule.steps)
    yield noisy_marginals(toy.truth, built, toy.test, toy.reach)


def _methods(toy: Toy) -> Iterator[Block]:
    yield (
        "A reverse step draws from a Gaussian whose mean comes from the score. The methods differ "
        "in its covariance only."
    )
    yield tables.methods(toy.experiment.methods, toy.head_parameters, toy.test.shape[1])


def _covariance(toy: Toy) -> Iterator[Block]:
    settings = toy.experiment.evaluate.covariance_error
    if settings is not None:
        yield lines.covariance_error(toy.results, toy.styles, settings.points)


def _quality(toy: Toy) -> Iterator[Block]:
    settings, sample = toy.experiment.evaluate.mmd, toy.experiment.sample
    if settings is not None:
        widths = ", ".join(f"{width:g}" for width in settings.bandwidths)
        yield (
            "MMD is the root of the V-statistic with the mean of Gaussian kernels of bandwidths "
            f"{widths}; lower is better."
        )
        for sampler in sample.samplers:
            yield lines.mmd(toy.results, toy.styles, sampler, sample.count)
    if toy.samples:
        score = toy.experiment.network.scores[-1]
        yield sample_panels(toy.samples, toy.test, toy.reach, toy.styles, score)
