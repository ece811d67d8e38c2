"""One contract that every covariance method keeps, and what is said when something is missing."""

from dataclasses import replace
from itertools import product
from math import e, exp, log1p
from typing import ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ocm_core import covariance
from ocm_core.covariance.interface import Clip, ReverseStep, predict
from ocm_core.covariance.learned import LINKS, CovarianceHead, LearnedMethod, TrainingBatch, Unit
from ocm_core.diffusion import schedule
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser, Prediction, forward
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.transition import transition
from ocm_core.errors import OcmError
from ocm_core.networks.mlp import MlpScore
from ocm_core.rng.noise import SampleNoise
from ocm_core.sampling.recipe import Recipe
from tests.core.doubles import Ddim, Ddpm, QuadraticNetwork, ancestral, ddim, ddpm

STEPS = 50
KERNELS = {"ddpm": Ddpm(), "ddim": Ddim(eta=0.3)}


def a_model(labels=(), moments=True, width=8):
    torch.manual_seed(0)
    levels = schedule.linear(STEPS)
    network = MlpScore(levels, 1.0, width, 2, "gaussian").eval()
    torch.nn.init.normal_(network.net.layers[-1].weight, std=0.3)
    heads = {}
    for label in labels:
        net = network.make_head("mlp", width=width, depth=1)
        torch.nn.init.normal_(net.net.layers[-1].weight, std=0.3)
        heads[label] = CovarianceHead(net)
    table = torch.linspace(1, 0, STEPS + 1) if moments else None
    return Denoiser(network, levels, heads=heads, moments=table)


class MethodContract:
    """Inherit, set `kind` (and `options`), and a method is held to all of this."""

    kind: str
    options: ClassVar[dict] = {}

    @pytest.fixture
    def method(self):
        return covariance.build(self.kind, **self.options)

    @pytest.fixture
    def model(self, method):
        return a_model([self.kind] if method.needs == "head" else [])

    def noise(self, count=6):
        return SampleNoise(0, range(count), (2,))

    def test_declares_what_the_pipeline_must_know(self, method):
        assert method.needs in ("head", "moments", "nothing")
        assert method.kernels is None or method.kernels <= KERNELS.keys()
        assert covariance.build(self.kind, **method.options) == method

    def test_covariance_has_the_batch_shape_and_no_negative_entry(self, method, model):
        x = torch.randn(6, 2)
        for name in filter(method.defined_for, KERNELS):
            step = ReverseStep(transition(model.schedule, 3, 20), KERNELS[name], Clip())
            with torch.no_grad():
                found = method.step_covariance(model.predict(x, 20), self.noise())(step)
            assert found.diagonal(x).shape == x.shape
            assert (found.diagonal(x) >= 0).all() and torch.isfinite(found.diagonal(x)).all()
            assert found.scale(x).shape == x.shape

    def test_one_look_serves_every_step(self, method, model):
        seen = model.predict(torch.randn(6, 2), 20)
        together = method.step_covariance(seen, self.noise())
        for s in (1, 10, 19):
            step = ReverseStep(transition(model.schedule, s, 20), Ddpm(), Clip())
            if method.defined_for("ddpm"):
                alone = method.step_covariance(seen, self.noise())(step).diagonal(seen.x)
                torch.testing.assert_close(together(step).diagonal(seen.x), alone)

    def test_one_pass_of_the_network_serves_it(self, method, model):
        x, passes = torch.randn(6, 2), []

        def counted(*inputs):
            passes.append(len(inputs))
            return forward(*inputs)

        counting = replace(model, forward=counted)
        with torch.no_grad():
            seen = predict(counting, [method], x, 20, None)
            found = method.step_covariance(seen, self.noise())
            apart = method.step_covariance(model.predict(x, 20), self.noise())
        assert len(passes) == 1 and torch.equal(seen.eps, model.predict(x, 20).eps)
        for name in filter(method.defined_for, KERNELS):
            step = ReverseStep(transition(model.schedule, 3, 20), KERNELS[name], Clip())
            torch.testing.assert_close(found(step).diagonal(x), apart(step).diagonal(x))

    def test_declares_how_many_products_with_the_jacobian_it_takes(
        self, method, model, monkeypatch
    ):
        products, vjp = [], Prediction.vjp
        monkeypatch.setattr(Prediction, "vjp", lambda *of: products.append(of) or vjp(*of))
        method.step_covariance(predict(model, [method], torch.randn(6, 2), 20, None), self.noise())
        assert method.jacobian_products(2) == len(products)

    def test_samples_are_finite_and_repeatable(self, method, model):
        for name, order in product(filter(method.defined_for, KERNELS), (1, 2)):
            recipe = Recipe(rules.even(STEPS, 5), method, KERNELS[name], order=order)
            runs = [recipe.draw(model, self.noise()).x for _ in range(2)]
            assert torch.isfinite(runs[0]).all() and torch.equal(*runs)

    def test_refuses_a_sampler_it_is_not_defined_for(self, method, model):
        for name in (k for k in KERNELS if not method.defined_for(k)):
            with pytest.raises(OcmError, match=f"not defined for {name}"):
                ancestral(model, method, rules.even(STEPS, 5), self.noise(), kernel=KERNELS[name])

    def test_says_what_is_missing(self, method):
        bare = a_model(moments=False)
        if method.needs != "nothing":
            with pytest.raises(OcmError, match=r"needs a trained head|is missing"):
                method.step_covariance(bare.predict(torch.randn(6, 2), 20), self.noise())

    def test_loss_trains_its_own_head_only(self, method, model):
        if not isinstance(method, LearnedMethod):
            return
        x = torch.randn(6, 2, requires_grad=True)
        t = torch.randint(1, STEPS + 1, (6,))
        seen = model.predict(x, t)
        probes = tuple(self.noise().signs() for _ in range(method.training_probes))
        x0, eps = torch.randn(2, 6, 2)
        loss = method.loss(TrainingBatch(seen, x0, eps, Decoder(None), probes))
        assert loss.shape == (6,) and torch.isfinite(loss).all()
        loss.sum().backward()
        assert all(p.grad is not None for p in model.heads[self.kind].parameters())
        assert all(p.grad is None for p in model.network.parameters())


OPTIONS = {"rademacher": {"probes": 3}, "ocm": {"probes": 2}}
for _kind in covariance.available():
    _name = f"Test{_kind.title().replace('_', '')}"
    globals()[_name] = type(
        _name, (MethodContract,), {"kind": _kind, "options": OPTIONS.get(_kind, {})}
    )


def test_unknown_methods_and_options_are_refused_by_name():
    with pytest.raises(OcmError, match="'ocn' is unknown; did you mean 'ocm'"):
        covariance.build("ocn")
    with pytest.raises(OcmError, match=r"'rademacher': probs: .*options are: probes"):
        covariance.build("rademacher", probs=3)
    with pytest.raises(OcmError, match=r"'rademacher': probes: .*greater than or equal to 1"):
        covariance.build("rademacher", "quick", probes=0)


def test_a_head_for_another_network_is_refused():
    model = a_model(["ocm"])
    wrong = torch.nn.Module()
    wrong.forward = lambda features: torch.zeros(6, 3)
    model.heads["ocm"].net = wrong
    with pytest.raises(OcmError, match=r"head 'ocm' gives \(3,\).*belongs to another network"):
        covariance.build("ocm").c(model.predict(torch.randn(6, 2), 5))


def test_a_table_for_another_schedule_is_refused():
    model = a_model()
    model.__dict__["moments"] = torch.ones(11)
    with pytest.raises(OcmError, match="has 10 timesteps, the schedule 50"):
        covariance.build("analytic").c(model.predict(torch.randn(2, 2), 5))


def test_timesteps_outside_the_timesteps_are_refused():
    model = a_model()
    for t in (0, STEPS + 1):
        with pytest.raises(OcmError, match=f"outside the schedule: expected 1 … {STEPS}"):
            model.predict(torch.randn(2, 2), t)
    with pytest.raises(OcmError, match=r"timesteps have shape \(3,\), expected \(2,\)"):
        model.predict(torch.randn(2, 2), torch.ones(3, dtype=torch.long))


def test_a_negative_variance_is_clamped_and_counted():
    model = a_model(["ocm"])
    torch.nn.init.constant_(model.heads["ocm"].net.net.layers[-1].bias, -5.0)
    noise = SampleNoise(0, range(6), (2,))
    drawn = ddpm(model, covariance.build("ocm"), rules.even(STEPS, 5), noise)
    assert torch.isfinite(drawn.x).all()
    assert drawn.clipped["below"] == drawn.clipped["entries"] == 4 * 6 * 2
    assert ddim(model, covariance.build("delta"), rules.even(STEPS, 5), noise).clipped == {}


@pytest.mark.parametrize("kind", covariance.available())
def test_only_estimated_variances_have_a_limit_at_the_last_noisy_step(kind):
    expected = None if kind in ("beta", "beta_tilde", "delta") else 0.01
    assert covariance.build(kind).final_sigma(0.01) == expected
    assert covariance.build(kind).final_sigma(None) is None


OUTPUTS = st.floats(-20.0, 20.0)


def c(link: str, raw: float, baseline: float) -> float:
    return float(LINKS[link](*(torch.tensor(x, dtype=torch.float64) for x in (raw, baseline))))


@given(raw=OUTPUTS, baseline=st.floats(1e-6, 1.0))
def test_links_are_their_formulas(raw: float, baseline: float) -> None:
    assert c("identity", raw, baseline) == pytest.approx(baseline * (1 + raw), rel=1e-9)
    for link, weighted in (("positive", raw), ("tapered", (1 - baseline) * raw)):
        expected = baseline * log1p((e - 1) * exp(weighted))
        assert c(link, raw, baseline) == pytest.approx(expected, rel=1e-9)


UNITS = {"own": {"ocm": 1.0, "npr": 1.0, "sn": 0.5}, "root": 0.5, "one": 0.0}  # powers of c̄_t


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("kind", ["ocm", "npr", "sn"])
def test_errors_of_a_relative_head_are_measured_in_its_unit(kind: str, unit: Unit) -> None:
    torch.manual_seed(0)
    levels = schedule.cosine(5)
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
