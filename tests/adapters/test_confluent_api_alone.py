"""Where confluent-kafka is not installed: the usual scripts, in another process in which it cannot be imported."""

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

from fastfetch.adapters.confluent_api import *
from fastfetch.adapters.confluent_api import Consumer, KafkaError, KafkaException, Message, TopicPartition
"""

# A loop over poll() with the checks that everybody copies; automatic commits, offsets stored by hand.
POLL_LOOP = """
consumer = Consumer({
    "bootstrap.servers": SERVERS, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.offset.store": False,
    "enable.partition.eof": True,
})
assigned = []
consumer.subscribe(["orders"], on_assign=lambda c, partitions: assigned.extend(partitions))
seen, ends = [], set()
try:
    while len(ends) < 2:
        msg = consumer.poll(timeout=1.0)
        if msg is None:
            continue
        if msg.error():
            if msg.error().code() == KafkaError._PARTITION_EOF:
                ends.add((msg.topic(), msg.partition(), msg.offset()))
                continue
            raise KafkaException(msg.error())
        seen.append((msg.partition(), msg.offset(), msg.key(), msg.value(), msg.headers(), msg.timestamp()[0]))
        consumer.store_offsets(message=msg)
finally:
    consumer.close()
assert sorted(seen) == [(p, i, None, b"%d" % i, None, 1) for p in range(2) for i in range(10)], seen
assert ends == {("orders", 0, 10), ("orders", 1, 10)}
assert sorted(assigned) == [TopicPartition("orders", 0), TopicPartition("orders", 1)]
"""

# Batches, committed one by one and synchronously.
BATCHES = """
with Consumer({
    "bootstrap.servers": SERVERS, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False,
}) as consumer:
    consumer.subscribe(["orders"])
    count = 0
    while count < 20:
        msgs = consumer.consume(num_messages=7, timeout=1.0)
        for msg in msgs:
            assert msg.error() is None
            count += 1
        if msgs:
            consumer.commit(asynchronous=False)
    [first, second] = consumer.committed([TopicPartition("orders", p) for p in range(2)], timeout=10)
    assert (first.offset, second.offset) == (10, 10)
"""

ERRORS = """
import pickle
import fastfetch.errors

try:
    Consumer({"bootstrap.servers": SERVERS, "group.id": "g", "nope": 1})
except KafkaException as error:
    assert isinstance(error, fastfetch.errors.UsageError)
    assert error.args[0].code() == KafkaError._INVALID_ARG
    assert pickle.loads(pickle.dumps(error)).args[0].code() == KafkaError._INVALID_ARG
else:
    raise AssertionError
assert KafkaException.__mro__[1] is Exception
with Consumer({"bootstrap.servers": SERVERS, "group.id": "g"}) as consumer:
    topics = consumer.list_topics(timeout=10).topics
    assert sorted(topics["orders"].partitions) == [0, 1], topics
assert not [name for name in sys.modules if name.startswith("confluent_kafka")]
"""


@pytest.mark.parametrize("script", [POLL_LOOP, BATCHES, ERRORS], ids=["poll loop", "batches", "errors"])
def test_scripts_run_without_confluent_kafka(script: str, root: Path) -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        for partition in range(2):
            broker.append("orders", partition, encode_batch([b"%d" % i for i in range(10)]))
        command = [sys.executable, "-W", "error", "-c", BLOCK + script, broker.bootstrap_servers]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        if script is not ERRORS:
            assert {tp.partition: at.offset for tp, at in broker.committed("g").items()} == {0: 10, 1: 10}
