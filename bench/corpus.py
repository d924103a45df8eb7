"""Record sets for the benchmarks: the `records` bytes of one partition of a fetch response, the same on every machine.

What was chosen, because it decides the figures:

- A batch is closed at 16 KiB of *uncompressed* records, the Java producer's default `batch.size`. (With compression on, that
  producer packs until it expects 16 KiB of compressed bytes: larger batches, easier for a decoder.) Sets with "5 a batch" are
  closed after five records, as a producer without `linger.ms` writes them.
- Batches come from fastfetch.testing, which writes what the Java client writes: lz4 as one frame of independent 64 KiB blocks
  without sizes or checksums; zstd level 3 streamed without a content size; gzip level 6; snappy framed in 32 KiB chunks.
- JSON is an event of about 200 bytes with a key of 8 bytes; its fields are drawn from distributions like those of a web shop.
  The 100-byte values are lines of a metrics agent, the 1 KB values random letters; both without keys, as most such topics.
- A response has 4 MiB of records before compression; 1 MiB where Python objects are made of all of them (figures.py says why);
  16 MiB on the wire for the figure with two threads.
- Random numbers come from a seed; a set is cached in out/ under a hash of this file and of shapes.py.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cramjam

from fastfetch.benchmark import shapes
from fastfetch.benchmark.shapes import FIRST_TIMESTAMP_MS, json_events, letters, metric_lines
from fastfetch.testing.batches import encode_batch, encode_records, rebase

__all__ = ["CORPORA", "OUT", "Corpus", "corpus", "wire_corpus"]

OUT = Path(__file__).resolve().parent / "out"
BATCH_BYTES = 16384
RESPONSE_BYTES = 4 << 20
RECORD_OVERHEAD = 12  # what a record costs beside key and value, near enough to decide when a batch is full


@dataclass(frozen=True)
class Corpus:
    """One set. `records` and `batches` are counts, `inflated` the bytes of all records without batch headers."""

    name: str
    title: str
    codec: str
    data: bytes
    records: int
    batches: int
    inflated: int


@dataclass(frozen=True)
class _Recipe:
    title: str
    values: Callable[[random.Random], shapes.Pairs]
    codec: str
    per_batch: int | None = None


_RECIPES = {
    "json-none": _Recipe("JSON ~200 B, uncompressed", json_events, "none"),
    "json-lz4": _Recipe("JSON ~200 B, lz4", json_events, "lz4"),
    "json-zstd": _Recipe("JSON ~200 B, zstd", json_events, "zstd"),
    "100b-lz4": _Recipe("100 B values, lz4", metric_lines, "lz4"),
    "1kb-none": _Recipe("1 KB values, uncompressed", letters, "none"),
    "json-none-5": _Recipe("JSON, uncompressed, 5 a batch", json_events, "none", 5),
    "json-lz4-5": _Recipe("JSON, lz4, 5 a batch", json_events, "lz4", 5),
    "json-gzip": _Recipe("JSON ~200 B, gzip", json_events, "gzip"),
    "json-snappy": _Recipe("JSON ~200 B, snappy", json_events, "snappy"),
}
CORPORA = tuple(_RECIPES)


def _snappy_java(data: bytes) -> bytes:
    # The C library's matches; the encoder's own compressor is plain Python and looks for fewer.
    chunks = [bytes(cramjam.snappy.compress_raw(data[at : at + 32768])) for at in range(0, len(data), 32768)]
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(chunk)) + chunk for chunk in chunks)


def _build(name: str, inflated_bytes: int) -> Corpus:
    recipe = _RECIPES[name]
    rng = random.Random(1)
    pairs = recipe.values(rng)
    batches: list[bytes] = []
    offset = inflated = 0
    moment = FIRST_TIMESTAMP_MS
    while inflated < inflated_bytes:
        rows: list[tuple[bytes | None, bytes, int]] = []
        size = 0
        while len(rows) < recipe.per_batch if recipe.per_batch else size < BATCH_BYTES:
            moment += (offset + len(rows)) & 1
            key, value = next(pairs)
            rows.append((key, value, moment))
            size += len(key or b"") + len(value) + RECORD_OVERHEAD
        payload = encode_records(rows)[0]
        batches.append(
            encode_batch(
                rows,
                base_offset=offset,
                codec=recipe.codec,
                leader_epoch=0,
                compressor=_snappy_java if recipe.codec == "snappy" else None,
            )
        )
        offset += len(rows)
        inflated += len(payload)
    return Corpus(name, recipe.title, recipe.codec, b"".join(batches), offset, len(batches), inflated)


@functools.cache
def corpus(name: str, inflated_bytes: int = RESPONSE_BYTES) -> Corpus:
    """The set called `name`, one of CORPORA, with at least `inflated_bytes` of records; from out/ if it was made before."""
    version = hashlib.sha256(Path(__file__).read_bytes() + Path(shapes.__file__).read_bytes()).hexdigest()[:12]
    stem = f"{name}-{inflated_bytes >> 10}k"
    path = OUT / f"{stem}-{version}.pickle"
    if path.exists():
        return Corpus(*pickle.loads(path.read_bytes()))
    made = _build(name, inflated_bytes)
    OUT.mkdir(exist_ok=True)
    for old in OUT.glob(f"{stem}-*.pickle"):
        old.unlink()
    path.write_bytes(pickle.dumps(tuple(vars(made).values())))
    return made


@functools.cache
def wire_corpus(name: str, wire_bytes: int) -> Corpus:
    """`corpus(name)` repeated until it fills `wire_bytes` on the wire, offsets going on."""
    unit = corpus(name)
    times = -(-wire_bytes // len(unit.data))
    return Corpus(
        f"{name}-{wire_bytes >> 20}M", unit.title, unit.codec,
        b"".join(rebase(unit.data, turn * unit.records) for turn in range(times)),
        unit.records * times, unit.batches * times, unit.inflated * times,
    )  # fmt: skip
