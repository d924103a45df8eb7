"""Records of a log segment in remote storage, read by ranges: a tiered topic (KIP-405), or any copy of a broker's files.

    python examples/decode_tiered.py https://store/a/4711.log --index https://store/a/4711.index --from 5000 --to 6000
    python examples/decode_tiered.py /mnt/tier/orders-0/00000000000000004711.log

A RemoteStorageManager is given a segment's .log, its .index (offset → position), .timeindex, .txnindex, .snapshot and its
leader epochs. What it stores is its own choice: this reads objects that hold the .log as it was on the broker's disk. Plugins
that compress or encrypt chunks (Aiven's can) have to be undone first, and where all indexes are in one object, cut the offset
index out. Addresses may be signed ones: only GET with a Range is used.

The segment is read in chunks, from where the index says the first wanted offset may be. A chunk that ends within a batch
gives the tail to the next one (`Decoded.consumed`), and a batch larger than a chunk makes one chunk larger. So memory holds a
chunk, or a batch, and at most --chunk-bytes of what it inflates to, but one batch at least.

The index is a hint. A position from it counts only if a batch with a right CRC stands there that begins at or below the
wanted offset; else the segment is read from its start. With --committed records of aborted transactions are left out. A
transaction is listed in the .txnindex of the segment that its marker is in: give --txnindex of this segment and of those
after it, up to where no transaction is open that began in this one.

One JSON object a line for each record on stdout; on stderr what was read of how much.
"""

from __future__ import annotations

import argparse
import re
import struct
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from json_lines import line

import fastfetch

HEADER = 61  # bytes of a batch before its records
INDEX_ENTRY = struct.Struct(">ii")  # offset, relative to the segment's first; position
TXN_ENTRY = struct.Struct(">hqqqq")  # version, producer id, first offset, last offset, last stable offset

Read = Callable[[int, int], bytes]  # (position, size) -> bytes, fewer only at the end


class Aborted(NamedTuple):
    """A transaction that was aborted."""

    producer_id: int
    first_offset: int
    last_offset: int


class FileRange:
    """A file, or anything that is mounted."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("rb")  # noqa: SIM115 - it lives as long as this does
        self.size = self._file.seek(0, 2)
        self.bytes_read = 0

    def __call__(self, at: int, size: int) -> bytes:
        self._file.seek(at)
        data = self._file.read(size)
        self.bytes_read += len(data)
        return data


class HttpRange:
    """An object of a store that answers Range requests, as all of them do."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.bytes_read = 0
        self.size = self._get(0, 1)[1]

    def __call__(self, at: int, size: int) -> bytes:
        return self._get(at, size)[0] if 0 <= at < self.size and size > 0 else b""

    def _get(self, at: int, size: int) -> tuple[bytes, int]:
        request = urllib.request.Request(self._url, headers={"Range": f"bytes={at}-{at + size - 1}"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                found = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
                if answer.status != 206 or found is None or int(found[1]) != at:
                    raise OSError(f"{self._url}: it gave something else than bytes {at} to {at + size - 1}: {answer.status}")
                data = answer.read()
        except urllib.error.HTTPError as error:
            if error.code == 416:  # an object without a byte
                return b"", 0
            raise
        self.bytes_read += len(data)
        return data, int(found[2])


def open_range(place: str) -> FileRange | HttpRange:
    return HttpRange(place) if re.match(r"https?://", place) else FileRange(place)


def start_position(read: Read, index: bytes, offset: int) -> int:
    """Where to begin reading to find `offset`: the index's last position at or below it, if a good batch stands there, else 0."""
    base = int.from_bytes(read(0, 8), "big", signed=True)  # the index counts from the first offset
    low, high = 0, len(index) // INDEX_ENTRY.size
    while low < high:  # the number of entries at or below
        middle = (low + high) // 2
        if base + INDEX_ENTRY.unpack_from(index, middle * INDEX_ENTRY.size)[0] <= offset:
            low = middle + 1
        else:
            high = middle
    position: int = INDEX_ENTRY.unpack_from(index, (low - 1) * INDEX_ENTRY.size)[1] if low else 0
    return position if position and is_batch(read, position, offset) else 0


def is_batch(read: Read, position: int, offset: int) -> bool:
    head = read(position, HEADER)
    if len(head) < HEADER or head[16] > 2:  # bytes of something else might name any size
        return False
    try:
        found = next(fastfetch.batches(read(position, batch_size(head))), None)
    except fastfetch.FastFetchError:
        return False
    return found is not None and bool(found.crc_ok) and found.base_offset <= offset


def batch_size(head: bytes) -> int:
    """What a batch says of its size. No proof of anything: its CRC does not cover that."""
    return 12 + max(int.from_bytes(head[8:12], "big", signed=True), 0)


def read_aborted(txnindex: bytes) -> list[Aborted]:
    return [Aborted(*entry[1:4]) for entry in TXN_ENTRY.iter_unpack(txnindex[: len(txnindex) // TXN_ENTRY.size * TXN_ENTRY.size])]


def blocks(
    read: Read,
    size: int,
    *,
    at: int = 0,
    start: int | None = None,
    stop: int | None = None,
    aborted: Iterable[Aborted] | None = None,
    chunk_bytes: int = 4 << 20,
) -> Iterator[fastfetch.RecordBlock]:
    """Blocks of the records in [start, stop), reading from byte `at` on. Raises CorruptBatchError behind the good ones.

    aborted     leave out the records of these transactions; None: read_uncommitted
    """
    transactions = None if aborted is None else list(aborted)
    held = b""  # the bytes from `at` on that are here
    wanted = chunk_bytes
    while at < size:
        held += read(at + len(held), min(wanted, size - at) - len(held))
        if len(held) < min(wanted, size - at):
            raise EOFError(f"the object ends at byte {at + len(held)}, it should have {size}")
        decoded = fastfetch.decode(
            held,
            position=start,
            isolation="read_uncommitted" if transactions is None else "read_committed",
            # Those that ended before would be taken for open ones: their markers are behind us.
            aborted=[t[:2] for t in transactions or () if start is None or t.last_offset >= start],
            max_bytes=chunk_bytes,
        )
        for block in decoded.blocks:
            yield block if stop is None else block[: int(block.offsets.searchsorted(stop))]
        decoded.raise_for_error()
        at, held, start = at + decoded.consumed, held[decoded.consumed :], decoded.next_offset
        if stop is not None and start is not None and start >= stop:
            return
        wanted = chunk_bytes
        if not decoded.consumed:
            needed = batch_size(held) if len(held) >= HEADER else HEADER
            if at + needed > size:
                print(f"the last {size - at} bytes are no whole batch: a copy of what was being written?", file=sys.stderr)
                return
            wanted = max(chunk_bytes, needed)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("segment", metavar="SEGMENT", help="file or http(s) address of the .log")
    arguments.add_argument("--index", help="of the offset index; without it everything before --from is read too")
    arguments.add_argument("--from", dest="start", type=int, metavar="OFFSET")
    arguments.add_argument("--to", dest="stop", type=int, metavar="OFFSET", help="not included")
    arguments.add_argument("--committed", action="store_true", help="leave out what was aborted (--txnindex)")
    arguments.add_argument("--txnindex", action="append", default=[], help="of this segment, and of later ones")
    arguments.add_argument("--chunk-bytes", type=int, default=4 << 20)
    args = arguments.parse_args()

    segment = open_range(args.segment)
    read: Read = segment
    aborted: list[Aborted] = []
    for place in args.txnindex:
        source = open_range(place)
        aborted += read_aborted(source(0, source.size))
    at = 0
    if args.index and args.start is not None:
        index = open_range(args.index)
        at = start_position(read, index(0, index.size), args.start)
    found = blocks(
        read,
        segment.size,
        at=at,
        start=args.start,
        stop=args.stop,
        aborted=aborted if args.committed else None,
        chunk_bytes=args.chunk_bytes,
    )
    records = 0
    try:
        for block in found:
            records += len(block)
            sys.stdout.writelines(line(record) for record in block)
    finally:
        sys.stdout.flush()
        print(f"{records} records, {segment.bytes_read} of {segment.size} bytes read", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except (fastfetch.FastFetchError, OSError, EOFError) as error:
        sys.exit(str(error))
