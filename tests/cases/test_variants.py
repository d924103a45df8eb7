"""Variants of published cases that belong to no other file: the decoder's cases as a consumer meets them, commits, revoked
partitions. `cases.txt` says which test pins which case."""

from __future__ import annotations

from typing import Any

import pytest

from fastfetch import OffsetAndMetadata, TopicPartition
from fastfetch.errors import CorruptBatchError, CrcMismatchError, UsageError
from fastfetch.testing import control_batch, encode_batch
from tests.engine.script import Asked, Script, batch

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def offset(asked: Asked, partition: int = 0) -> int:
    return int(asked.partitions()[TopicPartition("t", partition)]["fetch_offset"])


def sent(asked: Asked) -> dict[TopicPartition, int]:
    """What an OffsetCommit says."""
    topics = asked.body["topics"]
    return {TopicPartition(t["name"], p["partition_index"]): p["committed_offset"] for t in topics for p in t["partitions"]}


def commit(s: Script, **more: Any) -> Any:
    out = s.engine.commit(s.engine.subscription.positions(), s.now + 10_000, **more)
    s.run()
    return out


# --- P: positions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["earliest", "none"])
def test_p13_a_partition_that_was_given_up_is_not_reset_and_raises_nothing(policy: str) -> None:
    """KAFKA-19781: the reset, and the error that there is no offset, were for a partition that is on its way out."""
    s = Script(2, auto_offset_reset=policy)
    s.assign(0, 1)
    s.engine.seek(P1, 0)
    s.engine.assign([P1])
    s.run()
    for asked in [asked for asked in s.asked if asked.api.name == "ListOffsets"]:
        s.found(asked, {tp.partition: 0 for tp in asked.partitions()})
    s.engine.raise_fault()
    s.advance(5_000)
    assert all(P0 not in a.partitions() for a in s.asked if a.api.name in ("ListOffsets", "Fetch"))
    s.engine.raise_fault()


def test_p06_two_answers_of_a_leader_that_never_agree_do_not_spin() -> None:
    """Out of range where its own look-up leads."""
    s = Script()
    s.started(at=50)
    end = s.now + 10_000
    while s.now < end:
        for asked in list(s.asked):
            if asked.api.name == "Fetch":
                s.fetched(asked, {0: 1})
            elif asked.api.name == "ListOffsets":
                s.found(asked, {0: 50})
        s.advance(10)
    assert 5 <= s.count("ListOffsets") <= 20


@pytest.mark.parametrize(("end", "then"), [(99, 99), (100, 100), (101, 100)])
def test_p09_a_log_that_lacks_one_record_was_cut(end: int, then: int) -> None:
    s = Script(nodes=2, versions={"OffsetForLeaderEpoch": (2, 4)})
    s.started(at=90)
    s.fetched(s.expect("Fetch"), {0: encode_batch([b"x"] * 10, base_offset=90, leader_epoch=5)})
    s.take()
    s.leaders["t", 0] = (2, 6)
    s.engine.metadata.request_update()
    s.advance(1_000)
    asked = s.expect("OffsetForLeaderEpoch", node=2)
    part = {"error_code": 0, "partition": 0, "leader_epoch": 5, "end_offset": end}
    s.answer(asked, {"topics": [{"topic": "t", "partitions": [part]}]})
    assert s.position() == then
    assert offset(s.expect("Fetch", node=2)) == then


# --- C: commits ---------------------------------------------------------------------------------------------------------


def test_c01_a_committed_offset_at_the_end_of_the_log_delivers_the_next_record() -> None:
    s = Script(group_id="g")
    s.assign()
    s.stored(s.expect("OffsetFetch"), {0: 10})
    s.fetched(s.expect("Fetch"), {0: None}, high=10)
    assert s.take() == []
    s.engine.raise_fault()
    s.fetched(s.expect("Fetch"), {0: batch(10, 1)}, high=11)
    assert s.take() == [(0, 10)]


def test_c03_c06_nothing_of_a_partition_that_was_given_up_is_committed() -> None:
    """Progress from before a partition went must not overwrite what somebody else stored meanwhile (librdkafka#3774)."""
    s = Script(2, group_id="g")
    s.started(0, 1)
    s.fetched(s.expect("Fetch"), {0: batch(0), 1: batch(0)})
    s.take()
    s.engine.assign([P0])
    commit(s)
    asked = s.expect("OffsetCommit")
    assert sent(asked) == {P0: 10}
    s.committed(asked, {0: 0})
    s.engine.assign([P0, P1])  # it comes back: nothing was read of it yet
    reading = s.engine.read_committed_offsets([P1])
    commit(s)
    asked = s.expect("OffsetCommit")
    assert sent(asked) == {P0: 10}
    s.committed(asked, {0: 0})
    s.stored(s.expect("OffsetFetch"), {1: 41})
    assert reading.result() == {P1: OffsetAndMetadata(41, "", 3)}
    assert s.position(1) == 41
    s.engine.assign([P0])
    assert set(s.engine.commits.committed) == {P0}, "what was committed of one that went is not known any more"


def test_c02_prefetched_records_are_in_no_commit() -> None:
    s = Script(group_id="g")
    s.started()
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    s.fetched(s.expect("Fetch"), {0: batch(10)})
    commit(s)
    asked = s.expect("OffsetCommit")
    assert sent(asked) == {P0: 0}
    s.committed(asked, {0: 0})
    s.take(4)
    commit(s)
    assert sent(s.expect("OffsetCommit")) == {P0: 4}


def test_c07_a_commit_is_what_it_was_when_it_was_asked_for() -> None:
    s = Script(group_id="g")
    s.started()
    offsets = {P0: OffsetAndMetadata(10)}
    asked_for = s.engine.commit(offsets, s.now + 10_000)
    offsets[P0] = OffsetAndMetadata(20)
    asked = s.expect("OffsetCommit")
    assert sent(asked) == {P0: 10}
    s.committed(asked, {0: 0})
    assert asked_for.pending.result() == {P0: OffsetAndMetadata(10)}


# --- D: what the decoder's cases are to a consumer ----------------------------------------------------------------------


def test_d01_a_fetch_inside_a_tail_that_was_compacted_away_moves_on_with_one_fetch() -> None:
    s = Script()
    s.started(at=103)
    s.fetched(s.expect("Fetch"), {0: batch(100, 2, last=104)})
    assert offset(s.expect("Fetch")) == 105
    assert s.take() == []
    assert s.position() == 105
    assert s.count("Fetch") == 2


def test_d01_the_batch_is_not_fetched_for_ever() -> None:
    """Brokers answer every offset of 102 to 104 with the same batch."""
    s = Script()
    s.started(at=100)
    seen = []
    while offset(s.expect("Fetch")) < 105:
        s.fetched(s.expect("Fetch"), {0: batch(100, 2, last=104)})
        seen += s.take(1) + s.take(1)
    assert seen == [(0, 100), (0, 101)]
    assert s.count("Fetch") == 2


@pytest.mark.parametrize("codec_bits", [0, 1, 2, 3, 4])
def test_d02_an_empty_batch_moves_the_position_and_is_no_end(codec_bits: int) -> None:
    empty = [encode_batch([], base_offset=b, last_offset_delta=9, codec=codec_bits, compressor=lambda b: b) for b in (200, 210)]
    s = Script()
    s.started(at=200)
    s.fetched(s.expect("Fetch"), {0: empty[0]})
    assert s.take() == []
    assert s.position() == 210
    s.engine.raise_fault()
    s.fetched(s.expect("Fetch"), {0: empty[1] + batch(220, 1)})
    assert s.take() == [(0, 220)], "what stands behind an empty batch comes in the same poll"
    assert s.count("Fetch") == 3
    s = Script()
    s.started(at=200)
    s.fetched(s.expect("Fetch"), {0: b"".join(empty)})
    assert (s.take(), s.position()) == ([], 220)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("how", ["seek", "committed"])
@pytest.mark.parametrize("start", [100, 119])
def test_d03_a_position_in_the_middle_of_a_batch_brings_no_old_records(codec: str, how: str, start: int) -> None:
    """Records below the position are dropped before they count against the limit."""
    s = Script(**({"group_id": "g"} if how == "committed" else {}))
    if how == "seek":
        s.started(at=start)
    else:
        s.assign()
        s.stored(s.expect("OffsetFetch"), {0: start})
    s.fetched(s.expect("Fetch"), {0: batch(80, 40, codec=codec)})
    got = []
    while part := s.take(1):
        assert len(part) == 1
        got += part
        assert s.position() == part[0][1] + 1
    assert got == [(0, o) for o in range(start, 120)]


def test_d20_commits_never_pass_a_bad_batch() -> None:
    bad = bytearray(batch(10))
    bad[-1] ^= 1
    s = Script(group_id="g")
    s.started()
    s.fetched(s.expect("Fetch"), {0: batch(0) + bytes(bad) + batch(20)})
    while offset(s.expect("Fetch")) != 10:  # what was asked for on the promise of the headers
        s.fetched(s.expect("Fetch"), {0: None})
    s.fetched(s.expect("Fetch"), {0: bytes(bad) + batch(20)})
    s.fetched(s.expect("Fetch"), {0: batch(30)})  # on the same promise: nothing of it counts
    assert s.take() == [(0, o) for o in range(10)]
    for _ in range(3):
        with pytest.raises(CrcMismatchError):
            s.engine.raise_fault()
        s.advance(1_000)
    s.none("Fetch")
    commit(s)
    assert sent(s.expect("OffsetCommit")) == {P0: 10}
    assert s.engine.skip(P0) == 20
    s.fetched(s.expect("Fetch"), {0: batch(20)})
    assert s.take() == [(0, o) for o in range(20, 30)]


@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_d20_nothing_is_gone_past_where_nothing_says_what_follows(policy: str) -> None:
    """A batch whose length makes no sense: whatever stands behind it may be anything."""
    bad = bytearray(batch(10))
    bad[8:12] = b"\xff" * 4
    s = Script(on_corrupt=policy)
    s.started()
    s.fetched(s.expect("Fetch"), {0: batch(0) + bytes(bad) + batch(20)})
    s.advance(1_000)
    for asked in [asked for asked in s.asked if asked.api.name == "Fetch"]:
        s.fetched(asked, {0: bytes(bad) + batch(20)})
    assert s.take() == [(0, o) for o in range(10)]
    for _ in range(2):
        with pytest.raises(CorruptBatchError):
            s.engine.raise_fault()
    assert s.position() == 10
    assert not s.engine.skipped
    with pytest.raises(UsageError, match="seek"):
        s.engine.skip(P0)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("last", [1, 4])
def test_d23_a_log_that_ends_in_a_marker_has_no_lag_and_commits_its_end(isolation: str, last: int) -> None:
    # The second one's last delta is above its record's.
    record = (b"\0\0\0\1", b"\0\0\0\0\0\0")
    marker = encode_batch([record], base_offset=1, last_offset_delta=last - 1, producer_id=7, control=True, transactional=True)
    data = encode_batch([b"x"], producer_id=7, transactional=True)
    s = Script(group_id="g", isolation_level=isolation)
    s.started()
    s.fetched(s.expect("Fetch"), {0: data + marker}, high=last + 1)
    assert s.take() == [(0, 0)]
    assert s.position() == last + 1
    assert s.engine.lag(P0) == 0
    commit(s)
    assert sent(s.expect("OffsetCommit")) == {P0: last + 1}
    s.committed(s.expect("OffsetCommit"), {0: 0})
    s = Script(isolation_level=isolation)
    s.started(at=1)
    s.fetched(s.expect("Fetch"), {0: marker}, high=last + 1)
    assert s.take() == []
    assert s.position() == last + 1
    assert offset(s.expect("Fetch")) == last + 1, "the marker is not fetched again"


def test_d24_a_response_of_aborted_batches_shows_progress() -> None:
    aborted = b""
    for base in (10, 15, 20):
        aborted += encode_batch([b"x"] * 4, base_offset=base, producer_id=7, transactional=True)
        aborted += control_batch("abort", base_offset=base + 4, producer_id=7)
    s = Script(isolation_level="read_committed")
    s.started(at=10)
    transactions = [{"producer_id": 7, "first_offset": o} for o in (10, 15, 20)]
    s.fetched(s.expect("Fetch"), {0: aborted}, aborted_transactions=transactions)
    out = s.engine.take()
    assert out.blocks == []
    assert out.progressed
    assert s.position() == 25
    assert offset(s.expect("Fetch")) == 25
    s.fetched(s.expect("Fetch"), {0: batch(25, 1)}, aborted_transactions=[])
    assert s.take() == [(0, 25)]
