"""Members of classic groups: every error code in every state, clocks, coordinators that move, static members, leaving."""

from __future__ import annotations

from typing import Any

import pytest

from fastfetch.engine.coordinator import State
from fastfetch.errors import (
    BrokerError,
    CommitFailedError,
    ConfigError,
    FastFetchError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    ProtocolError,
    RebalanceInProgressError,
    UnsupportedVersionError,
)
from fastfetch.types import OffsetAndMetadata, TopicPartition
from tests.engine.member import Member, sent
from tests.engine.script import Asked, batch

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
OF_GROUP = ("FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup")

# What an answer leads to, by request and code; all other codes end it.
AGAIN, MOVED, TAKE_ID, REJOIN, RESET_GENERATION, RESET_ID = "again", "moved", "take id", "rejoin", "reset generation", "reset id"
TABLE: dict[str, dict[int, str]] = {
    "JoinGroup": {14: AGAIN, 15: MOVED, 16: MOVED, 25: RESET_ID, 27: AGAIN, 79: TAKE_ID},
    "SyncGroup": {15: MOVED, 16: MOVED, 22: RESET_GENERATION, 25: RESET_ID, 27: REJOIN},
    "Heartbeat": {15: MOVED, 16: MOVED, 22: RESET_GENERATION, 25: RESET_ID, 27: REJOIN},
}
CODES = (-1, 3, 7, 12, 14, 15, 16, 22, 23, 24, 25, 26, 27, 28, 29, 30, 35, 69, 79, 81, 82, 88, 110, 113, 999)


def asked_of_group(m: Member, since: int = 0) -> list[str]:
    return [asked.api.name for asked in m.history[since:] if asked.api.name in OF_GROUP]


def has_ended(m: Member, code: int) -> None:
    """One poll raises it, then there is silence, until the caller subscribes anew."""
    with pytest.raises(FastFetchError) as caught:
        m.poll()
    assert isinstance(caught.value, BrokerError)
    assert caught.value.code == code
    assert m.state is State.UNJOINED
    assert m.owned == ""
    before = len(m.history)
    for _ in range(5):
        m.advance(20_000)
        assert m.poll() == []
    assert asked_of_group(m, before) == []
    m.engine.unsubscribe("", m.now)
    m.subscribe("t")
    m.poll()
    assert m.expect("JoinGroup").body["member_id"] == ""


def goes_on(m: Member, request: str, code: int, before: int) -> None:
    """After `request`, number `before` of the history, was answered with the code and the caller has polled."""
    outcome = TABLE[request].get(code)
    generation, member = (1, "m-1") if request != "JoinGroup" else (-1, "")
    first = m.history[before]
    if outcome in (AGAIN, MOVED):
        m.advance(1)
        assert [name for name in asked_of_group(m, before + 1) if name == request] == [], "not without a back-off"
        again = within(m, request, 2_000)
        assert again.node == (2 if outcome == MOVED else 1)
        assert again.body | {"reason": None} == first.body | {"reason": None}
        assert ("FindCoordinator" in asked_of_group(m, before + 1)) == (outcome == MOVED)
        return
    again = within(m, "JoinGroup", 2_000)
    if outcome == TAKE_ID:
        member = "m-new"
        assert again.at_ms == first.at_ms, "at once"
    elif outcome == RESET_ID:
        member, generation = "", -1
    elif outcome == RESET_GENERATION:
        generation = -1
    assert again.body["member_id"] == member
    if not sent(again).owned:
        return
    assert sent(again).generation == generation


def within(m: Member, api: str, ms: int) -> Asked:
    """The next request of an API, with the caller polling on."""
    end = m.now + ms
    while m.now < end:
        m.poll()
        found = [asked for asked in m.asked if asked.api.name == api]
        if found:
            return found[0]
        m.advance(10)
    raise AssertionError(f"no {api} within {ms} ms")


# --- every code in every state ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", CODES)
def test_join_answered_with(code: int) -> None:
    m = Member(nodes=2)
    m.poll()
    asked = m.expect("JoinGroup")
    m.coordinator = 2
    m.joined(asked, code=code, member_id="m-new")
    if code in TABLE["JoinGroup"]:
        goes_on(m, "JoinGroup", code, m.history.index(asked))
        assert m.tells() == []
    else:
        has_ended(m, code)


@pytest.mark.parametrize("code", CODES)
def test_sync_answered_with(code: int) -> None:
    m = Member(nodes=2)
    m.join()
    asked = m.expect("SyncGroup")
    assert m.state is State.COMPLETING
    m.coordinator = 2
    m.synced(asked, code=code)
    if code in TABLE["SyncGroup"]:
        goes_on(m, "SyncGroup", code, m.history.index(asked))
        assert m.tells() == []
    else:
        has_ended(m, code)


@pytest.mark.parametrize("code", CODES)
def test_heartbeat_answered_with_when_stable(code: int) -> None:
    m = Member(nodes=2)
    m.stable()
    m.coordinator = 2
    m.auto.discard("Heartbeat")
    asked = m.beaten(code)
    if code in TABLE["Heartbeat"]:
        goes_on(m, "Heartbeat", code, m.history.index(asked))
        told = {REJOIN: "revoked", RESET_ID: "lost", RESET_GENERATION: "lost"}.get(TABLE["Heartbeat"][code])
        assert m.tells() == ([(told, "t-0 t-1")] if told else [])
    else:
        has_ended(m, code)
        assert m.tells() == [("lost", "t-0 t-1")]


@pytest.mark.parametrize("code", CODES)
def test_heartbeat_answered_with_while_the_assignment_is_waited_for(code: int) -> None:
    """The answer to the join says whatever it could say, but for where the coordinator is."""
    m = Member(nodes=2)
    m.join()
    sync = m.expect("SyncGroup")
    assert m.beaten(code).conn != sync.conn, "answers of one connection come in order, and that one waits for the leader"
    m.poll()
    assert m.state is State.COMPLETING
    assert m.count("JoinGroup") == 1
    m.synced(sync, "t-0")
    m.poll()
    assert m.owned == "t-0"


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("request_", ["JoinGroup", "SyncGroup", "Heartbeat"])
def test_an_answer_to_what_was_asked_before_changes_nothing(request_: str, code: int) -> None:
    """The member was out of the group, for not polling, before the answer came."""
    m = Member(max_poll_interval_ms=20_000, session_timeout_ms=60_000)
    m.auto.discard("LeaveGroup")
    if request_ == "JoinGroup":
        m.poll()
        asked = m.expect("JoinGroup")
        m.advance(20_100)
    elif request_ == "SyncGroup":
        m.join()
        asked = m.expect("SyncGroup")
        m.advance(20_100)
    else:
        m.stable()
        m.auto.add("Heartbeat")
        m.advance(17_500)
        m.auto.discard("Heartbeat")
        m.advance(2_600)
        asked = m.expect("Heartbeat")
    assert m.state is State.UNJOINED
    m.answer(asked, {"error_code": code} | ({"member_id": "m-late", "generation_id": 9} if request_ == "JoinGroup" else {}))
    assert (m.state, m.member.member_id, m.member.generation) == (State.UNJOINED, "", -1)
    m.advance(2_000)
    m.poll()
    assert within(m, "JoinGroup", 2_000).body["member_id"] == ""


@pytest.mark.parametrize("code", [*CODES, 0])
def test_a_heartbeat_answered_during_the_next_join_changes_nothing(code: int) -> None:
    m = Member()
    m.stable()
    m.advance(3_000)
    late = m.expect("Heartbeat")
    m.member.enforce_rebalance("test")
    m.poll()
    join = next(asked for asked in m.asked if asked.api.name == "JoinGroup")
    m.answer(late, {"error_code": code})
    assert m.state is State.PREPARING
    m.joined(join, generation=2)
    m.synced(m.expect("SyncGroup"), "t-2")
    m.poll()
    assert (m.owned, m.member.generation) == ("t-2", 2)


# --- who the member is ------------------------------------------------------------------------------------------------


def test_the_coordinator_gives_the_member_its_id_and_two_joins_are_enough() -> None:
    m = Member()
    m.poll()
    first = m.expect("JoinGroup")
    assert first.body["member_id"] == ""
    m.joined(first, code=79, member_id="m-1")
    second = m.expect("JoinGroup")
    assert second.body["member_id"] == "m-1"
    m.joined(second)
    m.synced(m.expect("SyncGroup"), "t-0")
    assert m.count("JoinGroup") == 2


def test_a_coordinator_that_goes_on_asking_for_the_id_is_no_busy_loop() -> None:
    m = Member()
    m.poll()
    for n in range(20):
        m.joined(within(m, "JoinGroup", 5_000), code=79, member_id=f"m-{n}")
    assert m.now > 1_005_000


@pytest.mark.parametrize(("versions", "reason"), [((0, 9), "joining"), ((0, 8), "joining"), ((0, 7), None), ((0, 0), None)])
def test_what_a_join_says(versions: tuple[int, int], reason: str | None) -> None:
    m = Member(versions={"JoinGroup": versions}, client_rack="r1", max_poll_interval_ms=70_000)
    m.poll()
    body = m.expect("JoinGroup").body
    assert body.get("reason") == reason
    assert (body["group_id"], body["session_timeout_ms"], body["protocol_type"]) == ("g", 10_000, "consumer")
    assert versions == (0, 0) or body["rebalance_timeout_ms"] == 70_000
    assert [p["name"] for p in body["protocols"]] == ["range", "cooperative-sticky"], "the preferred one first"
    said = sent(m.expect("JoinGroup"))
    assert (said.topics, said.owned, said.generation, said.rack) == (("t",), (), -1, "r1")


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_the_group_s_requests(version: int) -> None:
    versions = {
        "JoinGroup": (0, version),
        "SyncGroup": (0, min(version, 5)),
        "Heartbeat": (0, min(version, 4)),
        "LeaveGroup": (0, min(version, 5)),
    }
    m = Member(versions=versions)
    m.stable("t-0 t-1")
    m.beaten()
    m.engine.unsubscribe("done", m.now)
    m.run()
    leave = next(asked for asked in m.history if asked.api.name == "LeaveGroup").body
    who = leave["member_id"] if version < 3 else leave["members"][0]["member_id"]
    assert who == "m-1"
    assert version < 5 or leave["members"][0]["reason"] == "done"


def test_long_reasons_are_cut_as_java_does() -> None:
    m = Member()
    m.stable()
    m.member.enforce_rebalance("x" * 1000)
    m.poll()
    assert m.expect("JoinGroup").body["reason"] == "x" * 255


def test_joining_begins_with_the_first_poll() -> None:
    m = Member()
    m.advance(60_000)
    assert m.count("JoinGroup") == 0
    m.poll()
    assert m.count("JoinGroup") == 1


def test_the_assignment_is_the_caller_s_before_anything_is_read() -> None:
    m = Member()
    m.join()
    m.synced(m.expect("SyncGroup"), "t-0 t-3")
    m.none("Fetch")
    m.poll()
    assert m.tells() == [("assigned", "t-0 t-3")]
    assert set(m.expect("Fetch").partitions()) == {P0, TopicPartition("t", 3)}


@pytest.mark.parametrize("empty", [b"", b"\x00\x03\x00\x00\x00\x00\xff\xff\xff\xff"])
def test_an_assignment_of_nothing_is_one(empty: bytes) -> None:
    m = Member()
    m.join()
    m.answer(m.expect("SyncGroup"), {"error_code": 0, "assignment": empty, "protocol_name": None})
    m.poll()
    assert m.tells() == [("assigned", "")]
    assert m.state is State.STABLE
    m.beaten()
    assert m.state is State.STABLE


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"protocol": "unheard-of"}, "'unheard-of'.*offered range, cooperative-sticky"),
        ({"generation": -5}, "generation -5"),
    ],
)
def test_a_vote_that_makes_no_sense_ends_it(answer: dict[str, Any], says: str) -> None:
    m = Member()
    m.join(**answer)
    with pytest.raises(ProtocolError, match=says):
        m.poll()
    before = len(m.history)
    m.advance(60_000)
    assert asked_of_group(m, before) == []


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        (b"\x00\x03\x00\x00\x00\x09", "joining again"),
        (b"\xff\xff", "joining again"),
        (b"\x00\x00\x00\x00\x00\x01\x00\x01u\x00\x00\x00\x01\x00\x00\x00\x05\xff\xff\xff\xff", "assigned u-5.*did not subscribe"),
    ],
)
def test_an_assignment_that_makes_no_sense_is_told_and_the_member_joins_again(assignment: bytes, says: str) -> None:
    m = Member()
    m.join()
    m.answer(m.expect("SyncGroup"), {"error_code": 0, "assignment": assignment, "protocol_name": None})
    with pytest.raises(ProtocolError, match=says):
        m.poll()
    m.advance(1)
    m.none("JoinGroup")
    again = within(m, "JoinGroup", 2_000)
    assert again.body["member_id"] == "m-1"
    m.joined(again, generation=2)
    m.synced(m.expect("SyncGroup"), "t-0")
    m.poll()
    assert m.owned == "t-0"


# --- a rebalance during the join --------------------------------------------------------------------------------------


def test_any_number_of_rebalances_during_the_join_is_lived_through() -> None:
    """Ten members arrive one by one."""
    m = Member()
    m.join(generation=1)
    began, times = m.now, []
    for generation in range(2, 14):
        m.synced(m.expect("SyncGroup"), code=27)
        join = within(m, "JoinGroup", 2_000)
        times.append(join.at_ms)
        m.joined(join, generation=generation)
    sync = m.expect("SyncGroup")
    assert sync.body["generation_id"] == 13, "that of the last join"
    m.synced(sync, "t-0")
    m.poll()
    assert (m.owned, m.member.generation) == ("t-0", 13)
    assert m.tells() == [("assigned", "t-0")]
    waits = [b - a for a, b in zip([began, *times], times, strict=False)]
    assert all(wait >= 80 for wait in waits)
    assert waits[-1] >= 800, "ever longer, to a second"


def test_a_rebalance_right_after_the_assignment_is_taken_part_in_afterwards() -> None:
    m = Member()
    m.join()
    m.synced(m.expect("SyncGroup"), "t-0")
    m.beaten(27)
    m.none("JoinGroup")
    m.poll()
    assert m.tells() == [("assigned", "t-0"), ("revoked", "t-0")]
    m.expect("JoinGroup")


# --- the coordinator --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [15, 16, "closed", "late"])
@pytest.mark.parametrize("request_", ["JoinGroup", "SyncGroup", "Heartbeat"])
def test_a_coordinator_that_moved_is_found_again(request_: str, how: int | str) -> None:
    m = Member(nodes=2, max_poll_interval_ms=25_000, session_timeout_ms=90_000)
    m.auto.discard("Heartbeat")
    if request_ == "JoinGroup":
        m.poll()
    elif request_ == "SyncGroup":
        m.join()
    else:
        m.stable()
    m.member.poll_began()  # the caller waits in a poll, so that it is not thrown out for staying away
    asked = next_of(m, request_)
    assert asked.node == 1
    m.coordinator = 2
    if how == "closed":
        m.lose(asked.conn)
    elif how == "late":
        for _ in range(400):
            m.advance(100)
            if asked not in m.asked:
                break
    elif request_ == "JoinGroup":
        m.joined(asked, code=int(how))
    else:
        m.answer(asked, {"error_code": how})
    for _ in range(20):
        m.advance(100)
        m.run()
    again = next(a for a in m.asked if a.api.name == request_)
    assert again.node == 2
    assert again.body | {"reason": ""} == asked.body | {"reason": ""}


def next_of(m: Member, api: str) -> Asked:
    for _ in range(100):
        m.run()
        found = [asked for asked in m.asked if asked.api.name == api]
        if found:
            return found[0]
        m.advance(100)
    raise AssertionError(f"no {api}")


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_coordinator_that_is_not_ready_is_looked_for_until_it_is(code: int) -> None:
    m = Member(nodes=2, by_hand="FindCoordinator")
    m.poll()
    for _ in range(5):
        asked = within(m, "FindCoordinator", 2_000)
        m.answer(asked, {"coordinators": [{"key": "g", "node_id": -1, "host": "", "port": -1, "error_code": code}]})
        m.advance(1)
        m.none("FindCoordinator")
    m.auto.add("FindCoordinator")
    within(m, "JoinGroup", 2_000)


def test_a_group_that_may_not_be_used_is_told_once() -> None:
    m = Member(by_hand="FindCoordinator")
    m.poll()
    asked = m.expect("FindCoordinator")
    m.answer(asked, {"coordinators": [{"key": "g", "node_id": -1, "host": "", "port": -1, "error_code": 30}]})
    with pytest.raises(GroupAuthorizationError, match="not allowed to use group 'g'"):
        m.poll()
    before = len(m.history)
    m.advance(60_000)
    assert m.poll() == []
    assert asked_of_group(m, before) == []


def test_joins_have_a_connection_of_their_own_and_as_long_as_the_group_may_take() -> None:
    m = Member(max_poll_interval_ms=300_000)
    m.poll()
    join = m.expect("JoinGroup")
    m.member.poll_began()
    m.engine.ask_topic("t")
    m.engine.read_committed_offsets([P0])
    m.advance(304_000)
    assert join in m.asked, "longer than any request, and no connection is closed for idling"
    assert join.conn not in {asked.conn for asked in m.history if asked.api.name in ("OffsetFetch", "Metadata")}
    m.advance(1_500)
    assert join not in m.asked


# --- signs of life ----------------------------------------------------------------------------------------------------


def beats(m: Member, since: int = 0) -> list[int]:
    return [asked.at_ms for asked in m.history[since:] if asked.api.name == "Heartbeat"]


def test_heartbeats_go_on_whatever_the_caller_does() -> None:
    m = Member(session_timeout_ms=10_000, heartbeat_interval_ms=3_000)
    m.stable()
    m.auto.add("Heartbeat")
    began = m.now
    m.poll(90_000)
    assert beats(m) == [began + 3_000 * n for n in range(1, 31)], "an idle topic, and one long poll"
    m.advance(60_000)  # between two polls
    assert len(beats(m)) == 50
    assert m.state is State.STABLE


def test_heartbeats_go_on_while_records_are_decoded() -> None:
    m = Member(heartbeat_interval_ms=3_000)
    m.stable("t-0")
    m.auto.add("Heartbeat")
    m.decode_now = False
    m.fetched(m.expect("Fetch"), {0: batch(0)})
    m.advance(12_500)
    assert len(beats(m)) == 4


def test_heartbeats_are_signed_with_what_the_member_is() -> None:
    m = Member()
    m.stable(generation=7)
    body = m.beaten().body
    assert (body["group_id"], body["generation_id"], body["member_id"]) == ("g", 7, "m-1")
    assert body["group_instance_id"] is None


def test_a_leader_sends_heartbeats_while_its_caller_shares_out() -> None:
    m = Member(max_poll_interval_ms=60_000)
    m.join(leader="m-1", members={})
    m.auto.add("Heartbeat")
    m.advance(10_000)
    assert len(beats(m)) == 3
    m.none("SyncGroup")


def test_unreachable_for_a_session_and_nothing_more_is_handed_out() -> None:
    m = Member(session_timeout_ms=10_000, heartbeat_interval_ms=3_000)
    m.stable("t-0")
    m.fetched(m.expect("Fetch"), {0: batch(0)})
    m.beaten()  # its sending is what counts
    alive = m.now
    m.down = {"b1", "boot"}
    for asked in list(m.asked):
        m.lose(asked.conn)
    m.advance(alive + 9_900 - m.now)
    assert m.member.credentials() is not None
    m.advance(200)
    assert m.engine.readahead.has_records
    with pytest.raises(CommitFailedError, match="session of 10000 ms has expired"):
        raise m.member.why_no_commit()
    assert m.poll() == []
    assert m.tells() == [("lost", "t-0")]
    m.advance(30_000)
    assert m.poll() == []
    assert m.tells() == []
    m.down = set()
    join = within(m, "JoinGroup", 5_000)
    assert join.body["member_id"] == "m-1", "the coordinator may still know it"
    assert not sent(join).owned
    m.joined(join, generation=5)
    m.synced(m.expect("SyncGroup"), "t-1")
    m.poll()
    assert m.tells() == [("assigned", "t-1")]


def test_thrown_out_and_then_unreachable() -> None:
    m = Member()
    m.stable("t-0")
    m.fetched(m.expect("Fetch"), {0: batch(0)})
    m.beaten(25)
    m.down = {"b1", "boot"}
    for asked in list(m.asked):
        m.lose(asked.conn)
    assert m.poll() == []
    assert m.tells() == [("lost", "t-0")]
    m.advance(60_000)
    assert m.poll() == []
    assert m.tells() == []
    m.down = set()
    assert within(m, "JoinGroup", 5_000).body["member_id"] == ""


def test_heartbeats_that_are_not_answered_are_given_up_in_time_to_find_another_coordinator() -> None:
    m = Member(nodes=2, session_timeout_ms=9_000, heartbeat_interval_ms=3_000)
    m.stable()
    m.coordinator = 2
    first = next_of(m, "Heartbeat")
    m.auto.add("Heartbeat")
    m.advance(6_000)
    assert first not in m.asked
    assert m.state is State.STABLE
    assert any(asked.api.name == "Heartbeat" and asked.node == 2 for asked in m.history)
    m.advance(20_000)
    assert m.state is State.STABLE
    assert m.poll() == []
    assert m.tells() == []


def test_a_session_is_reckoned_from_when_the_last_heartbeat_was_sent() -> None:
    m = Member(session_timeout_ms=10_000, heartbeat_interval_ms=3_000)
    m.stable("t-0")
    sent_at = next_of(m, "Heartbeat").at_ms
    m.advance(2_500)
    m.beaten()
    m.down = {"b1", "boot"}
    for asked in list(m.asked):
        m.lose(asked.conn)
    m.advance(sent_at + 9_900 - m.now)
    assert m.poll() == []
    assert m.tells() == []
    m.advance(200)
    assert m.poll() == []
    assert m.tells() == [("lost", "t-0")]


def test_a_coordinator_that_falls_silent_is_not_waited_for_as_long_as_a_leader() -> None:
    """SyncGroup may take as long as the leader needs; that there is somebody to wait for at all is told by the heartbeats."""
    m = Member(nodes=2, session_timeout_ms=9_000, max_poll_interval_ms=300_000)
    m.join()
    sync = m.expect("SyncGroup")
    m.auto.add("Heartbeat")
    m.member.poll_began()
    m.advance(100_000)
    assert sync in m.asked
    m.auto.discard("Heartbeat")
    m.coordinator = 2
    m.advance(8_000)
    again = m.expect("SyncGroup")
    assert (again.node, again.body) == (2, sync.body)


def test_a_late_failure_of_the_last_coordinator_says_nothing_of_the_present_one() -> None:
    m = Member(nodes=2)
    m.poll()
    join = m.expect("JoinGroup")
    m.auto.discard("OffsetFetch")
    m.engine.read_committed_offsets([P0])
    m.coordinator = 2
    m.stored(m.expect("OffsetFetch"), {}, code=16)
    m.advance(1_000)
    assert m.expect("OffsetFetch").node == 2
    before = len(m.history)
    m.lose(join.conn)
    m.advance(1_000)
    assert m.expect("JoinGroup").node == 2
    assert "FindCoordinator" not in asked_of_group(m, before)


def test_a_process_that_was_stopped_while_it_joined_is_out_too() -> None:
    """Under the cooperative protocol, where it goes on with what it has while it waits for the others to join."""
    m = Member(session_timeout_ms=10_000, partition_assignment_strategy="cooperative-sticky")
    m.stable("t-0", protocol="cooperative-sticky")
    m.fetched(m.expect("Fetch"), {0: batch(0) + batch(10)})
    m.beaten(27)
    m.duties()
    m.expect("JoinGroup")
    m.auto.add("Heartbeat")
    m.advance(30_000)  # others take long
    assert m.tells() == []
    m.now += 10_500
    assert m.poll() == []
    assert m.tells() == [("lost", "t-0")]


def test_a_process_that_was_stopped_for_a_session_is_out() -> None:
    """SIGSTOP: the clock has gone on and nothing has run. The coordinator may have said nothing of it yet."""
    m = Member(session_timeout_ms=10_000)
    m.stable("t-0")
    m.fetched(m.expect("Fetch"), {0: batch(0)})
    m.beaten()
    m.now += 10_500
    assert m.member.duty(m.now) is not None
    assert m.poll() == []
    assert m.tells() == [("lost", "t-0")]


# --- polls ------------------------------------------------------------------------------------------------------------


def test_waiting_inside_poll_is_polling() -> None:
    m = Member(max_poll_interval_ms=10_000)
    m.stable()
    m.auto.add("Heartbeat")
    m.poll(100_000)
    assert m.state is State.STABLE
    assert m.count("LeaveGroup") == 0


@pytest.mark.parametrize("rebalancing", [False, True])
def test_no_poll_for_too_long_and_the_member_leaves(rebalancing: bool) -> None:
    m = Member(max_poll_interval_ms=20_000)
    m.stable("t-0")
    m.fetched(m.expect("Fetch"), {0: batch(0)})
    left = m.now
    if rebalancing:
        m.beaten(27)
    m.auto.add("Heartbeat")
    m.advance(left + 19_900 - m.now)
    assert m.state is State.STABLE
    m.advance(200)
    leave = next(asked for asked in m.history if asked.api.name == "LeaveGroup")
    assert leave.body["members"][0]["member_id"] == "m-1"
    assert "max.poll.interval.ms" in leave.body["members"][0]["reason"]
    assert m.member.credentials() is None
    with pytest.raises(CommitFailedError, match="longer than max_poll_interval_ms"):
        raise m.member.why_no_commit()
    before = len(m.history)
    m.advance(100_000)
    assert "JoinGroup" not in asked_of_group(m, before), "somebody has to poll first"
    assert m.poll() == []
    assert m.tells() == [("lost", "t-0")]
    assert m.expect("JoinGroup").body["member_id"] == ""


def test_a_static_member_that_does_not_poll_falls_silent() -> None:
    m = Member(max_poll_interval_ms=20_000, group_instance_id="i")
    m.stable()
    m.auto.add("Heartbeat")
    m.advance(20_100)
    before = len(m.history)
    m.advance(60_000)
    assert asked_of_group(m, before) == []
    assert m.count("LeaveGroup") == 0
    m.poll()
    assert m.tells() == [("lost", "t-0 t-1")]


# --- static members ---------------------------------------------------------------------------------------------------


def test_the_instance_id_is_in_all_that_a_static_member_sends_and_it_does_not_leave() -> None:
    m = Member(group_instance_id="i-1")
    m.stable("t-0")
    m.beaten()
    m.engine.commit({P0: OffsetAndMetadata(3)}, m.now + 1_000)
    m.expect("OffsetCommit")
    for api in ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit"):
        asked = [asked for asked in m.history if asked.api.name == api]
        assert asked
        assert all(a.body["group_instance_id"] == "i-1" for a in asked), api
    m.engine.unsubscribe("done", m.now)
    m.advance(5_000)
    assert m.count("LeaveGroup") == 0


@pytest.mark.parametrize("request_", ["JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit"])
def test_a_fenced_member_is_told_once_and_stops(request_: str) -> None:
    m = Member(group_instance_id="i-1")
    if request_ == "JoinGroup":
        m.join(code=82)
    elif request_ == "SyncGroup":
        m.join()
        m.synced(m.expect("SyncGroup"), code=82)
    else:
        m.stable("t-0")
        if request_ == "Heartbeat":
            m.beaten(82)
        else:
            commit = m.engine.commit({P0: OffsetAndMetadata(3)}, m.now + 1_000)
            m.committed(m.expect("OffsetCommit"), {0: 82})
            with pytest.raises(FencedInstanceIdError):
                commit.pending.result()
    with pytest.raises(FencedInstanceIdError, match="group_instance_id"):
        m.poll()
    with pytest.raises(FencedInstanceIdError):
        raise m.member.why_no_commit()
    before = len(m.history)
    for _ in range(6):
        m.advance(20_000)
        assert m.poll() == []
    assert asked_of_group(m, before) == []
    assert m.tells() == ([("lost", "t-0")] if request_ in ("Heartbeat", "OffsetCommit") else [])


def test_a_broker_too_old_for_static_members_is_an_error() -> None:
    m = Member(group_instance_id="i-1", versions={"JoinGroup": (0, 4)})
    with pytest.raises(UnsupportedVersionError, match=r"JoinGroup.*needs 5 to 9"):
        m.poll()
    m.advance(60_000)
    assert m.poll() == []
    assert m.count("JoinGroup") == 0


def test_a_blank_instance_id_is_refused_at_construction() -> None:
    with pytest.raises(ConfigError, match="group_instance_id must not be blank"):
        Member(group_instance_id=" ")


# --- commits ----------------------------------------------------------------------------------------------------------


def test_commits_are_signed_by_the_member_and_not_at_all_without_one() -> None:
    m = Member()
    m.stable("t-0", generation=4)
    m.engine.commit({P0: OffsetAndMetadata(3)}, m.now + 1_000)
    body = m.expect("OffsetCommit").body
    assert (body["generation_id_or_member_epoch"], body["member_id"]) == (4, "m-1")
    m.member.enforce_rebalance("test")
    m.poll()
    assert m.state is State.PREPARING
    assert m.member.credentials() is None
    with pytest.raises(RebalanceInProgressError, match="poll until it has ended"):
        raise m.member.why_no_commit()


@pytest.mark.parametrize(("code", "told"), [(22, "lost"), (25, "lost"), (27, "revoked")])
def test_a_commit_that_is_refused_leads_to_one_join(code: int, told: str) -> None:
    m = Member()
    m.stable("t-0")
    commit = m.engine.commit({P0: OffsetAndMetadata(3)}, m.now + 1_000)
    m.committed(m.expect("OffsetCommit"), {0: code})
    with pytest.raises(RebalanceInProgressError if code == 27 else CommitFailedError):
        commit.pending.result()
    join = within(m, "JoinGroup", 2_000)
    assert join.body["member_id"] == ("" if code == 25 else "m-1")
    assert m.tells() == [(told, "t-0")]
    m.advance(5_000)
    assert m.count("JoinGroup") == 2, "the first join, and this one"
    assert m.count("OffsetCommit") == 1


@pytest.mark.parametrize("code", [22, 25, 82])
def test_a_commit_of_an_old_generation_that_is_refused_does_not_touch_the_new_one(code: int) -> None:
    m = Member()
    m.stable("t-0 t-1", generation=5)
    m.engine.commit({P0: OffsetAndMetadata(3)}, m.now + 60_000)
    old = m.expect("OffsetCommit")
    m.member.enforce_rebalance("test")
    m.poll()
    m.joined(m.expect("JoinGroup"), generation=6)
    m.synced(m.expect("SyncGroup"), "t-1")
    m.poll()
    assert m.expect("Fetch", when=lambda asked: P1 in asked.partitions()), "while the old commit is open"
    m.committed(old, {0: code})
    m.poll()
    assert (m.state, m.owned, m.member.generation, m.member.member_id) == (State.STABLE, "t-1", 6, "m-1")
    assert m.count("JoinGroup") == 2


# --- leaving ----------------------------------------------------------------------------------------------------------


def test_leaving_is_said_once_and_not_repeated() -> None:
    m = Member()
    m.auto.discard("LeaveGroup")
    m.stable()
    m.engine.unsubscribe("the consumer is being closed", m.now)
    leave = m.expect("LeaveGroup")
    assert leave.body["members"] == [{"member_id": "m-1", "group_instance_id": None, "reason": "the consumer is being closed"}]
    assert m.member.is_leaving
    m.lose(leave.conn)
    assert not m.member.is_leaving
    m.advance(60_000)
    assert m.count("LeaveGroup") == 1
    assert m.count("Heartbeat") == 0


def test_nobody_waits_long_for_a_coordinator_to_hear_the_good_bye() -> None:
    m = Member()
    m.auto.discard("LeaveGroup")
    m.stable()
    m.engine.unsubscribe("", m.now)
    m.run()
    m.advance(1_100)
    assert not m.member.is_leaving


@pytest.mark.parametrize("while_", ["joining", "waiting for the assignment", "sharing out"])
def test_leaving_in_mid_join_is_heard_at_once(while_: str) -> None:
    """A broker answers what comes over one connection in order, and a join is answered when all others have joined."""
    m = Member()
    m.poll()
    m.joined(m.expect("JoinGroup"), code=79, member_id="m-1")
    asked = m.expect("JoinGroup")
    if while_ != "joining":
        m.joined(asked, leader="m-1" if while_ == "sharing out" else "m-0", members={})
    m.engine.unsubscribe("", m.now)
    m.advance(500)
    assert m.count("LeaveGroup") == 1
    assert not m.member.is_leaving, "it stands behind the join"
    m.advance(60_000)
    assert m.count("JoinGroup") == 2


def test_who_never_joined_has_nothing_to_leave() -> None:
    m = Member()
    m.engine.unsubscribe("", m.now)
    m.advance(5_000)
    assert set(asked_of_group(m)) <= {"FindCoordinator"}


def test_subscribing_again_is_a_new_member() -> None:
    m = Member()
    m.stable()
    m.engine.unsubscribe("", m.now)
    m.subscribe("t")
    m.poll()
    assert m.expect("JoinGroup").body["member_id"] == ""
    assert m.count("LeaveGroup") == 1


def test_what_was_asked_before_leaving_changes_nothing() -> None:
    m = Member()
    m.auto.discard("LeaveGroup")
    m.stable()
    m.advance(3_000)
    beat = m.expect("Heartbeat")
    m.engine.unsubscribe("", m.now)
    m.subscribe("t")
    m.answer(beat, {"error_code": 25})
    assert m.member.fault is None
    assert m.member.generation == -1


# --- logging ----------------------------------------------------------------------------------------------------------


def test_a_loss_is_logged_once_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    m = Member()
    m.stable()
    m.beaten(25)
    m.poll()
    m.advance(20_000)
    said = [record.getMessage() for record in caplog.records if "are lost" in record.getMessage()]
    assert said == ["group 'g': partitions are lost: Heartbeat was answered with UNKNOWN_MEMBER_ID"]
