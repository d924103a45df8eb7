"""What the subcommands of `kfetch bench` share: the file of a run, its tables, the line that says what is being measured."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from fastfetch.benchmark.results import FASTFETCH, Case, Failure, Latency, Run, spread
from fastfetch.cli import complain
from fastfetch.cli.doctor import examine
from fastfetch.cli.options import Decorator
from fastfetch.cli.output import human_bytes
from fastfetch.cli.tables import Cell, Table
from fastfetch.errors import printable

__all__ = ["Say", "describe", "file_option", "kept", "leave_out", "new_run", "saying", "show_latencies", "show_rates"]


def file_option() -> Decorator:
    return click.option(
        "--json", "path", type=click.Path(dir_okay=False, writable=True, path_type=Path), metavar="FILE",
        help="Where the run is kept; by default a new file here.",
    )  # fmt: skip


def new_run(kind: str, settings: dict[str, Any]) -> Run:
    """One without readings yet: what machine this is, and which versions."""
    facts = examine()
    machine = facts["platform"] | {"crc32c": facts["crc32c"]["in use"]}
    machine |= {f"{codec} from": provider for codec, provider in facts["codecs"].items()}
    return Run(kind, datetime.now(UTC).isoformat(timespec="seconds"), machine, dict(facts["versions"]), settings)


@contextmanager
def kept(run: Run, path: Path | None, show: Callable[[Run], None]) -> Iterator[None]:
    """Show the run at the end, and save it, also if that comes early: by Ctrl-C, or by an error."""
    if path is None:
        path = Path(f"kfetch-bench-{run.kind}-{datetime.now().strftime('%Y%m%d-%H%M%S')}.json")
    place = path if path.exists() and not path.is_file() else path.absolute().parent  # a device, or the file's folder
    if not os.access(place, os.W_OK):  # not after an hour
        raise click.UsageError(f"{place} can't be written: say with --json where the run is to be kept")
    try:
        yield
    finally:
        if run.all_readings:
            for line in dict.fromkeys(map(describe, run.cases)):
                click.echo(line, err=True)
            for client, told in run.settings.get("clients", {}).items():
                click.echo(f"{client}: {', '.join(_setting(*each) for each in told.items())}", err=True)
            show(run)
            run.save(path)
            complain(f"the run is in {path}; kfetch bench report {path} draws it")


def _setting(name: str, value: Any) -> str:
    return str(value) if name == "call" else f"{name}={value}"


class Say:
    """A line on stderr that says what is going on. Without a bar, nothing."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task("", total=None, text="")

    def __call__(self, text: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, text=printable(text))
            self._bar.refresh()

    def turn(self, what: str, rounds: int) -> Callable[[str, int], None]:
        """To be called before a turn."""
        return lambda client, turn: self(f"{what}: {f'round {turn} of {rounds}' if turn else 'warm-up'}, {client}")


@contextmanager
def saying(*, quiet: bool) -> Iterator[Say]:
    """One that speaks if stderr is a terminal, and is gone afterwards."""
    if quiet or not sys.stderr.isatty():
        yield Say(None)
        return
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    columns = TimeElapsedColumn(), TextColumn("{task.fields[text]}", markup=False)
    # Redrawn at each call, and not by a thread: that would take its turns from what is measured.
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        yield Say(bar)


def leave_out(run: Run, failure: Failure) -> None:
    """Note who can't take part, or not any more, and say so, once."""
    if failure.why not in (known.why for known in run.failed):
        complain(failure.why)
    run.failed.append(failure)


def describe(case: Case) -> str:
    """The data of a case in a line."""
    return (
        f"{case.topic}: {case.codec}, {case.records:,} records of {case.record_bytes:.0f} bytes in batches of "
        f"{case.batch_records:.0f}, {case.partitions} partition{'s' * (case.partitions != 1)}, {human_bytes(case.wire_bytes)} "
        f"on the wire, {human_bytes(case.inflated_bytes)} inflated"
    )


# Columns of the table, and which of MEASURES they show.
_COLUMNS = {"MB/s wire": "wire", "MB/s raw": "inflated", "CPU ns": "cpu", "peak MB": "memory"}
_WHOLE = ("cpu", "memory")  # digits behind the point say nothing


def show_rates(run: Run) -> None:
    """A line for each client and case: medians over the rounds, and half of what lies between the quartiles of the records a
    second, in percent of the median. The last column is how many times as many of them fastfetch reads, a median of ratios
    within a round."""
    rows: list[list[Cell]] = []
    for case in run.cases:
        for client in run.clients(case.id):
            if (rate := run.spread(case.id, client)) is not None:
                ratio = run.ratios(case.id, FASTFETCH, over=client)
                rows.append([
                    case.id, client, round(rate.median), f"{50 * (rate.high - rate.low) / rate.median:.1f}",
                    *(_median(run, case.id, client, measure) for measure in _COLUMNS.values()),
                    None if ratio is None else f"{ratio.median:.2f}",
                ])  # fmt: skip
    _show(["case", "client", "records/s", "± %", *_COLUMNS, "ratio"], rows)


def _median(run: Run, case: str, client: str, measure: str) -> Cell:
    found = run.spread(case, client, measure)
    if found is None:
        return None
    return round(found.median) if measure in _WHOLE else found.median


def show_latencies(run: Run) -> None:
    """A line for each client and case: medians over the turns, in milliseconds from a record's append to its delivery."""
    names = [field.name for field in fields(Latency)]
    rows: list[list[Cell]] = []
    for case in run.cases:
        for client in run.clients(case.id):
            if found := run.latencies(case.id, client):
                medians = (spread([getattr(each, name) for each in found]).median for name in names)
                rows.append([case.id, client, *(f"{median:.2f}" for median in medians)])
    _show(["case", "client", *(f"{name.replace('p999', 'p99.9')} ms" for name in names)], rows)


def _show(names: list[str], rows: list[list[Cell]]) -> None:
    """Without columns that nobody has anything in. At a terminal a table for each case, as there is little room."""
    kept = [number for number, column in enumerate(zip(*rows, strict=True)) if any(cell is not None for cell in column)]
    if not sys.stdout.isatty():
        _print(names, rows, kept)
        return
    for case in dict.fromkeys(row[0] for row in rows):
        click.echo(f"\n{printable(str(case))}")
        _print(names, [row for row in rows if row[0] == case], kept[1:])


def _print(names: list[str], rows: list[list[Cell]], columns: list[int]) -> None:
    table = Table([names[number] for number in columns], ["case", "client"])
    for row in rows:
        table.add(*(row[number] for number in columns))
    table.print()
