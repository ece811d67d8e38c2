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
from ocm_core.report.figures.chosen_timesteps import OptimalTimesteps, chosen_timesteps
from ocm_core.report.figures.contrast_sheet import image_sheet
from ocm_core.report.figures.deviations import nearest_head, predicted_deviations
from ocm_core.report.figures.differences import difference_curves
from ocm_core.report.figures.frontier import frontier_figure
from ocm_core.report.figures.method_styles import method_styles
from ocm_core.report.figures.metric_curves import metric_curves
from ocm_core.report.figures.sample_sheets import ImageSamples, sample_sheets
from ocm_core.report.figures.training_curves import LossCurve
from ocm_core.report.page.document import Headline, Page, PageBlock, Section
from ocm_core.report.page.pictures import Pixels
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
from ocm_core.report.statistics.frontier import Frontier, Route
from ocm_core.report.statistics.head_families import (
    HeadFamilies,
    head_families,
    in_families,
)
from ocm_core.report.statistics.image_results import ImageResults
from ocm_core.report.statistics.jackknife import JackknifedResults, is_jackknifed, replicated
from ocm_core.report.statistics.selections import (
    LIKELIHOOD_SAMPLER,
    SHEET_STEPS,
    by_chain,
    chain_names,
    first_chain,
    nearest_steps,
    one_score,
    ordered,
)
from ocm_core.report.tables import cost, least_steps, probes, published_comparison
from ocm_core.report.tables.headline import headline
from ocm_core.report.tables.methods import method_table
from ocm_core.report.tables.published_results import PublishedRow
from ocm_core.report.tables.results import bound_table, sample_table
from ocm_core.schema.block import require

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
    provenance: Provenance
    replaced_baselines: Mapping[str, int] = field(default_factory=dict)  # timesteps, by score
    curves: Mapping[str, LossCurve] = field(default_factory=dict)
    chains: OptimalTimesteps = field(default_factory=dict)
    samples: ImageSamples = field(default_factory=dict)
    sample_guidance: float = 1.0
    test: Pixels | None = None  # to stand beside the samples
    loss_count: int = 0  # of test images in the loss of the score network
    cost: cost.Cost | None = None
    published: Sequence[PublishedRow] = ()

    @cached_property
    def families(self) -> HeadFamilies:
        return head_families(self.experiment)

    @cached_property
    def results(self) -> ImageResults:
        dataset = by_chain(first_chain(self._one_score), self._chain_names)
        together = in_families(dataset, self.families)
        if is_jackknifed(together):
            replicates = replicated(together)
            return JackknifedResults(replicates, self.families, self.space, self.count)
        return ImageResults(together, self.families, self.space, self.count)

    @cached_property
    def bounds(self) -> xr.Dataset:
        """The bound over (chain, method, steps), of every chain; empty where there is none."""
        whole = self._one_score
        known = [name for name in whole.data_vars if "chain" in whole[name].dims]
        return in_families(whole[known], self.families) if known else whole[known]

    @property
    def _one_score(self) -> xr.Dataset:
        return one_score(ordered(self.dataset))

    @cached_property
    def styles(self) -> dict[str, LineStyle]:
        return method_styles(self.experiment)

    @cached_property
    def chain_samples(self) -> ImageSamples:
        """By the names that the results have for samplers."""
        return {(self._chain_names[s], m, k): x for (s, m, k), x in self.samples.items()}

    @property
    def rivals(self) -> frozenset[str]:
        """The samplers that are solvers of diffusers, by the names that the results have."""
        samplers = self.experiment.sample.samplers.items()
        return frozenset(
            self._chain_names[label] for label, params in samplers if params.kind == "diffusers"
        )

    @property
    def bound_chains(self) -> dict[str, str]:
        """The kind of each chain that the bound is computed on."""
        settings = self.experiment.evaluate.likelihood
        return {name: chain.kind for name, chain in settings.chains.items()} if settings else {}

    @cached_property
    def compared(self) -> list[published_comparison.Compared]:
        return published_comparison.compare(self.results, self.experiment.methods, self.published)

    @property
    def _chain_names(self) -> dict[str, str]:
        return chain_names(self.experiment.sample.samplers)


_NOISE_RULE = (
    f"A difference is noise if it is at most {NOISE:g} of its standard errors: over seeds, or over "
    "the blocks of a jackknife, in pairs that share their starting noise; for NLL, over test "
    "images, as if each method had its own. What is near the best is told by the noise of "
    "independent runs. With a single seed and no jackknife there is no telling: undecided."
)


def page(inputs: ImagePageInputs) -> Page:
    results = inputs.results
    report = inputs.experiment.report
    checked = claims(results)
    has_distance, has_bound = results.has("fid"), results.has("nll")
    sections = [
        claim_section(checked, _NOISE_RULE, inputs.families),
        Section(
            "quality",
            "How good are the samples?",
            tuple(_quality(inputs)),
            image_summary.best_distance(results) if has_distance else "",
        ),
        *_other_spaces(inputs),
        Section(
            "likelihood",
            "How likely are the data?",
            tuple(_likelihood(inputs)),
            image_summary.lowest_bound(results.mean("nll"), results.error("nll"))
            if has_bound
            else "",
        ),
        Section(
            "tradeoffs",
            "What is traded for what?",
            tuple(_tradeoffs(inputs)),
            image_summary.steps_saved(results) or "",
        ),
        Section("sheets", "What do the samples look like?", tuple(_samples(inputs)), _SHEETS),
        _deviations(inputs),
        _published(inputs),
        Section(
            "methods",
            "What methods cost",
            tuple(_methods(inputs)),
            inputs.cost.finding if inputs.cost else "",
        ),
        training(
            inputs.curves, inputs.styles, results.dataset, [*_held_out(inputs), *_baselines(inputs)]
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


_SHEETS = "Every sampler, method and K, from the same noise: the first samples of the first seed."


def _glance(inputs: ImagePageInputs, checked: Sequence[Claim]) -> Iterator[PageBlock]:
    """What a visitor sees first: samples, the frontier, and a small table."""
    results = inputs.results
    steps = nearest_steps(SHEET_STEPS, {k for _, _, k in inputs.samples})
    note = f" Guidance {inputs.sample_guidance:g}." if results.guided else ""
    sheet = image_sheet(
        inputs.chain_samples, _sheet_routes(inputs, steps), steps, inputs.test, note
    )
    frontier = frontier_figure(results, inputs.rivals)
    yield from (figure for figure in (sheet, frontier) if figure)
    table = headline(results, inputs.bounds, inputs.bound_chains, inputs.rivals)
    if table:
        yield Headline(table, tuple(checked))


def _sheet_routes(inputs: ImagePageInputs, steps: Sequence[int]) -> dict[str, tuple[str, str]]:
    """The best of ours at the fewest steps, the published ways, and the best solver."""
    results = inputs.results
    ocm = results.heads("fid").label("ocm")
    papers = [
        Route(LIKELIHOOD_SAMPLER, ocm, False),
        Route(LIKELIHOOD_SAMPLER, "beta_tilde", False),
        Route("ddim", "delta", False),
    ]
    ours = solver = None
    if "fid" in results.measures and steps:
        frontier = Frontier.of(results, "fid", inputs.sample_guidance, inputs.rivals)
        ours, solver = (frontier.best(steps[0], rival=rival) for rival in (False, True))
    chosen = [route for route in (ours, *papers, solver) if route]
    return {route.label: (route.sampler, route.method) for route in chosen}


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
    yield from _measures(results, inputs.styles, inputs.compared)


def _measures(
    results: ImageResults,
    styles: Mapping[str, LineStyle],
    compared: Sequence[published_comparison.Compared] = (),
) -> Iterator[PageBlock]:
    """Everything that was measured of samples in the features of one space."""
    if "fid" in results.measures:
        if figure := difference_curves(results, styles, "fid"):
            yield figure
        yield metric_curves(results, styles, ["fid"], "steps", f"fid{results.ending}")
    others = [key for key in results.measures if key != "fid"]
    if others:
        yield metric_curves(results, styles, others, "steps", f"other-measures{results.ending}")
    tables = (sample_table(results, key, compared) for key in results.measures)
    yield from (table for table in tables if table)


def _other_spaces(inputs: ImagePageInputs) -> Iterator[Section]:
    """The same samples, judged by other features."""
    features = inputs.experiment.evaluate.features
    for space in features.beside if features else ():
        results = inputs.results.beside(space)
        if results.has("fid"):
            yield Section(
                f"quality-{space}",
                f"And in the features of {results.space_name}?",
                tuple(_measures(results, inputs.styles)),
                image_summary.best_distance(results),
            )


def _likelihood(inputs: ImagePageInputs) -> Iterator[PageBlock]:
    results = inputs.results
    if results.has("nll"):
        continuous = inputs.experiment.levels is None
        items = f"{inputs.test_count} test images"
        yield likelihood.bound(inputs.bounds, inputs.styles, items, density=continuous)
        yield bound_table(inputs.bounds, inputs.bound_chains, inputs.compared)
    if results.has("nll_terms") and (terms := likelihood.terms(results.dataset, inputs.styles)):
        yield terms
    if inputs.chains:
        images = require(inputs.experiment.evaluate.chains).images
        yield chosen_timesteps(inputs.chains, inputs.styles, f"{images} training images")


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


def _deviations(inputs: ImagePageInputs) -> Section:
    if "deviation" not in inputs.results.dataset:
        return Section("deviations", "", ())
    figure = predicted_deviations(inputs.results.dataset["deviation"])
    return Section("deviations", "What do the heads predict?", (figure,), nearest_head(figure))


def _published(inputs: ImagePageInputs) -> Section:
    compared = inputs.compared
    blocks: tuple[PageBlock, ...] = ()
    if any(one.paper or one.seeds for one in compared):
        blocks = (
            published_comparison.introduction(inputs.results, compared),
            published_comparison.table(inputs.results, compared),
        )
        if paper := inputs.experiment.report.paper:
            place = published_comparison.of_another_network(paper, compared)
            blocks = (" ".join([place, *_held_out(inputs)]), *blocks)
    finding = published_comparison.finding(compared)
    return Section("published", "Beside the paper's figures", blocks, finding)


def _baselines(inputs: ImagePageInputs) -> list[str]:
    return baselines(inputs.replaced_baselines, inputs.experiment.schedule.steps)


def _held_out(inputs: ImagePageInputs) -> list[str]:
    """What the network's own loss is where it was not trained."""
    results, settings = inputs.results, inputs.experiment.evaluate.loss
    if not settings or not results.has("loss"):
        return []
    mean, error = (float(results.dataset[name]) for name in ("loss", "loss_se"))
    return [
        f"The loss of the score network on {inputs.loss_count} test images, the mean of (ε - ε̂)² "
        f"over values and timesteps, is {mean:.4f} ± {error:.4f}."
    ]


def _methods(inputs: ImagePageInputs) -> Iterator[PageBlock]:
    yield method_table(inputs.experiment, inputs.head_parameters, inputs.families)
    if inputs.cost is not None:
        yield cost.introduction(inputs.cost, inputs.published)
        yield cost.table(inputs.cost, inputs.head_parameters, inputs.published, inputs.families)
    counts = probes.probe_counts(inputs.experiment.methods, inputs.families)
    if counts:
        yield probes.introduction(inputs.results)
        yield probes.table(inputs.results, counts)
