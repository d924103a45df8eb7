"""What goes into the calls of the confluent-style Consumer, checked; and what comes out of them, put together."""

from __future__ import annotations

import re
import time
from typing import Any

from fastfetch.adapters.confluent_api.reader import LOGICAL, Place, Reader
from fastfetch.adapters.confluent_api.settings import INVALID
from fastfetch.adapters.confluent_api.types import (
    OFFSET_INVALID,
    BrokerMetadata,
    ClusterMetadata,
    KafkaError,
    PartitionMetadata,
    TopicMetadata,
    TopicPartition,
    code_of,
    failure,
    is_partition,
)
from fastfetch.engine.metadata import Description
from fastfetch.errors import CommitFailedError
from fastfetch.types import OffsetAndMetadata
from fastfetch.types import TopicPartition as Key

__all__ = [
    "at_offsets",
    "checked",
    "cluster_of",
    "given_offsets",
    "keys_of",
    "ms_of",
    "pattern_of",
    "places_of",
    "statistics_of",
]

STATE: int = KafkaError._STATE  # type: ignore[attr-defined]

# --- arguments --------------------------------------------------------------------------------------------------------


def ms_of(timeout: float | None) -> int | None:
    return None if timeout is None or timeout < 0 else int(timeout * 1000)


def checked(partitions: Any) -> list[TopicPartition]:
    if not isinstance(partitions, list):
        raise TypeError("requires list of TopicPartition")
    if not all(map(is_partition, partitions)):
        raise TypeError("expected TopicPartition")
    return partitions


def keys_of(partitions: Any) -> list[Key]:
    return [Key(tp.topic, tp.partition) for tp in checked(partitions)]


def places_of(partitions: Any) -> list[Place]:
    places = {Key(tp.topic, tp.partition): (tp.offset, _epoch(tp)) for tp in checked(partitions)}
    for tp, (offset, _) in places.items():
        if tp.partition < 0 or (offset < 0 and offset not in LOGICAL):
            raise failure(INVALID, f"{tp}: neither an offset nor one of the special ones: {offset}")
    if len(places) < len(partitions):
        raise failure(INVALID, "a partition is listed twice")
    return [(tp, offset, epoch) for tp, (offset, epoch) in places.items()]


def _epoch(tp: Any) -> int | None:
    epoch: int | None = getattr(tp, "leader_epoch", None)  # confluent-kafka before 2.1 has none
    return None if epoch is None or epoch < 0 else epoch


def given_offsets(what: str, message: Any, offsets: Any) -> dict[Key, OffsetAndMetadata] | None:
    """What is to be committed or stored; None: nothing was said about it."""
    if message is not None and offsets is not None:
        raise ValueError("message and offsets are mutually exclusive")
    if message is not None:
        if not callable(getattr(message, "leader_epoch", None)):
            raise TypeError("expected Message")
        if message.error() is not None:
            raise failure(INVALID, f"Cannot {what} offsets for message with error: {message.error().str()!r}")
        offset = message.offset()
        following = OFFSET_INVALID if offset is None else offset + 1
        return {Key(message.topic(), message.partition()): OffsetAndMetadata(following, "", message.leader_epoch())}
    if offsets is not None:
        return {
            Key(tp.topic, tp.partition): OffsetAndMetadata(tp.offset, tp.metadata or "", _epoch(tp)) for tp in checked(offsets)
        }
    return None


def pattern_of(topics: list[str]) -> str | None:
    """One pattern for whole names that finds what any of the expressions finds in a name, and the other topics."""
    if not any(topic.startswith("^") for topic in topics):
        return None
    for topic in topics:
        try:
            re.compile(topic if topic.startswith("^") else "")
        except re.error as error:
            raise failure(INVALID, f"Failed to set subscription: {topic!r} is no regular expression: {error}") from None
    return "|".join(f"(?:.*(?:{topic}).*)" if topic.startswith("^") else re.escape(topic) for topic in topics)


# --- answers ----------------------------------------------------------------------------------------------------------


def at_offsets(
    partitions: list[Key], offsets: dict[Key, OffsetAndMetadata], error: Exception | None = None
) -> list[TopicPartition]:
    found = []
    failed = error.failed if isinstance(error, CommitFailedError) else {}
    for tp in partitions:
        at = offsets.get(tp)
        part = TopicPartition(*tp) if at is None else TopicPartition(*tp, at.offset, at.metadata or None, at.leader_epoch)
        if tp in failed:
            part.error = KafkaError(failed[tp] or STATE)
        elif at is not None and error is not None and not failed:
            part.error = KafkaError(code_of(error), str(error))
        found.append(part)
    return found


def _error(code: int) -> KafkaError | None:
    return KafkaError(code) if code else None


def cluster_of(description: Description) -> ClusterMetadata:
    body, node = description
    cluster = ClusterMetadata()
    cluster.cluster_id = body["cluster_id"]
    cluster.controller_id = body["controller_id"]
    for entry in body["brokers"]:
        broker = cluster.brokers[entry["node_id"]] = BrokerMetadata()
        broker.id, broker.host, broker.port = entry["node_id"], entry["host"], entry["port"]
        if (broker.host, broker.port) == (node.host, node.port):
            cluster.orig_broker_id = broker.id
    cluster.orig_broker_name = f"{node.host}:{node.port}/{cluster.orig_broker_id}"
    for entry in body["topics"]:
        topic = cluster.topics[entry["name"]] = TopicMetadata()
        topic.topic, topic.error = entry["name"], _error(entry["error_code"])
        for part in entry["partitions"]:
            partition = topic.partitions[part["partition_index"]] = PartitionMetadata()
            partition.id, partition.leader = part["partition_index"], part["leader_id"]
            partition.replicas, partition.isrs = list(part["replica_nodes"]), list(part["isr_nodes"])
            partition.error = _error(part["error_code"])
    return cluster


def statistics_of(reader: Reader, metrics: dict[str, Any]) -> dict[str, Any]:
    """The part of librdkafka's statistics that fastfetch knows, under the same names; the rest of ours is in "fastfetch"."""
    topics: dict[str, Any] = {}
    stored = reader.stored()
    for state in reader.states():
        tp = state.tp
        low, high = reader.watermarks(tp)
        lag = metrics["lag"].get(tp, -1)
        topic = topics.setdefault(tp.topic, {"topic": tp.topic, "partitions": {}})
        topic["partitions"][str(tp.partition)] = {
            "partition": tp.partition,
            "lo_offset": low,
            "hi_offset": high,
            "ls_offset": state.last_stable_offset,
            "app_offset": OFFSET_INVALID if (at := reader.position_of(tp)) is None else at.offset,
            "stored_offset": stored[tp].offset if tp in stored else OFFSET_INVALID,
            "consumer_lag": lag,
            "fetchq_cnt": metrics["partitions"].get(tp, {}).get("buffered_records", 0),
            "fetchq_size": metrics["partitions"].get(tp, {}).get("buffered_bytes", 0),
        }
    own = {key: value for key, value in metrics.items() if key not in ("lag", "partitions")}
    return {
        "name": f"{reader.config.client_id}#consumer",
        "client_id": reader.config.client_id,
        "type": "consumer",
        "time": int(time.time()),
        "age": metrics["uptime_ms"] * 1000,
        "rx_bytes": metrics["received_bytes"],
        "tx": metrics["requests"],
        "tx_bytes": metrics["sent_bytes"],
        "rxmsgs": metrics["records"],
        "rxmsg_bytes": metrics["inflated_bytes"],
        "cgrp": {"rebalance_cnt": metrics["rebalances"], "assignment_size": len(metrics["partitions"])},
        "topics": topics,
        "fastfetch": own,
    }
