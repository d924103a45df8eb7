"""What there is to read: the record batches of a topic, or of segments on disk, as they are stored; what they are like, and
pieces of them for decoders.

A topic's bytes are those that brokers send a consumer of ours, taken before they are decoded. Transaction markers are left out:
they hold no records.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fastfetch.benchmark.results import Case
from fastfetch.consumer import Consumer
from fastfetch.errors import TimeoutError as TimedOut
from fastfetch.log import headers
from fastfetch.records import BatchHeader, decode
from fastfetch.segments import Cursor, Log, proved_headers
from fastfetch.types import TopicPartition

__all__ = ["Batch", "Piece", "Pieces", "Shape", "Share", "kind_of", "of_log", "of_topic"]

_HEADER_BYTES = 61  # of a batch of format 2; it is not compressed
_POLL_MS = 500


class Batch(NamedTuple):
    """One batch of a partition. The view is good until the next one."""

    tp: TopicPartition
    header: BatchHeader
    view: memoryview


def of_topic(consumer: Consumer, tps: Iterable[TopicPartition]) -> Iterator[Batch]:
    """The batches that partitions have now, from their beginning on. The consumer is then of no other use.

    Raises what poll raises, and TimeoutError if nothing comes.
    """
    tps = list(tps)
    answers: deque[tuple[TopicPartition, memoryview]] = deque()
    consumer._engine.intake.tap = lambda tp, records: answers.append((tp, memoryview(bytes(records))))
    ends, reached = consumer.end_offsets(tps), consumer.beginning_offsets(tps)
    consumer.assign(tps)
    consumer.seek_to_beginning(tps)
    open_ = {tp for tp in tps if reached[tp] < ends[tp]}
    heard, patience = time.monotonic(), consumer.config.default_api_timeout_ms / 1000
    while open_:
        # Its records are dropped: that makes room for more.
        if consumer.poll_blocks(timeout_ms=_POLL_MS) or answers:
            heard = time.monotonic()
        elif time.monotonic() - heard > patience:
            tp = min(open_)
            raise TimedOut(f"nothing came for {patience:g} s: {tp} is at {consumer.position(tp)} of {ends[tp]}")
        # Asked before the answers are looked at: what moved a position is among them.
        open_ = {tp for tp in open_ if consumer.position(tp) < ends[tp]}
        while answers:
            tp, records = answers.popleft()
            for header in proved_headers(records, check_crcs=False):  # the consumer has compared them
                if header.next_offset > reached[tp]:  # an answer that there was no room for comes again
                    reached[tp] = header.next_offset
                    if not header.control:
                        yield Batch(tp, header, records[header.byte_pos : header.byte_pos + header.size])


def of_log(path: Path) -> Iterator[Batch]:
    """The batches of a segment, or of a partition's folder. Raises OSError, UsageError and CorruptBatchError."""
    log = Log(path)
    tp = TopicPartition(log.topic or path.name, log.partition)
    with closing(Cursor(log, None)) as cursor:
        for at, header in headers(cursor):
            if not header.control:
                yield Batch(tp, header, cursor.file.view(at, header.size))


def kind_of(header: BatchHeader) -> str:
    """A batch's codec, and its format if that is an old one."""
    return header.codec if header.magic == 2 else f"{header.codec}, format {header.magic}"


@dataclass
class Share:
    """Batches of one kind."""

    batches: int = 0
    records: int = 0
    wire_bytes: int = 0
    inflated_bytes: int = 0

    def add(self, batch: Batch) -> int:
        """Count a batch; returns its number of records. Raises CorruptBatchError."""
        decoded = decode(batch.view, check_crcs=False, topic=batch.tp.topic, partition=batch.tp.partition)
        decoded.raise_for_error()
        size = len(batch.view)
        self.batches += 1
        self.records += len(decoded)
        self.wire_bytes += size
        inflated = decoded.stats.inflated_bytes
        if batch.header.codec == "none":
            inflated = size
        elif batch.header.magic == 2:
            inflated += _HEADER_BYTES
        self.inflated_bytes += inflated
        return len(decoded)


@dataclass
class Shape:
    """What batches are like, of all that were added."""

    shares: dict[str, Share] = field(default_factory=dict)
    partitions: set[TopicPartition] = field(default_factory=set)
    has_append_time: bool = False

    def add(self, batch: Batch) -> int:
        """Count a batch; returns its number of records."""
        self.partitions.add(batch.tp)
        self.has_append_time |= batch.header.timestamp_type == 1
        return self.shares.setdefault(kind_of(batch.header), Share()).add(batch)

    @property
    def records(self) -> int:
        return sum(share.records for share in self.shares.values())

    @property
    def inflated_bytes(self) -> int:
        return sum(share.inflated_bytes for share in self.shares.values())

    def case(self, case_id: str, topic: str, *, partitions: int | None = None, threads: int | None = None) -> Case:
        """All of it as a case. `partitions` of the topic; default: those that had batches."""
        shares = self.shares.values()
        records, batches, wire, inflated = (
            sum(getattr(share, name) for share in shares) for name in ("records", "batches", "wire_bytes", "inflated_bytes")
        )
        return Case(
            case_id, topic, "+".join(self.shares), len(self.partitions) if partitions is None else partitions, records,
            round(records / max(1, batches), 1), round(inflated / max(1, records), 1), wire, inflated, threads,
        )  # fmt: skip


@dataclass(frozen=True)
class Piece:
    """Batches of one partition and one kind, about as many as a fetch brings: what a decoder is given at once. `inflated` is what
    they are after decompression, batch headers included."""

    name: str
    codec: str
    data: bytes
    records: int
    inflated: int


@dataclass
class _Open:
    """A piece that is being filled."""

    data: bytearray = field(default_factory=bytearray)
    records: int = 0
    inflated: int = 0


class Pieces:
    """Cuts batches into pieces, of each kind until it has `kind_bytes` after decompression."""

    def __init__(self, piece_bytes: int, kind_bytes: int) -> None:
        self.shapes: dict[str, Shape] = {}
        self._piece_bytes = piece_bytes
        self._kind_bytes = kind_bytes
        self._done: dict[str, list[Piece]] = {}
        self._open: dict[tuple[str, TopicPartition], _Open] = {}
        self._passed = 0

    def add(self, batch: Batch) -> None:
        """Take a batch, or pass it over where there is enough of its kind."""
        kind = kind_of(batch.header)
        shape = self.shapes.setdefault(kind, Shape())
        if self._is_full(shape):
            self._passed += len(batch.view)
            return
        before = shape.inflated_bytes
        records = shape.add(batch)
        piece = self._open.setdefault((kind, batch.tp), _Open())
        piece.data += batch.view
        piece.records += records
        piece.inflated += shape.inflated_bytes - before
        if len(piece.data) >= self._piece_bytes:
            self._close(kind, batch.tp)

    @property
    def has_enough(self) -> bool:
        """Each kind that was seen is full, and what was passed over since brought no other."""
        return self._passed >= self._kind_bytes and all(map(self._is_full, self.shapes.values()))

    def cut(self) -> dict[str, list[Piece]]:
        """The pieces of each kind."""
        for kind, tp in list(self._open):
            self._close(kind, tp)
        return self._done

    def _is_full(self, shape: Shape) -> bool:
        return shape.inflated_bytes >= self._kind_bytes

    def _close(self, kind: str, tp: TopicPartition) -> None:
        piece = self._open.pop((kind, tp))
        if piece.records:
            made = Piece(f"{tp}, {kind}", kind, bytes(piece.data), piece.records, piece.inflated)
            self._done.setdefault(kind, []).append(made)
