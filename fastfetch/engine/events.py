"""What the world tells the engine. Frozen facts; `conn` numbers one connection attempt and is never reused."""

from __future__ import annotations

from dataclasses import dataclass

from fastfetch.engine.actions import DecodeRecords
from fastfetch.records import Decoded

__all__ = ["BytesArrived", "ConnectionLost", "ConnectionOpened", "Event", "FrameArrived", "RecordsDecoded"]


@dataclass(frozen=True, slots=True)
class ConnectionOpened:
    """The socket is connected; nothing has been sent over it."""

    conn: int


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The connection is gone, or never came up. `reason` is for people: "connection refused", "closed by the broker".
    `cause` is set where it is this process that lacks something (MemoryError)."""

    conn: int
    reason: str
    cause: Exception | None = None


@dataclass(frozen=True, slots=True)
class BytesArrived:
    """A part of a frame came in. Sent now and then while a frame is incomplete: a slow link is not a dead one."""

    conn: int


@dataclass(frozen=True, slots=True)
class FrameArrived:
    """One whole response, without its size. Records in it are handed on as views of this buffer."""

    conn: int
    frame: bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class RecordsDecoded:
    """The outcome of a `DecodeRecords`. `error` is what `decode` raised (MemoryError, a bug), never a bad batch, which is in
    `result`. Neither: nobody wants it any more, or there is no room for it now."""

    job: DecodeRecords
    result: Decoded | None
    error: Exception | None = None


Event = ConnectionOpened | ConnectionLost | BytesArrived | FrameArrived | RecordsDecoded
