"""The decoder's times are estimates made of few looks at the clock: which batches are looked at is known exactly, what comes of
it roughly."""

from __future__ import annotations

import random
import time

import pytest

import fastfetch
from fastfetch.testing import encode_batch

TIMED_EVERY = 1 << 18  # bytes


def values(count: int, size: int) -> list[bytes]:
    rng = random.Random(1)
    return [rng.randbytes(size // 2) + bytes(size // 2) for _ in range(count)]


def times(data: bytes, **settings: object) -> tuple[int, int, int]:
    stats = fastfetch.decode(data, **settings).stats  # type: ignore[arg-type]
    return stats.crc_ns, stats.inflate_ns, stats.walk_ns


def moved(data: bytes, offset: int) -> bytes:
    """The same batch at another offset, which the CRC does not cover."""
    return offset.to_bytes(8, "big") + data[8:]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_small_batches_are_timed_as_often_as_they_are_large(codec: str) -> None:
    data = encode_batch(values(10, 200), codec=codec)
    expected = 8192 * (len(data) + 64 * 10) / TIMED_EVERY
    timed = sum(any(times(moved(data, 10 * n))) for n in range(8192))
    assert expected / 2 < timed < expected * 2


@pytest.mark.parametrize(("count", "size"), [(100, 4000), (5000, 2)])
def test_every_large_batch_is_timed_and_every_one_of_many_records(count: int, size: int) -> None:
    data = encode_batch(values(count, size))
    assert len(data) + 64 * count > TIMED_EVERY
    assert all(times(moved(data, count * n))[2] > 0 for n in range(100))


def test_each_stage_has_its_own_time() -> None:
    large = values(1500, 400)
    crc, inflate, walk = times(encode_batch(large))
    assert (crc > 0, inflate, walk > 0) == (True, 0, True)
    crc, inflate, walk = times(encode_batch(large, codec="zstd"))
    assert min(crc, inflate, walk) > 0
    crc, inflate, walk = times(encode_batch(large), position=1500)
    assert (crc > 0, inflate, walk) == (True, 0, 0), "below the position: nothing but the CRC is looked at"


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_the_sums_come_near_the_truth(codec: str) -> None:
    """20 MB in batches of 2 kB, one in a hundred of them timed."""
    one = encode_batch(values(10, 400), codec=codec)
    estimate = spent = 0
    for part in range(20):
        data = b"".join(moved(one, 10 * (256 * part + n)) for n in range(256))
        begun = time.thread_time_ns()
        decoded = fastfetch.decode(data)
        spent += time.thread_time_ns() - begun
        estimate += decoded.stats.crc_ns + decoded.stats.inflate_ns + decoded.stats.walk_ns
    assert spent / 8 < estimate < spent * 8


def test_threads_add_their_times_up() -> None:
    data = b"".join(moved(encode_batch(values(1500, 400), codec="zstd"), 1500 * n) for n in range(8))
    # The least of several: other programs may have had a turn in the others.
    alone = [min(column) for column in zip(*(times(data) for _ in range(9)), strict=True)]
    shared = [min(column) for column in zip(*(times(data, threads=2) for _ in range(9)), strict=True)]
    for one, two in zip(alone, shared, strict=True):
        assert one / 4 < two < one * 4
