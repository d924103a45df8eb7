"""Reading what a group has committed: for partitions that have just been assigned, and for callers who ask.

"Nothing stored" is the coordinator's -1 and nothing else; only that leads to the reset policy. A look-up that failed, or left a
partition out, is not known yet and asked again. One partition's error holds up no other.

A member of a group with the consumer protocol (KIP-848) signs its questions: the coordinator refuses them where member or epoch
is not what it knows, so that nobody starts where a partition stood before another member went on with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from fastfetch.config import ConsumerConfig
from fastfetch.engine.backoff import Backoff, Timer
from fastfetch.engine.channels import Channel, Channels, Lane
from fastfetch.engine.finder import CoordinatorFinder
from fastfetch.engine.membership import Credentials, Membership
from fastfetch.engine.pending import Pending
from fastfetch.engine.subscription import PartitionState, Phase, SubscriptionState
from fastfetch.errors import FastFetchError, ProtocolError, UnsupportedVersionError, broker_error, error_name, is_retriable
from fastfetch.protocol import tables
from fastfetch.types import OffsetAndMetadata, TopicPartition

__all__ = ["Stored", "StoredOffsets"]

log = logging.getLogger("fastfetch.engine")

Stored = dict[TopicPartition, OffsetAndMetadata | None]
MOVED = frozenset({15, 16})
NO_MEMBER_OF_IT = frozenset({25, 110, 113})
UNSTABLE = 88
NEWEST_BY_NAME = 9  # v10 names topics by id


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


class StoredOffsets:
    """Asks the coordinator. `committed` is where a position that came from it is noted: it needs no commit."""

    membership: Membership  # the engine sets it as soon as there is one

    def __init__(
        self,
        config: ConsumerConfig,
        channels: Channels,
        subscription: SubscriptionState,
        timer: Timer,
        finder: CoordinatorFinder,
        committed: dict[TopicPartition, OffsetAndMetadata],
        seed: int = 0,
    ) -> None:
        self._group = config.group_id or ""
        self._is_signed = config.group_protocol == "consumer"
        self._is_stable = config.isolation_level == "read_committed"
        self._channels = channels
        self._subscription = subscription
        self._timer = timer
        self._finder = finder
        self._committed = committed
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, seed)
        self._readings: list[Reading] = []
        self._in_flight = False
        self._attempts = 0
        self._next_ms = 0
        finder.on_fault.append(self._fail_all)

    def read(self, partitions: Iterable[TopicPartition] | None) -> Pending[Stored]:
        """Ask for committed offsets; None where nothing is stored. Without partitions: all that the group has stored."""
        reading = Reading(partitions)
        self._readings.append(reading)
        return reading.pending

    def pump(self, now_ms: int) -> None:
        self._readings = [reading for reading in self._readings if not reading.pending.done]
        if self._readings or any(state.phase is Phase.AWAITING_COMMITTED for state in self._subscription.unsettled):
            channel = self._finder.channel(Lane.GROUP, now_ms)
            if channel is not None:
                self._send(channel, now_ms)

    def _send(self, channel: Channel, now_ms: int) -> None:
        if self._in_flight:
            return
        if self._next_ms > now_ms:
            self._timer.at(self._next_ms)
            return
        waiting = {
            state: state.ticket
            for state in self._subscription.unsettled
            if state.phase is Phase.AWAITING_COMMITTED and state.error is None
        }  # fmt: skip
        partitions = {state.tp for state in waiting}.union(*(reading.missing for reading in self._readings))
        # A request names partitions or asks for all that are stored: those who want all wait for the others.
        everything = [] if partitions else [reading for reading in self._readings if reading.everything]
        if not (partitions or everything):
            return
        try:
            version = self._channels.version(
                channel, tables.OFFSET_FETCH, at_least=2 if everything else 0, at_most=NEWEST_BY_NAME
            )
        except UnsupportedVersionError as error:
            self._fail_all(error)
            return
        by_topic: dict[str, list[int]] = {}
        for tp in sorted(partitions):
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        topics = [{"name": name, "partition_indexes": indexes} for name, indexes in by_topic.items()]
        body: dict[str, Any] = {"group_id": self._group, "topics": None if everything else topics}
        me = self.membership.credentials() if self._is_signed and version >= 9 and self.membership.is_active else None
        if me is not None:
            body |= {"member_id": me.member_id, "member_epoch": me.generation}
        if version >= 8:
            body = {"groups": [body]}
        if version >= 7:
            # A pending transaction of this group's offsets must show as such, not as the offset before it (KIP-447).
            body["require_stable"] = self._is_stable

        def answered(body: Any, now_ms: int) -> None:
            self._in_flight = False
            group = body
            if version >= 8:
                group = next((g for g in body["groups"] if g["group_id"] == self._group), None)
            if (code := 14 if group is None else group["error_code"]) != 0:
                self._was_refused(code, me, channel, now_ms)
            elif (twice := _answered_twice(group)) is not None:
                self._read_again(now_ms)
                self._fail_all(ProtocolError(f"the coordinator answered twice for {twice}; which is right can't be known"))
            elif everything:
                self._all_was_read(group, everything, channel, now_ms)
            else:
                self._was_read(group, partitions, waiting, channel, now_ms)

        def failed(error: FastFetchError, now_ms: int) -> None:
            self._in_flight = False
            self._finder.forget(str(error), now_ms, channel)

        self._in_flight = True
        self._channels.send(channel, tables.OFFSET_FETCH, version, body, now_ms, on_answer=answered, on_failure=failed)

    def _was_refused(self, code: int, sent: Credentials | None, channel: Channel, now_ms: int) -> None:
        """An error for the group as a whole."""
        self._say_trouble(error_name(code))
        if code in MOVED:
            self._finder.forget(error_name(code), now_ms, channel)
            return
        self._read_again(now_ms)
        if sent is not None and code in NO_MEMBER_OF_IT:
            self.membership.offset_fetch_refused(code, sent, now_ms)
        elif not is_retriable(code):
            what = (
                f"not allowed to use group {self._group!r}" if code == 30 else f"reading offsets of group {self._group!r} failed"
            )
            self._fail_all(broker_error(code, what))

    def _was_read(
        self, group: Any, asked: set[TopicPartition], waiting: dict[PartitionState, int], channel: Channel, now_ms: int
    ) -> None:
        by_tp = {state.tp: (state, ticket) for state, ticket in waiting.items()}
        left = set(asked)
        again = False
        for topic in group["topics"]:
            for part in topic["partitions"]:
                tp = TopicPartition(topic["name"], part["partition_index"])
                if tp not in left:
                    continue
                left.discard(tp)
                if self._is_to_be_read_again(tp, part["error_code"], channel, now_ms):
                    again = True
                elif part["error_code"] != 0 or part["committed_offset"] < -1:
                    self._not_read(tp, part, by_tp.get(tp))
                    again = True  # once the error was raised
                else:
                    self._one_read(tp, part, by_tp.get(tp))
        if left or again:
            self._read_again(now_ms)
        else:
            self._attempts = 0

    def _all_was_read(self, group: Any, readings: list[Reading], channel: Channel, now_ms: int) -> None:
        """The answer to those who asked for all that is stored. They get all of it, or an error, or it is asked for again."""
        found: Stored = {}
        for topic in group["topics"]:
            for part in topic["partitions"]:
                tp = TopicPartition(topic["name"], part["partition_index"])
                if self._is_to_be_read_again(tp, part["error_code"], channel, now_ms):
                    self._read_again(now_ms)
                    return
                if part["error_code"] != 0 or part["committed_offset"] < -1:
                    error = self._why_not_read(tp, part)
                    for reading in readings:
                        reading.pending.fail(error)
                    return
                found[tp] = _stored(part)
        self._attempts = 0
        for reading in readings:
            reading.pending.resolve({tp: at for tp, at in found.items() if at is not None})

    def _is_to_be_read_again(self, tp: TopicPartition, code: int, channel: Channel, now_ms: int) -> bool:
        """Does an error pass? A coordinator that has moved is forgotten."""
        if code in MOVED:
            self._finder.forget(error_name(code), now_ms, channel)
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
            self._committed[tp] = OffsetAndMetadata(stored.offset, "", stored.leader_epoch)
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
        self._attempts += 1
        self._next_ms = now_ms + self._backoff.delay_ms(self._attempts)
        self._timer.at(self._next_ms)

    def _fail_all(self, error: FastFetchError) -> None:
        """Everything that waits hears of an error that no retry can cure."""
        for reading in self._readings:
            reading.pending.fail(error)
        for state in self._subscription.unsettled:
            if state.phase is Phase.AWAITING_COMMITTED:
                state.fail(error, sticky=False)


def _answered_twice(group: Any) -> TopicPartition | None:
    seen: set[TopicPartition] = set()
    for topic in group["topics"]:
        for part in topic["partitions"]:
            tp = TopicPartition(topic["name"], part["partition_index"])
            if tp in seen:
                return tp
            seen.add(tp)
    return None


def _stored(part: Any) -> OffsetAndMetadata | None:
    """What an answer says is stored for a partition."""
    epoch = part["committed_leader_epoch"] if part["committed_leader_epoch"] >= 0 else None
    return None if part["committed_offset"] < 0 else OffsetAndMetadata(part["committed_offset"], part["metadata"] or "", epoch)
