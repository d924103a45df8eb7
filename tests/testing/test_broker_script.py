"""What a script does to an exchange, seen from a plain socket."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fastfetch.errors import ProtocolError, UsageError
from fastfetch.protocol import decode_response, tables
from fastfetch.testing import (
    Broker,
    Exchange,
    Gate,
    answer,
    close,
    cut,
    delay,
    drop,
    duplicate,
    edit,
    encode_batch,
    error,
    flip,
    hold,
    replace,
    reset,
    slices,
    swap,
    throttle,
    top_error,
)
from tests.testing.wire import Wire, only

BATCH = encode_batch([b"x" * 100] * 300)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(nodes=2) as made:
        made.create_topic("t", partitions=2)
        made.append("t", 0, BATCH)
        yield made


def fetch_both(wire: Wire) -> list[tuple[int, int]]:
    """(error, bytes) of both partitions of t from node 1, which leads only the first."""
    asked = [{"partition": p, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for p in (0, 1)]
    (topic,) = wire.fetch_all([("t", asked)])["responses"]
    return [(p["error_code"], len(p["records"])) for p in topic["partitions"]]


# --------------------------------------------------------------------------------------------------------------- when rules act


def test_nth_times_node_and_when(broker: Broker) -> None:
    with Wire(broker, 1) as one, Wire(broker, 2) as two:

        def errors(wire: Wire, count: int) -> list[int]:
            return [wire.call("ListOffsets", 7, topics=[])["throttle_time_ms"] for _ in range(count)]

        rule = broker.on("ListOffsets", throttle(1), nth=2, times=2)
        assert errors(one, 2) + errors(two, 2) == [0, 1, 1, 0]
        assert (rule.seen, rule.done) == (4, 2)
        broker.on("ListOffsets", throttle(2), node=2, times=None)
        assert errors(one, 2) + errors(two, 3) == [0, 0, 2, 2, 2]
        forever = broker.on("*", throttle(3), times=None, when=lambda request: request.correlation_id == 6)
        assert errors(one, 4) == [0, 3, 0, 0]
        # several rules act in the order they were made
        assert errors(two, 2) == [3, 2]
        broker.off(forever)
        broker.on("ListOffsets", throttle(4))
        assert errors(two, 2) == [4, 2]
        broker.off()
        assert errors(two, 1) == [0]
        with pytest.raises(UsageError, match="nth"):
            broker.on("Fetch", drop(), nth=0)


# ---------------------------------------------------------------------------------------------------------------------- bodies


def test_errors_of_partitions(broker: Broker) -> None:
    with Wire(broker) as wire:
        plain = fetch_both(wire)
        assert plain == [(0, len(BATCH)), (6, 0)]
        broker.on("Fetch", error(56))
        assert fetch_both(wire) == [(56, 0), (56, 0)]
        broker.on("Fetch", error(2, topic="t", partition=0))
        assert fetch_both(wire) == [(2, 0), (6, 0)]
        broker.on("Fetch", error(2, topic="other"))
        assert fetch_both(wire) == plain
        topic_id = broker.create_topic("with id")
        broker.on("Fetch", error(9, topic="with id"))
        assert only(wire.fetch(topic_id, version=13))["error_code"] == 9


def test_errors_of_the_other_apis(broker: Broker) -> None:
    with Wire(broker, broker.coordinator("g")) as wire:
        broker.on("ListOffsets", error(78))
        asked = [{"partition_index": 0, "timestamp": -2}]
        assert only(wire.call("ListOffsets", 5, topics=[{"name": "t", "partitions": asked}]))["error_code"] == 78
        broker.on("OffsetForLeaderEpoch", error(75, topic="t", partition=0))
        asked = [{"partition": 0, "leader_epoch": 0}]
        found = only(wire.call("OffsetForLeaderEpoch", 3, topics=[{"topic": "t", "partitions": asked}]))
        assert (found["error_code"], found["end_offset"]) == (75, -1)
        broker.on("Metadata", error(29, topic="t"))
        (topic,) = wire.call("Metadata", 9, topics=None)["topics"]
        assert (topic["error_code"], topic["partitions"]) == (29, [])
        broker.on("Metadata", error(5, topic="t", partition=1))
        (topic,) = wire.call("Metadata", 9, topics=None)["topics"]
        assert [p["error_code"] for p in topic["partitions"]] == [0, 5]
        for version in (3, 4):
            broker.on("FindCoordinator", error(15))
            body: dict[str, Any] = {"key": "g"} if version == 3 else {"coordinator_keys": ["g"]}
            found = wire.call("FindCoordinator", version, **body)
            found = found if version == 3 else found["coordinators"][0]
            assert (found["error_code"], found["node_id"], found["host"], found["port"]) == (15, -1, "", -1)
        broker.set_committed("g", "t", 0, 5)
        asked_topics = [{"name": "t", "partition_indexes": [0]}]
        broker.on("OffsetFetch", error(88), times=2)
        old = only(wire.call("OffsetFetch", 7, group_id="g", topics=asked_topics))
        new = only(wire.call("OffsetFetch", 8, groups=[{"group_id": "g", "topics": asked_topics}])["groups"][0])
        assert old == new
        assert (old["error_code"], old["committed_offset"]) == (88, -1)
        broker.on("OffsetCommit", error(27))
        commit = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}]}]
        assert only(wire.call("OffsetCommit", 7, group_id="g", topics=commit))["error_code"] == 27


def test_errors_of_the_whole(broker: Broker) -> None:
    with Wire(broker, broker.coordinator("g")) as wire:
        broker.on("Fetch", top_error(71))
        found = wire.fetch()
        assert (found["error_code"], found["responses"]) == (71, [])
        broker.on("ApiVersions", top_error(35))
        wire.send("ApiVersions", 3)
        assert decode_response(tables.API_VERSIONS, 3, wire.receive())[1]["error_code"] == 35
        broker.on("OffsetFetch", top_error(14), times=2)
        found = wire.call("OffsetFetch", 7, group_id="g", topics=None)
        assert (found["error_code"], found["topics"]) == (14, [])
        found = wire.call("OffsetFetch", 8, groups=[{"group_id": "g", "topics": None}])["groups"][0]
        assert (found["error_code"], found["topics"]) == (14, [])


def test_other_bodies(broker: Broker) -> None:
    with Wire(broker) as wire:
        broker.on("Metadata", replace({"brokers": [], "topics": [], "controller_id": 7}))
        assert wire.call("Metadata", 9, topics=None)["controller_id"] == 7
        broker.on("Metadata", replace(lambda request, body: body | {"cluster_id": f"v{request.version}"}))
        assert wire.call("Metadata", 9, topics=None)["cluster_id"] == "v9"

        def halve(exchange: Exchange) -> None:
            partition = exchange.body["responses"][0]["partitions"][0]
            partition["records"] = partition["records"][: len(BATCH) // 2]

        whole = bytes(only(wire.fetch())["records"])
        broker.on("Fetch", halve)
        assert only(wire.fetch())["records"] == whole[: len(BATCH) // 2]
        broker.on("Fetch", throttle(1234))
        found = wire.fetch()
        assert (found["throttle_time_ms"], len(only(found)["records"])) == (1234, len(BATCH))


def test_a_script_that_fails_says_so() -> None:
    broker = Broker()
    broker.on("Metadata", replace({"topisc": []}))
    with Wire(broker) as wire:
        wire.send("Metadata", 9, topics=None)
        assert wire.receive() == b""
    with pytest.raises(UsageError, match="topisc"):
        broker.close()

    def fail() -> None:
        with Broker() as broker, Wire(broker) as wire:
            broker.on("Metadata", lambda exchange: 1 / 0)
            wire.call("Metadata", 9, topics=None)

    with pytest.raises(ProtocolError) as caught:
        fail()
    assert ["ZeroDivisionError" in note for note in caught.value.__notes__] == [True]


# ---------------------------------------------------------------------------------------------------------------------- frames


def test_changed_frames(broker: Broker) -> None:
    with Wire(broker) as wire:
        wire.send("Fetch", 12, max_wait_ms=0, min_bytes=0, topics=[])
        whole = wire.receive()
        for at, mask in ((4, 0x80), (-1, 0x01)):
            broker.on("Fetch", flip(at, mask))
            wire.sent = 0
            wire.send("Fetch", 12, max_wait_ms=0, min_bytes=0, topics=[])
            changed = bytearray(wire.receive())
            changed[at - 4 if at >= 0 else at] ^= mask
            assert changed == whole
        broker.on("Fetch", edit(lambda frame: frame[:4] + frame[4:][::-1]))
        wire.sent = 0
        wire.send("Fetch", 12, max_wait_ms=0, min_bytes=0, topics=[])
        assert wire.receive() == whole[::-1]
        broker.on("Fetch", answer(b"HTTP/1.1 400 Bad Request\r\n\r\n"), close())
    with Wire(broker) as wire:
        broker.off()
        broker.on("ApiVersions", answer(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
        wire.send("ApiVersions", 3)
        assert wire.socket.recv(100).startswith(b"HTTP/1.1 400")


# --------------------------------------------------------------------------------------------------------------------- sending


def test_delays_hold_up_their_connection_only(broker: Broker) -> None:
    with Wire(broker) as late, Wire(broker) as prompt:
        broker.on("Metadata", delay(1))
        start = time.monotonic()
        late.send("Metadata", 9, topics=[])
        broker.wait_for("Metadata")
        late.send("ApiVersions", 3)
        prompt.call("Metadata", 9, topics=[])
        assert time.monotonic() - start < 0.9
        first, second = late.receive(), late.receive()
        assert time.monotonic() - start >= 1
        assert (first[3], second[3]) == (1, 2)


@pytest.mark.parametrize("answered", [False, True])
def test_a_gate(broker: Broker, answered: bool) -> None:
    gate = Gate()
    broker.on("Fetch", hold(gate, answered=answered))
    with Wire(broker) as wire:
        asked = {"partition": 0, "partition_max_bytes": 1 << 20}
        wire.send("Fetch", 12, max_wait_ms=0, topics=[{"topic": "t", "partitions": [asked]}])
        assert gate.arrived.wait(5)
        broker.append("t", 0, BATCH)
        gate.open()
        _, body = decode_response(tables.FETCH, 12, wire.receive())
        assert len(only(body)["records"]) == len(BATCH) * (1 if answered else 2)


def test_a_closed_gate_does_not_keep_the_broker_from_closing() -> None:
    others = set(threading.enumerate())  # of brokers before this one, that end by themselves
    with Broker() as broker, Wire(broker) as wire:
        broker.on("Metadata", hold(Gate()))
        wire.send("Metadata", 9, topics=[])
        broker.wait_for("Metadata")
        start = time.monotonic()
        broker.close()
        assert time.monotonic() - start < 2
        assert not [t for t in set(threading.enumerate()) - others if t.name.startswith("fastfetch-broker")]


def test_dropped_doubled_and_swapped_answers(broker: Broker) -> None:
    def ids(wire: Wire, sent: int, arrive: int) -> list[int]:
        for _ in range(sent):
            wire.send("ApiVersions", 0)
        return [int.from_bytes(wire.receive()[:4], "big") for _ in range(arrive)]

    with Wire(broker) as wire:
        broker.on("ApiVersions", drop(), nth=2)
        assert ids(wire, 3, 2) == [1, 3]
        broker.on("ApiVersions", duplicate())
        assert ids(wire, 2, 3) == [4, 4, 5]
        broker.on("ApiVersions", swap(), nth=2)
        assert ids(wire, 4, 4) == [6, 8, 7, 9]


def read_all(wire: Wire) -> list[bytes]:
    """What arrives until the connection ends, as recv() hands it out."""
    out = []
    while piece := wire.socket.recv(1000):
        out.append(piece)
    return out


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 70, 1000])
def test_cut_answers(broker: Broker, size: int) -> None:
    with Wire(broker) as wire:
        wire.send("ApiVersions", 3)
        whole = wire.socket.recv(1000)
    broker.on("ApiVersions", cut(size))
    with Wire(broker) as wire:
        wire.send("ApiVersions", 3)
        assert b"".join(read_all(wire)) == whole[:size]


def test_slices(broker: Broker) -> None:
    with Wire(broker) as wire:
        wire.send("ApiVersions", 3)
        whole = wire.socket.recv(1000)
        broker.on("ApiVersions", slices(len(whole) // 4, between=0.1))
        wire.send("ApiVersions", 3)
        first = wire.socket.recv(1000)
        # A busy machine may hand over two pieces at once; never the whole.
        assert 0 < len(first) < len(whole)
        rest = wire.input.read(len(whole) - len(first))
        assert (first + rest)[8:] == whole[8:]
    broker.on("Fetch", slices(1000))
    with Wire(broker) as wire:
        assert len(only(wire.fetch())["records"]) == len(BATCH)


def test_ends_of_connections(broker: Broker) -> None:
    broker.on("ApiVersions", close())
    with Wire(broker) as wire:
        wire.send("ApiVersions", 3)
        assert wire.receive() == b""
    broker.on("ApiVersions", reset())
    with Wire(broker) as wire:
        wire.send("ApiVersions", 3)
        with pytest.raises(ConnectionResetError):
            wire.receive()
    with Wire(broker) as wire:
        wire.call("ApiVersions", 3)
        broker.disconnect()
        assert wire.receive() == b""
    with Wire(broker) as wire:
        assert wire.call("ApiVersions", 3)["error_code"] == 0
    assert broker.connections_made == 4
