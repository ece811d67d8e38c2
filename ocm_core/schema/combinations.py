"""Combinations of parameters that make no sense, which no single key can tell.

What concerns one evaluate stage is in that stage's own `check`.
"""

from collections.abc import Collection, Iterator

from ocm_core.errors import unknown
from ocm_core.sampling.presets import PRESETS
from ocm_core.schema.block import MOST_CELLS
from ocm_core.schema.experiment import (
    DiffusersNetworkParams,
    Experiment,
    PresetParams,
    RecipeParams,
    SolverParams,
)
from ocm_core.schema.timesteps import (
    ListedTimesteps,
    OptimalTimesteps,
    PowerTimesteps,
    TimestepsParams,
)


def problems(experiment: Experiment) -> Iterator[str]:
    """Yield a line for each problem; it begins with the key."""
    for check in (_cells, _samplers, _training, _selection, _step_costs, _features):
        yield from check(experiment)
    if isinstance(experiment.network, DiffusersNetworkParams):
        yield from _model(experiment, experiment.network)


def unknown_methods(experiment: Experiment, where: str, methods: Collection[str]) -> Iterator[str]:
    """Yield a line for each method that the experiment does not have."""
    for label in methods:
        if label not in experiment.methods:
            yield f"{where}: {unknown(label, experiment.methods)}"


def check_timesteps(
    experiment: Experiment,
    where: str,
    rule: TimestepsParams,
    nfe: Collection[int],
    methods: Collection[str] = (),
) -> Iterator[str]:
    """Check timesteps against the schedule, the lengths that are asked for, and `train.timesteps`.

    Optimal ones are those of `methods`, or of the one that the rule names.
    """
    last, costs = experiment.schedule.steps, experiment.train.timesteps
    if isinstance(rule, PowerTimesteps) and (rule.first or 0) >= last:
        yield f"{where}.first: {rule.first}; expected a timestep below schedule.steps = {last}"
    if isinstance(rule, ListedTimesteps):
        for values in rule.values:
            if values != sorted({*values}) or values[-1] > last:
                yield (
                    f"{where}.values: {values}; expected ascending timesteps up to "
                    f"schedule.steps = {last}"
                )
        for length in sorted({*nfe} - {len(values) for values in rule.values}):
            yield f"{where}.values: none of the lists has {length} timesteps; add one"
    if isinstance(rule, OptimalTimesteps):
        if costs is None:
            yield f"{where}: 'optimal' needs train.timesteps, which is null; give its settings"
            return
        for method in [rule.of] if rule.of else methods:
            if method not in costs.methods:
                yield f"{where}: train.timesteps.methods: {unknown(method, costs.methods)}"


def _cells(experiment: Experiment) -> Iterator[str]:
    """Each cell may be a job of its own: counted before any is made."""
    sample = experiment.sample
    cells = sum(
        len(sampler.methods) * len(grid.nfe) * len(grid.guidance)
        for sampler in sample.samplers.values()
        for grid in sampler.grids
    )
    cells *= len(sample.seeds) * len(experiment.network.scores)
    if cells > MOST_CELLS:
        yield (
            f"sample: {cells} combinations of score, sampler, method, nfe, guidance and seed; "
            f"expected at most {MOST_CELLS}"
        )


def _samplers(experiment: Experiment) -> Iterator[str]:
    if experiment.sample.guided and not experiment.network.conditional:
        yield (
            "sample.samplers: guidance needs a network with class labels, and network.family = "
            f"{experiment.network.family!r} has none; use guidance: [1.0]"
        )
    last = experiment.schedule.steps
    for label, sampler in experiment.sample.samplers.items():
        where = f"sample.samplers.{label}"
        if isinstance(sampler, SolverParams):
            if "none" not in experiment.methods:
                yield f"{where}: a solver has no covariance; add the method `none:` to `methods`"
            continue
        yield from unknown_methods(experiment, f"{where}.methods", sampler.methods)
        for nfe in sampler.nfe:
            if nfe > last:
                yield f"{where}.grids: nfe = {nfe} is more than schedule.steps = {last}"
        recipes: dict[str, RecipeParams] = (
            {f"{where} (nfe = {nfe})": PRESETS[sampler.name].recipe(nfe) for nfe in sampler.nfe}
            if isinstance(sampler, PresetParams)
            else {where: sampler}
        )
        for place, recipe in recipes.items():
            rule, given = recipe.timesteps, (sampler.nfe, sampler.methods)
            yield from check_timesteps(experiment, f"{place}.timesteps", rule, *given)
            if recipe.clip_final_sigma and experiment.levels is None:
                yield (
                    f"{place}.clip_final_sigma: in grey levels, which points and latents have none"
                    " of; use null"
                )


def _training(experiment: Experiment) -> Iterator[str]:
    """A network that is trained here needs its settings."""
    network, train = experiment.network, experiment.train
    trained = {
        "score": "trained" in network.scores,
        "vae": experiment.encode.vae_origin == "trained",
        "classifier": "classifier" in experiment.spaces,
    }
    for name, needed in trained.items():
        if needed and getattr(train, name) is None:
            yield f"train.{name}: null, but the experiment trains it; give its settings"
    pretrained = network.family != "diffusers" and "pretrained" in network.scores
    if pretrained and network.checkpoint is None:
        yield "network.checkpoint: null, but network.scores has 'pretrained'; name the checkpoint"


def _selection(experiment: Experiment) -> Iterator[str]:
    """Heads that are chosen among have to be kept, and a distance needs a space."""
    train, where = experiment.train, "train.selection"
    if train.selection.kind == "last":
        return
    every, iterations = train.heads.keep_every, train.heads.iterations
    if every is None:
        yield f"{where}: chooses among kept heads, and train.heads.keep_every is null; give one"
    elif iterations % every:
        yield f"train.heads.keep_every: {every} does not divide iterations = {iterations}"
    if experiment.features is None:
        yield f"{where}: distances are measured in features, which is null; use kind: last"
    nfe, last = train.selection.nfe or experiment.schedule.steps, experiment.schedule.steps
    if nfe > last:
        yield f"{where}.nfe: {nfe} is more than schedule.steps = {last}"
    if nfe == 1:
        yield f"{where}.nfe: in one step all heads give the same samples; use 2 or more"


def _step_costs(experiment: Experiment) -> Iterator[str]:
    settings, where, last = experiment.train.timesteps, "train.timesteps", experiment.schedule.steps
    if settings is None:
        return
    yield from unknown_methods(experiment, f"{where}.methods", settings.methods)
    yield from check_timesteps(experiment, f"{where}.grid", settings.grid, [settings.points])
    if settings.points > last:
        yield f"{where}.points: {settings.points} is more than schedule.steps = {last}"


def _features(experiment: Experiment) -> Iterator[str]:
    features = experiment.features
    if features is None:
        if experiment.data.levels is not None:
            yield "features: null, but images are compared in some space; name one"
        return
    if features.reference and features.space != "inception":
        yield (
            f"features.reference: {features.reference!r} has statistics of Inception's features, "
            f"and features.space is {features.space!r}; use 'inception' or null"
        )
    if len({*features.spaces}) < len(features.spaces):
        yield f"features.extra_spaces: {features.extra_spaces} has a space twice, or `space` again"
    if "classifier" in features.spaces and not experiment.data.classes:
        yield (
            "features.space: 'classifier' is trained on labels, and "
            f"data.kind = {experiment.data.kind!r} has none; use 'efficientnet_lite0'"
        )


def _model(experiment: Experiment, network: DiffusersNetworkParams) -> Iterator[str]:
    """A model of one's own and the images must fit each other."""
    data, path = experiment.data, network.path
    if network.shape not in (None, experiment.shape):
        yield (
            f"data: items of shape {experiment.shape}, and the model in {path} takes "
            f"{network.shape}; give the data set the model's size and channels"
        )
    if network.takes_text and getattr(data, "labels", None) != "captions":
        yield (
            f"data.labels: the model in {path} takes text; give the images captions"
            " (data.kind: folder, labels: captions, captions_csv: a file)"
        )
    if network.takes_text and experiment.encode.latent is None:
        yield (
            f"encode.latent: null, and the model in {path} takes latents; give encode.latent.vae"
            " origin: folder and its path"
        )
    known = network.classes if not network.takes_text else None
    if known is not None and not 1 <= data.classes <= known:
        yield (
            f"data: {data.classes} classes, and the model in {path} takes labels of "
            f"{known}; give the images labels (data.labels) as the model was trained"
        )
    if network.null_class is not None and network.null_class > (network.classes or 0):
        yield f"network.null_class: {network.null_class}; the model has {network.classes} classes"
    if experiment.sample.guided and network.null_class is None:
        yield (
            "sample.samplers: guidance needs a class that stands for no label; name it as"
            " network.null_class, or use guidance: [1.0]"
        )
