"""Sampling: recipes (`recipe`, `order`, `presets`, `diffusers_solver`), and `ocm sample`."""

from importlib import import_module

from ocm_core.schema.experiment import PresetParams, RecipeParams, Sampler, SolverParams


def recipes_of(sampler: Sampler) -> dict[int, RecipeParams]:
    """Return the recipe of a sampler by nfe, none of a solver; presets are imported if used."""
    if isinstance(sampler, SolverParams):
        return {}
    if not isinstance(sampler, PresetParams):
        return dict.fromkeys(sampler.nfe, sampler)
    preset = import_module(f"{__name__}.presets").PRESETS[sampler.name]
    return {nfe: preset.recipe(nfe) for nfe in sampler.nfe}


def modules_of(sampler: Sampler) -> list[str]:
    """Return the modules that a sampler's parameters choose; this imports no torch."""
    if isinstance(sampler, SolverParams):
        return [f"{__name__}.diffusers_solver"]
    kernels = {f"ocm_core.diffusion.kernels.{r.kind}" for r in recipes_of(sampler).values()}
    presets = [f"{__name__}.presets"] if isinstance(sampler, PresetParams) else []
    return [*sorted(kernels), *presets]
