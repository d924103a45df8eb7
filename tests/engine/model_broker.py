"""A cluster as Kafka is: brokers that keep fetch sessions, know leaders and epochs, and answer from the logs of `model_log`.

What a session holds is compared, at every request, with what the client says by itself; requests that Kafka would not expect from
a consumer fail the test.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from fastfetch.protocol import tables
from fastfetch.types import TopicPartition
from tests.engine.model_log import Log, damaged
from tests.engine.script import Asked

Body = dict[str, Any]
Key = tuple[str | bytes, int]  # topic name or id, partition

TOPIC = "t"
GROUP = "g"
SESSIONS = 2  # a broker's cache: the oldest session makes room
VERSIONS: dict[str, tuple[int, int]] = {
    "Fetch": (4, 17),
    "ListOffsets": (1, 10),
    "Metadata": (0, 13),
    "OffsetCommit": (2, 9),
    "OffsetFetch": (1, 9),
    "FindCoordinator": (0, 6),
    "ApiVersions": (0, 4),
    "OffsetForLeaderEpoch": (2, 4),
}
NAMES = {api.name: api for api in tables.ALL}


@dataclass(eq=False)
class Session:
    """What a broker remembers of a client's fetches (KIP-227)."""

    session_id: int
    by_id: bool
    epoch: int = 1  # of the next request
    wanted: dict[Key, Body] = field(default_factory=dict)
    told: dict[Key, tuple[int, int]] = field(default_factory=dict)  # high watermark and log start, as the client knows them


@dataclass(eq=False)
class Node:
    node_id: int
    host: str
    sessions: dict[int, Session] = field(default_factory=dict)
    is_down: bool = False


@dataclass
class Mischief:
    """What goes wrong in one answer. Codes apply to the partitions in `where`; -1 is a code, None is no mischief."""

    code: int | None = None
    where: frozenset[int] = frozenset()
    top: int = 0
    damage: bool = False  # a bit flips on the way
    half: bool = False  # only half of the first batch comes
    leave_out: bool = False  # a partition is missing in the answer (never of an incremental fetch, where it means "no news")
    throttle_ms: int = 0
    hint: bool = True  # errors 6 and 74 name the leader (KIP-951)
    no_session: bool = False
    stale: bool = False  # metadata as it was some answers ago


NONE = Mischief()


class Cluster:
    """Topic "t" of `logs` on `nodes`. Every answer is true at the moment it is made, but for a `Mischief`."""

    def __init__(self, partitions: int, nodes: int, *, versions: dict[str, tuple[int, int]], now: Callable[[], int]) -> None:
        self.versions = VERSIONS | versions
        self.by_id = self.versions["Fetch"][1] >= 13
        self.now = now
        self.incarnation = 1
        self.nodes = {n: Node(n, f"b{n}") for n in range(1, nodes + 1)}
        self.logs = [Log() for _ in range(partitions)]
        self.past: dict[tuple[int, int], Log] = {(1, p): log for p, log in enumerate(self.logs)}  # by incarnation and partition
        self.leaders = [p % nodes + 1 for p in range(partitions)]
        self.preferred: dict[int, int] = {}  # partition -> follower that a client with a rack is sent to
        self.behind: dict[tuple[int, int], int] = {}  # (node, partition) -> end of a follower that lags
        self.stored: dict[TopicPartition, Body] = {}
        self.coordinator = 1
        self._next_session = 100
        self._metadata_before: deque[Body] = deque(maxlen=3)
        self.damaged_on_the_way: set[tuple[int, int, int]] = set()  # (incarnation, partition, base)

    # --- happenings -----------------------------------------------------------------------------------------------------

    def topic_id(self, incarnation: int | None = None) -> bytes:
        return (self.incarnation if incarnation is None else incarnation).to_bytes(16, "big")

    def add_partition(self) -> None:
        self._add_log(len(self.logs) % len(self.nodes) + 1)

    def _add_log(self, leader: int) -> None:
        log = Log(self.incarnation)
        self.past[self.incarnation, len(self.logs)] = log
        self.logs.append(log)
        self.leaders.append(leader)

    def recreate(self) -> None:
        leaders = self.leaders
        self.incarnation += 1
        self.logs, self.leaders = [], []
        for leader in leaders:
            self._add_log(leader)
        self.preferred.clear()
        self.behind.clear()
        self.stored.clear()

    def elect(self, p: int, node: int, cut_to: int | None) -> None:
        self.leaders[p] = node
        self.logs[p].elect(cut_to)
        for key in [key for key in self.behind if key[1] == p]:
            self.behind[key] = min(self.behind[key], self.logs[p].end)
        self.behind.pop((node, p), None)
        self.preferred.pop(p, None)

    # --- answering ------------------------------------------------------------------------------------------------------

    def answer(self, asked: Asked, mischief: Mischief) -> Body | None:
        """The body of an answer, or None: the request waits (a fetch, for news)."""
        if asked.api is tables.FETCH:
            body = self._fetch(asked, mischief)
        else:
            body = getattr(self, "_" + asked.api.name.lower())(asked, mischief)
        if body is not None and mischief.throttle_ms and asked.api is not tables.API_VERSIONS:
            body["throttle_time_ms"] = mischief.throttle_ms
        return body

    def _fetch(self, asked: Asked, mischief: Mischief) -> Body | None:
        node, body = self.nodes[asked.node], asked.body
        if mischief.top:
            return {"error_code": mischief.top, "session_id": 0, "responses": []}
        session_id, epoch = (body["session_id"], body["session_epoch"]) if asked.version >= 7 else (0, -1)
        fresh = partitions_of(body["topics"], asked.version)
        session: Session | None = None
        if epoch <= 0:
            assert not body.get("forgotten_topics_data"), "a full request forgets nothing"
        else:
            session = node.sessions.get(session_id)
            if session is None:
                return {"error_code": 70, "session_id": 0, "responses": []}
            if session.epoch != epoch:
                return {"error_code": 71, "session_id": 0, "responses": []}
            if session.by_id != (asked.version >= 13):
                return {"error_code": 106, "session_id": 0, "responses": []}
            fresh = {**session.wanted, **fresh}
            for key in forgotten_by(body, asked.version):
                fresh.pop(key, None)
        parts, waits = self._read_all(asked, fresh, mischief)
        if waits and asked.at_ms + body["max_wait_ms"] > self.now():
            return None
        if epoch <= 0:
            node.sessions.pop(session_id, None)
            if epoch == 0 and not mischief.no_session and fresh:
                if len(node.sessions) >= SESSIONS:
                    del node.sessions[next(iter(node.sessions))]
                self._next_session += 1
                session = node.sessions[self._next_session] = Session(self._next_session, asked.version >= 13)
                session.wanted = fresh
        else:
            assert session is not None
            session.epoch = session.epoch % 0x7FFFFFFF + 1
            session.wanted = fresh
            # Only what the client cannot know: records, errors, offsets that moved, a replica to go to.
            parts = [(key, part) for key, part in parts if _is_news(part, session.told.get(key))]
            if not fresh:
                del node.sessions[session_id]
        if session is not None:
            for key, part in parts:
                failed = part["error_code"] != 0
                session.told[key] = (-1, -1) if failed else (part["high_watermark"], part["log_start_offset"])
                if part["records"] and key in session.wanted:
                    session.wanted[key] = session.wanted.pop(key)  # served: to the end
        out = {"error_code": 0, "session_id": 0, "responses": _grouped(parts, asked.version)}
        if session is not None and fresh:
            out["session_id"] = session.session_id
        if asked.version >= 16:
            out["node_endpoints"] = [
                {"node_id": n.node_id, "host": n.host, "port": 9000 + n.node_id, "rack": None} for n in self.nodes.values()
            ]
        return out

    def _read_all(self, asked: Asked, fresh: dict[Key, Body], mischief: Mischief) -> tuple[list[tuple[Key, Body]], bool]:
        left = asked.body["max_bytes"]
        out: list[tuple[Key, Body]] = []
        waits = True
        for key, what in fresh.items():
            part = self._read(asked, key, what, left, mischief, is_first=left == asked.body["max_bytes"])
            left -= len(part["records"] or b"")
            if part["error_code"] or part["records"] or part["preferred_read_replica"] >= 0:
                waits = False
            out.append((key, part))
        return out, waits and bool(out)

    def _read(self, asked: Asked, key: Key, what: Body, left: int, mischief: Mischief, *, is_first: bool) -> Body:
        p, offset = key[1], what["fetch_offset"]
        part: Body = {
            "partition_index": p,
            "error_code": 0,
            "high_watermark": -1,
            "last_stable_offset": -1,
            "log_start_offset": -1,
            "aborted_transactions": None,
            "preferred_read_replica": -1,
            "records": None,
        }
        code = self._refusal(asked, key, what["current_leader_epoch"] if asked.version >= 9 else -1)
        if mischief.code is not None and p in mischief.where and code == 0:
            code = mischief.code
        if code in (6, 74) and asked.version >= 12 and mischief.hint:
            part["current_leader"] = {"leader_id": self.leaders[p], "leader_epoch": self.logs[p].epoch}
        if code:
            return part | {"error_code": code}
        log, is_leader = self.logs[p], self.leaders[p] == asked.node
        end = log.end if is_leader else min(log.end, self.behind.get((asked.node, p), log.end))
        committed = asked.body["isolation_level"] == 1
        stable = min(end, log.stable_end)
        if not log.start <= offset <= end:
            return part | {"error_code": 1}
        part |= {"high_watermark": end, "last_stable_offset": stable, "log_start_offset": log.start}
        if is_leader and asked.version >= 11 and asked.body["rack_id"] and p in self.preferred:
            return part | {"preferred_read_replica": self.preferred[p]}
        upper = stable if committed else end
        if left <= 0 and not is_first:
            return part
        limit = min(left, what["partition_max_bytes"])
        data, first, last = b"", -1, offset
        for batch in log.read(offset, upper):
            if first < 0:
                first = batch.base
            data += self._sent(batch.data, (log.incarnation, p, batch.base), mischief)
            last = batch.last + 1
            if len(data) >= limit:
                break
        whole = len(next(iter(log.read(offset, upper))).data) if data else 0
        if mischief.half and whole:
            data = data[: whole // 2]
        elif whole > limit:
            data = data[:whole] if is_first else b""
        else:
            data = data[:limit]  # the last batch may come in part
        if committed:
            part["aborted_transactions"] = [
                {"producer_id": producer, "first_offset": at} for producer, at in log.aborted(offset, max(last, offset))
            ]
        part["records"] = data or None
        return part

    def _sent(self, data: bytes, where: tuple[int, int, int], mischief: Mischief) -> bytes:
        if mischief.damage and where[1] in mischief.where:
            self.damaged_on_the_way.add(where)
            return damaged(data)
        return data

    def _refusal(self, asked: Asked, key: Key, epoch: int) -> int:
        """Why this node will not serve the partition, by Kafka's checks in their order; 0: it will."""
        topic, p = key
        if asked.version >= 13 and asked.api is tables.FETCH and topic != self.topic_id():
            return 100
        if p >= len(self.logs):
            return 3
        log, leader = self.logs[p], self.leaders[p]
        is_follower = asked.api is tables.FETCH and asked.version >= 11 and self.preferred.get(p) == asked.node
        if epoch >= 0 and epoch != log.epoch:
            return 74 if epoch < log.epoch else 75
        if leader != asked.node and not is_follower:
            return 6
        return 0

    def _apiversions(self, asked: Asked, mischief: Mischief) -> Body:
        keys = [{"api_key": NAMES[n].key, "min_version": lo, "max_version": hi} for n, (lo, hi) in self.versions.items()]
        return {"error_code": 0, "api_keys": keys}

    def _metadata(self, asked: Asked, mischief: Mischief) -> Body:
        names = [TOPIC] if asked.body["topics"] is None else [t["name"] for t in asked.body["topics"]]
        parts = [
            {
                "error_code": 0 if leader > 0 else 5,
                "partition_index": p,
                "leader_id": leader,
                "leader_epoch": self.logs[p].epoch,
                "replica_nodes": list(self.nodes),
                "isr_nodes": list(self.nodes),
            }
            for p, leader in enumerate(self.leaders)
        ]
        topics = []
        for name in names:
            entry: Body = {"error_code": mischief.code or 0, "name": name, "partitions": [] if mischief.code else parts}
            if asked.version >= 10:
                entry["topic_id"] = self.topic_id()
            topics.append(entry)
        brokers = [{"node_id": n.node_id, "host": n.host, "port": 9000 + n.node_id} for n in self.nodes.values()]
        body = {"brokers": brokers, "cluster_id": "c", "controller_id": 1, "topics": topics}
        if mischief.stale and self._metadata_before:
            return self._metadata_before[0]
        self._metadata_before.append(body)
        return body

    def _listoffsets(self, asked: Asked, mischief: Mischief) -> Body:
        parts = []
        for tp, what in asked.partitions().items():
            p = tp.partition
            code = self._refusal(asked, (tp.topic, p), what.get("current_leader_epoch", -1))
            if mischief.code is not None and p in mischief.where:
                code = mischief.code
            part: Body = {"partition_index": p, "error_code": code, "offset": -1, "timestamp": -1}
            if not code:
                log = self.logs[p]
                latest = log.stable_end if asked.body.get("isolation_level") == 1 else log.end
                part["offset"] = latest if what["timestamp"] == -1 else log.start
                if asked.version >= 4:
                    part["leader_epoch"] = log.epoch
            parts.append(part)
        if mischief.leave_out:
            parts.pop()
        return {"topics": [{"name": TOPIC, "partitions": parts}]}

    def _offsetforleaderepoch(self, asked: Asked, mischief: Mischief) -> Body:
        parts = []
        for topic in asked.body["topics"]:
            for what in topic["partitions"]:
                p = what["partition"]
                code = self._refusal(asked, (topic["topic"], p), what["current_leader_epoch"])
                if mischief.code is not None and p in mischief.where:
                    code = mischief.code
                epoch, end = (-1, -1) if code else self.logs[p].end_of_epoch(what["leader_epoch"])
                parts.append({"error_code": code, "partition": p, "leader_epoch": epoch, "end_offset": end})
        if mischief.leave_out:
            parts.pop()
        return {"topics": [{"topic": TOPIC, "partitions": parts}]}

    def _findcoordinator(self, asked: Asked, mischief: Mischief) -> Body:
        node = self.nodes[self.coordinator]
        found: Body = {"node_id": node.node_id, "host": node.host, "port": 9000 + node.node_id, "error_code": mischief.code or 0}
        return {"coordinators": [found | {"key": GROUP}]} if asked.version >= 4 else found

    def _offsetfetch(self, asked: Asked, mischief: Mischief) -> Body:
        group = asked.body["groups"][0] if asked.version >= 8 else asked.body
        code = 16 if asked.node != self.coordinator else 0
        parts = []
        for topic in group["topics"] if not code else ():
            for p in topic["partition_indexes"]:
                stored = self.stored.get(TopicPartition(topic["name"], p), {"committed_offset": -1})
                error = mischief.code if mischief.code is not None and p in mischief.where else 0
                parts.append(
                    {"partition_index": p, "error_code": error, "metadata": "", "committed_leader_epoch": -1}
                    | ({"committed_offset": -1} if error else stored)
                )
        if mischief.leave_out and parts:
            parts.pop()
        out = {"topics": [{"name": TOPIC, "partitions": parts}], "error_code": code}
        return {"groups": [out | {"group_id": GROUP}]} if asked.version >= 8 else out

    def _offsetcommit(self, asked: Asked, mischief: Mischief) -> Body:
        moved = asked.node != self.coordinator
        parts = []
        for topic in asked.body["topics"]:
            for what in topic["partitions"]:
                p = what["partition_index"]
                code = 16 if moved else mischief.code if mischief.code is not None and p in mischief.where else 0
                if not code:
                    keys = ("committed_offset", "committed_leader_epoch")
                    self.stored[TopicPartition(topic["name"], p)] = {key: what[key] for key in keys}
                parts.append({"partition_index": p, "error_code": code})
        return {"topics": [{"name": TOPIC, "partitions": parts}]}


def partitions_of(topics: Iterable[Body], version: int) -> dict[Key, Body]:
    out: dict[Key, Body] = {}
    for topic in topics:
        for what in topic["partitions"]:
            key = (topic["topic_id"] if version >= 13 else topic["topic"], what["partition"])
            assert key not in out, f"{key} is named twice"
            out[key] = what
    return out


def forgotten_by(body: Body, version: int) -> list[Key]:
    name = "topic_id" if version >= 13 else "topic"
    return [(topic[name], p) for topic in body["forgotten_topics_data"] for p in topic["partitions"]]


def _is_news(part: Body, told: tuple[int, int] | None) -> bool:
    if part["error_code"] or part["records"] or part["preferred_read_replica"] >= 0:
        return True
    return told != (part["high_watermark"], part["log_start_offset"])


def _grouped(parts: list[tuple[Key, Body]], version: int) -> list[Body]:
    out: list[Body] = []
    for (topic, _), part in parts:
        name = "topic_id" if version >= 13 else "topic"
        if not out or out[-1][name] != topic:
            out.append({name: topic, "partitions": []})
        out[-1]["partitions"].append(part)
    return out
