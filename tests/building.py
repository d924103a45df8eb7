"""Record sets made by hand, in which every field can be wrong.

`fastfetch.testing.batches` writes what a producer writes; these functions exist for what no producer writes, and share no code
with it, so that a mistake in one shows against the other.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterable, Sequence

import crc32c
import lz4.frame
import zstandard
from codecs_reference import xxh32

__all__ = [
    "CODECS", "GZIP", "LZ4", "NONE", "SNAPPY", "TIME", "ZSTD", "batch", "control", "lz4_block_of", "lz4_frame", "message", "pack",
    "padded", "raw_snappy", "record", "records", "repaired", "snappy_run", "wrapper", "xerial", "zigzag", "zstd_frame",
]  # fmt: skip

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
TIME = 1_700_000_000_000
TRANSACTIONAL, CONTROL, LOG_APPEND = 0x10, 0x20, 0x08


# ------------------------------------------------------------------------------------------------------------ records of format 2


def unsigned(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def zigzag(value: int) -> bytes:
    """A varint of any width: what does not fit 64 bits is the caller's wish."""
    return unsigned(value << 1 if value >= 0 else (-value << 1) - 1)


def padded(value: int, size: int) -> bytes:
    """The varint made `size` bytes long by zero bits."""
    plain = zigzag(value)
    fill = size - len(plain)
    return plain if fill <= 0 else plain[:-1] + bytes([plain[-1] | 0x80]) + b"\x80" * (fill - 1) + b"\0"


def sized(data: bytes | None, length: int | None = None) -> bytes:
    """A varint length and bytes; None is null. `length` is what is claimed instead."""
    claimed = (-1 if data is None else len(data)) if length is None else length
    return zigzag(claimed) + (data or b"")


def record(
    delta: int = 0,
    *,
    time: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: Sequence[tuple[bytes | None, bytes | None]] = (),
    attributes: int = 0,
    length: int | None = None,
    key_length: int | None = None,
    value_length: int | None = None,
    header_count: int | None = None,
    tail: bytes = b"",
) -> bytes:
    """One record; `length` and the others are claimed instead of the truth, `tail` stands behind the headers."""
    count = len(headers) if header_count is None else header_count
    body = bytes([attributes]) + zigzag(time) + zigzag(delta) + sized(key, key_length) + sized(value, value_length)
    body += zigzag(count) + b"".join(sized(k) + sized(v) for k, v in headers) + tail
    return zigzag(len(body) if length is None else length) + body


def records(n: int, start: int = 0) -> bytes:
    return b"".join(record(i, time=i, key=b"k%d" % i, value=b"value %d" % i) for i in range(start, start + n))


def repaired(entry: bytes) -> bytes:
    """The same batch or message with the right CRC."""
    if entry[16] == 2:
        return entry[:17] + struct.pack(">I", crc32c.crc32c(entry[21:])) + entry[21:]
    return entry[:12] + struct.pack(">I", zlib.crc32(entry[16:])) + entry[16:]


def batch(
    payload: bytes | Iterable[bytes] = b"",
    count: int | None = None,
    *,
    base: int = 0,
    last: int | None = None,
    codec: int = NONE,
    packed: bytes | None = None,
    attributes: int = 0,
    times: tuple[int, int] = (TIME, TIME),
    producer: int = -1,
    leader_epoch: int = 0,
    length: int | None = None,
    magic: int = 2,
    crc_xor: int = 0,
) -> bytes:
    """A batch of format 2. `payload`: records, or their bytes (then `count` is needed); `packed`: what stands in its place."""
    if not isinstance(payload, bytes):
        payload = list(payload)
        count = len(payload) if count is None else count
        payload = b"".join(payload)
    assert count is not None
    body = pack(codec, payload) if packed is None else packed
    last = max(count - 1, 0) if last is None else last
    covered = struct.pack(">Hi", attributes | codec, last)
    covered += struct.pack(">qqqhii", *times, producer, 0 if producer >= 0 else -1, 0 if producer >= 0 else -1, count) + body
    size = 9 + len(covered) if length is None else length
    return struct.pack(">qiibI", base, size, leader_epoch, magic, crc32c.crc32c(covered) ^ crc_xor) + covered


def control(
    kind: int = 0, *, base: int = 0, producer: int = 7, key: bytes | None = b"", attributes: int = CONTROL | TRANSACTIONAL
) -> bytes:
    """An end marker: kind 0 aborts, 1 commits. `key` is put in the place of the right one."""
    if key == b"":
        key = struct.pack(">hh", 0, kind)
    return batch([record(key=key, value=struct.pack(">hi", 0, 9))], base=base, attributes=attributes, producer=producer)


# ------------------------------------------------------------------------------------------------------------ formats 0 and 1


def message(
    offset: int,
    magic: int,
    value: bytes | None = b"v",
    *,
    key: bytes | None = b"k",
    attributes: int = 0,
    time: int = TIME,
    key_length: int | None = None,
    value_length: int | None = None,
) -> bytes:
    def field(data: bytes | None, length: int | None) -> bytes:
        claimed = (-1 if data is None else len(data)) if length is None else length
        return struct.pack(">i", claimed) + (data or b"")

    rest = struct.pack(">bB", magic, attributes) + (struct.pack(">q", time) if magic == 1 else b"")
    rest += field(key, key_length) + field(value, value_length)
    return struct.pack(">qiI", offset, len(rest) + 4, zlib.crc32(rest)) + rest


def wrapper(offset: int, magic: int, inner: bytes, *, codec: int = GZIP, attributes: int = 0, time: int = TIME) -> bytes:
    """A message whose value is a compressed set of messages."""
    return message(offset, magic, pack(codec, inner), key=None, attributes=attributes | codec, time=time)


# ------------------------------------------------------------------------------------------------------------ codecs


def pack(codec: int, data: bytes) -> bytes:
    """Compressed as producers do: LZ4 in independent blocks, Zstandard without a content size, Snappy in the Java framing."""
    if codec == GZIP:
        return gzip.compress(data, mtime=0)
    if codec == SNAPPY:
        return xerial(raw_snappy(data))
    if codec == LZ4:
        return bytes(lz4.frame.compress(data, block_linked=False, store_size=False))
    if codec == ZSTD:
        return bytes(zstandard.ZstdCompressor(write_content_size=False).compress(data))
    return data


def raw_snappy(data: bytes, size: int | None = None) -> bytes:
    """A raw block of literals, except that a run of one byte becomes copies. `size` is claimed instead of the truth."""
    out = bytearray(unsigned(len(data) if size is None else size))
    if len(data) > 64 and data == data[:1] * len(data):
        return bytes(out) + snappy_run(data[:1], len(data))
    for at in range(0, len(data), 60):
        piece = data[at : at + 60]
        out += bytes([len(piece) - 1 << 2]) + piece
    return bytes(out)


def snappy_run(byte: bytes, size: int) -> bytes:
    """The elements for `size` times one byte, as copies of 64 bytes from one byte back."""
    whole, rest = divmod(size - 1, 64)
    out = b"\0" + byte + b"\xfe\x01\0" * whole
    return out + (bytes([(rest - 1) << 2 | 2]) + b"\x01\0" if rest else b"")


XERIAL_HEADER = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


def xerial(*blocks: bytes) -> bytes:
    """The framing that Java puts around raw blocks."""
    return XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def lz4_block_of(data: bytes) -> bytes:
    """A stored block."""
    return struct.pack("<I", len(data) | 1 << 31) + data


def lz4_frame(*parts: bytes, flags: int = 0x60, sizes: int = 0x40, more: bytes = b"", check: int | None = None) -> bytes:
    """Mark, descriptor with its right checksum (or `check`), and the parts: blocks, end mark, content checksum."""
    descriptor = bytes([flags, sizes]) + more
    check = xxh32(descriptor) >> 8 & 0xFF if check is None else check
    return b"\x04\x22\x4d\x18" + descriptor + bytes([check]) + b"".join(parts)


def zstd_frame(
    data: bytes, *, descriptor: int = 0, header: bytes = b"\0", kind: int = 0, last: int = 1, tail: bytes = b""
) -> bytes:
    """A frame of one block: kind 0 is stored, 1 a run (of data's first byte, as long as data), 3 reserved."""
    size = (last | kind << 1 | len(data) << 3).to_bytes(3, "little")
    return b"\x28\xb5\x2f\xfd" + bytes([descriptor]) + header + size + (data[:1] if kind == 1 else data) + tail
