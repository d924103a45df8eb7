"""Decoders in turns: fastfetch, the floor and the peers' over the same pieces, in this one process.

In one process, because nothing but decoding is to be compared: the bytes are there and in the same state of the caches for all,
and no start of a process or broker is in it. The garbage collector is off meanwhile. A turn goes through the pieces again and
again until its time is up; a slow decoder does not get through all of them, and what is compared is the time of a record. What a
decoder returns is dropped within its turn, and how many records it found is compared with how many there are.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from fastfetch.benchmark.consuming import Before
from fastfetch.benchmark.contest import ReadingError, alternate, gc_off
from fastfetch.benchmark.decoders import PEERS, fastfetch_decoder, peer_decoder
from fastfetch.benchmark.external import ToolError
from fastfetch.benchmark.floor import Floor, FloorError, floor_codecs
from fastfetch.benchmark.material import Piece
from fastfetch.benchmark.results import FASTFETCH, Failure, Reading

__all__ = ["FLOOR", "decode_in_turns", "entries"]

FLOOR = "floor"
# One call for each piece; it returns the number of records.
Calls: TypeAlias = list[Callable[[], int]]


def entries(case: str, pieces: Sequence[Piece], threads: int) -> tuple[dict[str, Calls], list[Failure]]:
    """Who decodes these pieces, ourselves first, and who can't. Peers have one thread, and are asked only where we have one."""
    calls: dict[str, Calls] = {FASTFETCH: [partial(fastfetch_decoder(threads), piece.data) for piece in pieces]}
    failed = []
    for name in (FLOOR, *PEERS) if threads == 1 else (FLOOR,):
        try:
            calls[name] = _floors(pieces) if name == FLOOR else [partial(peer_decoder(name), piece.data) for piece in pieces]
        except ToolError as error:
            failed.append(Failure(None, name, str(error)))
        except FloorError as error:
            failed.append(Failure(case, name, str(error)))
    return calls, failed


def _floors(pieces: Sequence[Piece]) -> Calls:
    codec = pieces[0].codec
    if codec not in floor_codecs():
        raise FloorError(f"floor: it has nothing that inflates {codec} on this machine")
    floor, out = None, {}
    for piece in sorted(pieces, key=lambda each: (-each.inflated, -each.records)):
        out[id(piece)] = floor = Floor(piece, floor)
    return [out[id(piece)] for piece in pieces]


def decode_in_turns(
    case: str, pieces: Sequence[Piece], calls: Mapping[str, Calls], rounds: int, seconds: float, before: Before | None = None
) -> Iterator[tuple[int, str, Reading | ReadingError]]:
    """Let them have turns of so many seconds: (round, client, reading). Those of round 0 don't count."""

    def go(client: str, turn: int) -> Reading:
        return _turn(case, client, turn, pieces, calls[client], seconds)

    with gc_off():
        yield from alternate(list(calls), rounds, go, before=before)


def _turn(case: str, client: str, turn: int, pieces: Sequence[Piece], calls: Calls, seconds: float) -> Reading:
    records = wire = inflated = 0
    cpu, begun = time.process_time(), time.perf_counter()
    for piece, call in itertools.cycle(zip(pieces, calls, strict=True)):
        try:
            found = call()
        except Exception as error:  # a peer's own
            raise ReadingError(f"{client} could not decode {piece.name}: {type(error).__name__}: {error}") from error
        if found != piece.records:
            raise ReadingError(f"{client} found {found} of the {piece.records} records of {piece.name}")
        records += found
        wire += len(piece.data)
        inflated += piece.inflated
        if (took := time.perf_counter() - begun) >= seconds:
            break
    return Reading(case, client, turn, records, took, time.process_time() - cpu, wire, inflated)
