"""The network between simulated members and their brokers: connections in order, with delays, losses and silence."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fastfetch.engine.events import ConnectionLost, ConnectionOpened, FrameArrived
from fastfetch.protocol import encode_response, tables
from fastfetch.testing.groups import Waiting
from tests.engine.group_model_broker import NODES, Brokers
from tests.engine.group_model_member import Happening, Member
from tests.engine.script import Asked, Body


@dataclass(eq=False)
class Line:
    """One connection. `up` and `down` are under way, with the time they arrive at; `queue` has arrived at the broker, which
    answers in order."""

    member: Member
    conn: int
    node: int
    up: deque[tuple[int, Asked]] = field(default_factory=deque)
    queue: deque[Asked] = field(default_factory=deque)
    down: deque[tuple[int, Happening]] = field(default_factory=deque)
    waiting: Waiting | None = None  # the first of the queue, until the group has an answer
    parked: tuple[int, int] = (-1, -1)  # the first of the queue, a fetch: until then, or until more was produced than this
    is_deaf: bool = False  # the member has hung up
    is_lost: bool = False  # the broker has


class Net:
    def __init__(self, draw: random.Random, brokers: Brokers, clock: Callable[[], int], latencies: tuple[int, ...]) -> None:
        self._draw = draw
        self._brokers = brokers
        self._clock = clock
        self._latencies = latencies
        self.lines: dict[tuple[Member, int], Line] = {}

    # --- members --------------------------------------------------------------------------------------------------------

    def connect(self, member: Member, conn: int, host: str) -> None:
        node = int(host[1:]) if host != "boot" else self._draw.randint(1, NODES)
        line = self.lines[member, conn] = Line(member, conn, node)
        if self._brokers.alive[node]:
            self._down(line, Happening(ConnectionOpened(conn)))
        else:
            self._lose(line, "connection refused")

    def send(self, member: Member, asked: Asked) -> None:
        line = self.lines.get((member, asked.conn))
        if line is not None and not line.is_lost:
            asked.node = line.node
            line.up.append((self._arrival(line.up), asked))

    def close(self, member: Member, conn: int) -> None:
        """By a member that goes on, and may ask the same again elsewhere: nothing arrives late."""
        self.lines.pop((member, conn), None)

    def hang_up(self, member: Member, *, is_heard: bool) -> None:
        """The process has ended. What it has sent arrives, unless nothing does any more."""
        for key, line in list(self.lines.items()):
            if line.member is member:
                line.is_deaf = True
                line.down.clear()
                if not is_heard:
                    del self.lines[key]

    # --- brokers --------------------------------------------------------------------------------------------------------

    def cut(self, which: int) -> None:
        lines = [line for line in self.lines.values() if not (line.is_deaf or line.is_lost)]
        if lines:
            self._lose(lines[which % len(lines)], "connection reset")

    def power_off(self, node: int) -> None:
        for line in list(self.lines.values()):
            if line.node == node:
                self._lose(line, "connection reset")

    def _lose(self, line: Line, why: str) -> None:
        line.is_lost = True
        line.up.clear()
        line.queue.clear()
        line.waiting = None
        if self._draw.random() < 0.5:  # answers under way are lost, too
            line.down.clear()
        self._down(line, Happening(ConnectionLost(line.conn, why)))

    # --- time -----------------------------------------------------------------------------------------------------------

    def next_ms(self) -> Iterator[int]:
        for line in self.lines.values():
            dark = line.member.dark_until
            if line.up:
                yield max(line.up[0][0], dark)
            if line.down:
                yield max(line.down[0][0], dark)
            if line.queue and line.waiting is None:
                yield line.parked[0]

    def ready(self) -> Iterator[Callable[[], None]]:
        now = self._clock()
        for line in self.lines.values():
            dark = line.member.dark_until > now
            if line.up and line.up[0][0] <= now and not dark:
                yield lambda line=line: line.queue.append(line.up.popleft()[1])  # type: ignore[misc]
            if line.down and line.down[0][0] <= now and not dark:
                yield lambda line=line: self._deliver(line)  # type: ignore[misc]
            if line.queue and self._is_answerable(line, now):
                yield lambda line=line: self._answer(line)  # type: ignore[misc]

    def _is_answerable(self, line: Line, now: int) -> bool:
        if line.waiting is not None:
            return line.waiting.answer is not None
        return line.parked[0] <= now or line.parked[1] != self._brokers.produced

    def _answer(self, line: Line) -> None:
        asked = line.queue[0]
        found = line.waiting or self._brokers.answer(asked, line.member.name)
        if isinstance(found, Waiting):
            line.waiting = found
            found = found.answer
            if found is None:
                return
        elif found is None:
            line.parked = (asked.at_ms + asked.body["max_wait_ms"], self._brokers.produced)
            return
        line.queue.popleft()
        line.waiting, line.parked = None, (-1, -1)
        if not line.is_deaf:
            if asked.api is tables.JOIN_GROUP and asked.version < 7:
                found = found | {"protocol_name": found.get("protocol_name") or ""}
            frame = encode_response(asked.api, asked.version, asked.correlation_id, found)[4:]
            self._down(line, Happening(FrameArrived(line.conn, frame), asked, found))

    def _deliver(self, line: Line) -> None:
        happening = line.down.popleft()[1]
        line.member.thread.happened.append(happening)
        if isinstance(happening.event, ConnectionLost):
            self.lines.pop((line.member, line.conn), None)

    def _down(self, line: Line, happening: Happening) -> None:
        if line.is_deaf:
            self.lines.pop((line.member, line.conn), None)
        else:
            line.down.append((self._arrival(line.down), happening))

    def _arrival(self, before: deque[Any]) -> int:
        at = self._clock() + self._draw.choice(self._latencies)
        return max(at, before[-1][0]) if before else at


__all__ = ["Body", "Line", "Net"]
