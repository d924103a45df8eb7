"""The codecs for the oracle: every frame, chunk and checksum walked by hand, output capped, nothing silently short.

gzip members (RFC 1952), Snappy raw blocks and the xerial framing, LZ4 frames, Zstandard frames (RFC 8878). Libraries are used
only for what lies innermost: one deflate stream, one LZ4 block, one Zstandard frame whose extent is already known.
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import NamedTuple

import lz4.block
import zstandard

__all__ = ["Broken", "Inflated", "TooLarge", "inflate", "unsnappy", "xxh32"]

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
XERIAL_MARK = b"\x82SNAPPY\0"
LZ4_MARK = b"\x04\x22\x4d\x18"
ZSTD_MARK = b"\x28\xb5\x2f\xfd"
MAX_WINDOW = 1 << 27


class Broken(Exception):  # noqa: N818
    """The payload does not decompress, or not to its end."""


class TooLarge(Exception):  # noqa: N818
    """It would grow beyond the limit."""


class Inflated(NamedTuple):
    """All the bytes, and how many bytes behind the compressed data were ignored."""

    data: bytes
    trailing: int = 0


def inflate(codec: int, payload: bytes, limit: int, *, checksum: bool = True, header_checksum: bool = True) -> Inflated:
    """Everything in `payload`, at most `limit` bytes of it.

    checksum: compare LZ4 content checksums (Java does not). header_checksum: False for magic 0, whose LZ4 frames carry a wrong
    one.
    """
    if codec == GZIP:
        return gunzip(payload, limit)
    if codec == SNAPPY:
        return snappy(payload, limit)
    if codec == LZ4:
        return unlz4(payload, limit, checksum=checksum, header_checksum=header_checksum)
    return unzstd(payload, limit)


def little(data: bytes, at: int, size: int) -> int:
    if at + size > len(data):
        raise Broken
    return int.from_bytes(data[at : at + size], "little")


def is_skippable(mark: bytes) -> bool:
    return len(mark) == 4 and 0x50 <= mark[0] <= 0x5F and mark[1:] == b"\x2a\x4d\x18"


# ------------------------------------------------------------------------------------------------------------ gzip


def gunzip(payload: bytes, limit: int) -> Inflated:
    out = bytearray()
    rest = payload
    while True:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            try:
                chunk = member.decompress(rest, limit - len(out) + 1)
            except zlib.error:
                raise Broken from None
            out += chunk
            if len(out) > limit:
                raise TooLarge
            if not chunk and not member.eof and not member.unconsumed_tail:
                raise Broken  # cut
            rest = member.unconsumed_tail
        rest = member.unused_data
        if rest[:2] != b"\x1f\x8b":
            return Inflated(bytes(out), len(rest))


# ------------------------------------------------------------------------------------------------------------ snappy


def preamble(block: bytes) -> tuple[int, int]:
    """The declared size of a raw block and where its elements begin."""
    size = 0
    for at in range(min(5, len(block))):
        size |= (block[at] & 0x7F) << 7 * at
        if block[at] < 0x80:
            if size >> 32:
                raise Broken
            return size, at + 1
    raise Broken


def unsnappy(block: bytes, limit: int) -> bytes:
    """One raw block."""
    size, at = preamble(block)
    if size > limit:
        raise TooLarge
    out = bytearray()
    while at < len(block):
        tag = block[at]
        at += 1
        if tag & 3 == 0:
            length = (tag >> 2) + 1
            if length > 60:
                width = length - 60
                length = little(block, at, width) + 1
                at += width
            if at + length > len(block):
                raise Broken
            out += block[at : at + length]
            at += length
        else:
            if tag & 3 == 1:
                length = (tag >> 2 & 7) + 4
                back = (tag >> 5) << 8 | little(block, at, 1)
                at += 1
            else:
                width = 2 if tag & 3 == 2 else 4
                length = (tag >> 2) + 1
                back = little(block, at, width)
                at += width
            if not 1 <= back <= len(out):
                raise Broken
            run = out[-back:]
            out += (run * (length // back + 1))[:length]
        if len(out) > size:
            raise Broken
    if len(out) != size:
        raise Broken
    return bytes(out)


def snappy(payload: bytes, limit: int) -> Inflated:
    if payload[:8] != XERIAL_MARK:
        return Inflated(unsnappy(payload, limit))
    blocks = []
    total = 0
    at = 0
    while len(payload) - at >= 4:
        if payload[at : at + 8] == XERIAL_MARK:
            at += 16  # the version fields are not looked at: some clients write them little-endian
            if at > len(payload):
                raise Broken
            continue
        (length,) = struct.unpack_from(">i", payload, at)
        at += 4
        if not 0 < length <= len(payload) - at:
            raise Broken
        blocks.append(payload[at : at + length])
        at += length
        total += preamble(blocks[-1])[0]
        if total > limit:
            raise TooLarge
    if not blocks:
        raise Broken
    return Inflated(b"".join(unsnappy(block, limit) for block in blocks), len(payload) - at)


# ------------------------------------------------------------------------------------------------------------ LZ4


def xxh32(data: bytes) -> int:
    """xxHash32 with seed 0, which LZ4 frames use for all their checksums."""
    p1, p2, p3, p4, p5, mask = 2654435761, 2246822519, 3266489917, 668265263, 374761393, 0xFFFFFFFF

    def left(x: int, n: int) -> int:
        return (x << n | x >> 32 - n) & mask

    at = 0
    if len(data) >= 16:
        lanes = [(p1 + p2) & mask, p2, 0, -p1 & mask]
        for at in range(0, len(data) - 15, 16):
            words = struct.unpack_from("<4I", data, at)
            lanes = [left((lane + word * p2) & mask, 13) * p1 & mask for lane, word in zip(lanes, words, strict=True)]
        at += 16
        h = sum(left(lane, n) for lane, n in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
    else:
        h = p5
    h = (h + len(data)) & mask
    while at + 4 <= len(data):
        h = left((h + struct.unpack_from("<I", data, at)[0] * p3) & mask, 17) * p4 & mask
        at += 4
    for byte in data[at:]:
        h = left((h + byte * p5) & mask, 11) * p1 & mask
    h = (h ^ h >> 15) * p2 & mask
    h = (h ^ h >> 13) * p3 & mask
    return h ^ h >> 16


def unlz4(payload: bytes, limit: int, *, checksum: bool, header_checksum: bool) -> Inflated:
    out = bytearray()
    at = 0
    frames = 0
    while True:
        mark = payload[at : at + 4]
        if is_skippable(mark):
            at += 8 + little(payload, at + 4, 4)
            if at > len(payload):
                raise Broken
        elif mark == LZ4_MARK:
            at = lz4_frame(payload, at, out, limit, checksum, header_checksum)
            frames += 1
        elif frames:
            return Inflated(bytes(out), len(payload) - at)
        else:
            raise Broken


def lz4_frame(payload: bytes, start: int, out: bytearray, limit: int, checksum: bool, header_checksum: bool) -> int:
    """Append one frame's content to `out` and return where the frame ends."""
    at = start + 4
    flags, blocks = little(payload, at, 1), little(payload, at + 1, 1)
    at += 2
    if flags >> 6 != 1 or flags & 3 or blocks & 0x8F:
        raise Broken  # version, reserved bits, or a dictionary
    if blocks >> 4 < 4:
        raise Broken
    block_size = 1 << 8 + 2 * (blocks >> 4)
    independent, block_checks, sized, content_check = (bool(flags & bit) for bit in (32, 16, 8, 4))
    declared = None
    if sized:
        declared = little(payload, at, 8)
        at += 8
    check = little(payload, at, 1)
    if header_checksum and check != xxh32(payload[start + 4 : at]) >> 8 & 0xFF:
        raise Broken
    at += 1
    begin = len(out)
    if declared is not None and begin + declared > limit:
        raise TooLarge
    while size := little(payload, at, 4):
        at += 4
        stored = bool(size >> 31)
        size &= 0x7FFFFFFF
        if size > block_size or at + size > len(payload):
            raise Broken
        block = payload[at : at + size]
        at += size
        if block_checks:
            if little(payload, at, 4) != xxh32(block):
                raise Broken
            at += 4
        if not stored:
            history = b"" if independent else bytes(out[max(begin, len(out) - 65536) :])
            try:
                block = lz4.block.decompress(block, uncompressed_size=block_size, dict=history)
            except lz4.block.LZ4BlockError:
                raise Broken from None
        out += block
        if len(out) > limit:
            raise TooLarge
    at += 4
    if declared is not None and len(out) - begin != declared:
        raise Broken
    if content_check:
        found = little(payload, at, 4)
        if checksum and found != xxh32(bytes(out[begin:])):
            raise Broken
        at += 4
    return at


# ------------------------------------------------------------------------------------------------------------ Zstandard


def unzstd(payload: bytes, limit: int) -> Inflated:
    if not payload:
        raise Broken
    out = bytearray()
    at = 0
    while at < len(payload):
        mark = payload[at : at + 4]
        if is_skippable(mark):
            at += 8 + little(payload, at + 4, 4)
            if at > len(payload):
                raise Broken
        elif mark == ZSTD_MARK:
            end = zstd_frame(payload, at, limit - len(out))
            out += unzstd_frame(payload[at:end], limit - len(out))
            at = end
        else:
            raise Broken
    return Inflated(bytes(out))


def zstd_frame(payload: bytes, start: int, room: int) -> int:
    """Where the frame ends. The size that it declares, if any, has to fit into `room`."""
    at = start + 4
    descriptor = little(payload, at, 1)
    at += 1
    single = descriptor >> 5 & 1
    if descriptor & 8:
        raise Broken  # reserved
    window = 0
    if not single:
        code = little(payload, at, 1)
        at += 1
        window = (1 << 10 + (code >> 3)) // 8 * (8 + (code & 7))
    width = (0, 1, 2, 4)[descriptor & 3]
    if little(payload, at, width):
        raise Broken  # a dictionary
    at += width
    width = (single, 2, 4, 8)[descriptor >> 6]
    declared = None
    if width:
        declared = little(payload, at, width) + (256 if width == 2 else 0)
        at += width
    if declared is not None and declared > room:
        raise TooLarge
    if single:
        window = declared or 0
    if window > MAX_WINDOW:
        raise Broken
    last = False
    while not last:
        block = little(payload, at, 3)
        at += 3
        last = bool(block & 1)
        if block >> 1 & 3 == 3:
            raise Broken  # reserved block type
        at += 1 if block >> 1 & 3 == 1 else block >> 3
    if descriptor & 4:
        at += 4
    if at > len(payload):
        raise Broken
    return at


def unzstd_frame(frame: bytes, limit: int) -> bytes:
    """One whole frame. Read until the library says that it ended, or a wrong checksum would pass unseen."""
    out = bytearray()
    with zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).stream_reader(io.BytesIO(frame)) as reader:
        try:
            while chunk := reader.read(limit - len(out) + 1):
                out += chunk
                if len(out) > limit:
                    raise TooLarge
        except zstandard.ZstdError:
            raise Broken from None
    return bytes(out)
