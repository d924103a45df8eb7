"""The answers of a test broker, one function an API: (cluster, node, request) to a body. Called with the cluster's lock held.

What they answer follows a stock Kafka broker; Fetch has a module of its own. A function may wait on `cluster.changed`, which
gives the lock up meanwhile: a connection's requests are handled one after the other, those of others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from fastfetch.protocol import Request, tables
from fastfetch.types import TopicPartition

from .cluster import Cluster, Committed, Node, Topic
from .groups_epochs import EpochGroup
from .partition import Partition

__all__ = ["HANDLERS", "Body", "Context", "Handler", "check_epoch", "group_error", "is_legal"]

Body: TypeAlias = dict[str, Any]


class Context(NamedTuple):
    """Who asks whom. `reached_at` is this side's address of the connection, `peer` the other's."""

    cluster: Cluster
    node: Node
    versions: dict[int, tuple[int, int]]
    request: Request
    reached_at: str
    peer: str

    def address(self, node: Node) -> Body:
        """Where the client finds a node."""
        host, port = node.address_for(self.reached_at)
        return {"node_id": node.id, "host": host, "port": port}


Handler: TypeAlias = Callable[[Context], Body]

UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, NOT_LEADER, METADATA_TOO_LARGE = 3, 5, 6, 12
COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_TOPIC, ILLEGAL_GENERATION = 15, 16, 17, 22
UNKNOWN_MEMBER, UNSUPPORTED_VERSION, GROUP_ID_NOT_FOUND = 25, 35, 69
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_ID = 74, 75, 100

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL = -1, -2, -3, -4
_LONGEST_METADATA = 4096


def api_versions(c: Context) -> Body:
    if not c.versions[18][0] <= c.request.version <= c.versions[18][1]:
        low, high = c.versions[18]
        return {"error_code": UNSUPPORTED_VERSION, "api_keys": [{"api_key": 18, "min_version": low, "max_version": high}]}
    keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in sorted(c.versions.items())]
    return {"error_code": 0, "api_keys": keys}


# ------------------------------------------------------------------------------------------------------------------ metadata


def metadata(c: Context) -> Body:
    asked = c.request.body["topics"]
    cluster = c.cluster
    if asked is None or (c.request.version == 0 and not asked):
        topics = [_describe(cluster, topic) for topic in cluster.topics.values()]
    else:
        topics = [_look_up(cluster, each.get("name"), each.get("topic_id", bytes(16))) for each in asked]
    alive = cluster.alive()
    return {
        "brokers": [c.address(n) | {"rack": n.rack} for n in alive],
        "cluster_id": cluster.cluster_id,
        "controller_id": alive[0].id if alive else -1,
        "topics": topics,
    }


def _look_up(cluster: Cluster, name: str | None, topic_id: bytes) -> Body:
    topic = cluster.topics.get(name) if name is not None else cluster.by_id(topic_id)
    if topic is not None:
        return _describe(cluster, topic)
    # Topics are never made on the way, whatever allow_auto_topic_creation says.
    code = UNKNOWN_TOPIC_ID if name is None else UNKNOWN_TOPIC if is_legal(name) else INVALID_TOPIC
    return {"error_code": code, "name": name, "topic_id": topic_id, "partitions": []}


def is_legal(name: str) -> bool:
    plain = name.replace(".", "").replace("_", "").replace("-", "")
    return 0 < len(name) <= 249 and name not in (".", "..") and plain.isascii() and (plain.isalnum() or not plain)


def _describe(cluster: Cluster, topic: Topic) -> Body:
    partitions = []
    for p in topic.partitions:
        leader = cluster.leader_of(p)
        living = [r for r in p.replicas if cluster.nodes[r].alive]
        partitions.append({
            "error_code": 0 if leader >= 0 else LEADER_NOT_AVAILABLE,
            "partition_index": p.index,
            "leader_id": leader,
            "leader_epoch": p.leader_epoch,
            "replica_nodes": list(p.replicas),
            "isr_nodes": living,
            "offline_replicas": [r for r in p.replicas if r not in living],
        })  # fmt: skip
    return {
        "error_code": 0,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.internal,
        "partitions": partitions,
    }


# ------------------------------------------------------------------------------------------------------------------- offsets


def check_epoch(cluster: Cluster, node: Node, partition: Partition | None, epoch: int, *, leader_only: bool = True) -> int:
    """Error code of a request for `partition` that carries the leader epoch the client knows (KIP-320).

    A node that keeps the partition compares the epoch before it looks whether it leads; a stranger to it knows nothing.
    """
    if partition is None:
        return UNKNOWN_TOPIC
    if node.id not in partition.replicas:
        return NOT_LEADER
    if 0 <= epoch < partition.leader_epoch:
        return FENCED_LEADER_EPOCH
    if epoch > partition.leader_epoch:
        return UNKNOWN_LEADER_EPOCH
    return NOT_LEADER if leader_only and cluster.leader_of(partition) != node.id else 0


def list_offsets(c: Context) -> Body:
    topics = []
    for topic in c.request.body["topics"]:
        answers = []
        for asked in topic["partitions"]:
            partition = c.cluster.find(topic["name"], asked["partition_index"])
            code = check_epoch(c.cluster, c.node, partition, asked["current_leader_epoch"])
            answer = {"partition_index": asked["partition_index"], "error_code": code}
            if partition is not None and not code:
                answer |= _offset_for(partition, asked["timestamp"], c.request.body["isolation_level"])
            answers.append(answer)
        topics.append({"name": topic["name"], "partitions": answers})
    return {"topics": topics}


def _offset_for(partition: Partition, timestamp: int, isolation: int) -> Body:
    end = partition.visible_end(isolation)
    if timestamp == _LATEST:
        return {"offset": end, "timestamp": -1, "leader_epoch": partition.leader_epoch}
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        start = partition.log_start
        return {"offset": start, "timestamp": -1, "leader_epoch": max(partition.epoch_at(start), 0)}
    found = None
    if timestamp >= 0:
        found = partition.find_time(timestamp, end)
    elif timestamp == _MAX_TIMESTAMP:
        found = partition.latest_time(end)
    if found is None:
        return {"offset": -1, "timestamp": -1, "leader_epoch": -1}
    return {"offset": found[0], "timestamp": found[1], "leader_epoch": partition.epoch_at(found[0])}


def offset_for_leader_epoch(c: Context) -> Body:
    topics = []
    for topic in c.request.body["topics"]:
        answers = []
        for asked in topic["partitions"]:
            partition = c.cluster.find(topic["topic"], asked["partition"])
            code = check_epoch(c.cluster, c.node, partition, asked["current_leader_epoch"])
            epoch, end = (-1, -1) if partition is None or code else partition.epoch_end(asked["leader_epoch"])
            answers.append({"partition": asked["partition"], "error_code": code, "leader_epoch": epoch, "end_offset": end})
        topics.append({"topic": topic["topic"], "partitions": answers})
    return {"topics": topics}


# -------------------------------------------------------------------------------------------------------------------- groups


def find_coordinator(c: Context) -> Body:
    body = c.request.body
    if c.request.version >= 4:
        return {"coordinators": [{"key": key} | _coordinator(c, key) for key in body["coordinator_keys"]]}
    return _coordinator(c, body["key"])


def _coordinator(c: Context, group: str) -> Body:
    node = c.cluster.coordinator_of(group)
    if not node.alive:
        message = "The coordinator is not available."
        return {"error_code": COORDINATOR_NOT_AVAILABLE, "error_message": message, "node_id": -1, "host": "", "port": -1}
    return {"error_code": 0, "error_message": None} | c.address(node)


def group_error(c: Context, group: str) -> int:
    # An empty name is a group like any other here: brokers still take commits of such old clients.
    return 0 if c.cluster.coordinator_of(group) is c.node else NOT_COORDINATOR


def offset_commit(c: Context) -> Body:
    """Commits of members, and without membership: generation -1, as long as nobody is a member."""
    body = c.request.body
    group = body["group_id"]
    code = group_error(c, group)
    now = time.monotonic()
    found = c.cluster.group(group, now)
    if not code and found is not None:
        code = found.check_commit(body, c.request.version, now)
    elif not code and body["generation_id_or_member_epoch"] >= 0:
        missing = GROUP_ID_NOT_FOUND if c.request.version >= 9 else ILLEGAL_GENERATION
        code = UNKNOWN_MEMBER if group in c.cluster.offsets else missing
    topics = []
    for topic in body["topics"]:
        # Version 10 has ids in place of names (KIP-848's last part); names win where there are any.
        known = c.cluster.topics.get(topic.get("name") or "") or c.cluster.by_id(topic.get("topic_id", bytes(16)))
        answers = []
        for p in topic["partitions"]:
            error = code
            if not error and (known is None or not 0 <= p["partition_index"] < len(known.partitions)):
                error = UNKNOWN_TOPIC
            if not error and len(p["committed_metadata"] or "") > _LONGEST_METADATA:
                error = METADATA_TOO_LARGE
            if not error and known is not None:
                stored = Committed(p["committed_offset"], p["committed_leader_epoch"], p["committed_metadata"])
                c.cluster.offsets.setdefault(group, {})[TopicPartition(known.name, p["partition_index"])] = stored
            answers.append({"partition_index": p["partition_index"], "error_code": error})
        topics.append({"name": topic.get("name", ""), "topic_id": topic.get("topic_id", bytes(16)), "partitions": answers})
    c.cluster.changed.notify_all()
    return {"topics": topics}


def offset_fetch(c: Context) -> Body:
    body = c.request.body
    if c.request.version >= 8:
        groups = []
        for group in body["groups"]:
            code = group_error(c, group["group_id"]) or _check_reader(c, group)
            topics = [] if code else _committed(c.cluster, group["group_id"], group["topics"])
            groups.append({"group_id": group["group_id"], "topics": topics, "error_code": code})
        return {"groups": groups}
    code = group_error(c, body["group_id"])
    if code and c.request.version >= 2:
        return {"topics": [], "error_code": code}
    topics = _committed(c.cluster, body["group_id"], body["topics"])
    if code:  # version 1 has no place for an error of the whole
        for topic in topics:
            for p in topic["partitions"]:
                p.update(committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code)
    return {"topics": topics, "error_code": code}


def _check_reader(c: Context, asked: Body) -> int:
    """Members of a group under the consumer protocol say which epoch they know; of a classic one nobody says anything."""
    found = c.cluster.group(asked["group_id"], time.monotonic())
    return found.check_fetch(asked["member_id"], asked["member_epoch"]) if isinstance(found, EpochGroup) else 0


def _committed(cluster: Cluster, group: str, asked: list[Body] | None) -> list[Body]:
    """Committed offsets of the partitions asked for, -1 where there is none; all there are if `asked` is None."""
    stored = cluster.offsets.get(group, {})
    if asked is None:
        names = sorted({tp.topic for tp in stored})
        asked = [{"name": n, "partition_indexes": sorted(tp.partition for tp in stored if tp.topic == n)} for n in names]
    out = []
    for topic in asked:
        name, topic_id = topic.get("name") or "", topic.get("topic_id", bytes(16))
        known = cluster.by_id(topic_id) if not name else None
        name = known.name if known is not None else name
        answers = []
        for index in topic["partition_indexes"]:
            found = stored.get(TopicPartition(name, index), Committed(-1, -1, ""))
            answers.append({
                "partition_index": index,
                "committed_offset": found.offset,
                "committed_leader_epoch": found.leader_epoch,
                "metadata": found.metadata,
                "error_code": 0,
            })  # fmt: skip
        key = {"name": name, "topic_id": topic_id} if "topic_id" in topic else {"name": name}
        out.append(key | {"partitions": answers})
    return out


HANDLERS: dict[int, Handler] = {
    tables.LIST_OFFSETS.key: list_offsets,
    tables.METADATA.key: metadata,
    tables.OFFSET_COMMIT.key: offset_commit,
    tables.OFFSET_FETCH.key: offset_fetch,
    tables.FIND_COORDINATOR.key: find_coordinator,
    tables.API_VERSIONS.key: api_versions,
    tables.OFFSET_FOR_LEADER_EPOCH.key: offset_for_leader_epoch,
}
"""Without Fetch, which needs more than this (see `fetching`), and what members ask (`coordinator`)."""
