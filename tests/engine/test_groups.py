"""Asking about groups: every broker for a list, the right broker for a description, and nobody hides the others."""

from __future__ import annotations

from typing import Any

import pytest

from fastfetch.engine.groups import GroupDescription
from fastfetch.errors import BrokerError, ConnectionFailedError, GroupAuthorizationError, UnsupportedVersionError
from fastfetch.errors import TimeoutError as TimedOut
from fastfetch.protocol import consumer_protocol
from fastfetch.types import TopicPartition
from tests.engine.script import Asked, Body, Script

GROUP_APIS = {"ListGroups": (0, 5), "DescribeGroups": (0, 6), "ConsumerGroupDescribe": (0, 1)}
LIMIT_MS = 10_000


def script(nodes: int = 1, *, versions: dict[str, tuple[int, int]] | None = None, **settings: Any) -> Script:
    """FindCoordinator is answered by the tests."""
    s = Script(nodes=nodes, versions=GROUP_APIS | (versions or {}), **settings)
    s.auto.discard("FindCoordinator")
    return s


def listed(group_id: str, group_type: str = "Classic", state: str = "Stable", protocol: str = "consumer") -> Body:
    return {"group_id": group_id, "group_type": group_type, "group_state": state, "protocol_type": protocol}


def classic(
    group_id: str, state: str = "Stable", protocol: str = "consumer", members: tuple[Body, ...] = (), code: int = 0
) -> Body:
    told = {"error_code": code, "group_id": group_id, "group_state": state, "protocol_type": protocol, "protocol_data": "range"}
    return told | {"members": list(members)}


def consumer(group_id: str, members: tuple[Body, ...] = (), code: int = 0) -> Body:
    told = {"error_code": code, "group_id": group_id, "group_state": "Stable", "group_epoch": 7, "assignment_epoch": 6}
    return told | {"assignor_name": "uniform", "members": list(members)}


def found(s: Script, asked: Asked, nodes: dict[str, int | tuple[int, int]]) -> None:
    """Answer a FindCoordinator of version 4 or later: group -> node, or (error code, node)."""
    coordinators = []
    for key, what in nodes.items():
        code, node = what if isinstance(what, tuple) else (0, what)
        where = {"node_id": node, "host": s.nodes.get(node, ""), "port": 9000 + node}
        coordinators.append({"key": key, "error_code": code, **where})
    s.answer(asked, {"coordinators": coordinators})


# ------------------------------------------------------------------------------------------------------------------- listing


def test_every_broker_is_asked_for_its_groups() -> None:
    s = script(3)
    pending = s.engine.groups.list_groups((), (), s.now + LIMIT_MS)
    s.run()
    for node, names in {2: ["b"], 1: ["c", "a"], 3: []}.items():
        assert not pending.done
        asked = s.expect("ListGroups", node=node)
        assert (asked.body["states_filter"], asked.body["types_filter"]) == ([], [])
        s.answer(asked, {"groups": [listed(name) for name in names]})
    listing = pending.result()
    assert [(group.group_id, group.coordinator) for group in listing.groups] == [("a", 1), ("b", 2), ("c", 1)]
    assert listing.groups[0].type == "classic"
    assert listing.missing == {}
    assert s.count("ListGroups") == 3


def test_filters_go_to_the_brokers() -> None:
    s = script()
    s.engine.groups.list_groups(["Empty"], ["consumer"], s.now + LIMIT_MS)
    body = s.expect("ListGroups").body
    assert (body["states_filter"], body["types_filter"]) == (["Empty"], ["consumer"])


@pytest.mark.parametrize(("states", "types", "highest"), [(["Empty"], [], 3), ([], ["classic"], 4)])
def test_a_broker_that_does_not_know_the_filter_does_not_answer_without_it(
    states: list[str], types: list[str], highest: int
) -> None:
    s = script(versions={"ListGroups": (0, highest)})
    pending = s.engine.groups.list_groups(states, types, s.now + LIMIT_MS)
    s.run()
    with pytest.raises(UnsupportedVersionError, match=f"ListGroups.*speaks versions 0 to {highest}"):
        pending.result()


def test_a_broker_too_old_to_tell_states_and_types() -> None:
    s = script(versions={"ListGroups": (0, 2)})
    pending = s.engine.groups.list_groups((), (), s.now + LIMIT_MS)
    s.answer(s.expect("ListGroups"), {"groups": [{"group_id": "g", "protocol_type": "consumer"}]})
    [group] = pending.result().groups
    assert (group.type, group.state) == ("", "")


def test_a_broker_that_is_down_does_not_hide_the_others() -> None:
    s = script(3)
    s.run()
    s.down.add("b2")
    pending = s.engine.groups.list_groups((), (), s.now + LIMIT_MS)
    s.run()
    for node in (1, 3):
        s.answer(s.expect("ListGroups", node=node), {"groups": [listed(f"of-{node}")]})
    assert not pending.done, "it may only have been one connection"
    s.advance(3000)
    listing = pending.result()
    assert [group.group_id for group in listing.groups] == ["of-1", "of-3"]
    assert list(listing.missing) == [2]
    assert "connection refused" in str(listing.missing[2])
    assert [host for _, host in s.connects].count("b2") == 3


def test_a_broker_that_hangs_is_missing_once_the_time_is_up() -> None:
    s = script(2)
    pending = s.engine.groups.list_groups((), (), s.now + LIMIT_MS)
    s.answer(s.expect("ListGroups", node=1), {"groups": [listed("g")]})
    asked = s.expect("ListGroups", node=2)
    s.advance(LIMIT_MS - 1)
    assert not pending.done
    s.engine.has_news = False
    s.advance(1)
    listing = pending.result()
    assert [group.group_id for group in listing.groups] == ["g"]
    assert isinstance(listing.missing[2], TimedOut)
    assert s.engine.has_news, "whoever waits is told"
    s.answer(asked, {"groups": [listed("late")]})
    assert pending.result() is listing


def test_a_broker_that_loads_is_asked_again() -> None:
    s = script()
    pending = s.engine.groups.list_groups((), (), s.now + LIMIT_MS)
    s.answer(s.expect("ListGroups"), {"error_code": 14, "groups": []})
    s.none("ListGroups")
    s.advance(200)
    s.answer(s.expect("ListGroups"), {"groups": [listed("g")]})
    assert [group.group_id for group in pending.result().groups] == ["g"]


def test_why_the_time_was_not_enough() -> None:
    s = script(2)
    pending = s.engine.groups.list_groups((), (), s.now + 150)
    s.answer(s.expect("ListGroups", node=1), {"groups": []})
    s.answer(s.expect("ListGroups", node=2), {"error_code": 14, "groups": []})
    s.advance(150)
    late = pending.result().missing[2]
    assert isinstance(late, TimedOut)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in str(late)


def test_nobody_allows_it() -> None:
    s = script(2)
    pending = s.engine.groups.list_groups((), (), s.now + LIMIT_MS)
    for node in (1, 2):
        s.answer(s.expect("ListGroups", node=node), {"error_code": 31, "groups": []})
    with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
        pending.result()


def test_a_broker_that_leaves_the_cluster_meanwhile() -> None:
    s = script(2)
    s.run()
    pending = s.engine.groups.list_groups((), (), s.now + LIMIT_MS)
    s.answer(s.expect("ListGroups", node=1), {"groups": []})
    s.expect("ListGroups", node=2)
    del s.nodes[2]
    s.engine.metadata.request_update()
    s.advance(1000)
    assert "left the cluster" in str(pending.result().missing[2])


def test_a_question_given_up_is_not_asked_any_more() -> None:
    s = script(1)
    pending = s.engine.groups.list_groups((), (), s.now + LIMIT_MS)
    describing = s.engine.groups.describe(["g"], s.now + LIMIT_MS)
    pending.cancel()
    describing.cancel()
    s.advance(1000)
    assert (s.count("ListGroups"), s.count("FindCoordinator")) == (0, 0)


# ---------------------------------------------------------------------------------------------------------------- describing


def test_each_group_is_described_by_its_coordinator_in_the_words_of_its_protocol() -> None:
    s = script(2)
    pending = s.engine.groups.describe(["old", "new", "gone"], s.now + LIMIT_MS)
    asked = s.expect("FindCoordinator")
    assert (asked.body["key_type"], asked.body["coordinator_keys"]) == (0, ["old", "new", "gone"])
    found(s, asked, {"old": 1, "new": 2, "gone": 2})
    asked = s.expect("ConsumerGroupDescribe", node=1)
    assert asked.body["group_ids"] == ["old"]
    s.answer(asked, {"groups": [consumer("old", code=69)]})
    assignment = consumer_protocol.encode_assignment(
        consumer_protocol.Assignment((TopicPartition("t", 1), TopicPartition("s", 0)))
    )
    member = {"member_id": "m", "group_instance_id": "i", "client_id": "c", "client_host": "/h", "member_metadata": b""}
    s.answer(
        s.expect("DescribeGroups", node=1), {"groups": [classic("old", members=(member | {"member_assignment": assignment},))]}
    )
    epochs = {"topic_partitions": [{"topic_id": bytes(16), "topic_name": "t", "partitions": [3, 1]}]}
    member = {"member_id": "n", "member_epoch": 6, "client_id": "c", "client_host": "/h", "member_type": 1}
    member |= {"subscribed_topic_names": ["t"], "assignment": {"topic_partitions": []}, "target_assignment": epochs}
    asked = s.expect("ConsumerGroupDescribe", node=2)
    s.answer(asked, {"groups": [consumer("gone", code=69), consumer("new", (member,))]})
    s.answer(s.expect("DescribeGroups", node=2), {"groups": [classic("gone", code=69)]})
    described = pending.result()
    old, new, gone = described["old"], described["new"], described["gone"]
    assert isinstance(old, GroupDescription)
    assert (old.type, old.coordinator, old.address, old.assignor, old.epoch) == ("classic", 1, "b1:9001", "range", None)
    assert (old.members[0].instance_id, old.members[0].assignment) == ("i", (("s", 0), ("t", 1)))
    assert isinstance(new, GroupDescription)
    assert (new.type, new.coordinator, new.assignor, new.epoch, new.assignment_epoch) == ("consumer", 2, "uniform", 7, 6)
    assert (new.members[0].epoch, new.members[0].protocol) == (6, "consumer")
    assert (new.members[0].assignment, new.members[0].target) == ((), (("t", 1), ("t", 3)))
    assert isinstance(gone, BrokerError)
    assert str(gone) == "group 'gone' does not exist: GROUP_ID_NOT_FOUND (code 69)"


def test_brokers_of_old() -> None:
    """No ConsumerGroupDescribe, one group a FindCoordinator, and a group that is not there is Dead."""
    s = script(versions={"FindCoordinator": (0, 3), "DescribeGroups": (0, 5), "ConsumerGroupDescribe": (5, 9)})
    pending = s.engine.groups.describe(["a", "b"], s.now + LIMIT_MS)
    where = {"error_code": 0, "node_id": 1, "host": "b1", "port": 9001}
    for key in ("a", "b"):
        asked = s.expect("FindCoordinator")
        assert asked.body["key"] == key
        s.answer(asked, where)
    for asked in [asked for asked in s.asked if asked.api.name == "DescribeGroups"]:
        told = {"a": classic("a", "Empty"), "b": classic("b", "Dead", protocol="")}
        s.answer(asked, {"groups": [told[name] for name in asked.body["groups"]]})
    described = pending.result()
    assert isinstance(described["a"], GroupDescription)
    assert described["a"].state == "Empty"
    assert isinstance(described["b"], BrokerError)
    assert described["b"].code == 69
    assert s.count("ConsumerGroupDescribe") == 0


def test_a_broker_with_the_new_protocol_switched_off() -> None:
    s = script()
    pending = s.engine.groups.describe(["g"], s.now + LIMIT_MS)
    found(s, s.expect("FindCoordinator"), {"g": 1})
    s.answer(s.expect("ConsumerGroupDescribe"), {"groups": [consumer("g", code=35)]})
    s.answer(s.expect("DescribeGroups"), {"groups": [classic("g", "Empty")]})
    assert isinstance(pending.result()["g"], GroupDescription)


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_coordinator_that_loads_or_has_moved(code: int) -> None:
    s = script(2)
    pending = s.engine.groups.describe(["g"], s.now + LIMIT_MS)
    found(s, s.expect("FindCoordinator"), {"g": 1})
    s.answer(s.expect("ConsumerGroupDescribe", node=1), {"groups": [consumer("g", code=code)]})
    s.none("ConsumerGroupDescribe")
    s.advance(200)
    node = 1
    if code != 14:
        node = 2
        found(s, s.expect("FindCoordinator"), {"g": node})
    s.answer(s.expect("ConsumerGroupDescribe", node=node), {"groups": [consumer("g")]})
    told = pending.result()["g"]
    assert isinstance(told, GroupDescription)
    assert told.coordinator == node


def test_a_coordinator_that_is_lost_is_looked_for_again() -> None:
    s = script(2)
    pending = s.engine.groups.describe(["g"], s.now + LIMIT_MS)
    found(s, s.expect("FindCoordinator"), {"g": 1})
    s.lose(s.expect("ConsumerGroupDescribe", node=1).conn)
    s.down.add("b1")
    s.advance(200)
    found(s, s.expect("FindCoordinator"), {"g": 1})
    s.advance(200)  # which can't be reached
    found(s, s.expect("FindCoordinator"), {"g": 2})
    s.answer(s.expect("ConsumerGroupDescribe", node=2), {"groups": [consumer("g")]})
    assert isinstance(pending.result()["g"], GroupDescription)


def test_no_coordinator_until_the_time_is_up() -> None:
    """The other group is told all the same."""
    s = script()
    pending = s.engine.groups.describe(["g", "h", "i"], s.now + 5000)
    found(s, s.expect("FindCoordinator"), {"g": (15, -1), "h": 1, "i": (30, -1)})
    s.answer(s.expect("ConsumerGroupDescribe"), {"groups": [consumer("h")]})
    for _ in range(20):
        s.advance(250)
        for asked in [asked for asked in s.asked if asked.api.name == "FindCoordinator"]:
            assert asked.body["coordinator_keys"] == ["g"]
            found(s, asked, {"g": (15, -1)})
    described = pending.result()
    assert isinstance(described["h"], GroupDescription)
    assert isinstance(described["i"], GroupAuthorizationError)
    assert str(described["i"]) == "not allowed to use group 'i': GROUP_AUTHORIZATION_FAILED (code 30)"
    assert isinstance(described["g"], TimedOut)
    assert "COORDINATOR_NOT_AVAILABLE" in str(described["g"])
    assert 4 <= s.count("FindCoordinator") <= 30, "with back-off"


def test_a_group_left_out_of_the_answer_is_not_known_yet() -> None:
    s = script()
    pending = s.engine.groups.describe(["g"], s.now + LIMIT_MS)
    found(s, s.expect("FindCoordinator"), {})
    s.advance(200)
    found(s, s.expect("FindCoordinator"), {"g": 1, "other": 1})
    s.answer(s.expect("ConsumerGroupDescribe"), {"groups": [consumer("other")]})
    assert not pending.done
    s.advance(1000)
    found(s, s.expect("FindCoordinator"), {"g": 1})
    s.answer(s.expect("ConsumerGroupDescribe"), {"groups": [consumer("g")]})
    assert list(pending.result()) == ["g"]


def test_no_groups_at_all_need_no_broker() -> None:
    assert script().engine.groups.describe([], 0).result() == {}


@pytest.mark.parametrize(("protocol", "data"), [("connect", b"\0\1\0\0"), ("consumer", b"\0\0\0\0\0\x09")])
def test_an_assignment_that_is_not_in_the_words_of_consumers(protocol: str, data: bytes) -> None:
    s = script(versions={"DescribeGroups": (0, 5)})
    pending = s.engine.groups.describe(["g"], s.now + LIMIT_MS)
    found(s, s.expect("FindCoordinator"), {"g": 1})
    s.answer(s.expect("ConsumerGroupDescribe"), {"groups": [consumer("g", code=69)]})
    member = {"member_id": "m", "client_id": "c", "client_host": "/h", "member_metadata": b"", "member_assignment": data}
    s.answer(s.expect("DescribeGroups"), {"groups": [classic("g", protocol=protocol, members=(member,))]})
    told = pending.result()["g"]
    assert isinstance(told, GroupDescription)
    assert [each.assignment for each in told.members] == [None]


def test_a_rebalancing_member_has_nothing_yet() -> None:
    s = script()
    pending = s.engine.groups.describe(["g"], s.now + LIMIT_MS)
    found(s, s.expect("FindCoordinator"), {"g": 1})
    s.answer(s.expect("ConsumerGroupDescribe"), {"groups": [consumer("g", code=69)]})
    member = {"member_id": "m", "client_id": "c", "client_host": "/h", "member_metadata": b"", "member_assignment": b""}
    s.answer(s.expect("DescribeGroups"), {"groups": [classic("g", "PreparingRebalance", members=(member,))]})
    told = pending.result()["g"]
    assert isinstance(told, GroupDescription)
    assert [each.assignment for each in told.members] == [()]


def test_no_broker_can_be_reached() -> None:
    s = script(nodes=1)
    s.down |= {"boot", "b1"}
    listing = s.engine.groups.list_groups((), (), s.now + LIMIT_MS)
    describing = s.engine.groups.describe(["g"], s.now + LIMIT_MS)
    s.advance(LIMIT_MS + 1000)
    assert (listing.done, describing.done) == (False, False), "whoever waits looks at this"
    assert isinstance(s.engine.unreachable(), ConnectionFailedError)
