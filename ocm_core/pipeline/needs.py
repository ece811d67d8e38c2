"""What an experiment's parameters ask of the graph: which methods, which tasks before which.

The entries of `table.py` are written in these words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ocm_core.cells import cells_of, parts
from ocm_core.samplers.presets import PRESETS
from ocm_core.schema.chains import ChainParams, OptimalChain
from ocm_core.schema.datasets import FolderData
from ocm_core.schema.experiment import Experiment, Sampler


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


def chain_methods(experiment: Experiment, part: str) -> list[str]:
    """The methods that have optimal chains."""
    settings = experiment.evaluate.chains
    return list(settings.methods) if settings else []


def chain_parts(experiment: Experiment) -> list[str]:
    return list(experiment.network.scores) if experiment.evaluate.chains else []


def chain_tasks(experiment: Experiment, chains: Iterable[ChainParams]) -> list[str]:
    """What these chains are read from, for every score: nothing unless one of them is optimal."""
    if not any(isinstance(chain, OptimalChain) for chain in chains):
        return []
    return [f"chains/{score}" for score in chain_parts(experiment)]


def likelihood_chains(experiment: Experiment) -> list[ChainParams]:
    settings = experiment.evaluate.likelihood
    return list(settings.chains.values()) if settings else []


def stages_before(experiment: Experiment, labels: Iterable[str]) -> list[str]:
    """The stages that these methods need before they can be used."""
    chosen = [experiment.methods[label] for label in labels]
    headed = [method for method in chosen if method.needs == "head"]
    moments = any(method.needs == "moments" for method in chosen)
    moments |= any(experiment.head.form(method).baseline == "moments" for method in headed)
    return [*["moments"] * moments, *["heads"] * bool(headed)]


def selects(experiment: Experiment) -> bool:
    """Whether the heads that are used are chosen among those that training has kept."""
    return experiment.train.selection.kind == "best_fid"


def selection_parts(experiment: Experiment) -> list[str]:
    return per_score("heads")(experiment) if selects(experiment) else []


def kept_heads(experiment: Experiment) -> list[str]:
    """What was chosen among, for the curves of its training."""
    return [f"heads/{score}" for score in selection_parts(experiment)]


def selection_inputs(experiment: Experiment, part: str) -> list[str]:
    """The score network, its kept heads, and what FID needs."""
    return [
        score_task(part),
        *prompt_tasks(experiment),
        f"heads/{part}",
        *reference_tasks(experiment)[:1],
        *("classifier/all", "fetch_features/all"),
        *("fetch_vae/all", "vae/all"),
    ]


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


def fetched_score_module(experiment: Experiment, part: str) -> list[str]:
    """A model of one's own is read by a module of its own."""
    own = experiment.network.family == "diffusers"
    return ["ocm_core.artifacts.diffusers_score"] if own else []


def network_modules(experiment: Experiment) -> list[str]:
    """What the family of a network chooses by name; the adapter of a class of diffusers."""
    network = experiment.network
    if network.family != "diffusers":
        return []
    return [f"ocm_core.networks.{network.adapter}", *prompt_module(experiment)]


def schedule_module(experiment: Experiment) -> list[str]:
    scheduler = experiment.schedule.kind == "scheduler"
    return ["ocm_core.diffusion.scheduler_betas"] if scheduler else []


def score_task(score: str) -> str:
    return "fetch_score/all" if score == "published" else f"score/{score}"


def model_tasks(experiment: Experiment, score: str, labels: Iterable[str]) -> list[str]:
    """The score network, the prompts that it reads, and what these methods need of it."""
    before = stages_before(experiment, labels)
    if selects(experiment):
        before = ["selection" if stage == "heads" else stage for stage in before]
    return [
        score_task(score),
        *prompt_tasks(experiment),
        *(f"{stage}/{score}" for stage in before),
    ]


def prompt_tasks(experiment: Experiment) -> list[str]:
    """Where the embeddings of captions are, if the network takes text."""
    return encode_tasks(experiment) if has_prompts(experiment) else []


def all_model_tasks(experiment: Experiment, labels: Iterable[str]) -> list[str]:
    wanted = list(labels)
    return [name for s in experiment.network.scores for name in model_tasks(experiment, s, wanted)]


def head_inputs(experiment: Experiment, part: str) -> list[str]:
    before = stages_before(experiment, with_heads(experiment, part))
    moments = [f"moments/{part}"] if "moments" in before else []
    return [*encode_tasks(experiment), score_task(part), *moments]


def sample_inputs(experiment: Experiment, part: str) -> list[str]:
    cells, samplers = cells_of(experiment, part), experiment.sample.samplers
    scores = dict.fromkeys(cell.score for cell in cells)
    labels = sampled_methods(experiment, part)
    chains = chain_tasks(experiment, sampler_chains(samplers[cell.sampler] for cell in cells))
    return [
        *(name for score in scores for name in model_tasks(experiment, score, labels)),
        *(name for name in chains if name.removeprefix("chains/") in scores),
    ]


def sampler_chains(samplers: Iterable[Sampler]) -> Iterator[ChainParams]:
    for sampler in samplers:
        if sampler.kind == "preset":
            yield from (walk.chain for walk in PRESETS[sampler.name].walks.values())
        elif sampler.kind != "diffusers":
            yield sampler.chain


def sampler_modules(experiment: Experiment, part: str) -> list[str]:
    """Beyond what every chain needs: the adapter of diffusers' schedulers, and the presets."""
    samplers = experiment.sample.samplers
    kinds = {samplers[cell.sampler].kind for cell in cells_of(experiment, part)}
    modules = {"diffusers": "diffusers_solver", "preset": "presets"}
    return [f"ocm_core.samplers.{name}" for kind, name in modules.items() if kind in kinds]


def sample_tasks(experiment: Experiment) -> list[str]:
    return [f"sample/{part}" for part in parts(experiment)]


def feature_spaces(experiment: Experiment) -> list[str]:
    features = experiment.evaluate.features
    return [*features.spaces] if features else []


def reference_tasks(experiment: Experiment) -> list[str]:
    """The page's space first."""
    return [f"reference/{space}" for space in feature_spaces(experiment)]


def published_reference(experiment: Experiment) -> bool:
    features = experiment.evaluate.features
    return features is not None and features.reference is not None


def feature_modules(experiment: Experiment, part: str) -> list[str]:
    return [f"ocm_core.features.{space}" for space in feature_spaces(experiment)]


def page_space_module(experiment: Experiment, part: str) -> list[str]:
    """Of the space that heads are selected in."""
    return feature_modules(experiment, part)[:1]


def reference_modules(experiment: Experiment, part: str) -> list[str]:
    published = ["ocm_core.features.published_reference"]
    return [f"ocm_core.features.{part}", *published * published_reference(experiment)]


def page_module(experiment: Experiment, part: str) -> list[str]:
    kind = "toy" if experiment.data.kind == "mixture" else "image"
    return [f"ocm_core.stages._{kind}_page"]


def latent_module(experiment: Experiment, part: str) -> list[str]:
    return ["ocm_core.artifacts.autoencoder"] if experiment.encode.latent else []


def encode_modules(experiment: Experiment, part: str) -> list[str]:
    return [*latent_module(experiment, part), *prompt_module(experiment)]


def prompt_module(experiment: Experiment) -> list[str]:
    return ["ocm_core.artifacts.prompts"] if has_prompts(experiment) else []


def has_prompts(experiment: Experiment) -> bool:
    latent = experiment.encode.latent
    return latent is not None and latent.text is not None


def has_latents(experiment: Experiment) -> bool:
    return experiment.encode.latent is not None


def own_images(experiment: Experiment) -> list[str]:
    """The user's images, and what is said of them."""
    data = experiment.data
    if not isinstance(data, FolderData):
        return []
    return [file for file in (data.path, data.labels_csv, data.captions_csv) if file]


def vae_origin(experiment: Experiment) -> str | None:
    """Of the autoencoder, where there is one."""
    return experiment.encode.latent.vae.origin if experiment.encode.latent else None


def has_generated_score(experiment: Experiment) -> bool:
    checkpoint = experiment.network.checkpoint
    return checkpoint is not None and checkpoint.origin == "generated"
