"""Fetch: the size rules, what isolation shows, epochs, followers, sessions, and logs that were not appended."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fastfetch.testing import Broker, Row, control_batch, demo_corpus, encode_batch, message_set, rebase
from fastfetch.testing.batches import entries
from tests.testing.wire import Wire, only

BATCH = encode_batch([b"x" * 100] * 10)


def offsets(records: bytes | memoryview) -> list[tuple[int, int]]:
    """(base, last) of the whole batches of an answer."""
    return [(e.base_offset, e.last_offset) for e in entries(bytes(records))]


# --------------------------------------------------------------------------------------------------------------------- sizes


@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_fetch_starts_at_the_batch_of_its_offset_and_is_cut_at_the_limit(version: int) -> None:
    with Broker() as broker, Wire(broker) as wire:
        broker.create_topic("t")
        for _ in range(5):
            broker.append("t", 0, BATCH)
        whole = bytes(only(wire.fetch(version=version))["records"])
        assert offsets(whole) == [(0, 9), (10, 19), (20, 29), (30, 39), (40, 49)]
        assert bytes(only(wire.fetch(offset=25, version=version))["records"]) == whole[2 * len(BATCH) :]
        for limit in (len(BATCH), len(BATCH) + 1, 2 * len(BATCH) - 1, 3 * len(BATCH) + 70):
            found = bytes(only(wire.fetch(offset=10, version=version, partition_max_bytes=limit))["records"])
            assert found == whole[len(BATCH) : len(BATCH) + limit]
        # KIP-74: the first batch comes whole, whatever the limit.
        for limit in (0, 1, len(BATCH) - 1):
            assert bytes(only(wire.fetch(offset=10, partition_max_bytes=limit))["records"]) == whole[len(BATCH) : 2 * len(BATCH)]
        assert bytes(only(wire.fetch(offset=10, max_bytes=0))["records"]) == whole[len(BATCH) : 2 * len(BATCH)]
        at_end = only(wire.fetch(offset=50))
        assert (bytes(at_end["records"]), at_end["error_code"], at_end["high_watermark"]) == (b"", 0, 50)


def test_partitions_are_filled_in_request_order() -> None:
    with Broker() as broker, Wire(broker) as wire:
        broker.create_topic("t", partitions=4)
        for partition in (1, 2, 3):
            for _ in range(4):
                broker.append("t", partition, BATCH)

        def sizes(order: list[int], max_bytes: int, partition_max_bytes: int = 1 << 20) -> dict[int, int]:
            asked = [{"partition": p, "fetch_offset": 0, "partition_max_bytes": partition_max_bytes} for p in order]
            (topic,) = wire.fetch_all([("t", asked)], max_bytes=max_bytes)["responses"]
            assert [p["partition_index"] for p in topic["partitions"]] == order
            return {p["partition_index"]: len(p["records"]) for p in topic["partitions"]}

        n = len(BATCH)
        assert sizes([0, 1, 2, 3], 100 * n) == {0: 0, 1: 4 * n, 2: 4 * n, 3: 4 * n}
        assert sizes([0, 1, 2, 3], 100 * n, n + 5) == {0: 0, 1: n + 5, 2: n + 5, 3: n + 5}
        assert sizes([0, 2, 1, 3], 5 * n + 7) == {0: 0, 2: 4 * n, 1: n + 7, 3: 0}
        # Only the first partition with data may go over the limits.
        assert sizes([0, 3, 2, 1], 1) == {0: 0, 3: n, 2: 0, 1: 0}
        assert sizes([3, 2], 100 * n, n - 1) == {3: n, 2: 0}


def test_a_segment_boundary_is_no_boundary_of_a_fetch() -> None:
    with Broker() as broker, Wire(broker) as wire:
        broker.create_topic("t")
        for _ in range(200):  # the first in-memory segments hold 16 KiB
            broker.append("t", 0, BATCH)
        broker.append("t", 0, encode_batch([b"y" * 9_000_000]))
        broker.append("t", 0, BATCH)
        answer = bytes(only(wire.fetch(partition_max_bytes=20 << 20))["records"])
        assert offsets(answer) == [(i * 10, i * 10 + 9) for i in range(200)] + [(2000, 2000), (2001, 2010)]
        rest = only(wire.fetch(offset=1995, partition_max_bytes=20 << 20))["records"]
        assert offsets(rest) == [(1990, 1999), (2000, 2000), (2001, 2010)]


def test_long_poll_wakes_up_on_append() -> None:
    with Broker() as broker, Wire(broker) as wire:
        broker.create_topic("t")
        start = time.monotonic()
        assert not only(wire.fetch(wait=100))["records"]
        assert 0.09 < time.monotonic() - start < 2
        threading.Timer(0.1, broker.append, ("t", 0, BATCH)).start()
        start = time.monotonic()
        assert only(wire.fetch(wait=20_000))["records"]
        assert time.monotonic() - start < 5
        # min_bytes: one batch is not enough, two are
        threading.Timer(0.05, broker.append, ("t", 0, BATCH)).start()
        assert len(only(wire.fetch(wait=20_000, min_bytes=len(BATCH) + 1))["records"]) == 2 * len(BATCH)
        # nor does a fetch whose offset goes away meanwhile
        threading.Timer(0.05, broker.delete_records, ("t", 0, 20)).start()
        threading.Timer(0.1, broker.truncate, ("t", 0, 15)).start()
        broker.append("t", 0, BATCH)
        start = time.monotonic()
        assert only(wire.fetch(offset=30, wait=20_000))["error_code"] == 1
        assert time.monotonic() - start < 5
        # an error does not wait
        assert only(wire.fetch(offset=99, wait=20_000))["error_code"] == 1


# ----------------------------------------------------------------------------------------------------------- errors, isolation


def test_errors_of_a_partition() -> None:
    with Broker(nodes=2) as broker, Wire(broker, 1) as one, Wire(broker, 2) as two:
        topic_id = broker.create_topic("t")
        broker.append("t", 0, BATCH)
        broker.append("t", 0, BATCH)
        broker.delete_records("t", 0, before=15)

        def code(answer: dict[str, Any]) -> int:
            found = only(answer)
            if found["error_code"]:
                assert not found["records"]
                assert (found["high_watermark"], found["last_stable_offset"], found["log_start_offset"]) == (-1, -1, -1)
            return int(found["error_code"])

        assert [code(one.fetch(offset=o)) for o in (-1, 14, 15, 20, 21)] == [1, 1, 0, 0, 1]
        assert offsets(only(one.fetch(offset=15))["records"]) == [(10, 19)]
        assert code(one.fetch("no")) == 3
        assert code(one.fetch(partition=1)) == 3
        assert code(one.fetch(b"x" * 16, version=13)) == 100
        assert code(one.fetch(bytes(16), version=13)) == 100
        assert code(one.fetch(topic_id, offset=15, version=13)) == 0
        assert code(two.fetch(offset=15)) == 6
        broker.move_leader("t", 0, 2, epoch=5)
        assert [code(two.fetch(offset=15, epoch=e)) for e in (-1, 4, 5, 6)] == [0, 74, 0, 75]


def test_the_new_leader_comes_with_the_error_from_version_16_on() -> None:
    with Broker(nodes=2) as broker, Wire(broker, 1) as wire:
        topic_id = broker.create_topic("t")
        broker.move_leader("t", 0, 2, epoch=3)
        for version in (15, 16, 17):
            answer = wire.fetch(topic_id, version=version)
            assert only(answer)["error_code"] == 6
            leader = only(answer)["current_leader"]
            host, port = broker.address(2)
            if version < 16:
                assert (leader, answer["node_endpoints"]) == ({"leader_id": -1, "leader_epoch": -1}, [])
            else:
                assert leader == {"leader_id": 2, "leader_epoch": 3}
                assert answer["node_endpoints"] == [{"node_id": 2, "host": host, "port": port, "rack": None}]


def test_transactions() -> None:
    with Broker() as broker, Wire(broker) as wire:
        broker.create_topic("t")

        def put(*values: bytes, producer: int = -1) -> None:
            broker.append("t", 0, encode_batch(values, producer_id=producer, producer_epoch=0, transactional=producer >= 0))

        def see(isolation: int, offset: int = 0) -> tuple[list[int], Any, int, int]:
            found = only(wire.fetch(offset=offset, isolation_level=isolation))
            aborted = found["aborted_transactions"]
            pairs = None if aborted is None else [(a["producer_id"], a["first_offset"]) for a in aborted]
            bases = [base for base, _ in offsets(found["records"])]
            return bases, pairs, found["last_stable_offset"], found["high_watermark"]

        put(b"a", b"b")  # 0, 1
        put(b"c", producer=1)  # 2
        put(b"d", producer=2)  # 3
        put(b"e")  # 4
        assert see(0) == ([0, 2, 3, 4], None, 2, 5)
        assert see(1) == ([0], [], 2, 5)
        broker.append("t", 0, control_batch("abort", producer_id=1))  # 5
        assert see(1) == ([0, 2], [(1, 2)], 3, 6)
        broker.append("t", 0, control_batch("commit", producer_id=2))  # 6
        assert see(1) == ([0, 2, 3, 4, 5, 6], [(1, 2)], 7, 7)
        assert see(1, offset=6) == ([6], [], 7, 7)
        assert see(1, offset=3) == ([3, 4, 5, 6], [(1, 2)], 7, 7)
        broker.append("t", 0, control_batch("abort", producer_id=9))  # 7: of a transaction that wrote nothing here
        put(b"f", producer=1)  # 8
        broker.append("t", 0, control_batch("abort", producer_id=1))  # 9
        assert see(1, offset=0)[1:] == ([(1, 2), (1, 8)], 10, 10)
        # A broker's index is sparse: what begins soon behind the bytes returned is listed too, what begins far behind is not.
        cut = only(wire.fetch(isolation_level=1, partition_max_bytes=1))
        assert len(cut["aborted_transactions"]) == 2
        put(b"x" * 9000)
        put(b"g", producer=5)
        broker.append("t", 0, control_batch("abort", producer_id=5))
        cut = only(wire.fetch(isolation_level=1, partition_max_bytes=1))
        assert len(cut["aborted_transactions"]) == 2


def test_a_held_watermark() -> None:
    with Broker() as broker, Wire(broker) as wire:
        broker.create_topic("t")
        broker.append("t", 0, BATCH)
        broker.append("t", 0, BATCH)
        broker.hold_watermark("t", 0, 10)
        assert offsets(only(wire.fetch())["records"]) == [(0, 9)]
        at_it = only(wire.fetch(offset=15))
        assert (at_it["error_code"], bytes(at_it["records"]), at_it["high_watermark"]) == (0, b"", 10)
        broker.hold_watermark("t", 0, None)
        assert offsets(only(wire.fetch(offset=15))["records"]) == [(10, 19)]


def test_a_diverging_epoch() -> None:
    with Broker() as broker, Wire(broker) as wire:
        broker.create_topic("t")
        broker.append("t", 0, BATCH)
        broker.move_leader("t", 0, 1, epoch=2)
        broker.append("t", 0, BATCH)
        broker.move_leader("t", 0, 1, epoch=4)
        assert "diverging_epoch" in only(wire.fetch(offset=15, last_epoch=2))
        assert only(wire.fetch(offset=15, last_epoch=5))["error_code"] == 1
        assert only(wire.fetch(offset=15, last_epoch=0))["diverging_epoch"] == {"epoch": 0, "end_offset": 10}
        assert only(wire.fetch(offset=5, last_epoch=1))["diverging_epoch"] == {"epoch": 0, "end_offset": 10}


def test_a_preferred_replica() -> None:
    with Broker(nodes=3) as broker, Wire(broker, 1) as leader, Wire(broker, 2) as follower, Wire(broker, 3) as other:
        broker.create_topic("t", replication=2)
        broker.append("t", 0, BATCH)
        broker.prefer_replica("t", 0, 2)
        named = only(leader.fetch(version=11, wait=10_000))
        assert (named["preferred_read_replica"], bytes(named["records"]), named["error_code"]) == (2, b"", 0)
        assert only(leader.fetch(version=10))["records"]
        assert only(follower.fetch(version=11))["records"]
        assert only(other.fetch(version=11))["error_code"] == 6
        broker.prefer_replica("t", 0, 99)  # nobody knows this one
        assert only(leader.fetch(version=11))["preferred_read_replica"] == 99
        broker.prefer_replica("t", 0, -1)
        assert only(leader.fetch(version=11))["preferred_read_replica"] == -1


def test_replicas_and_strangers() -> None:
    with Broker(nodes=3) as broker, Wire(broker, 1) as first, Wire(broker, 2) as second, Wire(broker, 3) as third:
        broker.create_topic("t", replication=2)
        broker.append("t", 0, BATCH)
        assert [only(second.fetch(version=v))["error_code"] for v in (10, 11, 12)] == [6, 0, 0]
        assert [only(third.fetch(version=v))["error_code"] for v in (10, 11, 12)] == [6, 6, 6]
        # a replica compares the epoch first, a stranger knows none
        assert [only(second.fetch(version=10, epoch=e))["error_code"] for e in (0, 1)] == [6, 75]
        assert only(third.fetch(version=12, epoch=1))["error_code"] == 6
        broker.move_leader("t", 0, 2)
        assert [only(first.fetch(version=v, epoch=0))["error_code"] for v in (10, 12)] == [74, 74]
        assert [only(first.fetch(version=v, epoch=1))["error_code"] for v in (10, 12)] == [6, 0]
        broker.move_leader("t", 0, 3)  # in place of node 2
        assert [only(wire.fetch(version=12))["error_code"] for wire in (first, second, third)] == [0, 6, 0]


# ------------------------------------------------------------------------------------------------------------------ sessions


def test_a_session_answers_only_news() -> None:
    with Broker() as broker, Wire(broker) as wire:
        broker.create_topic("t", partitions=3)

        def asked(*places: tuple[int, int]) -> list[tuple[str, list[dict[str, Any]]]]:
            partitions = [{"partition": p, "fetch_offset": o, "partition_max_bytes": 1 << 20} for p, o in places]
            return [("t", partitions)] if partitions else []

        def seen(answer: dict[str, Any]) -> list[int]:
            """Partitions of an answer, in order."""
            assert answer["error_code"] == 0
            return [p["partition_index"] for t in answer["responses"] for p in t["partitions"]]

        first = wire.fetch_all(asked((0, 0), (1, 0), (2, 0)), session=(0, 0))
        assert seen(first) == [0, 1, 2]
        number = first["session_id"]
        assert number > 0
        assert seen(wire.fetch_all([], session=(number, 1))) == []
        broker.append("t", 1, BATCH)
        news = wire.fetch_all([], session=(number, 2))
        assert (seen(news), news["session_id"]) == ([1], number)
        assert seen(wire.fetch_all(asked((1, 10)), session=(number, 3))) == []
        # records and changed watermarks are news, once
        broker.append("t", 0, BATCH)
        broker.append("t", 1, BATCH)
        # partition 1 gave records before, so it comes after the others now
        assert seen(wire.fetch_all(asked((1, 20)), session=(number, 4))) == [0, 1]
        assert seen(wire.fetch_all(asked((0, 10)), session=(number, 5))) == []
        # a forgotten partition is silent
        broker.append("t", 2, BATCH)
        forget = [{"topic": "t", "partitions": [2]}]
        assert seen(wire.fetch_all([], session=(number, 6), forgotten_topics_data=forget)) == []
        assert seen(wire.fetch_all(asked((2, 0)), session=(number, 7))) == [2]
        # a preferred replica and errors are repeated
        broker.prefer_replica("t", 1, 2)
        for epoch in (8, 9):
            assert seen(wire.fetch_all(asked((2, 10)), session=(number, epoch))) == [1]
        broker.prefer_replica("t", 1, -1)
        assert seen(wire.fetch_all(asked((0, 99)), session=(number, 10))) == [0]
        assert seen(wire.fetch_all([], session=(number, 11))) == [0]

        assert wire.fetch_all([], session=(number, 11))["error_code"] == 71
        assert wire.fetch_all([], session=(number + 50, 1))["error_code"] == 70
        again = wire.fetch_all(asked((1, 20)), session=(number, 0))
        assert again["session_id"] not in (0, number)
        assert wire.fetch_all([], session=(number, 12))["error_code"] == 70
        assert wire.fetch_all(asked((1, 20)), session=(again["session_id"], -1))["session_id"] == 0
        assert wire.fetch_all([], session=(again["session_id"], 1))["error_code"] == 70


def test_sessions_are_few_or_none() -> None:
    with Broker(fetch_sessions=0) as broker, Wire(broker) as wire:
        broker.create_topic("t")
        assert wire.fetch(session=(0, 0))["session_id"] == 0
    with Broker(fetch_sessions=2) as broker, Wire(broker) as wire:
        broker.create_topic("t")
        first, *_ = [wire.fetch(session=(0, 0))["session_id"] for _ in range(3)]
        assert wire.fetch(session=(first, 1))["error_code"] == 70
        broker.restart_node(1)
        with Wire(broker) as again:
            assert again.fetch(session=(first + 2, 1))["error_code"] == 70


def test_sessions_with_topic_ids() -> None:
    with Broker() as broker, Wire(broker) as wire:
        topic_id = broker.create_topic("t")
        number = wire.fetch(topic_id, version=16, session=(0, 0))["session_id"]
        broker.append("t", 0, BATCH)
        (topic,) = wire.fetch_all([], version=16, session=(number, 1))["responses"]
        assert topic["topic_id"] == topic_id
        forget = [{"topic_id": topic_id, "partitions": [0]}]
        assert wire.fetch_all([], version=16, session=(number, 2), forgotten_topics_data=forget)["responses"] == []


# ---------------------------------------------------------------------------------------------------------------------- logs


def test_appending_gives_offsets_and_epochs() -> None:
    with Broker() as broker, Wire(broker) as wire:
        broker.create_topic("t")
        two = encode_batch([b"a"], base_offset=70) + encode_batch([b"b"] * 3, base_offset=90)
        assert broker.append("t", 0, two) == (0, 22)
        broker.move_leader("t", 0, 1, epoch=6)
        assert broker.append("t", 0, message_set([b"c", b"d"], codec="gzip")) == (23, 24)
        assert broker.append("t", 0, BATCH) == (25, 34)
        found = bytes(only(wire.fetch())["records"])
        assert offsets(found) == [(0, 0), (20, 22), (23, 24), (25, 34)]
        assert found[12:16] == bytes(4)
        assert found[-len(BATCH) :] == rebase(BATCH, 25, leader_epoch=6)
        with pytest.raises(ValueError, match="whole batches"):
            broker.append("t", 0, BATCH[:-1])


def test_offsets_can_be_kept() -> None:
    with Broker() as broker, Wire(broker) as wire:
        broker.create_topic("t")
        broker.append("t", 0, rebase(BATCH, 1000), keep_offsets=True)
        broker.append("t", 0, rebase(BATCH, 1050), keep_offsets=True)
        assert (broker.start_offset("t", 0), broker.end_offset("t", 0)) == (1000, 1060)
        assert offsets(only(wire.fetch(offset=1020))["records"]) == [(1050, 1059)]
        assert only(wire.fetch(offset=999))["error_code"] == 1
        with pytest.raises(ValueError, match="below the log's end 1060"):
            broker.append("t", 0, rebase(BATCH, 1059), keep_offsets=True)


def test_any_bytes_can_be_served() -> None:
    with Broker() as broker, Wire(broker) as wire:
        broker.create_topic("t")
        broker.append("t", 0, BATCH)
        assert broker.append_raw("t", 0, b"rubbish" * 10, offsets=5) == (10, 14)
        broker.append("t", 0, BATCH)
        assert bytes(only(wire.fetch(offset=12))["records"]) == b"rubbish" * 10 + rebase(BATCH, 15, 0)


def test_retention_and_truncation() -> None:
    with Broker() as broker, Wire(broker) as wire:
        broker.create_topic("t")
        for _ in range(100):
            broker.append("t", 0, BATCH)
        broker.delete_records("t", 0, before=995)
        assert only(wire.fetch(offset=994))["error_code"] == 1
        assert offsets(only(wire.fetch(offset=995))["records"]) == [(990, 999)]
        assert only(wire.fetch(offset=995))["log_start_offset"] == 995
        for producer in (3, 4):
            broker.append("t", 0, encode_batch([b"x"], producer_id=producer, transactional=True))
        broker.append("t", 0, control_batch("abort", producer_id=3))
        broker.truncate("t", 0, to=1000)
        assert broker.end_offset("t", 0) == broker.end_offset("t", 0, isolation="read_committed") == 1000
        assert only(wire.fetch(offset=1001))["error_code"] == 1
        broker.append("t", 0, BATCH)
        again = only(wire.fetch(offset=995, isolation_level=1))
        assert offsets(again["records"]) == [(990, 999), (1000, 1009)]
        assert again["aborted_transactions"] == []


def test_segments_of_a_disk(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    first = rebase(BATCH, 40, leader_epoch=1) + rebase(BATCH, 50, leader_epoch=1)
    second = encode_batch([b"a"], base_offset=70, producer_id=1, transactional=True, leader_epoch=3)
    second += control_batch("abort", producer_id=1, base_offset=71, leader_epoch=3)
    (folder / f"{40:020}.log").write_bytes(first)
    (folder / f"{70:020}.log").write_bytes(second + BATCH[:30])  # a tail that is being written
    (folder / f"{70:020}.index").write_bytes(b"")
    with Broker() as broker, Wire(broker) as wire:
        broker.load_segment(folder, "t", 1)
        asked = {"partition": 1, "partition_max_bytes": 1 << 20, "fetch_offset": 55}
        found = only(wire.fetch_all([("t", [asked])], isolation_level=1))
        assert bytes(found["records"]) == rebase(BATCH, 50, 1) + second
        assert found["aborted_transactions"] == [{"producer_id": 1, "first_offset": 70}]
        assert (broker.start_offset("t", 1), broker.end_offset("t", 1), broker.leader("t", 1)) == (40, 72, (1, 3))
        epochs = [{"partition": 1, "leader_epoch": e, "current_leader_epoch": -1} for e in (1, 2, 3)]
        answers = wire.call("OffsetForLeaderEpoch", 3, topics=[{"topic": "t", "partitions": epochs}])["topics"][0]["partitions"]
        assert [(a["leader_epoch"], a["end_offset"]) for a in answers] == [(1, 70), (1, 70), (3, 72)]
        assert broker.append("t", 1, BATCH) == (72, 81)
        (tmp_path / "odd.log").write_bytes(first)
        (tmp_path / "empty.log").write_bytes(b"")
        broker.load_segment(tmp_path / "odd.log", "odd")
        assert (broker.start_offset("odd", 0), broker.end_offset("odd", 0)) == (40, 60)
        broker.load_segment(tmp_path / "empty.log", "empty")
        assert broker.end_offset("empty", 0) == 0
        (tmp_path / "none").mkdir()
        for missing in ("none", "not there"):
            with pytest.raises(FileNotFoundError):
                broker.load_segment(tmp_path / missing, missing)


def test_generated_logs_are_what_appending_would_have_made() -> None:
    sizes = [3, 1, 10, 7]
    template = b"".join(encode_batch([b"v" * n] * n, base_offset=sum(sizes[:i]) + i) for i, n in enumerate(sizes))
    with Broker() as broker, Wire(broker) as wire:
        broker.create_topic("t", partitions=2)
        for partition in (0, 1):
            broker.append("t", partition, BATCH)
            broker.move_leader("t", partition, 1, epoch=2)
        broker.generate("t", 0, template, 50)
        for _ in range(50):
            broker.append("t", 1, template)
        broker.append("t", 0, BATCH)
        broker.append("t", 1, BATCH)
        assert broker.end_offset("t", 0) == broker.end_offset("t", 1) == 20 + 50 * (sum(sizes) + 3)
        for offset in (0, 9, 10, 12, 13, 14, 33, 34, 35, 600, 1200, 1201, 1209):
            for limit in (1, 100, 333, 1000, 5000, 1 << 20):
                asked = [{"partition": p, "fetch_offset": offset, "partition_max_bytes": limit} for p in (0, 1)]
                (zero,) = (only(wire.fetch_all([("t", asked[:1])])),)
                (one,) = (only(wire.fetch_all([("t", asked[1:])])),)
                zero.pop("partition_index"), one.pop("partition_index")
                assert zero == one, (offset, limit)
        for timestamp in (-3, 0, 1_700_000_000_009, 1_800_000_000_000):
            asked = [{"partition_index": p, "timestamp": timestamp} for p in (0, 1)]
            zero, one = wire.call("ListOffsets", 7, topics=[{"name": "t", "partitions": asked}])["topics"][0]["partitions"]
            assert zero["offset"] == one["offset"]
        for wrong, repeats in ((b"", 1), (BATCH[:-1], 1), (message_set([b"x"]), 1), (BATCH, 0)):
            with pytest.raises(ValueError, match=r"template|repeats"):
                broker.generate("t", 0, wrong, repeats)


def test_the_demo_data() -> None:
    with Broker(nodes=2) as broker, Wire(broker, 1) as wire:
        made = demo_corpus(broker, "orders", records=100_000, distinct=800)
        assert [p.codec for p in made] == ["none", "gzip", "snappy", "lz4", "zstd"]
        assert sum(p.records for p in made) == 100_000
        for p in made:
            assert broker.end_offset("orders", p.partition) == p.records
            assert p.batches == p.records // 80
            assert (p.size < 0.5 * p.inflated) == (p.codec != "none")
        found = only(wire.fetch("orders", offset=19_990, partition=0))
        assert offsets(found["records"]) == [(19_920, 19_999)]
        again = demo_corpus(broker, "again", records=100_000, distinct=800)
        assert again == made
        broker.append("orders", 0, encode_batch([Row(b"k", b"v")]))
