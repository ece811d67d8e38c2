"""Sampling: recipes, and `ocm sample`.

- `recipe`: what a recipe is, how it is made from parameters, and how it is drawn.
- `order`: the mean of a step from one or several predictions.
- `presets`: recipes with names, by the number of network evaluations.
- `diffusers_solver`: schedulers of diffusers as recipes.
- `request`, `from_experiment`, `from_folder`: samples on request.
"""

from __future__ import annotations

from importlib import import_module

from ocm_core.schema.experiment import PresetParams, RecipeParams, Sampler, SolverParams


def modules_of(sampler: Sampler) -> list[str]:
    """Return the modules that a sampler's parameters choose; this imports no torch."""
    if isinstance(sampler, SolverParams):
        return [f"{__name__}.diffusers_solver"]
    recipes: list[RecipeParams] = []
    if isinstance(sampler, PresetParams):
        presets = import_module(f"{__name__}.presets").PRESETS
        recipes += (presets[sampler.name].recipe(nfe) for nfe in sampler.nfe)
    else:
        recipes.append(sampler)
    kernels = {f"ocm_core.diffusion.kernels.{recipe.kind}" for recipe in recipes}
    return sorted(kernels | ({f"{__name__}.presets"} if sampler not in recipes else set()))
