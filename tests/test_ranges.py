"""Reads that end: what plan() decides; read() gives every record of a range once and then stops, whatever the log holds."""

from __future__ import annotations

import dataclasses
import itertools
import json
import multiprocessing
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfetch import OffsetRange, Timestamp, TopicPartition, plan, read
from fastfetch.errors import (
    ConfigError,
    ConnectionFailedError,
    CrcMismatchError,
    LogTruncationError,
    OffsetOutOfRangeError,
    UnknownTopicError,
    UsageError,
)
from fastfetch.errors import TimeoutError as TimedOut
from fastfetch.testing import Broker, control_batch, encode_batch
from fastfetch.testing.faults import Action, close, cut, delay, drop, error, flip, reset

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ISOLATIONS = ("read_uncommitted", "read_committed")
T0 = 1_700_000_000_000
P0 = TopicPartition("orders", 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    """orders has 100 records each in partitions 0 and 1, one a second from T0 on, in batches of 10; partition 2 is empty."""
    with Broker(nodes=2) as broker:
        broker.create_topic("orders", partitions=3)
        for p, codec in ((0, "lz4"), (1, "none")):
            for turn in range(10):
                rows = [(b"key", b"p%d-%d" % (p, turn * 10 + i), T0 + (turn * 10 + i) * 1000) for i in range(10)]
                broker.append("orders", p, encode_batch(rows, codec=codec))
        yield broker


def planned(broker: Broker, topic: str = "orders", **arguments: Any) -> list[OffsetRange]:
    return plan(broker.bootstrap_servers, topic, **arguments)


def offsets(ranges: OffsetRange | Iterable[OffsetRange], **arguments: Any) -> list[int]:
    arguments.setdefault("timeout_ms", 10_000)
    found = []
    for block in read(ranges, **arguments):
        assert len(block)
        found += block.offsets.tolist()
    return found


def spans(ranges: Iterable[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(each.partition, each.start, each.end) for each in ranges]


def assert_tiles(ranges: Sequence[OffsetRange], start: int, end: int) -> None:
    edges = [ranges[0].start, *(each.end for each in ranges)]
    assert (edges[0], edges[-1]) == (start, end)
    assert [each.start for each in ranges] == edges[:-1]
    assert all(ranges) or start == end


def rows_of(one: OffsetRange, **arguments: Any) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for block in read(one, timeout_ms=10_000, **arguments) for record in block]


def log_of(broker: Broker, *batches: bytes, topic: str = "log") -> None:
    """A topic of one partition with these batches at the offsets they carry."""
    broker.create_topic(topic)
    for batch in batches:
        broker.append(topic, 0, batch, keep_offsets=True)


def eventually(holds: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold"
        time.sleep(0.01)


# --- planning -----------------------------------------------------------------------------------------------------------


def test_a_plan_is_all_there_is_now(broker: Broker) -> None:
    ranges = planned(broker)
    assert spans(ranges) == [(0, 0, 100), (1, 0, 100), (2, 0, 0)]
    broker.append("orders", 0, encode_batch([b"later"]))
    broker.append("orders", 2, encode_batch([b"later"]))
    assert [offsets(each) for each in ranges] == [[*range(100)], [*range(100)], []]
    # Where they end is where the next plan starts.
    later = planned(broker, start={each.tp: each.end for each in ranges})
    assert spans(later) == [(0, 100, 101), (1, 100, 100), (2, 0, 1)]
    assert sorted(offsets(later)) == [0, 100]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("earliest", "latest", (0, 100)),
        ("latest", None, (100, 100)),
        (None, "earliest", (0, 0)),
        (17, 42, (17, 42)),
        (17, 17, (17, 17)),
        (90, 1000, (90, 100)),
        (1000, None, (100, 100)),
        (Timestamp(T0), None, (0, 100)),
        (Timestamp(0), Timestamp(T0), (0, 0)),
        (Timestamp(T0 + 5000), Timestamp(T0 + 9001), (5, 10)),
        (Timestamp(T0 + 4999), Timestamp(T0 + 9000), (5, 9)),
        (Timestamp(T0 + 99_000), None, (99, 100)),
        (Timestamp(T0 + 99_001), None, (100, 100)),
        (None, Timestamp(T0 + 10**9), (0, 100)),
        (10, Timestamp(T0 + 20_000), (10, 20)),
        (50, Timestamp(T0 + 20_000), (20, 20)),
        (Timestamp(T0 + 20_000), 10, (10, 10)),
        (timedelta(days=365 * 40), timedelta(0), (0, 100)),
        (timedelta(minutes=1), None, (100, 100)),
        ("2023-11-14T22:13:25Z", "2023-11-14T23:13:30+01:00", (5, 10)),
        (datetime(1960, 1, 1, tzinfo=UTC), None, (0, 100)),
        ({0: 7}, {P0: Timestamp(T0 + 9000)}, (7, 9)),
        ({1: 7}, {1: 9}, (0, 100)),
        ({0: None}, None, (0, 100)),
        ({0: 100}, None, (100, 100)),
        (np.int64(3), {np.int64(0): np.int64(5)}, (3, 5)),
    ],
    ids=str,
)
def test_where_a_range_starts_and_ends(broker: Broker, start: Any, end: Any, expected: tuple[int, int]) -> None:
    ranges = planned(broker, start=start, end=end)
    assert spans(ranges)[0] == (0, *expected)
    assert offsets(ranges[0]) == [*range(*expected)]


def test_a_time_is_the_same_in_every_zone_and_no_record_before_it_is_read(broker: Broker) -> None:
    when = datetime.fromtimestamp(T0 / 1000 + 5, UTC)
    zones = [UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-8)), None]
    starts = [when.astimezone(zone) for zone in zones]
    assert len({planned(broker, start=start, partitions=0)[0].start for start in starts}) == 1
    micro = timedelta(microseconds=1)
    found = [planned(broker, start=start, partitions=0)[0].start for start in (when - micro, when, when + micro)]
    assert found == [5, 5, 6]  # the record at `when` is older than a microsecond after it


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"start": datetime(2026, 1, 1)}, "no time zone"),
        ({"end": "2026-01-01T12:00"}, "no time zone"),
        ({"start": "yesterday"}, "ISO 8601"),
        ({"start": 1.5}, "Timestamp"),
        ({"start": -1}, "no offset"),
        ({"start": True}, "no offset"),
        ({"start": Timestamp(-1)}, "no offset"),
        ({"start": timedelta(hours=-1)}, "future"),
        ({"start": 10, "end": 9}, "end before it starts"),
        ({"start": Timestamp(10), "end": Timestamp(9)}, "end before it starts"),
        ({"start": {0: 10}, "end": 9}, "end before it starts"),
        ({"start": {3: 10}}, "names 3"),
        ({"end": {TopicPartition("payments", 0): 10}}, "payments"),
        ({"start": {1: 10}, "partitions": [0]}, "names 1"),
        ({"partitions": [0, 3]}, "no 3"),
        ({"partitions": "0"}, "no '0'"),
        ({"partitions": 1.5}, "no 1.5"),
        ({"max_records": 0}, "max_records"),
        ({"target_bytes": 0}, "target_bytes"),
        ({"target_bytes": 1.5}, "target_bytes"),
        ({"isolation": "committed"}, "isolation"),
        ({"isolation_level": "read_committed"}, r"plan\(isolation"),
        ({"group_id": "g"}, "nothing is committed"),
        ({"auto_offset_reset": "latest"}, "auto_offset_reset"),
        ({"fetch_max_byte": 1}, "fetch_max_bytes"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(broker: Broker, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        planned(broker, **arguments)


def test_records_that_are_gone_are_not_planned_in_silence(broker: Broker) -> None:
    broker.delete_records("orders", 0, 30)
    with pytest.raises(OffsetOutOfRangeError, match=r"orders-0 starts at 30.*'earliest'"):
        planned(broker, start=29)
    assert spans(planned(broker, start={0: "earliest", 1: 29}, partitions=[0, 1])) == [(0, 30, 100), (1, 29, 100)]
    assert spans(planned(broker, start=Timestamp(T0), partitions=0)) == [(0, 30, 100)]
    assert spans(planned(broker, end=20, partitions=0)) == [(0, 20, 20)]


def test_a_partition_that_lost_what_was_read_of_it_is_not_planned_in_silence(broker: Broker) -> None:
    done = {each.tp: each.end for each in planned(broker)}
    broker.truncate("orders", 1, 60)
    with pytest.raises(OffsetOutOfRangeError, match="orders-1 ends at 60, and was to be read from 100 on"):
        planned(broker, start=done)
    assert spans(planned(broker, start=70)) == [(0, 70, 100), (1, 60, 60), (2, 0, 0)]  # said of all, true of some


def test_several_topics(broker: Broker) -> None:
    broker.create_topic("events", 1)
    broker.append("events", 0, encode_batch([b"a", b"b"]))
    ranges = plan(broker.bootstrap_servers, ["orders", "events", "orders"], partitions=[0], end={P0: 10})
    assert [str(each) for each in ranges] == ["events-0 [0, 2)", "orders-0 [0, 10)"]
    assert sorted(offsets(ranges)) == sorted([*range(2), *range(10)])


def test_a_topic_or_broker_that_is_not_there(broker: Broker) -> None:
    with pytest.raises(UnknownTopicError, match="nothing-here"):
        plan(broker.bootstrap_servers, "nothing-here")
    broker.close()
    with pytest.raises(ConnectionFailedError):
        planned(broker, timeout_ms=300)


def test_a_plan_is_back_by_its_timeout(broker: Broker) -> None:
    broker.on("ListOffsets", drop(), times=None)
    begun = time.monotonic()
    with pytest.raises(TimedOut):
        planned(broker, timeout_ms=300)
    assert time.monotonic() - begun < 2


# --- cutting ------------------------------------------------------------------------------------------------------------


def test_cut_by_records(broker: Broker) -> None:
    ranges = planned(broker, max_records=33)
    for p in (0, 1):
        assert_tiles([each for each in ranges if each.partition == p], 0, 100)
    assert [len(each) for each in ranges] == [25] * 8 + [0]
    assert sorted(offsets(ranges)) == sorted([*range(100)] * 2)
    assert [len(offsets(each)) for each in ranges] == [25] * 8 + [0]


@given(st.integers(0, 2**62), st.integers(0, 10_000), st.integers(1, 20_000))
def test_a_split_covers_its_range(start: int, size: int, most: int) -> None:
    whole = OffsetRange("127.0.0.1:9092", "t", 0, start, start + size)
    parts = whole.split(most)
    assert_tiles(parts, whole.start, whole.end)
    assert max(map(len, parts)) <= most
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert len(parts) == max(1, -(-size // most))


@pytest.mark.parametrize("codec", CODECS)
def test_cut_by_bytes(broker: Broker, codec: str) -> None:
    """Records grow from 100 to 1000 bytes: ranges of about the same size, and exact in what they cover."""
    log_of(broker, *(encode_batch([b"x" * (100 + i * 9)] * 20, base_offset=i * 20, codec=codec) for i in range(100)))
    [whole] = planned(broker, "log")
    total = sum(block.nbytes for block in read(whole))
    ranges = planned(broker, "log", target_bytes=100_000)
    assert_tiles(ranges, 0, 2000)
    assert -(-total // 100_000) <= len(ranges) <= -(-total // 100_000) + 3
    sizes = [sum(block.nbytes for block in read(each)) for each in ranges]
    assert max(sizes) < 140_000
    assert min(sizes) > 60_000
    assert len(ranges[0]) > len(ranges[-1])
    assert [offset for each in ranges for offset in offsets(each)] == [*range(2000)]
    both = planned(broker, "log", target_bytes=100_000, max_records=50)
    assert_tiles(both, 0, 2000)
    assert max(map(len, both)) <= 50


def test_a_few_small_fetches_measure_a_large_topic(broker: Broker) -> None:
    broker.create_topic("large", 4)
    template = encode_batch([b"x" * 1000] * 100)
    for p in range(4):
        broker.generate("large", p, template, 1000)  # 100 MB
    broker.forget_requests()
    ranges = planned(broker, "large", target_bytes=10_000_000)
    assert 40 <= len(ranges) <= 44
    assert len(broker.requests("Fetch")) <= 8 * 4 + 4


def test_cutting_by_bytes_survives_what_cannot_be_read(broker: Broker) -> None:
    """Nothing at all, damage, and nothing but markers, in the places that are measured: whoever reads it hears of it."""
    assert [each for each in planned(broker, target_bytes=1000) if each.partition == 2] == [planned(broker, partitions=2)[0]]
    bad = encode_batch([b"x" * 100] * 10)
    broker.create_topic("log")
    for turn in range(20):
        broker.append("log", 0, bad[:-1] + bytes([bad[-1] ^ 1]) if turn in (0, 7) else bad)
    ranges = planned(broker, "log", target_bytes=3000)
    assert_tiles(ranges, 0, 200)
    assert len(ranges) > 3
    broker.create_topic("markers")
    for _ in range(30):
        broker.append("markers", 0, control_batch("commit", producer_id=1))
    assert_tiles(planned(broker, "markers", target_bytes=1000), 0, 30)


# --- every record once --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("magic", "codec"),
    [(magic, codec) for magic in (0, 1, 2) for codec in CODECS if magic == 2 or codec != "zstd"],  # which is newer than those
)
def test_cut_at_every_offset(broker: Broker, codec: str, magic: int) -> None:
    log_of(broker, *(encode_batch([b"%d" % i] * 7, base_offset=i * 7, codec=codec, magic=magic) for i in range(3)))
    [whole] = planned(broker, "log")
    assert spans([whole]) == [(0, 0, 21)]
    for at in range(22):
        assert offsets(dataclasses.replace(whole, end=at)) == [*range(at)]
        assert offsets(dataclasses.replace(whole, start=at)) == [*range(at, 21)]
    for each in whole.split(1):
        [block] = read(each)
        assert (block.offsets.tolist(), block.values()) == ([each.start], [b"%d" % (each.start // 7)])
        assert block.next_offset == each.end


MARKER_AT_END = (
    encode_batch([b"a"] * 5, producer_id=1, transactional=True),
    control_batch("commit", producer_id=1, base_offset=5),
)
ABORTED_TAIL = (
    encode_batch([b"a"] * 5),
    encode_batch([b"b"] * 5, base_offset=5, producer_id=1, transactional=True, codec="lz4"),
    control_batch("abort", producer_id=1, base_offset=10),
)
ONLY_MARKERS = tuple(control_batch("commit", producer_id=1, base_offset=i) for i in range(6))
COMPACTED_TAIL = (
    encode_batch([b"a"] * 3, codec="zstd", last_offset_delta=9),
    encode_batch([], base_offset=10, last_offset_delta=9),
)
HOLE = (encode_batch([b"a"] * 3), encode_batch([b"b"] * 3, base_offset=20))


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize(
    ("batches", "end", "uncommitted", "committed"),
    [
        (MARKER_AT_END, 6, [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]),
        (ABORTED_TAIL, 11, [*range(10)], [*range(5)]),
        (ONLY_MARKERS, 6, [], []),
        (COMPACTED_TAIL, 20, [0, 1, 2], [0, 1, 2]),
        (HOLE, 23, [0, 1, 2, 20, 21, 22], [0, 1, 2, 20, 21, 22]),
    ],
    ids=["marker at the end", "aborted tail", "only markers", "compacted tail", "hole"],
)
def test_a_range_ends_where_no_record_is(
    broker: Broker, isolation: Any, batches: Sequence[bytes], end: int, uncommitted: list[int], committed: list[int]
) -> None:
    log_of(broker, *batches)
    expected = committed if isolation == "read_committed" else uncommitted
    [whole] = planned(broker, "log", isolation=isolation)
    assert spans([whole]) == [(0, 0, end)]
    assert offsets(whole) == expected
    for a, b in itertools.combinations_with_replacement(range(end + 1), 2):
        if b - a in (0, 1, 2, 7) or (a, b) == (0, end):
            assert offsets(dataclasses.replace(whole, start=a, end=b)) == [o for o in expected if a <= o < b]


def test_an_open_transaction_ends_a_committed_plan(broker: Broker) -> None:
    log_of(
        broker,
        encode_batch([b"a"] * 5),
        encode_batch([b"b"] * 5, base_offset=5, producer_id=1, transactional=True),
        encode_batch([b"c"] * 5, base_offset=10),
    )
    [stable], [everything] = (planned(broker, "log", isolation=isolation) for isolation in ("read_committed", "read_uncommitted"))
    assert (stable.end, everything.end) == (5, 15)
    assert offsets(stable) == [*range(5)]
    assert offsets(everything) == [*range(15)]


def test_a_hole_in_front_of_an_open_transaction(broker: Broker) -> None:
    """Compaction has left nothing of the last offsets below the last stable one: no fetch of committed records says so."""
    log_of(
        broker,
        encode_batch([b"a"] * 5),
        encode_batch([b"b"] * 5, base_offset=10, producer_id=1, transactional=True),
    )
    [stable] = planned(broker, "log", isolation="read_committed", target_bytes=100_000)
    assert spans([stable]) == [(0, 0, 10)]
    assert offsets(stable) == [*range(5)]
    assert offsets(dataclasses.replace(stable, start=7)) == []


class Model:
    """A log made of random steps, and what has to come out of it."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end = 0
        self.records: list[tuple[int, bytes, int]] = []  # offset, value, number of its transaction (-1: none)
        self.open: dict[int, int] = {}  # producer: number of its transaction
        self.first: dict[int, int] = {}  # transaction: first offset
        self.aborted: set[int] = set()

    def batch(self, codec: str, kept: list[bool], producer: int) -> None:
        """`kept`: which of its offsets compaction left."""
        deltas = [i for i, keep in enumerate(kept) if keep]
        values = [b"%d" % (self.end + i) for i in deltas]
        transaction = -1
        if producer >= 0 and deltas:
            transaction = self.open.setdefault(producer, len(self.first))
            self.first.setdefault(transaction, self.end)
        self.records += [(self.end + i, value, transaction) for i, value in zip(deltas, values, strict=True)]
        self.batches.append(
            encode_batch(
                values,
                base_offset=self.end,
                codec=codec if values else "none",
                deltas=deltas or None,
                last_offset_delta=len(kept) - 1,
                producer_id=producer,
                transactional=producer >= 0,
            )
        )
        self.end += len(kept)

    def marker(self, kind: str, producer: int) -> None:
        self.batches.append(control_batch(kind, producer_id=producer, base_offset=self.end))
        transaction = self.open.pop(producer, None)
        if kind == "abort" and transaction is not None:
            self.aborted.add(transaction)
        self.end += 1

    def hole(self, size: int) -> None:
        self.end += size

    def expected(self, isolation: str) -> tuple[int, list[tuple[int, bytes]]]:
        """End and records."""
        if isolation == "read_uncommitted":
            return self.end, [(offset, value) for offset, value, _ in self.records]
        end = min([self.end, *(self.first[transaction] for transaction in self.open.values())])
        return end, [(o, value) for o, value, transaction in self.records if o < end and transaction not in self.aborted]


STEPS = st.one_of(
    st.tuples(
        st.just("batch"),
        st.sampled_from(CODECS),
        st.lists(st.booleans() | st.just(True), min_size=1, max_size=8),
        st.sampled_from([-1, 1, 2]),
    ),
    st.tuples(st.just("marker"), st.sampled_from(["commit", "abort"]), st.sampled_from([1, 2])),
    st.tuples(st.just("hole"), st.integers(1, 5)),
)


@pytest.fixture(scope="module")
def bare() -> Iterator[Broker]:
    with Broker(nodes=2) as broker, pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastfetch.ranges.reading.QUIET_MS", 100)
        yield broker


names = itertools.count()


@given(
    st.lists(STEPS, min_size=1, max_size=12),
    st.sampled_from(ISOLATIONS),
    st.lists(st.floats(0, 1), max_size=4),
    st.sampled_from([1 << 20, 1, 150]),
    st.randoms(use_true_random=False),
)
def test_random_logs_cut_at_random(
    bare: Broker, steps: list[Any], isolation: Any, cuts: list[float], fetch_bytes: int, shuffled: random.Random
) -> None:
    model = Model()
    for name, *arguments in steps:
        getattr(model, name)(*arguments)
    if steps[-1][0] == "hole":
        model.batch("none", [True], -1)  # a log does not end with a hole that nothing says is there
    topic = f"log-{next(names)}"
    log_of(bare, *model.batches, topic=topic)
    end, expected = model.expected(isolation)
    [whole] = planned(bare, topic, isolation=isolation, start={0: "earliest"})
    assert whole.end == end
    edges = sorted({whole.start, end, *(whole.start + int(cut * len(whole)) for cut in cuts)})
    parts = [dataclasses.replace(whole, start=a, end=b) for a, b in itertools.pairwise(edges)] or [whole]
    shuffled.shuffle(parts)
    found = {}
    for part in parts:
        rows = rows_of(part, max_partition_fetch_bytes=fetch_bytes)
        assert rows == [row for row in expected if part.start <= row[0] < part.end]
        found[part.start] = rows
    assert [row for start in sorted(found) for row in found[start]] == expected
    # All of them with one consumer, and every second one: it has to seek.
    for chosen in (parts, parts[::2]):
        wanted = [row for row in expected if any(part.start <= row[0] < part.end for part in chosen)]
        assert offsets(chosen, max_partition_fetch_bytes=fetch_bytes) == [offset for offset, _ in wanted]


# --- reading ------------------------------------------------------------------------------------------------------------


def test_ranges_are_read_together_or_one_by_one(broker: Broker) -> None:
    ranges = planned(broker, max_records=10)
    apart = [each for each in ranges if each.start % 20 == 0]
    assert sorted(offsets(apart)) == sorted(o for each in apart for o in range(each.start, each.end))
    rows = {(b.partition, o) for b in read(ranges) for o in b.offsets.tolist()}
    assert rows == {(p, o) for p in (0, 1) for o in range(100)}
    with pytest.raises(UsageError, match=r"orders-0 \[0, 10\) and orders-0 \[9, 10\) overlap"):
        read([ranges[0], dataclasses.replace(ranges[0], start=9)])
    with pytest.raises(UsageError, match="isolation"):
        read([ranges[0], dataclasses.replace(ranges[1], isolation="read_committed")])
    with pytest.raises(UsageError, match="no OffsetRange"):
        read([ranges[0], "orders"])  # type: ignore[list-item]
    with pytest.raises(UsageError, match=r"plan\(isolation"):
        read(ranges[0], **{"isolation.level": "read_committed"})
    with pytest.raises(ConfigError, match="fetch_max_bytes"):
        read(ranges[0], fetch_max_byte=1)


def test_empty_ranges_ask_nobody() -> None:
    assert list(read(OffsetRange("127.0.0.1:1", "t", 0, 5, 5))) == []
    assert list(read([])) == []


def test_nothing_is_fetched_behind_the_end(broker: Broker) -> None:
    """A slow caller has the whole range buffered, and not a batch more."""
    template = encode_batch([b"x" * 1000] * 10)
    broker.create_topic("large")
    broker.generate("large", 0, template, 1000)
    whole = dataclasses.replace(planned(broker, "large")[0], end=95)
    broker.forget_requests()
    with closing(read(whole, max_partition_fetch_bytes=10_000)) as blocks:
        first = next(blocks)
        time.sleep(0.3)
        found = [*first.offsets.tolist(), *(o for block in blocks for o in block.offsets.tolist())]
    assert found == [*range(95)]
    asked = [p["fetch_offset"] for f in broker.requests("Fetch") for t in f.body["topics"] for p in t["partitions"]]
    assert max(asked) == 90


def test_an_iterator_that_is_left_closes_its_consumer(broker: Broker) -> None:
    [whole] = planned(broker, partitions=1)
    before = threading.active_count()
    blocks = read(whole, max_partition_fetch_bytes=100)
    next(blocks)
    assert broker.connections() > 0
    blocks.close()
    eventually(lambda: broker.connections() == 0)
    blocks = read(whole, max_partition_fetch_bytes=100)
    next(blocks)
    del blocks
    eventually(lambda: broker.connections() == 0 and threading.active_count() <= before + 4)  # the broker's own come and go
    read(whole)  # never begun: nothing to close


def test_how_an_interrupted_read_goes_on(broker: Broker) -> None:
    [whole] = planned(broker, partitions=1)
    done: list[int] = []
    rest = whole
    while rest:
        with closing(read(rest, max_partition_fetch_bytes=100)) as blocks:
            block = next(blocks)
            done += block.offsets.tolist()
            rest = rest.rest(block.next_offset)
    assert done == [*range(100)]
    assert whole.rest(0) == whole
    assert whole.rest(1000) == dataclasses.replace(whole, start=100)


def test_records_that_retention_took(broker: Broker) -> None:
    [whole] = planned(broker, partitions=1)
    broker.delete_records("orders", 1, 5)
    with pytest.raises(OffsetOutOfRangeError, match="offset 0 of orders-1 is out of range"):
        offsets(whole)
    assert offsets(dataclasses.replace(whole, start=5)) == [*range(5, 100)]


def test_retention_that_overtakes_a_read(broker: Broker) -> None:
    """What was read ahead still comes, then an error: never a hole that nobody notices."""
    [whole] = planned(broker, partitions=1)
    found: list[int] = []

    def consume() -> None:
        for block in read(whole, max_partition_fetch_bytes=100, max_buffered_bytes=1000):
            if not found:
                broker.delete_records("orders", 1, 90)
            found.extend(block.offsets.tolist())

    with pytest.raises(OffsetOutOfRangeError, match="orders-1 is out of range"):
        consume()
    assert found == [*range(len(found))]
    assert 0 < len(found) < 90


def test_a_log_that_was_cut(broker: Broker) -> None:
    [whole] = planned(broker, partitions=1)
    broker.truncate("orders", 1, 60)
    broker.move_leader("orders", 1, 1)
    with pytest.raises(LogTruncationError, match=r"orders-1 was to be read up to 100, .* at 60") as caught:
        offsets(whole)
    assert (caught.value.position, caught.value.divergent_offset) == (100, 60)
    assert offsets(dataclasses.replace(whole, end=60)) == [*range(60)]


def test_a_log_that_is_cut_while_it_is_read(broker: Broker) -> None:
    [whole] = planned(broker, partitions=1)
    found: list[int] = []

    def consume() -> None:
        for block in read(whole, max_partition_fetch_bytes=100, max_buffered_bytes=1000, timeout_ms=1500):
            if not found:
                broker.truncate("orders", 1, 60)
                broker.move_leader("orders", 1, 1)
            found.extend(block.offsets.tolist())

    with pytest.raises(LogTruncationError, match="60"):
        consume()
    assert found == [*range(60)]


def test_a_log_that_was_cut_and_has_grown_again(broker: Broker) -> None:
    """Its end says nothing then; the epoch of the leader when the range was planned does."""
    [whole] = planned(broker, partitions=1)
    broker.truncate("orders", 1, 60)
    broker.move_leader("orders", 1, 1)
    for _ in range(10):
        broker.append("orders", 1, encode_batch([b"other"] * 10))
    with pytest.raises(LogTruncationError, match=r"orders-1 was to be read up to 100, .* at 60"):
        offsets(whole)
    assert offsets(dataclasses.replace(whole, leader_epoch=None)) == [*range(100)]  # nobody can know
    broker.truncate("orders", 1, 50)
    broker.forget_requests()
    with pytest.raises(LogTruncationError, match="at 50"):
        offsets(dataclasses.replace(whole, leader_epoch=None))
    assert broker.requests("Fetch") == []  # it is known before anything is read


def test_a_log_that_is_cut_and_grows_again_while_it_is_read(broker: Broker) -> None:
    [whole] = planned(broker, partitions=1)
    found: list[int] = []

    def consume() -> None:
        for block in read(whole, max_partition_fetch_bytes=100, max_buffered_bytes=1000, timeout_ms=5000):
            if not found:
                broker.truncate("orders", 1, 60)
                broker.move_leader("orders", 1, 1)
                for _ in range(10):
                    broker.append("orders", 1, encode_batch([b"other"] * 10))
            found.extend(block.offsets.tolist())

    with pytest.raises(LogTruncationError, match=r"orders-1 was to be read up to 100, .* at 60"):
        consume()


@pytest.mark.parametrize("when", ["before", "during"])
def test_another_topic_under_the_same_name(broker: Broker, when: str) -> None:
    [whole] = planned(broker, partitions=1)

    def recreate() -> None:
        broker.delete_topic("orders")
        broker.create_topic("orders", 3)
        for _ in range(20):
            broker.append("orders", 1, encode_batch([b"other"] * 10))

    if when == "before":
        recreate()
    values: list[bytes | None] = []

    def consume() -> None:
        for block in read(whole, max_partition_fetch_bytes=100, max_buffered_bytes=1000, metadata_max_age_ms=50):
            if not values and when == "during":
                recreate()
            values.extend(block.values())

    with pytest.raises(UnknownTopicError, match="another one was created under its name"):
        consume()
    assert b"other" not in values


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_topic_that_is_deleted(broker: Broker, when: str) -> None:
    [whole] = planned(broker, partitions=1)
    if when == "before":
        broker.delete_topic("orders")

    def consume() -> None:
        for block in read(whole, max_partition_fetch_bytes=100, max_buffered_bytes=1000):
            if block.offsets[0] == 0:
                broker.delete_topic("orders")

    with pytest.raises(UnknownTopicError, match="orders"):
        consume()


def test_a_leader_that_moves(broker: Broker) -> None:
    [whole] = planned(broker, partitions=1)
    found: list[int] = []
    for block in read(whole, max_partition_fetch_bytes=100, max_buffered_bytes=1000):
        found += block.offsets.tolist()
        leader, _ = broker.leader("orders", 1)
        broker.move_leader("orders", 1, 3 - leader)
    assert found == [*range(100)]


def test_a_leader_that_dies() -> None:
    with Broker(nodes=3) as broker:
        broker.create_topic("log", replication=3)
        for _ in range(20):
            broker.append("log", 0, encode_batch([b"a"] * 10))
        [whole] = planned(broker, "log")
        found: list[int] = []
        for block in read(whole, max_partition_fetch_bytes=100, max_buffered_bytes=1000, timeout_ms=20_000):
            if not found:
                broker.kill_node(broker.leader("log", 0)[0], elect=True)
            found += block.offsets.tolist()
        assert found == [*range(200)]


def test_a_broker_that_says_nothing(broker: Broker) -> None:
    [whole] = planned(broker, partitions=1)
    broker.on("Fetch", drop(), nth=3, times=None)
    found: list[int] = []

    def consume() -> None:
        for block in read(whole, max_partition_fetch_bytes=100, timeout_ms=500):
            found.extend(block.offsets.tolist())

    begun = time.monotonic()
    with pytest.raises(TimedOut, match=r"nothing came for 500 ms: orders-1 at \d+ of 100"):
        consume()
    assert 0 < len(found) < 100
    assert time.monotonic() - begun < 5


def test_the_callers_own_time_does_not_count(broker: Broker) -> None:
    [whole] = planned(broker, partitions=1)
    count = 0
    for block in read(whole, max_partition_fetch_bytes=100, max_buffered_bytes=100, timeout_ms=400):
        if count == 0:
            time.sleep(0.6)
        count += len(block)
    assert count == 100


def test_damage_is_told_after_the_good_records(broker: Broker) -> None:
    [whole] = planned(broker, partitions=1)
    broker.on("Fetch", flip(-5), times=None)
    found: list[int] = []

    def consume() -> None:
        for block in read(whole):
            found.extend(block.offsets.tolist())

    with pytest.raises(CrcMismatchError) as caught:
        consume()
    assert found == [*range(90)]
    assert (caught.value.position, caught.value.partition) == (90, 1)


def test_errors_that_pass_are_passed_over(broker: Broker) -> None:
    broker.on("Fetch", error(6))
    broker.on("ListOffsets", error(6))
    broker.on("Metadata", delay(0.05), times=None)
    assert sorted(offsets(planned(broker))) == sorted([*range(100)] * 2)


@pytest.mark.parametrize("fault", [cut(50), reset(), close(), error(6)], ids=["cut", "reset", "close", "not the leader"])
def test_faults_between_any_two_blocks(broker: Broker, fault: Action) -> None:
    [whole] = planned(broker, partitions=1)
    found: list[int] = []
    for block in read(whole, max_partition_fetch_bytes=100, max_buffered_bytes=1000, timeout_ms=20_000):
        found += block.offsets.tolist()
        broker.on("Fetch", fault)
    assert found == [*range(100)]


LEFT_OPEN = """
import sys, fastfetch
[one] = fastfetch.plan(sys.argv[1], "orders", partitions=1)
blocks = fastfetch.read(one, max_partition_fetch_bytes=100)
print(len(next(blocks)))
"""


def test_a_program_that_ends_in_the_middle_is_quiet(broker: Broker) -> None:
    command = [sys.executable, "-W", "error", "-c", LEFT_OPEN, broker.bootstrap_servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "10\n", "")


def test_ctrl_c_ends_a_read_that_waits(broker: Broker) -> None:
    [whole] = planned(broker, partitions=1)
    broker.on("Fetch", drop(), times=None)
    blocks = read(whole)
    threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        next(blocks)
    assert time.monotonic() - begun < 2
    eventually(lambda: broker.connections() == 0)


# --- elsewhere ----------------------------------------------------------------------------------------------------------


def test_a_range_is_a_value(broker: Broker) -> None:
    ranges = planned(broker, max_records=50)
    one = ranges[0]
    assert pickle.loads(pickle.dumps(ranges)) == ranges
    assert [OffsetRange(**fields) for fields in json.loads(json.dumps([dataclasses.asdict(each) for each in ranges]))] == ranges
    assert eval(repr(one), {"OffsetRange": OffsetRange}) == one
    assert len({*ranges, *pickle.loads(pickle.dumps(ranges))}) == len(ranges)
    assert one.tp == P0
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.end = 3  # type: ignore[misc]
    with pytest.raises(UsageError, match="from 5 to 4"):
        dataclasses.replace(one, start=5, end=4)
    with pytest.raises(UsageError, match="whole number"):
        dataclasses.replace(one, start=1.5)
    assert json.dumps(dataclasses.asdict(one.rest(np.int64(7))))
    assert (bool(one), bool(one.rest(50)), len(one.rest(7))) == (True, False, 43)


def test_settings_stay_where_they_were_given(broker: Broker) -> None:
    one = planned(broker, client_id="a secret")[0]
    assert b"secret" not in pickle.dumps(one)
    assert "secret" not in repr(one)


def test_a_broker_may_have_another_address_here(broker: Broker) -> None:
    one = dataclasses.replace(planned(broker)[0], bootstrap_servers="127.0.0.1:1")
    assert offsets(one, bootstrap_servers=broker.bootstrap_servers) == [*range(100)]


def test_old_brokers_without_topic_ids() -> None:
    with Broker(kafka="2.8", topic_ids=False) as broker:
        log_of(broker, encode_batch([b"a"] * 20, codec="lz4"))
        ranges = planned(broker, "log", max_records=3)
        assert ranges[0].topic_id is None
        assert [o for each in ranges for o in offsets(each)] == [*range(20)]


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_ranges_are_read_by_a_pool_of_processes(broker: Broker, method: str) -> None:
    ranges = planned(broker, partitions=0, max_records=15)
    with multiprocessing.get_context(method).Pool(2) as pool:
        rows = [row for part in pool.map(rows_of, ranges) for row in part]
    assert rows == [(i, b"p0-%d" % i) for i in range(100)]


def test_an_error_comes_out_of_another_process_as_it_is(broker: Broker) -> None:
    ranges = planned(broker, partitions=1)
    broker.truncate("orders", 1, 60)
    broker.move_leader("orders", 1, 1)
    with multiprocessing.get_context("spawn").Pool(1) as pool, pytest.raises(LogTruncationError, match="orders-1") as caught:
        pool.map(rows_of, ranges)
    assert (caught.value.partition, caught.value.divergent_offset) == (1, 60)


def test_ranges_are_read_by_threads(broker: Broker) -> None:
    from concurrent.futures import ThreadPoolExecutor

    ranges = planned(broker, partitions=0, max_records=15)
    with ThreadPoolExecutor(4) as pool:
        rows = [row for part in pool.map(rows_of, ranges) for row in part]
    assert rows == [(i, b"p0-%d" % i) for i in range(100)]
