"""Keep pages in Git, so that anyone can see them without running anything.

A kept page is reports/NAME.page.html.gz: the page without Plotly's bundle, which all pages share.
`make site` shows it, and `ocm index` takes the samples on its card from it. Commit it together
with the numbers.
"""

from __future__ import annotations

import argparse

EXAMPLES = """
  ocm keep                           the active experiments, after a run
  ocm keep toy_mog9 mnist_latent
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", nargs="*", help="the active ones if none is given")


def run(arguments: argparse.Namespace) -> int:
    from ocm_core.overview.kept import keep
    from ocm_core.params.resolved import active_names, load

    for name in arguments.experiment or active_names():
        file = keep(load(name).name)
        print(f"{file}: {file.stat().st_size / 1e6:.2f} MB")
    return 0
