"""Subscriptions, assignments and user data against the bytes of the Java client, and what is refused."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfetch.errors import ProtocolError, UsageError
from fastfetch.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_cooperative_user_data,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_cooperative_user_data,
    encode_sticky_user_data,
    encode_subscription,
    java_order,
)
from fastfetch.types import TopicPartition

DATA = Path(__file__).parent.parent / "data" / "consumer_protocol.jsonl.xz"
LINES: list[dict[str, Any]] = [json.loads(text) for text in lzma.decompress(DATA.read_bytes()).decode().splitlines()]
WRITTEN = [line for line in LINES if line["version"] is not None]
ODD = [line for line in LINES if line["version"] is None]

# Where Java reads something, and we refuse it.
STRICTER = {
    ("subscription", "user-data-length-minus-2"): "lengths below -1 are no null",
    ("assignment", "partition-negative"): "a leader that assigns partition -1 is at fault",
}
# Where Java refuses, and we read something.
LAXER = {("assignment", "cut-0"): "no bytes at all are an assignment of nothing"}
# Where both read something, and not the same.
OTHERWISE = {("subscription", "topic-not-utf8"): "kept with surrogate escapes, not replaced by U+FFFD"}

GOLDEN = Subscription(
    ("t1", "t0"), None, (TopicPartition("t1", 2), TopicPartition("t0", 0), TopicPartition("t0", 1)), generation=5, rack="r1"
)
TOPICS, OWNED = (
    "00000002 0002 7430 0002 7431 ffffffff",
    "00000002 0002 7430 00000002 00000000 00000001 0002 7431 00000001 00000002",
)
GOLDEN_BYTES = {
    0: f"0000 {TOPICS}",
    1: f"0001 {TOPICS} {OWNED}",
    2: f"0002 {TOPICS} {OWNED} 00000005",
    3: f"0003 {TOPICS} {OWNED} 00000005 0002 7231",
}


def label(line: dict[str, Any]) -> str:
    return f"{line['kind']}-{line['name']}-{line['version']}"


def partitions(pairs: list[list[Any]]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for topic, number in pairs)


def user_data(fields: dict[str, Any]) -> bytes | None:
    return None if fields["user_data"] is None else bytes.fromhex(fields["user_data"])


def value(kind: str, fields: dict[str, Any]) -> Subscription | Assignment:
    if kind == "assignment":
        return Assignment(partitions(fields["partitions"]), user_data(fields))
    return Subscription(
        tuple(fields["topics"]), user_data(fields), partitions(fields["owned"]), fields["generation"], fields["rack"]
    )


def decoded(kind: str, data: bytes) -> Subscription | Assignment:
    return decode_subscription(data) if kind == "subscription" else decode_assignment(data)


def test_the_golden_data_is_there() -> None:
    assert len(WRITTEN) > 80
    assert len(ODD) > 80
    assert {*STRICTER, *LAXER, *OTHERWISE} <= {(line["kind"], line["name"]) for line in ODD}
    assert not any(line["read"] is None for line in ODD if (line["kind"], line["name"]) in STRICTER)


@pytest.mark.parametrize("line", WRITTEN, ids=label)
def test_what_java_wrote(line: dict[str, Any]) -> None:
    """The same bytes from the same values, and what Java reads in them."""
    data, given_value = bytes.fromhex(line["hex"]), value(line["kind"], line["from"])
    if isinstance(given_value, Subscription):
        assert encode_subscription(given_value, line["version"]) == data
    else:
        assert encode_assignment(given_value, line["version"]) == data
    assert decoded(line["kind"], data) == value(line["kind"], line["read"])


@pytest.mark.parametrize("line", ODD, ids=label)
def test_odd_and_cut_bytes(line: dict[str, Any]) -> None:
    """Java's answer, ProtocolError where it throws; the differences are listed, and are real."""
    kind, data, which = line["kind"], bytes.fromhex(line["hex"]), (line["kind"], line["name"])
    if which in LAXER:
        assert line["read"] is None
        assert decoded(kind, data) == Assignment()
    elif line["read"] is None or which in STRICTER:
        with pytest.raises(ProtocolError, match=kind):
            decoded(kind, data)
    else:
        assert (decoded(kind, data) == value(kind, line["read"])) == (which not in OTHERWISE)


@pytest.mark.parametrize("version", GOLDEN_BYTES)
def test_a_subscription_in_each_version(version: int) -> None:
    data = bytes.fromhex(GOLDEN_BYTES[version])
    assert encode_subscription(GOLDEN, version) == data
    read = decode_subscription(data)
    assert read.topics == ("t0", "t1")
    assert set(read.owned) == (set(GOLDEN.owned) if version >= 1 else set())
    assert read.generation == (5 if version >= 2 else -1)
    assert read.rack == ("r1" if version >= 3 else None)


def test_version_3_is_written() -> None:
    assert encode_subscription(GOLDEN) == bytes.fromhex(GOLDEN_BYTES[3])
    assert encode_assignment(Assignment()) == bytes.fromhex("0003 00000000 ffffffff")


def test_an_assignment_keeps_its_order() -> None:
    assignment = Assignment(partitions([["t1", 2], ["t0", 1], ["t0", 0]]))
    data = bytes.fromhex("0003 00000002 0002 7431 00000001 00000002 0002 7430 00000002 00000001 00000000 ffffffff")
    assert encode_assignment(assignment) == data
    assert decode_assignment(data) == assignment


def test_no_bytes_are_an_assignment_of_nothing_and_no_subscription() -> None:
    assert decode_assignment(b"") == Assignment()
    with pytest.raises(ProtocolError, match="subscription"):
        decode_subscription(b"")


def test_sticky_user_data() -> None:
    owned = partitions([["t0", 1], ["t0", 0], ["t1", 2]])
    data = bytes.fromhex("00000002 0002 7430 00000002 00000001 00000000 0002 7431 00000001 00000002 00000007")
    assert encode_sticky_user_data(owned, 7) == data
    assert decode_sticky_user_data(data) == (owned, 7)
    assert decode_sticky_user_data(data[:-4]) == (owned, -1), "before Kafka 2.3 there was no generation"
    assert decode_sticky_user_data(data + b"more") == (owned, 7)
    for end in range(len(data) - 4):
        with pytest.raises(ProtocolError, match="sticky user data"):
            decode_sticky_user_data(data[:end])


def test_cooperative_user_data() -> None:
    assert encode_cooperative_user_data(7) == bytes.fromhex("00000007")
    assert encode_cooperative_user_data(-1) == bytes.fromhex("ffffffff")
    assert decode_cooperative_user_data(bytes.fromhex("0000000709")) == 7
    assert decode_cooperative_user_data(bytes.fromhex("fffffffe")) == -1
    with pytest.raises(ProtocolError, match="cooperative-sticky user data"):
        decode_cooperative_user_data(b"\0\0\0")


def test_what_cannot_be_written_is_the_callers_fault() -> None:
    with pytest.raises(UsageError, match="subscription v3: topics"):
        encode_subscription(Subscription(("t" * 40_000,)))
    with pytest.raises(UsageError, match="assignment v3: partitions"):
        encode_assignment(Assignment((TopicPartition("t", 2**31),)))
    with pytest.raises(ValueError, match="version 4"):
        encode_subscription(GOLDEN, 4)


def test_strings_are_sorted_by_utf16_units() -> None:
    """Above U+FFFF a character is two units that begin with 0xD8: Java puts it before U+E000, Python behind."""
    assert sorted(["\ue000", "\U0001f600", "a"], key=java_order) == ["a", "\U0001f600", "\ue000"]
    assert decode_subscription(encode_subscription(Subscription(("\ue000", "\U0001f600")))).topics == ("\U0001f600", "\ue000")


numbers = st.integers(0, 2**31 - 1)
owned_partitions = st.lists(st.builds(TopicPartition, st.text(max_size=4), numbers), max_size=6)


@given(
    st.lists(st.text(max_size=5), max_size=4), st.none() | st.binary(max_size=9), owned_partitions, numbers, st.none() | st.text()
)
def test_a_subscription_comes_back(
    topics: list[str], data: bytes | None, owned: list[TopicPartition], generation: int, rack: str | None
) -> None:
    sent = Subscription(tuple(topics), data, tuple(owned), generation, rack)
    read = decode_subscription(encode_subscription(sent))
    assert (sorted(read.topics), sorted(read.owned)) == (sorted(topics), sorted(owned))
    assert (read.user_data, read.generation, read.rack) == (data, generation, rack or None)


@given(st.binary(max_size=60) | st.binary(max_size=40).map(lambda rest: b"\0\3\0\0\0\1\0\1t" + rest))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment, decode_sticky_user_data, decode_cooperative_user_data):
        try:
            decode(data)
        except ProtocolError:
            continue


@pytest.mark.parametrize("count", [2**31 - 1, 2**24, 100])
def test_a_count_is_no_reason_to_allocate(count: int) -> None:
    data = b"\0\1" + b"\0\0\0\0" + b"\xff\xff\xff\xff" + count.to_bytes(4, "big") + b"\0" * 90
    with pytest.raises(ProtocolError, match="a count of"):
        decode_subscription(data)
