"""Errors that are the peer's and ours at once.

A consumer by another client's name raises what scripts for that client catch; a script that has moved on catches ours. So each
error of fastfetch leaves such a consumer as an instance of both classes, of one made for the pair: `except KafkaError` of
kafka.errors catches it, and `except fastfetch.FastFetchError` does, with all of its attributes.

    theirs = Peer("kafka.errors")           as a decorator of a class: the peer's own one of that name, where it is installed
    errors = Translation(classes, by_code)  which class of the peer's an error of ours is
    with errors: ...                        what is raised in here comes out as both
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from fastfetch.errors import BrokerError, FastFetchError

__all__ = ["Peer", "Translation", "as_both"]

T = TypeVar("T")


class Peer:
    """A peer's module, which need not be there.

    As a decorator it returns what the peer has by the name of the decorated class or function, and else the decorated one: below
    it in the file the bases are then the peer's own.
    """

    def __init__(self, module: str) -> None:
        try:
            self.module: Any = importlib.import_module(module)
        except ImportError:
            self.module = None

    def __call__(self, ours: T) -> T:
        name: str = ours.__name__  # type: ignore[attr-defined]
        return getattr(self.module, name, ours)


def as_both(error: FastFetchError, theirs: type[Exception], *args: object, **attributes: object) -> Exception:
    """`error` as an instance of `theirs`, too: the same arguments (unless `args` are given), attributes and cause.

    `theirs` is any class of exceptions, ValueError as well. An error that is one already is returned as it is.
    """
    if isinstance(error, theirs):
        return error
    both = _again(type(error), theirs, args or error.args, {**error.__dict__, **attributes})
    hidden = error.__suppress_context__
    both.__cause__ = error.__cause__ or (None if hidden else error.__context__)
    return both.with_traceback(error.__traceback__)


def _reduce(both: Exception) -> tuple[Any, ...]:
    theirs, ours = type(both).__bases__
    return _again, (ours, theirs, both.args, dict(both.__dict__))


_PAIRS: dict[tuple[type, type], type[Exception]] = {}


def _pair(ours: type[FastFetchError], theirs: type[Exception]) -> type[Exception]:
    pair = _PAIRS.get((ours, theirs))
    if pair is None:
        body = {"__module__": theirs.__module__, "__qualname__": theirs.__qualname__, "__reduce__": _reduce}
        # Two threads may make it at once; only one of the two is ever used.
        pair = _PAIRS.setdefault((ours, theirs), type(theirs.__name__, (theirs, ours), body))
    return pair


def _again(ours: type[FastFetchError], theirs: type[Exception], args: tuple[object, ...], state: dict[str, object]) -> Exception:
    kind = _pair(ours, theirs)
    # Neither __init__ runs: their signatures are anything, and what they would set is here already.
    both = kind.__new__(kind, *args)
    both.args = args
    both.__dict__.update(state)
    return both


class Translation:
    """Which class of the peer's an error of ours is: by its class, the nearest one that is listed; a broker's code by the code.

    `by_code` gets the code and returns the class for it, for one code always the same. As a context manager this holds no state:
    one serves all threads and tasks.
    """

    def __init__(
        self, classes: Mapping[type[FastFetchError], type[Exception]], by_code: Callable[[int], type[Exception]]
    ) -> None:
        self._classes = classes
        self._by_code = by_code

    def theirs(self, error: FastFetchError) -> type[Exception]:
        for kind in type(error).__mro__:
            if kind in self._classes:
                return self._classes[kind]
            if kind is BrokerError:
                return self._by_code(error.code)  # type: ignore[attr-defined]
        raise AssertionError("FastFetchError itself is not listed")

    def both(self, error: FastFetchError) -> Exception:
        """The error to raise, or to hand to a callback, in the place of `error`; one of as_both() is left as it is."""
        return error if type(error) in _PAIRS.values() else as_both(error, self.theirs(error))

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, FastFetchError):
            both = self.both(error)
            if both is not error:
                raise both from both.__cause__
