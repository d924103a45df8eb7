"""One table an API: the part of Kafka's protocol that a consumer speaks, brokers 2.8 to 4.3."""

from fastfetch.protocol.schema import Api
from fastfetch.protocol.tables.api_versions import API_VERSIONS
from fastfetch.protocol.tables.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from fastfetch.protocol.tables.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from fastfetch.protocol.tables.describe_groups import DESCRIBE_GROUPS
from fastfetch.protocol.tables.fetch import FETCH
from fastfetch.protocol.tables.find_coordinator import FIND_COORDINATOR
from fastfetch.protocol.tables.heartbeat import HEARTBEAT
from fastfetch.protocol.tables.join_group import JOIN_GROUP
from fastfetch.protocol.tables.leave_group import LEAVE_GROUP
from fastfetch.protocol.tables.list_groups import LIST_GROUPS
from fastfetch.protocol.tables.list_offsets import LIST_OFFSETS
from fastfetch.protocol.tables.metadata import METADATA
from fastfetch.protocol.tables.offset_commit import OFFSET_COMMIT
from fastfetch.protocol.tables.offset_fetch import OFFSET_FETCH
from fastfetch.protocol.tables.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from fastfetch.protocol.tables.sasl_authenticate import SASL_AUTHENTICATE
from fastfetch.protocol.tables.sasl_handshake import SASL_HANDSHAKE
from fastfetch.protocol.tables.sync_group import SYNC_GROUP

__all__ = [
    "ALL",
    "API_VERSIONS",
    "BY_KEY",
    "CONSUMER_GROUP_DESCRIBE",
    "CONSUMER_GROUP_HEARTBEAT",
    "DESCRIBE_GROUPS",
    "FETCH",
    "FIND_COORDINATOR",
    "HEARTBEAT",
    "JOIN_GROUP",
    "LEAVE_GROUP",
    "LIST_GROUPS",
    "LIST_OFFSETS",
    "METADATA",
    "OFFSET_COMMIT",
    "OFFSET_FETCH",
    "OFFSET_FOR_LEADER_EPOCH",
    "SASL_AUTHENTICATE",
    "SASL_HANDSHAKE",
    "SYNC_GROUP",
]

ALL: tuple[Api, ...] = (
    FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP,
    DESCRIBE_GROUPS, LIST_GROUPS, SASL_HANDSHAKE, API_VERSIONS, OFFSET_FOR_LEADER_EPOCH, SASL_AUTHENTICATE,
    CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE,
)  # fmt: skip

BY_KEY: dict[int, Api] = {api.key: api for api in ALL}
