"""confluent-kafka's Consumer by name against a real broker: alone, in one group with librdkafka's own, under transactions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from fastfetch.adapters import confluent_api
from tests.live.conftest import CODECS, Kafka, Sent, wait_for

THEIRS = SimpleNamespace(**vars(confluent_kafka))
OURS = SimpleNamespace(**vars(confluent_api))
RECORDS = 200


def made(count: int, start: int = 0) -> list[Sent]:
    return [
        Sent(
            b"k%d" % n if n % 3 else None, b"v%d" % n, [("h", b"%d" % n), ("empty", None)] if n % 2 else [], 1_700_000_000_000 + n
        )
        for n in range(start, start + count)
    ]


def consumer(ck: Any, kafka: Kafka, group: str, **more: Any) -> Any:
    config = {
        "bootstrap.servers": kafka.servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 300,
        "log_level": 0,
    }
    return ck.Consumer(config | {key.replace("_", "."): value for key, value in more.items()})


def told(message: Any) -> Any:
    error = message.error()
    where = (message.topic(), message.partition(), message.offset())
    if error is not None:
        return where, error.code()
    epoch = message.leader_epoch()
    return where, message.key(), message.value(), message.headers(), message.timestamp(), message.latency(), epoch, len(message)


def parts(partitions: list[Any]) -> list[Any]:
    return sorted((p.topic, p.partition, p.offset, p.leader_epoch, p.error) for p in partitions)


def both(script: Callable[[Any, str], Any]) -> Any:
    """What a script sees, with a group of its own each time."""
    theirs, ours = script(THEIRS, f"theirs-{time.time_ns()}"), script(OURS, f"ours-{time.time_ns()}")
    assert ours == theirs
    return ours


def read(consumer: Any, count: int, seconds: float = 30) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.consume(count - len(found), 0.5)
    assert len(found) == count
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_the_same_messages_and_ends(kafka: Kafka, codec: str) -> None:
    topic = kafka.topic("messages", partitions=2)
    for partition in range(2):
        kafka.produce(topic, made(RECORDS), partition=partition, codec=codec, batch=30)

    def script(ck: Any, group: str) -> Any:
        with consumer(ck, kafka, group, enable_partition_eof=True) as c:
            c.assign([ck.TopicPartition(topic, p) for p in range(2)])
            found = sorted(map(told, read(c, 2 * RECORDS + 2)), key=str)
            watermarks = [c.get_watermark_offsets(ck.TopicPartition(topic, p), timeout=10) for p in range(2)]
            times = c.offsets_for_times([ck.TopicPartition(topic, p, 1_700_000_000_050) for p in range(2)], timeout=10)
            metadata = c.list_topics(topic, timeout=10).topics[topic]
            leaders = {p.id: (p.leader, p.replicas, p.isrs) for p in metadata.partitions.values()}
            return found, watermarks, parts(times), parts(c.position(c.assignment())), leaders, c.cluster_id(timeout=10)

    found, watermarks, *_ = both(script)
    assert len(found) == 2 * RECORDS + 2
    assert watermarks == [(0, RECORDS)] * 2


def test_transactions_are_read_as_theirs(kafka: Kafka) -> None:
    """Committed records only, by default; positions and commits past markers and what was aborted."""
    topic = kafka.topic("transactions")
    producer = kafka.producer(transactional_id=topic, batch_num_messages=5)
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for record in made(10, 10 * number):
            producer.produce(topic, record.value, record.key)
        producer.flush(30)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(30)

    def script(ck: Any, group: str) -> Any:
        with consumer(ck, kafka, group, enable_partition_eof=True) as c:
            c.assign([ck.TopicPartition(topic, 0)])
            found = [told(message)[:3] for message in read(c, 31)]
            committed = parts(c.commit(asynchronous=False))
            return found, committed, c.get_watermark_offsets(ck.TopicPartition(topic, 0), timeout=10)

    found, committed, _ = both(script)
    assert [value for _, *rest in found[:-1] for value in rest[1:]] == [b"v%d" % n for n in range(60) if n // 10 % 2 == 0]
    assert found[-1][0][2] == committed[0][2] == 66


def test_a_group_of_theirs_and_ours_shares_partitions(kafka: Kafka) -> None:
    """Both are members, each hears of its partitions, and what is read is what was written, whoever it went to."""
    topic = kafka.topic("shared", partitions=4)
    for partition in range(4):
        kafka.produce(topic, made(RECORDS, 1000 * partition), partition=partition)
    events: dict[str, list[Any]] = {"ours": [], "theirs": []}
    members: dict[str, Any] = {}
    seen: list[bytes] = []

    def callbacks(name: str) -> dict[str, Any]:
        return {
            "on_assign": lambda c, partitions: events[name].append(("assign", sorted(p.partition for p in partitions))),
            "on_revoke": lambda c, partitions: events[name].append(("revoke", sorted(p.partition for p in partitions))),
        }

    def poll() -> bool:
        for member in members.values():
            for message in member.consume(50, 0.1):
                assert message.error() is None
                seen.append(message.value())
                member.store_offsets(message)
        return True

    settings = {"enable_auto_commit": True, "enable_auto_offset_store": False, "auto_commit_interval_ms": 200}
    for name, ck in (("ours", OURS), ("theirs", THEIRS)):
        members[name] = consumer(ck, kafka, topic, **settings)
        members[name].subscribe([topic], **callbacks(name))

    def is_shared() -> bool:
        poll()
        return [len(member.assignment()) for member in members.values()] == [2, 2]

    try:
        wait_for(is_shared, "two partitions each")
        wait_for(lambda: poll() and len(set(seen)) == 4 * RECORDS, "all records")
        members.pop("theirs").close()
        wait_for(lambda: poll() and len(members["ours"].assignment()) == 4, "all partitions with ours")
        kafka.produce(topic, made(10, 5000), partition=1)
        wait_for(lambda: poll() and b"v5009" in seen, "the records after the rebalance")
    finally:
        for member in members.values():
            member.close()
    assert len(seen) == len(set(seen)) == 4 * RECORDS + 10  # every member left in order: nothing twice, either
    assert events["ours"][-1] == ("revoke", [0, 1, 2, 3])
    with consumer(THEIRS, kafka, topic) as reader:
        stored = reader.committed([confluent_kafka.TopicPartition(topic, p) for p in range(4)], timeout=30)
        assert [p.offset for p in stored] == [RECORDS, RECORDS + 10, RECORDS, RECORDS]


def test_what_was_not_stored_is_read_again(kafka: Kafka) -> None:
    """At least once: a member that ends without a word, in the middle of its work."""
    topic = kafka.topic("again")
    kafka.produce(topic, made(RECORDS))
    done: list[bytes] = []
    settings = {"enable_auto_commit": True, "enable_auto_offset_store": False, "auto_commit_interval_ms": 50}
    first = consumer(OURS, kafka, topic, group_instance_id="worker", **settings)
    first.subscribe([topic])
    for message in read(first, 120):
        if len(done) < 70:
            done.append(message.value())
            first.store_offsets(message)
    wait_for(lambda: first.consume(1, 0.1) is not None and first.committed(first.assignment())[0].offset == 70, "the commit")
    first._reader._client.stop()  # killed, as far as the broker can tell
    first._reader._closed = True
    with consumer(OURS, kafka, topic, group_instance_id="worker", **settings) as second:
        second.subscribe([topic])
        done += [message.value() for message in read(second, RECORDS - 70)]
    assert done == [b"v%d" % n for n in range(RECORDS)]


def test_commit_callbacks_and_offsets_as_given(kafka: Kafka) -> None:
    topic = kafka.topic("callbacks", partitions=2)
    kafka.produce(topic, made(20))

    def script(ck: Any, group: str) -> Any:
        heard: list[Any] = []
        config = {"bootstrap.servers": kafka.servers, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
        config |= {"on_commit": lambda error, partitions: heard.append((error and error.code(), parts(partitions)))}
        with ck.Consumer(config | {"enable.auto.commit": False}) as c:
            c.subscribe([topic])
            read(c, 20)
            c.commit(offsets=[ck.TopicPartition(topic, 0, 5, "a note")])
            wait_for(lambda: c.poll(0.1) is None and bool(heard), "the callback")
            result = parts(c.commit(offsets=[ck.TopicPartition(topic, 1, 7)], asynchronous=False))
            stored = c.committed([ck.TopicPartition(topic, p) for p in range(2)], timeout=10)
            return heard, result, parts(stored)

    heard, *_ = both(script)
    assert heard[0][0] is None


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_producer_of_theirs_commits_for_our_member(kafka: Kafka, protocol: str) -> None:
    source, target = kafka.topic("source"), kafka.topic("target")
    kafka.produce(source, made(30))
    config = {
        "bootstrap.servers": kafka.servers, "group.id": source, "auto.offset.reset": "earliest", "enable.auto.commit": False,
        "group.protocol": protocol,
    }  # fmt: skip
    producer = kafka.producer(transactional_id=source)
    producer.init_transactions(30)
    with confluent_api.Consumer(config) as c:
        c.subscribe([source])
        read(c, 20)
        producer.begin_transaction()
        producer.produce(target, b"made of it")
        positions = [confluent_kafka.TopicPartition(p.topic, p.partition, p.offset) for p in c.position(c.assignment())]
        producer.send_offsets_to_transaction(positions, c.consumer_group_metadata(), 30)
        producer.commit_transaction(30)
        [stored] = c.committed(c.assignment(), timeout=10)
        assert stored.offset == 20


def test_patterns_find_topics_that_are_made_later(kafka: Kafka) -> None:
    name = kafka.topic("pattern")
    kafka.produce(name, made(5))
    with consumer(OURS, kafka, name, enable_auto_commit=True, topic_metadata_refresh_interval_ms=500) as c:
        c.subscribe([f"^{name.replace('.', '[.]')}"])
        read(c, 5)
        kafka.admin.create_topics([confluent_kafka.admin.NewTopic(f"{name}.more", 1)])[f"{name}.more"].result(30)  # type: ignore[attr-defined]
        kafka.produce(f"{name}.more", made(7))
        assert {message.topic() for message in read(c, 7)} == {f"{name}.more"}


def test_a_poll_loop_and_a_thread_that_commits(kafka: Kafka) -> None:
    topic = kafka.topic("threads")
    kafka.produce(topic, made(RECORDS))
    failures: list[BaseException] = []
    with consumer(OURS, kafka, topic) as c:
        c.subscribe([topic])
        found: list[Any] = []
        ended = threading.Event()

        def commit() -> None:
            try:
                last = -1
                while not ended.is_set() or last < len(found) - 1:
                    if len(found) - 1 > last:
                        last = len(found) - 1
                        c.commit(message=found[last], asynchronous=False)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=commit)
        thread.start()
        deadline = time.monotonic() + 30
        while len(found) < RECORDS and time.monotonic() < deadline:
            if (message := c.poll(0.2)) is not None:
                found.append(message)
        ended.set()
        thread.join(30)
        assert not failures
        assert [message.value() for message in found] == [b"v%d" % n for n in range(RECORDS)]
        assert c.committed(c.assignment(), timeout=10)[0].offset == RECORDS
