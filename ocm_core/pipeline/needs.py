"""What an experiment's parameters ask of the graph: which methods, which tasks before which.

The entries of `table.py` are written in these words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ocm_core.cells import cells_of, parts
from ocm_core.schema.experiment import Experiment


def with_heads(experiment: Experiment, part: str) -> list[str]:
    return [label for label, method in experiment.methods.items() if method.needs == "head"]


def sampled_methods(experiment: Experiment, part: str) -> list[str]:
    return sorted({cell.method for cell in cells_of(experiment, part)})


def every_method(experiment: Experiment, part: str) -> list[str]:
    return list(experiment.methods)


def ddpm_methods(experiment: Experiment, part: str) -> list[str]:
    """The methods that DDPM samplers use."""
    chains = (s for s in experiment.sample.samplers.values() if s.kind == "ddpm")
    return list(dict.fromkeys(label for chain in chains for label in chain.methods))


def likelihood_methods(experiment: Experiment, part: str) -> list[str]:
    settings = experiment.evaluate.likelihood
    return list(settings.methods) if settings else []


def stages_before(experiment: Experiment, labels: Iterable[str]) -> list[str]:
    """The stages that these methods need before they can be used."""
    chosen = [experiment.methods[label] for label in labels]
    headed = [method for method in chosen if method.needs == "head"]
    moments = any(method.needs == "moments" for method in chosen)
    moments |= any(experiment.head.form(method).baseline == "moments" for method in headed)
    return [*["moments"] * moments, *["heads"] * bool(headed)]


def per_score(stage: str) -> Callable[[Experiment], list[str]]:
    def parts_of(experiment: Experiment) -> list[str]:
        needed = stage in stages_before(experiment, experiment.methods)
        return list(experiment.network.scores) if needed else []

    return parts_of


def encode_tasks(experiment: Experiment, part: str = "all") -> list[str]:
    return [f"encode/{part}" for part in encode_parts(experiment)]


def encode_parts(experiment: Experiment) -> list[str]:
    jobs = experiment.encode.jobs
    return ["all"] if jobs == 1 else [f"{job + 1}of{jobs}" for job in range(jobs)]


def score_task(score: str) -> str:
    return "fetch_score/all" if score == "published" else f"score/{score}"


def model_tasks(experiment: Experiment, score: str, labels: Iterable[str]) -> list[str]:
    """The score network and what these methods need of it."""
    return [score_task(score), *(f"{stage}/{score}" for stage in stages_before(experiment, labels))]


def all_model_tasks(experiment: Experiment, labels: Iterable[str]) -> list[str]:
    wanted = list(labels)
    return [name for s in experiment.network.scores for name in model_tasks(experiment, s, wanted)]


def head_inputs(experiment: Experiment, part: str) -> list[str]:
    before = stages_before(experiment, with_heads(experiment, part))
    moments = [f"moments/{part}"] if "moments" in before else []
    return [*encode_tasks(experiment), score_task(part), *moments]


def sample_inputs(experiment: Experiment, part: str) -> list[str]:
    scores = dict.fromkeys(cell.score for cell in cells_of(experiment, part))
    labels = sampled_methods(experiment, part)
    return [name for score in scores for name in model_tasks(experiment, score, labels)]


def sample_tasks(experiment: Experiment) -> list[str]:
    return [f"sample/{part}" for part in parts(experiment)]


def feature_space(experiment: Experiment) -> str | None:
    features = experiment.evaluate.features
    return features.space if features else None


def published_reference(experiment: Experiment) -> bool:
    features = experiment.evaluate.features
    return features is not None and features.reference is not None


def feature_modules(experiment: Experiment, part: str) -> list[str]:
    space = feature_space(experiment)
    return [f"ocm_core.features.{space}"] if space else []


def reference_modules(experiment: Experiment, part: str) -> list[str]:
    published = ["ocm_core.features.published_reference"]
    return feature_modules(experiment, part) + published * published_reference(experiment)


def page_module(experiment: Experiment, part: str) -> list[str]:
    kind = "toy" if experiment.data.kind == "mixture" else "image"
    return [f"ocm_core.stages._{kind}_page"]


def latent_module(experiment: Experiment, part: str) -> list[str]:
    return ["ocm_core.artifacts.autoencoder"] if experiment.encode.latent else []


def has_latents(experiment: Experiment) -> bool:
    return experiment.encode.latent is not None


def vae_origin(experiment: Experiment) -> str | None:
    """Of the autoencoder, where there is one."""
    return experiment.encode.latent.vae.origin if experiment.encode.latent else None


def has_generated_score(experiment: Experiment) -> bool:
    checkpoint = experiment.network.checkpoint
    return checkpoint is not None and checkpoint.origin == "generated"
