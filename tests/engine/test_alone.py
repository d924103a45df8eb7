"""Subscribing without a group: all partitions, as metadata tell of them."""

from __future__ import annotations

import pytest

from fastfetch.engine.alone import Alone
from fastfetch.engine.subscription import Mode
from fastfetch.errors import TopicAuthorizationError, UsageError
from fastfetch.types import TopicPartition
from tests.engine.script import Script


def subscribed(*topics: str, partitions: int = 2, pattern: str | None = None, **settings: object) -> Script:
    s = Script(partitions, **settings)  # type: ignore[arg-type]
    assert isinstance(s.engine.membership, Alone)
    s.engine.subscribe(topics, pattern, s.now)
    s.run()
    return s


def assigned(s: Script) -> list[str]:
    return sorted(map(str, s.engine.subscription.partitions()))


def read_on(s: Script) -> None:
    """Metadata grow old."""
    s.advance(s.config.metadata_max_age_ms)


def test_all_partitions_of_the_topics_are_read_and_no_coordinator_is_asked() -> None:
    s = subscribed("t")
    assert assigned(s) == ["t-0", "t-1"]
    s.found(s.expect("ListOffsets"), {0: 3, 1: 4})
    assert {tp.partition: p["fetch_offset"] for tp, p in s.expect("Fetch").partitions().items()} == {0: 3, 1: 4}
    assert s.count("FindCoordinator") == s.count("JoinGroup") == s.count("OffsetFetch") == 0
    assert s.engine.membership.duty(s.now) is None


def test_positions_are_looked_up_at_once() -> None:
    """They had their turn in the pass that found the partitions: another one follows, whatever else happens."""
    s = subscribed("t")
    assert "ListOffsets" in [asked.api.name for asked in s.asked] or s.engine.wake_at_ms == s.now


def test_partitions_that_are_added_come_to_it_and_the_others_keep_their_place() -> None:
    s = subscribed("t")
    s.found(s.expect("ListOffsets"), {0: 3, 1: 4})
    s.leaders["t", 2] = (1, 5)
    read_on(s)
    assert assigned(s) == ["t-0", "t-1", "t-2"]
    assert s.engine.subscription.get(TopicPartition("t", 0), "test").position == 3
    asked = s.expect("ListOffsets")
    assert [tp.partition for tp in asked.partitions()] == [2]


def test_a_topic_that_is_not_there_yet_is_waited_for() -> None:
    s = subscribed("later")
    assert assigned(s) == []
    s.leaders["later", 0] = (1, 5)
    s.advance(2_000)
    assert assigned(s) == ["later-0"]


def test_a_topic_that_one_answer_leaves_out_stays_and_one_that_is_gone_goes() -> None:
    s = subscribed("t", partitions=1)
    s.errors["t"] = 3
    s.auto.discard("Metadata")
    s.advance(s.config.metadata_max_age_ms)
    for answers in (1, 2, 3):
        asked = s.expect("Metadata")
        s.answer(asked, s._metadata(asked))
        assert assigned(s) == ([] if answers == 3 else ["t-0"])
        s.advance(2_000)


def test_another_subscription_takes_the_place_of_the_first() -> None:
    s = subscribed("t")
    s.leaders["u", 0] = (1, 5)
    s.engine.subscribe(["u"], None, s.now)
    s.advance(500)
    assert assigned(s) == ["u-0"]
    s.engine.unsubscribe("", s.now)
    s.run()
    assert assigned(s) == []
    assert s.engine.subscription.mode is Mode.NONE


def test_topics_come_to_match_a_pattern() -> None:
    s = subscribed(pattern="t.*", partitions=1)
    assert assigned(s) == ["t-0"]
    s.leaders["t2", 0] = s.leaders["other", 0] = (1, 5)
    read_on(s)
    assert assigned(s) == ["t-0", "t2-0"]


def test_a_forbidden_topic_is_an_error_of_the_next_poll() -> None:
    s = Script()
    s.errors["t"] = 29
    s.engine.subscribe(["t"], None, s.now)
    s.run()
    assert isinstance(s.engine.membership.fault, TopicAuthorizationError)


def test_what_only_a_group_has_is_refused() -> None:
    s = subscribed("t")
    with pytest.raises(UsageError, match="without a group_id"):
        s.engine.membership.enforce_rebalance("")
    assert s.engine.membership.duty_before_leaving(s.now) is None
    assert s.engine.membership.group_metadata().generation_id == -1
