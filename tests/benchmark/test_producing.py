"""Filling topics: what was asked for is there, the same each time, and what goes wrong is said."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

import fastfetch
from fastfetch import Consumer, TopicPartition
from fastfetch.benchmark import producing
from fastfetch.benchmark.external import ToolError
from fastfetch.benchmark.material import Batch, of_topic
from fastfetch.benchmark.producing import CODECS, Deliveries, Sample, fill, has_append_time, prepare
from fastfetch.errors import FastFetchError, UsageError
from fastfetch.testing import Broker, encode_batch, error


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(writable=True) as broker:
        yield broker


@pytest.fixture
def consumer(broker: Broker) -> Iterator[Consumer]:
    with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        yield consumer


def batches(broker: Broker, partitions: int) -> Iterator[Batch]:
    with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        yield from of_topic(consumer, [TopicPartition("t", partition) for partition in range(partitions)])


def test_a_sample_is_the_same_each_time() -> None:
    sample = Sample(records=50, shape="logs", value_bytes=77)
    rows = list(sample.pairs())
    assert rows == list(sample.pairs())
    assert len(rows) == 50
    assert {len(value) for _, value in rows} == {77}
    assert rows != list(Sample(records=50, shape="logs", value_bytes=77, seed=2).pairs())


def test_keys_have_the_size_that_was_asked_for() -> None:
    assert {key for key, _ in Sample(records=5, key_bytes=0).pairs()} == {None}
    assert {len(key or b"") for key, _ in Sample(records=5, shape="text", key_bytes=12).pairs()} == {12}
    assert {len(key or b"") for key, _ in Sample(records=5).pairs()} == {8}


def test_bytes_end_a_sample_too_and_records_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "DISTINCT", 3)
    values = [value for _, value in Sample(nbytes=1000, shape="random", value_bytes=90).pairs()]
    assert len(values) == 12
    assert values[:3] * 4 == values
    assert len(set(values)) == 3
    assert len(list(Sample(records=2, nbytes=1000, value_bytes=90).pairs())) == 2


@pytest.mark.parametrize("codec", CODECS)
def test_what_was_asked_for_is_there(broker: Broker, consumer: Consumer, codec: str) -> None:
    told: list[tuple[int, int]] = []
    sample = Sample(records=3000, codec=codec, headers=2, batch_records=10)
    assert prepare(consumer, broker.bootstrap_servers, "t", 3, append=False) == 3
    made = fill(broker.bootstrap_servers, "t", 3, sample, lambda *done: told.append(done))
    assert made.records == 3000
    assert made.nbytes == sum(len(key or b"") + len(value) for key, value in sample.pairs())
    assert [records for records, _ in told] == [1024, 2048]
    rows: dict[int, list[tuple[bytes | None, bytes | None, int]]] = {}
    for batch in batches(broker, 3):
        assert (batch.header.codec, batch.header.count) == (codec, 10)
        for block in fastfetch.decode(batch.view).blocks:
            rows.setdefault(batch.tp.partition, []).extend((record.key, record.value, len(record.headers)) for record in block)
    expected = [(key, value, 2) for key, value in sample.pairs()]
    assert rows == {partition: expected[partition::3] for partition in range(3)}, "partitions take turns"


def test_batches_are_closed_by_bytes_as_well(broker: Broker, consumer: Consumer) -> None:
    prepare(consumer, broker.bootstrap_servers, "t", None, append=False)
    sample = Sample(records=100, shape="random", value_bytes=100, codec="none", batch_bytes=1100, linger_ms=2000)
    fill(broker.bootstrap_servers, "t", 1, sample, lambda *_: None)
    sizes = [batch.header.count for batch in batches(broker, 1)]
    assert sum(size or 0 for size in sizes) == 100
    assert max(size or 0 for size in sizes) in range(8, 12)


def test_a_topic_that_has_records_is_left_alone(broker: Broker, consumer: Consumer) -> None:
    broker.create_topic("t", partitions=2)
    assert prepare(consumer, broker.bootstrap_servers, "t", None, append=False) == 2
    with pytest.raises(UsageError, match="topic t is there: it has 2 partitions, not 3"):
        prepare(consumer, broker.bootstrap_servers, "t", 3, append=True)
    broker.append("t", 1, encode_batch([b"v"]))
    with pytest.raises(UsageError, match="topic t has records already, 1 offsets of them: --append adds to them"):
        prepare(consumer, broker.bootstrap_servers, "t", None, append=False)
    assert prepare(consumer, broker.bootstrap_servers, "t", 2, append=True) == 2


def test_what_cannot_be_made_or_written_is_said(broker: Broker, consumer: Consumer) -> None:
    with pytest.raises(FastFetchError, match="topic un lawful could not be made: "):
        prepare(consumer, broker.bootstrap_servers, "un lawful", 1, append=False)
    broker.create_topic("t")
    broker.on("Produce", error(29), times=None)  # not authorized
    with pytest.raises(FastFetchError, match=r"topic t can't be written: .*[Aa]uthoriz"):
        fill(broker.bootstrap_servers, "t", 1, Sample(records=10), lambda *_: None)


def test_a_producer_does_not_wait_for_a_topic_that_is_not_there(broker: Broker) -> None:
    with pytest.raises(FastFetchError, match="topic absent can't be written: "):
        Deliveries(broker.bootstrap_servers, "absent", {}).connect()


def test_an_interrupt_leaves_nothing_to_be_sent(broker: Broker) -> None:
    broker.create_topic("t")

    def progress(records: int, nbytes: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill(broker.bootstrap_servers, "t", 1, Sample(records=5000, linger_ms=60_000, batch_bytes=1 << 20), progress)
    assert broker.end_offset("t", 0) < 5000


def test_without_confluent_kafka_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.admin", None)
    with pytest.raises(ToolError, match=r"not installed: pip install 'fastfetch\[bench\]'"):
        producing.confluent_kafka()


def test_settings_that_cannot_be_looked_up_are_said(broker: Broker) -> None:
    with pytest.raises(FastFetchError, match="the settings of topic t could not be looked up: "):
        has_append_time(broker.bootstrap_servers, "t")
