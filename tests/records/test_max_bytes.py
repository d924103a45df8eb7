"""decode(max_bytes=): ends between two batches once enough has been made, and goes on from there without a gap or a repeat."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastfetch
from fastfetch.testing import encode_batch

ROW = 41


def several(codecs: list[str], *, count: int = 50, size: int = 200) -> bytes:
    return b"".join(
        encode_batch([bytes(size)] * count, base_offset=count * index, codec=codec) for index, codec in enumerate(codecs)
    )


def made(decoded: fastfetch.Decoded) -> int:
    return decoded.stats.inflated_bytes + ROW * decoded.stats.records


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("limit", [0, 1, 5_000, 15_000])
def test_it_ends_with_the_batch_that_is_too_much(codec: str, limit: int) -> None:
    data = several([codec] * 10)
    one = made(fastfetch.decode(data[: len(data) // 10]))
    decoded = fastfetch.decode(data, max_bytes=limit)
    assert limit < made(decoded) <= limit + one
    assert (decoded.next_offset, decoded.error) == (len(decoded), None)
    assert decoded.consumed == len(data) // 10 * (len(decoded) // 50)


def test_without_a_limit_or_with_a_large_one_all_is_decoded() -> None:
    data = several(["lz4"] * 10)
    assert len(fastfetch.decode(data)) == len(fastfetch.decode(data, max_bytes=2**64)) == 500


def test_a_limit_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="max_bytes"):
        fastfetch.decode(b"", max_bytes=-1)


def test_what_is_passed_over_takes_no_room() -> None:
    data = several(["none"] * 10)
    decoded = fastfetch.decode(data, position=450, max_bytes=0)
    assert [int(offset) for block in decoded.blocks for offset in block.offsets] == list(range(450, 500))


def test_a_bad_batch_behind_the_end_is_none_of_this_calls_business() -> None:
    data = bytearray(several(["none"] * 3))
    data[-1] ^= 1
    decoded = fastfetch.decode(data, max_bytes=0)
    assert (decoded.error, decoded.next_offset) == (None, 50)
    assert fastfetch.decode(data[decoded.consumed :], position=50).error is not None


def test_a_bomb_of_many_small_batches_is_cut() -> None:
    """A megabyte of each inflates to 64 of them: without a limit the response would become 12 GB."""
    bomb = encode_batch([bytes(1 << 20)] * 63, codec="zstd")
    data = b"".join((63 * n).to_bytes(8, "big") + bomb[8:] for n in range(200))
    decoded = fastfetch.decode(data, max_bytes=100 << 20)
    assert (len(decoded), decoded.next_offset) == (126, 126)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["none", "lz4", "zstd"]), min_size=1, max_size=12),
    st.integers(0, 150_000),
    st.integers(0, 700),
    st.sampled_from([1, 2]),
)
def test_any_limit_gives_every_record_once(codecs: list[str], limit: int, position: int, threads: int) -> None:
    data = several(codecs, count=60, size=2000)
    offsets: list[int] = []
    rest, at = data, position
    while rest:
        decoded = fastfetch.decode(rest, position=at, max_bytes=limit, threads=threads)
        assert decoded.error is None
        assert decoded.consumed > 0
        offsets += [int(offset) for block in decoded.blocks for offset in block.offsets]
        rest, at = rest[decoded.consumed :], decoded.next_offset
    assert offsets == list(range(position, 60 * len(codecs)))
    assert at == max(position, 60 * len(codecs))
