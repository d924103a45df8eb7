"""metrics(): what is counted, over which time, and that the guide's table is what it returns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfetch.engine import statistics
from fastfetch.engine.statistics import Latency
from fastfetch.types import TopicPartition
from tests.engine.script import Script, batch

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
GUIDE = Path(__file__).parents[2] / "docs" / "guide.md"


def metrics(s: Script) -> dict[str, Any]:
    return s.engine.metrics(s.now)


# --- documentation --------------------------------------------------------------------------------------------------------


def test_the_table_of_the_guide_is_the_dict() -> None:
    [section] = re.findall(r"^## Metrics\n(.*?)^## ", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE)
    documented = [key for row in rows for key in re.findall(r"`(\w+)`", row)]
    assert sorted(documented) == sorted(metrics(Script()))


def test_the_docstring_names_the_same_keys() -> None:
    assert statistics.__doc__ is not None
    keys = statistics.__doc__.partition('"Metrics"):')[2]
    lines = [re.split(r" {3,}", line.strip())[0] for line in keys.splitlines()]
    assert sorted(re.findall(r"\w+", ",".join(lines))) == sorted(metrics(Script()))


def test_every_value_is_a_number_or_a_dict_of_numbers() -> None:
    s = Script()
    s.started()
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    for key, value in metrics(s).items():
        values = value.values() if isinstance(value, dict) else [value]
        if key == "partitions":
            values = [number for part in values for number in part.values()]
        assert all(type(v) in (int, float) for v in values), key


# --- counters -------------------------------------------------------------------------------------------------------------


def test_records_and_bytes() -> None:
    s = Script()
    s.started()
    data = batch(0, codec="lz4")
    s.fetched(s.expect("Fetch"), {0: data})
    got = metrics(s)
    assert (got["records"], got["fetch_bytes"], got["crc_checked_bytes"]) == (0, len(data), len(data))
    assert got["inflated_bytes"] > 100
    assert got["received_bytes"] > len(data)
    assert got["partitions"][P0]["buffered_records"] == 10
    assert got["partitions"][P0]["buffered_bytes"] == got["buffered_bytes"] > 0
    s.take(4)
    got = metrics(s)
    assert got["records"] == 4
    assert got["partitions"][P0] | {"buffered_bytes": 0} == {
        "position": 4, "lag": 10**6 - 4, "buffered_records": 6, "buffered_bytes": 0,
    }  # fmt: skip
    s.take()
    assert metrics(s)["buffered_bytes"] == 0


def test_requests_are_counted_by_api_and_bytes_as_they_are_sent() -> None:
    s = Script(nodes=2, partitions=2)
    s.started(0, 1)
    got = metrics(s)
    asked = [asked.api.name for asked in s.history]
    assert got["requests_by_api"] == {name: asked.count(name) for name in asked}
    assert got["requests"] == len(asked)
    assert got["fetch_requests"] == asked.count("Fetch") == 2
    assert got["sent_bytes"] > 20 * len(asked)


def test_dropped_answers_and_what_was_buffered() -> None:
    s = Script()
    s.started()
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    buffered = metrics(s)["buffered_bytes"]
    assert buffered > 0
    fetch = s.expect("Fetch")
    s.engine.seek(P0, 500)
    s.fetched(fetch, {0: batch(10)})
    got = metrics(s)
    assert (got["dropped_answers"], got["dropped_bytes"], got["buffered_bytes"]) == (1, buffered, 0)


def test_decoding_times_add_up_also_of_what_is_dropped() -> None:
    s = Script()
    s.started()
    s.decode_now = False
    s.fetched(s.expect("Fetch"), {0: batch(0, 300, size=1000)})  # larger than what is always timed
    s.engine.seek(P0, 500)
    s.decode()
    got = metrics(s)
    assert got["dropped_answers"] == 1
    assert got["crc_ns"] > 0
    assert got["walk_ns"] > 0
    assert got["inflate_ns"] == 0
    assert got["crc_share"] + got["walk_share"] == pytest.approx(1, abs=0.001)


@pytest.mark.parametrize(("level", "lag"), [("read_uncommitted", 93), ("read_committed", 43)])
def test_lag_ends_where_reading_ends(level: str, lag: int) -> None:
    s = Script(isolation_level=level, partitions=2)
    s.started(0, at=7)
    assert metrics(s)["lag"] == {}, "not known yet"
    assert metrics(s)["partitions"][P0]["lag"] is None
    s.fetched(s.expect("Fetch"), {0: None}, high=100, last_stable_offset=50)
    assert metrics(s)["lag"] == {P0: lag}
    assert s.engine.lag(P0) == lag


def test_connections() -> None:
    s = Script()
    s.started()
    before = metrics(s)
    assert (before["reconnects"], before["connections_lost"]) == (0, 0)
    assert before["connects"] == before["connections"] == len(s.opened)
    s.down.add("b1")
    s.lose(s.expect("Fetch").conn)
    assert metrics(s)["connections_lost"] == 1
    s.down.clear()
    s.advance(300)
    s.expect("Fetch")
    got = metrics(s)
    assert got["connects"] == len(s.connects)
    assert got["reconnects"] == got["connects"] - before["connects"] > 0


@pytest.mark.parametrize(("told", "counted"), [(250, 250), (2**31 - 1, 300_000)])
def test_throttle_time(told: int, counted: int) -> None:
    s = Script()
    s.started()
    s.answer(s.expect("Fetch"), {"throttle_time_ms": told, "responses": []})
    assert metrics(s)["throttle_ms"] == counted


def test_the_budget_in_use() -> None:
    s = Script(max_buffered_bytes=1 << 20)
    s.started()
    got = metrics(s)
    assert got["budget_share"] == round(got["budget_bytes"] / (1 << 20), 4) > 0
    assert got["buffered_bytes"] == 0


# --- rates ----------------------------------------------------------------------------------------------------------------


def flow(s: Script, seconds: int, *, per_second: int = 10) -> None:
    """One answer of `per_second` records a second, read at once."""
    for _ in range(seconds):
        s.advance(1_000)
        fetch = s.expect("Fetch")
        s.fetched(fetch, {0: batch(s.position() or 0, per_second)})
        s.take()


def test_rates_are_over_the_last_ten_seconds() -> None:
    s = Script()
    s.started()
    assert metrics(s)["records_per_s"] == 0
    flow(s, 30)
    got = metrics(s)
    assert got["uptime_ms"] == 30_000
    assert got["records_per_s"] == pytest.approx(10, rel=0.15)
    assert got["fetch_bytes_per_s"] == pytest.approx(got["fetch_bytes"] / 30, rel=0.15)
    assert got["requests_per_s"][1] == pytest.approx(1, rel=0.15)
    flow(s, 12, per_second=40)
    assert metrics(s)["records_per_s"] == pytest.approx(40, rel=0.15), "nothing of what was before"
    s.advance(20_000)
    assert metrics(s)["records_per_s"] == pytest.approx(2, rel=0.1), "40 since the last note, before the silence"
    s.advance(1_000)
    assert metrics(s)["records_per_s"] == 0


@pytest.mark.parametrize("silence_ms", [15_000, 600_000])
def test_after_a_long_silence_a_rate_is_soon_right_again(silence_ms: int) -> None:
    """Nobody asked for a pass of the engine meanwhile."""
    s = Script()
    s.started()
    flow(s, 5)
    s.now += silence_ms
    flow(s, 3, per_second=100)
    assert metrics(s)["records_per_s"] == pytest.approx(100, rel=0.6)


def test_a_rate_needs_no_second_to_be_there() -> None:
    s = Script()
    s.started()
    s.advance(100)
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    s.take()
    assert metrics(s)["records_per_s"] == 100


def test_no_wake_up_is_for_statistics() -> None:
    s = Script()
    s.started()
    s.expect("Fetch")
    wake = s.engine.wake_at_ms
    assert wake is not None
    assert wake - s.now >= 5_000, "a request's timeout; nothing every second"


def test_notes_do_not_pile_up() -> None:
    s = Script()
    s.started()
    for _ in range(5_000):
        s.now += 130
        s.engine.statistics.tick(s.now)
    assert len(s.engine.statistics._notes) <= 13


# --- latency --------------------------------------------------------------------------------------------------------------


def test_fetch_latency() -> None:
    s = Script()
    s.started()
    for n, wait in enumerate([10] * 98 + [400, 1_000]):
        s.advance(wait)
        s.fetched(s.expect("Fetch"), {0: batch(10 * n)})
        s.take()
    got = metrics(s)
    assert (got["fetch_latency_p50_ms"], got["fetch_latency_max_ms"]) == (10, 1_000)
    assert 400 <= got["fetch_latency_p99_ms"] <= 450
    assert 10 < got["fetch_latency_ms"] < 200


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=50), st.integers(1, 100))
def test_percentiles_are_at_most_an_eighth_too_large(times: list[int], percent: int) -> None:
    latency = Latency()
    for ms in times:
        latency.add(ms)
    exact = sorted(times)[-(-len(times) * percent // 100) - 1]
    if exact < 15 << 16:
        assert exact <= latency.percentile(percent) <= exact * 1.125
    else:  # the last bucket
        assert latency.percentile(percent) == max(times)
    assert latency.longest_ms == max(times)
    assert min(times) - 0.001 <= latency.average_ms <= max(times) + 0.001


def test_no_times_no_percentile() -> None:
    assert Latency().percentile(99) == 0
