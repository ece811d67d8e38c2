"""Table of contents: each experiment runs fetch, encode, train, sample, evaluate and report.

What a rule reads (inputs, parameters, sources) comes from ocm_core/pipeline/table.py, which also
generates dvc.yaml. Manifests are the only edges: an artifact without its manifest does not exist.
"""

import os
import sys
from pathlib import Path

from snakemake.utils import min_version

min_version("9.0")


configfile: "params/active.yaml"


# Rules call the `ocm` that belongs to the interpreter running Snakemake, on the code of this checkout.
os.environ.update(
    PATH=os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    ),
    PYTHONPATH=str(workflow.basedir),
)


wildcard_constraints:
    experiment="[a-z][a-z0-9_]*",
    part="[A-Za-z0-9_.-]+",


include: "workflow/rules/common.smk"
include: "workflow/rules/stage.smk"
include: "workflow/rules/fetch.smk"
include: "workflow/rules/encode.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/sample.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/report.smk"


rule all:
    default_target: True
    input:
        expand("reports/{experiment}.html", experiment=config["active"]),
