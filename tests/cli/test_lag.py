"""`kfetch lag` in this process; how it ends when it watches, as a process."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from fastfetch.cli import main
from fastfetch.cli.lag import Rates, _duration
from fastfetch.cli.partitions import Standing
from fastfetch.testing import Broker, control_batch, encode_batch, error

from .folders import batch
from .groups import joined

COMMAND = [sys.executable, "-m", "fastfetch", "lag"]
SECONDS = 30


def kfetch(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["lag", *map(str, arguments)], env={"FASTFETCH_BOOTSTRAP_SERVERS": None})


def table(*arguments: object, code: int = 0) -> list[list[str]]:
    """The cells of the lines; they are two spaces or more apart."""
    done = kfetch(*arguments)
    assert done.exit_code == code, done.stderr
    return [re.split(r"\s{2,}", line) for line in done.stdout.splitlines()]


@pytest.fixture
def broker() -> Iterator[Broker]:
    """orders: 30 offsets in partition 0, 10 in 1, none in 2. What the group has committed: 12 of partition 0, 0 of 2."""
    with Broker() as broker:
        broker.create_topic("orders", partitions=3)
        for base in (0, 10, 20):
            broker.append("orders", 0, batch(base))
        broker.append("orders", 1, batch(0))
        broker.set_committed("g", "orders", 0, 12)
        broker.set_committed("g", "orders", 2, 0)
        yield broker


def test_a_partition_without_a_commit_has_no_lag(broker: Broker) -> None:
    assert table("-b", broker.bootstrap_servers, "-g", "g") == [
        ["topic", "partition", "committed", "end", "lag", "note"],
        ["orders", "0", "12", "30", "18", "-"],
        ["orders", "1", "-", "10", "-", "no commit"],
        ["orders", "2", "0", "0", "0", "-"],
        ["total", "-", "-", "-", "18", "1 without a commit"],
    ]
    done = kfetch("-b", broker.bootstrap_servers, "-X", "group.id=g", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["type"], line.get("committed"), line["lag"]) for line in lines] == [
        ("partition", 12, 18),
        ("partition", None, None),
        ("partition", 0, 0),
        ("total", None, 18),
    ]
    assert lines[0].keys() == {"type", "time", "topic", "partition", "committed", "start", "end", "lag"}
    assert (lines[3]["partitions"], lines[3]["without_commit"]) == (3, 1)


def test_topics_that_are_named_alone_count(broker: Broker) -> None:
    broker.create_topic("other")
    broker.append("other", 0, batch(0))
    assert table("-b", broker.bootstrap_servers, "-g", "g", "other")[1:] == [
        ["other", "0", "-", "10", "-", "no commit"],
        ["total", "-", "-", "-", "0", "1 without a commit"],
    ]


def test_what_a_number_alone_would_hide(broker: Broker) -> None:
    """Commits of a topic that is gone, of a partition that is gone, behind the end, and of records that retention took."""
    broker.set_committed("g", "gone", 0, 5)
    broker.set_committed("g", "orders", 7, 5)
    broker.set_committed("g", "orders", 1, 11)
    broker.delete_records("orders", 0, 20)
    assert table("-b", broker.bootstrap_servers, "-g", "g")[1:] == [
        ["gone", "0", "5", "-", "-", "no such partition any more"],
        ["orders", "0", "12", "30", "18", "8 deleted before they were read"],
        ["orders", "1", "11", "10", "0", "committed beyond the end"],
        ["orders", "2", "0", "0", "0", "-"],
        ["orders", "7", "5", "-", "-", "no such partition any more"],
        ["total", "-", "-", "-", "18", "-"],
    ]


def test_up_to_the_last_stable_offset(broker: Broker) -> None:
    broker.append("orders", 2, encode_batch([b"x"] * 5, producer_id=1, transactional=True))
    broker.append("orders", 2, control_batch("commit", producer_id=1))
    broker.append("orders", 2, encode_batch([b"x"] * 5, producer_id=2, transactional=True))
    for isolation, end in (("read_uncommitted", "11"), ("read_committed", "6")):
        row = table("-b", broker.bootstrap_servers, "-g", "g", "--isolation", isolation)[3]
        assert row[3:5] == [end, end]


def test_commits_are_read_before_ends(broker: Broker) -> None:
    """The other way round a group that keeps up would be ahead of the end that is shown."""
    assert kfetch("-b", broker.bootstrap_servers, "-g", "g").exit_code == 0
    asked = [request.api for request in broker.requests()]
    assert asked.index("OffsetFetch") < asked.index("ListOffsets")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_what_members_have_counts_committed_for_or_not(broker: Broker, protocol: str) -> None:
    """With members inside, of a group that has committed nothing, and of one that has for another topic."""
    with joined(broker, "busy", 2, protocol):
        for committed in ([], [["other", "0", "0", "0", "0", "-"]]):
            assert table("-b", broker.bootstrap_servers, "-g", "busy")[1:-1] == [
                ["orders", "0", "-", "30", "-", "no commit"],
                ["orders", "1", "-", "10", "-", "no commit"],
                ["orders", "2", "-", "0", "-", "no commit, empty"],
                *committed,
            ]
            done = kfetch("-b", broker.bootstrap_servers, "-g", "busy", "--max-lag", 1000)
            assert (done.exit_code, done.stderr) == (1, "kfetch: orders-0 has records and no commit (and 1 other)\n")
            if not committed:
                broker.create_topic("other")
                broker.set_committed("busy", "other", 0, 0)
        broker.set_committed("busy", "orders", 0, 29)
        assert table("-b", broker.bootstrap_servers, "-g", "busy", "orders")[1] == ["orders", "0", "29", "30", "1", "-"]


# ---------------------------------------------------------------------------------------------------------------- monitoring


def test_max_lag(broker: Broker) -> None:
    broker.set_committed("g", "orders", 1, 10)
    for most, code in ((18, 0), (17, 1)):
        done = kfetch("-b", broker.bootstrap_servers, "-g", "g", "--max-lag", most)
        assert done.exit_code == code
        assert done.stderr == ("" if code == 0 else "kfetch: orders-0 lags by 18, more than 17\n")
    broker.set_committed("g", "orders", 1, 0)
    broker.append("orders", 2, batch(0))
    done = kfetch("-b", broker.bootstrap_servers, "-g", "g", "--max-lag", 9)
    assert (done.exit_code, done.stderr) == (1, "kfetch: orders-0 lags by 18, more than 9 (and 2 others)\n")


def test_no_commit_is_no_lag_of_0_for_a_monitor_either(broker: Broker) -> None:
    done = kfetch("-b", broker.bootstrap_servers, "-g", "g", "--max-lag", 1000)
    assert (done.exit_code, done.stderr) == (1, "kfetch: orders-1 has records and no commit\n")
    broker.delete_records("orders", 1, 10)
    assert kfetch("-b", broker.bootstrap_servers, "-g", "g", "--max-lag", 1000).exit_code == 0, "nothing is there to be read"


# -------------------------------------------------------------------------------------------------------------------- errors


def test_a_group_that_has_committed_nothing(broker: Broker) -> None:
    done = kfetch("-b", broker.bootstrap_servers, "-g", "nobody")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("kfetch: group 'nobody' has committed nothing, and nobody is in it: look at the name;")
    assert done.stderr.count("\n") == 1


def test_no_group(broker: Broker) -> None:
    done = kfetch("-b", broker.bootstrap_servers)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "Say -g GROUP" in done.stderr


def test_a_topic_that_is_not_there(broker: Broker) -> None:
    done = kfetch("-b", broker.bootstrap_servers, "-g", "g", "nothing")
    assert done.exit_code == 1
    assert "'nothing'" in done.stderr


@pytest.mark.parametrize(
    ("api", "code", "said"),
    [("FindCoordinator", 30, "not allowed to use group 'g'"), ("OffsetFetch", 30, "not allowed to use group 'g'")],
)
def test_not_allowed(broker: Broker, api: str, code: int, said: str) -> None:
    def refuse(exchange: object) -> None:
        body = exchange.body  # type: ignore[attr-defined]
        for each in body.get("coordinators", body.get("groups")):
            each["error_code"] = code

    broker.on(api, refuse, times=None)
    done = kfetch("-b", broker.bootstrap_servers, "-g", "g")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert said in done.stderr


def test_a_transaction_that_holds_a_commit_back_is_named(broker: Broker) -> None:
    def unstable(exchange: object) -> None:
        [group] = exchange.body["groups"]  # type: ignore[attr-defined]
        group["topics"][0]["partitions"][0] |= {"error_code": 88, "committed_offset": -1}

    broker.on("OffsetFetch", unstable, times=None)
    done = kfetch("-b", broker.bootstrap_servers, "-g", "g", "--isolation", "read_committed", "-X", "default.api.timeout.ms=500")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "orders-0: a transaction that commits its offset has not ended" in done.stderr


# --------------------------------------------------------------------------------------------------------------------- rates


def test_rates_and_when_it_is_caught_up() -> None:
    old, new = Standing(100, 0, 1000), Standing(160, 0, 1020)
    rates = Rates.between(old, new, 2.0)
    assert (rates.consumed, rates.produced) == (30.0, 10.0)
    assert rates.catch_up(new.lag) == 860 / 20
    assert Rates(10.0, 10.0).catch_up(5) == float("inf")
    assert Rates(0.0, 0.0).catch_up(0) == 0.0
    assert Rates.between(None, new, 2.0).catch_up(5) is None
    assert Rates.between(Standing(None, 0, 1000), new, 2.0) == Rates(None, 10.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, ""), (0.0, "0s"), (59.4, "59s"), (61.0, "1m 1s"), (3725.0, "1h 2m"), (90_000.0, "1d 1h"), (float("inf"), "never")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert _duration(seconds) == text


# ------------------------------------------------------------------------------------------------------------------ watching


def watching(broker: Broker, *arguments: object) -> subprocess.Popen[str]:
    command = [*COMMAND, "-b", broker.bootstrap_servers, "-g", "g", "--watch", "0.2", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_watching_shows_rates_and_ends_with_ctrl_c(broker: Broker) -> None:
    with watching(broker, "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = [json.loads(process.stdout.readline()) for _ in range(4)]
        assert "consumed_per_s" not in first[0]
        broker.append("orders", 0, batch(0))
        broker.set_committed("g", "orders", 0, 40)
        later = first
        while later[0]["committed"] != 40:
            later = [json.loads(process.stdout.readline()) for _ in range(4)]
        assert later[0]["consumed_per_s"] > later[0]["produced_per_s"] > 0
        assert (later[0]["lag"], later[0]["catch_up_s"]) == (0, 0)
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130
        assert process.stderr.read() == ""


def test_watching_ends_when_nobody_reads_any_more(broker: Broker) -> None:
    with watching(broker) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().split()[:2] == ["topic", "partition"]
        process.stdout.close()
        assert process.wait(SECONDS) == 0
        assert process.stderr.read() == ""


def test_watching_goes_on_when_the_brokers_come_back_and_ends_above_the_limit(broker: Broker) -> None:
    broker.set_committed("g", "orders", 1, 10)
    with watching(broker, "--json", "--max-lag", 20, "-X", "default.api.timeout.ms=500") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        broker.kill_node(1)
        assert process.stderr.readline().endswith("; trying again\n")
        broker.restart_node(1)
        broker.append("orders", 0, batch(0))
        process.stdout.read()
        assert process.wait(SECONDS) == 1
        assert process.stderr.read().splitlines()[-1] == "kfetch: orders-0 lags by 28, more than 20"


def test_watching_goes_on_while_there_is_no_coordinator(broker: Broker) -> None:
    with watching(broker, "--json", "-X", "default.api.timeout.ms=500") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        rule = broker.on("FindCoordinator", error(15), times=None)
        said = process.stderr.readline()
        assert "COORDINATOR_NOT_AVAILABLE" in said
        assert said.endswith("; trying again\n")
        broker.off(rule)
        broker.set_committed("g", "orders", 0, 29)
        while json.loads(process.stdout.readline()).get("committed") != 29:
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130


def test_a_terminal_sees_one_table_that_changes(broker: Broker) -> None:
    terminal, theirs = pty.openpty()
    seen = bytearray()

    def read() -> None:
        while True:
            try:
                data = os.read(terminal, 65536)
            except OSError:  # EIO: the other end is closed
                return
            seen.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    command = [*COMMAND, "-b", broker.bootstrap_servers, "-g", "g", "--watch", "0.1"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env=environment) as process:
        os.close(theirs)
        deadline = time.monotonic() + SECONDS
        while seen.count(b"no commit") < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""
    reader.join(SECONDS)
    os.close(terminal)
    assert seen.count(b"no commit") >= 3
    assert b"\x1b[1A" in seen, "the cursor goes up: the table is drawn over the one before"
    assert b"consumed/s" in seen
