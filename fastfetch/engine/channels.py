"""Connections to brokers: opening, negotiating versions, requests in flight, losing and reopening.

A *node* is a broker's address; a *channel* is one connection to it. A node has up to five, by lane, because a broker answers the
requests of one connection one after another: behind a fetch that waits 500 ms for data, a commit would wait as long.

    DOWN --ready()--> CONNECTING --ConnectionOpened--> NEGOTIATING --ApiVersions answered--> READY
      ^                   |                                |                                   |
      +-------------------+------- lost, timed out --------+-----------------------------------+

Whatever was in flight when a connection goes is told so at once; what to ask again is the asker's business. Answers are matched
by correlation id, in order: a mismatch means that nothing on this connection can be trusted any more (KAFKA-4669, KAFKA-9854).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from fastfetch.config import ConsumerConfig
from fastfetch.engine.actions import Action, CloseConnection, OpenConnection, SendBytes
from fastfetch.engine.backoff import Backoff, Timer
from fastfetch.errors import ConnectionFailedError, FastFetchError, ProtocolError, UnsupportedVersionError
from fastfetch.protocol import Api, broker_versions, choose_version, decode_response, encode_request, retry_api_versions, tables

__all__ = ["Call", "Channel", "Channels", "Lane", "Node"]

log = logging.getLogger("fastfetch.engine")

Buffer = bytes | bytearray | memoryview
Read = Callable[[Api, int, Buffer], tuple[int, Any]]

MAX_THROTTLE_MS = 300_000  # a throttle time of 2^31-1 must not silence a client for weeks
FIRST_FRAME_LIMIT = 1 << 20
# v3 is in every broker since 2.4; v4 differs in a tag that no consumer reads, and costs brokers before 3.9 a second round.
API_VERSIONS_VERSION = 3

# How long any broker may take to connect before another one is tried beside it.
PATIENCE_MS = 1_000


class Lane(Enum):
    """Which connection of a node.

    SIDE carries a fetch for partitions that turned up while the one on DATA waits for news. MEMBER is apart from GROUP, which
    carries commits, look-ups of what is stored and heartbeats, so that JoinGroup and SyncGroup, which wait for other members,
    delay none of them.
    """

    CONTROL = "control"
    DATA = "data"
    SIDE = "side"
    GROUP = "group"
    MEMBER = "member"


class State(Enum):
    DOWN = "down"
    CONNECTING = "connecting"
    NEGOTIATING = "negotiating"
    READY = "ready"


class Call:
    """One request in flight. Exactly one of `on_answer` and `on_failure` is called, once."""

    __slots__ = ("api", "correlation_id", "deadline_ms", "on_answer", "on_failure", "read", "sent_ms", "timeout_ms", "version")

    def __init__(
        self,
        api: Api,
        version: int,
        correlation_id: int,
        now_ms: int,
        timeout_ms: int,
        read: Read,
        on_answer: Callable[[Any, int], None],
        on_failure: Callable[[FastFetchError, int], None],
    ) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.sent_ms = now_ms
        self.timeout_ms = timeout_ms
        self.deadline_ms = now_ms + timeout_ms
        self.read = read
        self.on_answer = on_answer
        self.on_failure = on_failure


class Node:
    """A broker's address and how well it answers; shared by its channels, so that three lanes don't knock three times as
    often."""

    __slots__ = (
        "channels", "failures", "host", "last_error", "node_id", "port", "retry_at_ms", "throttled_until_ms", "was_useful",
    )  # fmt: skip

    def __init__(self, node_id: int, host: str, port: int) -> None:
        self.node_id = node_id  # negative: an address of the bootstrap list, whose broker id isn't known
        self.host = host
        self.port = port
        self.failures = 0  # connections lost in a row; back to 0 with the first answer after the negotiation
        self.retry_at_ms = 0
        self.throttled_until_ms = 0
        self.last_error: FastFetchError | None = None
        self.was_useful = False  # has answered more than ApiVersions
        self.channels: dict[Lane, Channel] = {}

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.node_id < 0 else f"node {self.node_id} ({self.host}:{self.port})"


class Channel:
    """One connection. `conn` is its number while it is not DOWN."""

    __slots__ = ("calls", "conn", "deadline_ms", "idle_since_ms", "lane", "node", "opened_ms", "state", "versions", "was_opened")

    def __init__(self, node: Node, lane: Lane) -> None:
        self.node = node
        self.lane = lane
        self.state = State.DOWN
        self.conn = 0
        self.opened_ms = 0
        self.deadline_ms = 0  # of the connection attempt
        self.idle_since_ms = 0
        self.versions: dict[int, tuple[int, int]] = {}
        self.calls: deque[Call] = deque()
        self.was_opened = False  # at any time


class Channels:
    """All connections of a client. `actions` is the engine's out-box."""

    def __init__(self, config: ConsumerConfig, actions: list[Action], timer: Timer, seed: int = 0) -> None:
        self._config = config
        self._actions = actions
        self._timer = timer
        self._backoff = Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, seed)
        self._next_conn = 1
        self._next_correlation = 1
        self._by_conn: dict[int, Channel] = {}
        self.nodes: dict[int, Node] = {}
        for index, (host, port) in enumerate(config.bootstrap_servers):
            self.nodes[-1 - index] = Node(-1 - index, host, port)
        self.ever_reached = False  # some broker has answered since the client was made
        # --- counters
        self.connects = 0
        self.reconnects = 0  # of these, not the first of their channel
        self.connections_lost = 0  # or never up
        self.requests = 0
        self.requests_by_api: dict[str, int] = {}
        self.requests_by_node: dict[int, int] = {}
        self.sent_bytes = 0
        self.received_bytes = 0
        self.throttle_ms = 0  # of silence that brokers asked for

    # --- asking ---------------------------------------------------------------------------------------------------------

    def ready(self, node_id: int, lane: Lane, now_ms: int) -> Channel | None:
        """The channel if a request may be sent over it now. If not, it is being opened, or a timer is set for when it may be."""
        node = self.nodes.get(node_id)
        if node is None:
            return None
        channel = node.channels.get(lane)
        if channel is None:
            channel = node.channels[lane] = Channel(node, lane)
        if channel.state is State.READY:
            if node.throttled_until_ms > now_ms:  # KIP-219: the broker has answered and now expects silence
                self._timer.at(node.throttled_until_ms)
                return None
            return channel
        if channel.state is State.DOWN:
            self._open(channel, now_ms)
        return None

    def is_down(self, node_id: int, lane: Lane) -> bool:
        """Nothing is open or being opened: the node is unknown, or its back-off runs."""
        node = self.nodes.get(node_id)
        channel = None if node is None else node.channels.get(lane)
        return channel is None or channel.state is State.DOWN

    def open_channel(self, node_id: int) -> Channel | None:
        """The least busy connection to a node that is up; none is opened for this."""
        node = self.nodes.get(node_id)
        up = [] if node is None else [channel for channel in node.channels.values() if channel.state is State.READY]
        return min(up, key=lambda channel: len(channel.calls), default=None)

    def any_ready(self, now_ms: int) -> Channel | None:
        """A control channel to whichever broker answers soonest: one that is open, else one being opened, else a new one."""
        waiting = False
        best: Channel | None = None
        for node in self.nodes.values():
            channel = node.channels.get(Lane.CONTROL)
            if channel is None or channel.state is State.DOWN:
                continue
            if channel.state is not State.READY:
                # One that hangs in the connect must not hold up the others.
                if now_ms - channel.opened_ms < PATIENCE_MS:
                    waiting = True
                    self._timer.at(channel.opened_ms + PATIENCE_MS)
            elif node.throttled_until_ms > now_ms:
                self._timer.at(node.throttled_until_ms)
            elif best is None or len(channel.calls) < len(best.calls):
                best = channel
        if best is not None or waiting:
            return best
        known = [node for node in self.nodes.values() if node.node_id >= 0]
        healthy = [node for node in known if node.failures == 0]
        # The bootstrap list comes back into play when the brokers it led to don't answer: they may all have moved.
        order = healthy or sorted(self.nodes.values(), key=lambda node: (node.failures, node.node_id < 0))
        for node in order:
            channel = node.channels.get(Lane.CONTROL)
            if channel is not None and channel.state is not State.DOWN:
                continue  # hangs, or is throttled
            self.ready(node.node_id, Lane.CONTROL, now_ms)
            if node.channels[Lane.CONTROL].state is not State.DOWN:
                self._timer.at(now_ms + PATIENCE_MS)
                break
        return None

    def version(self, channel: Channel, api: Api, *, at_least: int = 0, at_most: int = 0x7FFF) -> int:
        """Version of `api` to speak on this channel. Raises UnsupportedVersionError, which names the API and both ranges."""
        return choose_version(api, channel.versions, at_least=at_least, at_most=at_most, node=str(channel.node))

    def send(
        self,
        channel: Channel,
        api: Api,
        version: int,
        body: Mapping[str, Any],
        now_ms: int,
        *,
        on_answer: Callable[[Any, int], None],
        on_failure: Callable[[FastFetchError, int], None],
        read: Read = decode_response,
        timeout_ms: int | None = None,
    ) -> Call:
        """Queue a request for sending. The answer, or the loss of the connection, calls back."""
        correlation = self._next_correlation
        self._next_correlation = correlation % 0x7FFFFFFF + 1
        data = encode_request(api, version, correlation, self._config.client_id, body)
        call = Call(
            api, version, correlation, now_ms, timeout_ms or self._config.request_timeout_ms, read, on_answer, on_failure
        )  # fmt: skip
        channel.calls.append(call)
        self._timer.at(call.deadline_ms)
        self._actions.append(SendBytes(channel.conn, data))
        self._count_request(api.name, channel.node.node_id, len(data))
        return call

    def _count_request(self, api: str, node_id: int, size: int) -> None:
        self.requests += 1
        self.requests_by_api[api] = self.requests_by_api.get(api, 0) + 1
        self.requests_by_node[node_id] = self.requests_by_node.get(node_id, 0) + 1
        self.sent_bytes += size

    # --- brokers --------------------------------------------------------------------------------------------------------

    def set_brokers(self, brokers: Iterable[tuple[int, str, int]], now_ms: int) -> None:
        """Take over the brokers of a metadata answer. One whose address changed loses its connections; one that left, too."""
        fresh = {node_id: (host, port) for node_id, host, port in brokers}
        for node_id, node in list(self.nodes.items()):
            if node_id >= 0 and fresh.get(node_id) != (node.host, node.port):
                self._drop_node(node, now_ms)
        for node_id, (host, port) in fresh.items():
            if node_id not in self.nodes:
                self.nodes[node_id] = Node(node_id, host, port)

    def add_broker(self, node_id: int, host: str, port: int, now_ms: int) -> None:
        """A broker named outside metadata, such as a coordinator."""
        node = self.nodes.get(node_id)
        if node is not None and (node.host, node.port) != (host, port):
            self._drop_node(node, now_ms)
            node = None
        if node is None:
            self.nodes[node_id] = Node(node_id, host, port)

    def _drop_node(self, node: Node, now_ms: int) -> None:
        del self.nodes[node.node_id]
        for channel in list(node.channels.values()):
            if channel.state is not State.DOWN:
                self.close(channel, ConnectionFailedError(f"{node} left the cluster or changed its address"), now_ms)

    def failures(self) -> list[str]:
        """One phrase per unreachable address, for a message."""
        return [str(node.last_error) for node in self.nodes.values() if node.failures and node.last_error is not None]

    @property
    def is_connected(self) -> bool:
        return any(channel.state is State.READY for channel in self._by_conn.values())

    @property
    def open_connections(self) -> int:
        return len(self._by_conn)

    # --- events ---------------------------------------------------------------------------------------------------------

    def opened(self, conn: int, now_ms: int) -> None:
        channel = self._by_conn.get(conn)
        if channel is None or channel.state is not State.CONNECTING:
            return
        channel.state = State.NEGOTIATING
        self._negotiate(channel, API_VERSIONS_VERSION, now_ms)

    def lost(self, conn: int, reason: str, now_ms: int, cause: Exception | None = None) -> None:
        channel = self._by_conn.get(conn)
        if channel is None:
            return
        if channel.state is State.NEGOTIATING and cause is None:
            reason += ", before its first answer; a port that wants TLS does that"
        elif channel.state is State.READY and channel.calls and not channel.node.was_useful:
            reason += ", at the first question; a port that wants SASL does that"
        error = ConnectionFailedError(f"{channel.node}: {reason}")
        error.__cause__ = cause
        self._forget(channel, error, now_ms)

    def progress(self, conn: int, now_ms: int) -> None:
        """Bytes of an answer are coming in: its time starts anew."""
        channel = self._by_conn.get(conn)
        if channel is not None and channel.calls:
            call = channel.calls[0]
            call.deadline_ms = now_ms + call.timeout_ms

    def frame(self, conn: int, frame: Buffer, now_ms: int) -> Lane | None:
        """Match an answer with its request and hand it over; says on which lane. A frame of a connection given up is ignored."""
        channel = self._by_conn.get(conn)
        if channel is None:
            return None
        self.received_bytes += 4 + len(frame)
        if not channel.calls:
            self.close(channel, ProtocolError(f"{channel.node} sent {len(frame)} bytes that nothing was asked for"), now_ms)
            return channel.lane
        call = channel.calls[0]
        try:
            got = int.from_bytes(frame[:4], "big", signed=True) if len(frame) >= 4 else None
            if got != call.correlation_id:
                question = f"{call.correlation_id} ({call.api.name} v{call.version})"
                raise ProtocolError(f"{channel.node} answered request {got} where {question} was next")
            body = call.read(call.api, call.version, frame)[1]
        except ProtocolError as error:
            self.close(channel, error, now_ms)
            return channel.lane
        channel.calls.popleft()
        channel.idle_since_ms = now_ms
        self.ever_reached = True
        if channel.state is State.READY:
            channel.node.failures = 0
            channel.node.was_useful = True
        throttle = body.get("throttle_time_ms", 0) if isinstance(body, dict) else body.throttle_time_ms
        if throttle > 0:
            throttle = min(throttle, MAX_THROTTLE_MS)
            channel.node.throttled_until_ms = max(channel.node.throttled_until_ms, now_ms + throttle)
            self.throttle_ms += throttle
        call.on_answer(body, now_ms)
        return channel.lane

    def tick(self, now_ms: int) -> None:
        """Requests and connects whose time is up; connections that nobody has used for long."""
        idle_ms = self._config.connections_max_idle_ms
        for channel in list(self._by_conn.values()):
            if channel.state is State.CONNECTING:
                if channel.deadline_ms <= now_ms:
                    waited = now_ms - channel.opened_ms
                    self.close(channel, ConnectionFailedError(f"{channel.node}: no connection within {waited} ms"), now_ms)
                else:
                    self._timer.at(channel.deadline_ms)
            elif channel.calls:
                call = channel.calls[0]
                if call.deadline_ms <= now_ms:
                    late = f"{channel.node}: no answer to {call.api.name} within {now_ms - call.sent_ms} ms"
                    self.close(channel, ConnectionFailedError(late), now_ms)
                else:
                    self._timer.at(call.deadline_ms)
            elif idle_ms >= 0 and now_ms - channel.idle_since_ms >= idle_ms:
                # Nothing is in flight, so nobody hears of it; the next request opens a new one.
                self._actions.append(CloseConnection(channel.conn))
                self._reset(channel)
            elif idle_ms >= 0:
                self._timer.at(channel.idle_since_ms + idle_ms)

    def close(self, channel: Channel, error: FastFetchError, now_ms: int) -> None:
        """Give a connection up for `error`: everything in flight on it fails with that."""
        self._actions.append(CloseConnection(channel.conn))
        self._forget(channel, error, now_ms)

    # --- inside ---------------------------------------------------------------------------------------------------------

    def _open(self, channel: Channel, now_ms: int) -> None:
        node = channel.node
        if node.retry_at_ms > now_ms:
            self._timer.at(node.retry_at_ms)
            return
        if node.failures and any(other.state is State.CONNECTING for other in node.channels.values()):
            return  # one knock at a time at a door that stayed shut
        channel.conn = self._next_conn
        self._next_conn += 1
        channel.state = State.CONNECTING
        channel.opened_ms = channel.idle_since_ms = now_ms
        channel.deadline_ms = now_ms + self._config.socket_connection_setup_timeout_ms
        self._by_conn[channel.conn] = channel
        self._timer.at(channel.deadline_ms)
        self.connects += 1
        self.reconnects += channel.was_opened
        channel.was_opened = True
        self._actions.append(OpenConnection(channel.conn, node.host, node.port, self._config.max_frame_bytes, FIRST_FRAME_LIMIT))

    def _negotiate(self, channel: Channel, version: int, now_ms: int) -> None:
        def answered(body: Any, now_ms: int) -> None:
            self._negotiated(channel, version, body, now_ms)

        body = {"client_software_name": "fastfetch", "client_software_version": "0.1"}
        self.send(
            channel, tables.API_VERSIONS, version, body if version >= 3 else {}, now_ms, on_answer=answered, on_failure=_nothing
        )  # fmt: skip

    def _negotiated(self, channel: Channel, version: int, body: Any, now_ms: int) -> None:
        code = body["error_code"]
        try:
            if code == 35:
                self._negotiate(channel, retry_api_versions(version, body), now_ms)
                return
            if code != 0:
                raise UnsupportedVersionError(f"{channel.node} answered ApiVersions with error code {code}")
            channel.versions = broker_versions(body)
        except UnsupportedVersionError as error:
            self.close(channel, error, now_ms)
            return
        channel.state = State.READY

    def _forget(self, channel: Channel, error: FastFetchError, now_ms: int) -> None:
        node = channel.node
        calls = list(channel.calls)
        self._reset(channel)
        self.connections_lost += 1
        node.failures += 1
        node.last_error = error
        node.retry_at_ms = max(node.retry_at_ms, now_ms + self._backoff.delay_ms(node.failures))
        level = logging.DEBUG if isinstance(error, ConnectionFailedError) else logging.WARNING
        log.log(level, "connection to %s (%s) lost: %s", node, channel.lane.value, error)
        for call in calls:
            call.on_failure(error, now_ms)

    def _reset(self, channel: Channel) -> None:
        self._by_conn.pop(channel.conn, None)
        channel.state = State.DOWN
        channel.conn = 0
        channel.calls.clear()
        channel.versions = {}


def _nothing(error: FastFetchError, now_ms: int) -> None:
    """The loss of a connection during negotiation is noted in its node."""
