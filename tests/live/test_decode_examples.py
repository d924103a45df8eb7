"""The proxy and the tiered-storage reader before a real broker and its files: real clients, all codecs, transactions."""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import aiokafka
import kafka
import pytest

import fastfetch
from fastfetch import TopicPartition
from tests.live.conftest import CODECS, SECONDS, Kafka, Sent, read_to_end, send, sent, wait_for
from tests.live.kafka_cluster import HOST, KafkaCluster

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
RECORDS = 2000  # of each codec


class Behind:
    """A broker that advertises a proxy's address, and the proxy."""

    def __init__(self, folder: Path, decode_proxy: ModuleType) -> None:
        self.said: list[str] = []
        self.watch = decode_proxy.Watch(self.said.append)
        behind = self

        class Proxy(decode_proxy.Proxy):  # type: ignore[misc,name-defined]
            @property
            def broker(self) -> tuple[str, int]:
                """It has a port once the cluster has been laid out, and is ready once it is reached by the advertised one."""
                return HOST, behind.cluster.nodes[0].port

            @broker.setter
            def broker(self, address: object) -> None:
                pass

        self.proxy = Proxy((HOST, 0), (HOST, 0), self.watch, self.said.append)
        self.servers = f"{HOST}:{self.proxy.address[1]}"
        self.cluster = KafkaCluster(folder, settings={"advertised.listeners": f"PLAINTEXT://{self.servers}"})

    def __enter__(self) -> Behind:
        self.proxy.start()
        try:
            self.cluster.__enter__()
        except BaseException:
            self.proxy.close()
            raise
        self.kafka = Kafka(self.cluster)
        return self

    def __exit__(self, *error: object) -> None:
        self.proxy.close()
        self.watch.close()
        self.cluster.__exit__()


@pytest.fixture(scope="module")
def behind(cluster_or_skip: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    sys.path.insert(0, str(EXAMPLES))
    try:
        with Behind(tmp_path_factory.mktemp("behind") / "cluster", importlib.import_module("decode_proxy")) as running:
            yield running
    finally:
        sys.path.remove(str(EXAMPLES))


def read_confluent(behind: Behind, topic: str, count: int) -> int:
    return len(behind.kafka.consume(topic))


def read_fastfetch(behind: Behind, topic: str, count: int) -> int:
    tp = TopicPartition(topic, 0)
    with fastfetch.Consumer(bootstrap_servers=behind.servers, auto_offset_reset="earliest", fetch_max_bytes=50_000) as consumer:
        consumer.assign([tp])
        return sum(map(len, read_to_end(consumer, tp)))


def read_kafka_python(behind: Behind, topic: str, count: int) -> int:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=behind.servers, auto_offset_reset="earliest", consumer_timeout_ms=1000 * SECONDS
    )
    consumer.assign([kafka.TopicPartition(topic, 0)])
    try:
        return sum(1 for _ in zip(consumer, range(count), strict=False))
    finally:
        consumer.close()


async def _aiokafka(servers: str, topic: str, count: int) -> int:
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        found = 0
        while found < count:
            found += sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
        return found
    finally:
        await consumer.stop()


def read_aiokafka(behind: Behind, topic: str, count: int) -> int:
    return asyncio.run(_aiokafka(behind.servers, topic, count))


@pytest.mark.parametrize("read", [read_confluent, read_fastfetch, read_kafka_python, read_aiokafka])
def test_clients_through_the_proxy(behind: Behind, read: Callable[[Behind, str, int], int]) -> None:
    """What it counts is what is there, whichever client reads; and what is there is what was sent through it."""
    topic = behind.kafka.topic(f"watched-{read.__name__}")
    for codec in CODECS:
        behind.kafka.produce(topic, [Sent(b"%d" % i, b"value %d" % i, [("h", b"x")]) for i in range(RECORDS)], codec=codec)
    assert read(behind, topic, RECORDS * len(CODECS)) == RECORDS * len(CODECS)
    counted = behind.watch.by_partition
    wait_for(lambda: counted[f"{topic}-0"] >= RECORDS * len(CODECS), "the decoder, which is behind by moments")
    # kafka-python reads on beyond what is taken from it; others may ask for a batch twice.
    assert counted[f"{topic}-0"] <= RECORDS * len(CODECS) * 1.5
    assert not [said for said in behind.said if "SUSPICIOUS" in said or "unseen" in said]
    on_disk = sum(map(len, fastfetch.read_log(behind.cluster.partition_folder(topic, 0))))
    assert on_disk == RECORDS * len(CODECS)


def test_aborted_records_are_left_out(behind: Behind) -> None:
    topic = behind.kafka.topic("watched-transactions")
    producer = behind.kafka.producer("lz4", transactional_id=topic)
    producer.init_transactions(SECONDS)
    for turn in range(6):
        producer.begin_transaction()
        send(producer, topic, [Sent(b"k", b"turn %d, %d" % (turn, i), []) for i in range(10)])
        producer.flush(SECONDS)
        (producer.abort_transaction if turn % 3 == 1 else producer.commit_transaction)(SECONDS)
    behind.kafka.wait_for_markers(TopicPartition(topic, 0))
    assert len(behind.kafka.consume(topic, isolation="read_committed")) == 40
    wait_for(lambda: behind.watch.by_partition[f"{topic}-0"] >= 40, "the decoder")
    assert behind.watch.by_partition[f"{topic}-0"] == 40
    assert not [said for said in behind.said if "SUSPICIOUS" in said]


def test_the_tiered_reader_over_a_brokers_files(kafka: Kafka) -> None:
    """With the broker's own indexes; what was aborted is in this segment's .txnindex and in later ones'."""
    topic = kafka.topic("tiered", segment_bytes=1 << 20, index_interval_bytes=4096)
    producer = kafka.producer("none", transactional_id=topic, batch_num_messages=20)
    producer.init_transactions(SECONDS)
    for turn in range(12):
        producer.begin_transaction()
        send(producer, topic, [Sent(b"%d" % i, b"turn %d, %d" % (turn, i) + b"." * 1000, []) for i in range(200)])
        producer.flush(SECONDS)
        (producer.abort_transaction if turn % 3 == 1 else producer.commit_transaction)(SECONDS)
    kafka.wait_for_markers(TopicPartition(topic, 0))
    folder = kafka.cluster.partition_folder(topic, 0)
    logs = sorted(folder.glob("*.log"))
    assert len(logs) > 2
    words = [
        sys.executable,
        EXAMPLES / "decode_tiered.py",
        logs[1],
        "--index",
        logs[1].with_suffix(".index"),
        "--chunk-bytes",
        "50000",
    ]
    indexes = [word for log in logs[1:] for word in ("--txnindex", log.with_suffix(".txnindex"))]
    for isolation, more in (("read_uncommitted", []), ("read_committed", ["--committed", *indexes])):
        everything = sent(fastfetch.read_log(folder, isolation=isolation))
        start, end = int(logs[1].stem), int(logs[2].stem)
        for first in (start, start + 401, end - 1):
            command = [*words, "--from", first, *more]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
            found = [(record["offset"], record["value"]) for record in map(json.loads, done.stdout.splitlines())]
            assert found == [(r.offset, (r.value or b"").decode()) for r in everything if first <= r.offset < end]
