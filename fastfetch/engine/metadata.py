"""What is known of the cluster: brokers, topics, leaders; and when to ask again.

`Cluster` is the knowledge, `MetadataUpdates` the asking. Knowledge never goes backwards: an answer with an older leader epoch
for the same topic id comes from a broker that is behind (KAFKA-12257). A different id under the same name is another topic
(KIP-516). An answer about another cluster, as a broker gives whose address once belonged to one of ours, is none.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastfetch.config import ConsumerConfig
from fastfetch.engine.backoff import Backoff, Timer
from fastfetch.engine.channels import Channel, Channels, Node
from fastfetch.engine.pending import Pending
from fastfetch.engine.subscription import Mode, SubscriptionState
from fastfetch.errors import (
    ConnectionFailedError,
    FastFetchError,
    UnknownTopicError,
    UnsupportedVersionError,
    broker_error,
    error_name,
    is_retriable,
)
from fastfetch.protocol import ZERO_UUID, tables
from fastfetch.types import TopicPartition

__all__ = ["Cluster", "Description", "MetadataUpdates", "Partition", "Topic"]

log = logging.getLogger("fastfetch.engine")

MAX_BROKERS = 10_000
# A topic that was just created is unknown to some brokers for a moment; only an answer that repeats itself is one.
UNKNOWN_AFTER = 3


@dataclass(slots=True)
class Partition:
    """Leader's node id (-1: none) and the epoch of its leadership (-1: not known, or not to be trusted)."""

    leader: int
    epoch: int


@dataclass(slots=True)
class Topic:
    """`topic_id` is None where the broker is too old to give one."""

    name: str
    topic_id: bytes | None
    is_internal: bool
    partitions: dict[int, Partition]

    def epoch_of(self, partition: int) -> int:
        known = self.partitions.get(partition)
        return -1 if known is None else known.epoch


@dataclass(slots=True)
class Trouble:
    """An error in place of a topic. `times` counts the answers in a row that said so."""

    code: int
    times: int

    @property
    def is_absence(self) -> bool:
        """There is no such topic, or none for us, and that has been said often enough."""
        return self.times >= UNKNOWN_AFTER and self.code in (3, 29, 100)


@dataclass(slots=True)
class Cluster:
    """`version` grows with every change that may move a partition to another node. `strangers` counts the answers in a row that
    came from another cluster."""

    cluster_id: str | None = None
    brokers: dict[int, tuple[str, int]] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    troubles: dict[str, Trouble] = field(default_factory=dict)
    strangers: int = 0
    version: int = 0
    _names: dict[bytes, str] = field(default_factory=dict)  # of `topics`, by id

    def leader(self, tp: TopicPartition) -> Partition | None:
        """None where topic or partition are not known or have no leader."""
        topic = self.topics.get(tp.topic)
        found = None if topic is None else topic.partitions.get(tp.partition)
        return found if found is not None and found.leader >= 0 else None

    def knows(self, tp: TopicPartition) -> bool:
        """Is there such a partition, by what is known?"""
        topic = self.topics.get(tp.topic)
        return topic is not None and tp.partition in topic.partitions

    def name_of(self, topic_id: bytes) -> str | None:
        """Of the topics that are known."""
        return self._names.get(topic_id)

    def forget(self, topics: Iterable[str]) -> None:
        """What nobody asks about grows old, and under its name there may be another topic by the time somebody does again."""
        for name in topics:
            self._names.pop(self.topics.pop(name).topic_id or b"", None)

    def error_for(self, tp: TopicPartition) -> FastFetchError | None:
        """Why nothing can be asked about this partition, if brokers have said so often enough to be believed."""
        if self.strangers >= UNKNOWN_AFTER:
            what = f"bootstrap_servers lead to another cluster than {self.cluster_id!r}, where {tp} was read; make a new consumer"
            return broker_error(104, what)
        trouble = self.troubles.get(tp.topic)
        if trouble is not None and (trouble.times >= UNKNOWN_AFTER or not is_retriable(trouble.code)):
            return topic_error(tp.topic, trouble.code)
        topic = self.topics.get(tp.topic)
        if topic is not None and trouble is None and tp.partition not in topic.partitions:
            count = len(topic.partitions)
            what = f"partition {tp.partition} of topic {tp.topic!r} does not exist; it has {count}, numbered from 0"
            return UnknownTopicError(what, code=3)
        return None

    def learn_broker(self, node_id: int, host: str, port: int) -> bool:
        """An answer named a broker's address (KIP-951). True if it is usable and news."""
        if self.brokers.get(node_id) == (host, port) or not is_address(node_id, host, port):
            return False
        self.brokers[node_id] = (host, port)
        return True

    def learn_leader(self, tp: TopicPartition, leader: int, epoch: int) -> bool:
        """An answer named a partition's leader (KIP-951). It counts if its epoch is newer; says whether it did."""
        topic = self.topics.get(tp.topic)
        known = None if topic is None else topic.partitions.get(tp.partition)
        if topic is None or known is None or epoch <= known.epoch or leader not in self.brokers:
            return False
        topic.partitions[tp.partition] = Partition(leader, epoch)
        self.version += 1
        return True

    def is_another(self, cluster_id: str | None) -> bool:
        """Does this belong to another cluster than the one that is read?"""
        return None not in (self.cluster_id, cluster_id) and cluster_id != self.cluster_id

    def count_anew(self, topic: str) -> None:
        """An error was told: another one takes as many answers again."""
        self.strangers = min(self.strangers, 1)
        trouble = self.troubles.get(topic)
        if trouble is not None:
            trouble.times = 0

    def update(self, body: dict[str, Any], version: int) -> list[str]:
        """Take an answer over. Returns the names whose topic was deleted and created again, for their positions mean nothing
        now."""
        self.cluster_id = body["cluster_id"] or self.cluster_id
        if len(body["brokers"]) > MAX_BROKERS:
            log.warning("metadata names %d brokers; those after the first %d are ignored", len(body["brokers"]), MAX_BROKERS)
        brokers = {
            b["node_id"]: (b["host"], b["port"])
            for b in reversed(body["brokers"][:MAX_BROKERS])  # of two entries for one id the first counts
            if is_address(b["node_id"], b["host"], b["port"])
        }
        if brokers:  # a broker that is starting may know of none, itself included
            self.brokers = brokers
        recreated: list[str] = []
        for entry in body["topics"]:
            name = entry["name"]
            if name is None:
                continue
            if entry["error_code"] != 0:
                before = self.troubles.get(name)
                same = before is not None and before.code == entry["error_code"]
                self.troubles[name] = Trouble(entry["error_code"], before.times + 1 if before is not None and same else 1)
                if self.troubles[name].times >= UNKNOWN_AFTER and name in self.topics:
                    # Deleted, or forbidden. If it comes back it may be another one: that is to be heard before anything is asked.
                    for partition in self.topics[name].partitions.values():
                        partition.leader = -1
                continue
            self.troubles.pop(name, None)
            if self._update_topic(entry, version):
                recreated.append(name)
        self.version += 1
        return recreated

    def _update_topic(self, entry: dict[str, Any], version: int) -> bool:
        name = entry["name"]
        topic_id = entry["topic_id"] if entry["topic_id"] != ZERO_UUID else None
        old = self.topics.get(name)
        recreated = False
        if old is not None and topic_id is not None:
            if old.topic_id is None:  # whoever knows the id now is not behind those who did not
                recreated = any(0 <= p["leader_epoch"] < old.epoch_of(p["partition_index"]) for p in entry["partitions"])
            else:
                recreated = old.topic_id != topic_id
            if recreated:
                old = None
        if old is not None and version < 10:
            topic_id = old.topic_id  # too old to say
        partitions: dict[int, Partition] = {}
        for part in entry["partitions"]:
            index = part["partition_index"]
            if index < 0 or index in partitions:
                continue
            # Before v9 a broker could report an epoch that it had not seen itself (KAFKA-9212).
            epoch = part["leader_epoch"] if version >= 9 else -1
            leader = part["leader_id"] if part["leader_id"] in self.brokers else -1
            known = old.partitions.get(index) if old is not None else None
            if known is not None and 0 <= epoch < known.epoch:
                partitions[index] = known
            else:
                partitions[index] = Partition(leader, epoch)
        if name in self.topics:
            self.forget([name])
        self.topics[name] = Topic(name, topic_id, entry["is_internal"], partitions)
        if topic_id is not None:
            self._names[topic_id] = name
        return recreated


class Description(NamedTuple):
    """A metadata answer as the protocol has it, and the node that gave it."""

    body: dict[str, Any]
    node: Node


class Listing:
    """A question about what there is, in one answer: `topic`, or (None) all topics."""

    __slots__ = ("pending", "read", "topic")

    def __init__(self, topic: str | None, read: Callable[[dict[str, Any], Node], Any]) -> None:
        self.topic = topic
        self.read = read
        self.pending: Pending[Any] = Pending()


class MetadataUpdates:
    """When to ask for metadata, and whom.

    Asked are the topics of `interest()` and of open questions. An answer that leaves one of them without a leader is asked for
    again with back-off; a complete one lasts `metadata_max_age_ms`, or until somebody finds it stale.

    While topics are chosen by a pattern that is ours to match, all are asked for (but when an answer was wanting: then those it
    is about). Those that match go to the subscription, those nobody wants are dropped, and one that is wanted and missing is
    unknown, as if it had been asked for by name. A topic that matched and is missing goes on matching until the answers have said
    so often enough to be believed.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        channels: Channels,
        cluster: Cluster,
        timer: Timer,
        subscription: SubscriptionState,
        interest: Callable[[], Iterable[str]],
        on_recreated: Callable[[list[str]], None],
        seed: int = 0,
    ) -> None:
        self._config = config
        self._channels = channels
        self._cluster = cluster
        self._timer = timer
        self._subscription = subscription
        self._interest = interest
        self._on_recreated = on_recreated
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, seed)
        self._stale = True
        self._list_again = True  # if topics are chosen by a pattern
        self._attempts = 0  # requests since the last answer that settled everything
        self._next_ms = 0  # not before
        self._updated_ms: int | None = None
        self._in_flight = False
        self._asked: frozenset[str] | None = frozenset()  # topics of the last request; None: all
        self._questions: list[tuple[str, Pending[Topic]]] = []
        self._listings: list[Listing] = []
        self._listing_in_flight = False
        self._listing_next_ms = 0
        self._ids: frozenset[bytes] = frozenset()
        self._ids_in_flight = False
        self._ids_attempts = 0
        self._ids_next_ms = 0

    def request_update(self) -> None:
        """Somebody found the knowledge wrong or wanting."""
        self._stale = self._list_again = True

    def question(self, topic: str) -> Pending[Topic]:
        """Ask about one topic; answered with its partitions, or with the error that brokers give for it."""
        pending: Pending[Topic] = Pending()
        known = self._cluster.topics.get(topic)
        if known is not None and topic not in self._cluster.troubles and topic in set(self._interest()):
            pending.resolve(known)  # kept fresh anyway
            return pending
        # What an earlier question learned may be old: count anew.
        self._cluster.troubles.pop(topic, None)
        self._questions.append((topic, pending))
        self._stale = True
        return pending

    def list_topics(self) -> Pending[dict[str, set[int]]]:
        """All topics this client may see, Kafka's internal ones left out, and the numbers of their partitions."""
        listing = Listing(None, _partitions_by_topic)
        self._listings.append(listing)
        return listing.pending

    def describe(self, topic: str | None) -> Pending[Description]:
        """All that a broker says of the cluster and one topic, or (None) all topics. Nothing of it is kept; a topic's error is an
        answer, too."""
        listing = Listing(topic, Description)
        self._listings.append(listing)
        return listing.pending

    def ask_ids(self, ids: Collection[bytes]) -> None:
        """Keep the topics with these ids known, in place of those of the last call; `Cluster.name_of` says what they are called.

        An id that no broker knows, or that we may not see, is asked for again with back-off.
        """
        self._ids = frozenset(ids)

    def pump(self, now_ms: int) -> None:
        self._questions = [(topic, pending) for topic, pending in self._questions if not pending.done]
        self._listings = [listing for listing in self._listings if not listing.pending.done]
        if self._listings and not self._listing_in_flight:
            self._send_listing(now_ms)
        if not self._ids_in_flight:
            self._send_ids(now_ms)
        if self._in_flight:
            return
        if not self._stale and self._updated_ms is not None:
            due = self._updated_ms + self._config.metadata_max_age_ms
            if due > now_ms:
                self._timer.at(due)
                return
            self._stale = self._list_again = True
        if self._next_ms > now_ms:
            self._timer.at(self._next_ms)
            return
        lists = self._matches_pattern and (self._list_again or not self._subscription.is_matched)
        self._send(None if lists else frozenset(self._wanted()), now_ms)

    # --- inside ---------------------------------------------------------------------------------------------------------

    @property
    def _matches_pattern(self) -> bool:
        """Under the consumer protocol the broker does that (KIP-848)."""
        return self._subscription.mode is Mode.PATTERN and self._config.group_protocol == "classic"

    def _wanted(self) -> set[str]:
        wanted = {*self._interest(), *(topic for topic, pending in self._questions if not pending.done)}
        wanted.update(name for name in map(self._cluster.name_of, self._ids) if name is not None)
        return wanted

    def _send(self, names: frozenset[str] | None, now_ms: int) -> None:
        channel = self._channels.any_ready(now_ms)
        if channel is None:
            return
        try:
            # v4 is the first that can say "don't create the topic"; every broker from 0.11 on speaks it.
            version = self._channels.version(channel, tables.METADATA, at_least=4)
        except UnsupportedVersionError as error:
            self._channels.close(channel, error, now_ms)
            return

        def answered(body: Any, now_ms: int) -> None:
            self._answered(channel, body, version, now_ms)

        body = {
            "topics": None if names is None else [{"name": name} for name in sorted(names)],
            "allow_auto_topic_creation": self._config.allow_auto_create_topics and names is not None,
        }
        self._in_flight = True
        self._asked = names
        self._attempts += 1
        self._channels.send(channel, tables.METADATA, version, body, now_ms, on_answer=answered, on_failure=self._failed)

    def _failed(self, error: FastFetchError, now_ms: int) -> None:
        self._in_flight = False
        self._next_ms = now_ms + self._backoff.delay_ms(self._attempts)

    def _answered(self, channel: Channel, body: Any, version: int, now_ms: int) -> None:
        self._in_flight = False
        cluster = self._cluster
        if body["error_code"] != 0:
            log.warning("metadata was answered with %s (code %d)", error_name(body["error_code"]), body["error_code"])
            self._next_ms = now_ms + self._backoff.delay_ms(self._attempts)
            return
        if cluster.is_another(body["cluster_id"]):
            self._go_back(channel, body["cluster_id"], now_ms)
            return
        cluster.strangers = 0
        matching: set[str] = set()
        asked = self._asked
        if asked is None:
            matching = self._matching(body["topics"])
            asked = frozenset(self._wanted() | matching)
            body["topics"] = narrowed(body["topics"], asked)
            self._list_again = False
        for name in [name for name in cluster.troubles if name not in asked]:
            del cluster.troubles[name]
        self._take(body, version, now_ms)
        if self._matches_pattern and (self._asked is None or self._subscription.is_matched):
            gone = {name for name, trouble in cluster.troubles.items() if trouble.is_absence}
            self._subscription.match_topics((self._subscription.topics | matching) - gone)
        cluster.forget(cluster.topics.keys() - asked - self._wanted())
        self._updated_ms = now_ms
        self._next_ms = now_ms + self._backoff.delay_ms(self._attempts)
        self._answer_questions(asked)
        self._stale = bool(self._unsettled()) or (self._matches_pattern and not self._subscription.is_matched)
        if not self._stale:
            self._attempts = 0

    def _take(self, body: Any, version: int, now_ms: int) -> None:
        recreated = self._cluster.update(body, version)
        self._channels.set_brokers(((n, host, port) for n, (host, port) in self._cluster.brokers.items()), now_ms)
        if recreated:
            self._on_recreated(recreated)

    def _matching(self, topics: list[dict[str, Any]]) -> set[str]:
        """The names that match the pattern, those of Kafka's own topics only if they are wanted."""
        if not self._matches_pattern or self._subscription.pattern is None:
            return set()  # the caller has changed its mind since
        pattern, internal_too = re.compile(self._subscription.pattern), not self._config.exclude_internal_topics
        return {
            t["name"]
            for t in topics
            if t["error_code"] == 0 and t["name"] and (internal_too or not t["is_internal"]) and pattern.fullmatch(t["name"])
        }

    def _go_back(self, channel: Channel, cluster_id: str, now_ms: int) -> None:
        """Another cluster answered: nothing in it counts, and no address but those of the bootstrap list can be trusted."""
        cluster = self._cluster
        cluster.strangers += 1
        cluster.version += 1
        what = f"{channel.node} belongs to cluster {cluster_id!r}, not to {cluster.cluster_id!r}"
        if cluster.strangers == 1:
            log.warning("%s; its metadata are ignored, going back to bootstrap_servers", what)
        self._channels.close(channel, ConnectionFailedError(what), now_ms)
        self._channels.set_brokers((), now_ms)
        self._next_ms = now_ms + self._backoff.delay_ms(self._attempts)

    def _unsettled(self) -> list[str]:
        """Topics asked for that have an error, or a partition without a leader. New wishes since the request count, too."""
        wanted = self._wanted()
        out = [name for name in wanted if name in self._cluster.troubles or name not in self._cluster.topics]
        for name in wanted.difference(out):
            if any(partition.leader < 0 for partition in self._cluster.topics[name].partitions.values()):
                out.append(name)
        return out

    def _answer_questions(self, asked: frozenset[str]) -> None:
        for name, pending in self._questions:
            if pending.done or name not in asked:
                continue
            trouble = self._cluster.troubles.get(name)
            topic = self._cluster.topics.get(name)
            if trouble is not None:
                if trouble.times >= UNKNOWN_AFTER or not is_retriable(trouble.code):
                    pending.fail(topic_error(name, trouble.code))
            elif topic is not None:
                pending.resolve(topic)

    def _send_listing(self, now_ms: int) -> None:
        if self._listing_next_ms > now_ms:
            self._timer.at(self._listing_next_ms)
            return
        channel = self._channels.any_ready(now_ms)
        if channel is None:
            return
        try:
            version = self._channels.version(channel, tables.METADATA, at_least=4)
        except UnsupportedVersionError as error:
            self._channels.close(channel, error, now_ms)
            return
        self._listing_in_flight = True
        topic = self._listings[0].topic  # those who ask for another one come next

        def listed(body: Any, now_ms: int) -> None:
            self._listed(channel, topic, body, now_ms)

        body = {"topics": None if topic is None else [{"name": topic}], "allow_auto_topic_creation": False}
        self._channels.send(
            channel, tables.METADATA, version, body, now_ms, on_answer=listed, on_failure=self._listing_failed
        )  # fmt: skip

    def _listed(self, channel: Channel, topic: str | None, body: Any, now_ms: int) -> None:
        self._listing_in_flight = False
        if body["error_code"] != 0 or self._cluster.is_another(body["cluster_id"]):
            self._listing_next_ms = now_ms + self._config.retry_backoff_ms
            return
        for listing in self._listings:
            if listing.topic == topic:
                listing.pending.resolve(listing.read(body, channel.node))

    def _listing_failed(self, error: FastFetchError, now_ms: int) -> None:
        self._listing_in_flight = False
        self._listing_next_ms = now_ms + self._config.retry_backoff_ms

    def _send_ids(self, now_ms: int) -> None:
        """By themselves: a broker that is asked by id does not look at names."""
        ids = [topic_id for topic_id in self._ids if self._cluster.name_of(topic_id) is None]
        if not ids:
            self._ids_attempts = 0
            return
        if self._ids_next_ms > now_ms:
            self._timer.at(self._ids_next_ms)
            return
        channel = self._channels.any_ready(now_ms)
        if channel is None:
            return
        self._ids_attempts += 1
        try:
            version = self._channels.version(channel, tables.METADATA, at_least=12)
        except UnsupportedVersionError:
            self._ids_later(now_ms)  # another broker may be newer
            return

        def answered(body: Any, now_ms: int) -> None:
            self._ids_later(now_ms)  # for those that it does not know
            if body["error_code"] == 0 and not self._cluster.is_another(body["cluster_id"]):
                body["topics"] = [t for t in body["topics"] if t["error_code"] == 0 and t["topic_id"] in self._ids]
                self._take(body, version, now_ms)

        def failed(error: FastFetchError, now_ms: int) -> None:
            self._ids_later(now_ms)

        body = {"topics": [{"topic_id": topic_id, "name": None} for topic_id in ids], "allow_auto_topic_creation": False}
        self._ids_in_flight = True
        self._channels.send(channel, tables.METADATA, version, body, now_ms, on_answer=answered, on_failure=failed)

    def _ids_later(self, now_ms: int) -> None:
        self._ids_in_flight = False
        self._ids_next_ms = now_ms + self._backoff.delay_ms(self._ids_attempts)
        self._timer.at(self._ids_next_ms)


def _partitions_by_topic(body: dict[str, Any], node: Node) -> dict[str, set[int]]:
    return {
        t["name"]: {p["partition_index"] for p in t["partitions"]}
        for t in body["topics"]
        if t["error_code"] == 0 and t["name"] is not None and not t["is_internal"]
    }


def narrowed(topics: list[dict[str, Any]], wanted: frozenset[str]) -> list[dict[str, Any]]:
    """Of an answer about all topics what it says of these: one that is missing does not exist."""
    found = [topic for topic in topics if topic["name"] in wanted]
    missing = wanted.difference(topic["name"] for topic in found)
    return found + [{"name": name, "error_code": 3} for name in sorted(missing)]


def is_address(node_id: int, host: str, port: int) -> bool:
    """A broker can be reached there, as far as one can tell."""
    return node_id >= 0 and 1 <= port <= 65535 and 1 <= len(host) <= 255


def topic_error(name: str, code: int) -> FastFetchError:
    """The error for a topic that metadata has none of, in words."""
    if code in (3, 100):
        return UnknownTopicError(
            f"topic {name!r} does not exist; create it, or check its name and the broker's address", code=code
        )
    if code == 29:
        return broker_error(code, f"not allowed to read topic {name!r}")
    return broker_error(code, f"topic {name!r} is not available")
