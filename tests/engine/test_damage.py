"""Damaged answers through the whole engine: an error that is raised at the worst, never one out of the engine itself, which would
end the background thread."""

from __future__ import annotations

import random

import pytest

from fastfetch.errors import FastFetchError
from fastfetch.testing import encode_batch
from tests.engine.script import Script

CODECS = ("none", "gzip", "lz4", "zstd")


def damaged(rng: random.Random) -> bytes:
    """A few batches, some of them with a wrong count under a right CRC; then bits flipped, or the end cut off."""
    data = bytearray()
    for number in range(rng.randint(1, 3)):
        values = [bytes(rng.randrange(400)) for _ in range(rng.randint(1, 5))]
        count = rng.randint(-2, 8) if rng.random() < 0.4 else None
        data += encode_batch(values, base_offset=10 * number, codec=rng.choice(CODECS), count=count)
    if rng.random() < 0.6:
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data if rng.random() < 0.7 else data[: rng.randint(1, len(data))])


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
def test_damage_is_an_error_of_its_partition(on_corrupt: str, isolation_level: str) -> None:
    rng = random.Random(f"{on_corrupt} {isolation_level}")
    errors = 0
    for _ in range(100):
        s = Script(on_corrupt=on_corrupt, isolation_level=isolation_level)
        s.started()
        data = damaged(rng)
        last = -1
        for _ in range(4):
            s.run()
            for fetch in [asked for asked in s.asked if asked.api.name == "Fetch"]:
                s.fetched(fetch, {0: data}, high=rng.choice([0, 3, 25, 10**6]))
            for _, offset in s.take(rng.choice([None, 1, 3])):
                assert offset > last
                last = offset
            try:
                s.engine.raise_fault()
            except FastFetchError:
                errors += 1
        assert s.engine.fetcher.used_bytes >= 0
    assert errors > 20
