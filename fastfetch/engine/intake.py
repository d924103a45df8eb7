"""What a fetch brought of one partition: on its way through the decoder into the read-ahead, or what is wrong with it.

Batch headers promise where the records end (`promised_end`), so that the next fetch can leave before they are decoded. `decode`
has the last word; if it ends elsewhere, what was asked for on the promise is dropped.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from fastfetch.config import ConsumerConfig
from fastfetch.engine.actions import Action, DecodeRecords
from fastfetch.engine.events import RecordsDecoded
from fastfetch.engine.readahead import Chunk, ReadAhead
from fastfetch.engine.statistics import DecodeSums
from fastfetch.engine.subscription import PartitionState
from fastfetch.errors import CorruptBatchError, RecordTooLargeError
from fastfetch.records import Decoded
from fastfetch.records.ahead import promised_end
from fastfetch.records.fetched import FetchedPartition
from fastfetch.types import TopicPartition

__all__ = ["Intake", "note_log"]

log = logging.getLogger("fastfetch.engine")


class Intake:
    """Between answers and the read-ahead."""

    def __init__(self, config: ConsumerConfig, readahead: ReadAhead, actions: list[Action]) -> None:
        self._config = config
        self._readahead = readahead
        self._actions = actions
        self.reserved_bytes = 0  # what is being decoded is expected to take of the budget
        self.inflation = 4.0  # bytes of blocks per byte on the wire, a moving average
        self.offset_bytes = 0.0  # on the wire, per offset, a moving average
        # Gone past by on_corrupt="skip", for the caller to hear of; the latest ones, should nobody poll.
        self.skipped: deque[CorruptBatchError] = deque(maxlen=10_000)
        self.has_news = False  # something a waiting poll wants to know: a chunk, an error
        # Sees the records of each answer as they came, some of them twice. The bytes are used again: they have to be copied.
        self.tap: Callable[[TopicPartition, memoryview], object] | None = None
        # --- counters
        self.wire_bytes = 0
        self.dropped_answers = 0
        self.skipped_batches = 0
        self.decoded_sums = DecodeSums()

    def accept(self, state: PartitionState, part: FetchedPartition, node_id: int, inflation: float) -> None:
        """Send the records to be decoded, and go on from where their headers say they end."""
        records = part.records
        assert records is not None
        note_log(state, part)
        state.attempts = 0
        state.is_out_of_range = False
        start = state.fetch_offset
        promised, leader_epoch = promised_end(records, start)
        # No promise, or one that leads nowhere: wait for the decoder before asking again.
        state.fetch_offset = promised if promised > start else -1
        if self.tap is not None:
            self.tap(state.tp, records)
        size = len(records)
        if promised > start:
            self.offset_bytes += (0.1 if self.offset_bytes else 1.0) * (size / (promised - start) - self.offset_bytes)
        self.wire_bytes += size
        job = DecodeRecords(
            partition=state,
            ticket=state.ticket,
            start=start,
            records=records,
            aborted=part.aborted or [],
            expected=state.fetch_offset,
            leader_epoch=leader_epoch,
            wire_bytes=size,
            reserved_bytes=int(size * (1 + inflation)),
            node_id=node_id,
            high_watermark=part.high_watermark,
        )
        self.reserved_bytes += job.reserved_bytes
        self._actions.append(job)

    def decoded(self, event: RecordsDecoded) -> None:
        """Buffer what the decoder made of an answer; or find out what is wrong with it."""
        job, state = event.job, event.job.partition
        self.reserved_bytes -= job.reserved_bytes
        if event.result is not None:
            self.decoded_sums.add(event.result.stats)
        if state.ticket != job.ticket:
            self.dropped_answers += 1
            return
        if state.buffer_end != job.start:
            # A caller's seek was torn apart by an interrupt. A gap must not come of it, whatever happened.
            self.dropped_answers += 1
            state.halt(-1 if state.buffer_end is None else state.buffer_end)
            return
        self.has_news = True
        if event.result is None:
            state.halt(job.start)
            if event.error is not None:
                state.fail(event.error, sticky=False)
            else:
                self.dropped_answers += 1  # there was no room
            return
        decoded = event.result
        reached = job.start if decoded.next_offset is None else max(decoded.next_offset, job.start)
        blocks = decoded.blocks
        error = decoded.error
        if error is None and reached > job.high_watermark > job.start:
            # Offsets are outside the CRC, and no broker sends records that are not committed yet. But it notes the high watermark
            # before it reads: what was committed in between follows without a gap. With one, an offset was changed.
            below = [block[: int(block.offsets.searchsorted(job.high_watermark))] for block in blocks]
            if reached - job.high_watermark != sum(map(len, blocks)) - sum(map(len, below)):
                blocks = [block for block in below if len(block)]
                reached = blocks[-1].next_offset if blocks else job.start
                error = _above_high_watermark(state, reached, job)
        held = sum(block.nbytes for block in blocks)
        if held and error is None:  # a bad batch's good records are here as well, and count for nothing in `consumed`
            self.inflation += 0.1 * (max(1.0, held / decoded.consumed) - self.inflation)
        if blocks or reached > job.start:
            # The epoch of the batch that ends there, which may be one without records.
            self._readahead.add(state, Chunk(blocks, reached, job.leader_epoch if reached == job.expected else -1))
        if error is not None:
            self._bad_batch(state, error, reached, job.node_id)
        elif reached > job.start:
            state.max_bytes = None
            state.refetched_at = None
            if reached != job.expected:
                state.halt(reached)
        else:
            self._no_progress(state, decoded, job)

    def _bad_batch(self, state: PartitionState, error: CorruptBatchError, reached: int, node_id: int) -> None:
        if error.kind in ("crc", "offset") and state.refetched_at != reached:
            # The damage may have happened on the way: ask once more before saying that the log is damaged.
            log.warning("%s: %s; fetching it once more", state.tp, error.what)
            state.refetched_at = reached
            state.halt(reached)
            return
        error.node_id = node_id
        if self._config.on_corrupt == "skip" and error.skip_trusted and error.next_offset is not None:
            log.warning("%s: %s at offset %d; going on at offset %d", state.tp, error.what, reached, error.next_offset)
            # Behind the good records before it, like any batch that has none: the position moves there at the hand-out.
            self._readahead.add(state, Chunk([], error.next_offset))
            self.skipped_batches += 1
            self.skipped.append(error)
            state.halt(error.next_offset)
            return
        state.halt()
        # The error itself is told once nothing else is there to hand out, and others may have a backlog of hours.
        log.warning("%s: %s at offset %d; nothing more of it is read before a seek or skip", state.tp, error.what, reached)
        state.fail(error, sticky=True)

    def _no_progress(self, state: PartitionState, decoded: Decoded, job: DecodeRecords) -> None:
        """Bytes came, but nothing at or after the position: half a batch, or only older ones."""
        limit = state.max_bytes or self._config.max_partition_fetch_bytes
        if state.max_bytes is None and limit < self._config.fetch_max_bytes:
            state.max_bytes = min(limit * 2, self._config.fetch_max_bytes)
            state.halt(job.start)
            return
        state.halt()
        if decoded.consumed:
            what = f"the answer held only batches below it ({decoded.consumed} bytes)"
        else:
            what = f"a fetch of up to {limit} bytes brought no whole batch ({job.wire_bytes} bytes of a longer one)"
        hint = "raise max_partition_fetch_bytes and fetch_max_bytes, or seek past it"
        message = f"no progress in {state.tp} at offset {job.start} (node {job.node_id}): {what}; {hint}"
        state.fail(RecordTooLargeError(message, code=10), sticky=True)


def note_log(state: PartitionState, part: FetchedPartition) -> None:
    """What an answer says of the partition's log."""
    state.high_watermark = part.high_watermark
    state.last_stable_offset = part.last_stable_offset
    state.log_start_offset = part.log_start_offset


def _above_high_watermark(state: PartitionState, reached: int, job: DecodeRecords) -> CorruptBatchError:
    return CorruptBatchError(
        f"offset at or above the high watermark {job.high_watermark}",
        topic=state.tp.topic,
        partition=state.tp.partition,
        position=reached,
        kind="offset",
        node_id=job.node_id,
    )
