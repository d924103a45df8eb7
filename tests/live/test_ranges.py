"""plan() and read() of real logs: however they are cut, each record comes once, and reading ends where no record is last."""

from __future__ import annotations

import pytest

import fastfetch
from fastfetch import TopicPartition
from tests.live.conftest import CODECS, SECONDS, Kafka, Sent, send, sent

START = 1_700_000_000_000


@pytest.fixture(scope="module")
def log(kafka: Kafka) -> tuple[str, list[Sent], list[Sent]]:
    """A partition with batches of each codec, then transactions; its last offset is the marker of an aborted one."""
    topic = kafka.topic("ranges")
    everything: list[Sent] = []
    for turn, codec in enumerate(CODECS):
        records = [Sent(b"k", b"%s %d" % (codec.encode(), i), [], START + 1000 * turn + i) for i in range(40)]
        everything += kafka.produce(topic, records, codec=codec, batch=13)
    kept = list(everything)
    producer = kafka.producer("lz4", transactional_id=topic, batch_num_messages=7)
    producer.init_transactions(SECONDS)
    for commits in (True, False, True, False):
        producer.begin_transaction()
        acknowledged = send(producer, topic, [Sent(b"k", b"%d" % i, [], START + 10_000 + i) for i in range(20)])
        producer.flush(SECONDS)
        (producer.commit_transaction if commits else producer.abort_transaction)(SECONDS)
        everything += acknowledged()
        kept += acknowledged() if commits else []
    kafka.wait_for_markers(TopicPartition(topic, 0))
    return topic, everything, kept


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("size", [None, 100, 9, 1])
def test_each_record_comes_once(kafka: Kafka, log: tuple[str, list[Sent], list[Sent]], size: int | None, isolation: str) -> None:
    topic, everything, kept = log
    ranges = fastfetch.plan(kafka.servers, topic, isolation=isolation, max_records=size)
    assert ranges[-1].end == everything[-1].offset + 2  # behind the marker
    if size == 1:
        ranges = ranges[::7]  # a connection each
    chosen = {offset for span in ranges for offset in range(span.start, span.end)}
    expected = [r for r in (everything if isolation == "read_uncommitted" else kept) if r.offset in chosen]
    assert [record for span in ranges for record in sent(fastfetch.read(span))] == expected


def test_ranges_by_time(kafka: Kafka, log: tuple[str, list[Sent], list[Sent]]) -> None:
    topic, everything, _ = log
    start, end = fastfetch.Timestamp(START + 1_020), fastfetch.Timestamp(START + 3_000)
    ranges = fastfetch.plan(kafka.servers, topic, start=start, end=end)
    read = [record for span in ranges for record in sent(fastfetch.read(span))]
    assert read == [record for record in everything if START + 1_020 <= record.timestamp < START + 3_000]
