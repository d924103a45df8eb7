"""What a test may look at of a group, whichever protocol its members speak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fastfetch.errors import ProtocolError
from fastfetch.protocol.consumer_protocol import decode_assignment, decode_subscription
from fastfetch.types import TopicPartition

from .groups import ClassicGroup, ClassicMember
from .groups_epochs import EpochGroup, EpochMember, Partitions

__all__ = ["GroupView", "MemberView", "view"]


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member.

    topics          what it subscribes to by name; empty if its subscription can't be read
    assignment      what it was given last, whether the group is rebalancing meanwhile or not
    revoking        what it was told to give up and has not said yet that it did (consumer protocol)
    epoch           which target it has reached (consumer protocol); the group's generation under the classic one
    """

    id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: frozenset[str]
    assignment: frozenset[TopicPartition]
    revoking: frozenset[TopicPartition]
    epoch: int


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group at one moment.

    state       Kafka's word: "Empty", "Stable", and "PreparingRebalance" or "CompletingRebalance" under the classic protocol,
                "Assigning" or "Reconciling" under the consumer protocol
    generation  or the group's epoch; 0 before the first rebalance
    protocol    the assignor that was voted for, None while there are no members
    leader      its member id, None under the consumer protocol: the broker assigns
    members     by member id
    """

    state: str
    generation: int
    protocol: str | None
    leader: str | None
    members: Mapping[str, MemberView]

    @property
    def assignments(self) -> dict[str, frozenset[TopicPartition]]:
        """{member id: its partitions}"""
        return {m.id: m.assignment for m in self.members.values()}

    @property
    def assigned(self) -> list[TopicPartition]:
        """All partitions that members have, sorted; one that two have is in it twice."""
        return sorted(tp for m in self.members.values() for tp in m.assignment)


def view(group: ClassicGroup | EpochGroup | None, names: Mapping[bytes, str]) -> GroupView:
    """`names` of topics by their ids."""
    if group is None:
        return GroupView("Empty", 0, None, None, {})
    if isinstance(group, EpochGroup):
        protocol = group.assignor if group.members else None
        members = [_view_epochs(m, names) for m in group.members.values()]
        return GroupView(group.state, group.epoch, protocol, None, {m.id: m for m in members})
    members = [_view_classic(group, m) for m in group.members.values()]
    return GroupView(group.state, group.generation, group.protocol, group.leader, {m.id: m for m in members})


def _view_classic(group: ClassicGroup, m: ClassicMember) -> MemberView:
    topics, assignment = _topics(m.metadata(group.protocol)), _partitions(m.assignment)
    return MemberView(m.id, m.instance_id, m.peer.client_id, m.peer.host, topics, assignment, frozenset(), group.generation)


def _view_epochs(m: EpochMember, names: Mapping[bytes, str]) -> MemberView:
    def named(partitions: Partitions) -> frozenset[TopicPartition]:
        return frozenset(TopicPartition(names[topic_id], p) for topic_id, p in partitions if topic_id in names)

    return MemberView(m.id, m.instance_id, m.peer.client_id, m.peer.host, m.names, named(m.assigned), named(m.revoking), m.epoch)


def _topics(metadata: bytes) -> frozenset[str]:
    try:
        return frozenset(decode_subscription(metadata).topics)
    except ProtocolError:  # a coordinator does not look inside; members may say what they like
        return frozenset()


def _partitions(assignment: bytes) -> frozenset[TopicPartition]:
    try:
        return frozenset(decode_assignment(assignment).partitions)
    except ProtocolError:
        return frozenset()
