"""Subscribing without a group: every partition of the subscribed topics is read, and nobody else is asked.

The place of a group protocol is taken by one that knows no coordinator: metadata alone say which partitions there are. Those that
are added, and topics that come to match a pattern, are taken over as metadata tell of them; listeners hear nothing, and there is
nothing to commit to.
"""

from __future__ import annotations

from typing import Any

from fastfetch.engine.membership import NO_MEMBER, Credentials, Duty, GiveUp, Membership
from fastfetch.errors import FastFetchError, UsageError
from fastfetch.types import GroupMetadata, TopicPartition

__all__ = ["Alone"]


class Alone(Membership):
    """See the module."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._seen: tuple[int, frozenset[str]] | None = None  # what the assignment was last made from

    def subscribe(self, now_ms: int) -> None:
        self._seen = None

    def enforce_rebalance(self, reason: str) -> None:
        raise UsageError("enforce_rebalance: without a group_id there is nothing to rebalance")

    def leave(self, reason: str, now_ms: int) -> None:
        self._seen = None

    @property
    def is_leaving(self) -> bool:
        return False

    def part(self) -> bool:
        return True

    def duty_before_leaving(self, now_ms: int) -> GiveUp | None:
        return None

    def credentials(self) -> Credentials | None:
        return NO_MEMBER

    def why_no_commit(self) -> FastFetchError:
        return UsageError("offsets are committed for a group; make the consumer with a group_id")

    def commit_refused(self, code: int, sent: Credentials, now_ms: int) -> None:
        return None

    def group_metadata(self) -> GroupMetadata:
        return GroupMetadata("", -1, "", None)

    def fail(self, error: FastFetchError) -> None:
        self.fault = error

    def pump(self, now_ms: int) -> None:
        seen = (self._cluster.version, self._subscription.topics)
        if not self.is_active or seen == self._seen:
            return
        self._seen = seen
        there = {
            TopicPartition(name, partition)
            for name in self._subscription.topics & self._cluster.topics.keys()
            if not self._is_gone(name)
            for partition in self._cluster.topics[name].partitions
        }
        # What one answer leaves out may be a broker's mistake; a topic that is gone has been missed several times.
        gone = [tp for tp in self._owned() - there if tp.topic not in self._subscription.topics or self._is_gone(tp.topic)]
        new = sorted(there - self._owned())
        if gone:
            self._give_up(gone)
        if new:
            self._subscription.take_over(new)
        if gone or new:
            self._timer.at(now_ms)  # the look-ups of positions had their turn before this one
            self.has_news = True

    def _is_gone(self, topic: str) -> bool:
        trouble = self._cluster.troubles.get(topic)
        return trouble is not None and trouble.is_absence

    def _next_duty(self, now_ms: int) -> Duty | None:
        return None

    def _after_duty(self, duty: Duty, now_ms: int) -> None:
        return None

    def _check_clocks(self, now_ms: int) -> None:
        return None
