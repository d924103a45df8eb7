"""What both group protocols have in common: who this member is, what a poll has to do for the group, how long it may stay away.

Code of the user's (listeners, assignors) runs in the caller's polls and nowhere else, with no lock held. So the machine asks for
it: `duty` says what has to be done before a poll may hand out records, the caller does it and says `done`, the machine goes on.
Everything else, heartbeats above all, happens in the background whether anybody polls or not.

    GiveUp     partitions go: commit (unless they are lost), tell the listener; they leave the assignment afterwards
    TakeOver   partitions have come: tell the listener, who may seek; nothing of them was handed out yet
    Describe   before joining a classic group: ask the assignors for their part of the subscription
    ShareOut   this member leads a classic group: run the assignor

A member that may have lost its partitions (session expired, thrown out, no poll for too long) hands out nothing more of them and
commits nothing, whether the coordinator can be reached to say so or not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fastfetch.config import ConsumerConfig
from fastfetch.engine.assignors import Assignment, Assignor, GroupCluster, Subscription
from fastfetch.engine.backoff import Backoff, Timer
from fastfetch.engine.channels import Channels
from fastfetch.engine.finder import CoordinatorFinder
from fastfetch.engine.metadata import Cluster, MetadataUpdates
from fastfetch.engine.subscription import Mode, SubscriptionState
from fastfetch.errors import CommitFailedError, FastFetchError
from fastfetch.types import GroupMetadata, TopicPartition

__all__ = ["NO_MEMBER", "Credentials", "Describe", "Duty", "GiveUp", "Membership", "ShareOut", "TakeOver"]

log = logging.getLogger("fastfetch.engine")

REMIND_MS = 60_000


class Credentials(NamedTuple):
    """What a commit is signed with. `generation` is the member epoch under the consumer protocol (KIP-848)."""

    generation: int
    member_id: str
    instance_id: str | None


NO_MEMBER = Credentials(-1, "", None)
"""Of commits without membership. Never of a member: an empty group would take them, and a zombie could overwrite progress."""


@dataclass(slots=True, eq=False)
class GiveUp:
    """Commit what was handed out (unless `is_lost`, or committing is left to the user), tell the listener, say done.

    tell    False: nothing for the listener to hear; it is only about the commit before joining
    """

    partitions: tuple[TopicPartition, ...]
    is_lost: bool
    tell: bool = True


@dataclass(slots=True, eq=False)
class TakeOver:
    """Tell the assignor (classic protocol) and the listener of these new partitions, which are assigned by now; say done."""

    partitions: tuple[TopicPartition, ...]
    assignor: Assignor | None = None
    assignment: Assignment | None = None
    generation: int = -1


@dataclass(slots=True, eq=False)
class ShareOut:
    """Run `assignor.assign(cluster, subscriptions)`, put the outcome into `result` or `error`, say done."""

    assignor: Assignor
    cluster: GroupCluster
    subscriptions: Mapping[str, Subscription]
    result: Mapping[str, Assignment] | None = None
    error: Exception | None = None


@dataclass(slots=True, eq=False)
class Describe:
    """Put each assignor's `subscription_user_data(topics)` into `result` by its name, or what it raised into `error`."""

    assignors: tuple[Assignor, ...]
    topics: frozenset[str]
    result: Mapping[str, bytes | None] | None = None
    error: Exception | None = None


Duty = GiveUp | TakeOver | Describe | ShareOut


class Membership:
    """One member of a group, joined by `subscribe`. The two protocols are its subclasses.

    Not active (nothing subscribed): it does nothing at all.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        channels: Channels,
        finder: CoordinatorFinder,
        cluster: Cluster,
        metadata: MetadataUpdates,
        subscription: SubscriptionState,
        timer: Timer,
        on_given_up: Callable[[Iterable[TopicPartition]], None],
        seed: int = 0,
    ) -> None:
        self._config = config
        self._group = config.group_id or ""
        self._channels = channels
        self._finder = finder
        self._cluster = cluster
        self._metadata = metadata
        self._subscription = subscription
        self._timer = timer
        self._on_given_up = on_given_up  # their commits under way are void, and what was committed of them is somebody else's
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, seed)
        self._in_poll = False
        self._polled_ms: int | None = None  # end of the last poll; None: none since subscribing
        self._duty: Duty | None = None
        self._is_lost = False  # the partitions still assigned are not ours any more
        self._is_parting = False
        self.fault: FastFetchError | None = None  # for the next poll to raise, once
        self._fatal: FastFetchError | None = None  # nothing is tried any more before the caller subscribes anew
        self._remind_at_ms = 0
        self.rebalances = 0  # assignments taken over
        self.partitions_lost = 0
        self.has_news = False  # a waiting caller should look again; the engine clears it
        self.wants_pump = False  # a poll was waited for, and is there; pump() clears it

    # --- the caller -----------------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        return self._subscription.mode in (Mode.TOPICS, Mode.PATTERN)

    def poll_began(self) -> None:
        """Time spent inside a poll does not count as not polling."""
        self._in_poll = True

    def poll_ended(self, now_ms: int) -> None:
        self._polled_ms = now_ms  # first: the background thread may look at any moment
        self._in_poll = False

    def subscribe(self, now_ms: int) -> None:
        """The subscription changed; SubscriptionState has it already."""
        raise NotImplementedError

    def enforce_rebalance(self, reason: str) -> None:
        """Join again although nothing calls for it."""
        raise NotImplementedError

    def leave(self, reason: str, now_ms: int) -> None:
        """Leave the group. The caller has waited for its commits and done `duty_before_leaving`, and unsubscribes. A static
        member only falls silent (KIP-345)."""
        raise NotImplementedError

    @property
    def is_leaving(self) -> bool:
        """The good-bye is not answered yet."""
        raise NotImplementedError

    def duty(self, now_ms: int) -> Duty | None:
        """What the caller has to do before records may be handed out; None: nothing. The same one until it is done."""
        if not self.is_active:
            return None
        self._check_clocks(now_ms)
        if self._duty is None:
            if self._is_lost:
                self._duty = GiveUp(tuple(self._owned()), is_lost=True, tell=bool(self._owned()))
            else:
                self._duty = self._next_duty(now_ms)
        elif self._is_lost and isinstance(self._duty, GiveUp):
            self._duty.is_lost = True
        return self._duty

    def is_in_doubt(self, now_ms: int) -> bool:
        """May the partitions be somebody else's by now? Nothing is handed out until the coordinator has told."""
        return False

    def done(self, duty: Duty, now_ms: int) -> None:
        """The caller did it; what its listener raised meanwhile changes nothing."""
        if self._duty is not duty:
            return
        self._duty = None
        if isinstance(duty, TakeOver):
            self.rebalances += 1
        elif isinstance(duty, GiveUp):
            self.partitions_lost += len(duty.partitions) if duty.is_lost else 0
            self._give_up(duty.partitions)
            if self._is_lost:
                self._is_lost = bool(self._owned())
        self._after_duty(duty, now_ms)

    def part(self) -> bool:
        """This member is about to leave: its last commits may be signed as long as the coordinator takes them at all. Says
        whether they can be now; False while an assignment is waited for."""
        self._is_parting = True
        return self.credentials() is not None or self._is_lost or not self._owned() or self.group_metadata().generation_id < 0

    def duty_before_leaving(self, now_ms: int) -> GiveUp | None:
        """For unsubscribe and close: the listener hears that everything goes. None: there is nothing."""
        self._check_clocks(now_ms)
        if isinstance(self._duty, TakeOver):  # it never heard of these
            self._subscription.withdraw(self._duty.partitions)
        self._duty = None
        owned = tuple(self._owned())
        return GiveUp(owned, is_lost=self._is_lost or self.group_metadata().generation_id < 0) if owned else None

    # --- commits --------------------------------------------------------------------------------------------------------

    def credentials(self) -> Credentials | None:
        """To sign a commit with; None: none can be made now, and `why_no_commit` says why."""
        raise NotImplementedError

    def why_no_commit(self) -> FastFetchError:
        """RebalanceInProgressError while (re)joining, FencedInstanceIdError once fenced, else CommitFailedError."""
        raise NotImplementedError

    def commit_refused(self, code: int, sent: Credentials, now_ms: int) -> None:
        """A commit signed with `sent` was answered with 22, 25, 27, 82, 110 or 113. Void if that is not what we are by now."""
        raise NotImplementedError

    def offset_fetch_refused(self, code: int, sent: Credentials, now_ms: int) -> None:
        """The same for reading offsets under the consumer protocol (25, 113). The reader asks again later."""

    def group_metadata(self) -> GroupMetadata:
        """As of now, for a transactional producer (KIP-447)."""
        raise NotImplementedError

    # --- the engine -----------------------------------------------------------------------------------------------------

    def pump(self, now_ms: int) -> None:
        raise NotImplementedError

    def topics(self) -> Iterable[str]:
        """Topics that metadata must be known of, beside the subscribed ones."""
        return ()

    def fail(self, error: FastFetchError) -> None:
        """No retry can cure it: the next poll raises it, and nothing is tried before the caller subscribes anew."""
        raise NotImplementedError

    # --- inside ---------------------------------------------------------------------------------------------------------

    def _next_duty(self, now_ms: int) -> Duty | None:
        raise NotImplementedError

    def _after_duty(self, duty: Duty, now_ms: int) -> None:
        raise NotImplementedError

    def _check_clocks(self, now_ms: int) -> None:
        """Has the session expired, or was there no poll for too long?"""
        raise NotImplementedError

    def _owned(self) -> set[TopicPartition]:
        return self._subscription.partitions()

    def _give_up(self, partitions: Iterable[TopicPartition]) -> None:
        self._subscription.withdraw(partitions)
        self._on_given_up(partitions)

    def _forget_caller(self) -> None:
        """This member has left: nothing of it is to be done in polls."""
        self._duty = None
        self._is_lost = self._is_parting = self._in_poll = False
        self._polled_ms = None

    def _lose(self, why: str) -> None:
        """The partitions are not ours any more."""
        self._is_lost = bool(self._owned())
        for state in self._subscription:
            state.halt()  # whoever iterates over its records stops
        if self._is_lost:
            log.warning("group %r: partitions are lost: %s", self._group, why)
        self.has_news = True

    def _remind(self, now_ms: int) -> None:
        """Polls go on and bring nothing: say so in the log as long as it lasts."""
        if now_ms >= self._remind_at_ms:
            if self._remind_at_ms:
                log.warning("group %r: reading nothing since %s; subscribe() again to go on", self._group, self._fatal)
            self._remind_at_ms = now_ms + REMIND_MS
        self._timer.at(self._remind_at_ms)

    def _stayed_away_ms(self, now_ms: int) -> int | None:
        """How long nobody has polled, if that is longer than max_poll_interval_ms; sets the timer otherwise."""
        if self._in_poll or self._polled_ms is None:
            return None
        left = self._polled_ms + self._config.max_poll_interval_ms - now_ms
        if left > 0:
            self._timer.at(now_ms + left)
            return None
        return now_ms - self._polled_ms

    def _no_member(self, what: str) -> CommitFailedError:
        return CommitFailedError(f"commit to group {self._group!r} failed: {what}")
