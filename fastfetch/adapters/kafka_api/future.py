"""What commit_async() returns: kafka-python's Future, as far as its users see one."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Generator
from typing import Any, Self

from fastfetch.adapters.kafka_api.errors import ERRORS, RetriableError
from fastfetch.engine.pending import Pending
from fastfetch.errors import FastFetchError

__all__ = ["Future"]

log = logging.getLogger("fastfetch.adapters")


class Future:
    """A commit under way.

    Done as soon as the coordinator has answered, whether anybody polls or not. Callbacks run in the thread that uses the
    consumer, in its next poll, commit or close; or at once, if it is done already. What they raise is logged.
    """

    value: Any = None  # of a commit there is nothing to say but that it succeeded

    def __init__(self, pending: Pending[Any]) -> None:
        self._pending = pending
        self._exception: Exception | None = None
        self._callbacks: list[Callable[[Any], object]] = []
        self._errbacks: list[Callable[[Exception], object]] = []

    @property
    def is_done(self) -> bool:
        return self._pending.done

    @property
    def exception(self) -> Exception | None:
        """Why it failed, as kafka-python's error and ours; None while it is not done, and if it succeeded."""
        if self._exception is None and self._pending.done:
            try:
                self._pending.result()
            except FastFetchError as error:
                self._exception = ERRORS.both(error)
        return self._exception

    def succeeded(self) -> bool:
        return self.is_done and self.exception is None

    def failed(self) -> bool:
        return self.is_done and self.exception is not None

    def retriable(self) -> bool:
        return isinstance(self.exception, RetriableError)

    def add_callback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call `f(*args, value)` once it has succeeded."""
        self._callbacks.append(functools.partial(f, *args, **kwargs))
        return self.settle() if self.is_done else self

    def add_errback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call `f(*args, exception)` once it has failed."""
        self._errbacks.append(functools.partial(f, *args, **kwargs))
        return self.settle() if self.is_done else self

    def add_both(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        return self.add_callback(f, *args, **kwargs).add_errback(f, *args, **kwargs)

    def chain(self, future: Any) -> Self:
        """Settle another future with this one: anything that has success(value) and failure(exception)."""
        return self.add_callback(future.success).add_errback(future.failure)

    def __await__(self) -> Generator[Self, None, Any]:
        if not self.is_done:
            yield self
        if self.exception is not None:
            raise self.exception
        return self.value

    def settle(self) -> Self:
        """It is done: call whoever waits, each once."""
        error = self.exception
        waiting: list[Callable[[Any], object]] = self._callbacks if error is None else self._errbacks
        while waiting:
            function = waiting.pop(0)
            try:
                function(self.value if error is None else error)
            except Exception:
                log.exception("a callback of a commit raised")
        return self
