"""The broker of `fastfetch.testing` answers what members of groups ask word for word as Kafka does.

Each dialogue is held with both, and what they answered is compared, all fields of it, but for texts and the names of ids.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from fastfetch.testing import Broker
from tests.live.conftest import Kafka
from tests.live.dialogue import Dialogue, differences
from tests.testing.wire import Wire

LONG, SHORT = 30_000, 1_000


# ------------------------------------------------------------------------------------------------------------ what is asked


def join(
    d: Dialogue,
    member_id: str = "",
    *,
    protocols: str = "range",
    metadata: bytes = b"m",
    session: int = LONG,
    rebalance: int = LONG,
    **more: Any,
) -> dict[str, Any]:
    return {
        "group_id": d.group,
        "session_timeout_ms": session,
        "rebalance_timeout_ms": rebalance,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": name, "metadata": metadata} for name in protocols.split()],
    } | more


def signed(d: Dialogue, member_id: str, generation: int, **more: Any) -> dict[str, Any]:
    return {"group_id": d.group, "member_id": member_id, "generation_id": generation} | more


def sync(d: Dialogue, member_id: str, generation: int, given: dict[str, bytes] | None = None, **more: Any) -> dict[str, Any]:
    assignments = [{"member_id": each, "assignment": share} for each, share in (given or {}).items()]
    named = {"protocol_type": "consumer", "protocol_name": "range"}
    return signed(d, member_id, generation, assignments=assignments) | named | more


def commit(d: Dialogue, member_id: str = "", generation: int = -1, **more: Any) -> dict[str, Any]:
    partition = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
    return {
        "group_id": d.group,
        "member_id": member_id,
        "generation_id_or_member_epoch": generation,
        "topics": [{"name": d.topic, "partitions": [partition]}],
    } | more


def first_member(d: Dialogue, who: str = "a", **more: Any) -> str:
    """Alone in its group, which is stable after it."""
    member_id = str(d.ask(who, "JoinGroup", 9, **join(d, **more))["member_id"])
    d.ask(who, "JoinGroup", 9, **join(d, member_id, **more))
    d.ask(who, "SyncGroup", 5, **sync(d, member_id, 1, {member_id: b"all"}))
    return member_id


def second_member(d: Dialogue, first: str, generation: int = 1, **more: Any) -> str:
    """Another one waits until the first joins again."""
    member_id = str(d.ask("b", "JoinGroup", 9, **join(d, **more))["member_id"])
    d.send("b", "JoinGroup", 9, **join(d, member_id, **more))
    d.until("a", "Heartbeat", 4, signed(d, first, generation), lambda answer: answer["error_code"] == 27)
    return member_id


def describe(d: Dialogue, version: int = 6) -> None:
    d.ask("admin", "DescribeGroups", version, groups=[d.group])


# --------------------------------------------------------------------------------------------------------- classic protocol


def a_life(d: Dialogue) -> None:
    first = first_member(d)
    describe(d)
    d.ask("a", "Heartbeat", 4, **signed(d, first, 1))
    d.ask("a", "Heartbeat", 4, **signed(d, first, 2))
    d.ask("a", "Heartbeat", 4, **signed(d, "nobody", 1))
    d.ask("a", "OffsetCommit", 9, **commit(d, first, 1))
    d.ask("a", "OffsetCommit", 9, **commit(d, first, 0))
    d.ask("a", "OffsetCommit", 9, **commit(d, "nobody", 1))
    d.ask("a", "OffsetCommit", 9, **commit(d))
    d.ask("a", "SyncGroup", 5, **sync(d, first, 1))
    second = second_member(d, first)
    describe(d)
    d.ask("a", "OffsetCommit", 9, **commit(d, first, 1))
    d.ask("a", "SyncGroup", 5, **sync(d, first, 1))
    d.ask("a", "JoinGroup", 9, **join(d, first))
    d.receive("b")
    describe(d)
    d.ask("a", "Heartbeat", 4, **signed(d, first, 2))
    d.ask("a", "OffsetCommit", 9, **commit(d, first, 2))
    d.ask("a", "JoinGroup", 9, **join(d, first))  # its answer was lost, say
    d.ask("c", "JoinGroup", 9, **join(d, second))
    d.ask("a", "SyncGroup", 5, **sync(d, first, 1))
    d.ask("a", "SyncGroup", 5, **sync(d, first, 2, protocol_type="connect"))
    d.ask("a", "SyncGroup", 5, **sync(d, first, 2, protocol_type=None))
    d.ask("a", "SyncGroup", 5, **sync(d, first, 2, protocol_name="sticky"))
    d.send("b", "SyncGroup", 5, **sync(d, second, 2))
    time.sleep(0.2)
    d.ask("a", "SyncGroup", 5, **sync(d, first, 2, {second: b"half"}))
    d.receive("b")
    describe(d)
    d.ask("b", "JoinGroup", 9, **join(d, second))  # a follower that joins without news gets what there is
    d.ask("b", "LeaveGroup", 5, group_id=d.group, members=[{"member_id": second}, {"member_id": "nobody"}])
    d.ask("a", "Heartbeat", 4, **signed(d, first, 2))
    d.ask("b", "Heartbeat", 4, **signed(d, second, 2))
    d.ask("a", "JoinGroup", 9, **join(d, first))
    d.ask("a", "LeaveGroup", 2, group_id=d.group, member_id=first)
    d.ask("a", "LeaveGroup", 2, group_id=d.group, member_id=first)
    describe(d)
    d.ask("a", "Heartbeat", 4, **signed(d, first, 4))
    d.ask("a", "OffsetCommit", 9, **commit(d))
    d.ask("a", "OffsetCommit", 9, **commit(d, first, 4))


def every_version(d: Dialogue) -> None:
    name = d.group
    for version in range(10):
        d.use(f"{name}.{version}")
        joined = d.ask("a", "JoinGroup", version, **join(d))
        if version >= 4:
            joined = d.ask("a", "JoinGroup", version, **join(d, joined["member_id"]))
        member_id = joined["member_id"]
        d.ask("a", "SyncGroup", min(version, 5), **sync(d, member_id, 1, {member_id: b"all"}))
        d.ask("a", "Heartbeat", min(version, 4), **signed(d, member_id, 1))
        d.ask("a", "DescribeGroups", min(version, 6), groups=[d.group])
        who = {"members": [{"member_id": member_id}]} if version >= 3 else {"member_id": member_id}
        d.ask("a", "LeaveGroup", min(version, 5), group_id=d.group, **who)
        d.ask("a", "DescribeGroups", min(version, 6), groups=[d.group])


def refused_joins(d: Dialogue) -> None:
    for version in (4, 6, 9):
        d.ask("a", "JoinGroup", version, **join(d, "nobody"))
    d.ask("a", "JoinGroup", 9, **join(d, group_id=""))
    d.ask("a", "JoinGroup", 9, **join(d, session=0))
    d.ask("a", "JoinGroup", 9, **join(d, session=1 << 30))
    d.ask("a", "JoinGroup", 9, **join(d, protocols=""))
    d.ask("a", "JoinGroup", 9, **join(d, protocol_type=""))
    first = first_member(d)
    d.ask("a", "JoinGroup", 9, **join(d, "nobody"))
    d.ask("b", "JoinGroup", 9, **join(d, protocols="sticky"))
    d.ask("b", "JoinGroup", 9, **join(d, protocol_type="connect"))
    d.ask("a", "JoinGroup", 9, **join(d, first, protocols="sticky"))
    d.ask("a", "JoinGroup", 9, **join(d, "nobody", group_instance_id="i"))
    d.ask("a", "SyncGroup", 5, **sync(d, "nobody", 1))
    d.ask("a", "SyncGroup", 5, **sync(d, "nobody", 1, group_id=d.group + "x"))
    d.ask("a", "Heartbeat", 4, **signed(d, "nobody", 1, group_id=d.group + "x"))
    d.ask("a", "LeaveGroup", 5, group_id=d.group + "x", members=[{"member_id": "nobody"}])
    d.ask("a", "LeaveGroup", 1, group_id=d.group + "x", member_id="nobody")
    d.ask("a", "OffsetCommit", 9, **commit(d, "nobody", 1, group_id=d.group + "x"))


def the_vote(d: Dialogue) -> None:
    first = first_member(d, protocols="range sticky roundrobin")
    second_member(d, first, protocols="sticky roundrobin")
    d.ask("a", "JoinGroup", 9, **join(d, first, protocols="range sticky roundrobin", metadata=b"n"))
    d.receive("b")


def static_members(d: Dialogue) -> None:
    static = {"group_instance_id": "one"}
    first = str(d.ask("a", "JoinGroup", 9, **join(d, **static))["member_id"])
    d.ask("a", "SyncGroup", 5, **sync(d, first, 1, {first: b"all"}, **static))
    describe(d)
    # It is back, and nothing happens in the group; whoever is left with the old id is fenced.
    again = str(d.ask("b", "JoinGroup", 9, **join(d, **static))["member_id"])
    d.ask("b", "SyncGroup", 5, **sync(d, again, 1, **static))
    d.ask("a", "Heartbeat", 4, **signed(d, first, 1, **static))
    d.ask("a", "Heartbeat", 4, **signed(d, first, 1))
    d.ask("a", "SyncGroup", 5, **sync(d, first, 1, **static))
    d.ask("a", "JoinGroup", 9, **join(d, first, **static))
    d.ask("a", "OffsetCommit", 9, **commit(d, first, 1, **static))
    d.ask("b", "OffsetCommit", 9, **commit(d, again, 1, **static))
    d.ask("b", "Heartbeat", 4, **signed(d, again, 1, group_instance_id="other"))
    # An older client is told that somebody else leads, or it would assign anew.
    older = str(d.ask("c", "JoinGroup", 8, **join(d, **static))["member_id"])
    d.ask("c", "SyncGroup", 5, **sync(d, older, 1, **static))
    # With other protocols there is a rebalance.
    other = str(d.ask("c", "JoinGroup", 9, **join(d, protocols="range sticky", **static))["member_id"])
    d.ask("c", "JoinGroup", 9, **join(d, other, protocols="range sticky", **static))
    describe(d)
    d.ask("c", "LeaveGroup", 5, group_id=d.group, members=[{"member_id": older, "group_instance_id": "one"}])
    d.ask("c", "LeaveGroup", 5, group_id=d.group, members=[{"member_id": "", "group_instance_id": "two"}])
    d.ask("c", "LeaveGroup", 5, group_id=d.group, members=[{"member_id": "", "group_instance_id": "one"}])
    describe(d)


def sessions_end(d: Dialogue) -> None:
    first = first_member(d)
    second = second_member(d, first, session=SHORT)
    d.ask("a", "JoinGroup", 9, **join(d, first))
    d.receive("b")
    d.send("b", "SyncGroup", 5, **sync(d, second, 2))
    time.sleep(0.2)
    d.ask("a", "SyncGroup", 5, **sync(d, first, 2))
    d.receive("b")
    d.until("a", "Heartbeat", 4, signed(d, first, 2), lambda answer: answer["error_code"] == 27)
    d.ask("b", "Heartbeat", 4, **signed(d, second, 2))
    d.ask("a", "JoinGroup", 9, **join(d, first))


def those_who_do_not_join_again_are_out(d: Dialogue) -> None:
    first = first_member(d, rebalance=SHORT)
    second = second_member(d, first, rebalance=SHORT)
    d.receive("b")
    d.ask("a", "Heartbeat", 4, **signed(d, first, 1))
    d.ask("b", "SyncGroup", 5, **sync(d, second, 2, {second: b"all"}))
    describe(d)


def those_who_do_not_sync_are_out(d: Dialogue) -> None:
    first = first_member(d, rebalance=SHORT)
    second = second_member(d, first, rebalance=SHORT)
    d.ask("a", "JoinGroup", 9, **join(d, first, rebalance=SHORT))
    d.receive("b")
    d.ask("b", "SyncGroup", 5, **sync(d, second, 2))  # waits for the leader, in vain
    d.ask("a", "Heartbeat", 4, **signed(d, first, 2))
    d.ask("b", "JoinGroup", 9, **join(d, second, rebalance=SHORT))
    describe(d)


# -------------------------------------------------------------------------------------------------------- consumer protocol


def beat(d: Dialogue, member_id: str, epoch: int, owned: str | None = None, **more: Any) -> dict[str, Any]:
    """What has not changed is not said. `owned`: numbers of partitions."""
    topics = None if owned is None else [{"topic_id": d.topic_id, "partitions": [int(p) for p in owned]}] if owned else []
    return {"group_id": d.group, "member_id": member_id, "member_epoch": epoch, "topic_partitions": topics} | more


def joins(d: Dialogue, member_id: str, **more: Any) -> dict[str, Any]:
    return beat(d, member_id, 0, "", rebalance_timeout_ms=LONG, subscribed_topic_names=[d.topic], **more)


def epochs(d: Dialogue, who: str, body: dict[str, Any], version: int = 1) -> dict[str, Any]:
    return d.ask(who, "ConsumerGroupHeartbeat", version, **body)


def describe_epochs(d: Dialogue) -> None:
    d.ask("admin", "ConsumerGroupDescribe", 1, group_ids=[d.group])


def partitions_are_handed_over(d: Dialogue) -> None:
    epochs(d, "a", joins(d, "A"))
    describe_epochs(d)
    epochs(d, "a", beat(d, "A", 1, "0123"))
    epochs(d, "b", joins(d, "B"))
    describe_epochs(d)
    epochs(d, "b", beat(d, "B", 2))
    told = epochs(d, "a", beat(d, "A", 1))["assignment"]["topic_partitions"][0]["partitions"]
    describe_epochs(d)
    epochs(d, "a", beat(d, "A", 1, "0123"))
    epochs(d, "b", beat(d, "B", 2, ""))
    epochs(d, "a", beat(d, "A", 1, "".join(map(str, told))))
    describe_epochs(d)
    epochs(d, "b", beat(d, "B", 2, ""))
    describe_epochs(d)
    epochs(d, "b", beat(d, "B", 2))
    epochs(d, "b", beat(d, "B", -1))
    describe_epochs(d)
    epochs(d, "b", beat(d, "B", 2))
    epochs(d, "a", beat(d, "A", 2))
    epochs(d, "a", beat(d, "A", 3, "0123"))
    epochs(d, "a", beat(d, "A", -1))
    describe_epochs(d)


def epochs_are_checked(d: Dialogue) -> None:
    epochs(d, "a", joins(d, "A"))
    epochs(d, "a", joins(d, "A"))  # the answer was lost
    epochs(d, "a", beat(d, "A", 2))
    epochs(d, "a", beat(d, "A", 1, "0123"))
    epochs(d, "a", beat(d, "A", 1, "0123", subscribed_topic_names=[]))
    epochs(d, "a", beat(d, "A", 1, ""))
    epochs(d, "a", beat(d, "A", 1, "0"))
    epochs(d, "a", beat(d, "A", 2, subscribed_topic_names=[d.topic]))
    epochs(d, "a", beat(d, "A", 2))
    epochs(d, "a", beat(d, "A", 2, "0123"))
    epochs(d, "a", beat(d, "A", 2, ""))
    epochs(d, "a", joins(d, "A"))
    for epoch in (3, 2, 4, -1, 0):
        d.ask("a", "OffsetCommit", 9, **commit(d, "A", epoch))
    d.ask("a", "OffsetCommit", 9, **commit(d, "B", 3))
    d.ask("a", "OffsetCommit", 9, **commit(d))
    d.ask("a", "OffsetCommit", 8, **commit(d, "A", 3))
    asked = {"group_id": d.group, "topics": [{"name": d.topic, "partition_indexes": [0]}]}
    for who in (
        {"member_id": "A", "member_epoch": 3},
        {"member_id": "A", "member_epoch": 2},
        {"member_id": "B", "member_epoch": 3},
        {},
    ):
        d.ask("a", "OffsetFetch", 9, groups=[asked | who])
    d.ask("a", "OffsetFetch", 8, groups=[asked])
    d.ask("a", "Heartbeat", 4, **signed(d, "A", 3))
    d.ask("a", "SyncGroup", 5, **sync(d, "A", 3))
    d.ask("a", "LeaveGroup", 5, group_id=d.group, members=[{"member_id": "nobody"}])
    for version in (5, 6):
        describe(d, version)


def refused_heartbeats(d: Dialogue) -> None:
    epochs(d, "a", beat(d, "A", 5))
    epochs(d, "a", beat(d, "A", -1))
    for changes in (
        {"group_id": ""},
        {"member_id": ""},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"topic_partitions": [{"topic_id": d.topic_id, "partitions": [0]}]},
        {"subscribed_topic_names": None},
        {"member_epoch": -3},
        {"member_epoch": -2},
        {"server_assignor": "no"},
        {"server_assignor": ""},
        {"subscribed_topic_regex": "("},
    ):
        epochs(d, "a", joins(d, "A") | changes)
    describe_epochs(d)
    describe(d)
    answer = epochs(d, "a", joins(d, ""), version=0)
    epochs(d, "a", beat(d, answer["member_id"], 1), version=0)
    epochs(d, "a", beat(d, "nobody", 1))
    epochs(d, "a", beat(d, "nobody", -1))
    epochs(d, "a", beat(d, "nobody", 1, instance_id="i"))


def static_members_by_epochs(d: Dialogue) -> None:
    static = {"instance_id": "one"}
    epochs(d, "a", joins(d, "A", **static))
    epochs(d, "a", beat(d, "A", 1, "0123", **static))
    epochs(d, "b", joins(d, "B", **static))
    epochs(d, "b", beat(d, "B", 1, **static))
    epochs(d, "b", beat(d, "B", -2, **static))
    epochs(d, "a", beat(d, "A", -2, **static))
    describe_epochs(d)
    epochs(d, "c", joins(d, "C"))
    epochs(d, "b", joins(d, "B", **static))
    describe_epochs(d)
    epochs(d, "a", beat(d, "A", 1, **static))
    epochs(d, "b", beat(d, "B", 2, "01", **static))
    epochs(d, "c", beat(d, "C", 2, ""))
    epochs(d, "b", beat(d, "B", -2, **static))
    epochs(d, "b", joins(d, "B", **static))
    epochs(d, "b", joins(d, "B", **static))
    epochs(d, "b", beat(d, "B", -1, **static))
    describe_epochs(d)


def a_member_that_gives_nothing_up_is_out(d: Dialogue) -> None:
    epochs(d, "a", joins(d, "A") | {"rebalance_timeout_ms": SHORT})
    epochs(d, "b", joins(d, "B"))
    epochs(d, "a", beat(d, "A", 1, "0123"))
    full = beat(d, "B", 2, "", rebalance_timeout_ms=LONG, subscribed_topic_names=[d.topic])
    d.until("b", "ConsumerGroupHeartbeat", 1, full, lambda answer: answer["member_epoch"] == 3)
    epochs(d, "a", beat(d, "A", 1))
    describe_epochs(d)


def groups_of_both_kinds(d: Dialogue) -> None:
    name = d.group
    first_member(d)
    epochs(d, "x", beat(d, "A", 1))
    describe_epochs(d)
    d.use(f"{name}.epochs")
    epochs(d, "b", joins(d, "A"))
    d.use(f"{name}.offsets")
    d.ask("c", "OffsetCommit", 9, **commit(d))
    describe(d)
    for version, filters in (
        (0, {}),
        (3, {}),
        (4, {}),
        (4, {"states_filter": ["stable"]}),
        (5, {}),
        (5, {"types_filter": ["consumer"]}),
        (5, {"types_filter": ["Classic"], "states_filter": ["Empty"]}),
    ):
        answer = d.ask("admin", "ListGroups", version, **filters)
        groups = [g | {"group_id": g["group_id"].removeprefix(name)} for g in answer["groups"] if g["group_id"].startswith(name)]
        d.transcript[-1] = f"{version} {filters}: {sorted(groups, key=str)}"
    d.ask("admin", "DescribeGroups", 5, groups=[name], include_authorized_operations=True)
    d.ask("admin", "ConsumerGroupDescribe", 1, group_ids=[f"{name}.epochs"], include_authorized_operations=True)


def wait_for_the_coordinator(d: Dialogue) -> None:
    """Until the broker that has just started knows where its groups are, and the group that there is a new topic."""
    name = d.group
    d.use(f"first.{name}")
    d.until("a", "FindCoordinator", 3, {"key": name, "key_type": 0}, lambda answer: answer["error_code"] == 0)
    d.until("a", "ConsumerGroupHeartbeat", 1, joins(d, "F"), lambda answer: bool(answer["assignment"]["topic_partitions"]))
    d.use(name)
    d.forget()


DIALOGUES = [
    partitions_are_handed_over,
    epochs_are_checked,
    refused_heartbeats,
    static_members_by_epochs,
    a_member_that_gives_nothing_up_is_out,
    groups_of_both_kinds,
    a_life,
    every_version,
    refused_joins,
    the_vote,
    static_members,
    sessions_end,
    those_who_do_not_join_again_are_out,
    those_who_do_not_sync_are_out,
]


@pytest.mark.parametrize("hold", DIALOGUES, ids=lambda hold: hold.__name__)
def test_both_answer_the_same(kafka: Kafka, hold: Callable[[Dialogue], None]) -> None:
    host, port = kafka.servers.split(":")
    topic = kafka.topic("groups", 4)
    with Wire((host, int(port))) as wire:
        topic_id = wire.call("Metadata", 12, topics=[{"name": topic}])["topics"][0]["topic_id"]
    with Dialogue((host, int(port)), f"{hold.__name__}.{topic}", topic, topic_id) as real:
        wait_for_the_coordinator(real)
        hold(real)
    with Broker() as broker:
        topic_id = broker.create_topic("t", 4)
        with Dialogue(broker.address(1), "g", "t", topic_id) as ours:
            hold(ours)
    if found := differences(ours.transcript, real.transcript):
        pytest.fail(found, pytrace=False)
