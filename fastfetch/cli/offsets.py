"""`kfetch offsets`: where the partitions of topics begin and end, and what lies at a time or is committed."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import click

from fastfetch.cli.options import brokers_option, connect, isolation_option, json_option, settings_option
from fastfetch.cli.ranges import parse_time
from fastfetch.cli.tables import Table
from fastfetch.consumer import Consumer
from fastfetch.types import TopicPartition

__all__ = ["command", "partitions_of"]


def _as_time(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else parse_time(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


@click.command("offsets", short_help="First and last offsets of topics; the offset at a time; what is committed.")
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@brokers_option("Brokers.")
@click.option("--at", "at_ms", metavar="TIME", callback=_as_time, help="Also the first offset at or after that time.")
@click.option("-g", "--group", metavar="GROUP", help="Also what this group has committed.")
@isolation_option("read_committed: also the last stable offset.")
@json_option()
@settings_option()
def command(
    topics: tuple[str, ...],
    brokers: str | None,
    at_ms: int | None,
    group: str | None,
    isolation: str,
    as_json: bool,
    settings: dict[str, str],
) -> None:
    """Where each partition begins and ends; of all topics if none is named.

    "end" is the high watermark: the offset that the next record gets. "offsets" is how many lie between; transaction markers
    and what compaction removed count, so there may be fewer records.

    TIME is 2026-01-31T12:00Z, milliseconds or seconds since 1970, or an age such as -1h30m.
    """
    # The isolation level is a consumer's; whoever wants both ends asks with two.
    isolation = settings.get("isolation.level", isolation)
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


def _ask(
    consumer: Consumer, topics: tuple[str, ...], at_ms: int | None, *, with_commits: bool
) -> dict[TopicPartition, dict[str, Any]]:
    """What is known of each partition, by the names it has in JSON."""
    tps = partitions_of(consumer, topics)
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


def partitions_of(consumer: Consumer, topics: Collection[str]) -> list[TopicPartition]:
    """The partitions of these topics in order, of all if none is named. Raises UnknownTopicError."""
    # One question for all; a second one for what is not listed, Kafka's internal topics among it.
    listed = consumer.list_topics() if len(topics) != 1 else {}
    found = {topic: listed.get(topic) or consumer.partitions_for(topic) for topic in topics or listed}
    return sorted(TopicPartition(topic, partition) for topic, partitions in found.items() for partition in partitions)
