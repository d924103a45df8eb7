"""What a consumer does for its group in the caller's thread: listeners, assignors, commits around a rebalance, leaving.

Against the broker of fastfetch.testing, over TCP; what the engine does by itself is in tests/engine/test_coordinator.py.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, ClassVar

import pytest

from fastfetch import AsyncConsumer, Consumer, OffsetAndMetadata, RebalanceListener, TopicPartition
from fastfetch.assignors import Assignment, Assignor, GroupCluster, RangeAssignor, Subscription
from fastfetch.errors import (
    ClosedError,
    CommitFailedError,
    FencedInstanceIdError,
    RebalanceInProgressError,
    TopicAuthorizationError,
    UsageError,
    WakeupError,
)
from fastfetch.testing import Broker, delay, drop, encode_batch, error

TOPIC = "orders"
P0, P1, P2, P3 = (TopicPartition(TOPIC, p) for p in range(4))
PARTITIONS = 4
RECORDS = 100  # in each
PROTOCOLS = ("range", "cooperative-sticky", "consumer")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(consumer_heartbeat=0.1) as broker:
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            for turn in range(10):
                broker.append(TOPIC, partition, encode_batch([b"%d" % (10 * turn + i) for i in range(10)]))
        yield broker


def settings_of(broker: Broker, protocol: str = "range", **more: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers, "group_id": "g", "auto_offset_reset": "earliest", "fetch_max_wait_ms": 50,
        "retry_backoff_ms": 10,
    }  # fmt: skip
    if protocol == "consumer":
        settings["group_protocol"] = "consumer"
    else:
        settings |= {"partition_assignment_strategy": protocol, "heartbeat_interval_ms": 50, "session_timeout_ms": 5_000}
    return settings | more


class Log(RebalanceListener):
    """Notes what it hears as (what, partitions); `then` is called with the same."""

    def __init__(self, then: Callable[[str, list[TopicPartition]], object] = lambda what, partitions: None) -> None:
        self.heard: list[tuple[str, list[int]]] = []
        self.then = then

    def _note(self, what: str, partitions: Collection[TopicPartition]) -> None:
        self.heard.append((what, sorted(tp.partition for tp in partitions)))
        self.then(what, sorted(partitions))

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._note("assigned", partitions)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._note("revoked", partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._note("lost", partitions)


def poll_until(condition: Callable[[], object], *consumers: Consumer, seconds: float = 20) -> dict[TopicPartition, list[int]]:
    """Poll them in turn; returns the offsets they got."""
    got: dict[TopicPartition, list[int]] = {}
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        for consumer in consumers:
            for tp, records in consumer.poll(20).items():
                got.setdefault(tp, []).extend(record.offset for record in records)
    return got


def joined(consumer: Consumer, count: int = PARTITIONS) -> dict[TopicPartition, list[int]]:
    return poll_until(lambda: len(consumer.assignment()) == count, consumer)


def is_read(consumer: Consumer) -> bool:
    """It has everything, to the end."""
    return len(consumer.assignment()) == PARTITIONS and all(consumer.position(tp) == RECORDS for tp in consumer.assignment())


# --- two members --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_and_every_record_comes_once(broker: Broker, protocol: str) -> None:
    settings = settings_of(broker, protocol, max_poll_records=7, auto_commit_interval_ms=0)
    logs = Log(), Log()
    with Consumer(settings) as one, Consumer(settings) as two:
        one.subscribe([TOPIC], listener=logs[0])
        got = joined(one)
        two.subscribe([TOPIC], listener=logs[1])
        more = poll_until(lambda: len(one.assignment()) == len(two.assignment()) == 2, one, two)
        assert one.assignment() | two.assignment() == {P0, P1, P2, P3}
        last = poll_until(lambda: broker.committed("g").keys() == {P0, P1, P2, P3}
                          and all(at.offset == RECORDS for at in broker.committed("g").values()), one, two)  # fmt: skip
        kept = one.assignment()
        two.close()
        poll_until(lambda: len(one.assignment()) == PARTITIONS, one)
    for tp in (P0, P1, P2, P3):
        assert got.get(tp, []) + more.get(tp, []) + last.get(tp, []) == list(range(RECORDS))
    moved = sorted(tp.partition for tp in {P0, P1, P2, P3} - kept)
    heard = [each for each in logs[0].heard if each[1] or protocol == "range"]
    assert heard[0] == ("assigned", [0, 1, 2, 3])
    if protocol == "range":
        stay = sorted(tp.partition for tp in kept)
        assert heard[1:] == [("revoked", [0, 1, 2, 3]), ("assigned", stay), ("revoked", stay), ("assigned", [0, 1, 2, 3]),
                             ("revoked", [0, 1, 2, 3])]  # fmt: skip
    else:  # only what moves
        assert heard[1:] == [("revoked", moved), ("assigned", moved), ("revoked", [0, 1, 2, 3])]
    assert [each for each in logs[1].heard if each[1]] == [("assigned", moved), ("revoked", moved)]


def test_what_stays_under_the_cooperative_protocol_keeps_position_pause_and_records(broker: Broker) -> None:
    settings = settings_of(broker, "cooperative-sticky", enable_auto_commit=False)
    with Consumer(settings) as one, Consumer(settings) as two:
        one.subscribe([TOPIC])
        joined(one)
        for tp in one.assignment():
            one.seek(tp, 50)
        one.pause(one.assignment())
        two.subscribe([TOPIC])
        poll_until(lambda: len(two.assignment()) == 2, one, two)
        poll_until(lambda: broker.group("g").state == "Stable", one, two)
        kept = one.assignment()
        assert len(kept) == 2
        assert one.paused() == kept
        assert {one.position(tp) for tp in kept} == {50}
        fetches = len(broker.requests("OffsetFetch"))
        one.resume(kept)
        first = poll_until(lambda: all(one.position(tp) == RECORDS for tp in kept), one)
        assert all(offsets == list(range(50, RECORDS)) for offsets in first.values())
        assert len(broker.requests("OffsetFetch")) == fetches


# --- listeners ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_listener_seeks_before_any_record_comes(broker: Broker, protocol: str) -> None:
    with Consumer(settings_of(broker, protocol)) as consumer:

        def seek(what: str, partitions: list[TopicPartition]) -> None:
            if what == "assigned":
                assert consumer.assignment() >= set(partitions)
                for tp in partitions:
                    consumer.seek(tp, 90 + tp.partition)

        consumer.subscribe([TOPIC], listener=Log(seek))
        got = poll_until(lambda: is_read(consumer), consumer)
    assert got == {tp: list(range(90 + tp.partition, RECORDS)) for tp in (P0, P1, P2, P3)}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("by_hand", ["sync", "async"])
def test_what_a_listener_commits_counts(broker: Broker, protocol: str, by_hand: str) -> None:
    settings = settings_of(broker, protocol, enable_auto_commit=False)
    with Consumer(settings) as one, Consumer(settings) as two:

        def commit(what: str, partitions: list[TopicPartition]) -> None:
            if what == "revoked" and partitions:
                assert one.assignment() >= set(partitions)
                offsets = {tp: 11 + tp.partition for tp in partitions}
                one.commit(offsets) if by_hand == "sync" else one.commit_async(offsets)

        one.subscribe([TOPIC], listener=Log(commit))
        joined(one)
        two.subscribe([TOPIC])
        poll_until(lambda: len(two.assignment()) == 2, one, two)
        assert {tp: broker.committed("g")[tp].offset for tp in two.assignment()} == {
            tp: 11 + tp.partition for tp in two.assignment()
        }
        assert {tp: two.position(tp) - 11 for tp in two.assignment()} != {}  # and that is where the other one begins
        one.close()
    assert {tp: at.offset for tp, at in broker.committed("g").items()} == {tp: 11 + tp.partition for tp in (P0, P1, P2, P3)}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("when", ["assigned", "revoked"])
def test_what_a_listener_raises_comes_out_of_poll_and_all_goes_on(broker: Broker, protocol: str, when: str) -> None:
    settings = settings_of(broker, protocol)
    with Consumer(settings) as one, Consumer(settings) as two:
        raised: list[str] = []

        def fail_once(what: str, partitions: list[TopicPartition]) -> None:
            if what == when and partitions and not raised:
                raised.append(what)
                raise ValueError(f"no {what}")

        log = Log(fail_once)
        one.subscribe([TOPIC], listener=log)
        if when == "assigned":
            with pytest.raises(ValueError, match="no assigned"):
                joined(one)
            assert len(one.assignment()) == PARTITIONS
        got = poll_until(lambda: len(one.assignment()) == PARTITIONS and one.position(P0) == RECORDS, one)
        assert got[P0] == list(range(RECORDS))
        two.subscribe([TOPIC])
        if when == "revoked":
            with pytest.raises(ValueError, match="no revoked"):
                poll_until(lambda: False, one, two)
        poll_until(lambda: len(one.assignment()) == len(two.assignment()) == 2, one, two)
        assert one.assignment().isdisjoint(two.assignment())


def test_a_listener_may_be_any_object_and_need_not_know_of_losses(broker: Broker) -> None:
    class Revoked:
        heard: ClassVar[list[int]] = []

        def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            self.heard.extend(tp.partition for tp in partitions)

    with Consumer(settings_of(broker)) as consumer:
        consumer.subscribe([TOPIC], listener=Revoked())  # type: ignore[arg-type]
        joined(consumer)
        broker.on("Heartbeat", error(25))
        poll_until(lambda: Revoked.heard, consumer)
    assert sorted(Revoked.heard)[:4] == [0, 1, 2, 3]


def test_calls_that_a_listener_may_not_make(broker: Broker) -> None:
    with Consumer(settings_of(broker)) as consumer:

        def poll(what: str, partitions: list[TopicPartition]) -> None:
            if what == "assigned":
                for call in (lambda: consumer.poll(0), lambda: consumer.poll_blocks(0), consumer.unsubscribe):
                    with pytest.raises(UsageError, match="not from within a rebalance listener"):
                        call()
                with pytest.raises(UsageError, match="another thread is in a call"):
                    raise_of(consumer.assignment)

        consumer.subscribe([TOPIC], listener=Log(poll))
        joined(consumer)


def raise_of(call: Callable[[], object]) -> None:
    """Raise here what a call raises in another thread."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as failure:
            raised.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


# --- losing -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_partitions_of_a_member_that_was_thrown_out_are_lost_not_revoked_and_not_committed(broker: Broker, protocol: str) -> None:
    api = "ConsumerGroupHeartbeat" if protocol == "consumer" else "Heartbeat"
    refused: list[Exception] = []
    with Consumer(settings_of(broker, protocol)) as consumer:

        def commit(what: str, partitions: list[TopicPartition]) -> None:
            if what == "lost":
                with pytest.raises(CommitFailedError, match="no member") as caught:
                    consumer.commit({P0: 5})
                refused.append(caught.value)

        log = Log(commit)
        consumer.subscribe([TOPIC], listener=log)
        got = joined(consumer)
        while not got.get(P0):
            got |= consumer.poll(100)  # type: ignore[arg-type]
        broker.on(api, error(25))
        poll_until(lambda: refused, consumer)
        assert broker.committed("g") == {}
        again = poll_until(lambda: len(consumer.assignment()) == PARTITIONS and consumer.position(P0) == RECORDS, consumer)
        assert again[P0] == list(range(RECORDS))  # from the last commit, which is none
    assert [what for what, partitions in log.heard if partitions][:3] == ["assigned", "lost", "assigned"]


def test_iteration_stops_with_the_partition(broker: Broker) -> None:
    with Consumer(settings_of(broker)) as consumer:
        consumer.subscribe([TOPIC])
        records = iter(consumer)
        next(records)
        broker.on("JoinGroup", delay(60))
        broker.on("Heartbeat", error(25))
        deadline = time.monotonic() + 10
        while consumer._engine.membership.credentials() is not None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        stopped = threading.Timer(0.5, consumer.wakeup)
        stopped.start()
        with pytest.raises(WakeupError):
            next(records)
        stopped.join()


def test_no_poll_for_too_long(broker: Broker) -> None:
    log = Log()
    with Consumer(settings_of(broker, max_poll_interval_ms=300, session_timeout_ms=5_000)) as consumer:
        consumer.subscribe([TOPIC], listener=log)
        joined(consumer)
        consumer.poll(1_000)  # time inside a poll does not count
        assert not broker.requests("LeaveGroup")
        deadline = time.monotonic() + 10
        while not broker.requests("LeaveGroup"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        with pytest.raises(CommitFailedError, match=r"max_poll_interval_ms \(300\).*max_poll_records"):
            consumer.commit({P0: 1})
        assert log.heard == [("assigned", [0, 1, 2, 3])]
        poll_until(lambda: len(log.heard) >= 3, consumer)
        assert log.heard[1:3] == [("lost", [0, 1, 2, 3]), ("assigned", [0, 1, 2, 3])]


def test_a_fenced_member_says_so_once_and_stays_out(broker: Broker) -> None:
    log = Log()
    with Consumer(settings_of(broker, group_instance_id="a")) as consumer:
        consumer.subscribe([TOPIC], listener=log)
        joined(consumer)
        broker.on("Heartbeat", error(82))
        with pytest.raises(FencedInstanceIdError, match="group_instance_id"):
            poll_until(lambda: False, consumer)
        joins = len(broker.requests("JoinGroup"))
        beats = len(broker.requests("Heartbeat"))
        assert log.heard[-1] == ("lost", [0, 1, 2, 3])
        for _ in range(5):
            assert consumer.poll(50) == {}
        with pytest.raises(FencedInstanceIdError):
            consumer.commit({P0: 1})
        assert (len(broker.requests("JoinGroup")), len(broker.requests("Heartbeat"))) == (joins, beats)
        consumer.subscribe([TOPIC], listener=log)
        joined(consumer)


def test_a_topic_that_may_not_be_read(broker: Broker) -> None:
    broker.on("Metadata", error(29, topic=TOPIC), times=None)
    with Consumer(settings_of(broker)) as consumer:
        consumer.subscribe([TOPIC])
        with pytest.raises(TopicAuthorizationError, match="'orders'"):
            poll_until(lambda: False, consumer)


# --- commits around a rebalance -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_was_handed_out_is_committed_before_partitions_go(broker: Broker, protocol: str) -> None:
    settings = settings_of(broker, protocol, auto_commit_interval_ms=10**6, max_poll_records=10)
    with Consumer(settings) as one, Consumer(settings) as two:
        one.subscribe([TOPIC])
        got = joined(one)
        more = poll_until(lambda: all(one.position(tp) >= 10 for tp in one.assignment()), one)
        two.subscribe([TOPIC])
        last = poll_until(lambda: len(two.assignment()) == 2, one, two)
        for tp in two.assignment():
            read = got.get(tp, []) + more.get(tp, []) + last.get(tp, [])
            assert read == list(range(len(read)))  # no record twice, none left out, across the two


def test_a_poll_returns_in_time_while_the_commit_before_a_rebalance_is_not_answered(broker: Broker) -> None:
    log = Log()
    with Consumer(settings_of(broker)) as consumer:
        consumer.subscribe([TOPIC], listener=log)
        joined(consumer)
        poll_until(lambda: consumer.position(P0) == RECORDS, consumer)
        broker.on("OffsetCommit", delay(1.0))
        consumer.enforce_rebalance("a test")
        began = time.monotonic()
        assert consumer.poll(100) == {}
        assert consumer.poll(0) == {}
        assert time.monotonic() - began < 0.8
        assert log.heard == [("assigned", [0, 1, 2, 3])]
        assert len(broker.requests("JoinGroup")) == 2  # the first one was asked to come back with its id
        poll_until(lambda: len(log.heard) >= 3, consumer)
        assert len(broker.requests("OffsetCommit")) == 1
        assert broker.committed("g")[P0].offset == RECORDS
    assert broker.requests("JoinGroup")[-1].body["reason"] == "a test"


def test_wakeup_in_the_middle_of_that(broker: Broker) -> None:
    log = Log()
    with Consumer(settings_of(broker)) as consumer:
        consumer.subscribe([TOPIC], listener=log)
        joined(consumer)
        poll_until(lambda: consumer.position(P0) == RECORDS, consumer)
        broker.on("OffsetCommit", delay(1.0))
        consumer.enforce_rebalance()
        waker = threading.Timer(0.1, consumer.wakeup)
        waker.start()
        with pytest.raises(WakeupError):
            consumer.poll(10_000)
        waker.join()
        assert log.heard == [("assigned", [0, 1, 2, 3])]
        poll_until(lambda: len(log.heard) >= 3, consumer)
        assert [what for what, _ in log.heard] == ["assigned", "revoked", "assigned"]


def test_a_commit_while_the_group_rebalances(broker: Broker) -> None:
    with Consumer(settings_of(broker, enable_auto_commit=False)) as consumer:
        consumer.subscribe([TOPIC])
        joined(consumer)
        broker.on("SyncGroup", delay(0.5))
        consumer.enforce_rebalance()
        consumer.poll(50)
        commits = len(broker.requests("OffsetCommit"))
        told: list[Exception | None] = []
        with pytest.raises(RebalanceInProgressError, match="poll until it has ended"):
            consumer.commit({P0: 1})
        consumer.commit_async({P0: 1}, lambda offsets, failure: told.append(failure))
        joined(consumer)
        assert isinstance(told[0], RebalanceInProgressError)
        assert len(broker.requests("OffsetCommit")) == commits
        consumer.commit({P0: OffsetAndMetadata(1, "note")})
        assert broker.committed("g")[P0].metadata == "note"


def test_commits_carry_generation_and_member(broker: Broker) -> None:
    with Consumer(settings_of(broker, group_instance_id="i")) as consumer:
        consumer.subscribe([TOPIC])
        joined(consumer)
        consumer.commit({P0: 3})
        me = consumer.group_metadata()
        body = broker.requests("OffsetCommit")[-1].body
        assert (body["generation_id_or_member_epoch"], body["member_id"], body["group_instance_id"]) == me[1:]
        assert me.group_id == "g"
        assert me.generation_id >= 1
        assert me.member_id
    assert not broker.requests("LeaveGroup")  # a static member may come back


# --- subscriptions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_changing_the_subscription(broker: Broker, protocol: str) -> None:
    broker.create_topic("bills", partitions=2)
    log = Log()
    with Consumer(settings_of(broker, protocol)) as consumer:
        consumer.subscribe([TOPIC], listener=log)
        joined(consumer)
        consumer.subscribe([TOPIC, "bills"], listener=log)
        joined(consumer, 6)
        consumer.subscribe(["bills"], listener=log)
        got = joined(consumer, 2)
        assert consumer.assignment() == {TopicPartition("bills", p) for p in range(2)}
        assert got.keys() <= {P0, P1, P2, P3}
        assert consumer.subscription() == {"bills"}
        consumer.unsubscribe()
        assert consumer.assignment() == set()
        assert log.heard[-1] == ("revoked", [0, 1])
        with pytest.raises(UsageError, match="subscribe"):
            consumer.poll()
        poll_until(lambda: not broker.group("g").members)
        consumer.subscribe([TOPIC])
        joined(consumer)
        consumer.subscribe([])
        consumer.assign([P0])
        assert consumer.assignment() == {P0}


def test_a_pattern_finds_topics_that_are_made_later(broker: Broker) -> None:
    broker.create_topic("order", partitions=1)  # not the whole name
    with Consumer(settings_of(broker, metadata_max_age_ms=100)) as consumer:
        consumer.subscribe(pattern="orders.*")
        joined(consumer)
        assert consumer.subscription() == {TOPIC}
        broker.create_topic("orders-2", partitions=3)
        joined(consumer, 7)
        broker.add_partitions("orders-2", 4)
        joined(consumer, 8)


def test_usage(broker: Broker) -> None:
    with Consumer(settings_of(broker)) as consumer:
        consumer.subscribe(TOPIC)
        with pytest.raises(UsageError, match="unsubscribe"):
            consumer.assign([P0])
        with pytest.raises(UsageError, match="unsubscribe"):
            consumer.subscribe(pattern="x")
        for bad in ([""], [5], [None]):
            with pytest.raises(UsageError, match="names of topics"):
                consumer.subscribe(bad)  # type: ignore[arg-type]
        joined(consumer)
        with pytest.raises(UsageError, match="its group gave it to nobody, or to another"):
            consumer.seek(TopicPartition("bills", 0), 1)
    with Consumer(settings_of(broker)) as consumer, pytest.raises(UsageError, match="subscribe"):
        consumer.enforce_rebalance()


# --- assignors of users -------------------------------------------------------------------------------------------------


class AllToOne(Assignor):
    """Everything to the member whose user data is the greatest."""

    name = "all-to-one"

    def __init__(self, rank: bytes) -> None:
        self.rank = rank
        self.assignments: list[tuple[int, int]] = []

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        assert set(topics) == {TOPIC}
        return self.rank

    def assign(self, cluster: GroupCluster, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        first = max(subscriptions, key=lambda member: subscriptions[member].user_data or b"")
        everything = tuple(TopicPartition(topic, p) for topic, count in cluster.partitions.items() for p in range(count))
        return {member: Assignment(everything if member == first else (), b"hello") for member in subscriptions}

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        assert assignment.user_data == b"hello"
        self.assignments.append((generation, len(assignment.partitions)))


def test_an_assignor_of_the_user_s(broker: Broker) -> None:
    low, high = AllToOne(b"1"), AllToOne(b"2")
    with (
        Consumer(settings_of(broker, partition_assignment_strategy=[low, "range"])) as one,
        Consumer(settings_of(broker, partition_assignment_strategy=["roundrobin", high])) as two,
    ):
        one.subscribe([TOPIC])
        joined(one)
        two.subscribe([TOPIC])
        poll_until(lambda: len(two.assignment()) == PARTITIONS, one, two)
        assert broker.group("g").protocol == "all-to-one"  # the only one that both have
        poll_until(lambda: len(low.assignments) == 2, one, two)
        assert low.assignments == [(1, 4), (2, 0)]
        assert high.assignments == [(2, 4)]


@pytest.mark.parametrize("what", ["raises", "strangers", "nonsense"])
def test_an_assignor_that_fails_is_heard_of_and_asked_again(broker: Broker, what: str) -> None:
    class Failing(RangeAssignor):
        name = "failing"
        calls = 0

        def assign(self, cluster: GroupCluster, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
            self.calls += 1
            if self.calls > 1:
                return super().assign(cluster, subscriptions)
            if what == "raises":
                raise ZeroDivisionError("no idea")
            return {"stranger": Assignment()} if what == "strangers" else {next(iter(subscriptions)): 5}  # type: ignore[dict-item]

    with Consumer(settings_of(broker, partition_assignment_strategy=[Failing()])) as consumer:
        consumer.subscribe([TOPIC])
        with pytest.raises(ZeroDivisionError if what == "raises" else UsageError):
            poll_until(lambda: False, consumer)
        joined(consumer)


# --- closing ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_close_commits_tells_the_listener_and_leaves(broker: Broker, protocol: str) -> None:
    log = Log()
    with Consumer(settings_of(broker, protocol, auto_commit_interval_ms=10**6)) as consumer:
        consumer.subscribe([TOPIC], listener=log)
        poll_until(lambda: is_read(consumer), consumer)
    assert {tp: at.offset for tp, at in broker.committed("g").items()} == dict.fromkeys((P0, P1, P2, P3), RECORDS)
    assert log.heard[-1] == ("revoked", [0, 1, 2, 3])
    poll_until(lambda: not broker.group("g").members)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_close_by_another_thread_ends_a_poll_and_leaves_without_the_listener(broker: Broker, protocol: str) -> None:
    log = Log()
    patient = {} if protocol == "consumer" else {"session_timeout_ms": 60_000}  # or the group would lose it, told or not
    consumer = Consumer(settings_of(broker, protocol, **patient))
    consumer.subscribe([TOPIC], listener=log)
    poll_until(lambda: is_read(consumer), consumer)
    closer = threading.Timer(0.2, consumer.close)
    closer.start()
    with pytest.raises(ClosedError):
        consumer.poll(30_000)
    closer.join()
    assert log.heard == [("assigned", [0, 1, 2, 3])]
    assert broker.committed("g")[P0].offset == RECORDS
    assert not broker.group("g").members


@pytest.mark.parametrize("read", [Consumer.poll, Consumer.poll_blocks, lambda consumer, _: next(iter(consumer))])
def test_a_wait_that_ends_when_close_is_over_knows_why(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, read: Callable[[Consumer, int], object]
) -> None:
    """It is not told that there is no subscription: that has gone by then."""
    consumer = Consumer(settings_of(broker))
    consumer.subscribe([TOPIC])
    poll_until(lambda: is_read(consumer), consumer)

    def closed(*_: object) -> None:
        closer = threading.Thread(target=consumer.close)
        closer.start()
        closer.join()

    monkeypatch.setattr(consumer, "_wait", closed)
    with pytest.raises(ClosedError):
        read(consumer, 30_000)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_close_in_mid_rebalance(broker: Broker, protocol: str) -> None:
    api = "ConsumerGroupHeartbeat" if protocol == "consumer" else "SyncGroup"
    consumer = Consumer(settings_of(broker, protocol))
    consumer.subscribe([TOPIC])
    broker.on(api, delay(0.5))
    consumer.poll(100)
    began = time.monotonic()
    consumer.close()
    assert time.monotonic() - began < 10
    poll_until(lambda: not broker.group("g").members)


def test_a_last_commit_that_a_rebalance_has_overtaken_is_made_once_more(broker: Broker) -> None:
    with Consumer(settings_of(broker, "cooperative-sticky", auto_commit_interval_ms=10**6)) as consumer:
        consumer.subscribe([TOPIC])
        poll_until(lambda: is_read(consumer), consumer)
        broker.on("OffsetCommit", error(27))  # of the commit before joining again
        broker.on("JoinGroup", delay(0.5))
        consumer.enforce_rebalance()
        poll_until(lambda: len(broker.requests("JoinGroup")) == 3, consumer)
        broker.on("OffsetCommit", delay(1.0), error(22))  # signed before the rebalance has completed, and answered after that
    generations = [r.body["generation_id_or_member_epoch"] for r in broker.requests("OffsetCommit")]
    assert generations == [1, 1, 2]


def test_close_while_the_coordinator_does_not_answer(broker: Broker) -> None:
    consumer = Consumer(settings_of(broker))
    consumer.subscribe([TOPIC])
    joined(consumer)
    for api in ("OffsetCommit", "LeaveGroup", "Heartbeat"):
        broker.on(api, drop(), times=None)
    began = time.monotonic()
    consumer.close(timeout_ms=500)
    assert time.monotonic() - began < 2


def test_a_listener_that_raises_in_close_keeps_nobody(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    def fail(what: str, partitions: list[TopicPartition]) -> None:
        if what == "revoked":
            raise ValueError("not now")

    with Consumer(settings_of(broker)) as consumer:
        consumer.subscribe([TOPIC], listener=Log(fail))
        joined(consumer)
    assert "not now" in caplog.text
    poll_until(lambda: not broker.group("g").members)


# --- asyncio ------------------------------------------------------------------------------------------------------------


def test_listeners_that_are_awaited(broker: Broker) -> None:
    async def main() -> None:
        heard: list[tuple[str, int]] = []

        class Awaited:
            async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
                await asyncio.sleep(0.01)
                heard.append(("assigned", len(partitions)))
                for tp in partitions:
                    consumer.seek(tp, 95)

            async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
                heard.append(("revoked", len(partitions)))
                await consumer.commit(dict.fromkeys(partitions, 97))

        async with AsyncConsumer(settings_of(broker, enable_auto_commit=False)) as consumer:
            consumer.subscribe([TOPIC], listener=Awaited())  # type: ignore[arg-type]
            got: dict[TopicPartition, list[int]] = {}
            while sum(map(len, got.values())) < 20:
                for tp, records in (await consumer.poll(100)).items():
                    got.setdefault(tp, []).extend(record.offset for record in records)
            assert got == {tp: list(range(95, 100)) for tp in (P0, P1, P2, P3)}
            consumer.enforce_rebalance()
            while len(heard) < 3:
                await consumer.poll(20)
            await consumer.unsubscribe()
        assert heard == [("assigned", 4), ("revoked", 4), ("assigned", 4), ("revoked", 4)]
        assert {at.offset for at in broker.committed("g").values()} == {97}

    asyncio.run(main())


def test_cancelling_a_poll_whose_listener_is_awaited(broker: Broker) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        class Slow:
            async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
                begun.set()
                await asyncio.sleep(60)

        async with AsyncConsumer(settings_of(broker)) as consumer:
            consumer.subscribe([TOPIC], listener=Slow())  # type: ignore[arg-type]
            task = asyncio.create_task(consumer.poll(30_000))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(consumer.assignment()) == PARTITIONS  # it was told; what it made of that is its own business
            assert await consumer.poll(5_000)

    asyncio.run(main())
