"""`kfetch serve` as a process, read by other people's clients: what they get is what lies on the disk."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from crc32c import crc32c

import fastfetch
from fastfetch.cli import main
from fastfetch.testing import control_batch, encode_batch, rebase
from tests.testing.peers import aiokafka, confluent_kafka, kafka
from tests.testing.wire import Wire, only

from .folders import CODECS, TIME, batch, orders, transactions, write

# kafka-python reads its schemas by a call that Python 3.11 deprecates, and leaves sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

COMMAND = [sys.executable, "-m", "fastfetch"]
SECONDS = 30
ISOLATIONS = ("read_uncommitted", "read_committed")
Seen = list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]


class Served:
    """A running `kfetch serve`, and what it said."""

    def __init__(self, process: subprocess.Popen[str], said: dict[str, Any]) -> None:
        self.process = process
        self.servers: str = said["bootstrap_servers"]
        self.partitions: list[dict[str, Any]] = said["partitions"]
        self.remarks: list[str] = said["remarks"]
        self.stderr = ""

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.servers.rpartition(":")
        return host, int(port)


@contextmanager
def serving(*arguments: object) -> Iterator[Served]:
    """Ends it with Ctrl-C; then its stderr is known."""
    command = [*COMMAND, "serve", "--json", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.stderr and process.stderr.read()
            served = Served(process, json.loads(line))
            yield served
            process.send_signal(signal.SIGINT)
            out, served.stderr = process.communicate(timeout=SECONDS)
            assert (process.returncode, out) == (130, "")
        finally:
            process.kill()


def refused(*arguments: object) -> tuple[int, str]:
    """Exit code and sentence of a call that serves nothing."""
    done = CliRunner().invoke(main, ["serve", *map(str, arguments)])
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    return done.exit_code, done.stderr


def on_disk(folder: Path, isolation: str = "read_uncommitted") -> Seen:
    blocks = fastfetch.read_log(folder, isolation=isolation)  # type: ignore[arg-type]
    return [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for block in blocks for r in block]


# ------------------------------------------------------------------------------------------------------------------- clients


def confluent_read(servers: str, topic: str, partition: int, isolation: str) -> Seen:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "g",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "check.crcs": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, confluent_kafka.OFFSET_BEGINNING)])
    seen: Seen = []
    deadline = time.monotonic() + SECONDS
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            if (error := message.error()) is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                return seen
            headers = [(key, value) for key, value in message.headers() or []]
            seen.append((message.offset(), message.timestamp()[1], message.key(), message.value(), headers))
    finally:
        consumer.close()
    raise AssertionError("the end was not reached")


def kafka_python_read(servers: str, topic: str, partition: int, isolation: str) -> Seen:
    tp = kafka.TopicPartition(topic, partition)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers, group_id=None, enable_auto_commit=False, isolation_level=isolation, check_crcs=True
    )
    seen: Seen = []
    deadline = time.monotonic() + SECONDS
    try:
        consumer.assign([tp])
        consumer.seek_to_beginning(tp)
        end = consumer.end_offsets([tp])[tp]
        while consumer.position(tp) < end:
            assert time.monotonic() < deadline
            for records in consumer.poll(timeout_ms=200).values():
                seen += [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in records]
    finally:
        consumer.close()
    return seen


def aiokafka_read(servers: str, topic: str, partition: int, isolation: str) -> Seen:
    async def read() -> Seen:
        tp = aiokafka.TopicPartition(topic, partition)
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers, group_id=None, isolation_level=isolation, check_crcs=True, enable_auto_commit=False
        )
        await consumer.start()
        try:
            consumer.assign([tp])
            await consumer.seek_to_beginning(tp)
            end = (await consumer.end_offsets([tp]))[tp]
            seen: Seen = []
            while await consumer.position(tp) < end:
                for records in (await consumer.getmany(tp, timeout_ms=200)).values():
                    seen += [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in records]
            return seen
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(read(), SECONDS))


def fastfetch_read(servers: str, topic: str, partition: int, isolation: str) -> Seen:
    tp = fastfetch.TopicPartition(topic, partition)
    seen: Seen = []
    with fastfetch.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level=isolation) as consumer:
        consumer.assign([tp])
        end = consumer.end_offsets([tp])[tp]
        while consumer.position(tp) < end:
            for block in consumer.poll_blocks(timeout_ms=200):
                seen += [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in block]
    return seen


CLIENTS = [confluent_read, kafka_python_read, aiokafka_read, fastfetch_read]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker's data folder: two segments in every codec, holes, transactions, a log that does not begin at 0."""
    data = tmp_path_factory.mktemp("data")
    # kafka-python wants a package of its own for snappy.
    codecs = [codec for codec in CODECS if codec != "snappy"]
    batches = [batch(o, codec=codecs[o // 10 % 4]) for o in range(0, 200, 10)]
    write(data / "orders-0", {0: batches[:10], 100: batches[10:]})
    write(data / "orders-1", {500: [batch(507, 3), batch(520, 10, "lz4"), batch(600, 1)], 601: []})
    transactions(data)
    write(data / "gone-0.0123456789abcdef0123456789abcdef-delete", {0: [batch(0)]})
    (data / "orders-2").mkdir()  # no segment
    (data / "meta.properties").write_text("node.id=1\n")
    return data


@pytest.fixture(scope="module")
def served(data: Path) -> Iterator[Served]:
    with serving(data) as served:
        yield served


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize(("topic", "partition"), [("orders", 0), ("orders", 1), ("tx", 0)])
@pytest.mark.parametrize("read", CLIENTS)
def test_every_client_reads_what_is_on_the_disk(
    data: Path, served: Served, read: Any, topic: str, partition: int, isolation: str
) -> None:
    expected = on_disk(data / f"{topic}-{partition}", isolation)
    assert len(expected) in (200, 14, 30 if isolation == "read_uncommitted" else 10)
    assert read(served.servers, topic, partition, isolation) == expected


def test_byte_for_byte(data: Path, served: Served) -> None:
    files = b"".join(path.read_bytes() for path in sorted((data / "orders-0").glob("*.log")))
    with Wire(served.address) as wire:
        assert bytes(only(wire.fetch("orders", 0, version=11))["records"]) == files


def test_what_it_says_is_served(data: Path, served: Served) -> None:
    names = ("topic", "partition", "start", "end", "stable", "segments")
    rows = [tuple(row[name] for name in names) for row in served.partitions]
    assert rows == [("orders", 0, 0, 200, 200, 2), ("orders", 1, 500, 601, 601, 2), ("tx", 0, 0, 32, 22, 1)]
    assert served.partitions[0]["path"] == str(data / "orders-0")
    assert served.remarks == []


def test_offsets_by_time_and_commits(served: Served) -> None:
    tp = fastfetch.TopicPartition("orders", 0)
    with fastfetch.Consumer(bootstrap_servers=served.servers, group_id="loader") as consumer:
        at = consumer.offsets_for_times({tp: TIME + 150_500})[tp]
        assert at is not None
        assert (at.offset, at.timestamp) == (151, TIME + 151_000)
        assert consumer.offsets_for_times({tp: TIME + 200_000})[tp] is None
        consumer.commit({tp: 42})
    done = CliRunner().invoke(main, ["lag", "-b", served.servers, "-g", "loader", "--json"])
    assert [json.loads(line).get("lag") for line in done.stdout.splitlines()] == [158, None, 158]


# ---------------------------------------------------------------------------------------------------------- what is served how


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_client_may_subscribe(tmp_path: Path, protocol: str) -> None:
    """It gets everything, and its commits are known as those of a member."""
    folder = write(tmp_path / "orders-0", {0: [batch(0), batch(10)]})
    with serving(folder) as served:
        settings = {"bootstrap.servers": served.servers, "group.id": "g", "group.protocol": protocol, "enable.auto.commit": False}
        consumer = confluent_kafka.Consumer(settings | {"auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        try:
            seen = [message.offset() for message in consumer.consume(20, timeout=SECONDS)]
            assert seen == list(range(20))
            consumer.commit(asynchronous=False)
            done = CliRunner().invoke(main, ["groups", "-b", served.servers, "g", "--json"])
        finally:
            consumer.close()
    found = json.loads(done.stdout)
    assert (found["type"], found["state"], len(found["members"])) == (protocol, "Stable", 1)
    assert (found["partitions"][0]["committed"], found["partitions"][0]["lag"]) == (20, 0)


def test_the_topics_id_is_the_one_on_the_disk(tmp_path: Path) -> None:
    folder = orders(tmp_path)
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n")
    with serving(folder) as served, Wire(served.address) as wire:
        [topic] = wire.call("Metadata", 12, topics=None, allow_auto_topic_creation=False)["topics"]
        assert topic["topic_id"] == bytes(range(16))
        assert served.remarks == ["orders: partitions that are not here are served empty: 0-2"]
        assert [p["leader_id"] for p in topic["partitions"]] == [1] * 4


def test_segments_by_a_shells_pattern_are_one_partition_and_may_have_another_name(tmp_path: Path) -> None:
    files = sorted(orders(tmp_path).glob("*.log"))
    with serving(*reversed(files), "--topic", "copy") as served:
        assert [(row["topic"], row["partition"], row["end"]) for row in served.partitions] == [("copy", 3, 200)]
        assert len(fastfetch_read(served.servers, "copy", 3, "read_uncommitted")) == 200


def test_a_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "backup.log"
    path.write_bytes(batch(40) + batch(50, codec="zstd"))
    with serving(path, "--topic", "orders") as served:
        assert [(row["partition"], row["start"], row["end"]) for row in served.partitions] == [(0, 40, 60)]
        assert fastfetch_read(served.servers, "orders", 0, "read_uncommitted") == on_disk(path)
    assert refused(path) == (1, f"kfetch: {path} does not stand in a partition folder such as orders-3/: say --topic NAME\n")


def test_a_log_cut_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    folder = write(tmp_path / "orders-0", {0: [batch(0), batch(10), batch(20)[:-7]]})
    with serving(folder) as served:
        assert [row["end"] for row in served.partitions] == [20]
        [remark] = served.remarks
        assert "are no whole batch and are not served" in remark
        assert confluent_read(served.servers, "orders", 0, "read_uncommitted") == on_disk(folder)


@pytest.mark.parametrize("ends", ["aborted", "open"])
def test_a_transaction_that_began_before_the_log_does(tmp_path: Path, ends: str) -> None:
    """The first segment is gone; what was open where the second begins stands in its snapshot."""
    theirs = encode_batch([b"x"] * 5, base_offset=110, producer_id=7, transactional=True)
    marker = control_batch("abort", producer_id=7, base_offset=125)
    folder = write(tmp_path / "tx-0", {100: [batch(100), theirs, batch(115), marker if ends == "aborted" else b""]})
    body = struct.pack(">iqhiqiqiq", 1, 7, 0, 4, 50, 0, TIME, 0, 40)  # one producer, whose transaction began at 40
    (folder / f"{100:020d}.snapshot").write_bytes(struct.pack(">hI", 1, crc32c(body)) + body)
    with serving(folder) as served:
        end = {"aborted": 126, "open": 100}[ends]
        assert [(row["start"], row["stable"]) for row in served.partitions] == [(100, end)]
        for read in CLIENTS:
            expected = on_disk(folder, "read_committed")
            assert len(expected) == (20 if ends == "aborted" else 0)
            assert read(served.servers, "tx", 0, "read_committed") == expected


def test_what_is_written_meanwhile_is_not_served(tmp_path: Path) -> None:
    folder = write(tmp_path / "orders-0", {0: [batch(0)]})
    with serving(folder) as served:
        with next(folder.glob("*.log")).open("ab") as file:
            file.write(batch(10))
        assert len(fastfetch_read(served.servers, "orders", 0, "read_uncommitted")) == 10


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc")
def test_a_large_log_takes_no_memory(tmp_path: Path) -> None:
    """480 MiB in batches of 4 MiB, which take no room on the disk either: values of zeros are holes of the file."""
    folder = tmp_path / "large-0"
    folder.mkdir()
    whole = encode_batch([bytes(4 << 20)])
    head = whole.rstrip(b"\0")
    per_file = 40
    for base in range(0, 3 * per_file, per_file):
        with (folder / f"{base:020d}.log").open("wb") as file:
            for i in range(per_file):
                file.seek(i * len(whole))
                file.write(rebase(whole, base + i)[: len(head)])
            file.truncate(per_file * len(whole))
    with serving(folder) as served:
        before = peak_kb(served.process.pid)
        records = nbytes = 0
        tp = fastfetch.TopicPartition("large", 0)
        with fastfetch.Consumer(bootstrap_servers=served.servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([tp])
            while consumer.position(tp) < 3 * per_file:
                for block in consumer.poll_blocks(timeout_ms=200):
                    records += len(block)
                    nbytes += block.nbytes
        assert records == 3 * per_file
        assert nbytes > 3 * per_file * (4 << 20)
        assert peak_kb(served.process.pid) - before < 128 << 10


def peak_kb(pid: int) -> int:
    """Most memory that a process has had resident."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1])


# ------------------------------------------------------------------------------------------------------------------ addresses


def test_the_address_that_clients_are_told(tmp_path: Path) -> None:
    folder = orders(tmp_path)

    def told(at: tuple[str, int]) -> tuple[str, int]:
        with Wire(at) as wire:
            [broker] = wire.call("Metadata", 12, topics=[], allow_auto_topic_creation=False)["brokers"]
            return broker["host"], broker["port"]

    with serving(folder, "--listen", "0.0.0.0:0") as served:
        host, port = served.address
        assert host == socket.gethostname()
        # Whoever came by an address can come again by it.
        assert told(("127.0.0.1", port)) == ("127.0.0.1", port)
        assert told(("127.0.0.2", port)) == ("127.0.0.2", port)
    assert "can be reached from elsewhere" in served.stderr
    with serving(folder, "--listen", "127.0.0.1", "--advertise", "kafka.example:9999") as served:
        assert served.servers == "kafka.example:9999"
        assert "elsewhere" not in served.stderr


def test_an_address_of_ip_version_6(tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with serving(write(tmp_path / "orders-0", {0: [batch(0)]}), "--listen", "[::1]:0") as served:
        assert served.servers.startswith("[::1]:")
        assert len(fastfetch_read(served.servers, "orders", 0, "read_uncommitted")) == 10
        assert len(confluent_read(served.servers, "orders", 0, "read_uncommitted")) == 10


def test_addresses_that_are_none(tmp_path: Path) -> None:
    folder = orders(tmp_path)
    for text in (":9092", "127.0.0.1:x", "127.0.0.1:99999", "::1:9092"):
        code, said = refused(folder, "--listen", text)
        assert code == 2
        assert "127.0.0.1:9092" in said
    assert refused(folder, "--advertise", "kafka.example")[0] == 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = refused(folder, "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
        assert (code, "choose another place with --listen" in said) == (1, True)


# ------------------------------------------------------------------------------------------------------------------ what it says


def test_a_table_and_a_line_to_read_for_scripts(data: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "serve", data, "--verbose"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline().rstrip()
        name, _, servers = first.partition("=")
        assert name == "bootstrap.servers"
        rows = [process.stdout.readline().split() for _ in range(4)]
        assert rows[0] == ["topic", "partition", "start", "end", "stable", "segments", "bytes", "path"]
        assert rows[3][:6] == ["tx", "0", "0", "32", "22", "1"]
        process.stdout.close()  # as `| head` does
        fastfetch_read(servers, "orders", 1, "read_uncommitted")
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130
        assert process.stderr is not None
        lines = process.stderr.read().splitlines()
    assert any("fastfetch Fetch v" in line and "orders-1@500" in line for line in lines)
    assert all("#" in line for line in lines)


def test_it_is_quiet_otherwise(tmp_path: Path) -> None:
    folder = write(tmp_path / "orders-0", {0: [batch(0)]})
    with serving(folder) as served:
        fastfetch_read(served.servers, "orders", 0, "read_uncommitted")
        with Wire(served.address) as wire:
            wire.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert wire.receive() == b""
    assert served.stderr == ""


def test_what_can_not_be_served(data: Path, tmp_path: Path) -> None:
    assert refused(tmp_path / "nothing")[0] == 1
    assert "No such file" in refused(tmp_path / "nothing")[1]
    assert "no log segments" in refused(tmp_path)[1]
    assert "one name for several topics: orders, tx" in refused(data, "--topic", "x")[1]
    elsewhere = write(tmp_path / "orders-0", {0: [batch(0)]})
    for name in ("", "a b", "a/b", "x" * 250):
        assert refused(data, "--topic", name)[0] == 2
    assert "are both orders-0" in refused(data, elsewhere)[1]
    assert refused()[0] == 2


def test_nothing_can_be_written(tmp_path: Path) -> None:
    """The client sees no more than a connection that closes, again and again."""
    folder = write(tmp_path / "orders-0", {0: [batch(0)]})
    with serving(folder) as served:
        producer = confluent_kafka.Producer({"bootstrap.servers": served.servers, "message.timeout.ms": 2000, "log_level": 0})
        failed: list[Any] = []
        producer.produce("orders", b"x", on_delivery=lambda error, message: failed.append(error))
        assert producer.flush(SECONDS) == 0
        assert failed[0] is not None
        assert len(fastfetch_read(served.servers, "orders", 0, "read_uncommitted")) == 10
    assert served.stderr == "kfetch: a client wants to write; nothing can be written here\n"
