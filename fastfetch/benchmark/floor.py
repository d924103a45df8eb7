"""Builds floor.c, loads it, and keeps its buffers. Needs a C compiler: `cc`, or what CC says.

The buffers are allocated once per data set and written before the first round, so the floor never pays for a page fault. That is
deliberate: the floor is the work itself, with memory for free.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fastfetch.benchmark.external import ToolError, cache_folder
from fastfetch.records import RecordBlock

__all__ = ["ALL", "CRC", "INFLATE", "WALK", "DataSet", "Floor", "FloorError", "crc_name", "floor_codecs"]

CRC, INFLATE, WALK = 1, 2, 4
ALL = CRC | INFLATE | WALK

_SOURCE = Path(__file__).with_name("floor.c")
_FLAGS = ["-O3", "-shared", "-fPIC", "-std=gnu99", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]
_COLUMNS = (
    ("offsets", np.int64), ("timestamps", np.int64), ("key_starts", np.int32), ("key_lengths", np.int32),
    ("value_starts", np.int32), ("value_lengths", np.int32), ("header_counts", np.int32),
)  # fmt: skip
_PROBLEMS = {
    -1: "bad frame",
    -2: "bad CRC",
    -3: "codec without a library",
    -4: "cannot inflate",
    -5: "bad record",
    -6: "buffers too small",
}


class FloorError(Exception):
    """The floor can't do it; the message says what and why."""


class DataSet(Protocol):
    """Batches of format 2, one after the other. `records` is their number, `inflated` the bytes of all records without batch
    headers, or more."""

    @property
    def name(self) -> str: ...
    @property
    def codec(self) -> str: ...
    @property
    def data(self) -> bytes: ...
    @property
    def records(self) -> int: ...
    @property
    def inflated(self) -> int: ...


class _CColumns(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name, _ in _COLUMNS)


@functools.cache
def _load() -> tuple[ctypes.CDLL, int]:
    """The library, and which codecs it has. Raises ToolError where it can't be built."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if not compiler or shutil.which(compiler[0]) is None:
        raise ToolError(f"the floor needs a C compiler: {' '.join(compiler) or 'an empty CC'} is not on PATH")
    version = hashlib.sha256(_SOURCE.read_bytes() + " ".join(compiler + _FLAGS).encode()).hexdigest()[:12]
    path = cache_folder() / f"floor-{version}.so"
    if not path.exists():
        fresh = path.with_suffix(f".{os.getpid()}")
        command = [*compiler, *_FLAGS, str(_SOURCE), "-o", str(fresh), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error" in line] or ["the compiler said nothing of an error"]
            raise ToolError(f"the floor could not be compiled: {errors[0]}")
        fresh.rename(path)  # another process may be building it too
    library = ctypes.CDLL(str(path))
    library.floor_crc_name.restype = ctypes.c_char_p
    library.floor_decode.restype = ctypes.c_int64
    library.floor_decode.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(_CColumns),
        ctypes.c_int64, ctypes.c_int,
    ]  # fmt: skip
    names = (ctypes.util.find_library(name) or f"lib{name}.so.1" for name in ("lz4", "zstd", "z"))
    return library, library.floor_open(*(name.encode() for name in names))


def crc_name() -> str:
    """Which CRC-32C the floor was built with. Raises ToolError, as all of this does."""
    return str(_load()[0].floor_crc_name().decode())


def floor_codecs() -> set[str]:
    """The codecs that have a floor here: their C library is on this machine."""
    return {"none"} | {name for bit, name in enumerate(("lz4", "zstd", "gzip")) if _load()[1] >> bit & 1}


class Floor:
    """The floor for one data set: calling it decodes the whole set into the same warm buffers."""

    def __init__(self, of: DataSet, like: Floor | None = None) -> None:
        """`like` lends its buffers, if they are large enough: two floors with the same ones can't work at once."""
        self._decode = _load()[0].floor_decode
        self._records = of.records
        self._data = np.frombuffer(of.data, np.uint8)  # keeps the bytes alive and gives their address
        size = of.inflated + 65536 if of.codec != "none" else 1
        if like is None or len(like.arena) < size or len(like.columns["offsets"]) < of.records:
            like = None
        self.arena: np.ndarray[Any, Any] = np.zeros(size, np.uint8) if like is None else like.arena
        self.columns: dict[str, np.ndarray[Any, Any]] = (
            {name: np.zeros(of.records, dtype) for name, dtype in _COLUMNS} if like is None else like.columns
        )
        self._c = _CColumns(*(column.ctypes.data for column in self.columns.values()))
        self._arguments = (self._data.ctypes.data, len(of.data), self.arena.ctypes.data, len(self.arena),
                           ctypes.byref(self._c), of.records)  # fmt: skip
        if like is None:
            for array in (self.arena, *self.columns.values()):
                array.fill(1)  # zeros() alone would leave the pages to the first round
        if (found := self()) != of.records:
            raise FloorError(f"the floor found {found} of the {of.records} records of {of.name}")

    def __call__(self, stages: int = ALL) -> int:
        """Decode, or do only some stages (CRC | INFLATE | WALK); returns the number of records, FloorError on bad bytes."""
        count = int(self._decode(*self._arguments, stages))
        if count < 0:
            raise FloorError(f"the floor refused the data: {_PROBLEMS[count]}")
        return count

    def compare(self, blocks: Iterable[RecordBlock]) -> None:
        """Raise FloorError unless the floor's columns say the same as those of decoded blocks."""
        self()
        row = 0
        for block in blocks:
            rows = slice(row, row + len(block))
            for name in ("offsets", "timestamps", "key_lengths", "value_lengths", "header_counts"):
                if not np.array_equal(self.columns[name][rows], getattr(block, name)):
                    raise FloorError(f"the floor and the decoder disagree about {name} from record {row} on")
            # Starts count from different places: a block may begin in the middle of the response, or have its own arena.
            for name in ("key_starts", "value_starts"):
                mine, theirs = self.columns[name][rows].astype(np.int64), getattr(block, name).astype(np.int64)
                if not np.array_equal(np.diff(mine), np.diff(theirs)):
                    raise FloorError(f"the floor and the decoder disagree about {name} from record {row} on")
            row += len(block)
        if row != self._records:
            raise FloorError(f"the decoder found {row} records, the floor {self._records}")
