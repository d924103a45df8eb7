"""Truncation (KIP-320): positions are checked when a newer leader shows up, and no record is fetched meanwhile."""

from __future__ import annotations

import logging
import pickle

import pytest

from fastfetch.errors import LogTruncationError
from fastfetch.testing import encode_batch
from fastfetch.types import TopicPartition
from tests.engine.script import Asked, Script

P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)
API = "OffsetForLeaderEpoch"
SUPPORTED = {API: (2, 4)}


def records(first: int, count: int, epoch: int) -> bytes:
    return encode_batch([b"x"] * count, base_offset=first, leader_epoch=epoch)


def at_100(*, policy: str = "earliest", partitions: int = 1, nodes: int = 2, **settings: object) -> Script:
    """Position 100, read from leaders of epoch 5; fetches in flight."""
    s = Script(partitions, nodes, versions=SUPPORTED, auto_offset_reset=policy, **settings)
    s.started(*range(partitions), at=90)
    for node in range(1, nodes + 1):
        mine = [p for p in range(partitions) if p % nodes + 1 == node]
        if mine:
            s.fetched(s.expect("Fetch", node=node), {p: records(90, 10, 5) for p in mine})
    while s.take():
        pass
    assert [s.position(p) for p in range(partitions)] == [100] * partitions
    return s


def new_leader(s: Script, epoch: int = 6, leader: int = 2, *partitions: int) -> None:
    """Node `leader` takes over, and the client hears of it."""
    for p in partitions or (0,):
        s.leaders["t", p] = (leader, epoch)
    s.engine.metadata.request_update()
    s.advance(1_000)


def epoch_ends(asked: Asked, answers: dict[int, tuple[int, int] | int]) -> dict[str, object]:
    """Answer of an OffsetForLeaderEpoch: partition -> (epoch, end offset), or an error code."""
    parts = []
    for index, what in answers.items():
        code, (epoch, end) = (what, (-1, -1)) if isinstance(what, int) else (0, what)
        parts.append({"partition": index, "error_code": code, "leader_epoch": epoch, "end_offset": end})
    return {"topics": [{"topic": "t", "partitions": parts}]}


def checked(s: Script, answers: dict[int, tuple[int, int] | int], *, node: int | None = None) -> None:
    asked = s.expect(API, node=node)
    s.answer(asked, epoch_ends(asked, answers))


def offset(asked: Asked, partition: int = 0) -> int:
    return int(asked.partitions()[TopicPartition("t", partition)]["fetch_offset"])


def fetches_of(s: Script, partition: int = 0) -> list[Asked]:
    """Fetches in flight at the new leader that ask for a partition."""
    tp = TopicPartition("t", partition)
    return [a for a in s.asked if a.api.name == "Fetch" and a.node == 2 and tp in a.partitions()]


# --- P09 -------------------------------------------------------------------------------------------------------------------


def test_a_position_is_checked_with_a_newer_leader_before_anything_is_fetched_from_it() -> None:
    s = at_100()
    new_leader(s)
    asked = s.expect(API)
    assert asked.node == 2
    assert asked.version == 4
    assert asked.body["replica_id"] == -1
    assert asked.partitions()[P0] == {"partition": 0, "current_leader_epoch": 6, "leader_epoch": 5}
    s.advance(5_000)
    assert not fetches_of(s)
    assert s.position() == 100
    s.answer(asked, epoch_ends(asked, {0: (5, 120)}))
    assert offset(s.expect("Fetch", node=2)) == 100
    assert s.count(API) == 1


def test_a_log_that_was_cut_is_gone_on_with_where_it_was_cut(caplog: pytest.LogCaptureFixture) -> None:
    s = at_100()
    new_leader(s)
    checked(s, {0: (5, 80)})
    assert s.position() == 80
    assert offset(s.expect("Fetch", node=2)) == 80
    assert "100" in caplog.text
    assert "80" in caplog.text
    assert [record.levelno for record in caplog.records if "t-0 was cut" in record.getMessage()] == [logging.WARNING]
    s.fetched(s.expect("Fetch", node=2), {0: records(80, 5, 6)})
    assert [o for _, o in s.take()] == [80, 81, 82, 83, 84]
    assert s.count(API) == 1
    assert s.count("ListOffsets") == 0


def test_without_a_policy_a_cut_log_is_an_error_until_a_seek() -> None:
    s = at_100(policy="none")
    new_leader(s)
    checked(s, {0: (4, 80)})
    for _ in range(3):
        with pytest.raises(LogTruncationError, match=r"t-0 was cut.* offset 100 \(leader epoch 5\).* offset 80.*seek") as caught:
            s.engine.raise_fault()
        s.advance(10_000)
    error = caught.value
    assert (error.topic, error.partition, error.position, error.leader_epoch) == ("t", 0, 100, 5)
    assert (error.divergent_offset, error.divergent_epoch) == (80, 4)
    assert vars(pickle.loads(pickle.dumps(error))) == vars(error)
    assert s.position() == 100
    assert not fetches_of(s)
    assert s.count(API) == 1
    s.engine.seek(P0, 80)
    s.engine.raise_fault()
    assert offset(s.expect("Fetch", node=2)) == 80
