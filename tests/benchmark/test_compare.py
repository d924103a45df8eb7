"""Two runs held against each other: what the readings can tell, and no more."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from fastfetch.benchmark.compare import BETTER, EQUAL, TOO_FEW, WORSE, Comparison, Line, compare, ratio
from fastfetch.benchmark.results import Failure, ResultsError, Run
from fastfetch.cli import main
from tests.benchmark.made_runs import case, consume_run, decode_run

LZ4 = [("lz4", 1, 80.0, 212.0)]
TWO = [("lz4", 1, 80.0, 212.0), ("zstd", 1, 80.0, 212.0)]


def line(found: Comparison, client: str = "fastfetch", metric: str = "records") -> Line:
    [one] = [each for each in found.lines if (each.client, each.metric) == (client, metric)]
    return one


# --- the ratio ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 5), (2, 2), (3, 3), (3, 4), (5, 5), (5, 7), (6, 6)])
def test_the_interval_is_exact(n: int, m: int) -> None:
    """All orders of n and m readings are equally likely if nothing differs: those in which 1 lies outside are counted."""
    orders = list(itertools.combinations(range(n + m), n))
    inside, sure = 0, 0.0
    for of_a in orders:
        values = [2.0**at for at in range(n + m)]
        found = ratio([values[at] for at in of_a], [value for at, value in enumerate(values) if at not in of_a])
        inside += found.low < 1 < found.high
        sure = found.sure
    assert inside / len(orders) == pytest.approx(sure)
    possible = 1 - 2 / math.comb(n + m, n)  # all orders but the two extreme ones
    assert sure >= 0.95 or sure == pytest.approx(max(0, possible)), "as sure as 95 %, or as sure as can be"


def test_the_interval_is_no_wider_than_needed() -> None:
    """From a table of Mann and Whitney's U for 5 and 5 at 0.05: two may be left out at each end, three may not."""
    a, b = [1.0, 2.0, 4.0, 8.0, 16.0], [3.0, 5.0, 7.0, 11.0, 13.0]
    ratios = sorted(y / x for x in a for y in b)
    found = ratio(a, b)
    assert (found.low, found.high) == (ratios[2], ratios[-3])
    assert found.value == 7 / 4
    assert found.sure == pytest.approx(1 - 2 * 4 / 252)


def test_the_ratio_lies_in_its_interval() -> None:
    random = Random(5)
    for _ in range(300):
        a, b = ([random.lognormvariate(0, 1) for _ in range(random.randint(1, 9))] for _ in range(2))
        found = ratio(a, b)
        assert found.low <= found.value * (1 + 1e-12)
        assert found.value <= found.high * (1 + 1e-12)


def test_so_often_the_interval_has_the_truth() -> None:
    random = Random(7)
    hits = 0
    for _ in range(1000):
        a = [random.lognormvariate(0, 0.2) for _ in range(5)]
        b = [1.3 * random.lognormvariate(0, 0.2) for _ in range(5)]
        found = ratio(a, b)
        hits += found.low <= 1.3 <= found.high
    assert 0.95 <= hits / 1000 <= 0.985, "promised are 96.8 %"


# --- verdicts -----------------------------------------------------------------------------------------------------------


def test_medians_and_ratios_are_those_of_the_readings() -> None:
    a, b = consume_run(LZ4, seed=1), consume_run(LZ4, seed=2)
    rates = [[r.records / r.seconds for r in run.all_readings if r.client == "aiokafka"] for run in (a, b)]
    found = line(compare(a, b), "aiokafka")
    assert found.a.median == pytest.approx(statistics.median(rates[0]))
    assert found.b.median == pytest.approx(statistics.median(rates[1]))
    assert found.ratio.value == pytest.approx(statistics.median(rates[1]) / statistics.median(rates[0]))
    assert found.unit == "records/s"


def test_slower_and_faster_and_neither() -> None:
    a = consume_run(LZ4, seed=1, latency=True)
    slower, faster = (compare(a, consume_run(LZ4, seed=2, latency=True, factor=factor)) for factor in (0.6, 1.5))
    assert line(slower).verdict == WORSE
    assert line(faster).verdict == BETTER
    assert line(slower, metric="cpu").verdict == WORSE, "more processor time is worse"
    assert line(faster, metric="cpu").verdict == BETTER
    assert line(slower, metric="memory").verdict == EQUAL
    assert line(slower, metric="latency-p99").verdict == EQUAL
    assert line(compare(a, a)).verdict == EQUAL
    assert line(compare(a, a)).ratio.value == 1


def test_two_rounds_are_no_verdict_and_three_are() -> None:
    for rounds, verdict in ((1, TOO_FEW), (2, TOO_FEW), (3, WORSE)):
        a, b = consume_run(LZ4, 1, rounds=rounds), consume_run(LZ4, 2, rounds=rounds, factor=0.5)
        assert line(compare(a, b)).verdict == verdict, rounds


def test_worse_by_more_than_so_much() -> None:
    found = line(compare(consume_run(LZ4, 1), consume_run(LZ4, 2, factor=0.5)))
    change = 100 * (1 - found.ratio.value)
    assert 40 < change < 60
    assert found.is_worse_by(change - 0.1)
    assert not found.is_worse_by(change + 0.1)
    noise = line(compare(consume_run(LZ4, 1), consume_run(LZ4, 3)))
    assert noise.ratio.value != 1
    assert not noise.is_worse_by(0), "what the spread explains is no failure, however small the bound"


def test_over_another_client_the_weather_is_gone() -> None:
    """B ran on a busier machine, for all alike, and each round was another: only what is beside it of the same round tells."""
    a, b = consume_run(LZ4, 1, latency=True), consume_run(LZ4, 2, latency=True)
    slow = {turn: 1 + turn for turn in range(1, 6)}
    b.all_readings = [replace(r, seconds=r.seconds * slow[r.round]) for r in b.all_readings]
    assert line(compare(a, b)).verdict == WORSE
    found = compare(a, b, "confluent-kafka")
    assert line(found).verdict == EQUAL
    rates = {
        client: [r.records / r.seconds for r in b.all_readings if r.client == client and r.latency_ms is None]
        for client in ("fastfetch", "confluent-kafka")
    }
    assert line(found).b.median == pytest.approx(statistics.median(x / y for x, y in zip(*rates.values(), strict=True)))
    assert line(found).unit == "× confluent-kafka"
    assert "confluent-kafka" not in {each.client for each in found.lines}
    assert line(found, "aiokafka", "latency-p99").a.count == 5
    assert compare(a, b, "nobody").lines == []


# --- what belongs together ----------------------------------------------------------------------------------------------


def test_what_only_one_has() -> None:
    a, b = consume_run(TWO), consume_run(LZ4)
    b.all_readings = [r for r in b.all_readings if r.client != "aiokafka"]
    b.failed = [Failure(b.cases[0].id, "aiokafka", "timed out"), Failure(None, "java", "no JDK")]
    found = compare(a, b)
    lz4, zstd = (each.id for each in a.cases)
    assert (lz4, "aiokafka", "timed out") in found.only_a
    assert {case_id for case_id, _, _ in found.only_a} == {lz4, zstd}
    assert found.only_b == []
    assert compare(b, a).only_b == found.only_a


def test_the_same_data_under_other_names_are_paired() -> None:
    a, b = consume_run(TWO), consume_run([case(*each, id=f"other-{each[0]}") for each in TWO], 2)
    names = {each.case for each in compare(a, b).lines}
    assert names == {"bench-lz4-1p-80-212 / other-lz4", "bench-zstd-1p-80-212 / other-zstd"}
    twice = consume_run([case(*LZ4[0], id=f"other-{at}") for at in range(2)], 2)
    assert compare(a, twice).lines == [], "which of the two it is, is not guessed"


def test_a_warning_for_all_that_is_not_the_same() -> None:
    a, b = consume_run(LZ4), consume_run(LZ4)
    assert compare(a, b).differs == []
    b = replace(b, machine={**a.machine, "cores": 64}, versions={"fastfetch": "0.2.0"}, settings={"clients": {"fastfetch": {}}})
    b.cases = [replace(b.cases[0], partitions=8, batch_records=5.0, wire_bytes=2 * b.cases[0].wire_bytes)]
    found = {what: values for what, *values in compare(a, b).differs}
    assert found["machine: cores"] == [2, 64]
    assert found["version: fastfetch"] == ["0.1.0", "0.2.0"]
    assert found["setting: fastfetch.max_partition_fetch_bytes"] == [4 << 20, None]
    assert found["partitions of bench-lz4-1p-80-212"] == [1, 8]
    assert found["records a batch of bench-lz4-1p-80-212"] == [80.0, 5.0]
    assert "bytes a record on the wire of bench-lz4-1p-80-212" in found
    assert not [what for what in found if "rounds" in what], "how often is not how"


def test_two_kinds_have_nothing_in_common() -> None:
    with pytest.raises(ResultsError, match="consume and one of kind decode"):
        compare(consume_run(LZ4), decode_run())


def test_decode_runs_are_compared_too() -> None:
    found = compare(decode_run(["lz4"], seed=1), decode_run(["lz4"], seed=2))
    assert {each.case for each in found.lines} == {"orders lz4 x1", "orders lz4 x2"}


# --- the command --------------------------------------------------------------------------------------------------------


def invoke(tmp_path: Path, a: Run, b: Run, *arguments: str) -> Any:
    a.save(tmp_path / "a.json")
    b.save(tmp_path / "b.json")
    return CliRunner().invoke(main, ["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"), *arguments])


def test_the_table(tmp_path: Path) -> None:
    a, b = consume_run(LZ4, 1), consume_run(LZ4, 2, factor=0.5)
    done = invoke(tmp_path, a, b)
    assert (done.exit_code, done.stderr) == (0, "")
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["case", "client", "measure", "A", "B", "B", "/", "A", "from", "to", "sure", "verdict"]
    assert len(rows) == 5 * 3
    found = line(compare(a, b))
    assert rows[0].split()[4:6] == [str(round(found.a.median)), str(round(found.b.median))]
    assert rows[0].split()[6:] == [
        f"{found.ratio.value:.3f}",
        f"{found.ratio.low:.3f}",
        f"{found.ratio.high:.3f}",
        "97%",
        "worse",
    ]


def test_json_lines(tmp_path: Path) -> None:
    a, b = consume_run(TWO, 1), consume_run(LZ4, 2, versions={"fastfetch": "0.2.0", "aiokafka": "0.14.0"})
    done = invoke(tmp_path, a, b, "--json", "--client", "fastfetch")
    lines = [json.loads(each) for each in done.stdout.splitlines()]
    assert [each["what"] for each in lines if each["type"] == "difference"] == ["version: fastfetch"]
    compared = [each for each in lines if each["type"] == "comparison"]
    assert [each["metric"] for each in compared] == ["records", "cpu", "memory"]
    assert {each["client"] for each in compared} == {"fastfetch"}
    assert set(compared[0]["ratio"]) == {"value", "low", "high", "sure"}
    assert set(compared[0]["a"]) == {"median", "low", "high", "count"}
    assert [each["case"] for each in lines if each["type"] == "only"] == ["bench-zstd-1p-80-212"]


@pytest.mark.parametrize(
    ("factor", "arguments", "code"),
    [
        (0.5, ("--fail-above", "10"), 1),
        (0.5, ("--fail-above", "90"), 0),
        (0.5, (), 0),
        (1.0, ("--fail-above", "0"), 0),
        (2.0, ("--fail-above", "0"), 0),
        (0.5, ("--fail-above", "10", "--fail-on", "memory"), 0),
        (0.5, ("--fail-above", "10", "--fail-on", "cpu"), 1),
        (0.5, ("--fail-above", "10", "--client", "franz-go"), 1),
        (0.5, ("--fail-above", "10", "--over", "aiokafka"), 0),
        (1.0, ("--fail-above", "10", "--fail-on", "latency-p99"), 1),
    ],
    ids=[
        "half as fast", "less than the bound", "not asked", "noise", "faster", "memory is the same", "processor time",
        "nothing of that client", "beside another client", "no latency",
    ],
)  # fmt: skip
def test_the_exit_code(factor: float, arguments: tuple[str, ...], code: int, tmp_path: Path) -> None:
    done = invoke(tmp_path, consume_run(LZ4, 1), consume_run(LZ4, 3, factor=factor), *arguments)
    assert done.exit_code == code, done.output
    assert bool(done.stderr) == bool(code)


def test_what_cannot_be_told_is_no_pass(tmp_path: Path) -> None:
    done = invoke(tmp_path, consume_run(LZ4, 1, rounds=2), consume_run(LZ4, 2, rounds=2), "--fail-above", "10")
    assert done.exit_code == 1
    assert "fastfetch on bench-lz4-1p-80-212, records: too few readings" in done.stderr
    a, b = consume_run(LZ4, 1), consume_run(LZ4, 2)
    b.all_readings = [r for r in b.all_readings if r.client != "fastfetch"]
    b.failed = [Failure(b.cases[0].id, "fastfetch", "it crashed")]
    done = invoke(tmp_path, a, b, "--fail-above", "10")
    assert done.exit_code == 1
    assert "fastfetch on bench-lz4-1p-80-212 has no readings in B: it crashed" in done.stderr


def test_hostile_names_stay_on_their_line(tmp_path: Path) -> None:
    text = "a\x1b[31m\n[red]b"
    a, b = (consume_run([case(id=text, topic=text)], seed, machine={text: seed}) for seed in (1, 2))
    done = invoke(tmp_path, a, b)
    assert done.exit_code == 0
    assert "\x1b" not in done.output
    assert len(done.stdout.splitlines()) == 1 + 15
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("bad", ["a", "b"])
def test_a_bad_file_is_one_sentence(bad: str, tmp_path: Path) -> None:
    for name in "ab":
        consume_run(LZ4).save(tmp_path / f"{name}.json")
    (tmp_path / f"{bad}.json").write_text("{}")
    done = CliRunner().invoke(main, ["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")])
    assert (done.exit_code, done.stderr) == (1, f"kfetch: {tmp_path / bad}.json is no run of kfetch bench: it has no 'format'\n")
