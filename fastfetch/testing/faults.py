"""What a script can do to one exchange of a request and its answer.

    broker.on("Fetch", error(6, topic="orders", partition=0), nth=2)
    broker.on("Metadata", delay(0.3), node=1, times=None)

Each function here returns an `Action`: which stage of an exchange it belongs to, and what it does there. A plain function may
stand in its place: it gets the `Exchange` once the answer's body is made, and may change it.

    stage       when                                                examples
    request     the request is decoded, nothing has been done        hold, close
    body        the answer is a dict                                 error, top_error, replace, throttle
    frame       the answer is bytes, size in front                   edit, flip, answer
    send        instead of, or around, sending it                    delay, cut, slices, drop, duplicate, swap, reset
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from fastfetch.protocol import Request

__all__ = [
    "Action",
    "Exchange",
    "Gate",
    "answer",
    "close",
    "cut",
    "delay",
    "drop",
    "duplicate",
    "edit",
    "error",
    "flip",
    "hold",
    "replace",
    "reset",
    "slices",
    "swap",
    "throttle",
    "top_error",
]

Body: TypeAlias = dict[str, Any]


@dataclass(eq=False)
class Exchange:
    """One request on its way through the broker. Actions read and change it.

    body        the answer as a dict, from stage "body" on; a change counts until the frame is made
    frame       the answer as bytes with its size in front, from stage "frame" on
    send        pieces to send, in order; empty: no answer
    pause       seconds before the answer is sent
    between     seconds between two pieces
    swapped     keep the answer back until the next one on this connection has been sent
    ending      how the connection ends after sending: None (it stays), "close", "reset" (RST)
    stopped     set when the broker or the node stops: whoever waits here should wait on this too
    """

    request: Request
    node_id: int
    connection_id: int
    stopped: threading.Event
    body: Body = field(default_factory=dict)
    frame: bytes = b""
    send: list[bytes | memoryview] = field(default_factory=list)
    pause: float = 0.0
    between: float = 0.0
    swapped: bool = False
    ending: Literal["close", "reset"] | None = None

    @property
    def api(self) -> str:
        return self.request.api.name

    def wait(self, seconds: float) -> None:
        """Sleep, but wake up when the node stops."""
        self.stopped.wait(seconds)


Stage = Literal["request", "body", "frame", "send"]
STAGES: tuple[Stage, ...] = ("request", "body", "frame", "send")


class Action(NamedTuple):
    """A change to an exchange at one stage.

    refuses     what members ask of a coordinator (see `REFUSED_WHOLE`) is not done then: a broker either does it or says no
    """

    stage: Stage
    apply: Callable[[Exchange], object]
    refuses: bool = False


_WITHOUT_TOPICS = frozenset({"ListGroups", "DescribeGroups", "ConsumerGroupDescribe"})
REFUSED_WHOLE = frozenset({"JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat"})


class Gate:
    """A door that `hold` waits at. It starts closed.

    arrived     an exchange stands before it (wait for this before the next step of a test)
    """

    def __init__(self) -> None:
        self._opened = threading.Event()
        self.arrived = threading.Event()

    def open(self) -> None:
        self._opened.set()

    def _pass(self, exchange: Exchange) -> None:
        self.arrived.set()
        while not self._opened.wait(0.02) and not exchange.stopped.is_set():
            pass


# ------------------------------------------------------------------------------------------------------------------- request


def hold(gate: Gate, *, answered: bool = False) -> Action:
    """Wait until the gate opens: before the request is looked at, or with its answer ready."""
    return Action("send" if answered else "request", gate._pass)


def close() -> Action:
    """Close the connection without doing what was asked."""

    def end(exchange: Exchange) -> None:
        exchange.ending = "close"

    return Action("request", end)


# ---------------------------------------------------------------------------------------------------------------------- body


def error(code: int, *, topic: str | None = None, partition: int | None = None) -> Action:
    """An error code for every partition of the answer, or for those of one topic, or one partition.

    In Metadata a topic named without a partition gets the code itself; FindCoordinator has it per coordinator. The APIs of
    members (JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ConsumerGroupHeartbeat) have one code, and what was asked is not done;
    those that tell of groups have it for the whole list, or per group.
    """
    fail_whole = top_error(code).apply

    def change(exchange: Exchange) -> None:
        body = exchange.body
        if exchange.api == "FindCoordinator":
            for each in [body, *body.get("coordinators", [])]:
                each.update(error_code=code, node_id=-1, host="", port=-1)
            return
        if exchange.api in REFUSED_WHOLE:
            body["error_code"] = code
            return
        if exchange.api in _WITHOUT_TOPICS:
            fail_whole(exchange)
            return
        topics = body.get("responses") or body.get("topics") or []
        topics = [*topics, *(t for group in body.get("groups", []) for t in group.get("topics", []))]
        for each in topics:
            if topic is not None and topic != (each.get("topic") or each.get("name")):
                continue
            if exchange.api == "Metadata" and partition is None:
                each.update(error_code=code, partitions=[])
                continue
            for p in each["partition_responses" if exchange.api == "Produce" else "partitions"]:
                index = p.get("partition_index", p.get("partition", p.get("index")))
                if partition is None or partition == index:
                    _fail(p, code)

    return Action("body", change, refuses=True)


def _fail(partition: Body, code: int) -> None:
    """A broker that answers an error for a partition says nothing else about it."""
    partition["error_code"] = code
    blank = {"records": b"", "high_watermark": -1, "last_stable_offset": -1, "log_start_offset": -1, "aborted_transactions": None}
    blank |= {"offset": -1, "timestamp": -1, "committed_offset": -1, "end_offset": -1}
    for name, value in blank.items():
        if name in partition:
            partition[name] = value


def top_error(code: int) -> Action:
    """An error code for the whole answer; its topics are left out. For OffsetFetch 8 and later: for every group."""

    def change(exchange: Exchange) -> None:
        body = exchange.body
        if "groups" in body and exchange.api != "ListGroups":
            for group in body["groups"]:
                group.update(error_code=code, **{name: [] for name in ("topics", "members") if name in group})
            return
        body["error_code"] = code
        for name in ("responses", "topics", "groups"):
            if name in body:
                body[name] = []

    return Action("body", change, refuses=True)


def replace(body: Mapping[str, Any] | Callable[[Request, Body], Mapping[str, Any]]) -> Action:
    """Another body: given, or made from the request and the body it would have been."""

    def change(exchange: Exchange) -> None:
        exchange.body = dict(body(exchange.request, exchange.body) if callable(body) else body)

    return Action("body", change)


def throttle(milliseconds: int) -> Action:
    """Claim a throttle time; the answer itself is not late (KIP-219)."""

    def change(exchange: Exchange) -> None:
        exchange.body["throttle_time_ms"] = milliseconds

    return Action("body", change)


# --------------------------------------------------------------------------------------------------------------------- frame


def edit(change: Callable[[bytes], bytes]) -> Action:
    """Change the bytes of the answer, size included."""

    def apply(exchange: Exchange) -> None:
        exchange.frame = change(exchange.frame)

    return Action("frame", apply)


def flip(at: int, mask: int = 0x01) -> Action:
    """Flip bits of one byte of the answer; `at` counts from the size field on, or from the end if negative."""

    def change(frame: bytes) -> bytes:
        out = bytearray(frame)
        out[at] ^= mask
        return bytes(out)

    return edit(change)


def answer(frame: bytes) -> Action:
    """These bytes instead of the answer, whatever they are."""
    return edit(lambda _: frame)


# ---------------------------------------------------------------------------------------------------------------------- send


def _sending(**changes: Any) -> Action:
    def apply(exchange: Exchange) -> None:
        for name, value in changes.items():
            setattr(exchange, name, value)

    return Action("send", apply)


def delay(seconds: float) -> Action:
    """Send the answer later. It says what was true when the request was handled; what is pipelined behind it waits too."""
    return _sending(pause=seconds)


def drop() -> Action:
    """Do what was asked and never answer; the connection stays."""
    return _sending(send=[])


def swap() -> Action:
    """Send the answer after the next one of the same connection."""
    return _sending(swapped=True)


def duplicate() -> Action:
    """Send the answer twice."""

    def apply(exchange: Exchange) -> None:
        exchange.send = exchange.send * 2

    return Action("send", apply)


def slices(size: int, between: float = 0.0) -> Action:
    """Send the answer in pieces of `size` bytes, each in its own write, `between` seconds apart."""

    def apply(exchange: Exchange) -> None:
        frame = b"".join(exchange.send)
        exchange.send = [frame[at : at + size] for at in range(0, len(frame), size)]
        exchange.between = max(between, 1e-6)

    return Action("send", apply)


def cut(size: int) -> Action:
    """Send the first `size` bytes of the answer, size field included, and close the connection."""

    def apply(exchange: Exchange) -> None:
        exchange.send = [b"".join(exchange.send)[:size]]
        exchange.ending = "close"

    return Action("send", apply)


def reset(after: int = 0) -> Action:
    """Send the first `after` bytes of the answer and reset the connection (RST)."""

    def apply(exchange: Exchange) -> None:
        exchange.send = [b"".join(exchange.send)[:after]]
        exchange.ending = "reset"

    return Action("send", apply)
