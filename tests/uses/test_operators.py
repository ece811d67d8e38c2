"""Operators of deepinv by name: each is what its name says, linear, and right for its images."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter

from ocm_core.errors import OcmError
from ocm_core.uses import operators
from ocm_core.uses.linear import Measured, check_operator
from ocm_core.uses.operators import OperatorParams

ADAPTER: TypeAdapter[OperatorParams] = TypeAdapter(OperatorParams)
KINDS: tuple[dict[str, Any], ...] = (
    {"kind": "denoising"},
    {"kind": "inpainting", "missing": 0.4},
    {"kind": "blur", "width": 0.8},
    {"kind": "blur", "width": 5.0},
    {"kind": "super_resolution", "factor": 2},
)


def built(given: dict[str, Any], *shape: int, mask: torch.Tensor | None = None) -> Any:
    return operators.build(ADAPTER.validate_python(given), shape, mask)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 12, 10)])
@pytest.mark.parametrize("given", KINDS, ids=str)
def test_each_is_linear_with_its_adjoint_and_keeps_constants(
    given: dict[str, Any], shape: tuple[int, ...]
) -> None:
    physics = built(given, *shape)
    y = physics.A(torch.randn(2, *shape, generator=torch.Generator().manual_seed(0)))
    seen = Measured(y, physics, 0.1)
    check_operator(seen)
    assert seen.shape == shape
    ones = physics.A(torch.ones(1, *shape))
    torch.testing.assert_close(ones[ones != 0], torch.ones(int((ones != 0).sum())))
    sides = [side // given.get("factor", 1) for side in shape[1:]]
    assert [*y.shape[2:]] == sides


def test_a_share_of_pixels_is_missing_the_same_in_all_channels() -> None:
    given = {"kind": "inpainting", "missing": 0.7}
    first, again, other = (built(given | {"seed": seed}, 3, 20, 10).mask for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert float(first.sum()) == 0.3 * 200 and {*first.unique().tolist()} == {0.0, 1.0}


def test_the_noise_is_that_of_the_operator_or_given() -> None:
    deepinv = operators.import_deepinv()
    physics = deepinv.physics.Denoising(deepinv.physics.GaussianNoise(0.25))
    assert operators.noise_of(physics, None) == pytest.approx(0.25)
    assert operators.noise_of(physics, 0.5) == 0.5
    physics = deepinv.physics.Denoising(deepinv.physics.PoissonNoise())
    with pytest.raises(OcmError, match="noise model is PoissonNoise, and no GaussianNoise"):
        operators.noise_of(physics, None)


def test_what_does_not_fit_is_refused() -> None:
    for given, shape, side, said in (
        ({"kind": "super_resolution", "factor": 3}, (1, 8, 8), None, "factor: 3 does not divide"),
        ({"kind": "denoising"}, (2,), None, "operator: for images, not for items of shape"),
        ({"kind": "inpainting"}, (1, 8, 8), 9, "mask: 8 × 9 pixels; expected 8 × 8"),
        ({"kind": "denoising"}, (1, 8, 8), 8, "mask: goes with the operator 'inpainting'"),
    ):
        with pytest.raises(OcmError, match=said):
            built(given, *shape, mask=None if side is None else torch.ones(1, 8, side))


def test_what_deepinv_has_that_is_not_linear_is_refused() -> None:
    deepinv = operators.import_deepinv()
    seen = Measured(torch.rand(1, 1, 8, 8), deepinv.physics.Haze(), 0.1)
    with pytest.raises(OcmError, match="physics: Haze"):
        check_operator(seen)
    tomography = deepinv.physics.Tomography(angles=6, img_width=8)
    wrong = Measured(torch.rand(1, 1, 5, 9), tomography, 0.1)
    with pytest.raises(OcmError, match="physics: Tomography"):
        check_operator(wrong)


ALONE = """
import sys
from importlib.util import find_spec
from ocm_core.errors import OcmError
from ocm_core.uses.operators import import_deepinv
had = find_spec("torchvision") is not None
deepinv = import_deepinv()
assert had or not any(name.startswith("torchvision") for name in sys.modules)
assert (find_spec("torchvision") is not None) == had
from diffusers import UNet2DModel
assert had or deepinv.utils.plotting.make_grid.__name__ == "make_grid"
try:
    had or deepinv.utils.plotting.make_grid([])
except OcmError as error:
    assert "torchvision is not installed, and deepinv's `make_grid` needs it" in str(error)
else:
    assert had
"""


def test_deepinv_is_imported_without_torchvision_and_nobody_else_sees_a_stand_in() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
