"""Small batches that inflate to 1 GiB: an error with a trusted skip target, in bounded memory and time.

Each runs in a process of its own, which reports how far its resident memory grew: at most by the limit and 32 MiB.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import lz4.block
import pytest
from building import GZIP, LZ4, SNAPPY, ZSTD, batch, lz4_frame, raw_snappy, record, xerial
from exact import SANITIZED, child_environment

import fastfetch

MIB = 1 << 20
SLACK = 32 * MIB

RUN = """
import json, resource, sys, time
import fastfetch
path, limit, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
data = open(path, "rb").read()
fastfetch.decode(data[:70])
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before, begun = peak(), time.perf_counter()
for _ in range(times):
    d = fastfetch.decode(data, position=0, max_batch_bytes=limit)
print(json.dumps({
    "grown": peak() - before, "seconds": (time.perf_counter() - begun) / times, "records": len(d), "next": d.next_offset,
    "error": type(d.error).__name__, "limit": getattr(d.error, "limit", None), "skip": d.error.next_offset if d.error else None,
    "trusted": d.error.skip_trusted if d.error else None,
}))
"""


def zstd_runs(mib: int) -> bytes:
    """Eight runs of 128 KiB a mebibyte: 33 kB for 1 GiB."""
    blocks = [(i == 8 * mib - 1) | 1 << 1 | (1 << 17) << 3 for i in range(8 * mib)]
    return b"\x28\xb5\x2f\xfd\0\x58" + b"".join(block.to_bytes(3, "little") + b"\0" for block in blocks)


def zstd_blocks(mib: int) -> bytes:
    """The same size from compressed blocks, which do not say how large they are: literals that are a run, and no sequences."""
    body = (1 | 3 << 2 | (1 << 17) - 1 << 4).to_bytes(3, "little") + b"\0" + b"\0"
    blocks = [((i == 8 * mib) | 2 << 1 | len(body) << 3).to_bytes(3, "little") + body for i in range(8 * mib + 1)]
    return b"\x28\xb5\x2f\xfd\0\x58" + b"".join(blocks)


def gzip_blocks(mib: int) -> bytes:
    """1 MB for 1 GiB: one byte-aligned deflate block of 1 MiB, again and again."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = deflate.compress(bytes(MIB)) + deflate.flush(zlib.Z_FULL_FLUSH)
    crc = 0
    for _ in range(mib):
        crc = zlib.crc32(bytes(MIB), crc)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + block * mib + b"\x03\0" + struct.pack("<II", crc, mib << 20 & 0xFFFFFFFF)


def lz4_blocks(mib: int) -> bytes:
    """4.4 MB for 1 GiB, in blocks of 4 MiB."""
    block = lz4.block.compress(bytes(4 * MIB), store_size=False)
    return lz4_frame((struct.pack("<I", len(block)) + block) * (mib // 4), b"\0\0\0\0", sizes=0x70)


def snappy_chunks(mib: int) -> bytes:
    """Snappy expands 21 times at most, and says so first."""
    return xerial(*[raw_snappy(bytes(MIB))] * mib)


BOMBS: dict[str, tuple[int, int, Callable[[int], bytes]]] = {
    "zstd": (ZSTD, 1024, zstd_runs),
    "zstd of compressed blocks": (ZSTD, 1024, zstd_blocks),
    "gzip": (GZIP, 1024, gzip_blocks),
    "lz4": (LZ4, 1024, lz4_blocks),
    "snappy framed": (SNAPPY, 1024, snappy_chunks),
    "snappy raw": (SNAPPY, 100, lambda mib: raw_snappy(bytes(mib * MIB))),
}


@pytest.mark.parametrize("name", BOMBS)
def test_the_bombs_are_real(name: str):
    """Four mebibytes of the same make inflate, to zeros that are no records: what is refused below is its size alone."""
    codec, _, payload = BOMBS[name]
    decoded = fastfetch.decode(batch(b"", 1, codec=codec, packed=payload(4)))
    assert decoded.error.kind == "record"
    assert 4 * MIB <= decoded.stats.inflated_bytes < 5 * MIB


def decode_in_a_process(data: bytes, path: Path, limit: int, provider: str, times: int = 1) -> dict[str, object]:
    path.write_bytes(data)
    command = [sys.executable, "-c", RUN, path, str(limit), str(times)]
    environment = child_environment(FASTFETCH_CODECS=provider)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is not ours")
@pytest.mark.parametrize("provider", ["system", "python"])
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_an_error_in_bounded_memory(name: str, provider: str, tmp_path: Path):
    codec, mib, payload = BOMBS[name]
    packed = payload(mib)
    assert len(packed) < 64 * MIB
    data = batch(b"", 1, codec=codec, packed=packed, last=9)
    got = decode_in_a_process(data, tmp_path / "bomb", 64 * MIB, provider)
    assert (got["error"], got["limit"]) == ("BatchTooLargeError", 64 * MIB)
    assert (got["records"], got["next"], got["skip"], got["trusted"]) == (0, 0, 10, True)
    assert got["grown"] <= 64 * MIB + SLACK
    assert got["seconds"] < 10  # on a busy machine; a second is the aim


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is not ours")
def test_the_memory_of_a_bomb_comes_back(tmp_path: Path):
    """The same bomb, twenty times: no more than once."""
    data = batch(b"", 1, codec=LZ4, packed=lz4_blocks(1024), last=9)
    assert decode_in_a_process(data, tmp_path / "bomb", 64 * MIB, "system", times=20)["grown"] <= 64 * MIB + SLACK


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is not ours")
@pytest.mark.parametrize("provider", ["system", "python"])
@pytest.mark.parametrize("name", ["zstd of compressed blocks", "gzip", "lz4"])
def test_memory_follows_the_limit(name: str, provider: str, tmp_path: Path):
    codec, mib, payload = BOMBS[name]
    data = batch(b"", 1, codec=codec, packed=payload(mib), last=9)
    got = decode_in_a_process(data, tmp_path / "bomb", 8 * MIB, provider)
    assert (got["error"], got["limit"]) == ("BatchTooLargeError", 8 * MIB)
    assert got["grown"] <= 8 * MIB + SLACK


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is not ours")
def test_a_count_allocates_nothing_that_the_bytes_do_not_back(tmp_path: Path):
    """2^31 - 1 records declared in 80 bytes, 70 bytes inflated."""
    for codec in (0, GZIP, ZSTD):
        data = batch(record(), 2**31 - 1, last=2**31 - 1, codec=codec)
        got = decode_in_a_process(data, tmp_path / "count", 64 * MIB, "system")
        assert (got["error"], got["skip"]) == ("InvalidRecordError", 2**31)
        assert got["grown"] < 4 * MIB
