"""`kfetch bench compare`: a run held against another.

JSON lines, told apart by `type`: difference, comparison, only.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from fastfetch.benchmark.compare import METRICS, TOO_FEW, Comparison, Line, compare
from fastfetch.benchmark.plots import number
from fastfetch.benchmark.results import Run
from fastfetch.cli import EXIT_FAILED, complain
from fastfetch.cli.options import json_option
from fastfetch.cli.tables import Cell, Table

__all__ = ["command"]


@click.command("compare", short_help="Hold a run against another.")
@click.argument("a", metavar="A.json", type=click.Path(path_type=Path))
@click.argument("b", metavar="B.json", type=click.Path(path_type=Path))
@click.option("--over", metavar="NAME", help="Compare what each has of this client's number in the same round.")
@click.option("--client", "clients", metavar="NAME", multiple=True, help="Only this client; may be repeated.")
@click.option(
    "--fail-above",
    metavar="PERCENT",
    type=click.FloatRange(min=0),
    help="End with exit code 1 if B is slower by more than that, beyond the spread.",
)
@click.option(
    "--fail-on",
    type=click.Choice(METRICS),
    multiple=True,
    default=["records"],
    show_default=True,
    help="What --fail-above judges; may be repeated.",
)
@json_option()
def command(
    a: Path,
    b: Path,
    over: str | None,
    clients: tuple[str, ...],
    fail_above: float | None,
    fail_on: tuple[str, ...],
    as_json: bool,
) -> int:
    """Hold run B against run A: the same clients on the same data.

    The ratio is that of the medians, B / A. From where to where it may lie, and how sure that is, comes from the ranks of the
    readings. Where 1 is in between, there is no difference that the spread would show.

    The spread doesn't know what else the machine did during A and B. --over another client takes most of that away.
    """
    found = compare(Run.load(a), Run.load(b), over)
    if clients:
        found.lines[:] = [line for line in found.lines if line.client in clients]
        for only in (found.only_a, found.only_b):
            only[:] = [each for each in only if each[1] in clients]
    (_print_json if as_json else _print)(found)
    if not found.lines:
        complain("nothing in these runs can be compared: no such client has readings of the same data in both")
        return EXIT_FAILED
    return 0 if fail_above is None else _judge(found, fail_above, fail_on)


def _print(found: Comparison) -> None:
    for what, in_a, in_b in found.differs:
        complain(f"not the same: {what} is {_shown(in_a)} in A, and {_shown(in_b)} in B")
    names = ["case", "client", "measure", "A", "B", "B / A", "from", "to", "sure", "verdict"]
    table = Table(names, texts=["case", "client", "measure", "verdict"])
    for line in found.lines:
        ratio = line.ratio
        cells: list[Cell] = [line.case, line.client, f"{line.metric}, {line.unit}", *map(_cell, (line.a.median, line.b.median))]
        table.add(*cells, *(f"{value:.3f}" for value in (ratio.value, ratio.low, ratio.high)), f"{ratio.sure:.0%}", line.verdict)
    if found.lines:
        table.print()
    for run, only in (("A", found.only_a), ("B", found.only_b)):
        for case, client, why in only:
            complain(f"only in {run}: {client} on {case}{why and ': the other run says '}{why}")


def _cell(value: float) -> Cell:
    """Three digits, or a whole number."""
    return round(value) if value >= 99.95 else number(value)


def _shown(value: object) -> str:
    return "not there" if value is None else value if isinstance(value, str) else json.dumps(value)


def _print_json(found: Comparison) -> None:
    for what, in_a, in_b in found.differs:
        click.echo(json.dumps({"type": "difference", "what": what, "a": in_a, "b": in_b}))
    for line in found.lines:
        click.echo(json.dumps({"type": "comparison", **asdict(line)}))
    for run, only in (("a", found.only_a), ("b", found.only_b)):
        for case, client, why in only:
            click.echo(json.dumps({"type": "only", "in": run, "case": case, "client": client, "why": why}))


def _judge(found: Comparison, percent: float, metrics: tuple[str, ...]) -> int:
    """The exit code, with a sentence for each reason. What can't be told is no pass."""
    judged = [line for line in found.lines if line.metric in metrics]
    said = [f"{_named(line)} is worse by {abs(line.ratio.value - 1):.1%}" for line in judged if line.is_worse_by(percent)]
    said += [
        f"{_named(line)}: {line.verdict}; three rounds in each run are the least" for line in judged if line.verdict == TOO_FEW
    ]
    said += [f"{client} on {case} has no readings in B: {why}" for case, client, why in found.only_a if why]
    if not judged:
        said.append(f"there is nothing to judge by {' or '.join(metrics)}")
    for sentence in said:
        complain(sentence)
    return EXIT_FAILED if said else 0


def _named(line: Line) -> str:
    return f"{line.client} on {line.case}, {line.metric}"
