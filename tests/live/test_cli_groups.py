"""`kfetch groups` and `kfetch offsets --reset` at real brokers, with members of librdkafka's, beside what other tools say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from click.testing import CliRunner
from confluent_kafka import ConsumerGroupTopicPartitions

from fastfetch.cli import main, reset
from fastfetch.cli.inspector import Inspector
from fastfetch.engine.groups import GroupDescription
from tests.live.conftest import SECONDS, Kafka, Sent, need, wait_for
from tests.live.kafka_cluster import OLDEST_VERSION, KafkaCluster, jars

COMMAND = [sys.executable, "-m", "fastfetch"]
TIME = 1_700_000_000_000
TARGETS = [
    ("--to-earliest",),
    ("--to-latest",),
    ("--to-offset", "7"),
    ("--to-offset", "1000"),
    ("--shift-by", "-3"),
    ("--shift-by", "-1000"),
    ("--shift-by", "1000"),
    ("--to-current",),
    ("--to-datetime", "2023-11-14T22:13:24.500Z"),  # TIME + 4.5 s
    ("--by-duration", "P1D"),
]


def kfetch(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=2 * SECONDS, check=False)


def lines(*arguments: object) -> list[dict[str, Any]]:
    done = kfetch(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


# One member: says the offset of each record that it is given, and leaves when its stdin ends.
MEMBER = """
import json, sys, threading
import confluent_kafka

config, topic = json.loads(sys.argv[1])
ending = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ending.set()), daemon=True).start()
consumer = confluent_kafka.Consumer(config)
consumer.subscribe([topic])
while not ending.is_set():
    message = consumer.poll(0.1)
    if message is not None and message.error() is None:
        print(message.offset(), flush=True)
consumer.close()
"""


@contextmanager
def members(kafka: Kafka, group: str, topic: str, count: int, protocol: str = "classic") -> Iterator[list[subprocess.Popen[str]]]:
    """Processes with librdkafka that share a topic, app-0 to app-n; all but the first are static. Inside when all have
    partitions, by what `kfetch groups` says."""
    config: dict[str, object] = {
        "bootstrap.servers": kafka.servers,
        "group.id": group,
        "group.protocol": protocol,
        "log_level": 0,
    }
    config |= {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    if protocol == "classic":  # else the broker says how often
        config |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
    with ExitStack() as stack:
        processes = []
        for number in range(count):
            name = {"client.id": f"app-{number}"} | ({"group.instance.id": f"static-{number}"} if number else {})
            command = [sys.executable, "-c", MEMBER, json.dumps([config | name, topic])]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)  # closes stdin, and waits
            stack.callback(process.kill)
            processes.append(process)

        def is_shared() -> bool:
            done = kfetch("groups", "-b", kafka.servers, group, "--json")
            found = json.loads(done.stdout) if done.returncode == 0 else {"members": []}
            return found.get("state") == "Stable" and [bool(m["partitions"]) for m in found["members"]] == [True] * count

        wait_for(is_shared, f"{count} members of {group}", 2 * SECONDS)
        yield processes
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in processes:
            process.wait(SECONDS)


def partitions_of(member: confluent_kafka.admin.MemberDescription) -> list[tuple[str, int]]:
    return [(tp.topic, tp.partition) for tp in member.assignment.topic_partitions]


def commit(kafka: Kafka, group: str, offsets: dict[tuple[str, int], int]) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.servers, "group.id": group, "log_level": 0})
    places = [confluent_kafka.TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def committed(kafka: Kafka, group: str) -> dict[tuple[str, int], int]:
    """As the admin client of librdkafka reads them."""
    [future] = kafka.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(tp.topic, tp.partition): tp.offset for tp in future.result(SECONDS).topic_partitions}


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """Ten records in each of four partitions, a second apart."""
    name = kafka.topic("groups", partitions=4)
    for partition in range(4):
        kafka.produce(name, [Sent(b"k", b"v", [], TIME + 1000 * i) for i in range(10)], partition=partition)
    return name


# ---------------------------------------------------------------------------------------------------------------------- groups


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_as_another_admin_client_sees_it(kafka: Kafka, topic: str, protocol: str) -> None:
    group = f"{protocol}-{topic}"
    commit(kafka, group, {(topic, 1): 4})
    with members(kafka, group, topic, 2, protocol):
        [found] = lines("groups", "-b", kafka.servers, group)
        theirs = kafka.admin.describe_consumer_groups([group])[group].result(SECONDS)
        [row] = [row for row in lines("groups", "-b", kafka.servers, "--type", protocol) if row["group"] == group]
        lag = lines("lag", "-b", kafka.servers, "-g", group)
    assert (found["type"], found["protocol"], found["assignor"]) == (protocol, "consumer", theirs.partition_assignor)
    assert (found["coordinator"], found["address"]) == (theirs.coordinator.id, kafka.servers)
    assert {
        (m["member"], m["client"], m["host"], m["instance"], tuple((topic, p) for p in m["partitions"][topic]))
        for m in found["members"]
    } == {
        (m.member_id, m.client_id, m.host.strip("/"), m.group_instance_id, tuple(sorted(partitions_of(m))))
        for m in theirs.members
    }
    assert {m["instance"] for m in found["members"]} == {None, "static-1"}
    owners = {p: m["member"] for m in found["members"] for p in m["partitions"][topic]}
    assert [(p["partition"], p["committed"], p["end"], p["lag"], p["member"]) for p in found["partitions"]] == [
        (p, 4 if p == 1 else None, 10, 6 if p == 1 else None, owners[p]) for p in range(4)
    ]
    assert row == {
        "group": group,
        "type": protocol,
        "protocol": "consumer",
        "state": "Stable",
        "coordinator": theirs.coordinator.id,
        "members": 2,
    }
    assert [(each.get("partition"), each["lag"]) for each in lag] == [(0, None), (1, 6), (2, None), (3, None), (None, 6)]
    if protocol == "consumer":
        assert {m["epoch"] for m in found["members"]} == {found["epoch"]} == {found["target_epoch"]}
        assert all(m["target"] == m["partitions"] for m in found["members"])


def test_a_group_that_does_not_exist(kafka: Kafka) -> None:
    done = kfetch("groups", "-b", kafka.servers, "nobody-at-all")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "kfetch: group 'nobody-at-all' does not exist\n")


def test_a_broker_that_hangs_hides_no_other(three: Kafka) -> None:
    """Unless the others have noticed by then: then its groups are theirs."""
    topic = three.topic("groups")
    groups = [f"group-{number}" for number in range(12)]
    for group in groups:
        commit(three, group, {(topic, 0): 0})
    three.wait_in_sync()
    three.spread_leaders()  # other tests have restarted brokers

    def coordinators() -> dict[str, int]:
        return {row["group"]: row["coordinator"] for row in lines("groups", "-b", three.servers)}

    def is_spread() -> bool:  # a coordinator that has just been told to take over lists nothing yet, and no error
        found = coordinators()
        return set(groups) <= found.keys() and len(set(found.values())) > 1

    wait_for(is_spread, "all groups, at several brokers")
    before = coordinators()
    node = before[groups[0]]
    assert set(before.values()) - {node}
    three.cluster.pause(node)
    try:
        done = kfetch("groups", "-b", three.servers, "--json", "-X", "default.api.timeout.ms=10000")
    finally:
        three.cluster.resume(node)
        three.wait_in_sync()
    listed = {json.loads(line)["group"] for line in done.stdout.splitlines()}
    assert {group for group, coordinator in before.items() if coordinator != node} <= listed
    if listed != before.keys():
        assert done.returncode == 1
        assert f"the groups of node {node} are missing: " in done.stderr


# ---------------------------------------------------------------------------------------------------------------------- resets


def test_resets_go_where_kafkas_own_tool_goes(kafka: Kafka, topic: str) -> None:
    """A dry run of each, and nothing is written by either."""
    need(OLDEST_VERSION)  # the last whose jars have the tool in them
    group = f"tool-{topic}"
    before = {(topic, 0): 0, (topic, 1): 5, (topic, 3): 10}
    commit(kafka, group, before)
    tool = ["java", "-Xmx128m", "-cp", f"{jars(OLDEST_VERSION)}/*", "kafka.admin.ConsumerGroupCommand"]
    tool += ["--bootstrap-server", kafka.servers, "--group", group, "--reset-offsets", "--dry-run", "--all-topics"]
    for target in TARGETS:
        done = subprocess.run([*tool, *target], capture_output=True, text=True, timeout=2 * SECONDS, check=False)
        theirs = {
            (topic, int(partition)): int(new)
            for partition, new in re.findall(rf"^{group}\s+{re.escape(topic)}\s+(\d+)\s+(\d+)", done.stdout, re.MULTILINE)
        }
        assert len(theirs) == len(before), done.stdout + done.stderr
        ours = lines("offsets", "-b", kafka.servers, "-g", group, "--reset", *target)
        assert {(row["topic"], row["partition"]): row["new"] for row in ours} == theirs, target
    assert committed(kafka, group) == before


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_reset_waits_until_everybody_has_gone(kafka: Kafka, topic: str, protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the members that come next begin there."""
    group = f"{protocol}-{topic}"
    commit(kafka, group, dict.fromkeys([(topic, p) for p in range(4)], 10))
    ask = ("offsets", "-b", kafka.servers, "-g", group, "--reset", "--to-offset", 6, "--execute")
    with members(kafka, group, topic, 1, protocol):
        done = kfetch(*ask)
        assert (done.returncode, done.stdout) == (1, "")
        assert "in it: app-0 at 127.0.0.1" in done.stderr
        # Had it not looked, the broker would have refused.
        look, looked = reset._check_empty, []

        def blind(inspector: Inspector) -> GroupDescription | None:
            looked.append(inspector)
            return look(inspector) if len(looked) > 1 else None

        monkeypatch.setattr(reset, "_check_empty", blind)
        result = CliRunner().invoke(main, [str(word) for word in ask])
        assert (result.exit_code, result.stdout, len(looked)) == (1, "", 2)
        assert "in it: app-0 at 127.0.0.1" in result.stderr
        assert set(committed(kafka, group).values()) == {10}
    monkeypatch.undo()
    wait_for(lambda: lines("groups", "-b", kafka.servers, group)[0]["state"] == "Empty", "an empty group")
    done = kfetch(*ask)
    assert (done.returncode, done.stderr) == (0, f"kfetch: wrote 4 offsets of group {group!r}\n")
    assert set(committed(kafka, group).values()) == {6}
    with members(kafka, group, topic, 1, protocol) as [process]:
        assert process.stdout is not None
        assert sorted(int(process.stdout.readline()) for _ in range(16)) == sorted([6, 7, 8, 9] * 4)


def test_a_group_made_by_a_reset(kafka: Kafka, topic: str) -> None:
    group = f"seeded-{topic}"
    done = kfetch(
        "offsets", "-b", kafka.servers, "-g", group, "--reset", "--to-datetime", TIME + 4500, f"{topic}:0,2", "--execute"
    )
    assert (done.returncode, done.stderr) == (0, f"kfetch: wrote 2 offsets of group {group!r}; there was no group of this name\n")
    assert committed(kafka, group) == {(topic, 0): 5, (topic, 2): 5}


# --------------------------------------------------------------------------------------------------------------- an old broker


def test_a_broker_of_old(cluster_or_skip: None, tmp_path: Path) -> None:
    need(OLDEST_VERSION)
    with KafkaCluster(tmp_path / "old", version=OLDEST_VERSION) as cluster:
        kafka = Kafka(cluster)
        topic = kafka.topic("groups", partitions=2)
        kafka.produce(topic, [Sent(b"k", b"v", [])] * 10)
        with members(kafka, "g", topic, 2):
            [found] = lines("groups", "-b", kafka.servers, "g")
            assert sorted(p for m in found["members"] for p in m["partitions"][topic]) == [0, 1]
            assert (found["type"], {m["client"] for m in found["members"]}) == ("classic", {"app-0", "app-1"})
            done = kfetch("offsets", "-b", kafka.servers, "-g", "g", "--reset", "--to-latest", topic, "--execute")
            assert done.returncode == 1
            assert "in it: app-" in done.stderr
        # The static member stays until its session ends.
        wait_for(lambda: lines("groups", "-b", kafka.servers)[0]["state"] == "Empty", "an empty group")
        done = kfetch("offsets", "-b", kafka.servers, "-g", "g", "--reset", "--to-latest", topic, "--execute")
        assert done.returncode == 0, done.stderr
        assert [row["committed"] for row in lines("groups", "-b", kafka.servers, "g")[0]["partitions"]] == [10, 0]
        done = kfetch("groups", "-b", kafka.servers, "nobody")
        assert (done.returncode, done.stderr) == (1, "kfetch: group 'nobody' does not exist\n")
