from collections.abc import Iterator
from dataclasses import dataclass

from typing_extensions import Buffer

@dataclass(frozen=True, slots=True)
class BatchHeader:
    byte_pos: int
    size: int
    magic: int
    codec: str
    base_offset: int
    last_offset: int
    next_offset: int
    count: int | None
    crc: int
    crc_ok: bool | None
    timestamp_type: int
    base_timestamp: int
    max_timestamp: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: bool
    delete_horizon: int | None

def batches(data: Buffer, *, check_crcs: bool = True) -> Iterator[BatchHeader]: ...
