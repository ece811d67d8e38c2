"""A benchmark with its target, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Unit = Literal["of the baseline", "s", "ms", "a step", "exponent", "difference"]


@dataclass(frozen=True)
class Measured:
    """The figure that is compared with the target, and its range over the repeats.

    A benchmark that could not be run says why, and counts as failed.
    """

    ratio: float | None
    low: float | None
    high: float | None
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def exactly(cls, ratio: float, **details: Any) -> Measured:
        """Of something that is counted and not timed, so that it has no range."""
        return cls(ratio, ratio, ratio, details)

    @classmethod
    def not_run(cls, reason: str) -> Measured:
        return cls(None, None, None, {"not run": reason})

    def less(self, known: float, **details: Any) -> Measured:
        """The excess over a known figure."""
        ratio, low, high = (
            None if x is None else x - known for x in (self.ratio, self.low, self.high)
        )
        return Measured(ratio, low, high, {**self.details, **details})


@dataclass(frozen=True)
class Benchmark:
    """A target holds if the measured figure is no larger: smaller is better in all benchmarks.

    "At least five times faster" is a ratio of at most 1/5.
    """

    name: str
    what: str
    baseline: str
    target: float
    measure: Callable[[], Measured]
    unit: Unit = "of the baseline"
    note: str = ""  # the target in other words

    @property
    def target_words(self) -> str:
        unit = f" {self.unit}" if self.unit in ("s", "ms", "a step") else ""
        words = f"≤ {self.target:.3g}{unit}"
        return f"{words} ({self.note})" if self.note else words


@dataclass(frozen=True)
class Outcome:
    """What was measured, and whether the target holds, as written to reports/benchmarks.json."""

    ratio: float | None
    low: float | None
    high: float | None
    target: float
    holds: bool
    details: Mapping[str, Any]

    @classmethod
    def of(cls, benchmark: Benchmark, measured: Measured) -> Outcome:
        holds = measured.ratio is not None and measured.ratio <= benchmark.target
        return cls(
            measured.ratio, measured.low, measured.high, benchmark.target, holds, measured.details
        )
