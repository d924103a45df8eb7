"""What Consumer and AsyncConsumer are made of: the engine and its thread, who may call, hand-outs, callbacks, commits.

Nothing waits in here. A call that has to is a generator, `Steps`: it yields what it waits for and for how long, and the consumer
that runs it waits in its own way, blocking or awaiting. Records are handed out by `_take` and `_peek`, one look each.

CPython runs signal handlers, which may raise, after calls and at the ends of loops. Where an interrupt must not tear two things
apart, no call stands between them.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from fastfetch.config import ConsumerConfig
from fastfetch.engine.arguments import as_offset, as_partition
from fastfetch.engine.client import Engine
from fastfetch.engine.commits import Commit
from fastfetch.engine.pending import Pending
from fastfetch.engine.readahead import Chunk, HandOut
from fastfetch.engine.subscription import Mode, PartitionState
from fastfetch.errors import ClosedError, ConnectionFailedError, FastFetchError, UsageError, WakeupError
from fastfetch.errors import TimeoutError as TimedOut
from fastfetch.net.thread import ClientThread, Waiter, now_ms
from fastfetch.records import Record, RecordBlock
from fastfetch.types import OffsetAndMetadata, TopicPartition

__all__ = [
    "LATE_MS",
    "STEP_MS",
    "Call",
    "CommitCallback",
    "ConsumerCore",
    "Offsets",
    "Peeked",
    "Steps",
    "W",
    "check_limit",
]

log = logging.getLogger("fastfetch.consumer")
# A library is silent until its user sets logging up.
logging.getLogger("fastfetch").addHandler(logging.NullHandler())

T = TypeVar("T")
W = TypeVar("W", bound=Waiter)
Steps = Generator[tuple[W, float], None, T]  # yields a waiter and the seconds to wait for it at most
Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]
CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], Exception | None], object]

# Whoever waits looks again this often even without news; nothing depends on it.
STEP_MS = 60_000
# A waiting poll commits and tells statistics so much later than the next poll would.
LATE_MS = 1_000


class Peeked(NamedTuple):
    """The next records for iteration, not handed out yet; the ticket tells whether they still are the next ones."""

    state: PartitionState
    ticket: int
    chunk: Chunk
    row: int
    part: RecordBlock
    is_whole: bool  # its last record is the last of its block


class ConsumerCore(Generic[W]):
    """The inside of a consumer. `W` is what it waits on."""

    _rival: ClassVar[str]  # who else may be in a call: "thread", "task"
    _in_duty = False  # a listener or an assignor is running

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        self._closed = True  # until there is something to close; __del__ runs also after a failed __init__
        self._pid = os.getpid()
        self.config = ConsumerConfig.from_settings(config, **settings)
        self._owner: dict[str, object] = {}
        self._calling_back = False
        self._wakeup = False
        # Without the callbacks: they may know this object, and what the thread can reach is never collected.
        quiet = replace(self.config, on_stats=None, on_skipped=None)
        self._engine = Engine(
            quiet,
            seed=int.from_bytes(os.urandom(4), "big"),
            wall_ms=lambda: time.time_ns() // 1_000_000,
            member_id=str(uuid.uuid4()),
        )
        self._auto_commit = self.config.enable_auto_commit and self.config.group_id is not None
        # What polls do from time to time, by now_ms(); None: never.
        self._auto_commit_at = now_ms() + self.config.auto_commit_interval_ms if self._auto_commit else None
        self._stats_at = now_ms() + self.config.statistics_interval_ms if self.config.on_stats is not None else None
        self._due_at: int | None = None  # the earlier one
        self._set_due()
        self._client = ClientThread(self._engine, name=f"fastfetch-{self.config.client_id}")
        _CONSUMERS.add(self)
        try:
            self._client.start()
        except BaseException:  # an interrupt: nobody gets this object to close it
            self._client.stop()
            raise
        self._closed = False

    # --- what the two do in their own way -------------------------------------------------------------------------------

    def _caller(self) -> object:
        """Who is calling, to tell two callers apart."""
        raise NotImplementedError

    def _new_waiter(self) -> W:
        raise NotImplementedError

    # --- waiting --------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Raise what ends a waiting call."""
        if self._closed:
            raise ClosedError("the consumer was closed")
        if self._wakeup:
            self._wakeup = False
            raise WakeupError("wakeup() was called")
        if self._client.crash is not None:
            raise FastFetchError(
                f"the background thread has ended by {self._client.crash!r}; close this consumer"
            ) from self._client.crash

    def _until(self, look: Callable[[], T | None], timeout_ms: int | None, what: str) -> Steps[W, T]:
        """Call `look` under the lock, now and with each piece of news, until it returns something."""
        limit = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        deadline = time.monotonic() + limit / 1000
        client = self._client
        with client.lock:
            client.poke()
        while True:
            with client.lock:
                found = look()
                if found is not None:
                    return found
                self._check()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._engine.unreachable() or TimedOut(f"{what}: no answer within {limit} ms; brokers were reachable")
                waiter = self._new_waiter()
                client.add_waiter(waiter)
            yield waiter, min(left, STEP_MS / 1000)

    def _ask(self, start: Callable[[], Pending[T]], timeout_ms: int | None, what: str) -> Steps[W, T]:
        """Put a question to the engine and wait for its answer; withdrawn when the time is up or the wait is interrupted."""
        with self._client.lock:
            pending = start()
        try:
            yield from self._until(lambda: pending.done or None, timeout_ms, what)
        except TimedOut as error:
            raise TimedOut(f"{error}{pending.trouble}") from None
        finally:
            if not pending.done:
                pending.cancel()
        return pending.result()

    # --- records --------------------------------------------------------------------------------------------------------

    def _rows(self, block: RecordBlock) -> list[Any]:
        """What poll() and iteration hand out of a block: one object a record, with its `offset` and `leader_epoch`. Called with
        no lock held, and undone if it raises."""
        return block.records()

    def _block_limit(self, max_records: int | None) -> int | None:
        """Of poll_blocks(): whole blocks unless somebody set a limit."""
        return self.config.max_poll_records if max_records is None and "max_poll_records" in self.config.explicit else max_records

    def _quiet_deadline(self) -> float:
        """When iteration asks whether any broker was ever reached, if nothing comes."""
        return time.monotonic() + self.config.default_api_timeout_ms / 1000

    def _before_poll(self, late_ms: int = 0) -> None:
        """What a poll does before each look. Everything handed out so far is processed now, or the caller would not ask for
        more.

        After a wait it does only what is overdue by LATE_MS, so that a short interval makes no busy loop.
        """
        engine = self._engine
        if engine.subscription.mode is Mode.NONE:
            if self._closed:  # by another thread: that ends the subscription too
                raise ClosedError("the consumer was closed")
            raise UsageError("nothing to read: subscribe() to topics or assign() partitions first")
        if self._due_at is not None and now_ms() >= self._due_at + late_ms:
            self._do_what_is_due()
        if engine.commits.finished_async or engine.skipped:
            self._run_callbacks()

    def _take(self, out: HandOut, limit: int | None, blocks: int | None, deadline: float) -> tuple[W, float] | None:
        """Hand out what is there. Returns what to wait for if nothing is; None when `out` has something or the time is up."""
        engine, client = self._engine, self._client
        with client.lock:
            self._check()
            if engine.membership.is_active:
                if engine.membership.duty(now_ms()) is not None:
                    return self._duty_first(deadline)
                if engine.membership.is_in_doubt(now_ms()):
                    return self._news(deadline)
            engine.take(limit, blocks, out)
            if out.moves:
                if engine.wants_pump:
                    client.poke()
                return None
            return self._news(deadline)

    def _put_back(self, out: HandOut) -> None:
        """The caller does not get it. Not touching the lock for nothing: in a forked child it may be held for ever."""
        if out.moves:
            with self._client.lock:
                self._engine.readahead.undo(out)

    def _peek(self, deadline: float) -> tuple[Peeked | None, tuple[W, float] | None]:
        """The next records for iteration, or what to wait for; neither when the time is up."""
        with self._client.lock:
            self._check()
            if self._engine.membership.is_active:
                if self._engine.membership.duty(now_ms()) is not None:
                    return None, self._duty_first(deadline)
                if self._engine.membership.is_in_doubt(now_ms()):
                    return None, self._news(deadline)
            found = self._engine.readahead.peek(self.config.max_poll_records)
            if found is None:
                if self._engine.wants_pump:  # positions may have moved past batches without records
                    self._client.poke()
                return None, self._news(deadline)
            state, chunk, part = found
            is_whole = chunk.row + len(part) == len(chunk.blocks[0])
            return Peeked(state, state.ticket, chunk, chunk.row, part, is_whole), None

    def _duty_first(self, deadline: float) -> tuple[W, float] | None:
        """The group wants something done before records are handed out: look again at once, unless the time is up."""
        return None if time.monotonic() >= deadline else (self._new_waiter(), 0.0)

    def _news(self, deadline: float) -> tuple[W, float] | None:
        """There are no records. Raises what is wrong with a partition; else what to wait for, or None when the time is up. The
        lock is held by the caller."""
        try:
            self._engine.raise_fault()
        except BaseException:
            self._client.poke()  # the partition is tried again, and nothing else may happen for minutes
            raise
        return self._until_news(deadline)

    def _until_news(self, deadline: float) -> tuple[W, float] | None:
        """The same where nothing is wrong."""
        left = deadline - time.monotonic()
        if left <= 0:
            # A consumer that never reached any broker says so instead of looking idle.
            error: ConnectionFailedError | None = None if self._engine.channels.ever_reached else self._engine.unreachable()
            if error is not None:
                raise error
            return None
        left = min(left, STEP_MS / 1000)
        if self._due_at is not None:
            left = min(left, max(0.0, (self._due_at + LATE_MS - now_ms()) / 1000))
        waiter = self._new_waiter()
        self._client.add_waiter(waiter)
        return waiter, left

    def _step_through(self, peeked: Peeked) -> Iterator[Record]:
        """Hand out peeked records one by one, until one of them is no longer next: sought, paused or unassigned meanwhile."""
        state, ticket, chunk, row, part, is_whole = peeked
        records = self._rows(part)
        if not is_whole:
            return self._engine.readahead.steps(state, ticket, chunk, row, records)
        last = records.pop()
        steps = self._engine.readahead.steps(state, ticket, chunk, row, records)
        return itertools.chain(steps, self._step_last(state, ticket, chunk, row + len(records), last))

    def _step_last(self, state: PartitionState, ticket: int, chunk: Chunk, row: int, record: Record) -> Iterator[Record]:
        out = HandOut()
        try:
            with self._client.lock:
                is_ahead = state.position is not None and record.offset >= state.position
                is_next = is_ahead and self._engine.readahead.step_last(state, ticket, chunk, row, out)
                if self._engine.wants_pump:
                    self._client.poke()
        except BaseException:
            self._put_back(out)
            raise
        if is_next:
            yield record

    # --- what polls do besides ------------------------------------------------------------------------------------------

    def _do_what_is_due(self) -> None:
        now, metrics = now_ms(), None
        if self._auto_commit_at is not None and now >= self._auto_commit_at:
            self._auto_commit_at = now + self.config.auto_commit_interval_ms
            with self._client.lock:
                offsets = self._uncommitted()
                # While the group rebalances nothing is sent; what is still ours afterwards is committed the next time.
                if offsets and (not self._engine.membership.is_active or self._engine.membership.credentials() is not None):
                    deadline = now + self.config.default_api_timeout_ms
                    self._client.poke()
                    self._engine.commit(offsets, deadline, is_async=True, automatic=True).callback = self._auto_commit_done
        if self._stats_at is not None and now >= self._stats_at:
            self._stats_at = now + self.config.statistics_interval_ms
            with self._client.lock:
                metrics = self._engine.metrics(now)
        self._set_due()
        if metrics is not None and self.config.on_stats is not None:
            self._call_back(self.config.on_stats, metrics)

    def _set_due(self) -> None:
        self._due_at = min((at for at in (self._auto_commit_at, self._stats_at) if at is not None), default=None)

    def _run_callbacks(self) -> None:
        """Tell the callers of commit_async, and of batches that were skipped, with no lock held."""
        for commit in drained(self._engine.commits.finished_async):
            if callable(commit.callback):
                error: Exception | None = None
                try:
                    commit.pending.result()
                except FastFetchError as failure:
                    error = failure
                self._call_back(commit.callback, commit.offsets, error)
        for corrupt in drained(self._engine.skipped):
            if self.config.on_skipped is not None:
                self._call_back(self.config.on_skipped, corrupt)

    def _call_back(self, function: Callable[..., object], *arguments: object) -> None:
        before, self._calling_back = self._calling_back, True  # its calls of this consumer are part of the present one
        try:
            function(*arguments)
        finally:
            self._calling_back = before

    # --- commits --------------------------------------------------------------------------------------------------------

    def _auto_commit_done(self, offsets: dict[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
        """Called in a later poll, commit or close, with the lock not held."""
        if error is not None:
            log.warning("automatic commit of %d offsets failed: %s", len(offsets), error)

    def _need_group(self, what: str) -> None:
        if self.config.group_id is None:
            raise UsageError(f"{what}: offsets are committed for a group; make the consumer with a group_id")

    def _uncommitted(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Positions that the coordinator has not acknowledged yet."""
        done = self._engine.commits.committed
        return {tp: at for tp, at in self._engine.subscription.positions().items() if done.get(tp) != at}

    def _start_commit(
        self, what: str, offsets: Offsets | None, timeout_ms: int | None, callback: CommitCallback | None, *, is_async: bool
    ) -> Commit:
        self._need_group(what)
        given = None if offsets is None else {as_partition(tp, what): as_offset(tp, at, what) for tp, at in offsets.items()}
        limit = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        if not is_async:
            limit += STEP_MS  # whoever waits gives up first, with a TimeoutError, and that withdraws it
        with self._client.lock:
            # A snapshot: what later polls hand out is not in it.
            chosen = self._engine.subscription.positions() if given is None else given
            self._client.poke()
            commit = self._engine.commit(chosen, now_ms() + limit, is_async=is_async)
            commit.callback = callback
        return commit


class Call:
    """A public call: refuses a closed consumer, a forked child and a second caller. Calls of one caller may nest (callbacks)."""

    __slots__ = ("_consumer", "_what")

    def __init__(self, consumer: ConsumerCore[Any], what: str) -> None:
        self._consumer = consumer
        self._what = what

    def __enter__(self) -> None:
        consumer = self._consumer
        if consumer._closed:
            raise ClosedError(f"{self._what}: the consumer was closed")
        if os.getpid() != consumer._pid:
            raise UsageError(f"{self._what}: this consumer belongs to the process before the fork; make a new one in the child")
        me = consumer._caller()
        if consumer._owner.setdefault("caller", me) != me:  # one step under the GIL: two threads can't both get it
            raise UsageError(
                f"{self._what}: another {consumer._rival} is in a call of this consumer; only wakeup() and close() may be called "
                "meanwhile"
            )

    def __exit__(self, *error: object) -> None:
        if not self._consumer._calling_back:
            self._consumer._owner.clear()


def drained(queue: deque[T]) -> Iterator[T]:
    """What is in it, one by one. Another thread, which closes the consumer, may do the same."""
    while True:
        try:
            item = queue.popleft()
        except IndexError:
            return
        yield item


def check_limit(what: str, limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise UsageError(f"{what}: max_records must be 1 or more, not {limit}")


# A loop over records makes no call that could find out about a fork: what it has peeked is no longer next in the child.
_CONSUMERS: weakref.WeakSet[ConsumerCore[Any]] = weakref.WeakSet()


def _forget_peeked_records() -> None:
    for consumer in _CONSUMERS:
        for state in consumer._engine.subscription:
            state.ticket += 1


os.register_at_fork(after_in_child=_forget_peeked_records)
