"""Fetching: who is asked for what, what becomes of the answers.

One request is in flight per broker, or two: while one waits for news (up to fetch_max_wait_ms), partitions that were sought,
resumed or assigned meanwhile get a second one on a connection of its own, again and again until the first is answered.

The next request leaves as soon as the answer is here, before it is decoded (`intake`).

Memory: buffered, being decoded and asked for together stay within `max_buffered_bytes`. An answer is asked for with a size such
that it fits in after inflating, guessed from what earlier answers inflated to. Only when nothing at all is there to hand out may
one request leave over the budget, or a batch larger than it would never come.

The requests to a node, one after another, are one session (`session`, KIP-227); those on the second connection stand for
themselves.
"""

from __future__ import annotations

import logging

from fastfetch.config import ConsumerConfig
from fastfetch.engine.actions import DecodeRecords
from fastfetch.engine.backoff import Backoff, Timer
from fastfetch.engine.channels import Channel, Channels, Lane
from fastfetch.engine.intake import Intake, note_log
from fastfetch.engine.metadata import Cluster, MetadataUpdates
from fastfetch.engine.readahead import ReadAhead
from fastfetch.engine.replicas import ReadReplicas
from fastfetch.engine.session import FetchSession, Key, Target
from fastfetch.engine.statistics import Latency
from fastfetch.engine.subscription import PartitionState, Phase, SubscriptionState
from fastfetch.errors import (
    FastFetchError,
    OffsetOutOfRangeError,
    UnsupportedVersionError,
    broker_error,
    error_name,
    is_retriable,
)
from fastfetch.protocol import Api, tables
from fastfetch.records.fetched import FetchedPartition, FetchResponse, read_fetch_response

__all__ = ["Fetcher"]

log = logging.getLogger("fastfetch.engine")

NEWEST_FETCH = 16  # what v17 and v18 add is for followers
NEWEST_FETCH_BY_NAME = 12
STALE_LEADER = frozenset({3, 6, 9, 56, 74, 75, 78, 100, 103})  # errors that a fresh look at the metadata may settle
SESSION_ERRORS = frozenset({70, 71})  # part of a session's life: a broker that was restarted, a cache that is full
FIRST_WITH_SESSIONS, FIRST_BY_ID = 7, 13
SIDE_WAIT_MS = 100  # the longest that the next seek may have to wait
HASTY_MS, HASTY_TIMES = 10, 8  # an empty answer is hasty within this time (or a quarter of its wait); so many are normal
ALL_ASKED_MS = 100  # however large the backlog of some partitions, all are asked about so often
STRIKES = 10  # topic-id errors in a row before the caller hears of them


class Flight:
    """A fetch on its way. `reserved` is what its answer may cost of the budget, if it inflates as was guessed."""

    __slots__ = ("inflation", "lane", "node_id", "reserved", "sent_ms", "session")

    def __init__(self, node_id: int, lane: Lane, session: FetchSession, reserved: int, inflation: float, now_ms: int) -> None:
        self.node_id = node_id
        self.lane = lane
        self.session = session
        self.reserved = reserved
        self.inflation = inflation
        self.sent_ms = now_ms

    def covered(self) -> set[PartitionState]:
        """Partitions whose next records this will bring."""
        return {asked.state for asked in self.session.partitions.values() if asked.is_current}


class Fetcher:
    """Keeps one fetch in flight per broker, within the budget, and turns answers into chunks of the read-ahead."""

    def __init__(
        self,
        config: ConsumerConfig,
        channels: Channels,
        cluster: Cluster,
        metadata: MetadataUpdates,
        subscription: SubscriptionState,
        readahead: ReadAhead,
        intake: Intake,
        timer: Timer,
        seed: int = 0,
    ) -> None:
        self._config = config
        self._channels = channels
        self._cluster = cluster
        self._metadata = metadata
        self._subscription = subscription
        self._readahead = readahead
        self._intake = intake
        self._timer = timer
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, seed)
        self._replicas = ReadReplicas(config, cluster, timer)
        self._grouped_at = (-1, -1, -1)
        # Partitions by the node they are read from, in the order of the next request: the broker fills an answer in that order
        # (KIP-74), so whoever was served goes to the end.
        self._by_node: dict[int, dict[PartitionState, Target]] = {}
        self._sessions: dict[int, FetchSession] = {}
        self._flights: dict[tuple[int, Lane], Flight] = {}
        self._in_vain: set[int] = set()  # nodes whose last answer on the second connection held no records
        self._reserved = 0
        self._node_retry_ms: dict[int, int] = {}
        self._all_asked_ms: dict[int, int] = {}  # node -> until when asking a few partitions will do
        self._hasty: dict[int, int] = {}  # node -> empty answers in a row that did not wait for anything
        self._no_room: dict[int, int] = {}  # node -> what the request costs that there was no room for
        self.is_starved = False  # a request waits for room in the budget
        self.has_news = False  # a waiting poll wants to know of an error
        self.tells_ends = False  # and of answers without records
        # --- counters
        self.fetches = 0
        self.latency = Latency()  # from request to answer

    # --- asking ---------------------------------------------------------------------------------------------------------

    @property
    def used_bytes(self) -> int:
        """Of the budget: buffered, being decoded, asked for."""
        return self._readahead.bytes + self._intake.reserved_bytes + self._reserved

    @property
    def is_decoding(self) -> bool:
        return self._intake.reserved_bytes > 0

    def room_for(self, job: DecodeRecords) -> int:
        """Bytes that the blocks of an answer may take: what was reserved for it, or more if there is more. 0: it is better
        dropped, and asked for again once what is buffered has been handed out."""
        left = self._config.max_buffered_bytes - self.used_bytes
        return max(0, left + job.reserved_bytes)

    def heard_ms(self, state: PartitionState) -> int:
        """When a broker last told of the partition's log, if only that nothing had changed in it; -1: not yet."""
        return max(state.heard_ms, *(s.answered_ms for s in self._sessions.values() if s.speaks_of(state)), -1)

    def pump(self, now_ms: int) -> None:
        """Send what can be sent. Called after everything that happens."""
        self._replicas.pump(now_ms)
        before = self._replicas.version
        self._ask(now_ms)
        if self._replicas.version != before:  # a replica can't be reached: its partitions go to their leaders now
            self._ask(now_ms)

    def _ask(self, now_ms: int) -> None:
        version = (self._subscription.version, self._cluster.version, self._replicas.version)
        if self._grouped_at != version:
            self._group()
            self._grouped_at = version
        self.is_starved = False
        has_moved, self._subscription.has_moved = self._subscription.has_moved, False
        for node_id, states in self._by_node.items():
            main, side = self._flights.get((node_id, Lane.DATA)), self._flights.get((node_id, Lane.SIDE))
            if main is None:
                # What the other one looks for in vain joins this one.
                lane, covered = Lane.DATA, set() if side is None or node_id in self._in_vain else side.covered()
            elif has_moved and side is None:
                lane, covered = Lane.SIDE, main.covered()
            else:
                continue
            retry = self._node_retry_ms.get(node_id, 0)
            if retry > now_ms:
                self._timer.at(retry)
                continue
            if not has_moved and self._is_over_budget(self._no_room.get(node_id, 0)):
                self.is_starved = True
                continue
            wanted = [s for s in states if s.is_fetchable and s not in covered and self._is_due(s, now_ms)]
            if self._readahead.only is not None:
                wanted = self._without_unwanted(wanted)
            if not wanted:
                continue
            size, cost = self._size(wanted)
            session = self._sessions.setdefault(node_id, FetchSession()) if lane is Lane.DATA else FetchSession()
            if lane is Lane.DATA and self._all_asked_ms.get(node_id, 0) > now_ms and (few := self._enough_of(wanted, size)):
                wanted, session = few, FetchSession()
            if self._is_over_budget(cost):
                self.is_starved = True
                self._no_room[node_id] = cost
                self._subscription.has_moved |= has_moved  # not forgotten for want of room,
                continue
            self._no_room.pop(node_id, None)
            channel = self._channels.ready(node_id, lane, now_ms)
            if channel is None:
                self._subscription.has_moved |= has_moved  # or of a connection
                if self._channels.is_down(node_id, lane) and not self._replicas.give_up(
                    node_id, "can't be reached", wanted, now_ms
                ):
                    self._metadata.request_update()  # does it still lead?
                continue
            if lane is Lane.DATA and session is self._sessions[node_id]:
                self._all_asked_ms[node_id] = now_ms + ALL_ASKED_MS
            self._send(channel, wanted, session, size, cost, now_ms)

    def _without_unwanted(self, wanted: list[PartitionState]) -> list[PartitionState]:
        some = [state for state in wanted if not state.chunks or self._readahead.is_wanted(state)]
        if len(some) < len(wanted):
            self.is_starved = True  # the next hand-out may be for others
        return some

    def _enough_of(self, wanted: list[PartitionState], size: int) -> list[PartitionState]:
        """The first few of many partitions that are known to have more than an answer of `size` bytes can bring; else none.

        A broker looks into the log of every partition that it is asked about, room or not. So while there is a backlog, requests
        without a session ask those whose turn it is, and what is new in the others comes with every session request.
        """
        few: list[PartitionState] = []
        expected = 0.0
        for state in wanted:
            backlog = self._readable_end(state) - state.fetch_offset
            if len(few) == len(wanted) // 8:
                break
            if backlog > 0:
                few.append(state)
                expected += min(backlog * self._intake.offset_bytes, state.max_bytes or self._config.max_partition_fetch_bytes)
                if expected >= 2 * size:
                    return few
        return []

    def _readable_end(self, state: PartitionState) -> int:
        """Where the partition ended for this reader at the last answer."""
        return state.last_stable_offset if self._config.isolation_level == "read_committed" else state.high_watermark

    def _is_over_budget(self, cost: int) -> bool:
        """A request of this cost has to wait. Where nothing at all is there to hand out, it may leave over the budget."""
        return self.used_bytes + cost > self._config.max_buffered_bytes and bool(
            self._readahead.has_records or self._intake.reserved_bytes
        )

    def _is_due(self, state: PartitionState, now_ms: int) -> bool:
        if state.is_out_of_range and state.position != state.fetch_offset:
            self.is_starved = True  # the next hand-out may bring it there
            return False
        if state.retry_at_ms > now_ms:
            self._timer.at(state.retry_at_ms)
            return False
        if state.stale_version == self._cluster.version:
            # This leader has just said that it is none. Newer metadata is on its way; without any, ask it again later.
            patience = state.retry_at_ms + self._config.retry_backoff_max_ms
            if patience > now_ms:
                self._timer.at(patience)
                return False
        return True

    def _group(self) -> None:
        by_node: dict[int, dict[PartitionState, Target]] = {}
        leaders: dict[PartitionState, int] = {}
        for state in self._subscription:
            leader = self._cluster.leader(state.tp)
            if leader is not None:
                leaders[state] = leader.leader
                topic_id = self._cluster.topics[state.tp.topic].topic_id
                target = Target(state.tp.topic, topic_id, state.tp.partition, leader.epoch)
                node_id = self._replicas.node_for(state, leader.leader)
                by_node.setdefault(node_id, {})[state] = target
                if state.retry_at_ms and state not in self._by_node.get(node_id, ()):
                    state.retry_at_ms = 0  # the back-off was for another node
        for node_id, states in by_node.items():  # the turns taken so far still count
            for state in [state for state in self._by_node.get(node_id, ()) if state in states]:
                states[state] = states.pop(state)
        self._by_node = by_node
        self._replicas.keep(leaders)
        self._no_room.clear()
        self._sessions = {
            node_id: session
            for node_id, session in self._sessions.items()
            if node_id in by_node or (node_id, Lane.DATA) in self._flights
        }

    def _size(self, wanted: list[PartitionState]) -> tuple[int, int]:
        """Bytes to ask for, and what the answer may cost of the budget: at most half of it, shared by the brokers."""
        most = min(
            self._config.fetch_max_bytes, sum(state.max_bytes or self._config.max_partition_fetch_bytes for state in wanted)
        )
        share = self._config.max_buffered_bytes // (2 * len(self._by_node))
        size = max(1, min(most, int(share / (1 + self._intake.inflation))))
        if any(state.max_bytes for state in wanted):
            size = most  # a partition asks again because its batch did not fit: then the budget must not shrink it
        return size, int(size * (1 + self._intake.inflation))

    def _send(
        self, channel: Channel, wanted: list[PartitionState], session: FetchSession, size: int, cost: int, now_ms: int
    ) -> None:
        node_id, lane = channel.node.node_id, channel.lane
        targets = self._by_node[node_id]
        by_id = all(targets[state].topic_id is not None for state in wanted)
        try:
            version = self._channels.version(channel, tables.FETCH, at_most=NEWEST_FETCH if by_id else NEWEST_FETCH_BY_NAME)
        except UnsupportedVersionError as error:
            for state in wanted:
                state.fail(error, sticky=False)
            self.has_news = True
            return
        flight = Flight(node_id, lane, session, cost, self._intake.inflation, now_ms)
        limit = self._config.max_partition_fetch_bytes
        body = {
            "max_wait_ms": min(self._config.fetch_max_wait_ms, SIDE_WAIT_MS if lane is Lane.SIDE else 0x7FFFFFFF),
            "min_bytes": self._config.fetch_min_bytes,
            "max_bytes": size,
            "isolation_level": 1 if self._config.isolation_level == "read_committed" else 0,
            "rack_id": self._replicas.rack_for(node_id, now_ms),
            **session.request(
                ((state, targets[state], state.max_bytes or limit) for state in wanted),
                now_ms,
                by_id=version >= FIRST_BY_ID,
                is_possible=session is self._sessions.get(node_id) and version >= FIRST_WITH_SESSIONS,
            ),
        }

        def answered(response: FetchResponse, now_ms: int) -> None:
            self.latency.add(now_ms - flight.sent_ms)
            self._answered(flight, response, now_ms)

        def failed(error: FastFetchError, now_ms: int) -> None:
            self._land(flight)
            session.lost()
            if isinstance(error.__cause__, MemoryError):  # not the network's fault, and may never pass by itself
                for state in wanted:
                    state.fail(error.__cause__, sticky=False)
                self.has_news = True

        self._flights[node_id, lane] = flight
        self._reserved += cost
        self.fetches += 1
        self._channels.send(
            channel, tables.FETCH, version, body, now_ms, on_answer=answered, on_failure=failed, read=_read_fetch
        )  # fmt: skip

    def end_sessions(self, now_ms: int) -> None:
        """Tell brokers that their sessions are over, as far as that takes no waiting: they have room for so many."""
        for node_id, session in self._sessions.items():
            channel = self._channels.open_channel(node_id)
            farewell = session.farewell()
            if channel is None or farewell is None:
                continue
            newest = NEWEST_FETCH if session.by_id else NEWEST_FETCH_BY_NAME
            version = self._channels.version(channel, tables.FETCH, at_most=newest)
            body = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "isolation_level": 0, "rack_id": "", **farewell}
            self._channels.send(
                channel, tables.FETCH, version, body, now_ms, on_answer=_unheard, on_failure=_unheard, read=_read_fetch
            )  # fmt: skip

    # --- answers --------------------------------------------------------------------------------------------------------

    def _land(self, flight: Flight) -> None:
        if self._flights.get((flight.node_id, flight.lane)) is flight:
            del self._flights[flight.node_id, flight.lane]
        self._reserved -= flight.reserved

    def _answered(self, flight: Flight, response: FetchResponse, now_ms: int) -> None:
        self._land(flight)
        session, node_id = flight.session, flight.node_id
        if response.error_code != 0:
            # Nothing of such an answer counts; positions stay and everything is asked for again.
            name = error_name(response.error_code)
            level = logging.DEBUG if response.error_code in SESSION_ERRORS else logging.WARNING
            log.log(level, "fetch from node %d was answered with %s (code %d)", node_id, name, response.error_code)
            session.failed(response.error_code)
            if response.error_code in STALE_LEADER or response.error_code == 106:
                self._metadata.request_update()
            self._node_retry_ms[node_id] = now_ms + self._config.retry_backoff_ms
            return
        is_throttled = not response.partitions and response.throttle_time_ms > 0
        session.answered(response.session_id, now_ms, is_throttled=is_throttled)
        if flight.lane is Lane.SIDE:
            self._subscription.has_moved = True  # it goes on beside the one that waits
            self._in_vain.discard(node_id)
            if not any(part.records for part in response.partitions):
                self._in_vain.add(node_id)
        order = self._by_node.get(node_id, {})
        seen: set[Key] = set()
        for part in response.partitions:
            key: Key = (part.topic if part.topic is not None else part.topic_id or b"", part.partition)
            asked = session.partitions.get(key)
            if asked is None or key in seen:
                what = "again" if asked is not None else "which was not asked for"
                log.warning("node %d answered for partition %d of %r, %s", node_id, part.partition, key[0], what)
                continue
            seen.add(key)
            state = asked.state
            if not asked.is_current or state.phase is not Phase.FETCHING:
                self._intake.dropped_answers += 1  # a seek, a reset or another assignment since
                if part.error_code == 0:
                    note_log(state, part)  # within a session it is said once
                continue
            if part.error_code == 0:
                state.heard_ms = now_ms
            if part.error_code != 0:
                self._refused(state, part, response, node_id, now_ms)
            elif part.diverging_epoch is not None:
                self._subscription.request_validation(state)
                state.attempts += 1
                state.retry_at_ms = now_ms + self._backoff.delay_ms(state.attempts)
            elif part.preferred_read_replica >= 0 and not part.records:
                note_log(state, part)
                self._redirected(state, part.preferred_read_replica, node_id, now_ms)
                continue
            elif part.records is not None and len(part.records) > 0:
                self._intake.accept(state, part, node_id, flight.inflation)
            else:
                note_log(state, part)
                state.attempts = 0
                self.has_news |= self.tells_ends
                continue
            if state in order:
                order[state] = order.pop(state)
        if session.is_full and len(seen) < len(session.partitions) and not is_throttled:
            log.warning("node %d left %d partitions out of its answer", node_id, len(session.partitions) - len(seen))
            session.restart()  # it would go on without them
            if not seen:
                self._node_retry_ms[node_id] = now_ms + self._config.retry_backoff_ms
        if flight.lane is Lane.DATA:
            self._mind_haste(flight, any(part.records for part in response.partitions), now_ms)

    def _mind_haste(self, flight: Flight, has_records: bool, now_ms: int) -> None:
        """A broker that has nothing new waits before it says so. One that does not, again and again, would be asked without a
        pause."""
        if has_records or now_ms - flight.sent_ms > max(HASTY_MS, self._config.fetch_max_wait_ms // 4):
            self._hasty.pop(flight.node_id, None)
            return
        count = self._hasty[flight.node_id] = self._hasty.get(flight.node_id, 0) + 1
        if count > HASTY_TIMES:
            pause_ms = min(self._config.retry_backoff_ms, 1 << min(count - HASTY_TIMES, 20))
            self._node_retry_ms[flight.node_id] = max(self._node_retry_ms.get(flight.node_id, 0), now_ms + pause_ms)

    def _redirected(self, state: PartitionState, replica: int, node_id: int, now_ms: int) -> None:
        """The leader names a nearer replica instead of giving records (KIP-392)."""
        leader = self._cluster.leader(state.tp)
        if leader is None or leader.leader != node_id or not self._replicas.prefer(state, replica, node_id, now_ms):
            # Not its to say, or nobody knows that node: the leader again, not at full speed.
            self._replicas.forget(state)
            self._metadata.request_update()
            state.attempts += 1
            state.retry_at_ms = now_ms + self._backoff.delay_ms(state.attempts)

    def _refused(self, state: PartitionState, part: FetchedPartition, response: FetchResponse, node_id: int, now_ms: int) -> None:
        """An error code in place of records: wire protocol's table of fetch errors."""
        code = part.error_code
        if self._replicas.give_up(node_id, f"answered {error_name(code)}", [state], now_ms):
            if code != 1:
                self._metadata.request_update()
            return  # what the leader says of this offset counts
        if code == 1:
            # Where the log started is void now, and brokers leave it out of such an answer.
            state.log_start_offset = part.log_start_offset
            if state.position == state.fetch_offset:
                self._reset_out_of_range(state)
            else:
                # Everything before this offset is still to be delivered; then it is asked for again, for the log may have
                # changed.
                state.is_out_of_range = True
            return
        state.attempts += 1
        state.retry_at_ms = now_ms + self._backoff.delay_ms(state.attempts)
        self._timer.at(state.retry_at_ms)
        if code in STALE_LEADER:
            self._metadata.request_update()
            if part.current_leader is not None and self._learn_leader(state, part.current_leader, response, now_ms):
                state.retry_at_ms = now_ms
            else:
                state.stale_version = self._cluster.version
        where = f"{state.tp} at offset {state.fetch_offset} (node {node_id})"
        if code in (100, 103) and state.attempts >= STRIKES:
            state.fail(broker_error(code, f"fetching {where} fails again and again"), sticky=False)
        elif code == 29:
            state.fail(broker_error(code, f"not allowed to read topic {state.tp.topic!r}"), sticky=False)
        elif code == 2 or not (is_retriable(code) or code == -1):
            state.fail(broker_error(code, f"fetching {where} failed"), sticky=False)
        else:
            log.debug("fetch of %s: %s, again in %d ms", where, error_name(code), state.retry_at_ms - now_ms)
            return
        self.has_news = True

    def _learn_leader(self, state: PartitionState, leader: tuple[int, int], response: FetchResponse, now_ms: int) -> bool:
        """Who leads now, and where it lives, stand in the answer (KIP-951). True if that was news."""
        for node_id, host, port, _ in response.node_endpoints:
            if node_id == leader[0] and self._cluster.learn_broker(node_id, host, port):
                self._channels.add_broker(node_id, host, port, now_ms)
        return self._cluster.learn_leader(state.tp, *leader)

    def _reset_out_of_range(self, state: PartitionState) -> None:
        """The log does not hold the position: the policy decides, or an error that names partition and offset."""
        self.has_news = True
        policy = self._config.auto_offset_reset
        start = f"; the log starts at {state.log_start_offset}" if state.log_start_offset >= 0 else ""
        where = f"offset {state.position} of {state.tp} is out of range{start}"
        if policy == "none":
            state.halt()
            message = f'{where}; auto_offset_reset is "none": seek to an offset that exists'
            state.fail(OffsetOutOfRangeError(message, code=1), sticky=True)
        else:
            log.warning("%s; going to the %s offset", where, policy)
            self._subscription.request_reset(state, None)


def _unheard(answer: object, now_ms: int) -> None:
    """Nobody waits for this answer."""


def _read_fetch(api: Api, version: int, frame: bytes | bytearray | memoryview) -> tuple[int, FetchResponse]:
    response = read_fetch_response(frame, version)
    return response.correlation_id, response
