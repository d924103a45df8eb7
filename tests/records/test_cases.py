"""Faults that users of Kafka consumers reported in public, each as a small test of the decoder.

The names say the rule; the docstrings cite the reports. Byte vectors are in tests/data/cases.txt, other inputs are built here.
"""

from __future__ import annotations

import gc
import random
import struct
import subprocess
import sys
import tracemalloc
from typing import Any

import lz4.frame
import pytest
import zstandard
from building import (
    CODECS,
    GZIP,
    LOG_APPEND,
    LZ4,
    NONE,
    SNAPPY,
    TIME,
    ZSTD,
    batch,
    control,
    message,
    pack,
    padded,
    raw_snappy,
    record,
    records,
    repaired,
    wrapper,
    xerial,
    zigzag,
)  # fmt: skip
from exact import child_environment
from golden import cases

import fastfetch
from fastfetch import errors

CASES = cases()
HEAD = 61


def offsets(decoded: Any) -> list[int]:
    return [offset for block in decoded.blocks for offset in block.offsets.tolist()]


def rows(decoded: Any) -> list[Any]:
    return [r for block in decoded.blocks for r in block.records()]


def good(data: bytes, **arguments: Any) -> Any:
    decoded = fastfetch.decode(data, **arguments)
    assert decoded.error is None
    return decoded


# ---------------------------------------------------------------------------------------------------------------- D01 D02 D03


def test_position_passes_a_compacted_tail():
    """KAFKA-5443, dpkp/kafka-python#1701, segmentio/kafka-go#423, tulios/kafkajs#562."""
    decoded = good(CASES["D01"], position=100)
    assert offsets(decoded) == [100, 101]
    assert decoded.next_offset == decoded.blocks[-1].next_offset == 105


def test_a_fetch_inside_a_compacted_tail_moves_on_without_records():
    decoded = good(CASES["D01"], position=103)
    assert (len(decoded), decoded.blocks, decoded.next_offset) == (0, [], 105)


def test_an_empty_batch_moves_the_position():
    """IBM/sarama#2053, segmentio/kafka-go#813."""
    decoded = good(CASES["D02a"], position=200)
    assert (len(decoded), decoded.next_offset, decoded.consumed) == (0, 210, 61)


def test_records_behind_an_empty_batch_come_in_the_same_call():
    decoded = good(CASES["D02a"] + batch(records(1), 1, base=210), position=200)
    assert (offsets(decoded), decoded.next_offset) == ([210], 211)


@pytest.mark.parametrize("codec", range(8))
def test_an_empty_batch_is_empty_whatever_its_codec_bits(codec: int):
    decoded = good(repaired(CASES["D02a"][:21] + struct.pack(">h", codec) + CASES["D02a"][23:]))
    assert (len(decoded), decoded.next_offset) == (0, 210)
    assert codec != SNAPPY or good(CASES["D02b"]).next_offset == 210


def test_two_empty_batches_in_a_row():
    decoded = good(CASES["D02a"] + batch(b"", 0, base=210, last=4))
    assert (len(decoded), decoded.next_offset) == (0, 215)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("position", [80, 100, 119, 120])
def test_a_fetch_in_the_middle_of_a_batch_brings_no_old_records(codec: str, position: int):
    """thomhurst/Dekaf#2074, dpkp/kafka-python#322, kafka4beam/brod#95."""
    decoded = good(batch(records(40), 40, base=80, codec=CODECS[codec]), position=position)
    assert (offsets(decoded), decoded.next_offset) == (list(range(position, 120)), 120)
    assert decoded.stats.records_dropped == 0  # below the position is not "dropped"


# ---------------------------------------------------------------------------------------------------------------- D04


def test_inner_offsets_of_a_magic_1_wrapper_are_relative_and_keep_their_holes():
    """KAFKA-5365, IBM/sarama#721, weiboad/kafka-php#163."""
    decoded = good(CASES["D04a"])
    assert (offsets(decoded), decoded.next_offset) == ([100, 101, 104, 109], 110)


def test_a_wrapper_at_0_holds_inner_offsets_as_they_are():
    decoded = good(CASES["D04b"])
    assert (offsets(decoded), decoded.next_offset) == ([0, 1, 2, 3], 4)


@pytest.mark.parametrize("position", [1, 3])
def test_a_wrapper_at_0_is_not_taken_for_below_the_position(position: int):
    decoded = good(CASES["D04b"], position=position)
    assert (offsets(decoded), decoded.next_offset) == (list(range(position, 4)), 4)


def test_a_wrapper_below_its_last_inner_offset_is_invalid():
    decoded = fastfetch.decode(CASES["D04c"], position=0)
    assert isinstance(decoded.error, errors.InvalidRecordError)
    assert (len(decoded), decoded.next_offset, decoded.error.next_offset, decoded.error.skip_trusted) == (0, 0, 3, True)


def test_inner_offsets_of_a_magic_0_wrapper_are_absolute():
    decoded = good(CASES["D04d"])
    assert (offsets(decoded), decoded.next_offset) == ([100, 101, 104, 109], 110)
    assert decoded.blocks[0].timestamps.tolist() == [-1] * 4
    assert decoded.blocks[0].timestamp_types.tolist() == [-1] * 4


def test_a_log_append_wrapper_gives_its_time_to_every_record():
    decoded = good(CASES["D04e"])
    assert [(r.timestamp, r.timestamp_type) for r in rows(decoded)] == [(5555, 1)] * 4


# ---------------------------------------------------------------------------------------------------------------- D05 D06


@pytest.mark.parametrize(
    ("base", "delta"),
    [(0, 2**31), (0, 1787086231121), (2**40, -(2**31) - 1), (0, 2**63 - 1), (0, -(2**63)), (-1, 5), (TIME, -TIME - 10)],
)
def test_timestamp_deltas_have_64_bits_and_the_fields_behind_them_stay_in_step(base: int, delta: int):
    """kafka-protocol-rs#158, osodevops/kafka-backup#150."""
    (r,) = rows(good(batch([record(0, time=delta, key=b"after", value=b"wards")], times=(base, base))))
    assert (r.offset, r.timestamp, r.key, r.value) == (0, base + delta, b"after", b"wards")


def test_timestamp_vectors():
    assert good(CASES["D05a"]).blocks[0].timestamps.tolist() == [2**31]
    assert good(CASES["D05b"]).blocks[0].timestamps.tolist() == [2**40 - 2**31 - 1]


def test_a_timestamp_that_overflows_wraps():
    (r,) = rows(good(batch([record(0, time=2**63 - 1)], times=(2, 2))))
    assert r.timestamp == -(2**63) + 1


def test_log_append_batches_give_the_broker_time():
    """zendesk/ruby-kafka#706, tulios/kafkajs#838."""
    assert [(r.timestamp, r.timestamp_type) for r in rows(good(CASES["D06"]))] == [(1_700_000_000_000, 1)] * 2
    plain = batch([record(0), record(1, time=5)], times=(-1, 4))
    assert [(r.timestamp, r.timestamp_type) for r in rows(good(plain))] == [(-1, 0), (4, 0)]
    assert good(batch(records(1), 1, attributes=LOG_APPEND, times=(0, 9))).blocks[0].timestamp_types.tolist() == [1]


# ---------------------------------------------------------------------------------------------------------------- D07 D08 D09


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [-(2**31), -1, 0, 2, 9, 2**31 - 1])
def test_a_record_count_that_lies_is_a_typed_error(codec: str, count: int):
    """segmentio/kafka-go#1438. Nothing is sized by the count."""
    data = batch(record(value=b"0123456789"), count, last=0, codec=CODECS[codec])
    tracemalloc.start()
    decoded = fastfetch.decode(data, topic="orders", position=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    error = decoded.error
    assert isinstance(error, errors.InvalidRecordError)
    assert (error.kind, error.topic, error.base_offset, error.next_offset, error.skip_trusted) == ("count", "orders", 0, 1, True)
    assert offsets(decoded) == ([0] if count == 2 else [])  # 2 could have been true: 17 bytes hold two records
    assert peak < 1 << 20


def test_count_vectors():
    for case in ("D07a", "D07b"):
        decoded = fastfetch.decode(CASES[case])
        assert (len(decoded), decoded.error.kind) == (0, "count")


@pytest.mark.parametrize(
    "bad",
    [
        record(header_count=2**31 - 1), record(header_count=-1), record(headers=[(b"h", b"1")], header_count=2),
        record(headers=[(None, b"1")]), record(headers=[(b"h", b"1")], header_count=0),
        record(length=-5) + b"\0" * 9, record(length=0), record(length=1), record(length=5), record(length=500),
        record(length=2**31 - 1), record(key_length=2**31 - 1), record(value_length=999), record(tail=b"\0"),
    ],
)  # fmt: skip
def test_absurd_lengths_and_header_counts_are_typed_errors(bad: bytes):
    """thomhurst/Dekaf#954, tulios/kafkajs#1386."""
    payload = record(0) + record(1) + bad + bytes(7)
    decoded = fastfetch.decode(batch(payload, 3, last=2), position=0)
    assert isinstance(decoded.error, errors.InvalidRecordError)
    assert (offsets(decoded), decoded.next_offset) == ([0, 1], 2)
    assert (decoded.error.record_index, decoded.error.next_offset, decoded.error.skip_trusted) == (2, 3, True)


@pytest.mark.parametrize(
    "payload",
    [
        record(0)[:-1] + b"\x80\x80\x80",
        padded(14, 6) + record(0)[1:],
        b"\x1e\0" + padded(0, 11) + b"\0\x02k\x02v\0",
        b"\x8e\x80\x80\x80\x10" + record(0)[1:],
        b"\x8e\x80\x80\x80\x7f" + record(0)[1:],
    ],
    ids=["cut", "six bytes", "eleven bytes", "bits beyond 32", "more of them"],
)
def test_a_varint_that_never_ends_or_does_not_fit_is_a_typed_error(payload: bytes):
    """tulios/kafkajs#1793, thomhurst/Dekaf#644."""
    assert isinstance(fastfetch.decode(batch(payload, 1)).error, errors.InvalidRecordError)
    assert offsets(good(batch(records(2), 2))) == [0, 1]  # and the next call works


# ---------------------------------------------------------------------------------------------------------------- D10 D11


def entry_pairs() -> list[Any]:
    a = batch(records(2), 2)
    pairs = [pytest.param(a, batch(records(2), 2, base=2, codec=codec), id=f"magic 2 {name}") for name, codec in CODECS.items()]
    for magic in (0, 1):
        pairs.append(pytest.param(message(0, magic) + message(1, magic), message(2, magic), id=f"magic {magic}"))
    return pairs


@pytest.mark.parametrize(("a", "b"), entry_pairs())
def test_a_cut_batch_is_not_an_error(a: bytes, b: bytes):
    """IBM/sarama#1030, zendesk/ruby-kafka#133, dpkp/kafka-python#713. At every byte."""
    for cut in range(len(b)):
        decoded = good(a + b[:cut])
        assert (offsets(decoded), decoded.next_offset, decoded.consumed) == ([0, 1], 2, len(a))
    assert good(a + b).consumed == len(a + b)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13])
def test_a_declared_length_below_every_format_is_no_partial_tail(length: int):
    decoded = fastfetch.decode(batch(records(2), 2) + struct.pack(">qi", 2, length))
    assert (offsets(decoded), decoded.error.kind, decoded.next_offset) == ([0, 1], "length", 2)


def test_not_one_complete_batch_gives_nothing_and_moves_nothing():
    """KAFKA-2515, Parsely/pykafka#102: the caller sees that no byte was consumed and asks for more."""
    data = batch(record(value=bytes(5000)), 1, base=7)
    decoded = good(data[:1000], position=7)
    assert (len(decoded), decoded.next_offset, decoded.consumed) == (0, 7, 0)
    assert good(data[:1000]).next_offset is None
    assert offsets(good(data, position=7)) == [7]


# ---------------------------------------------------------------------------------------------------------------- D12 D13 D14


def test_headers_keep_null_empty_order_and_repeats():
    """dpkp/kafka-python#2004, vert-x3/vertx-kafka-client#313."""
    headers = [(b"a", None), (b"a", b""), (b"", b"x"), (b"a", b"2")]
    decoded = good(batch([record(headers=headers)]))
    expected = [("a", None), ("a", b""), ("", b"x"), ("a", b"2")]
    assert decoded.blocks[0].headers() == [expected]
    assert list(rows(decoded)[0].headers) == expected


@pytest.mark.parametrize("codec", CODECS)
def test_null_and_empty_are_different(codec: str):
    """thomhurst/Dekaf#1627."""
    pairs = [(key, value) for key in (None, b"", b"x") for value in (None, b"", b"x")]
    decoded = good(batch([record(i, key=k, value=v) for i, (k, v) in enumerate(pairs)], codec=CODECS[codec]))
    assert [(r.key, r.value) for r in rows(decoded)] == pairs
    (block,) = decoded.blocks
    assert list(zip(block.keys(), block.values(), strict=True)) == pairs
    assert block.key_lengths.tolist() == [-1 if k is None else len(k) for k, _ in pairs]
    assert [r.serialized_value_size for r in rows(decoded)] == [-1 if v is None else len(v) for _, v in pairs]


def test_lengths_below_minus_1_are_null_and_counted():
    decoded = good(batch([record(key=None, key_length=-5, value=None, value_length=-5, headers=[(b"h", None)])]))
    assert [(r.key, r.value) for r in rows(decoded)] == [(None, None)]
    assert decoded.stats.null_lengths == 2


def test_the_codec_belongs_to_the_batch():
    """platformatic/kafka#123."""
    order = [GZIP, NONE, LZ4, SNAPPY, ZSTD, NONE, GZIP]
    parts = [batch(records(3), 3, base=3 * i, codec=codec) for i, codec in enumerate(order)]
    assert offsets(good(b"".join(parts))) == list(range(21))
    cut = b"".join(parts)[:-1]
    assert offsets(good(cut)) == list(range(18))


# ---------------------------------------------------------------------------------------------------------------- D15 D16 D17


def test_snappy_is_raw_or_in_the_java_framing():
    """dpkp/kafka-python#127, kafka-protocol-rs#79, xerial/snappy-java#142."""
    for case in ("D15a", "D15b"):
        assert [(r.key, r.value) for r in rows(good(CASES[case]))] == [(b"k", b"hello")]
    short = raw_snappy(record(key=None, value=None))
    assert len(short) < 16
    assert offsets(good(batch(b"", 1, codec=SNAPPY, packed=short))) == [0]


def test_a_raw_block_may_begin_like_the_framing():
    payload = next(r for r in (record(value=bytes(n)) for n in range(130)) if len(r) == 130)
    block = raw_snappy(payload)
    assert block[:2] == b"\x82\x01"  # 130, as a varint
    assert offsets(good(batch(b"", 1, codec=SNAPPY, packed=block))) == [0]


@pytest.mark.parametrize(
    "packed",
    [xerial(), xerial(raw_snappy(records(1)))[:-1], xerial(raw_snappy(records(1)))[:16] + struct.pack(">i", 99) + b"12"],
    ids=["no chunk", "cut chunk", "length beyond the rest"],
)
def test_a_broken_framing_is_a_typed_error(packed: bytes):
    assert isinstance(fastfetch.decode(batch(b"", 1, codec=SNAPPY, packed=packed)).error, errors.DecompressionError)


def test_zstd_needs_no_content_size_and_may_come_in_frames():
    """kafka-python-ng#202, python-zstandard#150."""
    for case in ("D16a", "D16b"):
        assert [(r.key, r.value) for r in rows(good(CASES[case]))] == [(b"k", b"hello")]
    skippable = b"\x50\x2a\x4d\x18\x03\0\0\0abc"
    frame = pack(ZSTD, records(2))
    for packed in (skippable + frame, frame + skippable, skippable + frame + skippable):
        assert offsets(good(batch(b"", 2, codec=ZSTD, packed=packed))) == [0, 1]


def test_a_cut_zstd_frame_is_an_error_and_no_short_result():
    whole = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(records(50))
    for cut in range(len(whole)):
        decoded = fastfetch.decode(batch(b"", 50, codec=ZSTD, packed=whole[:cut]))
        assert isinstance(decoded.error, errors.DecompressionError)
        assert len(decoded) == 0


@pytest.mark.parametrize("less", [1, 4, 8])
def test_a_payload_that_does_not_decompress_stops_there(less: int):
    """confluentinc/librdkafka#2672: nothing behind it is delivered ahead of it."""
    bad = batch(b"", 5, codec=GZIP, packed=pack(GZIP, records(5))[:-less], base=10)
    decoded = fastfetch.decode(batch(records(2), 2, base=8) + bad + batch(records(1), 1, base=15), position=8)
    assert (offsets(decoded), decoded.next_offset) == ([8, 9], 10)
    error = decoded.error
    assert isinstance(error, errors.DecompressionError)
    assert (error.base_offset, error.position, error.next_offset, error.skip_trusted) == (10, 10, 15, True)
    assert error.byte_pos == decoded.consumed == len(batch(records(2), 2))


def test_gzip_in_two_members_gives_both():
    data = records(6)
    packed = pack(GZIP, data[:37]) + pack(GZIP, data[37:])
    assert offsets(good(batch(b"", 6, codec=GZIP, packed=packed))) == list(range(6))


# ---------------------------------------------------------------------------------------------------------------- D18 D19 D20


MISSING = """
import sys
for name in sys.argv[2].split(","):
    sys.modules[name] = None
import fastfetch, fastfetch.kernels.codecs as codecs
codecs.use_provider("python")
d = fastfetch.decode(bytes.fromhex(sys.argv[1]), position=0, topic="orders")
print(type(d.error).__name__, d.error.codec, d.error.package, d.next_offset, d.error.next_offset, str(d.error), sep="|")
"""


@pytest.mark.parametrize(
    ("codec", "modules", "package"), [(ZSTD, "zstandard", "zstandard"), (LZ4, "lz4,lz4.block,lz4.frame", "lz4")]
)
def test_a_missing_codec_package_is_named(codec: int, modules: str, package: str):
    """dpkp/kafka-python#2316: an endless log line instead of an error."""
    data = batch(records(2), 2, codec=codec)
    command = [sys.executable, "-c", MISSING, data.hex(), modules]
    out = subprocess.run(command, env=child_environment(), capture_output=True, text=True, check=True)
    name, number, found, position, skip, text = out.stdout.strip().split("|")
    assert (name, int(number), found, position, skip) == ("UnsupportedCodecError", codec, package, "0", "2")
    assert package in text
    assert "orders-0" in text


@pytest.mark.parametrize("codec", CODECS)
def test_what_the_crc_covers(codec: str):
    """aio-libs/aiokafka#1097, thomhurst/Dekaf#1727. Each byte in turn; before byte 17 nothing wrong comes out."""
    data = batch([record(value=b"0123456789" * 3)], codec=CODECS[codec], base=5)
    for at in range(len(data)):
        flipped = data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]
        decoded = fastfetch.decode(flipped)
        if at >= 17:
            assert isinstance(decoded.error, errors.CrcMismatchError), at
            assert decoded.error.stored != decoded.error.computed
            assert len(decoded) == 0
        elif at < 8 or 12 <= at < 16:
            base = struct.unpack(">q", flipped[:8])[0]
            assert offsets(decoded) == ([base] if decoded.error is None else []), at
        else:
            assert len(decoded) == 0, at  # length and magic: an error or "incomplete", never data
            assert decoded.error is not None or decoded.consumed == 0


def test_without_crc_checks_a_wrong_crc_passes_and_nothing_else_does():
    data = batch(records(2), 2, crc_xor=1)
    assert fastfetch.decode(data).error.kind == "crc"
    assert offsets(good(data, check_crcs=False)) == [0, 1]
    for count, bad in ((-1, record()), (2**31 - 1, record()), (1, record(header_count=2**30)), (1, b"\x80" * 9)):
        decoded = fastfetch.decode(batch(bad, count, crc_xor=1), check_crcs=False)
        assert isinstance(decoded.error, errors.InvalidRecordError)


def test_a_bad_batch_in_second_place_neither_skips_nor_loses():
    """aio-libs/aiokafka#321, KAFKA-5211, KAFKA-5630."""
    decoded = fastfetch.decode(CASES["D20"], topic="orders", partition=3, position=0)
    assert (offsets(decoded), decoded.next_offset) == ([0, 1], 2)
    error = decoded.error
    assert isinstance(error, errors.CrcMismatchError)
    assert (error.topic, error.partition, error.base_offset, error.position) == ("orders", 3, 2, 2)
    assert (error.next_offset, error.skip_trusted) == (4, True)  # the third batch, whose own CRC is right
    assert "orders-3" in str(error)
    assert "4" in str(error)
    assert error.byte_pos == decoded.consumed
    with pytest.raises(errors.CrcMismatchError):
        decoded.raise_for_error()
    assert offsets(good(CASES["D20"][error.byte_pos + error.size :], position=error.next_offset)) == [4]


# ---------------------------------------------------------------------------------------------------------------- D21


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_a_cut_message_inside_a_wrapper_is_an_error(magic: int, codec: int):
    """dpkp/kafka-python#672. Java hands out the whole ones, wrongly numbered; here none is."""
    inner = b"".join(message(i, magic) for i in range(3))
    for cut in (1, 3, len(inner) // 3 - 1):
        decoded = fastfetch.decode(wrapper(2, magic, inner[:-cut], codec=codec), position=0)
        assert isinstance(decoded.error, errors.InvalidRecordError)
        assert (len(decoded), decoded.next_offset, decoded.error.next_offset) == (0, 0, 3)
    assert offsets(good(wrapper(2, magic, inner, codec=codec))) == [0, 1, 2]


# ---------------------------------------------------------------------------------------------------------------- D22 .. D25


def test_one_producer_commits_aborts_commits():
    """kafka4beam/brod#659, confluentinc/kafka#145."""
    decoded = good(CASES["D22"], isolation="read_committed", aborted=[(7, 2)], position=0)
    assert (offsets(decoded), decoded.next_offset) == ([0, 4], 6)
    assert offsets(good(CASES["D22"], aborted=[(7, 2)])) == [0, 2, 4]  # uncommitted: the list is not looked at


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_marker_at_the_end_moves_the_position(isolation: str):
    """aio-libs/aiokafka#911, tulios/kafkajs#1256, confluentinc/librdkafka#2539."""
    decoded = good(CASES["D23"], isolation=isolation)
    assert (offsets(decoded), decoded.next_offset) == ([0], 2)
    markers = control(1, base=1) + control(0, base=2, producer=8)
    decoded = good(markers, isolation=isolation, position=1)
    assert (len(decoded), decoded.next_offset) == (0, 3)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_marker_with_a_last_delta_moves_the_position_past_it(isolation: str):
    marker = batch([record(key=struct.pack(">hh", 0, 1))], last=4, attributes=0x30, producer=7)
    assert good(marker, isolation=isolation).next_offset == 5


def test_a_response_of_aborted_batches_shows_progress():
    """apache/pinot#12318, apache/beam#25962: emptiness is not the end."""
    data = b"".join(batch(records(5), 5, base=10 + 5 * i, attributes=0x10, producer=7, codec=GZIP) for i in range(3))
    decoded = good(data, isolation="read_committed", aborted=[(7, 3)], position=10)
    assert (len(decoded), decoded.next_offset, decoded.consumed) == (0, 25, len(data))
    assert decoded.stats.inflated_bytes == 0  # skipped by their headers


def test_two_producers_interleaved_and_a_list_that_is_not_in_order():
    """confluentinc/kafka#145, AutoMQ/automq#754."""
    decoded = good(CASES["D25"], isolation="read_committed", aborted=[(8, 5), (7, 1)], position=0)
    assert (offsets(decoded), decoded.next_offset) == ([0, 2, 4, 9], 11)


def test_a_producer_aborted_twice_in_one_response():
    data = b"".join(
        batch([record()], base=base, attributes=0x10, producer=7) + control(kind, base=base + 1)
        for base, kind in ((0, 0), (2, 0), (4, 1))
    )
    decoded = good(data, isolation="read_committed", aborted=[(7, 2), (7, 0)])
    assert (offsets(decoded), decoded.next_offset) == ([4], 6)


def test_an_idempotent_batch_of_an_aborted_producer_is_delivered():
    data = batch([record()], attributes=0x10, producer=7) + batch([record()], base=1, producer=7) + control(0, base=2)
    assert offsets(good(data, isolation="read_committed", aborted=[(7, 0)])) == [1]


def test_a_marker_below_the_position_still_ends_its_transaction():
    """The response begins with the batch that holds the position; what lies before it in a segment counts, too."""
    data = batch([record()], attributes=0x10, producer=7) + control(0, base=1)
    data += batch([record()], base=2, attributes=0x10, producer=7)
    decoded = good(data, isolation="read_committed", aborted=[(7, 0)], position=2)
    assert (offsets(decoded), decoded.next_offset) == ([2], 3)


def test_no_aborted_list_is_an_empty_one():
    assert offsets(good(CASES["D22"], isolation="read_committed", aborted=[])) == [0, 2, 4]
    assert offsets(good(CASES["D22"], isolation="read_committed", aborted=None)) == [0, 2, 4]


# ---------------------------------------------------------------------------------------------------------------- R03 R04


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_detached_block_does_not_keep_the_response_alive(codec: str):
    """confluentinc/librdkafka#1382, KIP-81. Views are the documented choice; detach() and values() are the ways out."""
    value = random.Random(1).randbytes(1 << 20)
    tracemalloc.start()
    data = batch([record(i, value=value) for i in range(8)] + [record(8, value=b"0123456789")], codec=CODECS[codec])
    block = good(data).blocks[-1]
    kept = block[8:9].detach()
    copied = block.values()[8]
    del block, data
    gc.collect()
    # The module's own `value` apart, nothing large is left; arenas are not Python's, so RSS is measured elsewhere.
    held = tracemalloc.get_traced_memory()[0] - len(value)
    tracemalloc.stop()
    assert kept.values() == [b"0123456789"] == [copied]
    assert len(kept.data) < 1 << 10
    assert held < 1 << 20


def test_a_view_outlives_everything_it_came_from():
    data = bytearray(batch(records(3), 3))
    decoded = good(bytes(data))
    block = decoded.blocks[0]
    column, view = block.offsets, block.data
    start, length = int(block.value_starts[2]), int(block.value_lengths[2])
    del decoded, block, data
    gc.collect()
    assert column.tolist() == [0, 1, 2]
    assert bytes(view[start : start + length]) == b"value 2"


def test_reference_counts_stay_level_over_10000_failing_decodes():
    """Parsely/pykafka#400, dpkp/kafka-python#551: mutations with a right CRC, so that the parser is reached."""
    seeds = [*CASES.values(), batch(records(20), 20, codec=GZIP), batch(records(20), 20, codec=ZSTD)]
    rng = random.Random(4)
    topic = "orders"

    def one() -> bool:
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        mutated = bytes(data[: rng.randrange(len(data)) if rng.random() < 0.1 else len(data)])
        if len(mutated) > HEAD and rng.random() < 0.9 and mutated[16] < 3:
            mutated = repaired(mutated)
        decoded = fastfetch.decode(mutated, topic=topic, isolation="read_committed", aborted=[(7, 2)])
        assert decoded.error is None or isinstance(decoded.error, errors.CorruptBatchError)
        return decoded.error is not None

    for _ in range(500):
        one()
    gc.collect()
    before = len(gc.get_objects()), sys.getrefcount(topic)
    failed = sum(one() for _ in range(10_000))
    gc.collect()
    after = len(gc.get_objects()), sys.getrefcount(topic)
    assert failed > 3_000
    assert after[0] - before[0] < 50
    assert after[1] == before[1]


def test_lz4_frames_of_every_shape():
    """Content size, block checksums, content checksum, linked blocks over a block border."""
    data = records(6000)
    assert len(data) > 2 << 16
    for linked in (False, True):
        for options in ({}, {"content_checksum": True}, {"block_checksum": True}, {"store_size": False}):
            for size in (4, 5, 6, 7):
                packed = lz4.frame.compress(data, block_linked=linked, block_size=size, **options)
                assert offsets(good(batch(b"", 6000, codec=LZ4, packed=packed))) == list(range(6000))


def test_zigzag_of_the_builder():
    """The tests' own encoder, by the vectors of the format."""
    vectors = {0: "00", -1: "01", 1: "02", 63: "7e", -64: "7f", 64: "8001", -(2**31): "ffffffff0f", -(2**63): "ff" * 9 + "01"}
    assert {n: zigzag(n).hex() for n in vectors} == vectors
    assert zigzag(1787086231121).hex() == "a2d99eea8268"


def test_behind_a_bad_crc_a_wrapper_is_no_place_to_go_on():
    """A wrapper has the offset of its last message: going on there would lose those before it. A plain message is a place."""
    bad = bytearray(batch(records(2), 2))
    bad[-1] ^= 1
    inner = b"".join(message(i, 1) for i in range(3))
    for behind, target in ((wrapper(4, 1, inner), None), (message(2, 1), 2)):
        error = fastfetch.decode(bytes(bad) + behind).error
        assert isinstance(error, errors.CrcMismatchError)
        assert (error.next_offset, error.skip_trusted) == (target, target is not None)
