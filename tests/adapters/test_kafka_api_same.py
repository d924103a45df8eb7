"""The same script with kafka-python's consumer and with ours, against the scripted broker: what it sees is the same.

Each test is a script that takes a namespace (`kafka`) and a broker, and returns what it saw. It runs once with each, on a broker
of its own, and the two must agree. Nothing in the scripts knows which one it has.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fastfetch.adapters import kafka_api
from fastfetch.testing import Broker, encode_batch
from tests.adapters.scripts import beside

kafka = pytest.importorskip("kafka")
if tuple(map(int, kafka.__version__.split(".")[:3])) < (3, 0, 12):
    pytest.skip("compared with kafka-python 3.0.12 and later", allow_module_level=True)
# kafka-python deprecates deserializers that are functions; scripts have them all the same.
pytestmark = pytest.mark.filterwarnings("ignore:.*deserializer does not implement:DeprecationWarning")

THEIRS = SimpleNamespace(**{**vars(kafka.errors), **vars(kafka)})
OURS = SimpleNamespace(**vars(kafka_api))
both = beside(THEIRS, OURS)

NOW = 1_700_000_000_000


def fill(broker: Broker, topic: str = "orders", partition: int = 0, count: int = 10, first: int = 0) -> None:
    rows = [(b"k%d" % i, b'{"n": %d}' % i, NOW + i, [("h", b"x"), ("empty", None)]) for i in range(first, first + count)]
    broker.append(topic, partition, encode_batch(rows, timestamp=NOW + first))


def consumer(namespace: Any, broker: Broker, *topics: str, **configs: Any) -> Any:
    configs.setdefault("auto_offset_reset", "earliest")
    configs.setdefault("fetch_max_wait_ms", 50)
    return namespace.KafkaConsumer(*topics, bootstrap_servers=broker.bootstrap_servers, **configs)


def drain(consumer: Any, count: int, seconds: float = 20) -> list[Any]:
    """Records of polls until there are `count`; sorted by partition and offset, as partitions take turns in no certain order."""
    found: list[Any] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=200).values():
            found += records
    return sorted(found, key=lambda record: (record.topic, record.partition, record.offset))


def raised(function: Callable[[], object]) -> str:
    """The class of what a call raises, by its name."""
    try:
        return f"no error: {function()!r}"
    except Exception as error:
        return type(error).__name__


# ------------------------------------------------------------------------------------------------------------------- reading


def test_iteration_gives_the_same_records_and_ends() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        fill(broker)
        broker.append("orders", 0, encode_batch([(None, None), (b"", b"")], timestamp=NOW))
        with consumer(kafka, broker, "orders", consumer_timeout_ms=800) as reader:
            return list(reader)

    records = both(script)
    assert [record.offset for record in records] == list(range(12))
    assert type(records[0]).__module__ == "kafka.consumer.fetcher"
    assert records[10].value is None
    assert records[10].serialized_value_size == -1
    assert records[11].serialized_value_size == 0


@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_old_formats(magic: int) -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        rows = [(b"k", b"v%d" % i) for i in range(3)]
        broker.append("orders", 0, encode_batch(rows, magic=magic, timestamp=NOW))
        with consumer(kafka, broker, "orders", consumer_timeout_ms=800) as reader:
            return list(reader)

    records = both(script)
    assert [record.timestamp for record in records] == ([None] * 3 if magic == 0 else [NOW, NOW + 1, NOW + 2])
    assert all(record.checksum is not None for record in records)


def test_polls_by_partition_with_a_limit() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        for partition in range(3):
            fill(broker, partition=partition)
        with consumer(kafka, broker, "orders") as reader:
            sizes, found = [], []
            while len(found) < 30:
                polled = reader.poll(timeout_ms=500, max_records=7)
                sizes.append(sum(map(len, polled.values())))
                for tp, records in polled.items():
                    assert {(record.topic, record.partition) for record in records} == {tuple(tp)}
                    found += records
            return max(sizes), sorted(found, key=lambda record: (*record[:2], record.offset)), reader.poll()

    most, found, last = both(script, orders=3)
    assert most == 7
    assert len(found) == 30
    assert last == {}


def test_a_poll_without_update_leaves_the_position() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        fill(broker)
        tp = kafka.TopicPartition("orders", 0)
        reader = consumer(kafka, broker)
        reader.assign([tp])
        seen = []
        for update in (False, False, True):
            polled: Any = {}
            while not polled:
                polled = reader.poll(timeout_ms=500, max_records=4, update_offsets=update)
            seen.append(([record.offset for record in polled[tp]], reader.position(tp)))
        reader.close()
        return seen

    assert both(script) == [([0, 1, 2, 3], 0), ([0, 1, 2, 3], 0), ([0, 1, 2, 3], 4)]


def test_positions_move_record_by_record_in_iteration() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        fill(broker)
        tp = kafka.TopicPartition("orders", 0)
        seen = []
        with consumer(kafka, broker, group_id="g") as reader:
            reader.assign([tp])
            for record in reader:
                seen.append((record.offset, reader.position(tp)))
                if record.offset == 4:
                    reader.commit()
                if record.offset == 6:
                    break
            return seen, reader.committed(tp), next(reader).offset, reader.highwater(tp)

    assert both(script)[1:] == (5, 7, 10)


def test_seeks_in_the_middle_of_iteration() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        fill(broker)
        tp = kafka.TopicPartition("orders", 0)
        with consumer(kafka, broker, consumer_timeout_ms=800) as reader:
            reader.assign([tp])
            seen = []
            for record in reader:
                seen.append(record.offset)
                if len(seen) == 3:
                    reader.seek(tp, 8)
                elif len(seen) == 5:
                    reader.seek_to_beginning(tp)
                elif len(seen) == 7:
                    reader.seek_to_end()
            return seen, reader.position(tp)

    assert both(script) == ([0, 1, 2, 8, 9, 0, 1], 10)


def test_pausing() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        first, second = (kafka.TopicPartition("orders", partition) for partition in range(2))
        for partition in range(2):
            fill(broker, partition=partition)
        with consumer(kafka, broker) as reader:
            reader.assign([first, second])
            reader.pause(first)
            before = [record.partition for record in drain(reader, 10)]
            paused = reader.paused()
            nothing = reader.poll(timeout_ms=300)
            reader.resume(first)
            return before, paused, nothing, [record.partition for record in drain(reader, 10)], reader.paused()

    assert both(script, orders=2) == ([1] * 10, {("orders", 0)}, {}, [0] * 10, set())


# ------------------------------------------------------------------------------------------------------------- deserializers


def test_a_function_for_values() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        fill(broker)
        broker.append("orders", 0, encode_batch([(b"gone", None)], timestamp=NOW))
        calls = []

        def value(data: bytes | None) -> Any:
            calls.append(data)
            return None if data is None else json.loads(data)

        with consumer(
            kafka, broker, "orders", consumer_timeout_ms=800, value_deserializer=value, key_deserializer=bytes.decode
        ) as reader:
            return [record[6:] for record in reader], calls

    records, calls = both(script)
    assert records[3][:2] == ("k3", {"n": 3})
    assert calls[-1] is None


def test_a_deserializer_that_is_told_topic_and_headers() -> None:
    closed = []

    class Value:
        def deserialize(self, topic: str, headers: Any, data: bytes) -> Any:
            return topic, headers, data

        def close(self) -> None:
            closed.append(True)

    kafka.Deserializer.register(Value)

    def script(namespace: Any, broker: Broker) -> Any:
        fill(broker, count=2)
        with consumer(namespace, broker, "orders", consumer_timeout_ms=800, value_deserializer=Value()) as reader:
            return [record.value for record in reader]

    assert both(script)[1] == ("orders", [("h", b"x"), ("empty", None)], b'{"n": 1}')
    assert len(closed) == 2


def test_what_a_deserializer_raises_comes_after_the_records_before() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        broker.append("orders", 0, encode_batch([b"1", b"2", b"three"]))
        broker.append("orders", 0, encode_batch([b"4"]))  # of its own: kafka-python decodes a batch from its beginning
        tp = kafka.TopicPartition("orders", 0)
        with consumer(kafka, broker, value_deserializer=int) as reader:
            reader.assign([tp])
            before = [record.value for record in drain(reader, 2)]
            error = ""
            while not error.startswith("ValueError"):
                error = raised(lambda: reader.poll(timeout_ms=200))
            reader.seek(tp, 3)
            return before, reader.position(tp), [record.value for record in drain(reader, 1)]

    assert both(script) == ([1, 2], 3, [4])


# ------------------------------------------------------------------------------------------------------------------- commits


def test_a_loop_that_commits_by_hand_goes_on_where_it_was() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        fill(broker)
        seen = []
        for _ in range(2):
            with consumer(kafka, broker, "orders", group_id="g", enable_auto_commit=False) as reader:
                for record in reader:
                    seen.append(record.offset)
                    if record.offset % 5 == 3:
                        reader.commit()
                        break
        return seen, broker.committed("g")

    seen, committed = both(script)
    assert seen == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert [(at.offset, at.leader_epoch) for at in committed.values()] == [(9, 0)]


def test_explicit_offsets_go_out_as_given() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        fill(broker)
        tp = kafka.TopicPartition("orders", 0)
        with consumer(kafka, broker, group_id="g") as reader:
            reader.assign([tp])
            nothing = reader.committed(tp), reader.committed(tp, metadata=True)
            reader.commit({tp: kafka.OffsetAndMetadata(6, "note", 0)})
            found = reader.committed(tp), reader.committed(tp, metadata=True)
            return nothing, found, broker.committed("g"), reader.position(tp), [record.offset for record in drain(reader, 4)]

    nothing, found, _, position, read = both(script)
    assert (position, read) == (6, [6, 7, 8, 9])
    assert nothing == (None, None)
    assert found == (6, (6, "note", 0))


def test_an_async_commit_and_its_future() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        fill(broker)
        tp = kafka.TopicPartition("orders", 0)
        told: list[Any] = []
        with consumer(kafka, broker, group_id="g", enable_auto_commit=False) as reader:
            reader.assign([tp])
            drain(reader, 10)
            reader.commit()  # the coordinator is known from here on
            future = reader.commit_async({tp: kafka.OffsetAndMetadata(3, "", -1)}, callback=lambda *what: told.append(what))
            future.add_callback(lambda value: told.append(("value", value)))
            future.add_errback(lambda error: told.append(("error", error)))
            while not future.is_done:
                time.sleep(0.01)
            while len(told) < 2:
                reader.poll(timeout_ms=50)
            late: list[Any] = []
            future.add_both(late.append)
            state = future.succeeded(), future.failed(), future.retriable(), future.value, future.exception
            return sorted(told, key=str), state, late, reader.committed(tp)

    told, state, late, committed = both(script)
    assert ("value", None) in told
    assert state == (True, False, False, None, None)
    assert late == [None]
    assert committed == 3


def test_automatic_commits_on_closing_and_none_after_an_exception() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        fill(broker)
        seen = []
        for fails in (True, False):
            try:
                with consumer(kafka, broker, "orders", group_id="g", auto_commit_interval_ms=60_000) as reader:
                    for record in reader:
                        if record.offset == 4:
                            if fails:
                                raise ZeroDivisionError
                            break
            except ZeroDivisionError:
                pass
            seen.append({tuple(tp): at.offset for tp, at in broker.committed("g").items()})
        return seen

    assert both(script) == [{}, {("orders", 0): 5}]


def test_automatic_commits_between_polls() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        fill(broker)
        told = []
        with consumer(
            kafka, broker, "orders", group_id="g", auto_commit_interval_ms=100,
            default_offset_commit_callback=lambda offsets, response: told.append((offsets, response)),
        ) as reader:  # fmt: skip
            drain(reader, 10)
            deadline = time.monotonic() + 10
            while not (broker.committed("g") and told) and time.monotonic() < deadline:
                reader.poll(timeout_ms=50)
            return broker.committed("g"), {tuple(tp): tuple(at) for tp, at in told[-1][0].items()}, told[-1][1]

    committed, told, response = both(script)
    assert [at.offset for at in committed.values()] == [10]
    assert told == {("orders", 0): (10, "", 0)}
    assert response is None


# -------------------------------------------------------------------------------------------------------------------- groups


def listener_of(kafka: Any, events: list[Any], consumer: Any = None) -> Any:
    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            if revoked:  # kafka-python tells of nothing, too
                events.append(("revoked", sorted(revoked)))

        def on_partitions_assigned(self, assigned: Any) -> None:
            if assigned:
                events.append(("assigned", sorted(assigned)))
            for tp in assigned:
                if consumer is not None:
                    consumer.seek(tp, 7)

    return Listener()


def test_a_listener_hears_and_may_seek() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        events: list[Any] = []
        for partition in range(2):
            fill(broker, partition=partition)
        reader = consumer(kafka, broker, group_id="g")
        reader.subscribe(["orders"], listener=listener_of(kafka, events, reader))
        before = reader.subscription(), reader.assignment()
        found = [(record.partition, record.offset) for record in drain(reader, 6)]
        reader.close()
        return before, events, found

    before, events, found = both(script, orders=2)
    assert before == ({"orders"}, set())
    assert found == [(p, o) for p in range(2) for o in (7, 8, 9)]
    assert [what for what, _ in events] == ["assigned", "revoked"]


def test_two_members_share_the_partitions() -> None:
    """Ours alone: kafka-python's leader now and then shares out nothing, when its metadata come late, and goes on like that. In
    one group with it: tests/live/test_kafka_api.py."""

    def script(kafka: Any, broker: Broker) -> Any:
        for partition in range(4):
            fill(broker, partition=partition)
        seen: dict[str, set[Any]] = {}
        shares: dict[str, Any] = {}
        done = threading.Event()

        def member(name: str) -> None:
            with consumer(kafka, broker, "orders", group_id="g", client_id=name, heartbeat_interval_ms=100) as reader:
                mine = seen.setdefault(name, set())
                while not done.is_set():
                    for records in reader.poll(timeout_ms=100).values():
                        mine |= {(record.partition, record.offset) for record in records}
                    shares[name] = sorted(reader.assignment())

        threads = [threading.Thread(target=member, args=(name,)) for name in ("a", "b")]
        deadline = time.monotonic() + 60
        halves: list[int] = []
        for thread in threads:
            thread.start()
        while time.monotonic() < deadline and (halves != [2, 2] or sum(map(len, seen.values())) < 40):
            time.sleep(0.05)
            halves = sorted(map(len, list(shares.values())))
        done.set()
        for thread in threads:
            thread.join(20)
        return halves, sorted(set.union(*seen.values()))

    with Broker() as broker:
        broker.create_topic("orders", partitions=4)
        shares, seen = script(OURS, broker)
    assert shares == [2, 2]
    assert len(seen) == 40


def test_a_pattern_matches_the_beginning_of_names() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        for topic in ("orders", "orders-eu", "other"):
            fill(broker, topic, count=3)
        with consumer(kafka, broker, group_id="g") as reader:
            reader.subscribe(pattern="^(order|nothing)")
            found = {record.topic for record in drain(reader, 6)}
            return found, reader.subscription(), sorted(reader.assignment())

    found, subscription, _ = both(script, **{"orders": 1, "orders-eu": 1, "other": 1})
    assert found == subscription == {"orders", "orders-eu"}


def test_members_know_their_group() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        fill(broker)
        with consumer(kafka, broker, "orders", group_id="g", group_instance_id="i") as reader:
            drain(reader, 10)
            me = reader.group_metadata()
            with consumer(kafka, broker) as other:
                return me._replace(member_id=bool(me.member_id), generation_id=me.generation_id > 0), other.group_metadata()

    me, nobody = both(script)
    assert me == ("g", True, True, "i", "<stable>")
    assert nobody.group_id is None


def test_unsubscribing_and_subscribing_to_others() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        fill(broker)
        fill(broker, "others")
        with consumer(kafka, broker, "orders", group_id="g") as reader:
            seen = [drain(reader, 10)[-1].topic, reader.subscription()]
            reader.subscribe(["others"])
            seen += [drain(reader, 10)[-1].topic, reader.subscription()]
            reader.unsubscribe()
            seen += [reader.subscription(), reader.assignment(), reader.poll(timeout_ms=200)]
            reader.assign([kafka.TopicPartition("orders", 0)])
            return [*seen, reader.subscription(), reader.position(kafka.TopicPartition("orders", 0))]

    assert both(script, orders=1, others=1)[-1] == 10


# ------------------------------------------------------------------------------------------------------- without a group


def test_a_topic_without_a_group_is_read_whole() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        for partition in range(3):
            fill(broker, partition=partition)
        with consumer(kafka, broker, "orders", consumer_timeout_ms=1500) as reader:
            found = sorted((record.partition, record.offset) for record in reader)
            return found, reader.subscription(), sorted(reader.assignment())

    assert len(both(script, orders=3)[0]) == 30


def test_partitions_added_later_are_found_without_a_group() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        fill(broker)
        with consumer(kafka, broker, "orders", metadata_max_age_ms=300) as reader:
            drain(reader, 10)
            broker.add_partitions("orders", 2)
            fill(broker, partition=1)
            return [record.partition for record in drain(reader, 10)], sorted(reader.assignment())

    assert both(script) == ([1] * 10, [("orders", 0), ("orders", 1)])


def test_a_pattern_without_a_group() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        for topic in ("orders", "orders-eu", "other"):
            fill(broker, topic, count=3)
        with consumer(kafka, broker) as reader:
            reader.subscribe(pattern="^orders")
            return {record.topic for record in drain(reader, 6)}, sorted(reader.assignment())

    assert both(script, **{"orders": 1, "orders-eu": 1, "other": 1})[0] == {"orders", "orders-eu"}


# ----------------------------------------------------------------------------------------------------------------- questions


def test_questions_about_offsets_and_topics() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        fill(broker)
        fill(broker, first=10)
        tp, other = kafka.TopicPartition("orders", 0), kafka.TopicPartition("orders", 1)
        with consumer(kafka, broker) as reader:
            reader.assign([tp])
            return (
                reader.beginning_offsets([tp, other]),
                reader.end_offsets([tp, other]),
                reader.offsets_for_times({tp: NOW + 10, other: 0}),
                reader.offsets_for_times({tp: NOW + 1_000_000}),
                reader.topics(),
                reader.partitions_for_topic("orders"),
                reader.partitions_for_topic("unknown"),
                reader.position(tp),
                len(drain(reader, 20)),
                reader.highwater(tp),
            )

    beginning, end, times, late, topics, partitions, unknown, position, read, highwater = both(script, orders=2)
    assert beginning == {("orders", 0): 0, ("orders", 1): 0}
    assert end[("orders", 0)] == 20
    assert times[("orders", 0)].offset == 10
    assert times[("orders", 1)] is None
    assert late == {("orders", 0): None}
    assert topics == {"orders"}
    assert partitions == {0, 1}
    assert unknown == set()
    assert position == 0
    assert read == highwater == 20


def test_keys_of_mappings_are_partitions_of_kafka_python() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        fill(broker)
        with consumer(OURS, broker, group_id="g") as reader:
            tp = kafka.TopicPartition("orders", 0)
            reader.assign([tp])
            found: list[Any] = [*reader.poll(timeout_ms=5000), *reader.assignment(), *reader.end_offsets([tp])]
            assert found == [tp] * 3
            assert {type(each) for each in found} == {kafka.TopicPartition}
            reader.commit()
            assert type(reader.committed(tp, metadata=True)) is kafka.OffsetAndMetadata


# ---------------------------------------------------------------------------------------------------------- any order of calls


def walk(kafka: Any, broker: Broker, seed: int, steps: int) -> list[Any]:
    """Calls in an order that the seed draws, and what each returned. With one partition there is one right answer to each."""
    draw = random.Random(seed)
    tp = kafka.TopicPartition("orders", 0)
    for first in range(0, 60, 6):
        fill(broker, count=6, first=first)
    seen: list[Any] = []
    with consumer(kafka, broker, group_id="g", enable_auto_commit=False, consumer_timeout_ms=400) as reader:
        reader.assign([tp])
        has_more = lambda: reader.position(tp) < 60 and not reader.paused()  # noqa: E731

        def polled() -> list[int]:
            """What a poll gives, which is something if there is anything."""
            limit = draw.choice((1, 3, 6, 7, 100))
            moves = draw.random() < 0.8
            expects = has_more()
            found: Any = {}
            while expects and not found:
                found = reader.poll(timeout_ms=400, max_records=limit, update_offsets=moves)
            # How many there are is a matter of what has come by now.
            return [record.offset for record in found.get(tp, [])[:1]]

        def iterated() -> list[int]:
            wanted = draw.randint(1, 9)
            return [record.offset for record in itertools.islice(reader, wanted)] if has_more() else []

        calls: list[Callable[[], Any]] = [
            polled,
            iterated,
            lambda: reader.seek(tp, draw.randrange(61)),
            lambda: reader.seek_to_beginning(tp),
            reader.seek_to_end,
            lambda: reader.pause(tp),
            lambda: reader.resume(tp),
            reader.paused,
            reader.commit,
            lambda: reader.commit({tp: kafka.OffsetAndMetadata(draw.randrange(61), "walk", -1)}),
            lambda: reader.committed(tp),
        ]
        weights = (5, 6, 4, 1, 1, 1, 3, 1, 1, 1, 1)
        for _ in range(steps):
            [call] = draw.choices(range(len(calls)), weights)
            found = calls[call]()
            seen.append((call, found, reader.position(tp)))
            if call == 0 and found:
                reader.seek(tp, found[0] + draw.randint(0, 2))
        # Not the epoch: that of an offset that was looked up is kept here and forgotten there.
        return [*seen, [(at.offset, at.metadata) for at in broker.committed("g").values()]]


@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_calls_gives_the_same(seed: int) -> None:
    seen = both(lambda kafka, broker: walk(kafka, broker, seed, 120))
    assert sum(bool(step[1]) for step in seen[:-1] if step[0] < 2) >= 10, "hardly anything was read"


# -------------------------------------------------------------------------------------------------------------------- errors

MISTAKES: dict[str, Callable[[Any, Any], object]] = {
    "a negative timeout": lambda kafka, reader: reader.poll(-1),
    "no records wanted": lambda kafka, reader: reader.poll(max_records=0),
    "a number in words": lambda kafka, reader: reader.poll(max_records="7"),
    "a seek elsewhere": lambda kafka, reader: reader.seek(kafka.TopicPartition("orders", 9), 0),
    "a seek before the start": lambda kafka, reader: reader.seek(kafka.TopicPartition("orders", 0), -1),
    "a seek to half an offset": lambda kafka, reader: reader.seek(kafka.TopicPartition("orders", 0), 1.5),
    "a seek of a tuple": lambda kafka, reader: reader.seek(("orders", 0), 1),
    "the beginning of a stranger": lambda kafka, reader: reader.seek_to_beginning(kafka.TopicPartition("orders", 9)),
    "the end of a word": lambda kafka, reader: reader.seek_to_end("orders"),
    "the position of a stranger": lambda kafka, reader: reader.position(kafka.TopicPartition("orders", 9)),
    "the position of a word": lambda kafka, reader: reader.position("orders"),
    "the high watermark of a stranger": lambda kafka, reader: reader.highwater(kafka.TopicPartition("orders", 9)),
    "pausing a word": lambda kafka, reader: reader.pause("orders"),
    "a commit without a group": lambda kafka, reader: reader.commit(),
    "an async commit without a group": lambda kafka, reader: reader.commit_async(),
    "asking what no group committed": lambda kafka, reader: reader.committed(kafka.TopicPartition("orders", 0)),
    "subscribing to nothing": lambda kafka, reader: reader.subscribe(),
    "subscribing after assigning": lambda kafka, reader: reader.subscribe(["orders"]),
    "subscribing both ways": lambda kafka, reader: reader.subscribe(["orders"], pattern="orders"),
    "a time before 1970": lambda kafka, reader: reader.offsets_for_times({kafka.TopicPartition("orders", 0): -5}),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_raises_the_same(mistake: str) -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        with consumer(kafka, broker) as reader:
            reader.assign([kafka.TopicPartition("orders", 0)])
            return raised(lambda: MISTAKES[mistake](kafka, reader))

    assert not both(script).startswith("no error")


SUBSCRIPTIONS: dict[str, Callable[[Any], object]] = {
    "a string": lambda reader: reader.subscribe("orders"),
    "a set": lambda reader: reader.subscribe({"orders"}),
    "a name with a space": lambda reader: reader.subscribe(["or ders"]),
    "a dot": lambda reader: reader.subscribe(["."]),
    "no name": lambda reader: reader.subscribe([""]),
    "None": lambda reader: reader.subscribe([None]),
    "a long name": lambda reader: reader.subscribe(["x" * 250]),
    "no expression": lambda reader: reader.subscribe(pattern="("),
    "no listener": lambda reader: reader.subscribe(["orders"], listener=object()),
    "assigning afterwards": lambda reader: (reader.subscribe(["orders"]), reader.assign([kafka.TopicPartition("orders", 0)])),
    "committing words": lambda reader: reader.commit({"orders": 3}),
    "committing numbers": lambda reader: reader.commit({kafka.TopicPartition("orders", 0): 3}),
    "asking about words": lambda reader: reader.committed("orders"),
}


@pytest.mark.parametrize("mistake", SUBSCRIPTIONS)
def test_a_mistake_of_a_member_raises_the_same(mistake: str) -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        with consumer(kafka, broker, group_id="g") as reader:
            return raised(lambda: SUBSCRIPTIONS[mistake](reader))

    assert not both(script).startswith("no error")


CONFIGS: dict[str, dict[str, Any]] = {
    "unknown": {"no_such_key": 1},
    "a producer's": {"acks": "all"},
    "waits longer than requests last": {"fetch_max_wait_ms": 40_000},
    "requests outlast connections": {"request_timeout_ms": 600_000},
}
# Refused the same, but kafka-python has a thread by then, which never ends: it looks for the broker, and leaves sockets open.
LATE_CONFIGS: dict[str, dict[str, Any]] = {
    "an instance without a group": {"group_instance_id": "i"},
    "an isolation nobody knows": {"isolation_level": "serializable"},
}


@pytest.mark.parametrize("what", CONFIGS)
def test_a_wrong_configuration_is_refused_the_same(what: str) -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        return raised(lambda: consumer(kafka, broker, **{"fetch_max_wait_ms": 500, **CONFIGS[what]}))

    assert both(script) == "KafkaConfigurationError"


@pytest.mark.parametrize("what", LATE_CONFIGS)
def test_a_wrong_configuration_is_refused(what: str) -> None:
    with Broker() as broker:
        assert raised(lambda: consumer(OURS, broker, **LATE_CONFIGS[what])) == "KafkaConfigurationError"


def test_a_closed_consumer() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        reader = consumer(kafka, broker, "orders")
        reader.close()
        reader.close()
        return raised(reader.poll), raised(lambda: next(reader)), list(reader)

    assert both(script) == ("IllegalStateError", "StopIteration", [])


def test_no_position_and_no_policy() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        fill(broker)
        with consumer(kafka, broker, group_id="g", auto_offset_reset="none") as reader:
            tp = kafka.TopicPartition("orders", 0)
            reader.assign([tp])
            error = raised(lambda: reader.poll(timeout_ms=5000))
            reader.seek(tp, 8)
            return error, [record.offset for record in drain(reader, 2)]

    assert both(script) == ("NoOffsetForPartitionError", [8, 9])


def test_a_position_outside_the_log_without_a_policy() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        fill(broker)
        with consumer(kafka, broker, auto_offset_reset="none") as reader:
            tp = kafka.TopicPartition("orders", 0)
            reader.assign([tp])
            reader.seek(tp, 500)
            return raised(lambda: reader.poll(timeout_ms=5000))

    assert both(script) == "OffsetOutOfRangeError"


def test_a_damaged_batch_after_good_records() -> None:
    def script(kafka: Any, broker: Broker) -> Any:
        fill(broker, count=3)
        damaged = bytearray(encode_batch([b"x", b"y"]))
        damaged[-1] ^= 1
        broker.append("orders", 0, bytes(damaged))
        tp = kafka.TopicPartition("orders", 0)
        with consumer(kafka, broker) as reader:
            reader.assign([tp])
            before = [record.offset for record in drain(reader, 3)]
            error = ""
            deadline = time.monotonic() + 10
            while not error.startswith("Corrupt") and time.monotonic() < deadline:
                error = raised(lambda: reader.poll(timeout_ms=500))
            return before, error, reader.position(tp)

    assert both(script) == ([0, 1, 2], "CorruptRecordError", 3)
