"""Topics of a real broker, filled with the benchmarks' records in seconds.

The broker makes the topics, is stopped, gets their segments written into its data folder, and is started again. It takes them for
what a killed broker left behind: it reads them through, checks every batch, and rebuilds the indexes. Producing the same ten
million records takes half a minute a topic, for a request may hold one batch of a partition.

The batches are those of corpus.py: what a Java producer with default settings writes, 16 KiB of records before compression. They
are encoded once, for some 100,000 different records, and repeated with offsets that go on.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.corpus import corpus
from fastfetch.testing.batches import encode_batch
from tests.live.kafka_cluster import KafkaCluster

__all__ = ["TOPICS", "Stock", "stocked", "write_segments"]

RECORDS = 10_000_000
DISTINCT_BYTES = 20 << 20  # of records before compression: about 100,000 of the JSON ones
SEGMENT_BYTES = 1 << 30  # the broker's default
WRITE_BYTES = 4 << 20
FOLDER_SECONDS = 60
# Serves faster than the small one of the tests, and is no larger than it must be.
JVM = ("-Xms1g", "-Xmx1g")


@dataclass(frozen=True)
class Topic:
    """What a topic is filled with: batches of a corpus (or of INFLATING) over and over, an equal number for each partition."""

    data: str
    records: int
    partitions: int = 1


INFLATING = "inflating"
TOPICS = {
    "none": Topic("json-none", RECORDS),
    "lz4": Topic("json-lz4", RECORDS),
    "zstd": Topic("json-zstd", RECORDS),
    "lz4-8": Topic("json-lz4", RECORDS, 8),
    "lz4-5": Topic("json-lz4-5", RECORDS // 4),
    "none-500": Topic("json-none", RECORDS, 500),
    "inflating": Topic(INFLATING, 2 * RECORDS),
    "inflating-50": Topic(INFLATING, 2 * RECORDS, 50),
    "empty": Topic("json-none", 0, 100),
}


@dataclass(frozen=True)
class Stock:
    """A running broker and the number of records in each of its topics."""

    bootstrap: str
    records: dict[str, int]


@contextlib.contextmanager
def stocked(names: Iterable[str], *, share: int = 1) -> Iterator[Stock]:
    """A broker of its own with the topics of these names; with `share`, only so great a part of their records."""
    with (
        tempfile.TemporaryDirectory(prefix="fastfetch-bench-") as folder,
        KafkaCluster(Path(folder) / "cluster", jvm=JVM) as cluster,
    ):
        yield Stock(cluster.bootstrap_servers, _fill(cluster, list(dict.fromkeys(names)), share))


def _fill(cluster: KafkaCluster, names: list[str], share: int) -> dict[str, int]:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    # A name keeps it alive until the answer is there; it need not tell that the broker went away.
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for created in admin.create_topics([NewTopic(name, TOPICS[name].partitions) for name in names]).values():
        created.result(60)
    # Created is what the quorum knows; the folders come a moment later.
    folders = {name: [cluster.partition_folder(name, number) for number in range(TOPICS[name].partitions)] for name in names}
    deadline = time.monotonic() + FOLDER_SECONDS
    while not all((folder / "partition.metadata").exists() for folder in itertools.chain(*folders.values())):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the broker did not make the folders of all partitions in {FOLDER_SECONDS} s")
        time.sleep(0.05)
    [node] = cluster.nodes
    cluster.kill(node.id)
    counts = {name: _write(folders[name], TOPICS[name], share) for name in names}
    cluster.restart(node.id)
    return counts


def _write(folders: list[Path], topic: Topic, share: int) -> int:
    batches = list(_inflating() if topic.data == INFLATING else _apart(corpus(topic.data, DISTINCT_BYTES).data))
    wanted = topic.records // share
    each = -(-wanted * len(batches) // (sum(map(_count, batches)) * len(folders)))
    supply = itertools.cycle(batches)
    return sum(write_segments(folder, itertools.islice(supply, each)) for folder in folders)


def _inflating() -> Iterator[bytes]:
    """Batches of a megabyte that are some two hundred times smaller in zstd: a service that says the same again and again."""
    line = b'{"level":"INFO","service":"checkout","message":"health check passed","status":200,"duration_ms":%d}'
    for number in range(4):
        yield encode_batch([line % (number + row % 3) for row in range(10_000)], codec="zstd", leader_epoch=0)


def _apart(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        yield data[at:end]
        at = end


def _count(batch: bytes) -> int:
    return int.from_bytes(batch[57:61], "big")


def write_segments(folder: Path, batches: Iterable[bytes], segment_bytes: int = SEGMENT_BYTES) -> int:
    """Write a partition's log from offset 0 on, as the broker lays it out; returns the number of records.

    A batch's CRC does not cover its offset, so that is all there is to change.
    """
    offset = 0
    with contextlib.ExitStack() as open_segment:
        segment, size = None, 0
        for batch in batches:
            if segment is None or size + len(batch) > segment_bytes:
                open_segment.close()
                path = folder / f"{offset:020d}.log"
                segment, size = open_segment.enter_context(path.open("wb", WRITE_BYTES)), 0
            segment.write(struct.pack(">q", offset))
            segment.write(memoryview(batch)[8:])
            size += len(batch)
            offset += _count(batch)
    return offset
