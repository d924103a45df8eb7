"""SubscriptionState: one way of choosing at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fastfetch.engine.subscription import Mode, Phase, SubscriptionState
from fastfetch.errors import UsageError
from fastfetch.types import TopicPartition

P0 = TopicPartition("t", 0)

CHOICES: dict[Mode, Callable[[SubscriptionState], None]] = {
    Mode.ASSIGNED: lambda s: s.assign([P0]),
    Mode.TOPICS: lambda s: s.subscribe(["t"]),
}


@pytest.mark.parametrize("first", CHOICES)
@pytest.mark.parametrize("second", CHOICES)
def test_partitions_are_chosen_in_one_way_at_a_time(first: Mode, second: Mode) -> None:
    state = SubscriptionState(has_group=False)
    CHOICES[first](state)
    if first is second:
        CHOICES[second](state)
        assert state.mode is first
    else:
        with pytest.raises(UsageError, match=r"unsubscribe\(\) first"):
            CHOICES[second](state)
        assert state.mode is first
        state.unsubscribe()
        CHOICES[second](state)
        assert state.mode is second


@pytest.mark.parametrize("leave", [lambda s: s.assign([]), lambda s: s.unsubscribe()])
def test_assigning_nothing_ends_the_mode(leave: Callable[[SubscriptionState], None]) -> None:
    state = SubscriptionState(has_group=False)
    state.assign([P0])
    leave(state)
    assert state.mode is Mode.NONE
    assert not state.partitions()
    state.subscribe(["t"])


def test_the_pattern_mode_is_exclusive_as_well() -> None:
    state = SubscriptionState(has_group=False)
    state.assign([P0])
    with pytest.raises(UsageError):
        state.check_mode(Mode.PATTERN)


def test_a_partition_waits_for_the_committed_offset_only_in_a_group() -> None:
    for has_group, phase in ((True, Phase.AWAITING_COMMITTED), (False, Phase.AWAITING_RESET)):
        state = SubscriptionState(has_group=has_group)
        state.assign([P0])
        assert state.get(P0, "test").phase is phase


def test_positions_leaves_out_what_has_none() -> None:
    state = SubscriptionState(has_group=False)
    state.assign([P0, TopicPartition("t", 1)])
    state.seek(state.get(P0, "test"), 7)
    assert {tp: at.offset for tp, at in state.positions().items()} == {P0: 7}


def test_a_look_up_settles_only_the_partition_that_waits_for_it() -> None:
    state = SubscriptionState(has_group=False)
    state.assign([P0])
    p0 = state.get(P0, "test")
    old = p0.ticket
    state.request_reset(p0, None)
    assert not state.settle(p0, old, 5), "an older look-up"
    assert p0.position is None
    assert state.settle(p0, p0.ticket, 7)
    assert not state.settle(p0, p0.ticket, 8), "it waits for nothing any more"
    assert p0.position == 7
    state.request_reset(p0, None)
    state.assign([TopicPartition("t", 1)])
    assert not state.settle(p0, p0.ticket, 9), "it was given up"
    assert p0.position is None


def test_whatever_has_to_be_asked_about_counts_as_a_move() -> None:
    """Other state machines look at the partitions that wait only when there is a new one."""
    subscription = SubscriptionState(has_group=False)
    seen = subscription.moves
    tp = TopicPartition("t", 0)

    def moved() -> bool:
        nonlocal seen
        before, seen = seen, subscription.moves
        return seen > before

    subscription.assign([tp])
    assert moved()
    state = subscription.get(tp, "test")
    subscription.seek(state, 5, 3)
    assert moved()
    assert state in subscription.unchecked
    subscription.confirm(state, 4)
    assert not moved()
    assert not subscription.unchecked
    subscription.request_validation(state)
    assert moved()
    assert state in subscription.unchecked
    subscription.request_reset(state, None)
    assert moved()
    assert state in subscription.unsettled
    assert not subscription.unchecked
    subscription.settle(state, state.ticket, 7, 4, 4)
    assert not moved()
    assert not subscription.unsettled
    assert state.phase is Phase.FETCHING
