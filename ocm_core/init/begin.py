"""Look at images and model, write the experiment and, where there is none, the project."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocm_core.datasets.base import image_split
from ocm_core.datasets.folder import prepare, read_column
from ocm_core.errors import OcmError
from ocm_core.init.overlay import SIDES, Start, look, text
from ocm_core.io.atomic import room_for, write_text
from ocm_core.io.image_files import SelectedFiles, open_image_files
from ocm_core.project import is_checkout, model_folder, preset_names, shipped
from ocm_core.text import plural

if TYPE_CHECKING:
    from ocm_core.checkpoints.diffusers_folder import ModelDescription
    from ocm_core.schema.experiment import Experiment

FIT = "center_crop"
PROBED = 8  # images that the model's Jacobian is looked at on
SHARE = 0.25  # of the memory, for one job; several run side by side
TAKEN = ("index", "paper")  # of reports/: all experiments, and the tables of the paper
KEPT = 3  # times the outputs of all layers: kept for the gradient, their gradients, and the heads'
COPIED = {  # into a new project, from the package
    "Snakefile": "workflow/project/Snakefile",
    "params/active.yaml": "workflow/project/active",
    ".gitignore": "workflow/project/gitignore",
    **{name: name for name in (".dvcignore", "profiles/default", "profiles/gpu", "profiles/slurm")},
}


def begin(
    name: str,
    images: Path,
    model: Path | None,
    captions: Path | None,
    side: int | None,
    force: bool,
    budget: float | None = None,
    unchecked: bool = False,
) -> Iterator[str]:
    """Yield what was found while files are written; wrong names and paths are refused first."""
    file = Path("params/experiment") / f"{name}.yaml"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise OcmError(f"{name!r}: expected a name of lower-case letters, digits and _")
    if preset := next((p for p in preset_names() if name.endswith(f"_{p}")), None):
        does = "which changes the experiment that stands before it"
        raise OcmError(f"{name!r}: _{preset} is a preset, {does}; choose another name")
    if name in TAKEN:
        raise OcmError(f"{name!r}: reports/{name} is taken; choose another name")
    if not is_checkout() and (shipped() / file).exists():
        raise OcmError(f"{name!r}: the name of an experiment of the package; choose another one")
    if file.exists() and not force:
        raise OcmError(f"{file}: exists already; choose another name, or give --force")
    if captions and not captions.is_file():
        raise OcmError(f"{captions}: no such file; expected a CSV with file and caption")
    folder, summary, described = model_folder(model) if model else None, look(images), None
    if folder:
        from ocm_core.checkpoints.diffusers_folder import describe

        described = describe(folder)
    said = read_column(captions, "caption", summary.names, images) if captions else {}
    start = Start(name, summary, described, captions, len({*said.values()}), side)
    _refuse(start)
    yield f"{images}: {summary}"
    yield from start.treatment()
    if captions:
        different = f"{start.distinct_captions} of them different"
        yield f"{captions}: {plural(len(said), 'caption')}, {different}"
    if start.model:
        yield f"{model}: {_summary(start.model)}"
        yield from _probed(start, start.model, unchecked)
    before = file.read_bytes() if file.exists() else None
    try:
        with room_for(file):
            yield from _write(start, file, budget)
    except BaseException:
        file.unlink(missing_ok=True) if before is None else file.write_bytes(before)
        raise
    keep_out_of_git(path for path in (images, model) if path)
    if not is_checkout() and shutil.which("git") and not Path(".dvc").is_dir():
        git = "" if Path(".git").exists() else "git init && "
        yield f"to keep every version of it: {git}dvc init, before the run"
    yield f"run: snakemake --cores 2 reports/{name}.html"


def _refuse(start: Start) -> None:
    """Refuse what no experiment can be made of."""
    model, images = start.model, start.images
    if model is None and start.side not in (None, *SIDES):
        sides = ", ".join(map(str, SIDES))
        raise OcmError(f"--side {start.side}: the network that is trained here takes {sides}")
    if model is None:
        return
    if model.classes and not images.folders:
        found = f"takes labels of {model.classes} classes, and the images lie in no sub-folders"
        raise OcmError(f"{images.path}: the model in {model.folder} {found}; put each class in one")
    if model.text and not start.captions:
        needed = "takes text, so each image needs a caption; give a CSV with file and caption"
        raise OcmError(f"--captions: the model in {model.folder} {needed}")


def _summary(model: ModelDescription) -> str:
    size = "any size" if model.shape is None else "×".join(map(str, model.shape))
    classes = f"{model.classes} classes" if model.classes else "no classes"
    if model.text:
        classes = f"takes text of {model.text.arrays['encoder_hidden_states'][0]} tokens"
    steps = model.schedule["steps"]
    kind = model.schedule.get("beta_schedule", model.schedule["kind"])
    schedule = f"{kind} schedule of {steps} steps"
    if shift := model.schedule.get("shift"):
        schedule += f", shift {shift:.4g}"
    if model.schedule.get("rescale_betas_zero_snr") or kind == "flow":
        schedule += f" (the last of {steps + 1} is pure noise, and never visited)"
    count = f"{model.parameters / 1e6:.2g} M parameters"
    facts = (model.kind, size, classes, f"predicts {model.prediction}", schedule, count)
    return ", ".join(facts) + (", with its autoencoder" if model.vae else "")


def _probed(start: Start, model: ModelDescription, unchecked: bool) -> Iterator[str]:
    """Say whether the model can be a posterior mean; one of latents is looked at on the page."""
    if model.vae or model.text:
        yield f"{model.folder}: takes latents; the page says whether it is a posterior mean"
        return
    import torch

    from ocm_core.checkpoints.diffusers_models import read_network, trained_with
    from ocm_core.diffusion.jacobian import probe
    from ocm_core.rng.noise import SampleNoise

    network = read_network(model).eval().requires_grad_(False)
    channels, side = start.shape
    shape, fitted = (channels, side, side), partial(prepare, side=side, fit=FIT, channels=channels)
    files = SelectedFiles(open_image_files(start.images.path), start.images.names[:PROBED])
    pixels, rows = image_split(files, fitted, shape), range(len(files))
    x0 = torch.from_numpy(pixels.read(rows)) / 127.5 - 1
    label = torch.arange(len(files)) % model.classes if model.classes else None
    noise = SampleNoise(0, rows, shape)
    found = probe(trained_with(network, model.scheduler), x0, label, noise)
    if not (found.is_covariance or unchecked):
        remedy = "expected one that was not distilled; --unchecked takes it all the same"
        raise OcmError(f"{model.folder}: no posterior mean of these images, {found}; {remedy}")
    yield f"{model.folder}: {found}"


def _write(start: Start, file: Path, budget: float | None) -> Iterator[str]:
    """Write the overlay to compose and measure it, and with the sizes that fit."""
    from ocm_core.doctor.cost import duration, pace_of, this_device
    from ocm_core.init.budget import MOST_NFE, fitting, phase_times
    from ocm_core.params.compose import compose

    make_project()
    write_text(file, text(start))
    experiment = compose(start.name)
    sizes = fitting_sizes(experiment, this_device())
    if start.model and start.model.learns_variance:  # a method of DDPM steps
        blocks: dict[str, Any] = {
            "sample.samplers.ddpm": experiment.sample.samplers["ddpm"],
            "train.timesteps": experiment.train.timesteps,
            "evaluate.likelihood": experiment.evaluate.get("likelihood"),
        }
        sizes |= {f"{k}.methods": [*block.methods, "iddpm"] for k, block in blocks.items() if block}

    def taken(changes: Mapping[str, Any] = {}) -> float:
        write_text(file, text(start, {**sizes, **changes}))
        return sum(phase_times(start.name).values())

    yield str(pace_of(experiment))
    whole, changes = taken(), dict[str, Any]()
    if budget is not None:
        changes = fitting(compose(start.name), budget, taken)
    total, sizes = taken(changes), {**sizes, **changes}
    hours = {k: f"about {duration(count)}" for k, count in phase_times(start.name).items()}
    write_text(file, text(start, sizes, hours))
    alone = f"`ocm run all {start.name}` takes about {duration(total)}"
    yield f"{file}: written; {alone} by that pace, longer beside other work"
    if changes:
        few = f"{MOST_NFE} evaluations at most" if any("nfe" in key for key in changes) else ""
        numbers = [f"{key} {n}" for key, n in changes.items() if isinstance(n, int)]
        yield f"to fit, instead of {duration(whole)}: {', '.join(filter(None, [*numbers, few]))}"
    small = sum(phase_times(f"{start.name}_smoke").values())
    command = f"ocm run all {start.name}_smoke"
    yield f"try every stage in small, in about {duration(small)}: {command}"


def fitting_sizes(experiment: Experiment, device: str) -> dict[str, Any]:
    """Return sizes by dotted key: batches that fit this machine, no more images than there are."""
    from ocm_core.doctor.cost import network_size
    from ocm_core.doctor.machine import host_memory, machine

    memory = next(iter(machine()["gpus"].values())) if device == "cuda" else host_memory()
    splits, train = experiment.data.count_items(), experiment.train
    fits = int(SHARE * memory / max(1, network_size(experiment, "score").activations))
    most = min(fits // KEPT, splits["train"])
    sizes = {
        "train.heads.batch_size": min(train.heads.batch_size, most),
        "sample.batch_size": min(experiment.sample.batch_size, fits),
    }
    if train.score and "trained" in experiment.network.scores:
        sizes["train.score.batch_size"] = min(train.score.batch_size, most)
    if train.timesteps:
        sizes["train.timesteps.images"] = min(train.timesteps.images, splits["train"])
    deviation: Any = experiment.evaluate.get("posterior_std")
    if deviation:
        sizes["evaluate.posterior_std.images"] = min(deviation.images, splits["test"])
    for key, size in sizes.items():
        if size >= 8 and size % 10:  # neither small nor round: down to a power of two
            sizes[key] = 2 ** (size.bit_length() - 1)
    return {key: max(1, size) for key, size in sizes.items()}


def make_project() -> None:
    """Write what does not exist yet; a checkout has everything."""
    if is_checkout():
        return
    for folder in ("reports", "params", "profiles"):
        Path(folder).mkdir(exist_ok=True)
    for name, source in COPIED.items():
        copy = shutil.copytree if (shipped() / source).is_dir() else shutil.copyfile
        if not Path(name).exists():
            copy(shipped() / source, name)
    phases = (shipped() / "dvc.yaml").read_text().partition("\n# What the reports leave in Git")[0]
    if not Path("dvc.yaml").exists():
        write_text(Path("dvc.yaml"), phases.replace("      - ocm_core\n", ""))


def keep_out_of_git(paths: Iterable[Path]) -> None:
    """Add images and models that lie inside the project to .gitignore."""
    here, file = Path.cwd().resolve(), Path(".gitignore")
    wanted = [path.expanduser().resolve() for path in paths]
    inside = [f"/{path.relative_to(here).as_posix()}" for path in wanted if here in path.parents]
    lines = file.read_text().splitlines() if file.exists() else []
    if missing := [line for line in inside if line not in lines]:
        write_text(file, "\n".join([*lines, *missing, ""]))
