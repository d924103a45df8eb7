"""The examples of examples/c_api find what Python finds: run by tests/test_packaging.py where they and fastfetch are installed.

python agree.py keysizes | longs | hours | segments PROGRAM FOLDER
"""

from __future__ import annotations

import re
import subprocess
import sys
from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import fastfetch
from fastfetch.testing import control_batch, encode_batch

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HOUR = 3_600_000
START = 1_700_000_000_000


def log(turns: int = 10) -> bytes:
    """Batches of all codecs: keys that repeat, null keys and values, times that go back and forth, a marker."""
    out, offset = [], 0
    for turn in range(turns):
        rows = [
            (
                None if i % 7 == 0 else b"key %d" % (i % 13),
                None if i % 11 == 0 else b"v" * i,
                START + (turn * i * HOUR) // 9,
                [("h", b"x")],
            )
            for i in range(100)
        ]
        out.append(encode_batch(rows, base_offset=offset, codec=CODECS[turn % 5]))
        offset += len(rows)
    out.append(control_batch("commit", producer_id=1, base_offset=offset))
    return b"".join(out)


def fails(call: Callable[[], object], kind: type[Exception], part: str) -> None:
    with pytest.raises(kind, match=re.escape(part)):
        call()


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def keysizes() -> None:
    import keysizes

    def fnv(key: bytes) -> int:
        value = 0xCBF29CE484222325
        for byte in key:
            value = (value ^ byte) * 0x100000001B3 % 2**64
        return value

    def by_python(blocks: list[fastfetch.RecordBlock]) -> list[int]:
        totals = [0] * 64
        for key, value in ((r.key, r.value) for block in blocks for r in block):
            totals[fnv(key or b"") % 64] += len(key or b"") + len(value or b"")
        return totals

    data = log()
    decoded = fastfetch.decode(data)
    wanted = by_python(decoded.blocks)
    assert keysizes.bucket(b"key 5", 64) == fnv(b"key 5") % 64
    totals = array("q", bytes(8 * 64))
    for block in decoded.blocks:
        keysizes.add_block(totals, block)
    assert totals.tolist() == wanted
    half = array("q", bytes(8 * 64))
    for block in decoded.blocks:
        keysizes.add_block(half, block[: len(block) // 2])
        keysizes.add_block(half, block[len(block) // 2 :].detach())
    assert half == totals
    totals = array("q", bytes(8 * 64))
    assert keysizes.add_bytes(totals, data) == (1000, decoded.next_offset, None)
    assert totals.tolist() == wanted
    totals = array("q", bytes(8 * 64))
    records, position, error = keysizes.add_bytes(totals, flipped(data, len(data) // 2), position=50)
    bad = fastfetch.decode(flipped(data, len(data) // 2), position=50)
    assert (records, position, error) == (len(bad), bad.next_offset, str(bad.error))
    assert totals.tolist() == by_python(bad.blocks)
    fails(lambda: keysizes.add_block(totals, data), TypeError, "RecordBlock")
    fails(lambda: keysizes.add_block(array("d", [0]), decoded.blocks[0]), TypeError, "int64")
    fails(lambda: keysizes.add_bytes(array("q"), data), TypeError, "int64")
    fails(lambda: keysizes.add_bytes(bytes(8), data), BufferError, "writable")


def longs() -> None:
    import longs

    numbers = [0, 1, -1, 2**63 - 1, -(2**63), 123456789, None, 42]
    rows = [(None, None if n is None else n.to_bytes(8, "big", signed=True)) for n in numbers]
    for codec in CODECS:
        [block] = fastfetch.decode(encode_batch(rows, base_offset=70, codec=codec)).blocks
        for piece, wanted in ((block, numbers), (block[2:], numbers[2:]), (block[3:7], numbers[3:7]), (block[4:4], [])):
            found, is_null = longs.values(piece)
            assert found.dtype == "int64"
            assert [None if null else n for n, null in zip(found.tolist(), is_null.tolist(), strict=True)] == wanted
    [block] = fastfetch.decode(encode_batch([*rows, b"seven b"], base_offset=70)).blocks
    fails(lambda: longs.values(block), ValueError, "the value at offset 78 has 7 bytes, not 8")
    fails(lambda: longs.values(None), TypeError, "None")


def hours() -> None:
    import hours

    data = log()
    times = Counter((r.timestamp - START) // HOUR for r in fastfetch.decode(data))
    counts, outside = hours.histogram(data, START, 24)
    assert counts.tolist() == [times[hour] for hour in range(24)]
    assert outside == sum(records for hour, records in times.items() if hour >= 24) > 0
    assert hours.histogram(data, START + HOUR, 1)[0].tolist() == [times[1]]
    counts, outside = hours.histogram(data, START - 1000, 2000, 60_000)
    by_minute = Counter((r.timestamp - START + 1000) // 60_000 for r in fastfetch.decode(data))
    assert (counts.tolist(), outside) == (
        [by_minute[minute] for minute in range(2000)],
        1000 - sum(by_minute[m] for m in range(2000)),
    )
    assert hours.histogram(b"", START, 3) == (array("q", [0, 0, 0]), 0)
    first = encode_batch([b"v"] * 5)
    assert hours.histogram(first + data[:-1], 0, 1)[1] == 1005  # the marker at the end is cut off
    fails(lambda: hours.histogram(first + flipped(first, 70), 0, 1), ValueError, f"CRC mismatch at byte {len(first)}")
    fails(lambda: hours.histogram(b"", 0, 0), ValueError, "at least 1")


def segments(program: str, folder: str) -> None:
    """With more threads than files, and fewer; a file that is empty, one that ends within a batch, one that is damaged."""
    batches = log()
    logs = {"whole": batches, "cut": batches[:-1], "empty": b"", "bad": flipped(batches, len(batches) // 2)}
    wanted = set()
    for name, data in logs.items():
        file = Path(folder) / f"{name}.log"
        file.write_bytes(data)
        decoded = fastfetch.decode(data)
        wanted.add(f"{file} {len(decoded)} {sum(len(r.value or b'') for r in decoded)}")
    for threads in ("1", "3", "16"):
        files = [str(Path(folder) / f"{name}.log") for name in logs]
        done = subprocess.run([program, threads, *files], capture_output=True, text=True, check=False)
        assert set(done.stdout.splitlines()) == wanted, done
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "bad.log: CRC mismatch" in done.stderr, done.stderr
        done = subprocess.run([program, threads, files[0]], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    assert subprocess.run([program, "1", "absent"], capture_output=True, check=False).returncode == 1
    assert subprocess.run([program, "0", "absent"], capture_output=True, check=False).returncode == 2


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
