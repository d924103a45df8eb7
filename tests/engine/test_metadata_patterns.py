"""Metadata of topics that are not asked for by name: those that match a pattern, those of which only the id is known."""

from __future__ import annotations

from typing import Any

import pytest

from fastfetch.errors import UnknownTopicError
from tests.engine.script import Asked, Script


def matching(pattern: str, topics: str, **settings: Any) -> Script:
    """A consumer with a pattern, in a cluster with these topics."""
    s = Script(group_id="g", **settings)
    s.leaders = {(topic, 0): (1, 5) for topic in topics.split()}
    s.engine.subscription.subscribe_pattern(pattern)
    s.engine.metadata.request_update()
    return s


def asked(s: Script, since: int = 0) -> list[Asked]:
    return [asked for asked in s.history[since:] if asked.api.name == "Metadata"]


def names(asked: Asked) -> set[str] | None:
    return None if asked.body["topics"] is None else {topic["name"] for topic in asked.body["topics"]}


def test_the_whole_name_has_to_match_and_nothing_else_is_kept() -> None:
    s = matching("a.", "a1 a2 b1 ba1 a12")
    assert not s.engine.subscription.is_matched
    s.run()
    assert s.engine.subscription.is_matched
    assert s.engine.subscription.topics == {"a1", "a2"}
    assert set(s.engine.cluster.topics) == {"a1", "a2"}
    assert [names(a) for a in asked(s)] == [None]
    assert not any(a.body["allow_auto_topic_creation"] for a in asked(s))


def test_nothing_that_matches_is_an_answer_too() -> None:
    s = matching("x.*", "a1")
    s.advance(1_000)
    assert s.engine.subscription.is_matched
    assert not s.engine.subscription.topics
    assert len(asked(s)) == 1, "there is nothing to ask again for"


@pytest.mark.parametrize("exclude", [True, False])
def test_kafka_s_own_topics_are_left_out_if_so_configured(exclude: bool) -> None:
    s = matching(".*", "a1 __consumer_offsets", exclude_internal_topics=exclude)
    s.internal = {"__consumer_offsets"}
    s.run()
    assert s.engine.subscription.topics == {"a1"} | (set() if exclude else s.internal)


def test_new_topics_match_when_metadata_are_refreshed() -> None:
    s = matching("a.*", "a1", metadata_max_age_ms=10_000)
    s.run()
    s.leaders |= {("a2", 0): (1, 0), ("b1", 0): (1, 0)}
    s.advance(9_000)
    assert s.engine.subscription.topics == {"a1"}
    s.advance(2_000)
    assert s.engine.subscription.topics == {"a1", "a2"}
    assert len(asked(s)) == 2


def test_a_topic_that_vanishes_goes_when_three_answers_in_a_row_lack_it() -> None:
    s = matching("a.*", "a1 a2")
    s.run()
    del s.leaders["a2", 0]
    before = len(s.history)
    s.engine.metadata.request_update()
    s.advance(130)
    assert s.engine.cluster.troubles["a2"].times == 1
    assert s.engine.subscription.topics == {"a1", "a2"}, "the broker may have started a moment ago"
    s.advance(1_000)
    assert s.engine.subscription.topics == {"a1"}
    assert [names(a) for a in asked(s, before)] == [None, {"a1", "a2"}, {"a1", "a2"}], "it alone is asked after again, not all"
    s.advance(20_000)
    assert len(asked(s, before)) == 3, "what has gone is asked after no more"
    s.engine.metadata.request_update()
    s.run()
    assert "a2" not in s.engine.cluster.topics
    assert not s.engine.cluster.troubles


def test_a_topic_that_one_answer_lacks_stays() -> None:
    s = matching("a.*", "a1 a2")
    s.run()
    leader = s.leaders.pop(("a2", 0))
    s.engine.metadata.request_update()
    s.advance(130)
    assert s.engine.cluster.troubles["a2"].times == 1
    s.leaders["a2", 0] = leader
    s.advance(5_000)
    assert s.engine.subscription.topics == {"a1", "a2"}
    assert not s.engine.cluster.troubles


def test_a_topic_without_a_leader_still_matches() -> None:
    s = matching("a.*", "a1 a2")
    s.run()
    s.errors["a2"] = 5
    s.engine.metadata.request_update()
    s.advance(10_000)
    assert s.engine.subscription.topics == {"a1", "a2"}


def test_questions_and_assigned_topics_are_answered_from_the_list() -> None:
    s = matching("a.*", "a1 b1 c1")
    known, unknown = s.engine.ask_topic("b1"), s.engine.ask_topic("nope")
    s.advance(2_000)
    assert set(known.result().partitions) == {0}
    with pytest.raises(UnknownTopicError, match="'nope'"):
        unknown.result()
    assert "c1" not in s.engine.cluster.topics
    assert s.engine.subscription.topics == {"a1"}


def test_a_pattern_given_while_an_answer_by_name_is_on_its_way() -> None:
    s = Script(group_id="g")
    s.auto.discard("Metadata")
    s.engine.ask_topic("t")
    by_name = s.expect("Metadata")
    s.engine.subscription.subscribe_pattern("t")
    s.engine.metadata.request_update()
    s.answer(by_name, s._metadata(by_name))
    assert not s.engine.subscription.is_matched
    s.auto.add("Metadata")
    s.advance(1_000)
    assert s.engine.subscription.topics == {"t"}


def test_a_pattern_taken_back_while_the_list_is_on_its_way() -> None:
    s = matching("a.*", "a1 b1")
    s.auto.discard("Metadata")
    listing = s.expect("Metadata")
    s.engine.subscription.unsubscribe()
    s.answer(listing, s._metadata(listing))
    assert not s.engine.subscription.topics
    assert not s.engine.cluster.topics
    s.engine.subscription.subscribe_pattern("b.*")
    assert not s.engine.subscription.is_matched
    s.engine.metadata.request_update()
    s.auto.add("Metadata")
    s.advance(1_000)
    assert s.engine.subscription.topics == {"b1"}


def test_another_pattern_forgets_what_matched_the_first() -> None:
    s = matching("a.*", "a1 b1")
    s.run()
    s.engine.subscription.subscribe_pattern("b.*")
    assert not s.engine.subscription.is_matched
    s.engine.metadata.request_update()
    s.advance(1_000)
    assert s.engine.subscription.topics == {"b1"}
    assert set(s.engine.cluster.topics) == {"b1"}


# --- by id ------------------------------------------------------------------------------------------------------------

ONE, TWO = b"1" * 16, b"2" * 16


def test_topics_are_asked_for_by_id_and_stay_known_while_somebody_needs_them() -> None:
    s = Script()
    s.leaders |= {("u", 0): (1, 5), ("u", 1): (1, 5)}
    s.topic_ids = {"t": ONE, "u": TWO}
    s.engine.metadata.ask_ids({ONE, TWO})
    s.run()
    assert (s.engine.cluster.name_of(ONE), s.engine.cluster.name_of(TWO)) == ("t", "u")
    assert set(s.engine.cluster.topics["u"].partitions) == {0, 1}
    by_id = [a for a in asked(s) if a.body["topics"]]
    assert [{(t["topic_id"], t["name"]) for t in a.body["topics"]} for a in by_id] == [{(ONE, None), (TWO, None)}]
    s.engine.metadata.request_update()
    s.advance(1_000)
    assert names(asked(s)[-1]) == {"t", "u"}
    s.engine.metadata.ask_ids({ONE})
    s.engine.metadata.request_update()
    s.advance(1_000)
    s.engine.metadata.request_update()
    s.advance(1_000)
    assert s.engine.cluster.name_of(TWO) is None


def test_an_id_that_no_broker_knows_is_asked_for_again_with_back_off() -> None:
    s = Script()
    s.engine.metadata.ask_ids({ONE})
    s.advance(20_000)
    assert 10 <= len([a for a in asked(s) if a.body["topics"]]) <= 40
    s.topic_ids["t"] = ONE
    s.advance(2_000)
    assert s.engine.cluster.name_of(ONE) == "t"
    before = len(asked(s))
    s.advance(20_000)
    assert len(asked(s)) == before


def test_a_topic_created_again_is_not_known_by_its_old_id() -> None:
    s = Script()
    s.topic_ids["t"] = ONE
    s.started()
    assert s.engine.cluster.name_of(ONE) == "t"
    s.topic_ids["t"] = TWO
    s.engine.metadata.request_update()
    s.advance(1_000)
    assert (s.engine.cluster.name_of(ONE), s.engine.cluster.name_of(TWO)) == (None, "t")


def test_a_broker_too_old_to_be_asked_by_id_is_not_asked() -> None:
    s = Script(versions={"Metadata": (0, 11)})
    s.engine.metadata.ask_ids({ONE})
    s.advance(5_000)
    assert not [a for a in asked(s) if a.body["topics"]]


def test_an_answer_by_id_names_only_what_was_asked_for() -> None:
    s = Script()
    s.run()
    s.auto.discard("Metadata")
    s.engine.metadata.ask_ids({ONE})
    question = s.expect("Metadata")
    brokers = [{"node_id": 1, "host": "b1", "port": 9001}]
    part = {"partition_index": 0, "leader_id": 1, "leader_epoch": 1, "replica_nodes": [], "isr_nodes": []}
    topics = [
        {"name": "t", "topic_id": ONE, "partitions": [part]},
        {"name": "u", "topic_id": TWO, "partitions": [part]},
        {"name": "v", "topic_id": ONE, "partitions": [part], "error_code": 29},
    ]
    s.answer(question, {"brokers": brokers, "cluster_id": "c", "topics": topics})
    assert set(s.engine.cluster.topics) == {"t"}
    assert not s.engine.cluster.troubles
