"""Whole classes of damage to small batches: every truncation, every flipped bit, every byte value behind a right CRC."""

from __future__ import annotations

import pytest
import reference
from building import CODECS, LZ4, batch, control, message, record, records, repaired, wrapper
from codecs_reference import provider
from exact import SANITIZED, Guarded, exactly
from sandwich import AFTER, txn

import fastfetch

EXHAUSTIVE = {
    **{f"format 2 {name}": batch(records(3), 3, codec=codec, base=5) for name, codec in CODECS.items()},
    "headers": batch([record(headers=[(b"a", b"1"), (b"b", None)])]),
    "transactional": txn(3),
    "marker": control(0, base=3),
    "empty": batch(b"", 0, base=3, last=4),
    "format 0": message(3, 0),
    "format 1": message(3, 1),
    "format 0 gzip": wrapper(4, 0, message(3, 0) + message(4, 0)),
    "format 1 lz4": wrapper(4, 1, message(0, 1) + message(1, 1), codec=LZ4),
}
ARGUMENTS = {"isolation": "read_committed", "aborted": [(7, 9)]}


@pytest.mark.parametrize("name", EXHAUSTIVE)
def test_every_truncation(name: str):
    """At a guard page, so that reading one byte too many is a crash."""
    data = EXHAUSTIVE[name]
    guarded = Guarded(1 << 16)
    for cut in range(len(data)):
        for before in (0, len(data)):
            whole = data[:before] + data[:cut]
            if SANITIZED:
                with exactly(whole) as view:
                    seen = reference.seen(fastfetch.decode(view, **ARGUMENTS))
            else:
                seen = reference.seen(fastfetch.decode(guarded(whole), **ARGUMENTS))
            assert seen.error is None
            assert seen.consumed == before


@pytest.mark.parametrize("name", EXHAUSTIVE)
def test_every_bit_flip(name: str):
    """In what the CRC covers it is found by the CRC; elsewhere the outcome is the oracle's. No wrong record, ever."""
    data = EXHAUSTIVE[name]
    covered = 17 if data[16] == 2 else 12
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        flipped = bytes(flipped) + AFTER
        seen = reference.seen(fastfetch.decode(flipped, **ARGUMENTS))
        if bit // 8 >= covered and bit // 8 != 16:
            assert seen.error is not None
            assert (seen.error.kind, seen.records) == ("crc", []), bit
        oracle = reference.decode(flipped, **ARGUMENTS)
        assert (seen.records, seen.next_offset, seen.consumed) == (oracle.records, oracle.next_offset, oracle.consumed), bit
        assert seen.error == oracle.error, bit


@pytest.mark.parametrize("codecs", ["system", "python"])
@pytest.mark.parametrize("name", EXHAUSTIVE)
def test_every_byte_set_to_many_values_behind_a_right_crc(name: str, codecs: str):
    """What a CRC does not catch: bytes changed at each place, the CRC made right again."""
    data = EXHAUSTIVE[name]
    with provider(codecs):
        for at in range(17 if data[16] == 2 else 16, len(data)):
            for value in {*range(at % 9, 256, 9), 0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 1, data[at] ^ 0x80}:
                changed = bytearray(data)
                changed[at] = value
                if changed[16] > 2:
                    continue
                entry = repaired(bytes(changed)) + AFTER
                seen, oracle = reference.seen(fastfetch.decode(entry, **ARGUMENTS)), reference.decode(entry, **ARGUMENTS)
                assert seen.records == oracle.records, (at, value)
                assert (seen.next_offset, seen.error) == (oracle.next_offset, oracle.error), (at, value)
