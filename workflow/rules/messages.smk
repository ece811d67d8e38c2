"""What a run says: at the start how long it will take, at the end which page to open."""

import atexit
from datetime import datetime

from snakemake.logging import ColorizingTextHandler, logger

from ocm_core.pipeline.run_messages import OwnLines, PlainMessages

logger.addFilter(PlainMessages(lambda: workflow.local_exec))
for handler in logger.handlers:
    if isinstance(handler, ColorizingTextHandler) and handler.is_tty:
        handler.setFormatter(OwnLines(handler.formatter))


def planned():
    """The experiment and the task of each job of this run, inputs first."""
    run = set(workflow.dag.needrun_jobs(exclude_finished=False))
    ordered = (job for level in workflow.dag.toposorted() for job in level)
    stages = (job for job in ordered if job.rule.name in table.BY_NAME)
    return [task_of(job.wildcards) for job in stages if job in run]


def announce():
    """How long the run will take."""
    from ocm_core.planning.run_time import expectation

    if not workflow.touch and len(todo := planned()) > 1:
        print(expectation(todo, workflow.cores or 1), file=sys.stderr, flush=True)


def conclude():
    """Which page to open, after Snakemake's own last words."""
    from ocm_core.planning.run_time import duration

    made = [f"reports/{e.name}.html" for e, task in planned() if task.stage == "report"]
    if made and not workflow.touch:
        took = duration((datetime.now() - workflow.start_time).total_seconds())
        atexit.register(
            print, f"done in {took}; open {' '.join(made)}", file=sys.stderr
        )
