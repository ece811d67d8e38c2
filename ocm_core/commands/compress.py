"""Commands that write images as files by a model, and read them back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocm_core.commands import JSON, POSITIVE, argument, command, show
from ocm_core.commands.sample import HEAD, PRESETS, SCORE, TIMESTEPS, check_source, source
from ocm_core.errors import OcmError

if TYPE_CHECKING:
    from ocm_core.sampling.request import SampleRequest
    from ocm_core.uses.codec import ImageCodec

THREADS = argument("--threads N", "of the CPU; default: 1", type=POSITIVE, default=1)


@command(
    source,
    argument("images", "a folder, or a zip of images of one size", type=Path, metavar="folder"),
    argument("--out FILE", "a new one", type=Path, required=True),
    HEAD,
    argument("--method NAME", "covariance method; default: the one of the preset"),
    argument("--preset NAME", f"{PRESETS}: timesteps and method"),
    argument("--steps K", "network evaluations per image; default: 10", type=POSITIVE, default=10),
    argument("--sampler NAME", "whose timesteps; default: the experiment's first with that method"),
    TIMESTEPS,
    SCORE,
    THREADS,
    JSON,
)
def compress(
    experiment: str | None,
    model: Path | None,
    images: Path,
    out: Path,
    head: Path | None,
    json: bool,
    **options: Any,
) -> None:
    """Write the images of a folder as one file, by a model that knows such images.

    The images have the size, colours and levels of the model's data, and come back exactly, as PNG.
    Only the same model reads them, on the same kind of processor: networks are computed in double
    precision, one image at a time, on the CPU.

    examples:
      ocm compress digits my-digits --method ocm_relative --timesteps optimal --out digits.ocm
      ocm compress --model my-model my-images --method beta_tilde --steps 50 --out images.ocm
    """
    if out.exists():
        raise OcmError(f"{out}: is there already; give another name")
    from pydantic import TypeAdapter

    from ocm_core.sampling.request import SampleRequest
    from ocm_core.uses import coded_file

    request = SampleRequest(**options, device="cpu")
    code = _codec(experiment, model, head, request)
    names, pixels = coded_file.read_levels(images, code.shape, code.last_level + 1)
    asked: dict[str, Any] = TypeAdapter(SampleRequest).dump_python(request, mode="json")
    size = coded_file.compress(code, pixels, names, asked, out)
    bits = 8 * size / pixels.size
    found = {"file": str(out), "images": len(names), "bytes": size, "bits_per_dim": bits}
    show(json, found, f"{out}: {len(names)} images, {size} bytes, {bits:.3f} bits per dimension")


@command(
    source,
    argument("file", "as `ocm compress` wrote it", type=Path),
    argument("--out FOLDER", "for the images", type=Path, required=True),
    HEAD,
    THREADS,
    JSON,
)
def decompress(
    experiment: str | None,
    model: Path | None,
    file: Path,
    out: Path,
    head: Path | None,
    threads: int,
    json: bool,
) -> None:
    """Read the images of a file that `ocm compress` wrote by the same model.

    examples:
      ocm decompress digits digits.ocm --out my-digits-again
    """
    from dataclasses import replace

    from pydantic import TypeAdapter

    from ocm_core.io.reading import reading
    from ocm_core.sampling.request import SampleRequest
    from ocm_core.uses import coded_file

    header, words = coded_file.read_coded(file)
    with reading(file, coded_file.EXPECTED, "is it of another version?"):
        request = TypeAdapter(SampleRequest).validate_python(header.request)
    code = _codec(experiment, model, head, replace(request, threads=threads))
    images = coded_file.decompress(code, header, words, file)
    coded_file.write_images(out, header.names, images, code.last_level + 1)
    found = {"folder": str(out), "images": len(images)}
    show(json, found, f"{out}: {len(images)} images")


def _codec(
    experiment: str | None, model: Path | None, head: Path | None, request: SampleRequest
) -> ImageCodec:
    """Return the codec of an experiment, or of a folder of diffusers with a file of heads."""
    check_source(model, head)
    from ocm_core.diffusion.gaussian import Decoder
    from ocm_core.sampling.from_experiment import from_experiment
    from ocm_core.uses.codec import image_codec

    if model:
        from ocm_core.sampling.from_folder import from_folder  # imports diffusers

        generator = from_folder(model, head, request)
    else:
        generator = from_experiment(experiment or "", request)
    levels = generator.levels if generator.shape == generator.image_shape else None
    decoder = Decoder(levels, variance="method")
    return image_codec(generator.recipe, generator.denoiser, decoder, generator.shape)
