"""What the nodes of a test broker share: topics, leaders, committed offsets. No sockets here; `server` has those.

One lock guards everything, and `changed` is notified whenever something a waiting request may be waiting for has happened.
"""

from __future__ import annotations

import threading
import uuid
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from fastfetch.errors import UsageError
from fastfetch.types import TopicPartition

from .groups import ClassicGroup
from .groups_epochs import EpochGroup, TopicShape
from .partition import Partition

__all__ = ["Cluster", "Committed", "Node", "Topic"]


@dataclass(eq=False)
class Node:
    """One broker. `port` is fixed by the first start and kept over a restart.

    advertised  host and port that clients are told; None: those it listens on
    """

    id: int
    host: str
    port: int = 0
    rack: str | None = None
    alive: bool = False
    advertised: tuple[str, int] | None = None

    def address_for(self, reached_at: str) -> tuple[str, int]:
        """Host and port for a client whose connection came in at an address of this machine. One that got here can come again."""
        if self.advertised is not None:
            return self.advertised
        return reached_at if self.host in ("0.0.0.0", "::") else self.host, self.port


@dataclass(eq=False)
class Topic:
    name: str
    id: bytes
    partitions: list[Partition]
    internal: bool = False


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed offset as OffsetCommit gave it."""

    offset: int
    leader_epoch: int
    metadata: str | None


@dataclass(eq=False)
class Cluster:
    """State shared by all nodes.

    topic_ids       False plays a broker older than 2.8 on disk: topics have no id
    coordinators    group: node id, where a test moved it
    initial_delay   seconds that a new group waits for its second member
    session, interval   seconds of a group under the consumer protocol: until a silent member is out, and between heartbeats
    """

    nodes: dict[int, Node]
    cluster_id: str = "fastfetch-test"
    topic_ids: bool = True
    topics: dict[str, Topic] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, Committed]] = field(default_factory=dict)
    coordinators: dict[str, int] = field(default_factory=dict)
    groups: dict[str, ClassicGroup | EpochGroup] = field(default_factory=dict)
    initial_delay: float = 0.0
    session: float = 45.0
    interval: float = 0.5

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self._made = 0

    # -------------------------------------------------------------------------------------------------------------- topics

    def create_topic(self, name: str, partitions: int, replication: int, topic_id: bytes | None, internal: bool) -> Topic:
        if name in self.topics:
            raise UsageError(f"topic {name!r} exists already")
        if partitions < 1:
            raise UsageError(f"a topic has 1 or more partitions, not {partitions}")
        self._made += 1
        if topic_id is None:
            # Made from the name and a count: the same test gives the same ids, a topic made again under its name another one.
            topic_id = uuid.uuid5(uuid.NAMESPACE_OID, f"{name}/{self._made}").bytes if self.topic_ids else bytes(16)
        topic = Topic(name, topic_id, [], internal)
        self.topics[name] = topic
        self.add_partitions(name, partitions, replication)
        return topic

    def add_partitions(self, name: str, total: int, replication: int) -> None:
        topic, ids = self.topic(name), list(self.nodes)
        for index in range(len(topic.partitions), total):
            replicas = [ids[(index + i) % len(ids)] for i in range(min(replication, len(ids)))]
            topic.partitions.append(Partition(name, index, replicas[0], replicas))
        self.changed.notify_all()

    def topic(self, name: str) -> Topic:
        if name not in self.topics:
            raise UsageError(f"no topic {name!r}; there are {sorted(self.topics) or 'none'}")
        return self.topics[name]

    def partition(self, name: str, index: int) -> Partition:
        topic = self.topic(name)
        if not 0 <= index < len(topic.partitions):
            raise UsageError(f"topic {name!r} has partitions 0 to {len(topic.partitions) - 1}, not {index}")
        return topic.partitions[index]

    def find(self, name: str, index: int) -> Partition | None:
        """As `partition`, for what a client asks for."""
        topic = self.topics.get(name)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    def by_id(self, topic_id: bytes) -> Topic | None:
        return next((t for t in self.topics.values() if t.id == topic_id), None)

    # --------------------------------------------------------------------------------------------------------------- nodes

    def alive(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.alive]

    def leader_of(self, partition: Partition) -> int:
        """-1 while the leader is down."""
        node = self.nodes.get(partition.leader)
        return node.id if node is not None and node.alive else -1

    def move_leader(self, partition: Partition, node_id: int, epoch: int | None = None) -> None:
        if node_id != -1 and node_id not in self.nodes:
            raise UsageError(f"no node {node_id}; there are {list(self.nodes)}")
        if node_id != -1 and node_id not in partition.replicas:
            # As a reassignment does it: the new leader takes the place of the old one, which is then a stranger to the partition.
            partition.replicas = [node_id, *(r for r in partition.replicas if r != partition.leader)]
        partition.leader = node_id
        partition.begin_epoch(partition.leader_epoch + 1 if epoch is None else epoch)
        self.changed.notify_all()

    def elect(self, gone: int) -> None:
        """Every partition led by `gone` gets the next living replica, or the next living node, as its leader."""
        alive = [node.id for node in self.alive() if node.id != gone]
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition.leader == gone and alive:
                    fit = [r for r in partition.replicas if r in alive] or alive
                    self.move_leader(partition, fit[0])

    def coordinator_of(self, group: str) -> Node:
        """The node that keeps a group: spread by name, unless a test moved it."""
        ids = list(self.nodes)
        return self.nodes[self.coordinators.get(group, ids[zlib.crc32(group.encode("utf-8", "surrogateescape")) % len(ids)])]

    # -------------------------------------------------------------------------------------------------------------- groups

    def group(self, name: str, now: float) -> ClassicGroup | EpochGroup | None:
        """A group as it is now; None: nobody has ever joined it."""
        found = self.groups.get(name)
        if found is not None and self.coordinator_of(name).alive:  # no session ends while there is nobody to say so
            found.advance(now)
        return found

    def classic_group(self, name: str, now: float) -> ClassicGroup | None:
        """The group for a member of the classic protocol, made if there is none. None: members of the other one are in it."""
        found = self.group(name, now)
        if found is None or (not found.members and not isinstance(found, ClassicGroup)):
            found = self.groups[name] = ClassicGroup(self.initial_delay, self.changed.notify_all)
        return found if isinstance(found, ClassicGroup) else None

    def epoch_group(self, name: str, now: float) -> EpochGroup | None:
        """The same for the consumer protocol."""
        found = self.group(name, now)
        if found is None or (not found.members and not isinstance(found, EpochGroup)):
            found = self.groups[name] = EpochGroup(self.session, self.interval, self.changed.notify_all)
        return found if isinstance(found, EpochGroup) else None

    def shapes(self) -> list[TopicShape]:
        """All topics, as the consumer protocol's assignors see them."""
        return [TopicShape(t.name, t.id, len(t.partitions)) for t in self.topics.values()]

    def reload_groups(self, names: Iterable[str], now: float) -> None:
        """Their coordinators begin anew."""
        for name in names:
            if name in self.groups:
                self.groups[name].reload(now)
