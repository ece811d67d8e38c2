"""Combinations of parameters that make no sense; evaluate stages have a `check` of their own."""

from collections.abc import Collection, Iterator

from ocm_core.errors import unknown
from ocm_core.sampling.presets import PRESETS
from ocm_core.schema.block import MOST_CELLS
from ocm_core.schema.experiment import (
    KERNEL_OF_ORDER,
    Experiment,
    ImageNetworkParams,
    PresetParams,
    RecipeParams,
    SolverParams,
)
from ocm_core.schema.timesteps import GITS, TimestepsParams


def problems(experiment: Experiment) -> Iterator[str]:
    """Yield a line for each problem; it begins with the key."""
    for check in (_cells, _samplers, _training, _selection, _step_costs, _features, _path, _model):
        yield from check(experiment)


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
    """Check timesteps against the schedule, the nfe and `train.timesteps`."""
    last, costs = experiment.schedule.steps, experiment.train.timesteps
    if rule.kind == "power" and (rule.first or 0) >= last:
        yield f"{where}.first: {rule.first}; expected a timestep below schedule.steps = {last}"
    if rule.kind == "listed":
        for values in rule.values:
            if values != sorted({*values}) or values[-1] > last:
                yield f"{where}.values: {values}; expected ascending, up to schedule.steps = {last}"
        for length in sorted({*nfe} - {len(values) for values in rule.values}):
            yield f"{where}.values: none of the lists has {length} timesteps; add one"
    if rule.kind == "optimal":
        if costs is None:
            yield f"{where}: 'optimal' needs train.timesteps, which is null; give its settings"
            return
        if rule.of == GITS and costs.trajectories is None:
            yield f"{where}: 'gits' needs train.timesteps.trajectories, which is null"
        if rule.of == GITS and rule.decoder_variance:
            yield f"{where}.decoder_variance: timesteps of 'gits' have no decoder; use null"
        for method in [rule.of] if rule.of else methods:
            if method not in [*costs.methods, GITS]:
                yield f"{where}: train.timesteps.methods: {unknown(method, costs.methods)}"


def _cells(experiment: Experiment) -> Iterator[str]:
    """Each cell may be a job of its own: counted before any is made."""
    sample = experiment.sample
    grids = [(len(s.methods), grid) for s in sample.samplers.values() for grid in s.grids]
    cells = sum(methods * len(grid.nfe) * len(grid.guidance) for methods, grid in grids)
    cells *= len(sample.seeds) * len(experiment.network.scores)
    if cells > MOST_CELLS:
        yield f"sample: {cells} combinations of its lists; expected at most {MOST_CELLS}"


def _samplers(experiment: Experiment) -> Iterator[str]:
    if experiment.sample.guided and not experiment.network.conditional:
        yield "sample.samplers: guidance needs a network with class labels; use guidance: [1.0]"
    last, mixed = experiment.schedule.steps, experiment.sample.guidance
    partly = mixed.guided_channels and mixed.covariance == "guided" and experiment.sample.guided
    for label, sampler in experiment.sample.samplers.items():
        where = f"sample.samplers.{label}"
        if isinstance(sampler, SolverParams):
            if "none" not in experiment.methods:
                yield f"{where}: a solver has no covariance; add the method `none:` to `methods`"
            continue
        yield from unknown_methods(experiment, f"{where}.methods", sampler.methods)
        for method in sampler.methods if partly else ():
            if (known := experiment.methods.get(method)) and known.spectrum and not known.basis:
                wrong = f"'{method}' is by coefficient, and guidance by channel does not mix those"
                yield f"{where}.methods: {wrong}; use sample.guidance.channels: all"
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
            order, kind = recipe.order, recipe.kind
            if (only := KERNEL_OF_ORDER.get(str(order), kind)) != kind:
                yield f"{place}.order: {order!r} is for {only}; for {kind} use 1, 2 or 3"
            for method in sampler.methods if order == "matched" else ():
                if (known := experiment.methods.get(method)) and not known.spectrum:
                    wrong = f"{method!r} has no spectrum, which order 'matched' needs"
                    yield f"{place}.methods: {wrong}; use {method}+dct"
            if recipe.clip_final_sigma and experiment.levels is None:
                wrong = "in grey levels, which points and latents have none of; use null"
                yield f"{place}.clip_final_sigma: {wrong}"


def _training(experiment: Experiment) -> Iterator[str]:
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
    if GITS in settings.methods:
        yield f"{where}.methods: {GITS!r} names timesteps; give the method another label"
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
        where = f"features.reference: {features.reference!r} has statistics of Inception's features"
        yield f"{where}, and features.space is {features.space!r}; use 'inception' or null"
    if len({*experiment.spaces}) < len(experiment.spaces):
        yield f"features.extra_spaces: {features.extra_spaces} has a space twice, or `space` again"
    if "classifier" in experiment.spaces and not experiment.data.classes:
        where = "features.space: 'classifier' is trained on labels, and "
        yield f"{where}data.kind = {experiment.data.kind!r} has none; use 'efficientnet_lite0'"


def _path(experiment: Experiment) -> Iterator[str]:
    """The predictions of flow matching and of EDM are those of their schedules."""
    network, schedule = experiment.network, experiment.schedule
    if not isinstance(network, ImageNetworkParams):
        if network.family == "pairs" and experiment.shape != (6,):
            yield "network.family: 'pairs' is for data.kind: double_wells; use 'mlp'"
        return
    paths = {"flow_prediction": "flow", "edm": "edm"}
    for prediction, kind in paths.items():
        if (network.prediction == prediction) != (schedule.kind == kind):
            found = f"{network.prediction!r}, and schedule.kind is {schedule.kind!r}"
            yield f"network.prediction: {found}; {prediction!r} and {kind!r} go together"
    if schedule.kind == "edm" and abs(network.range * schedule.sigma_data - 1) > 1e-6:
        expected = f"1 / schedule.sigma_data = {1 / schedule.sigma_data:.6g}"
        yield f"network.range: {network.range}; expected {expected}"


def _model(experiment: Experiment) -> Iterator[str]:
    data, network = experiment.data, experiment.network
    if network.family != "diffusers":
        return
    text, model, null = network.takes_text, f"the model in {network.path}", network.null_class
    if network.shape not in (None, experiment.shape):
        found = f"data: items of shape {experiment.shape}, and {model} takes {network.shape}"
        yield f"{found}; give the data set the model's size and channels"
    if text and getattr(data, "labels", None) != "captions":
        kind = "(data.kind: folder, labels: captions, captions_csv: a file)"
        yield f"data.labels: {model} takes text; give the images captions {kind}"
    if text and experiment.encode.latent is None:
        found = f"encode.latent: null, and {model} takes latents"
        yield f"{found}; give encode.latent.vae origin: folder and its path"
    if not text and network.classes and not 1 <= data.classes <= network.classes:
        found = f"data: {data.classes} classes, and {model} takes labels of {network.classes}"
        yield f"{found}; give the images labels (data.labels) as the model was trained"
    if null is not None and null > (network.classes or 0):
        yield f"network.null_class: {null}; the model has {network.classes} classes"
    if experiment.sample.guided and null is None:
        where = "sample.samplers: guidance needs a class that stands for no label"
        yield f"{where}; name it as network.null_class, or use guidance: [1.0]"
