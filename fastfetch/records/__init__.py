"""Bytes to blocks: a pure function, and the values it returns."""

from fastfetch.records.batches import BatchHeader, batches
from fastfetch.records.block import RecordBlock
from fastfetch.records.buffers import trim as _trim_buffers
from fastfetch.records.decode import Decoded, DecodeStats, decode
from fastfetch.records.fetched import FetchedPartition, FetchResponse, read_fetch_response
from fastfetch.records.record import Record, free_placeholders

__all__ = [
    "BatchHeader",
    "DecodeStats",
    "Decoded",
    "FetchResponse",
    "FetchedPartition",
    "Record",
    "RecordBlock",
    "batches",
    "decode",
    "read_fetch_response",
    "trim",
]


def trim() -> int:
    """Give memory that is kept for the next decode back to the system. Returns the bytes of arenas and slabs freed."""
    free_placeholders()
    return _trim_buffers()
