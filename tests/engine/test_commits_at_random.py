"""Commits of a member under random faults: answers lost, late or refused, rebalances, partitions that go and come back.

Whatever happens: only partitions that are assigned are sent, in the name of the member as it is; what is sent of a partition
never goes back while the member has it; every commit ends, and asynchronous ones in the order of the calls; and what counts as
committed was acknowledged, or said by the coordinator, since the partition came.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import cast

import pytest

from fastfetch.engine.commits import NOT_OURS, Commit
from fastfetch.engine.membership import Credentials, Membership
from fastfetch.errors import CommitFailedError, RebalanceInProgressError, TopicAuthorizationError
from fastfetch.types import OffsetAndMetadata, TopicPartition
from tests.engine.script import Asked, Script
from tests.engine.test_commits import sent
from tests.engine.test_commits_of_members import Member

PARTITIONS = [TopicPartition("t", p) for p in range(4)]
PASSING = (3, 7, 14, 15, 16, 113)
FINAL = (12, 22, 25, 27, 29, 110)


class World(Script):
    """A member that commits, and a coordinator that keeps what it acknowledges."""

    def __init__(self, seed: int) -> None:
        super().__init__(len(PARTITIONS), nodes=2, group_id="g", group_protocol="consumer", request_timeout_ms=2_000)
        self.random = random.Random(seed)
        self.member = Member()
        self.engine.commits.membership = self.engine.stored.membership = cast(Membership, self.member)
        self.stored_at = dict.fromkeys(PARTITIONS, 0)
        self.owned = set(PARTITIONS)
        self.clock = 0  # offsets to commit grow with it
        self.epoch = 5
        self.known: dict[TopicPartition, set[int]] = {tp: set() for tp in PARTITIONS}  # since it came
        self.latest = dict.fromkeys(PARTITIONS, 0)  # sent since it came; at first what was committed before
        self.asynchronous: list[Commit] = []
        self.waiting: list[Commit] = []
        self.checked = 0
        self.started(*range(len(PARTITIONS)))

    def check(self) -> None:
        """Requests that went out since the last look."""
        for asked in self.history[self.checked :]:
            if asked.api.name == "OffsetCommit":
                self.check_commit(asked)
        self.checked = len(self.history)
        for tp, at in self.engine.commits.committed.items():
            assert at.offset in self.known[tp], f"{tp}@{at.offset} was not acknowledged since the partition came"

    def check_commit(self, asked: Asked) -> None:
        me = self.member.me
        assert me is not None, "a commit without a name"
        assert (asked.body["generation_id_or_member_epoch"], asked.body["member_id"]) == me[:2]
        offsets = sent(asked)
        assert offsets, "nothing to commit"
        assert offsets.keys() <= self.owned
        for tp, offset in offsets.items():
            assert offset >= self.latest[tp], f"{tp} went back, or to what was committed before it came"
            self.latest[tp] = offset

    def step(self) -> None:
        """Something happens."""
        chance = self.random.random()
        if chance < 0.35:
            self.call()
        elif chance < 0.75:
            self.reply()
        elif chance < 0.83:
            self.rebalance()
        elif chance < 0.88:
            self.coordinator = 3 - self.coordinator
        else:
            self.advance(self.random.choice((10, 150, 1_000)))
        self.run()
        self.check()

    def call(self) -> None:
        self.clock += 1
        chosen = self.random.sample(PARTITIONS, self.random.randint(1, 4))
        offsets = {tp: OffsetAndMetadata(self.clock) for tp in chosen}
        kind = self.random.choice(("sync", "async", "automatic"))
        if kind == "automatic":
            offsets = {tp: at for tp, at in offsets.items() if tp in self.owned}
        commit = self.engine.commit(
            offsets, self.now + self.random.choice((500, 20_000)), is_async=kind != "sync", automatic=kind == "automatic"
        )
        if commit not in self.waiting:
            self.waiting.append(commit)
            if kind != "sync":
                self.asynchronous.append(commit)

    def reply(self) -> None:
        open_ = [asked for asked in self.asked if asked.api.name in ("OffsetCommit", "OffsetFetch")]
        if not open_:
            return
        conn = self.random.choice(open_).conn
        asked = next(asked for asked in open_ if asked.conn == conn)  # a connection is answered in order
        if self.random.random() < 0.15:
            if asked.api.name == "OffsetCommit" and self.random.random() < 0.5:  # stored, and the answer is lost
                self.stored_at |= sent(asked)
            self.lose(asked.conn)
        elif asked.api.name == "OffsetFetch":
            self.reply_fetch(asked)
        else:
            self.reply_commit(asked)

    def reply_fetch(self, asked: Asked) -> None:
        [group] = asked.body["groups"]
        numbers = [number for topic in group["topics"] for number in topic["partition_indexes"]]
        if self.random.random() < 0.3:
            self.stored(asked, {}, code=self.random.choice((14, 16, 25, 113)))
            return
        for number in numbers:
            tp = PARTITIONS[number]
            self.known[tp].add(self.stored_at[tp])
        self.stored(asked, {number: self.stored_at[PARTITIONS[number]] for number in numbers})

    def reply_commit(self, asked: Asked) -> None:
        codes: dict[int, int] = {}
        group_code = self.random.choice((0, 0, 0, 0, 0, *PASSING, *FINAL))
        for tp, offset in sent(asked).items():
            code = group_code if self.random.random() < 0.9 else 0
            if code == 0:
                self.stored_at[tp] = offset
                if tp in self.owned:
                    self.known[tp].add(offset)
            if self.random.random() < 0.95:  # else nothing is said of it
                codes[tp.partition] = code
        self.committed(asked, codes)

    def rebalance(self) -> None:
        """The member joins again, or has done so."""
        if self.member.me is not None:
            self.member.me = None
            return
        gone = set(self.random.sample(sorted(self.owned), self.random.randint(0, len(self.owned))))
        self.engine.subscription.withdraw(gone)
        self.engine.commits.give_up(gone)
        self.owned -= gone
        if self.random.random() < 0.5:
            self.run()
        come = {tp for tp in PARTITIONS if tp not in self.owned and self.random.random() < 0.7}
        for tp in come:
            self.known[tp].clear()
            self.latest[tp] = self.clock + 1
        self.engine.subscription.take_over(come)
        self.owned |= come
        self.epoch += 1
        self.member.me = Credentials(self.epoch, "me", None)

    def settle(self) -> None:
        """Nothing goes wrong any more."""
        for _ in range(200):
            self.member.me = self.member.me or Credentials(self.epoch, "me", None)
            self.run()
            for asked in [asked for asked in self.asked if asked.api.name == "OffsetCommit"]:
                self.epoch += 1  # so that a stale one goes on
                self.stored_at |= sent(asked)
                for tp, offset in sent(asked).items():
                    self.known[tp].add(offset)
                self.committed(asked, {tp.partition: 0 for tp in sent(asked)})
                break
            else:
                for asked in [asked for asked in self.asked if asked.api.name == "OffsetFetch"]:
                    for tp in PARTITIONS:
                        self.known[tp].add(self.stored_at[tp])
                    self.stored(asked, {tp.partition: self.stored_at[tp] for tp in PARTITIONS})
                    break
                else:
                    self.member.me = Credentials(self.epoch, "me", None)
                    self.advance(1_000)
            self.check()
            if not self.engine.commits.is_busy:
                return
        raise AssertionError("commits never end")


@pytest.mark.parametrize("seed", range(100))
def test_whatever_happens(seed: int) -> None:
    world = World(seed)
    for _ in range(120):
        world.step()
    world.settle()
    assert all(commit.pending.done for commit in world.waiting)
    finished = world.engine.commits.finished_async
    assert set(finished) == set(world.asynchronous)
    assert len(finished) == len(world.asynchronous)
    assert [c for c in finished if not c.is_automatic] == [c for c in world.asynchronous if not c.is_automatic]
    for commit in world.waiting:
        assert not (commit.is_automatic and NOT_OURS in commit.failed.values()), "nobody need hear of these"
        with suppress(CommitFailedError, RebalanceInProgressError, TopicAuthorizationError):
            assert commit.pending.result().keys() == commit.offsets.keys()
