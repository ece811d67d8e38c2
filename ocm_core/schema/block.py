"""The base class and the bounded types that every block of parameters is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from ocm_core.errors import OcmError

_Value = TypeVar("_Value")

# Upper bounds are generous, and there so that a slip is refused before anything is computed.
MOST_STEPS = 4095  # T; what random streams can tell apart
MOST_CHOICES = 1000  # entries of a list that is written by hand
MOST_CELLS = 20_000  # of the grid of samples; the largest experiment of the paper has hundreds
Count = Annotated[int, Field(ge=1, le=10**9)]  # of items, draws, iterations
BatchSize = Annotated[int, Field(ge=1, le=2**20)]  # of items in memory together
Jobs = Annotated[int, Field(ge=1, le=1000)]  # side by side; each is a node of the graph
Width = Annotated[int, Field(ge=1, le=2**12)]  # of a layer
Depth = Annotated[int, Field(ge=1, le=256)]  # layers one after another
SetSize = Annotated[int, Field(ge=1, le=10**8)]  # of a set that is made in memory
Positive = Annotated[float, Field(gt=0, le=1e9)]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
Choices = Annotated[list[_Value], Field(min_length=1, max_length=MOST_CHOICES)]
Label = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
MethodLabel = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*(\+[a-z]+)?$")]  # METHOD+BASIS


class Params(BaseModel):
    """A part of the tree: frozen, and closed to unknown keys and to silent conversions."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    _withheld: dict[str, str] = PrivateAttr(default_factory=dict)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A key that `restrict` has taken away says so, and who must declare it."""
            if name in type(self).model_fields and name in self._withheld:
                raise OcmError(self._withheld[name])
            return super().__getattr__(name)


def require(value: _Value | None) -> _Value:
    """Parameters that are null in experiments without the stage that reads them."""
    if value is None:
        raise ValueError("the graph has this stage only where its parameters are not null")
    return value
