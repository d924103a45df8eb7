"""The golden data of the Java client, and how a decoder is compared with it.

tests/data/java.jsonl.xz holds what Apache Kafka 4.1.0's own classes wrote and read (tests/data/convert.py describes a line). A
line is looked at in several *views*: once as the record reader has it, and once for each fetch that the Java consumer was given.
Where fastfetch differs on purpose, `differences.DIFFERENCES` says how and why; a view that matches neither Java nor the list is a
failure.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from reference import Expected, Row

__all__ = ["DATA", "Line", "View", "cases", "java_lines", "outcome", "views"]

DATA = Path(__file__).resolve().parent / "data"
Line = dict[str, Any]
Runs = list[list[int]]


@cache
def java_lines() -> dict[str, Line]:
    """All lines by name, with the record lists that are written only once put in place."""
    lines: dict[str, Line] = {}
    for text in lzma.decompress((DATA / "java.jsonl.xz").read_bytes()).decode().splitlines():
        line = json.loads(text)
        if "records_as" in line:
            line["records"] = lines[line["records_as"]]["records"]
        line["set"] = bytes.fromhex(line.pop("hex"))
        lines[line["name"]] = line
    return lines


@cache
def cases() -> dict[str, bytes]:
    """The byte vectors of the published bug cases, by id."""
    out = {}
    name = ""
    for text in (DATA / "cases.txt").read_text().splitlines():
        if text.startswith("#"):
            name = text[2:].partition(":")[0]
        else:
            out[name] = bytes.fromhex(text)
    return out


def runs(offsets: Iterable[int]) -> Runs:
    out: Runs = []
    for offset in offsets:
        if out and sum(out[-1]) == offset:
            out[-1][1] += 1
        else:
            out.append([offset, 1])
    return out


@dataclass(frozen=True)
class View:
    """One way to read a line, and what comes of it: offsets as [first, count] runs, next offset, error or not."""

    name: str
    position: int | None
    isolation: str
    aborted: tuple[tuple[int, int], ...]
    offsets: tuple[tuple[int, int], ...]
    next_offset: int | None
    error: str | None

    @property
    def arguments(self) -> dict[str, Any]:
        return {"position": self.position, "isolation": self.isolation, "aborted": self.aborted}

    def gives(self, offsets: Iterable[Iterable[int]], next_offset: int | None, error: str | None) -> View:
        """The same view with another outcome."""
        return replace(self, offsets=tuple((first, n) for first, n in offsets), next_offset=next_offset, error=error)


def views(line: Line) -> Iterator[View]:
    """What Java says. Its reader knows no position: fastfetch is asked without one, too."""
    base = View("read", None, "read_uncommitted", (), (), None, None)
    if line["error"] is None:
        records = line.get("records")
        offsets = runs(r[0] for r in records) if records is not None else [[0, line["count"]]]
        yield base.gives(offsets, line["next"], None)
    for position, isolation, aborted, offsets, next_offset, error in line["fetches"]:
        pairs = tuple((producer, first) for producer, first in aborted)
        view = replace(base, name=f"fetch from {position}, {isolation}", position=position, isolation=isolation, aborted=pairs)
        yield view.gives(offsets, next_offset, error)


def outcome(view: View, got: Expected) -> View:
    """The view with what a decoder gave for it."""
    return view.gives(runs(r.offset for r in got.records), got.next_offset, None if got.error is None else got.error.kind)


def value(data: bytes | None) -> Any:
    if data is None or len(data) <= 1024:
        return None if data is None else data.hex()
    return {"len": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def as_java(row: Row, header_key: Callable[[bytes], bytes] = lambda key: key) -> list[Any]:
    """A record in the form of the golden data."""
    headers = [[header_key(k).hex(), value(v)] for k, v in row.headers]
    return [row.offset, row.timestamp, row.timestamp_type, value(row.key), value(row.value), headers]
