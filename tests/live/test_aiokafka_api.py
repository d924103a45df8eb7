"""aiokafka's consumer by name and aiokafka's own, with a real broker: the same records, groups in common, the same commits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import aiokafka
import pytest
from aiokafka.structs import TopicPartition
from confluent_kafka.admin import NewTopic

from fastfetch.adapters.aiokafka_api import AIOKafkaConsumer
from tests.live.conftest import CODECS, SECONDS, Kafka, Sent
from tests.live.logs import Interleaved, varied

T = TypeVar("T")
KINDS = [aiokafka.AIOKafkaConsumer, AIOKafkaConsumer]


@pytest.fixture(params=KINDS, ids=["aiokafka", "fastfetch"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


def run(main: Coroutine[Any, Any, T]) -> T:
    async def limited() -> T:
        async with asyncio.timeout(SECONDS):
            return await main

    return asyncio.run(limited())


@contextlib.asynccontextmanager
async def reading(kind: Any, kafka: Kafka, *topics: str, assign: Any = (), **settings: Any) -> AsyncIterator[Any]:
    settings = {"bootstrap_servers": kafka.servers, "auto_offset_reset": "earliest"} | settings
    consumer = kind(*topics, **settings)
    if assign:
        consumer.assign(assign)
    async with consumer:
        yield consumer


async def read(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        for records in (await consumer.getmany(timeout_ms=1000)).values():
            found += records
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_the_same_records(kafka: Kafka, codec: str) -> None:
    topic = kafka.topic("same", partitions=2)
    for partition in range(2):
        kafka.produce(topic, varied(300, seed=partition), partition=partition, codec=codec, batch=20)

    async def all_of(kind: Any) -> list[Any]:
        async with reading(kind, kafka, topic) as consumer:
            return sorted(await read(consumer, 600), key=lambda record: (record.partition, record.offset))

    assert run(all_of(AIOKafkaConsumer)) == run(all_of(aiokafka.AIOKafkaConsumer))


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_the_same_transactions(kafka: Kafka, interleaved: Callable[[str], Interleaved], isolation: str) -> None:
    tp, everything, kept = interleaved("lz4")
    expected = [record.offset for record in (everything if isolation == "read_uncommitted" else kept)]

    async def offsets(kind: Any) -> tuple[list[int], int, int | None]:
        async with reading(kind, kafka, assign=[TopicPartition(*tp)], isolation_level=isolation) as consumer:
            found = [record.offset for record in await read(consumer, len(expected))]
            await consumer.getmany(timeout_ms=500)  # past the last marker
            return found, await consumer.position(tp), consumer.highwater(TopicPartition(*tp))

    mine, theirs = run(offsets(AIOKafkaConsumer)), run(offsets(aiokafka.AIOKafkaConsumer))
    assert mine == theirs
    assert mine[0] == expected


def test_one_goes_on_where_the_other_has_committed(kafka: Kafka) -> None:
    topic = kafka.topic("relay")
    kafka.produce(topic, [Sent(b"k", b"%d" % i, []) for i in range(100)])
    found: list[int] = []

    async def some(kind: Any) -> None:
        async with reading(kind, kafka, topic, group_id=topic) as consumer:
            async for record in consumer:
                found.append(record.offset)
                if record.offset % 10 == 9:
                    break

    for kind in KINDS * 2:
        run(some(kind))
    assert found == list(range(40)), "stop() has committed what was handed out"


def test_forms_of_a_commit_and_a_seek(kafka: Kafka, kind: Any) -> None:
    topic = kafka.topic("commits")
    tp = TopicPartition(topic, 0)
    kafka.produce(topic, [Sent(b"k", b"%d" % i, [], 1_700_000_000_000 + i) for i in range(100)], batch=10)

    async def main() -> None:
        async with reading(kind, kafka, topic, group_id=topic, enable_auto_commit=False) as consumer:
            assert consumer.assignment() == {tp}
            assert await consumer.committed(tp) is None
            assert (await consumer.getone()).offset == 0
            await consumer.commit()
            assert await consumer.committed(tp) == 1
            await consumer.commit({tp: 17})
            await consumer.commit({tp: (18, "why")})
            consumer.seek(tp, 55)
            assert (await consumer.getone()).offset == 55
            assert await consumer.seek_to_committed() == {tp: 18}
            assert (await consumer.getone()).offset == 18
            assert await consumer.seek_to_end(tp)
            assert await consumer.position(tp) == 100
            assert await consumer.seek_to_beginning(tp)
            assert (await consumer.getone(tp)).offset == 0
            assert (await consumer.beginning_offsets([tp]), await consumer.end_offsets([tp])) == ({tp: 0}, {tp: 100})
            assert await consumer.offsets_for_times({tp: 1_700_000_000_042}) == {tp: (42, 1_700_000_000_042)}
            assert topic in await consumer.topics()
            assert consumer.partitions_for_topic(topic) == {0}

    run(main())


def test_a_group_of_both(kafka: Kafka) -> None:
    topic = kafka.topic("both", partitions=4)
    for partition in range(4):
        kafka.produce(topic, [Sent(b"k", b"%d" % i, []) for i in range(50)], partition=partition)
    settings = {"group_id": topic, "heartbeat_interval_ms": 200}
    seen: dict[tuple[int, int], set[str]] = {}

    async def work(consumer: Any, name: str) -> None:
        async for record in consumer:
            seen.setdefault((record.partition, record.offset), set()).add(name)

    async def main() -> None:
        async with reading(KINDS[0], kafka, topic, **settings) as theirs, reading(KINDS[1], kafka, topic, **settings) as mine:
            while {len(theirs.assignment()), len(mine.assignment())} != {2}:
                await asyncio.sleep(0.1)
            tasks = [asyncio.create_task(work(theirs, "theirs")), asyncio.create_task(work(mine, "mine"))]
            while len(seen) < 200:
                await asyncio.sleep(0.05)
            given = {tp.partition for tp in mine.assignment()}
        await asyncio.gather(*tasks)
        assert {partition for (partition, _), names in seen.items() if "mine" in names} == given
        assert all(len(names) == 1 for names in seen.values())

    run(main())


def test_start_waits_for_a_topic(kafka: Kafka, kind: Any) -> None:
    name = f"later-{kind.__module__}"

    async def main() -> None:
        consumer = kind(name, bootstrap_servers=kafka.servers, auto_offset_reset="earliest")
        starting = asyncio.create_task(consumer.start())
        await asyncio.sleep(0.5)
        assert not starting.done()
        kafka.admin.create_topics([NewTopic(name, 1)])[name].result(SECONDS)
        await starting
        assert consumer.assignment() == {TopicPartition(name, 0)}
        kafka.produce(name, [Sent(b"k", b"first", [])])
        assert (await consumer.getone()).value == b"first"
        await consumer.stop()

    run(main())
