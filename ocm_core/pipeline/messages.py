"""Make Snakemake's messages plain: one line instead of a dump, and not into a bar."""

from __future__ import annotations

import re
from collections.abc import Callable
from logging import Filter, Formatter, LogRecord

from snakemake_interface_logger_plugins.common import LogEvent

# Raised while a job is planned, or by a line of the Snakefile itself.
_OURS = re.compile(
    r"OcmError(?:: | in file .*?, line \d+:\n)(.*?)\n(?:Wildcards:?\n|Traceback:?\n|  File )",
    re.DOTALL,
)
# Where a cluster's message ends, and general advice or the whole call begins.
_ADVICE = re.compile(r"\. (?=Detailed|Failed nodes)|\.?For further error|\n")
# What Snakemake adds to a failure that has been told, and its log of the run, which adds nothing:
_TOLD = re.compile(
    r"RuleException:\nCalledProcessError .*returned non-zero exit status (1|130)\."
    r"|Shutting down, this might take|Terminating processes on user request"
    r"|Exiting because a job execution failed"
    r"|WorkflowError:\nAt least one job did not complete"
    r"|Complete log\(s\): |Elapsed time: "
    r"|Cannot restore .*: no backup found|--keep-incomplete mode is set",
    re.DOTALL,
)


_ERASE = "\r\033[K"  # the line of a terminal, with whatever bar is on it


class OwnLines(Formatter):
    """A formatter of Snakemake's for a terminal on which a job may be drawing a bar."""

    def __init__(self, inner: Formatter) -> None:
        super().__init__()
        self.inner = inner

    def format(self, record: LogRecord) -> str:
        return f"{_ERASE}{self.inner.format(record)}"


class PlainMessages(Filter):
    """A filter of Snakemake's logger.

    A job that fails here has said itself what is wrong: `ocm run` exits with 1, or with 130
    after Ctrl-C, only then. One that was killed, or that failed on a cluster, has not.
    """

    def __init__(self, runs_here: Callable[[], bool]) -> None:
        super().__init__()
        self.runs_here = runs_here

    def filter(self, record: LogRecord) -> bool:
        event = getattr(record, "event", None)
        if event is LogEvent.JOB_ERROR and not self.runs_here():
            vars(record).update(event=None, msg=_failed(record), args=None)
        elif ours := _OURS.search(record.getMessage()):
            vars(record).update(event=None, msg=f"ocm: {ours[1]}", args=None)
        return not _TOLD.match(record.getMessage())


def _failed(record: LogRecord) -> str:
    """Say which job failed elsewhere, why according to the cluster, and where to read more."""
    said = vars(record)
    logs = ", ".join(map(str, [*said.get("log", []), *said.get("aux_logs", [])])) or "none"
    made = ", ".join(map(str, said.get("output", [])))
    told = _ADVICE.split(said.get("rule_msg") or "", maxsplit=1)[0]
    reason = f": {told}" if told else ""
    return f"{said['rule_name']} failed: {made}{reason} (log: {logs})"
