"""The clients, each reading one topic to its end (or a number of records of it) in a process of its own.

    python -m bench.readers CLIENT BOOTSTRAP TOPIC RECORDS [PARTITIONS]      # prints one line of JSON

The clock starts when the client knows the topic's metadata, just before it is told what to read, and stops when the last record
has been handed over; processor time is that of the whole process between the same two moments, all of its threads, user and
system. Records are counted, nothing else is done with them.

What makes it fair to the peers: queues and fetch sizes are raised far above their defaults, and a call asks for 10,000 records
where it is told a number. confluent-kafka is read by consume(300) as well: its records then stay in the processor's cache and
take half the processor time. Its CRC check stays off, as it is by default; the others and we check. A client called "...
defaults" has no setting but where to connect and where to begin; confluent-kafka must have a group, and commits nothing in it.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["FETCH_BYTES", "READERS", "Clock", "Job", "Reading"]


@dataclass(frozen=True)
class Job:
    bootstrap: str
    topic: str
    records: int
    partitions: int = 1


@dataclass(frozen=True)
class Reading:
    """One reading: `seconds` on the wall, `cpu` of the process, and the number of records that came."""

    seconds: float
    cpu: float
    records: int


class Clock:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._cpu = _cpu_seconds()
        self._wall = time.perf_counter()

    def stop(self, records: int) -> Reading:
        """What it took to read so many records."""
        return Reading(time.perf_counter() - self._wall, _cpu_seconds() - self._cpu, records)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# --- fastfetch --------------------------------------------------------------------------------------------------------

# Larger answers than the default 1 MiB a partition, as every other client here gets.
FETCH_BYTES = 4 << 20
FASTFETCH = {"max_partition_fetch_bytes": FETCH_BYTES}


def _fastfetch(job: Job, settings: dict[str, Any], count: Callable[[Any], int]) -> Reading:
    from fastfetch import Consumer, TopicPartition

    read = 0
    with Consumer(bootstrap_servers=job.bootstrap, auto_offset_reset="earliest", **settings) as consumer:
        partitions = [TopicPartition(job.topic, partition) for partition in sorted(consumer.partitions_for(job.topic))]
        clock = Clock()
        consumer.assign(partitions)
        while read < job.records:
            read += count(consumer)
        return clock.stop(read)


def _blocks(consumer: Any) -> int:
    return sum(map(len, consumer.poll_blocks(timeout_ms=1000)))


def _records(consumer: Any) -> int:
    return sum(map(len, consumer.poll(timeout_ms=1000, max_records=10_000).values()))


def _records_by_default(consumer: Any) -> int:
    return sum(map(len, consumer.poll(timeout_ms=1000).values()))


# --- the peers --------------------------------------------------------------------------------------------------------

CONFLUENT = {
    "queued.min.messages": 2_000_000,
    "queued.max.messages.kbytes": 1 << 20,
    "fetch.message.max.bytes": 16 << 20,
    "fetch.max.bytes": 64 << 20,
    "receive.message.max.bytes": 128 << 20,
    "fetch.queue.backoff.ms": 0,
    "socket.receive.buffer.bytes": 4 << 20,
}
AIOKAFKA = {"fetch_max_bytes": 64 << 20, "max_partition_fetch_bytes": 4 << 20}
KAFKA_PYTHON = {"fetch_max_bytes": 64 << 20, "max_partition_fetch_bytes": 4 << 20, "receive_buffer_bytes": 4 << 20}


def _confluent(job: Job, settings: dict[str, Any], at_once: int) -> Reading:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({
        "bootstrap.servers": job.bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        **settings,
    })  # fmt: skip
    read = 0
    partitions = list(consumer.list_topics(job.topic, timeout=30).topics[job.topic].partitions)
    clock = Clock()
    consumer.assign([TopicPartition(job.topic, partition, OFFSET_BEGINNING) for partition in partitions])
    while read < job.records:
        read += len(consumer.consume(at_once, timeout=1))
    reading = clock.stop(read)
    consumer.close()
    return reading


def _aiokafka(job: Job, settings: dict[str, Any], at_once: int | None) -> Reading:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def run() -> Reading:
        consumer = AIOKafkaConsumer(bootstrap_servers=job.bootstrap, auto_offset_reset="earliest", **settings)
        await consumer.start()
        try:
            read = 0
            partitions = [TopicPartition(job.topic, partition) for partition in range(job.partitions)]
            await consumer.topics()  # loads the metadata of all of them
            clock = Clock()
            consumer.assign(partitions)
            while read < job.records:
                read += sum(map(len, (await consumer.getmany(timeout_ms=1000, max_records=at_once)).values()))
            return clock.stop(read)
        finally:
            await consumer.stop()

    return asyncio.run(run())


def _kafka_python(job: Job, settings: dict[str, Any], at_once: int | None) -> Reading:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=job.bootstrap, auto_offset_reset="earliest", **settings)
    read = 0
    partitions = [TopicPartition(job.topic, partition) for partition in sorted(consumer.partitions_for_topic(job.topic))]
    clock = Clock()
    consumer.assign(partitions)
    while read < job.records:
        read += sum(map(len, consumer.poll(timeout_ms=1000, max_records=at_once).values()))
    reading = clock.stop(read)
    consumer.close()
    return reading


READERS: dict[str, Callable[[Job], Reading]] = {
    "fastfetch": lambda job: _fastfetch(job, FASTFETCH, _blocks),
    "fastfetch poll": lambda job: _fastfetch(job, FASTFETCH, _records),
    "fastfetch defaults": lambda job: _fastfetch(job, {}, _blocks),
    "fastfetch poll defaults": lambda job: _fastfetch(job, {}, _records_by_default),
    "confluent-kafka": lambda job: _confluent(job, CONFLUENT, 10_000),
    "confluent-kafka 300": lambda job: _confluent(job, CONFLUENT, 300),
    "confluent-kafka defaults": lambda job: _confluent(job, {}, 10_000),
    "confluent-kafka 300 defaults": lambda job: _confluent(job, {}, 300),
    "aiokafka": lambda job: _aiokafka(job, AIOKAFKA, 10_000),
    "aiokafka defaults": lambda job: _aiokafka(job, {}, None),
    "kafka-python": lambda job: _kafka_python(job, KAFKA_PYTHON, 10_000),
    "kafka-python defaults": lambda job: _kafka_python(job, {}, None),
}


def main() -> None:
    client, bootstrap, topic, records, *rest = sys.argv[1:]
    job = Job(bootstrap, topic, int(records), *map(int, rest))
    print(json.dumps(asdict(READERS[client](job))))


if __name__ == "__main__":
    main()
