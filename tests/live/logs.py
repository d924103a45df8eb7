"""What stands in logs that several test files read: records of every shape, transactions in one another, a cleaner's leavings."""

from __future__ import annotations

import itertools
import random
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import confluent_kafka

from fastfetch import TopicPartition
from tests.live.conftest import CODECS, SECONDS, Kafka, Sent, send

__all__ = ["ROLL", "START", "Interleaved", "Newest", "compacted_topics", "interleaved_transactions", "transactional", "varied"]

START = 1_700_000_000_000
ROLL = Sent(b"roll", b"x", [], START + 2000)
Newest = dict[bytes | None, Sent]  # of each key


def varied(count: int, seed: int = 7) -> list[Sent]:
    """Records with every shape of key, value and headers, the same at each run."""
    draw = random.Random(seed)
    bodies = (None, b"", b"v", b'{"id": 12345, "name": "a name", "tags": ["a", "b"]}', bytes(range(256)), b"long " * 400)
    headers: tuple[list[tuple[str, bytes | None]], ...] = (
        [],
        [("trace", b"0123456789abcdef")],
        [("same", b"1"), ("same", b"2"), ("empty", b""), ("null", None)],  # keys repeat, and their order counts
        [("ключ", "значение".encode())],
    )
    return [
        Sent(draw.choice(bodies), draw.choice(bodies), draw.choice(headers), START + draw.randrange(10**6)) for _ in range(count)
    ]


def transactional(kafka: Kafka, codec: str, name: str) -> confluent_kafka.Producer:
    """A producer with three records a batch, ready to begin a transaction."""
    producer = kafka.producer(codec, transactional_id=name, batch_num_messages=3)
    producer.init_transactions(SECONDS)
    return producer


class Interleaved(NamedTuple):
    """A partition, all of its records, and those that were not aborted."""

    tp: TopicPartition
    everything: list[Sent]
    kept: list[Sent]


def interleaved_transactions(kafka: Kafka, codec: str) -> Interleaved:
    """Two transactional producers and a plain one in one partition."""
    topic = kafka.topic(f"transactions-{codec}")
    names = itertools.count()
    everything: list[Sent] = []
    kept: list[Sent] = []

    def records(count: int) -> list[Sent]:
        return [Sent(b"k", b"value %d" % next(names), [("h", b"x")], START) for _ in range(count)]

    first, second = (transactional(kafka, codec, f"{topic}-{name}") for name in "ab")
    # Which of the two ends first, and how, in every order: the aborted list of one fetch then names overlapping ranges.
    for first_commits, second_commits, first_ends_first in itertools.product((True, False), repeat=3):
        first.begin_transaction()
        second.begin_transaction()
        parts = []
        for producer, commits in (
            (first, first_commits),
            (second, second_commits),
            (first, first_commits),
            (second, second_commits),
        ):
            done = send(producer, topic, records(5))
            producer.flush(SECONDS)
            parts.append((done(), commits))
        outside = kafka.produce(topic, records(2), codec=codec)
        endings = [(first, first_commits), (second, second_commits)]
        for producer, commits in endings if first_ends_first else reversed(endings):
            (producer.commit_transaction if commits else producer.abort_transaction)(SECONDS)
        everything += [record for part, _ in parts for record in part] + outside
        kept += [record for part, commits in parts for record in part if commits] + outside
    kafka.wait_for_markers(TopicPartition(topic, 0))
    return Interleaved(TopicPartition(topic, 0), sorted(everything, key=lambda r: r.offset), sorted(kept, key=lambda r: r.offset))


def compacted_topics(kafka: Kafka) -> dict[str, tuple[str, Newest]]:
    """By codec, a topic that the cleaner has been at, and the newest record of each of its keys. All are waited for together."""
    with ThreadPoolExecutor(len(CODECS)) as threads:
        return dict(zip(CODECS, threads.map(partial(_compacted, kafka), CODECS), strict=True))


def _compacted(kafka: Kafka, codec: str) -> tuple[str, Newest]:
    topic = kafka.topic(
        f"compacted-{codec}",
        cleanup_policy="compact",
        segment_ms=100,
        min_cleanable_dirty_ratio=0.001,
        max_compaction_lag_ms=100,
        delete_retention_ms=60_000,  # tombstones stay: their batches then carry a delete horizon (KIP-534)
    )
    records = [Sent(b"key %d" % (i % 7), b"value %d" % i, [("h", b"x")], START + i) for i in range(300)]
    records += [Sent(b"key 3", None, [], START + 1000)]
    newest = {record.key: record for record in kafka.produce(topic, records, codec=codec, batch=10)}
    deadline = time.monotonic() + 2 * SECONDS
    while sum(record.key != ROLL.key for record in kafka.consume(topic)) != len(newest):
        assert time.monotonic() < deadline, f"the cleaner has not finished with {topic}"
        # The newest segment is never cleaned, and a segment is closed by the first append after segment.ms.
        kafka.produce(topic, [ROLL])
        time.sleep(0.2)
    return topic, newest
