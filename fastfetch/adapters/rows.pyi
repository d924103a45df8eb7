from collections.abc import Callable
from typing import Any, TypeVar

from fastfetch.records.block import RecordBlock

T = TypeVar("T", bound=tuple[Any, ...])

def named_tuples(block: RecordBlock, kind: type[T], topic: str) -> list[T]: ...
def append_named_tuples(
    out: list[T],
    block: RecordBlock,
    kind: type[T],
    topic: str,
    key: Callable[[str, list[tuple[str, bytes | None]], bytes | None], Any] | None = None,
    value: Callable[[str, list[tuple[str, bytes | None]], bytes | None], Any] | None = None,
) -> None: ...
def serialized_bytes(block: RecordBlock) -> int: ...
