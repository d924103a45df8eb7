"""The consumer over the scripted broker: the public calls, their deadlines, and what ends them."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from fastfetch import Consumer, OffsetAndMetadata, TopicPartition
from fastfetch.errors import (
    ClosedError,
    CommitFailedError,
    ConnectionFailedError,
    CrcMismatchError,
    FastFetchError,
    OffsetOutOfRangeError,
    UnknownTopicError,
    UsageError,
    WakeupError,
)
from fastfetch.errors import TimeoutError as TimedOut
from fastfetch.testing import Broker, control_batch, encode_batch
from fastfetch.testing.faults import delay, drop, error, flip

P0, P1, P2 = (TopicPartition("orders", p) for p in range(3))
SLACK = 0.25  # every call returns by its timeout and this


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(nodes=2) as broker:
        broker.create_topic("orders", partitions=3)
        for p in range(3):
            for turn in range(10):
                values = [(b"key", b"p%d-%d" % (p, turn * 10 + i)) for i in range(10)]
                broker.append("orders", p, encode_batch(values, codec=("none", "lz4", "zstd")[p], timestamp=1000 + turn))
        yield broker


def consumer_of(broker: Broker, *partitions: TopicPartition, **settings: Any) -> Consumer:
    settings.setdefault("auto_offset_reset", "earliest")
    settings.setdefault("fetch_max_wait_ms", 50)
    consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, **settings)
    if partitions:
        consumer.assign(partitions)
    return consumer


def read(consumer: Consumer, count: int, seconds: float = 20) -> dict[TopicPartition, list[int]]:
    """Offsets by partition, until there are `count`."""
    out: dict[TopicPartition, list[int]] = {}
    deadline = time.monotonic() + seconds
    while sum(map(len, out.values())) < count and time.monotonic() < deadline:
        for block in consumer.poll_blocks(timeout_ms=200):
            out.setdefault(TopicPartition(block.topic, block.partition), []).extend(block.offsets.tolist())
    return out


def read_until(fault: type[Exception], consumer: Consumer) -> tuple[dict[TopicPartition, list[int]], str]:
    """What comes before an error, and what the error says."""
    out: dict[TopicPartition, list[int]] = {}
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            blocks = consumer.poll_blocks(timeout_ms=200)
        except fault as error:
            return out, str(error)
        for block in blocks:
            out.setdefault(TopicPartition(block.topic, block.partition), []).extend(block.offsets.tolist())
    raise AssertionError(f"no {fault.__name__} within 20 s")


# --- reading ------------------------------------------------------------------------------------------------------------


def test_three_forms_of_reading_give_the_same(broker: Broker) -> None:
    every = {tp: list(range(100)) for tp in (P0, P1, P2)}
    with consumer_of(broker, P0, P1, P2) as consumer:
        assert read(consumer, 300) == every
        consumer.seek_to_beginning()
        got: dict[TopicPartition, list[int]] = {}
        while sum(map(len, got.values())) < 300:
            for tp, records in consumer.poll(timeout_ms=1000, max_records=7).items():
                assert len(records) <= 7
                got.setdefault(tp, []).extend(record.offset for record in records)
                assert consumer.position(tp) == records[-1].offset + 1
        assert got == every
        consumer.seek_to_beginning([P0, P1], P2)
        got = {}
        for record in consumer:
            tp = TopicPartition(record.topic, record.partition)
            got.setdefault(tp, []).append(record.offset)
            assert consumer.position(tp) == record.offset + 1
            assert record.value == b"p%d-%d" % (record.partition, record.offset)
            if sum(map(len, got.values())) == 300:
                break
        assert got == every
        consumer.seek(P1, 95)
        consumer.pause(P0, P2)
        blocks = list(consumer.blocks(timeout_ms=300))
        assert [o for block in blocks for o in block.offsets.tolist()] == [95, 96, 97, 98, 99]


def test_max_poll_records_bounds_blocks_only_when_it_was_set(broker: Broker) -> None:
    with consumer_of(broker, P0) as consumer:
        assert sum(map(len, consumer.poll_blocks(timeout_ms=2000))) == 100
    with consumer_of(broker, P0, max_poll_records=30) as consumer:
        assert [sum(map(len, consumer.poll_blocks(timeout_ms=2000))) for _ in range(4)] == [30, 30, 30, 10]


def test_a_loop_over_records_that_is_left_goes_on_where_it_was(broker: Broker) -> None:
    with consumer_of(broker, P0) as consumer:
        for record in consumer:
            if record.offset == 41:
                break
        assert consumer.position(P0) == 42
        assert read(consumer, 58) == {P0: list(range(42, 100))}


@pytest.mark.parametrize("act", ["seek", "pause", "assign", "poll"])
def test_calls_inside_a_loop_over_records(broker: Broker, act: str) -> None:
    with consumer_of(broker, P0) as consumer:
        seen = []
        for record in consumer:
            seen.append(record.offset)
            if record.offset == 5 and len(seen) == 6:
                if act == "seek":
                    consumer.seek(P0, 90)
                elif act == "pause":
                    consumer.pause(P0)
                    assert consumer.poll(timeout_ms=100) == {}
                    consumer.resume(P0)
                elif act == "assign":
                    consumer.assign([])
                    consumer.assign([P0])
                else:
                    assert [r.offset for r in consumer.poll(max_records=3)[P0]] == [6, 7, 8]
            if len(seen) == 10:
                break
        then = {"seek": [90, 91, 92, 93], "pause": [6, 7, 8, 9], "assign": [0, 1, 2, 3], "poll": [9, 10, 11, 12]}[act]
        assert seen == [0, 1, 2, 3, 4, 5, *then]


def test_read_committed_reads_past_markers_and_aborted_records(broker: Broker) -> None:
    broker.create_topic("tx")
    tp = TopicPartition("tx", 0)
    for value, end in ((b"kept", "commit"), (b"gone", "abort"), (b"kept too", "commit")):
        broker.append("tx", 0, encode_batch([value], transactional=True, producer_id=7, producer_epoch=0))
        broker.append("tx", 0, control_batch(end, producer_id=7, producer_epoch=0))
    for isolation, values in (("read_committed", [b"kept", b"kept too"]), ("read_uncommitted", [b"kept", b"gone", b"kept too"])):
        with consumer_of(broker, tp, isolation_level=isolation) as consumer:
            got: list[bytes | None] = []
            end_offset = consumer.end_offsets([tp])[tp]
            while consumer.position(tp) < end_offset:
                for block in consumer.poll_blocks(timeout_ms=500):
                    got += block.values()
            assert got == values
            assert consumer.position(tp) == 6


@pytest.mark.timeout(60)
def test_iteration_asks_for_more_once_it_has_passed_what_holds_no_record() -> None:
    """The budget is nearly used up by a paused partition: the next fetch waits until nothing is left to hand out."""
    p0, p1 = TopicPartition("tx", 0), TopicPartition("tx", 1)
    with Broker() as broker:
        broker.create_topic("tx", partitions=2)
        for _ in range(20):
            broker.append("tx", 0, encode_batch([b"x" * 80_000]))
        for _ in range(5):
            broker.append("tx", 1, encode_batch([b"x" * 80_000], transactional=True, producer_id=7, producer_epoch=0))
            broker.append("tx", 1, control_batch("abort", producer_id=7, producer_epoch=0))
        broker.append("tx", 1, encode_batch([b"kept"]))
        with consumer_of(broker, p0, isolation_level="read_committed", max_buffered_bytes=1 << 20) as consumer:
            while consumer.metrics()["buffered_bytes"] < 500_000:
                time.sleep(0.01)
            consumer.pause(p0)
            consumer.assign([p0, p1])
            assert next(iter(consumer)).value == b"kept"


def test_a_failover_is_not_seen_by_the_reader(broker: Broker) -> None:
    with consumer_of(broker, P0, P1, P2, max_partition_fetch_bytes=200) as consumer:
        got = read(consumer, 30)
        broker.kill_node(1, elect=True)
        for tp, offsets in read(consumer, 300 - sum(map(len, got.values()))).items():
            got.setdefault(tp, []).extend(offsets)
        assert got == {tp: list(range(100)) for tp in (P0, P1, P2)}


@pytest.mark.parametrize("kafka", ["2.8", "3.9", "4.1", "4.3"])
@pytest.mark.parametrize("topic_ids", [True, False])
def test_brokers_of_every_age(kafka: str, topic_ids: bool) -> None:
    with Broker(kafka=kafka, topic_ids=topic_ids) as broker:
        broker.create_topic("orders")
        broker.append("orders", 0, encode_batch([b"x"] * 5, codec="zstd"))
        with consumer_of(broker, P0, group_id="g") as consumer:
            assert read(consumer, 5) == {P0: [0, 1, 2, 3, 4]}
            consumer.commit()
            assert consumer.committed([P0]) == {P0: OffsetAndMetadata(5, "", 0)}
        assert broker.requests("Fetch")[0].version == (16 if topic_ids and kafka != "2.8" else 12)


# --- bad batches --------------------------------------------------------------------------------------------------------


def test_a_bad_batch_stops_its_partition_only_and_skip_goes_on(broker: Broker) -> None:
    bad = bytearray(encode_batch([b"bad"] * 5))
    bad[-3] ^= 1
    broker.append("orders", 0, bytes(bad))
    broker.append("orders", 0, encode_batch([b"after"] * 5))
    with consumer_of(broker, P0, P1) as consumer:
        got, said = read_until(CrcMismatchError, consumer)
        assert said.startswith("CRC mismatch in orders-0, batch at offset 100 ")
        assert said.endswith("skip(tp) goes on at 105")
        assert got == {P0: list(range(100)), P1: list(range(100))}
        assert consumer.position(P0) == 100
        broker.append("orders", 1, encode_batch([b"more"]))
        deadline = time.monotonic() + 10
        blocks = []
        while not blocks:  # the healthy one goes on between the errors
            assert time.monotonic() < deadline
            try:
                blocks = consumer.poll_blocks(timeout_ms=200)
            except CrcMismatchError:
                time.sleep(0.02)
        assert [(b.partition, b.offsets.tolist()) for b in blocks] == [(1, [100])]
        broker.forget_requests()
        with pytest.raises(CrcMismatchError):
            consumer.poll(timeout_ms=100)
        asked = [p["partition"] for r in broker.requests("Fetch") for t in r.body["topics"] for p in t["partitions"]]
        assert 0 not in asked, "no refetch meanwhile"
        assert consumer.skip(P0) == 105
        assert read(consumer, 5) == {P0: [105, 106, 107, 108, 109]}


def test_a_bit_flipped_on_the_way_is_fetched_again_and_never_told(broker: Broker) -> None:
    broker.on("Fetch", flip(-20))
    with consumer_of(broker, P0) as consumer:
        assert read(consumer, 100) == {P0: list(range(100))}
        assert len(broker.requests("Fetch")) >= 2


def test_retention_passed_the_position(broker: Broker) -> None:
    broker.delete_records("orders", 0, 40)
    with consumer_of(broker, P0) as consumer:
        consumer.seek(P0, 5)
        assert read(consumer, 60) == {P0: list(range(40, 100))}
    with consumer_of(broker, P0, P1, auto_offset_reset="none") as consumer:
        consumer.seek(P0, 5)
        consumer.seek(P1, 0)
        got, said = read_until(OffsetOutOfRangeError, consumer)
        assert "offset 5 of orders-0" in said
        while len(got.get(P1, [])) < 100:
            try:
                got.setdefault(P1, []).extend(read(consumer, 1).get(P1, []))
            except OffsetOutOfRangeError:
                time.sleep(0.01)
        assert got[P1] == list(range(100))


# --- offsets ------------------------------------------------------------------------------------------------------------


def test_questions_about_offsets(broker: Broker) -> None:
    broker.delete_records("orders", 1, 20)
    with consumer_of(broker) as consumer:
        assert consumer.partitions_for("orders") == {0, 1, 2}
        assert consumer.topics() == {"orders"}
        assert consumer.list_topics() == {"orders": {0, 1, 2}}
        assert consumer.beginning_offsets([P0, P1]) == {P0: 0, P1: 20}
        assert consumer.end_offsets([P0, P1]) == {P0: 100, P1: 100}
        found = consumer.offsets_for_times({P0: 1005, P1: 10**12})
        assert found[P0] is not None
        assert (found[P0].offset, found[P1]) == (5, None)
        with pytest.raises(UnknownTopicError, match="'nope'"):
            consumer.partitions_for("nope", timeout_ms=5_000)
        with pytest.raises(UnknownTopicError, match="partition 9 of topic 'orders' does not exist; it has 3"):
            consumer.end_offsets([TopicPartition("orders", 9)], timeout_ms=5_000)
        assert not [r for r in broker.requests("Metadata") if r.body["allow_auto_topic_creation"]]


@pytest.mark.parametrize("question", ["end_offsets", "offsets_for_times", "partitions_for", "topics"])
def test_a_question_to_an_idle_consumer_is_answered_at_once(broker: Broker, question: str) -> None:
    """Its metadata is fresh and about nothing: the topic has to be asked about now, not when the metadata is due again."""
    with consumer_of(broker) as consumer:
        broker.wait_for("Metadata", 1)
        time.sleep(0.2)
        answer = {
            "end_offsets": lambda: consumer.end_offsets([P0], timeout_ms=5_000)[P0],
            "offsets_for_times": lambda: consumer.offsets_for_times({P0: 1001}, timeout_ms=5_000)[P0].offset,  # type: ignore[union-attr]
            "partitions_for": lambda: consumer.partitions_for("orders", timeout_ms=5_000),
            "topics": lambda: consumer.topics(timeout_ms=5_000),
        }[question]()
        assert answer == {"end_offsets": 100, "offsets_for_times": 1, "partitions_for": {0, 1, 2}, "topics": {"orders"}}[question]


def test_committed_offsets_are_where_the_next_consumer_starts(broker: Broker) -> None:
    with consumer_of(broker, P0, P1, group_id="g", enable_auto_commit=False) as consumer:
        consumer.poll(timeout_ms=2000, max_records=30)
        at = {tp: consumer.position(tp) for tp in (P0, P1)}
        consumer.commit()
        assert {tp: c.offset for tp, c in broker.committed("g").items()} == at
        consumer.commit({P0: 7, P1: OffsetAndMetadata(8, "note")})
        assert consumer.committed([P0, P1, P2]) == {P0: OffsetAndMetadata(7), P1: OffsetAndMetadata(8, "note"), P2: None}
    with consumer_of(broker, P0, P1, P2, group_id="g", auto_offset_reset="latest") as consumer:
        assert [consumer.position(tp) for tp in (P0, P1, P2)] == [7, 8, 100]
    assert not {"JoinGroup", "Heartbeat"} & {r.api for r in broker.requests()}


def test_callbacks_of_asynchronous_commits_run_in_order_in_the_callers_thread(broker: Broker) -> None:
    heard: list[tuple[int, Exception | None, int]] = []
    with consumer_of(broker, P0, group_id="g", enable_auto_commit=False) as consumer:
        for offset in (3, 5, 4):
            consumer.commit_async(
                {P0: offset}, lambda offsets, failure: heard.append((offsets[P0].offset, failure, threading.get_ident()))
            )
        assert heard == []
        deadline = time.monotonic() + 10
        while len(heard) < 3 and time.monotonic() < deadline:
            consumer.poll(timeout_ms=50)
        assert heard == [(offset, None, threading.get_ident()) for offset in (3, 5, 4)]
        consumer.commit_async({P0: 9}, lambda offsets, failure: heard.append((9, failure, 0)))
    assert heard[-1] == (9, None, 0), "close waits for it"
    assert broker.committed("g")[P0].offset == 9


def test_commits_need_a_group(broker: Broker) -> None:
    with consumer_of(broker, P0) as consumer:
        for call in (consumer.commit, consumer.commit_async, lambda: consumer.committed([P0])):
            with pytest.raises(UsageError, match="group_id"):
                call()


def test_a_refused_commit_says_what_and_where(broker: Broker) -> None:
    broker.on("OffsetCommit", error(25))
    with consumer_of(broker, P0, group_id="g", enable_auto_commit=False) as consumer:
        with pytest.raises(CommitFailedError, match=r"orders-0@5 with UNKNOWN_MEMBER_ID"):
            consumer.commit({P0: 5})
        consumer.commit({P0: 6})


# --- C02: automatic commits ---------------------------------------------------------------------------------------------


def test_an_automatic_commit_never_covers_what_this_poll_returned(broker: Broker) -> None:
    consumer = consumer_of(broker, P0, group_id="g", auto_commit_interval_ms=0)
    try:
        assert len(consumer.poll(timeout_ms=2000, max_records=10)[P0]) == 10
        time.sleep(0.1)
        assert broker.committed("g").get(P0, OffsetAndMetadata(0)).offset == 0
        consumer.poll(timeout_ms=2000, max_records=10)
        broker.wait_for("OffsetCommit")
        time.sleep(0.1)
        assert broker.committed("g")[P0].offset == 10, "what the poll before returned, and no more"
    finally:
        consumer.close()
    assert broker.committed("g")[P0].offset == 20, "a clean close says that all was processed"


def test_a_loop_over_records_never_commits_past_the_one_in_hand(broker: Broker) -> None:
    with consumer_of(broker, P0, group_id="g", auto_commit_interval_ms=0, max_poll_records=3) as consumer:
        for record in consumer:
            committed = broker.committed("g").get(P0)
            assert committed is None or committed.offset <= record.offset
            if record.offset == 40:
                break
    assert broker.committed("g")[P0].offset == 41


def test_leaving_by_an_exception_commits_nothing(broker: Broker) -> None:
    def fails_while_processing() -> None:
        with consumer_of(broker, P0, group_id="g") as consumer:
            assert consumer.poll(timeout_ms=2000)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails_while_processing()
    assert broker.committed("g") == {}


def test_nothing_is_committed_twice_or_without_being_asked(broker: Broker) -> None:
    with consumer_of(broker, P0, group_id="g", auto_commit_interval_ms=0) as consumer:
        read(consumer, 100)
        for _ in range(20):
            consumer.poll(timeout_ms=10)
    assert len(broker.requests("OffsetCommit")) <= 3
    with consumer_of(broker, P0, group_id="h", enable_auto_commit=False) as consumer:
        read(consumer, 100)
    assert broker.committed("h") == {}


# --- usage --------------------------------------------------------------------------------------------------------------


def test_subscribing_says_what_to_do_instead_and_changes_nothing(broker: Broker) -> None:
    with consumer_of(broker) as consumer:
        for given in ({"topics": ["orders"]}, {"pattern": "ord.*"}):
            with pytest.raises(UsageError, match=r"make the consumer with a group_id, or use assign\(\)"):
                consumer.subscribe(**given)
        with pytest.raises(UsageError, match="not both"):
            consumer.subscribe(["orders"], pattern="x")
        assert consumer.subscription() == set()
    with consumer_of(broker, group_id="g") as consumer:
        with pytest.raises(UsageError, match=r"'\(' is no regular expression"):
            consumer.subscribe(pattern="(")
        consumer.assign([P0])
        with pytest.raises(UsageError, match=r"subscribe\(topics\) after assign\(\)"):
            consumer.subscribe(["orders"])
        assert consumer.assignment() == {P0}
        consumer.unsubscribe()
        assert consumer.assignment() == set()


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.seek(P1, 5),
        lambda c: c.pause(P0, P1),
        lambda c: c.resume([P0, P1]),
        lambda c: c.position(P1),
        lambda c: c.seek_to_end([P1]),
        lambda c: c.current_lag(P1),
        lambda c: c.skip(P1),
    ],
)
def test_a_partition_that_is_not_assigned_is_named(broker: Broker, call: Callable[[Consumer], object]) -> None:
    with consumer_of(broker, P0) as consumer:
        with pytest.raises(UsageError, match="orders-1 is not assigned"):
            call(consumer)
        assert consumer.paused() == set()
        assert len(read(consumer, 100)[P0]) == 100


def test_numbers_out_of_columns_are_numbers(broker: Broker) -> None:
    with consumer_of(broker, P0, group_id="g", enable_auto_commit=False) as consumer:
        [block] = consumer.poll_blocks(timeout_ms=2000)
        consumer.seek(P0, block.offsets[50])
        consumer.commit({P0: block.offsets[-1] + 1})
        consumer.assign([TopicPartition("orders", block.offsets[1])])  # type: ignore[arg-type]
        assert consumer.assignment() == {P1}
    assert broker.committed("g")[P0].offset == 100


def test_a_partition_may_be_another_clients(broker: Broker) -> None:
    """Their TopicPartition is a named tuple as well, and equal to ours: alone, it is no list of two."""

    class Theirs(NamedTuple):
        topic: str
        partition: int

    theirs: Any = Theirs(*P0)
    with consumer_of(broker) as consumer:
        consumer.assign(theirs)
        consumer.seek(theirs, 7)
        consumer.pause(theirs)
        assert (consumer.position(P0), consumer.paused()) == (7, {P0})


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda c: c.assign("orders"), "list of TopicPartition"),
        (lambda c: c.assign(["orders"]), "'orders' is no partition"),
        (lambda c: c.assign([TopicPartition("", 0)]), "no partition"),
        (lambda c: c.assign([TopicPartition("orders", -1)]), "no partition"),
        (lambda c: c.seek(P0, -1), "offset of orders-0"),
        (lambda c: c.seek(P0, 1.5), "offset of orders-0"),
        (lambda c: c.poll(max_records=0), "1 or more"),
        (lambda c: c.offsets_for_times({P0: -5}), "since 1970"),
        (lambda c: c.skip(P0), "no bad batch"),
    ],
)
def test_wrong_arguments_are_named(broker: Broker, call: Callable[[Consumer], object], says: str) -> None:
    with consumer_of(broker, P0) as consumer, pytest.raises(UsageError, match=says):
        call(consumer)


def test_polling_without_partitions_is_an_error(broker: Broker) -> None:
    with consumer_of(broker) as consumer:
        for call in (consumer.poll, consumer.poll_blocks, lambda: next(iter(consumer)), lambda: next(consumer.blocks())):
            with pytest.raises(UsageError, match=r"assign\(\)"):
                call()


def test_use_after_close(broker: Broker) -> None:
    consumer = consumer_of(broker, P0)
    consumer.close()
    consumer.close()
    for call in (consumer.poll, consumer.assignment, lambda: consumer.seek(P0, 1), consumer.metrics, consumer.commit):
        with pytest.raises(ClosedError):
            call()
    assert "closed" in repr(consumer)


def test_a_second_thread_is_refused_at_once(broker: Broker) -> None:
    with consumer_of(broker, P0, auto_offset_reset="latest") as consumer:
        thread = threading.Thread(target=lambda: consumer.poll(timeout_ms=1_000))
        thread.start()
        time.sleep(0.2)
        begun = time.monotonic()
        with pytest.raises(UsageError, match="another thread"):
            consumer.poll()
        assert time.monotonic() - begun < SLACK
        thread.join()
        consumer.poll()


def test_wakeup_ends_the_call_that_waits_or_the_next(broker: Broker) -> None:
    with consumer_of(broker, P0, auto_offset_reset="latest") as consumer:
        consumer.position(P0)
        timer = threading.Timer(0.2, consumer.wakeup)
        timer.start()
        begun = time.monotonic()
        with pytest.raises(WakeupError):
            consumer.poll(timeout_ms=10_000)
        assert time.monotonic() - begun < 0.2 + SLACK
        timer.join()
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll()
        consumer.poll()


def test_close_from_another_thread_ends_the_call_that_waits(broker: Broker) -> None:
    consumer = consumer_of(broker, P0, auto_offset_reset="latest")
    consumer.position(P0)
    timer = threading.Timer(0.2, consumer.close)
    timer.start()
    with pytest.raises(ClosedError):
        consumer.poll(timeout_ms=10_000)
    timer.join()


def test_a_forked_child_is_refused_and_the_parent_goes_on(broker: Broker) -> None:
    with consumer_of(broker, P0) as consumer:
        read(consumer, 1)
        pipe, child = multiprocessing.Pipe()
        pid = os.fork()
        if pid == 0:
            try:
                consumer.poll()
            except UsageError as failure:
                child.send(str(failure))
            except BaseException as failure:
                child.send(repr(failure))
            os._exit(0)
        assert "fork" in pipe.recv()
        os.waitpid(pid, 0)
        consumer.seek(P0, 0)
        assert len(read(consumer, 100)[P0]) == 100


# --- deadlines ----------------------------------------------------------------------------------------------------------


def timed(call: Callable[[], object], limit: float) -> None:
    begun = time.monotonic()
    call()
    assert time.monotonic() - begun < limit + SLACK


@pytest.mark.parametrize("ms", [0, 100, 400])
def test_every_call_returns_by_its_timeout(broker: Broker, ms: int) -> None:
    """Nobody answers anything after the start."""
    with consumer_of(broker, P0, group_id="g", auto_offset_reset="latest", enable_auto_commit=False) as consumer:
        consumer.position(P0)
        broker.on("*", drop(), times=None)
        timed(lambda: consumer.poll(timeout_ms=ms), ms / 1000)
        timed(lambda: consumer.poll_blocks(timeout_ms=ms), ms / 1000)
        for call in (
            lambda: consumer.commit({P0: 1}, timeout_ms=ms),
            lambda: consumer.committed([P0], timeout_ms=ms),
            lambda: consumer.end_offsets([P0], timeout_ms=ms),
            lambda: consumer.beginning_offsets([P0], timeout_ms=ms),
            lambda: consumer.offsets_for_times({P0: 1}, timeout_ms=ms),
            lambda: consumer.partitions_for("other", timeout_ms=ms),
            lambda: consumer.topics(timeout_ms=ms),
        ):
            begun = time.monotonic()
            with pytest.raises(TimedOut, match=f"within {ms} ms"):
                call()
            assert time.monotonic() - begun < ms / 1000 + SLACK
        consumer.seek_to_end(P0)
        with pytest.raises(TimedOut, match="the position of orders-0"):
            consumer.position(P0, timeout_ms=ms)
        timed(lambda: consumer.close(timeout_ms=ms), max(ms / 1000, 0.1))


def test_an_unreachable_cluster_is_one_clear_sentence() -> None:
    with Consumer(bootstrap_servers="127.0.0.1:9,127.0.0.1:10") as consumer:
        for call in (
            lambda: consumer.topics(timeout_ms=400),
            lambda: consumer.end_offsets([P0], timeout_ms=400),
            lambda: consumer.assign([P0]) or consumer.poll(timeout_ms=400),
        ):
            begun = time.monotonic()
            with pytest.raises(ConnectionFailedError, match=r"no broker could be reached.*127.0.0.1:9.*[Cc]onnection refused"):
                call()
            assert time.monotonic() - begun < 0.4 + SLACK


def test_polls_during_an_outage_are_empty_and_on_time_and_reading_goes_on(broker: Broker) -> None:
    with consumer_of(broker, P0, P1) as consumer:
        read(consumer, 200)
        for node in broker.nodes:
            broker.kill_node(node)
        for _ in range(3):
            timed(lambda: consumer.poll(timeout_ms=300), 0.3)
        for node in (1, 2):
            broker.restart_node(node)
        broker.append("orders", 0, encode_batch([b"back"]))
        assert read(consumer, 1) == {P0: [100]}


def test_an_unknown_topic_is_raised_by_poll_and_the_others_flow(broker: Broker) -> None:
    with consumer_of(broker, P0, TopicPartition("nope", 0)) as consumer:
        got: list[int] = []
        for _ in range(3):  # told again and again, between good records
            records, said = read_until(UnknownTopicError, consumer)
            got += [o for offsets in records.values() for o in offsets]
            assert "'nope'" in said
        assert got == list(range(100))


# --- interrupts ---------------------------------------------------------------------------------------------------------

INTERRUPTED = """
import signal, sys, time
from fastfetch import Consumer, TopicPartition
signal.signal(signal.SIGINT, signal.default_int_handler)
tp = TopicPartition("orders", 0)
consumer = Consumer(bootstrap_servers=sys.argv[1], auto_offset_reset="latest", fetch_max_wait_ms=50, group_id="g")
consumer.assign([tp])
consumer.position(tp)
calls = {
    "poll": lambda: consumer.poll(timeout_ms=60_000),
    "blocks": lambda: next(consumer.blocks()),
    "iterate": lambda: next(iter(consumer)),
    "commit": lambda: consumer.commit({tp: 1}),
    "end_offsets": lambda: consumer.end_offsets([tp]),
}
print("ready", flush=True)
try:
    calls[sys.argv[2]]()
except KeyboardInterrupt:
    print("interrupted", flush=True)
consumer.close(timeout_ms=200)
"""


@pytest.mark.parametrize("call", ["poll", "blocks", "iterate", "commit", "end_offsets"])
def test_ctrl_c_ends_a_waiting_call(broker: Broker, call: str) -> None:
    if call in ("commit", "end_offsets"):
        broker.on("OffsetCommit", drop(), times=None)
        broker.on("ListOffsets", drop(), times=None, nth=2)
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, broker.bootstrap_servers, call], stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    assert time.monotonic() - begun < 2 * SLACK
    assert process.wait(10) == 0
    process.stdout.close()


# --- endings ------------------------------------------------------------------------------------------------------------


def test_a_consumer_that_is_forgotten_ends_its_thread_with_a_warning(broker: Broker) -> None:
    consumer = consumer_of(broker, P0)
    read(consumer, 10)
    client = consumer._client
    with pytest.warns(ResourceWarning, match="unclosed"):  # noqa: PT031 - both belong to it
        del consumer
        gc.collect()
    assert client.join(5)
    deadline = time.monotonic() + 5
    while broker.connections() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert broker.connections() == 0


def test_the_interpreter_ends_with_an_open_consumer(broker: Broker) -> None:
    code = (
        "import sys; from fastfetch import Consumer, TopicPartition\n"
        "c = Consumer(bootstrap_servers=sys.argv[1], auto_offset_reset='earliest'); c.assign([TopicPartition('orders', 0)])\n"
        "assert c.poll(timeout_ms=5000)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, broker.bootstrap_servers], capture_output=True, text=True, timeout=20, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_close_is_bounded_when_the_coordinator_is_silent(broker: Broker) -> None:
    consumer = consumer_of(broker, P0, group_id="g")
    read(consumer, 100)
    broker.on("OffsetCommit", delay(20), times=None)
    timed(lambda: consumer.close(timeout_ms=300), 0.4)


def test_the_end_of_the_background_thread_is_told_to_the_caller(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = consumer_of(broker, P0)
    try:
        read(consumer, 100)

        def broken(now_ms: int) -> None:
            raise RuntimeError("planted")

        monkeypatch.setattr(consumer._engine, "pump", broken)
        begun = time.monotonic()
        assert "planted" in read_until(FastFetchError, consumer)[1]
        assert time.monotonic() - begun < 5
    finally:
        consumer.close()


def test_nothing_is_printed_and_no_record_bytes_are_logged(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    secret = encode_batch([b"do-not-log-me"] * 5)
    bad = bytearray(secret)
    bad[-40] ^= 1
    broker.append("orders", 0, bytes(bad))
    caplog.set_level("DEBUG", "fastfetch")
    with consumer_of(broker, P0) as consumer:
        said = read_until(CrcMismatchError, consumer)[1]
        broker.disconnect()
        read_until(CrcMismatchError, consumer)
    assert caplog.records
    assert "do-not-log-me" not in caplog.text + said


def test_metrics(broker: Broker) -> None:
    with consumer_of(broker, P0) as consumer:
        read(consumer, 100)
        assert consumer.current_lag(P0) == 0
        metrics = consumer.metrics()
        assert metrics["records"] == 100
        assert metrics["lag"] == {P0: 0}
        assert metrics["buffered_bytes"] == 0
        assert metrics["fetch_bytes"] > 0
