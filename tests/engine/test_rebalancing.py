"""Rebalances of classic groups: what goes and what stays, who shares out and from what, subscriptions and topics that change."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from fastfetch.assignors import Assignment, Assignor, GroupCluster, Subscription
from fastfetch.engine.coordinator import State
from fastfetch.errors import ProtocolError, UnknownTopicError, UsageError
from fastfetch.types import OffsetAndMetadata, TopicPartition
from tests.engine.member import Member, sent, tps, wants
from tests.engine.script import Asked, batch

P0, P1, P2 = (TopicPartition("t", p) for p in range(3))
COOPERATIVE: dict[str, Any] = {"partition_assignment_strategy": "cooperative-sticky"}


def round_of(m: Member, partitions: str, generation: int) -> Asked:
    """One more round for a follower: its JoinGroup, answered, and its assignment. Polled before and after."""
    m.poll()
    join = m.expect("JoinGroup")
    m.joined(join, generation=generation, protocol=next(iter(m.member._assignors)))
    m.synced(m.expect("SyncGroup"), partitions)
    m.poll()
    return join


def cooperative(partitions: str, **settings: Any) -> Member:
    m = Member(**(COOPERATIVE | settings))
    m.stable(partitions, protocol="cooperative-sticky")
    return m


# --- eager and cooperative --------------------------------------------------------------------------------------------


def test_eager_everything_goes_before_the_join_and_what_comes_back_starts_where_the_group_is() -> None:
    m = Member()
    m.stable("t-0 t-1")
    m.fetched(m.expect("Fetch"), {0: batch(0), 1: batch(0)})
    assert len(m.poll()) == 20
    m.beaten(27)
    m.poll()
    assert m.tells() == [("revoked", "t-0 t-1")]
    assert m.owned == ""
    join = round_of(m, "t-0 t-2", generation=2)
    assert sent(join).owned == ()
    assert m.tells() == [("assigned", "t-0 t-2")]
    assert m.position(0) == 0, "which is what is stored for everything here"


def test_cooperative_nothing_goes_before_the_join_and_records_are_handed_out_meanwhile() -> None:
    m = cooperative("t-0 t-1")
    m.fetched(m.expect("Fetch"), {0: batch(0), 1: batch(0)})
    m.beaten(27)
    assert len(m.poll()) == 20, "the group rebalances, and what this member has is read on"
    assert m.state is State.PREPARING
    assert m.tells() == []
    join = m.expect("JoinGroup")
    said = sent(join, "cooperative-sticky")
    assert (set(said.owned), said.generation) == ({P0, P1}, 1)
    m.fetched(m.expect("Fetch"), {0: batch(10)})
    assert m.poll() == [(0, offset) for offset in range(10, 20)], "also while the join waits for others"


def test_cooperative_only_what_moves_is_revoked_and_then_joined_once_more() -> None:
    m = cooperative("t-0 t-1 t-2")
    m.beaten(27)
    round_of(m, "t-0 t-1", generation=2)
    assert m.tells() == [("revoked", "t-2"), ("assigned", "")]
    assert m.owned == "t-0 t-1"
    join = m.expect("JoinGroup")
    assert join.at_ms == m.now, "at once: the new owner waits for it"
    assert set(sent(join, "cooperative-sticky").owned) == {P0, P1}
    assert sent(join, "cooperative-sticky").generation == 2
    round_of(m, "t-0 t-1", generation=3)
    assert m.tells() == [("assigned", "")]
    joins = m.count("JoinGroup")
    m.auto.add("Heartbeat")
    m.poll(20_000)
    assert m.count("JoinGroup") == joins, "that was the last round"


def test_cooperative_the_new_owner_gets_it_in_the_second_round() -> None:
    m = cooperative("t-0")
    m.beaten(27)
    round_of(m, "t-0", generation=2)
    m.none("JoinGroup")
    m.beaten(27)
    round_of(m, "t-0 t-3", generation=3)
    assert m.tells() == [("assigned", ""), ("assigned", "t-3")]
    m.none("JoinGroup")


def test_cooperative_what_stays_keeps_position_pause_and_buffer_and_what_comes_starts_fresh() -> None:
    m = cooperative("t-0 t-1 t-2")
    m.fetched(m.expect("Fetch"), {0: batch(0), 1: batch(0), 2: batch(0)})
    m.engine.pause([P1, P2])
    assert len(m.take(4)) == 4
    m.beaten(27)
    m.duties()
    m.joined(m.expect("JoinGroup"), generation=2, protocol="cooperative-sticky")
    m.synced(m.expect("SyncGroup"), "t-0 t-1 t-3")
    m.duties()
    assert m.tells() == [("revoked", "t-2"), ("assigned", "t-3")]
    assert m.position(0) == 4
    states = {tp: m.engine.subscription.get(tp, "") for tp in tps("t-0 t-1 t-3")}
    assert [state.paused for state in states.values()] == [False, True, False]
    assert m.take() == [(0, offset) for offset in range(4, 10)], "the rest of the buffer"
    assert m.engine.subscription.find(P2) is None
    # It comes back: not paused, and from what is stored.
    round_of(m, "t-0 t-1 t-2", generation=3)
    round_of(m, "t-0 t-1 t-2", generation=4)
    assert m.position(2) == 0
    assert not m.engine.subscription.get(P2, "").paused


def test_cooperative_a_round_that_came_to_nothing_makes_no_claim_look_newer() -> None:
    """KAFKA-13891: the partitions are of generation 1, whatever has begun since."""
    m = cooperative("t-0")
    m.beaten(27)
    m.poll()
    m.joined(m.expect("JoinGroup"), generation=2, protocol="cooperative-sticky")
    m.synced(m.expect("SyncGroup"), code=27)
    m.poll(200)
    join = m.expect("JoinGroup")
    assert (sent(join, "cooperative-sticky").owned, sent(join, "cooperative-sticky").generation) == ((P0,), 1)


def test_cooperative_thrown_out_is_out_of_everything() -> None:
    m = cooperative("t-0 t-1")
    m.beaten(27)
    m.poll()
    m.joined(m.expect("JoinGroup"), code=25)
    m.poll(200)
    assert m.tells() == [("lost", "t-0 t-1")]
    join = m.expect("JoinGroup")
    assert join.body["member_id"] == ""
    assert sent(join, "cooperative-sticky").owned == ()


def test_cooperative_commits_of_what_stays_go_through() -> None:
    m = cooperative("t-0 t-1")
    m.beaten(27)
    commit = m.engine.commit({P0: OffsetAndMetadata(3), P1: OffsetAndMetadata(4)}, m.now + 60_000, is_async=True, automatic=True)
    asked = m.expect("OffsetCommit")
    round_of(m, "t-0", generation=2)
    m.committed(asked, {0: 14, 1: 14})  # to be sent again, by another generation
    m.advance(500)
    m.poll()
    round_of(m, "t-0", generation=3)
    m.advance(500)
    again = m.expect("OffsetCommit")
    assert again.body["generation_id_or_member_epoch"] == 3
    assert [p["partition_index"] for t in again.body["topics"] for p in t["partitions"]] == [0]
    m.committed(again, {0: 0})
    assert commit.pending.result() == {P0: OffsetAndMetadata(3)}


@pytest.mark.parametrize("when", ["joining", "revoking"])
def test_cooperative_leaving_in_mid_rebalance(when: str) -> None:
    m = cooperative("t-0 t-1")
    m.beaten(27)
    m.poll()
    if when == "revoking":
        m.joined(m.expect("JoinGroup"), generation=2, protocol="cooperative-sticky")
        m.synced(m.expect("SyncGroup"), "t-0")
    duty = m.member.duty_before_leaving(m.now)
    assert duty is not None
    assert set(duty.partitions) == {P0, P1}
    assert not duty.is_lost, "the coordinator takes commits of the old generation until all have joined"
    m.engine.unsubscribe("done", m.now)
    m.advance(500)
    assert (m.owned, m.count("LeaveGroup"), m.member.is_leaving) == ("", 1, False)


def test_cooperative_a_member_that_waits_for_a_join_owns_no_longer_than_its_heartbeats_are_acknowledged() -> None:
    """The answer may have been given, and lost, and the session that began with it may have ended; nothing else would tell."""
    m = cooperative("t-0")
    m.fetched(m.expect("Fetch"), {0: batch(0)})
    m.beaten(27)
    m.duties()
    m.expect("JoinGroup")
    heard = m.beaten(27).at_ms
    m.advance(9_000)
    assert m.poll() == [(0, offset) for offset in range(10)]
    m.fetched(m.expect("Fetch"), {0: batch(10)})
    m.advance(heard + 10_100 - m.now)
    assert m.poll() == []
    assert m.tells() == [("lost", "t-0")]


def test_cooperative_an_answer_to_a_join_that_was_long_under_way_is_no_sign_of_life() -> None:
    m = cooperative("t-0")
    m.beaten(27)
    m.duties()
    join = m.expect("JoinGroup")
    m.advance(9_900)
    m.joined(join, generation=2, protocol="cooperative-sticky")
    m.advance(3_000)
    m.poll()
    assert m.tells() == [("lost", "t-0")]


def test_cooperative_a_member_whose_joins_come_to_no_answer_does_not_own_for_ever() -> None:
    """Somebody accepts its connections and closes them again. It has one more session from its last heartbeat on, in which
    another coordinator could have taken over."""
    m = cooperative("t-0")
    m.beaten(27)
    m.duties()
    m.expect("JoinGroup")
    m.auto.add("Heartbeat")
    m.advance(15_000)  # others take long, and heartbeats say all the while that it is there
    m.auto.discard("Heartbeat")
    first = m.now
    while m.now < first + 9_000:
        for join in [asked for asked in m.asked if asked.api.name == "JoinGroup"]:
            m.lose(join.conn)
        m.advance(300)
        m.poll()
    assert m.tells() == []
    while m.now < first + 13_000:
        for join in [asked for asked in m.asked if asked.api.name == "JoinGroup"]:
            m.lose(join.conn)
        m.advance(300)
        m.poll()
    assert m.tells() == [("lost", "t-0")]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_rebalances_of_who_has_nothing(strategy: str) -> None:
    m = Member(partition_assignment_strategy=strategy)
    m.stable("", protocol=strategy)
    m.beaten(27)
    m.poll()
    assert m.tells() == ([("revoked", "")] if strategy == "range" else []), "as Java's listeners hear it"
    round_of(m, "", generation=2)
    assert m.tells() == [("assigned", "")]


def test_the_rest_of_what_was_lost_in_mid_revocation_is_lost_too() -> None:
    m = cooperative("t-0 t-1")
    m.beaten(27)
    m.poll()
    m.joined(m.expect("JoinGroup"), generation=2, protocol="cooperative-sticky")
    m.synced(m.expect("SyncGroup"), "t-0")
    duty = m.member.duty(m.now)
    assert duty is not None
    m.beaten(25)  # while the caller commits
    assert m.member.duty(m.now) is duty
    assert duty.is_lost  # type: ignore[union-attr]
    m.poll()
    assert m.tells() == [("lost", "t-1"), ("lost", "t-0")]
    assert m.owned == ""


# --- the leader -------------------------------------------------------------------------------------------------------


def lead(m: Member, others: Mapping[str, bytes], *, generation: int = 1, protocol: str = "range") -> Asked:
    """Our JoinGroup is answered with the lead; returns it. Nothing is shared out yet."""
    m.poll()
    join = m.expect("JoinGroup")
    mine = next(p["metadata"] for p in join.body["protocols"] if p["name"] == protocol)
    m.joined(join, leader="m-1", members={"m-1": mine, **others}, generation=generation, protocol=protocol)
    return join


def test_the_leader_shares_out_in_its_poll() -> None:
    m = Member(4)
    lead(m, {"m-2": wants()})
    m.none("SyncGroup")
    m.poll()
    sync = m.expect("SyncGroup")
    assert m.shared(sync) == {"m-1": "t-0 t-1", "m-2": "t-2 t-3"}
    assert sync.body["protocol_name"] == "range"


def test_topics_of_others_are_looked_up_before_anything_is_shared_out() -> None:
    m = Member(2)
    m.leaders |= {("u", 0): (1, 5), ("u", 1): (1, 5)}
    m.auto.discard("Metadata")
    lead(m, {"m-2": wants("t u"), "m-3": wants("nope")})
    m.poll(200)
    m.none("SyncGroup")
    m.auto.add("Metadata")
    asked = m.expect("Metadata")
    assert {topic["name"] for topic in asked.body["topics"]} == {"t", "u", "nope"}
    m.answer(asked, m._metadata(asked))
    m.poll()
    assert m.shared(m.expect("SyncGroup")) == {"m-1": "t-0", "m-2": "t-1 u-0 u-1", "m-3": ""}


def test_a_member_whose_subscription_can_t_be_read_gets_nothing_and_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    newer = b"\x00\x63" + wants()[2:] + b"what a later version adds"
    m = Member(2)
    lead(m, {"m-2": b"", "m-3": b"\x00\x03\x7f\xff\xff\xff", "m-4": newer})
    m.poll()
    assert m.shared(m.expect("SyncGroup")) == {"m-1": "t-0", "m-2": "", "m-3": "", "m-4": "t-1"}
    assert "member m-2 of the group gets no partitions" in caplog.text


def test_moving_partitions_are_nobody_s_in_the_first_round_and_the_new_owner_s_in_the_second() -> None:
    """Three members under cooperative-sticky, the third has just come."""
    m = Member(6, **COOPERATIVE)
    m.stable("t-0 t-1 t-2", protocol="cooperative-sticky")
    m.beaten(27)
    m.poll()
    lead(m, {"m-2": wants(owned="t-3 t-4 t-5", generation=1), "m-3": wants()}, generation=2, protocol="cooperative-sticky")
    m.poll()
    sync = m.expect("SyncGroup")
    first = m.shared(sync)
    assert first["m-3"] == ""
    held = {member: set(tps(share)) for member, share in first.items()}
    assert held["m-1"] < set(tps("t-0 t-1 t-2"))
    assert held["m-2"] < set(tps("t-3 t-4 t-5"))
    moving = set(tps("t-0 t-1 t-2 t-3 t-4 t-5")) - held["m-1"] - held["m-2"]
    assert len(moving) == 2
    m.synced(sync, first["m-1"])
    m.poll()
    lead(
        m,
        {"m-2": wants(owned=first["m-2"], generation=2), "m-3": wants(generation=2)},
        generation=3,
        protocol="cooperative-sticky",
    )
    m.poll()
    second = m.shared(m.expect("SyncGroup"))
    assert {member: set(tps(share)) for member, share in second.items()} == held | {"m-3": moving}


def test_partitions_that_are_added_lead_to_a_rebalance_by_the_leader_alone() -> None:
    leader, follower = Member(2), Member(2)
    lead(leader, {"m-2": wants()})
    leader.poll()
    leader.synced(leader.expect("SyncGroup"), "t-0")
    leader.poll()
    follower.stable("t-1")
    for m in (leader, follower):
        m.auto.add("Heartbeat")
        m.engine.metadata.request_update()
        m.poll(1_000)
        assert m.count("JoinGroup") == 1, "nothing has changed"
        m.leaders["t", 2] = (1, 5)
        m.engine.metadata.request_update()
        m.poll(1_000)
    assert leader.expect("JoinGroup").body["reason"] == "partitions of t have changed"
    assert follower.count("JoinGroup") == 1


def test_partitions_that_are_added_while_an_assignment_is_on_its_way() -> None:
    m = Member(2)
    lead(m, {})
    m.poll()
    sync = m.expect("SyncGroup")
    m.leaders["t", 2] = (1, 5)
    m.engine.metadata.request_update()
    m.advance(1_000)
    m.synced(sync, "t-0 t-1")
    m.poll()
    lead(m, {}, generation=2)
    m.poll()
    assert m.shared(m.expect("SyncGroup")) == {"m-1": "t-0 t-1 t-2"}


def test_a_topic_that_is_deleted_and_one_that_appears() -> None:
    m = Member(2, topics="t u")
    lead(m, {})
    m.poll()
    m.synced(m.expect("SyncGroup"), "t-0 t-1")
    m.poll()
    m.auto.add("Heartbeat")
    m.leaders["u", 0] = (1, 5)
    m.poll(2_000)
    lead(m, {}, generation=2)
    m.poll()
    sync = m.expect("SyncGroup")
    assert m.shared(sync) == {"m-1": "t-0 t-1 u-0"}
    m.synced(sync, "t-0 t-1 u-0")
    m.poll()
    del m.leaders["u", 0]
    m.engine.metadata.request_update()
    m.poll(5_000)
    lead(m, {}, generation=3)
    m.poll()
    assert m.shared(m.expect("SyncGroup")) == {"m-1": "t-0 t-1"}


def test_a_static_leader_that_comes_back_shares_nothing_out_and_does_not_rebalance() -> None:
    """KIP-814. It learns what the group's topics are like, and what has changed since."""
    m = Member(2, group_instance_id="i-1")
    m.leaders["u", 0] = (1, 5)
    m.poll()
    m.joined(m.expect("JoinGroup"), leader="m-1", members={"m-1": wants(), "m-2": wants("u")}, generation=7, skip=True)
    sync = m.expect("SyncGroup")
    assert sync.body["assignments"] == []
    m.synced(sync, "t-0 t-1")
    m.auto.add("Heartbeat")
    m.poll(5_000)
    m.engine.metadata.request_update()
    m.poll(1_000)
    assert m.count("JoinGroup") == 1, "nothing has changed"
    m.leaders["u", 1] = (1, 5)
    m.engine.metadata.request_update()
    m.poll(1_000)
    assert m.expect("JoinGroup").body["reason"] == "partitions of u have changed"


def test_nobody_who_follows_asks_after_the_topics_of_others() -> None:
    m = Member()
    m.leaders["u", 0] = (1, 5)
    lead(m, {"m-2": wants("u")})
    m.poll(200)
    m.synced(m.expect("SyncGroup"), "t-0")
    m.poll()
    assert set(m.member.topics()) == {"t", "u"}
    m.beaten(27)
    round_of(m, "t-0", generation=2)
    assert set(m.member.topics()) == set()


# --- assignors --------------------------------------------------------------------------------------------------------


class Weights(Assignor):
    """Everything to the member that offers most; a note of everything it was asked."""

    name = "weights"

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answer: Any = None

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        self.asked.append(sorted(topics))
        return b"5"

    def assign(self, cluster: GroupCluster, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        self.asked.append({member: s.user_data for member, s in subscriptions.items()})
        if self.answer is not None:
            return self.answer() if callable(self.answer) else self.answer  # type: ignore[no-any-return]
        strongest = max(subscriptions, key=lambda member: int(subscriptions[member].user_data or b"0"))
        share = [TopicPartition(topic, p) for topic, count in cluster.partitions.items() for p in range(count)]
        return {member: Assignment(tuple(share) if member == strongest else ()) for member in subscriptions}

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        self.asked.append((assignment.partitions, generation))


def test_several_strategies_are_offered_in_order_and_the_group_s_vote_decides() -> None:
    mine = Weights()
    m = Member(2, partition_assignment_strategy=["sticky", mine])
    join = lead(m, {"m-2": wants(user_data=b"9")}, protocol="weights")
    assert [p["name"] for p in join.body["protocols"]] == ["sticky", "weights"]
    assert (sent(join, "sticky").user_data, sent(join, "weights").user_data) == (None, b"5")
    m.poll()
    sync = m.expect("SyncGroup")
    assert sync.body["protocol_name"] == "weights"
    assert m.shared(sync) == {"m-1": "", "m-2": "t-0 t-1"}
    m.synced(sync, "")
    m.poll()
    assert mine.asked == [["t"], {"m-1": b"5", "m-2": b"9"}, ((), 1)]
    # The next vote goes the other way.
    m.beaten(27)
    lead(m, {"m-2": wants()}, generation=2, protocol="sticky")
    m.poll()
    assert m.shared(m.expect("SyncGroup")) == {"m-1": "t-0", "m-2": "t-1"}
    assert mine.asked[3:] == [["t"]], "it was asked for user data, and no more"


@pytest.mark.parametrize("code", [25, 27])
def test_user_data_is_asked_for_once_for_a_join_and_sent_until_it_succeeds(code: int) -> None:
    mine = Weights()
    m = Member(partition_assignment_strategy=[mine])
    m.poll()
    m.joined(m.expect("JoinGroup"), code=code)
    m.advance(500)  # nobody polls
    assert sent(m.expect("JoinGroup"), "weights").user_data == b"5"
    assert mine.asked == [["t"]]


def test_sticky_remembers_what_it_had() -> None:
    m = Member(partition_assignment_strategy="sticky")
    m.stable("t-0 t-1", protocol="sticky", generation=3)
    m.beaten(27)
    m.poll()
    from fastfetch.protocol.consumer_protocol import decode_sticky_user_data

    data = sent(m.expect("JoinGroup"), "sticky").user_data
    assert data is not None
    assert decode_sticky_user_data(data) == (tps("t-0 t-1"), 3)


def fail() -> Any:
    raise ZeroDivisionError("in the user's assignor")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"m-1": None}, "AttributeError|TypeError"),
        ({"m-1": Assignment((P0,)), "m-9": Assignment()}, "not members: m-9"),
        ([1, 2], "TypeError"),
        ({"m-1": Assignment(("t", 0))}, "ValueError"),  # type: ignore[arg-type]
        ({"m-1": Assignment((TopicPartition("t", 2**40),))}, "is no int32"),
    ],
)
def test_an_assignor_that_returns_nonsense_is_told_and_the_group_goes_on(answer: Any, says: str) -> None:
    mine = Weights()
    mine.answer = answer
    m = Member(partition_assignment_strategy=[mine])
    lead(m, {}, protocol="weights")
    with pytest.raises(UsageError, match=f"assignor 'weights' must return.*({says})"):
        m.poll()
    m.none("SyncGroup")
    m.none("JoinGroup")
    m.advance(200)
    mine.answer = {"m-1": Assignment((P0,))}
    lead(m, {"m-2": wants()}, generation=2, protocol="weights")
    m.poll()
    assert m.shared(m.expect("SyncGroup")) == {"m-1": "t-0", "m-2": ""}, "who is left out gets nothing"


def test_an_assignor_that_raises_leads_to_another_round() -> None:
    mine = Weights()
    mine.answer = fail
    m = Member(partition_assignment_strategy=[mine])
    for generation in range(1, 6):
        lead(m, {}, generation=generation, protocol="weights")
        m.poll()
        assert len(m.raised) == generation
        m.none("JoinGroup")  # there is a back-off
        m.advance(1_300)
    mine.answer = None
    lead(m, {}, generation=9, protocol="weights")
    m.poll()
    assert m.shared(m.expect("SyncGroup")) == {"m-1": "t-0 t-1 t-2 t-3"}


def test_partitions_that_only_the_leader_knows_of_are_taken_over_once_metadata_have_them() -> None:
    m = Member(2)
    m.join()
    m.leaders["t", 2] = (1, 5)
    m.synced(m.expect("SyncGroup"), "t-0 t-2")
    m.poll()
    assert m.tells() == [], "t-2 would be said not to exist"
    m.poll(200)
    assert m.tells() == [("assigned", "t-0 t-2")]


def test_they_are_looked_up_when_the_assignment_comes_not_when_somebody_polls() -> None:
    m = Member(2)
    m.join()
    m.leaders["t", 2] = (1, 5)
    m.synced(m.expect("SyncGroup"), "t-0 t-2")
    m.auto.add("Heartbeat")
    m.advance(8_000)
    m.poll()
    m.engine.raise_fault()
    assert m.tells() == [("assigned", "t-0 t-2")]


def test_partitions_that_nobody_comes_to_know_of_hold_up_the_others_for_a_while_only() -> None:
    m = Member(2)
    m.join()
    m.synced(m.expect("SyncGroup"), "t-0 t-2")
    m.auto.add("Heartbeat")
    m.poll(4_900)
    assert m.tells() == []
    m.poll(200)
    assert m.tells() == [("assigned", "t-0 t-2")]
    with pytest.raises(UnknownTopicError, match="partition 2 of topic 't' does not exist"):
        m.engine.raise_fault()


# --- subscriptions ----------------------------------------------------------------------------------------------------


def test_another_subscription_of_a_member_is_told_to_the_group() -> None:
    m = Member(2)
    m.leaders["u", 0] = (1, 5)
    m.stable("t-0 t-1")
    m.subscribe("u")
    m.poll()
    assert m.tells() == [("revoked", "t-0 t-1")]
    join = m.expect("JoinGroup")
    assert sent(join).topics == ("u",)
    assert join.body["reason"] == "the subscription has changed"
    m.joined(join, generation=2)
    m.synced(m.expect("SyncGroup"), "u-0")
    m.poll()
    assert m.tells() == [], "not before metadata know the topic"
    m.poll(200)
    assert m.tells() == [("assigned", "u-0")]
    m.auto.add("Heartbeat")
    m.poll(10_000)
    assert m.count("JoinGroup") == 2


def test_a_static_member_that_is_back_with_other_topics_takes_what_it_wants_and_has_the_group_hear_of_it() -> None:
    m = Member(2, group_instance_id="i")
    first = m.join(generation=5)
    assert first.body["member_id"] == ""
    m.synced(m.expect("SyncGroup"), "t-1 u-0")  # its predecessor's
    m.poll()
    assert m.tells() == [("assigned", "t-1"), ("revoked", "t-1")]
    again = m.expect("JoinGroup")
    assert again.body["member_id"] == "m-1"
    assert again.body["protocols"] != first.body["protocols"], "or the coordinator would answer with what there is"
    m.joined(again, generation=6)
    m.synced(m.expect("SyncGroup"), "t-0 u-0")
    with pytest.raises(ProtocolError, match="the leader assigned u-0, which this member did not subscribe to"):
        m.poll()
    m.none("JoinGroup")  # there is a back-off


def test_cooperative_only_what_is_not_wanted_any_more_is_revoked_before_the_join() -> None:
    m = Member(topics="", **COOPERATIVE)
    m.leaders["u", 0] = (1, 5)
    m.subscribe("t u")
    m.stable("t-0 u-0", protocol="cooperative-sticky")
    m.subscribe("t")
    m.poll()
    assert m.tells() == [("revoked", "u-0")]
    join = m.expect("JoinGroup")
    assert sent(join, "cooperative-sticky").topics == ("t",)
    assert sent(join, "cooperative-sticky").owned == (P0,)
    assert m.owned == "t-0"


def test_a_subscription_that_changes_during_a_join_leads_to_another_one() -> None:
    m = Member(2, topics="t u")
    m.join()
    m.subscribe("t")
    m.synced(m.expect("SyncGroup"), "t-0 u-0")
    m.poll()
    assert m.tells()[0] == ("assigned", "t-0"), "nothing is taken of what is not wanted any more"
    join = m.expect("JoinGroup")
    assert sent(join).topics == ("t",)
    m.joined(join, generation=2)
    m.synced(m.expect("SyncGroup"), "t-0")
    m.auto.add("Heartbeat")
    m.poll(10_000)
    assert m.count("JoinGroup") == 2


def test_a_rebalance_can_be_enforced_and_says_why() -> None:
    m = Member()
    m.stable()
    m.member.enforce_rebalance("more cores")
    m.member.enforce_rebalance("twice is once")
    m.none("JoinGroup")
    m.poll()
    assert m.tells() == [("revoked", "t-0 t-1")]
    assert m.expect("JoinGroup").body["reason"] == "more cores"


# --- patterns ---------------------------------------------------------------------------------------------------------


def patterned(pattern: str, topics: str, **settings: Any) -> Member:
    m = Member(topics="", **settings)
    m.leaders = {(topic, 0): (1, 5) for topic in topics.split()}
    m.engine.subscribe((), pattern, m.now)
    m.run()
    return m


def test_a_pattern_joins_when_it_is_known_what_matches() -> None:
    m = patterned("a.", "a1 b1 a2", by_hand="Heartbeat Metadata")
    m.poll(1_000)
    m.none("JoinGroup")
    m.auto.add("Metadata")
    for asked in [asked for asked in m.asked if asked.api.name == "Metadata"]:
        m.answer(asked, m._metadata(asked))
    m.poll(1_000)
    assert sent(m.expect("JoinGroup")).topics == ("a1", "a2")


def test_topics_that_come_to_match_and_cease_to_exist_lead_to_rebalances() -> None:
    m = patterned("a.", "a1 b1", metadata_max_age_ms=10_000, session_timeout_ms=60_000)
    m.stable("a1-0")
    m.auto.add("Heartbeat")
    m.leaders |= {("b2", 0): (1, 5)}
    m.poll(11_000)
    assert m.count("JoinGroup") == 1
    m.leaders |= {("a2", 0): (1, 5)}
    m.poll(11_000)
    join = m.expect("JoinGroup")
    assert sent(join).topics == ("a1", "a2")
    m.joined(join, generation=2)
    m.synced(m.expect("SyncGroup"), "a1-0 a2-0")
    m.poll()
    del m.leaders["a1", 0]
    m.poll(15_000)
    join = m.expect("JoinGroup")
    assert sent(join).topics == ("a2",)


def test_cooperative_another_pattern_in_mid_join_takes_nothing_away_before_it_is_known_what_matches() -> None:
    m = patterned("a.", "a1 a2 b1", **COOPERATIVE)
    m.stable("a1-0 a2-0", protocol="cooperative-sticky")
    m.beaten(27)
    m.duties()
    m.auto.discard("Metadata")
    m.engine.subscribe((), "a1|b.", m.now)
    m.joined(m.expect("JoinGroup"), generation=2, protocol="cooperative-sticky")
    m.synced(m.expect("SyncGroup"), "a1-0 a2-0")
    m.duties()
    assert m.tells() == []
    m.auto.add("Metadata")
    m.advance(200)
    for asked in [asked for asked in m.asked if asked.api.name == "Metadata"]:
        m.answer(asked, m._metadata(asked))
    m.duties()
    assert m.tells() == [("revoked", "a2-0"), ("assigned", "")]
    assert sent(m.expect("JoinGroup"), "cooperative-sticky").topics == ("a1", "b1")
