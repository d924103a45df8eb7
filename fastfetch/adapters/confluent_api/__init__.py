"""confluent-kafka's Consumer by name, over fastfetch's engine: change the import, and a script runs on.

    from fastfetch.adapters.confluent_api import Consumer, KafkaError, KafkaException, TopicPartition

docs/confluent-api.md has what is the same, what differs, and what is not there. confluent-kafka need not be installed; where it
is, its own `except KafkaException` catches what is raised here, and its TopicPartition and Message are taken as arguments.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

from fastfetch.adapters.confluent_api.messages import Message
from fastfetch.adapters.confluent_api.reader import Place, Reader, deadline_of
from fastfetch.adapters.confluent_api.settings import INVALID, NOT_IMPLEMENTED, Settings
from fastfetch.adapters.confluent_api.shapes import (
    at_offsets,
    checked,
    cluster_of,
    given_offsets,
    keys_of,
    ms_of,
    pattern_of,
    places_of,
    statistics_of,
)
from fastfetch.adapters.confluent_api.types import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    ClusterMetadata,
    KafkaError,
    KafkaException,
    TopicPartition,
    code_of,
    failure,
    raised,
)
from fastfetch.adapters.errors import as_both
from fastfetch.engine.subscription import EARLIEST, LATEST, Mode
from fastfetch.errors import ClosedError, CommitFailedError, FastFetchError, UnknownTopicError
from fastfetch.types import OffsetAndMetadata
from fastfetch.types import TopicPartition as Key

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "Consumer",
    "KafkaError",
    "KafkaException",
    "Message",
    "TopicPartition",
]

log = logging.getLogger("fastfetch.adapters")

MOST_MESSAGES = 1_000_000
NO_OFFSET: int = KafkaError._NO_OFFSET  # type: ignore[attr-defined]
STATE: int = KafkaError._STATE  # type: ignore[attr-defined]
CONFLICT: int = KafkaError._CONFLICT  # type: ignore[attr-defined]
UNKNOWN_PARTITION: int = KafkaError._UNKNOWN_PARTITION  # type: ignore[attr-defined]

Rebalanced = Callable[["Consumer", list[TopicPartition]], object]


class _Translated:
    """Errors of ours in their words. Holds no state: one serves all threads."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, FastFetchError) and not isinstance(error, KafkaException):
            both = as_both(error, RuntimeError, "Consumer closed") if isinstance(error, ClosedError) else raised(error)
            raise both from both.__cause__


translated = _Translated()


class _Rebalances:
    """Passes on what the engine tells of partitions. The partitions are there when on_assign is called and until on_revoke
    returns; what the callbacks do with assign() and unassign() chooses among them."""

    def __init__(
        self, consumer: Consumer, on_assign: Rebalanced | None, on_revoke: Rebalanced | None, on_lost: Rebalanced | None
    ) -> None:
        self._consumer = consumer
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        self._on_lost = on_lost if on_lost is not None else on_revoke
        self.raised: Exception | None = None  # by the last callback

    def on_partitions_assigned(self, partitions: Iterable[Key]) -> None:
        self._tell(self._on_assign, partitions)

    def on_partitions_revoked(self, partitions: Iterable[Key]) -> None:
        try:
            self._tell(self._on_revoke, partitions, going=True)
        finally:
            self._consumer._reader.commit_before_going()

    def on_partitions_lost(self, partitions: Iterable[Key]) -> None:
        self._tell(self._on_lost, partitions, going=True)

    def _tell(self, callback: Rebalanced | None, partitions: Iterable[Key], *, going: bool = False) -> None:
        consumer, self.raised = self._consumer, None
        if callback is None:
            return
        consumer._going = going
        try:
            callback(consumer, [TopicPartition(tp.topic, tp.partition) for tp in sorted(partitions)])
        except Exception as error:
            self.raised = error
            raise
        finally:
            consumer._going = False


class Consumer:
    """Reads messages, alone or as a member of a group.

        consumer = Consumer({"bootstrap.servers": "127.0.0.1:9092", "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        message = consumer.poll(1.0)

    The configuration is librdkafka's: a dict, keywords, or both. group.id must be given. Raises KafkaException (an unknown
    property, a value out of range, a producer's property), ValueError (no group.id), TypeError (a callback that is none).

    Timeouts are seconds; None and -1 are no limit for poll() and consume(), and a minute for calls that ask a broker. Calls
    raise KafkaException, RuntimeError once the consumer is closed, and TypeError for arguments of another kind.
    """

    def __init__(self, *args: dict[str, Any], **keywords: Any) -> None:
        if len(args) > 1 or not all(isinstance(arg, dict) for arg in args) or not (args or keywords):
            raise TypeError("expected configuration dict")
        settings = Settings.read({**(args[0] if args else {}), **keywords})
        if settings.stats_cb is not None:
            settings.engine["on_stats"] = self._tell_statistics
        self._settings = settings
        self._log = settings.logger or log
        self._rebalances: _Rebalances | None = None
        self._going = False  # a callback about partitions that go is running
        self._is_closed = self._is_closing = False
        with translated:
            self._reader = Reader(settings)
        self._ahead = self._reader.ahead
        self._reader.on_committed = self._tell_commit  # type: ignore[method-assign]

    # --- messages -------------------------------------------------------------------------------------------------------

    def poll(self, timeout: float | None = None) -> Message | None:
        """One message, or an error in the place of one (look at error()); None if there is none for so long. Callbacks run in
        here."""
        try:
            message = self._ahead.step()
            if message is not None:
                return message
        except BaseException:  # an interrupt: nobody gets it
            self._ahead.undo()
            raise
        reader = self._open()
        try:
            return reader.look(timeout)
        except FastFetchError:
            with translated:
                raise

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """So many messages and errors, or as many as came until the time is up. Callbacks run in here.

        Comes back early with what there is when the group is about to rebalance. Raises ValueError for more than a million.
        """
        reader = self._open()
        if not isinstance(num_messages, int):
            raise TypeError(f"num_messages must be an integer, not {type(num_messages).__name__}")
        if not 0 <= num_messages <= MOST_MESSAGES:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        deadline = deadline_of(timeout)
        if num_messages == 0:
            return []
        try:
            return reader.gather(num_messages, deadline)
        except FastFetchError:
            with translated:
                raise

    # --- choosing partitions --------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: list[str],
        on_assign: Rebalanced | None = None,
        on_revoke: Rebalanced | None = None,
        on_lost: Rebalanced | None = None,
    ) -> None:
        """Share these topics with the group; one that begins with "^" is a regular expression. The next poll joins.

        Callbacks are called as `callback(consumer, partitions)`, from poll(), consume(), unsubscribe() and close(). Without an
        on_lost, partitions that are lost are told to on_revoke.
        """
        reader = self._open()
        if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
            raise TypeError("expected list of topic unicode strings")
        for name, callback in (("on_assign", on_assign), ("on_revoke", on_revoke), ("on_lost", on_lost)):
            if callback is not None and not callable(callback):
                raise TypeError(f"{name} expects a callable")
        if not topics or not all(topics):
            raise failure(INVALID, "Failed to set subscription: give the names of one or more topics")
        pattern = pattern_of(topics)
        rebalances = _Rebalances(self, on_assign, on_revoke, on_lost)
        with translated:
            if reader.mode not in (Mode.NONE, Mode.TOPICS if pattern is None else Mode.PATTERN):
                reader.unsubscribe()
            if pattern is None:
                reader.subscribe(topics, listener=rebalances)
            else:
                reader.subscribe(pattern=pattern, listener=rebalances)
        self._rebalances = rebalances

    def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group. on_revoke is called in here."""
        with translated:
            self._open().unsubscribe()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read exactly these partitions, each from its offset: OFFSET_INVALID and OFFSET_STORED are what the group has committed.

        While subscribed, in on_assign above all, this chooses among the partitions that the group gave, and only those with an
        offset are moved.
        """
        reader = self._open()
        places = places_of(partitions)
        with translated:
            if not reader.is_subscribed:
                reader.start(places)
            elif not self._going:
                self._check_owned(places)
                reader.choose(places, only=True)

    def unassign(self) -> None:
        """Read no partitions. In on_revoke and on_lost there is nothing to do: they go when it returns."""
        self.assign([])

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Read these as well."""
        reader = self._open()
        places = places_of(partitions)
        with translated:
            if reader.is_subscribed:
                self._check_owned(places)
                reader.choose(places, only=False)
                return
            for tp, _, _ in places:
                if reader.find(tp) is not None:
                    raise failure(CONFLICT, f"{tp} is already part of the current assignment")
            reader.start(places, keep=True)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Read these no more."""
        reader = self._open()
        keys = keys_of(partitions)
        with translated:
            for tp in keys:
                if reader.find(tp) is None:
                    raise failure(INVALID, f"{tp} can't be unassigned since it is not in the current assignment")
            if not reader.is_subscribed:
                reader.stop(keys)
            elif not self._going:
                reader.exclude(keys)

    def _check_owned(self, places: list[Place]) -> None:
        for tp, _, _ in places:
            if self._reader.find(tp) is None:
                raise failure(STATE, f"{tp} was not given to this member by its group; call unsubscribe() before assign()")

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return [TopicPartition(*state.tp, OFFSET_STORED) for state in self._open().states()]

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Deliver nothing of these until resume(). Those that are not assigned are passed over."""
        reader = self._open()
        with translated:
            reader.pause([tp for tp in keys_of(partitions) if reader.find(tp) is not None])

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Go on with these."""
        reader = self._open()
        with translated:
            reader.resume(
                [tp for tp in keys_of(partitions) if (state := reader.find(tp)) is not None and state not in reader.excluded]
            )

    # --- positions ------------------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition) -> None:
        """Deliver `partition.offset` next, or what OFFSET_BEGINNING, OFFSET_END or (OFFSET_INVALID) auto.offset.reset say. Raises
        KafkaException with _STATE if it is not assigned."""
        reader = self._open()
        [place] = places_of([partition])
        if place[1] == OFFSET_STORED:
            raise failure(INVALID, f"Failed to seek to offset {OFFSET_STORED}: use assign() to go to what is committed")
        if reader.find(place[0]) is None:
            raise failure(STATE, f"Failed to seek to offset {place[1]}: {place[0]} is not assigned")
        with translated:
            reader.place(place)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The offset after the last message that was delivered, OFFSET_INVALID if there was none since assign() or seek()."""
        reader = self._open()
        keys = keys_of(partitions)
        return at_offsets(keys, {tp: at for tp in keys if (at := reader.position_of(tp)) is not None})

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int]:
        """(first offset, offset after the last one that may be read), asked for now; or as of the last fetch, without asking,
        OFFSET_INVALID where it brought nothing yet."""
        reader = self._open()
        [tp] = keys_of([partition])
        if cached:
            return reader.watermarks(tp)
        with translated:
            try:
                low = reader.offsets_at({tp: EARLIEST}, ms_of(timeout))[tp]
                high = reader.offsets_at({tp: LATEST}, ms_of(timeout))[tp]
            except UnknownTopicError as error:
                raise raised(error, UNKNOWN_PARTITION) from None
        assert low is not None
        assert high is not None  # only times may have none
        return low.offset, high.offset

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float | None = None) -> list[TopicPartition]:
        """The first offset whose timestamp is not below the one in `offset` (ms since 1970); OFFSET_END if there is none."""
        reader = self._open()
        wanted = {Key(tp.topic, tp.partition): tp.offset for tp in checked(partitions)}
        if not wanted:
            raise failure(INVALID, "Failed to get offsets: no partitions were given")
        with translated:
            try:
                found = reader.offsets_at(wanted, ms_of(timeout))
            except UnknownTopicError as error:
                raise raised(error, UNKNOWN_PARTITION) from None
        out = []
        for tp in keys_of(partitions):
            at = found[tp]
            offset, epoch = (OFFSET_END, None) if at is None else (at.offset, at.leader_epoch)
            out.append(TopicPartition(*tp, offset, leader_epoch=epoch))
        return out

    # --- commits --------------------------------------------------------------------------------------------------------

    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """What the next commit is to send: the offset after a message, or offsets as they are. For
        enable.auto.offset.store=False."""
        reader = self._open()
        given = given_offsets("store", message, offsets)
        if given is None:
            raise ValueError("expected either message or offsets")
        if self._settings.stores_offsets:
            raise failure(INVALID, "StoreOffsets failed: set enable.auto.offset.store to False to store offsets yourself")
        states = [(state, at) for tp, at in given.items() if (state := reader.find(tp)) is not None]
        if given and not states:
            raise failure(UNKNOWN_PARTITION, "StoreOffsets failed: none of the partitions is assigned")
        for state, at in states:
            reader.store(state, at if at.offset >= 0 else None)

    def commit(
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None, asynchronous: bool = True
    ) -> list[TopicPartition] | None:
        """Commit what is stored, or the offset after a message, or offsets as they are.

        Asynchronously it returns None, and on_commit hears of the outcome. Else it returns the partitions, with an error where
        one was refused; KafkaException is raised if there was nothing to commit (_NO_OFFSET) or none was taken.
        """
        reader = self._open()
        given = given_offsets("commit", message, offsets)
        chosen = reader.uncommitted() if given is None else {tp: at for tp, at in given.items() if at.offset >= 0}
        named = [state.tp for state in reader.states()] if given is None else list(given)
        if not chosen:
            if not asynchronous:
                raise failure(NO_OFFSET, "Commit failed: Local: No offset stored")
            if self._settings.on_commit is not None:
                reader.call_later(self._settings.on_commit, KafkaError(NO_OFFSET), at_offsets(named, {}))
            return None
        with translated:
            if asynchronous:
                reader.commit_async(chosen, self._tell_commit)
                return None
            try:
                reader.commit(chosen)
            except CommitFailedError as error:
                if error.failed.keys() >= chosen.keys():
                    raise
                return at_offsets(named, chosen, error)
        return at_offsets(named, chosen)

    def committed(self, partitions: list[TopicPartition], timeout: float | None = None) -> list[TopicPartition]:
        """What the group has committed; OFFSET_INVALID where there is nothing."""
        reader = self._open()
        keys = keys_of(partitions)
        with translated:
            found = reader.committed(keys, ms_of(timeout)) if keys else {}
        return [
            TopicPartition(*tp)
            if (at := found[tp]) is None
            else TopicPartition(*tp, at.offset, at.metadata or None, at.leader_epoch)
            for tp in keys
        ]

    def _tell_commit(self, offsets: dict[Key, OffsetAndMetadata], error: Exception | None) -> None:
        if self._settings.on_commit is not None:
            failed = None if error is None else KafkaError(code_of(error), str(error))
            self._settings.on_commit(failed, at_offsets(list(offsets), offsets, error))

    # --- the group and the cluster --------------------------------------------------------------------------------------

    def memberid(self) -> str | None:
        """This member's id in the group; None before it has one."""
        with translated:
            return self._open().group_metadata().member_id or None

    def consumer_group_metadata(self) -> bytes:
        """For send_offsets_to_transaction() of confluent-kafka's producer: who commits, in librdkafka's own form. As of now: ask
        again before each transaction."""
        with translated:
            me = self._open().group_metadata()
        instance = b"\1" if me.group_instance_id is None else b"\0" + me.group_instance_id.encode() + b"\0"
        names = me.group_id.encode() + b"\0" + me.member_id.encode() + b"\0"
        return b"CGMDv2:" + struct.pack("=i", me.generation_id) + names + instance

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Brokers, and all topics or one. A topic that does not exist is in there with an error."""
        with translated:
            return cluster_of(self._open().describe(topic, ms_of(timeout)))

    def cluster_id(self, timeout: float = -1) -> str | None:
        """The cluster's id."""
        return self.list_topics(timeout=timeout).cluster_id

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Refused: there is no SASL in this version of fastfetch."""
        self._open()
        raise failure(NOT_IMPLEMENTED, "set_sasl_credentials: SASL is not in this version of fastfetch")

    def _tell_statistics(self, metrics: dict[str, Any]) -> None:
        if self._settings.stats_cb is not None:
            self._settings.stats_cb(json.dumps(statistics_of(self._reader, metrics)))

    # --- ending ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Commit what is stored if enable.auto.commit says so, call on_revoke, leave the group, close all connections. Raises
        what a callback raised."""
        if self._is_closed or self._is_closing:
            return
        self._is_closing = True  # callbacks may still use this consumer, but not close it once more
        rebalances = self._rebalances
        if rebalances is not None:
            rebalances.raised = None
        try:
            self._reader.close()
        finally:
            self._is_closed = True
            self._ahead.clear()
        if rebalances is not None and rebalances.raised is not None:
            raise rebalances.raised

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _open(self) -> Reader:
        if self._is_closed:
            raise RuntimeError("Consumer closed")
        return self._reader
