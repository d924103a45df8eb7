"""A topic's records through a consumer, from where `-o` says to where it says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any

from fastfetch.cli.ranges import Bound, Range
from fastfetch.consumer import Consumer
from fastfetch.errors import UsageError
from fastfetch.records import RecordBlock
from fastfetch.types import TopicPartition

__all__ = ["Topic"]

# How long a poll waits: as long as a closed pipe may go unnoticed.
_POLL_MS = 100
_CLOSE_MS = 100


class Topic:
    """Blocks of a topic's partitions. Each partition ends when its *position* reaches its stop.

    The position passes transaction markers and the holes of compaction; the last record's offset never does.
    """

    def __init__(
        self, topic: str, config: Mapping[str, Any], span: Range, partitions: frozenset[int] | None, *, follow: bool
    ) -> None:
        # Nothing is committed. A position that retention has passed goes on at what is left. At a terminal a minute is too long
        # to learn that there is no broker.
        defaults = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "default.api.timeout.ms": 10_000}
        self._consumer = Consumer(defaults | dict(config))
        try:
            self._plan(topic, span, partitions, follow)
        except BaseException:
            self._consumer.close(timeout_ms=_CLOSE_MS)
            raise

    def _plan(self, topic: str, span: Range, partitions: frozenset[int] | None, follow: bool) -> None:
        known = self._consumer.partitions_for(topic)
        missing = sorted((partitions or frozenset()) - set(known))
        if missing:
            raise UsageError(f"{topic} has partitions 0 to {max(known)}, and no {', '.join(map(str, missing))}")
        tps = [TopicPartition(topic, p) for p in sorted(known) if partitions is None or p in partitions]
        starts, ends = self._consumer.beginning_offsets(tps), self._consumer.end_offsets(tps)
        self._positions = self._resolve(span.first, tps, starts, ends)
        stop = span.stop if span.stop is not None or follow else Bound("end")
        self._stops = {} if stop is None else self._resolve(stop, tps, starts, ends)
        self._first = dict(self._positions)
        # A stop beyond the end is waited for, as -o 10:20 says; the bar counts to it.
        self.total = None if stop is None else sum(max(self._stops[tp] - self._first[tp], 0) for tp in tps)
        self.done = 0

    def _resolve(
        self, bound: Bound, tps: list[TopicPartition], starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        times: dict[TopicPartition, int | None] = {}
        if bound.kind == "time":
            found = self._consumer.offsets_for_times(dict.fromkeys(tps, bound.value))
            times = {tp: None if at is None else at.offset for tp, at in found.items()}
        return {tp: bound.resolve(starts[tp], ends[tp], partial(_found, times.get(tp))) for tp in tps}

    def __iter__(self) -> Iterator[RecordBlock | None]:
        consumer, stops = self._consumer, self._stops
        open_ = {tp for tp, position in self._positions.items() if tp not in stops or position < stops[tp]}
        consumer.assign(sorted(open_))
        for tp in open_:
            consumer.seek(tp, self._positions[tp])
        while open_:
            blocks = consumer.poll_blocks(timeout_ms=_POLL_MS)
            for block in blocks:
                tp = TopicPartition(block.topic, block.partition)
                stop = stops.get(tp)
                if tp not in open_:
                    continue
                self._advance(tp, block.next_offset)
                if stop is not None and int(block.offsets[-1]) >= stop:
                    block = block[: int(block.offsets.searchsorted(stop))]
                if len(block):
                    yield block
            for tp in [tp for tp in open_ if tp in stops]:
                self._advance(tp, consumer.position(tp))
                if self._positions[tp] >= stops[tp]:
                    open_.discard(tp)
                    consumer.pause(tp)
            if not blocks:
                yield None

    def _advance(self, tp: TopicPartition, position: int) -> None:
        stop = self._stops.get(tp)
        position = max(self._positions[tp], position if stop is None else min(position, stop))
        self.done += position - self._positions[tp]
        self._positions[tp] = position

    def __enter__(self) -> Topic:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._consumer.close(timeout_ms=_CLOSE_MS)


def _found(offset: int | None, _: int) -> int | None:
    return offset
