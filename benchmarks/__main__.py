"""Measure speed and memory against targets, side by side with the published way.

Runs the benchmarks, or those that are named; writes reports/benchmarks.json and
reports/benchmarks.html. Exits with 1 if a target does not hold.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks import record, suite
from benchmarks.page import page
from ocm_core.errors import OcmError
from ocm_core.io.atomic import write_text
from ocm_core.report.render import render

EXAMPLES = """examples:
  python -m benchmarks
  python -m benchmarks frechet_time recall_5k --json"""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        chosen = suite.chosen(arguments.name)
    except OcmError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    known, fresh = suite.all_benchmarks(), {}
    for benchmark, outcome in suite.run(chosen):
        fresh[benchmark.name] = outcome
        print("  ".join(suite.row(benchmark, outcome)), file=sys.stderr, flush=True)
    merged = record.read() | fresh
    found = {name: merged[name] for name in known if name in merged}
    record.write(found)
    write_text(record.PAGE, render(page(known, found)))
    print(record.as_json(fresh) if arguments.json else suite.table(known, fresh))
    return 0 if all(outcome.holds for outcome in fresh.values()) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="*", help="default: all")
    parser.add_argument("--json", action="store_true", help="for scripts: JSON on stdout")
    return parser


if __name__ == "__main__":
    sys.exit(main())
