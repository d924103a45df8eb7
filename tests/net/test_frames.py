"""Cutting a stream into frames: any chunking gives the same frames, and no announced size is believed beyond its limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfetch.errors import ProtocolError
from fastfetch.net.frames import POOLED_FROM, FrameBuffers, FrameReader


def reader(limit: int = 1 << 20, first_limit: int = 1 << 20) -> FrameReader:
    return FrameReader(limit, first_limit, FrameBuffers())


def feed(r: FrameReader, data: bytes, chunk: int) -> list[bytes]:
    """Write `data` as a socket would: at most `chunk` bytes a read, never more than the reader has room for."""
    out = []
    at = 0
    while at < len(data):
        space = r.space()
        n = min(chunk, len(space), len(data) - at)
        space[:n] = data[at : at + n]
        at += n
        frame = r.filled(n)
        if frame is not None:
            out.append(bytes(frame))
    return out


def stream(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


@given(st.lists(st.binary(min_size=3, max_size=60).map(b"\1".__add__), min_size=1, max_size=5), st.integers(1, 200))
def test_every_chunking_gives_the_same_frames(frames: list[bytes], chunk: int) -> None:
    assert feed(reader(), stream(*frames), chunk) == frames


def test_split_at_every_byte() -> None:
    frames = [b"first", b"secondly", b"third one"]
    data = stream(*frames)
    for cut in range(len(data) + 1):
        r = reader()
        assert feed(r, data[:cut], 1000) + feed(r, data[cut:], 1000) == frames
        assert not r.is_inside


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 3, 1001, 2**31 - 1])
def test_a_size_that_cannot_be_true_is_refused_before_memory_is_asked_for(size: int) -> None:
    r = reader(limit=1000)
    r.space()[:4] = size.to_bytes(4, "big", signed=True)
    with pytest.raises(ProtocolError, match=str(size)):
        r.filled(4)


def test_the_first_frame_has_a_limit_of_its_own() -> None:
    long = b"x" * 500
    with pytest.raises(ProtocolError, match="4 to 100"):
        feed(reader(limit=1000, first_limit=100), stream(long), 50)
    assert feed(reader(limit=1000, first_limit=100), stream(b"short", long), 50) == [b"short", long]


@pytest.mark.parametrize(
    ("answer", "says"),
    [(b"\x15\x03\x01\x00\x02", "TLS"), (b"\x16\x03\x03\x00\x7a", "TLS"), (b"HTTP/1.1 400 Bad Request", "HTTP")],
)
def test_other_protocols_are_named(answer: bytes, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        feed(reader(), answer, 100)


@pytest.mark.parametrize("settings", [0, 6, 18, 36])
@pytest.mark.parametrize("chunk", [1, 9, 100])
def test_http2_is_named_before_its_first_frame_is_complete(settings: int, chunk: int) -> None:
    """What a gRPC server says first: SETTINGS, with a length of three bytes that reads as a plausible size."""
    greeting = settings.to_bytes(3, "big") + b"\x04" + bytes(5)
    with pytest.raises(ProtocolError, match="HTTP"):
        feed(reader(), greeting, chunk)


def test_an_answer_that_only_looks_a_little_like_http2_is_one() -> None:
    like = b"\0\0\0\1" + bytes(256)  # its size ends in 4, as the type of SETTINGS
    assert feed(reader(), stream(like, bytes(260)), 100) == [like, bytes(260)]


def test_buffers_are_forgotten_and_lent_ones_are_their_holders() -> None:
    buffers = FrameBuffers()
    lent = buffers.get(POOLED_FROM)
    lent[:4] = b"mine"
    buffers.trim()
    other = buffers.get(POOLED_FROM)
    other[:4] = b"next"
    assert bytes(lent[:4]) == b"mine"


def test_a_large_buffer_is_used_again_only_when_nothing_refers_to_it() -> None:
    buffers = FrameBuffers()
    first = buffers.get(POOLED_FROM)
    kept = first[10:20]  # a block that a user holds
    first[10:20] = b"0123456789"
    del first
    second = buffers.get(POOLED_FROM)
    assert second.obj is not kept.obj
    second[:] = bytes(POOLED_FROM)
    assert bytes(kept) == b"0123456789"
    owner = id(kept.obj)
    del kept, second
    assert id(buffers.get(POOLED_FROM).obj) == owner


def test_buffers_that_are_kept_do_not_pile_up_in_the_pool() -> None:
    buffers = FrameBuffers()
    kept = [buffers.get(POOLED_FROM) for _ in range(50)]
    assert len(buffers._lent) <= 4
    assert len({id(view.obj) for view in kept}) == 50


def test_a_much_larger_buffer_is_not_spent_on_a_small_frame() -> None:
    buffers = FrameBuffers()
    del_me = buffers.get(POOLED_FROM * 100)
    del del_me
    assert len(buffers.get(POOLED_FROM).obj) < POOLED_FROM * 2  # type: ignore[arg-type]
