"""Fetch sessions (KIP-227): what requests say, and what becomes of the answers. N07 of the known bugs."""

from __future__ import annotations

import itertools
import logging

import pytest

from fastfetch.engine.subscription import LATEST
from fastfetch.types import TopicPartition
from tests.engine.script import Asked, Script, batch

SESSION = 77


def said(fetch: Asked) -> tuple[int, int, dict[int, int], list[int]]:
    """Of a Fetch: session id, epoch, partition -> offset, forgotten partitions."""
    forgotten = [p for t in fetch.body["forgotten_topics_data"] for p in t["partitions"]]
    offsets = {tp.partition: p["fetch_offset"] for tp, p in fetch.partitions().items()}
    return fetch.body["session_id"], fetch.body["session_epoch"], offsets, forgotten


def refresh(s: Script) -> None:
    s.engine.metadata.request_update()
    s.advance(s.config.retry_backoff_max_ms)


def in_session(partitions: int = 3) -> tuple[Script, list[TopicPartition]]:
    """Everything assigned at 0, and the session open with nothing new yet."""
    s = Script(partitions)
    tps = s.started(*range(partitions))
    fetch = s.expect("Fetch")
    assert said(fetch) == (0, 0, dict.fromkeys(range(partitions), 0), [])
    s.fetched(fetch, dict.fromkeys(range(partitions)), session=SESSION)
    return s, tps


def test_what_did_not_change_is_not_said_again() -> None:
    s, _ = in_session()
    fetch = s.expect("Fetch")
    assert said(fetch) == (SESSION, 1, {}, [])
    s.fetched(fetch, {1: batch(0)}, session=SESSION)
    assert said(s.expect("Fetch")) == (SESSION, 2, {1: 10}, [])


def test_an_absent_partition_keeps_its_position_and_stays() -> None:
    s, _ = in_session()
    for epoch in range(1, 6):
        fetch = s.expect("Fetch")
        assert said(fetch) == (SESSION, epoch, {}, [])
        s.fetched(fetch, {}, session=SESSION)
    s.fetched(s.expect("Fetch"), {2: batch(0)}, session=SESSION)
    assert s.take() == [(2, offset) for offset in range(10)]
    assert [s.position(p) for p in range(3)] == [0, 0, 10]


def test_a_partition_with_records_buffered_stays_in_the_session() -> None:
    """KAFKA-17182: a session whose partitions come and go is made anew all the time."""
    s, _ = in_session()
    s.fetched(s.expect("Fetch"), {0: batch(0), 1: batch(0)}, session=SESSION)
    assert said(s.expect("Fetch")) == (SESSION, 2, {0: 10, 1: 10}, [])
    assert s.position(0) == 0


@pytest.mark.parametrize("leave", ["pause", "unassign"])
def test_what_is_not_wanted_any_more_is_forgotten_by_name(leave: str) -> None:
    s, tps = in_session()
    if leave == "pause":
        s.engine.pause(tps[1:2])
    else:
        s.engine.assign([tps[0], tps[2]])
    s.fetched(s.expect("Fetch"), {}, session=SESSION)
    assert said(s.expect("Fetch")) == (SESSION, 2, {}, [1])
    s.engine.resume(tps[1:2]) if leave == "pause" else s.engine.assign(tps)
    if leave == "unassign":
        s.engine.seek(tps[1], 5)
    s.fetched(s.expect("Fetch"), {}, session=SESSION)
    at = {1: 0 if leave == "pause" else 5}
    side = s.expect("Fetch", when=lambda asked: asked.body["session_epoch"] == -1)  # it does not wait for the long poll,
    assert said(side)[2] == at
    s.fetched(side, {1: None})
    again = s.expect("Fetch", when=lambda asked: asked.body["session_epoch"] == -1)  # and goes on beside it
    assert said(again)[2] == at
    assert again.body["max_wait_ms"] <= 100
    s.fetched(s.expect("Fetch", when=lambda asked: asked.body["session_epoch"] > 0), {}, session=SESSION)
    s.fetched(again, {1: None})
    assert said(s.expect("Fetch")) == (SESSION, 4, at, [])
    assert sum(asked.api.name == "Fetch" for asked in s.asked) == 1


@pytest.mark.parametrize("beside", [False, True])
def test_a_seek_is_said_and_the_answer_for_the_old_offset_dropped(beside: bool) -> None:
    s, tps = in_session(1)
    fetch = s.expect("Fetch")
    s.engine.seek(tps[0], 500)
    if beside:  # a request of its own, for the first may wait half a second
        s.run()
    s.fetched(fetch, {0: batch(0)}, session=SESSION)
    assert s.take() == []
    [fetch] = [asked for asked in s.asked if asked.api.name == "Fetch"]
    assert said(fetch)[2] == {0: 500}
    assert said(fetch)[:2] == ((0, -1) if beside else (SESSION, 2))
    s.fetched(fetch, {0: batch(500)}, session=0 if beside else SESSION)
    assert s.take() == [(0, offset) for offset in range(500, 510)]
    assert said(s.expect("Fetch")) == (SESSION, 2 if beside else 3, {0: 510}, [])


def test_away_and_back_is_no_change_and_yet_the_old_answer_is_dropped() -> None:
    s, tps = in_session(1)
    fetch = s.expect("Fetch")
    s.engine.seek(tps[0], 500)
    s.engine.seek(tps[0], 0)
    s.fetched(fetch, {0: batch(0)}, session=SESSION)
    assert s.take() == []


@pytest.mark.parametrize(("code", "sent"), [(70, (0, 0)), (71, (SESSION, 0)), (106, (SESSION, 0)), (-1, (SESSION, 0))])
def test_errors_lead_to_a_full_request_without_a_hot_loop(code: int, sent: tuple[int, int]) -> None:
    s, _ = in_session()
    for _ in range(50):
        fetch = s.expect("Fetch")
        s.answer(fetch, {"error_code": code, "session_id": 0, "responses": []})
        s.none("Fetch")
        s.advance(s.config.retry_backoff_ms)
        assert said(s.expect("Fetch")) == (*sent, {0: 0, 1: 0, 2: 0}, [])
    assert [s.position(p) for p in range(3)] == [0, 0, 0]
    s.fetched(s.expect("Fetch"), {0: batch(0), 1: None, 2: None}, session=78)
    assert s.take() == [(0, offset) for offset in range(10)]
    assert said(s.expect("Fetch"))[:2] == (78, 1)


def test_a_lost_connection_begins_a_new_session() -> None:
    s, _ = in_session()
    fetch = s.expect("Fetch")
    s.lose(fetch.conn)
    s.advance(1000)
    assert said(s.expect("Fetch")) == (0, 0, {0: 0, 1: 0, 2: 0}, [])


def test_a_session_that_the_broker_closed_is_opened_again() -> None:
    s, _ = in_session()
    s.fetched(s.expect("Fetch"), {0: batch(0)}, session=0)
    assert said(s.expect("Fetch")) == (0, 0, {0: 10, 1: 0, 2: 0}, [])


def test_a_broker_without_room_for_a_session_is_asked_rarely() -> None:
    s = Script(1)
    s.started(0)
    begun, asked_at = s.now, []
    for n in range(700):
        fetch = s.expect("Fetch")
        assert said(fetch)[2] == {0: 10 * n}
        if fetch.body["session_epoch"] == 0:
            asked_at.append(s.now - begun)
        s.fetched(fetch, {0: batch(10 * n)}, session=SESSION if len(asked_at) == 7 else 0)
        s.take()
        if len(asked_at) == 7:
            break
        s.advance(100)
    waits = [later - earlier for earlier, later in itertools.pairwise(asked_at)]
    assert all(wait <= seen <= wait + 200 for wait, seen in zip((1000, 2000, 4000, 8000, 16000, 32000), waits, strict=True))
    assert said(s.expect("Fetch"))[:2] == (SESSION, 1)


def test_throttling_is_no_refusal() -> None:
    """KIP-219: a throttled full fetch is answered with nothing at all, and no session."""
    s = Script(2)
    s.started(0, 1)
    s.answer(s.expect("Fetch"), {"throttle_time_ms": 300, "session_id": 0, "responses": []})
    s.none("Fetch")
    s.advance(300)
    assert said(s.expect("Fetch")) == (0, 0, {0: 0, 1: 0}, [])


def test_a_full_answer_with_a_partition_missing_is_not_relied_on(caplog: pytest.LogCaptureFixture) -> None:
    s = Script(2)
    s.started(0, 1)
    with caplog.at_level(logging.WARNING, "fastfetch"):
        s.fetched(s.expect("Fetch"), {0: batch(0)}, session=SESSION)
    assert "left 1 partitions out" in caplog.text
    assert said(s.expect("Fetch")) == (SESSION, 0, {0: 10, 1: 0}, [])
    # Nothing at all, again and again: at the pace of the back-off.
    s.answer(s.expect("Fetch"), {"session_id": SESSION, "responses": []})
    s.none("Fetch")
    s.advance(s.config.retry_backoff_ms)
    assert said(s.expect("Fetch"))[1] == 0


def test_of_two_answers_for_a_partition_the_first_counts_and_strangers_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    s, _ = in_session(1)
    fetch = s.expect("Fetch")
    one = {"partition_index": 0, "error_code": 0, "high_watermark": 100, "records": batch(0), "preferred_read_replica": -1}
    with caplog.at_level(logging.WARNING, "fastfetch"):
        parts = [one, one | {"records": batch(10)}, one | {"partition_index": 9}]
        s.answer(fetch, {"session_id": SESSION, "responses": [{"topic": "t", "partitions": parts}]})
    assert s.take() == [(0, offset) for offset in range(10)]
    assert "again" in caplog.text
    assert "not asked for" in caplog.text


def test_every_node_has_a_session_of_its_own() -> None:
    s = Script(2, nodes=2)
    s.started(0, 1)
    s.fetched(s.expect("Fetch", node=1), {0: batch(0)}, session=5)
    s.fetched(s.expect("Fetch", node=2), {1: batch(0)}, session=5)  # numbers are the node's own
    assert said(s.expect("Fetch", node=1)) == (5, 1, {0: 10}, [])
    assert said(s.expect("Fetch", node=2)) == (5, 1, {1: 10}, [])


def test_a_partition_that_moves_is_forgotten_here_and_said_there() -> None:
    s = Script(3)
    s.nodes[2] = "b2"
    s.started(0, 1, 2)
    s.fetched(s.expect("Fetch"), {0: None, 1: None, 2: None}, session=SESSION)
    s.leaders["t", 1] = (2, 6)
    refresh(s)
    s.fetched(s.expect("Fetch", node=1), {}, session=SESSION)
    assert said(s.expect("Fetch", node=1)) == (SESSION, 2, {}, [1])
    assert said(s.expect("Fetch", node=2)) == (0, 0, {1: 0}, [])


def test_a_newer_leader_epoch_is_said() -> None:
    s, tps = in_session()
    s.leaders["t", 2] = (1, 9)
    refresh(s)
    for fetch in [asked for asked in s.asked if asked.api.name == "Fetch"]:  # one beside the long poll, perhaps
        s.fetched(fetch, {}, session=SESSION if fetch.body["session_id"] else 0)
    s.fetched(s.expect("Fetch"), {}, session=SESSION)
    said_of = [asked.partitions()[tps[2]] for asked in s.history if asked.api.name == "Fetch" and tps[2] in asked.partitions()]
    assert said_of[0]["current_leader_epoch"] == 5
    assert {p["current_leader_epoch"] for p in said_of[1:]} == {9}


def test_another_topic_under_the_same_name_leaves_by_its_id() -> None:
    s = Script(1, versions={"Fetch": (4, 13)})
    s.topic_ids["t"] = b"a" * 16
    s.started(0)
    s.fetched(s.expect("Fetch"), {0: None}, session=SESSION)
    s.topic_ids["t"] = b"b" * 16
    refresh(s)
    s.answer(s.expect("Fetch"), {"session_id": SESSION, "responses": []})
    s.found(s.expect("ListOffsets"), {0: 0})
    fetches = [asked for asked in s.asked if asked.api.name == "Fetch"]
    if not fetches[-1].body["topics"]:  # it had left before the look-up was answered
        assert fetches[-1].body["forgotten_topics_data"] == [{"topic_id": b"a" * 16, "partitions": [0]}]
        s.answer(fetches[-1], {"session_id": SESSION, "responses": []})
    last = s.expect("Fetch")
    assert last.body["topics"][0]["topic_id"] == b"b" * 16


def test_names_and_ids_do_not_meet_in_a_session() -> None:
    s = Script(1, versions={"Fetch": (4, 13)})
    s.started(0)
    fetch = s.expect("Fetch")
    assert fetch.version == 12  # no id is known
    s.fetched(fetch, {0: None}, session=SESSION)
    s.topic_ids["t"] = b"a" * 16
    refresh(s)
    s.fetched(s.expect("Fetch"), {}, session=SESSION)
    fetch = s.expect("Fetch")
    assert (fetch.version, fetch.body["session_id"], fetch.body["session_epoch"]) == (13, SESSION, 0)


def test_of_many_partitions_with_a_backlog_a_few_are_asked_at_a_time() -> None:
    """A broker looks into the log of each partition that it is asked about, room or not."""
    s = Script(200)
    s.started(*range(200))
    data = batch(0, 100, size=1000)
    s.fetched(s.expect("Fetch"), dict.fromkeys(range(199)) | {199: data}, session=SESSION)
    asked: list[int] = []
    for _ in range(20):
        fetch = s.expect("Fetch")
        assert said(fetch)[:2] == (0, -1)
        assert 1 <= len(said(fetch)[2]) <= 25
        now = list(said(fetch)[2])
        asked.append(now[0])
        first = said(fetch)[2][now[0]]
        s.fetched(fetch, dict.fromkeys(now) | {now[0]: batch(first, 100, size=1000)})  # one is all that fits in
        s.take()
    assert asked == list(range(20))  # each in its turn
    s.advance(100)
    s.fetched(s.expect("Fetch"), dict.fromkeys(said(s.expect("Fetch"))[2]))
    assert said(s.expect("Fetch")) == (SESSION, 1, dict.fromkeys((*range(20), 199), 100), [])


@pytest.mark.parametrize("high", [0, 2])
def test_without_a_backlog_all_are_asked(high: int) -> None:
    s = Script(200)
    s.started(*range(200))
    s.fetched(s.expect("Fetch"), dict.fromkeys(range(199)) | {199: batch(0)}, session=SESSION, high=high)
    assert said(s.expect("Fetch"))[:2] == (SESSION, 1)


@pytest.mark.parametrize("wait_ms", [500, 0])
def test_a_broker_that_answers_at_once_that_there_is_nothing_is_not_asked_without_a_pause(wait_ms: int) -> None:
    s = Script(1, fetch_max_wait_ms=wait_ms)
    s.started(0)
    end = s.now + 10_000
    while s.now < end:
        for fetch in [asked for asked in s.asked if asked.api.name == "Fetch"]:
            s.fetched(fetch, {0: None}, session=SESSION)
        s.advance(1)
    assert 90 < s.count("Fetch") < 130
    s.advance(100)
    s.fetched(s.expect("Fetch"), {0: batch(0)}, session=SESSION)
    for n in range(1, 20):  # and records end that
        s.fetched(s.expect("Fetch"), {0: batch(10 * n)}, session=SESSION)
        s.take()
    assert s.position() == 190


def test_sessions_are_ended_on_closing() -> None:
    s = Script(2, nodes=2)
    s.started(0, 1)
    s.fetched(s.expect("Fetch", node=1), {0: None}, session=5)
    s.fetched(s.expect("Fetch", node=2), {1: None}, session=0)
    s.engine.close(s.now)
    for action in s.engine.take_actions():
        s._perform(action)
    last = s.history[-1]
    assert (said(last), last.node, last.body["max_wait_ms"]) == ((5, -1, {}, []), 1, 0)
    assert sum(asked.body.get("max_wait_ms") == 0 for asked in s.history) == 1


def test_brokers_that_know_no_sessions() -> None:
    s = Script(1, versions={"Fetch": (4, 6)})
    s.started(0)
    for n in range(3):
        fetch = s.expect("Fetch")
        assert fetch.version == 6
        assert {tp.partition: p["fetch_offset"] for tp, p in fetch.partitions().items()} == {0: 10 * n}
        s.fetched(fetch, {0: batch(10 * n)})


def test_what_an_answer_says_of_a_log_counts_also_after_a_seek() -> None:
    """A broker says it once: an idle partition would have no lag for ever."""
    s = Script()
    [tp] = s.started(at=3)
    fetch = s.expect("Fetch")
    s.engine.seek_to([tp], LATEST, "seek_to_end")
    s.fetched(fetch, {0: batch(3)}, session=SESSION, high=13)
    s.found(s.expect("ListOffsets"), {0: 13})
    fetch = s.expect("Fetch", when=lambda asked: asked.body["session_epoch"] > 0)
    assert said(fetch) == (SESSION, 1, {0: 13}, [])
    s.fetched(fetch, {}, session=SESSION)
    assert s.engine.lag(tp) == 0
