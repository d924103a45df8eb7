"""The calls that Consumer and AsyncConsumer share: whole where they don't wait, as `Steps` where they do (see `core`).

The background thread is poked before something is changed: it looks once the lock is free, also if an interrupt ended the call
halfway.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
import time
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from fastfetch.core import STEP_MS, Call, CommitCallback, Offsets, Steps, W
from fastfetch.duties import DutifulCore, refuse_in_duty
from fastfetch.engine.arguments import Partitions, as_integer, as_offset, as_partition, as_partitions, as_text, flattened
from fastfetch.engine.stored import Stored
from fastfetch.engine.subscription import EARLIEST, LATEST
from fastfetch.errors import FastFetchError, UsageError
from fastfetch.net.thread import now_ms
from fastfetch.types import GroupMetadata, OffsetAndMetadata, OffsetAndTimestamp, RebalanceListener, TopicPartition

__all__ = ["BaseConsumer"]

log = logging.getLogger("fastfetch.consumer")

CLOSE_MS = 30_000
# Of a close on the way out with an interrupt or a cancellation: nobody wants to wait then.
HASTY_CLOSE_MS = 100


class BaseConsumer(DutifulCore[W]):
    """See Consumer and AsyncConsumer."""

    _subscribes_alone = False  # True: subscribe() without a group reads all partitions, as other clients' consumers do

    # --- choosing partitions --------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; those assigned before keep their position. An empty list ends it.

        With a group_id a new partition starts at its committed offset, else where auto_offset_reset says. Raises UsageError after
        subscribe().
        """
        wanted = as_partitions(partitions, "assign")
        with Call(self, "assign"), self._client.lock:
            self._client.poke()
            self._engine.assign(wanted)

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read."""
        with Call(self, "assignment"), self._client.lock:
            return self._engine.subscription.partitions()

    def subscribe(
        self, topics: str | Iterable[str] = (), *, pattern: str | None = None, listener: RebalanceListener | None = None
    ) -> None:
        """Share the partitions of these topics, or of those whose name matches a pattern, with the other members of group_id.

        topics      the whole subscription from now on, not an addition. None at all is the same as unsubscribe()
        pattern     a regular expression for the whole name; topics made later count, too. group_protocol="consumer" leaves it to
                    the broker, whose syntax is RE2
        listener    hears of partitions coming and going, from within poll() and close(); see RebalanceListener

        The next poll joins the group. Where a group has stored no offset, reading starts where auto_offset_reset says. Raises
        UsageError without a group_id, and after assign() or another kind of subscribe() without unsubscribe() between them.
        """
        names = [topics] if isinstance(topics, str) else list(topics)
        if any(not isinstance(name, str) or not name for name in names):
            raise UsageError(f"subscribe: give the names of topics, not {names!r}")
        for name in names:
            as_text(name, "subscribe: a topic's name")
        if pattern is not None and names:
            raise UsageError("subscribe: give topics or a pattern, not both")
        if pattern is None and not names:
            self._nothing_subscribed()
            return
        if pattern is not None:
            self._check_pattern(pattern)
        if self.config.group_id is None and not self._subscribes_alone:
            raise UsageError(
                "subscribe: partitions are shared within a group; make the consumer with a group_id, or use assign()"
            )
        with Call(self, "subscribe"), self._client.lock:
            self._client.poke()
            self._engine.subscribe(names, pattern, now_ms())
            self._listener = listener

    def _check_pattern(self, pattern: str) -> None:
        as_text(pattern, "subscribe: a pattern")
        if self.config.group_protocol == "classic":
            try:
                re.compile(pattern)
            except re.error as error:
                raise UsageError(f"subscribe: {pattern!r} is no regular expression: {error}") from None

    def _nothing_subscribed(self) -> None:
        """subscribe() without topics."""
        raise NotImplementedError

    def subscription(self) -> set[str]:
        """The subscribed topics."""
        with Call(self, "subscription"), self._client.lock:
            return set(self._engine.subscription.topics)

    def enforce_rebalance(self, reason: str = "") -> None:
        """Have the group share its partitions out anew, by the next poll. UsageError unless subscribed."""
        as_text(reason, "enforce_rebalance: the reason")
        with Call(self, "enforce_rebalance"), self._client.lock:
            if not self._engine.membership.is_active:
                raise UsageError("enforce_rebalance: subscribe() first; without a group there is nothing to rebalance")
            self._client.poke()
            self._engine.membership.enforce_rebalance(reason)

    def group_metadata(self) -> GroupMetadata:
        """Who this member is, for a producer that commits its offsets in a transaction (KIP-447). As of now: ask again after each
        poll. UsageError without a group_id."""
        self._need_group("group_metadata")
        with Call(self, "group_metadata"), self._client.lock:
            return self._engine.membership.group_metadata()

    def pause(self, *partitions: Partitions) -> None:
        """Deliver nothing of these partitions until resume(). What is buffered stays for a minute; after that its memory is given
        back, and resume() fetches it again. Raises UsageError, changing nothing, if one is not assigned."""
        wanted = flattened(partitions, "pause")
        with Call(self, "pause"), self._client.lock:
            self._client.poke()
            self._engine.pause(wanted)

    def resume(self, *partitions: Partitions) -> None:
        """Go on with paused partitions, at the record after the last delivered one."""
        wanted = flattened(partitions, "resume")
        with Call(self, "resume"), self._client.lock:
            self._client.poke()
            self._engine.resume(wanted)

    def paused(self) -> set[TopicPartition]:
        """The assigned partitions that are paused."""
        with Call(self, "paused"), self._client.lock:
            return {state.tp for state in self._engine.subscription if state.paused}

    # --- positions ------------------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Deliver `offset` next. It is not looked up: one that doesn't exist is dealt with by auto_offset_reset when it is
        fetched.

        An OffsetAndMetadata with a leader epoch is checked first: does the log still hold the record of that epoch before it
        (KIP-320)? If not, the position is put where the log was cut, or poll() raises LogTruncationError if auto_offset_reset is
        "none".
        """
        [tp] = as_partitions(partition, "seek")
        where = as_offset(tp, offset, "seek")
        with Call(self, "seek"), self._client.lock:
            self._client.poke()
            self._engine.seek(tp, where.offset, where.leader_epoch)

    def seek_to_beginning(self, *partitions: Partitions) -> None:
        """Go to the first offset of these partitions (of all, if none is named); it is looked up in the background."""
        self._seek_to("seek_to_beginning", partitions, EARLIEST)

    def seek_to_end(self, *partitions: Partitions) -> None:
        """Go to the end: the next record produced, or with read_committed the first one that is not stable yet."""
        self._seek_to("seek_to_end", partitions, LATEST)

    def _seek_to(self, what: str, partitions: tuple[Partitions, ...], where: int) -> None:
        wanted = flattened(partitions, what)
        with Call(self, what), self._client.lock:
            self._client.poke()
            self._engine.seek_to(wanted or self._engine.subscription.partitions(), where, what)

    def skip(self, partition: TopicPartition) -> int:
        """Go past a bad batch that poll() raised, to the next offset that can be trusted, which is returned. UsageError if none
        can."""
        [tp] = as_partitions(partition, "skip")
        with Call(self, "skip"), self._client.lock:
            self._client.poke()
            return self._engine.skip(tp)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Records between the position and the end as of the last fetch; None where either is not known yet."""
        [tp] = as_partitions(partition, "current_lag")
        with Call(self, "current_lag"), self._client.lock:
            return self._engine.lag(tp)

    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """Start a commit of the positions as they are now. Commits keep their order; `callback(offsets, error)`, a plain
        function, is called, in that order, by a later poll, commit or close."""
        if inspect.iscoroutinefunction(callback):
            raise UsageError("commit_async: the callback must be a plain function: it is called, not awaited")
        with Call(self, "commit_async"):
            self._start_commit("commit_async", offsets, None, callback, is_async=True)

    def metrics(self) -> dict[str, Any]:
        """Counters since the consumer was made, rates, latencies, and what is held now, as a new dict. The guide ("Metrics") has
        a table of keys and units."""
        with Call(self, "metrics"), self._client.lock:
            return self._engine.metrics(now_ms())

    # --- ending ---------------------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Make the call that waits now, or the next one that would, raise WakeupError. For other threads and signal handlers."""
        if os.getpid() == self._pid:  # else: a signal handler that a forked child has inherited
            self._wakeup = True
            # Not under the lock: a signal handler may have interrupted the thread that holds it.
            self._client.wake_waiters()

    def __del__(self) -> None:
        # The sockets of a forked child are its parent's.
        if not self._closed and os.getpid() == self._pid:
            message = f"unclosed {self!r}; use a with block, or close()"
            self._closed = True
            self._client.stop()
            warnings.warn(message, ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self.config.bootstrap_servers)
        group = "" if self.config.group_id is None else f" group_id={self.config.group_id!r}"
        return f"<fastfetch.{type(self).__name__} {servers}{group}{' closed' if self._closed else ''}>"

    # --- calls that wait ------------------------------------------------------------------------------------------------

    def _unsubscribe(self) -> Steps[W, None]:
        refuse_in_duty(self, "unsubscribe")
        with Call(self, "unsubscribe"):
            error: Exception | None = None
            if self._engine.membership.is_active:
                deadline = time.monotonic() + self.config.default_api_timeout_ms / 1000
                error = yield from self._leave("the consumer unsubscribed", deadline, commit_positions=self._auto_commit)
                self._listener = None
            else:
                with self._client.lock:
                    self._client.poke()
                    self._engine.unsubscribe("", now_ms())
        if error is not None:
            raise error

    def _position(self, partition: TopicPartition, timeout_ms: int | None) -> Steps[W, int]:
        [tp] = as_partitions(partition, "position")

        def found() -> int | None:
            state = self._engine.subscription.get(tp, "position")
            position = state.known_position
            if position is None and state.error is not None:
                error = state.error
                if not state.error_is_sticky:
                    state.error = None
                raise error
            return position

        with Call(self, "position"):
            return (yield from self._until(found, timeout_ms, f"the position of {tp}"))

    def _commit(self, offsets: Offsets | None, timeout_ms: int | None) -> Steps[W, None]:
        with Call(self, "commit"):
            commit = self._start_commit("commit", offsets, timeout_ms, None, is_async=False)
            try:
                yield from self._ask(lambda: commit.pending, timeout_ms, f"the commit of {len(commit.offsets)} offsets")
            except FastFetchError:
                self._run_callbacks()
                raise
            self._run_callbacks()

    def _committed(self, partitions: Partitions | None, timeout_ms: int | None) -> Steps[W, Stored]:
        wanted = None if partitions is None else as_partitions(partitions, "committed")
        self._need_group("committed")
        with Call(self, "committed"):
            return (
                yield from self._ask(lambda: self._engine.read_committed_offsets(wanted), timeout_ms, "the committed offsets")
            )

    def _ends(
        self, what: str, partitions: Partitions, timestamp: int, timeout_ms: int | None
    ) -> Steps[W, dict[TopicPartition, int]]:
        wanted = as_partitions(partitions, what)
        with Call(self, what):
            found = yield from self._ask(
                lambda: self._engine.offsets_at(dict.fromkeys(wanted, timestamp)), timeout_ms, what.replace("_", " ")
            )
        return {tp: at.offset for tp in wanted if (at := found[tp]) is not None}

    def _offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None
    ) -> Steps[W, dict[TopicPartition, OffsetAndTimestamp | None]]:
        wanted: dict[TopicPartition, int] = {}
        for tp, timestamp in timestamps.items():
            when = as_integer(timestamp, 2**63)
            if when is None:
                raise UsageError(f"offsets_for_times: the timestamp of {tp} must be milliseconds since 1970, not {timestamp!r}")
            wanted[as_partition(tp, "offsets_for_times")] = when
        with Call(self, "offsets_for_times"):
            found = yield from self._ask(lambda: self._engine.offsets_at(wanted), timeout_ms, "offsets for times")
        return {tp: found[tp] for tp in wanted}

    def _partitions_for(self, topic: str, timeout_ms: int | None) -> Steps[W, set[int]]:
        with Call(self, "partitions_for"):
            found = yield from self._ask(lambda: self._engine.ask_topic(topic), timeout_ms, f"the partitions of topic {topic!r}")
            return set(found.partitions)

    def _topics(self, timeout_ms: int | None) -> Steps[W, set[str]]:
        return set((yield from self._list_topics(timeout_ms)))

    def _list_topics(self, timeout_ms: int | None) -> Steps[W, dict[str, set[int]]]:
        with Call(self, "list_topics"):
            return (yield from self._ask(self._engine.list_topics, timeout_ms, "the list of topics"))

    def _close(self, timeout_ms: int | None, *, autocommit: bool) -> Steps[W, None]:
        if self._closed or os.getpid() != self._pid:
            self._closed = True
            return
        client, limit = self._client, min(CLOSE_MS, self.config.default_api_timeout_ms) if timeout_ms is None else timeout_ms
        deadline = time.monotonic() + limit / 1000
        is_held = client.is_held_here()  # by the call that a signal handler has interrupted: then nothing can be waited for
        if client.is_alive and not is_held and self._engine.membership.is_active and self._claim():
            try:
                commits = autocommit and self._auto_commit
                error = yield from self._leave("the consumer was closed", deadline, commit_positions=commits)
            except GeneratorExit:  # cancelled, or interrupted: closed all the same, and the rest happens in the background
                self._closed = True
                client.stop()
                raise
            finally:
                self._owner.clear()
            if error is not None:
                log.warning("the rebalance listener raised in close()", exc_info=error)
        self._closed = True  # from here on other calls raise, those that wait included
        try:
            client.wake_waiters()
            if client.is_alive and not is_held:
                yield from self._last_commits(deadline, commit_positions=autocommit and self._auto_commit)
                self._run_callbacks()
                if self._engine.membership.is_active:
                    with client.lock:
                        client.poke()
                        self._engine.unsubscribe("the consumer was closed", now_ms())
                    yield from self._until_left(deadline)
        finally:
            client.stop()
            client.wake_waiters()
        deadline = max(deadline, time.monotonic() + 0.1)
        while not is_held and not client.has_ended:
            with client.lock:
                left = deadline - time.monotonic()
                if client.has_ended or left <= 0:
                    break
                waiter = self._new_waiter()
                client.add_waiter(waiter)
            yield waiter, min(left, STEP_MS / 1000)
        if not is_held and not client.join(1.0 if client.has_ended else 0.0):
            log.warning("the background thread did not end within %d ms; it ends by itself", limit)

    def _claim(self) -> bool:
        """Become the caller, as long as there is none. A listener does not expect to be called by a close() while a call goes
        on, here or elsewhere."""
        try:
            me = self._caller()
        except UsageError:  # in another event loop
            return False
        return not self._owner and self._owner.setdefault("caller", me) == me

    def _last_commits(self, deadline: float, *, commit_positions: bool) -> Steps[W, None]:
        """On closing: what is still under way, and the positions. Never raises; bounded by the deadline."""
        client, engine = self._client, self._engine
        with client.lock:
            client.poke()
            if commit_positions:
                offsets = self._uncommitted()
                if offsets:
                    until_ms = now_ms() + int((deadline - time.monotonic()) * 1000)
                    engine.commit(offsets, until_ms, is_async=True, automatic=True).callback = self._auto_commit_done
        while True:
            with client.lock:
                left = deadline - time.monotonic()
                if client.has_ended or not engine.commits.is_busy:
                    return
                if left <= 0:
                    log.warning("closing before the coordinator has answered the last commit: it may be stored or not")
                    return
                waiter = self._new_waiter()
                client.add_waiter(waiter)
            yield waiter, min(left, STEP_MS / 1000)

    def _close_after(self, error: BaseException | None) -> Steps[W, None]:
        """At the end of a with block. What an exception interrupted was perhaps not processed: committing it would lose it."""
        hasty = error is not None and not isinstance(error, Exception)
        return self._close(HASTY_CLOSE_MS if hasty else None, autocommit=error is None)
