"""The leader's part of a classic rebalance: what the members sent, read; what they get, written."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from fastfetch.engine.assignors import Assignment, Subscription
from fastfetch.engine.membership import ShareOut
from fastfetch.errors import ProtocolError
from fastfetch.protocol.consumer_protocol import decode_subscription, encode_assignment
from fastfetch.types import TopicPartition

__all__ = ["encode_shares", "names", "read_subscriptions"]

log = logging.getLogger("fastfetch.engine")


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
