"""A comparison for the terminal, and as JSON with the words of `dvc metrics diff --json`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ocm_core.compare.changes import Changes, ChangeVerdict, Comparison, Number
from ocm_core.compare.recorded import Key
from ocm_core.text import listed, plural, text_table

COLUMNS = ("metric", "sampler", "method", "at", "before", "after", "change", "verdict")
_MOST = 5  # rows of each metric, unless everything is asked for
_PLACE = re.compile(r"(K|t|cfg)[\d.]+")


def terminal(comparison: Comparison, everything: bool) -> str:
    head = f"{comparison.before} → {comparison.after}"
    shown = [one for one in comparison.experiments if everything or one.differ]
    parts = [_experiment(one, everything) for one in shown]
    rest = old_numbers([one for one in comparison.experiments if one not in shown])
    parts += ["\n".join(rest)] if rest else []
    first = head if shown else f"{head}: no number and no parameter differs"
    return "\n\n".join([first, *parts])


def as_json(comparison: Comparison) -> str:
    tree = {
        "before": comparison.before,
        "after": comparison.after,
        "experiments": {
            one.name: {
                "numbers": one.state,
                "metrics": {".".join(n.key): _plain(n) for n in one.numbers},
                "params": {p.key: {"old": p.before, "new": p.after} for p in one.parameters},
            }
            for one in comparison.experiments
        },
    }
    return json.dumps(tree, indent=2)


def tally(changes: Changes) -> str:
    """One line: how many numbers there are, and what became of them."""
    counts = [(changes.count(verdict), verdict) for verdict in ChangeVerdict]
    said = listed([f"{count} {verdict.words}" for count, verdict in counts if count])
    old = f" from before ({changes.old})" if changes.old else ""
    return f"{plural(len(changes.numbers), 'number')}{old}: {said}" if said else "no numbers"


def old_numbers(found: Sequence[Changes]) -> list[str]:
    """A line per reason why numbers are from before, with the experiments."""
    reasons = dict.fromkeys(one.old for one in found if one.old)
    named = {why: ", ".join(one.name for one in found if one.old == why) for why in reasons}
    return [f"numbers from before ({why}): {names}" for why, names in named.items()]


def noteworthy(changes: Changes) -> list[Number]:
    """Those worth a row; the numbers of an experiment that is new or gone are only counted."""
    if all(number.change is None for number in changes.numbers):
        return []
    return [number for number in changes.numbers if not number.verdict.is_minor]


def split_key(key: Key) -> tuple[str, str, str, str]:
    """Metric, sampler (blank where a metric has none), method, and where: K10, t500, K10 cfg1.5."""
    metric, *names = key
    where = [name for name in names if _PLACE.fullmatch(name)]
    *samplers, method = [name for name in names if name not in where] or [""]
    return metric, " ".join(samplers), method, " ".join(where)


def change(number: Number) -> str:
    """`+0.013 ± 0.004 (+12 %)`, as far as it is known."""
    if number.change is None or number.before is None:
        return ""
    error = f" ± {number.error:.1g}" if number.error == number.error else ""
    percent = f" ({number.change / number.before:+.1%})" if number.before else ""
    return f"{number.change:+.3g}{error}{percent}"


def value(found: Any) -> str:
    return "—" if found is None else found if isinstance(found, str) else json.dumps(found)


def _plain(number: Number) -> dict[str, Any]:
    return {
        "old": number.before,
        "new": number.after,
        "diff": number.change,
        "error": number.error if number.error == number.error else None,
        "verdict": number.verdict.words,
    }


def _experiment(changes: Changes, everything: bool) -> str:
    rows = list(changes.numbers) if everything else _largest(noteworthy(changes))
    return "\n".join(_lines(changes, rows))


def _largest(numbers: Sequence[Number]) -> list[Number]:
    """Of each metric, so that one which changes everywhere does not hide the others."""
    by_metric: dict[str, list[Number]] = {}
    for number in numbers:
        by_metric.setdefault(number.key[0], []).append(number)
    kept = {number.key for found in by_metric.values() for number in found[:_MOST]}
    return [number for number in numbers if number.key in kept]


def _lines(changes: Changes, rows: Sequence[Number]) -> Iterator[str]:
    yield f"{changes.name}: {tally(changes)}"
    if changes.parameters:
        pairs = [(p.key, value(p.before), value(p.after)) for p in changes.parameters]
        yield from _indented(text_table(("parameter", "before", "after"), pairs))
    if changes.parameters and rows:
        yield ""
    if rows:
        cells = [
            (*split_key(n.key), _number(n.before), _number(n.after), change(n), n.verdict.words)
            for n in rows
        ]
        yield from _indented(text_table(COLUMNS, cells, right=("before", "after")))
    left_out = len(noteworthy(changes)) - len(rows)
    if left_out > 0:
        yield f"  … and {left_out} smaller changes; --all shows everything"


def _number(found: float | None) -> str:
    return "" if found is None else f"{found:.6g}"


def _indented(lines: Sequence[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
