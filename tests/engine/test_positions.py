"""Positions and fetches: what moves a position, what is dropped, who is asked next. The engine under scripted answers."""

from __future__ import annotations

import logging

import pytest

from fastfetch.engine.subscription import EARLIEST
from fastfetch.errors import (
    CorruptBatchError,
    CrcMismatchError,
    FastFetchError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    TopicAuthorizationError,
    UnknownTopicError,
    UsageError,
)
from fastfetch.testing import control_batch, encode_batch
from fastfetch.testing.batches import rebase
from fastfetch.types import TopicPartition
from tests.engine.script import Asked, Script, batch

P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)


def offset(asked: Asked, partition: int = 0) -> int:
    return int(asked.partitions()[TopicPartition("t", partition)]["fetch_offset"])


def test_read_ahead_moves_no_position() -> None:
    s = Script()
    s.started()
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    s.fetched(s.expect("Fetch"), {0: batch(10)})
    assert offset(s.expect("Fetch")) == 20
    assert s.position() == 0
    assert s.take(3) == [(0, 0), (0, 1), (0, 2)]
    assert s.position() == 3


def test_the_next_fetch_leaves_before_the_answer_is_decoded() -> None:
    s = Script()
    s.started()
    s.decode_now = False
    s.fetched(s.expect("Fetch"), {0: batch(0) + batch(10)})
    assert offset(s.expect("Fetch")) == 20
    assert len(s.jobs) == 1
    s.fetched(s.expect("Fetch"), {0: batch(20)})
    s.decode()
    s.decode()
    assert [o for _, o in s.take()] == list(range(20))
    assert [o for _, o in s.take()] == list(range(20, 30))


def test_what_was_fetched_on_a_wrong_promise_is_dropped() -> None:
    """Headers say that the answer ends at 20; its second batch is bad, so it ends at 10 and what follows 20 must wait."""
    s = Script()
    s.started()
    s.decode_now = False
    bad = bytearray(batch(10))
    bad[-1] ^= 1
    s.fetched(s.expect("Fetch"), {0: batch(0) + bytes(bad)})
    ahead = s.expect("Fetch")
    assert offset(ahead) == 20
    s.decode()  # the CRC is wrong: asked once more before anything is said
    s.fetched(ahead, {0: batch(20)})
    assert offset(s.expect("Fetch")) == 10
    s.fetched(s.expect("Fetch"), {0: batch(10) + batch(20)})
    while s.jobs:
        s.decode()
    assert [o for _, o in s.take() + s.take()] == list(range(30))


# --- P01: seek while a fetch is in flight ----------------------------------------------------------------------------------


def test_seek_while_a_fetch_is_in_flight() -> None:
    s = Script()
    s.started()
    old = s.expect("Fetch")
    s.engine.seek(P0, 500)
    s.fetched(old, {0: batch(0)})
    assert s.take() == []
    assert offset(s.expect("Fetch")) == 500
    assert s.position() == 500


def test_a_seek_does_not_wait_for_a_fetch_that_waits_for_news() -> None:
    s = Script(2, max_buffered_bytes=64 << 20)
    s.started(0, 1)
    waiting = s.expect("Fetch")
    s.engine.seek(P0, 500)
    s.run()
    beside = s.expect("Fetch", when=lambda asked: asked is not waiting)
    assert beside.conn != waiting.conn
    assert set(beside.partitions()) == {P0}, "the other one is being asked about"
    s.fetched(beside, {0: batch(500)})
    beside = s.expect("Fetch", when=lambda asked: asked is not waiting)
    assert offset(beside) == 510, "and it goes on while there are records"
    s.fetched(waiting, {0: batch(0), 1: batch(0)})
    main = s.expect("Fetch", when=lambda asked: asked is not beside)
    assert set(main.partitions()) == {P1}, "no record is asked for twice"
    s.fetched(beside, {0: None})
    beside = s.expect("Fetch", when=lambda asked: asked is not main)
    assert set(beside.partitions()) == {P0}
    assert beside.body["max_wait_ms"] <= 100, "the next seek has to wait for it"
    s.fetched(main, {1: None})
    main = s.expect("Fetch", when=lambda asked: asked is not beside)
    assert set(main.partitions()) == {P0, P1}, "what finds nothing joins the others"
    s.fetched(beside, {0: None})
    assert [asked for asked in s.asked if asked.api.name == "Fetch"] == [main], "one request a broker is enough"
    assert sorted(s.take()) == [(0, o) for o in range(500, 510)] + [(1, o) for o in range(10)]


def test_seek_between_arrival_and_decoding() -> None:
    s = Script()
    s.started()
    s.decode_now = False
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    s.engine.seek(P0, 500)
    s.decode()
    assert s.take() == []
    assert s.position() == 500


def test_seek_between_arrival_and_poll() -> None:
    s = Script()
    s.started()
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    ahead = s.expect("Fetch")
    s.engine.seek(P0, 500)
    assert s.take() == []
    s.fetched(ahead, {0: batch(10)})  # asked for before the seek
    assert s.take() == []
    s.fetched(s.expect("Fetch"), {0: batch(500)})
    assert s.take(1) == [(0, 500)]


def test_seek_between_two_polls_of_one_batch() -> None:
    s = Script()
    s.started()
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    assert s.take(4) == [(0, o) for o in range(4)]
    s.engine.seek(P0, 500)
    assert s.take() == []
    assert s.position() == 500


def test_seek_inside_the_buffered_batch_and_away_and_back() -> None:
    s = Script()
    s.started()
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    s.fetched(s.expect("Fetch"), {0: None})
    s.engine.seek(P0, 7)
    s.engine.seek(P0, 500)
    s.engine.seek(P0, 7)
    s.fetched(s.expect("Fetch"), {0: None})  # on its way since before
    s.fetched(s.expect("Fetch"), {0: batch(0)})  # the broker answers with the whole batch
    assert s.take() == [(0, 7), (0, 8), (0, 9)]


def test_an_answer_for_the_same_offset_of_an_older_assignment_is_dropped() -> None:
    s = Script()
    s.started()
    old = s.expect("Fetch")
    s.engine.assign([])
    s.engine.assign([P0])
    s.engine.seek(P0, 0)
    s.fetched(old, {0: batch(0)})
    assert s.take() == []
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    assert len(s.take()) == 10


# --- P02, P03: pause -----------------------------------------------------------------------------------------------------


def test_pause_keeps_what_is_buffered() -> None:
    s = Script(3)
    tps = s.started(0, 1, 2)
    s.fetched(s.expect("Fetch"), {p: b"".join(batch(i * 10) for i in range(30)) for p in range(3)})
    first = s.take(10)
    assert first == [(0, o) for o in range(10)]
    s.engine.pause([P0])
    assert s.take(10) == [(1, o) for o in range(10)]
    s.engine.resume([P0])
    rest = [s.take(10) for _ in range(3)]
    assert [(0, o) for o in range(10, 20)] in rest
    assert s.position() == 20
    assert tps[0] == P0


def test_a_revoked_partition_starts_anew_and_the_others_keep_their_buffer() -> None:
    s = Script(2, group_id="g")
    s.started(0, 1)
    s.fetched(s.expect("Fetch"), {0: batch(0), 1: batch(0)})
    s.engine.assign([P1])
    s.engine.assign([P0, P1])
    assert s.position(0) is None
    s.stored(s.expect("OffsetFetch"), {0: 3})
    assert s.position(0) == 3
    assert s.take() == [(1, o) for o in range(10)]


def test_a_paused_partition_is_neither_delivered_nor_fetched() -> None:
    s = Script(2)
    s.started(0, 1)
    s.fetched(s.expect("Fetch"), {0: b"".join(batch(i * 10) for i in range(10)), 1: batch(0)})
    s.engine.pause([P0])
    ahead = s.expect("Fetch")
    s.fetched(ahead, {0: batch(100), 1: batch(10)})  # sent before the pause: kept
    assert {p for p, _ in s.take() + s.take() + s.take()} == {1}
    later = s.expect("Fetch")
    assert set(later.partitions()) == {P1}
    fetches = s.count("Fetch")
    s.engine.resume([P0])
    s.engine.pump(s.now)
    assert [o for _, o in s.take() + s.take()] == list(range(110))
    assert s.count("Fetch") == fetches, "what was buffered needed no fetch"


# --- P04, P05, P08: resets -----------------------------------------------------------------------------------------------


def test_out_of_range_resets_and_fetches_without_a_call(caplog: pytest.LogCaptureFixture) -> None:
    s = Script()
    s.started(at=10)
    with caplog.at_level(logging.WARNING, "fastfetch"):
        s.fetched(s.expect("Fetch"), {0: 1})
        s.found(s.expect("ListOffsets"), {0: 40})
    assert offset(s.expect("Fetch")) == 40
    assert "offset 10 of t-0 is out of range" in caplog.text
    assert "t-0 starts at offset 40" in caplog.text


def test_out_of_range_ahead_of_the_position_waits_for_the_position() -> None:
    """The buffer is still good; by the time it is used up the log may have changed, so the offset is asked for again."""
    s = Script()
    s.started()
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    s.fetched(s.expect("Fetch"), {0: 1})
    s.none("ListOffsets")
    s.none("Fetch")
    assert len(s.take()) == 10
    assert offset(s.expect("Fetch")) == 10
    s.fetched(s.expect("Fetch"), {0: 1})
    s.found(s.expect("ListOffsets"), {0: 40})
    assert offset(s.expect("Fetch")) == 40


def test_an_offset_that_is_in_range_again_is_read_ahead_from() -> None:
    s = Script()
    s.started()
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    s.fetched(s.expect("Fetch"), {0: 1})
    assert len(s.take()) == 10
    s.fetched(s.expect("Fetch"), {0: batch(10)})
    assert offset(s.expect("Fetch")) == 20


def test_a_seek_beats_the_look_up_of_a_reset() -> None:
    s = Script()
    s.assign()
    look_up = s.expect("ListOffsets")
    s.engine.seek(P0, 9)
    s.found(look_up, {0: 0})
    assert s.position() == 9
    assert offset(s.expect("Fetch")) == 9


def test_a_seek_beats_the_committed_offset() -> None:
    s = Script(group_id="g")
    s.assign()
    asked = s.expect("OffsetFetch")
    s.engine.seek(P0, 9)
    s.stored(asked, {0: 3})
    assert s.position() == 9


def test_a_newer_reset_beats_an_older_one() -> None:
    s = Script()
    s.assign()
    old = s.expect("ListOffsets")
    s.engine.seek_to([P0], EARLIEST, "seek_to_beginning")
    s.run()
    s.found(old, {0: 77})
    assert s.position() is None
    s.found(s.expect("ListOffsets"), {0: 5})
    assert s.position() == 5


def test_an_answer_after_the_partition_was_revoked_does_nothing() -> None:
    s = Script(2)
    s.assign(0, 1)
    asked = s.expect("ListOffsets")
    s.engine.assign([P1])
    s.found(asked, {0: 0, 1: 0})
    assert s.engine.subscription.find(P0) is None
    assert s.position(1) == 0
    s.engine.assign([P0, P1])
    assert s.position(0) is None


@pytest.mark.parametrize("policy", ["earliest", "none"])
def test_out_of_range_in_one_partition_and_records_in_the_other(policy: str) -> None:
    s = Script(2, auto_offset_reset=policy)
    s.started(0, 1, at=50)
    s.fetched(s.expect("Fetch"), {0: 1, 1: batch(50, 3)})
    assert s.take() == [(1, 50), (1, 51), (1, 52)]
    if policy == "earliest":
        s.found(s.expect("ListOffsets"), {0: 183})
        assert s.position(0) == 183
    else:
        for _ in range(2):  # sticky: until a seek
            with pytest.raises(OffsetOutOfRangeError, match=r"offset 50 of t-0 .*seek"):
                s.engine.raise_fault()
        s.fetched(s.expect("Fetch"), {1: batch(53, 1)})
        assert s.take() == [(1, 53)]
        s.engine.seek(P0, 183)
        s.engine.raise_fault()


def test_policy_none_without_an_offset_is_an_error_and_a_seek_cures_it() -> None:
    s = Script(auto_offset_reset="none")
    s.assign()
    s.none("ListOffsets")
    with pytest.raises(NoOffsetForPartitionError, match="t-0"):
        s.engine.raise_fault()
    s.engine.seek(P0, 4)
    assert offset(s.expect("Fetch")) == 4


# --- P07: failing to read the committed offset ---------------------------------------------------------------------------


def test_a_failed_look_up_is_not_nothing_committed() -> None:
    s = Script(group_id="g", auto_offset_reset="latest")
    s.assign()
    s.expect("OffsetFetch")
    s.advance(30_000)  # no answer: the request times out
    s.advance(2_000)
    s.stored(s.expect("OffsetFetch"), {0: -1}, code=16)  # NOT_COORDINATOR
    s.advance(2_000)
    s.stored(s.expect("OffsetFetch"), {0: 37})
    assert s.position() == 37
    s.none("ListOffsets")
    assert s.count("ListOffsets") == 0


def test_one_partitions_error_holds_up_no_other() -> None:
    s = Script(2, group_id="g")
    s.assign(0, 1)
    s.stored(s.expect("OffsetFetch"), {0: (88, -1), 1: 7})  # UNSTABLE_OFFSET_COMMIT for one
    assert s.position(1) == 7
    assert s.position(0) is None
    s.advance(200)
    s.stored(s.expect("OffsetFetch"), {0: 5})
    assert s.position(0) == 5
    assert s.count("ListOffsets") == 0


def test_a_partition_left_out_of_the_answer_is_asked_for_again() -> None:
    s = Script(2, group_id="g")
    s.assign(0, 1)
    s.stored(s.expect("OffsetFetch"), {1: 7})
    s.advance(200)
    s.stored(s.expect("OffsetFetch"), {0: 5})
    assert s.position(0) == 5


def test_only_minus_one_leads_to_the_policy() -> None:
    s = Script(group_id="g")
    s.assign()
    s.stored(s.expect("OffsetFetch"), {0: -1})
    s.found(s.expect("ListOffsets"), {0: 12})
    assert s.position() == 12


def test_a_negative_committed_offset_is_an_error() -> None:
    s = Script(group_id="g")
    s.assign()
    s.stored(s.expect("OffsetFetch"), {0: -7})
    with pytest.raises(FastFetchError, match="-7"):
        s.engine.raise_fault()
    assert s.position() is None


# --- P11, D01, D23, D24: positions over holes ----------------------------------------------------------------------------


def test_gaps_do_not_make_the_buffer_stale() -> None:
    s = Script()
    s.started()
    holes = encode_batch([b"x"] * 10, deltas=[i * 3 for i in range(10)])
    s.fetched(s.expect("Fetch"), {0: holes})
    fetches = s.count("Fetch")
    got = [s.take(2) for _ in range(5)]
    assert [o for part in got for _, o in part] == [i * 3 for i in range(10)]
    assert s.count("Fetch") == fetches
    assert s.position() == 28


def test_a_compacted_tail_is_passed() -> None:
    s = Script()
    s.started(at=100)
    s.fetched(s.expect("Fetch"), {0: batch(100, 2, last=104)})
    assert s.take() == [(0, 100), (0, 101)]
    assert s.position() == 105
    assert offset(s.expect("Fetch")) == 105


def test_markers_and_empty_batches_move_the_position_at_hand_out_only() -> None:
    s = Script()
    s.started()
    s.fetched(s.expect("Fetch"), {0: batch(0, 1) + control_batch("commit", base_offset=1, producer_id=7)})
    assert offset(s.expect("Fetch")) == 2
    assert s.position() == 0
    assert s.take() == [(0, 0)]
    assert s.position() == 2
    empty = encode_batch([], base_offset=2, last_offset_delta=9)
    s.fetched(s.expect("Fetch"), {0: empty})
    assert s.position() == 2
    out = s.engine.take()
    assert out.blocks == []
    assert out.progressed
    assert s.position() == 12


def test_nothing_new_keeps_the_position_and_asks_again() -> None:
    s = Script()
    s.started()
    for _ in range(3):
        s.fetched(s.expect("Fetch"), {0: None})
    assert offset(s.expect("Fetch")) == 0
    assert s.take() == []


# --- P12 -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["seek", "pause", "resume", "seek_to", "lag"])
def test_a_call_on_a_revoked_partition_names_it_and_changes_nothing(call: str) -> None:
    s = Script(2)
    s.started(0, 1)
    s.engine.assign([P0])
    with pytest.raises(UsageError, match="t-1 is not assigned"):
        {
            "seek": lambda: s.engine.seek(P1, 3),
            "pause": lambda: s.engine.pause([P0, P1]),
            "resume": lambda: s.engine.resume([P0, P1]),
            "seek_to": lambda: s.engine.seek_to([P0, P1], EARLIEST, "seek_to_beginning"),
            "lag": lambda: s.engine.lag(P1),
        }[call]()
    state = s.engine.subscription.find(P0)
    assert state is not None
    assert (state.position, state.paused) == (0, False)
    s.fetched(s.expect("Fetch"), {0: batch(0), 1: batch(0)})
    assert len(s.take()) == 10


# --- P13, N05: one partition does not hold up another ---------------------------------------------------------------------


def test_a_partition_without_a_leader_holds_up_no_other() -> None:
    s = Script(2)
    s.leaders["t", 0] = (-1, 5)
    s.assign(0, 1)
    s.found(s.expect("ListOffsets"), {1: 0})
    s.fetched(s.expect("Fetch"), {1: batch(0)})
    assert {p for p, _ in s.take()} == {1}
    before = s.count("Metadata")
    s.advance(10_000)
    assert s.count("Metadata") - before < 20
    s.leaders["t", 0] = (1, 6)
    s.advance(2_000)
    s.found(s.expect("ListOffsets"), {0: 0})
    assert s.position(0) == 0


@pytest.mark.parametrize("code", [3, 6, 9, 56, 74, 75, 78, 100, -1])
def test_a_refusing_partition_is_backed_off_and_the_other_flows(code: int) -> None:
    s = Script(2)
    s.started(0, 1)
    asked_for_p0 = served = 0
    start = s.now
    metadata = s.count("Metadata")
    while s.now < start + 10_000:
        fetch = s.expect("Fetch")
        answers: dict[int, bytes | int | None] = {1: batch(served * 10)}
        if P0 in fetch.partitions():
            asked_for_p0 += 1
            assert offset(fetch) == 0, "the position stays"
            answers[0] = code
        s.fetched(fetch, answers)
        served += 1
        s.take()
        s.advance(10)
    assert served > 900, "the other partition is asked every time"
    assert asked_for_p0 <= 20
    assert s.count("Metadata") - metadata <= 20


def test_an_unauthorized_topic_is_named_and_the_others_flow() -> None:
    s = Script(2)
    s.started(0, 1)
    s.fetched(s.expect("Fetch"), {0: 29, 1: batch(0)})
    assert len(s.take()) == 10
    with pytest.raises(TopicAuthorizationError, match="'t'"):
        s.engine.raise_fault()
    s.engine.raise_fault()  # told once, tried again
    s.advance(200)
    s.fetched(s.expect("Fetch"), {1: batch(10)})
    assert P0 in s.expect("Fetch").partitions()


def test_an_unknown_error_code_is_raised_with_its_number() -> None:
    s = Script()
    s.started()
    s.fetched(s.expect("Fetch"), {0: 4711})
    with pytest.raises(FastFetchError, match="4711"):
        s.engine.raise_fault()


def test_an_unknown_topic_is_an_error_after_brokers_have_repeated_it() -> None:
    s = Script()
    s.engine.assign([TopicPartition("nope", 0)])
    s.run()
    s.engine.raise_fault()  # once may be a broker that is behind
    s.advance(2_000)
    with pytest.raises(UnknownTopicError, match="'nope'"):
        s.engine.raise_fault()


def test_a_partition_beyond_the_topics_count_is_named() -> None:
    s = Script(2)
    s.engine.assign([TopicPartition("t", 7)])
    s.run()
    with pytest.raises(UnknownTopicError, match="partition 7 of topic 't' does not exist; it has 2"):
        s.engine.raise_fault()
    s.leaders["t", 7] = (1, 0)  # added later: found by itself
    s.advance(2_000)
    s.expect("ListOffsets")


# --- P14: fairness -------------------------------------------------------------------------------------------------------


def test_a_served_partition_goes_to_the_end_of_the_next_request() -> None:
    s = Script(3)
    s.started(0, 1, 2)
    order = []
    for _ in range(6):
        fetch = s.expect("Fetch")
        first = next(iter(fetch.partitions()))
        order.append(first.partition)
        s.fetched(fetch, {first.partition: batch(offset(fetch, first.partition))})  # the limit is used up by the first
        s.take()
    assert order == [0, 1, 2, 0, 1, 2]


def test_a_full_partition_does_not_starve_the_others_at_poll() -> None:
    s = Script(3)
    s.started(0, 1, 2)
    s.fetched(s.expect("Fetch"), {0: b"".join(batch(i * 10) for i in range(1000)), 1: batch(0), 2: batch(0)})
    assert {p for _ in range(3) for p, _ in s.take(10)} == {0, 1, 2}


# --- D20, R12: a bad batch ------------------------------------------------------------------------------------------------


def bad(first: int) -> bytes:
    data = bytearray(batch(first))
    data[-1] ^= 1
    return bytes(data)


def test_good_records_first_then_a_sticky_error_for_that_partition_only() -> None:
    s = Script(2)
    s.started(0, 1)
    s.fetched(s.expect("Fetch"), {0: batch(0) + bad(10) + batch(20), 1: batch(0)})
    s.fetched(s.expect("Fetch"), {0: None, 1: None})  # on the promise that it ends at 30
    again = s.expect("Fetch")
    assert offset(again) == 10, "damage may happen on the way: asked once more"
    s.fetched(again, {0: bad(10) + batch(20), 1: None})
    assert sorted(s.take() + s.take()) == [(0, o) for o in range(10)] + [(1, o) for o in range(10)]
    for _ in range(3):
        with pytest.raises(CrcMismatchError, match=r"t-0") as caught:
            s.engine.raise_fault()
        assert caught.value.position == 10
        assert caught.value.next_offset == 20
    assert s.position() == 10
    s.fetched(s.expect("Fetch"), {0: batch(30), 1: None})  # left on the new answer's promise
    for turn in range(3):  # no refetch of it meanwhile, and the healthy one goes on
        fetch = s.expect("Fetch")
        assert set(fetch.partitions()) == {P1}
        s.fetched(fetch, {1: batch(10 + 10 * turn)})
        assert len(s.take()) == 10
    assert s.take() == []
    assert s.engine.skip(P0) == 20
    s.engine.raise_fault()
    s.fetched(s.expect("Fetch"), {1: None})
    fetch = s.expect("Fetch")
    assert offset(fetch) == 20
    s.fetched(fetch, {0: batch(20)})
    assert s.take() == [(0, o) for o in range(20, 30)]


@pytest.mark.parametrize("before", [b"", batch(0)])
def test_the_whole_records_of_a_batch_that_is_short_of_some_come_first(before: bytes) -> None:
    """Also where it is the first batch, so that nothing was consumed; and what it inflated to tells nothing of other answers."""
    s = Script()
    first = len(before) and 10
    s.started()
    inflation = s.engine.intake.inflation
    s.fetched(s.expect("Fetch"), {0: before + encode_batch([b"x" * 5000] * 3, base_offset=first, count=5)})
    assert s.engine.intake.inflation == inflation
    taken = []
    while more := s.take():
        taken += more
    assert taken == [(0, offset) for offset in range(first + 3)]
    assert s.position() == first + 3
    with pytest.raises(CorruptBatchError):
        s.engine.raise_fault()


def test_damage_on_the_way_is_never_told() -> None:
    s = Script()
    s.started()
    s.fetched(s.expect("Fetch"), {0: bad(0)})
    s.fetched(s.expect("Fetch"), {0: None})  # on the promise
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    s.engine.raise_fault()
    assert len(s.take()) == 10


def test_a_seek_clears_a_bad_batch() -> None:
    s = Script()
    s.started()
    data = encode_batch([b"x"], count=5)  # the count lies under a right CRC: no refetch helps
    s.fetched(s.expect("Fetch"), {0: data})
    while True:
        s.take()
        try:
            s.engine.raise_fault()
        except CorruptBatchError:
            break
        s.fetched(s.expect("Fetch"), {0: data})
    s.engine.seek(P0, 0)
    s.engine.raise_fault()


def test_bad_batches_are_gone_past_where_the_setting_says_so(caplog: pytest.LogCaptureFixture) -> None:
    s = Script(2, on_corrupt="skip")
    s.started(0, 1)
    s.fetched(s.expect("Fetch"), {0: batch(0) + bad(10) + batch(20), 1: batch(0)})
    s.fetched(s.expect("Fetch"), {0: None, 1: None})  # on the promise that it ends at 30
    again = s.expect("Fetch")
    assert offset(again) == 10, "not before it has been asked for once more"
    assert not s.engine.skipped
    with caplog.at_level(logging.WARNING, "fastfetch"):
        s.fetched(again, {0: bad(10) + batch(20), 1: None})
    assert "going on at offset 20" in caplog.text
    [error] = s.engine.skipped
    assert (error.position, error.next_offset) == (10, 20)
    assert s.engine.metrics()["skipped_batches"] == 1
    assert s.position() == 0  # nothing moves before it is handed out
    assert len(s.take(9)) == 9
    assert s.position() in (0, 9), "the good records come first"
    while s.take():
        pass
    assert s.position() == 20
    while offset(s.expect("Fetch")) != 20:
        s.fetched(s.expect("Fetch"), {0: None, 1: None})
    s.fetched(s.expect("Fetch"), {0: batch(20), 1: None})
    assert [o for p, o in s.take() if p == 0] == list(range(20, 30))
    s.engine.raise_fault()


def test_a_bad_batch_without_a_trusted_end_is_raised_all_the_same() -> None:
    s = Script(on_corrupt="skip")
    s.started()
    for _ in range(2):
        while offset(s.expect("Fetch")) != 0:
            s.fetched(s.expect("Fetch"), {0: None})
        s.fetched(s.expect("Fetch"), {0: bad(0)})  # nothing behind it says where it ends
    while s.asked:
        s.fetched(s.expect("Fetch"), {0: None})
    with pytest.raises(CrcMismatchError):
        s.engine.raise_fault()
    assert not s.engine.skipped


def test_batches_without_records_do_not_pile_up_while_nobody_polls() -> None:
    s = Script()
    s.started()
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    for at in range(10, 1010):
        s.fetched(s.expect("Fetch"), {0: rebase(control_batch("abort", producer_id=1), at, 8)})
    state = s.engine.subscription.find(P0)
    assert state is not None
    assert len(state.chunks) == 1
    assert s.position() == 0
    assert len(s.take(9)) == 9
    assert s.position() == 9
    assert s.take() == [(0, 9)]
    assert s.position() == 1010
    [at] = s.engine.subscription.positions().values()
    assert at.leader_epoch == 8


def test_the_epoch_of_a_batch_without_records_counts() -> None:
    """The position is then in the newer epoch; one kept from the last record would look like a truncated log."""
    s = Script()
    s.started()
    marker = rebase(control_batch("commit", producer_id=1), 10, 7)
    s.fetched(s.expect("Fetch"), {0: encode_batch([b"x"] * 10, leader_epoch=4) + marker})
    s.take()
    assert s.position() == 11
    [at] = s.engine.subscription.positions().values()
    assert at.leader_epoch == 7


def test_skip_without_a_bad_batch_is_refused() -> None:
    s = Script()
    s.started()
    with pytest.raises(UsageError, match="no bad batch"):
        s.engine.skip(P0)


def test_a_changed_base_offset_above_the_high_watermark_is_found() -> None:
    """Base offsets are outside the CRC: one bit flipped there would lose everything up to it."""
    s = Script()
    s.started()
    flipped = bytearray(batch(10))
    flipped[3] ^= 1  # base offset + 2^32
    for _ in range(2):
        while offset(s.expect("Fetch")) > 10:
            s.fetched(s.expect("Fetch"), {0: None}, high=30)
        s.fetched(s.expect("Fetch"), {0: (batch(0) if offset(s.expect("Fetch")) == 0 else b"") + bytes(flipped)}, high=30)
    assert [o for _, o in s.take()] == list(range(10))
    with pytest.raises(CorruptBatchError, match="high watermark"):
        s.engine.raise_fault()
    assert s.position() == 10


def test_records_committed_while_the_broker_read_are_none_with_a_changed_offset() -> None:
    """The high watermark of an answer is older than its records (Partition.readRecords of Kafka)."""
    s = Script()
    s.started()
    s.fetched(s.expect("Fetch"), {0: batch(0) + batch(10)}, high=10)
    assert [o for _, o in s.take()] == list(range(20))
    assert offset(s.expect("Fetch")) == 20


# --- D11: no progress ------------------------------------------------------------------------------------------------------


def test_half_a_batch_is_asked_for_once_with_a_larger_limit_and_then_is_an_error() -> None:
    s = Script(max_partition_fetch_bytes=1000)
    s.started(at=5)
    part = batch(5, 1, size=5000)[:1000]
    fetch = s.expect("Fetch")
    assert fetch.partitions()[P0]["partition_max_bytes"] == 1000
    s.fetched(fetch, {0: part})
    fetch = s.expect("Fetch")
    assert fetch.partitions()[P0]["partition_max_bytes"] == 2000
    s.fetched(fetch, {0: part})
    for _ in range(2):
        with pytest.raises(RecordTooLargeError, match="t-0 at offset 5"):
            s.engine.raise_fault()
    s.none("Fetch")
    assert s.position() == 5


def test_a_batch_larger_than_every_limit_is_taken() -> None:
    """KIP-74: the first batch comes whole."""
    s = Script(max_partition_fetch_bytes=1000, fetch_max_bytes=1000, max_buffered_bytes=1000)
    s.started()
    s.fetched(s.expect("Fetch"), {0: batch(0, 1, size=50_000)})
    assert s.take() == [(0, 0)]
    assert offset(s.expect("Fetch")) == 1


# --- R02: the budget -------------------------------------------------------------------------------------------------------


def test_buffers_and_flights_stay_within_the_budget_and_fetching_goes_on_when_drained() -> None:
    budget = 200_000
    s = Script(10, max_buffered_bytes=budget, max_partition_fetch_bytes=20_000)
    s.started(*range(10))
    served = dict.fromkeys(range(10), 0)
    stalled = False
    for _ in range(200):
        assert s.engine.fetcher.used_bytes <= budget
        fetches = [asked for asked in s.asked if asked.api.name == "Fetch"]
        if not fetches:
            stalled = True
            break
        fetch = fetches[0]
        left = fetch.body["max_bytes"]
        answers: dict[int, bytes | int | None] = {}
        for tp, what in fetch.partitions().items():
            data = batch(what["fetch_offset"], 1, size=4_000)
            if left < len(data):
                break
            left -= len(data)
            answers[tp.partition] = data
            served[tp.partition] += 1
        s.fetched(fetch, answers)
    assert stalled, "nobody takes records, and yet it fetches on"
    s.advance(60_000)
    s.none("Fetch")
    before = s.count("Fetch")
    for _ in range(100):
        s.take()
    assert s.count("Fetch") > before
    assert all(served.values())


def test_paused_buffers_do_not_lock_out_the_others() -> None:
    s = Script(2, max_buffered_bytes=100_000, max_partition_fetch_bytes=1 << 20)
    s.started(0, 1)
    s.fetched(s.expect("Fetch"), {0: batch(0, 1, size=500_000)})
    s.engine.pause([P0])
    assert set(s.expect("Fetch").partitions()) >= {P1}
    s.fetched(s.expect("Fetch"), {1: batch(0)})
    assert {p for p, _ in s.take()} == {1}


# --- hand-outs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [None, 1, 4, 10, 15, 25])
def test_an_undone_hand_out_is_handed_out_again(limit: int | None) -> None:
    s = Script(2)
    s.started(0, 1)
    s.fetched(s.expect("Fetch"), {0: batch(0) + batch(10, 2, last=15), 1: batch(0)})
    s.take(3)
    before = (s.position(0), s.position(1), s.engine.readahead.bytes, s.engine.metrics()["records"])
    out = s.engine.take(limit)
    taken = [(b.partition, int(o)) for b in out.blocks for o in b.offsets]
    s.engine.readahead.undo(out)
    assert (s.position(0), s.position(1), s.engine.readahead.bytes, s.engine.metrics()["records"]) == before
    seen = [record for _ in range(30) for record in s.take(limit)]
    assert sorted(seen) == [(0, o) for o in range(3, 12)] + [(1, o) for o in range(10)]
    assert set(taken) <= set(seen)
    assert s.position(0) == 16


@pytest.mark.parametrize("limit", [1, 3, 7, 10, 12])
def test_a_limit_cuts_blocks_anywhere_and_loses_nothing(limit: int) -> None:
    """Bytes that are not neighbours in memory make several blocks of one response."""
    s = Script()
    s.started(at=2)
    s.fetched(s.expect("Fetch"), {0: batch(0) + batch(10, codec="lz4") + batch(20)})
    state = s.engine.subscription.find(P0)
    assert state is not None
    assert len(state.chunks[0].blocks) == 3
    seen: list[int] = []
    while len(seen) < 28:
        part = s.take(limit)
        assert 1 <= len(part) <= limit
        seen += [o for _, o in part]
        assert s.position() == seen[-1] + 1
    assert seen == list(range(2, 30))


def test_a_position_between_two_blocks_is_where_the_batch_ends_by_its_header() -> None:
    s = Script()
    s.started()
    s.fetched(s.expect("Fetch"), {0: batch(0, 2, last=4) + batch(5, 2, codec="lz4")})
    out = s.engine.take(None, 1)
    assert [block.offsets.tolist() for block in out.blocks] == [[0, 1]]
    assert s.position() == 5
    assert s.take() == [(0, 5), (0, 6)]


@pytest.mark.parametrize("limit", [None, 3, 10, 12])
def test_an_undone_hand_out_counts_as_buffered_again(limit: int | None) -> None:
    s = Script()
    s.started()
    s.fetched(s.expect("Fetch"), {0: batch(0) + batch(10, codec="lz4")})
    state = s.engine.subscription.find(P0)
    assert state is not None
    before = s.engine.readahead.bytes
    out = s.engine.take(limit)
    s.engine.readahead.undo(out)
    assert s.engine.readahead.bytes == state.buffered_bytes == before > 0
    s.engine.readahead.drop(state)
    assert s.engine.readahead.bytes == 0


@pytest.mark.parametrize(("isolation", "level"), [("read_uncommitted", 0), ("read_committed", 1)])
def test_the_isolation_level_is_said(isolation: str, level: int) -> None:
    s = Script(isolation_level=isolation)
    s.assign()
    look_up = s.expect("ListOffsets")
    assert look_up.body["isolation_level"] == level
    s.found(look_up, {0: 0})
    assert s.expect("Fetch").body["isolation_level"] == level


def test_a_look_up_whose_connection_is_lost_is_asked_again() -> None:
    s = Script()
    s.assign()
    s.lose(s.expect("ListOffsets").conn)
    assert s.position() is None
    s.advance(1_000)
    s.found(s.expect("ListOffsets"), {0: 4})
    assert s.position() == 4


@pytest.mark.parametrize("act", ["seek", "poll", "pause"])
def test_iteration_ends_where_its_next_record_is_no_longer_the_next(act: str) -> None:
    s = Script()
    s.started()
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    found = s.engine.readahead.peek(10)
    assert found is not None
    state, chunk, part = found
    steps = s.engine.readahead.steps(state, state.ticket, chunk, chunk.row, part.records()[:-1])
    assert next(steps).offset == 0
    if act == "seek":
        s.engine.seek(P0, 50)
        s.fetched(s.expect("Fetch", when=lambda asked: offset(asked) == 50), {0: batch(50)})
    elif act == "poll":
        assert s.take(3) == [(0, 1), (0, 2), (0, 3)]
    else:
        s.engine.pause([P0])
    assert list(steps) == []
    s.engine.resume([P0])
    left = {"seek": range(50, 60), "poll": range(4, 10), "pause": range(1, 10)}[act]
    assert s.take() == [(0, o) for o in left]


def test_iteration_ends_where_a_poll_got_to_the_same_row_of_the_next_block() -> None:
    s = Script()
    s.started()
    s.fetched(s.expect("Fetch"), {0: batch(0) + batch(10, codec="lz4")})
    found = s.engine.readahead.peek(10)
    assert found is not None
    state, chunk, part = found
    assert len(chunk.blocks) == 2
    steps = s.engine.readahead.steps(state, state.ticket, chunk, chunk.row, part.records()[:-1])
    assert next(steps).offset == 0
    assert s.take(10) == [(0, o) for o in range(1, 11)]
    assert chunk.row == 1
    assert list(steps) == []
    assert s.take() == [(0, o) for o in range(11, 20)]
