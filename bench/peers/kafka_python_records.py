"""kafka-python's decoder in pure Python (its CRC is the crc32c package's)."""

import warnings

with warnings.catch_warnings():
    # It reads its schemas in a way that Python 3.11 calls deprecated; under pytest a warning is an error here.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords  # type: ignore[import-untyped]

__all__ = ["decode"]


def decode(data: bytes) -> int:
    """Decode every record of `data` and return how many there were. ValueError if a CRC is wrong."""
    count = 0
    batches = MemoryRecords(data)
    while batches.has_next():
        batch = batches.next_batch()
        if not batch.validate_crc():
            raise ValueError("CRC mismatch")
        for _ in batch:
            count += 1
    return count
