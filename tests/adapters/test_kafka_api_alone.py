"""Where kafka-python is not installed: in another process, in which `kafka` cannot be imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fastfetch.testing import Broker, encode_batch

BLOCK = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("kafka", "aiokafka", "confluent_kafka"):
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Block())
SERVERS = sys.argv[1]
"""

SCRIPT = """
import json, pickle
from fastfetch import errors as ours
from fastfetch.adapters.kafka_api import *
from fastfetch.adapters import kafka_api

events = []

class Listener(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked):
        events.append(("revoked", revoked))

    def on_partitions_assigned(self, assigned):
        events.append(("assigned", assigned))

P0 = TopicPartition("orders", 0)
configs = dict(bootstrap_servers=SERVERS, auto_offset_reset="earliest", group_id="g", consumer_timeout_ms=1000)
with KafkaConsumer(**configs, value_deserializer=json.loads) as consumer:
    consumer.subscribe(["orders"], listener=Listener())
    records = list(consumer)
    assert [record.value for record in records] == list(range(10)), records
    assert type(records[0]) is ConsumerRecord and records[0]._fields[:4] == ("topic", "partition", "leader_epoch", "offset")
    assert records[0].serialized_value_size == 1 and records[0].headers == [] and records[0].checksum is None
    consumer.commit({P0: OffsetAndMetadata(7, "note")})
    assert consumer.committed(P0) == 7 and consumer.committed(P0, metadata=True) == OffsetAndMetadata(7, "note", -1)
    future = consumer.commit_async()
    while not future.is_done:
        consumer.poll(10)
    assert future.succeeded() and consumer.committed(P0) == 10
    assert consumer.group_metadata().state == MemberState.STABLE
    assert consumer.offsets_for_times({P0: 0}) == {P0: OffsetAndTimestamp(0, 1_700_000_000_000, 0)}
    assert isinstance(next(iter(consumer.assignment())), TopicPartition)
    for wrong in (lambda: consumer.position(TopicPartition("orders", 9)), lambda: consumer.assign([P0])):
        try:
            wrong()
        except IllegalStateError as error:
            assert isinstance(error, KafkaError) and isinstance(error, ours.UsageError) and not error.retriable
            assert str(error).startswith("IllegalStateError: ")
            assert type(pickle.loads(pickle.dumps(error))) is type(error)
        else:
            raise AssertionError("nothing was raised")
assert events == [("assigned", {P0}), ("revoked", {P0})], events

for wrong, kind in (
    (lambda: KafkaConsumer(no_such_key=1), KafkaConfigurationError),
    (lambda: KafkaConsumer(bootstrap_servers="127.0.0.1:9", bootstrap_timeout_ms=100), NoBrokersAvailable),
    (lambda: KafkaConsumer(bootstrap_servers="127.0.0.1:9", bootstrap_timeout_ms=100), KafkaTimeoutError),
    (lambda: KafkaConsumer(bootstrap_servers="127.0.0.1:9", bootstrap_timeout_ms=100), KafkaConnectionError),
):
    try:
        wrong()
    except kind as error:
        assert isinstance(error, ours.FastFetchError)
    else:
        raise AssertionError("nothing was raised")
assert not [name for name in sys.modules if name.partition(".")[0] == "kafka"]
print("ran to the end")
"""


def run(script: str, servers: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCK + script, servers],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode:
        pytest.fail(done.stderr, pytrace=False)
    return done.stdout


def test_a_script_runs_without_kafka_python() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        broker.append("orders", 0, encode_batch([b"%d" % i for i in range(10)]))
        assert run(SCRIPT, broker.bootstrap_servers) == "ran to the end\n"


def test_the_block_blocks() -> None:
    """Or the test above would prove nothing."""
    with pytest.raises(pytest.fail.Exception, match="kafka is not here"):
        run("import kafka", "")
