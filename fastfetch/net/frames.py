"""Cutting a byte stream into frames: int32 size, then `size` bytes.

The reader says where the next bytes go and the socket writes them there: one copy, straight into a buffer of the frame's size.
The size is judged before memory is asked for. Buffers of fetch responses are large and always about the same size; a used one is
taken again as soon as nothing refers to it, for fresh megabytes cost more in page faults than in copying.
"""

from __future__ import annotations

from fastfetch.errors import ProtocolError

__all__ = ["FrameBuffers", "FrameReader"]

POOLED_FROM = 1 << 16  # below, a fresh buffer is as cheap
KEPT = 4


class FrameBuffers:
    """Large buffers, lent and taken back without being told: a bytearray that is exported to nobody can be resized, others
    refuse."""

    def __init__(self) -> None:
        self._lent: list[bytearray] = []  # oldest first

    def get(self, size: int) -> memoryview:
        """`size` bytes to write into. What they hold before is undefined; the reader shows only what it received."""
        if size < POOLED_FROM:
            return memoryview(bytearray(size))
        for index, buffer in enumerate(self._lent):
            if size <= len(buffer) <= 4 * size and _is_free(buffer):
                del self._lent[index]
                break
        else:
            # An eighth more: responses of one topic differ by a batch or so.
            buffer = bytearray(size + size // 8)
            while len(self._lent) >= KEPT:
                del self._lent[0]  # belongs to whoever refers to it
        self._lent.append(buffer)
        return memoryview(buffer)[:size]

    def trim(self) -> None:
        """Keep none for later. What is lent belongs to whoever refers to it."""
        self._lent.clear()


def _is_free(buffer: bytearray) -> bool:
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True


class FrameReader:
    """One connection's inbound side. Write into `space()`, then say how much with `filled(n)`.

    limit        longest frame accepted, in bytes
    first_limit  the same for the first frame
    """

    def __init__(self, limit: int, first_limit: int, buffers: FrameBuffers) -> None:
        self._limit = min(limit, first_limit)
        self._next_limit = limit
        self._buffers = buffers
        self._size = memoryview(bytearray(4))
        self._into = self._size
        self._at = 0
        self._is_first = True  # nothing of the first frame has been looked at

    @property
    def missing(self) -> int:
        """Bytes until the present frame, or its size field, is complete."""
        return len(self._into) - self._at

    @property
    def is_inside(self) -> bool:
        """Some bytes of a frame are here, and some are not."""
        return self._into is not self._size or self._at > 0

    def space(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return self._into[self._at :]

    def filled(self, n: int) -> memoryview | None:
        """`n` bytes were written. Returns a frame when that completes one. Raises ProtocolError for a size that can't be true."""
        self._at += n
        if self._is_first and self._into is not self._size and self._at >= 4:
            self._is_first = False
            if not any(self._into[:4]) and self._size[3] == 4:
                # The head of an HTTP/2 SETTINGS frame. A Kafka answer has the id of its request there, and none has the id 0.
                raise ProtocolError(_HTTP)
        if self._at < len(self._into):
            return None
        self._at = 0
        if self._into is not self._size:
            frame, self._into = self._into, self._size
            self._limit = self._next_limit
            return frame
        size = int.from_bytes(self._size, "big", signed=True)
        if not 4 <= size <= self._limit:
            raise ProtocolError(_bad_size(bytes(self._size), size, self._limit))
        self._into = self._buffers.get(size)
        return None


_HTTP = "the answer is HTTP: this is a web server's port, not a Kafka broker's"


def _bad_size(first: bytes, size: int, limit: int) -> str:
    if first[:2] in (b"\x15\x03", b"\x16\x03"):
        return "the answer is TLS: this port wants encryption, which this version of fastfetch lacks; use a PLAINTEXT listener"
    if first == b"HTTP":
        return _HTTP
    return (
        f"a frame of {size} bytes was announced where 4 to {limit} are allowed: this is no Kafka broker, or the stream is damaged"
    )
