"""The reading half of the codec: compiles a field table, for one version, into a bounded reader. `writer` is the other half.

A message comes from a peer that may be hostile. The rules, and where they hold:

- `Reader` alone touches bytes. It compares by subtraction, and everything it hands out lies inside the frame.
- A count is compared with the bytes left divided by the smallest encoding of one element, before anything is allocated. Python
  objects are larger than what they are read from (a struct of 7 bytes becomes a dict of some 500), so there is also a BUDGET.
- An unknown tagged field of good size is skipped (KIP-482): a broker may add one without a new version. Order and repetition of
  tags are not checked, as in the Java client; of a repeated one the last counts. A known one must fill its size exactly.
- Error codes are numbers here. What they mean is for the caller to know, or not.
- A string that isn't UTF-8 is kept, with surrogate escapes, and written back as it was: one odd byte in an error message must not
  lose a response. Lengths are strict: below -1 is an error (Java reads null there).
- Varints have at most 5 bytes and 32 bits. Over-long zero padding is accepted, bits beyond 32 are not.

Whatever is wrong with the bytes becomes `Malformed`, with the path of the field. MemoryError passes through.

A reader of a struct is a list of steps. Neighbouring fields of fixed size are one step and one `struct.unpack`, so that metadata
of ten thousand partitions costs tens of milliseconds, not hundreds.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from fastfetch.protocol.schema import FIXED_TYPES, Field, Fields

__all__ = ["BUDGET", "Malformed", "Read", "Reader", "compile_reader", "smallest_struct"]

BUDGET = 1 << 24
"""What the elements of all arrays of one message may cost, in units of about 64 bytes of Python objects: roughly 1 GiB.

Metadata of a million partitions with three replicas each stays below it."""

# A dict with its values, a str, an int. A tagged field takes no memory if it is unknown, but time: 100 MB could hold 50 million.
_STRUCT_COST, _STRING_COST, _FIXED_COST, _TAG_COST = 8, 2, 1, 2

Read = Callable[["Reader"], Any]
ReadStep = Callable[["Reader", dict[str, Any]], None]


class Malformed(Exception):  # noqa: N818 - internal; callers see ProtocolError
    """Bytes that don't fit the table. `path` grows from the innermost field outwards."""

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at
        self.path: list[str] = []

    def __str__(self) -> str:
        where = "".join(part if part.startswith("[") else f".{part}" for part in reversed(self.path))
        return f"{where.lstrip('.') or 'message'}: {self.reason} (at byte {self.at})"


class Reader:
    """A cursor over one frame: `at` is the next byte, `end` the first one that isn't ours."""

    __slots__ = ("at", "budget", "data", "end")

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0
        self.end = len(data)
        self.budget = BUDGET

    def left(self) -> int:
        return self.end - self.at

    def take(self, size: int) -> int:
        """Pass over `size` >= 0 bytes and return where they start."""
        at = self.at
        if size > self.end - at:
            raise Malformed(f"{size} bytes needed, {self.end - at} left", at)
        self.at = at + size
        return at

    def int8(self) -> int:
        value = self.data[self.take(1)]
        return value - 256 if value > 127 else value

    def int16(self) -> int:
        at = self.take(2)
        return int.from_bytes(self.data[at : at + 2], "big", signed=True)

    def int32(self) -> int:
        at = self.take(4)
        return int.from_bytes(self.data[at : at + 4], "big", signed=True)

    def uvarint(self) -> int:
        """An unsigned varint of at most 32 bits."""
        at, data = self.at, self.data
        if at < self.end and data[at] < 0x80:  # nearly always
            self.at = at + 1
            return data[at]
        value = 0
        for shift in (0, 7, 14, 21, 28):
            if at >= self.end:
                raise Malformed("the bytes end inside a varint", self.at)
            byte = data[at]
            at += 1
            if shift == 28 and byte > 0x0F:
                raise Malformed("a varint of more than 32 bits", self.at)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        self.at = at
        return value

    def compact_length(self) -> int:
        """A length or count of the flexible versions, written as one more than it is; -1 is null."""
        return self.uvarint() - 1

    def sub(self, size: int) -> Reader:
        """A reader of the next `size` bytes only; this one passes over them. The caller takes back what is left of the budget."""
        at = self.take(size)
        inner = Reader(self.data)
        inner.at = at
        inner.end = at + size
        inner.budget = self.budget
        return inner

    def skip_tags(self) -> None:
        """Pass over a section of tagged fields of which none is known."""
        for _ in range(self.tag_count()):
            self.uvarint()
            self.take(self.uvarint())

    def tag_count(self) -> int:
        """Number of tagged fields that follow: each has at least a byte of tag and one of size."""
        at = self.at
        count = self.uvarint()
        if count > self.left() // 2:
            raise Malformed(f"{count} tagged fields declared, {self.left()} bytes left", at)
        self.budget -= count * _TAG_COST
        if self.budget < 0:
            raise Malformed(f"{count} tagged fields make the message longer to read than a client should have to bear", at)
        return count


def _string_reader(flexible: bool, nullable: bool) -> Read:
    length_of: Callable[[Reader], int] = Reader.compact_length if flexible else Reader.int16

    def read(r: Reader) -> str | None:
        start = r.at
        length = length_of(r)
        if length < 0:
            if length == -1 and nullable:
                return None
            raise Malformed("null where null isn't allowed" if length == -1 else f"a string length of {length}", start)
        at = r.take(length)
        return str(r.data[at : at + length], "utf-8", "surrogateescape")

    return read


def _bytes_reader(flexible: bool, nullable: bool, view: bool) -> Read:
    length_of: Callable[[Reader], int] = Reader.compact_length if flexible else Reader.int32

    def read(r: Reader) -> bytes | memoryview | None:
        start = r.at
        length = length_of(r)
        if length < 0:
            if length == -1 and nullable:
                return None
            raise Malformed("null where null isn't allowed" if length == -1 else f"a length of {length}", start)
        at = r.take(length)
        part = r.data[at : at + length]
        return part if view else bytes(part)

    return read


def _count(r: Reader, flexible: bool, nullable: bool, smallest: int, cost: int) -> int:
    """Elements of an array, proved to fit into the bytes left and the budget; -1 is null."""
    at = r.at
    count = r.compact_length() if flexible else r.int32()
    if count < 0:
        if count == -1 and nullable:
            return -1
        raise Malformed("null where null isn't allowed" if count == -1 else f"a count of {count}", at)
    if count > r.left() // smallest:
        raise Malformed(f"a count of {count} needs at least {count * smallest} bytes, {r.left()} left", at)
    r.budget -= count * cost
    if r.budget < 0:
        raise Malformed(f"a count of {count} makes the message larger in memory than a client should have to bear", at)
    return count


def _fixed_array_reader(code: str, flexible: bool, nullable: bool) -> Read:
    # Replica lists are short and come by the ten thousand.
    plans = [struct.Struct(f">{count}{code}").unpack_from for count in range(8)]
    size = struct.calcsize(">" + code)

    def read(r: Reader) -> list[Any] | None:
        count = _count(r, flexible, nullable, size, _FIXED_COST)
        if count < 0:
            return None
        at = r.take(count * size)
        if count < len(plans):
            return list(plans[count](r.data, at))
        return list(struct.unpack_from(f">{count}{code}", r.data, at))

    return read


def _array_reader(read_one: Read, flexible: bool, nullable: bool, smallest: int, cost: int) -> Read:
    def read(r: Reader) -> list[Any] | None:
        count = _count(r, flexible, nullable, smallest, cost)
        if count < 0:
            return None
        out: list[Any] = []
        try:
            for _ in range(count):
                out.append(read_one(r))  # not a comprehension: the index of a bad element is len(out)
        except Malformed as bad:
            bad.path.append(f"[{len(out)}]")
            raise
        return out

    return read


def _nullable_struct_reader(read_struct: Read) -> Read:
    def read(r: Reader) -> dict[str, Any] | None:
        # One int8: negative is null. The public protocol guide says -1 and 1; Java tests the sign.
        if r.int8() < 0:
            return None
        value: dict[str, Any] = read_struct(r)
        return value

    return read


def _value_reader(f: Field, version: int, flexible: bool) -> Read:
    nullable = f.nullable_in(version)
    if f.is_array:
        if f.element in FIXED_TYPES:
            return _fixed_array_reader(FIXED_TYPES[f.element], flexible, nullable)
        if f.element == "struct":
            read_one, smallest = compile_reader(f.fields, version, flexible), smallest_struct(f.fields, version, flexible)
            return _array_reader(read_one, flexible, nullable, smallest, _STRUCT_COST)
        return _array_reader(_string_reader(flexible, False), flexible, nullable, 1 if flexible else 2, _STRING_COST)
    if f.type == "struct":
        read_struct = compile_reader(f.fields, version, flexible)
        return _nullable_struct_reader(read_struct) if nullable else read_struct
    if f.type == "string":
        return _string_reader(flexible, nullable)
    if f.type in ("bytes", "records"):
        return _bytes_reader(flexible, nullable, view=f.type == "records")
    unpack = struct.Struct(">" + FIXED_TYPES[f.type])

    def read_fixed(r: Reader) -> Any:
        return unpack.unpack_from(r.data, r.take(unpack.size))[0]

    return read_fixed


def smallest_struct(fields: Fields, version: int, flexible: bool) -> int:
    """Bytes of the shortest encoding of a struct. Never 0, so that a count is always bounded by the bytes left."""
    total = 1 if flexible else 0
    for f in fields:
        if f.tag is not None or not f.present_in(version):
            continue
        if f.type in FIXED_TYPES:
            total += struct.calcsize(">" + FIXED_TYPES[f.type])
        elif f.type == "struct":
            total += 1 if f.nullable_in(version) else smallest_struct(f.fields, version, flexible)
        elif flexible:
            total += 1
        else:
            total += 2 if f.type == "string" else 4
    return max(total, 1)


def _fixed_step(fields: Fields) -> ReadStep:
    """Neighbouring fields of fixed size, read in one go."""
    names = tuple(f.name for f in fields)
    plan = struct.Struct(">" + "".join(FIXED_TYPES[f.type] for f in fields))
    size, unpack_from = plan.size, plan.unpack_from

    def step(r: Reader, out: dict[str, Any]) -> None:
        at = r.at
        if size > r.end - at:
            # Name the first field that doesn't fit.
            for f in fields:
                try:
                    r.take(struct.calcsize(">" + FIXED_TYPES[f.type]))
                except Malformed as bad:
                    bad.path.append(f.name)
                    raise
        r.at = at + size
        out.update(zip(names, unpack_from(r.data, at), strict=True))

    return step


def _step(f: Field, version: int, flexible: bool) -> ReadStep:
    name, read = f.name, _value_reader(f, version, flexible)

    def step(r: Reader, out: dict[str, Any]) -> None:
        try:
            out[name] = read(r)
        except Malformed as bad:
            bad.path.append(name)
            raise

    return step


def _tags_step(fields: Fields, version: int) -> ReadStep:
    known = {f.tag: (f.name, _value_reader(f, version, True)) for f in fields}

    def step(r: Reader, out: dict[str, Any]) -> None:
        data = r.data
        if r.at < r.end and data[r.at] == 0:  # nearly always
            r.at += 1
            return
        label = "tagged fields"
        try:
            for _ in range(r.tag_count()):
                label = "tagged fields"
                tag = r.uvarint()
                label = f"tag {tag}"
                size = r.uvarint()
                if tag not in known:
                    r.take(size)
                    continue
                label, read = known[tag]
                inner = r.sub(size)
                out[label] = read(inner)
                r.budget = inner.budget
                if inner.at != inner.end:
                    raise Malformed(f"{inner.left()} of the tagged field's {size} bytes left over", inner.at)
        except Malformed as bad:
            bad.path.append(label)
            raise

    return step


def compile_reader(fields: Fields, version: int, flexible: bool) -> Read:
    """A function that reads one struct of this version into a dict with every key of the table, whatever the version carries."""
    present = [f for f in fields if f.present_in(version)]
    inline = [f for f in present if f.tag is None]
    steps: list[ReadStep] = []
    run: list[Field] = []
    for f in [*inline, None]:
        if f is not None and f.type in FIXED_TYPES:
            run.append(f)
            continue
        if run:
            steps.append(_fixed_step(tuple(run)))
            run = []
        if f is not None:
            steps.append(_step(f, version, flexible))
    if flexible:
        steps.append(_tags_step(tuple(f for f in present if f.tag is not None), version))
    # All keys at once and in the table's order; the steps then only replace values.
    template = {f.name: f.make_default() for f in fields}
    read_inline = {f.name for f in inline}
    # A mutable default must be this message's own.
    fresh = [f for f in fields if f.name not in read_inline and isinstance(template[f.name], list | dict)]

    def read(r: Reader) -> dict[str, Any]:
        out = template.copy()
        for f in fresh:
            out[f.name] = f.make_default()
        for step in steps:
            step(r, out)
        return out

    return read
