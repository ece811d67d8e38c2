"""Gather the results, and leave the report: reports/NAME/ and the page that follows from it."""

from typing import Any

import numpy as np

from ocm_core.cells import cells, parts
from ocm_core.datasets.base import EightBitSplit
from ocm_core.features.images import shown_pixels
from ocm_core.params.compose import choices
from ocm_core.pipeline.graph import graph_of
from ocm_core.pipeline.stage import stages
from ocm_core.pipeline.state import last_commit, number_digests
from ocm_core.report.folder import Curves, PosteriorStd, ReportFolder, write_report
from ocm_core.report.page import page
from ocm_core.report.render import render
from ocm_core.results.measures import Registry, measures
from ocm_core.results.study import SampleKey, Study
from ocm_core.results.table import Results
from ocm_core.stages import Artifact, Experiment, Inputs, Job, Params, Stage, Task, require
from ocm_core.stages._results import RESULTS_FILE, ResultsTable
from ocm_core.stages.classifier import ClassifierWeights
from ocm_core.stages.distances import SHOWN, Distances
from ocm_core.stages.encode import encode_tasks, open_split
from ocm_core.stages.fetch_data import FetchedData, data_modules, open_data
from ocm_core.stages.heads import Heads
from ocm_core.stages.posterior_std import PosteriorStdMaps
from ocm_core.stages.restoration import RestorationTable
from ocm_core.stages.sample import Samples, sample_tasks
from ocm_core.stages.score import TrainedScore
from ocm_core.stages.timesteps import StepCostTable, optimal_timesteps
from ocm_core.stages.vae import TrainedVae
from ocm_core.training.state import load_curve

CURVES: dict[type[Artifact], str] = {
    **{TrainedVae: "autoencoder", TrainedScore: "score network"},
    **{Heads: "heads", ClassifierWeights: "classifier"},
}


def _takes(experiment: Experiment, part: str) -> list[Task]:
    evaluations = (stage for stage in stages().values() if stage.phase == "evaluate")
    per_score = (TrainedScore, Heads, StepCostTable)
    tasks = [
        *(Task(stage.name, part) for stage in evaluations for part in stage.parts_of(experiment)),
        *(kind.task(score) for kind in per_score for score in experiment.network.scores),
        *(TrainedVae.task(), ClassifierWeights.task(), FetchedData.task()),
    ]
    if experiment.data.levels is None:  # points, which are shown themselves
        tasks += [*encode_tasks(experiment), *sample_tasks(experiment)]
    return tasks


STAGE: Stage[Params] = Stage(
    __name__,
    "report",
    takes=_takes,
    reads=(
        *("data", "encode", "schedule", "network", "methods", "head", "train", "sample"),
        *("features", "evaluate", "report"),
    ),
    methods=lambda experiment, part: list(experiment.methods),
    plugins=data_modules,
    local=True,
)


class Report(Artifact):
    """Nothing of its own: what the report leaves lies in reports/."""


def run(job: Job) -> None:
    """Write the folder and the page."""
    experiment, registry = job.experiment, all_measures()
    tables = (folder for folder in job.folders.values() if (folder / RESULTS_FILE).exists())
    results = Results(row for folder in tables for row in ResultsTable(folder).load())
    study = Study(results, experiment.model_dump(mode="json"), registry)
    folder = job.outputs / "reports" / experiment.name
    shown = (_samples(job, study.shown_samples), _test_data(job), _curves(job))
    named = study.param("evaluate.likelihood.timesteps", {}).values()
    decoders = {"", *(rule.get("decoder_variance") for rule in named)}
    found = optimal_timesteps(job, experiment.network.scores[-1])
    timesteps = {key: found[key] for key in found if key.partition("/")[2] in decoders}
    restored = job.find(RestorationTable)
    pictures = restored.load_pictures() if restored else None
    write_report(folder, study, _provenance(job), *shown, timesteps, _posterior_std(job), pictures)
    html = render(page(ReportFolder(folder), registry))
    folder.with_name(f"{experiment.name}.html").write_text(html, encoding="utf-8")


def all_measures() -> Registry:
    """Return the registry of measures, with those that stages declare."""
    return measures(measure for stage in stages().values() for measure in stage.measures)


def _samples(job: Inputs, wanted: list[SampleKey]) -> dict[SampleKey, np.ndarray]:
    """Return samples of the last score, the first seed and the least guidance."""
    experiment, shown = job.experiment, {}
    part_of = {cell: name for name, group in parts(experiment).items() for cell in group}
    guidance = min(cell.guidance for cell in part_of)
    place = (experiment.network.scores[-1], guidance, experiment.sample.seeds[0])
    for cell in cells(experiment):
        key = (cell.sampler, cell.method, cell.nfe)
        if (cell.score, cell.guidance, cell.seed) != place or key not in wanted:
            continue
        if experiment.data.levels is None:
            shown[key] = job.take(Samples, part_of[cell]).read(cell)[:].numpy()
        elif (distances := job.find(Distances, part_of[cell])) is not None:
            shown[key] = distances.shown(cell)
    return shown


def _test_data(job: Inputs) -> np.ndarray:
    """Return test points, or a few test images as the samples beside them are shown."""
    if job.experiment.data.levels is None:
        return open_split(job, "test").all()
    data = open_data(job)
    split = data.splits.get("test") or data.splits["train"]
    return shown_pixels(EightBitSplit(split, require(data.levels))[:SHOWN])


def _posterior_std(job: Inputs) -> PosteriorStd | None:
    artifact = job.find(PosteriorStdMaps)
    if artifact is None:
        return None
    maps = artifact.load().sel(score=job.experiment.network.scores[-1]).isel(image=0)
    deviations = {str(source): maps.sel(source=source).values for source in maps["source"].values}
    times = tuple(int(t) for t in maps["t"].values)
    return PosteriorStd(times, deviations.pop("x_t"), deviations)


def _curves(job: Inputs) -> Curves:
    curves: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for kind, title in CURVES.items():
        for part, artifact in job.all(kind).items():
            name = title if part in ("all", "trained", "pretrained") else f"{title}, {part} score"
            for point in load_curve(artifact.folder):
                step = int(point.pop("iteration"))
                for network, loss in point.items():
                    curves.setdefault((name, network or title), []).append((step, loss))
    return curves


def _provenance(job: Job) -> dict[str, Any]:
    """Say what made the results: commit, digests, versions, machine, and what the stages noted."""
    graph = graph_of(job.experiment.name)
    manifests = {task: Artifact(folder).manifest for task, folder in job.folders.items()}
    notes = {task: manifest.notes for task, manifest in manifests.items()}
    heads = {task.part: note for task, note in notes.items() if task.stage == "heads"}
    return {
        "commit": last_commit(graph),
        **number_digests(graph),
        "choices": choices(job.experiment.name),
        "machines": sorted({n["machine"] for n in notes.values() if "machine" in n}),
        "versions": {k: v for m in manifests.values() for k, v in m.versions.items()},
        "notes": {
            "images": {task.stage: n["images"] for task, n in notes.items() if "images" in n},
            "head_parameters": {k: v for n in heads.values() for k, v in n["parameters"].items()},
            "replaced_baselines": {
                k: n["baseline_entries_from_gaussian"] for k, n in heads.items()
            },
            "shape": list(job.experiment.shape),
        },
    }
