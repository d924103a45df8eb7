"""One partition as its leader sees it: the log, leader epochs, and what transactions did to it.

Rules of reading are Kafka's: a read starts at the batch that holds the offset asked for, ends at the byte limit wherever that
falls, and never goes past the high watermark or, for read_committed, the last stable offset.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from .batches import CONTROL, TRANSACTIONAL, Entry, entries, rebase, record_times
from .disk import DiskSegment
from .segments import GeneratedSegment, MemorySegment, Segment, max_timestamp

__all__ = ["Aborted", "Partition", "Slice"]

_SMALLEST_SEGMENT, _LARGEST_SEGMENT = 16 << 10, 4 << 20
_ABORT, _COMMIT = 0, 1


class Aborted(NamedTuple):
    """An aborted transaction: its producer, its first offset, and the offset of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class Slice(NamedTuple):
    """What a read gave: views of the bytes, how many they are, and an offset behind all that they touch."""

    buffers: list[memoryview]
    size: int
    end_offset: int


NOTHING = Slice([], 0, -1)


@dataclass(eq=False)
class Partition:
    """State of one partition. Whoever calls holds the cluster's lock.

    leader              node id; -1: nobody
    preferred_replica   node that consumers of version 11 and later are sent to (KIP-392); -1: none
    held_watermark      a high watermark to show instead of the log's end
    epochs              (leader epoch, first offset) each time a new epoch began to write (KIP-101)
    open_transactions   producer id: first offset
    """

    topic: str
    index: int
    leader: int
    replicas: list[int]
    leader_epoch: int = 0
    preferred_replica: int = -1
    log_start: int = 0
    next_offset: int = 0
    held_watermark: int | None = None
    segments: list[Segment] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    open_transactions: dict[int, int] = field(default_factory=dict)
    aborted: list[Aborted] = field(default_factory=list)

    @property
    def high_watermark(self) -> int:
        return self.next_offset if self.held_watermark is None else min(self.held_watermark, self.next_offset)

    @property
    def last_stable_offset(self) -> int:
        """The first offset of an open transaction, or the high watermark (KIP-98). Never before the log's start."""
        return max(self.log_start, min([self.high_watermark, *self.open_transactions.values()]))

    def visible_end(self, isolation: int) -> int:
        return self.last_stable_offset if isolation else self.high_watermark

    # ------------------------------------------------------------------------------------------------------------ writing

    def begin_epoch(self, epoch: int) -> None:
        """A new leader takes over. Epochs that wrote nothing leave no trace (as in Kafka's leader-epoch-checkpoint)."""
        self.leader_epoch = epoch
        self._epoch_starts(epoch, self.next_offset)

    def _epoch_starts(self, epoch: int, offset: int) -> None:
        self.epochs = [(e, start) for e, start in self.epochs if e < epoch and start < offset]
        self.epochs.append((epoch, offset))

    def append(self, data: bytes, *, keep_offsets: bool = False) -> tuple[int, int]:
        """Append batches as a leader does, giving them offsets and its epoch; first and last offset.

        keep_offsets    the batches say where they belong, at or above the log's end; what lies between is a hole as compaction
                        leaves them
        """
        marks = list(entries(data))
        if not marks or marks[-1].end != len(data):
            raise ValueError("append() takes whole batches; append_raw() takes any bytes")
        if not keep_offsets:
            data = rebase(data, self.next_offset, self.leader_epoch)
            marks = list(entries(data))
        elif marks[0].base_offset < self.next_offset:
            raise ValueError(f"{self}: base offset {marks[0].base_offset} lies below the log's end {self.next_offset}")
        elif not self.segments and not self.next_offset:
            self._begin_at(marks[0].base_offset)
        for mark in marks:
            self._store(data[mark.start : mark.end], mark.base_offset, mark.last_offset)
            self._note(mark, memoryview(data)[mark.start : mark.end])
        return marks[0].base_offset, marks[-1].last_offset

    def append_raw(self, data: bytes, offsets: int) -> tuple[int, int]:
        """Append bytes as they are, to be served for the next `offsets` offsets; first and last of those."""
        base = self.next_offset
        self._store(data, base, base + offsets - 1)
        return base, base + offsets - 1

    def generate(self, template: bytes, repeats: int) -> None:
        """Append `repeats` copies of a run of batches without storing them."""
        self._add(GeneratedSegment(template, repeats, self.next_offset, self.leader_epoch))

    def load(self, files: Sequence[Path], open_transactions: Mapping[int, int]) -> list[str]:
        """Serve `.log` files, in order and as they are on disk. Returns what of them is not, as sentences."""
        remarks = []
        self.open_transactions |= open_transactions
        for file, following in zip_longest(files, files[1:]):
            upto = int(following.stem) if following is not None and following.stem.isdigit() else None
            segment = DiskSegment(file, upto)
            if not self.segments and not self.next_offset:
                self._begin_at(segment.base_offset)
            segment.index(self._see)
            self._add(segment)
            if segment.remark:
                remarks.append(segment.remark)
        return remarks

    def _see(self, entry: Entry, head: memoryview) -> None:
        """A batch that is on disk already."""
        self._note(entry, head)
        epoch = struct.unpack_from(">i", head, 12)[0] if entry.magic == 2 else -1
        if epoch > (self.epochs[-1][0] if self.epochs else -1):
            self._epoch_starts(epoch, entry.base_offset)
            self.leader_epoch = max(self.leader_epoch, epoch)

    def delete_before(self, offset: int) -> None:
        """Move the log start, as DeleteRecords and retention do. Whole segments go; a batch may be left that starts below."""
        self.log_start = max(self.log_start, min(offset, self.next_offset))
        self.segments = [s for s in self.segments if s.next_offset > self.log_start]
        self.aborted = [a for a in self.aborted if a.last_offset >= self.log_start]

    def truncate(self, offset: int) -> None:
        """Cut the log's end off, as a replica does that becomes leader without the last batches (unclean election)."""
        kept: list[Segment] = []
        for segment in self.segments:
            if segment.next_offset <= offset:
                kept.append(segment)
            elif segment.base_offset < offset:
                if not isinstance(segment, MemorySegment):
                    raise ValueError(f"{self}: only appended batches can be truncated")
                kept.append(segment.cut(offset))
        self.segments = kept
        self.next_offset = max(offset, self.log_start)
        self.epochs = [(epoch, start) for epoch, start in self.epochs if start < self.next_offset]
        self.aborted = [a for a in self.aborted if a.last_offset < self.next_offset]
        self.open_transactions = {p: first for p, first in self.open_transactions.items() if first < self.next_offset}

    def _begin_at(self, offset: int) -> None:
        """An empty log's first offset needn't be 0."""
        self.log_start = self.next_offset = offset
        self.epochs = [(self.leader_epoch, offset)]

    def _store(self, data: bytes, base_offset: int, last_offset: int) -> None:
        last = self.segments[-1] if self.segments else None
        if not isinstance(last, MemorySegment) or not last.fits(len(data)):
            used = sum(s.size for s in self.segments)
            capacity = max(len(data), min(max(used, _SMALLEST_SEGMENT), _LARGEST_SEGMENT))
            last = MemorySegment(self.next_offset, capacity)
            self.segments.append(last)
        last.append(data, base_offset, last_offset)
        self.next_offset = max(self.next_offset, last.next_offset)

    def _add(self, segment: Segment) -> None:
        self.segments.append(segment)
        self.next_offset = max(self.next_offset, segment.next_offset)

    def _note(self, entry: Entry, batch: memoryview) -> None:
        """Keep account of transactions, from batch headers and markers."""
        if entry.magic != 2 or not entry.attributes & TRANSACTIONAL:
            return
        (producer_id,) = struct.unpack_from(">q", batch, 43)
        if not entry.attributes & CONTROL:
            # A batch that compaction emptied holds nothing back, and its marker may be gone.
            if struct.unpack_from(">i", batch, 57)[0]:
                self.open_transactions.setdefault(producer_id, entry.base_offset)
            return
        kind = _marker_kind(batch)
        if kind not in (_ABORT, _COMMIT):
            return
        first = self.open_transactions.pop(producer_id, None)
        if kind == _ABORT and first is not None:
            self.aborted.append(Aborted(producer_id, first, entry.last_offset))

    # ------------------------------------------------------------------------------------------------------------ reading

    def read(self, offset: int, max_bytes: int, isolation: int, *, at_least_one: bool) -> Slice:
        """Bytes from the batch that holds `offset` on.

        at_least_one    the first batch comes whole, whatever `max_bytes` (KIP-74); without it a first batch that does not fit
                        gives nothing
        """
        end = self.visible_end(isolation)
        buffers: list[memoryview] = []
        size, reached = 0, offset
        if offset >= end:
            return NOTHING
        first = bisect_left(self.segments, offset, key=lambda s: s.next_offset - 1)
        for segment in self.segments[first:]:
            place = segment.locate(offset)
            if place is None:
                continue
            start, first_size = place
            stop = segment.end_before(end)
            if start >= stop:
                break
            if not buffers:
                if first_size > max_bytes and not at_least_one:
                    return NOTHING
                max_bytes = max(max_bytes, first_size)
            length = min(stop - start, max_bytes - size)
            buffers += segment.read(start, length)
            size += length
            reached = segment.upper_bound(start + length)
            if size >= max_bytes:
                break
        return Slice(buffers, size, reached)

    def aborted_between(self, offset: int, end: int) -> list[Aborted]:
        """Aborted transactions that touch [offset, end)."""
        return [a for a in self.aborted if a.last_offset >= offset and a.first_offset < end]

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """(largest epoch not above `epoch`, where it ended); (-1, -1) if the log can't say (KIP-320)."""
        if self.epochs and epoch == self.epochs[-1][0]:
            return epoch, self.next_offset
        later = [start for e, start in self.epochs if e > epoch]
        if epoch < 0 or not later:
            return -1, -1
        floor = [e for e, _ in self.epochs if e <= epoch]
        return (floor[-1] if floor else epoch), later[0]

    def epoch_at(self, offset: int) -> int:
        """Leader epoch that wrote the record at `offset`; -1 if nothing says."""
        before = [epoch for epoch, start in self.epochs if start <= offset]
        return before[-1] if before else -1

    def find_time(self, timestamp: int, end: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record below `end` whose time is not before `timestamp`."""
        for entry, batch in self._timed(timestamp):
            if entry.base_offset >= end:
                return None
            if entry.last_offset < self.log_start or max_timestamp(entry, batch) < timestamp:
                continue
            for offset, when in record_times(bytes(batch)):
                if self.log_start <= offset < end and when >= timestamp:
                    return offset, when
        return None

    def latest_time(self, end: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the record below `end` with the greatest time; the first one of several."""
        best: tuple[Entry, memoryview] | None = None
        for entry, batch in self._timed():
            if entry.base_offset >= end:
                break
            if best is None or max_timestamp(entry, batch) > max_timestamp(*best):
                best = entry, batch
        if best is None:
            return None
        times = [pair for pair in record_times(bytes(best[1])) if self.log_start <= pair[0] < end]
        return max(times, key=lambda pair: (pair[1], -pair[0]), default=None)

    def _timed(self, since: int = -1) -> Iterator[tuple[Entry, memoryview]]:
        for segment in self.segments:
            yield from segment.batches(since)

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


def _marker_kind(batch: memoryview) -> int:
    """Type of a control batch: 0 abort, 1 commit; -1 if the key can't be read."""
    # record length, attributes, timestamp and offset deltas and key length are one byte each in every real marker
    key = bytes(batch[66:70])
    return struct.unpack(">hh", key)[1] if len(key) == 4 and batch[65] == 8 else -1
