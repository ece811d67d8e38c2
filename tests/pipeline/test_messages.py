"""What a run tells: a summary, how long, which page; of an error one message and no dump."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time

import pytest

from tests.pipeline.conftest import NAME, WIDER, Project


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


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("ocm", "run", "score", NAME, "trained", "--log", "score.log"), 130),
        (("snakemake", "--cores", "1"), 1),
    ],
)
def test_ctrl_c_ends_in_one_line_of_the_job(
    project: Project, command: tuple[str, ...], code: int
) -> None:
    project.edit({"train": {"score": {"iterations": 100_000}}})
    process = subprocess.Popen(
        command,
        cwd=project.root,
        env=project.env,
        stderr=subprocess.PIPE,
        text=True,
        # a shell's background job, and what it starts, would ignore Ctrl-C
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        start_new_session=True,
    )
    staging = project.root / f"artifacts/{NAME}/train/score/.trained.staging"
    while not (staging / "state/training.safetensors").exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all that run in it
    said = process.communicate()[1]
    told = rf"^ocm: score {NAME} trained: interrupted; resumes at iteration \d+0 of 100000$"
    assert process.returncode == code and len(re.findall(told, said, re.MULTILINE)) == 1, said
    assert "Traceback" not in said and not [*project.root.glob(".snakemake/locks/*")]
