"""Whether a revision's numbers are what its parameters, and here its sources, would make."""

from __future__ import annotations

from pathlib import Path

from ocm_core.compare.recorded import METRICS, PARAMS, REPORTS, RESOLVED, read_tree
from ocm_core.compare.revisions import Revision
from ocm_core.params.document import validate
from ocm_core.pipeline.number_provenance import SUFFIX, NumberProvenance

CURRENT, MISSING = "current", "missing"


def number_state(revision: Revision, name: str) -> str:
    """`current`, `missing`, or `stale: ...` with why, as `ocm status` says of artifacts.

    Of a commit only its parameters are asked: its sources are not those that run here.
    """
    metrics, made, resolved = f"{name}{METRICS}", f"{name}{SUFFIX}", f"{name}{PARAMS}"
    present = revision.files(REPORTS)
    if f"{REPORTS}/{metrics}" not in present:
        return MISSING
    if f"{REPORTS}/{made}" not in present:
        return "stale: nothing says what made them"
    parameters = read_tree(revision, RESOLVED, resolved)
    if not parameters:
        return f"stale: {RESOLVED}/{resolved} is missing"
    file = f"{REPORTS}/{made}"
    provenance = NumberProvenance.parse(revision.read(file), f"{file} of {revision.name}")
    reasons = list(provenance.differences(parameters, revision.read(f"{REPORTS}/{metrics}")))
    if revision.runs_here:
        experiment = validate(parameters, Path(RESOLVED, resolved))
        reasons += ["made with other sources"] * provenance.has_other_sources(experiment)
    return f"stale: {'; '.join(reasons)}" if reasons else CURRENT
