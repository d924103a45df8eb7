"""The consumer for asyncio: the same calls over the same engine and thread, awaited where they wait.

The background thread wakes the event loop with `call_soon_threadsafe`; nothing polls, and no other thread is needed. Receiving
and decoding happen in that thread, so a large response does not hold up the loop.

Cancelling a call, by `task.cancel()` or `asyncio.timeout()`, loses nothing: between taking records and returning them nothing
is awaited, so a call that is cancelled has taken none.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from fastfetch.calls import BaseConsumer
from fastfetch.core import LATE_MS, STEP_MS, Offsets, Steps, check_limit
from fastfetch.duties import Polling
from fastfetch.engine.arguments import Partitions
from fastfetch.engine.readahead import HandOut
from fastfetch.engine.stored import Stored
from fastfetch.engine.subscription import EARLIEST, LATEST
from fastfetch.errors import UsageError
from fastfetch.records import Record, RecordBlock
from fastfetch.types import OffsetAndTimestamp, TopicPartition

__all__ = ["AsyncConsumer"]

T = TypeVar("T")


class LoopWaiter:
    """A task that waits for news."""

    __slots__ = ("_future", "_loop", "released")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()
        self.released = False

    def release(self) -> None:
        """From any thread."""
        self.released = True
        with contextlib.suppress(RuntimeError):  # the loop was closed, and whoever waited in it is gone
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Until it is released, `seconds` at most."""
        timer = self._loop.call_later(seconds, self._wake)
        try:
            await self._future
        finally:
            timer.cancel()


class ListenerWaiter(LoopWaiter):
    """A task that waits for a listener's coroutine, which runs in it."""

    __slots__ = ("_listener", "error")

    def __init__(self, listener: Awaitable[object]) -> None:
        super().__init__()
        self._listener = listener
        self.error: Exception | None = None
        self.released = True  # nobody else wakes it

    async def wait(self, seconds: float) -> None:
        try:
            await self._listener
        except Exception as error:  # for the steps to deal with
            self.error = error


class AsyncConsumer(BaseConsumer[LoopWaiter]):
    """Reads partitions of Kafka topics from asyncio. Names, arguments and errors are those of Consumer.

        async with AsyncConsumer(bootstrap_servers="127.0.0.1:9092", group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            async for block in consumer.blocks():
                ...
                await consumer.commit()

    It may be made outside a loop, and belongs to the loop in which it is first used. One task uses it at a time: a second one
    gets a UsageError at once, except for `wakeup` (from any thread) and `close`. Callbacks are plain functions and are called in
    the loop's thread. A call that waits may be cancelled; positions are then as they were.
    """

    _rival = "task"
    _loop: asyncio.AbstractEventLoop | None = None  # where it was first used
    _thread = 0  # that loop's

    # --- records --------------------------------------------------------------------------------------------------------

    async def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> dict[TopicPartition, list[Record]]:
        """Records by partition, at most `max_records` (default: the setting max_poll_records) in all; see Consumer.poll().

        Other tasks get a turn in each call, also when records are there already.
        """
        limit = self.config.max_poll_records if max_records is None else max_records
        out = await self._hand_out("poll", timeout_ms, limit, None, as_records=True)
        return out.by_partition

    async def poll_blocks(self, timeout_ms: int = 0, max_records: int | None = None) -> list[RecordBlock]:
        """Blocks of columns; see Consumer.poll_blocks()."""
        out = await self._hand_out("poll_blocks", timeout_ms, self._block_limit(max_records), None, as_records=False)
        return out.blocks

    async def blocks(self, timeout_ms: int | None = None) -> AsyncIterator[RecordBlock]:
        """Blocks one by one, for ever; or, with a timeout, until none came for so long. A position moves as its block is
        yielded."""
        quiet_since = time.monotonic()
        while True:
            wait = STEP_MS if timeout_ms is None else timeout_ms - int((time.monotonic() - quiet_since) * 1000)
            out = await self._hand_out("blocks", wait, None, 1, as_records=False)
            if out.blocks:
                yield out.blocks[0]
                quiet_since = time.monotonic()
            elif timeout_ms is not None and not out.progressed and wait <= 0:
                return

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Records one by one, for ever. The position is that of the record after the one yielded last."""
        while True:
            with Polling(self, "iteration"):
                await asyncio.sleep(0)
                deadline = self._quiet_deadline()
                self._before_poll()
                await self._for_the_group(deadline)
                found, news = self._peek(deadline)
                while news is not None:
                    await self._wait(*news)
                    self._before_poll(LATE_MS)
                    await self._for_the_group(deadline)
                    found, news = self._peek(deadline)
            if found is not None:
                for record in self._step_through(found):
                    yield record

    async def _hand_out(
        self, what: str, timeout_ms: int, limit: int | None, blocks: int | None, *, as_records: bool
    ) -> HandOut:  # fmt: skip
        check_limit(what, limit)
        out = HandOut()
        try:
            with Polling(self, what):
                deadline = time.monotonic() + timeout_ms / 1000 if timeout_ms > 0 else 0.0
                await asyncio.sleep(0)  # or a loop that polls would never let others run while there are records
                self._before_poll()
                await self._for_the_group(deadline)
                while (news := self._take(out, limit, blocks, deadline)) is not None:
                    await self._wait(*news)
                    self._before_poll(LATE_MS)
                    await self._for_the_group(deadline)
                if as_records:
                    out.make_rows(self._rows)
            return out  # noqa: TRY300 - no await since the records were taken: they can't be lost to a cancellation
        except BaseException:
            self._put_back(out)
            raise

    def _nothing_subscribed(self) -> None:
        raise UsageError("subscribe: name topics or give a pattern; to read nothing any more: await unsubscribe()")

    async def _for_the_group(self, deadline: float) -> None:
        if self._engine.membership.is_active:
            await self._run(self._duties(deadline))

    def _invoke(self, function: Callable[..., Any], *arguments: object) -> Steps[LoopWaiter, None]:
        before, self._calling_back = self._calling_back, True
        try:
            result = function(*arguments)
            if inspect.isawaitable(result):
                listener = ListenerWaiter(result)
                yield listener, 0.0
                if listener.error is not None:
                    raise listener.error
        finally:
            self._calling_back = before

    # --- calls that wait ------------------------------------------------------------------------------------------------

    async def unsubscribe(self) -> None:
        """Read nothing any more. A member of a group commits (with enable_auto_commit), hears of it through its listener, and
        leaves; what the listener raises is raised here, afterwards."""
        await self._run(self._unsubscribe())

    async def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The next offset that will be delivered. Waits while it is being looked up."""
        return await self._run(self._position(partition, timeout_ms))

    async def commit(self, offsets: Offsets | None = None, timeout_ms: int | None = None) -> None:
        """Store the next offsets to read: the positions, or the given ones unchanged. One that is cancelled may or may not have
        been stored."""
        await self._run(self._commit(offsets, timeout_ms))

    async def committed(self, partitions: Partitions | None = None, timeout_ms: int | None = None) -> Stored:
        """What the group has committed, None where nothing is; without `partitions`, all its commits."""
        return await self._run(self._committed(partitions, timeout_ms))

    async def beginning_offsets(self, partitions: Partitions, timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return await self._run(self._ends("beginning_offsets", partitions, EARLIEST, timeout_ms))

    async def end_offsets(self, partitions: Partitions, timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        """The offset after the last readable record of each partition."""
        return await self._run(self._ends("end_offsets", partitions, LATEST, timeout_ms))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset whose timestamp is not below the given one (ms since 1970); None where there is no such record."""
        return await self._run(self._offsets_for_times(timestamps, timeout_ms))

    async def partitions_for(self, topic: str, timeout_ms: int | None = None) -> set[int]:
        """Numbers of a topic's partitions. Raises UnknownTopicError if brokers don't know it."""
        return await self._run(self._partitions_for(topic, timeout_ms))

    async def topics(self, timeout_ms: int | None = None) -> set[str]:
        """Names of all topics this client may see, without Kafka's internal ones."""
        return await self._run(self._topics(timeout_ms))

    async def list_topics(self, timeout_ms: int | None = None) -> dict[str, set[int]]:
        """The same topics with the numbers of their partitions, in one question to a broker."""
        return await self._run(self._list_topics(timeout_ms))

    async def close(self, timeout_ms: int | None = None, *, autocommit: bool = True) -> None:
        """Commit positions if enable_auto_commit says so, close all connections, end the background thread. Any task of any loop
        may call it; calls that wait end with a ClosedError. A failed commit is logged, not raised. When cancelled, it commits
        nothing more, and the rest happens in the background."""
        await self._run(self._close(timeout_ms, autocommit=autocommit))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._run(self._close_after(error))

    # --- waiting --------------------------------------------------------------------------------------------------------

    def _caller(self) -> object:
        """The task; a call that doesn't wait may also come from a callback of the loop, or from before or after it runs."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        thread = threading.get_ident()
        if self._loop is None:
            if loop is None:
                return thread
            self._loop, self._thread = loop, thread
        if thread != self._thread or loop not in (None, self._loop):
            raise UsageError(
                "this consumer belongs to the event loop in which it was first used; only close() may be called in another one, "
                "and wakeup() from anywhere"
            )
        return (loop and asyncio.current_task()) or thread

    def _new_waiter(self) -> LoopWaiter:
        return LoopWaiter()

    async def _wait(self, waiter: LoopWaiter, seconds: float) -> None:
        try:
            await waiter.wait(seconds)
        finally:
            if not waiter.released:
                with self._client.lock:
                    self._client.forget(waiter)

    async def _run(self, steps: Steps[LoopWaiter, T]) -> T:
        try:
            while True:
                await self._wait(*next(steps))
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            steps.close()
