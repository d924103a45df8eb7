"""An error that was told is looked into again, also where nothing else happens that would make the engine look."""

from __future__ import annotations

import time

import pytest

from fastfetch import Consumer, TopicPartition
from fastfetch.errors import UnknownTopicError
from fastfetch.testing import Broker, encode_batch


def test_a_partition_assigned_before_it_exists_is_read_once_it_does() -> None:
    tp = TopicPartition("orders", 1)
    with Broker() as broker:
        broker.create_topic("orders", partitions=1)
        with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([tp])
            with pytest.raises(UnknownTopicError, match="it has 1"):
                consumer.poll(timeout_ms=10_000)
            broker.add_partitions("orders", 2)
            broker.append("orders", 1, encode_batch([(b"k", b"v")]))
            deadline = time.monotonic() + 10
            found: list[bytes | None] = []
            while not found and time.monotonic() < deadline:
                try:
                    found = [record.value for record in consumer.poll(timeout_ms=100).get(tp, [])]
                except UnknownTopicError:  # said of the metadata that was there before
                    continue
            assert found == [b"v"]
