"""The broker's side of a simulated group: two nodes, logs that only grow, one group and what it has committed.

What a group does is `fastfetch.testing`'s; here it runs on a fake clock. What brokers accept is judged on the spot: a commit must
be of records that somebody has processed, from the one who owns the partition, and never go back.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from fastfetch.protocol import tables
from fastfetch.protocol.consumer_protocol import decode_assignment
from fastfetch.testing import encode_batch
from fastfetch.testing.groups import COMPLETING, STABLE, ClassicGroup, Peer, Waiting
from fastfetch.testing.groups_epochs import EpochGroup, RefusedError, TopicShape, validate
from fastfetch.types import TopicPartition
from tests.engine.script import NAMES, VERSIONS, Asked, Body

GROUP = "g"
NODES = 2
NOT_COORDINATOR, UNKNOWN_MEMBER, UNKNOWN_TOPIC, GROUP_ID_NOT_FOUND = 16, 25, 3, 69


@dataclass(eq=False)
class Log:
    """Batches as (first offset, bytes); `processed` says of each record how often it was handed out and worked on."""

    batches: list[tuple[int, bytes]] = field(default_factory=list)
    end: int = 0
    processed: list[int] = field(default_factory=list)
    done_below: int = 0  # all records before it were processed at least once

    def append(self, count: int) -> None:
        self.batches.append((self.end, encode_batch([b"x"] * count, base_offset=self.end)))
        self.end += count
        self.processed += [0] * count

    def process(self, first: int, end: int) -> None:
        for offset in range(first, end):
            self.processed[offset] += 1
        while self.done_below < self.end and self.processed[self.done_below]:
            self.done_below += 1

    def read(self, offset: int) -> bytes:
        later = [at for at, (first, _) in enumerate(self.batches) if first > offset]
        start = (later[0] if later else len(self.batches)) - 1
        return b"".join(data for _, data in self.batches[max(start, 0) : start + 3]) if offset < self.end else b""


class Brokers:
    """`answer` gives a body, or a `Waiting` that will have one, or None for a fetch that waits for records."""

    def __init__(
        self, draw: random.Random, clock: Callable[[], int], *, is_classic: bool, session_ms: int, interval_ms: int
    ) -> None:
        self.clock = clock
        self.is_classic = is_classic
        self.alive = dict.fromkeys(range(1, NODES + 1), True)
        self.coordinator = 1
        self.logs: dict[TopicPartition, Log] = {}
        self.ids: dict[str, bytes] = {}
        # Brokers differ: without KIP-394 an id is given at once; before version 5 of a join nobody is static.
        self.versions = VERSIONS | {"Fetch": (4, 6), "ListOffsets": (1, 5), "ConsumerGroupHeartbeat": (0, 1)}
        if is_classic and draw.random() < 0.2:
            self.versions |= {"JoinGroup": (0, 3), "Metadata": (0, 8), "OffsetFetch": (1, 5)}
        self.stored: dict[TopicPartition, int] = {}
        self.commits = self.produced = 0
        self.group: ClassicGroup | EpochGroup
        if is_classic:
            self.group = ClassicGroup(draw.choice([0.0, 0.0, 0.5, 3.0]), lambda: None)
        else:
            self.group = EpochGroup(session_ms / 1000, interval_ms / 1000, lambda: None)

    @property
    def now(self) -> float:
        return self.clock() / 1000

    # --- the world's doings ---------------------------------------------------------------------------------------------

    def add_partitions(self, topic: str, count: int) -> None:
        have = self.count(topic)
        self.ids.setdefault(topic, topic.encode().ljust(16, b"."))
        for partition in range(have, have + count):
            self.logs[TopicPartition(topic, partition)] = Log()

    def count(self, topic: str) -> int:
        return sum(tp.topic == topic for tp in self.logs)

    def move_coordinator(self) -> None:
        self.coordinator = self.coordinator % NODES + 1
        self.group.reload(self.now)

    def is_up(self) -> bool:
        """The coordinator is. If not, no session ends."""
        return self.alive[self.coordinator]

    # --- what is right --------------------------------------------------------------------------------------------------

    def owners(self, tp: TopicPartition) -> list[str]:
        """Whom the coordinator has given a partition to."""
        if isinstance(self.group, EpochGroup):
            key = (self.ids[tp.topic], tp.partition)
            return [m.id for m in self.group.members.values() if key in m.assigned | m.revoking]
        return [m.id for m in self.group.members.values() if m.assignment and tp in decode_assignment(m.assignment).partitions]

    def is_settled(self) -> bool:
        return self.group.state in (STABLE, "Stable")

    @property
    def generation(self) -> int:
        return self.group.epoch if isinstance(self.group, EpochGroup) else self.group.generation

    def _judge_commit(self, member_id: str, tp: TopicPartition, offset: int) -> None:
        others = [owner for owner in self.owners(tp) if owner != member_id]
        assert not others, f"{member_id} has committed {tp}, which belongs to {others}"
        assert offset >= self.stored.get(tp, 0), f"the commit of {tp} went back from {self.stored[tp]} to {offset}"
        done = self.logs[tp].done_below
        assert offset <= done, f"{tp} was committed at {offset}; all records were processed up to {done}"

    # --- answers --------------------------------------------------------------------------------------------------------

    def answer(self, asked: Asked, client_id: str) -> Body | Waiting | None:
        function: Callable[[Asked], Any] = getattr(self, "_" + asked.api.name.lower())
        if asked.api in (tables.JOIN_GROUP, tables.CONSUMER_GROUP_HEARTBEAT):
            self._peer = Peer(client_id, "/sim")
        return function(asked)

    def _apiversions(self, asked: Asked) -> Body:
        keys = [{"api_key": NAMES[n].key, "min_version": lo, "max_version": hi} for n, (lo, hi) in self.versions.items()]
        return {"error_code": 0, "api_keys": keys}

    def _metadata(self, asked: Asked) -> Body:
        named = {topic_id: name for name, topic_id in self.ids.items()}
        wanted = list(self.ids) if asked.body["topics"] is None else [
            t["name"] or named[t["topic_id"]] for t in asked.body["topics"]
        ]  # fmt: skip
        topics = []
        for name in wanted:
            parts = [
                {
                    "error_code": 0 if self.alive[self.leader(tp)] else 5,
                    "partition_index": tp.partition,
                    "leader_id": self.leader(tp) if self.alive[self.leader(tp)] else -1,
                    "leader_epoch": 5,
                    "replica_nodes": [1],
                    "isr_nodes": [1],
                }
                for tp in self.logs
                if tp.topic == name
            ]
            entry: Body = {"error_code": 0 if parts else UNKNOWN_TOPIC, "name": name, "partitions": parts}
            if asked.version >= 10:
                entry["topic_id"] = self.ids.get(name, bytes(16))
            topics.append(entry)
        brokers = [{"node_id": n, "host": f"b{n}", "port": 9000 + n} for n, alive in self.alive.items() if alive]
        return {"brokers": brokers, "cluster_id": "c", "controller_id": 1, "topics": topics}

    def leader(self, tp: TopicPartition) -> int:
        return tp.partition % NODES + 1

    def _findcoordinator(self, asked: Asked) -> Body:
        node = self.coordinator
        found: Body = {"node_id": node, "host": f"b{node}", "port": 9000 + node, "error_code": 0 if self.is_up() else 15}
        return {"coordinators": [found | {"key": GROUP}]} if asked.version >= 4 else found

    def _fetch(self, asked: Asked) -> Body | None:
        topics = []
        has_records = False
        for tp, what in asked.partitions().items():
            log = self.logs[tp]
            records = log.read(what["fetch_offset"])
            has_records = has_records or bool(records)
            part = {"partition_index": tp.partition, "error_code": 0, "high_watermark": log.end, "last_stable_offset": log.end}
            topics.append({"topic": tp.topic, "partitions": [part | {"records": records or None}]})
        if not has_records and self.clock() < asked.at_ms + asked.body["max_wait_ms"]:
            return None
        return {"responses": topics}

    def _listoffsets(self, asked: Asked) -> Body:
        return {
            "topics": [
                {
                    "name": tp.topic,
                    "partitions": [
                        {
                            "partition_index": tp.partition,
                            "error_code": 0,
                            "offset": self.logs[tp].end if what["timestamp"] == -1 else 0,
                            "timestamp": -1,
                        }
                    ],
                }
                for tp, what in asked.partitions().items()
            ]
        }

    def _wrong_node(self, asked: Asked) -> bool:
        return asked.node != self.coordinator

    def _joingroup(self, asked: Asked) -> Waiting:
        assert isinstance(self.group, ClassicGroup)
        if self._wrong_node(asked):
            return Waiting(self._in_words({"error_code": NOT_COORDINATOR, "member_id": asked.body["member_id"]}))
        return self.group.join(asked.body, asked.version, self._peer, self.now)

    @staticmethod
    def _in_words(body: Body) -> Body:
        return {"generation_id": -1, "protocol_type": None, "protocol_name": "", "leader": "", "members": []} | body

    def _syncgroup(self, asked: Asked) -> Waiting:
        assert isinstance(self.group, ClassicGroup)
        if self._wrong_node(asked):
            return Waiting({"error_code": NOT_COORDINATOR})
        return self.group.sync(asked.body, asked.version, self.now)

    def _heartbeat(self, asked: Asked) -> Body:
        assert isinstance(self.group, ClassicGroup)
        return {"error_code": NOT_COORDINATOR if self._wrong_node(asked) else self.group.heartbeat(asked.body, self.now)}

    def _leavegroup(self, asked: Asked) -> Body:
        assert isinstance(self.group, ClassicGroup)
        if self._wrong_node(asked):
            return {"error_code": NOT_COORDINATOR, "members": []}
        members = asked.body["members"] if asked.version >= 3 else [{"member_id": asked.body["member_id"]}]
        codes = [self.group.leave(m["member_id"], m.get("group_instance_id"), self.now) for m in members]
        if asked.version < 3:
            return {"error_code": codes[0]}
        answers = [{"member_id": m["member_id"], "error_code": c} for m, c in zip(members, codes, strict=True)]
        return {"error_code": 0, "members": answers}

    def _consumergroupheartbeat(self, asked: Asked) -> Body:
        assert isinstance(self.group, EpochGroup)
        try:
            validate(asked.body, asked.version)
            if self._wrong_node(asked):
                raise RefusedError(NOT_COORDINATOR, "")
            shapes = [TopicShape(name, topic_id, self.count(name)) for name, topic_id in self.ids.items()]
            return self.group.heartbeat(asked.body, self._peer, shapes, self.now)
        except RefusedError as why:
            return {"error_code": why.code, "error_message": str(why) or None}

    def _offsetcommit(self, asked: Asked) -> Body:
        body = asked.body
        assert body["generation_id_or_member_epoch"] >= 0, "a member's commit without membership"
        code = NOT_COORDINATOR if self._wrong_node(asked) else self.group.check_commit(body, asked.version, self.now)
        topics = []
        for topic in body["topics"]:
            parts = []
            for part in topic["partitions"]:
                tp = TopicPartition(topic["name"], part["partition_index"])
                if not code:
                    self._judge_commit(body["member_id"], tp, part["committed_offset"])
                    self.stored[tp] = part["committed_offset"]
                    self.commits += 1
                parts.append({"partition_index": tp.partition, "error_code": code})
            topics.append({"name": topic["name"], "partitions": parts})
        return {"topics": topics}

    def _offsetfetch(self, asked: Asked) -> Body:
        group = asked.body["groups"][0] if asked.version >= 8 else asked.body
        code = NOT_COORDINATOR if self._wrong_node(asked) else 0
        if not code and isinstance(self.group, EpochGroup):
            code = self.group.check_fetch(group.get("member_id"), group.get("member_epoch", -1))
        topics = [] if code else [
            {
                "name": t["name"],
                "partitions": [
                    {"partition_index": p, "committed_offset": self.stored.get(TopicPartition(t["name"], p), -1)}
                    for p in t["partition_indexes"]
                ],
            }
            for t in group["topics"]
        ]  # fmt: skip
        out = {"topics": topics, "error_code": code}
        return {"groups": [out | {"group_id": GROUP}]} if asked.version >= 8 else out


def offsets_read(asked: Asked, body: Body) -> Iterable[tuple[TopicPartition, int]]:
    """What an answer to OffsetFetch says."""
    for topic in (body["groups"][0] if asked.version >= 8 else body)["topics"]:
        for part in topic["partitions"]:
            yield TopicPartition(topic["name"], part["partition_index"]), part["committed_offset"]


__all__ = ["COMPLETING", "GROUP", "NODES", "Brokers", "Log", "offsets_read"]
