"""`kfetch offsets`, `lag`, `serve` and a real broker: what it answers, and what its data folder does after it has stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from fastfetch.testing.batches import entries
from tests.live.conftest import CODECS, SECONDS, Kafka, Sent, send
from tests.live.kafka_cluster import DEFAULT_VERSION, KafkaCluster, jars
from tests.testing.wire import Wire, only

COMMAND = [sys.executable, "-m", "fastfetch"]
ISOLATIONS = ("read_uncommitted", "read_committed")
TIME = 1_700_000_000_000


def kfetch(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=2 * SECONDS, check=False)


def lines(*arguments: object) -> list[dict[str, Any]]:
    done = kfetch(*arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


# ------------------------------------------------------------------------------------------------------- of a running broker


def test_offsets(kafka: Kafka) -> None:
    topic = kafka.topic("offsets", partitions=2)
    kafka.produce(topic, [Sent(b"k", b"v", [], TIME + i) for i in range(10)], partition=1)
    found = lines("offsets", "-b", kafka.servers, topic, "--at", TIME + 4, "-g", "nobody", "--isolation", "read_committed")
    assert found == [
        {"topic": topic, "partition": 0, "start": 0, "end": 0, "stable": 0, "offsets": 0, "committed": None}
        | {"at": None, "at_timestamp": None},
        {"topic": topic, "partition": 1, "start": 0, "end": 10, "stable": 10, "offsets": 10, "committed": None}
        | {"at": 4, "at_timestamp": TIME + 4},
    ]
    assert topic in {row["topic"] for row in lines("offsets", "-b", kafka.servers)}


def test_lag(kafka: Kafka) -> None:
    """Commits of another client's; without naming the topic."""
    topic = kafka.topic("lag", partitions=3)
    for partition in (0, 1):
        kafka.produce(topic, [Sent(b"k", b"v", [])] * 10, partition=partition)
    group = f"group-{topic}"
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.servers, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 4)], asynchronous=False)
    consumer.close()
    found = lines("lag", "-b", kafka.servers, "-g", group)
    assert [(row.get("partition"), row.get("committed"), row["lag"]) for row in found] == [
        (0, 4, 6),
        (1, None, None),
        (2, None, None),
        (None, None, 6),
    ]
    done = kfetch("lag", "-b", kafka.servers, "-g", group, "--max-lag", 5)
    assert (done.returncode, done.stderr) == (
        1,
        f"kfetch: {topic}-0 lags by 6, more than 5; {topic}-1 has records and no commit\n",
    )
    done = kfetch("lag", "-b", kafka.servers, "-g", group + "-unknown")
    assert (done.returncode, done.stdout) == (1, "")
    assert "has committed nothing" in done.stderr


def test_a_commit_in_an_open_transaction(kafka: Kafka) -> None:
    topic = kafka.topic("unstable")
    kafka.produce(topic, [Sent(b"k", b"v", [])] * 10)
    group = f"group-{topic}"
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.servers, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 4)], asynchronous=False)
    producer = kafka.producer(transactional_id=topic)
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    offsets = [confluent_kafka.TopicPartition(topic, 0, 7)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), SECONDS)
    ask = ("lag", "-b", kafka.servers, "-g", group)
    assert lines(*ask)[0]["committed"] == 4
    done = kfetch(*ask, "--isolation", "read_committed", "-X", "default.api.timeout.ms=1500")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{topic}-0: a transaction that commits its offset has not ended" in done.stderr
    producer.commit_transaction(SECONDS)
    assert lines(*ask, "--isolation", "read_committed")[0]["committed"] == 7
    consumer.close()


# ------------------------------------------------------------------------------------- a stopped broker's data folder, served


class Told:
    """What a broker says about its partitions, for any client: bounds, records under both isolation levels, bytes."""

    def __init__(self, servers: str, partitions: list[tuple[str, int]]) -> None:
        self.servers = servers
        self.offsets = {
            (row["topic"], row["partition"]): row
            for row in lines(
                "offsets", "-b", servers, *{topic for topic, _ in partitions}, "--at", TIME + 555, "--isolation", "read_committed"
            )
        }
        reader = Kafka.__new__(Kafka)  # to read alone: no admin client
        reader.servers = servers
        self.records = {
            (topic, partition, isolation): reader.consume(topic, partition=partition, isolation=isolation)
            for topic, partition in partitions
            for isolation in ISOLATIONS
        }
        host, _, port = servers.partition(":")
        with Wire((host, int(port))) as wire:
            self.bytes = {key: everything(wire, key, start=self.offsets[key[:2]]["start"]) for key in self.records}


def everything(wire: Wire, key: tuple[str, int, str], start: int) -> tuple[bytes, set[tuple[int, int]]]:
    """All that fetches give up to the end, and the aborted transactions that come with it."""
    topic, partition, isolation = key
    data, aborted, offset = bytearray(), set[tuple[int, int]](), start
    while True:
        # A broker's answer ends where a segment does.
        asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 50 << 20}
        found = only(wire.fetch_all([(topic, [asked])], version=11, isolation_level=ISOLATIONS.index(isolation)))
        assert found["error_code"] == 0
        if not found["records"]:
            return bytes(data), aborted
        *_, last = entries(found["records"])
        data += found["records"][: last.end]
        aborted |= {(a["producer_id"], a["first_offset"]) for a in found["aborted_transactions"] or []}
        offset = last.last_offset + 1


@pytest.fixture(scope="module")
def told(cluster_or_skip: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Told, Told, Path]]:
    """What a real broker says, what `kfetch serve` says of its folder once it has stopped, and the folder."""
    with KafkaCluster(tmp_path_factory.mktemp("stopped") / "cluster") as cluster:
        kafka = Kafka(cluster)
        partitions = fill(kafka)
        broker = Told(kafka.servers, partitions)
        cluster.terminate(1)
        folder = cluster.node(1).data
        command = [*COMMAND, "serve", str(folder), "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                said = json.loads(process.stdout.readline())
                assert not [remark for remark in said["remarks"] if "served empty" not in remark]
                yield broker, Told(said["bootstrap_servers"], partitions), folder
                process.send_signal(signal.SIGINT)
                _, err = process.communicate(timeout=SECONDS)
                assert (process.returncode, err) == (130, "")
            finally:
                process.kill()


def fill(kafka: Kafka) -> list[tuple[str, int]]:
    """Topics of all kinds: every codec over several segments, transactions of which one stays open, compacted."""
    plain = kafka.topic("plain", partitions=2, segment_bytes=1 << 20, index_interval_bytes=4096)
    for turn, codec in enumerate(CODECS):
        records = [Sent(b"k%d" % i, bytes([turn]) * 900, [("h", b"%d" % i)], TIME + 100 * turn + i) for i in range(1000)]
        kafka.produce(plain, records, codec=codec, batch=40)
    transactions = kafka.topic("transactions", segment_bytes=1 << 20)
    for turn in range(12):
        producer = kafka.producer(transactional_id=f"{transactions}-{turn % 3}", batch_num_messages=5)
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        send(producer, transactions, [Sent(b"k", b"turn %d, %d" % (turn, i) + bytes(8000), [], TIME + i) for i in range(30)])
        producer.flush(SECONDS)
        (producer.abort_transaction if turn % 4 == 1 else producer.commit_transaction)(SECONDS)
        kafka.produce(transactions, [Sent(b"k", b"outside", [], TIME + turn)])
    still_open = kafka.producer(transactional_id=f"{transactions}-open", transaction_timeout_ms=600_000)
    still_open.init_transactions(SECONDS)
    still_open.begin_transaction()
    send(still_open, transactions, [Sent(b"k", b"open", [], TIME)] * 3)
    still_open.flush(SECONDS)
    kafka.produce(transactions, [Sent(b"k", b"behind", [], TIME)] * 3)
    compacted = kafka.topic(
        "compacted", cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.001, max_compaction_lag_ms=100
    )
    kafka.produce(compacted, [Sent(b"%d" % (i % 7), b"v%d" % i, [], TIME + i) for i in range(300)], codec="zstd", batch=10)
    deadline = time.monotonic() + 2 * SECONDS
    # The newest segment is never cleaned, and a segment is closed by the first append after segment.ms.
    while sum(record.key != b"roll" for record in kafka.consume(compacted)) > 7:
        assert time.monotonic() < deadline, "the cleaner has not come"
        kafka.produce(compacted, [Sent(b"roll", b"x", [], TIME + 1000)])
        time.sleep(0.2)
    # The cleaner may go on meanwhile; after two of its rounds nothing is left to do.
    time.sleep(2)
    return [(plain, 0), (plain, 1), (transactions, 0), (compacted, 0)]


def test_the_folder_says_what_the_broker_said(told: tuple[Told, Told, Path]) -> None:
    broker, served, _ = told
    assert served.offsets == broker.offsets
    assert [row["stable"] < row["end"] for row in broker.offsets.values()].count(True) == 1, "the open transaction"
    assert {row["at"] is None for row in broker.offsets.values()} == {True, False}


def test_every_record_under_both_isolation_levels(told: tuple[Told, Told, Path]) -> None:
    broker, served, _ = told
    assert served.records == broker.records
    counts = sorted(len(records) for records in broker.records.values())
    assert counts[:2] == [0, 0]
    assert counts[-1] == 5000
    lost = [len(broker.records[key[0], key[1], "read_uncommitted"]) - len(broker.records[key]) for key in broker.records]
    assert max(lost) == 3 * 30 + 6, "three aborted transactions, and what the open one holds back"


def test_byte_for_byte(told: tuple[Told, Told, Path]) -> None:
    broker, served, folder = told
    for key, (data, aborted) in broker.bytes.items():
        assert served.bytes[key] == (data, aborted), key
        topic, partition, isolation = key
        if isolation == "read_uncommitted":
            files = sorted((folder / f"{topic}-{partition}").glob("*.log"))
            assert b"".join(path.read_bytes() for path in files).rstrip(b"\0") == data.rstrip(b"\0"), key
    assert max(len(aborted) for _, aborted in broker.bytes.values()) == 3


def test_the_java_client_reads_it(told: tuple[Told, Told, Path]) -> None:
    broker, served, _ = told
    keys = list(broker.records)
    program = Path(__file__).with_name("Read.java")
    command = [
        "java",
        "-Xmx256m",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        f"{jars(DEFAULT_VERSION)}/*",
        str(program),
    ]
    command += [served.servers, *(str(part) for key in keys for part in key)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * SECONDS, check=False)
    if "jdk.compiler" in done.stderr:
        pytest.skip("this Java has no compiler")
    assert done.returncode == 0, done.stderr
    for key, line in zip(keys, done.stdout.splitlines(), strict=True):
        crc = 0
        for record in broker.records[key]:
            crc = zlib.crc32(record.offset.to_bytes(8, "big") + (record.key or b"") + (record.value or b""), crc)
        bounds = broker.offsets[key[:2]]
        end = bounds["stable" if key[2] == "read_committed" else "end"]
        assert line.split() == [str(len(broker.records[key])), str(crc), str(end)], key
