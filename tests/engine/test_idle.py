"""Memory that nobody needs goes back after a minute, and nothing is lost or delivered twice by that."""

from __future__ import annotations

import pytest

from fastfetch.engine.idle import IDLE_MS
from fastfetch.errors import CrcMismatchError
from fastfetch.types import TopicPartition
from tests.engine.script import Script, batch

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def paused_with_records(s: Script, *, taken: int = 0) -> None:
    """Partition 0 is paused with 10 records buffered, of which `taken` were handed out."""
    s.started(0)
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    assert len(s.take(taken)) == taken
    s.engine.pause([P0])
    s.run()
    fetch = s.expect("Fetch")
    s.fetched(fetch, {0: None})


def test_what_a_partition_has_read_ahead_stays_for_a_minute_of_pause() -> None:
    s = Script()
    paused_with_records(s)
    s.advance(IDLE_MS - 1_000)
    assert s.engine.metrics()["released_bytes"] == 0
    s.engine.resume([P0])
    s.advance(IDLE_MS)  # a slow program is no paused partition
    assert s.engine.metrics()["released_bytes"] == 0
    assert [offset for _, offset in s.take()][:10] == list(range(10))


def test_after_that_it_goes_and_is_fetched_again_once_resumed() -> None:
    s = Script()
    paused_with_records(s, taken=3)
    buffered = s.engine.readahead.bytes
    s.advance(IDLE_MS)
    got = s.engine.metrics()
    assert (got["released_bytes"], got["buffered_bytes"], got["dropped_bytes"]) == (buffered, 0, 0)
    assert s.position() == 3
    s.none("Fetch")
    s.engine.resume([P0])
    assert s.take() == []
    fetch = s.expect("Fetch")
    assert fetch.partitions()[P0]["fetch_offset"] == 3
    s.fetched(fetch, {0: batch(0)})
    assert [offset for _, offset in s.take()] == list(range(3, 10))


def test_the_engine_wakes_up_once_for_it() -> None:
    s = Script(request_timeout_ms=500_000)
    s.started(0)
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    s.advance(20_000)
    s.engine.pause([P0])
    s.advance(50_000)
    assert s.engine.wake_at_ms == s.now + 10_000
    s.advance(10_000)
    assert s.engine.readahead.bytes == 0
    assert s.engine.wake_at_ms > s.now + 100_000


def test_an_answer_that_comes_after_it_is_dropped() -> None:
    s = Script(request_timeout_ms=100_000)
    s.started(0)
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    late = s.expect("Fetch")
    s.engine.pause([P0])
    s.advance(IDLE_MS)
    s.fetched(late, {0: batch(10)})
    assert s.engine.readahead.bytes == 0
    s.engine.resume([P0])
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    assert [offset for _, offset in s.take()] == list(range(10))


def test_others_flow_meanwhile() -> None:
    s = Script(partitions=2)
    s.started(0, 1)
    s.fetched(s.expect("Fetch"), {0: batch(0), 1: batch(0)})
    s.engine.pause([P0])
    for first in range(10, 900, 10):
        s.advance(1_000)
        assert [(partition, offset) for partition, offset in s.take()] == [(1, first - 10 + n) for n in range(10)]
        s.fetched(s.expect("Fetch"), dict.fromkeys([0] if first == 10 else []) | {1: batch(first)})
    assert s.engine.metrics()["released_bytes"] > 0
    assert s.trims == [], "what is free is used again at once"
    s.engine.resume([P0])
    s.take()  # makes room
    [fetch] = [asked for asked in s.asked if P0 in asked.partitions()]
    assert fetch.partitions()[P0]["fetch_offset"] == 0


def test_an_error_behind_the_records_is_still_told_behind_them() -> None:
    s = Script()
    s.started(0)
    bad = bytearray(batch(10))
    bad[-1] ^= 1
    s.fetched(s.expect("Fetch"), {0: batch(0) + bytes(bad)})
    for _ in range(2):  # what had been asked for already; and once more
        s.fetched(s.expect("Fetch"), {0: bytes(bad)})
    s.engine.pause([P0])
    s.advance(2 * IDLE_MS)
    s.engine.resume([P0])
    assert len(s.take()) == 10
    with pytest.raises(CrcMismatchError):
        s.engine.raise_fault()


def test_a_partition_unassigned_while_paused_is_of_no_concern() -> None:
    s = Script(partitions=2)
    paused_with_records(s)
    s.started(1)
    s.advance(2 * IDLE_MS)
    assert s.engine.metrics()["released_bytes"] == 0
    s.started(0)
    s.fetched(s.expect("Fetch", when=lambda asked: P0 in asked.partitions()), {0: batch(0)})
    s.advance(2 * IDLE_MS)
    assert len(s.take()) == 10


def test_buffers_kept_warm_go_a_minute_after_the_last_answer_and_only_once() -> None:
    s = Script(request_timeout_ms=500_000)
    s.started(0)
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    s.take()
    last = s.now
    s.advance(IDLE_MS - 1)
    assert s.trims == []
    s.advance(10 * IDLE_MS)
    assert s.trims == [last + IDLE_MS]
    s.fetched(s.expect("Fetch"), {0: batch(10)})
    s.take()
    s.advance(10 * IDLE_MS)
    assert len(s.trims) == 2
