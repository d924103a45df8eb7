"""Reads that end: what to read, decided once, and the records of it, wherever they are read.

    ranges = fastfetch.plan("127.0.0.1:9092", "orders", start="earliest", max_records=1_000_000)
    for block in fastfetch.read(ranges[0]):
        ...

`plan` looks offsets up and fixes both ends of every partition, so that what is produced afterwards belongs to the next plan.
`read` ends by its *position*, which passes transaction markers, aborted records and the holes of compaction; loops that wait for
the last record's offset never end where one of those comes last.

Ranges are cut at offsets, wherever those fall. A fetch that begins inside a batch brings the whole batch, and what lies outside
the range is left out: over all ranges of a plan each record comes exactly once.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from fastfetch.config import ConsumerConfig
from fastfetch.consumer import Consumer
from fastfetch.engine.arguments import as_integer
from fastfetch.engine.offsets import Found
from fastfetch.engine.subscription import EARLIEST, LATEST
from fastfetch.errors import (
    CorruptBatchError,
    FastFetchError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicError,
    UsageError,
)
from fastfetch.errors import TimeoutError as TimedOut
from fastfetch.records import RecordBlock
from fastfetch.types import OffsetAndTimestamp, TopicPartition

__all__ = ["OffsetRange", "Timestamp", "plan", "read"]

Isolation = Literal["read_uncommitted", "read_committed"]

# A density is measured in this many places of a partition, by one small fetch each.
SAMPLES = 8
SAMPLE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records of one partition with start <= offset < end.

    A value: it is pickled, compared, hashed, and kept as JSON (`dataclasses.asdict(r)`, and back by `OffsetRange(**fields)`: all
    fields are strings, integers or None). It says where brokers are, and nothing else about connecting to them: settings, secrets
    among them, are given to `read`.

    bootstrap_servers   "host:port,host:port"
    isolation           "read_uncommitted" or "read_committed"; the end was fixed under it
    topic_id            of the topic that was planned, as Kafka's tools write it: another topic that has its name by now is not
                        read for it. None where brokers give no ids
    leader_epoch        of the partition's leader when the end was fixed, None if not known

    `len(r)` is the number of offsets, which is the most records there can be.
    """

    bootstrap_servers: str
    topic: str
    partition: int
    start: int
    end: int
    isolation: Isolation = "read_uncommitted"
    topic_id: str | None = None
    leader_epoch: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise UsageError(f"a range goes from an offset up to one that is not below it, not from {self.start} to {self.end}")
        if self.isolation not in ("read_uncommitted", "read_committed"):
            raise UsageError(f"isolation is 'read_uncommitted' or 'read_committed', not {self.isolation!r}")

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    def rest(self, next_offset: int) -> OffsetRange:
        """What is left once a block with this `next_offset` is done: how an interrupted read goes on."""
        return replace(self, start=min(max(next_offset, self.start), self.end))

    def split(self, max_records: int) -> list[OffsetRange]:
        """Cut into ranges of nearly the same size, none of more than `max_records` offsets. An empty range stays one."""
        most = as_integer(max_records, 2**63)
        if not most:
            raise UsageError(f"max_records must be a whole number from 1; got {max_records!r}")
        pieces = max(1, -(-len(self) // most))
        return self._cut([self.start + len(self) * i // pieces for i in range(1, pieces)])

    def _cut(self, at: Iterable[int]) -> list[OffsetRange]:
        edges = sorted({self.start, self.end, *at})
        return [replace(self, start=a, end=b) for a, b in pairwise(edges)] or [self]


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A time as milliseconds since 1970, where a plain number would be an offset."""

    ms: int


Bound: TypeAlias = int | str | Timestamp | datetime | timedelta | None
Bounds: TypeAlias = Bound | Mapping[Any, Bound]


def plan(
    bootstrap_servers: str | Iterable[str],
    topic: str | Iterable[str],
    *,
    start: Bounds = None,
    end: Bounds = None,
    partitions: Iterable[int] | int | None = None,
    isolation: Isolation = "read_uncommitted",
    max_records: int | None = None,
    target_bytes: int | None = None,
    timeout_ms: int | None = None,
    **settings: Any,
) -> list[OffsetRange]:
    """Decide what to read: ranges that together are exactly the offsets from `start` up to `end`, which is not included.

    topic           a name, or several
    start, end      an int is an offset, in each partition; a `datetime` with its time zone, or an ISO 8601 string of one, or a
                    `Timestamp(ms)`, is a time: the first offset whose record is not older; a `timedelta` is that long ago;
                    "earliest" and "latest" are the log's ends, and what None means. A mapping by partition number, or by
                    TopicPartition, has one of these for each; a partition that it leaves out gets what None means
    partitions      only these numbers
    isolation       under "read_committed" the latest end is the last stable offset, else the high watermark
    max_records     no range has more offsets than this
    target_bytes    ranges of about so many bytes, in memory, as `RecordBlock.nbytes` counts. Brokers don't tell how large records
                    are: a few small fetches measure it, in up to 8 places of a partition, so that a range may be larger or
                    smaller than asked for. What it covers is exact
    timeout_ms      for the whole plan; default: the setting default_api_timeout_ms
    settings        how to connect, as for Consumer

    Ends are fixed here: none is beyond what a partition holds now, and a start beyond that becomes the end. Each partition gets
    at least one range, if an empty one: `{r.tp: r.end for r in ranges}` is where the next plan starts. They come by topic,
    partition and offset.

    Raises UsageError for what cannot be meant; OffsetOutOfRangeError if records from an offset given as `start` are gone already
    (start="earliest" takes what is left); UnknownTopicError, TimeoutError, ConnectionFailedError.
    """
    names = [topic] if isinstance(topic, str) else list(dict.fromkeys(topic))
    now = datetime.now(UTC)
    first, last = _Bounds("start", start, EARLIEST, now), _Bounds("end", end, LATEST, now)
    if target_bytes is not None and not as_integer(target_bytes, 2**63):
        raise UsageError(f"target_bytes must be a whole number from 1; got {target_bytes!r}")
    config = _settings("plan", bootstrap_servers, isolation, {"max_partition_fetch_bytes": SAMPLE_BYTES} | settings)
    with Consumer(config) as consumer:
        questions = _Questions(consumer, timeout_ms)
        ids: dict[str, str | None] = {}
        tps: list[TopicPartition] = []
        for name in sorted(names):
            ids[name], known = questions.topic(name)
            tps += [TopicPartition(name, p) for p in sorted(_chosen(name, known, partitions))]
        _check_bounds(first, last, tps)
        # The end first: what retention takes away meanwhile makes a range shorter, never one that ends before it begins.
        ends = questions.offsets(dict.fromkeys(tps, LATEST))
        begins = questions.offsets(dict.fromkeys(tps, EARLIEST))
        starts = first.resolve(tps, begins, ends, questions)
        stops = last.resolve(tps, begins, ends, questions)
        servers = ",".join(f"[{host}]:{p}" if ":" in host else f"{host}:{p}" for host, p in consumer.config.bootstrap_servers)
        ranges = []
        for tp in tps:
            until, epoch = stops[tp], _at(ends, tp).leader_epoch
            ranges.append(OffsetRange(servers, *tp, min(starts[tp], until), until, isolation, ids[tp.topic], epoch))
        if target_bytes is not None:
            ranges = _cut_by_bytes(consumer, ranges, target_bytes, questions)
    return ranges if max_records is None else [part for each in ranges for part in each.split(max_records)]


def read(
    ranges: OffsetRange | Iterable[OffsetRange], /, *, timeout_ms: int | None = None, **settings: Any
) -> Iterator[RecordBlock]:
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
        return iter(())
    common = {(each.bootstrap_servers, each.isolation) for each in spans}
    if len(common) > 1:
        raise UsageError("read: these ranges have different bootstrap servers or isolation levels; read them one by one")
    [(servers, isolation)] = common
    config = _settings("read", settings.pop("bootstrap_servers", servers), isolation, settings)
    limit = ConsumerConfig.from_settings(config).default_api_timeout_ms if timeout_ms is None else timeout_ms
    return _read(spans, config, limit)


# --- reading ------------------------------------------------------------------------------------------------------------


def _read(spans: list[OffsetRange], config: dict[str, Any], timeout_ms: int) -> Iterator[RecordBlock]:
    todo: dict[TopicPartition, list[OffsetRange]] = {}
    for span in reversed(spans):
        todo.setdefault(span.tp, []).append(span)  # the next one is the last one
    with Consumer(config) as consumer:
        _check_ranges(spans, _Questions(consumer, timeout_ms))
        reader = _Reader(consumer, list(todo))
        for tp, parts in todo.items():
            reader.go(tp, parts[-1].start, parts[-1].end)
        while todo:
            try:
                blocks = reader.poll(timeout_ms)
            except NoOffsetForPartitionError as error:
                # A position was given; it is void only where the topic was deleted and created again.
                raise _another_topic(next(iter(todo))) from error
            for block in blocks:
                end = todo[TopicPartition(block.topic, block.partition)][-1].end
                if block.next_offset > end:
                    block = block[: int(block.offsets.searchsorted(end))]
                if len(block):
                    yield block
            for tp in [tp for tp, parts in todo.items() if reader.position(tp) >= parts[-1].end]:
                before = todo[tp].pop()
                after = todo[tp][-1] if todo[tp] else before.rest(before.end)
                reader.go(tp, after.start, after.end)  # an empty range: what is left of the buffer goes, nothing more is fetched
                if not todo[tp]:
                    del todo[tp]


def _check_ranges(spans: list[OffsetRange], questions: _Questions) -> None:
    """Is it still the topic that was planned, and has its log everything that was in it?"""
    for name in dict.fromkeys(span.topic for span in spans):
        topic_id, _ = questions.topic(name)
        for span in spans:
            if span.topic == name and None not in (topic_id, span.topic_id) and topic_id != span.topic_id:
                raise _another_topic(span.tp)
    ends = questions.offsets({span.tp: LATEST for span in spans})
    for span in spans:
        end = _at(ends, span.tp).offset
        if end < span.end:
            raise LogTruncationError(f"the log was cut: {span} was planned, and {span.tp} ends at {end} now", code=1)


def _another_topic(tp: TopicPartition) -> UnknownTopicError:
    return UnknownTopicError(
        f"the topic {tp.topic!r} that was planned does not exist any more; another one was created under its name: plan again",
        code=100,
    )


def _joined(ranges: list[OffsetRange]) -> list[OffsetRange]:
    """In order, and one where one ends and the next begins: cutting and seeking there would be in vain."""
    out: list[OffsetRange] = []
    for each in sorted(ranges, key=lambda r: (r.topic, r.partition, r.start)):
        last = out[-1] if out else None
        if last is None or last.tp != each.tp or last.end < each.start or last.topic_id != each.topic_id:
            out.append(each)
        elif last.end == each.start:
            out[-1] = replace(each, start=last.start)
        else:
            raise UsageError(f"read: {last} and {each} overlap: their records would come twice")
    return out


class _Reader:
    """A consumer whose partitions are each read from a start up to a stop, behind which nothing is fetched."""

    def __init__(self, consumer: Consumer, tps: list[TopicPartition]) -> None:
        consumer.assign(tps)
        self._consumer = consumer
        self._states = {tp: consumer._engine.subscription.get(tp, "read") for tp in tps}

    def go(self, tp: TopicPartition, start: int, stop: int) -> None:
        consumer = self._consumer
        with consumer._client.lock:
            self._states[tp].stop = stop
            consumer._engine.seek(tp, start)
            consumer._client.poke()

    def position(self, tp: TopicPartition) -> int:
        position = self._states[tp].position
        return -1 if position is None else position

    def poll(self, timeout_ms: int) -> list[RecordBlock]:
        """What is there. Nothing, if positions moved past batches without records. Raises TimeoutError if they didn't either."""
        before = [state.position for state in self._states.values()]
        blocks = self._consumer.poll_blocks(timeout_ms=timeout_ms)
        if not blocks and before == [state.position for state in self._states.values()]:
            raise self._stalled(timeout_ms)
        return blocks

    def _stalled(self, timeout_ms: int) -> FastFetchError:
        open_ = [state for state in self._states.values() if state.position is not None and state.position < state.stop]
        where = ", ".join(f"{state.tp} at {state.position} of {state.stop}" for state in open_[:5])
        more = f" and {len(open_) - 5} more" if len(open_) > 5 else ""
        return self._consumer._engine.unreachable() or TimedOut(f"nothing came for {timeout_ms} ms: {where}{more}")


# --- questions ----------------------------------------------------------------------------------------------------------


class _Questions:
    """Asks brokers, all within one time limit."""

    def __init__(self, consumer: Consumer, timeout_ms: int | None) -> None:
        self._consumer = consumer
        limit = consumer.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        self._deadline = time.monotonic() + limit / 1000

    @property
    def left_ms(self) -> int:
        return max(0, int((self._deadline - time.monotonic()) * 1000))

    def topic(self, name: str) -> tuple[str | None, set[int]]:
        """Its id and the numbers of its partitions."""
        consumer = self._consumer
        with consumer._call("topic"):
            found = consumer._ask(lambda: consumer._engine.ask_topic(name), self.left_ms, f"the partitions of topic {name!r}")
        return None if found.topic_id is None else _uuid(found.topic_id), set(found.partitions)

    def offsets(self, timestamps: Mapping[TopicPartition, int]) -> Found:
        consumer = self._consumer
        with consumer._call("offsets"):
            return consumer._ask(lambda: consumer._engine.offsets_at(timestamps), self.left_ms, "looking offsets up")


def _at(found: Found, tp: TopicPartition) -> OffsetAndTimestamp:
    at = found[tp]
    assert at is not None  # only a look-up by time finds none
    return at


def _uuid(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _chosen(topic: str, known: set[int], partitions: Iterable[int] | int | None) -> set[int]:
    if partitions is None:
        return known
    wanted = {partitions} if isinstance(partitions, int) else set(partitions)
    if unknown := wanted - known:
        raise UsageError(f"plan: topic {topic!r} has {len(known)} partitions, numbered from 0, and no {min(unknown)}")
    return wanted


# --- what callers give --------------------------------------------------------------------------------------------------

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIXED = {
    "isolation_level": "it is fixed when a range is planned: plan(isolation=…)",
    "auto_offset_reset": "a range has a start, and records that are gone are an error",
    "group_id": "nothing is committed for a range; keep the ranges that are done",
    "enable_auto_commit": "nothing is committed for a range; keep the ranges that are done",
}


def _settings(what: str, servers: Any, isolation: str, given: Mapping[str, Any]) -> dict[str, Any]:
    for name in given:
        if (why := _FIXED.get(name.replace(".", "_").lower())) is not None:
            raise UsageError(f"{what}: {name} can't be set; {why}")
    fixed = {"bootstrap_servers": servers, "isolation_level": isolation, "auto_offset_reset": "none", "enable_auto_commit": False}
    return {**given, **fixed}


class _Bound(NamedTuple):
    """One end: an offset; or a time in ms since 1970, or EARLIEST or LATEST."""

    offset: int | None = None
    time: int | None = None


class _Bounds:
    """One end of all partitions."""

    def __init__(self, what: str, given: Bounds, default: int, now: datetime) -> None:
        self._what = what
        self._rest = _Bound(time=default)
        self._each: dict[Any, _Bound] = {}
        if isinstance(given, Mapping):
            self._each = {key: self._bound(value, now) for key, value in given.items() if value is not None}
        elif given is not None:
            self._rest = self._bound(given, now)

    def of(self, tp: TopicPartition) -> _Bound:
        return self._each.get(tp) or self._each.get(tp.partition) or self._rest

    def check(self, tps: list[TopicPartition]) -> None:
        known = {*tps, *(tp.partition for tp in tps)}
        if unknown := [key for key in self._each if key not in known]:
            raise UsageError(f"plan: {self._what} names {unknown[0]!r}, which is none of the partitions to be read")

    def resolve(self, tps: list[TopicPartition], begins: Found, ends: Found, questions: _Questions) -> dict[TopicPartition, int]:
        bounds = {tp: self.of(tp) for tp in tps}
        times = {tp: bound.time for tp, bound in bounds.items() if bound.time is not None and bound.time >= 0}
        found = questions.offsets(times) if times else {}
        out: dict[TopicPartition, int] = {}
        for tp, bound in bounds.items():
            begin, end = _at(begins, tp).offset, _at(ends, tp).offset
            at = found.get(tp)
            if bound.offset is not None:
                if self._what == "start" and bound.offset < begin:
                    raise OffsetOutOfRangeError(
                        f"{tp} starts at {begin}: offsets from {bound.offset} on are gone; start='earliest' takes what is left",
                        code=1,
                    )
                offset = bound.offset
            elif bound.time == EARLIEST:
                offset = begin
            else:
                offset = end if at is None else at.offset
            out[tp] = min(offset, end)
        return out

    def _bound(self, given: Any, now: datetime) -> _Bound:
        what = self._what
        if given in ("earliest", "latest"):
            return _Bound(time=EARLIEST if given == "earliest" else LATEST)
        if isinstance(given, str):
            try:
                given = datetime.fromisoformat(given)
            except ValueError:
                raise UsageError(f"plan: {what}={given!r} is neither 'earliest', 'latest' nor a date in ISO 8601") from None
        if isinstance(given, timedelta):
            if given < timedelta(0):
                raise UsageError(f"plan: {what}={given!r} lies in the future; a timedelta is how long ago, so leave out the sign")
            given = now - given
        if isinstance(given, datetime):
            if given.utcoffset() is None:
                raise UsageError(
                    f"plan: {what}={given.isoformat()} has no time zone, and could be any of 24 hours; "
                    "write datetime(…, tzinfo=UTC), or .astimezone() for this machine's zone"
                )
            # Rounded up: records have whole milliseconds, and one in the middle of which the time lies is older.
            return _Bound(time=max(0, -((_EPOCH - given) // timedelta(milliseconds=1))))
        number = as_integer(given.ms if isinstance(given, Timestamp) else given, 2**63)
        if number is None:
            raise UsageError(
                f"plan: {what}={given!r} is no offset (an int from 0) and no time (a datetime with its zone, Timestamp(ms), "
                "a timedelta ago), nor 'earliest' or 'latest'"
            )
        return _Bound(time=number) if isinstance(given, Timestamp) else _Bound(offset=number)


def _check_bounds(first: _Bounds, last: _Bounds, tps: list[TopicPartition]) -> None:
    first.check(tps)
    last.check(tps)
    for tp in tps:
        a, b = first.of(tp), last.of(tp)
        if (a.offset is not None and b.offset is not None and a.offset > b.offset) or (
            a.time is not None and b.time is not None and a.time > b.time >= 0
        ):
            raise UsageError(f"plan: {tp} would end before it starts; is start later than end?")


# --- by bytes -----------------------------------------------------------------------------------------------------------


def _cut_by_bytes(consumer: Consumer, ranges: list[OffsetRange], target: int, questions: _Questions) -> list[OffsetRange]:
    """Cut where about `target` bytes have passed, by densities measured in up to SAMPLES places of each range."""
    sampled = [each for each in ranges if each]
    points: dict[TopicPartition, list[int]] = {each.tp: [] for each in sampled}
    densities: dict[TopicPartition, list[float]] = {each.tp: [] for each in sampled}
    reader = _Reader(consumer, list(points))
    reached = {each.tp: -1 for each in sampled}
    for turn in range(SAMPLES):
        at = {each.tp: each.start + len(each) * turn // SAMPLES for each in sampled}
        waiting = {tp: 0 for tp, point in at.items() if point > reached[tp]}
        for tp in waiting:
            reader.go(tp, at[tp], at[tp] + 1)
        while waiting:
            try:
                blocks = reader.poll(questions.left_ms)
            except CorruptBatchError as error:  # whoever reads will meet it
                waiting.pop(TopicPartition(error.topic, error.partition))
                continue
            for block in blocks:
                waiting[TopicPartition(block.topic, block.partition)] += block.nbytes
            for tp in [tp for tp in waiting if reader.position(tp) > at[tp]]:
                reached[tp] = reader.position(tp)
                points[tp].append(at[tp])
                densities[tp].append(waiting.pop(tp) / (reached[tp] - at[tp]))
    return [part for each in ranges for part in _cut_one(each, points.get(each.tp), densities.get(each.tp), target)]


def _cut_one(whole: OffsetRange, points: list[int] | None, densities: list[float] | None, target: int) -> list[OffsetRange]:
    if not points or not densities:
        return [whole]
    # From each point to the next one the density measured there; what lies before the first as that one. An offset counts at
    # least a byte, so that the sum grows everywhere.
    edges = np.array([0, *(point - whole.start for point in points[1:]), len(whole)])
    sums = np.concatenate(([0], np.cumsum(np.diff(edges) * np.maximum(densities, 1))))
    pieces = min(max(1, -int(-sums[-1] // target)), len(whole))
    cuts = np.interp(np.arange(1, pieces) * (sums[-1] / pieces), sums, edges)
    return whole._cut(whole.start + int(cut) for cut in cuts)
