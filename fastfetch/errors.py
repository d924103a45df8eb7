"""Every exception fastfetch raises on purpose.

Three roots say who is at fault: UsageError (the caller), ProtocolError (a peer's bytes), BrokerError (a peer's error code). A
message says what happened, where, and what to do next; machines read the attributes. No message holds record bytes or secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastfetch.types import TopicPartition

__all__ = [
    "AuthenticationError",
    "BatchTooLargeError",
    "BrokerError",
    "ClosedError",
    "CommitFailedError",
    "ConfigError",
    "ConnectionFailedError",
    "CorruptBatchError",
    "CrcMismatchError",
    "DecompressionError",
    "FastFetchError",
    "FencedInstanceIdError",
    "GroupAuthorizationError",
    "InvalidRecordError",
    "LogTruncationError",
    "NoOffsetForPartitionError",
    "OffsetOutOfRangeError",
    "ProtocolError",
    "RebalanceInProgressError",
    "RecordTooLargeError",
    "TimeoutError",
    "TopicAuthorizationError",
    "UnknownTopicError",
    "UnsupportedCodecError",
    "UnsupportedMagicError",
    "UnsupportedVersionError",
    "UsageError",
    "WakeupError",
    "broker_error",
    "error_name",
    "is_retriable",
    "printable",
]


class FastFetchError(Exception):
    """Root of all errors of this package."""


class UsageError(FastFetchError):
    """Called wrongly: assign after subscribe, position of an unassigned partition, a second thread at once."""


class ConfigError(UsageError, ValueError):
    """An unknown setting, or a value outside its range."""


class ClosedError(UsageError):
    """The consumer was closed."""


class ProtocolError(FastFetchError):
    """A peer's bytes make no sense. The connection they came over is closed; positions stay."""


class UnsupportedVersionError(ProtocolError):
    """Client and broker have no version of an API in common."""


class ConnectionFailedError(FastFetchError):
    """No broker could be reached."""


class TimeoutError(FastFetchError):  # noqa: A001 - the public contract's name
    """A call's time was up before its answer came."""


class WakeupError(FastFetchError):
    """wakeup() was called while the consumer waited."""


class AuthenticationError(FastFetchError):
    """The broker refused the credentials, or its own proof was wrong."""


class CommitFailedError(FastFetchError):
    """A commit was refused, or not answered in time. The other partitions of the same commit are committed.

    failed      the partitions that are not, or of which that isn't known, with Kafka's error code; 0: there was none, as the
                partition is not assigned to this consumer or no answer came
    """

    def __init__(self, message: str = "", *, failed: Mapping[TopicPartition, int] | None = None) -> None:
        super().__init__(message)
        self.failed: dict[TopicPartition, int] = dict(failed or {})


class RebalanceInProgressError(FastFetchError):
    """The group is rebalancing and took no commit; poll, then commit what is still assigned."""


class CorruptBatchError(ProtocolError):
    """A record batch that can't be read. `decode` returns it beside the good records before it.

    topic, partition    where the bytes came from, as the caller named it
    position            the offset the reader stays at: the next one not delivered
    base_offset         first offset of the bad batch as its header says, None if there is no readable header
    next_offset         where to go on, None if nothing says
    skip_trusted        True: next_offset comes from bytes whose CRC is right
    byte_pos            byte position of the batch in the bytes given to `decode`
    kind                one word: length, magic, crc, offset, codec, inflate, too_large, count, record, marker
    size                whole length of the batch in bytes as declared, None if unreadable
    node_id             broker that sent it, None if unknown
    path                segment file it was read from, in which byte_pos counts; None if it did not come from a file
    detail              the numbers behind `what`
    """

    kind = "length"

    def __init__(
        self,
        what: str,
        *,
        topic: str = "",
        partition: int = 0,
        position: int | None = None,
        base_offset: int | None = None,
        next_offset: int | None = None,
        skip_trusted: bool = False,
        byte_pos: int = 0,
        kind: str | None = None,
        size: int | None = None,
        node_id: int | None = None,
        path: str | None = None,
        detail: str = "",
        **more: Any,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.topic = topic
        self.partition = partition
        self.position = position
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.skip_trusted = skip_trusted
        self.byte_pos = byte_pos
        if kind is not None:
            self.kind = kind
        self.size = size
        self.node_id = node_id
        self.path = path
        self.detail = detail
        for name, value in more.items():
            setattr(self, name, value)

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition}" if self.topic else f"partition {self.partition}"
        batch = "batch" if self.base_offset is None else f"batch at offset {self.base_offset}"
        size = "" if self.size is None else f"{self.size} bytes "
        node = "" if self.node_id is None else f", node {self.node_id}"
        source = node if self.path is None else f" of {self.path}"
        stays = "" if self.position is None else f"; the partition stays at {self.position}"
        trusted = self.next_offset is not None and self.skip_trusted
        if self.path is not None:
            then = f"Next trusted offset, to start at: {self.next_offset}" if trusted else "No trusted offset to start at again"
        elif trusted:
            then = f"Next trusted offset: {self.next_offset}{stays}, consumer.skip(tp) goes on at {self.next_offset}"
        else:
            then = f"No trusted offset to go on at{stays}; seek to an offset known to be good"
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.what} in {where}, {batch} ({size}at byte {self.byte_pos}{source}){detail}. {then}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.what, dict(self.__dict__))


def _rebuild(cls: type[CorruptBatchError], what: str, state: dict[str, Any]) -> CorruptBatchError:
    error = cls(what)
    error.__dict__.update(state)
    return error


class CrcMismatchError(CorruptBatchError):
    """The stored CRC differs from the one computed (`stored`, `computed`)."""

    kind = "crc"
    stored: int
    computed: int


class InvalidRecordError(CorruptBatchError):
    """The CRC is right but the records are not what the header promises.

    record_index    index in the batch of the first record that could not be read, None if the batch as a whole is wrong
    offset          the offset it would have had, None if unknown
    """

    kind = "record"
    record_index: int | None = None
    offset: int | None = None


class UnsupportedMagicError(CorruptBatchError):
    """A message format newer than 2."""

    kind = "magic"


class UnsupportedCodecError(CorruptBatchError):
    """A codec id that doesn't exist in this format, or whose library is missing (`codec`, `package`)."""

    kind = "codec"
    codec: int = -1
    package: str | None = None


class DecompressionError(CorruptBatchError):
    """The payload doesn't decompress, or not to the end."""

    kind = "inflate"


class BatchTooLargeError(CorruptBatchError):
    """The batch inflates to more than `limit` bytes. `declared` is the size the payload claims, None if it claims none."""

    kind = "too_large"
    limit: int = 0
    declared: int | None = None


class BrokerError(FastFetchError):
    """An error code from a broker. `code` is kept also where `name` is unknown."""

    _came_from_broker = True

    def __init__(self, message: str = "", *, code: int = -1) -> None:
        super().__init__(message)
        self.code = code

    @property
    def name(self) -> str:
        """Kafka's name of the code, `UNKNOWN_CODE_n` for one that this version does not know."""
        return error_name(self.code)

    @property
    def retriable(self) -> bool:
        """True where asking again may help."""
        return is_retriable(self.code)

    def __str__(self) -> str:
        text = super().__str__()
        if not self._came_from_broker:
            return text
        label = f"{self.name} (code {self.code})"
        return f"{text}: {label}" if text else label

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_broker_error, (type(self), self.args, dict(self.__dict__))


def _rebuild_broker_error(cls: type[BrokerError], args: tuple[Any, ...], state: dict[str, Any]) -> BrokerError:
    error = cls(*args)
    error.__dict__.update(state)
    return error


class OffsetOutOfRangeError(BrokerError):
    """The position lies outside the log and there is no reset policy."""


class NoOffsetForPartitionError(BrokerError):
    """No position and auto_offset_reset is "none": nothing is committed, or the topic was created again."""

    _came_from_broker = False


class LogTruncationError(BrokerError):
    """The log was cut below the position and there is no reset policy: an unclean election has lost records (KIP-320).

    topic, partition    stays at `position` and gives nothing until a seek
    position            the next offset that would have been delivered; some records before it are no longer in the log
    leader_epoch        leader epoch of the last record before it
    divergent_offset    the first offset from which on the log may be another one than before; None if the leader can't say
    divergent_epoch     the leader epoch before it, None likewise
    """

    _came_from_broker = False

    def __init__(
        self,
        message: str = "",
        *,
        code: int = -1,
        topic: str = "",
        partition: int = 0,
        position: int | None = None,
        leader_epoch: int | None = None,
        divergent_offset: int | None = None,
        divergent_epoch: int | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.topic = topic
        self.partition = partition
        self.position = position
        self.leader_epoch = leader_epoch
        self.divergent_offset = divergent_offset
        self.divergent_epoch = divergent_epoch


class RecordTooLargeError(BrokerError):
    """A fetch of the largest allowed size did not bring one whole batch."""


class TopicAuthorizationError(BrokerError):
    """Not allowed to read the topic."""


class GroupAuthorizationError(BrokerError):
    """Not allowed to use the group."""


class FencedInstanceIdError(BrokerError):
    """Another member took over this group.instance.id."""


class UnknownTopicError(BrokerError):
    """The topic or partition does not exist."""


# code: (Kafka's name, retriable). The names and flags are those of org.apache.kafka.common.protocol.Errors, 4.1.
_CODES: dict[int, tuple[str, bool]] = {
    -1: ("UNKNOWN_SERVER_ERROR", False),
    0: ("NONE", False),
    1: ("OFFSET_OUT_OF_RANGE", False),
    2: ("CORRUPT_MESSAGE", True),
    3: ("UNKNOWN_TOPIC_OR_PARTITION", True),
    4: ("INVALID_FETCH_SIZE", False),
    5: ("LEADER_NOT_AVAILABLE", True),
    6: ("NOT_LEADER_OR_FOLLOWER", True),
    7: ("REQUEST_TIMED_OUT", True),
    8: ("BROKER_NOT_AVAILABLE", False),
    9: ("REPLICA_NOT_AVAILABLE", True),
    10: ("MESSAGE_TOO_LARGE", False),
    11: ("STALE_CONTROLLER_EPOCH", False),
    12: ("OFFSET_METADATA_TOO_LARGE", False),
    13: ("NETWORK_EXCEPTION", True),
    14: ("COORDINATOR_LOAD_IN_PROGRESS", True),
    15: ("COORDINATOR_NOT_AVAILABLE", True),
    16: ("NOT_COORDINATOR", True),
    17: ("INVALID_TOPIC_EXCEPTION", False),
    18: ("RECORD_LIST_TOO_LARGE", False),
    19: ("NOT_ENOUGH_REPLICAS", True),
    20: ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", True),
    21: ("INVALID_REQUIRED_ACKS", False),
    22: ("ILLEGAL_GENERATION", False),
    23: ("INCONSISTENT_GROUP_PROTOCOL", False),
    24: ("INVALID_GROUP_ID", False),
    25: ("UNKNOWN_MEMBER_ID", False),
    26: ("INVALID_SESSION_TIMEOUT", False),
    27: ("REBALANCE_IN_PROGRESS", False),
    28: ("INVALID_COMMIT_OFFSET_SIZE", False),
    29: ("TOPIC_AUTHORIZATION_FAILED", False),
    30: ("GROUP_AUTHORIZATION_FAILED", False),
    31: ("CLUSTER_AUTHORIZATION_FAILED", False),
    32: ("INVALID_TIMESTAMP", False),
    33: ("UNSUPPORTED_SASL_MECHANISM", False),
    34: ("ILLEGAL_SASL_STATE", False),
    35: ("UNSUPPORTED_VERSION", False),
    36: ("TOPIC_ALREADY_EXISTS", False),
    37: ("INVALID_PARTITIONS", False),
    38: ("INVALID_REPLICATION_FACTOR", False),
    39: ("INVALID_REPLICA_ASSIGNMENT", False),
    40: ("INVALID_CONFIG", False),
    41: ("NOT_CONTROLLER", True),
    42: ("INVALID_REQUEST", False),
    43: ("UNSUPPORTED_FOR_MESSAGE_FORMAT", False),
    44: ("POLICY_VIOLATION", False),
    45: ("OUT_OF_ORDER_SEQUENCE_NUMBER", False),
    46: ("DUPLICATE_SEQUENCE_NUMBER", False),
    47: ("INVALID_PRODUCER_EPOCH", False),
    48: ("INVALID_TXN_STATE", False),
    49: ("INVALID_PRODUCER_ID_MAPPING", False),
    50: ("INVALID_TRANSACTION_TIMEOUT", False),
    51: ("CONCURRENT_TRANSACTIONS", True),
    52: ("TRANSACTION_COORDINATOR_FENCED", False),
    53: ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", False),
    54: ("SECURITY_DISABLED", False),
    55: ("OPERATION_NOT_ATTEMPTED", False),
    56: ("KAFKA_STORAGE_ERROR", True),
    57: ("LOG_DIR_NOT_FOUND", False),
    58: ("SASL_AUTHENTICATION_FAILED", False),
    59: ("UNKNOWN_PRODUCER_ID", False),
    60: ("REASSIGNMENT_IN_PROGRESS", False),
    61: ("DELEGATION_TOKEN_AUTH_DISABLED", False),
    62: ("DELEGATION_TOKEN_NOT_FOUND", False),
    63: ("DELEGATION_TOKEN_OWNER_MISMATCH", False),
    64: ("DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", False),
    65: ("DELEGATION_TOKEN_AUTHORIZATION_FAILED", False),
    66: ("DELEGATION_TOKEN_EXPIRED", False),
    67: ("INVALID_PRINCIPAL_TYPE", False),
    68: ("NON_EMPTY_GROUP", False),
    69: ("GROUP_ID_NOT_FOUND", False),
    70: ("FETCH_SESSION_ID_NOT_FOUND", True),
    71: ("INVALID_FETCH_SESSION_EPOCH", True),
    72: ("LISTENER_NOT_FOUND", True),
    73: ("TOPIC_DELETION_DISABLED", False),
    74: ("FENCED_LEADER_EPOCH", True),
    75: ("UNKNOWN_LEADER_EPOCH", True),
    76: ("UNSUPPORTED_COMPRESSION_TYPE", False),
    77: ("STALE_BROKER_EPOCH", False),
    78: ("OFFSET_NOT_AVAILABLE", True),
    79: ("MEMBER_ID_REQUIRED", False),
    80: ("PREFERRED_LEADER_NOT_AVAILABLE", True),
    81: ("GROUP_MAX_SIZE_REACHED", False),
    82: ("FENCED_INSTANCE_ID", False),
    83: ("ELIGIBLE_LEADERS_NOT_AVAILABLE", True),
    84: ("ELECTION_NOT_NEEDED", True),
    85: ("NO_REASSIGNMENT_IN_PROGRESS", False),
    86: ("GROUP_SUBSCRIBED_TO_TOPIC", False),
    87: ("INVALID_RECORD", False),
    88: ("UNSTABLE_OFFSET_COMMIT", True),
    89: ("THROTTLING_QUOTA_EXCEEDED", True),
    90: ("PRODUCER_FENCED", False),
    91: ("RESOURCE_NOT_FOUND", False),
    92: ("DUPLICATE_RESOURCE", False),
    93: ("UNACCEPTABLE_CREDENTIAL", False),
    94: ("INCONSISTENT_VOTER_SET", False),
    95: ("INVALID_UPDATE_VERSION", False),
    96: ("FEATURE_UPDATE_FAILED", False),
    97: ("PRINCIPAL_DESERIALIZATION_FAILURE", False),
    98: ("SNAPSHOT_NOT_FOUND", False),
    99: ("POSITION_OUT_OF_RANGE", False),
    100: ("UNKNOWN_TOPIC_ID", True),
    101: ("DUPLICATE_BROKER_REGISTRATION", False),
    102: ("BROKER_ID_NOT_REGISTERED", False),
    103: ("INCONSISTENT_TOPIC_ID", True),
    104: ("INCONSISTENT_CLUSTER_ID", False),
    105: ("TRANSACTIONAL_ID_NOT_FOUND", False),
    106: ("FETCH_SESSION_TOPIC_ID_ERROR", True),
    107: ("INELIGIBLE_REPLICA", False),
    108: ("NEW_LEADER_ELECTED", False),
    109: ("OFFSET_MOVED_TO_TIERED_STORAGE", False),
    110: ("FENCED_MEMBER_EPOCH", False),
    111: ("UNRELEASED_INSTANCE_ID", False),
    112: ("UNSUPPORTED_ASSIGNOR", False),
    113: ("STALE_MEMBER_EPOCH", False),
    114: ("MISMATCHED_ENDPOINT_TYPE", False),
    115: ("UNSUPPORTED_ENDPOINT_TYPE", False),
    116: ("UNKNOWN_CONTROLLER_ID", False),
    117: ("UNKNOWN_SUBSCRIPTION_ID", False),
    118: ("TELEMETRY_TOO_LARGE", False),
    119: ("INVALID_REGISTRATION", False),
    120: ("TRANSACTION_ABORTABLE", False),
    121: ("INVALID_RECORD_STATE", False),
    122: ("SHARE_SESSION_NOT_FOUND", True),
    123: ("INVALID_SHARE_SESSION_EPOCH", True),
    124: ("FENCED_STATE_EPOCH", False),
    125: ("INVALID_VOTER_KEY", False),
    126: ("DUPLICATE_VOTER", False),
    127: ("VOTER_NOT_FOUND", False),
    128: ("INVALID_REGULAR_EXPRESSION", False),
    129: ("REBOOTSTRAP_REQUIRED", False),
    130: ("STREAMS_INVALID_TOPOLOGY", False),
    131: ("STREAMS_INVALID_TOPOLOGY_EPOCH", False),
    132: ("STREAMS_TOPOLOGY_FENCED", False),
    133: ("SHARE_SESSION_LIMIT_REACHED", True),
}

_CLASSES: dict[int, type[BrokerError]] = {
    1: OffsetOutOfRangeError,
    3: UnknownTopicError,
    10: RecordTooLargeError,
    17: UnknownTopicError,
    29: TopicAuthorizationError,
    30: GroupAuthorizationError,
    82: FencedInstanceIdError,
    100: UnknownTopicError,
}


def error_name(code: int) -> str:
    """Kafka's name of an error code; never raises."""
    known = _CODES.get(code)
    return known[0] if known else f"UNKNOWN_CODE_{code}"


def is_retriable(code: int) -> bool:
    """Does Kafka's Java client mark the code as retriable? Unknown codes are not."""
    known = _CODES.get(code)
    return known[1] if known else False


def broker_error(code: int, message: str = "") -> BrokerError:
    """The exception for a broker's error code: its own class where callers branch on it, else BrokerError."""
    return _CLASSES.get(code, BrokerError)(message, code=code)


def printable(text: str) -> str:
    """For showing text from outside: control characters, and bytes that are no UTF-8, as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
