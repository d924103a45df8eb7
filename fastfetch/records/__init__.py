"""Bytes to blocks: a pure function, and the values it returns."""

from fastfetch.records.batches import BatchHeader, batches
from fastfetch.records.block import RecordBlock
from fastfetch.records.buffers import trim
from fastfetch.records.decode import Decoded, DecodeStats, decode
from fastfetch.records.fetched import FetchedPartition, FetchResponse, read_fetch_response
from fastfetch.records.record import Record

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
