"""AIOKafkaConsumer in groups and used by many tasks, beside aiokafka's own over the scripted broker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiokafka
import aiokafka.errors
import pytest
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.structs import TopicPartition

from fastfetch import errors as ours
from fastfetch.adapters import aiokafka_api
from fastfetch.adapters.aiokafka_api.tasks import SharedConsumer
from fastfetch.assignors import Assignor
from fastfetch.records import RecordBlock
from fastfetch.testing import Broker, encode_batch
from fastfetch.testing.faults import delay, error
from tests.adapters.scripts import run

P0, P1 = (TopicPartition("orders", p) for p in range(2))
OURS = aiokafka_api.AIOKafkaConsumer


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        for p in range(2):
            for _ in range(10):
                broker.append("orders", p, encode_batch([b"x"] * 10))
        yield broker


@contextlib.asynccontextmanager
async def member(
    kind: Any, broker: Broker, listener: Any = None, pattern: str | None = None, **settings: Any
) -> AsyncIterator[Any]:
    settings = {
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "fetch_max_wait_ms": 50,
        "heartbeat_interval_ms": 100,
    } | settings
    consumer = kind(bootstrap_servers=broker.bootstrap_servers, **settings)
    consumer.subscribe([] if pattern else ["orders"], pattern, listener)
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()


class Listener(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.heard: list[tuple[str, set[TopicPartition]]] = []

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await asyncio.sleep(0.01)
        self.heard.append(("revoked", set(revoked)))

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.heard.append(("assigned", set(assigned)))


async def until(look: Any) -> None:
    while not look():
        await asyncio.sleep(0.01)


# --- groups -------------------------------------------------------------------------------------------------------------


def test_groups_rebalance_without_anybody_polling_and_listeners_hear(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        first, second = Listener(), Listener()
        async with member(kind, broker, first) as one:
            assert one.assignment() == {P0, P1}, "start() waits for it"
            assert first.heard == [("revoked", set()), ("assigned", {P0, P1})]
            async with member(kind, broker, second) as two:
                await until(lambda: len(one.assignment()) == 1 and len(first.heard) == 4)
                assert one.assignment() | two.assignment() == {P0, P1}
                assert first.heard[2:] == [("revoked", {P0, P1}), ("assigned", set(one.assignment()))]
                assert second.heard == [("revoked", set()), ("assigned", set(two.assignment()))]
            assert len(second.heard) == 2, "not by stop()"
            await until(lambda: one.assignment() == {P0, P1})
        assert all(type(tp) is TopicPartition for _, partitions in first.heard for tp in partitions)

    run(main())


def test_subscribing_to_the_same_again_joins_again(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with member(kind, broker) as consumer:
            listener = Listener()
            assert (await consumer.getone(P0)).offset == 0
            consumer.subscribe(["orders"], listener=listener)
            await until(lambda: len(listener.heard) == 2)
            assert listener.heard == [("revoked", {P0, P1}), ("assigned", {P0, P1})]
            assert (await consumer.getone(P0)).offset == 1

    run(main())


def test_one_is_ours_and_one_is_theirs(broker: Broker) -> None:
    async def main() -> None:
        async with member(aiokafka.AIOKafkaConsumer, broker) as one, member(OURS, broker) as two:
            await until(lambda: len(one.assignment()) == 1)
            assert one.assignment() | two.assignment() == {P0, P1}
            for consumer in (one, two):
                assert (await consumer.getone()).partition == next(iter(consumer.assignment())).partition

    run(main())


def test_listeners_may_use_the_consumer(broker: Broker, kind: Any) -> None:
    class Seeking(Listener):
        consumer: Any = None

        async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            if revoked:
                await self.consumer.commit(dict.fromkeys(revoked, 33))

        async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            for tp in assigned:
                assert await self.consumer.position(tp) in (0, 33)
                if await self.consumer.committed(tp) is None:
                    self.consumer.seek(tp, 20)
            self.heard.append(("assigned", assigned))

    async def main() -> None:
        listener = Seeking()
        listener.consumer = consumer = kind(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
        )
        consumer.subscribe(["orders"], listener=listener)
        async with consumer:
            if kind is not OURS:  # aiokafka's may hand out records while this one is still at it
                await until(lambda: listener.heard)
            assert (await consumer.getone(P0)).offset == 20
            async with member(kind, broker) as other:
                await until(lambda: len(consumer.assignment()) == 1)
                [tp] = other.assignment()
                assert (await other.getone()).offset == 33
                assert broker.committed("g")[tp].offset == 33

    run(main())


def test_what_a_listener_raises_is_logged(broker: Broker, kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Listener):
        async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            raise LookupError("revoked")

        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            raise LookupError("assigned")

    async def main() -> None:
        async with member(kind, broker, Broken()) as consumer:
            assert (await consumer.getone(P0)).offset == 0

    run(main())
    told = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert told == ["revoked", "assigned"]


def test_a_pattern_and_a_topic_that_comes_later(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with member(kind, broker, pattern="ord|new", metadata_max_age_ms=200) as consumer:
            assert consumer.subscription() == {"orders"}
            broker.create_topic("newer")
            broker.append("newer", 0, encode_batch([b"n"]))
            new = TopicPartition("newer", 0)
            await until(lambda: new in consumer.assignment())
            assert (await consumer.getone(new)).value == b"n"

    run(main())


def test_unsubscribing_leaves_the_group(broker: Broker) -> None:
    """aiokafka's fetcher fails in the middle of it."""

    async def main() -> None:
        listener = Listener()
        async with member(OURS, broker, listener) as consumer:
            consumer.unsubscribe()
            assert consumer.assignment() == set()
            await until(lambda: not broker.group("g").members)
            assert len(listener.heard) == 2
            consumer.subscribe(["orders"])
            await until(consumer.assignment)
            assert (await consumer.getone()).offset == 0

    run(main())


def test_who_does_not_poll_is_thrown_out_and_comes_back_with_a_poll(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with member(kind, broker, max_poll_interval_ms=300, session_timeout_ms=6000) as consumer:
            await until(lambda: not broker.group("g").members)
            await asyncio.sleep(0.3)
            assert not broker.group("g").members, "it does not join again for nothing"
            assert (await consumer.getone()).topic == "orders"
            assert len(broker.group("g").members) == 1

    run(main())


def test_waiting_for_records_is_polling(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with member(kind, broker, max_poll_interval_ms=700, session_timeout_ms=6000) as consumer:
            await consumer.seek_to_end()
            assert await consumer.getmany(timeout_ms=1500) == {}
            assert len(broker.group("g").members) == 1

    run(main())


def test_a_refusal_is_raised_and_the_group_tried_again(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with member(kind, broker) as consumer:
            await consumer.seek_to_end()
            broker.on("Heartbeat", error(30), times=None)
            broker.on("JoinGroup", error(30), times=None)
            for _ in range(2):
                with pytest.raises(aiokafka.errors.GroupAuthorizationFailedError):
                    await consumer.getone()

    run(main())


def test_a_fenced_member_says_so_each_time(broker: Broker) -> None:
    async def main() -> None:
        async with member(OURS, broker, group_instance_id="i") as consumer:
            await consumer.seek_to_end()
            broker.on("Heartbeat", error(82), times=None)
            for _ in range(3):
                with pytest.raises(ours.FencedInstanceIdError):
                    await consumer.getone()

    run(main())


def test_an_assignor_that_raises_is_heard_of_and_stops_nobody(broker: Broker) -> None:
    class Broken(Assignor):
        name = "broken"
        protocols = ("eager",)

        def subscription_user_data(self, topics: Any) -> bytes | None:
            raise LookupError("no data")

        def assign(self, cluster: Any, subscriptions: Any) -> Any:
            raise NotImplementedError

    async def main() -> None:
        with pytest.raises(LookupError, match="no data"):
            async with member(OURS, broker, partition_assignment_strategy=[Broken]):
                pass

    run(main())


def test_a_commit_for_a_member_that_is_none_any_more(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with member(kind, broker, enable_auto_commit=False, session_timeout_ms=1000) as consumer:
            await consumer.getone(P0)
            broker.on("OffsetCommit", error(22))
            with pytest.raises(aiokafka.errors.CommitFailedError):
                await consumer.commit()

    run(main())


# --- many tasks ---------------------------------------------------------------------------------------------------------


def test_each_record_goes_to_one_task(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        seen: list[tuple[int, int]] = []
        async with member(kind, broker) as consumer:

            async def one_by_one(*partitions: TopicPartition) -> None:
                while True:
                    record = await consumer.getone(*partitions)
                    seen.append((record.partition, record.offset))
                    await asyncio.sleep(0)

            async def many() -> None:
                while True:
                    for records in (await consumer.getmany(timeout_ms=500, max_records=3)).values():
                        seen.extend((record.partition, record.offset) for record in records)
                    await asyncio.sleep(0)

            tasks = [asyncio.create_task(work) for work in (one_by_one(), one_by_one(), one_by_one(P1), many(), many())]
            await until(lambda: len(seen) >= 200)
            await asyncio.sleep(0.1)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert sorted(seen) == [(p, offset) for p in range(2) for offset in range(100)]

    run(main())


def test_a_task_that_waits_is_in_nobodys_way(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with member(kind, broker) as consumer:
            await consumer.seek_to_end()
            waiting = [asyncio.create_task(consumer.getone(P1)), asyncio.create_task(consumer.getmany(P1, timeout_ms=20_000))]
            await asyncio.sleep(0.05)
            assert await consumer.position(P0) == 100
            await consumer.commit()
            consumer.pause(P0)
            consumer.resume(P0)
            assert await consumer.end_offsets([P0]) == {P0: 100}
            consumer.seek(P0, 98)
            assert [(await consumer.getone(P0)).offset for _ in range(2)] == [98, 99]
            assert await consumer.getmany(P0, timeout_ms=10) == {}
            assert not any(task.done() for task in waiting)
            broker.append("orders", 1, encode_batch([b"a"]))
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            broker.append("orders", 1, encode_batch([b"b"]))
            done = await asyncio.gather(*waiting)
            assert done[0].offset + done[1][P1][0].offset == 100 + 101

    run(main())


def test_one_by_one_and_many_at_a_time_mixed(broker: Broker, kind: Any) -> None:
    """Records that were made to be handed out one by one are forgotten where they are not the next ones any more."""

    async def main() -> None:
        async with member(kind, broker, value_deserializer=bytes.decode) as consumer:
            for tp in (P0, P1):
                assert [(await consumer.getone(tp)).offset for _ in range(2)] == [0, 1]
                assert [r.offset for r in (await consumer.getmany(tp, max_records=97))[tp]] == list(range(2, 99))
                assert (await consumer.getone(tp)).offset == 99
                consumer.seek(tp, 50)
                assert [(await consumer.getone(tp)).offset for _ in range(2)] == [50, 51]
                consumer.seek(tp, 51)
                assert (await consumer.getone(tp)).offset == 51

    run(main())


def records_of(blocks: list[RecordBlock]) -> list[Any]:
    return [record for block in blocks for record in block.records()]


def test_what_one_task_asks_for_holds_up_no_other(broker: Broker) -> None:
    """A buffer full of what nobody asks for any more leaves no room for what is waited for."""
    for _ in range(10):
        broker.append("orders", 1, encode_batch([bytes(1000)] * 10))

    async def main() -> None:
        settings = {"max_buffered_bytes": 20_000, "max_partition_fetch_bytes": 20_000, "fetch_max_wait_ms": 50}
        consumer = SharedConsumer(records_of, bootstrap_servers=broker.bootstrap_servers, **settings)
        consumer.assign([P0, P1])
        for tp in consumer.assignment():
            consumer.seek(tp, 100)
        waiting = asyncio.create_task(consumer.getone({P0}))
        await asyncio.sleep(0.3)
        assert (await consumer.getmany(None, 1, 5)).keys() == {P1}, "it was there"
        await asyncio.sleep(0.3)
        broker.append("orders", 0, encode_batch([b"wanted"]))
        async with asyncio.timeout(5):
            assert (await waiting).value == b"wanted"
        await consumer.close()

    run(main())


@pytest.mark.parametrize("seed", range(5))
def test_cancelling_loses_nothing(broker: Broker, seed: int) -> None:
    async def main() -> None:
        chance = random.Random(seed)
        broker.on("Fetch", delay(0.005), times=None)
        seen: list[tuple[int, int]] = []

        async def take(consumer: Any) -> None:
            if chance.random() < 0.5:
                record = await consumer.getone()
                seen.append((record.partition, record.offset))
            else:
                for records in (await consumer.getmany(timeout_ms=50, max_records=chance.randint(1, 30))).values():
                    seen.extend((record.partition, record.offset) for record in records)

        async with member(OURS, broker, key_deserializer=bool, max_partition_fetch_bytes=400) as consumer:
            while len(seen) < 200:
                task = asyncio.create_task(take(consumer))
                for _ in range(chance.randint(0, 6)):
                    await asyncio.sleep(chance.choice([0, 0, 0.002]))
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        assert sorted(seen) == [(p, offset) for p in range(2) for offset in range(100)]
        for p in range(2):
            assert [offset for partition, offset in seen if partition == p] == list(range(100))

    run(main())


def test_stop_in_the_middle_of_everything(broker: Broker) -> None:
    """What was handed out is committed, nothing more is, and nobody is left waiting."""

    async def main() -> None:
        seen: dict[int, int] = {0: 0, 1: 0}

        async with member(OURS, broker) as consumer:

            async def work() -> None:
                while True:
                    record = await consumer.getone()
                    seen[record.partition] = max(seen[record.partition], record.offset + 1)
                    await asyncio.sleep(0)

            tasks = [asyncio.create_task(work()) for _ in range(3)]
            await until(lambda: sum(seen.values()) > 50)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result).__name__ for result in results] == ["ConsumerStoppedError"] * 3
        committed = {tp.partition: at.offset for tp, at in broker.committed("g").items()}
        assert {p: committed.get(p, 0) for p in seen} == seen
        assert not broker.group("g").members

    run(main())


def test_a_stop_that_is_cancelled_ends_all_the_same(broker: Broker) -> None:
    async def main() -> None:
        broker.on("OffsetCommit", delay(5), times=None)
        async with member(OURS, broker, client_id="cancelled") as consumer:
            await consumer.getone()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await consumer.stop()
            with pytest.raises(aiokafka.ConsumerStoppedError):
                await consumer.getone()
            await until(lambda: not any(thread.name == "fastfetch-cancelled" for thread in threading.enumerate()))

    run(main())


def test_other_tasks_get_their_turn_while_records_abound(broker: Broker) -> None:
    async def main() -> None:
        async with member(OURS, broker) as consumer:
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(other())
            for _ in range(20):
                await consumer.getmany(max_records=1)
            task.cancel()
            assert turns >= 20

    run(main())


# --- settings -----------------------------------------------------------------------------------------------------------


def test_settings_without_effect_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        for _ in range(2):
            await OURS("orders", rebalance_timeout_ms=9000, consumer_timeout_ms=100).stop()

    caplog.set_level(logging.WARNING, "fastfetch")
    run(main())
    said = [record.getMessage() for record in caplog.records]
    assert [line.split(" has no effect")[0] for line in said] == [
        "AIOKafkaConsumer: rebalance_timeout_ms", "AIOKafkaConsumer: consumer_timeout_ms",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"security_protocol": "SSL"}, "security_protocol=SSL is not in this version"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "security_protocol=SASL_SSL"),
        ({"auto_offset_reset": "newest"}, "auto_offset_reset must be"),
        ({"isolation_level": "serializable"}, "isolation_level must be"),
        ({"bootstrap_servers": "a:b"}, "'a:b' is not host:port"),
        ({"heartbeat_interval_ms": 10_000}, "heartbeat_interval_ms must be smaller"),
        ({"partition_assignment_strategy": [object()]}, "partition_assignment_strategy must hold"),
    ],
)
def test_a_setting_that_is_not_possible_names_its_key(settings: dict[str, Any], says: str) -> None:
    async def main() -> None:
        for kind in (ours.ConfigError, ValueError, aiokafka.errors.KafkaConfigurationError):
            with pytest.raises(kind, match=says):
                OURS("orders", **settings)

    run(main())


def test_settings_are_passed_on(broker: Broker) -> None:
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    async def main() -> None:
        async with member(
            OURS,
            broker,
            client_id="me",
            fetch_min_bytes=7,
            fetch_max_bytes=70_000,
            max_partition_fetch_bytes=5000,
            session_timeout_ms=7000,
            isolation_level="read_committed",
            partition_assignment_strategy=(RangePartitionAssignor,),
        ) as consumer:
            await consumer.getone()
        fetch = broker.requests("Fetch")[0]
        assert fetch.client_id == "me"
        assert (fetch.body["min_bytes"], fetch.body["isolation_level"]) == (7, 1)
        assert fetch.body["topics"][0]["partitions"][0]["partition_max_bytes"] == 5000
        join = broker.requests("JoinGroup")[0]
        assert join.body["session_timeout_ms"] == 7000
        assert [protocol["name"] for protocol in join.body["protocols"]] == ["range"]

    run(main())
