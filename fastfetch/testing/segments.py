"""Where a test broker keeps batches: in memory, or made on demand from a template. `disk` has the files of a real broker.

A segment is a run of bytes with an index from offsets to byte positions. Reading gives views of those bytes, so a large fetch
response is sent without being copied, and may end in the middle of a batch as a broker's does.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import itemgetter

from .batches import Entry, entries

__all__ = ["GeneratedSegment", "MemorySegment", "Segment", "max_timestamp"]

_INDEX_INTERVAL = 4096  # index.interval.bytes


class Segment(ABC):
    """Batches of one partition, one behind the other.

    base_offset     first offset that may be asked for here
    next_offset     one past the last offset
    size            bytes
    """

    base_offset: int
    next_offset: int
    size: int

    @abstractmethod
    def locate(self, offset: int) -> tuple[int, int] | None:
        """Position and size of the first batch that ends at or above `offset`; None: every batch ends below it."""

    @abstractmethod
    def end_before(self, offset: int) -> int:
        """Position up to which batches start below `offset`."""

    @abstractmethod
    def upper_bound(self, position: int) -> int:
        """An offset behind all batches that start before `position`. It may lie some batches further on: see `MemorySegment`."""

    @abstractmethod
    def read(self, position: int, length: int) -> list[memoryview]:
        """Views that together are the `length` bytes from `position` on, or fewer at the segment's end."""

    @abstractmethod
    def batches(self, since: int = -1) -> Iterator[tuple[Entry, memoryview]]:
        """Each batch with its place in the segment and its bytes. Those without a record at or after `since` may be left out."""


class MemorySegment(Segment):
    """Appended batches, in a buffer of fixed size: a view of it stays good while more is written behind.

    Three parallel lists have a batch's position, its first and its last offset.
    `_index` is the sparse index of a broker, an entry each 4 KiB. It is here because clients see it: the end that a broker takes
    from it decides which aborted transactions come with an answer, and those may begin behind the answer's records.
    """

    def __init__(self, base_offset: int, capacity: int) -> None:
        self.base_offset = self.next_offset = base_offset
        self.size = 0
        self._capacity = capacity
        self._view = memoryview(bytearray(capacity))
        self._positions: list[int] = []
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._index: list[tuple[int, int]] = []
        self._not_indexed = 0

    def _add(self, position: int, end: int, base: int, last: int) -> None:
        self._positions.append(position)
        self._firsts.append(base)
        # Batches that a test made overlap must not break the order that the look-up relies on.
        self._lasts.append(max(last, self._lasts[-1]) if self._lasts else last)
        if self._not_indexed > _INDEX_INTERVAL:
            self._index.append((position, last))
            self._not_indexed = 0
        self._not_indexed += end - position
        self.size = end
        self.next_offset = max(self.next_offset, last + 1)

    def locate(self, offset: int) -> tuple[int, int] | None:
        i = bisect_left(self._lasts, offset)
        if i == len(self._lasts):
            return None
        end = self._positions[i + 1] if i + 1 < len(self._positions) else self.size
        return self._positions[i], end - self._positions[i]

    def end_before(self, offset: int) -> int:
        if offset >= self.next_offset:
            return self.size
        i = bisect_left(self._firsts, offset)
        return self._positions[i] if i < len(self._positions) else self.size

    def upper_bound(self, position: int) -> int:
        i = bisect_right(self._index, position, key=itemgetter(0))
        return self._index[i][1] if i < len(self._index) else self.next_offset

    def read(self, position: int, length: int) -> list[memoryview]:
        return [self._view[position : min(position + length, self.size)]]

    def batches(self, since: int = -1) -> Iterator[tuple[Entry, memoryview]]:
        for i, start in enumerate(self._positions):
            end = self._positions[i + 1] if i + 1 < len(self._positions) else self.size
            batch = self._view[start:end]
            for entry in entries(batch):
                yield entry._replace(start=start + entry.start, end=start + entry.end), batch[entry.start : entry.end]

    def fits(self, size: int) -> bool:
        return self.size + size <= self._capacity

    def append(self, data: bytes | memoryview, base_offset: int, last_offset: int) -> None:
        start = self.size
        self._view[start : start + len(data)] = data
        self._add(start, start + len(data), base_offset, last_offset)

    def cut(self, offset: int) -> MemorySegment:
        """A copy with the batches that end below `offset`. A copy, because views of the rest may still be on their way."""
        kept = MemorySegment(self.base_offset, self._capacity)
        for i, start in enumerate(self._positions):
            if self._lasts[i] >= offset:
                break
            end = self._positions[i + 1] if i + 1 < len(self._positions) else self.size
            kept.append(self._view[start:end], self._firsts[i], self._lasts[i])
        return kept


class GeneratedSegment(Segment):
    """`repeats` copies of a template run of batches, each moved to its own offsets when it is read.

    Base offset, length and leader epoch are a batch's first 16 bytes, and outside its CRC: a copy is new starts, and views of the
    template for all the rest. So any amount of data is served out of one template that stays in the processor's cache. Timestamps
    repeat.
    """

    _START = 16

    def __init__(self, template: bytes, repeats: int, base_offset: int, leader_epoch: int = 0) -> None:
        marks = list(entries(template))
        if not marks or marks[-1].end != len(template) or any(mark.magic != 2 for mark in marks):
            raise ValueError("a template is a run of whole batches of format 2")
        if repeats < 1:
            raise ValueError(f"repeats must be 1 or more, not {repeats}")
        first, view = marks[0].base_offset, memoryview(template)
        self._rests = [view[mark.start + self._START : mark.end] for mark in marks]
        self._lengths = [mark.end - mark.start - 12 for mark in marks]
        self._positions = [*(mark.start for mark in marks), len(template)]
        self._firsts = [mark.base_offset - first for mark in marks]
        self._lasts = [mark.last_offset - first for mark in marks]
        self._span = self._lasts[-1] + 1
        self._repeats = repeats
        self._epoch = leader_epoch
        self.base_offset = base_offset
        self.next_offset = base_offset + self._span * repeats
        self.size = len(template) * repeats

    def locate(self, offset: int) -> tuple[int, int] | None:
        if offset >= self.next_offset:
            return None
        copy, rest = divmod(max(offset - self.base_offset, 0), self._span)
        i = bisect_left(self._lasts, rest)
        start, end = self._positions[i : i + 2]
        return copy * self._positions[-1] + start, end - start

    def end_before(self, offset: int) -> int:
        if offset >= self.next_offset:
            return self.size
        copy, rest = divmod(max(offset - self.base_offset, 0), self._span)
        return copy * self._positions[-1] + self._positions[bisect_left(self._firsts, rest)]

    def upper_bound(self, position: int) -> int:
        if position <= 0:
            return self.base_offset
        copy, rest = divmod(position - 1, self._positions[-1])
        return self.base_offset + copy * self._span + self._lasts[bisect_right(self._positions, rest) - 1] + 1

    def read(self, position: int, length: int) -> list[memoryview]:
        out: list[memoryview] = []
        end = min(position + length, self.size)
        size = self._positions[-1]
        while position < end:
            copy, start = divmod(position, size)
            stop = min(size, start + end - position)
            first = bisect_right(self._positions, start) - 1
            last = bisect_left(self._positions, stop)
            pieces = self._batches(copy, first, last)
            # Whole batches so far: trim the first and the last.
            _trim_start(pieces, start - self._positions[first])
            _trim_end(pieces, self._positions[last] - stop)
            out += pieces
            position += stop - start
        return out

    def batches(self, since: int = -1) -> Iterator[tuple[Entry, memoryview]]:
        for copy in range(self._repeats):
            for i in range(len(self._rests)):
                batch = memoryview(b"".join(self._batches(copy, i, i + 1)))
                for entry in entries(batch):
                    start = copy * self._positions[-1] + self._positions[i]
                    yield entry._replace(start=start, end=start + len(batch)), batch

    def _batches(self, copy: int, first: int, last: int) -> list[memoryview]:
        """Batches `first` to `last` (exclusive) of one copy, each as its start and the rest."""
        base = self.base_offset + copy * self._span
        starts = bytearray(self._START * (last - first))
        view, at = memoryview(starts).toreadonly(), 0
        out: list[memoryview] = []
        for i in range(first, last):
            _BATCH_START.pack_into(starts, at, base + self._firsts[i], self._lengths[i], self._epoch)
            out += (view[at : at + self._START], self._rests[i])
            at += self._START
        return out


_BATCH_START = struct.Struct(">qii")


def _trim_start(pieces: list[memoryview], size: int) -> None:
    while size:
        if size < len(pieces[0]):
            pieces[0] = pieces[0][size:]
            return
        size -= len(pieces.pop(0))


def _trim_end(pieces: list[memoryview], size: int) -> None:
    while size:
        if size < len(pieces[-1]):
            pieces[-1] = pieces[-1][:-size]
            return
        size -= len(pieces.pop())


def max_timestamp(entry: Entry, head: memoryview) -> int:
    """The latest timestamp in a batch as its header has it; -1 for format 0."""
    if entry.magic == 0:
        return -1
    return int(struct.unpack_from(">q", head, 35 if entry.magic == 2 else 18)[0])
