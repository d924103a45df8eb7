"""The classic protocol at older brokers: ours and librdkafka in one group, one leaves, one is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.conftest import Kafka, need
from tests.live.groups import SESSION_MS, Group
from tests.live.history import Load
from tests.live.kafka_cluster import OLDEST_VERSION, KafkaCluster

PARTITIONS = 6


@pytest.mark.parametrize(("version", "strategy"), [(OLDEST_VERSION, "cooperative-sticky"), ("3.9.1", "range")])
def test_members_leave_and_die(tmp_path: Path, version: str, strategy: str) -> None:
    need(version)
    with KafkaCluster(tmp_path / version, version=version) as running:
        kafka = Kafka(running)
        topic = kafka.topic("groups", PARTITIONS)
        with Group(kafka, tmp_path, {topic: PARTITIONS}, strategies=[strategy], session_ms=SESSION_MS) as group:
            with Load(kafka, topic, PARTITIONS) as load:
                first = group.start()
                group.wait_shared(first)
                other, third = group.start("confluent"), group.start()
                group.wait_shared(first, other, third)
                group.wait_for_more()
                first.close()
                group.wait_shared(other, third)
                group.wait_for_more()
                assert group.check() == 0
                fourth = group.start("async")
                group.wait_shared(other, third, fourth)
                group.wait_for_more()
                third.kill()
                group.wait_shared(other, fourth)
                group.wait_for_more()
            group.wait_for_all(load)
