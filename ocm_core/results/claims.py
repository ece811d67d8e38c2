"""The paper's claims as rows of data, each decided from the table of results and its errors.

A claim is checked in every setting that it is about, and has the verdict of its worst case. Without
its measure it is left out, without its methods undecided. Heads are compared within one family.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import pairwise
from math import inf, isfinite
from typing import Literal, NamedTuple

from ocm_core.results.replicates import NOISE, Comparison, Estimate
from ocm_core.results.study import Columns, Setting, Study, lines
from ocm_core.text import listed

Relation = Literal["below", "above", "much below", "best", "worst", "equals", "not above", "falls"]
MUCH = 1.0  # bits per dimension
OTHERS, FIXED = ("*",), ("fixed",)  # all other methods; the best fixed variance
STRUCTURED, PLAIN = "METHOD+BASIS", ("METHOD",)  # every method with a basis; the same without
_MOST = 4  # columns whose numbers a case lists


class Verdict(IntEnum):
    """From best to worst, so that the worst of several is their maximum."""

    HOLDS = 0
    NOISE = 1
    UNDECIDED = 2
    FAILS = 3

    @property
    def words(self) -> str:
        return ("holds", "within noise", "undecided", "does not hold")[self]


class ClaimCase(NamedTuple):
    """One setting where a claim was checked."""

    where: str
    numbers: str
    verdict: Verdict


class CheckedClaim(NamedTuple):
    """A claim, with the verdict of its worst case."""

    key: str
    short: str  # for the first screen
    text: str
    cases: tuple[ClaimCase, ...]
    of_paper: bool = True

    @property
    def verdict(self) -> Verdict:
        return max(case.verdict for case in self.cases)


class Claim(NamedTuple):
    """One row: `left` stands in a `relation` to each of `right`, by a measure, in some settings."""

    key: str
    measure: str  # of a bound on the likelihood, of images only
    left: str  # a method, or {ocm}, {npr}, {sn} for the heads of the family
    relation: Relation
    right: tuple[str, ...]
    nfe: tuple[float, float]  # from, to
    short: str
    text: str
    sampler: str | None = None  # None means any, here and below; for a bound the first timesteps
    score: str | None = None
    guided: bool | None = None  # with guidance, the smallest nfe only
    of_paper: bool = True


FEW, ALL, HEADS = (5, 10), (0, inf), ("{npr}", "{sn}")
CLAIMS = (
    Claim(
        *("a", "bits_per_dim", "{ocm}", "best", OTHERS, (25, inf)),
        "{ocm}'s lowest NLL from nfe 25 on",
        "From nfe 25 on, {ocm} has the lowest NLL, or is within one standard error of it.",
    ),
    Claim(
        *("b", "bits_per_dim", "{ocm}", "below", ("analytic", "beta"), FEW),
        "{ocm}'s lower NLL than analytic's and beta's at small nfe",
        "At nfe 5 to 10, {ocm} has a lower NLL than analytic and beta.",
    ),
    Claim(
        *("c", "bits_per_dim", "{ocm}", "much below", ("{sn}", "beta_tilde"), FEW),
        "much higher NLL of {sn} and beta_tilde at small nfe",
        f"At nfe 5 to 10, the NLL of {{sn}} and of beta_tilde is more than {MUCH:g} bits/dim above "
        "that of {ocm}.",
    ),
    Claim(
        *("d", "bits_per_dim", "*", "falls", OTHERS, ALL, "NLL falling with nfe"),
        "NLL falls with nfe, for every method.",
    ),
    Claim(
        *("e", "frechet", "beta", "worst", OTHERS, (0, 10), "beta's worst {name} at small nfe"),
        "Up to nfe 10, beta has the highest {name} with DDPM.",
        sampler="ddpm",
    ),
    Claim(
        *("f", "frechet", "{ocm}", "best", OTHERS, ALL, "{ocm}'s best {name} with DDPM"),
        "At every nfe, {ocm} has the lowest {name} with DDPM, or is within one standard error.",
        sampler="ddpm",
    ),
    Claim(
        *("g", "recall", "{ocm}", "above", ("beta_tilde",), FEW),
        "{ocm}'s higher recall than beta_tilde's at small nfe",
        "At nfe 5 to 10, {ocm} has a higher recall than beta_tilde.",
        *("ddpm", None, False),
    ),
    Claim(
        *("h", "recall", "{ocm}", "above", ("beta_tilde", "delta"), ALL),
        "{ocm}'s higher recall at every guidance",
        "At the smallest nfe and every guidance scale, {ocm} has a higher recall than beta_tilde "
        "(DDIM: delta).",
        guided=True,
    ),
    *(
        Claim(
            *(key, "covariance_error", "{ocm}", "not above", HEADS, ALL),
            f"{{ocm}}'s lower covariance error with the {score} score",
            f"With the {score} score, {{ocm}} has a lower covariance error than {{npr}} and {{sn}} "
            "at every t.",
            score=score,
        )
        for key, score in (("i", "exact"), ("j", "trained"))
    ),
    Claim(
        *("k", "mmd", "{ocm}", "equals", ("exact_diag",), (5, inf)),
        "{ocm} as good as exact_diag from nfe 5 on",
        "From nfe 5 on, {ocm} samples as well as exact_diag, within sampling noise.",
    ),
    Claim(
        *("l", "mmd", "{ocm}", "below", FIXED, FEW),
        "{ocm} better than fixed variances at small nfe",
        "At nfe 5 to 10, {ocm} beats the best fixed variance.",
    ),
    Claim(
        *("m", "mmd", "exact_full", "below", ("exact_diag",), (10, 10)),
        "exact_full better than exact_diag at nfe 10",
        "At nfe 10, exact_full beats exact_diag.",
    ),
    Claim(
        *("n", "mmd", "{ocm}", "not above", ("beta", "delta"), (2, 3)),
        "sensible samples at nfe 2 and 3",
        "Nfe 2 and 3 are finite for every method, and {ocm} is not worse than beta (DDIM: delta).",
    ),
    Claim(
        *("o", "bits_per_dim", STRUCTURED, "below", PLAIN, (0, 25), "lower NLL with correlation"),
        "Up to nfe 25, every method has a lower NLL with the correlation of a basis than without.",
        of_paper=False,
    ),
    Claim(
        *("p", "frechet", STRUCTURED, "below", PLAIN, (0, 25)),
        "lower {name} with correlation, by DDPM",
        "Up to nfe 25, every method has a lower {name} with DDPM and the correlation of a basis "
        "than without.",
        sampler="ddpm",
        of_paper=False,
    ),
)


def summary(checked: Sequence[CheckedClaim]) -> str:
    """Count the claims by verdict, in a sentence."""
    checked = [claim for claim in checked if claim.of_paper]
    counts = [sum(claim.verdict is verdict for claim in checked) for verdict in Verdict]
    words = ("hold", "within noise", "undecided", "do not hold")
    told = [f"{count} {word}" for count, word in zip(counts, words, strict=True) if count]
    return f"Of {len(checked)} claims of the paper, {listed(told)}." if checked else ""


def check(study: Study) -> Iterator[CheckedClaim]:
    """Decide every claim whose measure and setting the results have."""
    for claim in CLAIMS:
        key = "fid" if claim.measure == "frechet" and "fid" in study.grids else claim.measure
        about_heads = "{" in claim.left
        for heads in study.families_of(key)[: None if about_heads else 1]:
            names = {**heads, "name": study.registry[key].name}
            if cases := tuple(_checked(study, key, claim, names)):
                short, text = claim.short.format(**names), claim.text.format(**names)
                yield CheckedClaim(claim.key, short, text, cases, claim.of_paper)


def _checked(study: Study, key: str, claim: Claim, names: Mapping[str, str]) -> Iterator[ClaimCase]:
    """Yield the cases of a claim about the heads of one family."""
    left, *right = (name.format(**names) for name in (claim.left, *claim.right))
    allowed, settings, cases = study.comparable(names["ocm"]), [*_settings(study, key, claim)], 0
    for setting, columns in settings:
        measured = {label for at in columns.values() for label in at.entries}
        pairs = {left: right}
        if left == STRUCTURED:
            pairs = {new: [plain] for new, plain in study.structured(measured).items()}
        for one, others in pairs.items():
            like = {
                x: at._replace(
                    entries={m: e for m, e in at.entries.items() if m in allowed | {one, *others}}
                )
                for x, at in columns.items()
            }
            place = ", ".join(filter(None, (study.place(setting), one if one != left else "")))
            for case in _cases(study, claim.relation, place, like, one, others):
                cases += 1
                yield case
    if settings and not cases and left != STRUCTURED:
        missing = [name for name in (left, *right) if (name,) not in (OTHERS, FIXED)]
        yield ClaimCase("", f"not measured together: {listed(missing)}", Verdict.UNDECIDED)


def _settings(study: Study, key: str, claim: Claim) -> Iterator[tuple[Setting, Columns]]:
    """Find the settings of a claim; of several rules of timesteps, the first."""
    if claim.guided not in (None, study.is_guided) or (key == "bits_per_dim" and study.is_plane):
        return
    grid, (low, high) = study.grids.get(key, {}), claim.nfe
    first = next((setting.timesteps for setting in grid), "")
    for setting, columns in grid.items():
        chosen = {x: at for x, at in columns.items() if low <= x <= high}
        if claim.guided:
            chosen = dict(sorted(chosen.items())[:1])
        wanted = claim.sampler in (None, setting.sampler) and claim.score in (None, setting.score)
        by_solver = setting.sampler in study.solvers
        if chosen and wanted and setting.timesteps == first and not by_solver:
            yield setting, chosen


def _cases(
    study: Study, relation: Relation, place: str, columns: Columns, left: str, right: Sequence[str]
) -> Iterator[ClaimCase]:
    """Yield one case for each of `right`: its worst column, with numbers of a few or of one."""
    if relation == "falls":
        yield from _falls(place, columns, study)
        return
    for rival in right:
        found: list[tuple[Verdict, float, str]] = []
        for at in columns.values():
            other = _rival(study, at, left, rival, relation)
            if left in at.entries and other in at.entries:
                gap, verdict = _judge(relation, at, left, other)
                means = f"{left} {at.mean(left):.3g}, {other} {at.mean(other):.3g}"
                found.append((verdict, gap.clarity, f"{at.where}: {means} (difference {gap})"))
        if found:
            verdict, _, clearest = max(found, key=lambda one: one[:2])
            held = sum(one[0] is Verdict.HOLDS for one in found)
            numbers = f"holds at {held} of {len(found)}; clearest at {clearest}"
            if len(found) <= _MOST:
                numbers = "; ".join(words for *_, words in found)
            where = f"{place}{', ' if place else ''}against {rival}" if len(right) > 1 else place
            yield ClaimCase(where, numbers, verdict)


def _rival(study: Study, at: Comparison, left: str, right: str, relation: Relation) -> str:
    """Name the method that a column is compared with; "" where there is none."""
    methods = study.methods
    if (right,) == FIXED:
        return at.best([m for m in at.entries if methods[m].known.fixed_variance]) or ""
    if (right,) != OTHERS:
        return right
    kind = methods[left].kind if left in methods else left
    ranked = at.ranked([m for m in at.entries if m != left and methods[m].kind != kind])
    return ranked[-1 if relation == "worst" else 0] if ranked else ""


def _judge(relation: Relation, at: Comparison, left: str, right: str) -> tuple[Estimate, Verdict]:
    """Decide one column by the first less the second."""
    independent = relation in ("best", "equals")
    gap = at.gap(left, right, paired=not independent)
    if relation == "not above":  # nor may any method of the column have diverged
        finite = all(isfinite(at.mean(label)) for label in at.entries)
        if finite and not gap.has_error:
            return gap, Verdict.UNDECIDED
        noise = Verdict.NOISE if finite and gap.is_noise else Verdict.FAILS
        return gap, Verdict.HOLDS if finite and gap.mean <= 0 else noise
    if not (gap.is_finite and gap.has_error):
        return gap, Verdict.UNDECIDED if gap.is_finite else Verdict.FAILS
    if independent:  # best: at most one standard error of independent runs behind
        held = gap.mean <= gap.error if relation == "best" else gap.is_noise
        return gap, Verdict.HOLDS if held else Verdict.FAILS
    wanted = {"below": gap.mean, "much below": gap.mean + MUCH}.get(relation, -gap.mean)
    if wanted < -NOISE * gap.error:
        return gap, Verdict.HOLDS
    return gap, Verdict.NOISE if wanted <= NOISE * gap.error else Verdict.FAILS


def _falls(place: str, columns: Columns, study: Study) -> Iterator[ClaimCase]:
    """Check method by method; those that fall at every nfe in one case, if they have several."""
    falling = list[str]()
    found = {label: line for label, line in lines(columns).items() if len(line) > 1}
    if not found:
        yield ClaimCase(place, "no method was measured at two nfe", Verdict.UNDECIDED)
    for label in (m for m in study.methods if m in found):
        rises = [
            (Estimate(b.mean - a.mean, (a.error**2 + b.error**2) ** 0.5), f"nfe {x} to {y}")
            for (x, a), (y, b) in pairwise(found[label])
            if b.mean >= a.mean
        ]
        if rises:
            gap, where = max(rises, key=lambda rise: rise[0].clarity)
            verdict = Verdict.NOISE if gap.is_noise else Verdict.FAILS
            yield ClaimCase(f"{place}, {label}", f"rises from {where} by {gap}", verdict)
        else:
            falling.append(label)
    if falling:
        numbers = f"{listed(falling)}: lower at each nfe than at the one before"
        yield ClaimCase(f"{len(falling)} of {len(found)} methods", numbers, Verdict.HOLDS)
