"""The engine: all state machines of one consumer behind one door.

Two sides use it. The owner of the sockets feeds events in (`handle`), performs what `take_actions` returns and comes back at
`wake_at_ms` at the latest. The caller's side (assign, seek, take, …) changes state and asks questions, and sends nothing by
itself: after every change one pass of `pump` over the whole state decides what to send. That pass works from what is, not from
what happened, so no event can be missed.

One lock of the owner's covers every call in here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from fastfetch.config import ConsumerConfig
from fastfetch.engine.actions import Action, DecodeRecords
from fastfetch.engine.alone import Alone
from fastfetch.engine.backoff import Timer
from fastfetch.engine.channels import Channels, Lane
from fastfetch.engine.commits import Commit, Commits
from fastfetch.engine.consumer_group import ConsumerGroup
from fastfetch.engine.coordinator import Coordinator
from fastfetch.engine.events import BytesArrived, ConnectionLost, ConnectionOpened, Event, FrameArrived, RecordsDecoded
from fastfetch.engine.fetcher import Fetcher
from fastfetch.engine.finder import CoordinatorFinder
from fastfetch.engine.groups import Groups
from fastfetch.engine.idle import IdleMemory
from fastfetch.engine.intake import Intake
from fastfetch.engine.membership import Membership
from fastfetch.engine.metadata import UNKNOWN_AFTER, Cluster, Description, MetadataUpdates, Topic, topic_error
from fastfetch.engine.offsets import Found, OffsetLookups
from fastfetch.engine.pending import Pending
from fastfetch.engine.readahead import HandOut, ReadAhead
from fastfetch.engine.statistics import Statistics, lag_of
from fastfetch.engine.stored import Stored, StoredOffsets
from fastfetch.engine.subscription import PartitionState, SubscriptionState
from fastfetch.engine.validation import Validations
from fastfetch.errors import (
    ConnectionFailedError,
    CorruptBatchError,
    NoOffsetForPartitionError,
    UnknownTopicError,
    UsageError,
    is_retriable,
)
from fastfetch.types import OffsetAndMetadata, TopicPartition

__all__ = ["Engine"]

log = logging.getLogger("fastfetch.engine")


class Engine:
    """A consumer without sockets, clock and threads. `seed` makes the jitter of back-offs differ between clients; `wall_ms` is
    the wall clock, in ms since 1970, asked only for a reset by duration; `member_id` names the member under the consumer protocol
    and must differ between all clients (KIP-1082)."""

    def __init__(
        self, config: ConsumerConfig, *, seed: int = 0, wall_ms: Callable[[], int] | None = None, member_id: str = ""
    ) -> None:
        self.config = config
        self.timer = Timer()
        self.has_news = False  # a waiting caller should look again; the owner clears it
        self._reported = (-1, -1)  # what was known when partitions were last looked at for one that can't be asked about
        self._topics_reported = -1  # the same for subscribed topics
        self._actions: list[Action] = []
        self._told: set[PartitionState] = set()  # whose error was raised since all had their turn
        self.readahead = ReadAhead()
        self.subscription = SubscriptionState(has_group=config.group_id is not None, drop_buffer=self.readahead.drop)
        self.cluster = Cluster()
        self.channels = Channels(config, self._actions, self.timer, seed)
        self.metadata = MetadataUpdates(
            config, self.channels, self.cluster, self.timer, self.subscription, self._topics_of_interest, self._recreated,
            seed + 1,
        )  # fmt: skip
        self.lookups = OffsetLookups(
            config, self.channels, self.cluster, self.metadata, self.subscription, self.timer, seed + 2, wall_ms
        )  # fmt: skip
        self.finder = CoordinatorFinder(config, self.channels, self.timer, seed + 6)
        self.commits = Commits(config, self.channels, self.subscription, self.timer, self.finder, seed + 3)
        self.stored = StoredOffsets(
            config, self.channels, self.subscription, self.timer, self.finder, self.commits.committed, seed + 9
        )  # fmt: skip
        protocol: Callable[..., Membership] = Coordinator
        if config.group_id is None:
            protocol = Alone
        elif config.group_protocol == "consumer":
            protocol = partial(ConsumerGroup, member_id=member_id)
        self.membership: Membership = protocol(
            config, self.channels, self.finder, self.cluster, self.metadata, self.subscription, self.timer,
            self.commits.give_up, seed + 7,
        )  # fmt: skip
        self.commits.membership = self.stored.membership = self.membership
        self.finder.on_fault.append(self.membership.fail)
        self.validations = Validations(
            config, self.channels, self.cluster, self.metadata, self.subscription, self.timer, seed + 5
        )  # fmt: skip
        self.groups = Groups(config, self.channels, self.cluster, self.timer, seed + 8)
        self.intake = Intake(config, self.readahead, self._actions)
        self.fetcher = Fetcher(
            config, self.channels, self.cluster, self.metadata, self.subscription, self.readahead, self.intake, self.timer,
            seed + 4
        )  # fmt: skip
        self.idle_memory = IdleMemory(self.readahead, self._actions, self.timer)
        self.statistics = Statistics(
            config, self.channels, self.fetcher, self.intake, self.readahead, self.subscription, self.membership
        )  # fmt: skip
        self.skipped = self.intake.skipped  # bad batches gone past, for the caller to hear of

    # --- the owner of the sockets ---------------------------------------------------------------------------------------

    def handle(self, event: Event, now_ms: int) -> None:
        """Something happened. `pump` must follow, once after any number of events."""
        if isinstance(event, RecordsDecoded):
            self.intake.decoded(event)
            self.idle_memory.used(now_ms)
        elif isinstance(event, FrameArrived):
            # Of a fetch nobody hears before it is decoded, unless the fetcher says otherwise.
            if self.channels.frame(event.conn, event.frame, now_ms) is not Lane.DATA:
                self.has_news = True
        elif isinstance(event, ConnectionOpened):
            self.channels.opened(event.conn, now_ms)
        elif isinstance(event, ConnectionLost):
            self.channels.lost(event.conn, event.reason, now_ms, event.cause)
            self.has_news = True
        elif isinstance(event, BytesArrived):
            self.channels.progress(event.conn, now_ms)

    def pump(self, now_ms: int) -> None:
        """Look at everything once, and queue the requests that are due."""
        self.timer.reset()
        self.statistics.tick(now_ms)
        self.channels.tick(now_ms)
        self._report_unknown_partitions()
        self._report_unknown_topics()
        self.lookups.pump(now_ms)
        self.membership.pump(now_ms)  # before the commits, which it signs
        self.commits.pump(now_ms)
        self.stored.pump(now_ms)
        self.groups.pump(now_ms)
        self.validations.pump(now_ms)  # before anything is asked of a leader that was not seen before
        self.idle_memory.pump(now_ms)
        self.fetcher.pump(now_ms)
        # Last: the others find out here that a leader is not known, and nothing else might happen for minutes.
        self.metadata.pump(now_ms)
        if self.fetcher.has_news or self.intake.has_news or self.membership.has_news or self.groups.has_news:
            self.fetcher.has_news = self.intake.has_news = self.membership.has_news = self.groups.has_news = False
            self.has_news = True
        if self.commits.has_news:
            self.commits.has_news, self.has_news = False, True

    def close(self, now_ms: int) -> None:
        """Take leave of the brokers. What `take_actions` then returns is the last that has to be done."""
        self.fetcher.end_sessions(now_ms)

    def take_actions(self) -> list[Action]:
        """What to do now: sends and closes in order, then what is to be decoded, so that the next answer comes in meanwhile."""
        if not self._actions:
            return []
        # sorted() is stable.
        actions = sorted(self._actions, key=lambda action: isinstance(action, DecodeRecords))
        self._actions.clear()
        return actions

    @property
    def wake_at_ms(self) -> int | None:
        """When to pump again if nothing happens. None: never."""
        return self.timer.at_ms

    # --- choosing partitions --------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        before = self.subscription.partitions()
        self.subscription.assign(partitions)
        self.commits.give_up(before - self.subscription.partitions())
        # What is known may be about other topics, or a deleted one's; an answer under way is looked at with the new ones in mind.
        self.metadata.request_update()

    def subscribe(self, topics: Iterable[str], pattern: str | None, now_ms: int) -> None:
        """Share these topics, or those that match the pattern, with the group."""
        if pattern is None:
            self.subscription.subscribe(topics)
        else:
            self.subscription.subscribe_pattern(pattern)
        self.metadata.request_update()
        self.membership.subscribe(now_ms)

    def unsubscribe(self, reason: str, now_ms: int) -> None:
        """Read nothing any more. A member leaves its group; the caller has done what `duty_before_leaving` asks for."""
        if self.membership.is_active:
            self.membership.leave(reason, now_ms)
            self.commits.give_up(self.subscription.partitions())
        self.subscription.unsubscribe()

    def seek(self, tp: TopicPartition, offset: int, leader_epoch: int | None = None) -> None:
        self.subscription.seek(self.subscription.get(tp, "seek"), offset, leader_epoch)

    def seek_to(self, partitions: Iterable[TopicPartition], timestamp: int, what: str) -> None:
        """EARLIEST or LATEST, looked up when it is needed."""
        for state in self.subscription.get_all(partitions, what):
            self.subscription.request_reset(state, timestamp)

    def skip(self, tp: TopicPartition) -> int:
        """Go past the bad batch of a partition. Returns the new position."""
        state = self.subscription.get(tp, "skip")
        error = state.error
        if not isinstance(error, CorruptBatchError):
            raise UsageError(f"skip: {tp} has no bad batch to go past; use seek() to move the position")
        if error.next_offset is None or not error.skip_trusted:
            raise UsageError(
                f"skip: nothing says where the batch after the bad one in {tp} starts; seek to an offset known to be good"
            )
        self.subscription.seek(state, max(error.next_offset, state.position or 0))
        return state.position or 0

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        for state in self.subscription.get_all(partitions, "pause"):
            self.subscription.pause(state)
            self.readahead.hold(state)
            self.idle_memory.pause(state)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for state in self.subscription.get_all(partitions, "resume"):
            self.subscription.resume(state)
            self.readahead.release(state)
            self.idle_memory.resume(state)

    # --- records --------------------------------------------------------------------------------------------------------

    def take(self, limit: int | None = None, blocks: int | None = None, out: HandOut | None = None) -> HandOut:
        """Hand out buffered records: positions move. See `ReadAhead.take`."""
        return self.readahead.take(limit, blocks, out)

    @property
    def wants_pump(self) -> bool:
        """True if the last hand-out may have made room, or brought a position, that a request waits for."""
        return self.fetcher.is_starved

    def raise_fault(self) -> None:
        """Raise the error of a partition that has nothing left to deliver, if there is one. Others come first next time."""
        faulty = self.faulty()
        if not faulty:
            return
        self._told.intersection_update(faulty)
        if self._told.issuperset(faulty):
            self._told.clear()
        state = next(state for state in faulty if state not in self._told)
        self._told.add(state)
        raise self.tell(state)

    def faulty(self) -> list[PartitionState]:
        """Partitions with an error and nothing left to deliver; none as long as anything else is there to hand out."""
        if self.readahead.has_records or self.fetcher.is_decoding:
            return []
        return [
            state
            for state in self.subscription
            if state.error is not None and not state.chunks and not state.paused and self.readahead.is_wanted(state)
        ]

    def tell(self, state: PartitionState) -> Exception:
        """The error of a faulty partition, which is told with this; if it may pass by, the partition is tried again."""
        error = state.error
        assert error is not None
        if not state.error_is_sticky:
            state.error = None
            self.metadata.request_update()
            self.cluster.count_anew(state.tp.topic)
        return error

    # --- questions ------------------------------------------------------------------------------------------------------

    def offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> Pending[Found]:
        return self.lookups.query(dict(timestamps))

    def ask_topic(self, topic: str) -> Pending[Topic]:
        return self.metadata.question(topic)

    def list_topics(self) -> Pending[dict[str, set[int]]]:
        return self.metadata.list_topics()

    def describe_cluster(self, topic: str | None) -> Pending[Description]:
        return self.metadata.describe(topic)

    def read_committed_offsets(self, partitions: Iterable[TopicPartition] | None) -> Pending[Stored]:
        return self.stored.read(partitions)

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline_ms: int,
        *,
        is_async: bool = False,
        automatic: bool = False,
    ) -> Commit:
        return self.commits.commit(offsets, deadline_ms, is_async=is_async, automatic=automatic)

    def lag(self, tp: TopicPartition) -> int | None:
        """Records between the position and the end of what this consumer may read, None where either is not known."""
        state = self.subscription.get(tp, "current_lag")
        return lag_of(state, self.config)

    def unreachable(self) -> ConnectionFailedError | None:
        """The error to raise if no broker at all can be reached: what was tried, and what came of it."""
        if self.channels.is_connected:
            return None
        reasons = self.channels.failures()
        if not reasons:
            return None
        servers = ", ".join(f"{host}:{port}" for host, port in self.config.bootstrap_servers)
        return ConnectionFailedError(
            f"no broker could be reached; bootstrap_servers is {servers}. Last failures: {'; '.join(reasons[:3])}. "
            "Check the address, and that a broker listens there"
        )

    def metrics(self, now_ms: int | None = None) -> dict[str, Any]:
        """Counters since the start, rates, and what is held now: see `statistics`. `now_ms` None: as of the last pass."""
        return self.statistics.snapshot(now_ms)

    # --- inside ---------------------------------------------------------------------------------------------------------

    def _topics_of_interest(self) -> set[str]:
        return (
            self.subscription.assigned_topics() | self.subscription.topics | self.lookups.topics() | {*self.membership.topics()}
        )

    def _report_unknown_partitions(self) -> None:
        """Assigned partitions that brokers keep calling unknown or forbidden: an error for those, the others flow."""
        known = (self.cluster.version, self.subscription.moves)
        if known == self._reported:
            return
        waiting = (*self.subscription.unsettled, *self.subscription.unchecked)
        states, self._reported = self.subscription if known[0] != self._reported[0] else waiting, known
        for state in states:
            if state.error is None:
                error = self.cluster.error_for(state.tp)
                if error is not None:
                    state.fail(error, sticky=False)
                    self.has_news = True

    def _report_unknown_topics(self) -> None:
        """Subscribed topics that may not be read are an error; those that don't exist may yet be made."""
        if self._topics_reported == self.cluster.version:
            return
        self._topics_reported = self.cluster.version
        for name in self.subscription.topics:
            trouble = self.cluster.troubles.get(name)
            if trouble is None or trouble.times != (UNKNOWN_AFTER if is_retriable(trouble.code) else 1):
                continue
            error = topic_error(name, trouble.code)
            if isinstance(error, UnknownTopicError):
                log.warning("subscribed: %s", error)
            else:
                self.membership.fault = self.membership.fault or error
                self.has_news = True

    def _recreated(self, names: list[str]) -> None:
        """Another topic under the same name (KIP-516): positions in the old one mean nothing in it."""
        for state in self.subscription:
            if state.tp.topic not in names:
                continue
            if state.position is None:
                state.halt()  # what is being looked up may be an offset of the old topic
                continue
            what = f"topic {state.tp.topic!r} was deleted and created again: position {state.position} of {state.tp} is void"
            log.warning("%s, going by auto_offset_reset", what)
            self.subscription.request_reset(state, None)
            if self.config.auto_offset_reset == "none":
                state.fail(NoOffsetForPartitionError(f'{what}; auto_offset_reset is "none": seek to an offset'), sticky=True)
        self.has_news = True
