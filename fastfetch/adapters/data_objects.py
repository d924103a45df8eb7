"""Blocks into aiokafka's records: instances of a dataclass."""

from __future__ import annotations

from typing import Any, TypeVar

from fastfetch.adapters.instances import rows
from fastfetch.records import RecordBlock

__all__ = ["data_objects"]

T = TypeVar("T")


def data_objects(block: RecordBlock, kind: type[T]) -> list[T]:
    """The block's records as instances of `kind`, a class with the eleven attributes of aiokafka's ConsumerRecord.

    As that client has them: timestamp (ms since 1970) and its type None in format 0; checksum the message's CRC in formats 0 and 1,
    else None; sizes in bytes, -1 for null; headers a tuple of (str, bytes | None), keys that are not UTF-8 with surrogateescape.
    `__init__` is not called. Raises TypeError for a class with a `__new__` of its own.
    """
    out: list[Any] = []
    topic = block.topic
    partition = block.partition
    append = out.append
    for row in rows(block, kind):
        record: Any
        (
            record,
            record_offset,
            timestamp,
            timestamp_type,
            key,
            value,
            checksum,
            key_size,
            value_size,
            headers,
        ) = row
        record.topic = topic
        record.partition = partition
        record.offset = record_offset
        record.timestamp = timestamp
        record.timestamp_type = timestamp_type
        record.key = key
        record.value = value
        record.checksum = checksum
        record.serialized_key_size = key_size
        record.serialized_value_size = value_size
        record.headers = headers
        append(record)
    return out
