"""Variants of published cases of groups that take threads and sockets. `cases.txt` says which test pins which case."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise

import pytest

from fastfetch import Consumer, RebalanceListener, TopicPartition
from fastfetch.assignors import Assignment, GroupCluster, RangeAssignor, Subscription
from fastfetch.testing import Broker, drop, encode_batch

TOPIC = "orders"
P0 = TopicPartition(TOPIC, 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic(TOPIC, partitions=2)
        broker.append(TOPIC, 0, encode_batch([b"x"] * 10))
        yield broker


def test_g01_the_user_s_code_runs_with_no_lock_held_also_while_heartbeats_fail(broker: Broker) -> None:
    """There is one lock. Whoever holds it while it calls the user's code stops the heartbeats, and waits for whom that waits."""
    looked: dict[str, bool] = {}

    def look(where: str) -> None:
        def take_the_lock() -> None:
            with consumer._client.lock:
                free.set()

        free = threading.Event()
        threading.Thread(target=take_the_lock, daemon=True).start()
        looked[where] = free.wait(5)

    class Looking(RangeAssignor):
        def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
            look("user data")
            return None

        def assign(self, cluster: GroupCluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
            look("assign")
            return super().assign(cluster, subscriptions)

        def on_assignment(self, assignment: Assignment, generation: int) -> None:
            look("on_assignment")

    class Listener(RebalanceListener):
        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            look("assigned")

        def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            look("revoked")

    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", partition_assignment_strategy=[Looking()],
        auto_offset_reset="earliest", heartbeat_interval_ms=30, session_timeout_ms=300, retry_backoff_ms=10,
    ) as consumer:  # fmt: skip
        consumer.subscribe([TOPIC], listener=Listener())
        while len(consumer.assignment()) < 2:
            consumer.poll(20)
        consumer.commit_async({P0: 1}, lambda offsets, error: look("commit"))
        broker.on("Heartbeat", drop(), times=6)
        deadline = time.monotonic() + 10
        while "revoked" not in looked or "commit" not in looked:
            assert time.monotonic() < deadline, looked
            consumer.poll(20)
            if len(broker.requests("Heartbeat")) > 3:
                consumer.enforce_rebalance()
    assert looked == dict.fromkeys(("user data", "assign", "on_assignment", "assigned", "commit", "revoked"), True)


def test_g02_heartbeats_go_on_during_the_decode_of_50_mb(broker: Broker) -> None:
    size = 0
    while size < 50 << 20:
        data = encode_batch([bytes(1000)] * 1000)
        broker.append(TOPIC, 1, data)
        size += len(data)
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest", heartbeat_interval_ms=50,
        session_timeout_ms=5_000, fetch_max_bytes=64 << 20, max_partition_fetch_bytes=64 << 20, max_buffered_bytes=256 << 20,
    ) as consumer:  # fmt: skip
        consumer.subscribe([TOPIC])
        records = 0
        while records < 52_000:
            records += sum(len(block) for block in consumer.poll_blocks(1_000))
        time.sleep(0.2)
    beats = [logged.time for logged in broker.requests("Heartbeat")]
    assert len(beats) >= 3
    assert max(b - a for a, b in pairwise(beats)) < 1.5, "of a session of 5 s"
