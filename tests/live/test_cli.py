"""`kfetch cat` against a real broker and against that broker's folder, as a person at a terminal runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.conftest import CODECS, SECONDS, Kafka, Sent


def kfetch(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fastfetch", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    topic = kafka.topic("cat", partitions=2)
    for partition in range(2):
        for turn, codec in enumerate(CODECS):
            records = [
                Sent(b"k%d" % i, b"%d/%d/%d" % (partition, turn, i), [("h", b"x")], 1_700_000_000_000 + i) for i in range(40)
            ]
            kafka.produce(topic, records, partition=partition, codec=codec, batch=9)
    return topic


def test_everything_in_a_topic(kafka: Kafka, topic: str) -> None:
    done = kfetch("cat", topic, "-b", kafka.servers, "-e", "-f", r"%p %o %k %v\n", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    expected = [
        f"{p} {r.offset} {r.key.decode()} {r.value.decode()}" for p in range(2) for r in kafka.consume(topic, partition=p)
    ]  # type: ignore[union-attr]
    assert sorted(done.stdout.splitlines()) == sorted(expected)
    assert len(expected) == 400


def test_a_range_as_json_lines(kafka: Kafka, topic: str) -> None:
    done = kfetch("cat", topic, "-b", kafka.servers, "-p", "1", "-o", "37:43", "-f", "json", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["partition"], line["offset"]) for line in lines] == [(1, offset) for offset in range(37, 43)]


def test_the_last_records_and_a_count(kafka: Kafka, topic: str) -> None:
    done = kfetch("cat", topic, "-b", kafka.servers, "-p", "0", "-o", "-5", "-e", "-f", r"%o\n", "-q")
    assert done.stdout.split() == ["195", "196", "197", "198", "199"], done.stderr
    done = kfetch("cat", topic, "-b", kafka.servers, "-p", "0", "-n", "3", "-f", r"%o\n", "-q")
    assert done.stdout.split() == ["0", "1", "2"], done.stderr


def test_the_brokers_folder_gives_the_same(kafka: Kafka, topic: str) -> None:
    folder = kafka.cluster.partition_folder(topic, 1)
    from_disk = kfetch("cat", folder, "-f", "json", "-q")
    from_broker = kfetch("cat", topic, "-b", kafka.servers, "-p", "1", "-e", "-f", "json", "-q")
    assert from_disk.returncode == from_broker.returncode == 0, from_disk.stderr + from_broker.stderr
    assert from_disk.stdout == from_broker.stdout
    assert from_disk.stdout.count("\n") == 200


def test_dump_of_the_brokers_segment(kafka: Kafka, topic: str) -> None:
    [segment] = kafka.cluster.partition_folder(topic, 0).glob("*.log")
    done = kfetch("dump", segment)
    assert done.returncode == 0, done.stderr
    for codec in CODECS[1:]:
        assert codec in done.stdout


def test_following_ends_cleanly_on_ctrl_c(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("follow")
    kafka.produce(topic, [Sent(b"k", b"before", [])])
    command = [sys.executable, "-m", "fastfetch", "cat", topic, "-b", kafka.servers, "-q"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert tail.stdout.readline() == b"before\n"
        kafka.produce(topic, [Sent(b"k", b"while it runs", [])], codec="zstd")
        assert tail.stdout.readline() == b"while it runs\n"
        tail.send_signal(signal.SIGINT)
        assert tail.wait(SECONDS) == 130
        assert tail.stderr.read() == b""


def test_an_unknown_topic_is_one_sentence(kafka: Kafka) -> None:
    done = kfetch("cat", "no-such-topic", "-b", kafka.servers, "-e")
    assert done.returncode == 1
    assert "no-such-topic" in done.stderr
    assert done.stderr.count("\n") == 1
