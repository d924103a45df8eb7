"""Bad framing, offsets, counts, records and markers: one test per check. Codecs are in test_bad_codecs.py."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from building import (
    CODECS,
    CONTROL,
    GZIP,
    LOG_APPEND,
    LZ4,
    SNAPPY,
    TRANSACTIONAL,
    ZSTD,
    batch,
    control,
    lz4_block_of,
    lz4_frame,
    message,
    padded,
    record,
    records,
    repaired,
    wrapper,
    zigzag,
)  # fmt: skip
from sandwich import AFTER, AT, BEFORE, DATA, accepted, bad, check, decoded, txn, words

import fastfetch
from fastfetch import errors

END = struct.pack("<I", 0)

# --------------------------------------------------------------------------------------- rows 10 .. 15: lengths and partial tails


@pytest.mark.parametrize("size", range(17))
def test_a_tail_shorter_than_a_header_is_partial(size: int):
    offsets, d = decoded(BEFORE + AFTER[:size])
    assert (offsets, d.error, d.next_offset, d.consumed) == ([0, 1], None, 2, AT)
    offsets, d = decoded(AFTER[:size], position=4)
    assert (offsets, d.error, d.next_offset, d.consumed) == ([], None, 4, 0)


@pytest.mark.parametrize("length", [-(2**31), -2, -1, 0, 1, 13])
def test_a_length_that_no_format_has(length: int):
    check(bad(length=length), "length", skip=None)
    short = bad(length=length)[:12]  # seen as soon as the field is there
    check(short, "length", skip=None, after=b"")


@pytest.mark.parametrize("length", [14, 22, 48])
def test_a_length_below_the_header_of_format_2(length: int):
    check(bad(length=length), "length", skip=None)
    check(bad(length=length)[:17], "length", skip=None, after=b"")  # before any other field of the header


@pytest.mark.parametrize("length", [14, 21])
def test_a_length_below_a_message_of_format_1(length: int):
    check(bad(length=length, magic=1), "length", skip=None)


@pytest.mark.parametrize("length", [2**31 - 1, 2**31 - 12, 2**31 - 13, 1 << 30])
def test_a_length_beyond_the_bytes_is_a_partial_tail_in_64_bits(length: int):
    offsets, d = decoded(BEFORE + bad(length=length) + AFTER)
    assert (offsets, d.error, d.next_offset, d.consumed) == ([0, 1], None, 2, AT)


def test_zeros_are_no_batch():
    check(bytes(64), "length", skip=None, after=b"")


# --------------------------------------------------------------------------------------- rows 16 .. 21, 23: CRC and magic


def test_a_length_one_too_small():
    entry = bad(length=len(bad()) - 13)
    check(entry, "crc", skip=None)  # the "next batch" begins inside this one and is none


def test_a_length_that_swallows_the_next_batch_skips_past_both():
    whole = bad(length=len(bad()) - 12 + len(AFTER))
    check(whole, "crc", skip=6, after=AFTER + batch(records(1), 1, base=6))
    check(whole, "crc", skip=None, after=AFTER)


@pytest.mark.parametrize("magic", [3, 4, 127])
def test_a_magic_above_2(magic: int):
    check(bad(magic=magic), "magic", skip=None, cls=errors.UnsupportedMagicError)


@pytest.mark.parametrize("magic", [-128, -1])
def test_a_negative_magic(magic: int):
    check(bad(magic=magic), "magic", skip=None, cls=errors.CorruptBatchError)


def test_formats_may_follow_each_other():
    parts = [message(2, 0), message(3, 1), wrapper(5, 1, message(0, 1) + message(1, 1), codec=LZ4), bad(base=6), message(8, 0)]
    assert accepted(b"".join(parts), (2, 3, 4, 5, 6, 7, 8), 9).stats.batches == 7


@pytest.mark.parametrize("codec", CODECS)
def test_a_wrong_crc_is_skipped_to_the_next_batch_that_is_right(codec: str):
    entry = bad(codec=CODECS[codec], crc_xor=1)
    error = check(entry, "crc", skip=4)
    assert error.stored ^ error.computed == 1
    check(entry, "crc", skip=None, after=b"")
    check(entry, "crc", skip=None, after=AFTER[:-1])  # not whole
    check(entry, "crc", skip=None, after=AFTER[:-1] + bytes([AFTER[-1] ^ 1]))  # its own CRC is wrong
    check(entry, "crc", skip=None, after=batch(records(1), 1, base=2))  # not above the position
    check(entry, "crc", skip=None, after=batch(records(1), 1, base=-1))
    check(entry, "crc", skip=None, after=batch(records(1), 1, base=9, last=-1))  # its header is not sane
    check(entry, "crc", skip=9, after=batch(b"", 0, base=9, last=5))
    check(entry, "crc", skip=9, after=message(9, 1))
    check(entry, "crc", skip=None, after=wrapper(9, 1, message(0, 1) + message(1, 1)))  # begins at 8, which only the inside says


def test_no_batch_is_looked_for_inside_a_bad_one():
    """A value may hold the bytes of a whole batch with a right CRC, put there to be found."""
    inner = batch(records(1), 1, base=1 << 40)
    entry = bad([record(value=inner)], 1, crc_xor=1)
    check(entry, "crc", skip=4)
    check(entry, "crc", skip=None, after=b"")


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrong_crc_of_an_old_message(magic: int):
    entry = message(2, magic)
    check(entry[:-1] + b"w", "crc", skip=4)


# --------------------------------------------------------------------------------------- row 22: wrappers


def inner(magic: int, *offsets: int, **fields: Any) -> bytes:
    return b"".join(message(offset, magic, **fields) for offset in offsets)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    "made",
    [
        lambda m: wrapper(3, m, wrapper(1, m, inner(m, 0, 1))),
        lambda m: wrapper(3, m, inner(1 - m, 0, 1)),
        lambda m: wrapper(3, m, inner(m, 0) + inner(1 - m, 1)),
        lambda m: wrapper(3, m, batch(records(2), 2)),
        lambda m: wrapper(3, m, b""),
        lambda m: message(3, m, None, attributes=GZIP),
        lambda m: wrapper(3, m, inner(m, 0, 1)[:-1]),
        lambda m: wrapper(3, m, inner(m, 0, 1) + b"\0\0\0"),
        lambda m: wrapper(3, m, inner(m, 0) + struct.pack(">qi", 1, -7) + bytes(40)),
        lambda m: wrapper(3, m, inner(m, 0) + struct.pack(">qi", 1, 2**31 - 1) + bytes(40)),
        lambda m: wrapper(3, m, inner(m, -1, 1)),
    ],
    ids=words("nested other-magic mixed format-2-inside no-messages null cut trailing negative-size huge-size negative-offset"),
)
def test_a_wrapper_that_is_none(magic: int, made: Any):
    check(made(magic), "record", skip=4)


def test_a_wrapper_below_its_last_message():
    check(wrapper(3, 1, inner(1, 0, 4)), "record", skip=4)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_whose_fields_do_not_fit(magic: int):
    for fields in ({"key_length": 99}, {"value_length": 99}, {"key_length": 2**31 - 1}, {"key": None, "value_length": 2}):
        check(message(2, magic, **fields), "record", skip=3)
    # Inside a wrapper the ones before it are good.
    offsets = (0, 1, 2) if magic else (2, 3, 4)
    broken = inner(magic, *offsets[:2]) + message(offsets[2], magic, value_length=99)
    check(wrapper(4, magic, broken), "record", skip=5, delivered=2)


@pytest.mark.parametrize("magic", [0, 1])
def test_negative_lengths_of_an_old_message_are_null(magic: int):
    d = accepted(message(2, magic, None, key=None, key_length=-2, value_length=-9), (2,), 3)
    assert d.stats.null_lengths == 2
    assert d.blocks[0].values()[2] is None


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [4, 5, 6, 7])
def test_a_codec_that_old_formats_do_not_have(magic: int, codec: int):
    assert check(message(2, magic, attributes=codec), "codec", skip=3).codec == codec


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_that_does_not_inflate(magic: int):
    check(message(2, magic, b"", attributes=GZIP), "inflate", skip=3)
    check(message(2, magic, b"certainly not gzip", attributes=GZIP), "inflate", skip=3)
    check(wrapper(2, magic, inner(magic, 0))[:-4] + b"1234", "crc", skip=4)
    check(repaired(wrapper(2, magic, inner(magic, 0))[:-4] + b"1234"), "inflate", skip=3)


def test_a_wrong_lz4_header_checksum_is_ignored_in_magic_0_only():
    """KAFKA-3160: it was computed over the wrong bytes."""
    for magic in (0, 1):
        data = inner(magic, 0, 1) if magic else inner(magic, 2, 3)
        entry = message(3, magic, lz4_frame(lz4_block_of(data), END, check=0x1A), attributes=LZ4)
        if magic:
            check(entry, "inflate", skip=4)
        else:
            accepted(entry)
    check(bad(codec=LZ4, packed=lz4_frame(lz4_block_of(DATA), END, check=0x1A)), "inflate", skip=4)


# --------------------------------------------------------------------------------------- rows 24 .. 29: offsets


def test_a_base_below_the_position_counts_as_below_only_if_the_end_is():
    offsets, d = decoded(batch(records(4), 4), position=2)
    assert (offsets, d.next_offset) == ([2, 3], 4)


def test_a_negative_base_offset():
    check(bad(base=-1), "offset", skip=None)
    check(bad(base=-(2**63)), "offset", skip=None)
    check(message(-1, 1), "offset", skip=None)


def test_a_negative_last_offset_delta():
    check(bad(last=-1), "offset", skip=None)
    check(bad(b"", 0, last=-(2**31)), "offset", skip=None)


@pytest.mark.parametrize(("base", "last"), [(2**63 - 1, 0), (2**63 - 1, 1), (2**63 - 2, 1), (2**63 - 2**31, 2**31 - 1)])
def test_offsets_whose_end_does_not_fit(base: int, last: int):
    check(bad(base=base, last=last), "offset", skip=None)


def test_the_highest_offsets_that_fit():
    offsets, d = decoded(batch(records(2), 2, base=2**63 - 3), position=2**63 - 3)
    assert (offsets, d.error, d.next_offset) == ([2**63 - 3, 2**63 - 2], None, 2**63 - 1)
    assert decoded(message(2**63 - 2, 0), position=0)[1].next_offset == 2**63 - 1
    assert decoded(message(2**63 - 1, 0), position=0)[1].error.kind == "offset"


def test_batches_out_of_order_and_overlapping_deliver_rising_offsets_only():
    five = batch(records(5), 5)
    offsets, d = decoded(five + batch(records(4), 4, base=3) + batch(records(3), 3, base=1) + five)
    assert (offsets, d.error, d.next_offset) == (list(range(7)), None, 7)
    assert d.stats.records_dropped == 2 + 3 + 5


def test_a_batch_below_the_position_is_skipped_by_its_header():
    rubbish = batch(b"", 3, codec=ZSTD, packed=b"rubbish")
    offsets, d = decoded(rubbish + batch(records(1), 1, base=3), position=3)
    assert (offsets, d.error, d.next_offset, d.stats.inflated_bytes) == ([3], None, 4, 0)
    # But not before its CRC.
    offsets, d = decoded(repaired(rubbish)[:-1] + b"!", position=3)
    assert d.error.kind == "crc"


# --------------------------------------------------------------------------------------- rows 30 .. 34: counts


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [-1, -(2**31), len(DATA) // 7 + 1, 2**31 - 1])
def test_a_count_that_the_bytes_cannot_hold(codec: str, count: int):
    check(bad(count=count, codec=CODECS[codec]), "count", skip=4)


@pytest.mark.parametrize("codec", CODECS)
def test_fewer_records_than_declared(codec: str):
    error = check(bad(count=3, codec=CODECS[codec], last=2), "count", skip=5, delivered=2, after=b"")
    assert error.record_index == 2


@pytest.mark.parametrize("codec", CODECS)
def test_more_records_than_declared(codec: str):
    """The last one counted is not trusted either."""
    check(bad(count=1, codec=CODECS[codec]), "count", skip=4)
    check(bad(records(3), 2, codec=CODECS[codec], last=2), "count", skip=5, delivered=1, after=b"")
    check(bad(DATA + b"\0", 2, codec=CODECS[codec]), "count", skip=4, delivered=1)


@pytest.mark.parametrize("codec", CODECS)
def test_no_records_declared_but_bytes_there(codec: str):
    check(bad(count=0, codec=CODECS[codec]), "count", skip=4)


def test_records_declared_but_no_bytes():
    check(bad(b"", 2), "count", skip=4)
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        check(bad(codec=codec, packed=b""), "inflate", skip=4)
        check(bad(b"", 2, codec=codec), "count", skip=4)  # a good payload of nothing


@pytest.mark.parametrize("codec", range(8))
def test_an_empty_batch_needs_no_decompressor(codec: int):
    accepted(bad(b"", 0, codec=codec, packed=b""), ())


# --------------------------------------------------------------------------------------- rows 46 .. 53: records


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "second",
    [
        record(1, length=-1), record(1, length=-(2**31)), *(record(1, length=n) for n in range(6)), record(1, length=100),
        record(1, length=2**31 - 1), record(1, length=9), record(1, length=11) + b"\0", record(1, tail=b"\0"),
        padded(9, 6) + record(1)[1:], b"\x92\x80\x80\x80\x10" + record(1)[1:], b"\x80" * 12,
        zigzag(19) + b"\0" + padded(0, 11) + record(1)[3:], zigzag(18) + b"\0" + b"\x80" * 9 + b"\x02" + record(1)[3:],
        record(1, key_length=100), record(1, key_length=2**31 - 1),
        record(1, value_length=100), record(1, value_length=2**31 - 1),
        record(1, key=None, value=None, key_length=1), record(1)[:-1] + b"\x80",
        record(1, header_count=-1), record(1, header_count=1), record(1, header_count=2**31 - 1), record(1, header_count=2**30),
        record(1, headers=[(b"h", b"v")], header_count=0), record(1, headers=[(b"h", b"v")], header_count=2),
        record(1, headers=[(None, b"v")]), record(1, headers=[(b"h", b"v")])[:-2] + b"\x63v",
        record(-1), record(-(2**31)), record(3), record(2**31 - 1),
    ],
)  # fmt: skip
def test_a_record_that_is_none(codec: str, second: bytes):
    """The one before it is delivered, whether compressed or not; the batch's end is where to go on."""
    payload = record(0) + second
    error = check(bad(payload, 2, codec=CODECS[codec], last=2), "record", skip=5, delivered=1, after=b"")
    assert error.record_index == 1


def test_a_record_that_ends_the_payload_early_is_not_read_beyond_it():
    first = record(0, value=b"so long that two records could be here")
    for second in (b"\x02", b"\x80", b"\x92\x80\x80", b"\x0c\0\0\0\x01\x01", record(1)[:-1]):
        check(bad(first + second, 2), "record", skip=4, delivered=1)


def test_header_keys_are_bytes_and_lengths_below_minus_1_are_null():
    odd = b"\xff\xc3x\xed\xa0\x80"
    d = accepted(bad(record(0, headers=[(odd, None)]) + record(1, headers=[(b"", b"")])))
    assert d.blocks[0].headers()[2:4] == [[(odd.decode("utf-8", "surrogateescape"), None)], [("", b"")]]
    nulls = record(0, key=None, key_length=-2, value=None, value_length=-(2**31))
    with_header = record(1, headers=[(b"h", None)])
    with_header = with_header[:-1] + zigzag(-7)
    d = accepted(bad(nulls + with_header))
    assert d.stats.null_lengths == 3
    assert (d.blocks[0].keys()[2], d.blocks[0].values()[2], d.blocks[0].headers()[3]) == (None, None, [("h", None)])


def test_record_attributes_and_unused_batch_attributes_are_ignored():
    accepted(bad(record(0, attributes=255) + record(1, attributes=7)))
    d = accepted(bad(attributes=0xFFC0))  # bit 6, and 7 to 15
    assert d.blocks[0].timestamp_types.tolist() == [0] * 5


def test_offset_deltas_that_repeat_or_fall_are_dropped_and_counted():
    d = accepted(bad(record(0) + record(0) + record(1), 3))
    assert d.stats.records_dropped == 1
    d = accepted(bad(record(1) + record(0), 2), (3,))
    assert d.stats.records_dropped == 1
    assert d.blocks[0].offsets.tolist() == [0, 1, 3, 4]


def test_offset_delta_above_the_last_keeps_what_lies_between():
    """Going on at 7 would lose 3 to 6."""
    check(bad(record(0) + record(5), 2, last=1), "record", skip=4, delivered=1)


def test_timestamps_wrap_and_log_append_time_is_the_batch_s():
    d = accepted(bad(record(0, time=2**63 - 1) + record(1, time=-(2**63)), times=(2**63 - 1, 0)))
    assert d.blocks[0].timestamps.tolist()[2:4] == [-2, -1]
    d = accepted(bad(record(0, time=2**63 - 1) + record(1), times=(-1, 77), attributes=LOG_APPEND))
    assert d.blocks[0].timestamps.tolist()[2:4] == [77, 77]


# --------------------------------------------------------------------------------------- rows 54, 55: transactions

MARKER = CONTROL | TRANSACTIONAL


@pytest.mark.parametrize(
    "key", [None, b"\0\0\0", b"\xff\xff\0\0", b"\x80\0\0\1"], ids=["null", "short", "version -1", "version min"]
)
def test_a_malformed_marker_is_an_error_under_read_committed_only(key: bytes | None):
    entry = control(base=2, key=key)
    check(entry, "marker", skip=3, isolation="read_committed")
    accepted(entry, (), 3)


@pytest.mark.parametrize("payload", [b"\x80\x80", b"\0" * 9, b"\x12\0\0\0\x08\0"], ids=["cut", "zeros", "key past the end"])
def test_a_marker_that_is_no_record(payload: bytes):
    entry = batch(payload, 1, base=2, attributes=MARKER, producer=7)
    check(entry, "marker", skip=3, isolation="read_committed")
    accepted(entry, (), 3)


def test_control_batches_that_say_nothing_are_passed_over():
    for entry in (
        control(9, base=2), control(-1, base=2), control(base=2, key=b"\0\1\0\0more"),
        batch(b"", 0, base=2, attributes=MARKER, producer=7),
        batch([record(key=b"\0\0\0\1"), record(1, key=b"\0\0\0\0")], base=2, last=0, attributes=MARKER, producer=7),
        batch([record(key=b"\0\0\0\1")], base=2, attributes=MARKER, producer=7, codec=GZIP),
        batch([record(key=b"\0\0\0\1")], base=2, attributes=CONTROL, producer=7), control(base=2, producer=-1, key=None),
    ):  # fmt: skip
        for isolation in ("read_committed", "read_uncommitted"):
            accepted(entry, (), 3, isolation=isolation)


def committed(data: bytes, aborted: Any, **arguments: Any) -> list[int]:
    offsets, d = decoded(data, isolation="read_committed", aborted=aborted, **arguments)
    assert d.error is None
    return offsets


def test_only_an_abort_marker_of_its_own_producer_ends_a_transaction():
    others = [control(1, base=1), control(0, base=1, producer=8), control(9, base=1)]
    for marker, last in ((control(0, base=1), [2]), *((other, []) for other in others)):
        assert committed(txn(0) + marker + txn(2), [(7, 0)]) == last
    compressed = batch([record(key=b"\0\0\0\0")], base=1, attributes=MARKER, producer=7, codec=ZSTD)
    assert committed(txn(0) + compressed + txn(2), [(7, 0)]) == [2]


@pytest.mark.parametrize(
    "aborted",
    [
        [(7, 3), (7, 0)],
        [(7, 0), (7, 3)],
        [(8, 99), (7, 3), (-1, 0), (7, 0), (-5, -9)],
        [(7, 0), (7, 0), (7, 3)],
        iter([(7, 0), (7, 3)]),
    ],
    ids=["unsorted", "sorted", "strays", "repeated", "iterator"],
)
def test_the_aborted_list_is_sorted_and_strays_do_nothing(aborted: Any):
    data = txn(0) + control(0, base=1) + batch([record()], base=2) + txn(3) + control(0, base=4) + txn(5)
    assert committed(data, aborted) == [2, 5]


def test_a_list_of_very_many_entries():
    many = [(producer, 5) for producer in range(100, 200_100)]
    assert committed(txn(0) + txn(1, 50_000) + txn(9, 50_000) + txn(10), many) == [0, 1, 10]


def test_an_entry_counts_from_its_first_offset_on():
    assert committed(txn(0) + control(1, base=1) + txn(2), [(7, 2)]) == [0]
    wide = batch(records(4), 4, base=0, attributes=TRANSACTIONAL, producer=7)
    assert committed(wide, [(7, 3)]) == []  # compared with the batch's last offset
    assert committed(wide, [(7, 4)]) == [0, 1, 2, 3]


def test_a_producer_id_of_minus_1_is_in_no_transaction():
    assert committed(batch(records(2), 2, attributes=TRANSACTIONAL), [(-1, 0)]) == [0, 1]


def test_bad_arguments_are_refused_by_name():
    for arguments, text in (
        ({"isolation": "read-committed"}, "isolation"), ({"position": -1}, "position"), ({"threads": 0}, "threads"),
        ({"max_batch_bytes": 0}, "max_batch_bytes"), ({"max_batch_bytes": 1 << 31}, "max_batch_bytes"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=text):
            fastfetch.decode(b"", **arguments)
    with pytest.raises(TypeError):
        fastfetch.decode("text")  # type: ignore[arg-type]
