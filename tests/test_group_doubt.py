"""A member of the consumer protocol that its coordinator has not answered for long may have been thrown out: records wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from fastfetch import Consumer, TopicPartition
from fastfetch.testing import Broker, drop, encode_batch
from fastfetch.testing.broker import Rule

P0 = TopicPartition("orders", 0)
HEARTBEAT = 0.2
SECONDS = 20


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(consumer_heartbeat=HEARTBEAT) as broker:
        broker.create_topic("orders", partitions=1)
        broker.append("orders", 0, encode_batch([b"x"] * 100))
        yield broker


@pytest.fixture
def consumer(broker: Broker) -> Iterator[Consumer]:
    settings = {"group_id": "g", "group_protocol": "consumer", "auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}
    with Consumer(settings, bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.subscribe(["orders"])
        yield consumer


def go_silent(broker: Broker) -> Rule:
    """The coordinator answers no heartbeat any more; returns when that has lasted."""
    silence = broker.on("ConsumerGroupHeartbeat", drop(), times=None)
    broker.wait_for("ConsumerGroupHeartbeat", len(broker.requests("ConsumerGroupHeartbeat")) + 1, timeout=SECONDS)
    time.sleep(5 * HEARTBEAT)
    return silence


def test_polls_bring_nothing_until_the_coordinator_answers(broker: Broker, consumer: Consumer) -> None:
    deadline = time.monotonic() + SECONDS
    while not consumer.poll(50, max_records=10):
        assert time.monotonic() < deadline
    silence = go_silent(broker)
    assert consumer.position(P0) == 10, "there is more in the buffer"
    assert consumer.poll(100) == {}
    assert consumer.poll(0) == {}
    assert consumer.position(P0) == 10
    assert consumer.assignment() == {P0}
    broker.off(silence)
    while not (found := consumer.poll(100)):
        assert time.monotonic() < deadline
    assert [record.offset for record in found[P0]] == list(range(10, 100)), "nothing is lost by it, and nothing repeated"


def test_iteration_stops_between_two_records_until_the_coordinator_answers(broker: Broker, consumer: Consumer) -> None:
    records = iter(consumer)
    assert [next(records).offset for _ in range(10)] == list(range(10))
    silence = go_silent(broker)
    is_over = threading.Event()

    def end() -> None:
        is_over.set()
        broker.off(silence)

    timer = threading.Timer(0.5, end)
    timer.start()
    following = next(records).offset
    assert is_over.is_set(), "handed out while in doubt"
    assert following == 10
    assert [next(records).offset for _ in range(89)] == list(range(11, 100))
    timer.join()
