"""The writing half of the codec: compiles a field table, for one version, into a writer.

A body is the caller's, so everything wrong with it is UsageError and names the field: an unknown key (a typo would otherwise be
sent as a default), a value out of its type's range, null where it isn't allowed, a field that this version can't carry. Keys left
out are written with the schema's defaults; a tagged field that equals its default isn't written at all.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from fastfetch.errors import UsageError
from fastfetch.protocol.schema import FIXED_TYPES, Field, Fields

__all__ = ["Write", "compile_writer", "write_body"]

# Kafka's own limit for both forms of a string; a broker refuses a longer one.
_MAX_STRING = 0x7FFF
_MAX_LENGTH = 0x7FFFFFFF

Write = Callable[[bytearray, Any], None]
WriteStep = Callable[[bytearray, Mapping[str, Any]], None]


class _BadBody(Exception):  # noqa: N818 - internal; callers see UsageError
    """A value that can't be written."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.path: list[str] = []

    def __str__(self) -> str:
        where = "".join(part if part.startswith("[") else f".{part}" for part in reversed(self.path))
        return f"{where.lstrip('.') or 'body'}: {self.args[0]}"


def _write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint, 0 <= value < 2^32."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_string(out: bytearray, value: str | None, *, flexible: bool, nullable: bool) -> None:
    """Append a string with its length in front."""
    if value is None:
        if not nullable:
            raise _BadBody("None where null isn't allowed")
        out += b"\0" if flexible else b"\xff\xff"
        return
    if not isinstance(value, str):
        raise _BadBody(f"a str is needed, not {type(value).__name__}")
    try:
        data = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise _BadBody(f"not encodable as UTF-8 ({error.reason})") from None
    if len(data) > _MAX_STRING:
        raise _BadBody(f"{len(data)} bytes long; Kafka's strings have at most {_MAX_STRING}")
    if flexible:
        _write_uvarint(out, len(data) + 1)
    else:
        out += len(data).to_bytes(2, "big")
    out += data


def _write_length(out: bytearray, length: int, flexible: bool) -> None:
    """Length or count; -1 is null."""
    if length > _MAX_LENGTH - 1:
        raise _BadBody(f"{length} is too long for the protocol")
    if flexible:
        _write_uvarint(out, length + 1)
    else:
        out += length.to_bytes(4, "big", signed=True)


def _write_count(out: bytearray, value: Any, flexible: bool, nullable: bool) -> bool:
    """False: null, and written."""
    if value is None:
        if not nullable:
            raise _BadBody("None where null isn't allowed")
        _write_length(out, -1, flexible)
        return False
    if not isinstance(value, list | tuple):
        raise _BadBody(f"a list is needed, not {type(value).__name__}")
    _write_length(out, len(value), flexible)
    return True


def _array_writer(write_one: Write, flexible: bool, nullable: bool) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if not _write_count(out, value, flexible, nullable):
            return
        index = -1
        try:
            for index, item in enumerate(value):  # noqa: B007 - named in the error
                write_one(out, item)
        except _BadBody as bad:
            bad.path.append(f"[{index}]")
            raise

    return write


def _fixed_writer(kind: str) -> Write:
    plan = struct.Struct(">" + FIXED_TYPES[kind])

    def write(out: bytearray, value: Any) -> None:
        # struct would cut or pad a uuid, and take anything for a bool.
        if kind == "uuid" and not (isinstance(value, bytes) and len(value) == 16):
            raise _BadBody(f"{value!r} is no uuid of 16 bytes")
        if kind == "bool" and not isinstance(value, bool):
            raise _BadBody(f"{value!r} is no bool")
        try:
            out += plan.pack(value)
        except struct.error:
            raise _BadBody(f"{value!r} is no {kind}") from None

    return write


def _bytes_writer(flexible: bool, nullable: bool) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise _BadBody("None where null isn't allowed")
            _write_length(out, -1, flexible)
            return
        try:
            data = memoryview(value).cast("B")
        except TypeError:
            raise _BadBody(f"a bytes-like object is needed, not {type(value).__name__}") from None
        _write_length(out, len(data), flexible)
        out += data

    return write


def _string_writer(flexible: bool, nullable: bool) -> Write:
    def write(out: bytearray, value: Any) -> None:
        _write_string(out, value, flexible=flexible, nullable=nullable)

    return write


def _nullable_struct_writer(write_struct: Write) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0xFF)
            return
        out.append(1)
        write_struct(out, value)

    return write


def _value_writer(f: Field, version: int, flexible: bool) -> Write:
    nullable = f.nullable_in(version)
    if f.is_array:
        if f.element == "struct":
            return _array_writer(compile_writer(f.fields, version, flexible), flexible, nullable)
        if f.element == "string":
            return _array_writer(_string_writer(flexible, False), flexible, nullable)
        return _array_writer(_fixed_writer(f.element), flexible, nullable)
    if f.type == "struct":
        write_struct = compile_writer(f.fields, version, flexible)
        return _nullable_struct_writer(write_struct) if nullable else write_struct
    if f.type == "string":
        return _string_writer(flexible, nullable)
    if f.type in ("bytes", "records"):
        return _bytes_writer(flexible, nullable)
    return _fixed_writer(f.type)


def _inline_step(f: Field, version: int, flexible: bool) -> WriteStep:
    name, write = f.name, _value_writer(f, version, flexible)

    def step(out: bytearray, body: Mapping[str, Any]) -> None:
        try:
            write(out, body[name] if name in body else f.make_default())
        except _BadBody as bad:
            bad.path.append(name)
            raise

    return step


def _write_tags_step(fields: Fields, version: int) -> WriteStep:
    ordered = [(f, _value_writer(f, version, True)) for f in sorted(fields, key=lambda f: f.tag or 0)]

    def step(out: bytearray, body: Mapping[str, Any]) -> None:
        tags: list[tuple[int, bytearray]] = []
        for f, write in ordered:
            if f.name not in body or _is_default(f, body[f.name]):
                continue
            value = bytearray()
            try:
                write(value, body[f.name])
            except _BadBody as bad:
                bad.path.append(f.name)
                raise
            assert f.tag is not None
            tags.append((f.tag, value))
        _write_uvarint(out, len(tags))
        for tag, value in tags:
            _write_uvarint(out, tag)
            _write_uvarint(out, len(value))
            out += value

    return step


def _is_default(f: Field, value: Any) -> bool:
    default = f.make_default()
    if isinstance(default, dict) and isinstance(value, Mapping):
        return all(_is_default(inner, value[inner.name]) for inner in f.fields if inner.name in value)
    return bool(value == default)


def compile_writer(fields: Fields, version: int, flexible: bool) -> Write:
    """A function that appends one struct of this version. Keys left out are written with their defaults."""
    present = [f for f in fields if f.present_in(version)]
    steps: list[WriteStep] = [_inline_step(f, version, flexible) for f in present if f.tag is None]
    if flexible:
        steps.append(_write_tags_step(tuple(f for f in present if f.tag is not None), version))
    absent = [f for f in fields if not f.present_in(version) and not f.ignorable]
    names = frozenset(f.name for f in fields)

    def write(out: bytearray, body: Any) -> None:
        if not isinstance(body, Mapping):
            raise _BadBody(f"a dict is needed, not {type(body).__name__}")
        if not names.issuperset(body):
            raise _BadBody(f"unknown key {sorted(set(body) - names)[0]!r}; known are {', '.join(sorted(names))}")
        for f in absent:
            if f.name in body and not _is_default(f, body[f.name]):
                # Dropping it silently would make the peer do something else than what was asked for.
                bad = _BadBody(f"this version has no such field; it must be left out, or be {f.make_default()!r}")
                bad.path.append(f.name)
                raise bad
        for step in steps:
            step(out, body)

    return write


def write_body(write: Write, out: bytearray, body: Mapping[str, Any], label: str) -> None:
    """Append `body`, or raise UsageError that names the message and the field."""
    try:
        write(out, body)
    except _BadBody as bad:
        raise UsageError(f"{label}: {bad}") from None
