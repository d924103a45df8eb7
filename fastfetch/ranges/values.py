"""What a plan is made of, and what it is asked for by: plain values that any process can have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from fastfetch.engine.arguments import as_integer
from fastfetch.errors import UsageError
from fastfetch.types import TopicPartition

__all__ = ["Isolation", "OffsetRange", "Timestamp"]

Isolation = Literal["read_uncommitted", "read_committed"]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records of one partition with start <= offset < end.

    A value: it is pickled, compared, hashed, and kept as JSON (`dataclasses.asdict(r)`, and back by `OffsetRange(**fields)`: all
    fields are strings, integers or None). It says where brokers are, and nothing else about connecting to them: settings, secrets
    among them, are given to `read`.

    bootstrap_servers   "host:port,host:port"
    isolation           "read_uncommitted" or "read_committed"; the end was fixed under it
    topic_id            of the topic that was planned, as Kafka's tools write it: another topic that has its name by now is not
                        read for it. None where brokers give no ids
    leader_epoch        of the partition's leader when the end was fixed, None if not known

    `len(r)` is the number of offsets, which is the most records there can be; a range without any is false.
    """

    bootstrap_servers: str
    topic: str
    partition: int
    start: int
    end: int
    isolation: Isolation = "read_uncommitted"
    topic_id: str | None = None
    leader_epoch: int | None = None

    def __post_init__(self) -> None:
        for name in ("partition", "start", "end"):  # numbers out of columns are not JSON
            value = as_integer(getattr(self, name), 2**63)
            if value is None:
                raise UsageError(f"{name} of a range must be a whole number from 0; got {getattr(self, name)!r}")
            object.__setattr__(self, name, value)
        if self.start > self.end:
            raise UsageError(f"a range goes from an offset up to one that is not below it, not from {self.start} to {self.end}")
        if self.isolation not in ("read_uncommitted", "read_committed"):
            raise UsageError(f"isolation is 'read_uncommitted' or 'read_committed', not {self.isolation!r}")

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    def rest(self, next_offset: int) -> OffsetRange:
        """What is left once a block with this `next_offset` is done: how an interrupted read goes on."""
        return replace(self, start=min(max(next_offset, self.start), self.end))

    def split(self, max_records: int) -> list[OffsetRange]:
        """Cut into ranges of nearly the same size, none of more than `max_records` offsets. An empty range stays one."""
        most = as_integer(max_records, 2**63)
        if not most:
            raise UsageError(f"max_records must be a whole number from 1; got {max_records!r}")
        pieces = max(1, -(-len(self) // most))
        return self.cut([self.start + len(self) * i // pieces for i in range(1, pieces)])

    def cut(self, at: Iterable[int]) -> list[OffsetRange]:
        """Cut at these offsets; those that are not inside count for nothing."""
        edges = sorted({self.start, self.end, *(int(offset) for offset in at if self.start < offset < self.end)})
        return [replace(self, start=a, end=b) for a, b in pairwise(edges)] or [self]


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A time as milliseconds since 1970, where a plain number would be an offset."""

    ms: int
