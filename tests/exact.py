"""Inputs in memory that ends exactly where they end.

bytes objects have a trailing zero, arrays have slack, and the allocator hides small blocks in large arenas: a read past the end
goes unseen. Here the byte after the input belongs to a page that may not be read, so an over-read is a SIGSEGV, also in a release
build. Under AddressSanitizer the input lies in a block of its own from malloc instead, and the report says where.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fastfetch

__all__ = ["SANITIZED", "Guarded", "child_environment", "exactly"]

SANITIZED = os.environ.get("FASTFETCH_SANITIZED", "") not in ("", "0")
_libc = ctypes.CDLL(None, use_errno=True)
_libc.malloc.restype = ctypes.c_void_p
_libc.malloc.argtypes = [ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]


class Guarded:
    """Room for one input at a time, ending at a page without access."""

    def __init__(self, size: int) -> None:
        page = mmap.PAGESIZE
        self.room = (size + page - 1) // page * page
        self._map = mmap.mmap(-1, self.room + page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        if _libc.mprotect(ctypes.c_void_p(start + self.room), ctypes.c_size_t(page), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
        self._view = memoryview(self._map)

    def __call__(self, data: bytes) -> memoryview:
        """The bytes, up against the guard page. Valid until the next call."""
        at = self.room - len(data)
        self._view[at : self.room] = data
        return self._view[at : self.room]


def child_environment(**more: str) -> dict[str, str]:
    """For a Python started by a test: it imports the same fastfetch."""
    here = str(Path(fastfetch.__file__).resolve().parent.parent)
    return os.environ | {"PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])} | more


@contextmanager
def exactly(data: bytes) -> Iterator[memoryview]:
    """The bytes in a malloc block of exactly their size: nothing made of them may be used after the with block."""
    block = _libc.malloc(max(len(data), 1))
    if not block:
        raise MemoryError
    try:
        ctypes.memmove(block, data, len(data))
        yield memoryview((ctypes.c_char * len(data)).from_address(block)).cast("B") if data else memoryview(b"")
    finally:
        _libc.free(block)
