"""Measure speed and memory against targets, side by side with the published way.

Runs the benchmarks, or those that are named; writes reports/benchmarks.json and
reports/benchmarks.html. Exits with 1 if a target does not hold.
"""

from __future__ import annotations

import argparse
import sys

from ocm_core.commands._arguments import add_json

EXAMPLES = """
  ocm bench
  ocm bench frechet_time recall_5k --json
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="*", help="default: all")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from benchmarks import record
    from benchmarks.page import page
    from benchmarks.run import measured, row, table
    from benchmarks.suite import chosen, suite
    from ocm_core.report.page.render import render

    known, fresh = suite(), {}
    for benchmark, measurement in measured(chosen(arguments.name)):
        fresh[benchmark.name] = measurement
        print("  ".join(row(benchmark, measurement)), file=sys.stderr, flush=True)
    merged = record.read() | fresh
    found = {name: merged[name] for name in known if name in merged}
    record.write(found)
    record.PAGE.write_text(render(page(known, found)), encoding="utf-8")
    print(record.as_json(fresh) if arguments.json else table(known, fresh))
    return 0 if all(measurement.holds for measurement in fresh.values()) else 1
