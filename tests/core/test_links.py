"""How a raw output is read relative to a baseline c̄_t."""

from math import e, exp, log1p

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ocm_core import covariance
from ocm_core.covariance.learned import LINKS, CovarianceHead, TrainingBatch, Unit
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.schedule import cosine
from tests.core.doubles import QuadraticNetwork

BASELINES = st.floats(1e-6, 1.0)
OUTPUTS = st.floats(-20.0, 20.0)


def c(link: str, raw: float, baseline: float) -> float:
    return float(LINKS[link](*(torch.tensor(x, dtype=torch.float64) for x in (raw, baseline))))


@given(raw=OUTPUTS, baseline=BASELINES)
def test_links_are_their_formulas(raw: float, baseline: float) -> None:
    """c̄ (1 + r), c̄ log(1 + (e - 1) eʳ), and the latter of (1 - c̄) r."""
    assert c("identity", raw, baseline) == pytest.approx(baseline * (1 + raw), rel=1e-9)
    for link, weighted in (("positive", raw), ("tapered", (1 - baseline) * raw)):
        expected = baseline * log1p((e - 1) * exp(weighted))
        assert c(link, raw, baseline) == pytest.approx(expected, rel=1e-9)


UNITS = {"own": {"ocm": 1.0, "npr": 1.0, "sn": 0.5}, "root": 0.5, "one": 0.0}  # powers of c̄_t


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("kind", ["ocm", "npr", "sn"])
def test_errors_of_a_relative_head_are_measured_in_its_unit(kind: str, unit: Unit) -> None:
    torch.manual_seed(0)
    levels = cosine(5)
    baseline = torch.linspace(0.1, 0.6, 6, dtype=torch.float64)
    network = QuadraticNetwork(3, 0)
    head = CovarianceHead(network.make_head("linear"), baseline, "positive", unit)
    model = Denoiser(network, levels, heads={kind: head})
    x, x0, noise, probe = torch.randn(4, 2, 3, dtype=torch.float64)
    t = torch.tensor([2, 5])
    seen = model.predict(x.requires_grad_(), t)
    batch = TrainingBatch(seen, x0, noise, Decoder(None), (probe.sign(),))
    method = covariance.build(kind)
    power = UNITS[unit][kind] if unit == "own" else UNITS[unit]
    means = baseline[t][:, None]
    errors = LINKS["positive"](seen.head(kind), means) - method.target(batch)
    expected = ((errors / means**power) ** 2).sum(1)
    torch.testing.assert_close(method.loss(batch), expected)


@given(raw=OUTPUTS, above=st.floats(0.0, 0.5))
def test_a_tapered_head_cannot_leave_a_baseline_of_one(raw: float, above: float) -> None:
    """A baseline estimated a little above 1 must not turn the sign of the output."""
    assert c("tapered", raw, 1.0 + above) == pytest.approx(1.0 + above, rel=1e-12)
