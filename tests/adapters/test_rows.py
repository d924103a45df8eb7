"""Rows of other clients' shape against those clients' own decoders."""

from __future__ import annotations

import collections
import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.consumer.fetcher import ConsumerRecord
from kafka.record import MemoryRecords, MemoryRecordsBuilder

import fastfetch
from fastfetch.adapters import rows

PLAIN, GZIP = 0, 1


def built(magic: int, codec: int = PLAIN, offset: int = 1) -> bytes:
    builder = MemoryRecordsBuilder(magic, codec, 1 << 20, offset=offset)
    for i in range(40):
        headers = [("plain", b"x" * i), ("näme", None), ("", b"")] if magic == 2 and i % 3 else []
        key = None if i % 4 == 0 else b"key%d" % i
        value = None if i % 5 == 0 else b"value" * (i * 40)
        assert builder.append(1_700_000_000_000 + i * i, key, value, headers) is not None
    builder.close()
    return bytes(builder.buffer())


def by_the_peer(data: bytes) -> tuple[list[ConsumerRecord], int]:
    """The records as kafka-python makes them, and their size as it counts it."""
    out = []
    size = 0
    for batch in MemoryRecords(data):
        for r in batch:
            size += r.size_in_bytes
            header_size = sum(len(k.encode()) + len(v or b"") for k, v in r.headers) if r.headers else -1
            sizes = [-1 if part is None else len(part) for part in (r.key, r.value)]
            epoch = batch.leader_epoch if batch.magic == 2 else -1
            kept = (r.offset, r.timestamp, r.timestamp_type, r.key, r.value, r.headers, r.checksum)
            out.append(ConsumerRecord("t", 3, epoch, *kept, *sizes, header_size))
    return out, size


def blocks(data: bytes) -> list[fastfetch.RecordBlock]:
    return fastfetch.decode(data, topic="t", partition=3).blocks


@pytest.mark.parametrize("codec", [PLAIN, GZIP])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_records_are_those_of_kafka_python(magic: int, codec: int) -> None:
    data = built(magic, codec)
    expected, size = by_the_peer(data)
    (block,) = blocks(data)
    found = rows.named_tuples(block, ConsumerRecord, "t")
    assert found == expected
    assert {type(record) for record in found} == {ConsumerRecord}
    assert rows.serialized_bytes(block) == size


@pytest.mark.parametrize("codec", [PLAIN, GZIP])
@pytest.mark.parametrize("magics", [(0, 1, 2), (2, 1, 2), (1, 2, 0, 2, 2, 1), (2, 2, 0, 1)])
def test_blocks_of_mixed_formats_know_which_row_is_of_which(magics: tuple[int, ...], codec: int) -> None:
    data = b"".join(built(magic, codec, offset) for offset, magic in zip(range(1, 1001, 100), magics, strict=False))
    expected, size = by_the_peer(data)
    found = blocks(data)
    assert [r for block in found for r in rows.named_tuples(block, ConsumerRecord, "t")] == expected
    assert sum(map(rows.serialized_bytes, found)) == size
    parts = [block[at : at + 7].detach() for block in found for at in range(0, len(block), 7)]
    assert [r for part in parts for r in rows.named_tuples(part, ConsumerRecord, "t")] == expected


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("cut", [slice(0, 1), slice(7, 19), slice(39, 40), slice(5, 5)])
def test_slices_and_detached_blocks_give_their_rows(magic: int, cut: slice) -> None:
    expected, _ = by_the_peer(built(magic))
    part = blocks(built(magic))[0][cut]
    assert rows.named_tuples(part, ConsumerRecord, "t") == expected[cut]
    assert rows.named_tuples(part.detach(), ConsumerRecord, "t") == expected[cut]
    assert rows.serialized_bytes(part.detach()) == rows.serialized_bytes(part)
    assert len(part.detach().detach().data) == len(part.detach().data)


def test_deserializers_see_topic_headers_and_null() -> None:
    seen: list[tuple[Any, ...]] = []

    def deserialize(topic: str, headers: list[Any], data: bytes | None) -> str:
        seen.append((topic, headers, data))
        return f"{data!r}"

    expected, _ = by_the_peer(built(2))
    out: list[ConsumerRecord] = []
    rows.append_named_tuples(out, blocks(built(2))[0], ConsumerRecord, "t", key=deserialize)
    rows.append_named_tuples(out, blocks(built(2))[0], ConsumerRecord, "t", value=deserialize)
    assert seen == [("t", r.headers, r.key) for r in expected] + [("t", r.headers, r.value) for r in expected]
    assert out[:40] == [r._replace(key=repr(r.key)) for r in expected]
    assert out[40:] == [r._replace(value=repr(r.value)) for r in expected]
    assert out[0].headers is seen[0][1]


def test_what_a_deserializer_raises_comes_after_the_records_before() -> None:
    def deserialize(topic: str, headers: list[Any], data: bytes | None) -> bytes | None:
        if data == b"key7":
            raise ZeroDivisionError("seven")
        return data

    out: list[ConsumerRecord] = []
    with pytest.raises(ZeroDivisionError, match="seven"):
        rows.append_named_tuples(out, blocks(built(2))[0], ConsumerRecord, "t", key=deserialize)
    assert out == by_the_peer(built(2))[0][:7]


def test_header_keys_that_are_no_utf8_keep_their_bytes() -> None:
    data = bytearray(built(2))
    at = data.index("näme".encode())
    data[at + 1 : at + 3] = b"\xff\xfe"
    (block,) = fastfetch.decode(bytes(data), check_crcs=False).blocks
    names = {name for record in rows.named_tuples(block, ConsumerRecord, "t") for name, _ in record.headers}
    assert b"n\xff\xfeme" in {name.encode("utf-8", "surrogateescape") for name in names}
    sizes = {r.serialized_header_size for r in rows.named_tuples(block, ConsumerRecord, "t")[1:2]}
    assert sizes == {len("plain") + 1 + len("näme".encode())}


@given(
    st.sampled_from([built(0), built(1), built(1, GZIP), built(2), built(2, GZIP)]),
    st.lists(st.tuples(st.integers(0, 2**32), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_rows_of_damaged_batches_stay_within_their_bytes(data: bytes, damage: list[tuple[int, int]]) -> None:
    damaged = bytearray(data)
    for at, byte in damage:
        damaged[at % len(damaged)] = byte
    for block in fastfetch.decode(bytes(damaged), check_crcs=False).blocks:
        for i, record in enumerate(rows.named_tuples(block, ConsumerRecord, "t")):
            held = len(record.key or b"") + len(record.value or b"")
            assert held < rows.serialized_bytes(block[i : i + 1]) <= len(block.data)


def test_records_are_no_work_for_the_garbage_collector() -> None:
    (record, *_) = rows.named_tuples(blocks(built(2))[0], ConsumerRecord, "t")
    assert not gc.is_tracked(record)
    assert not gc.is_tracked(record.headers)
    out: list[ConsumerRecord] = []
    rows.append_named_tuples(out, blocks(built(2))[0], ConsumerRecord, "t", value=lambda *_: {})
    assert gc.is_tracked(out[0])


@pytest.mark.parametrize("kind", [tuple, collections.namedtuple("Short", "topic partition"), dict])
def test_other_classes_are_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="ConsumerRecord"):
        rows.named_tuples(blocks(built(2))[0], kind, "t")
