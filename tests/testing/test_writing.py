"""A writable test broker, as an independent producer and administrator find it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from fastfetch import Consumer, TopicPartition
from fastfetch.testing import Broker, encode_batch

from .peers import confluent_kafka
from .wire import Wire

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(nodes=2, writable=True) as broker:
        yield broker


def outcome(answer: Any) -> str:
    try:
        answer.result(20)
    except confluent_kafka.KafkaException as error:
        return str(error.args[0].name())
    return "done"


def test_topics_are_made_and_deleted(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    def made(topic: NewTopic, **options: Any) -> str:
        return outcome(admin.create_topics([topic], **options)[topic.topic])

    assert made(NewTopic("t", 3, config={"retention.ms": "1000"})) == "done"
    assert made(NewTopic("t", 3)) == "TOPIC_ALREADY_EXISTS"
    assert made(NewTopic("dry", 3), validate_only=True) == "done"
    assert made(NewTopic("un lawful", 1)) == "TOPIC_EXCEPTION"
    assert made(NewTopic("none", 0)) == "INVALID_PARTITIONS"
    assert {name: len(topic.partitions) for name, topic in admin.list_topics(timeout=20).topics.items()} == {"t": 3}
    assert outcome(admin.delete_topics(["t"])["t"]) == "done"
    assert outcome(admin.delete_topics(["t"])["t"]) == "UNKNOWN_TOPIC_OR_PART"


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_what_is_written_is_read(broker: Broker, codec: str, idempotent: bool) -> None:
    broker.create_topic("t", partitions=2)
    producer = confluent_kafka.Producer({
        "bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "enable.idempotence": idempotent,
    })  # fmt: skip
    placed: list[tuple[int, int]] = []
    for number in range(100):
        producer.produce(
            "t", b"value %d" % number, b"key", partition=number % 2, timestamp=1000 + number, headers=[("h", b"x")],
            on_delivery=lambda error, message: placed.append((message.partition(), message.offset())),
        )  # fmt: skip
    assert producer.flush(20) == 0
    assert sorted(placed) == [(partition, offset) for partition in range(2) for offset in range(50)]
    with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", partition) for partition in range(2)])
        found = []
        while len(found) < 100:
            for records in consumer.poll(timeout_ms=5000).values():
                found += [(r.value, r.key, r.timestamp, r.headers) for r in records]
    assert sorted(found, key=lambda row: row[2]) == [(b"value %d" % n, b"key", 1000 + n, [("h", b"x")]) for n in range(100)]


def written(broker: Broker, node: int, topic: str, partition: int, records: bytes, acks: int = -1) -> int:
    """Error code of one Produce."""
    body = {
        "acks": acks,
        "timeout_ms": 1000,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
    }
    with Wire(broker, node) as wire:
        answer = wire.call("Produce", 8, **body)
    return int(answer["responses"][0]["partition_responses"][0]["error_code"])


def test_what_cannot_be_written_is_refused_with_kafkas_code(broker: Broker) -> None:
    broker.create_topic("t", partitions=2)
    batch = encode_batch([b"v"])
    assert written(broker, 1, "t", 0, batch) == 0
    assert written(broker, 2, "t", 0, batch) == 6, "it is led by the other node"
    assert written(broker, 1, "t", 2, batch) == 3
    assert written(broker, 1, "absent", 0, batch) == 3
    assert written(broker, 1, "t", 0, batch[:-1]) == 2
    assert written(broker, 1, "t", 0, batch, acks=0) == 21
    assert broker.end_offset("t", 0) == 1


def test_one_that_is_not_writable_is_none() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        with Wire(broker) as wire:
            announced = {key["api_key"] for key in wire.call("ApiVersions", 3)["api_keys"]}
        assert not announced & {19, 20, 22}
        with Wire(broker) as wire:
            wire.send("Produce", 8, acks=-1, timeout_ms=1000, topic_data=[])
            assert wire.receive() == b"", "the connection is closed"
        assert [(request.api, request.refused) for request in broker.requests()][-1] == ("Produce", "announced, but not served")
