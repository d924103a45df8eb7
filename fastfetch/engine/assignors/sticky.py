"""`sticky` and `cooperative-sticky`: balanced as far as subscriptions allow, and little moved for it (KIP-54).

Balanced means: no member could take a partition from another that has at least two more. The steps:

1. Keep every valid claim to what a member had before.
2. Sort the rest by how many members are able to take it, then topic, then number.
3. Give each to the able member with the fewest, ties to the first in member order.
4. From the members with the most downwards, each gives one to the lightest member that is able to take one and has at least two
   fewer. Again until nobody can. What the giver did not have before goes first, then the last of what it had.

Each move of step 4 makes the sum of the squared counts smaller, so it ends. Applied to its own result, nothing changes:
all is kept, and nothing is left to move. Where all members want the same topics, no answer moves less.

A claim is valid if the partition exists, the member still wants the topic, it comes from the highest generation that any member
names (a member with an older one missed a rebalance in which its partitions may have gone elsewhere), and nobody else claims the
partition in that generation. Then one of them is wrong, we can't know which, and the partition is dealt anew.

Members are numbers and sets of members are bits of an int: "the first of the lightest that may have this topic" is an AND and a
look at the lowest bit, cheap for thousands of members, whatever their subscriptions look like.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_

from fastfetch.engine.assignors.contract import Assignor, GroupCluster, RebalanceProtocol, in_order, member_order, subscribers
from fastfetch.errors import ProtocolError
from fastfetch.protocol.consumer_protocol import (
    NO_GENERATION,
    Assignment,
    Subscription,
    decode_cooperative_user_data,
    decode_sticky_user_data,
    encode_cooperative_user_data,
    encode_sticky_user_data,
)
from fastfetch.types import TopicPartition

__all__ = ["Claims", "CooperativeStickyAssignor", "StickyAssignor", "share_out"]

log = logging.getLogger("fastfetch.engine")


@dataclass(frozen=True, slots=True)
class Claims:
    """What one member says it had, and since which generation."""

    partitions: Collection[TopicPartition] = ()
    generation: int = NO_GENERATION


class StickyAssignor(Assignor):
    """For eager groups. A member remembers what it had and tells in its user data, for it owns nothing any more when it joins."""

    name = "sticky"

    def __init__(self) -> None:
        self._had: Claims | None = None

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        return None if self._had is None else encode_sticky_user_data(self._had.partitions, self._had.generation)

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        self._had = Claims(assignment.partitions, generation)

    def assign(self, cluster: GroupCluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        claims = {member: _sticky_claims(member, subscription) for member, subscription in subscriptions.items()}
        return {member: Assignment(in_order(share)) for member, share in share_out(cluster, subscriptions, claims).items()}


class CooperativeStickyAssignor(Assignor):
    """The same shares, handed over in two rounds: what somebody still has is in nobody's assignment until it has let go."""

    name = "cooperative-sticky"
    protocols: tuple[RebalanceProtocol, ...] = ("cooperative", "eager")

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        return encode_cooperative_user_data(self._generation)

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        self._generation = generation

    def assign(self, cluster: GroupCluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        claims = {member: _owned_claims(member, subscription) for member, subscription in subscriptions.items()}
        kept = _valid(claims)
        # Claims of any generation count here. A member that missed the last rebalance does not know that it lost something; until
        # it has its next assignment it may still be reading.
        holders: dict[TopicPartition, set[str]] = {}
        for member, claim in claims.items():
            for tp in claim.partitions:
                holders.setdefault(tp, set()).add(member)

        def is_free(tp: TopicPartition, member: str) -> bool:
            return kept.get(tp) == member or holders.get(tp, set()) <= {member}

        return {
            member: Assignment(in_order(tp for tp in share if is_free(tp, member)))
            for member, share in share_out(cluster, subscriptions, claims).items()
        }


def _sticky_claims(member: str, subscription: Subscription) -> Claims:
    """From the user data. Bytes that make no sense are claims to nothing: one member's fault must not stop the group."""
    if not subscription.user_data:
        return Claims()
    try:
        return Claims(*decode_sticky_user_data(subscription.user_data))
    except ProtocolError as error:
        log.warning("member %s is taken to have had nothing: %s", member, error)
        return Claims()


def _owned_claims(member: str, subscription: Subscription) -> Claims:
    """From the subscription; its generation from the user data, where the subscription is too old to have one."""
    generation = subscription.generation
    if generation < 0 and subscription.user_data:
        try:
            generation = decode_cooperative_user_data(subscription.user_data)
        except ProtocolError as error:
            log.warning("member %s has no generation: %s", member, error)
    return Claims(subscription.owned, generation)


def _valid(claims: Mapping[str, Claims]) -> dict[TopicPartition, str]:
    """Whose each partition is, as far as claims can be believed. Whether it exists and is wanted is not looked at."""
    highest = max((claim.generation for claim in claims.values()), default=NO_GENERATION)
    found: dict[TopicPartition, str] = {}
    twice: set[TopicPartition] = set()
    for member, claim in claims.items():
        if claim.generation == highest:
            for tp in claim.partitions:
                if found.setdefault(tp, member) != member:
                    twice.add(tp)
    return {tp: member for tp, member in found.items() if tp not in twice}


def share_out(
    cluster: GroupCluster, subscriptions: Mapping[str, Subscription], claims: Mapping[str, Claims]
) -> dict[str, list[TopicPartition]]:
    """The shares that a group ends up with, by member id. Every partition that somebody wants is in exactly one of them."""
    members = member_order(subscriptions)
    able = subscribers(cluster, subscriptions, members)
    index = {member: place for place, member in enumerate(members)}
    owners = {tp: index[member] for tp, member in _valid(claims).items()}
    shares = _Shares(len(members))
    for topic in sorted(able, key=lambda topic: len(able[topic])):  # stable: topics of one number of subscribers stay by name
        shares.add_topic(topic, cluster.partitions[topic], able[topic], owners)
    shares.fill()
    shares.level()
    return {member: shares.of(place) for member, place in index.items()}


class _Shares:
    """Who has what while it is being worked out.

    Topics with the same subscribers are of one kind: their partitions are alike as to who can take them. A kind is known by its
    subscribers, as bits.
    """

    def __init__(self, members: int) -> None:
        self._loads = _Loads(members)
        self._kinds: dict[tuple[int, ...], int] = {}
        self._free: list[tuple[TopicPartition, int]] = []
        self._kept = [_Pile() for _ in range(members)]
        self._given = [_Pile() for _ in range(members)]

    def of(self, member: int) -> list[TopicPartition]:
        """What a member has."""
        return [*self._kept[member].all(), *self._given[member].all()]

    def add_topic(self, topic: str, count: int, able: list[int], owners: Mapping[TopicPartition, int]) -> None:
        """Steps 1 and 2: owners that still want the topic keep what they have of it, the rest waits for `fill`."""
        together = tuple(able)
        if together not in self._kinds:
            self._kinds[together] = sum(1 << member for member in able)
        kind = self._kinds[together]
        for number in range(count):
            tp = TopicPartition(topic, number)
            owner = owners.get(tp)
            if owner is not None and kind >> owner & 1:
                self._kept[owner].add(tp, kind)
                self._loads.change(owner, 1)
            else:
                self._free.append((tp, kind))

    def fill(self) -> None:
        """Step 3, in the order in which topics were added."""
        for tp, kind in self._free:
            self._give(_lowest(self._loads.lightest(kind)), tp, kind)

    def level(self) -> int:
        """Step 4. The number of moves it took.

        A sweep goes through the counts from the top. Whoever can't give may be able to later, when a member below has given in
        turn; hence the next sweep. Each move takes at least two off the sum of the squares: so many there are at most.
        """
        at_most = self._loads.squares() // 2
        moves, before = 0, -1
        while before < moves <= at_most:
            before = moves
            for count in self._loads.downwards():
                moves += sum(self._give_one_away(member, count) for member in self._loads.those_with(count))
        return moves

    def _give_one_away(self, member: int, count: int) -> bool:
        """From a member with `count` partitions to the lightest that can take one, if it has at least two fewer."""
        kept, given = self._kept[member], self._given[member]
        takers = self._loads.lightest(kept.takers | given.takers, below=count - 1)
        if not takers:
            return False
        pile = given if takers & given.takers else kept
        taker = _lowest(takers & pile.takers)
        tp, kind = pile.take_for(taker)
        self._loads.change(member, -1)
        self._give(taker, tp, kind)
        return True

    def _give(self, member: int, tp: TopicPartition, kind: int) -> None:
        self._given[member].add(tp, kind)
        self._loads.change(member, 1)


class _Pile:
    """Partitions of one member by kind. `takers` are those who could have one of them, the member itself included."""

    __slots__ = ("_kinds", "takers")

    def __init__(self) -> None:
        self._kinds: dict[int, list[TopicPartition]] = {}
        self.takers = 0

    def all(self) -> Iterator[TopicPartition]:
        for those in self._kinds.values():
            yield from those

    def add(self, tp: TopicPartition, kind: int) -> None:
        self._kinds.setdefault(kind, []).append(tp)
        self.takers |= kind

    def take_for(self, taker: int) -> tuple[TopicPartition, int]:
        """Take out the last partition of the first kind that `taker`, one of `takers`, may have."""
        kind = next(kind for kind in self._kinds if kind >> taker & 1)
        those = self._kinds[kind]
        tp = those.pop()
        if not those:
            del self._kinds[kind]
            self.takers = reduce(or_, self._kinds, 0)
        return tp, kind


class _Loads:
    """How many partitions each member has, and which members have how many."""

    def __init__(self, members: int) -> None:
        self._counts = [0] * members
        self._those_with = {0: (1 << members) - 1}  # count -> members, as bits
        self._levels = [0]  # the counts that somebody has, ascending

    def change(self, member: int, by: int) -> None:
        """A member has got or lost some."""
        bit, old = 1 << member, self._counts[member]
        new = self._counts[member] = old + by
        self._those_with[old] ^= bit
        if not self._those_with[old]:
            del self._those_with[old]
            del self._levels[bisect_left(self._levels, old)]
        if new not in self._those_with:
            self._those_with[new] = 0
            insort(self._levels, new)
        self._those_with[new] |= bit

    def squares(self) -> int:
        """The sum of the squared counts: the smaller, the more even."""
        return sum(count * count for count in self._counts)

    def lightest(self, able: int, below: int | None = None) -> int:
        """Of the members in these bits those with the fewest partitions, as bits; 0 if they all have `below` or more."""
        for count in self._levels:
            if below is not None and count >= below:
                break
            if found := self._those_with[count] & able:
                return found
        return 0

    def downwards(self) -> Iterator[int]:
        """The counts that somebody has, from the top, while those below change."""
        count = self._levels[-1] + 1
        while place := bisect_left(self._levels, count):
            count = self._levels[place - 1]
            yield count

    def those_with(self, count: int) -> list[int]:
        """Members with so many, in order, as of now."""
        found, left = [], self._those_with.get(count, 0)
        while left:
            found.append(_lowest(left))
            left &= left - 1
        return found


def _lowest(bits: int) -> int:
    """Number of the lowest bit that is set."""
    return (bits & -bits).bit_length() - 1
