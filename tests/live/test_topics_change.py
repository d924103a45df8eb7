"""Topics that go, come back under the same name, or get more partitions, while a consumer reads them."""

from __future__ import annotations

import logging
import time

import confluent_kafka
import pytest
from confluent_kafka.admin import NewPartitions, NewTopic

import fastfetch
from fastfetch import TopicPartition
from fastfetch.errors import NoOffsetForPartitionError, UnknownTopicError
from tests.live.conftest import SECONDS, Kafka, Sent, poll_for_error, read_to_end, sent, wait_for

OLD = [Sent(b"k", b"old %d" % i, [], 1_700_000_000_000) for i in range(50)]
NEW = [Sent(b"k", b"new %d" % i, [], 1_700_000_000_000) for i in range(20)]


def delete(kafka: Kafka, topic: str) -> None:
    kafka.admin.delete_topics([topic])[topic].result(SECONDS)


def create_again(kafka: Kafka, topic: str) -> None:
    """The name is free a moment after the deletion was answered."""

    def created() -> bool:
        try:
            kafka.admin.create_topics([NewTopic(topic, 1)])[topic].result(SECONDS)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() != confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    wait_for(created, f"{topic} to be created again")


def read_records(consumer: fastfetch.Consumer, count: int) -> list[Sent]:
    """Poll until there are so many. The topic may be unknown meanwhile, and a poll may say so."""
    read: list[Sent] = []
    deadline = time.monotonic() + SECONDS
    while len(read) < count:
        assert time.monotonic() < deadline, f"{len(read)} of {count} records in {SECONDS} s"
        try:
            read += sent(consumer.poll_blocks(timeout_ms=200))
        except UnknownTopicError:
            continue
    return read


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after a while"])
def test_a_topic_that_is_created_again_is_another_topic(kafka: Kafka, waits: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Its offsets look like those of the old one, and mean other records: the position is void, whatever it was."""
    topic = kafka.topic("again")
    tp = TopicPartition(topic, 0)
    old = kafka.produce(topic, OLD)
    with (
        caplog.at_level(logging.WARNING, "fastfetch"),
        fastfetch.Consumer(bootstrap_servers=kafka.servers, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([tp])
        assert sent(read_to_end(consumer, tp)) == old
        delete(kafka, topic)
        if waits:
            with pytest.raises(UnknownTopicError, match=topic):
                poll_for_error(consumer)
        create_again(kafka, topic)
        # More than there were in the old one: from the old position on, some would look like the next ones.
        new = kafka.produce(topic, NEW * 4)
        assert read_records(consumer, len(new)) == new
        more = kafka.produce(topic, NEW)
        assert sent(read_to_end(consumer, tp)) == more
    assert [r.getMessage() for r in caplog.records if "created again" in r.getMessage() and topic in r.getMessage()]


def test_a_topic_that_is_created_again_has_no_position_without_a_policy(kafka: Kafka) -> None:
    topic = kafka.topic("again-none")
    tp = TopicPartition(topic, 0)
    kafka.produce(topic, OLD)
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 0)
        read_to_end(consumer, tp)
        delete(kafka, topic)
        create_again(kafka, topic)
        new = kafka.produce(topic, NEW * 4)
        with pytest.raises(NoOffsetForPartitionError, match=topic):
            read_records(consumer, 1)
        consumer.seek(tp, 0)
        assert sent(read_to_end(consumer, tp)) == new


def test_a_deleted_topic_is_an_error_and_others_flow(kafka: Kafka) -> None:
    gone, stays = kafka.topic("gone"), kafka.topic("stays")
    partitions = [TopicPartition(gone, 0), TopicPartition(stays, 0)]
    for topic in (gone, stays):
        kafka.produce(topic, OLD)
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        read_to_end(consumer, *partitions)
        delete(kafka, gone)
        with pytest.raises(UnknownTopicError, match=gone):
            poll_for_error(consumer)
        new = kafka.produce(stays, NEW)
        assert read_records(consumer, len(new)) == new
        consumer.assign(partitions[1:])
        new = kafka.produce(stays, NEW)
        assert sent(read_to_end(consumer, partitions[1])) == new


def test_partitions_are_added(kafka: Kafka) -> None:
    topic = kafka.topic("grows")
    first = kafka.produce(topic, OLD)
    config = {"bootstrap_servers": kafka.servers, "auto_offset_reset": "earliest", "metadata_max_age_ms": 500}
    with fastfetch.Consumer(**config) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert consumer.partitions_for(topic) == {0}
        kafka.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(SECONDS)
        # Into the new ones before anybody has seen them: the policy is earliest, so nothing may be missed.
        produced = {0: first} | {p: kafka.produce(topic, NEW, partition=p) for p in (1, 2)}
        wait_for(lambda: consumer.partitions_for(topic) == {0, 1, 2}, "the new partitions")
        partitions = [TopicPartition(topic, p) for p in range(3)]
        consumer.assign(partitions)
        blocks = read_to_end(consumer, *partitions)
    assert {p: sent(block for block in blocks if block.partition == p) for p in range(3)} == produced


def test_a_partition_that_comes_to_exist(kafka: Kafka) -> None:
    """Assigned before it is there: an error that says how many there are, and records as soon as it has some."""
    topic = kafka.topic("not-yet")
    tp = TopicPartition(topic, 1)
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        with pytest.raises(UnknownTopicError, match="it has 1"):
            poll_for_error(consumer)
        kafka.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(SECONDS)
        new = kafka.produce(topic, NEW, partition=1)
        assert read_records(consumer, len(new)) == new
