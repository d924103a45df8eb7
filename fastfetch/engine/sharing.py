"""The leader's part of a classic rebalance: what the members sent, read; what they get, written."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from fastfetch.engine.assignors import Assignment, Subscription
from fastfetch.engine.membership import ShareOut
from fastfetch.engine.metadata import Cluster, MetadataUpdates
from fastfetch.errors import ProtocolError
from fastfetch.protocol.consumer_protocol import decode_subscription, encode_assignment
from fastfetch.types import TopicPartition

__all__ = ["GroupTopics", "encode_shares", "names", "read_subscriptions"]

log = logging.getLogger("fastfetch.engine")


class GroupTopics:
    """The topics that a group wants, as its leader knows them: how many partitions they have, and which of them have others by
    now than those that were shared out. Whoever does not lead wants none."""

    def __init__(self, cluster: Cluster, metadata: MetadataUpdates) -> None:
        self._cluster = cluster
        self._metadata = metadata
        self.names: frozenset[str] = frozenset()
        self._shared: dict[str, int] | None = None  # None: not seen yet what that was
        self._version = -1

    def want(self, topics: Iterable[str]) -> None:
        """Those of another generation."""
        self.names, self._shared, self._version = frozenset(topics), None, -1

    def share(self) -> dict[str, int] | None:
        """Numbers of partitions, to be shared out; None as long as a topic is being looked up."""
        self._shared = self._count()
        return self._shared

    def changed(self) -> list[str]:
        """Topics with other partitions than at `share()`. A leader that found everything shared out (KIP-814) takes what it sees
        first for that."""
        if self._version == self._cluster.version:
            return []
        counts = self._count()
        if counts is None:
            return []
        self._version = self._cluster.version
        if self._shared is None:
            self._shared = counts
        return sorted({name for name, _ in counts.items() ^ self._shared.items()})

    def _count(self) -> dict[str, int] | None:
        known, troubles = self._cluster.topics, self._cluster.troubles
        if any(name not in known and name not in troubles for name in self.names):
            self._metadata.request_update()
            return None
        return {
            name: len(known[name].partitions)
            for name in self.names
            if name in known and not (name in troubles and troubles[name].is_absence)
        }


def read_subscriptions(members: list[dict[str, Any]]) -> dict[str, Subscription]:
    """What the members of a group have sent to their leader. One that can't be read wants nothing and owns nothing."""
    found: dict[str, Subscription] = {}
    for member in members:
        try:
            subscription = decode_subscription(member["metadata"])
        except ProtocolError as error:
            log.warning("member %s of the group gets no partitions: %s", member["member_id"], error)
            subscription = Subscription(())
        found[member["member_id"]] = replace(subscription, instance_id=member["group_instance_id"])
    return found


def encode_shares(duty: ShareOut) -> list[dict[str, Any]]:
    """SyncGroup's assignments. Raises whatever comes of a result that is none."""
    shares = dict(duty.result or {})
    encoded = [
        {"member_id": member, "assignment": encode_assignment(shares.pop(member, Assignment()))} for member in duty.subscriptions
    ]
    if shares:
        raise ValueError(f"not members: {', '.join(map(str, shares))}")
    return encoded


def names(partitions: Iterable[TopicPartition]) -> str:
    """For a message: the first ten."""
    found = sorted(partitions)
    more = f" and {len(found) - 10} more" if len(found) > 10 else ""
    return ", ".join(map(str, found[:10])) + more if found else "nothing"
