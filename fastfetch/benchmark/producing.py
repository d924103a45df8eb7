"""Fills topics for measuring, through confluent-kafka: an independent producer that has every codec.

Records are made of a seed, some 100,000 different ones that repeat; partitions take turns. So the same command gives the same
records in the same partitions. Batches end where librdkafka ends them, which depends on the time as well.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from fastfetch.benchmark.external import ToolError
from fastfetch.benchmark.shapes import SHAPES, Pairs
from fastfetch.consumer import Consumer
from fastfetch.errors import FastFetchError, UnknownTopicError, UsageError
from fastfetch.types import TopicPartition

__all__ = [
    "CODECS", "Deliveries", "Made", "Sample", "confluent_kafka", "create_topic", "delete_topic", "ends", "fill",
    "has_append_time", "prepare",
]  # fmt: skip

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DISTINCT = 100_000
_ADMIN_SECONDS = 30
_DELIVERY_SECONDS = 60
_TOLD_SECONDS = 0.1


def confluent_kafka() -> Any:
    """The package. Raises ToolError where it is missing."""
    try:
        import confluent_kafka.admin
    except ImportError:
        raise ToolError("confluent-kafka, which writes records, is not installed: pip install 'fastfetch[bench]'") from None
    return confluent_kafka


@dataclass(frozen=True)
class Sample:
    """What to fill a topic with.

    records        how many, or
    nbytes         until keys and values have so many bytes
    shape          one of SHAPES
    value_bytes    of each value; None: as is usual for the shape
    key_bytes      of each key; 0: null; None: as is usual for the shape
    headers        of each record, with 16 bytes each
    batch_bytes, batch_records, linger_ms    when a batch is closed: whatever comes first
    """

    records: int | None = None
    nbytes: int | None = None
    shape: str = "json"
    value_bytes: int | None = None
    key_bytes: int | None = None
    headers: int = 0
    codec: str = "lz4"
    batch_bytes: int = 16_384
    batch_records: int | None = None
    linger_ms: float = 100.0
    seed: int = 1

    def pairs(self) -> Pairs:
        """Keys and values, in order."""
        rng = Random(self.seed)
        made = itertools.islice(SHAPES[self.shape](rng, self.value_bytes), min(DISTINCT, self.records or DISTINCT))
        pool = [(key if self.key_bytes is None else rng.randbytes(self.key_bytes) or None, value) for key, value in made]
        left = self.nbytes
        for number, (key, value) in enumerate(itertools.cycle(pool)):
            if number == self.records or (left is not None and left <= 0):
                return
            yield key, value
            if left is not None:
                left -= len(key or b"") + len(value)

    def producer_settings(self) -> dict[str, Any]:
        """As librdkafka names them."""
        return {
            "compression.type": self.codec,
            "batch.size": self.batch_bytes if self.batch_records is None else 1 << 30,
            "batch.num.messages": self.batch_records or 1_000_000,
            "linger.ms": self.linger_ms,
            "enable.idempotence": True,  # or what is sent again after an error might be there twice
        }


@dataclass(frozen=True)
class Made:
    """What was written. `nbytes` are those of keys and values."""

    records: int
    nbytes: int
    seconds: float


class Deliveries:
    """A producer whose failures are raised. Raises FastFetchError."""

    def __init__(self, bootstrap: str, topic: str, settings: dict[str, Any]) -> None:
        package = confluent_kafka()
        self._exception = package.KafkaException
        self._topic = topic
        self._failed: str | None = None
        self._producer = package.Producer({
            "bootstrap.servers": bootstrap, "log_level": 0, "queue.buffering.max.messages": 200_000, "error_cb": self._error,
            "message.timeout.ms": int(_DELIVERY_SECONDS * 1000 + settings.get("linger.ms", 0)), **settings,
        })  # fmt: skip

    def send(self, partition: int, key: bytes | None, value: bytes, headers: list[tuple[str, bytes]] | None = None) -> None:
        """Hand one over to be sent, waiting for room."""
        while True:
            try:
                self._producer.produce(self._topic, value, key, partition, self._delivered, headers=headers)
            except BufferError:
                self._producer.poll(_TOLD_SECONDS)
            except self._exception as error:  # what it knows of the topic by now
                raise self._refused(error.args[0].str()) from None
            else:
                return
            self._check()

    def connect(self) -> None:
        """Wait until it knows the topic, so that the first record does not have to."""
        try:
            found = self._producer.list_topics(self._topic, timeout=_ADMIN_SECONDS).topics[self._topic]
        except self._exception as error:
            raise self._refused(error.args[0].str()) from None
        if found.error is not None:
            raise self._refused(found.error.str())

    def told(self) -> None:
        """Hear of what was delivered, and what was not."""
        self._producer.poll(0)
        self._check()

    def flush(self) -> None:
        """Wait until all of it is there."""
        deadline = time.monotonic() + _DELIVERY_SECONDS
        while left := self._producer.flush(_TOLD_SECONDS):
            self._check()
            if time.monotonic() > deadline:
                raise FastFetchError(f"{left} records for {self._topic} were not acknowledged within {_DELIVERY_SECONDS} s")
        self._check()

    def drop(self) -> None:
        """Forget what was not sent yet."""
        self._producer.purge()
        self._producer.flush(_TOLD_SECONDS)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and self._failed is None:
            self._failed = error.str()

    def _error(self, error: Any) -> None:
        if error.fatal():
            self._failed = error.str()

    def _check(self) -> None:
        if self._failed is not None:
            raise self._refused(self._failed)

    def _refused(self, why: str) -> FastFetchError:
        return FastFetchError(f"topic {self._topic} can't be written: {why}")


def _admin(bootstrap: str) -> Any:
    return confluent_kafka().admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create_topic(consumer: Consumer, bootstrap: str, topic: str, partitions: int, config: dict[str, str]) -> None:
    """Make it, replicated as the brokers do by default, and wait until the consumer can look it up. Raises FastFetchError."""
    admin = _admin(bootstrap)
    wanted = confluent_kafka().admin.NewTopic(topic, num_partitions=partitions, config=config)
    _done(admin.create_topics([wanted], operation_timeout=_ADMIN_SECONDS)[topic], f"topic {topic} could not be made")
    # One broker knows it; the others hear of it a moment later.
    deadline = time.monotonic() + _ADMIN_SECONDS
    while True:
        try:
            if len(ends(consumer, topic)) == partitions:
                return
        except UnknownTopicError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_TOLD_SECONDS)


def has_append_time(bootstrap: str, topic: str) -> bool:
    """Are a topic's timestamps the broker's? Raises FastFetchError."""
    admin = _admin(bootstrap)  # a name keeps it alive until the answer is there
    resource = confluent_kafka().admin.ConfigResource("topic", topic)
    config = _done(admin.describe_configs([resource])[resource], f"the settings of topic {topic} could not be looked up")
    return bool(config["message.timestamp.type"].value == "LogAppendTime")


def delete_topic(bootstrap: str, topic: str) -> None:
    """Raises FastFetchError."""
    admin = _admin(bootstrap)
    _done(admin.delete_topics([topic], operation_timeout=_ADMIN_SECONDS)[topic], f"topic {topic} could not be deleted")


def _done(answer: Any, failure: str) -> Any:
    try:
        return answer.result(2 * _ADMIN_SECONDS)
    except Exception as error:  # KafkaException, or the future's time-out
        told = error.args[0] if error.args else error
        raise FastFetchError(f"{failure}: {told.str() if hasattr(told, 'str') else told or type(error).__name__}") from None


def ends(consumer: Consumer, topic: str) -> dict[TopicPartition, int]:
    """The end offset of each partition. Raises UnknownTopicError."""
    return consumer.end_offsets([TopicPartition(topic, number) for number in sorted(consumer.partitions_for(topic))])


def prepare(consumer: Consumer, bootstrap: str, topic: str, partitions: int | None, *, append: bool) -> int:
    """Make the topic if it is not there; returns its number of partitions.

    Raises UsageError if it has records and `append` was not said, or has another number of partitions.
    """
    try:
        found = ends(consumer, topic)
    except UnknownTopicError:
        create_topic(consumer, bootstrap, topic, partitions or 1, {})
        return partitions or 1
    if partitions not in (None, len(found)):
        raise UsageError(f"topic {topic} is there: it has {len(found)} partition{'s' * (len(found) > 1)}, not {partitions}")
    begins = consumer.beginning_offsets(list(found))
    if not append and (records := sum(end - begins[tp] for tp, end in found.items())):
        raise UsageError(f"topic {topic} has records already, {records} offsets of them: --append adds to them")
    return len(found)


def fill(bootstrap: str, topic: str, partitions: int, sample: Sample, progress: Callable[[int, int], object]) -> Made:
    """Write a sample; `progress` is told records and bytes now and then. Raises FastFetchError."""
    deliveries = Deliveries(bootstrap, topic, sample.producer_settings())
    headers = _headers(sample)
    records = nbytes = 0
    began = time.monotonic()
    try:
        for key, value in sample.pairs():
            deliveries.send(records % partitions, key, value, headers)
            records += 1
            nbytes += len(key or b"") + len(value)
            if not records & 1023:
                deliveries.told()
                progress(records, nbytes)
        deliveries.flush()
    except BaseException:
        deliveries.drop()
        raise
    return Made(records, nbytes, time.monotonic() - began)


def _headers(sample: Sample) -> list[tuple[str, bytes]]:
    rng = Random(sample.seed)
    return [(f"header-{number}", rng.randbytes(8).hex().encode()) for number in range(sample.headers)]
