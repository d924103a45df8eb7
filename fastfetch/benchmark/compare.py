"""Two runs held against each other: the same clients on the same data, before and after a change, or here and there.

Readings of two runs were not taken in turns, so nothing pairs them: a ratio is that of the medians, B's over A's. What it lies
between comes from the ranks of the readings alone. Of the ratios of each reading of B to each of A, sorted, as many are left out
at both ends as leave a probability of 95 % or more for the rest (Hodges and Lehmann's interval, by the exact distribution of Mann
and Whitney's U). That assumes no bell curve and draws no random numbers: only that readings don't depend on one another, and that
both runs scatter alike. It does need readings: three in each run give 90 % at best, and with fewer there is no verdict.

What the readings can't know is what changed between the runs: a machine that was busier that hour has made all of B slower. Held
against another client's of the same round (`over`), most of that is gone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from fastfetch.benchmark.charts import alike, conflicts
from fastfetch.benchmark.results import MEASURES, Case, ResultsError, Run, Spread, spread

__all__ = ["METRICS", "TOO_FEW", "WORSE", "Comparison", "Line", "Ratio", "compare", "ratio"]

SURE = 0.95
LEAST = 0.9  # surer than that, or there is no verdict
LATENCIES = {"latency-p50": "p50", "latency-p99": "p99"}
METRICS = ("records", "cpu", "memory", *LATENCIES)

BETTER, WORSE, EQUAL, TOO_FEW = "better", "worse", "no difference shown", "too few readings"


@dataclass(frozen=True)
class Ratio:
    """Of B's median to A's, and between what it lies with a probability of `sure`."""

    value: float
    low: float
    high: float
    sure: float


@dataclass(frozen=True)
class Line:
    """A client on some data, by one of METRICS."""

    case: str
    client: str
    metric: str
    unit: str
    a: Spread
    b: Spread
    ratio: Ratio
    verdict: str

    def is_worse_by(self, percent: float) -> bool:
        """By more than that at the median, and beyond what the spread explains."""
        return self.verdict == WORSE and abs(self.ratio.value - 1) * 100 > percent


@dataclass(frozen=True)
class Comparison:
    """`differs` has (what, in A, in B) of all that makes the runs less comparable; `only_a` and `only_b` (case, client, why) of
    what the other run does not have, `why` being what went wrong there, or ""."""

    differs: list[tuple[str, Any, Any]]
    lines: list[Line]
    only_a: list[tuple[str, str, str]]
    only_b: list[tuple[str, str, str]]


def compare(a: Run, b: Run, over: str | None = None) -> Comparison:
    """Of two runs; if `over` names a client, of the numbers divided by that client's in the same round.

    Raises ResultsError for runs of two kinds: nothing in them is the same.
    """
    if a.kind != b.kind:
        raise ResultsError(f"a run of kind {a.kind} and one of kind {b.kind} have nothing in common that could be compared")
    pairs = list(_pairs(a, b))
    differs = conflicts(a, b)
    for mine, theirs in pairs:
        differs += _other_data(mine, theirs)
    lines = [line for pair in pairs for line in _lines(a, b, *pair, over)]
    return Comparison(differs, lines, list(_only(a, b, pairs)), list(_only(b, a, [(theirs, mine) for mine, theirs in pairs])))


def ratio(a: Sequence[float], b: Sequence[float]) -> Ratio:
    """Of readings that are all above 0; at least one of each."""
    ratios = sorted(y / x for x in a for y in b)
    left_out, sure = _tail(len(a), len(b))
    return Ratio(spread(b).median / spread(a).median, ratios[left_out], ratios[-1 - left_out], sure)


@cache
def _tail(n: int, m: int) -> tuple[int, float]:
    """How many of the n * m ratios may be left out at each end, and how probable the rest is.

    The chance that u or fewer of them are on the wrong side is that of U <= u: of the ways in which n and m readings can be
    shuffled together, those with so many inversions. They are counted by the coefficients of the Gaussian binomial.
    """
    size = n * m // 2 + 1
    ways = [1] + [0] * (size - 1)
    for i in range(1, n + 1):
        for u in range(size - 1, m + i - 1, -1):
            ways[u] -= ways[u - m - i]
        for u in range(i, size):
            ways[u] += ways[u - i]
    total = math.comb(n + m, n)
    left_out, beyond = 0, ways[0]
    while left_out + 1 < size and 2 * (beyond + ways[left_out + 1]) <= (1 - SURE) * total:
        left_out += 1
        beyond += ways[left_out]
    return left_out, max(0.0, 1 - 2 * beyond / total)


# --- what belongs together ----------------------------------------------------------------------------------------------


def _pairs(a: Run, b: Run) -> Iterator[tuple[Case, Case]]:
    """Cases of one id; and of the rest those that are alike, if there is no doubt which."""
    ids = {case.id for case in a.cases} & {case.id for case in b.cases}
    left_b = [case for case in b.cases if case.id not in ids]
    left_a = [case for case in a.cases if case.id not in ids]
    for case in a.cases:
        if case.id in ids:
            yield case, b.case(case.id)
            continue
        like = [other for other in left_b if alike(case, other)]
        if len(like) == 1 and sum(alike(other, like[0]) for other in left_a) == 1:
            yield case, like[0]


def _other_data(a: Case, b: Case) -> Iterator[tuple[str, Any, Any]]:
    """What about the data would explain other numbers."""
    for name in ("codec", "partitions", "threads"):
        if getattr(a, name) != getattr(b, name):
            yield f"{name} of {a.id}", getattr(a, name), getattr(b, name)
    for name, x, y in (
        ("records a batch", a.batch_records, b.batch_records),
        ("bytes a record", a.record_bytes, b.record_bytes),
        ("bytes a record on the wire", a.wire_bytes / max(a.records, 1), b.wire_bytes / max(b.records, 1)),
    ):
        if abs(x - y) > 0.1 * max(x, y):
            yield f"{name} of {a.id}", round(x, 1), round(y, 1)


def _lines(a: Run, b: Run, mine: Case, theirs: Case, over: str | None) -> Iterator[Line]:
    name = mine.id if mine.id == theirs.id else f"{mine.id} / {theirs.id}"
    for client in a.clients(mine.id):
        for metric in METRICS if client != over else ():
            x, y = (_values(run, case, client, metric, over) for run, case in ((a, mine.id), (b, theirs.id)))
            if x and y and min(*x, *y) > 0:
                found = ratio(x, y)
                unit = f"× {over}" if over else "ms" if metric in LATENCIES else MEASURES[metric].unit
                yield Line(name, client, metric, unit, spread(x), spread(y), found, _verdict(found, metric))


def _values(run: Run, case: str, client: str, metric: str, over: str | None) -> list[float]:
    mine = _by_round(run, case, client, metric)
    if over is None:
        return list(mine.values())
    theirs = _by_round(run, case, over, metric)
    return [value / theirs[turn] for turn, value in mine.items() if theirs.get(turn)]


def _by_round(run: Run, case: str, client: str, metric: str) -> dict[int, float]:
    readings = [r for r in run.all_readings if (r.case, r.client) == (case, client)]
    if metric in LATENCIES:
        return {r.round: getattr(r.latency_ms, LATENCIES[metric]) for r in readings if r.latency_ms is not None}
    found = ((r.round, MEASURES[metric].of(r)) for r in readings if r.latency_ms is None)
    return {turn: value for turn, value in found if value is not None}


def _verdict(found: Ratio, metric: str) -> str:
    if found.sure < LEAST:
        return TOO_FEW
    if found.low <= 1 <= found.high:
        return EQUAL
    is_more_better = metric not in LATENCIES and MEASURES[metric].is_more_better
    return BETTER if (found.low > 1) == is_more_better else WORSE


def _only(run: Run, other: Run, pairs: Iterable[tuple[Case, Case]]) -> Iterator[tuple[str, str, str]]:
    """What has readings in this run and none in the other."""
    partner = {mine.id: theirs.id for mine, theirs in pairs}
    for case in run.cases:
        there = other.clients(partner[case.id]) if case.id in partner else []
        for client in run.clients(case.id):
            if client not in there:
                why = [f.why for f in other.failed if f.client == client and f.case in {None, partner.get(case.id)}]
                yield case.id, client, why[0] if why else ""
