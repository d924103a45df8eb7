"""fastfetch: Kafka records into Python as columns, fast and exact.

decode()      bytes of a fetch response or a log segment -> blocks of columns, the next offset, the error if there was one
read_log()    log segments on disk, by file or partition folder
Consumer      fetches from brokers, tracks positions, commits the next offset to read; AsyncConsumer for asyncio
plan()        what to read, cut into ranges that end, by offset or time; read() gives the blocks of one, in any process
"""

from __future__ import annotations

from importlib import metadata as _metadata
from pathlib import Path as _Path
from typing import TYPE_CHECKING, Any

from fastfetch import errors
from fastfetch.errors import FastFetchError
from fastfetch.records import (
    BatchHeader,
    Decoded,
    DecodeStats,
    FetchedPartition,
    FetchResponse,
    Record,
    RecordBlock,
    batches,
    decode,
    read_fetch_response,
)
from fastfetch.types import GroupMetadata, OffsetAndMetadata, OffsetAndTimestamp, RebalanceListener, TopicPartition

if TYPE_CHECKING:
    from fastfetch.aio import AsyncConsumer
    from fastfetch.consumer import Consumer
    from fastfetch.log import read_log
    from fastfetch.ranges import OffsetRange, Timestamp, plan, read

__all__ = [
    "AsyncConsumer",
    "BatchHeader",
    "Consumer",
    "DecodeStats",
    "Decoded",
    "FastFetchError",
    "FetchResponse",
    "FetchedPartition",
    "GroupMetadata",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetRange",
    "RebalanceListener",
    "Record",
    "RecordBlock",
    "Timestamp",
    "TopicPartition",
    "__version__",
    "batches",
    "build_info",
    "decode",
    "errors",
    "get_include",
    "plan",
    "read",
    "read_fetch_response",
    "read_log",
]

try:
    __version__ = _metadata.version("fastfetch")
except _metadata.PackageNotFoundError:  # a source tree on the path, not installed
    __version__ = "0+source"

# Sockets and threads are imported by those who use them: `import fastfetch` for decode() alone stays light.
_LAZY = {"AsyncConsumer": "fastfetch.aio", "Consumer": "fastfetch.consumer", "read_log": "fastfetch.log"}
_LAZY |= dict.fromkeys(("OffsetRange", "Timestamp", "plan", "read"), "fastfetch.ranges")


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'fastfetch' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return value


def get_include() -> str:
    """Folder to put on a compiler's include path, for `#include "fastfetch/wire.h"` and for cimporting the kernels."""
    package = _Path(__file__).resolve().parent
    for folder in (package / "_include", package.parent / "include"):  # installed; a source tree
        if (folder / "fastfetch" / "wire.h").is_file():
            return str(folder)
    raise FileNotFoundError(f"fastfetch's C headers are neither in {package / '_include'} nor beside the package; reinstall it")


def build_info() -> dict[str, Any]:
    """How this copy was built and what it found: version, cython, crc32c (path in use), crc32c_paths (usable here), codecs
    ({name: (provider, version)}; provider is "system", "python", "built-in" or "missing")."""
    from fastfetch.kernels import codecs

    return {
        "version": __version__,
        "cython": codecs.CYTHON_VERSION,
        "crc32c": codecs.crc_path(),
        "crc32c_paths": codecs.crc_paths(),
        "codecs": codecs.providers(),
    }
