"""Where a partition without a position starts: the policies, what ListOffsets may answer, one partition apart from the others."""

from __future__ import annotations

from typing import Any

import pytest

from fastfetch.config import ConsumerConfig
from fastfetch.engine.client import Engine
from fastfetch.engine.subscription import EARLIEST, LATEST
from fastfetch.errors import BrokerError, ProtocolError, TopicAuthorizationError, UnknownTopicError, UsageError
from fastfetch.types import OffsetAndTimestamp, TopicPartition
from tests.engine.script import Asked, Script, batch

P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)
HOUR_MS = 3_600_000


def timestamp(asked: Asked, tp: TopicPartition = P0) -> int:
    return int(asked.partitions()[tp]["timestamp"])


def look_up(s: Script, when: int) -> Asked:
    """The ListOffsets in flight that asks for this time of partition 0."""
    return s.expect("ListOffsets", when=lambda asked: P0 in asked.partitions() and timestamp(asked) == when)


# --- by duration (KIP-1106) --------------------------------------------------------------------------------------------------


def test_by_duration_starts_at_the_first_record_that_is_not_older() -> None:
    s = Script(auto_offset_reset="by_duration:PT1H")
    s.assign()
    s.found(look_up(s, s.wall_ms - HOUR_MS), {0: 40})
    assert s.position() == 40
    assert s.count("ListOffsets") == 1


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_by_duration_without_such_a_record_starts_at_the_end(isolation: str) -> None:
    s = Script(auto_offset_reset="by_duration:PT1H", isolation_level=isolation)
    s.assign()
    since = s.wall_ms - HOUR_MS
    s.found(look_up(s, since), {0: -1})
    s.found(look_up(s, LATEST), {0: 70})
    assert s.position() is None
    s.wall_ms += 10 * HOUR_MS  # one question is about one time, however long it takes
    s.found(look_up(s, since), {0: -1})
    assert s.position() == 70
    assert {asked.body["isolation_level"] for asked in s.history if asked.api.name == "ListOffsets"} == {
        int(isolation == "read_committed")
    }
    s.expect("Fetch")
    assert s.count("ListOffsets") == 3


def test_by_duration_skips_no_record_that_comes_between_the_questions() -> None:
    s = Script(auto_offset_reset="by_duration:PT1H")
    s.assign()
    since = s.wall_ms - HOUR_MS
    s.found(look_up(s, since), {0: -1})  # then somebody writes record 69
    s.found(look_up(s, LATEST), {0: 70})
    s.found(look_up(s, since), {0: 69})
    assert s.position() == 69


def test_by_duration_further_back_than_1970_is_from_the_first_record_on() -> None:
    s = Script(auto_offset_reset="by_duration:P100000D")
    s.assign()
    s.found(look_up(s, 0), {0: 3})
    assert s.position() == 3


@pytest.mark.parametrize("answers", [[40], [-1, 70], [-1, 70, -1]])
def test_a_seek_beats_a_look_up_by_duration(answers: list[int]) -> None:
    s = Script(auto_offset_reset="by_duration:PT1H")
    s.assign()
    for answer in answers[:-1]:
        s.found(s.expect("ListOffsets"), {0: answer})
    late = s.expect("ListOffsets")
    s.engine.seek(P0, 9)
    s.found(late, {0: answers[-1]})
    assert s.position() == 9
    s.none("ListOffsets")


def test_out_of_range_goes_by_duration_too_and_seek_to_end_does_not() -> None:
    s = Script(auto_offset_reset="by_duration:PT1H")
    s.started(at=10)
    s.fetched(s.expect("Fetch"), {0: 1})
    s.found(look_up(s, s.wall_ms - HOUR_MS), {0: 40})
    assert s.position() == 40
    s.engine.seek_to([P0], LATEST, "seek_to_end")
    s.found(look_up(s, LATEST), {0: 90})
    assert s.position() == 90


def test_by_duration_needs_a_clock() -> None:
    config = ConsumerConfig.from_settings(bootstrap_servers="boot:9000", auto_offset_reset="by_duration:PT1H")
    with pytest.raises(UsageError, match="wall_ms"):
        Engine(config)


# --- the epoch that comes with an offset -------------------------------------------------------------------------------------


def test_the_epoch_of_an_offset_that_was_looked_up_is_committed_with_it() -> None:
    s = Script(group_id="g")
    s.assign()
    s.stored(s.expect("OffsetFetch"), {0: -1})
    s.found(s.expect("ListOffsets"), {0: 40})
    at = s.engine.subscription.positions()[P0]
    assert (at.offset, at.leader_epoch) == (40, 5)


# --- what ListOffsets may answer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [3, 5, 6, 7, 9, 13, 56, 74, 75, 78, -1])
@pytest.mark.parametrize("who", ["reset", "question"])
def test_errors_that_pass_are_asked_again_for_that_partition_alone(code: int, who: str) -> None:
    s = Script(2)
    question = None
    if who == "reset":
        s.assign(0, 1)
    else:
        question = s.engine.offsets_at({P0: EARLIEST, P1: EARLIEST})
    s.found(s.expect("ListOffsets"), {0: (code, -1), 1: 20})
    if who == "reset":
        assert s.position(1) == 20
    for _ in range(10):
        s.advance(1_500)
        asked = s.expect("ListOffsets")
        assert set(asked.partitions()) == {P0}
        s.found(asked, {0: (code, -1)})
        s.none("ListOffsets")  # not before the back-off has run
    s.engine.raise_fault()
    s.advance(1_500)
    s.found(s.expect("ListOffsets"), {0: 10})
    if question is None:
        assert s.position(0) == 10
    else:
        assert {tp: at.offset for tp, at in question.result().items() if at} == {P0: 10, P1: 20}


@pytest.mark.parametrize(
    ("code", "offset", "error", "message"),
    [
        (29, -1, TopicAuthorizationError, "'t'"),
        (9999, -1, BrokerError, "UNKNOWN_CODE_9999"),
        (0, -2, ProtocolError, "-2"),
        (0, -(2**63), ProtocolError, "t-0"),
        (0, -1, ProtocolError, "-1"),  # there always is a first offset and a last one
    ],
)
def test_errors_that_stay_are_told_once_a_try_and_tried_with_backoff(
    code: int, offset: int, error: type[Exception], message: str
) -> None:
    s = Script(2)
    s.assign(0, 1)
    s.found(s.expect("ListOffsets"), {0: (code, offset), 1: 20})
    assert s.position(1) == 20, "the other one starts"
    for _ in range(5):
        with pytest.raises(error, match=message):
            s.engine.raise_fault()
        s.engine.raise_fault()
        s.none("ListOffsets")  # not before the back-off has run
        s.advance(1_500)
        s.found(s.expect("ListOffsets"), {0: (code, offset)})
    assert s.position(0) is None, "never taken for offset 0"
    question = s.engine.offsets_at({P0: EARLIEST})
    s.found(s.expect("ListOffsets"), {0: (code, offset)})
    with pytest.raises(error, match=message):
        question.result()


def test_a_reset_that_leads_out_of_range_again_is_no_busy_loop() -> None:
    """Whatever makes ListOffsets and Fetch of a broker disagree."""
    s = Script()
    s.started(at=10)
    s.fetched(s.expect("Fetch"), {0: 1})
    s.found(s.expect("ListOffsets"), {0: 40})  # the first time at once
    for _ in range(10):
        s.fetched(s.expect("Fetch"), {0: 1})
        s.none("ListOffsets")  # not before the back-off has run
        s.advance(1_500)
        s.found(s.expect("ListOffsets"), {0: 40})
    s.fetched(s.expect("Fetch"), {0: batch(40)})
    assert len(s.take()) == 10
    s.fetched(s.expect("Fetch"), {0: 1})
    s.found(s.expect("ListOffsets"), {0: 60})  # this is another story
    s.fetched(s.expect("Fetch"), {0: 1})
    s.engine.seek(P0, 5)
    s.fetched(s.expect("Fetch"), {0: 1})
    s.expect("ListOffsets")


@pytest.mark.parametrize("what", [(29, -1), (9999, -1), (0, -2)])
def test_a_committed_offset_that_cannot_be_read_is_told_once_a_try_and_tried_with_backoff(what: tuple[int, int]) -> None:
    s = Script(2, group_id="g")
    s.assign(0, 1)
    s.stored(s.expect("OffsetFetch"), {0: what, 1: 20})
    assert s.position(1) == 20, "the other one starts"
    for _ in range(5):
        with pytest.raises((BrokerError, ProtocolError)):
            s.engine.raise_fault()
        s.engine.raise_fault()
        s.none("OffsetFetch")  # not before the back-off has run
        s.advance(1_500)
        s.stored(s.expect("OffsetFetch"), {0: what})
    assert s.count("ListOffsets") == 0, "never taken for nothing committed"
    with pytest.raises((BrokerError, ProtocolError)):
        s.engine.raise_fault()
    s.advance(1_500)
    s.stored(s.expect("OffsetFetch"), {0: 37})
    assert s.position(0) == 37


def test_duplicates_strangers_and_gaps_in_an_answer() -> None:
    s = Script(2)
    s.assign(0, 1)
    asked = s.expect("ListOffsets")

    def part(index: int, offset: int) -> dict[str, Any]:
        return {"partition_index": index, "error_code": 0, "offset": offset, "timestamp": -1, "leader_epoch": 5}

    topics = [{"name": "t", "partitions": [part(1, 20), part(1, 0), part(9, 1)]}, {"name": "u", "partitions": [part(0, 4)]}]
    s.answer(asked, {"topics": topics})
    assert s.position(1) == 20
    assert s.position(0) is None
    s.advance(1_500)
    assert set(s.expect("ListOffsets").partitions()) == {P0}


def test_questions_about_times() -> None:
    s = Script(3)
    tps = [TopicPartition("t", p) for p in range(3)]
    question = s.engine.offsets_at(dict.fromkeys(tps, 1_000))
    asked = s.expect("ListOffsets")
    parts = [
        {"partition_index": 0, "error_code": 0, "offset": 7, "timestamp": 1_005, "leader_epoch": 4},
        {"partition_index": 1, "error_code": 0, "offset": -1, "timestamp": -1, "leader_epoch": -1},
        {"partition_index": 2, "error_code": 43, "offset": -1, "timestamp": -1, "leader_epoch": -1},
    ]
    s.answer(asked, {"topics": [{"name": "t", "partitions": parts}]})
    assert question.result() == {tps[0]: OffsetAndTimestamp(7, 1_005, 4), tps[1]: None, tps[2]: None}


def test_a_policy_by_time_in_a_log_without_times_is_an_error_that_says_so() -> None:
    s = Script(auto_offset_reset="by_duration:PT1H")
    s.assign()
    s.found(s.expect("ListOffsets"), {0: (43, -1)})
    with pytest.raises(BrokerError, match="message format is too old"):
        s.engine.raise_fault()
    s.advance(10_000)
    assert s.count("ListOffsets") == 1
    s.engine.seek(P0, 3)
    s.engine.raise_fault()


@pytest.mark.parametrize(("isolation", "level"), [("read_uncommitted", 0), ("read_committed", 1)])
def test_ends_are_those_of_the_isolation_level(isolation: str, level: int) -> None:
    s = Script(isolation_level=isolation)
    s.engine.offsets_at({P0: LATEST})
    asked = s.expect("ListOffsets")
    assert asked.body["isolation_level"] == level
    assert asked.body["replica_id"] == -1
    assert asked.partitions()[P0] == {"partition_index": 0, "current_leader_epoch": 5, "timestamp": LATEST}


@pytest.mark.parametrize("who", ["reset", "question"])
def test_a_leader_that_hangs_is_not_waited_for_once_there_is_another(who: str) -> None:
    s = Script(nodes=2)
    question = s.engine.offsets_at({P0: EARLIEST}) if who == "question" else None
    if question is None:
        s.assign()
    hung = s.expect("ListOffsets", node=1)
    s.leaders["t", 0] = (2, 6)
    s.engine.metadata.request_update()
    s.advance(1_000)
    asked = s.expect("ListOffsets", node=2)
    s.found(hung, {0: 1})
    s.found(asked, {0: 2})
    if question is None:
        assert s.position() == 2
    else:
        assert question.result()[P0] == OffsetAndTimestamp(2, -1, 5)
    assert s.count("ListOffsets") == 2


def test_many_questions_about_one_partition_at_once() -> None:
    s = Script()
    questions = [s.engine.offsets_at({P0: time}) for time in range(1_200)]
    s.run()
    assert [timestamp(asked) for asked in s.asked if asked.api.name == "ListOffsets"] == list(range(1_200))
    s.found(s.expect("ListOffsets"), {0: 7})
    assert [question.done for question in questions[:2]] == [True, False]


# --- P13 ---------------------------------------------------------------------------------------------------------------------


def test_a_question_about_a_partition_without_a_leader_holds_up_no_other_question() -> None:
    s = Script(2)
    s.leaders["t", 0] = (-1, 5)
    stuck = s.engine.offsets_at({P0: LATEST, P1: LATEST})
    flows = s.engine.offsets_at({P1: EARLIEST})
    s.found(s.expect("ListOffsets"), {1: 20})
    s.found(s.expect("ListOffsets"), {1: 3})
    assert flows.result()[P1] == OffsetAndTimestamp(3, -1, 5)
    before = s.count("Metadata")
    s.advance(10_000)
    assert not stuck.done
    assert s.count("Metadata") - before <= 20
    s.leaders["t", 0] = (1, 6)
    s.advance(1_500)
    s.found(s.expect("ListOffsets"), {0: 30})
    assert {tp: at.offset for tp, at in stuck.result().items() if at} == {P0: 30, P1: 20}


def test_a_question_about_a_partition_that_does_not_exist() -> None:
    s = Script()
    question = s.engine.offsets_at({TopicPartition("t", 5): LATEST})
    s.advance(5_000)
    with pytest.raises(UnknownTopicError, match="partition 5 of topic 't' does not exist"):
        question.result()
