"""How long it takes from a record's append until a client hands it over, while a topic is written at a steady rate.

A producer in this process writes to a topic that is made for it and deleted afterwards; each client follows it in its turn, in a
process of its own. A record's age is told by the broker's clock where the measured topic has LogAppendTime (in ms, so half a
millisecond is missing on average), else by this machine's when the producer was called: its own way to the broker is then part of
it. The first tenth of a turn is left out, as caches and connections warm up in it.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from fastfetch.benchmark.clients import STAMP, Job
from fastfetch.benchmark.consuming import Before, reading_of
from fastfetch.benchmark.contest import ReadingError, alternate, take
from fastfetch.benchmark.external import EXTERNAL
from fastfetch.benchmark.producing import Deliveries, create_topic, delete_topic, ends
from fastfetch.benchmark.results import Case, Latency, Reading
from fastfetch.benchmark.shapes import SHAPES
from fastfetch.consumer import Consumer

__all__ = ["Pace", "follow_in_turns", "scratch_topic"]

_LEFT_OUT = 10  # one record in so many, at the beginning of a turn
_WARM_UP_SECONDS = 1.0
_PATIENCE_SECONDS = 60
_SHORTEST_SLEEP = 0.0005


@dataclass(frozen=True)
class Pace:
    """How the topic is written.

    rate           records a second
    seconds        of a turn
    value_bytes    of each; the time is in the first 8
    append_time    the topic's timestamps are the broker's
    """

    rate: float
    seconds: float
    value_bytes: int
    codec: str
    append_time: bool

    @property
    def records(self) -> int:
        """Of a turn."""
        return max(1, round(self.rate * self.seconds))


@contextlib.contextmanager
def scratch_topic(consumer: Consumer, bootstrap: str, partitions: int, *, append_time: bool) -> Iterator[str]:
    """The name of a topic that is deleted at the end. Raises FastFetchError if it can't be made, or not deleted."""
    name = f"kfetch-bench-{uuid.uuid4().hex[:12]}"
    kind = "LogAppendTime" if append_time else "CreateTime"
    create_topic(consumer, bootstrap, name, partitions, {"message.timestamp.type": kind, "retention.ms": "3600000"})
    try:
        yield name
    finally:
        delete_topic(bootstrap, name)


def follow_in_turns(
    consumer: Consumer, job: Job, case: Case, names: Sequence[str], pace: Pace, *, rounds: int, before: Before | None = None
) -> Iterator[tuple[int, str, Reading | ReadingError]]:
    """Let clients follow `job.topic`: (round, client, reading). Those of round 0 don't count. `consumer` looks up where it ends;
    `before` is called with client and round before each turn.

    Raises FastFetchError if the topic can't be written.
    """

    def go(client: str, turn: int) -> Reading:
        if client in EXTERNAL and not EXTERNAL[client].follows:
            raise ReadingError(f"{client}: it does not tell how old records are")
        told = pace if turn else replace(pace, seconds=min(pace.seconds, _WARM_UP_SECONDS))
        starts = [(tp.partition, end) for tp, end in ends(consumer, job.topic).items()]
        follow = "append" if pace.append_time else "value"
        turn_job = replace(job, records=told.records, partitions=len(starts), starts=starts, follow=follow)
        limit = told.seconds + _PATIENCE_SECONDS
        took = take(client, turn_job, seconds=limit, ready=lambda: _write(job.bootstrap, job.topic, len(starts), told))
        assert took.ages_us is not None
        return reading_of(case, client, turn, took, Latency.of(took.ages_us[len(took.ages_us) // _LEFT_OUT :]))

    yield from alternate(names, rounds, go, before=before)


def _write(bootstrap: str, topic: str, partitions: int, pace: Pace) -> None:
    """All records of a turn, at their times."""
    settings = {"compression.type": pace.codec, "linger.ms": 0}
    deliveries = Deliveries(bootstrap, topic, settings)
    values = SHAPES["text"](Random(1), max(0, pace.value_bytes - STAMP.size))
    filler = [next(values)[1] for _ in range(100)]
    try:
        deliveries.connect()
        began, sent = time.monotonic(), 0
        while sent < pace.records:
            due = min(pace.records, int((time.monotonic() - began) * pace.rate) + 1)
            for number in range(sent, due):
                deliveries.send(number % partitions, None, STAMP.pack(time.time_ns()) + filler[number % len(filler)])
            sent = due
            deliveries.told()
            time.sleep(max(_SHORTEST_SLEEP, began + sent / pace.rate - time.monotonic()))
        deliveries.flush()
    except BaseException:
        deliveries.drop()
        raise
