"""The same script with confluent-kafka's Consumer and with ours, against the scripted broker: what it sees is the same.

Each test is a script that takes a namespace (`ck`) and a broker, and returns what it saw. It runs once with each, on a broker of
its own, and the two must agree. Texts of errors differ; their codes don't. Partitions take turns in no certain order, so what is
compared is sorted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from fastfetch.adapters import confluent_api
from fastfetch.testing import Broker, control_batch, encode_batch, message_set
from tests.adapters.scripts import beside, read

confluent_kafka = pytest.importorskip("confluent_kafka")

THEIRS = SimpleNamespace(**vars(confluent_kafka))
OURS = SimpleNamespace(**vars(confluent_api))
both = beside(THEIRS, OURS)

NOW = 1_700_000_000_000


def fill(broker: Broker, topic: str = "orders", partition: int = 0, count: int = 10, **options: Any) -> None:
    rows = [
        (b"k%d" % i if i % 3 else None, b"v%d" % i if i % 4 else None, NOW + i, [("h", b"x"), ("empty", None)] if i % 2 else [])
        for i in range(count)
    ]
    broker.append(topic, partition, encode_batch(rows, timestamp=NOW, **options))


def consumer(ck: Any, broker: Broker, **more: Any) -> Any:
    config = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 50,
        "log_level": 0,
        "enable.auto.commit": False,
    }
    return ck.Consumer(config | {key.replace("_", "."): value for key, value in more.items()})


def told(message: Any) -> Any:
    """What a script can ask of a message; of an error, all but its text."""
    error = message.error()
    where = (message.topic(), message.partition(), message.offset())
    if error is not None:
        return (
            where,
            error.code(),
            error.name(),
            error.fatal(),
            error.retriable(),
            error.txn_requires_abort(),
            message.timestamp(),
        )
    return (
        *where, message.key(), message.value(), message.headers(), message.timestamp(), message.latency(),
        message.leader_epoch(), len(message), message.delivery_count(), message.error(),
    )  # fmt: skip


def until(consumer: Any, is_so: Callable[[], bool], seconds: float = 20) -> None:
    """Poll until something has happened."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        assert consumer.poll(0.05) is None


def parts(partitions: list[Any]) -> list[Any]:
    return sorted((p.topic, p.partition, p.offset, p.metadata, p.leader_epoch, p.error) for p in partitions)


def code(call: Callable[[], Any]) -> Any:
    """What a call raises: the class, and the code of a KafkaError."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is what is compared
        call()
    error = caught.value
    if isinstance(error, confluent_kafka.KafkaException):
        return "KafkaException", error.args[0].code()
    return next(kind.__name__ for kind in (RuntimeError, TypeError, ValueError) if isinstance(error, kind))


# --- messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_messages_of_every_codec(codec: str) -> None:
    def script(ck: Any, broker: Broker) -> Any:
        for partition in range(2):
            fill(broker, partition=partition, count=20, codec=codec)
        with consumer(ck, broker) as c:
            c.assign([ck.TopicPartition("orders", 0), ck.TopicPartition("orders", 1)])
            return sorted(map(told, read(c, 40)))

    seen = both(script, orders=2)
    assert seen[1][3:7] == (b"k1", b"v1", [("h", b"x"), ("empty", None)], (1, NOW + 1))
    assert seen[0][3:7] == (None, None, None, (1, NOW))


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_the_old_formats(magic: int) -> None:
    def script(ck: Any, broker: Broker) -> Any:
        rows = [(b"k%d" % i, b"v%d" % i, NOW + i) for i in range(5)]
        broker.append("orders", 0, message_set(rows, magic=magic, codec="gzip"))
        with consumer(ck, broker) as c:
            c.assign([ck.TopicPartition("orders", 0)])
            return [told(message)[:7] for message in read(c, 5)]

    assert both(script)[4][6] == ((0, 0) if magic == 0 else (1, NOW + 4))


def test_log_append_time() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        fill(broker, log_append_time=NOW + 77)
        with consumer(ck, broker) as c:
            c.assign([ck.TopicPartition("orders", 0)])
            return [message.timestamp() == (ck.TIMESTAMP_LOG_APPEND_TIME, NOW + 77) for message in read(c, 10)]

    assert all(both(script))


def test_consume_waits_for_all_that_it_was_asked_for_or_until_the_time_is_up() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        fill(broker)
        fill(broker)
        with consumer(ck, broker) as c:
            c.assign([ck.TopicPartition("orders", 0)])
            first = list(map(told, c.consume(15, 20)))
            begun = time.monotonic()
            rest = list(map(told, c.consume(15, 0.5)))
            waited = time.monotonic() - begun
            return first, rest, 0.4 < waited < 5, c.consume(0, 1), c.consume(5, 0)

    first, rest, *_ = both(script)
    assert [message[2] for message in first] == list(range(15))
    assert [message[2] for message in rest] == list(range(15, 20))


def test_poll_and_consume_in_turn_go_on_where_the_other_stopped() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        for _ in range(5):
            fill(broker)
        with consumer(ck, broker) as c:
            c.assign([ck.TopicPartition("orders", 0)])
            seen = [message.offset() for message in read(c, 7)]
            seen += [message.offset() for message in c.consume(12, 20)]
            seen += [message.offset() for message in read(c, 25)]
            seen += [message.offset() for message in c.consume(100, 0.5)]
            return seen

    assert both(script) == list(range(50))


def test_read_committed_is_the_default() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        fill(broker, producer_id=7, transactional=True, producer_epoch=0, base_sequence=0)
        broker.append("orders", 0, control_batch("abort", producer_id=7, producer_epoch=0))
        fill(broker, count=3)
        seen = []
        for more, count in (({}, 3), ({"isolation_level": "read_uncommitted"}, 13)):
            with consumer(ck, broker, **more) as c:
                c.assign([ck.TopicPartition("orders", 0)])
                seen.append(([message.offset() for message in read(c, count)], c.poll(0.2)))
        return seen

    committed, everything = both(script)
    assert committed == ([11, 12, 13], None)
    assert everything == ([*range(10), 11, 12, 13], None)


# --- ends -------------------------------------------------------------------------------------------------------------


def test_ends_of_partitions_are_told_once_until_there_is_more() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        fill(broker, count=3)
        with consumer(ck, broker, enable_partition_eof=True) as c:
            c.assign([ck.TopicPartition("orders", 0), ck.TopicPartition("orders", 1)])
            seen = sorted(told(message)[:3] for message in read(c, 5) if message.error() is None)
            quiet = c.poll(0.3)
            fill(broker, count=2)
            after = [told(message) for message in read(c, 3)]
            c.seek(ck.TopicPartition("orders", 0, ck.OFFSET_END))
            [again] = read(c, 1)
            return seen, quiet, after, told(again)

    _, _, after, again = both(script, orders=2)
    assert after[-1][:2] == (("orders", 0, 5), confluent_kafka.KafkaError._PARTITION_EOF)
    assert again == after[-1]


def test_ends_come_in_lists_as_well() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        fill(broker, count=3)
        with consumer(ck, broker, enable_partition_eof=True) as c:
            c.assign([ck.TopicPartition("orders", 0)])
            return list(map(told, c.consume(4, 20)))

    assert both(script)[-1][0] == ("orders", 0, 3)


def test_the_end_behind_a_marker_is_where_the_marker_ends() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        fill(broker, count=3, producer_id=7, transactional=True, producer_epoch=0, base_sequence=0)
        broker.append("orders", 0, control_batch("commit", producer_id=7, producer_epoch=0))
        with consumer(ck, broker, enable_partition_eof=True) as c:
            c.assign([ck.TopicPartition("orders", 0)])
            seen = [told(message)[:3] for message in read(c, 3)], parts(c.position(c.assignment()))
            [end] = read(c, 1)
            return seen, told(end)[0], parts(c.position(c.assignment())), parts(c.commit(asynchronous=False))

    (_, before), end, after, stored = both(script)
    assert end == ("orders", 0, 4)
    assert (before[0][2], after[0][2], stored[0][2]) == (3, 4, 4)


def test_positions_go_past_what_was_aborted() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        fill(broker, count=3)
        with consumer(ck, broker) as c:
            c.assign([ck.TopicPartition("orders", 0)])
            read(c, 3)
            fill(broker, count=5, producer_id=7, transactional=True, producer_epoch=0, base_sequence=0)
            broker.append("orders", 0, control_batch("abort", producer_id=7, producer_epoch=0))
            assert c.poll(0.5) is None
            assert c.poll(0) is None
            return parts(c.position(c.assignment())), parts(c.commit(asynchronous=False))

    assert both(script)[1][0][2] == 9


# --- positions --------------------------------------------------------------------------------------------------------


def test_positions_and_seeks() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        fill(broker)
        tp = ck.TopicPartition("orders", 0)
        with consumer(ck, broker) as c:
            seen = [parts(c.position([tp]))]
            c.assign([ck.TopicPartition("orders", 0, 4)])
            seen.append(parts(c.position([tp])))
            for offset in (None, 2, ck.OFFSET_BEGINNING, 9, ck.OFFSET_INVALID):
                if offset is not None:
                    c.seek(ck.TopicPartition("orders", 0, offset))
                    seen.append(parts(c.position([tp])))
                seen += [read(c, 1)[0].offset(), parts(c.position([tp]))]
            return seen

    seen = both(script)
    assert [step for step in seen if isinstance(step, int)] == [4, 2, 0, 9, 0]


def test_seeks_that_are_refused() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        with consumer(ck, broker) as c:
            # _STATE, or with theirs _UNKNOWN_PARTITION where it has not heard of the topic before
            seen = [code(lambda: c.seek(ck.TopicPartition("orders", 0, 1)))[0]]
            fill(broker)
            c.assign([ck.TopicPartition("orders", 0)])
            read(c, 1)
            seen.append(code(lambda: c.seek(ck.TopicPartition("orders", 0, ck.OFFSET_STORED))))
            seen.append(code(lambda: c.seek("orders")))
            return seen

    assert both(script) == ["KafkaException", ("KafkaException", confluent_kafka.KafkaError._INVALID_ARG), "TypeError"]


@pytest.mark.parametrize("offset", ["OFFSET_BEGINNING", "OFFSET_END", "OFFSET_STORED", "OFFSET_INVALID", 7])
def test_assigned_with_an_offset(offset: Any) -> None:
    def script(ck: Any, broker: Broker) -> Any:
        fill(broker)
        broker.set_committed("g", "orders", 0, 3)
        with consumer(ck, broker, enable_partition_eof=True) as c:
            c.assign([ck.TopicPartition("orders", 0, getattr(ck, offset) if isinstance(offset, str) else offset)])
            return told(read(c, 1)[0])[:3]

    expected = {"OFFSET_BEGINNING": 0, "OFFSET_STORED": 3, "OFFSET_INVALID": 3, 7: 7}
    seen = both(script)
    assert (seen[2] if offset != "OFFSET_END" else seen[0][2]) == expected.get(offset, 10)


def test_assigning_more_and_less() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        for partition in range(3):
            fill(broker, partition=partition)

        def at(partition: int, offset: int = ck.OFFSET_INVALID) -> Any:
            return ck.TopicPartition("orders", partition, offset)

        def assigned() -> list[Any]:
            return sorted((p.topic, p.partition) for p in c.assignment())

        with consumer(ck, broker) as c:
            c.assign([at(0, 8)])
            seen: list[Any] = [assigned(), sorted(told(m)[:3] for m in read(c, 2))]
            c.incremental_assign([at(1, 7)])
            seen += [assigned(), sorted(told(m)[:3] for m in read(c, 3))]
            seen.append(code(lambda: c.incremental_assign([at(1)])))
            c.incremental_unassign([at(0)])
            seen += [assigned(), code(lambda: c.incremental_unassign([at(0)]))]
            c.assign([at(2, 9), at(0, 9)])
            seen += [assigned(), sorted(told(m)[:3] for m in read(c, 2))]
            c.unassign()
            seen += [assigned(), c.poll(0.1)]
            seen.append(code(lambda: c.assign([at(0), at(0)])))
            seen += [code(lambda: c.assign((at(0),))), code(lambda: c.assign([("orders", 0)])), code(lambda: c.assign(5))]
            return seen

    both(script, orders=3)


def test_pausing() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        for partition in range(2):
            fill(broker, partition=partition)
        first, second, strange = (ck.TopicPartition(*tp) for tp in (("orders", 0), ("orders", 1), ("other", 0)))
        with consumer(ck, broker) as c:
            c.pause([first])  # not assigned: passed over
            c.assign([first, second])
            c.pause([first, strange])
            seen = [sorted(told(m)[:3] for m in c.consume(20, 1))]
            c.resume([first, strange])
            seen.append(sorted(told(m)[:3] for m in c.consume(10, 20)))
            return seen

    paused, resumed = both(script, orders=2)
    assert {message[1] for message in paused} == {1}
    assert {message[1] for message in resumed} == {0}


def test_watermarks_times_and_the_cluster() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        fill(broker)
        broker.delete_records("orders", 0, 2)
        tp = ck.TopicPartition("orders", 0)
        with consumer(ck, broker) as c:
            seen: list[Any] = [c.get_watermark_offsets(tp, cached=True), c.get_watermark_offsets(tp, timeout=5)]
            c.assign([tp])
            read(c, 8)
            seen.append(c.get_watermark_offsets(tp, cached=True)[1])
            for when in (NOW + 5, NOW + 100, -1, -2):
                seen.append(parts(c.offsets_for_times([ck.TopicPartition("orders", 0, when)], timeout=5)))
            seen.append(code(lambda: c.offsets_for_times([])))
            seen.append(code(lambda: c.offsets_for_times([ck.TopicPartition("nope", 0, 1)], timeout=5)))
            seen.append(code(lambda: c.get_watermark_offsets(ck.TopicPartition("orders", 7), timeout=5)))
            seen += [code(lambda: c.get_watermark_offsets("orders")), c.cluster_id(timeout=5)]
            return seen

    seen = both(script)
    assert seen[:3] == [(-1001, -1001), (2, 10), 10]
    assert [entry[0][2] for entry in seen[3:7]] == [5, -1, 10, 2]


def test_list_topics() -> None:
    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(entry) for key, entry in value.items()}
        if hasattr(value, "code"):
            return value.code()
        return plain(vars(value)) if hasattr(value, "__dict__") else value

    def script(ck: Any, broker: Broker) -> Any:
        with consumer(ck, broker) as c:
            everything, one, unknown = c.list_topics(timeout=5), c.list_topics("orders", timeout=5), c.list_topics("nope", 5)
        seen = [plain(listed) for listed in (everything, one, unknown)]
        for listed in seen:  # which of the brokers told, and the ports that the system gave them
            del listed["orig_broker_name"], listed["orig_broker_id"]
            for entry in listed["brokers"].values():
                assert entry.pop("port") in {broker.address(node)[1] for node in broker.nodes}
        return seen, [
            repr(everything.topics),
            str(everything),
            repr(everything.topics["orders"].partitions),
            str(unknown.topics)[:30],
        ]

    seen, _ = both(script, orders=3, other=1)
    assert seen[2]["topics"]["nope"]["error"] == 3


# --- commits ----------------------------------------------------------------------------------------------------------


# Theirs sends metadata with the zero byte at its end.
def committed(broker: Broker) -> dict[tuple[str, int], tuple[int, str, int | None]]:
    found = broker.committed("g").items()
    return {(tp.topic, tp.partition): (at.offset, at.metadata.rstrip("\0"), at.leader_epoch) for tp, at in found}


def test_commits_of_what_was_consumed() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        for partition in range(2):
            fill(broker, partition=partition)
        with consumer(ck, broker) as c:
            c.assign([ck.TopicPartition("orders", 0), ck.TopicPartition("orders", 1, ck.OFFSET_END)])
            seen: list[Any] = [code(lambda: c.commit(asynchronous=False))]
            read(c, 6)
            seen += [parts(c.commit(asynchronous=False)), committed(broker), code(lambda: c.commit(asynchronous=False))]
            c.seek(ck.TopicPartition("orders", 0, 1))
            seen.append(code(lambda: c.commit(asynchronous=False)))
            seen.append(parts(c.committed([ck.TopicPartition("orders", p) for p in range(2)], timeout=5)))
            return seen

    seen = both(script, orders=2)
    assert seen[2] == {("orders", 0): (6, "", 0)}
    assert seen[0] == ("KafkaException", confluent_kafka.KafkaError._NO_OFFSET)


def test_commits_of_messages_and_of_offsets_as_given() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        fill(broker)
        with consumer(ck, broker) as c:
            c.assign([ck.TopicPartition("orders", 0)])
            messages = read(c, 5)
            seen: list[Any] = [parts(c.commit(message=messages[2], asynchronous=False)), committed(broker)]
            given = [ck.TopicPartition("orders", 0, 1, "note"), ck.TopicPartition("orders", 1, 7)]
            seen += [parts(c.commit(offsets=given, asynchronous=False)), committed(broker)]
            invalid = [ck.TopicPartition("orders", 0), ck.TopicPartition("orders", 1, 8)]
            seen += [parts(c.commit(offsets=invalid, asynchronous=False)), committed(broker)]
            seen += [parts(c.commit(messages[3], None, False)), committed(broker)]
            seen += [
                code(lambda: c.commit(offsets=[], asynchronous=False)),
                code(lambda: c.commit(offsets=[ck.TopicPartition("orders", 0)], asynchronous=False)),
                code(lambda: c.commit(message=messages[0], offsets=[])),
                code(lambda: c.commit(message=ck.Message("orders", 0, 1, error=ck.KafkaError(1)))),
                code(lambda: c.commit(message=5)),
                code(lambda: c.commit(offsets=5)),
            ]
            seen.append(parts(c.committed([ck.TopicPartition("orders", p) for p in range(3)], timeout=5)))
            return seen

    seen = both(script, orders=3)
    assert seen[1] == {("orders", 0): (3, "", 0)}
    assert seen[3] == {("orders", 0): (1, "note", None), ("orders", 1): (7, "", None)}


def test_on_commit_hears_of_commits_that_nobody_waited_for() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        heard: list[Any] = []
        fill(broker)
        config = {"on_commit": lambda error, partitions: heard.append((error and error.code(), parts(partitions)))}
        servers = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        with ck.Consumer(servers | config | {"enable.auto.commit": False, "fetch.wait.max.ms": 50}) as c:
            c.assign([ck.TopicPartition("orders", 0)])
            read(c, 10)
            returned = c.commit()
            before = list(heard)
            deadline = time.monotonic() + 20
            while not heard and time.monotonic() < deadline:
                c.consume(1, 0.05)
            c.commit(offsets=[ck.TopicPartition("orders", 0, 2)])
            while len(heard) < 2 and time.monotonic() < deadline:
                c.consume(1, 0.05)
            c.commit(offsets=[ck.TopicPartition("orders", 0, 1)], asynchronous=False)  # is told to who waits
            c.commit(offsets=[])
            while len(heard) < 3 and time.monotonic() < deadline:
                c.consume(1, 0.05)
            return returned, before, heard

    _, before, heard = both(script)
    assert before == []
    assert [entry[0] for entry in heard] == [None, None, confluent_kafka.KafkaError._NO_OFFSET]


def test_offsets_stored_by_hand_are_what_is_committed() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        fill(broker)
        with consumer(ck, broker, enable_auto_offset_store=False) as c:
            c.assign([ck.TopicPartition("orders", 0)])
            messages = read(c, 8)
            seen: list[Any] = [code(lambda: c.commit(asynchronous=False))]
            c.store_offsets(message=messages[4])
            seen += [parts(c.commit(asynchronous=False)), committed(broker)]
            c.store_offsets(offsets=[ck.TopicPartition("orders", 0, 7, "note"), ck.TopicPartition("other", 0, 1)])
            seen += [parts(c.commit(asynchronous=False)), committed(broker)]
            seen += [
                code(c.store_offsets),
                code(lambda: c.store_offsets(message=messages[0], offsets=[])),
                code(lambda: c.store_offsets(offsets=[ck.TopicPartition("other", 0, 1)])),
                code(lambda: c.store_offsets(message=ck.Message("orders", 0, 1, error=ck.KafkaError(1)))),
                c.store_offsets(offsets=[]),
            ]
            return seen

    seen = both(script)
    assert seen[2] == {("orders", 0): (5, "", 0)}
    assert seen[4] == {("orders", 0): (7, "note", None)}


def test_storing_by_hand_is_refused_where_delivery_stores() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        with consumer(ck, broker) as c:
            c.assign([ck.TopicPartition("orders", 0)])
            return code(lambda: c.store_offsets(offsets=[ck.TopicPartition("orders", 0, 1)]))

    assert both(script) == ("KafkaException", confluent_kafka.KafkaError._INVALID_ARG)


# --- groups -----------------------------------------------------------------------------------------------------------


def test_a_member_hears_of_its_partitions_and_commits_on_closing() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        events: list[Any] = []
        fill(broker)
        fill(broker, partition=1)

        def on_assign(c: Any, partitions: list[Any]) -> None:
            events.append(("assign", sorted((p.topic, p.partition, p.offset) for p in partitions)))

        def on_revoke(c: Any, partitions: list[Any]) -> None:
            events.append(("revoke", sorted((p.topic, p.partition, p.offset) for p in partitions), parts(c.position(partitions))))

        c = consumer(ck, broker, enable_auto_commit=True)
        before = c.memberid(), c.consumer_group_metadata()
        c.subscribe(["orders"], on_assign=on_assign, on_revoke=on_revoke)
        read(c, 20)
        member, metadata = c.memberid(), c.consumer_group_metadata()
        assert metadata == b"CGMDv2:\1\0\0\0g\0" + member.encode() + b"\0\1"
        c.close()
        return before, events, committed(broker), c.close(), code(c.assignment), code(lambda: c.poll(0))

    before, events, stored, *_ = both(script, orders=2)
    assert before == (None, b"CGMDv2:\xff\xff\xff\xffg\0\0\1")
    assert [event[0] for event in events] == ["assign", "revoke"]
    assert stored == {("orders", 0): (10, "", 0), ("orders", 1): (10, "", 0)}


def test_on_assign_may_say_where_to_begin() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        fill(broker)
        fill(broker, partition=1)

        def on_assign(c: Any, partitions: list[Any]) -> None:
            for partition in partitions:
                partition.offset = 6 + partition.partition
            c.assign(partitions)

        with consumer(ck, broker) as c:
            c.subscribe(["orders"], on_assign=on_assign)
            return sorted(told(message)[:3] for message in read(c, 7))

    assert both(script, orders=2)[0] == ("orders", 0, 6)


def test_what_on_revoke_stores_or_commits_counts() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        seen = []
        for offset in (4, 5):
            fill(broker)

            def on_revoke(c: Any, partitions: list[Any], offset: int = offset) -> None:
                if offset == 4:
                    c.store_offsets(offsets=[ck.TopicPartition("orders", 0, 4)])
                else:
                    c.commit(offsets=[ck.TopicPartition("orders", 0, 5)], asynchronous=False)
                c.unassign()

            c = consumer(ck, broker, enable_auto_offset_store=False, enable_auto_commit=offset == 4)
            c.subscribe(["orders"], on_revoke=on_revoke)
            read(c, 6)
            c.close()
            seen.append(committed(broker))
        return seen

    assert both(script) == [{("orders", 0): (4, "", None)}, {("orders", 0): (5, "", None)}]


def test_what_callbacks_raise_comes_out_of_poll_and_close() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        fill(broker)

        def on_assign(c: Any, partitions: list[Any]) -> None:
            raise ZeroDivisionError("assigned")

        def on_revoke(c: Any, partitions: list[Any]) -> None:
            raise ZeroDivisionError("revoked")

        c = consumer(ck, broker)
        c.subscribe(["orders"], on_assign=on_assign, on_revoke=on_revoke)
        with pytest.raises(ZeroDivisionError, match="assigned"):
            read(c, 1)
        read(c, 9)  # theirs may lose the message that the call would have returned
        with pytest.raises(ZeroDivisionError, match="revoked"):
            c.close()
        return code(c.assignment)

    both(script)


def test_subscribing_to_patterns_and_names() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        for topic in ("orders.eu", "orders.us", "ordersXeu", "reorders.eu", "plain.a", "plainXa"):
            fill(broker, topic, count=1)
        seen = []
        for topics, count in ((["^orders"], 3), ([r"^orders\..u$", "plain.a"], 2), (["plain.a"], 1)):
            with consumer(ck, broker, group_id=topics[0]) as c:
                c.subscribe(topics)
                seen.append([sorted(message.topic() for message in read(c, count)), c.poll(0.5)])
        return seen

    topics = dict.fromkeys(("orders.eu", "orders.us", "ordersXeu", "reorders.eu", "plain.a", "plainXa"), 1)
    expected = ["orders.eu", "orders.us", "ordersXeu"], ["orders.eu", "plain.a"], ["plain.a"]
    assert both(script, **topics) == [[topics, None] for topics in expected]


def test_subscriptions_that_are_refused() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        with consumer(ck, broker) as c:
            calls: list[Callable[[], Any]] = [
                lambda: c.subscribe("orders"),
                lambda: c.subscribe([]),
                lambda: c.subscribe([""]),
                lambda: c.subscribe(["^orders["]),
                lambda: c.subscribe(["orders"], on_assign=5),
                lambda: c.subscribe(["orders"], on_lost=5),
            ]
            return [code(call) for call in calls]

    both(script)


def test_a_topic_that_does_not_exist_is_told_once() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        fill(broker)
        with consumer(ck, broker) as c:
            c.subscribe(["orders", "nope"])
            seen = [told(message) for message in read(c, 11)]
            return [entry for entry in seen if entry[0] == ("nope", 0, None)], c.poll(0.5)

    [error], more = both(script)
    assert error[1] == 3
    assert more is None


def test_subscribing_after_assigning_and_the_other_way_round() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        fill(broker)
        fill(broker, partition=1)
        with consumer(ck, broker) as c:
            c.assign([ck.TopicPartition("orders", 0, 8)])
            seen = [[told(m)[:3] for m in read(c, 2)]]
            c.unassign()
            c.subscribe(["orders"])
            seen.append(sorted(told(m)[:3] for m in read(c, 20)))
            c.unsubscribe()
            deadline = time.monotonic() + 20
            while c.assignment() and time.monotonic() < deadline:
                c.poll(0.05)
            c.assign([ck.TopicPartition("orders", 1, 9)])
            seen.append([told(m)[:3] for m in read(c, 1)])
            return seen

    both(script, orders=2)


# --- errors in the place of messages ----------------------------------------------------------------------------------


def test_without_a_reset_an_offset_out_of_range_is_told_once() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        fill(broker)
        with consumer(ck, broker, auto_offset_reset="error") as c:
            c.assign([ck.TopicPartition("orders", 0, 100)])
            seen = [told(message) for message in read(c, 1)]
            return seen, c.poll(0.3), parts(c.position([ck.TopicPartition("orders", 0)]))

    seen, *_ = both(script)
    assert seen[0][:2] == (("orders", 0, 100), confluent_kafka.KafkaError._AUTO_OFFSET_RESET)


def test_without_a_reset_no_committed_offset_is_told_once() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        fill(broker)
        with consumer(ck, broker, auto_offset_reset="error") as c:
            c.assign([ck.TopicPartition("orders", 0)])
            return [told(message) for message in read(c, 1)], c.poll(0.3)

    assert both(script)[0][0][1] == confluent_kafka.KafkaError._AUTO_OFFSET_RESET


@pytest.mark.parametrize(("word", "first"), [("smallest", 0), ("beginning", 0), ("largest", 10), ("end", 10)])
def test_words_for_where_to_begin(word: str, first: int) -> None:
    def script(ck: Any, broker: Broker) -> Any:
        fill(broker)
        with consumer(ck, broker, auto_offset_reset=word, enable_partition_eof=True) as c:
            c.assign([ck.TopicPartition("orders", 0)])
            [message] = read(c, 1)
            return message.offset()

    assert both(script) == first


def test_error_cb_hears_that_no_broker_can_be_reached() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        codes: list[int] = []
        settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "error_cb": lambda error: codes.append(error.code())}
        with ck.Consumer(settings) as c:
            c.assign([ck.TopicPartition("orders", 0)])
            deadline = time.monotonic() + 20
            while ck.KafkaError._ALL_BROKERS_DOWN not in codes and time.monotonic() < deadline:
                assert c.poll(0.1) is None
            return ck.KafkaError._ALL_BROKERS_DOWN in codes, code(lambda: c.list_topics(timeout=0.3))

    both(script)


# --- closing ----------------------------------------------------------------------------------------------------------


def closed_calls(ck: Any, c: Any) -> Iterator[Callable[[], Any]]:
    tp = ck.TopicPartition("orders", 0, 0)
    for name in ("assignment", "memberid", "consumer_group_metadata", "unassign", "unsubscribe", "list_topics", "cluster_id"):
        yield getattr(c, name)
    for name in ("assign", "position", "pause", "resume", "committed", "offsets_for_times", "subscribe", "incremental_assign"):
        yield partial(getattr(c, name), [])
    yield lambda: c.incremental_unassign([])
    yield lambda: c.poll(0)
    yield lambda: c.consume(1, 0)
    yield lambda: c.commit(asynchronous=False)
    yield lambda: c.store_offsets(offsets=[])
    yield lambda: c.seek(tp)
    yield lambda: c.get_watermark_offsets(tp)
    yield lambda: c.set_sasl_credentials("a", "b")


def test_a_closed_consumer_says_so() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        c = consumer(ck, broker)
        c.close()
        return [code(call) for call in closed_calls(ck, c)], c.close()

    codes, _ = both(script)
    assert set(codes) == {"RuntimeError"}


def test_arguments_that_are_refused() -> None:
    def script(ck: Any, broker: Broker) -> Any:
        with consumer(ck, broker) as c:
            calls: list[Callable[[], Any]] = [
                lambda: c.consume(-1),
                lambda: c.consume(1_000_001),
                lambda: c.consume("x"),
                lambda: c.consume(1, "x"),
                lambda: c.poll("x"),
                lambda: c.pause(5),
                lambda: c.pause(["orders"]),
                lambda: c.position(5),
                lambda: c.committed([5]),
            ]
            return [code(call) for call in calls]

    both(script)
