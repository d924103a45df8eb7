"""The sockets of a test broker: listeners of its nodes and one thread a connection.

A connection's requests are handled one after the other and answered in order, as a broker does it. A thread may wait (a long
poll, a delay, a closed gate) without holding anybody else up; stopping a node wakes it.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from fastfetch.errors import ProtocolError, UnsupportedVersionError
from fastfetch.protocol import Field, Request, decode_request, encode_response, tables
from fastfetch.protocol.schema import Fields

from .cluster import Cluster, Node
from .coordinator import GROUP_HANDLERS
from .faults import REFUSED_WHOLE, STAGES, Action, Exchange
from .fetching import SessionCache, encode_fetch, fetch
from .handlers import HANDLERS, Context
from .writing import PRODUCE, WRITING, WRITING_APIS

__all__ = ["Logged", "Rule", "Script", "Server"]

_LARGEST_REQUEST = 100 << 20  # socket.request.max.bytes
_PIECES = 1024  # buffers a sendmsg, the most that Linux takes
_HANDLERS = HANDLERS | GROUP_HANDLERS | WRITING
_APIS = tables.BY_KEY | WRITING_APIS


@dataclass(frozen=True, slots=True)
class Logged:
    """One request that arrived.

    time        time.monotonic() of its arrival
    connection  number of its connection, counted over all nodes from 1
    api         Kafka's name, "api 99" for an unknown one
    body        as decoded; empty if it was refused
    left_over   bytes behind the request's last field: brokers don't look at them, a careful client sends none
    refused     why the connection was closed instead of an answer, or ""
    """

    time: float
    node: int
    connection: int
    api: str
    version: int
    correlation_id: int
    client_id: str | None
    body: dict[str, Any]
    left_over: int = 0
    refused: str = ""


@dataclass(eq=False)
class Rule:
    """When a script's actions are due, and how often they were. See `Broker.on`."""

    api: str
    actions: tuple[Action, ...]
    node: int | None = None
    nth: int = 1
    times: int | None = 1
    when: Callable[[Request], bool] | None = None
    seen: int = 0
    done: int = 0

    def fires(self, node: int, request: Request) -> bool:
        if self.api not in ("*", request.api.name) or self.node not in (None, node):
            return False
        if self.when is not None and not self.when(request):
            return False
        self.seen += 1
        if self.seen < self.nth or (self.times is not None and self.done >= self.times):
            return False
        self.done += 1
        return True


@dataclass(eq=False)
class Script:
    """Rules, the log of what they were applied to, and what went wrong on the broker's own side.

    observe     hears of requests in place of the log
    """

    rules: list[Rule] = field(default_factory=list)
    log: list[Logged] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    observe: Callable[[Logged], object] | None = None

    def __post_init__(self) -> None:
        self.arrived = threading.Condition()

    def note(self, entry: Logged) -> None:
        if self.observe is not None:
            self.observe(entry)
            return
        with self.arrived:
            self.log.append(entry)
            self.arrived.notify_all()

    def actions(self, node: int, request: Request) -> list[Action]:
        with self.arrived:
            return [action for rule in list(self.rules) if rule.fires(node, request) for action in rule.actions]


class _Listener:
    """A node's listening socket and open connections."""

    def __init__(self, node: Node, slots: int) -> None:
        self.node = node
        self.sessions = SessionCache(slots)
        self.stopped = threading.Event()
        self.connections: dict[int, socket.socket] = {}
        self.threads: list[threading.Thread] = []
        self.socket = socket.socket(socket.AF_INET6 if ":" in node.host else socket.AF_INET, socket.SOCK_STREAM)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind((node.host, node.port))
            self.socket.listen(128)
        except OSError:
            self.socket.close()
            raise
        self.socket.setblocking(False)
        node.port = self.socket.getsockname()[1]


class Server:
    """Serves the nodes of one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        script: Script,
        versions: dict[int, tuple[int, int]],
        *,
        fetch_sessions: int,
        tls: ssl.SSLContext | None,
        is_writable: bool,
    ) -> None:
        self.is_writable = is_writable
        self.cluster = cluster
        self.script = script
        self.versions = versions
        self.made = 0
        self._fetch_sessions = fetch_sessions
        self._tls = tls
        self._listeners: dict[int, _Listener] = {}
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = socket.socketpair()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._closing = False
        self._thread = threading.Thread(target=self._accept_loop, name="fastfetch-broker", daemon=True)
        self._thread.start()

    # --------------------------------------------------------------------------------------------------------------- nodes

    def start(self, node: Node) -> None:
        listener = _Listener(node, self._fetch_sessions)
        with self.cluster.lock:
            node.alive = True
            self._listeners[node.id] = listener
            self.cluster.changed.notify_all()
        self._selector.register(listener.socket, selectors.EVENT_READ, listener)
        self._waker.send(b"\0")

    def stop(self, node: Node) -> None:
        """Close a node's listener and every connection to it, and wait for its threads."""
        with self.cluster.lock:
            node.alive = False
            listener = self._listeners.pop(node.id, None)
            self.cluster.changed.notify_all()
        if listener is None:
            return
        with self._lock:
            listener.stopped.set()
        self._selector.unregister(listener.socket)
        listener.socket.close()
        self.disconnect(listener)
        for thread in listener.threads:
            if thread is not threading.current_thread():
                thread.join(timeout=5)

    def disconnect(self, listener: _Listener) -> None:
        with self._lock:
            sockets = list(listener.connections.values())
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def disconnect_node(self, node_id: int) -> None:
        """Close every connection to a node that goes on listening."""
        listener = self._listeners.get(node_id)
        if listener is not None:
            self.disconnect(listener)

    def connections(self, node_id: int | None = None) -> int:
        with self._lock:
            return sum(len(each.connections) for each in self._listeners.values() if node_id in (None, each.node.id))

    def close(self) -> None:
        if self._closing:
            return
        for listener in list(self._listeners.values()):
            self.stop(listener.node)
        self._closing = True
        self._waker.send(b"\0")
        self._thread.join(timeout=5)
        self._selector.close()
        self._wake.close()
        self._waker.close()

    # --------------------------------------------------------------------------------------------------------- connections

    def _accept_loop(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select():
                if key.fileobj is self._wake:
                    self._wake.recv(4096)
                    continue
                # A node may be stopped, and its socket closed, between select() and here.
                with contextlib.suppress(OSError):
                    sock, _address = key.data.socket.accept()
                    self._serve(key.data, sock)

    def _serve(self, listener: _Listener, sock: socket.socket) -> None:
        sock.setblocking(True)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:  # stop() sees all of it, or none
            if listener.stopped.is_set():
                sock.close()
                return
            self.made += 1
            number = self.made
            listener.connections[number] = sock
            name = f"fastfetch-broker-{listener.node.id}-{number}"
            thread = threading.Thread(target=self._run, args=(listener, number, sock), name=name, daemon=True)
            thread.start()
            listener.threads = [t for t in listener.threads if t.is_alive()] + [thread]

    def _run(self, listener: _Listener, number: int, sock: socket.socket) -> None:
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
                with self._lock:
                    listener.connections[number] = sock
            _Connection(self, listener, number, sock).run()
        except (OSError, ssl.SSLError):
            pass  # the peer went away, or the node was stopped
        except Exception as error:  # of a script's action, or of this package
            self.script.failures.append(error)
        finally:
            with self._lock:
                listener.connections.pop(number, None)
            sock.close()


class _Connection:
    """One client's connection to one node, in its own thread."""

    def __init__(self, server: Server, listener: _Listener, number: int, sock: socket.socket) -> None:
        self.server = server
        self.listener = listener
        self.number = number
        self.sock = sock
        self.input = sock.makefile("rb")
        # An IPv4 client of a socket that listens on "::" shows as ::ffff:10.0.0.1.
        self.reached_at, self.peer = (each[0].removeprefix("::ffff:") for each in (sock.getsockname(), sock.getpeername()))
        self.swapped: list[bytes | memoryview] = []

    def run(self) -> None:
        with self.input:
            while not self.listener.stopped.is_set():
                head = self.input.read(4)
                if len(head) < 4:
                    return
                (size,) = struct.unpack(">i", head)
                if not 8 <= size <= _LARGEST_REQUEST:
                    return
                frame = self.input.read(size)
                if len(frame) < size or not self._handle(frame):
                    return

    def _handle(self, frame: bytes) -> bool:
        """Answer one request; False: close the connection."""
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        request, refused = self._decode(frame, key, version)
        api = _APIS[key].name if key in _APIS else f"api {key}"
        self.server.script.note(
            Logged(
                time.monotonic(),
                self.listener.node.id,
                self.number,
                api,
                version,
                correlation_id,
                request.client_id if request else None,
                request.body if request else {},
                request.left_over if request else 0,
                refused,
            )
        )
        if request is None:
            return False
        exchange = Exchange(request, self.listener.node.id, self.number, self.listener.stopped)
        actions = self.server.script.actions(self.listener.node.id, request)
        due = {stage: [action for action in actions if action.stage == stage] for stage in STAGES}
        for action in due["request"]:
            action.apply(exchange)
        if exchange.ending is not None:
            return False
        is_refused = request.api.name in REFUSED_WHOLE and any(action.refuses for action in due["body"])
        exchange.body = {} if is_refused else self._answer(request)
        if due["body"]:
            if request.api is tables.FETCH:
                _join_records(exchange.body)
            for action in due["body"]:
                action.apply(exchange)
        exchange.body = _fit(request.api.response, request.version, exchange.body)
        if request.api is tables.FETCH:
            exchange.send = encode_fetch(request, exchange.body)
        else:
            exchange.send = [encode_response(request.api, request.version, request.correlation_id, exchange.body)]
        if due["frame"]:
            exchange.frame = b"".join(exchange.send)
            for action in due["frame"]:
                action.apply(exchange)
            exchange.send = [exchange.frame]
        for action in due["send"]:
            action.apply(exchange)
        return self._send(exchange)

    def _decode(self, frame: bytes, key: int, version: int) -> tuple[Request | None, str]:
        """The request, or why it is refused: a broker closes the connection over what it doesn't know."""
        low, high = self.server.versions.get(key, (0, -1))
        if not low <= version <= high and key != tables.API_VERSIONS.key:
            return None, f"version {version} is not among {low} to {high}" if high >= 0 else "not an API of this broker"
        if key == PRODUCE.key and not self.server.is_writable:
            return None, "announced, but not served"
        try:
            return decode_request(frame, apis=_APIS, allow_left_over=True), ""
        except (ProtocolError, UnsupportedVersionError) as error:
            return None, str(error)

    def _answer(self, request: Request) -> dict[str, Any]:
        context = Context(self.server.cluster, self.listener.node, self.server.versions, request, self.reached_at, self.peer)
        with self.server.cluster.lock:
            if request.api is tables.FETCH:
                return fetch(context, self.listener.sessions)
            return _HANDLERS[request.api.key](context)

    def _send(self, exchange: Exchange) -> bool:
        if exchange.pause:
            exchange.wait(exchange.pause)
        if self.listener.stopped.is_set():
            return False
        if exchange.swapped:
            self.swapped += exchange.send
            return True
        pieces = exchange.send + self.swapped
        self.swapped = []
        if exchange.between:
            for piece in pieces:
                self.sock.sendall(piece)
                exchange.wait(exchange.between)
        else:
            self._send_all(pieces)
        if exchange.ending == "reset":
            # Closing with unsent data thrown away and no time to linger is what makes TCP send RST.
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return exchange.ending is None

    def _send_all(self, pieces: list[bytes | memoryview]) -> None:
        if isinstance(self.sock, ssl.SSLSocket):
            self.sock.sendall(b"".join(pieces))
            return
        views = [memoryview(piece) for piece in pieces if len(piece)]
        at = 0
        while at < len(views):
            sent = self.sock.sendmsg(views[at : at + _PIECES])
            while at < len(views) and sent >= len(views[at]):
                sent -= len(views[at])
                at += 1
            if sent:
                views[at] = views[at][sent:]


def _fit(fields: Fields, version: int, body: dict[str, Any]) -> dict[str, Any]:
    """The body without what this version does not carry: handlers fill in all they know, whatever was asked."""
    absent, inner = _shape(fields, version)
    out = {name: value for name, value in body.items() if name not in absent} if absent else dict(body)
    for each_field in inner:
        value = out.get(each_field.name)
        if isinstance(value, list):
            out[each_field.name] = [_fit(each_field.fields, version, each) for each in value]
    return out


@cache
def _shape(fields: Fields, version: int) -> tuple[frozenset[str], tuple[Field, ...]]:
    """Names that `version` lacks, and the arrays of structs that it has."""
    absent = frozenset(f.name for f in fields if not f.present_in(version))
    return absent, tuple(f for f in fields if f.fields and f.is_array and f.name not in absent)


def _join_records(body: dict[str, Any]) -> None:
    """Make the records of a Fetch answer bytes that a script can look at and change."""
    for topic in body["responses"]:
        for partition in topic["partitions"]:
            if isinstance(partition.get("records"), list):
                partition["records"] = b"".join(partition["records"])
