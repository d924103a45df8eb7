"""Where the command line writes: large chunks to stdout, progress to a terminal on stderr."""

from __future__ import annotations

import os
import select
import sys
import time
from types import TracebackType
from typing import Any

__all__ = ["Output", "Progress", "human_bytes"]

_CHUNK = 256 << 10
_INTERVAL_S = 0.25


class Output:
    """Stdout without a buffer of Python's, which would be flushed into a dead or full pipe when the interpreter ends."""

    def __init__(self) -> None:
        stream = sys.stdout.buffer
        self._raw: Any = getattr(stream, "raw", stream)
        self._chunks: list[bytes] = []
        self._size = 0
        self._poll: Any = None
        try:
            fd = stream.fileno()
        except OSError:  # not a real file: a test's
            return
        self._poll = select.poll()
        self._poll.register(fd, 0)  # only what is always reported: errors and hang-ups

    def write(self, data: bytes) -> None:
        self._chunks.append(data)
        self._size += len(data)
        if self._size >= _CHUNK:
            self.flush()

    def flush(self) -> None:
        data = memoryview(b"".join(self._chunks))
        self._chunks, self._size = [], 0
        while data:
            data = data[self._raw.write(data) or 0 :]

    def raise_if_reader_gone(self) -> None:
        """A pipe whose reader has gone says so only to those who write or ask. Who waits for records has to ask."""
        if self._poll is not None and any(event & (select.POLLERR | select.POLLNVAL) for _, event in self._poll.poll(0)):
            raise BrokenPipeError


class Progress:
    """A line on stderr about how far the reading got, if stderr is a terminal that does not show the records as well."""

    def __init__(self, *, quiet: bool, total: int | None = None) -> None:
        self.records = 0
        self.nbytes = 0
        self._done = 0
        self._total = total
        self._shown = not quiet and sys.stderr.isatty() and not os.isatty(1)
        self._bar: Any = None
        self._next = 0.0

    def __enter__(self) -> Progress:
        if self._shown:
            self._start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._update()
            self._bar.stop()

    def add(self, records: int, nbytes: int, done: int) -> None:
        """`done` offsets of `total` lie behind."""
        self.records += records
        self.nbytes += nbytes
        self._done = done
        if self._bar is not None and time.monotonic() >= self._next:
            self._update()

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = [TextColumn("{task.fields[text]}"), TimeElapsedColumn()]
        if self._total:
            columns[:0] = [BarColumn(), TaskProgressColumn()]
        # Redrawn from here, not from a thread of the bar's own: one thread less to stop when a signal comes.
        self._bar = Bar(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
        self._task = self._bar.add_task("", total=self._total, text="")
        self._started = time.monotonic()
        self._bar.start()

    def _update(self) -> None:
        now = time.monotonic()
        self._next = now + _INTERVAL_S
        elapsed = max(now - self._started, 1e-9)
        text = f"{self.records:,} records  {self.records / elapsed:,.0f}/s  {human_bytes(self.nbytes / elapsed)}/s"
        self._bar.update(self._task, completed=self._done, text=text)
        self._bar.refresh()


def human_bytes(n: float) -> str:
    """1234567 -> "1.2 MB"."""
    for unit in ("B", "kB", "MB"):
        if n < 1000:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} GB"
