"""Write test images as files and read them back: the bits that a bound promises, beside formats."""

from collections.abc import Iterator
from itertools import product
from math import inf
from time import perf_counter
from typing import Any

import numpy as np
from numpy import ndarray

from ocm_core.covariance import build_all
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.errors import OcmError
from ocm_core.metrics import mean_and_error
from ocm_core.results.measures import Measure, of_use
from ocm_core.results.table import Row
from ocm_core.sampling.recipe import Recipe
from ocm_core.schema.block import Choices, Count, Seed
from ocm_core.schema.timesteps import DecoderVariance, NamedTimesteps, TimestepsParams
from ocm_core.stages import Experiment, Job, Params
from ocm_core.stages._evaluation import EvaluatedModel, evaluated, evaluation, passes_of
from ocm_core.stages._results import ResultsTable
from ocm_core.stages.encode import open_split
from ocm_core.uses.codec import ImageCodec, bits_of_bound, image_codec, kind_of_processor, uncodable
from ocm_core.uses.lossless import ImagePixels, bits_by_format

WHERE = "evaluate.codec"
DRAWS = 4  # of the noise, over which the bound of an image is averaged
MOST_EXCESS = 0.05  # bits per dimension


class CodecParams(Params):
    """Which test images become files, by which methods that DDPM is defined for."""

    methods: Choices[str]
    nfe: Choices[Count] = [10]
    timesteps: TimestepsParams = NamedTimesteps()
    decoder_variance: DecoderVariance = "method"  # where the rule does not say it
    images: Count = 100  # one after another on one core: a network evaluation per step
    seed: Seed = 13

    @property
    def variance(self) -> DecoderVariance:
        """Return the variance of the decoder."""
        return getattr(self.timesteps, "decoder_variance", None) or self.decoder_variance


def _check(experiment: Experiment, settings: CodecParams) -> Iterator[str]:
    for label, method in build_all(experiment.methods).items():
        if label in settings.methods and (problem := uncodable(method)):
            yield f"{WHERE}.methods: {problem}"
    if experiment.levels is None or len(experiment.shape) != 3:
        yield f"{WHERE}: files are of images, and the data are points or latents; use null"
    if experiment.network.conditional:
        yield f"{WHERE}: the network takes labels, and a file has none; use null"


STAGE = evaluation(
    __name__,
    CodecParams,
    "sample.clip",
    # two in double precision, and those of the bound
    passes=lambda e, s: (4 + DRAWS) * passes_of(e, s.methods) * sum(s.nfe),
    check=_check,
    gpu=False,
    measures=(
        of_use(
            *("file_bits_per_dim", "file, bits/dim", "lower"),
            about="Test images in one file, from which they came back exactly, beside formats for"
            " images: each in a file of its own, and all as one mosaic.",
            replicate=None,
        ),
        of_use(
            *("net_bits_less_bound", "net bits less the bound, bits/dim"),
            about="What an image adds to the file, less the variational bound on it: about 0 where"
            " the bound is what a file takes.",
        ),
        Measure(
            *("net_bits_per_dim", "net, bits/dim", "lower"),
            about="What an image adds to a file.",
            replicate="image",
            shown=False,
        ),
    ),
)


class FileSizes(ResultsTable):
    """Rows of the bits in files, of each image's share, and of that less its bound."""


def run(job: Job) -> None:
    """Write and read the images by every method at every nfe; measure formats beside them."""
    experiment, settings, stored = (
        job.experiment,
        STAGE.settings(job.experiment),
        open_split(job, "test"),
    )
    x0 = stored.read(range(min(settings.images, len(stored))))
    pixels = np.round((x0 + 1) * (((experiment.levels or 0) - 1) / 2)).astype(np.uint8)
    formats, rule, rows = bits_by_format(pixels), settings.timesteps, list[Row]()
    decoder = Decoder(experiment.levels, variance=settings.variance)
    for model in evaluated(job):
        place: dict[str, Any] = {"score": model.score, "timesteps": rule.kind}
        for label, nfe in product(model.methods, settings.nfe):
            visited = model.timesteps(rule, label, nfe)
            recipe = Recipe(visited, model.methods[label], Ddpm(), clip=model.clip)
            code = image_codec(recipe, model.denoiser, decoder, experiment.shape)
            rows += _rows(model, code, pixels, settings.seed, place | {"method": label, "nfe": nfe})
        for nfe, (name, bits) in product(settings.nfe, formats.items()):
            rows.append(Row("file_bits_per_dim", bits, method=name, nfe=nfe, **place))
    FileSizes(job.folder).save(rows)
    job.note(images=len(pixels), machine=kind_of_processor())


def _rows(
    model: EvaluatedModel, code: ImageCodec, pixels: ImagePixels, seed: int, place: dict[str, Any]
) -> Iterator[Row]:
    """Write the images and read them back; yield the bits that they took."""
    what, job = f"{place['method']}, nfe {place['nfe']}", model.job
    begun = perf_counter()
    coded = code.encode(pixels, lambda rows: job.progress(rows, f"{what}: to bits"))
    written = perf_counter()
    given = coded.words, coded.first, len(pixels)
    back = code.decode(*given, lambda rows: job.progress(rows, f"{what}: to pixels"))
    taken = written - begun, perf_counter() - written
    job.log.info("%s: %.1f s to bits, %.1f s to pixels", what, *taken)
    if not (back == pixels).all():
        raise OcmError(f"{WHERE}: {what}: images did not come back exactly")
    yield Row("file_bits_per_dim", 32 * len(coded.words) / pixels.size, **place)
    if coded.first == len(pixels):
        raise OcmError(f"{WHERE}.images: {len(pixels)} are too few to pop from; use more")
    net = coded.bits / pixels[0].size
    bound = bits_of_bound(model.denoiser, code, pixels, range(seed, seed + DRAWS), job.device)
    excess, error = _mean(net - bound[coded.first :])
    if excess - _quantile(len(net)) * error > MOST_EXCESS:
        found = f"{excess:.3f} ± {error:.3f} bits/dim above the bound"
        raise OcmError(f"{WHERE}: {what}: files are {found}; expected {MOST_EXCESS} at most")
    yield Row("net_bits_per_dim", *_mean(net), **place)
    yield Row("net_bits_less_bound", excess, error, **place)


def _quantile(count: int) -> float:
    """Return how many standard errors of so many values stand for three of a known deviation."""
    from scipy.stats import t  # slow

    return float(t.ppf(0.99865, count - 1))


def _mean(values: ndarray) -> tuple[float, float]:
    """Return the mean over images and its standard error, which one image does not tell."""
    return mean_and_error(values) if len(values) > 1 else (float(values[0]), inf)
