"""Properties of decode() on made-up and on damaged record sets, judged by the oracle, under both codec providers.

FASTFETCH_ROUNDS scales the number of examples.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import reference
from building import CODECS, batch, control, message, record, repaired, wrapper
from codecs_reference import provider
from hypothesis import given, settings
from hypothesis import strategies as st
from mutation import mutated, seeds

import fastfetch
from fastfetch import errors

SEEDS = seeds()
TRANSACTIONAL = 0x10
int64s = st.integers(-(2**63), 2**63 - 1)
texts = st.one_of(st.none(), st.binary(max_size=20), st.sampled_from([b"", b"a" * 200]))


@pytest.fixture(params=["system", "python"], scope="module", autouse=True)
def codecs(request: pytest.FixtureRequest) -> Iterator[str]:
    with provider(request.param):
        yield request.param


def compare(data: bytes, **arguments: Any) -> reference.Expected:
    ours, oracle = reference.seen(fastfetch.decode(data, **arguments)), reference.decode(data, **arguments)
    assert ours.error == oracle.error
    assert (ours.next_offset, ours.consumed) == (oracle.next_offset, oracle.consumed)
    assert ours.records == oracle.records
    return ours


# ------------------------------------------------------------------------------------------------------------ good sets


@st.composite
def batches(draw: st.DrawFn, base: int) -> tuple[bytes, int]:
    """One entry from `base` on, of any format, and the offset behind it."""
    kind = draw(st.sampled_from(["batch"] * 6 + ["empty", "marker", "message", "wrapper"]))
    if kind == "marker":
        return control(draw(st.integers(0, 3)), base=base, producer=draw(st.integers(7, 9))), base + 1
    if kind == "empty":
        last = draw(st.integers(0, 50))
        return batch(b"", 0, base=base, last=last, codec=draw(st.integers(0, 7)), packed=b""), base + last + 1
    deltas = sorted(draw(st.sets(st.integers(0, 12), min_size=1, max_size=8)))  # holes, as compaction leaves them
    magic = draw(st.integers(0, 1))
    if kind == "message":
        return message(base, magic, draw(texts), key=draw(texts), time=draw(st.integers(-1, 2**40))), base + 1
    if kind == "wrapper":
        inner = b"".join(message(delta if magic else base + delta, magic, draw(texts), key=draw(texts)) for delta in deltas)
        append_time = 8 * draw(st.booleans())
        codec = draw(st.integers(1, 3))
        return wrapper(base + deltas[-1], magic, inner, codec=codec, attributes=append_time), base + deltas[-1] + 1
    last = deltas[-1] + draw(st.integers(0, 3))
    headers = st.lists(st.tuples(st.binary(max_size=5), texts), max_size=3)
    made = [record(delta, time=draw(int64s), key=draw(texts), value=draw(texts), headers=draw(headers)) for delta in deltas]
    producer = draw(st.sampled_from([-1, 7, 8, 9]))
    attributes = draw(st.sampled_from([0, 8, 0x40, 0xFF80])) | (TRANSACTIONAL if producer >= 0 and draw(st.booleans()) else 0)
    fields = {"attributes": attributes, "times": (draw(int64s), draw(int64s)), "leader_epoch": draw(st.integers(-1, 9))}
    codec = draw(st.sampled_from(list(CODECS.values())))
    return batch(made, base=base, last=last, codec=codec, producer=producer, **fields), base + last + 1


@st.composite
def record_sets(draw: st.DrawFn) -> list[bytes]:
    offset = draw(st.sampled_from([0, 1, 100, 2**40]))
    out = []
    for _ in range(draw(st.integers(0, 6))):
        entry, offset = draw(batches(offset))
        offset += draw(st.sampled_from([0, 0, 0, 5]))
        out.append(entry)
    return out


@st.composite
def arguments(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "position": draw(st.one_of(st.none(), st.integers(0, 60), st.integers(100, 160), st.integers(2**40, 2**40 + 60))),
        "isolation": draw(st.sampled_from(["read_uncommitted", "read_committed"])),
        "aborted": draw(st.lists(st.tuples(st.integers(6, 9), st.integers(0, 160)), max_size=6)),
    }


@given(record_sets(), arguments())
def test_a_good_set_gives_what_the_oracle_gives(entries: list[bytes], given: dict[str, Any]):
    got = compare(b"".join(entries), **given)
    assert got.error is None
    assert got.consumed == len(b"".join(entries))
    offsets = [row.offset for row in got.records]
    assert offsets == sorted(set(offsets)), "strictly rising"
    assert given["position"] is None or all(offset >= given["position"] for offset in offsets)


@given(record_sets(), st.data())
def test_whole_is_split_anywhere(entries: list[bytes], data: st.DataObject):
    """Decoding a prefix, then the rest from where that ended, is decoding the whole."""
    whole = b"".join(entries)
    position = data.draw(st.one_of(st.none(), st.integers(0, 60)))
    want = reference.seen(fastfetch.decode(whole, position=position))
    cut = data.draw(st.integers(0, len(whole)))
    first = reference.seen(fastfetch.decode(whole[:cut], position=position))
    assert first.error is None
    second = reference.seen(fastfetch.decode(whole[first.consumed :], position=first.next_offset))
    assert first.records + second.records == want.records
    assert second.next_offset == want.next_offset
    assert first.consumed + second.consumed == want.consumed


@given(record_sets(), arguments(), st.integers(0, 2**32))
def test_bytes_behind_the_input_do_not_matter(entries: list[bytes], given: dict[str, Any], seed: int):
    """A slice of a larger buffer, writable or not, at any alignment, is as good as bytes of its own."""
    data = b"".join(entries)
    rng = random.Random(seed)
    before, behind = rng.randbytes(rng.randrange(16)), rng.randbytes(64)
    large = bytearray(before + data + behind)
    for view in (memoryview(large), memoryview(bytes(large))):
        ours = reference.seen(fastfetch.decode(view[len(before) : len(before) + len(data)], **given))
        assert ours == reference.seen(fastfetch.decode(data, **given))


@given(record_sets(), st.data())
def test_slices_and_copies_of_blocks_hold_the_same_records(entries: list[bytes], data: st.DataObject):
    for block in fastfetch.decode(b"".join(entries)).blocks:
        rows = block.records()
        a = data.draw(st.integers(0, len(block)))
        b = data.draw(st.integers(a, len(block)))
        for part in (block[a:b], block[a:b].detach(), block.detach()[a:b]):
            assert part.records() == rows[a:b]
            assert part.values() == block.values()[a:b]
            assert part.keys() == block.keys()[a:b]
            assert part.headers() == block.headers()[a:b]
            assert part.offsets.tolist() == block.offsets.tolist()[a:b]
            if a < b < len(block):
                assert part.next_offset == rows[b - 1].offset + 1
            elif a < b:
                assert part.next_offset == block.next_offset


# ------------------------------------------------------------------------------------------------------------ damaged sets

options = st.fixed_dictionaries(
    {
        "position": st.sampled_from([None, 0, 1, 3, 100, 2**63 - 1]),
        "isolation": st.sampled_from(["read_uncommitted", "read_committed"]),
        "aborted": st.sampled_from([(), ((7, 0),), ((1000, 0), (2000, 2)), ((7, 0), (8, 3), (7, 5))]),
        "lz4_content_checksum": st.sampled_from([True, True, False]),
        "check_crcs": st.sampled_from([True, True, False]),
    }
)


@settings(max_examples=settings.default.max_examples * 5)
@given(st.integers(0, 2**32), options)
def test_damage_gives_what_the_oracle_gives(seed: int, given: dict[str, Any]):
    rng = random.Random(seed)
    compare(mutated(rng.choice(SEEDS), SEEDS, rng), **given)


@given(record_sets(), st.integers(0, 2**32), options)
def test_damage_to_made_up_sets_gives_what_the_oracle_gives(entries: list[bytes], seed: int, given: dict[str, Any]):
    compare(mutated(b"".join(entries), SEEDS, random.Random(seed)), **given)


@given(st.binary(max_size=300), options)
def test_any_bytes_give_records_or_a_documented_error(data: bytes, given: dict[str, Any]):
    compare(data, **given)
    if len(data) > 61:
        head = data[:8] + (len(data) - 12).to_bytes(4, "big") + data[12:16] + b"\2" + data[17:]
        compare(repaired(head), **given)


@given(st.integers(0, 2**32), st.integers(1, 300), options)
def test_small_limits_are_kept(seed: int, limit: int, given: dict[str, Any]):
    """Where damage and limit meet, either error may come first; nothing else may differ."""
    rng = random.Random(seed)
    data = mutated(rng.choice(SEEDS), SEEDS, rng)
    ours, oracle = (
        reference.seen(fastfetch.decode(data, max_batch_bytes=limit, **given)),
        reference.decode(data, max_batch_bytes=limit, **given),
    )
    assert (ours.records, ours.next_offset, ours.consumed) == (oracle.records, oracle.next_offset, oracle.consumed)
    kinds = [None if error is None else error.kind for error in (ours.error, oracle.error)]
    assert kinds[0] == kinds[1] or {*kinds} == {"inflate", "too_large"}


# ------------------------------------------------------------------------------------------------------------ threads


def large_set(rng: random.Random) -> bytes:
    """Over a mebibyte in some dozens of batches of all kinds: enough for three threads."""
    out = []
    offset = rng.choice((0, 7))
    while sum(map(len, out)) < 1_300_000:
        n = rng.randrange(1, 40)
        values = [rng.randbytes(rng.choice((10, 1000, 3000))) for _ in range(n)]
        made = [record(i, time=i, key=rng.choice((None, b"k")), value=value) for i, value in enumerate(values)]
        producer = rng.choice((-1, 7, 8))
        out.append(batch(made, base=offset, codec=rng.randrange(5), producer=producer, attributes=TRANSACTIONAL * (producer > 0)))
        offset += n
        if rng.random() < 0.3:
            out.append(control(rng.randrange(2), base=offset, producer=rng.choice((7, 8))))
            offset += 1
    return b"".join(out)


@pytest.mark.parametrize("damage", ["none", "crc", "count", "cut"])
@pytest.mark.parametrize("seed", range(3))
def test_threads_change_nothing(seed: int, damage: str):
    rng = random.Random(seed)
    data = bytearray(large_set(rng))
    found = list(reference.entries(bytes(data)))
    hit = rng.choice([entry for entry in found[len(found) // 4 :] if entry.header().producer_id == -1])
    if damage == "crc":
        data[hit.at + 30] ^= 1
    elif damage == "count":
        data[hit.at + 57] = 0x80
        data[hit.at : hit.end] = repaired(bytes(data[hit.at : hit.end]))
    elif damage == "cut":
        del data[-100:]
    committed = {"isolation": "read_committed", "aborted": [(7, 3), (8, 100), (7, 400)]}
    for how in ({}, {"position": 200}, committed):
        one = fastfetch.decode(bytes(data), **how)
        want = reference.seen(one)
        assert (want.error is None) == (damage in ("none", "cut"))
        for threads in (2, 3, 8):
            several = fastfetch.decode(bytes(data), threads=threads, **how)
            assert reference.seen(several) == want
            assert (one.stats.batches, one.stats.records) == (several.stats.batches, several.stats.records)


def test_several_threads_may_decode_at_once():
    """Codec contexts are lent to one call at a time."""
    sets = [batch([record(i, value=bytes([codec]) * 500) for i in range(50)], codec=codec) for codec in range(5)]
    sets += [mutated(data, SEEDS, random.Random(i)) for i, data in enumerate(sets * 3)]
    want = [reference.seen(fastfetch.decode(data)) for data in sets]

    def decode_all(start: int) -> bool:
        order = [(i + start) % len(sets) for i in range(len(sets))] * 20
        return all(reference.seen(fastfetch.decode(sets[i], threads=2)) == want[i] for i in order)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(decode_all, range(4)))


def test_threads_agree_with_the_oracle():
    data = large_set(random.Random(9))
    ours = reference.seen(fastfetch.decode(data, threads=3, isolation="read_committed", aborted=[(7, 3)]))
    oracle = reference.decode(data, isolation="read_committed", aborted=[(7, 3)])
    assert ours.error is None
    assert (ours.records, ours.next_offset, ours.consumed) == (oracle.records, oracle.next_offset, oracle.consumed)


def test_an_error_is_a_documented_one():
    """Everything that decode() returns as an error belongs to one family, which says where and what next."""
    rng = random.Random(5)
    found = set()
    for _ in range(2000):
        error = fastfetch.decode(mutated(rng.choice(SEEDS), SEEDS, rng), topic="orders", partition=2, position=0).error
        if error is not None:
            assert isinstance(error, errors.CorruptBatchError)
            assert "orders-2" in str(error)
            assert str(error.position) in str(error)
            assert error.skip_trusted == (error.next_offset is not None)
            found.add(error.kind)
    assert found >= {"length", "magic", "crc", "offset", "codec", "inflate", "count", "record"}
