"""A member of a group that writes down what happens to it, to be killed at any moment: see account.py for the log, kills.py for
who starts it.

    python -m bench.member '{"log": "FILE", "topic": "t", "commits": "automatic", "settings": {...}}'

It ends in good order on SIGTERM. Commits are "automatic", or "explicit": started after every poll, and waited for before
partitions are given up.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Collection, Sequence

import fastfetch
from fastfetch import OffsetAndMetadata, TopicPartition, errors

__all__ = ["Log"]

POLL_MS = 100


class Log:
    """Lines of [ns, what, details]. A line is written by one call before anything else is done: what comes later in time, in any
    process, comes later in the logs."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, what: str, details: Sequence[object]) -> None:
        os.write(self._file, json.dumps([time.monotonic_ns(), what, details]).encode() + b"\n")


class Member(fastfetch.RebalanceListener):
    """The listener, and the loop."""

    def __init__(self, consumer: fastfetch.Consumer, log: Log, *, is_explicit: bool) -> None:
        self._consumer = consumer
        self._log = log
        self._is_explicit = is_explicit

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._log.note("assigned", numbers(partitions))

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        if self._is_explicit:
            try:
                self._consumer.commit()
            except (errors.CommitFailedError, errors.RebalanceInProgressError, errors.TimeoutError) as error:
                print(f"the commit before {numbers(partitions)} went: {error}", file=sys.stderr)
        self._log.note("revoked", numbers(partitions))

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._log.note("lost", numbers(partitions))

    def poll(self) -> None:
        blocks = self._consumer.poll_blocks(timeout_ms=POLL_MS)
        runs = [run for block in blocks for run in runs_of(block)]
        if not runs:
            return
        self._log.note("got", runs)
        if self._is_explicit:
            self._consumer.commit_async(callback=self._committed)

    def _committed(self, offsets: dict[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
        if error is None:
            self._log.note("committed", [[tp.partition, at.offset] for tp, at in offsets.items()])


def numbers(partitions: Collection[TopicPartition]) -> Sequence[object]:
    """Of partitions of the one topic."""
    return sorted(tp.partition for tp in partitions)


def runs_of(block: fastfetch.RecordBlock) -> Sequence[object]:
    """[partition, first, last] of the numbers in the values; more than one run only if they are not consecutive."""
    found = [int(value) for value in block.values() if value is not None]
    breaks = [0, *(i for i in range(1, len(found)) if found[i] != found[i - 1] + 1), len(found)]
    return [[block.partition, found[first], found[stop - 1]] for first, stop in itertools.pairwise(breaks)]


def main() -> None:
    job = json.loads(sys.argv[1])
    log = Log(job["log"])
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    with fastfetch.Consumer(job["settings"]) as consumer:
        member = Member(consumer, log, is_explicit=job["commits"] == "explicit")
        consumer.subscribe([job["topic"]], listener=member)
        while not ended:
            member.poll()
    log.note("closed", [])


if __name__ == "__main__":
    main()
