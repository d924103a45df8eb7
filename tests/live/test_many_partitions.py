"""Many partitions: each record once, and few requests, both while reading and when nothing comes."""

from __future__ import annotations

import time

import fastfetch
from fastfetch import TopicPartition
from tests.live.conftest import SECONDS, Kafka, read_to_end

MANY = 500
EACH = 40
IDLE_SECONDS = 5


def test_every_record_of_500_partitions_once_and_in_order(kafka: Kafka) -> None:
    topic = kafka.topic("many", MANY, segment_index_bytes=4096)
    partitions = [TopicPartition(topic, p) for p in range(MANY)]
    producer = kafka.producer("lz4", linger_ms=200)
    for i in range(EACH):
        for p in range(MANY):
            producer.produce(topic, b"%d/%d" % (p, i), partition=p)
    assert producer.flush(2 * SECONDS) == 0
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        read: dict[int, list[tuple[int, bytes | None]]] = {p: [] for p in range(MANY)}
        for block in read_to_end(consumer, *partitions):
            read[block.partition] += zip(block.offsets.tolist(), block.values(), strict=True)
        assert read == {p: [(i, b"%d/%d" % (p, i)) for i in range(EACH)] for p in range(MANY)}
        # A look-up of all the ends, one of all the starts, metadata, and fetches that bring many partitions each.
        assert consumer.metrics()["requests"] < 50
        assert_idle(consumer, brokers=1)


def test_an_idle_consumer_of_100_partitions_asks_each_broker_three_times_a_second_at_most(three: Kafka) -> None:
    topic = three.topic("idle", 100, replicas=[[1 + p % 3] for p in range(100)], segment_index_bytes=4096)
    with fastfetch.Consumer(bootstrap_servers=three.servers, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, p) for p in range(100)]
        consumer.assign(partitions)
        assert {consumer.position(tp) for tp in partitions} == {0}
        assert_idle(consumer, brokers=3)


def assert_idle(consumer: fastfetch.Consumer, *, brokers: int) -> None:
    """At most three requests a second and broker, and answers that say no more than that nothing came."""
    consumer.poll(timeout_ms=1_000)
    before, began = consumer.metrics(), time.monotonic()
    while time.monotonic() < began + IDLE_SECONDS:
        assert not consumer.poll(timeout_ms=500)
    after, seconds = consumer.metrics(), time.monotonic() - began
    assert after["requests"] - before["requests"] <= 3 * brokers * seconds
    # Sessions (KIP-227): partitions without news are in neither the request nor the answer.
    assert after["received_bytes"] - before["received_bytes"] < 100 * 3 * brokers * seconds
    assert after["sent_bytes"] - before["sent_bytes"] < 150 * 3 * brokers * seconds
    assert after["connects"] == before["connects"]
