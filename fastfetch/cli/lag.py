"""`kfetch lag`: how far a group is behind, once or again and again.

Commits are read before ends, so that a group that keeps up is never ahead of what is shown. A partition without a commit has no
lag: nothing says where its reader stands, and 0 would say that all is well.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import click

from fastfetch.cli import EXIT_FAILED, complain
from fastfetch.cli.inspector import Inspector
from fastfetch.cli.options import brokers_option, connect, isolation_option, json_option, settings_option
from fastfetch.cli.output import Output
from fastfetch.cli.partitions import Standing, standings
from fastfetch.cli.tables import Cell, Table
from fastfetch.errors import ConnectionFailedError, FastFetchError
from fastfetch.errors import TimeoutError as TimedOut
from fastfetch.types import TopicPartition

__all__ = ["command"]

_STEP_S = 0.1  # as long as a closed pipe may go unnoticed


@dataclass
class Sample:
    """All partitions at one moment. `seconds` is the clock's for rates."""

    partitions: dict[TopicPartition, Standing]
    seconds: float = field(default_factory=time.monotonic)
    wall_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    @property
    def lag(self) -> int:
        return sum(each.lag or 0 for each in self.partitions.values())

    @property
    def without_commit(self) -> int:
        return sum(each.committed is None for each in self.partitions.values())


@dataclass
class Rates:
    """Records per second between two samples; None where one of them does not know."""

    consumed: float | None = None
    produced: float | None = None

    @classmethod
    def between(cls, old: Standing | None, new: Standing, seconds: float) -> Rates:
        if old is None or seconds <= 0:
            return cls()
        return cls(_per_second(old.committed, new.committed, seconds), _per_second(old.end, new.end, seconds))

    def catch_up(self, lag: int | None) -> float | None:
        """Seconds until there is no lag, if all goes on as it does; infinite where it grows or stays."""
        if lag is None or self.consumed is None or self.produced is None:
            return None
        gain = self.consumed - self.produced
        return 0.0 if lag == 0 else lag / gain if gain > 0 else float("inf")


def _per_second(old: int | None, new: int | None, seconds: float) -> float | None:
    return None if old is None or new is None else (new - old) / seconds


@click.command("lag", short_help="How far a group is behind, in records; with rates while it is watched.")
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@brokers_option("Brokers.")
@click.option("-g", "--group", metavar="GROUP", help="The group whose commits are read.")
@click.option("--watch", type=click.FloatRange(min=0.1), metavar="SECONDS", help="Again and again, with rates.")
@click.option("--max-lag", type=click.IntRange(min=0), metavar="N", help="Exit code 1 if a partition has more, or no commit.")
@isolation_option("Up to which end: high watermark or last stable offset.")
@json_option()
@settings_option()
def command(
    topics: tuple[str, ...],
    brokers: str | None,
    group: str | None,
    watch: float | None,
    max_lag: int | None,
    isolation: str,
    as_json: bool,
    settings: dict[str, str],
) -> int:
    """How far a group is behind in each partition: end offset less committed offset.

    Without a TOPIC: in the topics that the group has committed for, or that its members have partitions of. A partition without
    a commit is shown with "-", not with 0: where its reader stands is not known.
    """
    if group is None and "group.id" not in settings:
        raise click.UsageError("which group? Say -g GROUP")
    with connect(brokers, settings, group_id=group, isolation_level=isolation) as inspector, _screen(watch, as_json) as show:
        if watch is None:
            sample = _ask(inspector, topics)
            show(sample, None)
            return _judge(sample, max_lag)
        return _watch(inspector, topics, watch, max_lag, show)


Show = Callable[[Sample, Sample | None], None]


def _watch(inspector: Inspector, topics: tuple[str, ...], every: float, max_lag: int | None, show: Show) -> int:
    output = Output()
    before: Sample | None = None
    while True:
        due = time.monotonic() + every
        try:
            sample = _ask(inspector, topics)
        except (ConnectionFailedError, TimedOut) as error:
            if before is None:
                raise
            complain(f"{error}; trying again")
        else:
            show(sample, before)
            before = sample
            if _judge(sample, max_lag):
                return EXIT_FAILED
        while (left := due - time.monotonic()) > 0:
            output.raise_if_reader_gone()
            time.sleep(min(left, _STEP_S))


def _ask(inspector: Inspector, topics: tuple[str, ...]) -> Sample:
    # What a member has and nobody has committed for is as much a part of how far the group is.
    assigned = set() if topics else inspector.assigned()
    committed = inspector.committed()
    if not (topics or committed or assigned):
        raise FastFetchError(
            f"group {inspector.config.group_id!r} has committed nothing, and nobody is in it: look at the name; commits also "
            "expire some days after a group has gone. To see the ends of topics all the same, name them"
        )
    return Sample(standings(inspector, committed, topics or {tp.topic for tp in (*committed, *assigned)}, assigned))


def _judge(sample: Sample, max_lag: int | None) -> int:
    """The exit code; a sentence says why it is not 0."""
    if max_lag is None:
        return 0
    above = [(each.lag, tp) for tp, each in sample.partitions.items() if each.lag is not None and each.lag > max_lag]
    # Nobody knows how much of it was read. Where there is nothing to read, a commit is not missed.
    unknown = [tp for tp, each in sample.partitions.items() if each.committed is None and each.end != each.start]
    said = []
    if above:
        lag, worst = max(above)
        said.append(f"{worst} lags by {lag}, more than {max_lag}{_others(len(above))}")
    if unknown:
        said.append(f"{unknown[0]} has records and no commit{_others(len(unknown))}")
    if said:
        complain("; ".join(said))
    return EXIT_FAILED if said else 0


def _others(n: int) -> str:
    return "" if n == 1 else " (and 1 other)" if n == 2 else f" (and {n - 1} others)"


@contextmanager
def _screen(watch: float | None, as_json: bool) -> Iterator[Show]:
    """What shows a sample: JSON lines, a table, or at a terminal one that is drawn over the one before."""
    import sys

    if as_json:
        yield _print_json
    elif watch is None or not sys.stdout.isatty():
        yield lambda sample, before: _table(sample, before, watch is not None).print()
    else:
        from rich.live import Live

        with Live(auto_refresh=False) as live:
            yield lambda sample, before: live.update(_table(sample, before, True).drawn(), refresh=True)


def _table(sample: Sample, before: Sample | None, with_rates: bool) -> Table:
    names = ["topic", "partition", "committed", "end", "lag"]
    names += ["consumed/s", "produced/s", "caught up in"] if with_rates else []
    table = Table([*names, "note"], texts=["topic", "caught up in", "note"])
    for tp, each, rates in _with_rates(sample, before):
        cells: list[Cell] = [tp.topic, tp.partition, each.committed, each.end, each.lag]
        if with_rates:
            cells += [rates.consumed, rates.produced, _duration(rates.catch_up(each.lag))]
        table.add(*cells, each.note)
    note = f"{sample.without_commit} without a commit" if sample.without_commit else ""
    table.add("total", None, None, None, sample.lag, *([None] * 3 if with_rates else []), note)
    return table


def _print_json(sample: Sample, before: Sample | None) -> None:
    lines: list[dict[str, Any]] = []
    for tp, each, rates in _with_rates(sample, before):
        line = {"type": "partition", "time": sample.wall_ms, "topic": tp.topic, "partition": tp.partition}
        line |= {"committed": each.committed, "start": each.start, "end": each.end, "lag": each.lag}
        if before is not None:
            seconds = rates.catch_up(each.lag)
            line |= {"consumed_per_s": rates.consumed, "produced_per_s": rates.produced}
            line["catch_up_s"] = None if seconds == float("inf") else seconds
        lines.append(line)
    total = {"type": "total", "time": sample.wall_ms, "lag": sample.lag, "partitions": len(sample.partitions)}
    lines.append(total | {"without_commit": sample.without_commit})
    click.echo("\n".join(map(json.dumps, lines)))


def _with_rates(sample: Sample, before: Sample | None) -> Iterator[tuple[TopicPartition, Standing, Rates]]:
    for tp, each in sample.partitions.items():
        old = None if before is None else before.partitions.get(tp)
        yield tp, each, Rates.between(old, each, 0.0 if before is None else sample.seconds - before.seconds)


def _duration(seconds: float | None) -> str:
    """3725.0 -> "1h 2m"."""
    if seconds is None:
        return ""
    if seconds == float("inf"):
        return "never"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if hours < 1:
        return f"{minutes}m {whole % 60}s"
    return f"{hours}h {minutes % 60}m" if days < 1 else f"{days}d {hours % 24}h"
