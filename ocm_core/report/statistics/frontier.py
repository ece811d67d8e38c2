"""The frontier: what can be had for a budget of network evaluations, by our samplers and by rivals.

A route is a sampler with a covariance method. Rivals are the solvers of diffusers, which have none.
At each budget the best of ours is set against the best of theirs, in pairs that share their seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import isfinite

import xarray as xr

from ocm_core.report.statistics.estimates import Estimate, estimate
from ocm_core.report.statistics.image_results import ImageResults


@dataclass(frozen=True)
class Route:
    """A way to sample."""

    sampler: str
    method: str
    is_rival: bool

    @property
    def label(self) -> str:
        return self.sampler if self.is_rival else f"{self.sampler}, {self.method}"


@dataclass(frozen=True)
class Duel:
    """The best of both sides at one budget, and the first less the second."""

    evaluations: int
    ours: Route
    rival: Route
    means: tuple[float, float]
    gap: Estimate


@dataclass(frozen=True)
class Frontier:
    """One measure at one guidance scale."""

    values: xr.DataArray  # over sampler, method, steps and seed
    rivals: frozenset[str]  # samplers
    higher: bool = False  # higher is better

    @classmethod
    def of(
        cls, results: ImageResults, key: str, guidance: float, rivals: frozenset[str]
    ) -> Frontier:
        values = results.dataset[key].sel(guidance=guidance, drop=True)
        return cls(values.dropna("steps", how="all"), rivals, results.measures[key].higher)

    @cached_property
    def routes(self) -> list[Route]:
        known = self.values.notnull().any(("steps", "seed"))
        return [
            Route(str(sampler), str(method), str(sampler) in self.rivals)
            for sampler in known["sampler"].values
            for method in known["method"].values
            if bool(known.sel({"sampler": sampler, "method": method}))
        ]

    @cached_property
    def _means(self) -> dict[Route, dict[int, float]]:
        """Over seeds: by route and budget."""
        means = self.values.mean("seed", skipna=False).transpose("sampler", "method", "steps")
        samplers, methods, steps = (means[axis].values.tolist() for axis in means.dims)
        return {
            route: dict(
                zip(
                    steps,
                    means.values[
                        samplers.index(route.sampler), methods.index(route.method)
                    ].tolist(),
                    strict=True,
                )
            )
            for route in self.routes
        }

    def of_route(self, route: Route) -> xr.DataArray:
        """Over steps and seed, where it was sampled."""
        at = {"sampler": route.sampler, "method": route.method}
        return self.values.sel(at, drop=True).dropna("steps", how="all")

    def seeds(self, route: Route, evaluations: int) -> xr.DataArray | None:
        """Its values at one budget, over seeds; None where it was not sampled."""
        known = self.of_route(route) if route in self.routes else None
        if known is None or evaluations not in known["steps"]:
            return None
        return known.sel(steps=evaluations, drop=True)

    def mean(self, route: Route, evaluations: int) -> float:
        return self._means[route][evaluations]

    def best(self, evaluations: int, *, rival: bool) -> Route | None:
        """Of one side at one budget, by the mean over seeds; None where nothing was sampled."""
        sign = -1.0 if self.higher else 1.0
        means = {r: self.mean(r, evaluations) for r in self.routes if r.is_rival == rival}
        finite = {route: sign * value for route, value in means.items() if isfinite(value)}
        return min(finite, key=finite.__getitem__, default=None)

    def duels(self) -> Iterator[Duel]:
        for k in self.values["steps"].values.tolist():
            ours, rival = self.best(k, rival=False), self.best(k, rival=True)
            if ours and rival:
                one, other = (self.of_route(route).sel(steps=k) for route in (ours, rival))
                means = (self.mean(ours, k), self.mean(rival, k))
                yield Duel(int(k), ours, rival, means, estimate(one - other))

    def leaders(self) -> list[Route]:
        """Every route that is the best of its side at some budget, ours first."""
        budgets = self.values["steps"].values.tolist()
        best = [self.best(k, rival=rival) for rival in (False, True) for k in budgets]
        return list(dict.fromkeys(route for route in best if route))
