"""`kfetch dump`: the batches of segments on disk, bad ones included.

A bad batch does not end the listing. Where its CRC is right, or the batch behind it has one that is right, it goes on there. Else
the bytes after it are searched for the next batch whose header makes sense and whose CRC is right, and what lies between is said
to be lost. (Only `dump` searches: the bytes of a damaged batch may hold, as a record's value, what looks like a batch.)

JSON lines, one object each, told apart by `type`: segment, batch, record (with --records), corrupt, tail, and at the end summary.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta

import click
import numpy as np
import numpy.typing as npt

from fastfetch import log
from fastfetch.cli import EXIT_CORRUPT
from fastfetch.cli.formats import compile_format
from fastfetch.cli.output import Output, human_bytes
from fastfetch.errors import CorruptBatchError, FastFetchError
from fastfetch.records import BatchHeader, Record, RecordBlock, decode
from fastfetch.segments import LENGTH_END, WINDOW, Cursor, Log, proved_headers

__all__ = ["command"]

_MAGIC_AT = 16
_SMALLEST, _LARGEST = 26, 128 << 20  # a message of format 0 without key and value; more than any sane limit on batches
_CONTROL = {0: "abort", 1: "commit", None: "unreadable"}


@dataclass
class Summary:
    """What was found in all segments."""

    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    first_offset: int | None = None
    next_offset: int | None = None
    codecs: dict[str, int] = field(default_factory=dict)
    corrupt: int = 0
    lost_bytes: int = 0

    def add(self, header: BatchHeader, read: int) -> None:
        """A batch; `read` records were read from it, if they were."""
        self.batches += 1
        if not header.control:
            # A compressed message of the old formats does not say how many are in it.
            self.records += read or 1 if header.count is None else header.count
        self.codecs[header.codec] = self.codecs.get(header.codec, 0) + 1
        if self.first_offset is None or header.base_offset < self.first_offset:
            self.first_offset = header.base_offset
        self.next_offset = max(self.next_offset or 0, header.next_offset)


@click.command("dump", short_help="Batch headers and records of segments on disk, also of damaged ones.")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--records", "with_records", is_flag=True, help="List the records as well.")
@click.option("--verify", is_flag=True, help="Inflate and read every batch, not only its header and CRC.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines.")
@click.option("-q", "--quiet", is_flag=True, help="No summary on stderr.")
def command(paths: tuple[str, ...], with_records: bool, verify: bool, as_json: bool, quiet: bool) -> int:
    """List the batches of .log segments, or of all segments of partition folders.

    A bad batch is reported with its file, byte, offset and kind, and the listing goes on where it can. The exit code is 3 then.
    """
    output = Output()
    show = _Json(output, with_records) if as_json else _Text(output, with_records)
    summary = Summary()
    try:
        for path in paths:
            for found in _Walk(path, summary, deep=with_records or verify):
                show(found)
    except FastFetchError:
        output.flush()
        raise
    show(summary)
    output.flush()
    if not quiet and not as_json:
        click.echo(_in_words(summary), err=True)
    return EXIT_CORRUPT if summary.corrupt else 0


@dataclass
class Start:
    """A segment begins."""

    path: str
    size: int


@dataclass
class Batch:
    """A batch whose header is right. `blocks` are there if it was read whole."""

    header: BatchHeader
    at: int
    control_type: str | None
    blocks: list[RecordBlock]


@dataclass
class Corrupt:
    """A place that can't be read. `resumed_at` is the byte where the listing goes on, None: not in this segment."""

    path: str
    byte_pos: int
    offset: int | None
    kind: str
    message: str
    resumed_at: int | None
    resumed_offset: int | None
    lost_bytes: int


@dataclass
class Tail:
    """What stands behind the last batch of a segment and is no damage."""

    at: int
    size: int
    what: str


Found = Start | Batch | Corrupt | Tail | Summary


class _Walk:
    """Through a file or a folder, counting in `summary`. `position` is the offset after the last good batch."""

    def __init__(self, path: str, summary: Summary, *, deep: bool) -> None:
        self.cursor = Cursor(Log(path), None)
        self.summary = summary
        self.deep = deep
        self.position = 0

    def __iter__(self) -> Iterator[Found]:
        cursor = self.cursor
        try:
            while True:
                segment, size = cursor.file.segment, cursor.file.size
                found = self._segment()
                first = next(found, None)  # raises for what is no segment at all, before a heading calls it one
                self.summary.segments += 1
                self.summary.bytes += size
                yield Start(str(segment.path), size)
                if first is not None:
                    yield first
                    yield from found
                if not cursor.next_segment(self.position):
                    return
                cursor.pos = 0  # also what overlaps the segment before is listed
        finally:
            cursor.close()

    def _segment(self) -> Iterator[Found]:
        cursor = self.cursor
        while cursor.pos < cursor.file.size:
            before = cursor.pos
            yield from self._batches(cursor.window())
            if cursor.pos == before:
                yield from self._tail()
                if cursor.pos == before:
                    return

    def _batches(self, view: memoryview) -> Iterator[Found]:
        """The batches of a window; moves the cursor behind them, and behind a bad one to where it goes on."""
        cursor, start, done = self.cursor, self.cursor.pos, 0
        try:
            for header in proved_headers(view):
                done = header.byte_pos + header.size
                blocks: list[RecordBlock] = []
                if self.deep:
                    decoded = decode(view[header.byte_pos : done], topic=cursor.log.topic, partition=cursor.log.partition)
                    blocks = decoded.blocks
                    if decoded.error is not None:
                        # Its CRC is right, so that its end is: the next batch stands there.
                        yield self._corrupt(decoded.error, start + header.byte_pos, start + done, header.next_offset)
                control = _CONTROL.get(log.control_type(view, header), "other") if header.control else None
                self.position = header.next_offset
                self.summary.add(header, sum(map(len, blocks)))
                yield Batch(header, start + header.byte_pos, control, blocks)
        except CorruptBatchError as error:
            at = start + error.byte_pos
            if not cursor.tail_is_zero(at):
                resumed_at, resumed_offset = self._next_good(at, error)
                yield self._corrupt(error, at, resumed_at, resumed_offset)
                cursor.skip((cursor.file.size if resumed_at is None else resumed_at) - start)
                return
        cursor.skip(done)

    def _tail(self) -> Iterator[Found]:
        """What is left of a segment when there is no whole batch any more. Moves the cursor if good ones follow all the same."""
        cursor, at = self.cursor, self.cursor.pos
        if cursor.tail_is_zero(at):
            yield Tail(at, cursor.file.size - at, "preallocated, zeros")
            return
        error = log.cut_short(cursor, cursor.window(), self.position)
        resumed_at, resumed_offset = self._next_good(at, error)
        if resumed_at is not None:
            # Not a batch that is still being written: its length is wrong.
            yield self._corrupt(error, at, resumed_at, resumed_offset)
            cursor.skip(resumed_at - at)
        elif cursor.file.segment.sealed:
            yield self._corrupt(error, at, None, error.next_offset)
        else:
            yield Tail(at, cursor.file.size - at, "part of a batch: still being written, or cut")

    def _corrupt(self, error: CorruptBatchError, at: int, resumed_at: int | None, resumed_offset: int | None) -> Corrupt:
        lost = (self.cursor.file.size if resumed_at is None else resumed_at) - at
        self.summary.corrupt += 1
        self.summary.lost_bytes += lost
        message = f"{error.what}: {error.detail}" if error.detail else error.what
        path = str(self.cursor.file.segment.path)
        return Corrupt(path, at, error.base_offset, error.kind, message, resumed_at, resumed_offset, lost)

    def _next_good(self, at: int, error: CorruptBatchError) -> tuple[int | None, int | None]:
        """Byte and base offset of the next batch with a right CRC: right behind the bad one, else by search.

        Raises UsageError if the file has none at all and is not called a segment either.
        """
        cursor, file = self.cursor, self.cursor.file
        if error.size is not None and 0 < error.size < file.size - at:
            base = cursor.following(at + error.size)
            if base is not None and base >= self.position:
                return at + error.size, base
        begin = at + 1
        while file.size - begin > _MAGIC_AT:
            n = min(WINDOW, file.size - begin)
            for candidate in _candidates(file.view(begin, n), self.position, file.size - begin):
                base = cursor.following(begin + candidate)
                if base is not None and base >= self.position:
                    return begin + candidate, base
            begin += max(n - _MAGIC_AT, 1)
        if at == 0 and file.segment.base_offset is None:
            raise log.no_log(cursor)
        return None, None


def _candidates(view: memoryview, floor: int, left: int) -> list[int]:
    """Positions where a header could stand: magic, length and offset make sense. `left` bytes follow the view's start."""
    data = np.frombuffer(view, np.uint8)
    end = len(data) - _MAGIC_AT
    # Offsets below 2^48, lengths below 2^31: with the magic that leaves few places of any bytes but zeros.
    fits = (data[_MAGIC_AT:] <= 2) & (data[:end] == 0) & (data[1 : end + 1] == 0) & (data[8 : end + 8] < 0x80)
    places = np.flatnonzero(fits)
    sizes = LENGTH_END + _number_at(data, places, 8, 4)
    bases = _number_at(data, places, 2, 6)
    fits = (sizes >= _SMALLEST) & (sizes <= np.minimum(left - places, _LARGEST)) & (bases >= floor)
    return [int(place) for place in places[fits]]


def _number_at(data: npt.NDArray[np.uint8], places: npt.NDArray[np.intp], at: int, n: int) -> npt.NDArray[np.int64]:
    """Big-endian numbers of `n` bytes, `at` bytes behind each place."""
    number = np.zeros(len(places), np.int64)
    for i in range(at, at + n):
        number = (number << 8) | data[places + i]
    return number


class _Json:
    """JSON lines."""

    def __init__(self, output: Output, with_records: bool) -> None:
        self._output, self._with_records = output, with_records
        self._records = compile_format("json")

    def __call__(self, found: Found) -> None:
        if isinstance(found, Batch):
            header = found.header.as_dict()
            line = {"type": "batch", "byte_pos": found.at} | {name: v for name, v in header.items() if name != "byte_pos"}
            line["crc"] = f"{found.header.crc:08x}"
            line["control_type"] = found.control_type
        else:
            names = {Start: "segment", Corrupt: "corrupt", Tail: "tail", Summary: "summary"}
            line = {"type": names[type(found)], **asdict(found)}
        self._output.write(json.dumps(line).encode() + b"\n")
        if isinstance(found, Batch) and self._with_records:
            for block in found.blocks:
                for record in self._records(block).splitlines(keepends=True):
                    self._output.write(b'{"type": "record", ' + record[1:])


class _Text:
    """A line a batch, under a heading for each segment."""

    def __init__(self, output: Output, with_records: bool) -> None:
        self._output, self._with_records = output, with_records

    def __call__(self, found: Found) -> None:
        if isinstance(found, Start):
            self._line(f"{found.path}  {found.size:,} bytes")
            self._line(f"{'byte':>12} {'size':>9}  {'offsets':<25} {'count':>7}  {'codec':<6} {'latest timestamp':<24}  more")
        elif isinstance(found, Batch):
            self._line(_batch_line(found))
            for block in found.blocks if self._with_records else ():
                for record in block:
                    self._line(_record_line(record))
        elif isinstance(found, Corrupt):
            offset = "" if found.offset is None else f", offset {found.offset}"
            if found.resumed_at is not None:
                then = f"goes on at byte {found.resumed_at}, offset {found.resumed_offset}"
            else:
                then = "nothing that can be read behind it in this segment"
            self._line(
                f"CORRUPT {found.path} at byte {found.byte_pos}{offset} ({found.kind}): {found.message}; "
                f"{found.lost_bytes:,} bytes lost; {then}"
            )
        elif isinstance(found, Tail):
            self._line(f"{found.at:>12} {found.size:>9}  {found.what}")

    def _line(self, text: str) -> None:
        self._output.write(text.encode(errors="backslashreplace") + b"\n")


def _batch_line(batch: Batch) -> str:
    h = batch.header
    more = [] if h.magic == 2 else [f"format {h.magic}"]
    if h.producer_id >= 0:
        more.append(f"producer {h.producer_id}/{h.producer_epoch} seq {h.base_sequence}")
    more += [word for word, said in (("transactional", h.transactional), ("append time", h.timestamp_type == 1)) if said]
    if h.control:
        more.append(f"control: {batch.control_type or 'unreadable'}")
    if h.delete_horizon is not None:
        more.append(f"delete horizon {_when(h.delete_horizon)}")
    if h.leader_epoch >= 0:
        more.append(f"epoch {h.leader_epoch}")
    # A message of the old formats has no count; compressed, it may hold many.
    count = h.count if h.count is not None else 1 if h.codec == "none" else "?"
    offsets = f"{h.base_offset}..{h.last_offset}"
    line = f"{batch.at:>12} {h.size:>9}  {offsets:<25} {count:>7}  {h.codec:<6} {_when(h.max_timestamp):<24}  {', '.join(more)}"
    return line.rstrip()


def _record_line(record: Record) -> str:
    line = f"{'':>12} offset {record.offset}  {_when(record.timestamp)}  key {_shown(record.key)}  value {_shown(record.value)}"
    headers = "".join(f" {_printable(name)[1:-1]}={_shown(value)}" for name, value in record.headers)
    return f"{line}  headers{headers}" if headers else line


def _shown(value: bytes | None) -> str:
    if value is None:
        return "null"
    return _printable(value.decode(errors="backslashreplace"))


def _printable(text: str) -> str:
    """In quotes, and without what a terminal would obey."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _when(ms: int) -> str:
    if ms == -1:
        return "-"
    try:
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        return str(ms)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _in_words(summary: Summary) -> str:
    codecs = ", ".join(f"{n} {codec}" for codec, n in sorted(summary.codecs.items()))
    span = "" if summary.first_offset is None else f", offsets {summary.first_offset} to {summary.next_offset} (not included)"
    damage = "" if not summary.corrupt else f"; {summary.corrupt} corrupt places, {human_bytes(summary.lost_bytes)} lost"
    return (
        f"{summary.segments} segments, {human_bytes(summary.bytes)}: {summary.batches} batches ({codecs or 'none'}), "
        f"{summary.records:,} records{span}{damage}"
    )
