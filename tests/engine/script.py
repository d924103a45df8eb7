"""A cluster that a test plays by hand: no sockets, and a clock that moves only when told.

The engine's requests are read back with the broker's side of the protocol tables, and answers are written with it, so what is
tested includes every byte that would cross the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastfetch.config import ConsumerConfig
from fastfetch.engine.actions import CloseConnection, DecodeRecords, OpenConnection, SendBytes, TrimMemory
from fastfetch.engine.client import Engine
from fastfetch.engine.events import ConnectionLost, ConnectionOpened, FrameArrived, RecordsDecoded
from fastfetch.protocol import Api, decode_request, encode_response, tables
from fastfetch.protocol.consumer_protocol import Assignment, encode_assignment
from fastfetch.records import decode
from fastfetch.testing import encode_batch
from fastfetch.types import TopicPartition

VERSIONS: dict[str, tuple[int, int]] = {
    "Fetch": (4, 17),
    "ListOffsets": (1, 10),
    "Metadata": (0, 13),
    "OffsetCommit": (2, 9),
    "OffsetFetch": (1, 9),
    "FindCoordinator": (0, 6),
    "JoinGroup": (0, 9),
    "SyncGroup": (0, 5),
    "Heartbeat": (0, 4),
    "LeaveGroup": (0, 5),
    "ApiVersions": (0, 4),
}
NAMES = {api.name: api for api in tables.ALL}
Body = dict[str, Any]


@dataclass(eq=False)
class Asked:
    """A request on the wire that has not been answered yet."""

    conn: int
    node: int
    api: Api
    version: int
    correlation_id: int
    body: Body
    at_ms: int

    def partitions(self) -> dict[TopicPartition, Body]:
        """Of a Fetch or ListOffsets by name: what is said about each partition."""
        key = "name" if self.api is tables.LIST_OFFSETS else "topic"
        index = "partition_index" if self.api is tables.LIST_OFFSETS else "partition"
        return {TopicPartition(t[key], p[index]): p for t in self.body["topics"] for p in t["partitions"]}


class Script:
    """An engine with brokers 1..n at ports 9001.., topic "t" with `partitions` partitions led by node p mod n + 1.

    Metadata, ApiVersions and FindCoordinator are answered by themselves while `auto` holds their names. So are Heartbeat,
    LeaveGroup and OffsetFetch (offset 0 is stored of everything) in a test that puts them there.
    """

    def __init__(
        self, partitions: int = 1, nodes: int = 1, *, versions: dict[str, tuple[int, int]] | None = None, **settings: Any
    ):
        settings.setdefault("bootstrap_servers", "boot:9000")
        settings.setdefault("auto_offset_reset", "earliest")
        settings.setdefault("max_buffered_bytes", 1 << 20)
        self.config = ConsumerConfig.from_settings(**settings)
        self.wall_ms = 1_800_000_000_000
        self.engine = Engine(self.config, wall_ms=lambda: self.wall_ms, member_id="member-1")
        self.now = 1_000_000
        self.nodes = {node: f"b{node}" for node in range(1, nodes + 1)}
        self.leaders = {("t", p): (p % nodes + 1, 5) for p in range(partitions)}
        self.topic_ids: dict[str, bytes] = {}
        self.errors: dict[str, int] = {}  # by topic, in metadata
        self.internal: set[str] = set()  # topics of Kafka's own
        self.cluster_id = "c"
        self.strangers: set[str] = set()  # hosts of another cluster
        self.versions = VERSIONS | {"Fetch": (4, 12)} | (versions or {})
        self.down: set[str] = set()  # hosts that refuse
        self.auto = {"ApiVersions", "Metadata", "FindCoordinator"}
        self.coordinator = 1
        self.opened: dict[int, str] = {}  # conn -> host
        self.asked: list[Asked] = []
        self.history: list[Asked] = []
        self.connects: list[tuple[int, str]] = []  # (ms, host)
        self.jobs: list[DecodeRecords] = []
        self.trims: list[int] = []
        self.decode_now = True

    # --- the world ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until the engine wants nothing more at this moment."""
        for _ in range(1000):
            self.engine.pump(self.now)
            actions = self.engine.take_actions()
            if not actions:
                return
            for action in actions:
                self._perform(action)
        raise AssertionError("the engine never comes to rest: a busy loop")

    def advance(self, ms: int) -> None:
        """Let time pass, calling at every moment the engine asked for."""
        end = self.now + ms
        for _ in range(100_000):
            self.run()
            wake = self.engine.wake_at_ms
            if wake is None or wake > end:
                break
            self.now = max(wake, self.now + 1)
        else:
            raise AssertionError("the engine asks to be woken without end")
        self.now = end
        self.run()

    def _perform(self, action: object) -> None:
        match action:
            case OpenConnection():
                self.connects.append((self.now, action.host))
                if action.host in self.down:
                    self.engine.handle(ConnectionLost(action.conn, "connection refused"), self.now)
                else:
                    self.opened[action.conn] = action.host
                    self.engine.handle(ConnectionOpened(action.conn), self.now)
            case SendBytes():
                request = decode_request(action.data[4:])
                host = self.opened[action.conn]
                node = next((n for n, name in self.nodes.items() if name == host), 0)
                asked = Asked(
                    action.conn, node, request.api, request.version, request.correlation_id, request.body, self.now
                )  # fmt: skip
                self.history.append(asked)
                self.asked.append(asked)
                self._answer_by_itself(asked.conn)
            case CloseConnection():
                self._gone(action.conn)
            case DecodeRecords():
                self.jobs.append(action)
                if self.decode_now:
                    self.decode(run=False)
            case TrimMemory():
                self.trims.append(self.now)
            case _:
                raise AssertionError(action)

    def _answer_by_itself(self, conn: int) -> None:
        """In order: a request behind one that the test has not answered yet waits, as it would at a broker."""
        for asked in [asked for asked in self.asked if asked.conn == conn]:
            if asked.api.name not in self.auto:
                return
            self.answer(asked, getattr(self, "_" + asked.api.name.lower())(asked), run=False)

    def _gone(self, conn: int) -> None:
        self.opened.pop(conn, None)
        self.asked = [asked for asked in self.asked if asked.conn != conn]

    def decode(self, *, run: bool = True) -> None:
        """Perform the oldest decoding that is due."""
        job = self.jobs.pop(0)
        assert job.records is not None
        result = decode(
            job.records,
            position=job.start,
            isolation=self.config.isolation_level,
            aborted=job.aborted,
            topic=job.partition.tp.topic,
            partition=job.partition.tp.partition,
        )  # fmt: skip
        self.engine.handle(RecordsDecoded(job, result), self.now)
        if run:
            self.run()

    def lose(self, conn: int, reason: str = "closed by the other side") -> None:
        self._gone(conn)
        self.engine.handle(ConnectionLost(conn, reason), self.now)
        self.run()

    def deliver(self, conn: int, frame: bytes) -> None:
        """Any bytes as one frame of a connection."""
        self.engine.handle(FrameArrived(conn, frame), self.now)
        self.run()

    # --- requests and answers -------------------------------------------------------------------------------------------

    def expect(self, api: str, *, node: int | None = None, when: Callable[[Asked], bool] = lambda asked: True) -> Asked:
        """The oldest unanswered request of an API; an assertion if there is none."""
        self.run()
        for asked in self.asked:
            if asked.api.name == api and node in (None, asked.node) and when(asked):
                return asked
        raise AssertionError(f"no {api} is in flight; in flight: {[a.api.name for a in self.asked]}")

    def none(self, api: str) -> None:
        self.run()
        assert not [asked for asked in self.asked if asked.api.name == api], f"a {api} is in flight"

    def none_at(self, api: str, *, node: int) -> None:
        self.run()
        assert not [asked for asked in self.asked if asked.api.name == api and asked.node == node], f"a {api} is in flight"

    def count(self, api: str) -> int:
        return sum(asked.api.name == api for asked in self.history)

    def answer(self, asked: Asked, body: Body, *, run: bool = True) -> None:
        if asked in self.asked:
            self.asked.remove(asked)
        frame = encode_response(asked.api, asked.version, asked.correlation_id, body)[4:]
        self.engine.handle(FrameArrived(asked.conn, frame), self.now)
        if run:
            self._answer_by_itself(asked.conn)
            self.run()

    def fetched(
        self,
        asked: Asked,
        answers: dict[int, bytes | int | None],
        *,
        topic: str = "t",
        high: int = 10**6,
        session: int = 0,
        endpoints: list[Body] | None = None,
        **more: Any,
    ) -> None:
        """Answer a Fetch: partition -> records, an error code, or None for nothing new. `more` are fields of every partition."""
        parts = []
        for index, what in answers.items():
            part: Body = {
                "partition_index": index,
                "error_code": 0,
                "high_watermark": high,
                "last_stable_offset": high,
                "records": None,
            }
            if isinstance(what, int):
                part |= {"error_code": what, "high_watermark": -1}
            elif what is not None:
                part["records"] = what
            parts.append({"preferred_read_replica": -1} | part | more)
        entry: Body = {"topic": topic, "partitions": parts}
        if asked.version >= 13:
            entry = {"topic_id": self.topic_ids[topic], "partitions": parts}
        body = {"session_id": session, "responses": [entry] if parts else []}
        self.answer(asked, body | ({"node_endpoints": endpoints} if endpoints else {}))

    def found(self, asked: Asked, offsets: dict[int, int | tuple[int, int]]) -> None:
        """Answer a ListOffsets: partition -> offset, or (error code, offset)."""
        parts = []
        for index, what in offsets.items():
            code, offset = what if isinstance(what, tuple) else (0, what)
            parts.append({"partition_index": index, "error_code": code, "offset": offset, "timestamp": -1})
            if asked.version >= 4:
                parts[-1]["leader_epoch"] = 5
        self.answer(asked, {"topics": [{"name": "t", "partitions": parts}]})

    def stored(self, asked: Asked, offsets: dict[int, int | tuple[int, int]], *, code: int = 0) -> None:
        """Answer an OffsetFetch: partition -> offset (-1: nothing stored), or (error code, offset)."""
        parts = []
        for index, what in offsets.items():
            error, offset = what if isinstance(what, tuple) else (0, what)
            parts.append(
                {
                    "partition_index": index,
                    "committed_offset": offset,
                    "committed_leader_epoch": 3,
                    "metadata": "",
                    "error_code": error,
                }
            )
        topics = [{"name": "t", "partitions": parts}]
        if asked.version >= 8:
            self.answer(asked, {"groups": [{"group_id": "g", "topics": topics, "error_code": code}]})
        else:
            self.answer(asked, {"topics": topics, "error_code": code})

    def committed(self, asked: Asked, codes: dict[int, int]) -> None:
        """Answer an OffsetCommit: partition -> error code."""
        parts = [{"partition_index": index, "error_code": code} for index, code in codes.items()]
        self.answer(asked, {"topics": [{"name": "t", "partitions": parts}]})

    def joined(
        self,
        asked: Asked,
        *,
        code: int = 0,
        generation: int = 1,
        member_id: str = "m-1",
        leader: str = "m-0",
        protocol: str = "range",
        members: dict[str, bytes] | None = None,
        skip: bool = False,
    ) -> None:
        """Answer a JoinGroup. `members` are the subscriptions that the leader is told, ours among them."""
        entries: list[Body] = [{"member_id": member, "metadata": what} for member, what in (members or {}).items()]
        body: Body = {
            "error_code": code,
            "generation_id": -1 if code else generation,
            "protocol_type": "consumer",
            "protocol_name": "" if code else protocol,
            "leader": "" if code else leader,
            "member_id": member_id,
            "members": entries,
        }
        self.answer(asked, body | ({"skip_assignment": skip} if asked.version >= 9 else {}))

    def synced(self, asked: Asked, partitions: str = "", *, code: int = 0) -> None:
        """Answer a SyncGroup: the assignment is "t-0 t-1", or an error code."""
        share = [TopicPartition(topic, int(number)) for topic, _, number in (tp.rpartition("-") for tp in partitions.split())]
        body = {"error_code": code, "assignment": b"" if code else encode_assignment(Assignment(tuple(share)))}
        if asked.version >= 5:
            body |= {"protocol_type": "consumer", "protocol_name": None if code else asked.body["protocol_name"]}
        self.answer(asked, body)

    def _heartbeat(self, asked: Asked) -> Body:
        return {"error_code": 0}

    def _leavegroup(self, asked: Asked) -> Body:
        return {"error_code": 0}

    def _offsetfetch(self, asked: Asked) -> Body:
        def stored(topics: list[Body]) -> list[Body]:
            return [
                {"name": t["name"], "partitions": [{"partition_index": p, "committed_offset": 0} for p in t["partition_indexes"]]}
                for t in topics
            ]

        if asked.version < 8:
            return {"topics": stored(asked.body["topics"])}
        return {"groups": [{"group_id": g["group_id"], "topics": stored(g["topics"])} for g in asked.body["groups"]]}

    def _apiversions(self, asked: Asked) -> Body:
        keys = [{"api_key": NAMES[n].key, "min_version": lo, "max_version": hi} for n, (lo, hi) in self.versions.items()]
        return {"error_code": 0, "api_keys": keys}

    def _metadata(self, asked: Asked) -> Body:
        topics = []
        wanted: list[Body] = asked.body["topics"]
        if wanted is None:
            wanted = [{"name": topic} for topic in sorted({topic for topic, _ in self.leaders})]
        named = {topic_id: topic for topic, topic_id in self.topic_ids.items()}
        for name in [t["name"] or named.get(t["topic_id"]) for t in wanted]:
            if name is None:  # an id that belongs to no topic
                topics.append({"error_code": 100, "name": None, "partitions": []})
                continue
            parts = [
                {
                    "error_code": 0,
                    "partition_index": p,
                    "leader_id": leader,
                    "leader_epoch": epoch,
                    "replica_nodes": [1],
                    "isr_nodes": [1],
                }
                for (topic, p), (leader, epoch) in self.leaders.items()
                if topic == name
            ]
            code = self.errors.get(name, 0 if parts else 3)
            entry: Body = {"error_code": code, "name": name, "partitions": [] if code else parts}
            entry["is_internal"] = name in self.internal
            if name in self.topic_ids and asked.version >= 10:
                entry["topic_id"] = self.topic_ids[name]
            topics.append(entry)
        brokers = [{"node_id": n, "host": host, "port": 9000 + n} for n, host in self.nodes.items()]
        cluster_id = "other" if self.opened[asked.conn] in self.strangers else self.cluster_id
        return {"brokers": brokers, "cluster_id": cluster_id, "controller_id": 1, "topics": topics}

    def _findcoordinator(self, asked: Asked) -> Body:
        found = {
            "node_id": self.coordinator,
            "host": self.nodes[self.coordinator],
            "port": 9000 + self.coordinator,
            "error_code": 0,
        }
        return {"coordinators": [found | {"key": "g"}]} if asked.version >= 4 else found

    # --- the caller -----------------------------------------------------------------------------------------------------

    def assign(self, *partitions: int) -> list[TopicPartition]:
        tps = [TopicPartition("t", p) for p in partitions or (0,)]
        self.engine.assign(tps)
        self.run()
        return tps

    def started(self, *partitions: int, at: int = 0) -> list[TopicPartition]:
        """Assigned and sought to `at`: a fetch is in flight."""
        tps = [TopicPartition("t", p) for p in partitions or (0,)]
        self.engine.assign(tps)
        for tp in tps:
            self.engine.seek(tp, at)
        self.run()
        return tps

    def take(self, limit: int | None = None) -> list[tuple[int, int]]:
        """Poll once: (partition, offset) of every record handed out."""
        out = self.engine.take(limit)
        self.run()
        return [(block.partition, int(offset)) for block in out.blocks for offset in block.offsets]

    def position(self, partition: int = 0) -> int | None:
        state = self.engine.subscription.find(TopicPartition("t", partition))
        assert state is not None
        return state.position


def batch(first: int, count: int = 10, *, size: int = 10, codec: str = "none", last: int | None = None) -> bytes:
    """`count` records from offset `first` on; `last` is the batch's last offset where compaction has taken the tail."""
    deltas = {} if last is None else {"last_offset_delta": last - first}
    return encode_batch([b"x" * size] * count, base_offset=first, codec=codec, **deltas)
