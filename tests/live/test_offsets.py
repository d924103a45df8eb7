"""Committed offsets, ends and look-ups, with an independent client on the other side."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import pytest

import fastfetch
from fastfetch import OffsetAndMetadata, TopicPartition
from tests.live.administration import committed
from tests.live.conftest import SECONDS, Kafka, Sent, poll_for_error, read_to_end, sent


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    topic = kafka.topic("offsets", partitions=2)
    for partition in range(2):
        records = [Sent(b"k", b"value %d" % i, [], 1_700_000_000_000 + 10 * i) for i in range(100)]
        kafka.produce(topic, records, partition=partition, codec="lz4", batch=10)
    return topic


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return f"group of {request.node.name}"


@pytest.fixture
def other(kafka: Kafka, group: str) -> Iterator[confluent_kafka.Consumer]:
    """librdkafka in the same group."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka.servers, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    )
    yield consumer
    consumer.close()


def test_a_commit_of_ours_is_the_next_offset_that_another_client_reads(
    kafka: Kafka, topic: str, group: str, other: confluent_kafka.Consumer
) -> None:
    tp = TopicPartition(topic, 0)
    config = {"bootstrap_servers": kafka.servers, "group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with fastfetch.Consumer(**config) as consumer:
        consumer.assign([tp])
        read: list[Sent] = []
        while len(read) < 37:
            for records in consumer.poll(timeout_ms=500, max_records=37 - len(read)).values():
                read += [Sent(r.key, r.value, r.headers, r.timestamp, r.offset) for r in records]
        consumer.commit()
        assert consumer.committed([tp])[tp].offset == 37
    [found] = other.committed([confluent_kafka.TopicPartition(topic, 0)], SECONDS)
    assert found.offset == 37 == consumer_next(read)
    other.assign([confluent_kafka.TopicPartition(topic, 0)])  # no offset named: from the committed one
    message = other.poll(SECONDS)
    assert message is not None
    assert message.value() == b"value 37"


def consumer_next(records: list[Sent]) -> int:
    return records[-1].offset + 1


def test_a_commit_of_another_client_is_where_we_start(
    kafka: Kafka, topic: str, group: str, other: confluent_kafka.Consumer
) -> None:
    stored = confluent_kafka.TopicPartition(topic, 1, 64, "where I was")
    other.commit(offsets=[stored], asynchronous=False)
    tp = TopicPartition(topic, 1)
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, group_id=group, auto_offset_reset="latest") as consumer:
        consumer.assign([tp])
        committed = consumer.committed([tp])[tp]
        assert committed.offset == 64
        assert committed.metadata.rstrip("\0") == "where I was"  # confluent-kafka sends the text's final NUL along
        assert [r.offset for r in sent(read_to_end(consumer, tp))] == list(range(64, 100))


def test_explicit_offsets_go_out_unchanged(kafka: Kafka, topic: str, group: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, group_id=group, enable_auto_commit=False) as consumer:
        consumer.assign([first, second])
        consumer.commit({first: 5, second: OffsetAndMetadata(0, "from the start")})
    assert committed(kafka, group) == {(topic, 0): (5, ""), (topic, 1): (0, "from the start")}


def test_a_group_that_never_committed_has_nothing(kafka: Kafka, topic: str, group: str) -> None:
    tp = TopicPartition(topic, 0)
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, group_id=group, auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        assert consumer.committed([tp]).get(tp) is None
        # Nothing stored and no policy: an error that says so, and never "from the start".
        with pytest.raises(fastfetch.errors.NoOffsetForPartitionError, match=topic):
            poll_for_error(consumer)


def test_ends_are_those_another_client_sees(kafka: Kafka, topic: str, other: confluent_kafka.Consumer) -> None:
    partitions = [TopicPartition(topic, p) for p in range(2)]
    with fastfetch.Consumer(bootstrap_servers=kafka.servers) as consumer:
        beginnings, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        consumer.assign(partitions)
        consumer.seek_to_end(partitions)
        assert [consumer.position(tp) for tp in partitions] == [100, 100]
        consumer.seek_to_beginning(partitions)
        assert [consumer.position(tp) for tp in partitions] == [0, 0]
    for tp in partitions:
        watermarks = other.get_watermark_offsets(confluent_kafka.TopicPartition(topic, tp.partition), SECONDS)
        assert (beginnings[tp], ends[tp]) == watermarks


def test_an_offset_below_the_log_start_is_reset(kafka: Kafka, group: str) -> None:
    """Retention or DeleteRecords has passed the committed offset: the reset policy decides, or the error names both."""
    topic = kafka.topic("deleted")
    kafka.produce(topic, [Sent(b"k", b"%d" % i, [], 5) for i in range(20)], batch=5)
    tp = TopicPartition(topic, 0)
    [deleted] = kafka.admin.delete_records([confluent_kafka.TopicPartition(topic, 0, 12)]).values()
    deleted.result(SECONDS)
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        assert consumer.beginning_offsets([tp]) == {tp: 12}
        consumer.seek(tp, 3)
        assert [r.offset for r in sent(read_to_end(consumer, tp))] == list(range(12, 20))
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 3)
        with pytest.raises(fastfetch.errors.OffsetOutOfRangeError, match=topic):
            poll_for_error(consumer)
