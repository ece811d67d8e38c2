"""The command that restores images from what was measured of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocm_core.commands import JSON, NATURAL, POSITIVE, argument, command, device, show
from ocm_core.commands.sample import HEAD, SCORE, TIMESTEPS, check_source, source
from ocm_core.errors import OcmError

if TYPE_CHECKING:
    from ocm_core.uses.operators import OperatorParams

OPERATORS = "denoising; inpainting; blur,width=1; or super_resolution,factor=2"


def operator_of(text: str) -> OperatorParams:
    """Parse `blur,width=1.5`."""
    import yaml
    from pydantic import create_model

    from ocm_core.params.document import validated
    from ocm_core.uses.operators import OperatorParams

    kind, *options = (word.partition("=") for word in text.split(","))
    tree = {"kind": kind[0]} | {key: yaml.safe_load(value) for key, _, value in options}
    problems: list[str] = []
    asked = create_model("Asked", operator=(OperatorParams, ...))
    found: Any = validated(asked, {"operator": tree}, problems)
    if problems:
        raise OcmError(f"--operator {text}: {'; '.join(problems)}")
    operator: OperatorParams = found.operator
    return operator


@command(
    source,
    HEAD,
    argument(
        "--images FOLDER", "of PNG, JPEG or WebP files, a zip or a tar", type=Path, required=True
    ),
    argument("--operator KIND", OPERATORS, type=operator_of, required=True),
    argument("--mask FILE", "of inpainting: a PNG, white where pixels are known", type=Path),
    argument("--sigma S", "of the noise, where pixels are in [-1, 1]", type=float, required=True),
    argument("--algorithm NAME", "kalman, mmps, dps or pigdm; default: kalman", default="kalman"),
    argument("--method NAME", "whose covariance kalman takes, such as analytic+dct"),
    argument("--steps K", "of a draw; default: 10", type=POSITIVE, default=10),
    TIMESTEPS,
    argument("--count N", "of draws of each image; default: 8", type=POSITIVE, default=8),
    argument("--seed N", "default: 0", type=NATURAL, default=0),
    SCORE,
    argument("--label N", "the class of all images", type=NATURAL),
    argument("--out FOLDER", "default: restored", type=Path, default=Path("restored")),
    argument("--force", "overwrite what is there", action="store_true"),
    device,
    JSON,
)
def restore(experiment: str, model: Path | None, json: bool, **options: Any) -> None:
    """Draw images given what was measured of them: y = A x + noise, A an operator of deepinv.

    By an experiment whose artifacts are there, or by a model that diffusers wrote (--model), with a
    file of heads. Images are those that the operator gives: of the model's size, or smaller by the
    factor of super_resolution; what --mask leaves out may be anything. In FOLDER, mean/, std/ and
    draws/ have PNG files, and restored.zarr has mean, std and draws in full. Latents are refused.

    examples:
      ocm restore mine --images dim --operator blur,width=1.5 --sigma 0.05 --method analytic+dct
      ocm restore mine --images torn --operator inpainting --mask m.png --sigma 0.1 --algorithm mmps
    """
    kept = ("images", "out", "sigma", "force", "operator", "mask", "steps", "timesteps", "count")
    asked = {name: options.pop(name) for name in (*kept, "seed")}
    heads, method, name = map(options.pop, ("head", "method", "algorithm"))
    check_source(model, heads)
    if not asked["images"].exists():
        said = "not there; expected a folder, a zip or a tar of images"
        raise OcmError(f"{asked['images']}: {said}")
    if asked["operator"].kind == "inpainting" and asked["mask"] is None:
        raise OcmError("--mask: inpainting needs a PNG that is white where pixels are known")
    from ocm_core.sampling.restored import open_for, restore_files
    from ocm_core.uses.restore import Algorithm

    algorithm = Algorithm(name)
    generator = open_for(algorithm, method, experiment, model, heads, **options)
    found = restore_files(generator, algorithm=algorithm, **asked)
    show(json, {**found._asdict(), "store": str(found.store)}, found.summary)
