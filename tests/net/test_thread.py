"""The background thread over real sockets: every way in which a stream can come, stall or end."""

from __future__ import annotations

import itertools
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator

import pytest

from fastfetch import Consumer, TopicPartition
from fastfetch.errors import ConnectionFailedError
from fastfetch.testing import Broker, encode_batch
from fastfetch.testing.faults import Action, Exchange, cut, delay, reset, slices, swap, throttle

TP = TopicPartition("t", 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("t")
        for _ in range(5):
            broker.append("t", 0, encode_batch([b"value"] * 10, codec="lz4"))
        yield broker


def read(consumer: Consumer, count: int, seconds: float = 20) -> list[int]:
    out: list[int] = []
    deadline = time.monotonic() + seconds
    while len(out) < count and time.monotonic() < deadline:
        for block in consumer.poll_blocks(timeout_ms=200):
            out += block.offsets.tolist()
    return out


def consumer_of(broker: Broker, **settings: object) -> Consumer:
    consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", **settings)
    consumer.assign([TP])
    return consumer


@pytest.mark.parametrize("size", [1, 3, 7, 64])
def test_answers_in_slices(broker: Broker, size: int) -> None:
    broker.on("*", slices(size), times=None)
    with consumer_of(broker) as consumer:
        assert read(consumer, 50) == list(range(50))


@pytest.mark.parametrize("at", [0, 1, 3, 4, 5, 8, 20, 61, 100, 200])
def test_a_connection_cut_inside_an_answer(broker: Broker, at: int) -> None:
    broker.on("Fetch", cut(at))
    with consumer_of(broker) as consumer:
        assert read(consumer, 50) == list(range(50))


def test_a_cut_after_any_byte(broker: Broker) -> None:
    """Every second answer is cut, each a little later than the one before; FASTFETCH_SOAK_SECONDS: at every byte."""
    step = 1 if "FASTFETCH_SOAK_SECONDS" in os.environ else 67
    cuts = list(range(0, 4096, step))
    broker.create_topic("endless")
    broker.generate("endless", 0, encode_batch([bytes(300)] * 12), 20_000)
    turn = itertools.count()

    def cut_some(exchange: Exchange) -> None:
        n = next(turn)
        if n % 2 and n // 2 < len(cuts):
            exchange.send = [b"".join(exchange.send)[: cuts[n // 2]]]
            exchange.ending = "close"

    broker.on("Fetch", Action("send", cut_some), times=None)
    settings = {"max_partition_fetch_bytes": 4096, "fetch_max_bytes": 4096, "reconnect_backoff_ms": 1}
    with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([TopicPartition("endless", 0)])
        expected = 0
        deadline = time.monotonic() + 240
        while len(broker.requests("Fetch")) < 2 * len(cuts) + 4:
            assert time.monotonic() < deadline
            for block in consumer.poll_blocks(timeout_ms=1_000):
                assert block.offsets.tolist() == list(range(expected, block.next_offset))
                expected = block.next_offset
        metrics = consumer.metrics()
    assert expected > 12 * len(cuts)
    assert metrics["connections_lost"] >= len(cuts)


@pytest.mark.parametrize("told_ms", [3_000, 2**31 - 1])
def test_a_throttled_consumer_is_silent_and_its_polls_are_on_time(broker: Broker, told_ms: int) -> None:
    broker.on("Fetch", throttle(told_ms))
    with consumer_of(broker, max_partition_fetch_bytes=100) as consumer:
        assert read(consumer, 10)[0] == 0
        asked, cpu, begun = len(broker.requests("Fetch")), time.process_time(), time.monotonic()
        while time.monotonic() - begun < 1:
            late = time.monotonic()
            consumer.poll(timeout_ms=100)
            assert time.monotonic() - late < 0.1 + 0.25
        assert len(broker.requests("Fetch")) == asked
        assert time.process_time() - cpu < 0.5, "a busy loop"
        assert consumer.metrics()["throttle_ms"] == min(told_ms, 300_000)


@pytest.mark.parametrize("api", ["ApiVersions", "Metadata", "ListOffsets", "Fetch"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_reset_in_place_of_an_answer(broker: Broker, api: str, nth: int) -> None:
    broker.on(api, reset(), nth=nth)
    with consumer_of(broker, max_partition_fetch_bytes=200) as consumer:
        assert read(consumer, 50) == list(range(50))


def test_answers_in_the_wrong_order(broker: Broker) -> None:
    """Two questions on one connection, answered the other way round: the connection is given up and both are asked again."""
    broker.on("ListOffsets", swap())
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.partitions_for("t")
        consumer.assign([TP])
        consumer.seek_to_beginning(TP)
        assert consumer.end_offsets([TP], timeout_ms=5_000) == {TP: 50}
        assert consumer.position(TP, timeout_ms=5_000) == 0


def test_a_slow_answer_is_no_dead_connection(broker: Broker) -> None:
    """Bytes keep coming, slower than the request timeout allows for the whole."""
    broker.append("t", 0, encode_batch([bytes(4000)]))
    broker.on("Fetch", slices(500, 0.35))
    with consumer_of(broker, request_timeout_ms=1_500, fetch_max_wait_ms=100) as consumer:
        assert read(consumer, 51) == list(range(51))
    asked = [t["partitions"][0]["fetch_offset"] for request in broker.requests("Fetch") for t in request.body["topics"]]
    assert asked in ([0], [0, 51])


def test_a_silent_broker_is_given_up_after_the_request_timeout(broker: Broker) -> None:
    broker.on("Fetch", delay(30))
    with consumer_of(broker, request_timeout_ms=600, fetch_max_wait_ms=100) as consumer:
        begun = time.monotonic()
        assert read(consumer, 50) == list(range(50))
        assert 0.5 < time.monotonic() - begun < 5


def test_all_addresses_of_a_name_are_tried(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    port = int(broker.bootstrap_servers.split(":")[1])
    real = socket.getaddrinfo

    def fake(host: str, *args: object, **kwargs: object) -> object:
        if host == "some-name":
            if kwargs.get("flags"):
                raise socket.gaierror("not a literal address")
            dead = socket.socket()
            dead.bind(("127.0.0.1", 0))
            address = dead.getsockname()
            dead.close()
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", a) for a in (address, ("127.0.0.1", port))]
        return real(host, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", fake)
    with Consumer(bootstrap_servers=f"some-name:{port}") as consumer:
        assert consumer.topics(timeout_ms=5_000) == {"t"}


def test_a_name_without_an_address_is_said_and_blocks_nobody(monkeypatch: pytest.MonkeyPatch, broker: Broker) -> None:
    release = threading.Event()
    real = socket.getaddrinfo

    def fake(host: str, *args: object, **kwargs: object) -> object:
        if host == "slow-name":
            if kwargs.get("flags"):
                raise socket.gaierror("not a literal address")
            release.wait(20)
            raise socket.gaierror(-2, "Name or service not known")
        return real(host, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", fake)
    try:
        with Consumer(bootstrap_servers=f"slow-name:1,{broker.bootstrap_servers}") as consumer:
            assert consumer.topics(timeout_ms=5_000) == {"t"}
        release.set()
        with Consumer(bootstrap_servers="slow-name:1") as consumer:
            begun = time.monotonic()
            with pytest.raises(ConnectionFailedError, match=r"slow-name:1.*[Nn]ame"):
                consumer.topics(timeout_ms=500)
            assert time.monotonic() - begun < 0.75
    finally:
        release.set()


@pytest.mark.parametrize(
    ("greeting", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS"),
        (b"\0\0\x12\x04\0\0\0\0\0" + bytes(18), "HTTP"),  # HTTP/2, and the connection stays open
        (b"\x7f\xff\xff\xff", "2147483647 bytes"),
    ],
)
def test_what_is_no_kafka_broker_is_named(greeting: bytes, says: str) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    made = []

    def serve() -> None:
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            made.append(peer)
            peer.recv(1000)
            peer.sendall(greeting)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        with Consumer(bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}") as consumer:
            with pytest.raises(ConnectionFailedError, match=says):
                consumer.topics(timeout_ms=700)
            assert len(made) < 10, "not retried at full speed"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)
        for peer in made:
            peer.close()


def test_a_port_that_wants_tls_is_named() -> None:
    """It hangs up on the first request, with an alert or without a word."""
    with Broker(tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)) as broker:
        consumer = Consumer(bootstrap_servers=broker.bootstrap_servers)
        with consumer, pytest.raises(ConnectionFailedError, match="TLS"):
            consumer.topics(timeout_ms=700)
        assert broker.connections_made < 20, "not retried at full speed"
