"""Clients that take turns, each turn in a process of its own.

Contenders go round by round, in an order that is reversed each time, so that nobody always follows the same neighbour. Round 0 is
the warm-up and does not count: it fills the page cache, lets the broker's JIT settle, and finds out who can't read at all.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TypeVar

from fastfetch.benchmark.clients import CLIENTS, Job, Turn, missing
from fastfetch.benchmark.external import EXTERNAL, ToolError, python

__all__ = ["ReadingError", "absent", "alternate", "gc_off", "run", "take"]

C = TypeVar("C")
T = TypeVar("T")

TURN_SECONDS = 300


class ReadingError(Exception):
    """A client could not read a topic; the message says which and why."""


def alternate(
    contenders: Sequence[C], rounds: int, go: Callable[[C, int], T], *, before: Callable[[C, int], object] | None = None
) -> Iterator[tuple[int, C, T | ReadingError]]:
    """Let each have its turn in rounds 0 to `rounds`: (round, contender, what `go(contender, round)` returned).

    `before` is called with contender and round before each turn. One whose turn raises a ReadingError has no further ones; that
    error comes in place of a result.
    """
    order = list(contenders)
    for turn in range(rounds + 1):
        order.reverse()  # the first round that counts is in the order given
        for contender in list(order):
            if before is not None:
                before(contender, turn)
            try:
                got: T | ReadingError = go(contender, turn)
            except ReadingError as error:
                order.remove(contender)
                got = error
            yield turn, contender, got


@contextlib.contextmanager
def gc_off() -> Iterator[None]:
    """No collection of garbage meanwhile, for what is timed in this process; one before."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def absent(client: str) -> str | None:
    """One sentence on why a client can't be tried here, or None. Builds or fetches what is to be built or fetched for it."""
    if client in EXTERNAL:
        return EXTERNAL[client].missing()
    return missing(client) if client in CLIENTS else f"{client}: no such client"


def take(client: str, job: Job, *, seconds: float = TURN_SECONDS, ready: Callable[[], object] | None = None) -> Turn:
    """One turn of a client, in a process of its own.

    seconds    it may take, at most
    ready      called when the client of a job that follows waits for news

    Raises ReadingError. Whatever else ends this call, an interrupt too, ends the process.
    """
    if client in EXTERNAL:
        try:
            command = EXTERNAL[client].command(job)
        except ToolError as error:
            raise ReadingError(str(error)) from None
    else:
        command = python("fastfetch.benchmark.clients", client, json.dumps(asdict(job)))
    return run(command, f"{client} could not read {job.topic}", seconds, ready)


def run(command: Sequence[str], failure: str, seconds: float, ready: Callable[[], object] | None = None) -> Turn:
    """Run a command that prints a turn, and return it.

    Raises ReadingError, with the last line of stderr behind `failure`.
    """
    # A group of its own: Ctrl-C is for this process, which ends the other and what that has started. No buffer: what is read
    # beyond the line "ready" would be lost to communicate().
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, process_group=0,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    try:
        if ready is not None:
            assert process.stdout is not None
            if select.select([process.stdout], [], [], seconds)[0] and process.stdout.readline() == b"ready\n":
                ready()
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise ReadingError(f"{failure} within {seconds:g} s") from None
    finally:
        _end(process)
    if process.returncode:
        last = (err.decode(errors="replace").strip().splitlines() or [f"it ended with {process.returncode} and said nothing"])[-1]
        raise ReadingError(f"{failure}: {last}")
    try:
        return Turn(**json.loads(out.splitlines()[-1]))  # a library may have had something to say before
    except (ValueError, IndexError, TypeError):
        raise ReadingError(f"{failure}: it ended well, and printed no turn") from None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it if it still runs, and what it has started."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
