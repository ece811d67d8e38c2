"""The page of an image experiment: which figures, in which order, with which words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import xarray as xr

from ocm_core.report.claims import image_summary
from ocm_core.report.claims.image_claims import claims
from ocm_core.report.figures import likelihood, tradeoff
from ocm_core.report.figures.deviations import predicted_deviations
from ocm_core.report.figures.method_styles import method_styles
from ocm_core.report.figures.metric_curves import metric_curves
from ocm_core.report.figures.sample_sheets import ImageSamples, sample_sheets
from ocm_core.report.figures.training_curves import LossCurve
from ocm_core.report.page.document import Facts, Page, PageBlock, Section
from ocm_core.report.page.pictures import Pixels
from ocm_core.report.page.style import LineStyle
from ocm_core.report.shared_sections import baselines, claim_section, training
from ocm_core.report.statistics.estimates import NOISE
from ocm_core.report.statistics.head_families import (
    HeadFamilies,
    head_families,
    in_families,
)
from ocm_core.report.statistics.image_results import ImageResults
from ocm_core.report.statistics.selections import by_chain, chain_names, one_score, ordered
from ocm_core.report.tables import cost, least_steps, probes, published_comparison
from ocm_core.report.tables.methods import method_table
from ocm_core.report.tables.published_results import PublishedRow

if TYPE_CHECKING:
    from ocm_core.schema.experiment import Experiment


@dataclass(frozen=True)
class ImagePageInputs:
    """Everything that the page shows. What is empty or None has no figure."""

    experiment: Experiment
    dataset: xr.Dataset  # over score, sampler, method, steps, guidance, seed; see `results.py`
    space: str  # of the features in which samples are compared with the data
    count: int  # of samples in a cell
    test_count: int  # of images in the likelihood
    head_parameters: Mapping[str, int]
    provenance: Mapping[str, str]
    replaced_baselines: Mapping[str, int] = field(default_factory=dict)  # timesteps, by score
    curves: Mapping[str, LossCurve] = field(default_factory=dict)
    samples: ImageSamples = field(default_factory=dict)
    sample_guidance: float = 1.0
    test: Pixels | None = None  # to stand beside the samples
    cost: cost.Cost | None = None
    published: Sequence[PublishedRow] = ()

    @cached_property
    def families(self) -> HeadFamilies:
        return head_families(self.experiment)

    @cached_property
    def results(self) -> ImageResults:
        dataset = by_chain(one_score(ordered(self.dataset)), self._chain_names)
        together = in_families(dataset, self.families)
        return ImageResults(together, self.families, self.space, self.count)

    @cached_property
    def styles(self) -> dict[str, LineStyle]:
        return method_styles(self.experiment)

    @cached_property
    def chain_samples(self) -> ImageSamples:
        """By the names that the results have for samplers."""
        return {(self._chain_names[s], m, k): x for (s, m, k), x in self.samples.items()}

    @property
    def _chain_names(self) -> dict[str, str]:
        return chain_names(self.experiment.sample.samplers)


_NOISE_RULE = (
    f"A difference is noise if it is at most {NOISE:g} of its standard errors: over seeds, in "
    "pairs that share their starting noise; for NLL, over test images, as if each method had its "
    "own. What is near the best is told by the noise of independent runs. With a single seed there "
    "is no telling: undecided."
)


def page(inputs: ImagePageInputs) -> Page:
    results = inputs.results
    report = inputs.experiment.report
    checked = claims(results)
    sections = [
        Section("quality", "How good are the samples?", tuple(_quality(inputs))),
        Section("likelihood", "How likely are the data?", tuple(_likelihood(inputs))),
        Section("tradeoffs", "What is traded for what?", tuple(_tradeoffs(inputs))),
        Section("sheets", "What do the samples look like?", tuple(_samples(inputs))),
        Section("deviations", "What do the heads predict?", tuple(_deviations(inputs))),
        claim_section(checked, _NOISE_RULE, inputs.families),
        Section("published", "Beside the paper's figures", tuple(_published(inputs))),
        Section("methods", "Methods and what they cost", tuple(_methods(inputs))),
        training(inputs.curves, inputs.styles, results.dataset, _baselines(inputs)),
        Section("provenance", "Provenance", (Facts(inputs.provenance),)),
    ]
    return Page(
        title=report.title,
        subtitle=report.summary,
        summary=image_summary.sentences(results, checked),
        sections=tuple(section for section in sections if section.blocks),
    )


def _quality(inputs: ImagePageInputs) -> Iterator[PageBlock]:
    results = inputs.results
    if "fid" in results.measures:
        yield (
            f"{results.distance}: the Fréchet distance between Gaussians fitted to the features "
            f"of the samples and of the training set, in the features of {results.space_name}. "
            + (
                "Other spaces and other sample counts give other numbers."
                if results.comparable
                else "It is not FID, which needs the features of Inception v3: its numbers "
                "compare with one another only."
            )
        )
        yield metric_curves(results, inputs.styles, ["fid"], "steps", "fid")
    others = [key for key in results.measures if key != "fid"]
    if others:
        yield metric_curves(results, inputs.styles, others, "steps", "other-measures")


def _likelihood(inputs: ImagePageInputs) -> Iterator[PageBlock]:
    results = inputs.results
    if results.has("nll"):
        continuous = inputs.experiment.levels is None
        yield likelihood.bound(
            results.dataset, inputs.styles, inputs.test_count, density=continuous
        )
    if results.has("nll_terms"):
        yield likelihood.terms(results.dataset, inputs.styles)


def _tradeoffs(inputs: ImagePageInputs) -> Iterator[PageBlock]:
    results = inputs.results
    known = results.measures
    figures = [
        tradeoff.distance_against_likelihood(results, inputs.styles)
        if "fid" in known and results.has("nll")
        else None,
        tradeoff.recall_against_distance(results, inputs.styles)
        if {"fid", "recall"} <= {*known}
        else None,
    ]
    yield from (figure for figure in figures if figure)
    if results.dataset.sizes.get("guidance", 1) > 1:
        for key in [key for key in ("fid", "recall") if key in known]:
            yield metric_curves(results, inputs.styles, [key], "guidance", f"{key}-guidance")
    if "fid" in known and least_steps.targets(results):
        yield least_steps.introduction(results)
        yield least_steps.table(results, inputs.published)


def _samples(inputs: ImagePageInputs) -> Iterator[PageBlock]:
    if inputs.samples:
        note = f"Guidance {inputs.sample_guidance:g}." if inputs.results.guided else ""
        yield sample_sheets(inputs.chain_samples, inputs.test, note)


def _deviations(inputs: ImagePageInputs) -> Iterator[PageBlock]:
    if "deviation" in inputs.results.dataset:
        yield predicted_deviations(inputs.results.dataset["deviation"])


def _published(inputs: ImagePageInputs) -> Iterator[PageBlock]:
    compared = published_comparison.compare(
        inputs.results, inputs.experiment.methods, inputs.published
    )
    if any(one.paper or one.seeds for one in compared):
        yield published_comparison.introduction(inputs.results, compared)
        yield published_comparison.table(inputs.results, compared)


def _baselines(inputs: ImagePageInputs) -> str | None:
    return baselines(inputs.replaced_baselines, inputs.experiment.schedule.steps)


def _methods(inputs: ImagePageInputs) -> Iterator[PageBlock]:
    yield (
        "A reverse step draws from a Gaussian whose mean comes from the score. The methods differ "
        "in its covariance only."
    )
    yield method_table(inputs.experiment, inputs.head_parameters, inputs.families)
    if inputs.cost is not None:
        yield cost.introduction(inputs.cost, inputs.published)
        yield cost.table(inputs.cost, inputs.head_parameters, inputs.published, inputs.families)
    counts = probes.probe_counts(inputs.experiment.methods, inputs.families)
    if counts:
        yield probes.introduction(inputs.results)
        yield probes.table(inputs.results, counts)
