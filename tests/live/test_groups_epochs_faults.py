"""Brokers die, stop and come back while a group of the consumer protocol goes on. It keeps its partitions and loses nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.live.conftest import Kafka
from tests.live.groups import Group, Member
from tests.live.history import Load
from tests.live.kafka_cluster import KafkaCluster
from tests.live.test_groups_epochs import epochs

PARTITIONS = 6
SESSION_MS = 15_000  # long enough for a coordinator to be elected and found, as it is by default


@pytest.fixture(scope="module")
def three(cluster_or_skip: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    # Of their own: among the other tests' brokers, which have died many times by then, a new coordinator once answered nobody.
    with KafkaCluster(tmp_path_factory.mktemp("kafka") / "epochs", brokers=3) as running:
        yield Kafka(running)


@pytest.fixture
def topic(three: Kafka) -> Iterator[str]:
    three.wait_in_sync()
    yield three.topic("epochs-faults", PARTITIONS, min_insync_replicas=2)
    three.cluster.heal()


def go_through(kafka: Kafka, folder: Path, topic: str, happen: Callable[[Group], None]) -> None:
    """Two members share a topic under load while something happens."""
    with epochs(kafka, folder, {topic: PARTITIONS}, session_ms=SESSION_MS, config={"request_timeout_ms": 3_000}) as group:
        with Load(kafka, topic, PARTITIONS) as load:
            members: list[Member] = [group.start(), group.start()]
            group.wait_shared(*members)
            group.wait_for_more()
            before = [len(member.events) for member in members]
            happen(group)
            group.wait_for_more()
            group.wait_shared(*members)
        group.wait_for_all(load)
        for member, seen in zip(members, before, strict=True):
            assert not member.told("revoked", "lost", after=seen), "a coordinator that takes over knows the assignment"
        for member in members:
            member.close()
        assert group.check() == 0


def test_the_coordinator_is_killed(three: Kafka, tmp_path: Path, topic: str) -> None:
    def happen(group: Group) -> None:
        victim = group.coordinator()
        assert victim is not None
        three.cluster.kill(victim)
        group.wait_moved(victim)
        group.wait_for_more(200)  # so that each member has committed to the new one
        three.cluster.launch(victim)
        three.wait_in_sync()

    go_through(three, tmp_path, topic, happen)


def test_the_coordinator_stops_answering(three: Kafka, tmp_path: Path, topic: str) -> None:
    """Its connections stay open; it wakes up as one that no longer coordinates."""

    def happen(group: Group) -> None:
        victim = group.coordinator()
        assert victim is not None
        three.cluster.pause(victim)
        group.wait_moved(victim)
        group.wait_for_more(200)
        three.cluster.resume(victim)

    go_through(three, tmp_path, topic, happen)


def test_every_broker_is_restarted_in_good_order(three: Kafka, tmp_path: Path, topic: str) -> None:
    def happen(group: Group) -> None:
        for node in three.cluster.nodes:
            three.cluster.restart(node.id)
            three.wait_in_sync()
            group.wait_for_more()

    go_through(three, tmp_path, topic, happen)
