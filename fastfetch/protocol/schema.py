"""The vocabulary of the field tables: what a message of Kafka's looks like, as data.

An `Api` is two tuples of `Field`s, request and response, in wire order. A field says in which versions it exists, so one table
describes every version of a message; `codec` compiles the table of one version into a reader and a writer. Names are those of
Kafka's public message schemas in snake_case, types are Kafka's.

    F("topics", "[]struct", "0+", nullable="1+", fields=(F("name", "string", "0+"), ...))

Versions are written as Kafka writes them: "0+", "3-7", "4".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["FIXED_TYPES", "UNSET", "ZERO_UUID", "Api", "F", "Field", "Fields"]

ZERO_UUID = bytes(16)
"""Kafka's "no topic id"."""

# Types of fixed size, with their struct codes: neighbours of these are read and written in one go.
FIXED_TYPES = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uuid": "16s"}

_ZERO: dict[str, Any] = {
    "bool": False, "int8": 0, "int16": 0, "int32": 0, "int64": 0, "uuid": ZERO_UUID, "string": "", "bytes": b"", "records": None,
}  # fmt: skip


class _Unset:
    def __repr__(self) -> str:
        return "UNSET"


UNSET = _Unset()
"""Default not given: the zero of the type ("" , 0, an empty list, a struct of defaults)."""


def parse_versions(text: str) -> tuple[int, int]:
    """First and last version of "0+", "3-7" or "4"; an empty text is no version at all (1, 0)."""
    if not text:
        return 1, 0
    if text.endswith("+"):
        return int(text[:-1]), 0x7FFF
    first, dash, last = text.partition("-")
    return int(first), int(last if dash else first)


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """One field of a message.

    name        as in Kafka's schema, in snake_case
    type        bool int8 int16 int32 int64 uuid string bytes records struct, or "[]" and one of these
    versions    versions of the message that carry the field
    nullable    versions in which null is a legal value
    default     value of an absent field; UNSET is the zero of the type
    tag         None: in wire order. A number: a tagged field (KIP-482), absent from the wire while it equals its default
    ignorable   True: may be dropped silently where a version lacks it. False: a value other than the default is then an error,
                because the peer would do something else than what was asked for
    fields      of a struct, or of the struct in an array
    """

    name: str
    type: str
    versions: str
    nullable: str = field(default="", kw_only=True)
    default: Any = field(default=UNSET, kw_only=True)
    tag: int | None = field(default=None, kw_only=True)
    ignorable: bool = field(default=False, kw_only=True)
    fields: tuple[Field, ...] = field(default=(), kw_only=True)

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def element(self) -> str:
        """Type without the array mark."""
        return self.type.removeprefix("[]")

    def present_in(self, version: int) -> bool:
        first, last = parse_versions(self.versions)
        return first <= version <= last

    def nullable_in(self, version: int) -> bool:
        first, last = parse_versions(self.nullable)
        return first <= version <= last

    def make_default(self) -> Any:
        """A fresh default value: lists and structs are never shared between messages."""
        if self.default is not UNSET:
            return self.default
        if self.is_array:
            return []
        if self.type == "struct":
            return {f.name: f.make_default() for f in self.fields}
        return _ZERO[self.type]


F = Field
"""Short, because a table is mostly fields."""

Fields = tuple[Field, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Api:
    """One request and its response, in every version this package speaks.

    key             Kafka's api key
    min_version     lowest version spoken; Kafka 4.0 removed what lies below for several APIs
    max_version     highest version spoken
    flexible_from   first version with compact lengths and tagged fields (KIP-482); None: never
    request, response   the tables
    """

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int | None
    request: Fields
    response: Fields

    def is_flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from

    def knows(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def __repr__(self) -> str:
        return f"<Api {self.name} ({self.key}), versions {self.min_version}-{self.max_version}>"
