"""Fetch sessions (KIP-227): a broker remembers what is fetched from it, so requests and answers hold only what is new.

    (0, 0)   everything, and please open a session        (id, n)   what has changed since n - 1
    (id, 0)  everything, in a new session for this one    (0, -1)   everything, no session
    (id, -1) good-bye

One session a node, used by one request at a time. In an incremental answer a partition that is absent has nothing new; one that
is no longer wanted must be forgotten by name, or the broker goes on sending it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from fastfetch.engine.subscription import PartitionState

__all__ = ["NO_SESSION", "Asked", "FetchSession", "Key", "Target", "by_topic"]

Key = tuple[str | bytes, int]  # topic or topic id, and partition
NO_SESSION = (0, -1)
LAST_EPOCH = 2**31 - 1
# A broker without room for a session is asked again after this long, and after twice as long each time, up to the limit.
REFUSED_MS, REFUSED_MAX_MS = 1_000, 60_000


class Target(NamedTuple):
    """How a partition is called in a request, and the leader's epoch as metadata has it."""

    topic: str
    topic_id: bytes | None
    partition: int
    leader_epoch: int


class Asked:
    """What a broker was asked for of one partition."""

    __slots__ = ("key", "max_bytes", "offset", "state", "target", "ticket")

    def __init__(self, state: PartitionState, target: Target, max_bytes: int, *, by_id: bool) -> None:
        self.state = state
        self.target = target
        self.ticket = state.ticket
        self.offset = state.fetch_offset
        self.max_bytes = max_bytes
        self.key: Key = (target.topic_id or b"" if by_id else target.topic, target.partition)

    @property
    def is_current(self) -> bool:
        """The partition still waits for this very offset."""
        return self.state.ticket == self.ticket and self.state.fetch_offset == self.offset


class FetchSession:
    """What one node knows of what is fetched from it. Without a session (`id` 0) that is what the last request said."""

    __slots__ = ("_refusals", "_retry_at_ms", "_sent", "_states", "answered_ms", "by_id", "epoch", "id", "partitions")

    def __init__(self) -> None:
        self.id = 0
        self.epoch = 0  # of the next request; 0: a full one
        self.partitions: dict[Key, Asked] = {}
        self._states: dict[PartitionState, Asked] = {}
        self.by_id = False
        self.answered_ms = -1  # when the last good answer came; -1: never
        self._sent = NO_SESSION
        self._refusals = 0
        self._retry_at_ms = 0

    def request(
        self, wanted: Iterable[tuple[PartitionState, Target, int]], now_ms: int, *, by_id: bool, is_possible: bool
    ) -> dict[str, Any]:
        """The fields of a request for exactly `wanted` (state, target, limit in bytes), in this order.

        by_id        topics go by id (Fetch v13 and later)
        is_possible  the version knows sessions
        """
        if by_id != self.by_id:
            self.epoch = 0
            self.by_id = by_id
        if not is_possible or (self.id == 0 and now_ms < self._retry_at_ms):
            self._sent = NO_SESSION
        else:
            self._sent = (self.id, self.epoch)
        is_full = self._sent[1] <= 0
        before = {} if is_full else self._states
        kept = 0
        asked: dict[PartitionState, Asked] = {}
        changed: list[Asked] = []
        for state, target, max_bytes in wanted:
            old = before.get(state)
            if old is not None and old.target.topic_id == target.topic_id:
                kept += 1
                if old.offset == state.fetch_offset and old.max_bytes == max_bytes and old.target == target:
                    old.ticket = state.ticket
                    asked[state] = old
                    continue
            each = asked[state] = Asked(state, target, max_bytes, by_id=by_id)
            changed.append(each)
        forgotten: list[Asked] = []
        if kept < len(before):
            still = {each.key for each in asked.values()}
            forgotten = [old for old in before.values() if old.key not in still]
        self._states = asked
        self.partitions = {each.key: each for each in asked.values()} if is_full or changed or forgotten else self.partitions
        return {
            "session_id": self._sent[0],
            "session_epoch": self._sent[1],
            "topics": by_topic(changed, by_id=by_id),
            "forgotten_topics_data": _forgotten(forgotten, by_id=by_id),
        }

    def speaks_of(self, state: PartitionState) -> bool:
        """Was it asked about the partition? Then an answer without it says that nothing has changed there."""
        return state in self._states

    def farewell(self) -> dict[str, Any] | None:
        """The fields of a request that ends the session, None if there is none."""
        if self.id == 0:
            return None
        return {"session_id": self.id, "session_epoch": -1, "topics": [], "forgotten_topics_data": []}

    def answered(self, session_id: int, now_ms: int, *, is_throttled: bool) -> None:
        """A good answer came, with this session id. `is_throttled`: it is empty because the broker wants silence (KIP-219)."""
        self.answered_ms = now_ms
        sent_id, sent_epoch = self._sent
        if sent_epoch > 0:
            if session_id == sent_id:
                self.epoch = 1 if sent_epoch == LAST_EPOCH else sent_epoch + 1
            else:  # closed by the broker
                self.id = self.epoch = 0
        elif sent_epoch == 0:
            self.id, self.epoch = (session_id, 1) if session_id > 0 else (0, 0)
            if session_id > 0:
                self._refusals = 0
            elif not is_throttled:
                self._retry_at_ms = now_ms + min(REFUSED_MAX_MS, REFUSED_MS << min(self._refusals, 10))
                self._refusals += 1

    def failed(self, error_code: int) -> None:
        """The answer was an error: 70, the broker knows no such session; any other: it is to be closed and opened anew."""
        if self._sent != NO_SESSION:
            self.epoch = 0
            if error_code == 70:
                self.id = 0

    def restart(self) -> None:
        """The answer can't be relied on: say everything again."""
        self.epoch = 0

    def lost(self) -> None:
        """The connection is gone, and with it what a broker may have made of the last request."""
        self.id = self.epoch = 0

    @property
    def is_full(self) -> bool:
        """The last request named every partition, so its answer should."""
        return self._sent[1] <= 0


def by_topic(asked: Iterable[Asked], *, by_id: bool) -> list[dict[str, Any]]:
    """Request entries in the given order; neighbours of one topic share one."""
    out: list[dict[str, Any]] = []
    last: str | None = None
    for each in asked:
        target = each.target
        if target.topic != last:
            out.append({"topic_id": target.topic_id, "partitions": []} if by_id else {"topic": target.topic, "partitions": []})
            last = target.topic
        out[-1]["partitions"].append(
            {
                "partition": target.partition,
                "current_leader_epoch": target.leader_epoch,
                "fetch_offset": each.offset,
                "partition_max_bytes": each.max_bytes,
            }
        )
    return out


def _forgotten(asked: Iterable[Asked], *, by_id: bool) -> list[dict[str, Any]]:
    topics: dict[str | bytes, list[int]] = {}
    for each in asked:
        topics.setdefault(each.key[0], []).append(each.key[1])
    return [{"topic_id" if by_id else "topic": topic, "partitions": indexes} for topic, indexes in topics.items()]
