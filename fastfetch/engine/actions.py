"""What the engine asks the world to do. Performed in the order given, outside any lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastfetch.engine.subscription import PartitionState

__all__ = ["Action", "CloseConnection", "DecodeRecords", "OpenConnection", "SendBytes", "TrimMemory"]


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """Connect to any address that `host` resolves to, and report ConnectionOpened or ConnectionLost.

    frame_limit        longest frame accepted, in bytes, checked before memory is asked for
    first_frame_limit  the same for the first frame of the connection: an answer to ApiVersions is small, and what answers may
                       not be a broker at all
    """

    conn: int
    host: str
    port: int
    frame_limit: int
    first_frame_limit: int


@dataclass(frozen=True, slots=True)
class SendBytes:
    """A whole request."""

    conn: int
    data: bytes


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """Close without a report: the engine has forgotten this connection already."""

    conn: int


@dataclass(slots=True, eq=False)
class DecodeRecords:
    """Run `decode` over one partition's bytes and report RecordsDecoded. Off the lock: it may take milliseconds.

    partition  whose records they are
    ticket     the partition's ticket when the bytes were asked for; the outcome is dropped if it has moved on
    start      the fetch offset asked for, which is where records begin to count
    records    view of the response; the performer sets it to None afterwards, so that the buffer can be reused
    aborted    (producer id, first offset) of aborted transactions
    expected   next offset as the batch headers promise it; a fetch from there may be under way already
    leader_epoch  of the batch that ends there, -1: none
    wire_bytes length of `records`
    reserved_bytes  what this is expected to take of the budget
    """

    partition: PartitionState
    ticket: int
    start: int
    records: memoryview | bytes | None
    aborted: list[tuple[int, int]]
    expected: int
    leader_epoch: int
    wire_bytes: int
    reserved_bytes: int
    node_id: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class TrimMemory:
    """Nothing has been decoded for long: give buffers that are kept for the next answer back to the system."""


Action = OpenConnection | SendBytes | CloseConnection | DecodeRecords | TrimMemory
