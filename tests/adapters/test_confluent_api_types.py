"""Message, TopicPartition, KafkaError and KafkaException, held against confluent-kafka's own, attribute by attribute."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import fastfetch
from fastfetch.adapters import confluent_api
from fastfetch.adapters.confluent_api import types
from fastfetch.adapters.confluent_api.messages import messages
from fastfetch.errors import (
    BatchTooLargeError,
    CommitFailedError,
    ConfigError,
    CrcMismatchError,
    DecompressionError,
    FastFetchError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RebalanceInProgressError,
    UnsupportedCodecError,
    UsageError,
    broker_error,
)
from fastfetch.errors import TimeoutError as TimedOut
from fastfetch.testing import encode_batch
from fastfetch.types import TopicPartition as Key

confluent_kafka = pytest.importorskip("confluent_kafka")

BOTH = (confluent_kafka, confluent_api)
NAMES = [name for name in vars(confluent_kafka.KafkaError) if name.strip("_").isupper()]
ACCESSORS = (
    "topic", "partition", "offset", "key", "value", "headers", "error", "timestamp", "latency", "leader_epoch", "delivery_count",
    "deserialized_key", "deserialized_value",
)  # fmt: skip


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return type(error)


def same(look: Callable[[Any], Any]) -> Any:
    """What is seen in either namespace."""
    theirs, ours = (outcome(partial(look, ck)) for ck in BOTH)
    assert ours == theirs
    return ours


# --- errors -----------------------------------------------------------------------------------------------------------


def test_every_code_of_theirs_has_the_same_number_and_name() -> None:
    assert len(NAMES) > 180
    for name in NAMES:
        code = getattr(confluent_kafka.KafkaError, name)
        assert getattr(confluent_api.KafkaError, name) == code
        assert confluent_api.KafkaError(code).name() == confluent_kafka.KafkaError(code).name() == name


@pytest.mark.parametrize("code", [0, 1, 3, -191, -195, 9999, -9000])
@pytest.mark.parametrize("more", [(), ("why",), ("why", True), ("why", False, True, True)])
def test_what_an_error_says(code: int, more: tuple[Any, ...]) -> None:
    def look(ck: Any) -> Any:
        error = ck.KafkaError(code, *more)
        text = error.str() if more else None
        return (
            error.code(), error.name(), text, error.fatal(), error.retriable(), error.txn_requires_abort(), hash(error),
            bool(error), str(error) if more else None, repr(error) if more else None,
        )  # fmt: skip

    assert same(look)[0] == code


def test_errors_without_a_text_have_one() -> None:
    assert confluent_api.KafkaError(-185).str() == confluent_kafka.KafkaError(-185).str() == "Local: Timed out"
    assert confluent_api.KafkaError(1).str() == confluent_kafka.KafkaError(1).str() == "Broker: Offset out of range"


def test_errors_are_compared_by_code() -> None:
    def look(ck: Any) -> Any:
        one, two = ck.KafkaError(1, "a"), ck.KafkaError(2)
        return (
            one == ck.KafkaError(1, "b"), one == 1, one != 1, one == two, one < two, one <= 1, two > one, two >= 3, 1 == one,  # noqa: SIM300
            sorted([two, one]) == [one, two], {one: "x"}[ck.KafkaError(1)],
        )  # fmt: skip

    same(look)
    assert confluent_api.KafkaError(1) == confluent_kafka.KafkaError(1)
    assert confluent_api.KafkaError(1) != "x"


def test_errors_are_made_and_pickled_as_theirs() -> None:
    same(lambda ck: ck.KafkaError())
    same(lambda ck: repr(ck.KafkaError(error=5, reason="x", fatal=True)))
    error = pickle.loads(pickle.dumps(confluent_api.KafkaError(5, "x", True, True, True)))
    assert (error.code(), error.str(), error.fatal(), error.retriable(), error.txn_requires_abort()) == (5, "x", True, True, True)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (broker_error(3), "UNKNOWN_TOPIC_OR_PART"),
        (broker_error(29), "TOPIC_AUTHORIZATION_FAILED"),
        (OffsetOutOfRangeError(code=1), "_AUTO_OFFSET_RESET"),
        (NoOffsetForPartitionError(), "_AUTO_OFFSET_RESET"),
        (CrcMismatchError("x"), "_BAD_MSG"),
        (DecompressionError("x"), "_BAD_COMPRESSION"),
        (UnsupportedCodecError("x"), "_NOT_IMPLEMENTED"),
        (BatchTooLargeError("x"), "MSG_SIZE_TOO_LARGE"),
        (TimedOut("x"), "_TIMED_OUT"),
        (ConfigError("x"), "_INVALID_ARG"),
        (UsageError("x"), "_STATE"),
        (RebalanceInProgressError("x"), "REBALANCE_IN_PROGRESS"),
        (CommitFailedError("x", failed={Key("t", 0): 25}), "UNKNOWN_MEMBER_ID"),
        (CommitFailedError("x", failed={Key("t", 0): 0}), "_STATE"),
        (FastFetchError("x"), "_FAIL"),
    ],
)
def test_errors_of_ours_have_codes_of_theirs(error: FastFetchError, name: str) -> None:
    assert types.KafkaError(types.code_of(error)).name() == name


def test_what_is_raised_is_caught_by_both_names_and_by_ours() -> None:
    error = CommitFailedError("no", failed={Key("t", 0): 25})
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        raise types.raised(error)
    assert isinstance(caught.value, confluent_api.KafkaException)
    assert isinstance(caught.value, CommitFailedError)
    assert caught.value.failed == {Key("t", 0): 25}
    [what] = caught.value.args
    assert (what.code(), what.str()) == (25, "no")


# --- partitions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [("t",), ("t", 1), ("t", 1, 5), ("t", 1, -1000, "note"), ("t", 1, 5, "", 7), ("t", 0, 0, "", -1)]
)
def test_what_a_partition_says(arguments: tuple[Any, ...]) -> None:
    def look(ck: Any) -> Any:
        tp = ck.TopicPartition(*arguments)
        return tp.topic, tp.partition, tp.offset, tp.metadata, tp.leader_epoch, tp.error, repr(tp), str(tp)

    assert same(look)[0] == "t"


def test_partitions_are_compared_by_topic_and_number() -> None:
    def look(ck: Any) -> Any:
        def tp(*arguments: Any) -> Any:
            return ck.TopicPartition(*arguments)

        return (
            tp("a", 1, 5) == tp("a", 1, 6), tp("a", 1) == tp("a", 2), tp("a", 1) != tp("b", 1), tp("a", 9) < tp("b", 0),
            tp("a", 1) <= tp("a", 1), tp("a", 2) > tp("a", 1), tp("a", 0) >= tp("a", 1), tp("a", 1, 5) in {tp("a", 1, 6)},
            sorted([tp("b", 0), tp("a", 1), tp("a", 0)]) == [tp("a", 0), tp("a", 1), tp("b", 0)],
        )  # fmt: skip

    same(look)
    assert confluent_api.TopicPartition("a", 1) == confluent_kafka.TopicPartition("a", 1)
    assert confluent_api.TopicPartition("a", 1) != ("a", 1)


def test_partitions_are_made_and_changed_as_theirs() -> None:
    def changed(ck: Any) -> Any:
        tp = ck.TopicPartition(topic="t", partition=2, offset=3, metadata="z", leader_epoch=3)
        tp.offset, tp.partition = 8, 4
        return repr(tp)

    def made(arguments: tuple[Any, ...], ck: Any) -> Any:
        return ck.TopicPartition(*arguments)

    same(changed)
    for arguments in ((), (None, 1), ("t", "x"), ("t", 1, "x"), ("t", 1.5)):
        assert same(partial(made, arguments)) is TypeError
    assert same(lambda ck: setattr(ck.TopicPartition("t"), "more", 1)) is AttributeError
    assert copy.copy(confluent_api.TopicPartition("t", 1, 5)).offset == 5


# --- messages ---------------------------------------------------------------------------------------------------------


def read_out(message: Any) -> Any:
    return [getattr(message, name)() for name in ACCESSORS], len(message), bool(message)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"topic": "t", "partition": 1, "offset": 2},
        {"topic": "t", "partition": 0, "offset": 0, "key": b"", "value": b""},
        {"key": b"k", "value": b"value", "headers": [("h", b"1"), ("h", None)], "timestamp": (1, 99)},
        {"key": "text", "value": "text", "latency": 1.5, "leader_epoch": 4, "delivery_count": 3},
        {"timestamp": (0, -1), "leader_epoch": 0, "latency": 0.0},
    ],
)
def test_what_a_message_says(arguments: dict[str, Any]) -> None:
    same(lambda ck: read_out(ck.Message(**arguments)))
    same(lambda ck: read_out(pickle.loads(pickle.dumps(ck.Message(**arguments)))))
    same(lambda ck: read_out(ck.Message(*ck.Message(**arguments).__reduce__()[1])))


def test_messages_change_as_theirs() -> None:
    def look(ck: Any) -> Any:
        message = ck.Message("t", 1, 2, b"k", b"v")
        seen = [message.set_topic("u"), message.set_key(5), message.set_value({"a": 1}), message.set_headers([("h", b"")])]
        seen.append(read_out(message))
        message.set_error(ck.KafkaError(3))
        seen.append(message.error().code())
        message.set_error(None)
        message.set_value(None)
        return [*seen, read_out(message)]

    same(look)


def test_messages_are_compared_by_what_they_say_and_have_no_hash() -> None:
    def look(ck: Any) -> Any:
        one = ck.Message("t", 1, 2, b"k", b"v")
        return (
            one == ck.Message("t", 1, 2, b"k", b"v"),
            one == ck.Message("t", 1, 3, b"k", b"v"),
            one == 5,
            one != ck.Message("t"),
        )

    same(look)
    assert same(lambda ck: hash(ck.Message())) is TypeError
    assert same(lambda ck: ck.Message() < ck.Message()) is TypeError
    assert same(lambda ck: ck.Message(timestamp=5)) is TypeError
    assert same(lambda ck: ck.Message(partition="x")) is TypeError
    assert same(lambda ck: len(ck.Message(value=5))) is TypeError
    assert same(lambda ck: type("Mine", (ck.Message,), {})("t").topic()) == "t"
    assert same(lambda ck: setattr(ck.Message(), "more", 1)) is AttributeError


def test_a_message_does_not_print_what_is_in_it() -> None:
    assert "secret" not in repr(confluent_api.Message("t", 1, 2, b"secret", b"secret"))


def block() -> Any:
    rows = [(b"k%d" % i, b"v%d" % i, 100 + i, [("h", b"x")] if i % 2 else []) for i in range(10)]
    return fastfetch.decode(encode_batch(rows, base_offset=40, leader_epoch=6), topic="t", partition=3).blocks[0]


def test_messages_of_a_block() -> None:
    made = messages(block())
    assert [message.offset() for message in made] == list(range(40, 50))
    assert read_out(made[1])[0] == [
        "t", 3, 41, b"k1", b"v1", [("h", b"x")], None, (1, 101), None, 6, None, b"k1", b"v1"
    ]  # fmt: skip
    assert made[0].headers() is None
    assert [message.offset() for message in messages(block()[4:7])] == [44, 45, 46]


def test_messages_of_a_block_that_is_gone() -> None:
    made = messages(block())
    gc.collect()
    assert [message.value() for message in made] == [b"v%d" % i for i in range(10)]


def test_the_collector_sees_a_message_once_it_holds_more_than_bytes() -> None:
    [message, other, *_] = messages(block())
    assert not gc.is_tracked(message)

    class Loop:
        back: Any = None

    loop = Loop()
    loop.back = message
    message.set_value(loop)
    seen = weakref.ref(loop)
    assert gc.is_tracked(message)
    del message, loop
    gc.collect()
    assert seen() is None
    assert not gc.is_tracked(other)
