"""Callers who ask for some of the assigned partitions only: the others keep position, order and what is buffered."""

from __future__ import annotations

import pytest

from fastfetch.errors import BrokerError
from fastfetch.types import TopicPartition
from tests.engine.script import Script, batch

P0, P1 = (TopicPartition("t", p) for p in range(2))


def both_buffered(**settings: int) -> Script:
    s = Script(partitions=2, **settings)
    s.started(0, 1)
    s.fetched(s.expect("Fetch"), {0: batch(0), 1: batch(0)})
    return s


def test_the_others_stay_where_they_are() -> None:
    s = both_buffered()
    s.engine.readahead.only = {P1}
    assert s.take(4) == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert s.take() == [(1, offset) for offset in range(4, 10)]
    assert s.take() == []
    assert (s.position(0), s.position(1)) == (0, 10)
    s.engine.readahead.only = None
    assert s.take() == [(0, offset) for offset in range(10)]


def test_peeking_looks_at_no_others() -> None:
    s = both_buffered()
    s.engine.readahead.only = {P1}
    found = s.engine.readahead.peek(3)
    assert found is not None
    assert found[0].tp == P1
    assert found[2].offsets.tolist() == [0, 1, 2]
    s.engine.readahead.only = ()
    assert s.engine.readahead.peek(3) is None
    assert not s.engine.readahead.has_records


def test_what_nobody_wants_is_not_read_ahead() -> None:
    """Else it would fill the budget, and no room would be left for what is wanted."""
    s = both_buffered()
    s.engine.readahead.only = {P1}
    s.fetched(s.expect("Fetch"), {0: batch(10), 1: batch(10)})  # was under way
    for first in range(20, 60, 10):
        asked = s.expect("Fetch")
        assert asked.partitions().keys() == {P1}
        s.fetched(asked, {1: batch(first)})
    assert len([row for _ in range(6) for row in s.take()]) == 60
    s.engine.readahead.only = None
    assert [offset for _, offset in s.take() + s.take()] == list(range(20)), "in order, and nothing of it twice"
    s.fetched(s.expect("Fetch"), {1: None})
    assert s.expect("Fetch").partitions()[P0]["fetch_offset"] == 20, "it is read on"


def test_a_full_buffer_of_what_nobody_wants_holds_nothing_up() -> None:
    s = Script(partitions=2, max_buffered_bytes=10_000)
    s.started(0, 1)
    s.engine.readahead.only = {P1}
    s.fetched(s.expect("Fetch"), {0: batch(0, 100, size=200)})
    assert s.engine.readahead.bytes > 10_000
    asked = s.expect("Fetch")
    assert asked.partitions().keys() == {P1}
    s.fetched(asked, {1: batch(0)})
    assert len(s.take()) == 10


def test_an_error_of_another_one_waits() -> None:
    s = Script(partitions=2)
    s.started(0, 1)
    s.fetched(s.expect("Fetch"), {0: 29, 1: batch(0)})
    s.engine.readahead.only = {P1}
    assert len(s.take()) == 10
    s.engine.raise_fault()
    s.engine.readahead.only = {P0}
    with pytest.raises(BrokerError, match="not allowed to read"):
        s.engine.raise_fault()
