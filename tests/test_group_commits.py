"""Commits of consumers that share a group: what an automatic one covers and when it is made, and what happens to commits around
rebalances. Against the broker of fastfetch.testing, over TCP, under each group protocol.

How a single commit fares with each error code is in tests/engine/test_commits_of_members.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from fastfetch import Consumer, OffsetAndMetadata, RebalanceListener, TopicPartition
from fastfetch.errors import CommitFailedError, RebalanceInProgressError
from fastfetch.testing import Broker, Gate, Logged, drop, encode_batch, error, hold

PROTOCOLS = ("range", "cooperative-sticky", "consumer")
RECORDS = 100
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(consumer_heartbeat=0.05) as broker:
        broker.create_topic("orders", partitions=2)
        for partition in range(2):
            for turn in range(10):
                broker.append("orders", partition, encode_batch([b"%d" % (10 * turn + i) for i in range(10)]))
        yield broker


def member_of(broker: Broker, protocol: str, **settings: Any) -> Consumer:
    chosen: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers, "group_id": "g", "auto_offset_reset": "earliest", "fetch_max_wait_ms": 50,
        "retry_backoff_ms": 10,
    }  # fmt: skip
    if protocol == "consumer":
        chosen["group_protocol"] = "consumer"
    else:
        chosen |= {"partition_assignment_strategy": protocol, "heartbeat_interval_ms": 50, "session_timeout_ms": 5_000}
    return Consumer(chosen | settings)


def until(condition: Callable[[], object], *polled: Consumer, seconds: float = 20) -> None:
    """Poll these, whatever they bring, until it is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        for consumer in polled:
            consumer.poll(20)
        time.sleep(0.001)


def joined(broker: Broker, protocol: str, *, listener: RebalanceListener | None = None, **settings: Any) -> Consumer:
    """A member that has both partitions, and was given no record yet."""
    consumer = member_of(broker, protocol, **settings)
    consumer.subscribe(["orders"], listener=listener)
    deadline = time.monotonic() + 20
    while consumer.assignment() != {P0, P1}:
        assert time.monotonic() < deadline, "it never joined"
        assert consumer.poll(0) == {} or consumer.assignment() == {P0, P1}
    for tp in (P0, P1):
        consumer.seek(tp, 0)
    return consumer


def stored(broker: Broker) -> dict[TopicPartition, int]:
    return {tp: at.offset for tp, at in broker.committed("g").items()}


def offsets_in(request: Logged) -> dict[TopicPartition, int]:
    """What an OffsetCommit says."""
    return {
        TopicPartition(topic["name"], part["partition_index"]): part["committed_offset"]
        for topic in request.body["topics"]
        for part in topic["partitions"]
    }


# --- what an automatic commit covers: C02 -------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_commit_covers_what_the_latest_poll_returned(broker: Broker, protocol: str) -> None:
    with joined(broker, protocol, auto_commit_interval_ms=0, max_poll_records=7) as consumer:
        handed_out = {P0: 0, P1: 0}
        while sum(handed_out.values()) < 2 * RECORDS:
            before = dict(handed_out)
            for tp, records in consumer.poll(1_000).items():
                handed_out[tp] = records[-1].offset + 1
            commits = [offsets_in(request) for request in broker.requests("OffsetCommit")]
            assert all(offset <= before[tp] for commit in commits for tp, offset in commit.items())
        until(lambda: stored(broker) == {P0: RECORDS, P1: RECORDS}, consumer)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_loop_over_records_never_commits_past_the_one_in_hand(broker: Broker, protocol: str) -> None:
    with joined(broker, protocol, auto_commit_interval_ms=0, max_poll_records=3) as consumer:
        seen = {P0: 0, P1: 0}
        for record in consumer:
            tp = TopicPartition(record.topic, record.partition)
            for request in broker.requests("OffsetCommit"):
                assert all(offset <= seen[tp] for tp, offset in offsets_in(request).items())
            seen[tp] = record.offset + 1
            if sum(seen.values()) == RECORDS:
                break
    assert stored(broker) == seen, "a clean close says that all was processed"


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("form", ["poll", "iterate"])
def test_a_rebalance_in_mid_loop_commits_what_was_processed_and_no_more(broker: Broker, protocol: str, form: str) -> None:
    """The commit before partitions go covers what was asked past, not what is in hand or read ahead."""
    with joined(broker, protocol, auto_commit_interval_ms=10**6, max_poll_records=5) as consumer:
        records = iter(consumer)

        def more() -> None:
            if form == "poll":
                consumer.poll(100)
            else:
                next(records)

        def handed_out() -> int:
            return sum(consumer.position(tp) for tp in (P0, P1))

        while not handed_out():
            more()
        assert handed_out() <= 5
        consumer.enforce_rebalance()
        time.sleep(0.2)
        assert broker.requests("OffsetCommit") == [], "nothing is known of what is in hand"
        processed = 0
        while not broker.requests("OffsetCommit"):
            processed = handed_out()
            assert processed < RECORDS, "it was never committed"
            more()
        assert sum(offsets_in(broker.requests("OffsetCommit")[0]).values()) == processed


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_leaving_by_an_exception_commits_nothing_and_leaves(broker: Broker, protocol: str) -> None:
    consumer = joined(broker, protocol, auto_commit_interval_ms=10**6)
    consumer.__enter__()
    until(lambda: consumer.poll(100))
    consumer.__exit__(ValueError, ValueError("processing failed"), None)
    assert stored(broker) == {}
    assert broker.wait_for_group("g", state="Empty").members == {}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("form", ["poll", "iterate"])
def test_after_a_clean_close_nothing_comes_twice(broker: Broker, protocol: str, form: str) -> None:
    got: dict[TopicPartition, list[int]] = {P0: [], P1: []}
    while sum(map(len, got.values())) < 2 * RECORDS:
        with member_of(broker, protocol, max_poll_records=9) as consumer:
            consumer.subscribe(["orders"])
            taken = 0
            deadline = time.monotonic() + 20
            while taken < 20 and time.monotonic() < deadline:
                if form == "poll":
                    batch = [record for records in consumer.poll(100).values() for record in records]
                else:
                    batch = [next(iter(consumer))]
                for record in batch:
                    got[TopicPartition(record.topic, record.partition)].append(record.offset)
                taken += len(batch)
                if sum(map(len, got.values())) == 2 * RECORDS:
                    break
    assert got == {P0: list(range(RECORDS)), P1: list(range(RECORDS))}


# --- partitions that went: C03, C06 -------------------------------------------------------------------------------------


class Pausing(RebalanceListener):
    """Once it is told to, new partitions are paused before anything of them comes."""

    consumer: Consumer | None = None

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        if self.consumer is not None:
            self.consumer.pause(partitions)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_late_acknowledgement_of_a_partition_that_went_and_came_back(broker: Broker, protocol: str) -> None:
    listener = Pausing()
    with joined(broker, protocol, auto_commit_interval_ms=0, listener=listener) as one:
        until(lambda: stored(broker) == {P0: RECORDS, P1: RECORDS}, one)
        listener.consumer = one
        with member_of(broker, protocol, enable_auto_commit=False) as two:
            two.subscribe(["orders"])
            until(lambda: len(one.assignment()) == len(two.assignment()) == 1, one, two)
            [moved] = two.assignment()
            with pytest.raises(CommitFailedError, match=f"{moved}@100 not committed.*not assigned") as caught:
                one.commit({moved: 100})  # of a worker that is late
            assert caught.value.failed == {moved: 0}
            assert one.committed([moved]) == {moved: OffsetAndMetadata(RECORDS, "", 0)}  # asking writes nothing back
            two.commit({moved: 50})
            begun = len(broker.requests("OffsetCommit"))
        until(lambda: len(one.assignment()) == 2, one)
        for _ in range(5):  # the timer fires before anything is consumed
            one.poll(20)
        assert stored(broker)[moved] == one.position(moved) == 50
        assert not any(moved in offsets_in(request) for request in broker.requests("OffsetCommit")[begun:])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_commit_of_both_is_made_for_the_one_that_is_left(broker: Broker, protocol: str) -> None:
    told: list[Exception | None] = []
    with joined(broker, protocol, enable_auto_commit=False) as one, member_of(broker, protocol) as two:
        two.subscribe(["orders"])
        until(lambda: len(one.assignment()) == len(two.assignment()) == 1, one, two)
        [kept], [moved] = one.assignment(), two.assignment()
        one.commit_async({kept: 7, moved: 8}, lambda offsets, failure: told.append(failure))
        until(lambda: told, one)
        assert isinstance(told[0], CommitFailedError)
        assert told[0].failed == {moved: 0}
        assert "1 other partitions were committed" in str(told[0])
        assert stored(broker)[kept] == 7
        assert stored(broker).get(moved) != 8


# --- while the group rebalances: C04, C08 -------------------------------------------------------------------------------


def test_the_coordinator_says_that_the_group_rebalances(broker: Broker) -> None:
    with joined(broker, "range", enable_auto_commit=False) as consumer:
        me = consumer.group_metadata()
        broker.on("OffsetCommit", error(27))
        with pytest.raises(RebalanceInProgressError, match=r"poll\(\).*then commit what is still assigned"):
            consumer.commit({P0: 5})
        assert consumer.group_metadata() == me
        time.sleep(0.1)
        assert len(broker.requests("OffsetCommit")) == 1, "nothing tries again by itself"
        joins = len(broker.requests("JoinGroup"))
        until(lambda: consumer.group_metadata().generation_id == me.generation_id + 1, consumer)
        until(lambda: len(consumer.assignment()) == 2, consumer)
        assert len(broker.requests("JoinGroup")) == joins + 1
        assert consumer.group_metadata().member_id == me.member_id
        consumer.commit({P0: 5})
        assert stored(broker) == {P0: 5}


def test_the_interval_elapses_twenty_times_while_the_group_rebalances(broker: Broker) -> None:
    """Nothing is sent that could feed the rebalance; what is still ours is committed afterwards (KAFKA-6306)."""
    with joined(broker, "cooperative-sticky", auto_commit_interval_ms=0, max_poll_records=1) as consumer:
        until(lambda: sum(stored(broker).values()) >= 2, consumer)
        gate = Gate()
        broker.on("SyncGroup", hold(gate))
        consumer.enforce_rebalance()
        until(gate.arrived.is_set, consumer)
        commits, joins = len(broker.requests("OffsetCommit")), len(broker.requests("JoinGroup"))
        before = sum(stored(broker).values())
        for _ in range(20):
            assert sum(map(len, consumer.poll(1_000).values())) == 1, "what it has goes on being read"
        assert len(broker.requests("OffsetCommit")) == commits
        gate.open()
        until(lambda: sum(stored(broker).values()) >= before + 19, consumer)
        assert len(broker.requests("JoinGroup")) == joins


def test_a_commit_under_way_when_a_rebalance_begins_is_finished_first(broker: Broker) -> None:
    told: list[Exception | None] = []
    with joined(broker, "range", enable_auto_commit=False) as consumer:
        gate = Gate()
        broker.on("OffsetCommit", hold(gate, answered=True))
        consumer.commit_async({P0: 5}, lambda offsets, failure: told.append(failure))
        assert gate.arrived.wait(5)
        joins = len(broker.requests("JoinGroup"))
        consumer.enforce_rebalance()
        consumer.poll(100)
        assert len(broker.requests("JoinGroup")) == joins
        gate.open()
        until(lambda: len(broker.requests("JoinGroup")) > joins, consumer)
        assert told == [None]
    assert stored(broker) == {P0: 5}


# --- only an answer counts: C09 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_commit_whose_answer_is_lost_is_sent_again(broker: Broker, protocol: str) -> None:
    with joined(broker, protocol, enable_auto_commit=False, request_timeout_ms=500) as consumer:
        broker.on("OffsetCommit", drop())
        consumer.commit({P0: 5, P1: 6})
        assert [offsets_in(request) for request in broker.requests("OffsetCommit")] == [{P0: 5, P1: 6}] * 2
        assert len({request.body["generation_id_or_member_epoch"] for request in broker.requests("OffsetCommit")}) == 1
    assert stored(broker) == {P0: 5, P1: 6}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_failed_is_in_the_next_automatic_commit_and_the_rest_is_not(
    broker: Broker, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    with joined(broker, protocol, auto_commit_interval_ms=0) as consumer:
        broker.on("OffsetCommit", error(12, topic="orders", partition=1))
        until(lambda: stored(broker) == {P0: RECORDS, P1: RECORDS}, consumer)
        sent = [offsets_in(request) for request in broker.requests("OffsetCommit")]
        failed = next(offsets for offsets in sent if P1 in offsets)
        assert sum(offsets.get(P1) == RECORDS for offsets in sent) == 1 + (failed[P1] == RECORDS)
        assert sum(offsets.get(P0) == RECORDS for offsets in sent) == 1
    assert "orders-1@" in caplog.text
    assert "OFFSET_METADATA_TOO_LARGE" in caplog.text


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_partial_failure_names_the_partition(broker: Broker, protocol: str) -> None:
    with joined(broker, protocol, enable_auto_commit=False) as consumer:
        broker.on("OffsetCommit", error(12, topic="orders", partition=1))
        with pytest.raises(CommitFailedError, match=r"orders-1@6 with OFFSET_METADATA_TOO_LARGE.*1 other") as caught:
            consumer.commit({P0: 5, P1: OffsetAndMetadata(6, "x" * 5_000)})
        assert caught.value.failed == {P1: 12}
        assert stored(broker)[P0] == 5


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_coordinator_moves(protocol: str) -> None:
    with Broker(nodes=2, consumer_heartbeat=0.05) as broker:
        broker.create_topic("orders", partitions=2)
        with joined(broker, protocol, enable_auto_commit=False) as consumer:
            consumer.commit({P0: 5})
            old = broker.coordinator("g")
            new = next(node for node in broker.nodes if node != old)
            broker.move_coordinator("g", new)
            consumer.commit({P0: 6})
            assert stored(broker) == {P0: 6}
            asked = [request.node for request in broker.requests("OffsetCommit")]
            assert asked in ([old, old, new], [old, new])  # the latter if a heartbeat was told first
            assert broker.requests("OffsetCommit")[-1].body["member_id"] == consumer.group_metadata().member_id


# --- epochs (KIP-848) ---------------------------------------------------------------------------------------------------


def test_a_commit_with_an_old_epoch_goes_out_again_with_the_new_one(broker: Broker) -> None:
    with joined(broker, "consumer", enable_auto_commit=False) as consumer:
        first = consumer.group_metadata().generation_id
        broker.on("OffsetCommit", error(113))
        raising = threading.Timer(0.3, broker.rebalance, ["g"])
        raising.start()
        consumer.commit({P0: 5})
        raising.join()
        epochs = [request.body["generation_id_or_member_epoch"] for request in broker.requests("OffsetCommit")]
        assert epochs == [first, consumer.group_metadata().generation_id]
        assert epochs[0] < epochs[1]
        assert stored(broker) == {P0: 5}


def test_committed_offsets_are_asked_for_in_the_members_name(broker: Broker) -> None:
    broker.on("OffsetFetch", top_error_of_group(113))
    with joined(broker, "consumer", enable_auto_commit=False) as consumer:
        me = consumer.group_metadata()
        assert consumer.committed([P0]) == {P0: None}
        groups = [request.body["groups"][0] for request in broker.requests("OffsetFetch")]
        assert len(groups) >= 2
        assert {group["member_id"] for group in groups} == {me.member_id}
        assert {group["member_epoch"] for group in groups} <= set(range(1, me.generation_id + 1))


def top_error_of_group(code: int) -> Callable[[Any], None]:
    def change(exchange: Any) -> None:
        for group in exchange.body["groups"]:
            group |= {"error_code": code, "topics": []}

    return change


# --- order --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_callbacks_of_good_and_bad_commits_run_in_the_order_of_the_calls(broker: Broker, protocol: str) -> None:
    told: list[tuple[int, type[Exception] | None]] = []
    with joined(broker, protocol, enable_auto_commit=False) as consumer:

        def callback(number: int) -> Callable[[dict[TopicPartition, OffsetAndMetadata], Exception | None], None]:
            return lambda offsets, failure: told.append((number, None if failure is None else type(failure)))

        broker.on("OffsetCommit", error(12), nth=3)
        for number in range(1, 5):
            consumer.commit_async({P0: number}, callback(number))
        consumer.commit_async({TopicPartition("orders", 7): 5}, callback(5))
        until(lambda: len(told) == 5, consumer)
        assert told == [(1, None), (2, None), (3, CommitFailedError), (4, None), (5, CommitFailedError)]
        assert [offsets_in(request)[P0] for request in broker.requests("OffsetCommit")] == [1, 2, 3, 4]
