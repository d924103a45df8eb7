"""Hours in seconds: partitions come, go, pause and are sought while connections are cut, reset and refused. Afterwards the
process has as many descriptors and threads as after the warm-up, and about as much memory; and every record came in order.

FASTFETCH_SOAK_SECONDS makes it longer.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time

import pytest
from exact import SANITIZED, child_environment

from fastfetch.testing import Broker, encode_batch
from fastfetch.testing.faults import cut, delay, reset, slices, top_error

MIB = 1 << 20
SECONDS = float(os.environ.get("FASTFETCH_SOAK_SECONDS", "8"))

READER = """
import gc, json, os, random, sys, threading, time
from fastfetch import Consumer, TopicPartition
from fastfetch.errors import FastFetchError

servers, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
everything = [TopicPartition("t", p) for p in range(8)]

def size():
    gc.collect()
    rss = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmRSS:"))
    return {"descriptors": len(os.listdir("/proc/self/fd")), "threads": threading.active_count(), "rss": rss}

config = dict(bootstrap_servers=servers, auto_offset_reset="earliest", max_buffered_bytes=4 << 20, request_timeout_ms=2_000)
config |= dict(max_partition_fetch_bytes=1 << 16, reconnect_backoff_max_ms=100, connections_max_idle_ms=700)
consumer = Consumer(config)
expected, records, gaps, errors, cycles = {}, 0, 0, 0, 0
begun, warm, peaks = time.monotonic(), None, []
while (now := time.monotonic() - begun) < seconds:
    cycles += 1
    what = rng.randrange(12)
    assigned = sorted(consumer.assignment())
    if what == 0 or not assigned:
        chosen = rng.sample(everything, rng.randrange(1, 9))
        consumer.assign(chosen)
        expected = {tp: at for tp, at in expected.items() if tp in chosen and tp in assigned}
    elif what == 1:
        tp = rng.choice(assigned)
        expected[tp] = rng.randrange(90_000)
        consumer.seek(tp, expected[tp])
    elif what == 2:
        consumer.pause(*rng.sample(assigned, rng.randrange(len(assigned) + 1)))
    elif what == 3:
        consumer.resume(*consumer.paused())
    elif what == 4:
        tp = rng.choice(assigned)
        consumer.seek_to_beginning(tp)
        expected[tp] = 0
    elif what == 5:
        try: consumer.end_offsets(assigned, timeout_ms=300)
        except FastFetchError: errors += 1
    elif what == 6 and rng.random() < 0.05:
        consumer.close()
        consumer, expected = Consumer(config), {}
        continue
    try:
        for block in consumer.poll_blocks(50, max_records=rng.choice([None, 100])):
            tp = TopicPartition(block.topic, block.partition)
            offsets = block.offsets
            records += len(block)
            gaps += expected.get(tp, int(offsets[0])) != offsets[0] or int(offsets[-1] - offsets[0]) != len(offsets) - 1
            expected[tp] = block.next_offset
        block = offsets = None
    except FastFetchError:
        errors += 1
    assert consumer._client.crash is None
    metrics = consumer.metrics()
    assert metrics["budget_bytes"] <= (4 << 20) + (1 << 20), metrics
    if warm is None and now > seconds / 3:
        warm = size()
    elif warm is not None and cycles % 50 == 0:
        peaks.append(size())
consumer.unsubscribe()
time.sleep(1.5)  # idle connections are closed
last = size()
consumer.close()
consumer = None
print(json.dumps({"warm": warm, "peaks": peaks, "last": last, "closed": size(), "records": records, "gaps": gaps,
                  "errors": errors, "cycles": cycles}))
"""


def faults(broker: Broker, rng: random.Random) -> None:
    """Something goes wrong."""
    node = rng.choice(broker.nodes)
    match rng.randrange(8):
        case 0 | 1:
            broker.on(rng.choice(["Fetch", "ListOffsets", "Metadata"]), cut(rng.randrange(200)), node=node)
        case 2:
            broker.on(rng.choice(["Fetch", "ApiVersions"]), reset(rng.randrange(60)), node=node)
        case 3:
            broker.disconnect(node)
        case 4:
            broker.on("Fetch", slices(1000, 0.001), node=node)
        case 5:
            broker.on("Fetch", top_error(rng.choice([70, 71, 56])), node=node)
        case 6:
            broker.on(rng.choice(["Metadata", "Fetch"]), delay(0.3), node=node)
        case 7:
            broker.kill_node(node, elect=True)
            time.sleep(0.1)
            broker.restart_node(node)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is not ours")
@pytest.mark.timeout(SECONDS * 3 + 120)
def test_memory_threads_and_descriptors_stay_as_they_are() -> None:
    seed = int(os.environ.get("FASTFETCH_SOAK_SEED", "1"))
    rng = random.Random(seed)
    with Broker(nodes=3) as broker:
        broker.create_topic("t", partitions=8)
        for partition in range(8):
            batch = encode_batch([rng.randbytes(50) + bytes(150) for _ in range(100)], codec=("none", "lz4")[partition % 2])
            broker.generate("t", partition, batch, 10_000)
        command = [sys.executable, "-c", READER, broker.bootstrap_servers, str(SECONDS), str(seed)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=child_environment()
        ) as reader:  # fmt: skip
            count = 0
            while reader.poll() is None:
                faults(broker, rng)
                count += 1
                time.sleep(0.15)
            assert reader.stdout is not None
            assert reader.stderr is not None
            out, err = reader.stdout.read(), reader.stderr.read()
    assert reader.returncode == 0, err[-4000:]
    got = json.loads(out.splitlines()[-1])
    assert got["gaps"] == 0
    assert got["records"] > 1_000
    assert count > 10
    # Beside standard input and output: the selector, its wake-up, and three brokers with up to four connections each.
    assert max(each["threads"] for each in [got["warm"], *got["peaks"]]) == 2
    assert max(each["descriptors"] for each in [got["warm"], *got["peaks"]]) <= 7 + 13
    assert got["last"]["descriptors"] <= 8, "nothing to read: all connections have been closed as idle"
    assert max(each["rss"] for each in got["peaks"] + [got["last"]]) - got["warm"]["rss"] <= 12 * MIB
    assert got["closed"]["threads"] == 1
    assert got["closed"]["descriptors"] <= 5
