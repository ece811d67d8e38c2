"""What the page was made from, so that it can be made again.

There is no commit here: two commits with equal inputs must give equal bytes. The digests say more
than a commit would, and `git log` finds the commit by the page's own entry in `dvc.lock`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ocm_core.params.schema import Experiment, Train

SHOWN_DIGITS = 16
_PAGE_MAKERS = ("jinja2", "pillow", "plotly", "scipy", "xarray")


def provenance(
    experiment: Experiment,
    fingerprint: Mapping[str, Any],
    versions: Mapping[str, str],
) -> dict[str, str]:
    """`fingerprint` has the digests that the report's own manifest records."""
    software = {**versions, **{name: version(name) for name in _PAGE_MAKERS}}
    sample, train = experiment.sample, experiment.train
    inputs = fingerprint["inputs"]
    return {
        "Remake this page": f"snakemake --cores 2 reports/{experiment.name}.html",
        "Parameters": fingerprint["parameters"][:SHOWN_DIGITS],
        "Sources": fingerprint["sources"][:SHOWN_DIGITS],
        **{f"Input {name}": digest[:SHOWN_DIGITS] for name, digest in inputs.items()},
        "Samples": f"{sample.count} for each of the seeds {', '.join(map(str, sample.seeds))}",
        "Data": ", ".join(_settings(experiment.data.model_dump())),
        "Training": "; ".join(_trained(train)),
        "Heads": f"baseline {experiment.head.baseline}, link {experiment.head.link}",
        "Software": ", ".join(f"{name} {software[name]}" for name in sorted(software)),
    }


def _settings(tree: Mapping[str, Any]) -> Iterator[str]:
    """`layout.kind grid`, and so on."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from (f"{key}.{inner}" for inner in _settings(value))
        else:
            yield f"{key} {value}"


def _trained(train: Train) -> Iterator[str]:
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
