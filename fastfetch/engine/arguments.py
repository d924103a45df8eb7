"""What callers give, as values that can be trusted. Whatever is wrong with it is a UsageError that names the call and the value.

Whole numbers may be of any type that is one, NumPy's included: offsets often come out of columns.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from fastfetch.errors import UsageError
from fastfetch.types import OffsetAndMetadata, TopicPartition

__all__ = ["Partitions", "as_integer", "as_offset", "as_partition", "as_partitions", "as_text", "as_user_data", "flattened"]

LONGEST_TEXT = 32_767  # bytes: an int16 length on the wire

Partitions = TopicPartition | Iterable[TopicPartition]


def as_integer(value: object, below: int) -> int | None:
    """`value` as an int from 0 up to below `below`; None if it is none."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    number = operator.index(value)
    return number if 0 <= number < below else None


def as_text(value: object, what: str) -> str:
    """A string that can be sent."""
    if not isinstance(value, str):
        raise UsageError(f"{what} must be a string; got {value!r}")
    try:
        size = len(value.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise UsageError(f"{what}: UTF-8 has nothing for {value!r}") from None
    if size > LONGEST_TEXT:
        raise UsageError(f"{what} must be at most {LONGEST_TEXT} bytes long; it has {size}")
    return value


def as_user_data(value: object, assignor: str) -> bytes | None:
    if value is None or isinstance(value, bytes | bytearray | memoryview):
        return value  # type: ignore[return-value]
    raise UsageError(f"subscription_user_data of assignor {assignor!r} must return bytes or None; it returned {value!r}")


def as_partition(tp: object, what: str) -> TopicPartition:
    if isinstance(tp, tuple) and len(tp) == 2 and isinstance(tp[0], str) and tp[0]:
        partition = as_integer(tp[1], 2**31)
        if partition is not None:
            return TopicPartition(as_text(tp[0], f"{what}: a topic's name"), partition)
    raise UsageError(f"{what}: {tp!r} is no partition; write TopicPartition('orders', 0)")


def as_partitions(given: Any, what: str) -> list[TopicPartition]:
    """One partition, or any number of them, without doubles. Other clients' named tuples of that kind are as good as ours."""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        given = [given]
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UsageError(f"{what}: give a list of TopicPartition, not {given!r}")
    return list(dict.fromkeys(as_partition(tp, what) for tp in given))


def flattened(given: tuple[Partitions, ...], what: str) -> list[TopicPartition]:
    """`f(tp, tp)` and `f([tp, tp])` are the same."""
    return [tp for each in given for tp in as_partitions(each, what)]


def as_offset(tp: TopicPartition, given: object, what: str) -> OffsetAndMetadata:
    at = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)  # type: ignore[arg-type]
    offset = as_integer(at.offset, 2**63)
    if offset is None:
        raise UsageError(f"{what}: the offset of {tp} must be a whole number from 0, or an OffsetAndMetadata; got {given!r}")
    if at.metadata is not None:
        as_text(at.metadata, f"{what}: the metadata of {tp}")
    return OffsetAndMetadata(offset, at.metadata, at.leader_epoch)
