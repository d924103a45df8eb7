"""Three brokers: partitions are fetched from their own leaders, and go on from new ones when a broker dies."""

from __future__ import annotations

import contextlib
import time

import confluent_kafka

import fastfetch
from fastfetch import TopicPartition
from tests.live.conftest import SECONDS, Kafka, Sent, sent

PARTITIONS = 6


def test_nothing_is_lost_or_repeated_when_leaders_change(three: Kafka) -> None:
    three.wait_in_sync()
    topic = three.topic("spread", partitions=PARTITIONS)
    partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    leaders = {p.id: p.leader for p in three.admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions.values()}
    assert set(leaders.values()) == {1, 2, 3}
    produced: dict[int, list[Sent]] = {p: [] for p in range(PARTITIONS)}
    read: dict[int, list[Sent]] = {p: [] for p in range(PARTITIONS)}

    def produce(turn: int) -> None:
        for p in range(PARTITIONS):
            records = [Sent(b"k", b"%d/%d/%d" % (p, turn, i), [], 1_700_000_000_000) for i in range(50)]
            produced[p] += three.produce(topic, records, partition=p, codec="lz4", batch=8, acks="all")

    def poll_until_all_is_there() -> None:
        deadline = time.monotonic() + 2 * SECONDS
        while any(len(read[p]) < len(produced[p]) for p in range(PARTITIONS)):
            assert time.monotonic() < deadline, {p: (len(read[p]), len(produced[p])) for p in range(PARTITIONS)}
            for block in consumer.poll_blocks(timeout_ms=200):
                read[block.partition] += sent([block])

    config = {
        "bootstrap_servers": three.servers,
        "group_id": "three",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    with fastfetch.Consumer(**config) as consumer:
        consumer.assign(partitions)
        produce(0)
        poll_until_all_is_there()
        three.cluster.kill(1)
        produce(1)
        poll_until_all_is_there()
        three.cluster.restart(1)
        three.cluster.restart(2)  # in good order: leadership is handed over first
        produce(2)
        poll_until_all_is_there()
        consumer.commit()
        assert read == produced
        positions = {tp: consumer.position(tp) for tp in partitions}

    other = confluent_kafka.Consumer({"bootstrap.servers": three.servers, "group.id": "three", "log_level": 0})
    with contextlib.closing(other):
        found = other.committed([confluent_kafka.TopicPartition(topic, p) for p in range(PARTITIONS)], SECONDS)
    assert {TopicPartition(f.topic, f.partition): f.offset for f in found} == positions
