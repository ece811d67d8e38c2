"""Begin an experiment on images of your own, and on a model of yours or a small one.

Looks at both, writes params/experiment/NAME.yaml and what a project needs in this folder, and says
what it found, how long it will take on this machine, and the command that runs it. Without --model
a small score network is trained first. No file that exists is changed, but for .gitignore, which
keeps images and model out of Git.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ocm_core.commands._arguments import at_least_one

EXAMPLES = """
  ocm init mine --images my-images
  ocm init mine --images my-images --model my-model
  ocm init first --images my-images.zip --side 16
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="of the experiment: lower case, digits and _")
    parser.add_argument(
        "--images",
        type=Path,
        required=True,
        metavar="PATH",
        help="a folder, zip or tar of PNG, JPEG or WebP files",
    )
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="as save_pretrained wrote it")
    parser.add_argument("--captions", type=Path, metavar="FILE", help="CSV with file and caption")
    parser.add_argument(
        "--side", type=at_least_one, metavar="N", help="of the images; default: the model's"
    )
    parser.add_argument("--force", action="store_true", help="write the experiment anew")


def run(arguments: argparse.Namespace) -> int:
    from ocm_core.init.begin import begin

    options = {key: getattr(arguments, key) for key in ("captions", "side", "force")}
    for line in begin(arguments.name, arguments.images, arguments.model, **options):
        print(line, flush=True)
    return 0
