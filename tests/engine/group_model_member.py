"""A member of a simulated group: the real consumer, without its thread and sockets.

What `net.thread` does in a loop is done here pass by pass, whenever the world says so; a call that waits is a generator, which
the world resumes. So background and caller interleave in any order, and either may come first after both were stopped.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from fastfetch import core
from fastfetch.calls import BaseConsumer
from fastfetch.core import LATE_MS, Steps
from fastfetch.duties import Polling
from fastfetch.engine.actions import CloseConnection, DecodeRecords, OpenConnection, SendBytes
from fastfetch.engine.client import Engine
from fastfetch.engine.events import Event, RecordsDecoded
from fastfetch.engine.readahead import HandOut
from fastfetch.errors import (
    CommitFailedError,
    ConnectionFailedError,
    FencedInstanceIdError,
    RebalanceInProgressError,
    TimeoutError,  # noqa: A004
    UsageError,
)
from fastfetch.protocol import decode_request, tables
from fastfetch.records import decode
from fastfetch.records.block import RecordBlock
from fastfetch.types import TopicPartition
from tests.engine.group_model_broker import offsets_read
from tests.engine.script import Asked, Body

if TYPE_CHECKING:
    from tests.engine.group_model import World

SIGNS_OF_LIFE = (tables.HEARTBEAT, tables.SYNC_GROUP, tables.CONSUMER_GROUP_HEARTBEAT)
COMMIT_ERRORS = (CommitFailedError, RebalanceInProgressError, TimeoutError, FencedInstanceIdError)


class SimWaiter:
    is_released = False

    def release(self) -> None:
        self.is_released = True


class Happening(NamedTuple):
    """Something for the engine; of an answer also what it answers."""

    event: Event
    asked: Asked | None = None
    body: Body | None = None


class SimThread:
    """In place of ClientThread."""

    def __init__(self, member: Member, engine: Engine, name: str) -> None:
        self.member = member
        self.engine = engine
        self.lock: Any = contextlib.nullcontext()
        self.crash: BaseException | None = None
        self.has_ended = False
        self.is_poked = self.is_stopping = False
        self.happened: list[Happening] = []
        self.wake_at: int | None = 0
        self.passed_ms = -1
        self.waiters: list[SimWaiter] = []

    # --- callers --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.poke()

    def poke(self) -> None:
        self.is_poked = True

    def add_waiter(self, waiter: SimWaiter) -> None:
        self.waiters.append(waiter)

    def is_held_here(self) -> bool:
        return False

    def notify(self) -> None:
        for waiter in self.waiters:
            waiter.release()
        self.waiters.clear()

    wake_waiters = notify

    def stop(self) -> None:
        self.is_stopping = True

    def join(self, timeout: float) -> bool:
        return self.has_ended

    @property
    def is_alive(self) -> bool:
        return not self.has_ended

    # --- the loop -------------------------------------------------------------------------------------------------------

    def due_ms(self, now: int) -> int | None:
        if self.has_ended:
            return None
        if self.happened or self.is_poked or self.is_stopping:
            return now
        return None if self.wake_at is None else max(self.wake_at, self.passed_ms + 1)

    def run(self, now: int) -> None:
        """One pass."""
        engine = self.engine
        self.is_poked, self.passed_ms = False, now
        happened, self.happened = self.happened, []
        for event, asked, body in happened:
            engine.handle(event, now)
            if asked is not None and body is not None:
                self.member.heard(asked, body)
        engine.pump(now)
        self._perform(engine.take_actions(), now)
        self.wake_at = engine.wake_at_ms
        if engine.has_news:
            engine.has_news = False
            self.notify()
        if self.is_stopping:
            engine.close(now)
            self._perform(engine.take_actions(), now)
            self.has_ended = True
            self.member.world.ended(self.member)
            self.notify()

    def _perform(self, actions: Iterable[object], now: int) -> None:
        world = self.member.world
        for action in actions:
            match action:
                case OpenConnection():
                    world.net.connect(self.member, action.conn, action.host)
                case SendBytes():
                    request = decode_request(action.data[4:])
                    asked = Asked(action.conn, 0, request.api, request.version, request.correlation_id, request.body, now)
                    world.sent(self.member, asked)
                case CloseConnection():
                    world.net.close(self.member, action.conn)
                case DecodeRecords():
                    self._decode(action)

    def _decode(self, job: DecodeRecords) -> None:
        tp = job.partition.tp
        assert job.records is not None
        result = decode(
            job.records,
            position=job.start,
            isolation="read_uncommitted",
            aborted=job.aborted,
            topic=tp.topic,
            partition=tp.partition,
        )
        job.records = None
        self.happened.append(Happening(RecordsDecoded(job, result)))


class SimConsumer(BaseConsumer[SimWaiter]):
    """A Consumer whose calls are generators."""

    _rival = "call"

    def _caller(self) -> object:
        return "the only one"

    def _new_waiter(self) -> SimWaiter:
        return SimWaiter()

    def _nothing_subscribed(self) -> None:
        raise UsageError("not here")

    def _invoke(self, function: Callable[..., Any], *arguments: object) -> Steps[SimWaiter, None]:
        before, self._calling_back = self._calling_back, True
        try:
            yield from function(*arguments)
        finally:
            self._calling_back = before

    def poll(self, timeout_ms: int, limit: int) -> Steps[SimWaiter, HandOut]:
        out = HandOut()
        with Polling(self, "poll"):
            deadline = core.time.monotonic() + timeout_ms / 1000 if timeout_ms > 0 else 0.0
            self._before_poll()
            yield from self._for_the_group(deadline)
            while (news := self._take(out, limit, None, deadline)) is not None:
                yield news
                self._before_poll(LATE_MS)
                yield from self._for_the_group(deadline)
        return out

    def _for_the_group(self, deadline: float) -> Steps[SimWaiter, None]:
        if self._engine.membership.is_active:
            yield from self._duties(deadline)


class Member:
    """A process with one consumer, and what it knows by its listener and by what was handed out to it.

    told        partitions that its listener holds to be its own, and when that was said (counted by the world)
    acked_ms    when the last sign of life that the coordinator acknowledged was sent
    """

    def __init__(self, world: World, name: str, *, is_auto: bool, **settings: Any) -> None:
        self.world = world
        self.name = name
        self.is_auto = is_auto
        self.instance_id: str | None = settings.get("group_instance_id")
        self.is_frozen = self.is_dead = self.is_closing = self.is_fenced = False
        self.closing_in = -1  # generation
        self.dark_until = 0  # the network brings nothing to it, and nothing from it
        self.told: dict[TopicPartition, int] = {}
        self.next: dict[TopicPartition, int] = {}  # the record after the last one handed out
        self.read: dict[TopicPartition, int] = {}  # what OffsetFetch said last
        self.in_hand: list[tuple[TopicPartition, int, int]] = []  # not processed yet
        self.acked_ms = world.now
        self.call: Generator[tuple[SimWaiter, float], None, object] | None = None
        self.waiter = SimWaiter()
        self.wait_until = 0
        self.topics: frozenset[str] = frozenset()
        with patch.object(core, "ClientThread", partial(SimThread, self)):
            self.consumer = SimConsumer(
                bootstrap_servers="boot:9000", group_id="g", enable_auto_commit=is_auto, client_id=name, **settings
            )
        thread: Any = self.consumer._client
        self.thread: SimThread = thread

    def __repr__(self) -> str:
        return f"<{self.name} {sorted(self.told)}>"

    @property
    def is_running(self) -> bool:
        return not (self.is_frozen or self.is_dead)

    # --- its application ------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        self.consumer.subscribe(self.topics, listener=self)

    def begin(self, call: Steps[SimWaiter, Any]) -> None:
        """Make a call; what was handed out before is processed by now."""
        assert self.call is None
        self.work_off()
        self.call = call
        self.resume()

    def is_ready(self, now: int) -> bool:
        return self.call is not None and self.is_running and (self.waiter.is_released or self.wait_until <= now)

    def resume(self) -> None:
        assert self.call is not None
        try:
            self.waiter, seconds = next(self.call)
            self.wait_until = self.world.now + math.ceil(seconds * 1000)
        except StopIteration:
            self.call = None

    def work_off(self) -> None:
        for tp, first, end in self.in_hand:
            self.world.brokers.logs[tp].process(first, end)
        self.in_hand.clear()

    def poll(self, timeout_ms: int, limit: int) -> Steps[SimWaiter, None]:
        try:
            out = yield from self.consumer.poll(timeout_ms, limit)
        except FencedInstanceIdError:
            self.world.was_fenced(self)
            return
        except ConnectionFailedError:
            self.world.reached_nobody(self)
            return
        for block in out.blocks:
            self._got(block)

    def commit(self) -> Steps[SimWaiter, None]:
        try:
            yield from self.consumer._commit(None, 5_000 if self.is_closing else self.world.draw.choice([100, 5_000]))
        except COMMIT_ERRORS as error:
            self.world.commit_failed(self, error)

    def commit_async(self) -> Steps[SimWaiter, None]:
        self.consumer.commit_async(callback=self._committed)
        return
        yield  # a call like the others

    def _committed(self, offsets: object, error: Exception | None) -> None:
        if error is not None:
            assert isinstance(error, COMMIT_ERRORS), error
            self.world.commit_failed(self, error)

    def close(self) -> Steps[SimWaiter, None]:
        self.is_closing, self.closing_in = True, self.world.brokers.generation
        yield from self.consumer._close(self.world.draw.choice([3_000, 30_000]), autocommit=True)
        self.world.has_closed(self)

    # --- its listener ---------------------------------------------------------------------------------------------------

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Steps[SimWaiter, None]:
        with self.world.watched():
            self._came(partitions)
        return
        yield

    def _came(self, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            assert tp not in self.told, f"{tp} was assigned twice"
            self.world.turn += 1
            self.told[tp] = self.world.turn
            self.next.pop(tp, None)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Steps[SimWaiter, None]:
        if not self.is_auto:
            yield from self.commit()
        with self.world.watched():
            self._gone(partitions)
            self.world.was_revoked(self, partitions)

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> Steps[SimWaiter, None]:
        with self.world.watched():
            self.world.was_lost(self, partitions)
            self._gone(partitions)
        return
        yield

    def _gone(self, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            assert self.told.pop(tp, None) is not None, f"{tp} goes, which {self} never had"

    # --- what it sees ---------------------------------------------------------------------------------------------------

    def heard(self, asked: Asked, body: Body) -> None:
        """The engine has got an answer."""
        if asked.api is tables.OFFSET_FETCH:
            self.read.update(offsets_read(asked, body))
        code = body.get("error_code")
        if asked.api is tables.JOIN_GROUP and code == 0:
            # It may have waited for others, and for long. That is no sign of life of one who has something to lose.
            self.acked_ms = max(self.acked_ms, asked.at_ms) if self.told else self.world.now
        elif asked.api in SIGNS_OF_LIFE and (code == 0 or (asked.api is tables.HEARTBEAT and code == 27)):
            self.acked_ms = max(self.acked_ms, asked.at_ms)

    def _got(self, block: RecordBlock) -> None:
        tp = TopicPartition(block.topic, block.partition)
        offsets = block.offsets.tolist()
        assert tp in self.told, f"{self} was handed records of {tp}, which its listener does not know of"
        due = self.next[tp] if tp in self.next else max(self.read[tp], 0)
        assert offsets == list(range(due, due + len(offsets))), f"{self} got {offsets} of {tp}; due was {due}"
        self.next[tp] = due + len(offsets)
        self.in_hand.append((tp, due, due + len(offsets)))
        self.world.handed_out(self, tp)
