"""Assignors: who in a group gets which partitions.

`Assignor` is what the group asks of one; a user's own needs no more than its methods. `ASSIGNORS` has ours by the name they have
on the wire. They give the Java client's answers: range and roundrobin exactly, the sticky ones as far as theirs are determined.
"""

from collections.abc import Callable

from fastfetch.engine.assignors.contract import Assignor, GroupCluster, RebalanceProtocol
from fastfetch.engine.assignors.range import RangeAssignor
from fastfetch.engine.assignors.round_robin import RoundRobinAssignor
from fastfetch.engine.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from fastfetch.protocol.consumer_protocol import Assignment, Subscription

__all__ = [
    "ASSIGNORS",
    "Assignment",
    "Assignor",
    "CooperativeStickyAssignor",
    "GroupCluster",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Subscription",
]

ASSIGNORS: dict[str, Callable[[], Assignor]] = {
    kind.name: kind for kind in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}
"""Each call makes a fresh one: the sticky ones remember what their member had."""
