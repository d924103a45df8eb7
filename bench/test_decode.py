"""pytest-benchmark over the decode path: `python -m pytest bench --benchmark-only`, `--benchmark-compare` against an older run.

The verdicts come from figures.py, where contenders alternate; here each is timed alone, which is what one wants while changing
a kernel. `extra_info` has ns per record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fastfetch
from bench.corpus import CORPORA, Corpus, corpus, wire_corpus
from fastfetch.benchmark.decoders import peer_decoder
from fastfetch.benchmark.floor import ALL, CRC, INFLATE, Floor, floor_codecs

DECODERS: dict[str, Callable[[bytes], object]] = {
    "fastfetch": fastfetch.decode,
    "aiokafka": peer_decoder("aiokafka"),
    "kafka-python": peer_decoder("kafka-python"),
}


def _note(benchmark: Any, data: Corpus) -> None:
    if benchmark.stats is not None:  # None with --benchmark-disable
        benchmark.extra_info["ns_per_record"] = round(benchmark.stats.stats.median / data.records * 1e9, 1)


def _floor(data: Corpus) -> Floor:
    if data.codec not in floor_codecs():
        pytest.skip(f"the C library for {data.codec} is not on this machine")
    return Floor(data)


@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.parametrize("decoder", DECODERS)
def test_decode(benchmark: Any, name: str, decoder: str) -> None:
    data = corpus(name)
    benchmark.group = data.title
    decode = DECODERS[decoder]
    rounds = {"kafka-python": 3, "aiokafka": 7}.get(decoder, 30)
    benchmark.pedantic(decode, (data.data,), rounds=rounds, warmup_rounds=1)
    _note(benchmark, data)


@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.parametrize("stages", [CRC, CRC | INFLATE, ALL], ids=["crc", "crc+inflate", "floor"])
def test_floor(benchmark: Any, name: str, stages: int) -> None:
    data = corpus(name)
    benchmark.group = data.title
    benchmark.pedantic(_floor(data), (stages,), rounds=30, warmup_rounds=1)
    _note(benchmark, data)


@pytest.mark.parametrize("name", CORPORA)
def test_the_floor_decodes_what_we_decode(name: str) -> None:
    data = corpus(name)
    decoded = fastfetch.decode(data.data)
    decoded.raise_for_error()
    assert len(decoded) == data.records
    assert decoded.next_offset == data.records
    _floor(data).compare(decoded.blocks)


@pytest.mark.parametrize("name", ["json-none", "json-lz4", "100b-lz4", "1kb-none"])
@pytest.mark.parametrize("call", ["keys", "values", "headers", "records"])
def test_objects(benchmark: Any, name: str, call: str) -> None:
    """Python objects from decoded blocks; decoding itself is not timed here."""
    data = corpus(name)
    benchmark.group = f"objects: {data.title}"
    blocks = fastfetch.decode(data.data).blocks

    def make() -> None:
        for block in blocks:
            getattr(block, call)()

    benchmark.pedantic(make, rounds=20, warmup_rounds=1)
    _note(benchmark, data)


@pytest.mark.parametrize("name", ["json-none", "json-lz4", "json-zstd"])
@pytest.mark.parametrize("threads", [1, 2])
def test_threads(benchmark: Any, name: str, threads: int) -> None:
    data = wire_corpus(name, 16 << 20)
    benchmark.group = f"threads: {data.title}, 16 MiB"
    benchmark.pedantic(fastfetch.decode, (data.data,), {"threads": threads}, rounds=10, warmup_rounds=1)
    _note(benchmark, data)
