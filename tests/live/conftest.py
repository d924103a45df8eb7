"""A real Kafka broker for the session, and independent clients to produce to it and to read it back.

Without Java or Maven these tests are skipped with one line that says what is missing; where CI is set they fail instead, because
a green run that started no broker would say nothing.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import confluent_kafka
import pytest
from _pytest.runner import runtestprotocol
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient, NewTopic

import fastfetch
from tests.live.kafka_cluster import DEFAULT_VERSION, KafkaCluster, missing_tools

if TYPE_CHECKING:
    from tests.live.history import Load

HERE = Path(__file__).parent
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SECONDS = 30  # how long anything here waits for a broker before it is a failure


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.live)


# Of a test that failed: what its producers wrote twice.
TWICE = pytest.StashKey[list[str]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """All live tests are skipped for one reason at one place, so that the summary says it once and counts them."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple) and HERE in item.path.parents:
        report.longrepr = (str(Path(__file__)), 1, report.longrepr[2])
    if call.when == "call" and isinstance(item, pytest.Function):
        for kafka in (found for found in item.funcargs.values() if isinstance(found, Kafka)):
            loads, kafka.loads = kafka.loads, []
            if report.failed and loads:
                with contextlib.suppress(Exception):  # the brokers can't tell: a failure like any other
                    kafka.cluster.heal()
                    item.stash.setdefault(TWICE, []).extend(said for load in loads for said in load.written_twice())
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test once more whose producer broke its word, which is what its expectations rest on: in one of 34 rounds that killed
    a broker, librdkafka's idempotent producer wrote a record twice. It counts only if librdkafka, too, reads it twice."""
    if HERE not in item.path.parents:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if twice := item.stash.get(TWICE, []):
        del item.stash[TWICE]
        terminal = item.config.pluginmanager.get_plugin("terminalreporter")
        terminal.write_line(f"\n{item.nodeid} runs again, for its producer wrote {' and '.join(twice)}")
        item._initrequest()  # type: ignore[attr-defined]
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def need(version: str) -> None:
    """Skip where this machine can't run a broker of this version; fail if it has to."""
    if reason := missing_tools(version):
        do_without(reason)


def do_without(reason: str) -> NoReturn:
    """This machine lacks something."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def cluster_or_skip() -> None:
    need(DEFAULT_VERSION)


@pytest.fixture(scope="session")
def cluster(cluster_or_skip: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster(tmp_path_factory.mktemp("kafka") / "cluster") as running:
        yield running


@pytest.fixture(scope="session")
def kafka(cluster: KafkaCluster) -> Kafka:
    return Kafka(cluster)


@pytest.fixture(scope="session")
def three(cluster_or_skip: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Three brokers, each in its own rack. Whoever stops one starts it again; `wait_in_sync` returns when it has caught up."""
    with KafkaCluster(tmp_path_factory.mktemp("kafka") / "three", brokers=3, racks=True) as running:
        yield Kafka(running)


@pytest.fixture(scope="session")
def compacted(kafka: Kafka) -> dict[str, tuple[str, Any]]:
    """logs.compacted_topics()."""
    from tests.live.logs import compacted_topics  # it needs this module

    return compacted_topics(kafka)


@pytest.fixture(scope="session")
def interleaved(kafka: Kafka) -> Callable[[str], Any]:
    """logs.interleaved_transactions() of a codec. All are made at once: most of the time is waiting for answers."""
    from tests.live.logs import interleaved_transactions

    with ThreadPoolExecutor(len(CODECS)) as threads:
        made = threads.map(functools.partial(interleaved_transactions, kafka), CODECS)
        return dict(zip(CODECS, made, strict=True)).__getitem__


class Sent(NamedTuple):
    """A record as it was given to the producer, with the offset that the broker gave it."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int = 0  # 0: the producer's clock
    offset: int = -1


class Kafka:
    """The broker as the tests use it: topics, records in, records out through a client that is not ours."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self.servers = cluster.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        self.loads: list[Load] = []  # of the test that runs
        self._numbers = itertools.count()

    def topic(
        self, name: str = "topic", partitions: int = 1, *, replicas: Sequence[Sequence[int]] | None = None, **config: object
    ) -> str:
        """A new topic whose name nobody has used; config names with underscores for dots. Returns when it has leaders.

        `replicas`: the nodes of each partition, the first one leads; else the brokers choose.
        """
        unique = f"{name}.{next(self._numbers)}"
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        placed = {} if replicas is None else {"replica_assignment": [list(nodes) for nodes in replicas]}
        self.admin.create_topics([NewTopic(unique, partitions, config=settings, **placed)])[unique].result(SECONDS)

        def has_leaders() -> bool:
            found = self.admin.list_topics(unique, timeout=SECONDS).topics[unique]
            return len(found.partitions) == partitions and all(p.leader >= 0 for p in found.partitions.values())

        wait_for(has_leaders, f"leaders of {unique}")
        return unique

    def leaders(self, topic: str) -> dict[int, int]:
        """The leader of each partition, as the brokers say."""
        found = self.admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions
        return {number: partition.leader for number, partition in found.items()}

    def wait_in_sync(self) -> None:
        """Until every replica of every topic has caught up: another broker may die then without a loss."""

        def in_sync() -> bool:
            topics = self.admin.list_topics(timeout=SECONDS).topics.values()
            found = [partition for topic in topics for partition in topic.partitions.values()]
            return all(p.leader >= 0 and set(p.isrs) == set(p.replicas) for p in found)

        wait_for(in_sync, "all replicas in sync")

    def spread_leaders(self) -> None:
        """To where they were at first: after restarts one broker may lead everything, and keep all groups."""
        self.admin.elect_leaders(ElectionType.PREFERRED).result(SECONDS)

    def wait_for_markers(self, tp: fastfetch.TopicPartition) -> None:
        """The coordinator writes them after it has answered the producer; with the last one everything is stable."""
        with (
            fastfetch.Consumer(bootstrap_servers=self.servers) as all_of_it,
            fastfetch.Consumer(bootstrap_servers=self.servers, isolation_level="read_committed") as stable,
        ):
            wait_for(lambda: stable.end_offsets([tp]) == all_of_it.end_offsets([tp]), f"the markers in {tp}")

    def producer(self, codec: str = "none", **config: object) -> confluent_kafka.Producer:
        settings: dict[str, object] = {
            "bootstrap.servers": self.servers,
            "compression.type": codec,
            "linger.ms": 50,
            "enable.idempotence": True,  # keeps the order within a partition when something is sent again
            "log_level": 0,
        }
        return confluent_kafka.Producer(settings | {key.replace("_", "."): value for key, value in config.items()})

    def produce(
        self, topic: str, records: Sequence[Sent], *, partition: int = 0, codec: str = "none", batch: int = 0, **config: object
    ) -> list[Sent]:
        """Send all records and return them with their offsets. ``batch``: so many records a batch, 0 for as many as fit."""
        if batch:
            config.setdefault("batch_num_messages", batch)
        producer = self.producer(codec, **config)
        acknowledged = send(producer, topic, records, partition)
        assert producer.flush(SECONDS) == 0, "not all records were acknowledged"
        return acknowledged()

    def consume(self, topic: str, *, partition: int = 0, isolation: str = "read_uncommitted") -> list[Sent]:
        """Everything in a partition up to its end, read by librdkafka."""
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "independent",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
                "check.crcs": True,
                "log_level": 0,
            }
        )
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, confluent_kafka.OFFSET_BEGINNING)])
        found: list[Sent] = []
        deadline = time.monotonic() + SECONDS
        try:
            while time.monotonic() < deadline:
                message = consumer.poll(1)
                if message is None:
                    continue
                if (error := message.error()) is not None:
                    if error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                        return found
                    raise confluent_kafka.KafkaException(error)
                headers = [(key, value) for key, value in message.headers() or []]
                found.append(Sent(message.key(), message.value(), headers, message.timestamp()[1], message.offset()))
        finally:
            consumer.close()
        pytest.fail(f"librdkafka did not reach the end of {topic}-{partition} in {SECONDS} s")


def send(producer: confluent_kafka.Producer, topic: str, records: Sequence[Sent], partition: int = 0) -> Callable[[], list[Sent]]:
    """Hand records to a producer; the returned function gives them with their offsets once it has been flushed."""
    offsets: dict[int, int] = {}

    def delivered(index: int) -> Callable[[Any, Any], None]:
        def callback(error: Any, message: Any) -> None:
            assert error is None, error
            offsets[index] = message.offset()

        return callback

    for index, record in enumerate(records):
        arguments: dict[str, Any] = {"partition": partition, "on_delivery": delivered(index)}
        if record.timestamp:
            arguments["timestamp"] = record.timestamp
        while True:
            try:
                producer.produce(topic, record.value, record.key, headers=list(record.headers), **arguments)
                break
            except BufferError:  # its queue is full
                producer.poll(0.5)
        producer.poll(0)
    return lambda: [record._replace(offset=offsets[index]) for index, record in enumerate(records)]


def read_to_end(consumer: fastfetch.Consumer, *partitions: fastfetch.TopicPartition) -> list[fastfetch.RecordBlock]:
    """All blocks until each position is the end that the broker names.

    By position: the last record + 1 never gets there where a transaction marker or a compacted tail is the last thing in the log.
    """
    ends = consumer.end_offsets(partitions)
    blocks: list[fastfetch.RecordBlock] = []
    deadline = time.monotonic() + SECONDS
    while any(consumer.position(partition) < ends[partition] for partition in partitions):
        blocks += consumer.poll_blocks(timeout_ms=200)
        if time.monotonic() > deadline:
            pytest.fail(f"at {[consumer.position(p) for p in partitions]} after {SECONDS} s, the ends are {ends}")
    return blocks


def poll_for_error(consumer: fastfetch.Consumer) -> None:
    """Poll until something is raised; the caller says what it has to be."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        consumer.poll_blocks(timeout_ms=200)


def sent(blocks: Iterable[fastfetch.RecordBlock]) -> list[Sent]:
    """What blocks hold, in the form in which it was produced."""
    return [Sent(r.key, r.value, r.headers, r.timestamp, r.offset) for block in blocks for r in block]


def wait_for(condition: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
    """Ask again until it holds; on a loaded machine nothing has a fixed time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds} s for {what}")
        time.sleep(0.05)
