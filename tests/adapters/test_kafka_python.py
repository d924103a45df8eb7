"""The kafka-python adapter against kafka-python's own classes: the same bytes, taken in the same steps, by theirs and by ours."""

from __future__ import annotations

import collections
import json
import random
import struct
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.consumer import fetcher
from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.record import MemoryRecords, MemoryRecordsBuilder
from kafka.serializer import Deserializer
from kafka.structs import TopicPartition

from fastfetch.adapters import kafka_python as adapter
from fastfetch.errors import CorruptBatchError
from fastfetch.testing import Row, control_batch, encode_batch, message_set, patch, repair_crc

THEIRS = fetcher.Fetcher.PartitionRecords
TP = TopicPartition("orders", 3)
ROWS = [
    Row(b"k0", b"v0", headers=[("h", b"x"), ("empty", None), ("ü", b"")]),
    Row(None, b"v1" * 300),
    Row(b"k2", None),
    Row(b"", b""),
]
Aborted = collections.namedtuple("Aborted", ["producer_id", "first_offset"])  # 3.x asks for names, 2.x for a pair
TAKES_HEADERS = adapter._TAKES_HEADERS


class Reading:
    """A partition reader, and what it told the metrics and the fetcher."""

    def __init__(self, reader: Any, decoder: Any, data: bytes, offset: int = 0, **settings: Any) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.part = reader(offset, TP, decoder(data), metric_aggregator=self, on_drain=self.drained, **settings)

    def record(self, *what: Any) -> None:
        self.told.append(what)

    def drained(self, part: Any) -> None:
        self.told.append(("drained", part is self.part))

    def take(self, n: int | None = None) -> tuple[Any, ...]:
        """Records or the class of what was raised, and all that the fetcher looks at afterwards."""
        try:
            got: Any = self.part.take(n)
        except Exception as error:
            got = type(error)
        part = self.part
        return got, part.next_fetch_offset, part.leader_epoch, part.bytes_read, part.records_read, bool(part), list(self.told)


def theirs(data: bytes, offset: int = 0, **settings: Any) -> Reading:
    return Reading(THEIRS, MemoryRecords, data, offset, **settings)


def ours(data: bytes, offset: int = 0, **settings: Any) -> Reading:
    return Reading(adapter.PartitionRecords, adapter.MemoryRecords, data, offset, **settings)


def mixed(data: bytes, offset: int = 0, **settings: Any) -> Reading:
    """Their reader over our batches and records: the decoder seam."""
    return Reading(THEIRS, adapter.MemoryRecords, data, offset, **settings)


def same(data: bytes, takes: Sequence[int | None] = (None, None), **settings: Any) -> list[Any]:
    """The records, once it is proved that all three give them in the same steps."""
    readings = theirs(data, **settings), ours(data, **settings), mixed(data, **settings)
    records = []
    for n in takes:
        if not readings[0].part:
            break
        expected, *others = (reading.take(n) for reading in readings)
        if isinstance(expected[0], type):  # what they do after an error is a case of its own; no position is made of its epoch
            assert [found[:2] + found[3:] for found in others] == [expected[:2] + expected[3:]] * 2
            break
        assert others == [expected, expected]
        records += expected[0]
    return records


def built(magic: int, codec: int, records: int = 30, offset: int = 0) -> bytes:
    """What kafka-python's own producer writes."""
    builder = MemoryRecordsBuilder(magic, codec, 1 << 20, offset=offset)
    for i in range(records):
        headers = [("trace", b"%d" % i)] if magic == 2 and i % 2 else []
        assert builder.append(1_700_000_000_000 + 7 * i, b"k%d" % i if i % 3 else None, b"v" * i if i % 5 else None, headers)
    builder.close()
    return bytes(builder.buffer())


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_all_formats_and_codecs(magic: int, codec: int) -> None:
    if magic < 2 and codec == 4:
        pytest.skip("there is no zstd in the old formats")
    data = built(magic, codec) + built(magic, codec, offset=30)
    assert len(same(data, [1, 7, 22, 3, 500, 500])) == 60
    assert len(same(data)) == 60


def test_records_are_their_class_and_lists_of_their_own() -> None:
    first, second = ours(encode_batch(ROWS[1:3])).part.take()
    assert type(first) is fetcher.ConsumerRecord
    assert first.headers == second.headers == []
    assert first.headers is not second.headers


def test_sizes_and_checksums_of_the_old_formats() -> None:
    for magic in (0, 1):
        records = same(message_set([(b"k", b"value"), (None, None)], magic=magic))
        assert [(r.serialized_key_size, r.serialized_value_size, r.serialized_header_size) for r in records] == [
            (1, 5, -1),
            (-1, -1, -1),
        ]
        assert all(isinstance(r.checksum, int) for r in records)
        assert [r.timestamp is None for r in records] == [magic == 0] * 2


TRANSACTIONS = [
    encode_batch(ROWS[:2], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True, leader_epoch=1),
    encode_batch(ROWS[2:], base_offset=2, producer_id=8, producer_epoch=0, base_sequence=0, transactional=True, leader_epoch=1),
    control_batch("abort", producer_id=7, base_offset=4, leader_epoch=1),
    encode_batch(ROWS, base_offset=5, leader_epoch=2),
    encode_batch(ROWS[:1], base_offset=9, producer_id=7, producer_epoch=0, base_sequence=2, transactional=True, leader_epoch=2),
    control_batch("commit", producer_id=7, base_offset=10, leader_epoch=3),
    control_batch("commit", producer_id=8, base_offset=11, leader_epoch=4),
]


@pytest.mark.parametrize("step", [1, 2, 3, 500, None])
@pytest.mark.parametrize(
    ("settings", "offsets"),
    [
        ({}, [0, 1, 2, 3, 5, 6, 7, 8, 9]),
        ({"isolation_level": 1, "aborted_transactions": None}, [0, 1, 2, 3, 5, 6, 7, 8, 9]),
        ({"isolation_level": 1, "aborted_transactions": [Aborted(7, 0)]}, [2, 3, 5, 6, 7, 8, 9]),
        ({"isolation_level": 1, "aborted_transactions": [Aborted(8, 2), Aborted(7, 0)]}, [5, 6, 7, 8, 9]),
        ({"isolation_level": 0, "aborted_transactions": [Aborted(7, 0)]}, [0, 1, 2, 3, 5, 6, 7, 8, 9]),
    ],
)
def test_transactions(settings: dict[str, Any], offsets: list[int], step: int | None) -> None:
    records = same(b"".join(TRANSACTIONS), [step] * 20, **settings)
    assert [r.offset for r in records] == offsets


def test_plain_pairs_of_2_x_are_aborted_transactions_too() -> None:
    reading = ours(b"".join(TRANSACTIONS), isolation_level=1, aborted_transactions=[(7, 0)])
    assert [r.offset for r in reading.part.take()] == [2, 3, 5, 6, 7, 8, 9]


def test_aborted_transactions_are_known_over_several_decodings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "_DECODE_BYTES", 1)  # a batch at a time
    test_transactions({"isolation_level": 1, "aborted_transactions": [Aborted(8, 2), Aborted(7, 0)]}, [5, 6, 7, 8, 9], 2)
    same(b"".join(TRANSACTIONS), [2] * 9)


def test_a_compacted_tail_moves_the_position_when_more_is_asked_for() -> None:
    data = encode_batch(ROWS, deltas=[0, 1, 2, 5], last_offset_delta=9, leader_epoch=4) + encode_batch(
        (), base_offset=10, last_offset_delta=9, leader_epoch=5
    )
    reading = ours(data)
    assert reading.take(4)[1:3] == (6, 4)
    assert reading.take(4) == ([], 20, 5, reading.part.bytes_read, 4, False, reading.told)
    same(data, [4, 4])
    same(data, [3, 500])


@pytest.mark.parametrize("cut", [1, 11, 12, 30, 60, 61, 62, 75])
def test_a_batch_cut_off_at_the_end_is_not_there(cut: int) -> None:
    good = encode_batch(ROWS)
    assert len(same(good + encode_batch(ROWS, base_offset=4)[:cut])) == 4
    records = adapter.MemoryRecords(good[:cut])
    assert (records.has_next(), records.size_in_bytes(), records.valid_bytes()) == (False, cut, 0)


def test_no_bytes() -> None:
    assert same(b"", [5]) == []
    assert not adapter.MemoryRecords(None).has_next()


def test_the_fetcher_may_ask_the_record_set_after_the_reader_was_made() -> None:
    records = adapter.MemoryRecords(encode_batch(ROWS))
    adapter.PartitionRecords(0, TP, records)
    assert records.has_next()


def test_records_below_the_position_are_left_out_and_do_not_count() -> None:
    data = encode_batch(ROWS, leader_epoch=2) + encode_batch(ROWS, base_offset=4, leader_epoch=3)
    for offset in range(8):
        (expected, *moved), found = theirs(data, offset).take(2), ours(data, offset).take(2)
        assert (found[0], found[1:3]) == (expected, tuple(moved[:2]))
        assert found[4] == len(found[0])
    seen: list[Any] = []
    value = wrapped(seen.append)
    ours(data, 3, value_deserializer=value).take(2)
    assert seen == [ROWS[3].value, ROWS[0].value]


def corrupt(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


@pytest.mark.parametrize(
    ("bad", "theirs_raises", "ours_raises"),
    [
        (corrupt(encode_batch(ROWS, base_offset=4)), CorruptRecordError, "CRC"),
        (message_set([b"v"], base_offset=4, magic=1)[:-1] + b"x", CorruptRecordError, "CRC"),
        (encode_batch(codec=5, payload=b"x", base_offset=4, count=1, leader_epoch=1), UnsupportedCodecError, "odec"),
        (encode_batch(ROWS, base_offset=4, count=3), None, "ecord"),
        (struct.pack(">qi", 4, 5) + bytes(5), CorruptRecordError, "ength"),
        (patch(encode_batch(ROWS, base_offset=4), magic=3), None, "agic"),
    ],
    ids=["crc", "old-crc", "codec", "count", "length", "magic"],
)
def test_errors_are_theirs_after_the_good_records_and_from_ours(
    bad: bytes, theirs_raises: type[Exception] | None, ours_raises: str
) -> None:
    good = encode_batch(ROWS, leader_epoch=1)
    reading = ours(good + bad)
    taken = reading.take(10)
    assert (taken[0][:4], taken[1:3]) == (ours(good).part.take(), (taken[0][-1].offset + 1, 1 if len(taken[0]) == 4 else -1))
    for _ in range(3):  # as long as nobody seeks
        with pytest.raises(theirs_raises or CorruptRecordError, match=ours_raises) as caught:
            reading.part.take(10)
        assert isinstance(caught.value.__cause__, CorruptBatchError)
        assert "orders-3" in str(caught.value)
    assert reading.part
    assert reading.told == []
    if theirs_raises:  # else they read more of the bad batch
        same(good + bad, [4, 10])
        assert same(good + bad, [10, 10])[:4] == taken[0][:4]
    reading.part.drain()
    assert reading.told == [(TP, reading.part.bytes_read, reading.part.records_read), ("drained", True)]


def test_an_error_before_any_record_is_raised_at_once() -> None:
    for make in (theirs, ours, mixed):
        assert make(corrupt(encode_batch(ROWS))).take(5)[:2] == (CorruptRecordError, 0)


def test_crcs_need_not_be_checked() -> None:
    data = corrupt(encode_batch([*ROWS, Row(None, b"last")]))
    data = repair_crc(data)
    data = data[:17] + b"\0\0\0\0" + data[21:]
    assert theirs(data).take()[0] is CorruptRecordError
    assert same(data, check_crcs=False) != []


def test_header_keys_that_are_no_utf8() -> None:
    data = encode_batch([Row(None, b"v", headers=[(b"a\xff", b"1")])])
    assert theirs(data).take()[0] is CorruptRecordError
    [record] = ours(data).part.take()
    assert [name.encode("utf-8", "surrogateescape") for name, _ in record.headers] == [b"a\xff"]
    assert record.serialized_header_size == 3
    [record] = mixed(data).part.take()
    assert record.headers == [("a\ufffd", b"1")]


# --- deserializers ----------------------------------------------------------------------------------------------------


def wrapped(function: Callable[[bytes | None], Any]) -> Any:
    """A plain function as the fetcher hands it to the reader: 3.x wraps it."""
    return fetcher.DeserializeWrapper(function) if TAKES_HEADERS else function


class OldForm(Deserializer):
    def deserialize(self, topic: str, data: bytes | None) -> Any:  # type: ignore[override]
        return topic, data


class NewForm(Deserializer):
    def deserialize(self, topic: str, headers: Any, data: bytes | None) -> Any:
        return topic, headers, data


@pytest.mark.parametrize("form", [OldForm, NewForm] if TAKES_HEADERS else [OldForm])
def test_deserializers_of_each_form_are_called_for_null_too(form: type[Deserializer]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        records = same(encode_batch(ROWS), [3, None], key_deserializer=form(), value_deserializer=form())
    assert [r.value[-1] for r in records] == [row.value for row in ROWS]
    assert records[2].serialized_value_size == -1


@pytest.mark.skipif(not TAKES_HEADERS, reason="2.x has only the old form")
def test_the_old_form_is_said_to_be_old() -> None:
    with pytest.warns(DeprecationWarning, match=r"deserialize\(topic, headers, data\)"):
        ours(encode_batch(ROWS[:1]), value_deserializer=OldForm()).part.take()


def test_functions_are_called_for_null_too() -> None:
    def load(data: bytes | None) -> Any:
        return None if data is None else json.loads(data)

    values = [b'{"a": [1]}', None, b"17"]
    records = same(encode_batch(values), value_deserializer=wrapped(load), key_deserializer=wrapped(lambda data: data))
    assert [r.value for r in records] == [{"a": [1]}, None, 17]
    assert records[0].serialized_value_size == 10


def test_what_a_deserializer_raises_comes_after_the_records_before_and_then_that_record_is_tried_again() -> None:
    def load(data: bytes | None) -> Any:
        if data == ROWS[2].value and broken:
            raise ZeroDivisionError("in the deserializer")
        return data

    broken = [True]
    data = encode_batch(ROWS)
    for takes in ([4, 4], [1, 1, 1], [None, None]):
        same(data, takes, value_deserializer=wrapped(load))
    reading = ours(data, value_deserializer=wrapped(load))
    assert reading.take(10)[:2] == (ours(data).part.take(2), 2)
    for _ in range(2):
        assert reading.take(10)[:2] == (ZeroDivisionError, 2)
    broken.clear()
    assert [r.offset for r in reading.part.take(10)] == [2, 3]


def test_a_function_that_raises_type_error_is_not_taken_for_an_old_form() -> None:
    reading = ours(encode_batch([b"1", None]), value_deserializer=wrapped(json.loads))
    assert [r.value for r in reading.part.take()] == [1]
    with pytest.raises(TypeError, match="JSON object must be"):  # theirs: of an argument that they left out
        reading.part.take()


def test_what_a_deserializer_raised_once_is_not_kept_from_the_caller() -> None:
    def load(data: bytes | None) -> Any:
        if data == ROWS[2].value and broken:
            broken.pop()
            raise ConnectionError("no schema registry")
        return data

    for make in (theirs, ours):
        broken = [True]
        reading = make(encode_batch(ROWS), value_deserializer=wrapped(load))
        assert len(reading.part.take()) == 2
        with pytest.raises(ConnectionError):
            reading.part.take()
    assert [r.offset for r in reading.part.take()] == [2, 3]


def test_an_interrupt_in_a_deserializer_leaves_a_position_that_the_fetcher_drops() -> None:
    def load(data: bytes | None) -> Any:
        if data == ROWS[2].value:
            raise KeyboardInterrupt
        return data

    for make in (theirs, ours):  # the position is not where the consumer's is: the rest is fetched again
        reading = make(encode_batch(ROWS), value_deserializer=wrapped(load))
        with pytest.raises(KeyboardInterrupt):
            reading.part.take(10)
        assert reading.part.next_fetch_offset == 2


# --- drain ------------------------------------------------------------------------------------------------------------


def test_drain_tells_once_and_nothing_comes_after() -> None:
    for make in (theirs, ours):
        reading = make(encode_batch(ROWS))
        reading.take(2)
        told = [(TP, reading.part.bytes_read, 2), ("drained", True)]
        reading.part.drain()
        reading.part.drain()
        assert (reading.told, bool(reading.part), reading.part.next_fetch_offset) == (told, False, 2)
    assert reading.part.take(3) == []
    assert reading.part.next_fetch_offset == 2


def test_the_records_can_be_iterated_over() -> None:
    data = encode_batch(ROWS)
    assert list(ours(data).part.record_iterator) == list(theirs(data).part.record_iterator)
    drained = ours(data)
    drained.take()
    assert drained.part.record_iterator is None


# --- any bytes, any steps ---------------------------------------------------------------------------------------------


@st.composite
def record_sets(draw: st.DrawFn) -> tuple[bytes, list[Aborted]]:
    """Batches as a broker of any age would store them, and transactions that may have been aborted."""
    out = b""
    offset = draw(st.integers(0, 5))
    epoch = 0
    aborted = []
    for kind in draw(st.lists(st.sampled_from(["old", "plain", "gzip", "lz4", "transaction", "marker", "empty"]), max_size=6)):
        count = draw(st.integers(1, 5))
        rows = [Row(draw(st.sampled_from([None, b"k"])), draw(st.sampled_from([None, b"", b"value"]))) for _ in range(count)]
        epoch += draw(st.integers(0, 1))
        where: dict[str, Any] = {"base_offset": offset, "leader_epoch": epoch}
        producer = {"producer_id": draw(st.integers(1, 2)), "producer_epoch": 0}
        if kind == "old" and not out:
            out = message_set(rows, magic=draw(st.integers(0, 1)), base_offset=offset)
            offset += count
        elif kind == "marker":
            out += control_batch(draw(st.sampled_from(["abort", "commit"])), **producer, **where)
            offset += 1
        elif kind == "empty":
            out += encode_batch((), last_offset_delta=count, **where)
            offset += count + 1
        else:
            more: dict[str, Any] = {"codec": kind} if kind in ("gzip", "lz4") else {}
            if kind == "transaction":
                more = {**producer, "base_sequence": 0, "transactional": True}
                if draw(st.booleans()):
                    aborted.append(Aborted(producer["producer_id"], offset))
            gaps = sorted(random.Random(offset).sample(range(2 * count), count))
            out += encode_batch(rows, deltas=gaps, last_offset_delta=2 * count - 1, **where, **more)
            offset += 2 * count
    return out, aborted


@given(record_sets(), st.lists(st.integers(1, 7), min_size=1, max_size=12), st.booleans(), st.integers(0, 1))
def test_any_record_set_in_any_steps(made: tuple[bytes, list[Aborted]], takes: list[int], small: bool, isolation: int) -> None:
    data, aborted = made
    with pytest.MonkeyPatch.context() as patched:
        if small:
            patched.setattr(adapter, "_DECODE_BYTES", 1)
        records = same(data, [*takes, None, None], isolation_level=isolation, aborted_transactions=aborted)
    assert all(a.offset < b.offset for a, b in pairwise(records))


# --- batches ----------------------------------------------------------------------------------------------------------


BATCH_PROPERTIES = """
    magic base_offset last_offset last_offset_delta next_offset leader_epoch size_in_bytes crc attributes compression_type
    timestamp_type first_timestamp max_timestamp producer_id producer_epoch base_sequence is_transactional is_control_batch
    records_count
"""


def test_batches_say_what_theirs_say() -> None:
    data = b"".join(TRANSACTIONS) + encode_batch(ROWS, base_offset=12, codec="gzip", log_append_time=5)
    for expected, found in zip(MemoryRecords(data), adapter.MemoryRecords(data), strict=True):
        for name in BATCH_PROPERTIES.split():
            assert getattr(found, name) == getattr(expected, name), name
        assert found.has_producer_id() == expected.has_producer_id()
        assert found.validate_crc()
    for magic in (0, 1):
        data = built(magic, 0, records=1)
        expected, found = next(MemoryRecords(data)), next(adapter.MemoryRecords(data))
        for name in ("magic", "base_offset", "size_in_bytes", "compression_type", "timestamp_type"):
            assert getattr(found, name) == getattr(expected, name)


def test_control_records() -> None:
    for kind, version in (("abort", 0), ("commit", 3)):
        data = control_batch(kind, producer_id=7, version=version)
        expected, found = (next(next(records)) for records in (MemoryRecords(data), adapter.MemoryRecords(data)))
        for name in ("version", "type", "abort", "commit", "offset", "key", "value", "timestamp", "size_in_bytes"):
            assert getattr(found, name) == getattr(expected, name)


def test_an_empty_control_batch_has_no_marker_and_does_not_stop_a_generator() -> None:
    data = patch(encode_batch((), last_offset_delta=0, producer_id=7, transactional=True, control=True), base_offset=4)
    batch = next(adapter.MemoryRecords(data))
    assert next(batch) is None
    assert list(batch) == []


def test_a_record_set_is_read_once_and_says_what_is_left() -> None:
    first, second = encode_batch(ROWS), encode_batch(ROWS, base_offset=4)
    records = adapter.MemoryRecords(first + second + second[:20])
    assert (records.size_in_bytes(), records.valid_bytes()) == (len(first + second) + 20, len(first + second))
    assert records.next_batch().base_offset == 0
    assert [r.offset for r in adapter.PartitionRecords(0, TP, records).take()] == [4, 5, 6, 7]
    assert records.next_batch().base_offset == 4
    assert (records.has_next(), records.next_batch(), list(records)) == (False, None, [])
    assert bytes(records.unread()) == b""


def test_a_length_that_makes_no_sense_is_raised_again_and_again() -> None:
    good = encode_batch(ROWS)
    for make in (MemoryRecords, adapter.MemoryRecords):
        records = make(good + struct.pack(">qi", 4, 5) + bytes(5))
        assert records.next_batch().magic == 2
        for _ in range(2):
            assert records.has_next()
            with pytest.raises(CorruptRecordError):
                records.next_batch()
    assert records.valid_bytes() == len(good)
