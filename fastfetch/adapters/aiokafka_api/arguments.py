"""What callers give to aiokafka's consumer, as values of fastfetch's; and back."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from fastfetch.adapters.aiokafka_api.structs import ConsumerRebalanceListener, TopicPartition
from fastfetch.adapters.errors import as_both
from fastfetch.engine.arguments import as_partition
from fastfetch.errors import UsageError
from fastfetch.types import OffsetAndMetadata
from fastfetch.types import TopicPartition as Ours

__all__ = ["Listener", "as_offsets", "as_partitions", "as_theirs", "as_topics", "finisher", "loop_to_use", "whole_name"]

log = logging.getLogger("fastfetch.adapters")


class Listener:
    """Tells a listener in aiokafka's way: sets, and what it raises is logged."""

    def __init__(self, theirs: ConsumerRebalanceListener) -> None:
        self._theirs = theirs

    async def on_partitions_revoked(self, partitions: Collection[Ours]) -> None:
        await self._tell("on_partitions_revoked", partitions)

    async def on_partitions_assigned(self, partitions: Collection[Ours]) -> None:
        await self._tell("on_partitions_assigned", partitions)

    async def _tell(self, what: str, partitions: Collection[Ours]) -> None:
        try:
            answer = getattr(self._theirs, what)(set(map(as_theirs, partitions)))
            if inspect.isawaitable(answer):
                await answer
        except Exception:
            log.exception("%s of the rebalance listener %r raised", what, self._theirs)


def loop_to_use(loop: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
    if loop is not None:
        warnings.warn("the loop argument is deprecated: make the consumer in a coroutine", DeprecationWarning, stacklevel=3)
        return loop
    with contextlib.suppress(RuntimeError):
        return asyncio.get_running_loop()
    raise RuntimeError("make the consumer in a coroutine: it belongs to the event loop that runs there")


def finisher(
    key: Callable[[bytes | None], Any] | None, value: Callable[[bytes | None], Any] | None
) -> Callable[[Any], Any] | None:
    """Deserializers are called for null, too."""
    if not key and not value:
        return None

    def finish(record: Any) -> Any:
        if key:
            record.key = key(record.key)
        if value:
            record.value = value(record.value)
        return record

    return finish


def as_theirs(tp: tuple[str, int]) -> TopicPartition:
    return TopicPartition(*tp)


def as_partitions(given: Iterable[Any], what: str) -> list[Ours]:
    try:
        return list(dict.fromkeys(as_partition(tp, what) for tp in given))
    except UsageError as error:
        raise as_both(error, TypeError) from None


def as_topics(given: Any) -> frozenset[str]:
    if not isinstance(given, tuple | set | frozenset | list) or any(not isinstance(name, str) for name in given):
        raise TypeError(f"topics must be a list of strings, not {given!r}")
    return frozenset(given)


def whole_name(pattern: Any) -> str:
    """A regular expression for whole names, of one that need only match at their beginning."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    letters = "".join(letter for letter in "aimsx" if compiled.flags & getattr(re, letter.upper()))
    text = re.sub(r"^\(\?[aiLmsux]+\)", "", compiled.pattern)
    # The line break ends a comment of a verbose expression.
    return rf"(?{letters}:{text}" + ("\n" if compiled.flags & re.X else "") + r")[\s\S]*"


def as_offsets(given: Any) -> dict[Ours, OffsetAndMetadata]:
    if not given or not isinstance(given, Mapping):
        raise ValueError(f"commit: give {{TopicPartition: offset or (offset, metadata)}}, not {given!r}")
    chosen: dict[Ours, OffsetAndMetadata] = {}
    for partition, at in given.items():
        [tp] = as_partitions([partition], "commit")
        if isinstance(at, int):
            offset, metadata = at, ""
        elif isinstance(at, OffsetAndMetadata):
            offset, metadata = at.offset, at.metadata
        else:
            try:
                offset, metadata = at
            except (TypeError, ValueError):
                raise ValueError(f"commit: the offset of {tp} must be an integer or (offset, metadata), not {at!r}") from None
            if not isinstance(metadata, str):
                raise TypeError(f"commit: the metadata of {tp} must be a string, not {metadata!r}")
        chosen[tp] = OffsetAndMetadata(offset, metadata)
    return chosen
