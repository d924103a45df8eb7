"""The small types that callers subclass."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

import fastfetch
from fastfetch import RebalanceListener, TopicPartition

P0 = TopicPartition("t", 0)


def test_what_is_lost_is_revoked_unless_the_listener_says_more() -> None:
    class Short(RebalanceListener):
        def __init__(self) -> None:
            self.heard: list[tuple[str, list[TopicPartition]]] = []

        def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            self.heard.append(("revoked", list(partitions)))

    class Long(Short):
        def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
            self.heard.append(("lost", list(partitions)))

    for kind, what in ((Short, "revoked"), (Long, "lost")):
        listener = kind()
        listener.on_partitions_assigned([P0])
        listener.on_partitions_lost([P0])
        assert listener.heard == [(what, [P0])]


def test_a_coroutine_of_revoked_is_passed_on_by_lost() -> None:
    class Slow(RebalanceListener):
        async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            self.revoked = list(partitions)

    listener = Slow()
    waiting = listener.on_partitions_lost([P0])
    assert waiting is not None
    with contextlib.suppress(StopIteration):
        waiting.__await__().__next__()
    assert listener.revoked == [P0]


def test_group_metadata_are_public() -> None:
    assert fastfetch.GroupMetadata("g", 3, "m-1", None)._fields == ("group_id", "generation_id", "member_id", "group_instance_id")
