"""What a consumer does for its group in the caller's thread: listeners, assignors, the commits before partitions go.

The engine says what is to be done (`engine.membership`) and waits for it; between two polls it can only wait. A poll does all
that is due before it looks for records, and goes on in the next poll with what it had no time for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Any

from fastfetch.core import STEP_MS, Call, ConsumerCore, Steps, W
from fastfetch.engine.arguments import as_user_data
from fastfetch.engine.membership import Describe, Duty, GiveUp, ShareOut, TakeOver
from fastfetch.errors import UsageError
from fastfetch.net.thread import now_ms
from fastfetch.types import TopicPartition

__all__ = ["DutifulCore", "Polling", "refuse_in_duty"]

log = logging.getLogger("fastfetch.consumer")

FINISH_S = 3.0  # for a rebalance that goes on when the consumer leaves

Listener = Any  # with some of RebalanceListener's methods


class DutifulCore(ConsumerCore[W]):
    """A consumer's inside that can be a member of a group."""

    _listener: Listener = None
    _giving_up: GiveUp | None = None  # begun by an earlier poll
    _give_up_by_ms = 0  # when its commits are not waited for any longer

    def _invoke(self, function: Callable[..., Any], *arguments: object) -> Steps[W, None]:
        """Call the user's code, which may use this consumer meanwhile."""
        self._call_back(function, *arguments)
        return
        yield  # a generator, as where it is awaited

    # --- in polls -------------------------------------------------------------------------------------------------------

    def _duties(self, deadline: float) -> Steps[W, None]:
        """Do what the group wants done before records are handed out. Raises the first error of the user's code once all of it
        is done, or what ended the membership."""
        membership, client = self._engine.membership, self._client
        first: Exception | None = None
        while True:
            with client.lock:
                duty = membership.duty(now_ms())
                if duty is None:
                    if membership.wants_pump:
                        client.poke()
                    if first is None:
                        first, membership.fault = membership.fault, None
                    break
            if isinstance(duty, GiveUp) and not (yield from self._settle_commits(duty, deadline)):
                break
            error = yield from self._do(duty)
            first = first or error
            if error is not None and isinstance(duty, Describe):
                break  # it is asked again, by the next poll
        if first is not None:
            raise first

    def _do(self, duty: Duty) -> Steps[W, Exception | None]:
        """The user's part of a duty. However that ends, it is done, and the group goes on."""
        self._in_duty = True
        try:
            if isinstance(duty, GiveUp):
                if duty.tell:
                    yield from self._tell_of_loss(duty)
            elif isinstance(duty, TakeOver):
                yield from self._tell_of_gain(duty)
            elif isinstance(duty, Describe):
                duty.result = {
                    each.name: as_user_data(each.subscription_user_data(duty.topics), each.name) for each in duty.assignors
                }
            else:
                duty.result = duty.assignor.assign(duty.cluster, duty.subscriptions)
        except Exception as error:
            if isinstance(duty, Describe | ShareOut):
                duty.error = error
            return error
        finally:
            self._in_duty = False
            self._giving_up = None
            with self._client.lock:
                self._client.poke()
                self._engine.membership.done(duty, now_ms())
        return None

    def _tell_of_gain(self, duty: TakeOver) -> Steps[W, None]:
        error: Exception | None = None
        try:
            if duty.assignor is not None and duty.assignment is not None:
                duty.assignor.on_assignment(duty.assignment, duty.generation)
        except Exception as raised:
            error = raised
        yield from self._tell("on_partitions_assigned", duty.partitions)
        if error is not None:
            raise error

    def _tell_of_loss(self, duty: GiveUp, *, check: bool = True) -> Steps[W, None]:
        lost = duty.is_lost and hasattr(self._listener, "on_partitions_lost")
        error: Exception | None = None
        try:
            yield from self._tell("on_partitions_lost" if lost else "on_partitions_revoked", duty.partitions)
        except Exception as raised:
            error = raised
        # What the listener has begun to commit is still ours to commit; a moment later it would be void.
        if not duty.is_lost:
            patience = time.monotonic() + self._patience_ms() / 1000
            yield from self._await_commits(self._give_up_by_ms, patience, check=check)
        if error is not None:
            raise error

    def _tell(self, what: str, partitions: Collection[TopicPartition]) -> Steps[W, None]:
        function = getattr(self._listener, what, None)
        if function is not None:
            yield from self._invoke(function, list(partitions))

    # --- commits before partitions go -----------------------------------------------------------------------------------

    def _settle_commits(self, duty: GiveUp, deadline: float) -> Steps[W, bool]:
        """Commit what was handed out, if that is our business, and see all commits answered; False if the poll's time is up
        before."""
        if duty.is_lost:
            return True
        if self._giving_up is not duty:
            self._give_up_by_ms = now_ms() + self._patience_ms()
            if self._auto_commit:
                self._commit_positions(self._give_up_by_ms)
            self._giving_up = duty
        settled = yield from self._await_commits(self._give_up_by_ms, deadline, duty)
        if settled:
            self._run_callbacks()
        return settled

    def _patience_ms(self) -> int:
        """How long commits may hold up a rebalance: the group waits for this member as long as it waits for a poll."""
        return min(self.config.default_api_timeout_ms, self.config.max_poll_interval_ms // 2)

    def _commit_positions(self, until_ms: int) -> None:
        with self._client.lock:
            offsets = self._uncommitted()
            if offsets:
                self._client.poke()
                self._engine.commit(offsets, until_ms, is_async=True, automatic=True).callback = self._auto_commit_done

    def _await_commits(self, until_ms: int, deadline: float, duty: GiveUp | None = None, *, check: bool = True) -> Steps[W, bool]:
        """Until no commit is under way, at most until `until_ms`, or until the partitions are lost; False if the deadline comes
        first. Without `check` nothing else ends it, as is right for a call that ends the consumer."""
        client, engine = self._client, self._engine
        while True:
            with client.lock:
                left_ms = until_ms - now_ms()
                if not engine.commits.is_busy or left_ms <= 0 or client.has_ended or (duty is not None and duty.is_lost):
                    return True
                if check:
                    self._check()
                left = min(left_ms / 1000, deadline - time.monotonic(), STEP_MS / 1000)
                if left <= 0:
                    return False
                if duty is not None:
                    engine.membership.duty(now_ms())  # notices that they are lost
                waiter = self._new_waiter()
                client.add_waiter(waiter)
            yield waiter, left

    # --- leaving --------------------------------------------------------------------------------------------------------

    def _finish_rebalance(self, deadline: float) -> Steps[W, None]:
        """Nothing can be committed between joining and having the assignment: go through with it, if it does not take long."""
        client, engine = self._client, self._engine
        while True:
            with client.lock:
                left = deadline - time.monotonic()
                if engine.membership.part() or left <= 0 or client.has_ended:
                    return
                waiter = self._new_waiter()
                client.add_waiter(waiter)
            yield waiter, left
            try:
                yield from self._duties(deadline)
            except Exception as error:
                log.warning("in the last rebalance before leaving: %s", error, exc_info=error)

    def _commit_before_leaving(self, until_ms: int, deadline: float, *, commit_positions: bool) -> Steps[W, GiveUp | None]:
        """The last commits, and those under way. Returns what the listener has to hear."""
        client, engine = self._client, self._engine
        membership = engine.membership
        may_commit = commit_positions or hasattr(self._listener, "on_partitions_revoked")  # which may do it as well
        while True:
            if may_commit:
                yield from self._finish_rebalance(min(deadline, time.monotonic() + FINISH_S))
            with client.lock:
                signature = membership.credentials()
                duty = membership.duty_before_leaving(now_ms())
            if duty is not None and not duty.is_lost and commit_positions:
                self._commit_positions(until_ms)
            yield from self._await_commits(until_ms, deadline, check=False)
            self._run_callbacks()
            if duty is None or duty.is_lost or not commit_positions or time.monotonic() >= deadline:
                return duty
            with client.lock:
                # A rebalance that completed meanwhile made the signature void: once more, then.
                if membership.credentials() == signature or not self._uncommitted():
                    return duty

    def _leave(self, reason: str, deadline: float, *, commit_positions: bool) -> Steps[W, Exception | None]:
        """Commit, tell the listener, leave the group. Returns what the listener raised; this consumer is out all the same."""
        client, engine = self._client, self._engine
        until_ms = now_ms() + max(0, int((deadline - time.monotonic()) * 1000))
        error: Exception | None = None
        try:
            duty = yield from self._commit_before_leaving(until_ms, deadline, commit_positions=commit_positions)
            if duty is not None:
                self._give_up_by_ms, self._in_duty = until_ms, True
                try:
                    yield from self._tell_of_loss(duty, check=False)
                except Exception as raised:
                    error = raised
                finally:
                    self._in_duty = False
        finally:
            with client.lock:
                client.poke()
                engine.unsubscribe(reason, now_ms())
        self._run_callbacks()
        yield from self._until_left(deadline)
        return error

    def _until_left(self, deadline: float) -> Steps[W, None]:
        """Wait until the coordinator knows, or has been given up."""
        client = self._client
        while True:
            with client.lock:
                left = deadline - time.monotonic()
                if not self._engine.membership.is_leaving or left <= 0 or client.has_ended:
                    return
                waiter = self._new_waiter()
                client.add_waiter(waiter)
            yield waiter, min(left, STEP_MS / 1000)


class Polling(Call):
    """A call that hands out records: as long as it lasts, and from one to the next, the group's patience is measured."""

    __slots__ = ()

    def __enter__(self) -> None:
        refuse_in_duty(self._consumer, self._what)
        super().__enter__()
        self._consumer._engine.membership.poll_began()

    def __exit__(self, *error: object) -> None:
        self._consumer._engine.membership.poll_ended(now_ms())
        super().__exit__(*error)


def refuse_in_duty(consumer: ConsumerCore[Any], what: str) -> None:
    if consumer._in_duty:
        raise UsageError(f"{what}: not from within a rebalance listener or an assignor; return from it first")
