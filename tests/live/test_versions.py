"""Every broker version that is supported, the oldest one with its ZooKeeper: the same records, positions and answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

import fastfetch
from fastfetch import TopicPartition
from fastfetch.engine.channels import Channels
from tests.live.conftest import CODECS, SECONDS, Kafka, Sent, need, read_to_end, send, sent
from tests.live.kafka_cluster import DEFAULT_VERSION, OLDEST_VERSION, KafkaCluster

START = 1_700_000_000_000
STEP_MS = 10
COUNT = 90  # records of each codec

# The highest versions that both sides have: (the broker's 2.8 Fetch knows no topic ids yet, 3.9 and later do).
SPOKEN = {
    OLDEST_VERSION: {"Fetch": 12, "Metadata": 11, "ListOffsets": 6, "OffsetCommit": 8, "OffsetFetch": 7},
    "3.9.1": {"Fetch": 16, "Metadata": 12, "ListOffsets": 9, "OffsetCommit": 9, "OffsetFetch": 9},
    DEFAULT_VERSION: {"Fetch": 16, "Metadata": 13, "ListOffsets": 10, "OffsetCommit": 9, "OffsetFetch": 9},
    "4.3.1": {"Fetch": 16, "Metadata": 13, "ListOffsets": 10, "OffsetCommit": 9, "OffsetFetch": 9},
}


@pytest.fixture(scope="module", params=SPOKEN)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def broker(version: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    kafka: Kafka = request.getfixturevalue("kafka")
    if version == kafka.cluster.version:
        yield kafka
        return
    need(version)
    with KafkaCluster(tmp_path_factory.mktemp("kafka") / version, version=version) as running:
        yield Kafka(running)


@pytest.fixture(scope="module")
def log(broker: Kafka) -> tuple[TopicPartition, list[Sent]]:
    """One partition with several batches of each codec: headers, nulls, empty values and tombstones."""
    topic = broker.topic("log")
    produced: list[Sent] = []
    for turn, codec in enumerate(CODECS):
        shapes = [
            (b"key %d", b'{"n": %d, "text": "some text"}', [("trace", b"%d" % turn)]),
            (None, b"no key, %d", []),
            (b"tombstone %d", None, [("empty", b""), ("null", None), ("empty", b"again")]),
        ]
        records = []
        for i in range(COUNT):
            key, value, headers = shapes[i % 3]
            number = turn * COUNT + i
            records.append(Sent(key and key % i, value and value % i, headers, START + number * STEP_MS))
        produced += broker.produce(topic, records, codec=codec, batch=20)
    return TopicPartition(topic, 0), produced


def reading(broker: Kafka, **config: Any) -> fastfetch.Consumer:
    return fastfetch.Consumer(bootstrap_servers=broker.servers, auto_offset_reset="earliest", **config)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_blocks(broker: Kafka, log: tuple[TopicPartition, list[Sent]], isolation: str) -> None:
    tp, produced = log
    with reading(broker, isolation_level=isolation) as consumer:
        consumer.assign([tp])
        assert sent(read_to_end(consumer, tp)) == produced == broker.consume(tp.topic, isolation=isolation)
        assert consumer.position(tp) == len(produced)


def test_poll_and_iteration(broker: Kafka, log: tuple[TopicPartition, list[Sent]]) -> None:
    tp, produced = log
    read: list[Sent] = []
    with reading(broker) as consumer:
        consumer.assign([tp])
        while len(read) < 100:
            for record in consumer.poll(timeout_ms=1000, max_records=100 - len(read)).get(tp, ()):
                read.append(Sent(record.key, record.value, record.headers, record.timestamp, record.offset))
        assert consumer.position(tp) == 100
        for record in consumer:
            read.append(Sent(record.key, record.value, record.headers, record.timestamp, record.offset))
            assert consumer.position(tp) == record.offset + 1
            if len(read) == len(produced):
                break
    assert read == produced


def test_seek_into_the_middle_of_batches(broker: Kafka, log: tuple[TopicPartition, list[Sent]]) -> None:
    tp, produced = log
    with reading(broker) as consumer:
        consumer.assign([tp])
        for start in (33, COUNT + 7, len(produced) - 1, 1):
            consumer.seek(tp, start)
            assert sent(read_to_end(consumer, tp)) == produced[start:]


def test_offsets_are_those_another_client_is_told(broker: Kafka, log: tuple[TopicPartition, list[Sent]]) -> None:
    tp, produced = log
    other = confluent_kafka.Consumer({"bootstrap.servers": broker.servers, "group.id": "other", "log_level": 0})
    # Between two records, at one, at the first, before all, after all.
    times = [START + 55 * STEP_MS + 1, START + 120 * STEP_MS, START, 0, START * 2]
    try:
        with reading(broker) as consumer:
            low, high = other.get_watermark_offsets(confluent_kafka.TopicPartition(*tp), SECONDS)
            assert consumer.beginning_offsets([tp]) == {tp: low}
            assert consumer.end_offsets([tp]) == {tp: high} == {tp: len(produced)}
            for when in times:
                [theirs] = other.offsets_for_times([confluent_kafka.TopicPartition(*tp, when)], SECONDS)
                ours = consumer.offsets_for_times({tp: when})[tp]
                assert (ours and ours.offset) == (theirs.offset if theirs.offset >= 0 else None)
                later = [record for record in produced if record.timestamp >= when]
                assert ours is None if not later else (ours.offset, ours.timestamp) == (later[0].offset, later[0].timestamp)
    finally:
        other.close()


def test_a_new_consumer_goes_on_where_the_group_stopped(broker: Kafka, log: tuple[TopicPartition, list[Sent]]) -> None:
    tp, _ = log
    group = {"group_id": "versions", "enable_auto_commit": False}
    read: list[int] = []
    for _ in range(3):
        with reading(broker, **group) as consumer:
            consumer.assign([tp])
            aim = len(read) + 77
            while len(read) < aim:
                for records in consumer.poll(timeout_ms=1000, max_records=aim - len(read)).values():
                    read += [record.offset for record in records]
            consumer.commit()
            committed = consumer.committed([tp])[tp]
            assert committed is not None
            assert committed.offset == aim == consumer.position(tp)
    assert read == list(range(3 * 77))
    other = confluent_kafka.Consumer({"bootstrap.servers": broker.servers, "group.id": "versions", "log_level": 0})
    [theirs] = other.committed([confluent_kafka.TopicPartition(*tp)], SECONDS)
    other.close()
    assert theirs.offset == 3 * 77


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_transactions(broker: Kafka, isolation: str) -> None:
    topic = broker.topic("transactions")
    tp = TopicPartition(topic, 0)
    producer = broker.producer("zstd", transactional_id=topic, batch_num_messages=4)
    producer.init_transactions(SECONDS)
    expected: list[Sent] = []
    for turn, commits in enumerate((True, False, True, False)):
        producer.begin_transaction()
        acknowledged = send(producer, topic, [Sent(b"k", b"%d/%d" % (turn, i), [], START) for i in range(10)])
        producer.flush(SECONDS)
        (producer.commit_transaction if commits else producer.abort_transaction)(SECONDS)
        if commits or isolation == "read_uncommitted":
            expected += acknowledged()
    broker.wait_for_markers(tp)
    with reading(broker, isolation_level=isolation) as consumer:
        consumer.assign([tp])
        assert sent(read_to_end(consumer, tp)) == expected == broker.consume(topic, isolation=isolation)
        assert consumer.position(tp) == consumer.end_offsets([tp])[tp]


def test_the_versions_spoken(
    broker: Kafka, version: str, log: tuple[TopicPartition, list[Sent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tp, _ = log
    spoken: dict[str, int] = {}
    send_as_ever = Channels.send

    def spy(channels: Channels, channel: Any, api: Any, number: int, *rest: Any, **more: Any) -> Any:
        spoken[api.name] = number
        return send_as_ever(channels, channel, api, number, *rest, **more)

    monkeypatch.setattr(Channels, "send", spy)
    with reading(broker, group_id="spoken", enable_auto_commit=False) as consumer:
        consumer.assign([tp])
        read_to_end(consumer, tp)
        consumer.commit()
        consumer.committed([tp])
    assert {api: spoken[api] for api in SPOKEN[version]} == SPOKEN[version]
