"""The engine behind `kafka_api.KafkaConsumer`: a fastfetch.Consumer that hands out kafka-python's records.

Records go from columns into tuples and nothing stands between; key and value deserializers are called as each tuple is made.
Whatever interrupts a call before its caller has the records, Ctrl-C or a deserializer that raises, puts them back.
"""

from __future__ import annotations

import inspect
import itertools
import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from fastfetch import types
from fastfetch.adapters.kafka_api.structs import ConsumerRecord, MemberState, TopicPartition
from fastfetch.adapters.rows import OfData, append_named_tuples
from fastfetch.consumer import Consumer
from fastfetch.core import Call, CommitCallback, Peeked
from fastfetch.engine.commits import Commit
from fastfetch.engine.subscription import Mode
from fastfetch.errors import ConnectionFailedError
from fastfetch.net.thread import now_ms
from fastfetch.records import RecordBlock
from fastfetch.types import OffsetAndMetadata

__all__ = ["Deserialize", "Reader", "deserializer", "whole_name"]

log = logging.getLogger("fastfetch.adapters")

COMPLAIN_S = 10.0  # between two notes in the log that no broker can be reached

Deserialize = Callable[[str, list[tuple[str, bytes | None]], bytes | None], Any]


def deserializer(given: Any) -> Deserialize | None:
    """A function of the bytes, an object with deserialize(topic, headers, data), or an old one with deserialize(topic, data)."""
    if given is None:
        return None
    method = getattr(given, "deserialize", None)
    if method is None:
        return OfData(given)
    try:
        inspect.signature(method).bind("topic", [], b"")
    except TypeError:
        return lambda topic, headers, data: method(topic, data)
    except ValueError:  # a builtin that does not tell
        pass
    return method  # type: ignore[no-any-return]


def whole_name(pattern: str | re.Pattern[str]) -> str:
    """kafka-python's patterns match the beginning of a topic's name; ours its whole."""
    compiled = re.compile(pattern)
    text, flags = compiled.pattern, ""
    while found := re.match(r"\(\?([aiLmsux]+)\)", text):  # flags must stay in front
        text = text[found.end() :]
    for flag, letter in zip((re.A, re.I, re.M, re.S, re.X), "aimsx", strict=True):
        flags += letter if compiled.flags & flag else ""
    end = "\n" if compiled.flags & re.X else ""  # a comment may be last
    return f"{f'(?{flags})' if flags else ''}(?:{text}{end}).*"


class UndecodedError(Exception):
    """A deserializer raised `error`. `rows` are the records before that one."""

    def __init__(self, rows: list[Any], error: Exception) -> None:
        super().__init__(rows, error)
        self.rows = rows
        self.error = error
        if isinstance(error, StopIteration):  # it would end the caller's loop without a word
            self.error = RuntimeError("a deserializer raised StopIteration")
            self.error.__cause__ = error


class Reader(Consumer):
    """What KafkaConsumer does its work with."""

    _subscribes_alone = True

    def __init__(
        self,
        settings: Mapping[str, Any],
        key: Deserialize | None,
        value: Deserialize | None,
        on_auto_commit: CommitCallback | None,
    ) -> None:
        self._key = key
        self._value = value
        self._on_auto_commit = on_auto_commit
        self._good = 0  # records made for the present hand-out
        self._complain_at = 0.0
        self._fresh: set[types.TopicPartition] = set()  # assigned, and nobody has asked yet where reading starts
        super().__init__(settings)

    # --- records --------------------------------------------------------------------------------------------------------

    def read(self, timeout_ms: float, limit: int, *, move: bool) -> dict[TopicPartition, list[Any]]:
        """Records by partition, at most `limit` in all; waits up to `timeout_ms` for the first. Without `move` positions stay,
        and the records are handed out again."""
        deadline = time.monotonic() + timeout_ms / 1000
        left: float = timeout_ms
        while True:
            self._good, bad = 0, cast(Exception | None, None)
            try:
                out = self._hand_out("poll", left, limit, None, as_records=True)  # type: ignore[arg-type]
            except UndecodedError as undecoded:
                bad = undecoded.error
            if bad is not None:
                if not self._good:
                    raise bad
                limit = self._good  # those before it; it is the first of a later call
                continue
            try:
                records = {TopicPartition(*tp): rows for tp, rows in out.by_partition.items()}
                if not move:
                    self._put_back(out)
            except BaseException:
                self._put_back(out)
                raise
            if records:
                return records
            left = (deadline - time.monotonic()) * 1000
            if left <= 0:
                return records

    def iterate(self, timeout_ms: float) -> Iterator[Any]:
        """Records one by one; ends when none came for so long, never if that is infinite."""
        wait = None if math.isinf(timeout_ms) else timeout_ms
        return itertools.chain.from_iterable(map(self._step_through, self._peeked(wait)))

    def _rows(self, block: RecordBlock) -> list[Any]:
        rows: list[Any] = []
        try:
            self._append(rows, block)
        except Exception as error:
            # What a signal handler raises looks the same; but then the same record can be had now, and all is put back.
            try:
                self._append([], block[len(rows) : len(rows) + 1])
            except Exception:
                self._good += len(rows)
                raise UndecodedError(rows, error) from error
            raise
        self._good += len(rows)
        return rows

    def _append(self, rows: list[Any], block: RecordBlock) -> None:
        append_named_tuples(rows, block, ConsumerRecord, block.topic, self._key, self._value)

    def _step_through(self, peeked: Peeked) -> Iterator[Any]:
        try:
            return super()._step_through(peeked)
        except UndecodedError as undecoded:
            rows, bad = undecoded.rows, undecoded.error
        if not rows:
            raise bad
        return self._engine.readahead.steps(peeked.state, peeked.ticket, peeked.chunk, peeked.row, rows)

    def _before_poll(self, late_ms: int = 0) -> None:
        self._fresh.clear()
        # Polling without a subscription is no mistake there: it brings nothing, and the time passes.
        if self._engine.subscription.mode is not Mode.NONE:
            super()._before_poll(late_ms)

    def _news(self, deadline: float) -> tuple[threading.Lock, float] | None:
        try:
            return super()._news(deadline)
        except ConnectionFailedError as error:
            # No reason for a poll to end a program there: a broker may come yet. But somebody should hear of it.
            if time.monotonic() >= self._complain_at:
                self._complain_at = time.monotonic() + COMPLAIN_S
                log.warning("%s", error)
            return None

    # --- choosing partitions --------------------------------------------------------------------------------------------

    def choose(self, partitions: list[types.TopicPartition]) -> None:
        """assign(), with a commit of what was handed out before, if commits are automatic: partitions may be about to go."""
        before = self.assignment()
        if self._auto_commit:
            with Call(self, "assign"):
                self._commit_positions(now_ms() + self.config.default_api_timeout_ms)
        self.assign(partitions)
        self._fresh = set(partitions) - before | self._fresh & set(partitions)

    def placed(self, partition: types.TopicPartition) -> types.TopicPartition:
        """The caller asks for the position of this partition, or sets it: from now on it stands."""
        self._fresh.discard(partition)
        return partition

    # --- what there is to know ------------------------------------------------------------------------------------------

    def bootstrap(self, timeout_ms: int | None, *, refresh: bool = False) -> None:
        """Wait for metadata, or for newer ones. Raises ConnectionFailedError if no broker answers, else TimeoutError."""
        cluster, seen = self._engine.cluster, 0
        with Call(self, "bootstrap"):
            if refresh:
                with self._client.lock:
                    self._client.poke()
                    seen = cluster.version
                    self._engine.metadata.request_update()
            self._run(self._until(lambda: cluster.version > seen or None, timeout_ms, "bootstrap"))

    def is_connected(self) -> bool:
        with Call(self, "bootstrap_connected"), self._client.lock:
            return self._engine.channels.is_connected

    def is_subscribed(self) -> bool:
        return self._engine.subscription.mode in (Mode.TOPICS, Mode.PATTERN)

    def high_watermark(self, partition: TopicPartition) -> int | None:
        with Call(self, "highwater"), self._client.lock:
            end = self._engine.subscription.get(partition, "highwater").high_watermark
            return end if end >= 0 else None

    def member_state(self) -> str:
        with Call(self, "group_metadata"), self._client.lock:
            membership = self._engine.membership
            if not membership.is_active or membership.group_metadata().generation_id < 0:
                return MemberState.UNJOINED
            return MemberState.REBALANCING if membership.credentials() is None else MemberState.STABLE

    # --- commits --------------------------------------------------------------------------------------------------------

    def begin_commit(self, offsets: Mapping[Any, OffsetAndMetadata] | None, callback: CommitCallback) -> Commit:
        """commit_async(), which gives no handle on what it began."""
        with Call(self, "commit_async"):
            return self._start_commit("commit_async", offsets, None, callback, is_async=True)

    def store(self, offsets: Mapping[types.TopicPartition, OffsetAndMetadata] | None, timeout_ms: int | None) -> None:
        """commit(). Of a partition that was assigned and not asked about since, it says where reading starts: there the committed
        offset is looked up by the first poll, and not before."""
        self.commit(offsets, timeout_ms)
        for tp in self._fresh & (offsets or {}).keys():
            self.seek(tp, offsets[tp])  # type: ignore[index]

    def _auto_commit_done(self, offsets: dict[Any, OffsetAndMetadata], error: Exception | None) -> None:
        if self._on_auto_commit is None:
            super()._auto_commit_done(offsets, error)
        else:
            self._on_auto_commit(offsets, error)
