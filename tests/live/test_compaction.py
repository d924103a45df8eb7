"""A compacted topic after the broker's cleaner has been at it: holes, emptied batches, tombstones."""

from __future__ import annotations

import time

import pytest

import fastfetch
from fastfetch import TopicPartition
from tests.live.conftest import CODECS, SECONDS, Kafka, Sent, read_to_end, send, sent, wait_for
from tests.live.logs import ROLL, Newest


@pytest.mark.parametrize("codec", CODECS)
def test_reading_over_what_the_cleaner_left(kafka: Kafka, compacted: dict[str, tuple[str, Newest]], codec: str) -> None:
    topic, newest = compacted[codec]
    tp = TopicPartition(topic, 0)
    expected = sorted(newest.values(), key=lambda record: record.offset)
    assert expected[0].offset > 200, "the batches at the start of the log are still there"
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        # From offsets that no record has any more, too: the fetch returns the batch around them or the next one.
        for start in (0, 1, 150, expected[0].offset - 1, expected[0].offset + 1):
            consumer.seek(tp, start)
            found = [record for record in sent(read_to_end(consumer, tp)) if record.key != ROLL.key]
            assert found == [record for record in expected if record.offset >= start]
            assert consumer.position(tp) == consumer.end_offsets([tp])[tp]


@pytest.mark.parametrize("codec", CODECS)
def test_the_cleaned_segments_on_disk(kafka: Kafka, compacted: dict[str, tuple[str, Newest]], codec: str) -> None:
    topic, newest = compacted[codec]
    found = [record for record in sent(fastfetch.read_log(kafka.cluster.partition_folder(topic, 0))) if record.key != ROLL.key]
    assert found == sorted(newest.values(), key=lambda record: record.offset)


@pytest.fixture(scope="module")
def bare_tail(kafka: Kafka) -> tuple[TopicPartition, list[Sent]]:
    """A log that ends in a batch the cleaner has emptied and the marker of an aborted transaction: no record is left there."""
    topic = kafka.topic(
        "tail", cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.001, max_compaction_lag_ms=100
    )
    kept = kafka.produce(topic, [Sent(b"%d" % i, b"kept", [], 1_700_000_000_000) for i in range(5)])
    producer = kafka.producer(transactional_id=topic)
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    send(producer, topic, [Sent(b"%d" % i, b"aborted", []) for i in range(20)])
    producer.flush(SECONDS)
    time.sleep(0.2)  # longer than segment.ms: the marker begins a new segment, and the one before it may be cleaned
    producer.abort_transaction(SECONDS)
    wait_for(lambda: kafka.consume(topic) == kept, "the cleaner")
    return TopicPartition(topic, 0), kept


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("start", [0, 4, 5, 7, 24, 25])
def test_a_tail_that_was_compacted_away(
    kafka: Kafka, bare_tail: tuple[TopicPartition, list[Sent]], isolation: str, start: int
) -> None:
    """The position arrives at the end although no record does."""
    tp, kept = bare_tail
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, isolation_level=isolation) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, start)
        assert sent(read_to_end(consumer, tp)) == kept[start:]
        assert consumer.position(tp) == 26 == consumer.end_offsets([tp])[tp]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_bounded_read_of_it_ends(kafka: Kafka, bare_tail: tuple[TopicPartition, list[Sent]], isolation: str) -> None:
    tp, kept = bare_tail
    ranges = fastfetch.plan(kafka.servers, tp.topic, isolation=isolation, max_records=5)
    assert ranges[-1].end == 26
    assert [record for span in ranges for record in sent(fastfetch.read(span))] == kept
