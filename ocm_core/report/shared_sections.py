"""Sections that the pages of toys and of images share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import xarray as xr

from ocm_core.report.figures.method_styles import MethodStyles
from ocm_core.report.figures.training_curves import LossCurve, levelled, training_curves
from ocm_core.report.page.document import ClaimTable, Facts, PageBlock, Section
from ocm_core.report.page.provenance import Provenance
from ocm_core.report.page.verdicts import Claim, tally
from ocm_core.report.statistics.head_families import HeadFamilies
from ocm_core.report.tables.glossary import INTRODUCTION, glossary
from ocm_core.report.tables.methods import clamped_shares
from ocm_core.schema.experiment import Experiment
from ocm_core.text import listed


def claim_section(checked: Sequence[Claim], rule: str, families: HeadFamilies) -> Section:
    """`rule` says what counts as noise."""
    opening = (
        "The paper is Ou et al., Improving Probabilistic Diffusion Models With Optimal Diagonal "
        "Covariance Matching (ICLR 2025). Each verdict is computed from the numbers of this page, "
        f"and a claim has the verdict of its worst case. {rule}{_about_heads(families)}"
    )
    blocks = (opening, ClaimTable(tuple(checked))) if checked else ()
    return Section("claims", "What holds of the paper's claims", blocks, tally(checked))


def _about_heads(families: HeadFamilies) -> str:
    """On which heads claims are checked; nothing where all are of the papers' form."""
    relative = [label for family in families if not family.published for label in family.kinds]
    published = [label for family in families if family.published for label in family.kinds]
    if not relative:
        return ""
    if not published:
        return (
            " The paper's heads predict a covariance as it is. Those of this page are relative to "
            "a baseline, and each claim names the ones that it was checked on."
        )
    return (
        f" Claims are checked on heads of the paper's form ({listed(published)}) wherever those "
        f"were measured; heads that are relative to a baseline ({listed(relative)}) are not "
        "compared with them."
    )


def baselines(replaced: Mapping[str, int], timesteps: int) -> list[str]:
    """Says where a head's baseline had to be replaced; nothing if nowhere."""
    counts = [
        f"{n} of {timesteps} timesteps with the {score} score" for score, n in replaced.items() if n
    ]
    if not counts:
        return []
    return [
        "Heads with a baseline are relative to the mean posterior variance at each t, as it was "
        "estimated. Where that was not positive, the variance of a Gaussian with the spread of "
        f"the data took its place: at up to {listed(counts)}."
    ]


def training(
    curves: Mapping[str, LossCurve],
    styles: MethodStyles,
    results: xr.Dataset,
    remarks: Sequence[str],
) -> Section:
    blocks = tuple(_training(curves, styles, results, remarks))
    return Section("training", "Training", blocks, levelled(curves) if curves else "")


def explained(experiment: Experiment, families: HeadFamilies) -> Section:
    found = glossary(experiment, families)
    methods = listed([*experiment.methods])
    finding = f"A line and an equation for {methods}, and a line for each sampler."
    return Section("glossary", "Glossary", (INTRODUCTION, found), finding)


def made_from(facts: Provenance) -> Section:
    blocks = (Facts(facts.answers, facts.digests, "Digests, settings and versions"),)
    return Section("provenance", "Provenance", blocks, facts.finding)


def _training(
    curves: Mapping[str, LossCurve],
    styles: MethodStyles,
    results: xr.Dataset,
    remarks: Sequence[str],
) -> Iterator[PageBlock]:
    if curves:
        yield training_curves(curves, styles)
    yield from remarks
    clamped = clamped_shares(results["clamped"]) if "clamped" in results else None
    if clamped is not None:
        yield (
            "Some estimates of Cov[x₀ | xₜ] were out of range (negative, or above the limit), and "
            "were set to its end before they could be sampled from. The share of such entries "
            "along the chain, in percent:"
        )
        yield clamped
