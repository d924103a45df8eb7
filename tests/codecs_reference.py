"""The codecs for the oracle: every frame, chunk and checksum walked by hand, output capped, nothing silently short.

gzip members (RFC 1952), Snappy raw blocks and the xerial framing, LZ4 frames, Zstandard frames (RFC 8878). Libraries are used
only for what lies innermost: one deflate stream, one LZ4 block, one Zstandard frame whose extent is already known. Releases of
these libraries differ in which damaged blocks they notice (libzstd 1.5.4 reads some that 1.5.7 refuses), so the oracle uses the
same one as the decoder beside it: `provider`.
"""

from __future__ import annotations

import ctypes
import io
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

import lz4.block
import zstandard

from fastfetch.kernels import codecs

__all__ = ["Broken", "Inflated", "TooLarge", "inflate", "provider", "unsnappy", "xxh32"]

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
XERIAL_MARK = b"\x82SNAPPY\0"
LZ4_MARK = b"\x04\x22\x4d\x18"
ZSTD_MARK = b"\x28\xb5\x2f\xfd"
MAX_WINDOW = 1 << 27


@contextmanager
def provider(name: Literal["auto", "system", "python"]) -> Iterator[None]:
    """Decode with "system" or "python" codecs inside the with block, oracle included."""
    codecs.use_provider(name)
    try:
        yield
    finally:
        codecs.use_provider("auto")


def shared_library(codec: str) -> ctypes.CDLL | None:
    """The machine's own library, if the decoder uses it at the moment."""
    return ctypes.CDLL(f"lib{codec}.so.1") if codecs.providers()[codec][0] == "system" else None


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


def skippable(payload: bytes, at: int) -> bool:
    """Is a skippable frame at `at`? LZ4 and Zstandard share them; how long it is stands behind the mark."""
    mark = payload[at : at + 4]
    return len(mark) == 4 and 0x50 <= mark[0] <= 0x5F and mark[1:] == b"\x2a\x4d\x18"


def behind_skippable(payload: bytes, at: int) -> int:
    at += 8 + little(payload, at + 4, 4)
    if at > len(payload):
        raise Broken
    return at


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
        if rest[:3] != b"\x1f\x8b\x08":
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
    if not blocks:
        raise Broken
    if total > limit:
        raise TooLarge
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


class Lz4Frame(NamedTuple):
    """What the walk over one frame found."""

    blocks: list[tuple[bytes, bool, bytes]]  # bytes, stored, checksum or b""
    block_size: int
    linked: bool
    descriptor: bytes
    descriptor_check: int
    declared: int | None
    content_check: int | None
    end: int


def unlz4(payload: bytes, limit: int, *, checksum: bool, header_checksum: bool) -> Inflated:
    frames: list[Lz4Frame] = []
    at = start = 0
    while True:
        try:
            while skippable(payload, at):
                at = behind_skippable(payload, at)
        except Broken:
            break  # after a frame it is only trailing bytes
        if payload[at : at + 4] != LZ4_MARK:
            break
        frames.append(lz4_frame(payload, at + 4))
        at = start = frames[-1].end
    if not frames:
        raise Broken
    # What is certain to come out, before anything does.
    least = sum(f.declared if f.declared is not None else sum(len(b) for b, stored, _ in f.blocks if stored) for f in frames)
    if least > limit:
        raise TooLarge
    out = b""
    for frame in frames:
        if header_checksum and frame.descriptor_check != xxh32(frame.descriptor) >> 8 & 0xFF:
            raise Broken
        content = lz4_content(frame, limit - len(out))
        if frame.declared is not None and len(content) != frame.declared:
            raise Broken
        if checksum and frame.content_check is not None and frame.content_check != xxh32(content):
            raise Broken
        out += content
    return Inflated(out, len(payload) - start)


def lz4_frame(payload: bytes, start: int) -> Lz4Frame:
    """Walk the frame whose descriptor is at `start`."""
    at = start
    flags, sizes = little(payload, at, 1), little(payload, at + 1, 1)
    at += 2
    if flags >> 6 != 1 or flags & 3 or sizes & 0x8F or sizes >> 4 < 4:
        raise Broken  # version, reserved bits, a dictionary, or a block size that does not exist
    block_size = 1 << 8 + 2 * (sizes >> 4)
    independent, block_checks, sized, content_check = (bool(flags & bit) for bit in (32, 16, 8, 4))
    declared = None
    if sized:
        declared = little(payload, at, 8)
        at += 8
    descriptor = payload[start:at]
    check = little(payload, at, 1)
    at += 1
    blocks = []
    while word := little(payload, at, 4):
        at += 4
        size = word & 0x7FFFFFFF
        end = at + size + 4 * block_checks
        if size > block_size or end > len(payload):
            raise Broken
        blocks.append((payload[at : at + size], bool(word >> 31), payload[at + size : end]))
        at = end
    at += 4
    found = None
    if content_check:
        found = little(payload, at, 4)
        at += 4
    return Lz4Frame(blocks, block_size, not independent, descriptor, check, declared, found, at)


def lz4_content(frame: Lz4Frame, limit: int) -> bytes:
    out = bytearray()
    for block, stored, check in frame.blocks:
        if check and int.from_bytes(check, "little") != xxh32(block):
            raise Broken
        if stored:
            out += block
        else:
            out += lz4_block(block, frame.block_size, bytes(out[-65536:]) if frame.linked else b"")
        if len(out) > limit:
            raise TooLarge
    return bytes(out)


def lz4_block(block: bytes, size: int, history: bytes) -> bytes:
    library = shared_library("lz4")
    if library is None:
        try:
            return bytes(lz4.block.decompress(block, uncompressed_size=size, dict=history))
        except lz4.block.LZ4BlockError:
            raise Broken from None
    out = ctypes.create_string_buffer(size)
    got = library.LZ4_decompress_safe_usingDict(block, out, len(block), size, history, len(history))
    if got < 0:
        raise Broken
    return out.raw[:got]


# ------------------------------------------------------------------------------------------------------------ Zstandard


class ZstdFrame(NamedTuple):
    """What the walk over one frame found. least, most: bounds of what comes out; both are the declared size if there is one."""

    data: bytes
    least: int
    most: int
    end: int


def unzstd(payload: bytes, limit: int) -> Inflated:
    frames: list[ZstdFrame] = []
    at = 0
    while at < len(payload):
        if skippable(payload, at):
            at = behind_skippable(payload, at)
        elif payload[at : at + 4] == ZSTD_MARK:
            frames.append(zstd_frame(payload, at))
            at = frames[-1].end
        else:
            raise Broken
    if not payload:
        raise Broken
    if sum(frame.least for frame in frames) > limit:
        raise TooLarge  # before anything is inflated
    out = b""
    for frame in frames:
        out += unzstd_frame(frame, limit - len(out))
    return Inflated(out)


def zstd_frame(payload: bytes, start: int) -> ZstdFrame:
    """Walk the frame at `start`."""
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
        if window > MAX_WINDOW:
            raise Broken
    width = (0, 1, 2, 4)[descriptor & 3]
    if little(payload, at, width):
        raise Broken  # a dictionary
    at += width
    width = (single, 2, 4, 8)[descriptor >> 6]
    declared = None
    if width:
        declared = little(payload, at, width) + (256 if width == 2 else 0)
        at += width
    block_max = min(1 << 17, (declared or 0) if single else window)
    least = most = 0
    last = False
    while not last:
        block = little(payload, at, 3)
        at += 3
        last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
        if kind == 3 or size > block_max:
            raise Broken  # reserved, or larger than a block of this frame may be
        least += size if kind < 2 else 0
        most += size if kind < 2 else block_max
        at += 1 if kind == 1 else size
    if descriptor & 4:
        at += 4
    if at > len(payload):
        raise Broken
    if declared is not None:
        least = most = declared
    return ZstdFrame(payload[start:at], least, most, at)


def unzstd_frame(frame: ZstdFrame, limit: int) -> bytes:
    library = shared_library("zstd")
    return stream_zstd(frame.data, limit) if library is None else one_shot_zstd(library, frame, limit)


def one_shot_zstd(library: ctypes.CDLL, frame: ZstdFrame, limit: int) -> bytes:
    library.ZSTD_decompress.restype = ctypes.c_size_t
    library.ZSTD_isError.argtypes = library.ZSTD_getErrorCode.argtypes = [ctypes.c_size_t]
    room = min(frame.most, limit)
    out = ctypes.create_string_buffer(room or 1)
    got = library.ZSTD_decompress(out, ctypes.c_size_t(room), frame.data, ctypes.c_size_t(len(frame.data)))
    if library.ZSTD_isError(got):
        full = library.ZSTD_getErrorCode(got) == 70  # dstSize_tooSmall
        raise TooLarge if full and room < frame.most else Broken
    return out.raw[:got]


def stream_zstd(frame: bytes, limit: int) -> bytes:
    """Read until the library says that the frame ended, or a wrong checksum would pass unseen."""
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
