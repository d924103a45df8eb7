"""A member of the demo's group, in a process of its own, which may be killed at any moment.

    python -m fastfetch.cli.demo_member '{"topic": "...", "parent": PID, "settings": {...}}'

It tells on stdout, a JSON array a line, what happens to it, in the order in which it happens:

    ["read", partition, first, last]     records were handed out; told before anything that covers them is committed
    ["committed", {partition: offset}]   the coordinator has said so
    ["owns", [partition, ...]]           after every change

and ends in good order on SIGTERM, or when its parent is gone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from fastfetch.consumer import Consumer
from fastfetch.errors import CommitFailedError, RebalanceInProgressError
from fastfetch.errors import TimeoutError as TimedOut
from fastfetch.types import RebalanceListener, TopicPartition

_POLL_MS = 50
_COMMIT_EVERY_S = 0.5


def tell(what: str, *details: object) -> None:
    """One line by one write: the kernel has all of it, or nothing."""
    os.write(sys.stdout.fileno(), json.dumps([what, *details]).encode() + b"\n")


class Member(RebalanceListener):
    """Reads, tells what it read, and commits it."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._read: dict[TopicPartition, int] = {}  # next offsets of what was told and is not committed

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._tell_owned()

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.commit()
        self._gone(partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._gone(partitions)

    def _gone(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            self._read.pop(tp, None)
        self._tell_owned(without=partitions)

    def _tell_owned(self, without: Collection[TopicPartition] = ()) -> None:
        tell("owns", sorted(tp.partition for tp in self._consumer.assignment() if tp not in without))

    def read(self) -> None:
        for block in self._consumer.poll_blocks(timeout_ms=_POLL_MS):
            for first, last in runs(block.offsets):
                tell("read", block.partition, first, last)
                self._read[TopicPartition(block.topic, block.partition)] = last + 1

    def commit(self) -> None:
        if not self._read:
            return
        try:
            self._consumer.commit(self._read)
        except (CommitFailedError, RebalanceInProgressError, TimedOut):
            return  # once more next time; or, if the partitions go, whoever has them next reads this again
        tell("committed", {tp.partition: offset for tp, offset in self._read.items()})
        self._read.clear()


def runs(offsets: Any) -> Iterator[tuple[int, int]]:
    """First and last of each run without holes."""
    holes = np.flatnonzero(np.diff(offsets) != 1) + 1
    for run in np.split(offsets, holes):
        yield int(run[0]), int(run[-1])


def main(arguments: Sequence[str]) -> None:
    told = json.loads(arguments[0])
    is_over = False

    def end(number: int, frame: object) -> None:
        nonlocal is_over
        is_over = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent decides
    with Consumer(told["settings"]) as consumer:
        member = Member(consumer)
        consumer.subscribe(told["topic"], listener=member)
        committed_at = time.monotonic()
        while not is_over and os.getppid() == told["parent"]:
            member.read()
            if time.monotonic() - committed_at >= _COMMIT_EVERY_S:
                member.commit()
                committed_at = time.monotonic()
        member.commit()


if __name__ == "__main__":
    main(sys.argv[1:])
