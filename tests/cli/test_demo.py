from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fastfetch.cli import demo, demo_group, demo_member, main
from fastfetch.consumer import Consumer
from fastfetch.errors import RebalanceInProgressError
from fastfetch.testing import DemoPartition
from fastfetch.types import TopicPartition

ROOT = Path(__file__).parents[2]


def test_it_reads_everything_and_says_so() -> None:
    done = CliRunner().invoke(main, ["demo", "--records", "50000", "--partitions", "7", "--no-group"])
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.stdout.splitlines() if line.strip().startswith("orders-")]
    assert [row[0] for row in rows] == [f"orders-{p}" for p in range(7)]
    assert [row[1] for row in rows] == ["none", "gzip", "snappy", "lz4", "zstd", "none", "gzip"]
    assert all(row[-1] == "equal" and row[2] == row[6] == row[7] for row in rows)
    assert "Committed offset = end offset in every partition" in done.stdout
    assert "records made" in done.stderr


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_group, "_STEPS", 10)


def test_one_of_two_members_is_killed_and_nothing_is_lost(short: None) -> None:
    done = CliRunner().invoke(main, ["demo", "--records", "50000"])
    assert done.exit_code == 0, done.output
    assert "Nothing is lost" in done.stdout
    told = re.search(r"([\d,]+) records appended, 0 lost, ([\d,]+) read twice, of ([\d,]+) that had not", done.stdout)
    assert told is not None, done.stdout
    appended, twice, allowed = (int(number.replace(",", "")) for number in told.groups())
    assert (appended, allowed > 0) == (10 * 6 * (5000 // 60), True)
    assert twice <= allowed
    shared, killed, took_over = done.stderr.splitlines()[-3:]
    owned = re.findall(r"has partitions ([\d, ]+)", shared)
    assert len(owned) == 2
    assert sorted(int(p) for each in owned for p in each.split(",")) == list(range(6))
    assert "member 2 is killed with SIGKILL" in killed
    assert "member 1 took over" in took_over
    assert not alive(pids(shared))


def test_quiet_leaves_only_the_tables(short: None) -> None:
    done = CliRunner().invoke(main, ["demo", "--records", "5", "-q"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.count("equal") == 5
    assert "Nothing is lost" in done.stdout


@pytest.mark.parametrize(("fault", "verdict"), [("skips", "RECORDS ARE LOST"), ("rereads", "More was read twice")])
def test_a_member_that_is_wrong_makes_it_fail(short: None, monkeypatch: pytest.MonkeyPatch, fault: str, verdict: str) -> None:
    monkeypatch.setattr(demo_group, "_MEMBER", "tests.cli.wrong_member")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("WRONG_MEMBER", fault)
    done = CliRunner().invoke(main, ["demo", "--records", "5000", "-q"])
    assert done.exit_code == 1, done.output
    assert verdict in done.stdout


def test_a_member_that_ends_by_itself_ends_it(short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_group, "_MEMBER", "fastfetch.no_such_member")
    done = CliRunner().invoke(main, ["demo", "--records", "5000", "-q"])
    assert done.exit_code == 1
    assert "has ended by itself, with exit code 1" in done.stderr


def pids(line: str) -> list[int]:
    found = [int(pid) for pid in re.findall(r"\(pid (\d+)\)", line)]
    assert len(found) == 2, line
    return found


def alive(processes: Iterable[int]) -> list[int]:
    """Those that run. One that has ended may be a zombie for as long as nobody asks for its exit code."""
    running = []
    for pid in processes:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                running.append(pid)
    return running


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_member_outlives_it(how: signal.Signals) -> None:
    command = [sys.executable, "-m", "fastfetch", "demo", "--records", "5000"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "has partitions" in line)
        members = pids(line)
        assert alive(members) == members
        if how is signal.SIGINT:  # the terminal's Ctrl-C reaches all of them
            os.killpg(process.pid, how)
        else:
            process.kill()
        rest = process.stderr.read()
        assert process.wait(20) == (130 if how is signal.SIGINT else -how)
        assert "Traceback" not in rest
    deadline = time.monotonic() + 20
    while alive(members) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(members)


def test_what_a_member_tells() -> None:
    told = demo_group.Told()
    for line in (
        b'["owns", [0, 1]]',
        b'["read", 0, 0, 9]',
        b'["committed", {"0": 10}]',
        b'["read", 0, 10, 19]',
        b'["read", 1, 5, 7]',
    ):
        told.hear(line)
    assert (told.owns, told.records, told.committed, told.not_committed) == ([0, 1], 23, {0: 10}, 13)
    told.hear(b'["owns", [1]]')
    assert (told.not_committed, told.given_up) == (13, 10)  # whoever has partition 0 now reads ten records again
    for line in (b'["owns", [0, 1]]', b'["read", 0, 30, 34]', b'["committed", {"0": 35, "1": 8}]'):
        told.hear(line)
    assert (told.not_committed, told.given_up, told.committed) == (10, 10, {0: 35, 1: 8})


class Scripted:
    """A consumer that hands out one block a poll, and refuses as many commits as it is told."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.at = 0

    def poll_blocks(self, timeout_ms: int) -> list[Any]:
        self.at += 10
        return [SimpleNamespace(topic="t", partition=p, offsets=np.arange(self.at - 10, self.at)) for p in (0, 1)]

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition("t", 0), TopicPartition("t", 1)}

    def commit(self, offsets: Any) -> None:
        self.refusals -= 1
        if self.refusals >= 0:
            raise RebalanceInProgressError("the group is rebalancing")


def test_a_member_commits_once_more_what_was_refused_and_nothing_of_what_went(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(demo_member, "tell", lambda *line: told.append(line))
    member = demo_member.Member(Scripted(refusals=2))  # type: ignore[arg-type]
    member.read()
    member.commit()
    member.on_partitions_revoked([TopicPartition("t", 1)])
    member.commit()
    member.commit()  # there is nothing left to
    assert told == [("read", 0, 0, 9), ("read", 1, 0, 9), ("owns", [0]), ("committed", {0: 10})]


def test_records_that_are_read_in_pieces() -> None:
    assert list(demo_member.runs(np.array([3, 4, 5, 8, 10, 11]))) == [(3, 5), (8, 8), (10, 11)]


def test_records_are_accounted_for_by_their_offsets() -> None:
    first, second = demo_group.Told(), demo_group.Told()
    first.read = [(0, 0, 4), (0, 5, 9), (1, 0, 3)]
    second.read = [(0, 8, 9), (1, 5, 5), (1, 5, 5)]
    assert demo_group.count({0: 10, 1: 6}, {"a": first, "b": second}) == (1, 3)
    right = demo_group.Account(16, 0, 3, 3, True)
    assert (right.is_right, right.fault) == (True, "")
    for wrong in ({"lost": 1}, {"allowed_twice": 2}, {"committed": False}):
        changed = replace(right, **wrong)
        assert not changed.is_right
        assert changed.fault


def test_a_commit_that_is_not_the_end_makes_it_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Consumer.commit

    def one_less(self: Consumer) -> None:
        tps = sorted(self.assignment())
        commit(self, {tp: self.position(tp) - (tp.partition == 2) for tp in tps})

    monkeypatch.setattr(Consumer, "commit", one_less)
    done = CliRunner().invoke(main, ["demo", "--records", "5000", "--no-group", "-q"])
    assert done.exit_code == 1
    assert done.stdout.count("DIFFERS") == 1
    assert "What arrived is not what was made" in done.stdout


def test_records_that_are_missing_make_it_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    poll = Consumer.poll_blocks

    def thinned(self: Consumer, **options: Any) -> list[Any]:
        return [block[1:] if block.partition == 0 and int(block.offsets[0]) == 0 else block for block in poll(self, **options)]

    monkeypatch.setattr(Consumer, "poll_blocks", thinned)
    done = CliRunner().invoke(main, ["demo", "--records", "5000", "--no-group", "-q"])
    assert done.exit_code == 1
    assert done.stdout.count("DIFFERS") == 1


def test_what_makes_a_partition_right() -> None:
    made = DemoPartition(0, "lz4", 100, 1, 10, 20)
    right = {"records": 100, "end": 100, "committed": 100}
    assert demo._Read(made, **right).is_right  # type: ignore[arg-type]
    for name in right:
        assert not demo._Read(made, **(right | {name: 99})).is_right  # type: ignore[arg-type]
    assert not demo._Read(made, **right, in_order=False).is_right  # type: ignore[arg-type]
