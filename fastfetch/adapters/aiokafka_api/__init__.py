"""aiokafka's consumer over fastfetch's engine: change one import and a script runs on.

    from fastfetch.adapters.aiokafka_api import AIOKafkaConsumer, TopicPartition, ConsumerRebalanceListener

aiokafka need not be installed. Where it is, records, partitions, offsets and errors are of its classes, so that code which was
written for them sees no difference. docs/aiokafka-api.md has a table of every method and key: the same, different (how), absent.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from fastfetch import types as ours
from fastfetch.adapters.aiokafka_api import errors
from fastfetch.adapters.aiokafka_api.arguments import (
    Listener,
    as_offsets,
    as_partitions,
    as_theirs,
    as_topics,
    finisher,
    loop_to_use,
    whole_name,
)
from fastfetch.adapters.aiokafka_api.errors import (
    TRANSLATION,
    ConsumerStoppedError,
    IllegalOperation,
    IllegalStateError,
    KafkaConfigurationError,
)
from fastfetch.adapters.aiokafka_api.structs import (
    ConsumerRebalanceListener,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from fastfetch.adapters.aiokafka_api.tasks import SharedConsumer
from fastfetch.adapters.data_objects import data_objects_of
from fastfetch.adapters.errors import as_both
from fastfetch.adapters.settings import say_once, servers, strategies
from fastfetch.config import ConsumerConfig
from fastfetch.errors import ClosedError, ConfigError, UnknownTopicError, UsageError, broker_error
from fastfetch.errors import TimeoutError as TimedOut
from fastfetch.records import RecordBlock

__all__ = [
    "AIOKafkaConsumer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "IllegalOperation",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
    "errors",
]

log = logging.getLogger("fastfetch.adapters")

CLIENT = "AIOKafkaConsumer"


class AIOKafkaConsumer:
    """Reads records for asyncio programs, with aiokafka's names, arguments and habits; see the module.

    Any number of a loop's tasks may use it at once. Raises errors that are aiokafka's and fastfetch's at the same time.
    """

    _closed: bool | None = None  # None: __init__ did not get to its end
    _source_traceback: Any = None

    def __init__(
        self,
        *topics: str,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | list[str] = "localhost",
        client_id: str = "fastfetch",
        group_id: str | None = None,
        group_instance_id: str | None = None,
        key_deserializer: Callable[[bytes | None], Any] | None = None,
        value_deserializer: Callable[[bytes | None], Any] | None = None,
        fetch_max_wait_ms: int = 500,
        fetch_max_bytes: int = 52428800,
        fetch_min_bytes: int = 1,
        max_partition_fetch_bytes: int = 1024 * 1024,
        request_timeout_ms: int = 40 * 1000,
        retry_backoff_ms: int = 100,
        auto_offset_reset: str = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5000,
        check_crcs: bool = True,
        metadata_max_age_ms: int = 5 * 60 * 1000,
        partition_assignment_strategy: Any = ("roundrobin",),
        max_poll_interval_ms: int = 300000,
        rebalance_timeout_ms: int | None = None,
        session_timeout_ms: int = 10000,
        heartbeat_interval_ms: int = 3000,
        consumer_timeout_ms: int = 200,
        max_poll_records: int | None = None,
        ssl_context: Any = None,
        security_protocol: str = "PLAINTEXT",
        api_version: Any = None,
        exclude_internal_topics: bool = True,
        connections_max_idle_ms: int | None = 540000,
        isolation_level: str = "read_uncommitted",
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
        client_rack: str | None = None,
    ) -> None:
        self._loop = loop_to_use(loop)
        if api_version is not None:
            warnings.warn(
                "api_version is deprecated and has no effect: versions are agreed with each broker", DeprecationWarning, 2
            )
        if max_poll_records is not None and (not isinstance(max_poll_records, int) or max_poll_records < 1):
            raise ValueError(f"max_poll_records must be a positive integer or None, not {max_poll_records!r}")
        if rebalance_timeout_ms is not None:
            say_once(CLIENT, "rebalance_timeout_ms", "a rebalance waits for a member as long as max_poll_interval_ms says")
        if consumer_timeout_ms != 200:
            say_once(CLIENT, "consumer_timeout_ms", "nothing is polled in the background; news is told as it comes")
        self._settings: dict[str, Any] = {
            "bootstrap_servers": servers(bootstrap_servers),
            "client_id": client_id,
            "group_id": group_id,
            "group_instance_id": group_instance_id,
            "fetch_max_wait_ms": fetch_max_wait_ms,
            "fetch_max_bytes": fetch_max_bytes,
            "fetch_min_bytes": fetch_min_bytes,
            "max_partition_fetch_bytes": max_partition_fetch_bytes,
            "request_timeout_ms": request_timeout_ms,
            "default_api_timeout_ms": request_timeout_ms,
            "retry_backoff_ms": retry_backoff_ms,
            "auto_offset_reset": auto_offset_reset.lower() if isinstance(auto_offset_reset, str) else auto_offset_reset,
            "enable_auto_commit": enable_auto_commit,
            "auto_commit_interval_ms": auto_commit_interval_ms,
            "check_crcs": check_crcs,
            "metadata_max_age_ms": metadata_max_age_ms,
            "partition_assignment_strategy": strategies(partition_assignment_strategy),
            "max_poll_interval_ms": max_poll_interval_ms,
            "session_timeout_ms": session_timeout_ms,
            "heartbeat_interval_ms": heartbeat_interval_ms,
            "security_protocol": security_protocol,
            "exclude_internal_topics": exclude_internal_topics,
            "connections_max_idle_ms": -1 if connections_max_idle_ms is None else connections_max_idle_ms,
            "isolation_level": isolation_level,
            "client_rack": client_rack or "",
            "allow_auto_create_topics": True,  # as aiokafka's requests for metadata do
        }
        try:
            self._config = ConsumerConfig.from_settings(self._settings)
        except ConfigError as error:
            raise as_both(error, KafkaConfigurationError) from None
        self._finish = finisher(key_deserializer, value_deserializer)
        self._max_poll_records = max_poll_records
        self._consumer: SharedConsumer | None = None
        self._listing: dict[str, set[int]] = {}  # of topics(), or of start()
        # --- what was chosen; None: not in this way
        self._topics: frozenset[str] | None = None
        self._pattern: str | None = None
        self._assigned: list[ours.TopicPartition] | None = None
        self._listener: Listener | None = None
        if self._loop.get_debug():
            self._source_traceback = traceback.extract_stack(sys._getframe(1))
        self._closed = False
        if topics:
            self._topics = as_topics(topics)

    def __del__(self, _warnings: Any = warnings) -> None:
        if self._closed is not False:
            return
        _warnings.warn(f"Unclosed AIOKafkaConsumer {self!r}: use async with, or await stop()", ResourceWarning, source=self)
        context = {"consumer": self, "message": "Unclosed AIOKafkaConsumer"}
        if self._source_traceback is not None:
            context["source_traceback"] = self._source_traceback
        self._loop.call_exception_handler(context)
        if self._consumer is not None:
            self._consumer.abandon()

    # --- beginning and ending -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect; with topics chosen, wait until they exist and, in a group, until it has shared them out.

        Raises KafkaConnectionError if no broker can be reached, UnknownTopicOrPartitionError if a topic does not appear within
        request_timeout_ms; after either it may be called again.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise _asserted("the consumer was made for another event loop")
        if self._consumer is not None:
            raise _asserted("start() was called already")
        if self._closed:
            raise as_both(ClosedError("a stopped consumer can't be started again; make a new one"), ConsumerStoppedError)
        with TRANSLATION:
            self._consumer = consumer = SharedConsumer(_make, self._finish, **self._settings)
            try:
                await consumer.connect()
                self._listing = await consumer.list_topics()
                await self._wait_for_topics(consumer)
                consumer.start_keeper()
                self._choose(consumer)
                if self._assigned is None and (self._topics or self._pattern):
                    await consumer.wait_for_assignment()
            except BaseException:
                if not self._closed:
                    self._consumer = None
                    consumer.abandon()
                raise

    async def _wait_for_topics(self, consumer: SharedConsumer) -> None:
        """Brokers may make them because they are asked for."""
        deadline = time.monotonic() + self._config.request_timeout_ms / 1000
        for topic in self._topics or ():
            while topic not in self._listing:
                try:
                    left_ms = max(1, int((deadline - time.monotonic()) * 1000))
                    self._listing[topic] = await consumer.partitions_for(topic, left_ms)
                except UnknownTopicError:
                    if time.monotonic() >= deadline:
                        raise
                    await asyncio.sleep(self._config.retry_backoff_ms / 1000)
                except TimedOut:
                    raise broker_error(3, f"topic {topic!r} did not appear in {self._config.request_timeout_ms} ms") from None

    def _choose(self, consumer: SharedConsumer) -> None:
        if self._assigned is not None:
            consumer.assign(self._assigned)
        elif self._topics is not None or self._pattern is not None:
            consumer.follow(self._topics or (), self._pattern, self._listener)

    async def stop(self) -> None:
        """Commit what was handed out (with enable_auto_commit), leave the group, close. Calls that wait end with a
        ConsumerStoppedError. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._consumer is not None:
            with TRANSLATION:
                await self._consumer.finish()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    # --- choosing partitions --------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions. Raises IllegalStateError after subscribe()."""
        wanted = as_partitions(partitions, "assign")
        self._exclude("assign", self._topics, self._pattern)
        self._assigned = wanted
        self._tell_consumer()

    def subscribe(
        self, topics: Collection[str] = (), pattern: str | None = None, listener: ConsumerRebalanceListener | None = None
    ) -> None:
        """Share the partitions of these topics, or of those whose name begins with a match of the pattern, with the other members
        of the group; without a group_id, read all of them. Raises TypeError, ValueError, IllegalStateError."""
        if not (topics or pattern):
            raise TypeError("subscribe: give topics or a pattern")
        if topics and pattern:
            raise TypeError("subscribe: give topics or a pattern, not both")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError(f"subscribe: the listener must be a ConsumerRebalanceListener, not {listener!r}")
        if pattern is not None:
            whole = whole_name(pattern)
            self._exclude("subscribe", self._topics, self._assigned)
            self._pattern = whole
        else:
            names = as_topics(topics)
            self._exclude("subscribe", self._pattern, self._assigned)
            self._topics = names
        self._listener = None if listener is None else Listener(listener)
        self._tell_consumer()

    def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group, without a commit."""
        self._topics = self._pattern = self._assigned = self._listener = None
        if self._consumer is not None:
            self._consumer.leave()

    def _exclude(self, what: str, *others: object) -> None:
        if any(other is not None for other in others):
            raise _illegal(f"{what}: topics, a pattern and assigned partitions exclude one another; unsubscribe() first")

    def _tell_consumer(self) -> None:
        if self._consumer is not None:
            with TRANSLATION:
                self._choose(self._consumer)

    def subscription(self) -> frozenset[str]:
        """The topics that are read."""
        if self._assigned is not None:
            return frozenset(tp.topic for tp in self._assigned)
        if self._pattern is not None and self._consumer is not None and not self._closed:
            with TRANSLATION:
                return frozenset(self._consumer.subscription())
        return self._topics or frozenset()

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read."""
        if self._consumer is None:
            return frozenset(map(as_theirs, self._assigned or ()))
        if self._closed:
            return frozenset()
        with TRANSLATION:
            return frozenset(map(as_theirs, self._consumer.assignment()))

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these until resume(). What is buffered is kept."""
        wanted = as_partitions(partitions, "pause")
        with TRANSLATION:
            self._started("pause").pause(wanted)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with paused partitions."""
        wanted = as_partitions(partitions, "resume")
        with TRANSLATION:
            self._started("resume").resume(wanted)

    def paused(self) -> set[TopicPartition]:
        """The assigned partitions that are paused."""
        if self._consumer is None:
            return set()
        with TRANSLATION:
            return set(map(as_theirs, self._consumer.paused()))

    # --- records --------------------------------------------------------------------------------------------------------

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[Any, Any]:
        """The next record, of these partitions if any are named. Its offset + 1 is the position then."""
        only = as_partitions(partitions, "getone") if partitions else None
        record = self._started("getone").step(only)
        if record is None:
            with TRANSLATION:
                record = await self._started("getone").getone(only)
        return record  # type: ignore[no-any-return]

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Records by partition, of these if any are named, `max_records` at most in all; {} if there are none for so long,
        or if the consumer is stopped meanwhile."""
        only = as_partitions(partitions, "getmany") if partitions else None
        if max_records is not None and (not isinstance(max_records, int) or max_records < 1):
            raise ValueError(f"getmany: max_records must be a positive integer, not {max_records!r}")
        limit = max_records or self._max_poll_records
        with TRANSLATION:
            found = await self._started("getmany").getmany(only, limit, timeout_ms / 1000)
        return {as_theirs(tp): records for tp, records in found.items()}

    def __aiter__(self) -> Self:
        if self._closed:
            raise as_both(ClosedError("the consumer was stopped"), ConsumerStoppedError)
        return self

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        """The next record; the loop ends when the consumer is stopped. A record that is too large is logged, not raised."""
        while True:
            try:
                record = self._started("iteration").step(None)
                return await self.getone() if record is None else record
            except ConsumerStoppedError:
                raise StopAsyncIteration from None
            except errors.RecordTooLargeError:
                log.exception("iterating over records")

    # --- positions ------------------------------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition) -> int:
        """The next offset that will be handed out. Waits while it is looked up, request_timeout_ms at most."""
        [tp] = as_partitions([partition], "position")
        with TRANSLATION:
            return await self._started("position").position(tp)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Hand out `offset` next. Raises ValueError, IllegalStateError."""
        if not isinstance(offset, int) or offset < 0:
            raise ValueError(f"seek: the offset must be an integer from 0, not {offset!r}")
        [tp] = as_partitions([partition], "seek")
        with TRANSLATION:
            self._started("seek").seek(tp, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Go to the first offset of these partitions, of all if none is named; True once it is known, False if it is not within
        request_timeout_ms."""
        return await self._seek_to("seek_to_beginning", partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """The same with the end: the next record produced, or with read_committed the first one that is not stable yet."""
        return await self._seek_to("seek_to_end", partitions)

    async def _seek_to(self, what: str, partitions: tuple[TopicPartition, ...]) -> bool:
        with TRANSLATION:
            consumer = self._started(what)
            wanted = self._some_assigned(consumer, what, partitions)
            getattr(consumer, what)(wanted)
            try:
                for tp in wanted:
                    await consumer.position(tp)
            except TimedOut:
                return False
            return True

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Go to what the group has committed of these partitions, of all if none is named; where nothing is, stay. Returns what
        was found."""
        with TRANSLATION:
            consumer = self._started("seek_to_committed")
            wanted = self._some_assigned(consumer, "seek_to_committed", partitions)
            self._need_group("seek_to_committed")
            stored = await consumer.committed(wanted)
            found = {tp: None if at is None else at.offset for tp, at in stored.items()}
            for tp, offset in found.items():
                if offset is not None:
                    consumer.seek(tp, offset)
        return {as_theirs(tp): offset for tp, offset in found.items()}

    def _some_assigned(
        self, consumer: SharedConsumer, what: str, partitions: tuple[TopicPartition, ...]
    ) -> list[ours.TopicPartition]:
        assigned = consumer.assignment()
        if not partitions:
            if not assigned:
                raise _asserted(f"{what}: no partitions are assigned")
            return sorted(assigned)
        wanted = as_partitions(partitions, what)
        absent = [str(tp) for tp in wanted if tp not in assigned]
        if absent:
            raise _illegal(f"{what}: {', '.join(absent)} is not assigned")
        return wanted

    def highwater(self, partition: TopicPartition) -> int | None:
        """The offset of the next record that will be produced, as of the last fetch; None before it."""
        return self._log_of(partition, "highwater", lambda consumer, state: _known(state.high_watermark))

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """With read_committed, the end of what may be read, as of the last fetch; otherwise -1. None before the first fetch."""

        def stable(consumer: SharedConsumer, state: Any) -> int | None:
            is_told = self._config.isolation_level == "read_committed" or state.high_watermark < 0
            return _known(state.last_stable_offset) if is_told else -1

        return self._log_of(partition, "last_stable_offset", stable)

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """When a broker last told of the partition's log, in ms since 1970; None before that."""

        def when(consumer: SharedConsumer, state: Any) -> int | None:
            ago = consumer.heard_ago_ms(state)
            return None if ago is None else time.time_ns() // 1_000_000 - ago

        return self._log_of(partition, "last_poll_timestamp", when)

    def _log_of(self, partition: TopicPartition, what: str, get: Callable[[SharedConsumer, Any], int | None]) -> int | None:
        [tp] = as_partitions([partition], what)
        if as_theirs(tp) not in self.assignment():
            raise _asserted(f"{what}: {tp} is not assigned")
        return None if self._consumer is None else get(self._consumer, self._consumer.state(tp, what))

    # --- commits --------------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        """Store the next offsets to read: the positions, or {partition: offset | (offset, metadata)}, sent unchanged.

        Raises IllegalOperation without a group_id, IllegalStateError for what is not assigned, CommitFailedError, ValueError.
        """
        self._need_group("commit")
        with TRANSLATION:
            consumer = self._started("commit")
            assigned = consumer.assignment()
            if self._topics is None and self._pattern is None and self._assigned is None:
                raise _illegal("commit: nothing is subscribed or assigned")
            chosen = None if offsets is None else as_offsets(offsets)
            for tp in chosen or ():
                if tp not in assigned:
                    raise _illegal(f"commit: {tp} is not assigned")
            await consumer.commit(chosen)

    async def committed(self, partition: TopicPartition) -> int | None:
        """What the group has committed of the partition, None if nothing. Raises IllegalOperation without a group_id."""
        self._need_group("committed")
        [tp] = as_partitions([partition], "committed")
        with TRANSLATION:
            at = (await self._started("committed").committed([tp]))[tp]
        return None if at is None else at.offset

    def _need_group(self, what: str) -> None:
        if self._config.group_id is None:
            raise as_both(UsageError(f"{what}: offsets are committed for a group; give a group_id"), IllegalOperation)

    # --- the cluster ----------------------------------------------------------------------------------------------------

    async def topics(self) -> set[str]:
        """Names of all topics this client may see, without Kafka's internal ones."""
        with TRANSLATION:
            self._listing = await self._started("topics").list_topics()
        return set(self._listing)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Numbers of a topic's partitions; None if the topic is not known: it is not read, and was not there at the last
        topics() or start()."""
        known = None if self._consumer is None else self._consumer.known_partitions(topic)
        return self._listing.get(topic) if known is None else known

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset whose timestamp is not below the given one (ms since 1970), None where there is none. Raises
        ValueError for a negative one."""
        wanted: dict[ours.TopicPartition, int] = {}
        for partition, timestamp in timestamps.items():
            [tp] = as_partitions([partition], "offsets_for_times")
            wanted[tp] = int(timestamp)
            if wanted[tp] < 0:
                raise ValueError(f"offsets_for_times: the timestamp of {tp} must not be negative, but is {timestamp}")
        with TRANSLATION:
            found = await self._started("offsets_for_times").offsets_for_times(wanted)
        return {as_theirs(tp): None if at is None else OffsetAndTimestamp(at.offset, at.timestamp) for tp, at in found.items()}

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        wanted = as_partitions(partitions, "beginning_offsets")
        with TRANSLATION:
            found = await self._started("beginning_offsets").beginning_offsets(wanted)
        return {as_theirs(tp): offset for tp, offset in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition, with read_committed the last readable one."""
        wanted = as_partitions(partitions, "end_offsets")
        with TRANSLATION:
            found = await self._started("end_offsets").end_offsets(wanted)
        return {as_theirs(tp): offset for tp, offset in found.items()}

    def _started(self, what: str) -> SharedConsumer:
        if self._closed:
            raise as_both(ClosedError(f"{what}: the consumer was stopped"), ConsumerStoppedError)
        if self._consumer is None:
            raise _illegal(f"{what}: the consumer is not started; await start() first, or use async with")
        return self._consumer


def _make(blocks: list[RecordBlock]) -> list[Any]:
    return data_objects_of(blocks, ConsumerRecord)


def _known(offset: int) -> int | None:
    return None if offset < 0 else offset


def _illegal(message: str) -> Exception:
    return as_both(UsageError(message), IllegalStateError)


def _asserted(message: str) -> Exception:
    """Where aiokafka has an assert."""
    return as_both(UsageError(message), AssertionError)
