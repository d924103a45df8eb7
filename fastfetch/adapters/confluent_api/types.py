"""confluent-kafka's small types by name: errors, partitions, what list_topics() returns.

They look like theirs to a script: same methods and attributes, same order and hash, same codes. Objects of theirs are taken
wherever one of these is expected, by their attributes.
"""

from __future__ import annotations

import builtins
from typing import Any

from fastfetch.adapters.errors import Peer, as_both
from fastfetch.errors import (
    AuthenticationError,
    BrokerError,
    CommitFailedError,
    ConfigError,
    ConnectionFailedError,
    CorruptBatchError,
    FastFetchError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    ProtocolError,
    RebalanceInProgressError,
    UnsupportedVersionError,
    UsageError,
    error_name,
)
from fastfetch.errors import TimeoutError as TimedOut

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "BrokerMetadata",
    "ClusterMetadata",
    "KafkaError",
    "KafkaException",
    "PartitionMetadata",
    "TopicMetadata",
    "TopicPartition",
    "code_of",
    "failure",
    "raised",
]

OFFSET_BEGINNING = -2
OFFSET_END = -1
OFFSET_STORED = -1000
OFFSET_INVALID = -1001

TIMESTAMP_NOT_AVAILABLE = 0
TIMESTAMP_CREATE_TIME = 1
TIMESTAMP_LOG_APPEND_TIME = 2

# librdkafka's own codes, one after another from here on.
_FIRST_LOCAL = -199
_LOCAL = (
    "_BAD_MSG", "_BAD_COMPRESSION", "_DESTROY", "_FAIL", "_TRANSPORT", "_CRIT_SYS_RESOURCE", "_RESOLVE", "_MSG_TIMED_OUT",
    "_PARTITION_EOF", "_UNKNOWN_PARTITION", "_FS", "_UNKNOWN_TOPIC", "_ALL_BROKERS_DOWN", "_INVALID_ARG", "_TIMED_OUT",
    "_QUEUE_FULL", "_ISR_INSUFF", "_NODE_UPDATE", "_SSL", "_WAIT_COORD", "_UNKNOWN_GROUP", "_IN_PROGRESS", "_PREV_IN_PROGRESS",
    "_EXISTING_SUBSCRIPTION", "_ASSIGN_PARTITIONS", "_REVOKE_PARTITIONS", "_CONFLICT", "_STATE", "_UNKNOWN_PROTOCOL",
    "_NOT_IMPLEMENTED", "_AUTHENTICATION", "_NO_OFFSET", "_OUTDATED", "_TIMED_OUT_QUEUE", "_UNSUPPORTED_FEATURE", "_WAIT_CACHE",
    "_INTR", "_KEY_SERIALIZATION", "_VALUE_SERIALIZATION", "_KEY_DESERIALIZATION", "_VALUE_DESERIALIZATION", "_PARTIAL",
    "_READ_ONLY", "_NOENT", "_UNDERFLOW", "_INVALID_TYPE", "_RETRY", "_PURGE_QUEUE", "_PURGE_INFLIGHT", "_FATAL", "_INCONSISTENT",
    "_GAPLESS_GUARANTEE", "_MAX_POLL_EXCEEDED", "_UNKNOWN_BROKER", "_NOT_CONFIGURED", "_FENCED", "_APPLICATION",
    "_ASSIGNMENT_LOST", "_NOOP", "_AUTO_OFFSET_RESET", "_LOG_TRUNCATION", "_INVALID_DIFFERENT_RECORD", "_DESTROY_BROKER",
)  # fmt: skip

# Kafka's codes have Kafka's names, but for these.
_LAST_BROKER = 133
_NAMES = {
    -1: "UNKNOWN",
    0: "NO_ERROR",
    2: "INVALID_MSG",
    3: "UNKNOWN_TOPIC_OR_PART",
    4: "INVALID_MSG_SIZE",
    6: "NOT_LEADER_FOR_PARTITION",
    10: "MSG_SIZE_TOO_LARGE",
    11: "STALE_CTRL_EPOCH",
    17: "TOPIC_EXCEPTION",
    **{code: error_name(code) for code in range(1, _LAST_BROKER + 1) if code not in (2, 3, 4, 6, 10, 11, 17)},
    **{_FIRST_LOCAL + i: name for i, name in enumerate(_LOCAL)},
}


class KafkaError:
    """An error code with a text: negative ones are found on this side, the others are Kafka's.

    Each code is a constant of this class, `KafkaError._PARTITION_EOF` or `KafkaError.UNKNOWN_TOPIC_OR_PART`. Errors are compared
    by code, with each other and with numbers.
    """

    __slots__ = ("_code", "_fatal", "_retriable", "_text", "_txn_requires_abort")

    def __init__(
        self,
        error: int,
        reason: builtins.str | None = None,
        fatal: bool = False,
        retriable: bool = False,
        txn_requires_abort: bool = False,
    ) -> None:
        self._code = int(error)
        self._text = reason
        self._fatal = bool(fatal)
        self._retriable = bool(retriable)
        self._txn_requires_abort = bool(txn_requires_abort)

    def code(self) -> int:
        """The number."""
        return self._code

    def name(self) -> str:
        """The constant's name; `ERR_n?` for an unknown code."""
        return _NAMES.get(self._code, f"ERR_{self._code}?")

    def str(self) -> str:
        """What happened, in words."""
        if self._text is not None:
            return self._text
        if self._code not in _NAMES:
            return f"Err-{self._code}?"
        name = _NAMES[self._code]
        return f"{'Local' if name.startswith('_') else 'Broker'}: {name.strip('_').replace('_', ' ').capitalize()}"

    def fatal(self) -> bool:
        """Nothing will work again with this consumer."""
        return self._fatal

    def retriable(self) -> bool:
        """The call may be made again. As with librdkafka, set by its transactional producer only."""
        return self._retriable

    def txn_requires_abort(self) -> bool:
        """Of the transactional producer."""
        return self._txn_requires_abort

    def __eq__(self, other: object) -> bool:
        code = _code(other)
        return NotImplemented if code is None else self._code == code

    def __lt__(self, other: KafkaError | int) -> bool:
        code = _code(other)
        return NotImplemented if code is None else self._code < code

    def __le__(self, other: KafkaError | int) -> bool:
        code = _code(other)
        return NotImplemented if code is None else self._code <= code

    def __gt__(self, other: KafkaError | int) -> bool:
        code = _code(other)
        return NotImplemented if code is None else self._code > code

    def __ge__(self, other: KafkaError | int) -> bool:
        code = _code(other)
        return NotImplemented if code is None else self._code >= code

    def __hash__(self) -> int:
        return hash(self._code)

    def __repr__(self) -> builtins.str:
        fatal = "FATAL," if self._fatal else ""
        return f'KafkaError{{{fatal}code={self.name()},val={self._code},str="{self.str()}"}}'

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._code, self._text, self._fatal, self._retriable, self._txn_requires_abort)


for _number, _name in _NAMES.items():
    setattr(KafkaError, _name, _number)


def _code(other: Any) -> int | None:
    """Of a number, or of an error of ours or theirs."""
    if isinstance(other, int):
        return other
    code = getattr(other, "code", None)
    return code() if callable(code) else None


@Peer("confluent_kafka")
class KafkaException(Exception):  # noqa: N818 - their name
    """What calls raise; `args[0]` is the KafkaError. The installed confluent-kafka's own class, where there is one."""


class TopicPartition:
    """A topic's partition, with an offset, or with an error.

    offset          the next one to read, or OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED, OFFSET_INVALID
    leader_epoch    of the record before it, None if unknown
    error           a KafkaError where a call did not work for this partition

    Compared, ordered and hashed by topic and partition.
    """

    __slots__ = ("_epoch", "error", "metadata", "offset", "partition", "topic")

    def __init__(
        self,
        topic: str,
        partition: int = -1,
        offset: int = OFFSET_INVALID,
        metadata: str | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        if not isinstance(topic, str):
            raise TypeError(f"TopicPartition: the topic must be str, not {type(topic).__name__}")
        for name, value in (("partition", partition), ("offset", offset)):
            if not isinstance(value, int):
                raise TypeError(f"TopicPartition: the {name} must be int, not {type(value).__name__}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.metadata = metadata
        self.leader_epoch = leader_epoch
        self.error: KafkaError | None = None

    @property
    def leader_epoch(self) -> int | None:
        return self._epoch

    @leader_epoch.setter
    def leader_epoch(self, epoch: int | None) -> None:
        self._epoch = None if epoch is None or epoch < 0 else epoch

    def _key(self) -> tuple[str, int]:
        return self.topic, self.partition

    def __eq__(self, other: object) -> bool:
        return self._key() == (other.topic, other.partition) if is_partition(other) else NotImplemented  # type: ignore[attr-defined]

    def __lt__(self, other: Any) -> bool:
        return self._key() < (other.topic, other.partition) if is_partition(other) else NotImplemented

    def __le__(self, other: Any) -> bool:
        return self._key() <= (other.topic, other.partition) if is_partition(other) else NotImplemented

    def __gt__(self, other: Any) -> bool:
        return self._key() > (other.topic, other.partition) if is_partition(other) else NotImplemented

    def __ge__(self, other: Any) -> bool:
        return self._key() >= (other.topic, other.partition) if is_partition(other) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return (
            f"TopicPartition{{topic={self.topic},partition={self.partition},offset={self.offset},"
            f"leader_epoch={self.leader_epoch},error={self.error}}}"
        )


def is_partition(value: object) -> bool:
    """Ours or theirs; not a tuple, which has no offset."""
    return all(hasattr(value, name) for name in ("topic", "partition", "offset", "metadata"))


# --- what list_topics() returns ---------------------------------------------------------------------------------------


class BrokerMetadata:
    """A broker: id, host, port."""

    def __init__(self) -> None:
        self.id = -1
        self.host: str | None = None
        self.port = -1

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.id}"

    def __repr__(self) -> str:
        return f"BrokerMetadata({self.id}, {self.host}:{self.port})"


class PartitionMetadata:
    """A partition: id, its leader's id (-1: none), ids of replicas, ids of those in sync, a KafkaError or None."""

    def __init__(self) -> None:
        self.id = -1
        self.leader = -1
        self.replicas: list[int] = []
        self.isrs: list[int] = []
        self.error: KafkaError | None = None

    def __str__(self) -> str:
        return str(self.id)

    def __repr__(self) -> str:
        return f"PartitionMetadata({self.id}{'' if self.error is None else f', {self.error}'})"


class TopicMetadata:
    """A topic: name, partitions by number, a KafkaError or None."""

    def __init__(self) -> None:
        self.topic: str | None = None
        self.partitions: dict[int, PartitionMetadata] = {}
        self.error: KafkaError | None = None

    def __str__(self) -> str:
        return str(self.topic)

    def __repr__(self) -> str:
        error = "" if self.error is None else f", {self.error}"
        return f"TopicMetadata({self.topic}, {len(self.partitions)} partitions{error})"


class ClusterMetadata:
    """A cluster: id, controller, brokers by id, topics by name, and the broker that told."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, BrokerMetadata] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.orig_broker_id = -1
        self.orig_broker_name: str | None = None

    def __str__(self) -> str:
        return str(self.cluster_id)

    def __repr__(self) -> str:
        return f"ClusterMetadata({self.cluster_id})"


# --- errors of ours in their words ------------------------------------------------------------------------------------

# By class, the first that fits; brokers' codes are the same numbers on both sides.
_CODES: tuple[tuple[type[FastFetchError], str], ...] = (
    (LogTruncationError, "_LOG_TRUNCATION"),
    (OffsetOutOfRangeError, "_AUTO_OFFSET_RESET"),
    (NoOffsetForPartitionError, "_AUTO_OFFSET_RESET"),
    (ConfigError, "_INVALID_ARG"),
    (UsageError, "_STATE"),
    (TimedOut, "_TIMED_OUT"),
    (ConnectionFailedError, "_TRANSPORT"),
    (AuthenticationError, "_AUTHENTICATION"),
    (RebalanceInProgressError, "REBALANCE_IN_PROGRESS"),
    (UnsupportedVersionError, "_UNSUPPORTED_FEATURE"),
    (ProtocolError, "_BAD_MSG"),
)
_CORRUPT = {
    "magic": "_NOT_IMPLEMENTED",
    "codec": "_NOT_IMPLEMENTED",
    "inflate": "_BAD_COMPRESSION",
    "too_large": "MSG_SIZE_TOO_LARGE",
}


def code_of(error: Exception) -> int:
    """The code that librdkafka has for what an error of ours says."""
    name = "_FAIL"
    if isinstance(error, CorruptBatchError):
        name = _CORRUPT.get(error.kind, "_BAD_MSG")
    elif isinstance(error, CommitFailedError):
        code = next((code for code in error.failed.values() if code), 0)
        if code:
            return code
        name = "_STATE"
    else:
        found = next((name for kind, name in _CODES if isinstance(error, kind)), None)
        if found is None and isinstance(error, BrokerError):
            return error.code
        name = found or name
    number: int = getattr(KafkaError, name)
    return number


def raised(error: FastFetchError, code: int | None = None) -> Exception:
    """An error of ours as a KafkaException, which it stays beside."""
    what = KafkaError(code_of(error) if code is None else code, str(error))
    return as_both(error, KafkaException, what)


def failure(code: int, text: str) -> Exception:
    """A KafkaException for a call that can't be carried out."""
    return raised(UsageError(text), code)
