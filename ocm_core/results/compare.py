"""Compare two revisions: results, beyond their noise or within it, and parameters.

Differences are judged as of independent runs: too cautiously where runs share seeds and images.
"""

import subprocess
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ocm_core.errors import OcmError
from ocm_core.io.reading import reading
from ocm_core.results.replicates import Estimate, Replicates, by_place, difference
from ocm_core.results.table import UNGUIDED, Results
from ocm_core.text import leaves, listed, plural, text_table

WORKING_TREE = "working tree"
COLUMNS = ("measure", "where", "before", "after", "change", "verdict")
_RESULTS, _PARAMS = _FILES = ("results.csv", "params.yaml")  # of a folder of reports/
_REMEDY = "restore it, or compare another revision"


class ChangeVerdict(Enum):
    """In the order of a table, and as a reader sees them."""

    BEYOND = "beyond noise"
    UNKNOWN = "no error known"
    NEW = "new"
    GONE = "gone"
    WITHIN = "within noise"
    SAME = "unchanged"


MINOR = (ChangeVerdict.WITHIN, ChangeVerdict.SAME)  # tables leave them out unless asked for all


class Number(NamedTuple):
    """One value of the table, before and after."""

    measure: str
    place: str
    before: float | None
    after: float | None
    gap: Estimate | None  # None where it is new or gone

    @property
    def verdict(self) -> ChangeVerdict:
        if self.gap is None:
            return ChangeVerdict.NEW if self.before is None else ChangeVerdict.GONE
        if repr(self.before) == repr(self.after):  # NaN equals itself here
            return ChangeVerdict.SAME
        if self.gap.is_finite and not self.gap.has_error:
            return ChangeVerdict.UNKNOWN
        return ChangeVerdict.WITHIN if self.gap.is_noise else ChangeVerdict.BEYOND

    @property
    def share(self) -> float:
        """Return the size of the change beside that of the values: orders unlike measures."""
        if not (self.gap and self.gap.is_finite and self.gap.mean):
            return 0.0
        return abs(self.gap.mean) / max(abs(self.before or 0.0), abs(self.after or 0.0))


class Changes(NamedTuple):
    """The changes of one experiment."""

    name: str
    numbers: tuple[Number, ...]
    parameters: tuple[tuple[str, Any, Any], ...]  # key, before, after

    @property
    def differ(self) -> bool:
        return bool(self.parameters) or any(n.verdict not in MINOR for n in self.numbers)

    @property
    def summary(self) -> str:
        counts = {v: sum(n.verdict is v for n in self.numbers) for v in ChangeVerdict}
        told = [f"{count} {v.value}" for v, count in counts.items() if count]
        params = [plural(len(self.parameters), "parameter")] if self.parameters else []
        return listed([*params, *told]) or "nothing to compare"

    def rows(self, *, everything: bool) -> list[tuple[str, ...]]:
        """Return a table of the numbers, those that changed most first."""
        rows = []
        for n in self.numbers:
            if everything or n.verdict not in MINOR:
                both = ("" if value is None else f"{value:.6g}" for value in (n.before, n.after))
                rows.append((n.measure, n.place, *both, str(n.gap or ""), n.verdict.value))
        return rows


class Revisions(NamedTuple):
    """All experiments of two revisions."""

    before: str
    after: str
    experiments: tuple[Changes, ...]

    def text(self, *, everything: bool) -> str:
        """Return the comparison for a terminal."""
        lines = [f"{self.before} → {self.after}"]
        for one in self.experiments:
            lines += ["", f"{one.name}: {one.summary}"]
            lines += [f"  {key}: {before} → {after}" for key, before, after in one.parameters]
            if rows := one.rows(everything=everything):
                lines += [f"  {line}" for line in text_table(COLUMNS, rows, ("before", "after"))]
        return "\n".join(lines if self.experiments else [*lines, "no results in either"])

    def tree(self, *, everything: bool) -> dict[str, Any]:
        """Return the comparison as plain data."""
        experiments = {}
        for one in self.experiments:
            rows = one.rows(everything=everything)
            experiments[one.name] = {
                "parameters": [[*map(str, change)] for change in one.parameters],
                "numbers": [dict(zip(COLUMNS, row, strict=True)) for row in rows],
            }
        return {**self._asdict(), "experiments": experiments}


def compare(root: Path, before: str, after: str | None = None) -> Revisions:
    """Compare two revisions of a repository; without `after`, the working tree."""
    old, new = _files(root, before), _files(root, after)
    found = [_changes(name, old.get(name, {}), new.get(name, {})) for name in sorted({*old, *new})]
    return Revisions(before, after or WORKING_TREE, tuple(found))


def _files(root: Path, revision: str | None) -> dict[str, dict[str, str]]:
    """Return the text of results and parameters of every experiment that has both."""
    commit = ""
    if revision is None:
        paths = [file.relative_to(root) for file in sorted(root.glob("reports/*/*"))]
    else:
        asked = ("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        commit = _git(root, *asked, say=f"{revision!r}: no such commit").decode().strip()
        listing = _git(root, "ls-tree", "-r", "--name-only", "-z", commit, "reports/")
        paths = [Path(path) for path in listing.decode("utf-8", "replace").split("\0")]
    found: dict[str, dict[str, str]] = {}
    for path in (path for path in paths if path.name in _FILES and len(path.parts) == 3):
        shown = ("show", f"{commit}:{path.as_posix()}")
        content = _git(root, *shown) if commit else (root / path).read_bytes()
        with reading(f"{path} of {revision or WORKING_TREE}", "text", _REMEDY):
            found.setdefault(path.parent.name, {})[path.name] = content.decode("utf-8")
    return {name: files for name, files in found.items() if {*files} == {*_FILES}}


def _git(root: Path, *arguments: str, say: str = "") -> bytes:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    if done.returncode:
        raise OcmError(say or f"git: {done.stderr.decode('utf-8', 'replace').strip()}")
    return done.stdout


def _changes(name: str, *both: Mapping[str, str]) -> Changes:
    """Compare the files of an experiment; one that a revision does not have has no files."""
    cells: list[dict[tuple[Any, ...], Replicates]] = []
    params: list[dict[str, Any]] = []
    for files in both:
        results, file = (f"reports/{name}/{file}" for file in _FILES)
        cells.append(by_place(Results.parse(files[_RESULTS], results)) if files else {})
        with reading(file, "parameters in YAML", _REMEDY):
            tree = yaml.safe_load(files[_PARAMS]) if files else {}
            # as DVC has it, null is as good as absent
            params.append({k: v for k, v in leaves(tree) if v is not None and v != {}})
    (was, now), (given, asked) = cells, params
    numbers = [_number(key, was.get(key), now.get(key)) for key in {**was, **now}]
    order = [*ChangeVerdict, *dict.fromkeys(number.measure for number in numbers)]
    numbers.sort(key=lambda n: (order.index(n.verdict), order.index(n.measure), -n.share))
    keys = [k for k in {**given, **asked} if given and asked and given.get(k) != asked.get(k)]
    return Changes(name, tuple(numbers), tuple((k, given.get(k), asked.get(k)) for k in keys))


def _number(key: tuple[Any, ...], old: Replicates | None, new: Replicates | None) -> Number:
    measure, score, sampler, timesteps, method, nfe, guidance = key
    rule = "" if sampler else f"t {timesteps}" if timesteps.isdigit() else timesteps
    scale = f"guidance {guidance:g}" if guidance not in (None, UNGUIDED) else ""
    parts = (score, sampler, rule, method, "" if nfe is None else f"nfe {nfe}", scale)
    before, after = (cell.estimate.mean if cell else None for cell in (old, new))
    gap = difference(new, old, paired=False) if old and new else None
    return Number(measure, ", ".join(filter(None, parts)), before, after, gap)
