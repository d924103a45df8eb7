"""Committing: what is stored of a group's progress, in which order, and in whose name.

What is committed is a position, the *next* offset to read, sent unchanged. Only an answer without error makes it committed; a
lost answer means unknown, and the commit is sent again. Commits go out one after another in the order of the calls, so none
overtakes another.

A member of a group signs its commits with what it is when they are sent, never as nobody, which an empty group would take from
anyone. It commits partitions that it has had without a break since the call. One that was given up in between, even if it came
back, stands where the coordinator says; what this client knew of it is void. While there is nothing to sign with, commits fail
at once, but those made by themselves wait: whatever is still ours then is sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from fastfetch.config import ConsumerConfig
from fastfetch.engine.backoff import Backoff, Timer
from fastfetch.engine.channels import Channel, Channels, Lane
from fastfetch.engine.finder import CoordinatorFinder
from fastfetch.engine.membership import NO_MEMBER, Credentials, Membership
from fastfetch.engine.metadata import UNKNOWN_AFTER
from fastfetch.engine.pending import Pending
from fastfetch.engine.subscription import PartitionState, SubscriptionState
from fastfetch.errors import (
    CommitFailedError,
    FastFetchError,
    RebalanceInProgressError,
    UnsupportedVersionError,
    broker_error,
    error_name,
)
from fastfetch.protocol import tables
from fastfetch.types import OffsetAndMetadata, TopicPartition

__all__ = ["Commit", "Commits"]

NOT_OURS = 0  # instead of an error code: the partition is not assigned, or not any more
AGAIN = frozenset({3, 7, 14, 15, 16})
MOVED = frozenset({7, 15, 16})
UNKNOWN_TOPIC = 3
REBALANCING = 27
FENCED = 82
NO_MEMBER_ANY_MORE = frozenset({22, 25, 110})
STALE = 113
OF_MEMBERSHIP = frozenset({REBALANCING, FENCED, STALE}) | NO_MEMBER_ANY_MORE
NEWEST_BY_NAME = 9  # v10 names topics by id

TOO_LARGE_ADVICE = ": the metadata is longer than the broker's offset.metadata.max.bytes; shorten it"
MEMBER_ADVICE = {
    12: TOO_LARGE_ADVICE,
    REBALANCING: ": it is rebalancing; call poll(), which takes part in that, then commit what is still assigned",
    FENCED: (
        ": another consumer came with the same group_instance_id and has taken over; give each running consumer one of its own, "
        "and close this one"
    ),
} | dict.fromkeys(
    NO_MEMBER_ANY_MORE,
    ": it has gone on without this consumer, and its partitions may be another's by now; poll to join again, which reads on from "
    "what was committed before. It comes of no poll for longer than max_poll_interval_ms (process less between two polls, see "
    "max_poll_records, or raise it), or of no sign of life for longer than session_timeout_ms",
)
STRANGER_ADVICE = {12: TOO_LARGE_ADVICE} | dict.fromkeys(
    (22, 25, REBALANCING),
    ": it has members, and this consumer, which uses assign(), is none of them; use a group id of its own",
)
NOT_OURS_ADVICE = (
    "the partition is not assigned to this consumer; it was given up in a rebalance, or never assigned. Whoever has it goes on "
    "from what was committed before"
)


class Commit:
    """One commit() on its way. `left` shrinks as partitions are answered; `failed` collects those that were refused.

    states          of a member: the assigned partitions as they were at the call; None: made without membership
    is_automatic    nobody has asked for it, and nobody need hear of partitions that it can't be sent for
    is_held         it waits until the member has something to sign it with
    stale           what it was signed with when the coordinator knew a newer epoch already
    """

    __slots__ = (
        "attempts", "callback", "deadline_ms", "failed", "in_flight", "is_async", "is_automatic", "is_held", "left", "offsets",
        "pending", "retry_at_ms", "stale", "states",
    )  # fmt: skip

    def __init__(
        self,
        deadline_ms: int,
        *,
        is_async: bool = False,
        is_automatic: bool = False,
        states: dict[TopicPartition, PartitionState] | None = None,
    ) -> None:
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self.left: dict[TopicPartition, OffsetAndMetadata] = {}
        self.failed: dict[TopicPartition, int] = {}
        self.states = states
        self.pending: Pending[dict[TopicPartition, OffsetAndMetadata]] = Pending()
        self.deadline_ms = deadline_ms
        self.is_async = is_async
        self.is_automatic = is_automatic
        self.callback: object = None  # the caller's; the engine only carries it
        self.in_flight = False
        self.is_held = False
        self.stale: Credentials | None = None
        self.attempts = 0
        self.retry_at_ms = 0

    def add(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """A snapshot: what polls hand out later is not part of it. What was refused is asked anew."""
        self.offsets |= offsets
        self.left |= offsets
        for tp in offsets:
            self.failed.pop(tp, None)


class Commits:
    """Talks to the group's coordinator. Does nothing without a group id."""

    membership: Membership  # the engine sets it as soon as there is one

    def __init__(
        self,
        config: ConsumerConfig,
        channels: Channels,
        subscription: SubscriptionState,
        timer: Timer,
        finder: CoordinatorFinder,
        seed: int = 0,
    ) -> None:
        self._group = config.group_id or ""
        self._channels = channels
        self._subscription = subscription
        self._timer = timer
        self._finder = finder
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, seed)
        self._queue: deque[Commit] = deque()
        self._seen = -1  # version of the assignment that waiting commits were last compared with
        self.finished_async: deque[Commit] = deque()  # settled, in call order; their callbacks are run by the caller's thread
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}  # what the coordinator is known to have of this client
        self.has_news = False  # something was settled without an answer; the engine clears it
        finder.on_fault.append(self._fail_all)

    # --- asking ---------------------------------------------------------------------------------------------------------

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline_ms: int,
        *,
        is_async: bool = False,
        automatic: bool = False,
    ) -> Commit:
        """Queue a commit of these next offsets. It is retried until `deadline_ms` or until nobody waits for it.

        An automatic one that has not gone out when the next one comes is the same one: it takes the newer positions.
        """
        states = None
        if self.membership.is_active:
            states = {tp: state for tp in offsets if (state := self._subscription.find(tp)) is not None}
        commit = self._queue[-1] if self._queue and automatic and is_async else None
        if commit is None or not self._may_grow(commit, states):
            commit = Commit(deadline_ms, is_async=is_async, is_automatic=automatic, states=states)
            self._queue.append(commit)
        elif commit.states is not None and states is not None:
            commit.states |= states
        commit.deadline_ms = max(commit.deadline_ms, deadline_ms)
        commit.add(offsets)
        if offsets and states is not None and not automatic and self.membership.credentials() is None:
            self._fail(commit, self.membership.why_no_commit())
        else:
            self._take_out_lost(commit)
        return commit

    def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions go, and what was committed of them is somebody else's business. A member's commits that wait notice by
        themselves; of one in flight the answer tells what has become of it."""
        for tp in partitions:
            self.committed.pop(tp, None)

    @property
    def is_busy(self) -> bool:
        """Something is under way that will be answered before long."""
        return any(not commit.is_held for commit in self._queue)

    def pump(self, now_ms: int) -> None:
        if not self._queue:
            return
        active = self.membership.is_active
        me = self.membership.credentials() if active else NO_MEMBER
        self._check_all(active, me, now_ms)
        self._drop_settled()
        if self._queue and me is not None:
            channel = self._finder.channel(Lane.GROUP, now_ms)
            if channel is not None:
                self._send(channel, me, now_ms)

    # --- waiting --------------------------------------------------------------------------------------------------------

    @staticmethod
    def _may_grow(commit: Commit, states: dict[TopicPartition, PartitionState] | None) -> bool:
        return (
            commit.is_automatic
            and commit.is_async
            and not commit.in_flight
            and not commit.pending.done
            and (commit.states is None) == (states is None)
        )

    def _check_all(self, active: bool, me: Credentials | None, now_ms: int) -> None:
        """Settle what can't be sent any more."""
        is_other = self._seen != self._subscription.version
        self._seen = self._subscription.version
        for commit in self._queue:
            if commit.in_flight:
                continue
            if is_other:
                self._take_out_lost(commit)
            if commit.pending.done:
                continue
            commit.is_held = False
            if commit.states is None and active:
                late = f"{self._not_taken(commit)} before subscribe() was called, and it must not go out without membership now"
                self._fail(commit, CommitFailedError(late))
            elif me is None and not (commit.is_automatic and commit.is_async):
                self._fail(commit, self.membership.why_no_commit())
            elif commit.deadline_ms <= now_ms:
                late = f"{self._not_taken(commit)} in time{commit.pending.trouble}; call commit() again"
                self._fail(commit, CommitFailedError(late))
            else:
                commit.is_held = me is None
                self._timer.at(commit.deadline_ms)

    def _drop_settled(self) -> None:
        """In call order, but nothing waits for a commit that is held back."""
        left: deque[Commit] = deque()
        is_blocked = False
        for commit in self._queue:
            if is_blocked or commit.in_flight or not commit.pending.done:
                left.append(commit)
                is_blocked = is_blocked or not commit.is_held
            elif commit.is_async:
                self.finished_async.append(commit)
        self._queue = left

    def _is_ours(self, commit: Commit, tp: TopicPartition) -> bool:
        """Has the partition been assigned without a break since the call? Without membership that is the caller's business."""
        if commit.states is None:
            return True
        state = self._subscription.find(tp)
        return state is not None and commit.states.get(tp) is state

    def _take_out_lost(self, commit: Commit) -> None:
        for tp in [tp for tp in commit.left if not self._is_ours(commit, tp)]:
            del commit.left[tp]
            if commit.is_automatic:
                del commit.offsets[tp]
            else:
                commit.failed[tp] = NOT_OURS
        if not commit.left:
            self._conclude(commit)

    def _conclude(self, commit: Commit) -> None:
        """Nothing of it is left to send."""
        if commit.failed:
            commit.pending.fail(self._refused(commit))
        else:
            commit.pending.resolve(commit.offsets)
        self.has_news = True

    def _fail(self, commit: Commit, error: FastFetchError) -> None:
        """What is left of it can't be sent."""
        if commit.failed:
            error = CommitFailedError(f"{self._refused(commit)}; {error}")
        if isinstance(error, CommitFailedError):
            error.failed = commit.failed | dict.fromkeys(commit.left, 0)
        commit.pending.fail(error)
        self.has_news = True

    def _fail_all(self, error: FastFetchError) -> None:
        for commit in self._queue:
            if not commit.in_flight:
                self._fail(commit, error)

    # --- sending --------------------------------------------------------------------------------------------------------

    def _send(self, channel: Channel, me: Credentials, now_ms: int) -> None:
        commit = self._queue[0]
        if commit.in_flight or commit.stale == me:
            return
        if commit.retry_at_ms > now_ms:
            self._timer.at(commit.retry_at_ms)
            return
        try:
            version = self._channels.version(channel, tables.OFFSET_COMMIT, at_most=NEWEST_BY_NAME)
        except UnsupportedVersionError as error:
            self._fail_all(error)
            return
        by_topic: dict[str, list[dict[str, Any]]] = {}
        for tp, what in commit.left.items():
            by_topic.setdefault(tp.topic, []).append(
                {
                    "partition_index": tp.partition,
                    "committed_offset": what.offset,
                    "committed_leader_epoch": -1 if what.leader_epoch is None else what.leader_epoch,
                    "committed_metadata": what.metadata,
                }
            )
        body = {
            "group_id": self._group,
            "generation_id_or_member_epoch": me.generation,
            "member_id": me.member_id,
            "topics": [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()],
        }
        if version >= 7:
            body["group_instance_id"] = me.instance_id

        def answered(body: Any, now_ms: int) -> None:
            self._was_answered(commit, me, body, channel, now_ms)

        def failed(error: FastFetchError, now_ms: int) -> None:
            self._finder.forget(str(error), now_ms, channel)
            self._again(commit, str(error), now_ms)

        commit.in_flight = True
        self._channels.send(channel, tables.OFFSET_COMMIT, version, body, now_ms, on_answer=answered, on_failure=failed)

    def _was_answered(self, commit: Commit, sent: Credentials, body: Any, channel: Channel, now_ms: int) -> None:
        codes: dict[int, None] = {}  # in the order of the answer
        for topic in body["topics"]:
            for part in topic["partitions"]:
                tp = TopicPartition(topic["name"], part["partition_index"])
                what = commit.left.get(tp)
                if what is None:
                    continue
                code = part["error_code"]
                codes[code] = None
                if code == 0:
                    del commit.left[tp]
                    if self._is_ours(commit, tp):
                        self.committed[tp] = what
                elif self._is_final(code, commit):
                    del commit.left[tp]
                    commit.failed[tp] = code
        for code in codes:
            if code in MOVED:
                self._finder.forget(error_name(code), now_ms, channel)
            elif code in OF_MEMBERSHIP and commit.states is not None:
                self.membership.commit_refused(code, sent, now_ms)
        if STALE in codes:
            commit.stale = sent
        if commit.left:  # errors that pass, or partitions left out of the answer
            waits_for = [error_name(code) for code in codes if code in AGAIN or code == STALE]
            self._again(commit, f"{_names(commit.left)}: {', '.join(waits_for) or 'no answer'}", now_ms)
        else:
            commit.in_flight = False
            self._conclude(commit)
        self._drop_settled()

    @staticmethod
    def _is_final(code: int, commit: Commit) -> bool:
        if code == UNKNOWN_TOPIC and commit.is_automatic:
            return commit.attempts >= UNKNOWN_AFTER  # deleted: a rebalance that waits for this commit must not wait for long
        return code not in AGAIN and (code != STALE or commit.states is None)

    def _again(self, commit: Commit, why: str, now_ms: int) -> None:
        commit.in_flight = False
        commit.attempts += 1
        commit.pending.trouble = f". The last attempt ended with: {why}"
        self._take_out_lost(commit)
        if commit.is_async and any(not other.pending.done for other in self._queue if other is not commit):
            # The newer one says all that this one would, and sending this one after it could only go back.
            newer = f"{self._not_taken(commit)}, and a newer one follows: {why}"
            self._fail(commit, CommitFailedError(newer))
            return
        commit.retry_at_ms = now_ms + self._backoff.delay_ms(commit.attempts)
        self._timer.at(commit.retry_at_ms)

    # --- errors ---------------------------------------------------------------------------------------------------------

    def _not_taken(self, commit: Commit) -> str:
        return f"group {self._group!r} did not take the commit of {_names(commit.left)}"

    def _refused(self, commit: Commit) -> FastFetchError:
        """One error for all partitions that were refused. The others are committed, and said to be."""
        group, codes = f"group {self._group!r}", set(commit.failed.values())
        done = len(commit.offsets) - len(commit.failed) - len(commit.left)
        kept = f"; {done} other partitions were committed" if done else ""
        if 30 in codes:
            return broker_error(30, f"not allowed to commit to {group}")
        if codes == {29}:
            topics = ", ".join(sorted({tp.topic for tp in commit.failed}))
            return broker_error(29, f"not allowed to commit offsets of {topics} to {group}{kept}")
        reasons = []
        for code in sorted(codes, reverse=True):
            where = _names({tp: commit.offsets[tp] for tp, why in commit.failed.items() if why == code})
            if code == NOT_OURS:
                reasons.append(f"{where} not committed: {NOT_OURS_ADVICE}")
                continue
            advice = (MEMBER_ADVICE if commit.states is not None else STRANGER_ADVICE).get(code, "")
            label = "" if code == FENCED else f" with {error_name(code)} (code {code})"  # BrokerError says it itself
            reasons.append(f"{group} refused the commit of {where}{label}{advice}")
        message = "; ".join(reasons) + kept
        if FENCED in codes:
            return broker_error(FENCED, message)
        if codes == {REBALANCING} and commit.states is not None:
            return RebalanceInProgressError(message)
        return CommitFailedError(message, failed=commit.failed)


def _names(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> str:
    """For a message: partitions and the offsets that were to be committed."""
    names = [f"{tp}@{offsets[tp].offset}" for tp in sorted(offsets)]
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
