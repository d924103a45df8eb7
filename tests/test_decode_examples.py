"""The recipes of docs/decoding.md over real bytes: a proxy between real clients and a broker, segments read by ranges, and packet
captures made from real conversations, with segments out of order, sent again, and missing."""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import json
import random
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fastfetch
from fastfetch import TopicPartition
from fastfetch.protocol import encode_request, encode_response, tables
from fastfetch.testing import Broker, control_batch, cut, encode_batch, slices

EXAMPLES = Path(__file__).parent.parent / "examples"
SECONDS = 60  # for anything here; on a loaded machine nothing has a fixed time
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A script as a module, not run."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


def run(*words: object, ok: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, check=False, timeout=SECONDS)
    assert (done.returncode == 0) == ok, done.stderr
    return done


def log(batches: int = 50, size: int = 20, value: bytes = b"value %d") -> bytes:
    """Batches of all codecs."""
    out = []
    for number in range(batches):
        first = number * size
        rows = [(b"k%d" % n, value % n, 1_700_000_000_000 + n) for n in range(first, first + size)]
        out.append(encode_batch(rows, base_offset=first, codec=CODECS[number % 5]))
    return b"".join(out)


# ------------------------------------------------------------------------------------------------------------------------ proxy


class Watched:
    """A broker whose advertised address is a proxy's."""

    def __init__(self, example: Callable[[str], ModuleType], **broker: Any) -> None:
        self.module = example("decode_proxy")
        self.said: list[str] = []
        self.watch = self.module.Watch(self.said.append)
        # The proxy has its port before the broker has one, and the broker advertises it.
        self.proxy = self.module.Proxy(("127.0.0.1", 0), ("127.0.0.1", 0), self.watch, self.said.append)
        self.broker = Broker(advertise=self.proxy.address, **broker)
        self.proxy.broker = self.broker.address(1)
        self.servers = "{}:{}".format(*self.proxy.address)
        self.proxy.start()

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *error: Any) -> None:
        self.proxy.close()
        self.watch.close()
        self.broker.close()

    def fill(self, partitions: int = 2, data: bytes = b"") -> None:
        self.broker.create_topic("orders", partitions)
        for partition in range(partitions):
            self.broker.append("orders", partition, data or log())

    def read(self, partitions: int = 2, **settings: Any) -> list[tuple[int, int, bytes | None]]:
        """Through the proxy, to the ends."""
        with fastfetch.Consumer(bootstrap_servers=self.servers, auto_offset_reset="earliest", **settings) as consumer:
            wanted = [TopicPartition("orders", n) for n in range(partitions)]
            consumer.assign(wanted)
            ends = consumer.end_offsets(wanted)
            found = []
            while any(consumer.position(tp) < ends[tp] for tp in wanted):
                found += [(b.partition, r.offset, r.value) for b in consumer.poll_blocks(timeout_ms=500) for r in b]
            return sorted(found)

    def finished(self) -> Counter[str]:
        """The counts when all that has passed by is decoded."""
        self.watch.close()
        return self.watch.counts


@pytest.mark.parametrize("version", [4, 6, 7, 11, 12, 13, 16, 18])
def test_a_proxy_sees_what_a_client_reads(example: Callable[[str], ModuleType], version: int) -> None:
    """Small fetches: sessions that name only what changed, positions within batches."""
    with Watched(example, versions={"Fetch": (4, version)}) as watched:
        watched.fill()
        settings = {"max_partition_fetch_bytes": 500, "fetch_max_bytes": 900}
        found = watched.read(**settings)
        assert len(found) == 2000
        counts = watched.finished()
        assert counts["suspicious"] == 0, watched.said
        assert watched.watch.by_partition == {"orders-0": 1000, "orders-1": 1000}
        assert counts["answers"] > 20
        assert all(request.version <= version for request in watched.broker.requests("Fetch"))


def test_a_proxy_knows_from_where_a_client_reads(example: Callable[[str], ModuleType]) -> None:
    """A broker sends whole batches; what lies before the offset asked for is not what the client reads. Also back again."""
    with Watched(example) as watched:
        watched.fill(1)
        tp = TopicPartition("orders", 0)
        with fastfetch.Consumer(bootstrap_servers=watched.servers) as consumer:
            consumer.assign([tp])
            for start in (507, 993, 1):
                consumer.seek(tp, start)
                while consumer.position(tp) < 1000:
                    consumer.poll_blocks(timeout_ms=500)
        watched.finished()
        assert watched.watch.by_partition == {"orders-0": 493 + 7 + 999}


def test_a_proxy_with_clients_side_by_side(example: Callable[[str], ModuleType]) -> None:
    with Watched(example, nodes=1) as watched:
        watched.fill()
        threads = [threading.Thread(target=watched.read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        counts = watched.finished()
        assert watched.watch.by_partition == {"orders-0": 4000, "orders-1": 4000}
        assert watched.proxy.connections >= 4
        assert counts["suspicious"] == 0, watched.said


def test_a_proxy_leaves_out_what_was_aborted(example: Callable[[str], ModuleType]) -> None:
    def sent(producer: int, base: int) -> bytes:
        return encode_batch([b"a"] * 5, base_offset=base, producer_id=producer, producer_epoch=0, transactional=True)

    markers = control_batch("abort", producer_id=7, base_offset=10) + control_batch("commit", producer_id=8, base_offset=11)
    with Watched(example) as watched:
        watched.fill(1, sent(7, 0) + sent(8, 5) + markers)
        assert len(watched.read(1, isolation_level="read_committed")) == 5
        assert len(watched.read(1)) == 10
        watched.finished()
        assert watched.watch.by_partition == {"orders-0": 15}


def test_a_proxy_names_bad_batches(example: Callable[[str], ModuleType]) -> None:
    good, bad = encode_batch([b"good"] * 3), bytearray(encode_batch([b"bad"] * 3, base_offset=3))
    bad[-1] ^= 1
    with Watched(example) as watched:
        watched.fill(1, good + bytes(bad) + encode_batch([b"good"] * 3, base_offset=6))
        assert len(watched.read(1, on_corrupt="skip")) == 6
        watched.finished()
        assert watched.watch.counts["suspicious"] >= 1
        assert [said for said in watched.said if "SUSPICIOUS" in said and "CRC mismatch in orders-0, batch at offset 3" in said]


def test_a_proxy_over_answers_in_pieces(example: Callable[[str], ModuleType]) -> None:
    """Frames that arrive byte by byte, and a connection that ends within one."""
    with Watched(example) as watched:
        watched.fill(1, log(10))
        watched.broker.on("Fetch", cut(300))
        watched.broker.on("*", slices(3), times=None)
        assert len(watched.read(1)) == 200
        watched.finished()
        assert watched.watch.by_partition == {"orders-0": 200}
        assert watched.watch.counts["suspicious"] == 0, watched.said


def test_a_client_that_is_not_ours(example: Callable[[str], ModuleType]) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    with Watched(example) as watched:
        watched.fill()
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": watched.servers, "group.id": "g", "enable.auto.commit": False, "log_level": 0}
        )
        consumer.assign([confluent_kafka.TopicPartition("orders", n, 0) for n in range(2)])
        found = 0
        deadline = time.monotonic() + SECONDS
        while found < 2000:
            found += len(consumer.consume(500, timeout=1))
            assert time.monotonic() < deadline
        consumer.close()
        watched.finished()
        assert watched.watch.by_partition == {"orders-0": 1000, "orders-1": 1000}
        assert watched.watch.counts["suspicious"] == 0, watched.said


def test_a_backlog_that_is_full_leaves_answers_out(example: Callable[[str], ModuleType]) -> None:
    proxy = example("decode_proxy")
    backlog = proxy.Backlog(1000)
    exchange = example("watching").Exchange(1, bytearray(), bytearray(600))
    large = example("watching").Exchange(1, bytearray(), bytearray(5000))
    for each in (exchange, exchange, exchange):
        backlog.put("c", None, each)
    assert backlog.left_out == 2
    backlog.close()
    assert len(list(backlog)) == 1
    backlog.put("c", None, large)  # one is always let in, or nothing of it would ever be seen
    assert backlog.left_out == 2


@pytest.mark.parametrize("seed", range(3))
def test_a_proxy_passes_on_whatever_it_is(example: Callable[[str], ModuleType], seed: int) -> None:
    """Bytes that are nothing, both ways, an end of one direction before the other: nothing is changed, nothing lost."""
    rng = random.Random(seed)
    there, back = rng.randbytes(300_000), rng.randbytes(500_000)
    arrived: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            arrived.append(b"".join(iter(lambda: connection.recv(65536), b"")))  # until the client has ended its direction
            connection.sendall(back)

    with Watched(example) as watched, socket.create_server(("127.0.0.1", 0)) as listener:
        watched.proxy.broker = listener.getsockname()
        server = threading.Thread(target=serve, args=(listener,))
        server.start()
        with socket.create_connection(watched.proxy.address, timeout=SECONDS) as client:
            client.sendall(there)
            client.shutdown(socket.SHUT_WR)
            returned = b"".join(iter(partial(client.recv, 65536), b""))
        server.join()
    assert arrived == [there]
    assert returned == back
    assert any("not Kafka's protocol" in said for said in watched.said)


def test_tls_is_passed_through_and_named(example: Callable[[str], ModuleType]) -> None:
    with Watched(example) as watched:
        context = ssl.create_default_context()
        with socket.create_connection(watched.proxy.address, timeout=5) as client, contextlib.suppress(OSError):
            context.wrap_socket(client, server_hostname="localhost")
    assert [said for said in watched.said if "perhaps TLS" in said]


def test_a_broker_that_is_not_there(example: Callable[[str], ModuleType]) -> None:
    with Watched(example) as watched:
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            watched.proxy.broker = nobody.getsockname()
        with socket.create_connection(watched.proxy.address, timeout=SECONDS) as client:
            assert client.recv(1) == b""
    assert [said for said in watched.said if "no connection to 127.0.0.1" in said]


def test_an_exception_within_ends_no_connection(example: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("a mistake")

    with Watched(example) as watched:
        watched.fill(1)
        monkeypatch.setattr(example("watching").Conversation, "answers", fails)
        assert len(watched.read(1)) == 1000
    assert [said for said in watched.said if "a mistake" in said]


def test_the_proxy_as_a_program(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Broker(advertise=("127.0.0.1", port)) as broker:
        broker.create_topic("orders")
        broker.append("orders", 0, log())
        route = f"{port}={broker.bootstrap_servers}"
        words = [sys.executable, EXAMPLES / "decode_proxy.py", route, "--interval", "0.1"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as proxy:
            assert proxy.stdout is not None
            assert proxy.stdout.readline() == f"127.0.0.1:{port} -> {broker.bootstrap_servers}\n"
            with fastfetch.Consumer(bootstrap_servers=f"127.0.0.1:{port}", auto_offset_reset="earliest") as consumer:
                consumer.assign([TopicPartition("orders", 0)])
                records = 0
                while records < 1000:
                    records += sum(map(len, consumer.poll_blocks(timeout_ms=500)))
            time.sleep(0.3)
            proxy.send_signal(signal.SIGTERM)
            rest = proxy.stdout.read().splitlines()
        assert rest[-2:] == ["orders-0 1000 records", rest[-1]]
        assert rest[-1].endswith("1000 records, 0 suspicious")
        assert " records/s" in rest[0]


def test_frames_are_the_same_however_they_arrive(example: Callable[[str], ModuleType]) -> None:
    watching = example("watching")
    rng = random.Random(5)
    frames = [rng.randbytes(n) for n in (0, 1, 3, 4, 7, 8, 9, 100, 5000)] * 3
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    for first_bytes in (4, 8):
        for step in (1, 2, 3, 5, 13, 4096, len(stream)):
            cutter = watching.Frames(first_bytes, lambda first: len(first) != 3)
            found = [bytes(f) for at in range(0, len(stream), step) for f in cutter.feed(stream[at : at + step])]
            assert found == [frame for frame in frames if len(frame) != 3]


# ----------------------------------------------------------------------------------------------------------------------- tiered


class Store(BaseHTTPRequestHandler):
    """An object store that knows Range, as far as a reader needs it."""

    objects: dict[str, bytes]
    requests: list[str]

    def do_GET(self) -> None:
        data = self.objects[self.path]
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        self.requests.append(f"{self.path} {first}-{last}")
        if int(first) >= len(data):
            self.send_error(416)
            return
        part = data[int(first) : int(last) + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def store() -> Iterator[tuple[str, type[Store]]]:
    handler = type("Handler", (Store,), {"objects": {}, "requests": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", handler
        server.shutdown()
        thread.join()


BASE = 4711  # the first offset of the segment


def rebased() -> bytes:
    return b"".join(
        encode_batch([(b"k", b"value %d" % n) for n in range(first, first + 20)], base_offset=first, codec=CODECS[first % 5])
        for first in range(BASE, BASE + 1000, 20)
    )


def index_of(data: bytes, every: int = 4) -> bytes:
    """As a broker writes it: now and then the last offset of a batch and where that begins."""
    headers = list(fastfetch.batches(data))[::every]
    return b"".join(struct.pack(">ii", header.last_offset - BASE, header.byte_pos) for header in headers[1:])


def offsets(done: subprocess.CompletedProcess[str]) -> list[int]:
    return [json.loads(line)["offset"] for line in done.stdout.splitlines()]


def bytes_read(done: subprocess.CompletedProcess[str]) -> int:
    return int(done.stderr.split(" records, ")[1].split()[0])


@pytest.mark.parametrize("chunk", [1, 100, 700, 5000, 4 << 20])
def test_a_segment_in_chunks_of_any_size(tmp_path: Path, chunk: int) -> None:
    file = tmp_path / "segment.log"
    file.write_bytes(rebased())
    done = run(EXAMPLES / "decode_tiered.py", file, "--chunk-bytes", chunk)
    assert offsets(done) == list(range(BASE, BASE + 1000))
    assert [json.loads(line)["value"] for line in done.stdout.splitlines()[:2]] == [f"value {BASE}", f"value {BASE + 1}"]


@pytest.mark.parametrize(("start", "stop"), [(BASE, BASE + 1), (BASE + 507, BASE + 533), (BASE + 999, None), (0, BASE + 3)])
def test_a_part_of_an_object_by_its_index(store: tuple[str, type[Store]], start: int, stop: int | None) -> None:
    url, handler = store
    data = rebased()
    handler.objects |= {"/4711.log": data, "/4711.index": index_of(data)}
    words: list[object] = [EXAMPLES / "decode_tiered.py", f"{url}/4711.log", "--from", start, "--chunk-bytes", 3000]
    words += [] if stop is None else ["--to", stop]
    wanted = list(range(max(start, BASE), BASE + 1000 if stop is None else stop))
    with_index = run(*words, "--index", f"{url}/4711.index")
    assert offsets(with_index) == wanted
    assert bytes_read(with_index) < len(data) // 3
    assert offsets(run(*words)) == wanted  # without the index


@pytest.mark.parametrize("damage", ["beyond", "within", "above", "cut", "zeros"])
def test_an_index_is_a_hint(tmp_path: Path, damage: str) -> None:
    data = rebased()
    index = bytearray(index_of(data))
    if damage == "beyond":
        index[-4:] = struct.pack(">i", 1 << 30)
    elif damage == "within":
        for at in range(4, len(index), 8):
            index[at : at + 4] = struct.pack(">i", struct.unpack_from(">i", index, at)[0] + 1)
    elif damage == "above":  # positions of later batches
        index = bytearray(b"".join(struct.pack(">i", n) + bytes(index[-4:]) for n in range(0, 900, 80)))
    elif damage == "cut":
        del index[-3:]
    else:
        index += bytes(80)
    (tmp_path / "a.log").write_bytes(data)
    (tmp_path / "a.index").write_bytes(index)
    done = run(EXAMPLES / "decode_tiered.py", tmp_path / "a.log", "--index", tmp_path / "a.index", "--from", BASE + 990)
    assert offsets(done) == list(range(BASE + 990, BASE + 1000))


def test_an_object_that_ends_within_a_batch_and_one_that_is_damaged(tmp_path: Path) -> None:
    data = rebased()
    file = tmp_path / "a.log"
    file.write_bytes(data[:-10])
    done = run(EXAMPLES / "decode_tiered.py", file, "--chunk-bytes", 1000)
    assert offsets(done) == list(range(BASE, BASE + 980))
    assert "are no whole batch" in done.stderr
    third = list(fastfetch.batches(data))[3].byte_pos
    file.write_bytes(data[: third - 1] + bytes([data[third - 1] ^ 1]) + data[third:])
    done = run(EXAMPLES / "decode_tiered.py", file, "--chunk-bytes", 1000, ok=False)
    assert offsets(done) == list(range(BASE, BASE + 40))
    assert f"CRC mismatch in partition 0, batch at offset {BASE + 40}" in done.stderr
    file.write_bytes(b"")
    assert offsets(run(EXAMPLES / "decode_tiered.py", file)) == []


def test_an_empty_object_of_a_store(store: tuple[str, type[Store]]) -> None:
    url, handler = store
    handler.objects["/empty.log"] = b""
    assert offsets(run(EXAMPLES / "decode_tiered.py", f"{url}/empty.log")) == []


@pytest.mark.parametrize("chunk", [100, 300, 4 << 20])
def test_aborted_transactions_of_an_object(tmp_path: Path, chunk: int) -> None:
    """The same producer aborts, then commits: cut between two chunks, what was over must not count again."""

    def sent(base: int) -> bytes:
        return encode_batch([b"a"] * 5, base_offset=base, producer_id=7, producer_epoch=0, transactional=True)

    data = (
        sent(0) + sent(5) + control_batch("abort", producer_id=7, base_offset=10)
        + sent(11) + control_batch("commit", producer_id=7, base_offset=16)
        + sent(17) + control_batch("abort", producer_id=7, base_offset=22)
    )  # fmt: skip
    (tmp_path / "a.log").write_bytes(data)
    (tmp_path / "a.txnindex").write_bytes(struct.pack(">hqqqq", 0, 7, 0, 10, 11))
    (tmp_path / "b.txnindex").write_bytes(struct.pack(">hqqqq", 0, 7, 17, 22, 23))
    words = (EXAMPLES / "decode_tiered.py", tmp_path / "a.log", "--chunk-bytes", chunk)
    indexes = ("--committed", "--txnindex", tmp_path / "a.txnindex", "--txnindex", tmp_path / "b.txnindex")
    assert offsets(run(*words, *indexes)) == list(range(11, 16))
    assert offsets(run(*words, *indexes, "--from", 12)) == list(range(12, 16))
    assert offsets(run(*words)) == [*range(10), *range(11, 16), *range(17, 22)]


def test_memory_is_a_chunk_and_what_it_inflates_to(example: Callable[[str], ModuleType], tmp_path: Path) -> None:
    """Batches of a megabyte in a few hundred bytes each: no more than a few are inflated at a time."""
    tiered = example("decode_tiered")
    data = b"".join(encode_batch([bytes(1 << 20)], base_offset=n, codec="zstd") for n in range(200))
    most = 0
    read = 0
    for block in tiered.blocks(lambda at, size: data[at : at + size], len(data), chunk_bytes=1 << 21):
        most = max(most, block.pinned_bytes)
        read += len(block)
    assert read == 200
    assert most <= 8 << 20


def test_what_is_not_text_is_base64(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(encode_batch([(b"\xff", None, 5, [("h", b"\x00\xfe"), ("g", None)]), (None, "ä".encode())]))
    first, second = map(json.loads, run(EXAMPLES / "decode_tiered.py", tmp_path / "a.log").stdout.splitlines())
    headers = [["h", {"base64": "AP4="}], ["g", None]]
    assert first == {"offset": 0, "timestamp": 5, "key": {"base64": "/w=="}, "value": None, "headers": headers}
    assert second["value"] == "ä"


# ---------------------------------------------------------------------------------------------------------------------- capture

Chunk = tuple[int, bool, bytes]  # connection, from the client?, bytes
ETHERNET, LOOPBACK, COOKED, COOKED2, RAW = 1, 0, 113, 276, 101


def converse(
    example: Callable[[str], ModuleType], version: int = 16, **settings: Any
) -> tuple[list[Chunk], list[tuple[int, int]]]:
    """What goes over the connections of a consumer that reads two partitions to their ends, and the records it got."""
    pump = example("decode_proxy").pump
    chunks: list[Chunk] = []
    lock = threading.Lock()

    def note(number: int, from_client: bool, data: bytes) -> None:
        with lock:
            chunks.append((number, from_client, data))

    def carry(number: int, client: socket.socket, address: tuple[str, int]) -> None:
        with client, socket.create_connection(address) as server:
            back = threading.Thread(target=pump, args=(server, client, partial(note, number, False), None))
            back.start()
            pump(client, server, partial(note, number, True), None)
            back.join()

    def accept(listener: socket.socket, address: tuple[str, int]) -> None:
        carriers = []
        for number in itertools.count():
            try:
                client, _ = listener.accept()
            except OSError:
                break
            carriers.append(threading.Thread(target=carry, args=(number, client, address)))
            carriers[-1].start()
        for carrier in carriers:
            carrier.join()

    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Broker(advertise=listener.getsockname(), versions={"Fetch": (4, version)}) as broker,
    ):
        broker.create_topic("orders", 2)
        for partition in range(2):
            broker.append("orders", partition, log())
        accepting = threading.Thread(target=accept, args=(listener, broker.address(1)))
        accepting.start()
        found = []
        servers = "{}:{}".format(*listener.getsockname())
        small = {"max_partition_fetch_bytes": 4000, "fetch_max_bytes": 6000, "auto_offset_reset": "earliest"} | settings
        with fastfetch.Consumer(bootstrap_servers=servers, **small) as consumer:
            consumer.assign([TopicPartition("orders", n) for n in range(2)])
            while len(found) < 2000:
                found += [(b.partition, int(offset)) for b in consumer.poll_blocks(timeout_ms=500) for offset in b.offsets]
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()
    return chunks, sorted(found)


class Wire:
    """Chunks as TCP segments in packets."""

    def __init__(self, chunks: list[Chunk], *, link: int = ETHERNET, ip: int = 4, mss: int = 1448, seed: int = 1) -> None:
        self.rng = random.Random(seed)
        self.link, self.ip = link, ip
        # Near the end of 32 bits, so that they wrap.
        self.sent: dict[tuple[int, bool], int] = {}
        self.packets: list[bytes] = []
        self.kinds: list[tuple[int, bool, int]] = []  # connection, from the client?, bytes of payload
        for number in sorted({number for number, _, _ in chunks}):
            self.sent[number, True] = self.sent[number, False] = 0xFFFFF000
            for from_client, flags in ((True, 2), (False, 18)):
                self.add(number, from_client, b"", flags)
                self.sent[number, from_client] += 1
        for number, from_client, data in chunks:
            for at in range(0, len(data), mss):
                piece = data[at : at + mss]
                self.add(number, from_client, piece, 24)
                self.sent[number, from_client] += len(piece)
        for number, from_client in self.sent:
            self.add(number, from_client, b"", 17)

    def add(self, number: int, from_client: bool, payload: bytes, flags: int) -> None:
        ports = (50000 + number, 9092) if from_client else (9092, 50000 + number)
        acknowledged = self.sent[number, not from_client]
        tcp = struct.pack(
            ">HHIIBBHHH", *ports, self.sent[number, from_client] % 2**32, acknowledged % 2**32, 8 << 4, flags, 0, 0, 0
        )
        tcp += b"\x01\x01\x08\x0a" + bytes(8) + payload
        one, two = (1, 2) if from_client else (2, 1)
        if self.ip == 4:
            addresses = bytes([127, 0, 0, one, 127, 0, 0, two])
            packet = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0x4000, 64, 6, 0) + addresses + tcp
        else:  # with a hop-by-hop header
            extension = bytes([6, 0]) + bytes(6)
            addresses = bytes([*bytes(15), one, *bytes(15), two])
            packet = struct.pack(">IHBB", 6 << 28, len(tcp) + 8, 0, 64) + addresses + extension + tcp
        kind = b"\x08\x00" if self.ip == 4 else b"\x86\xdd"
        heads = {
            ETHERNET: bytes(12) + b"\x81\x00\x00\x05" + kind,
            LOOPBACK: b"\x02\0\0\0",
            COOKED: bytes(14) + kind,
            COOKED2: kind + bytes(18),
            RAW: b"",
        }
        frame = heads[self.link] + packet
        self.packets.append(frame + bytes(max(0, 60 - len(frame)) if self.link == ETHERNET else 0))  # short ones are padded
        self.kinds.append((number, from_client, len(payload)))

    def shuffled(self, reach: int, repeat: float) -> list[bytes]:
        """Packets out of order within `reach`, some of them twice."""
        order = sorted(range(len(self.packets)), key=lambda n: n + self.rng.uniform(0, reach))
        out = [self.packets[n] for n in order]
        for _ in range(int(len(out) * repeat)):
            out.insert(self.rng.randrange(len(out)), self.rng.choice(self.packets))
        return out

    def pcap(self, packets: list[bytes], order: str = "<", nanoseconds: bool = False) -> bytes:
        magic = 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
        head = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 262144, self.link)
        return head + b"".join(struct.pack(order + "IIII", 1, 2, len(packet), len(packet)) + packet for packet in packets)

    def pcapng(self, packets: list[bytes], order: str = "<") -> bytes:
        def block(kind: int, body: bytes) -> bytes:
            body += bytes(-len(body) % 4)
            return struct.pack(order + "II", kind, len(body) + 12) + body + struct.pack(order + "I", len(body) + 12)

        out = block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
        out += block(1, struct.pack(order + "HHI", 147, 0, 0)) + block(1, struct.pack(order + "HHI", self.link, 0, 0))
        out += block(5, bytes(12))  # statistics: not read
        for packet in packets:
            out += block(6, struct.pack(order + "IIIII", 1, 0, 0, len(packet), len(packet)) + packet)
        return out


def decode(
    example: Callable[[str], ModuleType], capture: bytes, window: int = 8 << 20, *, nameless: bool = False
) -> tuple[list[tuple[int, int]], Counter[str]]:
    """Records by partition and offset, and what was left out. `nameless`: the answer with the topics' names may be missing."""
    counts: Counter[str] = Counter()
    found = []
    for _, fetched in example("decode_capture").read(io.BytesIO(capture), {9092}, window, counts):
        assert fetched.topic == "orders" or (len(fetched.topic) == 32 and nameless)
        assert fetched.decoded is None or fetched.decoded.error is None
        found += [(record.partition, record.offset) for record in fetched.decoded or ()]
    return sorted(found), counts


@pytest.fixture
def conversation(example: Callable[[str], ModuleType]) -> tuple[list[Chunk], list[tuple[int, int]]]:
    return converse(example)


@pytest.mark.parametrize("link", [ETHERNET, LOOPBACK, COOKED, COOKED2, RAW])
@pytest.mark.parametrize("ip", [4, 6])
def test_a_capture_of_each_kind(
    example: Callable[[str], ModuleType], conversation: tuple[list[Chunk], list[tuple[int, int]]], link: int, ip: int
) -> None:
    chunks, records = conversation
    wire = Wire(chunks, link=link, ip=ip)
    files = [
        wire.pcap(wire.packets),
        wire.pcap(wire.packets, ">", True),
        wire.pcapng(wire.packets),
        wire.pcapng(wire.packets, ">"),
    ]
    for file in files:
        found, counts = decode(example, file)
        assert found == records
        assert not [name for name in counts if "missing" in name and counts[name]]


@pytest.mark.parametrize("version", [4, 11, 12, 18])
@pytest.mark.parametrize("mss", [100, 1448, 65000])
def test_segments_out_of_order_and_sent_again(example: Callable[[str], ModuleType], version: int, mss: int) -> None:
    chunks, records = converse(example, version)
    for seed in range(5):
        wire = Wire(chunks, mss=mss, seed=seed)
        found, counts = decode(example, wire.pcap(wire.shuffled(reach=8, repeat=0.2)))
        assert found == records
        assert not [name for name in counts if "bytes" in name and counts[name]], counts


def test_a_capture_that_begins_in_the_middle(
    example: Callable[[str], ModuleType], conversation: tuple[list[Chunk], list[tuple[int, int]]]
) -> None:
    """From any packet on: what follows the first request that is seen whole is there, but for names without Metadata."""
    chunks, records = conversation
    wire = Wire(chunks, mss=500)
    for start in range(0, len(wire.packets), 7):
        found, _ = decode(example, wire.pcap(wire.packets[start:]), nameless=True)
        assert set(found) <= set(records)
        assert len(found) == len(set(found))
        # Fetches are 6000 bytes: at most one that was under way, and its answer, are lost.
        left = sum(size for _, from_client, size in wire.kinds[start:] if not from_client)
        if left > 20_000:
            assert found


def test_packets_that_are_missing(
    example: Callable[[str], ModuleType], conversation: tuple[list[Chunk], list[tuple[int, int]]]
) -> None:
    """One after the other: the rest is found again, nothing is invented, and what is missing is counted."""
    chunks, records = conversation
    wire = Wire(chunks, mss=1000)
    complete = 0
    for lost in range(0, len(wire.packets), 3):
        number, from_client, size = wire.kinds[lost]
        capture = wire.pcap(wire.packets[:lost] + wire.packets[lost + 1 :])
        found, counts = decode(example, capture, window=20_000, nameless=True)
        assert set(found) <= set(records)
        assert len(found) == len(set(found))
        complete += found == records
        if size and found != records:
            name = "bytes of requests missing" if from_client else "bytes of answers missing"
            assert counts[name] == size or not any(
                kind[:2] == (number, from_client) and kind[2] for kind in wire.kinds[lost + 1 :]
            )
            assert len(found) > 500  # an answer or two
    assert complete > 0  # bare acknowledgements cost nothing


def test_packets_cut_by_the_snapshot_length(
    example: Callable[[str], ModuleType], conversation: tuple[list[Chunk], list[tuple[int, int]]]
) -> None:
    chunks, records = conversation
    wire = Wire(chunks)
    found, counts = decode(example, wire.pcap([packet[:500] for packet in wire.packets]))
    assert set(found) < set(records)
    assert counts["bytes cut off packets"] > 0
    found, counts = decode(example, wire.pcap([packet[:40] for packet in wire.packets]))
    assert found == []
    assert counts["packets cut within their headers"] > 0


def test_a_port_that_is_used_again(example: Callable[[str], ModuleType]) -> None:
    chunks, records = converse(example)
    first = Wire(chunks)
    moved = Wire([], seed=3)
    for number in sorted({number for number, _, _ in chunks}):  # the same ports, other sequence numbers
        moved.sent[number, True] = moved.sent[number, False] = 0x40000000
        for from_client, flags in ((True, 2), (False, 18)):
            moved.add(number, from_client, b"", flags)
            moved.sent[number, from_client] += 1
    for number, from_client, data in chunks:
        moved.add(number, from_client, data, 24)
        moved.sent[number, from_client] += len(data)
    found, _ = decode(example, first.pcap(first.packets + moved.packets))
    assert found == sorted(records * 2)


def test_other_traffic_and_damage(
    example: Callable[[str], ModuleType], conversation: tuple[list[Chunk], list[tuple[int, int]]]
) -> None:
    chunks, records = conversation
    wire = Wire(chunks)
    arp = bytes(12) + b"\x08\x06" + bytes(40)
    fragment = bytearray(wire.packets[0])
    fragment[18 + 6] = 0x20
    noise = [arp, b"", bytes(10), bytes(fragment)]
    mixed = [packet for pair in zip(wire.packets, noise * len(wire.packets), strict=False) for packet in pair]
    found, counts = decode(example, wire.pcap(mixed))
    assert found == records
    assert counts["IP fragments, which are not put together"] > 0
    whole = wire.pcap(wire.packets)
    found, counts = decode(example, whole[:-5])
    assert counts["damage"] == 1
    assert found == records  # the last packet closes a connection
    rng = random.Random(3)
    for _ in range(100):  # any bytes: an end, and no exception
        damaged = bytearray(whole)
        for _ in range(20):
            damaged[rng.randrange(24, len(damaged))] = rng.randrange(256)
        module, counts = example("decode_capture"), Counter()
        for _ in module.read(io.BytesIO(bytes(damaged)), {9092}, 1 << 20, counts):
            pass


def test_the_capture_as_a_program(
    example: Callable[[str], ModuleType], conversation: tuple[list[Chunk], list[tuple[int, int]]], tmp_path: Path
) -> None:
    chunks, records = conversation
    file = tmp_path / "kafka.pcap"
    wire = Wire(chunks)
    file.write_bytes(wire.pcap(wire.packets))
    done = run(EXAMPLES / "decode_capture.py", file, "--port", 9092)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted((line["partition"], line["offset"]) for line in lines) == records
    assert {(line["topic"], line["client"].split(":")[0]) for line in lines} == {("orders", "127.0.0.1")}
    assert all(line["value"] == f"value {line['offset']}" for line in lines)
    assert done.stderr.strip().endswith(f"2000 records, {len({c for c, _, _ in chunks})} connections")
    file.write_bytes(b"something else")
    assert "no pcap" in run(EXAMPLES / "decode_capture.py", file, ok=False).stderr


def test_an_old_fetch_is_named_and_passed_over(example: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]) -> None:
    request = bytearray(encode_request(tables.FETCH, 4, 9, "old", {"topics": []}))
    request[6:8] = (3).to_bytes(2, "big")
    answer = encode_response(tables.FETCH, 4, 9, {"responses": []})
    wire = Wire([(0, True, bytes(request)), (0, False, answer)])
    assert decode(example, wire.pcap(wire.packets))[0] == []
    assert "Fetch (api key 1) v3 is unknown to fastfetch" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------------------------ documentation


@pytest.mark.parametrize("number", range(2))
def test_the_examples_of_the_page(number: int) -> None:
    codes = re.findall(
        r"^```python\n(.*?)^```$", (EXAMPLES.parent / "docs" / "decoding.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert len(codes) == 2
    data = b"".join(encode_batch([(b"k", b"%d" % i)] * 10, base_offset=10 * i, codec="lz4") for i in range(10))
    exec(compile(codes[number], f"decoding.md, {number}", "exec"), {"data": data})
