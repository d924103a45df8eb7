"""What callers give to a group, right and wrong: a call refuses it, and nothing of it reaches the background thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from fastfetch import Consumer, OffsetAndMetadata, TopicPartition
from fastfetch.assignors import RangeAssignor
from fastfetch.errors import ConfigError, UsageError
from fastfetch.testing import Broker

P0 = TopicPartition("orders", 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders", partitions=1)
        yield broker


def consumer_of(broker: Broker, **settings: Any) -> Consumer:
    return Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g", retry_backoff_ms=10, **settings)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda c: c.subscribe(["\ud800"]), "subscribe: a topic's name: UTF-8 has nothing for"),
        (lambda c: c.subscribe("x" * 40_000), "a topic's name must be at most 32767 bytes long; it has 40000"),
        (lambda c: c.subscribe(pattern="\ud800"), "a pattern: UTF-8 has nothing for"),
        (lambda c: c.subscribe(pattern=5), "a pattern must be a string; got 5"),
        (lambda c: c.enforce_rebalance("\ud800"), "the reason: UTF-8 has nothing for"),
        (lambda c: c.enforce_rebalance(5), "the reason must be a string; got 5"),
        (lambda c: c.commit({P0: OffsetAndMetadata(1, "\ud800")}), "metadata of orders-0: UTF-8 has nothing for"),
        (lambda c: c.commit_async({P0: OffsetAndMetadata(1, b"x")}), "metadata of orders-0 must be a string; got b'x'"),
        (lambda c: c.commit({TopicPartition("\ud800", 0): 1}), "a topic's name: UTF-8 has nothing for"),
    ],
)
def test_text_that_can_t_be_sent_is_refused_by_the_call(broker: Broker, call: Callable[[Consumer], object], says: str) -> None:
    with consumer_of(broker) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(UsageError, match=says):
            call(consumer)
        deadline = time.monotonic() + 10
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(50)


@pytest.mark.parametrize("name", ["group_id", "group_instance_id", "client_id", "client_rack", "group_remote_assignor"])
def test_settings_that_can_t_be_sent(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: UTF-8 has nothing for"):
        Consumer(bootstrap_servers="127.0.0.1:1", **{name: "\ud800"})


@pytest.mark.parametrize("what", ["raises", "text"])
def test_an_assignor_without_user_data_to_send_is_heard_of_by_each_poll_and_asked_again(broker: Broker, what: str) -> None:
    class Failing(RangeAssignor):
        asked = 0

        def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
            self.asked += 1
            if self.asked > 3:
                return b"data"
            if what == "text":
                return "data"  # type: ignore[return-value]
            raise ZeroDivisionError

    mine = Failing()
    with consumer_of(broker, partition_assignment_strategy=[mine]) as consumer:
        consumer.subscribe(["orders"])
        for turn in range(1, 4):
            with pytest.raises(UsageError if what == "text" else ZeroDivisionError):
                consumer.poll(50)
            assert mine.asked == turn
        deadline = time.monotonic() + 10
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(50)
        assert mine.asked == 4
