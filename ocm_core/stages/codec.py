"""Write test images as files and read them back: the bits that a bound promises, beside formats."""

from collections.abc import Iterator, Mapping
from itertools import product
from math import sqrt
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch

from ocm_core.covariance import build_all
from ocm_core.covariance.interface import Clip
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.errors import OcmError
from ocm_core.likelihood.bound import Likelihood
from ocm_core.results.measures import USES, Measure
from ocm_core.results.table import Results, Row
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.schema.block import Choices, Count, Seed
from ocm_core.schema.combinations import check_timesteps, unknown_methods
from ocm_core.schema.timesteps import DecoderVariance, NamedTimesteps, TimestepsParams
from ocm_core.stages import Experiment, Job, Params, Stage, Work
from ocm_core.stages._networks import evaluating
from ocm_core.stages._results import ResultsTable, check_test_split
from ocm_core.stages.encode import open_split
from ocm_core.stages.heads import load_denoiser
from ocm_core.stages.timesteps import optimal_timesteps
from ocm_core.uses.codec import ImageCodec, image_codec, kind_of_processor, uncodable
from ocm_core.uses.lossless import ImagePixels, available, encoded, mosaic, strip

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
        rule = self.timesteps
        return (rule.kind == "optimal" and rule.decoder_variance) or self.decoder_variance


def _check(experiment: Experiment) -> Iterator[str]:
    settings = STAGE.settings(experiment)
    yield from unknown_methods(experiment, f"{WHERE}.methods", settings.methods)
    for label, method in build_all(experiment.methods).items():
        if label in settings.methods and (problem := uncodable(method)):
            yield f"{WHERE}.methods: {problem}"
    yield from check_test_split(experiment, WHERE)
    given = settings.timesteps, settings.nfe, settings.methods
    yield from check_timesteps(experiment, f"{WHERE}.timesteps", *given)
    if experiment.levels is None or len(experiment.shape) != 3:
        yield f"{WHERE}: files are of images, and the data are points or latents; use null"
    if experiment.network.conditional:
        yield f"{WHERE}: the network takes labels, and a file has none; use null"
    if max(settings.nfe) > (last := experiment.schedule.steps):
        yield f"{WHERE}.nfe: {max(settings.nfe)} is more than schedule.steps = {last}"


def _work(experiment: Experiment, part: str) -> Work:
    """Count two passes per image and timestep in double precision, and those of the bound."""
    settings = STAGE.settings(experiment)
    passes = sum(1 + 2 * experiment.methods[label].products for label in settings.methods)
    passes *= settings.images * sum(settings.nfe) * len(experiment.network.scores)
    return Work((4 + DRAWS) * passes)


STAGE: Stage[CodecParams] = Stage(
    __name__,
    "evaluate",
    params=CodecParams,
    **evaluating(
        "sample.clip",
        methods=lambda e, part: STAGE.settings(e).methods,
        optimal=lambda e: STAGE.settings(e).timesteps.kind == "optimal",
    )
    | {"gpu": False},
    work=_work,
    check=_check,
    measures=(
        Measure(
            *("file_bits_per_dim", "file, bits/dim", "lower"),
            about="Test images in one file, from which they came back exactly, beside formats for"
            " images: each in a file of its own, and all as one mosaic.",
            replicate=None,
            topic=USES,
        ),
        Measure(
            *("net_bits_less_bound", "net bits less the bound, bits/dim"),
            about="What an image adds to the file, less the variational bound on it: about 0 where"
            " the bound is what a file takes.",
            replicate="image",
            topic=USES,
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


class CodedSet(NamedTuple):
    """Images, and the model that they are coded by."""

    pixels: ImagePixels
    model: Denoiser
    seed: int
    job: Job

    def rows(self, code: ImageCodec, **place: Any) -> Iterator[Row]:
        """Write the images and read them back; yield the bits that they took."""
        what, pixels = f"{place['method']}, nfe {place['nfe']}", self.pixels
        begun = perf_counter()
        coded = code.encode(pixels, lambda rows: self.job.progress(rows, f"{what}: to bits"))
        written = perf_counter()
        given = coded.words, coded.first, len(pixels)
        back = code.decode(*given, lambda rows: self.job.progress(rows, f"{what}: to pixels"))
        taken = written - begun, perf_counter() - written
        self.job.log.info("%s: %.1f s to bits, %.1f s to pixels", what, *taken)
        if not (back == pixels).all():
            raise OcmError(f"{WHERE}: {what}: images did not come back exactly")
        yield Row("file_bits_per_dim", 32 * len(coded.words) / pixels.size, **place)
        if coded.first == len(pixels):
            raise OcmError(f"{WHERE}.images: {len(pixels)} are too few to pop from; use more")
        net = coded.bits / pixels[0].size
        excess, error = _mean(net - self._bound(code)[coded.first :])
        if excess - _quantile(len(net)) * error > MOST_EXCESS:
            found = f"{excess:.3f} ± {error:.3f} bits/dim above the bound"
            raise OcmError(f"{WHERE}: {what}: files are {found}; expected {MOST_EXCESS} at most")
        yield Row("net_bits_per_dim", *_mean(net), **place)
        yield Row("net_bits_less_bound", excess, error, **place)

    def _bound(self, code: ImageCodec) -> np.ndarray:
        """Return the bound on each image's bits per dimension."""
        likelihood = Likelihood(self.model, {"coded": code.method}, code.decoder, code.clip)
        x0 = torch.from_numpy(self.pixels).to(self.job.device) * 2 / code.last_level - 1
        whose = range(len(x0)), code.shape, self.job.device, NoiseFor.LIKELIHOOD
        drawn = [
            likelihood.bounds(
                {"all": code.timesteps},
                x0,
                lambda t, seed=seed: SampleNoise(seed, *whose, t, draws=1),  # type: ignore[misc]
            )[0]["all", "coded"].bits_per_dim
            for seed in range(self.seed, self.seed + DRAWS)
        ]
        bits: np.ndarray = torch.stack(drawn).sum(1).mean(0).cpu().numpy()
        return bits


def run(job: Job) -> None:
    """Write and read the images by every method at every nfe; measure formats beside them."""
    experiment, settings = job.experiment, STAGE.settings(job.experiment)
    stored, methods = open_split(job, "test"), build_all(experiment.methods)
    last = (experiment.levels or 0) - 1
    x0 = stored.read(range(min(settings.images, len(stored))))
    pixels = np.round((x0 + 1) * (last / 2)).astype(np.uint8)
    limits, rule, rows = experiment.sample.clip, settings.timesteps, list[Row]()
    clip, formats = Clip(x0=limits.x0, c_max=limits.covariance), _formats(pixels)
    place: dict[str, Any]
    decoder = Decoder(experiment.levels, variance=settings.variance)
    for score in experiment.network.scores:
        model, optimal = load_denoiser(job, score, methods), optimal_timesteps(job, score)
        for label, nfe in product(methods, settings.nfe):
            visited = rules.build(rule, model.schedule, nfe, label, optimal)
            code = image_codec(model, methods[label], visited, decoder, clip, experiment.shape)
            place = {"score": score, "method": label, "timesteps": rule.kind, "nfe": nfe}
            rows += CodedSet(pixels, model, settings.seed, job).rows(code, **place)
        for nfe, (name, bits) in product(settings.nfe, formats.items()):
            place = {"score": score, "method": name, "timesteps": rule.kind, "nfe": nfe}
            rows.append(Row("file_bits_per_dim", bits, **place))
    FileSizes(job.folder).save(Results(rows))
    job.note(images=len(pixels), machine=kind_of_processor())


def _formats(pixels: ImagePixels) -> Mapping[str, float]:
    """Return the bits per dimension of image formats: each image, and all as one."""
    bits = dict[str, float]()
    for name in available():
        each = sum(len(encoded(strip(image[None]), name)) for image in pixels)
        bits[f"{name}_each"] = 8 * each / pixels.size
        bits[f"{name}_mosaic"] = 8 * len(encoded(mosaic(pixels), name)) / pixels.size
    return bits


def _quantile(count: int) -> float:
    """Return how many standard errors of so many values stand for three of a known deviation."""
    from scipy.stats import t  # slow

    return float(t.ppf(0.99865, count - 1))


def _mean(values: np.ndarray) -> tuple[float, float]:
    """Return the mean over images and its standard error."""
    error = values.std(ddof=1) / sqrt(len(values)) if len(values) > 1 else np.inf
    return float(values.mean()), float(error)
