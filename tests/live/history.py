"""A producer and a reader that go on while things happen to the brokers, and the comparison of what they saw.

Every value is unique and says its partition and its place there: a record lost, repeated, reordered or put elsewhere can't be
mistaken for another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import fastfetch
from fastfetch import TopicPartition
from tests.live.conftest import SECONDS, Kafka, wait_for

POLL_MS = 200
LATE_SECONDS = 3.0  # a poll that takes longer than its time and this waits for something else than the time


class Load:
    """Produces to all partitions of a topic until the block ends; `acknowledged` is then complete."""

    def __init__(self, kafka: Kafka, topic: str, partitions: int, *, per_second: int = 400) -> None:
        self.acknowledged: dict[int, list[tuple[int, bytes]]] = {p: [] for p in range(partitions)}  # (offset, value) by partition
        # A stopped broker must not stop the producer for longer than it stops the reader.
        patience = {"socket_timeout_ms": 3_000, "request_timeout_ms": 3_000, "message_timeout_ms": 120_000}
        self._producer = kafka.producer("lz4", acks="all", linger_ms=10, **patience)
        self._topic = topic
        self._pause = partitions / per_second
        self._ends = threading.Event()
        self._errors: list[Any] = []
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ends.set()
        self._thread.join(4 * SECONDS)
        assert error is not None or not self._thread.is_alive(), "the producer could not end: not everything was acknowledged"
        assert error is not None or not self._errors, self._errors

    def _run(self) -> None:
        turn = 0
        while not self._ends.is_set():
            for partition in self.acknowledged:
                value = b"%d/%d" % (partition, turn)
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
            self._producer.poll(0)
            turn += 1
            self._ends.wait(self._pause)
        self._producer.flush(3 * SECONDS)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._errors.append(error)
        else:
            self.acknowledged[message.partition()].append((message.offset(), message.value()))

    def wait_for_more(self, count: int = 20) -> None:
        """Until `count` more records of each partition have been acknowledged."""
        aims = {p: len(done) + count for p, done in self.acknowledged.items()}
        wait_for(lambda: all(len(self.acknowledged[p]) >= aim for p, aim in aims.items()), "records to be acknowledged")


class Reader:
    """Polls a consumer in a thread until the block ends. An exception out of a poll is the block's failure."""

    def __init__(self, kafka: Kafka, partitions: Sequence[TopicPartition], **config: Any) -> None:
        settings = {"bootstrap_servers": kafka.servers, "auto_offset_reset": "earliest"} | config
        self.consumer = fastfetch.Consumer(**settings)
        self.read: dict[int, list[tuple[int, bytes | None]]] = {tp.partition: [] for tp in partitions}
        self.slowest_poll = 0.0  # seconds
        self.empty_polls = 0
        self.error: BaseException | None = None
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
            self.error = error

    def _poll(self) -> None:
        began = time.monotonic()
        blocks = self.consumer.poll_blocks(timeout_ms=POLL_MS)
        self.slowest_poll = max(self.slowest_poll, time.monotonic() - began)
        self.empty_polls += not blocks
        for block in blocks:
            self.read[block.partition] += zip(block.offsets.tolist(), block.values(), strict=True)

    def check(self) -> None:
        """No exception came out of a poll, and each returned in time."""
        if self.error is not None:
            raise AssertionError(f"a poll raised {self.error!r}") from self.error
        assert self.slowest_poll < POLL_MS / 1000 + LATE_SECONDS

    def do(self, ask: Callable[[fastfetch.Consumer], Any]) -> Any:
        """Call something of the consumer between two polls, in the thread that polls; returns its result."""
        answers: list[Any] = []
        done = threading.Event()
        self._between.append((ask, answers, done))
        wait_for(lambda: done.is_set() or self.error is not None, "the reader")
        self.check()
        return answers[0]

    def wait_for_more(self, count: int = 20) -> None:
        """Until `count` more records of each partition have been read."""
        aims = {p: len(read) + count for p, read in self.read.items()}
        wait_for(lambda: self._has(aims), f"{count} more records of each partition")
        self.check()

    def wait_for_all(self, load: Load) -> None:
        """Until everything that was acknowledged has been read; then compare, record by record."""
        aims = {p: len(done) for p, done in load.acknowledged.items()}
        wait_for(lambda: self._has(aims), f"all of {aims}; so far {[len(read) for read in self.read.values()]}")
        self.check()
        for partition, acknowledged in load.acknowledged.items():
            read = self.read[partition]
            assert [value for _, value in read] == [b"%d/%d" % (partition, i) for i in range(len(acknowledged))]
            offsets = [offset for offset, _ in read]
            assert sorted(set(offsets)) == offsets
            # A batch that was sent twice because its first answer was lost may be acknowledged without an offset.
            assert all(known in (offset, -1001) for offset, (known, _) in zip(offsets, acknowledged, strict=True))

    def _has(self, aims: dict[int, int]) -> bool:
        return self.error is not None or all(len(self.read[p]) >= aim for p, aim in aims.items())
