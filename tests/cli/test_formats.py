from __future__ import annotations

import base64
import json
from typing import Any

import pytest

import fastfetch
from fastfetch.cli.formats import compile_format
from fastfetch.testing import encode_batch, message_set

ROWS: list[Any] = [
    (b"k0", b"v0", 1_700_000_000_000, []),
    (None, b"", 1_700_000_000_001, [("a", b"1"), ("a", b"2"), ("", None)]),
    (b"", None, 1_700_000_000_002, [("b", b"")]),
    (b"50%\n", 'naïve \u2028 \U0001f600 "q" \\ \x00'.encode(), 1_700_000_000_003, []),
    (b"\xff\xfe", b"\x80abc", 1_700_000_000_004, [(b"\xff", b"\xfe")]),
]


def block(rows: Any = ROWS, topic: str = "t", partition: int = 3, **options: Any) -> fastfetch.RecordBlock:
    decoded = fastfetch.decode(encode_batch(rows, base_offset=5, **options), topic=topic, partition=partition)
    [one] = decoded.blocks
    return one


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (r"%v\n", b"v0\n\n\n" + ROWS[3][1] + b"\n\x80abc\n"),
        ("%s;", b"v0;;;" + ROWS[3][1] + b";\x80abc;"),
        ("%s", b"v0" + ROWS[3][1] + b"\x80abc"),
        (r"%t/%p@%o\n", b"t/3@5\nt/3@6\nt/3@7\nt/3@8\nt/3@9\n"),
        ("%T ", b"1700000000000 1700000000001 1700000000002 1700000000003 1700000000004 "),
        ("%k=%v|", b"k0=v0|=|=|50%\n=" + ROWS[3][1] + b"|\xff\xfe=\x80abc|"),
        ("%K,%S;", b"2,2;-1,0;0,-1;4,%d;2,4;" % len(ROWS[3][1])),
        ("%R", b"\0\0\0\2" + b"\0\0\0\0" + b"\xff\xff\xff\xff" + len(ROWS[3][1]).to_bytes(4, "big") + b"\0\0\0\4"),
        ("[%h]", b"[][a=1,a=2,=][b=][][\xff=\xfe]"),
        ("%e ", b"9 9 9 9 9 "),
        (r"100%% \t\r\0\\\x41\xff", b"100% \t\r\0\\A\xff" * 5),
        ("%%v%%(x)s %o,", b"%v%(x)s 5,%v%(x)s 6,%v%(x)s 7,%v%(x)s 8,%v%(x)s 9,"),
        ("", b""),
        ("é\n", "é\n".encode() * 5),
    ],
)
def test_templates(template: str, expected: bytes) -> None:
    assert compile_format(template)(block(leader_epoch=9)) == expected


def test_a_text_for_null() -> None:
    assert compile_format("%k:%v:%h;", b"NULL")(block()[1:3]) == b"NULL::a=1,a=2,=NULL;:NULL:b=;"


def test_a_percent_sign_in_a_topic_is_text() -> None:
    assert compile_format("%t %o ")(block(topic="50%d")) == b"50%d 5 50%d 6 50%d 7 50%d 8 50%d 9 "


def test_one_formatter_serves_many_partitions() -> None:
    write = compile_format("%t-%p %o ")
    a, b = block(topic="a"), block(topic="b", partition=1)
    assert write(a[:1]) + write(b[:1]) + write(a[1:2]) == b"a-3 5 b-1 5 a-3 6 "


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("%q", "%q is not known"),
        ("a%", "% is not known"),
        (r"\q", r"\\q is not known"),
        ("\\", "is not known"),
        (r"\x4", r"\\x is not known"),
    ],
)
def test_what_is_not_known_is_said(template: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        compile_format(template)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_json_lines(codec: str) -> None:
    text = compile_format("json")(block(codec=codec))
    lines = [json.loads(line) for line in text.split(b"\n")[:-1]]
    assert len(lines) == 5
    assert text.endswith(b"}\n")
    assert lines[0] == {
        "topic": "t",
        "partition": 3,
        "offset": 5,
        "timestamp": 1_700_000_000_000,
        "timestamp_type": "create",
        "key": "k0",
        "value": "v0",
        "headers": [],
    }
    assert list(lines[0]) == ["topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"]
    assert (lines[1]["key"], lines[1]["value"]) == (None, "")
    assert lines[1]["headers"] == [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}, {"key": "", "value": None}]
    assert (lines[2]["key"], lines[2]["value"]) == ("", None)
    assert lines[3]["value"].encode() == ROWS[3][1]


def test_json_keeps_bytes_that_are_not_text() -> None:
    [line] = [json.loads(line) for line in compile_format("json")(block()[4:]).splitlines()]
    assert "key" not in line
    assert "value" not in line
    assert base64.b64decode(line["key_base64"]) == b"\xff\xfe"
    assert base64.b64decode(line["value_base64"]) == b"\x80abc"
    [header] = line["headers"]
    assert (base64.b64decode(header["key_base64"]), base64.b64decode(header["value_base64"])) == (b"\xff", b"\xfe")


def test_json_of_a_block_without_headers_and_of_old_formats() -> None:
    data = message_set([(b"k", b"v")], magic=0) + message_set([(None, b"w")], magic=1, log_append_time=7, base_offset=1)
    blocks = fastfetch.decode(data, topic='q"t').blocks
    lines = [json.loads(line) for b in blocks for line in compile_format("json")(b).splitlines()]
    assert [list(line.values()) for line in lines] == [
        ['q"t', 0, 0, -1, "none", "k", "v", []],
        ['q"t', 0, 1, 7, "log_append", None, "w", []],
    ]
