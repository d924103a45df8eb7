"""The clients of `kfetch bench`: each reads what is there, in its own process, and says so; or why it could not."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from fastfetch.benchmark import clients, external
from fastfetch.benchmark.clients import CLIENTS, STAMP, Job, missing
from fastfetch.benchmark.contest import ReadingError, absent, take
from fastfetch.benchmark.external import EXTERNAL, ToolError
from fastfetch.testing import Broker, encode_batch

PARTITIONS, BATCHES = 2, 6
TOTAL = PARTITIONS * BATCHES * 10
BATCH = encode_batch([b"v%d" % number for number in range(10)], codec="lz4", leader_epoch=0)
HERE = [name for name in CLIENTS if not name.endswith(" defaults") and missing(name) is None]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("small", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            for _ in range(BATCHES):
                broker.append("small", partition, BATCH)
        yield broker


@pytest.mark.parametrize("client", [*HERE, "confluent-kafka 300 defaults", "aiokafka defaults", "kafka-python defaults"])
def test_a_client_reads_to_the_end(broker: Broker, client: str) -> None:
    turn = take(client, Job(broker.bootstrap_servers, "small", TOTAL, PARTITIONS))
    assert turn.records == TOTAL
    assert 0 < turn.seconds < 30
    assert turn.cpu > 0
    assert turn.peak_rss_bytes is not None
    assert turn.peak_rss_bytes > 5 << 20
    assert turn.ages_us is None


@pytest.mark.parametrize("client", [*HERE, "franz-go"])
@pytest.mark.parametrize("follow", ["append", "value"])
def test_a_client_that_follows_tells_how_old_records_are(broker: Broker, client: str, follow: str) -> None:
    if why := absent(client):
        pytest.skip(why)
    written: list[int] = []

    def write() -> None:
        for partition in range(PARTITIONS):
            time.sleep(0.05)
            now = time.time_ns() - 3_000_000_000  # as if they had been on their way for three seconds
            rows = [(None, STAMP.pack(now) + b"...", now // 1_000_000 if follow == "append" else 0)] * 3
            broker.append("small", partition, encode_batch(rows, leader_epoch=0))
            written.append(now)

    def ready() -> None:
        assert not written
        threading.Thread(target=write).start()

    starts = [(partition, BATCHES * 10) for partition in range(PARTITIONS)]
    turn = take(client, Job(broker.bootstrap_servers, "small", 6, PARTITIONS, starts, follow), ready=ready)
    assert turn.ages_us is not None
    assert len(turn.ages_us) == turn.records == 6
    assert all(3_000_000 <= age < 13_000_000 for age in turn.ages_us)


def test_settings_are_those_of_fastfetch(broker: Broker) -> None:
    job = Job(broker.bootstrap_servers, "small", TOTAL, PARTITIONS, settings={"isolation.level": "sideways"})
    with pytest.raises(ReadingError, match=r"fastfetch could not read small: .*isolation_level"):
        take("fastfetch", job)


@pytest.mark.parametrize("client", ["fastfetch", "confluent-kafka", "kafka-python"])
def test_a_client_whose_records_do_not_come_gives_up(broker: Broker, client: str) -> None:
    job = Job(broker.bootstrap_servers, "small", TOTAL + 1, PARTITIONS, quiet_seconds=0.5)
    with pytest.raises(ReadingError, match=f"nothing came for 0.5 s after {TOTAL} of {TOTAL + 1} records of small"):
        take(client, job)


@pytest.mark.parametrize("client", ["fastfetch", "confluent-kafka"])
def test_a_topic_that_is_not_there_is_said(broker: Broker, client: str) -> None:
    with pytest.raises(ReadingError, match=r"could not read absent: .*([Uu]nknown topic|UnknownTopicError)"):
        take(client, Job(broker.bootstrap_servers, "absent", 1, quiet_seconds=2))


def test_a_client_that_takes_too_long_is_ended(broker: Broker) -> None:
    began = time.monotonic()
    with pytest.raises(ReadingError, match="fastfetch could not read small within 1 s"):
        take("fastfetch", Job(broker.bootstrap_servers, "small", TOTAL + 1, PARTITIONS), seconds=1)
    assert time.monotonic() - began < 20


def test_defaults_have_no_settings_and_peers_raised_ones() -> None:
    for name, client in CLIENTS.items():
        assert bool(client.settings) != name.endswith("defaults")
        assert (client.at_once or 1) == 1 or str(client.at_once) in client.call


def test_what_is_missing_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "find_spec", lambda module: None if module == "aiokafka" else object())
    assert absent("aiokafka") == "aiokafka: aiokafka is not installed"
    assert absent("fastfetch") is None
    assert absent("nobody") == "nobody: no such client"


def test_programs_without_their_tools_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    external._franz_go.cache_clear()
    external._jars.cache_clear()
    assert absent("franz-go") == "franz-go: it needs Go to be built, and there is no go on PATH"
    assert absent("java") == "java: there is no java on PATH"
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/java" if name == "java" else None)
    monkeypatch.setenv("KAFKA_HOME", "/nowhere")
    assert absent("java") == "java: /nowhere/libs has no kafka-tools-*.jar; KAFKA_HOME has to be a Kafka of 3.5 or later"
    with pytest.raises(ReadingError, match="franz-go: it needs Go"):
        take("franz-go", Job("127.0.0.1:1", "t", 1))


def test_a_program_that_cannot_be_built_is_one_sentence() -> None:
    with pytest.raises(ToolError, match="it broke: second"):
        external._said([sys.executable, "-c", "import sys; sys.exit('first\\nsecond')"], "it broke")


@pytest.mark.parametrize("client", EXTERNAL)
def test_a_program_reads_to_the_end(broker: Broker, client: str) -> None:
    if why := absent(client):
        pytest.skip(why)
    turn = take(client, Job(broker.bootstrap_servers, "small", TOTAL, PARTITIONS))
    assert turn.records == TOTAL
    assert turn.seconds > 0
    assert turn.cpu > 0
    assert turn.peak_rss_bytes is not None
    assert turn.peak_rss_bytes > 5 << 20
    with pytest.raises(ReadingError, match=f"{client} could not read small: .*{TOTAL} (of|records).*"):
        take(client, Job(broker.bootstrap_servers, "small", TOTAL + 1, PARTITIONS, quiet_seconds=6))
    assert EXTERNAL[client].versions()
