"""kafka-python's KafkaConsumer over fastfetch's own engine: a script changes one import and runs on.

    from fastfetch.adapters.kafka_api import KafkaConsumer, TopicPartition, OffsetAndMetadata

kafka-python need not be installed. Where it is, its own records, partitions and exceptions are used, so what else a script does
with that package goes together with it. Errors are of kafka-python's classes and of fastfetch's at once. docs/kafka-api.md lists
every method and key: the same, different (how), absent (why).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any, ClassVar, Self

from fastfetch import types
from fastfetch.adapters.errors import as_both
from fastfetch.adapters.kafka_api import errors
from fastfetch.adapters.kafka_api.errors import *  # noqa: F403 - kafka.errors by its names
from fastfetch.adapters.kafka_api.errors import ERRORS, KafkaError
from fastfetch.adapters.kafka_api.future import Future
from fastfetch.adapters.kafka_api.reader import Reader, deserializer, whole_name
from fastfetch.adapters.kafka_api.settings import DEFAULT_CONFIG, checked, translated
from fastfetch.adapters.kafka_api.structs import (
    AsyncConsumerRebalanceListener,
    ConsumerGroupMetadata,
    ConsumerRebalanceListener,
    ConsumerRecord,
    MemberState,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from fastfetch.engine.arguments import as_partitions
from fastfetch.errors import FastFetchError, UnknownTopicError, UsageError
from fastfetch.errors import TimeoutError as TimedOut

__all__ = [
    "AsyncConsumerRebalanceListener",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "Future",
    "KafkaConsumer",
    "MemberState",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
]
__all__ += errors.__all__

log = logging.getLogger("fastfetch.adapters")

_LONGEST_MS = 2**31 - 1
_EVENTS = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class KafkaConsumer:
    """Reads topics of a Kafka cluster; see kafka-python's class of this name for its arguments, and docs/kafka-api.md.

    One thread uses a consumer at a time. Raises KafkaConfigurationError; NoBrokersAvailable (which is a KafkaTimeoutError) if no
    broker has answered within bootstrap_timeout_ms, unless api_version is given: then brokers are looked for in the background.
    """

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = DEFAULT_CONFIG

    _closed = True  # until there is something to close

    def __init__(self, *topics: str, **configs: Any) -> None:
        self.config = checked(configs)
        self._key = deserializer(self.config["key_deserializer"])
        self._value = deserializer(self.config["value_deserializer"])
        on_commit = self.config["default_offset_commit_callback"] if "default_offset_commit_callback" in configs else None
        with ERRORS:
            self._reader = Reader(translated(self.config, configs), self._key, self._value, on_commit and _telling(on_commit))
        self._closed = False
        self._records = self._reader.iterate(self._patience_ms)
        try:
            if self.config["api_version"] is None:
                self.bootstrap(self.config["bootstrap_timeout_ms"])
            if topics:
                self.subscribe(topics)
        except BaseException:
            self.close(autocommit=False, timeout_ms=0)
            raise

    # --- records --------------------------------------------------------------------------------------------------------

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Records by partition, at most `max_records` (default: max_poll_records) in all; waits up to `timeout_ms` for the first.

        Without `update_offsets` positions stay, and the next call gives the same records again. Raises what is wrong with a
        partition once nothing else is there to deliver, and what a deserializer raises once the records before are delivered;
        the position then stays at that record. ValueError, TypeError; IllegalStateError if the consumer is closed.
        """
        if timeout_ms < 0:
            raise as_both(UsageError("Timeout must not be negative"), ValueError)
        if max_records is None:
            max_records = self.config["max_poll_records"]
        if not isinstance(max_records, int):
            raise as_both(UsageError("max_records must be an integer"), TypeError)
        if max_records <= 0:
            raise as_both(UsageError("max_records must be positive"), ValueError)
        # Not `with ERRORS`: an interrupt in a call between the hand-out and the caller's assignment would lose records.
        was_closed = self._closed
        try:
            return self._reader.read(timeout_ms, max_records, move=update_offsets)
        except FastFetchError as error:
            if self._closed and not was_closed:  # meanwhile, by a signal handler or another thread
                return {}
            both = ERRORS.both(error)
        raise both

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record; the position is the one after it. StopIteration when none came for consumer_timeout_ms, and when the
        consumer is closed."""
        if self._closed:
            raise StopIteration("KafkaConsumer closed")
        try:
            for record in self._records:
                return record  # type: ignore[no-any-return]
        except FastFetchError as error:
            if self._closed:  # meanwhile, by a signal handler or another thread
                raise StopIteration("KafkaConsumer closed") from None
            both = ERRORS.both(error)
        except BaseException:
            self._records = self._reader.iterate(self._patience_ms)  # an iterator that has raised is at its end
            raise
        else:
            self._records = self._reader.iterate(self._patience_ms)
            raise StopIteration
        self._records = self._reader.iterate(self._patience_ms)
        raise both

    @property
    def _patience_ms(self) -> float:
        timeout_ms: float = self.config["consumer_timeout_ms"]
        return timeout_ms if timeout_ms >= 0 else float("inf")

    # --- choosing partitions --------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; an empty list ends it. Raises IllegalStateError after subscribe()."""
        wanted = list(partitions)
        with ERRORS:
            if wanted:
                self._reader.choose(as_partitions(wanted, "assign"))
            else:
                self._reader.unsubscribe()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read."""
        with ERRORS:
            return _theirs(self._reader.assignment())

    def subscribe(self, topics: Sequence[str] = (), pattern: str | None = None, listener: Any = None) -> None:
        """Read these topics, or those whose name begins with a match of `pattern`; with a group_id its members share them.

        listener    a ConsumerRebalanceListener or AsyncConsumerRebalanceListener, or any object with some of their methods

        Raises ValueError without topics and pattern, and for a name that can't be one; TypeError; IllegalStateError with both,
        and after assign() or another kind of subscribe().
        """
        if not topics and not pattern:
            raise as_both(UsageError("Must provide topics or pattern"), ValueError)
        if not topics:
            names: list[str] = []
        elif isinstance(topics, str) or not isinstance(topics, Sequence):
            raise as_both(UsageError("Topics must be a list (or non-str sequence)"), TypeError)
        else:
            names = [_topic(name) for name in topics]
        if listener is not None and not any(callable(getattr(listener, event, None)) for event in _EVENTS):
            what = f"listener must be a ConsumerRebalanceListener or AsyncConsumerRebalanceListener; got {listener!r}"
            raise as_both(UsageError(what), TypeError)
        whole = None if pattern is None or pattern == "" else whole_name(pattern)
        with ERRORS:
            self._reader.subscribe(names, pattern=whole, listener=None if listener is None else _Listener(listener))

    def subscription(self) -> set[str] | None:
        """The subscribed topics, of a pattern those that match; None if there is no subscription."""
        with ERRORS:
            topics = self._reader.subscription()
            return topics if topics or self._reader.is_subscribed() else None

    def unsubscribe(self) -> None:
        """Read nothing any more; positions are committed first if enable_auto_commit says so."""
        with ERRORS:
            self._reader.unsubscribe()

    def pause(self, *partitions: TopicPartition) -> None:
        """Deliver nothing of these partitions until resume()."""
        with ERRORS:
            self._reader.pause(*_partitions(partitions))

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        with ERRORS:
            return _theirs(self._reader.paused())

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with paused partitions."""
        with ERRORS:
            self._reader.resume(*_partitions(partitions))

    # --- positions ------------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int | None:
        """The offset of the next record; None if it could not be looked up in time."""
        with ERRORS:
            try:
                return self._reader.position(self._reader.placed(_partition(partition)), _whole_ms(timeout_ms))
            except TimedOut:
                return None

    def highwater(self, partition: TopicPartition) -> int | None:
        """The offset that the next record produced will get, as of the last fetch; None before the first."""
        with ERRORS:
            return self._reader.high_watermark(_partition(partition))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Deliver `offset` next. Raises ValueError for an offset that is none and a partition that is not assigned."""
        tp = _partition(partition)
        if not isinstance(offset, int) or offset < 0:
            raise as_both(UsageError(f"Offset must be int >= 0; got {offset!r}"), ValueError)
        with ERRORS:
            self._need_assigned([tp])
            self._reader.seek(self._reader.placed(tp), offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go to the first offset of these partitions, of all if none is named. Raises ValueError if there are none."""
        with ERRORS:
            self._reader.seek_to_beginning(*map(self._reader.placed, self._need_assigned(_partitions(partitions))))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go to the end of these partitions, of all if none is named. Raises ValueError if there are none."""
        with ERRORS:
            self._reader.seek_to_end(*map(self._reader.placed, self._need_assigned(_partitions(partitions))))

    def _need_assigned(self, partitions: list[types.TopicPartition]) -> Iterable[types.TopicPartition]:
        """These, or all that are assigned if there are none of them."""
        assigned = self._reader.assignment()
        if not assigned and not partitions:
            raise as_both(UsageError("No partitions are currently assigned"), ValueError)
        for tp in partitions:
            if tp not in assigned:
                raise as_both(UsageError(f"Unassigned partition: {tp!r}"), ValueError)
        return partitions or assigned

    # --- commits --------------------------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_ms: float | None = None) -> None:
        """Store the next offsets to read: all consumed positions with their leader epochs, or the given ones.

        Raises IllegalStateError without a group_id; TypeError; CommitFailedError, RebalanceInProgressError, KafkaTimeoutError
        (after request_timeout_ms, if no time is given), and the class of the coordinator's error code.
        """
        self._need_group()
        limit = self.config["request_timeout_ms"] if timeout_ms is None else _whole_ms(timeout_ms)
        with ERRORS:
            self._reader.store(_ours(offsets), limit)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        callback: Callable[[Any, Any], object] | None = None,
    ) -> Future:
        """Start a commit and return at once. `callback(offsets, error or None)` is called by a later poll, commit or close."""
        self._need_group()
        future: Future | None = None
        tell = _telling(self.config["default_offset_commit_callback"] if callback is None else callback)

        def answered(committed: dict[types.TopicPartition, types.OffsetAndMetadata], error: Exception | None) -> None:
            try:
                tell(committed, error)
            finally:
                if future is not None:
                    future.settle()

        with ERRORS:
            future = Future(self._reader.begin_commit(_ours(offsets), answered).pending)
        return future

    def committed(self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None) -> Any:
        """What the group has committed: the offset, or with `metadata` an OffsetAndMetadata; None if there is nothing."""
        self._need_group()
        tp = _partition(partition)
        with ERRORS:
            found = self._reader.committed([tp], _whole_ms(timeout_ms))[tp]
        if found is None:
            return None
        return _as_theirs(found) if metadata else found.offset

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this member is, for a transactional producer (KIP-447)."""
        if self.config["group_id"] is None:
            return ConsumerGroupMetadata(group_id=None)
        with ERRORS:
            me = self._reader.group_metadata()
            return ConsumerGroupMetadata(*me, state=self._reader.member_state())

    def _need_group(self) -> None:
        if self.config["group_id"] is None:
            with ERRORS:
                raise UsageError("Requires group_id")

    # --- questions ------------------------------------------------------------------------------------------------------

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        with ERRORS:
            found = self._reader.beginning_offsets(partitions, self._request_ms(timeout_ms))
        return {TopicPartition(*tp): offset for tp, offset in found.items()}

    def end_offsets(self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition; with read_committed, after the last stable one."""
        with ERRORS:
            found = self._reader.end_offsets(partitions, self._request_ms(timeout_ms))
        return {TopicPartition(*tp): offset for tp, offset in found.items()}

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset whose timestamp is not below the given one (ms since 1970), None where there is none."""
        wanted = {types.TopicPartition(*tp): int(when) for tp, when in timestamps.items()}
        for tp, when in wanted.items():
            if when < 0:
                what = f"The target time for partition {tp} is {when}. The target time cannot be negative."
                raise as_both(UsageError(what), ValueError)
        with ERRORS:
            found = self._reader.offsets_for_times(wanted, self._request_ms(timeout_ms))
        return {
            TopicPartition(*tp): None if at is None else OffsetAndTimestamp(at.offset, at.timestamp, _epoch(at.leader_epoch))
            for tp, at in found.items()
        }

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Numbers of a topic's partitions; none if brokers don't know it."""
        with ERRORS:
            partitions = self._reader.list_topics().get(topic)
            if partitions is None and topic.startswith("__"):  # Kafka's own topics are not listed
                with suppress(UnknownTopicError):
                    partitions = self._reader.partitions_for(topic)
        return partitions or set()

    def topics(self) -> set[str]:
        """All topics this client may see, without Kafka's internal ones."""
        with ERRORS:
            return self._reader.topics()

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> None:
        """Wait until a broker has answered, with `refresh` anew. Raises NoBrokersAvailable, which is a KafkaTimeoutError."""
        with ERRORS:
            self._reader.bootstrap(_whole_ms(timeout_ms), refresh=refresh)

    def bootstrap_connected(self) -> bool:
        """Is there a connection to a broker?"""
        with ERRORS:
            return self._reader.is_connected()

    def metrics(self, raw: bool = False) -> dict[str, Any] | None:
        """{group: {name: value}}, with the names that kafka-python and fastfetch have in common; `raw`: all of fastfetch's own,
        as a flat dict. None with metrics_enabled=False."""
        if not self.config["metrics_enabled"]:
            return None
        with ERRORS:
            ours = self._reader.metrics()
        return ours if raw else {group: {name: ours[key] for name, key in names.items()} for group, names in _METRICS.items()}

    def _request_ms(self, timeout_ms: float | None) -> int | None:
        return _whole_ms(self.config["request_timeout_ms"] if timeout_ms is None else timeout_ms)

    # --- ending ---------------------------------------------------------------------------------------------------------

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commit positions if enable_auto_commit says so (and `autocommit`), leave the group, close connections and
        deserializers. Within `timeout_ms`, or request_timeout_ms."""
        was_closed, self._closed = self._closed, True
        with ERRORS:
            # Also the second time: an interrupt may have come between the line above and this one.
            self._reader.close(self._request_ms(timeout_ms), autocommit=autocommit)
        if was_closed:
            return
        for key in ("key_deserializer", "value_deserializer"):
            close = getattr(self.config[key], "close", None)
            if close is not None:
                close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None) -> None:
        # What an exception interrupted was perhaps not processed: committing it would lose it.
        self.close(autocommit=exc_type is None)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} of {self._reader!r}>"


_METRICS = {
    "consumer-fetch-manager-metrics": {
        "records-consumed-total": "records",
        "records-consumed-rate": "records_per_s",
        "bytes-consumed-total": "fetch_bytes",
        "bytes-consumed-rate": "fetch_bytes_per_s",
        "fetch-latency-avg": "fetch_latency_ms",
        "fetch-latency-max": "fetch_latency_max_ms",
        "fetch-total": "fetch_requests",
    },
    "consumer-metrics": {
        "connection-count": "connections",
        "connection-creation-total": "connects",
        "incoming-byte-total": "received_bytes",
        "outgoing-byte-total": "sent_bytes",
        "request-total": "requests",
    },
    "consumer-coordinator-metrics": {"rebalance-total": "rebalances"},
}


class _Listener:
    """A user's listener as ours: kafka-python's argument types, coroutines run to their end."""

    def __init__(self, listener: Any) -> None:
        self._listener = listener

    def on_partitions_assigned(self, partitions: Iterable[types.TopicPartition]) -> None:
        self._tell("on_partitions_assigned", partitions)

    def on_partitions_revoked(self, partitions: Iterable[types.TopicPartition]) -> None:
        self._tell("on_partitions_revoked", partitions)

    def on_partitions_lost(self, partitions: Iterable[types.TopicPartition]) -> None:
        knows = callable(getattr(self._listener, "on_partitions_lost", None))
        self._tell("on_partitions_lost" if knows else "on_partitions_revoked", partitions)

    def _tell(self, event: str, partitions: Iterable[types.TopicPartition]) -> None:
        function = getattr(self._listener, event, None)
        if function is None:
            return
        try:
            result = function(_theirs(partitions))
            if inspect.isawaitable(result):
                _finish(result)
        except Exception as error:
            raise as_both(FastFetchError("User rebalance callback throws an error"), KafkaError) from error


def _finish(awaitable: Any) -> None:
    """Run it to its end; in another thread if this one, which polls, runs an event loop already."""

    async def finished() -> None:
        await awaitable

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(finished())
    else:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, finished()).result()


# --- between the two kinds of values --------------------------------------------------------------------------------------


def _theirs(partitions: Iterable[types.TopicPartition]) -> set[TopicPartition]:
    return {TopicPartition(*tp) for tp in partitions}


def _epoch(epoch: int | None) -> int:
    return -1 if epoch is None else epoch


def _as_theirs(at: types.OffsetAndMetadata) -> OffsetAndMetadata:
    return OffsetAndMetadata(at.offset, at.metadata, _epoch(at.leader_epoch))


def _telling(callback: Callable[[Any, Any], object]) -> Callable[[Any, Exception | None], None]:
    """A callback of kafka-python's, for ours to call."""

    def tell(offsets: Mapping[types.TopicPartition, types.OffsetAndMetadata], error: Exception | None) -> None:
        response = ERRORS.both(error) if isinstance(error, FastFetchError) else error
        try:
            callback({TopicPartition(*tp): _as_theirs(at) for tp, at in offsets.items()}, response)
        except Exception:
            log.exception("a commit's callback raised")

    return tell


def _ours(offsets: Mapping[Any, Any] | None) -> dict[types.TopicPartition, types.OffsetAndMetadata] | None:
    if offsets is None:
        return None
    wrong = UsageError("offsets must be dict[TopicPartition, OffsetAndMetadata]")
    if not isinstance(offsets, Mapping):
        raise as_both(wrong, TypeError)
    found: dict[types.TopicPartition, types.OffsetAndMetadata] = {}
    for tp, at in offsets.items():
        if not _is_partition(tp) or not hasattr(at, "offset") or not hasattr(at, "metadata"):
            raise as_both(wrong, TypeError)
        epoch = getattr(at, "leader_epoch", None)
        found[types.TopicPartition(*tp)] = types.OffsetAndMetadata(
            at.offset, at.metadata or "", None if epoch is None or epoch < 0 else epoch
        )
    return found


def _is_partition(tp: object) -> bool:
    return isinstance(tp, tuple) and hasattr(tp, "topic") and hasattr(tp, "partition")


def _partition(tp: Any) -> types.TopicPartition:
    if not _is_partition(tp):
        raise as_both(UsageError(f"partition must be a TopicPartition namedtuple; got {tp!r}"), TypeError)
    return types.TopicPartition(*tp)


def _partitions(partitions: Iterable[Any]) -> list[types.TopicPartition]:
    return [_partition(tp) for tp in partitions]


def _topic(name: Any) -> str:
    if not isinstance(name, str):
        raise as_both(UsageError(f"All topics must be strings; got {name!r}"), TypeError)
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        what = f"Topic name {name!r} is illegal: it must be 1 to 249 letters, digits, '.', '_' and '-', but not '.' or '..'"
        raise as_both(UsageError(what), ValueError)
    return name


def _whole_ms(timeout_ms: float | None) -> int | None:
    return None if timeout_ms is None else int(min(timeout_ms, _LONGEST_MS))
