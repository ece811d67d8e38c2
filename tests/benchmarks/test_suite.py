"""The suite's mechanics: what holds, what is written, what a partial run replaces."""

import json
import re
from pathlib import Path

import pytest

from benchmarks import noop, suite
from benchmarks.__main__ import main
from benchmarks.growth import exponent
from benchmarks.interface import Benchmark, Measured, Outcome
from benchmarks.measuring import Comparison, interleaved
from benchmarks.page import page
from benchmarks.suite import row, run
from ocm_core.report.render import render

ROOT = Path(__file__).resolve().parents[2]
KEYS = {"ratio", "low", "high", "target", "holds", "details"}


def benchmark(name: str, found: Measured, target: float = 0.5) -> Benchmark:
    return Benchmark(name, f"what {name} is", "a baseline", target, lambda: found)


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Benchmark]:
    found = {
        "good": benchmark("good", Measured(0.4, 0.3, 0.6, {"sizes": [1, 10], "seconds": [1, 9]})),
        "bad": benchmark("bad", Measured(0.7, 0.6, 0.8)),
        "absent": benchmark("absent", Measured.not_run("no artifacts")),
    }
    monkeypatch.setattr(suite, "all_benchmarks", lambda: found)
    monkeypatch.chdir(tmp_path)
    return found


def recorded() -> dict[str, dict[str, object]]:
    return json.loads(Path("reports/benchmarks.json").read_text())


def test_all_are_recorded_and_only_the_named_are_replaced(fakes, capsys) -> None:
    assert main(["goood"]) == 1 and "did you mean 'good'" in capsys.readouterr().err
    assert not Path("reports").exists()
    assert main([]) == 1
    entries = recorded()
    assert list(entries) == ["good", "bad", "absent"]
    assert all(entry.keys() == KEYS for entry in entries.values())
    assert [entry["holds"] for entry in entries.values()] == [True, False, False]
    assert entries["absent"]["ratio"] is None
    out = capsys.readouterr().out
    assert "does not hold" in out and "not run: no artifacts" in out
    fakes["good"] = benchmark("good", Measured.exactly(0.1))
    assert main(["good", "--json"]) == 0
    entries = recorded()
    assert (entries["good"]["ratio"], entries["bad"]["ratio"]) == (0.1, 0.7)
    assert json.loads(capsys.readouterr().out) == {"good": entries["good"]}
    del fakes["bad"]  # no longer in the suite
    main(["good"])
    assert list(recorded()) == ["good", "absent"]


def test_the_page_and_the_rows_of_the_terminal(fakes) -> None:
    found = {b.name: m for b, m in run(list(fakes.values()))}
    assert row(fakes["good"], found["good"])[2:] == ("≤ 0.5", "0.4", "0.3 … 0.6", "holds")
    html = render(page(fakes, found))
    ids = re.findall(r'\bid="([^"]*)"', html)
    assert len(ids) == len({*ids})
    assert "1 target of 3 hold" in html and "not run: no artifacts" in html


@pytest.mark.parametrize(("ratio", "holds"), [(0.5, True), (0.500001, False), (None, False)])
def test_a_target_holds_up_to_itself(ratio: float | None, holds: bool) -> None:
    found = Outcome.of(benchmark("x", Measured(0, 0, 0)), Measured(ratio, ratio, ratio))
    assert found.holds is holds


def test_turns_are_taken_and_medians_compared() -> None:
    order: list[str] = []
    interleaved(
        lambda: order.append("a"), lambda: order.append("b"), 3, clock=lambda: 1.0 * len(order)
    )
    assert order == ["a", "b"] * 4
    found = Comparison([1.0, 2.0, 9.0], [4.0, 4.0, 3.0]).measured()
    assert (found.ratio, found.low, found.high) == (0.5, 0.25, 3.0)
    assert exponent([1, 2, 5, 10], [3, 12, 75, 300]) == pytest.approx(2.0)


@pytest.mark.parametrize(("state", "asked"), [("missing", []), ("up to date", [("--dry",)])])
def test_a_tool_with_something_to_do_is_not_timed(state: str, asked: list, monkeypatch) -> None:
    found: list[tuple[str, ...]] = []
    monkeypatch.setattr(noop, "states", lambda experiment: {"task": state})
    monkeypatch.setattr(noop.PipelineTool, "run", lambda self, *more: found.append(more) or "1 job")
    measured = noop._time(noop.TOOLS["dvc"])
    assert measured.ratio is None and found == asked
    assert ("make report" in measured.details["not run"]) == (state == "missing")


def test_every_benchmark_has_its_record() -> None:
    kept = json.loads((ROOT / "reports/benchmarks.json").read_text())
    assert list(kept) == list(suite.all_benchmarks())
