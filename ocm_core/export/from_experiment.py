"""An experiment on a model of diffusers, written as a pipeline that diffusers opens."""

from dataclasses import replace
from pathlib import Path

from ocm_core.cells import Cell, cells
from ocm_core.checkpoints.diffusers_folder import scheduler_keys
from ocm_core.diffusion import schedule as schedules
from ocm_core.errors import OcmError
from ocm_core.export.pipeline import Card, save_pipeline
from ocm_core.export.scheduler import CovarianceScheduler
from ocm_core.latents.prompts import open_encoder
from ocm_core.networks.converted import unconverted
from ocm_core.networks.diffusers import new_model
from ocm_core.networks.keys import export_published
from ocm_core.networks.of_experiment import text_of
from ocm_core.params.compose import compose
from ocm_core.pipeline.job import Inputs
from ocm_core.results.replicates import replicates
from ocm_core.results.table import Results
from ocm_core.sampling.from_experiment import prepared
from ocm_core.sampling.request import SampleRequest
from ocm_core.schema.experiment import (
    DiffusersNetworkParams,
    FormulaSchedule,
    RecipeParams,
    SamplerParams,
    SolverParams,
)
from ocm_core.schema.timesteps import ListedTimesteps, OptimalTimesteps
from ocm_core.stages.fetch_score import FetchedScore
from ocm_core.stages.fetch_vae import load_vae
from ocm_core.stages.heads import load_denoiser
from ocm_core.stages.timesteps import optimal_timesteps


def export(name: str, folder: Path, request: SampleRequest) -> Path:
    """Write the experiment's model with the requested recipe, and the heads of its method."""
    network, schedule = compose(name).network, compose(name).schedule
    known_range = network.range == 1.0 or schedule.kind == "edm"
    if not isinstance(network, DiffusersNetworkParams) or not known_range:
        expected = "expected a model of diffusers, of data in [-1, 1]"
        raise OcmError(f"{name}: network.family is {network.family!r}; {expected}")
    request, choice = chosen(name, request)
    inputs = prepared(name, request)
    experiment = inputs.experiment
    (cell,) = cells(experiment)
    if experiment.methods[cell.method].needs == "moments":
        raise OcmError(f"--method {cell.method}: its table of moments is no part of a pipeline")
    denoiser, text = load_denoiser(inputs, cell.score, [cell.method]), text_of(experiment)
    model = new_model(network.config)
    model.load_state_dict(export_published(unconverted(denoiser.network)))
    provenance = inputs.take(FetchedScore).manifest.notes.get("provenance", {})
    trained_on = f"the data set `{experiment.data.kind}` of the experiment `{name}`"
    about = (Path(network.path).name, provenance.get("licence"), trained_on)
    numbers = _numbers(experiment.name, cell)
    card = Card(experiment.report.title, *about, cell.method, cell.nfe, choice, numbers)
    vae = None if experiment.encode.latent is None else load_vae(inputs).model
    encoder = None if text is None else open_encoder(text, "cpu")
    scheduler = _scheduler(inputs, cell, network)
    return save_pipeline(folder, model.eval(), scheduler, denoiser, card, vae, encoder)


def chosen(name: str, request: SampleRequest) -> tuple[SampleRequest, str]:
    """Return the request with the best measured sampler and method, and how they were chosen."""
    if request.method or request.preset or request.sampler:
        return request, "The way to sample was asked for."
    sample, methods = compose(name).sample, compose(name).methods
    rows, steps = _measured(name), request.steps
    measure = next((m for m in ("fid", "frechet") if rows.select(measure=m)), "")
    rows = rows.select(measure=measure, nfe=steps, guidance=(None, request.guidance))
    found = {
        key: replicates(group).estimate.mean
        for key, group in rows.groups("sampler", "method").items()
        if key[0] in sample.samplers and key[1] in methods and not methods[key[1]].products
    }
    ours = {
        key: value
        for key, value in found.items()
        if not isinstance(sample.samplers[key[0]], SolverParams)
        and methods[key[1]].needs != "moments"
    }
    if not ours:
        said = f"Nothing was measured with {steps} evaluations: `ocm` with its first sampler."
        return replace(request, method="ocm"), said
    best = min(ours, key=lambda key: ours[key])
    said = f"`{best[0]}` with `{best[1]}` had the least {measure} with {steps} evaluations"
    said += f", {ours[best]:.4g}, of {len(ours)} ways that a pipeline can hold."
    if min(found.values()) < ours[best]:
        other = min(found, key=lambda key: found[key])
        said += f" `{other[0]}` with `{other[1]}`, which it cannot, had {found[other]:.4g}."
    return replace(request, sampler=best[0], method=best[1]), said


def _scheduler(inputs: Inputs, cell: Cell, network: DiffusersNetworkParams) -> CovarianceScheduler:
    experiment, schedule = inputs.experiment, inputs.experiment.schedule
    method, sample = experiment.methods[cell.method], experiment.sample
    if not isinstance(sampler := sample.samplers[cell.sampler], SamplerParams):
        raise OcmError(f"--sampler {cell.sampler}: a solver of diffusers needs no export")
    trained = schedule.model_dump()
    if isinstance(schedule, FormulaSchedule):
        trained |= {"trained_betas": schedules.of_params(schedule).betas[1:].tolist()}
        trained |= {"kind": "scheduler"}
    recipe = RecipeParams.model_validate(sampler.model_dump(exclude={"grids", "methods"}))
    if isinstance(recipe.timesteps, OptimalTimesteps):  # listed: a pipeline has no images
        by_nfe = optimal_timesteps(inputs, cell.score)[recipe.timesteps.source(cell.method)]
        listed = ListedTimesteps(values=[[*timesteps] for timesteps in by_nfe.values()])
        recipe = recipe.model_copy(update={"timesteps": listed})
    scheduler: CovarianceScheduler = CovarianceScheduler(
        **scheduler_keys(trained, network.prediction),
        method=cell.method,
        method_kind=method.kind,
        method_options=method.options,
        recipe=recipe.model_dump(),
        clip_x0=sample.clip.x0,
        clip_covariance=sample.clip.covariance,
        levels=experiment.levels,
        guided_channels=sample.guidance.guided_channels,
        guided_covariance=sample.guidance.covariance,
        null_class=network.null_class,
    )
    return scheduler


def _measured(name: str) -> Results:
    """Return the results of an experiment, as far as it has a report."""
    file = Path("reports", name, "results.csv")
    return Results.read(file) if file.is_file() else Results()


def _numbers(name: str, cell: Cell) -> dict[str, float]:
    """Return the means of this sampler and method in the experiment's results, if it has any."""
    rows, numbers = _measured(name).select(sampler=cell.sampler, method=cell.method), {}
    for (measure, nfe, scale), group in rows.groups("measure", "nfe", "guidance").items():
        guided = "" if scale in (None, 1.0) else f", guidance = {scale}"
        numbers[f"{measure}, nfe = {nfe}{guided}"] = replicates(group).estimate.mean
    return numbers
