"""Data sets, one file a kind; the file's name is the value of `data.kind`.

A file has a subclass of `DataParams` (base.py), or a union of several, `PARAMS`; `Data` is all.
"""

from functools import reduce
from importlib import import_module
from operator import or_
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from ocm_core.datasets.base import DataParams


def _declared(module: ModuleType) -> Any:
    kinds = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, DataParams)]
    own = [c for c in kinds if "kind" in c.model_fields]  # the last one is the file's own
    return getattr(module, "PARAMS", own[-1] if own else None)


if TYPE_CHECKING:
    Data = DataParams
else:
    names = (file.name for file in iter_modules(__path__) if not file.name.startswith("_"))
    declared = (_declared(import_module(f"{__name__}.{name}")) for name in names)
    Data = Annotated[reduce(or_, filter(None, declared)), Field(discriminator="kind")]
