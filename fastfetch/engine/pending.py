"""A value that an answer will bring. No lock and no waiting in here: whoever waits does so on the owner's condition."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["Pending"]

T = TypeVar("T")


class Pending(Generic[T]):
    """Settled at most once; what comes later is ignored. A caller whose time is up cancels it, and the engine drops the
    question.

    trouble     why there is no answer yet, as the end of a sentence that says so
    """

    __slots__ = ("_error", "_value", "done", "trouble")

    def __init__(self) -> None:
        self.done = False
        self.trouble = ""
        self._value: T | None = None
        self._error: Exception | None = None

    def resolve(self, value: T) -> None:
        if not self.done:
            self.done, self._value = True, value

    def fail(self, error: Exception) -> None:
        if not self.done:
            self.done, self._error = True, error

    def cancel(self) -> None:
        """Nobody waits any more."""
        self.done = True

    def result(self) -> T:
        """The value; raises the error it was settled with instead."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]
