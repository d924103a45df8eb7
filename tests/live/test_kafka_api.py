"""Scripts written for kafka-python, with its import and with ours, against a real broker: they see the same.

A script is a text that runs in a process of its own. The first line is the import, and nothing else differs; what it saw is what
it prints as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fastfetch import Consumer, TopicPartition
from tests.live.conftest import CODECS, Kafka, Sent, wait_for
from tests.live.logs import Interleaved, varied

kafka_python = pytest.importorskip("kafka")
if tuple(map(int, kafka_python.__version__.split(".")[:3])) < (3, 0, 12):
    pytest.skip("compared with kafka-python 3.0.12 and later", allow_module_level=True)

NAMES = "KafkaConsumer, TopicPartition, OffsetAndMetadata, ConsumerRebalanceListener"
IMPORTS = {"kafka-python": f"from kafka import {NAMES}", "fastfetch": f"from fastfetch.adapters.kafka_api import {NAMES}"}
BEGIN = """
import json, sys, time
SERVERS, ARGUMENTS = sys.argv[1], sys.argv[2:]
"""
SECONDS = 120  # a script's; a loaded machine starts processes slowly


def run(client: str, script: str, kafka: Kafka, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS[client] + BEGIN + script, kafka.servers, *arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"with {client}:\n{done.stderr}", pytrace=False)
    return json.loads(done.stdout)


def both(script: str, kafka: Kafka, *arguments: str) -> Any:
    seen = {client: run(client, script, kafka, *arguments) for client in IMPORTS}
    assert seen["fastfetch"] == seen["kafka-python"]
    return seen["fastfetch"]


READ_ALL = """
topic, isolation, form, most = ARGUMENTS
consumer = KafkaConsumer(
    bootstrap_servers=SERVERS, auto_offset_reset="earliest", isolation_level=isolation, consumer_timeout_ms=3000
)
partitions = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic))]
consumer.assign(partitions)
records = []
if form == "iteration":
    records += consumer
else:
    ends = consumer.end_offsets(partitions)
    while any(consumer.position(tp) < ends[tp] for tp in partitions):
        for tp, found in consumer.poll(timeout_ms=1000, max_records=int(most)).items():
            assert 0 < len(found) <= int(most)
            records += found
records.sort(key=lambda record: (record.partition, record.offset))
positions = [consumer.position(tp) for tp in partitions]
consumer.close()
print(json.dumps([[[repr(field) for field in record] for record in records], positions]))
"""


@pytest.mark.parametrize("form", ["iteration", "poll"])
def test_all_codecs_and_shapes_of_records(kafka: Kafka, form: str) -> None:
    topic = kafka.topic("kafka-api", 2)
    for partition in range(2):
        for codec in CODECS:
            kafka.produce(topic, varied(200), partition=partition, codec=codec, batch=17)
    records, positions = both(READ_ALL, kafka, topic, "read_uncommitted", form, "333")
    assert len(records) == 2 * 200 * len(CODECS)
    assert positions == [200 * len(CODECS)] * 2


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactions(kafka: Kafka, interleaved: Callable[[str], Interleaved], isolation: str) -> None:
    log = interleaved("lz4")
    records, _ = both(READ_ALL, kafka, log.tp.topic, isolation, "poll", "7")
    expected = log.kept if isolation == "read_committed" else log.everything
    assert [record[7] for record in records] == [repr(record.value) for record in expected]


def test_a_compacted_topic(kafka: Kafka, compacted: dict[str, tuple[str, Any]]) -> None:
    for topic, _ in compacted.values():
        records, positions = both(READ_ALL, kafka, topic, "read_uncommitted", "poll", "100")
        assert records
        with Consumer(bootstrap_servers=kafka.servers) as ours:
            ends = ours.end_offsets([TopicPartition(topic, p) for p in range(len(positions))])
        assert positions == [ends[TopicPartition(topic, p)] for p in range(len(positions))]


LOOK_AROUND = """
topic, half = ARGUMENTS[0], int(ARGUMENTS[1])
tp = TopicPartition(topic, 0)
seen = []
with KafkaConsumer(bootstrap_servers=SERVERS, auto_offset_reset="earliest", group_id=f"{topic}.{time.time_ns()}") as consumer:
    def one():
        while True:
            for records in consumer.poll(timeout_ms=500, max_records=1).values():
                return records[0].offset
    consumer.assign([tp])
    seen.append([consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp], consumer.committed(tp)])
    at = consumer.offsets_for_times({tp: half})[tp]
    seen.append([at.offset, at.timestamp, consumer.offsets_for_times({tp: 2**60})[tp]])
    consumer.seek(tp, 41)  # in the middle of a batch
    seen.append([one(), consumer.position(tp), consumer.highwater(tp)])
    consumer.pause(tp)
    seen.append([consumer.poll(timeout_ms=700), [list(p) for p in consumer.paused()]])
    consumer.resume(tp)
    seen.append([one(), one()])
    consumer.seek_to_beginning(tp)
    seen.append([one(), consumer.position(tp)])
    consumer.seek_to_end(tp)
    seen.append([consumer.poll(timeout_ms=300), consumer.position(tp)])
    consumer.commit({tp: OffsetAndMetadata(12, "half", -1)})
    seen.append([consumer.committed(tp), list(consumer.committed(tp, metadata=True))])
    seen.append([topic in consumer.topics(), sorted(consumer.partitions_for_topic(topic))])
    seen.append(sorted(consumer.partitions_for_topic("no-such-topic-anywhere")))
print(json.dumps(seen))
"""


def test_looking_around(kafka: Kafka) -> None:
    topic = kafka.topic("around")
    kafka.produce(topic, [Sent(b"k", b"%d" % i, [], 1_700_000_000_000 + i) for i in range(100)], batch=10, codec="zstd")
    seen = both(LOOK_AROUND, kafka, topic, str(1_700_000_000_050))
    assert seen[0] == [0, 100, None]
    assert seen[1] == [50, 1_700_000_000_050, None]
    assert seen[2] == [41, 42, 100]


RESUME = """
topic, count = ARGUMENTS[0], int(ARGUMENTS[1])
consumer = KafkaConsumer(
    topic, bootstrap_servers=SERVERS, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False, max_poll_records=10,
    value_deserializer=json.loads, heartbeat_interval_ms=500,
)
values = []
for message in consumer:
    values.append(message.value["n"])
    if len(values) % 5 == 0:
        consumer.commit()
    if len(values) == count:
        break
consumer.close()
print(json.dumps(values))
"""


@pytest.mark.parametrize("first", list(IMPORTS))
def test_the_one_goes_on_where_the_other_has_committed(kafka: Kafka, first: str) -> None:
    topic = kafka.topic("resume")
    kafka.produce(topic, [Sent(None, b'{"n": %d}' % i, []) for i in range(60)], batch=7)
    second = next(client for client in IMPORTS if client != first)
    assert run(first, RESUME, kafka, topic, "20") == list(range(20))
    assert run(second, RESUME, kafka, topic, "25") == list(range(20, 45))
    assert run(first, RESUME, kafka, topic, "15") == list(range(45, 60))


MEMBER = """
topic, total = ARGUMENTS[0], int(ARGUMENTS[1])
shares = []

class Listener(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked):
        pass

    def on_partitions_assigned(self, assigned):
        shares.append(len(assigned))

consumer = KafkaConsumer(
    bootstrap_servers=SERVERS, group_id=topic + ".shared", auto_offset_reset="earliest", heartbeat_interval_ms=300,
    session_timeout_ms=10000, auto_commit_interval_ms=200,
)
consumer.subscribe(pattern=topic.rpartition(".")[0], listener=Listener())
seen = []
deadline = time.monotonic() + 60
ended = None
while time.monotonic() < deadline and (ended is None or time.monotonic() < ended):
    for tp, records in consumer.poll(timeout_ms=200).items():
        seen += [[tp.partition, record.offset] for record in records]
    if ended is None and shares and shares[-1] == 2:
        ended = time.monotonic() + 6  # shared, and time to read what is there
consumer.close()
print(json.dumps([seen, ended is not None]))
"""


def test_one_of_each_in_a_group(kafka: Kafka) -> None:
    """They vote for an assignor that both have, and each reads its half."""
    topic = kafka.topic("mixed-kafka-api", 4)
    for partition in range(4):
        kafka.produce(topic, [Sent(None, b"%d" % i, []) for i in range(50)], partition=partition)
    with ThreadPoolExecutor(2) as both_at_once:
        (theirs, they_shared), (ours, we_shared) = both_at_once.map(
            lambda client: run(client, MEMBER, kafka, topic, "200"), IMPORTS
        )
    assert (they_shared, we_shared) == (True, True), "had two of the four; whoever ends last is given the rest"
    seen = {tuple(each) for each in theirs + ours}
    assert seen == {(partition, offset) for partition in range(4) for offset in range(50)}


TAIL = """
topic = ARGUMENTS[0]
consumer = KafkaConsumer(topic, bootstrap_servers=SERVERS, consumer_timeout_ms=30000, metadata_max_age_ms=1000)
while len(consumer.assignment()) < 2 or any(consumer.position(tp) is None for tp in consumer.assignment()):
    consumer.poll(timeout_ms=100)
print("ready", file=sys.stderr, flush=True)
values = []
for message in consumer:
    values.append(message.value.decode())
    if len(values) == 10:
        break
consumer.close()
print(json.dumps(sorted(values)))
"""


@pytest.mark.parametrize("client", list(IMPORTS))
def test_following_a_topic_without_a_group(kafka: Kafka, client: str) -> None:
    """What came before the consumer is not read: the default is the end."""
    topic = kafka.topic("tail", 2)
    kafka.produce(topic, [Sent(None, b"old", [])] * 5)
    with subprocess.Popen(
        [sys.executable, "-c", IMPORTS[client] + BEGIN + TAIL, kafka.servers, topic],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as reader:
        assert reader.stderr is not None
        wait_for(lambda: "ready" in reader.stderr.readline(), "the script's consumer", SECONDS)  # type: ignore[union-attr]
        for partition in range(2):
            kafka.produce(topic, [Sent(None, b"new %d" % (5 * partition + i), []) for i in range(5)], partition=partition)
        out, _ = reader.communicate(timeout=SECONDS)
    assert json.loads(out) == sorted(f"new {i}" for i in range(10))
