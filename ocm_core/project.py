"""Where files lie: in the project, a folder with `params/`, or else in the installed package.

Paths and names are checked here, before anything large is imported.
"""

from pathlib import Path

from ocm_core.errors import OcmError, unknown

PACKAGE = Path(__file__).resolve().parent
PARAMS = Path("params")
PRESETS = PARAMS / "preset"


def is_checkout() -> bool:
    """Whether this folder is a checkout of the repository, which has code of its own."""
    return Path("ocm_core/__init__.py").is_file()


def shipped() -> Path:
    """Return the folder of workflow/, profiles/ and params/, in a wheel or checkout."""
    installed = PACKAGE / "shipped"
    return installed if installed.is_dir() else PACKAGE.parent


def located(file: Path) -> Path:
    """Return a file of the project; where it has none of that name, the one of the package."""
    if file.exists() or is_checkout():
        return file
    return (PACKAGE.parent if file.parts[:1] == (PACKAGE.name,) else shipped()) / file


def model_folder(path: Path) -> Path:
    """Return the folder of a model that diffusers wrote; refuse anything else at once."""
    if path.is_dir():
        return path
    hint, name = "", path.as_posix()
    if not path.is_absolute() and len(path.parts) == 2:
        hint = (
            "; if it is a model on the Hugging Face hub, download it first: "
            f"`hf download {name} --local-dir {path.name}`, then give the folder {path.name}"
        )
    raise OcmError(f"{name}: no such folder; expected one that save_pretrained wrote{hint}")


def overlay(name: str) -> Path:
    """Return the file of an experiment."""
    return PARAMS / "experiment" / f"{name}.yaml"


def experiment_names() -> list[str]:
    """Return the experiments that have a file; each can take presets besides."""
    return sorted(file.stem for file in overlay("any").parent.glob("*.yaml"))


def preset_names() -> list[str]:
    """Return the presets that any experiment can take."""
    folders = (PRESETS, shipped() / PRESETS)
    return sorted({file.stem for folder in folders for file in folder.glob("*.yaml")})


def split_name(name: str) -> tuple[str, list[str]]:
    """Return the experiment that has a file, and the presets that its name ends in."""
    known, endings = experiment_names(), preset_names()
    experiment, presets = name, list[str]()
    while experiment not in known:
        experiment, _, preset = experiment.rpartition("_")
        if preset not in endings:
            twins = [f"{each}_{ending}" for each in known for ending in endings]
            near = unknown(name, [*known, *twins]).partition("valid: ")[0]
            raise OcmError(
                f"{overlay(name)}: experiment {near}valid: {', '.join(known)}; each may end in "
                f"a preset: {', '.join(endings)}"
            )
        presets.insert(0, preset)
    return experiment, presets
