"""Memory that goes back when nobody needed it for a minute: records read ahead of partitions that stay paused, and buffers that
are kept warm for the next answer.

The clock is the engine's: a pass that is made anyway notes when something became idle, and one wake-up is asked for, at the
moment it goes.
"""

from __future__ import annotations

from fastfetch.engine.actions import Action, TrimMemory
from fastfetch.engine.backoff import Timer
from fastfetch.engine.readahead import ReadAhead
from fastfetch.engine.subscription import PartitionState

__all__ = ["IDLE_MS", "IdleMemory"]

IDLE_MS = 60_000


class IdleMemory:
    """`pump` once in every pass, before anything is fetched into the room that it may make."""

    def __init__(self, readahead: ReadAhead, actions: list[Action], timer: Timer) -> None:
        self._readahead = readahead
        self._actions = actions
        self._timer = timer
        self._paused: dict[PartitionState, int | None] = {}  # since when, oldest first; None: since after the last pass
        self._used_at_ms: int | None = None  # None: nothing is kept warm

    def used(self, now_ms: int) -> None:
        """Something was decoded."""
        self._used_at_ms = now_ms

    def pause(self, state: PartitionState) -> None:
        self._paused.setdefault(state, None)

    def resume(self, state: PartitionState) -> None:
        self._paused.pop(state, None)

    def pump(self, now_ms: int) -> None:
        for state in reversed(self._paused):
            if self._paused[state] is not None:
                break
            self._paused[state] = now_ms
        while self._paused:
            state, since = next(iter(self._paused.items()))
            if since is not None and now_ms - since < IDLE_MS:
                self._timer.at(since + IDLE_MS)
                break
            del self._paused[state]
            # An error that stands behind the records is told behind them: they stay.
            if state.chunks and state.error is None:
                self._readahead.give_back(state)
                if self._used_at_ms is None:
                    self._used_at_ms = now_ms - IDLE_MS  # what has become free now is not kept either
        if self._used_at_ms is None:
            return
        if now_ms - self._used_at_ms < IDLE_MS:
            self._timer.at(self._used_at_ms + IDLE_MS)
        else:
            self._used_at_ms = None
            self._actions.append(TrimMemory())
