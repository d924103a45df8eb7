"""Committed offsets: what is sent, in which order, what counts as committed, and how the coordinator is found again."""

from __future__ import annotations

import pytest

from fastfetch.engine.commits import Commit
from fastfetch.errors import (
    BrokerError,
    CommitFailedError,
    FastFetchError,
    GroupAuthorizationError,
    ProtocolError,
    TopicAuthorizationError,
)
from fastfetch.types import OffsetAndMetadata, TopicPartition
from tests.engine.script import Asked, Script, batch

P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)


def start(s: Script, offsets: dict[TopicPartition, int] | None = None, *, ms: int = 60_000, is_async: bool = False) -> Commit:
    chosen = s.engine.subscription.positions() if offsets is None else {tp: OffsetAndMetadata(o) for tp, o in offsets.items()}
    commit = s.engine.commit(chosen, s.now + ms, is_async=is_async)
    s.run()
    return commit


def sent(asked: Asked) -> dict[TopicPartition, int]:
    return {
        TopicPartition(t["name"], p["partition_index"]): p["committed_offset"]
        for t in asked.body["topics"]
        for p in t["partitions"]
    }


def test_what_is_committed_is_the_next_offset_and_a_restart_begins_there() -> None:
    s = Script(group_id="g")
    s.started()
    s.fetched(s.expect("Fetch"), {0: batch(0, 4)})
    s.take()
    commit = start(s)
    asked = s.expect("OffsetCommit")
    assert sent(asked) == {P0: 4}
    assert asked.body["topics"][0]["partitions"][0]["committed_metadata"] == "", "not null"
    s.committed(asked, {0: 0})
    assert commit.pending.result() == {P0: OffsetAndMetadata(4)}
    again = Script(group_id="g")
    again.assign()
    again.stored(again.expect("OffsetFetch"), {0: 4})
    fetch = again.expect("Fetch")
    assert fetch.partitions()[P0]["fetch_offset"] == 4
    again.fetched(fetch, {0: batch(4, 1)})
    assert again.take() == [(0, 4)]


def test_the_leader_epoch_of_the_last_batch_goes_with_it() -> None:
    from fastfetch.testing import encode_batch

    s = Script(group_id="g")
    s.started()
    s.fetched(s.expect("Fetch"), {0: encode_batch([b"x"] * 3, leader_epoch=6)})
    s.take()
    start(s)
    assert s.expect("OffsetCommit").body["topics"][0]["partitions"][0]["committed_leader_epoch"] == 6


def test_manual_assignment_commits_without_membership_and_joins_nothing() -> None:
    s = Script(group_id="g")
    s.started()
    for code in (22, 25):
        commit = start(s, {P0: 5})
        asked = s.expect("OffsetCommit")
        assert (asked.body["generation_id_or_member_epoch"], asked.body["member_id"]) == (-1, "")
        s.committed(asked, {0: code})
        with pytest.raises(CommitFailedError, match=rf"t-0@5 .*code {code}.*assign\(\)"):
            commit.pending.result()
    assert not {"JoinGroup", "SyncGroup", "Heartbeat"} & {asked.api.name for asked in s.history}


def test_an_asynchronous_commit_is_a_snapshot() -> None:
    s = Script(group_id="g", max_buffered_bytes=1 << 20)
    s.started()
    s.fetched(s.expect("Fetch"), {0: batch(0) + batch(10)})
    s.engine.take(10)
    s.engine.commit(s.engine.subscription.positions(), s.now + 1000, is_async=True)
    s.engine.take(10)  # before the commit was sent
    s.run()
    assert s.position() == 20
    assert sent(s.expect("OffsetCommit")) == {P0: 10}


def test_commits_keep_their_order_one_at_a_time() -> None:
    s = Script(group_id="g")
    s.started()
    for offset in (5, 6, 7):
        start(s, {P0: offset}, is_async=True)
    for offset in (5, 6, 7):
        [asked] = [a for a in s.asked if a.api.name == "OffsetCommit"]
        assert sent(asked) == {P0: offset}
        s.committed(asked, {0: 0})
    assert [c.offsets[P0].offset for c in s.engine.commits.finished_async] == [5, 6, 7]


def test_sent_is_not_committed() -> None:
    s = Script(group_id="g")
    s.started()
    commit = start(s, {P0: 10})
    s.lose(s.expect("OffsetCommit").conn)
    assert not commit.pending.done
    assert s.engine.commits.committed == {}
    s.advance(2_000)
    asked = s.expect("OffsetCommit")
    assert sent(asked) == {P0: 10}, "a lost answer means unknown: send again"
    s.committed(asked, {0: 0})
    assert commit.pending.result()
    assert s.engine.commits.committed == {P0: OffsetAndMetadata(10)}


def test_partitions_that_failed_are_named_and_the_others_kept() -> None:
    s = Script(2, group_id="g")
    s.started(0, 1)
    commit = start(s, {P0: 5, P1: 6})
    s.committed(s.expect("OffsetCommit"), {0: 0, 1: 12})
    with pytest.raises(CommitFailedError, match=r"t-1@6 with OFFSET_METADATA_TOO_LARGE.*1 other"):
        commit.pending.result()
    assert s.engine.commits.committed == {P0: OffsetAndMetadata(5)}


def test_only_what_was_not_taken_is_sent_again() -> None:
    s = Script(2, group_id="g")
    s.started(0, 1)
    commit = start(s, {P0: 5, P1: 6})
    s.committed(s.expect("OffsetCommit"), {0: 0, 1: 14})
    s.advance(200)
    asked = s.expect("OffsetCommit")
    assert sent(asked) == {P1: 6}
    s.committed(asked, {1: 0})
    assert commit.pending.result()


@pytest.mark.parametrize("fault", [14, 15, 16, 7, "lost", "late"])
@pytest.mark.parametrize("api", ["OffsetCommit", "OffsetFetch"])
def test_the_coordinator_is_found_again(api: str, fault: int | str) -> None:
    """Also by a consumer without membership, whatever it was asking for."""
    s = Script(nodes=2, group_id="g", request_timeout_ms=5_000)
    if api == "OffsetCommit":
        s.started()
        commit = start(s, {P0: 5})
    else:
        s.assign()
    asked = s.expect(api, node=1)
    finds = s.count("FindCoordinator")
    if fault != 14:  # loading: the same broker will do
        s.coordinator = 2
    if fault == "lost":
        s.lose(asked.conn)
    elif fault == "late":
        s.advance(5_000)
    elif api == "OffsetCommit":
        s.committed(asked, {0: int(fault)})
    else:
        s.stored(asked, {0: -1}, code=int(fault) if fault != 7 else 16)
    s.advance(1_500)
    asked = s.expect(api, node=s.coordinator)
    assert s.count("FindCoordinator") - finds == (0 if fault == 14 else 1)
    if api == "OffsetCommit":
        s.committed(asked, {0: 0})
        assert commit.pending.result()
    else:
        s.stored(asked, {0: 33})
        assert s.position() == 33


def test_looking_for_a_coordinator_is_bounded_by_the_back_off() -> None:
    s = Script(group_id="g")
    s.auto.discard("FindCoordinator")
    s.assign()
    begun = s.now
    while s.now < begun + 10_000:
        for asked in [a for a in s.asked if a.api.name == "FindCoordinator"]:
            s.answer(asked, {"coordinators": [{"key": "g", "node_id": -1, "host": "", "port": -1, "error_code": 15}]})
        s.advance(10)
    assert 5 <= s.count("FindCoordinator") <= 20


def test_a_commit_ends_with_its_deadline() -> None:
    s = Script(group_id="g")
    s.auto.discard("FindCoordinator")
    s.started()
    commit = start(s, {P0: 5}, ms=3_000)
    s.advance(3_500)
    with pytest.raises(CommitFailedError, match="'g'"):
        commit.pending.result()


def test_not_allowed_names_the_group_or_the_topic() -> None:
    s = Script(group_id="g")
    s.started()
    commit = start(s, {P0: 5})
    s.committed(s.expect("OffsetCommit"), {0: 30})
    with pytest.raises(GroupAuthorizationError, match="'g'"):
        commit.pending.result()
    commit = start(s, {P0: 5})
    s.committed(s.expect("OffsetCommit"), {0: 29})
    with pytest.raises(TopicAuthorizationError, match="of t to group 'g'"):
        commit.pending.result()
    s = Script(group_id="g")
    s.assign()
    s.stored(s.expect("OffsetFetch"), {}, code=30)
    with pytest.raises(GroupAuthorizationError, match="'g'"):
        s.engine.raise_fault()


def test_an_unknown_code_is_raised_with_its_number() -> None:
    s = Script(group_id="g")
    s.started()
    commit = start(s, {P0: 5})
    s.committed(s.expect("OffsetCommit"), {0: 4711})
    with pytest.raises(FastFetchError, match="4711"):
        commit.pending.result()
    reading = s.engine.read_committed_offsets([P0])
    s.stored(s.expect("OffsetFetch"), {0: (4711, -1)})
    with pytest.raises(BrokerError, match="4711"):
        reading.result()


def test_an_asynchronous_commit_gives_way_to_a_newer_one() -> None:
    s = Script(group_id="g")
    s.started()
    old = start(s, {P0: 5}, is_async=True)
    new = start(s, {P0: 6}, is_async=True)
    s.committed(s.expect("OffsetCommit"), {0: 14})
    s.advance(2_000)
    assert sent(s.expect("OffsetCommit")) == {P0: 6}
    s.committed(s.expect("OffsetCommit"), {0: 0})
    with pytest.raises(CommitFailedError, match="newer"):
        old.pending.result()
    assert new.pending.result()
    assert list(s.engine.commits.finished_async) == [old, new]


def test_an_empty_commit_is_done_at_once() -> None:
    s = Script(group_id="g")
    commit = start(s, {})
    assert commit.pending.done
    s.none("OffsetCommit")


@pytest.mark.parametrize("version", [(2, 2), (2, 5), (2, 7), (2, 9)])
@pytest.mark.parametrize("fetch", [(1, 1), (1, 5), (1, 7), (1, 8)])
@pytest.mark.parametrize("find", [(0, 0), (0, 3), (0, 4)])
def test_every_version_of_the_group_apis(version: tuple[int, int], fetch: tuple[int, int], find: tuple[int, int]) -> None:
    s = Script(group_id="g", versions={"OffsetCommit": version, "OffsetFetch": fetch, "FindCoordinator": find})
    s.assign()
    s.stored(s.expect("OffsetFetch"), {0: 4})
    assert s.position() == 4
    commit = start(s)
    s.committed(s.expect("OffsetCommit"), {0: 0})
    assert commit.pending.result()


def test_read_committed_asks_for_stable_offsets() -> None:
    s = Script(group_id="g", isolation_level="read_committed")
    s.assign()
    assert s.expect("OffsetFetch").body["require_stable"] is True


@pytest.mark.parametrize("version", [2, 5, 7, 8, 9])
def test_all_that_a_group_has_stored(version: int) -> None:
    s = Script(2, group_id="g", versions={"OffsetFetch": (1, version)})
    reading = s.engine.read_committed_offsets(None)
    s.run()
    asked = s.expect("OffsetFetch")
    body = asked.body["groups"][0] if version >= 8 else asked.body
    assert body["topics"] is None
    s.stored(asked, {0: 7, 1: 0})
    epoch = None if version < 5 else 3
    assert reading.result() == {P0: OffsetAndMetadata(7, "", epoch), P1: OffsetAndMetadata(0, "", epoch)}


def test_a_group_without_commits_has_none() -> None:
    s = Script(group_id="g")
    reading = s.engine.read_committed_offsets(None)
    s.run()
    s.stored(s.expect("OffsetFetch"), {})
    assert reading.result() == {}


def test_all_of_it_or_nothing() -> None:
    """One partition's error that passes makes the whole be asked for again, and what hinders it is known meanwhile."""
    s = Script(2, group_id="g")
    reading = s.engine.read_committed_offsets(None)
    s.run()
    s.stored(s.expect("OffsetFetch"), {0: 7, 1: (88, -1)})
    assert not reading.done
    assert "t-1: a transaction that commits its offset has not ended" in reading.trouble
    s.advance(2_000)
    s.stored(s.expect("OffsetFetch"), {0: 8, 1: 9})
    assert {tp: at.offset for tp, at in reading.result().items() if at is not None} == {P0: 8, P1: 9}


@pytest.mark.parametrize(("answer", "error"), [((29, -1), "topic 't'"), ((0, -2), "which is no offset"), ((4711, -1), "4711")])
def test_all_of_it_with_an_error_that_stays(answer: tuple[int, int], error: str) -> None:
    s = Script(2, group_id="g")
    reading = s.engine.read_committed_offsets(None)
    s.run()
    s.stored(s.expect("OffsetFetch"), {0: 7, 1: answer})
    with pytest.raises(FastFetchError, match=error):
        reading.result()


def test_all_of_it_needs_a_coordinator_that_knows_the_question() -> None:
    s = Script(group_id="g", versions={"OffsetFetch": (1, 1)})
    reading = s.engine.read_committed_offsets(None)
    s.run()
    with pytest.raises(FastFetchError, match="OffsetFetch"):
        reading.result()


@pytest.mark.parametrize("names", [True, False])
def test_two_answers_for_one_partition_are_none(names: bool) -> None:
    s = Script(2, group_id="g")
    reading = s.engine.read_committed_offsets([P0] if names else None)
    if names:
        s.assign()
    s.run()
    part = {"partition_index": 0, "committed_leader_epoch": -1, "metadata": "", "error_code": 0}
    twice = {"name": "t", "partitions": [part | {"committed_offset": 4}, part | {"committed_offset": 9}]}
    s.answer(s.expect("OffsetFetch"), {"groups": [{"group_id": "g", "topics": [twice], "error_code": 0}]})
    with pytest.raises(ProtocolError, match="twice for t-0"):
        reading.result()
    if names:
        assert s.position() is None
        with pytest.raises(ProtocolError, match="twice for t-0"):
            s.engine.raise_fault()
        s.advance(1_000)
        s.stored(s.expect("OffsetFetch"), {0: 4})
        assert s.position() == 4


def test_named_partitions_and_all_of_them_in_turn() -> None:
    s = Script(2, group_id="g")
    everything, one = s.engine.read_committed_offsets(None), s.engine.read_committed_offsets([P1])
    s.run()
    s.stored(s.expect("OffsetFetch"), {1: -1})
    assert one.result() == {P1: None}
    assert not everything.done
    s.stored(s.expect("OffsetFetch"), {0: 4})
    assert set(everything.result()) == {P0}
