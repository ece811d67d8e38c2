"""Input and parameter functions: the table of stages in Snakemake's words."""

import json

from ocm_core.params.resolved import load
from ocm_core.params.restrict import values
from ocm_core.pipeline import table
from ocm_core.pipeline.manifests import manifest_of
from ocm_core.pipeline.sources import digest
from ocm_core.pipeline.staleness import source_files


def node(stage, wildcards):
    experiment = load(wildcards.experiment)
    return experiment, table.find(experiment, stage, wildcards.get("part", "all"))


def upstream(stage):
    """The manifests of everything that the stage reads."""

    def manifests(wildcards):
        experiment, task = node(stage, wildcards)
        return [manifest_of(experiment.name, t) for t in table.inputs(experiment, task)]

    return manifests


def after(stage):
    """Only the order: `stage` comes first where the experiment has it, whatever it holds."""

    def manifest(wildcards):
        experiment = load(wildcards.experiment)
        tasks = [task for task in table.tasks(experiment) if task.stage == stage]
        return [ancient(str(manifest_of(experiment.name, task))) for task in tasks]

    return manifest


def parameters(stage):
    """Exactly the parameters that the stage declares, so that a change reruns only their readers."""

    def declared(wildcards):
        experiment, task = node(stage, wildcards)
        return json.dumps(
            values(experiment, table.reads(experiment, task)), sort_keys=True
        )

    return declared


def code(stage):
    """A digest of the source files of the stage; Snakemake does not look into imported packages."""

    def of_sources(wildcards):
        experiment, task = node(stage, wildcards)
        return digest(source_files(experiment, task))

    return of_sources
