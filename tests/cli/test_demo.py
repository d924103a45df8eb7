from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from fastfetch.cli import demo, main
from fastfetch.consumer import Consumer
from fastfetch.testing import DemoPartition


def test_it_reads_everything_and_says_so() -> None:
    done = CliRunner().invoke(main, ["demo", "--records", "50000", "--partitions", "7"])
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.stdout.splitlines() if line.strip().startswith("orders-")]
    assert [row[0] for row in rows] == [f"orders-{p}" for p in range(7)]
    assert [row[1] for row in rows] == ["none", "gzip", "snappy", "lz4", "zstd", "none", "gzip"]
    assert all(row[-1] == "equal" and row[2] == row[6] == row[7] for row in rows)
    assert "Committed offset = end offset in every partition" in done.stdout
    assert "records made" in done.stderr


def test_quiet_leaves_only_the_table() -> None:
    done = CliRunner().invoke(main, ["demo", "--records", "5", "-q"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.count("equal") == 5


def test_a_commit_that_is_not_the_end_makes_it_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Consumer.commit

    def one_less(self: Consumer) -> None:
        tps = sorted(self.assignment())
        commit(self, {tp: self.position(tp) - (tp.partition == 2) for tp in tps})

    monkeypatch.setattr(Consumer, "commit", one_less)
    done = CliRunner().invoke(main, ["demo", "--records", "5000", "-q"])
    assert done.exit_code == 1
    assert done.stdout.count("DIFFERS") == 1
    assert "What arrived is not what was made" in done.stdout


def test_records_that_are_missing_make_it_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    poll = Consumer.poll_blocks

    def thinned(self: Consumer, **options: Any) -> list[Any]:
        return [block[1:] if block.partition == 0 and int(block.offsets[0]) == 0 else block for block in poll(self, **options)]

    monkeypatch.setattr(Consumer, "poll_blocks", thinned)
    done = CliRunner().invoke(main, ["demo", "--records", "5000", "-q"])
    assert done.exit_code == 1
    assert done.stdout.count("DIFFERS") == 1


def test_what_makes_a_partition_right() -> None:
    made = DemoPartition(0, "lz4", 100, 1, 10, 20)
    right = {"records": 100, "end": 100, "committed": 100}
    assert demo._Read(made, **right).is_right  # type: ignore[arg-type]
    for name in right:
        assert not demo._Read(made, **(right | {name: 99})).is_right  # type: ignore[arg-type]
    assert not demo._Read(made, **right, in_order=False).is_right  # type: ignore[arg-type]
