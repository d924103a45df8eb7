"""A producer and a reader that go on while things happen to the brokers, and the comparison of what they saw.

A value says its partition and its place there, and the producer is alone and idempotent: the record at offset n of a partition is
its n-th. So each record is checked as it arrives, without a history that grows; one that is lost, repeated, reordered or from
elsewhere can't be mistaken for the next. Where the producer has written one twice, `Load.written_twice` tells.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import fastfetch
from fastfetch import TopicPartition
from tests.live.conftest import SECONDS, Kafka, wait_for

POLL_MS = 200
LATE_SECONDS = 3.0  # a poll that takes longer than its time and this waits for something else than the time


def value_of(partition: int, offset: int) -> bytes:
    return b"partition %d, record %d" % (partition, offset)


class Load:
    """Produces to all partitions of a topic until the block ends; everything has been acknowledged then."""

    def __init__(self, kafka: Kafka, topic: str, partitions: int, *, per_second: int = 400) -> None:
        self.acknowledged = dict.fromkeys(range(partitions), 0)
        self._kafka = kafka
        kafka.loads.append(self)
        # A stopped broker must not stop the producer for longer than it stops the reader.
        patience = {"socket_timeout_ms": 3_000, "request_timeout_ms": 3_000, "message_timeout_ms": 120_000}
        self._producer = kafka.producer("lz4", acks="all", linger_ms=10, **patience)
        self.topic = topic
        self._pause = partitions / per_second
        self._ends = threading.Event()
        self._error: Any = None
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ends.set()
        self._thread.join(4 * SECONDS)
        if error is None:
            assert self._error is None, self._error
            assert not self._thread.is_alive(), "the producer could not end: not everything was acknowledged"

    def _run(self) -> None:
        turn = 0
        while not self._ends.is_set():
            for partition in self.acknowledged:
                self._producer.produce(self.topic, value_of(partition, turn), partition=partition, on_delivery=self._delivered)
            self._producer.poll(0)
            turn += 1
            self._ends.wait(self._pause)
        self._producer.flush(3 * SECONDS)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._error = error
        else:
            self.acknowledged[message.partition()] += 1

    def written_twice(self) -> list[str]:
        """The records that stand in the log more than once, as an independent client reads it."""
        found = []
        for partition in self.acknowledged:
            times = Counter(sent.value for sent in self._kafka.consume(self.topic, partition=partition))
            found += [f"{value!r} {count} times" for value, count in times.items() if count > 1]
        return found


class Reader:
    """Polls a consumer in a thread until the block ends. What is wrong with a poll or with a record is the block's failure."""

    def __init__(self, kafka: Kafka, partitions: Sequence[TopicPartition], **config: Any) -> None:
        settings = {"bootstrap_servers": kafka.servers, "auto_offset_reset": "earliest"} | config
        self.consumer = fastfetch.Consumer(**settings)
        self.next = {tp.partition: 0 for tp in partitions}  # the offset that must come next
        self.records = 0
        self.empty_polls = 0
        self._slowest_poll = 0.0  # seconds
        self._error: BaseException | None = None
        self._between: list[tuple[Callable[[fastfetch.Consumer], Any], list[Any], threading.Event]] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self.consumer.assign(partitions)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ends.set()
        self._thread.join(SECONDS)
        self.consumer.close()
        if error is None:
            assert not self._thread.is_alive(), "a poll did not return"
            self.check()

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                self._poll()
                while self._between:
                    ask, answers, done = self._between.pop(0)
                    answers.append(ask(self.consumer))
                    done.set()
        except BaseException as error:
            self._error = error

    def _poll(self) -> None:
        began = time.monotonic()
        blocks = self.consumer.poll_blocks(timeout_ms=POLL_MS)
        self._slowest_poll = max(self._slowest_poll, time.monotonic() - began)
        self.empty_polls += not blocks
        for block in blocks:
            first, count = self.next[block.partition], len(block)
            expected = range(first, first + count)
            assert block.offsets.tolist() == list(expected), f"{block.partition}: not from {first} on"
            found, meant = block.values(), [value_of(block.partition, offset) for offset in expected]
            wrong = next((row for row in range(count) if found[row] != meant[row]), None)
            assert wrong is None, (
                f"{block.partition}: at offset {first + (wrong or 0)}, of {first} to {first + count}: {found[wrong or 0]!r}"
            )
            self.next[block.partition] += count
            self.records += count

    def check(self) -> None:
        """Every record was the next one, no poll raised, and each returned in time."""
        if self._error is not None:
            raise AssertionError(f"while reading: {self._error!r}") from self._error
        assert self._slowest_poll < POLL_MS / 1000 + LATE_SECONDS

    def do(self, ask: Callable[[fastfetch.Consumer], Any]) -> Any:
        """Call something of the consumer between two polls, in the thread that polls; returns its result."""
        answers: list[Any] = []
        done = threading.Event()
        self._between.append((ask, answers, done))
        self._wait_for(done.is_set, "the reader")
        return answers[0]

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Read on from there; the records from there on are expected again."""

        def seek(consumer: fastfetch.Consumer) -> None:
            consumer.seek(tp, offset)
            self.next[tp.partition] = offset

        self.do(seek)

    def wait_for_more(self, count: int = 20) -> None:
        """Until `count` more records of each partition have been read."""
        self._wait_until({partition: offset + count for partition, offset in self.next.items()})

    def wait_for_all(self, load: Load) -> None:
        """Until everything that was acknowledged has been read, and nothing else is there."""
        self._wait_until(load.acknowledged)
        assert self.next == load.acknowledged
        ends = self.do(lambda consumer: consumer.end_offsets(consumer.assignment()))
        assert {tp.partition: end for tp, end in ends.items()} == load.acknowledged

    def _wait_until(self, aims: dict[int, int]) -> None:
        self._wait_for(lambda: all(self.next[p] >= aim for p, aim in aims.items()), f"{aims}; at {self.next}")

    def _wait_for(self, condition: Callable[[], bool], what: str) -> None:
        wait_for(lambda: self._error is not None or condition(), what)
        self.check()
