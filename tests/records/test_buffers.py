"""Memory that is used again: only what nothing refers to, and only what was produced is seen of it."""

from __future__ import annotations

import gc
import random

from building import LZ4, NONE, batch, record

import fastfetch
from fastfetch.records import trim


def response(seed: int, records: int = 200) -> tuple[bytes, list[bytes]]:
    rng = random.Random(seed)
    values = [rng.randbytes(500) for _ in range(records)]
    return batch([record(i, value=value) for i, value in enumerate(values)], codec=LZ4), values


def test_a_block_that_is_kept_is_not_written_over():
    (first, first_values), (second, second_values) = response(1), response(2)
    kept = fastfetch.decode(first).blocks[0]
    for _ in range(20):
        assert fastfetch.decode(second).blocks[0].values() == second_values
    assert kept.values() == first_values
    assert kept.offsets.tolist() == list(range(200))


def test_a_column_keeps_its_slab_when_the_block_is_gone():
    first, _ = response(1)
    offsets = fastfetch.decode(first).blocks[0].offsets
    data = fastfetch.decode(first).blocks[0].data
    copy = bytes(data)
    for seed in range(20):
        fastfetch.decode(response(seed, 300)[0])
    assert offsets.tolist() == list(range(200))
    assert data == copy


def test_memory_goes_back_to_the_next_call_and_then_to_the_system():
    trim()
    first, _ = response(1)
    block = fastfetch.decode(first).blocks[0]
    assert trim() == 0, "what is in use was given away"
    pinned = block.pinned_bytes
    del block
    gc.collect()
    assert trim() >= pinned - len(first)
    assert trim() == 0


def test_only_what_was_produced_is_seen():
    """An arena is larger than its content, and was used for something else before."""
    first, values = response(1)
    fastfetch.decode(first)
    short = batch([record(value=b"short")], codec=LZ4)
    assert len(fastfetch.decode(short).blocks[0].data) < 64
    plain = batch([record(value=b"short")], codec=NONE)
    assert len(fastfetch.decode(plain).blocks[0].data) == len(plain)
    assert fastfetch.decode(first).blocks[0].values() == values
