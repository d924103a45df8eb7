"""What librdkafka produced to a real broker, read back: every codec, headers, batches of every size, several partitions."""

from __future__ import annotations

import random

import numpy as np
import pytest

import fastfetch
from fastfetch import TopicPartition
from tests.live.conftest import CODECS, Kafka, Sent, read_to_end, sent
from tests.live.logs import START, varied


@pytest.mark.parametrize("batch", [1, 7, 0], ids=["single", "small", "full"])
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_and_batch_size(kafka: Kafka, codec: str, batch: int) -> None:
    topic = kafka.topic(f"codec-{codec}")
    produced = kafka.produce(topic, varied(60 if batch == 1 else 600), codec=codec, batch=batch)
    tp = TopicPartition(topic, 0)
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        assert sent(read_to_end(consumer, tp)) == produced


def test_codecs_mixed_in_one_partition(kafka: Kafka) -> None:
    topic = kafka.topic("mixed")
    produced: list[Sent] = []
    for turn, codec in enumerate(CODECS * 2):
        produced += kafka.produce(topic, varied(50, seed=turn), codec=codec, batch=11)
    tp = TopicPartition(topic, 0)
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        blocks = read_to_end(consumer, tp)
    assert sent(blocks) == produced
    # The columns say the same as the records.
    assert np.concatenate([block.offsets for block in blocks]).tolist() == [record.offset for record in produced]
    assert np.concatenate([block.timestamps for block in blocks]).tolist() == [record.timestamp for record in produced]
    assert [value for block in blocks for value in block.values()] == [record.value for record in produced]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_record_larger_than_every_fetch_limit(kafka: Kafka, codec: str) -> None:
    """KIP-74: a broker sends the first batch whole even if it exceeds the limits, and it has to be taken."""
    noise = random.Random(1)
    topic = kafka.topic("large", max_message_bytes=8 << 20)
    large = Sent(b"k", noise.randbytes(3 << 20), [], START)
    records = [Sent(b"before", b"1", [], START), large, Sent(b"after", b"2", [], START)]
    produced = kafka.produce(topic, records, codec=codec, batch=1, message_max_bytes=8 << 20)
    tp = TopicPartition(topic, 0)
    limits = {"max_partition_fetch_bytes": 64 << 10, "fetch_max_bytes": 64 << 10}
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, auto_offset_reset="earliest", **limits) as consumer:
        consumer.assign([tp])
        assert sent(read_to_end(consumer, tp)) == produced


def test_many_partitions_each_in_order(kafka: Kafka) -> None:
    topic = kafka.topic("many", partitions=6)
    produced = {
        p: kafka.produce(topic, varied(200 + 40 * p, seed=p), partition=p, codec=CODECS[p % 5], batch=20) for p in range(6)
    }
    partitions = [TopicPartition(topic, p) for p in range(6)]
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        blocks = read_to_end(consumer, *partitions)
        assert {tp: consumer.position(tp) for tp in partitions} == consumer.end_offsets(partitions)
    for p in range(6):
        assert sent(block for block in blocks if block.partition == p) == produced[p]


def test_a_seek_into_the_middle_of_a_batch(kafka: Kafka) -> None:
    """The broker answers with the whole batch; what lies below the position is not handed out."""
    topic = kafka.topic("middle")
    produced = kafka.produce(topic, varied(100), codec="zstd", batch=50)
    tp = TopicPartition(topic, 0)
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        for start in (37, 50, 99, 3):
            consumer.seek(tp, start)
            assert consumer.position(tp) == start
            assert sent(read_to_end(consumer, tp)) == produced[start:]


def test_log_append_time(kafka: Kafka) -> None:
    topic = kafka.topic("append", message_timestamp_type="LogAppendTime")
    kafka.produce(topic, [Sent(b"k", b"v", [], 5)] * 20, codec="gzip", batch=5)
    tp = TopicPartition(topic, 0)
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        blocks = read_to_end(consumer, tp)
    assert all((block.timestamp_types == 1).all() for block in blocks)
    assert sent(blocks) == kafka.consume(topic)  # the broker's clock, as the other client sees it
    assert all(record.timestamp > START for record in sent(blocks))


def test_poll_gives_records_by_partition(kafka: Kafka) -> None:
    topic = kafka.topic("poll", partitions=2)
    produced = {TopicPartition(topic, p): kafka.produce(topic, varied(30, seed=p), partition=p, codec="snappy") for p in range(2)}
    got: dict[TopicPartition, list[Sent]] = {tp: [] for tp in produced}
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(list(produced))
        ends = consumer.end_offsets(list(produced))
        for _ in range(200):
            for tp, records in consumer.poll(timeout_ms=200, max_records=7).items():
                assert len(records) <= 7
                got[tp] += [Sent(r.key, r.value, r.headers, r.timestamp, r.offset) for r in records]
                assert consumer.position(tp) == records[-1].offset + 1
            if all(consumer.position(tp) == end for tp, end in ends.items()):
                break
    assert got == produced
