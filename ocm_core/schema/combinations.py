"""Combinations of parameters that make no sense, which no single key can tell."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from ocm_core.errors import unknown
from ocm_core.schema.block import MOST_CELLS
from ocm_core.schema.chains import ChainParams, ListChain, OptimalChain, PowerChain

if TYPE_CHECKING:
    from ocm_core.schema.experiment import Experiment


def impossible(experiment: Experiment) -> Iterator[str]:
    """What no single key can tell: one line per problem, beginning with the key."""
    yield from _grid(experiment)
    yield from _samplers(experiment)
    yield from _training(experiment)
    yield from _selection(experiment)
    yield from _chain_costs(experiment)
    yield from _likelihood(experiment)
    yield from _features(experiment)
    yield from _jackknife(experiment)
    if experiment.evaluate.loss and experiment.data.kind == "mixture":
        yield "evaluate.loss: for pages of images, and a mixture's has no place for it; use null"
    yield from _model(experiment)


def _model(experiment: Experiment) -> Iterator[str]:
    """A model of one's own and the images must fit each other."""
    network, data = experiment.network, experiment.data
    if network.family != "diffusers":
        return
    if network.shape not in (None, experiment.shape):
        yield (
            f"data: items of shape {experiment.shape}, and the model in {network.path} takes "
            f"{network.shape}; give the data set the model's size and channels"
        )
    if network.takes_text:
        yield from _text(experiment, network.path)
    elif network.classes is not None and not 1 <= data.classes <= network.classes:
        yield (
            f"data: {data.classes} classes, and the model in {network.path} takes labels of "
            f"{network.classes}; give the images labels (data.labels) as the model was trained"
        )
    if network.null_class is not None and network.null_class > (network.classes or 0):
        yield f"network.null_class: {network.null_class}; the model has {network.classes} classes"
    if experiment.sample.guided and network.null_class is None:
        yield (
            "sample.samplers: guidance needs a class that stands for no label; name it as"
            " network.null_class, or use guidance: [1.0]"
        )


def _text(experiment: Experiment, path: str) -> Iterator[str]:
    if getattr(experiment.data, "labels", None) != "captions":
        yield (
            f"data.labels: the model in {path} takes text; give the images captions"
            " (data.kind: folder, labels: captions, captions_csv: a file)"
        )
    if experiment.encode.latent is None:
        yield (
            f"encode.latent: null, and the model in {path} takes latents; use encode: latent_folder"
        )


def _grid(experiment: Experiment) -> Iterator[str]:
    """Each cell may be a job of its own: counted before any is made."""
    sample = experiment.sample
    cells = sum(
        len(sampler.methods) * len(grid.steps) * len(grid.guidance)
        for sampler in sample.samplers.values()
        for grid in sampler.grids
    )
    cells *= len(sample.seeds) * len(experiment.network.scores)
    if cells > MOST_CELLS:
        yield (
            f"sample: {cells} combinations of score, sampler, method, steps, guidance and seed; "
            f"expected at most {MOST_CELLS}"
        )


def _features(experiment: Experiment) -> Iterator[str]:
    features = experiment.evaluate.features
    if features is None and experiment.data.levels is not None:
        yield "evaluate.features: null, but images are compared in some space; name one"
    if features and features.reference and features.space != "inception":
        yield (
            f"evaluate.features.reference: {features.reference!r} has statistics of Inception's "
            f"features, and evaluate.features.space is {features.space!r}; use 'inception' or null"
        )
    if features and len({*features.spaces}) < len(features.spaces):
        yield f"evaluate.features.beside: {features.beside} names a space twice, or `space` again"
    if features and "classifier" in features.spaces and not experiment.data.classes:
        yield (
            "evaluate.features.space: 'classifier' is trained on labels, and "
            f"data.kind = {experiment.data.kind!r} has none; use 'efficientnet_lite0'"
        )


def _jackknife(experiment: Experiment) -> Iterator[str]:
    evaluate, sample = experiment.evaluate, experiment.sample
    if evaluate.jackknife is None:
        return
    where = "evaluate.jackknife"
    if evaluate.features is None:
        yield f"{where}: errors of distances, and evaluate.features is null; use null here, too"
        return
    if len(sample.seeds) > 1:
        yield f"{where}: with {len(sample.seeds)} seeds errors come from these; use null"
    fewest = evaluate.jackknife.blocks * 2
    least = min(sample.count, evaluate.features.manifold_images or sample.count)
    if least < max(fewest, 2 * evaluate.features.neighbours + 2):
        yield (
            f"{where}.blocks: {evaluate.jackknife.blocks} blocks of {least} samples; expected at "
            "least two samples in each, and more than neighbours when one is left out"
        )


def _samplers(experiment: Experiment) -> Iterator[str]:
    if experiment.sample.guided and not experiment.network.conditional:
        yield (
            "sample.samplers: guidance needs a network with class labels, and network.family = "
            f"{experiment.network.family!r} has none; use guidance: [1.0]"
        )
    for label, sampler in experiment.sample.samplers.items():
        where = f"sample.samplers.{label}"
        if sampler.kind == "diffusers":
            if "none" not in experiment.methods:
                yield f"{where}: a solver has no covariance; add the method `none:` to `methods`"
            continue
        for method in sampler.methods:
            if method not in experiment.methods:
                yield f"{where}.methods: {unknown(method, experiment.methods)}"
        for steps in sampler.steps:
            if steps > experiment.schedule.steps:
                yield (
                    f"{where}.steps: {steps} is more than schedule.steps = "
                    f"{experiment.schedule.steps}; a chain cannot have more steps than the schedule"
                )
        if sampler.kind == "preset":
            continue  # what it stands for is checked where presets are known (`params/methods.py`)
        yield from _chain(experiment, f"{where}.chain", sampler.chain, sampler.steps)
        if isinstance(sampler.chain, OptimalChain):
            yield from _optimal(experiment, f"{where}.chain", sampler.chain, sampler.methods)
        if sampler.rederive_eps and sampler.kind == "ddpm":
            yield f"{where}.rederive_eps: a ddpm step has no noise prediction; use false"
        if sampler.last_sigma and experiment.levels is None:
            yield f"{where}.last_sigma: in grey levels, and points and latents have none; use null"


def _chain(
    experiment: Experiment, where: str, chain: ChainParams, lengths: Collection[int]
) -> Iterator[str]:
    last = experiment.schedule.steps
    if isinstance(chain, PowerChain) and (chain.first or 0) >= last:
        yield f"{where}.first: {chain.first}; expected a timestep below schedule.steps = {last}"
    if isinstance(chain, ListChain):
        for timesteps in chain.timesteps:
            if timesteps != sorted({*timesteps}) or timesteps[-1] > last:
                yield (
                    f"{where}.timesteps: {timesteps}; expected ascending timesteps up to "
                    f"schedule.steps = {last}"
                )
        for length in sorted({*lengths} - {len(timesteps) for timesteps in chain.timesteps}):
            yield f"{where}.timesteps: none of the lists has {length} timesteps; add one"


def _optimal(
    experiment: Experiment, where: str, chain: OptimalChain, methods: Collection[str]
) -> Iterator[str]:
    """Whose optimal chains are asked for must be among those that the stage `chains` finds."""
    costs = experiment.evaluate.chains
    if costs is None:
        yield f"{where}: 'optimal' needs evaluate.chains, which is null; give its settings"
        return
    for method in [chain.of] if chain.of else methods:
        if method not in costs.methods:
            yield f"{where}: evaluate.chains.methods: {unknown(method, costs.methods)}"


def _chain_costs(experiment: Experiment) -> Iterator[str]:
    settings, where = experiment.evaluate.chains, "evaluate.chains"
    if settings is None:
        return
    for label in settings.methods:
        if label not in experiment.methods:
            yield f"{where}.methods: {unknown(label, experiment.methods)}"
    yield from _chain(experiment, f"{where}.grid", settings.grid, [settings.points])
    if settings.points > experiment.schedule.steps:
        yield (
            f"{where}.points: {settings.points} is more than schedule.steps = "
            f"{experiment.schedule.steps}"
        )


def _training(experiment: Experiment) -> Iterator[str]:
    """A network that is trained here needs its settings."""
    latent, features = experiment.encode.latent, experiment.evaluate.features
    trained = {
        "score": "learned" in experiment.network.scores,
        "vae": latent is not None and latent.vae.origin == "trained",
        "classifier": features is not None and "classifier" in features.spaces,
    }
    for name, needed in trained.items():
        if needed and getattr(experiment.train, name) is None:
            yield f"train.{name}: null, but the experiment trains it; give its settings"
    for name in ("vae", "classifier"):
        settings = getattr(experiment.train, name)
        if settings and settings.precision == "bfloat16":
            yield (
                f"train.{name}.precision: {settings.precision!r} is for score networks and heads; "
                "use 'tf32' or 'float32'"
            )
    network = experiment.network
    published = network.family != "diffusers" and "published" in network.scores
    if published and network.checkpoint is None:
        yield "network.checkpoint: null, but network.scores has 'published'; name the checkpoint"


def _selection(experiment: Experiment) -> Iterator[str]:
    """What is chosen among has to be kept, and a distance needs a space."""
    train, where = experiment.train, "train.selection"
    if train.selection.kind == "last":
        return
    every, iterations = train.heads.keep_every, train.heads.iterations
    if every is None:
        yield f"{where}: chooses among kept heads, and train.heads.keep_every is null; give one"
    elif iterations % every:
        yield f"train.heads.keep_every: {every} does not divide iterations = {iterations}"
    if experiment.evaluate.features is None:
        yield f"{where}: FID is measured in evaluate.features, which is null; use kind: last"
    if (train.selection.steps or 1) > experiment.schedule.steps:
        yield f"{where}.steps: {train.selection.steps} is more than {experiment.schedule.steps}"


def _likelihood(experiment: Experiment) -> Iterator[str]:
    settings = experiment.evaluate.likelihood
    if settings is None:
        return
    where = "evaluate.likelihood"
    for label in settings.methods:
        if label not in experiment.methods:
            yield f"{where}.methods: {unknown(label, experiment.methods)}"
    for name, chain in settings.chains.items():
        yield from _chain(experiment, f"{where}.chains.{name}", chain, settings.steps)
        if isinstance(chain, OptimalChain):
            asked = [chain.of] if chain.of else []
            yield from _optimal(experiment, f"{where}.chains.{name}", chain, asked)
    for label, steps in settings.fewer.items():
        if label not in settings.methods:
            yield f"{where}.fewer: {unknown(label, settings.methods)}"
        if not set(steps) <= set(settings.steps):
            yield f"{where}.fewer.{label}: {steps}: not all of them are in {where}.steps"
