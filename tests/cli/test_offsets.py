"""`kfetch offsets` in this process."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from fastfetch.cli import main
from fastfetch.cli.ranges import parse_time
from fastfetch.cli.tables import Table
from fastfetch.testing import Broker, control_batch, encode_batch, error

from .folders import TIME, batch


def kfetch(*arguments: object, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, ["offsets", *map(str, arguments)], env={"FASTFETCH_BOOTSTRAP_SERVERS": None} | (env or {}))


def rows(*arguments: object) -> list[list[str]]:
    """The table's lines in words."""
    done = kfetch(*arguments)
    assert (done.exit_code, done.stderr) == (0, ""), done.stderr
    return [line.split() for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """orders: 0 to 19 in partition 0, 0 to 9 in 1, nothing in 2. tx: 0 to 9 aborted, 10 its marker, 11 to 13 still open."""
    with Broker(nodes=2) as broker:
        broker.create_topic("orders", partitions=3)
        for partition, bases in ((0, (0, 10)), (1, (0,))):
            for base in bases:
                broker.append("orders", partition, batch(base))
        broker.delete_records("orders", 0, 5)
        broker.create_topic("tx")
        broker.append("tx", 0, encode_batch([b"x"] * 10, producer_id=1, transactional=True))
        broker.append("tx", 0, control_batch("abort", producer_id=1))
        broker.append("tx", 0, encode_batch([b"x"] * 3, producer_id=2, transactional=True))
        broker.create_topic("__consumer_offsets", internal=True)
        broker.set_committed("g", "orders", 0, 12)
        yield broker


def test_all_topics_when_none_is_named(broker: Broker) -> None:
    assert rows("-b", broker.bootstrap_servers) == [
        ["topic", "partition", "start", "end", "offsets"],
        ["orders", "0", "5", "20", "15"],
        ["orders", "1", "0", "10", "10"],
        ["orders", "2", "0", "0", "0"],
        ["tx", "0", "0", "14", "14"],
    ]


def test_topics_that_are_named_also_internal_ones(broker: Broker) -> None:
    assert rows("-b", broker.bootstrap_servers, "tx")[1:] == [["tx", "0", "0", "14", "14"]]
    assert [row[0] for row in rows("-b", broker.bootstrap_servers, "tx", "__consumer_offsets", "tx")[1:]] == [
        "__consumer_offsets",
        "tx",
    ]


def test_read_committed_shows_both_ends(broker: Broker) -> None:
    found = rows("-b", broker.bootstrap_servers, "tx", "--isolation", "read_committed")
    assert found == [["topic", "partition", "start", "end", "stable", "offsets"], ["tx", "0", "0", "14", "11", "14"]]
    assert rows("-b", broker.bootstrap_servers, "tx", "-X", "isolation.level=read_committed") == found


def test_the_offset_at_a_time_and_commits(broker: Broker) -> None:
    found = rows("-b", broker.bootstrap_servers, "orders", "--at", str(TIME + 8_500), "-g", "g")
    assert found == [
        ["topic", "partition", "start", "end", "offsets", "at", "committed"],
        ["orders", "0", "5", "20", "15", "9", "12"],
        ["orders", "1", "0", "10", "10", "9", "-"],
        ["orders", "2", "0", "0", "0", "-", "-"],
    ]


def test_json(broker: Broker) -> None:
    when = datetime.fromtimestamp(TIME / 1000 + 9, UTC).isoformat()
    done = kfetch("-b", broker.bootstrap_servers, "orders", "--json", "--at", when, "-g", "g", "--isolation", "read_committed")
    assert (done.exit_code, done.stderr) == (0, "")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0] == {
        "topic": "orders",
        "partition": 0,
        "start": 5,
        "end": 20,
        "offsets": 15,
        "at": 9,
        "at_timestamp": TIME + 9_000,
        "committed": 12,
        "stable": 20,
    }
    assert (lines[2]["at"], lines[2]["at_timestamp"], lines[2]["committed"]) == (None, None, None)


def test_the_brokers_may_come_from_the_environment(broker: Broker) -> None:
    done = kfetch("tx", env={"FASTFETCH_BOOTSTRAP_SERVERS": broker.bootstrap_servers})
    assert done.exit_code == 0
    assert "tx" in done.stdout


def test_it_is_one_question_for_any_number_of_topics() -> None:
    with Broker() as broker:
        for i in range(60):
            broker.create_topic(f"topic-{i:02}", partitions=2)
        found = rows("-b", broker.bootstrap_servers)
        assert len(found) == 121
        assert len(broker.requests("Metadata")) <= 5
        assert len(broker.requests("ListOffsets")) <= 5


def test_no_topics_at_all() -> None:
    with Broker() as broker:
        assert rows("-b", broker.bootstrap_servers) == [["topic", "partition", "start", "end", "offsets"]]


# ------------------------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "say where, such as -b 127.0.0.1:9092"),
        (["-b", "127.0.0.1:1", "-X", "default.api.timeout.ms=1500"], 1, "127.0.0.1:1"),
        (["-b", "nowhere"], 2, "nowhere"),
        (["-b", "127.0.0.1:1", "-X", "no.such.setting=1"], 2, "no.such.setting"),
        (["-b", "127.0.0.1:1", "--at", "yesterday"], 2, "2026-01-31T12:00Z"),
        (["-b", "127.0.0.1:1", "--at", "end"], 2, "is no time"),
    ],
)
def test_what_is_wrong_is_one_sentence(arguments: list[str], code: int, said: str) -> None:
    done = kfetch(*arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_an_unknown_topic(broker: Broker) -> None:
    done = kfetch("-b", broker.bootstrap_servers, "orders", "nothing")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "nothing" in done.stderr


def test_not_allowed() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        broker.on("ListOffsets", error(29, topic="orders", partition=0), times=None)
        done = kfetch("-b", broker.bootstrap_servers, "orders")
        assert done.exit_code == 1
        assert "not allowed to read topic 'orders'" in done.stderr


# ------------------------------------------------------------------------------------------------------------ times, tables


def test_times() -> None:
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    for text, when in {
        "2026-01-31T11:00Z": now - timedelta(hours=1),
        "@2026-01-31T13:00+02:00": now - timedelta(hours=1),
        "-1h30m": now - timedelta(minutes=90),
        "@-2d": now - timedelta(days=2),
        "now": now,
        "1769860800": now,
        "1769860800000": now,
    }.items():
        assert parse_time(text, now=now) == when.timestamp() * 1000, text
    for text in ("@", "start", "end", "10", "1h", "2026-13-01", "-1h:now", "-999999999d", "-9999999d"):
        with pytest.raises(ValueError, match=re.escape(text)):
            parse_time(text, now=now)


def test_a_table_has_every_column_in_every_row() -> None:
    table = Table(["topic", "n", "rate", "note"], texts=["topic", "note"])
    table.add("a", 1_234_567, 2.25, "")
    table.add("long", None, None, "some words")
    assert list(table.lines()) == [
        "topic        n  rate  note",
        "a      1234567   2.2  -",
        "long         -     -  some words",
    ]


def test_a_narrow_terminal_takes_no_digit_away() -> None:
    table = Table(["member", "committed", "end", "note"], texts=["member", "note"])
    table.add("m" * 50, 1_234_567, 7_654_321, "no such partition any more")
    console = Console(file=io.StringIO(), width=40)
    console.print(table.drawn())
    seen = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1,234,567" in seen
    assert "7,654,321" in seen
    assert seen.count("m") - seen.split("\n")[1].count("m") == 50 + 1, "and none of the others; one is the note's"


def test_a_partition_without_a_leader_is_named() -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=3)
        broker.move_leader("orders", 1, -1)
        done = kfetch("-b", broker.bootstrap_servers, "orders", "-X", "default.api.timeout.ms=700")
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.endswith("orders-1 has no leader\n")
