"""The table of stages in Snakemake's words: what a job waits for, takes and is told."""

import json

from ocm_core.params.resolved import active_names, present
from ocm_core.params.restrict import values
from ocm_core.pipeline import table
from ocm_core.pipeline.generated_files import write_if_edited
from ocm_core.pipeline.gpus import check_gpus, check_there, of_a_node, seen
from ocm_core.pipeline.manifests import manifest_of
from ocm_core.pipeline.outside import listing
from ocm_core.pipeline.sources import digest
from ocm_core.pipeline.staleness import source_files
from ocm_core.pipeline.sync import record

# Where no profile says how many a job gets, those of this machine are taken in turns, one per job.
GPUS = len(seen(os.environ))
GPUS_PER_JOB = int(config.get("gpus_per_job", min(1, GPUS)))
if GPUS and "gpus_per_job" not in config:
    workflow.global_resources.setdefault("gpu", GPUS)

# The directive `localrules:` takes only names that are written out.
workflow.localrules(*(stage.name for stage in table.STAGES if stage.local))


def task_of(wildcards):
    """What a job makes. A page is asked for by its experiment alone."""
    experiment = present(wildcards.experiment)
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
    """Exactly what the job is told, so that a change reruns only its readers."""
    experiment, task = task_of(wildcards)
    told = values(experiment, table.reads(experiment, task))
    if images := listing(table.outside(experiment, task), times=True):
        told["images"] = images
    return json.dumps(told, sort_keys=True)


def code(wildcards):
    """A digest of the job's source files; Snakemake does not look into imported packages."""
    return digest(source_files(*task_of(wildcards)))


def job(wildcards):
    """The arguments of `ocm run`."""
    experiment, task = task_of(wildcards)
    return f"{task.stage} {experiment.name} {task.part}"


def priority(wildcards):
    """The longest first, so that short ones fill the gaps."""
    experiment, task = task_of(wildcards)
    return table.BY_NAME[task.stage].priority(experiment, task.part)


def gpus(wildcards):
    return stage_of(wildcards).gpus(present(wildcards.experiment), GPUS_PER_JOB)


def cpus_per_gpu(wildcards):
    return table.CPUS_PER_GPU if gpus(wildcards) else None


def asked(rule, resource):
    """What `--set-resources` says of a rule, or the rule itself; None where that is a function."""
    found = workflow.get_rule(rule).resources[resource]
    return None if found.is_evaluable() else found.value


def check_asked():
    """Refuse what cannot be given, before any work; Snakemake would quietly give less."""
    if not workflow.is_main_process:
        return
    resource, cluster = workflow.global_resources.get("gpu"), "gpu_model" in config
    limit = resource and resource.value
    each = limit or (of_a_node() if cluster else GPUS)
    check_there(f"--config gpus_per_job={GPUS_PER_JOB}", GPUS_PER_JOB, each)
    for stage in table.STAGES:
        count, nodes = asked(stage.name, "gpu"), asked(stage.name, "nodes")
        if count is not None:
            check_gpus(stage, count, nodes, each and each * (1 if limit else nodes))


def on_several(rule, value):
    return value if asked(rule, "nodes") > 1 else None


def gpus_of_each_node(wildcards, rulename):
    """SLURM would else be free to put most of them on one node."""
    count, nodes = asked(rulename, "gpu"), asked(rulename, "nodes")
    count = gpus(wildcards) if count is None else count
    return on_several(rulename, f"--gpus-per-node={count // nodes}")


def job_needs(wildcards, rule):
    """Of a cluster, memory and time are asked for by the cost model; its jobs have them already."""
    experiment, task = task_of(wildcards)
    stage = table.BY_NAME[task.stage]
    if "gpu_model" not in config or not workflow.is_main_process:
        return stage.resources
    from ocm_core.planning.job_needs import needs_of

    count, longest = asked(rule, "gpu"), int(config.get("longest_job", 0))
    count = gpus(wildcards) if count is None else count
    nodes = asked(rule, "nodes")
    return needs_of(
        experiment, task, count, nodes, config["gpu_model"], longest
    ).resources


def memory(wildcards, rulename):
    return job_needs(wildcards, rulename).memory


def minutes(wildcards, rulename):
    return job_needs(wildcards, rulename).minutes
