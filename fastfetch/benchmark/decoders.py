"""What bytes are decoded with: fastfetch, and the peers whose decoder can be called by itself.

Each takes the `records` bytes of a fetch response, checks every CRC, and returns the number of records.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from fastfetch.benchmark.external import ToolError
from fastfetch.records import decode

__all__ = ["PEERS", "Decoder", "fastfetch_decoder", "peer_decoder"]

Decoder: TypeAlias = Callable[[bytes], int]


def fastfetch_decoder(threads: int = 1) -> Decoder:
    """Bytes to columns."""
    return partial(_fastfetch, threads)


def _fastfetch(threads: int, data: bytes) -> int:
    decoded = decode(data, threads=threads)
    decoded.raise_for_error()
    return len(decoded)


def _aiokafka() -> Any:
    from aiokafka.record import MemoryRecords  # type: ignore[import-untyped, unused-ignore]

    # Without its extension, or under AIOKAFKA_NO_EXTENSIONS, it falls back to Python without a word; that would flatter us.
    if "_crecords" not in MemoryRecords.__module__:
        raise ToolError(
            f"aiokafka: it runs without its C extension ({MemoryRecords.__module__}), so there is nothing to compare with"
        )
    return MemoryRecords


def _kafka_python() -> Any:
    with warnings.catch_warnings():
        # It reads its schemas in a way that Python 3.11 calls deprecated; under pytest a warning is an error here.
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka.record import MemoryRecords  # type: ignore[import-untyped, unused-ignore]
    return MemoryRecords


# Bytes to one Python object a record: in Cython, and in pure Python (its CRC is the crc32c package's).
PEERS: dict[str, Callable[[], Any]] = {"aiokafka": _aiokafka, "kafka-python": _kafka_python}


def peer_decoder(name: str) -> Decoder:
    """Of one of PEERS. Raises ToolError if it is not installed."""
    try:
        return partial(_decode, PEERS[name]())
    except ImportError:
        raise ToolError(f"{name}: it is not installed") from None


def _decode(memory_records: Any, data: bytes) -> int:
    count = 0
    batches = memory_records(data)
    while batches.has_next():
        batch = batches.next_batch()
        if not batch.validate_crc():
            raise ValueError("CRC mismatch")
        for _ in batch:
            count += 1
    return count
