"""Decompression bombs: batches with a right CRC that inflate to 1 GiB, and what decode() does with each, in a process of its own.

    python -m bench.bombs NAME FILE      # decode FILE, print one line of JSON

The child reads the bytes from a file, so that nothing it did before weighs on its memory: the growth is the peak of its resident
set during decode() less the resident set just before. Each bomb stands between two good batches: the first must be delivered, and
the error must say where the second begins (its CRC was right, so its end can be trusted).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import cramjam
import lz4.block  # type: ignore[import-untyped]

from bench.measure import Figure
from fastfetch.benchmark.clients import memory_bytes
from fastfetch.testing.batches import encode_batch

__all__ = ["BOMBS", "figures"]

GIB = 1 << 30
CAP = 64 << 20  # the default of decode(max_batch_bytes=...)
ALLOWED = CAP + (32 << 20)
GOOD = 3  # records in each good batch


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _zstd(*, declared: bool) -> bytes:
    """8192 run-length blocks of 128 KiB, four bytes each: the densest form the format has."""
    head = b"\xc0\x58" + GIB.to_bytes(8, "little") if declared else b"\x00\x58"
    block = (128 << 10) << 3 | 1 << 1
    blocks = GIB // (128 << 10)
    return (
        b"\x28\xb5\x2f\xfd"
        + head
        + (block.to_bytes(3, "little") + b"\0") * (blocks - 1)
        + (block | 1).to_bytes(3, "little")
        + b"\0"
    )


def _gzip() -> bytes:
    """One member; the deflate stream is 64 MiB of zeros, ended at a byte, sixteen times."""
    part = bytes(64 << 20)
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = deflate.compress(part) + deflate.flush(zlib.Z_FULL_FLUSH)
    crc = 0
    for _ in range(GIB // len(part)):
        crc = zlib.crc32(part, crc)
    trailer = crc.to_bytes(4, "little") + (GIB & 0xFFFFFFFF).to_bytes(4, "little")
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + body * (GIB // len(part)) + b"\x03\0" + trailer


def _lz4() -> bytes:
    block: bytes = lz4.block.compress(bytes(64 << 10), store_size=False)
    return b"\x04\x22\x4d\x18\x60\x40\x82" + (len(block).to_bytes(4, "little") + block) * (GIB >> 16) + bytes(4)


def _snappy_raw() -> bytes:
    """One zero, then copies of 64 bytes from one byte back. Snappy packs no denser than 1 : 21."""
    copies, rest = divmod(GIB - 1, 64)
    return _varint(GIB) + b"\0\0" + b"\xfe\1\0" * copies + bytes([(rest - 1) << 2 | 2]) + b"\1\0"


def _snappy_java() -> bytes:
    chunk = bytes(cramjam.snappy.compress_raw(bytes(32 << 10)))
    return b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + (len(chunk).to_bytes(4, "big") + chunk) * (GIB >> 15)


BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "zstd": ("zstd", lambda: _zstd(declared=False)),
    "zstd, size declared": ("zstd", lambda: _zstd(declared=True)),
    "gzip": ("gzip", _gzip),
    "lz4": ("lz4", _lz4),
    "snappy, Java framing": ("snappy", _snappy_java),
    "snappy, raw": ("snappy", _snappy_raw),
}


def _response(name: str) -> tuple[bytes, int]:
    """The records bytes, and how many of them are the bomb."""
    codec, make = BOMBS[name]
    payload = make()
    good = encode_batch([b"good"] * GOOD, codec=codec)
    bomb = encode_batch(
        payload=b"", base_offset=GOOD, codec=codec, count=1000, last_offset_delta=999, compressor=lambda _: payload
    )  # fmt: skip
    return good + bomb + encode_batch([b"good"] * GOOD, base_offset=GOOD + 1000, codec=codec), len(payload)


def _child(path: str) -> None:
    import fastfetch

    fastfetch.decode(encode_batch([b"warm"]))
    data = Path(path).read_bytes()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again at what is resident now
    before = memory_bytes("VmRSS")
    begun = time.perf_counter()
    decoded = fastfetch.decode(data)
    seconds = time.perf_counter() - begun
    grown = memory_bytes("VmHWM") - before
    error = decoded.error
    print(
        json.dumps({
            "error": type(error).__name__,
            "skip_trusted": getattr(error, "skip_trusted", None),
            "skip_to": getattr(error, "next_offset", None),
            "records": len(decoded),
            "next_offset": decoded.next_offset,
            "grown": grown,
            "seconds": seconds,
        })
    )  # fmt: skip


_WANTED = {
    "error": "BatchTooLargeError",
    "skip_trusted": True,
    "skip_to": GOOD + 1000,
    "records": GOOD,
    "next_offset": GOOD,
}


def figures() -> list[Figure]:
    """One figure a bomb: how far resident memory grew, in MiB. A wrong answer counts as unlimited growth."""
    out = []
    for name in BOMBS:
        title = f"{name}: 1 GiB in one batch"
        data, packed = _response(name)
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            done = subprocess.run(
                [sys.executable, "-m", "bench.bombs", name, file.name], capture_output=True, text=True, check=False
            )
        if done.returncode:
            why = f"the process ended with {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1]}"
            out.append(Figure("bomb", title, (float("inf"),), "MiB", "<=", ALLOWED >> 20, why))
            continue
        got = json.loads(done.stdout)
        wrong = [f"{key} is {got[key]!r}, not {wanted!r}" for key, wanted in _WANTED.items() if got[key] != wanted]
        grown = float("inf") if wrong else got["grown"] / (1 << 20)
        detail = "; ".join(wrong) or f"{got['error']} in {got['seconds'] * 1000:.0f} ms, from {packed / 1000:,.0f} kB"
        out.append(Figure("bomb", title, (grown,), "MiB", "<=", ALLOWED >> 20, detail))
    return out


if __name__ == "__main__":
    _child(sys.argv[2])
