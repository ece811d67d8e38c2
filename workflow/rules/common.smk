"""The declarations of stages in Snakemake's words: what a job waits for, reads and asks for."""

import json
import re

from ocm_core import launch, sync
from ocm_core.doctor import cost
from ocm_core.doctor.machine import host_memory
from ocm_core.params import compose
from ocm_core.pipeline import state
from ocm_core.pipeline.artifacts import manifest_of
from ocm_core.pipeline.graph import graph_of
from ocm_core.pipeline.stage import CPUS_PER_GPU, stages
from ocm_core.sampling.checks import check_solvers

GPUS = len(launch.seen(os.environ))  # in turns, one per job, without a profile
GPUS_PER_JOB = int(config.get("gpus_per_job", min(1, GPUS)))
if GPUS and "gpus_per_job" not in config:
    workflow.global_resources.setdefault("gpu", GPUS)
if workflow.local_exec:  # what all jobs of this machine have together
    workflow.global_resources.setdefault("mem_mb", host_memory() // 10**6)
workflow.localrules(*(stage.name for stage in stages().values() if stage.local))


@logger.addFilter
def plain(record):
    """Show our errors while planning in one line; of a cluster, which job failed, and its log."""
    ours = r"OcmError(?:: | in file .*?, line \d+:\n)(.*?)\n(?:Wildcards|Traceback|  File )"
    said = vars(record)
    failed = getattr(said.get("event"), "name", "") == "JOB_ERROR"
    if failed and not workflow.local_exec:
        logs = ", ".join(map(str, said["log"]))
        what = [*map(str, said["output"]), said.get("rule_msg") or "failed"]
        said.update(event=None, msg=f"{': '.join(what)} (log: {logs})")
    elif found := re.search(ours, record.getMessage(), re.DOTALL):
        said.update(event=None, msg=f"ocm: {found[1]}", args=None)
    return True


def task_of(wildcards):
    """The graph and the task of a job; a page is asked for by its experiment alone."""
    graph = graph_of(wildcards.experiment)
    stage, part = wildcards.get("stage", "report"), wildcards.get("part", "all")
    return graph, graph.find(stage, part)


def planned():
    """The graph and the task of each job of this run, inputs first."""
    run = set(workflow.dag.needrun_jobs(exclude_finished=False))
    jobs = (job for level in workflow.dag.toposorted() for job in level if job in run)
    return [task_of(job.wildcards) for job in jobs if job.rule.name in stages()]


def inputs(wildcards):
    """The manifests of the artifacts that the job takes, and of those that it only waits for."""
    (graph, task), name = task_of(wildcards), wildcards.experiment
    before = [ancient(str(manifest_of(name, node))) for node in graph.before(task)]
    return [*(manifest_of(name, node) for node in graph.inputs[task]), *before]


def parameters(wildcards):
    """Exactly what the job reads, so that a change reruns only its readers."""
    graph, task = task_of(wildcards)
    read = graph.values(graph.keys(task))
    if listed := state.user_files(graph, task, times=True):
        read["user_files"] = listed
    return json.dumps(read, sort_keys=True)


def priority(wildcards):
    """What the most work waits for comes first; short jobs fill the gaps."""
    graph, task = task_of(wildcards)
    return int(graph.urgency[task])


def gpu_count(wildcards):
    graph, task = task_of(wildcards)
    return graph.stage(task).gpus(graph.experiment, GPUS_PER_JOB)


def memory(wildcards, attempt):
    """What a cluster is asked for; here what a job takes, so that all of them fit."""
    return cost.memory(*task_of(wildcards), attempt, here=workflow.local_exec)


def asked(wildcards, rulename):
    """How many GPUs and nodes a job has: what `--set-resources` says, or its stage."""
    said = workflow.get_rule(rulename).resources
    count = gpu_count(wildcards) if said["gpu"].is_evaluable() else said["gpu"].value
    return count, said["nodes"].value


def minutes(wildcards, attempt, rulename):
    """Asked of a cluster only, with room to spare, and more on each retry."""
    if "longest_job" in config and workflow.is_main_process:
        (graph, task), (count, _) = task_of(wildcards), asked(wildcards, rulename)
        longest = int(config["longest_job"])
        return cost.job_minutes(graph.experiment, task, attempt, count, longest)


def on_nodes(value):
    """A resource of jobs on several nodes, where `ocm run` itself calls srun."""
    return lambda wildcards, rulename: (
        value(*asked(wildcards, rulename))
        if asked(wildcards, rulename)[1] > 1
        else None
    )
