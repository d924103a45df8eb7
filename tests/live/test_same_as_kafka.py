"""The test broker beside a real one: the same log in both, the same requests to both, and the answers compared field by field.

This is what makes the rest of the tests worth something: whatever `fastfetch.testing.Broker` gets wrong, they would call right.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import NewTopic

from fastfetch.protocol import ZERO_UUID
from fastfetch.testing import Broker
from fastfetch.testing.batches import entries, record_times
from tests.live.conftest import CODECS, Kafka, Sent, wait_for
from tests.live.kafka_cluster import KafkaCluster
from tests.testing.wire import Wire, only

VERSIONS = range(4, 18)


class Pair(NamedTuple):
    """A topic with the same name, id and log on both sides. `end` is the end of its log."""

    topic: str
    topic_id: bytes
    end: int
    real: Wire
    ours: Wire
    log: bytes

    def same(self, api: str, version: int, **body: Any) -> dict[str, Any]:
        real, ours = (wire.call(api, version, **body) for wire in (self.real, self.ours))
        assert not differences(ours, real), (api, version, body)
        return ours

    def fetch(self, version: int, offset: int, **more: Any) -> dict[str, Any]:
        fields = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": more.pop("limit", 1 << 20)} | more.pop(
            "fields", {}
        )
        topic = {"topic": self.topic} if version < 13 else {"topic_id": self.topic_id}
        body = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 50 << 20, "topics": [topic | {"partitions": [fields]}]}
        if version >= 7:
            body["session_epoch"] = -1
        return self.same("Fetch", version, **body | more)


def differences(ours: Any, real: Any, path: str = "") -> list[str]:
    """Where two answers differ, and how; record sets by their length and the batches in them."""
    if isinstance(ours, dict) and isinstance(real, dict) and ours.keys() == real.keys():
        return [each for name in ours for each in differences(ours[name], real[name], f"{path}.{name}")]
    if isinstance(ours, list) and isinstance(real, list) and len(ours) == len(real):
        return [each for i in range(len(ours)) for each in differences(ours[i], real[i], f"{path}[{i}]")]
    if ours == real:
        return []
    if isinstance(ours, memoryview) and isinstance(real, memoryview):
        ours, real = ((len(r), [(e.base_offset, e.last_offset) for e in entries(bytes(r))]) for r in (ours, real))
    return [f"{path}: {ours} here, {real} in Kafka"]


@pytest.fixture(scope="module")
def pair(kafka: Kafka) -> Iterator[Pair]:
    """A log with every codec, small batches, a committed, an aborted and an open transaction."""
    # Recent times: markers carry the clock of the broker, which would begin a new segment there, and no fetch crosses segments.
    start = int(time.time() * 1000) - 60_000
    name = kafka.topic("same")
    for n, codec in enumerate(CODECS):
        records = [Sent(b"k%d" % i, b"v%d " % i * 20, [("h", b"x")], start + n * 1000 + i * 10) for i in range(20)]
        kafka.produce(name, records, codec=codec, batch=7)
    for end in ("commit", "abort", None):
        producer = kafka.producer(transactional_id=f"same-{end}")
        producer.init_transactions(30)
        producer.begin_transaction()
        for i in range(5):
            producer.produce(name, b"%d" % i, partition=0, timestamp=start + 10_000 + i)
        producer.flush(30)
        if end == "commit":
            producer.commit_transaction(30)
        elif end == "abort":
            producer.abort_transaction(30)
        else:
            open_producer = producer
    host, _, port = kafka.servers.split(",")[0].rpartition(":")
    with Broker() as broker, Wire((host, int(port))) as real, Wire(broker) as ours:
        (found,) = real.call("Metadata", 12, topics=[{"name": name}])["topics"]

        def read() -> bytes:
            return bytes(only(real.fetch(name))["records"])

        wait_for(lambda: [e.last_offset for e in entries(read())][-1] >= 116, "the transactions' markers")
        log = read()
        broker.create_topic(name, topic_id=found["topic_id"])
        for entry in entries(log):
            broker.append(name, 0, log[entry.start : entry.end], keep_offsets=True)
        yield Pair(name, found["topic_id"], broker.end_offset(name, 0), real, ours, log)
    open_producer.abort_transaction(30)


def test_fetch(pair: Pair) -> None:
    sizes = [e.end - e.start for e in entries(pair.log)]
    limits = [0, 1, 61, sizes[0] - 1, sizes[0], sizes[0] + 1, sum(sizes[:3]), sum(sizes[:3]) + 17, 1 << 20]
    assert len(sizes) > 15
    for isolation in (0, 1):
        for offset in range(-1, pair.end + 2):
            for limit in limits if offset % 5 == 0 else [100, 1 << 20]:
                answer = pair.fetch(12, offset, limit=limit, isolation_level=isolation)
                if 0 <= offset < pair.end - 10:
                    assert only(answer)["records"]


@pytest.mark.parametrize("version", VERSIONS)
def test_fetch_in_every_version(pair: Pair, version: int) -> None:
    for isolation in (0, 1):
        for offset in (-1, 0, 50, pair.end, pair.end + 1):
            pair.fetch(version, offset, isolation_level=isolation)
            pair.fetch(version, offset, isolation_level=isolation, max_bytes=300)
    if version >= 9:
        for epoch in (0, 1):
            pair.fetch(version, 0, fields={"current_leader_epoch": epoch})
    if version >= 12:
        for epoch in (0, 1):
            pair.fetch(version, 50, fields={"last_fetched_epoch": epoch})
    pair.fetch(version, 0, fields={"partition": 7})
    if version >= 13:
        for unknown in (b"\x11" * 16, ZERO_UUID):
            pair._replace(topic_id=unknown).fetch(version, 0)
    else:
        pair._replace(topic="no such topic").fetch(version, 0)


def test_fetch_of_several_partitions(kafka: Kafka) -> None:
    name = kafka.topic("several", 3)
    for partition in (0, 1, 2):
        kafka.produce(name, [Sent(None, b"x" * 100, [])] * 40, partition=partition, batch=5)
    host, _, port = kafka.servers.split(",")[0].rpartition(":")
    with Broker() as broker, Wire((host, int(port))) as real, Wire(broker) as ours:
        broker.create_topic(name, 3)
        logs = []
        for partition in (0, 1, 2):
            logs.append(bytes(only(real.fetch(name, partition=partition))["records"]))
            broker.append(name, partition, logs[-1], keep_offsets=True)
        for order in ((0, 1, 2), (2, 0, 1)):
            for max_bytes in (0, 1, 700, 1000, len(logs[0]), len(logs[0]) + 100, 1 << 20):
                for limit in (0, 700, 1500, 1 << 20):
                    asked = [{"partition": p, "fetch_offset": 10, "partition_max_bytes": limit} for p in order]
                    one, other = (wire.fetch_all([(name, asked)], max_bytes=max_bytes) for wire in (real, ours))
                    assert not differences(other, one), (order, max_bytes, limit)


def test_fetch_sessions(kafka: Kafka) -> None:
    name = kafka.topic("session", 2)
    kafka.produce(name, [Sent(None, b"x", [])] * 3)
    host, _, port = kafka.servers.split(",")[0].rpartition(":")
    with Broker() as broker, Wire((host, int(port))) as real, Wire(broker) as ours:
        broker.create_topic(name, 2)
        broker.append(name, 0, bytes(only(real.fetch(name))["records"]), keep_offsets=True)
        numbers: list[int] = []

        def both(epoch: int, *asked: tuple[int, int], forget: tuple[int, ...] = (), wrong: int = 0) -> None:
            partitions = [{"partition": p, "fetch_offset": o, "partition_max_bytes": 1 << 20} for p, o in asked]
            answers = []
            for i, wire in enumerate((real, ours)):
                more: dict[str, Any] = {"session": ((numbers[i] if numbers else 0) + wrong, epoch)}
                if forget:
                    more["forgotten_topics_data"] = [{"topic": name, "partitions": list(forget)}]
                answers.append(wire.fetch_all([(name, partitions)] if partitions else [], **more))
            given = [answer.pop("session_id") for answer in answers]
            assert not differences(answers[1], answers[0]), (epoch, asked)
            assert bool(given[0]) == bool(given[1]), (epoch, asked, given)
            if epoch == 0:
                numbers[:] = given

        both(0, (0, 0), (1, 0))
        both(1, (0, 3))
        both(2)
        both(3, (0, 1))
        both(4, (0, 99))
        both(5)
        both(6, (0, 0), forget=(1,))
        both(7, forget=(0,))
        both(8)
        both(0, (0, 0))
        both(2)
        both(1, wrong=1000)
        both(1, (0, 3), (1, 0))
        both(-1, (0, 0))
        both(2)


def test_list_offsets(pair: Pair) -> None:
    times = sorted({t for e in entries(pair.log) if not e.attributes & 0x20 for _, t in record_times(pair.log[e.start : e.end])})
    for version in range(1, 11):
        special = [-1, -2] + ([-3] if version >= 7 else []) + ([-4] if version >= 8 else [])
        for timestamp in [*special, 0, times[0], times[0] + 1, times[-1], times[-1] + 10**9, *times[::7]]:
            for isolation in (0, 1) if version >= 2 else (0,):
                asked = {"partition_index": 0, "timestamp": timestamp}
                body: dict[str, Any] = {"topics": [{"name": pair.topic, "partitions": [asked]}]}
                pair.same("ListOffsets", version, **body | ({"isolation_level": isolation} if isolation else {}))
    for asked in ({"partition_index": 9, "timestamp": -1}, {"partition_index": 0, "timestamp": -1, "current_leader_epoch": 5}):
        pair.same("ListOffsets", 8, topics=[{"name": pair.topic, "partitions": [asked]}])
    pair.same("ListOffsets", 8, topics=[{"name": "no.such.topic", "partitions": [{"partition_index": 0, "timestamp": -1}]}])


def test_offset_for_leader_epoch(pair: Pair) -> None:
    for version in (2, 3, 4):
        for epoch in (-1, 0, 1):
            for known in (-1, 0, 1):
                asked = {"partition": 0, "leader_epoch": epoch, "current_leader_epoch": known}
                pair.same("OffsetForLeaderEpoch", version, topics=[{"topic": pair.topic, "partitions": [asked]}])


@pytest.mark.parametrize("version", range(14))
def test_metadata(pair: Pair, version: int) -> None:
    body: dict[str, Any] = {"topics": [{"name": pair.topic}, {"name": "no.such.topic"}, {"name": "not legal"}]}
    if version >= 4:
        body["allow_auto_topic_creation"] = False
    real, ours = (wire.call("Metadata", version, **body) for wire in (pair.real, pair.ours))
    assert sorted(real["topics"], key=lambda t: t["name"]) == sorted(ours["topics"], key=lambda t: t["name"])
    assert [b["node_id"] for b in real["brokers"]] == [b["node_id"] for b in ours["brokers"]]
    if version >= 12:
        for topic_id in (pair.topic_id, b"\x22" * 16):
            asked = {"topics": [{"topic_id": topic_id, "name": None}], "allow_auto_topic_creation": False}
            one, other = (wire.call("Metadata", version, **asked) for wire in (pair.real, pair.ours))
            assert one["topics"] == other["topics"]


def test_commits(pair: Pair) -> None:
    group = f"of {pair.topic}"

    def is_ready() -> bool:
        found = pair.real.call("FindCoordinator", 3, key=group)["error_code"]  # the real one may make its offsets topic now
        return not found and not pair.real.call("OffsetFetch", 7, group_id=group, topics=None)["error_code"]

    wait_for(is_ready, "the coordinator")
    for version in range(2, 10):
        offset = {"partition_index": 0, "committed_offset": 10 + version, "committed_metadata": f"version {version}"}
        topics = [{"name": pair.topic, "partitions": [offset]}]

        pair.same("OffsetCommit", version, group_id=group, topics=topics)
        long = [{"name": pair.topic, "partitions": [offset | {"committed_metadata": "x" * 4097}]}]
        pair.same("OffsetCommit", version, group_id=group, topics=long)
        unknown = [{"name": "no.such.topic", "partitions": [offset]}]
        unknown.append({"name": pair.topic, "partitions": [offset | {"partition_index": 9}]})
        real, ours = (wire.call("OffsetCommit", version, group_id=group, topics=unknown) for wire in (pair.real, pair.ours))
        assert sorted(real["topics"], key=lambda t: t["name"]) == sorted(ours["topics"], key=lambda t: t["name"])
        pair.same("OffsetCommit", version, group_id="", topics=topics)
        for generation, member in ((1, "somebody"), (-1, "somebody"), (1, "")):
            fresh = {"group_id": f"fresh {pair.topic}", "generation_id_or_member_epoch": generation, "member_id": member}
            pair.same("OffsetCommit", version, **fresh, topics=topics)
    asked = [{"name": pair.topic, "partition_indexes": [0, 1]}]
    for version in range(1, 8):
        for name in (group, "nobody's"):
            pair.same("OffsetFetch", version, group_id=name, topics=asked)
            if version >= 2:
                pair.same("OffsetFetch", version, group_id=name, topics=None)
    for version in (8, 9):
        for name in (group, "nobody's"):
            for topics in (asked, None):
                pair.same("OffsetFetch", version, groups=[{"group_id": name, "topics": topics}])


def test_what_is_not_known(kafka: Kafka) -> None:
    host, _, port = kafka.servers.split(",")[0].rpartition(":")
    with Broker() as broker:
        for key, version in ((18, 99), (18, 5), (1, 3), (1, 99), (3, 99), (9999, 0), (8, 1)):
            answers = []
            for address in ((host, int(port)), broker.address(1)):
                with Wire(address) as wire:
                    wire.socket.sendall(struct.pack(">ihhihB", 11, key, version, 7, -1, 0))
                    answers.append(wire.receive())
            assert answers[0] == answers[1], (key, version)


def test_replicas_and_strangers(cluster_or_skip: None, tmp_path: Path) -> None:
    with KafkaCluster(tmp_path / "two", brokers=2) as cluster:
        kafka = Kafka(cluster)
        topics = {"own": 1, "shared": 2}
        made = kafka.admin.create_topics([NewTopic(name, 1, replication_factor=n) for name, n in topics.items()])
        for future in made.values():
            future.result(30)
        for name in topics:
            kafka.produce(name, [Sent(None, b"x", [])] * 3)
        addresses = [address.rpartition(":") for address in kafka.servers.split(",")]
        real = {node: Wire((host, int(port))) for node, (host, _, port) in enumerate(addresses, 1)}
        described = {t["name"]: t for t in real[1].call("Metadata", 12, topics=None)["topics"]}
        with Broker(nodes=2) as broker:
            ours = {node: Wire(broker, node) for node in (1, 2)}
            for name, replication in topics.items():
                leader = described[name]["partitions"][0]["leader_id"]
                broker.create_topic(name, replication=replication, topic_id=described[name]["topic_id"])
                broker.move_leader(name, 0, leader, epoch=0)
                wait_for(lambda name=name, leader=leader: only(real[leader].fetch(name))["records"], "the log")
                broker.append(name, 0, bytes(only(real[leader].fetch(name))["records"]), keep_offsets=True)
                if replication == 2:
                    wait_for(
                        lambda name=name, leader=leader: only(real[3 - leader].fetch(name))["high_watermark"] == 3, "the follower"
                    )
                for node in (1, 2):
                    for version in VERSIONS:
                        for epoch in (-1, 0, 1) if version >= 9 else (-1,):
                            topic = described[name]["topic_id"] if version >= 13 else name
                            answers = [wires[node].fetch(topic, version=version, epoch=epoch) for wires in (ours, real)]
                            for answer in answers:
                                for endpoint in answer["node_endpoints"]:
                                    endpoint["port"] = 0
                            assert not differences(*answers), (name, node, version, epoch)
                    for epoch in (-1, 0, 1):
                        asked = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": epoch}
                        body = {"topics": [{"name": name, "partitions": [asked]}]}
                        answers = [wires[node].call("ListOffsets", 5, **body) for wires in (ours, real)]
                        assert not differences(*answers), (name, node, epoch)
            for wire in [*real.values(), *ours.values()]:
                wire.__exit__(None, None, None)
