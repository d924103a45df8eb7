"""A fetch response as Python sees it: partitions with their record bytes still in the frame."""

from typing import Never, final

from typing_extensions import Buffer

__all__ = ["FetchResponse", "FetchedPartition", "read_fetch_response"]

@final
class FetchedPartition:
    """What a broker answered for one partition.

    topic                   name, None from v13
    topic_id                16 bytes, None below v13
    error_code              a number; also one that nobody knows
    high_watermark, last_stable_offset, log_start_offset    offsets, -1 where unknown
    aborted                 (producer_id, first_offset) of aborted transactions, in the broker's order; None where it sent null
    preferred_read_replica  node to fetch from instead (KIP-392), -1: none
    records                 view of the frame; None where the broker sent null, which means the same as no bytes
    diverging_epoch         (epoch, end_offset): the log was cut below the position (KIP-320)
    current_leader          (leader_id, leader_epoch), with errors 6 and 74 (KIP-951)
    """

    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    @property
    def topic(self) -> str | None: ...
    @property
    def topic_id(self) -> bytes | None: ...
    @property
    def partition(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def aborted(self) -> list[tuple[int, int]] | None: ...
    @property
    def preferred_read_replica(self) -> int: ...
    @property
    def records(self) -> memoryview | None: ...
    @property
    def diverging_epoch(self) -> tuple[int, int] | None: ...
    @property
    def current_leader(self) -> tuple[int, int] | None: ...

@final
class FetchResponse:
    """A fetch response.

    throttle_time_ms    do not send to this broker for so long (KIP-219)
    error_code          of the whole response, 0 below v7
    session_id          of the fetch session (KIP-227), 0: none
    partitions          in wire order
    node_endpoints      (node_id, host, port, rack) of new leaders (KIP-951), from v16
    """

    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    @property
    def correlation_id(self) -> int: ...
    @property
    def throttle_time_ms(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def session_id(self) -> int: ...
    @property
    def partitions(self) -> list[FetchedPartition]: ...
    @property
    def node_endpoints(self) -> list[tuple[int, str, int, str | None]]: ...

def read_fetch_response(frame: Buffer, version: int) -> FetchResponse:
    """Read a fetch response (v4 to v18) without copying its records. Raises ProtocolError."""
