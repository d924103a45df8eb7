"""Threads of one decode(): none of them outlives the call, also when a signal handler raises in the middle of it."""

from __future__ import annotations

import _thread
import gc
import random
import signal
from types import FrameType

import pytest
from building import LZ4, batch, record

import fastfetch


class Interrupt(Exception):  # noqa: N818 - stands for KeyboardInterrupt
    pass


def large() -> bytes:
    rng = random.Random(1)
    one = [rng.randbytes(1000) for _ in range(100)]
    return b"".join(batch([record(i, value=value) for i, value in enumerate(one)], base=n * 100, codec=LZ4) for n in range(60))


def test_an_interrupt_waits_until_no_thread_reads_the_bytes():
    data = large()
    expected = fastfetch.decode(data).next_offset
    interrupted = 0

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    gc.disable()  # what is raised within a hook of the collector (hypothesis has one) is printed and lost
    try:
        for turn in range(300):
            threads = _thread._count()
            copy = bytearray(data)  # freed, and often reused, as soon as the call is over
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0001 + turn % 30 * 0.0001)
                decoded = fastfetch.decode(copy, threads=3)
                signal.setitimer(signal.ITIMER_REAL, 0)
                assert (decoded.next_offset, decoded.error) == (expected, None)
            except Interrupt:
                interrupted += 1
            del copy
            assert _thread._count() <= threads + 2  # they have done their work; one may still be on its way out
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    assert interrupted, "no interrupt arrived in time to test anything"


def test_where_no_thread_can_be_had_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    data = large()
    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    assert fastfetch.decode(data, threads=3).next_offset == fastfetch.decode(data).next_offset == 6000
