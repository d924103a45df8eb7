"""Decoded records that nobody has taken yet, and the one place that hands them out.

The unit is a *chunk*: what one response held of one partition. A hand-out moves positions and nothing else does it; it can be
undone until the caller has the list in hand, so that an interrupt between the two loses nothing.

Partitions take turns: one that was served goes to the end of the queue, so a busy one can't starve the others
(librdkafka#379, librdkafka#1854).

A caller may ask for some partitions only (`only`). The others keep what they have, and are asked for no more as long as they
have something: a caller who never comes back for them would otherwise find the budget full of what nobody wants.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Any

from fastfetch.engine.subscription import PartitionState, Phase
from fastfetch.records import Record, RecordBlock
from fastfetch.types import TopicPartition

__all__ = ["Chunk", "HandOut", "ReadAhead"]


class Chunk:
    """`blocks` in order; `next_offset` is the position once everything here is handed out, and `leader_epoch` that of the batch
    that ends there (-1: not known).

    `row` is the first record of `blocks[0]` that was not handed out yet; blocks that were leave the deque.
    """

    __slots__ = ("blocks", "leader_epoch", "next_offset", "row")

    def __init__(self, blocks: list[RecordBlock], next_offset: int, leader_epoch: int = -1) -> None:
        self.blocks = deque(blocks)
        self.next_offset = next_offset
        self.leader_epoch = leader_epoch
        self.row = 0


class Move:
    """One step of a hand-out, with what it takes to go back. Written down before the step is taken."""

    __slots__ = ("block", "chunk", "drops", "epoch", "placements", "position", "row", "state")

    def __init__(self, state: PartitionState, chunk: Chunk, block: RecordBlock | None) -> None:
        self.state = state
        self.placements = state.placements
        self.drops = state.drops
        self.position = state.position
        self.epoch = state.leader_epoch
        self.chunk = chunk
        self.row = chunk.row
        self.block = block  # leaves the chunk with this step


class HandOut:
    """What one poll returns. `progressed`: some position moved, if only past batches without records."""

    __slots__ = ("blocks", "by_partition", "moves", "records")

    def __init__(self) -> None:
        self.records = 0
        self.blocks: list[RecordBlock] = []
        self.by_partition: dict[TopicPartition, list[Any]] = {}
        self.moves: list[Move] = []

    @property
    def progressed(self) -> bool:
        return bool(self.moves)

    def make_rows(self, rows: Callable[[RecordBlock], list[Any]]) -> None:
        """Fill `by_partition` with what `rows` makes of each block."""
        for block in self.blocks:
            tp = TopicPartition(block.topic, block.partition)
            if tp in self.by_partition:
                self.by_partition[tp] += rows(block)
            else:
                self.by_partition[tp] = rows(block)


class ReadAhead:
    """The buffered chunks of all partitions, and how many bytes they hold."""

    def __init__(self) -> None:
        self.bytes = 0
        self.dropped_bytes = 0  # decoded in vain: seeks, unassigned partitions
        self.released_bytes = 0  # given back by partitions that stayed paused
        self.records_handed_out = 0
        self.only: Collection[TopicPartition] | None = None  # what the latest caller asks for; None: everything
        # Partitions with something to hand out, longest unserved first. Paused ones are not in it.
        self._queue: dict[PartitionState, None] = {}

    @property
    def has_records(self) -> bool:
        """True if the next take() gets somewhere."""
        only = self.only
        # A copy: the background thread looks without the lock.
        return bool(self._queue) if only is None else any(state.tp in only for state in list(self._queue))

    def is_wanted(self, state: PartitionState) -> bool:
        """Would more of this partition be taken?"""
        return self.only is None or state.tp in self.only

    def add(self, state: PartitionState, chunk: Chunk) -> None:
        """Append what was decoded. The caller has checked ticket and offset."""
        state.resets = 0
        if not chunk.blocks and state.chunks:
            # Nothing but batches without records: the chunk before it ends later. A consumer that nobody polls would otherwise
            # collect a log of aborted transactions in small pieces.
            state.chunks[-1].next_offset = chunk.next_offset
            state.chunks[-1].leader_epoch = chunk.leader_epoch
            return
        size = sum(block.nbytes for block in chunk.blocks)
        state.chunks.append(chunk)
        state.buffered_bytes += size
        self.bytes += size
        if not state.paused:
            self._queue.setdefault(state)

    def drop(self, state: PartitionState) -> None:
        """Forget everything buffered for a partition: its position is about to move, or what was read ahead is void."""
        self.dropped_bytes += state.buffered_bytes
        self._clear(state)

    def give_back(self, state: PartitionState) -> None:
        """The memory of a paused partition is wanted: its records are fetched again, from the position on, once it is resumed."""
        self.released_bytes += state.buffered_bytes
        self._clear(state)
        state.halt(-1 if state.position is None else state.position)

    def _clear(self, state: PartitionState) -> None:
        state.drops += 1
        self.bytes -= state.buffered_bytes
        state.buffered_bytes = 0
        state.chunks.clear()
        self._queue.pop(state, None)

    def hold(self, state: PartitionState) -> None:
        """Paused: kept, but not handed out."""
        self._queue.pop(state, None)

    def release(self, state: PartitionState) -> None:
        """Resumed."""
        if state.chunks:
            self._queue.setdefault(state)

    def take(self, limit: int | None = None, blocks: int | None = None, out: HandOut | None = None) -> HandOut:
        """Hand out at most `limit` records, or (None) one chunk of every partition; at most `blocks` blocks. Positions move.

        `out`, an empty one, lets a caller who may be interrupted in here, by a signal handler that raises, undo what was done.
        """
        out = HandOut() if out is None else out
        left = limit
        for state in self._turns():
            if left == 0 or (blocks is not None and len(out.blocks) >= blocks):
                break
            left = self._take_from(state, out, left, None if blocks is None else blocks - len(out.blocks))
            self._turn(state)
        out.records = sum(map(len, out.blocks))
        self.records_handed_out += out.records
        return out

    def undo(self, out: HandOut) -> None:
        """Put back a hand-out that did not reach the caller, wherever it was interrupted: a step may have been taken or not."""
        for move in reversed(out.moves):
            state, chunk, block = move.state, move.chunk, move.block
            if state.placements != move.placements:
                continue  # reset meanwhile: the broker no longer has the offsets after these
            if state.drops != move.drops:  # the leader changed meanwhile: fetched again from where the hand-out began
                self.drop(state)
                state.position, state.leader_epoch = move.position, move.epoch
                state.halt(-1 if state.phase is not Phase.FETCHING or move.position is None else move.position)
                continue
            if not state.chunks or state.chunks[0] is not chunk:
                state.chunks.appendleft(chunk)
            if block is not None and (not chunk.blocks or chunk.blocks[0] is not block):
                chunk.blocks.appendleft(block)
                state.buffered_bytes += block.nbytes
                self.bytes += block.nbytes
            chunk.row = move.row
            state.position = move.position
            state.leader_epoch = move.epoch
            if not state.paused:
                self._queue.setdefault(state)
        self.records_handed_out -= out.records
        out.records = 0
        out.moves.clear()
        out.blocks.clear()

    def peek(self, limit: int) -> tuple[PartitionState, Chunk, RecordBlock] | None:
        """The next records in turn, at most `limit`, without handing them out; past batches without records the position
        moves."""
        while (state := self._first()) is not None:
            chunk = state.chunks[0]
            if chunk.blocks:
                return state, chunk, chunk.blocks[0][chunk.row : chunk.row + limit]
            self._end(state, chunk)
            self._turn(state)
        return None

    def steps(self, state: PartitionState, ticket: int, chunk: Chunk, row: int, records: list[Record]) -> Iterator[Record]:
        """Hand out peeked records one by one, each as it is yielded; none of them is the last of its block. Ends when one is no
        longer the next one, or is paused.

        Needs no lock: while a chunk is there, only calls of the consumer's own thread touch it or the position. (A leader that
        changed, a topic created again: then the buffer goes under a new ticket, and a position moves a broker's answer later.)
        """
        for record in records:
            if state.ticket != ticket or state.paused or not state.chunks or state.chunks[0] is not chunk or chunk.row != row:
                return
            if state.position is None or record.offset < state.position:
                return  # a poll went on to the same row of the next block
            # No call from here on: an interrupt comes before the step, or after the caller has the record.
            chunk.row = row = row + 1
            state.position = record.offset + 1
            epoch = record.leader_epoch
            state.leader_epoch = epoch if epoch >= 0 else None
            self.records_handed_out += 1
            yield record

    def step_last(self, state: PartitionState, ticket: int, chunk: Chunk, row: int, out: HandOut) -> bool:
        """The same for the last record of a block: the position goes on to where the block ends, and another partition is next.
        False if it is not the next record, or is paused. With `out`, an empty one, it can be undone."""
        if state.ticket != ticket or state.paused or not state.chunks or state.chunks[0] is not chunk or chunk.row != row:
            return False
        self._take_from(state, out, 1, 1)
        self.records_handed_out += 1
        out.records = 1
        self._turn(state)
        return True

    # --- inside ---------------------------------------------------------------------------------------------------------

    # CPython runs signal handlers after calls and at the ends of loops. What must not be torn apart by one that raises stands
    # between two calls.

    def _turns(self) -> Iterator[PartitionState]:
        """Every partition once, whose turn it is first. The caller sends each to the end of the queue."""
        if self.only is None:
            for _ in range(len(self._queue)):
                yield next(iter(self._queue))
        else:
            yield from [state for state in self._queue if self.is_wanted(state)]

    def _first(self) -> PartitionState | None:
        return next(filter(self.is_wanted, self._queue), None)

    def _turn(self, state: PartitionState) -> None:
        """To the end of the queue, or out of it."""
        queue = self._queue
        if state in queue:
            del queue[state]
            if state.chunks:
                queue[state] = None

    def _take_from(self, state: PartitionState, out: HandOut, left: int | None, blocks: int | None) -> int | None:
        """Up to the end of the first chunk. Returns what is left of the limit."""
        chunk = state.chunks[0]
        while chunk.blocks:
            if left == 0 or blocks == 0:
                return left
            block = chunk.blocks[0]
            rest = len(block) - chunk.row
            if left is not None and rest > left:
                part = block[chunk.row : chunk.row + left]
                out.moves.append(Move(state, chunk, None))
                out.blocks.append(part)
                chunk.row += left
                self._move(state, part)
                return 0
            part = block[chunk.row :] if chunk.row else block
            size = block.nbytes
            out.moves.append(Move(state, chunk, block))
            out.blocks.append(part)
            chunk.row = 0
            state.buffered_bytes -= size
            self.bytes -= size
            chunk.blocks.popleft()
            self._move(state, part)
            if left is not None:
                left -= rest
            if blocks is not None:
                blocks -= 1
            if not chunk.blocks:
                self._end(state, chunk)
                return left
        # Nothing but aborted, control or empty batches: no record, and yet the position goes past them.
        out.moves.append(Move(state, chunk, None))
        self._end(state, chunk)
        return left

    def _move(self, state: PartitionState, part: RecordBlock) -> None:
        if state.position is None or part.next_offset > state.position:
            state.position = part.next_offset
        state.leader_epoch = part.last_leader_epoch if part.last_leader_epoch >= 0 else None

    def _end(self, state: PartitionState, chunk: Chunk) -> None:
        if state.position is not None and chunk.next_offset > state.position:
            state.position = chunk.next_offset
            state.leader_epoch = chunk.leader_epoch if chunk.leader_epoch >= 0 else None
        state.chunks.popleft()
