"""`kfetch offsets`: where the partitions of topics begin and end, and what lies at a time or is committed; with --reset, other
committed offsets (see `reset`)."""

from __future__ import annotations

import json
from typing import Any

import click

from fastfetch.cli.options import brokers_option, connect, isolation_option, json_option, settings_option
from fastfetch.cli.partitions import Selection, as_selection, selected
from fastfetch.cli.ranges import parse_time
from fastfetch.cli.reset import reset, target_chosen, target_options
from fastfetch.cli.tables import Table
from fastfetch.consumer import Consumer
from fastfetch.types import TopicPartition

__all__ = ["command"]


def _as_time(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else parse_time(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


@click.command("offsets", short_help="First and last offsets of topics; what is committed, and other offsets for a group.")
@click.argument("topics", metavar="[TOPIC[:PARTITIONS]]...", nargs=-1, callback=as_selection)
@brokers_option("Brokers.")
@click.option("--at", "at_ms", metavar="TIME", callback=_as_time, help="Also the first offset at or after that time.")
@click.option("-g", "--group", metavar="GROUP", help="Also what this group has committed.")
@click.option("--reset", "is_reset", is_flag=True, help="Show other committed offsets for the group, which has to be empty.")
@click.option("--execute", "is_execute", is_flag=True, help="--reset: write what is shown.")
@target_options
@isolation_option("read_committed: also the last stable offset.")
@json_option()
@settings_option()
@click.pass_context
def command(
    ctx: click.Context,
    topics: Selection,
    brokers: str | None,
    at_ms: int | None,
    group: str | None,
    is_reset: bool,
    is_execute: bool,
    isolation: str,
    as_json: bool,
    settings: dict[str, str],
) -> None:
    """Where each partition begins and ends; of all topics if none is named.

    "end" is the high watermark: the offset that the next record gets. "offsets" is how many lie between; transaction markers
    and what compaction removed count, so there may be fewer records.

    TIME is 2026-01-31T12:00Z, milliseconds or seconds since 1970, or an age such as -1h30m. PARTITIONS are 0,3,5-8.

    With --reset: what the group has committed becomes, in the partitions named, or else in those that it has committed for,
    what one of the --to- options says, --by-duration or --shift-by. Shown is what would be; --execute writes it.
    """
    target = target_chosen(ctx, is_reset=is_reset, is_execute=is_execute)
    # The isolation level is a consumer's; whoever wants both ends asks with two.
    isolation = settings.get("isolation.level", isolation)
    if target is not None:
        if at_ms is not None:
            raise click.UsageError("--at shows an offset, --reset goes there with --to-datetime")
        if group is None and "group.id" not in settings:
            raise click.UsageError("whose offsets? Say -g GROUP")
        with connect(brokers, settings, group_id=group, isolation_level=isolation) as inspector:
            chosen = selected(inspector, topics) if topics else None
            reset(inspector, chosen, target, is_execute=is_execute, as_json=as_json)
        return
    settings = settings | {"isolation.level": "read_uncommitted"}
    with connect(brokers, settings, group_id=group) as consumer:
        rows = _ask(consumer, topics, at_ms, with_commits=consumer.config.group_id is not None)
        if isolation == "read_committed":
            with connect(brokers, settings | {"isolation.level": isolation}) as careful:
                for tp, stable in careful.end_offsets(list(rows)).items():
                    rows[tp]["stable"] = stable
    if as_json:
        for row in rows.values():
            click.echo(json.dumps(row))
        return
    names = ["topic", "partition", "start", "end", "offsets"]
    names[4:4] = ["stable"] if isolation == "read_committed" else []
    names += [] if at_ms is None else ["at"]
    names += ["committed"] if rows and "committed" in next(iter(rows.values())) else []
    table = Table(names, texts=["topic"])
    for row in rows.values():
        table.add(*(row[name] for name in names))
    table.print()


def _ask(consumer: Consumer, topics: Selection, at_ms: int | None, *, with_commits: bool) -> dict[TopicPartition, dict[str, Any]]:
    """What is known of each partition, by the names it has in JSON."""
    tps = selected(consumer, topics)
    starts, ends = consumer.beginning_offsets(tps), consumer.end_offsets(tps)
    rows: dict[TopicPartition, dict[str, Any]] = {}
    for tp in tps:
        # Between the two questions retention may have passed the end, or the topic been made anew.
        count = max(ends[tp] - starts[tp], 0)
        rows[tp] = {"topic": tp.topic, "partition": tp.partition, "start": starts[tp], "end": ends[tp], "offsets": count}
    if at_ms is not None:
        for tp, found in consumer.offsets_for_times(dict.fromkeys(tps, at_ms)).items():
            rows[tp] |= {"at": None, "at_timestamp": None}
            if found is not None:
                rows[tp] |= {"at": found.offset, "at_timestamp": found.timestamp}
    if with_commits:
        for tp, committed in consumer.committed(tps).items():
            rows[tp]["committed"] = None if committed is None else committed.offset
    return rows
