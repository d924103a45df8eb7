"""AsyncConsumer and a real broker: the records and positions are those of Consumer, and other tasks go on meanwhile."""

from __future__ import annotations

import asyncio

import fastfetch
from fastfetch import TopicPartition
from tests.live.conftest import SECONDS, Kafka, Sent, sent

RECORDS = [Sent(b"k", b"%d" % i, [], 1_700_000_000_000 + i) for i in range(500)]


def test_records_arrive_while_they_are_produced(kafka: Kafka) -> None:
    topic = kafka.topic("async")
    tp = TopicPartition(topic, 0)
    group = {"bootstrap_servers": kafka.servers, "group_id": "async", "enable_auto_commit": False}

    async def read_all() -> tuple[list[Sent], list[Sent]]:
        read: list[Sent] = []
        async with fastfetch.AsyncConsumer(auto_offset_reset="earliest", **group) as consumer:
            consumer.assign([tp])
            assert await consumer.end_offsets([tp]) == {tp: 0}
            producing = asyncio.create_task(asyncio.to_thread(kafka.produce, topic, RECORDS, codec="zstd", batch=20))
            async with asyncio.timeout(SECONDS):
                while len(read) < 250:
                    read += sent(await consumer.poll_blocks(timeout_ms=500, max_records=250 - len(read)))
                await consumer.commit()
                async for record in consumer:
                    read.append(Sent(record.key, record.value, record.headers, record.timestamp, record.offset))
                    if len(read) == len(RECORDS):
                        break
            assert await consumer.position(tp) == len(RECORDS)
            return read, await producing

    async def go_on() -> int:
        async with fastfetch.AsyncConsumer(auto_offset_reset="none", **group) as consumer:
            consumer.assign([tp])
            return await consumer.position(tp)

    read, produced = asyncio.run(read_all())
    assert read == produced
    assert asyncio.run(go_on()) == 250


def test_a_cancelled_poll_loses_nothing(kafka: Kafka) -> None:
    topic = kafka.topic("cancelled")
    tp = TopicPartition(topic, 0)
    produced = kafka.produce(topic, RECORDS, codec="lz4", batch=10)

    async def read_with_interruptions() -> list[Sent]:
        read: list[Sent] = []
        async with fastfetch.AsyncConsumer(bootstrap_servers=kafka.servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([tp])
            turn = 0
            async with asyncio.timeout(SECONDS):
                while len(read) < len(RECORDS):
                    poll = asyncio.create_task(consumer.poll(timeout_ms=1_000, max_records=7))
                    for _ in range(turn % 4):
                        await asyncio.sleep(0)
                    if turn % 2:
                        poll.cancel()
                    turn += 1
                    try:
                        got = (await poll).get(tp, [])
                    except asyncio.CancelledError:
                        continue
                    read += [Sent(r.key, r.value, r.headers, r.timestamp, r.offset) for r in got]
                    assert await consumer.position(tp) == (read[-1].offset + 1 if read else 0)
        return read

    assert asyncio.run(read_with_interruptions()) == produced
