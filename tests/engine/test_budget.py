"""Answers that inflate to more than was guessed: what there is no room for is cut or dropped, and asked for again."""

from __future__ import annotations

from fastfetch.engine.actions import DecodeRecords
from fastfetch.engine.events import RecordsDecoded
from fastfetch.records import decode
from fastfetch.types import TopicPartition
from tests.engine.script import Script, batch

P0 = TopicPartition("t", 0)
BUDGET = 1 << 20


def waiting(s: Script, data: bytes) -> DecodeRecords:
    """An answer has come and is still to be decoded."""
    s.decode_now = False
    s.fetched(s.expect("Fetch"), {0: data})
    return s.jobs.pop(0)


def test_what_there_is_no_room_for_is_asked_for_again_from_where_it_began() -> None:
    s = Script(max_buffered_bytes=BUDGET)
    s.started()
    job = waiting(s, batch(0))
    ahead = s.expect("Fetch")
    assert ahead.partitions()[P0]["fetch_offset"] == 10, "on the strength of a header"
    s.engine.handle(RecordsDecoded(job, None), s.now)
    s.run()
    s.decode_now = True
    s.fetched(ahead, {0: batch(10)})  # of no use without what comes before
    assert s.take() == []
    again = s.expect("Fetch")
    assert again.partitions()[P0]["fetch_offset"] == 0
    s.fetched(again, {0: batch(0)})
    assert [offset for _, offset in s.take()] == list(range(10))
    s.engine.raise_fault()
    assert s.engine.metrics()["dropped_answers"] == 2


def test_of_what_was_cut_the_rest_is_asked_for_again() -> None:
    s = Script(max_buffered_bytes=BUDGET)
    s.started()
    job = waiting(s, batch(0, codec="lz4") + batch(10, codec="lz4"))
    assert job.records is not None
    s.engine.handle(RecordsDecoded(job, decode(job.records, position=0, max_bytes=0)), s.now)
    s.run()
    s.decode_now = True
    ahead = s.expect("Fetch")
    assert ahead.partitions()[P0]["fetch_offset"] == 20
    s.fetched(ahead, {0: batch(20)})
    again = s.expect("Fetch")
    assert again.partitions()[P0]["fetch_offset"] == 10
    s.fetched(again, {0: batch(10, codec="lz4")})
    assert [offset for _, offset in s.take() + s.take()] == list(range(20))


def test_room_is_what_the_others_leave_and_none_once_the_budget_is_full() -> None:
    s = Script(max_buffered_bytes=BUDGET)
    s.started()
    first = waiting(s, batch(0, 100, size=1000))
    fetcher = s.engine.fetcher
    room = fetcher.room_for(first)
    assert room == BUDGET - (fetcher.used_bytes - first.reserved_bytes) > first.reserved_bytes
    large = decode(batch(0, 2000, size=1000, codec="zstd"), position=0)  # what nobody could guess of 100 kB
    s.engine.handle(RecordsDecoded(first, large), s.now)
    s.run()
    assert s.engine.readahead.bytes > BUDGET
    assert fetcher.room_for(first) == 0


def test_what_an_answer_may_cost_does_not_change_after_it_was_asked_for() -> None:
    """Others inflate to a hundred times their size meanwhile: its share of the budget is still the one it was given."""
    s = Script(nodes=2, partitions=2, max_buffered_bytes=BUDGET)
    s.started(0, 1)
    slow = s.expect("Fetch", node=2)
    for first in range(0, 400, 20):
        s.fetched(s.expect("Fetch", node=1), {0: batch(first, 20, size=1000, codec="zstd")})
        s.take()
    s.decode_now = False
    data = batch(0, 20, size=1000, codec="zstd")
    s.fetched(slow, {1: data})
    assert s.jobs[-1].reserved_bytes == 5 * len(data), "the first guess: four times, and itself"
    assert s.engine.fetcher.used_bytes <= BUDGET
