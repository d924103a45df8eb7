"""What a consumer costs that has nothing to read: 100 partitions of one broker, no records, in a process of its own.

    python -m bench.idle BOOTSTRAP TOPIC PARTITIONS      # prints one line of JSON

Requests are counted twice: by the consumer's own metrics, and by the kernel, as segments with data that left on its connections.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

from bench.measure import Figure
from bench.topics import TOPICS, Stock
from fastfetch.benchmark.clients import Clock

__all__ = ["figures"]

SETTLE_MS = 2_000
SECONDS = 25
POLL_MS = 1_000
TOPIC = "empty"


def _segments_sent(port: int) -> int:
    """Segments with data that this process has sent to a port; a request is one, being smaller than a segment of loopback."""
    total = 0
    for entry in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(entry.name))) as sock:
            if sock.type == socket.SOCK_STREAM and sock.family == socket.AF_INET and sock.getpeername()[1] == port:
                # struct tcp_info: tcpi_data_segs_out
                total += struct.unpack_from("=I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192), 156)[0]
    return total


def _child(bootstrap: str, topic: str, partitions: int) -> None:
    import fastfetch

    port = int(bootstrap.rpartition(":")[2])
    with fastfetch.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([fastfetch.TopicPartition(topic, partition) for partition in range(partitions)])
        consumer.poll_blocks(timeout_ms=SETTLE_MS)
        before, segments, clock = consumer.metrics(), _segments_sent(port), Clock()
        for _ in range(SECONDS * 1000 // POLL_MS):
            consumer.poll_blocks(timeout_ms=POLL_MS)
        used = clock.stop(0)
        segments = _segments_sent(port) - segments
        requests = consumer.metrics()["requests"] - before["requests"]
    print(
        json.dumps({
            "cpu_percent": 100 * used.cpu / used.seconds,
            "requests_a_second": requests / used.seconds,
            "segments_a_second": segments / used.seconds,
        })
    )  # fmt: skip


def figures(stock: Stock) -> list[Figure]:
    """Processor time and requests a second."""
    partitions = TOPICS[TOPIC].partitions
    done = subprocess.run(
        [sys.executable, "-m", "bench.idle", stock.bootstrap, TOPIC, str(partitions)],
        capture_output=True, text=True, check=False, timeout=SECONDS + 60,
    )  # fmt: skip
    names = (f"{partitions} partitions: processor time", f"{partitions} partitions: requests to the broker")
    if done.returncode:
        why = f"the process ended with {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1]}"
        return [
            Figure("idle", name, (float("inf"),), relation="<=", bound=bound, detail=why)
            for name, bound in zip(names, (1, 3), strict=True)
        ]
    got = json.loads(done.stdout)
    requests = max(got["requests_a_second"], got["segments_a_second"])
    detail = f"by the consumer's count {got['requests_a_second']:.2f}, by the kernel's {got['segments_a_second']:.2f}"
    return [
        Figure("idle", names[0], (got["cpu_percent"],), "%", "<=", 1.0, f"of one core, over {SECONDS} s"),
        Figure("idle", names[1], (requests,), "a second", "<=", 3.0, detail),
    ]


if __name__ == "__main__":
    _child(sys.argv[1], sys.argv[2], int(sys.argv[3]))
