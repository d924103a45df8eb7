"""What walks of the model (`test_model`) found, each as a short script."""

from __future__ import annotations

import pytest

from fastfetch.errors import FastFetchError, LogTruncationError, TopicAuthorizationError, UnknownTopicError
from fastfetch.testing import encode_batch
from fastfetch.types import TopicPartition
from tests.engine.script import Script

P0 = TopicPartition("t", 0)


def test_errors_of_several_partitions_take_turns() -> None:
    """One that comes back as soon as it was told hid the others, which then were not tried again either."""
    s = Script(1, group_id="g")
    s.assign(7, 0)  # there is no t-7
    s.stored(s.expect("OffsetFetch"), {0: (29, -1)})
    told: list[type[FastFetchError]] = []
    for _ in range(4):
        with pytest.raises(FastFetchError) as caught:
            s.engine.raise_fault()
        told.append(caught.type)
        s.run()
        s.advance(1_000)
    assert told[:2] in ([UnknownTopicError, TopicAuthorizationError], [TopicAuthorizationError, UnknownTopicError])
    for _ in range(3):
        asked = s.expect("OffsetFetch")
        indexes = asked.body["groups"][0]["topics"][0]["partition_indexes"]
        s.stored(asked, {p: 3 if p == 0 else -1 for p in indexes})
        if s.position() is not None:
            break
        s.advance(1_000)
    assert s.position() == 3


@pytest.mark.parametrize("group", [None, "g"])
def test_a_look_up_in_the_old_topic_gives_no_position_in_the_new_one(group: str | None) -> None:
    """Asked before the topic was created again, answered by what was there, arriving after the news."""
    s = Script(**({} if group is None else {"group_id": group}))
    s.topic_ids["t"] = b"1" * 16
    s.assign()
    old = s.expect("ListOffsets" if group is None else "OffsetFetch")
    s.topic_ids["t"] = b"2" * 16
    s.engine.metadata.request_update()
    s.advance(1_000)
    answer = s.found if group is None else s.stored
    answer(old, {0: 500})
    assert s.position() is None
    answer(s.expect("ListOffsets" if group is None else "OffsetFetch"), {0: 4})
    assert s.position() == 4


def test_an_error_that_stays_is_not_hidden_by_one_that_passes() -> None:
    """The one that passes was told and forgotten, the other never told, and nothing more was asked for this partition."""
    s = Script(nodes=2, versions={"OffsetForLeaderEpoch": (2, 4)}, auto_offset_reset="none")
    s.started(at=90)
    s.fetched(s.expect("Fetch"), {0: encode_batch([b"x"] * 10, base_offset=90, leader_epoch=5)})
    s.take()
    s.leaders["t", 0] = (2, 6)
    s.engine.metadata.request_update()
    s.advance(1_000)
    for part in ({"error_code": 29}, {"error_code": 0, "leader_epoch": 5, "end_offset": 80}):
        asked = s.expect("OffsetForLeaderEpoch")
        s.answer(asked, {"topics": [{"topic": "t", "partitions": [{"partition": 0} | part]}]})
        s.advance(1_000)
    for _ in range(2):
        with pytest.raises(LogTruncationError):
            s.engine.raise_fault()
    s.engine.seek(P0, 80)
    assert s.expect("Fetch", node=2).partitions()[P0]["fetch_offset"] == 80
