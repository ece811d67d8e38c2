"""What cannot sample an experiment: methods without a definition, and solvers that refuse it."""

from collections.abc import Iterator

from ocm_core import covariance
from ocm_core.errors import OcmError
from ocm_core.sampling import recipes_of
from ocm_core.schema.experiment import Experiment, PresetParams, SolverParams

_BOUNDS = ("likelihood", "path_weights")  # evaluations that need densities of DDPM's steps


def undefined_methods(experiment: Experiment) -> Iterator[str]:
    """Yield a line for each method that its sampler, or the bound, has no definition of."""
    methods = covariance.build_all(experiment.methods)
    for label, sampler in experiment.sample.samplers.items():
        by_kernel = {recipe.kind: nfe for nfe, recipe in reversed(recipes_of(sampler).items())}
        for kind, nfe in by_kernel.items():
            at = f" (nfe = {nfe})" if isinstance(sampler, PresetParams) else ""
            suited = [name for name, method in methods.items() if method.defined_for(kind)]
            for method in [method for method in sampler.methods if method not in suited]:
                only = ", ".join(sorted(methods[method].kernels or ())) or "solvers"
                yield (
                    f"sample.samplers.{label}{at}.methods: {method!r} is defined for {only} only; "
                    f"for {kind} use {', '.join(map(repr, suited)) or 'another sampler'}"
                )
    bounds = {f"evaluate.{name}": experiment.evaluate.get(name) for name in _BOUNDS}
    bounds["train.timesteps"] = experiment.train.timesteps
    for where, block in bounds.items():
        for label in getattr(block, "methods", ()):
            if not methods[label].defined_for("ddpm"):
                yield f"{where}.methods: {label!r} is not defined for ddpm; leave it out"
            elif not methods[label].has_density:
                yield f"{where}.methods: {label!r} has no density, and so no bound; leave it out"


def check_solvers(experiment: Experiment) -> None:
    """Raise an error that names every scheduler, option or nfe that diffusers refuses.

    It takes seconds, so `compose` does not; the start of a run does.
    """
    problems: dict[str, None] = {}
    for label, sampler in experiment.sample.samplers.items():
        if isinstance(sampler, SolverParams):
            from ocm_core.sampling.diffusers_solver import of_experiment  # imports diffusers

            for nfe in sampler.nfe:
                try:
                    of_experiment(experiment, sampler, nfe, 1.0).check(experiment.shape)
                except OcmError as error:
                    problems[f"{experiment.name}: sample.samplers.{label}.{error}"] = None
    if problems:
        raise OcmError("\n".join(problems))
