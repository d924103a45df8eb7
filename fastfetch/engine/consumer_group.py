"""A member of a group under the consumer protocol (KIP-848): one request, ConsumerGroupHeartbeat, and the broker assigns.

    UNJOINED --a poll, and nothing that was lost is left to give up--> JOINING --answered--> JOINED
        ^                                                                 |                     |
        +--- 110, 25: what was owned is lost; left, no polls, fatal ------+---------------------+

A heartbeat says who this member is and what has changed since the last one that was answered; after joining, an error or a lost
answer it says everything. The answer may bring a *target*: the partitions that may be used now, by topic id. What this member
holds is led there by the caller's polls: what is not in the target is given up first, then what is new is taken over, and each
step is acknowledged by a heartbeat at once, since the next owner waits for it; so is a target that asks for nothing, for what is
owned may have been told before the coordinator asked. An id that metadata doesn't know waits for them.

The broker does not say how long a session lasts, only how often to send. So this side ends none: the coordinator's word counts.
But a member none of whose last heartbeats was acknowledged for `DOUBT` intervals, because it was stopped or can't reach the
coordinator, may have been thrown out, and hands out nothing until the next answer tells. A session is never that short unless
somebody sets it below three heartbeats.

What an error code does is in `REACTIONS`. An answer counts only if nothing has changed since its question was asked: a ticket
numbers the joins, so that no answer for an old membership can touch a new one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from enum import Enum
from typing import Any

from fastfetch.engine.channels import Channel, Lane
from fastfetch.engine.membership import Credentials, Duty, GiveUp, Membership, TakeOver
from fastfetch.engine.sharing import names
from fastfetch.engine.subscription import Mode, Phase
from fastfetch.errors import (
    FastFetchError,
    ProtocolError,
    RebalanceInProgressError,
    UnsupportedVersionError,
    broker_error,
    error_name,
)
from fastfetch.protocol import tables
from fastfetch.types import GroupMetadata, TopicPartition

__all__ = ["REACTIONS", "ConsumerGroup", "Reaction", "State"]

log = logging.getLogger("fastfetch.engine")

JOIN = 0  # member epochs that are none
LEAVE = -1
LEAVE_FOR_NOW = -2  # of a static member: what it owns waits for it, as long as a session lasts

DOUBT = 3  # intervals without an acknowledged heartbeat
USUAL_INTERVAL_MS = 5_000  # Kafka's default, until the broker has said another
SHORTEST_INTERVAL_MS = 100
LONGEST_INTERVAL_MS = 60_000
SHORTEST_TIMEOUT_MS = 5_000  # of a heartbeat, whatever the interval
NAMES_FIRST_MS = 5_000  # how long revoking waits for metadata to name the rest of a target
GOODBYE_MS = 1_000  # for leaving; nobody waits longer


class State(Enum):
    UNJOINED = "unjoined"
    JOINING = "joining"  # the coordinator may know of this member
    JOINED = "joined"


class Reaction(Enum):
    """What an error code leads to."""

    RETRY = "the same again after a back-off"
    REDISCOVER = "look for the coordinator, then the same again"
    TELL = "the next poll raises it; heartbeats go on"
    REJOIN = "what was owned is lost; join again with the same member id"
    HURRY = "heartbeat soon: the epoch has changed"


HEARTBEAT: dict[int, Reaction] = {
    14: Reaction.RETRY,
    15: Reaction.REDISCOVER,
    16: Reaction.REDISCOVER,
    25: Reaction.REJOIN,
    29: Reaction.TELL,
    110: Reaction.REJOIN,
}
OFFSETS: dict[int, Reaction] = {
    22: Reaction.HURRY,
    25: Reaction.REJOIN,
    27: Reaction.HURRY,
    110: Reaction.REJOIN,
    113: Reaction.HURRY,
}
REACTIONS = {"ConsumerGroupHeartbeat": HEARTBEAT, "OffsetCommit": OFFSETS, "OffsetFetch": OFFSETS}
"""By request and error code. A code that is not in here is fatal: raised once, with its number, and nothing more is asked."""
OFFSET_CODES = frozenset({*OFFSETS, 82})  # those that say something about the member

_WHAT: dict[int, str] = {
    23: "the group has members of the classic protocol, and the broker's group.consumer.migration.policy lets nobody mix them",
    24: "the broker takes this for no group id",
    29: "not allowed to read a topic that is subscribed",
    30: "not allowed to use the group",
    35: "the cluster does not offer the consumer protocol; use group_protocol='classic'",
    81: "the group has as many members as the broker's group.consumer.max.size allows",
    82: "another member has taken over group_instance_id; give each running member one of its own",
    111: "another member holds group_instance_id, or one that ended without closing did so until a session ago; give each "
    "running member one of its own, or wait",
    112: "the broker has no such group_remote_assignor",
    128: "the broker can't use the pattern, which is to be one of RE2/J",
}


class ConsumerGroup(Membership):
    """See the module. `state` and `epoch` are this member's; the broker is the finder's business.

    `member_id` is made by the client, different for each, and stays (KIP-1082). A broker that only knows version 0 makes one.
    """

    def __init__(self, *arguments: Any, member_id: str, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.state = State.UNJOINED
        self.epoch = JOIN
        self.member_id = member_id
        self._their_id = ""  # of version 0
        self._is_invited = False  # a poll has asked for partitions
        self._ticket = 0  # grows with every membership
        # --- heartbeats
        self._in_flight = False
        self._failures = 0  # in a row
        self._next_ms = 0
        self._sent_ms = 0  # the last one
        self._heard_ms = 0  # when the last one that was acknowledged had been sent
        self._interval_ms = USUAL_INTERVAL_MS
        self._is_urgent = False  # there is something to tell
        self._in_doubt = False  # as of the last pass
        self._told: dict[str, Any] = {}  # what the coordinator knows by now
        # --- the assignment
        self._target: dict[bytes, list[int]] = {}
        self._target_ms = 0
        self._wanted: dict[TopicPartition, bytes] = {}  # as much of the target as has names, with the topic's id
        self._unnamed: set[bytes] = set()  # the rest
        self._owes_ack = False  # the coordinator waits to hear what is owned, even if it has heard that before
        self._ack_is_due = False  # there is nothing to do before
        self._named_at = -1  # cluster's version
        self._settled_at = -1  # cluster's version, if there was nothing to do
        self._ids: dict[TopicPartition, bytes] = {}  # of what is assigned
        self._held: dict[TopicPartition, bytes] = {}  # the same, once the caller has taken it over
        # --- ends
        self._end = ""  # why this is no member any more
        self._goodbye_until_ms: int | None = None  # not None: leaving, until then at most
        self._goodbye_in_flight = False

    # --- the caller -----------------------------------------------------------------------------------------------------

    def subscribe(self, now_ms: int) -> None:
        self._fatal, self.fault, self._remind_at_ms = None, None, 0
        self._failures = 0
        if self.state is State.UNJOINED:
            self._is_invited = False
        self._is_urgent = True
        self._look_again()

    def enforce_rebalance(self, reason: str) -> None:
        log.warning("group %r: enforce_rebalance() does nothing under group_protocol='consumer': the broker assigns", self._group)

    def leave(self, reason: str, now_ms: int) -> None:
        self._say_goodbye(now_ms)
        self._end = reason
        self._reset()
        self._ids.clear()
        self._is_invited = False
        self._forget_caller()

    @property
    def is_leaving(self) -> bool:
        return self._goodbye_until_ms is not None

    def is_in_doubt(self, now_ms: int) -> bool:
        return self.state is State.JOINED and now_ms - self._heard_ms > DOUBT * self._interval_ms

    # --- commits --------------------------------------------------------------------------------------------------------

    def credentials(self) -> Credentials | None:
        if self.state is not State.JOINED:
            return None
        return Credentials(self.epoch, self._id, self._config.group_instance_id)

    def why_no_commit(self) -> FastFetchError:
        if self._fatal is not None:
            return self._fatal
        if not self._end and not self._is_lost:
            return RebalanceInProgressError(
                f"this consumer is joining group {self._group!r}: nothing was committed; poll until it has joined, then commit "
                "what is assigned"
            )
        return self._no_member(
            f"this consumer is no member of it{f' ({self._end})' if self._end else ''}; the partitions may belong to another "
            "member, which goes on at the last commit. Poll to join again"
        )

    def commit_refused(self, code: int, sent: Credentials, now_ms: int) -> None:
        if code in OFFSET_CODES and self.credentials() == sent:
            self._react("OffsetCommit", code, None, now_ms)

    def offset_fetch_refused(self, code: int, sent: Credentials, now_ms: int) -> None:
        if code in OFFSET_CODES and self.credentials() == sent:
            self._react("OffsetFetch", code, None, now_ms)

    def group_metadata(self) -> GroupMetadata:
        epoch = self.epoch if self.state is State.JOINED else -1
        return GroupMetadata(self._group, epoch, self._id, self._config.group_instance_id)

    # --- the engine -----------------------------------------------------------------------------------------------------

    def fail(self, error: FastFetchError) -> None:
        if not self.is_active:
            return
        self.fault = self._fatal = error
        self._lose_membership(str(error))

    def pump(self, now_ms: int) -> None:
        if self._goodbye_until_ms is not None:
            self._send_goodbye(now_ms)
        if not self.is_active:
            return
        self.wants_pump = False
        if self._fatal is not None:
            self._remind(now_ms)
            return
        self._check_clocks(now_ms)
        if self.state is State.JOINED:
            self._watch_doubt(now_ms)
            self._name_target()
        elif not self._may_join:
            return
        if self._in_flight:
            return
        if self._next_ms > now_ms and not (self._is_urgent and self._failures == 0):
            self._timer.at(self._next_ms)
            return
        channel = self._finder.channel(Lane.MEMBER, now_ms)
        if channel is not None:
            self._send_heartbeat(channel, now_ms)

    def _watch_doubt(self, now_ms: int) -> None:
        was_in_doubt, self._in_doubt = self._in_doubt, self.is_in_doubt(now_ms)
        if not self._in_doubt:
            self._timer.at(self._heard_ms + DOUBT * self._interval_ms + 1)
        elif not was_in_doubt:
            log.warning(
                "group %r: the coordinator has acknowledged no heartbeat for %d ms; nothing is handed out until it does",
                self._group, now_ms - self._heard_ms,
            )  # fmt: skip
            for state in self._subscription:
                if state.phase is Phase.FETCHING and state.buffer_end is not None:
                    state.halt(state.buffer_end)  # whoever iterates over its records stops
            self._subscription.has_moved = True

    @property
    def _may_join(self) -> bool:
        """Not before a poll asks for partitions, nor before it has given up those of the last membership."""
        return self._is_invited and not self._is_lost and self._goodbye_until_ms is None

    # --- duties ---------------------------------------------------------------------------------------------------------

    def _next_duty(self, now_ms: int) -> Duty | None:
        if not self._is_invited:
            self._is_invited = self.wants_pump = True
        if self.state is not State.JOINED or self._settled_at == self._cluster.version:
            return None
        self._name_target()
        # Not for committing: a position in the old topic would be taken for one in the new.
        gone = [tp for tp in self._ids if self._is_recreated(tp)]
        if gone:
            return GiveUp(tuple(gone), is_lost=True)
        going = [tp for tp, topic_id in self._ids.items() if self._wanted.get(tp) != topic_id]
        if going:
            # One of the ids without a name may be that of a topic created anew, and some of these may be of its predecessor.
            if self._unnamed and now_ms < self._target_ms + NAMES_FIRST_MS:
                return None
            return GiveUp(tuple(going), is_lost=False)
        coming = tuple(tp for tp in self._wanted if tp not in self._ids)
        if coming:
            self._ids.update((tp, self._wanted[tp]) for tp in coming)
            self._subscription.take_over(coming)
            return TakeOver(coming, generation=self.epoch)
        self._settled_at = self._cluster.version
        if self._owes_ack:
            self._ack_is_due = self._is_urgent = self.wants_pump = True
        return None

    def _after_duty(self, duty: Duty, now_ms: int) -> None:
        if isinstance(duty, GiveUp):
            for tp in duty.partitions:
                self._ids.pop(tp, None)
                self._held.pop(tp, None)
        elif self.state is State.JOINED:
            self._held = dict(self._ids)
            log.info("group %r: epoch %d, assigned %s", self._group, self.epoch, names(self._held))
        self._is_urgent = True
        self._settled_at = -1

    def _is_recreated(self, tp: TopicPartition) -> bool:
        topic = self._cluster.topics.get(tp.topic)
        return topic is not None and topic.topic_id not in (None, self._ids[tp])

    def _look_again(self) -> None:
        self._named_at = self._settled_at = -1
        self.has_news = True

    def _name_target(self) -> None:
        """Metadata have changed, or the target has: what is it by names?"""
        if self._named_at == self._cluster.version:
            return
        self._named_at, self._settled_at = self._cluster.version, -1
        self._wanted, self._unnamed = {}, set()
        for topic_id, partitions in self._target.items():
            name = self._cluster.name_of(topic_id)
            if name is None:
                self._unnamed.add(topic_id)
            elif self._subscription.mode is Mode.PATTERN or name in self._subscription.topics:
                self._want(topic_id, name, partitions)
        self.has_news = True

    def _want(self, topic_id: bytes, name: str, partitions: Iterable[int]) -> None:
        topic = self._cluster.topics.get(name)
        for partition in partitions:
            tp = TopicPartition(name, partition)
            if tp in self._ids or (topic is not None and partition in topic.partitions):
                self._wanted[tp] = topic_id
            else:
                self._metadata.request_update()  # these are older than the partition

    # --- heartbeats -----------------------------------------------------------------------------------------------------

    @property
    def _id(self) -> str:
        return self._their_id or self.member_id

    def _send_heartbeat(self, channel: Channel, now_ms: int) -> None:
        version = self._version(channel)
        if version is None:
            return
        says = self._says(version)
        changed = {name: value for name, value in says.items() if name not in self._told or self._told[name] != value}
        if self._ack_is_due:
            changed["topic_partitions"] = says["topic_partitions"]
        if "topic_partitions" in changed:
            self._owes_ack = self._ack_is_due = False
        ticket, sent_ms = self._ticket, now_ms

        def answered(body: Any, now_ms: int) -> None:
            if ticket != self._ticket:
                return
            self._in_flight = False
            if body["error_code"] != 0:
                self._told = {}
                self._react("ConsumerGroupHeartbeat", body["error_code"], body["error_message"], now_ms, channel)
            else:
                self._told = says
                self._acknowledged(body, sent_ms, now_ms)

        def failed(error: FastFetchError, now_ms: int) -> None:
            if ticket == self._ticket:
                self._in_flight = False
                self._told = {}
                self._wait(now_ms)
            self._finder.forget(str(error), now_ms, channel)

        if self.state is State.UNJOINED:
            self.state = State.JOINING
            log.info("group %r: joining", self._group)
        self._in_flight, self._is_urgent = True, False
        self._sent_ms, self._next_ms = now_ms, now_ms + self._interval_ms
        self._channels.send(
            channel, tables.CONSUMER_GROUP_HEARTBEAT, version, self._signed(version, self.epoch) | changed, now_ms,
            on_answer=answered, on_failure=failed,
            # Early enough to find another coordinator within the session.
            timeout_ms=min(self._config.request_timeout_ms, max(DOUBT * self._interval_ms, SHORTEST_TIMEOUT_MS)),
        )  # fmt: skip

    def _signed(self, version: int, epoch: int) -> dict[str, Any]:
        return {
            "group_id": self._group,
            "member_id": self._their_id if version < 1 else self._id,
            "member_epoch": epoch,
            "instance_id": self._config.group_instance_id,
        }

    def _says(self, version: int) -> dict[str, Any]:
        """All that a heartbeat can say of this member."""
        config = self._config
        owned: dict[bytes, list[int]] = {}
        for tp, topic_id in sorted(self._held.items()):
            owned.setdefault(topic_id, []).append(tp.partition)
        says = {
            "rack_id": config.client_rack or None,
            "rebalance_timeout_ms": config.max_poll_interval_ms,
            "subscribed_topic_names": [] if self._subscription.mode is Mode.PATTERN else sorted(self._subscription.topics),
            "server_assignor": config.group_remote_assignor,
            "topic_partitions": [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in owned.items()],
        }
        if version >= 1:  # "": no pattern any more
            says["subscribed_topic_regex"] = self._subscription.pattern or ""
        return says

    def _acknowledged(self, body: Any, sent_ms: int, now_ms: int) -> None:
        if body["member_epoch"] <= 0:
            self.fail(ProtocolError(f"group {self._group!r}: the coordinator gave {body['member_epoch']} as this member's epoch"))
            return
        self._failures, self._heard_ms = 0, sent_ms
        self._interval_ms = min(max(body["heartbeat_interval_ms"], SHORTEST_INTERVAL_MS), LONGEST_INTERVAL_MS)
        self._next_ms = sent_ms + self._interval_ms
        if self.state is State.JOINING:
            self._their_id = "" if self._id == body["member_id"] else body["member_id"] or ""
            self.state, self._end = State.JOINED, ""
            log.info("group %r: member %s has joined with epoch %d", self._group, self._id, body["member_epoch"])
        self.epoch = body["member_epoch"]
        if body["assignment"] is not None:
            self._target = {}
            for topic in body["assignment"]["topic_partitions"]:
                self._target.setdefault(topic["topic_id"], []).extend(topic["partitions"])
            self._target_ms = now_ms
            self._owes_ack = True
            self._metadata.ask_ids(self._target)
            self._look_again()

    def _wait(self, now_ms: int) -> None:
        self._failures += 1
        self._next_ms = now_ms + self._backoff.delay_ms(self._failures)

    def _check_clocks(self, now_ms: int) -> None:
        away = self._stayed_away_ms(now_ms)
        if away is not None and self.state is not State.UNJOINED:
            self._say_goodbye(now_ms)
            self._is_invited = False
            self._lose_membership(
                f"no poll for {away} ms, longer than max_poll_interval_ms ({self._config.max_poll_interval_ms}): process less "
                "between two polls (max_poll_records), or raise it"
            )

    # --- errors ---------------------------------------------------------------------------------------------------------

    def _react(self, request: str, code: int, message: str | None, now_ms: int, asked: Channel | None = None) -> None:
        log.info("group %r: %s was answered with %s (code %d): %s", self._group, request, error_name(code), code, message)
        match REACTIONS[request].get(code):
            case Reaction.RETRY:
                self._wait(now_ms)
            case Reaction.REDISCOVER:
                self._finder.forget(error_name(code), now_ms, asked)
                self._wait(now_ms)
            case Reaction.TELL:
                self.fault = self._error(request, code, message)
                self.has_news = True
            case Reaction.REJOIN:
                self._lose_membership(f"{request} was answered with {error_name(code)}")
                self._wait(now_ms)
            case Reaction.HURRY:
                self._next_ms = min(self._next_ms, max(now_ms, self._sent_ms + self._config.retry_backoff_ms))
            case None:
                self.fail(self._error(request, code, message))

    def _error(self, request: str, code: int, message: str | None) -> FastFetchError:
        said = f" (the broker says: {message})" if message else ""
        return broker_error(code, f"group {self._group!r}: {_WHAT.get(code, f'{request} was refused')}{said}")

    def _lose_membership(self, why: str) -> None:
        self._end = why
        self._reset()
        self._lose(why)

    def _reset(self) -> None:
        """No member any more."""
        self.state, self.epoch = State.UNJOINED, JOIN
        self._ticket += 1
        self._in_flight = False
        self._is_urgent = True
        self._told = {}
        self._target, self._wanted, self._unnamed = {}, {}, set()
        self._metadata.ask_ids(())
        self._held = {}
        self._settled_at = -1

    # --- leaving --------------------------------------------------------------------------------------------------------

    def _say_goodbye(self, now_ms: int) -> None:
        if self.state is not State.UNJOINED and self._id:
            self._goodbye_until_ms = now_ms + GOODBYE_MS

    def _send_goodbye(self, now_ms: int) -> None:
        """Best effort: a coordinator that is not there finds out by itself."""
        until_ms = self._goodbye_until_ms
        assert until_ms is not None
        if now_ms >= until_ms:
            self._end_goodbye()
            return
        self._timer.at(until_ms)
        # Behind the heartbeat that may be under way: one with epoch 0 would make a member of this one again.
        channel = None if self._goodbye_in_flight else self._finder.channel(Lane.MEMBER, now_ms)
        version = None if channel is None else self._version(channel)
        if channel is None or version is None:
            return

        def ended(_: object, now_ms: int) -> None:
            if self._goodbye_until_ms == until_ms:
                self._end_goodbye()

        self._goodbye_in_flight = True
        epoch = LEAVE if self._config.group_instance_id is None else LEAVE_FOR_NOW
        self._channels.send(
            channel, tables.CONSUMER_GROUP_HEARTBEAT, version, self._signed(version, epoch), now_ms,
            on_answer=ended, on_failure=ended,
        )  # fmt: skip

    def _end_goodbye(self) -> None:
        self._goodbye_until_ms, self._goodbye_in_flight = None, False
        self.has_news = True

    # --- helpers --------------------------------------------------------------------------------------------------------

    def _version(self, channel: Channel) -> int | None:
        is_pattern = self._subscription.mode is Mode.PATTERN
        try:
            return self._channels.version(channel, tables.CONSUMER_GROUP_HEARTBEAT, at_least=1 if is_pattern else 0)
        except UnsupportedVersionError as error:
            by_name = "subscribe to topics by name, as only brokers from 4.0 on match patterns; or " if is_pattern else ""
            self.fail(UnsupportedVersionError(f"{error}; {by_name}use group_protocol='classic'"))
            return None
