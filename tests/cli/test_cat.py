"""`kfetch cat` in this process; tests/cli/test_processes.py has what needs a real one."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fastfetch.cli import main
from fastfetch.testing import Broker, control_batch, encode_batch

from .folders import CODECS, TIME, batch, orders, transactions, value


def kfetch(*arguments: object, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)), env={"FASTFETCH_BOOTSTRAP_SERVERS": None} | (env or {}))


def offsets(*arguments: object) -> list[int]:
    done = kfetch("cat", *arguments, "-f", r"%o\n", "-q")
    assert (done.exit_code, done.stderr) == (0, "")
    return [int(line) for line in done.stdout.splitlines()]


# ------------------------------------------------------------------------------------------------------------------- paths


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return orders(tmp_path)


def test_values_a_line_are_the_default(folder: Path) -> None:
    done = kfetch("cat", folder)
    assert done.stdout_bytes == b"".join(value(o) + b"\n" for o in range(200))
    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        ("start", range(200)),
        ("end", range(0)),
        ("190", range(190, 200)),
        ("-5", range(195, 200)),
        ("+195", range(195, 200)),
        ("10:20", range(10, 20)),
        ("95:105", range(95, 105)),
        (":end", range(200)),
        (":3", range(3)),
        ("-5:-3", range(195, 197)),
        ("500", range(0)),
        ("195:500", range(195, 200)),
        (f"@{TIME + 150_500}", range(151, 200)),
        (f"@{TIME + 150_000}:@{TIME + 155_001}", range(150, 156)),
        ("@2023-11-14T22:15:00Z:@2023-11-14T22:15:02Z", range(100, 102)),
        ("@2030-01-01", range(0)),
        ("@2000-01-01:end", range(200)),
    ],
)
def test_ranges_of_a_folder(folder: Path, span: str, expected: range) -> None:
    assert offsets(folder, "-o", span) == list(expected)


def test_a_count_ends_it(folder: Path) -> None:
    assert offsets(folder, "-n", 7) == list(range(7))
    assert offsets(folder, "-n", 0) == []
    assert offsets(folder, "-n", 115, "-o", "10") == list(range(10, 125))
    assert offsets(folder, "-n", 7, "--follow") == list(range(7))  # does not wait for more


def test_a_file_and_a_partition(folder: Path) -> None:
    assert offsets(folder / "00000000000000000100.log") == list(range(100, 200))
    assert offsets(folder, "-p", "1-3") == list(range(200))
    done = kfetch("cat", folder, "-p", 0)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "holds partition 3" in done.stderr


def test_json_from_a_folder(folder: Path) -> None:
    lines = [json.loads(line) for line in kfetch("cat", folder, "-f", "json", "-o", "42:44").stdout.splitlines()]
    assert lines[0]["topic"] == "orders"
    assert [(x["partition"], x["offset"], x["key"], len(x["headers"])) for x in lines] == [(3, 42, "k42", 2), (3, 43, "k43", 0)]


def test_isolation_on_disk(tmp_path: Path) -> None:
    folder = transactions(tmp_path)
    assert offsets(folder) == [*range(10), *range(11, 21), *range(22, 32)]
    assert offsets(folder, "--isolation", "read_committed") == list(range(10))


def test_good_records_before_damage_come_first(folder: Path) -> None:
    path = folder / "00000000000000000100.log"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    done = kfetch("cat", folder, "-f", r"%o\n")
    assert [int(line) for line in done.stdout.splitlines()] == list(range(190))
    assert done.exit_code == 3
    assert done.stderr.count("\n") == 1
    assert str(path) in done.stderr
    assert "offset 190" in done.stderr


def test_following_a_folder(folder: Path) -> None:
    def append() -> None:
        time.sleep(0.3)
        with (folder / "00000000000000000100.log").open("ab") as stream:
            stream.write(batch(200))
        time.sleep(0.3)
        (folder / "00000000000000000210.log").write_bytes(batch(210, codec="lz4"))

    writer = threading.Thread(target=append)
    writer.start()
    assert offsets(folder, "-F", "-o", "198", "-n", 20) == list(range(198, 218))
    writer.join()


# ------------------------------------------------------------------------------------------------------------------ topics


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(nodes=2) as broker:
        broker.create_topic("orders", partitions=3)
        for partition in range(3):
            for first in range(0, 100, 10):
                broker.append("orders", partition, batch(first, codec=CODECS[first // 10 % 5]))
        broker.create_topic("tx", partitions=1)
        broker.append("tx", 0, batch(0, producer_id=1, transactional=True))
        broker.append("tx", 0, control_batch("commit", producer_id=1, base_offset=10))
        # Compaction left a hole at the end: offsets 13 to 30 are gone, and the position passes them.
        broker.append("tx", 0, encode_batch([b"a", b"b"], base_offset=11, last_offset_delta=19))
        broker.append("tx", 0, control_batch("commit", producer_id=2, base_offset=31))
        broker.create_topic("empty", partitions=2)
        yield broker


def test_a_whole_topic(broker: Broker) -> None:
    done = kfetch("cat", "orders", "-b", broker.bootstrap_servers, "-e", "-f", r"%t %p %o %k %v\n")
    assert (done.exit_code, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == sorted(f"orders {p} {o} k{o} value {o}" for p in range(3) for o in range(100))


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        ("start", range(100)),
        ("-5", range(95, 100)),
        ("10:20", range(10, 20)),
        (":end", range(100)),
        ("97:end", range(97, 100)),
        (f"@{TIME + 90_500}:end", range(91, 100)),
        (f"@{TIME + 50_000}:@{TIME + 55_000}", range(50, 55)),
        ("50:50", range(0)),
        ("end", range(0)),
    ],
)
def test_ranges_of_a_partition(broker: Broker, span: str, expected: range) -> None:
    stops = [] if ":" in span else ["-e"]
    assert offsets("orders", "-b", broker.bootstrap_servers, "-p", 1, "-o", span, *stops) == list(expected)


def test_the_end_lies_behind_markers_and_holes(broker: Broker) -> None:
    """A loop that waits for the last offset + 1 would never end here."""
    assert broker.end_offset("tx", 0) == 32
    for isolation in ("read_uncommitted", "read_committed"):
        assert offsets("tx", "-b", broker.bootstrap_servers, "-e", "--isolation", isolation) == [*range(10), 11, 12]
        assert offsets("tx", "-b", broker.bootstrap_servers, "-o", "12:30", "--isolation", isolation) == [12]
    assert offsets("empty", "-b", broker.bootstrap_servers, "-e") == []


def test_following_a_topic_ends_at_the_count(broker: Broker) -> None:
    broker.create_topic("live")
    broker.append("live", 0, batch(0))

    def append() -> None:
        time.sleep(0.3)
        broker.append("live", 0, batch(10))

    writer = threading.Thread(target=append)
    writer.start()
    assert offsets("live", "-b", broker.bootstrap_servers, "-n", 15) == list(range(15))
    writer.join()


def test_where_the_brokers_come_from(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = broker.bootstrap_servers
    arguments = ("cat", "orders", "-o", "0:1", "-p", 0)
    env = {"FASTFETCH_BOOTSTRAP_SERVERS": servers}
    assert kfetch(*arguments, env=env).stdout == "value 0\n"
    assert kfetch(*arguments, "-X", f"bootstrap.servers={servers}").stdout == "value 0\n"
    assert kfetch(*arguments, "-X", f"bootstrap_servers={servers}", "-X", "fetch.max.wait.ms=50").stdout == "value 0\n"
    # A path that exists is no topic for the environment, and is one for -b.
    orders(tmp_path).rename(tmp_path / "orders")
    monkeypatch.chdir(tmp_path)
    assert kfetch("cat", "orders", "-o", "150:151", env=env).stdout == "value 150\n"
    assert kfetch(*arguments, "-b", servers).stdout == "value 0\n"


# ------------------------------------------------------------------------------------------------------------------ errors


def test_an_unknown_topic_is_one_sentence(broker: Broker) -> None:
    done = kfetch("cat", "no-such-topic", "-b", broker.bootstrap_servers, "-e")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "no-such-topic" in done.stderr


def test_a_partition_that_is_not_there(broker: Broker) -> None:
    done = kfetch("cat", "orders", "-b", broker.bootstrap_servers, "-e", "-p", "2-4")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "orders has partitions 0 to 2, and no 3, 4" in done.stderr


def test_an_unreachable_broker_is_one_sentence() -> None:
    began = time.monotonic()
    done = kfetch("cat", "orders", "-b", "127.0.0.1:1", "-e", "-X", "default.api.timeout.ms=1000")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "127.0.0.1:1" in done.stderr
    assert time.monotonic() - began < 5


def test_damage_from_a_broker_is_3_after_the_good_records() -> None:
    bad = bytearray(batch(10))
    bad[-5] ^= 1
    with Broker() as broker:
        broker.create_topic("orders")
        for data in (batch(0), bytes(bad), batch(20)):
            broker.append("orders", 0, data)
        done = kfetch("cat", "orders", "-b", broker.bootstrap_servers, "-e", "-f", r"%o\n")
        assert [int(line) for line in done.stdout.splitlines()] == list(range(10))
        assert (done.exit_code, done.stderr.count("\n")) == (3, 1)
        assert "Next trusted offset: 20" in done.stderr
        assert offsets("orders", "-b", broker.bootstrap_servers, "-o", "20:end") == list(range(20, 30))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["orders", "-b", "127.0.0.1:1", "-X", "fetch.mx.bytes=1"], "Did you mean fetch.max.bytes"),
        (["orders", "-b", "nonsense"], "host:port"),
        (["orders", "-X", "nonsense"], "key=value"),
        (["orders", "-b", "127.0.0.1:1", "-o", "5:1"], "ends before it begins"),
        (["orders", "-b", "127.0.0.1:1", "-f", "%q"], "%q is not known"),
        (["orders", "-b", "127.0.0.1:1", "-p", "x"], "no list of partitions"),
        (["orders", "-b", "127.0.0.1:1", "-p", "5-3"], "no list of partitions"),
        (["orders", "-b", "127.0.0.1:1", "-e", "-F"], "exclude each other"),
        (["orders", "-b", "127.0.0.1:1", "-o", ":end", "-F"], "leave out --follow"),
        (["orders", "-b", "127.0.0.1:1", "-X", "isolation.level=x", "--isolation", "read_committed"], "exclude each other"),
        (["no-such-thing"], "is no file or folder; to read a topic"),
        (["/", "-X", "fetch.max.bytes=1"], "is a setting for reading a topic"),
        ([], "Missing argument"),
        (["orders", "--nope"], "No such option"),
    ],
)
def test_a_wrong_call_is_one_sentence_and_2(arguments: list[str], why: str) -> None:
    done = kfetch("cat", *arguments)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert why in done.stderr


@pytest.mark.parametrize(
    ("name", "why"),
    [("nowhere/orders-3", "No such file or directory"), ("empty-0", "no log segments"), ("text.log", "not a Kafka log segment")],
)
def test_what_cannot_be_read_is_one_sentence_and_1(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "empty-0").mkdir()
    (tmp_path / "text.log").write_text("hello\n" * 100)
    for verb in ("cat", "dump"):
        done = kfetch(verb, tmp_path / name)
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert why in done.stderr
        assert name in done.stderr
