"""What the page was made from, so that it can be made again.

Equal inputs give equal bytes at any commit, so the commit that is named is not the present one but
the last that changed the page's sources or parameters. Digests are those of the manifests, which
name every file with its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    "classifier": "Checkpoint",
}
_PAGE_MAKERS = ("jinja2", "pillow", "plotly", "scipy", "xarray")


def provenance(
    experiment: Experiment,
    commit: str,
    fingerprint: Mapping[str, Any],
    versions: Mapping[str, str],
) -> dict[str, str]:
    """`fingerprint` has the digests that the report's own manifest records."""
    software = {**versions, **{name: version(name) for name in _PAGE_MAKERS}}
    sample, train = experiment.sample, experiment.train
    features = experiment.evaluate.features
    inputs = sorted(fingerprint["inputs"].items(), key=lambda item: _rank(item[0]))
    return {
        "Remake this page": f"snakemake --cores 2 reports/{experiment.name}.html",
        "Commit": commit,
        "Parameters": fingerprint["parameters"][:SHOWN_DIGITS],
        "Sources": fingerprint["sources"][:SHOWN_DIGITS],
        **{f"{_what(name)} {name}": digest[:SHOWN_DIGITS] for name, digest in inputs},
        **({"Feature space": features.space} if features else {}),
        "Samples": f"{sample.count} for each of the seeds {', '.join(map(str, sample.seeds))}",
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
    yield f"moments {train.moments.draws} draws per t (seed {train.moments.seed})"
