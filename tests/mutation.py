"""Damage that gets somewhere: mutations that know the format.

A flipped bit in a batch is found by its CRC, and nothing behind the CRC is ever reached. So a mutation here may change a header
field to a value that hurts, put records together wrongly, open a compressed payload, damage what is inside and pack it again; and
nine times in ten the CRC is made right afterwards. All randomness comes from the generator given: a seed repeats a run.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

from building import pack, padded, record, repaired, zigzag
from codecs_reference import Broken, TooLarge, inflate
from golden import cases, java_lines
from reference import Entry, entries

__all__ = ["mutated", "seeds"]

# position, struct format, values that hurt
FIELDS: tuple[tuple[int, str, tuple[int, ...]], ...] = (
    (0, ">q", (0, 1, -1, 2**63 - 1, 2**63 - 2, -(2**63), 2**31, 5)),
    (8, ">i", (-1, 0, 13, 14, 48, 49, 2**31 - 1, -(2**31))),
    (12, ">i", (-1, 0, 2**31 - 1)),
    (16, ">b", (0, 1, 2, 3, -1, 127)),
    (21, ">h", (0, 1, 2, 3, 4, 5, 7, 8, 0x10, 0x20, 0x30, 0x40, 0x18, 0x31, -1)),
    (23, ">i", (0, 1, -1, 5, 2**31 - 1, -(2**31))),
    (27, ">q", (0, -1, 2**63 - 1, -(2**63))),
    (35, ">q", (0, -1, 2**63 - 1, -(2**63))),
    (43, ">q", (-1, 0, 7, 1000, 2000, 2**63 - 1)),
    (57, ">i", (-1, 0, 1, 2, 3, 2**31 - 1, -(2**31), 2**30, 9)),
)
NUMBERS = (0, 1, -1, -2, 2, 3, 7, 63, 64, -64, -65, 127, 128, 2**31 - 1, -(2**31), 2**31, 2**32, 2**63 - 1, -(2**63), 2**64)


def seeds(limit: int = 4096) -> list[bytes]:
    """Golden data and vectors, small ones: all formats, all codecs, good and bad."""
    found = [line["set"] for line in java_lines().values() if len(line["set"]) <= limit]
    return [*found, *cases().values()]


def mutated(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """One to three mutations of `data`; `others` lend pieces."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choices(MUTATIONS, WEIGHTS)[0](data, others, rng)
    return data


# ------------------------------------------------------------------------------------------------------------ of bytes


def bytes_changed(data: bytes, rng: random.Random) -> bytes:
    """A few bytes flipped, set, taken out, repeated or put in, anywhere."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(6):
            case 0 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(out):
                out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                del out[at : at + rng.choice((1, 1, 2, 4, 16))]
            case 3:
                out[at:at] = out[at : at + rng.choice((1, 2, 8, 32))]
            case 4:
                out[at:at] = rng.randbytes(rng.choice((1, 1, 2, 8)))
            case _:
                number = rng.choice(NUMBERS)
                out[at : at + rng.choice((0, 1, 2))] = rng.choice((zigzag(number), padded(number, rng.randrange(1, 12))))
    return bytes(out)


def anywhere(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    return bytes_changed(data, rng)


def cut(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def spliced(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    other = rng.choice(others)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


# ------------------------------------------------------------------------------------------------------------ of entries


def one_entry(change: Callable[[Entry, random.Random], bytes]) -> Callable[[bytes, Sequence[bytes], random.Random], bytes]:
    """Apply `change` to one entry of the set, then mostly make its CRC right."""

    def mutation(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
        found = list(entries(data))
        if not found:
            return bytes_changed(data, rng)
        entry = rng.choice(found)
        raw = change(entry, rng)
        if rng.random() < 0.9 and len(raw) >= (61 if raw[16:17] == b"\2" else 17):
            raw = repaired(raw)
        return data[: entry.at] + raw + data[entry.end :]

    return mutation


def field_changed(entry: Entry, rng: random.Random) -> bytes:
    if entry.magic < 2:
        return bytes_changed(entry.raw, rng)
    at, layout, values = rng.choice(FIELDS)
    out = bytearray(entry.raw)
    struct.pack_into(layout, out, at, rng.choice(values))
    return bytes(out)


def resized(raw: bytes) -> bytes:
    """The entry with a true length."""
    return raw[:8] + struct.pack(">i", len(raw) - 12) + raw[12:]


def payload_changed(entry: Entry, rng: random.Random) -> bytes:
    """Damage behind the header; the length stays true."""
    start = 61 if entry.magic == 2 else 17
    return resized(entry.raw[:start] + bytes_changed(entry.raw[start:], rng))


def inside_changed(entry: Entry, rng: random.Random) -> bytes:
    """Open a compressed batch, damage the records, and pack them again, perhaps with another codec."""
    if entry.magic < 2:
        return wrapper_changed(entry, rng)
    codec = entry.raw[22] & 7
    try:
        inside = inflate(codec, entry.raw[61:], 1 << 20).data if 0 < codec < 5 else entry.raw[61:]
    except (Broken, TooLarge):
        return payload_changed(entry, rng)
    codec = rng.choice((codec, codec, rng.randrange(5)))
    packed = pack(codec, records_changed(inside, rng))
    if rng.random() < 0.1:
        packed = bytes_changed(packed, rng)
    attributes = struct.unpack_from(">h", entry.raw, 21)[0] & ~7 | codec
    return resized(entry.raw[:21] + struct.pack(">h", attributes) + entry.raw[23:61] + packed)


def wrapper_changed(entry: Entry, rng: random.Random) -> bytes:
    start = 26 if entry.magic == 1 else 18
    codec = entry.raw[17] & 7
    try:
        (key,) = struct.unpack_from(">i", entry.raw, start)
        at = start + 4 + max(key, 0)
        (size,) = struct.unpack_from(">i", entry.raw, at)
        inside = inflate(codec, entry.raw[at + 4 : at + 4 + size], 1 << 20, header_checksum=entry.magic > 0).data
    except (Broken, TooLarge, struct.error):
        return payload_changed(entry, rng)
    packed = pack(rng.choice((1, 2, 3)) if codec > 3 else codec, bytes_changed(inside, rng))
    return resized(entry.raw[:at] + struct.pack(">i", len(packed)) + packed)


def records_changed(inside: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        return bytes_changed(inside, rng)
    odd = record(
        rng.choice((0, 1, 2, 5, -1)),
        time=rng.choice(NUMBERS[:-1]),
        key=rng.choice((None, b"", b"key")),
        value=rng.choice((None, b"", b"value")),
        headers=[(b"h", rng.choice((None, b"", b"1")))] * rng.choice((0, 0, 1, 3)),
        header_count=rng.choice((None, None, None, *NUMBERS[:16])),
        key_length=rng.choice((None, None, None, *NUMBERS[:16])),
        value_length=rng.choice((None, None, None, *NUMBERS[:16])),
        length=rng.choice((None, None, None, *NUMBERS[:16])),
    )
    return odd + inside if rng.random() < 0.5 else inside + odd


def entries_moved(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """Entries repeated, swapped, or taken from another set; offsets may then overlap or fall."""
    mine = [entry.raw for entry in entries(data)]
    theirs = [entry.raw for entry in entries(rng.choice(others))]
    pool = mine + theirs
    if not pool:
        return bytes_changed(data, rng)
    return b"".join(rng.choice(pool) for _ in range(rng.randrange(1, 6)))


MUTATIONS = (
    anywhere, cut, spliced, entries_moved, one_entry(field_changed), one_entry(payload_changed), one_entry(inside_changed),
)  # fmt: skip
WEIGHTS = (1, 0.5, 0.5, 1, 3, 3, 4)
