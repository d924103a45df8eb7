"""The broker's own segment files, read from its disk, hold what a consumer of it sees."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import fastfetch
from fastfetch import TopicPartition
from tests.live.conftest import CODECS, SECONDS, Kafka, Sent, read_to_end, send, sent


def consumed(kafka: Kafka, topic: str, isolation: str = "read_uncommitted") -> list[Sent]:
    tp = TopicPartition(topic, 0)
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, auto_offset_reset="earliest", isolation_level=isolation) as consumer:
        consumer.assign([tp])
        return sent(read_to_end(consumer, tp))


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    """Several segments, with an index entry every few batches."""
    topic = kafka.topic("segments", segment_bytes=1 << 20, index_interval_bytes=4096)
    for turn, codec in enumerate(CODECS * 2):
        records = [
            Sent(b"%d" % i, b'{"turn": %d, "i": %d}' % (turn, i) + bytes(500), [("h", b"%d" % i)], 1_700_000_000_000)
            for i in range(1000)
        ]
        kafka.produce(topic, records, codec=codec, batch=40)
    return topic


def test_a_partition_folder(kafka: Kafka, topic: str) -> None:
    folder = kafka.cluster.partition_folder(topic, 0)
    assert len(list(folder.glob("*.log"))) > 1
    blocks = list(fastfetch.read_log(folder))
    assert {(block.topic, block.partition) for block in blocks} == {(topic, 0)}
    records = sent(blocks)
    assert len(records) == 10_000
    assert records == consumed(kafka, topic) == kafka.consume(topic)


def test_a_part_of_it_through_the_index(kafka: Kafka, topic: str) -> None:
    folder = kafka.cluster.partition_folder(topic, 0)
    everything = sent(fastfetch.read_log(folder))
    bases = [int(log.stem) for log in sorted(folder.glob("*.log"))]
    for start, stop in ((0, 1), (17, 5003), (bases[1] - 1, bases[1] + 1), (bases[1], None), (9_999, None), (9_990, 20_000)):
        found = sent(fastfetch.read_log(folder, start=start, stop=stop))
        assert found == everything[start : len(everything) if stop is None else stop], (start, stop)


def test_one_segment_file_elsewhere(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    """A file from a backup: no index, no neighbours."""
    source = sorted(kafka.cluster.partition_folder(topic, 0).glob("*.log"))[1]
    copy = tmp_path / source.name
    shutil.copy(source, copy)
    records = sent(fastfetch.read_log(copy))
    assert records[0].offset == int(source.stem)
    assert records == [r for r in kafka.consume(topic) if records[0].offset <= r.offset <= records[-1].offset]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_transactions_on_disk(kafka: Kafka, isolation: str) -> None:
    """A fetch response carries the list of aborted transactions; on disk only the markers tell."""
    topic = kafka.topic("on-disk")
    producer = kafka.producer("lz4", transactional_id=topic, batch_num_messages=4)
    producer.init_transactions(SECONDS)
    for turn in range(6):
        producer.begin_transaction()
        send(producer, topic, [Sent(b"k", b"turn %d, %d" % (turn, i), [], 1_700_000_000_000) for i in range(10)])
        producer.flush(SECONDS)
        (producer.abort_transaction if turn % 3 == 1 else producer.commit_transaction)(SECONDS)
    expected = kafka.consume(topic, isolation=isolation)
    assert len(expected) == (60 if isolation == "read_uncommitted" else 40)
    assert sent(fastfetch.read_log(kafka.cluster.partition_folder(topic, 0), isolation=isolation)) == expected
