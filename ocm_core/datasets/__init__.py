"""Data sets, one file a kind; the file's name is the value of `data.kind`.

A file declares its parameters in a subclass of `DataParams` (base.py), whose `open` returns splits
that are read by ranges, and names that class in `PARAMS`. `Data` is the union of them all. The
files are imported whenever an experiment is read, so they import slow packages inside functions;
those with `_` are not.
"""

from __future__ import annotations

from functools import reduce
from importlib import import_module
from operator import or_
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from ocm_core.datasets.base import DataParams

if TYPE_CHECKING:
    Data = DataParams
else:
    names = (file.name for file in iter_modules(__path__) if not file.name.startswith("_"))
    modules = (import_module(f"{__name__}.{name}") for name in names)
    kinds = (module.PARAMS for module in modules if hasattr(module, "PARAMS"))
    Data = Annotated[reduce(or_, kinds), Field(discriminator="kind")]
