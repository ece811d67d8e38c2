"""Running benchmarks one after another, each from the same seed and in one thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from benchmarks.interface import Benchmark, Measurement
from benchmarks.timing import single_thread
from ocm_core.text import text_table

HEADS = ("benchmark", "what", "target", "measured", "spread", "holds")


def measured(benchmarks: Sequence[Benchmark]) -> Iterator[tuple[Benchmark, Measurement]]:
    with single_thread():
        for benchmark in benchmarks:
            torch.manual_seed(0)
            yield benchmark, Measurement.of(benchmark, benchmark.measure())


def table(benchmarks: Mapping[str, Benchmark], found: Mapping[str, Measurement]) -> str:
    rows = [row(benchmarks[name], measurement) for name, measurement in found.items()]
    return "\n".join(text_table(HEADS, rows))


def row(benchmark: Benchmark, measurement: Measurement) -> tuple[str, ...]:
    return (
        benchmark.name,
        benchmark.what,
        benchmark.target_words,
        number(measurement.ratio),
        spread(measurement),
        verdict(measurement),
    )


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def spread(measurement: Measurement) -> str:
    """Over the repeats; blank for what is counted."""
    if measurement.low == measurement.high:
        return ""
    return f"{number(measurement.low)} … {number(measurement.high)}"


def verdict(measurement: Measurement) -> str:
    if reason := measurement.details.get("not run"):
        return f"not run: {reason}"
    return "holds" if measurement.holds else "does not hold"
