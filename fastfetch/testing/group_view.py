"""What a test may look at of a group, whichever protocol its members speak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fastfetch.errors import ProtocolError
from fastfetch.protocol.consumer_protocol import decode_assignment, decode_subscription
from fastfetch.types import TopicPartition

from .groups import ClassicGroup

__all__ = ["GroupView", "MemberView", "view_classic"]


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member.

    topics          what it subscribes to; empty if its subscription can't be read
    assignment      what it was given last, whether the group is rebalancing meanwhile or not
    """

    id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: frozenset[str]
    assignment: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group at one moment.

    state       Kafka's word: "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"
    generation  0 before the first rebalance
    protocol    the assignor that was voted for, None while there are no members
    leader      its member id
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


def view_classic(group: ClassicGroup) -> GroupView:
    members = {
        m.id: MemberView(
            m.id,
            m.instance_id,
            m.peer.client_id,
            m.peer.host,
            _topics(m.metadata(group.protocol)),
            _partitions(m.assignment),
        )
        for m in group.members.values()
    }
    return GroupView(group.state, group.generation, group.protocol, group.leader, members)


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
