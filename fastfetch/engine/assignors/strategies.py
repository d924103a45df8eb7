"""From `partition_assignment_strategy` to assignors, and to what all of them together let the group do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fastfetch.engine.assignors.contract import Assignor, RebalanceProtocol
from fastfetch.engine.assignors.range import RangeAssignor
from fastfetch.engine.assignors.round_robin import RoundRobinAssignor
from fastfetch.engine.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from fastfetch.errors import ConfigError

__all__ = ["ASSIGNORS", "make_assignors", "rebalance_protocol"]

ASSIGNORS: dict[str, Callable[[], Assignor]] = {
    kind.name: kind for kind in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}
"""Each call makes a fresh one: the sticky ones remember what their member had."""


def make_assignors(strategies: Iterable[Any]) -> list[Assignor]:
    """Of checked settings: names give a fresh one of ours, classes are called, objects are taken as they are."""
    return [_make(strategy) for strategy in strategies]


def _make(strategy: Any) -> Assignor:
    if isinstance(strategy, str):
        return ASSIGNORS[strategy]()
    return strategy() if isinstance(strategy, type) else strategy  # type: ignore[no-any-return]


def rebalance_protocol(assignors: Iterable[Assignor]) -> RebalanceProtocol:
    """The best that all of them are fit for, since any may win the group's vote. ConfigError if they have none in common.

    So ("range", "cooperative-sticky") is eager. It is one step of moving a running group from the one to the other (KIP-429).
    """
    offered = {assignor.name: assignor.protocols for assignor in assignors}
    if all("cooperative" in protocols for protocols in offered.values()):
        return "cooperative"
    if all("eager" in protocols for protocols in offered.values()):
        return "eager"
    each = ", ".join(f"{name} is for {' and '.join(protocols)}" for name, protocols in offered.items())
    raise ConfigError(
        f"partition_assignment_strategy: these can't be offered together, as one group rebalances in one way: {each}"
    )
