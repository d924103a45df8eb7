"""What an assignor is, for ours and for those of users, and what all of ours need: members and topics in order.

An assignor is a pure function on the leader of a group, (partitions of topics, subscriptions of members) -> assignments, and a
little memory on each member. Same input, same output on any machine: members are taken in the order of `member_order`, topics by
name, partitions by number, so that the order in which members happened to join decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Literal, Protocol

from fastfetch.protocol.consumer_protocol import Assignment, Subscription, java_order
from fastfetch.types import TopicPartition

__all__ = ["Assignor", "GroupCluster", "RebalanceProtocol", "in_order", "member_order", "subscribers"]

RebalanceProtocol = Literal["eager", "cooperative"]
"""eager: members give up all partitions before they join. cooperative (KIP-429): they keep them, and lose only what moves."""


@dataclass(frozen=True, slots=True)
class GroupCluster:
    """What the leader knows of the topics that its group wants.

    partitions    number of partitions by topic, numbered from 0. A topic that does not exist is not in it
    """

    partitions: Mapping[str, int]


class Assignor(Protocol):
    """How a group shares its partitions out. Subclass it, or write a class of the same form.

    name         as it goes over the wire; members of a group must have one in common
    protocols    what its assignments are fit for, ("eager",) unless it says more. An assignor for cooperative groups never gives
                 away a partition that another member still claims in `Subscription.owned`: it leaves it out, and the member that
                 lost it joins again at once
    """

    name: str
    protocols: tuple[RebalanceProtocol, ...] = ("eager",)

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        """Bytes to put into our subscription, for the leader's `assign`. Called before each join."""
        return None

    def assign(self, cluster: GroupCluster, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """Called on the leader: subscriptions by member id in, an assignment for each of these members out.

        What other members put into their subscriptions is only as good as they are; claims may be stale, double or nonsense.
        """
        ...

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Called on every member when it has its assignment, before the rebalance listener hears of it."""
        return  # not an empty body: a type checker would take the method for an abstract one


def member_order(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Member ids: static members first, by instance id, then dynamic ones by member id. A static member keeps its place when it
    restarts under another member id."""

    def key(member: str) -> tuple[bool, bytes, bytes]:
        instance = subscriptions[member].instance_id
        own = java_order(member)
        return (True, own, own) if instance is None else (False, java_order(instance), own)

    return sorted(subscriptions, key=key)


def subscribers(cluster: GroupCluster, subscriptions: Mapping[str, Subscription], members: list[str]) -> dict[str, list[int]]:
    """For each topic that exists and that somebody wants, by name: its subscribers as indices into `members`, ascending."""
    alike: dict[tuple[str, ...], list[int]] = {}  # in most groups all want the same
    for index, member in enumerate(members):
        alike.setdefault(subscriptions[member].topics, []).append(index)
    found: dict[str, list[list[int]]] = {}
    for topics, those in alike.items():
        for topic in set(topics):
            if cluster.partitions.get(topic, 0) > 0:
                found.setdefault(topic, []).append(those)
    return {topic: sorted(chain.from_iterable(found[topic])) for topic in sorted(found, key=java_order)}


def in_order(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """By topic, then by number."""
    return tuple(sorted(partitions, key=lambda tp: (java_order(tp.topic), tp.partition)))
