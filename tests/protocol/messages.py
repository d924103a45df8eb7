"""Messages for the tests: random bodies out of the field tables, and a second, slow writer that remembers where its lengths are.

The writer knows the format from its description alone and shares no code with `fastfetch.protocol`; a hostile test takes a frame
and its sites and puts a lie where a length stood.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from fastfetch.protocol import Api, Field, tables

Direction = Literal["request", "response"]
SIZES = {"bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uuid": 16}
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def every_message(apis: Iterable[Api] = tables.ALL) -> list[Any]:
    """(api, version, direction) of everything there is, as pytest parameters."""
    return [
        pytest.param(api, version, direction, id=f"{api.name}-v{version}-{direction}")
        for api in apis
        for version in range(api.min_version, api.max_version + 1)
        for direction in ("request", "response")
    ]


def carried(fields: tuple[Field, ...], version: int) -> Iterator[Field]:
    """Fields that the version has on the wire."""
    return (f for f in fields if f.present_in(version))


def random_body(rng: random.Random, fields: tuple[Field, ...], version: int, *, rich: bool = False) -> dict[str, Any]:
    """A body with every field that this version carries. `rich`: nothing null, nothing empty, no tagged field at its default."""
    return {f.name: _random_value(rng, f, version, rich) for f in carried(fields, version)}


def _random_value(rng: random.Random, f: Field, version: int, rich: bool) -> Any:
    if not rich and f.nullable_in(version) and rng.random() < 0.3:
        # A tagged field can't say null in kio; absent means its default there.
        return None if f.tag is None else f.make_default()
    if not rich and f.tag is not None and rng.random() < 0.4:
        return f.make_default()
    if f.is_array:
        count = rng.choice((1, 2, 3) if rich else (0, 1, 2, 5, 130 if f.element in SIZES else 3))
        return [_random_scalar(rng, f, f.element, version, rich) for _ in range(count)]
    return _random_scalar(rng, f, f.type, version, rich)


def _random_scalar(rng: random.Random, f: Field, kind: str, version: int, rich: bool) -> Any:
    if kind == "struct":
        return random_body(rng, f.fields, version, rich=rich)
    if kind == "bool":
        return rich or rng.random() < 0.5
    if kind in BITS:
        if f.name == "error_code":
            return rng.randint(-1, 133)  # kio knows no others
        bits = BITS[kind]
        edges = (0, 1, -1, 127, 128, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)))
        value = rng.choice(edges) if rng.random() < 0.3 else rng.getrandbits(bits) - 2 ** (bits - 1)
        return max(min(value, 2 ** (bits - 1) - 1), -(2 ** (bits - 1))) or (7 if rich else 0)
    if kind == "uuid":
        return rng.randbytes(16) if rich or rng.random() < 0.8 else bytes(16)
    length = rng.choice((1, 5, 20) if rich else (0, 0, 1, 5, 126, 127, 128, 300))
    if kind == "string":
        return "".join(rng.choice("abcxyz-_.09äß→🙂") for _ in range(length))
    return rng.randbytes(length)


def full_body(fields: tuple[Field, ...], body: dict[str, Any], version: int) -> dict[str, Any]:
    """What a decoder returns for a body: absent fields with their defaults."""
    out: dict[str, Any] = {}
    for f in fields:
        if f.name not in body:
            out[f.name] = f.make_default()
        elif f.fields and isinstance(body[f.name], list):
            out[f.name] = [full_body(f.fields, item, version) for item in body[f.name]]
        elif f.fields and isinstance(body[f.name], dict):
            out[f.name] = full_body(f.fields, body[f.name], version)
        else:
            out[f.name] = body[f.name]
    return out


@dataclass(frozen=True)
class Site:
    """A length in a frame. `kind`: string, bytes, array, tags (their count) or tag (the size of one)."""

    kind: str
    name: str
    start: int
    end: int
    flexible: bool
    nullable: bool = False
    smallest: int = 1


def uvarint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


class SlowWriter:
    """Writes a message byte by byte from the description of the format."""

    def __init__(self, api: Api, version: int, direction: Direction) -> None:
        self.api, self.version = api, version
        self.flexible = api.flexible_from is not None and version >= api.flexible_from
        self.fields: tuple[Field, ...] = getattr(api, direction)
        self.direction = direction
        self.out = bytearray()
        self.sites: list[Site] = []

    def frame(self, correlation_id: int, client_id: str | None, body: dict[str, Any]) -> bytes:
        """What follows the size."""
        if self.direction == "request":
            self.out += struct.pack(">hhi", self.api.key, self.version, correlation_id)
            data = None if client_id is None else client_id.encode()
            self.out += b"\xff\xff" if data is None else struct.pack(">h", len(data)) + data
            if self.flexible:
                self._tags({}, "header")
        else:
            self.out += struct.pack(">i", correlation_id)
            if self.flexible and self.api.key != 18:
                self._tags({}, "header")
        self._struct(self.fields, body, "")
        return bytes(self.out)

    def _struct(self, fields: tuple[Field, ...], body: dict[str, Any], path: str) -> None:
        for f in carried(fields, self.version):
            if f.tag is None:
                self._value(f, body[f.name], path)
        if self.flexible:
            tagged = {f.tag: f for f in carried(fields, self.version) if f.tag is not None and body[f.name] != f.make_default()}
            self._tags({tag: (tagged[tag], body[tagged[tag].name]) for tag in sorted(tagged)}, path)

    def _tags(self, tags: dict[int, tuple[Field, Any]], path: str) -> None:
        self._site("tags", path or "message", uvarint(len(tags)))
        for tag, (f, value) in tags.items():
            self.out += uvarint(tag)
            # The value first, to know its size; then both, with the sites inside moved.
            before, sites = self.out, self.sites
            self.out, self.sites = bytearray(), []
            self._value(f, value, path)
            inner, inner_sites = bytes(self.out), self.sites
            self.out, self.sites = before, sites
            self._site("tag", f.name, uvarint(len(inner)))
            base = len(self.out)
            self.sites += [Site(**{**s.__dict__, "start": s.start + base, "end": s.end + base}) for s in inner_sites]
            self.out += inner

    def _value(self, f: Field, value: Any, path: str) -> None:
        nullable = f.nullable_in(self.version)
        if f.is_array:
            self._length("array", f, None if value is None else len(value), nullable, self._smallest(f))
            for item in value or []:
                self._scalar(f, f.element, item, False)
        else:
            self._scalar(f, f.type, value, nullable)

    def _scalar(self, f: Field, kind: str, value: Any, nullable: bool) -> None:
        if kind == "struct":
            if nullable:
                self.out += b"\xff" if value is None else b"\x01"
            if value is not None:
                self._struct(f.fields, value, f.name)
        elif kind == "uuid":
            self.out += value
        elif kind in SIZES:
            self.out += int(value).to_bytes(SIZES[kind], "big", signed=True)
        else:
            data = value.encode("utf-8", "surrogateescape") if kind == "string" and value is not None else value
            self._length("string" if kind == "string" else "bytes", f, None if data is None else len(data), nullable, 1)
            self.out += data or b""

    def _length(self, kind: str, f: Field, length: int | None, nullable: bool, smallest: int) -> None:
        number = -1 if length is None else length
        plain = number.to_bytes(2 if kind == "string" else 4, "big", signed=True)
        self._site(kind, f.name, uvarint(number + 1) if self.flexible else plain, nullable, smallest)

    def _site(self, kind: str, name: str, data: bytes, nullable: bool = False, smallest: int = 1) -> None:
        start = len(self.out)
        self.out += data
        self.sites.append(Site(kind, name, start, len(self.out), self.flexible, nullable, smallest))

    def _smallest(self, f: Field) -> int:
        return self._smallest_of(f, f.element, False)

    def _smallest_of(self, f: Field, kind: str, nullable: bool) -> int:
        if kind == "struct":
            inline = [g for g in carried(f.fields, self.version) if g.tag is None]
            count = 1 if self.flexible else 4
            parts = [count if g.is_array else self._smallest_of(g, g.type, g.nullable_in(self.version)) for g in inline]
            return 1 if nullable else sum(parts) + self.flexible
        if kind in SIZES:
            return SIZES[kind]
        return 1 if self.flexible else 2 if kind == "string" else 4
