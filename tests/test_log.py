"""Segments on disk. The folders are made here, in the shapes that brokers leave; tests/live reads a real broker's."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import crc32c
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fastfetch
from fastfetch import log, segments
from fastfetch.errors import CorruptBatchError, CrcMismatchError, FastFetchError, UsageError
from fastfetch.log import log_bounds, offset_for_time, read_log
from fastfetch.segments import Cursor, Log, SegmentFile, partition_of
from fastfetch.testing.batches import DEFAULT_TIMESTAMP, control_batch, encode_batch, message_set

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def value(offset: int, size: int = 30) -> bytes:
    return b"value %d " % offset + b"x" * (size * (offset % 5))


def make_batch(first: int, n: int, **options: object) -> bytes:
    return encode_batch([(b"k%d" % o, value(o)) for o in range(first, first + n)], base_offset=first, **options)  # type: ignore[arg-type]


def write_segment(folder: Path, base: int, batches: Iterable[tuple[int, bytes]], every: int = 1, tail: bytes = b"") -> Path:
    """A `.log` and its `.index`, with an entry for each `every`-th batch but the first. `batches`: (last offset, bytes)."""
    folder.mkdir(exist_ok=True)
    data, index = bytearray(), bytearray()
    for i, (last, batch) in enumerate(batches):
        if i and i % every == 0:
            index += struct.pack(">ii", last - base, len(data))
        data += batch
    path = folder / f"{base:020d}.log"
    path.write_bytes(data + tail)
    path.with_suffix(".index").write_bytes(index)
    return path


def plain_batches(first: int, total: int, n: int = 10, codec: str = "none", **options: object) -> list[tuple[int, bytes]]:
    return [(o + n - 1, make_batch(o, n, codec=codec, **options)) for o in range(first, first + total, n)]


def rows(blocks: Iterable[fastfetch.RecordBlock]) -> list[tuple[int, bytes | None]]:
    return [row for block in blocks for row in zip(block.offsets.tolist(), block.values(), strict=True)]


def drain(reading: Iterator[fastfetch.RecordBlock]) -> tuple[list[tuple[int, bytes | None]], CorruptBatchError]:
    """What comes before the error, and the error."""
    found: list[tuple[int, bytes | None]] = []
    try:
        for block in reading:
            found += rows([block])
    except CorruptBatchError as error:
        return found, error
    pytest.fail(f"no error after {len(found)} records")


def expected(offsets: Iterable[int]) -> list[tuple[int, bytes]]:
    return [(o, value(o)) for o in offsets]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows so small that a test's segment has many, and a mapping already for a small one."""
    for module in (segments, log):
        monkeypatch.setattr(module, "FIRST_WINDOW", 1 << 10)
        monkeypatch.setattr(module, "WINDOW", 4 << 10)
    monkeypatch.setattr(segments, "MAP_FROM", 4 << 10)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """Three segments, offsets 100 to 3099, every codec."""
    folder = tmp_path / "orders-3"
    for i, base in enumerate((100, 1100, 2100)):
        turns = [plain_batches(base + 200 * k, 200, codec=CODECS[(i + k) % 5]) for k in range(5)]
        write_segment(folder, base, [batch for batches in turns for batch in batches], 4)
    return folder


# ---------------------------------------------------------------------------------------------------------------- reading


@pytest.mark.usefixtures("small")
def test_a_folder_gives_all_segments_in_order(orders: Path) -> None:
    blocks = list(read_log(orders))
    assert rows(blocks) == expected(range(100, 3100))
    assert {(b.topic, b.partition) for b in blocks} == {("orders", 3)}
    assert blocks[-1].next_offset == 3100


def test_windows_of_full_size_give_few_blocks(orders: Path) -> None:
    # A run of uncompressed or of compressed batches is a block; the codec changes at most 5 times in each of 3 segments.
    assert len(list(read_log(orders))) <= 15


@pytest.mark.usefixtures("small")
def test_a_file_gives_only_itself(orders: Path) -> None:
    blocks = list(read_log(orders / "00000000000000001100.log"))
    assert rows(blocks) == expected(range(1100, 2100))
    assert (blocks[0].topic, blocks[0].partition) == ("orders", 3)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", [str, Path, os.fspath])
def test_a_path_may_be_a_string(orders: Path, kind: Callable[[Path], object]) -> None:
    assert rows(read_log(kind(orders), start=3090)) == expected(range(3090, 3100))  # type: ignore[arg-type]


@pytest.mark.usefixtures("small")
def test_every_start_and_every_stop(orders: Path) -> None:
    """Inclusive, exclusive, also in the middle of a compressed batch and at the edges of segments."""
    for start in [*range(95, 135), *range(1090, 1120), *range(2095, 2120), *range(3080, 3110)]:
        stop = start + 25
        assert rows(read_log(orders, start=start, stop=stop)) == expected(range(max(start, 100), min(stop, 3100)))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("start", "stop"), [(500, 500), (500, 400), (3100, None), (5000, None), (0, 100), (None, 0)])
def test_empty_ranges(orders: Path, start: int | None, stop: int | None) -> None:
    assert list(read_log(orders, start=start, stop=stop)) == []


@pytest.mark.usefixtures("small")
def test_holes_of_compaction_at_start_stop_and_segment_ends(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    kept = [3, 7, 8]
    batch = encode_batch([value(o) for o in kept], base_offset=0, deltas=kept, last_offset_delta=19)
    empty = encode_batch([], base_offset=20, last_offset_delta=79, count=0)
    write_segment(folder, 0, [(19, batch), (99, empty)])
    write_segment(folder, 100, plain_batches(100, 20))
    assert rows(read_log(folder)) == expected([*kept, *range(100, 120)])
    assert rows(read_log(folder, start=4, stop=8)) == expected([7])
    assert rows(read_log(folder, start=50, stop=101)) == expected([100])
    assert log_bounds(folder) == (0, 120)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
def test_old_message_formats(tmp_path: Path, magic: int, codec: str) -> None:
    folder = tmp_path / "old-0"
    sets = [
        (o + 9, message_set([(b"k", value(i)) for i in range(o, o + 10)], magic=magic, base_offset=o, codec=codec))
        for o in range(0, 300, 10)
    ]
    write_segment(folder, 0, [*sets, *plain_batches(300, 50)], 3)
    for start in (0, 1, 9, 10, 155, 159, 160, 299, 300, 345):
        assert rows(read_log(folder, start=start)) == expected(range(start, 350)), start


@pytest.mark.usefixtures("small")
def test_a_batch_larger_than_the_window(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    large = encode_batch([b"y" * 100_000], base_offset=10)
    write_segment(folder, 0, [*plain_batches(0, 10), (10, large)])
    write_segment(folder, 11, [(11, encode_batch([b"z" * 50_000], base_offset=11)), *plain_batches(12, 10)])
    found = rows(read_log(folder))
    assert [o for o, _ in found] == list(range(22))
    assert found[10][1] == b"y" * 100_000
    assert found[11][1] == b"z" * 50_000


@pytest.mark.usefixtures("small")
def test_blocks_stay_valid_when_all_are_kept(orders: Path) -> None:
    """Neither a buffer nor a mapping may be given away while a block refers to it."""
    blocks = list(read_log(orders))
    again = [block.values() for block in blocks]
    assert [v for values in again for v in values] == [value(o) for o in range(100, 3100)]


@pytest.mark.usefixtures("small")
def test_buffers_are_used_again_when_blocks_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_segment(tmp_path / "t-0", 0, plain_batches(0, 5000))
    made = []
    take = segments._Buffers.take

    def counting(self: segments._Buffers, size: int) -> bytearray:
        buffer = take(self, size)
        made.append(id(buffer))
        return buffer

    monkeypatch.setattr(segments._Buffers, "take", counting)
    total = 0
    for block in read_log(path):
        total += len(block)
    assert total == 5000
    assert len(made) > 20
    assert len(set(made)) <= 6


def test_windows_shrink_when_much_comes_out_of_them() -> None:
    assert log._next_window(4 << 20, 4 << 20, 64 << 20) == 2 << 20
    assert log._next_window(512 << 10, 512 << 10, 500 << 20) == segments.FIRST_WINDOW
    assert log._next_window(1 << 20, 1 << 20, 1 << 20) == 2 << 20
    assert log._next_window(4 << 20, 4 << 20, 0) == 4 << 20
    assert log._next_window(1 << 20, 1 << 20, 12 << 20) == 1 << 20


@pytest.mark.usefixtures("small")
def test_no_descriptor_stays_open(orders: Path) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    list(read_log(orders, isolation="read_committed"))
    reading = read_log(orders, isolation="read_committed")
    next(reading)
    assert descriptors() > before
    reading.close()  # type: ignore[attr-defined]
    with pytest.raises(UsageError):
        read_log(orders, isolation="committed")
    read_log(orders)  # never asked for a block
    log_bounds(orders)
    offset_for_time(orders, 0)
    assert descriptors() == before


# --------------------------------------------------------------------------------------------------------------- the index


def count_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where the reading of segments begins, for each segment that is opened."""
    found: list[int] = []
    position_of = segments._position_of

    def noting(file: SegmentFile, offset: int) -> int:
        found.append(position_of(file, offset))
        return found[-1]

    monkeypatch.setattr(segments, "_position_of", noting)
    return found


@pytest.mark.usefixtures("small")
def test_the_index_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "t-0"
    batches = plain_batches(1000, 1000)
    write_segment(folder, 1000, batches, 4)
    at = count_read(monkeypatch)
    assert rows(read_log(folder, start=1905)) == expected(range(1905, 2000))
    assert at == [sum(len(b) for _, b in batches[:88])]  # 1880 to 1889 is the last indexed batch below
    at.clear()
    assert rows(read_log(folder, start=1925, stop=1930)) == expected(range(1925, 1930))
    assert at == [sum(len(b) for _, b in batches[:92])]  # the very batch is indexed


def entry(offset: int, position: int) -> bytes:
    return struct.pack(">ii", offset, position)


BATCHES = plain_batches(0, 1000)
STARTS = [sum(len(b) for _, b in BATCHES[:i]) for i in range(101)]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"\0" * 4096,
        b"\0\0\0",
        entry(509, STARTS[50])[:5],
        entry(509, STARTS[50]) + entry(609, STARTS[60])[:7],
        entry(509, STARTS[50]) + b"\0" * 100_000,
        entry(509, STARTS[50] + 1),
        entry(509, STARTS[51] + 30),
        entry(509, STARTS[90]),
        entry(509, STARTS[100]),
        entry(509, STARTS[100] - 3),
        entry(509, (1 << 31) - 1),
        entry(509, -5),
        entry(-1, STARTS[3]) + entry(509, STARTS[50]),
        entry(509, 0),
        entry(709, STARTS[70]) + entry(509, STARTS[50]),
        entry(509, STARTS[50]) + entry(519, STARTS[20]),
        entry(0, 0),
        os.urandom(4096),
    ],
    ids=lambda index: f"{len(index)}-{index[:12].hex()}",
)
def test_an_index_is_never_trusted(tmp_path: Path, index: bytes) -> None:
    """Whatever stands in it, the records are the same."""
    path = write_segment(tmp_path / "t-0", 0, BATCHES)
    path.with_suffix(".index").write_bytes(index)
    for start in (1, 505, 515, 600, 995):
        assert rows(read_log(path.parent, start=start)) == expected(range(start, 1000))
    assert log_bounds(path.parent) == (0, 1000)


@pytest.mark.usefixtures("small")
def test_an_index_entry_at_a_damaged_batch_is_not_used(tmp_path: Path) -> None:
    """Reading from there would skip the damage, and what stands between, in silence."""
    path = write_segment(tmp_path / "t-0", 0, BATCHES)
    data = bytearray(path.read_bytes())
    data[STARTS[50] + 70] ^= 1
    path.write_bytes(data)
    with pytest.raises(CrcMismatchError) as caught:
        list(read_log(path.parent, start=505))
    assert caught.value.byte_pos == STARTS[50]


@pytest.mark.usefixtures("small")
def test_the_index_is_found_also_below_a_folder_that_is_called_like_a_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "backup.log.d").mkdir()
    path = write_segment(tmp_path / "backup.log.d" / "t-0", 0, BATCHES)
    at = count_read(monkeypatch)
    assert rows(read_log(path, start=905, stop=906)) == expected([905])
    assert at == [STARTS[90]]


@pytest.mark.usefixtures("small")
def test_no_index_at_all(orders: Path) -> None:
    for path in orders.glob("*.index"):
        path.unlink()
    assert rows(read_log(orders, start=1777, stop=1780)) == expected(range(1777, 1780))


# ------------------------------------------------------------------------------------------------------------ the live tail


@pytest.mark.usefixtures("small")
def test_every_cut_of_the_last_batch_is_an_end(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    last = make_batch(50, 10)
    for cut in range(len(last)):
        write_segment(folder, 0, plain_batches(0, 50), tail=last[:cut])
        assert rows(read_log(folder)) == expected(range(50))
    write_segment(folder, 0, plain_batches(0, 50), tail=last)
    assert rows(read_log(folder)) == expected(range(60))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("zeros", [1, 11, 12, 17, 61, 100_000])
def test_the_zero_tail_of_a_preallocated_segment_is_an_end(tmp_path: Path, isolation: str, zeros: int) -> None:
    folder = tmp_path / "t-0"
    path = write_segment(folder, 0, plain_batches(0, 50), tail=b"\0" * zeros)
    assert rows(read_log(folder, isolation=isolation)) == expected(range(50))
    assert log_bounds(folder) == (0, 50)
    with path.open("r+b") as stream:  # a hole
        stream.truncate(50 << 20)
    assert rows(read_log(folder, isolation=isolation)) == expected(range(50))


@pytest.mark.usefixtures("small")
def test_zeros_with_something_behind_them_are_damage(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    path = write_segment(folder, 0, plain_batches(0, 50), tail=b"\0" * 5000 + b"\1")
    found, error = drain(read_log(folder))
    assert found == expected(range(50))
    assert error.kind == "length"
    assert error.byte_pos == path.stat().st_size - 5001


@pytest.mark.usefixtures("small")
def test_zeros_at_the_end_of_a_sealed_segment_are_damage(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    write_segment(folder, 0, plain_batches(0, 50), tail=b"\0" * 5000)
    write_segment(folder, 60, plain_batches(60, 50))
    with pytest.raises(CorruptBatchError):
        list(read_log(folder))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("keep", [1, 12, 16, 61, 90])
def test_a_sealed_segment_that_ends_inside_a_batch_is_damage(tmp_path: Path, keep: int) -> None:
    """Its rest is lost: going on with the next segment would hide a gap."""
    folder = tmp_path / "t-0"
    path = write_segment(folder, 0, plain_batches(0, 50), tail=make_batch(50, 10)[:keep])
    write_segment(folder, 60, plain_batches(60, 50))
    found, error = drain(read_log(folder))
    assert found == expected(range(50))
    assert (error.kind, error.position, error.next_offset, error.byte_pos) == ("length", 50, 60, path.stat().st_size - keep)
    assert str(path) in str(error)
    # What lies before and behind can be read.
    assert rows(read_log(folder, start=60)) == expected(range(60, 110))
    assert rows(read_log(folder, stop=50)) == expected(range(50))
    # The same file alone may be one that is still written.
    alone = path.rename(tmp_path / path.name)
    assert rows(read_log(alone)) == expected(range(50))


@pytest.mark.usefixtures("small")
def test_the_end_is_where_it_was_at_the_call(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    path = write_segment(folder, 0, plain_batches(0, 1000))
    reading = read_log(folder)
    found = rows([next(reading)])
    with path.open("ab") as stream:
        stream.write(make_batch(1000, 10))
    write_segment(folder, 1010, plain_batches(1010, 10))
    assert found + rows(reading) == expected(range(1000))
    assert rows(read_log(folder)) == expected(range(1020))


@pytest.mark.usefixtures("small")
def test_a_reader_beside_a_writer_sees_only_whole_records_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    path = write_segment(folder, 0, [])
    batches = [batch for _, batch in plain_batches(0, 2000)]
    stop = threading.Event()

    def write() -> None:
        with path.open("ab", buffering=0) as stream:
            for batch in batches:
                for at in range(0, len(batch), 100):
                    stream.write(batch[at : at + 100])
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    lengths = []
    while not stop.is_set():
        found = rows(read_log(folder))
        assert found == expected(range(len(found)))
        lengths.append(len(found))
    writer.join()
    assert lengths == sorted(lengths)
    assert rows(read_log(folder)) == expected(range(2000))


@pytest.mark.usefixtures("small")
def test_a_batch_that_is_just_being_written_into_a_preallocated_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its length is there before its end is: a CRC error for a moment, and no error."""
    folder = tmp_path / "t-0"
    batch = make_batch(50, 10)
    path = write_segment(folder, 0, plain_batches(0, 50), tail=batch[:80] + b"\0" * 5000)

    def pause(_: float) -> None:
        with path.open("r+b") as stream:
            stream.seek(-5080, os.SEEK_END)
            stream.write(batch)

    monkeypatch.setattr("fastfetch.log.time.sleep", pause)
    assert rows(read_log(folder)) == expected(range(60))


# ------------------------------------------------------------------------------------------------------------------ damage


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("sealed", [True, False])
def test_a_bad_batch_comes_after_the_good_ones_with_its_place(tmp_path: Path, sealed: bool) -> None:
    folder = tmp_path / "orders-3"
    path = write_segment(folder, 0, BATCHES)
    if sealed:
        write_segment(folder, 1000, plain_batches(1000, 100))
    data = bytearray(path.read_bytes())
    data[STARTS[70] + 65] ^= 1
    path.write_bytes(data)
    found, error = drain(read_log(folder))
    assert found == expected(range(700))
    assert isinstance(error, CrcMismatchError)
    assert (error.topic, error.partition, error.byte_pos, error.base_offset) == ("orders", 3, STARTS[70], 700)
    assert (error.position, error.next_offset, error.skip_trusted) == (700, 710, True)
    assert error.path == str(path)
    assert f"at byte {STARTS[70]}" in str(error)
    assert str(path) in str(error)
    assert rows(read_log(folder, start=error.next_offset, stop=1000)) == expected(range(710, 1000))
    assert rows(read_log(folder, stop=700)) == expected(range(700))
    # Also without the index: who starts behind the damage passes it.
    path.with_suffix(".index").unlink()
    for isolation in ("read_uncommitted", "read_committed"):
        assert rows(read_log(folder, start=710, stop=1000, isolation=isolation)) == expected(range(710, 1000))
        assert drain(read_log(folder, start=709, isolation=isolation))[0] == []


@pytest.mark.usefixtures("small")
def test_without_check_crcs_only_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    path = write_segment(tmp_path / "t-0", 0, plain_batches(0, 10))
    data = bytearray(path.read_bytes())
    data[18] ^= 1
    path.write_bytes(data)
    for isolation in ("read_uncommitted", "read_committed"):
        assert rows(read_log(path, check_crcs=False, isolation=isolation)) == expected(range(10))  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [b"2026-01-01 INFO started\n" * 100, b"\x7fELF" + bytes(100), b"\1" * 50, b"short"])
def test_a_file_that_is_no_segment_is_called_that(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"server\.log is not a Kafka log segment"):
        list(read_log(path))


def test_a_damaged_start_of_a_segment_is_damage(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"\xff" * 50)
    with pytest.raises(CorruptBatchError):
        list(read_log(path))


def test_a_segment_under_another_name(tmp_path: Path) -> None:
    path = tmp_path / "copy.bin"
    path.write_bytes(make_batch(7, 3))
    assert rows(read_log(path)) == expected([7, 8, 9])
    assert rows(read_log(path, start=8)) == expected([8, 9])
    assert log_bounds(path) == (7, 10)


def test_what_cannot_be_read_says_so_at_the_call(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_log(tmp_path / "nowhere")
    (tmp_path / "empty-0").mkdir()
    with pytest.raises(UsageError, match="no log segments"):
        read_log(tmp_path / "empty-0")
    with pytest.raises(UsageError, match=r"data folder with 1 partitions: give one, such as .*empty-0"):
        read_log(tmp_path)
    index = tmp_path / f"{0:020d}.index"
    index.write_bytes(b"")
    with pytest.raises(UsageError, match=rf"is an index of a segment.*{0:020d}\.log"):
        read_log(index)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="neither a file nor a folder"):
        read_log(tmp_path / "pipe")
    with pytest.raises(UsageError, match="start is an offset"):
        read_log(tmp_path, start=-1)
    with pytest.raises(UsageError, match="isolation"):
        read_log(tmp_path, isolation="serializable")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = write_segment(tmp_path / "t-0", 0, plain_batches(0, 10))
    path.chmod(0)
    with pytest.raises(PermissionError):
        read_log(path)


def test_empty_segments(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    write_segment(folder, 0, [])
    assert list(read_log(folder)) == []
    assert list(read_log(folder, start=5, isolation="read_committed")) == []
    assert log_bounds(folder) == (0, 0)
    write_segment(folder, 0, plain_batches(0, 10))
    write_segment(folder, 10, [])
    assert rows(read_log(folder)) == expected(range(10))
    assert log_bounds(folder) == (0, 10)


@pytest.mark.usefixtures("small")
def test_a_sealed_segment_that_shrinks_is_an_error_not_a_dead_process(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    path = write_segment(folder, 0, BATCHES)
    write_segment(folder, 1000, plain_batches(1000, 10))
    reading = read_log(folder)
    next(reading)
    os.truncate(path, 20_000)
    with pytest.raises(FastFetchError, match="became shorter while it was read"):
        list(reading)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("size", [0, 2_000, STARTS[50], STARTS[50] + 30])
def test_the_last_segment_that_shrinks_ends_there(tmp_path: Path, size: int) -> None:
    """A follower truncates its log so."""
    path = write_segment(tmp_path / "t-0", 0, BATCHES)
    reading = read_log(path.parent)
    found = rows([next(reading)])
    os.truncate(path, size)
    found += rows(reading)
    assert found == expected(range(max(len(found), 500 if size > 2_000 else 0)))
    assert len(found) < 1000


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_the_zero_tail_that_a_roll_trims_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    path = write_segment(tmp_path / "t-0", 0, BATCHES, tail=b"\0" * 50_000)
    view, zeros_from = SegmentFile.view, SegmentFile.zeros_from
    for name, method, at in (("view", view, STARTS[98]), ("zeros_from", zeros_from, STARTS[100])):
        path.write_bytes(path.read_bytes()[: STARTS[100]] + b"\0" * 50_000)

        def trimming(self: SegmentFile, *args: Any, method: Any = method, at: int = at) -> Any:
            if args[0] >= at:
                os.truncate(path, STARTS[100])
            return method(self, *args)

        with monkeypatch.context() as patch:
            patch.setattr(SegmentFile, name, trimming)
            assert rows(read_log(path.parent, isolation=isolation)) == expected(range(1000))  # type: ignore[arg-type]
        assert path.stat().st_size == STARTS[100]


# ------------------------------------------------------------------------------------------- files that go away meanwhile


@pytest.mark.usefixtures("small")
def test_segments_deleted_by_retention_while_reading(orders: Path, caplog: pytest.LogCaptureFixture) -> None:
    reading = read_log(orders)
    found = rows([next(reading)])
    (orders / "00000000000000001100.log").rename(orders / "00000000000000001100.log.deleted")
    found += rows(reading)
    # The open one is read to its end, the gap is said.
    assert found == expected([*range(100, 1100), *range(2100, 3100)])
    assert "offsets 1100 to 2100 were deleted" in caplog.text


@pytest.mark.usefixtures("small")
def test_segments_merged_by_the_log_cleaner_while_reading(orders: Path) -> None:
    reading = read_log(orders)
    found = rows([next(reading)])
    merged = b"".join((orders / f"{base:020d}.log").read_bytes() for base in (100, 1100))
    (orders / "swap").write_bytes(merged)
    (orders / "swap").rename(orders / f"{100:020d}.log")
    (orders / f"{1100:020d}.log").unlink()
    (orders / f"{1100:020d}.index").unlink()
    assert found + rows(reading) == expected(range(100, 3100))


@pytest.mark.usefixtures("small")
def test_a_folder_deleted_while_reading(orders: Path) -> None:
    reading = read_log(orders)
    next(reading)
    for path in orders.iterdir():
        path.unlink()
    with pytest.raises((OSError, UsageError)):
        list(reading)


# ------------------------------------------------------------------------------------------------------------ transactions


class Writer:
    """Appends to a log as a broker would and keeps what a reader should get."""

    def __init__(self) -> None:
        self.offset = 0
        self.batches: list[tuple[int, bytes]] = []
        self.open: dict[int, list[int]] = {}
        self.aborted: set[int] = set()
        self.markers: set[int] = set()
        self.snapshots: dict[int, bytes] = {}

    def append(self, n: int = 1, pid: int = -1, transactional: bool | None = None, codec: str = "none") -> None:
        transactional = pid >= 0 if transactional is None else transactional
        batch = make_batch(self.offset, n, producer_id=pid, producer_epoch=0, transactional=transactional, codec=codec)
        if transactional:
            self.open.setdefault(pid, []).extend(range(self.offset, self.offset + n))
        self.offset += n
        self._keep(batch)

    def end(self, pid: int, kind: str) -> None:
        offsets = self.open.pop(pid, [])
        if kind == "abort":
            self.aborted.update(offsets)
        self.markers.add(self.offset)
        self.offset += 1
        self._keep(control_batch(kind, producer_id=pid, base_offset=self.offset - 1))

    def _keep(self, batch: bytes) -> None:
        self.batches.append((self.offset - 1, batch))
        entries = [(pid, 0, 0, offsets[-1], 0, 0, 0, offsets[0]) for pid, offsets in self.open.items()]
        entries.append((99, 0, 0, 0, 0, 0, 0, -1))  # a producer without a transaction
        body = struct.pack(">i", len(entries)) + b"".join(struct.pack(">qhiqiqiq", *entry) for entry in entries)
        self.snapshots[self.offset] = struct.pack(">hI", 1, crc32c.crc32c(body)) + body

    def stable_end(self) -> int:
        return min((offsets[0] for offsets in self.open.values()), default=self.offset)

    def committed(self, start: int = 0, stop: int | None = None) -> list[tuple[int, bytes]]:
        end = self.stable_end() if stop is None else min(stop, self.stable_end())
        return expected(o for o in range(start, end) if o not in self.aborted and o not in self.markers)

    def uncommitted(self) -> list[tuple[int, bytes]]:
        return expected(o for o in range(self.offset) if o not in self.markers)

    def write(self, folder: Path, cuts: Sequence[int] = ()) -> Path:
        """Segments cut before the batch of each index, with their snapshots of the producers."""
        edges = [0, *cuts, len(self.batches)]
        for a, b in itertools.pairwise(edges):
            base = 0 if a == 0 else self.batches[a - 1][0] + 1
            path = write_segment(folder, base, self.batches[a:b], 5)
            if a:
                path.with_suffix(".snapshot").write_bytes(self.snapshots[base])
        return folder


def busy_log(seed: int, rounds: int = 150) -> Writer:
    dice = random.Random(seed)
    writer = Writer()
    for _ in range(rounds):
        pid = dice.randrange(4)
        what = dice.random()
        if what < 0.55:
            writer.append(dice.randrange(1, 12), pid, codec=dice.choice(CODECS))
        elif what < 0.7:
            writer.append(dice.randrange(1, 5), codec=dice.choice(CODECS))
        elif what < 0.75:
            writer.append(1, pid + 10, transactional=False)  # idempotent, not transactional
        else:
            writer.end(pid, dice.choice(["abort", "commit"]))
    return writer


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("snapshots", ["all", "none", "some"])
def test_read_committed_leaves_out_what_was_aborted_or_is_open(tmp_path: Path, seed: int, snapshots: str) -> None:
    writer = busy_log(seed)
    folder = writer.write(tmp_path / "t-0", [20, 21, 60, 110])
    kept = {"all": 9, "none": 0, "some": 2}[snapshots]
    for path in sorted(folder.glob("*.snapshot"))[kept:]:
        path.unlink()
    assert rows(read_log(folder)) == writer.uncommitted()
    assert rows(read_log(folder, isolation="read_committed")) == writer.committed()
    for start in range(0, writer.offset, 17):
        assert rows(read_log(folder, start=start, isolation="read_committed")) == writer.committed(start)
        stop = start + 40
        assert rows(read_log(folder, start=start, stop=stop, isolation="read_committed")) == writer.committed(start, stop)


@pytest.mark.usefixtures("small")
def test_a_transaction_that_spans_segments_is_decided_by_a_marker_far_ahead(tmp_path: Path) -> None:
    writer = Writer()
    for _ in range(300):
        writer.append(5, pid=1)
        writer.append(5)
    writer.end(1, "abort")
    writer.append(5, pid=1)
    writer.end(1, "commit")
    folder = writer.write(tmp_path / "t-0", [100, 200, 400])
    assert rows(read_log(folder, isolation="read_committed")) == writer.committed()
    # A file alone does not say how it ends: from the first offset of the transaction on nothing is stable.
    alone = folder / f"{0:020d}.log"
    assert rows(read_log(alone, isolation="read_committed")) == []


@pytest.mark.usefixtures("small")
def test_nothing_is_delivered_above_the_last_stable_offset(tmp_path: Path) -> None:
    writer = Writer()
    writer.append(10)
    writer.append(3, pid=7)
    writer.append(500)
    folder = writer.write(tmp_path / "t-0")
    assert rows(read_log(folder, isolation="read_committed")) == expected(range(10))
    assert rows(read_log(folder, isolation="read_committed", start=11)) == []
    # A start behind the first batch of an open transaction does not see it; the batches that follow are what a reader sees.
    writer.end(7, "commit")
    writer.write(folder)
    assert rows(read_log(folder, isolation="read_committed")) == writer.committed()


@pytest.mark.usefixtures("small")
def test_a_transaction_opened_long_before_the_start_still_holds_back_what_follows(tmp_path: Path) -> None:
    """It has no batch at or after the start, so that only the snapshot, or the log from its beginning, tells of it."""
    writer = Writer()
    writer.append(3, pid=7)
    for _ in range(300):
        writer.append(10)
    folder = writer.write(tmp_path / "t-0", [50, 100, 200])
    assert rows(read_log(folder, isolation="read_committed", start=2900)) == []
    began = scan_began(folder, 2900)
    assert began == writer.batches[199][0] + 1
    # A damaged snapshot is not believed; the one before is.
    latest = folder / f"{began:020d}.snapshot"
    data = bytearray(latest.read_bytes())
    for i in range(len(data)):
        data[i] ^= 0x10
        latest.write_bytes(data)
        data[i] ^= 0x10
        assert scan_began(folder, 2900) == writer.batches[99][0] + 1
    for keep in range(len(data)):
        latest.write_bytes(data[:keep])
        assert scan_began(folder, 2900) == writer.batches[99][0] + 1
    for path in folder.glob("*.snapshot"):
        path.unlink()
    assert scan_began(folder, 2900) == 0
    assert rows(read_log(folder, isolation="read_committed", start=2900)) == []
    writer.end(7, "abort")
    writer.write(folder, [50, 100, 200])
    assert rows(read_log(folder, isolation="read_committed", start=2900)) == writer.committed(2900)


def scan_began(folder: Path, start: int) -> int | None:
    """Base offset of the segment where the scan for transactions begins."""
    scan = log._Transactions(Log(folder), start)
    try:
        return scan.cursor.file.segment.base_offset
    finally:
        scan.close()


@pytest.mark.usefixtures("small")
def test_a_transaction_emptied_by_compaction_holds_nothing_back(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    empty = encode_batch([], base_offset=0, last_offset_delta=4, count=0, producer_id=1, producer_epoch=0, transactional=True)
    write_segment(folder, 0, [(4, empty), *plain_batches(5, 20)])
    assert rows(read_log(folder, isolation="read_committed")) == expected(range(5, 25))


@pytest.mark.usefixtures("small")
def test_damage_ahead_ends_the_reading_where_it_is_not_decided_any_more(tmp_path: Path) -> None:
    writer = Writer()
    writer.append(10)
    writer.append(10, pid=1)
    for _ in range(200):
        writer.append(10)
    at = sum(len(b) for _, b in writer.batches)
    writer.append(10)
    writer.end(1, "commit")
    path = writer.write(tmp_path / "t-0") / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[at + 70] ^= 1
    path.write_bytes(data)
    found, error = drain(read_log(path.parent, isolation="read_committed"))
    assert found == expected(range(10))
    assert isinstance(error, CrcMismatchError)
    assert (error.byte_pos, error.path) == (at, str(path))


# ------------------------------------------------------------------------------------------------------------ time and names


@pytest.mark.usefixtures("small")
def test_the_first_offset_at_or_after_a_time(orders: Path) -> None:
    # The encoder gives each record of a batch the default time + its place in the batch.
    assert offset_for_time(orders, 0) == 100
    assert offset_for_time(orders, DEFAULT_TIMESTAMP + 9) == 109
    assert offset_for_time(orders, DEFAULT_TIMESTAMP + 10) is None
    late = encode_batch([(None, b"a", 5000), (None, b"b", DEFAULT_TIMESTAMP * 2), (None, b"c", 1)], base_offset=3100)
    write_segment(orders, 3100, [(3102, late)])
    assert offset_for_time(orders, DEFAULT_TIMESTAMP + 10) == 3101


@pytest.mark.parametrize(
    ("name", "topic", "partition"),
    [
        ("orders-3", "orders", 3),
        ("a-b-c-12", "a-b-c", 12),
        ("__consumer_offsets-49", "__consumer_offsets", 49),
        ("orders-3.0123456789abcdef0123456789abcdef-delete", "orders", 3),
        ("orders-3.0123456789abcdef0123456789abcdef-stray", "orders", 3),
        ("orders", "", 0),
        ("orders-", "", 0),
        ("orders-99999999999", "", 0),
        ("orders-4294967296", "", 0),
        ("or ders-1", "", 0),
    ],
)
def test_topic_and_partition_come_from_the_folder(name: str, topic: str, partition: int) -> None:
    assert partition_of(Path("/somewhere") / name) == (topic, partition)


def test_a_relative_path_knows_its_folder(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(orders)
    assert next(read_log(".")).topic == "orders"
    assert next(read_log(f"{100:020d}.log")).partition == 3


@pytest.mark.usefixtures("small")
def test_a_mapped_segment_gives_its_pages_back(orders: Path) -> None:
    cursor = Cursor(Log(orders), None)
    try:
        assert cursor.file._mapping is not None
        view = cursor.window()
        before = bytes(view)
        cursor.skip(len(view))
        assert bytes(view) == before  # read again from the file
    finally:
        cursor.close()


def test_holes_are_not_read_to_find_that_they_are_empty(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    with path.open("wb") as stream:
        stream.truncate(1 << 40)
    cursor = Cursor(Log(path), None)
    try:
        assert cursor.tail_is_zero(0)
    except OSError as error:
        if error.errno not in (errno.EFBIG, errno.ENOSPC):
            raise
    finally:
        cursor.close()


# ---------------------------------------------------------------------------------------------------------------- any bytes


def mutate(data: bytes, dice: random.Random) -> bytes:
    """A few changes of the kinds that disks and crashes make."""
    out = bytearray(data)
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(out))
        n = min(dice.choice([1, 1, 2, 4, 30, 700]), len(out) - at)
        match dice.randrange(5):
            case 0:
                out[at] ^= 1 << dice.randrange(8)
            case 1:
                out[at : at + n] = bytes(n)
            case 2:
                out[at : at + n] = dice.randbytes(n)
            case 3:
                del out[at : at + n]
            case 4:
                out[at:at] = out[:n]
        if not out:
            return b"\0"
    return bytes(out)


@pytest.mark.usefixtures("small")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(seed=st.integers(0, 1 << 32))
def test_windows_give_what_decode_gives_for_the_whole(tmp_path: Path, seed: int) -> None:
    """Any bytes: the same records, and the same error at the same byte, as one call of `decode` over the whole file."""
    dice = random.Random(seed)
    batches = [batch for k in range(4) for _, batch in plain_batches(50 * k, 50, codec=dice.choice(CODECS))]
    data = mutate(b"".join(batches), dice)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(data)
    whole = fastfetch.decode(data)
    found: list[tuple[int, bytes | None]] = []
    error = None
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch("fastfetch.log.time.sleep"))
        try:
            for block in read_log(path):
                found += rows([block])
        except CorruptBatchError as caught:
            error = caught
    assert found == rows(whole.blocks)
    if whole.error is None or not any(data[whole.error.byte_pos :]):
        assert error is None
    else:
        assert error is not None
        assert (type(error), error.kind, error.byte_pos) == (type(whole.error), whole.error.kind, whole.error.byte_pos)
        assert error.position == whole.error.position
    # Whatever stands in a file, the listing and the look-ups come to an end with an answer or one of our errors.
    for ask in (lambda: log_bounds(path), lambda: offset_for_time(path, DEFAULT_TIMESTAMP + 5)):
        with contextlib.suppress(FastFetchError):
            ask()
    with contextlib.suppress(CorruptBatchError):
        committed = rows(read_log(path, isolation="read_committed"))
        assert committed == found[: len(committed)]
