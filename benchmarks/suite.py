"""The benchmarks in their order, run one after another, and what came out as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module

import torch

from benchmarks.interface import Benchmark, Outcome
from benchmarks.measuring import single_thread
from ocm_core.errors import OcmError, unknown
from ocm_core.text import text_table

HEADS = ("benchmark", "what", "target", "measured", "spread", "holds")
_FILES = (
    "training_step",
    "covariance_error",
    "all_heads",
    "likelihood_table",
    "sampling_head",
    "frechet",
    "recall",
    "latents",
    "sampling_loop",
    "host_time",
    "shared_likelihood",
    "few_steps",
    "structured",
    "diffusers_adapter",
    "noop",
    "growth",
)


def all_benchmarks() -> dict[str, Benchmark]:
    """By name."""
    modules = (import_module(f"benchmarks.{name}") for name in _FILES)
    found = (benchmark for module in modules for benchmark in module.BENCHMARKS)
    return {benchmark.name: benchmark for benchmark in found}


def chosen(names: Sequence[str]) -> list[Benchmark]:
    """All of them, or those that are named."""
    known = all_benchmarks()
    for name in names:
        if name not in known:
            raise OcmError(f"benchmark: {unknown(name, known)}")
    return [known[name] for name in names or known]


def run(benchmarks: Sequence[Benchmark]) -> Iterator[tuple[Benchmark, Outcome]]:
    """Each from the same seed and in one thread."""
    with single_thread():
        for benchmark in benchmarks:
            torch.manual_seed(0)
            yield benchmark, Outcome.of(benchmark, benchmark.measure())


def table(benchmarks: Mapping[str, Benchmark], found: Mapping[str, Outcome]) -> str:
    rows = [row(benchmarks[name], outcome) for name, outcome in found.items()]
    return "\n".join(text_table(HEADS, rows))


def row(benchmark: Benchmark, outcome: Outcome) -> tuple[str, ...]:
    return (
        benchmark.name,
        benchmark.what,
        benchmark.target_words,
        number(outcome.ratio),
        spread(outcome),
        verdict(outcome),
    )


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def spread(outcome: Outcome) -> str:
    """Over the repeats; blank for what is counted."""
    if outcome.low == outcome.high:
        return ""
    return f"{number(outcome.low)} … {number(outcome.high)}"


def verdict(outcome: Outcome) -> str:
    if reason := outcome.details.get("not run"):
        return f"not run: {reason}"
    return "holds" if outcome.holds else "does not hold"
