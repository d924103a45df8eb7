"""Folders of segments for the tests of the command line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fastfetch.testing import control_batch, encode_batch

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIME = 1_700_000_000_000


def value(offset: int) -> bytes:
    return b"value %d" % offset


def batch(first: int, n: int = 10, codec: str = "none", **options: object) -> bytes:
    """Records `first` to `first + n - 1`, a second apart, each with a key and on the even ones a header."""
    rows = [
        (b"k%d" % o, value(o), TIME + 1000 * o, [("h", b"x"), ("h", None)] if o % 2 == 0 else []) for o in range(first, first + n)
    ]
    return encode_batch(rows, base_offset=first, codec=codec, leader_epoch=4, **options)  # type: ignore[arg-type]


def write(folder: Path, segments: dict[int, Iterable[bytes]]) -> Path:
    folder.mkdir(exist_ok=True)
    for base, batches in segments.items():
        (folder / f"{base:020d}.log").write_bytes(b"".join(batches))
    return folder


def orders(tmp_path: Path) -> Path:
    """`orders-3`, offsets 0 to 199 in two segments, every codec."""
    batches = [batch(o, codec=CODECS[o // 10 % 5]) for o in range(0, 200, 10)]
    return write(tmp_path / "orders-3", {0: batches[:10], 100: batches[10:]})


def transactions(tmp_path: Path) -> Path:
    """`tx-0`: 0 to 9 committed, 11 to 20 aborted, 22 to 31 open; 10 and 21 are markers."""
    return write(
        tmp_path / "tx-0",
        {
            0: [
                batch(0, producer_id=1, transactional=True),
                control_batch("commit", producer_id=1, base_offset=10),
                batch(11, producer_id=1, transactional=True),
                control_batch("abort", producer_id=1, base_offset=21),
                batch(22, producer_id=1, transactional=True),
            ]
        },
    )
