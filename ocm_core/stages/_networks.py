"""Score networks of an experiment: built, loaded, saved, and the set that they are trained on."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ocm_core import networks
from ocm_core.covariance import split
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.distributed import current_rank
from ocm_core.errors import OcmError
from ocm_core.networks.of_experiment import new_denoiser, new_score, text_of
from ocm_core.pipeline.stage import Names
from ocm_core.precision import set_precision
from ocm_core.schema.experiment import OptimiserParams
from ocm_core.stages import Experiment, Inputs, Job, MadeOf, Task
from ocm_core.stages.encode import encode_tasks, open_split
from ocm_core.stages.fetch_vae import text_modules
from ocm_core.store.reader import StoredItems
from ocm_core.training.batches import Items
from ocm_core.training.loop import Objective, fit
from ocm_core.training.state import TrainingState, save_curve

MODEL_KEYS = ("data", "encode.latent", "schedule", "network")  # what it takes to build a denoiser
SCORE_FILE = "score.safetensors"
MEMORY = 8 * 2**30  # bytes of a split that is held in memory
BUFFER = 32  # chunks that are shuffled together
SAMPLE = 50_000  # items that tell the variance


def scores_of(experiment: Experiment, part: str) -> list[str]:
    """Return the score that a part is named after, else all scores of the experiment."""
    scores: list[str] = list(experiment.network.scores)
    return [part] if part in scores else scores


def family_modules(experiment: Experiment, part: str = "all") -> list[str]:
    """Return the modules of the networks that a part evaluates."""
    return score_modules(experiment, scores_of(experiment, part))


def score_modules(experiment: Experiment, scores: Iterable[str]) -> list[str]:
    """Return the modules of the networks that `scores` stand for."""
    network = experiment.network
    # the exact score is a file named after the kind of data, any other one after its family
    names = [experiment.data.kind if score == "exact" else network.family for score in scores]
    names += [network.adapter] if network.family == "diffusers" else []
    return sorted({*(f"ocm_core.networks.{name}" for name in names), *text_modules(experiment)})


def score_tasks(experiment: Experiment, score: str) -> list[Task]:
    """Return what `load_score` takes: the network, and the prompts if it takes text."""
    return [_weights(score), *(encode_tasks(experiment) if text_of(experiment) else [])]


def _weights(score: str) -> Task:
    return Task("fetch_score") if score == "pretrained" else Task("score", score)


def denoiser_tasks(
    experiment: Experiment, labels: Collection[str], scores: Iterable[str], heads: bool = True
) -> list[Task]:
    """Return what `load_denoiser` takes for these methods and scores."""
    learned = heads and any(experiment.methods[label].needs == "head" for label in labels)
    tasks = []
    for score in scores:
        tasks += score_tasks(experiment, score)
        tasks += [Task("moments", score)] if needs_moments(experiment, labels) else []
        tasks += spectrum_tasks(experiment, labels, score)
        if learned:
            selected = experiment.train.selection.kind == "best_frechet"
            tasks.append(Task("selection" if selected else "heads", score))
    return tasks


def spectrum_tasks(experiment: Experiment, labels: Iterable[str], score: str) -> list[Task]:
    """Return the spectra that these methods read."""
    bases = {experiment.methods[label].spectrum for label in labels} - {""}
    return [Task("spectrum", f"{score}-{basis}") for basis in sorted(bases)]


def made_with(
    job: Inputs,
    module: str,
    score: str,
    label: str,
    facts: Mapping[str, Any],
    heads: bool = True,
    inputs: Mapping[str, str] = MappingProxyType({}),
    modules: Iterable[str] = (),
) -> MadeOf:
    """Return what a piece depends on that a stage makes by one method, and nothing of others.

    That is what the predictions for it depend on, and `facts`, `inputs` and `modules` besides.
    """
    experiment, method = job.experiment, job.experiment.methods[label]
    latent, own = experiment.encode.latent, f"heads/{split(label)[0]}.safetensors"
    read, no_curve = dict(inputs), lambda name: not name.startswith("curve")
    for task in denoiser_tasks(experiment, [label], [score], heads):
        several = task.stage in ("heads", "selection")  # one file per method, and curves
        if task in job.folders:
            read |= job.contents(task, own.__eq__ if several else no_curve)
    code = [module, f"ocm_core.covariance.{split(method.kind)[0]}", *modules]
    return MadeOf(
        [*code, *score_modules(experiment, [score])],
        {
            "data": experiment.data.model_dump(mode="json"),
            "latent": latent and latent.model_dump(mode="json"),
            "schedule": experiment.schedule.model_dump(mode="json"),
            "network": experiment.network.model_dump(mode="json", exclude={"scores"}),
            "method": method.model_dump(mode="json"),
            "head": experiment.head.form(method).model_dump(mode="json"),
            "inputs": read,
            **facts,
        },
    )


def evaluating(
    *reads: str,
    methods: Names = lambda experiment, part: (),
    scores: Names = scores_of,
    optimal: Callable[[Experiment], bool] = lambda experiment: False,
    heads: bool = True,
    stored: bool = True,
    plugins: Names = lambda experiment, part: (),
) -> dict[str, Any]:
    """Return the fields of a `Stage` that evaluates the denoisers of `scores` with `methods`.

    It loads the moments of its methods, and their `heads`; `reads` further keys, may visit
    `optimal` timesteps, works on the `stored` data set and on a GPU, or on neither, and may load
    `plugins` beside its networks.
    """

    def takes(experiment: Experiment, part: str) -> list[Task]:
        chosen = list(scores(experiment, part))
        tasks = encode_tasks(experiment) if stored else []
        tasks += denoiser_tasks(experiment, list(methods(experiment, part)), chosen, heads)
        return tasks + [Task("timesteps", s) for s in chosen if optimal(experiment)]

    def keys(experiment: Experiment, part: str) -> list[str]:
        learned = ("head", "train.selection") if heads and methods(experiment, part) else ()
        prompts = ("encode.jobs",) if text_of(experiment) else ()
        return [*MODEL_KEYS, *learned, *prompts, *reads]

    def modules(experiment: Experiment, part: str) -> list[str]:
        return [*score_modules(experiment, scores(experiment, part)), *plugins(experiment, part)]

    return {"takes": takes, "reads": keys, "methods": methods, "plugins": modules, "gpu": stored}


def methods_with_heads(experiment: Experiment, part: str = "all") -> list[str]:
    """Return the labels of the methods that learn a head; one with a basis uses another's."""
    methods = experiment.methods.items()
    return [label for label, method in methods if method.needs == "head" and not method.basis]


def needs_moments(experiment: Experiment, labels: Iterable[str]) -> bool:
    """Whether a method uses the table of moments, by itself or as its head's baseline."""
    methods = [experiment.methods[label] for label in labels]
    heads = (experiment.head.form(method) for method in methods if method.needs == "head")
    return any(m.needs == "moments" for m in methods) or any(h.baseline == "moments" for h in heads)


def load_score(job: Inputs, score: str) -> Denoiser:
    """Load the frozen score network; on a GPU it runs in TF32."""
    set_precision()
    make = partial(new_score, job.experiment, score)
    if score == "exact":
        network = make()
    else:
        network = networks.load(make, job.folders[_weights(score)] / SCORE_FILE, job.device)
    if text_of(job.experiment):
        module = import_module("ocm_core.latents.prompts")
        network.prompts = module.prompt_table(open_split(job, "prompts"))
    return new_denoiser(job.experiment, network.to(job.device).eval().requires_grad_(False))


def open_training_set(job: Job, batch_size: int = 1) -> tuple[Items, float]:
    """Open the training split, in memory where it fits, else streamed; return its variance, too."""
    split = open_split(job, "train")
    if len(split) < batch_size:
        key = f"train.{job.task.stage}.batch_size"
        raise OcmError(
            f"{key}: {batch_size}, but there are {len(split)} items to train on; set it to at most"
            f" {len(split)} in params/experiment/{job.experiment.name}.yaml"
        )
    items = StoredItems(split, buffer=BUFFER, memory_bytes=MEMORY)
    sample = split.read(range(min(len(split), SAMPLE)))
    return items, float(sample.var(0).mean())


def train(
    job: Job,
    objective: Objective[Any],
    settings: OptimiserParams,
    description: str,
    after_each: Callable[[TrainingState], None] | None = None,
) -> TrainingState:
    """Train networks to the end, from where an interrupted run stopped, and keep their average."""
    progress = partial(job.progress, description=description)
    given = objective, settings, job.state
    state = fit(*given, device=job.device, progress=progress, after_each=after_each)
    finish_training(job.folder, state)
    return state


def finish_training(folder: Path, state: TrainingState) -> None:
    """Put the moving average in place and keep the loss curve."""
    state.use_average()
    if current_rank().is_first:
        save_curve(folder, state.curve)
