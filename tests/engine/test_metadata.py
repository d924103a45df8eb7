"""Metadata: epochs never go back, re-created topics, addresses that change, bounded asking."""

from __future__ import annotations

import pytest

from fastfetch.errors import TopicAuthorizationError, UnknownTopicError
from fastfetch.types import TopicPartition
from tests.engine.script import Script, batch

P0 = TopicPartition("t", 0)


def test_an_older_leader_epoch_is_ignored_and_costs_few_requests() -> None:
    s = Script(nodes=2)
    s.leaders["t", 0] = (1, 9)
    s.started()
    s.leaders["t", 0] = (2, 3)
    before = s.count("Metadata")
    s.engine.metadata.request_update()
    s.advance(5_000)
    assert s.engine.cluster.leader(P0).leader == 1  # type: ignore[union-attr]
    assert s.count("Metadata") - before <= 2
    s.leaders["t", 0] = (2, 10)
    s.engine.metadata.request_update()
    s.advance(1_000)
    s.fetched(s.expect("Fetch", node=1), {0: 6})
    assert s.expect("Fetch", node=2).partitions()[P0]["current_leader_epoch"] == 10


def test_epochs_of_old_brokers_are_not_trusted() -> None:
    s = Script(versions={"Metadata": (0, 8)})
    s.started()
    assert s.expect("Fetch").partitions()[P0]["current_leader_epoch"] == -1


def test_another_topic_under_the_same_name_voids_the_position(caplog: pytest.LogCaptureFixture) -> None:
    s = Script()
    s.topic_ids["t"] = b"1" * 16
    s.started(at=5_000)
    s.topic_ids["t"] = b"2" * 16
    s.leaders["t", 0] = (1, 0)  # an older epoch, and yet newer knowledge
    s.engine.metadata.request_update()
    s.advance(1_000)
    assert s.position() is None
    assert "deleted and created again" in caplog.text
    s.found(s.expect("ListOffsets"), {0: 0})
    assert s.position() == 0


def test_a_new_leader_is_asked_at_the_same_position() -> None:
    s = Script(nodes=2)
    s.started()
    s.fetched(s.expect("Fetch", node=1), {0: batch(0)})
    s.leaders["t", 0] = (2, 6)
    s.fetched(s.expect("Fetch", node=1), {0: 6})
    s.advance(1_000)
    assert s.take() == [], "what the old leader sent may be gone from the log"
    s.fetched(s.expect("Fetch", node=2), {0: batch(0)})
    assert len(s.take()) == 10


def test_a_broker_whose_address_changed_is_asked_at_the_new_one() -> None:
    s = Script()
    s.started()
    first = s.expect("Fetch")
    s.nodes[1] = "moved"
    s.engine.metadata.request_update()
    s.advance(1_000)
    assert first.conn not in s.opened
    assert s.opened[s.expect("Fetch").conn] == "moved"


def test_brokers_and_partitions_that_make_no_sense_are_ignored() -> None:
    s = Script()
    s.auto.discard("Metadata")
    s.started()
    asked = s.expect("Metadata")
    brokers = [
        {"node_id": 1, "host": "b1", "port": 9001},
        {"node_id": 1, "host": "other", "port": 9001},
        {"node_id": 2, "host": "b2", "port": 0},
        {"node_id": 3, "host": "", "port": 9003},
        {"node_id": -4, "host": "b4", "port": 9004},
    ]
    parts = [
        {"partition_index": 0, "leader_id": 1, "leader_epoch": 1, "replica_nodes": [], "isr_nodes": []},
        {"partition_index": 0, "leader_id": 9, "leader_epoch": 1, "replica_nodes": [], "isr_nodes": []},
        {"partition_index": -3, "leader_id": 1, "leader_epoch": 1, "replica_nodes": [], "isr_nodes": []},
    ]
    s.answer(asked, {"brokers": brokers, "topics": [{"name": "t", "partitions": parts}]})
    assert s.engine.cluster.brokers == {1: ("b1", 9001)}
    assert list(s.engine.cluster.topics["t"].partitions) == [0]
    s.expect("Fetch", node=1)


def test_metadata_is_refreshed_by_age() -> None:
    s = Script(metadata_max_age_ms=10_000)
    s.started()
    before = s.count("Metadata")
    s.advance(35_000)
    assert 3 <= s.count("Metadata") - before <= 4


def test_questions_about_topics() -> None:
    s = Script(3)
    known = s.engine.ask_topic("t")
    unknown = s.engine.ask_topic("nope")
    s.errors["secret"] = 29
    secret = s.engine.ask_topic("secret")
    listing = s.engine.list_topics()
    s.advance(3_000)
    assert set(known.result().partitions) == {0, 1, 2}
    with pytest.raises(UnknownTopicError, match="'nope'"):
        unknown.result()
    with pytest.raises(TopicAuthorizationError, match="'secret'"):
        secret.result()
    assert listing.result() == {"t"}
    asked = [asked for asked in s.history if asked.api.name == "Metadata"]
    assert not any(a.body["allow_auto_topic_creation"] for a in asked), "reading must not create topics"
    before = s.count("Metadata")
    s.advance(60_000)
    assert s.count("Metadata") == before, "answered questions are not asked again"


def test_a_topic_created_a_moment_ago_is_waited_for() -> None:
    s = Script()
    question = s.engine.ask_topic("new")
    s.run()
    assert not question.done
    s.leaders["new", 0] = (1, 0)
    s.advance(1_000)
    assert list(question.result().partitions) == [0]
