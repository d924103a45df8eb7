"""Reading ranges: one consumer, positions that end where the ranges do."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from fastfetch.config import ConsumerConfig
from fastfetch.consumer import Consumer
from fastfetch.engine.subscription import LATEST, Phase
from fastfetch.errors import FastFetchError, LogTruncationError, NoOffsetForPartitionError, UnknownTopicError, UsageError
from fastfetch.errors import TimeoutError as TimedOut
from fastfetch.records import RecordBlock
from fastfetch.types import TopicPartition

from .questions import Questions
from .questions import settings as fixed_settings
from .values import OffsetRange

__all__ = ["Move", "Reader", "read"]

Blocks: TypeAlias = Generator[RecordBlock, None, None]

# Nothing for so long is worth a closer look.
QUIET_MS = 1000


def read(ranges: OffsetRange | Iterable[OffsetRange], /, *, timeout_ms: int | None = None, **settings: Any) -> Blocks:
    """The records of a range as blocks; of several ranges, with one consumer, in no order between partitions.

    Every record with start <= offset < end comes once, and the iterator ends there. Nothing is committed. The consumer is made
    at the first step and closed at the end, by an error, or with the iterator. `ranges[0].rest(block.next_offset)` is what is
    left after a block; a block's next offset may lie beyond the end, where no more records are between the two.

    timeout_ms      a TimeoutError if nothing at all came for so long; default: the setting default_api_timeout_ms
    settings        as for Consumer; `bootstrap_servers` if they are reached by other addresses from here

    Raises, after the records before it: OffsetOutOfRangeError if retention has taken records of a range away; LogTruncationError
    if the log was cut below its end; UnknownTopicError if the topic was deleted, or is another one by now; CorruptBatchError;
    TimeoutError. UsageError, at once, for ranges that overlap or were planned for different clusters or isolation levels.
    """
    wanted = [ranges] if isinstance(ranges, OffsetRange) else list(ranges)
    for each in wanted:
        if not isinstance(each, OffsetRange):
            raise UsageError(f"read: {each!r} is no OffsetRange; make them with plan()")
    spans = _joined([each for each in wanted if each])
    if not spans:
        return _read([], {}, 0)
    common = {(each.bootstrap_servers, each.isolation) for each in spans}
    if len(common) > 1:
        raise UsageError("read: these ranges have different bootstrap servers or isolation levels; read them one by one")
    [(servers, isolation)] = common
    config = fixed_settings("read", settings.pop("bootstrap_servers", servers), isolation, settings)
    limit = ConsumerConfig.from_settings(config).default_api_timeout_ms if timeout_ms is None else timeout_ms
    return _read(spans, config, limit)


def _read(spans: list[OffsetRange], config: dict[str, Any], timeout_ms: int) -> Blocks:
    if not spans:
        return
    todo: dict[TopicPartition, list[OffsetRange]] = {}
    for span in reversed(spans):
        todo.setdefault(span.tp, []).append(span)  # the next one is the last one
    with Consumer(config) as consumer:
        _check_topics(spans, Questions(consumer, timeout_ms))
        reader = Reader(consumer, todo, config)
        try:
            yield from _read_all(reader, todo, timeout_ms)
        except NoOffsetForPartitionError as error:
            # A position was given; it is void only where the topic was deleted and created again.
            raise _another_topic(next(tp for tp in todo if reader.position(tp) < 0)) from error


def _read_all(reader: Reader, todo: dict[TopicPartition, list[OffsetRange]], timeout_ms: int) -> Blocks:
    reader.begin([parts[-1] for parts in todo.values()], timeout_ms)
    while todo:
        for block in reader.poll(timeout_ms):
            end = todo[TopicPartition(block.topic, block.partition)][-1].end
            if block.next_offset > end:
                block = block[: int(block.offsets.searchsorted(end))]
            if len(block):
                yield block
        done = [parts.pop() for tp, parts in todo.items() if reader.position(tp) >= parts[-1].end]
        if done:
            reader.end(done, timeout_ms)
            reader.begin([todo[span.tp][-1] for span in done if todo[span.tp]], timeout_ms)
            todo = {tp: parts for tp, parts in todo.items() if parts}


def _check_topics(spans: list[OffsetRange], questions: Questions) -> None:
    """Is it still the topic that was planned?"""
    for name in dict.fromkeys(span.topic for span in spans):
        topic_id, _ = questions.topic(name)
        for span in spans:
            if span.topic == name and None not in (topic_id, span.topic_id) and topic_id != span.topic_id:
                raise _another_topic(span.tp)


def _another_topic(tp: TopicPartition) -> UnknownTopicError:
    return UnknownTopicError(
        f"the topic {tp.topic!r} that was planned does not exist any more; another one was created under its name: plan again",
        code=100,
    )


def _cut_off(tp: TopicPartition, end: int, log_end: int | None, epoch: int | None, cause: LogTruncationError | None) -> Exception:
    how = "is another one now" if log_end is None else f"ends, or goes on with other records, at {log_end}"
    error = LogTruncationError(
        f"{tp} was to be read up to {end}, and its log {how}: it was cut, as by an unclean election",
        topic=tp.topic,
        partition=tp.partition,
        position=end,
        leader_epoch=epoch,
        divergent_offset=log_end,
        divergent_epoch=None if cause is None else cause.divergent_epoch,
    )
    error.__cause__ = cause
    return error


def _joined(ranges: list[OffsetRange]) -> list[OffsetRange]:
    """In order, and one where one ends and the next begins: cutting and seeking there would be in vain."""
    out: list[OffsetRange] = []
    for each in sorted(ranges, key=lambda r: (r.topic, r.partition, r.start)):
        last = out[-1] if out else None
        if last is not None and last.tp == each.tp and each.start < last.end:
            raise UsageError(f"read: {last} and {each} overlap: their records would come twice")
        if last is not None and replace(last, start=each.start, end=each.end) == each and last.end == each.start:
            out[-1] = replace(each, start=last.start)
        else:
            out.append(each)
    return out


class Move(NamedTuple):
    """With a leader epoch it is found out first whether the log was cut below `start`."""

    tp: TopicPartition
    start: int
    stop: int
    leader_epoch: int | None = None


class Reader:
    """A consumer whose partitions are each read from a start up to a stop, behind which nothing is fetched."""

    def __init__(self, consumer: Consumer, tps: Iterable[TopicPartition], config: Mapping[str, Any]) -> None:
        tps = list(tps)
        consumer.assign(tps)
        self._consumer = consumer
        self._config = config
        self._states = {tp: consumer._engine.subscription.get(tp, "read") for tp in tps}
        self._leader_epochs: dict[TopicPartition, int | None] = {}

    def go(self, *moves: Move) -> None:
        """Read these partitions from a start up to a stop. What was read of them before and not handed out is dropped."""
        consumer = self._consumer
        with consumer._client.lock:
            for tp, start, stop, leader_epoch in moves:
                self._states[tp].stop = stop
                consumer._engine.seek(tp, start, leader_epoch)
            consumer._client.poke()

    def begin(self, spans: list[OffsetRange], timeout_ms: int) -> None:
        self._check(spans, timeout_ms)
        for span in spans:
            self._leader_epochs[span.tp] = self._leader_epoch(span.tp)
        self.go(*(Move(span.tp, span.start, span.end) for span in spans))

    def end(self, spans: list[OffsetRange], timeout_ms: int) -> None:
        """These have been read. Their partitions are at rest until they begin another one."""
        # Another leader since then: were the last records still the ones that were planned?
        self._check([span for span in spans if self._leader_epoch(span.tp) != self._leader_epochs[span.tp]], timeout_ms)
        self.go(*(Move(span.tp, span.end, span.end) for span in spans))

    def position(self, tp: TopicPartition) -> int:
        position = self._states[tp].position
        return -1 if position is None else position

    def poll(self, timeout_ms: int) -> list[RecordBlock]:
        """What is there. Nothing, if positions moved past batches without records. Raises TimeoutError if they didn't either."""
        before = [state.position for state in self._states.values()]
        deadline, patience = time.monotonic() + timeout_ms / 1000, QUIET_MS
        while True:
            left = max(0, int((deadline - time.monotonic()) * 1000))
            blocks = self._consumer.poll_blocks(timeout_ms=min(left, patience))
            if blocks or before != [state.position for state in self._states.values()]:
                return blocks
            if left <= patience:
                raise self._stalled(timeout_ms)
            if self._pass_holes():
                return []
            patience *= 2

    def _pass_holes(self) -> bool:
        """Go past what compaction left of the last offsets of ranges. A committed read gets nothing from there while the next
        record belongs to an open transaction: it is told neither that record nor that there is none before it. Only a batch that
        begins behind the end proves that; an empty answer does not, it may also mean that a broker needs longer. What is wrong
        there is another reader's business."""
        at = {
            tp: s.position
            for tp, s in self._states.items()
            if s.position is not None and s.position < s.stop <= s.last_stable_offset
        }
        if self._consumer.config.isolation_level != "read_committed" or not at:
            return False
        next_records: dict[TopicPartition, int] = {}
        with Consumer({**self._config, "isolation_level": "read_uncommitted"}) as consumer, suppress(FastFetchError):
            everything = Reader(consumer, at, self._config)
            everything.go(*(Move(tp, position, position + 1) for tp, position in at.items()))
            deadline = time.monotonic() + QUIET_MS / 1000
            while len(next_records) < len(at) and (left := deadline - time.monotonic()) > 0:
                for block in consumer.poll_blocks(timeout_ms=int(left * 1000)):
                    next_records.setdefault(TopicPartition(block.topic, block.partition), int(block.offsets[0]))
                for tp, position in at.items():
                    if (reached := everything.position(tp)) > position:
                        next_records.setdefault(tp, reached)
        passed = [tp for tp, offset in next_records.items() if offset >= self._states[tp].stop]
        self.go(*(Move(tp, self._states[tp].stop, self._states[tp].stop) for tp in passed))
        return bool(passed)

    def _stalled(self, timeout_ms: int) -> Exception:
        open_ = [state for state in self._states.values() if state.position is not None and state.position < state.stop]
        short = {state.tp: state.stop for state in open_ if 0 <= state.high_watermark < state.stop}
        with suppress(FastFetchError):  # a follower may just be behind: the leader knows
            for tp, at in Questions(self._consumer, QUIET_MS // 4).ends(short, LATEST).items():
                if at.offset < short[tp]:
                    return _cut_off(tp, short[tp], at.offset, None, None)
        where = ", ".join(f"{state.tp} at {state.position} of {state.stop}" for state in open_[:5])
        more = f" and {len(open_) - 5} more" if len(open_) > 5 else ""
        return self._consumer._engine.unreachable() or TimedOut(f"nothing came for {timeout_ms} ms: {where}{more}")

    def _leader_epoch(self, tp: TopicPartition) -> int | None:
        leader = self._consumer._engine.cluster.leader(tp)
        return None if leader is None else leader.epoch

    def _check(self, spans: list[OffsetRange], timeout_ms: int) -> None:
        """Does the log still have what these were planned for, up to their ends? By the epoch of the leader of that time
        (KIP-320), which finds out even if the log was cut and has grown again; else by where the log ends."""
        questions = Questions(self._consumer, timeout_ms)
        self.go(*(Move(span.tp, span.end, span.end, span.leader_epoch) for span in spans))

        def checked() -> bool | None:
            for span in spans:
                state = self._states[span.tp]
                if isinstance(state.error, LogTruncationError):
                    raise _cut_off(span.tp, span.end, state.error.divergent_offset, span.leader_epoch, state.error)
                if state.error is not None:
                    raise state.error
            return all(self._states[span.tp].phase is Phase.FETCHING for span in spans) or None

        if spans:
            questions.wait(checked, "checking the ends of ranges")
        unknown = [span for span in spans if span.leader_epoch is None]
        ends = questions.ends([span.tp for span in unknown], LATEST)
        for span in unknown:
            if ends[span.tp].offset < span.end:
                raise _cut_off(span.tp, span.end, ends[span.tp].offset, None, None)
