"""What the page was made from, so that it can be made again.

There is no commit here: two commits with equal inputs must give equal bytes. The digests say more
than a commit would, and `git log` finds the commit by the page's own entry in `dvc.lock`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ocm_core.params.schema import Experiment

SHOWN_DIGITS = 16
_PAGE_MAKERS = ("jinja2", "plotly", "scipy", "xarray")


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
        "Data": f"{experiment.data.train_size} for training, {experiment.data.test_size} for "
        f"testing, seed {experiment.data.seed}",
        "Training": f"score {train.score.iterations} iterations (seed {train.score.seed}), "
        f"heads {train.heads.iterations} (seed {train.heads.seed}), batches of "
        f"{train.heads.batch_size}; moments {train.moments.draws} draws per t "
        f"(seed {train.moments.seed})",
        "Heads": f"baseline {experiment.head.baseline}, link {experiment.head.link}",
        "Software": ", ".join(f"{name} {software[name]}" for name in sorted(software)),
    }
