"""The consumer: Kafka's calls over the engine and its thread.

One thread uses a consumer at a time; a second one gets a UsageError at once, except for `wakeup` and `close`. Every call returns
by its timeout, and Ctrl-C ends a waiting one. Records leave this object in three ways (poll, poll_blocks, iteration), and a
position moves with them, never before.

Here is what waits; the rest is in `calls` and `core`, which `aio` shares.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self, TypeVar

from fastfetch.calls import BaseConsumer
from fastfetch.core import LATE_MS, STEP_MS, Offsets, Peeked, Steps, check_limit
from fastfetch.duties import Polling
from fastfetch.engine.arguments import Partitions
from fastfetch.engine.readahead import HandOut
from fastfetch.engine.stored import Stored
from fastfetch.engine.subscription import EARLIEST, LATEST
from fastfetch.records import Record, RecordBlock
from fastfetch.types import OffsetAndTimestamp, TopicPartition

__all__ = ["Consumer"]

T = TypeVar("T")


class Consumer(BaseConsumer[threading.Lock]):
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

    _rival = "thread"
    _caller = staticmethod(threading.get_ident)

    # --- records --------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> dict[TopicPartition, list[Record]]:
        """Records by partition, at most `max_records` (default: the setting max_poll_records) in all.

        Waits up to `timeout_ms` for the first; returns earlier, and may return nothing, when a position moved past batches
        without records. Raises what is wrong with a partition (CorruptBatchError and other FastFetchErrors) once nothing else is
        there to deliver; WakeupError; ConnectionFailedError if no broker has ever answered. What a callback raises comes out of
        here too; no record is lost by it.
        """
        limit = self.config.max_poll_records if max_records is None else max_records
        out = self._hand_out("poll", timeout_ms, limit, None, as_records=True)
        return out.by_partition

    def poll_blocks(self, timeout_ms: int = 0, max_records: int | None = None) -> list[RecordBlock]:
        """Blocks of columns. Without `max_records`, and unless max_poll_records was set, whole blocks: one response's worth of
        each partition that has some. Everything else is as in poll()."""
        out = self._hand_out("poll_blocks", timeout_ms, self._block_limit(max_records), None, as_records=False)
        return out.blocks

    def blocks(self, timeout_ms: int | None = None) -> Iterator[RecordBlock]:
        """Blocks one by one, for ever; or, with a timeout, until none came for so long. A position moves as its block is
        yielded."""
        quiet_since = time.monotonic()
        while True:
            wait = STEP_MS if timeout_ms is None else timeout_ms - int((time.monotonic() - quiet_since) * 1000)
            out = self._hand_out("blocks", wait, None, 1, as_records=False)
            if out.blocks:
                yield out.blocks[0]
                quiet_since = time.monotonic()
            elif timeout_ms is not None and not out.progressed and wait <= 0:
                return

    def __iter__(self) -> Iterator[Record]:
        """Records one by one, for ever. The position is that of the record after the one yielded last."""
        return itertools.chain.from_iterable(map(self._step_through, self._peeked()))

    def _hand_out(self, what: str, timeout_ms: int, limit: int | None, blocks: int | None, *, as_records: bool) -> HandOut:
        check_limit(what, limit)
        out = HandOut()
        # Whatever interrupts us before the caller has the list in hand, Ctrl-C above all, puts the records back. After the last
        # call in here CPython runs no signal handler before the caller's assignment is reached.
        try:
            with Polling(self, what):
                deadline = time.monotonic() + timeout_ms / 1000 if timeout_ms > 0 else 0.0
                self._before_poll()
                self._for_the_group(deadline)
                while (news := self._take(out, limit, blocks, deadline)) is not None:
                    self._wait(*news)
                    self._before_poll(LATE_MS)
                    self._for_the_group(deadline)
                if as_records:
                    out.make_rows(self._rows)
            return out  # noqa: TRY300 - see above
        except BaseException:
            self._put_back(out)
            raise

    def _peeked(self, timeout_ms: float | None = None) -> Iterator[Peeked]:
        """What comes next, again and again, for ever; or, with a timeout, until nothing came for so long."""
        while True:
            with Polling(self, "iteration"):
                deadline = self._quiet_deadline() if timeout_ms is None else time.monotonic() + timeout_ms / 1000
                self._before_poll()
                self._for_the_group(deadline)
                found, news = self._peek(deadline)
                while news is not None:
                    self._wait(*news)
                    self._before_poll(LATE_MS)
                    self._for_the_group(deadline)
                    found, news = self._peek(deadline)
            if found is not None:
                yield found
            elif timeout_ms is not None:
                return

    def _nothing_subscribed(self) -> None:
        self.unsubscribe()

    def _for_the_group(self, deadline: float) -> None:
        if self._engine.membership.is_active:
            self._run(self._duties(deadline))

    # --- calls that wait ------------------------------------------------------------------------------------------------

    def unsubscribe(self) -> None:
        """Read nothing any more. A member of a group commits (with enable_auto_commit), hears of it through its listener, and
        leaves; what the listener raises is raised here, afterwards."""
        self._run(self._unsubscribe())

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The next offset that will be delivered. Waits while it is being looked up. Raises TimeoutError, or what the look-up
        met."""
        return self._run(self._position(partition, timeout_ms))

    def commit(self, offsets: Offsets | None = None, timeout_ms: int | None = None) -> None:
        """Store the next offsets to read: the positions, or the given ones unchanged. Returns when the coordinator has stored
        them.

        Raises CommitFailedError if it refused, naming partitions and reasons; TimeoutError; UsageError without a group_id.
        """
        self._run(self._commit(offsets, timeout_ms))

    def committed(self, partitions: Partitions | None = None, timeout_ms: int | None = None) -> Stored:
        """What the group has committed, None where nothing is; without `partitions`, all its commits. A failed look-up raises;
        it is never "nothing"."""
        return self._run(self._committed(partitions, timeout_ms))

    def beginning_offsets(self, partitions: Partitions, timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._run(self._ends("beginning_offsets", partitions, EARLIEST, timeout_ms))

    def end_offsets(self, partitions: Partitions, timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        """The offset after the last readable record of each partition: high watermark, or last stable offset with
        read_committed."""
        return self._run(self._ends("end_offsets", partitions, LATEST, timeout_ms))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset whose timestamp is not below the given one (ms since 1970); None where there is no such record."""
        return self._run(self._offsets_for_times(timestamps, timeout_ms))

    def partitions_for(self, topic: str, timeout_ms: int | None = None) -> set[int]:
        """Numbers of a topic's partitions. Raises UnknownTopicError if brokers don't know it."""
        return self._run(self._partitions_for(topic, timeout_ms))

    def topics(self, timeout_ms: int | None = None) -> set[str]:
        """Names of all topics this client may see, without Kafka's internal ones."""
        return self._run(self._topics(timeout_ms))

    def list_topics(self, timeout_ms: int | None = None) -> dict[str, set[int]]:
        """The same topics with the numbers of their partitions, in one question to a broker."""
        return self._run(self._list_topics(timeout_ms))

    def close(self, timeout_ms: int | None = None, *, autocommit: bool = True) -> None:
        """Commit positions if enable_auto_commit says so, close all connections, end the background thread. Any thread may call
        it, and a signal handler.

        A failed commit is logged, not raised: a consumer that was closed is closed. All that was handed out counts as processed;
        where another thread may still be at it, close with autocommit=False.
        """
        self._run(self._close(timeout_ms, autocommit=autocommit))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._run(self._close_after(error))

    # --- waiting --------------------------------------------------------------------------------------------------------

    def _new_waiter(self) -> threading.Lock:
        lock = threading.Lock()
        lock.acquire()
        return lock

    def _wait(self, waiter: threading.Lock, seconds: float) -> None:
        if not waiter.acquire(True, seconds):
            with self._client.lock:
                self._client.forget(waiter)

    def _run(self, steps: Steps[threading.Lock, T]) -> T:
        try:
            while True:
                self._wait(*next(steps))
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            steps.close()  # an interrupt's traceback would keep it from ending
