"""Where files lie: in the project, a folder with `params/`, or else in the installed package."""

from pathlib import Path

from ocm_core.errors import OcmError

PACKAGE = Path(__file__).resolve().parent


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
