"""What the caller reads, and where it stands in it.

Three things move a *position* (the next offset the caller gets): records handed out, a seek, a reset. Nothing else does;
prefetched records don't. `fetch_offset` runs ahead of it: the next offset to ask a broker for, after everything buffered or
being decoded.

    AWAITING_COMMITTED --offset stored--> FETCHING <--seek-- any
           | nothing stored                ^ | | ^
           v                               | | | | confirmed, or moved to where the log was cut
    AWAITING_RESET ------looked up---------+ | | |
           ^                                 | | |
           +--- out of range, seek_to_* -----+ | |
                          newer leader epoch   v |
                                    AWAITING_VALIDATION <--seek, offset stored, with an epoch

A position that carries the leader epoch of the record before it can be *checked*: does the log of the present leader still hold
that record, or was it cut below (KIP-320)? Until that is known nothing is fetched and nothing handed out. `validation` asks.

A *ticket* numbers everything asked on a partition's behalf. Whatever makes answers under way meaningless (seek, reset,
unassigning, decoded data that ends elsewhere than expected) takes a new one; answers under an older ticket are dropped, when
they arrive and when their records are about to be handed out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING

from fastfetch.errors import UsageError
from fastfetch.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from fastfetch.engine.readahead import Chunk

__all__ = ["EARLIEST", "LATEST", "Mode", "PartitionState", "Phase", "SubscriptionState"]

LATEST = -1  # ListOffsets' timestamps
EARLIEST = -2
NO_STOP = 2**63 - 1


class Mode(Enum):
    """How partitions are chosen. One way at a time; unsubscribing or assigning nothing leads back to NONE."""

    NONE = "nothing chosen"
    ASSIGNED = "assign()"
    TOPICS = "subscribe(topics)"
    PATTERN = "subscribe(pattern)"


class Phase(Enum):
    AWAITING_COMMITTED = "awaiting the committed offset"
    AWAITING_RESET = "awaiting an offset by reset"
    AWAITING_VALIDATION = "awaiting the check of its position"
    FETCHING = "fetching"


class PartitionState:
    """One assigned partition. A partition that goes and comes back gets a new object: nothing old can find its way into it."""

    __slots__ = (
        "attempts", "buffered_bytes", "checked_epoch", "chunks", "drops", "error", "error_is_sticky", "fetch_offset", "heard_ms",
        "high_watermark", "is_out_of_range", "last_stable_offset", "leader_epoch", "log_start_offset", "max_bytes", "paused",
        "phase", "placements", "position", "refetched_at", "reset_from", "reset_to", "resets", "retry_at_ms", "stale_version",
        "stop", "ticket", "tp",
    )  # fmt: skip

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.ticket = 1
        self.phase = Phase.AWAITING_RESET
        self.position: int | None = None  # the next offset to hand out; None until it is known
        self.leader_epoch: int | None = None  # of the last batch handed out, or as the position was given; goes into commits
        self.checked_epoch = -1  # of the leader under whom the position was last known to be in the log
        self.placements = 0  # how often a seek or a reset put the position elsewhere
        self.reset_to: int | None = None  # EARLIEST, LATEST; None: by policy
        self.reset_from: int | None = None  # the position that was lost by it, if there was one
        self.resets = 0  # by policy and in a row, without a record in between
        self.paused = False
        # --- reading ahead; written by the fetcher and by hand-outs
        self.stop = NO_STOP  # nothing is asked for from this offset on; only what came with the records before it is there
        self.fetch_offset = -1  # the next offset to ask for; -1: not known before what is being decoded has been, or not at all
        self.chunks: deque[Chunk] = deque()  # decoded and not yet handed out, gapless from `position` on
        self.buffered_bytes = 0
        self.drops = 0  # how often the buffer was thrown away
        self.is_out_of_range = False  # a broker said so of the end of the buffer; acted upon when the position gets there
        self.max_bytes: int | None = None  # raised limit after a fetch without one whole batch
        self.refetched_at: int | None = None  # position of the bad batch that was fetched a second time
        # --- faults
        self.error: Exception | None = None
        self.error_is_sticky = False  # True: only a seek, a skip or a reset clears it
        self.attempts = 0  # failures in a row
        self.retry_at_ms = 0
        self.stale_version = -1  # of the cluster, when its leader said that it is not the leader
        # --- the log, as of the last answer; -1: not known
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.heard_ms = -1  # when that was, by the engine's clock; see Fetcher.heard_ms

    def __repr__(self) -> str:
        return f"<{self.tp} {self.phase.value} position={self.position}>"

    @property
    def is_fetchable(self) -> bool:
        """May be asked for more records (back-off and leader aside)."""
        return 0 <= self.fetch_offset < self.stop and not self.paused and self.error is None and self.phase is Phase.FETCHING

    @property
    def known_position(self) -> int | None:
        """The position, but not one from elsewhere (a seek, a committed offset) whose first check is still open."""
        return None if self.phase is Phase.AWAITING_VALIDATION and self.checked_epoch < 0 else self.position

    @property
    def buffer_end(self) -> int | None:
        """The offset after everything buffered."""
        return self.chunks[-1].next_offset if self.chunks else self.position

    def fail(self, error: Exception, *, sticky: bool) -> None:
        """Keep an error for the next poll that has nothing to deliver. The first one counts until it is raised or cleared; one
        that stays comes before one that passes, or nothing would go on after the latter."""
        if self.error is None or (sticky and not self.error_is_sticky):
            self.error, self.error_is_sticky = error, sticky

    def halt(self, fetch_offset: int = -1) -> None:
        """Void what is under way for this partition, keep position and buffer, and go on fetching at `fetch_offset` if it is >=
        0."""
        self.ticket += 1
        self.fetch_offset = fetch_offset
        self.is_out_of_range = False

    def move_to(self, offset: int, leader_epoch: int | None = None, checked_epoch: int | None = None) -> None:
        """Seek or reset: a new position, and everything on its way for the old one is void. The buffer must be empty by now.

        `checked_epoch` is that of the leader who gave the offset; None: somebody else did, and where an epoch came with it the
        leader is asked first.
        """
        assert not self.chunks
        self.ticket += 1
        self.placements += 1
        self.position = offset
        self.leader_epoch = leader_epoch
        self.checked_epoch = -1 if checked_epoch is None else checked_epoch
        if leader_epoch is None or checked_epoch is not None:
            self.phase, self.fetch_offset = Phase.FETCHING, offset
        else:
            self.phase, self.fetch_offset = Phase.AWAITING_VALIDATION, -1
        self._forget_faults()

    def await_validation(self) -> None:
        """The position stays, and everything on its way for it is void. The buffer must be empty by now."""
        assert not self.chunks
        self.halt()
        self.phase = Phase.AWAITING_VALIDATION

    def await_reset(self, reset_to: int | None) -> None:
        """The position is to be looked up: at EARLIEST, at LATEST, or (None) wherever the policy says."""
        assert not self.chunks
        self.ticket += 1
        self.placements += 1
        self.phase = Phase.AWAITING_RESET
        self.reset_to = reset_to
        self.reset_from = self.position if reset_to is None else None
        self.resets = self.resets + 1 if reset_to is None else 0
        self.position = None
        self.leader_epoch = None
        self.fetch_offset = -1
        self._forget_faults()

    def _forget_faults(self) -> None:
        self.is_out_of_range = False
        self.max_bytes = None
        self.refetched_at = None
        self.error = None
        self.error_is_sticky = False
        self.attempts = 0
        self.retry_at_ms = 0


class SubscriptionState:
    """The assigned partitions, in the order in which they were assigned.

    `drop_buffer` empties a partition's buffer: the read-ahead keeps count of the bytes and must hear of it.
    `version` grows with every change to the set of partitions; `unsettled` are those without a position, `unchecked` those whose
    position was not yet held against the leader's epoch; `moves` grows with every partition that gets into one of the two.
    """

    def __init__(self, *, has_group: bool, drop_buffer: Callable[[PartitionState], None] = lambda state: None) -> None:
        self.mode = Mode.NONE
        self.version = 0
        self.moves = 0
        self.unsettled: dict[PartitionState, None] = {}
        self.unchecked: dict[PartitionState, None] = {}
        self.has_moved = False  # a partition may be fetched that could not be, or elsewhere; the fetcher clears it
        self._states: dict[TopicPartition, PartitionState] = {}
        self.pattern: str | None = None  # of Mode.PATTERN
        self.is_matched = False  # which topics match it is known
        self._topics: frozenset[str] = frozenset()
        self._has_group = has_group
        self._drop_buffer = drop_buffer

    # --- choosing -------------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions. Those that were assigned before keep position, pause and buffer; nothing ends the
        mode."""
        self._enter(Mode.ASSIGNED)
        wanted = list(dict.fromkeys(partitions))
        self._set(wanted)
        if not wanted:
            self.mode = Mode.NONE

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read whatever partitions of these topics a group gives to this member. No topics = unsubscribe."""
        wanted = frozenset(topics)
        if not wanted:
            self.unsubscribe()
            return
        self._enter(Mode.TOPICS)
        self._topics = wanted

    def subscribe_pattern(self, pattern: str) -> None:
        """The same for the topics whose whole name matches a regular expression. Which ones those are is known by and by:
        `match_topics`."""
        self._enter(Mode.PATTERN)
        if pattern != self.pattern:
            self.pattern, self._topics, self.is_matched = pattern, frozenset(), False

    def match_topics(self, topics: Iterable[str]) -> bool:
        """These match the pattern now. Says whether others did before."""
        before, self._topics, self.is_matched = self._topics, frozenset(topics), True
        return self._topics != before

    def take_over(self, partitions: Iterable[TopicPartition]) -> None:
        """The group gave these to this member; those it has stay."""
        self._set([*self._states, *partitions])

    def withdraw(self, partitions: Iterable[TopicPartition]) -> None:
        """These are given up or lost; the others keep position, pause and buffer."""
        gone = set(partitions)
        self._set([tp for tp in self._states if tp not in gone])

    def unsubscribe(self) -> None:
        """Back to nothing: no topics, no partitions."""
        self.mode = Mode.NONE
        self._topics = frozenset()
        self.pattern, self.is_matched = None, False
        self._set([])

    def check_mode(self, mode: Mode) -> None:
        """Raise UsageError unless `mode` may be entered now."""
        if self.mode not in (Mode.NONE, mode):
            raise UsageError(
                f"{mode.value} after {self.mode.value}: a consumer chooses its partitions in one way at a time; "
                "call unsubscribe() first"
            )

    def _enter(self, mode: Mode) -> None:
        self.check_mode(mode)
        self.mode = mode

    def _set(self, wanted: Collection[TopicPartition]) -> None:
        keep = set(wanted)
        for tp, state in list(self._states.items()):
            if tp not in keep:
                self._drop_buffer(state)
                state.ticket += 1
                state.placements += 1
                state.phase = Phase.AWAITING_RESET
                state.error = None
                self.unsettled.pop(state, None)
                self.unchecked.pop(state, None)
                del self._states[tp]
        for tp in wanted:
            if tp not in self._states:
                state = self._states[tp] = PartitionState(tp)
                # Without a group nobody stored an offset; with one, only "nothing stored" leads to the policy.
                state.phase = Phase.AWAITING_COMMITTED if self._has_group else Phase.AWAITING_RESET
                self.unsettled[state] = None
        self.version += 1
        self.moves += 1

    # --- looking --------------------------------------------------------------------------------------------------------

    @property
    def topics(self) -> frozenset[str]:
        return self._topics

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(self._states.values())

    def partitions(self) -> set[TopicPartition]:
        return set(self._states)

    def assigned_topics(self) -> set[str]:
        return {tp.topic for tp in self._states}

    def find(self, tp: TopicPartition) -> PartitionState | None:
        return self._states.get(tp)

    def get(self, tp: TopicPartition, what: str) -> PartitionState:
        """The state of an assigned partition; `what` is the call that needs it. Raises UsageError naming the partition."""
        state = self._states.get(tp)
        if state is None:
            have = ", ".join(map(str, sorted(self._states)[:5])) or "nothing"
            more = ", …" if len(self._states) > 5 else ""
            then = (
                "assign() it first" if self.mode in (Mode.NONE, Mode.ASSIGNED) else "its group gave it to nobody, or to another"
            )
            raise UsageError(f"{what}: {tp} is not assigned to this consumer (assigned: {have}{more}); {then}")
        return state

    def get_all(self, partitions: Iterable[TopicPartition], what: str) -> list[PartitionState]:
        """All or nothing: one that is not assigned raises before anything is changed."""
        return [self.get(tp, what) for tp in partitions]

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a commit sends: positions as they stand. A partition without one is left out; -1 never goes out."""
        return {
            state.tp: OffsetAndMetadata(state.position, "", state.leader_epoch)
            for state in self._states.values()
            if state.position is not None
        }

    # --- moving ---------------------------------------------------------------------------------------------------------

    def seek(self, state: PartitionState, offset: int, leader_epoch: int | None = None) -> None:
        """The caller wants `offset` next; with an epoch, provided the log still holds the record of that epoch before it."""
        self._drop_buffer(state)
        state.resets = 0
        self._place(state, offset, leader_epoch, None)

    def request_reset(self, state: PartitionState, reset_to: int | None) -> None:
        """Look the position up at EARLIEST, at LATEST, or by the policy (None)."""
        self._drop_buffer(state)
        state.await_reset(reset_to)
        self.moves += 1
        self.unsettled[state] = None
        self.unchecked.pop(state, None)

    def settle(
        self, state: PartitionState, ticket: int, offset: int, leader_epoch: int | None = None, checked_epoch: int | None = None
    ) -> bool:
        """A look-up or a check found `offset`; for `checked_epoch` see `PartitionState.move_to`. Counts only while the partition
        waits for that very answer; says whether it did."""
        if state.ticket != ticket or state.phase is Phase.FETCHING or self._states.get(state.tp) is not state:
            return False
        self._place(state, offset, leader_epoch, checked_epoch)
        return True

    def _place(self, state: PartitionState, offset: int, leader_epoch: int | None, checked_epoch: int | None) -> None:
        state.move_to(offset, leader_epoch, checked_epoch)
        self.unsettled.pop(state, None)
        if checked_epoch is None:
            self.moves += 1
            self.unchecked[state] = None
        else:
            self.unchecked.pop(state, None)
        self.has_moved = True

    def request_validation(self, state: PartitionState) -> None:
        """The leader changed: what was read from the old one and not handed out is void, and the position is to be checked."""
        self._drop_buffer(state)
        state.await_validation()
        self.moves += 1
        self.unchecked[state] = None

    def confirm(self, state: PartitionState, checked_epoch: int) -> None:
        """The position of an unchecked partition is good under the leader of this epoch: go on from it."""
        del self.unchecked[state]
        state.checked_epoch = checked_epoch
        if state.phase is Phase.AWAITING_VALIDATION:
            assert state.position is not None
            state.phase, state.fetch_offset = Phase.FETCHING, state.position
            self.has_moved = True

    def pause(self, state: PartitionState) -> None:
        """Deliver and fetch nothing more until resumed. What is buffered stays."""
        state.paused = True

    def resume(self, state: PartitionState) -> None:
        state.paused = False
        if not state.chunks:  # else there is enough to deliver first
            self.has_moved = True
