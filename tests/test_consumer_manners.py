"""How calls of the consumer end: interrupts, signal handlers, forks, outages, callbacks that raise, exits without close.

FASTFETCH_INTERRUPTS sets how many interrupts each form of reading has to survive.
"""

from __future__ import annotations

import dis
import gc
import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import fastfetch
from fastfetch import Consumer, OffsetAndMetadata, TopicPartition
from fastfetch.errors import ClosedError, ConnectionFailedError, CorruptBatchError, FastFetchError, UsageError, WakeupError
from fastfetch.errors import TimeoutError as TimedOut
from fastfetch.testing import Broker, encode_batch
from fastfetch.testing.faults import drop

P0, P1 = (TopicPartition("orders", p) for p in range(2))
SLACK = 0.25  # every call returns by its timeout and this
PACKAGE = str(Path(fastfetch.__file__).parent)
INTERRUPTS = int(os.environ.get("FASTFETCH_INTERRUPTS", "100"))


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        for turn in range(10):
            broker.append("orders", 0, encode_batch([b"%d" % (10 * turn + i) for i in range(10)], codec="lz4"))
        yield broker


def consumer_of(broker: Broker, *partitions: TopicPartition, **settings: Any) -> Consumer:
    settings.setdefault("auto_offset_reset", "earliest")
    settings.setdefault("fetch_max_wait_ms", 50)
    consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, **settings)
    if partitions:
        consumer.assign(partitions)
    return consumer


def read(consumer: Consumer, count: int, seconds: float = 20) -> list[int]:
    out: list[int] = []
    deadline = time.monotonic() + seconds
    while len(out) < count and time.monotonic() < deadline:
        for block in consumer.poll_blocks(timeout_ms=200):
            out += block.offsets.tolist()
    return out


def until(condition: Callable[[], object], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def timed(call: Callable[[], object], limit: float) -> None:
    begun = time.monotonic()
    call()
    assert time.monotonic() - begun < limit + SLACK


# --- interrupts ---------------------------------------------------------------------------------------------------------


class Interrupt(Exception):  # noqa: N818
    """What the handler raises. Like KeyboardInterrupt, but pytest lives on if a test fails to catch it."""


class Interrupts:
    """A thread that keeps sending signals; the handler raises, once each time it is armed.

    Without hooks of the collector meanwhile (hypothesis has one): what is raised within one of them is printed and lost.
    """

    def __init__(self, seed: str) -> None:
        self.armed = False
        self.count = 0
        self._draw = random.Random(seed)
        self._done = threading.Event()
        self._main = threading.get_ident()

    def _raise(self, *_: object) -> None:
        if self.armed:
            self.armed = False
            self.count += 1
            raise Interrupt

    def _send(self) -> None:
        while not self._done.wait(self._draw.uniform(0.0002, 0.002)):
            signal.pthread_kill(self._main, signal.SIGUSR1)

    def __enter__(self) -> Interrupts:
        self._hooks = gc.callbacks[:]
        gc.callbacks.clear()
        self._before = signal.signal(signal.SIGUSR1, self._raise)
        self._switch = sys.getswitchinterval()
        sys.setswitchinterval(5e-5)  # or the thread that interrupts hardly ever runs
        self._thread = threading.Thread(target=self._send)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.armed = False
        sys.setswitchinterval(self._switch)
        self._done.set()
        self._thread.join()
        signal.signal(signal.SIGUSR1, self._before)
        gc.callbacks[:] = self._hooks


# Each reads some, adds to `got`, and is armed from before the call until what it returned has a name.


def by_poll(consumer: Consumer, interrupts: Interrupts, got: list[int]) -> None:
    interrupts.armed = True
    records = consumer.poll(timeout_ms=1_000, max_records=37)
    interrupts.armed = False
    got += [record.offset for record in records.get(P0, [])]


def by_poll_blocks(consumer: Consumer, interrupts: Interrupts, got: list[int]) -> None:
    interrupts.armed = True
    blocks = consumer.poll_blocks(timeout_ms=1_000, max_records=37)
    interrupts.armed = False
    got += [offset for block in blocks for offset in block.offsets.tolist()]


def by_iteration(consumer: Consumer, interrupts: Interrupts, got: list[int]) -> None:
    interrupts.armed = True
    for record in consumer:
        interrupts.armed = False
        got.append(record.offset)
        if record.offset == 2_999:
            return
        interrupts.armed = True


def by_blocks(consumer: Consumer, interrupts: Interrupts, got: list[int]) -> None:
    interrupts.armed = True
    for block in consumer.blocks():
        interrupts.armed = False
        got += block.offsets.tolist()
        if got[-1] == 2_999:
            return
        interrupts.armed = True


@pytest.mark.parametrize("form", [by_poll, by_poll_blocks, by_iteration, by_blocks])
def test_interrupts_at_random_moments_lose_and_repeat_nothing(
    form: Callable[[Consumer, Interrupts, list[int]], None],
) -> None:
    """A signal handler that raises anywhere inside: what the caller did not get is delivered next."""
    with Broker() as broker:
        broker.create_topic("orders")
        for _ in range(300):
            broker.append("orders", 0, encode_batch([b"x"] * 10))
        deadline = time.monotonic() + 240
        with consumer_of(broker, P0, max_poll_records=7) as consumer, Interrupts(form.__name__) as interrupts:
            while interrupts.count < INTERRUPTS and time.monotonic() < deadline:
                consumer.seek(P0, 0)
                got: list[int] = []
                while not got or (got[-1] < 2_999 and consumer.position(P0) < 3_000):
                    with suppress(Interrupt):
                        form(consumer, interrupts, got)
                assert got == list(range(3_000))
        assert interrupts.count >= INTERRUPTS, "the interrupts never hit"


class EveryPoint:
    """Raises at the n-th point at which CPython may run a signal handler: a function begins, a call of C code has returned, a
    loop turns."""

    CHECKED = ("RESUME", "JUMP_BACKWARD", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "CALL_INTRINSIC_1")

    def __init__(self, at: int) -> None:
        self.left = at
        self.has_raised = False
        self._last: dict[FrameType, str] = {}  # the instruction that each frame is at
        self._names: dict[CodeType, dict[int, str]] = {}

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE) or "/net/" in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            before = self._last.get(frame)
            if frame.f_code not in self._names:
                self._names[frame.f_code] = {i.offset: i.opname for i in dis.get_instructions(frame.f_code)}
            self._last[frame] = self._names[frame.f_code][frame.f_lasti]
            if before in self.CHECKED:
                self.left -= 1
                if self.left == 0:
                    self.has_raised = True
                    raise Interrupt
        elif event == "return" and frame.f_back is not None:
            self._last[frame.f_back] = "of Python code"  # no handler runs between its return and the next instruction
        return self._trace

    def __enter__(self) -> EveryPoint:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)


def one_record(consumer: Consumer) -> list[int]:
    for record in consumer:
        offset = record.offset
        return [offset]
    return []


def one_block(consumer: Consumer) -> list[int]:
    for block in consumer.blocks():
        found = block
        return found.offsets.tolist()  # type: ignore[no-any-return]
    return []


def some_records(consumer: Consumer) -> list[int]:
    records = consumer.poll(0, 4)
    return [record.offset for record in records.get(P0, [])]


def some_blocks(consumer: Consumer) -> list[int]:
    blocks = consumer.poll_blocks(0, 4)
    return [offset for block in blocks for offset in block.offsets.tolist()]


@pytest.mark.parametrize("call", [one_record, one_block, some_records, some_blocks])
def test_an_interrupt_at_every_point_of_a_call_loses_and_repeats_nothing(call: Callable[[Consumer], list[int]]) -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        for _ in range(6):
            broker.append("orders", 0, encode_batch([b"x"] * 3))
        # A block for each batch, some of them cut by hand-outs, and the last record of one handed out by iteration.
        with consumer_of(broker, P0, max_partition_fetch_bytes=1) as consumer:
            for start in (0, 2):
                at = points = 0
                while at <= points:
                    at += 1
                    consumer.seek(P0, start)
                    state = consumer._engine.subscription.get(P0, "test")
                    until(lambda: state.chunks and state.chunks[-1].next_offset == 18)  # noqa: B023
                    got: list[int] = []
                    with suppress(Interrupt), EveryPoint(at) as interrupt:
                        got = call(consumer)
                    if interrupt.has_raised:
                        points = at
                        assert got == []
                    while consumer.position(P0) < 18:
                        got += some_blocks(consumer)
                    assert got == list(range(start, 18)), f"point {at}"
                assert points >= 15, "the points were not found"


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # sockets that no thread has yet: they close themselves
def test_an_interrupt_at_every_point_of_the_construction_leaves_no_thread() -> None:
    at, raised = 0, True
    while raised:
        at += 1
        consumer = None
        with suppress(Interrupt), EveryPoint(at) as interrupt:
            consumer = Consumer(bootstrap_servers="127.0.0.1:9", client_id="unfinished")
        raised = interrupt.has_raised
        assert raised == (consumer is None)
    assert consumer is not None
    consumer.close()
    assert at > 50, "the points were not found"
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "fastfetch-unfinished"])
    gc.collect()  # those sockets, while their warning is ignored


def test_interrupts_in_any_call_leave_a_usable_consumer(broker: Broker) -> None:
    calls: list[Callable[[Consumer], object]] = [
        lambda c: c.assign([P0, P1]),
        lambda c: c.assign([P0]),
        lambda c: c.seek(P0, 50),
        lambda c: c.seek_to_beginning(P0),
        lambda c: c.pause(P0),
        lambda c: c.resume(P0),
        lambda c: c.position(P0),
        lambda c: c.commit({P0: 5}),
        lambda c: c.commit_async({P0: 6}),
        lambda c: c.committed([P0]),
        lambda c: c.end_offsets([P0, P1]),
        lambda c: c.offsets_for_times({P0: 0}),
        lambda c: c.topics(),
        lambda c: c.metrics(),
        lambda c: c.poll(timeout_ms=20),
    ]
    draw = random.Random(5)
    with consumer_of(broker, P0, group_id="g", enable_auto_commit=False) as consumer, Interrupts("calls") as interrupts:
        deadline = time.monotonic() + 60
        while interrupts.count < INTERRUPTS and time.monotonic() < deadline:
            try:
                interrupts.armed = True
                draw.choice(calls)(consumer)
            except Interrupt:
                pass
            interrupts.armed = False
        assert interrupts.count >= INTERRUPTS
        consumer.assign([P0])
        consumer.resume(P0)
        consumer.seek(P0, 0)
        assert read(consumer, 100) == list(range(100))
        consumer.commit({P0: 77})
        assert consumer.committed([P0]) == {P0: OffsetAndMetadata(77)}


def test_an_interrupted_close_still_ends_the_thread(broker: Broker) -> None:
    with Interrupts("close") as interrupts:
        for turn in range(20):
            consumer = consumer_of(broker, P0, group_id=f"g{turn}")
            read(consumer, 1)
            client = consumer._client
            begun = time.monotonic()
            try:
                interrupts.armed = True
                consumer.close()
            except Interrupt:
                pass
            interrupts.armed = False
            assert time.monotonic() - begun < 5
            consumer.close()  # an interrupt may have come before it began
            until(lambda: not client.is_alive)  # noqa: B023


LEAVING = """
import signal, sys, time
from fastfetch import Consumer, TopicPartition
signal.signal(signal.SIGINT, signal.default_int_handler)
tp = TopicPartition("orders", 0)
try:
    with Consumer(bootstrap_servers=sys.argv[1], auto_offset_reset="earliest", group_id="g") as consumer:
        consumer.assign([tp])
        while not consumer.poll(timeout_ms=100):
            pass
        consumer.commit_async({tp: 1})
        print("ready", flush=True)
        consumer.commit({tp: 2})
except KeyboardInterrupt:
    print("out", flush=True)
"""


def test_ctrl_c_leaves_a_with_block_at_once_when_nobody_answers(broker: Broker) -> None:
    broker.on("OffsetCommit", drop(), times=None)
    process = subprocess.Popen([sys.executable, "-c", LEAVING, broker.bootstrap_servers], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "out\n"
    assert time.monotonic() - begun < 0.2 + 2 * SLACK
    assert process.wait(10) == 0
    process.stdout.close()


# --- signal handlers ----------------------------------------------------------------------------------------------------


@contextmanager
def on_signal(handler: Callable[[], object]) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, lambda *_: handler())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_close_and_wakeup_from_a_handler_that_interrupted_the_holder_of_the_lock(broker: Broker) -> None:
    consumer = consumer_of(broker, P0, group_id="g")
    read(consumer, 100)
    with on_signal(consumer.wakeup), consumer._client.lock:
        signal.raise_signal(signal.SIGUSR1)
    with pytest.raises(WakeupError):
        consumer.poll()
    with on_signal(consumer.close), consumer._client.lock:
        timed(lambda: signal.raise_signal(signal.SIGUSR1), 0)
    with pytest.raises(ClosedError):
        consumer.poll()
    until(lambda: not consumer._client.is_alive)
    assert broker.committed("g") == {}, "not while a call is halfway; what is not committed comes again"


def test_close_from_a_handler_commits_and_ends_the_call_that_waits(broker: Broker) -> None:
    consumer = consumer_of(broker, P0, group_id="g")
    read(consumer, 100)
    with on_signal(consumer.close):
        timer = threading.Timer(0.2, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR1))
        timer.start()
        begun = time.monotonic()
        with pytest.raises(ClosedError):
            consumer.poll(timeout_ms=30_000)
        assert time.monotonic() - begun < 0.2 + 2 * SLACK
        timer.join()
    assert broker.committed("g")[P0].offset == 100
    assert not consumer._client.is_alive


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.poll(timeout_ms=10_000),
        lambda c: c.poll_blocks(timeout_ms=2**63),
        lambda c: next(c.blocks()),
        lambda c: next(iter(c)),
        lambda c: c.position(P1),
        lambda c: c.commit({P0: 1}),
        lambda c: c.committed([P0]),
        lambda c: c.end_offsets([P0], timeout_ms=2**63),
        lambda c: c.offsets_for_times({P0: 0}),
        lambda c: c.partitions_for("other"),
        lambda c: c.topics(),
    ],
)
@pytest.mark.parametrize("ending", [WakeupError, ClosedError])
def test_wakeup_and_close_from_another_thread_end_any_call(
    broker: Broker, call: Callable[[Consumer], object], ending: type[FastFetchError]
) -> None:
    consumer = consumer_of(broker, P0, group_id="g", auto_offset_reset="latest", enable_auto_commit=False)
    consumer.position(P0)
    broker.on("*", drop(), times=None)
    consumer.assign([P0, P1])
    end = consumer.wakeup if ending is WakeupError else lambda: consumer.close(timeout_ms=500)
    timer = threading.Timer(0.1, end)
    timer.start()
    begun = time.monotonic()
    with pytest.raises(ending):
        call(consumer)
    assert time.monotonic() - begun < 0.1 + 2 * SLACK
    timer.join()
    timed(lambda: consumer.close(timeout_ms=100), 0.2)


# --- forks --------------------------------------------------------------------------------------------------------------


def in_a_child(work: Callable[[], object]) -> str:
    """What `work` returns or raises in a forked child, and how the child ended."""
    reader, writer = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            writer.send(str(work()))
        except BaseException as failure:
            writer.send(f"{type(failure).__name__}: {failure}")
        os._exit(0)
    writer.close()
    try:
        said: str = reader.recv()
    except EOFError:
        said = "nothing"
    reader.close()
    assert os.waitpid(pid, 0)[1] == 0, f"the child did not end by itself; it said {said}"
    return said


FORKED: list[Callable[[Consumer], object]] = [
    lambda c: c.poll(timeout_ms=1_000),
    lambda c: c.poll_blocks(),
    lambda c: next(iter(c)),
    lambda c: next(c.blocks()),
    lambda c: c.position(P0),
    lambda c: c.commit(),
    lambda c: c.end_offsets([P0]),
    lambda c: c.assign([P0]),
    lambda c: c.seek(P0, 0),
    lambda c: c.pause(P0),
    lambda c: c.metrics(),
    lambda c: c.assignment(),
]


def test_a_forked_child_is_refused_even_if_the_lock_was_held_at_the_fork(broker: Broker) -> None:
    with consumer_of(broker, P0, group_id="g") as consumer:
        read(consumer, 100)
        consumer.end_offsets([P0])
        consumer.commit()
        held, let_go = threading.Event(), threading.Event()

        def hold() -> None:
            with consumer._client.lock:
                held.set()
                let_go.wait(30)

        def work() -> int:
            for call in FORKED:
                with pytest.raises(UsageError, match="before the fork"):
                    call(consumer)
            consumer.wakeup()
            consumer.close()
            consumer.close()
            return len(FORKED)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(10)
        try:
            assert in_a_child(work) == str(len(FORKED))
        finally:
            let_go.set()
            thread.join()
        consumer.seek(P0, 0)
        assert read(consumer, 100) == list(range(100))
        consumer.commit()
        assert consumer.metrics()["connections_lost"] == 0, "the child touched the parent's sockets"


def test_a_loop_over_records_ends_in_a_child_that_is_forked_inside_it(broker: Broker) -> None:
    with consumer_of(broker, P0) as consumer:
        records = iter(consumer)
        assert [next(records).offset for _ in range(10)] == list(range(10))
        assert "before the fork" in in_a_child(lambda: next(records))
        assert [next(records).offset for _ in range(90)] == list(range(10, 100))


@pytest.mark.parametrize("ending", ["collected", "exit", "multiprocessing"])
def test_a_child_that_ends_leaves_the_parents_consumer_alone(broker: Broker, ending: str) -> None:
    """In a process of its own, where warnings show: the child collects the consumer, and the interpreter ends in it."""
    code = """if True:
        import gc, multiprocessing, os, sys, warnings
        from fastfetch import Consumer, TopicPartition

        warnings.simplefilter("error", ResourceWarning)
        tp = TopicPartition("orders", 0)
        consumer = Consumer(bootstrap_servers=sys.argv[1], auto_offset_reset="earliest", group_id="g")
        consumer.assign([tp])
        while consumer.position(tp) < 100:
            consumer.poll(timeout_ms=1000)
        consumer.end_offsets([tp])
        consumer.commit()

        if sys.argv[2] == "multiprocessing":
            child = multiprocessing.get_context("fork").Process(target=gc.collect)
            child.start()
            child.join(20)
            assert child.exitcode == 0, child.exitcode
        else:
            pid = os.fork()
            if pid == 0:
                if sys.argv[2] == "collected":
                    del consumer
                    gc.collect()
                sys.exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        consumer.seek(tp, 50)
        assert consumer.poll(timeout_ms=5000)[tp][0].offset == 50
        consumer.commit()
        assert consumer.metrics()["connections_lost"] == 0
        consumer.close()
        """
    done = subprocess.run(
        [sys.executable, "-c", code, broker.bootstrap_servers, ending], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- deadlines ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outage", ["silent", "down"])
def test_every_call_returns_by_its_timeout_during_an_outage(broker: Broker, outage: str) -> None:
    consumer = consumer_of(broker, P0, group_id="g", auto_offset_reset="latest", enable_auto_commit=False)
    consumer.position(P0)
    if outage == "silent":
        broker.on("*", drop(), times=None)
    else:
        broker.kill_node(1)
        time.sleep(0.2)
    consumer.seek_to_end(P0)
    for ms in (0, 150):
        for poll in (
            lambda: consumer.poll(timeout_ms=ms),  # noqa: B023
            lambda: consumer.poll_blocks(timeout_ms=ms),  # noqa: B023
            lambda: list(consumer.blocks(timeout_ms=ms)),  # noqa: B023
        ):
            timed(poll, ms / 1000)
        for question in (
            lambda: consumer.position(P0, timeout_ms=ms),  # noqa: B023
            lambda: consumer.commit({P0: 1}, timeout_ms=ms),  # noqa: B023
            lambda: consumer.committed([P0], timeout_ms=ms),  # noqa: B023
            lambda: consumer.beginning_offsets([P0], timeout_ms=ms),  # noqa: B023
            lambda: consumer.end_offsets([P0], timeout_ms=ms),  # noqa: B023
            lambda: consumer.offsets_for_times({P0: 0}, timeout_ms=ms),  # noqa: B023
            lambda: consumer.partitions_for("other", timeout_ms=ms),  # noqa: B023
            lambda: consumer.topics(timeout_ms=ms),  # noqa: B023
        ):
            begun = time.monotonic()
            with pytest.raises((TimedOut, ConnectionFailedError)):
                question()
            assert time.monotonic() - begun < ms / 1000 + SLACK
    for plain in (
        consumer.assignment, consumer.subscription, consumer.paused, consumer.metrics, consumer.wakeup,
        lambda: consumer.pause(P0), lambda: consumer.resume(P0), lambda: consumer.seek(P0, 3),
        consumer.seek_to_beginning, lambda: consumer.commit_async({P0: 3}), lambda: consumer.assign([P0, P1]),
    ):  # fmt: skip
        timed(plain, 0)
    timed(lambda: consumer.close(timeout_ms=300), 0.3)
    assert not consumer._client.is_alive


# --- callbacks ----------------------------------------------------------------------------------------------------------


def test_statistics_come_from_within_polls_and_iteration_with_no_lock_held(broker: Broker) -> None:
    heard: list[dict[str, Any]] = []

    def on_stats(metrics: dict[str, Any]) -> None:
        def look() -> None:
            with consumer._client.lock:
                free.append(True)

        free: list[bool] = []
        thread = threading.Thread(target=look)
        thread.start()
        thread.join(5)
        assert free, "the lock is held"
        assert consumer.metrics().keys() == metrics.keys()
        heard.append(metrics)

    with consumer_of(broker, P0, on_stats=on_stats, statistics_interval_ms=1) as consumer:
        assert heard == []
        assert read(consumer, 100) == list(range(100))
        time.sleep(0.005)
        consumer.poll()
        assert heard[-1]["records"] == 100
        assert heard[-1]["lag"] == {P0: 0}
        count = len(heard)
        consumer.seek(P0, 0)
        time.sleep(0.005)
        for record in consumer:
            if record.offset == 99:
                break
        assert len(heard) > count
        with pytest.raises(UsageError, match="another thread"):
            in_another_thread(consumer)
    with consumer_of(broker, P0, on_stats=heard.append, statistics_interval_ms=60_000) as consumer:
        heard.clear()
        read(consumer, 100)
        assert heard == [], "not yet"


def in_another_thread(consumer: Consumer) -> None:
    """Calls made by callbacks did not give up the call that they are part of."""
    said: list[BaseException] = []

    def call() -> None:
        try:
            consumer.assignment()
        except UsageError as failure:
            said.append(failure)

    def callback(offsets: object, failure: object) -> None:
        consumer.assignment()
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    consumer._engine.commits.finished_async.append(done_commit(callback))
    consumer.poll()
    raise said[0]


def done_commit(callback: Callable[..., object]) -> Any:
    from fastfetch.engine.commits import Commit

    commit = Commit(0, is_async=True)
    commit.pending.resolve(None)
    commit.callback = callback
    return commit


def test_a_poll_that_waits_commits_and_tells_statistics_meanwhile(broker: Broker) -> None:
    heard: list[dict[str, Any]] = []
    settings = {"group_id": "g", "auto_commit_interval_ms": 10, "on_stats": heard.append, "statistics_interval_ms": 10}
    with consumer_of(broker, P0, **settings) as consumer:
        [block] = consumer.poll_blocks(timeout_ms=5_000)
        heard.clear()
        while block.next_offset < 100:
            [block] = consumer.poll_blocks(timeout_ms=5_000)
        before = len(heard)
        consumer.poll(timeout_ms=2_500)
        assert broker.committed("g")[P0].offset == 100
        assert 1 <= len(heard) - before <= 4, "about one a second, and no busy loop"


@pytest.mark.parametrize("form", ["poll", "poll_blocks", "iteration"])
@pytest.mark.parametrize("what", ["on_stats", "on_skipped", "commit_async"])
def test_what_a_callback_raises_comes_out_and_nothing_is_lost(broker: Broker, what: str, form: str) -> None:
    bad = bytearray(encode_batch([b"bad"] * 5))
    bad[-3] ^= 1
    broker.append("orders", 0, bytes(bad))
    broker.append("orders", 0, encode_batch([b"after"] * 5))
    told: list[object] = []

    def fails(*arguments: object) -> None:
        told.append(arguments[0])
        raise ZeroDivisionError

    settings: dict[str, Any] = {"on_corrupt": "skip", "statistics_interval_ms": 20}
    if what != "commit_async":
        settings[what] = fails
    got: list[int] = []
    raised = 0
    with consumer_of(broker, P0, group_id="g", enable_auto_commit=False, **settings) as consumer:
        deadline = time.monotonic() + 20
        while (len(got) < 105 or not raised) and time.monotonic() < deadline:
            if what == "commit_async":
                consumer.commit_async({P1: len(got)}, fails)
            try:
                if form == "poll":
                    got += [r.offset for r in consumer.poll(timeout_ms=100, max_records=7).get(P0, [])]
                elif form == "poll_blocks":
                    got += [o for b in consumer.poll_blocks(timeout_ms=100, max_records=7) for o in b.offsets.tolist()]
                else:
                    for record in consumer:
                        got.append(record.offset)
                        if len(got) >= 105:
                            break
            except ZeroDivisionError:
                raised += 1
            if len(got) >= 105 and not raised:
                consumer.seek(P0, 105)  # something to wait for, until the callback is due
                got = got[:100]
        assert got == [*range(100), *range(105, 110)]
        assert raised
        if what == "on_skipped":
            assert [each.base_offset for each in told if isinstance(each, CorruptBatchError)] == [100]
        until(lambda: not consumer._engine.commits.is_busy)
        consumer._engine.commits.finished_async.clear()  # they would raise out of close


# --- endings ------------------------------------------------------------------------------------------------------------


def test_a_consumer_in_a_cycle_is_collected_quietly(broker: Broker) -> None:
    """Also if its callbacks know it."""

    class App:
        def told(self, metrics: object) -> None: ...

    app = App()
    consumer = app.consumer = consumer_of(broker, P0, on_stats=app.told, on_skipped=app.told)  # type: ignore[attr-defined]
    del app
    read(consumer, 10)
    client = consumer._client
    cycle: dict[str, Any] = {"consumer": consumer}
    cycle["self"] = cycle
    with pytest.warns(ResourceWarning, match="unclosed"):  # noqa: PT031 - both belong to it
        del consumer, cycle
        gc.collect()
    until(lambda: not client.is_alive)


@pytest.mark.parametrize("how", ["idle", "polling in a thread", "commit under way"])
def test_the_interpreter_ends_quietly_whatever_is_under_way(broker: Broker, how: str) -> None:
    if how == "commit under way":
        broker.on("OffsetCommit", drop(), times=None)
    code = """if True:
        import sys, threading, time
        from fastfetch import Consumer, TopicPartition

        consumer = Consumer(bootstrap_servers=sys.argv[1], auto_offset_reset="earliest", group_id="g")
        consumer.assign([TopicPartition("orders", 0)])
        assert consumer.poll(timeout_ms=5000)
        if sys.argv[2] == "polling in a thread":
            threading.Thread(target=consumer.poll, args=(60_000,), daemon=True).start()
            time.sleep(0.1)
        elif sys.argv[2] == "commit under way":
            consumer.commit_async(callback=print)
            consumer.poll(timeout_ms=100)
        """
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, broker.bootstrap_servers, how], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert time.monotonic() - begun < 20


def test_close_with_all_the_time_in_the_world(broker: Broker) -> None:
    consumer = consumer_of(broker, P0, group_id="g")
    read(consumer, 100)
    timed(lambda: consumer.close(timeout_ms=2**63), 5)
    assert not consumer._client.is_alive
    assert broker.committed("g")[P0].offset == 100


def test_close_says_that_a_commit_was_not_answered_and_does_not_raise(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "fastfetch")
    consumer = consumer_of(broker, P0, group_id="g")
    read(consumer, 100)
    broker.on("OffsetCommit", drop(), times=None)
    timed(lambda: consumer.close(timeout_ms=200), 0.2)
    assert not consumer._client.is_alive
    assert "may be stored or not" in caplog.text


def test_close_does_not_wait_for_a_thread_that_has_ended(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = consumer_of(broker, P0, group_id="g")
    read(consumer, 100)
    broker.on("OffsetCommit", drop(), times=None)
    consumer.commit_async()

    def broken(now_ms: int) -> None:
        raise RuntimeError("planted")

    timer = threading.Timer(0.2, monkeypatch.setattr, (consumer._engine, "pump", broken))
    timer.start()
    timed(consumer.close, 5)
    timer.join()
    assert not consumer._client.is_alive
