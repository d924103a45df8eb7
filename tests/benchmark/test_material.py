"""What there is to read: a topic's batches as they are stored, those of segments, their shape, and pieces of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fastfetch
from fastfetch import Consumer, TopicPartition
from fastfetch.benchmark.material import Batch, Pieces, Shape, kind_of, of_log, of_topic
from fastfetch.errors import CorruptBatchError, UnknownTopicError
from fastfetch.errors import TimeoutError as TimedOut
from fastfetch.testing import Broker, control_batch, drop, encode_batch, message_set, rebase

PAYLOAD = b"some words that repeat, some words that repeat, "
LZ4 = encode_batch([PAYLOAD * 20] * 10, codec="lz4", leader_epoch=0)
PLAIN = encode_batch([PAYLOAD] * 5, leader_epoch=0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def batches_of(broker: Broker, topic: str, **settings: object) -> list[tuple[TopicPartition, bytes]]:
    with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", **settings) as consumer:
        tps = [TopicPartition(topic, partition) for partition in sorted(consumer.partitions_for(topic))]
        return [(batch.tp, bytes(batch.view)) for batch in of_topic(consumer, tps)]


def fill(broker: Broker, *batches: bytes, partitions: int = 1) -> dict[TopicPartition, list[bytes]]:
    """The batches in each partition, as they are stored there."""
    broker.create_topic("t", partitions=partitions)
    out: dict[TopicPartition, list[bytes]] = {}
    for partition in range(partitions):
        for data in batches:
            first, _ = broker.append("t", partition, data)
            out.setdefault(TopicPartition("t", partition), []).append(rebase(data, first))
    return out


@pytest.mark.parametrize("fetch_bytes", [1, len(LZ4) + len(PLAIN) // 2, 1 << 20])
def test_every_batch_of_a_topic_comes_once_and_as_it_is(broker: Broker, fetch_bytes: int) -> None:
    stored = fill(broker, *[LZ4, PLAIN] * 8, partitions=2)
    found: dict[TopicPartition, list[bytes]] = {}
    for tp, data in batches_of(broker, "t", max_partition_fetch_bytes=fetch_bytes):
        found.setdefault(tp, []).append(data)
    assert found == stored


def test_answers_that_there_was_no_room_for_are_not_counted_twice(broker: Broker) -> None:
    bomb = encode_batch([bytes(100_000)] * 20, codec="zstd", leader_epoch=0)
    stored = fill(broker, *[bomb] * 12)
    found = batches_of(broker, "t", max_buffered_bytes=3_000_000, max_partition_fetch_bytes=1 << 20)
    assert [data for _, data in found] == stored[TopicPartition("t", 0)]


def test_markers_and_what_compaction_left_are_no_obstacle(broker: Broker) -> None:
    broker.create_topic("t")
    transactional = encode_batch([b"v"], producer_id=7, producer_epoch=0, transactional=True, leader_epoch=0)
    broker.append("t", 0, transactional)
    broker.append("t", 0, control_batch("abort", producer_id=7))
    found = batches_of(broker, "t")
    assert [data for _, data in found] == [transactional], "the marker has no records; what was aborted has"


def test_the_end_is_the_one_at_the_beginning(broker: Broker) -> None:
    fill(broker, PLAIN)
    with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        for number, _ in enumerate(of_topic(consumer, [TopicPartition("t", 0)]), 1):
            broker.append("t", 0, PLAIN)
            assert number < 10
        assert number == 1


def test_an_empty_topic_has_no_batches_and_an_absent_one_is_said(broker: Broker) -> None:
    broker.create_topic("empty", partitions=3)
    assert batches_of(broker, "empty") == []
    with pytest.raises(UnknownTopicError):
        batches_of(broker, "absent")


def test_a_broker_that_falls_silent_is_said(broker: Broker) -> None:
    fill(broker, PLAIN)
    broker.on("Fetch", drop(), times=None)
    with pytest.raises(TimedOut, match=r"nothing came for 1\.5 s: t-0 is at 0 of 5"):
        batches_of(broker, "t", default_api_timeout_ms=1500)


def test_a_log_has_the_same_batches(tmp_path: Path) -> None:
    folder = tmp_path / "orders-3"
    folder.mkdir()
    first = [rebase(LZ4, 0), rebase(PLAIN, 10)]
    second = [rebase(PLAIN, 15)]
    (folder / f"{0:020}.log").write_bytes(b"".join(first))
    (folder / f"{15:020}.log").write_bytes(b"".join(second) + LZ4[:30])
    found = [(batch.tp, bytes(batch.view)) for batch in of_log(folder)]
    assert found == [(TopicPartition("orders", 3), data) for data in first + second]
    assert [bytes(batch.view) for batch in of_log(folder / f"{0:020}.log")] == first
    damaged = bytearray(b"".join(first))
    damaged[-1] ^= 1
    (folder / f"{0:020}.log").write_bytes(damaged)
    with pytest.raises(CorruptBatchError):
        list(of_log(folder))


def batch_of(data: bytes, partition: int = 0) -> Batch:
    [header] = fastfetch.batches(data)
    return Batch(TopicPartition("t", partition), header, memoryview(data))


def test_the_shape_of_batches() -> None:
    shape = Shape()
    assert shape.add(batch_of(LZ4)) == 10
    assert shape.add(batch_of(PLAIN)) == 5
    assert shape.add(batch_of(PLAIN, 1)) == 5
    case = shape.case("orders", "orders")
    assert (case.codec, case.partitions, case.records, case.batch_records) == ("lz4+none", 2, 20, 6.7)
    assert case.wire_bytes == len(LZ4) + 2 * len(PLAIN)
    uncompressed = len(encode_batch([PAYLOAD * 20] * 10))
    assert case.inflated_bytes == uncompressed + 2 * len(PLAIN)
    assert case.record_bytes == round(case.inflated_bytes / 20, 1)
    assert shape.case("orders", "orders", partitions=7, threads=2).partitions == 7
    assert not shape.has_append_time


def test_append_time_and_old_formats_are_seen() -> None:
    old = message_set([b"v"] * 3, magic=1, codec="gzip")
    shape = Shape()
    assert shape.add(batch_of(old)) == 3
    [(kind, share)] = shape.shares.items()
    assert (kind, share.batches) == ("gzip, format 1", 1)
    shape.add(batch_of(encode_batch([b"v"], log_append_time=1_700_000_000_000)))
    assert shape.has_append_time


def test_pieces_are_of_one_partition_and_kind_and_no_larger_than_they_must_be() -> None:
    pieces = Pieces(piece_bytes=2 * len(LZ4), kind_bytes=1 << 20)
    for _ in range(5):
        for partition in range(2):
            pieces.add(batch_of(LZ4, partition))
            pieces.add(batch_of(PLAIN, partition))
    found = pieces.cut()
    assert [piece.data for piece in found["lz4"]] == [LZ4 * 2] * 4 + [LZ4] * 2
    assert {(piece.codec, piece.name) for piece in found["none"]} == {("none", "t-0, none"), ("none", "t-1, none")}
    for kind, shape in pieces.shapes.items():
        assert sum(piece.records for piece in found[kind]) == shape.records
        assert sum(piece.inflated for piece in found[kind]) == shape.inflated_bytes
        assert all(fastfetch.decode(piece.data).blocks for piece in found[kind])


def test_there_is_enough_once_no_other_kind_turns_up() -> None:
    pieces = Pieces(piece_bytes=1, kind_bytes=2 * len(PLAIN))
    added = 0
    while not pieces.has_enough:
        pieces.add(batch_of(PLAIN))
        added += 1
    assert added == 2 + 2, "as much as was taken was passed over"
    assert len(pieces.cut()["none"]) == 2
    pieces.add(batch_of(LZ4))
    assert kind_of(batch_of(LZ4).header) in pieces.cut()
