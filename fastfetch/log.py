"""Records from log segments on disk, without a broker.

    for block in fastfetch.read_log("/var/lib/kafka/data/orders-3", start=1_000_000):
        ...

What holds (`fastfetch.segments` has the files' side):
- **Snapshot.** The end is where the log ended when the call was made: a producer that is faster than the reader does not keep
  it running. A batch that was half written then is the end, and so is the zero tail of a preallocated segment.
- **Memory.** A few windows of at most 4 MiB and what comes out of one; what a caller keeps of the blocks comes on top.
- **Aborted transactions come from the log itself.** Under read_committed the headers ahead of the reader are scanned for the
  markers, just as far as the transactions met so far need. The `.txnindex` is not used: it has no checksum, is missing where
  only the `.log` files were copied, and does not say which transactions are still open. Those end the reading: nothing at or
  above the last stable offset is delivered, as a broker does it. A transaction may have been opened long before `start`: the
  scan begins with the segment that has `start` if its `.snapshot` says, under a right CRC, what was open where it begins; else
  at an earlier one, at last at the log's first.
- Records above the high watermark or below the log start offset, which a broker would not serve, are delivered: the
  segments do not say.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import numpy as np
from crc32c import crc32c

from fastfetch.errors import CorruptBatchError, FastFetchError, UsageError
from fastfetch.records import BatchHeader, RecordBlock, decode
from fastfetch.segments import FIRST_WINDOW, LENGTH_END, MAX_OFFSET, WINDOW, Cursor, Log, Segment, proved_headers

__all__ = [
    "Isolation", "control_type", "cut_short", "headers", "log_bounds", "no_log", "offset_for_time", "read_log", "snapshot_of",
]  # fmt: skip

ABORT = 0  # type of the control record that ends a transaction so
CONTROL_BYTE, CONTROL_BIT = 22, 0x20  # of a batch's attributes
INFLATED_TARGET = 16 << 20  # a window shrinks when what comes out of it is more than this, and grows when it is less


class _Transactions:
    """What becomes of the transactions that a reader meets: the headers ahead of it are scanned for their markers.

    A transactional batch opens its producer's transaction, the producer's next control batch ends it: a producer has one at a
    time (KIP-98). Where the log ends with a transaction open, its first offset is the last stable offset.
    """

    def __init__(self, log: Log, start: int | None, *, check_crcs: bool = True) -> None:
        self.start = start
        self.check_crcs = check_crcs
        self.cursor, self.open = self._begin(log, start)  # producer id: first offset of its transaction
        self.aborted: list[tuple[int, int, int]] = []  # producer id, first offset, offset of the marker
        self.next_offset = 0
        self.ended = False
        self.error: CorruptBatchError | None = None  # why the scan ended before the log does

    @staticmethod
    def _begin(log: Log, start: int | None) -> tuple[Cursor, dict[int, int]]:
        for number in range(log.floor(start), -1, -1):
            known = snapshot_of(log.segments[number])
            if known is not None:
                return Cursor(log, log.segments[number].base_offset), known
        return Cursor(log, None), {}

    def settle(self, place: tuple[int, int], position: int | None) -> tuple[list[tuple[int, int]], int | None]:
        """Decide about every transaction that begins before `place`.

        Returns the aborted ones as (producer id, first offset), and the last stable offset if it lies before `place`.
        `position` is the reader's: a marker below it has done its work.
        """
        while not self.ended and self.cursor.place < place:
            self._step()
        upto = self.next_offset
        while not self.ended and self.open and min(self.open.values()) < upto:
            self._step()
        if position is not None:
            self.aborted = [entry for entry in self.aborted if entry[2] >= position]
        first_open = min(self.open.values(), default=upto)
        return [entry[:2] for entry in self.aborted if entry[1] < upto], first_open if first_open < upto else None

    def _step(self) -> None:
        view = self.cursor.window()
        consumed = 0
        try:
            for header in proved_headers(view, check_crcs=self.check_crcs):
                consumed += header.size
                self._see(header, view)
        except CorruptBatchError as error:
            if _is_below(error, self.cursor, self.start):
                self.cursor.skip(error.byte_pos + (error.size or 0))
                return
            self.ended = True
            if not self.cursor.tail_is_zero(self.cursor.pos + error.byte_pos):
                self.error = _located(_with_target(error, self.cursor), self.cursor)
            return
        self.cursor.skip(consumed)
        if self.cursor.pos >= self.cursor.file.size or not consumed:
            self.ended = not self.cursor.next_segment(self.next_offset)

    def _see(self, header: BatchHeader, view: memoryview) -> None:
        self.next_offset = max(self.next_offset, header.next_offset)
        producer = header.producer_id
        if producer < 0:
            return
        if header.control:
            first = self.open.pop(producer, None)
            if first is not None and control_type(view, header) == ABORT:
                self.aborted.append((producer, first, header.base_offset))
        elif header.transactional and header.count:
            # A batch that compaction emptied has nothing to hold back, and its marker may be gone.
            self.open.setdefault(producer, header.base_offset)

    def close(self) -> None:
        self.cursor.close()


Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]

_SNAPSHOT_HEAD = struct.Struct(">hIi")  # version, CRC-32C of what follows, count
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, transaction's first offset or -1
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")


def snapshot_of(segment: Segment) -> dict[int, int] | None:
    """Transactions open where a segment begins, as {producer id: first offset}; None if its `.snapshot` does not say."""
    if segment.base_offset is None:
        return None
    try:
        data = segment.path.with_name(f"{segment.base_offset:020d}.snapshot").read_bytes()
    except OSError:
        return None
    if len(data) < _SNAPSHOT_HEAD.size:
        return None
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != 1 or crc != crc32c(data[6:]) or count * _SNAPSHOT_ENTRY.size != len(data) - _SNAPSHOT_HEAD.size:
        return None
    entries = _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size :])
    return {producer: first for producer, *_, first in entries if 0 <= first < segment.base_offset}


def control_type(view: memoryview, header: BatchHeader) -> int | None:
    """What a control batch says: 0 abort, 1 commit, others are KRaft's; None if that can't be read.

    `decode` delivers no control records. With the control bit cleared in a copy the record is one like any other, whose key is
    {version int16, type int16}.
    """
    batch = bytearray(view[header.byte_pos : header.byte_pos + header.size])
    batch[CONTROL_BYTE] &= ~CONTROL_BIT
    decoded = decode(batch, check_crcs=False)
    key = decoded.blocks[0].keys()[0] if decoded.blocks else None
    return int.from_bytes(key[2:4], "big", signed=True) if key is not None and len(key) >= 4 else None


def _located(error: CorruptBatchError, cursor: Cursor) -> CorruptBatchError:
    """The same error, with its place in the file instead of in the cursor's window."""
    error.byte_pos += cursor.pos
    error.path = str(cursor.file.segment.path)
    error.topic, error.partition = cursor.log.topic, cursor.log.partition
    return error


def cut_short(cursor: Cursor, view: memoryview, position: int | None) -> CorruptBatchError:
    """The error for a segment that ends inside a batch. Of one that has a successor the rest is lost: that is said."""
    has_header = len(view) >= LENGTH_END
    following = cursor.following(cursor.file.size)
    error = CorruptBatchError(
        f"The segment ends {len(view)} bytes into a batch",
        topic=cursor.log.topic,
        partition=cursor.log.partition,
        position=position,
        base_offset=int.from_bytes(view[:8], "big", signed=True) if has_header else None,
        next_offset=following,
        skip_trusted=following is not None,
        kind="length",
        size=LENGTH_END + int.from_bytes(view[8:LENGTH_END], "big", signed=True) if has_header else None,
        byte_pos=0,
    )
    return _located(error, cursor)


def read_log(
    path: str | os.PathLike[str],
    *,
    start: int | None = None,
    stop: int | None = None,
    isolation: Isolation = "read_uncommitted",
    check_crcs: bool = True,
    max_batch_bytes: int = 64 << 20,
    threads: int = 1,
) -> Iterator[RecordBlock]:
    """Records of a `.log` segment or of a partition folder such as `orders-3/`, as blocks in offset order.

        for block in fastfetch.read_log("/var/lib/kafka/orders-3", start=1_000_000):
            total += len(block)

    path        a folder gives all its segments; a file only itself
    start       first offset to deliver; default the log's first. The index files are used to start in the middle
    stop        first offset not to deliver; default the end of the log at the time of the call
    isolation   "read_committed" leaves out aborted transactions and ends at the last stable offset
    The rest is as in `decode`. Topic and partition of the records come from the folder's name.

    Raises at the call: OSError if the path can't be read, UsageError if it is no log. While iterating: CorruptBatchError after
    the good records before a bad batch, with `path` and with `byte_pos` counted from the file's start; FastFetchError if a file
    becomes shorter while it is read.
    """
    if isolation not in ("read_uncommitted", "read_committed"):
        raise UsageError(f'isolation is "read_uncommitted" or "read_committed", not {isolation!r}')
    for name, offset in (("start", start), ("stop", stop)):
        if offset is not None and offset < 0:
            raise UsageError(f"{name} is an offset in the log and not negative; got {offset}")
    log = Log(path)
    options = {"check_crcs": check_crcs, "max_batch_bytes": max_batch_bytes, "threads": threads}
    cursor = Cursor(log, start)
    return _read(cursor, start, stop, isolation, options)


def _read(
    cursor: Cursor, start: int | None, stop: int | None, isolation: Isolation, options: dict[str, Any]
) -> Iterator[RecordBlock]:
    log, position, want = cursor.log, start, FIRST_WINDOW
    ahead = None
    patience = 20  # windows that are decoded again because a broker was still writing them
    try:
        if isolation == "read_committed":
            ahead = _Transactions(log, start, check_crcs=options["check_crcs"])
        while True:
            view = cursor.window(want)
            limit, aborted = stop, list[tuple[int, int]]()
            if ahead is not None:
                base, at = cursor.place
                aborted, stable = ahead.settle((base, at + len(view)), position)
                limit = _least(stop, stable)
            decoded = decode(
                view, position=position, isolation=isolation, aborted=aborted, topic=log.topic, partition=log.partition, **options
            )
            yield from _below(decoded.blocks, limit)
            position = decoded.next_offset
            if limit is not None and position is not None and position >= limit:
                if ahead is not None and ahead.error is not None and limit != stop:
                    raise ahead.error
                return
            error = decoded.error
            if error is not None:
                if cursor.tail_is_zero(cursor.pos + error.byte_pos):
                    return
                if patience and not cursor.file.segment.sealed and _still_changes(cursor, error):
                    patience -= 1
                    cursor.skip(decoded.consumed)
                    continue
                if not _is_below(error, cursor, start):
                    raise _explained(error, cursor)
                cursor.skip(error.byte_pos + (error.size or 0))
                continue
            if not decoded.consumed and not cursor.pos and cursor.file.segment.base_offset is None and len(view):
                raise no_log(cursor)
            consumed, inflated = decoded.consumed, decoded.stats.inflated_bytes
            # Blocks are gone from here on unless the caller keeps them, so that the window's buffer can be used again.
            del decoded
            cursor.skip(consumed)
            if not consumed or cursor.pos >= cursor.file.size:
                if len(view) > consumed and cursor.file.segment.sealed:
                    raise cut_short(cursor, view, position)
                del view
                if not cursor.next_segment(position):
                    return
            want = _next_window(want, consumed, inflated)
    finally:
        cursor.close()
        if ahead is not None:
            ahead.close()


def _below(blocks: list[RecordBlock], limit: int | None) -> Iterator[RecordBlock]:
    """The records of the blocks below an offset."""
    blocks.reverse()
    while blocks:
        block = blocks.pop()  # not kept here while the caller has it
        if limit is not None and int(block.offsets[-1]) >= limit:
            keep = int(block.offsets.searchsorted(limit))
            if keep:
                yield block[:keep]
            return
        yield block


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _next_window(want: int, consumed: int, inflated: int) -> int:
    """Windows grow to WINDOW while what comes out of them stays small: the size of a batch is known only once it is inflated."""
    if inflated > INFLATED_TARGET:
        return max(FIRST_WINDOW, want // 2)
    if consumed and inflated * 2 <= INFLATED_TARGET:
        return min(WINDOW, want * 2)
    return want


def _still_changes(cursor: Cursor, error: CorruptBatchError) -> bool:
    """Is a broker writing the bad batch right now, into a preallocated segment, where its length can be seen before the rest?"""
    at = cursor.pos + error.byte_pos
    n = min(WINDOW, cursor.file.size - at)
    before = bytes(cursor.file.view(at, n))
    time.sleep(0.05)
    return before != bytes(cursor.file.view(at, n))


def _explained(error: CorruptBatchError, cursor: Cursor) -> FastFetchError:
    segment = cursor.file.segment
    if segment.base_offset is None and cursor.pos + error.byte_pos == 0 and error.kind in ("length", "magic"):
        return no_log(cursor)
    return _located(_with_target(error, cursor), cursor)


def no_log(cursor: Cursor) -> UsageError:
    return UsageError(f"{cursor.file.segment.path} is not a Kafka log segment: no whole record batch stands at its start")


def _with_target(error: CorruptBatchError, cursor: Cursor) -> CorruptBatchError:
    """Where to go on, if the window ended before the next batch, whose CRC vouches for it, was seen."""
    at, left = cursor.pos + error.byte_pos, cursor.file.size - cursor.pos - error.byte_pos
    if error.next_offset is not None or error.size is None or error.size > left:
        return error
    following = cursor.following(at + error.size)
    if following is not None and (error.position is None or following >= error.position):
        error.next_offset, error.skip_trusted = following, True
    return error


def _is_below(error: CorruptBatchError, cursor: Cursor, start: int | None) -> bool:
    """Does the bad batch end at or before `start`, by a CRC that is right? Who starts behind damage wants to pass it."""
    _with_target(error, cursor)
    return start is not None and error.skip_trusted and error.next_offset is not None and error.next_offset <= start


def headers(cursor: Cursor, position: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """(byte in the segment, header) of every batch from the cursor on. Raises CorruptBatchError at a bad one."""
    while True:
        view = cursor.window()
        consumed = 0
        try:
            for header in proved_headers(view):
                yield cursor.pos + header.byte_pos, header
                position = header.next_offset
                consumed += header.size
        except CorruptBatchError as error:
            if cursor.tail_is_zero(cursor.pos + error.byte_pos):
                return
            raise _explained(error, cursor) from None
        cursor.skip(consumed)
        if (not consumed or cursor.pos >= cursor.file.size) and not cursor.next_segment(position):
            return


def log_bounds(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Where the log begins, by the first segment's name if it has one, and the offset after its last good batch."""
    log = Log(path)
    cursor = Cursor(log, MAX_OFFSET)
    first = log.segments[0].base_offset
    end = cursor.file.segment.base_offset or 0
    try:
        for _, header in headers(cursor):
            first = header.base_offset if first is None else first
            end = max(end, header.next_offset)
    except CorruptBatchError:
        pass  # what lies behind it can't be read
    finally:
        cursor.close()
    return first or 0, end


def offset_for_time(path: str | os.PathLike[str], timestamp_ms: int) -> int | None:
    """The first offset whose timestamp (ms since 1970) is not below the one given; None if there is none.

    Reads the headers of all batches before it: their greatest timestamp is covered by the CRC, the time index by nothing.
    """
    cursor = Cursor(Log(path), None)
    try:
        for at, header in headers(cursor):
            # A compressed message of the old formats may say -1 or less than what is in it.
            if header.max_timestamp < timestamp_ms and (header.magic == 2 or header.codec == "none"):
                continue
            for block in decode(cursor.file.view(at, header.size)).blocks:
                found = np.flatnonzero(block.timestamps >= timestamp_ms)
                if len(found):
                    return int(block.offsets[found[0]])
    finally:
        cursor.close()
    return None
