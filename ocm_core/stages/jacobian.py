"""Ask whether the score network is a posterior mean: symmetry, sign and trace of its Jacobian."""

from ocm_core.diffusion.jacobian import (
    LEVELS,
    MOST_ASYMMETRY,
    MOST_NEGATIVE,
    MOST_RATIO,
    PROBES,
    probe,
)
from ocm_core.results.measures import Measure
from ocm_core.results.table import Row
from ocm_core.rng.noise import SampleNoise
from ocm_core.schema.block import Count, Seed
from ocm_core.stages import Job, Params
from ocm_core.stages._evaluation import evaluation
from ocm_core.stages._networks import load_score
from ocm_core.stages._results import ResultsTable
from ocm_core.stages.encode import count_images, read_rows


class JacobianParams(Params):
    """How many test images are looked at."""

    images: Count = 8
    seed: Seed = 11


STAGE = evaluation(
    __name__,
    JacobianParams,
    passes=lambda experiment, settings: len(LEVELS) * (1 + 2 * PROBES),
    measures=(
        Measure(
            *("jacobian_asymmetry", "asymmetry of the Jacobian", "lower"),
            about=f"‖c - cᵀ‖ / (√2 ‖c‖), 0 for a posterior mean; doubtful above {MOST_ASYMMETRY}.",
        ),
        Measure(
            *("jacobian_negative", "negative products with the Jacobian", "lower"),
            about=f"Share of vᵀ c v below 0; doubtful above {MOST_NEGATIVE}.",
        ),
        Measure(
            *("jacobian_ratio", "squared error over the Jacobian's trace"),
            about=f"1 for a posterior mean; doubtful above {MOST_RATIO}, or below its inverse.",
        ),
    ),
)


class JacobianTable(ResultsTable):
    """Three rows per score."""


def run(job: Job) -> None:
    """Probe every score on the first test images."""
    settings, rows = STAGE.settings(job.experiment), list[Row]()
    seen = range(count_images(job, settings.images))
    for score in job.experiment.network.scores:
        denoiser = load_score(job, score)
        x0, label = read_rows(job, "test", seen, denoiser.network.conditional)
        noise = SampleNoise(settings.seed, seen, tuple(x0.shape[1:]), job.device)
        values = probe(denoiser, x0, label, noise)._asdict()
        rows += [Row(f"jacobian_{key}", value, score=score) for key, value in values.items()]
    JacobianTable(job.folder).save(rows)
