"""`kfetch bench`: decoders and clients measured on small data, what is printed and what is kept."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fastfetch.benchmark import clients, consuming
from fastfetch.benchmark.results import Run
from fastfetch.cli import main
from fastfetch.testing import Broker, encode_batch, rebase

PARTITIONS, BATCHES = 2, 20
LZ4 = encode_batch([(b"key", b"value %d" % number * 10) for number in range(50)], codec="lz4", leader_epoch=0)
PLAIN = encode_batch([b"value"] * 30, leader_epoch=0)
RECORDS = PARTITIONS * BATCHES * 50


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(writable=True) as broker:
        broker.create_topic("orders", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            for _ in range(BATCHES):
                broker.append("orders", partition, LZ4)
        yield broker


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "orders-3"
    folder.mkdir()
    batches = [rebase(LZ4, 0), rebase(PLAIN, 50), rebase(LZ4, 80)]
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    return folder


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "run.json"


def bench(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["bench", *map(str, arguments)])


def rows(done: Result) -> list[dict[str, str]]:
    """The first table, as its columns are told apart: by two spaces."""
    table = done.stdout.partition("\n\n")[0].splitlines()
    names, *lines = ([cell.strip() for cell in line.split("  ") if cell.strip()] for line in table)
    return [dict(zip(names, line, strict=True)) for line in lines]


# ------------------------------------------------------------------------------------------------------------------- help


def test_help_names_the_commands() -> None:
    done = bench("--help")
    assert done.exit_code == 0
    for name in ("decode", "consume", "produce-sample", "report", "compare"):
        assert f"  {name}" in done.stdout
        assert "--help" in bench(name, "--help").stdout
    assert "bench" in CliRunner().invoke(main, ["--help"]).stdout
    assert bench("brew").exit_code == 2


# ----------------------------------------------------------------------------------------------------------------- decode


def test_decode_measures_each_codec_and_number_of_threads(folder: Path, kept: Path) -> None:
    done = bench("decode", folder, "--threads", "2,1", "--rounds", 2, "--seconds", 0.01, "--json", kept)
    assert done.exit_code == 0, done.stderr
    found = [(row["case"], row["client"]) for row in rows(done)]
    assert found == [
        *((f"orders-3 {codec}{threads}", client)
          for codec in ("lz4", "none")
          for threads, names in ((" ×2", ("fastfetch", "floor")), ("", ("fastfetch", "floor", "aiokafka", "kafka-python")))
          for client in names)
    ]  # fmt: skip
    assert {row["ratio"] for row in rows(done) if row["client"] == "fastfetch"} == {"1.00"}
    assert "orders-3: lz4, 100 records of" in done.stderr.replace(str(folder.parent) + "/", "")
    assert f"the run is in {kept}" in done.stderr
    run = Run.load(kept)
    assert (run.kind, run.settings["rounds"], run.settings["sources"]) == ("decode", 2, [str(folder)])
    assert {"fastfetch", "python", "aiokafka", "kafka-python"} <= run.versions.keys()
    assert {"cpu", "crc32c", "lz4 from"} <= run.machine.keys()
    assert [(case.id, case.threads, case.records) for case in run.cases[:2]] == [
        ("orders-3 lz4 ×2", 2, 100), ("orders-3 lz4", 1, 100),
    ]  # fmt: skip
    for case in run.cases:
        assert {len(run.readings(case.id, client)) for client in run.clients(case.id)} == {2}


def test_decode_takes_a_topics_bytes(broker: Broker, kept: Path) -> None:
    done = bench(
        "decode", "orders", "-b", broker.bootstrap_servers, "--threads", 1, "--rounds", 1, "--seconds", 0, "--json", kept
    )
    assert done.exit_code == 0, done.stderr
    [case] = Run.load(kept).cases
    assert (case.id, case.codec, case.partitions, case.records) == ("orders lz4", "lz4", PARTITIONS, RECORDS)
    assert case.wire_bytes == PARTITIONS * BATCHES * len(LZ4)


def test_decode_says_what_it_cannot_do(folder: Path, tmp_path: Path, broker: Broker) -> None:
    for arguments, code, why in (
        ([tmp_path / "absent"], 1, "there is no .*/absent, and no brokers were named"),
        (["absent", "-b", broker.bootstrap_servers], 1, "UNKNOWN_TOPIC"),
        ([folder, "--threads", "two"], 2, "'two' is no list of numbers from 1 to 64"),
        ([folder, "--threads", "1,0"], 2, "'1,0' is no list"),
        ([tmp_path], 1, "is a data folder with 1 partitions"),
        ([], 2, "Missing argument"),
    ):
        done = bench("decode", *arguments)
        assert done.exit_code == code, done.stderr
        assert re.search(why, done.stderr), done.stderr
    (folder / f"{0:020}.log").write_bytes(LZ4[:-1] + b"?")
    done = bench("decode", folder)
    assert (done.exit_code, done.stderr.count("\n")) == (3, 1)


# ---------------------------------------------------------------------------------------------------------------- consume

QUICK = ("--rounds", 1, "--warm-up", 100, "--seconds", 0.05)


def test_consume_measures_the_clients_that_were_named(broker: Broker, kept: Path) -> None:
    done = bench(
        "consume", "orders", "-b", broker.bootstrap_servers, "--client", "confluent-kafka", "--client", "fastfetch poll",
        "--rounds", 2, "--warm-up", 50, "--seconds", 0.05, "--json", kept, "-X", "check.crcs=false",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    found = rows(done)
    assert [row["client"] for row in found] == ["fastfetch", "confluent-kafka", "fastfetch poll"]
    assert list(found[0]) == [
        "case", "client", "records/s", "± %", "MB/s wire", "MB/s raw", "CPU ns", "peak MB", "ratio",
    ]  # fmt: skip
    assert all(float(cell) >= 0 for row in found for name, cell in row.items() if name not in ("case", "client"))
    assert f"orders: lz4, {RECORDS:,} records of" in done.stderr
    assert "fastfetch: poll_blocks(), max_partition_fetch_bytes=4194304, check.crcs=false\n" in done.stderr
    assert "confluent-kafka: consume(10000), queued.min.messages=2000000, " in done.stderr
    run = Run.load(kept)
    [case] = run.cases
    assert (case.records, case.wire_bytes) == (RECORDS, PARTITIONS * BATCHES * len(LZ4))
    assert run.settings["clients"]["fastfetch"] == {
        "call": "poll_blocks()", "max_partition_fetch_bytes": 4 << 20, "check.crcs": "false",
    }  # fmt: skip
    assert run.settings["clients"]["confluent-kafka"]["isolation.level"] == "read_uncommitted"
    assert run.versions["confluent-kafka"]
    for client in run.clients():
        readings = run.readings("orders", client)
        assert [reading.round for reading in readings] == [1, 2]
        assert all(50 <= reading.records <= RECORDS and reading.peak_rss_bytes for reading in readings)
    assert not [request for request in broker.requests() if request.api in ("OffsetCommit", "JoinGroup")], "nothing is committed"


def test_consume_reads_several_topics_and_no_more_than_it_shall(broker: Broker, kept: Path) -> None:
    broker.create_topic("lines")
    for _ in range(10):
        broker.append("lines", 0, PLAIN)
    more = ("--client", "fastfetch", *QUICK, "--records", 120, "--json", kept)
    done = bench("consume", "orders", "lines", "-b", broker.bootstrap_servers, *more)
    assert done.exit_code == 0, done.stderr
    run = Run.load(kept)
    assert [(case.id, case.codec) for case in run.cases] == [("orders", "lz4"), ("lines", "none")]
    assert all(120 <= case.records < 300 for case in run.cases)
    assert {reading.case for reading in run.all_readings} == {"orders", "lines"}


def test_consume_without_names_tries_everybody(broker: Broker, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastfetch.cli.bench_consume.USUAL", ("fastfetch", "aiokafka", "kafka-python"))
    monkeypatch.setattr(clients, "find_spec", lambda module: None if module == "aiokafka" else object())
    real = consuming.take

    def take(client: str, job: clients.Job, *, seconds: float) -> clients.Turn:
        if client == "kafka-python":
            raise consuming.ReadingError("kafka-python could not read orders: it fell over")
        return real(client, job, seconds=seconds)

    monkeypatch.setattr(consuming, "take", take)
    done = bench("consume", "orders", "-b", broker.bootstrap_servers, *QUICK, "--json", kept)
    assert done.exit_code == 0
    assert "kfetch: aiokafka: aiokafka is not installed\n" in done.stderr
    assert "kfetch: kafka-python could not read orders: it fell over\n" in done.stderr
    assert [row["client"] for row in rows(done)] == ["fastfetch"]
    assert [(failure.case, failure.client) for failure in Run.load(kept).failed] == [
        (None, "aiokafka"),
        ("orders", "kafka-python"),
    ]


def test_consume_with_latency(broker: Broker, kept: Path) -> None:
    done = bench(
        "consume", "orders", "-b", broker.bootstrap_servers, "--client", "confluent-kafka", *QUICK, "--json", kept,
        "--latency", 100, "--latency-seconds", 0.5,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    names, *lines = done.stdout.partition("\n\n")[2].splitlines()
    assert re.split(r"  +", names) == ["case", "client", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"]
    assert [line.split()[1] for line in lines] == ["fastfetch", "confluent-kafka"]
    run = Run.load(kept)
    assert run.settings["latency_rate"] == 100
    assert all(len(run.latencies("orders", client)) == len(run.readings("orders", client)) == 1 for client in run.clients())
    assert broker.end_offset("orders", 0) == BATCHES * 50, "nothing is written to the user's topic"
    assert set(broker._cluster.topics) == {"orders"}


def test_consume_says_what_it_cannot_do(broker: Broker, kept: Path) -> None:
    broker.create_topic("empty")
    for arguments, code, why in (
        (["absent", "-b", broker.bootstrap_servers], 1, "topic 'absent' does not exist"),
        (
            ["empty", "-b", broker.bootstrap_servers, "--client", "fastfetch"],
            1,
            "no records; kfetch bench produce-sample empty makes",
        ),
        (["orders"], 2, "no brokers: say where"),
        (["orders", "-b", broker.bootstrap_servers, "--client", "nobody"], 2, "'nobody' is not one of"),
        (["orders", "-b", broker.bootstrap_servers, "-X", "no.such=1"], 2, "no.such"),
    ):
        done = bench("consume", *arguments, "--json", kept)
        assert done.exit_code == code, done.stderr
        assert why in done.stderr
    assert not kept.exists()
    if os.geteuid():  # nothing is forbidden to root
        kept.parent.chmod(0o500)
        done = bench("consume", "orders", "-b", broker.bootstrap_servers, "--json", kept)
        kept.parent.chmod(0o700)
        assert (done.exit_code, "can't be written: say with --json" in done.stderr) == (2, True)
    done = bench("consume", "orders", "-b", broker.bootstrap_servers, "--json", kept.parent / "absent" / "run.json")
    assert (done.exit_code, "can't be written: say with --json" in done.stderr) == (2, True)


def test_ctrl_c_ends_the_clients_and_keeps_what_there_is(broker: Broker, kept: Path) -> None:
    command = [
        sys.executable, "-m", "fastfetch", "bench", "consume", "orders", "-b", broker.bootstrap_servers, "--client", "fastfetch",
        "--rounds", "1000", "--warm-up", "100", "--seconds", "0.05", "--json", str(kept),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)
    try:
        deadline = time.monotonic() + 60
        # The looker, the warm-up and two rounds at least: each is another connection for the metadata.
        while len({request.connection for request in broker.requests("Metadata")}) < 6:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    run = Run.load(kept)
    assert len(run.readings("orders", "fastfetch")) >= 1
    assert out.splitlines()[1].split()[:2] == ["orders", "fastfetch"]
    deadline = time.monotonic() + 10
    while broker.connections():
        assert time.monotonic() < deadline, "a client goes on"
        time.sleep(0.02)


# --------------------------------------------------------------------------------------------------------- produce-sample


def test_produce_sample_fills_a_topic(broker: Broker) -> None:
    where = ("-b", broker.bootstrap_servers)
    done = bench("produce-sample", "made", *where, "--records", 500, "--partitions", 2, "--codec", "zstd", "--shape", "logs")
    assert done.exit_code == 0, done.stderr
    assert done.stderr.startswith("made: 500 records, ")
    assert " in 2 partitions, in " in done.stderr
    assert [broker.end_offset("made", partition) for partition in range(2)] == [250, 250]
    again = bench("produce-sample", "made", *where, "--records", 10)
    assert (again.exit_code, again.stderr) == (
        1,
        "kfetch: topic made has records already, 500 offsets of them: --append adds to them\n",
    )
    assert bench("produce-sample", "made", *where, "--bytes", 1000, "--append").exit_code == 0
    assert bench("produce-sample", "made", *where, "--codec", "rar").exit_code == 2
    assert bench("produce-sample", "made").exit_code == 2


def test_produce_sample_compares_the_end_offsets(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastfetch.cli import bench_produce_sample

    real = bench_produce_sample.fill

    def fill(bootstrap: str, topic: str, *rest: Any) -> Any:
        broker.append(topic, 0, PLAIN)
        return real(bootstrap, topic, *rest)

    monkeypatch.setattr(bench_produce_sample, "fill", fill)
    done = bench("produce-sample", "made", "-b", broker.bootstrap_servers, "--records", 10)
    assert done.exit_code == 1
    assert "10 records were written to made, and its end offsets grew by 40: did others write too?" in done.stderr


def test_without_confluent_kafka_nothing_is_written(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.admin", None)
    done = bench("produce-sample", "made", "-b", broker.bootstrap_servers)
    assert (done.exit_code, done.stderr) == (
        1, "kfetch: confluent-kafka, which writes records, is not installed: pip install 'fastfetch[bench]'\n",
    )  # fmt: skip
    done = bench("consume", "orders", "-b", broker.bootstrap_servers, "--client", "fastfetch", "--latency", 5)
    assert done.exit_code == 1
    assert "kfetch: --latency: confluent-kafka, which writes records, is not installed" in done.stderr


# ------------------------------------------------------------------------------------------------------- without a Kafka


def test_the_broker_to_try_it_with(kept: Path) -> None:
    """What docs/cli.md shows, in small."""
    command = [sys.executable, "-m", "fastfetch", "serve", "--scratch", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        servers = json.loads(process.stdout.readline())["bootstrap_servers"]
        made = bench("produce-sample", "events", "-b", servers, "--records", 2000)
        assert made.exit_code == 0, made.stderr
        more = ("--latency", 50, "--latency-seconds", 0.2, "--json", kept)
        done = bench("consume", "events", "-b", servers, "--client", "aiokafka", *QUICK, *more)
        assert done.exit_code == 0, done.stderr
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20)[1] == ""
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert Run.load(kept).clients() == ["fastfetch", "aiokafka"]
    nothing = CliRunner().invoke(main, ["serve"])
    assert nothing.exit_code == 2
    assert nothing.stderr.startswith("kfetch: say what to serve: PATH, or --scratch for topics in memory. See ")
