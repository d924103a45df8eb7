"""Questions to brokers within one time limit, and the settings of the consumers that ask."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from fastfetch.consumer import Consumer
from fastfetch.core import Call
from fastfetch.engine.offsets import Found
from fastfetch.errors import UsageError
from fastfetch.types import OffsetAndTimestamp, TopicPartition

__all__ = ["Questions", "settings"]

T = TypeVar("T")

_FIXED = {
    "isolation_level": "it is fixed when a range is planned: plan(isolation=…)",
    "auto_offset_reset": "a range has a start, and records that are gone are an error",
    "group_id": "nothing is committed for a range; keep the ranges that are done",
    "enable_auto_commit": "nothing is committed for a range; keep the ranges that are done",
}


def settings(what: str, servers: Any, isolation: str, given: Mapping[str, Any]) -> dict[str, Any]:
    for name in given:
        if (why := _FIXED.get(name.replace(".", "_").lower())) is not None:
            raise UsageError(f"{what}: {name} can't be set; {why}")
    fixed = {"bootstrap_servers": servers, "isolation_level": isolation, "auto_offset_reset": "none", "enable_auto_commit": False}
    return {**given, **fixed}


class Questions:
    """Asks brokers, all within one time limit."""

    def __init__(self, consumer: Consumer, timeout_ms: int | None) -> None:
        self._consumer = consumer
        limit = consumer.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        self._deadline = time.monotonic() + limit / 1000

    @property
    def left_ms(self) -> int:
        return max(0, int((self._deadline - time.monotonic()) * 1000))

    def topic(self, name: str) -> tuple[str | None, set[int]]:
        """Its id and the numbers of its partitions."""
        consumer = self._consumer
        what = f"the partitions of topic {name!r}"
        with Call(consumer, what):
            found = consumer._run(consumer._ask(lambda: consumer._engine.ask_topic(name), self.left_ms, what))
        return None if found.topic_id is None else _uuid(found.topic_id), set(found.partitions)

    def offsets(self, timestamps: Mapping[TopicPartition, int]) -> Found:
        """Times in ms since 1970, EARLIEST or LATEST, to offsets."""
        consumer = self._consumer
        if not timestamps:
            return {}
        with Call(consumer, "looking offsets up"):
            return consumer._run(
                consumer._ask(lambda: consumer._engine.offsets_at(timestamps), self.left_ms, "looking offsets up")
            )  # fmt: skip

    def ends(self, tps: Iterable[TopicPartition], which: int) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The EARLIEST or the LATEST offset of each: there always is one."""
        found = self.offsets(dict.fromkeys(tps, which))
        return {tp: at for tp, at in found.items() if at is not None}

    def wait(self, look: Callable[[], T | None], what: str) -> T:
        """Until `look`, called with each piece of news, returns something."""
        with Call(self._consumer, what):
            return self._consumer._run(self._consumer._until(look, self.left_ms, what))


def _uuid(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
