"""Other clients read from the broker and commit to it: proof that it speaks Kafka, and not a dialect that only we understand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fastfetch.testing import Broker, Row, compression, control_batch, encode_batch, error, message_set
from fastfetch.types import OffsetAndMetadata, TopicPartition
from tests.testing.peers import aiokafka, confluent_kafka, kafka

# kafka-python reads its schemas by a call that Python 3.11 deprecates, and leaves sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

# kafka-python wants the python-snappy package for snappy.
ALL = list(compression.CODECS)
WITHOUT_SNAPPY = [codec for codec in ALL if "snappy" not in codec]

Seen = dict[int, list[tuple[Any, ...]]]


def rows(partition: int, codec: str) -> list[Row]:
    return [
        Row(
            None if i % 7 == 0 else b"key %d" % i,
            None if i % 11 == 0 else f"{partition}/{codec}/{i}".encode() * (i % 5),
            1_700_000_000_000 + i * i,
            [("h", b"%d" % i), ("h", None), ("é", b"")] if i % 3 == 0 else [],
        )
        for i in range(60)
    ]


def fill(broker: Broker, codecs: list[str]) -> Seen:
    """Three partitions with batches of all codecs; what a reader should see: (offset, timestamp, key, value, headers)."""
    broker.create_topic("t", partitions=3)
    expected: Seen = {}
    for partition in range(3):
        expected[partition] = []
        for codec in codecs:
            made = rows(partition, codec)
            first, _ = broker.append("t", partition, encode_batch(made, codec=codec))
            expected[partition] += [(first + i, r.timestamp, r.key, r.value, list(r.headers)) for i, r in enumerate(made)]
    return expected


@pytest.fixture(params=["2.8", "3.9", "4.1", "4.3"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(nodes=2, kafka=request.param) as made:
        yield made
        assert not [(r.api, r.version, r.refused) for r in made.requests() if r.refused]


# ------------------------------------------------------------------------------------------------------------ confluent-kafka


def confluent_consumer(broker: Broker, **more: Any) -> Any:
    config = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 50,
    }
    return confluent_kafka.Consumer(config | more)


def confluent_read(consumer: Any, count: int) -> Seen:
    seen: Seen = {}
    deadline = time.monotonic() + 20
    while sum(map(len, seen.values())) < count and time.monotonic() < deadline:
        for m in consumer.consume(1000, 0.2):
            assert m.error() is None, m.error()
            seen.setdefault(m.partition(), []).append((m.offset(), m.timestamp()[1], m.key(), m.value(), m.headers() or []))
    return seen


def test_confluent_kafka(broker: Broker) -> None:
    expected = fill(broker, ALL)
    consumer = confluent_consumer(broker)
    try:
        consumer.assign([confluent_kafka.TopicPartition("t", p, 0) for p in range(3)])
        assert confluent_read(consumer, 3 * len(expected[0])) == expected
        assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition("t", 0), timeout=10) == (0, len(expected[0]))
        consumer.commit(offsets=[confluent_kafka.TopicPartition("t", 1, 42, "note")], asynchronous=False)
        # Its binding sends the end mark of the C string too.
        assert broker.committed("g")[TopicPartition("t", 1)] == OffsetAndMetadata(42, "note\0")
        found = consumer.committed([confluent_kafka.TopicPartition("t", p) for p in (0, 1)], timeout=10)
        assert [tp.offset for tp in found] == [confluent_kafka.OFFSET_INVALID, 42]
        (at,) = consumer.offsets_for_times([confluent_kafka.TopicPartition("t", 2, 1_700_000_000_000 + 59 * 59)], timeout=10)
        assert at.offset == 59
        topics = consumer.list_topics(timeout=10)
        assert sorted(topics.brokers) == [1, 2]
        assert {p: m.leader for p, m in topics.topics["t"].partitions.items()} == {0: 1, 1: 2, 2: 1}
    finally:
        consumer.close()


def test_confluent_kafka_reads_committed_only() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        for producer, end in ((1, "commit"), (2, "abort"), (1, "abort"), (2, "commit")):
            values = [b"%s %d" % (end.encode(), i) for i in range(5)]
            broker.append("t", 0, encode_batch(values, producer_id=producer, producer_epoch=0, transactional=True, codec="lz4"))
            broker.append("t", 0, control_batch(end, producer_id=producer))
        broker.append("t", 0, encode_batch([b"plain"]))
        broker.append("t", 0, encode_batch([b"open"], producer_id=3, producer_epoch=0, transactional=True))
        for isolation, count, values in (
            ("read_committed", 11, {b"commit", b"plain"}),
            ("read_uncommitted", 22, {b"commit", b"abort", b"plain", b"open"}),
        ):
            consumer = confluent_consumer(broker, **{"isolation.level": isolation})
            try:
                consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
                seen = confluent_read(consumer, count)[0]
                assert {value.split()[0] for _, _, _, value, _ in seen} == values
                assert len(seen) == count
            finally:
                consumer.close()


def test_confluent_kafka_follows_a_moved_leader_and_a_restarted_node() -> None:
    with Broker(nodes=2) as broker:
        broker.create_topic("t")
        broker.append("t", 0, encode_batch([b"a"] * 10))
        consumer = confluent_consumer(broker, **{"reconnect.backoff.ms": 10, "topic.metadata.refresh.fast.interval.ms": 10})
        try:
            consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
            assert len(confluent_read(consumer, 10)[0]) == 10
            broker.move_leader("t", 0, 2)
            broker.append("t", 0, encode_batch([b"b"] * 10))
            assert [o for o, *_ in confluent_read(consumer, 10)[0]] == list(range(10, 20))
            broker.kill_node(2, elect=True)
            broker.append("t", 0, encode_batch([b"c"] * 10))
            assert [o for o, *_ in confluent_read(consumer, 10)[0]] == list(range(20, 30))
        finally:
            consumer.close()


def test_confluent_kafka_retries_what_a_script_breaks() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        broker.append("t", 0, encode_batch([b"a"] * 10))
        rule = broker.on("Fetch", error(9, topic="t", partition=0), times=2)
        consumer = confluent_consumer(broker, **{"fetch.error.backoff.ms": 10})
        try:
            consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
            assert len(confluent_read(consumer, 10)[0]) == 10
            assert rule.done == 2
        finally:
            consumer.close()


# --------------------------------------------------------------------------------------------------------------- kafka-python


def test_kafka_python(broker: Broker) -> None:
    expected = fill(broker, WITHOUT_SNAPPY)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
    )
    try:
        tps = [kafka.TopicPartition("t", p) for p in range(3)]
        consumer.assign(tps)
        seen: Seen = {}
        deadline = time.monotonic() + 20
        while sum(map(len, seen.values())) < 3 * len(expected[0]) and time.monotonic() < deadline:
            for tp, records in consumer.poll(200, max_records=100).items():
                found = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in records]
                seen.setdefault(tp.partition, []).extend(found)
        assert seen == expected
        assert consumer.end_offsets(tps) == {tp: len(expected[0]) for tp in tps}
        assert consumer.beginning_offsets(tps) == dict.fromkeys(tps, 0)
        consumer.commit({tps[0]: kafka.OffsetAndMetadata(7, "note", 0)})
        assert broker.committed("g")[TopicPartition("t", 0)] == OffsetAndMetadata(7, "note", 0)
        assert consumer.committed(tps[0]) == 7
        assert consumer.committed(tps[1]) is None
        assert consumer.offsets_for_times({tps[1]: 1_700_000_000_100})[tps[1]].offset == 10
        consumer.seek(tps[2], 50)
        assert next(iter(consumer.poll(5000, max_records=1).values()))[0].offset == 50
    finally:
        consumer.close()
    # It fetches in sessions: full first, incremental from then on.
    epochs = [r.body["session_epoch"] for r in broker.requests("Fetch", node=1)]
    assert epochs[:3] == [0, 1, 2]


# ------------------------------------------------------------------------------------------------------------------- aiokafka


def test_aiokafka(broker: Broker) -> None:
    expected = fill(broker, ALL)

    async def run() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
        )
        await consumer.start()
        try:
            tps = [aiokafka.TopicPartition("t", p) for p in range(3)]
            consumer.assign(tps)
            seen: Seen = {}
            deadline = time.monotonic() + 20
            while sum(map(len, seen.values())) < 3 * len(expected[0]) and time.monotonic() < deadline:
                for tp, records in (await consumer.getmany(timeout_ms=200)).items():
                    found = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in records]
                    seen.setdefault(tp.partition, []).extend(found)
            assert seen == expected
            assert await consumer.end_offsets(tps) == {tp: len(expected[0]) for tp in tps}
            await consumer.commit({tps[0]: (7, "note")})
            assert broker.committed("g")[TopicPartition("t", 0)] == OffsetAndMetadata(7, "note")
            assert await consumer.committed(tps[0]) == 7
            assert await consumer.committed(tps[1]) is None
        finally:
            await consumer.stop()

    asyncio.run(run())


# ---------------------------------------------------------------------------------------------------------------- old formats


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats(magic: int) -> None:
    codecs = ["none", "gzip", "snappy", "snappy-raw"] + (["lz4"] if magic else [])
    with Broker(kafka="2.8") as broker:
        broker.create_topic("t")
        for n, codec in enumerate(codecs):
            messages = [(b"k", b"%d" % i, 1000 + i) for i in range(10)]
            data = message_set(messages, magic=magic, codec=codec, base_offset=n * 10)
            # Format 0 has absolute offsets inside its wrappers, where nobody can change them cheaply.
            broker.append("t", 0, data, keep_offsets=magic == 0)
        consumer = confluent_consumer(broker)
        try:
            consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
            seen = confluent_read(consumer, 10 * len(codecs))[0]
        finally:
            consumer.close()
    assert [(o, k, v) for o, _, k, v, _ in seen] == [(i, b"k", b"%d" % (i % 10)) for i in range(10 * len(codecs))]
    if magic:
        assert [t for _, t, *_ in seen] == [1000 + i % 10 for i in range(10 * len(codecs))]
