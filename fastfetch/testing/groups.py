"""A group under the classic protocol, as its coordinator keeps it: members, generations, who waits for whom.

No sockets, no threads and no clock. Whoever looks at a group first tells it the time (`advance`), and everything that was due
until then happens, in order; `next_due` says when the next such thing is. A JoinGroup or SyncGroup is answered when its time
has come: the caller gets a `Waiting` and looks at its `answer`.

    Empty -> PreparingRebalance (members join) -> CompletingRebalance (the leader assigns) -> Stable -> PreparingRebalance ...
"""

from __future__ import annotations

import math
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

__all__ = ["ClassicGroup", "ClassicMember", "Peer", "Waiting"]

Body: TypeAlias = dict[str, Any]
State: TypeAlias = Literal["Empty", "PreparingRebalance", "CompletingRebalance", "Stable"]

EMPTY: Final = "Empty"
PREPARING: Final = "PreparingRebalance"
COMPLETING: Final = "CompletingRebalance"
STABLE: Final = "Stable"

NOT_COORDINATOR, ILLEGAL_GENERATION, INCONSISTENT_PROTOCOL, UNKNOWN_MEMBER = 16, 22, 23, 25
INVALID_SESSION_TIMEOUT, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED, FENCED_INSTANCE_ID = 26, 27, 79, 82

_SESSIONS_S = (0.001, 1800.0)  # a stock broker wants 6 s or more, which no test has the time for


class Peer(NamedTuple):
    """Who sent a request."""

    client_id: str
    host: str


@dataclass(eq=False, slots=True)
class Waiting:
    """A request that is answered later; None: not yet."""

    answer: Body | None = None


@dataclass(eq=False, slots=True)
class ClassicMember:
    """session, rebalance   seconds
    expires                 when its session ends, unless it waits for an answer of ours
    joining, syncing        its request that waits
    has_synced              since the last join was completed
    """

    id: str
    instance_id: str | None
    peer: Peer
    session: float
    rebalance: float
    protocols: list[tuple[str, bytes]]
    expires: float = math.inf
    assignment: bytes = b""
    joining: Waiting | None = None
    syncing: Waiting | None = None
    has_synced: bool = False

    def metadata(self, protocol: str | None) -> bytes:
        return dict(self.protocols).get(protocol or "", b"")

    def beat(self, now: float) -> None:
        self.expires = now + self.session

    def settle(self, joining: Body | None = None, syncing: Body | None = None) -> None:
        """Answer what waits."""
        if self.joining is not None and joining is not None:
            self.joining.answer, self.joining = joining, None
        if self.syncing is not None and syncing is not None:
            self.syncing.answer, self.syncing = syncing, None

    def refuse(self, code: int) -> None:
        self.settle(join_error(code, self.id), {"error_code": code})


def join_error(code: int, member_id: str = "") -> Body:
    return {
        "error_code": code,
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": None,
        "leader": "",
        "member_id": member_id,
        "members": [],
    }


@dataclass(slots=True)
class _Stored:
    """What the log of the offsets topic has: all that another coordinator knows."""

    state: State
    generation: int
    protocol_type: str
    protocol: str | None
    leader: str | None
    members: dict[str, ClassicMember]


@dataclass(eq=False)
class ClassicGroup:
    """initial_delay    seconds that an empty group waits for more members after the first (group.initial.rebalance.delay.ms)
    changed         called when something happened that a waiting request may be waiting for
    """

    initial_delay: float
    changed: Callable[[], None]
    state: State = EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, ClassicMember] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._pending: dict[str, float] = {}  # ids given away by MEMBER_ID_REQUIRED, and when they are void
        self._join_due: float | None = None
        self._sync_due: float | None = None
        self._initial_left: float | None = None  # not None: the first rebalance, and seconds that it may be put off by
        self._has_newcomers = False
        self._store()

    # ---------------------------------------------------------------------------------------------------------------- time

    def next_due(self) -> float:
        dues = [*self._pending.values(), *(m.expires for m in self.members.values() if m.joining is m.syncing is None)]
        return min([*dues, *(due for due in (self._join_due, self._sync_due) if due is not None)], default=math.inf)

    def advance(self, now: float) -> None:
        """Everything that was due until now."""
        while (due := self.next_due()) <= now:
            self._step(due)
            self.changed()

    def _step(self, now: float) -> None:
        for member_id in [i for i, void in self._pending.items() if void <= now]:
            del self._pending[member_id]
            self._maybe_complete_join(now)
        for member in list(self.members.values()):
            if member.joining is member.syncing is None and member.expires <= now:
                self.remove(member, now)
        if self._join_due is not None and self._join_due <= now:
            self._end_of_joining(now)
        if self._sync_due is not None and self._sync_due <= now:
            self._sync_due = None
            for member in [m for m in self.members.values() if not m.has_synced]:
                self.remove(member, now)

    # ---------------------------------------------------------------------------------------------------------------- join

    def join(self, asked: Body, version: int, peer: Peer, now: float) -> Waiting:
        """JoinGroup."""
        waiting = Waiting()
        member_id, instance_id = asked["member_id"], asked["group_instance_id"]
        joiner = ClassicMember(
            member_id,
            instance_id,
            peer,
            asked["session_timeout_ms"] / 1000,
            # Version 0 had one timeout for both.
            (asked["rebalance_timeout_ms"] if version >= 1 else asked["session_timeout_ms"]) / 1000,
            [(p["name"], p["metadata"]) for p in asked["protocols"]],
            joining=waiting,
        )
        code = 0
        if not _SESSIONS_S[0] <= joiner.session <= _SESSIONS_S[1]:
            code = INVALID_SESSION_TIMEOUT
        elif not self._is_compatible(asked["protocol_type"], joiner):
            code = INCONSISTENT_PROTOCOL
        elif not member_id:
            joiner.id = f"{instance_id if instance_id is not None else peer.client_id}-{uuid.uuid4()}"
            known = self._static(instance_id)
            if known is not None:
                self._replace(known, joiner, version, now)
            elif instance_id is None and version >= 4:
                self._pending[joiner.id] = now + joiner.session
                code = MEMBER_ID_REQUIRED
            else:
                self._add(asked["protocol_type"], joiner, now)
        elif instance_id is None and self._pending.pop(member_id, None) is not None:
            self._add(asked["protocol_type"], joiner, now)
        else:
            code = self.check(member_id, instance_id)
            if not code:
                self._rejoin(self.members[member_id], joiner, now)
        if code:
            waiting.answer = join_error(code, joiner.id)
        self.advance(now)
        return waiting

    def _is_compatible(self, protocol_type: str, joiner: ClassicMember) -> bool:
        if not self.members:
            return bool(protocol_type and joiner.protocols)
        return protocol_type == self.protocol_type and any(name in self._candidates() for name, _ in joiner.protocols)

    def _static(self, instance_id: str | None) -> ClassicMember | None:
        return next((m for m in self.members.values() if instance_id is not None and m.instance_id == instance_id), None)

    def _add(self, protocol_type: str, joiner: ClassicMember, now: float) -> None:
        self.protocol_type = protocol_type
        self.members[joiner.id] = joiner
        self.leader = self.leader or joiner.id
        self._has_newcomers = True
        self.rebalance(now)

    def _rejoin(self, member: ClassicMember, joiner: ClassicMember, now: float) -> None:
        """Of a member. What changes nothing is answered with what there is, so that a lost answer costs no rebalance."""
        is_same = member.protocols == joiner.protocols
        self._update(member, joiner)
        if (self.state == COMPLETING and is_same) or (self.state == STABLE and is_same and member.id != self.leader):
            member.settle(joining=self._joined(member))
            member.beat(now)
        else:
            self.rebalance(now)

    def _replace(self, old: ClassicMember, joiner: ClassicMember, version: int, now: float) -> None:
        """A static member is back, without its member id: it gets the old one's place, and whoever has the old id is fenced."""
        old.refuse(FENCED_INSTANCE_ID)
        was_leader, told = old.id == self.leader, self.leader
        self.members = {(joiner.id if m is old else m.id): m for m in self.members.values()}
        old.id = joiner.id
        if was_leader:
            self.leader = joiner.id
        self._update(old, joiner)
        if self.state != STABLE or self._vote() != self.protocol:
            self.rebalance(now)
            return
        answer = self._joined(old)
        if was_leader and version >= 9:
            answer["skip_assignment"] = True
        elif was_leader:  # older clients would assign anew: they are told that the leader is somebody else (KAFKA-12890)
            answer |= {"leader": told, "members": []}
        old.settle(joining=answer)
        old.beat(now)
        self._store()

    def _update(self, member: ClassicMember, joiner: ClassicMember) -> None:
        member.refuse(REBALANCE_IN_PROGRESS)  # an older request of the same member: nobody reads its answer
        member.peer, member.session, member.rebalance = joiner.peer, joiner.session, joiner.rebalance
        member.protocols, member.joining = joiner.protocols, joiner.joining

    # ----------------------------------------------------------------------------------------------------------- rebalance

    def rebalance(self, now: float) -> None:
        """Let everybody join again; goes on with it if that is so already."""
        if self.state == COMPLETING:
            for member in self.members.values():
                member.settle(syncing={"error_code": REBALANCE_IN_PROGRESS})
        if self.state != PREPARING:
            longest = max((m.rebalance for m in self.members.values()), default=0.0)
            self._join_due, self._sync_due = now + longest, None
            if self.state == EMPTY:
                delay = min(self.initial_delay, longest)
                self._join_due, self._initial_left, self._has_newcomers = now + delay, longest - delay, False
            self.state = PREPARING
        self.changed()
        self._maybe_complete_join(now)

    def _maybe_complete_join(self, now: float) -> None:
        is_open = self._initial_left is not None or bool(self._pending)  # more may come
        if self.state == PREPARING and not is_open and all(m.joining is not None for m in self.members.values()):
            self._complete_join(now)

    def _end_of_joining(self, now: float) -> None:
        if self._initial_left and self._has_newcomers:
            delay = min(self.initial_delay, self._initial_left)
            self._join_due, self._initial_left, self._has_newcomers = now + delay, self._initial_left - delay, False
            return
        for member in [m for m in self.members.values() if m.joining is None and m.instance_id is None]:
            self._forget(member, UNKNOWN_MEMBER)
        if self.members and not any(m.joining for m in self.members.values()):
            # Only static members that are away: until their sessions end they are waited for.
            self._join_due = now + max(m.rebalance for m in self.members.values())
            return
        self._complete_join(now)

    def _complete_join(self, now: float) -> None:
        """The next generation begins."""
        self._join_due = self._initial_left = None
        self.generation += 1
        if not self.members:
            self.state, self.protocol, self.leader = EMPTY, None, None
            self._store()
            self.changed()
            return
        if self.leader is None or self.members[self.leader].joining is None:
            self.leader = next(m.id for m in self.members.values() if m.joining is not None)
        self.state, self.protocol = COMPLETING, self._vote()
        self._sync_due = now + max(m.rebalance for m in self.members.values())
        for member in self.members.values():
            member.has_synced = False
            if member.joining is not None:
                member.beat(now)
                member.settle(joining=self._joined(member))
        self.changed()

    def _joined(self, member: ClassicMember) -> Body:
        members = [
            {"member_id": m.id, "group_instance_id": m.instance_id, "metadata": m.metadata(self.protocol)}
            for m in self.members.values()
        ]
        return {
            "error_code": 0,
            "generation_id": self.generation,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol,
            "leader": self.leader,
            "member_id": member.id,
            "members": members if member.id == self.leader else [],
        }

    def _candidates(self) -> set[str]:
        """Protocols that every member knows."""
        return set.intersection(*({name for name, _ in m.protocols} for m in self.members.values()))

    def _vote(self) -> str:
        """Each member votes for the first of its protocols that all know; the most votes win, and the earliest of equals."""
        candidates = self._candidates()
        votes = Counter(next(name for name, _ in m.protocols if name in candidates) for m in self.members.values())
        return max(votes, key=votes.__getitem__)

    # ------------------------------------------------------------------------------------------------- sync, heartbeat, leave

    def check(self, member_id: str, instance_id: str | None, generation: int | None = None) -> int:
        """Error code of a request that a member signed, 0 if it may."""
        if instance_id is not None:
            known = self._static(instance_id)
            if known is None:
                return UNKNOWN_MEMBER
            if known.id != member_id:
                return FENCED_INSTANCE_ID
        if member_id not in self.members:
            return UNKNOWN_MEMBER
        return 0 if generation in (None, self.generation) else ILLEGAL_GENERATION

    def sync(self, asked: Body, version: int, now: float) -> Waiting:
        """SyncGroup."""
        waiting = Waiting()
        code = self.check(asked["member_id"], asked["group_instance_id"], asked["generation_id"])
        named = asked["protocol_type"], asked["protocol_name"]
        if not code and version >= 5 and named != (self.protocol_type, self.protocol):
            code = INCONSISTENT_PROTOCOL
        if not code and self.state == PREPARING:
            code = REBALANCE_IN_PROGRESS
        if code:
            waiting.answer = {"error_code": code}
            return waiting
        member = self.members[asked["member_id"]]
        member.settle(syncing={"error_code": REBALANCE_IN_PROGRESS})
        member.has_synced, member.syncing = True, waiting
        if self.state == COMPLETING and member.id == self.leader:
            given = {a["member_id"]: a["assignment"] for a in asked["assignments"]}
            for each in self.members.values():
                each.assignment = given.get(each.id, b"")
            self.state = STABLE
            self._store()
        if self.state == STABLE:
            for each in self.members.values():
                if each.syncing is not None:
                    each.beat(now)
                    each.settle(syncing=self._synced(each))
        if all(m.has_synced for m in self.members.values()):
            self._sync_due = None
        self.changed()
        return waiting

    def _synced(self, member: ClassicMember) -> Body:
        return {
            "error_code": 0,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol,
            "assignment": member.assignment,
        }

    def heartbeat(self, asked: Body, now: float) -> int:
        """Error code of a Heartbeat."""
        code = self.check(asked["member_id"], asked["group_instance_id"], asked["generation_id"])
        if code:
            return code
        self.members[asked["member_id"]].beat(now)
        return REBALANCE_IN_PROGRESS if self.state == PREPARING else 0

    def leave(self, member_id: str, instance_id: str | None, now: float) -> int:
        """One member of a LeaveGroup; a static one may be named by its instance id alone. Returns the error code."""
        if instance_id is not None and not member_id:
            known = self._static(instance_id)
            member_id = "" if known is None else known.id
        if instance_id is None and self._pending.pop(member_id, None) is not None:
            self._maybe_complete_join(now)
            return 0
        code = self.check(member_id, instance_id)
        if not code:
            self.remove(self.members[member_id], now)
        return code

    def remove(self, member: ClassicMember, now: float) -> None:
        """It left, or its session has ended."""
        self._forget(member, UNKNOWN_MEMBER)
        self.rebalance(now)

    def expire(self, member_id: str, now: float) -> None:
        """As if its session had ended."""
        self.remove(self.members[member_id], now)
        self.advance(now)

    def _forget(self, member: ClassicMember, code: int) -> None:
        del self.members[member.id]
        member.refuse(code)
        if self.leader == member.id:
            self.leader = next(iter(self.members), None)

    # ------------------------------------------------------------------------------------------------------------- commits

    def check_commit(self, asked: Body, version: int, now: float) -> int:
        """Error code of an OffsetCommit. From outside only an empty group takes one; a member's keeps its session alive."""
        generation, member_id, instance_id = (
            asked["generation_id_or_member_epoch"],
            asked["member_id"],
            asked["group_instance_id"],
        )
        if generation < 0 and self.state == EMPTY:
            return 0
        code = self.check(member_id, instance_id, generation)
        if code:
            return code
        if self.state == COMPLETING:
            return REBALANCE_IN_PROGRESS
        self.members[member_id].beat(now)
        return 0

    # ------------------------------------------------------------------------------------------------- another coordinator

    def _store(self) -> None:
        members = {i: replace(m, joining=None, syncing=None) for i, m in self.members.items()}
        self._stored = _Stored(self.state, self.generation, self.protocol_type, self.protocol, self.leader, members)

    def reload(self, now: float) -> None:
        """Another coordinator has the group, or the same one after a restart. It knows the last generation that was complete, and
        who waited for an answer is told to look for it."""
        for member in self.members.values():
            member.refuse(NOT_COORDINATOR)
        self._pending.clear()
        self._join_due = self._sync_due = self._initial_left = None
        stored = self._stored
        self.state, self.generation, self.protocol_type = stored.state, stored.generation, stored.protocol_type
        self.protocol, self.leader = stored.protocol, stored.leader
        self.members = {i: replace(m, has_synced=True) for i, m in stored.members.items()}
        for member in self.members.values():
            member.beat(now)
        self.changed()
