"""Table of contents: each experiment runs fetch, encode, train, sample, evaluate and report.

The rules follow from the files of ocm_core/stages/, one rule a stage (workflow/rules/stages.smk).
Manifests are the only edges: an artifact without its manifest does not exist.
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
include: "workflow/rules/stages.smk"
include: "workflow/rules/messages.smk"


rule all:
    default_target: True
    input:
        expand("reports/{experiment}.html", experiment=active_names()),
        expand("reports/{experiment}/results.csv", experiment=active_names()),
