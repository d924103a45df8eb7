"""Reading from followers (KIP-392): a leader that knows where the client is (`client_rack`) may name a nearer replica.

The name holds for `metadata_max_age_ms`, then the leader is asked again. A replica that nobody knows, that can't be reached, or
that doesn't have the offset leads back to the leader, which for a while is not told the rack: it would only send the client
away again.
"""

from __future__ import annotations

import logging

from fastfetch.config import ConsumerConfig
from fastfetch.engine.backoff import Timer
from fastfetch.engine.metadata import Cluster
from fastfetch.engine.subscription import PartitionState

__all__ = ["ReadReplicas"]

log = logging.getLogger("fastfetch.engine")

SHUN_MS = 60_000  # how long a leader is not told the rack after its advice was no good


class ReadReplicas:
    """Which node each partition is fetched from. `version` grows with every change of that, metadata aside."""

    def __init__(self, config: ConsumerConfig, cluster: Cluster, timer: Timer) -> None:
        self._config = config
        self._cluster = cluster
        self._timer = timer
        self._preferred: dict[PartitionState, tuple[int, int]] = {}  # node id, until (ms)
        self._shunned: dict[int, int] = {}  # leader -> until (ms)
        self.version = 0

    def pump(self, now_ms: int) -> None:
        """Forget advice that is too old."""
        for state, (_, until_ms) in list(self._preferred.items()):
            if until_ms <= now_ms:
                self.forget(state)
            else:
                self._timer.at(until_ms)

    def node_for(self, state: PartitionState, leader: int) -> int:
        """Where to fetch a partition with this leader."""
        node_id = self._preferred.get(state, (leader, 0))[0]
        return node_id if node_id in self._cluster.brokers else leader

    def rack_for(self, node_id: int, now_ms: int) -> str:
        """The rack to tell this node."""
        return "" if self._shunned.get(node_id, 0) > now_ms else self._config.client_rack

    def prefer(self, state: PartitionState, node_id: int, leader: int, now_ms: int) -> bool:
        """`leader` says: read this partition from `node_id`. False if that is no use."""
        if node_id not in self._cluster.brokers:
            log.warning("node %d names node %d for %s, which nobody knows; staying with the leader", leader, node_id, state.tp)
            self._shunned[leader] = now_ms + SHUN_MS
            return False
        log.info("%s is read from node %d, which its leader %d prefers", state.tp, node_id, leader)
        self._preferred[state] = (node_id, now_ms + self._config.metadata_max_age_ms)
        self.version += 1
        return True

    def forget(self, state: PartitionState) -> None:
        """Back to the leader."""
        if self._preferred.pop(state, None) is not None:
            self.version += 1

    def give_up(self, node_id: int, why: str, states: list[PartitionState], now_ms: int) -> bool:
        """`node_id` is no good for `states`: back to their leaders. True if it had been preferred for one of them."""
        gone = [state for state in states if self._preferred.get(state, (-1, 0))[0] == node_id]
        for state in gone:
            log.warning("%s: node %d %s; back to the leader", state.tp, node_id, why)
            self.forget(state)
            leader = self._cluster.leader(state.tp)
            if leader is not None:
                self._shunned[leader.leader] = now_ms + SHUN_MS
        return bool(gone)

    def keep(self, states: dict[PartitionState, int]) -> None:
        """Forget partitions that are not among `states` any more, or whose leader is the replica by now."""
        for state, (node_id, _) in list(self._preferred.items()):
            if states.get(state, node_id) == node_id:
                del self._preferred[state]
