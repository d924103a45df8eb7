"""What `metrics()` tells: counters, rates, and what is buffered where.

Nothing here is asked on the way of a record. The parts of the engine count what they do; once a second, in a pass that is made
anyway, the counters are noted down, and a rate is what has come since the notes of ten seconds ago.

All keys, with their units, are in the guide (docs/guide.md, "Metrics"):

    records, fetch_requests, fetch_bytes, inflated_bytes, received_bytes, sent_bytes, crc_checked_bytes, dropped_answers,
    dropped_bytes, released_bytes, skipped_batches, requests, requests_by_api, connects, reconnects, connections_lost,
    throttle_ms, crc_ns, inflate_ns, walk_ns, rebalances, partitions_lost                       counters, since the start
    records_per_s, fetch_bytes_per_s, inflated_bytes_per_s, requests_per_s, decode_share        over the last ten seconds
    crc_share, inflate_share, walk_share                                                        of the decoding time so far
    fetch_latency_ms, fetch_latency_max_ms, fetch_latency_p50_ms, fetch_latency_p99_ms          request to answer
    uptime_ms, buffered_bytes, budget_bytes, budget_share, connections, lag, partitions         as it stands
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from fastfetch.config import ConsumerConfig
    from fastfetch.engine.channels import Channels
    from fastfetch.engine.fetcher import Fetcher
    from fastfetch.engine.intake import Intake
    from fastfetch.engine.membership import Membership
    from fastfetch.engine.readahead import ReadAhead
    from fastfetch.engine.subscription import PartitionState, SubscriptionState
    from fastfetch.records import DecodeStats

__all__ = ["DecodeSums", "Latency", "Statistics", "lag_of"]

WINDOW_MS = 10_000
NOTE_EVERY_MS = 1_000


class DecodeSums:
    """The sums of all `DecodeStats` of a client."""

    __slots__ = ("crc_checked_bytes", "crc_ns", "inflate_ns", "inflated_bytes", "walk_ns")

    def __init__(self) -> None:
        self.crc_checked_bytes = 0
        self.inflated_bytes = 0
        self.crc_ns = 0
        self.inflate_ns = 0
        self.walk_ns = 0

    def add(self, stats: DecodeStats) -> None:
        self.crc_checked_bytes += stats.crc_checked_bytes
        self.inflated_bytes += stats.inflated_bytes
        self.crc_ns += stats.crc_ns
        self.inflate_ns += stats.inflate_ns
        self.walk_ns += stats.walk_ns

    @property
    def total_ns(self) -> int:
        return self.crc_ns + self.inflate_ns + self.walk_ns


class Latency:
    """Times in whole milliseconds: a moving average, the longest, and percentiles that are at most an eighth too large."""

    __slots__ = ("_counts", "average_ms", "longest_ms")

    # Up to 16 ms each has a bucket; above, eight share an octave. The last one begins at 16 minutes.
    BUCKETS = 144

    def __init__(self) -> None:
        self.average_ms = 0.0
        self.longest_ms = 0
        self._counts = [0] * self.BUCKETS

    def add(self, ms: int) -> None:
        if not self.longest_ms and not self.average_ms:
            self.average_ms = float(ms)
        self.average_ms += 0.1 * (ms - self.average_ms)
        self.longest_ms = max(self.longest_ms, ms)
        self._counts[self._bucket(ms)] += 1

    def percentile(self, percent: int) -> int:
        """The time that so many of all were not longer than, in ms."""
        left = -(-sum(self._counts) * percent // 100)  # rounded up
        for bucket, count in enumerate(self._counts):
            left -= count
            if left <= 0 < count:
                return min(self._highest(bucket), self.longest_ms)
        return 0

    def _bucket(self, ms: int) -> int:
        octave = max(0, ms.bit_length() - 4)
        return min(8 * octave + (ms >> octave), self.BUCKETS - 1)

    def _highest(self, bucket: int) -> int:
        if bucket == self.BUCKETS - 1:
            return self.longest_ms
        octave = max(0, bucket // 8 - 1)
        return (bucket - 8 * octave + 1 << octave) - 1


class Note(NamedTuple):
    """Counters at a moment."""

    at_ms: int
    records: int
    fetch_bytes: int
    inflated_bytes: int
    decode_ns: int
    requests: dict[int, int]


def lag_of(state: PartitionState, config: ConsumerConfig) -> int | None:
    """Records between the position and the end of what this consumer may read, None where either is not known."""
    end = state.last_stable_offset if config.isolation_level == "read_committed" else state.high_watermark
    return None if state.position is None or end < 0 else max(0, end - state.position)


class Statistics:
    """Reads the counters of the other parts. `tick` is called by every pass of the engine."""

    def __init__(
        self,
        config: ConsumerConfig,
        channels: Channels,
        fetcher: Fetcher,
        intake: Intake,
        readahead: ReadAhead,
        subscription: SubscriptionState,
        membership: Membership,
    ) -> None:
        self._config = config
        self._channels = channels
        self._fetcher = fetcher
        self._intake = intake
        self._readahead = readahead
        self._subscription = subscription
        self._membership = membership
        self._notes: deque[Note] = deque()
        self._begun_ms: int | None = None
        self._now_ms = 0
        self._next_note_ms = 0

    def tick(self, now_ms: int) -> None:
        self._now_ms = now_ms
        if now_ms >= self._next_note_ms:
            self._note(now_ms)

    def _note(self, now_ms: int) -> None:
        if self._begun_ms is None:
            self._begun_ms = now_ms
        self._notes.append(self._counters())
        self._next_note_ms = now_ms + NOTE_EVERY_MS
        while len(self._notes) > 2 and self._notes[0].at_ms < now_ms - WINDOW_MS:  # a rate over no time is none
            self._notes.popleft()

    def _counters(self) -> Note:
        decoded = self._intake.decoded_sums
        return Note(
            self._now_ms, self._readahead.records_handed_out, self._intake.wire_bytes, decoded.inflated_bytes, decoded.total_ns,
            dict(self._channels.requests_by_node),
        )  # fmt: skip

    def _since(self) -> Note | None:
        """Notes to compare with: the oldest within the window. In the first second after a silence, those before it."""
        return self._notes[0] if self._notes and self._notes[0].at_ms < self._now_ms else None

    def snapshot(self, now_ms: int | None = None) -> dict[str, Any]:
        """Everything, as a new dict. `now_ms` None: as of the engine's last pass."""
        if now_ms is not None:
            self.tick(max(now_ms, self._now_ms))
        channels, fetcher, readahead, decoded = self._channels, self._fetcher, self._readahead, self._intake.decoded_sums
        now, since = self._counters(), self._since()
        span_ms = 1 if since is None else now.at_ms - since.at_ms
        since = since or now
        parts = {state.tp: self._partition(state) for state in self._subscription}
        return {
            "uptime_ms": 0 if self._begun_ms is None else self._now_ms - self._begun_ms,
            # --- records and bytes
            "records": now.records,
            "records_per_s": _rate(now.records - since.records, span_ms),
            "fetch_bytes": now.fetch_bytes,
            "fetch_bytes_per_s": _rate(now.fetch_bytes - since.fetch_bytes, span_ms),
            "inflated_bytes": now.inflated_bytes,
            "inflated_bytes_per_s": _rate(now.inflated_bytes - since.inflated_bytes, span_ms),
            "received_bytes": channels.received_bytes,
            "sent_bytes": channels.sent_bytes,
            "dropped_answers": self._intake.dropped_answers,
            "dropped_bytes": readahead.dropped_bytes,
            "released_bytes": readahead.released_bytes,
            "skipped_batches": self._intake.skipped_batches,
            # --- what is held
            "buffered_bytes": readahead.bytes,
            "budget_bytes": fetcher.used_bytes,
            "budget_share": round(fetcher.used_bytes / self._config.max_buffered_bytes, 4),
            # --- decoding
            "crc_checked_bytes": decoded.crc_checked_bytes,
            "crc_ns": decoded.crc_ns,
            "inflate_ns": decoded.inflate_ns,
            "walk_ns": decoded.walk_ns,
            "crc_share": _share(decoded.crc_ns, decoded.total_ns),
            "inflate_share": _share(decoded.inflate_ns, decoded.total_ns),
            "walk_share": _share(decoded.walk_ns, decoded.total_ns),
            "decode_share": _share(now.decode_ns - since.decode_ns, span_ms * 1_000_000),
            # --- brokers
            "fetch_requests": fetcher.fetches,
            "fetch_latency_ms": round(fetcher.latency.average_ms, 3),
            "fetch_latency_max_ms": fetcher.latency.longest_ms,
            "fetch_latency_p50_ms": fetcher.latency.percentile(50),
            "fetch_latency_p99_ms": fetcher.latency.percentile(99),
            "requests": channels.requests,
            "requests_by_api": dict(channels.requests_by_api),
            "requests_per_s": {
                node_id: _rate(count - since.requests.get(node_id, 0), span_ms) for node_id, count in now.requests.items()
            },
            "connections": channels.open_connections,
            "connects": channels.connects,
            "reconnects": channels.reconnects,
            "connections_lost": channels.connections_lost,
            "throttle_ms": channels.throttle_ms,
            # --- group and partitions
            "rebalances": self._membership.rebalances,
            "partitions_lost": self._membership.partitions_lost,
            "lag": {tp: part["lag"] for tp, part in parts.items() if part["lag"] is not None},
            "partitions": parts,
        }

    def _partition(self, state: PartitionState) -> dict[str, int | None]:
        return {
            "position": state.position,
            "lag": lag_of(state, self._config),
            "buffered_records": sum(sum(map(len, chunk.blocks)) - chunk.row for chunk in state.chunks),
            "buffered_bytes": state.buffered_bytes,
        }


def _rate(count: int, span_ms: int) -> float:
    return round(count * 1000 / span_ms, 3)


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
