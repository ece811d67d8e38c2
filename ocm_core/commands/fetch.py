"""Download, check and convert a published checkpoint.

A file that is in checkpoints/NAME already is not downloaded; a download is kept only if digest,
keys and shapes are right. docs/published.md says which files have to be put there by hand. Exits
with 1 if there is no file, or one that is not the published one.
"""

from __future__ import annotations

import argparse
from string import hexdigits

from ocm_core.commands._arguments import add_json, as_json
from ocm_core.errors import OcmError

_HEX_DIGITS = 64

EXAMPLES = """
  ocm fetch imagenet64
  ocm fetch imagenet256 --url file:///mnt/models/DiT-XL-2-256x256.pt
  ocm fetch celeba64 --expect sha256=DIGEST
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="`ocm networks` lists them")
    parser.add_argument("--url", help="another place to download the same file from")
    parser.add_argument("--file", help="which of its published files, where there are several")
    parser.add_argument("--expect", metavar="sha256=HEX", help="refuse a file of another digest")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from ocm_core.checkpoints.convert import WEIGHTS, describe, fetch
    from ocm_core.checkpoints.registry import FOLDER, checkpoint_named
    from ocm_core.io.fetch import Lock

    checkpoint = checkpoint_named(arguments.name)
    folder = FOLDER / checkpoint.name
    provenance = fetch(
        checkpoint,
        folder,
        Lock(),
        file=arguments.file,
        url=arguments.url,
        sha256=_digest(arguments.expect),
    )
    weights = folder / WEIGHTS
    if arguments.json:
        print(as_json({"weights": str(weights), "provenance": provenance}))
    else:
        print(f"{weights}: {describe(provenance)}")
    return 0


def _digest(text: str | None) -> str | None:
    """Return the digest in `sha256=HEX`."""
    if text is None:
        return None
    name, _, value = text.partition("=")
    digest = value.lower()
    if name != "sha256" or len(digest) != _HEX_DIGITS or set(digest) - set(hexdigits):
        raise OcmError(f"--expect {text}: expected sha256= and 64 hexadecimal digits")
    return digest
