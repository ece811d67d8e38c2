"""Ways to walk a chain that have names, by the budget of network evaluations.

`quality` is for the least distance to the data, `diverse` for the most recall, `likelihood` for the
least bound. A preset says kernel, order, chain, covariance method and its scale; each entry holds
from its number of evaluations on, up to the next. They were found on training images of `digits`,
by `benchmarks/preset_search.py`. No torch here: the graph asks for the chains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ocm_core.errors import OcmError, unknown
from ocm_core.schema.chains import ChainParams, EvenChain, OptimalChain, PowerChain
from ocm_core.schema.experiment import PresetName, WalkParams

_ETA = {"ddpm": 1.0, "ddim": 0.0}


def _walk(kind: str, chain: ChainParams, **changes: object) -> WalkParams:
    given = {"kind": kind, "eta": _ETA[kind], "rederive_eps": False, "last_sigma": None}
    return WalkParams.model_validate({**given, "chain": chain, **changes})


@dataclass(frozen=True)
class Preset:
    method: str  # the kind of covariance method that it is meant for
    walks: Mapping[int, WalkParams]  # by the least number of evaluations

    def walk(self, evaluations: int) -> WalkParams:
        """The entry of the largest number that is not larger; the first one for fewer."""
        reached = [least for least in self.walks if least <= evaluations]
        return self.walks[max(reached, default=min(self.walks))]


PUBLISHED = Preset("ocm", {1: _walk("ddpm", EvenChain(), last_sigma=1.0)})
_END = 0.07  # of T, where few steps had better end: from there on x̂_0 is shown as it is

PRESETS: dict[PresetName, Preset] = {
    "quality": Preset(
        "delta",
        {
            1: _walk("ddim", PowerChain(exponent=2.0, first=_END), order=3),
            6: _walk("ddim", PowerChain(exponent=1.5, first=_END), order=3),
            9: _walk("ddim", PowerChain(exponent=1.25, first=_END), order=3),
            13: _walk("ddim", PowerChain(exponent=1.0, first=_END), order=3),
            40: _walk("ddim", PowerChain(exponent=1.0), order=3),
        },
    ),
    "diverse": Preset(
        "ocm",
        {
            1: _walk("ddim", PowerChain(exponent=1.5), order=2),
            9: _walk("ddim", PowerChain(exponent=1.5)),
            60: _walk("ddim", PowerChain(exponent=1.0)),
        },
    ),
    "likelihood": Preset("ocm", {1: _walk("ddpm", OptimalChain())}),
}


def preset_named(name: str | None) -> Preset:
    """Without a name, the papers' way."""
    if name is None:
        return PUBLISHED
    for known, preset in PRESETS.items():
        if known == name:
            return preset
    raise OcmError(f"preset: {unknown(name, PRESETS)}")


def altered(
    walk: WalkParams,
    sampler: str | None = None,
    order: int | None = None,
    chain: ChainParams | None = None,
) -> WalkParams:
    """With what is asked for beside the preset."""
    if sampler is not None and sampler not in _ETA:
        raise OcmError(f"sampler: {unknown(sampler, _ETA)}")
    if order not in (None, 1, 2, 3):
        raise OcmError(f"order = {order}: expected 1, 2 or 3")
    given = {"kind": sampler, "eta": sampler and _ETA[sampler], "order": order, "chain": chain}
    return walk.model_copy(update={k: v for k, v in given.items() if v is not None})
