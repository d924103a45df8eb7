"""Partitions of topics: chosen by name and number, and where a group stands in them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import click

from fastfetch.cli.options import parse_partitions
from fastfetch.consumer import Consumer
from fastfetch.engine.stored import Stored
from fastfetch.errors import UsageError
from fastfetch.types import TopicPartition

__all__ = ["Selection", "Standing", "as_selection", "partitions_of", "selected", "standings"]

Selection = Mapping[str, frozenset[int] | None]
"""Topics, and which of their partitions; None: all."""


def as_selection(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> Selection:
    """`TOPIC` or `TOPIC:0,3,5-8`, any number of times."""
    found: dict[str, frozenset[int] | None] = {}
    for value in values:
        topic, colon, text = value.partition(":")
        before = found.get(topic, frozenset())
        try:
            found[topic] = None if before is None or not colon else before | parse_partitions(text)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None
    return found


def selected(consumer: Consumer, topics: Selection) -> list[TopicPartition]:
    """The partitions chosen, in order. Raises UnknownTopicError, and UsageError for a partition that a topic does not have."""
    there = partitions_of(consumer, topics)
    for topic, chosen in topics.items():
        missing = sorted((chosen or frozenset()).difference(tp.partition for tp in there if tp.topic == topic))
        if missing:
            last = max(tp.partition for tp in there if tp.topic == topic)
            raise UsageError(f"{topic} has partitions 0 to {last}, and no {', '.join(map(str, missing))}")
    return [tp for tp in there if (chosen := topics.get(tp.topic)) is None or tp.partition in chosen]


def partitions_of(consumer: Consumer, topics: Collection[str]) -> list[TopicPartition]:
    """The partitions of these topics in order, of all if none is named. Raises UnknownTopicError."""
    # One question for all; a second one for what is not listed, Kafka's internal topics among it.
    listed = consumer.list_topics() if len(topics) != 1 else {}
    found = {topic: listed.get(topic) or consumer.partitions_for(topic) for topic in topics or listed}
    return sorted(TopicPartition(topic, partition) for topic, partitions in found.items() for partition in partitions)


@dataclass
class Standing:
    """Where a group stands in one partition. `end` is None where the topic or partition is gone."""

    committed: int | None
    start: int | None
    end: int | None

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else max(self.end - self.committed, 0)

    @property
    def note(self) -> str:
        """What a number alone would hide."""
        if self.end is None or self.start is None:
            return "no such partition any more"
        if self.committed is None:
            return "no commit" if self.end > self.start else "no commit, empty"
        if self.committed > self.end:
            return "committed beyond the end"
        if self.committed < self.start:
            return f"{self.start - self.committed} deleted before they were read"
        return ""


def standings(
    consumer: Consumer, committed: Stored, topics: Collection[str], others: Collection[TopicPartition] = ()
) -> dict[TopicPartition, Standing]:
    """Where the group stands in every partition of these topics. Those committed for, and the `others`, may be gone."""
    wanted, heard_of = set(topics), {*committed, *others}
    # Commits outlive their topic. Kafka's internal topics are never listed.
    gone = {tp.topic for tp in heard_of if not tp.topic.startswith("__")} - consumer.topics()
    there = partitions_of(consumer, wanted - gone) if wanted - gone else []
    starts, ends = consumer.beginning_offsets(there), consumer.end_offsets(there)
    known = sorted({*there, *(tp for tp in heard_of if tp.topic in wanted)})
    offsets = {tp: at.offset for tp, at in committed.items() if at is not None}
    return {tp: Standing(offsets.get(tp), starts.get(tp), ends.get(tp)) for tp in known}
