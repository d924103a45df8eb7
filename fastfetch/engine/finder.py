"""Which broker coordinates the group: found when somebody needs it, known no longer than it is true.

A coordinator moves. It is forgotten on NOT_COORDINATOR and COORDINATOR_NOT_AVAILABLE, when its connection is lost, and when it
doesn't answer in time, whatever was being asked; then it is looked for again, at whichever broker answers soonest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from fastfetch.config import ConsumerConfig
from fastfetch.engine.backoff import Backoff, Timer
from fastfetch.engine.channels import Channel, Channels, Lane
from fastfetch.errors import FastFetchError, UnsupportedVersionError, broker_error, is_retriable
from fastfetch.protocol import tables

__all__ = ["CoordinatorFinder"]

log = logging.getLogger("fastfetch.engine")


class CoordinatorFinder:
    """`on_fault` are told of errors that no retry can cure; who needs a coordinator adds itself."""

    def __init__(self, config: ConsumerConfig, channels: Channels, timer: Timer, seed: int = 0) -> None:
        self._group = config.group_id or ""
        self._channels = channels
        self._timer = timer
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, seed)
        self.node_id: int | None = None
        self.on_fault: list[Callable[[FastFetchError], None]] = []
        self._is_asking = False
        self._attempts = 0
        self._next_ms = 0

    def channel(self, lane: Lane, now_ms: int) -> Channel | None:
        """The coordinator's connection if a request may be sent over it now. If not, what it takes is under way."""
        if self.node_id is None:
            self._find(now_ms)
            return None
        channel = self._channels.ready(self.node_id, lane, now_ms)
        if channel is None and self._channels.is_down(self.node_id, lane):
            self.forget("it can't be reached", now_ms)
        return channel

    def forget(self, why: str, now_ms: int, asked: Channel | None = None) -> None:
        """Look for it anew. `asked` is what the bad news came over: one that was found since stays."""
        if self.node_id is not None and (asked is None or asked.node.node_id == self.node_id):
            log.info("forgetting the coordinator of group %r (node %d): %s", self._group, self.node_id, why)
            self.node_id = None
            self._find_again(now_ms)

    def _find(self, now_ms: int) -> None:
        if self._is_asking:
            return
        if self._next_ms > now_ms:
            self._timer.at(self._next_ms)
            return
        channel = self._channels.any_ready(now_ms)
        if channel is None:
            return
        try:
            version = self._channels.version(channel, tables.FIND_COORDINATOR)
        except UnsupportedVersionError as error:
            self._fail(error)
            return
        body: dict[str, Any] = {"coordinator_keys": [self._group]} if version >= 4 else {"key": self._group}
        if version >= 1:
            body["key_type"] = 0

        def answered(body: Any, now_ms: int) -> None:
            self._is_asking = False
            found = body
            if version >= 4:
                found = next((c for c in body["coordinators"] if c["key"] == self._group), None)
            self._found(found, now_ms)

        def failed(error: FastFetchError, now_ms: int) -> None:
            self._is_asking = False
            self._find_again(now_ms)

        self._is_asking = True
        self._channels.send(channel, tables.FIND_COORDINATOR, version, body, now_ms, on_answer=answered, on_failure=failed)

    def _found(self, found: Any, now_ms: int) -> None:
        code = 15 if found is None else found["error_code"]
        if code == 0 and 1 <= found["port"] <= 65535 and 1 <= len(found["host"]) <= 255 and found["node_id"] >= 0:
            self._attempts = 0
            self.node_id = found["node_id"]
            self._channels.add_broker(found["node_id"], found["host"], found["port"], now_ms)
            log.info("node %d coordinates group %r", self.node_id, self._group)
            return
        self._find_again(now_ms)
        if code != 0 and not is_retriable(code):
            what = (
                f"not allowed to use group {self._group!r}"
                if code == 30
                else f"finding the coordinator of group {self._group!r} failed"
            )
            self._fail(broker_error(code, what))

    def _find_again(self, now_ms: int) -> None:
        self._attempts += 1
        self._next_ms = now_ms + self._backoff.delay_ms(self._attempts)
        self._timer.at(self._next_ms)

    def _fail(self, error: FastFetchError) -> None:
        for tell in self.on_fault:
            tell(error)
