"""aiokafka's Cython decoder: bytes in, one Python object a record out, every CRC checked."""

from aiokafka.record import MemoryRecords  # type: ignore[import-untyped]

__all__ = ["decode"]

# Without its extension, or under AIOKAFKA_NO_EXTENSIONS, the peer falls back to Python without a word; that would flatter us.
if "_crecords" not in MemoryRecords.__module__:
    raise ImportError(f"aiokafka runs without its C extension ({MemoryRecords.__module__}): nothing to compare with")


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
