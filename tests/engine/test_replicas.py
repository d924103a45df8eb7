"""Reading from followers (KIP-392) and leaders named in answers (KIP-951). P06 of the known bugs."""

from __future__ import annotations

from typing import Any

import pytest

from fastfetch.types import TopicPartition
from tests.engine.script import Asked, Script, batch

P0 = TopicPartition("t", 0)


def offset(fetch: Asked) -> int:
    return int(fetch.partitions()[P0]["fetch_offset"])


def racked(**settings: Any) -> Script:
    """Partition 0, led by node 1, is sought to 0; node 1 has been asked with the rack. Nodes 2 and 3 have replicas."""
    s = Script(1, nodes=3, client_rack="east", **settings)
    s.leaders["t", 0] = (1, 5)
    s.started(0)
    assert s.expect("Fetch", node=1).body["rack_id"] == "east"
    return s


def redirect(s: Script, to: int, *, node: int = 1, **more: Any) -> None:
    s.fetched(s.expect("Fetch", node=node), {0: None}, preferred_read_replica=to, **more)


def test_the_preferred_replica_is_asked_at_the_same_offset() -> None:
    s = racked()
    redirect(s, 2)
    fetch = s.expect("Fetch", node=2)
    assert offset(fetch) == 0
    s.fetched(fetch, {0: batch(0)})
    assert offset(s.expect("Fetch", node=2)) == 10
    s.none_at("Fetch", node=1)
    assert s.take() == [(0, o) for o in range(10)]


def test_without_a_rack_none_is_told() -> None:
    s = Script()
    s.started()
    assert s.expect("Fetch").body["rack_id"] == ""


def test_the_advice_expires_and_the_leader_is_asked_again() -> None:
    s = racked(metadata_max_age_ms=20_000)
    redirect(s, 2)
    for _ in range(10):
        s.fetched(s.expect("Fetch", node=2), {0: None})
        s.advance(2_000)
    s.fetched(s.expect("Fetch", node=2), {0: None})
    assert s.expect("Fetch", node=1).body["rack_id"] == "east"


def test_a_replica_that_nobody_knows_leads_back_to_the_leader() -> None:
    s = racked()
    redirect(s, 99)
    s.none("Fetch")  # not at full speed
    s.advance(200)
    fetch = s.expect("Fetch", node=1)
    assert (offset(fetch), fetch.body["rack_id"]) == (0, "")  # it would only say 99 again
    s.fetched(fetch, {0: batch(0)})
    assert len(s.take()) == 10
    for _ in range(7):
        s.advance(10_000)
        s.fetched(s.expect("Fetch", node=1), {0: None})
    assert s.expect("Fetch", node=1).body["rack_id"] == "east"  # it may know better by now


def test_a_replica_that_cannot_be_reached_leads_back_to_the_leader() -> None:
    s = racked()
    s.down.add("b2")
    redirect(s, 2)
    fetch = s.expect("Fetch", node=1)
    assert (offset(fetch), fetch.body["rack_id"]) == (0, "")
    s.fetched(fetch, {0: batch(0)})
    assert len(s.take()) == 10
    assert [host for _, host in s.connects].count("b2") == 1


def test_a_replica_that_goes_away_leads_back_to_the_leader() -> None:
    s = racked()
    redirect(s, 2)
    fetch = s.expect("Fetch", node=2)
    s.down.add("b2")
    s.lose(fetch.conn)
    s.advance(200)
    assert offset(s.expect("Fetch", node=1)) == 0


def test_out_of_range_at_a_follower_is_no_reset() -> None:
    """apache/kafka#6731: the follower may be behind; what the leader says of the offset counts."""
    s = racked()
    redirect(s, 2)
    s.fetched(s.expect("Fetch", node=2), {0: 1})
    fetch = s.expect("Fetch", node=1)
    assert (offset(fetch), fetch.body["rack_id"]) == (0, "")
    s.none("ListOffsets")
    s.fetched(fetch, {0: 1})
    s.found(s.expect("ListOffsets"), {0: 40})
    assert offset(s.expect("Fetch", node=1)) == 40
    assert s.count("Fetch") == 4


@pytest.mark.parametrize("code", [6, 74, 9, 3, 56, 75])
def test_errors_of_a_follower_lead_to_the_leader(code: int) -> None:
    s = racked()
    redirect(s, 2)
    before = s.count("Metadata")
    s.fetched(s.expect("Fetch", node=2), {0: code})
    assert offset(s.expect("Fetch", node=1)) == 0
    s.advance(1000)
    assert s.count("Metadata") == before + 1


def test_two_nodes_that_send_us_to_each_other_are_left_after_one_round() -> None:
    s = racked()
    redirect(s, 2)
    redirect(s, 1, node=2)
    for _ in range(20):
        fetches = [asked for asked in s.asked if asked.api.name == "Fetch"]
        for fetch in fetches:
            s.fetched(fetch, {0: None}, preferred_read_replica=3 - fetch.node)
        s.advance(100)
    assert s.count("Fetch") < 30  # in two seconds; a ping-pong would have no end


def test_a_new_leader_ends_the_advice_that_names_it() -> None:
    s = racked()
    redirect(s, 2)
    s.fetched(s.expect("Fetch", node=2), {0: batch(0)})
    s.leaders["t", 0] = (2, 6)
    s.engine.metadata.request_update()
    s.advance(1000)
    s.leaders["t", 0] = (3, 7)
    s.engine.metadata.request_update()
    s.advance(1000)
    for asked in [a for a in s.asked if a.api.name == "Fetch" and a.node == 2]:
        s.fetched(asked, {})
    assert s.expect("Fetch", node=3)


# --- KIP-951 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [6, 74])
def test_a_leader_named_in_the_answer_is_asked_at_once(code: int) -> None:
    s = Script(1, nodes=2, versions={"Fetch": (4, 16)})
    s.topic_ids["t"] = b"a" * 16
    s.leaders["t", 0] = (1, 5)
    s.started(0)
    fetch = s.expect("Fetch", node=1)
    assert fetch.version == 16
    before = s.count("Metadata")
    s.leaders["t", 0] = (3, 6)
    s.nodes[3] = "b3"
    s.auto.discard("Metadata")  # however long metadata takes
    endpoints = [{"node_id": 3, "host": "b3", "port": 9003, "rack": None}]
    s.fetched(fetch, {0: code}, endpoints=endpoints, current_leader={"leader_id": 3, "leader_epoch": 6})
    new = s.expect("Fetch", node=3)
    assert new.body["topics"][0]["partitions"][0]["fetch_offset"] == 0
    assert new.body["topics"][0]["partitions"][0]["current_leader_epoch"] == 6
    s.advance(1000)
    assert s.count("Metadata") == before + 1  # and yet looked up


@pytest.mark.parametrize(
    ("leader", "endpoints"),
    [
        ({"leader_id": 2, "leader_epoch": 5}, []),  # not newer than what is known
        ({"leader_id": 2, "leader_epoch": 3}, []),
        ({"leader_id": 9, "leader_epoch": 6}, []),  # lives nobody knows where
        ({"leader_id": 9, "leader_epoch": 6}, [{"node_id": 9, "host": "b9", "port": 0, "rack": None}]),
        ({"leader_id": 9, "leader_epoch": 6}, [{"node_id": 8, "host": "b8", "port": 9008, "rack": None}]),
    ],
)
def test_a_leader_that_is_no_news_is_waited_for(leader: dict[str, int], endpoints: list[dict[str, Any]]) -> None:
    s = Script(1, nodes=2, versions={"Fetch": (4, 16)})
    s.topic_ids["t"] = b"a" * 16
    s.leaders["t", 0] = (1, 5)
    s.started(0)
    s.auto.discard("Metadata")
    s.fetched(s.expect("Fetch", node=1), {0: 6}, endpoints=endpoints, current_leader=leader)
    s.none("Fetch")
    assert not {"b8", "b9"} & {host for _, host in s.connects}
