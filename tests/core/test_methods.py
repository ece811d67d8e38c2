"""One contract that every covariance method keeps, and what is said when something is missing."""

from dataclasses import replace
from functools import partial
from math import e, exp, log1p

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
from ocm_core.diffusion.kernels import Kernel
from ocm_core.diffusion.kernels.cps import Cps
from ocm_core.diffusion.kernels.flow_grpo import FlowGrpo
from ocm_core.diffusion.kernels.precise import Precise
from ocm_core.diffusion.transition import transition
from ocm_core.errors import OcmError
from ocm_core.networks.mlp import MlpScore
from ocm_core.rng.noise import SampleNoise
from ocm_core.sampling.recipe import Recipe
from tests.core.doubles import Ddim, Ddpm, Given, QuadraticNetwork, ddim, ddpm, root_of, spectra

STEPS = 50
KERNELS: dict[str, Kernel] = {"ddpm": Ddpm(), "ddim": Ddim(eta=0.3)}
KERNELS |= {"cps": Cps(), "precise": Precise(), "flow_grpo": FlowGrpo()}


def a_model(labels=(), moments=True, width=8):
    torch.manual_seed(0)
    levels = schedule.linear(STEPS)
    network = MlpScore(levels, 1.0, width, 2).eval()
    torch.nn.init.normal_(network.net.layers[-1].weight, std=0.3)
    heads = {}
    for label in labels:
        net = network.make_head("mlp", width=width, depth=1)
        torch.nn.init.normal_(net.net.layers[-1].weight, std=0.3)
        heads[label] = CovarianceHead(net)
    table = torch.linspace(1, 0, STEPS + 1) if moments else None
    return Denoiser(network, levels, heads=heads, moments=table, spectra=spectra(levels, 2))


OPTIONS = {"rademacher": {"probes": 3}, "ocm": {"probes": 2}}  # of others, the defaults


@pytest.fixture(params=covariance.available())
def method(request):
    """Every method of the package, found by itself, is held to all that takes this fixture."""
    return covariance.build(request.param, **OPTIONS.get(request.param, {}))


@pytest.fixture
def model(method):
    return a_model([method.label] if method.needs == "head" else [])


def noise(count=6):
    return SampleNoise(0, range(count), (2,))


def steps(method, s=3):
    """The step 20 → s of each kernel that the method is defined for."""
    step = transition(schedule.linear(STEPS), s, 20)
    return [ReverseStep(step, k, Clip()) for n, k in KERNELS.items() if method.defined_for(n)]


def test_declares_what_the_pipeline_must_know(method):
    assert method.needs in ("head", "moments", "nothing")
    assert method.kernels is None or method.kernels <= KERNELS.keys()
    assert covariance.build(method.label, **method.options) == method
    # as in the published commands: fixed variances have no limit, their noise there is the point
    limit = None if method.label in ("beta", "beta_tilde", "delta") else 0.01
    assert (method.final_sigma(0.01), method.final_sigma(None)) == (limit, None)


def test_covariance_has_the_batch_shape_a_symmetric_root_and_no_negative_entry(method, model):
    x = torch.randn(6, 2)
    for step in steps(method):
        with torch.no_grad():
            found = method.step_covariance(model.predict(x, 20), noise())(step)
        if not method.has_density:
            assert found.scale(x).shape == x.shape and torch.isfinite(found.scale(x)).all()
            for asked in (found.diagonal, found.log_density, partial(found.divergence, 0.1)):
                with pytest.raises(OcmError, match="no diagonal and no density"):
                    asked(x)
            return
        diagonal, root = found.diagonal(x), root_of(found, x)
        assert diagonal.shape == found.scale(x).shape == x.shape
        assert (diagonal >= 0).all() and torch.isfinite(diagonal).all()
        torch.testing.assert_close(root, root.mT)
        torch.testing.assert_close((root @ root).diagonal(dim1=1, dim2=2), diagonal)


def test_one_look_serves_every_step(method, model):
    seen = model.predict(torch.randn(6, 2), 20)
    together = method.step_covariance(seen, noise())
    for step in (step for s in (1, 10, 19) for step in steps(method, s)):
        alone = method.step_covariance(seen, noise())(step).scale(seen.x)
        torch.testing.assert_close(together(step).scale(seen.x), alone)


def test_one_pass_of_the_network_serves_it(method, model):
    x, passes = torch.randn(6, 2), []

    def counted(*inputs):
        passes.append(len(inputs))
        return forward(*inputs)

    with torch.no_grad():
        seen = predict(replace(model, forward=counted), [method], x, 20, None)
        found = method.step_covariance(seen, noise())
        apart = method.step_covariance(model.predict(x, 20), noise())
        for step in steps(method):
            torch.testing.assert_close(found(step).scale(x), apart(step).scale(x))
    assert len(passes) == 1 and torch.equal(seen.eps, model.predict(x, 20).eps)


def test_declares_how_many_products_with_the_jacobian_it_takes(method, model, monkeypatch):
    products, vjp = [], Prediction.vjp
    monkeypatch.setattr(Prediction, "vjp", lambda *of: products.append(of) or vjp(*of))
    seen = predict(model, [method], torch.randn(6, 2), 20, None)
    found = method.step_covariance(seen, noise())
    for step in steps(method)[:1]:
        found(step).scale(torch.randn(6, 2))
    assert method.jacobian_products(2) == len(products)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_samples_are_finite_and_repeatable_where_it_is_defined(method, model, kernel):
    if not method.defined_for(kernel.name):
        with pytest.raises(OcmError, match=f"not defined for {kernel.name}"):
            Recipe(rules.even(STEPS, 5), method, kernel)
        return
    for order in (1, 2):
        recipe = Recipe(rules.even(STEPS, 5), method, kernel, order=order)
        runs = [recipe.draw(model, noise()).x for _ in range(2)]
        assert torch.isfinite(runs[0]).all() and torch.equal(*runs)


def test_says_what_is_missing(method):
    bare = a_model(moments=False)
    if method.needs != "nothing":
        with pytest.raises(OcmError, match=r"needs a trained head|is missing"):
            method.step_covariance(bare.predict(torch.randn(6, 2), 20), noise())


def test_loss_trains_its_own_head_only(method, model):
    if not isinstance(method, LearnedMethod):
        return
    x, t = torch.randn(6, 2, requires_grad=True), torch.randint(1, STEPS + 1, (6,))
    probes = tuple(noise().signs() for _ in range(method.training_probes))
    x0, eps = torch.randn(2, 6, 2)
    loss = method.loss(TrainingBatch(model.predict(x, t), x0, eps, Decoder(None), probes))
    assert loss.shape == (6,) and torch.isfinite(loss).all()
    loss.sum().backward()
    assert all(p.grad is not None for p in model.heads[method.label].parameters())
    assert all(p.grad is None for p in model.network.parameters())


def test_unknown_methods_and_options_are_refused_by_name():
    with pytest.raises(OcmError, match="'ocn' is unknown; did you mean 'ocm'"):
        covariance.build("ocn")
    with pytest.raises(OcmError, match=r"'rademacher': probs: .*options are: probes"):
        covariance.build("rademacher", probs=3)
    with pytest.raises(OcmError, match=r"'rademacher': probes: .*greater than or equal to 1"):
        covariance.build("rademacher", "quick", probes=0)


def test_what_is_of_another_network_or_schedule_is_refused():
    model = a_model(["ocm"])
    model.heads["ocm"].net = Given(torch.zeros(6, 3))
    with pytest.raises(OcmError, match=r"head 'ocm' gives \(3,\).*belongs to another network"):
        covariance.build("ocm").c(model.predict(torch.randn(6, 2), 5))
    model = a_model()
    model.__dict__["moments"] = torch.ones(11)
    with pytest.raises(OcmError, match="has 10 timesteps, the schedule 50"):
        covariance.build("analytic").c(model.predict(torch.randn(2, 2), 5))
    for t in (0, STEPS + 1):
        with pytest.raises(OcmError, match=f"outside the schedule: expected 1 … {STEPS}"):
            model.predict(torch.randn(2, 2), t)
    with pytest.raises(OcmError, match=r"timesteps have shape \(3,\), expected \(2,\)"):
        model.predict(torch.randn(2, 2), torch.ones(3, dtype=torch.long))


def test_a_negative_variance_is_clamped_and_counted():
    model = a_model(["ocm"])
    torch.nn.init.constant_(model.heads["ocm"].net.net.layers[-1].bias, -5.0)
    drawn = ddpm(model, covariance.build("ocm"), rules.even(STEPS, 5), noise())
    assert torch.isfinite(drawn.x).all()
    assert drawn.clipped["below"] == drawn.clipped["entries"] == 4 * 6 * 2
    assert ddim(model, covariance.build("delta"), rules.even(STEPS, 5), noise()).clipped == {}


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
