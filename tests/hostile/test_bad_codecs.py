"""Payloads that do not decompress, or to too much: one test per check. Each runs under both codec providers."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator

import pytest
import zstandard
from building import (
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    batch,
    lz4_block_of,
    lz4_frame,
    pack,
    raw_snappy,
    record,
    records,
    unsigned,
    xerial,
    zstd_frame,
)  # fmt: skip
from codecs_reference import xxh32
from exact import Guarded
from sandwich import BEFORE, DATA, accepted, bad, check, decoded, words

import fastfetch
from fastfetch.kernels import codecs

END = struct.pack("<I", 0)


@pytest.fixture(params=["system", "python"], autouse=True)
def provider(request: pytest.FixtureRequest) -> Iterator[str]:
    """gzip, LZ4 and Zstandard come from the machine's libraries or from Python packages; what they accept must not differ."""
    codecs.use_provider(request.param)
    if any(name == "missing" for name, _ in codecs.providers().values()):
        codecs.use_provider("auto")
        pytest.skip("this machine lacks one of the shared libraries")
    yield request.param
    codecs.use_provider("auto")


# --------------------------------------------------------------------------------------- rows 35, 37 .. 43: codecs


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_does_not_exist(codec: int):
    assert check(bad(codec=codec, packed=DATA), "codec", skip=4).codec == codec


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_payload_cut_at_any_byte_or_rubbish(codec: int):
    """Never a short result, and never a byte read behind the end: it lies at a guard page."""
    guarded = Guarded(1 << 16)
    for packed in (pack(codec, DATA), pack(codec, records(50) + bytes(1000))):
        for cut in range(len(packed)):
            offsets, d = decoded(guarded(bad(codec=codec, packed=packed[:cut])), position=2)
            assert (offsets, d.error.kind, d.error.next_offset) == ([], "inflate", 4), cut
    check(bad(codec=codec, packed=b"certainly not compressed data"), "inflate", skip=4)
    check(bad(codec=codec, packed=b"\xff" * 40), "inflate", skip=4)


GZ = gzip.compress(DATA, mtime=0)


@pytest.mark.parametrize(
    "packed",
    [
        b"\x1f\x8b\x09" + GZ[3:], b"\x1f\x8c" + GZ[2:], GZ[:3] + b"\x80" + GZ[4:], GZ[:-8] + bytes(4) + GZ[-4:],
        GZ[:-4] + bytes(4), GZ[:-1], GZ[:-8], GZ[:10], GZ[:10] + b"\x07" + bytes(20), GZ + GZ[:-1], GZ + b"\x1f\x8b\x08",
    ],
    ids=words("""method mark reserved-flag crc size cut-trailer no-trailer only-header block-type second-member-cut
        second-member-only-mark"""),
)  # fmt: skip
def test_gzip_that_is_none(packed: bytes):
    check(bad(codec=GZIP, packed=packed), "inflate", skip=4)


@pytest.mark.parametrize("trailing", [b"GARBAGE", b"\0", b"\x1f", b"\x1f\x8b", b"\x1f\x8b\x07"])
def test_bytes_behind_gzip_are_ignored_and_counted(trailing: bytes):
    assert accepted(bad(codec=GZIP, packed=GZ + trailing)).stats.trailing_bytes == len(trailing)


def test_gzip_members_and_optional_fields_are_read():
    accepted(bad(codec=GZIP, packed=gzip.compress(b"") + GZ))
    accepted(bad(codec=GZIP, packed=gzip.compress(DATA[:9]) + gzip.compress(DATA[9:])))
    accepted(bad(codec=GZIP, packed=GZ[:3] + b"\x08" + GZ[4:10] + b"name\0" + GZ[10:]))
    accepted(bad(codec=GZIP, packed=GZ[:3] + b"\x04" + GZ[4:10] + b"\x03\0abc" + GZ[10:]))


def literals(data: bytes) -> bytes:
    return raw_snappy(data)[len(unsigned(len(data))) :]


SIZE = unsigned(len(DATA))
FIRST = b"\0" + DATA[:1]


@pytest.mark.parametrize(
    "packed",
    [
        raw_snappy(DATA, len(DATA) + 1), raw_snappy(DATA, len(DATA) - 1), raw_snappy(DATA) + b"\0", raw_snappy(DATA)[:-1],
        SIZE + FIRST + b"\x11\x00" + literals(DATA), SIZE + FIRST + b"\x11\x02" + literals(DATA),
        SIZE + FIRST + b"\xfe\x02\x00" + literals(DATA), SIZE + FIRST + b"\xff\x01\0\0\x80" + literals(DATA),
        SIZE + b"\xec" + DATA[:20], unsigned(16) + b"\x3cabc", SIZE + literals(DATA[:-16]) + b"\x3cabc",
        SIZE + b"\xf0", SIZE + b"\xfc\xff\xff\xff\xff" + DATA, SIZE + b"\xf4\xff\xff" + DATA, SIZE,
        b"\x80\x80\x80\x80\x80\x01" + literals(DATA), b"\xff\xff\xff\xff\x10" + literals(DATA), b"\x80",
    ],
    ids=words("""declares-more declares-less trailing cut copy-offset-0 copy-before-start copy-2-before-start
        copy-4-before-start literal-past-end short-literal-past-end last-literal-past-end literal-length-cut
        literal-4-GiB literal-64-KiB no-elements six-byte-size size-beyond-32-bits size-cut"""),
)  # fmt: skip
def test_raw_snappy_that_is_none(packed: bytes):
    check(bad(codec=SNAPPY, packed=packed), "inflate", skip=4)
    check(bad(codec=SNAPPY, packed=xerial(packed)), "inflate", skip=4)


def test_snappy_copies_of_all_shapes():
    """Overlapping copies repeat a pattern: offsets from 1 to beyond a vector register, lengths 1 to 64, each kind of tag."""
    for back in (1, 2, 3, 7, 8, 15, 16, 17, 31, 63, 64, 65, 200):
        for length in (1, 2, 4, 11, 12, 15, 16, 17, 33, 63, 64):
            for tail in (0, 1, 15, 16, 70):
                seed = bytes(range(256))[:back]
                text = (seed * 70)[: back + length] + b"t" * tail
                head = record(value=text)[: -1 - len(text)]
                payload = head + text + b"\0"
                lead = head + seed
                elements = [literals(lead), bytes([length - 1 << 2 | 2]) + struct.pack("<H", back)]
                other = [literals(lead), bytes([length - 1 << 2 | 3]) + struct.pack("<I", back)]
                for body in (elements, other):
                    block = unsigned(len(payload)) + b"".join(body) + literals(b"t" * tail + b"\0")
                    d = decoded(batch(b"", 1, codec=SNAPPY, packed=block))[1]
                    assert d.error is None, (back, length, tail)
                    assert d.blocks[0].values() == [text]


CHUNK = raw_snappy(DATA)
HALVES = (raw_snappy(DATA[:9]), raw_snappy(DATA[9:]))


@pytest.mark.parametrize(
    "packed",
    [
        xerial(CHUNK) + struct.pack(">i", -5) + CHUNK, xerial(CHUNK) + struct.pack(">i", -(2**31)), xerial(CHUNK) + bytes(4),
        xerial(HALVES[0], b"", HALVES[1]), xerial(HALVES[0]) + struct.pack(">i", len(HALVES[1]) + 1) + HALVES[1],
        xerial(HALVES[0]) + struct.pack(">i", 2**31 - 1) + HALVES[1], xerial(), xerial()[:8], xerial()[:12],
        xerial(CHUNK) + xerial()[:12], xerial(CHUNK[:-1]), xerial(b"not snapp", CHUNK),
    ],
    ids=words("""length-negative length-min length-0-last length-0 length-beyond length-max no-chunk only-mark header-cut
        second-header-cut chunk-cut chunk-rubbish"""),
)  # fmt: skip
def test_framed_snappy_that_is_none(packed: bytes):
    check(bad(codec=SNAPPY, packed=packed), "inflate", skip=4)


def test_framed_snappy_in_all_its_dialects():
    for versions in (struct.pack(">ii", 0, 1), struct.pack(">ii", 7, 7), struct.pack("<ii", 1, 1)):
        accepted(bad(codec=SNAPPY, packed=b"\x82SNAPPY\0" + versions + xerial(*HALVES)[16:]))
    accepted(bad(codec=SNAPPY, packed=xerial(HALVES[0]) + xerial(HALVES[1])))
    accepted(bad(codec=SNAPPY, packed=xerial(HALVES[0], b"\0", HALVES[1])))  # a chunk of nothing
    for stray in range(1, 4):
        assert accepted(bad(codec=SNAPPY, packed=xerial(CHUNK) + bytes(stray))).stats.trailing_bytes == stray


BLOCK = lz4_block_of(DATA)
L = struct.pack
SUM = L("<I", xxh32(DATA))
WRONG = L("<I", xxh32(DATA) ^ 1)


@pytest.mark.parametrize(
    "packed",
    [
        b"\x04\x22\x4d\x19" + lz4_frame(BLOCK, END)[4:], lz4_frame(BLOCK, END, flags=0x20), lz4_frame(BLOCK, END, flags=0xA0),
        lz4_frame(BLOCK, END, flags=0x62), lz4_frame(BLOCK, END, flags=0x61, more=L("<I", 7)), lz4_frame(BLOCK, END, sizes=0x00),
        lz4_frame(BLOCK, END, sizes=0x30), lz4_frame(BLOCK, END, sizes=0x4F), lz4_frame(BLOCK, END, sizes=0xC0),
        lz4_frame(lz4_block_of(bytes(65537)), END), lz4_frame(L("<I", 1 << 31 | len(DATA) + 9), DATA, END),
        lz4_frame(L("<I", 22), b"certainly not lz4 data", END), lz4_frame(BLOCK, WRONG, END, flags=0x70),
        lz4_frame(BLOCK, END, WRONG, flags=0x64), lz4_frame(BLOCK, END, flags=0x64), lz4_frame(BLOCK),
        lz4_frame(BLOCK, END, flags=0x68, more=L("<Q", len(DATA) + 1)),
        lz4_frame(BLOCK, END, flags=0x68, more=L("<Q", len(DATA) - 1)),
        lz4_frame(BLOCK, END, check=0), lz4_frame(BLOCK, END) + lz4_frame(BLOCK, END)[:-1], L("<II", 0x184D2A50, 5) + b"skip",
        lz4_frame(), b"\x04\x22\x4d\x18", b"\x02\x21\x4c\x18" + BLOCK,
    ],
    ids=words("""mark version-0 version-2 reserved-flag dictionary block-id-0 block-id-3 reserved-size-bits
        reserved-size-bit-7 block-too-large block-past-end block-rubbish block-checksum content-checksum
        content-checksum-missing no-end-mark size-above size-below header-checksum second-frame-cut
        only-skippable-cut no-block only-mark old-frame"""),
)  # fmt: skip
def test_lz4_that_is_none(packed: bytes):
    check(bad(codec=LZ4, packed=packed), "inflate", skip=4)


def test_lz4_in_all_its_shapes():
    first, second = lz4_block_of(DATA[:9]), lz4_block_of(DATA[9:])
    accepted(bad(codec=LZ4, packed=lz4_frame(first, second, END)))
    accepted(bad(codec=LZ4, packed=lz4_frame(first, lz4_block_of(b""), second, END)))
    accepted(bad(codec=LZ4, packed=lz4_frame(first, END) + lz4_frame(second, END)))
    accepted(bad(codec=LZ4, packed=L("<II", 0x184D2A53, 4) + b"skip" + lz4_frame(BLOCK, END)))
    accepted(bad(codec=LZ4, packed=lz4_frame(BLOCK, END, flags=0x40)))
    accepted(bad(codec=LZ4, packed=lz4_frame(BLOCK, SUM, END, SUM, flags=0x7C, more=L("<Q", len(DATA)), sizes=0x70)))
    assert accepted(bad(codec=LZ4, packed=lz4_frame(BLOCK, END) + b"GARBAGE")).stats.trailing_bytes == 7
    accepted(bad(codec=LZ4, packed=lz4_frame(BLOCK, END, WRONG, flags=0x64)), lz4_content_checksum=False)
    check(bad(codec=LZ4, packed=lz4_frame(BLOCK, END, flags=0x64)), "inflate", skip=4, lz4_content_checksum=False)


def test_a_linked_block_reaches_back_no_further_than_its_frame():
    """A match before the start of the frame would show what lies in the buffer: another batch's records."""
    match = b"\x10" + DATA[:1] + L("<H", 9) + b"\x50" + b"abcde"
    secret = batch(records(50), 50, codec=LZ4, base=2)
    for flags in (0x40, 0x60):
        packed = lz4_frame(L("<I", len(match)), match, END, flags=flags)
        offsets, d = decoded(BEFORE + secret + batch(b"", 1, base=52, codec=LZ4, packed=packed))
        assert (len(offsets), d.error.kind) == (52, "inflate")
        two = lz4_frame(lz4_block_of(DATA), END) + packed  # nor into the frame before
        assert decoded(bad(codec=LZ4, packed=two))[1].error.kind == "inflate"


Z = zstandard.ZstdCompressor(write_content_size=False).compress(DATA)
W = b"\0"  # a window of 1 KiB


@pytest.mark.parametrize(
    "packed",
    [
        b"\x27" + Z[1:], Z[:4], zstd_frame(DATA, last=0), zstd_frame(DATA, descriptor=8), zstd_frame(DATA, kind=3),
        zstd_frame(bytes(2000)), zstd_frame(bytes(2000), kind=1), zstd_frame(DATA, descriptor=4, tail=L("<I", 1)),
        zstd_frame(DATA, descriptor=4), zstd_frame(DATA, descriptor=0xA0, header=L("<I", len(DATA) + 1)),
        zstd_frame(DATA, descriptor=0xA0, header=L("<I", len(DATA) - 1)), zstd_frame(DATA, descriptor=1, header=W + b"\x07"),
        zstd_frame(DATA, header=b"\x89"), zstd_frame(DATA, header=b"\x90"), zstd_frame(DATA, header=b"\xa8"),
        zstd_frame(DATA, header=b"\xf8"), Z + b"GARBAGE", Z + b"\1\2\3", L("<II", 0x184D2A50, 2**32 - 1) + Z, Z + Z[:-1],
        L("<II", 0x184D2A50, 4) + b"ski",
    ],
    ids=words("""mark only-mark no-last-block reserved-bit reserved-block block-above-window run-above-window checksum
        checksum-missing size-above size-below dictionary window-above-2^27 window-2^28 window-2^31 window-2^41
        trailing trailing-3 skippable-4-GiB second-frame-cut skippable-cut"""),
)  # fmt: skip
def test_zstd_that_is_none(packed: bytes):
    check(bad(codec=ZSTD, packed=packed), "inflate", skip=4)


def test_zstd_in_all_its_shapes():
    skippable = L("<II", 0x184D2A5F, 4) + b"skip"
    for packed in (
        zstd_frame(DATA), zstd_frame(DATA, descriptor=16), zstd_frame(DATA, header=b"\x88"), zstd_frame(DATA, header=b"\x68"),
        zstd_frame(DATA, descriptor=0xA0, header=L("<I", len(DATA))), zstd_frame(DATA, descriptor=1, header=W + b"\0"),
        zstd_frame(DATA[:9]) + zstd_frame(DATA[9:]), zstd_frame(b"") + Z, skippable + Z, Z + skippable + skippable,
        zstandard.ZstdCompressor(write_checksum=True).compress(DATA),
    ):  # fmt: skip
        accepted(bad(codec=ZSTD, packed=packed))


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_an_error_leaves_nothing_behind(codec: int):
    """Contexts are reused: after a broken payload the next one is read as if nothing had been."""
    whole = pack(codec, DATA)
    broken = [whole[: len(whole) // 2], whole[:-1], b"\0" * 40, pack(codec, bytes(1000))[:-3]]
    for packed in broken * 3:
        assert fastfetch.decode(bad(codec=codec, packed=packed)).error is not None
        accepted(bad(codec=codec))


# --------------------------------------------------------------------------------------- rows 39, 40, 43, 44: too large

BIG = record(0, value=bytes(100_000)) + record(1)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_the_limit_is_exact(codec: int):
    entry = bad(BIG, 2, codec=codec)
    accepted(entry, max_batch_bytes=len(BIG))
    error = check(entry, "too_large", skip=4, max_batch_bytes=len(BIG) - 1)
    assert error.limit == len(BIG) - 1
    check(entry, "too_large", skip=4, max_batch_bytes=1)


def test_the_limit_does_not_concern_uncompressed_batches():
    accepted(bad(BIG, 2), max_batch_bytes=1)


@pytest.mark.parametrize(
    ("codec", "packed", "declared"),
    [
        (SNAPPY, unsigned(1 << 30) + b"\0a", 1 << 30), (SNAPPY, unsigned(2**32 - 1) + b"\0a", 2**32 - 1),
        (SNAPPY, xerial(*[unsigned(40 << 20) + b"\0a"] * 2), 80 << 20),
        (LZ4, lz4_frame(BLOCK, END, flags=0x68, more=L("<Q", 1 << 62)), 1 << 62),
        (ZSTD, zstd_frame(DATA, descriptor=0xC0, header=W + L("<Q", 8 << 30)), 8 << 30),
        (ZSTD, zstd_frame(DATA, descriptor=0xE0, header=L("<Q", 2**64 - 1)), 2**63 - 1),
        (ZSTD, zstd_frame(DATA, descriptor=0xA0, header=L("<I", 2**32 - 1)), 2**32 - 1),
    ],
    ids=words("snappy-1-GiB snappy-4-GiB xerial-sum lz4-2^62 zstd-8-GiB zstd-2^64 zstd-4-GiB"),
)  # fmt: skip
def test_a_declared_size_is_compared_before_anything_is_allocated(codec: int, packed: bytes, declared: int):
    error = check(bad(codec=codec, packed=packed), "too_large", skip=4)
    assert (error.limit, error.declared) == (64 << 20, declared)


def test_a_declared_size_that_is_a_lie_within_the_limit():
    """32 MiB claimed by 60 bytes."""
    for codec, packed in (
        (SNAPPY, unsigned(32 << 20) + literals(DATA)),
        (LZ4, lz4_frame(BLOCK, END, flags=0x68, more=L("<Q", 32 << 20))),
        (ZSTD, zstd_frame(DATA, descriptor=0xA0, header=L("<I", 32 << 20))),
    ):
        check(bad(codec=codec, packed=packed), "inflate", skip=4)


def test_very_many_tiny_records_are_read():
    n = 30_000
    payload = b"".join(record(i, key=None, value=None) for i in range(n))
    offsets, d = decoded(batch(payload, n, codec=ZSTD))
    assert (offsets == list(range(n)), d.next_offset, len(d)) == (True, n, n)
