"""AIOKafkaConsumer beside aiokafka's own over the scripted broker: every test with `kind` is true of both."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiokafka
import aiokafka.errors
import pytest
from aiokafka.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

from fastfetch import errors as ours
from fastfetch.adapters import aiokafka_api
from fastfetch.testing import Broker, encode_batch
from fastfetch.testing.faults import error
from tests.adapters.scripts import run

P0, P1 = (TopicPartition("orders", p) for p in range(2))
OURS = aiokafka_api.AIOKafkaConsumer


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        for p in range(2):
            for turn in range(10):
                rows = [(b"k%d" % i if i % 3 else None, b"p%d-%d" % (p, turn * 10 + i) if i % 4 else None) for i in range(10)]
                broker.append("orders", p, encode_batch(rows, codec=("none", "lz4")[p], timestamp=1000 + turn * 10))
        yield broker


@contextlib.asynccontextmanager
async def reading(kind: Any, broker: Broker, *topics: str, assign: Any = (), **settings: Any) -> AsyncIterator[Any]:
    settings.setdefault("auto_offset_reset", "earliest")
    settings.setdefault("fetch_max_wait_ms", 50)
    consumer = kind(*topics, bootstrap_servers=broker.bootstrap_servers, **settings)
    if assign:
        consumer.assign(list(assign))
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()


async def read(consumer: Any, count: int, *partitions: Any, **arguments: Any) -> dict[Any, list[Any]]:
    """`count` records by getmany, by partition."""
    found: dict[Any, list[Any]] = {}
    while sum(map(len, found.values())) < count:
        for tp, records in (await consumer.getmany(*partitions, timeout_ms=2000, **arguments)).items():
            assert records
            found.setdefault(tp, []).extend(records)
    return found


# --- records ------------------------------------------------------------------------------------------------------------


def test_records_are_the_same(broker: Broker) -> None:
    broker.append("orders", 0, encode_batch([(b"k", b"v", 5, [("h", b"1"), ("h", None)])], codec="zstd"))
    broker.create_topic("old", partitions=2)  # aiokafka does not read formats that are mixed
    broker.append("old", 0, encode_batch([(None, b"old"), (b"", b"")], magic=0))
    broker.append("old", 1, encode_batch([(b"", b""), (None, b"x")], magic=1, log_append_time=77, codec="gzip"))

    async def all_of(kind: Any) -> Any:
        async with reading(kind, broker, "orders", "old") as consumer:
            return await read(consumer, 205)

    theirs, mine = run(all_of(aiokafka.AIOKafkaConsumer)), run(all_of(OURS))
    assert mine == theirs
    assert {type(record) for records in mine.values() for record in records} == {aiokafka.ConsumerRecord}
    assert {type(tp) for tp in mine} == {TopicPartition}


def test_getone_and_iteration_give_all_in_order_and_move_the_position(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with reading(kind, broker, assign=[P0]) as consumer:
            for offset in range(5):
                record = await consumer.getone()
                assert record.offset == offset
                assert await consumer.position(P0) == offset + 1
            async for record in consumer:
                assert record.offset == await consumer.position(P0) - 1
                if record.offset == 99:
                    break
            assert await consumer.getmany(timeout_ms=100) == {}

    run(main())


def test_getmany_keeps_to_its_limit(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with reading(kind, broker, "orders", max_poll_records=7) as consumer:
            assert sum(map(len, (await consumer.getmany(timeout_ms=2000)).values())) == 7
            assert sum(map(len, (await consumer.getmany(timeout_ms=2000, max_records=3)).values())) == 3
            for wrong in (0, -1, "3"):
                with pytest.raises(ValueError, match="max_records"):
                    await consumer.getmany(max_records=wrong)
            found = await read(consumer, 190)
            assert {tp: rows[-1].offset for tp, rows in found.items()} == {P0: 99, P1: 99}

    run(main())


@pytest.mark.parametrize("first", [P0, P1])
def test_named_partitions_leave_the_others_alone(broker: Broker, kind: Any, first: TopicPartition) -> None:
    other = P1 if first == P0 else P0

    async def main() -> None:
        async with reading(kind, broker, assign=[P0, P1]) as consumer:
            assert (await consumer.getone(first)).partition == first.partition
            found = await read(consumer, 59, first, max_records=20)
            assert await consumer.position(first) >= 60
            assert await consumer.position(other) == 0
            found = await read(consumer, 100, other)
            assert [record.offset for record in found[other]] == list(range(100))
            rest = await read(consumer, 100 - await consumer.position(first))
            assert rest.keys() == {first}
            assert [record.offset for record in rest[first]][-1] == 99

    run(main())


def test_deserializers_get_bytes_and_null(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        def key(data: bytes | None) -> str:
            return "none" if data is None else data.decode()

        async with reading(kind, broker, assign=[P0], key_deserializer=key, value_deserializer=lambda data: (data,)) as consumer:
            many = (await read(consumer, 5, max_records=5))[P0]
            one = await consumer.getone()
            assert [record.key for record in (*many, one)] == ["none", "k1", "k2", "none", "k4", "k5"]
            assert [record.value for record in (*many, one)] == [(None,), (b"p0-1",), (b"p0-2",), (b"p0-3",), (None,), (b"p0-5",)]
            assert [record.serialized_key_size for record in many] == [-1, 2, 2, -1, 2]
            assert [record.serialized_value_size for record in many] == [-1, 4, 4, 4, -1]

    run(main())


def test_a_deserializer_that_raises_loses_nothing(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        is_broken = True

        def value(data: bytes | None) -> bytes | None:
            if is_broken and data == b"p0-3":
                raise LookupError("no schema")
            return data

        async with reading(kind, broker, assign=[P0], value_deserializer=value) as consumer:
            for offset in range(3):
                assert (await consumer.getone()).offset == offset
            for _ in range(2):
                with pytest.raises(LookupError, match="no schema"):
                    await consumer.getone()
                with pytest.raises(LookupError, match="no schema"):
                    await consumer.getmany(timeout_ms=1000)
                assert await consumer.position(P0) == 3
            is_broken = False
            assert (await consumer.getone()).offset == 3
            assert (await read(consumer, 96))[P0][0].offset == 4

    run(main())


# --- positions ----------------------------------------------------------------------------------------------------------


def test_seeking(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with reading(kind, broker, assign=[P0, P1], group_id="g") as consumer:
            consumer.seek(P0, 42)
            consumer.seek(P1, 43)
            assert (await consumer.getone(P0)).offset == 42
            assert (await consumer.getone(P1)).offset == 43
            assert await consumer.seek_to_beginning(P0) is True
            assert await consumer.position(P0) == 0
            assert (await consumer.getone(P0)).offset == 0
            assert await consumer.seek_to_end() is True
            assert [await consumer.position(tp) for tp in (P0, P1)] == [100, 100]
            await consumer.commit({P0: 7})
            assert await consumer.seek_to_committed() == {P0: 7, P1: None}
            assert (await consumer.getone()).offset == 7
            for wrong in (-1, "1", None):
                with pytest.raises(ValueError, match=r"[Oo]ffset"):
                    consumer.seek(P0, wrong)
            absent = TopicPartition("orders", 9)
            with pytest.raises(aiokafka.errors.IllegalStateError):
                consumer.seek(absent, 0)
            for call in (consumer.seek_to_beginning, consumer.seek_to_end, consumer.seek_to_committed, consumer.position):
                with pytest.raises(aiokafka.errors.IllegalStateError):
                    await call(absent)
            for call in (consumer.seek_to_beginning, consumer.seek_to_end, consumer.seek_to_committed):
                with pytest.raises(TypeError):
                    await call("orders")

    run(main())


def test_pausing(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with reading(kind, broker, assign=[P0, P1]) as consumer:
            consumer.pause(P0)
            assert consumer.paused() == {P0}
            assert (await read(consumer, 100)).keys() == {P1}
            assert await consumer.getmany(timeout_ms=100) == {}
            consumer.resume(P0)
            assert consumer.paused() == set()
            assert (await read(consumer, 100)).keys() == {P0}
            with pytest.raises(TypeError):
                consumer.pause("orders")
            with pytest.raises(aiokafka.errors.IllegalStateError):
                consumer.pause(TopicPartition("orders", 9))

    run(main())


def test_what_is_known_of_the_log(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with reading(kind, broker, assign=[P0], isolation_level="read_committed") as consumer:
            await read(consumer, 100)
            assert consumer.highwater(P0) == 100
            assert consumer.last_stable_offset(P0) == 100
            first = consumer.last_poll_timestamp(P0)
            assert first is not None
            while consumer.last_poll_timestamp(P0) <= first:  # a fetch without records counts
                await asyncio.sleep(0.01)
            for call in (consumer.highwater, consumer.last_stable_offset, consumer.last_poll_timestamp):
                with pytest.raises(AssertionError):
                    call(P1)
        async with reading(kind, broker, assign=[P0]) as consumer:
            await read(consumer, 100)
            assert consumer.last_stable_offset(P0) == (-1 if kind is OURS else 100)  # the scripted broker tells everybody

    run(main())


def test_looking_offsets_up(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with reading(kind, broker) as consumer:
            assert await consumer.beginning_offsets([P0, P1]) == {P0: 0, P1: 0}
            assert await consumer.end_offsets([P1]) == {P1: 100}
            found = await consumer.offsets_for_times({P0: 1015, P1: 10**6})
            assert found == {P0: OffsetAndTimestamp(15, 1015), P1: None}
            assert type(found[P0]) is OffsetAndTimestamp
            with pytest.raises(ValueError, match="negative"):
                await consumer.offsets_for_times({P0: -1})
            assert await consumer.topics() == {"orders"}
            assert consumer.partitions_for_topic("orders") == {0, 1}
            assert consumer.partitions_for_topic("nothing") is None

    run(main())


# --- commits ------------------------------------------------------------------------------------------------------------


def test_forms_of_a_commit(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with reading(kind, broker, assign=[P0, P1], group_id="g", enable_auto_commit=False) as consumer:
            assert await consumer.committed(P0) is None
            await read(consumer, 200)
            await consumer.commit()
            assert [await consumer.committed(tp) for tp in (P0, P1)] == [100, 100]
            await consumer.commit({P0: 5, P1: (6, "why")})
            assert broker.committed("g")[P1].metadata == "why"
            await consumer.commit({P0: OffsetAndMetadata(7, "x")})
            assert [await consumer.committed(tp) for tp in (P0, P1)] == [7, 6]
            for wrong in ({}, [1], {P0: "1"}, {P0: (1, 2, 3)}):
                with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
                    await consumer.commit(wrong)
            for wrong in ({"orders": 1}, {P0: (1, 2)}):
                with pytest.raises(TypeError):
                    await consumer.commit(wrong)
            with pytest.raises(aiokafka.errors.IllegalStateError):
                await consumer.commit({TopicPartition("orders", 9): 1})
        assert broker.committed("g")[P0].offset == 7, "without enable_auto_commit nothing is committed by itself"

    run(main())


def test_without_a_group_nothing_can_be_committed(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with reading(kind, broker, assign=[P0]) as consumer:
            await consumer.getone()  # aiokafka's can't be stopped before it has begun
            for call in (consumer.commit(), consumer.committed(P0), consumer.seek_to_committed(P0)):
                with pytest.raises(aiokafka.errors.IllegalOperation):
                    await call

    run(main())


def test_nothing_assigned_nothing_committed(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with reading(kind, broker, group_id="g") as consumer:
            for call in (consumer.commit(), consumer.commit({P0: 1})):
                with pytest.raises(aiokafka.errors.IllegalStateError):
                    await call

    run(main())


def test_stop_commits_what_was_handed_out(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with reading(kind, broker, "orders", group_id="g") as consumer:
            for _ in range(3):
                await consumer.getone(P0)
        assert broker.committed("g")[P0].offset == 3
        assert not broker.group("g").members
        async with reading(kind, broker, "orders", group_id="g") as consumer:
            assert (await consumer.getone(P0)).offset == 3

    run(main())


def test_commits_by_the_clock(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with reading(kind, broker, assign=[P0], group_id="g", auto_commit_interval_ms=50) as consumer:
            await read(consumer, 100)
            deadline = asyncio.get_running_loop().time() + 5
            while P0 not in broker.committed("g") or broker.committed("g")[P0].offset < 100:
                assert asyncio.get_running_loop().time() < deadline
                await consumer.getmany(timeout_ms=100)

    run(main())


# --- choosing -----------------------------------------------------------------------------------------------------------


def test_subscribing_without_a_group_reads_everything(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        broker.create_topic("other")
        async with reading(kind, broker, "orders") as consumer:
            assert consumer.subscription() == {"orders"}
            assert consumer.assignment() == {P0, P1}
            assert (await read(consumer, 200)).keys() == {P0, P1}
        consumer = kind(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
        consumer.subscribe(pattern="ord")  # need not match the whole name
        async with consumer:
            assert (await read(consumer, 200)).keys() == {P0, P1}
            assert consumer.subscription() == {"orders"}
            consumer.unsubscribe()
            assert (consumer.subscription(), consumer.assignment()) == (set(), set())
            consumer.assign([P1])
            assert (consumer.subscription(), consumer.assignment()) == ({"orders"}, {P1})
            assert (await consumer.getone()).offset == 0

    run(main())


def test_a_pattern_that_matches_nothing_yet_holds_nothing_up(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        for group in (None, "g"):
            consumer = kind(bootstrap_servers=broker.bootstrap_servers, group_id=group, metadata_max_age_ms=200)
            consumer.subscribe(pattern="nothing")
            async with consumer:
                assert (consumer.subscription(), consumer.assignment()) == (set(), set())

    run(main())


def test_ways_to_choose_exclude_one_another(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with reading(kind, broker, "orders") as consumer:
            with pytest.raises(aiokafka.errors.IllegalStateError):
                consumer.assign([P0])
            with pytest.raises(aiokafka.errors.IllegalStateError):
                consumer.subscribe(pattern="a")
            consumer.subscribe({"orders"})
            await consumer.getone()
            for arguments in (
                {},
                {"topics": ["a"], "pattern": "b"},
                {"topics": "orders"},
                {"topics": ["a"], "listener": object()},
            ):
                with pytest.raises(TypeError):
                    consumer.subscribe(**arguments)
            with pytest.raises(ValueError, match=r"pattern|regular"):
                consumer.subscribe(pattern="(")

    run(main())


def test_assigning_anew(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with reading(kind, broker, assign=[P0]) as consumer:
            await read(consumer, 100)
            consumer.assign([P1])
            assert consumer.assignment() == {P1}
            assert (await read(consumer, 100)).keys() == {P1}

    run(main())


# --- beginning and ending -----------------------------------------------------------------------------------------------


def test_no_broker_is_told_at_once_and_start_may_be_tried_again(kind: Any) -> None:
    async def main() -> None:
        with Broker() as broker:
            address = broker.bootstrap_servers
        consumer = kind("orders", bootstrap_servers=address)
        for _ in range(2):
            with pytest.raises(aiokafka.errors.KafkaConnectionError):
                await consumer.start()
        with Broker(port=int(address.rpartition(":")[2])) as broker:
            broker.create_topic("orders")
            broker.append("orders", 0, encode_batch([b"a"]))
            await consumer.start()
            await consumer.stop()

    run(main())


def test_an_unknown_topic(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        with pytest.raises(aiokafka.errors.UnknownTopicOrPartitionError):
            async with reading(kind, broker, "nothing", request_timeout_ms=600):
                pass

    run(main())


def test_stopping(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with reading(kind, broker, assign=[P0]) as consumer:
            await read(consumer, 100)
            one = asyncio.create_task(consumer.getone())
            many = asyncio.create_task(consumer.getmany(timeout_ms=20_000))

            async def iterate() -> int:
                return sum([1 async for _ in consumer])

            loop = asyncio.create_task(iterate())
            await asyncio.sleep(0.1)
            await consumer.stop()
            await consumer.stop()
            with pytest.raises(aiokafka.ConsumerStoppedError):
                await one
            assert await many == {}
            assert await loop == 0
            for call in (consumer.getone, consumer.getmany):
                with pytest.raises(aiokafka.ConsumerStoppedError):
                    await call()
            with pytest.raises(aiokafka.ConsumerStoppedError):
                aiter(consumer)

    run(main())


def test_stopping_what_was_never_started(kind: Any) -> None:
    async def main() -> None:
        consumer = kind("orders")
        await consumer.stop()

    run(main())


def test_a_consumer_that_is_forgotten_warns(broker: Broker, kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        caplog.set_level(logging.ERROR, "asyncio")
        contexts: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: contexts.append(context))
        consumer = kind(bootstrap_servers=broker.bootstrap_servers)
        if kind is OURS:  # aiokafka's has tasks that keep it
            consumer.subscribe(["orders"])
            await consumer.start()
            threads = threads_of_consumers()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            del consumer
            gc.collect()
        [said] = [str(each.message) for each in told if issubclass(each.category, ResourceWarning)]
        assert said.startswith("Unclosed AIOKafkaConsumer")
        assert [context["message"] for context in contexts] == ["Unclosed AIOKafkaConsumer"]
        if kind is OURS:
            assert threads
            async with asyncio.timeout(5):
                while threads_of_consumers():
                    await asyncio.sleep(0.01)

    run(main())


def threads_of_consumers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "fastfetch-fastfetch"]


def test_only_in_a_coroutine(kind: Any) -> None:
    with pytest.raises(RuntimeError, match=r"coroutine|async function|event loop"):
        kind("orders")


def test_deprecated_arguments(kind: Any) -> None:
    async def main() -> None:
        with pytest.warns(DeprecationWarning, match="loop"):
            consumer = kind("orders", loop=asyncio.get_running_loop())
        await consumer.stop()
        with pytest.warns(DeprecationWarning, match="api_version"):
            consumer = kind("orders", api_version="auto")
        await consumer.stop()
        for wrong in (0, "1"):
            with pytest.raises(ValueError, match="max_poll_records"):
                kind("orders", max_poll_records=wrong)
        for unknown in ("linger_ms", "acks", "bootstrap"):
            with pytest.raises(TypeError, match=unknown):
                kind("orders", **{unknown: 1})

    run(main())


# --- what goes wrong ----------------------------------------------------------------------------------------------------


def test_no_policy_no_offset(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        async with reading(kind, broker, assign=[P0], group_id="g", auto_offset_reset="none") as consumer:
            with pytest.raises(aiokafka.errors.NoOffsetForPartitionError) as none:
                await consumer.getone()
            assert none.value.args == (P0,)
            consumer.seek(P0, 1000)
            with pytest.raises(aiokafka.errors.OffsetOutOfRangeError) as outside:
                await consumer.getone()
            assert outside.value.args == ({P0: 1000},)
            consumer.seek(P0, 10)
            assert (await consumer.getone()).offset == 10

    run(main())


def test_a_topic_that_may_not_be_read(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        broker.on("Fetch", error(29, topic="orders", partition=0), times=None)
        async with reading(kind, broker, assign=[P0, P1]) as consumer:
            assert len((await read(consumer, 100, P1))[P1]) == 100, "of the others nobody is held up"
            with pytest.raises(aiokafka.errors.TopicAuthorizationFailedError) as refused:
                await consumer.getone(P0)
            assert refused.value.args == ("orders",)

    run(main())


def test_a_group_that_may_not_be_used_is_tried_again(broker: Broker, kind: Any) -> None:
    async def main() -> None:
        broker.on("FindCoordinator", error(30), times=None)
        consumer = kind("orders", bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest")
        with pytest.raises(aiokafka.errors.GroupAuthorizationFailedError):
            await consumer.start()
        await consumer.stop()

    run(main())


def test_errors_are_both(broker: Broker) -> None:
    async def main() -> None:
        async with reading(OURS, broker, assign=[P0], group_id="g", auto_offset_reset="none") as consumer:
            with pytest.raises(ours.NoOffsetForPartitionError) as error:
                await consumer.getone()
            assert "orders-0" in error.value.__notes__[0]
            with pytest.raises(ours.UsageError, match="orders-9"):
                consumer.seek(TopicPartition("orders", 9), 0)
        with pytest.raises(ours.ClosedError):
            await consumer.getone()

    run(main())
