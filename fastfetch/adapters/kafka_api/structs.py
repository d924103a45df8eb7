"""kafka-python's value types: its own where it is installed, else tuples of the same names and fields."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fastfetch import types
from fastfetch.adapters.errors import Peer

__all__ = [
    "AsyncConsumerRebalanceListener",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "MemberState",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
]

T = TypeVar("T")


def _like(module: str) -> Callable[[T], T]:
    """Peer, but a tuple of its only if it has the fields that are filled here: older versions have fewer."""
    peer = Peer(module)

    def choose(ours: T) -> T:
        theirs = peer(ours)
        return theirs if getattr(theirs, "_fields", None) == getattr(ours, "_fields", None) else ours

    return choose


_struct = _like("kafka.structs")
_listener = Peer("kafka.consumer.subscription_state")

if TYPE_CHECKING:
    from fastfetch.types import TopicPartition as TopicPartition
else:
    TopicPartition = _struct(types.TopicPartition)


@_struct
class OffsetAndMetadata(NamedTuple):
    """What is committed: the *next* offset to read, a free text, the leader epoch of the last record consumed (-1: unknown)."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@_struct
class OffsetAndTimestamp(NamedTuple):
    """Answer of a look-up by time: the first offset whose timestamp (ms since 1970) is not below the one asked for."""

    offset: int
    timestamp: int
    leader_epoch: int


@_struct
class MemberState:
    """Where a consumer stands with its group."""

    UNJOINED = "<unjoined>"
    REBALANCING = "<rebalancing>"
    STABLE = "<stable>"


@_struct
class ConsumerGroupMetadata(NamedTuple):
    """Who commits, for a transactional producer (KIP-447)."""

    group_id: str | None = None
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    state: str = MemberState.UNJOINED


@_like("kafka.consumer.fetcher")
class ConsumerRecord(NamedTuple):
    """A record. Sizes are of the bytes as they came, -1 where there is nothing; timestamp in ms since 1970, its type 0 for the
    producer's clock and 1 for the broker's."""

    topic: str
    partition: int
    leader_epoch: int
    offset: int
    timestamp: int | None
    timestamp_type: int | None
    key: Any
    value: Any
    headers: list[tuple[str, bytes | None]]
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


@_listener
class ConsumerRebalanceListener(ABC):
    """Hears of partitions coming and going, from within poll(), iteration, unsubscribe() and close()."""

    @abstractmethod
    def on_partitions_revoked(self, revoked: Any) -> Any:
        """These partitions go; committing here still works."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: Any) -> Any:
        """These partitions are new; nothing of them was handed out yet, and their positions may be set here."""

    def on_partitions_lost(self, lost: Any) -> Any:
        """These partitions are gone already: nothing can be committed."""
        return self.on_partitions_revoked(lost)


@_listener
class AsyncConsumerRebalanceListener(ABC):
    """The same with coroutine functions, which are run to their end before anything else happens."""

    @abstractmethod
    async def on_partitions_revoked(self, revoked: Any) -> Any: ...

    @abstractmethod
    async def on_partitions_assigned(self, assigned: Any) -> Any: ...

    async def on_partitions_lost(self, lost: Any) -> Any:
        await self.on_partitions_revoked(lost)
