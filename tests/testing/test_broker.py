"""The broker's answers, asked for over a plain socket."""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fastfetch.errors import TimeoutError as TimedOut
from fastfetch.errors import UsageError
from fastfetch.protocol import decode_response, tables
from fastfetch.testing import KAFKA_VERSIONS, Broker, control_batch, encode_batch, message_set
from fastfetch.types import OffsetAndMetadata, TopicPartition
from tests.testing.wire import BY_NAME, Wire, only


def test_starts_in_milliseconds_and_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    start = time.monotonic()
    with Broker(nodes=3) as broker:
        assert time.monotonic() - start < 1
        with Wire(broker, 2) as wire:
            wire.call("Metadata", 9, topics=None)
            assert broker.connections(2) == broker.connections() == 1
        ports = [broker.address(node)[1] for node in broker.nodes]
    assert set(threading.enumerate()) == before
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


def test_closing_ends_connections_that_wait() -> None:
    broker = Broker()
    broker.create_topic("t")
    with Wire(broker) as wire:
        wire.send("Fetch", 12, max_wait_ms=60_000, min_bytes=1, topics=[{"topic": "t", "partitions": [{"partition": 0}]}])
        broker.wait_for("Fetch")
        start = time.monotonic()
        broker.close()
        assert wire.receive() == b""
        assert time.monotonic() - start < 2
    broker.close()


# ------------------------------------------------------------------------------------------------------------------ versions


@pytest.mark.parametrize("kafka", KAFKA_VERSIONS)
def test_every_announced_version_is_served(kafka: str) -> None:
    with Broker(kafka=kafka) as broker, Wire(broker) as wire:
        topic_id = broker.create_topic("t")
        announced = wire.call("ApiVersions", 3)["api_keys"]
        ranges = {k["api_key"]: (k["min_version"], k["max_version"]) for k in announced}
        newer = set() if kafka == "2.8" else {68, 69}
        assert ranges.keys() == {0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 23} | newer
        for key, (low, high) in ranges.items():
            if key == 0:
                continue  # Produce is announced for librdkafka's sake
            api = tables.BY_KEY[key]
            assert (low, high) == (
                max(KAFKA_VERSIONS[kafka][api.name][0], api.min_version),
                min(KAFKA_VERSIONS[kafka][api.name][1], api.max_version),
            )
            for version in range(low, high + 1):
                wire.call(api.name, version, **_question(api.name, version, topic_id))
        assert not [r for r in broker.requests() if r.refused]


def _question(api: str, version: int, topic_id: bytes) -> dict[str, Any]:
    """Something to ask in any version."""
    topic: dict[str, Any] = (
        {"topic_id": topic_id} if (api == "Fetch" and version > 12) or (version > 9 and api != "ListOffsets") else {}
    )
    questions: dict[str, dict[str, Any]] = {
        "ApiVersions": {},
        "Metadata": {"topics": [{"name": "t"}]},
        "ListOffsets": {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
        "Fetch": {"max_wait_ms": 0, "min_bytes": 0, "topics": [(topic or {"topic": "t"}) | {"partitions": [{"partition": 0}]}]},
        "FindCoordinator": {"coordinator_keys": ["g"]} if version >= 4 else {"key": "g"},
        "OffsetForLeaderEpoch": {"topics": [{"topic": "t", "partitions": [{"partition": 0, "leader_epoch": 0}]}]},
        "OffsetCommit": {
            "group_id": "g",
            "topics": [
                (topic or {"name": "t"})
                | {"partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}
            ],
        },
    }
    questions |= {name: {"group_id": "g", "generation_id": 1, "member_id": "m"} for name in ("SyncGroup", "Heartbeat")}
    questions |= {"ListGroups": {}, "DescribeGroups": {"groups": ["g"]}, "ConsumerGroupDescribe": {"group_ids": ["g"]}}
    questions["ConsumerGroupHeartbeat"] = {"group_id": "h", "member_id": "m", "member_epoch": 1}
    questions["LeaveGroup"] = {"group_id": "g"} | ({"members": [{"member_id": "m"}]} if version >= 3 else {"member_id": "m"})
    questions["JoinGroup"] = {
        "group_id": "g",
        "session_timeout_ms": 1000,
        "member_id": "m",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    if api == "OffsetFetch":
        topics = [(topic or {"name": "t"}) | {"partition_indexes": [0]}]
        return {"groups": [{"group_id": "g", "topics": topics}]} if version >= 8 else {"group_id": "g", "topics": topics}
    return questions[api]


def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    with Broker(versions={"ApiVersions": (0, 3)}) as broker, Wire(broker) as wire:
        wire.send("ApiVersions", 4)
        frame = wire.receive()
        assert frame[4:].hex() == "0023" + "00000001" + "0012" + "0000" + "0003"
        assert decode_response(tables.API_VERSIONS, 4, frame)[1]["error_code"] == 35
        wire.socket.sendall(struct.pack(">ihhih", 10, 18, 99, 7, -1))
        assert wire.receive()[:6] == struct.pack(">ih", 7, 35)
        assert wire.call("ApiVersions", 3)["error_code"] == 0  # the connection stays usable


@pytest.mark.parametrize(("key", "version"), [(1, 3), (1, 99), (3, 14), (0, 9), (42, 0), (8, 1)])
def test_any_other_unknown_request_closes_the_connection(key: int, version: int) -> None:
    with Broker() as broker, Wire(broker) as wire:
        wire.socket.sendall(struct.pack(">ihhih", 10, key, version, 1, -1))
        assert wire.receive() == b""
        (logged,) = broker.requests()
        assert (logged.version, logged.body) == (version, {})
        assert logged.refused


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\x02ab", b"GET / HTTP/1.1\r\n\r\n"])
def test_rubbish_closes_the_connection(data: bytes) -> None:
    with Broker() as broker:
        with Wire(broker) as wire:
            wire.socket.sendall(data)
            assert wire.receive() == b""
        with Wire(broker) as wire:
            assert wire.call("ApiVersions", 0)["error_code"] == 0


def test_version_caps() -> None:
    with Broker(versions={"Fetch": (4, 11), "OffsetForLeaderEpoch": None}) as broker, Wire(broker) as wire:
        ranges = {k["api_key"]: (k["min_version"], k["max_version"]) for k in wire.call("ApiVersions", 3)["api_keys"]}
        assert ranges[1] == (4, 11)
        assert 23 not in ranges
        wire.send("Fetch", 12, max_wait_ms=0, min_bytes=0, topics=[])
        assert wire.receive() == b""
    for wrong in ({"Fetch": (0, 3)}, {"Produce": (0, 9)}, {"Fetsch": (4, 5)}):
        with pytest.raises(UsageError):
            Broker(versions=wrong)
    with pytest.raises(UsageError, match=r"2\.8"):
        Broker(kafka="1.0")


# ------------------------------------------------------------------------------------------------------------------ metadata


def test_metadata_of_topics_nodes_and_leaders() -> None:
    with Broker(nodes=3, racks={2: "r2"}) as broker, Wire(broker) as wire:
        topic_id = broker.create_topic("t", partitions=4)
        broker.create_topic("__internal", internal=True)
        answer = wire.call("Metadata", 12, topics=[{"name": "t"}])
        assert [(b["node_id"], b["host"], b["port"], b["rack"]) for b in answer["brokers"]] == [
            (n, *broker.address(n), "r2" if n == 2 else None) for n in (1, 2, 3)
        ]
        (topic,) = answer["topics"]
        assert (topic["name"], topic["topic_id"], topic["error_code"], topic["is_internal"]) == ("t", topic_id, 0, False)
        assert [(p["partition_index"], p["leader_id"], p["leader_epoch"]) for p in topic["partitions"]] == [
            (0, 1, 0), (1, 2, 0), (2, 3, 0), (3, 1, 0),
        ]  # fmt: skip
        assert [t["name"] for t in wire.call("Metadata", 1, topics=None)["topics"]] == ["t", "__internal"]
        assert [t["name"] for t in wire.call("Metadata", 0, topics=[])["topics"]] == ["t", "__internal"]
        assert wire.call("Metadata", 1, topics=[])["topics"] == []
        by_id = wire.call("Metadata", 12, topics=[{"topic_id": topic_id, "name": None}, {"topic_id": b"x" * 16, "name": None}])
        assert [(t["name"], t["error_code"]) for t in by_id["topics"]] == [("t", 0), (None, 100)]


def test_unknown_topics_are_not_made() -> None:
    with Broker() as broker, Wire(broker) as wire:
        for _ in range(2):
            answer = wire.call("Metadata", 4, topics=[{"name": "no"}, {"name": "n/o"}], allow_auto_topic_creation=True)
            assert [(t["name"], t["error_code"]) for t in answer["topics"]] == [("no", 3), ("n/o", 17)]


def test_topics_change_while_running() -> None:
    with Broker(nodes=2) as broker, Wire(broker) as wire:
        first = broker.create_topic("t")
        broker.append("t", 0, encode_batch([b"x"]))
        broker.add_partitions("t", 3)
        assert len(wire.call("Metadata", 9, topics=[{"name": "t"}])["topics"][0]["partitions"]) == 3
        broker.move_leader("t", 0, 2)
        found = wire.call("Metadata", 9, topics=[{"name": "t"}])["topics"][0]["partitions"][0]
        assert (found["leader_id"], found["leader_epoch"]) == broker.leader("t", 0) == (2, 1)
        broker.delete_topic("t")
        assert wire.call("Metadata", 9, topics=[{"name": "t"}])["topics"][0]["error_code"] == 3
        assert broker.create_topic("t") != first
        assert broker.end_offset("t", 0) == 0
        for wrong in (lambda: broker.create_topic("t"), lambda: broker.append("t", 1, b""), lambda: broker.leader("no", 0)):
            with pytest.raises(UsageError):
                wrong()


def test_topic_ids_are_the_same_in_every_run_and_may_be_absent() -> None:
    ids = set()
    for _ in range(2):
        with Broker() as broker:
            ids.add(broker.create_topic("t"))
    assert len(ids) == 1
    with Broker(topic_ids=False) as broker:
        assert broker.create_topic("t") == bytes(16)


def test_a_dead_node_leaves_its_partitions_without_a_leader() -> None:
    with Broker(nodes=2) as broker, Wire(broker, 2) as wire, Wire(broker, 1) as gone:
        broker.create_topic("t", partitions=2)
        port = broker.address(1)[1]
        gone.call("ApiVersions", 0)  # or its connection might not have been accepted yet
        broker.kill_node(1)
        assert gone.receive() == b""
        answer = wire.call("Metadata", 9, topics=[{"name": "t"}])
        assert [b["node_id"] for b in answer["brokers"]] == broker.nodes == [2]
        assert [(p["leader_id"], p["error_code"]) for p in answer["topics"][0]["partitions"]] == [(-1, 5), (2, 0)]
        broker.restart_node(1)
        assert broker.address(1)[1] == port
        assert broker.leader("t", 0) == (1, 0)
        broker.kill_node(1, elect=True)
        assert broker.leader("t", 0) == (2, 1)
        broker.restart_node(1, new_port=True)
        with Wire(broker, 1) as again:
            assert again.call("ApiVersions", 0)["error_code"] == 0


# ------------------------------------------------------------------------------------------------------------------- offsets


def ask(wire: Wire, timestamp: int, *, version: int = 8, isolation: int = 0, epoch: int = -1, topic: str = "t") -> dict[str, Any]:
    partition = {"partition_index": 0, "timestamp": timestamp} | ({"current_leader_epoch": epoch} if version >= 4 else {})
    body: dict[str, Any] = {"topics": [{"name": topic, "partitions": [partition]}]}
    return only(wire.call("ListOffsets", version, **body | ({"isolation_level": isolation} if version >= 2 else {})))


def test_list_offsets() -> None:
    with Broker() as broker, Wire(broker) as wire:
        broker.create_topic("t")
        assert [ask(wire, t)["offset"] for t in (-1, -2, -3, 0)] == [0, 0, -1, -1]
        broker.append("t", 0, encode_batch([(None, b"", t) for t in (100, 300, 200)], codec="zstd"))
        broker.append("t", 0, encode_batch([(None, b"", t) for t in (250, 150)], codec="gzip"))
        broker.append("t", 0, encode_batch([b"", b""], log_append_time=400))
        broker.append("t", 0, message_set([(None, b"", 500), (None, b"", 510)], codec="snappy"))
        found = {t: ask(wire, t) for t in (-1, -2, -3, 0, 100, 101, 300, 301, 505, 511)}
        assert {t: (f["offset"], f["timestamp"]) for t, f in found.items()} == {
            -1: (9, -1),
            -2: (0, -1),
            -3: (8, 510),
            0: (0, 100),
            100: (0, 100),
            101: (1, 300),
            300: (1, 300),
            301: (5, 400),
            505: (8, 510),
            511: (-1, -1),
        }
        broker.delete_records("t", 0, before=2)
        assert [ask(wire, t)["offset"] for t in (-2, 0, 300)] == [2, 2, 5]
        assert ask(wire, -1, version=1)["offset"] == broker.end_offset("t", 0) == 9
        assert broker.start_offset("t", 0) == 2
        assert ask(wire, -1, topic="no")["error_code"] == 3


def test_list_offsets_of_open_transactions() -> None:
    with Broker() as broker, Wire(broker) as wire:
        broker.create_topic("t")
        broker.append("t", 0, encode_batch([b"a"], timestamp=10))
        broker.append("t", 0, encode_batch([b"b"], timestamp=20, producer_id=7, transactional=True))
        broker.append("t", 0, encode_batch([b"c"], timestamp=30))
        assert [(ask(wire, t)["offset"], ask(wire, t, isolation=1)["offset"]) for t in (-1, 20, -3)] == [(3, 1), (1, -1), (2, 0)]
        assert broker.end_offset("t", 0, isolation="read_committed") == 1
        broker.append("t", 0, control_batch("commit", producer_id=7))
        assert ask(wire, -1, isolation=1)["offset"] == broker.end_offset("t", 0, isolation="read_committed") == 4


def test_leader_epochs_are_checked_and_remembered() -> None:
    with Broker(nodes=2) as broker, Wire(broker, 1) as one, Wire(broker, 2) as two:
        broker.create_topic("t")
        broker.append("t", 0, encode_batch([b"a"] * 3))
        broker.move_leader("t", 0, 2, epoch=4)
        broker.append("t", 0, encode_batch([b"a"] * 2))
        broker.move_leader("t", 0, 1, epoch=7)

        def end_of(epoch: int, *, known: int = -1, wire: Wire = one) -> tuple[int, int, int]:
            partition = {"partition": 0, "leader_epoch": epoch, "current_leader_epoch": known}
            found = only(wire.call("OffsetForLeaderEpoch", 4, topics=[{"topic": "t", "partitions": [partition]}]))
            return found["error_code"], found["leader_epoch"], found["end_offset"]

        assert [end_of(e) for e in (0, 1, 4, 5, 7, 8)] == [
            (0, 0, 3), (0, 0, 3), (0, 4, 5), (0, 4, 5), (0, 7, 5), (0, -1, -1),
        ]  # fmt: skip
        assert [end_of(0, known=e)[0] for e in (6, 7, 8)] == [74, 0, 75]
        assert end_of(0, wire=two)[0] == 6
        assert [ask(one, -1, epoch=e)["error_code"] for e in (6, 7, 8)] == [74, 0, 75]
        assert ask(two, -1)["error_code"] == 6
        assert (ask(one, -2)["leader_epoch"], ask(one, -1)["leader_epoch"]) == (0, 7)
        broker.truncate("t", 0, to=4)
        assert broker.end_offset("t", 0) == 4
        assert end_of(4) == (0, 4, 4)


# -------------------------------------------------------------------------------------------------------------------- groups


def commit(
    wire: Wire, offset: int, *, version: int = 7, group: str = "g", topic: str = "t", metadata: str = "", **more: Any
) -> int:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": metadata}
    if version >= 6:
        partition["committed_leader_epoch"] = 3
    body = {"group_id": group, "topics": [{"name": topic, "partitions": [partition]}]} | more
    return int(only(wire.call("OffsetCommit", version, **body))["error_code"])


def test_commits_without_membership() -> None:
    with Broker(nodes=2) as broker:
        broker.create_topic("t", partitions=2)
        group = next(g for g in map(str, range(99)) if broker.coordinator(g) == 2)
        with Wire(broker, 2) as wire, Wire(broker, 1) as other:
            found = wire.call("FindCoordinator", 3, key=group, key_type=0)
            assert (found["node_id"], found["port"]) == (2, broker.address(2)[1])
            many = wire.call("FindCoordinator", 4, key_type=0, coordinator_keys=[group, "x"])
            assert [c["key"] for c in many["coordinators"]] == [group, "x"]
            assert commit(wire, 5, group=group, metadata="note") == 0
            assert broker.committed(group) == {TopicPartition("t", 0): OffsetAndMetadata(5, "note", 3)}
            assert commit(other, 6, group=group) == 16
            assert commit(wire, 6, group=group, topic="no") == 3
            assert commit(wire, 6, group=group, generation_id_or_member_epoch=1, member_id="m") == 25
            assert commit(wire, 6, group=group, metadata="x" * 5000) == 12
            assert broker.committed(group)[TopicPartition("t", 0)].offset == 5

            asked = [{"name": "t", "partition_indexes": [0, 1]}]
            for version in range(1, 8):
                answer = wire.call("OffsetFetch", version, group_id=group, topics=asked)
                pairs = [(p["committed_offset"], p["metadata"]) for p in answer["topics"][0]["partitions"]]
                assert pairs == [(5, "note"), (-1, "")]
                assert [p["committed_leader_epoch"] for p in answer["topics"][0]["partitions"]] == (
                    [3, -1] if version >= 5 else [-1, -1]
                )
            (all_of_it,) = wire.call("OffsetFetch", 8, groups=[{"group_id": group, "topics": None}])["groups"]
            assert only(all_of_it)["committed_offset"] == 5
            assert other.call("OffsetFetch", 7, group_id=group, topics=asked)["error_code"] == 16
            assert other.call("OffsetFetch", 9, groups=[{"group_id": group, "topics": asked}])["groups"][0]["error_code"] == 16

            broker.move_coordinator(group, 1)
            assert commit(wire, 7, group=group) == 16
            assert commit(other, 7, group=group) == 0
            broker.set_committed(group, "t", 1, 77)
            assert broker.committed(group)[TopicPartition("t", 1)] == OffsetAndMetadata(77)
            broker.kill_node(1)
            assert wire.call("FindCoordinator", 3, key=group)["error_code"] == 15


# -------------------------------------------------------------------------------------------------------------- log and wait


def test_the_log_of_requests() -> None:
    with Broker(nodes=2) as broker, Wire(broker, 2) as wire:
        wire.call("Metadata", 9, topics=[{"name": "t"}])
        wire.call("ApiVersions", 3, client_software_name="wire", client_software_version="1")
        first, second = broker.requests()
        assert (first.api, first.version, first.node, first.client_id, first.correlation_id) == ("Metadata", 9, 2, "wire", 1)
        assert first.body["topics"][0]["name"] == "t"
        assert first.connection == second.connection == broker.connections_made == 1
        assert first.time <= second.time <= time.monotonic()
        assert broker.requests("Metadata", node=1) == []
        assert [r.api for r in broker.wait_for("ApiVersions")] == ["ApiVersions"]
        threading.Timer(0.05, lambda: wire.call("Metadata", 9, topics=[])).start()
        assert len(broker.wait_for("Metadata", 2)) == 2
        with pytest.raises(TimedOut, match=r"0 of 1 Fetch requests.*ApiVersions, Metadata"):
            broker.wait_for("Fetch", timeout=0.05)
        broker.forget_requests()
        assert broker.requests() == []


def test_tls(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=x",
    ]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    made = subprocess.run(command, capture_output=True, check=False)
    if made.returncode:
        pytest.skip("needs the openssl program")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    with Broker(tls=server) as broker:
        broker.create_topic("t")
        batch = encode_batch([b"x" * 100_000])
        broker.append("t", 0, batch)
        with Wire(broker) as wire:
            wire.input.close()
            wire.socket = ssl.create_default_context(cafile=certificate).wrap_socket(wire.socket, server_hostname="127.0.0.1")
            wire.input = wire.socket.makefile("rb")
            assert len(only(wire.fetch())["records"]) == len(batch)


def test_the_example_of_the_module_runs(capsys: pytest.CaptureFixture[str]) -> None:
    from fastfetch.testing import broker

    assert broker.__doc__
    block = [line for line in broker.__doc__.splitlines() if line.startswith("    ") or not line]
    asked = []
    exec(textwrap.dedent("\n".join(block)), {"read_all": asked.append})
    assert asked[0].count("127.0.0.1:") == 2
    assert capsys.readouterr().out == "{}\n"


def test_all_names_of_apis_are_known() -> None:
    with Broker() as broker:
        for name in BY_NAME:
            broker.on(name, lambda exchange: None)
        with pytest.raises(UsageError, match="no API"):
            broker.on("Fetsch", lambda exchange: None)


def test_bytes_behind_a_request_are_let_through_and_logged() -> None:
    # librdkafka's Metadata v13 for all topics has three; brokers don't look.
    request = bytes.fromhex("0003000d00000003000772646b61666b610000000000000000")
    with Broker() as broker, Wire(broker) as wire:
        wire.socket.sendall(struct.pack(">i", len(request)) + request)
        assert decode_response(tables.METADATA, 13, wire.receive())[0] == 3
        assert [(r.api, r.left_over) for r in broker.requests()] == [("Metadata", 3)]
