"""The tables of `ocm cost` and of docs/cost.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ocm_core.cells import Cell, cells
from ocm_core.planning.operation_counts import NOTHING, OperationCount
from ocm_core.planning.roofline import (
    A100,
    GPUS,
    H100,
    PRECISIONS,
    Gpu,
    GpuPrecision,
    Utilisation,
    roofline_time,
)
from ocm_core.planning.workload import StageWork, Workload
from ocm_core.text import text_table

TOO_LARGE = "too large"
WIDTH = 120  # columns of a terminal
SHOWN: tuple[tuple[Gpu, GpuPrecision], ...] = ((A100, "tf32"), (H100, "bfloat16"))


@dataclass(frozen=True)
class CostTable:
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def markdown(self) -> str:
        rule = ("---", *("---:" for _ in self.heads[1:]))
        return "\n".join(f"| {' | '.join(row)} |" for row in (self.heads, rule, *self.rows))

    def terminal(self) -> str:
        """Heads over several lines; columns that do not fit follow below, beside the first."""
        parts: list[list[int]] = [[0]]
        for column in range(1, len(self.heads)):
            if max(map(len, self._lines([*parts[-1], column]))) > WIDTH:
                parts.append([0])
            parts[-1].append(column)
        return "\n\n".join("\n".join(self._lines(columns)) for columns in parts)

    def _lines(self, columns: Sequence[int]) -> list[str]:
        heads = [self.heads[column].replace(", ", "\n").replace(": ", "\n") for column in columns]
        rows = [[row[column] for column in columns] for row in self.rows]
        return text_table(heads, rows, right=heads[1:])


def totals(workloads: Sequence[Workload], use: Utilisation) -> CostTable:
    kinds = [(gpu, precision) for gpu in GPUS for precision in PRECISIONS]
    heads = [f"{gpu.name}, {precision}" for gpu, precision in kinds]
    rows: list[tuple[str, ...]] = []
    for workload in workloads:
        hours = [_number(workload.hours(gpu, precision, use)) for gpu, precision in kinds]
        rows.append((workload.experiment.name, *hours))
    return CostTable(("GPU hours", *heads), rows)


def shares(workloads: Sequence[Workload], use: Utilisation) -> CostTable:
    """How the hours on an A100 divide among the stages, and how many the longest chains take."""
    rows: list[tuple[str, ...]] = []
    for workload in workloads:
        whole = workload.hours(A100, "tf32", use)
        by_stage = {
            work.stage: roofline_time(work.gpu, A100, "tf32", use).hours / whole
            for work in workload.stages()
        }
        count = workload.experiment.sample.count
        longest = max(cell.steps for cell in cells(workload.experiment))
        chosen = [cell for cell in cells(workload.experiment) if cell.steps == longest]
        long = sum((workload.one_sample(cell) * count for cell in chosen), NOTHING)
        part = roofline_time(long, A100, "tf32", use).hours / whole
        rest = 1 - sum(by_stage.get(stage, 0.0) for stage in _LARGE)
        rows.append(
            (
                workload.experiment.name,
                *(_percent(by_stage.get(stage, 0.0)) for stage in _LARGE),
                _percent(rest),
                f"{_percent(part)} (K = {longest})",
            )
        )
    return CostTable(("share of the hours", *_LARGE, "all else", "the longest chains"), rows)


_LARGE = ("heads", "selection", "sample", "evaluate_likelihood", "evaluate_images")


def networks(workloads: Sequence[Workload]) -> CostTable:
    heads = (
        *("network of", "parameters, M", "GFLOP", "in convolutions", "MB", "MB, fused"),
        *("FLOP / byte", "head", "training step"),
    )
    rows: list[tuple[str, ...]] = []
    for workload in workloads:
        counts, each = workload.counts, workload.counts.evaluation.each
        rows.append(
            (
                workload.experiment.name,
                f"{counts.parameters / 1e6:.2f}",
                f"{each.operations / 1e9:.1f}",
                _percent(each.convolutions / each.operations),
                f"{each.bytes / 1e6:,.0f}",
                f"{each.least_bytes / 1e6:,.0f}",
                f"{each.operations / each.bytes:.0f}",
                f"+ {100 * counts.head.each.operations / each.operations:.3f} %",
                f"× {counts.training.each.operations / each.operations:.2f}",
            )
        )
    return CostTable(heads, rows)


def memory(workloads: Sequence[Workload]) -> CostTable:
    """The batch sizes of the experiment, beside the largest that 80 GB hold."""
    rows: list[tuple[str, ...]] = []
    for workload in workloads:
        counts, train = workload.counts, workload.experiment.train
        room = A100.memory - 4 * counts.parameters
        most, most_trained = counts.evaluation.fitting(room), counts.training.fitting(room)
        sample, methods = workload.experiment.sample, workload.experiment.methods
        probed = any(workload.products(methods[c.method]) for c in cells(workload.experiment))
        most_sampled = most_trained if probed else most  # products with the Jacobian keep the graph
        has_moments = any(work.stage == "moments" for work in workload.stages())
        rows.append(
            (
                workload.experiment.name,
                f"{4 * counts.parameters / 1e9:.2f}",
                f"{counts.evaluation.each.memory / 1e6:.0f}",
                f"{counts.training.each.memory / 1e6:.0f}",
                _of(-(-train.heads.batch_size // train.heads.accumulate), most_trained),
                _of(sample.batch_size * (2 if sample.guided else 1), most_sampled),
                _of(train.moments.batch_size, most) if has_moments else "–",
            )
        )
    heads = (
        *("", "weights, GB", "an evaluation, MB", "a training item, MB"),
        *("training: batch of most", "sampling: batch of most", "moments: batch of most"),
    )
    return CostTable(heads, rows)


def host(workloads: Sequence[Workload], use: Utilisation) -> CostTable:
    """What the host must deliver per second so that one GPU never waits."""
    rows: list[tuple[str, ...]] = []
    for workload in workloads:
        for work in workload.stages():
            if work.stage not in ("heads", "selection", "sample", "evaluate_likelihood"):
                continue
            seconds = [roofline_time(work.gpu, gpu, kind, use).seconds for gpu, kind in SHOWN]
            drawn = [f"{work.drawn / each / 1e6:.1f}" for each in seconds]
            disk = [f"{work.disk / each / 1e6:.2f}" for each in seconds]
            rows.append((f"{workload.experiment.name}: {work.stage}", *drawn, *disk))
    kinds = [f"{gpu.name}, {precision}" for gpu, precision in SHOWN]
    drawn_heads = [f"10⁶ random values / s, {kind}" for kind in kinds]
    return CostTable(("", *drawn_heads, *(f"disk, MB / s, {kind}" for kind in kinds)), rows)


def single(workload: Workload, use: Utilisation) -> CostTable:
    """One training step, one sample of the shortest and the longest chain, one image's bound."""
    kinds = [(f"{gpu.name}, {precision}", gpu, precision) for gpu, precision in SHOWN]
    times = [head for name, *_ in kinds for head in (f"ms, {name}", f"limit, {name}")]
    rows: list[tuple[str, ...]] = []
    for name, count in _single(workload):
        found = [roofline_time(count, gpu, precision, use) for _, gpu, precision in kinds]
        shown = [cell for t in found for cell in (_number(1e3 * t.seconds), t.bottleneck)]
        size = (_number(count.operations / 1e9), _number(count.bytes / 1e9))
        rows.append((name, *size, _number(count.least_bytes / 1e9), *shown))
    return CostTable(("one", "GFLOP", "GB", "GB, fused", *times), rows)


def _single(workload: Workload) -> Iterator[tuple[str, OperationCount]]:
    experiment, methods = workload.experiment, workload.experiment.methods
    settings = experiment.train.heads
    learned = sum(method.needs == "head" for method in methods.values())
    heads = f"{learned} head{'s' * (learned > 1)}, {workload.counts.probes} probe"
    heads += "s" * (workload.counts.probes > 1)
    if learned:
        yield f"training step, batch {settings.batch_size} ({heads})", workload.training_step()
    drawn = cells(experiment)
    ours = next((c for c in drawn if (c.sampler, c.method) == ("ddpm", "ocm")), drawn[-1])
    own = [c for c in drawn if (c.sampler, c.method) == (ours.sampler, ours.method)]
    for cell in dict.fromkeys((min(own, key=_length), max(own, key=_length))):
        guided = ", guided" if cell.guidance != 1.0 else ""
        yield f"sample by `{cell.method}`, K = {cell.steps}{guided}", workload.one_sample(cell)
    if experiment.evaluate.likelihood:
        image, evaluations = workload.likelihood_image()
        yield f"NLL image, all cells ({evaluations:,} evaluations)", image


def stages(workload: Workload, use: Utilisation) -> CostTable:
    kinds = [(gpu, precision) for gpu in (A100, H100) for precision in PRECISIONS]
    rows = [_stage(work, kinds, use) for work in workload.stages()]
    whole = [_number(workload.hours(gpu, kind, use)) for gpu, kind in kinds]
    size = _size(sum((work.gpu for work in workload.stages()), NOTHING))
    rows.append(("all", *size, *whole, "", ""))
    hours = [f"h, {gpu.name}, {precision}" for gpu, precision in kinds]
    limits = [f"limit, {gpu.name}, {precision}" for gpu, precision in SHOWN]
    return CostTable(("stage", "PFLOP", "TB", *hours, *limits), rows)


def _stage(
    work: StageWork, kinds: Sequence[tuple[Gpu, GpuPrecision]], use: Utilisation
) -> tuple[str, ...]:
    if not work.gpu.operations:
        return (work.stage, "0", "0", *("0" for _ in kinds), *("disk" for _ in SHOWN))
    hours = [_number(roofline_time(work.gpu, gpu, kind, use).hours) for gpu, kind in kinds]
    limits = [roofline_time(work.gpu, gpu, kind, use).bottleneck for gpu, kind in SHOWN]
    return (work.stage, *_size(work.gpu), *hours, *limits)


def _length(cell: Cell) -> int:
    return cell.steps


def _size(count: OperationCount) -> tuple[str, str]:
    return _number(count.operations / 1e15), _number(count.bytes / 1e12)


def _of(batch: int, most: int) -> str:
    return f"{batch} of {most}" + (f", {TOO_LARGE}" if batch > most else "")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _number(value: float) -> str:
    """Three digits, and all of those before the point."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.2g}"
