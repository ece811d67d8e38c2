"""The benchmarks in their order."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from benchmarks.interface import Benchmark
from ocm_core.errors import OcmError, unknown

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
    "noop",
    "growth",
)


def suite() -> dict[str, Benchmark]:
    modules = (import_module(f"benchmarks.{name}") for name in _FILES)
    found = (benchmark for module in modules for benchmark in module.BENCHMARKS)
    return {benchmark.name: benchmark for benchmark in found}


def chosen(names: Sequence[str]) -> list[Benchmark]:
    """All of them, or those that are named."""
    known = suite()
    for name in names:
        if name not in known:
            raise OcmError(f"benchmark: {unknown(name, known)}")
    return [known[name] for name in names or known]
