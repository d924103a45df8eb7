"""Log segments as files: which there are, bytes by position, where an offset begins. `fastfetch.log` reads records from them.

A partition is a folder `<topic>-<partition>/`. Its records lie in segments named after their first offset:

    00000000000000008070.log         record batches back to back, the same bytes as in a fetch response
    00000000000000008070.index       entries {offset int32, relative to the name | position int32}, sparse, ascending
    00000000000000008070.snapshot    producers and their open transactions at that offset (read by `fastfetch.log`)
    00000000000000008070.timeindex, .txnindex                   not read

What holds:
- **Sealed segments are mapped, the last one is read.** A mapped page that is cut off a file kills the process with SIGBUS, and
  the last segment is the one that is cut: a broker trims a preallocated segment, a follower truncates its log. It is therefore
  read with pread, into buffers that are used again once no block refers to them. Segments before the last are not written any
  more: they are mapped, only as far as their size was seen, and the size is looked at again before each window. Small ones are
  read as well, so that keeping all blocks of a log of many small segments does not use up the file descriptors (a mapping
  holds one).
- **The index is a hint.** A position taken from it is used if a batch with a right CRC stands there whose base offset fits the
  entry; else the segment is read from its start. It may be missing, cut, stale, or preallocated with zeros at its end.
- **Files come and go.** Segments that were deleted, or merged by the log cleaner, between the listing and the opening are
  looked for again by offset.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import re
import stat
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from fastfetch.errors import CorruptBatchError, FastFetchError, UsageError
from fastfetch.records import BatchHeader, batches, decode

__all__ = ["FIRST_WINDOW", "LENGTH_END", "WINDOW", "Cursor", "Log", "Segment", "SegmentFile", "partition_of", "proved_headers"]

logger = logging.getLogger("fastfetch")

WINDOW = 4 << 20  # large enough that a block is thousands of records, small enough to stay in a cache
FIRST_WINDOW = 256 << 10
MAP_FROM = WINDOW  # smaller segments are read, not mapped
INDEX_CHUNK = 64 << 10
MAX_INDEX_BYTES = 64 << 20  # Kafka's default is 10 MiB
MAX_OFFSET = (1 << 63) - 1
LENGTH_END = 12  # base offset int64, length int32: what a batch needs to say how long it is

_SEGMENT = re.compile(r"(\d{20})\.log\Z")
_SEGMENT_LIKE = re.compile(r"(\d{20})\.log(\.(deleted|swap|cleaned))?\Z")
# Kafka renames folders of deleted, moving and stray partitions: topic-3.0123456789abcdef0123456789abcdef-delete
_PARTITION = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>\d{1,10})(\.[0-9a-f]{32}-(delete|future|stray))?\Z")
_BESIDE = {".index", ".timeindex", ".txnindex", ".snapshot"}


class Segment(NamedTuple):
    """One `.log` file as the listing saw it."""

    path: Path
    base_offset: int | None  # from the name; None if the name is no offset
    sealed: bool  # a later segment exists, so this one is not written any more
    limit: int | None = None  # bytes of it that count: of the last segment what was there when it was listed


def partition_of(path: Path) -> tuple[str, int]:
    """Topic and partition from a folder's name, ("", 0) if it is not one of Kafka's."""
    match = _PARTITION.match(path.name)
    if match is None or int(match["partition"]) >= 1 << 31:
        return "", 0
    return match["topic"], int(match["partition"])


class Log:
    """A `.log` file or a partition folder: what it is called and which segments it has.

    Raises OSError if it cannot be read and UsageError, with a sentence, if it is something else.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        absolute = self.path.absolute()
        self.is_folder = stat.S_ISDIR(os.stat(self.path).st_mode)
        self.topic, self.partition = partition_of(absolute if self.is_folder else absolute.parent)
        self.segments = self.listing()

    def listing(self) -> list[Segment]:
        """The segments in order, as they are now."""
        if not self.is_folder:
            return [self._lone_file()]
        found = sorted((int(m[1]), name) for name in os.listdir(self.path) if (m := _SEGMENT.match(name)))
        if not found:
            raise UsageError(self._why_no_segments())
        segments = [Segment(self.path / name, base, True) for base, name in found]
        try:
            # The size is taken after the listing: what was sealed when it was listed has its final size by now.
            segments[-1] = segments[-1]._replace(sealed=False, limit=os.stat(segments[-1].path).st_size)
        except FileNotFoundError:
            segments[-1] = segments[-1]._replace(sealed=False, limit=0)
        return segments

    def floor(self, offset: int | None) -> int:
        """Number of the segment that holds `offset`; the first one if none does."""
        return _floor(self.segments, offset)

    def _lone_file(self) -> Segment:
        if self.path.suffix in _BESIDE:
            raise UsageError(f"{self.path} is an index of a segment, not the segment: give {self.path.with_suffix('.log')}")
        match = _SEGMENT_LIKE.match(self.path.name)
        status = os.stat(self.path)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{self.path} is neither a file nor a folder: a segment has to be one that can be read twice")
        if match is None:
            return Segment(self.path, None, False, status.st_size)
        names = os.listdir(self.path.absolute().parent)
        sealed = match[2] is not None or any((m := _SEGMENT.match(n)) and int(m[1]) > int(match[1]) for n in names)
        return Segment(self.path, int(match[1]), sealed, None if sealed else status.st_size)

    def _why_no_segments(self) -> str:
        partitions = [entry.name for entry in os.scandir(self.path) if entry.is_dir() and partition_of(Path(entry.name))[0]]
        if partitions:
            some = self.path / min(partitions, key=lambda name: (name.startswith("__"), name))
            return f"{self.path} is a data folder with {len(partitions)} partitions: give one, such as {some}"
        return f"{self.path} has no log segments (files such as {0:020d}.log)"


def _floor(segments: list[Segment], offset: int | None) -> int:
    if offset is None:
        return 0
    return max(bisect_right([segment.base_offset or 0 for segment in segments], offset) - 1, 0)


class _Buffers:
    """Read buffers that are used again. Two are enough: while a caller holds the latest block, the next window is read."""

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes that nothing refers to; its content is old."""
        for buffer in self._kept:
            if len(buffer) >= size and self._is_free(buffer):
                return buffer
        buffer = bytearray(max(size, FIRST_WINDOW))
        self._kept = [*self._kept[-1:], buffer]
        return buffer

    @staticmethod
    def _is_free(buffer: bytearray) -> bool:
        # A bytearray with a view on it can't be resized; blocks, their arrays and memoryviews are such views.
        try:
            buffer.append(0)
        except BufferError:
            return False
        buffer.pop()
        return True


class SegmentFile:
    """An open segment: bytes by position. The caller closes it; views taken from it stay valid."""

    _fd = -1

    def __init__(self, segment: Segment, buffers: _Buffers | None = None) -> None:
        self.segment = segment
        self._buffers = buffers or _Buffers()
        self._mapping: mmap.mmap | None = None
        self._fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(self._fd).st_size
            self.size = size if segment.limit is None else min(size, segment.limit)
            if segment.sealed and self.size >= MAP_FROM:
                self._mapping = mmap.mmap(self._fd, self.size, access=mmap.ACCESS_READ)
                self._mapping.madvise(mmap.MADV_SEQUENTIAL)
        except BaseException:
            self.close()
            raise

    def view(self, at: int, n: int) -> memoryview:
        """`n` bytes at `at`, both within `size`; fewer if the file has become shorter.

        The last segment may: a broker that rolls it trims its zero tail, a follower truncates its log. Then it ends there. A
        sealed one does not: FastFetchError.
        """
        n = self._clip(at, n)
        if self._mapping is not None:
            return memoryview(self._mapping)[at : at + n]
        view = memoryview(self._buffers.take(n))[:n]
        done = 0
        while done < n:
            got = os.preadv(self._fd, [view[done:]], at + done)
            if got == 0:
                n = self._clip(at, n)
                break
            done += got
        return view[: min(done, n)].toreadonly()

    def _clip(self, at: int, n: int) -> int:
        size = os.fstat(self._fd).st_size
        if size >= at + n:
            return n
        if self.segment.sealed:
            raise FastFetchError(
                f"{self.segment.path} became shorter while it was read: it had {self.size} bytes and has {size}. Read it again"
            )
        self.size = min(self.size, size)
        return max(size - at, 0)

    def forget(self, at: int, n: int) -> None:
        """The pages of a window were read: give them back, so that a mapped gigabyte does not count as this process's memory.

        A block that is kept still finds its bytes: they are read from the file again.
        """
        if self._mapping is not None:
            first = at - at % mmap.PAGESIZE
            self._mapping.madvise(mmap.MADV_DONTNEED, first, min(n + at - first, self.size - first))

    def zeros_from(self, at: int) -> bool:
        """Is there nothing but zeros from `at` to the end? Holes are skipped, not read."""
        while at < self.size:
            try:
                at = os.lseek(self._fd, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return True
            chunk = os.pread(self._fd, min(1 << 20, max(self.size - at, 0)), at)
            if chunk.strip(b"\0"):
                return False
            at += len(chunk)
            if not chunk:
                break
        return True

    def is_at(self, path: Path) -> bool:
        """Is the file of that name this very file? The log cleaner puts others under the same names."""
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(path))
        except OSError:
            return False

    def close(self) -> None:
        # The mapping is not closed but dropped: blocks may still refer to it, and the last one unmaps it.
        self._mapping = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        # Of an iterator that was made and never asked, no code runs at its end.
        self.close()


class Cursor:
    """A place in a log that moves forward window by window, from segment to segment."""

    def __init__(self, log: Log, offset: int | None) -> None:
        self.log = log
        self.segments = log.segments
        self.buffers = _Buffers()
        self.number = -1
        self.pos = 0
        self.file: SegmentFile
        if not self._open(log.floor(offset), offset):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(log.path))

    @property
    def place(self) -> tuple[int, int]:
        """Grows as the cursor moves: base offset of the segment, byte in it."""
        return self.file.segment.base_offset or 0, self.pos

    def window(self, want: int = WINDOW) -> memoryview:
        """About `want` bytes from here on: at least the next batch if the segment has all of it, nothing at the segment's end."""
        left = self.file.size - self.pos
        view = self.file.view(self.pos, max(min(want, left), 0))
        if LENGTH_END <= len(view) < left:
            whole = LENGTH_END + int.from_bytes(view[8:LENGTH_END], "big", signed=True)
            if len(view) < whole <= left:
                view = self.file.view(self.pos, whole)
        return view

    def skip(self, n: int) -> None:
        """These bytes were read."""
        self.file.forget(self.pos, n)
        self.pos += n

    def next_segment(self, position: int | None) -> bool:
        """Go on to the next segment; False at the end of the log. `position` is the offset that comes next."""
        return self._open(self.number + 1, position)

    def following(self, at: int) -> int | None:
        """First offset of the good batch at a byte of this segment, or at the start of the next one; None if there is none."""
        if at < self.file.size:
            header = _header_at(self.file, at)
        elif self.number + 1 < len(self.segments):
            try:
                file = SegmentFile(self.segments[self.number + 1])
            except OSError:
                return None
            try:
                header = _header_at(file, 0)
            finally:
                file.close()
        else:
            return None
        # A compressed message of the old formats says only where it ends.
        return None if header is None or (header.magic < 2 and header.codec != "none") else header.base_offset

    def tail_is_zero(self, at: int) -> bool:
        """Is all from `at` on the zero tail of a preallocated segment? Only the last one has it: a roll trims it."""
        return not self.file.segment.sealed and self.file.zeros_from(at)

    def close(self) -> None:
        self.file.close()

    def _open(self, number: int, position: int | None) -> bool:
        for _ in range(100):
            if number >= len(self.segments):
                return False
            segment = self.segments[number]
            try:
                file = SegmentFile(segment, self.buffers)
            except FileNotFoundError:
                # Retention deleted it since it was listed, or the log cleaner has merged it into one that begins earlier.
                if not self.log.is_folder:
                    raise
                number = self._find_again(position)
                continue
            if self.number >= 0:
                self.file.close()
            self.number, self.file = number, file
            self.pos = 0 if position is None else _position_of(file, position)
            return True
        raise FileNotFoundError(errno.ENOENT, "segments vanish faster than they can be opened", str(self.log.path))

    def _find_again(self, position: int | None) -> int:
        """List the segments anew; the number of the one that has `position`, or of the first one after it."""
        self.segments = self.log.listing()
        number = _floor(self.segments, position)
        if self.number >= 0 and self.file.is_at(self.segments[number].path):
            number += 1  # it was read to its end just now
        if position is not None and number < len(self.segments):
            first = self.segments[number].base_offset or 0
            if first > position:
                logger.warning("%s: offsets %d to %d were deleted while reading", self.log.path, position, first)
        return number


def _position_of(file: SegmentFile, offset: int) -> int:
    """Where to start reading for `offset`: the byte of a batch at or before it, from the index if that can be believed."""
    base = file.segment.base_offset
    if base is None or offset <= base or file.size <= FIRST_WINDOW:
        return 0
    index = file.segment.path.with_name(f"{base:020d}.index")
    try:
        with index.open("rb") as stream:
            raw = _index_entries(stream)
    except OSError:
        return 0
    entries = np.frombuffer(raw, ">i4", len(raw) // 8 * 2).reshape(-1, 2)
    # Valid entries ascend. The rest of a preallocated index is zeros, and where it is corrupt nothing is known about the rest.
    wrong = np.flatnonzero((np.diff(entries, axis=0, prepend=-1) <= 0).any(axis=1))
    entries = entries[: wrong[0]] if len(wrong) else entries
    # An entry names the last offset of what was appended there, so that the batch at its position begins at or before it. The
    # first entry at or above `offset` may be that of the very batch; else the last one below is where to start.
    found = int(entries[:, 0].searchsorted(offset - base))
    for candidate in (found, found - 1):
        if not 0 <= candidate < len(entries):
            continue
        indexed, position = base + int(entries[candidate, 0]), int(entries[candidate, 1])
        header = _header_at(file, position)
        if header is None or not base <= header.base_offset <= indexed:
            logger.warning("%s: the entry for offset %d does not fit the log", index, indexed)
        elif header.base_offset <= offset:
            return position
    return 0


def _index_entries(stream: BinaryIO) -> bytes:
    """An index's bytes, without most of the 10 MiB of zeros behind the entries of one that is still written."""
    raw = bytearray()
    while len(raw) < MAX_INDEX_BYTES and (chunk := stream.read(INDEX_CHUNK)):
        raw += chunk
        if chunk.endswith(bytes(8)):
            break
    return bytes(raw)


def _header_at(file: SegmentFile, position: int) -> BatchHeader | None:
    """The batch at a position, if there is a whole one with a right CRC."""
    if not 0 <= position <= file.size - LENGTH_END:
        return None
    whole = LENGTH_END + int.from_bytes(file.view(position, LENGTH_END)[8:], "big", signed=True)
    if not LENGTH_END < whole <= file.size - position:
        return None
    try:
        return next(proved_headers(file.view(position, whole)), None)
    except CorruptBatchError:
        return None


def proved_headers(view: memoryview, *, check_crcs: bool = True) -> Iterator[BatchHeader]:
    """Headers of the whole batches in `view` that can be believed. Raises at the first one that can't, as `decode` would."""
    for header in batches(view, check_crcs=check_crcs):
        if not (header.crc_ok is not False and 0 <= header.base_offset <= header.last_offset < MAX_OFFSET):
            error = decode(view[header.byte_pos :], check_crcs=check_crcs).error
            if error is not None:
                error.byte_pos += header.byte_pos
                raise error
        yield header
