"""Compute what the paper's experiments take on a GPU.

Operations and bytes are counted on the networks and the code of this repository, and turned into
hours by data sheets and two assumptions. Nothing is measured.
"""

from __future__ import annotations

import argparse

from ocm_core.commands._arguments import add_json, at_least_one
from ocm_core.errors import OcmError

EXAMPLES = """
  ocm cost cifar10_ls
  ocm cost imagenet256 --utilisation 0.5 --json
  ocm cost imagenet256 --jobs --gpus 8 --gpus-per-job 8   # as `profiles/slurm` asks for them
  ocm cost --write                 # docs/cost.md, of all experiments
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", nargs="*", help="default: the paper's six")
    parser.add_argument(
        "--utilisation",
        type=_share,
        default=0.35,
        metavar="SHARE",
        help="of the GPU's peak arithmetic (default 0.35)",
    )
    parser.add_argument(
        "--bandwidth",
        type=_share,
        default=0.7,
        metavar="SHARE",
        help="of the GPU's memory bandwidth (default 0.7)",
    )
    parser.add_argument("--jobs", action="store_true", help="what each job asks of a cluster")
    parser.add_argument(
        "--gpus", type=at_least_one, default=8, metavar="N", help="with --jobs: of all jobs (8)"
    )
    parser.add_argument(
        "--gpus-per-job",
        type=at_least_one,
        default=1,
        metavar="N",
        help="with --jobs: of a stage that several processes can do together (1)",
    )
    parser.add_argument(
        "--gpu-model", default="A100-80GB", metavar="NAME", help="with --jobs (A100-80GB)"
    )
    add_json(parser)
    document = parser.add_mutually_exclusive_group()
    document.add_argument("--write", action="store_true", help="write docs/cost.md")
    document.add_argument("--check", action="store_true", help="say whether it is up to date")


def run(arguments: argparse.Namespace) -> int:
    from ocm_core.planning import cost_report
    from ocm_core.planning.roofline import Utilisation

    if arguments.write or arguments.check:
        if arguments.experiment:
            raise OcmError("cost: --write and --check are about all experiments; name none")
        outdated = cost_report.outdated()
        if arguments.write:
            cost_report.write()
        advice = "brought up to date" if arguments.write else "out of date; run `ocm cost --write`"
        print(f"{cost_report.FILE}: {advice if outdated else 'up to date'}")
        return 1 if outdated and arguments.check else 0
    if arguments.jobs:
        return _jobs(arguments)
    use = Utilisation(arguments.utilisation, arguments.bandwidth)
    found = cost_report.workloads(arguments.experiment)
    said = cost_report.as_json if arguments.json else cost_report.as_text
    print(said(found, use))
    return 0


def _jobs(arguments: argparse.Namespace) -> int:
    from ocm_core.planning import job_report

    machine = job_report.Cluster(arguments.gpus, arguments.gpus_per_job, arguments.gpu_model)
    said = job_report.as_json if arguments.json else job_report.as_text
    print(said(arguments.experiment, machine))
    return 0


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a share, above 0 and at most 1")
    return share
