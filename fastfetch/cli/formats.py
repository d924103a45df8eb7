"""Records as text: a template with kcat's letters, or JSON lines. A formatter turns a block into bytes, column by column.

    %t topic   %p partition   %o offset   %T timestamp (ms since 1970)   %e leader epoch
    %k key     %v or %s value   %h headers as name=value,name=value
    %K, %S     length of the key, of the value in bytes, -1 for null     %R length of the value as a big-endian int32
    %%         a percent sign            \\n \\r \\t \\0 \\\\ \\xHH           the byte

Keys, values and headers are written as they are, byte for byte; null as nothing, or as `--null` says.

JSON lines have always the same members, in this order:

    {"topic": "t", "partition": 0, "offset": 5, "timestamp": 1700000000000, "timestamp_type": "create",
     "key": "k", "value": "v", "headers": [{"key": "h", "value": "x"}]}

Bytes that are UTF-8 are a string. Others are given in base64 under another name, so that nothing is guessed and nothing lost:
`"value_base64": "/w=="` instead of `"value"`, likewise `"key_base64"`, in headers too. Null is null, a timestamp that the
format does not have is -1.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from json.encoder import encode_basestring as _quote
from operator import methodcaller
from typing import Any

from fastfetch.records import RecordBlock

__all__ = ["Formatter", "compile_format"]

Formatter = Callable[[RecordBlock], bytes]

_TOKEN = re.compile(rb"%(?P<letter>.?)|\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<escape>.?))", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"0": b"\0", b"\\": b"\\"}


def compile_format(text: str, null: bytes = b"") -> Formatter:
    """A formatter for `json` or a template. Raises ValueError with a sentence."""
    if text == "json":
        return json_lines
    return _Template(text.encode(errors="surrogateescape"), null)


@dataclass(frozen=True)
class _Column:
    """A letter that differs from record to record: its values in a block, and what stands for one in the row's format."""

    values: Callable[[RecordBlock], Iterable[Any]]
    placeholder: bytes = b"%b"


@dataclass(frozen=True)
class _Constant:
    """A letter that is the same for a whole block."""

    value: Callable[[RecordBlock], bytes]


class _Template:
    def __init__(self, text: bytes, null: bytes) -> None:
        self._pieces: list[bytes | _Column | _Constant] = []
        at = 0
        for token in _TOKEN.finditer(text):
            self._pieces += (text[at : token.start()], _piece(token, null))
            at = token.end()
        self._pieces.append(text[at:])
        self._columns = [piece for piece in self._pieces if isinstance(piece, _Column)]
        self._rows: dict[tuple[str, int], bytes] = {}

    def __call__(self, block: RecordBlock) -> bytes:
        where = (block.topic, block.partition)
        row = self._rows.get(where)
        if row is None:
            row = self._rows[where] = self._row(block)
        columns = [column.values(block) for column in self._columns]
        if len(columns) == 1 and row.startswith(b"%b"):
            # A value a line, the usual case, is a join.
            end: bytes = row[2:] % ()
            return end.join(columns[0]) + end
        if not columns:
            return (row % ()) * len(block)
        return b"".join(map(row.__mod__, zip(*columns, strict=True)))

    def _row(self, block: RecordBlock) -> bytes:
        """The format of one row, for bytes' own % operator: it is C, and as fast as a row can be made."""
        row = []
        for piece in self._pieces:
            if isinstance(piece, _Column):
                row.append(piece.placeholder)
            else:
                text = piece if isinstance(piece, bytes) else piece.value(block)
                row.append(text.replace(b"%", b"%%"))
        return b"".join(row)


def _piece(token: re.Match[bytes], null: bytes) -> bytes | _Column | _Constant:
    if token["hex"] is not None:
        return bytes.fromhex(token["hex"].decode())
    if (escape := token["escape"]) is not None:
        if escape not in _ESCAPES:
            name = escape.decode(errors="replace")
            raise ValueError(f"\\{name} is not known; the escapes are \\n \\r \\t \\0 \\\\ and \\xHH")
        return _ESCAPES[escape]
    letter = token["letter"].decode(errors="replace")
    if letter in ("k", "v", "s"):
        read = methodcaller("keys" if letter == "k" else "values")
        return _Column(lambda block: _filled(read(block), null))
    if letter == "h":
        return _Column(lambda block: [_headers_as_text(headers, null) for headers in block.headers()])
    if letter in _LETTERS:
        return _LETTERS[letter]
    raise ValueError(f"%{letter} is not known; the letters are %t %p %o %T %e %k %v %s %h %K %S %R, and %% for a percent sign")


_LETTERS: dict[str, bytes | _Column | _Constant] = {
    "%": b"%",
    "t": _Constant(lambda block: block.topic.encode(errors="surrogateescape")),
    "p": _Constant(lambda block: b"%d" % block.partition),
    "o": _Column(lambda block: block.offsets.tolist(), b"%d"),
    "T": _Column(lambda block: block.timestamps.tolist(), b"%d"),
    "e": _Column(lambda block: block.leader_epochs.tolist(), b"%d"),
    "K": _Column(lambda block: block.key_lengths.tolist(), b"%d"),
    "S": _Column(lambda block: block.value_lengths.tolist(), b"%d"),
    "R": _Column(lambda block: [n.to_bytes(4, "big", signed=True) for n in block.value_lengths.tolist()]),
}


def _filled(values: list[bytes | None], null: bytes) -> list[bytes]:
    return [null if value is None else value for value in values]


def _headers_as_text(headers: list[tuple[str, bytes | None]], null: bytes) -> bytes:
    return b",".join(
        b"%b=%b" % (name.encode(errors="surrogateescape"), null if value is None else value) for name, value in headers
    )


def json_lines(block: RecordBlock) -> bytes:
    """A JSON object and a line feed for each record."""
    start = f'{{"topic": {_quote(block.topic)}, "partition": {block.partition}, "offset": '
    types = {-1: "none", 0: "create", 1: "log_append"}
    middles = {number: f', "timestamp_type": "{name}", ' for number, name in types.items()}
    headers: Iterable[str] = map(_headers_as_json, block.headers()) if block.header_counts.any() else ["[]"] * len(block)
    lines = [
        f'{start}{offset}, "timestamp": {timestamp}{middles[kind]}{key}, {value}, "headers": {more}}}\n'
        for offset, timestamp, kind, key, value, more in zip(
            block.offsets.tolist(),
            block.timestamps.tolist(),
            block.timestamp_types.tolist(),
            _members("key", block.keys()),
            _members("value", block.values()),
            headers,
            strict=True,
        )
    ]
    return "".join(lines).encode()


def _members(name: str, values: list[bytes | None]) -> list[str]:
    """`"name": "text"` for each value. Nearly always all are text: one that is not makes it look at each of them."""
    null = f'"{name}": null'
    try:
        return [null if value is None else f'"{name}": {_quote(value.decode())}' for value in values]
    except UnicodeDecodeError:
        return [_member(name, value) for value in values]


def _member(name: str, value: bytes | None) -> str:
    if value is None:
        return f'"{name}": null'
    try:
        return f'"{name}": {_quote(value.decode())}'
    except UnicodeDecodeError:
        return f'"{name}_base64": "{b64encode(value).decode()}"'


def _headers_as_json(headers: list[tuple[str, bytes | None]]) -> str:
    if not headers:
        return "[]"
    # A header's name that is not UTF-8 comes with surrogates in it, which JSON can't carry.
    members = (
        f"{{{_member('key', name.encode(errors='surrogateescape'))}, {_member('value', value)}}}" for name, value in headers
    )
    return f"[{', '.join(members)}]"
