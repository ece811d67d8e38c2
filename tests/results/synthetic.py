"""Made-up tables of results, as small as the questions that tests ask of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from ocm_core.results.measures import measures
from ocm_core.results.study import Study
from ocm_core.results.table import Results, Row

PUBLISHED = {"baseline": "none", "link": "identity", "unit": "own"}
RELATIVE = {"baseline": "moments", "link": "positive", "unit": "root"}
_PLAIN = ("beta", "beta_tilde", "delta", "analytic", "npr")
METHODS: dict[str, dict[str, Any]] = {
    **{kind: {"kind": kind} for kind in _PLAIN},
    "ocm_relative": {"kind": "ocm", "head": RELATIVE, "probes": 1},
    "sn": {"kind": "sn"},
    "ocm": {"kind": "ocm", "probes": 1},
    "ocm_3": {"kind": "ocm", "probes": 3},
    **{kind: {"kind": kind} for kind in ("exact_diag", "exact_full", "none")},
}
DDPM = {"kind": "ddpm", "eta": 1.0, "timesteps": {"kind": "even"}}
PARAMS: dict[str, Any] = {
    "name": "made_up",
    "data": {"kind": "digits"},
    "schedule": {"kind": "linear", "steps": 1000},
    "network": {"scores": ["trained"]},
    "methods": METHODS,
    "head": PUBLISHED,
    "train": {"score": {"iterations": 10}, "timesteps": {"images": 16}},
    "sample": {
        "count": 100,
        "seeds": [0, 1, 2],
        "samplers": {
            "ddpm": {**DDPM, "grids": [{"nfe": [5]}], "methods": ["ocm"]},
            "long": {**DDPM, "grids": [{"nfe": [100]}], "methods": ["beta_tilde"]},
            "ddim": {"kind": "ddim", "eta": 0.0, "timesteps": {"kind": "even"}},
            "quality": {"kind": "preset", "name": "quality"},
            "unipc": {"kind": "diffusers", "scheduler": "UniPCMultistepScheduler"},
        },
    },
    "features": {"space": "classifier"},
    "evaluate": {"distances": {"space": "classifier", "extra_spaces": []}},
    "report": {"title": "Made up", "summary": "Numbers of nobody.", "paper": None},
}
PLANE = PARAMS | {"features": None, "network": {"scores": ["exact", "trained"]}}

Place = tuple[str, str, int]  # sampler, method, nfe


def seeds(
    measure: str,
    values: Mapping[Place, Sequence[float]],
    score: str = "trained",
    guidance: float = 1,
) -> list[Row]:
    """One row for each seed."""
    return [
        Row(measure, v, None, score, sampler, method, "even", nfe, float(guidance), f"seed{i}")
        for (sampler, method, nfe), found in values.items()
        for i, v in enumerate(found)
    ]


def bounds(values: Mapping[tuple[str, int], float], rule: str = "even") -> list[Row]:
    """Bits per dimension by method and nfe."""
    given = values.items()
    return [Row("bits_per_dim", v, 0.01, "trained", "", m, rule, nfe) for (m, nfe), v in given]


def near(value: float) -> list[float]:
    """Three seeds around a value."""
    return [0.99 * value, value, 1.01 * value]


def study(rows: Sequence[Row], params: Mapping[str, Any] = PARAMS) -> Study:
    return Study(Results(rows), params, measures())


def image_rows() -> list[Row]:
    """A little of everything that an experiment on images has."""
    distances = {
        **{("ddpm", m, 5): near(v) for m, v in {"beta": 46, "ocm": 27, "ocm_relative": 28}.items()},
        **{("ddpm", m, 10): near(v) for m, v in {"beta": 14, "ocm": 11, "ocm_relative": 9}.items()},
        **{("ddpm", "beta_tilde", k): near(v) for k, v in {5: 52, 10: 15}.items()},
        ("long", "beta_tilde", 100): near(6),
        **{("quality", "delta", k): near(v) for k, v in {5: 7, 10: 5}.items()},
        **{("unipc", "none", k): near(v) for k, v in {5: 13, 10: 5.5}.items()},
    }
    recalls = {place: [v / 100 + 0.5 for v in found] for place, found in distances.items()}
    labels = enumerate(("ocm", "beta", "sn", "ocm_relative"))
    nll = {(m, k): 50 / k + i for i, m in labels for k in (5, 10, 25)}
    return [
        *seeds("frechet", distances),
        *seeds("recall", recalls),
        *bounds(nll),
        *bounds({place: v - 1 for place, v in nll.items()}, rule="optimal"),
        Row("bits_per_dim_difference", -1.0, 0.1, "trained", "", "ocm", "optimal", 5),
        *seeds("clamped", {("ddpm", "ocm", 5): [0.25, 0.25, 0.25]}),
        Row("loss", 0.5, 0.01, "trained"),
    ]
