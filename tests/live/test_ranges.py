"""plan() and read() of real logs: however they are cut, each record comes once, and reading ends where no record is last."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace

import confluent_kafka
import pytest
from confluent_kafka.admin import NewTopic

import fastfetch
from fastfetch import OffsetRange, TopicPartition
from fastfetch.errors import OffsetOutOfRangeError, UnknownTopicError
from tests.live.conftest import CODECS, SECONDS, Kafka, Sent, send, sent, wait_for

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
    expected = everything if isolation == "read_uncommitted" else kept
    assert [record for span in ranges for record in sent(fastfetch.read(span))] == expected


def test_ranges_by_time(kafka: Kafka, log: tuple[str, list[Sent], list[Sent]]) -> None:
    topic, everything, _ = log
    start, end = fastfetch.Timestamp(START + 1_020), fastfetch.Timestamp(START + 3_000)
    ranges = fastfetch.plan(kafka.servers, topic, start=start, end=end)
    read = [record for span in ranges for record in sent(fastfetch.read(span))]
    assert read == [record for record in everything if START + 1_020 <= record.timestamp < START + 3_000]


def test_both_sides_of_every_cut(kafka: Kafka, log: tuple[str, list[Sent], list[Sent]]) -> None:
    topic, _, kept = log
    [whole] = fastfetch.plan(kafka.servers, topic, isolation="read_committed")
    for cut in range(whole.end - 93, whole.end + 1, 2):  # within the transactions
        assert sent(fastfetch.read(replace(whole, end=cut))) == [record for record in kept if record.offset < cut]
        assert sent(fastfetch.read(replace(whole, start=cut))) == [record for record in kept if record.offset >= cut]


def count(span: OffsetRange) -> int:
    return sum(map(len, fastfetch.read(span)))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_pool_of_processes(kafka: Kafka, log: tuple[str, list[Sent], list[Sent]], method: str) -> None:
    topic, everything, _ = log
    ranges = fastfetch.plan(kafka.servers, topic, target_bytes=4000)
    assert len(ranges) > 3
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert sum(pool.map(count, ranges)) == len(everything)


def test_what_is_gone_or_not_there_yet(kafka: Kafka) -> None:
    topic = kafka.topic("bounds")
    records = kafka.produce(topic, [Sent(b"k", b"%d" % i, [], START + i) for i in range(30)], codec="zstd", batch=10)
    [whole] = fastfetch.plan(kafka.servers, topic)
    kafka.produce(topic, [Sent(b"k", b"later", [], START)])
    assert sent(fastfetch.read(whole)) == records
    [deleted] = kafka.admin.delete_records([confluent_kafka.TopicPartition(topic, 0, 12)]).values()
    deleted.result(SECONDS)
    with pytest.raises(OffsetOutOfRangeError, match="offset 0 of"):
        list(fastfetch.read(whole))
    with pytest.raises(OffsetOutOfRangeError, match="starts at 12"):
        fastfetch.plan(kafka.servers, topic, start=11)
    assert sent(fastfetch.read(replace(whole, start=12))) == records[12:]
    kafka.admin.delete_topics([topic])[topic].result(SECONDS)
    wait_for(lambda: topic not in kafka.admin.list_topics(timeout=SECONDS).topics, f"the end of {topic}")
    kafka.admin.create_topics([NewTopic(topic, 1)])[topic].result(SECONDS)
    kafka.produce(topic, [Sent(b"k", b"another", [], START)] * 40)
    with pytest.raises(UnknownTopicError, match="another one was created under its name"):
        list(fastfetch.read(whole))
