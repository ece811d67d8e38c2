"""Samples by the networks of an experiment; its own cells are as its stage `sample` draws them."""

from dataclasses import replace
from typing import Any

import torch

from ocm_core.cells import cells
from ocm_core.diffusion.denoiser import Denoiser, executed
from ocm_core.errors import OcmError, unknown
from ocm_core.latents.prompts import open_encoder
from ocm_core.networks.converted import unconverted
from ocm_core.networks.diffusers import Prompts
from ocm_core.networks.of_experiment import text_of
from ocm_core.params.compose import validate
from ocm_core.pipeline.graph import Graph, graph_of
from ocm_core.pipeline.job import Inputs, open_inputs
from ocm_core.sampling.checks import check_solvers, undefined_methods
from ocm_core.sampling.presets import altered, preset_named
from ocm_core.sampling.recipe import Recipe, of_cell
from ocm_core.sampling.request import SampleGenerator, SampleRequest
from ocm_core.sampling.start import DataGaussian, warn_of_prior
from ocm_core.schema import combinations
from ocm_core.schema.experiment import Experiment, PresetParams, RecipeParams, SolverParams
from ocm_core.stages.encode import encode_tasks, open_split
from ocm_core.stages.fetch_vae import FetchedVae, decoder
from ocm_core.stages.heads import load_denoiser
from ocm_core.stages.sample import Samples, store_name
from ocm_core.stages.timesteps import optimal_timesteps
from ocm_core.stages.vae import TrainedVae

DATA = 5000  # training items whose Gaussian samples may begin with


def from_experiment(name: str, request: SampleRequest) -> SampleGenerator:
    """Return a generator by the artifacts of an experiment, which must be up to date."""
    inputs = prepared(name, request)
    one = inputs.experiment
    (cell,) = cells(one)
    execution = one.sample.execution.model_dump()
    denoiser = executed(load_denoiser(inputs, cell.score, [cell.method]), **execution)
    if request.prompt is not None:
        request = replace(request, label=_prompted(inputs, denoiser, request))
    sampler = one.sample.samplers[cell.sampler].model_dump(exclude={"grids", "methods"})
    recipe = of_cell(one, cell, optimal_timesteps(inputs, cell.score))
    if isinstance(recipe, Recipe) and request.from_data:
        stored = open_split(inputs, "train")
        x0 = torch.from_numpy(stored.read(range(min(len(stored), DATA))))
        recipe = replace(recipe, start=DataGaussian.of(x0))
    elif isinstance(recipe, Recipe):
        warn_of_prior(denoiser.schedule, recipe.timesteps)
    elif request.from_data:
        raise OcmError(f"--from-data: {cell.sampler} is a solver of diffusers")
    chosen = {key: getattr(cell, key) for key in ("score", "method", "nfe", "guidance", "seed")}
    digests = dict[str, str]()
    for task in inputs.folders:
        digests |= inputs.contents(task, lambda file: file.endswith((".safetensors", ".npz")))
    return SampleGenerator(
        name=f"{one.name}-{store_name(cell)}{request.suffix}",
        request=request,
        recipe=recipe,
        denoiser=denoiser,
        device=inputs.device,
        classes=one.data.classes,
        batch_size=one.sample.batch_size,
        shape=one.shape,
        image_shape=None if one.data.levels is None else one.data.shape,
        levels=one.data.levels or 0,
        to_images=decoder(inputs),
        attributes={
            "experiment": one.name,
            **chosen,
            "sampler": {"name": cell.sampler, **sampler},
            "label": request.label,
            "prompt": request.prompt,
            "from_data": request.from_data,
            "digests": digests,
        },
    )


def prepared(name: str, request: SampleRequest) -> Inputs:
    """Open what the request needs of an experiment, whose only cell the request becomes."""
    graph = graph_of(name)
    one = _with_one_cell(graph.experiment, request)
    needed = Graph(one)
    decoders = [task for task in (TrainedVae.task(), FetchedVae.task()) if task in needed.tasks]
    torch.set_num_threads(request.threads)
    tasks = [*needed.inputs[Samples.task()], *decoders]
    tasks += encode_tasks(one) if request.from_data else []
    return replace(open_inputs(graph, tasks, request.device), experiment=one)


def _with_one_cell(experiment: Experiment, request: SampleRequest) -> Experiment:
    """Return the experiment with this request as all that it samples, checked as usual."""
    scores = experiment.network.scores
    score = request.score or ("trained" if "trained" in scores else scores[0])
    if score not in scores:
        raise OcmError(f"--score of {experiment.name}: {unknown(score, scores)}")
    label, sampler = _chosen_sampler(experiment, request)
    if isinstance(sampler, RecipeParams):
        sampler = altered(sampler, order=request.order, timesteps=request.timesteps)
    elif request.order or request.timesteps:
        raise OcmError(f"--order and --timesteps: {label} is a solver of diffusers and has its own")
    method = _method(experiment, request, sampler)
    grids = [{"nfe": [request.steps], "guidance": [request.guidance]}]
    chosen = sampler.model_dump() | {"methods": [method], "grids": grids}
    tree: dict[str, Any] = experiment.model_dump()
    tree["network"]["scores"] = [score]
    tree["sample"] |= {"samplers": {label: chosen}, "seeds": [request.seed], "split": []}
    one = validate(tree, f"ocm sample {experiment.name}")
    if problems := [*combinations.problems(one), *undefined_methods(one)]:
        raise OcmError("\n".join(f"ocm sample {experiment.name}: {line}" for line in problems))
    check_solvers(one)
    return one


def _chosen_sampler(
    experiment: Experiment, request: SampleRequest
) -> tuple[str, RecipeParams | SolverParams]:
    """Return the preset or the sampler that is asked for, or else the first with the method."""
    if request.preset is not None:
        if request.sampler is not None:
            raise OcmError("--sampler and --preset each say how to sample; give one of them")
        return request.preset, preset_named(request.preset).recipe(request.steps)
    samplers = experiment.sample.samplers
    own = (label for label, sampler in samplers.items() if request.method in sampler.methods)
    label = request.sampler or next(own, next(iter(samplers)))
    if label not in samplers:
        raise OcmError(f"--sampler of {experiment.name}: {unknown(label, samplers)}")
    sampler = samplers[label]
    if isinstance(sampler, PresetParams):
        return label, preset_named(sampler.name).recipe(request.steps)
    return label, sampler


def _method(
    experiment: Experiment, request: SampleRequest, sampler: RecipeParams | SolverParams
) -> str:
    """Return the method that is asked for, or that of the preset, under the experiment's name."""
    labels, wanted = experiment.methods, request.method
    if wanted is None and isinstance(sampler, SolverParams):
        return "none"
    if wanted is None:
        if request.preset is None:
            raise OcmError("either --method or --preset is required")
        kind = preset_named(request.preset).method
        alike = [label for label, method in labels.items() if method.kind == kind]
        wanted = kind if kind in labels or not alike else alike[0]
    if wanted not in labels:
        raise OcmError(f"--method of {experiment.name}: {unknown(wanted, labels)}")
    return wanted


def _prompted(inputs: Inputs, denoiser: Denoiser, request: SampleRequest) -> int:
    """Let the network read a prompt instead of the experiment's captions; return its label."""
    text = text_of(inputs.experiment)
    if text is None:
        raise OcmError(f"--prompt: the network of {inputs.experiment.name} takes no text")
    if request.label is not None:
        raise OcmError("--label and --prompt: a label is the number of a caption; give one of them")
    network = unconverted(denoiser.network)
    network.prompts = Prompts(open_encoder(text, inputs.device)([request.prompt or "", ""]))
    network.null_label = denoiser.network.null_label = 1
    return 0
