"""Too little of everything: memory, descriptors, brokers. An error or a wait, then it goes on; never more than was allowed.

What limits a process is set in a process of its own, which reads from a broker of this one and reports as JSON.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import subprocess
import sys
import textwrap
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from building import GZIP, LZ4, SNAPPY, ZSTD
from building import batch as raw_batch
from exact import SANITIZED, child_environment
from hostile.test_bombs import gzip_blocks, lz4_blocks, snappy_chunks, zstd_blocks, zstd_runs

from fastfetch import Consumer, TopicPartition
from fastfetch.testing import Broker, encode_batch

MIB = 1 << 20
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

COMMON = """
import errno, json, os, resource, socket, sys, time
import fastfetch
from fastfetch import Consumer, TopicPartition
from fastfetch.errors import *

servers = sys.argv[1]
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
def status(key): return next(int(l.split()[1]) << 10 for l in open("/proc/self/status") if l.startswith(key + ":"))
def only(more, what=resource.RLIMIT_AS):
    resource.setrlimit(what, (status("VmSize") + more, resource.getrlimit(what)[1]))
def unlimited(what=resource.RLIMIT_AS):
    resource.setrlimit(what, (resource.getrlimit(what)[1],) * 2)
def report(**more): print(json.dumps(more))
"""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("t", partitions=2)
        yield broker


def run(broker: Broker, script: str, **environment: str) -> dict[str, Any]:
    command = [sys.executable, "-c", COMMON + textwrap.dedent(script), broker.bootstrap_servers]
    environment = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"} | environment
    done = subprocess.run(
        command, env=child_environment(**environment), capture_output=True, text=True, check=False, timeout=120
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


# --- R01: a bomb --------------------------------------------------------------------------------------------------------------

BOMBS = {
    "zstd": (ZSTD, zstd_runs),
    "zstd of compressed blocks": (ZSTD, zstd_blocks),
    "gzip": (GZIP, gzip_blocks),
    "lz4": (LZ4, lz4_blocks),
    "snappy": (SNAPPY, snappy_chunks),
}


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is not ours")
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_among_good_batches_in_a_process_with_300_mb(name: str, broker: Broker) -> None:
    """1 GiB of it: an error in its place, the same one while nobody moves on, never fetched again; the other partition flows."""
    codec, payload = BOMBS[name]
    bomb = raw_batch(b"", 1, codec=codec, packed=payload(1024), last=9)
    good = encode_batch([b"good"] * 10)
    for data in (good, bomb, good):
        broker.append("t", 0, data)
    for _ in range(20):
        broker.append("t", 1, good)
    got = run(
        broker,
        """
        with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", fetch_max_bytes=1 << 20) as consumer:
            consumer.assign([P1])
            while consumer.metrics()["records"] < 100: consumer.poll_blocks(200, max_records=100)
            only(300 << 20)
            before = peak()
            consumer.assign([P0, P1])
            seen, errors = {0: [], 1: []}, []
            until = time.monotonic() + 60
            while (len(seen[0]) < 20 or len(seen[1]) < 100) and time.monotonic() < until:
                try:
                    for block in consumer.poll_blocks(200, max_records=10):
                        seen[block.partition] += block.offsets.tolist()
                except BatchTooLargeError as error:
                    errors.append([error.partition, error.base_offset, error.next_offset, error.limit])
                    if len(errors) == 1:
                        fetched = consumer.metrics()["requests_by_api"]["Fetch"]
                    elif len(errors) == 3:
                        again = consumer.metrics()["requests_by_api"]["Fetch"] - fetched
                        consumer.skip(P0)
            report(grown=peak() - before, seen=seen, errors=errors, again=again)
        """,
    )
    assert got["seen"]["0"] == [*range(10), *range(20, 30)]
    assert got["seen"]["1"] == list(range(100, 200))
    assert got["errors"] == [[0, 10, 20, 64 * MIB]] * 3
    assert got["again"] <= 3, "only the other partition's"
    assert got["grown"] <= 64 * MIB + 32 * MIB


# --- fault 45: no memory ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is not ours")
@pytest.mark.parametrize("codec", ["none", "lz4", "gzip", "zstd"])
def test_no_memory_for_an_answer_or_its_records(codec: str, broker: Broker) -> None:
    """The address space is nearly used up while large answers come: MemoryError at poll, nothing lost, and on it goes."""
    broker.generate("t", 0, encode_batch([bytes(1000)] * 8_000, codec=codec), 40)
    got = run(
        broker,
        """
        size = dict(fetch_max_bytes=64 << 20, max_partition_fetch_bytes=24 << 20, max_buffered_bytes=512 << 20)
        with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", **size) as consumer:
            consumer.assign([P0])
            seen, errors, spans = 0, 0, []
            until = time.monotonic() + 60
            while seen < 320_000 and time.monotonic() < until:
                if errors == 0:
                    only(4 << 20)
                try:
                    blocks = consumer.poll_blocks(500)
                except MemoryError:
                    errors += 1
                    position = consumer.position(P0)
                    if errors == 2:
                        unlimited()
                    assert position == seen, (position, seen)
                    continue
                for block in blocks:
                    spans.append((int(block.offsets[0]), block.next_offset))
                    seen = block.next_offset
                    if errors == 0 and seen > 200_000:
                        errors = -1  # there was always room
                blocks = block = None
            unlimited()
            gapless = all(a[1] == b[0] for a, b in zip(spans, spans[1:]))
            report(seen=seen, errors=errors, gapless=gapless, first=spans[0][0])
        """,
    )
    assert got == {"seen": 320_000, "errors": got["errors"], "gapless": True, "first": 0}
    assert got["errors"] >= 2, "the limit was felt"


# --- R02, fault 49: prefetching -----------------------------------------------------------------------------------------------


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is not ours")
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_hundred_endless_partitions_stay_within_the_budget(codec: str, broker: Broker) -> None:
    """1 MB batches, a program that takes a record now and then: the budget holds for what is there and for what was asked."""
    broker.create_topic("many", partitions=100)
    for partition in range(100):
        broker.generate("many", partition, encode_batch([bytes(1000)] * 1000, codec=codec), 1000)
    got = run(
        broker,
        """
        budget = 32 << 20
        with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", max_buffered_bytes=budget) as consumer:
            consumer.assign([TopicPartition("many", p) for p in range(100)])
            before, worst, taken, full = status("VmRSS"), 0, 0, 0
            for _ in range(60):
                taken += sum(map(len, consumer.poll(50, max_records=1).values()))
                metrics = consumer.metrics()
                worst = max(worst, metrics["budget_bytes"])
                full += metrics["buffered_bytes"] > budget // 4
                time.sleep(0.01)
            grown = status("VmRSS") - before
            drained = 0
            while drained < 100_000:
                blocks = consumer.poll_blocks(1000)
                assert blocks
                drained += sum(map(len, blocks))
            report(worst=worst, taken=taken, full=full, grown=grown, drained=drained)
        """,
    )
    assert got["worst"] <= 32 * MIB + 1_200_000, "and at most one batch more"
    assert got["taken"] > 30
    assert got["full"] > 30, "it did read ahead"
    assert got["grown"] <= 32 * MIB * 1.5
    assert got["drained"] >= 100_000, "fetching goes on once there is room"


# --- R03: one small value -----------------------------------------------------------------------------------------------------


def test_one_small_value_or_a_detached_block_keeps_no_response_alive(broker: Broker) -> None:
    """A view, or the block itself, does keep it: `detach` is the way out, as the guide says."""
    broker.append("t", 0, encode_batch([b"0123456789", *[bytes(1 << 20)] * 20]))
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", max_partition_fetch_bytes=32 << 20
    ) as consumer:  # fmt: skip
        consumer.assign([P0])
        tracemalloc.start()
        try:
            [block] = consumer.poll_blocks(10_000)
            assert len(block) == 21
            size = 20 << 20
            assert tracemalloc.get_traced_memory()[0] > size, "the response is there"
            value, view, small = block[:1].values()[0], block[:1].data, block[:1].detach()
            del block
            consumer._client._buffers.trim()
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] > size, "the view pins it"
            del view
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < MIB
            assert (value, small.values()) == (b"0123456789", [b"0123456789"])
        finally:
            tracemalloc.stop()


# --- memory that goes back ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is not ours")
@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("how", ["unassigned", "paused"])
def test_memory_goes_back_when_partitions_go_or_pause_for_long(how: str, codec: str, broker: Broker) -> None:
    broker.generate("t", 0, encode_batch([os.urandom(50) + bytes(950) for _ in range(1000)], codec=codec), 1000)
    got = run(
        broker,
        """
        import fastfetch.engine.idle
        fastfetch.engine.idle.IDLE_MS = 1_000
        with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([P0])
            while not consumer.poll_blocks(1000, max_records=10): pass
            deadline = time.monotonic() + 30
            before = status("VmRSS")
            while consumer.metrics()["buffered_bytes"] < 16 << 20 and time.monotonic() < deadline: time.sleep(0.02)
            full = status("VmRSS")
            position = consumer.position(P0)
            if HOW == "paused":
                consumer.pause(P0)
            else:
                consumer.assign([P1])
            while status("VmRSS") > full - (16 << 20) and time.monotonic() < deadline: time.sleep(0.05)
            after, released = status("VmRSS"), consumer.metrics()["released_bytes"]
            if HOW == "paused":
                consumer.resume(P0)
            else:
                consumer.assign([P0])
                consumer.seek(P0, position)
            [block] = consumer.poll_blocks(10_000, max_records=10)
            report(full=full, after=after, released=released, goes_on=int(block.offsets[0]) == position)
        """.replace("HOW", repr(how)),
    )
    assert got["full"] - got["after"] >= 16 * MIB
    assert (got["released"] > 0) == (how == "paused")
    assert got["goes_on"]


# --- fault 46: descriptors ----------------------------------------------------------------------------------------------------


def test_no_descriptor_for_a_socket_is_a_failed_connection_and_passes(broker: Broker) -> None:
    broker.append("t", 0, encode_batch([b"value"] * 10))
    got = run(
        broker,
        """
        with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", request_timeout_ms=2_000) as consumer:
            consumer.assign([P0])
            while consumer.metrics()["records"] < 10: consumer.poll(200)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            for connection in list(consumer._client._connections.values()):
                connection.sock.shutdown(socket.SHUT_RDWR)
            late = []
            for _ in range(5):
                begun = time.monotonic()
                assert consumer.poll(200) == {}
                late.append(time.monotonic() - begun)
            try: consumer.end_offsets(P0, timeout_ms=500)
            except ConnectionFailedError as error: said = str(error)
            unlimited(resource.RLIMIT_NOFILE)
            consumer.seek_to_beginning(P0)
            again = len(consumer.poll(10_000).get(P0, ()))
            report(late=max(late), said=said, again=again)
        """,
    )
    assert "too many open files" in got["said"].lower()
    assert got["again"] == 10
    assert got["late"] < 0.2 + 0.25


def test_descriptors_above_those_that_select_can_watch(broker: Broker) -> None:
    broker.append("t", 0, encode_batch([b"value"] * 10))
    got = run(
        broker,
        """
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
        held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
        with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([P0])
            report(seen=len(consumer.poll(10_000).get(P0, ())), lowest=min(
                connection.sock.fileno() for connection in consumer._client._connections.values()))
        """,
    )
    assert got["seen"] == 10
    assert got["lowest"] > 1024


# --- fault 3: nobody there ----------------------------------------------------------------------------------------------------


def test_brokers_gone_cost_next_to_nothing_and_polls_are_on_time() -> None:
    """FASTFETCH_SOAK_SECONDS makes it longer."""
    seconds = max(5.0, float(os.environ.get("FASTFETCH_SOAK_SECONDS", "0")))
    with Broker(nodes=3) as broker:
        broker.create_topic("t", partitions=2)
        broker.append("t", 0, encode_batch([b"value"] * 10))
        consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
        consumer.assign([P0, P1])
        assert len(consumer.poll(10_000)[P0]) == 10
    with consumer:
        before = consumer.metrics()
        cpu, begun, late = time.process_time(), time.monotonic(), 0.0
        while time.monotonic() - begun < seconds:
            asked = time.monotonic()
            assert consumer.poll(200) == {}
            late = max(late, time.monotonic() - asked)
        spent, wall = time.process_time() - cpu, time.monotonic() - begun
        connects = consumer.metrics()["connects"] - before["connects"]
    assert late < 0.2 + 0.25
    assert spent < 0.05 * wall, "a busy loop"
    # Twice a second each of three brokers, which are known by two names each; back-off begins at 50 ms.
    assert connects <= 3 * (2.2 * wall + 12)


def test_an_address_that_swallows_packets_does_not_hide_the_next_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """A name with two addresses: at the first, connects hang; the second answers."""
    hole = socket.socket()
    hole.bind(("127.0.0.1", 0))
    hole.listen(0)
    fillers = []
    for _ in range(8):  # its backlog is full: the kernel drops what comes
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(hole.getsockname())
        fillers.append(filler)
    port = int(broker.bootstrap_servers.split(":")[1])
    real = socket.getaddrinfo

    def fake(host: str, *args: object, **kwargs: object) -> object:
        if host != "some-name":
            return real(host, *args, **kwargs)  # type: ignore[arg-type]
        if kwargs["flags"]:
            raise socket.gaierror("not a literal address")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", a) for a in (hole.getsockname(), ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", fake)
    try:
        with Consumer(bootstrap_servers=f"some-name:{port}", socket_connection_setup_timeout_ms=500) as consumer:
            assert consumer.topics(timeout_ms=10_000) == {"t"}
            assert consumer.metrics()["connections_lost"] >= 1, "the first one hung"
    finally:
        for each in (hole, *fillers):
            each.close()
