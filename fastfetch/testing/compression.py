"""Compressors as Kafka's producers use them, in plain Python over the runtime dependencies.

Each function takes the bytes to compress and returns what stands after a batch's header. The defaults write what the Java
client writes (byte for byte where the libraries allow it); the options write the other legal forms, so that tests meet
them too.

Snappy is here in full: it has no runtime dependency, and the decoder under test must not be checked against itself.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import lz4.frame  # type: ignore[import-untyped]
import zstandard

__all__ = [
    "CODECS",
    "compress",
    "gzip_member",
    "inflate",
    "lz4_frame",
    "snappy_inflate",
    "snappy_java",
    "snappy_raw",
    "xxh32",
    "zstd_frame",
]

# Codec ids of the attributes field. "snappy-raw" is an accent, not a codec: librdkafka and Go clients write no Java framing.
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "snappy-raw": 2, "lz4": 3, "zstd": 4}

_XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_LZ4_MAGIC = b"\x04\x22\x4d\x18"


def gzip_member(data: bytes, *, level: int = 6) -> bytes:
    """One gzip member with the header Java writes: no name, no time, operating system unknown (255)."""
    deflate = zlib.compressobj(level, zlib.DEFLATED, -15)
    body = deflate.compress(data) + deflate.flush()
    return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + body + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def zstd_frame(data: bytes, *, level: int = 3, content_size: bool = False, checksum: bool = False, flush: bool = True) -> bytes:
    """One zstd frame; without a content size, as streaming writers (Java, librdkafka) make it.

    flush: end with an empty last block. Java's output stream is flushed before it is closed, and so leaves one.
    """
    if content_size:
        return zstandard.ZstdCompressor(level=level, write_content_size=True, write_checksum=checksum).compress(data)
    stream = zstandard.ZstdCompressor(level=level, write_content_size=False, write_checksum=checksum).compressobj()
    out = stream.compress(data)
    if flush:
        out += stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    return out + stream.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH)


def lz4_frame(
    data: bytes,
    *,
    level: int = 0,
    legacy_checksum: bool = False,
    content_size: bool = False,
    content_checksum: bool = False,
    block_checksum: bool = False,
    linked: bool = False,
    block_size_id: int = 4,
) -> bytes:
    """One lz4 frame. Java's: independent blocks of 64 KiB, no checksums, no size.

    legacy_checksum     the header checksum computed over magic + descriptor instead of the descriptor alone, as clients wrote
                        it for message format 0 (KAFKA-3160)
    block_size_id       4..7: 64 KiB, 256 KiB, 1 MiB, 4 MiB
    """
    frame: bytes = lz4.frame.compress(
        data,
        compression_level=level,
        block_size=block_size_id,
        block_linked=linked,
        store_size=content_size,
        content_checksum=content_checksum,
        block_checksum=block_checksum,
    )
    # The library declares a smaller block size where the data would fit into one; Java declares what it was set to.
    descriptor_end = 14 if content_size else 6
    descriptor = bytes([frame[4], block_size_id << 4]) + frame[6:descriptor_end]
    covered = _LZ4_MAGIC + descriptor if legacy_checksum else descriptor
    return _LZ4_MAGIC + descriptor + bytes([xxh32(covered) >> 8 & 0xFF]) + frame[descriptor_end + 1 :]


def xxh32(data: bytes, seed: int = 0) -> int:
    """XXH32 of `data`: the checksum of lz4 frames."""
    p1, p2, p3, p4, p5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    mask = 0xFFFFFFFF

    def rotate(value: int, bits: int) -> int:
        return (value << bits | value >> (32 - bits)) & mask

    at = 0
    if len(data) >= 16:
        lanes = [(seed + p1 + p2) & mask, (seed + p2) & mask, seed, (seed - p1) & mask]
        while at + 16 <= len(data):
            for lane, word in enumerate(struct.unpack_from("<4I", data, at)):
                lanes[lane] = rotate((lanes[lane] + word * p2) & mask, 13) * p1 & mask
            at += 16
        total = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
    else:
        total = (seed + p5) & mask
    total = (total + len(data)) & mask
    while at + 4 <= len(data):
        (word,) = struct.unpack_from("<I", data, at)
        total = rotate((total + word * p3) & mask, 17) * p4 & mask
        at += 4
    for byte in data[at:]:
        total = rotate((total + byte * p5) & mask, 11) * p1 & mask
    total = (total ^ total >> 15) * p2 & mask
    total = (total ^ total >> 13) * p3 & mask
    return total ^ total >> 16


def snappy_raw(data: bytes, *, literal_only: bool = False) -> bytes:
    """A raw snappy block: the varint of the uncompressed length, then literals and copies.

    Greedy: the last place where the same four bytes stood is tried, within the current 64 KiB block (so that an offset always
    fits in two bytes). Slow next to the C library, and quick enough for test data: about 2 MB/s on JSON.
    """
    out = bytearray(_unsigned_varint(len(data)))
    if literal_only:
        _literal(out, data)
        return bytes(out)
    for start in range(0, len(data), 1 << 16):
        _snappy_block(out, data[start : start + (1 << 16)])
    return bytes(out)


def snappy_java(data: bytes, *, chunk_size: int = 32 << 10, literal_only: bool = False, header: bytes = _XERIAL) -> bytes:
    """The framing of Java's snappy stream: a 16-byte header, then chunks of int32 length + raw snappy."""
    out = [header]
    for at in range(0, len(data), chunk_size):
        raw = snappy_raw(data[at : at + chunk_size], literal_only=literal_only)
        out.append(struct.pack(">i", len(raw)) + raw)
    return b"".join(out)


def snappy_inflate(data: bytes) -> bytes:
    """Inflate raw or Java-framed snappy. For data of this module's own making: it trusts its input."""
    if not data.startswith(_XERIAL[:8]):
        return _inflate_block(data)
    out, at = [], 16
    while at + 4 <= len(data):
        (size,) = struct.unpack_from(">i", data, at)
        out.append(_inflate_block(data[at + 4 : at + 4 + size]))
        at += 4 + size
    return b"".join(out)


def compress(codec: str, data: bytes, *, legacy_checksum: bool = False) -> bytes:
    """Compress as a Java producer does; `codec` is a key of CODECS."""
    if codec == "lz4":
        return lz4_frame(data, legacy_checksum=legacy_checksum)
    return _COMPRESSORS[codec](data)


def inflate(codec: int, data: bytes) -> bytes:
    """The inverse of `compress`, by codec id; for data of this package's own making."""
    if codec == 3:
        # Message format 0 has a wrong header checksum, which the library refuses: write the right one.
        descriptor_end = 14 if data[4] & 0x08 else 6
        checksum = bytes([xxh32(data[4:descriptor_end]) >> 8 & 0xFF])
        return bytes(lz4.frame.decompress(data[:descriptor_end] + checksum + data[descriptor_end + 1 :]))
    return _INFLATORS[codec](data)


def _unsigned_varint(n: int) -> bytes:
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def _literal(out: bytearray, data: bytes) -> None:
    n = len(data) - 1
    if n < 0:
        return
    if n < 60:
        out.append(n << 2)
    else:
        width = (n.bit_length() + 7) // 8
        out.append((59 + width) << 2)
        out += n.to_bytes(width, "little")
    out += data


def _copy(out: bytearray, offset: int, length: int) -> None:
    # 64 at a time, but never leaving fewer than 4: the shortest copy with a one-byte offset, and no copy is shorter than it.
    while length >= 68:
        out += struct.pack("<BH", 63 << 2 | 2, offset)
        length -= 64
    if length > 64:
        out += struct.pack("<BH", 59 << 2 | 2, offset)
        length -= 60
    if 4 <= length <= 11 and offset < 2048:
        out.append((offset >> 8) << 5 | (length - 4) << 2 | 1)
        out.append(offset & 0xFF)
    else:
        out += struct.pack("<BH", (length - 1) << 2 | 2, offset)


def _snappy_block(out: bytearray, data: bytes) -> None:
    seen: dict[bytes, int] = {}
    size = len(data)
    at = pending = 0
    misses = 32
    while at + 4 <= size:
        four = data[at : at + 4]
        before = seen.get(four)
        seen[four] = at
        if before is None:
            # Steps grow where nothing matches, so that random bytes cost little.
            at += misses >> 5
            misses += 1
            continue
        misses = 32
        if at > pending:
            _literal(out, data[pending:at])
        length = 4
        while data[before + length : before + length + 16] == data[at + length : at + length + 16] and at + length + 16 <= size:
            length += 16
        while at + length < size and data[before + length] == data[at + length]:
            length += 1
        _copy(out, at - before, length)
        at += length
        pending = at
    _literal(out, data[pending:])


def _inflate_block(data: bytes) -> bytes:
    size = shift = at = 0
    while True:
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    out = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        kind, n = tag & 3, tag >> 2
        if kind == 0:
            if n >= 60:
                width = n - 59
                n = int.from_bytes(data[at : at + width], "little")
                at += width
            out += data[at : at + n + 1]
            at += n + 1
            continue
        if kind == 1:
            length, offset = (n & 7) + 4, (n >> 3) << 8 | data[at]
            at += 1
        else:
            width = 2 if kind == 2 else 4
            length, offset = n + 1, int.from_bytes(data[at : at + width], "little")
            at += width
        # A copy may reach into what it writes: repeat the last `offset` bytes.
        start = len(out) - offset
        out += (bytes(out[start : start + length]) * (length // offset + 1))[:length]
    if len(out) != size:
        raise ValueError(f"snappy block says {size} bytes and holds {len(out)}")
    return bytes(out)


def _inflate_gzip(data: bytes) -> bytes:
    return zlib.decompress(data, 31)


def _inflate_zstd(data: bytes) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as stream:
        return bytes(stream.read())


def _same(data: bytes) -> bytes:
    return data


_COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "none": _same,
    "gzip": gzip_member,
    "snappy": snappy_java,
    "snappy-raw": snappy_raw,
    "zstd": zstd_frame,
}
_INFLATORS: dict[int, Callable[[bytes], bytes]] = {0: _same, 1: _inflate_gzip, 2: snappy_inflate, 4: _inflate_zstd}
