"""The one background thread of a client: receive, hand in to the engine, carry out what it asks for.

    lock:   events in, pump, actions out          a few microseconds to tens of them; callers' calls take the same lock
    free:   sends, then some decoding, then wait for sockets

Requests leave before anything is decoded, so the broker works while this thread does. Decoding happens with neither this lock
nor, inside `decode`, the GIL; between two portions of it the sockets get their turn.

A caller waits on something of its own (a `Waiter`), outside this lock: a thread on a `threading.Lock`, a task on a future.
CPython lets signal handlers run while a thread waits for a lock, and what they raise (KeyboardInterrupt) gets out of it at once;
nothing is held meanwhile, so nothing can stay locked. `threading.Condition`, being written in Python, could be interrupted
between two of its own steps.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections import deque
from functools import partial
from typing import Literal, Protocol

from fastfetch.engine.actions import Action, CloseConnection, DecodeRecords, OpenConnection, SendBytes, TrimMemory
from fastfetch.engine.client import Engine
from fastfetch.engine.events import BytesArrived, ConnectionLost, ConnectionOpened, Event, FrameArrived, RecordsDecoded
from fastfetch.net.connection import Connection, ConnectionFault
from fastfetch.net.frames import FrameBuffers
from fastfetch.net.resolver import Address, Resolver
from fastfetch.records import decode, trim

__all__ = ["ClientThread", "Waiter", "now_ms"]

log = logging.getLogger("fastfetch.net")

# Wire bytes decoded between two looks at the sockets and two hand-overs: about a millisecond of work.
PORTION_BYTES = 1 << 20


def now_ms() -> int:
    """Milliseconds of the monotonic clock: deadlines must not jump with the wall clock."""
    return time.monotonic_ns() // 1_000_000


class Waiter(Protocol):
    """Who waits for news. `release` is called once, with the client's lock held, mostly from its thread."""

    def release(self) -> object: ...


class ClientThread:
    """Runs an engine. `lock` guards the engine and everything reachable from it."""

    def __init__(self, engine: Engine, name: str = "fastfetch") -> None:
        self.engine = engine
        # Re-entrant for signal handlers alone, which may have interrupted the holder; see `is_held_here`.
        self.lock = threading.RLock()
        self.crash: BaseException | None = None  # what ended the thread before its time; guarded by `lock`
        self.has_ended = False  # its last waiters were told; guarded by `lock`
        self._holder = threading.Condition(self.lock)
        self._config = engine.config
        self._isolation: Literal["read_uncommitted", "read_committed"] = (
            "read_committed" if engine.config.isolation_level == "read_committed" else "read_uncommitted"
        )
        self._buffers = FrameBuffers()
        self._resolver = Resolver()
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, None)
        # --- guarded by `lock`
        self._waiters: list[Waiter] = []
        self._stopping = False
        self._wake_all = False
        self._poked = False
        self._resolved: list[tuple[Connection, list[Address] | str]] = []
        # --- the thread's own
        self._connections: dict[int, Connection] = {}
        self._events: list[Event] = []
        self._jobs: deque[DecodeRecords] = deque()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # --- callers --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin. Whoever is interrupted in here has to call stop(): the thread may run."""
        self._thread.start()

    def poke(self) -> None:
        """Something changed that the engine should look at. The lock is held by the caller."""
        if not self._poked:
            self._wake()
            self._poked = True  # after the fact: an interrupt in between must not leave a wake-up that was never sent

    def add_waiter(self, waiter: Waiter) -> None:
        """Release it with the next news. The lock is held by the caller, who lets go and then waits."""
        self._waiters.append(waiter)

    def forget(self, waiter: Waiter) -> None:
        """Nobody waits for it any more. The lock is held by the caller."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def is_held_here(self) -> bool:
        """True if this very thread holds the lock. Only a signal handler need ask: it may have interrupted the holder."""
        try:
            self._holder.notify(0)  # refused to a thread that does not hold it
        except RuntimeError:
            return False
        return True

    def notify(self) -> None:
        """Wake all waiters. The lock is held by the caller."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.release()

    def wake_waiters(self) -> None:
        """Wake all waiters without holding the lock: for signal handlers, which may have interrupted its holder."""
        self._wake_all = True
        self._wake()

    def stop(self) -> None:
        """Ask the thread to end. It closes every socket on its way out. Any thread may call this, holding the lock or not."""
        self._stopping = True  # a single store; the wake-up orders it
        self._wake()

    def join(self, timeout: float) -> bool:
        """Wait for the end of the thread; False if it has not ended in time."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _wake(self) -> None:
        # Full: the thread will wake anyway. Closed: it has ended.
        with contextlib.suppress(OSError):
            self._wake_out.send(b"\0")

    # --- the thread -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:  # told to whoever calls next; a thread has nobody else to tell
            log.exception("the background thread ended by an error")
            with self.lock:
                self.crash = error
                self.notify()
        finally:
            for connection in self._connections.values():
                connection.close_socket()
            self._connections.clear()
            self._jobs.clear()
            self._events.clear()
            self._selector.close()
            with self.lock:
                self._stopping = True
                self._wake_in.close()
                self._wake_out.close()
                self.has_ended = True
                self.notify()

    def _loop(self) -> None:
        engine = self.engine
        while not self._stopping:
            now = now_ms()
            with self.lock:
                self._poked = False
                resolved, self._resolved = self._resolved, []
                for event in self._events:
                    engine.handle(event, now)
                event = None  # type: ignore[assignment] # holds a frame's buffer
                self._events.clear()
                engine.pump(now)
                actions = engine.take_actions()
                wake_at = engine.wake_at_ms
                if engine.has_news or self._wake_all:
                    engine.has_news = self._wake_all = False
                    self.notify()
            for action in actions:
                self._perform(action, now)
            for connection, outcome in resolved:
                self._start(connection, outcome)
            actions.clear()
            if self._jobs:
                self._decode_some()
            if self._jobs or self._events:
                timeout: float | None = 0.0
            elif wake_at is None:
                timeout = None
            else:
                timeout = max(0.0, (wake_at - now_ms()) / 1000)
            self._wait(timeout)
        with self.lock:
            engine.close(now_ms())
            actions = engine.take_actions()
        for action in actions:
            if isinstance(action, SendBytes):
                self._perform(action, now_ms())

    def _wait(self, timeout: float | None) -> None:
        for key, mask in self._selector.select(timeout):
            connection: Connection | None = key.data
            if connection is None:
                with contextlib.suppress(BlockingIOError):
                    self._wake_in.recv(4096)
                continue
            self._serve(connection, mask)

    def _serve(self, connection: Connection, mask: int) -> None:
        before = connection.sock
        try:
            if mask & selectors.EVENT_WRITE:
                if connection.writable():
                    self._events.append(ConnectionOpened(connection.conn))
                    assert connection.address is not None
                    self._resolver.connected(connection.host, connection.port, connection.address)
                if connection.sock is not before:
                    self._unregister(before)
                    self._register(connection)
                    return
                self._watch(connection)
            if mask & selectors.EVENT_READ and connection.is_connected:
                frame = connection.receive()
                if frame is not None:
                    self._events.append(FrameArrived(connection.conn, frame))
                elif connection.made_progress(now_ms()):
                    self._events.append(BytesArrived(connection.conn))
        except ConnectionFault as fault:
            if connection.sock is not before:
                # The last address failed: its socket is closed already, and the selector would know the next one by its number.
                self._unregister(before)
            self._lose(connection, fault)

    # --- actions --------------------------------------------------------------------------------------------------------

    def _perform(self, action: Action, now: int) -> None:
        if isinstance(action, DecodeRecords):
            self._jobs.append(action)
        elif isinstance(action, SendBytes):
            connection = self._connections.get(action.conn)
            if connection is not None:
                try:
                    connection.send(action.data)
                    self._watch(connection)
                except ConnectionFault as fault:
                    self._lose(connection, fault)
        elif isinstance(action, OpenConnection):
            config = self._config
            connection = Connection(action, self._buffers, config.receive_buffer_bytes, config.send_buffer_bytes, now)
            self._connections[action.conn] = connection
            self._resolver.resolve(action.host, action.port, partial(self._on_resolved, connection))
        elif isinstance(action, CloseConnection):
            connection = self._connections.pop(action.conn, None)
            if connection is not None:
                if not connection.is_connected and connection.address is not None:
                    self._resolver.hung(connection.host, connection.port, connection.address)
                self._close(connection)
        elif isinstance(action, TrimMemory):
            self._buffers.trim()
            trim()

    def _on_resolved(self, connection: Connection, outcome: list[Address] | str) -> None:
        """Called from this thread for literal addresses, from a resolver's thread for names."""
        if threading.current_thread() is self._thread:
            self._start(connection, outcome)
            return
        with self.lock:
            if self._stopping:
                return
            self._resolved.append((connection, outcome))
            self.poke()

    def _start(self, connection: Connection, outcome: list[Address] | str) -> None:
        if connection.is_closed:
            return
        try:
            if isinstance(outcome, str):
                raise ConnectionFault(outcome)
            connection.start(outcome)
            self._register(connection)
        except ConnectionFault as fault:
            self._lose(connection, fault)

    def _register(self, connection: Connection) -> None:
        assert connection.sock is not None
        try:
            self._selector.register(connection.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)
        except (OSError, ValueError) as error:  # the kernel's limit of watches; a number too high for select()
            raise ConnectionFault(f"the socket can't be watched: {error}") from None

    def _unregister(self, sock: socket.socket | None) -> None:
        if sock is not None:
            with contextlib.suppress(KeyError):  # never registered: the connect failed at once
                self._selector.unregister(sock)

    def _watch(self, connection: Connection) -> None:
        """Ask for writability only while there is something to write, or every wait would return at once."""
        assert connection.sock is not None
        mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.wants_write else 0)
        if self._selector.get_key(connection.sock).events != mask:
            self._selector.modify(connection.sock, mask, connection)

    def _lose(self, connection: Connection, fault: ConnectionFault) -> None:
        self._connections.pop(connection.conn, None)
        self._close(connection)
        cause = fault.__cause__ if isinstance(fault.__cause__, MemoryError) else None
        self._events.append(ConnectionLost(connection.conn, str(fault), cause))

    def _close(self, connection: Connection) -> None:
        connection.is_closed = True
        self._unregister(connection.sock)
        connection.close_socket()

    # --- decoding -------------------------------------------------------------------------------------------------------

    def _decode_some(self) -> None:
        config = self._config
        left = PORTION_BYTES
        surplus, has_records = 0, self.engine.readahead.has_records  # with what the engine has not been told yet
        while self._jobs and left > 0:
            job = self._jobs.popleft()
            left -= job.wire_bytes
            # All this is read without the lock: at worst a result is made that the engine drops, or a little too much of it.
            room = self.engine.fetcher.room_for(job) - surplus
            if job.partition.ticket != job.ticket or (room <= 0 and has_records):
                job.records = None
                self._events.append(RecordsDecoded(job, None))
                continue
            tp = job.partition.tp
            assert job.records is not None
            try:
                result = decode(
                    job.records,
                    position=job.start,
                    isolation=self._isolation,
                    aborted=job.aborted,
                    check_crcs=config.check_crcs,
                    max_batch_bytes=config.max_batch_bytes,
                    max_bytes=max(0, room - job.wire_bytes),
                    topic=tp.topic,
                    partition=tp.partition,
                    threads=config.decode_threads,
                )
            except Exception as error:  # MemoryError above all; raised by the caller's next poll
                job.records = None
                self._events.append(RecordsDecoded(job, None, error))
                continue
            job.records = None
            surplus += sum(block.nbytes for block in result.blocks) - job.reserved_bytes
            has_records = has_records or bool(result.blocks)
            self._events.append(RecordsDecoded(job, result))
