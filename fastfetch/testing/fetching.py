"""Fetch, as a broker answers it: size limits, long polls, isolation, leader epochs, follower fetching and sessions.

KIP-74    partitions are filled in request order up to the limits; the first that has data gives at least one whole batch
KIP-98    read_committed ends at the last stable offset and comes with the aborted transactions
KIP-227   sessions: an incremental answer holds only what is new
KIP-320   leader epochs are checked, and an epoch in the request finds a diverged log
KIP-392   a preferred replica is named instead of giving records
KIP-951   from version 16 on "not the leader" comes with the new leader and its address
"""

from __future__ import annotations

import os
import struct
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from fastfetch.protocol import ZERO_UUID, Request, encode_response

from .handlers import FENCED_LEADER_EPOCH, NOT_LEADER, UNKNOWN_TOPIC_ID, Body, Context, check_epoch
from .partition import NOTHING, Partition, Slice

__all__ = ["SessionCache", "encode_fetch", "fetch"]

OFFSET_OUT_OF_RANGE, SESSION_NOT_FOUND, INVALID_SESSION_EPOCH = 1, 70, 71
LARGEST_FETCH = 55 << 20
"""A broker's own fetch.max.bytes, over which no request goes."""

_INITIAL_EPOCH, _FINAL_EPOCH, _LAST_EPOCH = 0, -1, 2**31 - 1

Key: TypeAlias = tuple[str | bytes, int]


class Asked(NamedTuple):
    """One partition of a fetch: the topic as the client named it (one of the two) and its fields of the request."""

    topic: str
    topic_id: bytes
    fields: Body

    @property
    def key(self) -> Key:
        return self.topic or self.topic_id, self.fields["partition"]


@dataclass(eq=False)
class Session:
    """KIP-227: what one client fetches from one node.

    epoch       the next request must carry it
    partitions  in fetch order: a partition that gave records moves to the end
    shown       high watermark and log start as the client knows them
    """

    id: int
    epoch: int
    partitions: OrderedDict[Key, Asked] = field(default_factory=OrderedDict)
    shown: dict[Key, tuple[int, int]] = field(default_factory=dict)

    def is_news(self, asked: Asked, answer: Body) -> bool:
        """Note what the client learns from an answer; False if it is nothing."""
        shown = answer["high_watermark"], answer["log_start_offset"]
        news = bool(
            self.shown.get(asked.key) != shown
            or answer["records"]
            or answer["error_code"]
            or answer["preferred_read_replica"] >= 0
            or "diverging_epoch" in answer
        )
        self.shown[asked.key] = (-1, -1) if answer["error_code"] else shown
        if answer["records"] and asked.key in self.partitions:  # it may have been forgotten while this answer waited
            self.partitions.move_to_end(asked.key)
        return news


class SessionCache:
    """The sessions of one node. `slots` as max.incremental.fetch.session.cache.slots; 0: none is ever given."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.sessions: OrderedDict[int, Session] = OrderedDict()
        self._last_id = 0

    def open(self, asked: list[Asked]) -> Session | None:
        if not self.slots or not asked:
            return None
        while len(self.sessions) >= self.slots:
            self.sessions.popitem(last=False)
        self._last_id += 1
        session = Session(self._last_id, 1, OrderedDict((a.key, a) for a in asked))
        self.sessions[session.id] = session
        return session

    def resume(self, request: Request, asked: list[Asked]) -> tuple[Session | None, int]:
        """The session of an incremental request with its changes made, or an error code."""
        body = request.body
        session = self.sessions.get(body["session_id"])
        if session is None:
            return None, SESSION_NOT_FOUND
        if session.epoch != body["session_epoch"]:
            return None, INVALID_SESSION_EPOCH
        session.epoch = 1 if session.epoch == _LAST_EPOCH else session.epoch + 1
        self.sessions.move_to_end(session.id)
        for each in asked:
            session.partitions[each.key] = each
        for topic in body["forgotten_topics_data"]:
            for index in topic["partitions"]:
                key = (topic["topic"] or topic["topic_id"], index)
                session.partitions.pop(key, None)
                session.shown.pop(key, None)
        if not session.partitions:
            del self.sessions[session.id]  # nothing left to remember: the answer says session 0
        return session, 0


def fetch(c: Context, sessions: SessionCache) -> Body:
    """The answer's body. `records` of a partition is a list of views; `encode_fetch` knows what to do with it."""
    body = c.request.body
    asked = [Asked(t["topic"], t["topic_id"], p) for t in body["topics"] for p in t["partitions"]]
    session, incremental = None, False
    if c.request.version >= 7 and body["session_epoch"] != _FINAL_EPOCH:
        if body["session_epoch"] == _INITIAL_EPOCH:
            sessions.sessions.pop(body["session_id"], None)
            session = sessions.open(asked)
        else:
            session, code = sessions.resume(c.request, asked)
            if session is None:
                return {"error_code": code, "session_id": 0, "responses": []}
            asked, incremental = list(session.partitions.values()), True
    else:
        sessions.sessions.pop(body["session_id"], None)

    answers = _poll(c, asked)
    if session is not None:
        news = [session.is_news(a, answer) for a, answer in zip(asked, answers, strict=True)]
        if incremental:
            kept = [pair for pair, new in zip(zip(asked, answers, strict=True), news, strict=True) if new]
            asked, answers = [a for a, _ in kept], [answer for _, answer in kept]
    number = session.id if session is not None and session.id in sessions.sessions else 0
    out: Body = {"error_code": 0, "session_id": number, "responses": _by_topic(c, asked, answers)}
    if c.request.version >= 16:
        leaders = {a["current_leader"]["leader_id"] for a in answers if "current_leader" in a}
        nodes = [c.cluster.nodes[i] for i in sorted(leaders) if i in c.cluster.nodes]
        out["node_endpoints"] = [c.address(n) | {"rack": n.rack} for n in nodes]
    return out


def _poll(c: Context, asked: list[Asked]) -> list[Body]:
    """Read everything, and again after each change until there is enough or the time is up."""
    body = c.request.body
    deadline = time.monotonic() + body["max_wait_ms"] / 1000
    while True:
        answers = []
        size, at_once = 0, not asked
        for each in asked:
            # Even where nothing more fits, a partition is looked at: its watermark or an error is news too.
            answer, read = _read_one(c, each, max(min(body["max_bytes"], LARGEST_FETCH) - size, 0), at_least_one=not size)
            size += read.size
            at_once |= bool(answer["error_code"]) or "diverging_epoch" in answer or answer["preferred_read_replica"] >= 0
            answers.append(answer)
        left = deadline - time.monotonic()
        if at_once or size >= body["min_bytes"] or left <= 0 or not c.node.alive:
            return answers
        c.cluster.changed.wait(left)


def _read_one(c: Context, asked: Asked, room: int, *, at_least_one: bool) -> tuple[Body, Slice]:
    fields, version = asked.fields, c.request.version
    answer: Body = {
        "partition_index": fields["partition"],
        "error_code": 0,
        **_NO_BOUNDS,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": [],
    }
    partition = _find(c, asked)
    # From version 11 on every replica serves consumers (KIP-392); before, the leader alone.
    code = check_epoch(c.cluster, c.node, partition, fields["current_leader_epoch"], leader_only=version < 11)
    if partition is None:
        # Kafka fills in this answer elsewhere, where nobody sets the list to null.
        answer |= {"error_code": code, "aborted_transactions": []}
        if version >= 13 and c.cluster.by_id(asked.topic_id) is None:
            answer["error_code"] = UNKNOWN_TOPIC_ID
        return answer, NOTHING
    if not code and version >= 11 and partition.leader == c.node.id and partition.preferred_replica not in (-1, c.node.id):
        answer["preferred_read_replica"] = partition.preferred_replica
        answer |= _bounds(partition)
        return answer, NOTHING
    if code:
        answer["error_code"] = code
        if version >= 16 and code in (NOT_LEADER, FENCED_LEADER_EPOCH):
            answer["current_leader"] = {"leader_id": partition.leader, "leader_epoch": partition.leader_epoch}
        return answer, NOTHING

    offset, isolation = fields["fetch_offset"], c.request.body["isolation_level"]
    if not partition.log_start <= offset <= partition.next_offset:
        answer["error_code"] = OFFSET_OUT_OF_RANGE
        return answer, NOTHING
    answer |= _bounds(partition)
    if version >= 12 and fields["last_fetched_epoch"] >= 0:
        epoch, end = partition.epoch_end(fields["last_fetched_epoch"])
        if epoch < 0:
            return answer | {"error_code": OFFSET_OUT_OF_RANGE} | _NO_BOUNDS, NOTHING
        if epoch < fields["last_fetched_epoch"] or end < offset:
            answer["diverging_epoch"] = {"epoch": epoch, "end_offset": end}
            return answer, NOTHING
    read = partition.read(offset, min(fields["partition_max_bytes"], room), isolation, at_least_one=at_least_one)
    answer["records"] = read.buffers
    if isolation:
        touched = partition.aborted_between(offset, read.end_offset) if read.size else []
        answer["aborted_transactions"] = [{"producer_id": a.producer_id, "first_offset": a.first_offset} for a in touched]
    return answer, read


def _find(c: Context, asked: Asked) -> Partition | None:
    name = asked.topic
    if asked.topic_id != ZERO_UUID:
        topic = c.cluster.by_id(asked.topic_id)
        name = topic.name if topic is not None else ""
    return c.cluster.find(name, asked.fields["partition"])


_NO_BOUNDS = {"high_watermark": -1, "last_stable_offset": -1, "log_start_offset": -1}


def _bounds(partition: Partition) -> Body:
    return {
        "high_watermark": partition.high_watermark,
        "last_stable_offset": partition.last_stable_offset,
        "log_start_offset": partition.log_start,
    }


def _by_topic(c: Context, asked: list[Asked], answers: list[Body]) -> list[Body]:
    """Answers under their topics, in request order. Both name and id are given: a version drops the one it doesn't carry."""
    out: list[Body] = []
    for each, answer in zip(asked, answers, strict=True):
        topic = c.cluster.by_id(each.topic_id) if each.topic_id != ZERO_UUID else None
        name = each.topic or (topic.name if topic is not None else "")
        if not out or (out[-1]["topic"], out[-1]["topic_id"]) != (name, each.topic_id):
            out.append({"topic": name, "topic_id": each.topic_id, "partitions": []})
        out[-1]["partitions"].append(answer)
    return out


# ------------------------------------------------------------------------------------------------------------------ encoding

_MARK = os.urandom(12)
_SMALL = 16 << 10


def encode_fetch(request: Request, body: Body) -> list[bytes | memoryview]:
    """The frame of a Fetch answer in pieces. Large `records` are not copied: the codec writes a mark, which is then replaced."""
    spans: list[tuple[bytes, list[memoryview], int]] = []
    for topic in body["responses"]:
        for partition in topic["partitions"]:
            records: Any = partition["records"]
            if not isinstance(records, list):
                continue
            size = sum(map(len, records))
            if size < _SMALL:
                partition["records"] = b"".join(records)
            else:
                mark = _MARK + struct.pack(">I", len(spans))
                partition["records"] = mark
                spans.append((mark, records, size))
    frame = encode_response(request.api, request.version, request.correlation_id, body)
    if not spans:
        return [frame]
    flexible = request.api.is_flexible(request.version)
    out: list[bytes | memoryview] = []
    at = 4
    for mark, buffers, size in spans:
        found = frame.index(mark, at)
        out.append(frame[at : found - (1 if flexible else 4)] + _length(size, flexible))
        out += buffers
        at = found + len(mark)
    out.append(frame[at:])
    return [struct.pack(">i", sum(map(len, out))), *out]


def _length(size: int, flexible: bool) -> bytes:
    if not flexible:
        return struct.pack(">i", size)
    size, out = size + 1, bytearray()
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out)
