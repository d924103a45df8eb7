"""aiokafka's exceptions: its own classes where it is installed, else classes with the same names, bases and attributes.

What AIOKafkaConsumer raises is one of these and, at once, the error of fastfetch's that says what happened: `aiokafka.errors.X`,
`fastfetch.adapters.aiokafka_api.errors.X` and `fastfetch.errors.Y` all catch it.
"""

from __future__ import annotations

import functools
from typing import Any

from fastfetch import errors
from fastfetch.adapters.aiokafka_api.structs import TopicPartition
from fastfetch.adapters.errors import Peer, Translation, as_both
from fastfetch.errors import error_name, is_retriable

theirs = Peer("aiokafka.errors")


@theirs
class KafkaError(RuntimeError):
    """Root of most of them. `retriable`: the same call may succeed later."""

    retriable = False
    invalid_metadata = False

    def __str__(self) -> str:
        name = type(self).__name__
        return f"{name}: {super().__str__()}" if self.args else name


@theirs
class ConsumerStoppedError(Exception):
    """The consumer was stopped, before the call or while it waited."""


@theirs
class IllegalOperation(Exception):  # noqa: N818
    """Not possible with these settings, such as a commit without a group_id."""


@theirs
class IllegalStateError(KafkaError):
    """Not possible now: nothing assigned, not started, assign() after subscribe()."""


@theirs
class KafkaConfigurationError(KafkaError):
    """A setting has a value that is not possible here."""


@theirs
class KafkaConnectionError(KafkaError):
    """No broker could be reached."""

    retriable = True
    invalid_metadata = True


@theirs
class KafkaTimeoutError(KafkaError):
    """No answer within request_timeout_ms."""


@theirs
class KafkaProtocolError(KafkaError):
    """A broker's bytes make no sense."""

    retriable = True


@theirs
class CommitFailedError(KafkaError):
    """The group is rebalancing, or this consumer is no member of it any more: nothing was committed."""


@theirs
class NoOffsetForPartitionError(KafkaError):
    """Nothing is committed, and auto_offset_reset is "none"."""


@theirs
class RecordTooLargeError(KafkaError):
    """A fetch of the largest allowed size did not bring one whole batch."""


@theirs
class UnsupportedCodecError(KafkaError):
    """The library for a compression codec is not installed."""


@theirs
class AuthenticationFailedError(KafkaError):
    """The broker refused the credentials."""


@theirs
class BrokerResponseError(KafkaError):
    """An error code from a broker: `errno`, and Kafka's name of it as `message`."""

    errno: int
    message: str

    def __str__(self) -> str:
        return f"[Error {self.errno}] {super().__str__()}"


_NAMES = {
    name: code
    for code, name in enumerate(
        (
            "UnknownError", "NoError", "OffsetOutOfRangeError", "CorruptRecordException", "UnknownTopicOrPartitionError",
            "InvalidFetchRequestError", "LeaderNotAvailableError", "NotLeaderForPartitionError", "RequestTimedOutError",
            "BrokerNotAvailableError", "ReplicaNotAvailableError", "MessageSizeTooLargeError", "StaleControllerEpochError",
            "OffsetMetadataTooLargeError", "StaleLeaderEpochCodeError", "GroupLoadInProgressError",
            "GroupCoordinatorNotAvailableError", "NotCoordinatorForGroupError", "InvalidTopicError", "RecordListTooLargeError",
            "NotEnoughReplicasError", "NotEnoughReplicasAfterAppendError", "InvalidRequiredAcksError", "IllegalGenerationError",
            "InconsistentGroupProtocolError", "InvalidGroupIdError", "UnknownMemberIdError", "InvalidSessionTimeoutError",
            "RebalanceInProgressError", "InvalidCommitOffsetSizeError", "TopicAuthorizationFailedError",
            "GroupAuthorizationFailedError", "ClusterAuthorizationFailedError", "InvalidTimestampError",
            "UnsupportedSaslMechanismError", "IllegalSaslStateError", "UnsupportedVersionError",
        ),
        start=-1,
    )
}  # fmt: skip


@functools.cache
def for_code(code: int) -> type[Exception]:
    """The class of a broker's error code, UnknownError for one without a class."""
    if theirs.module is not None:
        return theirs.module.for_code(code)  # type: ignore[no-any-return]
    name = next((name for name, known in _NAMES.items() if known == code), "UnknownError")
    return globals()[name] if name in globals() else _response_error(name)


def _response_error(name: str) -> type[Exception]:
    code = _NAMES[name]
    body = {"__module__": __name__, "errno": code, "message": error_name(code), "retriable": is_retriable(code)}
    return type(name, (BrokerResponseError,), body)


def __getattr__(name: str) -> Any:
    """The errors with codes, and whatever else aiokafka.errors has."""
    if theirs.module is not None and not name.startswith("_"):
        return getattr(theirs.module, name)
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = kind = for_code(_NAMES[name])
    return kind


class _Translation(Translation):
    """With what aiokafka has as the first argument, which programs read: the partition in question, or where it stood."""

    def both(self, error: errors.FastFetchError) -> Exception:
        where = vars(error)
        if isinstance(error, errors.CorruptBatchError) or not where.get("topic"):
            return super().both(error)
        tp = TopicPartition(where["topic"], where["partition"])
        if isinstance(error, errors.OffsetOutOfRangeError | errors.LogTruncationError):
            argument: object = {tp: where["position"]}
        elif isinstance(error, errors.NoOffsetForPartitionError):
            argument = tp
        elif isinstance(error, errors.TopicAuthorizationError):
            argument = tp.topic
        else:
            return super().both(error)
        both = as_both(error, self.theirs(error), argument)
        if both is not error:
            both.add_note(str(error))
        return both


TRANSLATION = _Translation(
    {
        errors.FastFetchError: KafkaError,
        errors.UsageError: IllegalStateError,
        errors.ConfigError: KafkaConfigurationError,
        errors.ClosedError: ConsumerStoppedError,
        errors.ProtocolError: KafkaProtocolError,
        errors.UnsupportedVersionError: for_code(35),
        errors.ConnectionFailedError: KafkaConnectionError,
        errors.TimeoutError: KafkaTimeoutError,
        errors.AuthenticationError: AuthenticationFailedError,
        errors.CommitFailedError: CommitFailedError,
        errors.RebalanceInProgressError: CommitFailedError,
        errors.CorruptBatchError: for_code(2),
        errors.UnsupportedCodecError: UnsupportedCodecError,
        errors.NoOffsetForPartitionError: NoOffsetForPartitionError,
        errors.LogTruncationError: for_code(1),
        errors.RecordTooLargeError: RecordTooLargeError,
        errors.UnknownTopicError: for_code(3),
    },
    for_code,
)
"""Which of these an error of fastfetch's is. As a context manager it translates what is raised inside."""
