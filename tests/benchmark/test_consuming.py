"""Who reads how much in a contest, and what a turn becomes."""

from __future__ import annotations

import pytest

from fastfetch.benchmark import consuming
from fastfetch.benchmark.clients import CLIENTS, Job, Turn
from fastfetch.benchmark.consuming import ALL, USUAL, consume_in_turns, reading_of, settings_of, versions_of
from fastfetch.benchmark.contest import ReadingError
from fastfetch.benchmark.results import Case, Reading

CASE = Case("orders", "orders", "lz4", 2, 1000, 10.0, 100.0, 30_000, 100_000)


def test_a_slow_client_reads_no_more_than_its_time_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []
    rates = {"fast": 10_000.0, "slow": 50.0, "slower": 1.0}

    def take(client: str, job: Job, *, seconds: float) -> Turn:
        asked.append((client, job.records))
        if client == "broken":
            raise ReadingError("broken is broken")
        return Turn(job.records / rates[client], 0.5, job.records)

    monkeypatch.setattr(consuming, "take", take)
    job = Job("", "orders", 1000)
    turns = list(consume_in_turns(job, CASE, [*rates, "broken"], rounds=1, warm_up=100, seconds=4))
    assert asked == [
        ("broken", 100), ("slower", 100), ("slow", 100), ("fast", 100), ("fast", 1000), ("slow", 200), ("slower", 100),
    ]  # fmt: skip
    assert str(turns[0][2]) == "broken is broken"
    _, _, last = turns[-1]
    assert last == Reading("orders", "slower", 1, 100, 100.0, 0.5, 3000, 10_000)


def test_a_warm_up_is_no_longer_than_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(consuming, "take", lambda client, job, seconds: asked.append(job.records) or Turn(1, 1, job.records))
    list(consume_in_turns(Job("", "orders", 70), CASE, ["a"], rounds=2, warm_up=100, seconds=4))
    assert asked == [70, 70, 70]


def test_bytes_are_those_of_the_mean_record() -> None:
    reading = reading_of(CASE, "a", 3, Turn(2.0, 1.0, 500, 1 << 20))
    assert (reading.wire_bytes, reading.inflated_bytes, reading.peak_rss_bytes) == (15_000, 50_000, 1 << 20)


def test_the_usual_clients_are_each_once_and_not_as_they_come_out_of_the_box() -> None:
    assert {"fastfetch", "fastfetch poll", "confluent-kafka", "aiokafka", "kafka-python", "java", "franz-go"} <= set(USUAL)
    assert not [name for name in USUAL if "defaults" in name or "300" in name]
    assert set(USUAL) < set(ALL)
    assert USUAL[0] == "fastfetch"


def test_what_a_run_says_of_its_clients() -> None:
    own = {"check.crcs": "false"}
    assert settings_of("fastfetch", own) == {"call": "poll_blocks()", "max_partition_fetch_bytes": 4 << 20, "check.crcs": "false"}
    assert settings_of("confluent-kafka defaults", own) == {"call": "consume(10000)"}
    assert "check.crcs" not in settings_of("confluent-kafka", own)
    assert settings_of("java", {})["call"] == "ConsumerPerformance"
    assert versions_of(["fastfetch", "aiokafka"]).keys() == {"aiokafka"}
    assert all(settings_of(name, {})["call"] for name in CLIENTS)
