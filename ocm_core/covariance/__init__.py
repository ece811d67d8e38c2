"""Covariance methods, one file each: the file's name is the method's name in an experiment.

A method turns a prediction at (x_t, t) into the covariance of the reverse step. Most do so through
c, with C = (b_t / ᾱ_t) c the diagonal of Cov[x_0 | x_t]. To add one, write `<name>.py` here with a
class `Method` and name it in an experiment; docs/adding.md shows an example. `<name>+<basis>` is
the same method with the correlation of a basis (`structured.py`).
"""

import pkgutil
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from pydantic import ValidationError

from ocm_core.covariance.interface import CovarianceMethod
from ocm_core.covariance.structured import Structured
from ocm_core.diffusion.basis import BASES
from ocm_core.errors import OcmError, unknown
from ocm_core.schema.experiment import MethodParams

__all__ = ["CovarianceMethod", "available", "build", "build_all", "class_of", "split"]
_SHARED = {"interface", "learned", "structured"}


def available() -> list[str]:
    """Return the methods that exist: the files of this folder, except what they share."""
    return sorted({m.name for m in pkgutil.iter_modules(__path__)} - _SHARED)


def build(kind: str, label: str | None = None, **options: Any) -> CovarianceMethod:
    """Return the method `kind`; its head or table is looked up under `label`."""
    cls, label, basis = class_of(kind), label or kind, split(kind)[1]
    try:
        method = cls(label=split(label)[0], **options)
        return Structured(label=label, method=method, basis=basis) if basis else method
    except ValidationError as error:
        first = error.errors()[0]
        said = f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}"
        valid = ", ".join(sorted(set(cls.model_fields) - {"label"})) or "none"
        raise OcmError(f"covariance method {kind!r}: {said}; its options are: {valid}") from None


def build_all(methods: Mapping[str, MethodParams]) -> dict[str, CovarianceMethod]:
    """Return the methods of an experiment, by label."""
    return {label: build(m.kind, label, **m.options) for label, m in methods.items()}


def split(name: str) -> tuple[str, str]:
    """Return the method and the basis that a label or a kind names; "" is no basis."""
    method, _, basis = name.partition("+")
    return method, basis


def class_of(kind: str) -> type[CovarianceMethod]:
    """Return the class of a method; an unknown kind is an error that lists the known ones."""
    (name, basis), names = split(kind), available()
    if name not in names:
        raise OcmError(f"covariance method {unknown(name, names)}")
    if basis and basis not in BASES:
        raise OcmError(f"covariance method {kind!r}: basis {unknown(basis, BASES)}")
    cls: type[CovarianceMethod] = import_module(f"{__name__}.{name}").Method
    if basis and not cls.is_diagonal:
        suited = [other for other in names if class_of(other).is_diagonal]
        expected = f"expected one of {', '.join(suited)} with +{basis}"
        raise OcmError(f"covariance method {kind!r}: {name!r} is no diagonal; {expected}")
    return cls
