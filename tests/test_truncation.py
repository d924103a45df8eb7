"""Logs that lose their end, leaders that move, topics that come again, resets by time: over TCP, against the scripted broker."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator

import pytest

from fastfetch import Consumer, TopicPartition
from fastfetch.errors import LogTruncationError, UnknownTopicError
from fastfetch.testing import Broker, encode_batch
from fastfetch.types import OffsetAndMetadata

P0 = TopicPartition("t", 0)
WAIT_MS = 20_000


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(nodes=3) as broker:
        broker.create_topic("t", partitions=1, replication=3)
        yield broker


def consumer(broker: Broker, **settings: object) -> Consumer:
    return Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        **{"auto_offset_reset": "earliest", "fetch_max_wait_ms": 100, "retry_backoff_ms": 20, **settings},
    )


def append(broker: Broker, *values: str, topic: str = "t", partition: int = 0) -> None:
    """A batch a record: a log is cut between batches."""
    for value in values:
        broker.append(topic, partition, encode_batch([value.encode()]))


def values(consumer: Consumer, count: int) -> list[str]:
    """The next `count` values."""
    out: list[str] = []
    deadline = time.monotonic() + WAIT_MS / 1000
    while len(out) < count and time.monotonic() < deadline:
        for records in consumer.poll(1000).values():
            out += [record.value.decode() for record in records if record.value is not None]
    assert len(out) == count, out
    return out


def unclean_election(broker: Broker, to: int, node: int = 2) -> None:
    """A node that lacks everything from offset `to` on becomes the leader."""
    broker.truncate("t", 0, to)
    broker.move_leader("t", 0, node)


def test_a_leader_that_moves_costs_nothing(broker: Broker) -> None:
    with consumer(broker) as c:
        c.assign([P0])
        for round_ in range(6):
            append(broker, f"{round_}a", f"{round_}b")
            assert values(c, 2) == [f"{round_}a", f"{round_}b"]
            broker.move_leader("t", 0, round_ % 3 + 1)
        append(broker, "end")
        assert values(c, 1) == ["end"]
        assert c.position(P0) == 13


def test_records_that_took_the_offsets_of_lost_ones_are_delivered(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    append(broker, *"abcdefgh")
    with consumer(broker) as c:
        c.assign([P0])
        assert values(c, 8) == list("abcdefgh")
        unclean_election(broker, 5)
        append(broker, *"FGHIJ")
        with caplog.at_level(logging.WARNING, "fastfetch"):
            assert values(c, 5) == list("FGHIJ")
    assert "t-0 was cut" in caplog.text
    assert "offset 8 (leader epoch 0)" in caplog.text
    assert "offset 5" in caplog.text


def test_a_consumer_that_waits_at_the_end_and_has_read_nothing_misses_nothing(broker: Broker) -> None:
    """`latest` is an offset that its leader gave, with an epoch: that is enough to find out."""
    append(broker, *"abcdefgh")
    with consumer(broker, auto_offset_reset="latest") as c:
        c.assign([P0])
        assert c.position(P0) == 8
        unclean_election(broker, 5)
        append(broker, *"FGHIJ")
        assert values(c, 5) == list("FGHIJ")


def test_without_a_policy_it_is_an_error_that_says_where_to_go_on(broker: Broker) -> None:
    append(broker, *"abcdefgh")
    with consumer(broker, auto_offset_reset="none") as c:
        c.assign([P0])
        c.seek(P0, 0)
        assert values(c, 8) == list("abcdefgh")
        unclean_election(broker, 5)
        append(broker, *"FGHIJ")
        for _ in range(2):
            with pytest.raises(LogTruncationError, match="t-0 was cut") as caught:
                values(c, 1)
        error = caught.value
        assert (error.topic, error.partition, error.position, error.leader_epoch) == ("t", 0, 8, 0)
        assert (error.divergent_offset, error.divergent_epoch) == (5, 0)
        assert c.position(P0) == 8
        c.seek(P0, OffsetAndMetadata(5, "", 0))
        assert values(c, 5) == list("FGHIJ")


@pytest.mark.parametrize("policy", ["earliest", "none"])
def test_a_committed_offset_that_was_cut_off(broker: Broker, policy: str) -> None:
    append(broker, *"abcdefgh")
    broker.set_committed("g", "t", 0, 7, leader_epoch=0)
    unclean_election(broker, 5)
    append(broker, *"FGHIJ")
    with consumer(broker, group_id="g", auto_offset_reset=policy) as c:
        c.assign([P0])
        if policy == "none":
            with pytest.raises(LogTruncationError, match="offset 7"):
                c.position(P0)
            with pytest.raises(LogTruncationError, match="offset 7"):
                values(c, 1)
        else:
            assert c.position(P0) == 5
            assert values(c, 5) == list("FGHIJ")


def test_what_is_committed_carries_the_epoch_that_a_restart_checks(broker: Broker) -> None:
    append(broker, *"ab")
    broker.move_leader("t", 0, 2)
    append(broker, *"cd")
    with consumer(broker, group_id="g") as c:
        c.assign([P0])
        values(c, 4)
        c.commit()
    assert broker.committed("g") == {P0: OffsetAndMetadata(4, "", 1)}
    with consumer(broker, group_id="g") as c:
        c.assign([P0])
        assert c.position(P0) == 4
    [asked] = broker.requests("OffsetForLeaderEpoch")
    assert asked.body["topics"][0]["partitions"] == [{"partition": 0, "current_leader_epoch": 1, "leader_epoch": 1}]


def test_many_partitions_that_move_at_once_are_checked_in_a_request_a_node() -> None:
    with Broker(nodes=2) as broker:
        broker.create_topic("t", partitions=100, replication=2)
        tps = [TopicPartition("t", p) for p in range(100)]
        for tp in tps:
            append(broker, "a", partition=tp.partition)
        with consumer(broker) as c:
            c.assign(tps)
            values(c, 100)
            for tp in tps:
                broker.move_leader("t", tp.partition, 3 - broker.leader("t", tp.partition)[0])
                append(broker, "b", partition=tp.partition)
            assert values(c, 100) == ["b"] * 100
            asked = sum(len(t["partitions"]) for r in broker.requests("OffsetForLeaderEpoch") for t in r.body["topics"])
            # Metadata may be read while leaders are still being moved; but a partition is checked once a leader.
            assert asked <= 100


def test_a_broker_without_the_api_is_read_without_checks() -> None:
    with Broker(nodes=2, versions={"OffsetForLeaderEpoch": None}) as broker:
        broker.create_topic("t", partitions=1, replication=2)
        append(broker, *"ab")
        with consumer(broker) as c:
            c.assign([P0])
            assert values(c, 2) == ["a", "b"]
            broker.move_leader("t", 0, 2)
            append(broker, "c")
            assert values(c, 1) == ["c"]


@pytest.mark.parametrize("fetch", [(4, 17), (4, 12)], ids=["by id", "by name"])
def test_a_topic_that_was_deleted_and_created_again(fetch: tuple[int, int], caplog: pytest.LogCaptureFixture) -> None:
    with Broker(versions={"Fetch": fetch}) as broker:
        broker.create_topic("t")
        append(broker, *"abcdef")
        broker.create_topic("other")
        other = TopicPartition("other", 0)
        with consumer(broker, metadata_max_age_ms=500) as c:
            c.assign([P0, other])
            values(c, 6)
            broker.delete_topic("t")
            append(broker, "x", topic="other")
            assert values(c, 1) == ["x"], "the other one flows"
            with pytest.raises(UnknownTopicError, match="'t'"):
                values(c, 1)
            broker.create_topic("t")
            append(broker, "new")
            deadline = time.monotonic() + WAIT_MS / 1000
            found: list[str] = []
            while not found and time.monotonic() < deadline:
                try:
                    found = values(c, 1)
                except UnknownTopicError:
                    continue  # told again until brokers know it
            assert found == ["new"]
            assert c.position(P0) == 1
    assert "position 6 of t-0 is void" in caplog.text


def test_a_reset_by_duration() -> None:
    now_ms = time.time_ns() // 1_000_000
    with Broker() as broker:
        broker.create_topic("t", partitions=3)
        old = [(None, b"old", now_ms - 7_200_000)] * 3
        broker.append("t", 1, encode_batch(old))
        broker.append("t", 2, encode_batch([*old, (None, b"young", now_ms - 60_000)]))
        tps = [TopicPartition("t", p) for p in range(3)]
        with consumer(broker, auto_offset_reset="by_duration:PT1H") as c:
            c.assign(tps)
            assert [c.position(tp) for tp in tps] == [0, 3, 3]
            append(broker, "first", partition=0)
            append(broker, "next", partition=1)
            assert sorted(values(c, 3)) == ["first", "next", "young"]


def test_a_position_kept_elsewhere_with_its_epoch(broker: Broker) -> None:
    append(broker, *"abcdefgh")
    with consumer(broker) as c:
        c.assign([P0])
        block = next(c.blocks())
        assert block.last_leader_epoch == 0
    unclean_election(broker, 5)
    append(broker, *"FGHIJ")
    with consumer(broker) as c:
        c.assign([P0])
        c.seek(P0, OffsetAndMetadata(8, "", block.last_leader_epoch))
        assert c.position(P0) == 5
        c.seek(P0, OffsetAndMetadata(5, "", 0))
        assert c.position(P0) == 5
        assert values(c, 5) == list("FGHIJ")


@pytest.mark.parametrize("how", ["iterate", "blocks", "poll"])
def test_leaders_that_move_all_the_time_lose_and_repeat_nothing(how: str) -> None:
    """What was read ahead is thrown away at any moment of a hand-out, and read again from the next leader."""
    with Broker(nodes=3) as broker:
        broker.create_topic("t", partitions=4, replication=3)
        tps = [TopicPartition("t", p) for p in range(4)]
        some = b"".join(encode_batch([b"x"] * 50, base_offset=first) for first in range(0, 500, 50))
        over = threading.Event()

        def move() -> None:
            turn = 0
            while not over.wait(0.002):
                turn += 1
                broker.append("t", turn % 4, some)
                if turn % 5 == 0:
                    broker.move_leader("t", turn % 4, turn % 3 + 1)

        seen: dict[int, list[int]] = {p: [] for p in range(4)}
        mover = threading.Thread(target=move)
        settings = {"max_partition_fetch_bytes": 1_000, "metadata_max_age_ms": 20, "retry_backoff_ms": 5}
        with consumer(broker, **settings) as c:
            c.assign(tps)
            records = iter(c)

            def read() -> None:
                if how == "iterate":
                    record = next(records)
                    seen[record.partition].append(record.offset)
                elif how == "blocks":
                    for block in c.poll_blocks(timeout_ms=100):
                        seen[block.partition] += block.offsets.tolist()
                else:
                    for tp, found in c.poll(100, max_records=7).items():
                        seen[tp.partition] += [record.offset for record in found]

            deadline = time.monotonic() + WAIT_MS / 1000
            mover.start()
            try:
                while len(broker.requests("OffsetForLeaderEpoch")) < 40 and time.monotonic() < deadline:
                    read()
            finally:
                over.set()
                mover.join()
            deadline = time.monotonic() + WAIT_MS / 1000
            while any(len(seen[p]) < broker.end_offset("t", p) for p in range(4)) and time.monotonic() < deadline:
                read()
            assert seen == {p: list(range(broker.end_offset("t", p))) for p in range(4)}
            assert len(broker.requests("OffsetForLeaderEpoch")) >= 40
