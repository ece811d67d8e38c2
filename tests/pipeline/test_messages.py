"""What a run tells: a summary, how long, which page; of a failure one message and no dump."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from logging import Formatter, LogRecord, makeLogRecord

import pytest
from snakemake_interface_logger_plugins.common import LogEvent

from ocm_core.pipeline.messages import OwnLines, PlainMessages
from tests.pipeline.conftest import NAME, Project
from tests.pipeline.test_dvc import WIDER

FAILED = (
    "RuleException:\nCalledProcessError in file workflow/rules/stages.smk, line 28:\n"
    "Command 'ocm run heads' returned non-zero exit status {}."
)


def record(text: str, **more: object) -> LogRecord:
    return makeLogRecord({"msg": text, **more})


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        (FAILED.format(1), False),
        (FAILED.format(130), False),
        (FAILED.format(137), True),  # killed: nobody else says it
        ("WorkflowError:\nAt least one job did not complete successfully.", False),
        ("WorkflowError:\nTarget rules may not contain wildcards.", True),
        ("3 of 9 steps (33%) done", True),
    ],
)
def test_what_a_failure_has_told_is_not_repeated(text: str, passes: bool) -> None:
    assert PlainMessages(lambda: True).filter(record(text)) is passes


def test_an_error_in_a_rule_s_function_is_its_message() -> None:
    text = "InputFunctionException in rule report:\nError:\n  OcmError: 'digit' is unknown\n"
    told = record(f"{text}Wildcards:\n  experiment=digit\nTraceback:\n  File x")
    assert PlainMessages(lambda: True).filter(told)
    assert told.getMessage() == "ocm: 'digit' is unknown"


def test_a_job_that_failed_elsewhere_is_named_with_its_log() -> None:
    def failed() -> LogRecord:
        said = {"rule_name": "heads", "log": ["heads.log"], "aux_logs": [], "output": ["made"]}
        return record("Error in rule heads", event=LogEvent.JOB_ERROR, **said)

    here, there = failed(), failed()
    assert PlainMessages(lambda: True).filter(here)
    assert vars(here)["event"] is LogEvent.JOB_ERROR  # which the profile leaves out
    assert PlainMessages(lambda: False).filter(there)
    assert vars(there)["event"] is None
    assert there.getMessage() == "heads failed: made (log: heads.log)"
    told = failed()
    vars(told)["rule_msg"] = "sbatch: error: no such partition\n    sbatch call: ..."
    assert PlainMessages(lambda: False).filter(told)
    expected = "heads failed: made: sbatch: error: no such partition (log: heads.log)"
    assert told.getMessage() == expected


def test_a_line_of_snakemake_s_erases_the_bar_it_would_stand_behind() -> None:
    assert OwnLines(Formatter()).format(record("done")) == "\r\033[Kdone"


def test_a_dry_run_is_a_summary(empty: Project) -> None:
    plan = ("snakemake", "--dry-run", "reports/imagenet256.html")
    said = empty.run(*plan)
    assert len(said.splitlines()) < 60 and re.search(r"\nsample +[3-9]\d\n", said)
    assert "wildcards:" in empty.run(*plan, "--quiet", "host")


def test_a_wrong_name_of_a_report_gets_the_nearest(empty: Project) -> None:
    said = empty.run("snakemake", "--cores", "1", "reports/digit.html", fails=True)
    assert "did you mean 'digits'?" in said.splitlines()[-1]
    assert "Traceback" not in said


def test_a_run_says_how_long_it_takes_and_which_page_to_open(project: Project) -> None:
    project.edit(WIDER)
    said = project.run("snakemake", "--cores", "1")
    assert "\n2 jobs, about " in said
    assert "resources:" not in said and "jobid: " in said  # where a job ends, not where it begins
    assert said.splitlines()[-1].startswith("done in ")
    assert said.splitlines()[-1].endswith(f"; open reports/{NAME}.html")


def _heed_ctrl_c() -> None:
    """Which a shell's background job, and what it starts, ignores."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupted_while_training(project: Project, *command: str) -> tuple[int, list[str]]:
    """How a command ends, and what it has said, after Ctrl-C in the middle of `score`."""
    project.edit({"train": {"score": {"iterations": 100_000}}})
    process = subprocess.Popen(
        command,
        cwd=project.root,
        env=project.env,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_heed_ctrl_c,
        start_new_session=True,
    )
    sign = (
        project.root / f"artifacts/{NAME}/train/score/.trained.staging/state/training.safetensors"
    )
    while not sign.exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all that run in it
    said = process.communicate()[1]
    return process.returncode, said.splitlines()


def is_about_resuming(line: str) -> bool:
    told = f"ocm: score {NAME} trained: interrupted; resumes at iteration "
    return line.startswith(told) and line.endswith("0 of 100000")


def test_ctrl_c_ends_in_one_line(project: Project) -> None:
    command = ("ocm", "run", "score", NAME, "trained", "--log", "score.log")
    code, (*before, last) = interrupted_while_training(project, *command)
    assert code == 130 and is_about_resuming(last)
    assert all(" INFO " in line for line in before)


def test_ctrl_c_on_snakemake_ends_in_the_job_s_one_line(project: Project) -> None:
    code, said = interrupted_while_training(project, "snakemake", "--cores", "1")
    assert code == 1 and sum(map(is_about_resuming, said)) == 1, "\n".join(said)
    after = said[[*map(is_about_resuming, said)].index(True) + 1 :]
    assert after == [], "\n".join(said)
