"""What the benchmarks' verdicts stand on: the arithmetic, the logs they lay out, and readers that read what is there."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import e2e, groups, topics, wire
from bench.e2e import Contender, Contest, contest, cpu, take
from bench.measure import Figure, plain_table, skipped
from bench.topics import Stock, Topic, write_segments
from fastfetch import read_log
from fastfetch.benchmark.clients import Turn
from fastfetch.benchmark.contest import ReadingError
from fastfetch.testing import Broker, encode_batch

BATCH = encode_batch([b"v%d" % number for number in range(10)], codec="lz4", leader_epoch=0)
BATCHES = 12


@pytest.fixture
def stock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stock]:
    monkeypatch.setitem(topics.TOPICS, "small", Topic("json-lz4", 10 * BATCHES))
    with Broker() as broker:
        broker.create_topic("small", partitions=1)
        for _ in range(BATCHES):
            broker.append("small", 0, BATCH)
        yield Stock(broker.bootstrap_servers, {"small": 10 * BATCHES})


@pytest.mark.parametrize("client", ["fastfetch defaults", "wire"])
def test_a_reading_is_a_process_of_its_own(stock: Stock, client: str) -> None:
    reading = take(stock, Contender(client, "small", stock.records["small"]))
    assert reading.records == 10 * BATCHES
    assert reading.seconds > 0
    assert reading.cpu > 0


def test_a_client_that_cannot_read_says_why(stock: Stock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(topics.TOPICS, "absent", topics.TOPICS["small"])
    with pytest.raises(ReadingError, match=r"fastfetch could not read absent: .*UnknownTopicError"):
        take(stock, Contender("fastfetch", "absent", 1))


@pytest.mark.parametrize("client", groups.CLIENTS)
def test_a_group_of_one_joins_and_reads(stock: Stock, monkeypatch: pytest.MonkeyPatch, client: str) -> None:
    monkeypatch.setattr(groups, "TOPIC", "small")
    assert groups.join(stock, client).records == 1


@pytest.mark.parametrize("manner", ["subscribe", "assign"])
def test_two_share_a_topic(monkeypatch: pytest.MonkeyPatch, manner: str) -> None:
    monkeypatch.setattr(groups, "TOPIC", "shared")
    with Broker() as broker:
        broker.create_topic("shared", partitions=4)
        for partition in range(4):
            broker.append("shared", partition, BATCH)
        assert groups.share(Stock(broker.bootstrap_servers, {}), manner).records == 40
        assert bool(broker.requests("JoinGroup")) == (manner == "subscribe")


def test_a_reading_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "TOPIC", "absent")
    with Broker() as broker, pytest.raises(ReadingError, match="UnknownTopicError"):
        groups.share(Stock(broker.bootstrap_servers, {}), "assign")


@pytest.mark.parametrize("fetch_bytes", [1, 3 * len(BATCH) + 5, 1 << 20])
def test_the_wire_asks_for_every_batch_once(stock: Stock, fetch_bytes: int) -> None:
    with wire.Wire(stock.bootstrap, "small", fetch_bytes) as line:
        offsets, end, total = line.learn(10 * BATCHES)
        whole = max(1, fetch_bytes // len(BATCH))
        assert offsets == list(range(0, 10 * BATCHES, 10 * min(whole, BATCHES)))
        assert end == 10 * BATCHES
        assert line.read(offsets) == total >= BATCHES * len(BATCH)


def test_the_wire_tells_a_topic_that_is_too_short(stock: Stock) -> None:
    with pytest.raises(RuntimeError, match="the topic ends at 120, before 121"):
        wire.measure(stock.bootstrap, "small", 10 * BATCHES + 1, 1 << 20)


def test_segments_are_a_log_with_offsets_that_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "topic-0"
    folder.mkdir()
    assert write_segments(folder, itertools.repeat(BATCH, 7), segment_bytes=3 * len(BATCH)) == 70
    assert sorted(path.name for path in folder.iterdir()) == [f"{offset:020d}.log" for offset in (0, 30, 60)]
    assert [offset for block in read_log(folder) for offset in block.offsets] == list(range(70))


def readings(*seconds: float, records: int = 10) -> list[Turn]:
    return [Turn(each, 2 * each, records) for each in seconds]


def test_a_ratio_is_per_record_and_round_by_round() -> None:
    result = Contest("ours", {"ours": readings(1, 2, 4), "theirs": readings(1, 4, 2, records=5)})
    assert result.at_least(3, "g", "n", "theirs").values == pytest.approx((2, 4, 1))
    assert result.at_most(3, "g", "n", "theirs").values == pytest.approx((0.5, 0.25, 1))
    assert "ours 400000000, theirs 800000000 ns" in result.at_most(3, "g", "n", "theirs", cost=cpu).detail


def test_the_best_peer_is_the_best_of_each_round() -> None:
    result = Contest("ours", {"ours": readings(1, 1), "a": readings(3, 7), "b": readings(5, 2)})
    assert result.at_least(4, "g", "n", "a", "b").values == pytest.approx((3, 2))


def test_a_peer_that_cannot_read_is_left_out_but_we_are_not() -> None:
    result = Contest("ours", {"ours": readings(1), "a": [], "b": readings(2)}, {"a": "a is not here"})
    assert result.at_least(1, "g", "n", "a", "b").values == pytest.approx((2,))
    assert result.at_least(1, "g", "n", "a").skipped == "a is not here"
    broken = Contest("ours", {"ours": [], "b": readings(2)}, {"ours": "it fell over"})
    for figure in (broken.at_least(1, "g", "n", "b"), broken.at_most(1, "g", "n", "b")):
        assert figure.met is False
        assert figure.detail == "it fell over"
    assert broken.at_most(1, "g", "n", "b").values == (math.inf,)


def test_everyone_takes_turns_and_the_first_round_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[str, int]] = []

    def reads(stock: Stock, contender: Contender) -> Turn:
        taken.append((contender.client, contender.records))
        if contender.client == "broken":
            raise ReadingError("broken is broken")
        return Turn(1, 1, contender.records)

    monkeypatch.setattr(e2e, "take", reads)
    result = contest(Stock("", {}), [Contender(client, "t", 100) for client in ("a", "broken", "b")], rounds=2)
    assert taken == [("b", 10), ("broken", 10), ("a", 10), ("a", 100), ("b", 100), ("b", 100), ("a", 100)]
    assert {name: len(got) for name, got in result.readings.items()} == {"a": 2, "broken": 0, "b": 2}
    assert result.failed == {"broken": "broken is broken"}


def test_the_table_for_a_page() -> None:
    table = plain_table([Figure("g", "n", (1.0, 2.0, 3.0), "x", "<=", 1.0, "d"), skipped("g", "m", "no broker")])
    assert table.splitlines() == [
        "| | what | median (quartiles) | must be | | medians behind it |",
        "| --- | --- | --- | --- | --- | --- |",
        "| g | n | 2.00 x  (1.00–3.00) | <= 1 x | NOT MET | d |",
        "| g | m | skipped: no broker | | | |",
    ]


def test_the_parts_run_and_agree() -> None:
    """bench/test_parts.py with little data and nothing timed: all that a group compares does the same."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--benchmark-disable", "bench/test_parts.py"]
    env = os.environ | {"FASTFETCH_BENCH_BYTES": "65536"}
    done = subprocess.run(words, cwd=Path(__file__).parent.parent, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
