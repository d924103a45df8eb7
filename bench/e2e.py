"""End to end: 2 M JSON records in lz4 from a real Kafka broker on loopback, into fastfetch and into confluent-kafka.

    python -m bench.e2e CLIENT BOOTSTRAP TOPIC      # one reading in this process, prints one line of JSON

Every reading is a process of its own and the clients take turns. The clock starts when the client knows the topic's metadata,
just before assign(), and stops when the last record has been handed over; records are counted, nothing else is done with them.

What makes it fair to the peer: `consume(10000)` is its fastest call; its queue and fetch sizes are raised far above the defaults;
its CRC check stays off, as it is by default, while ours is on. The records are produced by the peer itself, in batches of 16 KiB
before compression, the Java producer's default.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.corpus import BATCH_BYTES, json_values
from bench.measure import Figure, skipped

__all__ = ["figures"]

RECORDS = 2_000_000
PARTITIONS = 4
DISTINCT = 100_000  # JSON records made; the producer sends them over and over, batches of them differ all the same
ROUNDS = 5
GROUP, NAME = "end to end", "poll_blocks over confluent-kafka consume(10000)"


def _read_fastfetch(bootstrap: str, topic: str) -> float:
    from fastfetch import Consumer, TopicPartition

    count = 0
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, partition) for partition in sorted(consumer.partitions_for(topic) or ())]
        begun = time.perf_counter()
        consumer.assign(partitions)
        while count < RECORDS:
            for block in consumer.poll_blocks(timeout_ms=1000):
                count += len(block)
        return time.perf_counter() - begun


def _read_confluent(bootstrap: str, topic: str) -> float:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "queued.min.messages": 2_000_000,
        "queued.max.messages.kbytes": 1 << 20,
        "fetch.message.max.bytes": 16 << 20,
        "fetch.max.bytes": 64 << 20,
        "receive.message.max.bytes": 128 << 20,
        "fetch.queue.backoff.ms": 0,
        "socket.receive.buffer.bytes": 4 << 20,
    })  # fmt: skip
    count = 0
    partitions = list(consumer.list_topics(topic).topics[topic].partitions)
    begun = time.perf_counter()
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    while count < RECORDS:
        count += len(consumer.consume(10_000, timeout=1))
    seconds = time.perf_counter() - begun
    consumer.close()
    return seconds


READERS = {"fastfetch": _read_fastfetch, "confluent-kafka": _read_confluent}


def produce(bootstrap: str, topic: str) -> None:
    """Create the topic and fill it with the JSON of the decode benchmarks, an equal share to each partition."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap})  # a name keeps it alive until the answer is there
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
    producer = Producer({
        "bootstrap.servers": bootstrap,
        "compression.type": "lz4",
        "batch.size": BATCH_BYTES,
        "linger.ms": 100,
        "queue.buffering.max.messages": RECORDS,
        "queue.buffering.max.kbytes": 1 << 20,
    })  # fmt: skip
    pairs = list(json_values(DISTINCT))
    for number in range(RECORDS):
        key, value = pairs[number % DISTINCT]
        while True:
            try:
                producer.produce(topic, value, key, number * PARTITIONS // RECORDS)
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(120):
        raise RuntimeError(f"{left} of {RECORDS} records could not be produced")


def _reading(client: str, bootstrap: str, topic: str) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "bench.e2e", client, bootstrap, topic], capture_output=True, text=True, check=False, timeout=120
    )
    if done.returncode:
        raise RuntimeError(f"{client} could not read {topic}: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
    return float(json.loads(done.stdout)["seconds"])


def figures(rounds: int = ROUNDS) -> list[Figure]:
    """The ratio of the readings' times; skipped with one line where no broker can be started."""
    from tests.live.kafka_cluster import KafkaCluster, missing_tools

    if reason := missing_tools():
        return [skipped(GROUP, NAME, reason)]
    with (
        tempfile.TemporaryDirectory(prefix="fastfetch-bench-") as folder,
        KafkaCluster(Path(folder) / "cluster", jvm=("-Xms1g", "-Xmx1g")) as cluster,
    ):
        produce(cluster.bootstrap_servers, "json")
        seconds: dict[str, list[float]] = {client: [] for client in READERS}
        for turn in range(rounds + 1):
            for client in READERS if turn % 2 else reversed(READERS):
                try:
                    taken = _reading(client, cluster.bootstrap_servers, "json")
                except RuntimeError as error:  # a figure that was missed, and the others are still worth a table
                    return [Figure(GROUP, NAME, (0.0,), "x", ">=", 3.0, str(error))]
                if turn:  # the first turn fills the page cache and lets the broker's JIT settle
                    seconds[client].append(taken)
    values = tuple(b / a for a, b in zip(seconds["fastfetch"], seconds["confluent-kafka"], strict=True))
    rates = {client: RECORDS / statistics.median(taken) / 1e6 for client, taken in seconds.items()}
    detail = ", ".join(f"{client} {rate:.2f} Mrec/s" for client, rate in rates.items())
    return [Figure(GROUP, NAME, values, "x", ">=", 3.0, f"{detail}, {PARTITIONS} partitions, {os.cpu_count()} cores")]


if __name__ == "__main__":
    print(json.dumps({"seconds": READERS[sys.argv[1]](sys.argv[2], sys.argv[3])}))
