"""An assignor of your own: each member says how much it can take, and gets partitions in proportion.

    python examples/custom_assignor.py orders --brokers 127.0.0.1:9092 --group loader --capacity 1
    python examples/custom_assignor.py orders --brokers 127.0.0.1:9092 --group loader --capacity 3     # on the large machine

What a member has to say travels as *user data* in its subscription. One member, the group's leader, is given the subscriptions of
all and shares the partitions out; the others never run `assign`. All members of a group must offer the assignor, by its name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping

import fastfetch
from fastfetch import TopicPartition
from fastfetch.assignors import Assignment, Assignor, GroupCluster, Subscription, member_order


class ByCapacity(Assignor):
    """Every partition goes to the member that has the least for its capacity. The capacity is the user data, in digits."""

    name = "by-capacity"

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity

    def subscription_user_data(self, topics: Collection[str]) -> bytes:
        return str(self._capacity).encode()

    def assign(self, cluster: GroupCluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        capacities = {member: capacity_of(subscriptions[member]) for member in member_order(subscriptions)}
        shares: dict[str, list[TopicPartition]] = {member: [] for member in capacities}
        for topic, count in sorted(cluster.partitions.items()):
            able = [member for member in capacities if topic in subscriptions[member].topics]
            for number in range(count if able else 0):
                # The share it would have then; min() takes the first of equals, so that every leader decides alike.
                member = min(able, key=lambda member: (len(shares[member]) + 1) / capacities[member])
                shares[member].append(TopicPartition(topic, number))
        return {member: Assignment(tuple(share)) for member, share in shares.items()}


def capacity_of(subscription: Subscription) -> int:
    """What the member said; 1 if it said nothing that makes sense. An assignor that raises would stop the whole group."""
    said = subscription.user_data or b""
    return int(said) if said.isdigit() and len(said) < 10 and int(said) > 0 else 1


class Show(fastfetch.RebalanceListener):
    """Prints what this member has after each rebalance."""

    def __init__(self, consumer: fastfetch.Consumer) -> None:
        self._consumer = consumer

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        print("assigned:", *sorted(map(str, self._consumer.assignment())), flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("topics", nargs="+")
    arguments.add_argument("--brokers", default="127.0.0.1:9092", metavar="HOST:PORT,...")
    arguments.add_argument("--group", default="by-capacity")
    arguments.add_argument("--capacity", type=int, default=1)
    arguments.add_argument("--idle-ms", type=int, help="end when nothing came for so long; default: never")
    arguments.add_argument("-X", dest="settings", type=setting, action="append", default=[], metavar="NAME=VALUE")
    args = arguments.parse_args()
    settings = {"auto.offset.reset": "earliest", **dict(args.settings)}

    with fastfetch.Consumer(
        settings,
        bootstrap_servers=args.brokers,
        group_id=args.group,
        partition_assignment_strategy=ByCapacity(args.capacity),
    ) as consumer:
        consumer.subscribe(args.topics, listener=Show(consumer))
        records = sum(map(len, consumer.blocks(timeout_ms=args.idle_ms)))
        print(f"{records} records")


def setting(text: str) -> tuple[str, str]:
    """Any setting of the consumer, such as session.timeout.ms=10000."""
    name, value = text.split("=", 1)
    return name, value


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
