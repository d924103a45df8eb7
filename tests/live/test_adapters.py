"""kafka-python and aiokafka read from a real broker, with fastfetch inside and without: the same records, the same positions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

import pytest

import fastfetch.adapters.aiokafka
import fastfetch.adapters.kafka_python
from fastfetch import TopicPartition
from tests.live.conftest import CODECS, SECONDS, Kafka, Sent
from tests.live.logs import Interleaved, Newest, transactional, varied

T = TypeVar("T")
POLL_MS = 200
WAIT_MS = 20  # a fetch at the end of a log comes back so soon, and the seek after it is acted upon
SMALL_FETCH = {"max_partition_fetch_bytes": 4096}  # many fetches, and most of them begin within a batch or end within one


class KafkaPython:
    adapter = fastfetch.adapters.kafka_python

    def __init__(self, servers: str, partitions: Sequence[TopicPartition], **settings: Any) -> None:
        from kafka import KafkaConsumer
        from kafka.serializer import Deserializer

        class Function(Deserializer):  # type: ignore[misc]
            def __init__(self, function: Callable[[bytes | None], object]) -> None:
                self._function = function

            def deserialize(self, topic: str, headers: object, data: bytes | None) -> object:
                return self._function(data)

        for name in ("key_deserializer", "value_deserializer"):
            if name in settings:
                settings[name] = Function(settings[name])
        self.consumer = KafkaConsumer(
            bootstrap_servers=servers, consumer_timeout_ms=5 * POLL_MS, fetch_max_wait_ms=WAIT_MS, **settings
        )
        self.consumer.assign(list(map(self._theirs, partitions)))
        self.consumer.seek_to_beginning()

    def _theirs(self, tp: TopicPartition) -> Any:
        from kafka import TopicPartition

        return TopicPartition(*tp)

    def poll(self, max_records: int | None) -> dict[Any, list[Any]]:
        found: dict[Any, list[Any]] = self.consumer.poll(timeout_ms=POLL_MS, max_records=max_records)
        return found

    def position(self, tp: TopicPartition) -> int:
        return int(self.consumer.position(self._theirs(tp)))

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.consumer.seek(self._theirs(tp), offset)

    def pause(self, tp: TopicPartition) -> None:
        self.consumer.pause(self._theirs(tp))

    def resume(self, tp: TopicPartition) -> None:
        self.consumer.resume(self._theirs(tp))

    def one_by_one(self) -> Iterator[Any]:
        yield from self.consumer

    def close(self) -> None:
        self.consumer.close()


class Aiokafka:
    """In a loop of its own, which runs while it is asked for something."""

    adapter = fastfetch.adapters.aiokafka

    def __init__(self, servers: str, partitions: Sequence[TopicPartition], **settings: Any) -> None:
        from aiokafka import AIOKafkaConsumer

        self._loop = asyncio.new_event_loop()

        async def start() -> Any:
            consumer = AIOKafkaConsumer(bootstrap_servers=servers, fetch_max_wait_ms=WAIT_MS, **settings)
            await consumer.start()
            consumer.assign(list(map(self._theirs, partitions)))
            await consumer.seek_to_beginning()
            return consumer

        self.consumer = self._await(start())

    def _await(self, what: Awaitable[T]) -> T:
        return self._loop.run_until_complete(asyncio.wait_for(what, SECONDS))

    def _theirs(self, tp: TopicPartition) -> Any:
        from aiokafka import TopicPartition

        return TopicPartition(*tp)

    def poll(self, max_records: int | None) -> dict[Any, list[Any]]:
        found: dict[Any, list[Any]] = self._await(self.consumer.getmany(timeout_ms=POLL_MS, max_records=max_records))
        return found

    def position(self, tp: TopicPartition) -> int:
        return int(self._await(self.consumer.position(self._theirs(tp))))

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._call(self.consumer.seek, tp, offset)

    def pause(self, tp: TopicPartition) -> None:
        self._call(self.consumer.pause, tp)

    def resume(self, tp: TopicPartition) -> None:
        self._call(self.consumer.resume, tp)

    def _call(self, method: Callable[..., None], tp: TopicPartition, *more: int) -> None:
        async def call() -> None:  # they are no coroutines, and still want a loop that runs
            method(self._theirs(tp), *more)

        self._await(call())

    def one_by_one(self) -> Iterator[Any]:
        while True:
            try:
                yield self._await(asyncio.wait_for(self.consumer.getone(), 5 * POLL_MS / 1000))
            except TimeoutError:
                return

    def close(self) -> None:
        self._await(self.consumer.stop())
        self._loop.close()


PEERS = [KafkaPython, Aiokafka]
SEAMS = ["reader", "decoder"]
both = pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.__name__)
seams = pytest.mark.parametrize("seam", SEAMS)
# The smaller seam is asked about one codec: below it, all of them go the same way.
seams_and_codecs = pytest.mark.parametrize(("seam", "codec"), [*(("reader", codec) for codec in CODECS), ("decoder", "lz4")])

Story = Callable[[Any], list[object]]


def tell(peer: Any, kafka: Kafka, partitions: Sequence[TopicPartition], story: Story, **settings: Any) -> list[object]:
    reader = peer(kafka.servers, partitions, **settings)
    try:
        return story(reader)
    finally:
        reader.close()


def compare(peer: Any, seam: str, kafka: Kafka, partitions: Sequence[TopicPartition], story: Story, **settings: Any) -> list[Any]:
    """What a story saw without the adapter, after the same was seen with it."""
    without = tell(peer, kafka, partitions, story, **settings)
    with peer.adapter.install(seam=seam):
        inside = tell(peer, kafka, partitions, story, **settings)
    assert inside == without
    assert [list(map(type, _flat(seen))) for seen in inside] == [list(map(type, _flat(seen))) for seen in without]
    return without


def _flat(seen: object) -> list[object]:
    """A record's class and those of its fields, which == does not tell apart."""
    if isinstance(seen, dict):
        return [item for value in seen.values() for item in _flat(value)]
    if isinstance(seen, list):
        return [item for value in seen for item in _flat(value)]
    fields = list(seen) if isinstance(seen, tuple) else list(vars(seen).values()) if hasattr(seen, "__dict__") else []
    return [seen, *fields]


def to_end(reader: Any, ends: dict[TopicPartition, int], max_records: int | None = None) -> dict[tuple[str, int], list[Any]]:
    """Records by partition, read until every position is at its end."""
    found: dict[tuple[str, int], list[Any]] = {tuple(tp): [] for tp in ends}
    deadline = time.monotonic() + SECONDS
    while any(reader.position(tp) < end for tp, end in ends.items()):
        assert time.monotonic() < deadline, {tp: (reader.position(tp), end) for tp, end in ends.items()}
        turn = reader.poll(max_records)
        assert max_records is None or sum(map(len, turn.values())) <= max_records
        for tp, records in turn.items():
            found[tuple(tp)] += records
            # Beyond the last record only where no record is left, which the sum of all sees.
            assert reader.position(TopicPartition(*tp)) > records[-1].offset
    return found


def ends_of(kafka: Kafka, *partitions: TopicPartition, isolation: str = "read_uncommitted") -> dict[TopicPartition, int]:
    with fastfetch.Consumer(bootstrap_servers=kafka.servers, isolation_level=isolation) as consumer:
        return consumer.end_offsets(partitions)


@pytest.fixture(scope="module")
def all_codecs(kafka: Kafka) -> dict[TopicPartition, list[Sent]]:
    """A partition of each codec, with records of every shape in batches of twenty."""
    topic = kafka.topic("adapters", partitions=len(CODECS))
    return {
        TopicPartition(topic, partition): kafka.produce(
            topic, varied(300, seed=partition), partition=partition, codec=codec, batch=20
        )
        for partition, codec in enumerate(CODECS)
    }


@both
@seams
@pytest.mark.parametrize("max_records", [7, None])
def test_every_codec(
    kafka: Kafka, all_codecs: dict[TopicPartition, list[Sent]], peer: Any, seam: str, max_records: int | None
) -> None:
    ends = ends_of(kafka, *all_codecs)
    [found] = compare(peer, seam, kafka, list(all_codecs), lambda reader: [to_end(reader, ends, max_records)], **SMALL_FETCH)
    for tp, records in all_codecs.items():
        assert [(r.key, r.value, list(r.headers), r.timestamp, r.offset) for r in found[tuple(tp)]] == [tuple(r) for r in records]


@both
@seams
def test_a_seek_into_the_middle_of_a_batch(
    kafka: Kafka, all_codecs: dict[TopicPartition, list[Sent]], peer: Any, seam: str
) -> None:
    ends = ends_of(kafka, *all_codecs)

    def story(reader: Any) -> list[object]:
        seen: list[object] = []
        for start in (37, 40, 299, 3):
            for tp in ends:
                reader.seek(tp, start)
            seen.append(to_end(reader, ends, 50))
        return seen

    for start, found in zip((37, 40, 299, 3), compare(peer, seam, kafka, list(all_codecs), story), strict=True):
        assert all([record.offset for record in records] == list(range(start, 300)) for records in found.values())


@both
@seams
def test_a_pause_between_two_polls(kafka: Kafka, all_codecs: dict[TopicPartition, list[Sent]], peer: Any, seam: str) -> None:
    paused, other = (list(all_codecs)[CODECS.index(codec)] for codec in ("lz4", "none"))
    ends = ends_of(kafka, paused, other)

    def story(reader: Any) -> list[object]:
        before = to_end(reader, {paused: 5, other: 5}, 3)
        reader.pause(paused)
        position = reader.position(paused)
        during = to_end(reader, {other: ends[other]}, 11) if reader.position(other) < ends[other] else {tuple(other): []}
        assert reader.position(paused) == position
        reader.resume(paused)
        after = to_end(reader, ends)
        return [{tuple(tp): [r for seen in (before, during, after) for r in seen.get(tuple(tp), [])] for tp in ends}]

    [found] = compare(peer, seam, kafka, [paused, other], story)
    assert all([record.offset for record in records] == list(range(300)) for records in found.values())


@both
@seams_and_codecs
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_transactions(
    kafka: Kafka, interleaved: Callable[[str], Interleaved], peer: Any, seam: str, codec: str, isolation: str
) -> None:
    tp, everything, kept = interleaved(codec)
    ends = ends_of(kafka, tp, isolation=isolation)
    starts = [0, *(record.offset for record in everything[47::60])]

    def story(reader: Any) -> list[object]:
        seen: list[object] = []
        for start in starts:
            reader.seek(tp, start)
            seen.append(to_end(reader, ends, 10))
        return seen

    expected = [record.offset for record in (everything if isolation == "read_uncommitted" else kept)]
    for start, found in zip(starts, compare(peer, seam, kafka, [tp], story, isolation_level=isolation), strict=True):
        assert [record.offset for record in found[tuple(tp)]] == [offset for offset in expected if offset >= start]


@both
@seams
def test_nothing_but_an_aborted_transaction(kafka: Kafka, peer: Any, seam: str) -> None:
    """The position arrives at the end although no record was handed out."""
    tp = TopicPartition(kafka.topic("adapters-aborted"), 0)
    producer = transactional(kafka, "zstd", tp.topic)
    producer.begin_transaction()
    for number in range(20):
        producer.produce(tp.topic, b"%d" % number, partition=0)
    producer.flush(SECONDS)
    producer.abort_transaction(SECONDS)
    kafka.wait_for_markers(tp)
    [found] = compare(peer, seam, kafka, [tp], lambda reader: [to_end(reader, {tp: 21})], isolation_level="read_committed")
    assert found == {tuple(tp): []}


@both
@seams_and_codecs
def test_a_compacted_topic(kafka: Kafka, compacted: dict[str, tuple[str, Newest]], peer: Any, seam: str, codec: str) -> None:
    topic, newest = compacted[codec]
    tp = TopicPartition(topic, 0)
    ends = ends_of(kafka, tp)

    def story(reader: Any) -> list[object]:
        seen: list[object] = []
        for start in (0, 150, 290):  # offsets that no record has any more, too
            reader.seek(tp, start)
            seen.append(to_end(reader, ends, 4))
        return seen

    whole, *_ = compare(peer, seam, kafka, [tp], story)
    offsets = [record.offset for record in whole[tuple(tp)]]
    assert set(offsets) >= {record.offset for record in newest.values()}


@both
@seams
def test_deserializers_and_records_one_by_one(
    kafka: Kafka, all_codecs: dict[TopicPartition, list[Sent]], peer: Any, seam: str
) -> None:
    tp = list(all_codecs)[CODECS.index("zstd")]

    def story(reader: Any) -> list[object]:
        seen: list[object] = []
        for record in reader.one_by_one():
            assert reader.position(tp) == record.offset + 1
            seen.append(record)
        return [seen]

    functions = {
        "key_deserializer": lambda data: ("key", data),
        "value_deserializer": lambda data: None if data is None else len(data),
    }
    [found] = compare(peer, seam, kafka, [tp], story, **functions)
    assert [(r.key, r.value) for r in found] == [
        (("key", sent.key), None if sent.value is None else len(sent.value)) for sent in all_codecs[tp]
    ]


@both
@seams
def test_the_time_of_the_append(kafka: Kafka, peer: Any, seam: str) -> None:
    topic = kafka.topic("adapters-append", message_timestamp_type="LogAppendTime")
    kafka.produce(topic, varied(40), codec="gzip", batch=5)
    tp = TopicPartition(topic, 0)
    [found] = compare(peer, seam, kafka, [tp], lambda reader: [to_end(reader, {tp: 40})])
    assert {record.timestamp_type for record in found[tuple(tp)]} == {1}
