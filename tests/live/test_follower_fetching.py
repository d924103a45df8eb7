"""A consumer that says in which rack it is reads from the replica there (KIP-392), and from the leader where that is no use."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fastfetch import TopicPartition
from fastfetch.engine.channels import Channels
from tests.live.conftest import Kafka
from tests.live.history import Load, Reader


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Fetch requests by node."""
    counts: Counter[int] = Counter()
    send = Channels.send

    def spy(channels: Channels, channel: Any, api: Any, *rest: Any, **more: Any) -> Any:
        if api.name == "Fetch":
            counts[channel.node.node_id] += 1
        return send(channels, channel, api, *rest, **more)

    monkeypatch.setattr(Channels, "send", spy)
    return counts


def test_the_replica_in_the_own_rack_is_read_from(three: Kafka, fetches: Counter[int]) -> None:
    three.wait_in_sync()
    topic = three.topic("near", replicas=[[1, 2, 3]])
    with Reader(three, [TopicPartition(topic, 0)], client_rack="rack2") as reader:
        with Load(three, topic, 1, per_second=100) as load:
            reader.wait_for_more()
            fetches.clear()
            reader.wait_for_more(200)
            assert set(fetches) == {2}
        reader.wait_for_all(load)


@pytest.mark.parametrize("rack", ["", "a rack without a replica"])
def test_the_leader_is_read_from_where_there_is_no_nearer_one(three: Kafka, fetches: Counter[int], rack: str) -> None:
    three.wait_in_sync()
    topic = three.topic("far", replicas=[[1, 2, 3]])
    with Reader(three, [TopicPartition(topic, 0)], client_rack=rack) as reader:
        with Load(three, topic, 1) as load:
            reader.wait_for_more(100)
            assert set(fetches) == {1}
        reader.wait_for_all(load)


def test_the_leader_takes_over_when_the_near_replica_dies(three: Kafka, fetches: Counter[int]) -> None:
    three.wait_in_sync()
    topic = three.topic("dies", replicas=[[1, 2, 3]])
    with Reader(three, [TopicPartition(topic, 0)], client_rack="rack2") as reader:
        with Load(three, topic, 1) as load:
            reader.wait_for_more()
            assert fetches[2]
            three.cluster.kill(2)
            try:
                fetches.clear()
                reader.wait_for_more(100)
                assert fetches[1]
            finally:
                three.cluster.heal()
            reader.wait_for_more()
        reader.wait_for_all(load)
