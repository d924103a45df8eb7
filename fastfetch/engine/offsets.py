"""Looking offsets up: resets, and the caller's questions about beginnings, ends and times. All of it is ListOffsets, asked of
leaders.

An answer to a reset applies only while the partition waits for that very reset (its ticket); a seek, an unassignment or a newer
reset makes it void. Each partition is retried by itself: one without a leader holds up no other (KAFKA-6397).

A reset by duration (KIP-1106) goes to the first record that is not older. Where there is none yet it goes to the end. That takes
two more questions: where the end is, and whether a record came before it meanwhile, for the time alone would skip such a one.
(Kafka's Java client, 4.1, has no position in this case, and asks again every request.timeout.ms until there is a record.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from fastfetch.config import ConsumerConfig
from fastfetch.engine.backoff import Backoff, Timer
from fastfetch.engine.channels import Channel, Channels, Lane
from fastfetch.engine.metadata import Cluster, MetadataUpdates
from fastfetch.engine.pending import Pending
from fastfetch.engine.subscription import EARLIEST, LATEST, PartitionState, Phase, SubscriptionState
from fastfetch.errors import FastFetchError, NoOffsetForPartitionError, ProtocolError, UsageError, broker_error, is_retriable
from fastfetch.protocol import tables
from fastfetch.types import OffsetAndTimestamp, TopicPartition

__all__ = ["Found", "OffsetLookups"]

log = logging.getLogger("fastfetch.engine")

Found = dict[TopicPartition, OffsetAndTimestamp | None]
STALE_LEADER = frozenset({3, 5, 6, 9, 56, 74, 75, 78})
UNSUPPORTED_FOR_MESSAGE_FORMAT = 43


class Lookup:
    """One partition and one timestamp (or EARLIEST, LATEST) to be found."""

    __slots__ = (
        "asked_epoch",
        "attempts",
        "end",
        "flight",
        "query",
        "retry_at_ms",
        "since",
        "state",
        "ticket",
        "timestamp",
        "tp",
    )

    def __init__(self, tp: TopicPartition, timestamp: int, query: Query | None, state: PartitionState | None) -> None:
        self.tp = tp
        self.timestamp = timestamp
        self.query = query  # who asked; or, for a reset,
        self.state = state
        self.ticket = 0 if state is None else state.ticket
        self.since = timestamp  # of a reset by duration, whose `timestamp` is LATEST for a while
        self.end: tuple[OffsetAndTimestamp, int] | None = None  # where it goes if there is no such record; the leader's epoch
        self.asked_epoch = -1  # of the leader, as it was known when it was asked
        self.flight: object = None  # the request whose answer counts
        self.attempts = 0
        self.retry_at_ms = 0

    @property
    def is_wanted(self) -> bool:
        if self.query is not None:
            return not self.query.pending.done and self.tp in self.query.missing
        assert self.state is not None
        return self.state.ticket == self.ticket and self.state.phase is Phase.AWAITING_RESET


class Query:
    """A caller's question about several partitions, answered when all of them are."""

    __slots__ = ("found", "missing", "pending")

    def __init__(self, missing: set[TopicPartition]) -> None:
        self.pending: Pending[Found] = Pending()
        self.missing = missing
        self.found: Found = {}
        if not missing:
            self.pending.resolve({})


class OffsetLookups:
    """Asks leaders for offsets until every partition has its answer."""

    def __init__(
        self,
        config: ConsumerConfig,
        channels: Channels,
        cluster: Cluster,
        metadata: MetadataUpdates,
        subscription: SubscriptionState,
        timer: Timer,
        seed: int = 0,
        wall_ms: Callable[[], int] | None = None,
    ) -> None:
        self._config = config
        self._reset_duration_ms = config.reset_duration_ms
        if self._reset_duration_ms is not None and wall_ms is None:
            raise UsageError("auto_offset_reset by_duration needs a clock: give wall_ms")
        self._wall_ms = wall_ms
        self._channels = channels
        self._cluster = cluster
        self._metadata = metadata
        self._subscription = subscription
        self._timer = timer
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, seed)
        self._lookups: list[Lookup] = []
        self._resets: dict[PartitionState, Lookup] = {}

    def query(self, timestamps: dict[TopicPartition, int]) -> Pending[Found]:
        """The offset at each timestamp: LATEST, EARLIEST, or the first record not older than a number of ms since 1970 (else
        None)."""
        query = Query(set(timestamps))
        self._lookups.extend(Lookup(tp, timestamp, query, None) for tp, timestamp in timestamps.items())
        return query.pending

    def topics(self) -> set[str]:
        """Whose metadata is needed."""
        return {lookup.tp.topic for lookup in self._lookups if lookup.is_wanted}

    def pump(self, now_ms: int) -> None:
        self._start_resets(now_ms)
        if not self._lookups:
            return
        self._lookups = [lookup for lookup in self._lookups if lookup.is_wanted]
        by_node: dict[int, list[Lookup]] = {}
        for lookup in self._lookups:
            if lookup.state is not None and lookup.state.error_is_sticky:
                continue
            leader = self._cluster.leader(lookup.tp)
            # A broker that hangs is not waited for once there is a newer leader.
            if lookup.flight is not None and (leader is None or leader.epoch <= lookup.asked_epoch):
                continue
            if lookup.retry_at_ms > now_ms:
                self._timer.at(lookup.retry_at_ms)
                continue
            if leader is not None:
                by_node.setdefault(leader.leader, []).append(lookup)
                continue
            error = self._cluster.error_for(lookup.tp)
            if error is None:
                self._metadata.request_update()
                if lookup.query is not None:
                    lookup.query.pending.trouble = f". {lookup.tp} has no leader"
            elif lookup.query is not None:
                lookup.query.pending.fail(error)
        for node_id, lookups in by_node.items():
            self._send(node_id, lookups, now_ms)

    def _start_resets(self, now_ms: int) -> None:
        """A look-up for every partition that waits for a reset and has none; "none" is the policy that looks nothing up."""
        for state in self._subscription.unsettled:
            if state.phase is not Phase.AWAITING_RESET or state.error is not None:
                continue
            current = self._resets.get(state)
            if current is not None and current.ticket == state.ticket:
                continue
            to = state.reset_to
            if to is None:
                policy = self._config.auto_offset_reset
                if policy == "none":
                    group = (
                        "" if self._config.group_id is None else f"group {self._config.group_id!r} has no committed offset and "
                    )
                    message = f'no position for {state.tp}: {group}auto_offset_reset is "none"; seek to an offset first'
                    state.fail(NoOffsetForPartitionError(message), sticky=True)
                    continue
                if self._reset_duration_ms is not None and self._wall_ms is not None:
                    to = max(0, self._wall_ms() - self._reset_duration_ms)  # negative numbers mean something else
                else:
                    to = EARLIEST if policy == "earliest" else LATEST
            lookup = self._resets[state] = Lookup(state.tp, to, None, state)
            if state.resets > 1:  # where the last one led to was out of range too
                lookup.retry_at_ms = now_ms + self._backoff.delay_ms(state.resets - 1)
            self._lookups.append(lookup)
        if len(self._resets) > 2 * len(self._subscription.unsettled) + 16:
            self._resets = {state: lookup for state, lookup in self._resets.items() if lookup.is_wanted}

    # --- asking ---------------------------------------------------------------------------------------------------------

    def _send(self, node_id: int, lookups: list[Lookup], now_ms: int) -> None:
        channel = self._channels.ready(node_id, Lane.CONTROL, now_ms)
        if channel is None:
            if self._channels.is_down(node_id, Lane.CONTROL):
                self._metadata.request_update()
            return
        try:
            version = self._channels.version(channel, tables.LIST_OFFSETS, at_least=1, at_most=10)
        except FastFetchError as error:
            for lookup in lookups:
                self._fail(lookup, error, now_ms)
            return
        while lookups:
            # One partition can be asked about once in a request: the answer has no room for the timestamp it belongs to.
            batch: dict[TopicPartition, Lookup] = {}
            for lookup in lookups:
                batch.setdefault(lookup.tp, lookup)
            lookups = [lookup for lookup in lookups if batch[lookup.tp] is not lookup]
            self._ask(channel, version, batch, now_ms)

    def _ask(self, channel: Channel, version: int, batch: dict[TopicPartition, Lookup], now_ms: int) -> None:
        topics: dict[str, list[dict[str, Any]]] = {}
        for tp, lookup in batch.items():
            lookup.flight = batch
            leader = self._cluster.leader(tp)
            lookup.asked_epoch = -1 if leader is None else leader.epoch
            topics.setdefault(tp.topic, []).append(
                {
                    "partition_index": tp.partition,
                    "current_leader_epoch": lookup.asked_epoch,
                    "timestamp": lookup.timestamp,
                }
            )
        body = {
            "replica_id": -1,
            "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
            "timeout_ms": self._config.request_timeout_ms,
        }
        if version >= 2:
            body["isolation_level"] = 1 if self._config.isolation_level == "read_committed" else 0

        def answered(body: Any, now_ms: int) -> None:
            self._answered(batch, body, now_ms)

        def failed(error: FastFetchError, now_ms: int) -> None:
            self._metadata.request_update()
            for lookup in batch.values():
                if lookup.flight is batch:
                    self._again(lookup, now_ms)

        self._channels.send(channel, tables.LIST_OFFSETS, version, body, now_ms, on_answer=answered, on_failure=failed)

    def _answered(self, batch: dict[TopicPartition, Lookup], body: Any, now_ms: int) -> None:
        for topic in body["topics"]:
            for part in topic["partitions"]:
                # Of two answers for one partition the first counts; one that was not asked for is none of ours.
                lookup = batch.pop(TopicPartition(topic["name"], part["partition_index"]), None)
                if lookup is not None and lookup.flight is batch:
                    self._one(lookup, part, now_ms)
        for lookup in batch.values():  # left out of the answer: not known yet, never "offset 0"
            if lookup.flight is batch:
                self._again(lookup, now_ms)

    def _one(self, lookup: Lookup, part: Any, now_ms: int) -> None:
        code, offset = part["error_code"], part["offset"]
        lookup.flight = None
        if not lookup.is_wanted:
            return
        if code == 0 and offset >= 0:
            epoch = part["leader_epoch"] if part["leader_epoch"] >= 0 else None
            if epoch is not None and epoch > lookup.asked_epoch >= 0:
                self._metadata.request_update()  # there is a newer leader than we know of
            found = OffsetAndTimestamp(offset, part["timestamp"], epoch)
            if lookup.timestamp == lookup.since:
                self._found(lookup, found, lookup.asked_epoch)
            else:
                lookup.end, lookup.timestamp = (found, lookup.asked_epoch), lookup.since
        elif code == 0 and offset == -1 and lookup.timestamp >= 0:
            if lookup.state is None:
                self._found(lookup, None)
            elif lookup.end is None:
                lookup.timestamp = LATEST
            else:
                self._found(lookup, *lookup.end)
        elif code == UNSUPPORTED_FOR_MESSAGE_FORMAT:
            self._found(lookup, None)
        elif code == 0:
            self._fail(lookup, ProtocolError(f"ListOffsets answered offset {offset} for {lookup.tp}, which is no offset"), now_ms)
        elif is_retriable(code) or code in STALE_LEADER or code == -1:
            if code in STALE_LEADER:
                self._metadata.request_update()
            self._again(lookup, now_ms)
        elif code == 29:
            self._fail(lookup, broker_error(code, f"not allowed to read topic {lookup.tp.topic!r}"), now_ms)
        else:
            self._fail(lookup, broker_error(code, f"looking up an offset of {lookup.tp} failed"), now_ms)

    def _found(self, lookup: Lookup, found: OffsetAndTimestamp | None, leader_epoch: int = -1) -> None:
        """`leader_epoch` is that of the leader who was asked, not of a record."""
        if lookup.query is not None:
            query = lookup.query
            query.found[lookup.tp] = found
            query.missing.discard(lookup.tp)
            if not query.missing:
                query.pending.resolve(query.found)
        elif lookup.state is not None:
            self._resets.pop(lookup.state, None)
            if found is None:
                message = f"{lookup.tp} has no offset to start at: its message format is too old; seek to one"
                lookup.state.fail(broker_error(UNSUPPORTED_FOR_MESSAGE_FORMAT, message), sticky=True)
            elif self._subscription.settle(lookup.state, lookup.ticket, found.offset, found.leader_epoch, leader_epoch):
                level = logging.INFO if lookup.state.reset_from is None else logging.WARNING
                log.log(level, "%s starts at offset %d", lookup.tp, found.offset)

    def _fail(self, lookup: Lookup, error: FastFetchError, now_ms: int) -> None:
        self._again(lookup, now_ms)
        if lookup.query is not None:
            lookup.query.pending.fail(error)
        elif lookup.state is not None and lookup.is_wanted:
            # Raised once; meanwhile it is asked again.
            lookup.state.fail(error, sticky=False)

    def _again(self, lookup: Lookup, now_ms: int) -> None:
        lookup.flight = None
        lookup.attempts += 1
        lookup.retry_at_ms = now_ms + self._backoff.delay_ms(lookup.attempts)
        self._timer.at(lookup.retry_at_ms)
