"""An experiment on a model of diffusers, written as a pipeline that diffusers opens."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from ocm_core.artifacts.chains import optimal_chains
from ocm_core.artifacts.heads import load_denoiser
from ocm_core.artifacts.prompts import open_encoder
from ocm_core.artifacts.score import text_of
from ocm_core.cells import Cell, cells
from ocm_core.checkpoints.text_encoder import TextEncoder
from ocm_core.covariance.learned import CovarianceHead
from ocm_core.diffusion import schedule as schedules
from ocm_core.errors import OcmError
from ocm_core.export.folder import Card, save_pipeline
from ocm_core.export.scheduler import CovarianceScheduler
from ocm_core.generate.from_experiment import prepared
from ocm_core.generate.request import SampleRequest
from ocm_core.networks.converted import unconverted
from ocm_core.networks.diffusers import new_model
from ocm_core.networks.keys import export_published
from ocm_core.params.resolved import load
from ocm_core.pipeline.job import Job
from ocm_core.pipeline.manifests import read_manifest
from ocm_core.pipeline.table import Task
from ocm_core.schema.chains import ListChain, OptimalChain
from ocm_core.schema.experiment import DiffusersNetworkParams, Experiment, WalkParams


def export(name: str, folder: Path, request: SampleRequest) -> Path:
    """The way to sample that is asked for, with the heads of its method."""
    network = load(name).network
    if not isinstance(network, DiffusersNetworkParams) or network.range != 1.0:
        raise OcmError(
            f"{name}: network.family is {network.family!r}; only a model of diffusers, of data in "
            "[-1, 1], goes back into diffusers"
        )
    with prepared(name, request) as job:
        return _saved(name, folder, job, network)


def _saved(name: str, folder: Path, job: Job, network: DiffusersNetworkParams) -> Path:
    (cell,) = cells(job.experiment)
    if job.experiment.methods[cell.method].needs == "moments":
        raise OcmError(f"--method {cell.method}: its table of moments is no part of a pipeline")
    denoiser = load_denoiser(job, cell.score, [cell.method])
    model = new_model(network.config)
    model.load_state_dict(export_published(unconverted(denoiser.network)))
    heads = cast(Mapping[str, CovarianceHead], denoiser.heads)
    return save_pipeline(
        folder,
        model.eval(),
        _scheduler(job, cell),
        heads,
        _card(name, job.experiment, cell),
        _autoencoder(job),
        _text_encoder(job),
    )


def _scheduler(job: Job, cell: Cell) -> CovarianceScheduler:
    experiment, network = job.experiment, cast(DiffusersNetworkParams, job.experiment.network)
    method, clip = experiment.methods[cell.method], experiment.sample.clip
    guidance = experiment.sample.guidance
    scheduler: CovarianceScheduler = CovarianceScheduler(
        **_betas(experiment),
        prediction_type=network.prediction,
        method=cell.method,
        method_kind=method.kind,
        method_options=method.options,
        walk=_walk(job, cell).model_dump(),
        clip_x0=clip.x0,
        clip_covariance=clip.covariance,
        levels=experiment.levels,
        guided_channels=guidance.guided_channels,
        guided_covariance=guidance.covariance,
        null_class=network.null_class,
    )
    return scheduler


def _betas(experiment: Experiment) -> dict[str, Any]:
    schedule = experiment.schedule
    if schedule.kind == "scheduler":
        keys = schedule.model_dump(exclude={"kind", "steps"})
        return {"num_train_timesteps": schedule.steps + schedule.rescale_betas_zero_snr, **keys}
    betas = schedules.of_params(schedule).betas[1:].tolist()
    return {"num_train_timesteps": len(betas), "trained_betas": betas}


def _walk(job: Job, cell: Cell) -> WalkParams:
    """Optimal chains as the timesteps that they are: a pipeline has no images to find them on."""
    sampler = job.experiment.sample.samplers[cell.sampler]
    if not isinstance(sampler, WalkParams):
        raise OcmError(f"--sampler {cell.sampler}: a solver of diffusers needs no export")
    walk = WalkParams.model_validate(
        {key: getattr(sampler, key) for key in WalkParams.model_fields}
    )
    if not isinstance(walk.chain, OptimalChain):
        return walk
    found = optimal_chains(job, cell.score)[walk.chain.of or cell.method]
    lists = ListChain(timesteps=[[*chain] for chain in found.values()])
    return walk.model_copy(update={"chain": lists})


def _autoencoder(job: Job) -> Any:
    if job.experiment.encode.latent is None:
        return None
    from ocm_core.artifacts.autoencoder import load_vae  # imports diffusers, which takes its time

    return load_vae(job).model


def _text_encoder(job: Job) -> TextEncoder | None:
    text = text_of(job.experiment)
    return None if text is None else open_encoder(text, "cpu")


def _card(name: str, experiment: Experiment, cell: Cell) -> Card:
    provenance = (
        read_manifest(name, Task("fetch_score", "all")).get("notes", {}).get("provenance", {})
    )
    return Card(
        title=experiment.report.title,
        base=Path(cast(DiffusersNetworkParams, experiment.network).path).name,
        licence=provenance.get("licence"),
        trained_on=f"the data set `{experiment.data.kind}` of the experiment `{name}`",
        method=cell.method,
        steps=cell.steps,
        numbers=_numbers(name, cell),
    )


def _numbers(name: str, cell: Cell) -> dict[str, float]:
    """Of the report, where it is there: this method's, along chains of this sampler."""
    file = Path(f"reports/{name}.metrics.json")
    if not file.is_file():
        return {}
    wanted = {cell.sampler, cell.method}
    return {
        ".".join(key): value
        for key, value in _flat(json.loads(file.read_text()))
        if wanted <= {*key} and isinstance(value, int | float)
    }


def _flat(tree: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not isinstance(tree, dict):
        yield above, tree
        return
    for key, value in tree.items():
        yield from _flat(value, (*above, key))
