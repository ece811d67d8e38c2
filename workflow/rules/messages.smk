"""What a run says: at the start how long it will take, at the end which page to open."""

import atexit
from datetime import datetime

from snakemake.logging import ColorizingTextHandler, logger

from ocm_core.pipeline.messages import OwnLines, PlainMessages

logger.addFilter(PlainMessages(lambda: workflow.local_exec))
for handler in logger.handlers:
    if isinstance(handler, ColorizingTextHandler) and handler.is_tty:
        handler.setFormatter(OwnLines(handler.formatter))


def planned():
    """The graph and the task of each job of this run, inputs first."""
    run = set(workflow.dag.needrun_jobs(exclude_finished=False))
    ordered = (job for level in workflow.dag.toposorted() for job in level)
    jobs = (job for job in ordered if job in run and job.rule.name in stages())
    return [task_of(job.wildcards) for job in jobs]


def begin():
    """Look at what only diffusers can tell, and say how long the run will take."""
    from ocm_core.doctor.cost import expected_time
    from ocm_core.params.check import check_solvers

    todo = planned()
    for graph in dict.fromkeys(graph for graph, _ in todo):
        check_solvers(graph.experiment)
    if not workflow.touch and len(todo) > 1:
        logger.info(expected_time(todo, workflow.cores or 1))


def conclude():
    """Let DVC's record follow, and say which page to open, after Snakemake's own last words."""
    from ocm_core.doctor.cost import duration
    from ocm_core.pipeline.sync import record

    logger.info(record())
    names = [g.experiment.name for g, task in planned() if task.stage == "report"]
    if names and not workflow.touch:
        took = duration((datetime.now() - workflow.start_time).total_seconds())
        pages = " ".join(f"reports/{name}.html" for name in names)
        atexit.register(print, f"done in {took}; open {pages}", file=sys.stderr)


check_asked()


onstart:
    begin()


onsuccess:
    conclude()
