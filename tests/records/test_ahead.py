"""What batch headers promise about the end of a response: it has to be what decoding finds, or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastfetch
from fastfetch.records.ahead import promised_end
from fastfetch.testing import control_batch, encode_batch
from fastfetch.testing.batches import rebase


def test_nothing_is_promised_of_nothing() -> None:
    assert promised_end(b"", 5) == (-1, -1)
    assert promised_end(encode_batch([b"x"])[:-1], 0) == (-1, -1)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_have_no_epoch(magic: int) -> None:
    assert promised_end(encode_batch([b"a", b"b"], magic=magic, base_offset=7), 7) == (9, -1)


def test_the_epoch_is_that_of_the_batch_that_ends_there() -> None:
    data = encode_batch([b"x"] * 3, leader_epoch=4)
    marker = rebase(control_batch("abort", producer_id=9), 3, 6)
    assert promised_end(data, 0) == (3, 4)
    assert promised_end(data + marker, 0) == (4, 6)
    assert promised_end(data + marker[:-1], 0) == (3, 4)
    assert promised_end(data, 10) == (10, -1)  # it lies wholly below what was asked for


runs = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=8)


@given(runs, st.integers(0, 40))
def test_the_promise_is_what_decoding_finds(batches: list[tuple[int, int, int]], start: int) -> None:
    data, at, epoch = b"", 0, 0
    for count, gap, step in batches:
        epoch += step
        data += encode_batch([b"v"] * count, base_offset=at, last_offset_delta=count - 1 + gap, leader_epoch=epoch)
        at += count + gap
    decoded = fastfetch.decode(data, position=start)
    end, last_epoch = promised_end(data, start)
    assert end == decoded.next_offset == max(start, at)
    assert last_epoch == (epoch if at > start else -1)
