"""The results of one experiment by setting, nfe and method: who is best where.

Samplers that take the same steps, listed apart because some methods are too expensive for every
nfe, are one here. Heads of one form are a family: within it, claims compare like with like.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import log
from typing import TYPE_CHECKING, Any, NamedTuple

from ocm_core.results.measures import SPACES, Measure, Registry
from ocm_core.results.replicates import Comparison, Estimate, Replicates, by_place
from ocm_core.results.table import Results
from ocm_core.text import plural

if TYPE_CHECKING:
    from ocm_core.covariance import CovarianceMethod

SampleKey = tuple[str, str, int]  # sampler, method, nfe
HEADS = ("npr", "sn", "ocm")  # kinds of methods that the papers train a head for
USUAL = "beta_tilde"  # the variance that DDPM is usually sampled with
SMOKE = "_smoke"  # how the names of experiments end that show that all stages run
LEAST = 100  # samples of each cell that claims can be decided with
SHEET_NFE = (5, 10, 25)  # of the samples that are seen first: where methods differ
TABLE_NFE = (5, 10, 25, 100)
_PUBLISHED: tuple[str, ...] = ("none",)  # the form of heads as in the papers
SOLVED = ("none", "solve")  # likewise, but solved for and not trained


class Setting(NamedTuple):
    """Where methods are compared: a pane of a figure, or a group of a table."""

    score: str
    sampler: str
    timesteps: str  # the rule, where there is no sampler
    guidance: float | None


Columns = dict[int, Comparison]  # by nfe, or by timestep
Grid = dict[Setting, Columns]


@dataclass(frozen=True)
class Method:
    """A labelled covariance method."""

    label: str
    kind: str
    options: Mapping[str, Any]
    family: tuple[str, ...] | None = None  # the form of a head of `HEADS`
    basis: str = ""  # of its correlation
    evaluations: int = 1  # of the network, in a step that draws: a product with the Jacobian is two

    @property
    def is_relative(self) -> bool:  # to a baseline
        return self.family is not None and self.family[0] != "none"

    @property
    def is_solved(self) -> bool:
        return self.family == SOLVED

    @cached_property
    def known(self) -> type[CovarianceMethod]:
        """Return its class; of a kind that is gone, or of another project, the general one."""
        from ocm_core.covariance import CovarianceMethod, available, class_of

        return class_of(self.kind) if self.kind in available() else CovarianceMethod


class Study:
    """Results with the parameters that made them."""

    def __init__(self, results: Results, params: Mapping[str, Any], registry: Registry) -> None:
        self.params, self.registry, self.raw = params, registry, results
        samplers: Mapping[str, Mapping[str, Any]] = self.param("sample.samplers", {})
        self.solvers = frozenset(k for k, v in samplers.items() if v["kind"] == "diffusers")
        names, firsts = dict[str, str](), dict[str, str]()
        for label, sampler in samplers.items():
            recipe = {k: v for k, v in sampler.items() if k not in ("grids", "methods")}
            names[label] = firsts.setdefault(repr(recipe), label)
        self.recipe_names = names  # for each sampler, the first one that takes the same steps
        self.results = Results(r._replace(sampler=names.get(r.sampler, r.sampler)) for r in results)
        self.measures = registry.ordered(self.results.distinct("measure"))
        ranked = (m for m in self.measures if m.ranks_samples and m.shown)
        self.quality = next(ranked, None)  # what samples are ranked by
        self.scores = self.results.distinct("score")
        self.score = str(["", *self.scores, *self.param("network.scores", [])][-1])  # of summaries
        ranking = self.results.select(measure=self.quality.key if self.quality else "")
        self.guidance: float | None = min(ranking.distinct("guidance"), default=None)  # likewise
        self.is_guided = self.results.is_guided
        self.is_plane = self.param("features") is None  # data are points, which have no features

    def param(self, path: str, default: Any = None) -> Any:
        tree: Any = self.params
        for key in path.split("."):
            tree = tree.get(key) if isinstance(tree, Mapping) else None
        return default if tree is None else tree

    @property
    def is_conclusive(self) -> bool:
        """Whether the numbers carry verdicts: those of smoke runs and of few samples do not."""
        smoke = str(self.param("name", "")).endswith(SMOKE)
        return not smoke and self.param("sample.count", LEAST) >= LEAST

    def route(self, sampler: str, method: str) -> str:
        """Name a way to sample: a sampler with a covariance method, or a solver of diffusers."""
        name = self.recipe_names.get(sampler, sampler)
        return name if name in self.solvers else f"{name}, {method}"

    @cached_property
    def methods(self) -> dict[str, Method]:
        """Return the methods, heads of one family together: charts and tables follow this order."""
        given: dict[str, Mapping[str, Any]] = {**self.param("methods", {})}
        given |= {m: {"kind": m} for m in self.results.distinct("method") if m not in given}
        found = {}
        for label, method in given.items():
            options = {k: method[k] for k in method if k not in ("kind", "needs", "head", "init")}
            form = method.get("head") or self.param("head", {})
            family = tuple(str(form.get(key)) for key in ("baseline", "link", "unit"))
            if form.get("baseline", "none") == "none":
                family = _PUBLISHED if form.get("fit", "train") == "train" else SOLVED
            kind, _, basis = str(method["kind"]).partition("+")
            products = options.get("probes", options.get("products", 0))
            evaluations = 1 + 2 * products if method.get("needs") == "nothing" else 1
            known = family if kind in HEADS else None
            found[label] = Method(label, kind, options, known, basis, evaluations)
        families = dict.fromkeys([_PUBLISHED, *(m.family for m in found.values() if m.family)])
        heads = [label for f in families for label, m in found.items() if m.family == f]
        first = next((i for i, label in enumerate(found) if label in heads), len(found))
        rest = [label for label in found if label not in heads]
        return {label: found[label] for label in [*rest[:first], *heads, *rest[first:]]}

    def family_of(self, key: str) -> dict[str, str]:
        """Name the heads that claims by a measure are about: label by kind.

        The first family whose OCM head was measured, else the first of which any head was.
        """
        return self.families_of(key)[0]

    def families_of(self, key: str) -> list[dict[str, str]]:
        """Return `family_of`, and the heads that were solved for if those are others."""
        measured = {*self.results.select(measure=key).distinct("method")}
        families: dict[tuple[str, ...], dict[str, str]] = {_PUBLISHED: {}}
        for method in self.methods.values():
            if method.family and not method.basis and method.label in measured:
                families.setdefault(method.family, {}).setdefault(method.kind, method.label)
        rank = sorted(families, key=lambda form: ("ocm" not in families[form], not families[form]))
        chosen = [rank[0], *(form for form in rank[1:] if form == SOLVED)]
        return [{kind: families[form].get(kind, kind) for kind in HEADS} for form in chosen]

    def comparable(self, ocm: str) -> set[str]:
        """Return what claims on this head may compare: diagonal, and no heads of other families."""
        family = self.methods[ocm].family if ocm in self.methods else None
        methods = (m for m in self.methods.values() if not m.basis)
        return {m.label for m in methods if m.family in (None, family)}

    def structured(self, measured: Collection[str]) -> dict[str, str]:
        """Return those methods with a basis that were measured beside the same without: to that."""
        pairs = {m.label: m.label.partition("+")[0] for m in self.methods.values() if m.basis}
        return {new: plain for new, plain in pairs.items() if {new, plain} <= {*measured}}

    @cached_property
    def grids(self) -> dict[str, Grid]:
        """Compare methods by each measure in each setting at each nfe or timestep."""
        cells: dict[str, dict[Setting, dict[int, dict[str, Replicates]]]] = {}
        for (key, score, sampler, rule, method, nfe, scale), here in by_place(self.results).items():
            per_timestep = nfe is None and rule.isdigit()
            x = int(rule) if per_timestep else (nfe or 0)
            setting = Setting(score, sampler, "" if per_timestep or sampler else rule, scale)
            cells.setdefault(key, {}).setdefault(setting, {}).setdefault(x, {})[method] = here
        return {
            key: {at: self._columns(key, by_x) for at, by_x in settings.items()}
            for key, settings in cells.items()
        }

    def evaluations(self, label: str) -> int:
        """Return the evaluations of the network that a step with a method takes."""
        return self.methods[label].evaluations if label in self.methods else 1

    def _columns(self, key: str, by_x: Mapping[int, Mapping[str, Replicates]]) -> Columns:
        """Compare the entries at each nfe or timestep, methods in their order."""
        columns, unit = {}, "t =" if self.is_over_time(key) else "nfe"
        for x, cells in sorted(by_x.items()):
            order = dict.fromkeys([*self.methods, *cells])
            entries = {label: cells[label] for label in order if label in cells}
            columns[x] = Comparison(f"{unit} {x}", entries, self.registry[key].higher)
        return columns

    def _by_route(self, key: str, grid: Grid) -> Columns:
        """Merge settings: every way to sample is an entry, at the evaluations that it takes."""
        merged: dict[int, dict[str, Replicates]] = {}
        for setting, columns in grid.items():
            for nfe, at in columns.items():
                for label, cell in at.entries.items():
                    cost = nfe * self.evaluations(label)
                    merged.setdefault(cost, {})[self.route(setting.sampler, label)] = cell
        return self._columns(key, merged)

    def groups(self, key: str) -> Iterator[tuple[str, Columns, Setting, list[str]]]:
        """Split a measure into settings with several methods, then samplers that have one.

        Yield a name, the columns, the setting, and the ways to sample if the lines are such.
        """
        alone, routes = dict[Setting, Grid](), list[str]()
        for setting, columns in self.grids[key].items():
            labels = {label for at in columns.values() for label in at.entries}
            if len(labels) == 1 and setting.sampler:
                routes.append(self.route(setting.sampler, *labels))
                alone.setdefault(setting._replace(sampler=""), {})[setting] = columns
            else:
                yield self.place(setting), columns, setting, []
        for setting, grid in alone.items():
            place = ", ".join(filter(None, ("one covariance each", self.place(setting))))
            yield place, self._by_route(key, grid), setting, routes

    def is_over_time(self, key: str) -> bool:
        """Tell whether a measure is one per timestep and not per nfe."""
        return not self.results.select(measure=key).distinct("nfe")

    def place(self, setting: Setting) -> str:
        """Name a setting: `DDPM, exact score`, `even timesteps`, `DDPM, guidance 1.5`."""
        score, sampler, rule, scale = setting
        source = f"{score} score" if len(self.scores) > 1 and score else ""
        guided = f"guidance {scale:g}" if self.is_guided and scale else ""
        parts = (sampler.upper(), f"{rule} timesteps" if rule else "", source, guided)
        return ", ".join(filter(None, parts))

    def small_print(self, measure: Measure) -> str:
        """Say how a measure was made: a part of every caption that shows one."""
        if measure.replicate != "seed":
            items = {"image": "test images", "point": "points"}.get(measure.replicate or "", "")
            return f"± one standard error over {items}." if items else ""
        names = self.raw.select(measure=measure.key).distinct("replicate")
        seeds, blocks = ({name.partition("/")[i] for name in names} - {""} for i in (0, 2))
        count = self.param("sample.count", "?")
        if len(seeds) == 1 and blocks:
            error = f"± one standard error, by a jackknife over {len(blocks)} blocks"
            return f"{count} samples a cell, of one seed; {error}."
        number = len(seeds) or len(self.param("sample.seeds", [0]))
        bars = ", ± one standard error" if number > 1 else ""
        return f"{count} samples a cell; mean over {plural(number, 'seed')}{bars}."

    def space_name(self, measure: Measure) -> str:
        """Name the feature space of a distance; nothing for measures without features."""
        space = measure.space or self.param("evaluate.distances.space", "")
        return SPACES.get(space, space) if self.param("evaluate.distances") else ""

    def sides(self, at: Comparison) -> tuple[str | None, str | None]:
        """Return the best of this work, and the best solver."""
        ours = at.best([label for label in at.entries if label not in self.solvers])
        return ours, at.best([label for label in at.entries if label in self.solvers])

    @cached_property
    def frontiers(self) -> dict[tuple[str, float | None], Frontier]:
        """Return what each nfe gets with the last score, by measure and guidance."""
        keys = [m.key for m in (self.quality, self.registry["recall"]) if m and m.key in self.grids]
        found = {}
        for key, scale in product(keys, self.results.distinct("guidance") or [None]):
            grid = self.grids[key].items()
            here = {s: c for s, c in grid if s.score in ("", self.score) and s.guidance == scale}
            if here:
                columns = self._by_route(key, here)
                asked = self.results.select(measure=key).distinct("nfe")
                at = {nfe: column for nfe, column in columns.items() if nfe in asked}
                sides = {nfe: self.sides(column) for nfe, column in at.items()}
                found[key, scale] = Frontier(self.registry[key], at, sides)
        return found

    @property
    def frontier(self) -> Frontier | None:  # of the quality of samples at the least guidance
        return self.frontiers.get((self.quality.key, self.guidance)) if self.quality else None

    @cached_property
    def shown_samples(self) -> list[SampleKey]:
        """Return the samples of the first sheet, by the samplers' own names."""
        if not self.quality:
            return []
        key, ocm = self.quality.key, self.family_of(self.quality.key)["ocm"]
        routes: list[str | None] = [f"ddpm, {ocm}", f"ddpm, {USUAL}", "ddim, delta"]
        if self.is_plane:
            shown = [m.label for m in self.methods.values() if m.kind != "rademacher"]
            routes = [self.route(s, m) for s in self.results.distinct("sampler") for m in shown]
        elif self.frontier:  # the best of this work at the fewest nfe first, the best solver last
            first = nearest(SHEET_NFE, [*self.frontier.columns])[0]
            best, solver = self.frontier.sides[first]
            routes = [best, *routes, solver]
        nfes = nearest(SHEET_NFE, self.results.select(measure=key).distinct("nfe"))
        rows = self.raw.select(measure=key, score=self.score, nfe=nfes)
        samples = dict.fromkeys((row.sampler, row.method, row.nfe or 0) for row in rows)
        return [k for r in dict.fromkeys(routes) for k in samples if self.route(*k[:2]) == r]


class Frontier(NamedTuple):
    """Every way to sample with the last score, compared by one measure at each nfe."""

    measure: Measure
    columns: Columns  # entries by the name of a way to sample
    sides: Mapping[int, tuple[str | None, str | None]]  # the best of this work, and of solvers

    def gaps(self) -> dict[int, Estimate]:
        """Return the best of this work less the best solver, at every nfe that has both."""
        return {k: self.columns[k].gap(a, b) for k, (a, b) in self.sides.items() if a and b}

    def leaders(self) -> list[str]:
        """Return every way that is the best of its side at some nfe, solvers last."""
        best = (pair[side] for side in (0, 1) for pair in self.sides.values())
        return list(dict.fromkeys(filter(None, best)))


def lines(columns: Columns) -> dict[str, list[tuple[float, Estimate]]]:
    """Return the estimates of every entry along nfe or time, where it was measured."""
    found: dict[str, list[tuple[float, Estimate]]] = {}
    for x, at in columns.items():
        for label, cell in at.entries.items():
            found.setdefault(label, []).append((x, cell.estimate))
    return found


def nearest(wanted: Collection[int], present: Collection[int]) -> list[int]:
    """Return the numbers that are nearest to those wanted, by their ratio."""
    return sorted({min(present, key=lambda k: (abs(log(k / w)), k)) for w in wanted if present})
