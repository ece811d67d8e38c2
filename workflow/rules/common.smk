"""The table of stages in Snakemake's words: what a job waits for, takes and is told."""

import json

from ocm_core.params.resolved import load
from ocm_core.params.restrict import values
from ocm_core.pipeline import table
from ocm_core.pipeline.gpus import seen
from ocm_core.pipeline.manifests import manifest_of
from ocm_core.pipeline.sources import digest
from ocm_core.pipeline.staleness import source_files

# Where no profile says how many a job gets, those of this machine are taken in turns, one per job.
GPUS = len(seen(os.environ))
GPUS_PER_JOB = int(config.get("gpus_per_job", min(1, GPUS)))
if GPUS and "gpus_per_job" not in config:
    workflow.global_resources.setdefault("gpu", GPUS)

# The directive `localrules:` takes only names that are written out.
workflow.localrules(*(stage.name for stage in table.STAGES if stage.local))


def task_of(wildcards):
    """What a job makes. A page is asked for by its experiment alone."""
    experiment = load(wildcards.experiment)
    stage, part = wildcards.get("stage", "report"), wildcards.get("part", "all")
    return experiment, table.find(experiment, stage, part)


def stage_of(wildcards):
    return table.BY_NAME[task_of(wildcards)[1].stage]


def upstream(wildcards):
    """The manifests of everything that the job reads."""
    experiment, task = task_of(wildcards)
    return [manifest_of(experiment.name, t) for t in table.inputs(experiment, task)]


def before(wildcards):
    """What the job only waits for, whatever it holds."""
    experiment, task = task_of(wildcards)
    manifests = (manifest_of(experiment.name, t) for t in table.after(experiment, task))
    return [ancient(str(manifest)) for manifest in manifests]


def parameters(wildcards):
    """Exactly the parameters that the job reads, so that a change reruns only their readers."""
    experiment, task = task_of(wildcards)
    return json.dumps(values(experiment, table.reads(experiment, task)), sort_keys=True)


def code(wildcards):
    """A digest of the job's source files; Snakemake does not look into imported packages."""
    return digest(source_files(*task_of(wildcards)))


def job(wildcards):
    """The arguments of `ocm run`."""
    experiment, task = task_of(wildcards)
    return f"{task.stage} {experiment.name} {task.part}"


def gpus(wildcards):
    return stage_of(wildcards).gpus(load(wildcards.experiment), GPUS_PER_JOB)
