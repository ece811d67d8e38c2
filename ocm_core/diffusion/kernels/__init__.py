"""Kernels of the reverse process, one file each: the file's name is the kernel's kind.

A kernel is a family of Gaussian steps t → s with a mean, which is linear in x_t, x̂_0 and ε̂, and
the variance `floor + gain · C`, where C is the diagonal of Cov[x_0 | x_t]. To add one, write
`<name>.py` here with a subclass of `Kernel`, and name it in an experiment (`kind: <name>`): its
fields are options, which further keys of the sampler set.
"""

import pkgutil
from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ocm_core.diffusion.transition import Transition
from ocm_core.errors import OcmError, unknown
from ocm_core.shapes import Batch


class Kernel(BaseModel, ABC):
    """A family of reverse steps; its fields are its options."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: ClassVar[str]

    @abstractmethod
    def mean(self, step: Transition, x: Batch, x0: Batch, eps: Batch) -> Batch:
        """Return the mean of x_s, given x_t and the predicted x̂_0 and ε̂."""

    @abstractmethod
    def floor(self, step: Transition) -> float:
        """Return the variance of x_s where x_0 is certain."""

    @abstractmethod
    def gain(self, step: Transition) -> float:
        """Return the factor with which the variance of x_0 adds to that of x_s."""


def available() -> list[str]:
    """Return the kinds of kernels that exist: the files of this folder."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def build(kind: str, **options: Any) -> Kernel:
    """Return the kernel of a kind with these options."""
    if kind not in available():
        raise OcmError(f"kind: {unknown(kind, [*available(), 'preset', 'diffusers'])}")
    module = import_module(f"{__name__}.{kind}")
    classes = (c for c in vars(module).values() if isinstance(c, type) and issubclass(c, Kernel))
    (cls,) = (c for c in classes if c.__module__ == module.__name__)
    try:
        return cls(**options)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        said = f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}"
        valid = ", ".join(cls.model_fields) or "none"
        raise OcmError(f"{said}; the options of {kind} are: {valid}") from None
