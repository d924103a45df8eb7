"""Small value types of the public contract. Standard library only."""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

__all__ = ["GroupMetadata", "OffsetAndMetadata", "OffsetAndTimestamp", "RebalanceListener", "TopicPartition"]


class TopicPartition(NamedTuple):
    """A topic's name and a partition's number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """What is committed: the *next* offset to read, a free text, and the leader epoch of the last record consumed."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """Answer of a look-up by time: the first offset whose timestamp (ms since 1970) is not below the one asked for."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


class GroupMetadata(NamedTuple):
    """Who commits: what a transactional producer needs to send offsets for this consumer (KIP-447).

    generation_id   generation of the classic protocol, member epoch of the consumer protocol; -1: not a member now
    """

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


@runtime_checkable
class RebalanceListener(Protocol):
    """Hears of partitions coming and going. Called from within poll(), unsubscribe() and close(), with no lock held.

    Subclass it, or write a class with those of the methods that are needed. What one raises comes out of the call, once the
    group's affairs are in order. With an AsyncConsumer they may be coroutine functions.
    """

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are new; nothing of them was handed out yet, and their positions may be set here with seek()."""
        return None  # not an empty body: a type checker would take the method for an abstract one

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These partitions go; committing here still works. Under the eager protocol all go before each rebalance."""
        return None

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are gone already, another member may own them: nothing can be committed. The same as revoked, unless
        it is defined."""
        return self.on_partitions_revoked(partitions)
