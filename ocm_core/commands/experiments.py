"""Commands before a run: a first experiment, its parameters, what it needs, published networks."""

import re
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

from ocm_core.commands import JSON, MODEL, POSITIVE, argument, command, known, show
from ocm_core.errors import OcmError
from ocm_core.text import plural


@command(
    argument("experiment", "its name, which may end in presets", type=known),
    argument("override", "key=value, as in Hydra; replaces the value", nargs="*"),
    JSON,
)
def params(experiment: str, override: list[str], json: bool) -> None:
    """Print every parameter of an experiment, after defaults, files, presets and overrides.

    A name may end in presets, which are files of params/preset/: digits_seed2, cifar10_ls_smoke.

    examples:
      ocm params digits                                 as the stages see them
      ocm params digits_smoke                           in small: what the preset makes of them
      ocm params digits train.heads.learning_rate=1e-3  what an override would make of them
    """
    from ocm_core.params.compose import compose, dump  # imports Hydra and torch

    composed = compose(experiment, override)
    show(json, composed.model_dump(mode="json"), dump(composed)[:-1])


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not found or not float(found[1]):
        raise ArgumentTypeError(f"{text!r}: expected a time such as 90s, 15m or 2h")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


@command(
    argument("name", "of the experiment: lower case, digits and _"),
    argument(
        "--images PATH", "PNG, JPEG or WebP in a folder, zip or tar", type=Path, required=True
    ),
    MODEL,
    argument("--captions FILE", "CSV with file and caption", type=Path),
    argument("--side N", "of the images; default: the model's", type=POSITIVE),
    argument("--budget TIME", "shrink it to run in 90s, 15m or 2h here", type=_seconds),
    argument("--force", "write the experiment anew", action="store_true"),
    argument("--unchecked", "take a model that is no posterior mean", action="store_true"),
)
def init(**options: Any) -> None:
    """Begin an experiment on images of your own, and on a model of yours or a small one.

    Looks at both, writes params/experiment/NAME.yaml and what a project needs in this folder, and
    says what it found, how long it will take on this machine, and the command that runs it. Without
    --model a small score network is trained first. No file that exists is changed, but for
    .gitignore, which keeps images and model out of Git.

    examples:
      ocm init mine --images my-images
      ocm init mine --images my-images --model my-model
      ocm init quick --images my-images --model my-model --budget 15m
      ocm init first --images my-images.zip --side 16
    """
    from ocm_core.init.begin import begin

    for line in begin(**options):
        print(line, flush=True)


@command(
    argument("experiment", nargs="?", type=known),
    argument("--nodes N", "ask N nodes of a cluster instead", type=POSITIVE),
    JSON,
)
def doctor(experiment: str | None, nodes: int | None, json: bool) -> int:
    """Say what is installed, and what an experiment needs, before it starts.

    Packages against the pinned versions, devices, memory and disk; for an experiment its tasks, the
    files that it reads, the disk, the work and the time that it takes on this machine. Exits with 1
    if something is missing that the run cannot download itself, or is not what it should be.

    examples:
      ocm doctor                         this machine and this environment
      ocm doctor imagenet256             and what that experiment still needs
      ocm doctor digits --json
      ocm doctor --nodes 2               whether nodes of a SLURM cluster have what a job needs
    """
    from dataclasses import asdict

    from ocm_core.doctor.diagnosis import as_text, diagnose
    from ocm_core.doctor.machine import node_problems
    from ocm_core.pipeline.graph import graph_of

    if nodes:
        missing = node_problems(nodes)
        all_well = f"{plural(nodes, 'node')}: folder, environment, shared locks: yes"
        show(json, missing, "\n".join(missing) or all_well)
        return 1 if missing else 0
    diagnosis = diagnose(graph_of(experiment) if experiment else None)
    show(json, asdict(diagnosis), as_text(diagnosis))
    return 1 if diagnosis.problems else 0


@command(JSON)
def networks(json: bool) -> None:
    """Count the parameters of the published networks.

    Without and with a covariance head, beside the numbers of the paper.

    examples:
      ocm networks --json
    """
    from ocm_core.checkpoints.registry import CHECKPOINTS, counts, table

    rows = [counts(checkpoint) for checkpoint in CHECKPOINTS.values()]
    show(json, rows, table(rows))


@command(
    argument("name", "`ocm networks` lists them"),
    argument("--url", "another place to download the same file from"),
    argument("--file", "which of its published files, where there are several"),
    argument("--expect sha256=HEX", "refuse a file of another digest"),
    JSON,
)
def fetch(name: str, url: str | None, file: str | None, expect: str | None, json: bool) -> None:
    """Download, check and convert a published checkpoint.

    A file that is in checkpoints/NAME already is not downloaded; a download is kept only if digest,
    keys and shapes are right. docs/published.md says which files have to be put there by hand.

    examples:
      ocm fetch imagenet64
      ocm fetch imagenet256 --url file:///mnt/models/DiT-XL-2-256x256.pt
      ocm fetch celeba64 --expect sha256=DIGEST
    """
    if expect and not re.fullmatch(r"sha256=[0-9a-fA-F]{64}", expect):
        raise OcmError(f"--expect {expect}: expected sha256= and 64 hexadecimal digits")
    from ocm_core.checkpoints.convert import WEIGHTS, describe, fetch
    from ocm_core.checkpoints.registry import FOLDER, checkpoint_named
    from ocm_core.io.fetch import Lock

    checkpoint = checkpoint_named(name)
    folder = FOLDER / checkpoint.name
    digest = expect and expect.partition("=")[2].lower()
    provenance = fetch(checkpoint, folder, Lock(), file=file, url=url, sha256=digest)
    weights = folder / WEIGHTS
    tree = {"weights": str(weights), "provenance": provenance}
    show(json, tree, f"{weights}: {describe(provenance)}")
