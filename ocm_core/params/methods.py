"""What the parameters cannot know of themselves: each covariance method's needs and options.

Only here do the parameters ask `ocm_core.covariance`, which imports torch; so this module is
imported when an experiment is composed and when a stage runs, never to build a graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ocm_core.covariance import Description, describe
from ocm_core.errors import OcmError
from ocm_core.samplers.presets import PRESETS
from ocm_core.schema.combinations import impossible
from ocm_core.schema.experiment import (
    Experiment,
    GridParams,
    MethodParams,
    PresetParams,
    Sampler,
    SamplerParams,
)


def complete(methods: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Fill in each method's kind (its label), needs and default options."""
    problems: list[str] = []
    completed = {}
    for label, given in methods.items():
        options = dict(given or {})
        kind = options.pop("kind", label)
        own = {key: options.pop(key, None) for key in ("head", "init")}
        try:
            description = describe(kind, options)
        except OcmError as error:
            problems.append(f"{file}: methods.{label}: {error}")
        else:
            fixed = {"kind": kind, "needs": description.needs, **own}
            completed[label] = {**fixed, **description.options}
    if problems:
        raise OcmError("\n".join(problems))
    return completed


def check_methods(methods: Mapping[str, MethodParams], file: Path) -> None:
    """Refuse a resolved file whose methods are not what composing it again would give."""
    given = {label: method.model_dump(exclude={"needs"}) for label, method in methods.items()}
    for label, values in complete(given, file).items():
        if values != methods[label].model_dump():
            raise OcmError(
                f"{file}: methods.{label}: expected {values}, found {methods[label].model_dump()}; "
                "run `ocm params --write`"
            )


def check_samplers(experiment: Experiment, file: Path) -> None:
    if presets := list(impossible(_walked(experiment))):
        raise OcmError("\n".join(f"{file}: {problem}" for problem in presets))
    described = {label: describe(m.kind, m.options) for label, m in experiment.methods.items()}
    unsuited, unlikely = (
        _unsuited(_walked(experiment), described),
        _without_likelihood(experiment, described),
    )
    if problems := [*unsuited, *unlikely]:
        raise OcmError("\n".join(f"{file}: {problem}" for problem in problems))


def _walked(experiment: Experiment) -> Experiment:
    """With each preset as the samplers that it stands for, one for each number of steps."""
    samplers: dict[str, Sampler] = {}
    for label, sampler in experiment.sample.samplers.items():
        if isinstance(sampler, PresetParams):
            for steps in sampler.steps:
                walk = PRESETS[sampler.name].walk(steps)
                grids = [GridParams(steps=[steps], guidance=[1.0])]
                samplers[f"{label} (K = {steps})"] = SamplerParams(
                    **dict(walk), grids=grids, methods=sampler.methods
                )
        else:
            samplers[label] = sampler
    sample = experiment.sample.model_copy(update={"samplers": samplers})
    return experiment.model_copy(update={"sample": sample})


def _without_likelihood(
    experiment: Experiment, described: Mapping[str, Description]
) -> Iterator[str]:
    evaluate = experiment.evaluate
    for name, settings in (("likelihood", evaluate.likelihood), ("chains", evaluate.chains)):
        for label in settings.methods if settings else []:
            if "ddpm" not in described[label].samplers:
                yield f"evaluate.{name}.methods: {label!r} is not defined for ddpm; leave it out"


def _unsuited(experiment: Experiment, described: Mapping[str, Description]) -> Iterator[str]:
    for label, sampler in experiment.sample.samplers.items():
        suited = [name for name, method in described.items() if sampler.kind in method.samplers]
        for method in sampler.methods:
            if method not in suited:
                only = ", ".join(sorted(described[method].samplers))
                yield (
                    f"sample.samplers.{label}.methods: {method!r} is defined for {only} only; "
                    f"for {sampler.kind} use {', '.join(map(repr, suited)) or 'another sampler'}"
                )
