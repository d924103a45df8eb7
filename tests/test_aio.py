"""The asynchronous consumer over the scripted broker: the calls, cancellation at any moment, who may call, and endings.

Every loop here runs in asyncio's debug mode, which checks what is called from which thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from fastfetch import AsyncConsumer, Consumer, OffsetAndMetadata, TopicPartition
from fastfetch.errors import (
    ClosedError,
    CommitFailedError,
    ConfigError,
    CorruptBatchError,
    CrcMismatchError,
    FastFetchError,
    UnknownTopicError,
    UsageError,
    WakeupError,
)
from fastfetch.errors import TimeoutError as TimedOut
from fastfetch.testing import Broker, encode_batch
from fastfetch.testing.faults import delay, drop, error, slices

P0, P1 = (TopicPartition("orders", p) for p in range(2))
SLACK = 0.25  # every call returns by its timeout and this

T = TypeVar("T")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(nodes=2) as broker:
        broker.create_topic("orders", partitions=2)
        for p in range(2):
            for turn in range(10):
                values = [(b"key", b"p%d-%d" % (p, turn * 10 + i)) for i in range(10)]
                broker.append("orders", p, encode_batch(values, codec=("none", "lz4")[p], timestamp=1000 + turn))
        yield broker


def run(main: Coroutine[Any, Any, T]) -> T:
    async def debugged() -> T:
        asyncio.get_running_loop().slow_callback_duration = 10.0  # the machine may be busy
        return await main

    return asyncio.run(debugged(), debug=True)


@pytest.fixture(autouse=True)
def asyncio_says_nothing(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No "was never retrieved", no "was destroyed but it is pending"."""
    caplog.set_level(logging.WARNING, "asyncio")
    yield
    gc.collect()
    assert [r.getMessage() for r in caplog.records if r.name == "asyncio"] == []


def consumer_of(broker: Broker, *partitions: TopicPartition, **settings: Any) -> AsyncConsumer:
    settings.setdefault("auto_offset_reset", "earliest")
    settings.setdefault("fetch_max_wait_ms", 50)
    consumer = AsyncConsumer(bootstrap_servers=broker.bootstrap_servers, **settings)
    if partitions:
        consumer.assign(partitions)
    return consumer


async def read(consumer: AsyncConsumer, count: int, seconds: float = 20) -> dict[TopicPartition, list[int]]:
    out: dict[TopicPartition, list[int]] = {}
    deadline = time.monotonic() + seconds
    while sum(map(len, out.values())) < count and time.monotonic() < deadline:
        for block in await consumer.poll_blocks(timeout_ms=200):
            out.setdefault(TopicPartition(block.topic, block.partition), []).extend(block.offsets.tolist())
    return out


async def until(condition: Callable[[], object], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


# --- the calls ----------------------------------------------------------------------------------------------------------


WAITING = {
    "poll", "poll_blocks", "position", "commit", "committed", "beginning_offsets", "end_offsets", "offsets_for_times",
    "partitions_for", "topics", "list_topics", "close", "unsubscribe",
}  # fmt: skip


def test_it_has_the_calls_of_the_other_one() -> None:
    def public(cls: type) -> dict[str, Any]:
        return {name: member for name, member in inspect.getmembers(cls, callable) if not name.startswith("_")}

    one, other = public(Consumer), public(AsyncConsumer)
    assert one.keys() == other.keys()
    assert {name for name, member in other.items() if inspect.iscoroutinefunction(member)} == WAITING
    assert inspect.isasyncgenfunction(AsyncConsumer.blocks)
    for name in one:
        assert list(inspect.signature(one[name]).parameters) == list(inspect.signature(other[name]).parameters), name
        assert one[name].__doc__, name
        assert other[name].__doc__, name


def test_three_forms_of_reading_give_the_same(broker: Broker) -> None:
    every = {tp: list(range(100)) for tp in (P0, P1)}

    async def main() -> None:
        async with consumer_of(broker, P0, P1) as consumer:
            assert await read(consumer, 200) == every
            consumer.seek_to_beginning()
            got: dict[TopicPartition, list[int]] = {}
            while sum(map(len, got.values())) < 200:
                for tp, records in (await consumer.poll(timeout_ms=1000, max_records=7)).items():
                    assert len(records) <= 7
                    got.setdefault(tp, []).extend(record.offset for record in records)
                    assert await consumer.position(tp) == records[-1].offset + 1
            assert got == every
            consumer.seek_to_beginning([P0], P1)
            got = {}
            async for record in consumer:
                tp = TopicPartition(record.topic, record.partition)
                got.setdefault(tp, []).append(record.offset)
                assert await consumer.position(tp) == record.offset + 1
                assert record.value == b"p%d-%d" % (record.partition, record.offset)
                if sum(map(len, got.values())) == 200:
                    break
            assert got == every
            consumer.seek(P1, 95)
            consumer.pause(P0)
            blocks = [block async for block in consumer.blocks(timeout_ms=300)]
            assert [o for block in blocks for o in block.offsets.tolist()] == [95, 96, 97, 98, 99]

    run(main())


@pytest.mark.parametrize("act", ["seek", "pause", "assign", "poll"])
def test_calls_inside_a_loop_over_records(broker: Broker, act: str) -> None:
    async def main() -> list[int]:
        async with consumer_of(broker, P0) as consumer:
            seen: list[int] = []
            async for record in consumer:
                seen.append(record.offset)
                if len(seen) == 6:
                    if act == "seek":
                        consumer.seek(P0, 90)
                    elif act == "pause":
                        consumer.pause(P0)
                        assert await consumer.poll(timeout_ms=100) == {}
                        consumer.resume(P0)
                    elif act == "assign":
                        consumer.assign([])
                        consumer.assign([P0])
                    else:
                        assert [r.offset for r in (await consumer.poll(max_records=3))[P0]] == [6, 7, 8]
                if len(seen) == 10:
                    break
        return seen

    then = {"seek": [90, 91, 92, 93], "pause": [6, 7, 8, 9], "assign": [0, 1, 2, 3], "poll": [9, 10, 11, 12]}[act]
    assert run(main()) == [0, 1, 2, 3, 4, 5, *then]


def test_questions_commits_and_plain_calls(broker: Broker) -> None:
    broker.delete_records("orders", 1, 20)

    async def main() -> None:
        async with consumer_of(broker, group_id="g", enable_auto_commit=False) as consumer:
            assert await consumer.partitions_for("orders") == {0, 1}
            assert await consumer.topics() == {"orders"}
            assert await consumer.list_topics() == {"orders": {0, 1}}
            assert await consumer.beginning_offsets([P0, P1]) == {P0: 0, P1: 20}
            assert await consumer.end_offsets([P0, P1]) == {P0: 100, P1: 100}
            found = await consumer.offsets_for_times({P0: 1005, P1: 10**12})
            assert found[P0] is not None
            assert (found[P0].offset, found[P1]) == (5, None)
            with pytest.raises(UnknownTopicError, match="'nope'"):
                await consumer.partitions_for("nope", timeout_ms=5_000)
            with pytest.raises(UsageError, match=r"await unsubscribe\(\)"):
                consumer.subscribe([])
            consumer.assign([P0, P1])
            assert consumer.assignment() == {P0, P1}
            assert consumer.subscription() == set()
            consumer.pause(P1)
            assert consumer.paused() == {P1}
            await read(consumer, 100)
            assert consumer.current_lag(P0) == 0
            assert consumer.metrics()["lag"][P0] == 0
            await consumer.commit()
            await consumer.commit({P1: OffsetAndMetadata(30, "note")})
            assert broker.committed("g")[P0].offset == 100
            assert (await consumer.committed([P1]))[P1] == OffsetAndMetadata(30, "note")
            consumer.seek_to_end(P0)
            assert await consumer.position(P0) == 100
            await consumer.unsubscribe()
            with pytest.raises(UsageError, match=r"assign\(\)"):
                await consumer.poll()
            broker.on("OffsetCommit", error(25))
            with pytest.raises(CommitFailedError, match=r"orders-0@5 with UNKNOWN_MEMBER_ID"):
                await consumer.commit({P0: 5})

    run(main())


def test_errors_come_after_the_good_records(broker: Broker) -> None:
    bad = bytearray(encode_batch([b"bad"] * 5))
    bad[-3] ^= 1
    broker.append("orders", 0, bytes(bad))
    broker.append("orders", 0, encode_batch([b"after"] * 5))

    async def main() -> None:
        async with consumer_of(broker, P0) as consumer:
            seen: list[int] = []

            async def go_on() -> None:
                async for record in consumer:
                    seen.append(record.offset)

            with pytest.raises(CrcMismatchError):
                await go_on()
            assert seen == list(range(100))
            assert consumer.skip(P0) == 105
            assert await read(consumer, 5) == {P0: [105, 106, 107, 108, 109]}

    run(main())


def test_others_get_their_turn_while_there_are_records(broker: Broker) -> None:
    async def main() -> None:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with consumer_of(broker, P0) as consumer:
            await until(lambda: consumer.metrics()["buffered_bytes"] > 0)
            task = asyncio.create_task(other())
            for _ in range(20):
                assert len((await consumer.poll(max_records=2))[P0]) == 2
            assert turns >= 20
            turns, seen = 0, 0
            async for _ in consumer:
                seen += 1
                if seen == 60:
                    break
            assert turns >= 1
            task.cancel()

    run(main())


def test_a_loop_goes_on_while_a_large_response_comes_in_and_is_decoded(broker: Broker) -> None:
    for turn in range(4):
        broker.append("orders", 0, encode_batch([bytes([turn]) * 4_000_000], codec="zstd"))
    broker.append("orders", 0, encode_batch([random.Random(1).randbytes(4_000_000)]))
    broker.on("Fetch", slices(100_000, 0.002), times=None)

    async def main() -> None:
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                await asyncio.sleep(0.005)
                beats += 1

        task = asyncio.create_task(beat())
        async with consumer_of(broker, P0, max_partition_fetch_bytes=1 << 26) as consumer:
            assert sum(map(len, (await read(consumer, 105)).values())) == 105
        assert beats > 5
        task.cancel()

    run(main())


# --- cancellation -------------------------------------------------------------------------------------------------------


async def by_poll(consumer: AsyncConsumer) -> list[int]:
    records = await consumer.poll(timeout_ms=10_000, max_records=37)
    return [record.offset for record in records.get(P0, [])]


async def by_poll_blocks(consumer: AsyncConsumer) -> list[int]:
    blocks = await consumer.poll_blocks(timeout_ms=10_000, max_records=37)
    return [offset for block in blocks for offset in block.offsets.tolist()]


FORMS: dict[str, Callable[[AsyncConsumer], Coroutine[Any, Any, list[int]]]] = {"poll": by_poll, "poll_blocks": by_poll_blocks}


async def cancelled_soon(how: str, call: Coroutine[Any, Any, list[int]], draw: random.Random) -> list[int] | None:
    """What the call returned, or None if it was cancelled."""
    seconds = draw.choice((0, draw.uniform(0, 0.001), draw.uniform(0, 0.01)))
    if how == "cancel":
        task = asyncio.create_task(call)
        for _ in range(draw.randrange(4)):
            await asyncio.sleep(0)
        if draw.random() < 0.5:
            await asyncio.sleep(seconds)
        task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            return None
    offsets: list[int] | None = None
    with contextlib.suppress(TimeoutError):
        if how == "timeout":
            async with asyncio.timeout(seconds):
                offsets = await call
        else:
            offsets = await asyncio.wait_for(call, seconds)
    return offsets


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["cancel", "timeout", "wait_for"])
def test_cancelling_at_random_moments_loses_and_repeats_nothing(form: str, how: str) -> None:
    """What a call that was cancelled did not return, the next one does."""
    count, draw = 3_000, random.Random(f"{form} {how}")

    async def main(broker: Broker) -> int:
        cancelled = 0
        async with consumer_of(broker, P0, max_partition_fetch_bytes=300) as consumer:
            deadline = time.monotonic() + 120
            while cancelled < 100 and time.monotonic() < deadline:
                consumer.seek(P0, 0)
                got: list[int] = []
                while await consumer.position(P0) < count:
                    offsets = await cancelled_soon(how, FORMS[form](consumer), draw)
                    if offsets is None:
                        cancelled += 1
                    else:
                        got += offsets
                assert got == list(range(count))
        return cancelled

    with Broker() as broker:
        broker.create_topic("orders")
        for _ in range(100):
            broker.append("orders", 0, encode_batch([b"x"] * 30, codec="lz4"))
        broker.on("Fetch", delay(0.003), times=None)
        assert run(main(broker)) >= 100, "the cancellations never hit"


@pytest.mark.parametrize("form", ["records", "blocks"])
def test_cancelling_an_iteration_loses_and_repeats_nothing(form: str) -> None:
    count, draw = 3_000, random.Random(form)

    async def one_by_one(consumer: AsyncConsumer, got: list[int]) -> None:
        if form == "records":
            async for record in consumer:
                got.append(record.offset)
                if draw.random() < 0.1:
                    await asyncio.sleep(0)
        else:
            async for block in consumer.blocks():
                got += block.offsets.tolist()

    async def main(broker: Broker) -> tuple[int, list[int]]:
        got: list[int] = []
        cancelled = 0
        async with consumer_of(broker, P0, max_partition_fetch_bytes=300, max_poll_records=11) as consumer:
            deadline = time.monotonic() + 120
            while await consumer.position(P0) < count and time.monotonic() < deadline:
                task = asyncio.create_task(one_by_one(consumer, got))
                await asyncio.sleep(draw.uniform(0, 0.02))
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                cancelled += 1
        return cancelled, got

    with Broker() as broker:
        broker.create_topic("orders")
        for _ in range(100):
            broker.append("orders", 0, encode_batch([b"x"] * 30, codec="lz4"))
        broker.on("Fetch", delay(0.002), times=None)
        cancelled, got = run(main(broker))
    assert got == list(range(count))
    assert cancelled >= 5


ASKING: dict[str, Callable[[AsyncConsumer], Awaitable[object]]] = {
    "position": lambda c: c.position(P1),
    "commit": lambda c: c.commit({P0: 1}),
    "committed": lambda c: c.committed([P0]),
    "beginning_offsets": lambda c: c.beginning_offsets([P0]),
    "end_offsets": lambda c: c.end_offsets([P0]),
    "offsets_for_times": lambda c: c.offsets_for_times({P0: 0}),
    "partitions_for": lambda c: c.partitions_for("other"),
    "topics": lambda c: c.topics(),
    "list_topics": lambda c: c.list_topics(),
    "poll": lambda c: c.poll(timeout_ms=60_000),
    "poll_blocks": lambda c: c.poll_blocks(timeout_ms=60_000),
}


@pytest.mark.parametrize("call", ASKING)
def test_a_cancelled_call_leaves_the_consumer_usable(broker: Broker, call: str) -> None:
    async def main() -> None:
        async with consumer_of(broker, P0, group_id="g", auto_offset_reset="latest", enable_auto_commit=False) as consumer:
            await consumer.position(P0)
            held = broker.on("*", drop(), times=None)
            if call == "position":
                consumer.assign([P0, P1])
            task = asyncio.ensure_future(ASKING[call](consumer))
            await asyncio.sleep(0.05)
            assert not task.done()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert consumer.assignment() >= {P0}, "nobody is in a call any more"
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ASKING[call](consumer), 0.05)
            broker.off(held)
            broker.disconnect()
            assert await consumer.end_offsets([P0], timeout_ms=20_000) == {P0: 100}
            await consumer.commit({P0: 7}, timeout_ms=20_000)
            assert broker.committed("g")[P0].offset == 7

    run(main())


@pytest.mark.parametrize("ms", [0, 100, 400])
def test_every_call_returns_by_its_timeout(broker: Broker, ms: int) -> None:
    """Nobody answers anything after the start."""

    async def main() -> None:
        consumer = consumer_of(broker, P0, group_id="g", auto_offset_reset="latest", enable_auto_commit=False)
        await consumer.position(P0)
        broker.on("*", drop(), times=None)

        async def timed(call: Awaitable[T], least: float = ms / 1000) -> T:
            begun = time.monotonic()
            try:
                return await call
            finally:
                assert time.monotonic() - begun < least + SLACK

        assert await timed(consumer.poll(timeout_ms=ms)) == {}
        assert await timed(consumer.poll_blocks(timeout_ms=ms)) == []
        assert [block async for block in consumer.blocks(timeout_ms=ms)] == []
        for call in (
            consumer.commit({P0: 1}, timeout_ms=ms),
            consumer.committed([P0], timeout_ms=ms),
            consumer.end_offsets([P0], timeout_ms=ms),
            consumer.beginning_offsets([P0], timeout_ms=ms),
            consumer.offsets_for_times({P0: 1}, timeout_ms=ms),
            consumer.partitions_for("other", timeout_ms=ms),
            consumer.topics(timeout_ms=ms),
        ):
            with pytest.raises(TimedOut, match=f"within {ms} ms"):
                await timed(call)
        consumer.seek_to_end(P0)
        with pytest.raises(TimedOut, match="the position of orders-0"):
            await timed(consumer.position(P0, timeout_ms=ms))
        await timed(consumer.close(timeout_ms=ms), max(ms / 1000, 0.1))

    run(main())


# --- who may call -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ASKING)
def test_a_second_task_is_refused_at_once(broker: Broker, call: str) -> None:
    async def main() -> None:
        async with consumer_of(broker, P0, P1, group_id="g", auto_offset_reset="latest") as consumer:
            await consumer.position(P0)
            await consumer.position(P1)
            first = asyncio.create_task(consumer.poll(timeout_ms=500))
            await asyncio.sleep(0.05)
            begun = time.monotonic()
            with pytest.raises(UsageError, match="another task"):
                await ASKING[call](consumer)
            for plain in (consumer.assignment, consumer.metrics, lambda: consumer.seek(P0, 0), lambda: consumer.pause(P0)):
                with pytest.raises(UsageError, match="another task"):
                    plain()
            assert time.monotonic() - begun < SLACK
            assert await first == {}
            assert await consumer.poll() == {}

    run(main())


def test_it_may_be_made_and_used_before_its_loop_runs(broker: Broker) -> None:
    consumer = consumer_of(broker)
    consumer.assign([P0])

    async def main() -> None:
        async with consumer:
            assert await read(consumer, 100) == {P0: list(range(100))}

    run(main())
    with pytest.raises(ClosedError):
        consumer.assignment()


def test_another_loop_or_thread_is_refused_and_may_close(broker: Broker) -> None:
    consumer = consumer_of(broker, P0)

    async def here() -> None:
        await read(consumer, 100)
        for call in (lambda: asyncio.run(consumer.poll()), consumer.assignment):
            said: list[Exception] = []

            def refused(call: Callable[[], object], said: list[Exception]) -> None:
                try:
                    call()
                except UsageError as failure:
                    said.append(failure)

            thread = threading.Thread(target=refused, args=(call, said))
            thread.start()
            await asyncio.to_thread(thread.join)
            assert "event loop" in str(said[0])

    async def elsewhere() -> None:
        with pytest.raises(UsageError, match="event loop"):
            await consumer.poll()
        with pytest.raises(UsageError, match="event loop"):
            consumer.seek(P0, 0)
        await consumer.close()

    run(here())
    assert consumer.assignment() == {P0}, "the loop is over, its thread is this one"
    run(elsewhere())
    assert not consumer._client.is_alive


def test_wakeup_from_another_thread(broker: Broker) -> None:
    async def main() -> None:
        async with consumer_of(broker, P0, auto_offset_reset="latest") as consumer:
            await consumer.position(P0)
            for call in (lambda: consumer.poll(timeout_ms=10_000), lambda: anext(aiter(consumer))):
                timer = threading.Timer(0.1, consumer.wakeup)
                timer.start()
                begun = time.monotonic()
                with pytest.raises(WakeupError):
                    await call()
                assert time.monotonic() - begun < 0.1 + 2 * SLACK
                timer.join()
            consumer.wakeup()
            with pytest.raises(WakeupError):
                await consumer.poll()
            await consumer.poll()

    run(main())


def test_a_forked_child_is_refused_and_the_parent_goes_on(broker: Broker) -> None:
    async def main() -> None:
        async with consumer_of(broker, P0) as consumer:
            await read(consumer, 1)
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                said = "nothing"
                try:
                    consumer.assignment()
                except UsageError as failure:
                    said = str(failure)
                    try:
                        consumer.poll().send(None)
                    except UsageError as failure:
                        said += str(failure)
                os.write(writer, said.encode())
                os._exit(0)
            assert os.read(reader, 1000).count(b"before the fork") == 2
            os.waitpid(pid, 0)
            os.close(reader)
            os.close(writer)
            consumer.seek(P0, 0)
            assert len((await read(consumer, 100))[P0]) == 100

    run(main())


# --- callbacks ----------------------------------------------------------------------------------------------------------


def test_callbacks_run_in_the_loops_thread_and_what_they_raise_comes_out(broker: Broker) -> None:
    heard: list[tuple[Any, ...]] = []

    def on_stats(metrics: dict[str, Any]) -> None:
        heard.append(("stats", metrics["records"], threading.get_ident()))

    async def main() -> None:
        settings = {"group_id": "g", "enable_auto_commit": False, "on_stats": on_stats, "statistics_interval_ms": 1}
        async with consumer_of(broker, P0, **settings) as consumer:
            for offset in (3, 5):
                consumer.commit_async({P1: offset}, lambda offsets, failure: heard.append((offsets[P1].offset, failure)))
            await until(lambda: broker.committed("g").get(P1) == OffsetAndMetadata(5))
            await asyncio.sleep(0.05)
            assert heard == []
            await read(consumer, 100)
            await asyncio.sleep(0.005)
            await consumer.poll()
            assert [each for each in heard if each[0] != "stats"] == [(3, None), (5, None)]
            assert ("stats", 100, threading.get_ident()) in heard

            def fails(offsets: object, failure: object) -> None:
                raise ZeroDivisionError

            consumer.seek(P0, 90)
            consumer.commit_async({P0: 6}, fails)
            await until(lambda: broker.committed("g").get(P0) == OffsetAndMetadata(6))
            await asyncio.sleep(0.05)
            with pytest.raises(ZeroDivisionError):
                await consumer.poll(timeout_ms=2_000)
            assert await read(consumer, 10) == {P0: list(range(90, 100))}

    run(main())


def test_callbacks_that_would_have_to_be_awaited_are_refused(broker: Broker) -> None:
    async def callback(*_: object) -> None: ...

    with pytest.raises(ConfigError, match="on_stats must be a plain function"):
        consumer_of(broker, on_stats=callback)

    async def main() -> None:
        async with consumer_of(broker, P0, group_id="g") as consumer:
            with pytest.raises(UsageError, match="plain function"):
                consumer.commit_async(callback=callback)

    run(main())


def test_batches_that_were_gone_past_are_told(broker: Broker) -> None:
    bad = bytearray(encode_batch([b"bad"] * 5))
    bad[-3] ^= 1
    broker.append("orders", 0, bytes(bad))
    broker.append("orders", 0, encode_batch([b"after"] * 5))
    told: list[CorruptBatchError] = []

    async def main() -> None:
        async with consumer_of(broker, P0, on_corrupt="skip", on_skipped=told.append) as consumer:
            assert await read(consumer, 105) == {P0: [*range(100), *range(105, 110)]}

    run(main())
    assert [(each.topic, each.partition, each.base_offset) for each in told] == [("orders", 0, 100)]


# --- endings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [*ASKING, "iterate", "blocks"])
def test_close_from_another_task_ends_the_call_that_waits(broker: Broker, call: str) -> None:
    async def main() -> None:
        consumer = consumer_of(broker, P0, group_id="g", auto_offset_reset="latest", enable_auto_commit=False)
        await consumer.position(P0)
        broker.on("*", drop(), times=None)
        if call == "position":
            consumer.assign([P0, P1])
        calls = ASKING | {"iterate": lambda c: anext(aiter(c)), "blocks": lambda c: anext(c.blocks())}
        task = asyncio.ensure_future(calls[call](consumer))
        await asyncio.sleep(0.05)
        begun = time.monotonic()
        closing = asyncio.create_task(consumer.close(timeout_ms=1_000))
        with pytest.raises(ClosedError):
            await task
        assert time.monotonic() - begun < 2 * SLACK
        await closing
        assert not consumer._client.is_alive
        await consumer.close()
        with pytest.raises(ClosedError):
            await consumer.poll()

    run(main())


def test_a_clean_close_commits_and_one_by_an_exception_or_a_cancellation_does_not(broker: Broker) -> None:
    async def main(group: str, ending: BaseException | None) -> None:
        async with consumer_of(broker, P0, group_id=group) as consumer:
            await read(consumer, 100)
            if ending is not None:
                raise ending

    run(main("clean", None))
    assert broker.committed("clean")[P0].offset == 100
    with pytest.raises(ZeroDivisionError):
        run(main("failed", ZeroDivisionError()))
    assert broker.committed("failed") == {}

    async def cancelled() -> None:
        task = asyncio.create_task(main("cancelled", asyncio.CancelledError()))
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancelled())
    assert broker.committed("cancelled") == {}


def test_close_is_bounded_and_may_be_cancelled(broker: Broker) -> None:
    async def main() -> None:
        broker.on("OffsetCommit", drop(), times=None)
        consumer = consumer_of(broker, P0, group_id="g")
        await read(consumer, 100)
        begun = time.monotonic()
        await consumer.close(timeout_ms=300)
        assert time.monotonic() - begun < 0.3 + SLACK
        assert not consumer._client.is_alive

        assigned, member = consumer_of(broker, P0, group_id="h"), consumer_of(broker, group_id="i")
        member.subscribe(["orders"])
        for consumer in (assigned, member):
            await read(consumer, 100)
            begun = time.monotonic()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await consumer.close()
            assert time.monotonic() - begun < 0.1 + SLACK
            with pytest.raises(ClosedError):
                consumer.assignment()
            await until(lambda client=consumer._client: not client.is_alive)

    run(main())


def test_a_consumer_that_is_forgotten_ends_its_thread_with_a_warning(broker: Broker) -> None:
    async def main() -> None:
        consumer = consumer_of(broker, P0)
        await read(consumer, 10)
        client = consumer._client
        with pytest.warns(ResourceWarning, match=r"unclosed <fastfetch\.AsyncConsumer"):  # noqa: PT031 - both belong to it
            del consumer
            gc.collect()
        await until(lambda: not client.is_alive)

    run(main())


def test_a_loop_that_is_closed_under_a_waiting_task(broker: Broker) -> None:
    """The news that comes then has nobody to go to. Another loop can close the consumer."""
    loop = asyncio.new_event_loop()
    consumer = consumer_of(broker, P0, auto_offset_reset="latest")
    task = loop.create_task(consumer.poll(timeout_ms=60_000))
    loop.run_until_complete(asyncio.sleep(0.1))
    loop.close()
    broker.append("orders", 0, encode_batch([b"x"]))
    broker.wait_for("Fetch", len(broker.requests("Fetch")) + 2)
    assert consumer._client.is_alive
    run(consumer.close())
    assert not consumer._client.is_alive
    task._log_destroy_pending = False  # type: ignore[attr-defined] # of our own making
    del task


@pytest.mark.parametrize("how", ["in the loop", "after the loop", "waiting"])
def test_the_interpreter_ends_with_an_open_consumer(broker: Broker, how: str) -> None:
    code = """if True:
        import asyncio, sys
        from fastfetch import AsyncConsumer, TopicPartition

        kept = []

        async def main():
            consumer = AsyncConsumer(bootstrap_servers=sys.argv[1], auto_offset_reset='earliest')
            consumer.assign([TopicPartition('orders', 0)])
            assert await consumer.poll(timeout_ms=5000)
            if sys.argv[2] == "in the loop":
                sys.exit(0)
            kept.append(consumer)
            if sys.argv[2] == "waiting":
                consumer.seek_to_end()
                kept.append(asyncio.create_task(consumer.poll(timeout_ms=60_000)))
                await asyncio.sleep(0.1)

        asyncio.run(main())
        """
    done = subprocess.run(
        [sys.executable, "-c", code, broker.bootstrap_servers, how], capture_output=True, text=True, timeout=30, check=False
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("call", ["poll", "iterate", "commit"])
def test_ctrl_c_ends_a_program_that_waits(broker: Broker, call: str) -> None:
    broker.on("OffsetCommit", drop(), times=None)
    code = """if True:
        import asyncio, signal, sys
        from fastfetch import AsyncConsumer, TopicPartition

        signal.signal(signal.SIGINT, signal.default_int_handler)
        tp = TopicPartition('orders', 0)

        async def main():
            async with AsyncConsumer(bootstrap_servers=sys.argv[1], auto_offset_reset='latest', group_id='g') as consumer:
                consumer.assign([tp])
                await consumer.position(tp)
                print("ready", flush=True)
                if sys.argv[2] == "poll":
                    await consumer.poll(timeout_ms=60_000)
                elif sys.argv[2] == "commit":
                    await consumer.commit({tp: 1})
                else:
                    async for _ in consumer:
                        pass

        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("out", flush=True)
        """
    words = [sys.executable, "-c", code, broker.bootstrap_servers, call]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "out\n"
    assert time.monotonic() - begun < 0.2 + 2 * SLACK
    assert process.wait(10) == 0
    assert process.stdout.read() == ""
    process.stdout.close()


def test_a_failed_construction_is_quiet() -> None:
    with pytest.raises(ConfigError):
        AsyncConsumer(bootstrap_servers="nonsense")
    gc.collect()


def test_the_end_of_the_background_thread_is_told(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with consumer_of(broker, P0) as consumer:
            await read(consumer, 100)

            def broken(now_ms: int) -> None:
                raise RuntimeError("planted")

            monkeypatch.setattr(consumer._engine, "pump", broken)
            with pytest.raises(FastFetchError, match="planted"):
                await consumer.poll(timeout_ms=10_000)

    run(main())
