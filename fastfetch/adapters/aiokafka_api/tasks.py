"""An AsyncConsumer that many tasks use at once, with its group's affairs in a task of its own, as aiokafka's consumer is used.

Each look at what is there is one step under the client's lock, so tasks need not queue for one another: a task that waits for
records holds nothing, and what it gets nobody else does. Between taking records and returning them nothing is awaited, so that a
cancelled call has taken none.

The *keeper* does what an AsyncConsumer does in its polls: listeners, assignors, the commits before partitions go. As long as it
is at it, nothing is handed out.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

from fastfetch.aio import AsyncConsumer, LoopWaiter
from fastfetch.core import LATE_MS, STEP_MS, Peeked
from fastfetch.engine.membership import Membership
from fastfetch.engine.readahead import HandOut
from fastfetch.engine.subscription import PartitionState
from fastfetch.errors import ClosedError, FastFetchError, GroupAuthorizationError
from fastfetch.net.thread import now_ms
from fastfetch.records import RecordBlock
from fastfetch.types import TopicPartition

__all__ = ["SharedConsumer"]

log = logging.getLogger("fastfetch.adapters")

T = TypeVar("T")
Only = Collection[TopicPartition] | None  # partitions to read from; None: all

PEEK = 500  # records that are made at a time when they are asked for one by one
FINISH_S = 30.0


class SharedConsumer(AsyncConsumer):
    """See the module. Records are what `make` turns blocks into, in one list; `finish` is called with each of them before it is
    handed out, and may raise: then it and those that would have come with it are still the next ones.

    Everything is called in the loop in which it was made; what is not defined here is AsyncConsumer's.
    """

    _subscribes_alone = True

    def __init__(
        self, make: Callable[[list[RecordBlock]], list[Any]], finish: Callable[[Any], Any] | None = None, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self._make = make
        self._finish = finish
        self._stepping: dict[TopicPartition, Iterator[Any]] = {}  # records made, handed out one by one
        self._asked: list[Only] = []  # by the calls that wait for records
        self._keeper: asyncio.Task[None] | None = None
        self._fault: Exception | None = None  # of the group, for the next call to raise
        self._is_idle = False  # the keeper waits for the program to poll
        self._is_ending = False
        self._has_announced = True

    def _caller(self) -> object:
        super()._caller()  # another loop, or another thread, is still none
        return self

    def _claim(self) -> bool:
        return not self._in_duty

    # --- records --------------------------------------------------------------------------------------------------------

    async def getmany(self, only: Only, limit: int | None, seconds: float) -> dict[TopicPartition, list[Any]]:
        """Records by partition, `limit` at most in all; {} if there are none for so long, or the consumer is stopped."""
        deadline = time.monotonic() + seconds
        out = HandOut()

        def take() -> HandOut | None:
            while True:
                self._engine.take(limit, None, out)
                if out.blocks:
                    return out
                if not out.moves:
                    return None
                out.moves.clear()  # past batches without records: that stays so

        self._poll_began(only)
        try:
            if await self._wait_for(take, only, deadline) is not None:
                return self._by_partition(out.blocks)
        except ClosedError:
            return {}  # stopped while it waited
        except BaseException:
            self._put_back(out)
            raise
        finally:
            self._poll_ended(only)
        return {}

    async def getone(self, only: Only) -> Any:
        """The next record, where step() has none."""
        record = None
        self._poll_began(only)
        try:
            while record is None:
                peeked = await self._wait_for(self._peek_any, only, math.inf)
                assert peeked is not None
                self._stepping[peeked.state.tp] = self._steps_of(peeked)
                record = self.step(only)
        finally:
            self._poll_ended(only)
        return record

    def _by_partition(self, blocks: list[RecordBlock]) -> dict[TopicPartition, list[Any]]:
        records = list(self._finishing(self._make(blocks)))
        found: dict[TopicPartition, list[Any]] = {}
        end = 0
        for block in blocks:
            start, end = end, end + len(block)
            found.setdefault(TopicPartition(block.topic, block.partition), []).extend(records[start:end])
        return found

    def _steps_of(self, peeked: Peeked) -> Iterator[Any]:
        """A position moves when its record is taken out of this, and not if `finish` raises."""
        state, ticket, chunk, row, part, is_whole = peeked
        mine, records = part.records(), self._make([part])
        within = len(mine) - is_whole
        steps = self._engine.readahead.steps(state, ticket, chunk, row, mine[:within])
        stepped = 0
        # zip() takes of the first one first: a record is finished, and then it is taken.
        for record, _ in zip(self._finishing(records[:within]), steps, strict=False):
            stepped += 1
            yield record
        if is_whole and stepped == within:
            last = self._step_last(state, ticket, chunk, row + within, mine[within])
            for record, _ in zip(self._finishing(records[within:]), last, strict=False):
                yield record

    def _finishing(self, records: list[Any]) -> Iterator[Any]:
        return iter(records) if self._finish is None else map(self._finish, records)

    def step(self, only: Only) -> Any:
        """The next one of the records made already; None if there is none, or it is no longer the next one. Raises what `finish`
        does, and nothing else."""
        self._check_quickly()
        stepping = self._stepping
        for tp in tuple(stepping) if only is None else only:
            steps = stepping.get(tp)
            if steps is not None:
                record = next(steps, None)  # a generator that has raised is at its end
                if record is not None:
                    return record
                stepping.pop(tp, None)
        return None

    def _check_quickly(self) -> None:
        """What a look under the lock would find, as far as it can be seen without."""
        if self._closed or self._is_ending or self._fault is not None:
            self._stepping.clear()
        elif self._stepping:
            now = now_ms()
            if self._due_at is not None and now >= self._due_at:
                self._before_look()
            if not self._asked:
                self._engine.membership.poll_ended(now)

    def _peek_any(self) -> Peeked | None:
        found = self._engine.readahead.peek(PEEK)
        if found is None:
            return None
        state, chunk, part = found
        return Peeked(state, state.ticket, chunk, chunk.row, part, chunk.row + len(part) == len(chunk.blocks[0]))

    async def _wait_for(self, get: Callable[[], T | None], only: Only, deadline: float) -> T | None:
        """What `get` finds, now or with later news; None when the time is up. Raises what is wrong with the group or with one of
        the partitions."""
        await asyncio.sleep(0)  # a loop that polls would never let others run while there are records
        self._before_look()
        while True:
            found, news = self._look(get, only, deadline)
            if news is None:
                return found
            await self._wait(*news)
            self._before_look(LATE_MS)

    def _look(self, get: Callable[[], T | None], only: Only, deadline: float) -> tuple[T | None, tuple[LoopWaiter, float] | None]:
        engine = self._engine
        with self._client.lock:
            self._check_all()
            if self._is_settled(engine.membership):
                engine.readahead.only = only
                found = get()
                if engine.wants_pump:
                    self._client.poke()
                news = None if found is not None else self._news(deadline)
                engine.readahead.only = self._asked_by_all()
                return found, news
            left = min(deadline - time.monotonic(), STEP_MS / 1000)
            return None, (self._waiter(), left) if left > 0 else None

    def _news(self, deadline: float) -> tuple[LoopWaiter, float] | None:
        """The error of a partition tells, in attributes, where that was: topic, partition, position."""
        faulty = {id(state.error): state for state in self._engine.faulty()}
        try:
            return super()._news(deadline)
        except FastFetchError as error:
            state = faulty.get(id(error))
            if state is not None:
                vars(error).update(topic=state.tp.topic, partition=state.tp.partition, position=state.position)
            raise

    def _is_settled(self, membership: Membership) -> bool:
        now = now_ms()
        return not membership.is_active or (membership.duty(now) is None and not membership.is_in_doubt(now))

    def _before_look(self, late_ms: int = 0) -> None:
        """Automatic commits, and the callbacks of those that were answered."""
        if self._due_at is not None and now_ms() >= self._due_at + late_ms:
            self._do_what_is_due()
        if self._engine.commits.finished_async or self._engine.skipped:
            self._run_callbacks()

    def _check_all(self) -> None:
        """Raise what ends a call that waits for the group or for records. The lock is held by the caller."""
        if self._is_ending:
            raise ClosedError("the consumer was stopped")
        self._check()
        error, membership = self._fault, self._engine.membership
        if error is None:
            return
        if isinstance(error, GroupAuthorizationError):  # an administrator may allow it: tried again
            self._client.poke()
            membership.subscribe(now_ms())
            self._fault = None
        elif error is not membership._fatal:
            self._fault = None  # told; the group goes on
        raise error

    # --- the program polls ----------------------------------------------------------------------------------------------

    def _poll_began(self, only: Only) -> None:
        self._asked.append(only)
        self._engine.membership.poll_began()
        if self._is_idle:
            self._client.wake_waiters()

    def _poll_ended(self, only: Only) -> None:
        self._asked.remove(only)
        if not self._asked:
            self._engine.membership.poll_ended(now_ms())
            return
        with self._client.lock:  # those who wait on are not to be kept from theirs by what this one has asked for
            self._engine.readahead.only = self._asked_by_all()
            if self._engine.wants_pump:
                self._client.poke()

    def _asked_by_all(self) -> Only:
        every = [only for only in self._asked if only is not None]
        return None if len(every) < len(self._asked) else {tp for only in every for tp in only}

    # --- the group's affairs --------------------------------------------------------------------------------------------

    def follow(self, topics: Collection[str], pattern: str | None, listener: Any) -> None:
        """Subscribe. As in aiokafka, a listener hears on_partitions_revoked() before the first join, of no partitions, and a
        member that subscribes to the same again joins again."""
        membership, self._fault = self._engine.membership, None
        was_active, has_group = membership.is_active, self.config.group_id is not None
        self._has_announced = listener is None or not has_group
        self.subscribe(topics, pattern=pattern, listener=listener if has_group else None)
        if was_active and has_group:
            self.enforce_rebalance("subscribed anew")
        if not self._asked:
            membership.poll_ended(now_ms())  # the program's patience counts from here

    def start_keeper(self) -> None:
        self._keeper = asyncio.get_running_loop().create_task(self._keep(), name=f"fastfetch-{self.config.client_id}-group")

    async def _keep(self) -> None:
        while not self._is_ending:
            with self._client.lock:
                if self._closed or self._client.has_ended:
                    return
                waiter = None if self._has_duty() else self._waiter()
            if waiter is not None:
                await self._wait(waiter, STEP_MS / 1000)
                continue
            self._stepping.clear()
            try:
                await self._announce()
                await self._run(self._duties(math.inf))
            except Exception as error:  # an assignor's, or what ended the membership; listeners' are theirs to deal with
                self._fault = error
                self._client.wake_waiters()
                await asyncio.sleep(self.config.retry_backoff_ms / 1000)  # it may be due again at once
            self._client.wake_waiters()  # who waited for the group to settle

    async def _announce(self) -> None:
        if not self._has_announced:
            self._has_announced = True
            if not self._engine.subscription.partitions():
                await self._run(self._tell("on_partitions_revoked", ()))

    def _has_duty(self) -> bool:
        membership = self._engine.membership
        now = now_ms()
        self._is_idle = membership.is_active and not self._asked and membership._stayed_away_ms(now) is not None
        if self._is_idle:
            return False  # thrown out for want of polls: joining again would be no use before there are any
        return membership.fault is not None or membership.duty(now) is not None

    async def wait_for_assignment(self) -> None:
        """Until the first assignment after a subscribe() is there and the listener has heard of it; without a group, until
        every subscribed topic has its partitions."""
        membership, before, subscription = self._engine.membership, self._engine.membership.rebalances, self._engine.subscription
        while True:
            with self._client.lock:
                self._check_all()
                if self.config.group_id is not None:
                    is_there = membership.rebalances > before
                else:
                    is_there = subscription.topics == subscription.assigned_topics() and (
                        subscription.is_matched or subscription.pattern is None
                    )
                if is_there:
                    return
                waiter = self._waiter()
            await self._wait(waiter, STEP_MS / 1000)

    # --- beginning and ending -------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Until some broker has answered. Raises ConnectionFailedError once every address was tried in vain."""
        await self._run(self._until(self._is_reached, self.config.request_timeout_ms, "the first answer of a broker"))

    def _is_reached(self) -> bool | None:
        channels = self._engine.channels
        if channels.ever_reached:
            return True
        if len(channels.failures()) >= len(self.config.bootstrap_servers) and (error := self._engine.unreachable()) is not None:
            raise error
        return None

    def leave(self) -> None:
        """Read nothing any more, at once. A member leaves its group without a commit, and no listener hears of it."""
        with self._client.lock:
            self._client.poke()
            self._engine.unsubscribe("the consumer unsubscribed", now_ms())
        self._listener = self._fault = None
        self._stepping.clear()

    async def finish(self) -> None:
        """Let the keeper end what it is at, then close(). Calls that wait end with a ClosedError. When cancelled, it is
        closed all the same, without more commits and without leaving the group."""
        self._is_ending = True
        self._client.wake_waiters()
        try:
            if self._keeper is not None and self._keeper is not asyncio.current_task():
                await asyncio.wait({self._keeper}, timeout=FINISH_S)
            self._listener = None
            await self.close()
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Without waiting for anything and from any thread: the rest happens in the background."""
        self._closed = True
        self._client.stop()
        self._client.wake_waiters()

    # --- what is known --------------------------------------------------------------------------------------------------

    def known_partitions(self, topic: str) -> set[int] | None:
        with self._client.lock:
            known = self._engine.cluster.topics.get(topic)
            return None if known is None else set(known.partitions)

    def state(self, tp: TopicPartition, what: str) -> PartitionState:
        """Raises UsageError if it is not assigned."""
        with self._client.lock:
            return self._engine.subscription.get(tp, what)

    def heard_ago_ms(self, state: PartitionState) -> int | None:
        """How long ago a broker told of the partition's log."""
        with self._client.lock:
            heard = self._engine.fetcher.heard_ms(state)
        return None if heard < 0 else now_ms() - heard

    def _waiter(self) -> LoopWaiter:
        """The lock is held by the caller."""
        waiter = self._new_waiter()
        self._client.add_waiter(waiter)
        return waiter
