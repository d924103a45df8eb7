"""A group under the consumer protocol (KIP-848), as its coordinator keeps it: the broker assigns, members converge by heartbeats.

Three epochs make it work. The group's grows whenever something calls for another assignment; the assignment's is that of the
target which was computed last; a member's is that of the target it has reached. A member that must give partitions up keeps its
epoch until it says that it no longer owns them, and only then may others have them.

No sockets, no threads and no clock: as in `groups`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import uuid4

from .groups import Peer

__all__ = ["JOIN", "EpochGroup", "EpochMember", "Partitions", "RefusedError", "TopicShape", "by_topic", "validate"]

Body: TypeAlias = dict[str, Any]
Partitions: TypeAlias = frozenset[tuple[bytes, int]]
"""(topic id, partition)"""

UNKNOWN_MEMBER, UNSUPPORTED_VERSION, INVALID_REQUEST, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH = 25, 35, 42, 82, 110
UNRELEASED_INSTANCE_ID, UNSUPPORTED_ASSIGNOR, STALE_MEMBER_EPOCH, INVALID_REGEX = 111, 112, 113, 128

JOIN, LEAVE, LEAVE_FOR_NOW = 0, -1, -2
_ASSIGNORS = ("uniform", "range")
_NOTHING: Partitions = frozenset()


class TopicShape(NamedTuple):
    """A topic as an assignor sees it."""

    name: str
    id: bytes
    partitions: int


class RefusedError(Exception):
    """An answer with an error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(eq=False, slots=True)
class EpochMember:
    """assigned     what it may use
    revoking        what it was told to give up, and has not said yet that it did
    state           "Unreleased": it lacks something that another has not given up
    revoke_by       when it is thrown out if it has not
    """

    id: str
    instance_id: str | None
    peer: Peer
    rack: str | None = None
    rebalance: float = 0.0
    names: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: Literal["Stable", "Unrevoked", "Unreleased"] = "Stable"
    assigned: Partitions = _NOTHING
    revoking: Partitions = _NOTHING
    expires: float = math.inf
    revoke_by: float = math.inf

    def wants(self, topic: str) -> bool:
        return topic in self.names or bool(self.regex and re.fullmatch(self.regex, topic))


@dataclass(eq=False)
class EpochGroup:
    """session, interval    seconds until a silent member is out, and between heartbeats: the broker's settings
    epoch, assigned_epoch   of the group, and of the target
    target                  {member id: partitions}
    changed                 called when something happened
    """

    session: float
    interval: float
    changed: Callable[[], None]
    epoch: int = 0
    assigned_epoch: int = 0
    assignor: str = _ASSIGNORS[0]
    members: dict[str, EpochMember] = field(default_factory=dict)
    target: dict[str, Partitions] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._topics: list[TopicShape] = []  # those subscribed to, as of the last heartbeat

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assigned_epoch:
            return "Assigning"
        done = all(m.state == "Stable" and m.epoch == self.assigned_epoch for m in self.members.values())
        return "Stable" if done else "Reconciling"

    # ---------------------------------------------------------------------------------------------------------------- time

    def next_due(self) -> float:
        return min((min(m.expires, m.revoke_by) for m in self.members.values()), default=math.inf)

    def advance(self, now: float) -> None:
        """Throw out whoever was silent, or kept what it should give up, for too long."""
        for member in list(self.members.values()):
            if min(member.expires, member.revoke_by) <= now:
                self.remove(member)

    def reload(self, now: float) -> None:
        """Another coordinator has the group: it knows everything but the timers."""
        for member in self.members.values():
            member.expires = now + self.session
            if member.revoke_by < math.inf:
                member.revoke_by = now + member.rebalance
        self.changed()

    # ----------------------------------------------------------------------------------------------------------- heartbeat

    def heartbeat(self, asked: Body, peer: Peer, topics: Iterable[TopicShape], now: float) -> Body:
        """ConsumerGroupHeartbeat, `validate`d. `topics` are all there are. Raises RefusedError."""
        if asked["member_epoch"] in (LEAVE, LEAVE_FOR_NOW):
            return self._leave(asked)
        return self._beat(asked, peer, topics, now)

    def _beat(self, asked: Body, peer: Peer, topics: Iterable[TopicShape], now: float) -> Body:
        owned = asked["topic_partitions"]
        owned = None if owned is None else frozenset((t["topic_id"], p) for t in owned for p in t["partitions"])
        member, is_news = self._admit(asked, peer, owned)
        is_news |= self._update(member, asked)
        shapes = sorted(t for t in topics if any(m.wants(t.name) for m in self.members.values()))
        if is_news or shapes != self._topics:
            self._topics = shapes
            self.epoch += 1
        if self.epoch > self.assigned_epoch:
            self._assign()
        before = member.assigned
        self._reconcile(member, owned, now)
        member.expires = now + self.session
        self.changed()
        is_full = (
            asked["rebalance_timeout_ms"] != -1
            and (asked["subscribed_topic_names"] is not None or asked["subscribed_topic_regex"] is not None)
            and owned is not None
        )
        answer = {
            "error_code": 0,
            "member_id": member.id,
            "member_epoch": member.epoch,
            "heartbeat_interval_ms": round(self.interval * 1000),
            "assignment": None,
        }
        if asked["member_epoch"] == JOIN or is_full or member.assigned != before:
            answer["assignment"] = {"topic_partitions": by_topic(member.assigned)}
        return answer

    def _admit(self, asked: Body, peer: Peer, owned: Partitions | None) -> tuple[EpochMember, bool]:
        """The member that asks, and whether it is new."""
        member_id, instance_id, epoch = asked["member_id"], asked["instance_id"], asked["member_epoch"]
        member_id = member_id or str(uuid4())
        known = self.members.get(member_id) if instance_id is None else self._static(instance_id)
        if known is None:
            if epoch != JOIN:
                raise RefusedError(UNKNOWN_MEMBER, f"Member {instance_id or member_id} is not a member of the group.")
            self.members[member_id] = EpochMember(member_id, instance_id, peer)
            return self.members[member_id], True
        if instance_id is not None and epoch == JOIN:
            if known.epoch != LEAVE_FOR_NOW:
                raise RefusedError(UNRELEASED_INSTANCE_ID, f"Static member {known.id} owns instance id {instance_id} still.")
            return self._replace(known, member_id, peer), False
        if known.id != member_id:
            raise RefusedError(FENCED_INSTANCE_ID, f"Static member {member_id} was fenced by member {known.id}.")
        self._check_epoch(known, epoch, owned)
        return known, False

    def _static(self, instance_id: str) -> EpochMember | None:
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    def _replace(self, member: EpochMember, member_id: str, peer: Peer) -> EpochMember:
        """A static member is back under another id, and gets what it had."""
        self.members = {(member_id if m is member else m.id): m for m in self.members.values()}
        self.target[member_id] = self.target.pop(member.id, _NOTHING)
        member.id, member.peer, member.epoch, member.previous_epoch = member_id, peer, JOIN, JOIN
        return member

    @staticmethod
    def _check_epoch(member: EpochMember, epoch: int, owned: Partitions | None) -> None:
        """The one before is good enough where the answer with the present one may have been lost."""
        was_lost = epoch == member.previous_epoch and owned is not None and owned <= member.assigned
        if epoch != member.epoch and not was_lost:
            what = "greater" if epoch > member.epoch else "smaller"
            raise RefusedError(
                FENCED_MEMBER_EPOCH,
                f"The member has a {what} epoch ({epoch}) than the one known by the coordinator ({member.epoch}); "
                "it must abandon all its partitions and rejoin.",
            )

    @staticmethod
    def _update(member: EpochMember, asked: Body) -> bool:
        """Take over what the request says, null for unchanged. True: there has to be another assignment."""
        before = member.names, member.regex
        if asked["rebalance_timeout_ms"] != -1:
            member.rebalance = asked["rebalance_timeout_ms"] / 1000
        if asked["subscribed_topic_names"] is not None:
            member.names = frozenset(asked["subscribed_topic_names"])
        if asked["subscribed_topic_regex"] is not None:
            member.regex = asked["subscribed_topic_regex"]
        member.rack = asked["rack_id"] if asked["rack_id"] is not None else member.rack
        member.assignor = asked["server_assignor"] or member.assignor
        return before != (member.names, member.regex)

    def _leave(self, asked: Body) -> Body:
        member_id, instance_id, epoch = asked["member_id"], asked["instance_id"], asked["member_epoch"]
        known = self.members.get(member_id) if instance_id is None else self._static(instance_id)
        if known is None:
            raise RefusedError(UNKNOWN_MEMBER, f"Member {instance_id or member_id} is not a member of the group.")
        if known.id != member_id:
            raise RefusedError(FENCED_INSTANCE_ID, f"Static member {member_id} was fenced by member {known.id}.")
        if epoch == LEAVE_FOR_NOW:
            known.epoch = known.previous_epoch = LEAVE_FOR_NOW
            known.revoking = _NOTHING
            self.changed()
        else:
            self.remove(known)
        return {"error_code": 0, "member_id": member_id, "member_epoch": epoch}

    def remove(self, member: EpochMember) -> None:
        """It left, or is thrown out. Others get its partitions as their heartbeats come."""
        del self.members[member.id]
        self.target.pop(member.id, None)
        self.epoch += 1
        self.changed()

    def expire(self, member_id: str, now: float) -> None:
        """As if its session had ended."""
        self.remove(self.members[member_id])

    def rebalance(self, now: float) -> None:
        """Another assignment at the next heartbeat."""
        self.epoch += 1
        self.changed()

    # ------------------------------------------------------------------------------------------------------- reconciliation

    def _reconcile(self, member: EpochMember, owned: Partitions | None, now: float) -> None:
        """Bring a member as near to its target as the others allow."""
        if member.state == "Stable" and member.epoch == self.assigned_epoch:
            return
        if member.state == "Unrevoked" and (owned is None or owned & member.revoking):
            return  # it has not given up yet what it shall
        epoch = member.epoch if member.state == "Stable" else self.assigned_epoch
        target = self.target.get(member.id, _NOTHING)
        member.revoking = member.assigned - target
        member.assigned &= target
        if member.revoking and (owned is None or owned & member.revoking):
            member.state = "Unrevoked"
            member.revoke_by = now + member.rebalance
        else:
            member.revoking = _NOTHING
            held = frozenset(tp for m in self.members.values() if m is not member for tp in m.assigned | m.revoking)
            member.assigned |= target - held
            member.state = "Unreleased" if target & held else "Stable"
            member.revoke_by = math.inf
            epoch = self.assigned_epoch
        if epoch != member.epoch:
            member.previous_epoch, member.epoch = member.epoch, epoch

    # ---------------------------------------------------------------------------------------------------------- assignment

    def _assign(self) -> None:
        """A new target for all."""
        votes = Counter(m.assignor for m in self.members.values() if m.assignor is not None)
        self.assignor = max(votes, key=votes.__getitem__) if votes else _ASSIGNORS[0]
        wanted = {m.id: [t for t in self._topics if m.wants(t.name)] for m in self.members.values()}
        self.target = share_uniform(wanted, self.target) if self.assignor == "uniform" else share_range(wanted)
        self.assigned_epoch = self.epoch

    # ------------------------------------------------------------------------------------------------------------- commits

    def check_commit(self, asked: Body, version: int, now: float) -> int:
        """Error code of an OffsetCommit. From outside only an empty group takes one."""
        epoch, member_id = asked["generation_id_or_member_epoch"], asked["member_id"]
        if epoch < 0 and not self.members:
            return 0
        if version < 9 and member_id in self.members:
            return UNSUPPORTED_VERSION
        return self._check_signed(member_id, epoch)

    def check_fetch(self, member_id: str | None, epoch: int) -> int:
        """Error code of an OffsetFetch; without a member id anybody may ask."""
        return 0 if member_id is None and epoch < 0 else self._check_signed(member_id or "", epoch)

    def _check_signed(self, member_id: str, epoch: int) -> int:
        member = self.members.get(member_id)
        if member is None:
            return UNKNOWN_MEMBER
        return 0 if epoch == member.epoch else STALE_MEMBER_EPOCH


def validate(asked: Body, version: int) -> None:
    """Whether a heartbeat makes sense at all. Raises RefusedError."""
    epoch = asked["member_epoch"]
    if not asked["member_id"] and (version >= 1 or epoch != JOIN):
        raise RefusedError(INVALID_REQUEST, "MemberId can't be empty.")
    for name in ("instance_id", "rack_id"):
        if asked[name] == "":
            raise RefusedError(INVALID_REQUEST, f"{name} can't be empty.")
    if epoch == JOIN:
        if asked["rebalance_timeout_ms"] == -1:
            raise RefusedError(INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
        if asked["topic_partitions"] != []:
            raise RefusedError(INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
        if asked["subscribed_topic_names"] is None and not asked["subscribed_topic_regex"]:
            raise RefusedError(INVALID_REQUEST, "SubscribedTopicNames or SubscribedTopicRegex must be set when (re-)joining.")
    elif epoch == LEAVE_FOR_NOW and asked["instance_id"] is None:
        raise RefusedError(INVALID_REQUEST, "InstanceId can't be null.")
    elif epoch < LEAVE_FOR_NOW:
        raise RefusedError(INVALID_REQUEST, "MemberEpoch is invalid.")
    if asked["server_assignor"] not in (None, *_ASSIGNORS):
        raise RefusedError(UNSUPPORTED_ASSIGNOR, f"ServerAssignor {asked['server_assignor']} is not supported.")
    try:
        re.compile(asked["subscribed_topic_regex"] or "")
    except re.error as error:
        raise RefusedError(INVALID_REGEX, f"SubscribedTopicRegex is not a valid regular expression: {error}.") from None


def by_topic(partitions: Partitions) -> list[Body]:
    """As the messages carry them."""
    ids = sorted({topic_id for topic_id, _ in partitions})
    return [{"topic_id": i, "partitions": sorted(p for each, p in partitions if each == i)} for i in ids]


def share_uniform(wanted: Mapping[str, list[TopicShape]], had: Mapping[str, Partitions]) -> dict[str, Partitions]:
    """As even as subscriptions allow; whoever had a partition keeps it if that is so."""
    able: dict[tuple[bytes, int], list[str]] = {}
    for member_id, topics in wanted.items():
        for topic in topics:
            for partition in range(topic.partitions):
                able.setdefault((topic.id, partition), []).append(member_id)
    out: dict[str, set[tuple[bytes, int]]] = {m: {tp for tp in had.get(m, ()) if m in able.get(tp, ())} for m in wanted}
    taken = set[tuple[bytes, int]]().union(*out.values())
    for tp in able:
        if tp not in taken:
            out[min(able[tp], key=lambda m: len(out[m]))].add(tp)
    while moves := [(len(out[a]) - len(out[b]), tp, a, b) for a in out for tp in out[a] for b in able[tp]]:
        apart, tp, a, b = max(moves)
        if apart < 2:
            break
        out[a].remove(tp)
        out[b].add(tp)
    return {m: frozenset(partitions) for m, partitions in out.items()}


def share_range(wanted: Mapping[str, list[TopicShape]]) -> dict[str, Partitions]:
    """For each topic, runs of partitions to its members in the order of their ids."""
    out: dict[str, set[tuple[bytes, int]]] = {m: set() for m in wanted}
    for topic in sorted({t for topics in wanted.values() for t in topics}):
        able = sorted(m for m, topics in wanted.items() if topic in topics)
        for partition in range(topic.partitions):
            out[able[_run_of(partition, topic.partitions, len(able))]].add((topic.id, partition))
    return {m: frozenset(partitions) for m, partitions in out.items()}


def _run_of(partition: int, partitions: int, members: int) -> int:
    """Which of `members` runs a partition is in; the first ones are longer by one if it doesn't go even."""
    size, longer = divmod(partitions, members)
    at = longer * (size + 1)
    return partition // (size + 1) if partition < at else longer + (partition - at) // size
