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
from ocm_core.diffusion.schedule import predict_eps
from ocm_core.diffusion.transition import transitions
from ocm_core.likelihood.bound import Likelihood
from tests.core.doubles import Ddim, Ddpm, Replay, ddim, ddpm
from tests.goldens_io import arrays, facts, tensor
from tests.networks.golden import golden

DIT, OPENAI = "dit_diffusion", "iddpm_diffusion"
LEARNED = covariance.build("iddpm", source="network", lower_end="timesteps")
METHODS = {
    "learned_range": LEARNED,
    "fixed_small": covariance.build("beta_tilde"),
    "fixed_large": covariance.build("beta"),
    "ddim": covariance.build("delta"),
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


def denoiser(file, levels, **convention):
    network = golden(facts(file)["network"]).network().requires_grad_(False)
    return Denoiser(network, levels, TimeConvention(shift=1, **convention))


@pytest.fixture(scope="module")
def dit():
    return denoiser(DIT, schedule.linear(1000))


@pytest.fixture(scope="module")
def openai():
    return denoiser(OPENAI, schedule.cosine(4000), scale=0.25)


STEPS = [
    (f"{kind}/{clip}", kind, Ddpm(), length, "p_sample")
    for kind in ("learned_range", "fixed_small", "fixed_large")
    for clip in CLIPS
    for length in (10, 25)
] + [
    (f"learned_range/{clip}", "ddim", RederivedDdim(eta=eta), 10, f"ddim_sample_eta{eta}")
    for clip in CLIPS
    for eta in (0.0, 1.0)
]


@pytest.mark.parametrize("prefix, kind, kernel, length, sample", STEPS)
def test_dit_steps(dit, prefix, kind, kernel, length, sample):
    data, method = arrays(DIT), METHODS[kind]
    x, y, noise = (tensor(DIT, key) for key in ("x", "y", f"steps{length}/noise"))
    ascending = transitions(dit.schedule, rules.dit(1000, length))[::-1]
    clip, prefix = CLIPS[prefix.split("/")[1]], f"steps{length}/{prefix}"
    for row, index in enumerate(data[f"steps{length}/t"]):
        step, one = ReverseStep(ascending[index], kernel, clip), slice(row, row + 1)
        s, seen = step.transition.s, dit.predict(x[one], step.transition.t, y[one])
        mean, found = step.mean(seen), method.step_covariance(seen, Replay([]))(step)
        if kind != "ddim":
            close(mean, data[f"{prefix}/mean"][one])
        if kind == "learned_range" or (s > 0 and kind != "ddim"):  # at s = 0 others are not used
            close(found.diagonal(mean), data[f"{prefix}/variance"][one])
        drawn = mean + found.scale(noise[one]) if s > 0 else mean
        close(drawn, data[f"{prefix}/{sample}"][one])


def test_a_guided_variance_is_the_conditional_one(dit):
    x, y, null = tensor(DIT, "x"), tensor(DIT, "y"), facts(DIT)["null_class"]
    guided = GuidedDenoiser(dit, Guidance(4.0, channels=3), null).predict(x, 500, y)
    given, none = (dit.predict(x, 500, label) for label in (y, torch.full_like(y, null)))
    torch.testing.assert_close(guided.learned_variance, given.learned_variance)
    assert not torch.allclose(given.learned_variance, none.learned_variance, atol=1e-3)


@pytest.mark.parametrize("key", [k for k in arrays(DIT).files if k.endswith("_sample_loop")])
def test_dit_guided_loops(dit, key):
    _, kind, scale, _ = key.split("/")
    x_init, y, noise = (tensor(DIT, f"loop/{name}") for name in ("x_init", "y", "noise"))
    half = len(x_init) // 2 if len(y) == len(x_init) else len(x_init)
    guidance = Guidance(float(scale.removeprefix("cfg")), channels=3)
    model = GuidedDenoiser(dit, guidance, facts(DIT)["null_class"])
    timesteps = rules.dit(1000, facts(DIT)["respacing"][0])
    draw, replayed = ddim if kind == "ddim" else ddpm, Replay([x_init[:half], *noise[:, :half]])
    options = {"clip": CLIPS["clip0"], "label": y[: len(x_init)][:half]}
    sampled = draw(model, METHODS[kind], timesteps, replayed, **options)
    close(sampled.x, arrays(DIT)[key][:half], 1e-4)


def bits(file, model, length, clip, label=None):
    """OpenAI's decoder term takes the learned variance where the covariance papers fix it."""
    timesteps = rules.dit(model.schedule.steps, length)
    drawn = tensor(file, f"bpd/steps{length}/noise")
    noise = dict(zip(reversed(timesteps), drawn, strict=True))
    bound = Likelihood(model, {"iddpm": LEARNED}, Decoder(256, "tanh", "method"), CLIPS[clip])
    x0 = tensor(file, "bpd/x_start")
    found, _ = bound.bounds({"K": timesteps}, x0, lambda t: Replay([noise[t]]), label)
    ours = found["K", "iddpm"]
    return ours.terms / (ours.dimension * np.log(2))


@pytest.mark.parametrize("length", [10, 25])
@pytest.mark.parametrize("clip", CLIPS)
def test_dit_bound(dit, clip, length):
    data, prefix = arrays(DIT), f"bpd/steps{length}/{clip}"
    found = bits(DIT, dit, length, clip, tensor(DIT, "bpd/y"))
    close(found[:-1].flip(0).T, data[f"{prefix}/vb"])
    np.testing.assert_allclose(found[-1], data[f"{prefix}/prior_bpd"], atol=1e-6)


@pytest.mark.parametrize("length", [10, 25])
def test_openai_loops_and_bound(openai, length):
    data, timesteps, prefix = arrays(OPENAI), rules.dit(4000, length), f"steps{length}"
    assert [t - 1 for t in timesteps] == data[f"{prefix}/timestep_map"].tolist()
    normals = [tensor(OPENAI, "x_init"), *tensor(OPENAI, f"{prefix}/noise")]
    drawn = ddpm(openai, LEARNED, timesteps, Replay(normals), clip=CLIPS["clip1"])
    close(drawn.x, data[f"{prefix}/p_sample_loop"], 1e-4)
    how = {"kernel": RederivedDdim(eta=0.0), "clip": CLIPS["clip1"]}
    drawn = ddim(openai, METHODS["ddim"], timesteps, Replay(normals), **how)
    close(drawn.x, data[f"{prefix}/ddim_sample_loop"], 1e-2)
    found = bits(OPENAI, openai, length, "clip1")
    close(found[:-1].flip(0).T, data[f"bpd/{prefix}/vb"])


def test_dit_training_bound(dit):
    data = arrays(DIT)
    x0, noise, t = (tensor(DIT, f"training/{key}") for key in ("x_start", "noise", "t"))
    signal = dit.schedule.at(dit.schedule.alpha_bar, t + 1, x0).sqrt()
    x = signal * x0 + dit.schedule.at(dit.schedule.b, t + 1, x0).sqrt() * noise
    seen = dit.predict(x, t + 1, tensor(DIT, "y"))
    close(((noise - seen.eps) ** 2).flatten(1).mean(1), data["training/mse"])
    nats = LEARNED.loss(TrainingBatch(seen, x0, noise, Decoder(256, "tanh")))
    close(nats / (x0[0].numel() * np.log(2)), data["training/vb"])
    # OpenAI's hybrid: the simple loss plus the bound, at T = 1000 with weight T / 1000
    hybrid = data["training/mse"] + data["training/vb"]
    np.testing.assert_allclose(hybrid, data["training/loss"], rtol=1e-5, atol=1e-6)
