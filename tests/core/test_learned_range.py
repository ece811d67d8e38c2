"""DiT's and OpenAI's own samplers: learned range, fixed variances, DDIM, guidance, respacing."""

import numpy as np
import pytest
import torch

from ocm_core import covariance
from ocm_core.covariance.interface import Clip, ReverseStep
from ocm_core.covariance.learned import TrainingBatch
from ocm_core.diffusion import schedule
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser, TimeConvention
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.guidance import Guidance, GuidedDenoiser
from ocm_core.diffusion.kernels.ddim import Ddim
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.schedule import predict_eps
from ocm_core.diffusion.transition import transitions
from ocm_core.likelihood.bound import Likelihood
from tests.core.doubles import Replay, ancestral
from tests.goldens_io import arrays, facts, tensor
from tests.networks.golden import golden

LEARNED = covariance.build("iddpm", source="network", lower_end="timesteps")
METHODS = {
    "learned_range": LEARNED,
    "fixed_small": covariance.build("beta_tilde"),
    "fixed_large": covariance.build("beta"),
}
CLIPS = {"clip0": Clip(c_min=None), "clip1": Clip(x0=1.0, c_min=None)}


class RederivedDdim(Ddim):
    """DDIM as OpenAI and DiT have it: ε̂ is derived anew from the clamped x̂_0."""

    def mean(self, step, x, x0, eps):
        eps = predict_eps(x, x0, step.alpha_bar_t, step.b_t)
        return super().mean(step, x, x0, eps)


def close(ours, expected, tolerance=2e-5):
    expected = np.asarray(expected)
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(np.asarray(ours), expected, rtol=0, atol=tolerance * scale)


@pytest.fixture(scope="module")
def dit():
    network = golden(facts("dit_diffusion")["network"]).network().requires_grad_(False)
    return Denoiser(network, schedule.linear(1000), TimeConvention(shift=1))


@pytest.mark.parametrize("length", [10, 25])
@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("kind", METHODS)
def test_dit_steps(dit, kind, clip, length):
    data = arrays("dit_diffusion")
    x, y = tensor("dit_diffusion", "x"), tensor("dit_diffusion", "y")
    prefix = f"steps{length}/{kind}/{clip}"
    ascending = transitions(dit.schedule, rules.dit(1000, length))[::-1]
    noise = tensor("dit_diffusion", f"steps{length}/noise")
    for row, index in enumerate(data[f"steps{length}/t"]):
        transition = ascending[index]
        step = ReverseStep(transition, Ddpm(), CLIPS[clip])
        one = slice(row, row + 1)
        seen = dit.predict(x[one], transition.t, y[one])
        mean, found = step.mean(seen), METHODS[kind].step_covariance(seen, Replay([]))(step)
        close(mean, data[f"{prefix}/mean"][one])
        if transition.s > 0 or kind == "learned_range":  # at s = 0 the fixed ones are not used
            close(found.diagonal(mean), data[f"{prefix}/variance"][one])
        drawn = mean + found.scale(noise[one]) if transition.s > 0 else mean
        close(drawn, data[f"{prefix}/p_sample"][one])


@pytest.mark.parametrize("eta", [0.0, 1.0])
@pytest.mark.parametrize("clip", CLIPS)
def test_dit_ddim_steps(dit, clip, eta):
    data = arrays("dit_diffusion")
    x, y = tensor("dit_diffusion", "x"), tensor("dit_diffusion", "y")
    noise = tensor("dit_diffusion", "steps10/noise")
    ascending = transitions(dit.schedule, rules.dit(1000, 10))[::-1]
    method = covariance.build("delta")
    for row, index in enumerate(data["steps10/t"]):
        transition = ascending[index]
        step = ReverseStep(transition, RederivedDdim(eta=eta), CLIPS[clip])
        one = slice(row, row + 1)
        seen = dit.predict(x[one], transition.t, y[one])
        ours = step.mean(seen)
        if transition.s > 0:
            ours = ours + method.step_covariance(seen, Replay([]))(step).scale(noise[one])
        close(ours, data[f"steps10/learned_range/{clip}/ddim_sample_eta{eta}"][one])


def test_a_guided_variance_is_the_conditional_one(dit):
    x, y = tensor("dit_diffusion", "x"), tensor("dit_diffusion", "y")
    null = facts("dit_diffusion")["null_class"]
    guided = GuidedDenoiser(dit, Guidance(4.0, channels=3), null).predict(x, 500, y)
    given, none = (dit.predict(x, 500, label) for label in (y, torch.full_like(y, null)))
    torch.testing.assert_close(guided.learned_variance, given.learned_variance)
    assert not torch.allclose(given.learned_variance, none.learned_variance, atol=1e-3)


LOOPS = [key for key in arrays("dit_diffusion").files if key.endswith("_sample_loop")]


@pytest.mark.parametrize("key", LOOPS)
def test_dit_guided_loops(dit, key):
    _, kind, scale, _ = key.split("/")
    x_init, y = tensor("dit_diffusion", "loop/x_init"), tensor("dit_diffusion", "loop/y")
    noise = tensor("dit_diffusion", "loop/noise")
    half = len(x_init) // 2 if len(y) == len(x_init) else len(x_init)
    labels = y[: len(x_init)][:half]
    guidance = Guidance(float(scale.removeprefix("cfg")), channels=3)
    model = GuidedDenoiser(dit, guidance, facts("dit_diffusion")["null_class"])
    sampled = ancestral(
        model,
        covariance.build("delta") if kind == "ddim" else METHODS[kind],
        rules.dit(1000, facts("dit_diffusion")["respacing"][0]),
        Replay([x_init[:half], *noise[:, :half]]),
        kernel=Ddim() if kind == "ddim" else Ddpm(),
        clip=CLIPS["clip0"],
        label=labels,
    )
    close(sampled.x, arrays("dit_diffusion")[key][:half], 1e-4)


@pytest.mark.parametrize("length", [10, 25])
@pytest.mark.parametrize("clip", CLIPS)
def test_dit_bound(dit, clip, length):
    """Every term of the learned-range bound, the decoder's with the learned variance too."""
    data = arrays("dit_diffusion")
    prefix = f"bpd/steps{length}"
    timesteps = rules.dit(1000, length)
    noise = dict(zip(reversed(timesteps), tensor("dit_diffusion", f"{prefix}/noise"), strict=True))
    x0, y = tensor("dit_diffusion", "bpd/x_start"), tensor("dit_diffusion", "bpd/y")
    bound = Likelihood(dit, {"iddpm": LEARNED}, Decoder(256, "tanh", "method"), CLIPS[clip])
    found, _ = bound.bounds({"K": timesteps}, x0, lambda t: Replay([noise[t]]), y)
    ours = found["K", "iddpm"]
    bits = ours.terms / (ours.dimension * np.log(2))
    close(bits[:-1].flip(0).T, data[f"{prefix}/{clip}/vb"])
    np.testing.assert_allclose(bits[-1], data[f"{prefix}/{clip}/prior_bpd"], atol=1e-6)


@pytest.fixture(scope="module")
def openai():
    network = golden(facts("iddpm_diffusion")["network"]).network().requires_grad_(False)
    return Denoiser(network, schedule.cosine(4000), TimeConvention(shift=1, scale=0.25))


@pytest.mark.parametrize("length", [10, 25])
def test_openai_learned_range(openai, length):
    model, data = openai, arrays("iddpm_diffusion")
    timesteps = rules.dit(4000, length)
    assert [t - 1 for t in timesteps] == data[f"steps{length}/timestep_map"].tolist()
    clip = Clip(x0=1.0, c_min=None)
    x_init = tensor("iddpm_diffusion", "x_init")
    noise = tensor("iddpm_diffusion", f"steps{length}/noise")
    drawn = ancestral(model, LEARNED, timesteps, Replay([x_init, *noise]), kernel=Ddpm(), clip=clip)
    close(drawn.x, data[f"steps{length}/p_sample_loop"], 1e-4)
    drawn = ancestral(
        model,
        covariance.build("delta"),
        timesteps,
        Replay([x_init, *noise]),
        kernel=RederivedDdim(eta=0.0),
        clip=clip,
    )
    close(drawn.x, data[f"steps{length}/ddim_sample_loop"], 1e-2)


@pytest.mark.parametrize("length", [10, 25])
def test_openai_bound_with_the_learned_decoder(openai, length):
    data = arrays("iddpm_diffusion")
    timesteps = rules.dit(4000, length)
    clip = Clip(x0=1.0, c_min=None)
    noise = dict(
        zip(reversed(timesteps), tensor("iddpm_diffusion", f"bpd/steps{length}/noise"), strict=True)
    )
    x0 = tensor("iddpm_diffusion", "bpd/x_start")
    # OpenAI's decoder term takes the learned variance where the covariance papers fix it
    bound = Likelihood(openai, {"iddpm": LEARNED}, Decoder(256, "tanh", "method"), clip)
    found, _ = bound.bounds({"K": timesteps}, x0, lambda t: Replay([noise[t]]))
    bits = found["K", "iddpm"].terms / (found["K", "iddpm"].dimension * np.log(2))
    close(bits[:-1].flip(0).T, data[f"bpd/steps{length}/vb"])


def test_dit_training_bound(dit):
    data = arrays("dit_diffusion")
    x0, noise = (tensor("dit_diffusion", f"training/{key}") for key in ("x_start", "noise"))
    t = tensor("dit_diffusion", "training/t") + 1
    signal = dit.schedule.at(dit.schedule.alpha_bar, t, x0).sqrt()
    x = signal * x0 + dit.schedule.at(dit.schedule.b, t, x0).sqrt() * noise
    key = "training/y" if "training/y" in data.files else "y"
    seen = dit.predict(x, t, tensor("dit_diffusion", key))
    close(((noise - seen.eps) ** 2).flatten(1).mean(1), data["training/mse"])
    nats = LEARNED.loss(TrainingBatch(seen, x0, noise, Decoder(256, "tanh")))
    bits = nats / (x0[0].numel() * np.log(2))
    close(bits, data["training/vb"])
    # OpenAI's hybrid: the simple loss plus the bound, at T = 1000 with weight T / 1000
    torch.testing.assert_close(
        torch.from_numpy(data["training/mse"] + data["training/vb"]),
        tensor("dit_diffusion", "training/loss"),
        rtol=1e-5,
        atol=1e-6,
    )
