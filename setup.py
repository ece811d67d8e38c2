"""A wheel also holds what a project elsewhere takes from it: rules, profiles, parameters."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = (
    *("workflow", "profiles", "params", "reports/paper/results.csv"),
    *("dvc.yaml", ".dvcignore"),  # which `ocm init` copies
)
LEFT_OUT = shutil.ignore_patterns("__pycache__", "resolved", "active.yaml", "site")


class BuildWithProject(build_py):
    """Into `ocm_core/shipped`; an editable install finds them in the checkout."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for name in SHIPPED:
            source, target = Path(name), Path(self.build_lib, "ocm_core/shipped", name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=LEFT_OUT, dirs_exist_ok=True)
            else:
                shutil.copy2(source, target)


setup(cmdclass={"build_py": BuildWithProject})
