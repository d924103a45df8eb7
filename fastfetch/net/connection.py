"""One TCP connection: connecting to the first address that answers, sending, receiving frames. Never blocks."""

from __future__ import annotations

import errno
import os
import socket
from collections import deque

from fastfetch.engine.actions import OpenConnection
from fastfetch.errors import ProtocolError
from fastfetch.net.frames import FrameBuffers, FrameReader
from fastfetch.net.resolver import Address

__all__ = ["Connection", "ConnectionFault"]

# A partial frame is reported as progress at most this often.
PROGRESS_EVERY_MS = 1_000


class ConnectionFault(Exception):  # noqa: N818 - an internal signal, turned into an event by the thread
    """The connection is of no use any more; the text says why."""


class Connection:
    """`sock` is None until an address was tried. The owner registers it with a selector: for writing while `wants_write`."""

    def __init__(
        self, action: OpenConnection, buffers: FrameBuffers, receive_buffer_bytes: int, send_buffer_bytes: int, now_ms: int
    ) -> None:
        self.conn = action.conn
        self.host = action.host
        self.port = action.port
        self.sock: socket.socket | None = None
        self.address: Address | None = None  # the one that is tried, or connected to
        self.is_connected = False
        self.is_closed = False
        self._reader = FrameReader(action.frame_limit, action.first_frame_limit, buffers)
        self._buffer_sizes = (receive_buffer_bytes, send_buffer_bytes)
        self._addresses: deque[Address] = deque()
        self._last_error = ""
        self._out: deque[memoryview] = deque()
        self._progress_ms = now_ms

    # --- opening --------------------------------------------------------------------------------------------------------

    def start(self, addresses: list[Address]) -> None:
        """Begin with the first address. Raises ConnectionFault if none can be tried."""
        self._addresses = deque(addresses)
        self._try_next()

    def _try_next(self) -> None:
        while self._addresses:
            self.address = family, address = self._addresses.popleft()
            self.close_socket()
            try:
                self.sock = sock = socket.socket(family, socket.SOCK_STREAM)
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                receive, send = self._buffer_sizes
                if receive > 0:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
                if send > 0:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send)
                code = sock.connect_ex(address)
            except OSError as error:
                self._last_error = _reason(error)
                continue
            if code in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
                return
            self._last_error = _reason(OSError(code, os.strerror(code)))
        self.close_socket()
        raise ConnectionFault(self._last_error or "the host has no address")

    # --- the selector says ----------------------------------------------------------------------------------------------

    @property
    def wants_write(self) -> bool:
        return not self.is_connected or bool(self._out)

    def writable(self) -> bool:
        """The socket takes bytes, or the connect is decided. True if this made the connection. Raises ConnectionFault."""
        assert self.sock is not None
        if not self.is_connected:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._last_error = _reason(OSError(code, os.strerror(code)))
                self._try_next()  # another address of the same name
                return False
            self.is_connected = True
            return True
        self._flush()
        return False

    def send(self, data: bytes) -> None:
        """Send as much as the socket takes; the rest follows when it takes more."""
        self._out.append(memoryview(data))
        if len(self._out) == 1:
            self._flush()

    def _flush(self) -> None:
        assert self.sock is not None
        while self._out:
            try:
                sent = self.sock.send(self._out[0])
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                raise ConnectionFault(_reason(error)) from None
            if sent == len(self._out[0]):
                self._out.popleft()
            else:
                self._out[0] = self._out[0][sent:]

    def receive(self) -> memoryview | None:
        """Read until one frame is complete, or until nothing more is there. Raises ConnectionFault."""
        assert self.sock is not None
        reader = self._reader
        while True:
            try:
                n = self.sock.recv_into(reader.space())
            except (BlockingIOError, InterruptedError):
                return None
            except OSError as error:
                raise ConnectionFault(_reason(error)) from None
            if n == 0:
                inside = f", with {reader.missing} bytes of an answer missing" if reader.is_inside else ""
                raise ConnectionFault(f"closed by the other side{inside}")
            try:
                frame = reader.filled(n)
            except ProtocolError as error:
                raise ConnectionFault(str(error)) from None
            except MemoryError as error:
                raise ConnectionFault("no memory for its answer") from error
            if frame is not None:
                return frame

    def made_progress(self, now_ms: int) -> bool:
        """True, now and then, while an answer is coming in piece by piece."""
        if self._reader.is_inside and now_ms - self._progress_ms >= PROGRESS_EVERY_MS:
            self._progress_ms = now_ms
            return True
        return False

    def close_socket(self) -> None:
        if self.sock is not None:
            self.sock.close()
            self.sock = None


def _reason(error: OSError) -> str:
    text = error.strerror or type(error).__name__
    return text[:1].lower() + text[1:]
