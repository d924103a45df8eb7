"""The encoder against bytes that the Java client wrote, and against decoders that are not ours."""

from __future__ import annotations

import json
import random
import struct
import zlib
from typing import Any

import cramjam
import crc32c
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfetch.testing import Row, compression, control_batch, encode_batch, message_set, patch, rebase, repair_crc
from fastfetch.testing.batches import HEADER, encode_message, encode_record, entries, varint
from tests.testing.peers import aiokafka, kafka

ROWS = [Row(b"k", b"v1", 1000), Row(None, b"v2", 1001), Row(b"k3", None, 1002)]

# Written by the classes of kafka-clients 4.1.0: ROWS at offsets 5, 6, 7; then an empty batch and two markers.
GOLDEN = {
    "abort": (
        "00000000000000070000004200000000026c5b1cf600300000000000000000000004d200000000000004d2000000000000002a0003ffffff"
        "ff000000012000000008000000000c00000000000900"
    ),
    "commit": (
        "00000000000000070000004200000000029865cabe00300000000000000000000004d200000000000004d2000000000000002a0003ffffff"
        "ff000000012000000008000000010c00000000000900"
    ),
    "v2 none": (
        "00000000000000050000004dffffffff02fc0bf96400000000000200000000000003e800000000000003eaffffffffffffffffffffffffff"
        "ff0000000312000000026b0476310010000202010476320010000404046b330100"
    ),
    "v2 gzip": (
        "00000000000000050000005fffffffff0274aa1f2400010000000200000000000003e800000000000003eaffffffffffffffffffffffffff"
        "ff000000031f8b08000000000000ff1362606060ca6629336410606062626429330232585858b28d19190029decd2f1c000000"
    ),
    "v2 snappy": (
        "000000000000000500000063ffffffff02972b0e9f00020000000200000000000003e800000000000003eaffffffffffffffffffffffffff"
        "ff0000000382534e415050590000000001000000010000001e1c6c12000000026b0476310010000202010476320010000404046b330100"
    ),
    "v2 lz4": (
        "00000000000000050000005cffffffff02af860fb000030000000200000000000003e800000000000003eaffffffffffffffffffffffffff"
        "ff0000000304224d186040821c00008012000000026b0476310010000202010476320010000404046b33010000000000"
    ),
    "v2 zstd": (
        "000000000000000500000059ffffffff024d60b2b600040000000200000000000003e800000000000003eaffffffffffffffffffffffffff"
        "ff0000000328b52ffd0058e0000012000000026b0476310010000202010476320010000404046b330100010000"
    ),
    "v1 none": (
        "00000000000000050000001943a94d68010000000000000003e8000000016b000000027631000000000000000600000018ef17230e010000"
        "000000000003e9ffffffff0000000276320000000000000007000000181520851d010000000000000003ea000000026b33ffffffff"
    ),
    "v1 gzip": (
        "000000000000000700000063c65e7cb5010100000000000003eaffffffff0000004d1f8b08000000000000ff6360800349e795be198c500e"
        "f30b20c1980d2498ca0ca162203989f7e2ca7c70452fff0301588d11548809a44654a15516aee6154834db18a41200b9dc46f86d000000"
    ),
    "v0 none": (
        "000000000000000500000011615054270000000000016b000000027631000000000000000600000010d5960a780000ffffffff0000000276"
        "32000000000000000700000010b643ca6a0000000000026b33ffffffff"
    ),
    "v2 empty": (
        "000000000000000a0000003100000004027c425c91000000000009ffffffffffffffff000000000000022b000000000000002a0003000000"
        "0000000000"
    ),
}

READERS = {"kafka-python": kafka.record.MemoryRecords, "aiokafka": aiokafka.record.MemoryRecords}


def read(reader: str, data: bytes) -> list[tuple[Any, ...]]:
    """(offset, timestamp, key, value, headers) of every record, as another client decodes them."""
    out = []
    for entry in entries(data):
        # One at a time: aiokafka takes the magic of the first batch for that of all.
        records = READERS[reader](data[entry.start : entry.end])
        while records.has_next():
            batch = records.next_batch()
            assert batch.validate_crc()
            out += [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch]
    return out


def readable(reader: str, magic: int, codec: str) -> bool:
    """Zstd exists in format 2 only, neither reader takes the lz4 of format 0, and kafka-python lacks a snappy library here."""
    return not (
        (magic < 2 and codec == "zstd") or (magic == 0 and codec == "lz4") or (reader == "kafka-python" and "snappy" in codec)
    )


FORMATS = [(r, m, c) for r in READERS for m in (0, 1, 2) for c in compression.CODECS if readable(r, m, c)]


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_bytes_are_those_of_the_java_client(name: str) -> None:
    if name in ("abort", "commit"):
        made = control_batch(name, producer_id=42, producer_epoch=3, base_offset=7, timestamp=1234, coordinator_epoch=9)
    elif name == "v2 empty":
        made = encode_batch(
            base_offset=10,
            last_offset_delta=9,
            leader_epoch=4,
            producer_id=42,
            producer_epoch=3,
            base_sequence=0,
            max_timestamp=555,
        )
    else:
        made = encode_batch(ROWS, base_offset=5, magic=int(name[1]), codec=name.split()[1])
    assert made.hex() == GOLDEN[name]


@pytest.mark.parametrize(("reader", "magic", "codec"), FORMATS)
def test_other_clients_read_what_was_encoded(reader: str, magic: int, codec: str) -> None:
    headers = [("h", b"x"), ("h", None), ("", b"")] if magic == 2 else []
    rows = [Row(b"key%d" % i, b"value %d " % i * (i % 50), 1_600_000_000_000 + i * i, headers) for i in range(500)]
    rows += [Row(None, b""), Row(b"", None)]
    if magic < 2:
        rows = [Row(*row[:3]) for row in rows]
    times = [
        None if magic == 0 else 1_700_000_000_000 + i if row.timestamp is None else row.timestamp for i, row in enumerate(rows)
    ]
    expected = [(100 + i, times[i], row.key, row.value, list(row.headers)) for i, row in enumerate(rows)]
    assert read(reader, encode_batch(rows, base_offset=100, magic=magic, codec=codec)) == expected


@pytest.mark.parametrize("reader", READERS)
def test_kinds_of_time(reader: str) -> None:
    assert [r[1] for r in read(reader, encode_batch(ROWS, log_append_time=77))] == [77, 77, 77]
    assert [r[1] for r in read(reader, message_set(ROWS, codec="gzip", log_append_time=77))] == [77, 77, 77]
    assert [r[1] for r in read(reader, message_set(ROWS, log_append_time=77))] == [77, 77, 77]
    moved = encode_batch(ROWS, delete_horizon=5000)
    assert struct.unpack_from(">q", moved, HEADER["base_timestamp"][0]) == (5000,)
    assert [r[1] for r in read(reader, moved)] == [1000, 1001, 1002]
    assert [r[1] for r in read(reader, encode_batch([b"", b""], timestamp=9))] == [9, 10]
    assert [r[1] for r in read(reader, encode_batch([(None, b"", -(2**40)), (None, b"", 2**40)]))] == [-(2**40), 2**40]


@pytest.mark.parametrize("reader", READERS)
def test_gaps_of_compaction(reader: str) -> None:
    batch = encode_batch(ROWS, base_offset=10, deltas=[1, 4, 5], last_offset_delta=9)
    assert [r[0] for r in read(reader, batch)] == [11, 14, 15]
    assert [(e.base_offset, e.last_offset) for e in entries(batch)] == [(10, 19)]
    assert [r[0] for r in read(reader, message_set(ROWS, base_offset=10, deltas=[1, 4, 5], codec="gzip"))] == [11, 14, 15]
    assert [r[0] for r in read(reader, message_set(ROWS, base_offset=10, deltas=[1, 4, 5]))] == [11, 14, 15]


def test_header_fields_stand_where_the_format_says() -> None:
    batch = encode_batch(
        [b"x"] * 3,
        base_offset=1,
        producer_id=2,
        producer_epoch=3,
        base_sequence=4,
        transactional=True,
        leader_epoch=5,
        timestamp=6,
    )
    seen = {name: struct.unpack_from(form, batch, at)[0] for name, (at, form) in HEADER.items()}
    crc = seen.pop("crc")
    assert seen == {
        "base_offset": 1,
        "length": len(batch) - 12,
        "leader_epoch": 5,
        "magic": 2,
        "attributes": 0x10,
        "last_offset_delta": 2,
        "base_timestamp": 6,
        "max_timestamp": 8,
        "producer_id": 2,
        "producer_epoch": 3,
        "base_sequence": 4,
        "count": 3,
    }
    assert crc == crc32c.crc32c(batch[21:])


def test_rebase_moves_everything_and_needs_no_crc() -> None:
    run = encode_batch(ROWS, base_offset=3) + encode_batch(ROWS, base_offset=9, codec="lz4") + message_set(ROWS, base_offset=20)
    run += message_set(ROWS, base_offset=30, codec="gzip")
    moved = rebase(run, 1003, leader_epoch=8)
    for reader in READERS:
        assert [r[0] for r in read(reader, moved)] == [r[0] + 1000 for r in read(reader, run)]
    assert struct.unpack_from(">i", moved, 12) == (8,)
    assert [e[2:] for e in entries(moved)] == [(m, a, base + 1000, last + 1000) for _, _, m, a, base, last in entries(run)]
    with pytest.raises(ValueError, match="absolute"):
        rebase(message_set(ROWS, magic=0, codec="gzip"), 1)


def test_patch_repairs_the_crc_only_if_asked() -> None:
    batch = encode_batch(ROWS)
    right, wrong = patch(batch, count=-1), patch(batch, repair=False, count=-1)
    assert right[57:61] == wrong[57:61] == b"\xff\xff\xff\xff"
    assert struct.unpack_from(">I", right, 17)[0] == crc32c.crc32c(right[21:])
    assert wrong[17:21] == batch[17:21]
    assert patch(batch, crc=0)[17:21] == bytes(4)
    message = bytearray(encode_message(0, None, b"abc"))
    message[-1] ^= 1
    assert struct.unpack_from(">I", repair_crc(bytes(message)), 12)[0] == zlib.crc32(message[16:])


def test_false_lengths_of_a_record() -> None:
    good = encode_record(b"k", b"v")
    assert good.hex() == "10000000026b027600"
    assert encode_record(b"k", b"v", length=5)[0] == 10
    assert encode_record(b"k", b"v", key_length=-5).hex() == "10000000096b027600"
    assert encode_record(b"k", b"v", value_length=9, header_count=1).hex() == "10000000026b127602"
    assert encode_record(b"k", b"v", extra=b"\x01").hex() == "12000000026b02760001"


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-(2**31), "ffffffff0f"),
        (1787086231121, "a2d99eea8268"),
    ],
)
def test_varints(number: int, expected: str) -> None:
    assert varint(number).hex() == expected


def test_lz4_header_checksum_of_format_0() -> None:
    data = b"abc" * 100
    legacy = compression.lz4_frame(data, legacy_checksum=True)
    assert legacy[4:7].hex() == "60401a"
    assert compression.lz4_frame(data)[4:7].hex() == "604082"
    assert compression.inflate(3, legacy) == data
    assert [e[2:] for e in entries(message_set(ROWS, magic=0, base_offset=5, codec="lz4"))] == [(0, 3, 5, 7)]


@pytest.mark.parametrize("size", [10, 70_000, 300_000])
@pytest.mark.parametrize("content_size", [False, True])
@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("block_size_id", [4, 5, 6, 7])
def test_forms_of_lz4(size: int, content_size: bool, linked: bool, block_size_id: int) -> None:
    data = random.Random(1).randbytes(100) * (size // 100 + 1)
    frame = compression.lz4_frame(
        data,
        content_size=content_size,
        content_checksum=True,
        block_checksum=True,
        linked=linked,
        block_size_id=block_size_id,
    )
    assert lz4.frame.decompress(frame) == data
    assert frame[5] == block_size_id << 4
    assert bool(frame[4] & 8) == content_size
    assert compression.inflate(3, frame) == data


def test_zstd_frames_declare_no_size_unless_asked() -> None:
    data = b"some text " * 1000
    assert zstandard.get_frame_parameters(compression.zstd_frame(data)).content_size == zstandard.CONTENTSIZE_UNKNOWN
    assert zstandard.get_frame_parameters(compression.zstd_frame(data, content_size=True)).content_size == len(data)
    assert zstandard.get_frame_parameters(compression.zstd_frame(data, checksum=True)).has_checksum
    for frame in (
        compression.zstd_frame(data),
        compression.zstd_frame(data, content_size=True),
        compression.zstd_frame(data) * 2,
    ):
        assert compression.inflate(4, frame) == data * (2 if frame == compression.zstd_frame(data) * 2 else 1)


SHAPES = {
    "nothing": b"",
    "one": b"a",
    "run": b"a" * 100_000,
    "random": random.Random(1).randbytes(70_000),
    "text": json.dumps([{"id": i, "name": f"name{i * 7}", "x": i * 1.5} for i in range(3000)]).encode(),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_snappy_is_real_snappy(shape: str) -> None:
    data = SHAPES[shape]
    raw = compression.snappy_raw(data)
    assert bytes(cramjam.snappy.decompress_raw(raw)) == data
    assert bytes(cramjam.snappy.decompress_raw(compression.snappy_raw(data, literal_only=True))) == data
    assert compression.inflate(2, raw) == compression.inflate(2, compression.snappy_java(data)) == data
    assert compression.snappy_inflate(bytes(cramjam.snappy.compress_raw(data))) == data
    if shape in ("run", "text"):
        # As tight as the C library, give or take: a compressor that never finds a match would test no copy in the decoder.
        assert len(raw) < 1.2 * len(cramjam.snappy.compress_raw(data))


@given(st.lists(st.binary(max_size=9), max_size=60), st.integers(1, 5))
@settings(max_examples=200, deadline=None)
def test_snappy_of_anything(pieces: list[bytes], times: int) -> None:
    data = b"".join(pieces) * times
    assert bytes(cramjam.snappy.decompress_raw(compression.snappy_raw(data))) == data
    assert compression.snappy_inflate(compression.snappy_java(data, chunk_size=37)) == data


@pytest.mark.parametrize("size", [0, 1, 3, 4, 15, 16, 17, 64, 1001])
def test_xxh32(size: int) -> None:
    # lz4's content checksum is XXH32 of the content: the library is the witness.
    data = bytes(i * 7 & 0xFF for i in range(size))
    frame = lz4.frame.compress(data, content_checksum=True)
    assert struct.unpack("<I", frame[-4:]) == (compression.xxh32(data),)


def test_empty_batches_keep_the_codec_bits_and_no_payload() -> None:
    for codec in compression.CODECS:
        batch = encode_batch(base_offset=7, last_offset_delta=2, codec=codec)
        assert len(batch) == 61
        assert batch[22] == compression.CODECS[codec]
        assert [e[2:] for e in entries(batch)] == [(2, compression.CODECS[codec], 7, 9)]


def test_codec_numbers_that_do_not_exist() -> None:
    batch = encode_batch([b"x"], codec=5, compressor=lambda data: b"rubbish")
    assert batch[22] == 5
    assert batch.endswith(b"rubbish")
