"""Families of learned heads: those of the papers' form, and those relative to a baseline.

A head of the papers' form predicts a covariance as it is; any other is relative to a baseline (see
`HeadForm`). Heads of one form are a family. The paper's claims, and the paper's numbers, are about
heads of its own form, and a comparison within one family is one of like with like.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import xarray as xr

if TYPE_CHECKING:
    from ocm_core.schema.experiment import Experiment

HEAD_KINDS = ("npr", "sn", "ocm")  # kinds of methods that the papers train a head for
_PUBLISHED = ("published",)


@dataclass(frozen=True)
class HeadFamily:
    """Heads of one form."""

    published: bool  # of the papers' form
    kinds: Mapping[str, str]  # by label, in the order of the parameters

    def label(self, kind: str) -> str:
        """The head of this kind; the first of several, or the kind's own name if there is none."""
        return next((label for label, known in self.kinds.items() if known == kind), kind)

    @property
    def names(self) -> dict[str, str]:
        """The label of each kind, for texts with `{ocm}`, `{npr}` and `{sn}` in them."""
        return {kind: self.label(kind) for kind in HEAD_KINDS}


HeadFamilies = tuple[HeadFamily, ...]


def head_families(experiment: Experiment) -> HeadFamilies:
    """Those of an experiment: the one of the papers' form first, the others as they come."""
    found: dict[tuple[str, ...], dict[str, str]] = {_PUBLISHED: {}}
    for label, method in experiment.methods.items():
        if method.kind in HEAD_KINDS:
            form = experiment.head.form(method)
            key = _PUBLISHED if form.published else (form.baseline, form.link, form.unit)
            found.setdefault(key, {})[label] = method.kind
    return tuple(HeadFamily(key == _PUBLISHED, kinds) for key, kinds in found.items() if kinds)


def claimed_family(families: HeadFamilies, measured: Collection[str]) -> HeadFamily:
    """The first whose OCM head was measured, else the first of which any head was."""
    known = [({*family.kinds}.intersection(measured), family) for family in families]
    with_ocm = (family for labels, family in known if family.label("ocm") in labels)
    with_any = (family for labels, family in known if labels)
    return next(with_ocm, None) or next(with_any, None) or HeadFamily(True, {})


def relative_heads(families: HeadFamilies) -> frozenset[str]:
    """The labels of all heads that are not of the papers' form."""
    return frozenset(label for family in families if not family.published for label in family.kinds)


def comparable(results: xr.Dataset, families: HeadFamilies, chosen: HeadFamily) -> xr.Dataset:
    """Without the heads of other families."""
    others = {label for family in families for label in family.kinds} - {*chosen.kinds}
    labels = results["method"].values.tolist()
    return results.sel({"method": [label for label in labels if label not in others]})


def in_families(results: xr.Dataset, families: HeadFamilies) -> xr.Dataset:
    """With the heads of each family together: tables list them in this order."""
    return results.sel({"method": families_together(results["method"].values.tolist(), families)})


def families_together(labels: Iterable[str], families: HeadFamilies) -> list[str]:
    """In their order, but with all heads after the first of them, family by family."""
    known = list(labels)
    heads = [label for family in families for label in family.kinds if label in known]
    first = min((known.index(label) for label in heads), default=len(known))
    rest = [label for label in known if label not in heads]
    return [*rest[:first], *heads, *rest[first:]]
