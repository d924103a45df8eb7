"""Runs that nobody has measured, with numbers that look like it. The same seed gives the same run."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from fastfetch.benchmark.results import Case, Failure, Latency, Reading, Run

MACHINE = {"processor": "Fictional 9000 at 3 GHz", "cores": 2, "memory_bytes": 8 << 30, "system": "Linux 6.1"}
VERSIONS = {"fastfetch": "0.1.0", "confluent-kafka": "2.16.1", "python": "3.11.2"}
SETTINGS = {"rounds": 5, "clients": {"fastfetch": {"max_partition_fetch_bytes": 4 << 20}}}
RATES = {
    "fastfetch": 20e6,
    "confluent-kafka": 3.2e6,
    "aiokafka": 0.7e6,
    "kafka-python + fastfetch": 2.4e6,
    "kafka-python": 0.064e6,
}
COSTS = {"none": 1.0, "lz4": 1.6, "zstd": 3.0, "gzip": 6.0}

Shape = tuple[str, int, float, float]  # codec, partitions, records a batch, bytes a record


def case(codec: str = "lz4", partitions: int = 1, batch: float = 80, record: float = 212, **more: Any) -> Case:
    """Named after its shape, unless another id or topic is given."""
    name = f"bench-{codec}-{partitions}p-{batch:g}-{record:g}"
    mean = record + 61 / batch  # of the batch's header
    sizes = {"wire_bytes": int(1e6 * mean * (1 if codec == "none" else 0.3)), "inflated_bytes": int(1e6 * mean)}
    return Case(**{"id": name, "topic": name, "codec": codec, "partitions": partitions, "records": 1_000_000,
                   "batch_records": batch, "record_bytes": mean, **sizes, **more})  # fmt: skip


def consume_run(shapes: Iterable[Shape | Case], seed: int = 1, *, rounds: int = 5, latency: bool = False, **more: Any) -> Run:
    """All of RATES on topics of these shapes; `latency` is measured on the first of them. `factor` makes all of it faster."""
    random = Random(seed)
    cases = [shape if isinstance(shape, Case) else case(*shape) for shape in shapes]
    factor = more.pop("factor", 1.0)
    readings = []
    for each in cases:
        for turn in range(1, rounds + 1):
            for client, rate in RATES.items():
                rate *= factor * random.uniform(0.9, 1.1) / COSTS.get(each.codec, 2.0) / (1 + each.record_bytes / 400)
                records = max(1, int(each.records * min(1, rate / 2e7)))
                seconds = records / rate
                share = records / each.records
                readings.append(
                    Reading(each.id, client, turn, records, seconds, seconds * random.uniform(1, 1.5),
                            int(each.wire_bytes * share), int(each.inflated_bytes * share), int(random.uniform(60, 300) * 1e6))
                )  # fmt: skip
    for turn in range(1, rounds + 1 if latency else 1):
        for client in list(RATES)[:3]:
            ms = random.uniform(1, 4)
            found = Latency(ms, ms * 1.8, ms * 5, ms * 11, ms * 30)
            readings.append(Reading(cases[0].id, client, turn, 100_000, 10.0, 2.0, 1000, 1000, None, found))
    told = {
        "machine": MACHINE,
        "versions": VERSIONS,
        "settings": SETTINGS,
        "failed": [Failure(None, "java", "no JDK is installed")],
    }
    return Run("consume", "2026-01-31T12:00:00+00:00", cases=cases, all_readings=readings, **(told | more))


def decode_run(codecs: Iterable[str] = COSTS, threads: Iterable[int] = (1, 2), seed: int = 1) -> Run:
    """fastfetch with so many threads; beside the first number the floor and two peers."""
    random = Random(seed)
    cases, readings = [], []
    for codec in codecs:
        for at, number in enumerate(threads):
            each = case(codec, id=f"orders {codec} x{number}", topic="orders", threads=number)
            cases.append(each)
            for turn in range(1, 8):
                for client, ns in {"fastfetch": 31, "floor": 35, "aiokafka": 260, "kafka-python": 3800}.items():
                    if at and client != "fastfetch":
                        continue
                    seconds = ns * COSTS[codec] / number * random.uniform(0.9, 1.1) * 1e-3
                    readings.append(
                        Reading(
                            each.id, client, turn, each.records, seconds, seconds * number, each.wire_bytes, each.inflated_bytes
                        )
                    )
    return Run("decode", "2026-01-31T12:00:00+00:00", dict(MACHINE), dict(VERSIONS), {"rounds": 7}, cases, readings, [])
