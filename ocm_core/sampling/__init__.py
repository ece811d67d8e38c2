"""Sampling: recipes (`recipe`, `order`, `presets`, `diffusers_solver`), and `ocm sample`."""

from importlib import import_module

from ocm_core.schema.experiment import PresetParams, Sampler, SolverParams

_KERNELS = "ocm_core.diffusion.kernels"


def modules_of(sampler: Sampler) -> list[str]:
    """Return the modules that a sampler's parameters choose; this imports no torch."""
    if isinstance(sampler, SolverParams):
        return [f"{__name__}.diffusers_solver"]
    if not isinstance(sampler, PresetParams):
        return [f"{_KERNELS}.{sampler.kind}"]
    preset = import_module(f"{__name__}.presets").PRESETS[sampler.name]
    kernels = {f"{_KERNELS}.{preset.recipe(nfe).kind}" for nfe in sampler.nfe}
    return [*sorted(kernels), f"{__name__}.presets"]
