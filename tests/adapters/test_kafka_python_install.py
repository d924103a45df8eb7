"""install() and uninstall() of the kafka-python adapter, and whole consumers with it and without, over a scripted broker."""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka
import kafka.errors
import pytest
from kafka import KafkaConsumer
from kafka.consumer import fetcher
from kafka.errors import CorruptRecordError
from kafka.structs import TopicPartition

from fastfetch.adapters import kafka_python as adapter
from fastfetch.errors import CrcMismatchError, UsageError
from fastfetch.testing import Broker, Row, control_batch, encode_batch

BOUND = ((fetcher, "MemoryRecords"), (fetcher.Fetcher, "PartitionRecords"))
THEIRS = [vars(owner)[name] for owner, name in BOUND]
OURS = [adapter.MemoryRecords, adapter.PartitionRecords]
SEAMS = {"reader": OURS, "decoder": [OURS[0], THEIRS[1]]}
TP = TopicPartition("orders", 0)


def bound() -> list[Any]:
    return [vars(owner)[name] for owner, name in BOUND]


@pytest.fixture(autouse=True)
def _uninstalled() -> Iterator[None]:
    assert bound() == THEIRS
    yield
    adapter.uninstall()
    assert bound() == THEIRS


@pytest.mark.parametrize("seam", SEAMS)
def test_install_rebinds_what_its_seam_says_and_uninstall_puts_it_back(seam: Any) -> None:
    adapter.install(seam)
    assert bound() == SEAMS[seam]
    adapter.install(seam)
    assert bound() == SEAMS[seam]
    adapter.uninstall()
    assert bound() == THEIRS
    adapter.uninstall()
    assert bound() == THEIRS


def test_the_reader_is_what_one_gets() -> None:
    adapter.install()
    assert bound() == OURS


def test_a_context_takes_back_what_it_installed_and_no_more() -> None:
    with adapter.install():
        with adapter.install():
            assert bound() == OURS
        assert bound() == OURS
    assert bound() == THEIRS
    with pytest.raises(ZeroDivisionError), adapter.install("decoder"):
        raise ZeroDivisionError
    assert bound() == THEIRS


def test_the_other_seam_is_refused_while_one_is_installed() -> None:
    adapter.install("decoder")
    with pytest.raises(UsageError, match="uninstall"):
        adapter.install("reader")
    assert bound() == SEAMS["decoder"]


def test_a_seam_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match=r"'reader' or 'decoder'; got 'fetcher'"):
        adapter.install("fetcher")  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ["1.4.7", "2.0.2", "2.1.5", "3.9.0", "4.0.0", "30.0.1", "next", ""])
def test_an_unknown_version_is_refused_and_the_known_ones_are_named(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "__version__", version)
    with pytest.raises(UsageError, match=rf"kafka-python {version}.*2\.2, 2\.3, 3\.0"):
        adapter.install()
    assert bound() == THEIRS


def test_a_release_with_other_names_is_refused_by_install_and_not_by_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "__version__", "2.1.5")
    monkeypatch.delattr(kafka.errors, "CorruptRecordError")
    spec = importlib.util.spec_from_file_location("beside_an_old_release", adapter.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(UsageError, match=r"kafka-python 2\.1\.5 is not"):
        module.install()


class Changed:
    """A reader of another shape."""

    def __init__(self, fetch_offset: int, tp: Any, messages: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("owner", "name", "value", "says"),
    [
        (fetcher.Fetcher, "PartitionRecords", Changed, "messages"),
        (fetcher, "MemoryRecords", lambda data, more: None, "bytes_data"),
        (fetcher, "ConsumerRecord", TopicPartition, "topic, partition"),
        (fetcher.Fetcher, "_parse_fetched_data", lambda self, fetch: None, "look up"),
        (fetcher.Fetcher, "_parse_fetched_data", None, "shape"),
        (fetcher, "ConsumerRecord", None, "shape"),
    ],
)
def test_a_known_version_of_another_shape_is_refused(
    owner: Any, name: str, value: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, value)
    before = bound()
    for seam in SEAMS:
        with pytest.raises(UsageError, match=says):
            adapter.install(seam)  # type: ignore[arg-type]
        assert bound() == before
    monkeypatch.undo()
    with adapter.install():
        assert bound() == OURS


def test_a_failure_half_way_undoes_the_first_half(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stubborn(type):
        def __setattr__(cls, name: str, value: Any) -> None:
            raise RuntimeError("no")

    class Fetcher(fetcher.Fetcher, metaclass=Stubborn):  # type: ignore[misc]
        PartitionRecords = THEIRS[1]

    monkeypatch.setattr(fetcher, "Fetcher", Fetcher)
    with pytest.raises(RuntimeError, match="no"):
        adapter.install()
    assert fetcher.MemoryRecords is THEIRS[0]
    monkeypatch.undo()
    with adapter.install():
        assert bound() == OURS


# --- whole consumers --------------------------------------------------------------------------------------------------


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        yield broker


def fill(broker: Broker) -> None:
    """Both partitions: plain and compressed batches, an aborted transaction, headers, nulls."""
    for partition in (0, 1):
        for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
            rows = [
                Row(b"k%d" % i if i % 3 else None, b"%d" % i if i % 4 else None, headers=[("n", b"%d" % number)])
                for i in range(70)
            ]
            broker.append("orders", partition, encode_batch(rows, codec=codec))
        for kind in ("abort", "commit"):
            more = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
            broker.append("orders", partition, encode_batch([kind.encode()] * 5, **more))
            broker.append("orders", partition, control_batch(kind, producer_id=7))
        broker.append("orders", partition, encode_batch([b"last"]))


def consumer(broker: Broker, **settings: Any) -> Any:
    return KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id=None,
        auto_offset_reset="earliest",
        **{"max_partition_fetch_bytes": 2000, "fetch_max_bytes": 3000, **settings},
    )


def read_all(broker: Broker, **settings: Any) -> tuple[list[Any], dict[Any, int], list[int]]:
    """Everything in both partitions by poll(): records in the order of each partition, positions, the sizes of the polls."""
    reader = consumer(broker, **settings)
    partitions = [TopicPartition("orders", number) for number in (0, 1)]
    try:
        reader.assign(partitions)
        records: list[Any] = []
        sizes = []
        deadline = time.monotonic() + 30
        while sum(record.value == b"last" for record in records) < 2:
            assert time.monotonic() < deadline
            got = reader.poll(200)
            sizes.append(sum(map(len, got.values())))
            records += itertools.chain.from_iterable(got.values())
        return sorted(records, key=lambda r: r[:4:3] + r[1:2]), {tp: reader.position(tp) for tp in partitions}, sizes
    finally:
        reader.close()


@pytest.mark.parametrize("seam", SEAMS)
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_consumer_gets_the_same_with_and_without(broker: Broker, seam: Any, isolation: str) -> None:
    fill(broker)
    alone, positions, _ = read_all(broker, isolation_level=isolation)
    assert len(alone) == 2 * (5 * 70 + 5 + 1) + (10 if isolation == "read_uncommitted" else 0)
    with adapter.install(seam):
        found, found_positions, sizes = read_all(broker, isolation_level=isolation, max_poll_records=37)
    assert found == alone
    assert {type(record) for record in found} == {fetcher.ConsumerRecord}
    assert found_positions == positions
    assert max(sizes) == 37


def test_iteration_pause_and_seek(broker: Broker) -> None:
    fill(broker)
    with adapter.install():
        reader = consumer(broker, consumer_timeout_ms=20_000)
        reader.assign([TP])
        reader.seek(TP, 101)  # in the middle of a gzip batch
        offsets = [record.offset for record in itertools.islice(reader, 5)]
        assert (offsets, reader.position(TP)) == ([101, 102, 103, 104, 105], 106)
        reader.pause(TP)
        assert reader.poll(100) == {}
        reader.resume(TP)
        assert next(iter(reader)).offset == 106
        reader.seek(TP, 5)
        assert next(iter(reader)).offset == 5
        reader.close()


def test_metrics_count_what_was_read(broker: Broker) -> None:
    fill(broker)

    def counted() -> dict[str, float]:
        reader = consumer(broker)
        reader.assign([TP])
        got = 0
        while got < 361:
            got += sum(map(len, reader.poll(500, max_records=500).values()))
        reader.poll(100)
        found = reader.metrics()["consumer-fetch-manager-metrics"]
        reader.close()
        return {name: found[name] for name in ("records-per-request-avg", "fetch-size-max", "fetch-size-avg")}

    alone = counted()
    with adapter.install():
        assert counted() == alone
    assert alone["fetch-size-max"] > 0


def test_a_consumer_made_before_goes_on_and_one_made_with_it_survives_uninstall(broker: Broker) -> None:
    fill(broker)
    reader = consumer(broker, max_poll_records=10)
    reader.assign([TP])
    offsets: list[int] = []

    def read(until: int) -> None:
        deadline = time.monotonic() + 30
        while len(offsets) < until:
            assert time.monotonic() < deadline
            offsets.extend(record.offset for records in reader.poll(500).values() for record in records)

    read(30)
    with adapter.install():
        read(200)
    read(361)
    reader.close()
    assert offsets == sorted(set(range(363)) - {355, 361})


def nothing_more(reader: Any) -> None:
    """Poll until it raises."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert reader.poll(1000) == {}


def test_bad_bytes_are_raised_after_the_good_ones_until_somebody_seeks(broker: Broker) -> None:
    broker.append("orders", 0, encode_batch([b"a", b"b"]))
    broker.append_raw("orders", 0, encode_batch([b"c"], base_offset=2)[:-1] + b"\x01", offsets=1)
    broker.append("orders", 0, encode_batch([b"d"]))
    with adapter.install():
        reader = consumer(broker)
        reader.assign([TP])
        got: list[bytes] = []
        while len(got) < 2:
            got += [record.value for record in reader.poll(1000).get(TP, [])]
        for _ in range(3):
            with pytest.raises(CorruptRecordError, match=r"CRC.*orders-0.*offset 2") as caught:
                nothing_more(reader)
            assert isinstance(caught.value.__cause__, CrcMismatchError)
            assert (caught.value.__cause__.next_offset, reader.position(TP)) == (3, 2)
        reader.seek(TP, caught.value.__cause__.next_offset)
        while len(got) < 3:
            got += [record.value for record in reader.poll(1000).get(TP, [])]
        reader.close()
    assert got == [b"a", b"b", b"d"]


# --- other versions ---------------------------------------------------------------------------------------------------

VERSIONS = [Path(folder) for folder in os.environ.get("FASTFETCH_KAFKA_PYTHON", "").split(os.pathsep) if folder]


@pytest.mark.skipif(
    not VERSIONS, reason="FASTFETCH_KAFKA_PYTHON names no folders, made by pip install --target, with other versions"
)
@pytest.mark.parametrize("folder", VERSIONS, ids=lambda folder: folder.name)
def test_other_versions(folder: Path, root: Path) -> None:
    tests = [root / "tests" / "adapters" / f"test_{name}.py" for name in ("rows", "kafka_python", "kafka_python_install")]
    env = {**os.environ, "PYTHONPATH": str(folder), "FASTFETCH_KAFKA_PYTHON": ""}
    # Some leave sockets to the garbage collector.
    command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore::ResourceWarning", "-p", "no:cacheprovider", *map(str, tests)]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
