"""Bytes to blocks: a pure function, and the values it returns."""

from fastfetch.records.block import Record, RecordBlock
from fastfetch.records.decode import Decoded, DecodeStats, decode

__all__ = ["DecodeStats", "Decoded", "Record", "RecordBlock", "decode"]
