"""For a while, members of all clients come, go, die and sleep at random, and brokers die; every record is accounted for.

FASTFETCH_SOAK_SECONDS says for how long (default 8), FASTFETCH_SOAK_SEED what happens.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.live.conftest import Kafka
from tests.live.groups import SESSION_MS, Group, Member
from tests.live.history import Load

PARTITIONS = 6
MOST_MEMBERS = 4
SOAK_SECONDS = float(os.environ.get("FASTFETCH_SOAK_SECONDS", "8"))
SEED = int(os.environ.get("FASTFETCH_SOAK_SEED", "7"))
KILL_EVERY_SECONDS = 30  # of brokers


class Turmoil:
    """What may happen to a group. One member stays alive and awake, so that it goes on."""

    def __init__(self, group: Group) -> None:
        self.draw = random.Random(SEED)
        self.group = group
        self.members: list[Member] = []
        self.started = 0

    def start(self) -> None:
        if len(self.members) < MOST_MEMBERS:
            # Ours first, to lead; then any.
            client = self.draw.choice(["fastfetch", "async", "confluent", "kafka-python"]) if self.members else "fastfetch"
            instance = f"instance {self.started}" if self.draw.random() < 0.3 else None
            self.members.append(self.group.start(client, instance=instance, commit_every=self.draw.choice([1, 50, 1_000])))
            self.started += 1

    def any(self) -> Member | None:
        return self.draw.choice(self.members[1:]) if len(self.members) > 1 else None

    def close(self) -> None:
        if (member := self.any()) is not None:
            member.close()
            self.members.remove(member)

    def kill(self) -> None:
        if (member := self.any()) is not None:
            member.kill()
            self.members.remove(member)

    def nap(self) -> None:
        """Not for long enough to be missed."""
        member = self.draw.choice(self.members)
        member.pause()
        time.sleep(self.draw.uniform(0.2, SESSION_MS / 3_000))
        member.resume()

    def sleep(self) -> None:
        if (member := self.any()) is not None:
            member.hold()
            member.pause()
            time.sleep(SESSION_MS / 1_000 + 2)
            member.resume()
            if self.draw.random() < 0.5:
                member.ask("commit")
            member.go()

    def rebalance(self) -> None:
        self.members[0].ask("rebalance")

    def settle(self) -> None:
        owned = lambda: sorted(tp for member in self.members for tp in member.owns)  # noqa: E731
        self.group.wait_until(lambda: owned() == sorted(self.group.partitions), f"{self.members} to own all")
        self.group.wait_for_more()


@pytest.mark.timeout(2 * SOAK_SECONDS + 300)
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_every_record_is_accounted_for(three: Kafka, tmp_path: Path, strategy: str) -> None:
    three.wait_in_sync()
    topic = three.topic("turmoil", PARTITIONS, min_insync_replicas=2)
    patience = {"request_timeout_ms": 3_000}
    with Group(three, tmp_path, {topic: PARTITIONS}, strategies=[strategy], session_ms=SESSION_MS, config=patience) as group:
        turmoil = Turmoil(group)
        happenings = [turmoil.start] * 4 + [
            turmoil.close, turmoil.kill, turmoil.nap, turmoil.sleep, turmoil.rebalance, turmoil.settle,
        ]  # fmt: skip
        with Load(three, topic, PARTITIONS, per_second=200) as load:
            turmoil.start()
            began = time.monotonic()
            next_kill = began + KILL_EVERY_SECONDS
            while time.monotonic() < began + SOAK_SECONDS / 2:
                happening = turmoil.draw.choice(happenings)
                print(f"{time.monotonic():.1f} {happening.__name__} of {turmoil.members}")  # shown if it fails
                happening()
                time.sleep(turmoil.draw.choice([0, 0.1, 1]))
                if time.monotonic() >= next_kill:
                    next_kill = time.monotonic() + KILL_EVERY_SECONDS
                    victim = turmoil.draw.choice(three.cluster.nodes).id
                    print(f"{time.monotonic():.1f} node {victim} is killed")
                    three.cluster.kill(victim)
                    time.sleep(turmoil.draw.uniform(0, 5))
                    three.cluster.launch(victim)
                    three.wait_in_sync()
            turmoil.settle()
        group.wait_for_all(load)
