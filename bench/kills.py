"""Members of a group are killed under load, again and again, and every record is accounted for.

    python -m bench.kills [--kills 200] [--broker real|scripted] [--seed 1] [--run NAME ...] [--members 3] [--rate 3000]

Producers write numbered records into a topic of several partitions; a group of member processes (member.py) reads them. In a
rhythm that comes from the seed members are killed with SIGKILL, one or two at once, at whatever they are doing, and replaced;
some are closed in good order instead. When a run has its kills, the group reads to the end. Then the logs of the members are put
together (account.py): nothing may be lost, skipped or out of order, and only what was handed out after the last commit may come
twice. Exit status 1 if that does not hold.

Sessions are short, so that the partitions of the dead are taken over within seconds. What it starts ends with it, also on
Ctrl-C.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import click

from bench.account import Account, Event, reckon
from bench.measure import Figure, skipped
from fastfetch.testing import Broker, encode_batch
from tests.live.kafka_cluster import KafkaCluster, missing_tools

__all__ = ["RUNS", "Outcome", "Run", "figures", "kill_members", "real_broker", "scripted_broker"]

KILLS = 200
MEMBERS = 3
PARTITIONS = 8
RATE = 3_000  # records a second
SESSION_MS = 2_000
PAUSE_S = (0.2, 3.5)  # between two kills
CLOSED, TWO = 0.15, 0.15  # so many of the ends are in good order; so many of the others come two at once
END_S = 90  # to read to the end, once nobody is killed any more
STILL_S = 45  # without any progress of the group, a run is given up

SETTINGS = {"auto.offset.reset": "earliest", "auto.commit.interval.ms": 200, "max.poll.interval.ms": 30_000}
CLASSIC = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": SESSION_MS // 5}
BROKER = {
    "group.consumer.min.session.timeout.ms": 500,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": SESSION_MS // 5,
}


@dataclass(frozen=True)
class Run:
    """One group: its protocol or assignor, and who commits."""

    name: str
    settings: dict[str, object]
    commits: str


def _runs() -> Iterator[Run]:
    kinds: dict[str, dict[str, object]] = {
        "range": CLASSIC | {"partition.assignment.strategy": "range"},
        "cooperative-sticky": CLASSIC | {"partition.assignment.strategy": "cooperative-sticky"},
        "consumer": {"group.protocol": "consumer"},
    }
    for (kind, settings), commits in itertools.product(kinds.items(), ("automatic", "explicit")):
        yield Run(f"{kind}, {commits}", settings, commits)


RUNS = {run.name: run for run in _runs()}


class Source(Protocol):
    """A broker, and the two things that are asked of it."""

    servers: str

    def make(self, topic: str) -> None:
        """A new topic of PARTITIONS partitions."""

    def write(self, topic: str, partition: int, numbers: Sequence[int]) -> None:
        """Append records with these numbers as values."""

    def flush(self) -> None:
        """Return when all records are in the log."""

    def stored(self, group: str) -> dict[int, int]:
        """What the group has committed, by partition. Raises an exception if nobody can say."""


class RealKafka:
    """Asked by an independent client, so that it is no question to ourselves whether a commit was stored."""

    def __init__(self, servers: str) -> None:
        import confluent_kafka.admin

        self.servers = servers
        self._kafka = confluent_kafka
        self._admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": servers, "log_level": 0})
        self._producer = confluent_kafka.Producer({
            "bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 0,
        })  # fmt: skip
        self._failed: list[str] = []

    def make(self, topic: str) -> None:
        new = self._kafka.admin.NewTopic(topic, PARTITIONS)  # type: ignore[attr-defined]
        self._admin.create_topics([new])[topic].result(60)

    def write(self, topic: str, partition: int, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._producer.produce(topic, str(number).encode(), partition=partition, on_delivery=self._delivered)
        self._producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None or message.offset() != int(message.value()):
            self._failed.append(f"record {message.value()!r} of partition {message.partition()}: {error or message.offset()}")

    def flush(self) -> None:
        if self._producer.flush(60) or self._failed:
            raise RuntimeError(f"not all records were written as they were numbered: {self._failed[:3]}")

    def stored(self, group: str) -> dict[int, int]:
        wanted = self._kafka.ConsumerGroupTopicPartitions(group)
        found = self._admin.list_consumer_group_offsets([wanted])[group].result(30)
        return {tp.partition: tp.offset for tp in found.topic_partitions if tp.offset >= 0}


class ScriptedBroker:
    def __init__(self, broker: Broker) -> None:
        self.servers = broker.bootstrap_servers
        self._broker = broker

    def make(self, topic: str) -> None:
        self._broker.create_topic(topic, PARTITIONS)

    def write(self, topic: str, partition: int, numbers: Sequence[int]) -> None:
        self._broker.append(topic, partition, encode_batch([str(number).encode() for number in numbers]))

    def flush(self) -> None:
        """They are in memory."""

    def stored(self, group: str) -> dict[int, int]:
        return {tp.partition: at.offset for tp, at in self._broker.committed(group).items()}


@contextlib.contextmanager
def real_broker() -> Iterator[Source]:
    with (
        tempfile.TemporaryDirectory(prefix="fastfetch-kills-") as folder,
        KafkaCluster(Path(folder) / "cluster", settings=BROKER) as cluster,
    ):
        yield RealKafka(cluster.bootstrap_servers)


@contextlib.contextmanager
def scripted_broker() -> Iterator[Source]:
    with Broker(observe=lambda _: None, consumer_session=SESSION_MS / 1000, consumer_heartbeat=SESSION_MS / 5000) as broker:
        yield ScriptedBroker(broker)


# --- the load ---------------------------------------------------------------------------------------------------------------


class Producer:
    """Writes records at a steady rate, in a thread, until told to stop; `ends` is then what it wrote by partition."""

    TICK_S = 0.02

    def __init__(self, source: Source, topic: str, rate: float) -> None:
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self._source, self._topic, self._rate = source, topic, rate
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._produce, name="producer", daemon=True)
        self._thread.start()

    def _produce(self) -> None:
        began, written = time.monotonic(), 0
        turns = itertools.cycle(self.ends)
        try:
            while not self._stopped.wait(self.TICK_S):
                due = int((time.monotonic() - began) * self._rate) - written
                partition = next(turns)
                first = self.ends[partition]
                self._source.write(self._topic, partition, range(first, first + due))
                self.ends[partition] += due
                written += due
        except BaseException as error:
            self._error = error

    def stop(self) -> None:
        """Stop, and return when all is written. Raises what the thread met."""
        self._stopped.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        self._source.flush()


# --- the group --------------------------------------------------------------------------------------------------------------


@dataclass
class Group:
    """The member processes of one run, and what happened to them. A context manager: none outlives it. It has the name of its
    topic."""

    run: Run
    source: Source
    topic: str
    folder: Path
    alive: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    closing: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.alive.values(), *self.closing.values()]:
            process.kill()
        for process in [*self.alive.values(), *self.closing.values()]:
            process.wait()

    def start(self) -> None:
        number = next(self._numbers)
        settings = {"bootstrap.servers": self.source.servers, "group.id": self.topic, **SETTINGS, **self.run.settings}
        job = {"log": str(self._log(number)), "topic": self.topic, "commits": self.run.commits, "settings": settings}
        command = [sys.executable, "-m", "bench.member", json.dumps(job)]
        if shutil.which("setpriv"):  # ended by the kernel if this process is killed
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        with self._errors(number).open("wb") as errors:
            # A session of its own: Ctrl-C at the terminal is for this process, which then ends the others.
            self.alive[number] = subprocess.Popen(command, stdout=errors, stderr=errors, start_new_session=True)

    def kill(self, number: int) -> None:
        process = self.alive.pop(number)
        process.kill()
        process.wait()
        self.events.append(Event(time.monotonic_ns(), number, "killed", []))

    def note_stored(self) -> None:
        """Ask the coordinator what is committed."""
        self.events.append(Event(time.monotonic_ns(), -1, "asked", []))
        stored = [[partition, offset] for partition, offset in self.source.stored(self.topic).items()]
        self.events.append(Event(time.monotonic_ns(), -1, "stored", stored))

    def close(self, number: int) -> None:
        """SIGTERM: the member leaves in good order; `look` sees when it has ended."""
        process = self.closing[number] = self.alive.pop(number)
        process.terminate()

    def look(self) -> None:
        """Note members that have ended, and why if they should not have."""
        for number, process in [*self.alive.items(), *self.closing.items()]:
            code = process.poll()
            if code is None:
                continue
            wanted = self.closing.pop(number, None) is not None
            self.alive.pop(number, None)
            # SIGTERM may come before the member listens to it; then it has no partitions either.
            if not wanted or code not in (0, -signal.SIGTERM):
                said = self._errors(number).read_text(errors="replace").strip().splitlines() or ["nothing"]
                self.troubles.append(f"member {number} ended with {code} and said: {said[-1]}")

    def wait(self, condition: Callable[[], bool], what: str, seconds: float) -> bool:
        """Look again and again until it holds; False, and a trouble noted, if the time is up first."""
        deadline = time.monotonic() + seconds
        while not condition():
            self.look()
            if time.monotonic() > deadline:
                self.troubles.append(f"{what}: not within {seconds:.0f} s")
                return False
            time.sleep(0.1)
        return True

    def logged(self) -> list[Event]:
        """All events of the run. A line that SIGKILL has cut is not read: nothing came after it."""
        found = list(self.events)
        for path in self.folder.glob("*.log"):
            for line in path.read_bytes().splitlines(keepends=True):
                if line.endswith(b"\n"):
                    at, what, details = json.loads(line)
                    found.append(Event(at, int(path.stem), what, details))
        return found

    def said(self) -> int:
        """How much the members have written so far, to tell a group that goes on from one that stands still."""
        return sum(path.stat().st_size for path in self.folder.glob("*.log"))

    def _log(self, number: int) -> Path:
        return self.folder / f"{number}.log"

    def _errors(self, number: int) -> Path:
        return self.folder / f"{number}.err"


@dataclass
class Outcome:
    """What came of one run."""

    run: Run
    account: Account
    troubles: list[str]
    seconds: float

    @property
    def is_right(self) -> bool:
        return not self.account.faults and not self.troubles


def kill_members(
    source: Source, run: Run, kills: int, rng: random.Random, *, members: int = MEMBERS, rate: float = RATE
) -> Outcome:
    """One run. Raises what the producer or the broker met; what the members do wrong is in the outcome."""
    began = time.monotonic()
    topic = f"kills-{rng.getrandbits(32):08x}"
    source.make(topic)
    with (
        tempfile.TemporaryDirectory(prefix="fastfetch-members-") as folder,
        Group(run, source, topic, Path(folder)) as group,
    ):
        producer = Producer(source, topic, rate)
        try:
            _kill(group, kills, rng, members)
        finally:
            producer.stop()
        ends = {partition: end for partition, end in producer.ends.items() if end}
        for _ in range(members - len(group.alive)):
            group.start()
        group.wait(lambda: source.stored(topic) == ends, "reading to the end and committing it", END_S)
        for number in list(group.alive):
            group.close(number)
        group.wait(lambda: not group.closing, "closing", END_S)
        group.note_stored()
        account = reckon(group.logged(), producer.ends)
    return Outcome(run, account, group.troubles, time.monotonic() - began)


def _kill(group: Group, kills: int, rng: random.Random, members: int) -> None:
    """Kill and replace until it is done, or until the group stands still."""
    killed, said, still_since = 0, 0, time.monotonic()
    while killed < kills:
        while len(group.alive) < members:
            group.start()
        if not said and not group.wait(lambda: group.said() > 0, "the first assignment", STILL_S):
            return
        time.sleep(rng.uniform(*PAUSE_S))
        group.look()
        if (now_said := group.said()) > said:
            said, still_since = now_said, time.monotonic()
        elif time.monotonic() - still_since > STILL_S:
            group.troubles.append(f"nobody was handed anything for {STILL_S} s")
            return
        victims = rng.sample(sorted(group.alive), k=min(len(group.alive), 1 + (rng.random() < TWO)))
        if victims and rng.random() < CLOSED:
            group.close(victims[0])
            continue
        for victim in victims[: kills - killed]:
            group.kill(victim)
            killed += 1
        group.note_stored()


# --- the report -------------------------------------------------------------------------------------------------------------

COLUMNS = (
    "run", "kills", "of owners", "records", "lost", "skipped", "disordered", "stale", "ahead",
    "duplicates", "of at most", "in order", "behind", "takeover s", "run s", "",
)  # fmt: skip


def row(outcome: Outcome) -> tuple[str, ...]:
    account = outcome.account
    counts = (
        account.kills, account.owners, account.records, account.lost, account.skipped, account.disordered, account.stale,
        account.ahead, account.duplicates, account.uncommitted, account.in_order, account.behind,
    )  # fmt: skip
    numbers = [f"{count:,}" for count in counts]
    verdict = "right" if outcome.is_right else "WRONG"
    return (outcome.run.name, *numbers, f"{account.takeover:.1f}", f"{outcome.seconds:.0f}", verdict)


def report(outcomes: Sequence[Outcome]) -> str:
    """The table, and below it what else went wrong."""
    rows = [COLUMNS, *map(row, outcomes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    first, *others = widths
    lines = [f"{name:{first}}  " + "  ".join(map(str.rjust, numbers, others)) for name, *numbers in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    lines += [f"{outcome.run.name}: {trouble}" for outcome in outcomes for trouble in outcome.troubles]
    return "\n".join(line.rstrip() for line in lines)


def take(source: Source, names: Sequence[str], kills: int, seed: int, members: int, rate: float) -> Iterator[Outcome]:
    """The runs of these names, with the kills shared out among them."""
    for index, name in enumerate(names):
        share = kills * (index + 1) // len(names) - kills * index // len(names)
        print(f"{name}: {share} kills …", file=sys.stderr, flush=True)
        yield kill_members(source, RUNS[name], share, random.Random(f"{seed} {name}"), members=members, rate=rate)


def figures(scale: Callable[[int], int]) -> list[Figure]:
    """For bench.figures: all runs as one line a rule."""
    if reason := missing_tools():
        return [skipped("kills", "members killed under load", reason)]
    with real_broker() as source:
        outcomes = list(take(source, list(RUNS), scale(KILLS), 1, MEMBERS, RATE))
    accounts = [outcome.account for outcome in outcomes]
    troubles = [f"{outcome.run.name}: {trouble}" for outcome in outcomes for trouble in outcome.troubles]
    kills, records = sum(account.kills for account in accounts), sum(account.records for account in accounts)

    def line(name: str, bound: float | None, *attributes: str, detail: str = "") -> Figure:
        count = sum(getattr(account, attribute) for account in accounts for attribute in attributes)
        return Figure("kills", f"{kills} members killed: {name}", (float(count),), "records", "<=", bound, detail)

    return [
        line("lost", 0, "lost", detail=f"of {records:,}"),
        line("skipped, or committed ahead", 0, "skipped", "ahead"),
        line("out of order, or of partitions that had gone", 0, "disordered", "stale"),
        line("duplicates below the last commit", 0, "behind"),
        line("duplicates after a clean end", 0, "in_order"),
        line("duplicates", None, "duplicates", detail=f"{sum(account.uncommitted for account in accounts):,} were not committed"),
        Figure("kills", "what else went wrong", (float(len(troubles)),), "times", "<=", 0, "; ".join(troubles)),
    ]


def _end(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@click.command()
@click.option("--kills", type=click.IntRange(1), default=KILLS, show_default=True, help="In all, shared out among the runs.")
@click.option("--broker", type=click.Choice(["real", "scripted"]), default="real", show_default=True)
@click.option("--run", "names", multiple=True, type=click.Choice(list(RUNS)), help="Only this one; may be given several times.")
@click.option("--members", type=click.IntRange(1), default=MEMBERS, show_default=True)
@click.option("--rate", type=click.FloatRange(1), default=RATE, show_default=True, help="Records a second.")
@click.option("--seed", type=int, default=1, show_default=True)
def main(kills: int, broker: str, names: tuple[str, ...], members: int, rate: float, seed: int) -> None:
    """Kill members of a group under load, and account for every record."""
    if broker == "real" and (reason := missing_tools()):
        sys.exit(reason)
    signal.signal(signal.SIGTERM, _end)
    outcomes: list[Outcome] = []
    try:
        with real_broker() if broker == "real" else scripted_broker() as source:
            outcomes.extend(take(source, names or list(RUNS), kills, seed, members, rate))
    except KeyboardInterrupt:
        if outcomes:
            print(report(outcomes))
        sys.exit(130)
    print(report(outcomes))
    if not all(outcome.is_right for outcome in outcomes):
        sys.exit(1)


if __name__ == "__main__":
    main()
