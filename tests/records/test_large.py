"""Inputs beyond 2 GiB: starts inside a block are 32 bits wide, so a block has to end before that.

The input is a sparse file; with CRCs unchecked only the pages that hold headers are ever touched.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from building import batch, zigzag

import fastfetch

GIB = 1 << 30


def ends(size: int) -> tuple[bytes, bytes]:
    """First and last bytes of a batch of one record whose value is `size` zero bytes, and which is never made."""
    head = b"\0\0\0\1" + zigzag(size)  # attributes, deltas, null key, value length
    tail = b"\0"  # no headers
    record_head = zigzag(len(head) + size + len(tail)) + head
    whole = batch(record_head, 1, length=49 + len(record_head) + size + len(tail))
    return whole, tail


@contextmanager
def sparse(path: Path, sizes: list[int]) -> Iterator[mmap.mmap]:
    with path.open("w+b") as file:
        at = 0
        for base, size in enumerate(sizes):
            head, tail = ends(size)
            file.seek(at)
            file.write(base.to_bytes(8, "big") + head[8:])
            file.seek(at + len(head) + size)
            file.write(tail)
            at = file.tell()
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def test_blocks_end_before_their_starts_overflow(tmp_path: Path):
    sizes = [10, GIB - 200, GIB - 100, 5, GIB, 7]
    with sparse(tmp_path / "segment", sizes) as data:
        assert len(data) > 3 * GIB
        decoded = fastfetch.decode(data, check_crcs=False)
        assert decoded.error is None
        assert (decoded.next_offset, decoded.consumed) == (len(sizes), len(data))
        offsets, lengths = [], []
        for block in decoded.blocks:
            assert len(block.data) < 1 << 31
            for start, length in zip(block.value_starts.tolist(), block.value_lengths.tolist(), strict=True):
                assert 0 <= start <= len(block.data) - length
                assert block.data[start + length] == 0  # the header count
            offsets += block.offsets.tolist()
            lengths += block.value_lengths.tolist()
        assert (offsets, lengths) == (list(range(len(sizes))), sizes)
        assert len(decoded.blocks) > 1
        small = decoded.blocks[-1][-1]
        assert small.value == bytes(7)
        del decoded, block, small
