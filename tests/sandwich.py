"""A bad batch between two good ones, and what has to come of it.

The bad one is at offsets 2 and 3. Wanted are the two records before it, the position at 2 (or past what the bad batch itself
gave), the error with its place, and a skip target only where a right CRC vouches for one.
"""

from __future__ import annotations

import struct
from typing import Any

from building import batch, record, records

import fastfetch
from fastfetch import errors

__all__ = ["AFTER", "AT", "BEFORE", "DATA", "accepted", "bad", "check", "decoded", "txn", "words"]

BEFORE = batch(records(2), 2)
AFTER = batch(records(2), 2, base=4)
AT = len(BEFORE)
DATA = records(2)
CLASSES = {
    "length": errors.CorruptBatchError, "magic": errors.CorruptBatchError, "offset": errors.CorruptBatchError,
    "crc": errors.CrcMismatchError, "codec": errors.UnsupportedCodecError, "inflate": errors.DecompressionError,
    "too_large": errors.BatchTooLargeError, "count": errors.InvalidRecordError, "record": errors.InvalidRecordError,
    "marker": errors.InvalidRecordError,
}  # fmt: skip


def words(text: str) -> list[str]:
    """The ids of a parametrized test."""
    return text.split()


def bad(payload: bytes = DATA, count: int = 2, **fields: Any) -> bytes:
    return batch(payload, count, **{"base": 2, "last": 1} | fields)


def decoded(data: bytes | memoryview, **arguments: Any) -> tuple[list[int], Any]:
    d = fastfetch.decode(data, **{"position": 0} | arguments)
    return [offset for block in d.blocks for offset in block.offsets.tolist()], d


def check(
    entry: bytes,
    kind: str,
    *,
    skip: int | None,
    delivered: int = 0,
    cls: type[errors.CorruptBatchError] | None = None,
    after: bytes = AFTER,
    **arguments: Any,
) -> Any:
    """`entry` between two good batches fails as told. `delivered`: how many of its own records come before the bad one."""
    offsets, d = decoded(BEFORE + entry + after, **arguments)
    error = d.error
    assert type(error) is (cls or CLASSES[kind])
    assert error.kind == kind
    assert (error.next_offset, error.skip_trusted) == (skip, skip is not None)
    assert (error.byte_pos, d.consumed) == (AT, AT)
    assert error.base_offset == struct.unpack_from(">q", entry)[0]
    assert offsets == list(range(2 + delivered))
    assert d.next_offset == error.position == 2 + delivered
    assert str(error)
    return error


def accepted(entry: bytes, offsets: tuple[int, ...] = (2, 3), next_offset: int = 4, **arguments: Any) -> Any:
    """`entry` between two good batches is read, and what follows it, too."""
    got, d = decoded(BEFORE + entry + batch(records(1), 1, base=next_offset), **arguments)
    assert d.error is None
    assert got == [0, 1, *offsets, next_offset]
    return d


def txn(base: int, producer: int = 7) -> bytes:
    """One record of a transaction."""
    return batch([record()], base=base, attributes=0x10, producer=producer)
