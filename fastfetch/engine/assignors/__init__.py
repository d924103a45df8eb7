"""Assignors: who in a group gets which partitions.

`Assignor` is what the group asks of one; a user's own needs no more than its methods. `ASSIGNORS` has ours by the name they have
on the wire. They give the Java client's answers: range and roundrobin exactly, the sticky ones as far as theirs are determined.
"""

from fastfetch.engine.assignors.contract import Assignor, GroupCluster, RebalanceProtocol, member_order
from fastfetch.engine.assignors.range import RangeAssignor
from fastfetch.engine.assignors.round_robin import RoundRobinAssignor
from fastfetch.engine.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from fastfetch.engine.assignors.strategies import ASSIGNORS, make_assignors, rebalance_protocol
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
    "make_assignors",
    "member_order",
    "rebalance_protocol",
]
