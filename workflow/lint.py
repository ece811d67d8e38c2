"""`snakemake --lint` without one of its wishes: a conda environment or a container for each rule.

All rules have one environment, that of Snakemake itself: `.venv` with the pins of requirements.txt.
"""

from snakemake.cli import main
from snakemake.linting.rules import RuleLinter

del RuleLinter.lint_missing_software_definition
main(["--lint"])
