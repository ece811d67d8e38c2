"""Recipes with names, by the number of network evaluations.

`quality` is for the least distance to the data, `diverse` for the most recall, `likelihood` for the
least bound; they were found on training images of `digits`, by `benchmarks/preset_search.py`. Each
entry holds from its number of evaluations on, up to the next. `photographs` follows from the
spectrum and was not searched for (`order.py`). No torch here: the graph asks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from ocm_core.errors import OcmError, unknown
from ocm_core.schema import timesteps as rules
from ocm_core.schema.experiment import Order, PresetName, RecipeParams


def _recipe(kind: str, timesteps: rules.TimestepsParams, **changes: object) -> RecipeParams:
    return RecipeParams.model_validate({"kind": kind, "timesteps": timesteps, **changes})


@dataclass(frozen=True)
class Preset:
    """Recipes for a kind of covariance method."""

    method: str
    recipes: Mapping[int, RecipeParams]  # by the least number of evaluations

    def recipe(self, nfe: int) -> RecipeParams:
        """Return the entry of the largest number that is not above `nfe`, or else the first."""
        reached = [least for least in self.recipes if least <= nfe]
        return self.recipes[max(reached, default=min(self.recipes))]


PUBLISHED = Preset("ocm", {1: _recipe("ddpm", rules.NamedTimesteps(), clip_final_sigma=1.0)})
_END = 0.07  # of T, where few steps had better end: from there on x̂_0 is shown as it is

PRESETS: dict[PresetName, Preset] = {
    "quality": Preset(
        "delta",
        {
            1: _recipe("ddim", rules.PowerTimesteps(exponent=2.0, first=_END), order=3),
            6: _recipe("ddim", rules.PowerTimesteps(exponent=1.5, first=_END), order=3),
            9: _recipe("ddim", rules.PowerTimesteps(exponent=1.25, first=_END), order=3),
            13: _recipe("ddim", rules.PowerTimesteps(exponent=1.0, first=_END), order=3),
            40: _recipe("ddim", rules.PowerTimesteps(exponent=1.0), order=3),
        },
    ),
    "diverse": Preset(
        "ocm",
        {
            1: _recipe("ddim", rules.PowerTimesteps(exponent=1.5), order=2),
            9: _recipe("ddim", rules.PowerTimesteps(exponent=1.5)),
            60: _recipe("ddim", rules.PowerTimesteps(exponent=1.0)),
        },
    ),
    "likelihood": Preset("ocm", {1: _recipe("ddpm", rules.OptimalTimesteps())}),
    "photographs": Preset(
        "analytic+dct",
        {1: _recipe("ddpm", rules.PowerTimesteps(exponent=1.0), order="matched")},
    ),
}


def preset_named(name: str | None) -> Preset:
    """Return a preset; without a name, the recipe of the papers."""
    if name is not None and name not in PRESETS:
        raise OcmError(f"preset: {unknown(name, PRESETS)}")
    return PUBLISHED if name is None else PRESETS[name]


def altered(
    recipe: RecipeParams,
    kernel: str | None = None,
    order: Order | None = None,
    timesteps: rules.TimestepsParams | None = None,
) -> RecipeParams:
    """Return the recipe with another kernel, order or timesteps, where they are given."""
    if order not in (None, *get_args(Order)):
        raise OcmError(f"order = {order}: expected 1, 2, 3, ipndm or matched")
    values = recipe.model_dump()
    if kernel is not None and kernel != recipe.kind:
        values = {key: values[key] for key in values if key not in recipe.options}
    given = {"kind": kernel, "order": order, "timesteps": timesteps}
    values |= {key: value for key, value in given.items() if value is not None}
    return RecipeParams.model_validate(values)
