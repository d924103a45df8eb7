"""Running scripts with a client and with its likeness here, beside each other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastfetch.testing import Broker

T = TypeVar("T")
Script = Callable[[Any, Broker], Any]


def beside(theirs: Any, ours: Any) -> Callable[..., Any]:
    """A function that runs a script with either namespace, each with a broker of its own that has the topics named, and returns
    what both saw."""

    def both(script: Script, **topics: int) -> Any:
        seen = []
        for namespace in (theirs, ours):
            with Broker() as broker:
                for name, partitions in (topics or {"orders": 1}).items():
                    broker.create_topic(name, partitions=partitions)
                seen.append(script(namespace, broker))
        assert seen[1] == seen[0]
        return seen[1]

    return both


def run(main: Coroutine[Any, Any, T]) -> T:
    """asyncio.run() for half a minute at the most."""

    async def limited() -> T:
        async with asyncio.timeout(30):
            return await main

    return asyncio.run(limited())


def read(consumer: Any, count: int, seconds: float = 20) -> list[Any]:
    """Messages of a confluent-style consumer's polls until there are `count`."""
    found: list[Any] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            found.append(message)
    assert len(found) == count
    return found
