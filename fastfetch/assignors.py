"""Who in a group gets which partitions: Kafka's assignors, and what it takes to write one.

    from fastfetch.assignors import Assignment, Assignor

    class Mine(Assignor):
        name = "mine"

        def assign(self, cluster, subscriptions):
            ...  # subscriptions by member id in, {member id: Assignment(partitions)} out

    Consumer(bootstrap_servers=..., group_id="g", partition_assignment_strategy=[Mine, "range"])

Assignors run in the member that leads the group, within its calls of `poll`. The first one of the list that every member of the
group offers is taken. They are for `group_protocol="classic"`; under "consumer" the broker assigns.
"""

from fastfetch.engine.assignors import (
    Assignment,
    Assignor,
    CooperativeStickyAssignor,
    GroupCluster,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    StickyAssignor,
    Subscription,
    member_order,
)

__all__ = [
    "Assignment",
    "Assignor",
    "CooperativeStickyAssignor",
    "GroupCluster",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Subscription",
    "member_order",
]
