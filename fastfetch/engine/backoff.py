"""Waiting longer after each failure, with a jitter that needs no random source: the engine's answers depend on its inputs
only."""

from __future__ import annotations

__all__ = ["Backoff", "Timer"]


class Backoff:
    """first * 2^(failures - 1), at most `longest`, times 0.8 to 1.2 (as the Java client's)."""

    __slots__ = ("first_ms", "longest_ms", "state")

    def __init__(self, first_ms: int, longest_ms: int, seed: int = 0) -> None:
        self.first_ms = first_ms
        self.longest_ms = max(first_ms, longest_ms)
        self.state = (seed ^ 0x9E3779B97F4A7C15) & (2**64 - 1) or 1

    def delay_ms(self, failures: int) -> int:
        """The wait before the next attempt after `failures` ≥ 1 failures in a row."""
        base = min(self.longest_ms, self.first_ms << min(max(failures, 1) - 1, 30))
        x = self.state  # xorshift64: clients that failed together must not come back together
        x ^= (x << 13) & (2**64 - 1)
        x ^= x >> 7
        x ^= (x << 17) & (2**64 - 1)
        self.state = x
        return max(1, base * (800 + x % 401) // 1000)


class Timer:
    """The earliest moment at which the engine wants to be called again. Filled anew by every pass over the state."""

    __slots__ = ("at_ms",)

    def __init__(self) -> None:
        self.at_ms: int | None = None

    def reset(self) -> None:
        self.at_ms = None

    def at(self, when_ms: int) -> None:
        if self.at_ms is None or when_ms < self.at_ms:
            self.at_ms = when_ms
