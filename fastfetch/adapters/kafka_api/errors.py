"""kafka-python's exceptions: its own where it is installed, else classes of the same names, bases and codes.

`ERRORS` says which of them an error of ours is. Listed are the ones that a consumer can meet; a code that is not among them makes
an UnknownError that carries it, as there.
"""

from __future__ import annotations

import functools
from typing import Any

from fastfetch import errors as ours
from fastfetch.adapters.errors import Peer, Translation, as_both
from fastfetch.adapters.kafka_api.structs import OffsetAndMetadata, TopicPartition

__all__ = [
    "AuthorizationError",
    "BrokerResponseError",
    "CommitFailedError",
    "CoordinatorLoadInProgressError",
    "CoordinatorNotAvailableError",
    "CorruptRecordError",
    "FencedInstanceIdError",
    "GroupAuthorizationFailedError",
    "IllegalArgumentError",
    "IllegalGenerationError",
    "IllegalStateError",
    "InvalidTopicError",
    "KafkaConfigurationError",
    "KafkaConnectionError",
    "KafkaError",
    "KafkaProtocolError",
    "KafkaTimeoutError",
    "LogTruncationError",
    "MessageSizeTooLargeError",
    "NoBrokersAvailable",
    "NoOffsetForPartitionError",
    "NotCoordinatorError",
    "OffsetMetadataTooLargeError",
    "OffsetOutOfRangeError",
    "RebalanceInProgressError",
    "RetriableError",
    "SaslAuthenticationFailedError",
    "TopicAuthorizationFailedError",
    "UnknownError",
    "UnknownMemberIdError",
    "UnknownTopicIdError",
    "UnknownTopicOrPartitionError",
    "UnsupportedCodecError",
    "UnsupportedVersionError",
    "for_code",
]

theirs = Peer("kafka.errors")


@theirs
class KafkaError(Exception):
    """Root of all errors of kafka-python."""

    retriable = False
    invalid_metadata = False

    def __str__(self) -> str:
        name = type(self).__name__
        return f"{name}: {super().__str__()}" if self.args else name


@theirs
class RetriableError(KafkaError):
    """Asking again may help."""

    retriable = True


@theirs
class InvalidMetadataError(RetriableError):
    invalid_metadata = True


@theirs
class IllegalArgumentError(KafkaError): ...


@theirs
class IllegalStateError(KafkaError):
    """Called at the wrong time: assign after subscribe, a closed consumer, a partition that is not assigned."""


@theirs
class KafkaConfigurationError(KafkaError):
    """An unknown key, or a value outside its range."""


@theirs
class KafkaConnectionError(InvalidMetadataError): ...


@theirs
class KafkaTimeoutError(RetriableError):
    """A call's time was up before its answer came."""


# Version 2 has a class for it, version 3 a KafkaTimeoutError; scripts catch the one or the other.
_NoBrokers: Any = getattr(theirs.module, "NoBrokersAvailable", KafkaConnectionError)


class NoBrokersAvailable(KafkaTimeoutError, _NoBrokers):  # type: ignore[misc] # noqa: N818
    """No broker could be reached."""


@theirs
class KafkaProtocolError(KafkaError):
    """A broker's bytes make no sense."""


@theirs
class CommitFailedError(KafkaError):
    """The group has rebalanced, and the partitions may belong to another member."""


@theirs
class NoOffsetForPartitionError(KafkaError):
    """Nothing is committed, and auto_offset_reset is "none"."""


@theirs
class LogTruncationError(KafkaError):
    """The log was cut below the position (KIP-320). `divergent_offsets`: {partition: where it was cut, or None}."""

    divergent_offsets: dict[Any, Any]


@theirs
class UnsupportedCodecError(KafkaError): ...


@theirs
class BrokerResponseError(KafkaError):
    """An error code of a broker's, in `errno`."""

    errno: int | None = None
    message: str | None = None
    description: str | None = None

    def __str__(self) -> str:
        return f"[Error {self.errno}] {super().__str__()}"


@theirs
class AuthorizationError(BrokerResponseError): ...


@theirs
class UnknownError(BrokerResponseError):
    errno, message = -1, "UNKNOWN"


@theirs
class OffsetOutOfRangeError(BrokerResponseError):
    errno, message = 1, "OFFSET_OUT_OF_RANGE"


@theirs
class CorruptRecordError(BrokerResponseError):
    errno, message = 2, "CORRUPT_MESSAGE"


@theirs
class UnknownTopicOrPartitionError(InvalidMetadataError, BrokerResponseError):
    errno, message = 3, "UNKNOWN_TOPIC_OR_PARTITION"


@theirs
class MessageSizeTooLargeError(BrokerResponseError):
    errno, message = 10, "MESSAGE_SIZE_TOO_LARGE"


@theirs
class OffsetMetadataTooLargeError(BrokerResponseError):
    errno, message = 12, "OFFSET_METADATA_TOO_LARGE"


@theirs
class CoordinatorLoadInProgressError(RetriableError, BrokerResponseError):
    errno, message = 14, "COORDINATOR_LOAD_IN_PROGRESS"


@theirs
class CoordinatorNotAvailableError(RetriableError, BrokerResponseError):
    errno, message = 15, "COORDINATOR_NOT_AVAILABLE"


@theirs
class NotCoordinatorError(RetriableError, BrokerResponseError):
    errno, message = 16, "NOT_COORDINATOR"


@theirs
class InvalidTopicError(BrokerResponseError):
    errno, message = 17, "INVALID_TOPIC"


@theirs
class IllegalGenerationError(BrokerResponseError):
    errno, message = 22, "ILLEGAL_GENERATION"


@theirs
class UnknownMemberIdError(BrokerResponseError):
    errno, message = 25, "UNKNOWN_MEMBER_ID"


@theirs
class RebalanceInProgressError(BrokerResponseError):
    errno, message = 27, "REBALANCE_IN_PROGRESS"


@theirs
class TopicAuthorizationFailedError(AuthorizationError):
    errno, message = 29, "TOPIC_AUTHORIZATION_FAILED"


@theirs
class GroupAuthorizationFailedError(AuthorizationError):
    errno, message = 30, "GROUP_AUTHORIZATION_FAILED"


@theirs
class UnsupportedVersionError(BrokerResponseError):
    errno, message = 35, "UNSUPPORTED_VERSION"


@theirs
class SaslAuthenticationFailedError(BrokerResponseError):
    errno, message = 58, "SASL_AUTHENTICATION_FAILED"


@theirs
class FencedInstanceIdError(BrokerResponseError):
    errno, message = 82, "FENCED_INSTANCE_ID"


@theirs
class UnknownTopicIdError(InvalidMetadataError, BrokerResponseError):
    errno, message = 100, "UNKNOWN_TOPIC_ID"


@theirs
def for_code(error_code: int) -> type[BrokerResponseError]:
    """The class for a broker's error code."""
    name = ours.error_name(error_code)
    return _NUMBERED.get(error_code) or type("UnrecognizedBrokerError", (UnknownError,), {"errno": error_code, "message": name})


_NUMBERED: dict[int, type[BrokerResponseError]] = {
    kind.errno: kind
    for kind in list(globals().values())
    if isinstance(kind, type) and issubclass(kind, BrokerResponseError) and kind.errno is not None
}

# Of a commit: this member has lost its place in the group, or an answer never came.
_LOST_PLACE = {0, 22, 25, 27}


class _Translation(Translation):
    def theirs(self, error: ours.FastFetchError) -> type[Exception]:
        if isinstance(error, ours.CommitFailedError):
            codes = set(error.failed.values())
            if len(codes) == 1 and not codes & _LOST_PLACE:
                return _class_of(codes.pop())
        return super().theirs(error)

    def both(self, error: ours.FastFetchError) -> Exception:
        if isinstance(error, ours.LogTruncationError):
            return as_both(error, LogTruncationError, divergent_offsets=_divergent(error))
        return super().both(error)


def _divergent(error: ours.LogTruncationError) -> dict[TopicPartition, OffsetAndMetadata | None]:
    offset, epoch = error.divergent_offset, error.divergent_epoch
    at = None if offset is None else OffsetAndMetadata(offset, "", -1 if epoch is None else epoch)
    return {TopicPartition(error.topic, error.partition): at}


_class_of = functools.cache(for_code)  # kafka-python makes a new class for a code that it does not know

ERRORS = _Translation(
    {
        ours.FastFetchError: KafkaError,
        ours.UsageError: IllegalStateError,
        ours.ConfigError: KafkaConfigurationError,
        ours.ConnectionFailedError: NoBrokersAvailable,
        ours.TimeoutError: KafkaTimeoutError,
        ours.AuthenticationError: SaslAuthenticationFailedError,
        ours.ProtocolError: KafkaProtocolError,
        ours.UnsupportedVersionError: UnsupportedVersionError,
        ours.CorruptBatchError: CorruptRecordError,
        ours.UnsupportedCodecError: UnsupportedCodecError,
        ours.CommitFailedError: CommitFailedError,
        ours.RebalanceInProgressError: RebalanceInProgressError,
        ours.NoOffsetForPartitionError: NoOffsetForPartitionError,
        ours.LogTruncationError: LogTruncationError,
    },
    _class_of,
)
