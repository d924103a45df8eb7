"""Segments that stay on disk: they serve what the same batches in memory would, and say what they can't."""

from __future__ import annotations

import gc
import os
import random
from pathlib import Path

import pytest

from fastfetch.testing import Broker, control_batch, encode_batch, message_set
from fastfetch.testing.batches import entries
from fastfetch.testing.disk import DiskSegment
from fastfetch.testing.segments import MemorySegment
from tests.testing.wire import Wire, only

TIME = 1_700_000_000_000


def batch(base: int, n: int = 10, size: int = 100, codec: str = "none") -> bytes:
    rows = [(None, bytes([base % 251]) * size, TIME + base + i) for i in range(n)]
    return encode_batch(rows, base_offset=base, codec=codec)


def write(folder: Path, base: int, data: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{base:020d}.log"
    path.write_bytes(data)
    return path


def opened(path: Path, upto: int | None = None) -> DiskSegment:
    segment = DiskSegment(path, upto)
    segment.index(lambda entry, head: None)
    return segment


def random_log(rng: random.Random, base: int) -> bytes:
    """Batches of very different sizes, with the holes of compaction between them; some larger than a step of the index."""
    out, offset = [], base
    for _ in range(rng.randrange(1, 300)):
        offset += rng.choice((0, 0, 0, 1, 50))
        n = rng.randrange(1, 20)
        out.append(batch(offset, n, rng.choice((0, 10, 300, 300, 9000)), rng.choice(("none", "lz4"))))
        offset += n
    return b"".join(out)


@pytest.mark.parametrize("seed", range(6))
def test_it_answers_as_the_same_batches_in_memory_do(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    data = random_log(rng, 1000)
    disk = opened(write(tmp_path, 1000, data))
    memory = MemorySegment(1000, len(data))
    places = list(entries(data))
    for entry in places:
        memory.append(data[entry.start : entry.end], entry.base_offset, entry.last_offset)
    assert (disk.base_offset, disk.next_offset, disk.size, disk.remark) == (1000, memory.next_offset, len(data), "")
    for _ in range(300):
        offset = rng.randrange(995, memory.next_offset + 5)
        assert disk.locate(offset) == memory.locate(offset)
        assert disk.end_before(offset) == memory.end_before(offset)
        at, n = rng.randrange(len(data)), rng.randrange(200_000)
        assert b"".join(disk.read(at, n)) == data[at : at + n]
        # How far behind it lies differs: it only has to be behind, and not end before the log does.
        behind = disk.upper_bound(at)
        assert all(entry.last_offset < behind for entry in places if entry.start < at)
        assert behind <= disk.next_offset
    assert [(e, bytes(b)) for e, b in disk.batches()] == [(e, bytes(b)) for e, b in memory.batches()]


def test_what_is_before_a_time_is_not_read(tmp_path: Path) -> None:
    data = b"".join(batch(base, 10, 2000) for base in range(0, 1000, 10))
    segment = opened(write(tmp_path, 0, data))
    since = [entry.base_offset for entry, _ in segment.batches(TIME + 700)]
    assert since[-1] == 990
    assert 600 < since[0] <= 700
    assert list(segment.batches(TIME + 1000)) == []


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_old_formats(magic: int, codec: str, tmp_path: Path) -> None:
    sets = [message_set([b"a", b"b", b"c"], base_offset=base, magic=magic, codec=codec) for base in (0, 3, 10)]
    write(tmp_path / "t-0", 0, b"".join(sets))
    with Broker() as broker, Wire(broker) as wire:
        assert broker.load_segment(tmp_path / "t-0", "t") == []
        assert (broker.start_offset("t", 0), broker.end_offset("t", 0)) == (0, 13)
        assert bytes(only(wire.fetch(offset=11))["records"]).startswith(
            sets[2] if codec != "none" else sets[2][len(sets[2]) // 3 :]
        )


# ------------------------------------------------------------------------------------------------------------------ bad bytes


@pytest.mark.parametrize(
    "tail",
    [batch(20)[:-1], batch(20)[:13], b"\1" * 200, batch(20)[:-1] + b"\xff", batch(20)[:30] + bytes(10_000)],
    ids=["half a batch", "a few bytes", "no batch", "wrong CRC", "half of it written"],
)
def test_the_last_segment_ends_behind_its_last_good_batch(tail: bytes, tmp_path: Path) -> None:
    good = batch(0) + batch(10)
    segment = opened(write(tmp_path, 0, good + tail))
    assert (segment.next_offset, segment.size) == (20, len(good))
    assert f"the last {len(tail)} bytes" in segment.remark


def test_the_zeros_of_preallocation_are_nothing_to_speak_of(tmp_path: Path) -> None:
    good = batch(0) + batch(10)
    path = write(tmp_path, 0, good + bytes(5000))
    os.truncate(path, 1 << 30)
    segment = opened(path)
    assert (segment.next_offset, segment.size, segment.remark) == (20, len(good), "")


def test_a_bad_batch_with_good_ones_behind_it_is_served_as_it_is(tmp_path: Path) -> None:
    """Left out, it would be a hole like those of compaction, and nobody would know of the loss."""
    bad = bytearray(batch(10))
    bad[-1] ^= 1
    data = batch(0) + bytes(bad) + batch(20)
    segment = opened(write(tmp_path, 0, data))
    assert (segment.next_offset, segment.size, segment.remark) == (30, len(data), "")
    assert b"".join(segment.read(0, 1 << 20)) == data


def test_bytes_that_are_no_batch_before_the_next_segment_are_served_too(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    garbage = b"\x7f" * 300_000
    write(folder, 0, batch(0) + garbage)
    write(folder, 50, batch(50))
    with Broker() as broker, Wire(broker) as wire:
        [remark] = broker.load_segment(folder, "t")
        assert "offsets 10 to 49 can't be read" in remark
        assert broker.end_offset("t", 0) == 60
        assert bytes(only(wire.fetch(offset=0, partition_max_bytes=5000))["records"]) == (batch(0) + garbage)[:5000]
        assert bytes(only(wire.fetch(offset=12))["records"]).startswith(b"\x7f" * 1000), "not the batch at 50"
        assert bytes(only(wire.fetch(offset=50))["records"]) == batch(50)


def test_a_wrong_base_offset_does_not_move_the_end(tmp_path: Path) -> None:
    """No CRC covers it."""
    folder = tmp_path / "t-0"
    write(folder, 0, batch(0) + batch(1 << 40) + batch(20))
    write(folder, 30, batch(30))
    with Broker() as broker, Wire(broker) as wire:
        [remark] = broker.load_segment(folder, "t")
        assert "offsets 10 to 29 can't be read" in remark
        assert broker.end_offset("t", 0) == 40
        assert bytes(only(wire.fetch(offset=12))["records"]).startswith(batch(1 << 40) + batch(20))


def test_what_overlaps_the_next_segment_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    write(folder, 0, batch(0) + b"\x7f" * 300)
    write(folder, 10, batch(10))
    with Broker() as broker, Wire(broker) as wire:
        [remark] = broker.load_segment(folder, "t")
        assert "the last 300 bytes" in remark
        assert bytes(only(wire.fetch(offset=0))["records"]) == batch(0) + batch(10)


# --------------------------------------------------------------------------------------------------------------------- files


def test_a_file_that_is_deleted_is_served_to_its_end_and_one_that_grows_no_further(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    first, last = write(folder, 0, batch(0)), write(folder, 10, batch(10))
    with Broker() as broker, Wire(broker) as wire:
        broker.load_segment(folder, "t")
        first.unlink()
        with last.open("ab") as file:
            file.write(batch(20))
        assert bytes(only(wire.fetch(offset=0))["records"]) == batch(0) + batch(10)
        assert broker.end_offset("t", 0) == 20


def test_a_file_that_becomes_shorter_ends_there(tmp_path: Path) -> None:
    path = write(tmp_path / "t-0", 0, batch(0) + batch(10) + batch(20))
    with Broker() as broker, Wire(broker) as wire:
        broker.load_segment(path, "t")
        os.truncate(path, len(batch(0)) + 7)
        assert bytes(only(wire.fetch(offset=0))["records"]) == batch(0) + batch(10)[:7]
        assert bytes(only(wire.fetch(offset=25))["records"]) == batch(10)[:7]


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    path = write(tmp_path / "t-0", 0, batch(0))
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        opened(path)
    assert len(os.listdir("/proc/self/fd")) == before


# -------------------------------------------------------------------------------------------------------------- transactions


def test_a_batch_that_compaction_emptied_holds_nothing_back(tmp_path: Path) -> None:
    """Its marker may have been removed with the rest of the transaction."""
    emptied = encode_batch([], base_offset=0, producer_id=7, transactional=True, last_offset_delta=9)
    write(tmp_path / "t-0", 0, emptied + batch(10))
    with Broker() as broker:
        broker.load_segment(tmp_path / "t-0", "t")
        assert broker.end_offset("t", 0, isolation="read_committed") == 20


def test_transactions_over_segments(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    write(folder, 0, encode_batch([b"x"] * 10, base_offset=0, producer_id=7, transactional=True))
    write(folder, 10, batch(10) + control_batch("abort", producer_id=7, base_offset=20))
    write(folder, 21, encode_batch([b"x"] * 4, base_offset=21, producer_id=8, transactional=True))
    with Broker() as broker, Wire(broker) as wire:
        broker.load_segment(folder, "t")
        assert (broker.end_offset("t", 0), broker.end_offset("t", 0, isolation="read_committed")) == (25, 21)
        found = only(
            wire.fetch_all([("t", [{"partition": 0, "partition_max_bytes": 1 << 20, "fetch_offset": 5}])], isolation_level=1)
        )
        assert found["aborted_transactions"] == [{"producer_id": 7, "first_offset": 0}]
        assert found["last_stable_offset"] == 21


def test_a_damaged_batch_has_no_times(tmp_path: Path) -> None:
    """Its records can't be read; who asks for a time gets the next one that can, and the connection lives."""
    bad = bytearray(batch(10, codec="lz4"))
    bad[70:90] = bytes(20)
    write(tmp_path / "t-0", 0, batch(0) + bytes(bad) + batch(20))
    with Broker() as broker, Wire(broker) as wire:
        broker.load_segment(tmp_path / "t-0", "t")
        asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": TIME + 12}
        topics = [{"name": "t", "partitions": [asked]}]
        [topic] = wire.call("ListOffsets", 7, replica_id=-1, isolation_level=0, topics=topics)["topics"]
        assert topic["partitions"][0]["offset"] == 20


@pytest.mark.parametrize("seed", range(40))
def test_any_bytes_can_be_opened_and_asked_for(seed: int, tmp_path: Path) -> None:
    """Whatever was overwritten, cut or put in between: a place for every offset, within the file, and look-ups that end."""
    rng = random.Random(seed)
    data = bytearray(random_log(rng, 1000))
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[at : at + 8] = rng.randbytes(8)
            case 1:
                del data[at : at + rng.randrange(1, 100)]
            case 2:
                data[at:at] = rng.randbytes(rng.randrange(1, 100))
            case _:
                data[at] ^= 1 << rng.randrange(8)
    upto = rng.choice((None, 1000, 10_000, 1_000_000))
    segment = opened(write(tmp_path, 1000, bytes(data)), upto)
    assert 0 <= segment.size <= len(data)
    for offset in (0, 1000, segment.next_offset - 1, segment.next_offset, *(rng.randrange(900, 12_000) for _ in range(50))):
        place = segment.locate(offset)
        assert (place is None) == (offset >= segment.next_offset or not segment.size), offset
        if place is not None:
            position, size = place
            assert 0 <= position < position + size <= segment.size
        assert 0 <= segment.end_before(offset) <= segment.size
    for entry, whole in segment.batches():
        assert len(whole) == entry.end - entry.start
