"""How large records are, where nobody tells: measured here and there, and assumed in between."""

from __future__ import annotations

import numpy as np

from fastfetch.records import RecordBlock

from .values import OffsetRange

__all__ = ["SAMPLES", "Sizes"]

# In so many places of a partition, and in so many parts of what comes from each.
SAMPLES = 8


class Sizes:
    """Bytes an offset, along a range: measured in some stretches, and taken to be as before in between."""

    def __init__(self, whole: OffsetRange) -> None:
        self.whole = whole
        self.start = self.reached = whole.start
        self._bytes = 0
        self._knots: list[tuple[int, float]] = []  # an offset, and bytes an offset from there on
        self._gap: int | None = None  # index of the knot from which on nothing was measured

    def begin(self, at: int) -> None:
        """A stretch that begins here."""
        self.start = self.reached = at
        self._bytes = 0

    def add(self, block: RecordBlock) -> None:
        step = -(-len(block) // SAMPLES)
        for row in range(0, len(block), step):
            part = block[row : row + step]
            self._knots.append((self.reached, part.nbytes / (part.next_offset - self.reached)))
            self._bytes += part.nbytes
            self.reached = part.next_offset

    def end(self, reached: int) -> None:
        """Up to `reached`, where no more records may be. Between two stretches it is the mean of both."""
        density = self._bytes / (reached - self.start)
        if self._gap is not None:
            at, before = self._knots[self._gap]
            self._knots[self._gap] = at, (before + density) / 2
        self._gap = len(self._knots) + 1
        self._knots += [(self.reached, 0.0), (reached, density)]
        self.reached = reached

    def cut(self, target: int) -> list[OffsetRange]:
        whole = self.whole
        if not self._knots:
            return [whole]
        edges = np.array([0, *(min(at - whole.start, len(whole)) for at, _ in self._knots[1:]), len(whole)])
        # An offset counts at least a byte, so that the sum grows everywhere.
        sums = np.concatenate(([0], np.cumsum(np.diff(edges) * np.array([max(density, 1) for _, density in self._knots]))))
        pieces = min(max(1, -int(-sums[-1] // target)), len(whole))
        cuts = np.interp(np.arange(1, pieces) * (sums[-1] / pieces), sums, edges)
        return whole.cut(whole.start + int(cut) for cut in cuts)
