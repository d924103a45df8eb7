"""Committed offsets of a group: finding its coordinator, reading and writing. Without membership: generation -1 and an empty
member id.

What is committed is a position, the *next* offset to read, sent unchanged. Only an answer without error makes it committed; a
lost answer means unknown, and the commit is sent again. Commits go out one after another in the order of the calls, so none
overtakes another.

A coordinator moves. It is forgotten on NOT_COORDINATOR and COORDINATOR_NOT_AVAILABLE, when its connection is lost, and when it
doesn't answer in time, whatever was being asked; then it is looked for again.

"Nothing stored" is the coordinator's -1 and nothing else. A look-up that failed, or left a partition out, is not known yet.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from fastfetch.config import ConsumerConfig
from fastfetch.engine.backoff import Backoff, Timer
from fastfetch.engine.channels import Channel, Channels, Lane
from fastfetch.engine.pending import Pending
from fastfetch.engine.subscription import PartitionState, Phase, SubscriptionState
from fastfetch.errors import (
    CommitFailedError,
    FastFetchError,
    ProtocolError,
    UnsupportedVersionError,
    broker_error,
    error_name,
    is_retriable,
)
from fastfetch.protocol import Api, tables
from fastfetch.types import OffsetAndMetadata, TopicPartition

__all__ = ["Commit", "Commits", "Stored"]

log = logging.getLogger("fastfetch.engine")

Stored = dict[TopicPartition, OffsetAndMetadata | None]
NO_GENERATION = -1
MOVED = frozenset({15, 16})
COMMIT_AGAIN = frozenset({3, 7, 14, 15, 16})
NOT_A_MEMBER = frozenset({22, 25, 27})
UNSTABLE = 88
NEWEST_BY_NAME = 9  # v10 of both APIs names topics by id


class Commit:
    """One commit() on its way. `left` shrinks as partitions are answered; `failed` collects those that were refused."""

    __slots__ = (
        "attempts",
        "callback",
        "deadline_ms",
        "failed",
        "in_flight",
        "is_async",
        "left",
        "offsets",
        "pending",
        "retry_at_ms",
    )

    def __init__(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline_ms: int, is_async: bool) -> None:
        self.offsets = dict(offsets)  # a snapshot: what polls hand out later is not part of it
        self.left = dict(offsets)
        self.failed: dict[TopicPartition, int] = {}
        self.pending: Pending[dict[TopicPartition, OffsetAndMetadata]] = Pending()
        self.deadline_ms = deadline_ms
        self.is_async = is_async
        self.callback: object = None  # the caller's; the engine only carries it
        self.in_flight = False
        self.attempts = 0
        self.retry_at_ms = 0


class Reading:
    """A caller's committed(): answered when all partitions are. None: whatever the group has committed."""

    __slots__ = ("everything", "found", "missing", "pending")

    def __init__(self, partitions: Iterable[TopicPartition] | None) -> None:
        self.everything = partitions is None
        self.missing = set(partitions or ())
        self.found: Stored = {}
        self.pending: Pending[Stored] = Pending()
        if not self.missing and not self.everything:
            self.pending.resolve({})


class Commits:
    """Talks to the group's coordinator. Does nothing without a group id."""

    def __init__(
        self, config: ConsumerConfig, channels: Channels, subscription: SubscriptionState, timer: Timer, seed: int = 0
    ) -> None:
        self._config = config
        self._group = config.group_id or ""
        self._channels = channels
        self._subscription = subscription
        self._timer = timer
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, seed)
        self.coordinator: int | None = None
        self._finding = False
        self._find_attempts = 0
        self._find_next_ms = 0
        self._queue: deque[Commit] = deque()
        self._readings: list[Reading] = []
        self._reading_in_flight = False
        self._read_attempts = 0
        self._read_next_ms = 0
        self.finished_async: deque[Commit] = deque()  # settled, in call order; their callbacks are run by the caller's thread
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}  # what the coordinator has acknowledged to this client

    # --- asking ---------------------------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline_ms: int, *, is_async: bool = False) -> Commit:
        """Queue a commit of these next offsets. It is retried until `deadline_ms` or until nobody waits for it."""
        commit = Commit(offsets, deadline_ms, is_async)
        if not offsets:
            commit.pending.resolve({})
        self._queue.append(commit)
        return commit

    def read(self, partitions: Iterable[TopicPartition] | None) -> Pending[Stored]:
        """Ask for committed offsets; None where nothing is stored. Without partitions: all that the group has stored."""
        reading = Reading(partitions)
        self._readings.append(reading)
        return reading.pending

    @property
    def is_busy(self) -> bool:
        return bool(self._queue)

    def pump(self, now_ms: int) -> None:
        self._drop_settled(now_ms)
        self._readings = [reading for reading in self._readings if not reading.pending.done]
        wants_offsets = self._readings or any(state.phase is Phase.AWAITING_COMMITTED for state in self._subscription.unsettled)
        if not self._queue and not wants_offsets:
            return
        if self.coordinator is None:
            self._find(now_ms)
            return
        channel = self._channels.ready(self.coordinator, Lane.GROUP, now_ms)
        if channel is None:
            if self._channels.is_down(self.coordinator, Lane.GROUP):
                self._forget("it can't be reached", now_ms)
            return
        if self._queue:
            self._send_commit(channel, now_ms)
        if wants_offsets:
            self._send_reading(channel, now_ms)

    def _drop_settled(self, now_ms: int) -> None:
        while self._queue:
            head = self._queue[0]
            if not head.pending.done and head.deadline_ms <= now_ms and not head.in_flight:
                head.pending.fail(
                    CommitFailedError(f"no coordinator of group {self._group!r} took the commit in time; call commit() again")
                )
            if head.pending.done and not head.in_flight:
                self._queue.popleft()
                if head.is_async:
                    self.finished_async.append(head)
                continue
            if not head.in_flight:
                self._timer.at(head.deadline_ms)
            return

    # --- the coordinator ------------------------------------------------------------------------------------------------

    def _find(self, now_ms: int) -> None:
        if self._finding:
            return
        if self._find_next_ms > now_ms:
            self._timer.at(self._find_next_ms)
            return
        channel = self._channels.any_ready(now_ms)
        if channel is None:
            return
        version = self._version(channel, tables.FIND_COORDINATOR, 0x7FFF, now_ms)
        if version is None:
            return
        body: dict[str, Any] = {"coordinator_keys": [self._group]} if version >= 4 else {"key": self._group}
        if version >= 1:
            body["key_type"] = 0

        def answered(body: Any, now_ms: int) -> None:
            self._finding = False
            found = body
            if version >= 4:
                found = next((c for c in body["coordinators"] if c["key"] == self._group), None)
            self._found(found, now_ms)

        def failed(error: FastFetchError, now_ms: int) -> None:
            self._finding = False
            self._find_again(now_ms)

        self._finding = True
        self._channels.send(channel, tables.FIND_COORDINATOR, version, body, now_ms, on_answer=answered, on_failure=failed)

    def _found(self, found: Any, now_ms: int) -> None:
        code = 15 if found is None else found["error_code"]
        if code == 0 and 1 <= found["port"] <= 65535 and 1 <= len(found["host"]) <= 255 and found["node_id"] >= 0:
            self._find_attempts = 0
            self.coordinator = found["node_id"]
            self._channels.add_broker(found["node_id"], found["host"], found["port"], now_ms)
            log.info("node %d coordinates group %r", self.coordinator, self._group)
        elif code == 0 or is_retriable(code):
            self._find_again(now_ms)
        else:
            self._find_again(now_ms)
            what = (
                f"not allowed to use group {self._group!r}"
                if code == 30
                else f"finding the coordinator of group {self._group!r} failed"
            )
            self._fail_all(broker_error(code, what))

    def _find_again(self, now_ms: int) -> None:
        self._find_attempts += 1
        self._find_next_ms = now_ms + self._backoff.delay_ms(self._find_attempts)
        self._timer.at(self._find_next_ms)

    def _forget(self, why: str, now_ms: int) -> None:
        if self.coordinator is not None:
            log.info("forgetting the coordinator of group %r (node %d): %s", self._group, self.coordinator, why)
            self.coordinator = None
            self._find_again(now_ms)

    def _fail_all(self, error: FastFetchError) -> None:
        """Everything that waits for a coordinator hears of an error that no retry can cure."""
        for commit in self._queue:
            commit.pending.fail(error)
        for reading in self._readings:
            reading.pending.fail(error)
        for state in self._subscription.unsettled:
            if state.phase is Phase.AWAITING_COMMITTED:
                state.fail(error, sticky=False)

    def _version(self, channel: Channel, api: Api, at_most: int, now_ms: int, at_least: int = 0) -> int | None:
        try:
            return self._channels.version(channel, api, at_least=at_least, at_most=at_most)
        except UnsupportedVersionError as error:
            self._fail_all(error)
            return None

    # --- reading --------------------------------------------------------------------------------------------------------

    def _send_reading(self, channel: Channel, now_ms: int) -> None:
        if self._reading_in_flight:
            return
        if self._read_next_ms > now_ms:
            self._timer.at(self._read_next_ms)
            return
        waiting = {
            state: state.ticket
            for state in self._subscription.unsettled
            if state.phase is Phase.AWAITING_COMMITTED and state.error is None
        }  # fmt: skip
        partitions = {state.tp for state in waiting}.union(*(reading.missing for reading in self._readings))
        # A request names partitions or asks for all that are stored: those who want all wait for the others.
        everything = [] if partitions else [reading for reading in self._readings if reading.everything]
        version = self._version(channel, tables.OFFSET_FETCH, NEWEST_BY_NAME, now_ms, at_least=2 if everything else 0)
        if version is None or not (partitions or everything):
            return
        by_topic: dict[str, list[int]] = {}
        for tp in sorted(partitions):
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        topics = [{"name": name, "partition_indexes": indexes} for name, indexes in by_topic.items()]
        body: dict[str, Any] = {"group_id": self._group, "topics": None if everything else topics}
        if version >= 8:
            body = {"groups": [body]}
        if version >= 7:
            # A pending transaction of this group's offsets must show as such, not as the offset before it (KIP-447).
            body["require_stable"] = self._config.isolation_level == "read_committed"

        def answered(body: Any, now_ms: int) -> None:
            self._reading_in_flight = False
            group = body
            if version >= 8:
                group = next((g for g in body["groups"] if g["group_id"] == self._group), None)
            if (code := 14 if group is None else group["error_code"]) != 0:
                self._was_refused(code, now_ms)
            elif everything:
                self._all_was_read(group, everything, now_ms)
            else:
                self._was_read(group, partitions, waiting, now_ms)

        def failed(error: FastFetchError, now_ms: int) -> None:
            self._reading_in_flight = False
            self._forget(str(error), now_ms)

        self._reading_in_flight = True
        self._channels.send(channel, tables.OFFSET_FETCH, version, body, now_ms, on_answer=answered, on_failure=failed)

    def _was_refused(self, code: int, now_ms: int) -> None:
        """An error for the group as a whole."""
        self._say_trouble(error_name(code))
        if code in MOVED:
            self._forget(error_name(code), now_ms)
            return
        self._read_again(now_ms)
        if not is_retriable(code):
            what = (
                f"not allowed to use group {self._group!r}" if code == 30 else f"reading offsets of group {self._group!r} failed"
            )
            self._fail_all(broker_error(code, what))

    def _was_read(self, group: Any, asked: set[TopicPartition], waiting: dict[PartitionState, int], now_ms: int) -> None:
        by_tp = {state.tp: (state, ticket) for state, ticket in waiting.items()}
        left = set(asked)
        again = False
        for topic in group["topics"]:
            for part in topic["partitions"]:
                tp = TopicPartition(topic["name"], part["partition_index"])
                if tp not in left:
                    continue
                left.discard(tp)
                if self._is_to_be_read_again(tp, part["error_code"], now_ms):
                    again = True
                elif part["error_code"] != 0 or part["committed_offset"] < -1:
                    self._not_read(tp, part, by_tp.get(tp))
                    again = True  # once the error was raised
                else:
                    self._one_read(tp, part, by_tp.get(tp))
        if left or again:
            self._read_again(now_ms)
        else:
            self._read_attempts = 0

    def _all_was_read(self, group: Any, readings: list[Reading], now_ms: int) -> None:
        """The answer to those who asked for all that is stored. They get all of it, or an error, or it is asked for again."""
        found: Stored = {}
        for topic in group["topics"]:
            for part in topic["partitions"]:
                tp = TopicPartition(topic["name"], part["partition_index"])
                if self._is_to_be_read_again(tp, part["error_code"], now_ms):
                    self._read_again(now_ms)
                    return
                if part["error_code"] != 0 or part["committed_offset"] < -1:
                    error = self._why_not_read(tp, part)
                    for reading in readings:
                        reading.pending.fail(error)
                    return
                found[tp] = _stored(part)
        self._read_attempts = 0
        for reading in readings:
            reading.pending.resolve({tp: at for tp, at in found.items() if at is not None})

    def _is_to_be_read_again(self, tp: TopicPartition, code: int, now_ms: int) -> bool:
        """Does an error pass? A coordinator that has moved is forgotten."""
        if code in MOVED:
            self._forget(error_name(code), now_ms)
        elif not is_retriable(code) or code == 3:
            return False
        what = "a transaction that commits its offset has not ended" if code == UNSTABLE else "the coordinator says"
        self._say_trouble(f"{tp}: {what} ({error_name(code)})")
        return True

    def _say_trouble(self, why: str) -> None:
        for reading in self._readings:
            reading.pending.trouble = f". The last answer was {why}"

    def _one_read(self, tp: TopicPartition, part: Any, waiting: tuple[PartitionState, int] | None) -> None:
        stored = _stored(part)
        for reading in self._readings:
            if tp in reading.missing:
                reading.missing.discard(tp)
                reading.found[tp] = stored
                if not reading.missing:
                    reading.pending.resolve(reading.found)
        if waiting is None:
            return
        state, ticket = waiting
        if state.ticket != ticket or state.phase is not Phase.AWAITING_COMMITTED:
            return  # sought meanwhile
        if stored is None:
            self._subscription.request_reset(state, None)
        elif self._subscription.settle(state, ticket, stored.offset, stored.leader_epoch):
            log.info("%s goes on at committed offset %d", tp, stored.offset)

    def _why_not_read(self, tp: TopicPartition, part: Any) -> FastFetchError:
        code = part["error_code"]
        if code == 0:
            return ProtocolError(
                f"the coordinator gave {part['committed_offset']} as the committed offset of {tp}, which is no offset"
            )
        if code == 29:
            return broker_error(code, f"not allowed to read topic {tp.topic!r}")
        return broker_error(code, f"reading the committed offset of {tp} failed")

    def _not_read(self, tp: TopicPartition, part: Any, waiting: tuple[PartitionState, int] | None) -> None:
        error = self._why_not_read(tp, part)
        for reading in self._readings:
            if tp in reading.missing:
                reading.pending.fail(error)
        if waiting is not None and waiting[0].ticket == waiting[1]:
            waiting[0].fail(error, sticky=False)

    def _read_again(self, now_ms: int) -> None:
        self._read_attempts += 1
        self._read_next_ms = now_ms + self._backoff.delay_ms(self._read_attempts)
        self._timer.at(self._read_next_ms)

    # --- committing -----------------------------------------------------------------------------------------------------

    def _send_commit(self, channel: Channel, now_ms: int) -> None:
        commit = self._queue[0]
        if commit.in_flight:
            return
        if commit.retry_at_ms > now_ms:
            self._timer.at(commit.retry_at_ms)
            return
        version = self._version(channel, tables.OFFSET_COMMIT, NEWEST_BY_NAME, now_ms)
        if version is None:
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
            "generation_id_or_member_epoch": NO_GENERATION,
            "member_id": "",
            "topics": [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()],
        }

        def answered(body: Any, now_ms: int) -> None:
            self._was_committed(commit, body, now_ms)

        def failed(error: FastFetchError, now_ms: int) -> None:
            commit.in_flight = False
            self._forget(str(error), now_ms)
            self._commit_again(commit, error, now_ms)

        commit.in_flight = True
        self._channels.send(channel, tables.OFFSET_COMMIT, version, body, now_ms, on_answer=answered, on_failure=failed)

    def _was_committed(self, commit: Commit, body: Any, now_ms: int) -> None:
        commit.in_flight = False
        again = 0
        for topic in body["topics"]:
            for part in topic["partitions"]:
                tp = TopicPartition(topic["name"], part["partition_index"])
                what = commit.left.get(tp)
                if what is None:
                    continue
                code = part["error_code"]
                if code == 0:
                    del commit.left[tp]
                    self.committed[tp] = what
                elif code in COMMIT_AGAIN:
                    again = code
                    if code in MOVED or code == 7:
                        self._forget(error_name(code), now_ms)
                else:
                    del commit.left[tp]
                    commit.failed[tp] = code
        if commit.failed:
            commit.pending.fail(self._refused(commit))
        elif not commit.left:
            commit.pending.resolve(commit.offsets)
        else:  # errors that pass, or partitions left out of the answer
            name = error_name(again) if again else "no answer"
            self._commit_again(commit, CommitFailedError(f"{', '.join(map(str, commit.left))}: {name}"), now_ms)
        self._drop_settled(now_ms)

    def _commit_again(self, commit: Commit, error: FastFetchError, now_ms: int) -> None:
        commit.attempts += 1
        if commit.is_async and len(self._queue) > 1:
            # The newer one says all that this one would, and sending this one after it could only go back.
            commit.pending.fail(CommitFailedError(f"commit of group {self._group!r} failed and a newer one follows: {error}"))
            return
        commit.retry_at_ms = now_ms + self._backoff.delay_ms(commit.attempts)
        self._timer.at(commit.retry_at_ms)

    def _refused(self, commit: Commit) -> FastFetchError:
        """One error for all partitions that were refused. The others are committed, and said to be."""
        codes = set(commit.failed.values())
        where = ", ".join(f"{tp}@{commit.offsets[tp].offset}" for tp in sorted(commit.failed))
        kept = (
            f"; {len(commit.offsets) - len(commit.failed)} other partitions were committed"
            if len(commit.failed) < len(commit.offsets)
            else ""
        )
        code = min(codes)
        if 30 in codes:
            return broker_error(30, f"not allowed to commit to group {self._group!r}")
        if codes == {29}:
            topics = ", ".join(sorted({tp.topic for tp in commit.failed}))
            return broker_error(29, f"not allowed to commit offsets of {topics} to group {self._group!r}{kept}")
        if codes & NOT_A_MEMBER:
            return CommitFailedError(
                f"group {self._group!r} refused the commit of {where} with {error_name(code)} (code {code}): it has members, and "
                f"this consumer, which uses assign(), is none of them; use a group id of its own{kept}"
            )
        return CommitFailedError(
            f"group {self._group!r} refused the commit of {where} with {error_name(code)} (code {code}){kept}"
        )


def _stored(part: Any) -> OffsetAndMetadata | None:
    """What an answer says is stored for a partition."""
    epoch = part["committed_leader_epoch"] if part["committed_leader_epoch"] >= 0 else None
    return None if part["committed_offset"] < 0 else OffsetAndMetadata(part["committed_offset"], part["metadata"] or "", epoch)
