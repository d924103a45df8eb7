"""Other clients as members of the broker's groups: two of each share the partitions, one leaves, the other takes over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fastfetch.consumer import Consumer
from fastfetch.testing import Broker, encode_batch
from tests.testing.peers import aiokafka, confluent_kafka, kafka

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

PARTITIONS = range(4)
EACH = 50
ALL = {(p, offset) for p in PARTITIONS for offset in range(EACH)}
SECONDS = 30


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(nodes=2) as made:
        made.create_topic("t", partitions=len(PARTITIONS))
        fill(made)
        yield made
        assert not [(r.api, r.version, r.refused) for r in made.requests() if r.refused]


def fill(broker: Broker) -> None:
    for p in PARTITIONS:
        broker.append("t", p, encode_batch([b"v%d" % i for i in range(EACH)]))


class Member:
    """What the clients have in common: `poll` gives (partition, offset) of records."""

    def __init__(self, broker: Broker, **more: Any) -> None:
        raise NotImplementedError

    def poll(self) -> list[tuple[int, int]]:
        raise NotImplementedError

    def commit(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Confluent(Member):
    def __init__(self, broker: Broker, **more: Any) -> None:
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
        if "group.protocol" not in more:
            settings |= {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 200}
        self.client = confluent_kafka.Consumer(settings | more)
        self.client.subscribe(["t"])

    def poll(self) -> list[tuple[int, int]]:
        return [(m.partition(), m.offset()) for m in self.client.consume(100, 0.1)]

    def commit(self) -> None:
        self.client.commit(asynchronous=False)

    def close(self) -> None:
        self.client.close()


class KafkaPython(Member):
    def __init__(self, broker: Broker, **more: Any) -> None:
        self.client = kafka.KafkaConsumer(
            "t",
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=50,
            heartbeat_interval_ms=200,
            **more,
        )

    def poll(self) -> list[tuple[int, int]]:
        # A poll that ends while it joins forgets the assignment at times (kafka-python 3.0.12): this one is long enough.
        return [(tp.partition, r.offset) for tp, records in self.client.poll(1500).items() for r in records]

    def commit(self) -> None:
        self.client.commit()

    def close(self) -> None:
        self.client.close()


class AioKafka(Member):
    def __init__(self, broker: Broker, **more: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self._start(broker))

    async def _start(self, broker: Broker) -> None:
        self.client = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=50,
            heartbeat_interval_ms=100,
        )
        self.client.subscribe(["t"])
        self.started = asyncio.ensure_future(self.client.start())

    def poll(self) -> list[tuple[int, int]]:
        return self.loop.run_until_complete(self._poll())

    async def _poll(self) -> list[tuple[int, int]]:
        if not self.started.done():
            await asyncio.sleep(0.1)
            return []
        found = await self.client.getmany(timeout_ms=100)
        return [(tp.partition, r.offset) for tp, records in found.items() for r in records]

    def commit(self) -> None:
        self.loop.run_until_complete(self.client.commit())

    def close(self) -> None:
        self.loop.run_until_complete(self.client.stop())
        self.loop.close()


class Ours(Member):
    def __init__(self, broker: Broker, **more: Any) -> None:
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.max.wait.ms": 50,
        }
        if more.get("group.protocol") != "consumer":
            settings |= {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 200}
        self.client = Consumer(settings | more)
        self.client.subscribe("t")

    def poll(self) -> list[tuple[int, int]]:
        return [(tp.partition, r.offset) for tp, records in self.client.poll(100).items() for r in records]

    def commit(self) -> None:
        self.client.commit()

    def close(self) -> None:
        self.client.close()


Make = Callable[[Broker], Member]

MEMBERS: dict[str, Make] = {
    "confluent-kafka, range": Confluent,
    "confluent-kafka, cooperative": lambda broker: Confluent(broker, **{"partition.assignment.strategy": "cooperative-sticky"}),
    "confluent-kafka, consumer protocol": lambda broker: Confluent(broker, **{"group.protocol": "consumer"}),
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
    "fastfetch, range": Ours,
    "fastfetch, cooperative": lambda broker: Ours(broker, **{"partition.assignment.strategy": "cooperative-sticky"}),
    "fastfetch, consumer protocol": lambda broker: Ours(broker, **{"group.protocol": "consumer"}),
}


def poll_until(
    broker: Broker, members: list[Member], is_done: Callable[[list[set[tuple[int, int]]]], bool]
) -> list[set[tuple[int, int]]]:
    """Let them poll side by side until what each has seen is enough; returns that."""
    seen: list[set[tuple[int, int]]] = [set() for _ in members]
    deadline = time.monotonic() + SECONDS
    with ThreadPoolExecutor(len(members)) as threads:
        while not is_done(seen):
            assert time.monotonic() < deadline, (broker.group("g"), [sorted(s) for s in seen])
            for records, new in zip(seen, threads.map(lambda member: member.poll(), members), strict=True):
                records.update(new)
    return seen


def is_shared(broker: Broker, members: int) -> bool:
    """Every partition has one owner, and nobody has none."""
    group = broker.group("g")
    return (
        group.state == "Stable"
        and len(group.members) == members
        and [tp.partition for tp in group.assigned] == list(PARTITIONS)
        and all(group.assignments.values())
    )


def records(round_: int) -> set[tuple[int, int]]:
    """What the n-th `fill` appended."""
    return {(p, round_ * EACH + i) for p in PARTITIONS for i in range(EACH)}


def committed(broker: Broker) -> dict[int, int]:
    return {tp.partition: found.offset for tp, found in broker.committed("g").items()}


def hand_over(broker: Broker, make: list[Make]) -> None:
    members: list[Member] = [each(broker) for each in make]
    try:
        poll_until(broker, members, lambda _: is_shared(broker, 2))
        fill(broker)
        first, second = poll_until(broker, members, lambda seen: records(1) <= seen[0] | seen[1])
        assert not records(1) & first & second
        assert records(1) & first
        assert records(1) & second
        for member in members:
            member.commit()
        assert committed(broker) == dict.fromkeys(PARTITIONS, 2 * EACH)
        members.pop(0).close()
        poll_until(broker, members, lambda _: is_shared(broker, 1))
        fill(broker)
        (last,) = poll_until(broker, members, lambda seen: records(2) <= seen[0])
        assert last == records(2)  # what the other had read and committed does not come again
        members[0].commit()
    finally:
        for member in members:
            member.close()
    assert broker.group("g").members == {}
    assert committed(broker) == dict.fromkeys(PARTITIONS, 3 * EACH)


@pytest.mark.parametrize("kind", MEMBERS)
def test_two_share_and_one_takes_over(broker: Broker, kind: str) -> None:
    hand_over(broker, [MEMBERS[kind]] * 2)


@pytest.mark.parametrize("kind", ["confluent-kafka, range", "kafka-python", "aiokafka"])
def test_other_clients_share_with_ours(broker: Broker, kind: str) -> None:
    # aiokafka knows no other assignor by default.
    hand_over(broker, [MEMBERS[kind], lambda broker: Ours(broker, **{"partition.assignment.strategy": "range,roundrobin"})])
