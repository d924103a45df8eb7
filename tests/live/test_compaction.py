"""A compacted topic after the broker's cleaner has been at it: holes, emptied batches, tombstones."""

from __future__ import annotations

import time

import pytest

import fastfetch
from fastfetch import TopicPartition
from tests.live.conftest import CODECS, SECONDS, Kafka, Sent, read_to_end, sent


@pytest.mark.parametrize("codec", CODECS)
def test_reading_over_what_the_cleaner_left(kafka: Kafka, codec: str) -> None:
    topic = kafka.topic(
        f"compacted-{codec}",
        cleanup_policy="compact",
        segment_ms=100,
        min_cleanable_dirty_ratio=0.001,
        max_compaction_lag_ms=100,
        delete_retention_ms=60_000,  # tombstones stay: their batches then carry a delete horizon (KIP-534)
    )
    tp = TopicPartition(topic, 0)
    records = [Sent(b"key %d" % (i % 7), b"value %d" % i, [("h", b"x")], 1_700_000_000_000 + i) for i in range(300)]
    records += [Sent(b"key 3", None, [], 1_700_000_001_000)]
    produced = kafka.produce(topic, records, codec=codec, batch=10)
    last = {record.key: record for record in produced}

    # The newest segment is never cleaned, and a segment is closed by the first append after segment.ms.
    deadline = time.monotonic() + SECONDS
    while len(kept := kafka.consume(topic)) > 20:
        time.sleep(0.3)
        assert time.monotonic() < deadline, f"the cleaner has left {len(kept)} records"
        kafka.produce(topic, [Sent(b"roll", b"x", [], 1_700_000_002_000)])

    with fastfetch.Consumer(bootstrap_servers=kafka.servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        read = sent(read_to_end(consumer, tp))
        assert consumer.position(tp) == consumer.end_offsets([tp])[tp]
        # The newest record of each key, and beside them only what was appended to roll the segment.
        survivors = [record for record in read if record.key != b"roll"]
        assert survivors == sorted(last.values(), key=lambda record: record.offset)
        # Between holes too: a position that no record has any more. The fetch returns the batch around it or the next one.
        for start in (1, 150, survivors[0].offset - 1, survivors[0].offset + 1):
            consumer.seek(tp, start)
            found = [record for record in sent(read_to_end(consumer, tp)) if record.key != b"roll"]
            assert found == [record for record in survivors if record.offset >= start]
