"""The consumer protocol (KIP-848) against a coordinator that the test plays: what a heartbeat says, when it is sent, how an
assignment is taken over and given up, and what every error code leads to."""

from __future__ import annotations

from typing import Any

import pytest

from fastfetch.engine.channels import Lane
from fastfetch.engine.consumer_group import REACTIONS, ConsumerGroup, State
from fastfetch.engine.membership import Credentials, Duty, GiveUp, TakeOver
from fastfetch.errors import (
    BrokerError,
    CommitFailedError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    ProtocolError,
    RebalanceInProgressError,
    TopicAuthorizationError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from fastfetch.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from tests.engine.script import Asked, Script, batch

HEARTBEAT = "ConsumerGroupHeartbeat"
T, U = b"t" * 16, b"u" * 16
P0, P1, P2 = (TopicPartition("t", p) for p in range(3))
INTERVAL = 5_000


class Member(Script):
    """Topic "t" has three partitions, "u" one; the group's coordinator is node 1. `polling` says whether the caller is in a
    poll that lasts."""

    def __init__(self, *, versions: tuple[int, int] = (0, 1), **settings: Any) -> None:
        settings = {"group_id": "g", "group_protocol": "consumer", "enable_auto_commit": False} | settings
        super().__init__(3, 2, versions={HEARTBEAT: versions, "Fetch": (4, 17)}, **settings)
        self.topic_ids = {"t": T, "u": U}
        self.leaders["u", 0] = (1, 5)
        self.auto.add("OffsetFetch")
        assert isinstance(self.engine.membership, ConsumerGroup)
        self.member = self.engine.membership

    def _offsetfetch(self, asked: Asked) -> dict[str, Any]:
        """5 is stored for every partition."""
        [group] = asked.body["groups"]
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {"partition_index": p, "committed_offset": 5, "committed_leader_epoch": -1, "metadata": "", "error_code": 0}
                    for p in topic["partition_indexes"]
                ],
            }
            for topic in group["topics"]
        ]
        return {"groups": [{"group_id": "g", "topics": topics, "error_code": 0}]}

    # --- the caller -----------------------------------------------------------------------------------------------------

    def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        self.engine.subscribe(topics, pattern, self.now)
        self.run()

    def poll(self) -> Duty | None:
        """One that is over at once and does nothing of what it is told to do."""
        self.member.poll_began()
        duty = self.member.duty(self.now)
        self.run()
        self.member.poll_ended(self.now)
        return duty

    def do(self, kind: type[GiveUp] | type[TakeOver]) -> tuple[TopicPartition, ...]:
        """A poll is told to do this and does it. Returns the partitions."""
        duty = self.poll()
        assert isinstance(duty, kind)
        self.member.done(duty, self.now)
        self.run()
        return tuple(sorted(duty.partitions))

    def give_up(self, *, lost: bool = False) -> tuple[TopicPartition, ...]:
        duty = self.poll()
        assert isinstance(duty, GiveUp)
        assert duty.is_lost is lost
        return self.do(GiveUp)

    def take_over(self) -> tuple[TopicPartition, ...]:
        return self.do(TakeOver)

    def assigned(self) -> set[TopicPartition]:
        return self.engine.subscription.partitions()

    # --- the coordinator ------------------------------------------------------------------------------------------------

    def beat(
        self,
        asked: Asked | None = None,
        assignment: dict[bytes, list[int]] | None = None,
        topics: list[dict[str, Any]] | None = None,
        **more: Any,
    ) -> None:
        """Answer a heartbeat; with an assignment by topic id, if it is to change."""
        asked = asked or self.expect(HEARTBEAT)
        if assignment is not None:
            topics = [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in assignment.items()]
        body = {
            "error_code": 0,
            "member_id": asked.body["member_id"],
            "member_epoch": asked.body["member_epoch"] or 1,
            "heartbeat_interval_ms": INTERVAL,
            "assignment": None if topics is None else {"topic_partitions": topics},
        }
        self.answer(asked, body | more)

    def refuse(self, code: int, asked: Asked | None = None, message: str | None = None) -> None:
        asked = asked or self.expect(HEARTBEAT)
        self.answer(asked, {"error_code": code, "error_message": message, "member_epoch": 0, "heartbeat_interval_ms": 0})

    def joined(self, assignment: dict[bytes, list[int]] | None = None, *topics: str) -> None:
        """Subscribed, joined with epoch 1, and everything that was assigned taken over and acknowledged."""
        self.subscribe(*(topics or ("t",)))
        self.poll()
        self.beat(assignment={} if assignment is None else assignment)
        if assignment:
            self.take_over()
            self.beat()
        self.none(HEARTBEAT)


def member(**settings: Any) -> Member:
    return Member(**settings)


def owned(asked: Asked) -> dict[bytes, list[int]] | None:
    """What a heartbeat says to own; None if it says nothing."""
    told = asked.body["topic_partitions"]
    return None if told is None else {t["topic_id"]: t["partitions"] for t in told}


def said(asked: Asked) -> set[str]:
    """The fields that are not left to be as they were."""
    usual = {"rebalance_timeout_ms": -1}
    names = {
        "rack_id",
        "rebalance_timeout_ms",
        "subscribed_topic_names",
        "subscribed_topic_regex",
        "server_assignor",
        "topic_partitions",
    }
    return {name for name in names if asked.body.get(name) != usual.get(name)}


# --- joining ------------------------------------------------------------------------------------------------------------


def test_joining_waits_for_a_poll_and_says_everything() -> None:
    m = member(group_remote_assignor="range", client_rack="r1", max_poll_interval_ms=77_000)
    m.subscribe("u", "t")
    m.advance(60_000)
    assert m.count(HEARTBEAT) == 0
    assert m.member.duty(m.now) is None
    assert m.member.wants_pump, "the thread sleeps, and would not notice"
    m.poll()
    asked = m.expect(HEARTBEAT)
    assert asked.version == 1
    assert asked.body == {
        "group_id": "g",
        "member_id": "member-1",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": "r1",
        "rebalance_timeout_ms": 77_000,
        "subscribed_topic_names": ["t", "u"],
        "subscribed_topic_regex": "",
        "server_assignor": "range",
        "topic_partitions": [],
    }
    assert m.engine.channels.nodes[1].channels[Lane.MEMBER].conn == asked.conn
    assert m.member.credentials() is None
    assert isinstance(m.member.why_no_commit(), RebalanceInProgressError)
    m.beat(assignment={}, member_epoch=4)
    assert m.member.credentials() == Credentials(4, "member-1", None)
    assert m.member.group_metadata() == GroupMetadata("g", 4, "member-1", None)
    m.advance(INTERVAL - 1)
    m.none(HEARTBEAT)
    m.advance(1)
    assert m.expect(HEARTBEAT).body["member_epoch"] == 4
    assert said(m.expect(HEARTBEAT)) == set(), "nothing has changed"


def test_the_coordinators_connection_for_heartbeats_carries_nothing_else() -> None:
    m = member()
    m.joined({T: [0, 1, 2]})
    conn = m.engine.channels.nodes[1].channels[Lane.MEMBER].conn
    assert {asked.api.name for asked in m.history if asked.conn == conn} == {HEARTBEAT, "ApiVersions"}


def test_version_0_gives_the_member_id() -> None:
    m = member(versions=(0, 0))
    m.subscribe("t")
    m.poll()
    asked = m.expect(HEARTBEAT)
    assert (asked.version, asked.body["member_id"]) == (0, "")
    m.beat(asked, {}, member_id="from-the-broker")
    assert m.member.credentials() == Credentials(1, "from-the-broker", None)
    m.advance(INTERVAL)
    assert m.expect(HEARTBEAT).body["member_id"] == "from-the-broker"
    m.refuse(25)
    m.advance(1_000)
    assert m.expect(HEARTBEAT).body["member_id"] == "from-the-broker", "kept, also when it joins again"


@pytest.mark.parametrize(("told", "waits"), [(5_000, 5_000), (0, 100), (-1, 100), (1, 100), (2**31 - 1, 60_000), (700, 700)])
def test_the_interval_is_the_brokers_within_reason(told: int, waits: int) -> None:
    m = member()
    m.subscribe("t")
    m.poll()
    m.beat(assignment={}, heartbeat_interval_ms=told)
    m.advance(waits - 1)
    m.none(HEARTBEAT)
    m.advance(1)
    m.beat(heartbeat_interval_ms=told)
    assert m.count(HEARTBEAT) == 2


def test_heartbeats_go_on_without_polls_and_one_at_a_time() -> None:
    m = member(max_poll_interval_ms=100_000)
    m.joined({T: [0]})
    for _ in range(10):
        m.advance(INTERVAL)
        m.beat()
    before = m.count(HEARTBEAT)
    m.advance(2 * INTERVAL + 3_000)
    assert m.count(HEARTBEAT) == before + 1, "the one before is not answered"


# --- the assignment -----------------------------------------------------------------------------------------------------


def test_an_assignment_is_taken_over_by_a_poll_and_acknowledged_at_once() -> None:
    m = member()
    m.subscribe("t")
    m.poll()
    m.beat(assignment={T: [2, 0]})
    assert m.engine.has_news, "a poll that waits must look"
    m.none(HEARTBEAT)
    assert m.assigned() == set()
    duty = m.poll()
    assert isinstance(duty, TakeOver)
    assert sorted(duty.partitions) == [P0, P2]
    assert m.assigned() == {P0, P2}
    m.none(HEARTBEAT)
    assert m.poll() is duty, "until it is done"
    m.member.done(duty, m.now)
    asked = m.expect(HEARTBEAT)
    assert owned(asked) == {T: [0, 2]}
    assert said(asked) == {"topic_partitions"}
    m.beat(asked)
    assert m.poll() is None
    m.none(HEARTBEAT)


def test_what_goes_is_given_up_before_anything_new_is_taken_over() -> None:
    m = member()
    m.joined({T: [0, 1]})
    m.advance(INTERVAL)
    m.beat(assignment={T: [1, 2]}, member_epoch=2)
    assert m.assigned() == {P0, P1}
    assert m.give_up() == (P0,)
    assert m.assigned() == {P1}
    asked = m.expect(HEARTBEAT)
    assert owned(asked) == {T: [1]}, "the next owner waits for this"
    assert asked.body["member_epoch"] == 2
    assert m.take_over() == (P2,)
    m.beat(asked)
    assert owned(m.expect(HEARTBEAT)) == {T: [1, 2]}
    m.beat()
    m.none(HEARTBEAT)
    assert m.poll() is None


def test_partitions_that_stay_keep_position_and_buffer() -> None:
    m = member()
    m.joined({T: [0, 1]})
    m.fetched(m.expect("Fetch", node=1), {0: batch(5, 4)})
    m.advance(INTERVAL)
    m.beat(assignment={T: [0]})
    assert m.give_up() == (P1,)
    assert m.take() == [(0, 5), (0, 6), (0, 7), (0, 8)]


def test_one_target_that_replaces_another_before_a_poll() -> None:
    m = member()
    m.joined({T: [0]})
    for epoch, target in ((2, [1]), (3, [2])):
        m.advance(INTERVAL)
        m.beat(assignment={T: target}, member_epoch=epoch)
    assert m.give_up() == (P0,)
    assert m.take_over() == (P2,)


def test_a_target_that_comes_back_while_its_partitions_are_given_up() -> None:
    m = member()
    m.joined({T: [0, 1]})
    m.advance(INTERVAL)
    m.beat(assignment={T: [0]}, member_epoch=2)
    duty = m.poll()
    m.advance(INTERVAL)
    m.beat(assignment={T: [0, 1]}, member_epoch=3)
    assert m.poll() is duty
    assert m.give_up() == (P1,)
    assert owned(m.expect(HEARTBEAT)) == {T: [0]}
    m.beat()
    assert m.take_over() == (P1,)


def test_heartbeats_during_a_duty_say_what_was_held_before() -> None:
    m = member()
    m.joined({T: [0, 1]})
    m.advance(INTERVAL)
    m.beat(assignment={T: [0]})
    m.poll()
    m.advance(INTERVAL)
    assert owned(m.expect(HEARTBEAT)) is None
    m.lose(m.expect(HEARTBEAT).conn)
    m.advance(1_000)
    assert owned(m.expect(HEARTBEAT)) == {T: [0, 1]}, "everything is said again, and nothing is given up yet"


def test_an_empty_assignment_is_one() -> None:
    m = member()
    m.joined({})
    assert m.poll() is None
    assert owned(m.expect(HEARTBEAT)) == {}
    m.beat()
    assert m.poll() is None
    m.none(HEARTBEAT)
    assert m.member.credentials() is not None


def test_a_target_is_acknowledged_although_the_coordinator_has_been_told_what_is_owned() -> None:
    """Until it hears of them after it has asked, it gives partitions to nobody, not even to this member (seen with Kafka 4.3)."""
    m = member()
    m.joined({T: [0], U: [0]}, "t", "u")
    m.subscribe("t")
    assert m.give_up() == (TopicPartition("u", 0),)
    m.beat()
    assert owned(m.expect(HEARTBEAT)) == {T: [0]}
    m.beat()
    m.advance(INTERVAL)
    m.beat(assignment={T: [0]})
    m.none(HEARTBEAT)
    m.member.poll_began()
    assert m.member.duty(m.now) is None
    assert m.member.wants_pump, "the thread sleeps, and would not notice"
    asked = m.expect(HEARTBEAT)
    assert owned(asked) == {T: [0]}
    assert said(asked) == {"topic_partitions"}
    m.beat(asked)
    assert m.poll() is None
    m.none(HEARTBEAT)


def test_an_acknowledgement_that_gets_lost_is_sent_again() -> None:
    m = member()
    m.joined({T: [0]})
    m.advance(INTERVAL)
    m.beat(assignment={T: [0]})
    m.poll()
    m.lose(m.expect(HEARTBEAT).conn)
    m.advance(1_000)
    assert owned(m.expect(HEARTBEAT)) == {T: [0]}


def test_hostile_assignments() -> None:
    m = member()
    m.subscribe("t")
    m.poll()
    topics = [
        {"topic_id": T, "partitions": [0, 0, -1]},
        {"topic_id": T, "partitions": [1]},
        {"topic_id": bytes(16), "partitions": [0]},
    ]
    m.beat(topics=topics)
    assert m.take_over() == (P0, P1)


# --- names of topics ----------------------------------------------------------------------------------------------------


def test_a_topic_without_a_name_waits_and_the_others_dont() -> None:
    m = member()
    m.topic_ids["t"] = T
    m.subscribe(pattern="[tu]")
    del m.topic_ids["u"]
    m.poll()
    m.beat(assignment={U: [0], T: [1]})
    assert m.take_over() == (P1,)
    m.beat()
    assert m.poll() is None
    before = m.count("Metadata")
    m.advance(3_000)
    assert 2 <= m.count("Metadata") - before <= 10, "asked again, with a back-off"
    m.topic_ids["u"] = U
    m.advance(1_500)
    assert m.take_over() == (TopicPartition("u", 0),)
    assert owned(m.expect(HEARTBEAT)) == {T: [1], U: [0]}


def test_a_partition_that_metadata_have_not_seen_waits() -> None:
    m = member()
    m.joined({T: [0]})
    m.advance(INTERVAL)
    m.beat(assignment={T: [0, 3]})
    assert m.poll() is None
    m.leaders["t", 3] = (1, 5)
    m.advance(1_500)
    assert m.take_over() == (TopicPartition("t", 3),)


def test_a_partition_that_a_broker_behind_does_not_show_is_kept() -> None:
    m = member()
    m.joined({T: [0, 2]})
    del m.leaders["t", 2]
    m.engine.metadata.request_update()
    m.advance(200)
    assert 2 not in m.engine.cluster.topics["t"].partitions
    assert m.poll() is None
    assert m.assigned() == {P0, P2}


def test_ids_are_not_asked_for_once_the_member_has_left() -> None:
    m = member()
    m.joined({T: [0]})
    m.advance(INTERVAL)
    m.beat(assignment={T: [0], b"n" * 16: [0]})
    m.advance(2_000)
    m.engine.unsubscribe("enough", m.now)
    m.run()
    before = m.count("Metadata")
    m.advance(60_000)
    assert m.count("Metadata") == before


def test_a_topic_that_was_created_again_is_another() -> None:
    m = member()
    m.joined({T: [0, 1]})
    m.topic_ids["t"] = b"n" * 16
    m.engine.metadata.request_update()
    m.advance(200)
    assert m.give_up(lost=True) == (P0, P1), "a position in the old one must not be committed for the new one"
    assert owned(m.expect(HEARTBEAT)) == {}
    m.beat(assignment={b"n" * 16: [1]})
    assert m.take_over() == (P1,)
    assert owned(m.expect(HEARTBEAT)) == {b"n" * 16: [1]}


def test_the_coordinator_knows_of_the_new_topic_before_metadata_do() -> None:
    m = member()
    m.joined({T: [0, 1]})
    m.advance(INTERVAL)
    m.beat(assignment={b"n" * 16: [0]})
    assert m.poll() is None, "the id may be that of a topic under the same name: asked first"
    m.topic_ids["t"] = b"n" * 16
    m.advance(1_500)
    assert m.give_up(lost=True) == (P0, P1)
    assert m.take_over() == (P0,)


def test_nobody_waits_for_names_for_ever() -> None:
    m = member()
    m.joined({T: [0, 1]})
    m.advance(INTERVAL)
    m.beat(assignment={b"n" * 16: [0], T: [0]})
    assert m.poll() is None
    m.advance(4_900)
    assert m.poll() is None
    m.advance(200)
    assert m.give_up() == (P1,)


# --- subscriptions ------------------------------------------------------------------------------------------------------


def test_a_changed_subscription_is_told_at_once_and_given_up_where_it_was_left() -> None:
    m = member()
    m.joined({T: [0], U: [0]}, "t", "u")
    m.subscribe("t")
    asked = m.expect(HEARTBEAT)
    assert asked.body["subscribed_topic_names"] == ["t"]
    assert said(asked) == {"subscribed_topic_names"}
    assert m.give_up() == (TopicPartition("u", 0),)
    m.beat(asked, {T: [0]})
    assert owned(m.expect(HEARTBEAT)) == {T: [0]}
    m.beat()
    m.subscribe("t")
    m.beat()
    m.advance(1_000)
    m.none(HEARTBEAT)


def test_a_change_while_a_heartbeat_is_under_way_follows_it_at_once() -> None:
    m = member()
    m.joined({T: [0]})
    m.advance(INTERVAL)
    asked = m.expect(HEARTBEAT)
    m.subscribe("t", "u")
    m.beat(asked)
    assert m.expect(HEARTBEAT).body["subscribed_topic_names"] == ["t", "u"]


def test_a_pattern_goes_to_the_broker() -> None:
    m = member()
    m.subscribe(pattern=r"\pL+")  # RE2's, which is no Python expression
    m.poll()
    asked = m.expect(HEARTBEAT)
    assert (asked.body["subscribed_topic_regex"], asked.body["subscribed_topic_names"]) == (r"\pL+", [])
    m.beat(asked, {U: [0]})
    m.run()
    assert m.take_over() == (TopicPartition("u", 0),)
    assert None not in [asked.body["topics"] for asked in m.history if asked.api.name == "Metadata"], "not all topics"


def test_a_pattern_needs_version_1() -> None:
    m = member(versions=(0, 0))
    m.subscribe(pattern="t.*")
    m.poll()
    m.run()
    assert isinstance(m.member.fault, UnsupportedVersionError)
    assert "ConsumerGroupHeartbeat" in str(m.member.fault)
    assert "by name" in str(m.member.fault)
    assert "classic" in str(m.member.fault)


def test_a_broker_without_the_protocol() -> None:
    m = member()
    del m.versions[HEARTBEAT]
    m.subscribe("t")
    m.poll()
    m.run()
    assert isinstance(m.member.fault, UnsupportedVersionError)
    assert "group_protocol='classic'" in str(m.member.fault)
    m.advance(60_000)
    assert m.count(HEARTBEAT) == 0


def test_enforce_rebalance_is_refused_quietly(caplog: pytest.LogCaptureFixture) -> None:
    m = member()
    m.joined({T: [0]})
    m.member.enforce_rebalance("because")
    m.advance(1_000)
    m.none(HEARTBEAT)
    assert "enforce_rebalance" in caplog.text


# --- errors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [110, 25])
def test_a_member_that_was_thrown_out_loses_all_and_joins_again_with_its_id(code: int) -> None:
    m = member()
    m.joined({T: [0, 1]})
    m.advance(INTERVAL)
    m.refuse(code)
    assert m.member.credentials() is None
    assert isinstance(m.member.why_no_commit(), CommitFailedError)
    m.advance(2_000)
    m.none(HEARTBEAT)  # the caller has not let go yet
    assert m.give_up(lost=True) == (P0, P1)
    m.advance(200)
    asked = m.expect(HEARTBEAT)
    assert (asked.body["member_epoch"], asked.body["member_id"]) == (0, "member-1")
    assert owned(asked) == {}
    assert asked.body["subscribed_topic_names"] == ["t"]
    m.beat(asked, {T: [1]}, member_epoch=9)
    assert m.take_over() == (P1,)
    assert m.member.credentials() == Credentials(9, "member-1", None)


def test_a_member_that_owns_nothing_joins_again_by_itself_with_growing_back_off() -> None:
    m = member()
    m.joined({})
    m.advance(INTERVAL)
    waits = []
    for _ in range(8):
        m.refuse(25)
        start = m.now
        m.none(HEARTBEAT)
        while not any(asked.api.name == HEARTBEAT for asked in m.asked):
            m.advance(10)
        waits.append(m.now - start)
        assert m.expect(HEARTBEAT).body["member_epoch"] == 0
    assert 80 <= waits[0] <= 130
    assert 800 <= waits[-1] <= 1_210
    assert m.poll() is None, "nothing was lost"


def test_lost_while_given_up() -> None:
    """The listener still runs when the coordinator throws this member out."""
    m = member()
    m.joined({T: [0, 1]})
    m.advance(INTERVAL)
    m.beat(assignment={T: [0]})
    duty = m.poll()
    assert isinstance(duty, GiveUp)
    assert not duty.is_lost
    m.advance(INTERVAL)
    m.refuse(110)
    assert m.poll() is duty
    assert duty.is_lost, "no commit any more"
    m.member.done(duty, m.now)
    m.run()
    m.none(HEARTBEAT)
    assert m.give_up(lost=True) == (P0,)
    m.advance(200)
    assert owned(m.expect(HEARTBEAT)) == {}


def test_lost_while_taken_over() -> None:
    m = member()
    m.subscribe("t")
    m.poll()
    m.beat(assignment={T: [0]})
    duty = m.poll()
    assert isinstance(duty, TakeOver)
    m.advance(INTERVAL)
    m.refuse(110)
    m.member.done(duty, m.now)
    m.advance(2_000)
    m.none(HEARTBEAT)
    assert m.give_up(lost=True) == (P0,)
    m.advance(200)
    assert owned(m.expect(HEARTBEAT)) == {}
    assert m.assigned() == set()


def test_loading_is_waited_out_at_the_same_broker() -> None:
    m = member()
    m.joined({T: [0]})
    m.advance(INTERVAL)
    for _ in range(5):
        m.refuse(14)
        m.none(HEARTBEAT)
        m.advance(1_300)
    asked = m.expect(HEARTBEAT)
    assert m.count("FindCoordinator") == 1
    assert owned(asked) == {T: [0]}
    assert said(asked) >= {"subscribed_topic_names", "rebalance_timeout_ms"}, "after an error everything is said"
    assert asked.body["member_epoch"] == 1
    m.beat(asked)
    assert m.poll() is None
    assert m.assigned() == {P0}


@pytest.mark.parametrize("code", [15, 16])
def test_a_coordinator_that_moved_is_looked_for(code: int) -> None:
    m = member()
    m.joined({T: [0]})
    m.coordinator = 2
    m.advance(INTERVAL)
    m.refuse(code)
    m.advance(1_500)
    asked = m.expect(HEARTBEAT, node=2)
    assert owned(asked) == {T: [0]}
    assert asked.body["member_epoch"] == 1
    m.beat(asked)
    assert m.assigned() == {P0}
    assert m.poll() is None


@pytest.mark.parametrize("code", [14, 15, 16])
def test_errors_that_pass_make_no_busy_loop(code: int) -> None:
    m = member()
    m.joined({T: [0]})
    m.advance(INTERVAL)
    before = m.count(HEARTBEAT)
    for _ in range(300):
        m.poll()
        for asked in [asked for asked in m.asked if asked.api.name == HEARTBEAT]:
            m.refuse(code, asked)
        m.advance(100)
    assert m.count(HEARTBEAT) - before <= 45, "30 s"


def test_a_lost_answer_is_asked_for_again_with_everything() -> None:
    m = member()
    m.joined({T: [0]})
    m.advance(INTERVAL)
    m.lose(m.expect(HEARTBEAT).conn)
    m.advance(1_000)
    asked = m.expect(HEARTBEAT)
    assert owned(asked) == {T: [0]}
    assert said(asked) >= {"subscribed_topic_names", "rebalance_timeout_ms"}
    assert asked.body["member_epoch"] == 1, "the broker takes the epoch before the one whose answer was lost"
    m.beat(asked, member_epoch=2)
    assert m.member.epoch == 2


def test_a_coordinator_that_answers_nothing_is_left_after_three_intervals() -> None:
    m = member()
    m.joined({T: [0]})
    m.advance(INTERVAL)
    m.expect(HEARTBEAT)
    m.coordinator = 2
    m.advance(3 * INTERVAL + 1_500)
    m.expect(HEARTBEAT, node=2)


FATAL = {
    24: BrokerError,
    30: GroupAuthorizationError,
    35: BrokerError,
    42: BrokerError,
    81: BrokerError,
    82: FencedInstanceIdError,
    111: BrokerError,
    112: BrokerError,
    128: BrokerError,
    23: BrokerError,
    69: BrokerError,
    -1: BrokerError,
    3: UnknownTopicError,
    22: BrokerError,
    27: BrokerError,
    79: BrokerError,
    113: BrokerError,
    4711: BrokerError,
}


@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("code", sorted(FATAL))
def test_fatal_codes_end_the_membership_with_one_error(code: int, epoch: int) -> None:
    m = member()
    if epoch == 0:
        m.subscribe("t")
        m.poll()
    else:
        m.joined({T: [0]})
        m.advance(INTERVAL)
    m.refuse(code, message="so says the broker")
    fault, m.member.fault = m.member.fault, None
    assert type(fault) is FATAL[code]
    assert isinstance(fault, BrokerError)
    assert fault.code == code
    assert "'g'" in str(fault)
    assert "so says the broker" in str(fault)
    assert m.member.credentials() is None
    assert m.member.why_no_commit() is fault
    if epoch == 1:
        assert m.give_up(lost=True) == (P0,)
    for _ in range(100):
        assert m.poll() is None
        m.advance(1_000)
    m.none(HEARTBEAT)
    assert m.member.fault is None, "told once"
    m.subscribe("t")
    m.none(HEARTBEAT)
    m.poll()
    assert m.expect(HEARTBEAT).body["member_epoch"] == 0, "subscribing anew tries again"


def test_every_code_of_the_table_is_tried_here() -> None:
    assert set(REACTIONS["ConsumerGroupHeartbeat"]) == {14, 15, 16, 25, 29, 110}
    assert not set(FATAL) & set(REACTIONS["ConsumerGroupHeartbeat"])


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_topic_that_may_not_be_read_is_told_and_heartbeats_go_on(epoch: int) -> None:
    m = member()
    if epoch == 0:
        m.subscribe("t")
        m.poll()
    else:
        m.joined({T: [0]})
        m.advance(INTERVAL)
    for _ in range(3):
        m.refuse(29)
        fault, m.member.fault = m.member.fault, None
        assert isinstance(fault, TopicAuthorizationError)
        m.none(HEARTBEAT)
        m.advance(INTERVAL)
    asked = m.expect(HEARTBEAT)
    assert asked.body["member_epoch"] == epoch
    assert owned(asked) == ({T: [0]} if epoch else {})
    m.beat(asked, {T: [0]})
    assert m.poll() is None if epoch else m.take_over() == (P0,)


@pytest.mark.parametrize("epoch", [0, -1, -2])
def test_an_epoch_that_is_none(epoch: int) -> None:
    m = member()
    m.subscribe("t")
    m.poll()
    m.beat(assignment={T: [0]}, member_epoch=epoch)
    assert isinstance(m.member.fault, ProtocolError)
    assert m.poll() is None
    m.advance(60_000)
    assert m.count(HEARTBEAT) == 1


def test_not_allowed_to_find_the_coordinator() -> None:
    m = member()
    m.auto.discard("FindCoordinator")
    m.subscribe("t")
    m.poll()
    found = {"node_id": -1, "host": "", "port": -1, "error_code": 30, "key": "g"}
    m.answer(m.expect("FindCoordinator"), {"coordinators": [found]})
    assert isinstance(m.member.fault, GroupAuthorizationError)


# --- answers that come late ---------------------------------------------------------------------------------------------


def test_an_answer_for_a_membership_that_has_ended_changes_nothing() -> None:
    m = member(max_poll_interval_ms=20_000)
    m.joined({T: [0]})
    m.advance(INTERVAL)
    old = m.expect(HEARTBEAT)
    m.member.commit_refused(25, Credentials(1, "member-1", None), m.now)
    m.give_up(lost=True)
    m.advance(200)
    m.beat(old, {T: [0, 1]}, member_epoch=7)
    assert m.member.credentials() is None
    assert m.poll() is None
    join = m.expect(HEARTBEAT, when=lambda asked: asked.body["member_epoch"] == 0)
    m.beat(join, {T: [2]}, member_epoch=8)
    assert m.take_over() == (P2,)


def test_an_old_refusal_does_not_end_a_new_membership() -> None:
    m = member()
    m.joined({})
    m.advance(INTERVAL)
    old = m.expect(HEARTBEAT)
    m.member.commit_refused(25, Credentials(1, "member-1", None), m.now)
    m.advance(200)
    assert len([asked for asked in m.asked if asked.api.name == HEARTBEAT]) == 2
    m.asked.remove(old)
    m.refuse(110, old)
    assert m.member.state is State.JOINING
    m.beat(assignment={T: [0]}, member_epoch=5)
    assert m.take_over() == (P0,)


# --- commits ------------------------------------------------------------------------------------------------------------


def test_commits_are_signed_with_the_member_epoch() -> None:
    m = member(group_instance_id="i")
    m.joined({T: [0]})
    commit = m.engine.commit({P0: OffsetAndMetadata(6)}, m.now + 60_000)
    asked = m.expect("OffsetCommit")
    assert asked.version == 9
    assert asked.body["generation_id_or_member_epoch"] == 1
    assert (asked.body["member_id"], asked.body["group_instance_id"]) == ("member-1", "i")
    m.committed(asked, {0: 0})
    assert commit.pending.result()


@pytest.mark.parametrize("code", [25, 110])
def test_a_commit_that_says_so_ends_the_membership(code: int) -> None:
    m = member()
    m.joined({T: [0]})
    m.member.commit_refused(code, Credentials(0, "member-1", None), m.now)
    m.member.commit_refused(code, Credentials(1, "another", None), m.now)
    assert m.member.credentials() is not None, "said of others"
    m.member.commit_refused(code, Credentials(1, "member-1", None), m.now)
    assert m.give_up(lost=True) == (P0,)
    m.advance(200)
    assert said(m.expect(HEARTBEAT)) >= {"subscribed_topic_names", "rebalance_timeout_ms", "topic_partitions"}


def test_a_commit_of_a_fenced_instance_is_fatal() -> None:
    m = member(group_instance_id="i")
    m.joined({T: [0]})
    m.member.commit_refused(82, Credentials(1, "member-1", "i"), m.now)
    assert isinstance(m.member.fault, FencedInstanceIdError)
    assert isinstance(m.member.why_no_commit(), FencedInstanceIdError)


def test_a_stale_epoch_brings_the_next_heartbeat_forward_and_the_commit_follows() -> None:
    m = member()
    m.joined({T: [0]})
    m.advance(1_000)
    commit = m.engine.commit({P0: OffsetAndMetadata(6)}, m.now + 60_000)
    m.committed(m.expect("OffsetCommit"), {0: 113})
    m.beat(member_epoch=2)
    m.advance(200)
    asked = m.expect("OffsetCommit")
    assert asked.body["generation_id_or_member_epoch"] == 2
    m.committed(asked, {0: 0})
    assert commit.pending.result() == {P0: OffsetAndMetadata(6)}


def test_stale_epochs_without_end_make_no_busy_loop() -> None:
    m = member()
    m.joined({T: [0]})
    before = m.count(HEARTBEAT)
    for _ in range(100):
        m.member.offset_fetch_refused(113, Credentials(1, "member-1", None), m.now)
        m.run()
        for asked in [asked for asked in m.asked if asked.api.name == HEARTBEAT]:
            m.beat(asked)
        m.advance(10)
    assert m.count(HEARTBEAT) - before <= 11, "1 s"


def test_a_commit_about_something_else_says_nothing_of_the_member() -> None:
    m = member()
    m.joined({T: [0]})
    for code in (3, 12, 14, 29, 4711):
        m.member.commit_refused(code, Credentials(1, "member-1", None), m.now)
    assert m.member.credentials() is not None
    assert m.member.fault is None


# --- not heard of -------------------------------------------------------------------------------------------------------


def test_a_member_that_was_stopped_is_in_doubt_until_it_is_answered() -> None:
    m = member(max_poll_interval_ms=10**8)
    m.joined({T: [0]})
    m.now += 10**6  # SIGSTOP: no pass over the engine meanwhile
    assert m.member.is_in_doubt(m.now)
    assert m.member.duty(m.now) is None
    m.advance(2_000)
    assert m.member.is_in_doubt(m.now)
    m.beat()
    assert not m.member.is_in_doubt(m.now)
    assert m.assigned() == {P0}


def test_an_answer_from_before_the_stop_ends_no_doubt() -> None:
    m = member(max_poll_interval_ms=10**8, request_timeout_ms=10**7)
    m.joined({T: [0]})
    m.advance(INTERVAL)
    old = m.expect(HEARTBEAT)
    m.now += 3 * INTERVAL + 1
    m.asked.remove(old)
    m.engine.handle(*_frame(m, old))
    assert m.member.is_in_doubt(m.now), "the coordinator wrote this before"
    m.refuse(25)
    assert m.give_up(lost=True) == (P0,)


def _frame(m: Member, asked: Asked) -> tuple[Any, int]:
    from fastfetch.engine.events import FrameArrived
    from fastfetch.protocol import encode_response

    body = {"error_code": 0, "member_id": "member-1", "member_epoch": 1, "heartbeat_interval_ms": INTERVAL, "assignment": None}
    return FrameArrived(asked.conn, encode_response(asked.api, asked.version, asked.correlation_id, body)[4:]), m.now


def test_doubt_begins_by_the_clock(caplog: pytest.LogCaptureFixture) -> None:
    m = member(max_poll_interval_ms=10**8)
    m.joined({T: [0]})
    heard = m.now
    m.advance(INTERVAL)
    m.expect(HEARTBEAT)
    m.advance(heard + 3 * INTERVAL - m.now)
    assert "nothing is handed out" not in caplog.text
    assert m.engine.wake_at_ms == m.now + 1
    m.advance(1)
    assert caplog.text.count("nothing is handed out") == 1
    m.advance(60_000)
    assert caplog.text.count("nothing is handed out") == 1


def test_a_coordinator_out_of_reach_leads_to_doubt_and_back() -> None:
    m = member(max_poll_interval_ms=10**8)
    m.joined({T: [0]})
    m.down = {"b1"}
    m.lose(m.engine.channels.nodes[1].channels[Lane.MEMBER].conn)
    m.advance(3 * INTERVAL)
    assert not m.member.is_in_doubt(m.now)
    m.advance(1)
    assert m.member.is_in_doubt(m.now)
    m.advance(120_000)
    assert m.assigned() == {P0}, "the coordinator decides, and has not"
    m.down = set()
    m.advance(2_000)
    asked = m.expect(HEARTBEAT)
    assert asked.body["member_epoch"] == 1
    m.beat(asked)
    assert not m.member.is_in_doubt(m.now)


def test_heartbeats_in_time_leave_no_doubt() -> None:
    m = member(max_poll_interval_ms=10**8)
    m.joined({T: [0]})
    for _ in range(5):
        m.advance(INTERVAL)
        assert not m.member.is_in_doubt(m.now)
        m.beat()
    assert not member().member.is_in_doubt(10**9), "no member, no doubt"


# --- leaving ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_no_poll_for_too_long_leaves_and_loses(instance: str | None, epoch: int) -> None:
    m = member(max_poll_interval_ms=12_000, group_instance_id=instance)
    m.joined({T: [0]})
    m.advance(INTERVAL)
    m.beat()
    m.advance(INTERVAL)
    m.beat()
    m.advance(2_000)
    asked = m.expect(HEARTBEAT)
    assert (asked.body["member_epoch"], asked.body["instance_id"]) == (epoch, instance)
    assert m.member.credentials() is None
    assert "max_poll_interval_ms" in str(m.member.why_no_commit())
    m.beat(asked)
    m.advance(60_000)
    m.none(HEARTBEAT)  # until somebody polls
    assert m.give_up(lost=True) == (P0,)
    m.poll()
    asked = m.expect(HEARTBEAT)
    assert (asked.body["member_epoch"], asked.body["member_id"]) == (0, "member-1")


def test_a_member_that_nobody_polls_does_not_come_back_by_itself() -> None:
    m = member(max_poll_interval_ms=12_000)
    m.joined({})
    for _ in range(2):
        m.advance(INTERVAL)
        m.beat()
    m.advance(2_000)
    m.beat()
    m.advance(60_000)
    m.none(HEARTBEAT)
    m.poll()
    assert m.expect(HEARTBEAT).body["member_epoch"] == 0


def test_time_in_a_poll_is_not_time_without_one() -> None:
    m = member(max_poll_interval_ms=12_000)
    m.joined({T: [0]})
    m.member.poll_began()
    for _ in range(10):
        m.advance(INTERVAL)
        m.beat()
    assert m.assigned() == {P0}
    assert m.member.credentials() is not None


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_unsubscribing_leaves(instance: str | None, epoch: int) -> None:
    m = member(group_instance_id=instance)
    m.joined({T: [0]})
    duty = m.member.duty_before_leaving(m.now)
    assert duty is not None
    assert duty.partitions == (P0,)
    assert not duty.is_lost
    m.engine.unsubscribe("enough", m.now)
    assert m.member.is_leaving
    asked = m.expect(HEARTBEAT)
    assert (asked.body["member_epoch"], asked.body["member_id"], asked.body["instance_id"]) == (epoch, "member-1", instance)
    m.beat(asked)
    assert not m.member.is_leaving
    m.advance(60_000)
    m.none(HEARTBEAT)


def test_subscribing_again_joins_once_the_good_bye_is_answered() -> None:
    m = member()
    m.joined({T: [0]})
    m.engine.unsubscribe("enough", m.now)
    m.subscribe("u")
    m.poll()
    [goodbye] = [asked for asked in m.asked if asked.api.name == HEARTBEAT]
    assert goodbye.body["member_epoch"] == -1
    m.beat(goodbye)
    asked = m.expect(HEARTBEAT)
    assert (asked.body["member_epoch"], asked.body["subscribed_topic_names"], owned(asked)) == (0, ["u"], {})
    m.beat(asked, {U: [0]})
    assert m.take_over() == (TopicPartition("u", 0),)


def test_leaving_while_joining() -> None:
    m = member()
    m.subscribe("t")
    m.poll()
    join = m.expect(HEARTBEAT)
    m.engine.unsubscribe("enough", m.now)
    m.run()
    assert [asked.body["member_epoch"] for asked in m.asked if asked.api.name == HEARTBEAT] == [0, -1], "in this order"
    m.beat(join, {T: [0]})
    assert m.member.credentials() is None
    m.beat()
    assert not m.member.is_leaving


def test_nobody_waits_long_for_a_coordinator_to_leave() -> None:
    m = member()
    m.joined({T: [0]})
    m.down = {"b1"}
    m.lose(m.engine.channels.nodes[1].channels[Lane.MEMBER].conn)
    m.engine.unsubscribe("enough", m.now)
    m.advance(1_000)
    assert not m.member.is_leaving
    assert m.engine.has_news


def test_a_good_bye_that_nobody_answers_holds_up_nothing() -> None:
    m = member()
    m.joined({T: [0]})
    m.engine.unsubscribe("enough", m.now)
    goodbye = m.expect(HEARTBEAT)
    m.subscribe("t")
    m.poll()
    m.advance(999)
    assert m.member.is_leaving
    m.advance(1)
    assert not m.member.is_leaving
    assert [asked.body["member_epoch"] for asked in m.asked if asked.api.name == HEARTBEAT] == [-1, 0]
    m.beat(goodbye)
    m.beat(assignment={T: [0]})
    assert m.take_over() == (P0,)


def test_a_late_answer_to_a_good_bye_does_not_end_the_next_one() -> None:
    m = member()
    m.joined({T: [0]})
    m.engine.unsubscribe("enough", m.now)
    first = m.expect(HEARTBEAT)
    m.advance(1_000)
    m.subscribe("t")
    m.poll()
    m.engine.unsubscribe("enough", m.now)
    m.run()
    m.beat(first)
    assert m.member.is_leaving
    m.advance(1_000)
    assert not m.member.is_leaving


def test_who_is_no_member_says_no_good_bye() -> None:
    m = member()
    m.subscribe("t")
    m.engine.unsubscribe("enough", m.now)
    assert not m.member.is_leaving
    m.advance(10_000)
    assert m.count(HEARTBEAT) == 0


def test_a_member_that_leaves_while_it_is_lost_hears_so() -> None:
    m = member()
    m.joined({T: [0]})
    m.advance(INTERVAL)
    m.refuse(110)
    duty = m.member.duty_before_leaving(m.now)
    assert duty is not None
    assert duty.is_lost
    m.engine.unsubscribe("enough", m.now)
    assert not m.member.is_leaving, "it is out already"


def test_a_consumer_with_assign_says_nothing() -> None:
    m = member()
    m.assign(0)
    m.advance(60_000)
    assert m.count(HEARTBEAT) == 0
    assert not m.member.is_active
