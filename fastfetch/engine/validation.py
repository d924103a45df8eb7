"""Was the log cut below a position? (KIP-320)

An unclean election can make a leader of a replica that lacks the latest records. Offsets that were read already are then given
out again, to other records, and a consumer that just goes on skips those. So each position keeps the leader epoch of the record
before it, and whenever a newer leader shows up that one is asked where the epoch ended in its log (OffsetForLeaderEpoch):

    at or above the position      nothing was lost: go on
    below it                      the log was cut: go to that end, or, without a reset policy, LogTruncationError
    it does not know (-1)         as if out of range: the reset policy, or LogTruncationError

A position is checked once under each leader's epoch. One that came with an epoch from elsewhere (a seek, a committed offset) is
checked before its first fetch; one that this leader gave (ListOffsets) needs no check. Without an epoch nothing can be checked.

Partitions are asked about together, a request a node, and retried each by itself. An answer applies only under the ticket that
it was asked with: a seek or a reset meanwhile makes it void.
"""

from __future__ import annotations

import logging
from typing import Any

from fastfetch.config import ConsumerConfig
from fastfetch.engine.backoff import Backoff, Timer
from fastfetch.engine.channels import Channels, Lane
from fastfetch.engine.metadata import Cluster, MetadataUpdates
from fastfetch.engine.offsets import STALE_LEADER
from fastfetch.engine.subscription import PartitionState, Phase, SubscriptionState
from fastfetch.errors import (
    FastFetchError,
    LogTruncationError,
    ProtocolError,
    UnsupportedVersionError,
    broker_error,
    error_name,
    is_retriable,
)
from fastfetch.protocol import tables
from fastfetch.types import TopicPartition

__all__ = ["Validations"]

log = logging.getLogger("fastfetch.engine")

# Older versions need a permission on the whole cluster, which readers of a topic don't have (KIP-320, "v3: topic describe").
OLDEST = 3


class Check:
    """A position under the epoch of one leader."""

    __slots__ = ("attempts", "checked_epoch", "in_flight", "retry_at_ms", "state", "ticket")

    def __init__(self, state: PartitionState, checked_epoch: int) -> None:
        self.state = state
        self.ticket = state.ticket
        self.checked_epoch = checked_epoch
        self.in_flight = False
        self.attempts = 0
        self.retry_at_ms = 0


class Validations:
    """Finds out which positions need a check, and has them checked."""

    def __init__(
        self,
        config: ConsumerConfig,
        channels: Channels,
        cluster: Cluster,
        metadata: MetadataUpdates,
        subscription: SubscriptionState,
        timer: Timer,
        seed: int = 0,
    ) -> None:
        self._config = config
        self._channels = channels
        self._cluster = cluster
        self._metadata = metadata
        self._subscription = subscription
        self._timer = timer
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, seed)
        self._seen = (-1, -1)  # version of the cluster, moves of the subscription
        self._look_at_ms: int | None = None  # if nothing new is seen; None: not before an answer comes
        self._checks: dict[PartitionState, Check] = {}

    def pump(self, now_ms: int) -> None:
        if self._seen[0] != self._cluster.version:
            self._find_newer_leaders()
        unchecked = self._subscription.unchecked
        seen = (self._cluster.version, self._subscription.moves)
        if not unchecked:
            self._seen = seen
            self._checks.clear()
            return
        # Thousands may be waiting for one broker, while others are read from: not all of them are looked at in every pass.
        if seen == self._seen and (self._look_at_ms is None or now_ms < self._look_at_ms):
            if self._look_at_ms is not None:
                self._timer.at(self._look_at_ms)
            return
        self._seen = seen
        self._look_at_ms = None
        by_node: dict[int, list[Check]] = {}
        for state in list(unchecked):
            leader = self._cluster.leader(state.tp)
            if leader is None:
                if self._cluster.error_for(state.tp) is None:
                    self._metadata.request_update()
            elif state.phase is Phase.FETCHING or state.leader_epoch is None or leader.epoch < 0:
                self._subscription.confirm(state, leader.epoch)
            elif not state.error_is_sticky:
                check = self._checks.get(state)
                if check is None or check.ticket != state.ticket or check.checked_epoch < leader.epoch:
                    check = self._checks[state] = Check(state, leader.epoch)
                if check.retry_at_ms > now_ms:
                    self._look_at(check.retry_at_ms)
                elif not check.in_flight:
                    by_node.setdefault(leader.leader, []).append(check)
        for node_id, checks in by_node.items():
            self._send(node_id, checks, now_ms)
        if len(self._checks) > 2 * len(unchecked) + 16:
            self._checks = {state: check for state, check in self._checks.items() if state in unchecked}

    def _look_at(self, when_ms: int) -> None:
        if self._look_at_ms is None or when_ms < self._look_at_ms:
            self._look_at_ms = when_ms
        self._timer.at(when_ms)

    def _find_newer_leaders(self) -> None:
        for state in self._subscription:
            if state.phase is Phase.FETCHING:
                leader = self._cluster.leader(state.tp)
                if leader is not None and leader.epoch > state.checked_epoch:
                    self._subscription.request_validation(state)

    # --- asking ---------------------------------------------------------------------------------------------------------

    def _send(self, node_id: int, checks: list[Check], now_ms: int) -> None:
        channel = self._channels.ready(node_id, Lane.CONTROL, now_ms)
        if channel is None:
            self._look_at_ms = now_ms  # in each pass, for it may be ready in any
            if self._channels.is_down(node_id, Lane.CONTROL):
                self._metadata.request_update()
            return
        try:
            version = self._channels.version(channel, tables.OFFSET_FOR_LEADER_EPOCH, at_least=OLDEST)
        except UnsupportedVersionError as error:
            log.debug("%d positions are not checked: %s", len(checks), error)
            for check in checks:
                self._subscription.confirm(check.state, check.checked_epoch)
            return
        batch: dict[TopicPartition, Check] = {}
        topics: dict[str, list[dict[str, Any]]] = {}
        for check in checks:
            check.in_flight = True
            tp = check.state.tp
            batch[tp] = check
            topics.setdefault(tp.topic, []).append(
                {
                    "partition": tp.partition,
                    "current_leader_epoch": check.checked_epoch,
                    "leader_epoch": check.state.leader_epoch,
                }
            )
        body = {
            "replica_id": -1,
            "topics": [{"topic": name, "partitions": partitions} for name, partitions in topics.items()],
        }

        def answered(body: Any, now_ms: int) -> None:
            for topic in body["topics"]:
                for part in topic["partitions"]:
                    # Of two answers for one partition the first counts; one that was not asked for is none of ours.
                    check = batch.pop(TopicPartition(topic["topic"], part["partition"]), None)
                    if check is not None:
                        self._one(check, part, node_id, now_ms)
            for check in batch.values():  # left out of the answer: not known yet, never "still in the log"
                self._again(check, now_ms)

        def failed(error: FastFetchError, now_ms: int) -> None:
            self._metadata.request_update()
            for check in batch.values():
                self._again(check, now_ms)

        self._channels.send(
            channel, tables.OFFSET_FOR_LEADER_EPOCH, version, body, now_ms, on_answer=answered, on_failure=failed
        )  # fmt: skip

    def _again(self, check: Check, now_ms: int) -> None:
        check.in_flight = False
        check.attempts += 1
        check.retry_at_ms = now_ms + self._backoff.delay_ms(check.attempts)
        self._look_at(check.retry_at_ms)

    # --- answers --------------------------------------------------------------------------------------------------------

    def _one(self, check: Check, part: Any, node_id: int, now_ms: int) -> None:
        state, position = check.state, check.state.position
        if self._checks.get(state) is not check or state.ticket != check.ticket:
            self._look_at(now_ms)  # a seek, a reset, a hand-out put back or a newer leader since
            return
        if state.phase is not Phase.AWAITING_VALIDATION or position is None:
            return
        code, epoch, end = part["error_code"], part["leader_epoch"], part["end_offset"]
        if code == 0 and (epoch < -1 or end < -1):
            self._fail(check, ProtocolError(f"OffsetForLeaderEpoch answered epoch {epoch}, offset {end} for {state.tp}"), now_ms)
        elif code == 0 and (epoch == -1 or end == -1):
            self._truncated(check, position, node_id, None)
        elif code == 0 and end < position:
            self._truncated(check, position, node_id, (end, epoch))
        elif code == 0:
            self._subscription.confirm(state, check.checked_epoch)
        elif code in STALE_LEADER or is_retriable(code) or code == -1:
            log.debug("check of %s at offset %d (node %d): %s", state.tp, position, node_id, error_name(code))
            if code in STALE_LEADER:
                self._metadata.request_update()
            self._again(check, now_ms)
        elif code == 29:
            self._fail(check, broker_error(code, f"not allowed to read topic {state.tp.topic!r}"), now_ms)
        else:
            self._fail(check, broker_error(code, f"checking offset {position} of {state.tp} failed"), now_ms)

    def _fail(self, check: Check, error: FastFetchError, now_ms: int) -> None:
        """Raised once; meanwhile it is asked again."""
        self._again(check, now_ms)
        check.state.fail(error, sticky=False)

    def _truncated(self, check: Check, position: int, node_id: int, end: tuple[int, int] | None) -> None:
        """The leader's log is another one than the position was read from. `end` is where the two part, with the epoch there."""
        state = check.state
        epoch = state.leader_epoch
        where = f"{state.tp} was cut: node {node_id} has not the log that was read up to offset {position} (leader epoch {epoch})"
        parted = "where they part is not known" if end is None else f"they part at offset {end[0]}"
        if self._config.auto_offset_reset == "none":
            error = LogTruncationError(
                f'{where}; {parted}. auto_offset_reset is "none": seek to an offset to go on at',
                topic=state.tp.topic,
                partition=state.tp.partition,
                position=position,
                leader_epoch=epoch,
                divergent_offset=None if end is None else end[0],
                divergent_epoch=None if end is None else end[1],
            )
            state.fail(error, sticky=True)
        elif end is None:
            log.warning("%s; %s, going by auto_offset_reset", where, parted)
            self._subscription.request_reset(state, None)
        else:
            log.warning("%s; %s, going there: what follows may be other records than before", where, parted)
            self._subscription.settle(state, check.ticket, end[0], end[1], check.checked_epoch)
