"""The confluent-style Consumer where it is not to be compared: interrupts, threads, damaged batches, lost partitions, and what
differs on purpose."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import fastfetch
from fastfetch.adapters.confluent_api import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
    reader,
)
from fastfetch.testing import Broker, control_batch, encode_batch, error
from fastfetch.types import TopicPartition as Key
from tests.adapters.scripts import read
from tests.test_consumer_manners import EveryPoint, Interrupt, Interrupts

P0 = Key("orders", 0)
CODES: Any = KafkaError  # its constants are set when the module is loaded


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as made:
        made.create_topic("orders", partitions=2)
        yield made


def consumer_of(broker: Broker, **more: Any) -> Consumer:
    return Consumer({
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 50,
        "enable.auto.commit": False,
        **{key.replace("_", "."): value for key, value in more.items()},
    })  # fmt: skip


def fill(broker: Broker, count: int = 10, partition: int = 0) -> None:
    broker.append("orders", partition, encode_batch([b"%d" % i for i in range(count)]))


def until(condition: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def offsets(found: list[Message]) -> list[int]:
    return [message.offset() or 0 for message in found]


# --- interrupts -------------------------------------------------------------------------------------------------------


def one(consumer: Consumer) -> list[int]:
    message = consumer.poll(0)
    return [] if message is None else [message.offset() or 0]


def some(consumer: Consumer) -> list[int]:
    messages = consumer.consume(4, 0)
    return [message.offset() or 0 for message in messages]


@pytest.mark.parametrize("call", [one, some])
@pytest.mark.parametrize("begun", [0, 1, 2])
def test_an_interrupt_at_every_point_of_a_call_loses_and_repeats_nothing(
    broker: Broker, call: Callable[[Consumer], list[int]], begun: int
) -> None:
    """Also of a call that goes on with messages made ahead (`begun`), and where nothing but the last message of a block is
    left."""
    for _ in range(6):
        fill(broker, 3)
    with consumer_of(broker, fetch_message_max_bytes=1) as consumer:
        consumer.assign([TopicPartition("orders", 0, 0)])
        at = points = 0
        while at <= points:
            at += 1
            consumer.seek(TopicPartition("orders", 0, 0))
            state = consumer._reader.find(P0)
            assert state is not None
            until(lambda: state.chunks and state.chunks[-1].next_offset == 18)  # noqa: B023
            got: list[int] = []
            for _ in range(begun):
                got += one(consumer)
            consumed = consumer.position([TopicPartition("orders", 0)])[0].offset
            with suppress(Interrupt), EveryPoint(at) as interrupt:
                got += call(consumer)
            if interrupt.has_raised:
                points = at
                assert len(got) == begun
                assert consumer.position([TopicPartition("orders", 0)])[0].offset == consumed
            while len(got) < 18:
                got += some(consumer)
            assert got == list(range(18)), f"point {at}"
        assert points >= (1 if call is one and begun == 1 else 15), "the points were not found"


@pytest.mark.parametrize(
    "call", [lambda consumer: consumer.poll(0), lambda consumer: consumer.consume(4, 0)], ids=["poll", "consume"]
)
def test_interrupts_at_random_moments_lose_and_repeat_nothing(broker: Broker, call: Callable[[Consumer], Any]) -> None:
    """Armed until what came has a name, and no longer: an interrupt while its offsets are asked for would be the test's loss."""
    for _ in range(100):
        fill(broker, 10)
    with consumer_of(broker) as consumer, Interrupts("confluent") as interrupts:
        consumer.assign([TopicPartition("orders", 0, 0)])
        deadline = time.monotonic() + 60
        while interrupts.count < 30 and time.monotonic() < deadline:
            consumer.seek(TopicPartition("orders", 0, 0))
            got: list[int] = []
            while len(got) < 1000 and time.monotonic() < deadline:
                with suppress(Interrupt):
                    interrupts.armed = True
                    found = call(consumer)
                    interrupts.armed = False
                    got += offsets(found if isinstance(found, list) else [found] if found is not None else [])
            assert got == list(range(len(got)))
        assert interrupts.count >= 30, "the interrupts never hit"


def test_an_infinite_poll_can_be_interrupted(broker: Broker) -> None:
    with consumer_of(broker) as consumer, Interrupts("infinite") as interrupts:
        consumer.assign([TopicPartition("orders", 0)])
        for call in (consumer.poll, lambda: consumer.consume(10)):
            with suppress(Interrupt):
                threading.Timer(0.1, setattr, (interrupts, "armed", True)).start()  # it waits by then
                call()
                pytest.fail("it came back")
        assert interrupts.count == 2


# --- what comes next --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("move", "then"),
    [
        (lambda c: c.seek(TopicPartition("orders", 0, 7)), [7, 8, 9]),
        (lambda c: c.assign([TopicPartition("orders", 0, 1)]), [1, 2, 3]),
        (lambda c: (c.pause([TopicPartition("orders", 0)]), c.resume([TopicPartition("orders", 0)])), [3, 4, 5]),
        (lambda c: c.consume(2, 5), [5, 6, 7]),
        (lambda c: (c.unassign(), c.incremental_assign([TopicPartition("orders", 0, 4)])), [4, 5, 6]),
    ],
)  # fmt: skip
def test_messages_made_ahead_give_way(broker: Broker, move: Callable[[Consumer], object], then: list[int]) -> None:
    fill(broker)
    with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        assert offsets(read(consumer, 3)) == [0, 1, 2]
        move(consumer)
        assert offsets(read(consumer, 3)) == then


def test_nothing_of_a_paused_partition_comes(broker: Broker) -> None:
    fill(broker)
    with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        read(consumer, 3)
        consumer.pause([TopicPartition("orders", 0)])
        assert consumer.poll(0.2) is None
        assert consumer.consume(5, 0.2) == []


def test_callbacks_are_not_kept_waiting_by_messages_made_ahead(broker: Broker) -> None:
    fill(broker, 400)
    heard: list[Any] = []
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    more = {"enable.auto.commit": False, "on_commit": lambda error, partitions: heard.append(partitions)}
    with Consumer(config | more) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        read(consumer, 3)
        consumer.commit()
        until(lambda: broker.committed("g"))
        begun = time.monotonic()
        while not heard and time.monotonic() < begun + 5:
            assert consumer.poll(0) is not None
            time.sleep(0.01)
        assert heard
        assert time.monotonic() - begun < 2


def test_what_is_handed_out_is_counted(broker: Broker) -> None:
    fill(broker, 30)
    with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        read(consumer, 12)
        consumer.consume(18, 5)
        assert consumer._reader.metrics()["records"] == 30


# --- threads ----------------------------------------------------------------------------------------------------------


def test_threads_commit_store_and_ask_while_one_polls(broker: Broker) -> None:
    for _ in range(50):
        fill(broker, 20)
    failures: list[BaseException] = []
    with consumer_of(broker, enable_auto_offset_store=False) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        queue: list[Message] = []
        done = threading.Event()

        def work() -> None:
            try:
                while not done.is_set() or queue:
                    with suppress(IndexError):
                        message = queue.pop(0)
                        consumer.store_offsets(message)
                        if (message.offset() or 0) % 50 == 0:
                            consumer.commit(message=message, asynchronous=False)
                            consumer.committed([TopicPartition("orders", 0)], timeout=5)
                            consumer.position(consumer.assignment())
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        got: list[int] = []
        while len(got) < 1000:
            found = consumer.consume(7, 5) if len(got) % 2 else read(consumer, 1)
            queue += found
            got += offsets(found)
        done.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert got == list(range(1000))


def test_two_threads_that_poll_share_the_messages(broker: Broker) -> None:
    for _ in range(50):
        fill(broker, 20)
    got: list[list[int]] = [[], []]
    with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition("orders", 0)])

        def work(mine: list[int], by_one: bool) -> None:
            while sum(map(len, got)) < 1000:
                mine += one(consumer) if by_one else some(consumer)

        threads = [threading.Thread(target=work, args=(mine, i == 0)) for i, mine in enumerate(got)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sorted(got[0] + got[1]) == list(range(1000))
    assert all(mine == sorted(mine) for mine in got)


# --- commits ----------------------------------------------------------------------------------------------------------


def test_an_automatic_commit_covers_what_earlier_calls_returned_and_no_more(broker: Broker) -> None:
    fill(broker)
    heard: list[int] = []
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    more = {"auto.commit.interval.ms": 20, "on_commit": lambda error, partitions: heard.append(partitions[0].offset)}
    with Consumer(config | more) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        for count in range(10):
            time.sleep(0.01)
            consumer.consume(1, 20)  # which may commit what came before it
            assert all(at.offset <= count for at in broker.committed("g").values())
        until(lambda: consumer.poll(0.01) is None and heard and heard[-1] == 10)
    assert heard == sorted(set(heard))
    assert broker.committed("g")[P0].offset == 10


def test_no_message_that_is_in_hand_is_committed(broker: Broker) -> None:
    """A consume() that waits for more goes on committing, but not what it has collected."""
    fill(broker)
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(config | {"auto.commit.interval.ms": 1})
    consumer.assign([TopicPartition("orders", 0)])
    assert len(consumer.consume(100, 2.5)) == 10
    assert broker.committed("g") == {}
    consumer.close()
    assert broker.committed("g")[P0].offset == 10


def test_leaving_partitions_commits_what_is_stored(broker: Broker) -> None:
    fill(broker)
    with consumer_of(broker, enable_auto_commit=True) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        read(consumer, 6)
        consumer.unassign()
        until(lambda: broker.committed("g"))
        assert broker.committed("g")[P0].offset == 6
        consumer.assign([TopicPartition("orders", 0)])
        assert offsets(read(consumer, 1)) == [6]
    assert broker.committed("g")[P0].offset == 7


def test_a_partition_that_comes_back_has_nothing_stored(broker: Broker) -> None:
    fill(broker)
    with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        read(consumer, 6)
        consumer.assign([TopicPartition("orders", 0)])
        assert consumer.position([TopicPartition("orders", 0)])[0].offset == OFFSET_INVALID
        with pytest.raises(KafkaException) as caught:
            consumer.commit(asynchronous=False)
        assert caught.value.args[0].code() == CODES._NO_OFFSET
        assert offsets(read(consumer, 1)) == [0]


def test_a_commit_that_is_refused_in_part_says_where(broker: Broker) -> None:
    fill(broker)
    with consumer_of(broker) as consumer:
        consumer.subscribe(["orders"])
        read(consumer, 10)
        given = [TopicPartition("orders", 0, 3), TopicPartition("other", 0, 3)]
        first, second = consumer.commit(offsets=given, asynchronous=False) or []
        assert first.error is None
        assert second.error is not None
        assert second.error.code() == CODES._STATE
        with pytest.raises(KafkaException) as caught:
            consumer.commit(offsets=given[1:], asynchronous=False)
        assert isinstance(caught.value, fastfetch.errors.CommitFailedError)
        assert broker.committed("g")[P0].offset == 3


# --- groups -----------------------------------------------------------------------------------------------------------


def test_messages_in_hand_come_before_a_rebalance(broker: Broker) -> None:
    """consume() has some and waits for more when the group wants something: what it has is returned, and stored, first."""
    fill(broker)
    events: list[Any] = []
    with consumer_of(broker, enable_auto_commit=True) as consumer:
        consumer.subscribe(["orders"], on_revoke=lambda c, partitions: events.append(consumer.position(partitions)[0].offset))
        read(consumer, 10)
        fill(broker, 5)
        timer = threading.Timer(0.5, lambda: broker.rebalance("g"))
        timer.start()
        begun = time.monotonic()
        assert len(consumer.consume(1000, 20)) == 5
        assert time.monotonic() - begun < 15
        timer.join()
        until(lambda: consumer.poll(0.05) is None and events)
        assert events == [15]
        assert broker.committed("g")[P0].offset == 15


def test_lost_partitions_are_told_to_on_lost_or_to_on_revoke(broker: Broker) -> None:
    for has_on_lost in (True, False):
        events: list[str] = []
        callbacks: dict[str, Any] = {"on_revoke": lambda c, partitions: events.append("revoke")}  # noqa: B023
        if has_on_lost:
            callbacks["on_lost"] = lambda c, partitions: events.append("lost")  # noqa: B023
        with consumer_of(broker, group_id=f"g{has_on_lost}", session_timeout_ms=6000) as consumer:
            consumer.subscribe(["orders"], **callbacks)
            until(lambda: consumer.poll(0.05) is None and consumer.assignment())
            member = consumer.memberid()
            assert member
            broker.expire_member(f"g{has_on_lost}", member)
            until(lambda: consumer.poll(0.05) is None and events)  # noqa: B023
        assert events[0] == ("lost" if has_on_lost else "revoke")


def test_on_assign_may_leave_partitions_out(broker: Broker) -> None:
    fill(broker)
    fill(broker, partition=1)
    with consumer_of(broker) as consumer:
        consumer.subscribe(["orders"], on_assign=lambda c, partitions: c.assign([TopicPartition("orders", 1, 8)]))
        assert [(m.partition(), m.offset()) for m in read(consumer, 2)] == [(1, 8), (1, 9)]
        assert consumer.poll(0.2) is None
        assert consumer.assignment() == [TopicPartition("orders", 1)]
        consumer.resume([TopicPartition("orders", 0)])  # it is none of those that are read
        assert consumer.poll(0.2) is None
        consumer.incremental_assign([TopicPartition("orders", 0, 9)])
        assert [(m.partition(), m.offset()) for m in read(consumer, 1)] == [(0, 9)]
        consumer.incremental_unassign([TopicPartition("orders", 0)])
        consumer.unassign()
        assert consumer.assignment() == []
        with pytest.raises(KafkaException) as caught:
            consumer.assign([TopicPartition("other", 0)])
        assert caught.value.args[0].code() == CODES._STATE


def test_callbacks_may_not_poll(broker: Broker) -> None:
    codes: list[int] = []

    def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        with pytest.raises(KafkaException) as caught:
            consumer.poll(0)
        codes.append(caught.value.args[0].code())

    with consumer_of(broker) as consumer:
        consumer.subscribe(["orders"], on_assign=on_assign)
        until(lambda: consumer.poll(0.05) is None and codes)
    assert codes == [CODES._STATE]


def test_a_group_that_may_not_be_used_is_an_error_message(broker: Broker) -> None:
    broker.on("FindCoordinator", error(30))
    with consumer_of(broker) as consumer:
        consumer.subscribe(["orders"])
        [message] = read(consumer, 1)
        assert message.error().code() == CODES.GROUP_AUTHORIZATION_FAILED
        assert message.topic() is None
        assert consumer.poll(0.2) is None


def test_a_callback_that_raises_costs_no_message(broker: Broker) -> None:
    fill(broker)

    def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        raise ZeroDivisionError

    with consumer_of(broker) as consumer:
        consumer.subscribe(["orders"], on_assign=on_assign)
        with pytest.raises(ZeroDivisionError):
            read(consumer, 1)
        assert offsets(read(consumer, 10)) == list(range(10))


# --- errors in the place of messages ----------------------------------------------------------------------------------


def damaged(broker: Broker) -> None:
    fill(broker, 3)
    broken = bytearray(encode_batch([b"x"] * 3, base_offset=3))
    broken[-2] ^= 1
    broker.append_raw("orders", 0, bytes(broken), offsets=3)


def test_a_damaged_batch_is_an_error_message_and_then_passed(broker: Broker) -> None:
    damaged(broker)
    fill(broker, 3)
    with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        found = read(consumer, 7)
        assert [(m.offset(), m.error() and m.error().code()) for m in found] == [
            (0, None), (1, None), (2, None), (3, CODES._BAD_MSG), (6, None), (7, None), (8, None)
        ]  # fmt: skip
        assert "going on at 6" in found[3].error().str()
        assert found[3].value() == found[3].error().str().encode()
        assert consumer.poll(0.2) is None


def test_without_crc_checks_its_records_come(broker: Broker) -> None:
    damaged(broker)
    with consumer_of(broker, check_crcs=False) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        assert offsets(read(consumer, 6)) == list(range(6))


def test_a_batch_that_nothing_leads_past_is_told_once_and_waits_for_a_seek(broker: Broker) -> None:
    fill(broker, 3)
    broken = bytearray(encode_batch([b"x"] * 3, base_offset=3))
    broken[16] = 9  # a format that does not exist: where the batch ends is a guess, too
    broker.append_raw("orders", 0, bytes(broken), offsets=3)
    fill(broker, 3)
    with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        read(consumer, 3)
        [message] = read(consumer, 1)
        assert message.error().code() == CODES._NOT_IMPLEMENTED
        assert "seek" in message.error().str()
        assert consumer.poll(0.3) is None
        consumer.seek(TopicPartition("orders", 0, 6))
        assert offsets(read(consumer, 3)) == [6, 7, 8]
        consumer.seek(TopicPartition("orders", 0, 3))  # and again, as it is asked for again
        assert read(consumer, 1)[0].error().code() == CODES._NOT_IMPLEMENTED


@pytest.mark.parametrize(("tp", "code"), [(("nope", 0), "UNKNOWN_TOPIC_OR_PART"), (("orders", 7), "_UNKNOWN_PARTITION")])
def test_a_partition_that_does_not_exist_is_told_once(broker: Broker, tp: tuple[str, int], code: str) -> None:
    with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition(*tp)])
        [message] = read(consumer, 1)
        assert message.error().name() == code
        assert (message.topic(), message.partition()) == tp
        assert consumer.poll(1) is None


def test_a_partition_that_is_made_later_is_read(broker: Broker) -> None:
    with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition("later", 0)])
        assert read(consumer, 1)[0].error().code() == CODES.UNKNOWN_TOPIC_OR_PART
        broker.create_topic("later")
        broker.append("later", 0, encode_batch([b"x"]))
        assert [(m.topic(), m.error()) for m in read(consumer, 1)] == [("later", None)]


def test_ends_are_told_to_a_poll_that_waits(broker: Broker) -> None:
    """At once, not when its time is up: the answer that says so has no records."""
    with consumer_of(broker, enable_partition_eof=True) as consumer:
        consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
        begun = time.monotonic()
        message = consumer.poll(30)
        assert message is not None
        assert message.error().code() == CODES._PARTITION_EOF
        assert time.monotonic() - begun < 10


def test_an_error_that_was_interrupted_comes_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(broker, 2)
    with consumer_of(broker, enable_partition_eof=True) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        reader = consumer._reader
        before_poll = reader._before_poll

        def interrupted(late_ms: int = 0) -> None:
            if late_ms and reader._engine.subscription.find(P0).position == 2:  # type: ignore[union-attr]
                monkeypatch.undo()
                raise Interrupt
            before_poll(late_ms)

        monkeypatch.setattr(reader, "_before_poll", interrupted)
        with pytest.raises(Interrupt):
            consumer.consume(100, 1)
        assert [(m.offset(), m.error() and m.error().code()) for m in consumer.consume(3, 20)] == [
            (0, None), (1, None), (2, CODES._PARTITION_EOF)
        ]  # fmt: skip


def test_a_topic_of_aborted_transactions_moves_the_position(broker: Broker) -> None:
    rows = [b"x"] * 4
    broker.append("orders", 0, encode_batch(rows, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    broker.append("orders", 0, control_batch("abort", producer_id=7, producer_epoch=0))
    with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        until(lambda: consumer.poll(0.05) is None and consumer.position(consumer.assignment())[0].offset == 5)
        consumer.commit(asynchronous=False)
    assert broker.committed("g")[P0].offset == 5


# --- settings and statistics ------------------------------------------------------------------------------------------


def test_statistics_are_json_with_librdkafkas_names(broker: Broker) -> None:
    fill(broker)
    told: list[str] = []
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    with Consumer(config | {"statistics.interval.ms": 20, "stats_cb": told.append}) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        read(consumer, 4)
        until(lambda: consumer.consume(1, 0.05) is None or told)
        del told[:]
        until(lambda: consumer.poll(0.05) is None and told)
        seen = json.loads(told[-1])
        partition = seen["topics"]["orders"]["partitions"]["0"]
        assert (seen["type"], partition["hi_offset"], partition["consumer_lag"]) == ("consumer", 10, 0)
        assert partition["app_offset"] == partition["stored_offset"] == 10
        assert seen["fastfetch"]["records"] == 10


def test_settings_reach_the_engine(broker: Broker) -> None:
    given: dict[str, Any] = {
        "metadata.broker.list": "a,b:9093",
        "group.id": "g",
        "session.timeout.ms": "6000",
        "fetch.message.max.bytes": 1234,
        "queued.max.messages.kbytes": 2048,
        "socket.receive.buffer.bytes": 0,
        "socket.timeout.ms": 40_000,
        "default.topic.config": {"auto.offset.reset": "smallest"},
        "enable.auto.commit": "0",
        "fastfetch.decode.threads": 2,
    }
    with Consumer(given, **{"client.id": "billing"}) as consumer:
        config = consumer._reader.config
    assert config.bootstrap_servers == (("a", 9092), ("b", 9093))
    assert (config.session_timeout_ms, config.max_partition_fetch_bytes, config.max_buffered_bytes) == (6000, 1234, 2 << 20)
    assert (config.receive_buffer_bytes, config.request_timeout_ms, config.auto_offset_reset) == (-1, 40_000, "earliest")
    assert (config.enable_auto_commit, config.decode_threads, config.client_id) == (False, 2, "billing")
    assert (config.isolation_level, config.check_crcs) == ("read_committed", True)
    assert config.partition_assignment_strategy == ("range", "roundrobin")


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"nope": 1}, "_INVALID_ARG"),
        ({"auto.offset.reset": "none"}, "_INVALID_ARG"),
        ({"fetch.min.bytes": "x"}, "_INVALID_ARG"),
        ({"fetch.wait.max.ms": 90_000}, "_INVALID_ARG"),
        ({"enable.auto.commit": "maybe"}, "_INVALID_ARG"),
        ({"isolation.level": "x"}, "_INVALID_ARG"),
        ({"max.poll.interval.ms": 1000}, "_INVALID_ARG"),
        ({"group.protocol": "consumer", "session.timeout.ms": 6000}, "_INVALID_ARG"),
        ({"acks": 1}, "_INVALID_ARG"),
        ({"linger.ms": 5}, "_INVALID_ARG"),
        ({"on_delivery": print}, "_INVALID_ARG"),
        ({"security.protocol": "ssl"}, "_INVALID_ARG"),
        ({"sasl.mechanism": "PLAIN"}, "_NOT_IMPLEMENTED"),
        ({"ssl.ca.location": "/x"}, "_NOT_IMPLEMENTED"),
        ({"fastfetch.nope": 1}, "_INVALID_ARG"),
    ],
)
def test_settings_that_are_refused(more: dict[str, Any], code: str) -> None:
    with pytest.raises(KafkaException) as caught:
        Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", **more})
    assert caught.value.args[0].name() == code


def test_what_is_no_configuration_is_refused() -> None:
    for arguments in ((), (5,), ({"group.id": "g"}, {"x": 1})):
        with pytest.raises(TypeError):
            Consumer(*arguments)
    for config in ({}, {"bootstrap.servers": "x"}, {"group.id": ""}, {"group.id": None}):
        with pytest.raises(ValueError, match="must be set"):
            Consumer(config)
    for name in ("error_cb", "stats_cb", "on_commit", "throttle_cb"):
        with pytest.raises(TypeError, match=name):
            Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", name: 5})


def test_settings_without_effect_are_said_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastfetch.adapters.settings._said", set())
    with caplog.at_level(logging.WARNING, "fastfetch.adapters"):
        for _ in range(2):
            Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "queued.min.messages": 5}).close()
    assert sum("queued.min.messages" in record.getMessage() for record in caplog.records) == 1


def test_credentials_are_refused(broker: Broker) -> None:
    with consumer_of(broker) as consumer, pytest.raises(KafkaException) as caught:
        consumer.set_sasl_credentials("me", "secret")
    assert caught.value.args[0].code() == CODES._NOT_IMPLEMENTED
    assert "secret" not in str(caught.value)


def test_closing_twice_and_in_a_callback_is_closing_once(broker: Broker) -> None:
    events: list[str] = []

    def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        events.append("revoke")
        consumer.close()

    consumer = consumer_of(broker)
    consumer.subscribe(["orders"], on_revoke=on_revoke)
    until(lambda: consumer.poll(0.05) is None and consumer.assignment())
    consumer.close()
    consumer.close()
    assert events == ["revoke"]


def test_the_look_between_messages_made_ahead_is_short() -> None:
    """What a callback or the group may have to wait for while a program polls without a pause."""
    assert reader.LOOK_S <= 0.1
