"""The clients, each reading one topic to its end, or a number of records of it, in a process of its own.

    python -m fastfetch.benchmark.clients CLIENT JOB      # JOB is a `Job` as JSON; prints a `Turn` as one line of JSON

The clock starts when the client knows the topic's metadata, just before it is told what to read, and stops when the last record
has been handed over; processor time is that of the whole process between the same two moments, all of its threads, user and
system. Records are counted, nothing else is done with them.

What makes it fair to the peers: queues and fetch sizes are raised far above their defaults, and a call asks for 10,000 records
where it is told a number. confluent-kafka is read by consume(300) as well: its records then stay in the processor's cache and
take half the processor time. Its CRC check stays off, as it is by default; the others and we check. A client called "...
defaults" has no setting but where to connect and where to begin; confluent-kafka must have a group, and commits nothing in it.

With `Job.follow` the client is one that waits for news: it says "ready" in a line when it does, and tells how old each record
was when it was handed over. confluent-kafka's consume(n) waits until it has n records, so it is asked for one at a time then.
"""

from __future__ import annotations

import asyncio
import json
import resource
import struct
import sys
import time
import uuid
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from fastfetch.errors import FastFetchError
from fastfetch.types import TopicPartition

__all__ = [
    "CLIENTS", "FASTFETCH", "FETCH_BYTES", "STAMP", "Client", "Clock", "Job", "Source", "Turn", "memory_bytes", "missing",
    "read", "versions",
]  # fmt: skip

T = TypeVar("T")

# How old a record is: by the broker's timestamp, in ms, or by what its value begins with, in ns, which the producer wrote.
STAMP = struct.Struct(">q")
_SETTLE_SECONDS = 1.0  # a client that follows polls so long before it says that it is ready


@dataclass(frozen=True)
class Job:
    """What to read.

    records        a turn ends when so many were handed over
    starts         (partition, offset) to begin at; None: the beginning of each
    follow         "append" or "value": tell how old records are, by the broker's timestamp or by what their value begins with
    settings       of fastfetch's consumer, by Kafka's names, beside its usual ones
    quiet_seconds  a turn in which nothing comes for so long has failed
    """

    bootstrap: str
    topic: str
    records: int
    partitions: int = 1
    starts: list[tuple[int, int]] | None = None
    follow: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    quiet_seconds: float = 30.0

    @property
    def places(self) -> list[tuple[TopicPartition, int | None]]:
        """Each partition, and where to begin; None: at its beginning."""
        if self.starts is None:
            return [(TopicPartition(self.topic, number), None) for number in range(self.partitions)]
        return [(TopicPartition(self.topic, number), offset) for number, offset in self.starts]


@dataclass(frozen=True)
class Turn:
    """One client's turn: `seconds` on the wall, `cpu` of the process, the number of records that came, and the most memory that
    the process ever had. `ages_us` is how old each record was; None where nobody asked."""

    seconds: float
    cpu: float
    records: int
    peak_rss_bytes: int | None = None
    ages_us: list[int] | None = None


class Clock:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._cpu = _cpu_seconds()
        self._wall = time.perf_counter()

    def stop(self, records: int) -> Turn:
        """What it took to read so many records."""
        wall, cpu = time.perf_counter() - self._wall, _cpu_seconds() - self._cpu
        return Turn(wall, cpu, records, _peak_rss_bytes())


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def memory_bytes(field: str) -> int:
    """VmRSS (resident now) or VmHWM (its peak) of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) << 10
    raise RuntimeError(f"no {field} in /proc/self/status")


def _peak_rss_bytes() -> int:
    # Not ru_maxrss where there is something else: after fork and exec it begins with the parent's.
    try:
        return memory_bytes("VmHWM")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << (0 if sys.platform == "darwin" else 10)


# --- what a client looks like from here -------------------------------------------------------------------------------


class Source:
    """A client that was told to read a topic. What `poll` returns is its own; `count` and `rows` know what it is."""

    def __init__(self, client: Client, job: Job) -> None:
        self.client = client
        self.job = job
        self.settings = client.settings
        self.consumer: Any = None
        self.module: Any = import_module(client.module)

    async def open(self) -> None:
        """Make the consumer, and wait until it knows the topic."""
        raise NotImplementedError

    def begin(self) -> None:
        """Tell it what to read."""
        self._assign([self.module.TopicPartition(*tp) for tp, _ in self.job.places])

    def _assign(self, partitions: list[Any]) -> None:
        self.consumer.assign(partitions)
        for partition, (_, start) in zip(partitions, self.job.places, strict=True):
            if start is not None:
                self.consumer.seek(partition, start)

    async def poll(self, left: int) -> Any:
        """What is there, waiting up to a second for the first of it; `left` records are still to be read."""
        raise NotImplementedError

    def count(self, got: Any) -> int:
        return sum(map(len, got.values()))

    def rows(self, got: Any) -> Iterable[tuple[int, bytes | None]]:
        """Timestamp and value of each record."""
        return ((record.timestamp, record.value) for records in got.values() for record in records)

    async def close(self) -> None:
        self.consumer.close()


@dataclass(frozen=True)
class Client:
    """How to run one.

    module     imported for it
    settings   of its consumer; those for connecting and beginning come to them
    call       what is called again and again, as text
    at_once    records that a call asks for; None: what is its default
    adapter    module of fastfetch.adapters that is installed before
    packages   whose versions matter
    """

    source: type[Source]
    module: str
    settings: Mapping[str, Any]
    call: str
    at_once: int | None
    adapter: str = ""
    packages: tuple[str, ...] = ()


# --- fastfetch --------------------------------------------------------------------------------------------------------

# Larger answers than the default 1 MiB a partition, as every other client here gets.
FETCH_BYTES = 4 << 20
FASTFETCH = {"max_partition_fetch_bytes": FETCH_BYTES}


class Blocks(Source):
    async def open(self) -> None:
        from fastfetch.consumer import Consumer

        config = {"bootstrap.servers": self.job.bootstrap, "auto.offset.reset": "earliest"}
        config |= {name.replace("_", "."): value for name, value in self.settings.items()}
        self.consumer = Consumer(config | self.job.settings)
        self.consumer.partitions_for(self.job.topic)

    def begin(self) -> None:
        self._assign([tp for tp, _ in self.job.places])

    async def poll(self, left: int) -> Any:
        return self.consumer.poll_blocks(timeout_ms=1000)

    def count(self, got: Any) -> int:
        return sum(map(len, got))

    def rows(self, got: Any) -> Iterable[tuple[int, bytes | None]]:
        for block in got:
            yield from zip(block.timestamps.tolist(), block.values(), strict=True)


class Records(Blocks):
    async def poll(self, left: int) -> Any:
        return self.consumer.poll(timeout_ms=1000, max_records=self.client.at_once)

    count = Source.count
    rows = Source.rows


# --- the peers, and what looks like them ------------------------------------------------------------------------------

CONFLUENT = {
    "queued.min.messages": 2_000_000,
    "queued.max.messages.kbytes": 1 << 20,
    "fetch.message.max.bytes": 16 << 20,
    "fetch.max.bytes": 64 << 20,
    "receive.message.max.bytes": 128 << 20,
    "fetch.queue.backoff.ms": 0,
    "socket.receive.buffer.bytes": 4 << 20,
    "isolation.level": "read_uncommitted",  # the default of all others
}
AIOKAFKA = {"fetch_max_bytes": 64 << 20, "max_partition_fetch_bytes": 4 << 20}
KAFKA_PYTHON = {"fetch_max_bytes": 64 << 20, "max_partition_fetch_bytes": 4 << 20, "receive_buffer_bytes": 4 << 20}


class Confluent(Source):
    async def open(self) -> None:
        self.consumer = self.module.Consumer({
            "bootstrap.servers": self.job.bootstrap,
            "group.id": f"fastfetch-bench-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            **self.settings,
        })  # fmt: skip
        found = self.consumer.list_topics(self.job.topic, timeout=30).topics[self.job.topic]
        if found.error is not None:
            raise RuntimeError(str(found.error))

    def begin(self) -> None:
        from_start = self.module.OFFSET_BEGINNING
        self.consumer.assign([
            self.module.TopicPartition(*tp, from_start if start is None else start) for tp, start in self.job.places
        ])  # fmt: skip

    async def poll(self, left: int) -> Any:
        if self.job.follow:
            message = self.consumer.poll(1)
            got = [] if message is None else [message]
        else:
            # No more than there are: it would wait for the others until its time is up.
            got = self.consumer.consume(min(self.client.at_once or 1, left), timeout=1)
        if got and got[-1].error() is not None:  # they come alone, or last
            raise RuntimeError(got[-1].error().str())
        return got

    def count(self, got: Any) -> int:
        return len(got)

    def rows(self, got: Any) -> Iterable[tuple[int, bytes | None]]:
        return ((message.timestamp()[1], message.value()) for message in got)


class Aiokafka(Source):
    async def open(self) -> None:
        where = {"bootstrap_servers": self.job.bootstrap, "auto_offset_reset": "earliest"}
        self.consumer = self.module.AIOKafkaConsumer(**where, **self.settings)
        await self.consumer.start()
        await self.consumer.topics()  # loads the metadata of all of them

    async def poll(self, left: int) -> Any:
        return await self.consumer.getmany(timeout_ms=1000, max_records=self.client.at_once)

    async def close(self) -> None:
        await self.consumer.stop()


class KafkaPython(Source):
    async def open(self) -> None:
        where = {"bootstrap_servers": self.job.bootstrap, "auto_offset_reset": "earliest"}
        self.consumer = self.module.KafkaConsumer(**where, **self.settings)
        self.consumer.partitions_for_topic(self.job.topic)

    async def poll(self, left: int) -> Any:
        return self.consumer.poll(timeout_ms=1000, max_records=self.client.at_once)


_ADAPTERS = "fastfetch.adapters"
CLIENTS: dict[str, Client] = {
    "fastfetch": Client(Blocks, "fastfetch.consumer", FASTFETCH, "poll_blocks()", None),
    "fastfetch poll": Client(Records, "fastfetch.consumer", FASTFETCH, "poll(10000)", 10_000),
    "confluent-kafka": Client(
        Confluent, "confluent_kafka", CONFLUENT, "consume(10000)", 10_000, packages=("confluent-kafka",)
    ),
    "confluent-kafka 300": Client(
        Confluent, "confluent_kafka", CONFLUENT, "consume(300)", 300, packages=("confluent-kafka",)
    ),
    "aiokafka": Client(Aiokafka, "aiokafka", AIOKAFKA, "getmany(10000)", 10_000, packages=("aiokafka",)),
    "kafka-python": Client(KafkaPython, "kafka", KAFKA_PYTHON, "poll(10000)", 10_000, packages=("kafka-python",)),
    "kafka-python + fastfetch": Client(
        KafkaPython, "kafka", KAFKA_PYTHON, "poll(10000)", 10_000, f"{_ADAPTERS}.kafka_python", ("kafka-python",)
    ),
    "aiokafka + fastfetch": Client(
        Aiokafka, "aiokafka", AIOKAFKA, "getmany(10000)", 10_000, f"{_ADAPTERS}.aiokafka", ("aiokafka",)
    ),
    "kafka_api": Client(KafkaPython, f"{_ADAPTERS}.kafka_api", KAFKA_PYTHON, "poll(10000)", 10_000),
    "aiokafka_api": Client(Aiokafka, f"{_ADAPTERS}.aiokafka_api", AIOKAFKA, "getmany(10000)", 10_000),
    "confluent_api": Client(Confluent, f"{_ADAPTERS}.confluent_api", CONFLUENT, "consume(10000)", 10_000),
    "confluent_api 300": Client(Confluent, f"{_ADAPTERS}.confluent_api", CONFLUENT, "consume(300)", 300),
}  # fmt: skip
CLIENTS |= {
    f"{name} defaults": replace(
        client,
        settings={},
        at_once=client.at_once if client.source is Confluent else None,  # its default is one
        call=client.call if client.source is Confluent else client.call.partition("(")[0] + "()",
    )
    for name, client in CLIENTS.items()
}


def missing(name: str) -> str | None:
    """One sentence on why a client can't be tried here, or None."""
    client = CLIENTS[name]
    for module in filter(None, (client.module, client.adapter)):
        if find_spec(module) is None:
            package = client.packages[0] if client.packages else "fastfetch with " + module
            return f"{name}: {package} is not installed"
    return None


def versions(name: str) -> dict[str, str]:
    """Versions of the packages that a client is made of."""
    out = {}
    for package in CLIENTS[name].packages:
        try:
            out[package] = version(package)
        except PackageNotFoundError:  # imported from somewhere else
            out[package] = "unknown"
        if package == "confluent-kafka":
            out["librdkafka"] = import_module("confluent_kafka").libversion()[0]
    return out


# --- a turn -----------------------------------------------------------------------------------------------------------


def read(name: str, job: Job) -> Turn:
    """The turn of one of CLIENTS, in this process. Raises what the client raises, and FastFetchError if nothing more comes."""
    client = CLIENTS[name]
    if client.adapter:
        import_module(client.adapter).install()
    turn = _turn(client.source(client, job))
    return asyncio.run(turn) if issubclass(client.source, Aiokafka) else _run(turn)


def _run(turn: Coroutine[Any, Any, T]) -> T:
    """Of a client that waits by blocking: without an event loop, in which it would be measured as well."""
    try:
        turn.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError("a client that blocks has awaited something")


async def _turn(source: Source) -> Turn:
    await source.open()
    try:
        return await (_follow(source) if source.job.follow else _read(source))
    finally:
        await source.close()


async def _read(source: Source) -> Turn:
    job, read, heard = source.job, 0, time.monotonic()
    clock = Clock()
    source.begin()
    while read < job.records:
        if count := source.count(await source.poll(job.records - read)):
            read += count
            heard = 0.0
        else:
            heard = _quiet(job, read, heard)
    return clock.stop(read)


async def _follow(source: Source) -> Turn:
    job, ages, heard = source.job, list[int](), 0.0
    source.begin()
    settled = time.monotonic() + _SETTLE_SECONDS
    while time.monotonic() < settled:
        await source.poll(job.records)
    print("ready", flush=True)
    clock = Clock()
    while len(ages) < job.records:
        rows = source.rows(await source.poll(job.records - len(ages)))
        now = time.time_ns()
        if job.follow == "append":
            born = [timestamp * 1_000_000 for timestamp, _ in rows]
        else:
            born = [STAMP.unpack_from(value)[0] for _, value in rows if value is not None]
        ages += [(now - each) // 1000 for each in born]
        heard = 0.0 if born else _quiet(job, len(ages), heard)
    return replace(clock.stop(len(ages)), ages_us=ages)


def _quiet(job: Job, read: int, since: float) -> float:
    """Since when nothing has come, 0.0 before this call being not at all. Raises if it is too long."""
    now = time.monotonic()
    if since and now - since > job.quiet_seconds:
        raise FastFetchError(f"nothing came for {job.quiet_seconds:g} s after {read} of {job.records} records of {job.topic}")
    return since or now


def main() -> None:
    client, job = sys.argv[1:]
    print(json.dumps(asdict(read(client, Job(**json.loads(job))))), flush=True)


if __name__ == "__main__":
    main()
