"""Peak memory of a consumer that has stalled in front of a large backlog, each in a process of its own.

    python -m bench.memory BOOTSTRAP TOPIC PARTITIONS POLL_EVERY_MS      # prints one line of JSON

The process imports fastfetch, notes its resident memory, polls until records came and then only every so often, or (0) never
again, while the read-ahead fills. What counts is the peak of resident memory until the end less the memory after the import:
everything that the consumer ever had, the answers on their way and those being inflated included.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

from bench.measure import Figure
from bench.topics import TOPICS, Stock
from fastfetch.benchmark.clients import memory_bytes

__all__ = ["TOPICS_USED", "figures"]

BUFFERED = 64 << 20
ALLOWED = BUFFERED * 3 // 2
STALL_SECONDS = 5
# topic, how it is read: a poll every so many ms, 0 for no other than the first
CASES = {
    "uncompressed, one partition": ("none", 0),
    "uncompressed, 500 partitions": ("none-500", 0),
    "lz4, one partition": ("lz4", 0),
    "zstd, one partition": ("zstd", 0),
    "zstd, 1 : 200, one partition": ("inflating", 0),
    "zstd, 1 : 200, 50 partitions": ("inflating-50", 0),
    "uncompressed, one partition, polled slowly": ("none", 200),
    "zstd, 1 : 200, 50 partitions, polled slowly": ("inflating-50", 200),
}
TOPICS_USED = tuple(topic for topic, _ in CASES.values())


def _child(bootstrap: str, topic: str, partitions: int, every_ms: int) -> None:
    import fastfetch

    before = memory_bytes("VmRSS")
    records = 0
    with fastfetch.Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", max_buffered_bytes=BUFFERED
    ) as consumer:  # fmt: skip
        consumer.assign([fastfetch.TopicPartition(topic, partition) for partition in range(partitions)])
        while not records:
            records = sum(map(len, consumer.poll_blocks(timeout_ms=1000)))
        until = time.monotonic() + STALL_SECONDS
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, every_ms / 1000) if every_ms else left)
            if every_ms:
                records += sum(map(len, consumer.poll_blocks(timeout_ms=0)))
        buffered = consumer.metrics()["buffered_bytes"]
    print(
        json.dumps({
            "imported": before,
            "grown": memory_bytes("VmHWM") - before,
            "buffered": buffered,
            "records": records,
        })
    )  # fmt: skip


def figures(stock: Stock) -> list[Figure]:
    """One figure a case, in MiB."""
    out = []
    for case, (topic, every_ms) in CASES.items():
        arguments = [stock.bootstrap, topic, str(TOPICS[topic].partitions), str(every_ms)]
        done = subprocess.run(
            [sys.executable, "-m", "bench.memory", *arguments], capture_output=True, text=True, check=False, timeout=120
        )
        name = f"stalled: {case}"
        if done.returncode:
            why = f"the process ended with {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1]}"
            out.append(Figure("memory", name, (float("inf"),), "MiB", "<=", ALLOWED >> 20, why))
            continue
        got = json.loads(done.stdout)
        detail = (
            f"{got['imported'] / (1 << 20):.0f} MiB after the import; {got['buffered'] / (1 << 20):.0f} MiB buffered at the end"
        )
        # The limit is for one that stands still. Arenas that were handed out and dropped are kept warm beside the budget.
        limit = None if every_ms and topic != "none" else ALLOWED >> 20
        relation = "" if limit is None else "<="
        out.append(Figure("memory", name, (got["grown"] / (1 << 20),), "MiB", relation, limit, detail))
    return out


if __name__ == "__main__":
    _child(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
