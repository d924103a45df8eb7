"""A user's program, type-checked with `mypy --strict` against the installed wheel; it is never run.

A line marked `# error:` has to be refused by the checker. `assert_type` pins what a name is: a signature that decays to Any
fails.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import assert_type

import numpy as np
import numpy.typing as npt

import fastfetch
from fastfetch import (
    AsyncConsumer,
    Consumer,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RebalanceListener,
    Record,
    RecordBlock,
    TopicPartition,
)
from fastfetch.assignors import Assignment, Assignor, GroupCluster, Subscription
from fastfetch.errors import BrokerError, CorruptBatchError, FastFetchError


def decoding(data: bytes | bytearray | memoryview) -> int:
    decoded = fastfetch.decode(data, position=3, isolation="read_committed", aborted=[(7, 0)], threads=2)
    assert_type(decoded.blocks, list[RecordBlock])
    assert_type(decoded.next_offset, int | None)
    assert_type(decoded.error, CorruptBatchError | None)
    assert_type(decoded.consumed, int)
    decoded.raise_for_error()
    for block in decoded.blocks:
        assert_type(block.offsets, npt.NDArray[np.int64])
        assert_type(block.timestamps, npt.NDArray[np.int64])
        assert_type(block.timestamp_types, npt.NDArray[np.int8])
        assert_type(block.value_starts, npt.NDArray[np.int32])
        assert_type(block.values(), list[bytes | None])
        assert_type(block.headers(), list[list[tuple[str, bytes | None]]])
        assert_type(block.records(), list[Record])
        assert_type(block.data, memoryview)
        assert_type(block[0], Record)
        assert_type(block[1:], RecordBlock)
        assert_type(block.detach(), RecordBlock)
        assert_type(block.next_offset, int)
        for record in block:
            assert_type(record.offset, int)
            assert_type(record.value, bytes | None)
            assert_type(record.headers, list[tuple[str, bytes | None]])
    return len(decoded)


def consuming() -> None:
    tp = TopicPartition("orders", 0)
    with Consumer(bootstrap_servers="127.0.0.1:9092", group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 17)
        assert_type(consumer.position(tp), int)
        assert_type(consumer.poll(timeout_ms=100), dict[TopicPartition, list[Record]])
        assert_type(consumer.poll_blocks(timeout_ms=100, max_records=10), list[RecordBlock])
        for block in consumer.blocks():
            assert_type(block, RecordBlock)
        for record in consumer:
            assert_type(record, Record)
        assert_type(consumer.committed([tp]), dict[TopicPartition, OffsetAndMetadata | None])
        assert_type(consumer.offsets_for_times({tp: 0}), dict[TopicPartition, OffsetAndTimestamp | None])
        assert_type(consumer.skip(tp), int)
        consumer.commit()
        consumer.commit({tp: 18})
        consumer.commit({tp: OffsetAndMetadata(18, "note")})
        assert_type(consumer.end_offsets([tp]), dict[TopicPartition, int])
        assert_type(consumer.beginning_offsets([tp]), dict[TopicPartition, int])


async def awaiting() -> None:
    tp = TopicPartition("orders", 0)
    async with AsyncConsumer(bootstrap_servers="127.0.0.1:9092", group_id="g", on_stats=print) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 17)
        assert_type(await consumer.position(tp), int)
        assert_type(await consumer.poll(timeout_ms=100), dict[TopicPartition, list[Record]])
        assert_type(await consumer.poll_blocks(timeout_ms=100, max_records=10), list[RecordBlock])
        async for block in consumer.blocks():
            assert_type(block, RecordBlock)
        async for record in consumer:
            assert_type(record, Record)
        assert_type(await consumer.committed([tp]), dict[TopicPartition, OffsetAndMetadata | None])
        assert_type(await consumer.end_offsets([tp]), dict[TopicPartition, int])
        assert_type(consumer.assignment(), set[TopicPartition])
        await consumer.commit({tp: 18})


class Seeks(RebalanceListener):
    """One method of a listener is enough, as it is of an assignor."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            self._consumer.seek(tp, 17)


class Everything(Assignor):
    name = "everything-to-the-first"

    def assign(self, cluster: GroupCluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        first, *others = sorted(subscriptions)
        owned = (TopicPartition(topic, n) for topic, count in cluster.partitions.items() for n in range(count))
        return {first: Assignment(tuple(owned)), **dict.fromkeys(others, Assignment(()))}


def in_a_group() -> None:
    with Consumer(bootstrap_servers="127.0.0.1:9092", group_id="g", partition_assignment_strategy=[Everything()]) as consumer:
        consumer.subscribe(["orders"], listener=Seeks(consumer))
        consumer.subscribe(pattern="orders-.*")
        assert_type(consumer.group_metadata().member_id, str)
        consumer.enforce_rebalance("the weather")


def errors(error: FastFetchError) -> str:
    if isinstance(error, CorruptBatchError):
        assert_type(error.next_offset, int | None)
        return f"{error.topic} {error.kind}"
    if isinstance(error, BrokerError):
        assert_type(error.code, int)
        assert_type(error.retriable, bool)
    return str(error)


def values(found: OffsetAndTimestamp, tp: TopicPartition) -> None:
    assert_type(found.offset, int)
    topic, partition = tp
    assert_type(topic, str)
    assert_type(partition, int)


async def refused_too(consumer: AsyncConsumer) -> None:
    print((await consumer.poll()).offsets)  # error: a dict
    consumer.poll().items()  # error: not awaited
    await consumer.seek(TopicPartition("orders", 0), 17)  # error: plain


def refused(block: RecordBlock, consumer: Consumer) -> None:
    fastfetch.decode("text")  # error: not bytes
    fastfetch.decode(b"", isolation="serializable")  # error: no such level
    fastfetch.decode(b"", 3)  # error: position is a keyword
    block.offsets = np.zeros(1, np.int64)  # error: read-only
    consumer.assign("orders")  # error: partitions, not a topic's name
    consumer.seek(TopicPartition("orders", 0), "17")  # error: an offset is an int
    consumer.commit({"orders": 17})  # error: keyed by partition
    consumer.polll()  # error: no such method
    block.headers()[0][0][0].decode()  # error: header keys are str
