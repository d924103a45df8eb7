"""aiokafka's consumer over the scripted broker, with our decoder inside and without: what programs see of it, and when."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CorruptRecordException, RecordTooLargeError

import fastfetch.adapters.aiokafka as adapter
from fastfetch.testing import Broker, control_batch, encode_batch

SEAMS = [None, "reader", "decoder"]
LARGE = 2000  # records of a batch that is worth a thread, compressed as it is
PATIENCE = 20


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("t", 3)
        yield broker


def fill(broker: Broker) -> int:
    """Some of everything on three partitions. Returns the number of records."""
    for partition in range(3):
        for n, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
            rows = [(b"%d" % i, b"value %d" % i, None, [("h", b"%d" % partition)]) for i in range(20)]
            broker.append(
                "t", partition, encode_batch(rows, codec=codec, deltas=[2 * i for i in range(20)], last_offset_delta=40 + n)
            )
        broker.append("t", partition, control_batch("commit", producer_id=1))
    return 3 * 5 * 20


def large(broker: Broker, partition: int = 0, batches: int = 1) -> int:
    for n in range(batches):
        broker.append("t", partition, encode_batch([(b"%d" % n, b"%d" % i * 20) for i in range(LARGE)], codec="zstd"))
    return batches * LARGE


@contextlib.asynccontextmanager
async def consuming(
    broker: Broker, *, seam: str | None = "reader", assign: Any = (0, 1, 2), **settings: Any
) -> AsyncIterator[Any]:
    with contextlib.nullcontext() if seam is None else adapter.install(seam):
        consumer = AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers, **{"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, **settings}
        )
        await consumer.start()
        try:
            if assign:
                consumer.assign([TopicPartition("t", partition) for partition in assign])
            yield consumer
        finally:
            await consumer.stop()


async def read(consumer: Any, n: int, **how: Any) -> list[Any]:
    out: list[Any] = []
    async with asyncio.timeout(PATIENCE):
        while len(out) < n:
            for records in (await consumer.getmany(timeout_ms=200, **how)).values():
                out += records
    return out


def by_offset(records: list[Any]) -> list[Any]:
    return sorted(records, key=lambda record: (record.partition, record.offset))


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    """In a loop that lets no exception pass unseen."""
    unseen: list[Any] = []

    async def watched() -> Any:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unseen.append(context))
        return await main()

    result = asyncio.run(watched())
    assert unseen == []
    return result


# --- the same, with and without ---------------------------------------------------------------------------------------


async def getmany(consumer: Any, n: int) -> list[Any]:
    return await read(consumer, n)


async def slices(consumer: Any, n: int) -> list[Any]:
    return await read(consumer, n, max_records=7)


async def getone(consumer: Any, n: int) -> list[Any]:
    async with asyncio.timeout(PATIENCE):
        return [await consumer.getone() for _ in range(n)]


async def iteration(consumer: Any, n: int) -> list[Any]:
    out: list[Any] = []
    async with asyncio.timeout(PATIENCE):
        async for record in consumer:
            out.append(record)
            if len(out) == n:
                break
    return out


async def mixed(consumer: Any, n: int) -> list[Any]:
    out: list[Any] = []
    async with asyncio.timeout(PATIENCE):
        while len(out) < n:
            out.append(await consumer.getone())
            for records in (await consumer.getmany(max_records=3)).values():
                out += records
    return out


@pytest.mark.parametrize("settings", [{}, {"max_partition_fetch_bytes": 700}, {"isolation_level": "read_committed"}], ids=str)
@pytest.mark.parametrize("way", [getmany, slices, getone, iteration, mixed])
def test_the_same_records_and_positions(broker: Broker, way: Any, settings: dict[str, Any]) -> None:
    n = fill(broker)

    async def results(seam: str | None) -> list[Any]:
        async with consuming(broker, seam=seam, **settings) as consumer:
            records = by_offset(await way(consumer, n))
            assert len(records) == n
            positions: list[int] = []
            async with asyncio.timeout(PATIENCE):
                while positions != [broker.end_offset("t", partition) for partition in range(3)]:  # behind the markers
                    assert await consumer.getmany(timeout_ms=50) == {}
                    positions = [await consumer.position(TopicPartition("t", partition)) for partition in range(3)]
            return records

    expected = run(lambda: results(None))
    for seam in SEAMS[1:]:
        assert run(lambda seam=seam: results(seam)) == expected


@pytest.mark.parametrize("seam", SEAMS)
def test_what_a_group_commits(broker: Broker, seam: str | None) -> None:
    n = fill(broker)

    async def main() -> None:
        async with consuming(broker, seam=seam, assign=None, group_id="g", enable_auto_commit=False) as consumer:
            consumer.subscribe(["t"])
            await read(consumer, n, max_records=9)
            # What ends the log is a marker: only a further call passes it.
            await consumer.getmany(timeout_ms=100)
            await consumer.commit()

    run(main)
    ends = {partition: broker.end_offset("t", partition) for partition in range(3)}
    assert {tp.partition: found.offset for tp, found in broker.committed("g").items()} == ends


@pytest.mark.parametrize("seam", SEAMS)
def test_pause_drops_and_seek_moves(broker: Broker, seam: str | None) -> None:
    fill(broker)
    tp = TopicPartition("t", 0)

    async def main() -> None:
        async with consuming(broker, seam=seam, assign=(0,)) as consumer:
            first = await read(consumer, 3, max_records=3)
            consumer.pause(tp)
            assert await consumer.getmany(timeout_ms=150) == {}
            consumer.resume(tp)
            assert [r.offset for r in await read(consumer, 2, max_records=2)] == [6, 8]
            consumer.seek(tp, 1)
            again = await read(consumer, 2, max_records=2)
            assert again == first[1:]
            assert await consumer.position(tp) == 5

    run(main)


@pytest.mark.parametrize("seam", SEAMS)
def test_a_record_larger_than_the_fetch(broker: Broker, seam: str | None) -> None:
    """Brokers since 0.10.1 give the first batch whole; this one is made to cut it off."""
    whole = encode_batch([(b"k", b"v" * 5000)])
    broker.append_raw("t", 0, whole[:200])

    async def main() -> None:
        async with consuming(broker, seam=seam, assign=(0,)) as consumer:
            with pytest.raises(RecordTooLargeError):
                await read(consumer, 1)

    run(main)


def test_good_records_come_before_a_bad_batch_and_the_position_stays_there(broker: Broker) -> None:
    broker.append("t", 0, encode_batch([(b"k", b"v")] * 3))
    bad = bytearray(encode_batch([(b"k", b"v")] * 3))
    bad[-1] ^= 1
    broker.append_raw("t", 0, bytes(bad[:7]) + b"\3" + bytes(bad[8:]), offsets=3)
    broker.append("t", 0, encode_batch([(b"after", b"v")]))
    tp = TopicPartition("t", 0)

    async def main() -> None:
        async with consuming(broker, assign=(0,)) as consumer:
            assert [r.offset for r in await read(consumer, 3)] == [0, 1, 2]
            for _ in range(2):  # again and again: it is refetched
                with pytest.raises(CorruptRecordException):
                    await read(consumer, 1)
                assert await consumer.position(tp) == 3
            consumer.seek(tp, 6)
            assert [r.key for r in await read(consumer, 1)] == [b"after"]

    run(main)


# --- large responses --------------------------------------------------------------------------------------------------


class Held:
    """decode() that says when and in which thread it is called, and waits to be let go in any but the main one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[str] = []
        self.begun = threading.Event()
        self.go = threading.Event()
        self._decode = adapter.decode
        monkeypatch.setattr(adapter, "decode", self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.threads.append(threading.current_thread().name)
        if threading.current_thread() is not threading.main_thread():
            self.begun.set()
            assert self.go.wait(PATIENCE)
        return self._decode(*args, **kwargs)

    async def until_begun(self) -> None:
        await eventually(self.begun.is_set)

    async def until_ended(self) -> None:
        self.go.set()
        await eventually(lambda: not any(thread.name == "fastfetch-decode" for thread in threading.enumerate()))


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held = Held(monkeypatch)
    yield held
    held.go.set()


@pytest.fixture
def low(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread for little: encoding megabytes takes time."""
    monkeypatch.setattr(adapter, "_THREAD_BYTES", 64 << 10)


def test_small_responses_are_decoded_here_and_large_ones_in_a_thread(broker: Broker, held: Held, low: None) -> None:
    held.go.set()
    small = fill(broker)

    async def main() -> None:
        async with consuming(broker) as consumer:
            await read(consumer, small)
            assert set(held.threads) == {"MainThread"}
            n = large(broker)
            held.threads.clear()
            await read(consumer, n)
            assert "fastfetch-decode" in held.threads

    run(main)


def test_heartbeats_go_out_while_a_large_response_is_decoded(broker: Broker, held: Held, low: None) -> None:
    n = large(broker)

    async def main() -> None:
        async with consuming(broker, assign=None, group_id="g", heartbeat_interval_ms=30) as consumer:
            consumer.subscribe(["t"])
            reading = asyncio.create_task(read(consumer, n))
            await held.until_begun()
            before = len(broker.requests("Heartbeat"))
            await eventually(lambda: len(broker.requests("Heartbeat")) >= before + 3)
            assert not reading.done()
            held.go.set()
            assert len(await reading) == n

    run(main)


def test_a_large_response_is_the_same_in_order(broker: Broker, low: None) -> None:
    n = large(broker, 0, 4) + large(broker, 1, 2) + fill(broker)

    async def results(seam: str | None) -> list[Any]:
        async with consuming(broker, seam=seam) as consumer:
            return await read(consumer, n, max_records=333)

    def partition(records: list[Any], partition: int) -> list[Any]:
        return [record for record in records if record.partition == partition]

    ours, theirs = run(lambda: results("reader")), run(lambda: results(None))
    for p in range(3):
        assert partition(ours, p) == partition(theirs, p)


@pytest.mark.parametrize("version", [4, 5, 10, 11])  # of the response: where it has what
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_aborted_transactions_of_a_large_response(held: Held, low: None, version: int, isolation: str) -> None:
    held.go.set()
    rows = [(b"%d" % i, b"%d" % i * 20) for i in range(LARGE)]
    with Broker(versions={"Fetch": (4, version)}) as broker:
        broker.create_topic("t")
        for kind in ("abort", "commit"):
            broker.append("t", 0, encode_batch(rows, codec="gzip", producer_id=1, producer_epoch=0, transactional=True))
            broker.append("t", 0, control_batch(kind, producer_id=1))

        async def main() -> list[int]:
            async with consuming(broker, assign=(0,), isolation_level=isolation) as consumer:
                n = LARGE if isolation == "read_committed" else 2 * LARGE
                return [record.offset for record in await read(consumer, n)]

        offsets = run(main)
    assert set(held.threads) == {"fastfetch-decode"}  # nothing was left to be done again
    committed = range(LARGE + 1, 2 * LARGE + 1)
    assert offsets == ([] if isolation == "read_committed" else list(range(LARGE))) + list(committed)


def test_crcs_of_a_large_response_are_not_checked_if_it_says_so(broker: Broker, held: Held, low: None) -> None:
    held.go.set()
    batch = bytearray(encode_batch([(b"k", b"%d" % i * 20) for i in range(LARGE)], codec="gzip"))
    batch[17] ^= 1
    broker.append_raw("t", 0, bytes(batch), offsets=LARGE)

    async def main() -> None:
        async with consuming(broker, assign=(0,), check_crcs=False) as consumer:
            assert len(await read(consumer, LARGE)) == LARGE

    run(main)
    assert held.threads[0] == "fastfetch-decode"


def test_only_so_much_is_decoded_ahead(broker: Broker, held: Held, low: None, monkeypatch: pytest.MonkeyPatch) -> None:
    held.go.set()
    monkeypatch.setattr(adapter, "_AHEAD_BYTES", 100_000)
    n = large(broker, 0, 4) + large(broker, 1, 2)

    async def main() -> None:
        async with consuming(broker, assign=(0, 1)) as consumer:
            records = await read(consumer, n, max_records=500)
            assert [r.offset for r in records if r.partition == 0] == list(range(4 * LARGE))
            assert held.threads.count("fastfetch-decode") == 1
            assert held.threads.count("MainThread") > 1

    run(main)


def test_the_consumer_stops_while_a_decode_is_running(broker: Broker, held: Held, low: None) -> None:
    large(broker)

    async def main() -> None:
        async with consuming(broker) as consumer:
            await held.until_begun()
            async with asyncio.timeout(5):
                await consumer.stop()
        await held.until_ended()

    run(main)


def test_the_loop_ends_while_a_decode_is_running(broker: Broker, held: Held, low: None) -> None:
    large(broker)

    async def main() -> None:
        async with consuming(broker):
            await held.until_begun()

    run(main)
    held.go.set()
    for thread in threading.enumerate():
        if thread.name == "fastfetch-decode":
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_a_seek_while_a_decode_is_running(broker: Broker, held: Held, low: None) -> None:
    n = large(broker)
    tp = TopicPartition("t", 0)

    async def main() -> None:
        async with consuming(broker, assign=(0,)) as consumer:
            await held.until_begun()
            consumer.seek(tp, n - 3)
            held.go.set()
            assert [r.offset for r in await read(consumer, 3)] == [n - 3, n - 2, n - 1]
            assert await consumer.position(tp) == n

    run(main)


def test_partitions_change_while_a_decode_is_running(broker: Broker, held: Held, low: None) -> None:
    large(broker, 0)
    broker.append("t", 1, encode_batch([(b"other", b"v")]))

    async def main() -> None:
        async with consuming(broker, assign=(0,)) as consumer:
            await held.until_begun()
            consumer.assign([TopicPartition("t", 1)])
            assert [(r.partition, r.key) for r in await read(consumer, 1)] == [(1, b"other")]
            await held.until_ended()
            assert await consumer.getmany(timeout_ms=150) == {}

    run(main)


@pytest.mark.parametrize("then", [None, "decoder"])
def test_uninstalled_while_a_decode_is_running(broker: Broker, held: Held, low: None, then: str | None) -> None:
    n = large(broker)

    async def main() -> None:
        async with consuming(broker, assign=(0,)) as consumer:
            await held.until_begun()
            adapter.uninstall()
            if then:
                adapter.install(then)
            held.go.set()
            assert [r.offset for r in await read(consumer, n)] == list(range(n))

    run(main)


def test_installed_while_a_consumer_reads(broker: Broker) -> None:
    fill(broker)

    async def main() -> None:
        async with consuming(broker, seam=None, assign=(0,)) as consumer:
            offsets = []
            for change in (adapter.install, adapter.uninstall, lambda: adapter.install("decoder"), adapter.uninstall):
                for _ in range(3):
                    offsets += [r.offset for r in await read(consumer, 4, max_records=4)]
                change()
                offsets.append((await consumer.getone()).offset)
            assert offsets == sorted(set(offsets))
            assert len(offsets) == 4 * 13

    run(main)


def test_without_a_thread_to_be_had_it_is_decoded_here(
    broker: Broker, held: Held, low: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = large(broker)

    class Thread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(adapter, "threading", SimpleNamespace(Thread=Thread))

    async def main() -> None:
        async with consuming(broker, assign=(0,)) as consumer:
            assert len(await read(consumer, n)) == n

    run(main)
    assert set(held.threads) == {"MainThread"}


def test_without_memory_the_caller_is_told(broker: Broker, low: None, monkeypatch: pytest.MonkeyPatch) -> None:
    n = large(broker)
    decode = adapter.decode

    def fails(*args: Any, **kwargs: Any) -> Any:
        raise MemoryError("no memory for the inflated records")

    async def main() -> None:
        async with consuming(broker, assign=(0,)) as consumer:
            monkeypatch.setattr(adapter, "decode", fails)
            with pytest.raises(MemoryError):
                await read(consumer, 1)
            monkeypatch.setattr(adapter, "decode", decode)
            assert len(await read(consumer, n)) == n

    run(main)


def test_the_thread_is_not_one_of_the_programs_executor(broker: Broker, low: None) -> None:
    """All of those may be waiting for the records."""
    n = large(broker)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        arrived = threading.Event()
        waiting = [loop.run_in_executor(None, arrived.wait, PATIENCE) for _ in range(64)]
        async with consuming(broker, assign=(0,)) as consumer:
            assert len(await read(consumer, n)) == n
            arrived.set()
            await asyncio.gather(*waiting)

    run(main)


def test_the_fetcher_sees_its_own_attributes() -> None:
    """Its method runs on a stand-in; what it sets must arrive at the fetcher."""

    class Fetcher:
        _client = object()
        _rack_warning_logged = False

    real = Fetcher()
    seen = adapter._Receiving(real)
    seen._rack_warning_logged = True
    assert real._rack_warning_logged is True
    assert seen._client is not real._client
    with pytest.raises(AttributeError):
        _ = seen.nothing_of_this_name


# --- other versions ---------------------------------------------------------------------------------------------------

VERSIONS = [Path(folder) for folder in os.environ.get("FASTFETCH_AIOKAFKA", "").split(os.pathsep) if folder]


@pytest.mark.skipif(not VERSIONS, reason="FASTFETCH_AIOKAFKA names no folders, made by pip install --target, with other versions")
@pytest.mark.parametrize("folder", VERSIONS, ids=lambda folder: folder.name)
def test_other_versions(folder: Path, root: Path) -> None:
    tests = [root / "tests" / "adapters" / f"test_{name}.py" for name in ("data_objects", "aiokafka", "aiokafka_consumer")]
    env = {**os.environ, "PYTHONPATH": str(folder), "FASTFETCH_AIOKAFKA": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, tests)]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
