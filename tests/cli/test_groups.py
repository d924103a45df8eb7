"""`kfetch groups` in this process, with members of ours at the scripted broker."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from fastfetch.cli import main
from fastfetch.cli.groups import _ranges
from fastfetch.cli.tables import Table
from fastfetch.protocol import Request
from fastfetch.testing import Broker, close, drop, error, replace, top_error
from fastfetch.types import TopicPartition

from .folders import batch
from .groups import joined


def kfetch(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["groups", *map(str, arguments)], env={"FASTFETCH_BOOTSTRAP_SERVERS": None})


def tables(*arguments: object) -> list[list[list[str]]]:
    """The cells of the lines of each table; they are two spaces or more apart."""
    done = kfetch(*arguments)
    assert (done.exit_code, done.stderr) == (0, ""), done.stderr
    return [[re.split(r"\s{2,}", line) for line in table.splitlines()] for table in done.stdout.split("\n\n")]


def lines(*arguments: object) -> list[dict[str, Any]]:
    done = kfetch(*arguments, "--json")
    assert (done.exit_code, done.stderr) == (0, ""), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def broker() -> Iterator[Broker]:
    """orders: 10 offsets in each of three partitions. "idle" has committed 4 of partition 1."""
    with Broker(nodes=2) as broker:
        broker.create_topic("orders", partitions=3)
        for partition in range(3):
            broker.append("orders", partition, batch(0))
        broker.set_committed("idle", "orders", 1, 4)
        yield broker


# ---------------------------------------------------------------------------------------------------------------------- list


def test_all_groups_of_all_brokers(broker: Broker) -> None:
    broker.move_coordinator("idle", 1)
    for group in ("old", "new"):
        broker.move_coordinator(group, 2)
    with joined(broker, "old", 2), joined(broker, "new", 1, "consumer"):
        assert tables("-b", broker.bootstrap_servers) == [
            [
                ["group", "type", "state", "coordinator", "members"],
                ["idle", "classic", "Empty", "1", "0"],
                ["new", "consumer", "Stable", "2", "1"],
                ["old", "classic", "Stable", "2", "2"],
            ]
        ]
        found = lines("-b", broker.bootstrap_servers)
    assert found[1] == {
        "group": "new",
        "type": "consumer",
        "protocol": "consumer",
        "state": "Stable",
        "coordinator": 2,
        "members": 1,
    }
    assert [row["protocol"] for row in found] == ["", "consumer", "consumer"]


def test_groups_of_a_type_or_in_a_state(broker: Broker) -> None:
    with joined(broker, "old", 1), joined(broker, "new", 1, "consumer"):
        for options, names in {
            ("--state", "empty"): ["idle"],
            ("--state", "Stable"): ["new", "old"],
            ("--state", "STABLE", "--state", "empty", "--type", "classic"): ["idle", "old"],
            ("--type", "Consumer"): ["new"],
            ("--type", "share"): [],
        }.items():
            assert [row["group"] for row in lines("-b", broker.bootstrap_servers, *options)] == names, options


def test_no_groups_at_all() -> None:
    with Broker() as broker:
        assert tables("-b", broker.bootstrap_servers) == [[["group", "type", "state", "coordinator", "members"]]]


@pytest.mark.parametrize("how", [close(), drop()])
def test_a_broker_that_does_not_answer_is_named_and_hides_no_other(broker: Broker, how: Any) -> None:
    broker.move_coordinator("idle", 1)
    broker.set_committed("hidden", "orders", 0, 1)
    broker.move_coordinator("hidden", 2)
    broker.on("ListGroups", how, node=2, times=None)
    done = kfetch("-b", broker.bootstrap_servers, "-X", "default.api.timeout.ms=1500")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("kfetch: the groups of node 2 are missing: ")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["group", "idle"]


def test_a_group_that_cannot_be_described_is_listed_all_the_same(broker: Broker) -> None:
    broker.set_committed("secret", "orders", 0, 1)

    def refuse(request: Request, body: Mapping[str, Any]) -> Mapping[str, Any]:
        for group in body["groups"]:
            group["error_code"] = 30 if group["group_id"] == "secret" else group["error_code"]
        return body

    broker.on("ConsumerGroupDescribe", replace(refuse), times=None)
    done = kfetch("-b", broker.bootstrap_servers)
    assert done.exit_code == 1
    assert done.stderr == "kfetch: not allowed to use group 'secret': GROUP_AUTHORIZATION_FAILED (code 30)\n"
    assert [line.split()[::4] for line in done.stdout.splitlines()] == [["group", "members"], ["idle", "0"], ["secret", "-"]]


def test_a_group_that_ends_meanwhile_is_none(broker: Broker) -> None:
    broker.on("DescribeGroups", error(69), times=None)
    assert lines("-b", broker.bootstrap_servers) == []


def test_groups_of_others_than_consumers(broker: Broker) -> None:
    """Connect's workers share a classic group; share groups have members that are none of ours to describe."""
    listed = [
        {"group_id": "workers", "protocol_type": "connect", "group_state": "Stable", "group_type": "Classic"},
        {"group_id": "shared", "protocol_type": "share", "group_state": "Stable", "group_type": "Share"},
    ]
    broker.on("ListGroups", replace({"groups": listed}), node=1, times=None)
    broker.on("ListGroups", replace({"groups": []}), node=2, times=None)
    member = {"member_id": "w", "client_id": "c", "client_host": "/10.0.0.1", "member_metadata": b"", "member_assignment": b"\1"}
    workers = {"group_id": "workers", "group_state": "Stable", "protocol_type": "connect", "protocol_data": "sessioned"}
    broker.on("DescribeGroups", replace({"groups": [workers | {"members": [member]}]}), times=None, when=names("workers"))
    assert tables("-b", broker.bootstrap_servers)[0][1:] == [
        ["shared", "share", "Stable", "1", "-"],
        ["workers", "classic (connect)", "Stable", "1", "1"],
    ]
    group, members = tables("-b", broker.bootstrap_servers, "workers")
    assert group[1][1] == "classic (connect)"
    assert members[1] == ["w", "c", "10.0.0.1", "-", "-"]
    done = kfetch("-b", broker.bootstrap_servers, "shared")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "kfetch: group 'shared' is a share group: not one of consumers\n"


def names(group: str) -> Any:
    return lambda request: group in request.body["groups"]


def test_a_broker_of_old() -> None:
    """It tells no types; what it tells of is classic."""
    with Broker(kafka="2.8") as broker:
        broker.create_topic("orders")
        broker.set_committed("idle", "orders", 0, 4)
        assert lines("-b", broker.bootstrap_servers)[0]["type"] == "classic"
        assert tables("-b", broker.bootstrap_servers, "idle")[0][1][:3] == ["idle", "classic", "Empty"]
        done = kfetch("-b", broker.bootstrap_servers, "--type", "classic")
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert "no common version of ListGroups" in done.stderr


def test_names_may_have_anything_in_them(broker: Broker) -> None:
    """Colours, line ends, the markup of the library that draws tables, bytes that are no UTF-8."""
    wild = "[/red]\x1b[31m\na\udcff"
    broker.set_committed(wild, "orders", 0, 1)
    member = {"member_id": "m", "client_id": wild, "client_host": "/h", "member_metadata": b"", "member_assignment": b""}
    group = {"group_id": wild, "group_state": "Stable", "protocol_type": "consumer", "protocol_data": wild}
    broker.on("DescribeGroups", replace({"groups": [group | {"members": [member]}]}), times=None, when=names(wild))
    seen = "[/red]\\x1b[31m\\na\\udcff"
    assert tables("-b", broker.bootstrap_servers)[0][1][0] == seen
    table = Table(["group"], texts=["group"])
    table.add(wild)
    console = Console(file=io.StringIO(), width=80)
    console.print(table.drawn())
    assert seen in console.file.getvalue()  # type: ignore[attr-defined]
    arguments = ["offsets", "-b", broker.bootstrap_servers, "-X", f"group.id={wild}", "--reset", "--to-latest"]
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "in it: [/red]\\x1b[31m a\\udcff at h (m)" in done.stderr


# ------------------------------------------------------------------------------------------------------------------ describe


def test_a_classic_group(broker: Broker) -> None:
    broker.set_committed("g", "orders", 0, 3)
    with joined(broker, "g", 2):
        group, members, partitions = tables("-b", broker.bootstrap_servers, "g")
        ids = [member.id for member in sorted(broker.group("g").members.values(), key=lambda member: member.client_id)]
    coordinator = "{} at {}:{}".format(broker.coordinator("g"), *broker.address(broker.coordinator("g")))
    assert group == [
        ["group", "type", "state", "coordinator", "assignor", "members"],
        ["g", "classic", "Stable", coordinator, "range", "2"],
    ]
    has = [["orders:0-1"], ["orders:2"]] if ids == sorted(ids) else [["orders:2"], ["orders:0-1"]]
    assert members == [
        ["member", "client", "host", "instance", "partitions"],
        [ids[0], "app-0", "127.0.0.1", "-", *has[0]],
        [ids[1], "app-1", "127.0.0.1", "-", *has[1]],
    ]
    first, second = sorted(ids)
    assert partitions == [
        ["topic", "partition", "committed", "end", "lag", "member", "note"],
        ["orders", "0", "3", "10", "7", first, "-"],
        ["orders", "1", "-", "10", "-", first, "no commit"],
        ["orders", "2", "-", "10", "-", second, "no commit"],
    ]


def test_a_group_of_the_consumer_protocol(broker: Broker) -> None:
    broker.set_committed("g", "orders", 2, 10)
    with joined(broker, "g", 1, "consumer", group_instance_id="i"):
        [found] = lines("-b", broker.bootstrap_servers, "g")
        group, members, _ = tables("-b", broker.bootstrap_servers, "g")
        [member] = broker.group("g").members
    assert [found[name] for name in ("group", "type", "protocol", "state")] == ["g", "consumer", "consumer", "Stable"]
    assert (found["assignor"], found["target_epoch"]) == ("uniform", found["epoch"])
    assert found["members"] == [
        {"member": member, "client": "app-0", "host": "127.0.0.1", "instance": "i", "epoch": found["epoch"]}
        | {"protocol": "consumer", "partitions": {"orders": [0, 1, 2]}, "target": {"orders": [0, 1, 2]}}
    ]
    assert found["partitions"][2] == {
        "topic": "orders",
        "partition": 2,
        "committed": 10,
        "start": 0,
        "end": 10,
        "lag": 0,
        "member": member,
    }
    assert group == [
        ["group", "type", "state", "coordinator", "assignor", "members", "epoch"],
        ["g", "consumer", "Stable", group[1][3], "uniform", "1", str(found["epoch"])],
    ]
    assert members == [
        ["member", "client", "host", "instance", "epoch", "partitions"],
        [member, "app-0", "127.0.0.1", "i", str(found["epoch"]), "orders:0-2"],
    ]


def test_members_that_still_speak_the_classic_protocol(broker: Broker) -> None:
    """In a group under KIP-848, which takes them along."""

    def first_is_classic(request: Request, body: Mapping[str, Any]) -> Mapping[str, Any]:
        by_client = sorted(body["groups"][0]["members"], key=lambda member: member["client_id"])
        by_client[0]["member_type"] = 0
        return body

    with joined(broker, "g", 2, "consumer"):
        broker.on("ConsumerGroupDescribe", replace(first_is_classic), times=None)
        _, members, _ = tables("-b", broker.bootstrap_servers, "g")
        [found] = lines("-b", broker.bootstrap_servers, "g")
    assert members[0] == ["member", "client", "host", "instance", "epoch", "protocol", "partitions"]
    assert [(row[1], row[5]) for row in members[1:]] == [("app-0", "classic"), ("app-1", "consumer")]
    assert {member["client"]: member["protocol"] for member in found["members"]} == {"app-0": "classic", "app-1": "consumer"}


def test_partitions_on_the_move_are_shown_with_where_they_go(broker: Broker) -> None:
    def move(request: Request, body: Mapping[str, Any]) -> Mapping[str, Any]:
        [group] = body["groups"]
        group["group_epoch"], group["assignment_epoch"] = 9, 8
        group["members"][0]["target_assignment"] = {"topic_partitions": []}
        return body

    with joined(broker, "g", 1, "consumer"):
        broker.on("ConsumerGroupDescribe", replace(move), times=None)
        group, members, _ = tables("-b", broker.bootstrap_servers, "g")
        assert (group[0][-2:], group[1][-2:]) == (["epoch", "target epoch"], ["9", "8"])
        assert (members[0][-1], members[1][-2:]) == ("target", ["orders:0-2", "-"])


def test_a_group_that_does_not_exist(broker: Broker) -> None:
    """The others are shown."""
    done = kfetch("-b", broker.bootstrap_servers, "nobody", "idle", "nobody")
    assert (done.exit_code, done.stderr) == (1, "kfetch: group 'nobody' does not exist\n")
    assert done.stdout.splitlines()[1].split()[0] == "idle"
    assert len(done.stdout.splitlines()) == 2 + 1 + 4


def test_what_is_gone_and_was_committed_for(broker: Broker) -> None:
    broker.create_topic("gone")
    broker.set_committed("idle", "gone", 0, 5)
    broker.delete_topic("gone")
    _, partitions = tables("-b", broker.bootstrap_servers, "idle")
    assert partitions[1] == ["gone", "0", "5", "-", "-", "-", "no such partition any more"]


def test_not_allowed(broker: Broker) -> None:
    broker.on("OffsetFetch", top_error(30), times=None)
    done = kfetch("-b", broker.bootstrap_servers, "idle")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "not allowed to use group 'idle'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "say where, such as -b 127.0.0.1:9092"),
        (["-b", "127.0.0.1:1", "-X", "default.api.timeout.ms=1000"], 1, "127.0.0.1:1"),
        (["-b", "127.0.0.1:1", "-X", "default.api.timeout.ms=1000", "g"], 1, "127.0.0.1:1"),
        (["-b", "127.0.0.1:1", "--state", "asleep"], 2, "asleep"),
        (["-b", "127.0.0.1:1", "--state", "stable", "g"], 2, "--state and --type choose among all groups"),
    ],
)
def test_what_is_wrong_is_one_sentence(arguments: list[str], code: int, said: str) -> None:
    done = kfetch(*arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_partitions_in_few_words() -> None:
    tps = [TopicPartition("b", 0), *(TopicPartition("a", p) for p in (7, 1, 2, 0, 5))]
    assert _ranges(tps) == "a:0-2,5,7 b:0"
    assert _ranges([]) == ""
    assert _ranges(None) is None
