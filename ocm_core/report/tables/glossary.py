"""What the labels of a page mean: a line and an equation for each method, a line for each sampler.

Notation: ᾱ is the share of the signal that is left, b = 1 - ᾱ, and β̃ the variance of the forward
step's reversal; J is the Jacobian of the predicted noise ε̂ (docs/mathematics.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocm_core.report.page.document import Glossary, GlossaryEntry
from ocm_core.report.statistics.head_families import (
    HeadFamilies,
    families_together,
    relative_heads,
)
from ocm_core.report.statistics.selections import chain_names

if TYPE_CHECKING:
    from ocm_core.schema.experiment import Experiment, HeadForm, MethodParams, Sampler

INTRODUCTION = (
    "A reverse step from t to s draws from a Gaussian whose mean comes from the score. The methods "
    "differ in its covariance Σ only, most of them by c alone: Σ = β̃ + a² (bₜ/ᾱₜ) c, with "
    "bₜ = 1 - ᾱₜ, β̃ = (1 - ᾱₜ/ᾱₛ) bₛ/bₜ and a = √ᾱₛ (1 - ᾱₜ/ᾱₛ)/bₜ. J is the Jacobian of the "
    "predicted noise ε̂ in xₜ, and v are random signs."
)

_METHODS = {
    "beta": ("the variance of the forward step", "Σ = 1 - ᾱₜ/ᾱₛ"),
    "beta_tilde": ("the variance of the forward step's reversal, x₀ being known", "Σ = β̃"),
    "delta": ("none: x₀ is taken to be known", "c = 0"),
    "none": ("none: a solver of diffusers, whose noise is its own if it draws any", ""),
    "analytic": (
        "one number per t, from the mean square of the predicted noise",
        "c = 1 - E‖ε̂‖²/d",
    ),
    "iddpm": (
        "a head between beta and beta_tilde, fitted to the likelihood bound",
        "log Σ = v log(1 - ᾱₜ/ᾱₛ) + (1 - v) log β̃",
    ),
    "npr": (
        "a head fitted to the squared residual of the predicted noise",
        "c = g(xₜ), g ≈ E[(ε - ε̂)² | xₜ]",
    ),
    "sn": (
        "a head fitted to the squared noise, less the squared prediction",
        "c = g(xₜ) - ε̂², g ≈ E[ε² | xₜ]",
    ),
    "ocm": (
        "a head fitted to random probes of the score's Jacobian",
        "c = 1 + h(xₜ), h ≈ -√bₜ E[v ⊙ Jᵀv] = -√bₜ diag J",
    ),
    "rademacher": (
        "random probes of the score's Jacobian, at every step",
        "c = 1 - √bₜ (v₁ ⊙ Jᵀv₁ + … + v_M ⊙ Jᵀv_M)/M",
    ),
    "exact_diag": ("the diagonal of the score's Jacobian, at every step", "c = 1 - √bₜ diag J"),
    "exact_full": ("the whole Jacobian of the score, at every step", "c = I - √bₜ J"),
}
_BASELINES = {
    "gaussian": "the variance of a Gaussian",
    "moments": "the table of analytic",
    "target": "the mean of its target",
}
_LINKS = {"identity": "", "positive": ", and positive", "tapered": ", positive, tapered at small t"}
_LINKED = {
    "identity": "c = c̄ₜ (1 + r(xₜ))",
    "positive": "c = c̄ₜ softplus(r(xₜ) + log(e - 1))",
    "tapered": "c = c̄ₜ softplus((1 - c̄ₜ) r(xₜ) + log(e - 1))",
}
_WALKS = {
    "ddpm": (
        "DDPM's reverse steps",
        "xₛ = a x̂₀ + √(ᾱₜ/ᾱₛ) (bₛ/bₜ) xₜ + √Σ z",
    ),
    "ddim": (
        "DDIM's reverse steps",
        "xₛ = √ᾱₛ x̂₀ + √(bₛ - η²β̃) ε̂ + √Σ z",
    ),
}
_PRESETS = {
    "quality": "for the least distance to the data",
    "diverse": "for the most recall",
    "likelihood": "for the least bound",
}


def glossary(experiment: Experiment, families: HeadFamilies) -> Glossary:
    relative = relative_heads(families)
    methods = [
        _method(label, experiment.methods[label], experiment.head.form(experiment.methods[label]))
        if label in relative
        else _method(label, experiment.methods[label])
        for label in families_together(experiment.methods, families)
    ]
    known = {entry.label for entry in methods}
    samplers = experiment.sample.samplers
    shown = dict.fromkeys(chain_names(samplers).values())
    return Glossary((*methods, *(_sampler(k, samplers[k]) for k in shown if k not in known)))


def _method(label: str, method: MethodParams, form: HeadForm | None = None) -> GlossaryEntry:
    text, equation = _METHODS.get(method.kind, (method.kind, ""))
    if form is not None:  # relative to a baseline: in what it differs from the papers' heads
        text += f"; relative to {_BASELINES[form.baseline]}{_LINKS[form.link]}"
        equation = f"{_LINKED[form.link]}, c̄ₜ {_BASELINES[form.baseline]}"
    probes = method.options.get("probes", 1)
    told = method.kind == "rademacher" or probes != 1
    return GlossaryEntry(label, f"{text} (M = {probes})" if told else text, equation)


def _sampler(label: str, sampler: Sampler) -> GlossaryEntry:
    if sampler.kind == "diffusers":
        options = "".join(f", {key} {value}" for key, value in sampler.options.items())
        return GlossaryEntry(label, f"{sampler.scheduler} of diffusers{options}")
    if sampler.kind == "preset":
        return GlossaryEntry(label, f"the preset {sampler.name}, {_PRESETS[sampler.name]}")
    text, equation = _WALKS[sampler.kind]
    order = f" of order {sampler.order}" if sampler.order != 1 else ""
    return GlossaryEntry(
        label, f"{text}{order} along a chain of kind {sampler.chain.kind}", equation
    )
