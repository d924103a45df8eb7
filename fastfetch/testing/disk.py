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

from .batches import HEADER_SIZE, TRANSACTIONAL, Entry
from .segments import Segment, max_timestamp

__all__ = ["DiskSegment"]

_STEP = 64 << 10  # between two entries of the index
_WINDOW = 1 << 20
_HEAD = 96  # of a batch is seen: its header, and a transaction marker whole
_OLD_SMALLEST = 14  # length of a message of format 0 without key and value
_SMALLEST = (_OLD_SMALLEST, _OLD_SMALLEST + 8, HEADER_SIZE - 12)  # by format
_LARGEST = 128 << 20  # more than any sane limit on batches
_START = struct.Struct(">qi")  # base offset, length
_FRONT = struct.Struct(">qiibIhiqq")  # the same, epoch, magic, CRC, attributes, last offset delta, base and max timestamp

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
        """Read all headers; once, before anything else.

        `see` is called with batches and their first bytes: those of transactions, and the first one of each leader epoch.
        """
        whole, upto = self.size, self._upto
        if upto is None:
            self.size = self._good_end()
        end, next_step, last, epoch = 0, 0, self.base_offset - 1, -1
        for start, end, window, place in self._heads(0, self.size):
            # The whole of what a large log costs at the start is this loop: it makes no object that nobody looks at.
            if window[place + 16] == 2:
                base, _, its_epoch, _, _, attributes, delta, _, latest = _FRONT.unpack_from(window, place)
                its_last = base + delta
                if upto is not None and its_last >= upto:  # its base offset, which no CRC covers, is wrong
                    end = start
                    break
                if attributes & TRANSACTIONAL or its_epoch != epoch:
                    epoch = its_epoch
                    see(Entry(start, end, 2, attributes, base, its_last), window[place : place + _HEAD])
            else:
                entry = _entry(start, end, window, place, last + 1)
                base, its_last, latest = entry.base_offset, entry.last_offset, max_timestamp(entry, window[place:])
            if start >= next_step:
                self._open_slot(start, base)
                next_step = start + _STEP
            # Batches that overlap must not break the order that the look-up relies on.
            if its_last > last:
                self._lasts[-1] = last = its_last
            if latest > self._times[-1]:
                self._times[-1] = latest
        self.size = end
        self.next_offset = last + 1
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
        return next((entry.base_offset for entry in self._walk(0, self.size, 0)), 0)

    def _open_slot(self, position: int, first: int) -> None:
        self._positions.append(position)
        self._firsts.append(first)
        self._lasts.append(self._lasts[-1] if self._lasts else -1)
        self._times.append(-1)

    def _good_end(self) -> int:
        """The byte behind the last batch whose CRC is right."""
        good = 0
        for start, end, window, place in self._heads(0, self.size):
            batch = window[place : place + end - start]
            if len(batch) < end - start:
                batch = memoryview(os.pread(self._fd, end - start, start))
            if _crc_is_right(batch, end - start):
                good = end
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

    def _heads(self, at: int, end: int) -> Iterator[tuple[int, int, memoryview, int]]:
        """(start, end, bytes, place in the bytes) of each batch from a byte on; the bytes have its header. Ends where none is."""
        window, base = memoryview(b""), at
        while at < end:
            place = at - base
            if place + _HEAD > len(window) and base + len(window) < end:
                window, base, place = memoryview(os.pread(self._fd, min(_WINDOW, end - at), at)), at, 0
            if len(window) - place < 12 + _OLD_SMALLEST:
                return
            offset, length = _START.unpack_from(window, place)
            magic, stop = window[place + 16], at + 12 + length
            if not (_SMALLEST[magic] if magic <= 2 else _LARGEST) <= length < _LARGEST or stop > end or offset < 0:
                return
            if magic == 2 and window[place + 23] >= 0x80:  # the last offset would lie below the first
                return
            yield at, stop, window, place
            at = stop

    def _walk(self, at: int, end: int, offset: int) -> Iterator[Entry]:
        """Each batch from a byte on. `offset` is the first one possible there."""
        for start, stop, window, place in self._heads(at, end):
            entry = _entry(start, stop, window, place, offset)
            yield entry
            offset = max(offset, entry.last_offset + 1)

    # --------------------------------------------------------------------------------------------------------------- reading

    def locate(self, offset: int) -> tuple[int, int] | None:
        slot = bisect_left(self._lasts, offset)
        if slot == len(self._lasts):
            return None
        position, end = self._positions[slot], self._end_of(slot)
        for entry in self._walk(position, end, self._firsts[slot]):
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
        for entry in self._walk(self._positions[slot - 1], self._end_of(slot - 1), self._firsts[slot - 1]):
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
            for entry in self._walk(self._positions[slot], self._end_of(slot), self._firsts[slot]):
                batch = memoryview(os.pread(self._fd, entry.end - entry.start, entry.start))
                if _crc_is_right(batch, entry.end - entry.start):  # or it can't be looked into
                    yield entry, batch

    def _end_of(self, slot: int) -> int:
        return self._positions[slot + 1] if slot + 1 < len(self._positions) else self.size


def _entry(start: int, end: int, window: memoryview, place: int, offset: int) -> Entry:
    """The batch whose header stands at a place of the window. `offset` is the first one possible there."""
    if window[place + 16] == 2:
        base, _, _, _, _, attributes, delta, _, _ = _FRONT.unpack_from(window, place)
        return Entry(start, end, 2, attributes, base, base + delta)
    # A compressed message says what the last offset in it is. Where it begins is only known to lie behind the one before.
    (last, _), attributes = _START.unpack_from(window, place), window[place + 17]
    return Entry(start, end, window[place + 16], attributes, min(offset, last) if attributes & 7 else last, last)


def _crc_is_right(batch: memoryview, size: int) -> bool:
    if len(batch) < size:  # the file has become shorter
        return False
    if batch[16] == 2:
        return bool(struct.unpack_from(">I", batch, 17)[0] == _crc32c.crc32c(batch[21:]))
    return bool(struct.unpack_from(">I", batch, 12)[0] == zlib.crc32(batch[16:]))
