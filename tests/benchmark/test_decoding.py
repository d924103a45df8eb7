"""Decoders in turns, the floor they are compared with, and what is said of those that can't take part."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import fastfetch
from fastfetch.benchmark import decoders, floor
from fastfetch.benchmark.contest import ReadingError
from fastfetch.benchmark.decoders import PEERS, fastfetch_decoder, peer_decoder
from fastfetch.benchmark.decoding import FLOOR, decode_in_turns, entries
from fastfetch.benchmark.external import ToolError
from fastfetch.benchmark.floor import Floor, FloorError
from fastfetch.benchmark.material import Piece
from fastfetch.benchmark.results import Failure, Reading
from fastfetch.testing import encode_batch, message_set

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def piece(codec: str = "lz4", records: int = 20, batches: int = 3) -> Piece:
    data = b"".join(encode_batch([b"value" * 20] * records, base_offset=n * records, codec=codec) for n in range(batches))
    plain = len(encode_batch([b"value" * 20] * records)) * batches
    return Piece(f"t-0, {codec}", codec, data, records * batches, plain)


@pytest.mark.parametrize("codec", CODECS)
def test_each_decoder_finds_every_record_and_notices_damage(codec: str) -> None:
    whole = piece(codec)
    damaged = whole.data[:-1] + bytes([whole.data[-1] ^ 1])
    for decode in (fastfetch_decoder(), fastfetch_decoder(2), *map(peer_decoder, PEERS)):
        assert decode(whole.data) == whole.records
        with pytest.raises(Exception, match="CRC"):
            decode(damaged)


@pytest.mark.parametrize("threads", [1, 2])
def test_they_take_turns_and_what_they_did_is_counted(threads: int) -> None:
    pieces = [piece("none"), piece("lz4", 7), piece("lz4", 200)]
    calls, failed = entries("case", pieces[1:], threads)
    assert list(calls) == ["fastfetch", FLOOR, *(PEERS if threads == 1 else ())]
    assert failed == []
    outcomes = list(decode_in_turns("case", pieces[1:], calls, rounds=2, seconds=0.02))
    assert [(turn, client) for turn, client, _ in outcomes[len(calls) : 2 * len(calls)]] == [(1, client) for client in calls]
    for turn, client, got in outcomes:
        assert isinstance(got, Reading)
        assert (got.case, got.client, got.round) == ("case", client, turn)
        assert got.seconds >= 0.02
        assert got.cpu_seconds is not None
        assert got.cpu_seconds > 0
        # Pieces one after the other, and again from the first on.
        rounds, rest = divmod(got.records, 21 + 600)
        assert rest in (0, 21)
        assert got.wire_bytes == rounds * (len(pieces[1].data) + len(pieces[2].data)) + (len(pieces[1].data) if rest else 0)
        assert got.inflated_bytes == rounds * (pieces[1].inflated + pieces[2].inflated) + (pieces[1].inflated if rest else 0)


def test_a_decoder_that_finds_too_few_has_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoders, "_decode", lambda kind, data: 1)
    calls, _ = entries("case", [piece()], 1)
    outcomes = {client: str(got) for _, client, got in decode_in_turns("case", [piece()], calls, rounds=1, seconds=0)}
    assert outcomes["aiokafka"] == "aiokafka found 1 of the 60 records of t-0, lz4"
    assert "ReadingError" not in outcomes["fastfetch"]


def test_a_decoder_that_raises_has_lost() -> None:
    whole = piece()
    broken = Piece(whole.name, whole.codec, whole.data[:-1] + b"?", whole.records, whole.inflated)
    calls, failed = entries("case", [broken], 1)
    assert [(failure.case, failure.client) for failure in failed] == [("case", FLOOR)]
    outcomes = list(decode_in_turns("case", [broken], calls, rounds=3, seconds=0))
    assert {client for _, client, _ in outcomes} == {"fastfetch", *PEERS}
    assert all(isinstance(got, ReadingError) for _, _, got in outcomes)
    assert len(outcomes) == 3


def test_old_formats_have_no_floor() -> None:
    data = message_set([b"v"] * 5, magic=1)
    calls, failed = entries("case", [Piece("t-0", "none, format 1", data, 5, len(data))], 1)
    assert list(calls) == ["fastfetch", *PEERS]
    [failure] = failed
    assert failure.client == FLOOR


def test_what_is_not_here_is_left_out_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise ImportError("no such module")

    monkeypatch.setitem(decoders.PEERS, "aiokafka", absent)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    floor._load.cache_clear()
    try:
        calls, failed = entries("case", [piece()], 1)
    finally:
        floor._load.cache_clear()
    assert list(calls) == ["fastfetch", "kafka-python"]
    assert failed[1] == Failure(None, "aiokafka", "aiokafka: it is not installed")
    assert failed[0].why.startswith("the floor needs a C compiler: ")


def test_a_floor_that_cannot_be_compiled_says_what_the_compiler_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(floor, "_FLAGS", [*floor._FLAGS, "-DEXPORT=nonsense"])
    floor._load.cache_clear()
    try:
        with pytest.raises(ToolError, match=r"the floor could not be compiled: .*EXPORT.*redefined"):
            floor.floor_codecs()
    finally:
        floor._load.cache_clear()


def test_the_floor_decodes_what_we_decode_also_into_buffers_that_it_was_lent() -> None:
    large, small = piece("lz4", 100), piece("lz4", 3)
    lender = Floor(large)
    borrower = Floor(small, lender)
    assert borrower.arena is lender.arena
    for of, data in ((borrower, small), (lender, large), (borrower, small)):
        of.compare(fastfetch.decode(data.data).blocks)
    assert Floor(large, Floor(small)).arena.size > borrower.arena.size - 65536 > 0
    with pytest.raises(FloorError, match="the decoder found 0 records, the floor 300"):
        lender.compare([])


def test_a_floor_of_the_wrong_data_is_noticed() -> None:
    whole = piece()
    with pytest.raises(FloorError, match="the floor found 60 of the 61 records of t-0, lz4"):
        Floor(Piece(whole.name, whole.codec, whole.data, 61, whole.inflated))
    shifted = encode_batch([b"value" * 20] * 60, base_offset=5)
    with pytest.raises(FloorError, match="disagree about offsets"):
        Floor(piece()).compare(fastfetch.decode(shifted).blocks)
