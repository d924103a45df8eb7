"""What librdkafka can't ask: replicas moved to other brokers, who the active controller is, the text of a commit, a group whose
coordinator may be away (librdkafka 2.16 ends the process by an assertion then).

Through kio, whose messages are generated from Kafka's own schemas; nothing of what is tested takes part.
"""

from __future__ import annotations

import io
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kio.schema.alter_partition_reassignments.v0 import request as reassignment
from kio.schema.alter_partition_reassignments.v0.response import AlterPartitionReassignmentsResponse
from kio.schema.consumer_group_describe.v0.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v0.response import ConsumerGroupDescribeResponse
from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_groups.v5.response import DescribeGroupsResponse
from kio.schema.describe_quorum.v0 import request as quorum
from kio.schema.describe_quorum.v0.response import DescribeQuorumResponse
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v2.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v2.response import FindCoordinatorResponse
from kio.schema.offset_fetch.v5.request import OffsetFetchRequest
from kio.schema.offset_fetch.v5.response import OffsetFetchResponse
from kio.serial import entity_reader, entity_writer

from fastfetch import TopicPartition
from tests.live.conftest import SECONDS, Kafka, wait_for
from tests.live.kafka_cluster import HOST

METADATA_TOPIC = "__cluster_metadata"


def ask(port: int, request: Any, answer: type[Any]) -> Any:
    """One question on a connection of its own."""
    frame = io.BytesIO()
    header = type(request).__header_schema__
    asked = header(
        request_api_key=type(request).__api_key__,
        request_api_version=type(request).__version__,
        correlation_id=1,
        client_id="administration",
    )
    entity_writer(header)(frame, asked)
    entity_writer(type(request))(frame, request)
    with socket.create_connection((HOST, port), SECONDS) as link, link.makefile("rb") as incoming:
        link.sendall(struct.pack(">i", frame.tell()) + frame.getvalue())
        got = incoming.read(struct.unpack(">i", incoming.read(4))[0])
    _, at = entity_reader(answer.__header_schema__)(got, 0)
    return entity_reader(answer)(got, at)[0]


def move(kafka: Kafka, topic: str, replicas: Mapping[int, Sequence[int]]) -> None:
    """Give each partition these replicas; returns when they lead and the old ones are gone."""
    wanted = tuple(
        reassignment.ReassignablePartition(partition_index=partition, replicas=tuple(nodes))
        for partition, nodes in replicas.items()
    )
    # Brokers with KRaft pass it on to the controller; with ZooKeeper the controller is one of the brokers, and metadata names it.
    asked = kafka.cluster.node(kafka.admin.list_topics(timeout=SECONDS).controller_id)
    topics = (reassignment.ReassignableTopic(name=topic, partitions=wanted),)
    answer = ask(asked.port, reassignment.AlterPartitionReassignmentsRequest(topics=topics), AlterPartitionReassignmentsResponse)
    assert answer.error_code is ErrorCode.none, answer
    assert all(part.error_code is ErrorCode.none for found in answer.responses for part in found.partitions), answer

    def has_moved() -> bool:
        found = kafka.admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions
        return all(set(found[p].replicas) == set(nodes) and found[p].leader in nodes for p, nodes in replicas.items())

    wait_for(has_moved, f"{topic} on {replicas}")


def active_controller(kafka: Kafka) -> int:
    """The node that leads the metadata quorum, which the Metadata API of a KRaft broker doesn't tell."""
    partition = quorum.PartitionData(partition_index=0)
    request = quorum.DescribeQuorumRequest(topics=(quorum.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),))
    running = next(node for node in kafka.cluster.nodes if node.running and not node.paused)
    answer = ask(running.port, request, DescribeQuorumResponse)
    assert answer.error_code is ErrorCode.none, answer
    return int(answer.topics[0].partitions[0].leader_id)


def committed(kafka: Kafka, group: str) -> dict[tuple[str, int], tuple[int, str | None]]:
    """All offsets and texts of a group, from a cluster of one. librdkafka takes a text for one that ends in a NUL, and returns
    whatever lies behind it."""
    answer = ask(kafka.cluster.node(1).port, OffsetFetchRequest(group_id=group, topics=None), OffsetFetchResponse)
    assert answer.error_code is ErrorCode.none, answer
    return {
        (topic.name, part.partition_index): (part.committed_offset, part.metadata)
        for topic in answer.topics
        for part in topic.partitions
    }


class Described(NamedTuple):
    """A group as its coordinator sees it; the partitions of each member."""

    coordinator: int
    state: str
    assigned: list[set[TopicPartition]]


def described(kafka: Kafka, group: str, protocol: str = "classic") -> Described | None:
    """None while it can't be told: the coordinator may be away, or moving."""
    node = next(node for node in kafka.cluster.nodes if node.running and not node.paused)
    try:
        found = ask(node.port, FindCoordinatorRequest(key=group, key_type=0), FindCoordinatorResponse)
        if found.error_code is not ErrorCode.none or kafka.cluster.node(found.node_id).paused:
            return None
        [answer] = ask(found.port, *HOW_TO_DESCRIBE[protocol](group)).groups
    except (OSError, struct.error):
        return None
    if answer.error_code is not ErrorCode.none:
        return None
    parts = _classic_parts if protocol == "classic" else _parts
    assigned = [{TopicPartition(topic, p) for topic, those in parts(member) for p in those} for member in answer.members]
    return Described(int(found.node_id), answer.group_state, assigned)


HOW_TO_DESCRIBE = {
    "classic": lambda group: (
        DescribeGroupsRequest(groups=(group,), include_authorized_operations=False),
        DescribeGroupsResponse,
    ),
    "consumer": lambda group: (
        ConsumerGroupDescribeRequest(group_ids=(group,), include_authorized_operations=False),
        ConsumerGroupDescribeResponse,
    ),
}


def _classic_parts(member: Any) -> Iterator[tuple[str, Sequence[int]]]:
    if member.member_assignment:
        # Two bytes of version, and all begin as version 0; what later ones have added follows.
        found, _ = entity_reader(ConsumerProtocolAssignment)(member.member_assignment, 2)
        yield from ((part.topic, part.partitions) for part in found.assigned_partitions)


def _parts(member: Any) -> Iterator[tuple[str, Sequence[int]]]:
    yield from ((part.topic_name, part.partitions) for part in member.assignment.topic_partitions)
