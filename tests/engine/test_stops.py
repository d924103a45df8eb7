"""A partition that has a stop: it is fetched up to there, by what batch headers and the decoder say, and not beyond."""

from __future__ import annotations

from fastfetch.types import TopicPartition
from tests.engine.script import Asked, Script, batch

P0 = TopicPartition("t", 0)


def offset(asked: Asked, partition: int = 0) -> int:
    return int(asked.partitions()[TopicPartition("t", partition)]["fetch_offset"])


def stopped(at: int, *partitions: int) -> Script:
    s = Script(partitions=2, nodes=2)
    s.assign(*partitions)
    s.engine.subscription.get(P0, "stop").stop = at
    for p in partitions:
        s.engine.seek(TopicPartition("t", p), 0)
    s.run()
    return s


def test_nothing_is_asked_for_from_a_stop_on() -> None:
    s = stopped(15, 0)
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    s.fetched(s.expect("Fetch"), {0: batch(10)})
    s.none("Fetch")
    assert [o for _, o in s.take() + s.take()] == list(range(20))  # what came with the records before it is there
    s.run()
    s.none("Fetch")
    s.engine.subscription.get(P0, "stop").stop = 30
    s.engine.seek(P0, 20)
    s.run()
    assert offset(s.expect("Fetch")) == 20


def test_other_partitions_go_on() -> None:
    s = stopped(10, 0, 1)
    for asked in s.expect("Fetch", node=1), s.expect("Fetch", node=2):
        s.fetched(asked, {p: batch(0) for _, p in asked.partitions()})
    s.none_at("Fetch", node=1)
    assert offset(s.expect("Fetch", node=2), 1) == 10


def test_a_promise_that_was_not_kept_is_made_good() -> None:
    """Headers say that the answer gets to the stop; its last batch is bad, so the rest is asked for again."""
    s = stopped(20, 0)
    s.decode_now = False
    bad = bytearray(batch(10))
    bad[-1] ^= 1
    s.fetched(s.expect("Fetch"), {0: batch(0) + bytes(bad)})
    s.none("Fetch")
    s.decode()
    s.fetched(s.expect("Fetch"), {0: batch(10)})
    s.decode()
    assert [o for _, o in s.take() + s.take()] == list(range(20))
    s.none("Fetch")
