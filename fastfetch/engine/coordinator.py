"""A member of a group under the classic protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup).

    UNJOINED --caller prepared--> PREPARING --JoinGroup answered--> COMPLETING --SyncGroup answered--> STABLE
        ^                          |   ^                               |  |                             |  |
        |                          |   +------- 22, 25, 27, moved -----+  |        27, subscription or  |  |
        |                          |   +----------------------------------+--- partitions changed ------+  |
        +-- fatal, left, expired --+--------------------------------------------- 22, 25, expired, 82 -----+

Before a join the caller gives up what has to go: everything under the eager protocol, next to nothing under the cooperative one
(KIP-429), where partitions are kept and only those that move are revoked when the assignment is there; then this member joins
once more, and the partitions reach their new owner in that round.

What an error code does is in `reactions`. An answer counts only if nothing has changed since its question was asked: a ticket
numbers the states, so that no answer for an old generation can touch a new one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from fastfetch.engine.assignors import Assignment, Assignor, GroupCluster, Subscription, make_assignors, rebalance_protocol
from fastfetch.engine.channels import Channel, Lane
from fastfetch.engine.goodbye import LONGEST_REASON, Goodbye
from fastfetch.engine.membership import Credentials, Describe, Duty, GiveUp, Membership, ShareOut, TakeOver
from fastfetch.engine.reactions import COMMIT_CODES, REACTIONS, WHAT, Reaction
from fastfetch.engine.sharing import GroupTopics, encode_shares, names, read_subscriptions
from fastfetch.engine.subscription import Mode
from fastfetch.errors import (
    FastFetchError,
    ProtocolError,
    RebalanceInProgressError,
    UnsupportedVersionError,
    UsageError,
    broker_error,
    error_name,
)
from fastfetch.protocol import Api, tables
from fastfetch.protocol.consumer_protocol import decode_assignment, encode_subscription
from fastfetch.types import GroupMetadata, TopicPartition

__all__ = ["Coordinator", "State"]

log = logging.getLogger("fastfetch.engine")

PROTOCOL_TYPE = "consumer"
JOIN_GRACE_MS = 5_000  # beyond the rebalance timeout, for which JoinGroup may wait
KNOW_FIRST_MS = 5_000  # how long taking over waits for metadata that know the partitions


class State(Enum):
    UNJOINED = "unjoined"
    PREPARING = "preparing"  # about to join, or waiting for the answer
    COMPLETING = "completing"  # joined, without an assignment
    STABLE = "stable"


class Coordinator(Membership):
    """See the module. `state`, `generation` and `member_id` are this member's; the broker is the finder's business."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._assignors: dict[str, Assignor] = {a.name: a for a in make_assignors(self._config.partition_assignment_strategy)}
        self._is_cooperative = rebalance_protocol(self._assignors.values()) == "cooperative"
        self.state = State.UNJOINED
        self.member_id = ""
        self.generation = -1
        self._owned_since = -1  # the generation that the present assignment is of
        self._ticket = 0  # grows with every change of state
        self._in_flight = False  # a JoinGroup or SyncGroup
        self._failures = 0  # of these, in a row
        self._retry_at_ms = 0
        self._why_join: str | None = None  # not None: join (again), for this reason
        self._gave_up = False  # the caller did, for the next join
        self._user_data: Mapping[str, bytes | None] | None = None  # by assignor, for the next join
        self._joined_topics: frozenset[str] = frozenset()  # as this member told the group
        self._protocol = ""  # the assignor that the group voted for
        # --- as leader of the present generation
        self._group_topics = GroupTopics(self._cluster, self._metadata)
        self._subscriptions: dict[str, Subscription] | None = None  # to be shared out
        self._shares: list[dict[str, Any]] | None = None  # SyncGroup's assignments, once they are known
        # --- the assignment to take over
        self._assignment: Assignment | None = None
        self._has_revoked = False
        self._synced_ms = 0  # when it came
        # --- signs of life
        self._heard_ms = 0  # when the last heartbeat that was acknowledged had been sent
        self._pumped_ms: int | None = None
        self._heartbeat_in_flight = False
        self._heartbeat_next_ms = 0
        self._heartbeat_failures = 0
        # --- ends
        self._end = ""  # why this is no member any more
        self._goodbye = Goodbye(self._config, self._channels, self._finder, self._timer)

    # --- the caller -----------------------------------------------------------------------------------------------------

    def subscribe(self, now_ms: int) -> None:
        self._fatal, self.fault, self._remind_at_ms = None, None, 0
        if self.state is State.UNJOINED:
            self._request_join("joining")
        # A member that has joined is asked by pump() whether its topics have changed.

    def enforce_rebalance(self, reason: str) -> None:
        self._request_join(reason or "rebalance enforced by user")

    def leave(self, reason: str, now_ms: int) -> None:
        self._say_goodbye(reason, now_ms)
        self._end = reason
        self._reset(keep_id=False)
        self._forget_caller()
        self._why_join = None

    @property
    def is_leaving(self) -> bool:
        return self._goodbye.is_pending

    # --- commits --------------------------------------------------------------------------------------------------------

    def credentials(self) -> Credentials | None:
        # While others are waited for, a coordinator takes commits of the last generation; only must nothing be read after them.
        is_in = self.state is State.STABLE or (self.state is State.PREPARING and self._is_parting)
        if not is_in or self._is_lost or self.generation < 0:
            return None
        return Credentials(self.generation, self.member_id, self._config.group_instance_id)

    def why_no_commit(self) -> FastFetchError:
        if self._fatal is not None:
            return self._fatal
        if self.state in (State.PREPARING, State.COMPLETING) and not self._is_lost:
            return RebalanceInProgressError(
                f"group {self._group!r} is rebalancing: nothing was committed; poll until it has ended, then commit what is "
                "still assigned"
            )
        why = f" ({self._end})" if self._end else ""
        return self._no_member(
            f"this consumer is no member of it{why}; the partitions may belong to another one, which goes on at the last commit. "
            "Poll to join again"
        )

    def commit_refused(self, code: int, sent: Credentials, now_ms: int) -> None:
        if code not in COMMIT_CODES or self.credentials() != sent:
            return
        self._react("OffsetCommit", code, now_ms)

    def group_metadata(self) -> GroupMetadata:
        return GroupMetadata(self._group, self.generation, self.member_id, self._config.group_instance_id)

    # --- the engine -----------------------------------------------------------------------------------------------------

    def topics(self) -> Iterable[str]:
        return self._group_topics.names

    def fail(self, error: FastFetchError) -> None:
        if not self.is_active:
            return
        self.fault = self._fatal = error
        self._end = str(error)
        self._reset(keep_id=False)
        self._lose(self._end)
        self._why_join = None

    def pump(self, now_ms: int) -> None:
        self._goodbye.pump(now_ms)
        self.has_news |= self._goodbye.has_news
        self._goodbye.has_news = False
        if not self.is_active:
            self._pumped_ms = None
            return
        self._check_clocks(now_ms)
        self._pumped_ms = now_ms
        if self._fatal is not None:
            self._remind(now_ms)
            return
        self._watch_topics()
        channel = self._finder.channel(Lane.MEMBER, now_ms)
        if self.state is not State.UNJOINED:
            self._timer.at(now_ms + self._config.heartbeat_interval_ms)  # so that a gap between two passes tells of a long sleep
        if channel is None or self._in_flight:
            pass
        elif self._retry_at_ms > now_ms:
            self._timer.at(self._retry_at_ms)
        elif self.state is State.PREPARING:
            self._send_join(channel, now_ms)
        elif self.state is State.COMPLETING and self._shares is not None:
            self._send_sync(channel, now_ms)
        if self.generation >= 0:  # also while a join waits for others: partitions may be read on meanwhile
            self._send_heartbeat(now_ms)

    def _watch_topics(self) -> None:
        """Does what the group shares out still fit what there is?"""
        if self.state is not State.STABLE:
            return
        if self._subscription.topics != self._joined_topics:
            self._request_join("the subscription has changed")
        changed = self._group_topics.changed()
        if changed:
            self._request_join(f"partitions of {', '.join(changed[:5])} have changed")

    # --- duties ---------------------------------------------------------------------------------------------------------

    def _next_duty(self, now_ms: int) -> Duty | None:
        if self._subscription.mode is Mode.PATTERN and not self._subscription.is_matched:
            return None  # which topics those are is not known yet
        if self._assignment is not None:
            return self._next_of_takeover(self._assignment, now_ms)
        if self._subscriptions is not None:
            return self._next_of_sharing(self._subscriptions)
        if self._why_join is None or self.state not in (State.UNJOINED, State.STABLE):
            return None
        return self._next_of_joining()

    def _next_of_joining(self) -> Duty | None:
        if self.state is State.STABLE and self._user_data is None:
            owned = self._owned()
            going = {tp for tp in owned if not self._is_cooperative or tp.topic not in self._subscription.topics}
            if not self._gave_up and (owned or not self._is_cooperative):
                return GiveUp(tuple(going), is_lost=False, tell=not self._is_cooperative or bool(going))
        if self._user_data is None:
            return Describe(tuple(self._assignors.values()), self._subscription.topics)
        return None

    def _next_of_sharing(self, subscriptions: dict[str, Subscription]) -> Duty | None:
        counts = self._group_topics.share()
        if counts is None:
            return None  # some are being looked up
        return ShareOut(self._assignors[self._protocol], GroupCluster(counts), subscriptions)

    def _next_of_takeover(self, assignment: Assignment, now_ms: int) -> Duty | None:
        # Of topics that were unsubscribed meanwhile nothing is taken; this member joins again because of them.
        given = dict.fromkeys(tp for tp in assignment.partitions if tp.topic in self._subscription.topics)
        owned = self._owned()
        going = owned.difference(given)
        if going and not self._has_revoked:
            return GiveUp(tuple(going), is_lost=False)
        added = tuple(tp for tp in given if tp not in owned)
        if now_ms < self._synced_ms + KNOW_FIRST_MS and not self._knows(added):
            return None
        self._subscription.take_over(added)
        return TakeOver(added, self._assignors[self._protocol], assignment, self.generation)

    def _knows(self, partitions: Iterable[TopicPartition]) -> bool:
        """If not, metadata are asked for: the leader's are newer."""
        knows = all(self._cluster.knows(tp) for tp in partitions)
        if not knows:
            self._metadata.request_update()
        return knows

    def _after_duty(self, duty: Duty, now_ms: int) -> None:
        if isinstance(duty, GiveUp):
            if duty.is_lost:
                return
            if self._assignment is not None:
                self._has_revoked = True
            else:
                self._gave_up = True
        elif isinstance(duty, Describe):
            if duty.error is None and self._why_join is not None and self.state in (State.UNJOINED, State.STABLE):
                self._user_data = duty.result
                self._enter(State.PREPARING)
        elif isinstance(duty, ShareOut):
            if self._subscriptions is duty.subscriptions:
                self._shared_out(duty, now_ms)
        elif self._assignment is duty.assignment:
            self._assignment = None
            log.info("group %r: generation %d, assigned %s", self._group, self.generation, names(self._owned()))
            if self._has_revoked and self._is_cooperative:
                self._request_join("partitions were revoked for others to take")

    def _shared_out(self, duty: ShareOut, now_ms: int) -> None:
        if duty.error is None:
            try:
                self._shares = encode_shares(duty)
            except Exception as error:  # a user's assignor may return anything
                what = f"assignor {duty.assignor.name!r} must return an Assignment for each member it was given, and no other"
                self.fault = UsageError(f"{what}: {error!r}")
            else:
                self._subscriptions = None
                return
        # The caller hears of it. The group waits for this leader, so it tries again, as the next round's leader or not.
        self._join_again(now_ms, "the assignor has failed")

    # --- joining --------------------------------------------------------------------------------------------------------

    def _request_join(self, reason: str) -> None:
        if self._why_join is None and self._fatal is None:
            log.info("group %r: joining again: %s", self._group, reason)
            self._why_join = reason
            self.has_news = True

    def _enter(self, state: State) -> None:
        """Whatever was asked before is void."""
        self.state = state
        self._ticket += 1
        self._in_flight = self._heartbeat_in_flight = False
        if state is not State.COMPLETING:
            self._subscriptions = self._shares = None
        if state is State.STABLE:
            self._user_data = None
            self._gave_up = False

    def _send_join(self, channel: Channel, now_ms: int) -> None:
        version = self._version(channel, tables.JOIN_GROUP)
        if version is None:
            return
        config, user_data = self._config, self._user_data or {}
        topics = self._subscription.topics
        owned = tuple(self._owned())
        protocols = [
            {
                "name": name,
                "metadata": encode_subscription(
                    Subscription(tuple(topics), user_data.get(name), owned, self._owned_since, config.client_rack or None)
                ),
            }
            for name in self._assignors
        ]
        body = {
            "group_id": self._group,
            "session_timeout_ms": config.session_timeout_ms,
            "rebalance_timeout_ms": config.max_poll_interval_ms,
            "member_id": self.member_id,
            "group_instance_id": config.group_instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": protocols,
            "reason": (self._why_join or "")[:LONGEST_REASON],
        }
        ticket, sent_ms = self._ticket, now_ms

        def answered(body: Any, now_ms: int) -> None:
            if ticket == self._ticket:
                self._in_flight = False
                self._joined(body, sent_ms, now_ms)

        self._in_flight = True
        self._joined_topics = topics
        self._channels.send(
            channel, tables.JOIN_GROUP, version, body, now_ms, on_answer=answered, on_failure=self._failure(channel),
            timeout_ms=max(config.request_timeout_ms, config.max_poll_interval_ms + JOIN_GRACE_MS),
        )  # fmt: skip

    def _joined(self, body: Any, sent_ms: int, now_ms: int) -> None:
        if body["error_code"] != 0:
            if body["error_code"] == 79:
                if self.member_id:  # it was told
                    self._wait(now_ms)
                self.member_id = body["member_id"]
            self._react("JoinGroup", body["error_code"], now_ms)
            return
        if body["protocol_name"] not in self._assignors or body["generation_id"] < 0:
            self.fail(ProtocolError(
                f"group {self._group!r}: the coordinator chose assignor {body['protocol_name']!r} and generation "
                f"{body['generation_id']}; this member offered {', '.join(self._assignors)}"
            ))  # fmt: skip
            return
        self._why_join = None
        # Others may have been waited for, and the answer may be old; a member has sent heartbeats all the while.
        self._heard_ms = now_ms if self.generation < 0 else max(self._heard_ms, sent_ms)
        self.member_id, self.generation, self._protocol = body["member_id"], body["generation_id"], body["protocol_name"]
        self._enter(State.COMPLETING)
        self._heartbeat_next_ms = now_ms + self._config.heartbeat_interval_ms
        self._shares = []
        is_leader = body["leader"] == self.member_id
        subscriptions = read_subscriptions(body["members"] if is_leader else [])
        self._group_topics.want(topic for each in subscriptions.values() for topic in each.topics)
        if is_leader and not body.get("skip_assignment", False):
            self._subscriptions, self._shares = subscriptions, None
        log.info(
            "group %r: member %s %s generation %d with %s",
            self._group, self.member_id, "leads" if is_leader else "follows in", self.generation, self._protocol,
        )  # fmt: skip
        self.has_news = True

    def _send_sync(self, channel: Channel, now_ms: int) -> None:
        version = self._version(channel, tables.SYNC_GROUP)
        if version is None:
            return
        body = self._signed() | {
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": self._protocol,
            "assignments": self._shares,
        }
        ticket, sent_ms = self._ticket, now_ms

        def answered(body: Any, now_ms: int) -> None:
            if ticket == self._ticket:
                self._in_flight = False
                self._synced(body, sent_ms, now_ms)

        self._in_flight = True
        self._channels.send(
            channel, tables.SYNC_GROUP, version, body, now_ms, on_answer=answered, on_failure=self._failure(channel),
            timeout_ms=max(self._config.request_timeout_ms, self._config.max_poll_interval_ms + JOIN_GRACE_MS),
        )  # fmt: skip

    def _synced(self, body: Any, sent_ms: int, now_ms: int) -> None:
        if body["error_code"] != 0:
            self._react("SyncGroup", body["error_code"], now_ms)
            return
        try:
            if body.get("protocol_name") not in (None, self._protocol):
                raise ProtocolError(f"shared out by {body['protocol_name']!r} after a vote for {self._protocol!r}")
            assignment = decode_assignment(body["assignment"])
            strange = [tp for tp in assignment.partitions if tp.topic not in self._joined_topics]
            # A static member that is back gets what its predecessor had, which may have wanted other topics.
            is_legacy = self._config.group_instance_id is not None and self._owned_since < 0
            if strange and not is_legacy:
                raise ProtocolError(f"the leader assigned {names(strange)}, which this member did not subscribe to")
        except ProtocolError as error:
            self.fault = ProtocolError(f"group {self._group!r}: {error}; joining again")
            self._join_again(now_ms, "the assignment makes no sense")
            return
        self._enter(State.STABLE)
        self._failures, self._end, self._owned_since = 0, "", self.generation
        self._heard_ms = max(self._heard_ms, sent_ms)
        self._assignment, self._has_revoked, self._synced_ms = assignment, False, now_ms
        self._knows(assignment.partitions)
        if strange:
            self._joined_topics = frozenset()  # the group has not heard of this one's: it joins again
        self.has_news = True

    def _failure(self, channel: Channel) -> Any:
        ticket = self._ticket

        def failed(error: FastFetchError, now_ms: int) -> None:
            if ticket == self._ticket:
                self._in_flight = False
                self._wait(now_ms)
            self._finder.forget(str(error), now_ms, channel)

        return failed

    def _wait(self, now_ms: int) -> None:
        self._failures += 1
        self._retry_at_ms = now_ms + self._backoff.delay_ms(self._failures)

    def _join_again(self, now_ms: int, reason: str) -> None:
        """Out of a join that came to nothing, into the next one. What had to be given up for it is given up already."""
        self._why_join = self._why_join or reason
        if self._user_data is None:
            self._user_data = {}
        self._enter(State.PREPARING)
        self._wait(now_ms)

    # --- heartbeats -----------------------------------------------------------------------------------------------------

    def _send_heartbeat(self, now_ms: int) -> None:
        if self._heartbeat_next_ms > now_ms:
            self._timer.at(self._heartbeat_next_ms)
            return
        # Not behind a SyncGroup, which waits for the leader.
        channel = None if self._heartbeat_in_flight else self._finder.channel(Lane.GROUP, now_ms)
        if channel is None:
            return
        version = self._version(channel, tables.HEARTBEAT)
        if version is None:
            return
        ticket, sent_ms = self._ticket, now_ms

        def answered(body: Any, now_ms: int) -> None:
            if ticket != self._ticket:
                return
            self._heartbeat_in_flight = False
            self._heartbeat_failures = 0
            code = body["error_code"]
            if code in (0, 27):
                self._heard_ms = max(self._heard_ms, sent_ms)
            if code == 0:
                return
            # During a join the answer to the join says all that this one could.
            if self.state is State.STABLE or REACTIONS["Heartbeat"].get(code) is Reaction.REDISCOVER:
                self._react("Heartbeat", code, now_ms)

        def failed(error: FastFetchError, now_ms: int) -> None:
            if ticket == self._ticket:
                self._heartbeat_in_flight = False
                self._heartbeat_later(now_ms)
                waiting = channel.node.channels.get(Lane.MEMBER)
                if waiting is not None and waiting.calls:  # in vain, by the look of it
                    self._channels.close(waiting, error, now_ms)
            self._finder.forget(str(error), now_ms, channel)

        self._heartbeat_in_flight = True
        self._heartbeat_next_ms = now_ms + self._config.heartbeat_interval_ms
        self._channels.send(
            channel, tables.HEARTBEAT, version, self._signed(), now_ms, on_answer=answered, on_failure=failed,
            # Early enough to find another coordinator within the session.
            timeout_ms=min(self._config.request_timeout_ms, max(1, self._config.session_timeout_ms // 3)),
        )  # fmt: skip

    def _heartbeat_later(self, now_ms: int) -> None:
        self._heartbeat_failures += 1
        self._heartbeat_next_ms = now_ms + self._backoff.delay_ms(self._heartbeat_failures)

    def _check_clocks(self, now_ms: int) -> None:
        if self._fatal is not None:
            return
        session = self._config.session_timeout_ms
        # A process that was stopped for so long was thrown out, whatever it was doing.
        slept = self._pumped_ms is not None and now_ms - self._pumped_ms > session
        if self.generation >= 0 and (slept or now_ms - self._heard_ms > session):
            self._end = f"its session of {session} ms has expired: the coordinator has not heard of it, or could not be reached"
            self._lose_membership(keep_id=True)
        away = self._stayed_away_ms(now_ms)
        if away is not None and self.state is not State.UNJOINED:
            self._end = (
                f"no poll for {away} ms, longer than max_poll_interval_ms ({self._config.max_poll_interval_ms}): process less "
                "between two polls (max_poll_records), or raise it"
            )
            self._say_goodbye("the time between two polls was longer than max.poll.interval.ms", now_ms)
            self._enter(State.UNJOINED)  # a join that had begun does not go on before the next poll
            self._lose_membership(keep_id=False)

    # --- errors ---------------------------------------------------------------------------------------------------------

    def _react(self, request: str, code: int, now_ms: int) -> None:
        reaction = REACTIONS[request].get(code)
        log.info("group %r: %s was answered with %s (code %d)", self._group, request, error_name(code), code)
        is_joining = self.state in (State.PREPARING, State.COMPLETING)
        match reaction:
            case Reaction.RETRY:
                self._wait(now_ms)
            case Reaction.REDISCOVER:
                self._finder.forget(error_name(code), now_ms)
                if request == "Heartbeat":
                    self._heartbeat_later(now_ms)
                else:
                    self._wait(now_ms)
            case Reaction.TAKE_ID:
                pass
            case Reaction.REJOIN if is_joining:
                self._join_again(now_ms, "the group is rebalancing")
            case Reaction.REJOIN:
                self._request_join("the group is rebalancing")
            case Reaction.RESET_GENERATION | Reaction.RESET_ID:
                self._end = f"{request} was answered with {error_name(code)}"
                self._lose_membership(keep_id=reaction is Reaction.RESET_GENERATION)
                self._wait(now_ms)
            case None:
                self.fail(broker_error(code, f"group {self._group!r}: {WHAT.get(code, f'{request} was refused')}"))

    def _lose_membership(self, *, keep_id: bool) -> None:
        """Join anew. With nothing to tell the caller that happens in the background, if a join had begun."""
        had_begun = self.state in (State.PREPARING, State.COMPLETING) and not self._owned()
        why, user_data = self._why_join, self._user_data
        self._reset(keep_id=keep_id)
        self._lose(self._end)
        self._why_join = None
        self._request_join(self._end)
        if had_begun:
            self._why_join, self._user_data = why or self._why_join, user_data or {}
            self._enter(State.PREPARING)

    def _reset(self, *, keep_id: bool) -> None:
        """No member any more."""
        self._enter(State.UNJOINED)
        self.generation = self._owned_since = -1
        if not keep_id:
            self.member_id = ""
        self._group_topics.want(())
        self._assignment = self._user_data = None
        self._gave_up = False

    # --- leaving --------------------------------------------------------------------------------------------------------

    def _say_goodbye(self, reason: str, now_ms: int) -> None:
        """A static member falls silent: its partitions wait for it until its session expires (KIP-345)."""
        if self.member_id and self._config.group_instance_id is None:
            self._goodbye.say(self.member_id, reason, now_ms)

    # --- helpers --------------------------------------------------------------------------------------------------------

    def _signed(self) -> dict[str, Any]:
        return {
            "group_id": self._group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self._config.group_instance_id,
        }

    def _version(self, channel: Channel, api: Api) -> int | None:
        # Below these an instance id can't be said.
        at_least = 0 if self._config.group_instance_id is None else {tables.JOIN_GROUP: 5}.get(api, 3)
        try:
            return self._channels.version(channel, api, at_least=at_least)
        except UnsupportedVersionError as error:
            self.fail(error)
            return None
