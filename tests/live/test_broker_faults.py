"""Brokers die, stop and come back while a producer and a consumer go on.

Every record arrives once and in order, no poll raises, and none takes longer than it was given.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from fastfetch import TopicPartition
from tests.live.administration import active_controller, move
from tests.live.conftest import SECONDS, Kafka, need, wait_for
from tests.live.history import Load, Reader
from tests.live.kafka_cluster import OLDEST_VERSION, KafkaCluster

PARTITIONS = 6


@pytest.fixture
def topic(three: Kafka) -> Iterator[str]:
    """Three copies of each partition, and a record is acknowledged when two have it: no death of one broker loses any."""
    three.wait_in_sync()
    yield three.topic("faults", PARTITIONS, min_insync_replicas=2)
    three.cluster.heal()


def everything(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, p) for p in range(PARTITIONS)]


def kill_a_leader(kafka: Kafka, topic: str) -> None:
    with Reader(kafka, everything(topic), group_id=topic, enable_auto_commit=False) as reader:
        with Load(kafka, topic, PARTITIONS) as load:
            reader.wait_for_more()
            victim = kafka.leaders(topic)[0]
            kafka.cluster.kill(victim)
            wait_for(lambda: victim not in kafka.leaders(topic).values(), f"leaders other than {victim}")
            reader.wait_for_more()
            kafka.cluster.launch(victim)
            kafka.wait_in_sync()
            reader.wait_for_more()
        reader.wait_for_all(load)
        reader.do(lambda consumer: consumer.commit())
    other = confluent_kafka.Consumer({"bootstrap.servers": kafka.servers, "group.id": topic, "log_level": 0})
    with contextlib.closing(other):
        found = other.committed([confluent_kafka.TopicPartition(topic, p) for p in range(PARTITIONS)], SECONDS)
    assert {at.partition: at.offset for at in found} == load.acknowledged


def test_a_leader_is_killed_and_comes_back(three: Kafka, topic: str) -> None:
    kill_a_leader(three, topic)


def test_a_leader_of_the_oldest_version_is_killed_and_comes_back(tmp_path: Path) -> None:
    need(OLDEST_VERSION)
    with KafkaCluster(tmp_path / "oldest", version=OLDEST_VERSION, brokers=3) as running:
        oldest = Kafka(running)
        kill_a_leader(oldest, oldest.topic("faults", PARTITIONS, min_insync_replicas=2))


def test_every_broker_is_restarted_in_good_order(three: Kafka, topic: str) -> None:
    with Reader(three, everything(topic), isolation_level="read_committed") as reader:
        with Load(three, topic, PARTITIONS) as load:
            for node in three.cluster.nodes:
                reader.wait_for_more()
                three.cluster.restart(node.id)
                three.wait_in_sync()
            reader.wait_for_more()
        reader.wait_for_all(load)


def test_the_active_controller_is_killed(three: Kafka, topic: str) -> None:
    with Reader(three, everything(topic)) as reader:
        with Load(three, topic, PARTITIONS) as load:
            reader.wait_for_more()
            controller = active_controller(three)
            three.cluster.kill(controller)
            reader.wait_for_more()
            assert active_controller(three) != controller
            three.cluster.launch(controller)
        reader.wait_for_all(load)


def test_partitions_are_moved_to_other_brokers(three: Kafka, topic: str) -> None:
    """The old leaders have no copy any more; what they would still answer is an error."""
    with Reader(three, everything(topic)) as reader:
        with Load(three, topic, PARTITIONS) as load:
            for pair in ((1, 2), (2, 3), (3, 1)):
                move(three, topic, dict.fromkeys(range(PARTITIONS), pair))
                reader.wait_for_more()
        reader.wait_for_all(load)


def test_a_broker_stops_answering(three: Kafka, topic: str) -> None:
    """Its connections stay open: only the request timeout tells."""
    with Reader(three, everything(topic), request_timeout_ms=2_000) as reader:
        with Load(three, topic, PARTITIONS) as load:
            reader.wait_for_more()
            three.cluster.pause(2)
            reader.wait_for_more()
            three.cluster.resume(2)
            reader.wait_for_more()
        reader.wait_for_all(load)


def test_all_brokers_are_gone_and_come_back(three: Kafka, topic: str) -> None:
    nodes = [node.id for node in three.cluster.nodes]
    with Reader(three, everything(topic)) as reader:
        with Load(three, topic, PARTITIONS) as load:
            reader.wait_for_more()
            three.cluster.kill(*nodes)
            before = reader.empty_polls
            wait_for(lambda: reader.empty_polls >= before + 10, "polls without records")  # the back-off has grown by then
            connects, began = reader.do(lambda consumer: consumer.metrics()["connects"]), time.monotonic()
            wait_for(lambda: reader.empty_polls >= before + 30, "more of them")
            tried = reader.do(lambda consumer: consumer.metrics()["connects"]) - connects
            assert tried <= 3 * len(nodes) * (time.monotonic() - began)
            three.cluster.launch(*nodes)
            reader.wait_for_more()
        reader.wait_for_all(load)
