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
    from ocm_core.checkpoints.convert import WEIGHTS, describe, fetch, without_digest
    from ocm_core.checkpoints.registry import FOLDER, checkpoint_named
    from ocm_core.io.download import byte_bar
    from ocm_core.io.fetched import taken_on_trust
    from ocm_core.io.lock import Lock

    checkpoint = checkpoint_named(arguments.name)
    folder = FOLDER / checkpoint.name
    expect, lock = _digest(arguments.expect), Lock()
    unknown_before = without_digest(checkpoint, lock)
    with byte_bar(checkpoint.name) as progress:
        wanted = {"file": arguments.file, "url": arguments.url, "expect": expect}
        provenance = fetch(checkpoint, folder, lock, **wanted, progress=progress)
    weights, trusted = folder / WEIGHTS, provenance["file"] in unknown_before and expect is None
    if arguments.json:
        found = {"weights": str(weights), "provenance": provenance, "taken_on_trust": trusted}
        print(as_json(found))
        return 0
    print(f"{weights}: {describe(provenance)}")
    if trusted:
        print(taken_on_trust(lock))
    return 0


def _digest(text: str | None) -> str | None:
    """Of `sha256=HEX`."""
    if text is None:
        return None
    name, _, value = text.partition("=")
    digest = value.lower()
    if name != "sha256" or len(digest) != _HEX_DIGITS or set(digest) - set(hexdigits):
        raise OcmError(f"--expect {text}: expected sha256= and 64 hexadecimal digits")
    return digest
