"""A run of `kfetch bench`: what is derived from readings, and the file that keeps them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fastfetch.benchmark.results import Case, Failure, Latency, Reading, ResultsError, Run, spread

CASE = Case("orders", "orders", "lz4", 3, 1000, 70.5, 212.25, 90_000, 212_250)


def reading(client: str, turn: int, seconds: float, records: int = 1000, **more: Any) -> Reading:
    more = {"cpu_seconds": 2 * seconds, "wire_bytes": 90 * records, "inflated_bytes": 200 * records} | more
    return Reading("orders", client, turn, records, seconds, **more)


def a_run(*readings: Reading) -> Run:
    return Run("consume", "2026-01-31T12:00:00+00:00", cases=[CASE], all_readings=list(readings))


def test_a_ratio_is_per_record_and_within_a_round() -> None:
    run = a_run(
        reading("fastfetch", 1, 1), reading("slow", 1, 1, 500),
        reading("fastfetch", 2, 4), reading("slow", 2, 4, 250),
        reading("fastfetch", 3, 1), reading("slow", 3, 10),
        reading("slow", 4, 1000),
    )  # fmt: skip
    ratios = run.ratios("orders", "slow")
    assert ratios is not None
    assert (ratios.median, ratios.count) == (0.25, 3), "a round that only one of them has does not count"
    assert run.ratios("orders", "slow", "cpu") == spread([2, 4, 10])
    assert run.ratios("orders", "absent") is None


def test_what_is_told_of_readings() -> None:
    run = a_run(*(reading("fastfetch", turn, seconds) for turn, seconds in enumerate((1, 2, 4, 5, 10), 1)))
    assert run.spread("orders", "fastfetch") == spread([1000, 500, 250, 200, 100])
    assert run.spread("orders", "fastfetch", "wire") == spread([0.09, 0.045, 0.0225, 0.018, 0.009])
    assert run.spread("orders", "fastfetch", "inflated") == spread([0.2, 0.1, 0.05, 0.04, 0.02])
    assert run.spread("orders", "fastfetch", "cpu") == spread([2e6, 4e6, 8e6, 10e6, 20e6])
    assert run.spread("orders", "fastfetch", "memory") is None
    without_cpu = a_run(reading("java", 1, 1, cpu_seconds=None, peak_rss_bytes=5_000_000))
    assert without_cpu.spread("orders", "java", "cpu") is None
    assert without_cpu.spread("orders", "java", "memory") == spread([5.0])


def test_quartiles_need_three() -> None:
    assert (spread([3]).low, spread([3]).median, spread([3]).high) == (3, 3, 3)
    assert (spread([1, 3]).low, spread([1, 3]).median, spread([1, 3]).high) == (1, 2, 3)
    assert (spread([1, 2, 3, 4]).low, spread([1, 2, 3, 4]).high) == (1.25, 3.75)
    with pytest.raises(ValueError, match="no median"):
        spread([])


def test_turns_about_latency_are_kept_apart() -> None:
    latency = Latency(1, 2, 3, 4, 5)
    run = a_run(reading("fastfetch", 1, 1), reading("fastfetch", 1, 50, latency_ms=latency))
    assert run.spread("orders", "fastfetch") == spread([1000])
    assert run.latencies("orders", "fastfetch") == [latency]
    assert run.clients() == run.clients("orders") == ["fastfetch"]
    assert run.clients("payments") == []


def test_a_file_says_the_same_when_read_again(tmp_path: Path) -> None:
    run = a_run(reading("fastfetch", 1, 1, peak_rss_bytes=1 << 26), reading("a", 1, 9, latency_ms=Latency(0.5, 1, 2, 3, 40.25)))
    run.machine, run.versions, run.settings = {"cores": 2}, {"fastfetch": "0.1.0"}, {"rounds": 5, "clients": {"a": {"x": 1}}}
    run.failed = [Failure("orders", "b", "it fell over"), Failure(None, "c", "not installed")]
    run.save(tmp_path / "run.json")
    assert Run.load(tmp_path / "run.json") == run
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    found = json.loads((tmp_path / "run.json").read_text())
    assert found["format"] == 1
    assert found["readings"][1]["latency_ms"] == {"p50": 0.5, "p90": 1, "p99": 2, "p99.9": 3, "max": 40.25}
    assert found["failed"][1] == {"case": None, "client": "c", "why": "not installed"}


def test_what_a_newer_version_added_is_passed_over() -> None:
    found = a_run(reading("fastfetch", 1, 1)).as_json()
    found["new"] = found["cases"][0]["new"] = found["readings"][0]["new"] = 1
    assert Run.from_json(found) == a_run(reading("fastfetch", 1, 1))


def test_a_file_that_is_not_one_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    for text, why in {
        "not json": "is no run of kfetch bench: Expecting value",
        "[1]": "it has no 'format'",
        "{}": "it has no 'format'",
        '{"format": 2}': "has format 2, and this version of fastfetch reads format 1",
        '{"format": 1, "kind": "produce"}': "is a run of kind 'produce': known are decode and consume",
        '{"format": 1, "kind": "decode"}': "is no whole run of kfetch bench: KeyError: 'taken'",
        "\xff": "is no run of kfetch bench",
    }.items():
        path.write_text(text, encoding="latin-1")
        with pytest.raises(ResultsError, match=why):
            Run.load(path)


@pytest.mark.parametrize("change", [{"case": "payments"}, {"seconds": 0}, {"records": 0}, {"records": None}, {"latency_ms": {}}])
def test_readings_that_make_no_sense_are_refused(change: dict[str, Any]) -> None:
    found = a_run(reading("fastfetch", 1, 1)).as_json()
    found["readings"][0] |= change
    with pytest.raises(ResultsError):
        Run.from_json(found)


def test_a_link_stays_one(tmp_path: Path) -> None:
    run = a_run(reading("fastfetch", 1, 1))
    (tmp_path / "link").symlink_to("run.json")
    run.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert Run.load(tmp_path / "run.json") == run


def test_a_save_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    a_run(reading("fastfetch", 1, 1)).save(path)
    broken = a_run()
    broken.settings = {"unknown": object()}
    with pytest.raises(TypeError):
        broken.save(path)
    assert Run.load(path) == a_run(reading("fastfetch", 1, 1))
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]


def test_what_is_no_file_is_written_to_and_stays_what_it_is(tmp_path: Path) -> None:
    """`--json /dev/null` as root must not put a file where the device was."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # opened first: the writer would wait for it
    try:
        a_run(reading("fastfetch", 1, 1)).save(pipe)
        assert pipe.is_fifo()
        assert json.loads(os.read(reader, 1 << 16))["kind"] == "consume"
    finally:
        os.close(reader)
