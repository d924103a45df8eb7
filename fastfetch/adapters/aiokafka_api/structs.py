"""What aiokafka's consumer takes and gives: its own classes where it is installed, else ones with the same names and fields."""

from __future__ import annotations

import abc
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from fastfetch.adapters.errors import Peer

__all__ = ["ConsumerRebalanceListener", "ConsumerRecord", "OffsetAndMetadata", "OffsetAndTimestamp", "TopicPartition"]

KT = TypeVar("KT")
VT = TypeVar("VT")

structs = Peer("aiokafka.structs")


@structs
class TopicPartition(NamedTuple):
    """A topic's name and a partition's number."""

    topic: str
    partition: int


@structs
class OffsetAndMetadata(NamedTuple):
    """What is committed: the next offset to read, and a free text."""

    offset: int
    metadata: str


@structs
class OffsetAndTimestamp(NamedTuple):
    """Answer of a look-up by time."""

    offset: int
    timestamp: int | None


@structs
@dataclass
class ConsumerRecord(Generic[KT, VT]):
    """A record. Sizes are those of key and value as they came over the wire, -1 for null; `timestamp` in ms since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: KT | None
    value: VT | None
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    headers: Collection[tuple[str, bytes]]


@Peer("aiokafka.abc")
class ConsumerRebalanceListener(abc.ABC):
    """Hears of partitions coming and going. The methods may be coroutine functions; the group waits for them."""

    @abc.abstractmethod
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Any:
        """All these go before the group shares its partitions out anew; committing still works."""

    @abc.abstractmethod
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Any:
        """These came; nothing of them was handed out yet, and seek() may be called."""
