"""Reading for a while under faults and changes of mind: every record is the next one, and nothing grows.

FASTFETCH_SOAK_SECONDS says for how long (default 10); an hour before a release.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import fastfetch
from fastfetch import TopicPartition
from tests.live.conftest import Kafka, wait_for
from tests.live.history import Load, Reader

PARTITIONS = 6
SOAK_SECONDS = float(os.environ.get("FASTFETCH_SOAK_SECONDS", "10"))
KILL_EVERY_SECONDS = 60


class Resources(NamedTuple):
    resident_kb: int
    threads: int
    descriptors: int

    @classmethod
    def now(cls) -> Resources:
        status = Path("/proc/self/status").read_text()
        resident = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return cls(int(resident.split()[1]), len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory and descriptors are counted through /proc")
@pytest.mark.timeout(SOAK_SECONDS + 300)
def test_nothing_is_lost_and_nothing_grows(three: Kafka) -> None:
    three.wait_in_sync()
    topic = three.topic("soak", PARTITIONS, min_insync_replicas=2)
    partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    draw = random.Random(4)

    def pause_and_resume() -> None:
        some = draw.sample(partitions, 2)
        reader.do(lambda consumer: consumer.pause(some))
        places = [reader.next[tp.partition] for tp in some]
        time.sleep(draw.uniform(0, 0.5))
        assert [reader.next[tp.partition] for tp in some] == places
        reader.do(lambda consumer: consumer.resume(some))

    def seek_back() -> None:
        tp = draw.choice(partitions)
        reader.seek(tp, draw.randint(0, reader.next[tp.partition]))

    def assign_fewer_and_all_again() -> None:
        some = draw.sample(partitions, 3)
        reader.do(lambda consumer: consumer.assign(some))
        time.sleep(draw.uniform(0, 0.5))

        def assign_all(consumer: fastfetch.Consumer) -> None:
            consumer.assign(partitions)
            for tp in set(partitions).difference(some):
                consumer.seek(tp, reader.next[tp.partition])

        reader.do(assign_all)

    def kill_a_leader() -> None:
        victim = draw.choice(list(three.leaders(topic).values()))
        three.cluster.kill(victim)
        try:
            wait_for(lambda: victim not in three.leaders(topic).values(), f"leaders other than {victim}")
            reader.wait_for_more()
        finally:
            three.cluster.heal()
        three.wait_in_sync()

    changes: list[Callable[[], None]] = [pause_and_resume, seek_back, assign_fewer_and_all_again]
    with Reader(three, partitions, max_buffered_bytes=4 << 20) as reader:
        with Load(three, topic, PARTITIONS, per_second=1_000) as load:
            for change in [*changes, *changes]:
                reader.wait_for_more()
                change()
            before, began = Resources.now(), time.monotonic()
            next_kill = began
            while time.monotonic() < began + SOAK_SECONDS:
                draw.choice(changes)()
                reader.wait_for_more()
                if time.monotonic() >= next_kill:
                    next_kill = time.monotonic() + KILL_EVERY_SECONDS
                    kill_a_leader()
            # Connections to the broker that came back may still be under way, and what helped it to start may still be ending.
            wait_for(lambda: Resources.now().descriptors <= before.descriptors + 4, f"no more descriptors than {before}")
            wait_for(lambda: Resources.now().threads <= before.threads, f"no more threads than {before}")
            after = Resources.now()
        reader.wait_for_all(load)
    assert after.resident_kb <= before.resident_kb + 32 * 1024, (before, after)
