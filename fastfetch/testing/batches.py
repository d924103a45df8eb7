"""An encoder for Kafka's record batches, all formats and codecs, in plain Python.

    batch = encode_batch([b"v1", (b"k", b"v2"), (None, b"v3", 1000, [("h", b"x")])], base_offset=5, codec="lz4")
    batch += control_batch("abort", producer_id=42, base_offset=8)

A record is a value (`bytes` or None), or a tuple `(key, value[, timestamp[, headers]])`; `Row` names the fields. A record
without a time gets `timestamp` + its offset delta (milliseconds since 1970).

Well-formed bytes come from `encode_batch` (format 2), `message_set` (formats 0 and 1) and `control_batch`. Wrong ones are made
from those: `patch` sets any header field and leaves the CRC right or wrong as asked, `encode_record` takes false lengths and
counts, and `payload=` and `compressor=` replace what stands behind a header.

Format 2, big-endian:

     0 base offset i64   12 leader epoch i32   21 attributes i16          35 max timestamp i64   53 base sequence i32
     8 length i32        16 magic i8           23 last offset delta i32   43 producer id i64     57 count i32
                         17 crc u32            27 base timestamp i64      51 producer epoch i16  61 records

The CRC-32C covers bytes 21 to the end: base offset, length and leader epoch can be changed without computing it again, which is
what `rebase` does, and what lets a large log be made from few encoded batches.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import crc32c as _crc32c

from . import compression

__all__ = [
    "DEFAULT_TIMESTAMP",
    "HEADER",
    "HEADER_SIZE",
    "Entry",
    "RecordLike",
    "Row",
    "control_batch",
    "encode_batch",
    "encode_message",
    "encode_record",
    "encode_records",
    "entries",
    "message_set",
    "patch",
    "rebase",
    "record_times",
    "repair_crc",
    "varint",
]

DEFAULT_TIMESTAMP = 1_700_000_000_000

Headers: TypeAlias = Sequence[tuple[str | bytes, bytes | None]]


class Row(NamedTuple):
    """One record to encode. `timestamp` in ms since 1970; None: the batch's `timestamp` + the record's offset delta."""

    key: bytes | None = None
    value: bytes | None = None
    timestamp: int | None = None
    headers: Headers = ()


RecordLike: TypeAlias = bytes | tuple[Any, ...] | None

# name: (position, struct format) of each field of the format 2 header.
HEADER: dict[str, tuple[int, str]] = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "count": (57, ">i"),
}
HEADER_SIZE = 61
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC_AT, _COVERED_FROM = 17, 21

LOG_APPEND, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40


def varint(n: int) -> bytes:
    """`n` as a zigzag varint, as long as it needs: the varint32 and varint64 of record fields."""
    n = (n << 1) ^ (n >> 63)
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


# Nearly every length and delta is small; looking them up makes encoding twice as fast.
_SMALL = [varint(n) for n in range(4096)]
_SMALL_END = len(_SMALL)


def encode_record(
    key: bytes | None = None,
    value: bytes | None = None,
    *,
    timestamp_delta: int = 0,
    offset_delta: int = 0,
    headers: Headers = (),
    attributes: int = 0,
    length: int | None = None,
    key_length: int | None = None,
    value_length: int | None = None,
    header_count: int | None = None,
    extra: bytes = b"",
) -> bytes:
    """One record of format 2. The last arguments make wrong ones: they replace a length or count, or append bytes inside."""
    parts = [attributes.to_bytes(1, "big"), varint(timestamp_delta), varint(offset_delta)]
    for size, data in ((key_length, key), (value_length, value)):
        parts.append(varint(size if size is not None else -1 if data is None else len(data)))
        parts.append(data or b"")
    parts.append(varint(len(headers) if header_count is None else header_count))
    parts.append(_headers(headers))
    parts.append(extra)
    body = b"".join(parts)
    return varint(len(body) if length is None else length) + body


def _headers(headers: Headers) -> bytes:
    parts: list[bytes] = []
    for name, value in headers:
        raw = name.encode() if isinstance(name, str) else name
        parts += (varint(len(raw)), raw, varint(-1) if value is None else varint(len(value)), value or b"")
    return b"".join(parts)


def encode_records(
    records: Iterable[RecordLike],
    *,
    timestamp: int = DEFAULT_TIMESTAMP,
    base_timestamp: int | None = None,
    deltas: Sequence[int] | None = None,
) -> tuple[bytes, int, int, int]:
    """The records section of format 2, not compressed: (bytes, count, base timestamp, greatest timestamp)."""
    out: list[bytes] = []
    add = out.append
    small, small_end = _SMALL, _SMALL_END
    base, latest = base_timestamp, None
    count = 0
    for record in records:
        delta = count if deltas is None else deltas[count]
        count += 1
        key: bytes | None = None
        headers: Headers = ()
        when = None
        if record is None or not isinstance(record, tuple):
            value = record
        else:
            key, value = record[0], record[1]
            if len(record) > 2:
                when = record[2]
                if len(record) > 3:
                    headers = record[3]
        if when is None:
            when = timestamp + delta
        if base is None:
            base = when
        if latest is None or when > latest:
            latest = when
        time_delta = when - base
        body = b"".join(
            (
                b"\x00",
                small[time_delta] if 0 <= time_delta < small_end else varint(time_delta),
                small[delta] if 0 <= delta < small_end else varint(delta),
                b"\x01" if key is None else small[len(key)] + key if len(key) < small_end else varint(len(key)) + key,
                b"\x01" if value is None else small[len(value)] if len(value) < small_end else varint(len(value)),
                value or b"",
                varint(len(headers)) + _headers(headers) if headers else b"\x00",
            )
        )
        size = len(body)
        add(small[size] if size < small_end else varint(size))
        add(body)
    return b"".join(out), count, -1 if base is None else base, -1 if latest is None else latest


def encode_batch(
    records: Iterable[RecordLike] = (),
    *,
    base_offset: int = 0,
    magic: int = 2,
    codec: str | int = "none",
    timestamp: int = DEFAULT_TIMESTAMP,
    deltas: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    log_append_time: int | None = None,
    delete_horizon: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
    payload: bytes | None = None,
    count: int | None = None,
    compressor: Callable[[bytes], bytes] | None = None,
) -> bytes:
    """One record batch, whole and with a right CRC.

    records             values or (key, value[, timestamp[, headers]]); none at all makes an empty batch as compaction leaves it
    magic               2; 0 and 1 are handed to `message_set`, which takes fewer of the arguments
    codec               none, gzip, snappy (Java framing), snappy-raw, lz4, zstd; or a number for the attribute bits alone,
                        with `compressor` as what to do with the bytes
    deltas              each record's offset minus base_offset; default 0, 1, 2 …
    last_offset_delta   of the header; default the last record's delta. Larger: compaction removed the batch's end
    log_append_time     ms: sets the timestamp type and the max timestamp that then holds for every record
    delete_horizon      ms: sets bit 6; the base timestamp field holds the horizon and deltas are relative to it (KIP-534)
    payload, count      the records section as given, before compression, and the count to declare for it
    compressor          replaces the codec's usual compressor (see `fastfetch.testing.compression` for the options of each)
    """
    if magic != 2:
        return message_set(
            records,
            magic=magic,
            base_offset=base_offset,
            codec=codec,
            timestamp=timestamp,
            deltas=deltas,
            log_append_time=log_append_time,
            compressor=compressor,
        )
    if delete_horizon is not None:
        base_timestamp = delete_horizon
    if payload is None:
        rows = list(records)
        payload, n, base, latest = encode_records(rows, timestamp=timestamp, base_timestamp=base_timestamp, deltas=deltas)
    else:
        n, base, latest = 0, timestamp if base_timestamp is None else base_timestamp, timestamp
    count = n if count is None else count
    if last_offset_delta is None:
        last_offset_delta = max(count - 1, 0) if deltas is None else deltas[-1]
    codec_id = compression.CODECS[codec] if isinstance(codec, str) else codec
    attributes = codec_id
    if log_append_time is not None:
        attributes |= LOG_APPEND
        latest = log_append_time
    attributes |= (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    attributes |= DELETE_HORIZON if delete_horizon is not None else 0
    if compressor is not None:
        payload = compressor(payload)
    elif codec_id and (payload or count) and isinstance(codec, str):
        payload = compression.compress(codec, payload)
    if max_timestamp is not None:
        latest = max_timestamp
    head = _HEADER.pack(
        base_offset,
        HEADER_SIZE - 12 + len(payload),
        leader_epoch,
        2,
        0,
        attributes,
        last_offset_delta,
        base if base_timestamp is None else base_timestamp,
        latest,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    crc = _crc32c.crc32c(payload, _crc32c.crc32c(head[_COVERED_FROM:]))
    return b"".join((head[:_CRC_AT], struct.pack(">I", crc), head[_COVERED_FROM:], payload))


def control_batch(
    kind: str | int,
    *,
    producer_id: int,
    producer_epoch: int = 0,
    base_offset: int = 0,
    timestamp: int = DEFAULT_TIMESTAMP,
    coordinator_epoch: int = 0,
    leader_epoch: int = 0,
    version: int = 0,
    key: bytes | None = None,
) -> bytes:
    """The marker a transaction coordinator writes: `kind` is "abort", "commit" or the number of another control type.

    key     replaces the record's key, for malformed markers
    """
    number = {"abort": 0, "commit": 1}[kind] if isinstance(kind, str) else kind
    value = struct.pack(">hi", 0, coordinator_epoch)
    return encode_batch(
        [(struct.pack(">hh", version, number) if key is None else key, value, timestamp)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )


def encode_message(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = DEFAULT_TIMESTAMP,
    key_length: int | None = None,
    value_length: int | None = None,
    extra: bytes = b"",
) -> bytes:
    """One entry of message format 0 or 1 with its offset and size; the last arguments make wrong ones."""
    body = struct.pack(">bB", magic, attributes & 0xFF)
    if magic > 0:
        body += struct.pack(">q", timestamp)
    for size, data in ((key_length, key), (value_length, value)):
        body += struct.pack(">i", size if size is not None else -1 if data is None else len(data)) + (data or b"")
    body += extra
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def message_set(
    records: Iterable[RecordLike] = (),
    *,
    magic: int = 1,
    base_offset: int = 0,
    codec: str | int = "none",
    timestamp: int = DEFAULT_TIMESTAMP,
    deltas: Sequence[int] | None = None,
    log_append_time: int | None = None,
    absolute: bool | None = None,
    wrapper_offset: int | None = None,
    wrapper_key: bytes | None = None,
    inner_magic: int | None = None,
    inner_attributes: int | None = None,
    payload: bytes | None = None,
    compressor: Callable[[bytes], bytes] | None = None,
) -> bytes:
    """Messages of format 0 or 1: side by side, or with a codec inside one wrapper message.

    absolute        offsets inside a wrapper: format 0 has absolute ones, format 1 relative ones (KIP-31)
    wrapper_offset  default the last record's offset; old producers left 0 in format 1
    log_append_time ms: sets the bit and the time; in a wrapper only the wrapper carries it, as brokers write it
    payload         replaces the inner message set before compression
    """
    rows = [record if isinstance(record, tuple) else (None, record) for record in records]
    places = range(len(rows)) if deltas is None else deltas
    wrapped = codec not in ("none", 0) or compressor is not None
    inner = magic if inner_magic is None or not wrapped else inner_magic
    if absolute is None:
        absolute = not wrapped or magic == 0
    flag = LOG_APPEND if log_append_time is not None and magic > 0 else 0
    out, times = [], []
    for delta, (key, value, *rest) in zip(places, rows, strict=True):
        if len(rest) > 1 and rest[1]:
            raise ValueError(f"message format {magic} has no headers")
        when = rest[0] if rest and rest[0] is not None else timestamp + delta
        times.append(when)
        attributes = inner_attributes or 0
        if flag and not wrapped and log_append_time is not None:
            when, attributes = log_append_time, attributes | flag
        offset = base_offset + delta if absolute else delta
        out.append(encode_message(offset, key, value, magic=inner, attributes=attributes, timestamp=when))
    data = b"".join(out) if payload is None else payload
    if not wrapped:
        return data
    if compressor is not None:
        data = compressor(data)
    elif isinstance(codec, str):
        data = compression.compress(codec, data, legacy_checksum=magic == 0)
    codec_id = compression.CODECS[codec] if isinstance(codec, str) else codec
    when = log_append_time if flag and log_append_time is not None else max(times, default=timestamp)
    if wrapper_offset is None:
        wrapper_offset = base_offset + (places[-1] if places else 0)
    return encode_message(wrapper_offset, wrapper_key, data, magic=magic, attributes=codec_id | flag, timestamp=when)


class Entry(NamedTuple):
    """Where one batch (or one message of format 0 or 1) lies in a record set, and the offsets it takes up."""

    start: int
    end: int
    magic: int
    attributes: int
    base_offset: int
    last_offset: int


def entries(data: bytes | bytearray | memoryview) -> Iterator[Entry]:
    """The whole entries of a record set, up to a partial tail. Trusts the bytes: for data of this package's own making."""
    at, size = 0, len(data)
    while at + 17 <= size:
        offset, length = struct.unpack_from(">qi", data, at)
        end = at + 12 + length
        if length < 14 or end > size:
            return
        magic = data[at + 16]
        if magic >= 2:
            attributes, last_delta = struct.unpack_from(">hi", data, at + 21)
            yield Entry(at, end, magic, attributes, offset, offset + last_delta)
        else:
            attributes = data[at + 17]
            base = offset
            if attributes & 7:
                first, last = _inner_offsets(data, at, end)
                base = first if magic == 0 else offset - (last - first)
            yield Entry(at, end, magic, attributes, base, offset)
        at = end


def _inner_offsets(data: bytes | bytearray | memoryview, at: int, end: int) -> tuple[int, int]:
    """First and last offset as written inside the wrapper at `at`."""
    inner = _inner_set(data, at, end)
    offsets, place = [], 0
    while place + 12 <= len(inner):
        offset, length = struct.unpack_from(">qi", inner, place)
        offsets.append(offset)
        place += 12 + length
    return (offsets[0], offsets[-1]) if offsets else (0, 0)


def _inner_set(data: bytes | bytearray | memoryview, at: int, end: int) -> bytes:
    """The message set inside the wrapper at `at`."""
    key_at = at + (26 if data[at + 16] else 18)
    (key_length,) = struct.unpack_from(">i", data, key_at)
    return compression.inflate(data[at + 17] & 7, bytes(data[key_at + 8 + max(key_length, 0) : end]))


def record_times(batch: bytes) -> list[tuple[int, int]]:
    """(offset, timestamp) of every record of one entry; -1 for format 0. Trusts the bytes, as `entries` does."""
    (entry,) = entries(batch)
    if entry.magic == 2:
        base, latest = struct.unpack_from(">qq", batch, HEADER["base_timestamp"][0])
        (count,) = struct.unpack_from(">i", batch, HEADER["count"][0])
        data, at, out = compression.inflate(entry.attributes & 7, batch[HEADER_SIZE:]) if count else b"", 0, []
        for _ in range(count):
            size, at = _read_varint(data, at)
            end = at + size
            time_delta, at = _read_varint(data, at + 1)
            offset_delta, at = _read_varint(data, at)
            out.append((entry.base_offset + offset_delta, latest if entry.attributes & LOG_APPEND else base + time_delta))
            at = end
        return out
    inner, times, at = batch, [], 0
    if entry.attributes & 7:
        inner = _inner_set(batch, 0, len(batch))
    while at + 26 <= len(inner):
        offset, length = struct.unpack_from(">qi", inner, at)
        times.append((offset, -1 if entry.magic == 0 else int(struct.unpack_from(">q", inner, at + 18)[0])))
        at += 12 + length
    if entry.attributes & 7:
        shift = 0 if entry.magic == 0 else entry.last_offset - times[-1][0]
        # The wrapper's time holds for all inner messages where the broker set it.
        stamp = struct.unpack_from(">q", batch, 18)[0] if entry.attributes & LOG_APPEND else None
        times = [(offset + shift, when if stamp is None else stamp) for offset, when in times]
    return times


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    n = shift = 0
    while True:
        byte = data[at]
        at += 1
        n |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (n >> 1) ^ -(n & 1), at


def rebase(data: bytes, base_offset: int, leader_epoch: int | None = None) -> bytes:
    """The same batches, moved so that the first starts at `base_offset`. No CRC changes: offset and epoch lie outside it.

    data            one or more batches; their distances stay
    leader_epoch    to be written into each batch of format 2; None leaves what is there
    raises          ValueError for a wrapper of format 0, whose inner offsets are absolute and compressed
    """
    out = bytearray(data)
    shift = None
    for entry in entries(data):
        if shift is None:
            shift = base_offset - entry.base_offset
        if entry.magic == 0 and entry.attributes & 7 and shift:
            raise ValueError("a compressed message of format 0 holds absolute offsets: encode it again instead")
        (offset,) = struct.unpack_from(">q", data, entry.start)
        struct.pack_into(">q", out, entry.start, offset + shift)
        if leader_epoch is not None and entry.magic == 2:
            struct.pack_into(">i", out, entry.start + 12, leader_epoch)
    return bytes(out)


def patch(batch: bytes, *, repair: bool = True, **fields: int) -> bytes:
    """A copy of one batch of format 2 with header fields (the names of `HEADER`) set to any value that fits.

    repair  compute the CRC again, so that only the field is wrong; not where `crc` itself is set
    """
    out = bytearray(batch)
    for name, value in fields.items():
        at, form = HEADER[name]
        struct.pack_into(form, out, at, value)
    return repair_crc(bytes(out)) if repair and "crc" not in fields else bytes(out)


def repair_crc(batch: bytes) -> bytes:
    """A copy of one batch (format 2) or message (0, 1) with the CRC that its bytes should have. The end is the end of `batch`."""
    if batch[16] >= 2:
        return batch[:_CRC_AT] + struct.pack(">I", _crc32c.crc32c(batch[_COVERED_FROM:])) + batch[_COVERED_FROM:]
    return batch[:12] + struct.pack(">I", zlib.crc32(batch[16:])) + batch[16:]
