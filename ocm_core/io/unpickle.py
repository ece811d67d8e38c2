"""Open PyTorch files by the restricted unpickler only.

A pickle can run any program when it is opened. What the restricted unpickler refuses is an error;
there is no option to load it anyway.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from pickle import UnpicklingError
from re import search

import torch

from ocm_core.errors import OcmError
from ocm_core.io.fetch import refuse_web_page
from ocm_core.io.reading import PICKLE, ZIP, reason


def refuse_other_formats(path: Path, remedy: str) -> None:
    """Refuse a web page or half a download, by the first bytes."""
    refuse_web_page(path, "a PyTorch file", remedy)
    with path.open("rb") as file:
        head = file.read(8)
    if head.startswith(ZIP):
        if not zipfile.is_zipfile(path):
            raise OcmError(f"{path}: expected a whole PyTorch file, found its beginning; {remedy}")
    elif not head.startswith(PICKLE):
        raise OcmError(f"{path}: expected a PyTorch file, found {head!r} at its head; {remedy}")


def open_restricted(path: Path, remedy: str, allowed: Sequence[type] = ()) -> object:
    """Load tensors in plain containers, and in the classes `allowed`, memory-mapped if possible."""
    refuse_other_formats(path, remedy)
    try:
        with torch.serialization.safe_globals(list(allowed)), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about pickle protocols: not our choice
            return torch.load(
                path, weights_only=True, map_location="cpu", mmap=zipfile.is_zipfile(path)
            )
    except UnpicklingError as error:
        raise OcmError(
            f"{path}: expected tensors in plain containers, found {_refused(error)}; the file was"
            f" not loaded and nothing in it was run; {remedy}"
        ) from None
    except Exception as error:  # torch tells of damage in half a dozen ways
        raise OcmError(
            f"{path}: expected a whole PyTorch file, found a damaged one"
            f" ({type(error).__name__}: {reason(error)}); {remedy}"
        ) from None


def _refused(error: UnpicklingError) -> str:
    named = search(r"GLOBAL (\S+)", str(error))
    return f"a call for {named[1]}" if named else "pickle instructions that are not allowed"
