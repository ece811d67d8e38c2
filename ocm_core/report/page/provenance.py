"""What the page was made from, so that it can be made again.

Equal inputs give equal bytes at any commit, so the commit that is named is not the present one but
the last that changed the page's sources or parameters. Digests are those of the manifests, which
name every file with its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ocm_core.schema.experiment import Experiment, TrainParams

SHOWN_DIGITS = 16
_NAMED = {
    "encode": "Data",
    "fetch_score": "Checkpoint",
    "score": "Checkpoint",
    "fetch_vae": "Checkpoint",
    "vae": "Checkpoint",
    "heads": "Checkpoint",
    "selection": "Checkpoint",
    "classifier": "Checkpoint",
}
_PAGE_MAKERS = ("jinja2", "pillow", "plotly", "scipy", "xarray")


@dataclass(frozen=True)
class Provenance:
    """What a reader asks, in a few lines, and the digests for those who check."""

    answers: Mapping[str, str]
    digests: Mapping[str, str] = field(default_factory=dict)

    @property
    def finding(self) -> str:
        return f"Made again by {self.answers[REMAKE]}"


REMAKE = "To make this page again"


def provenance(
    experiment: Experiment,
    commit: str,
    fingerprint: Mapping[str, Any],
    versions: Mapping[str, str],
    chosen: Sequence[str],
    machines: Collection[str],
) -> Provenance:
    """`fingerprint` has the digests that the report's own manifest records, `chosen` what the
    experiment sets apart from the defaults, `machines` the classes of machine that made numbers."""
    name = experiment.name
    answers = {
        REMAKE: f"snakemake --cores 2 reports/{name}.html",
        "Commit": f"{commit}: the last that changed a source file or a parameter of this page. "
        "Later commits, HEAD among them, changed other things, and would make the same page",
        "Not the defaults": f"{'; '.join(chosen) or 'nothing'} (params/experiment/{name}.yaml over "
        "params/defaults.yaml)",
        "Machine": "; ".join(sorted(machines)) or "not recorded",
        "Samples": _samples(experiment),
    }
    return Provenance(answers, _digests(experiment, fingerprint, versions))


def _samples(experiment: Experiment) -> str:
    sample = experiment.sample
    return f"{sample.count} for each of the seeds {', '.join(map(str, sample.seeds))}"


def _digests(
    experiment: Experiment, fingerprint: Mapping[str, Any], versions: Mapping[str, str]
) -> dict[str, str]:
    software = {**versions, **{name: version(name) for name in _PAGE_MAKERS}}
    train = experiment.train
    features = experiment.evaluate.features
    inputs = sorted(fingerprint["inputs"].items(), key=lambda item: _rank(item[0]))
    return {
        "Parameters": fingerprint["parameters"][:SHOWN_DIGITS],
        "Sources": fingerprint["sources"][:SHOWN_DIGITS],
        **{f"{_what(name)} {name}": digest[:SHOWN_DIGITS] for name, digest in inputs},
        **({"Feature space": features.space} if features else {}),
        "Data": ", ".join(_settings(experiment.data.model_dump())),
        "Training": "; ".join(_trained(train)),
        "Heads": "; ".join(_heads(experiment)) or "none",
        "Software": ", ".join(f"{name} {software[name]}" for name in sorted(software)),
    }


def _what(name: str) -> str:
    """What an input `stage/part` is to the reader."""
    return _NAMED.get(name.split("/")[0], "Input")


def _rank(name: str) -> int:
    """Data and networks first; the others in the order of the graph."""
    stages = [*_NAMED]
    stage = name.split("/")[0]
    return stages.index(stage) if stage in stages else len(stages)


def _settings(tree: Mapping[str, Any]) -> Iterator[str]:
    """`layout.kind grid`, and so on."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from (f"{key}.{inner}" for inner in _settings(value))
        else:
            yield f"{key} {value}"


def _heads(experiment: Experiment) -> Iterator[str]:
    """The heads of each form: `npr, sn, ocm: baseline none, link identity, unit own`."""
    labels: dict[str, list[str]] = {}
    for label, method in experiment.methods.items():
        if method.needs == "head":
            form = experiment.head.form(method)
            words = f"baseline {form.baseline}, link {form.link}, unit {form.unit}"
            labels.setdefault(words, []).append(label)
    return (f"{', '.join(known)}: {form}" for form, known in labels.items())


def _trained(train: TrainParams) -> Iterator[str]:
    networks = {
        "autoencoder": train.vae,
        "score": train.score,
        "heads": train.heads,
        "classifier": train.classifier,
    }
    for name, settings in networks.items():
        if settings is not None:
            yield (
                f"{name} {settings.iterations} iterations in batches of {settings.batch_size} "
                f"(seed {settings.seed})"
            )
    if train.selection.kind == "best_fid":
        kept, samples = train.heads.keep_every, train.selection.samples
        yield f"heads kept every {kept} iterations, those with the least FID of {samples} samples"
    yield f"moments {train.moments.draws} draws per t (seed {train.moments.seed})"
