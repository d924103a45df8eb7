"""A consumer that hands out Messages one by one or in lists, and keeps librdkafka's account of them.

Two things are told apart for each partition: what was *consumed*, the last message that was handed out, and what is *stored*,
the offset that the next commit sends. With `enable.auto.offset.store` this follows from that; without, the program stores.
Both hang on the engine's state of the partition, so nothing is left of them once it went, even if it comes back.

What goes wrong with a partition comes as a Message with an error, in its turn and once. Many threads may call at once.

A message counts as consumed when the caller has it: an interrupt on the way puts everything back.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fastfetch.adapters.confluent_api.messages import Ahead, Message, messages
from fastfetch.adapters.confluent_api.settings import Settings
from fastfetch.adapters.confluent_api.types import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    code_of,
)
from fastfetch.consumer import Consumer
from fastfetch.core import LATE_MS, Call, drained
from fastfetch.duties import Polling
from fastfetch.engine.metadata import Description
from fastfetch.engine.offsets import Found
from fastfetch.engine.readahead import HandOut
from fastfetch.engine.statistics import lag_of
from fastfetch.engine.subscription import EARLIEST, LATEST, Mode, PartitionState, Phase
from fastfetch.errors import ConnectionFailedError, CorruptBatchError, FastFetchError, FencedInstanceIdError, UnknownTopicError
from fastfetch.net.thread import now_ms
from fastfetch.types import OffsetAndMetadata, TopicPartition

__all__ = ["LOGICAL", "Place", "Reader", "deadline_of"]

AHEAD = 500  # messages made at a time where they are asked for one by one
LOOK_S = 0.1  # and how often is then looked whether anything else is due
LOGICAL = (OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED, OFFSET_INVALID)

EOF: int = KafkaError._PARTITION_EOF  # type: ignore[attr-defined]
DOWN: int = KafkaError._ALL_BROKERS_DOWN  # type: ignore[attr-defined]
UNKNOWN_PARTITION: int = KafkaError._UNKNOWN_PARTITION  # type: ignore[attr-defined]

Place = tuple[TopicPartition, int, int | None]
"""A partition, an offset (OFFSET_… as well) and the leader epoch of the record before it."""


class Reader(Consumer):
    """See the module."""

    def __init__(self, settings: Settings) -> None:
        self.consumed: dict[PartitionState, Message | OffsetAndMetadata] = {}  # the last message, or how far it went after it
        self._moved: set[PartitionState] = set()  # since the last look; perhaps past markers and aborted transactions, too
        self._gathering = 0  # calls that have messages in hand
        self.excluded: dict[PartitionState, None] = {}  # the group gave them, and the program does not want them
        self._stored: dict[PartitionState, OffsetAndMetadata] = {}
        self._settings = settings
        self._events: deque[Message] = deque()  # errors, for the next call that hands out
        self._callbacks: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._told: dict[PartitionState, tuple[int, int | None]] = {}  # code and position of the last error
        self._ended: dict[PartitionState, tuple[int, int]] = {}  # where the end was last told of
        self._missing: set[str] = set()  # subscribed topics that don't exist, told
        self._is_down = False
        super().__init__(settings.engine)
        self.ahead = Ahead(self._engine.readahead, self.consumed)
        self._engine.fetcher.tells_ends = settings.tells_ends

    @staticmethod
    def _caller() -> int:
        """Threads are not told apart: whatever touches positions holds the client's lock."""
        return 0

    def call_later(self, function: Callable[..., object], *arguments: object) -> None:
        """From the next poll, consume or close."""
        self._callbacks.append((function, arguments))

    # --- messages -------------------------------------------------------------------------------------------------------

    def look(self, timeout: float | None) -> Message | None:
        """One message or error; None if there is none for so many seconds. For when `ahead.step()` has none: sees to everything
        that is due, and makes some more ahead."""
        deadline = deadline_of(timeout)
        with Polling(self, "poll"):
            self._settle()
            self._before_poll()
            self._for_the_group(deadline)
        self._make_ahead()
        self.ahead.renew(LOOK_S)
        try:
            message = self.ahead.step()
            if message is not None:
                return message
        except BaseException:
            self.ahead.undo()
            raise
        found = self.gather(1, deadline)
        return found[0] if found else None

    def _make_ahead(self) -> None:
        with self._client.lock:
            self._check()
            if self.ahead.is_next():
                return
            self.ahead.clear()
            found = None if self._must_wait() else self._engine.readahead.peek(AHEAD)
            if found is not None:
                state, chunk, part = found
                is_whole = chunk.row + len(part) == len(chunk.blocks[0])
                if not is_whole or len(part) > 1:
                    self.ahead.fill(state, chunk, messages(part[:-1] if is_whole else part))

    def _must_wait(self) -> bool:
        """Does the group want something done, or is it in doubt whose the partitions are? The lock is held by the caller."""
        membership, now = self._engine.membership, now_ms()
        return membership.is_active and (membership.duty(now) is not None or membership.is_in_doubt(now))

    @contextlib.contextmanager
    def _moving(self, what: str) -> Iterator[None]:
        """A call that changes what comes next."""
        with Call(self, what):
            self.ahead.clear()
            with self._client.lock:
                self._client.poke()
                yield

    def gather(self, count: int, deadline: float) -> list[Message]:
        """So many messages and errors, or as many as there are until the deadline. Less if the group wants something done: then
        what is there already comes first."""
        outs: list[HandOut] = []
        found: list[Message] = []
        errors: list[Message] = []
        ended: list[TopicPartition] = []
        before: dict[PartitionState, Message | OffsetAndMetadata | None] = {}
        is_over = False
        self._settle(1)
        try:
            with Polling(self, "consume"):
                self._before_poll()
                self._for_the_group(deadline)
                last: dict[TopicPartition, Message] = {}
                while len(found) < count:
                    out = HandOut()
                    outs.append(out)
                    with self._client.lock:
                        self.ahead.clear()
                        news = self._take(out, count - len(found), None, deadline)
                    for block in out.blocks:
                        found += messages(block)
                        last[TopicPartition(block.topic, block.partition)] = found[-1]
                    is_idle = not out.moves
                    while self._events and len(found) < count:
                        event = self._events[0]
                        errors.append(event)
                        found.append(self._events.popleft())
                        is_idle = False
                        if event.error().code() == EOF:
                            ended.append(TopicPartition(event.topic() or "", event.partition() or 0))
                    if news is None and is_idle:
                        break
                    if news is not None:
                        if found:
                            with self._client.lock:
                                if self._must_wait():
                                    break
                        self._wait(*news)
                        self._before_poll(LATE_MS)
                        if not found:
                            self._for_the_group(deadline)
            now = self._now_consumed(last, ended)
            before = {state: self.consumed.get(state) for state in now}
            self._moved.update(move.state for out in outs for move in out.moves)
            self.consumed.update(now)
            with self._client.lock:
                self._gathering -= 1
                is_over = True
            return found  # noqa: TRY300 - an interrupt up to here puts them back
        except BaseException:
            self._restore(before)
            for out in reversed(outs):
                self._put_back(out)
            if errors and self._events and errors[-1] is self._events[0]:
                errors.pop()  # was not taken yet
            self._events.extendleft(reversed(errors))
            if not is_over:
                with self._client.lock:
                    self._gathering -= 1
            raise

    def _now_consumed(
        self, last: Mapping[TopicPartition, Message], ended: Iterable[TopicPartition]
    ) -> dict[PartitionState, Message | OffsetAndMetadata]:
        find = self._engine.subscription.find
        now: dict[PartitionState, Message | OffsetAndMetadata] = {}
        for tp, message in last.items():
            if (state := find(tp)) is not None:
                now[state] = message
        for tp in ended:  # told of its end, the program has been taken past the markers before it as well
            if (state := find(tp)) is not None:
                now[state] = _position(state)
        return now

    def _settle(self, begin: int = 0) -> None:
        """Everything that was handed out is with the program, and so is what lies between it and the next message: markers,
        aborted transactions, holes. What is consumed reaches as far as the position."""
        with self._client.lock:
            if not self._gathering:
                find = self._engine.subscription.find
                for state in self._moved:
                    if find(state.tp) is state and state.position is not None:
                        consumed = self.consumed.get(state)
                        if consumed is None or _after(consumed).offset < state.position:
                            self.consumed[state] = _position(state)
                self._moved.clear()
            self._gathering += begin

    def _restore(self, before: Mapping[PartitionState, Message | OffsetAndMetadata | None]) -> None:
        for state, message in before.items():
            if message is None:
                self.consumed.pop(state, None)
            else:
                self.consumed[state] = message

    # --- errors in the place of messages, and callbacks -----------------------------------------------------------------

    def _before_poll(self, late_ms: int = 0) -> None:
        if self._callbacks:
            for function, arguments in drained(self._callbacks):
                self._call_back(function, *arguments)
        if self._engine.subscription.mode is Mode.NONE:
            self._run_callbacks()  # of commits; there is nothing else to do, and no reason to complain
        else:
            super()._before_poll(late_ms)

    def _for_the_group(self, deadline: float) -> None:
        try:
            super()._for_the_group(deadline)
        except FastFetchError as error:
            if isinstance(error, KafkaException):  # a callback's, which called this consumer
                raise
            what = KafkaError(code_of(error), str(error), fatal=isinstance(error, FencedInstanceIdError))
            self._events.append(_message(what))

    def _news(self, deadline: float) -> tuple[Any, float] | None:
        self._note_faults()
        self._note_topics()
        self._note_ends()
        self._note_connections()
        if self._events:
            return None
        if self._callbacks:
            return self._new_waiter(), 0.0
        try:
            return self._until_news(deadline)
        except ConnectionFailedError:  # error_cb has heard of it
            return None

    def _note_faults(self) -> None:
        for state in self._engine.faulty():
            error = state.error
            assert error is not None
            code = code_of(error)
            if isinstance(error, UnknownTopicError) and state.tp.topic in self._engine.cluster.topics:
                code = UNKNOWN_PARTITION
            what = (code, state.position)
            if not state.error_is_sticky:
                self._engine.tell(state)
                self._client.poke()
            if self._told.get(state) == what:
                continue
            self._told[state] = what
            where = state.position if state.position is not None else state.reset_from
            text = str(error)
            if isinstance(error, CorruptBatchError):
                then = "seek to an offset known to be good"
                if error.skip_trusted and error.next_offset is not None:
                    # On behind it, as librdkafka does: the program has been told.
                    then = f"going on at {error.next_offset}"
                    self._client.poke()
                    self._engine.subscription.seek(state, max(error.next_offset, where or 0))
                text = f"{error.what} in {state.tp} at offset {where}{f' ({error.detail})' if error.detail else ''}; {then}"
            self._events.append(_message(KafkaError(code, text), state.tp, where))

    def _note_topics(self) -> None:
        subscription, troubles = self._engine.subscription, self._engine.cluster.troubles
        if self._engine.membership.is_active:
            missing = {name for name in subscription.topics if name in troubles and troubles[name].is_absence}
            for name in sorted(missing - self._missing):
                code = troubles[name].code
                text = f"Subscribed topic not available: {name}: {KafkaError(code).str()}"
                self._events.append(_message(KafkaError(code, text), TopicPartition(name, 0)))
            self._missing = missing

    def _note_ends(self) -> None:
        if not self._settings.tells_ends:
            return
        for state in self._engine.subscription:
            where = (state.placements, state.position)
            if (
                lag_of(state, self.config) == 0
                and state.phase is Phase.FETCHING
                and not state.chunks
                and not state.paused
                and self._ended.get(state) != where
            ):
                self._ended[state] = where  # type: ignore[assignment] # with a lag there is a position
                text = f"{state.tp}: end of partition at offset {state.position}"
                self._events.append(_message(KafkaError(EOF, text), state.tp, state.position, state.leader_epoch))

    def _note_connections(self) -> None:
        if self._engine.channels.is_connected:
            self._is_down = False
        elif not self._is_down and (error := self._engine.unreachable()) is not None:
            self._is_down = True
            if self._settings.error_cb is not None:
                self.call_later(self._settings.error_cb, KafkaError(DOWN, str(error)))

    # --- what is read, and where ----------------------------------------------------------------------------------------

    def start(self, places: Iterable[Place], *, keep: bool = False) -> None:
        """Read these partitions from there, and no others but (with `keep`) those that are read now. Without a group's
        subscription only."""
        places = list(places)
        with self._moving("assign"):
            if not keep:
                self._commit_stored()
                self._engine.assign([])
            self._engine.assign([*(state.tp for state in self._engine.subscription), *(tp for tp, _, _ in places)])
            for place in places:
                self._put(*place)

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these no more. Without a group's subscription only."""
        with self._moving("unassign"):
            self._commit_stored()
            gone = set(partitions)
            self._engine.assign([state.tp for state in self._engine.subscription if state.tp not in gone])

    def choose(self, places: Iterable[Place], *, only: bool) -> None:
        """Of what the group gave: read these from there; with `only`, none of the others."""
        with self._moving("assign"):
            wanted = {tp for tp, _, _ in places}
            for state in list(self._engine.subscription):
                if state.tp in wanted and state in self.excluded:
                    del self.excluded[state]
                    self._engine.resume([state.tp])
                elif only and state.tp not in wanted:
                    self.exclude([state.tp])
            for place in places:
                self._put(*place)

    def exclude(self, partitions: Iterable[TopicPartition]) -> None:
        """Keep these for the group and read nothing of them."""
        with self._moving("unassign"):
            for tp in partitions:
                state = self._engine.subscription.get(tp, "unassign")
                self.excluded[state] = None
                self._engine.pause([tp])

    def place(self, place: Place) -> None:
        """Seek. OFFSET_INVALID is where auto.offset.reset says."""
        tp, offset, _ = place
        with self._moving("seek"):
            state = self._engine.subscription.get(tp, "seek")
            self._store_consumed(state)
            self._told.pop(state, None)
            if offset == OFFSET_INVALID:
                self._engine.subscription.request_reset(state, None)
            else:
                self._put(*place)

    def _put(self, tp: TopicPartition, offset: int, epoch: int | None) -> None:
        if offset >= 0:
            self._engine.seek(tp, offset, epoch)
        elif offset in (OFFSET_BEGINNING, OFFSET_END):
            self._engine.seek_to([tp], EARLIEST if offset == OFFSET_BEGINNING else LATEST, "seek")

    def states(self) -> list[PartitionState]:
        """Of what is read, in order."""
        with self._client.lock:
            return [state for state in self._engine.subscription if state not in self.excluded]

    def position_of(self, tp: TopicPartition) -> OffsetAndMetadata | None:
        """After what was consumed since the partition was last assigned or sought; None: nothing."""
        state = self.find(tp)
        consumed = None if state is None else self.consumed.get(state)
        return None if consumed is None else _after(consumed)

    def find(self, tp: TopicPartition) -> PartitionState | None:
        with self._client.lock:
            return self._engine.subscription.find(tp)

    @property
    def is_subscribed(self) -> bool:
        return self._engine.membership.is_active

    @property
    def mode(self) -> Mode:
        return self._engine.subscription.mode

    # --- what is stored -------------------------------------------------------------------------------------------------

    def store(self, state: PartitionState, at: OffsetAndMetadata | None) -> None:
        """The next commit sends this; None: nothing for this partition."""
        with self._client.lock:
            if at is None:
                self._stored.pop(state, None)
            else:
                self._stored[state] = at

    def stored(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What there is to commit of the partitions assigned now."""
        with self._client.lock:
            find = self._engine.subscription.find
            for kept in (self.consumed, self.excluded, self._stored, self._told, self._ended):
                for state in [state for state in kept if find(state.tp) is not state]:
                    del kept[state]
            found = {state.tp: at for state, at in self._stored.items()}
            if self._settings.stores_offsets:
                found |= {state.tp: _after(consumed) for state, consumed in self.consumed.items()}
            return found

    def uncommitted(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The same without what the coordinator has."""
        with self._client.lock:
            done = self._engine.commits.committed
            return {tp: at for tp, at in self.stored().items() if done.get(tp) != at}

    _uncommitted = uncommitted  # what automatic commits send, in polls, before partitions go, and on closing

    def _store_consumed(self, state: PartitionState) -> None:
        """A seek: what was consumed before it no longer says where the partition stands, but still is what a commit sends."""
        consumed = self.consumed.pop(state, None)
        self._moved.discard(state)
        if consumed is not None and self._settings.stores_offsets:
            self._stored[state] = _after(consumed)

    def _commit_stored(self) -> None:
        if self._auto_commit:
            self._commit_positions(now_ms() + self._patience_ms())

    def commit_before_going(self) -> None:
        """Of what a callback stored while partitions are taken away. They go once it is answered."""
        if self._auto_commit:
            self._commit_positions(self._give_up_by_ms)

    def _auto_commit_done(self, offsets: dict[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
        super()._auto_commit_done(offsets, error)
        self.on_committed(offsets, error)

    def on_committed(self, offsets: dict[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
        """A commit that nobody waited for was answered. The one by whose name it goes sets this."""

    # --- questions ------------------------------------------------------------------------------------------------------

    def offsets_at(self, times: Mapping[TopicPartition, int], timeout_ms: int | None) -> Found:
        """The first offset at each time (ms since 1970, EARLIEST or LATEST)."""
        with Call(self, "offsets"):
            return self._run(self._ask(lambda: self._engine.offsets_at(times), timeout_ms, "the offsets"))

    def describe(self, topic: str | None, timeout_ms: int | None) -> Description:
        """The cluster and one topic, or all."""
        with Call(self, "list_topics"):
            return self._run(self._ask(lambda: self._engine.describe_cluster(topic), timeout_ms, "the metadata"))

    def watermarks(self, tp: TopicPartition) -> tuple[int, int]:
        """As of the last fetch; OFFSET_INVALID where nothing is known."""
        state = self.find(tp)
        known = (-1, -1) if state is None else (state.log_start_offset, state.high_watermark)
        return known[0] if known[0] >= 0 else OFFSET_INVALID, known[1] if known[1] >= 0 else OFFSET_INVALID


def deadline_of(timeout: float | None) -> float:
    """So many seconds from now; never for None and negative ones."""
    return math.inf if timeout is None or timeout < 0 else time.monotonic() + timeout


def _position(state: PartitionState) -> OffsetAndMetadata:
    return OffsetAndMetadata(state.position or 0, "", state.leader_epoch)


def _after(consumed: Message | OffsetAndMetadata) -> OffsetAndMetadata:
    if isinstance(consumed, Message):
        return OffsetAndMetadata(consumed.offset() + 1, "", consumed.leader_epoch())  # type: ignore[operator]
    return consumed


def _message(error: KafkaError, tp: TopicPartition | None = None, offset: int | None = None, epoch: int | None = None) -> Message:
    return Message(
        topic=None if tp is None else tp.topic,
        partition=None if tp is None else tp.partition,
        offset=offset,
        value=error.str().encode(),
        error=error,
        timestamp=(0, -1),
        leader_epoch=epoch,
    )
