"""What a group costs: from subscribing to the first record, and two members that share a topic beside two consumers that were
told their partitions.

    python -m bench.groups join CLIENT BOOTSTRAP TOPIC GROUP      # one reading as a line of JSON
    python -m bench.groups share BOOTSTRAP TOPIC INDEX GROUP      # one of two processes; GROUP "": assign

*Join*: the clock runs from before the consumer is made until its first record has been handed over, in a process of its own that
has imported the client; the group is new, the broker warm. Both clients have their defaults, but for where to begin.

*Share*: two processes. Each waits until it has its half of the partitions, goes to their beginning, says so, and starts its clock
when it is told to; the time is that of the slower one. Members commit as they do by default.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace

from bench.e2e import Contest
from bench.measure import Figure
from bench.topics import Stock
from fastfetch.benchmark.clients import FASTFETCH, Clock, Turn
from fastfetch.benchmark.contest import ReadingError

__all__ = ["TOPIC", "figures"]

TOPIC = "lz4-8"
ROUNDS = 15
SHARE_ROUNDS = 5
SECONDS = 60
CLIENTS = ("fastfetch", "confluent-kafka")


# --- in a process of its own ----------------------------------------------------------------------------------------------


def _join_fastfetch(bootstrap: str, topic: str, group: str) -> Turn:
    from fastfetch import Consumer

    clock = Clock()
    with Consumer(bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        while not consumer.poll(timeout_ms=1000, max_records=1):
            pass
        return clock.stop(1)


def _join_confluent(bootstrap: str, topic: str, group: str) -> Turn:
    from confluent_kafka import Consumer

    clock = Clock()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while (message := consumer.poll(1)) is None or message.error() is not None:
        pass
    reading = clock.stop(1)
    consumer.close()
    return reading


JOIN = dict(zip(CLIENTS, (_join_fastfetch, _join_confluent), strict=True))


def _share(bootstrap: str, topic: str, index: int, group: str) -> None:
    """Every second partition of the topic: by a group of that name, or (without one) as told."""
    from fastfetch import Consumer, TopicPartition

    read = 0
    settings = {**FASTFETCH, "group_id": group or None}
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", **settings) as consumer:
        partitions = consumer.partitions_for(topic)
        if group:
            consumer.subscribe([topic])
            while len(consumer.assignment()) != len(partitions) // 2:
                consumer.poll_blocks(timeout_ms=100, max_records=1)
        else:
            consumer.assign([TopicPartition(topic, number) for number in sorted(partitions)[index::2]])
        records = sum(consumer.end_offsets(consumer.assignment()).values())
        consumer.seek_to_beginning()
        print("ready", flush=True)
        sys.stdin.readline()
        clock = Clock()
        while read < records:
            read += sum(map(len, consumer.poll_blocks(timeout_ms=1000)))
        print(json.dumps(asdict(clock.stop(read))), flush=True)
        sys.stdin.readline()  # the other one may still read: whoever leaves gives it more


# --- readings -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """This module with arguments; ended after SECONDS, whatever it does."""
    command = [sys.executable, "-m", "bench.groups", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        limit = threading.Timer(SECONDS, process.kill)
        limit.start()
        try:
            yield process
        finally:
            limit.cancel()
            process.kill()


def _line(process: subprocess.Popen[str]) -> str:
    """The next one that it prints. Raises ReadingError."""
    assert process.stdout is not None
    if line := process.stdout.readline():
        return line
    assert process.stderr is not None
    said = process.stderr.read().strip().splitlines() or ["no output"]
    raise ReadingError(f"the process ended with {process.wait()}: {said[-1]}")


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    print(file=process.stdin, flush=True)


def join(stock: Stock, client: str) -> Turn:
    """One new group of one member, until its first record. Raises ReadingError."""
    with _process("join", client, stock.bootstrap, TOPIC, f"join-{uuid.uuid4()}") as process:
        reading = Turn(**json.loads(_line(process)))
        process.wait()  # it leaves the group meanwhile, which must not count for the next one
        return reading


def share(stock: Stock, manner: str) -> Turn:
    """The whole topic by two processes at once. Raises ReadingError."""
    group = f"share-{uuid.uuid4()}" if manner == "subscribe" else ""
    with contextlib.ExitStack() as running:
        both = [running.enter_context(_process("share", stock.bootstrap, TOPIC, str(i), group)) for i in range(2)]
        for process in both:
            _line(process)
        for process in both:
            _go(process)
        readings = [Turn(**json.loads(_line(process))) for process in both]
    return Turn(
        max(each.seconds for each in readings), sum(each.cpu for each in readings), sum(each.records for each in readings)
    )


def figures(stock: Stock, scale: Callable[[int], int]) -> list[Figure]:
    """Join to first record, and the throughput of two."""
    joins = Contest.of(CLIENTS, scale(ROUNDS), lambda client, _: join(stock, client))
    first = joins.at_most(1.2, "groups", "join to first record: of confluent-kafka", "confluent-kafka")
    if not joins.failed:
        medians = {name: statistics.median(reading.seconds for reading in readings) for name, readings in joins.readings.items()}
        first = replace(first, detail=", ".join(f"{name} {median * 1000:.0f} ms" for name, median in medians.items()))
    shares = Contest.of(("subscribe", "assign"), scale(SHARE_ROUNDS), lambda manner, _: share(stock, manner))
    return [first, shares.at_least(0.9, "groups", "a group of two: throughput over assign", "assign")]


def main() -> None:
    what, *arguments = sys.argv[1:]
    if what == "join":
        client, bootstrap, topic, group = arguments
        print(json.dumps(asdict(JOIN[client](bootstrap, topic, group))))
    else:
        bootstrap, topic, index, group = arguments
        _share(bootstrap, topic, int(index), group)


if __name__ == "__main__":
    main()
