"""Metadata: epochs never go back, re-created topics, addresses that change, bounded asking."""

from __future__ import annotations

import pytest

from fastfetch.errors import BrokerError, NoOffsetForPartitionError, TopicAuthorizationError, UnknownTopicError
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
    assert listing.result() == {"t": {0, 1, 2}}
    asked = [asked for asked in s.history if asked.api.name == "Metadata"]
    assert not any(a.body["allow_auto_topic_creation"] for a in asked), "reading must not create topics"
    before = s.count("Metadata")
    s.advance(60_000)
    assert s.count("Metadata") == before, "answered questions are not asked again"


def test_descriptions_are_answers_as_they_are() -> None:
    """Of everything and of one topic, asked for at once; a topic's error is part of the answer, and nothing of it is kept."""
    s = Script()
    everything, again = s.engine.describe_cluster(None), s.engine.list_topics()
    one, unknown = s.engine.describe_cluster("t"), s.engine.describe_cluster("nope")
    s.run()
    s.advance(1_000)
    assert {topic["name"] for topic in everything.result().body["topics"]} == {"t"}
    assert set(again.result()) == {"t"}
    assert [topic["name"] for topic in one.result().body["topics"]] == ["t"]
    assert [(topic["name"], topic["error_code"]) for topic in unknown.result().body["topics"]] == [("nope", 3)]
    assert one.result().node.port
    assert "nope" not in s.engine.cluster.troubles
    asked = [asked.body["topics"] for asked in s.history if asked.api.name == "Metadata"]
    assert asked.count(None) == 1, "who asks the same is answered with the same"


def test_a_topic_created_a_moment_ago_is_waited_for() -> None:
    s = Script()
    question = s.engine.ask_topic("new")
    s.run()
    assert not question.done
    s.leaders["new", 0] = (1, 0)
    s.advance(1_000)
    assert list(question.result().partitions) == [0]


# --- topics that go and come ------------------------------------------------------------------------------------------------


def test_a_deleted_topic_is_told_and_the_others_flow() -> None:
    s = Script()
    s.leaders["u", 0] = (1, 5)
    u0 = TopicPartition("u", 0)
    s.engine.assign([P0, u0])
    s.engine.seek(P0, 0)
    s.engine.seek(u0, 0)
    asked = s.expect("Fetch")
    parts = [{"partition_index": 0, "error_code": 3, "high_watermark": -1, "records": None}]
    flows = [{"partition_index": 0, "error_code": 0, "high_watermark": 1000, "records": batch(0)}]
    del s.leaders["t", 0]
    s.answer(asked, {"responses": [{"topic": "t", "partitions": parts}, {"topic": "u", "partitions": flows}]})
    assert len(s.take()) == 10
    before = s.count("Metadata")
    for _ in range(2):
        s.fetched(s.expect("Fetch"), {0: None}, topic="u")
        s.advance(4_000)
        with pytest.raises(UnknownTopicError, match="'t' does not exist"):
            s.engine.raise_fault()
        s.engine.raise_fault()
    assert s.count("Metadata") - before <= 20
    assert s.position() == 0
    s.fetched(s.expect("Fetch"), {0: None}, topic="u")
    assert set(s.expect("Fetch").partitions()) == {u0}
    s.leaders["t", 0] = (1, 5)
    s.advance(4_000)
    s.engine.raise_fault()
    s.fetched(s.expect("Fetch"), {0: None}, topic="u")
    assert s.expect("Fetch").partitions()[P0]["fetch_offset"] == 0, "it was but hidden"


def test_a_topic_that_comes_back_is_not_asked_before_it_is_known_which_one_it_is() -> None:
    """By name a broker would give the records of the new one at the old one's position."""
    s = Script()
    s.topic_ids["t"] = b"1" * 16
    s.started(at=5)
    leader = s.leaders.pop(("t", 0))
    for _ in range(5):
        for asked in [asked for asked in s.asked if asked.api.name == "Fetch"]:
            s.fetched(asked, {0: 3})
        s.advance(2_000)
    with pytest.raises(UnknownTopicError):
        s.engine.raise_fault()
    s.none("Fetch")
    s.topic_ids["t"] = b"2" * 16
    s.leaders["t", 0] = leader
    s.advance(2_000)
    s.none("Fetch")
    s.engine.raise_fault()
    s.found(s.expect("ListOffsets"), {0: 0})
    assert s.expect("Fetch").partitions()[P0]["fetch_offset"] == 0


def recreate(s: Script) -> None:
    s.topic_ids["t"] = b"2" * 16
    s.leaders["t", 0] = (1, 0)
    s.engine.metadata.request_update()
    s.advance(1_000)


def test_a_look_up_under_way_in_a_topic_that_was_created_again_is_void() -> None:
    s = Script(auto_offset_reset="latest")
    s.topic_ids["t"] = b"1" * 16
    s.assign()
    old = s.expect("ListOffsets")
    recreate(s)
    s.found(old, {0: 5_000})
    assert s.position() is None
    s.found(s.expect("ListOffsets"), {0: 10})
    assert s.position() == 10


def test_a_check_under_way_in_a_topic_that_was_created_again_is_void(caplog: pytest.LogCaptureFixture) -> None:
    s = Script(versions={"OffsetForLeaderEpoch": (2, 4)})
    s.topic_ids["t"] = b"1" * 16
    s.started()
    s.engine.seek(P0, 5_000, 4)
    old = s.expect("OffsetForLeaderEpoch")
    recreate(s)
    part = {"partition": 0, "error_code": 0, "leader_epoch": 4, "end_offset": 6_000}
    s.answer(old, {"topics": [{"topic": "t", "partitions": [part]}]})
    assert "position 5000 of t-0 is void" in caplog.text
    s.found(s.expect("ListOffsets"), {0: 10})
    assert s.position() == 10


def test_without_a_policy_a_topic_that_was_created_again_is_an_error() -> None:
    s = Script(auto_offset_reset="none")
    s.topic_ids["t"] = b"1" * 16
    s.started(at=5_000)
    recreate(s)
    with pytest.raises(NoOffsetForPartitionError, match="created again: position 5000 of t-0 is void"):
        s.engine.raise_fault()
    s.engine.seek(P0, 0)
    assert s.position() == 0


def test_a_topic_that_was_created_again_is_found_out_by_its_leader_not_knowing_the_epoch() -> None:
    """Where fetches name topics: the new one's epochs begin anew."""
    s = Script()
    s.topic_ids["t"] = b"1" * 16
    s.started(at=5_000)
    s.topic_ids["t"] = b"2" * 16
    s.leaders["t", 0] = (1, 0)
    s.fetched(s.expect("Fetch"), {0: 75})
    s.advance(1_000)
    s.found(s.expect("ListOffsets"), {0: 0})
    assert s.position() == 0


@pytest.mark.parametrize("code", [100, 103])
def test_a_topic_that_was_created_again_is_found_out_by_a_fetch(code: int) -> None:
    s = Script(versions={"Fetch": (4, 17)})
    s.topic_ids["t"] = b"1" * 16
    s.started(at=5_000)
    asked = s.expect("Fetch")
    s.topic_ids["t"] = b"2" * 16
    s.leaders["t", 0] = (1, 0)
    part = {"partition_index": 0, "error_code": code, "high_watermark": -1, "records": None}
    s.answer(asked, {"responses": [{"topic_id": b"1" * 16, "partitions": [part]}]})
    s.advance(500)
    s.found(s.expect("ListOffsets"), {0: 0})
    again = s.expect("Fetch")
    assert again.body["topics"][0]["topic_id"] == b"2" * 16
    assert s.position() == 0


def test_a_topic_whose_id_was_not_known_was_created_again_if_its_epochs_went_back() -> None:
    s = Script()
    s.started(at=5_000)
    s.topic_ids["t"] = b"1" * 16
    s.engine.metadata.request_update()
    s.advance(1_000)
    assert s.position() == 5_000, "brokers that were upgraded"
    s = Script()
    s.started(at=5_000)
    recreate(s)
    assert s.position() is None


def test_a_broker_too_old_for_topic_ids_makes_no_id_forgotten() -> None:
    s = Script()
    s.topic_ids["t"] = b"1" * 16
    s.started(at=5_000)
    s.versions["Metadata"] = (0, 9)
    s.lose(s.expect("Fetch").conn)
    for node in s.engine.channels.nodes.values():
        for channel in list(node.channels.values()):
            if channel.conn:
                s.lose(channel.conn)
    s.engine.metadata.request_update()
    s.advance(5_000)
    assert [a.version for a in s.history if a.api.name == "Metadata"][-1] == 9
    s.versions["Metadata"] = (0, 13)
    assert s.engine.cluster.topics["t"].topic_id == b"1" * 16
    recreate(s)


def test_what_nobody_asks_about_is_forgotten() -> None:
    """A topic that comes back to a consumer after it was created again has no position to void."""
    s = Script()
    s.topic_ids["t"] = b"1" * 16
    s.leaders["other", 0] = (1, 0)
    s.started()
    s.engine.assign([TopicPartition("other", 0)])
    s.advance(1_000)
    assert set(s.engine.cluster.topics) == {"other"}
    s.topic_ids["t"] = b"2" * 16
    s.started(at=77)
    s.advance(1_000)
    assert s.position() == 77


def test_partitions_that_were_added_are_seen_at_the_next_refresh() -> None:
    s = Script(metadata_max_age_ms=10_000)
    s.started()
    s.leaders["t", 1] = (1, 0)
    s.advance(10_000)
    assert set(s.engine.ask_topic("t").result().partitions) == {0, 1}
    s.assign(0, 1)
    s.found(s.expect("ListOffsets"), {1: 0})
    assert s.position(1) == 0


def test_a_partition_that_does_not_exist_is_an_error_also_after_a_seek() -> None:
    s = Script()
    s.started(0, 7)
    with pytest.raises(UnknownTopicError, match="partition 7 of topic 't' does not exist"):
        s.engine.raise_fault()
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    assert len(s.take()) == 10


# --- N08: another cluster ---------------------------------------------------------------------------------------------------


def test_metadata_of_another_cluster_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    s = Script()
    s.started(at=10)
    s.cluster_id = "other"
    s.leaders["t", 0] = (1, 9)
    s.engine.metadata.request_update()
    s.advance(200)
    assert s.engine.cluster.strangers > 0
    assert s.engine.cluster.leader(P0).epoch == 5  # type: ignore[union-attr]
    assert set(s.opened.values()) <= {"boot"}, "no address of the cluster that is not what it was is believed"
    listing = s.engine.list_topics()
    s.advance(200)
    assert not listing.done
    s.cluster_id = "c"
    s.leaders["t", 0] = (1, 6)
    s.advance(3_000)
    assert set(listing.result()) == {"t"}
    assert "belongs to cluster 'other', not to 'c'" in caplog.text
    assert s.expect("Fetch").partitions()[P0]["current_leader_epoch"] == 6
    assert s.position() == 10
    s.engine.raise_fault()


def test_whoever_belongs_to_another_cluster_is_not_asked_again_before_all_others() -> None:
    s = Script(bootstrap_servers="boot:9000,second:9000")
    s.started()
    s.strangers = {"boot", "b1"}
    s.leaders["t", 0] = (1, 6)
    s.engine.metadata.request_update()
    s.advance(1_000)
    assert s.engine.cluster.leader(P0).epoch == 6  # type: ignore[union-attr]
    assert s.engine.cluster.strangers == 0
    s.engine.raise_fault()


def test_a_bootstrap_list_that_leads_to_another_cluster_for_good_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    s = Script()
    s.started(at=10)
    s.cluster_id = "other"
    s.engine.metadata.request_update()
    before = s.count("Metadata")
    for _ in range(3):
        s.advance(10_000)
        with pytest.raises(BrokerError, match="another cluster than 'c'"):
            s.engine.raise_fault()
        s.engine.raise_fault()
    assert s.count("Metadata") - before <= 60
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1
    s.cluster_id = "c"
    s.advance(10_000)
    s.engine.raise_fault()
    assert s.expect("Fetch").partitions()[P0]["fetch_offset"] == 10


def test_more_brokers_than_any_cluster_has(caplog: pytest.LogCaptureFixture) -> None:
    s = Script()
    s.auto.discard("Metadata")
    s.started()
    brokers = [{"node_id": n, "host": f"b{n}", "port": 9000} for n in range(1, 20_001)]
    s.answer(s.expect("Metadata"), {"brokers": brokers, "topics": []})
    assert len(s.engine.cluster.brokers) == 10_000
    assert "20000 brokers" in caplog.text
