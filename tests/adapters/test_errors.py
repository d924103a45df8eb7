"""Errors of two packages at once: caught by either, with all that each of the two has."""

from __future__ import annotations

import copy
import pickle
import sys
import traceback
from types import ModuleType

import pytest

from fastfetch.adapters.errors import Peer, Translation, as_both
from fastfetch.errors import BrokerError, ConfigError, CrcMismatchError, FastFetchError, UsageError, broker_error
from fastfetch.errors import TimeoutError as TimedOut


class TheirError(Exception):
    retriable = False

    def __str__(self) -> str:
        return f"Their: {super().__str__()}"


class TheirTimeoutError(TheirError):
    def __init__(self) -> None:
        raise AssertionError("the signature of theirs is anything")


class TheirNumberedError(TheirError):
    errno = 3


ERRORS = Translation({FastFetchError: TheirError, TimedOut: TheirTimeoutError}, lambda code: TheirNumberedError)


def caught(error: FastFetchError) -> Exception:
    with pytest.raises(TheirError) as caught, ERRORS:
        raise error
    return caught.value


def test_an_error_is_caught_by_either() -> None:
    error = caught(TimedOut("too late"))
    assert isinstance(error, TheirTimeoutError)
    assert isinstance(error, TimedOut)
    assert str(error) == "Their: too late"
    assert error.args == ("too late",)
    assert type(error).__name__ == "TheirTimeoutError"
    assert type(error).__module__ == __name__


def test_attributes_and_properties_of_ours_stay() -> None:
    ours = CrcMismatchError("CRC mismatch", topic="orders", partition=3, base_offset=1042, stored=1, computed=2)
    error = caught(ours)
    assert isinstance(error, CrcMismatchError)
    assert (error.topic, error.base_offset, error.stored) == ("orders", 1042, 1)
    assert str(error) == f"Their: {ours}"
    numbered = caught(broker_error(3, "asked for orders"))
    assert isinstance(numbered, BrokerError)
    assert (numbered.code, numbered.name) == (3, "UNKNOWN_TOPIC_OR_PARTITION")


def test_the_nearest_class_counts_and_codes_go_by_the_code() -> None:
    assert type(caught(ConfigError("x"))).__name__ == "TheirError"
    assert type(caught(broker_error(3))).__name__ == "TheirNumberedError"


def test_the_same_pair_is_the_same_class() -> None:
    assert type(caught(TimedOut("a"))) is type(caught(TimedOut("b")))


def test_cause_and_traceback_stay() -> None:
    def inner() -> None:
        try:
            raise KeyError("k")
        except KeyError as error:
            raise TimedOut("late") from error

    with pytest.raises(TheirTimeoutError) as caught, ERRORS:
        inner()
    assert isinstance(caught.value.__cause__, KeyError)
    shown = "".join(traceback.format_exception(caught.value))
    assert "in inner" in shown
    assert shown.count("Their: late") == 1


def test_what_it_happened_in_is_told() -> None:
    try:
        raise KeyError("k")
    except KeyError:
        with pytest.raises(TheirTimeoutError) as caught, ERRORS:
            raise TimedOut("late")  # noqa: B904
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt()])
def test_others_pass(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, ERRORS:
        raise error
    assert caught.value is error


def test_any_class_of_exceptions_will_do() -> None:
    error = as_both(UsageError("negative"), ValueError)
    assert isinstance(error, ValueError)
    assert isinstance(error, UsageError)
    with pytest.raises(ValueError, match="negative") as caught, ERRORS:
        raise error
    assert caught.value is error, "made on purpose: not to be translated"
    config = ConfigError("it is a ValueError anyway")
    assert as_both(config, ValueError) is config


def test_other_arguments_and_more_attributes() -> None:
    error = as_both(broker_error(3, "orders"), TheirError, {"code": 3}, what="more")
    assert error.args == ({"code": 3},)
    assert error.what == "more"
    assert error.code == 3


@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_it_survives_copying_and_pickling(again: object) -> None:
    error = caught(broker_error(3, "orders"))
    same = again(error)  # type: ignore[operator]
    assert type(same) is type(error)
    assert same.args == error.args
    assert vars(same) == vars(error)
    assert str(same) == str(error)


def test_a_peer_that_is_there_and_one_that_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("some_peer")
    module.TheirError = KeyError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "some_peer", module)
    there, missing = Peer("some_peer"), Peer("no_such_peer.errors")
    assert there(TheirError) is KeyError
    assert there(TheirTimeoutError) is TheirTimeoutError
    assert there.module is module
    assert missing(TheirError) is TheirError
    assert missing.module is None
