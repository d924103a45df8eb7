"""Members of groups for the tests of the command line: consumers of ours, at the scripted broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import fastfetch
from fastfetch.testing import Broker

SECONDS = 30


@contextmanager
def joined(broker: Broker, group: str, count: int, protocol: str = "classic", **settings: object) -> Iterator[None]:
    """`count` members app-0, app-1, … that share "orders", inside when the group is stable. They commit nothing."""
    if protocol == "classic":
        settings = {"heartbeat_interval_ms": 100} | settings
    with ExitStack() as stack:
        members = [
            stack.enter_context(
                fastfetch.Consumer(
                    bootstrap_servers=broker.bootstrap_servers,
                    group_id=group,
                    group_protocol=protocol,
                    client_id=f"app-{number}",
                    enable_auto_commit=False,
                    **settings,
                )
            )
            for number in range(count)
        ]
        for member in members:
            member.subscribe(["orders"])
        deadline = time.monotonic() + SECONDS
        while True:
            for member in members:
                member.poll(20)
            seen = broker.group(group)
            if seen.state == "Stable" and len(seen.members) == count and all(member.assignment() for member in members):
                break
            assert time.monotonic() < deadline, seen
        yield
