"""Commits of a member of a group: in whose name they go out, what each error leads to, and what becomes of them when partitions
go. The member is played by the test; see test_coordinator and test_consumer_group for the real ones."""

from __future__ import annotations

import pickle
from typing import Any, cast

import pytest

from fastfetch.engine.commits import Commit
from fastfetch.engine.membership import Credentials, Membership
from fastfetch.errors import (
    BrokerError,
    CommitFailedError,
    FastFetchError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    RebalanceInProgressError,
    TopicAuthorizationError,
    UnknownTopicError,
)
from fastfetch.types import OffsetAndMetadata, TopicPartition
from tests.engine.script import Asked, Script, batch
from tests.engine.test_commits import P0, P1, sent, start

ME = Credentials(5, "me-1", None)
NEXT = Credentials(6, "me-1", None)


class Member:
    """What commits see of a membership."""

    def __init__(self) -> None:
        self.is_active = True
        self.me: Credentials | None = ME
        self.refused: list[tuple[int, Credentials]] = []
        self.fetch_refused: list[tuple[int, Credentials]] = []

    def credentials(self) -> Credentials | None:
        return self.me

    def why_no_commit(self) -> FastFetchError:
        return RebalanceInProgressError("group 'g' is rebalancing; poll")

    def commit_refused(self, code: int, sent: Credentials, now_ms: int) -> None:
        self.refused.append((code, sent))

    def offset_fetch_refused(self, code: int, sent: Credentials, now_ms: int) -> None:
        self.fetch_refused.append((code, sent))


def member_of(s: Script) -> Member:
    """From now on the engine's commits are those of a member."""
    member = Member()
    s.engine.commits.membership = s.engine.stored.membership = cast(Membership, member)
    return member


def joined(partitions: int = 1, **settings: Any) -> tuple[Script, Member]:
    """A member that reads these partitions."""
    s = Script(partitions, group_id="g", **settings)
    s.started(*range(partitions))
    return s, member_of(s)


def give_up(s: Script, *partitions: TopicPartition) -> None:
    """As Membership does it."""
    s.engine.subscription.withdraw(partitions)
    s.engine.commits.give_up(partitions)
    s.run()


def signature(asked: Asked) -> tuple[int, str, str | None]:
    body = asked.body
    return body["generation_id_or_member_epoch"], body["member_id"], body.get("group_instance_id")


def automatic(s: Script, offsets: dict[TopicPartition, int], *, ms: int = 60_000) -> Commit:
    commit = s.engine.commit(
        {tp: OffsetAndMetadata(o) for tp, o in offsets.items()}, s.now + ms, is_async=True, automatic=True
    )  # fmt: skip
    s.run()
    return commit


# --- in whose name ------------------------------------------------------------------------------------------------------


def test_a_commit_is_signed_with_what_the_member_is_when_it_goes_out() -> None:
    s, member = joined()
    member.me = Credentials(5, "me-1", "static")
    first, second = start(s, {P0: 5}, is_async=True), start(s, {P0: 6})
    asked = s.expect("OffsetCommit")
    assert signature(asked) == (5, "me-1", "static")
    member.me = Credentials(6, "me-1", "static")
    s.committed(asked, {0: 0})
    asked = s.expect("OffsetCommit")
    assert (signature(asked), sent(asked)) == ((6, "me-1", "static"), {P0: 6})
    s.committed(asked, {0: 0})
    assert first.pending.result()
    assert second.pending.result()


@pytest.mark.parametrize("version", [2, 6, 7, 9])
def test_every_version_says_who_commits(version: int) -> None:
    s, member = joined(versions={"OffsetCommit": (2, version)})
    member.me = Credentials(5, "me-1", "static")
    start(s, {P0: 5})
    assert signature(s.expect("OffsetCommit")) == (5, "me-1", "static" if version >= 7 else None)


def test_nothing_goes_out_in_nobodys_name_once_there_is_membership() -> None:
    """An empty group would take it from anyone."""
    s = Script(2, group_id="g")
    s.started(0, 1)
    running, waiting = start(s, {P0: 5}), start(s, {P0: 6})
    asked = s.expect("OffsetCommit")
    assert signature(asked) == (-1, "", None)
    member_of(s)
    s.committed(asked, {0: 14})
    s.advance(5_000)
    s.none("OffsetCommit")
    for commit in (running, waiting):
        with pytest.raises(CommitFailedError, match=r"subscribe\(\)"):
            commit.pending.result()


def test_nothing_of_a_member_goes_out_in_nobodys_name_after_it_left() -> None:
    s, member = joined()
    running, waiting = start(s, {P0: 5}), start(s, {P0: 6})
    s.engine.unsubscribe("", s.now)
    member.is_active = False
    s.committed(s.expect("OffsetCommit"), {0: 14})
    s.engine.assign([P0])
    s.advance(5_000)
    s.none("OffsetCommit")
    for commit in (running, waiting):
        with pytest.raises(CommitFailedError, match="not assigned"):
            commit.pending.result()


# --- error codes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_member", [True, False])
@pytest.mark.parametrize("code", [3, 7, 14, 15, 16])
def test_errors_that_pass(code: int, is_member: bool) -> None:
    s, member = joined()
    member.is_active = is_member
    commit = start(s, {P0: 5})
    finds = s.count("FindCoordinator")
    s.committed(s.expect("OffsetCommit"), {0: code})
    assert not commit.pending.done
    s.advance(2_000)
    asked = s.expect("OffsetCommit")
    assert sent(asked) == {P0: 5}
    assert s.count("FindCoordinator") - finds == (code in (7, 15, 16))
    s.committed(asked, {0: 0})
    assert commit.pending.result() == {P0: OffsetAndMetadata(5)}
    assert member.refused == []


MEMBERS_ERRORS: list[tuple[int, type[FastFetchError], str]] = [
    (22, CommitFailedError, r"t-0@5 with ILLEGAL_GENERATION \(code 22\).*poll to join again.*max_poll_interval_ms"),
    (25, CommitFailedError, r"t-0@5 with UNKNOWN_MEMBER_ID \(code 25\).*poll to join again.*session_timeout_ms"),
    (110, CommitFailedError, r"t-0@5 with FENCED_MEMBER_EPOCH \(code 110\).*poll to join again"),
    (27, RebalanceInProgressError, r"'g'.*t-0@5.*rebalancing; call poll\(\).*then commit what is still assigned"),
    (82, FencedInstanceIdError, r"'g'.*t-0@5.*group_instance_id.*FENCED_INSTANCE_ID \(code 82\)"),
]
STRANGERS_ERRORS: list[tuple[int, type[FastFetchError], str]] = [
    (22, CommitFailedError, r"t-0@5 with ILLEGAL_GENERATION \(code 22\).*assign\(\).*a group id of its own"),
    (25, CommitFailedError, r"t-0@5 with UNKNOWN_MEMBER_ID \(code 25\).*assign\(\).*a group id of its own"),
    (27, CommitFailedError, r"t-0@5 with REBALANCE_IN_PROGRESS \(code 27\).*assign\(\).*a group id of its own"),
    (82, FencedInstanceIdError, r"t-0@5.*FENCED_INSTANCE_ID \(code 82\)"),
    (110, CommitFailedError, r"t-0@5 with FENCED_MEMBER_EPOCH \(code 110\)"),
    (113, CommitFailedError, r"t-0@5 with STALE_MEMBER_EPOCH \(code 113\)"),
]
ANYBODYS_ERRORS: list[tuple[int, type[FastFetchError], str]] = [
    (12, CommitFailedError, r"t-0@5 with OFFSET_METADATA_TOO_LARGE \(code 12\).*shorten it"),
    (28, CommitFailedError, r"t-0@5 with INVALID_COMMIT_OFFSET_SIZE \(code 28\)"),
    (29, TopicAuthorizationError, r"of t to group 'g'"),
    (30, GroupAuthorizationError, r"'g'"),
    (69, CommitFailedError, r"t-0@5 with GROUP_ID_NOT_FOUND \(code 69\)"),
    (-1, CommitFailedError, r"t-0@5 with UNKNOWN_SERVER_ERROR \(code -1\)"),
    (4711, CommitFailedError, r"t-0@5 with UNKNOWN_CODE_4711 \(code 4711\)"),
]


@pytest.mark.parametrize(
    ("is_member", "code", "error", "message"),
    [
        *((True, *row) for row in MEMBERS_ERRORS + ANYBODYS_ERRORS),
        *((False, *row) for row in STRANGERS_ERRORS + ANYBODYS_ERRORS),
    ],
)
def test_errors_that_end_a_commit(is_member: bool, code: int, error: type[FastFetchError], message: str) -> None:
    """Raised once with what to do next, not tried again; the membership hears of what concerns it, and only then."""
    s, member = joined()
    member.is_active = is_member
    commit = start(s, {P0: 5})
    s.committed(s.expect("OffsetCommit"), {0: code})
    with pytest.raises(error, match=message) as caught:
        commit.pending.result()
    if isinstance(caught.value, CommitFailedError):
        assert caught.value.failed == {P0: code}
    assert member.refused == ([(code, ME)] if is_member and code in {row[0] for row in MEMBERS_ERRORS} else [])
    assert s.engine.commits.committed == {}
    s.advance(10_000)
    s.none("OffsetCommit")
    assert s.count("OffsetCommit") == 1
    again = start(s, {P0: 5})  # nothing stays behind
    s.committed(s.expect("OffsetCommit"), {0: 0})
    assert again.pending.result()


def test_a_stale_epoch_waits_for_the_next_one() -> None:
    """KIP-848: the coordinator has raised the epoch, and the heartbeat that says so is on its way."""
    s, member = joined()
    commit = start(s, {P0: 5})
    s.committed(s.expect("OffsetCommit"), {0: 113})
    assert member.refused == [(113, ME)]
    s.advance(10_000)
    s.none("OffsetCommit")
    assert not commit.pending.done
    member.me = NEXT
    asked = s.expect("OffsetCommit")
    assert (signature(asked), sent(asked)) == ((6, "me-1", None), {P0: 5})
    s.committed(asked, {0: 0})
    assert commit.pending.result()


def test_a_stale_epoch_without_a_next_one() -> None:
    s, member = joined()
    late, out = start(s, {P0: 5}, ms=3_000), start(s, {P0: 6})
    s.committed(s.expect("OffsetCommit"), {0: 113})
    s.advance(3_500)
    with pytest.raises(CommitFailedError, match=r"'g'.*t-0@5 in time.*STALE_MEMBER_EPOCH.*again"):
        late.pending.result()
    s.committed(s.expect("OffsetCommit"), {0: 113})
    member.me = None  # it was fenced
    s.run()
    with pytest.raises(RebalanceInProgressError):
        out.pending.result()
    s.none("OffsetCommit")


def test_one_answer_with_several_codes_tells_all_of_them() -> None:
    s, member = joined(6)
    tps = [TopicPartition("t", p) for p in range(6)]
    commit = start(s, dict.fromkeys(tps, 5))
    s.committed(s.expect("OffsetCommit"), {0: 0, 1: 12, 2: 12, 3: 29, 4: 14, 5: 25})
    assert not commit.pending.done, "one of them is asked again"
    assert member.refused == [(25, ME)]
    s.advance(2_000)
    asked = s.expect("OffsetCommit")
    assert sent(asked) == {tps[4]: 5}
    s.committed(asked, {4: 0})
    with pytest.raises(
        CommitFailedError, match=r"t-3@5 with TOPIC_AUTH.*t-5@5 with UNKNOWN_MEMBER.*t-1@5, t-2@5 with OFFSET_M.*2 other"
    ) as e:
        commit.pending.result()
    assert e.value.failed == {tps[1]: 12, tps[2]: 12, tps[3]: 29, tps[5]: 25}
    assert s.engine.commits.committed == {tps[0]: OffsetAndMetadata(5), tps[4]: OffsetAndMetadata(5)}


def test_what_is_left_of_a_commit_when_its_time_is_up() -> None:
    s, _ = joined(2)
    commit = start(s, {P0: 5, P1: 6}, ms=1_000)
    asked = s.expect("OffsetCommit")
    s.committed(asked, {0: 12, 1: 14})
    s.down = {"b1"}
    s.lose(asked.conn)
    s.advance(1_500)
    with pytest.raises(CommitFailedError, match=r"t-0@5 with OFFSET_METADATA.*t-1@6 in time") as caught:
        commit.pending.result()
    assert caught.value.failed == {P0: 12, P1: 0}


def test_the_message_of_a_commit_of_many_partitions_stays_short() -> None:
    s, _ = joined(300)
    commit = start(s, {TopicPartition("t", p): p for p in range(300)})
    s.committed(s.expect("OffsetCommit"), dict.fromkeys(range(300), 22))
    with pytest.raises(CommitFailedError, match=r"t-9@9 and 290 more with ILLEGAL_GENERATION") as caught:
        commit.pending.result()
    assert len(caught.value.failed) == 300


def test_the_error_survives_pickling() -> None:
    error = CommitFailedError("no", failed={P0: 22})
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.failed) == ("no", {P0: 22})


# --- without credentials ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [True, False])
def test_while_the_group_rebalances_a_commit_fails_at_once(is_async: bool) -> None:
    s, member = joined()
    member.me = None
    s.engine.has_news = False
    commit = start(s, {P0: 5}, is_async=is_async)
    with pytest.raises(RebalanceInProgressError, match="poll"):
        commit.pending.result()
    assert s.engine.has_news, "who waits for it looks"
    member.me = ME
    s.advance(5_000)
    s.none("OffsetCommit")
    assert list(s.engine.commits.finished_async) == ([commit] if is_async else [])
    assert not s.engine.commits.is_busy


def test_it_fails_at_once_also_behind_others_and_without_a_coordinator() -> None:
    s = Script(group_id="g")
    s.auto.discard("FindCoordinator")
    s.started()
    member = member_of(s)
    first = start(s, {P0: 5})
    assert not first.pending.done
    member.me = None
    second = start(s, {P0: 6})
    for commit in (first, second):
        with pytest.raises(RebalanceInProgressError):
            commit.pending.result()


def test_one_in_flight_is_answered_all_the_same() -> None:
    s, member = joined()
    commit = start(s, {P0: 5})
    asked = s.expect("OffsetCommit")
    member.me = None
    s.run()
    assert not commit.pending.done
    s.committed(asked, {0: 0})
    assert commit.pending.result()
    assert s.engine.commits.committed == {P0: OffsetAndMetadata(5)}


def test_automatic_commits_wait_for_the_end_of_a_rebalance_and_are_one_then() -> None:
    """C08: the interval elapses twenty times while the group rebalances."""
    s, member = joined()
    member.me = None
    commits = [automatic(s, {P0: 5 + n}) for n in range(20)]
    assert not s.engine.commits.is_busy, "nobody has to wait for what waits"
    s.advance(20_000)
    assert s.count("OffsetCommit") == 0
    member.me = NEXT
    asked = s.expect("OffsetCommit")
    assert (signature(asked), sent(asked)) == ((6, "me-1", None), {P0: 24})
    assert s.engine.commits.is_busy
    s.committed(asked, {0: 0})
    assert s.count("OffsetCommit") == 1
    assert list(s.engine.commits.finished_async) == [commits[-1]]
    assert all(commit is commits[-1] for commit in commits)


def test_a_waiting_automatic_commit_takes_newer_positions_and_more_time() -> None:
    s, member = joined(2)
    member.me = None
    automatic(s, {P0: 5}, ms=1_000)
    commit = automatic(s, {P0: 6, P1: 7}, ms=5_000)
    s.advance(3_000)
    member.me = NEXT
    asked = s.expect("OffsetCommit")
    assert sent(asked) == {P0: 6, P1: 7}
    s.committed(asked, {0: 0, 1: 0})
    assert commit.pending.result() == {P0: OffsetAndMetadata(6), P1: OffsetAndMetadata(7)}


def test_what_was_refused_of_an_automatic_commit_is_asked_anew_with_the_newer_position() -> None:
    s, _ = joined(2)
    commit = automatic(s, {P0: 5, P1: 6})
    s.committed(s.expect("OffsetCommit"), {0: 29, 1: 14})
    assert automatic(s, {P0: 7}) is commit
    s.advance(1_000)
    asked = s.expect("OffsetCommit")
    assert sent(asked) == {P0: 7, P1: 6}
    s.committed(asked, {0: 0, 1: 0})
    assert commit.pending.result() == {P0: OffsetAndMetadata(7), P1: OffsetAndMetadata(6)}


def test_a_partition_that_goes_after_it_was_refused_and_asked_anew() -> None:
    s, _ = joined(2)
    commit = automatic(s, {P0: 5, P1: 6})
    s.committed(s.expect("OffsetCommit"), {0: 29, 1: 14})
    automatic(s, {P0: 7})
    give_up(s, P0)
    s.advance(1_000)
    s.committed(s.expect("OffsetCommit"), {1: 0})
    assert commit.pending.result() == {P1: OffsetAndMetadata(6)}


def test_of_a_waiting_automatic_commit_goes_only_what_is_still_ours() -> None:
    s, member = joined(2)
    member.me = None
    commit = automatic(s, {P0: 5, P1: 6})
    give_up(s, P1)
    member.me = NEXT
    asked = s.expect("OffsetCommit")
    assert sent(asked) == {P0: 5}
    s.committed(asked, {0: 0})
    assert commit.pending.result() == {P0: OffsetAndMetadata(5)}


def test_a_waiting_automatic_commit_of_which_nothing_is_left_ends_silently() -> None:
    s, member = joined()
    member.me = None
    commit = automatic(s, {P0: 5})
    give_up(s, P0)
    member.me = NEXT
    s.advance(5_000)
    s.none("OffsetCommit")
    assert commit.pending.result() == {}
    assert list(s.engine.commits.finished_async) == [commit]


def test_a_waiting_automatic_commit_holds_up_no_other_and_keeps_its_place() -> None:
    s, member = joined()
    member.me = None
    held = automatic(s, {P0: 5})
    failed = start(s, {P0: 6}, is_async=True)
    assert list(s.engine.commits.finished_async) == [failed]
    member.me = NEXT
    asked, behind = s.expect("OffsetCommit"), start(s, {P0: 7})
    assert sent(asked) == {P0: 5}
    s.committed(asked, {0: 0})
    s.committed(s.expect("OffsetCommit"), {0: 0})
    assert held.pending.result()
    assert behind.pending.result()


def test_an_automatic_commit_that_is_refused_is_not_sent_for_ever() -> None:
    s, member = joined()
    commit = automatic(s, {P0: 5})
    s.committed(s.expect("OffsetCommit"), {0: 27})
    assert member.refused == [(27, ME)]
    with pytest.raises(RebalanceInProgressError):
        commit.pending.result()
    s.advance(30_000)
    assert s.count("OffsetCommit") == 1


def test_automatic_commits_outside_of_a_rebalance_are_not_put_together_in_flight() -> None:
    s, _ = joined()
    first = automatic(s, {P0: 5})
    second = automatic(s, {P0: 6})
    assert first is not second
    asked = s.expect("OffsetCommit")
    assert sent(asked) == {P0: 5}
    s.committed(asked, {0: 0})
    assert sent(s.expect("OffsetCommit")) == {P0: 6}


# --- partitions that go -------------------------------------------------------------------------------------------------


def test_a_partition_that_is_not_assigned_is_refused_and_the_others_are_committed() -> None:
    """C03: storing for a partition that went is refused."""
    s, _ = joined()
    commit = start(s, {P0: 5, P1: 100})
    asked = s.expect("OffsetCommit")
    assert sent(asked) == {P0: 5}
    s.committed(asked, {0: 0})
    with pytest.raises(
        CommitFailedError, match=r"t-1@100 not committed.*not assigned.*1 other partitions were committed"
    ) as caught:
        commit.pending.result()
    assert caught.value.failed == {P1: 0}
    alone = start(s, {P1: 100})
    s.none("OffsetCommit")
    with pytest.raises(CommitFailedError, match="t-1@100"):
        alone.pending.result()


@pytest.mark.parametrize("comes_back", [True, False])
def test_what_waits_for_a_partition_that_goes_is_not_sent(comes_back: bool) -> None:
    s, _ = joined(2)
    running, waiting = start(s, {P0: 5, P1: 5}), start(s, {P0: 6, P1: 6})
    asked = s.expect("OffsetCommit")
    give_up(s, P0)
    if comes_back:
        s.engine.subscription.take_over([P0])
    s.committed(asked, {0: 14, 1: 14})
    s.advance(2_000)
    if comes_back:
        s.stored(s.expect("OffsetFetch"), {0: 500})
    for expected in ({P1: 5}, {P1: 6}):
        asked = s.expect("OffsetCommit")
        assert sent(asked) == expected
        s.committed(asked, {1: 0})
    for commit in (running, waiting):
        with pytest.raises(CommitFailedError, match=r"t-0@. not committed.*given up in a rebalance.*1 other"):
            commit.pending.result()
    assert s.engine.commits.committed[P1] == OffsetAndMetadata(6)


def test_who_waits_for_a_commit_of_a_partition_that_goes_hears_of_it() -> None:
    s, _ = joined()
    start(s, {P0: 5})
    waiting = start(s, {P0: 6})
    s.engine.has_news = False
    give_up(s, P0)
    assert waiting.pending.done
    assert s.engine.has_news


def test_a_late_answer_for_a_partition_that_went_counts_for_nothing_when_it_comes_back() -> None:
    """C03: consumed to 100, gone, somebody else commits 500, back again, and the old answer arrives."""
    s, member = joined(2)
    member.me = ME
    start(s, {P0: 50, P1: 60})
    s.committed(s.expect("OffsetCommit"), {0: 0, 1: 0})
    commit = start(s, {P0: 100, P1: 100}, is_async=True)
    asked = s.expect("OffsetCommit")
    give_up(s, P0)
    assert s.engine.commits.committed == {P1: OffsetAndMetadata(60)}
    s.engine.subscription.take_over([P0])
    s.committed(asked, {0: 0, 1: 0})
    assert commit.pending.result(), "it was stored before the partition went: no failure"
    assert s.engine.commits.committed == {P1: OffsetAndMetadata(100)}
    s.stored(s.expect("OffsetFetch"), {0: 500})
    assert s.position(0) == 500
    assert s.engine.commits.committed[P0] == s.engine.subscription.positions()[P0], "nothing to commit: it came from there"


def test_unsubscribing_ends_what_waits() -> None:
    s, _ = joined(2)
    running, waiting, own = start(s, {P0: 5}), start(s, {P1: 6}), automatic(s, {P1: 7})
    s.engine.commits.give_up([P0, P1])  # before they are taken from the assignment
    s.engine.subscription.unsubscribe()
    s.lose(s.expect("OffsetCommit").conn)
    s.advance(2_000)
    s.none("OffsetCommit")
    for commit in (running, waiting):
        with pytest.raises(CommitFailedError, match="not assigned"):
            commit.pending.result()
    assert own.pending.result() == {}
    assert not s.engine.commits.is_busy


@pytest.mark.parametrize("fault", ["lost", 16])
def test_a_commit_is_sent_again_in_the_next_generation_if_the_partition_stayed(fault: str | int) -> None:
    s, member = joined()
    commit = start(s, {P0: 5})
    asked = s.expect("OffsetCommit")
    if fault == "lost":
        s.lose(asked.conn)
    else:
        s.committed(asked, {0: 16})
    member.me = NEXT
    s.advance(2_000)
    asked = s.expect("OffsetCommit")
    assert (signature(asked), sent(asked)) == ((6, "me-1", None), {P0: 5})
    s.committed(asked, {0: 0})
    assert commit.pending.result()


def test_sent_is_not_committed_for_a_member_either() -> None:
    """C09: an answer for each partition, and none at all."""
    s, _ = joined(2)
    s.fetched(s.expect("Fetch"), {0: batch(0), 1: batch(0)})
    s.take()
    commit = start(s)
    s.lose(s.expect("OffsetCommit").conn)
    assert s.engine.commits.committed == {}
    s.advance(2_000)
    s.committed(s.expect("OffsetCommit"), {0: 0})  # nothing is said of the other one
    assert {tp: at.offset for tp, at in s.engine.commits.committed.items()} == {P0: 10}
    s.advance(2_000)
    asked = s.expect("OffsetCommit")
    assert sent(asked) == {P1: 10}
    s.committed(asked, {1: 0})
    assert commit.pending.result()


# --- order --------------------------------------------------------------------------------------------------------------


def test_callbacks_come_in_the_order_of_the_calls_whatever_becomes_of_them() -> None:
    s, _ = joined(2)
    good = start(s, {P0: 5}, is_async=True)
    refused = start(s, {TopicPartition("t", 7): 1}, is_async=True)
    empty = start(s, {}, is_async=True)
    bad = start(s, {P0: 6}, is_async=True)
    assert not s.engine.commits.finished_async, "the first one is under way"
    s.committed(s.expect("OffsetCommit"), {0: 0})
    assert list(s.engine.commits.finished_async) == [good, refused, empty]
    s.committed(s.expect("OffsetCommit"), {0: 25})
    assert list(s.engine.commits.finished_async) == [good, refused, empty, bad]


def test_an_asynchronous_commit_gives_way_only_to_one_that_can_follow() -> None:
    s, _ = joined()
    commit = start(s, {P0: 5}, is_async=True)
    start(s, {P1: 1}, is_async=True)  # is refused while it waits
    s.committed(s.expect("OffsetCommit"), {0: 14})
    s.advance(2_000)
    s.committed(s.expect("OffsetCommit"), {0: 0})
    assert commit.pending.result()


def test_a_commit_that_is_asked_again_is_not_overtaken() -> None:
    s, _ = joined()
    first, second = start(s, {P0: 5}), start(s, {P0: 6}, is_async=True)
    for _ in range(5):
        asked = s.expect("OffsetCommit")
        assert sent(asked) == {P0: 5}
        s.committed(asked, {0: 14})
        s.advance(3_000)
    s.committed(s.expect("OffsetCommit"), {0: 0})
    assert first.pending.result()
    assert sent(s.expect("OffsetCommit")) == {P0: 6}
    assert not second.pending.done


# --- the coordinator ----------------------------------------------------------------------------------------------------


def test_bad_news_from_a_former_coordinator_change_nothing() -> None:
    s = Script(nodes=2, group_id="g")
    s.started()
    member_of(s)
    start(s, {P0: 5})
    asked = s.expect("OffsetCommit", node=1)
    s.coordinator = 2
    s.engine.finder.forget("the other connection says so", s.now)
    s.advance(1_000)
    assert s.engine.finder.node_id == 2
    finds = s.count("FindCoordinator")
    s.lose(asked.conn)
    s.advance(1_000)
    assert s.count("FindCoordinator") == finds
    assert sent(s.expect("OffsetCommit", node=2)) == {P0: 5}


def test_no_coordinator_to_be_found_ends_what_waits_but_not_what_is_in_flight() -> None:
    s, _ = joined()
    running, waiting = start(s, {P0: 5}), start(s, {P0: 6})
    asked = s.expect("OffsetCommit")
    s.auto.discard("FindCoordinator")
    s.engine.finder.forget("the other connection says so", s.now)
    s.advance(1_000)
    find = s.expect("FindCoordinator")
    s.answer(find, {"coordinators": [{"key": "g", "node_id": -1, "host": "", "port": -1, "error_code": 30}]})
    with pytest.raises(GroupAuthorizationError, match="'g'"):
        waiting.pending.result()
    assert not running.pending.done
    s.committed(asked, {0: 0})
    assert running.pending.result()


# --- reading ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_member", [True, False])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_questions_are_signed_under_the_consumer_protocol(protocol: str, is_member: bool) -> None:
    s = Script(group_id="g", group_protocol=protocol)
    member_of(s).is_active = is_member
    s.assign()
    [group] = s.expect("OffsetFetch").body["groups"]
    signed = is_member and protocol == "consumer"
    assert (group["member_id"], group["member_epoch"]) == (("me-1", 5) if signed else (None, -1))


@pytest.mark.parametrize("code", [25, 110, 113])
def test_a_question_in_an_old_name_is_asked_again_in_the_new_one(code: int) -> None:
    s = Script(group_id="g", group_protocol="consumer")
    member = member_of(s)
    s.assign()
    s.stored(s.expect("OffsetFetch"), {}, code=code)
    assert member.fetch_refused == [(code, ME)]
    s.none("OffsetFetch")  # after a back-off
    member.me = NEXT
    s.advance(2_000)
    asked = s.expect("OffsetFetch")
    assert asked.body["groups"][0]["member_epoch"] == 6
    s.stored(asked, {0: 7})
    assert s.position() == 7


@pytest.mark.parametrize("of_group", [True, False])
@pytest.mark.parametrize("code", [14, 15, 16, 88])
def test_what_is_not_known_yet_is_asked_again(code: int, of_group: bool) -> None:
    s = Script(2, group_id="g")
    s.assign(0, 1)
    finds = s.count("FindCoordinator")
    s.stored(s.expect("OffsetFetch"), {0: 3, 1: -1 if of_group else (code, -1)}, code=code if of_group else 0)
    assert (s.position(0), s.position(1)) == (None if of_group else 3, None), "the other one goes on"
    s.none("OffsetFetch")
    s.advance(2_000)
    assert s.count("FindCoordinator") - finds == (code in (15, 16))
    s.stored(s.expect("OffsetFetch"), {0: 3, 1: 4} if of_group else {1: 4})
    assert (s.position(0), s.position(1)) == (3, 4)


@pytest.mark.parametrize(
    ("code", "of_group", "error", "message"),
    [
        (3, False, UnknownTopicError, "t-0"),
        (29, False, TopicAuthorizationError, "topic 't'"),
        (30, True, GroupAuthorizationError, "'g'"),
        (22, True, BrokerError, r"'g'.*code 22"),
        (25, True, BrokerError, r"'g'.*code 25"),
        (69, True, BrokerError, r"'g'.*code 69"),
        (110, True, BrokerError, r"'g'.*code 110"),
        (113, True, BrokerError, r"'g'.*code 113"),
        (4711, True, BrokerError, r"'g'.*4711"),
        (4711, False, BrokerError, r"t-0.*4711"),
    ],
)
def test_errors_of_reading_are_raised(code: int, of_group: bool, error: type[FastFetchError], message: str) -> None:
    """With their number, for the partition by a poll, and for the caller who asked; a question without signature is nothing to
    the membership."""
    s = Script(group_id="g")
    member = member_of(s)
    reading = s.engine.read_committed_offsets([P0])
    s.assign()
    s.stored(s.expect("OffsetFetch"), {} if of_group else {0: (code, -1)}, code=code if of_group else 0)
    with pytest.raises(error, match=message):
        reading.result()
    with pytest.raises(error, match=message):
        s.engine.raise_fault()
    assert member.fetch_refused == []
    s.advance(5_000)
    s.stored(s.expect("OffsetFetch"), {0: 7})  # it is tried again meanwhile
    assert s.position() == 7


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_pending_transaction_is_waited_for_under_read_committed(isolation: str) -> None:
    s = Script(group_id="g", isolation_level=isolation)
    member_of(s)
    s.assign()
    asked = s.expect("OffsetFetch")
    assert asked.body["require_stable"] is (isolation == "read_committed")
    s.stored(asked, {0: (88, -1)})
    s.none("ListOffsets")  # not "nothing stored", which would lead to the reset policy
    s.advance(2_000)
    s.stored(s.expect("OffsetFetch"), {0: 9})
    assert s.position() == 9


def test_an_automatic_commit_for_a_deleted_topic_is_given_up_before_long() -> None:
    """A rebalance waits for it, and with it the whole group. Whoever waits for a commit of his own has a timeout for that."""
    s, _ = joined(2)
    mine = automatic(s, {P0: 5, P1: 6})
    for _ in range(4):
        s.advance(2_000)
        asked = s.expect("OffsetCommit")
        s.committed(asked, {0: 3} | ({1: 0} if P1 in sent(asked) else {}))
    with pytest.raises(CommitFailedError, match=r"UNKNOWN_TOPIC_OR_PARTITION.*1 other partitions were committed"):
        mine.pending.result()
    assert s.engine.commits.committed[P1].offset == 6
    assert not s.engine.commits.is_busy
    by_hand = start(s, {P0: 5})
    for _ in range(6):
        s.committed(s.expect("OffsetCommit"), {0: 3})
        s.advance(2_000)
    assert not by_hand.pending.done
