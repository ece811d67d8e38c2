"""The page of an image experiment: which figures, in which order, with which words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

import xarray as xr

from ocm_core.report.claims import image_summary
from ocm_core.report.claims.image_claims import claims
from ocm_core.report.figures import likelihood, tradeoff
from ocm_core.report.figures.deviations import predicted_deviations
from ocm_core.report.figures.metric_curves import against
from ocm_core.report.figures.sample_sheets import Grids, sample_grids
from ocm_core.report.figures.training_curves import Curve
from ocm_core.report.page.document import Block, Facts, Page, Section
from ocm_core.report.page.pictures import Levels
from ocm_core.report.shared_sections import baselines, training, verdicts
from ocm_core.report.statistics.estimates import NOISE
from ocm_core.report.statistics.image_results import Evidence
from ocm_core.report.statistics.selections import by_chain, chain_names, one_score, ordered
from ocm_core.report.tables import cost
from ocm_core.report.tables import least_steps as target
from ocm_core.report.tables import methods as tables
from ocm_core.report.tables import probes as ablation
from ocm_core.report.tables import published_comparison as comparison
from ocm_core.report.tables.published_results import Row

if TYPE_CHECKING:
    from ocm_core.schema.experiment import Experiment


@dataclass(frozen=True)
class Images:
    """Everything that the page shows. What is empty or None has no figure."""

    experiment: Experiment
    results: xr.Dataset  # over score, sampler, method, steps, guidance, seed; see `results.py`
    space: str  # in which samples were judged
    count: int  # of samples in a cell
    test_count: int  # of images in the likelihood
    head_parameters: Mapping[str, int]
    provenance: Mapping[str, str]
    replaced_baselines: Mapping[str, int] = field(default_factory=dict)  # timesteps, by score
    curves: Mapping[str, Curve] = field(default_factory=dict)
    grids: Grids = field(default_factory=dict)
    grid_guidance: float = 1.0
    test: Levels | None = None  # to stand beside the grids
    cost: cost.Cost | None = None
    published: Sequence[Row] = ()

    @cached_property
    def evidence(self) -> Evidence:
        kinds = {label: method.kind for label, method in self.experiment.methods.items()}
        results = by_chain(one_score(ordered(self.results)), self._chain_names)
        return Evidence(results, kinds, self.space, self.count)

    @cached_property
    def chain_grids(self) -> Grids:
        return {(self._chain_names[s], m, k): x for (s, m, k), x in self.grids.items()}

    @property
    def _chain_names(self) -> dict[str, str]:
        return chain_names(self.experiment.sample.samplers)


_NOISE_RULE = (
    f"A difference is noise if it is at most {NOISE:g} of its standard errors: over seeds, in "
    "pairs that share their starting noise; for NLL, over test images, as if each method had its "
    "own. What is near the best is told by the noise of independent runs. With a single seed there "
    "is no telling: undecided."
)


def page(images: Images) -> Page:
    evidence = images.evidence
    report = images.experiment.report
    checked = claims(evidence)
    sections = [
        Section("quality", "How good are the samples?", tuple(_quality(evidence))),
        Section("likelihood", "How likely are the data?", tuple(_likelihood(images))),
        Section("tradeoffs", "What is traded for what?", tuple(_tradeoffs(images))),
        Section("sheets", "What do the samples look like?", tuple(_samples(images))),
        Section("deviations", "What do the heads predict?", tuple(_deviations(images))),
        verdicts(checked, _NOISE_RULE),
        Section("published", "Beside the paper's figures", tuple(_published(images))),
        Section("methods", "Methods and what they cost", tuple(_methods(images))),
        training(images.curves, evidence.styles, evidence.results, _baselines(images)),
        Section("provenance", "Provenance", (Facts(images.provenance),)),
    ]
    return Page(
        title=report.title,
        subtitle=report.summary,
        summary=image_summary.sentences(evidence, checked),
        sections=tuple(section for section in sections if section.blocks),
    )


def _quality(evidence: Evidence) -> Iterator[Block]:
    if "fid" in evidence.measures:
        yield (
            f"{evidence.distance}: the Fréchet distance between Gaussians fitted to the features "
            f"of the samples and of the training set, in the features of {evidence.space_name}. "
            + (
                "Other spaces and other sample counts give other numbers."
                if evidence.comparable
                else "It is not FID, which needs the features of Inception v3: its numbers "
                "compare with one another only."
            )
        )
        yield against(evidence, ["fid"], "steps", "fid")
    others = [key for key in evidence.measures if key != "fid"]
    if others:
        yield against(evidence, others, "steps", "other-measures")


def _likelihood(images: Images) -> Iterator[Block]:
    evidence = images.evidence
    if evidence.has("nll"):
        continuous = images.experiment.levels is None
        yield likelihood.bound(
            evidence.results, evidence.styles, images.test_count, density=continuous
        )
    if evidence.has("nll_terms"):
        yield likelihood.terms(evidence.results, evidence.styles)


def _tradeoffs(images: Images) -> Iterator[Block]:
    evidence = images.evidence
    known = evidence.measures
    figures = [
        tradeoff.distance_against_likelihood(evidence)
        if "fid" in known and evidence.has("nll")
        else None,
        tradeoff.recall_against_distance(evidence) if {"fid", "recall"} <= {*known} else None,
    ]
    yield from (figure for figure in figures if figure)
    if evidence.results.sizes.get("guidance", 1) > 1:
        for key in [key for key in ("fid", "recall") if key in known]:
            yield against(evidence, [key], "guidance", f"{key}-guidance")
    if "fid" in known and target.targets(evidence):
        yield target.introduction(evidence)
        yield target.least_steps(evidence, images.published)


def _samples(images: Images) -> Iterator[Block]:
    if images.grids:
        note = f"Guidance {images.grid_guidance:g}." if images.evidence.guided else ""
        yield sample_grids(images.chain_grids, images.test, note)


def _deviations(images: Images) -> Iterator[Block]:
    if "deviation" in images.evidence.results:
        yield predicted_deviations(images.evidence.results["deviation"])


def _published(images: Images) -> Iterator[Block]:
    compared = comparison.compare(images.evidence, images.experiment.methods, images.published)
    if any(one.paper or one.seeds for one in compared):
        yield comparison.introduction(images.evidence, compared)
        yield comparison.table(images.evidence, compared)


def _baselines(images: Images) -> str | None:
    return baselines(images.replaced_baselines, images.experiment.schedule.steps)


def _methods(images: Images) -> Iterator[Block]:
    methods = images.experiment.methods
    yield (
        "A reverse step draws from a Gaussian whose mean comes from the score. The methods differ "
        "in its covariance only."
    )
    yield tables.methods(methods, images.head_parameters, prod(images.experiment.shape))
    if images.cost is not None:
        yield cost.introduction(images.cost, images.published)
        yield cost.table(images.cost, images.head_parameters, images.published)
    probes = ablation.probes_of(methods)
    if probes:
        yield ablation.introduction(images.evidence)
        yield ablation.table(images.evidence, probes)
