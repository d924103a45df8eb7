"""`roundrobin`: all partitions in order are dealt to the members in a circle, passing over those that do not want the topic."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from fastfetch.engine.assignors.contract import Assignor, GroupCluster, member_order, subscribers
from fastfetch.protocol.consumer_protocol import Assignment, Subscription
from fastfetch.types import TopicPartition

__all__ = ["RoundRobinAssignor"]


class RoundRobinAssignor(Assignor):
    """Even where all want the same topics. Where they don't, it may be far from it: `sticky` is better then."""

    name = "roundrobin"

    def assign(self, cluster: GroupCluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        members = member_order(subscriptions)
        shares: list[list[TopicPartition]] = [[] for _ in members]
        turn = 0  # the member whose turn it is, if it wants the topic
        for topic, able in subscribers(cluster, subscriptions, members).items():
            place = bisect_left(able, turn)
            for number in range(cluster.partitions[topic]):
                member = able[place % len(able)]
                shares[member].append(TopicPartition(topic, number))
                place += 1
            turn = able[(place - 1) % len(able)] + 1
        return {member: Assignment(tuple(share)) for member, share in zip(members, shares, strict=True)}
