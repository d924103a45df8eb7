"""`range`: of each topic by itself, its subscribers in order get runs of neighbouring partitions.

n partitions among m subscribers: n // m each, and one more for the first n mod m. Topics with equally many partitions and the
same subscribers are split alike, so that partition 5 of both goes to one member; the price is that the first members get more.
"""

from __future__ import annotations

from collections.abc import Mapping

from fastfetch.engine.assignors.contract import Assignor, GroupCluster, member_order, subscribers
from fastfetch.protocol.consumer_protocol import Assignment, Subscription
from fastfetch.types import TopicPartition

__all__ = ["RangeAssignor"]


class RangeAssignor(Assignor):
    """Runs of neighbouring partitions, topic by topic. Racks are not looked at."""

    name = "range"

    def assign(self, cluster: GroupCluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        members = member_order(subscriptions)
        shares: list[list[TopicPartition]] = [[] for _ in members]
        for topic, able in subscribers(cluster, subscriptions, members).items():
            count = cluster.partitions[topic]
            each, more = divmod(count, len(able))
            start = 0
            for place, member in enumerate(able[:count]):  # behind those there is nothing left
                end = start + each + (place < more)
                shares[member] += [TopicPartition(topic, number) for number in range(start, end)]
                start = end
        return {member: Assignment(tuple(share)) for member, share in zip(members, shares, strict=True)}
