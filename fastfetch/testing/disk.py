"""Segments of a broker's disk, served from there: what is kept in memory is an entry for each 64 KiB of them.

The headers are read once, when a segment is opened, and nothing is inflated. Bytes are read when they are asked for, with pread:
a mapped page that is cut off the file kills the process that touches it. The file stays open, so that it can be read to its end
also when a broker deletes it.

What is served is what a broker would serve that starts on these files:
- The last segment ends behind its last batch whose CRC is right. What a crash or a copy left behind it, and the zeros of
  preallocation, are not served.
- Bad bytes anywhere else are served as they are, up to where the next segment begins. The reader has to notice; a hole in the
  offsets would tell it nothing.
"""

from __future__ import annotations

import os
import struct
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path

import crc32c as _crc32c

from .batches import HEADER_SIZE, Entry
from .segments import Segment, max_timestamp

__all__ = ["DiskSegment"]

_STEP = 64 << 10  # between two entries of the index
_WINDOW = 1 << 20
_HEAD = 96  # of a batch is seen: its header, and a transaction marker whole
_OLD_SMALLEST = 14  # length of a message of format 0 without key and value
_LARGEST = 128 << 20  # more than any sane limit on batches

See = Callable[[Entry, memoryview], None]


class DiskSegment(Segment):
    """A `.log` file, as it was when it was opened.

    upto    first offset of the next segment; None: this is the last one
    remark  what is not served, or can't be read, as a sentence; "" if that is nothing
    """

    def __init__(self, path: Path, upto: int | None = None) -> None:
        self._fd = -1
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._path, self._upto = path, upto
        self._positions, self._firsts, self._lasts, self._times = (array("q") for _ in range(4))
        self.size = os.fstat(self._fd).st_size
        self.base_offset = int(path.stem) if path.stem.isdigit() else self._first_offset()
        self.next_offset = self.base_offset
        self.remark = ""

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    # --------------------------------------------------------------------------------------------------------------- opening

    def index(self, see: See) -> None:
        """Read all headers; once, before anything else. `see` is called with each batch and its first bytes, in order."""
        whole, upto = self.size, self._upto
        if upto is None:
            self.size = self._good_end()
        end = 0
        for entry, head in self._walk(0, self.size, self.base_offset):
            if not end or entry.start - self._positions[-1] >= _STEP:
                self._open_slot(entry.start, entry.base_offset)
            # Batches that overlap must not break the order that the look-up relies on.
            self._lasts[-1] = max(self._lasts[-1], entry.last_offset)
            self._times[-1] = max(self._times[-1], max_timestamp(entry, head))
            self.next_offset = max(self.next_offset, entry.last_offset + 1)
            see(entry, head)
            end = entry.end
        self.size = end
        if not self._has_data(end, whole):
            return
        if upto is not None and upto > self.next_offset:
            self.remark = f"{self._path}: offsets {self.next_offset} to {upto - 1} can't be read, from byte {end} on"
            self._open_slot(end, self.next_offset)
            self._lasts[-1] = upto - 1
            self.next_offset, self.size = upto, whole
        else:
            self.remark = f"{self._path}: the last {whole - end} bytes are no whole batch and are not served"

    def _first_offset(self) -> int:
        return next((entry.base_offset for entry, _ in self._walk(0, self.size, 0)), 0)

    def _open_slot(self, position: int, first: int) -> None:
        self._positions.append(position)
        self._firsts.append(first)
        self._lasts.append(self._lasts[-1] if self._lasts else -1)
        self._times.append(-1)

    def _good_end(self) -> int:
        """The byte behind the last batch whose CRC is right."""
        good = 0
        for entry, _ in self._walk(0, self.size, 0):
            if _crc_is_right(os.pread(self._fd, entry.end - entry.start, entry.start)):
                good = entry.end
        return good

    def _has_data(self, at: int, end: int) -> bool:
        """Is there anything but zeros? Holes of the file are not read."""
        while at < end:
            try:
                at = os.lseek(self._fd, at, os.SEEK_DATA)
            except OSError:  # ENXIO: no data up to the end
                return False
            chunk = os.pread(self._fd, min(_WINDOW, max(end - at, 0)), at)
            if chunk.strip(b"\0"):
                return True
            at += max(len(chunk), 1)
        return False

    def _walk(self, at: int, end: int, offset: int) -> Iterator[tuple[Entry, memoryview]]:
        """Each batch from a byte on, with its first bytes. Ends where none stands. `offset` is the first one possible there.

        Positions in the entries count from the file's start.
        """
        window, base = memoryview(b""), at
        while at < end:
            if at + min(_HEAD, end - at) > base + len(window):
                window, base = memoryview(os.pread(self._fd, min(_WINDOW, end - at), at)), at
            head = window[at - base : at - base + _HEAD]
            entry = _entry(head, at, end, offset)
            if entry is None:
                return
            yield entry, head
            at, offset = entry.end, max(offset, entry.last_offset + 1)

    # --------------------------------------------------------------------------------------------------------------- reading

    def locate(self, offset: int) -> tuple[int, int] | None:
        slot = bisect_left(self._lasts, offset)
        if slot == len(self._lasts):
            return None
        position, end = self._positions[slot], self._end_of(slot)
        for entry, _ in self._walk(position, end, self._firsts[slot]):
            if entry.last_offset >= offset:
                return entry.start, entry.end - entry.start
            position = entry.end
        return position, min(self.size - position, _STEP)  # bytes that are no batch

    def end_before(self, offset: int) -> int:
        if offset >= self.next_offset:
            return self.size
        slot = bisect_left(self._firsts, offset)
        if slot == 0:
            return 0
        for entry, _ in self._walk(self._positions[slot - 1], self._end_of(slot - 1), self._firsts[slot - 1]):
            if entry.base_offset >= offset:
                return entry.start
        return self._end_of(slot - 1)

    def upper_bound(self, position: int) -> int:
        slot = bisect_left(self._positions, position)
        return self._lasts[slot - 1] + 1 if slot else self.base_offset

    def read(self, position: int, length: int) -> list[memoryview]:
        return [memoryview(os.pread(self._fd, min(length, self.size - position), position))]

    def batches(self, since: int = -1) -> Iterator[tuple[Entry, memoryview]]:
        for slot, latest in enumerate(self._times):
            if latest < since:
                continue
            for entry, _ in self._walk(self._positions[slot], self._end_of(slot), self._firsts[slot]):
                yield entry, memoryview(os.pread(self._fd, entry.end - entry.start, entry.start))

    def _end_of(self, slot: int) -> int:
        return self._positions[slot + 1] if slot + 1 < len(self._positions) else self.size


def _entry(head: memoryview, at: int, end: int, offset: int) -> Entry | None:
    """The batch at byte `at`, if a whole one that makes sense stands there."""
    if len(head) < 12 + _OLD_SMALLEST:
        return None
    last, length = struct.unpack_from(">qi", head)
    magic, stop = head[16], at + 12 + length
    if length < (HEADER_SIZE - 12 if magic == 2 else _OLD_SMALLEST) or length > _LARGEST:
        return None
    if stop > end or magic > 2 or last < 0:
        return None
    if magic == 2:
        attributes, delta = struct.unpack_from(">hi", head, 21)
        return Entry(at, stop, magic, attributes, last, last + delta) if delta >= 0 else None
    # A compressed message says what the last offset in it is. Where it begins is only known to lie behind the one before.
    attributes = head[17]
    return Entry(at, stop, magic, attributes, min(offset, last) if attributes & 7 else last, last)


def _crc_is_right(batch: bytes) -> bool:
    if len(batch) < 12 + _OLD_SMALLEST:  # the file has become shorter
        return False
    if batch[16] == 2:
        return bool(struct.unpack_from(">I", batch, 17)[0] == _crc32c.crc32c(memoryview(batch)[21:]))
    return bool(struct.unpack_from(">I", batch, 12)[0] == zlib.crc32(memoryview(batch)[16:]))
