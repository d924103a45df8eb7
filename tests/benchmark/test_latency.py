"""Clients that follow a topic, and how old records are by then."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fastfetch import Consumer
from fastfetch.benchmark.clients import Job
from fastfetch.benchmark.contest import ReadingError
from fastfetch.benchmark.latency import Pace, follow_in_turns, scratch_topic
from fastfetch.benchmark.results import Case, Latency, Reading
from fastfetch.errors import FastFetchError
from fastfetch.testing import Broker, error

CASE = Case("orders", "orders", "lz4", 2, 1000, 10.0, 100.0, 30_000, 100_000)
PACE = Pace(rate=200, seconds=0.5, value_bytes=50, codec="lz4", append_time=False)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(writable=True) as broker:
        yield broker


@pytest.fixture
def consumer(broker: Broker) -> Iterator[Consumer]:
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        yield consumer


def test_percentiles_are_of_records_that_were_there() -> None:
    assert Latency.of(range(1000, 0, -1)) == Latency(0.5, 0.9, 0.99, 0.999, 1.0)
    assert Latency.of([3000]) == Latency(3, 3, 3, 3, 3)
    assert Latency.of([1000, 2000]) == Latency(1, 2, 2, 2, 2)
    with pytest.raises(ValueError, match="no ages"):
        Latency.of([])


def test_a_scratch_topic_goes_away_also_after_an_error(broker: Broker, consumer: Consumer) -> None:
    made: list[set[str]] = []

    def use() -> None:
        with scratch_topic(consumer, broker.bootstrap_servers, 3, append_time=True) as name:
            assert name.startswith("kfetch-bench-")
            assert broker.end_offset(name, 2) == 0
            made.append(consumer.topics())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use()
    assert [len(topics) for topics in made] == [1]
    assert consumer.topics() == set()


def test_each_follows_in_its_turn(broker: Broker, consumer: Consumer) -> None:
    broker.create_topic("t", partitions=2)
    names = ["fastfetch", "confluent-kafka", "java"]
    job = Job(broker.bootstrap_servers, "t", 0)
    outcomes = list(follow_in_turns(consumer, job, CASE, names, PACE, rounds=1))
    assert str(outcomes[0][2]) == "java: it does not tell how old records are"
    assert [(turn, client) for turn, client, _ in outcomes[1:]] == [
        (0, "confluent-kafka"), (0, "fastfetch"), (1, "fastfetch"), (1, "confluent-kafka"),
    ]  # fmt: skip
    for _, _, got in outcomes[1:]:
        assert isinstance(got, Reading)
        assert (got.case, got.records, got.wire_bytes) == ("orders", 100, 3000)
        assert 0.4 < got.seconds < 10, "they come at the rate at which they are written"
        assert got.latency_ms is not None
        assert 0 < got.latency_ms.p50 <= got.latency_ms.p999 <= got.latency_ms.max < 5000
    assert sum(broker.end_offset("t", partition) for partition in range(2)) == 400
    assert broker.end_offset("t", 0) == broker.end_offset("t", 1)


def test_a_topic_that_cannot_be_written_ends_it(broker: Broker, consumer: Consumer) -> None:
    broker.create_topic("t")
    broker.on("Produce", error(29), times=None)
    with pytest.raises(FastFetchError, match="topic t can't be written: "):
        list(follow_in_turns(consumer, Job(broker.bootstrap_servers, "t", 0), CASE, ["fastfetch"], PACE, rounds=1))


def test_a_client_that_fails_is_told(broker: Broker, consumer: Consumer) -> None:
    broker.create_topic("t")
    job = Job(broker.bootstrap_servers, "t", 0, settings={"isolation.level": "sideways"})
    [(turn, client, got)] = follow_in_turns(consumer, job, CASE, ["fastfetch"], PACE, rounds=1)
    assert (turn, client) == (0, "fastfetch")
    assert isinstance(got, ReadingError)
    assert "isolation_level" in str(got)
