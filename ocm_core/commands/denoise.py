"""The command that takes noise off images, and says how sure that is."""

from pathlib import Path
from typing import Any

from ocm_core.commands import JSON, NATURAL, argument, command, device, show
from ocm_core.commands.sample import HEAD, SCORE, check_source, source
from ocm_core.errors import OcmError


@command(
    source,
    HEAD,
    argument(
        "--images FOLDER", "of PNG, JPEG or WebP files, a zip or a tar", type=Path, required=True
    ),
    argument("--method NAME", "an estimate of Cov[x_0 | x_t], such as ocm", required=True),
    argument(
        "--sigma S", "of the noise, where pixels are in [-1, 1]; default: estimated", type=float
    ),
    SCORE,
    argument("--label N", "the class of all images", type=NATURAL),
    argument("--out FOLDER", "default: denoised", type=Path, default=Path("denoised")),
    argument("--force", "overwrite what is there", action="store_true"),
    device,
    JSON,
)
def denoise(experiment: str, model: Path | None, json: bool, **options: Any) -> None:
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
    heads, images, out = map(options.pop, ("head", "images", "out"))
    sigma, force = map(options.pop, ("sigma", "force"))
    check_source(model, heads)
    if not images.exists():
        raise OcmError(f"{images}: not there; expected a folder, a zip or a tar of noisy images")
    from ocm_core.sampling.denoised import denoise_files, open_model

    found = denoise_files(
        open_model(experiment, model, heads, **options), images, out, sigma, force
    )
    tree = {**found._asdict(), "store": str(found.store)}
    show(json, tree, found.summary)
