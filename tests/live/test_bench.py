"""`kfetch bench` against a real broker: every client that is here reads every record, whatever codec it is in, and nothing of the
user's is touched."""

from __future__ import annotations

import shutil
from pathlib import Path

import confluent_kafka
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

import fastfetch
from fastfetch.benchmark.consuming import USUAL
from fastfetch.benchmark.contest import absent
from fastfetch.benchmark.results import Run
from fastfetch.cli import main
from tests.live.conftest import CODECS, SECONDS, Kafka, do_without

RECORDS = 1_000


def bench(*arguments: object) -> str:
    """What it wrote to stdout."""
    done = CliRunner().invoke(main, ["bench", *map(str, arguments)])
    assert done.exit_code == 0, done.stderr
    return done.stdout


def ends(kafka: Kafka, topic: str) -> int:
    """How many offsets all of its partitions have."""
    with fastfetch.Consumer(bootstrap_servers=kafka.servers) as consumer:
        tps = [fastfetch.TopicPartition(topic, partition) for partition in consumer.partitions_for(topic)]
        return sum(consumer.end_offsets(tps).values())


@pytest.fixture(scope="module")
def clients() -> list[str]:
    """Those that are measured if nobody is named. Java is here with the broker; Go need not be."""
    found = [client for client in USUAL if absent(client) is None]
    left_out = set(USUAL) - set(found)
    if left_out - {"franz-go"} or (left_out and shutil.which("go")):
        do_without("; ".join(absent(client) or "" for client in sorted(left_out)))
    return found


@pytest.fixture(scope="module")
def mixed(kafka: Kafka) -> str:
    """A topic with every codec, a batch size each, and a transaction that was aborted."""
    topic = kafka.topic("bench", partitions=3)
    for number, codec in enumerate(CODECS):
        bench("produce-sample", topic, "-b", kafka.servers, "--records", RECORDS, "--codec", codec, "--append",
              "--batch-records", 10 * (number + 1), "--shape", "logs", "--headers", number % 2)  # fmt: skip
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.servers, "transactional.id": "bench"})
    producer.init_transactions(SECONDS)
    for outcome in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for number in range(10):
            producer.produce(topic, b"v", partition=number % 3)
        producer.flush(SECONDS)
        outcome(SECONDS)
    for partition in range(3):
        kafka.wait_for_markers(fastfetch.TopicPartition(topic, partition))
    return topic


def test_every_client_reads_every_record(kafka: Kafka, mixed: str, clients: list[str], tmp_path: Path) -> None:
    kept = tmp_path / "run.json"
    said = bench("consume", mixed, "-b", kafka.servers, "--rounds", 1, "--json", kept)
    assert [line.split("  ")[1].strip() for line in said.splitlines()[1:]] == clients
    run = Run.load(kept)
    [case] = run.cases
    assert (case.partitions, case.records) == (3, len(CODECS) * RECORDS + 20)
    assert set(case.codec.split("+")) == set(CODECS)
    assert {failure.client for failure in run.failed} <= {"franz-go"}
    assert {reading.client: reading.records for reading in run.all_readings} == dict.fromkeys(clients, case.records)
    assert all(reading.seconds > 0 and reading.cpu_seconds and reading.peak_rss_bytes for reading in run.all_readings)
    assert {"confluent-kafka", "kafka (java)", "java"} <= run.versions.keys()
    on_disk = sum(
        file.stat().st_size for partition in range(3) for file in kafka.cluster.partition_folder(mixed, partition).glob("*.log")
    )
    markers = 2 * 3 * 78  # two transactions in three partitions: they are no records
    assert case.wire_bytes == on_disk - markers


def test_nothing_is_committed(kafka: Kafka, mixed: str) -> None:
    """Of the groups that the clients before had to name, no offset is left."""
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    groups = [group.group_id for group in admin.list_consumer_groups().result(SECONDS).valid]
    for group in groups:
        if group.startswith("fastfetch-bench-"):
            asked = confluent_kafka.ConsumerGroupTopicPartitions(group)
            committed = admin.list_consumer_group_offsets([asked])[group].result(SECONDS).topic_partitions
            assert not [tp for tp in committed if tp.topic == mixed and tp.offset >= 0]


@pytest.mark.parametrize("append_time", [False, True])
def test_latency_is_told_of_each_that_can_tell_it(kafka: Kafka, clients: list[str], tmp_path: Path, append_time: bool) -> None:
    topic = kafka.topic("paced", partitions=2, message_timestamp_type="LogAppendTime" if append_time else "CreateTime")
    bench("produce-sample", topic, "-b", kafka.servers, "--records", 200)
    kept = tmp_path / "run.json"
    named = ["confluent-kafka"] if append_time else ["fastfetch poll", "confluent-kafka", *({"franz-go"} & set(clients))]
    chosen = [word for client in named for word in ("--client", client)]
    bench("consume", topic, "-b", kafka.servers, *chosen, "--rounds", 1, "--latency", 200, "--latency-seconds", 1, "--json", kept)
    run = Run.load(kept)
    assert run.failed == []
    for client in ("fastfetch", *named):
        [latency] = run.latencies(topic, client)
        assert -1 < latency.p50 <= latency.max < 5000, "one machine has one clock"
    topics = AdminClient({"bootstrap.servers": kafka.servers}).list_topics(timeout=SECONDS).topics
    assert not [name for name in topics if name.startswith("kfetch-bench-")], "the scratch topic is gone"
    assert ends(kafka, topic) == 200


def test_a_topic_with_records_can_be_followed_if_it_is_named(kafka: Kafka, mixed: str, tmp_path: Path) -> None:
    topic = kafka.topic("scratch", message_timestamp_type="LogAppendTime")
    kept = tmp_path / "run.json"
    bench("consume", mixed, "-b", kafka.servers, "--client", "fastfetch", "--rounds", 1, "--latency", 100, "--latency-seconds", 1,
          "--latency-topic", topic, "--json", kept)  # fmt: skip
    assert len(Run.load(kept).latencies(mixed, "fastfetch")) == 1
    assert ends(kafka, topic) == 200, "a warm-up of a second, and a round"


def test_decode_takes_the_topic_and_its_folder_alike(kafka: Kafka, mixed: str, tmp_path: Path) -> None:
    quick = ("--threads", 1, "--rounds", 1, "--seconds", 0)
    bench("decode", mixed, "-b", kafka.servers, *quick, "--json", tmp_path / "topic.json")
    folders = [kafka.cluster.partition_folder(mixed, partition) for partition in range(3)]
    bench("decode", *folders, *quick, "--json", tmp_path / "folders.json")
    topic, disk = Run.load(tmp_path / "topic.json"), Run.load(tmp_path / "folders.json")

    def counts(run: Run) -> dict[str, tuple[int, int, int]]:
        out: dict[str, tuple[int, int, int]] = {}
        for case in run.cases:
            had = out.get(case.codec, (0, 0, 0))
            out[case.codec] = had[0] + case.records, had[1] + case.wire_bytes, had[2] + case.inflated_bytes
        return out

    assert counts(topic) == counts(disk)
    assert sum(records for records, _, _ in counts(topic).values()) == len(CODECS) * RECORDS + 20
    assert {failure.client for failure in topic.failed} <= {"floor"}
