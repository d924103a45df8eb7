from collections.abc import Iterator
from typing import TypeVar

from fastfetch.records.block import RecordBlock

T = TypeVar("T")

Row = tuple[
    T,
    int,
    int | None,
    int | None,
    bytes | None,
    bytes | None,
    int | None,
    int,
    int,
    tuple[tuple[str, bytes | None], ...],
]

def rows(block: RecordBlock, kind: type[T]) -> Iterator[Row[T]]: ...
