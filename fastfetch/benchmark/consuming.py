"""Clients that read a topic in turns, each in a process of its own.

All read the same records from the beginning of each partition. How many, is found out in the warm-up round: a client gets no
more than it is likely to read in the time that a turn may take, so that a slow one does not hold up the others; what is compared
is the time of a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from fastfetch.benchmark import clients
from fastfetch.benchmark.clients import CLIENTS, Job, Turn
from fastfetch.benchmark.contest import ReadingError, alternate, take
from fastfetch.benchmark.external import EXTERNAL
from fastfetch.benchmark.results import Case, Latency, Reading

__all__ = ["ALL", "USUAL", "Before", "consume_in_turns", "reading_of", "settings_of", "versions_of"]

ALL = (*CLIENTS, *EXTERNAL)
# Who is measured if nobody is named: each once, with raised settings.
USUAL = tuple(name for name in ALL if not name.endswith((" defaults", " 300")))
Before: TypeAlias = Callable[[str, int], object]
_PATIENCE = 20  # times as long as a turn should take, it may
_STARTING_SECONDS = 60  # beside that


def consume_in_turns(
    job: Job, case: Case, names: Sequence[str], *, rounds: int, warm_up: int, seconds: float, before: Before | None = None
) -> Iterator[tuple[int, str, Reading | ReadingError]]:
    """Let clients read: (round, client, reading). Those of round 0, of `warm_up` records, don't count.

    `before` is called with client and round before each turn.
    """
    limits: dict[str, int] = {}

    def go(client: str, turn: int) -> Reading:
        records = limits[client] if turn else min(warm_up, job.records)
        took = take(client, replace(job, records=records), seconds=_STARTING_SECONDS + _PATIENCE * seconds)
        if not turn:
            limits[client] = min(job.records, max(records, int(took.records / took.seconds * seconds)))
        return reading_of(case, client, turn, took)

    yield from alternate(names, rounds, go, before=before)


def reading_of(case: Case, client: str, turn: int, took: Turn, latency: Latency | None = None) -> Reading:
    """A turn as a reading. Its bytes are those of the case's mean record."""
    share = took.records / case.records
    return Reading(
        case.id, client, turn, took.records, took.seconds, took.cpu, round(case.wire_bytes * share),
        round(case.inflated_bytes * share), took.peak_rss_bytes, latency,
    )  # fmt: skip


def settings_of(name: str, own: dict[str, Any]) -> dict[str, Any]:
    """What a client is called with, and how it is set; `own` are more settings of fastfetch's."""
    known = CLIENTS.get(name) or EXTERNAL[name]
    return {"call": known.call, **known.settings, **(own if name.startswith("fastfetch") else {})}


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """Of all that these clients are made of; they are not missing."""
    out: dict[str, str] = {}
    for name in names:
        out |= clients.versions(name) if name in CLIENTS else EXTERNAL[name].versions()
    return out
