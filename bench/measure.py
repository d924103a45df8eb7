"""How the figures are taken: contenders alternate round by round in one process, with the garbage collector off, and a ratio is
the median of the ratios of neighbouring rounds. A machine that slows down for a while then slows both sides of a ratio.

What runs in one thread is timed by that thread's processor time, system calls and page faults included: on an idle machine that
is the time on the wall, and on a busy one the other programs' turns are left out. Where several threads work together only the
wall will do, and the machine has to be idle.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from fastfetch.benchmark.contest import alternate as in_turns
from fastfetch.benchmark.contest import gc_off
from fastfetch.benchmark.results import spread

__all__ = [
    "Figure",
    "Samples",
    "alternate",
    "difference_figure",
    "plain_table",
    "ratio_figure",
    "skipped",
    "table",
]

Samples = dict[str, list[float]]


def alternate(
    contenders: Mapping[str, Callable[[], object]],
    records: int,
    *,
    rounds: int,
    warmups: int = 2,
    clock: Callable[[], int] = time.thread_time_ns,
) -> Samples:
    """Nanoseconds per record of each contender, one number a round. Freeing what a contender returns is part of its time."""
    for _ in range(1, warmups):
        for contender in contenders.values():
            contender()
    samples: Samples = {name: [] for name in contenders}

    def go(name: str, _: int) -> float:
        contender = contenders[name]
        begun = clock()
        contender()
        return (clock() - begun) / records

    with gc_off():
        for turn, name, cost in in_turns(list(contenders), rounds, go):
            if turn:
                samples[name].append(cost)
    return samples


@dataclass(frozen=True)
class Figure:
    """One line of the table. `values` are the measured numbers; `relation` is "<=" or ">=", "" for a line without a bound."""

    group: str
    name: str
    values: tuple[float, ...]
    unit: str = "x"
    relation: str = ""
    bound: float | None = None
    detail: str = ""
    skipped: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def quartiles(self) -> tuple[float, float]:
        found = spread(self.values)
        return found.low, found.high

    @property
    def met(self) -> bool | None:
        """Whether the bound holds; None where there is none, or nothing was measured."""
        if self.skipped or self.bound is None:
            return None
        return self.median <= self.bound if self.relation == "<=" else self.median >= self.bound

    def as_json(self) -> dict[str, object]:
        """The figure with its derived numbers, for out/figures.json."""
        finite = bool(self.values) and all(map(math.isfinite, self.values))  # JSON has no word for a wrong answer's infinity
        numbers = {"median": self.median, "quartiles": self.quartiles} if finite else {"values": ()}
        return asdict(self) | numbers | {"met": self.met}


def skipped(group: str, name: str, reason: str) -> Figure:
    """A line that says why a figure was not measured."""
    return Figure(group, name, (), skipped=reason)


def _costs(samples: Samples, *names: str) -> str:
    return " / ".join(f"{statistics.median(samples[name]):.1f}" for name in names) + " ns"


def ratio_figure(group: str, name: str, samples: Samples, over: str, under: str, relation: str, bound: float | None) -> Figure:
    """`over` divided by `under`, round by round."""
    values = tuple(a / b for a, b in zip(samples[over], samples[under], strict=True))
    return Figure(group, name, values, "x", relation, bound, _costs(samples, over, under))


def difference_figure(
    group: str, name: str, samples: Samples, whole: str, part: str, relation: str, bound: float | None
) -> Figure:
    """`whole` less `part`, round by round, in ns per record."""
    values = tuple(a - b for a, b in zip(samples[whole], samples[part], strict=True))
    return Figure(group, name, values, "ns", relation, bound, _costs(samples, whole, part))


def _row(figure: Figure) -> tuple[str, str, str, str, str, str]:
    if figure.skipped:
        return figure.group, figure.name, "skipped: " + figure.skipped, "", "", ""
    low, high = figure.quartiles
    digits = 2 if figure.unit == "x" else 1
    verdict = {True: "met", False: "NOT MET", None: ""}[figure.met]
    bound = "" if figure.bound is None else f"{figure.relation} {figure.bound:g} {figure.unit}"
    measured = f"{figure.median:.{digits}f} {figure.unit}  ({low:.{digits}f}–{high:.{digits}f})"
    return figure.group, figure.name, measured, bound, verdict, figure.detail


_HEAD = ("", "what", "median (quartiles)", "must be", "", "medians behind it")


def plain_table(figures: Sequence[Figure]) -> str:
    """All figures as a Markdown table that is not padded, for a page."""
    rows = [_HEAD, ("---",) * len(_HEAD), *map(_row, figures)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows).replace("|  |", "| |").replace("|  |", "| |")


def table(figures: Sequence[Figure]) -> str:
    """All figures as one aligned Markdown table; medians with their quartiles."""
    rows = [_HEAD, *map(_row, figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    # A skip's reason may be long and is last on its line: it must not widen the table.
    widths[2] = max(len(row[2]) for row in rows if not row[2].startswith("skipped"))
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
