"""Groups of the broker, over plain sockets. That Kafka answers the same is in tests/live/test_scripted_groups.py; other clients
are members in test_peers_groups.py."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fastfetch.errors import TimeoutError as TimedOut
from fastfetch.errors import UsageError
from fastfetch.protocol.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from fastfetch.testing import Broker, Gate, cut, delay, drop, error, hold, replace, top_error
from fastfetch.types import OffsetAndMetadata, TopicPartition
from tests.testing.wire import Wire, only


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as made:
        made.create_topic("t", partitions=4)
        yield made


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker) as made:
        yield made


@pytest.fixture
def other(broker: Broker) -> Iterator[Wire]:
    with Wire(broker) as made:
        yield made


def tps(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("t", p) for p in numbers)


# --------------------------------------------------------------------------------------------------------- classic protocol


def joining(member_id: str = "", *, session: float = 30, rebalance: float = 30, group: str = "g", **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout_ms": round(session * 1000),
        "rebalance_timeout_ms": round(rebalance * 1000),
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": encode_subscription(Subscription(("t",)))}],
    } | more


def signed(member_id: str, generation: int, **more: Any) -> dict[str, Any]:
    return {"group_id": "g", "member_id": member_id, "generation_id": generation} | more


def syncing(member_id: str, generation: int, given: dict[str, frozenset[TopicPartition]] | None = None) -> dict[str, Any]:
    assignments = [
        {"member_id": each, "assignment": encode_assignment(Assignment(tuple(sorted(share))))}
        for each, share in (given or {}).items()
    ]
    return signed(member_id, generation, protocol_type="consumer", protocol_name="range", assignments=assignments)


def beat(wire: Wire, member_id: str, generation: int) -> int:
    return int(wire.call("Heartbeat", 4, **signed(member_id, generation))["error_code"])


def commit(wire: Wire, member_id: str, generation: int, offset: int = 7) -> int:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    body = {"group_id": "g", "member_id": member_id, "generation_id_or_member_epoch": generation}
    return int(only(wire.call("OffsetCommit", 9, **body, topics=[{"name": "t", "partitions": [partition]}]))["error_code"])


def first_member(wire: Wire, **more: Any) -> str:
    """Alone in its group with all partitions; generation 1."""
    member_id = str(wire.call("JoinGroup", 9, **joining(**more))["member_id"])
    assert wire.call("JoinGroup", 9, **joining(member_id, **more))["leader"] == member_id
    wire.call("SyncGroup", 5, **syncing(member_id, 1, {member_id: tps(0, 1, 2, 3)}))
    return member_id


def send_second(broker: Broker, other: Wire, **more: Any) -> str:
    """Another one, whose JoinGroup waits for the first."""
    member_id = str(other.call("JoinGroup", 9, **joining(**more))["member_id"])
    other.send("JoinGroup", 9, **joining(member_id, **more))
    broker.wait_for_group("g", state="PreparingRebalance", members=2)
    return member_id


def two_members(broker: Broker, wire: Wire, other: Wire, **more: Any) -> tuple[str, str]:
    """Stable, two partitions each, generation 2."""
    first = first_member(wire)
    second = send_second(broker, other, **more)
    wire.call("JoinGroup", 9, **joining(first))
    assert other.read("JoinGroup", 9)["members"] == []
    other.send("SyncGroup", 5, **syncing(second, 2))
    wire.call("SyncGroup", 5, **syncing(first, 2, {first: tps(0, 1), second: tps(2, 3)}))
    other.read("SyncGroup", 5)
    return first, second


def test_two_members_share_and_one_leaves(broker: Broker, wire: Wire, other: Wire) -> None:
    assert (broker.group("g").state, broker.group("g").generation, broker.group("g").members) == ("Empty", 0, {})
    first, second = two_members(broker, wire, other)
    seen = broker.group("g")
    assert (seen.state, seen.generation, seen.protocol, seen.leader) == ("Stable", 2, "range", first)
    assert seen.assignments == {first: tps(0, 1), second: tps(2, 3)}
    assert seen.assigned == sorted(tps(0, 1, 2, 3))
    member = seen.members[second]
    assert (member.client_id, member.host, member.topics, member.epoch) == ("wire", "/127.0.0.1", frozenset({"t"}), 2)
    assert commit(other, second, 2) == 0
    assert [beat(wire, first, 1), commit(wire, first, 3), wire.call("SyncGroup", 5, **syncing(first, 1))["error_code"]] == [
        22
    ] * 3
    assert other.call("LeaveGroup", 5, group_id="g", members=[{"member_id": second}])["members"][0]["error_code"] == 0
    assert [beat(wire, first, 2), beat(other, second, 2)] == [27, 25]
    assert [commit(wire, first, 2, 8), commit(other, second, 2, 9), commit(other, "", -1, 9)] == [0, 25, 25]
    assert wire.call("JoinGroup", 9, **joining(first))["generation_id"] == 3
    assert commit(wire, first, 3) == 27  # between JoinGroup and SyncGroup nobody may
    wire.call("LeaveGroup", 5, group_id="g", members=[{"member_id": first}])
    seen = broker.group("g")
    assert (seen.state, seen.generation, seen.protocol, seen.leader) == ("Empty", 4, None, None)
    assert broker.committed("g") == {TopicPartition("t", 0): OffsetAndMetadata(8)}
    assert commit(wire, "", -1, 10) == 0  # an empty group takes commits from outside


def test_a_join_that_waits_holds_up_nobody_else(broker: Broker, wire: Wire, other: Wire) -> None:
    first_member(wire)
    send_second(broker, other)
    with Wire(broker) as third:
        assert third.call("Metadata", 12, topics=[{"name": "t"}])["topics"][0]["error_code"] == 0
        assert third.call("JoinGroup", 9, **joining(group="h"))["error_code"] == 79
    start = time.monotonic()
    broker.kill_node(1)
    assert other.receive() == b""
    broker.close()
    assert time.monotonic() - start < 4
    assert not [t for t in threading.enumerate() if t.name.startswith("fastfetch-broker-1-")]


def test_a_silent_member_is_out_though_nobody_asks(broker: Broker, wire: Wire, other: Wire) -> None:
    first, _ = two_members(broker, wire, other, session=1.0)
    broker.wait_for_group("g", state="PreparingRebalance", members=1)
    assert beat(wire, first, 2) == 27


def test_heartbeats_and_commits_keep_a_session_alive(broker: Broker, wire: Wire) -> None:
    member = first_member(wire, session=2.0)
    for _ in range(4):
        time.sleep(0.3)
        assert beat(wire, member, 1) == 0
        time.sleep(0.3)
        assert commit(wire, member, 1) == 0
    assert broker.group("g").state == "Stable"
    broker.wait_for_group("g", state="Empty", members=0)
    assert commit(wire, member, 1) == 25


def test_who_does_not_join_again_in_time_is_out(broker: Broker, wire: Wire, other: Wire) -> None:
    first = first_member(wire, rebalance=1.0)
    second = send_second(broker, other, rebalance=1.0)
    assert other.read("JoinGroup", 9)["leader"] == second
    assert list(broker.group("g").members) == [second]
    assert beat(wire, first, 1) == 25


def test_an_id_that_is_not_used_is_void_and_holds_up_the_others(broker: Broker, wire: Wire, other: Wire) -> None:
    unused = other.call("JoinGroup", 9, **joining(session=0.3))
    assert unused["error_code"] == 79
    first = first_member(wire)  # a new group does not wait for it
    began = time.monotonic()
    assert wire.call("JoinGroup", 9, **joining(first))["generation_id"] == 2
    assert time.monotonic() - began < 5
    assert other.call("JoinGroup", 9, **joining(unused["member_id"]))["error_code"] == 25


def test_the_first_rebalance_waits_for_more_members() -> None:
    with Broker(initial_rebalance_delay=1.0) as broker, Wire(broker) as wire, Wire(broker) as other:
        ids = [each.call("JoinGroup", 9, **joining())["member_id"] for each in (wire, other)]
        for each, member_id in zip((wire, other), ids, strict=True):
            each.send("JoinGroup", 9, **joining(member_id))
        answers = [each.read("JoinGroup", 9) for each in (wire, other)]
        assert [a["generation_id"] for a in answers] == [1, 1]
        assert sorted(len(a["members"]) for a in answers) == [0, 2]


def test_another_coordinator_knows_the_last_complete_generation() -> None:
    with Broker(nodes=2) as broker:
        broker.move_coordinator("g", 1)
        with Wire(broker, 1) as one, Wire(broker, 1) as other, Wire(broker, 2) as two:
            first = first_member(one)
            send_second(broker, other)
            broker.move_coordinator("g", 2)
            assert other.read("JoinGroup", 9)["error_code"] == 16
            assert beat(one, first, 1) == 16
            assert beat(two, first, 1) == 0
            assert broker.group("g").assignments == {first: tps(0, 1, 2, 3)}
            assert commit(two, first, 1) == 3  # there is no topic, but nothing else is wrong
            assert two.call("JoinGroup", 9, **joining(first))["generation_id"] == 2


def test_a_restarted_coordinator_begins_sessions_anew(broker: Broker, wire: Wire) -> None:
    member = first_member(wire, session=1.5)
    broker.kill_node(1)
    time.sleep(1.7)
    assert list(broker.group("g").members) == [member]
    broker.restart_node(1)
    with Wire(broker) as again:
        assert beat(again, member, 1) == 0


def test_static_members_come_back_without_a_rebalance(broker: Broker, wire: Wire, other: Wire) -> None:
    static = {"group_instance_id": "one"}
    first = wire.call("JoinGroup", 9, **joining(**static))["member_id"]
    wire.call("SyncGroup", 5, **(syncing(first, 1, {first: tps(0)}) | static))
    again = other.call("JoinGroup", 9, **joining(**static))
    assert (again["generation_id"], again["leader"], again["skip_assignment"]) == (1, again["member_id"], True)
    assert other.call("SyncGroup", 5, **(syncing(again["member_id"], 1) | static))["error_code"] == 0
    assert wire.call("Heartbeat", 4, **signed(first, 1, **static))["error_code"] == 82
    seen = broker.group("g")
    assert (seen.state, seen.generation, seen.members[again["member_id"]].instance_id) == ("Stable", 1, "one")
    assert seen.assigned == [TopicPartition("t", 0)]


def test_a_static_member_that_is_away_keeps_its_place(broker: Broker, wire: Wire, other: Wire) -> None:
    static = {"group_instance_id": "one", "rebalance": 1.0}
    first = wire.call("JoinGroup", 9, **joining(**static))["member_id"]
    wire.call("SyncGroup", 5, **(syncing(first, 1, {first: tps(0)}) | {"group_instance_id": "one"}))
    second = send_second(broker, other, rebalance=1.0)
    joined = other.read("JoinGroup", 9)
    assert (joined["leader"], {m["member_id"] for m in joined["members"]}) == (second, {first, second})


def test_a_static_member_that_waits_is_fenced_by_its_successor(broker: Broker, wire: Wire, other: Wire) -> None:
    first = first_member(wire)
    static = {"group_instance_id": "one"}
    wire.send("JoinGroup", 9, **joining(**static))
    broker.wait_for_group("g", state="PreparingRebalance", members=2)
    other.send("JoinGroup", 9, **joining(**static))
    assert wire.read("JoinGroup", 9)["error_code"] == 82
    assert len(wire.call("JoinGroup", 9, **joining(first))["members"]) == 2
    assert other.read("JoinGroup", 9)["error_code"] == 0


def test_a_test_ends_sessions_and_calls_for_rebalances(broker: Broker, wire: Wire, other: Wire) -> None:
    for call in (lambda: broker.rebalance("g"), lambda: broker.expire_member("g", "m")):
        with pytest.raises(UsageError, match="no members"):
            call()
    first, second = two_members(broker, wire, other)
    with pytest.raises(UsageError, match="no member 'm'"):
        broker.expire_member("g", "m")
    broker.rebalance("g")
    assert [beat(wire, first, 2), beat(other, second, 2)] == [27, 27]
    broker.expire_member("g", second)
    assert beat(other, second, 2) == 25
    assert wire.call("JoinGroup", 9, **joining(first))["generation_id"] == 3
    with pytest.raises(TimedOut, match=r"CompletingRebalance with 1 members after 0.1 s"):
        broker.wait_for_group("g", members=2, timeout=0.1)


# ------------------------------------------------------------------------------------------------------------------- script


@pytest.mark.parametrize("refuse", [error, top_error])
@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"])
def test_what_is_refused_is_not_done(broker: Broker, wire: Wire, api: str, refuse: Any) -> None:
    member = first_member(wire)
    body = {
        "JoinGroup": joining(),
        "SyncGroup": syncing(member, 1),
        "Heartbeat": signed(member, 1),
        "LeaveGroup": {"group_id": "g", "members": [{"member_id": member}]},
    }
    version = {"JoinGroup": 3, "Heartbeat": 4}.get(api, 5)
    broker.on(api, refuse(15))
    asked = body[api] if version >= 5 else {k: v for k, v in body[api].items() if k != "group_instance_id"}
    assert wire.call(api, version, **asked)["error_code"] == 15
    seen = broker.group("g")
    assert (seen.state, list(seen.members)) == ("Stable", [member])


def test_answers_of_the_group_apis_are_late_cut_dropped_and_replaced(broker: Broker, wire: Wire) -> None:
    member = first_member(wire)
    broker.on("Heartbeat", delay(0.2))
    start = time.monotonic()
    assert beat(wire, member, 1) == 0
    assert time.monotonic() - start >= 0.2
    broker.on("Heartbeat", replace({"error_code": 99}))
    assert beat(wire, member, 1) == 99
    broker.on("Heartbeat", drop())
    wire.send("Heartbeat", 4, **signed(member, 1))
    wire.send("Heartbeat", 4, **signed(member, 1))
    assert wire.read("Heartbeat", 4)["error_code"] == 0
    gate = Gate()
    broker.on("LeaveGroup", hold(gate))
    with Wire(broker) as second:
        second.send("LeaveGroup", 5, group_id="g", members=[{"member_id": member}])
        assert gate.arrived.wait(5)
        assert beat(wire, member, 1) == 0
        gate.open()
        assert second.read("LeaveGroup", 5)["error_code"] == 0
    assert beat(wire, member, 1) == 25
    broker.on("JoinGroup", cut(6))
    wire.send("JoinGroup", 9, **joining())
    assert len(wire.receive()) < 4


def test_errors_of_what_tells_of_groups(broker: Broker, wire: Wire) -> None:
    first_member(wire)
    broker.on("ListGroups", error(14))
    broker.on("DescribeGroups", error(30))
    broker.on("ConsumerGroupDescribe", top_error(15))
    listed = wire.call("ListGroups", 5)
    assert (listed["error_code"], listed["groups"]) == (14, [])
    (told,) = wire.call("DescribeGroups", 6, groups=["g"])["groups"]
    assert (told["error_code"], told["members"]) == (30, [])
    assert wire.call("ConsumerGroupDescribe", 1, group_ids=["g"])["groups"][0]["error_code"] == 15
    assert [g["group_id"] for g in wire.call("ListGroups", 5)["groups"]] == ["g"]


# -------------------------------------------------------------------------------------------------------- consumer protocol


class Epochs:
    """A member under the consumer protocol: acknowledges what it is told when a test says so."""

    def __init__(self, wire: Wire, member_id: str, **more: Any) -> None:
        self.wire, self.id = wire, member_id
        self.epoch = 0
        self.owned: set[tuple[bytes, int]] = set()
        self.told: set[tuple[bytes, int]] = set()
        self.settings = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["t"]} | more

    def beat(self, *, adopt: bool = True, **more: Any) -> int:
        """Heartbeat; with `adopt` it owns afterwards what it is told, and the next heartbeat says so. Returns the error code."""
        owned = [{"topic_id": i, "partitions": [p for each, p in self.owned if each == i]} for i in {i for i, _ in self.owned}]
        body = {"group_id": "g", "member_id": self.id, "member_epoch": self.epoch, "topic_partitions": owned}
        answer = self.wire.call("ConsumerGroupHeartbeat", 1, **(body | (self.settings if not self.epoch else {}) | more))
        if answer["error_code"] == 0:
            self.epoch = answer["member_epoch"]
            if answer["assignment"] is not None:
                self.told = {(t["topic_id"], p) for t in answer["assignment"]["topic_partitions"] for p in t["partitions"]}
            if adopt:
                self.owned = self.told
        return int(answer["error_code"])

    @property
    def names(self) -> frozenset[TopicPartition]:
        topics = {t["topic_id"]: t["name"] for t in self.wire.call("Metadata", 12, topics=None)["topics"]}
        return frozenset(TopicPartition(topics[i], p) for i, p in self.owned)


def settle(broker: Broker, *members: Epochs) -> None:
    for _ in range(10):
        for member in members:
            assert member.beat() == 0
        if broker.group("g").state == "Stable":
            return
    raise AssertionError(broker.group("g"))


def test_a_partition_has_its_next_owner_after_the_old_one_gave_it_up(broker: Broker, wire: Wire) -> None:
    a, b = Epochs(wire, "a"), Epochs(wire, "b")
    assert a.beat() == 0
    assert a.names == tps(0, 1, 2, 3)
    assert b.beat() == 0
    assert (b.epoch, b.names) == (2, frozenset())
    assert a.beat(adopt=False) == 0  # it is told, and has not given up yet
    assert (a.epoch, len(a.told)) == (1, 2)
    seen = broker.group("g")
    assert (seen.state, seen.generation, seen.protocol, seen.leader) == ("Reconciling", 2, "uniform", None)
    assert len(seen.members["a"].revoking) == 2
    assert seen.members["a"].epoch == 1
    for _ in range(3):
        b.beat()
        assert not b.owned
        a.beat(adopt=False)
    a.owned = a.told
    assert a.beat() == 0
    assert b.beat() == 0
    assert len(a.names) == len(b.names) == 2
    assert a.names | b.names == tps(0, 1, 2, 3)
    seen = broker.group("g")
    assert (seen.state, seen.assignments) == ("Stable", {"a": a.names, "b": b.names})
    assert [commit(a.wire, "a", 2), commit(a.wire, "a", 1), commit(a.wire, "x", 2), commit(a.wire, "", -1)] == [0, 113, 25, 25]
    assert b.beat(member_epoch=-1) == 0
    assert a.beat() == 0
    assert a.names == tps(0, 1, 2, 3)


def test_who_keeps_what_it_should_give_up_is_thrown_out(broker: Broker, wire: Wire) -> None:
    a, b = Epochs(wire, "a", rebalance_timeout_ms=300), Epochs(wire, "b")
    a.beat()
    b.beat()
    a.beat(adopt=False)
    broker.wait_for_group("g", state="Assigning", members=1)
    assert a.beat() == 25
    assert b.beat() == 0
    assert b.names == tps(0, 1, 2, 3)


def test_fencing_by_epoch_and_instance(wire: Wire) -> None:
    a = Epochs(wire, "a")
    a.beat()
    assert a.beat(member_epoch=7) == 110
    assert Epochs(wire, "b").beat(member_epoch=3) == 25
    s = Epochs(wire, "s", instance_id="one")
    assert s.beat() == 0
    assert Epochs(wire, "u", instance_id="one").beat() == 111
    assert Epochs(wire, "u", instance_id="one").beat(member_epoch=2) == 82
    assert s.beat(member_epoch=-2, instance_id="one") == 0
    assert Epochs(wire, "u", instance_id="one").beat() == 0


def test_sessions_under_the_consumer_protocol() -> None:
    with Broker(consumer_session=0.3, consumer_heartbeat=0.1) as broker, Wire(broker) as wire:
        broker.create_topic("t")
        a = Epochs(wire, "a")
        a.beat()
        broker.wait_for_group("g", state="Empty", members=0)
        assert a.beat() == 25


def test_patterns_new_partitions_and_topics_that_go(broker: Broker, wire: Wire) -> None:
    broker.create_topic("u.1")
    a = Epochs(wire, "a", subscribed_topic_names=[], subscribed_topic_regex="u.*|x")
    b = Epochs(wire, "b", subscribed_topic_names=["t"])
    settle(broker, a, b)
    assert a.names == {TopicPartition("u.1", 0)}
    broker.create_topic("u.2", 2)
    broker.add_partitions("t", 6)
    a.beat()  # the first to come shows the broker that topics have changed
    settle(broker, a, b)
    assert a.names == {TopicPartition("u.1", 0), TopicPartition("u.2", 0), TopicPartition("u.2", 1)}
    assert b.names == tps(*range(6))
    broker.delete_topic("t")
    settle(broker, a, b)
    assert (len(a.names), b.names) == (3, frozenset())


def test_assignors_of_the_broker(broker: Broker, wire: Wire) -> None:
    broker.create_topic("u", 1)
    a = Epochs(wire, "a", subscribed_topic_names=["t", "u"], server_assignor="range")
    b = Epochs(wire, "b", subscribed_topic_names=["t"], server_assignor="range")
    settle(broker, a, b)
    assert (a.names, b.names) == (tps(0, 1) | {TopicPartition("u", 0)}, tps(2, 3))
    assert broker.group("g").protocol == "range"
    for member in (a, b):
        member.beat(server_assignor="uniform")
    broker.rebalance("g")
    settle(broker, a, b)
    assert broker.group("g").protocol == "uniform"
    assert sorted([len(a.names), len(b.names)]) == [2, 3]
    c = Epochs(wire, "c", subscribed_topic_names=["u"])
    settle(broker, a, b, c)
    assert sorted(map(len, (a.names, b.names, c.names))) == [1, 2, 2]


def test_one_protocol_a_group(broker: Broker, wire: Wire, other: Wire) -> None:
    member = first_member(other)
    assert Epochs(wire, "a").beat() == 69
    other.call("LeaveGroup", 5, group_id="g", members=[{"member_id": member}])
    assert Epochs(wire, "a").beat() == 0
    assert other.call("JoinGroup", 9, **joining())["error_code"] == 23
    assert beat(other, member, 1) == 25
