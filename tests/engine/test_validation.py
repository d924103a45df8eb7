"""Truncation (KIP-320): positions are checked when a newer leader shows up, and no record is fetched meanwhile."""

from __future__ import annotations

import logging
import pickle

import pytest

from fastfetch.engine.metadata import Cluster, Partition
from fastfetch.errors import BrokerError, LogTruncationError, ProtocolError, TopicAuthorizationError
from fastfetch.testing import encode_batch
from fastfetch.types import TopicPartition
from tests.engine.script import Asked, Script

P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)
API = "OffsetForLeaderEpoch"
SUPPORTED = {API: (2, 4)}


def records(first: int, count: int, epoch: int) -> bytes:
    return encode_batch([b"x"] * count, base_offset=first, leader_epoch=epoch)


def at_100(*, policy: str = "earliest", partitions: int = 1, nodes: int = 2, **settings: object) -> Script:
    """Position 100, read from leaders of epoch 5; fetches in flight."""
    s = Script(partitions, nodes, versions=SUPPORTED, auto_offset_reset=policy, **settings)
    s.started(*range(partitions), at=90)
    for node in range(1, nodes + 1):
        mine = [p for p in range(partitions) if p % nodes + 1 == node]
        if mine:
            s.fetched(s.expect("Fetch", node=node), {p: records(90, 10, 5) for p in mine})
    while s.take():
        pass
    assert [s.position(p) for p in range(partitions)] == [100] * partitions
    return s


def new_leader(s: Script, epoch: int = 6, leader: int = 2, *partitions: int) -> None:
    """Node `leader` takes over, and the client hears of it."""
    for p in partitions or (0,):
        s.leaders["t", p] = (leader, epoch)
    s.engine.metadata.request_update()
    s.advance(1_000)


def epoch_ends(asked: Asked, answers: dict[int, tuple[int, int] | int]) -> dict[str, object]:
    """Answer of an OffsetForLeaderEpoch: partition -> (epoch, end offset), or an error code."""
    parts = []
    for index, what in answers.items():
        code, (epoch, end) = (what, (-1, -1)) if isinstance(what, int) else (0, what)
        parts.append({"partition": index, "error_code": code, "leader_epoch": epoch, "end_offset": end})
    return {"topics": [{"topic": "t", "partitions": parts}]}


def checked(s: Script, answers: dict[int, tuple[int, int] | int], *, node: int | None = None) -> None:
    asked = s.expect(API, node=node)
    s.answer(asked, epoch_ends(asked, answers))


def offset(asked: Asked, partition: int = 0) -> int:
    return int(asked.partitions()[TopicPartition("t", partition)]["fetch_offset"])


def both_move(s: Script) -> None:
    """Partitions 0 and 1 get a new leader on a node that was asked nothing so far."""
    s.nodes[3] = "b3"
    new_leader(s, 6, 3, 0, 1)


def fetches_of(s: Script, partition: int = 0) -> list[Asked]:
    """Fetches in flight at the new leader that ask for a partition."""
    tp = TopicPartition("t", partition)
    return [a for a in s.asked if a.api.name == "Fetch" and a.node == 2 and tp in a.partitions()]


# --- P09 -------------------------------------------------------------------------------------------------------------------


def test_a_position_is_checked_with_a_newer_leader_before_anything_is_fetched_from_it() -> None:
    s = at_100()
    new_leader(s)
    asked = s.expect(API)
    assert asked.node == 2
    assert asked.version == 4
    assert asked.body["replica_id"] == -1
    assert asked.partitions()[P0] == {"partition": 0, "current_leader_epoch": 6, "leader_epoch": 5}
    s.advance(5_000)
    assert not fetches_of(s)
    assert s.position() == 100
    s.answer(asked, epoch_ends(asked, {0: (5, 120)}))
    assert offset(s.expect("Fetch", node=2)) == 100
    assert s.count(API) == 1


def test_a_log_that_was_cut_is_gone_on_with_where_it_was_cut(caplog: pytest.LogCaptureFixture) -> None:
    s = at_100()
    new_leader(s)
    checked(s, {0: (5, 80)})
    assert s.position() == 80
    assert offset(s.expect("Fetch", node=2)) == 80
    assert "100" in caplog.text
    assert "80" in caplog.text
    assert [record.levelno for record in caplog.records if "t-0 was cut" in record.getMessage()] == [logging.WARNING]
    s.fetched(s.expect("Fetch", node=2), {0: records(80, 5, 6)})
    assert [o for _, o in s.take()] == [80, 81, 82, 83, 84]
    assert s.count(API) == 1
    assert s.count("ListOffsets") == 0


def test_without_a_policy_a_cut_log_is_an_error_until_a_seek() -> None:
    s = at_100(policy="none")
    new_leader(s)
    checked(s, {0: (4, 80)})
    for _ in range(3):
        with pytest.raises(LogTruncationError, match=r"t-0 was cut.* offset 100 \(leader epoch 5\).* offset 80.*seek") as caught:
            s.engine.raise_fault()
        s.advance(10_000)
    error = caught.value
    assert (error.topic, error.partition, error.position, error.leader_epoch) == ("t", 0, 100, 5)
    assert (error.divergent_offset, error.divergent_epoch) == (80, 4)
    assert vars(pickle.loads(pickle.dumps(error))) == vars(error)
    assert s.position() == 100
    assert not fetches_of(s)
    assert s.count(API) == 1
    s.engine.seek(P0, 80)
    s.engine.raise_fault()
    assert offset(s.expect("Fetch", node=2)) == 80


@pytest.mark.parametrize("answer", [(-1, -1), (-1, 120), (5, -1)])
@pytest.mark.parametrize("policy", ["earliest", "latest", "by_duration:PT1H", "none"])
def test_an_epoch_that_the_leader_knows_nothing_of_is_as_out_of_range(
    policy: str, answer: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    s = at_100(policy=policy)
    new_leader(s)
    checked(s, {0: answer})
    if policy == "none":
        with pytest.raises(LogTruncationError, match="seek") as caught:
            s.engine.raise_fault()
        assert (caught.value.position, caught.value.divergent_offset, caught.value.divergent_epoch) == (100, None, None)
        assert s.position() == 100
        return
    assert "going by auto_offset_reset" in caplog.text
    assert s.position() is None
    s.found(s.expect("ListOffsets", node=2), {0: 7})
    assert offset(s.expect("Fetch", node=2)) == 7


@pytest.mark.parametrize("answer", [(5, 80), (5, 120), (-1, -1)])
def test_a_seek_during_the_check_beats_its_answer(answer: tuple[int, int]) -> None:
    s = at_100(policy="none")
    new_leader(s)
    asked = s.expect(API)
    s.engine.seek(P0, 300)
    s.answer(asked, epoch_ends(asked, {0: answer}))
    s.engine.raise_fault()
    assert s.position() == 300
    assert offset(s.expect("Fetch", node=2)) == 300


@pytest.mark.parametrize("end", [50, 70])
def test_a_seek_with_an_epoch_during_the_check_is_checked_anew(end: int) -> None:
    s = at_100()
    new_leader(s)
    asked = s.expect(API)
    s.engine.seek(P0, 60, 4)
    s.answer(asked, epoch_ends(asked, {0: (5, end)}))
    assert s.position() == 60
    again = s.expect(API)
    assert again.partitions()[P0]["leader_epoch"] == 4
    s.answer(again, epoch_ends(again, {0: (4, 61)}))
    assert offset(s.expect("Fetch", node=2)) == 60


def test_a_cut_log_without_a_policy_is_not_asked_about_again_by_the_next_leader() -> None:
    s = at_100(policy="none")
    new_leader(s)
    checked(s, {0: (5, 80)})
    new_leader(s, 7)
    new_leader(s, 8)
    assert s.count(API) == 1
    with pytest.raises(LogTruncationError):
        s.engine.raise_fault()


def test_a_seek_to_the_same_offset_is_a_seek_all_the_same() -> None:
    s = at_100()
    new_leader(s)
    asked = s.expect(API)
    s.engine.seek(P0, 100)
    s.answer(asked, epoch_ends(asked, {0: (5, 80)}))
    assert s.position() == 100


def test_the_answer_after_the_partition_was_unassigned_does_nothing() -> None:
    s = at_100(partitions=2, nodes=2)
    new_leader(s)
    asked = s.expect(API)
    s.engine.assign([P1])
    s.engine.assign([P0, P1])
    s.answer(asked, epoch_ends(asked, {0: (5, 80)}))
    assert s.position() is None
    s.expect("ListOffsets")


def test_a_partition_that_was_unassigned_is_not_asked_about_again() -> None:
    s = at_100()
    new_leader(s)
    checked(s, {0: 5})
    s.engine.assign([])
    s.advance(10_000)
    assert s.count(API) == 1
    assert not s.engine.subscription.unchecked


# --- what else is checked --------------------------------------------------------------------------------------------------


def test_a_committed_offset_with_an_epoch_is_checked_first() -> None:
    s = Script(versions=SUPPORTED, group_id="g")
    s.assign()
    s.stored(s.expect("OffsetFetch"), {0: 37})
    asked = s.expect(API)
    assert asked.partitions()[P0] == {"partition": 0, "current_leader_epoch": 5, "leader_epoch": 3}
    s.none("Fetch")
    s.answer(asked, epoch_ends(asked, {0: (3, 40)}))
    assert offset(s.expect("Fetch")) == 37
    assert s.count(API) == 1


def test_a_committed_offset_that_was_cut_off() -> None:
    s = Script(versions=SUPPORTED, group_id="g")
    s.assign()
    s.stored(s.expect("OffsetFetch"), {0: 37})
    checked(s, {0: (3, 30)})
    assert s.position() == 30


def test_a_seek_with_an_epoch_is_checked_first(caplog: pytest.LogCaptureFixture) -> None:
    s = Script(versions=SUPPORTED)
    s.assign()
    s.engine.seek(P0, 50, 4)
    s.found(s.expect("ListOffsets"), {0: 0})  # asked before the seek
    asked = s.expect(API)
    assert asked.partitions()[P0] == {"partition": 0, "current_leader_epoch": 5, "leader_epoch": 4}
    s.none("Fetch")
    s.answer(asked, epoch_ends(asked, {0: (4, 50)}))  # the end itself is a good position
    assert offset(s.expect("Fetch")) == 50
    assert "cut" not in caplog.text


def test_a_seek_without_an_epoch_is_not() -> None:
    s = Script(versions=SUPPORTED)
    s.started(at=50)
    assert offset(s.expect("Fetch")) == 50
    s.fetched(s.expect("Fetch"), {0: None})
    new_leader(s, 6, 1)
    assert s.count(API) == 0
    assert offset(s.expect("Fetch", when=lambda a: a.partitions()[P0]["current_leader_epoch"] == 6)) == 50


def test_what_was_sought_without_an_epoch_and_read_since_is_checked_with_the_next_leader() -> None:
    """The epoch that was current at the seek must not count as one to be checked, nor make the next one pass unchecked."""
    s = Script(versions=SUPPORTED)
    s.started(at=50)
    s.fetched(s.expect("Fetch"), {0: records(50, 10, 5)})
    s.take()
    s.engine.metadata.request_update()
    s.advance(1_000)
    assert s.count(API) == 0, "the same leader"
    new_leader(s, 6, 1)
    checked(s, {0: (5, 55)})
    assert s.position() == 55


def test_an_offset_that_the_leader_gave_needs_no_check_until_the_next_leader() -> None:
    """At the end of a log, too, where no record says of which epoch it is."""
    s = Script(nodes=2, versions=SUPPORTED, auto_offset_reset="latest")
    s.assign()
    s.found(s.expect("ListOffsets"), {0: 100})
    assert offset(s.expect("Fetch")) == 100
    assert s.count(API) == 0
    new_leader(s)
    asked = s.expect(API)
    assert asked.partitions()[P0]["leader_epoch"] == 5
    s.answer(asked, epoch_ends(asked, {0: (5, 80)}))
    assert s.position() == 80, "offsets from 80 on are new records"


def test_a_look_up_answered_by_a_newer_leader_than_known_asks_for_metadata() -> None:
    s = Script(versions=SUPPORTED)
    s.assign()
    s.leaders["t", 0] = (1, 6)
    before = s.count("Metadata")
    asked = s.expect("ListOffsets")
    part = {"partition_index": 0, "error_code": 0, "offset": 100, "timestamp": -1, "leader_epoch": 6}
    s.answer(asked, {"topics": [{"name": "t", "partitions": [part]}]})
    s.advance(1_000)
    assert s.count("Metadata") == before + 1
    checked(s, {0: (6, 100)})
    assert s.position() == 100


def test_without_support_or_epochs_nothing_is_checked() -> None:
    for versions in ({API: (0, 2)}, {}, SUPPORTED | {"Metadata": (0, 8)}):
        s = Script(nodes=2, versions=versions)
        s.started(at=90)
        s.fetched(s.expect("Fetch"), {0: records(90, 10, 5)})
        s.take()
        new_leader(s)
        assert s.count(API) == 0
        assert offset(s.expect("Fetch", node=2)) == 100
        s.engine.seek(P0, 50, 4)
        s.fetched(s.expect("Fetch", node=2), {0: None})
        assert offset(s.expect("Fetch", node=2)) == 50


# --- how it is asked -------------------------------------------------------------------------------------------------------


def test_partitions_that_move_together_are_asked_about_in_one_request_a_node() -> None:
    s = Script(300, 3, versions=SUPPORTED)
    s.started(*range(300), at=90)
    for node in (1, 2, 3):
        s.fetched(s.expect("Fetch", node=node), {p: records(90, 10, 5) for p in range(300) if p % 3 + 1 == node})
    while s.take():
        pass
    for p in range(300):
        s.leaders["t", p] = (p % 2 + 2, 6)
    s.engine.metadata.request_update()
    s.advance(1_000)
    asked = [a for a in s.asked if a.api.name == API]
    assert sorted(a.node for a in asked) == [2, 3]
    assert sum(len(a.partitions()) for a in asked) == 300
    for a in asked:
        s.answer(a, epoch_ends(a, {tp.partition: (5, 100) for tp in a.partitions()}))
    s.advance(10_000)
    assert s.count(API) == 2
    assert all(s.position(p) == 100 for p in range(300))


def test_a_partition_waits_no_longer_than_its_own_backoff() -> None:
    s = at_100(partitions=2)
    both_move(s)
    for _ in range(5):
        asked = s.expect(API)
        parts: dict[int, tuple[int, int] | int] = {tp.partition: 5 for tp in asked.partitions() if tp == P1}
        s.answer(asked, epoch_ends(asked, parts) if P0 not in asked.partitions() else epoch_ends(asked, parts | {0: (5, 100)}))
        s.advance(1_500)
    s.engine.seek(P0, 60, 4)
    s.run()
    for asked in [a for a in s.asked if a.api.name == API]:
        s.answer(asked, epoch_ends(asked, {tp.partition: 7 for tp in asked.partitions()}))
    failed_at = s.now  # the first time for one, and the sixth for the other
    s.advance(500)
    asked = s.expect(API)
    assert set(asked.partitions()) == {P0}
    assert asked.at_ms - failed_at <= 1.2 * s.config.retry_backoff_ms


def test_partitions_that_wait_for_an_answer_are_not_looked_at_in_every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands may wait for a broker that hangs, while others are read from."""
    s = at_100(partitions=2)
    both_move(s)
    checked(s, {1: 5})
    s.advance(2_000)
    looks = 0
    leader = Cluster.leader

    def counting(cluster: Cluster, tp: TopicPartition) -> Partition | None:
        nonlocal looks
        looks += 1
        return leader(cluster, tp)

    monkeypatch.setattr(Cluster, "leader", counting)
    for _ in range(10):
        s.engine.validations.pump(s.now)
    assert looks == 0
    monkeypatch.undo()
    for asked in [a for a in s.asked if a.api.name == API]:
        s.answer(asked, epoch_ends(asked, {tp.partition: (5, 100) for tp in asked.partitions()}))
    assert not s.engine.subscription.unchecked


def test_once_a_leader_epoch_and_never_for_metadata_that_says_nothing_new() -> None:
    s = at_100()
    for epoch in (6, 7, 8):
        new_leader(s, epoch)
        checked(s, {0: (5, 100)})
        for _ in range(5):
            s.engine.metadata.request_update()
            s.advance(1_000)
    new_leader(s, 7)  # from a broker that is behind
    assert s.count(API) == 3


@pytest.mark.parametrize("code", [3, 5, 6, 7, 9, 13, 56, 74, 75, 78, -1])
def test_errors_that_pass_are_asked_again_with_backoff_for_that_partition_alone(code: int) -> None:
    s = at_100(partitions=2)
    both_move(s)
    checked(s, {0: code, 1: (5, 100)})
    assert offset(s.expect("Fetch", node=3), 1) == 100
    before = s.count(API)
    for _ in range(20):
        s.advance(1_500)
        asked = s.expect(API)
        assert set(asked.partitions()) == {P0}
        s.answer(asked, epoch_ends(asked, {0: code}))
        s.none(API)  # not before the back-off has run
    s.engine.raise_fault()
    assert s.count(API) - before == 20
    s.advance(1_500)
    checked(s, {0: (5, 100)})
    assert s.position() == 100


def test_a_partition_left_out_of_the_answer_or_answered_twice() -> None:
    s = at_100(partitions=2)
    both_move(s)
    asked = s.expect(API)
    body = epoch_ends(asked, {1: (5, 100)})
    body["topics"] += epoch_ends(asked, {1: (5, 3)})["topics"] + [{"topic": "u", "partitions": []}]  # type: ignore[operator]
    s.answer(asked, body)
    assert s.position(1) == 100
    s.advance(1_000)
    assert set(s.expect(API).partitions()) == {P0}, "not known yet, so nothing is fetched"
    assert set(s.expect("Fetch", node=3).partitions()) == {P1}


def test_a_lost_connection_is_asked_again() -> None:
    s = at_100()
    new_leader(s)
    s.lose(s.expect(API).conn)
    s.advance(2_000)
    checked(s, {0: (5, 80)})
    assert s.position() == 80


def test_a_leader_that_does_not_answer_is_not_waited_for_once_there_is_another() -> None:
    s = at_100(nodes=3)
    new_leader(s)
    hung = s.expect(API, node=2)
    new_leader(s, 7, 3)
    s.answer(hung, epoch_ends(hung, {0: (5, 80)}))
    assert s.position() == 100, "the answer of a leader that is none any more"
    checked(s, {0: (5, 90)}, node=3)
    assert s.position() == 90
    assert s.count(API) == 2


def test_an_error_is_told_once_and_the_check_goes_on() -> None:
    s = at_100()
    new_leader(s)
    checked(s, {0: 29})
    with pytest.raises(TopicAuthorizationError, match="'t'"):
        s.engine.raise_fault()
    s.engine.raise_fault()
    s.advance(1_000)
    checked(s, {0: 9999})
    with pytest.raises(BrokerError, match="UNKNOWN_CODE_9999"):
        s.engine.raise_fault()
    s.advance(1_000)
    checked(s, {0: (-7, 5)})
    with pytest.raises(ProtocolError, match="t-0"):
        s.engine.raise_fault()
    s.advance(1_000)
    checked(s, {0: (5, 100)})
    assert offset(s.expect("Fetch", node=2)) == 100


# --- what was read ahead, pauses, interrupts ---------------------------------------------------------------------------------


def test_what_was_read_ahead_from_the_old_leader_is_dropped() -> None:
    s = at_100()
    s.fetched(s.expect("Fetch", node=1), {0: records(100, 10, 5)})
    s.decode_now = False
    s.fetched(s.expect("Fetch", node=1), {0: records(110, 10, 5)})  # with the decoder when the leader changes
    late = s.expect("Fetch", node=1)
    new_leader(s)
    s.decode()
    s.decode_now = True
    assert s.take() == []
    assert s.engine.readahead.bytes == 0
    checked(s, {0: (5, 105)})
    s.fetched(late, {0: records(120, 10, 5)})
    s.fetched(s.expect("Fetch", node=2), {0: records(100, 5, 5) + records(105, 5, 6)})
    assert [o for _, o in s.take()] == list(range(100, 110))
    assert s.engine.subscription.positions()[P0].leader_epoch == 6


def test_metadata_that_changes_no_epoch_drops_nothing() -> None:
    s = at_100()
    s.fetched(s.expect("Fetch", node=1), {0: records(100, 10, 5)})
    s.leaders["new", 0] = (2, 0)
    s.engine.ask_topic("new")
    s.advance(1_000)
    assert [o for _, o in s.take()] == list(range(100, 110))
    assert s.count(API) == 0


def test_a_paused_partition_is_checked_and_stays_paused() -> None:
    s = at_100()
    s.engine.pause([P0])
    new_leader(s)
    checked(s, {0: (5, 80)})
    assert s.position() == 80
    assert not fetches_of(s)
    s.engine.resume([P0])
    assert offset(s.expect("Fetch", node=2)) == 80


@pytest.mark.parametrize("end", [None, 100, 103, 110])
def test_an_interrupted_hand_out_is_put_back_whatever_the_check_says_meanwhile(end: int | None) -> None:
    """Records 100 to 104 never reach the caller; the leader changes before they can be put back."""
    s = at_100()
    s.fetched(s.expect("Fetch", node=1), {0: records(100, 10, 5)})
    out = s.engine.take(5)
    assert s.position() == 105
    new_leader(s)
    if end is not None:
        checked(s, {0: (5, end)})
        assert s.position() == min(end, 105)
    s.engine.readahead.undo(out)
    s.advance(1_000)
    if end is None or end >= 105:
        assert s.position() == 100
        s.advance(5_000)
        while found := [a for a in s.asked if a.api.name == API]:
            s.answer(found[0], epoch_ends(found[0], {0: (5, 110)}))
        s.fetched(s.expect("Fetch", node=2), {0: None})
        s.fetched(s.expect("Fetch", node=2, when=lambda a: offset(a) == 100), {0: records(100, 10, 5)})
        assert [o for _, o in s.take()] == list(range(100, 110))
    else:
        assert s.position() == end, "moved by the check, which knew what it said"
    assert s.engine.readahead.bytes == 0


def test_commits_during_the_check_send_the_position_as_it_stands() -> None:
    s = at_100()
    new_leader(s)
    at = s.engine.subscription.positions()[P0]
    assert (at.offset, at.leader_epoch) == (100, 5)
