"""A scripted Kafka broker on a loopback port, for tests of programs that read Kafka.

It speaks the real protocol over real TCP to any client, starts in milliseconds, and keeps everything in memory. As many nodes
as wanted share the topics; leaders move, nodes die and come back, and every exchange of request and answer can be delayed,
changed, cut or refused.

    from fastfetch.testing import Broker, delay, encode_batch, error

    with Broker(nodes=2, versions={"Fetch": (4, 11)}) as broker:
        broker.create_topic("orders", partitions=3)
        broker.append("orders", 0, encode_batch([b"one", (b"key", b"two")], codec="lz4"))
        broker.on("Fetch", error(6, topic="orders", partition=0))       # the first Fetch is told "not the leader"
        broker.on("Metadata", delay(0.2), nth=2, times=None)            # every Metadata but the first is late
        read_all(broker.bootstrap_servers)                              # any client
        assert broker.end_offset("orders", 0) == 2
        assert all(request.version <= 11 for request in broker.requests("Fetch"))
        print(broker.committed("my-group"))

Served: ApiVersions, Metadata, ListOffsets, Fetch (with sessions), OffsetForLeaderEpoch, FindCoordinator, OffsetCommit,
OffsetFetch; JoinGroup, SyncGroup, Heartbeat and LeaveGroup of members of a group, ConsumerGroupHeartbeat of members under the
consumer protocol (KIP-848; a group's members all speak one protocol), ListGroups, DescribeGroups and ConsumerGroupDescribe.
Anything else, or a version that was not announced, closes the connection, as a real broker does.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fastfetch.errors import TimeoutError as TimedOut
from fastfetch.errors import UsageError
from fastfetch.protocol import Request, tables
from fastfetch.types import OffsetAndMetadata, TopicPartition

from .cluster import Cluster, Committed, Node
from .faults import Action, Exchange
from .group_view import GroupView, view
from .groups import ClassicGroup
from .groups_epochs import EpochGroup
from .server import Logged, Rule, Script, Server
from .writing import WRITING_APIS

__all__ = ["KAFKA_VERSIONS", "Broker"]

_NAMES = {api.name: api for api in (*tables.ALL, *WRITING_APIS.values())}

# What brokers of these releases announce for the APIs served here: measured, but
# for some of the older ones, which are from the public schemas.
# Versions that the tables lack (below the lowest that 4.0 left, or features of followers) are not announced.
KAFKA_VERSIONS: dict[str, dict[str, tuple[int, int]]] = {
    "2.8": {
        "Fetch": (0, 12),
        "ListOffsets": (0, 6),
        "Metadata": (0, 11),
        "OffsetCommit": (0, 8),
        "OffsetFetch": (0, 7),
        "FindCoordinator": (0, 3),
        "JoinGroup": (0, 7),
        "Heartbeat": (0, 4),
        "LeaveGroup": (0, 4),
        "SyncGroup": (0, 5),
        "DescribeGroups": (0, 5),
        "ListGroups": (0, 4),
        "ApiVersions": (0, 3),
        "OffsetForLeaderEpoch": (0, 4),
    },
    "3.9": {
        "Fetch": (0, 17),
        "ListOffsets": (0, 9),
        "Metadata": (0, 12),
        "OffsetCommit": (0, 9),
        "OffsetFetch": (0, 9),
        "FindCoordinator": (0, 6),
        "JoinGroup": (0, 9),
        "Heartbeat": (0, 4),
        "LeaveGroup": (0, 5),
        "SyncGroup": (0, 5),
        "DescribeGroups": (0, 5),
        "ListGroups": (0, 5),
        "ConsumerGroupHeartbeat": (0, 0),
        "ConsumerGroupDescribe": (0, 0),
        "ApiVersions": (0, 4),
        "OffsetForLeaderEpoch": (0, 4),
    },
    "4.1": {
        "Fetch": (4, 18),
        "ListOffsets": (1, 10),
        "Metadata": (0, 13),
        "OffsetCommit": (2, 9),
        "OffsetFetch": (1, 9),
        "FindCoordinator": (0, 6),
        "JoinGroup": (0, 9),
        "Heartbeat": (0, 4),
        "LeaveGroup": (0, 5),
        "SyncGroup": (0, 5),
        "DescribeGroups": (0, 6),
        "ListGroups": (0, 5),
        "ConsumerGroupHeartbeat": (0, 1),
        "ConsumerGroupDescribe": (0, 1),
        "ApiVersions": (0, 4),
        "OffsetForLeaderEpoch": (2, 4),
    },
    "4.3": {
        "Fetch": (4, 18),
        "ListOffsets": (1, 11),
        "Metadata": (0, 13),
        "OffsetCommit": (2, 10),
        "OffsetFetch": (1, 10),
        "FindCoordinator": (0, 6),
        "JoinGroup": (0, 9),
        "Heartbeat": (0, 4),
        "LeaveGroup": (0, 5),
        "SyncGroup": (0, 5),
        "DescribeGroups": (0, 6),
        "ListGroups": (0, 5),
        "ConsumerGroupHeartbeat": (0, 1),
        "ConsumerGroupDescribe": (0, 1),
        "ApiVersions": (0, 4),
        "OffsetForLeaderEpoch": (2, 4),
    },
}


# Announced and not served. librdkafka takes from the range of Produce which message formats a broker knows, and does not fetch
# from one without it.
_PRODUCE_KEY, _PRODUCE_VERSIONS = 0, {"2.8": (0, 9), "3.9": (0, 11), "4.1": (0, 13), "4.3": (0, 13)}
_WRITING_VERSIONS = {key: (api.min_version, api.max_version) for key, api in WRITING_APIS.items()}


class Broker:
    """A cluster of `nodes` brokers with ids from 1 on, running from construction until `close`; a context manager.

    kafka           release whose version ranges are announced: a key of KAFKA_VERSIONS
    versions        {API name: (lowest, highest)} over those; None in place of the pair: that API does not exist
    host, port      address to listen on; 0: a free port. Further nodes take free ports
    advertise       host and port of node 1 that clients are told; else what it listens on, and for 0.0.0.0 and :: the address
                    that the client came to
    racks           {node id: rack}
    topic_ids       False: topics have no ids, as in clusters older than 2.8
    fetch_sessions  how many fetch sessions a node keeps; 0: it gives none (session id 0)
    initial_rebalance_delay     seconds that a group waits for more members after its first (a stock broker: 3)
    consumer_session, consumer_heartbeat
                    seconds of members under the consumer protocol, which the broker tells them (a stock broker: 45 and 5)
    writable        clients may make topics, write to them and delete them, without transactions (see `writing`)
    tls             server-side context: every node speaks TLS
    observe         called with each request as it arrives, by its connection's thread. They are not kept for `requests` then:
                    for a broker that runs for long
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        kafka: str = "4.1",
        versions: Mapping[str, tuple[int, int] | None] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        advertise: tuple[str, int] | None = None,
        racks: Mapping[int, str] | None = None,
        topic_ids: bool = True,
        fetch_sessions: int = 1000,
        initial_rebalance_delay: float = 0.0,
        consumer_session: float = 45.0,
        consumer_heartbeat: float = 0.5,
        writable: bool = False,
        tls: ssl.SSLContext | None = None,
        observe: Callable[[Logged], object] | None = None,
    ) -> None:
        if nodes < 1:
            raise UsageError(f"a cluster has 1 or more nodes, not {nodes}")
        members = {i: Node(i, host, rack=(racks or {}).get(i)) for i in range(1, nodes + 1)}
        self._cluster = Cluster(
            members,
            topic_ids=topic_ids,
            initial_delay=initial_rebalance_delay,
            session=consumer_session,
            interval=consumer_heartbeat,
        )
        members[1].port, members[1].advertised = port, advertise
        self._script = Script(observe=observe)
        self._server = Server(
            self._cluster,
            self._script,
            _announced(kafka, versions or {}) | (_WRITING_VERSIONS if writable else {}),
            fetch_sessions=fetch_sessions,
            tls=tls,
            is_writable=writable,
        )
        try:
            for node in members.values():
                self._server.start(node)
        except BaseException:
            self._server.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.close()
            return
        self._server.close()
        for failure in self._script.failures:
            error.add_note(f"The broker failed too: {failure!r}")

    def close(self) -> None:
        """Stop all nodes, close all connections and end all threads. Idempotent.

        Raises what an action of a script raised while it ran: the client saw no more than a closed connection.
        """
        self._server.close()
        if self._script.failures:
            raise self._script.failures.pop(0)

    # --------------------------------------------------------------------------------------------------------------- nodes

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every node that was ever started, separated by commas."""
        return ",".join(f"{n.host}:{n.port}" for n in self._cluster.nodes.values())

    @property
    def nodes(self) -> list[int]:
        """Ids of the living nodes."""
        return [node.id for node in self._cluster.alive()]

    def address(self, node: int) -> tuple[str, int]:
        """Host and port of a node."""
        return self._node(node).host, self._node(node).port

    def kill_node(self, node: int, *, elect: bool = False) -> None:
        """Stop a node: its port refuses, its connections end.

        elect   the partitions it led get another leader at once; else they have none until it is back
        """
        self._server.stop(self._node(node))
        if elect:
            with self._cluster.lock:
                self._cluster.elect(node)

    def restart_node(self, node: int, *, new_port: bool = False) -> None:
        """Start a killed node (or one that is running, anew), on its old port unless told otherwise."""
        member = self._node(node)
        self._server.stop(member)
        if new_port:
            member.port = 0
        with self._cluster.lock:
            kept = [g for g in self._cluster.groups if self._cluster.coordinator_of(g) is member]
            self._cluster.reload_groups(kept, time.monotonic())
        self._server.start(member)

    def disconnect(self, node: int | None = None) -> None:
        """Close the connections to a node, or to all; they go on listening."""
        for each in self.nodes if node is None else [node]:
            self._server.disconnect_node(each)

    def connections(self, node: int | None = None) -> int:
        """Connections open now, to one node or to all."""
        return self._server.connections(node)

    @property
    def connections_made(self) -> int:
        """Connections accepted since the start."""
        return self._server.made

    # -------------------------------------------------------------------------------------------------------------- topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication: int = 1,
        topic_id: bytes | None = None,
        internal: bool = False,
    ) -> bytes:
        """A new topic; partition p is led by node p mod n + 1. Returns its id: the same one in each run, another one when the
        topic is made again under its name.

        replication     nodes that keep each partition, always up to date. From version 11 on of Fetch any of them serves it
        """
        with self._cluster.lock:
            return self._cluster.create_topic(name, partitions, replication, topic_id, internal).id

    def delete_topic(self, name: str) -> None:
        """Forget a topic and its records; committed offsets stay, as in a broker for a while."""
        with self._cluster.lock:
            self._cluster.topic(name)
            del self._cluster.topics[name]
            self._cluster.changed.notify_all()

    def add_partitions(self, name: str, total: int, *, replication: int = 3) -> None:
        """Grow a topic to `total` partitions."""
        with self._cluster.lock:
            self._cluster.add_partitions(name, total, replication)

    def move_leader(self, topic: str, partition: int, node: int, *, epoch: int | None = None) -> None:
        """Another leader, -1 for none; the leader epoch grows by one unless given.

        A node that was no replica takes the old leader's place among them. The old one then answers NOT_LEADER_OR_FOLLOWER; if it
        stays a replica it answers FENCED_LEADER_EPOCH to those who know the old epoch, and serves the others.
        """
        with self._cluster.lock:
            self._cluster.move_leader(self._cluster.partition(topic, partition), node, epoch)

    def leader(self, topic: str, partition: int) -> tuple[int, int]:
        """Node id and epoch of the leader; -1 while it is down."""
        with self._cluster.lock:
            found = self._cluster.partition(topic, partition)
            return self._cluster.leader_of(found), found.leader_epoch

    def prefer_replica(self, topic: str, partition: int, node: int) -> None:
        """Send consumers of a partition to a node (KIP-392): the leader names it instead of giving records. -1: no longer."""
        with self._cluster.lock:
            self._cluster.partition(topic, partition).preferred_replica = node
            self._cluster.changed.notify_all()

    # ------------------------------------------------------------------------------------------------------------- records

    def append(self, topic: str, partition: int, data: bytes, *, keep_offsets: bool = False) -> tuple[int, int]:
        """Append batches (of `encode_batch`, `control_batch`, `message_set`); returns first and last offset given.

        Like a leader it writes its epoch and new offsets into them. keep_offsets leaves both as they are: the log may then have
        holes, and an empty one may start anywhere. Transactions are followed: see `control_batch`.
        """
        with self._cluster.lock:
            offsets = self._cluster.partition(topic, partition).append(data, keep_offsets=keep_offsets)
            self._cluster.changed.notify_all()
        return offsets

    def append_raw(self, topic: str, partition: int, data: bytes, *, offsets: int = 1) -> tuple[int, int]:
        """Append bytes that need not be batches at all, served for the next `offsets` offsets."""
        with self._cluster.lock:
            given = self._cluster.partition(topic, partition).append_raw(data, offsets)
            self._cluster.changed.notify_all()
        return given

    def generate(self, topic: str, partition: int, template: bytes, repeats: int) -> None:
        """Append `repeats` copies of a run of batches, made when they are read: a large log that takes no memory."""
        with self._cluster.lock:
            self._cluster.partition(topic, partition).generate(template, repeats)
            self._cluster.changed.notify_all()

    def load_segment(
        self,
        path: str | Path | Sequence[Path],
        topic: str,
        partition: int = 0,
        *,
        open_transactions: Mapping[int, int] | None = None,
    ) -> list[str]:
        """Serve a broker's `.log` file, several in order, or a partition folder of them, at the offsets they have. Makes the
        topic if need be.

        open_transactions   producer id: first offset of the transactions that are open where the files begin

        They stay on disk (see `fastfetch.testing.disk`). What is appended to them later is not served. Returns what of them
        can't be served, as sentences.
        """
        if isinstance(path, str | Path):
            path = Path(path)
            files: Sequence[Path] = sorted(path.glob("*.log")) if path.is_dir() else [path]
        else:
            files = path
        if not files:
            raise FileNotFoundError(f"{path} holds no .log file")
        with self._cluster.lock:
            if topic not in self._cluster.topics:
                self._cluster.create_topic(topic, partition + 1, 1, None, False)
            elif partition >= len(self._cluster.topics[topic].partitions):
                self._cluster.add_partitions(topic, partition + 1, 1)
            remarks = self._cluster.partition(topic, partition).load(files, open_transactions or {})
            self._cluster.changed.notify_all()
        return remarks

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Move the log start up, as retention and DeleteRecords do."""
        with self._cluster.lock:
            self._cluster.partition(topic, partition).delete_before(before)
            self._cluster.changed.notify_all()

    def truncate(self, topic: str, partition: int, to: int) -> None:
        """Cut the log's end off at `to`, as an unclean election does; usually followed by `move_leader`."""
        with self._cluster.lock:
            self._cluster.partition(topic, partition).truncate(to)
            self._cluster.changed.notify_all()

    def hold_watermark(self, topic: str, partition: int, offset: int | None) -> None:
        """Show a high watermark below the log's end (a batch's start), or the end again with None."""
        with self._cluster.lock:
            self._cluster.partition(topic, partition).held_watermark = offset
            self._cluster.changed.notify_all()

    def start_offset(self, topic: str, partition: int) -> int:
        with self._cluster.lock:
            return self._cluster.partition(topic, partition).log_start

    def end_offset(self, topic: str, partition: int, *, isolation: str = "read_uncommitted") -> int:
        """The high watermark, or for "read_committed" the last stable offset."""
        with self._cluster.lock:
            return self._cluster.partition(topic, partition).visible_end(int(isolation == "read_committed"))

    # -------------------------------------------------------------------------------------------------------------- groups

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed."""
        with self._cluster.lock:
            stored = self._cluster.offsets.get(group, {})
            return {
                tp: OffsetAndMetadata(c.offset, c.metadata or "", None if c.leader_epoch < 0 else c.leader_epoch)
                for tp, c in stored.items()
            }

    def set_committed(
        self, group: str, topic: str, partition: int, offset: int, metadata: str = "", leader_epoch: int = -1
    ) -> None:
        """Store an offset as if a member of the group had committed it."""
        with self._cluster.lock:
            stored = self._cluster.offsets.setdefault(group, {})
            stored[TopicPartition(topic, partition)] = Committed(offset, leader_epoch, metadata)

    def coordinator(self, group: str) -> int:
        """Node id of a group's coordinator."""
        return self._cluster.coordinator_of(group).id

    def move_coordinator(self, group: str, node: int) -> None:
        """Another coordinator; the old one answers NOT_COORDINATOR, also to those whose JoinGroup or SyncGroup waits there.

        As with a broker, the new one knows the last generation that was complete, and sessions begin anew.
        """
        with self._cluster.lock:
            self._cluster.coordinators[group] = self._node(node).id
            self._cluster.reload_groups([group], time.monotonic())

    def group(self, group: str) -> GroupView:
        """State, generation, members and assignments of a group, as of now; an empty one if nobody has joined it."""
        with self._cluster.lock:
            return self._view(group)

    def wait_for_group(
        self, group: str, *, state: str = "Stable", members: int | None = None, timeout: float = 10.0
    ) -> GroupView:
        """Wait until a group is in a state, and has that many members if given. TimedOut: it isn't, after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        with self._cluster.lock:
            while True:
                seen, now = self._view(group), time.monotonic()
                if seen.state == state and members in (None, len(seen.members)):
                    return seen
                if now >= deadline:
                    raise TimedOut(f"group {group!r} is {seen.state} with {len(seen.members)} members after {timeout} s")
                found = self._cluster.group(group, now)
                self._cluster.changed.wait(min(deadline, found.next_due() if found is not None else deadline) - now)

    def expire_member(self, group: str, member_id: str) -> None:
        """Let a member's session end now, as if it had been silent for too long."""
        with self._cluster.lock:
            now = time.monotonic()
            found = self._joined(group, now)
            if member_id not in found.members:
                raise UsageError(f"group {group!r} has no member {member_id!r}; there are {sorted(found.members)}")
            found.expire(member_id, now)

    def rebalance(self, group: str) -> None:
        """Let every member of a group join again; under the consumer protocol, make another target, though an equal one."""
        with self._cluster.lock:
            now = time.monotonic()
            self._joined(group, now).rebalance(now)

    def _joined(self, group: str, now: float) -> ClassicGroup | EpochGroup:
        found = self._cluster.group(group, now)
        if found is None or not found.members:
            raise UsageError(f"group {group!r} has no members")
        return found

    def _view(self, group: str) -> GroupView:
        names = {topic.id: topic.name for topic in self._cluster.topics.values()}
        return view(self._cluster.group(group, time.monotonic()), names)

    # -------------------------------------------------------------------------------------------------------------- script

    def on(
        self,
        api: str,
        *actions: Action | Callable[[Exchange], object],
        nth: int = 1,
        times: int | None = 1,
        node: int | None = None,
        when: Callable[[Request], bool] | None = None,
    ) -> Rule:
        """Do something to exchanges of one API ("*": of every one). See `fastfetch.testing.faults` for the actions.

        nth, times  from the n-th matching request on (1 is the next), so many times; None: always
        node        only those that this node gets
        when        only requests for which this is true
        returns     the rule: `rule.done` counts how often it acted; `broker.off(rule)` ends it

        Several rules may act on one exchange, in the order they were made.
        """
        if api != "*" and api not in _NAMES:
            raise UsageError(f"no API {api!r}; there are {', '.join(sorted(_NAMES))}")
        if nth < 1:
            raise UsageError(f"nth counts from 1, not {nth}")
        steps = tuple(a if isinstance(a, Action) else Action("body", a) for a in actions)
        rule = Rule(api, steps, node, nth, times, when)
        with self._script.arrived:
            self._script.rules.append(rule)
        return rule

    def off(self, rule: Rule | None = None) -> None:
        """End a rule, or all of them."""
        with self._script.arrived:
            self._script.rules[:] = [r for r in self._script.rules if rule is not None and r is not rule]

    def requests(self, api: str | None = None, *, node: int | None = None) -> list[Logged]:
        """Requests that have arrived, in order."""
        with self._script.arrived:
            return [r for r in self._script.log if api in (None, r.api) and node in (None, r.node)]

    def wait_for(self, api: str, count: int = 1, *, node: int | None = None, timeout: float = 5.0) -> list[Logged]:
        """Wait until `count` requests of an API have arrived since the start, and return all of them."""
        deadline = time.monotonic() + timeout
        with self._script.arrived:
            while len(found := self.requests(api, node=node)) < count:
                left = deadline - time.monotonic()
                if left <= 0 or not self._script.arrived.wait(left):
                    seen = ", ".join(r.api for r in self._script.log[-20:]) or "nothing"
                    raise TimedOut(f"{len(found)} of {count} {api} requests within {timeout} s; the last that came: {seen}")
            return found

    def forget_requests(self) -> None:
        """Empty the log of requests."""
        with self._script.arrived:
            self._script.log.clear()

    def _node(self, node: int) -> Node:
        if node not in self._cluster.nodes:
            raise UsageError(f"no node {node}; there are {list(self._cluster.nodes)}")
        return self._cluster.nodes[node]


def _announced(kafka: str, changes: Mapping[str, tuple[int, int] | None]) -> dict[int, tuple[int, int]]:
    """{api key: (lowest, highest)} of what is both served and asked for."""
    if kafka not in KAFKA_VERSIONS:
        raise UsageError(f"no version ranges of Kafka {kafka!r}; there are {', '.join(KAFKA_VERSIONS)}")
    wanted: dict[str, tuple[int, int] | None] = {**KAFKA_VERSIONS[kafka]}
    for name, pair in changes.items():
        if name not in wanted:
            raise UsageError(f"{name!r} is not served; there are {', '.join(sorted(wanted))}")
        wanted[name] = pair
    out = {_PRODUCE_KEY: _PRODUCE_VERSIONS[kafka]}
    for name, pair in wanted.items():
        api: Any = _NAMES[name]
        if pair is None:
            continue
        low, high = max(pair[0], api.min_version), min(pair[1], api.max_version)
        if low > high:
            raise UsageError(f"{name} is spoken in versions {api.min_version} to {api.max_version}, not {pair[0]} to {pair[1]}")
        out[api.key] = (low, high)
    return out
