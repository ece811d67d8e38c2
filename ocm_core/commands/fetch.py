"""Download, check and convert a published checkpoint.

A file that is in checkpoints/NAME already is not downloaded; a download is kept only if digest,
keys and shapes are right. docs/published.md says which files have to be put there by hand. Exits
with 1 if there is no file, or one that is not the published one.
"""

from __future__ import annotations

import argparse

from ocm_core.commands._arguments import add_json, as_json

EXAMPLES = """
  ocm fetch imagenet64
  ocm fetch imagenet256 --url file:///mnt/models/DiT-XL-2-256x256.pt
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="`ocm networks` lists them")
    parser.add_argument("--url", help="another place to download the same file from")
    parser.add_argument("--file", help="which of its published files, where there are several")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from ocm_core.checkpoints.convert import WEIGHTS, describe, fetch
    from ocm_core.checkpoints.registry import FOLDER, checkpoint_named
    from ocm_core.io.download import byte_bar
    from ocm_core.io.lock import Lock

    checkpoint = checkpoint_named(arguments.name)
    folder = FOLDER / checkpoint.name
    with byte_bar(checkpoint.name) as progress:
        wanted = {"file": arguments.file, "url": arguments.url}
        provenance = fetch(checkpoint, folder, Lock(), **wanted, progress=progress)
    weights = folder / WEIGHTS
    if arguments.json:
        print(as_json({"weights": str(weights), "provenance": provenance}))
    else:
        print(f"{weights}: {describe(provenance)}")
    return 0
