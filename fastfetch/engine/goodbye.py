"""Leaving a classic group, so that the others need not wait for a session to expire."""

from __future__ import annotations

from typing import Any

from fastfetch.config import ConsumerConfig
from fastfetch.engine.backoff import Timer
from fastfetch.engine.channels import Channels, Lane
from fastfetch.engine.finder import CoordinatorFinder
from fastfetch.errors import UnsupportedVersionError
from fastfetch.protocol import tables

__all__ = ["LONGEST_REASON", "Goodbye"]

LONGEST_REASON = 255  # characters (KIP-800)
GOODBYE_MS = 1_000  # nobody waits longer


class Goodbye:
    """One LeaveGroup, best effort: a coordinator that does not hear it finds out by itself.

    It goes the way of the commits: after the last of them, and not behind a JoinGroup that waits for others.
    """

    def __init__(self, config: ConsumerConfig, channels: Channels, finder: CoordinatorFinder, timer: Timer) -> None:
        self._config = config
        self._channels = channels
        self._finder = finder
        self._timer = timer
        self._member_id = ""
        self._reason = ""
        self._deadline_ms = 0
        self._in_flight = False
        self.is_pending = False
        self.has_news = False

    def say(self, member_id: str, reason: str, now_ms: int) -> None:
        self._member_id, self._reason, self._deadline_ms = member_id, reason[:LONGEST_REASON], now_ms + GOODBYE_MS
        self.is_pending, self._in_flight = True, False

    def pump(self, now_ms: int) -> None:
        if not self.is_pending:
            return
        if now_ms >= self._deadline_ms:
            self._end()
            return
        self._timer.at(self._deadline_ms)
        channel = None if self._in_flight else self._finder.channel(Lane.GROUP, now_ms)
        if channel is None:
            return
        try:
            version = self._channels.version(channel, tables.LEAVE_GROUP)
        except UnsupportedVersionError:
            self._end()
            return
        body: dict[str, Any] = {"group_id": self._config.group_id, "member_id": self._member_id}
        if version >= 3:
            del body["member_id"]
            body["members"] = [{"member_id": self._member_id, "reason": self._reason}]

        member_id = self._member_id

        def ended(_: object, now_ms: int) -> None:
            if member_id == self._member_id:  # else a later one is under way
                self._end()

        self._in_flight = True
        self._channels.send(channel, tables.LEAVE_GROUP, version, body, now_ms, on_answer=ended, on_failure=ended)

    def _end(self) -> None:
        self.is_pending = False
        self.has_news = True
