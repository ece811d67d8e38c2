"""The declarations of stages in Snakemake's words: what a job waits for, takes and reads."""

import json

from ocm_core.params.compose import active_names
from ocm_core.params.restrict import values
from ocm_core.pipeline.artifacts import manifest_of
from ocm_core.pipeline.graph import graph_of
from ocm_core.pipeline.gpus import check_gpus, check_there, of_a_node, seen
from ocm_core.pipeline.stage import CPUS_PER_GPU, stages
from ocm_core.pipeline.state import code as code_of
from ocm_core.pipeline.user_files import listing


def task_of(wildcards):
    """The graph and the task of a job; a page is asked for by its experiment alone."""
    graph = graph_of(wildcards.experiment)
    stage, part = wildcards.get("stage", "report"), wildcards.get("part", "all")
    return graph, graph.find(stage, part)


def inputs(wildcards):
    """The manifests of the artifacts that the job takes."""
    graph, task = task_of(wildcards)
    return [manifest_of(wildcards.experiment, node) for node in graph.inputs[task]]


def before(wildcards):
    """What the job only waits for, whatever it holds."""
    graph, task = task_of(wildcards)
    manifests = (manifest_of(wildcards.experiment, n) for n in graph.before(task))
    return [ancient(str(manifest)) for manifest in manifests]


def parameters(wildcards):
    """Exactly what the job reads, so that a change reruns only its readers."""
    graph, task = task_of(wildcards)
    read = values(graph.experiment, graph.keys(task))
    paths = graph.stage(task).user_files(graph.experiment)
    if images := listing(paths, times=True):
        read["user_files"] = images
    return json.dumps(read, sort_keys=True)


def code(wildcards):
    """A digest of the job's source files; Snakemake does not look into imported packages."""
    return code_of(*task_of(wildcards))


def job(wildcards):
    """The arguments of `ocm run`."""
    task = task_of(wildcards)[1]
    return f"{task.stage} {wildcards.experiment} {task.part}"


def made_by(stage):
    """What the rule of a stage makes; that of the report, the page and the table of results."""
    if stage.name == "report":
        page = report("reports/{experiment}.html", category="Reports")
        return [update(page), update("reports/{experiment}/results.csv")]
    folder = f"artifacts/{{experiment}}/{stage.phase}/{{stage,{stage.name}}}/{{part}}"
    return [update(f"{folder}/manifest.json")]


def log_of(stage, suffix):
    name = "report" if stage.name == "report" else "{stage}/{part}"
    return f"logs/{{experiment}}/{name}{suffix}"


# Where no profile says how many a job gets, those of this machine are taken in turns, one per job.
GPUS = len(seen(os.environ))
GPUS_PER_JOB = int(config.get("gpus_per_job", min(1, GPUS)))
if GPUS and "gpus_per_job" not in config:
    workflow.global_resources.setdefault("gpu", GPUS)
ON_CLUSTER = "longest_job" in config  # minutes, in profiles/slurm

# The directive `localrules:` takes only names that are written out.
workflow.localrules(*(stage.name for stage in stages().values() if stage.local))


def priority(wildcards):
    """What takes longest first, so that short jobs fill the gaps."""
    graph, task = task_of(wildcards)
    return int(graph.stage(task).work(graph.experiment, task.part).passes)


def gpus(wildcards):
    graph, task = task_of(wildcards)
    return graph.stage(task).gpus(graph.experiment, GPUS_PER_JOB)


def cpus_per_gpu(wildcards):
    return CPUS_PER_GPU if gpus(wildcards) else None


def asked(rule, resource):
    """What `--set-resources` says of a rule, or the rule itself; None where that is a function."""
    found = workflow.get_rule(rule).resources[resource]
    return None if found.is_evaluable() else found.value


def gpus_of(wildcards, rule):
    return gpus(wildcards) if asked(rule, "gpu") is None else asked(rule, "gpu")


def on_several(rule, value):
    return value if asked(rule, "nodes") > 1 else None


def gpus_of_each_node(wildcards, rulename):
    """SLURM would else be free to put most of them on one node."""
    count, nodes = gpus_of(wildcards, rulename), asked(rulename, "nodes")
    return on_several(rulename, f"--gpus-per-node={count // nodes}")


def memory(wildcards, attempt):
    """More on each retry: a job that was killed for its memory needs more."""
    from ocm_core.doctor.cost import job_memory

    graph, task = task_of(wildcards)
    return job_memory(graph.experiment, task, attempt)


def minutes(wildcards, attempt, rulename):
    """Asked of a cluster only, with room to spare, and more on each retry."""
    if not ON_CLUSTER or not workflow.is_main_process:
        return None
    from ocm_core.doctor.cost import job_minutes

    graph, task = task_of(wildcards)
    count = gpus_of(wildcards, rulename)
    return job_minutes(
        graph.experiment, task, attempt, count, int(config["longest_job"])
    )


def check_asked():
    """Refuse what cannot be given, before any work; Snakemake would quietly give less."""
    if not workflow.is_main_process:
        return
    resource = workflow.global_resources.get("gpu")
    limit = resource and resource.value
    each = limit or (of_a_node() if ON_CLUSTER else GPUS)
    check_there(f"--config gpus_per_job={GPUS_PER_JOB}", GPUS_PER_JOB, each)
    for stage in stages().values():
        count, nodes = asked(stage.name, "gpu"), asked(stage.name, "nodes")
        if count is not None:
            check_gpus(stage, count, nodes, each and each * (1 if limit else nodes))
