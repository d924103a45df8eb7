"""The log's start moves past the position of a consumer that reads: each policy does what it says, and says what it does."""

from __future__ import annotations

import logging
import time

import confluent_kafka
import pytest

import fastfetch
from fastfetch import TopicPartition
from tests.live.conftest import SECONDS, Kafka, Sent, poll_for_error, read_to_end, sent, wait_for

COUNT = 2_000
DELETED = 1_500
RECENT = 1_700  # the first record that is less than an hour old
# So little that most of the log is still to be fetched when its start moves.
LITTLE = {"max_buffered_bytes": 64 << 10, "max_partition_fetch_bytes": 16 << 10, "max_poll_records": 10}


@pytest.fixture
def log(kafka: Kafka) -> tuple[TopicPartition, list[Sent]]:
    topic = kafka.topic("passed")
    now = int(time.time() * 1000)
    hours = [now - 7_200_000 if i < RECENT else now - 600_000 for i in range(COUNT)]
    produced = kafka.produce(topic, [Sent(b"%d" % i, bytes(1000), [], hours[i]) for i in range(COUNT)], batch=5)
    return TopicPartition(topic, 0), produced


def delete_records(kafka: Kafka, tp: TopicPartition) -> None:
    [deleted] = kafka.admin.delete_records([confluent_kafka.TopicPartition(*tp, DELETED)]).values()
    deleted.result(SECONDS)


def read_some(consumer: fastfetch.Consumer, tp: TopicPartition) -> list[int]:
    consumer.assign([tp])
    consumer.seek(tp, 100)
    read: list[int] = []
    while not read:
        read = [record.offset for record in consumer.poll(timeout_ms=500).get(tp, [])]
    return read


@pytest.mark.parametrize(
    ("policy", "goes_on_at"), [("earliest", DELETED), ("latest", COUNT), ("by_duration:PT1H", RECENT)], ids=lambda v: str(v)[:8]
)
def test_the_policy_decides(
    kafka: Kafka, log: tuple[TopicPartition, list[Sent]], policy: str, goes_on_at: int, caplog: pytest.LogCaptureFixture
) -> None:
    tp, produced = log
    with (
        caplog.at_level(logging.INFO, "fastfetch"),
        fastfetch.Consumer(bootstrap_servers=kafka.servers, auto_offset_reset=policy, **LITTLE) as consumer,
    ):
        read = read_some(consumer, tp)
        delete_records(kafka, tp)
        offsets = [*read, *(record.offset for record in sent(read_to_end(consumer, tp)))]
        assert consumer.position(tp) == COUNT
        # What had been read ahead is delivered; then the rest of the log, without a gap on either side.
        kept = [offset for offset in offsets if offset < DELETED]
        assert kept == list(range(100, kept[-1] + 1))
        assert offsets[len(kept) :] == list(range(goes_on_at, COUNT))
        after = kafka.produce(tp.topic, [Sent(b"after", b"", [], produced[-1].timestamp)])
        assert sent(read_to_end(consumer, tp)) == after
    said = [record.getMessage() for record in caplog.records if str(tp) in record.getMessage()]
    [warning] = [text for text in said if "out of range" in text]
    assert f"offset {kept[-1] + 1} of {tp}" in warning
    assert policy in warning
    assert "starts at 0" not in warning  # as it did when it was heard of last
    assert f"{tp} starts at offset {goes_on_at}" in said


def test_without_a_policy_it_is_an_error_until_the_next_seek(kafka: Kafka, log: tuple[TopicPartition, list[Sent]]) -> None:
    tp, _ = log
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, auto_offset_reset="none", **LITTLE) as consumer:
        read_some(consumer, tp)
        delete_records(kafka, tp)
        for _ in range(2):  # it stays
            with pytest.raises(fastfetch.errors.OffsetOutOfRangeError) as raised:
                poll_for_error(consumer)
            assert f"offset {consumer.position(tp)} of {tp}" in str(raised.value)
            assert "starts at 0" not in str(raised.value)
        consumer.seek(tp, consumer.beginning_offsets([tp])[tp])
        assert [record.offset for record in sent(read_to_end(consumer, tp))] == list(range(DELETED, COUNT))


def test_retention_deletes_the_segments_ahead_of_a_slow_reader(kafka: Kafka) -> None:
    topic = kafka.topic("retained", segment_bytes=1 << 20, retention_bytes=1 << 20)
    tp = TopicPartition(topic, 0)
    records = [Sent(b"%d" % i, bytes(20_000), [], 1_700_000_000_000) for i in range(300)]  # 6 MB
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, auto_offset_reset="earliest", **LITTLE) as consumer:
        first = kafka.produce(topic, records[:10], batch=1)
        consumer.assign([tp])
        assert sent(read_to_end(consumer, tp)) == first
        consumer.pause(tp)
        kafka.produce(topic, records, batch=1)
        wait_for(lambda: consumer.beginning_offsets([tp])[tp] > 100, "retention")
        consumer.resume(tp)
        start = consumer.beginning_offsets([tp])[tp]
        offsets = [record.offset for record in sent(read_to_end(consumer, tp))]
    assert offsets[-1] == 309
    kept = [offset for offset in offsets if offset < start]  # fetched before the pause took hold, if any
    assert offsets == [*range(10, 10 + len(kept)), *range(offsets[len(kept)], 310)]
    assert offsets[len(kept)] >= start
