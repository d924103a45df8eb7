"""A world of a few members of one group, that walks step by step on a fake clock; what must hold is checked as it happens.

A walk in peace knows no faults, and nothing is handed out twice in it. In others processes die, stop and go on, the network loses
and delays, and coordinators restart; then every record comes at least once, and nothing is read or committed by who has lost it.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from fastfetch import calls, core, duties
from fastfetch.errors import CommitFailedError, RebalanceInProgressError
from fastfetch.protocol import tables
from fastfetch.testing import groups, groups_epochs
from fastfetch.types import TopicPartition
from tests.engine.group_model_broker import COMPLETING, Brokers
from tests.engine.group_model_member import Member
from tests.engine.group_model_net import Net
from tests.engine.script import Asked

TOPICS = ("s", "t")
MEMBERS = 5  # at most
# Requests of one member in a second, fetches aside; each step of the walk in that second explains some more.
MANY = 60
STEP_EXPLAINS = 30
STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky", "range+cooperative-sticky", "consumer")


class World:
    def __init__(self, draw: random.Random, strategy: str, *, is_calm: bool) -> None:
        self.draw = draw
        self.now = 1_000_000
        self.strategy = strategy
        self.is_calm = is_calm
        self.is_classic = strategy != "consumer"
        self.is_auto = draw.random() < 0.6
        self.session_ms = draw.choice([6_000, 10_000])
        self.interval_ms = draw.choice([1_000, 2_000])
        self.max_poll_ms = 10**6 if is_calm else draw.choice([9_000, 20_000, 60_000])
        self.turn = self.steps = self.made = 0
        self.requests: Counter[tuple[str, int]] = Counter()  # of a member in a second
        self.stepped: Counter[int] = Counter()  # in a second
        self.happened: Counter[str] = Counter()
        self.may_repeat = not is_calm
        self.failure: AssertionError | None = None  # of a listener
        self._patches = contextlib.ExitStack()
        self._patch()
        self.brokers = Brokers(
            draw, lambda: self.now, is_classic=self.is_classic, session_ms=self.session_ms, interval_ms=self.interval_ms
        )
        self.net = Net(draw, self.brokers, lambda: self.now, (0, 1, 5) if is_calm else (0, 1, 1, 2, 5, 30))
        for topic in TOPICS:
            self.brokers.add_partitions(topic, draw.randint(1, 4))
        self.members: list[Member] = []
        self.known_topics: dict[str, tuple[str, ...]] = {}  # by instance id
        for _ in range(draw.randint(1, 3)):
            self.add(0)

    def _patch(self) -> None:
        """Time and chance are the world's."""
        clock = SimpleNamespace(monotonic=lambda: self.now / 1000, time_ns=lambda: self.now * 1_000_000)
        for module in (core, duties, calls):
            self._patches.enter_context(patch.object(module, "time", clock))
            self._patches.enter_context(patch.object(module, "now_ms", lambda: self.now))
        new_id = lambda: uuid.UUID(int=self.draw.getrandbits(128))  # noqa: E731
        for module, name, what in [
            (core, "os", SimpleNamespace(getpid=os.getpid, urandom=self.draw.randbytes)),
            (core, "uuid", SimpleNamespace(uuid4=new_id)),
            (groups, "uuid", SimpleNamespace(uuid4=new_id)),
            (groups_epochs, "uuid4", new_id),
        ]:
            self._patches.enter_context(patch.object(module, name, what))

    def stop(self) -> None:
        for member in self.members:
            member.consumer._closed = True
        self._patches.close()

    # --- steps: the members ---------------------------------------------------------------------------------------------

    def add(self, instance: int) -> None:
        """Another process; with an instance id if `instance` is not 0."""
        if len(self.members) >= MEMBERS:
            return
        settings: dict[str, Any] = {
            "max_poll_interval_ms": self.max_poll_ms,
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": self.draw.choice([200, 1_000, 5_000]),
            "request_timeout_ms": self.draw.choice([3_000, 30_000]),
            "default_api_timeout_ms": 60_000 if self.is_calm else self.draw.choice([2_000, 60_000]),
            "metadata_max_age_ms": self.draw.choice([2_000, 30_000]),
        }
        if self.is_classic:
            strategies = self.strategy.split("+")
            if self.draw.random() < 0.5:
                strategies = strategies[-1:]  # an upgrade under way: the last one is what all have in common
            settings |= {
                "partition_assignment_strategy": strategies,
                "session_timeout_ms": self.session_ms,
                "heartbeat_interval_ms": self.interval_ms,
            }
            if instance and self.brokers.versions["JoinGroup"][1] >= 5:
                settings["group_instance_id"] = f"i{instance}"
                if any(m.instance_id == f"i{instance}" and not m.is_frozen for m in self.members):
                    return
        else:
            settings["group_protocol"] = "consumer"
        self.made += 1
        member = Member(self, f"m{self.made}", is_auto=self.is_auto, **settings)
        self.members.append(member)
        topics = self.draw.choice([TOPICS, TOPICS, TOPICS[:1], TOPICS[1:]])
        member.subscribe(self._known(member, topics))

    def _known(self, member: Member, topics: tuple[str, ...]) -> tuple[str, ...]:
        """Without those that its static predecessors did not want: a coordinator that gives it their share, without a rebalance,
        has nobody hear of what it wants beside."""
        if member.instance_id is None:
            return topics
        before = self.known_topics.get(member.instance_id, topics)
        topics = tuple(topic for topic in topics if topic in before) or before
        self.known_topics[member.instance_id] = topics
        return topics

    def _idle(self, which: int) -> Member | None:
        idle = [member for member in self.members if member.is_running and member.call is None]
        return idle[which % len(idle)] if idle else None

    def poll(self, which: int, timeout_ms: int, limit: int) -> None:
        if member := self._idle(which):
            member.begin(member.poll(timeout_ms, limit))

    def commit(self, which: int, is_async: bool) -> None:
        if member := self._idle(which):
            member.begin(member.commit_async() if is_async else member.commit())

    def close(self, which: int) -> None:
        if member := self._idle(which):
            member.begin(member.close())

    def subscribe(self, which: int, topics: int) -> None:
        if member := self._idle(which):
            member.work_off()
            member.subscribe(self._known(member, [TOPICS[:1], TOPICS[1:], TOPICS][topics % 3]))

    def enforce(self, which: int) -> None:
        if member := self._idle(which):
            member.consumer.enforce_rebalance()

    def kill(self, which: int, is_heard: bool) -> None:
        """SIGKILL; or its machine is gone, and nobody hears of it."""
        if self.members:
            member = self.members.pop(which % len(self.members))
            member.is_dead = member.consumer._closed = True
            self.net.hang_up(member, is_heard=is_heard)

    def freeze(self, which: int) -> None:
        """SIGSTOP, SIGCONT."""
        if self.members:
            member = self.members[which % len(self.members)]
            member.is_frozen = not member.is_frozen

    def nap(self, which: int, ms: int) -> None:
        """Stopped for a while; then whatever comes first, its background or its caller."""
        if member := self._idle(which):
            member.is_frozen = True
            self.carry_on(ms)
            member.is_frozen = False
            if member in self.members and member.call is None:
                member.begin(member.poll(0, 500))

    def darken(self, which: int, ms: int) -> None:
        """The network brings nothing to it, and nothing from it. It polls on."""
        if self.members:
            self.members[which % len(self.members)].dark_until = self.now + ms
            self.carry_on(ms)

    def carry_on(self, ms: int) -> None:
        """All that can poll do."""
        end = self.now + ms
        while self.now < end:
            self.produce(self.draw.randrange(99), 1)
            for which in range(MEMBERS):
                self.poll(which, 0, 3)
            self.stepped[self.now // 1000] += 1
            self.wait(min(400, end - self.now))

    # --- steps: the cluster ---------------------------------------------------------------------------------------------

    def produce(self, which: int, count: int) -> None:
        logs = list(self.brokers.logs.values())
        logs[which % len(logs)].append(count)
        self.brokers.produced += 1

    def grow(self, topic: int) -> None:
        name = TOPICS[topic % len(TOPICS)]
        if self.brokers.count(name) < 7:
            self.brokers.add_partitions(name, 1)

    def power(self, node: int, moves: bool) -> None:
        """A broker goes, and another one coordinates the group, or nobody until it is back; or it comes back."""
        brokers = self.brokers
        if not brokers.alive[node]:
            brokers.alive[node] = True
            if brokers.coordinator == node:
                brokers.group.reload(brokers.now)
        elif all(brokers.alive.values()):
            brokers.alive[node] = False
            self.net.power_off(node)
            if brokers.coordinator == node and moves:
                brokers.move_coordinator()

    def move(self) -> None:
        if all(self.brokers.alive.values()):
            self.brokers.move_coordinator()

    # --- time -----------------------------------------------------------------------------------------------------------

    def step(self, action: Callable[[], object]) -> None:
        self.steps += 1
        self.stepped[self.now // 1000] += 1
        action()
        self.settle()

    def wait(self, ms: int) -> None:
        end = self.now + ms
        self.settle()
        while (at := self._next_ms()) is not None and at <= end and self.now < end:
            self.now = max(at, self.now + 1)
            self.settle()
        self.now = end
        self.settle()

    def settle(self) -> None:
        """All that happens at this moment, in any order."""
        for _ in range(5_000):
            if self.brokers.is_up():
                self.brokers.group.advance(self.brokers.now)
            ready = list(self._ready())
            if self.failure is not None:
                raise self.failure
            if not ready:
                return
            self.draw.choice(ready)()
        raise AssertionError("a moment that never ends: a busy loop")

    def _ready(self) -> list[Callable[[], None]]:
        ready = list(self.net.ready())
        for member in self.members:
            due = member.thread.due_ms(self.now)
            if member.is_running and due is not None and due <= self.now:
                ready.append(lambda member=member: member.thread.run(self.now))  # type: ignore[misc]
            if member.is_ready(self.now):
                ready.append(member.resume)
        return ready

    def _next_ms(self) -> int | None:
        dues = [*self.net.next_ms()]
        for member in self.members:
            if member.is_running:
                due = member.thread.due_ms(self.now)
                dues += [] if due is None else [due]
                dues += [] if member.call is None else [member.wait_until]
        if self.brokers.is_up() and (due_s := self.brokers.group.next_due()) < math.inf:
            dues.append(math.ceil(due_s * 1000))
        return min(dues, default=None)

    # --- what members report --------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """For listeners, whose errors a consumer may only log."""
        try:
            yield
        except AssertionError as error:
            self.failure = error

    def sent(self, member: Member, asked: Asked) -> None:
        second = self.now // 1000
        if asked.api is not tables.FETCH:
            self.requests[member.name, second] += 1
            limit = MANY + STEP_EXPLAINS * (self.stepped[second] + self.stepped[second - 1])
            assert self.requests[member.name, second] <= limit, f"{member} sends without end: {asked}"
        self.net.send(member, asked)

    def handed_out(self, member: Member, tp: TopicPartition) -> None:
        """A member may not know yet that it was thrown out; but what promises that it wasn't lasts for a session."""
        self.happened["handed out"] += 1
        if member.consumer._engine.membership.group_metadata().member_id in self.brokers.owners(tp):
            return
        others = [m for m in self.members if m is not member and m.told.get(tp, 0) > member.told[tp]]
        if others:
            self.happened["handed out although another has it"] += 1
            silent_ms = self.now - member.acked_ms
            limit = self.session_ms if self.is_classic else 3 * self.interval_ms
            assert silent_ms <= limit, f"{member} hands out {tp}, which {others} has; acknowledged {silent_ms} ms ago"

    def commit_failed(self, member: Member, error: Exception) -> None:
        self.happened["commit failed"] += 1
        if self.is_calm:
            assert isinstance(error, RebalanceInProgressError | CommitFailedError), error

    def was_revoked(self, member: Member, partitions: list[TopicPartition]) -> None:
        """In peace all that was processed is committed by then."""
        self.happened["revoked"] += len(partitions)
        assert not member.in_hand
        behind = [tp for tp in partitions if tp in member.next and self.brokers.stored.get(tp, 0) < member.next[tp]]
        if behind and self.is_calm:
            # A member that leaves does not wait for a leader that is slow to share out, and its commit may come too late for the
            # generation it is of.
            assert member.is_closing, f"{member} gives up {behind} without a commit"
            is_late = self.brokers.group.state == COMPLETING or self.brokers.generation != member.closing_in
            assert is_late, f"{member} leaves {behind} without a commit"
            self.may_repeat = True

    def was_lost(self, member: Member, partitions: list[TopicPartition]) -> None:
        self.happened["lost"] += len(partitions)
        assert not self.is_calm, f"{member} has lost {partitions} in peace"

    def was_fenced(self, member: Member) -> None:
        self.happened["fenced"] += 1
        assert member.instance_id is not None
        member.is_fenced = True

    def reached_nobody(self, member: Member) -> None:
        assert not self.is_calm, f"{member} reaches no broker"

    def ended(self, member: Member) -> None:
        """Its background has."""
        self.net.hang_up(member, is_heard=True)

    def has_closed(self, member: Member) -> None:
        self.happened["closed"] += 1
        assert not member.told, f"{member} was closed and not told"
        self.members.remove(member)

    # --- the end --------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Peace: everything is owned once, and read; then all leave, and everything is committed."""
        for node, is_alive in self.brokers.alive.items():
            if not is_alive:
                self.power(node, False)
        for member in self.members:
            member.is_frozen, member.dark_until = False, 0
        self._until(self._is_quiet, 2 * min(self.max_poll_ms, 60_000) + 6 * self.session_ms + 60_000)
        for member in self.members:
            member.work_off()
        wanted = {topic for member in self.members for topic in member.topics}
        for tp, log in self.brokers.logs.items():
            owners = [member for member in self.members if tp in member.told]
            assert len(owners) == (tp.topic in wanted), f"{tp} is owned by {owners}"
            assert tp.topic not in wanted or log.done_below == log.end, f"{tp} was read up to {log.done_below} of {log.end}"
            assert self.may_repeat or not log.processed or max(log.processed) <= 1, f"{tp} was handed out twice in peace"
        for member in list(self.members):
            member.begin(member.close())
            self.wait(self.draw.choice([0, 10, 2_000]))
        self._until(lambda: not self.members, 120_000)
        for tp, log in self.brokers.logs.items():
            stored = self.brokers.stored.get(tp, 0)
            assert tp.topic not in wanted or stored == log.end, f"{tp} is committed up to {stored} of {log.end}"

    def _until(self, is_done: Callable[[], bool], ms: int) -> None:
        end = self.now + ms
        while not is_done():
            assert self.now < end, "it never comes to rest"
            for member in list(self.members):
                if member.call is None:
                    self.stepped[self.now // 1000] += 1
                    member.begin(member.close() if member.is_fenced else member.poll(100, 1_000))
            self.wait(150)

    def _is_quiet(self) -> bool:
        if not self.members:
            self.add(0)
        wanted = {topic for member in self.members for topic in member.topics}
        tps = [tp for tp in self.brokers.logs if tp.topic in wanted]
        owned = [tp for member in self.members for tp in member.told]
        return (
            all(member.call is None for member in self.members)
            and self.brokers.is_settled()
            and len(self.brokers.group.members) == len(self.members)
            and sorted(owned) == sorted(tps)
            and all(self.brokers.logs[tp].done_below == self.brokers.logs[tp].end for tp in tps)
        )
