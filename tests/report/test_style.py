"""Lines are told apart by everybody: by colour on any screen, and without it."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy import ndarray

from ocm_core.report.style import DARK, LIGHT, RELATIVE, method_styles
from tests.results.synthetic import METHODS, PARAMS, study

HUES = ("vermillion", "blue", "green", "purple", "orange", "sky", "grey", "ink")
APART = 15.0  # CIELAB units; two that differ by less than about 5 look alike side by side
CONTRAST = 3.0  # of graphics, as WCAG 2.1 asks

# From linear RGB to what is left of it without one kind of cone (Machado et al. 2009, severity 1)
VISIONS = {
    "all cones": np.eye(3),
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
}
XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
WHITE = [0.9505, 1.0, 1.0890]


def linear(colour: str) -> ndarray:
    levels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)


def lab(rgb: ndarray) -> ndarray:
    x, y, z = np.array(XYZ) @ np.clip(rgb, 0, 1) / WHITE
    x, y, z = (np.cbrt(v) if v > 216 / 24389 else (24389 / 27 * v + 16) / 116 for v in (x, y, z))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(one: str, other: str, vision: str) -> float:
    seen = [lab(np.array(VISIONS[vision]) @ linear(colour)) for colour in (one, other)]
    return float(np.linalg.norm(seen[0] - seen[1]))


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_no_two_hues_look_alike(palette: dict[str, str], vision: str) -> None:
    near = {
        pair: distance(palette[pair[0]], palette[pair[1]], vision) for pair in combinations(HUES, 2)
    }
    assert min(near.values()) > APART, min(near, key=near.__getitem__)


def test_the_simulation_sees_what_deuteranopes_do_not() -> None:
    """Two pairs of this page's former colours: a grey and a purple, and two that become olive."""
    assert distance("#7b858f", "#b8568c", "all cones") > 40
    assert distance("#7b858f", "#b8568c", "deuteranopia") < 5
    assert distance("#d55e00", "#d18f00", "deuteranopia") < APART


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_lines_stand_out_from_the_page(palette: dict[str, str]) -> None:
    def light(name: str) -> float:
        return float(linear(palette[name]) @ XYZ[1]) + 0.05

    for hue in HUES:
        low, high = sorted((light(hue), light("page")))
        assert high / low >= CONTRAST, hue


def test_no_two_methods_look_the_same() -> None:
    variants = {f"rademacher_{m}": {"kind": "rademacher", "probes": m} for m in (1, 10, 100)}
    own = {k: v for k, v in METHODS.items() if k != "none"} | variants | {"own": {"kind": "own"}}
    found = study([], PARAMS | {"methods": own})
    styles = method_styles(found.methods)
    assert len(styles) == len(METHODS) + 3
    for look in ("dash", "marker"):
        assert len({(style.hue, getattr(style, look)) for style in styles.values()}) == len(styles)


def test_a_relative_head_has_the_hue_of_its_kind_and_looks_otherwise() -> None:
    both = method_styles(study([]).methods)
    published, relative = both["ocm"], both["ocm_relative"]
    assert relative.hue == published.hue and relative.width < published.width
    assert relative.dash != published.dash and relative.marker == f"{published.marker}-open"
    assert (published.group, relative.group) == ("Learned", RELATIVE)
    alone = {"ocm_relative": METHODS["ocm_relative"]}
    assert method_styles(study([], PARAMS | {"methods": alone}).methods)["ocm_relative"].width > 3
