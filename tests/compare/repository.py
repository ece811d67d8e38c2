"""A small repository with two commits that differ in one parameter, and in what came of it.

Its code is this checkout's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from ocm_core.params.document import validate
from ocm_core.params.resolved import load, resolved_file
from ocm_core.pipeline.dvc_yaml import dvc_text
from ocm_core.pipeline.number_provenance import NumberProvenance

ROOT = Path(__file__).resolve().parents[2]
NAME = "digits"
RESOLVED = resolved_file(NAME)
METRICS = Path(f"reports/{NAME}.metrics.json")
PROVENANCE = Path(f"reports/{NAME}.provenance.json")

BEFORE: dict[str, Any] = {
    "fid": {"ddpm": {"ocm": {"K5": 8.0, "K10": 4.0, "K25": 3.0}, "beta": {"K5": 9.0}}},
    "fid_std": {"ddpm": {"ocm": {"K5": 0.2, "K10": 0.6, "K25": 0.3}, "beta": {"K5": 0.1}}},
    "nll_bpd": {"ddpm": {"ocm": {"K5": 5.25, "K10": 5.0}}},
}
AFTER: dict[str, Any] = {
    "fid": {"ddpm": {"ocm": {"K5": 7.0, "K10": 4.1, "K25": 3.0}, "sn": {"K5": 6.0}}},
    "fid_std": {"ddpm": {"ocm": {"K5": 0.3, "K10": 0.5, "K25": 0.3}, "sn": {"K5": 0.2}}},
    "nll_bpd": {"ddpm": {"ocm": {"K5": 5.2, "K10": 5.0}}},
}


def make(root: Path) -> None:
    """Both commits; the working tree is the second."""
    _run(root, "git", "init", "--quiet", "--initial-branch=main")
    _run(root, _tool("dvc"), "init", "--quiet")
    (root / "dvc.yaml").write_text(dvc_text([load(NAME)], [], {}, []))
    resolved = RESOLVED.read_text()
    rate = f"learning_rate: {load(NAME).train.heads.learning_rate}"
    head, tail = resolved.split("  heads:", 1)
    assert rate in tail
    (root / "ocm_core").symlink_to(ROOT / "ocm_core")
    _commit(root, resolved, BEFORE)
    _commit(root, f"{head}  heads:{tail.replace(rate, 'learning_rate: 0.125', 1)}", AFTER)


def dvc_diff(root: Path, what: str) -> Any:
    return json.loads(_run(root, _tool("dvc"), what, "diff", "--json", "HEAD~1", "HEAD"))


def _commit(root: Path, resolved: str, metrics: dict[str, Any]) -> None:
    numbers = json.dumps(metrics, indent=1)
    made = NumberProvenance.of(validate(yaml.safe_load(resolved), RESOLVED), numbers)
    for file, text in ((RESOLVED, resolved), (METRICS, numbers), (PROVENANCE, made.text)):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
    _run(root, "git", "add", "--all")
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    _run(root, "git", *identity, "commit", "--quiet", "--message", "results")


def _tool(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _run(root: Path, *command: str) -> str:
    env = {
        **os.environ,
        "DVC_SITE_CACHE_DIR": str(root / ".dvc/site"),
        "DVC_NO_ANALYTICS": "1",
    }
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout
