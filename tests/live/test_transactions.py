"""Transactions of a real broker under both isolation levels, compared with what librdkafka hands out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import fastfetch
from fastfetch import TopicPartition
from tests.live.conftest import CODECS, SECONDS, Kafka, Sent, read_to_end, send, sent
from tests.live.logs import Interleaved, transactional

ISOLATIONS = ("read_uncommitted", "read_committed")


def read(kafka: Kafka, tp: TopicPartition, isolation: str) -> tuple[list[Sent], int]:
    """The records, and the position when they had all been handed out."""
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, auto_offset_reset="earliest", isolation_level=isolation) as consumer:
        consumer.assign([tp])
        records = sent(read_to_end(consumer, tp))
        return records, consumer.position(tp)


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("codec", CODECS)
def test_each_isolation_level(kafka: Kafka, interleaved: Callable[[str], Interleaved], codec: str, isolation: str) -> None:
    tp, everything, kept = interleaved(codec)
    expected = everything if isolation == "read_uncommitted" else kept
    assert kafka.consume(tp.topic, isolation=isolation) == expected, "the test's own account is wrong"
    records, position = read(kafka, tp, isolation)
    assert records == expected
    # The last thing in the log is a marker, which takes an offset and is never handed out.
    assert position > everything[-1].offset + 1


@pytest.mark.parametrize("codec", CODECS)
def test_a_read_from_the_middle_of_an_aborted_transaction(
    kafka: Kafka, interleaved: Callable[[str], Interleaved], codec: str
) -> None:
    """The aborted list of a fetch covers its own range: a transaction that began below the position must still be recognised."""
    tp, everything, kept = interleaved(codec)
    with fastfetch.Consumer(
        bootstrap_servers=kafka.servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([tp])
        for start in [record.offset for record in everything][:: len(everything) // 8]:
            consumer.seek(tp, start)
            assert sent(read_to_end(consumer, tp)) == [record for record in kept if record.offset >= start]


def test_an_open_transaction_holds_back_what_follows(kafka: Kafka) -> None:
    topic = kafka.topic("open")
    tp = TopicPartition(topic, 0)
    before = kafka.produce(topic, [Sent(b"k", b"before", [], 5)])
    producer = transactional(kafka, "lz4", topic)
    producer.begin_transaction()
    pending = send(producer, topic, [Sent(b"k", b"pending", [], 6)])
    producer.flush(SECONDS)
    after = kafka.produce(topic, [Sent(b"k", b"after", [], 7)])

    assert read(kafka, tp, "read_uncommitted")[0] == before + pending() + after
    records, position = read(kafka, tp, "read_committed")
    assert records == before
    assert position == 1  # the last stable offset

    producer.commit_transaction(SECONDS)
    kafka.wait_for_markers(tp)
    assert read(kafka, tp, "read_committed")[0] == before + pending() + after


def test_a_partition_with_nothing_but_an_aborted_transaction(kafka: Kafka) -> None:
    """No record is handed out and the position still arrives at the end; a reader that counts records waits for ever."""
    topic = kafka.topic("aborted")
    producer = transactional(kafka, "zstd", topic)
    producer.begin_transaction()
    send(producer, topic, [Sent(b"k", b"v", [], 5)] * 20)
    producer.flush(SECONDS)
    producer.abort_transaction(SECONDS)
    kafka.wait_for_markers(TopicPartition(topic, 0))
    assert read(kafka, TopicPartition(topic, 0), "read_committed") == ([], 21)
