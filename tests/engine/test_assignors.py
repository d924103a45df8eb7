"""Assignors: the Java client's answers, worked examples, and what must hold of every answer."""

from __future__ import annotations

import json
import lzma
import random
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example as example_of
from hypothesis import given
from hypothesis import strategies as st

from fastfetch.engine.assignors import (
    ASSIGNORS,
    Assignment,
    Assignor,
    CooperativeStickyAssignor,
    GroupCluster,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    Subscription,
    make_assignors,
    member_order,
    rebalance_protocol,
)
from fastfetch.engine.assignors.sticky import Claims, _Loads, _Shares, share_out
from fastfetch.errors import ConfigError
from fastfetch.protocol.consumer_protocol import (
    decode_cooperative_user_data,
    decode_sticky_user_data,
    decode_subscription,
    encode_subscription,
)
from fastfetch.types import TopicPartition

DATA = Path(__file__).parent.parent / "data" / "assignors.jsonl.xz"

Subscriptions = dict[str, Subscription]
Shares = dict[str, set[TopicPartition]]
STICKY = ("sticky", "cooperative-sticky")


def tps(text: str) -> tuple[TopicPartition, ...]:
    """ "t0p0 t1p2"."""
    return tuple(TopicPartition(topic, int(number)) for topic, _, number in (word.partition("p") for word in text.split()))


def shares(assignments: Mapping[str, Assignment]) -> Shares:
    for assignment in assignments.values():
        assert len(set(assignment.partitions)) == len(assignment.partitions)
    return {member: set(assignment.partitions) for member, assignment in assignments.items()}


def owning(subscription: Subscription, partitions: Collection[TopicPartition], generation: int) -> Subscription:
    """The subscription of a member that had this, good for both sticky assignors: each looks at its own part of it."""
    memory = StickyAssignor()
    memory.on_assignment(Assignment(tuple(partitions)), generation)
    data = memory.subscription_user_data(subscription.topics)
    return replace(subscription, owned=tuple(partitions), generation=generation, user_data=data)


def valid_claims(subscriptions: Subscriptions, name: str) -> dict[TopicPartition, str]:
    """Written again, slowly: the claims that count, and of whom."""
    claims = {}
    for member, one in subscriptions.items():
        if name == "cooperative-sticky":
            generation = one.generation
            if generation < 0 and one.user_data:
                generation = decode_cooperative_user_data(one.user_data)
            claims[member] = (set(one.owned), generation)
        else:
            owned, generation = decode_sticky_user_data(one.user_data) if one.user_data else ((), -1)
            claims[member] = (set(owned), generation)
    highest = max(generation for _, generation in claims.values())
    current = [(tp, member) for member, (owned, generation) in claims.items() if generation == highest for tp in owned]
    owners = [tp for tp, _ in current]
    return {tp: member for tp, member in current if owners.count(tp) == 1}


def moved(subscriptions: Subscriptions, result: Shares, name: str) -> int:
    """How many valid claims are not honoured."""
    return sum(tp not in result[member] for tp, member in valid_claims(subscriptions, name).items())


def wanted(cluster: GroupCluster, subscriptions: Subscriptions) -> set[TopicPartition]:
    topics = {topic for one in subscriptions.values() for topic in one.topics if topic in cluster.partitions}
    return {TopicPartition(topic, number) for topic in topics for number in range(cluster.partitions[topic])}


def check_valid(cluster: GroupCluster, subscriptions: Subscriptions, result: Shares) -> None:
    """Every member has an answer; nobody has what it does not want, or what another has; nothing is made up."""
    assert result.keys() == subscriptions.keys()
    given_out = [tp for share in result.values() for tp in share]
    assert len(set(given_out)) == len(given_out)
    assert set(given_out) <= wanted(cluster, subscriptions)
    assert all(tp.topic in subscriptions[member].topics for member, share in result.items() for tp in share)


def check_complete(cluster: GroupCluster, subscriptions: Subscriptions, result: Shares) -> None:
    check_valid(cluster, subscriptions, result)
    assert set().union(*result.values()) == wanted(cluster, subscriptions)


def check_balanced(subscriptions: Subscriptions, result: Shares) -> None:
    """No member could take a partition from another that has at least two more."""
    for heavy, share in result.items():
        topics = {tp.topic for tp in share}
        for light, one in subscriptions.items():
            if topics & set(one.topics):
                assert len(share) <= len(result[light]) + 1, (heavy, light)


def settle(name: str, cluster: GroupCluster, subscriptions: Subscriptions) -> Shares:
    """What a group ends up with: one round, or for the cooperative assignor a second one after members let go."""
    first = shares(ASSIGNORS[name]().assign(cluster, subscriptions))
    check_valid(cluster, subscriptions, first)
    if name != "cooperative-sticky":
        return first
    # What goes to a new owner in this round had none before.
    for member, share in first.items():
        for tp in share - set(subscriptions[member].owned):
            assert not any(tp in one.owned for other, one in subscriptions.items() if other != member), tp
    second_round = {member: owning(one, first[member], 1_000) for member, one in subscriptions.items()}
    second = shares(ASSIGNORS[name]().assign(cluster, second_round))
    assert all(first[member] <= second[member] for member in first), "the second round takes nothing away"
    return second


# ---------------------------------------------------------------------------------------------------------- Java's answers


@cache
def java() -> list[dict[str, Any]]:
    return [json.loads(text) for text in lzma.decompress(DATA.read_bytes()).decode().splitlines()]


def members_of(one: dict[str, Any]) -> Subscriptions:
    """A round's members, by way of the bytes that they would send."""
    found = {}
    for member, instance, topics, owned, generation, data in one["members"]:
        subscription = Subscription(
            tuple(topics), None if data is None else bytes.fromhex(data), tuple(TopicPartition(*tp) for tp in owned), generation
        )
        found[member] = replace(decode_subscription(encode_subscription(subscription)), instance_id=instance)
    return found


@pytest.mark.parametrize("name", ASSIGNORS)
def test_the_golden_data_is_there(name: str) -> None:
    assert sum(group["assignor"] == name for group in java()) == 68


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_the_same_answer_as_java(name: str) -> None:
    for group in java():
        for one in group["rounds"] if group["assignor"] == name else ():
            result = ASSIGNORS[name]().assign(GroupCluster(one["topics"]), members_of(one))
            answer = {member: [list(tp) for tp in assignment.partitions] for member, assignment in result.items()}
            assert answer == one["java"], (group["name"], one["change"])


@pytest.mark.parametrize("name", STICKY)
def test_as_good_an_answer_as_javas(name: str) -> None:
    """Where the answer is not determined: valid, balanced, and no more moved than by Java. Most are equal all the same."""
    equal = total = 0
    for group in java():
        for one in group["rounds"] if group["assignor"] == name else ():
            cluster, subscriptions = GroupCluster(one["topics"]), members_of(one)
            result = shares(ASSIGNORS[name]().assign(cluster, subscriptions))
            theirs = {member: {TopicPartition(*tp) for tp in share} for member, share in one["java"].items()}
            check_valid(cluster, subscriptions, result)
            assert moved(subscriptions, result, name) <= moved(subscriptions, theirs, name), (group["name"], one["change"])
            settled = settle(name, cluster, subscriptions)
            check_complete(cluster, subscriptions, settled)
            check_balanced(subscriptions, settled)
            equal += result == theirs
            total += 1
    assert total == {"sticky": 247, "cooperative-sticky": 317}[name]
    assert equal >= {"sticky": 164, "cooperative-sticky": 234}[name]


# --------------------------------------------------------------------------------------------------------- worked examples


def example(topics: str, **members: str) -> tuple[GroupCluster, Subscriptions]:
    """Topics as "t0:4 t1:4"; of each member its topics, of which "*" are all."""
    partitions = {name: int(count) for name, _, count in (word.partition(":") for word in topics.split())}
    return GroupCluster(partitions), {
        member: Subscription(tuple(partitions) if wants == "*" else tuple(wants.split())) for member, wants in members.items()
    }


NESTED = {"c0": "t0", "c1": "t0 t1", "c2": "t0 t1 t2"}


@pytest.mark.parametrize(
    ("name", "topics", "members", "expected"),
    [
        ("range", "t0:4 t1:4", {"c0": "*", "c1": "*"}, ["t0p0 t0p1 t1p0 t1p1", "t0p2 t0p3 t1p2 t1p3"]),
        ("range", "t0:3 t1:3", {"c0": "*", "c1": "*"}, ["t0p0 t0p1 t1p0 t1p1", "t0p2 t1p2"]),
        ("range", "t0:7", {"c0": "*", "c1": "*", "c2": "*"}, ["t0p0 t0p1 t0p2", "t0p3 t0p4", "t0p5 t0p6"]),
        ("range", "t0:2", {"c0": "*", "c1": "*", "c2": "*"}, ["t0p0", "t0p1", ""]),
        ("range", "t0:1 t1:2 t2:3", NESTED, ["t0p0", "t1p0", "t1p1 t2p0 t2p1 t2p2"]),
        ("roundrobin", "t0:3 t1:3", {"c0": "*", "c1": "*"}, ["t0p0 t0p2 t1p1", "t0p1 t1p0 t1p2"]),
        ("roundrobin", "t0:4 t1:4", {"c0": "*", "c1": "*"}, ["t0p0 t0p2 t1p0 t1p2", "t0p1 t0p3 t1p1 t1p3"]),
        ("roundrobin", "t0:1 t1:2 t2:3", NESTED, ["t0p0", "t1p0", "t1p1 t2p0 t2p1 t2p2"]),
        ("sticky", "t0:3 t1:3", {"c0": "*", "c1": "*"}, ["t0p0 t0p2 t1p1", "t0p1 t1p0 t1p2"]),
        ("sticky", "t0:4 t1:4", {"c0": "*", "c1": "*"}, ["t0p0 t0p2 t1p0 t1p2", "t0p1 t0p3 t1p1 t1p3"]),
        ("sticky", "t0:1 t1:2 t2:3", NESTED, ["t0p0", "t1p0 t1p1", "t2p0 t2p1 t2p2"]),
        (
            "sticky",
            "t0:2 t1:2 t2:2 t3:2",
            {"c0": "*", "c1": "*", "c2": "*"},
            ["t0p0 t1p1 t3p0", "t0p1 t2p0 t3p1", "t1p0 t2p1"],
        ),
    ],
)
def test_a_worked_example(name: str, topics: str, members: dict[str, str], expected: list[str]) -> None:
    cluster, subscriptions = example(topics, **members)
    result = ASSIGNORS[name]().assign(cluster, subscriptions)
    assert [result[member].partitions for member in sorted(members)] == [tps(text) for text in expected]


def test_sticky_keeps_what_it_can_when_a_member_leaves() -> None:
    """Kafka's documented example. That c0 and c2 keep theirs is the point; where the rest goes is pinned for us alone."""
    cluster, subscriptions = example("t0:2 t1:2 t2:2 t3:2", c0="*", c2="*")
    subscriptions["c0"] = owning(subscriptions["c0"], tps("t0p0 t1p1 t3p0"), 1)
    subscriptions["c2"] = owning(subscriptions["c2"], tps("t1p0 t2p1"), 1)
    result = StickyAssignor().assign(cluster, subscriptions)
    assert result["c0"].partitions == tps("t0p0 t1p1 t2p0 t3p0")
    assert result["c2"].partitions == tps("t0p1 t1p0 t2p1 t3p1")


def test_cooperative_hands_over_in_two_rounds() -> None:
    """What moves is in nobody's assignment in round 1, and in the new owner's in round 2; a third changes nothing."""
    cluster, subscriptions = example("t0:2 t1:2 t2:2 t3:2", c0="*", c1="*", c2="*")
    had: Shares = {"c0": set(tps("t0p0 t0p1 t1p1 t3p0")), "c1": set(), "c2": set(tps("t1p0 t2p0 t2p1 t3p1"))}
    rounds = [had]
    for generation in (1, 2, 3):
        members = {member: owning(one, rounds[-1][member], generation) for member, one in subscriptions.items()}
        rounds.append(shares(CooperativeStickyAssignor().assign(cluster, members)))
    _, first, second, third = rounds
    moving = set(tps("t3p0 t3p1"))
    assert first == {"c0": had["c0"] - moving, "c1": set(), "c2": had["c2"] - moving}
    assert second == third == {**first, "c1": moving}


# ------------------------------------------------------------------------------------------------- claims worth nothing


@pytest.mark.parametrize("name", STICKY)
def test_two_claims_to_one_partition_are_none(name: str) -> None:
    cluster, subscriptions = example("t:4", c0="*", c1="*", c2="*")
    subscriptions["c0"] = owning(subscriptions["c0"], tps("tp0 tp1"), 3)
    subscriptions["c1"] = owning(subscriptions["c1"], tps("tp1 tp2"), 3)
    first = shares(ASSIGNORS[name]().assign(cluster, subscriptions))
    assert tps("tp0")[0] in first["c0"]
    assert tps("tp2")[0] in first["c1"]
    if name == "cooperative-sticky":
        assert not any(tps("tp1")[0] in share for share in first.values()), "one of the two may still read it"
    check_complete(cluster, subscriptions, settle(name, cluster, subscriptions))


@pytest.mark.parametrize("name", STICKY)
def test_only_the_highest_generation_counts(name: str) -> None:
    cluster, subscriptions = example("t:4", c0="*", c1="*")
    subscriptions["c0"] = owning(subscriptions["c0"], tps("tp0 tp1"), 3)
    subscriptions["c1"] = owning(subscriptions["c1"], tps("tp0 tp1 tp2"), 2)
    assert settle(name, cluster, subscriptions) == {"c0": set(tps("tp0 tp1")), "c1": set(tps("tp2 tp3"))}


def test_what_a_member_of_an_older_generation_may_still_read_is_not_given_away() -> None:
    cluster, subscriptions = example("t:4", c0="*", c1="*")
    subscriptions["c0"] = owning(subscriptions["c0"], tps("tp0"), 3)
    subscriptions["c1"] = owning(subscriptions["c1"], tps("tp1 tp2 tp3"), 2)
    first = shares(CooperativeStickyAssignor().assign(cluster, subscriptions))
    assert first == {"c0": set(tps("tp0")), "c1": set(tps("tp1 tp3"))}
    assert settle("cooperative-sticky", cluster, subscriptions) == {"c0": set(tps("tp0 tp2")), "c1": set(tps("tp1 tp3"))}


def test_below_version_2_the_generation_is_in_the_user_data() -> None:
    cluster, subscriptions = example("t:2", c0="*", c1="*")
    for member, generation in (("c0", 4), ("c1", 5)):
        memory = CooperativeStickyAssignor()
        memory.on_assignment(Assignment(), generation)
        data = memory.subscription_user_data(("t",))
        subscriptions[member] = replace(subscriptions[member], owned=tps("tp0"), user_data=data)
    result = shares(CooperativeStickyAssignor().assign(cluster, subscriptions))
    assert tps("tp0")[0] in result["c1"]


@pytest.mark.parametrize("data", [b"", b"\1", b"\xff" * 4, b"\0\0\0\1\x7f", b"\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\xff\xff\xff\xff"])
@pytest.mark.parametrize("name", STICKY)
def test_nonsense_from_one_member_does_not_stop_the_group(name: str, data: bytes) -> None:
    cluster, subscriptions = example("t:4", c0="*", c1="*")
    made_up = (*tps("tp9 nowherep0 tp0"), TopicPartition("t", -1), TopicPartition("t", 2**31 - 1))
    subscriptions["c0"] = replace(subscriptions["c0"], user_data=data, owned=made_up)
    settled = settle(name, cluster, subscriptions)
    check_complete(cluster, subscriptions, settled)
    check_balanced(subscriptions, settled)


# --------------------------------------------------------------------------------------------------------------- any group


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> tuple[GroupCluster, Subscriptions]:
    """Members, topics and claims of any sort: stale, double, made up."""
    topics = {f"t{number}": draw(st.integers(1, 8)) for number in range(draw(st.integers(0, 5)))}
    names = [*topics, "nowhere"]
    members = draw(st.lists(st.sampled_from([f"m{number}" for number in range(9)]), min_size=1, max_size=9, unique=True))
    anything = [TopicPartition(topic, number) for topic in names for number in range(topics.get(topic, 1) + 1)]
    subscriptions = {}
    for member in members:
        wants = names if alike else draw(st.lists(st.sampled_from(names), max_size=6))
        had = draw(st.lists(st.sampled_from(anything), max_size=12))
        instance = draw(st.none() | st.just(f"static-{member}"))
        subscriptions[member] = owning(Subscription(tuple(wants), instance_id=instance), had, draw(st.integers(1, 3)))
    return GroupCluster(topics), subscriptions


@given(groups(), st.sampled_from([*ASSIGNORS]), st.randoms())
def test_every_answer_is_complete_and_does_not_depend_on_the_order_of_members(
    group: tuple[GroupCluster, Subscriptions], name: str, rnd: random.Random
) -> None:
    cluster, subscriptions = group
    check_complete(cluster, subscriptions, settle(name, cluster, subscriptions))
    shuffled = [*subscriptions.items()]
    rnd.shuffle(shuffled)
    assert ASSIGNORS[name]().assign(cluster, dict(shuffled)) == ASSIGNORS[name]().assign(cluster, subscriptions)


@given(groups(), st.sampled_from(STICKY))
def test_sticky_answers_are_balanced_and_their_own_fixed_point(group: tuple[GroupCluster, Subscriptions], name: str) -> None:
    cluster, subscriptions = group
    settled = settle(name, cluster, subscriptions)
    check_balanced(subscriptions, settled)
    again = {member: owning(one, settled[member], 2_000) for member, one in subscriptions.items()}
    assert shares(ASSIGNORS[name]().assign(cluster, again)) == settled


@given(groups(alike=True), st.sampled_from(STICKY))
def test_where_all_want_the_same_not_one_move_too_many(group: tuple[GroupCluster, Subscriptions], name: str) -> None:
    """Members that had most may keep one more than the others. Whoever had more than its share loses the rest, nobody else."""
    cluster, subscriptions = group
    settled = settle(name, cluster, subscriptions)
    counts = sorted(map(len, settled.values()))
    assert counts[-1] - counts[0] <= 1
    real = wanted(cluster, subscriptions)
    had = dict.fromkeys(subscriptions, 0)
    for tp, member in valid_claims(subscriptions, name).items():
        had[member] += tp in real
    least = sum(max(0, claimed - kept) for claimed, kept in zip(sorted(had.values()), counts, strict=True))
    lost = sum(tp in real and tp not in settled[member] for tp, member in valid_claims(subscriptions, name).items())
    assert lost == least


@given(groups())
def test_levelling_ends_within_its_bound(group: tuple[GroupCluster, Subscriptions]) -> None:
    """Each move makes the sum of squares smaller by at least two."""
    cluster, subscriptions = group
    members = member_order(subscriptions)
    work = _Shares(len(members))
    for topic, count in cluster.partitions.items():
        able = [index for index, member in enumerate(members) if topic in subscriptions[member].topics]
        if able:  # the worst start: the first has it all
            work.add_topic(topic, count, able, {TopicPartition(topic, number): able[0] for number in range(count)})
    before = [len(work.of(index)) for index in range(len(members))]
    moves = work.level()
    after = [len(work.of(index)) for index in range(len(members))]
    assert sum(before) == sum(after)
    assert 2 * moves <= sum(n * n for n in before) - sum(n * n for n in after)
    assert work.level() == 0, "it was done"


@example_of(([4, 0, 1, 3, 2], [8, 13, 14, 14]))  # takes 7 sweeps, and the eighth to see that it is done
@given(
    st.permutations(range(7)).flatmap(
        lambda chain: st.tuples(st.just(chain), st.lists(st.integers(0, 20), min_size=6, max_size=6))
    )
)
def test_a_chain_of_members_is_levelled_to_its_end(case: tuple[list[int], list[int]]) -> None:
    """Each shares a topic with its neighbour alone, so that what one gives lets the next one give: sweep after sweep."""
    chain, partitions = case
    work = _Shares(len(chain))
    for place, ((taker, owner), count) in enumerate(zip(pairwise(chain), partitions, strict=True)):
        if count:
            owners = {TopicPartition(f"t{place}", number): owner for number in range(count)}
            work.add_topic(f"t{place}", count, sorted((taker, owner)), owners)
    moves = work.level()
    assert 2 * moves <= sum(count * count for count in partitions)
    result = {member: work.of(member) for member in chain}
    for place, pair in enumerate(pairwise(chain)):
        for one, other in (pair, reversed(pair)):
            if any(tp.topic == f"t{place}" for tp in result[one]):
                assert len(result[one]) <= len(result[other]) + 1
    assert work.level() == 0


# --------------------------------------------------------------------------------------------------------------------- size


def large(kind: str) -> tuple[GroupCluster, Subscriptions, dict[str, Claims]]:
    """2,000 members, 20,000 partitions, and of all starts the one that leaves most to move."""
    ids = [f"consumer-{number:04}" for number in range(2_000)]
    topics = [f"t{number:04}" for number in range(1 if kind == "one topic" else 2_000)]
    cluster = GroupCluster(dict.fromkeys(topics, 20_000 // len(topics)))
    rnd = random.Random(5)
    wants = {
        "one topic": lambda _: topics,
        "all want all": lambda _: topics,
        "some each": lambda _: rnd.sample(topics, 10),
        "nested": lambda place: topics[: place + 1],
    }[kind]
    subscriptions = {member: Subscription(tuple(wants(place))) for place, member in enumerate(ids)}
    everything = [TopicPartition(topic, number) for topic, count in cluster.partitions.items() for number in range(count)]
    return cluster, subscriptions, {member: Claims(everything if member == ids[-1] else ()) for member in ids}


@pytest.mark.parametrize("kind", ["one topic", "all want all", "some each", "nested"])
def test_a_large_group(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in steps of its inner loops, of which there are few for each partition and each member."""
    steps = 0
    lightest = _Loads.lightest

    def counted(loads: _Loads, able: int, below: int | None = None) -> int:
        nonlocal steps
        steps += 1
        return lightest(loads, able, below)

    monkeypatch.setattr(_Loads, "lightest", counted)
    cluster, subscriptions, claims = large(kind)
    result = share_out(cluster, subscriptions, claims)
    total = sum(cluster.partitions.values())
    unwanted = cluster.partitions.keys() - {topic for one in subscriptions.values() for topic in one.topics}
    assert sum(map(len, result.values())) == total - 10 * len(unwanted)
    assert steps < 4 * (total + len(subscriptions))
    if kind != "some each":
        assert {len(share) for share in result.values()} == {10}
    for assignor in (RangeAssignor(), RoundRobinAssignor()):
        assert sum(len(one.partitions) for one in assignor.assign(cluster, subscriptions).values()) == total - 10 * len(unwanted)


# --------------------------------------------------------------------------------------------------- memory, order, and ours


def test_what_members_remember() -> None:
    sticky, cooperative = StickyAssignor(), CooperativeStickyAssignor()
    assert sticky.subscription_user_data(("t",)) is None
    assert cooperative.subscription_user_data(("t",)) == b"\xff\xff\xff\xff"
    for memory in (sticky, cooperative):
        memory.on_assignment(Assignment(tps("tp1 tp0")), 7)
    data = sticky.subscription_user_data(("t",))
    assert data is not None
    assert decode_sticky_user_data(data) == (tps("tp1 tp0"), 7)
    assert cooperative.subscription_user_data(("t",)) == b"\0\0\0\7"
    assert RangeAssignor().subscription_user_data(("t",)) is None
    RangeAssignor().on_assignment(Assignment(), 1)


def test_static_members_come_first() -> None:
    of = {"a": None, "b": "z", "c": "y", "d": None, "\ue000": None, "\U0001f600": None}
    subscriptions = {member: Subscription((), instance_id=instance) for member, instance in of.items()}
    assert member_order(subscriptions) == ["c", "b", "a", "d", "\U0001f600", "\ue000"]


def test_names_and_protocols() -> None:
    assert {name: make().protocols for name, make in ASSIGNORS.items()} == {
        "range": ("eager",),
        "roundrobin": ("eager",),
        "sticky": ("eager",),
        "cooperative-sticky": ("cooperative", "eager"),
    }
    assert all(make().name == name for name, make in ASSIGNORS.items())


def test_an_assignor_of_ones_own_goes_by_user_data() -> None:
    class Weighted(Assignor):
        """Members say how much they can carry; partitions go to whoever has least for its weight."""

        name = "weighted"

        def __init__(self, weight: int) -> None:
            self.weight = weight

        def subscription_user_data(self, topics: Collection[str]) -> bytes:
            return bytes([self.weight])

        def assign(self, cluster: GroupCluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
            out: dict[str, list[TopicPartition]] = {member: [] for member in sorted(subscriptions)}
            for topic, count in sorted(cluster.partitions.items()):
                for number in range(count):
                    able = [member for member in out if topic in subscriptions[member].topics]
                    lightest = min(able, key=lambda member: len(out[member]) / (subscriptions[member].user_data or b"\1")[0])
                    out[lightest].append(TopicPartition(topic, number))
            return {member: Assignment(tuple(share)) for member, share in out.items()}

    members = {"small": Weighted(1), "large": Weighted(3)}
    subscriptions = {name: Subscription(("t",), one.subscription_user_data(("t",))) for name, one in members.items()}
    result = members["small"].assign(GroupCluster({"t": 8}), subscriptions)
    assert {name: len(one.partitions) for name, one in result.items()} == {"small": 2, "large": 6}
    assert members["small"].protocols == ("eager",)


@pytest.mark.parametrize("name", ASSIGNORS)
def test_nobody_and_nothing(name: str) -> None:
    assert ASSIGNORS[name]().assign(GroupCluster({"t": 3}), {}) == {}
    alone = {"c0": Subscription(("t", "t", "nowhere"))}
    assert ASSIGNORS[name]().assign(GroupCluster({}), alone) == {"c0": Assignment()}
    assert ASSIGNORS[name]().assign(GroupCluster({"t": 3, "u": 3}), alone) == {"c0": Assignment(tps("tp0 tp1 tp2"))}


# --- from the settings ------------------------------------------------------------------------------------------------


class OnlyCooperative(RangeAssignor):
    name = "only-cooperative"
    protocols = ("cooperative",)


def test_names_and_classes_make_fresh_assignors_and_objects_are_taken_as_they_are() -> None:
    mine = OnlyCooperative()
    first = make_assignors(("range", "sticky", OnlyCooperative, mine))
    assert [type(assignor) for assignor in first] == [RangeAssignor, StickyAssignor, OnlyCooperative, OnlyCooperative]
    assert first[3] is mine
    again = make_assignors(("range", "sticky", OnlyCooperative, mine))
    assert [a is b for a, b in zip(first, again, strict=True)] == [False, False, False, True], "they remember what a member had"


@pytest.mark.parametrize(
    ("strategies", "protocol"),
    [
        (("range", "cooperative-sticky"), "eager"),
        (("cooperative-sticky", "range"), "eager"),
        (("cooperative-sticky",), "cooperative"),
        (("cooperative-sticky", OnlyCooperative), "cooperative"),
        (("sticky", "roundrobin"), "eager"),
    ],
)
def test_a_group_rebalances_as_well_as_every_strategy_allows(strategies: tuple[Any, ...], protocol: str) -> None:
    assert rebalance_protocol(make_assignors(strategies)) == protocol


def test_strategies_with_no_way_to_rebalance_in_common_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"range is for eager, only-cooperative is for cooperative$"):
        rebalance_protocol(make_assignors(("range", OnlyCooperative)))


def test_everything_public_is_what_the_engine_uses() -> None:
    from fastfetch import assignors as public
    from fastfetch.engine import assignors

    assert all(getattr(public, name) is getattr(assignors, name) for name in public.__all__)
