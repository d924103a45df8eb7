"""Offsets that a transactional producer of another client commits for a group whose members are ours (KIP-447)."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence

import pytest

import fastfetch
from fastfetch import OffsetAndMetadata, TopicPartition
from tests.live.conftest import Kafka, Sent, wait_for

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka as kafka_python
    from kafka.errors import KafkaError

RECORDS = 50
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@contextlib.contextmanager
def transactional(kafka: Kafka, name: str) -> Iterator[kafka_python.KafkaProducer]:
    producer = kafka_python.KafkaProducer(bootstrap_servers=kafka.servers, transactional_id=name)
    try:
        producer.init_transactions()
        yield producer
    finally:
        producer.close()


def poll_until_shared(consumers: Sequence[fastfetch.Consumer], sizes: list[int]) -> list[fastfetch.RecordBlock]:
    """Poll all of them until they own so many partitions; what was handed out meanwhile."""
    blocks: list[fastfetch.RecordBlock] = []

    def are_shared() -> bool:
        for consumer in consumers:
            blocks.extend(consumer.poll_blocks(timeout_ms=50))
        return [len(consumer.assignment()) for consumer in consumers] == sizes

    wait_for(are_shared, f"assignments of {sizes}")
    return blocks


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_metadata_is_enough_for_a_producer(kafka: Kafka, protocol: str) -> None:
    source, target = kafka.topic("source", partitions=2), kafka.topic("target")
    for partition in range(2):
        kafka.produce(source, [Sent(None, b"%d" % n, []) for n in range(RECORDS)], partition=partition)
    settings = {
        "bootstrap_servers": kafka.servers, "group_id": source, "group_protocol": protocol, "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }  # fmt: skip

    def send_offsets(producer: kafka_python.KafkaProducer, offset: int, me: fastfetch.types.GroupMetadata) -> None:
        offsets = {kafka_python.TopicPartition(source, p): kafka_python.OffsetAndMetadata(offset, "", -1) for p in range(2)}
        producer.begin_transaction()
        producer.send(target, b"made of it")
        producer.send_offsets_to_transaction(offsets, kafka_python.ConsumerGroupMetadata(*me))

    def stored() -> set[int | None]:
        with fastfetch.Consumer(bootstrap_servers=kafka.servers, group_id=source, isolation_level="read_committed") as reader:
            found = reader.committed([TopicPartition(source, p) for p in range(2)])
            return {None if at is None else at.offset for at in found.values()}

    with fastfetch.Consumer(settings) as consumer:
        consumer.subscribe([source])
        blocks = poll_until_shared([consumer], [2])
        while sum(map(len, blocks)) < 2 * RECORDS:
            blocks += consumer.poll_blocks(timeout_ms=200)
        with transactional(kafka, f"{source}-a") as producer:
            send_offsets(producer, 10, consumer.group_metadata())
            producer.commit_transaction()
            assert stored() == {10}
            send_offsets(producer, 20, consumer.group_metadata())
            producer.abort_transaction()
            assert stored() == {10}
            send_offsets(producer, RECORDS, consumer.group_metadata())
            producer.commit_transaction()
            assert stored() == {RECORDS}
            before = consumer.group_metadata()
            with fastfetch.Consumer(settings) as second:
                second.subscribe([source])
                poll_until_shared([consumer, second], [1, 1])
                assert before != consumer.group_metadata()
                with pytest.raises(KafkaError):  # what was a member is none any more
                    send_offsets(producer, 30, before)
                producer.abort_transaction()
        assert stored() == {RECORDS}
        assert {at.offset for at in consumer.committed().values() if isinstance(at, OffsetAndMetadata)} == {RECORDS}
