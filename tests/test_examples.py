"""The scripts of examples/ do what they say. The delivery recipes are killed at random moments and started again, and then what
they left is counted."""

from __future__ import annotations

import contextlib
import importlib.util
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

import fastfetch
from fastfetch import OffsetAndMetadata, TopicPartition
from fastfetch.assignors import GroupCluster, Subscription
from fastfetch.testing import Broker, delay, encode_batch

EXAMPLES = Path(__file__).parent.parent / "examples"
PARTITIONS, BATCHES, BATCH = 4, 100, 10
RECORDS = {(p, offset) for p in range(PARTITIONS) for offset in range(BATCHES * BATCH)}
BLOCK = 3 * BATCH  # the largest that FETCH_BYTES lets through
KILLS = 5
SECONDS = 60  # for anything here; on a loaded machine nothing has a fixed time

Record = tuple[int, int]  # partition, offset


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders", partitions=PARTITIONS)
        for number in range(BATCHES):
            batch = encode_batch([b"%d" % n for n in range(number * BATCH, (number + 1) * BATCH)])
            for partition in range(PARTITIONS):
                running.append("orders", partition, batch)
        running.on("Fetch", delay(0.01), times=None)  # a round trip: what is read ahead is not all there is
        yield running


class Script:
    """One run of an example: its lines are in a file of its own, for SIGKILL may cut the last one."""

    def __init__(self, name: str, broker: Broker, folder: Path, *options: str, run: int = 0) -> None:
        self.output, self._errors = folder / f"{run}.out", folder / f"{run}.err"
        fetch_bytes = 2 * len(encode_batch([b"%d" % n for n in range(BATCH)])) + 100
        command = [
            sys.executable, EXAMPLES / name, "orders", "--brokers", broker.bootstrap_servers, "--group", "g", "--idle-ms", "1000",
            "-X", f"max.partition.fetch.bytes={fetch_bytes}", *options,
        ]  # fmt: skip
        with self.output.open("wb") as output, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(command, stdout=output, stderr=errors)

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def kill_after(self, seconds: float, exchange: object) -> None:
        """As the broker's answer is about to be sent, with 0; the broker's thread does not wait for it."""
        if seconds:
            threading.Timer(seconds, self._process.kill).start()
        else:
            self._process.kill()

    def errors(self) -> str:
        return self._errors.read_text()

    @property
    def has_ended(self) -> bool:
        """By itself or killed. A script that fails is a failure at once."""
        code = self._process.poll()
        assert code in (None, 0, -signal.SIGKILL), self.errors()
        return code is not None

    @property
    def was_killed(self) -> bool:
        return self._process.poll() == -signal.SIGKILL

    def lines(self) -> list[str]:
        return [line for line in self.output.read_text().splitlines(keepends=True) if line.endswith("\n")]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def printed(folder: Path) -> list[Record]:
    """What all runs have printed: lines of `orders-3 17 value`."""
    lines = (line for path in sorted(folder.glob("*.out")) for line in path.read_text().splitlines(keepends=True))
    words = [line.split() for line in lines if line.endswith("\n")]
    assert all(offset == value for _, offset, value in words)
    return [(int(name.removeprefix("orders-")), int(offset)) for name, offset, _ in words]


def stored(database: Path) -> list[Record]:
    """What is in the database."""
    with contextlib.closing(sqlite3.connect(database, timeout=SECONDS)) as connection:
        rows = connection.execute("SELECT topic, partition, offset, value FROM records").fetchall()
    assert all((topic, int(value)) == ("orders", offset) for topic, _, offset, value in rows)
    return [(partition, offset) for _, partition, offset, _ in rows]


def kill_and_restart(broker: Broker, seed: int, start: Callable[[int], Script]) -> int:
    """Run it again and again, until all is committed, the first KILLS times killed as the broker answers one of its requests or a
    moment later. Returns how often it was killed: it may come to its end before."""
    rng = random.Random(seed)
    kills = 0
    for run in range(KILLS + 10):
        with start(run) as script:
            if kills < KILLS:
                api, number = rng.choice(["OffsetCommit", "Fetch", "*"]), rng.randrange(1, 12)
                broker.on(api, partial(script.kill_after, rng.choice([0, rng.uniform(0, 0.05)])), nth=number)
            until(lambda: script.has_ended)
        kills += script.was_killed
        if not script.was_killed and is_all_committed(broker):
            return kills
    raise AssertionError("it never came to the end")


def is_all_committed(broker: Broker) -> bool:
    ends = dict.fromkeys(range(PARTITIONS), BATCHES * BATCH)
    return {tp.partition: at.offset for tp, at in broker.committed("g").items()} == ends


def count(found: list[Record]) -> tuple[int, int]:
    """How many records are missing, and how many are there once too often."""
    times = Counter(found)
    assert times.keys() <= RECORDS
    return len(RECORDS) - len(times), len(found) - len(times)


# A static member that comes back takes its old place at once (KIP-345): nobody waits for the session of the dead one to end.
STATIC = ("-X", "group.instance.id=one")


def test_at_most_once(broker: Broker, tmp_path: Path) -> None:
    kills = kill_and_restart(broker, 1, lambda run: Script("at_most_once.py", broker, tmp_path, *STATIC, run=run))
    assert kills >= 3
    lost, twice = count(printed(tmp_path))
    assert twice == 0
    assert lost <= kills * BLOCK


def test_at_least_once(broker: Broker, tmp_path: Path) -> None:
    options = ("--commit-every", "50", *STATIC)
    kills = kill_and_restart(broker, 2, lambda run: Script("at_least_once.py", broker, tmp_path, *options, run=run))
    assert kills >= 3
    lost, twice = count(printed(tmp_path))
    assert lost == 0
    assert twice <= kills * (50 + BLOCK)


def test_exactly_once(broker: Broker, tmp_path: Path) -> None:
    database = tmp_path / "orders.db"
    options = ("--database", str(database), *STATIC)
    kills = kill_and_restart(broker, 3, lambda run: Script("exactly_once_sqlite.py", broker, tmp_path, *options, run=run))
    assert kills >= 3
    assert count(stored(database)) == (0, 0)


@pytest.mark.parametrize("what", ["thrown out", "a rebalance"])
def test_a_refused_commit_costs_nothing(broker: Broker, tmp_path: Path, what: str) -> None:
    """At most once: what could not be committed is handed out again, here or wherever its partition goes."""

    def disturb(exchange: object) -> None:
        if what == "a rebalance":
            broker.rebalance("g")
        else:
            [member] = broker.group("g").members
            broker.expire_member("g", member)

    for number in (3, 20):
        broker.on("OffsetCommit", disturb, nth=number)
    with Script("at_most_once.py", broker, tmp_path, *STATIC, "--idle-ms", "60000") as script:
        until(lambda: is_all_committed(broker) and count(printed(tmp_path)) == (0, 0))
        assert (script.errors() != "") == (what == "thrown out")


# A dynamic member that was killed holds its partitions until its session ends.
DYNAMIC = ("--idle-ms", "60000", "-X", "session.timeout.ms=1500", "-X", "heartbeat.interval.ms=200")


def kill_one_of_two(broker: Broker, seed: int, start: Callable[[int], Script]) -> None:
    """Two members share the topic; each time one of them is killed and replaced, and the other one takes over meanwhile. When
    all is committed, both are killed."""
    rng = random.Random(seed)
    with ExitStack() as running:
        scripts = [running.enter_context(start(run)) for run in range(2)]
        for run in range(2, 5):
            victim = rng.randrange(2)
            broker.on("*", partial(scripts[victim].kill_after, rng.uniform(0, 0.1)), nth=rng.randrange(1, 60))
            until(lambda: scripts[victim].has_ended)  # noqa: B023 - called within the turn
            scripts[victim] = running.enter_context(start(run))
        until(lambda: is_all_committed(broker))


def test_at_most_once_in_a_group_of_two(broker: Broker, tmp_path: Path) -> None:
    kill_one_of_two(broker, 4, lambda run: Script("at_most_once.py", broker, tmp_path, *DYNAMIC, run=run))
    lost, twice = count(printed(tmp_path))
    assert twice == 0
    assert lost <= 5 * BLOCK


def test_exactly_once_in_a_group_of_two(broker: Broker, tmp_path: Path) -> None:
    options = ("--database", str(tmp_path / "orders.db"), *DYNAMIC)
    kill_one_of_two(broker, 5, lambda run: Script("exactly_once_sqlite.py", broker, tmp_path, *options, run=run))
    assert count(stored(tmp_path / "orders.db")) == (0, 0)


def test_a_store_is_not_written_to_by_a_member_that_was_overtaken(tmp_path: Path) -> None:
    """It was stopped with a block in its hands, its partition went to another member, and now it goes on."""
    recipe = example("exactly_once_sqlite")
    first, second = (fastfetch.decode(encode_batch([b"row"], base_offset=n)).blocks[0] for n in range(2))

    class Nobody:
        def seek(self, tp: TopicPartition, at: OffsetAndMetadata) -> None:
            assert at.offset == 2

        def seek_to_beginning(self, tp: TopicPartition) -> None:
            pass

    zombie, owner = (recipe.Store(str(tmp_path / "orders.db"), Nobody()) for _ in range(2))
    tp = TopicPartition("", 0)
    for store in (zombie, owner):
        store.on_partitions_assigned([tp])
    owner.add(first)
    owner.add(second)
    for block in (first, second):
        with pytest.raises(recipe.OvertakenError):
            zombie.add(block)
    zombie.restore(tp)
    with contextlib.closing(sqlite3.connect(tmp_path / "orders.db")) as database:
        assert database.execute("SELECT offset FROM records").fetchall() == [(0,), (1,)]


def test_partitions_in_proportion_to_capacity(broker: Broker, tmp_path: Path) -> None:
    def shares(script: Script) -> int:
        """How many partitions it has by its latest line."""
        return len(script.lines()[-1].split()) - 1 if script.lines() else 0

    with (
        Script("custom_assignor.py", broker, tmp_path, "--capacity", "1", *DYNAMIC, run=0) as small,
        Script("custom_assignor.py", broker, tmp_path, "--capacity", "3", *DYNAMIC, run=1) as large,
    ):
        until(lambda: (shares(small), shares(large)) == (1, 3))


def test_an_assignor_survives_what_others_say() -> None:
    assignor = example("custom_assignor").ByCapacity(3)
    topics = ("a", "b")
    said = {"m1": assignor.subscription_user_data(topics), "m2": None, "m3": b"-7", "m4": b"\xff\x00", "m5": b"9" * 40}
    subscriptions = {member: Subscription(topics, user_data) for member, user_data in said.items()}
    shares = assignor.assign(GroupCluster({"a": 7, "b": 14}), subscriptions)
    assert sorted(tp for share in shares.values() for tp in share.partitions) == [
        *(TopicPartition("a", n) for n in range(7)),
        *(TopicPartition("b", n) for n in range(14)),
    ]
    assert {member: len(share.partitions) for member, share in shares.items()} == {"m1": 9, "m2": 3, "m3": 3, "m4": 3, "m5": 3}


def example(name: str) -> ModuleType:
    """The script as a module, not run."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
