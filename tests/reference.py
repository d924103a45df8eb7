"""The oracle: a slow, plain decoder of Kafka's record formats, written from their definition and not from the kernels.

`decode` takes what `fastfetch.decode` takes and says what it must give. It shares no code with the package and walks every frame,
chunk and varint itself; only the innermost decompressors (zlib, one LZ4 block, one Zstandard frame) are libraries. Nothing here
is fast, and nothing in the package may call it: there is one implementation, and this is the yardstick beside it.

Sources: Kafka's protocol guide ("Messages", "Record Batch"), KIP-32, KIP-98, KIP-101, KIP-534, the frame descriptions of LZ4,
Zstandard (RFC 8878), gzip (RFC 1952) and Snappy, and the xerial framing that Java writes around Snappy.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import crc32c
from codecs_reference import Broken, Inflated, TooLarge, inflate

__all__ = ["Entry", "Expected", "Problem", "Row", "Stop", "decode", "entries", "problem_of", "seen"]

HIGHEST = 2**63 - 1
NONE, CREATE, LOG_APPEND = -1, 0, 1
NULL_PRODUCER = -1
MARKER_LIMIT = 1 << 16  # a control batch that inflates to more holds no marker


class Row(NamedTuple):
    """One record as a reader sees it. Header keys are bytes: they may be no UTF-8."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    leader_epoch: int


@dataclass(frozen=True)
class Problem:
    """The error that `decode` returns beside the records before it."""

    cls: str
    kind: str
    byte_pos: int
    base_offset: int | None
    next_offset: int | None
    skip_trusted: bool
    position: int | None


@dataclass
class Expected:
    """What `fastfetch.decode` has to give for the same arguments."""

    records: list[Row] = field(default_factory=list)
    next_offset: int | None = None
    consumed: int = 0
    error: Problem | None = None
    batches: int = 0
    dropped: int = 0
    null_lengths: int = 0
    trailing: int = 0


class Stop(Exception):  # noqa: N818 - not an error of its own: it carries a problem to where the position is known
    """A batch that can't be read. `rows` are the whole records before the bad one."""

    def __init__(self, cls: str, kind: str, rows: Iterable[Row] = ()) -> None:
        super().__init__(cls, kind)
        self.cls = cls
        self.kind = kind
        self.rows = list(rows)


class Malformed(Exception):  # noqa: N818
    """Bytes that do not follow the format; the caller knows what to call it."""


# ------------------------------------------------------------------------------------------------------------ reading bytes


class Cursor:
    """Bounded reading of big-endian fields and zigzag varints."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, n: int) -> bytes:
        at = self.at
        if not 0 <= n <= len(self.data) - at:
            raise Malformed
        self.at = at + n
        return self.data[at : at + n]

    def unpack(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(">" + layout, self.take(struct.calcsize(">" + layout)))

    def varint(self, bits: int) -> int:
        """At most 5 bytes of 32 bits or 10 of 64; the last may not carry bits beyond the type. Zero padding is legal."""
        raw = 0
        longest = (bits + 6) // 7
        for place, byte in enumerate(self.data[self.at : self.at + longest]):
            raw |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                if raw >> bits:
                    raise Malformed
                self.at += place + 1
                return (raw >> 1) ^ -(raw & 1)
        raise Malformed

    def nullable(self, length: int, counts: Expected) -> bytes | None:
        """Lengths below -1 read as null, as in Java: brokers store them."""
        if length < 0:
            counts.null_lengths += length < -1
            return None
        return self.take(length)


def wrap(value: int) -> int:
    """The sum of two int64 as 64-bit machines have it."""
    return (value + 2**63) % 2**64 - 2**63


# ------------------------------------------------------------------------------------------------------------ entries


@dataclass
class Entry:
    """One batch or message, whole, with a good length and a known magic; nothing else is proved."""

    at: int
    offset: int
    length: int
    magic: int
    raw: bytes

    @property
    def end(self) -> int:
        return self.at + 12 + self.length

    def crc_is_right(self) -> bool:
        if self.magic == 2:
            return bool(struct.unpack_from(">I", self.raw, 17)[0] == crc32c.crc32c(self.raw[21:]))
        return bool(struct.unpack_from(">I", self.raw, 12)[0] == zlib.crc32(self.raw[16:]))

    def header(self) -> Header | Message:
        return Header.of(self) if self.magic == 2 else Message.of(self)


MINIMUM = {0: 14, 1: 22, 2: 49}


def entry_at(data: bytes, at: int) -> Entry | None:
    """The entry at `at`, or None for a partial tail. Stops where the length or the magic is impossible."""
    rest = len(data) - at
    if rest < 12:
        return None
    offset, length = struct.unpack_from(">qi", data, at)
    if length < 14:
        raise Stop("CorruptBatchError", "length")
    if rest < 17:
        return None
    magic = struct.unpack_from(">b", data, at + 16)[0]
    if magic < 0:
        raise Stop("CorruptBatchError", "magic")
    if magic > 2:
        raise Stop("UnsupportedMagicError", "magic")
    if length < MINIMUM[magic]:
        raise Stop("CorruptBatchError", "length")
    if rest - 12 < length:
        return None
    return Entry(at, offset, length, magic, data[at : at + 12 + length])


def entries(data: bytes) -> Iterator[Entry]:
    """All whole entries up to a partial tail or an impossible header."""
    at = 0
    while True:
        try:
            entry = entry_at(data, at)
        except Stop:
            return
        if entry is None:
            return
        yield entry
        at = entry.end


@dataclass
class Header:
    """The header of a batch of magic 2, and its payload as it came."""

    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    count: int
    payload: bytes
    producer_epoch: int = -1
    base_sequence: int = -1
    crc: int = 0

    @classmethod
    def of(cls, entry: Entry) -> Header:
        c = Cursor(entry.raw)
        base, _, epoch, _, crc = c.unpack("qiibI")
        attributes, last, base_time, max_time, producer, producer_epoch, sequence, count = c.unpack("hiqqqhii")
        payload = c.take(c.left)
        return cls(base, epoch, attributes, last, base_time, max_time, producer, count, payload, producer_epoch, sequence, crc)

    codec = property(lambda self: self.attributes & 7)
    log_append_time = property(lambda self: bool(self.attributes & 8))
    transactional = property(lambda self: bool(self.attributes & 16))
    control = property(lambda self: bool(self.attributes & 32))
    first_offset = property(lambda self: self.base_offset)
    last_offset = property(lambda self: self.base_offset + self.last_offset_delta)

    def offsets_are_sane(self) -> bool:
        # The next offset, one above the last, has to fit as well.
        return self.base_offset >= 0 and self.last_offset_delta >= 0 and self.last_offset < HIGHEST

    def lies_below(self, position: int) -> bool:
        return bool(self.last_offset < position)

    def rows(self, result: Expected, limit: int, checksum: bool) -> list[Row]:
        """All records, walked to the end."""
        if self.count == 0 and not self.payload:
            return []  # no decompressor is asked, whatever the codec bits say
        if self.codec > 4:
            raise Stop("UnsupportedCodecError", "codec")
        if self.count < 0:
            raise Stop("InvalidRecordError", "count")
        payload = self.payload
        if self.codec:
            payload = inflated(self.codec, payload, limit, result, checksum=checksum)
        if self.count > len(payload) // 7:
            raise Stop("InvalidRecordError", "count")
        c = Cursor(payload)
        rows: list[Row] = []
        for _ in range(self.count):
            if not c.left:
                raise Stop("InvalidRecordError", "count", rows)
            try:
                rows.append(self.row(c, result))
            except Malformed:
                raise Stop("InvalidRecordError", "record", rows) from None
        if c.left:
            # The last one counted is not trusted either: like Java, which looks for the end before it hands the last record out.
            raise Stop("InvalidRecordError", "count", rows[:-1])
        return rows

    def row(self, payload: Cursor, result: Expected) -> Row:
        c = Cursor(payload.take(payload.varint(32)))
        c.take(1)
        time_delta = c.varint(64)
        offset_delta = c.varint(32)
        key = c.nullable(c.varint(32), result)
        value = c.nullable(c.varint(32), result)
        count = c.varint(32)
        if not 0 <= count <= c.left // 2:
            raise Malformed
        headers = tuple((c.take(c.varint(32)), c.nullable(c.varint(32), result)) for _ in range(count))
        if c.left or not 0 <= offset_delta <= self.last_offset_delta:
            raise Malformed
        if self.log_append_time:
            timestamp, kind = self.max_timestamp, LOG_APPEND
        else:
            timestamp, kind = wrap(self.base_timestamp + time_delta), CREATE
        return Row(self.base_offset + offset_delta, timestamp, kind, key, value, headers, self.leader_epoch)

    def is_abort(self) -> bool:
        """Does this control batch end its producer's transaction with an abort? Types that are no end marker are ignored.

        Only the first record is looked at, up to its key.
        """
        if self.count == 0:
            return False
        try:
            payload = inflate(self.codec, self.payload, MARKER_LIMIT).data if self.codec else self.payload
            c = Cursor(payload)
            c = Cursor(c.take(c.varint(32)))
            c.take(1)
            c.varint(64)
            c.varint(32)
            version, kind = Cursor(c.take(c.varint(32))).unpack("hh")
        except (Malformed, Broken, TooLarge):
            raise Stop("InvalidRecordError", "marker") from None
        if version < 0:
            raise Stop("InvalidRecordError", "marker")
        return kind == 0


@dataclass
class Message:
    """An entry of magic 0 or 1: a message, or a wrapper whose value is a compressed set of messages."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    body: bytes  # from the key length on

    codec = property(lambda self: self.attributes & 7)
    log_append_time = property(lambda self: self.magic == 1 and bool(self.attributes & 8))
    # A wrapper has the offset of its last message; where its first one lies is inside.
    first_offset = property(lambda self: None if self.codec else self.offset)
    last_offset = property(lambda self: self.offset)
    count = 1
    producer_id = NULL_PRODUCER
    control = False
    transactional = False

    @classmethod
    def of(cls, entry: Entry) -> Message:
        c = Cursor(entry.raw)
        c.take(17)
        (attributes,) = c.unpack("B")
        timestamp = c.unpack("q")[0] if entry.magic == 1 else -1
        return cls(entry.offset, entry.magic, attributes, timestamp, c.take(c.left))

    def offsets_are_sane(self) -> bool:
        return 0 <= self.offset < HIGHEST

    def lies_below(self, position: int) -> bool:
        # Old producers wrote offset 0 on every wrapper of magic 1; what lies inside is then known only inside.
        return self.offset < position and not (self.codec and self.offset == 0)

    def key_and_value(self, result: Expected) -> tuple[bytes | None, bytes | None]:
        c = Cursor(self.body)
        key = c.nullable(c.unpack("i")[0], result)
        value = c.nullable(c.unpack("i")[0], result)
        return key, value  # bytes behind the value are ignored, as in Java

    def rows(self, result: Expected, limit: int, checksum: bool) -> list[Row]:
        if self.codec > 3:
            raise Stop("UnsupportedCodecError", "codec")  # zstd came with magic 2
        try:
            key, value = self.key_and_value(result)
        except Malformed:
            raise Stop("InvalidRecordError", "record") from None
        kind = NONE if self.magic == 0 else LOG_APPEND if self.log_append_time else CREATE
        if not self.codec:
            return [Row(self.offset, self.timestamp, kind, key, value, (), -1)]
        if value is None:
            raise Stop("InvalidRecordError", "record")
        data = inflated(self.codec, value, limit, result, checksum=checksum, header_checksum=self.magic > 0)
        return self.unwrap(data, kind, result)

    def unwrap(self, data: bytes, kind: int, result: Expected) -> list[Row]:
        """Messages of a wrapper. Relative offsets count back from the last one: the set is proved whole before any is given."""
        inner: list[Message] = []
        at = 0
        while at < len(data):
            try:
                entry = entry_at(data, at)
            except Stop:
                entry = None
            if entry is None or entry.magic != self.magic:
                raise Stop("InvalidRecordError", "record")
            inner.append(Message.of(entry))
            at = entry.end
        if not inner or any(m.codec or m.offset < 0 for m in inner):
            raise Stop("InvalidRecordError", "record")
        last = inner[-1].offset
        base = 0
        if self.magic == 1 and self.offset:
            base = self.offset - last
            if base < 0:
                raise Stop("InvalidRecordError", "record")
        rows: list[Row] = []
        for m in inner:
            try:
                key, value = m.key_and_value(result)
            except Malformed:
                raise Stop("InvalidRecordError", "record", rows) from None
            if base + m.offset >= HIGHEST:
                raise Stop("InvalidRecordError", "record", rows)
            timestamp = self.timestamp if self.log_append_time else m.timestamp
            rows.append(Row(base + m.offset, timestamp, kind, key, value, (), -1))
        return rows


def inflated(codec: int, payload: bytes, limit: int, result: Expected, *, checksum: bool, header_checksum: bool = True) -> bytes:
    try:
        done: Inflated = inflate(codec, payload, limit, checksum=checksum, header_checksum=header_checksum)
    except TooLarge:
        raise Stop("BatchTooLargeError", "too_large") from None
    except Broken:
        raise Stop("DecompressionError", "inflate") from None
    result.trailing += done.trailing
    return done.data


# ------------------------------------------------------------------------------------------------------------ the decoder


class Transactions:
    """Which producers are inside an aborted transaction, batch by batch. Java's rule."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self.pending = sorted(aborted, key=lambda pair: pair[1])
        self.open: set[int] = set()

    def hides(self, header: Header) -> bool:
        while self.pending and self.pending[0][1] <= header.last_offset:
            self.open.add(self.pending.pop(0)[0])
        if header.control:
            if header.is_abort():
                self.open.discard(header.producer_id)
            return True
        return header.transactional and header.producer_id in self.open


def decode(
    data: bytes,
    *,
    position: int | None = None,
    isolation: str = "read_uncommitted",
    aborted: Iterable[tuple[int, int]] = (),
    check_crcs: bool = True,
    max_batch_bytes: int = 64 << 20,
    lz4_content_checksum: bool = True,
) -> Expected:
    """Records at or above `position`, the next offset, the bytes consumed, and the error if there is one."""
    data = bytes(data)
    result = Expected(next_offset=position)
    transactions = Transactions(aborted)
    reached = position or 0  # by headers alone; a wrapper may hold offsets beyond its own
    while True:
        at = result.consumed
        entry = None
        try:
            entry = entry_at(data, at)
            if entry is None:
                return result
            if check_crcs and not entry.crc_is_right():
                raise Stop("CrcMismatchError", "crc")  # before any field that the CRC covers is looked at
            header = entry.header()
            if not header.offsets_are_sane():
                raise Stop("CorruptBatchError", "offset")
            hidden = header.control
            if isinstance(header, Header) and isolation == "read_committed" and header.producer_id >= 0:
                hidden = transactions.hides(header)
            if not hidden and header.lies_below(reached):
                # Passed over by its header. Below the position asked for that is normal, else it repeats what came before.
                result.dropped += max(header.count, 0) if header.last_offset >= (position or 0) else 0
            elif not hidden:
                deliver(header.rows(result, max_batch_bytes, lz4_content_checksum), position, result)
        except Stop as stop:
            deliver(stop.rows, position, result)
            result.error = problem(stop, data, at, entry, result.next_offset)
            return result
        result.batches += 1
        result.consumed = entry.end
        # Not last record + 1: compaction may have removed the tail (KAFKA-5443). And never backwards.
        result.next_offset = max(header.last_offset + 1, result.next_offset or 0)
        reached = max(header.last_offset + 1, reached)


def deliver(rows: Iterable[Row], position: int | None, result: Expected) -> None:
    """Hand out what lies at or above the position; the position moves with every record."""
    for row in rows:
        if result.next_offset is None or row.offset >= result.next_offset:
            result.records.append(row)
            result.next_offset = row.offset + 1
        elif position is None or row.offset >= position:
            result.dropped += 1  # repeated or decreasing


def problem(stop: Stop, data: bytes, at: int, entry: Entry | None, position: int | None) -> Problem:
    """Where the bad batch is, and where to go on: only a right CRC makes an offset worth trusting."""
    base = struct.unpack_from(">q", data, at)[0]
    stays = base if position is None else position
    target = None
    if entry is not None and stop.kind != "offset":
        # The batch's own end if its CRC is right (also where CRCs were not asked for), else the start of the next one.
        header = entry.header()
        if entry.crc_is_right():
            target = header.last_offset + 1 if header.offsets_are_sane() else None
        else:
            target = sane_base_at(data, entry.end, stays)
    return Problem(stop.cls, stop.kind, at, base, target, target is not None, stays)


def sane_base_at(data: bytes, at: int, position: int) -> int | None:
    """First offset of the batch at `at` if it is whole, sane, right by its own CRC, and ahead of the position.

    Looked for only where the bad batch says that it ends: a record may hold the bytes of a whole batch.
    """
    try:
        entry = entry_at(data, at)
    except Stop:
        return None
    if entry is None or not entry.crc_is_right():
        return None
    header = entry.header()
    if not header.offsets_are_sane() or header.first_offset is None or header.first_offset <= position:
        return None
    return int(header.first_offset)


# ------------------------------------------------------------------------------------------------------------ fastfetch's side


def seen(decoded: Any) -> Expected:
    """A `fastfetch.Decoded` in the oracle's terms, read through the columns and the data buffer alone."""
    result = Expected(next_offset=decoded.next_offset, consumed=decoded.consumed)
    for block in decoded.blocks:
        data = bytes(block.data)
        columns = [
            block.offsets, block.timestamps, block.timestamp_types, block.key_starts, block.key_lengths,
            block.value_starts, block.value_lengths, block.header_counts, block.leader_epochs,
        ]  # fmt: skip
        heads = block.headers()
        for i, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            offset, timestamp, kind, key_at, key_length, value_at, value_length, count, epoch = row
            key = None if key_length < 0 else data[key_at : key_at + key_length]
            value = None if value_length < 0 else data[value_at : value_at + value_length]
            assert len(key or b"") == max(key_length, 0)
            assert len(value or b"") == max(value_length, 0)
            headers = tuple((k.encode("utf-8", "surrogateescape"), v) for k, v in heads[i])
            assert len(headers) == count
            result.records.append(Row(offset, timestamp, kind, key, value, headers, epoch))
    result.error = problem_of(decoded.error)
    return result


def problem_of(error: Any) -> Problem | None:
    """fastfetch's error in the oracle's terms."""
    if error is None:
        return None
    return Problem(
        type(error).__name__, error.kind, error.byte_pos, error.base_offset, error.next_offset, error.skip_trusted, error.position
    )
