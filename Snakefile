"""Table of contents: each experiment runs fetch, encode, train, sample, evaluate and report.

What a rule reads (inputs, parameters, sources) comes from ocm_core/pipeline/table.py, which also
generates dvc.yaml. Manifests are the only edges: an artifact without its manifest does not exist.
"""

import os
import sys
import time
from pathlib import Path

from snakemake.utils import min_version

from ocm_core.project import is_checkout

min_version("9.0")


configfile: "params/active.yaml"


# Rules call the `ocm` that belongs to the interpreter running Snakemake, in a checkout on its code.
os.environ.update(
    PATH=os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    ),
    **({"PYTHONPATH": str(workflow.basedir)} if is_checkout() else {}),
)
# What another run makes from now on is not made again (ocm_core/pipeline/run.py).
os.environ.setdefault("OCM_PLANNED", str(time.time()))


wildcard_constraints:
    experiment="[a-z][a-z0-9_]*",
    part="[A-Za-z0-9_.-]+",


include: "workflow/rules/common.smk"
include: "workflow/rules/messages.smk"
include: "workflow/rules/stage.smk"
include: "workflow/rules/fetch.smk"
include: "workflow/rules/encode.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/sample.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/report.smk"


check_asked()


# An edit in params/ is in the plan already; jobs read the resolved files. Not called in a dry run.
onstart:
    for file in write_if_edited():
        logger.info(f"{file}: brought up to date with params/")
    announce()


onsuccess:
    logger.info(record())
    conclude()


rule all:
    default_target: True
    input:
        expand(
            "reports/{experiment}.{kind}",
            experiment=active_names(),
            kind=["html", "metrics.json"],
        ),
