"""The wire: fetches what a client would fetch and drops the bytes. What is left is the broker, the loopback, one copy.

    python -m bench.wire BOOTSTRAP TOPIC RECORDS FETCH_BYTES      # prints one line of JSON, as a client does

A first pass, untimed, looks at the batch headers to learn at which offsets the answers end. The timed one knows them: requests
are pipelined, so that the broker has the next one before the last answer is read, and the bytes go into the same buffer again and
again. Partition 0 only, one connection.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import Self

from fastfetch.benchmark.clients import Clock, Turn

__all__ = ["Wire", "measure"]

FETCH, VERSION = 1, 11  # the last version without tagged fields
IN_FLIGHT = 3


class Wire:
    """One connection that speaks just enough to fetch partition 0 of a topic."""

    def __init__(self, bootstrap: str, topic: str, fetch_bytes: int) -> None:
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        self._sock = socket.create_connection((host, int(port)), 30)
        self._sock.settimeout(None)  # with a timeout, MSG_WAITALL would not wait
        self._topic = topic.encode()
        self._fetch_bytes = fetch_bytes
        # An answer is as long as asked for, but for its own header and a first batch larger than that.
        self._buffer = memoryview(bytearray(fetch_bytes + (4 << 20)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def learn(self, records: int) -> tuple[list[int], int, int]:
        """The offsets to ask for, one after the other, until `records` records are read; where that ends; the answers' bytes."""
        offsets: list[int] = []
        end = total = 0
        while end < records:
            offsets.append(end)
            self._ask(end)
            answer = self._receive()
            total += len(answer)
            end = _end(answer, end, len(self._topic))
            if end == offsets[-1]:
                raise RuntimeError(f"the topic ends at {end}, before {records}")
        return offsets, end, total

    def read(self, offsets: Iterable[int]) -> int:
        """Fetch at each of the offsets and drop the answers; returns their bytes."""
        in_flight = total = 0
        for offset in offsets:
            if in_flight == IN_FLIGHT:
                total += len(self._receive())
                in_flight -= 1
            self._ask(offset)
            in_flight += 1
        return total + sum(len(self._receive()) for _ in range(in_flight))

    def _ask(self, offset: int) -> None:
        size = self._fetch_bytes
        body = struct.pack(
            f">hhih5siiiibiiih{len(self._topic)}siiiqqiih",
            FETCH, VERSION, 0, 5, b"bench",
            -1, 500, 1, size, 0, 0, -1,
            1, len(self._topic), self._topic, 1, 0, -1, offset, -1, size, 0, 0,
        )  # fmt: skip
        self._sock.sendall(struct.pack(">i", len(body)) + body)

    def _receive(self) -> memoryview:
        self._fill(self._buffer[:4])
        answer = self._buffer[: int.from_bytes(self._buffer[:4], "big")]
        self._fill(answer)
        return answer

    def _fill(self, into: memoryview) -> None:
        if self._sock.recv_into(into, len(into), socket.MSG_WAITALL) != len(into):
            raise RuntimeError("the broker closed the connection")


def _end(answer: memoryview, offset: int, topic_length: int) -> int:
    """Where the last whole batch of an answer ends."""
    at = 4 + 4 + 2 + 4 + 4 + 2 + topic_length + 4 + 4
    (code,) = struct.unpack_from(">h", answer, at)
    if code:
        raise RuntimeError(f"the broker answers with error {code}")
    at += 2 + 8 + 8 + 8
    (aborted,) = struct.unpack_from(">i", answer, at)
    at += 4 + 16 * max(0, aborted) + 4
    (size,) = struct.unpack_from(">i", answer, at)
    at += 4
    until = at + size
    while at + 61 <= until:
        base, length = struct.unpack_from(">qi", answer, at)
        if at + 12 + length > until:
            break
        offset = base + int(struct.unpack_from(">i", answer, at + 23)[0]) + 1
        at += 12 + length
    return offset


def measure(bootstrap: str, topic: str, records: int, fetch_bytes: int) -> Turn:
    """One reading. Raises RuntimeError if the topic is too short, or the broker's answers are not the same twice."""
    with Wire(bootstrap, topic, fetch_bytes) as wire:
        offsets, end, expected = wire.learn(records)
        clock = Clock()
        total = wire.read(offsets)
        reading = clock.stop(end)
    if total != expected:
        raise RuntimeError(f"the same fetches brought {expected} bytes first and {total} bytes then")
    return reading


if __name__ == "__main__":
    print(json.dumps(asdict(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))))
