"""Commands on images of your own: as a file and back, without noise, from what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocm_core.commands import JSON, NATURAL, POSITIVE, argument, command, show
from ocm_core.commands.sample import (
    PRESETS,
    SCORE,
    SEED,
    TIMESTEPS,
    check_paths,
    files_in,
    open_model,
    source,
    validated_as,
)
from ocm_core.errors import OcmError

if TYPE_CHECKING:
    from ocm_core.uses.operators import OperatorParams


def operator_of(text: str) -> Any:
    """Parse `blur,width=1.5`."""
    from ocm_core.uses.operators import OperatorParams

    return validated_as(OperatorParams, "operator", text)


OPERATORS = "denoising; inpainting; blur,width=1; or super_resolution,factor=2"
FOLDER = "of PNG, JPEG or WebP files, a zip or a tar"
IMAGES = argument("--images FOLDER", FOLDER, type=Path, required=True)
SIGMA = "of the noise, where pixels are in [-1, 1]"
LABEL = argument("--label N", "the class of all images", type=NATURAL)
THREADS = argument("--threads N", "of the CPU; default: 1", type=POSITIVE, default=1)


@command(
    source,
    argument("images", "a folder, or a zip of images of one size", type=Path, metavar="folder"),
    argument("--out FILE", "a new one", type=Path, required=True),
    argument("--method NAME", "covariance method; default: the one of the preset"),
    argument("--preset NAME", f"{PRESETS}: timesteps and method"),
    argument("--steps K", "network evaluations per image; default: 10", type=POSITIVE, default=10),
    argument("--sampler NAME", "whose timesteps; default: the experiment's first with that method"),
    TIMESTEPS,
    SCORE,
    THREADS,
    JSON,
)
def compress(images: Path, out: Path, json: bool, **options: Any) -> None:
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
    generator = open_model(**options, device="cpu")
    from pydantic import TypeAdapter

    from ocm_core.uses import coded_file

    code, request = generator.codec, generator.request
    names, pixels = coded_file.read_levels(images, code.shape, code.last_level + 1)
    asked: dict[str, Any] = TypeAdapter(type(request)).dump_python(request, mode="json")
    size = coded_file.compress(code, pixels, names, asked, out)
    bits = 8 * size / pixels.size
    found = {"file": str(out), "images": len(names), "bytes": size, "bits_per_dim": bits}
    show(json, found, f"{out}: {len(names)} images, {size} bytes, {bits:.3f} bits per dimension")


@command(
    source,
    argument("file", "as `ocm compress` wrote it", type=Path),
    argument("--out FOLDER", "for the images", type=Path, required=True),
    THREADS,
    JSON,
)
def decompress(file: Path, out: Path, threads: int, json: bool, **where: Any) -> None:
    """Read the images of a file that `ocm compress` wrote by the same model.

    examples:
      ocm decompress digits digits.ocm --out my-digits-again
    """
    from pydantic import TypeAdapter

    from ocm_core.io.reading import reading
    from ocm_core.sampling.request import SampleRequest
    from ocm_core.uses import coded_file

    header, words = coded_file.read_coded(file)
    with reading(file, coded_file.EXPECTED, "is it of another version?"):
        request = TypeAdapter(SampleRequest).validate_python(header.request)
    code = open_model(**where, **(vars(request) | {"threads": threads})).codec
    images = coded_file.decompress(code, header, words, file)
    coded_file.write_images(out, header.names, images, code.last_level + 1)
    found = {"folder": str(out), "images": len(images)}
    show(json, found, f"{out}: {len(images)} images")


@command(
    source,
    IMAGES,
    argument("--method NAME", "an estimate of Cov[x_0 | x_t], such as ocm", required=True),
    argument("--sigma S", f"{SIGMA}; default: estimated", type=float),
    SCORE,
    LABEL,
    *files_in("denoised"),
)
def denoise(sigma: float | None, out: Path, force: bool, json: bool, **options: Any) -> None:
    """Take noise off images, with error bars by pixel from one pass of the network.

    By an experiment whose artifacts are there, or by a model that diffusers wrote (--model), with a
    file of heads. Images have the size of the model's, and noise of deviation S; without S it is
    estimated, image by image. Files of 8 bits cut noise off at black and white: error bars are for
    what is not cut. In FOLDER, mean/ and std/ have a PNG for each image, and denoised.zarr
    has mean, std, sigma and timestep in full. Latents are refused.

    examples:
      ocm denoise cifar10_small --images noisy --method ocm_relative --sigma 0.2
      ocm denoise --model my-model --head heads.safetensors --method npr --images noisy
    """
    check_paths(**options)
    from ocm_core.sampling.image_folders import DDPM, denoise_files

    images = options.pop("images")
    generator = open_model(**options, **DDPM, steps=2)  # the method and its limits count alone
    show(json, *denoise_files(generator, images, out, sigma, force))


@command(
    source,
    IMAGES,
    argument("--operator KIND", OPERATORS, type=operator_of, required=True),
    argument("--mask FILE", "of inpainting: a PNG, white where pixels are known", type=Path),
    argument("--sigma S", SIGMA, type=float, required=True),
    argument("--algorithm NAME", "kalman, mmps, dps or pigdm; default: kalman", default="kalman"),
    argument("--method NAME", "whose covariance kalman takes, such as analytic+dct"),
    argument("--steps K", "of a draw; default: 10", type=POSITIVE, default=10),
    TIMESTEPS,
    argument("--count N", "of draws of each image; default: 8", type=POSITIVE, default=8),
    SEED,
    SCORE,
    LABEL,
    *files_in("restored"),
)
def restore(operator: OperatorParams, mask: Path | None, json: bool, **options: Any) -> None:
    """Draw images given what was measured of them: y = A x + noise, A an operator of deepinv.

    By an experiment whose artifacts are there, or by a model that diffusers wrote (--model), with a
    file of heads. Images are those that the operator gives: of the model's size, or smaller by the
    factor of super_resolution; what --mask leaves out may be anything. In FOLDER, mean/, std/ and
    draws/ have PNG files, and restored.zarr has mean, std and draws in full. Latents are refused.

    examples:
      ocm restore mine --images dim --operator blur,width=1.5 --sigma 0.05 --method analytic+dct
      ocm restore mine --images torn --operator inpainting --mask m.png --sigma 0.1 --algorithm mmps
    """
    check_paths(**options)
    if operator.kind == "inpainting" and mask is None:
        raise OcmError("--mask: inpainting needs a PNG that is white where pixels are known")
    from ocm_core.sampling.image_folders import DDPM, method_for, restore_files
    from ocm_core.uses.restore import Algorithm

    own = ("images", "out", "sigma", "count", "force")
    given = {name: options.pop(name) for name in own}
    algorithm, rule = Algorithm(options.pop("algorithm")), options.pop("timesteps")
    options["method"] = method_for(algorithm, options["method"], options["experiment"])
    if rule and rule.kind == "optimal":
        raise OcmError("--timesteps optimal: name them, as 10,200,1000, or a rule with a formula")
    generator = open_model(**options, **(DDPM | ({"timesteps": rule} if rule else {})))
    show(json, *restore_files(generator, operator, mask, algorithm, **given))
