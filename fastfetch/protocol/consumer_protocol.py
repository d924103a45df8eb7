"""What consumers of a group tell one another: subscriptions, assignments, and the user data of the sticky assignors.

The coordinator carries these as bytes in JoinGroup and SyncGroup and does not look inside; protocol type "consumer". Each begins
with an int16 version and none is flexible:

    subscription   topics, user data   | v1 owned partitions | v2 generation (-1: none) | v3 rack (KIP-881)
    assignment     partitions, user data, the same in v0-v3
    user data      sticky: owned partitions, generation (v0 had none); cooperative-sticky: the generation

Fields are never removed or put in another order, so a version newer than we know is read as the highest that we do, and what
follows is ignored. The bytes come from other members, by way of a coordinator: they are read by the same bounded codec as
responses, and whatever is wrong with them is ProtocolError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from fastfetch.errors import ProtocolError
from fastfetch.protocol.codec import Malformed, Read, Reader, compile_reader
from fastfetch.protocol.schema import F, Fields
from fastfetch.protocol.writer import Write, compile_writer, write_body
from fastfetch.types import TopicPartition

__all__ = [
    "NO_GENERATION",
    "VERSION",
    "Assignment",
    "Subscription",
    "decode_assignment",
    "decode_cooperative_user_data",
    "decode_sticky_user_data",
    "decode_subscription",
    "encode_assignment",
    "encode_cooperative_user_data",
    "encode_sticky_user_data",
    "encode_subscription",
    "java_order",
]

VERSION = 3
"""Highest version of both messages, and the one that is written."""

NO_GENERATION = -1

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants, and what it had.

    topics        names, whether they exist or not
    user_data     the assignor's own
    owned         partitions it holds while it joins; empty under the eager protocol
    generation    of the group when it got them; -1: none, or an old version of the message
    rack          where it runs, None if it does not say
    instance_id   of a static member (KIP-345). Not in these bytes: JoinGroup tells it beside them
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a member gets, with the assignor's own bytes."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


_PARTITIONS: Fields = (F("topic", "string", "0+"), F("partitions", "[]int32", "0+"))

# What an older version lacks is left out silently: the peer that reads it has no use for it.
_SUBSCRIPTION: Fields = (
    F("topics", "[]string", "0+"),
    F("user_data", "bytes", "0+", nullable="0+", default=None),
    F("owned", "[]struct", "1+", fields=_PARTITIONS, ignorable=True),
    F("generation", "int32", "2+", default=NO_GENERATION, ignorable=True),
    F("rack", "string", "3+", nullable="3+", default=None, ignorable=True),
)
_ASSIGNMENT: Fields = (
    F("partitions", "[]struct", "0+", fields=_PARTITIONS),
    F("user_data", "bytes", "0+", nullable="0+", default=None),
)
_STICKY: Fields = (
    F("owned", "[]struct", "0+", fields=_PARTITIONS),
    F("generation", "int32", "1+", default=NO_GENERATION),
)


@cache
def _reader(fields: Fields, version: int) -> Read:
    return compile_reader(fields, version, flexible=False)


@cache
def _writer(fields: Fields, version: int) -> Write:
    return compile_writer(fields, version, flexible=False)


def java_order(text: str) -> bytes:
    """Sort key of a string as Java compares them: by UTF-16 code units, not by code points."""
    return text.encode("utf-16-be", "surrogatepass")


def encode_subscription(subscription: Subscription, version: int = VERSION) -> bytes:
    """The bytes for JoinGroup. Topics and owned partitions are sorted, as the Java client does. UsageError: not encodable."""
    owned = sorted(subscription.owned, key=lambda tp: (java_order(tp.topic), tp.partition))
    body = {
        "topics": sorted(subscription.topics, key=java_order),
        "user_data": subscription.user_data,
        "owned": _by_topic(owned),
        "generation": subscription.generation,
        "rack": subscription.rack,
    }
    return _written(_SUBSCRIPTION, version, body, "subscription")


def decode_subscription(data: Buffer) -> Subscription:
    """A member's metadata as its leader reads it. Claims are not judged here: they may repeat or name what does not exist.

    A negative generation is none, and so is an empty rack. ProtocolError: malformed, or a negative version.
    """
    body = _read(_SUBSCRIPTION, data, "subscription")
    return Subscription(
        topics=tuple(body["topics"]),
        user_data=body["user_data"],
        owned=_flat(body["owned"]),
        generation=max(body["generation"], NO_GENERATION),
        rack=body["rack"] or None,
    )


def encode_assignment(assignment: Assignment, version: int = VERSION) -> bytes:
    """The bytes for SyncGroup, in the order given, one entry a topic. UsageError: not encodable."""
    body = {"partitions": _by_topic(assignment.partitions), "user_data": assignment.user_data}
    return _written(_ASSIGNMENT, version, body, "assignment")


def decode_assignment(data: Buffer) -> Assignment:
    """What a leader sent us. No bytes at all are an assignment of nothing. Whether we asked for it is not known here.

    ProtocolError: malformed, a negative version, a partition with a negative number.
    """
    if not len(data):
        return Assignment()
    body = _read(_ASSIGNMENT, data, "assignment")
    partitions = _flat(body["partitions"])
    for tp in partitions:
        if tp.partition < 0:
            raise ProtocolError(f"assignment: partition {tp.partition} of topic {tp.topic!r}; the group's leader is at fault")
    return Assignment(partitions, body["user_data"])


def encode_sticky_user_data(owned: Iterable[TopicPartition], generation: int) -> bytes:
    """User data of `sticky`, whose members give everything up before they join: what they had is only known from here."""
    out = bytearray()
    write_body(_writer(_STICKY, 1), out, {"owned": _by_topic(owned), "generation": generation}, "sticky user data")
    return bytes(out)


def decode_sticky_user_data(data: Buffer) -> tuple[tuple[TopicPartition, ...], int]:
    """Partitions owned, and the generation they are from: -1 from clients before Kafka 2.3, whose bytes end before it."""
    reader = Reader(memoryview(data))
    body = _guarded(_reader(_STICKY, 0), reader, "sticky user data")
    generation = NO_GENERATION
    if reader.left() >= 4:
        generation = max(reader.int32(), NO_GENERATION)
    return _flat(body["owned"]), generation


def encode_cooperative_user_data(generation: int) -> bytes:
    """User data of `cooperative-sticky`: for leaders that only know subscriptions below v2."""
    return struct.pack(">i", generation)


def decode_cooperative_user_data(data: Buffer) -> int:
    """The generation, -1 for none."""
    try:
        return max(Reader(memoryview(data)).int32(), NO_GENERATION)
    except Malformed as bad:
        raise ProtocolError(f"cooperative-sticky user data: {bad}") from None


def _written(fields: Fields, version: int, body: dict[str, Any], label: str) -> bytes:
    if not 0 <= version <= VERSION:
        raise ValueError(f"{label}: version {version}; known are 0-{VERSION}")
    out = bytearray(version.to_bytes(2, "big"))
    write_body(_writer(fields, version), out, body, f"{label} v{version}")
    return bytes(out)


def _read(fields: Fields, data: Buffer, label: str) -> dict[str, Any]:
    reader = Reader(memoryview(data))
    version = _guarded(Reader.int16, reader, label)
    if version < 0:
        raise ProtocolError(f"{label}: version {version}")
    body: dict[str, Any] = _guarded(_reader(fields, min(version, VERSION)), reader, f"{label} v{version}")
    return body


def _guarded(read: Read, reader: Reader, label: str) -> Any:
    try:
        return read(reader)
    except Malformed as bad:
        raise ProtocolError(f"{label}: {bad}") from None


def _by_topic(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    """One entry a topic, topics and partitions in the order of their first appearance."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return [{"topic": topic, "partitions": numbers} for topic, numbers in found.items()]


def _flat(entries: list[dict[str, Any]]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(entry["topic"], number) for entry in entries for number in entry["partitions"])
