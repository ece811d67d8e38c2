"""Data sets, one file a kind; the file's name is the value of `data.kind`.

A file names its subclass of `DataParams` (base.py) in `PARAMS`; `Data` is the union of them all.
"""

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
