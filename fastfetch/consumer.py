"""The consumer: Kafka's calls over the engine and its thread.

One thread uses a consumer at a time; a second one gets a UsageError at once, except for `wakeup` and `close`. Every call returns
by its timeout, and Ctrl-C ends a waiting one. Records leave this object in three ways (poll, poll_blocks, iteration), and a
position moves with them, never before.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from fastfetch.config import ConsumerConfig
from fastfetch.engine.arguments import Partitions, as_integer, as_offset, as_partition, as_partitions, flattened
from fastfetch.engine.client import Engine
from fastfetch.engine.commits import Commit, Stored
from fastfetch.engine.pending import Pending
from fastfetch.engine.readahead import HandOut
from fastfetch.engine.subscription import EARLIEST, LATEST, Mode
from fastfetch.errors import ClosedError, ConnectionFailedError, FastFetchError, UsageError, WakeupError
from fastfetch.errors import TimeoutError as TimedOut
from fastfetch.net.thread import ClientThread, now_ms
from fastfetch.records import Record, RecordBlock
from fastfetch.types import OffsetAndMetadata, OffsetAndTimestamp, RebalanceListener, TopicPartition

__all__ = ["Consumer"]

log = logging.getLogger("fastfetch.consumer")
# A library is silent until its user sets logging up.
logging.getLogger("fastfetch").addHandler(logging.NullHandler())

T = TypeVar("T")
Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]
CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], Exception | None], object]

# An iterator looks again this often even without news; nothing depends on it.
STEP_MS = 60_000
CLOSE_MS = 30_000


class Consumer:
    """Reads partitions of Kafka topics.

        with Consumer(bootstrap_servers="127.0.0.1:9092", group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            for block in consumer.blocks():
                ...
                consumer.commit()

    Settings are keywords, or a mapping with Kafka's dotted names; see `fastfetch.config`. Raises ConfigError. Brokers are
    contacted in the background from here on: an address that nobody answers at is reported by the first call that needs an
    answer.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        self._closed = True  # until there is something to close; __del__ runs also after a failed __init__
        self.config = ConsumerConfig.from_settings(config, **settings)
        self._pid = os.getpid()
        self._owner: dict[str, int] = {}
        self._calling_back = False
        self._wakeup = False
        self._engine = Engine(self.config, seed=int.from_bytes(os.urandom(4), "big"))
        self._client = ClientThread(self._engine, name=f"fastfetch-{self.config.client_id}")
        self._auto_commit = self.config.enable_auto_commit and self.config.group_id is not None
        self._auto_commit_at = now_ms() + self.config.auto_commit_interval_ms
        self._auto_committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._closed = False

    # --- choosing partitions --------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; those assigned before keep their position. An empty list ends it.

        With a group_id a new partition starts at its committed offset, else where auto_offset_reset says. Raises UsageError after
        subscribe().
        """
        wanted = as_partitions(partitions, "assign")
        with self._call("assign"), self._client.lock:
            self._engine.assign(wanted)
            self._client.poke()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read."""
        with self._call("assignment"), self._client.lock:
            return self._engine.subscription.partitions()

    def subscribe(
        self, topics: Iterable[str] = (), *, pattern: str | None = None, listener: RebalanceListener | None = None
    ) -> None:
        """Not in this version: sharing topics within a group needs membership. Raises UsageError; use assign()."""
        names = [topics] if isinstance(topics, str) else list(topics)
        if names and pattern is not None:
            raise UsageError("subscribe: give topics or a pattern, not both")
        with self._call("subscribe"), self._client.lock:
            if not names and pattern is None:
                self._engine.unsubscribe()
                self._client.poke()
                return
            self._engine.subscription.check_mode(Mode.TOPICS if names else Mode.PATTERN)
        raise UsageError(
            "subscribe: group membership is not in this version of fastfetch; use assign() with the partitions of "
            "partitions_for(topic). Commits work with a group_id all the same"
        )

    def subscription(self) -> set[str]:
        """The subscribed topics."""
        with self._call("subscription"), self._client.lock:
            return set(self._engine.subscription.topics)

    def unsubscribe(self) -> None:
        """Read nothing any more."""
        with self._call("unsubscribe"), self._client.lock:
            self._engine.unsubscribe()
            self._client.poke()

    def pause(self, *partitions: Partitions) -> None:
        """Deliver nothing of these partitions until resume(). What is buffered stays. Raises UsageError, changing nothing, if
        one is not assigned."""
        wanted = flattened(partitions, "pause")
        with self._call("pause"), self._client.lock:
            self._engine.pause(wanted)

    def resume(self, *partitions: Partitions) -> None:
        """Go on with paused partitions, at the record after the last delivered one."""
        wanted = flattened(partitions, "resume")
        with self._call("resume"), self._client.lock:
            self._engine.resume(wanted)
            self._client.poke()

    def paused(self) -> set[TopicPartition]:
        """The assigned partitions that are paused."""
        with self._call("paused"), self._client.lock:
            return {state.tp for state in self._engine.subscription if state.paused}

    # --- records --------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> dict[TopicPartition, list[Record]]:
        """Records by partition, at most `max_records` (default: the setting max_poll_records) in all.

        Waits up to `timeout_ms` for the first; returns earlier, and may return nothing, when a position moved past batches
        without records. Raises what is wrong with a partition (CorruptBatchError and other FastFetchErrors) once nothing else is
        there to deliver; WakeupError; ConnectionFailedError if no broker has ever answered.
        """
        limit = self.config.max_poll_records if max_records is None else max_records
        out = self._hand_out("poll", timeout_ms, limit, None, as_records=True)
        return out.by_partition

    def poll_blocks(self, timeout_ms: int = 0, max_records: int | None = None) -> list[RecordBlock]:
        """Blocks of columns. Without `max_records`, and unless max_poll_records was set, whole blocks: one response's worth of
        each partition that has some. Everything else is as in poll()."""
        if max_records is None and "max_poll_records" in self.config.explicit:
            max_records = self.config.max_poll_records
        out = self._hand_out("poll_blocks", timeout_ms, max_records, None, as_records=False)
        return out.blocks

    def blocks(self, timeout_ms: int | None = None) -> Iterator[RecordBlock]:
        """Blocks one by one, for ever; or, with a timeout, until none came for so long. A position moves as its block is
        yielded."""
        quiet_since = time.monotonic()
        while True:
            wait = STEP_MS if timeout_ms is None else timeout_ms - int((time.monotonic() - quiet_since) * 1000)
            out = self._hand_out("blocks", max(0, wait), None, 1, as_records=False)
            if out.blocks:
                yield out.blocks[0]
                quiet_since = time.monotonic()
            elif timeout_ms is not None and not out.progressed and wait <= 0:
                return

    def __iter__(self) -> Iterator[Record]:
        """Records one by one, for ever. The position is that of the record after the one yielded last."""
        step, step_last = self._engine.readahead.step, self._engine.readahead.step_last
        while True:
            found = self._peek()
            if found is None:
                continue
            state, ticket, chunk, row, records, is_whole = found
            last = len(records) - 1
            for index, record in enumerate(records):
                if index == last and is_whole:
                    with self._client.lock:
                        delivered = step_last(state, ticket, chunk, row)
                        if self._engine.wants_pump:
                            self._client.poke()
                else:
                    delivered = step(state, ticket, chunk, row, record.offset, record.leader_epoch)
                    row += 1
                if not delivered:
                    break  # sought, paused or unassigned in the loop's body
                yield record

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Deliver `offset` next. It is not looked up: one that doesn't exist is dealt with by auto_offset_reset when it is
        fetched."""
        [tp] = as_partitions(partition, "seek")
        where = as_offset(tp, offset, "seek")
        with self._call("seek"), self._client.lock:
            self._engine.seek(tp, where.offset, where.leader_epoch)
            self._client.poke()

    def seek_to_beginning(self, *partitions: Partitions) -> None:
        """Go to the first offset of these partitions (of all, if none is named); it is looked up in the background."""
        self._seek_to("seek_to_beginning", partitions, EARLIEST)

    def seek_to_end(self, *partitions: Partitions) -> None:
        """Go to the end: the next record produced, or with read_committed the first one that is not stable yet."""
        self._seek_to("seek_to_end", partitions, LATEST)

    def _seek_to(self, what: str, partitions: tuple[Partitions, ...], where: int) -> None:
        wanted = flattened(partitions, what)
        with self._call(what), self._client.lock:
            self._engine.seek_to(wanted or self._engine.subscription.partitions(), where, what)
            self._client.poke()

    def skip(self, partition: TopicPartition) -> int:
        """Go past a bad batch that poll() raised, to the next offset that can be trusted, which is returned. UsageError if none
        can."""
        [tp] = as_partitions(partition, "skip")
        with self._call("skip"), self._client.lock:
            self._client.poke()
            return self._engine.skip(tp)

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The next offset that will be delivered. Waits while it is being looked up. Raises TimeoutError, or what the look-up
        met."""
        [tp] = as_partitions(partition, "position")

        def found() -> int | None:
            state = self._engine.subscription.get(tp, "position")
            if state.position is None and state.error is not None:
                error = state.error
                if not state.error_is_sticky:
                    state.error = None
                raise error
            return state.position

        with self._call("position"):
            return self._wait_for(found, timeout_ms, f"the position of {tp}")

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Records between the position and the end as of the last fetch; None where either is not known yet."""
        [tp] = as_partitions(partition, "current_lag")
        with self._call("current_lag"), self._client.lock:
            return self._engine.lag(tp)

    # --- committed offsets ----------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets | None = None, timeout_ms: int | None = None) -> None:
        """Store the next offsets to read: the positions, or the given ones unchanged. Returns when the coordinator has stored
        them.

        Raises CommitFailedError if it refused, naming partitions and reasons; TimeoutError; UsageError without a group_id.
        """
        with self._call("commit"):
            commit = self._start_commit("commit", offsets, timeout_ms, None, is_async=False)
            try:
                self._ask(lambda: commit.pending, timeout_ms, f"the commit of {len(commit.offsets)} offsets")
            finally:
                self._run_callbacks()

    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """Start a commit of the positions as they are now. Commits keep their order; `callback(offsets, error)` is called, in
        that order, by a later poll, commit or close."""
        with self._call("commit_async"):
            self._start_commit("commit_async", offsets, None, callback, is_async=True)

    def committed(self, partitions: Partitions | None = None, timeout_ms: int | None = None) -> Stored:
        """The group's commits, None where there is none; without partitions, all of them. A failed look-up raises, always."""
        wanted = None if partitions is None else as_partitions(partitions, "committed")
        self._need_group("committed")
        with self._call("committed"):
            return self._ask(lambda: self._engine.read_committed_offsets(wanted), timeout_ms, "the committed offsets")

    # --- questions ------------------------------------------------------------------------------------------------------

    def beginning_offsets(self, partitions: Partitions, timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._offsets_at("beginning_offsets", partitions, EARLIEST, timeout_ms)

    def end_offsets(self, partitions: Partitions, timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        """The offset after the last readable record of each partition: high watermark, or last stable offset with
        read_committed."""
        return self._offsets_at("end_offsets", partitions, LATEST, timeout_ms)

    def _offsets_at(self, what: str, partitions: Partitions, timestamp: int, timeout_ms: int | None) -> dict[TopicPartition, int]:
        wanted = as_partitions(partitions, what)
        with self._call(what):
            found = self._ask(
                lambda: self._engine.offsets_at(dict.fromkeys(wanted, timestamp)), timeout_ms, what.replace("_", " ")
            )
        return {tp: at.offset for tp in wanted if (at := found[tp]) is not None}

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset whose timestamp is not below the given one (ms since 1970); None where there is no such record."""
        wanted: dict[TopicPartition, int] = {}
        for tp, timestamp in timestamps.items():
            when = as_integer(timestamp, 2**63)
            if when is None:
                raise UsageError(f"offsets_for_times: the timestamp of {tp} must be milliseconds since 1970, not {timestamp!r}")
            wanted[as_partition(tp, "offsets_for_times")] = when
        with self._call("offsets_for_times"):
            found = self._ask(lambda: self._engine.offsets_at(wanted), timeout_ms, "offsets for times")
        return {tp: found[tp] for tp in wanted}

    def partitions_for(self, topic: str, timeout_ms: int | None = None) -> set[int]:
        """Numbers of a topic's partitions. Raises UnknownTopicError if brokers don't know it."""
        with self._call("partitions_for"):
            found = self._ask(lambda: self._engine.ask_topic(topic), timeout_ms, f"the partitions of topic {topic!r}")
            return set(found.partitions)

    def topics(self, timeout_ms: int | None = None) -> set[str]:
        """Names of all topics this client may see, without Kafka's internal ones."""
        with self._call("topics"):
            return self._ask(self._engine.list_topics, timeout_ms, "the list of topics")

    def metrics(self) -> dict[str, Any]:
        """Counters since the consumer was made, present sizes in bytes, and lag by partition."""
        with self._call("metrics"), self._client.lock:
            return self._engine.metrics()

    # --- ending ---------------------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Make the call that waits now, or the next one that would, raise WakeupError. For other threads and signal handlers."""
        self._wakeup = True
        # Not under the lock: a signal handler may have interrupted the thread that holds it.
        self._client.wake_waiters()

    def close(self, timeout_ms: int | None = None, *, autocommit: bool = True) -> None:
        """Commit positions if enable_auto_commit says so, close all connections, end the background thread. Any thread may call
        it.

        A failed commit is logged, not raised: a consumer that was closed is closed.
        """
        if self._closed or os.getpid() != self._pid:
            self._closed = True
            return
        limit = min(CLOSE_MS, self.config.default_api_timeout_ms) if timeout_ms is None else timeout_ms
        deadline = time.monotonic() + limit / 1000
        self._closed = True  # from here on other calls raise, those that wait included
        try:
            if self._client.is_alive:
                self._last_commits(limit, commit_positions=autocommit and self._auto_commit)
                self._run_callbacks()
        finally:
            self._client.stop()
            self._client.wake_waiters()
            if not self._client.join(max(0.1, deadline - time.monotonic())):
                log.warning("the background thread did not end within %d ms; it ends by itself", limit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # What an exception interrupted was perhaps not processed: committing it would lose it.
        self.close(autocommit=error is None)

    def __del__(self) -> None:
        if not self._closed:
            self._closed = True
            self._client.stop()
            warnings.warn(f"unclosed {self!r}; use a with block, or close()", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self.config.bootstrap_servers)
        group = "" if self.config.group_id is None else f" group_id={self.config.group_id!r}"
        return f"<fastfetch.Consumer {servers}{group}{' closed' if self._closed else ''}>"

    # --- inside: one thread at a time -----------------------------------------------------------------------------------

    def _call(self, what: str) -> _Call:
        return _Call(self, what)

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

    # --- inside: waiting ------------------------------------------------------------------------------------------------

    def _wait_for(self, look: Callable[[], T | None], timeout_ms: int | None, what: str) -> T:
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
                waiter = client.waiter()
            if not waiter.acquire(True, min(left, STEP_MS / 1000)):
                with client.lock:
                    client.forget(waiter)

    def _ask(self, start: Callable[[], Pending[T]], timeout_ms: int | None, what: str) -> T:
        """Put a question to the engine and wait for its answer; withdrawn when the time is up or the wait is interrupted."""
        with self._client.lock:
            pending = start()
        try:
            self._wait_for(lambda: pending.done or None, timeout_ms, what)
        except TimedOut as error:
            raise TimedOut(f"{error}{pending.trouble}") from None
        finally:
            if not pending.done:
                pending.cancel()
        return pending.result()

    # --- inside: records ------------------------------------------------------------------------------------------------

    def _hand_out(self, what: str, timeout_ms: int, limit: int | None, blocks: int | None, *, as_records: bool) -> HandOut:
        if limit is not None and limit < 1:
            raise UsageError(f"{what}: max_records must be 1 or more, not {limit}")
        engine, client = self._engine, self._client
        out = HandOut()
        # Whatever interrupts us before the caller has the list in hand, Ctrl-C above all, puts the records back. After the last
        # call in here CPython runs no signal handler before the caller's assignment is reached.
        try:
            with self._call(what):
                self._before_poll()
                deadline = time.monotonic() + timeout_ms / 1000 if timeout_ms > 0 else 0.0
                while True:
                    with client.lock:
                        self._check()
                        engine.take(limit, blocks, out)
                        if out.moves:
                            if engine.wants_pump:
                                client.poke()
                            break
                        engine.raise_fault()
                        left = deadline - time.monotonic() if timeout_ms > 0 else 0.0
                        if left <= 0:
                            self._nothing_came()
                            break
                        waiter = client.waiter()
                    if not waiter.acquire(True, left):
                        with client.lock:
                            client.forget(waiter)
                if as_records:
                    out.make_records()
            return out  # noqa: TRY300 - see above
        except BaseException:
            with client.lock:
                engine.readahead.undo(out)
            raise

    def _peek(self) -> Any:
        """The next records for iteration: (state, ticket, chunk, row, records, up to the end of a block?), or None after a
        while."""
        client, engine = self._client, self._engine
        with self._call("iteration"):
            self._before_poll()
            with client.lock:
                self._check()
                found = engine.readahead.peek(self.config.max_poll_records)
                if found is not None:
                    state, chunk, part = found
                    is_whole = chunk.row + len(part) == len(chunk.blocks[0])
                    return state, state.ticket, chunk, chunk.row, part.records(), is_whole
                engine.raise_fault()
                waiter = client.waiter()
            if not waiter.acquire(True, self.config.default_api_timeout_ms / 1000):
                with client.lock:
                    client.forget(waiter)
                    self._nothing_came()
        return None

    def _before_poll(self) -> None:
        """What a poll does first. Everything handed out so far is processed now, or the caller would not ask for more."""
        if self._engine.subscription.mode is not Mode.ASSIGNED:
            raise UsageError("nothing to read: assign() partitions first")
        if self._auto_commit and now_ms() >= self._auto_commit_at:
            self._auto_commit_at = now_ms() + self.config.auto_commit_interval_ms
            with self._client.lock:
                offsets = self._uncommitted()
                if offsets:
                    deadline = now_ms() + self.config.default_api_timeout_ms
                    self._engine.commit(offsets, deadline, is_async=True).callback = _log_failure
                    self._client.poke()
        if self._engine.commits.finished_async:
            self._run_callbacks()

    def _nothing_came(self) -> None:
        """The time is up. A consumer that never reached any broker says so instead of looking idle."""
        if not self._engine.channels.ever_reached:
            error: ConnectionFailedError | None = self._engine.unreachable()
            if error is not None:
                raise error

    # --- inside: commits ------------------------------------------------------------------------------------------------

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
            commit = self._engine.commit(chosen, now_ms() + limit, is_async=is_async)
            commit.callback = callback
            self._client.poke()
        return commit

    def _run_callbacks(self) -> None:
        """Tell the callers of commit_async, with no lock held."""
        finished = self._engine.commits.finished_async
        self._calling_back = True  # its calls of this consumer are part of the present one
        try:
            while finished:
                commit = finished.popleft()
                if callable(commit.callback):
                    error: Exception | None = None
                    try:
                        commit.pending.result()
                    except FastFetchError as failure:
                        error = failure
                    commit.callback(commit.offsets, error)
        finally:
            self._calling_back = False

    def _last_commits(self, limit_ms: int, *, commit_positions: bool) -> None:
        """On closing: what is still under way, and the positions. Never raises; bounded by the limit."""
        client, engine = self._client, self._engine
        deadline = time.monotonic() + limit_ms / 1000
        with client.lock:
            if commit_positions:
                offsets = self._uncommitted()
                if offsets:
                    engine.commit(offsets, now_ms() + limit_ms, is_async=True).callback = _log_failure
            client.poke()
        while client.is_alive:
            with client.lock:
                left = deadline - time.monotonic()
                if not engine.commits.is_busy or left <= 0:
                    return
                waiter = client.waiter()
            waiter.acquire(True, left)


class _Call:
    """A public call: refuses a closed consumer, a forked child and a second thread. Calls of one thread may nest (callbacks)."""

    __slots__ = ("_consumer", "_what")

    def __init__(self, consumer: Consumer, what: str) -> None:
        self._consumer = consumer
        self._what = what

    def __enter__(self) -> None:
        consumer, me = self._consumer, threading.get_ident()
        if consumer._closed:
            raise ClosedError(f"{self._what}: the consumer was closed")
        if os.getpid() != consumer._pid:
            raise UsageError(f"{self._what}: this consumer belongs to the process before the fork; make a new one in the child")
        if consumer._owner.setdefault("thread", me) != me:  # one step under the GIL: two threads can't both get it
            raise UsageError(
                f"{self._what}: another thread is in a call of this consumer; only wakeup() and close() may be called meanwhile"
            )

    def __exit__(self, *error: object) -> None:
        if not self._consumer._calling_back:
            self._consumer._owner.clear()


def _log_failure(offsets: dict[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
    if error is not None:
        log.warning("automatic commit of %d offsets failed: %s", len(offsets), error)
