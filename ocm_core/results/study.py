"""The results of one experiment by setting, nfe and method: who is best where.

Samplers that take the same steps, listed apart only because some methods are too expensive for
every nfe, are one sampler here. Learned heads of the papers' form, and heads relative to a
baseline, are families: the paper's claims are about heads of its own form, and a comparison within
one family compares like with like.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from math import log
from typing import TYPE_CHECKING, Any, NamedTuple

from ocm_core.results.measures import SPACES, Measure, Registry
from ocm_core.results.metrics import is_guided
from ocm_core.results.replicates import Comparison, Estimate, Replicates, replicates
from ocm_core.results.table import Results
from ocm_core.text import plural

if TYPE_CHECKING:
    from ocm_core.covariance import CovarianceMethod

SampleKey = tuple[str, str, int]  # sampler, method, nfe
HEADS = ("npr", "sn", "ocm")  # kinds of methods that the papers train a head for
USUAL = "beta_tilde"  # the variance that DDPM is usually sampled with
SHEET_NFE = (5, 10, 25)  # of the samples that are seen first: where methods differ
TABLE_NFE = (5, 10, 25, 100)
_PUBLISHED = ("none",)


class Setting(NamedTuple):
    """Where methods are compared: a pane of a figure, or a group of a table."""

    score: str
    sampler: str
    timesteps: str  # the rule, where there is no sampler
    guidance: float | None


Columns = dict[int, Comparison]  # by nfe, or by timestep
Grid = dict[Setting, Columns]


@dataclass(frozen=True)
class Route:
    """A way to sample: a sampler with a covariance method, or a solver of diffusers."""

    sampler: str
    method: str
    is_solver: bool = False

    @property
    def label(self) -> str:
        """Name it, a solver without its method."""
        return self.sampler if self.is_solver else f"{self.sampler}, {self.method}"


class MethodGroup(NamedTuple):
    """A pane of a figure, or a group of a table: lines that are compared."""

    place: str
    columns: Columns
    setting: Setting
    routes: Mapping[str, Route]  # of samplers with one method, by label; else none


@dataclass(frozen=True)
class Method:
    """A labelled covariance method."""

    label: str
    kind: str
    options: Mapping[str, Any]
    family: tuple[str, ...] | None = None  # the form of a head of `HEADS`

    @property
    def is_relative(self) -> bool:
        """Tell whether it is a head relative to a baseline."""
        return self.family not in (None, _PUBLISHED)

    @property
    def known(self) -> type[CovarianceMethod]:
        """Return its class, which says what the method is."""
        return _class_of(self.kind)


@cache
def _class_of(kind: str) -> type[CovarianceMethod]:
    """Return the class of a kind; one that is gone, or of another project, is the general one."""
    from ocm_core.covariance import CovarianceMethod, available, class_of

    return class_of(kind) if kind in available() else CovarianceMethod


class Study:
    """Results with the parameters that made them."""

    def __init__(self, results: Results, params: Mapping[str, Any], registry: Registry) -> None:
        self.params, self.registry = params, registry
        self.raw = results
        names = self.recipe_names
        self.results = Results(
            row._replace(sampler=names.get(row.sampler, row.sampler)) for row in results
        )

    def param(self, path: str, default: Any = None) -> Any:
        """Look a parameter up by its dotted key."""
        tree: Any = self.params
        for key in path.split("."):
            if not isinstance(tree, Mapping) or tree.get(key) is None:
                return default
            tree = tree[key]
        return tree

    @cached_property
    def recipe_names(self) -> dict[str, str]:
        """Name, for each sampler, the first one that takes the same steps."""
        firsts: dict[str, str] = {}
        samplers: Mapping[str, Mapping[str, Any]] = self.param("sample.samplers", {})
        own = ("grids", "methods")
        recipes = {
            label: repr({k: v for k, v in sampler.items() if k not in own})
            for label, sampler in samplers.items()
        }
        return {label: firsts.setdefault(recipe, label) for label, recipe in recipes.items()}

    @cached_property
    def solvers(self) -> frozenset[str]:
        """Return the samplers that are solvers of diffusers."""
        samplers = self.param("sample.samplers", {}).items()
        return frozenset(k for k, sampler in samplers if sampler["kind"] == "diffusers")

    def route(self, sampler: str, method: str) -> Route:
        """Return a way to sample."""
        return Route(sampler, method, sampler in self.solvers)

    @cached_property
    def methods(self) -> dict[str, Method]:
        """Return the methods, heads of one family together: charts and tables follow this order."""
        given: dict[str, Mapping[str, Any]] = {**self.param("methods", {})}
        given |= {m: {"kind": m} for m in self.results.distinct("method") if m not in given}
        families = {label: self._family(method) for label, method in given.items()}
        labels = _families_together(families)
        own = ("kind", "needs", "head", "init")
        return {
            label: Method(
                label,
                str(given[label]["kind"]),
                {k: v for k, v in given[label].items() if k not in own},
                families[label],
            )
            for label in labels
        }

    def _family(self, method: Mapping[str, Any]) -> tuple[str, ...] | None:
        if method["kind"] not in HEADS:
            return None
        form = method.get("head") or self.param("head", {})
        if form.get("baseline", "none") == "none":
            return _PUBLISHED
        return tuple(str(form.get(key)) for key in ("baseline", "link", "unit"))

    def family_of(self, key: str) -> dict[str, str]:
        """Name the heads that claims by a measure are about: label by kind.

        The first family whose OCM head was measured, else the first of which any head was.
        """
        measured = {*self.results.select(measure=key).distinct("method")}
        families: dict[tuple[str, ...], dict[str, str]] = {_PUBLISHED: {}}
        for method in self.methods.values():
            if method.family and method.label in measured:
                families.setdefault(method.family, {}).setdefault(method.kind, method.label)
        with_ocm = (labels for labels in families.values() if "ocm" in labels)
        with_any = (labels for labels in families.values() if labels)
        found = next(with_ocm, None) or next(with_any, None) or {}
        return {kind: found.get(kind, kind) for kind in HEADS}

    def comparable(self, key: str) -> set[str]:
        """Return the methods that claims by a measure may compare: no heads of other families."""
        chosen = self.methods.get(self.family_of(key)["ocm"])
        family = chosen.family if chosen else None
        return {m.label for m in self.methods.values() if m.family in (None, family)}

    @cached_property
    def measures(self) -> list[Measure]:
        """Return the measures of the table, in the order of the registry."""
        return self.registry.ordered(self.results.distinct("measure"))

    def has(self, key: str) -> bool:
        """Tell whether a measure has any value."""
        return key in self.grids

    @cached_property
    def quality(self) -> Measure | None:
        """Return what samples are ranked by: the first measure that has a value for each seed."""
        ranked = (m for m in self.measures if m.replicate == "seed" and m.better and m.shown)
        return next(ranked, None)

    @cached_property
    def score(self) -> str:
        """Return the score that summaries are about: the last one."""
        return str(["", *self.results.distinct("score"), *self.param("network.scores", [])][-1])

    @property
    def scores(self) -> list[str]:
        """Return the scores that were measured."""
        return self.results.distinct("score")

    @cached_property
    def is_guided(self) -> bool:
        """Tell whether any guidance but 1 was used."""
        return is_guided(self.results)

    @cached_property
    def guidance(self) -> float | None:
        """Return the least guidance scale of the samples."""
        key = self.quality.key if self.quality else ""
        return min(self.results.select(measure=key).distinct("guidance"), default=None)

    @cached_property
    def grids(self) -> dict[str, Grid]:
        """Compare methods by each measure in each setting at each nfe or timestep."""
        return {key: self._grid(rows) for (key,), rows in self.results.groups("measure").items()}

    def _grid(self, rows: Results) -> Grid:
        cells: dict[Setting, dict[int, dict[str, Replicates]]] = {}
        columns = ("score", "sampler", "timesteps", "guidance", "nfe", "method")
        for (score, sampler, rule, guidance, nfe, method), found in rows.groups(*columns).items():
            per_timestep = nfe is None and rule.isdigit()
            x = int(rule) if per_timestep else (nfe or 0)
            shown = "" if per_timestep or sampler else rule
            setting = Setting(score, sampler, shown, guidance)
            cells.setdefault(setting, {}).setdefault(x, {})[method] = replicates(found)
        higher, order = self.registry[rows[0].measure].higher, [*self.methods, ""]
        unit = "nfe" if any(row.nfe is not None for row in rows) else "t ="
        return {
            setting: {
                x: Comparison(f"{unit} {x}", {m: by_x[x][m] for m in order if m in by_x[x]}, higher)
                for x in sorted(by_x)
            }
            for setting, by_x in cells.items()
        }

    def groups(self, key: str) -> Iterator[MethodGroup]:
        """Split a measure into settings with several methods, then samplers that have one."""
        alone: dict[Setting, dict[int, dict[str, Replicates]]] = {}
        routes: dict[str, Route] = {}
        for setting, columns in self.grids[key].items():
            labels = {label for at in columns.values() for label in at.entries}
            if len(labels) > 1 or not setting.sampler:
                yield MethodGroup(self.place(setting), columns, setting, {})
                continue
            route = self.route(setting.sampler, *labels)
            routes[route.label] = route
            merged = alone.setdefault(setting._replace(sampler=""), {})
            for x, at in columns.items():
                merged.setdefault(x, {})[route.label] = next(iter(at.entries.values()))
        higher = self.registry[key].higher
        for setting, by_x in alone.items():
            place = ", ".join(filter(None, ("one covariance each", self.place(setting))))
            found = {x: Comparison("", by_x[x], higher) for x in sorted(by_x)}
            yield MethodGroup(place, found, setting, routes)

    def is_over_time(self, key: str) -> bool:
        """Tell whether a measure is one per timestep and not per nfe."""
        return not self.results.select(measure=key).distinct("nfe")

    def place(self, setting: Setting) -> str:
        """Name a setting: `DDPM, exact score`, `even timesteps`, `DDPM, guidance 1.5`."""
        parts = [
            setting.sampler.upper(),
            f"{setting.timesteps} timesteps" if setting.timesteps else "",
            f"{setting.score} score" if len(self.scores) > 1 and setting.score else "",
            f"guidance {setting.guidance:g}" if self.is_guided and setting.guidance else "",
        ]
        return ", ".join(part for part in parts if part)

    def small_print(self, measure: Measure) -> str:
        """Say how a measure was made: a part of every caption that shows one."""
        if measure.replicate != "seed":
            items = {"image": "test images", "point": "points"}.get(measure.replicate or "", "")
            return f"± one standard error over {items}." if items else ""
        rows = self.raw.select(measure=measure.key)
        seeds = {row.replicate.partition("/")[0] for row in rows if row.replicate}
        blocks = {row.replicate for row in rows if "/" in row.replicate}
        count = self.param("sample.count", "?")
        if len(seeds) == 1 and blocks:
            number = len({name.partition("/")[2] for name in blocks})
            return (
                f"{count} samples a cell, of one seed; ± one standard error, by a jackknife over "
                f"{number} blocks."
            )
        listed = len(seeds) or len(self.param("sample.seeds", [0]))
        bars = ", ± one standard error" if listed > 1 else ""
        return f"{count} samples a cell; mean over {plural(listed, 'seed')}{bars}."

    def space_name(self, measure: Measure) -> str:
        """Name the feature space of a distance; nothing for measures without features."""
        space = measure.space or self.param("evaluate.distances.space", "")
        return SPACES.get(space, space) if self.param("evaluate.distances") else ""

    @cached_property
    def is_plane(self) -> bool:
        """Tell whether the data are points of a plane."""
        return bool(self.param("data.kind") == "mixture")

    @cached_property
    def frontiers(self) -> dict[tuple[str, float | None], Frontier]:
        """Return what each nfe gets with the last score, by measure and guidance."""
        keys = [m.key for m in (self.quality, self.registry["recall"]) if m and self.has(m.key)]
        scales = self.results.distinct("guidance") or [None]
        found = {(key, scale): Frontier.of(self, key, scale) for key in keys for scale in scales}
        return {place: frontier for place, frontier in found.items() if frontier.columns}

    @property
    def frontier(self) -> Frontier | None:
        """Return that of the quality of samples at the least guidance."""
        return self.frontiers.get((self.quality.key, self.guidance)) if self.quality else None

    @cached_property
    def shown_samples(self) -> list[SampleKey]:
        """Return the samples of the first sheet, by the samplers' own names."""
        if not self.quality:
            return []
        routes = self._plane_routes() if self.is_plane else self._sheet_routes()
        nfes = self.results.select(measure=self.quality.key).distinct("nfe")
        shown = nearest(SHEET_NFE, nfes)
        rows = self.raw.select(measure=self.quality.key, score=self.score or "", nfe=shown)
        keys = dict.fromkeys((row.sampler, row.method, row.nfe or 0) for row in rows)
        name = self.recipe_names
        return [
            key
            for route in routes
            for key in keys
            if (name.get(key[0], key[0]), key[1]) == (route.sampler, route.method)
        ]

    def _sheet_routes(self) -> list[Route]:
        """The best of this work at the fewest nfe, the published ways, and the best solver."""
        assert self.quality is not None
        ocm = self.family_of(self.quality.key)["ocm"]
        papers = [Route("ddpm", ocm), Route("ddpm", USUAL), Route("ddim", "delta")]
        best = solver = None
        if self.frontier:
            first = nearest(SHEET_NFE, [*self.frontier.columns])[0]
            best, solver = (self.frontier.best(first, solver=side) for side in (False, True))
        chosen = [route for route in (best, *papers, solver) if route]
        return list(dict.fromkeys(chosen))

    def _plane_routes(self) -> list[Route]:
        shown = [m.label for m in self.methods.values() if m.kind != "rademacher"]
        return [Route(s, m) for s in self.results.distinct("sampler") for m in shown]


@dataclass(frozen=True)
class Duel:
    """The best of this work and the best solver at one nfe, and the first less the second."""

    nfe: int
    ours: Route
    solver: Route
    gap: Estimate


@dataclass(frozen=True)
class Frontier:
    """Every way to sample, compared by one measure at each nfe."""

    measure: Measure
    routes: Mapping[str, Route]  # by label
    columns: Mapping[int, Comparison]  # by nfe; entries by the label of a route

    @classmethod
    def of(cls, study: Study, key: str, guidance: float | None) -> Frontier:
        """Collect the ways to sample with the last score at one guidance scale."""
        routes: dict[str, Route] = {}
        entries: dict[int, dict[str, Replicates]] = {}
        for setting, columns in study.grids[key].items():
            if setting.score not in ("", study.score) or setting.guidance != guidance:
                continue
            for nfe, column in columns.items():
                for method, cell in column.entries.items():
                    route = study.route(setting.sampler, method)
                    routes[route.label] = route
                    entries.setdefault(nfe, {})[route.label] = cell
        measure = study.registry[key]
        compared = {k: Comparison(f"nfe {k}", entries[k], measure.higher) for k in sorted(entries)}
        return cls(measure, routes, compared)

    def best(self, nfe: int, *, solver: bool) -> Route | None:
        """Return the best of one side; None where nothing was sampled."""
        side = [label for label, route in self.routes.items() if route.is_solver == solver]
        best = self.columns[nfe].best(side)
        return self.routes[best] if best else None

    def duels(self) -> Iterator[Duel]:
        """Set the best of this work against the best solver at every nfe that both have."""
        for nfe, column in self.columns.items():
            ours, solver = self.best(nfe, solver=False), self.best(nfe, solver=True)
            if ours and solver:
                yield Duel(nfe, ours, solver, column.gap(ours.label, solver.label))

    def leaders(self) -> list[Route]:
        """Return every way that is the best of its side at some nfe, solvers last."""
        best = [self.best(k, solver=side) for side in (False, True) for k in self.columns]
        return list(dict.fromkeys(route for route in best if route))

    def line(self, label: str) -> list[tuple[int, Estimate]]:
        """Return the estimates of one way along nfe."""
        return line(self.columns, label)


def line(columns: Mapping[int, Comparison], label: str) -> list[tuple[int, Estimate]]:
    """Return the estimates of one entry along nfe or time, where it was measured."""
    return [(x, at.entries[label].estimate) for x, at in columns.items() if label in at.entries]


def nearest(wanted: Collection[int], present: Collection[int]) -> list[int]:
    """Return the numbers that are nearest to those wanted, by their ratio."""
    return sorted({min(present, key=lambda k: (abs(log(k / w)), k)) for w in wanted if present})


def _families_together(families: Mapping[str, tuple[str, ...] | None]) -> list[str]:
    """Keep the order, but put all heads after the first of them, the published family first."""
    labels = [*families]
    order = dict.fromkeys([_PUBLISHED, *(family for family in families.values() if family)])
    heads = [label for family in order for label in labels if families[label] == family]
    first = min((labels.index(label) for label in heads), default=len(labels))
    rest = [label for label in labels if label not in heads]
    return [*rest[:first], *heads, *rest[first:]]
